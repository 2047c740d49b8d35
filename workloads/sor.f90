! SPDX-License-Identifier: MIT OR Apache-2.0
!
! sor: red-black over-relaxation on a grid, as sor.c is, in Fortran: the same result, bit for bit.
!
! The cells of a grid are red and black like a chessboard's, each colour in an array of its own. An iteration makes
! every red cell the mean of its four black neighbours, then, after a barrier, every black cell the mean of its red
! ones; the edge keeps its values. Each thread has a block of rows, in pages that are at home with it. Rows, columns and
! cells are counted from 0, as in sor.c.

module sor_grid
    use kernel
    use comem
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use, intrinsic :: iso_c_binding, only: c_f_pointer
    implicit none

    integer, parameter :: red = 0, black = 1
    ! What relaxes no more cells than that is always done again by one thread; --check asks for it beyond.
    real(real64), parameter :: cells_checked = 2.0_real64**28
    real(real32), parameter :: quarter = 0.25_real32

    ! One colour's cells of a row: columns / 2 of them.
    type :: row_cells
        real(real32), pointer, contiguous :: cells(:) => null()
    end type

    integer(int64) :: rows, columns, iterations

    ! The rows of both colours, in shared memory: (row, colour).
    type(row_cells), allocatable :: shared(:, :)

contains

    ! ---- the computation ---------------------------------------------------------------------------------------

    elemental real(real32) function first_value(row, column)
        integer(int64), intent(in) :: row, column
        first_value = real(shiftr(kernel_mix(row*columns + column), 40), real32)*2.0_real32**(-24)
    end function

    ! Fills rows low to high. Red cells have an even sum of row and column.
    recursive subroutine fill(grid, low, high)
        type(row_cells), intent(in) :: grid(0:, 0:)
        integer(int64), intent(in) :: low, high
        integer(int64) :: row, k
        integer :: colour
        do colour = red, black
            do row = low, high
                do k = 0, columns/2 - 1
                    grid(row, colour)%cells(k + 1) = first_value(row, 2*k + iand(row + colour, 1_int64))
                end do
            end do
        end do
    end subroutine

    ! Relaxes the cells of one colour in rows low to high.
    recursive subroutine relax(grid, colour, low, high)
        type(row_cells), intent(in) :: grid(0:, 0:)
        integer, intent(in) :: colour
        integer(int64), intent(in) :: low, high
        integer(int64) :: row
        do row = max(low, 1_int64), min(high, rows - 2)
            call relax_row(columns/2, int(iand(row + colour, 1_int64)), grid(row, colour)%cells, &
                           grid(row - 1, 1 - colour)%cells, grid(row, 1 - colour)%cells, &
                           grid(row + 1, 1 - colour)%cells)
        end do
    end subroutine

    ! Relaxes a row. The neighbours above and below have the cell's own index in their row of the other colour; of those
    ! beside it one has, and the other is before it (in an even row) or behind.
    pure subroutine relax_row(cells, odd, here, above, beside, below)
        integer(int64), intent(in) :: cells
        integer, intent(in) :: odd
        real(real32), intent(inout) :: here(0:cells - 1)
        real(real32), intent(in) :: above(0:cells - 1), beside(0:cells - 1), below(0:cells - 1)
        integer(int64) :: k
        if (odd == 1) then
            do k = 0, cells - 2
                here(k) = quarter*((above(k) + below(k)) + (beside(k) + beside(k + 1)))
            end do
        else
            do k = 1, cells - 1
                here(k) = quarter*((above(k) + below(k)) + (beside(k) + beside(k - 1)))
            end do
        end if
    end subroutine

    recursive subroutine iterate(low, high)
        integer(int64), intent(in) :: low, high
        call relax(shared, red, low, high)
        call comem_barrier()
        call relax(shared, black, low, high)
        call comem_barrier()
    end subroutine

    recursive subroutine work()
        integer(int64) :: low, high, i
        real(real64) :: start
        call kernel_part(rows, comem_threads(), comem_thread(), low, high)
        call fill(shared, low, high)
        call comem_barrier()
        call iterate(low, high) ! to warm up
        start = kernel_now()
        do i = 1, iterations
            call iterate(low, high)
        end do
        if (comem_thread() == 0) kernel_seconds = kernel_now() - start
    end subroutine

    ! ---- memory ------------------------------------------------------------------------------------------------

    ! The bytes from one row to the next: whole pages where that wastes little, else whole cache lines.
    integer(int64) function row_bytes()
        integer(int64) :: exact, pages
        exact = columns/2*4
        pages = (exact + kernel_page - 1)/kernel_page*kernel_page
        row_bytes = pages
        if (pages - exact > pages/4) row_bytes = (exact + kernel_line - 1)/kernel_line*kernel_line
    end function

    ! Finds the rows in the threads' parts; both colours of a row belong to the same thread.
    subroutine find_shared_rows()
        character(5), parameter :: names(red:black) = ['red  ', 'black']
        type(part) :: parts(0:comem_threads() - 1)
        integer(int64) :: low, high, row
        integer :: colour, t
        allocate (shared(0:rows - 1, red:black))
        do colour = red, black
            do t = 0, ubound(parts, 1)
                call kernel_part(rows, size(parts), t, low, high)
                parts(t)%bytes = (high - low + 1)*row_bytes()
            end do
            call kernel_alloc_parts(names(colour), parts)
            do t = 0, ubound(parts, 1)
                call kernel_part(rows, size(parts), t, low, high)
                do row = low, high
                    call c_f_pointer(kernel_address(parts(t)%address + (row - low)*row_bytes()), &
                                     shared(row, colour)%cells, [columns/2])
                end do
            end do
        end do
    end subroutine

    ! ---- the result --------------------------------------------------------------------------------------------

    ! Whether the same computation in plain memory, by one thread, gives the same bits.
    logical function agrees()
        type(row_cells), allocatable :: plain(:, :)
        integer(int64) :: row, i
        integer :: colour
        allocate (plain(0:rows - 1, red:black))
        do colour = red, black
            do row = 0, rows - 1
                allocate (plain(row, colour)%cells(columns/2))
            end do
        end do
        call fill(plain, 0_int64, rows - 1)
        do i = 0, iterations
            call relax(plain, red, 0_int64, rows - 1)
            call relax(plain, black, 0_int64, rows - 1)
        end do
        agrees = .true.
        do colour = red, black
            do row = 0, rows - 1
                agrees = agrees .and. all(transfer(plain(row, colour)%cells, [0_int32]) == &
                                          transfer(shared(row, colour)%cells, [0_int32]))
                deallocate (plain(row, colour)%cells)
            end do
        end do
    end function

    integer(int64) function checksum()
        integer(int64) :: row, k
        integer :: colour
        checksum = 0
        do colour = red, black
            do row = 0, rows - 1
                do k = 1, columns/2
                    checksum = kernel_mix(ieor(checksum, kernel_bits(real(shared(row, colour)%cells(k), real64))))
                end do
            end do
        end do
    end function
end module

program sor
    use sor_grid
    implicit none
    type(option) :: options(3) = [ &
        option('--rows', 512, 'rows of the grid'), &
        option('--columns', 512, 'columns, an even number'), &
        option('--iterations', 10, 'iterations, after one to warm up')]
    type(preset), parameter :: presets(5) = [ &
        preset('tiny', 'for tests', [130_int64, 256_int64, 5_int64]), &
        preset('nautilus', 'Nautilus, section 8', [1792_int64, 1792_int64, 10_int64]), &
        preset('jiajia', 'as Nautilus', [1792_int64, 1792_int64, 10_int64]), &
        preset('hlrc', 'HLRC on UDP, table 1', [2096_int64, 2096_int64, 8_int64]), &
        preset('large', 'four times Nautilus', [3584_int64, 3584_int64, 10_int64])]
    character(80) :: line
    integer(int64) :: total
    character(9) :: verdict

    call kernel_start(options, presets)
    rows = options(1)%number
    columns = options(2)%number
    iterations = options(3)%number
    if (rows < 3 .or. columns < 4 .or. mod(columns, 2_int64) /= 0) then
        call refuse('a grid has 3 rows or more and an even 4 columns')
    end if
    call find_shared_rows()
    call comem_parallel(work)
    verdict = 'unchecked'
    total = 0
    if (comem_node() == 0) then
        if (kernel_check .or. real(rows, real64)*columns*(iterations + 1) <= cells_checked) then
            verdict = merge('ok   ', 'WRONG', agrees())
        end if
        total = checksum()
    end if
    write (line, '(3(a, i0))') 'sor rows=', rows, ' columns=', columns, ' iterations=', iterations
    call kernel_finish(trim(line), total, verdict)
end program
