//! Back to the instruction that faulted, without the kernel's help.
//!
//! A signal handler returns through `rt_sigreturn`: one more way into the kernel, which reads back the record that it
//! wrote, sets the signal mask and the alternate stack to what they are already, and loads the registers. All of that
//! record lies in this thread's own memory. So where mask and alternate stack need not change, the registers are loaded
//! here: a fault on shared memory is in the path of every page, and the kernel's way took 0.6 us of 9.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use x86_64::resume;

/// Goes on where the signal came, as the end of its handler would. Returns where that must be left to the kernel.
///
/// # Safety
/// `context` is what the kernel handed to a handler.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub unsafe fn resume(_context: *const libc::c_void, _same_mask: bool) {}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::mem::offset_of;

    /// The context's processor state has the form that `XSAVE` gives it (`asm/ucontext.h`).
    const UC_FP_XSTATE: libc::c_ulong = 1;
    /// The context has the stack segment, and means it.
    const UC_SS: libc::c_ulong = 2 | 4;
    const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
    const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
    /// Where in the processor state the kernel says what it has written (`struct _fpx_sw_bytes`): the magic number, its
    /// length without the second magic number behind it, and which features' states are there.
    const SW_BYTES: usize = 464;
    const SS_AUTODISARM: i32 = 1 << 31;
    /// The segments of 64-bit programs.
    const USER_CS: u16 = 0x33;
    const USER_SS: u16 = 0x2b;
    /// Bytes of the kernel's set of signals.
    const MASK_BYTES: usize = 8;

    const GREGS: usize = offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, gregs);
    const FPREGS: usize = offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, fpregs);
    const MASK: usize = offset_of!(libc::ucontext_t, uc_sigmask);
    const _: () = assert!(GREGS == 40 && FPREGS == 224 && MASK == 296 && libc::REG_RIP == 16 && libc::REG_EFL == 17);

    /// Goes on where the signal came, as the end of its handler would. Returns where that must be left to the kernel.
    /// `same_mask`: it is known that the thread's mask is the one that it had when the signal came.
    ///
    /// # Safety
    /// `context` is what the kernel handed to a handler that it called itself and that has nothing left to do.
    pub unsafe fn resume(context: *const libc::c_void, same_mask: bool) {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel's record, by this function's contract.
        let record = unsafe { &*context };
        // SAFETY: as above.
        if unsafe { may_resume(record) } && (same_mask || mask_is(record)) {
            // SAFETY: as above, and the record is such as this way can load.
            unsafe { load(context) }
        }
    }

    /// Whether loading registers is all that is to be done.
    ///
    /// # Safety
    /// `context` is what the kernel handed to a handler.
    unsafe fn may_resume(context: &libc::ucontext_t) -> bool {
        let registers = &context.uc_mcontext;
        let segments = registers.gregs[libc::REG_CSGSFS as usize] as u64;
        let (cs, ss) = (segments as u16, (segments >> 48) as u16);
        let flags = UC_FP_XSTATE | UC_SS;
        let plain = context.uc_flags & flags == flags
            && (cs, ss) == (USER_CS, USER_SS)
            && context.uc_stack.ss_flags & SS_AUTODISARM == 0
            && !registers.fpregs.is_null();
        // SAFETY: such a record points at a processor state.
        plain && unsafe { is_whole(registers.fpregs.cast()) } && !has_shadow_stack()
    }

    /// Whether the processor state is there in full.
    ///
    /// # Safety
    /// `state` is the processor state of a signal's record.
    unsafe fn is_whole(state: *const u8) -> bool {
        // SAFETY: at least 512 bytes are there, and where the first number stands also the bytes that it announces.
        unsafe {
            state.add(SW_BYTES).cast::<u32>().read() == FP_XSTATE_MAGIC1 && {
                let len = state.add(SW_BYTES + 4).cast::<u32>().read() as usize;
                len > SW_BYTES && state.add(len - 4).cast::<u32>().read_unaligned() == FP_XSTATE_MAGIC2
            }
        }
    }

    /// Whether the processor keeps return addresses of its own, which the end of a handler must take back.
    fn has_shadow_stack() -> bool {
        let mut pointer = 0_u64;
        // SAFETY: without a shadow stack, and on older processors, the instruction does nothing.
        unsafe { std::arch::asm!("rdsspq {}", inout(reg) pointer, options(nomem, nostack, preserves_flags)) };
        pointer != 0
    }

    /// Whether the thread's mask is the one that it had when the signal came: another handler that was called first,
    /// and left to this one what it does not know, may have been installed with signals blocked.
    fn mask_is(context: &libc::ucontext_t) -> bool {
        let mut now = 0_u64;
        // SAFETY: writes as many bytes as it is told; the C library's function would write more than a record has.
        let asked = unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, std::ptr::null::<u64>(), &raw mut now, MASK_BYTES)
        };
        // SAFETY: a record's mask has so many bytes.
        asked == 0 && now == unsafe { (&raw const context.uc_sigmask).cast::<u64>().read() }
    }

    /// Loads all registers, the instruction pointer last.
    ///
    /// # Safety
    /// `context` is a whole record of a 64-bit program.
    unsafe fn load(context: *const libc::ucontext_t) -> ! {
        // SAFETY: reads the record, and pushes five words onto the handler's stack, on which nothing is needed any
        // more. All registers get their values before the fault; `iretq` takes stack, flags and instruction in one
        // step, so that no signal finds a mixture.
        unsafe {
            std::arch::asm!(
                "mov rcx, [rdi + {fpregs}]",
                "mov eax, [rcx + {sw} + 8]",
                "mov edx, [rcx + {sw} + 12]",
                "xrstor64 [rcx]",
                "add rdi, {gregs}",
                "push {ss}",
                "push qword ptr [rdi + 8*15]",
                "push qword ptr [rdi + 8*17]",
                "push {cs}",
                "push qword ptr [rdi + 8*16]",
                "mov r8, [rdi]",
                "mov r9, [rdi + 8*1]",
                "mov r10, [rdi + 8*2]",
                "mov r11, [rdi + 8*3]",
                "mov r12, [rdi + 8*4]",
                "mov r13, [rdi + 8*5]",
                "mov r14, [rdi + 8*6]",
                "mov r15, [rdi + 8*7]",
                "mov rsi, [rdi + 8*9]",
                "mov rbp, [rdi + 8*10]",
                "mov rbx, [rdi + 8*11]",
                "mov rdx, [rdi + 8*12]",
                "mov rax, [rdi + 8*13]",
                "mov rcx, [rdi + 8*14]",
                "mov rdi, [rdi + 8*8]",
                "iretq",
                fpregs = const FPREGS,
                sw = const SW_BYTES,
                gregs = const GREGS,
                ss = const USER_SS as i32,
                cs = const USER_CS as i32,
                in("rdi") context,
                options(noreturn),
            )
        }
    }
}
