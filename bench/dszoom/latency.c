/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * latency.c: what one miss of each kind costs. Node 0 is the requester, node 1 the home of the memory (in the cases
 * `home-...` node 0 is), node 2 its owner where another node has written it. Each case touches fresh units once, in an
 * order that nothing fetches ahead.
 *
 *     comem-cc --inline -std=gnu11 -O2 -o latency bench/dszoom/latency.c
 *     comem run -n 3 --engine direct ./latency UNIT [CASE]
 *
 * UNIT is the size of a unit in bytes (4096 under the engines of pages). Prints for each case the median of some
 * rounds, in nanoseconds.
 */
#include <comem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UNITS = 1024, ROUNDS = 5, GRAIN = 128 << 10, REQUESTER = 0, HOME = 1, OWNER = 2 };

typedef enum { NOTHING, READS, WRITES } what;
typedef struct {
    const char *name;
    int home;
    struct {
        int node;
        what does;
    } before[3]; /* what other nodes, or this one, did with each unit */
    what measured;
} kind;

static const kind KINDS[] = {
    {"read-clean", HOME, {{HOME, WRITES}}, READS},
    {"read-dirty", HOME, {{OWNER, WRITES}}, READS},
    {"read-dirty-again", HOME, {{OWNER, WRITES}, {REQUESTER, READS}, {OWNER, WRITES}}, READS},
    {"write-clean", HOME, {{HOME, WRITES}}, WRITES},
    {"write-dirty", HOME, {{OWNER, WRITES}}, WRITES},
    {"write-shared", HOME, {{HOME, WRITES}, {OWNER, READS}}, WRITES},
    {"upgrade", HOME, {{HOME, WRITES}, {REQUESTER, READS}}, WRITES},
    {"home-read-dirty", REQUESTER, {{OWNER, WRITES}}, READS},
    {"home-write-dirty", REQUESTER, {{OWNER, WRITES}}, WRITES},
};
enum { CASES = sizeof KINDS / sizeof *KINDS };

static size_t unit = 64;
static const char *only;
static double ns[CASES][ROUNDS];
static int wrong;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The number of the i-th unit to touch: all of them, none beside the one before. */
static size_t scattered(size_t i) { return i * 397 % UNITS; }

/* The first unit of each grain opens it, and is not measured. */
static int opens(size_t u) { return u * unit % GRAIN == 0; }

static unsigned long value(size_t u, int step) { return 1 + u * 4 + (unsigned long)step; }

/* Touches all units once; a value that is not that of the last store counts as wrong. */
static size_t touch(char *memory, what does, int step, int last) {
    size_t touched = 0;
    for (size_t i = 0; i < UNITS; i++) {
        const size_t u = scattered(i);
        volatile unsigned long *word = (volatile unsigned long *)(memory + u * unit);
        if (opens(u)) continue;
        touched++;
        if (does == READS)
            wrong += *word != value(u, last);
        else
            *word = value(u, step);
    }
    return touched;
}

static void measure(const kind *k, double *result) {
    comem_region_options options = {.home = COMEM_HOME_ON, .home_number = k->home, .alignment = 4096, .label = k->name};
    char *memory = comem_alloc_all(UNITS * unit, &options);
    if (!memory) fprintf(stderr, "%s\n", comem_last_error()), exit(1);
    for (size_t u = 0; u < UNITS; u++)
        if (opens(u)) (void)*(volatile char *)(memory + u * unit);
    int last = 0;
    for (int step = 0; step < 3 && k->before[step].does; step++) {
        comem_barrier();
        if (comem_node() == k->before[step].node) touch(memory, k->before[step].does, step, last);
        if (k->before[step].does == WRITES) last = step;
    }
    comem_barrier();
    if (comem_node() == REQUESTER) {
        const double begun = now_ns();
        const size_t touched = touch(memory, k->measured, 3, last);
        *result = (now_ns() - begun) / (double)touched;
    }
    comem_barrier();
}

static void work(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++)
        for (int c = 0; c < CASES; c++)
            if (!only || !strcmp(only, KINDS[c].name)) measure(&KINDS[c], &ns[c][round]);
}

static int ascending(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    if (comem_threads() != 3 || comem_nodes() != 3)
        return fprintf(stderr, "latency is for three nodes of one thread: comem run -n 3\n"), 2;
    if (argc > 1) unit = strtoul(argv[1], NULL, 10);
    if (argc > 2) only = argv[2];
    comem_parallel(work, NULL);
    if (wrong) return fprintf(stderr, "node %d has read %d wrong values\n", comem_node(), wrong), 1;
    for (int c = 0; c < CASES && comem_node() == REQUESTER; c++) {
        if (only && strcmp(only, KINDS[c].name)) continue;
        qsort(ns[c], ROUNDS, sizeof **ns, ascending);
        printf("%s %.1f\n", KINDS[c].name, ns[c][ROUNDS / 2]);
    }
    return comem_finish();
}
