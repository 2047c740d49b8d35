! SPDX-License-Identifier: MIT OR Apache-2.0
!
! kernel.f90: what kernel.h is to the programs in C, for those in Fortran: problem sizes by name, memory dealt out to
! threads, one line of results. Presets, command line, results and checksums are those of the program in C.
!
! Numbers wrap around at 64 bits, as C's unsigned numbers do: compiled with -fwrapv.

module kernel
    use comem
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
    use, intrinsic :: iso_c_binding, only: c_int, c_intptr_t
    implicit none
    private
    public :: option, preset, part, kernel_start, kernel_finish, kernel_part, kernel_alloc_parts, kernel_address
    public :: kernel_random, kernel_mix, kernel_bits, kernel_now, refuse

    ! One number of a program's, by its option's name.
    type :: option
        character(16) :: name
        integer(int64) :: number
        character(80) :: help
    end type

    ! A problem size with a name: a value for each of the program's numbers, in their order.
    type :: preset
        character(10) :: name
        character(32) :: source
        integer(int64) :: values(3)
    end type

    ! A thread's part of shared memory: how many bytes it wants, and where it is.
    type :: part
        integer(int64) :: bytes = 0
        integer(int64) :: address = 0
    end type

    ! Whether to compare with a computation of another kind whatever that costs, and how long the parallel phase took,
    ! as thread 0 saw it.
    logical, public :: kernel_check = .false.
    real(real64), public :: kernel_seconds = 0

    integer(int64), parameter, public :: kernel_page = 4096, kernel_line = 64

    interface
        subroutine c_exit(status) bind(C, name='exit')
            import :: c_int
            integer(c_int), value :: status
        end subroutine
    end interface

contains

    ! ---- the command line --------------------------------------------------------------------------------------

    ! Joins the job and reads the command line: first the preset, then the numbers that differ from it. `tiny` is always
    ! checked.
    subroutine kernel_start(options, presets)
        type(option), intent(inout) :: options(:)
        type(preset), intent(in) :: presets(:)
        integer :: stat, i
        call comem_start(stat)
        if (stat /= comem_ok) then
            write (error_unit, '(a)') comem_last_error()
            call c_exit(3_c_int)
        end if
        do i = 1, comem_argument_count()
            if (comem_argument(i) == '--help') call print_usage(options, presets)
            if (comem_argument(i) == '--preset') call choose(comem_argument(i + 1), options, presets)
        end do
        i = 1
        do while (i <= comem_argument_count())
            if (comem_argument(i) == '--check') then
                kernel_check = .true.
                i = i + 1
            else
                if (comem_argument(i) /= '--preset') call read_number(comem_argument(i), comem_argument(i + 1), options)
                i = i + 2
            end if
        end do
    end subroutine

    ! Takes the numbers of a preset.
    subroutine choose(name, options, presets)
        character(*), intent(in) :: name
        type(option), intent(inout) :: options(:)
        type(preset), intent(in) :: presets(:)
        integer :: k
        do k = 1, size(presets)
            if (presets(k)%name /= name) cycle
            options%number = presets(k)%values(:size(options))
            kernel_check = name == 'tiny'
            return
        end do
        call refuse('there is no preset of that name; --help lists them')
    end subroutine

    ! Reads `name value` into the option of that name.
    subroutine read_number(name, value, options)
        character(*), intent(in) :: name, value
        type(option), intent(inout) :: options(:)
        integer :: k, status
        integer(int64) :: number
        do k = 1, size(options)
            if (options(k)%name /= name) cycle
            if (value == '') call refuse(name//' takes a value')
            read (value, *, iostat=status) number
            if (status /= 0 .or. verify(value, '0123456789') /= 0) then
                call refuse(name//" takes a number, not '"//value//"'")
            end if
            options(k)%number = number
            return
        end do
        call refuse("unknown option '"//name//"'; --help lists them")
    end subroutine

    subroutine print_usage(options, presets)
        type(option), intent(in) :: options(:)
        type(preset), intent(in) :: presets(:)
        integer :: k
        print '(3a)', 'usage: ', comem_argument(0), ' [OPTIONS]'
        do k = 1, size(options)
            print '(5a, i0, a)', '  ', trim(options(k)%name), ' N: ', trim(options(k)%help), ' (default ', &
                options(k)%number, ')'
        end do
        print '(a)', '  --check: compare with a computation of another kind', '  --preset NAME: a problem size', ''
        print '(a10, 3(1x, a12))', 'preset    ', (adjustr(options(k)%name(3:14)), k=1, size(options))
        do k = 1, size(presets)
            print '(a10, *(1x, i12))', presets(k)%name, presets(k)%values(:size(options))
        end do
        call c_exit(0_c_int)
    end subroutine

    ! Ends the program with status 2 and a sentence about what it was asked for.
    subroutine refuse(sentence)
        character(*), intent(in) :: sentence
        write (error_unit, '(3a)') comem_argument(0), ': ', sentence
        call c_exit(2_c_int)
    end subroutine

    ! ---- the end -----------------------------------------------------------------------------------------------

    ! Prints the line of results, which begins with the program's own `numbers`, leaves the job, and ends with the
    ! status. Node 0 calls it with its verdict, 'ok', 'WRONG' or 'unchecked'; the others' is not looked at.
    subroutine kernel_finish(numbers, checksum, verdict)
        character(*), intent(in) :: numbers, verdict
        integer(int64), intent(in) :: checksum
        logical :: first
        integer :: stat
        first = comem_node() == 0
        if (first) then
            print '(2a, i0, a, i0, 6a)', numbers, ' threads=', comem_threads(), ' nodes=', comem_nodes(), &
                ' time_s=', decimal(kernel_seconds), ' checksum=', hexadecimal(checksum), ' ', &
                trim(verdict)
        end if
        call comem_finish(stat)
        call c_exit(merge(1_c_int, 0_c_int, stat /= comem_ok .or. (first .and. verdict == 'WRONG')))
    end subroutine

    ! A number with six decimals, without blanks.
    function decimal(number) result(digits)
        real(real64), intent(in) :: number
        character(:), allocatable :: digits
        character(24) :: wide
        write (wide, '(f24.6)') number
        digits = trim(adjustl(wide))
    end function

    ! Sixteen digits, in small letters.
    function hexadecimal(number) result(digits)
        integer(int64), intent(in) :: number
        character(16) :: digits
        integer :: i
        write (digits, '(z16.16)') number
        do i = 1, 16
            if (digits(i:i) >= 'A') digits(i:i) = achar(iachar(digits(i:i)) + 32)
        end do
    end function

    ! Seconds since some moment.
    real(real64) function kernel_now()
        integer(int64) :: count, rate
        call system_clock(count, rate)
        kernel_now = real(count, real64)/real(rate, real64)
    end function

    ! ---- parts -------------------------------------------------------------------------------------------------

    ! Part `which` of `parts` parts of `total` things, in order and as equal as can be, all counted from 0: low to high.
    pure subroutine kernel_part(total, parts, which, low, high)
        integer(int64), intent(in) :: total
        integer, intent(in) :: parts, which
        integer(int64), intent(out) :: low, high
        low = total*which/parts
        high = total*(which + 1)/parts - 1
    end subroutine

    pure integer(int64) function round_up(bytes, to)
        integer(int64), intent(in) :: bytes, to
        round_up = (bytes + to - 1)/to*to
    end function

    ! Shared memory in one part for each thread, whose pages have the thread's node for their home: no page belongs to
    ! two nodes, no cache line to two threads. parts(t)%bytes is the size of thread t's part, and its address is filled
    ! in. Collective: called before comem_parallel(), by every node alike.
    subroutine kernel_alloc_parts(label, parts)
        character(*), intent(in) :: label
        type(part), intent(inout) :: parts(0:)
        type(c_ptr) :: memory
        integer(int64) :: address
        integer :: node, each, t
        each = comem_threads_per_node()
        do node = 0, comem_nodes() - 1
            associate (mine => parts(node*each:(node + 1)*each - 1))
                call comem_allocate(memory, round_up(max(sum(lines(mine%bytes)), 1_int64), kernel_page), label=label, &
                                    home=comem_home_on, home_number=node, alignment=int(kernel_page))
            end associate
            address = int(transfer(memory, 0_c_intptr_t), int64)
            do t = node*each, (node + 1)*each - 1
                parts(t)%address = address
                address = address + lines(parts(t)%bytes)
            end do
        end do
    end subroutine

    ! Bytes rounded up to whole cache lines.
    elemental integer(int64) function lines(bytes)
        integer(int64), intent(in) :: bytes
        lines = round_up(bytes, kernel_line)
    end function

    ! An address as C pointers have it, for c_f_pointer.
    type(c_ptr) function kernel_address(address)
        integer(int64), intent(in) :: address
        kernel_address = transfer(int(address, c_intptr_t), kernel_address)
    end function

    ! ---- arithmetic --------------------------------------------------------------------------------------------

    ! Mixes a number well (splitmix64): for checksums and for random numbers that every node computes alike.
    elemental integer(int64) function kernel_mix(number)
        integer(int64), intent(in) :: number
        integer(int64) :: x
        x = number + word(int(z'9e3779b9', int64), int(z'7f4a7c15', int64))
        x = ieor(x, shiftr(x, 30))*word(int(z'bf58476d', int64), int(z'1ce4e5b9', int64))
        x = ieor(x, shiftr(x, 27))*word(int(z'94d049bb', int64), int(z'133111eb', int64))
        kernel_mix = ieor(x, shiftr(x, 31))
    end function

    ! A number of 64 bits by its halves: larger constants than int64 has do not exist in Fortran.
    elemental integer(int64) function word(upper, lower)
        integer(int64), intent(in) :: upper, lower
        word = ior(shiftl(upper, 32), lower)
    end function

    ! The number that a double's bits make, for checksums.
    elemental integer(int64) function kernel_bits(value)
        real(real64), intent(in) :: value
        kernel_bits = transfer(value, 0_int64)
    end function

    ! A random number in [0, 1) that belongs to `place`.
    elemental real(real64) function kernel_random(place)
        integer(int64), intent(in) :: place
        kernel_random = real(shiftr(kernel_mix(place), 11), real64)*2.0_real64**(-53)
    end function
end module
