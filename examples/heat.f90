! SPDX-License-Identifier: MIT OR Apache-2.0
!
! heat.f90: heat spreads in a plate, whose columns the threads of all nodes share out.
!
!     gfortran -std=f2008 -O2 -frecursive include/comem.f90 examples/heat.f90 -Ltarget/release -lcomem \
!         -Wl,-rpath,$PWD/target/release -o heat
!     target/release/comem run -n 4 ./heat
module heat
    use comem
    use, intrinsic :: iso_fortran_env, only: real64
    implicit none
    integer, parameter :: n = 512, steps = 200
    real(real64), pointer, contiguous :: plate(:, :, :) ! two plates, old and new, at the same address on every node
contains
    ! What every thread does, with columns low to high.
    recursive subroutine work()
        integer :: low, high, step, old, new
        real(real64) :: warmth
        call comem_split(n, low, high)
        if (comem_thread() == 0) plate(:, 1, :) = 100      ! one edge is hot
        call comem_barrier()
        do step = 1, steps
            old = 1 + mod(step, 2)
            new = 3 - old
            call spread_heat(max(low, 2), min(high, n - 1), plate(:, :, old), plate(:, :, new))
            call comem_barrier()                           ! all see what all have written
        end do
        warmth = sum(plate(:, low:high, new))
        call comem_reduce(comem_sum, warmth)               ! a barrier too: nobody uses the plate any more
        if (comem_thread() == 0) print '(a, f0.3)', 'mean temperature ', warmth/n**2
    end subroutine

    ! No synchronisation in here, so plain arrays will do.
    pure subroutine spread_heat(low, high, from, to)
        integer, intent(in) :: low, high
        real(real64), intent(in) :: from(n, n)
        real(real64), intent(inout) :: to(n, n)
        integer :: i, j
        do j = low, high
            do i = 2, n - 1
                to(i, j) = 0.25_real64*(from(i - 1, j) + from(i + 1, j) + from(i, j - 1) + from(i, j + 1))
            end do
        end do
    end subroutine
end module

program main
    use heat
    implicit none
    call comem_start()
    call comem_allocate(plate, [n, n, 2], label='plate')
    call comem_parallel(work)
    call comem_deallocate(plate)
    call comem_finish()
end program
