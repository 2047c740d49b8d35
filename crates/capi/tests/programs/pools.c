/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * pools: OpenMP's threads and those of comem_parallel() use shared memory in turn, whoever begins, and so do threads
 * of the program's own that end.
 */
#include <comem.h>

#include "check.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>

enum { ITEMS = 4096 };

static long *items;

static void in_parallel(void *unused) {
    (void)unused;
    uint64_t low, high;
    comem_barrier();
    comem_split(ITEMS, &low, &high);
    for (uint64_t i = low; i < high; i++) items[i]++;
    comem_barrier();
}

/* Each node's part, by a team of as many threads as the node has places. */
static void by_openmp(void) {
    const long low = (long)ITEMS * comem_node() / comem_nodes();
    const long high = (long)ITEMS * (comem_node() + 1) / comem_nodes();
#pragma omp parallel for num_threads(comem_threads_per_node())
    for (long i = low; i < high; i++) items[i]++;
    comem_node_barrier();
}

static void *alone(void *unused) {
    (void)unused;
    if (comem_node() == 0) items[0] += 1;
    return NULL;
}

static void by_own_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, alone, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    comem_node_barrier();
}

int main(int argc, char **argv) {
    (void)argv;
    if (comem_start() != 0) return 1;
    items = (long *)comem_alloc_all(ITEMS * sizeof *items, NULL);
    comem_node_barrier();
    const int first = argc > 1; /* with an argument comem_parallel() is first */
    for (int round = 0; round < 3; round++) {
        if (first || round > 0) comem_parallel(in_parallel, NULL);
        by_own_thread(); /* before OpenMP's threads have all places */
        by_openmp();
    }
    comem_parallel(in_parallel, NULL);
    by_openmp();
    const int times = first ? 8 : 7;
    for (int i = 1; i < ITEMS; i++) CHECK(items[i] == times);
    CHECK(items[0] == times + 3);
    if (comem_node() == 0) printf("pools: %s\n", failures ? "wrong" : "ok");
    const int code = comem_finish();
    return failures || code;
}
