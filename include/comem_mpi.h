/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_mpi.h: Comem beside MPI in one program, for C and C++. The processes of a communicator become the nodes of a
 * job, in the order of their ranks. libcomem knows nothing of MPI: it is the program that links with both.
 *
 *     #include <comem_mpi.h>
 *
 *     int main(int argc, char **argv) {
 *         MPI_Init(&argc, &argv);
 *         if (comem_start_mpi(MPI_COMM_WORLD, NULL) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
 *         ...                                             comem_barrier(), MPI_Send(): both at will
 *         comem_finish();
 *         return MPI_Finalize();
 *     }
 *
 *     mpicc -I INCLUDE program.c -L LIB -lcomem && mpirun -n 4 ./a.out
 */
#ifndef COMEM_MPI_H
#define COMEM_MPI_H

#include <comem.h>
#include <mpi.h>

static inline int comem_mpi_broadcast_(void *bytes, size_t length, void *comm) {
    return MPI_Bcast(bytes, (int)length, MPI_BYTE, 0, *(MPI_Comm *)comm) == MPI_SUCCESS ? 0 : 1;
}

/* Joins the job of a communicator's processes, with the threads, engine and settings of `attr` (NULL: those of the
 * environment). Collective over the communicator. Gives what comem_start_attr() gives. */
static inline int comem_start_mpi(MPI_Comm comm, const comem_attr *attr) {
    comem_attr all;
    comem_attr_init(&all);
    if (attr) all = *attr;
    if (MPI_Comm_rank(comm, &all.rank) != MPI_SUCCESS || MPI_Comm_size(comm, &all.processes) != MPI_SUCCESS)
        return COMEM_E_ARGUMENT;
    all.unique_id = NULL;
    all.broadcast = comem_mpi_broadcast_;
    all.broadcast_argument = &comm;
    return comem_start_attr(&all);
}

/* The same for a communicator of Fortran's (an INTEGER, or the component MPI_VAL of a TYPE(MPI_Comm)). */
static inline int comem_start_mpi_f(MPI_Fint comm, const comem_attr *attr) {
    return comem_start_mpi(MPI_Comm_f2c(comm), attr);
}

#endif
