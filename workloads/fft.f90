! SPDX-License-Identifier: MIT OR Apache-2.0
!
! fft: the Fourier transform of N complex numbers in six steps, as fft.c is, in Fortran: the same result, bit for bit.
!
! The numbers are a matrix of sqrt(N) x sqrt(N), of which each thread has a block of rows at home with it. Transpose;
! transform each row and multiply by the twiddle factors; transpose; transform each row; transpose. All communication is
! in the transpositions: a thread reads a patch of every other thread's rows and writes its own. Rows and numbers are
! counted from 0, as in fft.c.

module fft_matrix
    use kernel
    use comem
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use, intrinsic :: iso_c_binding, only: c_f_pointer
    implicit none

    integer, parameter :: samples = 2, samples_checked = 8, seed = 11
    integer(int64), parameter :: tile = 8

    ! A row of a matrix, numbered from 1 as c_f_pointer gives it.
    type :: row_numbers
        complex(real64), pointer, contiguous :: numbers(:) => null()
    end type

    integer(int64) :: side                            ! the square root of N
    integer :: side_bits                              ! its logarithm
    type(row_numbers), allocatable :: shared(:, :)    ! two matrices: (row, matrix)
    complex(real64), allocatable :: fine(:), coarse(:) ! exp(-2 pi i k / N) and exp(-2 pi i k / side), for k below side

    ! What work_back leaves for node 0: how many numbers are wrong in each thread's part.
    type :: counter
        integer(int64), pointer :: number => null()
    end type
    type(counter), allocatable :: wrong(:)

contains

    ! ---- arithmetic --------------------------------------------------------------------------------------------

    ! exp(-2 pi i k / N), for any k from 0.
    elemental complex(real64) function root(k)
        integer(int64), intent(in) :: k
        root = coarse(iand(shiftr(k, side_bits), side - 1))*fine(iand(k, side - 1))
    end function

    elemental complex(real64) function first_value(index)
        integer(int64), intent(in) :: index
        integer(int64) :: place
        place = seed + 2*index
        first_value = cmplx(kernel_random(place) - 0.5_real64, kernel_random(place + 1) - 0.5_real64, real64)
    end function

    subroutine make_roots()
        real(real64) :: circle, small, large
        integer(int64) :: k
        circle = 2*acos(-1.0_real64)
        side_bits = trailz(side)
        allocate (fine(0:side - 1), coarse(0:side - 1))
        do k = 0, side - 1
            small = circle*real(k, real64)/real(side*side, real64)
            large = circle*real(k, real64)/real(side, real64)
            fine(k) = cmplx(cos(small), -sin(small), real64)
            coarse(k) = cmplx(cos(large), -sin(large), real64)
        end do
    end subroutine

    ! ---- a row -------------------------------------------------------------------------------------------------

    pure subroutine swap_by_reversed_bits(n, row)
        integer(int64), intent(in) :: n
        complex(real64), intent(inout) :: row(0:n - 1)
        complex(real64) :: kept
        integer(int64) :: i, j, bit
        j = 0
        do i = 1, n - 1
            bit = n/2
            do while (iand(j, bit) /= 0)
                j = ieor(j, bit)
                bit = bit/2
            end do
            j = ieor(j, bit)
            if (i < j) then
                kept = row(i)
                row(i) = row(j)
                row(j) = kept
            end if
        end do
    end subroutine

    ! Transforms a row in place; backwards if `inverse`, without dividing by its length.
    pure subroutine transform_row(n, row, inverse)
        integer(int64), intent(in) :: n
        complex(real64), intent(inout) :: row(0:n - 1)
        logical, intent(in) :: inverse
        integer(int64) :: half, base
        call swap_by_reversed_bits(n, row)
        half = 1
        do while (half < n)
            do base = 0, n - 1, 2*half
                call combine(half, n/half/2, row(base), row(base + half), inverse)
            end do
            half = 2*half
        end do
    end subroutine

    ! Makes one transformed run of numbers of two of half its length, `step` roots apart.
    pure subroutine combine(half, step, low, high, inverse)
        integer(int64), intent(in) :: half, step
        complex(real64), intent(inout) :: low(0:half - 1), high(0:half - 1)
        logical, intent(in) :: inverse
        complex(real64) :: turned, factor
        integer(int64) :: k
        do k = 0, half - 1
            factor = coarse(k*step)
            if (inverse) factor = conjg(factor)
            turned = high(k)*factor
            high(k) = low(k) - turned
            low(k) = low(k) + turned
        end do
    end subroutine

    ! Multiplies row i of the matrix by the twiddle factors.
    pure subroutine twiddle_row(n, row, i, inverse)
        integer(int64), intent(in) :: n, i
        complex(real64), intent(inout) :: row(0:n - 1)
        logical, intent(in) :: inverse
        complex(real64) :: factor
        integer(int64) :: j
        do j = 0, n - 1
            factor = root(i*j)
            if (inverse) factor = conjg(factor)
            row(j) = row(j)*factor
        end do
    end subroutine

    ! ---- the matrix --------------------------------------------------------------------------------------------

    ! Writes this thread's rows of matrix `to`, tile by tile, from the columns of matrix `from`: first from its own
    ! rows, then from the next thread's, so that not all ask the same one.
    recursive subroutine transpose_matrix(to, from)
        integer, intent(in) :: to, from
        integer(int64) :: low, high, from_low, from_high, ii, jj
        integer :: t, threads
        threads = comem_threads()
        call kernel_part(side, threads, comem_thread(), low, high)
        do t = 0, threads - 1
            call kernel_part(side, threads, mod(comem_thread() + t, threads), from_low, from_high)
            do ii = low, high, tile
                do jj = from_low, from_high, tile
                    call transpose_tile(to, from, ii, min(ii + tile - 1, high), jj, min(jj + tile - 1, from_high))
                end do
            end do
        end do
    end subroutine

    recursive subroutine transpose_tile(to, from, low, high, from_low, from_high)
        integer, intent(in) :: to, from
        integer(int64), intent(in) :: low, high, from_low, from_high
        integer(int64) :: i, j
        do j = from_low, from_high
            do i = low, high
                shared(i, to)%numbers(j + 1) = shared(j, from)%numbers(i + 1)
            end do
        end do
    end subroutine

    ! Transforms what is in matrix x; the result is in y. Ends with a barrier.
    recursive subroutine transform(x, y, inverse)
        integer, intent(in) :: x, y
        logical, intent(in) :: inverse
        integer(int64) :: low, high, i
        call kernel_part(side, comem_threads(), comem_thread(), low, high)
        call transpose_matrix(y, x)
        do i = low, high
            call transform_row(side, shared(i, y)%numbers, inverse)
            call twiddle_row(side, shared(i, y)%numbers, i, inverse)
        end do
        call comem_barrier()
        call transpose_matrix(x, y)
        do i = low, high
            call transform_row(side, shared(i, x)%numbers, inverse)
        end do
        call comem_barrier()
        call transpose_matrix(y, x)
        call comem_barrier()
    end subroutine

    recursive subroutine work()
        integer(int64) :: low, high, i, j
        real(real64) :: start
        call kernel_part(side, comem_threads(), comem_thread(), low, high)
        do i = low, high
            do j = 0, side - 1
                shared(i, 0)%numbers(j + 1) = first_value(i*side + j)
                shared(i, 1)%numbers(j + 1) = 0
            end do
        end do
        call comem_barrier()
        start = kernel_now()
        call transform(0, 1, .false.)
        if (comem_thread() == 0) kernel_seconds = kernel_now() - start
    end subroutine

    ! Transforms the result back, and counts how many of this thread's numbers are not what they were.
    recursive subroutine work_back()
        complex(real64) :: error
        integer(int64) :: low, high, i, j, count
        call comem_barrier() ! node 0 has looked at the result
        call transform(1, 0, .true.)
        call kernel_part(side, comem_threads(), comem_thread(), low, high)
        count = 0
        do i = low, high
            do j = 0, side - 1
                error = first_value(i*side + j) - shared(i, 0)%numbers(j + 1)/real(side*side, real64)
                if (.not. abs(real(error)) + abs(aimag(error)) < 1e-12_real64) count = count + 1
            end do
        end do
        wrong(comem_thread())%number = count
        call comem_barrier()
    end subroutine

    ! Finds the rows of a matrix in the threads' parts.
    subroutine find_shared_rows(which, label)
        integer, intent(in) :: which
        character(*), intent(in) :: label
        type(part) :: parts(0:comem_threads() - 1)
        integer(int64) :: low, high, i
        integer :: t
        do t = 0, ubound(parts, 1)
            call kernel_part(side, size(parts), t, low, high)
            parts(t)%bytes = (high - low + 1)*side*16
        end do
        call kernel_alloc_parts(label, parts)
        do t = 0, ubound(parts, 1)
            call kernel_part(side, size(parts), t, low, high)
            do i = low, high
                call c_f_pointer(kernel_address(parts(t)%address + (i - low)*side*16), shared(i, which)%numbers, [side])
            end do
        end do
    end subroutine

    ! ---- the result --------------------------------------------------------------------------------------------

    ! Whether some of the results are what the definition of the transform gives.
    logical function samples_are_right()
        complex(real64) :: total, error
        integer(int64) :: points, k, n, kn
        integer :: s
        points = side*side
        samples_are_right = .true.
        do s = 0, merge(samples_checked, samples, kernel_check) - 1
            k = 0
            if (s > 0) k = unsigned_remainder(kernel_mix(int(s, int64)), points)
            total = 0
            kn = 0
            do n = 0, points - 1
                total = total + first_value(n)*root(kn)
                kn = mod(kn + k, points)
            end do
            error = total - shared(k/side, 1)%numbers(mod(k, side) + 1)
            if (.not. abs(real(error)) + abs(aimag(error)) < 1e-9_real64*real(side, real64)) samples_are_right = .false.
        end do
    end function

    ! The remainder of an unsigned number of 64 bits by a power of two.
    pure integer(int64) function unsigned_remainder(number, by)
        integer(int64), intent(in) :: number, by
        unsigned_remainder = iand(number, by - 1)
    end function

    ! Whether the results have N times the energy of the numbers (Parseval's theorem). A single result that has stayed
    ! what it was before takes about one part in N from it: more, up to N = 2^36, than is allowed here for rounding.
    logical function energy_is_right()
        real(real64) :: before, after, row_before, row_after
        complex(real64) :: x, y
        integer(int64) :: i, j
        before = 0
        after = 0
        do i = 0, side - 1
            row_before = 0
            row_after = 0
            do j = 0, side - 1
                x = first_value(i*side + j)
                y = shared(i, 1)%numbers(j + 1)
                row_before = row_before + real(x)**2 + aimag(x)**2
                row_after = row_after + real(y)**2 + aimag(y)**2
            end do
            before = before + row_before
            after = after + row_after
        end do
        energy_is_right = abs(after/real(side*side, real64) - before) < 1e-11_real64*before
    end function

    integer(int64) function checksum()
        complex(real64) :: number
        integer(int64) :: i, j
        checksum = 0
        do i = 0, side - 1
            do j = 1, side
                number = shared(i, 1)%numbers(j)
                checksum = kernel_mix(ieor(checksum, kernel_bits(real(number, real64))))
                checksum = kernel_mix(ieor(checksum, kernel_bits(aimag(number))))
            end do
        end do
    end function

    ! Transforms back with all threads; whether every number is again what it was. Every node makes the call.
    logical function inverse_is_right()
        type(part) :: parts(0:comem_threads() - 1)
        integer :: t
        parts%bytes = 8
        call kernel_alloc_parts('wrong numbers', parts)
        allocate (wrong(0:ubound(parts, 1)))
        do t = 0, ubound(parts, 1)
            call c_f_pointer(kernel_address(parts(t)%address), wrong(t)%number)
        end do
        call comem_parallel(work_back)
        inverse_is_right = .true.
        if (comem_node() /= 0) return
        do t = 0, ubound(wrong, 1)
            if (wrong(t)%number /= 0) inverse_is_right = .false.
        end do
    end function
end module

program fft
    use fft_matrix
    implicit none
    type(option) :: options(1) = [option('--side', 256, 'the square root of how many numbers, a power of two')]
    type(preset), parameter :: presets(3) = [ &
        preset('tiny', 'for tests', [128_int64, 0_int64, 0_int64]), &
        preset('hlrc', 'HLRC on UDP, table 1', [2048_int64, 0_int64, 0_int64]), &
        preset('large', 'four times HLRC on UDP', [4096_int64, 0_int64, 0_int64])]
    character(40) :: line
    integer(int64) :: total
    logical :: right

    call kernel_start(options, presets)
    side = options(1)%number
    if (side < 2 .or. side > 2_int64**20 .or. popcnt(side) /= 1) call refuse('--side is a power of two up to 2^20')
    call make_roots()
    allocate (shared(0:side - 1, 0:1))
    call find_shared_rows(0, 'x')
    call find_shared_rows(1, 'y')
    call comem_parallel(work)
    right = .true.
    total = 0
    if (comem_node() == 0) then
        total = checksum()
        right = energy_is_right()
        right = samples_are_right() .and. right
    end if
    if (kernel_check) right = inverse_is_right() .and. right
    write (line, '(a, i0)') 'fft side=', side
    call kernel_finish(trim(line), total, merge('ok   ', 'WRONG', right))
end program
