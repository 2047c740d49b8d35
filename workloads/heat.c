/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * heat: heat in a plate (examples/python/heat.py), to compare with what else a user would write: heat-mpi.c, and the
 * ways of bench/python/pick.py.
 *
 * Each thread computes its rows of the next plate from this one; then all meet. The result is the same, bit for bit,
 * for any number of threads.
 */
#include "heat.h"

static const double STEPS_CHECKED = 0x1p29; /* cells times steps that are always computed a second time */

static double *plates[2]; /* shared */

static void work(void *unused) {
    (void)unused;
    const int threads = comem_threads(), self = comem_thread();
    int64_t low, high;
    kernel_part(size - 2, threads, self, &low, &high);
    low++, high++;
    /* Who computes a row writes it first; the edges belong to who has the row beside them. */
    const int64_t top = self == 0 ? 0 : low, bottom = self == threads - 1 ? size : high;
    for (int which = 0; which < 2; which++) heat_fill(plates[which] + top * size, top, bottom);
    comem_barrier();
    const double start = now();
    for (int64_t step = 0; step < steps; step++) {
        const double *from = plates[step % 2];
        heat_step(plates[(step + 1) % 2] + low * size, from + low * size, high - low, size);
        comem_barrier();
    }
    if (self == 0) kernel_seconds = now() - start;
}

/* Whether the same computation in plain memory, by one thread, gives the same bits. */
static int agrees(void) {
    const size_t bytes = (size_t)(size * size) * sizeof(double);
    double *alone[2] = {kernel_private(bytes), kernel_private(bytes)};
    for (int which = 0; which < 2; which++) heat_fill(alone[which], 0, size);
    for (int64_t step = 0; step < steps; step++) {
        heat_step(alone[(step + 1) % 2] + size, alone[step % 2] + size, size - 2, size);
    }
    return memcmp(alone[steps % 2], plates[steps % 2], bytes) == 0;
}

int main(int argc, char **argv) {
    heat_start(argc, argv);
    for (int which = 0; which < 2; which++) {
        plates[which] = kernel_shared((size_t)(size * size) * sizeof(double), which == 0 ? "plate" : "other plate");
    }
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int affordable = (double)(size * size) * (double)steps <= STEPS_CHECKED;
    const int verdict = kernel_check || affordable ? agrees() : KERNEL_UNCHECKED;
    printf("heat size=%" PRId64 " steps=%" PRId64, size, steps);
    return kernel_finish(heat_checksum(plates[steps % 2], 0, size * size), verdict);
}
