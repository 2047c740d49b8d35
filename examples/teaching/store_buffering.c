/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * store_buffering.c: the heart of Dekker's mutual exclusion. Each of two threads raises its flag and looks for the
 * other's. Under sequential consistency one of them sees the other; where stores are told later, both may see nobody.
 * docs/teaching.md says why.
 *
 *     comem run -n 2 --engine hlrc ./store_buffering
 */
#include <comem.h>
#include <stdio.h>

static volatile long *flag, *saw; /* a page for each flag of each round, and what each thread saw */
enum { ROUNDS = 200, PAGE = 512 };

static void work(void *unused) {
    (void)unused;
    const int me = comem_thread();
    for (int round = 0; round < ROUNDS; round++) {
        volatile long *mine = flag + (2 * round + me) * PAGE, *other = flag + (2 * round + !me) * PAGE;
        (void)*other;    /* have a copy, as a thread that waits its turn would */
        comem_barrier(); /* begin together */
        *mine = 1;
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the processor's own store buffer is not meant */
        saw[me * PAGE + round] = *other;
        comem_barrier();
    }
}

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    flag = comem_alloc_all((size_t)2 * ROUNDS * PAGE * sizeof *flag, NULL);
    saw = comem_alloc_all((size_t)2 * PAGE * sizeof *saw, NULL);
    if (comem_threads() != 2) return fprintf(stderr, "Dekker's algorithm is for two: comem run -n 2\n"), 2;
    comem_parallel(work, NULL);
    int nobody = 0;
    for (int round = 0; round < ROUNDS; round++) nobody += !saw[round] && !saw[PAGE + round];
    if (comem_node() == 0) printf("in %d of %d rounds both saw nobody\n", nobody, ROUNDS);
    return comem_finish();
}
