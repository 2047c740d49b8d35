! SPDX-License-Identifier: MIT OR Apache-2.0
!
! errors: how a Fortran program meets errors. `errors returned` asks for them in `stat` and checks each; every other
! argument makes one error that ends the node, for tests/compat/fortran/run.sh to look at the status and the sentence.

program errors
    use comem
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use, intrinsic :: iso_c_binding, only: c_int
    implicit none
    interface
        subroutine c_exit(status) bind(C, name='exit')
            import :: c_int
            integer(c_int), value :: status
        end subroutine
    end interface
    integer :: stat

    if (comem_argument_count() /= 0) error stop 'arguments before the start'
    call comem_return_errors(.true.)
    call expect(comem_node() == comem_e_not_started, 'a number before the start is the code')
    call comem_barrier(stat)
    call expect(stat == comem_e_not_started, 'a barrier before the start')
    call comem_return_errors(.false.)
    call comem_start()
    select case (comem_argument(1))
    case ('returned')
        call every_error_is_returned()
    case ('unlock')
        print '(a)', 'printed before'
        call comem_unlock(4)
    case ('unlock-with-stat')
        call comem_unlock(4, stat)
    case ('unlock-without-stat')
        print '(a)', 'printed before'
        call comem_return_errors(.true.)
        call comem_unlock(4)
    case ('second-start')
        call comem_start()
    case ('stop')
        print '(a)', 'printed before'
        stop
    case ('stop-on-one')
        if (comem_node() == 1) stop
        call comem_barrier()
    case ('stop-3')
        stop 3
    case ('error-stop')
        error stop
    case ('exit')
        call c_exit(0_c_int)
    case ('abort')
        print '(a)', 'printed before'
        call comem_abort(77, 'the grid has a hole  ')
    case default
        error stop 'which error?'
    end select
    call comem_finish()
contains

    subroutine expect(right, what)
        logical, intent(in) :: right
        character(*), intent(in) :: what
        if (right) return
        print '(2a)', 'WRONG: ', what
        call comem_abort(1, what)
    end subroutine

    subroutine every_error_is_returned()
        real(real64), pointer, contiguous :: array(:, :)
        type(c_ptr) :: address, again
        character(:), allocatable :: sentence
        call comem_return_errors(.true.)
        call comem_unlock(4, stat)
        call expect(stat == comem_e_misuse, 'a lock released that is not held')
        sentence = comem_last_error()
        call expect(index(sentence, 'comem: node ') == 1, 'the sentence names the node')
        call comem_start(stat)
        call expect(stat < 0, 'a second start')
        call comem_allocate(array, [4, 4], engine='paper', stat=stat)
        call expect(stat == comem_e_argument .and. .not. associated(array), 'an engine that there is not')
        call expect(index(comem_last_error(), 'paper') > 0, 'the sentence names the engine')
        call comem_allocate(array, [4, 4], home=9, stat=stat)
        call expect(stat == comem_e_argument .and. .not. associated(array), 'a home that there is not')
        call comem_allocate(array, [4_int64, 4_int64]*10_int64**10, stat=stat)
        call expect(stat < 0 .and. .not. associated(array), 'more elements than an integer counts')
        call comem_allocate(address, 4096, collective=.false., stat=stat)
        call expect(stat == comem_ok, 'memory')
        again = address
        call comem_deallocate(address, stat=stat)
        call expect(stat == comem_ok, 'memory given back')
        call comem_deallocate(again, stat=stat)
        call expect(stat == comem_e_misuse, 'memory given back twice')
        call comem_flag_wait(1, 0, stat)
        call expect(stat == comem_ok, 'a call that succeeds after errors')
        call expect(len(comem_error_string(stat)) > 0, 'words for no error')
        print '(a)', 'right: every error is returned'
    end subroutine
end program
