/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The line of C by which a Fortran program beside MPI starts Comem.
 */
#include <comem_mpi.h>

int start_beside(MPI_Fint comm);

int start_beside(MPI_Fint comm) {
    return comem_start_mpi_f(comm, NULL);
}
