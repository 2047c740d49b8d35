/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * jacobi.c: Jacobi's method for a linear system whose matrix is shared; the same program as examples/python/jacobi.py
 * and crates/runtime/examples/jacobi.rs.
 *
 *     cc -std=c11 -O2 -Iinclude examples/jacobi.c -Ltarget/release -lcomem -Wl,-rpath,$PWD/target/release -lm -o jacobi
 *     comem run -n 4 ./jacobi [SIZE]
 *
 * Solves A x = b with A[i][i] = 2 SIZE, 1 elsewhere, and b such that every x[i] is 1.
 */
#include <comem.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t n = 1000;
static double *a, *x, *next_x; /* the same addresses on every node */

static void work(void *unused) {
    (void)unused;
    uint64_t low, high;
    comem_split(n, &low, &high);
    for (uint64_t i = low; i < high; i++)
        for (uint64_t j = 0; j < n; j++) a[i * n + j] = i == j ? 2.0 * n : 1.0;
    comem_barrier();

    int steps = 0;
    double change = 1, error = 0, *now = x, *then = next_x;
    while (change > 1e-10) {
        change = 0;
        for (uint64_t i = low; i < high; i++) {
            double others = 0;
            for (uint64_t j = 0; j < n; j++) others += j == i ? 0 : a[i * n + j] * now[j];
            then[i] = (3.0 * n - 1.0 - others) / a[i * n + i];
            change = fmax(change, fabs(then[i] - now[i]));
        }
        comem_reduce_f64(COMEM_MAX, &change, 1);
        double *last = now;
        now = then, then = last;
        steps++;
    }
    for (uint64_t i = low; i < high; i++) error = fmax(error, fabs(now[i] - 1));
    comem_reduce_f64(COMEM_MAX, &error, 1);
    if (comem_thread() == 0)
        printf("jacobi: %llu unknowns, %d steps: %s\n", (unsigned long long)n, steps, error < 1e-6 ? "ok" : "WRONG");
}

int main(int argc, char **argv) {
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    if (argc > 1) n = strtoull(argv[1], NULL, 10);
    a = comem_alloc_all(n * n * sizeof *a, NULL);
    x = comem_alloc_all(n * sizeof *x, NULL);
    next_x = comem_alloc_all(n * sizeof *next_x, NULL);
    comem_parallel(work, NULL);
    return comem_finish();
}
