! SPDX-License-Identifier: MIT OR Apache-2.0
!
! every: calls every procedure of the module comem, on every thread where that makes sense, and checks what comes of it.
! Prints one line for each part that is right on every node, and ends with status 1 after a `WRONG:` line if one is not.
! Started with `--comem-verbose=off one "two words"`, so that the command line is checked too.

module every_parts
    use comem
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_associated, c_int64_t
    implicit none

    integer(int64), parameter :: lock_of_wrong = 900, first_lock = 2_int64**40
    integer, parameter :: rounds = 20

    ! What other threads find through shared memory: a pointer that one thread set.
    type :: box
        integer(int64), pointer :: numbers(:) => null()
    end type

    integer(int64), pointer, contiguous :: counters(:), wrong(:)
    real(real64), pointer, contiguous :: grid(:, :)
    type(box), pointer :: found
    real(real64), target :: given
    real(real64), pointer, contiguous :: given_to_all(:)
    integer(int32), pointer, contiguous :: narrow(:)

contains

    ! Counts a check that failed, and says which.
    recursive subroutine expect(right, what)
        logical, intent(in) :: right
        character(*), intent(in) :: what
        if (right) return
        write (error_unit, '(3a, i0)') 'WRONG: ', what, ', thread ', comem_thread()
        call comem_lock(lock_of_wrong)
        wrong(1) = wrong(1) + 1
        call comem_unlock(lock_of_wrong)
    end subroutine

    ! ---- memory ------------------------------------------------------------------------------------------------

    ! Every type and rank, by both kinds of shape: the shape, the bounds, zeros at first, and what every node's thread 0
    ! wrote into its column is seen by all.
    subroutine shared_arrays_of_every_type_and_rank()
        real(real32), pointer, contiguous :: r4_1(:), r4_2(:, :), r4_3(:, :, :)
        real(real64), pointer, contiguous :: r8_1(:), r8_2(:, :), r8_3(:, :, :)
        integer(int32), pointer, contiguous :: i4_1(:), i4_2(:, :), i4_3(:, :, :)
        integer(int64), pointer, contiguous :: i8_1(:), i8_2(:, :), i8_3(:, :, :)
        complex(real64), pointer, contiguous :: c8_1(:), c8_2(:, :), c8_3(:, :, :)
        integer :: nodes, me
        nodes = comem_nodes()
        me = comem_node() + 1
        call comem_allocate(r4_1, [nodes])
        call comem_allocate(r4_2, [5, nodes])
        call comem_allocate(r4_3, [5, 3, nodes])
        call comem_allocate(r8_1, [int(nodes, int64)])
        call comem_allocate(r8_2, [5_int64, int(nodes, int64)])
        call comem_allocate(r8_3, [5_int64, 3_int64, int(nodes, int64)])
        call comem_allocate(i4_1, [nodes], label='i4')
        call comem_allocate(i4_2, [5, nodes], home=comem_home_block)
        call comem_allocate(i4_3, [5, 3, nodes], home=comem_home_cyclic, home_number=2)
        call comem_allocate(i8_1, [int(nodes, int64)], home=comem_home_on, home_number=nodes - 1)
        call comem_allocate(i8_2, [5_int64, int(nodes, int64)], home=comem_home_first_touch)
        call comem_allocate(i8_3, [5_int64, 3_int64, int(nodes, int64)], alignment=4096, unit_pages=2)
        call comem_allocate(c8_1, [nodes], engine='scope')
        call comem_allocate(c8_2, [5, nodes], engine='hlrc')
        call comem_allocate(c8_3, [5, 3, nodes], engine='msi')
        call expect(all(shape(r4_3) == [5, 3, nodes]) .and. all(shape(c8_2) == [5, nodes]), 'shapes')
        call expect(all(lbound(i4_3) == 1) .and. lbound(r8_1, 1) == 1, 'lower bounds')
        call expect(sum(abs(r4_2(:, me))) + sum(abs(c8_3(:, :, me))) + i8_1(me) <= 0, 'new memory is zero')
        r4_1(me) = real(me, real32)
        r4_2(:, me) = real(me, real32)
        r4_3(:, :, me) = real(me, real32)
        r8_1(me) = me
        r8_2(:, me) = me
        r8_3(:, :, me) = me
        i4_1(me) = me
        i4_2(:, me) = me
        i4_3(:, :, me) = me
        i8_1(me) = me
        i8_2(:, me) = me
        i8_3(:, :, me) = me
        c8_1(me) = cmplx(me, -me, real64)
        c8_2(:, me) = cmplx(me, -me, real64)
        c8_3(:, :, me) = cmplx(me, -me, real64)
        call nodes_meet()
        me = (nodes*(nodes + 1))/2
        call expect(nint(sum(r4_1)) == me .and. nint(sum(r4_2)) == 5*me .and. nint(sum(r4_3)) == 15*me, 'real(real32)')
        call expect(nint(sum(r8_1)) == me .and. nint(sum(r8_2)) == 5*me .and. nint(sum(r8_3)) == 15*me, 'real(real64)')
        call expect(sum(i4_1) == me .and. sum(i4_2) == 5*me .and. sum(i4_3) == 15*me, 'integer(int32)')
        call expect(sum(i8_1) == me .and. sum(i8_2) == 5*me .and. sum(i8_3) == 15*me, 'integer(int64)')
        call expect(nint(real(sum(c8_1))) == me .and. nint(aimag(sum(c8_2))) == -5*me, 'complex(real64)')
        call expect(nint(real(sum(c8_3))) == 15*me, 'complex(real64) of rank 3')
        call nodes_meet()
        call comem_deallocate(r4_1)
        call comem_deallocate(r4_2)
        call comem_deallocate(r4_3)
        call comem_deallocate(r8_1)
        call comem_deallocate(r8_2)
        call comem_deallocate(r8_3)
        call comem_deallocate(i4_1)
        call comem_deallocate(i4_2)
        call comem_deallocate(i4_3)
        call comem_deallocate(i8_1)
        call comem_deallocate(i8_2)
        call comem_deallocate(i8_3)
        call comem_deallocate(c8_1)
        call comem_deallocate(c8_2)
        call comem_deallocate(c8_3)
        call expect(.not. associated(r4_1) .and. .not. associated(c8_3), 'freed pointers are null')
        call comem_deallocate(c8_3)
        call verdict('shared arrays of every type and rank')
    end subroutine

    ! Arrays of rank 4 to 7.
    subroutine arrays_up_to_rank_7()
        real(real32), pointer, contiguous :: r4_4(:, :, :, :)
        real(real64), pointer, contiguous :: r8_5(:, :, :, :, :), r8_7(:, :, :, :, :, :, :)
        integer(int32), pointer, contiguous :: i4_6(:, :, :, :, :, :)
        integer(int64), pointer, contiguous :: i8_7(:, :, :, :, :, :, :)
        complex(real64), pointer, contiguous :: c8_4(:, :, :, :)
        integer :: nodes, me
        nodes = comem_nodes()
        me = comem_node() + 1
        call comem_allocate(r4_4, [2, 3, 2, nodes])
        call comem_allocate(r8_5, [2, 1, 2, 3, nodes], label='rank 5')
        call comem_allocate(i4_6, [2, 1, 2, 1, 2, nodes])
        call comem_allocate(i8_7, [2_int64, 1_int64, 2_int64, 1_int64, 2_int64, 1_int64, int(nodes, int64)])
        call comem_allocate(r8_7, [1, 2, 3, 1, 2, 3, nodes])
        call comem_allocate(c8_4, [2, 2, 2, nodes])
        call expect(all(shape(r8_7) == [1, 2, 3, 1, 2, 3, nodes]) .and. all(lbound(i8_7) == 1), 'the shape of rank 7')
        r4_4(:, :, :, me) = real(me, real32)
        r8_5(:, :, :, :, me) = me
        i4_6(:, :, :, :, :, me) = me
        i8_7(:, :, :, :, :, :, me) = me
        r8_7(:, :, :, :, :, :, me) = me
        c8_4(:, :, :, me) = cmplx(me, -me, real64)
        call nodes_meet()
        me = (nodes*(nodes + 1))/2
        call expect(nint(sum(r4_4)) == 12*me .and. nint(sum(r8_5)) == 12*me .and. sum(i4_6) == 8*me, 'ranks 4 to 6')
        call expect(sum(i8_7) == 8*me .and. nint(sum(r8_7)) == 36*me .and. nint(real(sum(c8_4))) == 8*me, 'rank 7')
        call nodes_meet()
        call comem_deallocate(r4_4)
        call comem_deallocate(r8_5)
        call comem_deallocate(i4_6)
        call comem_deallocate(i8_7)
        call comem_deallocate(r8_7)
        call comem_deallocate(c8_4)
        call expect(.not. associated(r8_7) .and. .not. associated(i4_6), 'freed pointers of high rank are null')
        call verdict('arrays up to rank 7')
    end subroutine

    ! Words of shared memory that all threads change as one step.
    recursive subroutine words_as_one_step()
        integer(int64) :: before
        integer :: i, stat
        do i = 1, 50
            call comem_fetch_add_relaxed(counters(9), 2_int64, before, stat)
            call expect(stat == comem_ok .and. before >= 2*(i - 1), 'what a word held before')
        end do
        call comem_fetch_add(given_to_all(1), 0.5_real64)
        call comem_fetch_max(counters(10), int(comem_thread(), int64))
        call comem_fetch_min_relaxed(counters(11), -int(comem_thread(), int64))
        call comem_fetch_add(narrow(2), -3_int32)
        call comem_barrier()
        call expect(counters(9) == 100*comem_threads() .and. counters(10) == comem_threads() - 1, 'sums and maxima')
        call expect(counters(11) == 1 - comem_threads() .and. narrow(2) == -3*comem_threads(), 'minima and small words')
        call expect(nint(2*given_to_all(1)) == comem_threads(), 'sums of real numbers')
        call comem_barrier()
        if (comem_thread() == 0) call comem_exchange(counters(9), 0_int64, before)
        if (comem_thread() == 0) call expect(before == 100*comem_threads(), 'what an exchange gives')
        call comem_barrier()
    end subroutine

    ! Every item of a loop goes to one thread.
    recursive subroutine loops_dealt_out()
        call comem_for_dynamic(300, 7, take_items)
        call comem_for_dynamic(300_int64, 0_int64, take_items_8)
        call comem_barrier()
        call expect(nint(sum(grid(:, 60))) == 600 .and. all(nint(grid(:, 60)) == 2), 'every item is dealt out once')
        call comem_barrier()
    end subroutine

    recursive subroutine take_items(low, high)
        integer(int32), intent(in) :: low, high
        integer :: i
        do i = low, high
            call comem_fetch_add_relaxed(grid(i, 60), 1.0_real64)
        end do
    end subroutine

    recursive subroutine take_items_8(low, high)
        integer(int64), intent(in) :: low, high
        call take_items(int(low, int32), int(high, int32))
    end subroutine

    ! Main threads meet without the others.
    subroutine a_barrier_of_nodes()
        integer :: stat
        call comem_node_barrier(stat)
        call expect(stat == comem_ok, 'stat of a barrier of nodes')
        counters(12 + mod(comem_node(), 4)) = 5
        call comem_node_barrier()
        call expect(all(counters(12:11 + min(comem_nodes(), 4)) == 5), 'all see what all nodes wrote')
        call comem_node_barrier()
        call verdict('a barrier of nodes')
    end subroutine

    ! Memory by its address, and what can be said about it.
    subroutine memory_by_its_address()
        type(c_ptr) :: address
        integer(int32), pointer :: numbers(:)
        integer(int64), pointer, contiguous :: none(:), table(:)
        call comem_allocate(address, 4096_int64, label='bytes')
        call expect(comem_is_shared(address) .or. comem_nodes() == 1, 'the address is shared')
        call expect(.not. comem_is_shared(c_loc(given)), 'a private address is not')
        call c_f_pointer(address, numbers, [1024])
        if (comem_node() == 0) numbers = 7
        call nodes_meet()
        call comem_prefetch(address, 4096, for_writing=.false.)
        call comem_label(address, 'sevens')
        call comem_freeze(address)
        call expect(all(numbers == 7), 'all nodes see the numbers')
        call nodes_meet()
        call comem_deallocate(address)
        call expect(.not. c_associated(address), 'a freed address is null')
        call comem_allocate(table, [1000])
        if (comem_node() == 0) call comem_prefetch(c_loc(table(501)), 8_int64*500, for_writing=.true.)
        call comem_allocate(none, [0])
        call expect(associated(none) .and. size(none) == 0, 'an array without elements')
        call nodes_meet()
        call comem_deallocate(none)
        call comem_deallocate(table)
        call verdict('memory by its address')
    end subroutine

    ! Thread 0 alone allocates, and tells the others by a pointer in shared memory; the last thread gives it back.
    recursive subroutine memory_that_one_thread_allocates()
        if (comem_thread() == 0) then
            call comem_allocate(found%numbers, [100], collective=.false.)
            found%numbers = 5
        end if
        call comem_barrier()
        call expect(size(found%numbers) == 100 .and. all(found%numbers == 5), 'what thread 0 allocated')
        call comem_barrier()
        if (comem_thread() == comem_threads() - 1) then
            call comem_deallocate(found%numbers)
            call expect(.not. associated(found%numbers), 'given back')
        end if
        call comem_barrier()
    end subroutine

    ! ---- threads and parts -------------------------------------------------------------------------------------

    recursive subroutine every_thread_has_a_part()
        integer(int32) :: low, high, total
        integer(int64) :: wide_low, wide_high, covered
        total = 1000
        call expect(comem_threads() == comem_nodes()*comem_threads_per_node(), 'how many threads there are')
        call expect(comem_thread()/comem_threads_per_node() == comem_node(), 'the node of a thread')
        call comem_split(total, low, high)
        covered = high - low + 1
        call comem_reduce(comem_sum, covered)
        call expect(covered == total .and. low >= 1 .and. high <= total, 'parts that cover all')
        call comem_split(0_int64, wide_low, wide_high)
        call expect(wide_high == wide_low - 1, 'a part of nothing')
        call comem_split_weighted(total, low, high)
        call comem_split_weighted(3_int64*total, wide_low, wide_high)
        covered = wide_high - wide_low + 1
        call comem_reduce(comem_sum, covered)
        call expect(covered == 3*total, 'weighted parts that cover all')
    end subroutine

    ! Run with the address of `given`.
    recursive subroutine with_an_argument(argument) bind(C)
        type(c_ptr), value :: argument
        real(real64), pointer :: value
        call c_f_pointer(argument, value)
        call expect(abs(value - 2.5_real64) < 1e-12_real64, 'the argument of parallel work')
        call comem_barrier()
    end subroutine

    ! ---- synchronisation ---------------------------------------------------------------------------------------

    ! Counts under locks of both kinds of name; a lost update would show.
    recursive subroutine locks_exclude()
        integer :: i
        logical :: taken
        do i = 1, rounds
            call comem_lock(7)
            counters(1) = counters(1) + 1
            call comem_unlock(7)
            taken = .false.
            do while (.not. taken)
                call comem_trylock(first_lock, taken)
            end do
            counters(2) = counters(2) + 1
            call comem_unlock(first_lock)
        end do
        call comem_barrier()
        call expect(all(counters(1:2) == rounds*comem_threads()), 'locks')
        call comem_barrier()
    end subroutine

    ! Writers keep a pair of numbers alike, readers look.
    recursive subroutine readers_and_writers()
        integer :: i
        logical :: taken
        do i = 1, rounds
            call comem_rdlock(3)
            call expect(counters(3) == counters(4), 'a reader sees a pair')
            call comem_rwunlock(3)
            call comem_wrlock(3_int64)
            counters(3) = counters(3) + 1
            counters(4) = counters(4) + 1
            call comem_rwunlock(3_int64)
        end do
        call comem_barrier()
        call expect(counters(3) == rounds*comem_threads(), 'writers')
        call comem_rdlock(3)
        call comem_barrier()
        call comem_tryrdlock(3, taken)
        call expect(taken, 'a reader enters again')
        call comem_trywrlock(3_int64, taken)
        call expect(.not. taken, 'nobody writes beside readers')
        call comem_rwunlock(3)
        call comem_barrier()
        call comem_rwunlock(3)
        call comem_barrier()
    end subroutine

    ! A chain through all threads by flags, and back by semaphores. The numbers stand under a lock too, since under
    ! scope consistency flags and semaphores alone do not carry them.
    recursive subroutine flags_and_semaphores()
        integer :: me, threads
        logical :: taken
        me = comem_thread()
        threads = comem_threads()
        if (me > 0) call comem_flag_wait(50, me)
        call step(5, me)
        call comem_flag_set(50, me + 1)
        call comem_flag_wait(50_int64, int(threads, int64))
        call comem_barrier()
        if (me < threads - 1) call comem_sem_wait(60 + me)
        call step(6, threads - 1 - me)
        if (me > 0) call comem_sem_post(60 + me - 1)
        call comem_barrier()
        call expect(counters(5) == threads .and. counters(6) == threads, 'the chains')
        call comem_sem_trywait(1000, taken)
        call expect(.not. taken, 'an empty semaphore')
        call comem_barrier()
        if (me == 0) then
            call comem_sem_post(1000_int64)
            call comem_sem_wait(1000)
            call comem_sem_post(1000)
            do while (.not. taken)
                call comem_sem_trywait(1000_int64, taken)
            end do
        end if
        call comem_barrier()
    end subroutine

    recursive subroutine step(which, expected)
        integer, intent(in) :: which, expected
        call comem_lock(9)
        call expect(counters(which) == expected, 'a step of a chain')
        counters(which) = counters(which) + 1
        call comem_unlock(9)
    end subroutine

    ! The last thread opens a gate for all others at once, then lets one after the other through.
    recursive subroutine conditions()
        integer :: others
        others = comem_threads() - 1
        call comem_lock(11)
        if (comem_thread() == others) then
            counters(7) = 1
            call comem_cond_broadcast(11)
        else
            do while (counters(7) == 0)
                call comem_cond_wait(11, 11)
            end do
            counters(8) = counters(8) + 1
            call comem_cond_signal(12_int64)
        end if
        do while (comem_thread() == others .and. counters(8) < others)
            call comem_cond_wait(12_int64, 11_int64)
        end do
        call comem_unlock(11)
        call comem_barrier()
        call expect(counters(8) == others, 'everybody passed the gate')
        call comem_rendezvous()
        call comem_barrier()
        if (comem_thread() == 0) call comem_cond_signal(12)
        if (comem_thread() == 0) call comem_cond_broadcast(12_int64)
    end subroutine

    recursive subroutine reductions()
        integer(int64) :: one, several(3)
        real(real64) :: number, numbers(2)
        integer :: me, threads
        me = comem_thread()
        threads = comem_threads()
        one = me
        call comem_reduce(comem_max, one)
        several = [me, 1, -me]
        call comem_reduce(comem_min, several)
        number = 0.5_real64
        call comem_reduce(comem_sum, number)
        numbers = [real(me, real64), -1.5_real64]
        call comem_reduce(comem_sum, numbers)
        call expect(one == threads - 1, 'the greatest')
        call expect(several(1) == 0 .and. several(2) == 1 .and. several(3) == 1 - threads, 'the least')
        call expect(abs(number - 0.5_real64*threads) < 1e-12_real64, 'a sum')
        call expect(abs(numbers(1) - 0.5_real64*threads*(threads - 1)) < 1e-12_real64, 'a sum of the first')
        call expect(abs(numbers(2) + 1.5_real64*threads) < 1e-12_real64, 'a sum of the second')
    end subroutine

    ! Ordinary stores and loads: each thread writes its columns, then reads all.
    recursive subroutine ordinary_stores_and_loads()
        integer :: low, high, j
        call comem_split(size(grid, 2), low, high)
        do j = low, high
            call fill(size(grid, 1), grid(:, j), real(j, real64))
        end do
        call comem_barrier()
        call expect(all([(all(abs(grid(:, j) - j) < 1e-12_real64), j = 1, size(grid, 2))]), 'all columns')
        call comem_barrier()
    end subroutine

    recursive subroutine fill(n, column, value)
        integer, intent(in) :: n
        real(real64), intent(out) :: column(n)
        real(real64), intent(in) :: value
        column = value
    end subroutine

    ! ---- the run -----------------------------------------------------------------------------------------------

    ! A barrier that only thread 0 of every node calls, the others being outside comem_parallel().
    subroutine nodes_meet()
        call comem_parallel(meet)
    end subroutine

    recursive subroutine meet()
        call comem_barrier()
    end subroutine

    ! Prints that a part is right, if it is so on every node.
    subroutine verdict(part)
        character(*), intent(in) :: part
        call nodes_meet()
        if (wrong(1) == 0 .and. comem_node() == 0) print '(2a)', 'right: ', part
        call nodes_meet()
    end subroutine

    subroutine run_part(work, part)
        procedure(any_work) :: work
        character(*), intent(in) :: part
        integer :: stat
        call comem_parallel(work, stat)
        call expect(stat == comem_ok, 'stat of parallel work')
        call verdict(part)
    end subroutine

    subroutine any_work()
    end subroutine
end module

program every
    use every_parts
    implicit none
    type(c_ptr) :: address
    integer :: stat
    character(:), allocatable :: version

    call comem_start(stat)
    if (stat /= comem_ok) then
        write (error_unit, '(a)') comem_last_error()
        error stop 3
    end if
    call comem_allocate(wrong, [1], label='wrong')
    call comem_allocate(counters, [16], label='counters')
    call comem_allocate(grid, [300, 64], label='grid')
    call comem_allocate(given_to_all, [4])
    call comem_allocate(narrow, [4])
    call comem_allocate(address, 256)
    call c_f_pointer(address, found)
    given = 2.5_real64

    version = comem_version()
    call expect(version == comem_module_version, 'the version of the library is that of the module')
    call expect(comem_argument_count() == 2, 'how many arguments there are')
    call expect(comem_argument(1) == 'one', 'the first argument')
    call expect(comem_argument(2) == 'two words', 'the second argument')
    call expect(comem_argument(3) == '', 'no third argument')
    call expect(len(comem_argument(0)) > 0, 'the name of the program')
    call expect(comem_node() >= 0 .and. comem_node() < comem_nodes(), 'the node')
    call expect(index(comem_error_string(comem_e_misuse), 'order') > 0, 'what a code means')
    call verdict('the start and the command line')

    call shared_arrays_of_every_type_and_rank()
    call arrays_up_to_rank_7()
    call memory_by_its_address()
    call a_barrier_of_nodes()
    call run_part(words_as_one_step, 'words changed as one step')
    call run_part(loops_dealt_out, 'loops dealt out')
    call run_part(memory_that_one_thread_allocates, 'memory that one thread allocates')
    call run_part(every_thread_has_a_part, 'every thread has a part')
    call comem_parallel(with_an_argument, c_loc(given))
    call verdict('parallel work with an argument')
    call run_part(locks_exclude, 'locks')
    call run_part(readers_and_writers, 'readers and writers')
    call run_part(flags_and_semaphores, 'flags and semaphores')
    call run_part(conditions, 'conditions')
    call run_part(reductions, 'reductions')
    call run_part(ordinary_stores_and_loads, 'ordinary stores and loads')
    stat = int(wrong(1))
    call comem_finish()
    if (stat /= 0) error stop 1
end program
