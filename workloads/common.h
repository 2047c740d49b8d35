/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * common.h: what all workloads share: their command lines, their clock, their checksum.
 */
#ifndef WORKLOADS_COMMON_H
#define WORKLOADS_COMMON_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <comem.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One option of a workload: `--name VALUE` into a number or a text, or `--name` alone into a switch. */
typedef struct option {
    const char *name;
    int64_t *number;
    const char **text;
    int *on;
    const char *help;
} option;

static inline void usage(const char *program, const option *options, size_t count, FILE *out) {
    fprintf(out, "usage: %s [OPTIONS]\n", program);
    for (size_t i = 0; i < count; i++) {
        const char *value = options[i].on ? "" : options[i].number ? " N" : " TEXT";
        fprintf(out, "  %s%s: %s", options[i].name, value, options[i].help);
        if (options[i].number && *options[i].number >= 0) fprintf(out, " (default %" PRId64 ")", *options[i].number);
        fprintf(out, "\n");
    }
}

/* Reads the command line into the options; ends the program with status 2 when it makes no sense. */
static inline void read_options(int argc, char **argv, const option *options, size_t count) {
    for (int i = 1; i < argc; i++) {
        const option *found = NULL;
        for (size_t k = 0; k < count; k++) {
            if (strcmp(argv[i], options[k].name) == 0) found = &options[k];
        }
        if (found && found->on) {
            *found->on = 1;
        } else if (found && i + 1 < argc && found->text) {
            *found->text = argv[++i];
        } else if (found && i + 1 < argc) {
            char *end;
            long long number = strtoll(argv[++i], &end, 0);
            if (*end != '\0' || end == argv[i] || number < 0) {
                fprintf(stderr, "%s: %s takes a number, not '%s'\n", argv[0], found->name, argv[i]);
                exit(2);
            }
            *found->number = number;
        } else {
            int wants_help = strcmp(argv[i], "--help") == 0;
            if (!wants_help && found) fprintf(stderr, "%s: %s takes a value\n", argv[0], argv[i]);
            if (!wants_help && !found) fprintf(stderr, "%s: unknown option '%s'\n", argv[0], argv[i]);
            usage(argv[0], options, count, wants_help ? stdout : stderr);
            exit(wants_help ? 0 : 2);
        }
    }
}

/* Ends the program with status 2 and a sentence about an option's value. */
static inline void refuse(const char *program, const char *sentence) {
    fprintf(stderr, "%s: %s\n", program, sentence);
    exit(2);
}

/* Seconds since some moment. */
static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Mixes a number well (splitmix64): for checksums and for random numbers that every node computes alike. */
static inline uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif /* WORKLOADS_COMMON_H */
