/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Comem beside MPI in one program: what is sent by MPI is added up in shared memory. Everything that it asks of MPI is
 * what comem_mpi.h asks, and a reduction.
 */
#include <comem_mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    comem_attr attr;
    comem_array_i64 sum;
    int rank, word = 0;
    comem_attr_init(&attr);
    attr.engine = "msi";
    /* With an argument Comem starts first, by PMIx, and MPI uses that later. */
    if (argc > 1 && comem_start_attr(&attr) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc == 1 && comem_start_mpi_f(MPI_Comm_c2f(MPI_COMM_WORLD), &attr) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (rank == 0) word = 100;
    MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
    sum = comem_new_i64(1, NULL);
    comem_lock(1);
    comem_write_i64(sum, 0, comem_read_i64(sum, 0) + word);
    comem_unlock(1);
    comem_barrier();
    printf("rank %d is node %d of %d: %lld\n", rank, comem_node(), comem_nodes(), (long long)comem_read_i64(sum, 0));
    fflush(stdout);
    comem_finish();
    return MPI_Finalize();
}
