! SPDX-License-Identifier: MIT OR Apache-2.0
!
! comem.f90: one memory for many machines, for Fortran (2008).
!
! A program allocates shared arrays through ordinary Fortran pointers, uses them by ordinary assignments from any
! thread of any node, and synchronises with locks, barriers and flags. Comem moves the data.
!
!     module sums
!         use comem
!         use, intrinsic :: iso_fortran_env, only: real64
!         implicit none
!         real(real64), pointer, contiguous :: grid(:)
!     contains
!         recursive subroutine work()
!             integer :: low, high, i
!             call comem_split(size(grid), low, high)            ! my share of the work
!             do i = low, high
!                 grid(i) = i                                    ! ordinary stores
!             end do
!             call comem_barrier()
!             if (comem_thread() == 0) print *, grid(1000000)    ! an ordinary load, of another node's memory
!         end subroutine
!     end module
!
!     program main
!         use sums
!         call comem_start()
!         call comem_allocate(grid, [1000000], label='grid')
!         call comem_parallel(work)
!         call comem_finish()
!     end program
!
!     comem fc sums.f90 && comem run -n 4 ./a.out
!
! Terms. A *node* is one process of the job; its *threads* are numbered through all nodes, from 0, as in comem.h. A call
! is *collective* when one thread of every node makes it, in the same order. What memory promises stands in
! docs/memory-model.md, and what a Fortran program must watch for in docs/fortran.md: above all, a procedure that
! synchronises must know its shared arrays as pointers (or `target`), not as plain dummy arguments.
!
! Arguments. Numbers that name or count something (locks, flags, extents, bytes) may be integer(int32) or
! integer(int64), all of one call of the same kind; other integers are default integers. Strings need no trailing null.
!
! Errors. Every subroutine has a last optional argument `stat`, a default integer: 0, or a negative comem_e_ code with
! the sentence in comem_last_error(). Without `stat` an error prints one sentence and ends the node, and so the job.
! With it too, save for comem_start, unless comem_return_errors(.true.) was called: then `stat` gives the code.
!
! Four more files beside this one belong to it, comem_*.inc; the compiler finds them by itself. `comem fc` compiles the
! module where it is needed.

include 'comem_library.inc'

! ---- what takes integers, for both kinds of them -----------------------------------------------------------------

module comem_int32
    use, intrinsic :: iso_fortran_env, only: number => int32
    include 'comem_integers.inc'
end module

module comem_int64
    use, intrinsic :: iso_fortran_env, only: number => int64
    include 'comem_integers.inc'
end module

! ---- what programs use -------------------------------------------------------------------------------------------

module comem
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, output_unit
    use comem_library
    use comem_base
    use comem_int32
    use comem_int64
    implicit none
    private

    ! The job; errors.
    public :: comem_start, comem_finish, comem_abort, comem_argument_count, comem_argument, comem_version
    public :: comem_last_error, comem_error_string, comem_return_errors
    ! Nodes and threads.
    public :: comem_node, comem_nodes, comem_thread, comem_threads, comem_threads_per_node
    public :: comem_parallel, comem_split, comem_split_weighted, comem_for_dynamic
    ! Synchronisation.
    public :: comem_barrier, comem_node_barrier, comem_rendezvous, comem_lock, comem_trylock, comem_unlock
    public :: comem_flag_set, comem_flag_wait
    public :: comem_sem_post, comem_sem_wait, comem_sem_trywait
    public :: comem_cond_wait, comem_cond_signal, comem_cond_broadcast
    public :: comem_rdlock, comem_wrlock, comem_tryrdlock, comem_trywrlock, comem_rwunlock, comem_reduce
    ! Words of shared memory as one step.
    public :: comem_fetch_add, comem_fetch_add_relaxed, comem_fetch_min, comem_fetch_min_relaxed
    public :: comem_fetch_max, comem_fetch_max_relaxed, comem_exchange, comem_exchange_relaxed
    ! Shared memory; c_ptr and c_loc are those of iso_c_binding, for memory by its address.
    public :: comem_allocate, comem_deallocate, comem_label, comem_freeze, comem_prefetch, comem_is_shared, c_ptr, c_loc

    ! The version of the library that this file belongs to.
    character(*), parameter, public :: comem_module_version = '0.1.0'

    ! What `stat` may say.
    integer, parameter, public :: comem_ok = 0
    integer, parameter, public :: comem_e_start = -1        ! the job could not be started or joined
    integer, parameter, public :: comem_e_not_started = -2  ! a call before comem_start or after comem_finish
    integer, parameter, public :: comem_e_argument = -5     ! an argument that makes no sense
    integer, parameter, public :: comem_e_thread = -6       ! the node has no thread number left for the calling thread
    integer, parameter, public :: comem_e_misuse = -7       ! a call out of order: a lock released that is not held, ...
    integer, parameter, public :: comem_e_node_lost = -8    ! another node ended or fell silent
    integer, parameter, public :: comem_e_system = -11      ! the operating system refused something
    integer, parameter, public :: comem_e_stopped = -12     ! the job was told to end

    ! Which nodes are home to the pages of an allocation.
    integer, parameter, public :: comem_home_block = 0       ! one run of consecutive pages for each node
    integer, parameter, public :: comem_home_cyclic = 1      ! `home_number` pages (at least 1) to each node in turn
    integer, parameter, public :: comem_home_on = 2          ! all at node `home_number`
    integer, parameter, public :: comem_home_first_touch = 3 ! each page at the node that touches it first
    integer, parameter, public :: comem_home_automatic = 4   ! (default) first touch, and then to the node that writes

    ! What comem_reduce makes of all threads' numbers.
    integer, parameter, public :: comem_sum = 0, comem_min = 1, comem_max = 2

    abstract interface
        ! What comem_parallel runs on every thread. Threads are in it together, so declare it `recursive`, and the
        ! procedures with larger local arrays that it calls too (or compile with -frecursive): local variables are then
        ! each thread's own.
        subroutine comem_work()
        end subroutine
        ! The same as a procedure that C could call, with an argument.
        subroutine comem_work_c(argument) bind(C)
            import :: c_ptr
            type(c_ptr), value :: argument
        end subroutine
    end interface

    ! call comem_parallel(work [, stat]), call comem_parallel(work, argument [, stat]): runs `work` (a comem_work, or
    ! with an argument a comem_work_c) on every thread of this node, the caller included, and returns when all have
    ! returned.
    interface comem_parallel
        module procedure parallel_plain, parallel_c
    end interface

    ! call comem_reduce(operation, values [, stat]): replaces every number by the sum, least or greatest of all threads'
    ! numbers in its place. `values` is a number or an array of rank 1, integer(int64) or real(real64). Every thread
    ! makes the call with the same operation and size; it is a barrier too.
    interface comem_reduce
        module procedure reduce_i64, reduce_f64, reduce_i64_1, reduce_f64_1
    end interface

    ! call comem_fetch_add(word, value [, old, stat]): adds to a word of shared memory as one step for all threads of
    ! all nodes; `old` is what it held before. comem_fetch_min and comem_fetch_max keep the lesser or greater,
    ! comem_exchange stores. `word` is an element of a shared array, integer(int32), integer(int64) or real(real64).
    ! They release and acquire; their twins with `_relaxed` say nothing about other memory and are much cheaper
    ! (comem.h says what they cost, and what happens when they are mixed with ordinary loads and stores).
    interface comem_fetch_add
        module procedure add_i4, add_i8, add_r8
    end interface
    interface comem_fetch_add_relaxed
        module procedure add_relaxed_i4, add_relaxed_i8, add_relaxed_r8
    end interface
    interface comem_fetch_min
        module procedure min_i4, min_i8, min_r8
    end interface
    interface comem_fetch_min_relaxed
        module procedure min_relaxed_i4, min_relaxed_i8, min_relaxed_r8
    end interface
    interface comem_fetch_max
        module procedure max_i4, max_i8, max_r8
    end interface
    interface comem_fetch_max_relaxed
        module procedure max_relaxed_i4, max_relaxed_i8, max_relaxed_r8
    end interface
    interface comem_exchange
        module procedure exchange_i4, exchange_i8, exchange_r8
    end interface
    interface comem_exchange_relaxed
        module procedure exchange_relaxed_i4, exchange_relaxed_i8, exchange_relaxed_r8
    end interface

    ! call comem_deallocate(array [, stat]), also with an address: gives back what comem_allocate gave, and nullifies
    ! the pointer. What was allocated collectively is given back by every node for itself, once nobody uses it any more:
    ! a barrier comes before it. Anything else is given back by one call, from any node. A pointer that is not
    ! associated stays as it is.
    interface comem_deallocate
        module procedure free_r4_1, free_r4_2, free_r4_3, free_r4_4, free_r4_5, free_r4_6, free_r4_7
        module procedure free_r8_1, free_r8_2, free_r8_3, free_r8_4, free_r8_5, free_r8_6, free_r8_7
        module procedure free_i4_1, free_i4_2, free_i4_3, free_i4_4, free_i4_5, free_i4_6, free_i4_7
        module procedure free_i8_1, free_i8_2, free_i8_3, free_i8_4, free_i8_5, free_i8_6, free_i8_7
        module procedure free_c8_1, free_c8_2, free_c8_3, free_c8_4, free_c8_5, free_c8_6, free_c8_7
        module procedure free_bytes
    end interface

    type :: task
        procedure(comem_work), pointer, nopass :: run => null()
    end type

    type :: text
        character(kind=c_char), allocatable :: letters(:)
    end type

    ! The command line without Comem's own options: `kept` arguments after the program's name.
    integer, save :: kept = 0
    type(c_ptr), allocatable, save :: arguments(:)
    type(text), allocatable, target, save :: argument_texts(:)

contains

    ! Joins the job: the one that `comem run` or `comem exec` started this process for, else a job of this node alone.
    ! Comem's own options on the command line (`--comem-engine=scope`) do what the environment's variables do; the
    ! others are the program's, by comem_argument().
    subroutine comem_start(stat)
        integer, intent(out), optional :: stat
        integer :: i, length
        integer(c_int) :: count, code
        character(:), allocatable :: argument
        if (allocated(arguments)) deallocate (arguments, argument_texts)
        count = int(command_argument_count(), c_int) + 1
        allocate (argument_texts(0:count - 1))
        allocate (arguments(0:count))
        do i = 0, count - 1
            call get_command_argument(i, length=length)
            allocate (character(length) :: argument)
            call get_command_argument(i, argument)
            argument_texts(i)%letters = to_c(argument)
            deallocate (argument)
            arguments(i) = c_loc(argument_texts(i)%letters)
        end do
        arguments(count) = c_null_ptr
        code = c_start_args(count, arguments)
        kept = max(int(count) - 1, 0)
        call settle(code, stat)
    end subroutine

    ! Waits until every node has come as far, and leaves the job. Collective; nothing follows it.
    subroutine comem_finish(stat)
        integer, intent(out), optional :: stat
        flush (output_unit)
        call settle(c_finish(), stat)
    end subroutine

    ! Ends the whole job, now, with this exit status and sentence.
    subroutine comem_abort(status, sentence)
        integer, intent(in) :: status
        character(*), intent(in) :: sentence
        flush (output_unit)
        call c_abort(int(status, c_int), to_c(trim(sentence)))
    end subroutine

    ! How many arguments the command line has, not counting the program's name and Comem's own options.
    integer function comem_argument_count()
        comem_argument_count = kept
    end function

    ! Argument `number` of these, from 1; 0 is the program's name. Empty where there is none.
    function comem_argument(number) result(argument)
        integer, intent(in) :: number
        character(:), allocatable :: argument
        argument = ''
        if (allocated(arguments) .and. number >= 0 .and. number <= kept) argument = from_c(arguments(number))
    end function

    ! The version of the library.
    function comem_version() result(version)
        character(:), allocatable :: version
        version = from_c(c_version())
    end function

    ! This node's number, from 0. This and the next four give what never changes for a thread once the job has started,
    ! so they are pure. An error ends the node, or is the result (a negative code) after comem_return_errors(.true.).
    pure integer function comem_node()
        comem_node = c_node()
    end function

    ! How many nodes the job has.
    pure integer function comem_nodes()
        comem_nodes = c_nodes()
    end function

    ! The calling thread's number among all nodes' threads, from 0.
    pure integer function comem_thread()
        comem_thread = c_thread()
    end function

    ! How many threads the job has in all.
    pure integer function comem_threads()
        comem_threads = c_threads()
    end function

    ! How many threads each node has.
    pure integer function comem_threads_per_node()
        comem_threads_per_node = c_threads_per_node()
    end function

    subroutine parallel_plain(work, stat)
        procedure(comem_work) :: work
        integer, intent(out), optional :: stat
        type(task), target :: this
        this%run => work
        call settle(c_parallel(c_funloc(run_task), c_loc(this)), stat)
    end subroutine

    subroutine parallel_c(work, argument, stat)
        procedure(comem_work_c) :: work
        type(c_ptr), intent(in) :: argument
        integer, intent(out), optional :: stat
        call settle(c_parallel(c_funloc(work), argument), stat)
    end subroutine

    ! What the library runs on every thread for parallel_plain.
    recursive subroutine run_task(argument) bind(C, name='comem_fortran_run_task')
        type(c_ptr), value :: argument
        type(task), pointer :: this
        call c_f_pointer(argument, this)
        call this%run()
    end subroutine

    ! Waits until every thread of every node has arrived; then all see what all wrote before.
    subroutine comem_barrier(stat)
        integer, intent(out), optional :: stat
        call settle(c_barrier(), stat)
    end subroutine

    ! Waits until one thread of every node has come here, for programs with thread pools of their own (OpenMP). While it
    ! lasts the node's other threads neither use shared memory nor call Comem: call it outside of parallel regions.
    subroutine comem_node_barrier(stat)
        integer, intent(out), optional :: stat
        call settle(c_node_barrier(), stat)
    end subroutine

    ! The same, but says nothing about memory.
    subroutine comem_rendezvous(stat)
        integer, intent(out), optional :: stat
        call settle(c_rendezvous(), stat)
    end subroutine

    subroutine reduce_i64(operation, values, stat)
        integer, intent(in) :: operation
        integer(int64), intent(inout) :: values
        integer, intent(out), optional :: stat
        integer(int64) :: one(1)
        one(1) = values
        call reduce_i64_1(operation, one, stat)
        values = one(1)
    end subroutine

    subroutine reduce_f64(operation, values, stat)
        integer, intent(in) :: operation
        real(real64), intent(inout) :: values
        integer, intent(out), optional :: stat
        real(real64) :: one(1)
        one(1) = values
        call reduce_f64_1(operation, one, stat)
        values = one(1)
    end subroutine

    subroutine reduce_i64_1(operation, values, stat)
        integer, intent(in) :: operation
        integer(int64), contiguous, intent(inout) :: values(:)
        integer, intent(out), optional :: stat
        call settle(c_reduce_i64(int(operation, c_int), values, size(values, kind=c_size_t)), stat)
    end subroutine

    subroutine reduce_f64_1(operation, values, stat)
        integer, intent(in) :: operation
        real(real64), contiguous, intent(inout) :: values(:)
        integer, intent(out), optional :: stat
        call settle(c_reduce_f64(int(operation, c_int), values, size(values, kind=c_size_t)), stat)
    end subroutine

    ! Names the memory at this address (c_loc(array)) in reports and errors.
    subroutine comem_label(address, name, stat)
        type(c_ptr), intent(in) :: address
        character(*), intent(in) :: name
        integer, intent(out), optional :: stat
        call settle(c_label(address, to_c(trim(name))), stat)
    end subroutine

    ! Declares that nobody writes to the allocation at this address from here on: copies of its pages then cost half.
    ! Called by every node.
    subroutine comem_freeze(address, stat)
        type(c_ptr), intent(in) :: address
        integer, intent(out), optional :: stat
        call settle(c_readonly(address), stat)
    end subroutine

    ! Whether the address is in the shared heap.
    logical function comem_is_shared(address)
        type(c_ptr), intent(in) :: address
        comem_is_shared = c_is_shared(address) /= 0
    end function

    subroutine free_bytes(address, stat)
        type(c_ptr), intent(inout) :: address
        integer, intent(out), optional :: stat
        if (present(stat)) stat = 0
        if (c_associated(address)) call settle(c_free(address), stat)
        address = c_null_ptr
    end subroutine

    subroutine add_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 2_c_int, int(value, c_int64_t), 1_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine add_relaxed_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 2_c_int, int(value, c_int64_t), 0_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine min_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 6_c_int, int(value, c_int64_t), 1_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine min_relaxed_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 6_c_int, int(value, c_int64_t), 0_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine max_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 7_c_int, int(value, c_int64_t), 1_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine max_relaxed_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 7_c_int, int(value, c_int64_t), 0_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine exchange_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 1_c_int, int(value, c_int64_t), 1_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine exchange_relaxed_i4(word, value, old, stat)
        integer(int32), target, intent(inout) :: word
        integer(int32), intent(in) :: value
        integer(int32), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        integer(int32) :: narrow(2)
        before = 0
        call settle(c_atomic(c_loc(word), 0_c_int, 1_c_int, int(value, c_int64_t), 0_c_int, before), stat)
        narrow = transfer(before, narrow)
        if (present(old)) old = narrow(1)
    end subroutine

    subroutine add_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 2_c_int, value, 1_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine add_relaxed_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 2_c_int, value, 0_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine min_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 6_c_int, value, 1_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine min_relaxed_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 6_c_int, value, 0_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine max_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 7_c_int, value, 1_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine max_relaxed_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 7_c_int, value, 0_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine exchange_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 1_c_int, value, 1_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine exchange_relaxed_i8(word, value, old, stat)
        integer(int64), target, intent(inout) :: word
        integer(int64), intent(in) :: value
        integer(int64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 2_c_int, 1_c_int, value, 0_c_int, before), stat)
        if (present(old)) old = before
    end subroutine

    subroutine add_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 2_c_int, transfer(value, 0_c_int64_t), 1_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine add_relaxed_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 2_c_int, transfer(value, 0_c_int64_t), 0_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine min_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 6_c_int, transfer(value, 0_c_int64_t), 1_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine min_relaxed_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 6_c_int, transfer(value, 0_c_int64_t), 0_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine max_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 7_c_int, transfer(value, 0_c_int64_t), 1_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine max_relaxed_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 7_c_int, transfer(value, 0_c_int64_t), 0_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine exchange_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 1_c_int, transfer(value, 0_c_int64_t), 1_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine exchange_relaxed_r8(word, value, old, stat)
        real(real64), target, intent(inout) :: word
        real(real64), intent(in) :: value
        real(real64), intent(out), optional :: old
        integer, intent(out), optional :: stat
        integer(c_int64_t) :: before
        before = 0
        call settle(c_atomic(c_loc(word), 4_c_int, 1_c_int, transfer(value, 0_c_int64_t), 0_c_int, before), stat)
        if (present(old)) old = transfer(before, 0.0_real64)
    end subroutine

    subroutine free_r4_1(array, stat)
        real(real32), pointer, intent(inout) :: array(:)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r4_2(array, stat)
        real(real32), pointer, intent(inout) :: array(:, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r4_3(array, stat)
        real(real32), pointer, intent(inout) :: array(:, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r4_4(array, stat)
        real(real32), pointer, intent(inout) :: array(:, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r4_5(array, stat)
        real(real32), pointer, intent(inout) :: array(:, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r4_6(array, stat)
        real(real32), pointer, intent(inout) :: array(:, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r4_7(array, stat)
        real(real32), pointer, intent(inout) :: array(:, :, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_1(array, stat)
        real(real64), pointer, intent(inout) :: array(:)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_2(array, stat)
        real(real64), pointer, intent(inout) :: array(:, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_3(array, stat)
        real(real64), pointer, intent(inout) :: array(:, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_4(array, stat)
        real(real64), pointer, intent(inout) :: array(:, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_5(array, stat)
        real(real64), pointer, intent(inout) :: array(:, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_6(array, stat)
        real(real64), pointer, intent(inout) :: array(:, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_r8_7(array, stat)
        real(real64), pointer, intent(inout) :: array(:, :, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_1(array, stat)
        integer(int32), pointer, intent(inout) :: array(:)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_2(array, stat)
        integer(int32), pointer, intent(inout) :: array(:, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_3(array, stat)
        integer(int32), pointer, intent(inout) :: array(:, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_4(array, stat)
        integer(int32), pointer, intent(inout) :: array(:, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_5(array, stat)
        integer(int32), pointer, intent(inout) :: array(:, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_6(array, stat)
        integer(int32), pointer, intent(inout) :: array(:, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i4_7(array, stat)
        integer(int32), pointer, intent(inout) :: array(:, :, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_1(array, stat)
        integer(int64), pointer, intent(inout) :: array(:)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_2(array, stat)
        integer(int64), pointer, intent(inout) :: array(:, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_3(array, stat)
        integer(int64), pointer, intent(inout) :: array(:, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_4(array, stat)
        integer(int64), pointer, intent(inout) :: array(:, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_5(array, stat)
        integer(int64), pointer, intent(inout) :: array(:, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_6(array, stat)
        integer(int64), pointer, intent(inout) :: array(:, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_i8_7(array, stat)
        integer(int64), pointer, intent(inout) :: array(:, :, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_1(array, stat)
        complex(real64), pointer, intent(inout) :: array(:)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_2(array, stat)
        complex(real64), pointer, intent(inout) :: array(:, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_3(array, stat)
        complex(real64), pointer, intent(inout) :: array(:, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_4(array, stat)
        complex(real64), pointer, intent(inout) :: array(:, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_5(array, stat)
        complex(real64), pointer, intent(inout) :: array(:, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_6(array, stat)
        complex(real64), pointer, intent(inout) :: array(:, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine

    subroutine free_c8_7(array, stat)
        complex(real64), pointer, intent(inout) :: array(:, :, :, :, :, :, :)
        include 'comem_release.inc'
    end subroutine
end module
