/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The same for Fortran: as much as beside_mpi.f90 asks for. Included before what calls C's, for the broadcasts of both
 * are counted together.
 */
#ifndef COMEM_TEST_FAKE_MPI_FORTRAN_H
#define COMEM_TEST_FAKE_MPI_FORTRAN_H

#include "mpi.h"

void mpi_init_(MPI_Fint *error);
void mpi_finalize_(MPI_Fint *error);
void mpi_comm_dup_(const MPI_Fint *comm, MPI_Fint *copy, MPI_Fint *error);
void mpi_comm_rank_(const MPI_Fint *comm, MPI_Fint *rank, MPI_Fint *error);
void mpi_bcast_(void *bytes, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *root, const MPI_Fint *comm,
                MPI_Fint *error);

void mpi_init_(MPI_Fint *error) {
    *error = MPI_Init(NULL, NULL);
}
void mpi_finalize_(MPI_Fint *error) {
    *error = MPI_Finalize();
}
void mpi_comm_dup_(const MPI_Fint *comm, MPI_Fint *copy, MPI_Fint *error) {
    *copy = *comm;
    *error = MPI_SUCCESS;
}
void mpi_comm_rank_(const MPI_Fint *comm, MPI_Fint *rank, MPI_Fint *error) {
    *error = MPI_Comm_rank(MPI_Comm_f2c(*comm), rank);
}
void mpi_bcast_(void *bytes, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *root, const MPI_Fint *comm,
                MPI_Fint *error) {
    *error = MPI_Bcast(bytes, *count, *type, *root, MPI_Comm_f2c(*comm));
}

#endif
