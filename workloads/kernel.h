/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * kernel.h: what the programs on shared pages share: problem sizes by name, memory dealt out to threads, one line of
 * results.
 *
 * These programs use shared memory through ordinary pointers. Each is one source for three builds: with Comem, with
 * plain threads (COMEM_PTHREADS) and for one thread (COMEM_SEQUENTIAL).
 */
#ifndef WORKLOADS_KERNEL_H
#define WORKLOADS_KERNEL_H

#include "common.h"

#include <math.h>

enum { KERNEL_NUMBERS_MAX = 6, KERNEL_PAGE = 4096, KERNEL_LINE = 64 };

/* For the functions in which a program spends its time. Each is compiled by itself and begins at a cache line. So its
 * instructions are the same in all three builds, at the same places of cache lines: no build is faster because of what
 * the compiler knows or puts around them. tests/kernels.sh compares them. */
#if defined(__clang__)
#define KERNEL_HOT __attribute__((noinline, aligned(KERNEL_LINE)))
#else
#define KERNEL_HOT __attribute__((noipa, aligned(KERNEL_LINE)))
#endif

/* A problem size with a name: a value for each of a program's numbers, in their order. */
typedef struct preset {
    const char *name;
    const char *source;
    int64_t values[KERNEL_NUMBERS_MAX];
} preset;

/* A program's verdict on its own result. */
enum { KERNEL_WRONG, KERNEL_OK, KERNEL_UNCHECKED };

/* Whether to compare with a computation of another kind whatever that costs, and how long the parallel phase took, as
 * thread 0 saw it. */
static int kernel_check;
static double kernel_seconds;

static void kernel_usage(const char *program, const option *numbers, size_t count, const preset *presets,
                         size_t preset_count) {
    usage(program, numbers, count, stdout);
    printf("  --check: compare with a computation of another kind\n  --preset NAME: a problem size\n\n%-10s", "preset");
    for (size_t i = 0; i < count; i++) printf(" %12s", numbers[i].name + 2);
    printf("\n");
    for (size_t k = 0; k < preset_count; k++) {
        printf("%-10s", presets[k].name);
        for (size_t i = 0; i < count; i++) printf(" %12" PRId64, presets[k].values[i]);
        printf("  %s\n", presets[k].source);
    }
}

/* Joins the job and reads the command line: first the preset, then the numbers that differ from it. `numbers` are
 * options with a number each; `tiny` is always checked. */
static inline void kernel_start(int argc, char **argv, const option *numbers, size_t count, const preset *presets,
                                size_t preset_count) {
    option options[KERNEL_NUMBERS_MAX + 2];
    const char *name = NULL;
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        exit(3);
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--preset") == 0 && i + 1 < argc) name = argv[i + 1];
        if (strcmp(argv[i], "--help") == 0) {
            kernel_usage(argv[0], numbers, count, presets, preset_count);
            exit(0);
        }
    }
    const preset *chosen = NULL;
    for (size_t k = 0; name && k < preset_count; k++) {
        if (strcmp(presets[k].name, name) == 0) chosen = &presets[k];
    }
    if (name && !chosen) {
        char sentence[400];
        int at = snprintf(sentence, sizeof sentence, "there is no preset %.40s; there are", name);
        for (size_t k = 0; k < preset_count && at < (int)sizeof sentence - 40; k++) {
            at += snprintf(sentence + at, sizeof sentence - (size_t)at, "%s %.30s", k ? "," : "", presets[k].name);
        }
        refuse(argv[0], sentence);
    }
    for (size_t i = 0; chosen && i < count; i++) *numbers[i].number = chosen->values[i];
    kernel_check = name && strcmp(name, "tiny") == 0;
    memcpy(options, numbers, count * sizeof *numbers);
    options[count] = (option){"--check", NULL, NULL, &kernel_check, "compare with a computation of another kind"};
    options[count + 1] = (option){"--preset", NULL, &name, NULL, "a problem size"};
    read_options(argc, argv, options, count + 2);
}

/* Ends the line of results that the program began with its own numbers, leaves the job, and gives the exit status.
 * Node 0 calls it with its verdict; the others' is not looked at. */
static inline int kernel_finish(uint64_t checksum, int verdict) {
    static const char *const words[] = {"WRONG", "ok", "unchecked"};
    const int first = comem_node() == 0;
    if (first) {
        printf(" threads=%d nodes=%d time_s=%.6f checksum=%016" PRIx64 " %s\n", comem_threads(), comem_nodes(),
               kernel_seconds, checksum, words[verdict]);
    }
    return comem_finish() != 0 || (first && verdict == KERNEL_WRONG);
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

/* Part `part` of `parts` parts of `total` things, in order and as equal as can be: [*low, *high). */
static inline void kernel_part(int64_t total, int64_t parts, int64_t part, int64_t *low, int64_t *high) {
    *low = total * part / parts;
    *high = total * (part + 1) / parts;
}

static inline size_t kernel_round_up(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

/* Memory of the process alone, aligned to a cache line and never freed; ends the program when there is none. */
static inline void *kernel_private(size_t bytes) {
    char *block = calloc(1, bytes + KERNEL_LINE);
    if (!block) refuse("kernel", "no memory");
    return block + (KERNEL_LINE - (uintptr_t)block % KERNEL_LINE) % KERNEL_LINE;
}

/* Shared memory in whole pages, each at home with who writes it. Collective: called before comem_parallel(), by every
 * node alike. */
static inline void *kernel_shared(size_t bytes, const char *label) {
    comem_region_options options;
    memset(&options, 0, sizeof options);
    options.label = label;
    options.home = COMEM_HOME_AUTOMATIC;
    options.alignment = KERNEL_PAGE;
    void *memory = comem_alloc_all(kernel_round_up(bytes, KERNEL_PAGE), &options);
    if (!memory) refuse(label, "no shared memory");
    return memory;
}

/* Shared memory in one part for each thread, whose pages have the thread's node for their home: no page belongs to
 * two nodes, no cache line to two threads. `bytes[t]` is the size of thread t's part and `parts[t]` becomes its
 * address. `unit_pages` pages move together; 0: the job's choice. Collective: called before comem_parallel(), by every
 * node alike. */
static inline void kernel_alloc_units(const char *label, unsigned unit_pages, const size_t *bytes, void **parts) {
    const int each = comem_threads_per_node();
    for (int node = 0; node < comem_nodes(); node++) {
        size_t total = 0;
        for (int t = node * each; t < (node + 1) * each; t++) total += kernel_round_up(bytes[t], KERNEL_LINE);
        comem_region_options options;
        memset(&options, 0, sizeof options);
        options.label = label;
        options.home = COMEM_HOME_ON;
        options.home_number = node;
        options.alignment = KERNEL_PAGE;
        options.unit_pages = unit_pages;
        char *part = comem_alloc_all(kernel_round_up(total ? total : 1, KERNEL_PAGE), &options);
        if (!part) refuse(label, "no shared memory");
        for (int t = node * each; t < (node + 1) * each; t++) {
            parts[t] = part;
            part += kernel_round_up(bytes[t], KERNEL_LINE);
        }
    }
}

/* The same, with the job's unit. */
static inline void kernel_alloc_parts(const char *label, const size_t *bytes, void **parts) {
    kernel_alloc_units(label, 0, bytes, parts);
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

/* The number that a double's bits make, for checksums. */
static inline uint64_t kernel_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A random number in [0, 1) that belongs to `index`. */
static inline double kernel_random(uint64_t index) {
    return (double)(mix(index) >> 11) * 0x1p-53;
}

#endif /* WORKLOADS_KERNEL_H */
