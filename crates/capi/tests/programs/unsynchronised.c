/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * unsynchronised: the last thread writes a word, and the first one reads it behind a rendezvous, which is neither a
 * release nor an acquire. It is right where all nodes map one memory, and wrong where each has copies: it lacks a
 * barrier.
 */
#include <comem.h>

#include <stdio.h>

static long *shared;
static long found;

static void work(void *unused) {
    (void)unused;
    int id = comem_thread();
    /* Every node has a copy of the page. */
    volatile long *word = shared;
    long before = *word;
    comem_barrier();
    if (id == comem_threads() - 1) {
        *word = before + 42;
    }
    comem_rendezvous();
    if (id == 0) {
        found = *word;
    }
    comem_barrier();
}

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != COMEM_OK) {
        return 1;
    }
    shared = comem_alloc_all(4096, NULL);
    if (shared == NULL || comem_parallel(work, NULL) != COMEM_OK) {
        return 1;
    }
    if (comem_node() == 0) {
        printf("found %ld\n", found);
    }
    return comem_finish() == COMEM_OK ? 0 : 1;
}
