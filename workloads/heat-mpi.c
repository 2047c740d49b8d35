/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * heat-mpi: heat.c by messages, to compare with. Each process has its rows and a copy of one row of each neighbour's,
 * which they send to each other before each step. Nothing of Comem is linked: of comem.h the form for one thread is
 * used, for the command line.
 */
#include "heat.h"

#include <mpi.h>

/* Fetches the rows above and below `rows` rows from the neighbours. */
static void exchange(double *plate, int64_t rows, int above, int below) {
    const int columns = (int)size;
    MPI_Sendrecv(plate + size, columns, MPI_DOUBLE, above, 0, plate + (rows + 1) * size, columns, MPI_DOUBLE, below, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(plate + rows * size, columns, MPI_DOUBLE, below, 1, plate, columns, MPI_DOUBLE, above, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int processes, self;
    int64_t low, high;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    heat_start(argc, argv);
    kernel_part(size - 2, processes, self, &low, &high);
    low++, high++;
    const int64_t rows = high - low;
    const int above = self > 0 ? self - 1 : MPI_PROC_NULL, below = self < processes - 1 ? self + 1 : MPI_PROC_NULL;
    double *plates[2];
    for (int which = 0; which < 2; which++) {
        plates[which] = kernel_private((size_t)((rows + 2) * size) * sizeof(double));
        heat_fill(plates[which], low - 1, high + 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    for (int64_t step = 0; step < steps; step++) {
        double *from = plates[step % 2];
        exchange(from, rows, above, below);
        heat_step(plates[(step + 1) % 2] + size, from + size, rows, size);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    kernel_seconds = now() - start;
    const int64_t top = self == 0 ? 0 : low, bottom = self == processes - 1 ? size : high;
    const double *mine = plates[steps % 2] + (top - low + 1) * size;
    uint64_t sum = heat_checksum(mine, top * size, (bottom - top) * size), total = 0;
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (self == 0) {
        printf("heat size=%" PRId64 " steps=%" PRId64 " processes=%d time_s=%.6f checksum=%016" PRIx64 "\n", size,
               steps, processes, kernel_seconds, total);
    }
    MPI_Finalize();
    return 0;
}
