! SPDX-License-Identifier: MIT OR Apache-2.0
!
! direct: a program in Fortran in a job under the engine direct. Its code has no checks, so it may use memory that names
! an engine of pages (argument `named`), and is refused memory that names none (`unnamed`, and `returned` with stat).

module direct_parts
    use comem
    use, intrinsic :: iso_fortran_env, only: int64, real64
    implicit none
    integer, parameter :: rounds = 30
    integer(int64), parameter :: lock = 7
    real(real64), pointer, contiguous :: grid(:, :)
    integer(int64), pointer, contiguous :: counter(:)

contains

    recursive subroutine work()
        integer(int64) :: total
        integer :: round, me, threads
        me = comem_thread() + 1
        threads = comem_threads()
        total = me
        call comem_reduce(comem_sum, total)
        if (total /= threads*(threads + 1)/2) error stop 'a wrong sum of all threads'
        grid(:, me) = me
        do round = 1, rounds
            call comem_lock(lock)
            counter(1) = counter(1) + me
            call comem_unlock(lock)
        end do
        call comem_barrier()
        if (counter(1) /= rounds*total) error stop 'a wrong sum under the lock'
        if (nint(sum(grid), int64) /= size(grid, 1)*total) error stop 'a wrong sum of the grid'
        call comem_barrier()
    end subroutine
end module

program direct
    use direct_parts
    implicit none
    character(20) :: how
    integer :: stat
    call get_command_argument(1, how)
    call comem_start()
    if (how == 'returned') then
        call comem_return_errors(.true.)
        call comem_allocate(counter, [1], stat=stat)
        if (stat == 0) error stop 'memory without checks'
        if (comem_node() == 0) print '(2a)', 'returned: ', comem_last_error()
    else if (how == 'unnamed') then
        call comem_allocate(counter, [1])
    end if
    call comem_allocate(grid, [1000, comem_threads()], engine='msi')
    call comem_allocate(counter, [1], engine='msi')
    call comem_parallel(work)
    if (comem_node() == 0) print '(a)', 'right: memory under msi'
    call comem_finish()
end program
