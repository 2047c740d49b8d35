! SPDX-License-Identifier: MIT OR Apache-2.0
!
! Comem beside MPI in one program of Fortran: beside_mpi.c, with a communicator's handle as Fortran has it.
program beside_mpi
    use comem
    use, intrinsic :: iso_c_binding, only: c_int
    use, intrinsic :: iso_fortran_env, only: int64, output_unit, error_unit
    implicit none
    include 'mpif.h'
    interface
        ! comem_start_mpi_f() of comem_mpi.h, which is C's.
        integer(c_int) function start_beside(comm) bind(c, name='start_beside')
            import :: c_int
            integer(c_int), value :: comm
        end function
    end interface
    integer(int64), pointer, contiguous :: words(:)
    integer :: comm, rank, word, error
    call MPI_Init(error)
    ! Not the world itself: a handle that MPI has given out.
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, error)
    call MPI_Comm_rank(comm, rank, error)
    if (start_beside(int(comm, c_int)) /= 0) then
        write (error_unit, '(a)') comem_last_error()
        stop 3
    end if
    word = 0
    if (rank == 0) word = 100
    call MPI_Bcast(word, 1, MPI_INTEGER, 0, comm, error)
    call comem_allocate(words, [comem_nodes()])
    words(rank + 1) = word
    call comem_barrier()
    write (output_unit, '(a, i0, a, i0, a, i0, a, i0)') 'rank ', rank, ' is node ', comem_node(), ' of ', &
        comem_nodes(), ': ', sum(words)
    call comem_finish()
    call MPI_Finalize(error)
end program
