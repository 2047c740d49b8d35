/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * kmeans-mpi: kmeans.c by messages, to compare with. Each process has its points; MPI_Allreduce brings the sums
 * together. Nothing of Comem is linked: of comem.h the form for one thread is used, for the command line.
 */
#include "kmeans.h"

#include <mpi.h>

int main(int argc, char **argv) {
    int processes, self;
    int64_t low, high;
    point centres[CENTRES];
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    kmeans_start(argc, argv);
    kernel_part(points, processes, self, &low, &high);
    point *mine = kernel_private((size_t)(high - low) * sizeof *mine);
    int8_t *labels = kernel_private((size_t)(high - low));
    for (int64_t i = low; i < high; i++) {
        mine[i - low] = kmeans_point(i);
        labels[i - low] = 0;
    }
    kmeans_first_centres(centres);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    for (int64_t step = 0; step < steps; step++) {
        cluster clusters[CENTRES];
        kmeans_step(mine, labels, high - low, centres, clusters);
        MPI_Allreduce(MPI_IN_PLACE, clusters, CENTRES * 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        kmeans_move(centres, clusters);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    kernel_seconds = now() - start;
    uint64_t sum = kmeans_checksum(labels, low, high - low), total = 0;
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (self == 0) {
        printf("kmeans points=%" PRId64 " steps=%" PRId64 " processes=%d time_s=%.6f checksum=%016" PRIx64 "\n",
               points, steps, processes, kernel_seconds, total + kmeans_checksum_of_centres(centres));
    }
    MPI_Finalize();
    return 0;
}
