/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * histogram.c: a program with threads, as it looks with Comem; docs/c.md shows what it was before.
 *
 *     cc -std=c11 -Iinclude examples/histogram.c -Ltarget/release -lcomem -Wl,-rpath,$PWD/target/release -o histogram
 *     comem run -n 4 ./histogram
 *
 * The same source with -DCOMEM_PTHREADS -pthread is a program of plain threads, with -DCOMEM_SEQUENTIAL one of none.
 */
#include <comem.h>
#include <stdio.h>

enum { ITEMS = 1000000, BINS = 16, COUNTS = 1 };

static unsigned char *items; /* pointers: private, the same on every node; what they point to: shared */
static long *counts;

static void work(void *unused) {
    (void)unused;
    uint64_t low, high;
    long mine[BINS] = {0}; /* on the stack: this thread's own */
    comem_split(ITEMS, &low, &high);
    for (uint64_t i = low; i < high; i++) items[i] = (unsigned char)(i * i / 7 % BINS);
    for (uint64_t i = low; i < high; i++) mine[items[i]]++;

    comem_lock(COUNTS);
    for (int b = 0; b < BINS; b++) counts[b] += mine[b];
    comem_unlock(COUNTS);

    comem_barrier();
    if (comem_thread() == 0) {
        long all = 0;
        for (int b = 0; b < BINS; b++) all += counts[b];
        printf("%ld items, %ld in the first bin\n", all, counts[0]);
    }
}

int main(void) {
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    items = comem_alloc_all(ITEMS, NULL);
    counts = comem_alloc_all(BINS * sizeof *counts, NULL);
    comem_parallel(work, NULL);
    return comem_finish();
}
