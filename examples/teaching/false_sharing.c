/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * false_sharing.c: every thread counts in a word of its own, and yet they get in each other's way, for all words lie in
 * one page. With an argument each word has a page of its own. docs/teaching.md runs it under each engine.
 *
 *     comem run -n 2 --engine msi --stats run.json ./false_sharing && comem report run.json
 */
#include <comem.h>
#include <stdio.h>

static long (*count)[512]; /* rows of a page */
static int apart;

static void work(void *unused) {
    (void)unused;
    long *mine = apart ? &count[comem_thread()][0] : &count[0][comem_thread()];
    for (int step = 0; step < 2000; step++) {
        (*(volatile long *)mine)++;
        if (step % 10 == 9) comem_barrier();
    }
}

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    apart = argc > 1;
    count = comem_alloc_all((size_t)comem_threads() * sizeof *count, NULL);
    comem_parallel(work, NULL);
    long sum = 0;
    for (int t = 0; t < comem_threads(); t++) sum += apart ? count[t][0] : count[0][t];
    if (comem_node() == 0) printf("%s: %ld counted\n", apart ? "a page each" : "one page", sum);
    return comem_finish();
}
