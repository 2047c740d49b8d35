! SPDX-License-Identifier: MIT OR Apache-2.0
!
! openmp: OpenMP's threads use shared memory, each with a number of its own, and wait for each other through all nodes.
! Compiled with -fopenmp and run with `-t T`, which gives OpenMP T threads. Then a file is written from an array that
! another node filled, and read into one: system calls on shared memory.

program openmp
    use comem
    use, intrinsic :: iso_fortran_env, only: int64, real64
    implicit none
    integer, parameter :: columns = 64, elements = 20000
    real(real64), pointer, contiguous :: grid(:, :), copy(:, :)
    integer(int64), pointer, contiguous :: sums(:), seen(:)
    character(:), allocatable :: path
    integer :: unit, j
    logical :: right

    call comem_start()
    call comem_allocate(grid, [elements, columns], label='grid')
    call comem_allocate(copy, [elements, columns], label='copy')
    call comem_allocate(sums, [comem_threads()], label='sums')
    call comem_allocate(seen, [1], label='seen')
    !$omp parallel
    call fill_columns()
    !$omp end parallel
    right = all(sums == int(columns, int64)*elements/comem_threads()) .or. mod(columns, comem_threads()) /= 0
    right = right .and. seen(1) == comem_threads() .and. sum(sums) == int(columns, int64)*elements
    right = right .and. all([(abs(grid(elements, j) - j) < 1e-12_real64, j = 1, columns)])
    if (comem_node() == comem_nodes() - 1) then
        path = comem_argument(1)
        open (newunit=unit, file=path, form='unformatted', access='stream', status='replace', action='readwrite')
        write (unit) grid
        rewind (unit)
        read (unit) copy
        close (unit, status='delete')
    end if
    !$omp parallel
    call comem_barrier()
    !$omp end parallel
    right = right .and. all(abs(copy - grid) < 1e-12_real64)
    if (right) print '(a, i0, a, i0)', 'right: node ', comem_node(), ', threads ', comem_threads()
    call comem_finish()
    if (.not. right) error stop 1
contains

    ! What every thread does: fills its columns, sums them up, counts itself.
    subroutine fill_columns()
        integer :: low, high, j
        call comem_split(columns, low, high)
        do j = low, high
            grid(:, j) = j
        end do
        sums(comem_thread() + 1) = (high - low + 1)*int(elements, int64)
        call comem_lock(1)
        seen(1) = seen(1) + 1
        call comem_unlock(1)
        call comem_barrier()
    end subroutine
end program
