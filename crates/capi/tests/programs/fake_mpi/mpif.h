! SPDX-License-Identifier: MIT OR Apache-2.0
      integer MPI_COMM_WORLD, MPI_INTEGER
      parameter (MPI_COMM_WORLD = 92, MPI_INTEGER = 4)
