/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * pool.c: a program whose threads are OpenMP's on each node. Iterations are claimed from a counter that all nodes
 * share, and nodes meet by their main threads alone.
 *
 *     cc -std=c11 -fopenmp -Iinclude examples/pool.c -Ltarget/release -lcomem -Wl,-rpath,$PWD/target/release -o pool
 *     comem run -n 2 -t 2 ./pool
 */
#include <comem.h>
#include <stdio.h>

enum { ROWS = 600, COLUMNS = 512, AT_A_TIME = 10 };

int main(void) {
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    double *table = (double *)comem_alloc_all(sizeof(double) * ROWS * COLUMNS, NULL);
    int64_t *next = (int64_t *)comem_alloc_all(sizeof *next, NULL);
    for (int round = 1; round <= 3; round++) {
#pragma omp parallel
        for (;;) {
            /* One request to the counter's home and one reply; nothing about other memory travels with it. */
            const int64_t low = comem_fetch_add_relaxed_i64(next, AT_A_TIME);
            if (low >= ROWS) break;
            for (int64_t i = low * COLUMNS; i < (low + AT_A_TIME) * COLUMNS; i++) table[i] += (double)round * (double)i;
        }
        comem_node_barrier(); /* behind it every node has what all have written */
        if (comem_node() == 0) *next = 0;
        comem_node_barrier();
    }
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < ROWS * COLUMNS; i++) sum += table[i] / 6;
    if (comem_node() == 0) printf("mean %.1f\n", sum / (ROWS * COLUMNS));
    return comem_finish();
}
