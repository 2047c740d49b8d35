/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * grid.c: ordinary loads and stores on memory of all nodes.
 *
 *     comem run -n 4 ./grid
 */
#include <comem.h>
#include <stdio.h>

static double *grid; /* the same address on every node */

static void work(void *unused) {
    (void)unused;
    uint64_t low, high;
    comem_split(1000000, &low, &high);                         /* my share of the work */
    for (uint64_t i = low; i < high; i++) grid[i] = (double)i; /* ordinary stores */
    comem_barrier();
    if (comem_thread() == 0) printf("%.0f\n", grid[999999]); /* an ordinary load, of another node's memory */
}

int main(void) {
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    grid = comem_alloc_all(1000000 * sizeof *grid, NULL);
    comem_parallel(work, NULL);
    return comem_finish();
}
