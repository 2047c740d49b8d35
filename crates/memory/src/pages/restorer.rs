//! The way back from a signal, under an address of Comem's own.
//!
//! The kernel puts the address of an action's *restorer* where a handler finds its return address: two instructions
//! that ask the kernel to restore what was interrupted. The C library installs its own with every action. With one that
//! nobody else installs, a handler sees from its return address that the kernel has called it by Comem's own action,
//! and not somebody else's handler that was installed with signals blocked and then left the signal to it by a jump.
//! Otherwise that takes a system call ([`resume`](super::resume)).

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use x86_64::{is_ours, take};

/// Whether this is the return address of a handler that the kernel has called by an action with Comem's restorer.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub fn is_ours(_return_address: usize) -> bool {
    false
}

/// Gives the action that stands for the signal Comem's restorer.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub fn take(_signal: i32, _handler: usize) {}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    /// An action as the kernel takes it (`asm/signal.h`).
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    struct Action {
        handler: usize,
        flags: libc::c_ulong,
        restorer: usize,
        mask: u64,
    }

    const SA_RESTORER: libc::c_ulong = 0x0400_0000;

    // Debuggers and unwinders know a restorer by these very bytes, and gdb looks for them where it finds no name, or
    // one with "sigaction" in it. For what stands before them unwinders look, too, so that is no other function's.
    std::arch::global_asm!(
        ".pushsection .text.comem_sigaction_restorer,\"ax\",@progbits",
        ".p2align 4",
        "nop",
        ".type comem_sigaction_restorer,@function",
        ".hidden comem_sigaction_restorer",
        ".globl comem_sigaction_restorer",
        "comem_sigaction_restorer:",
        ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00",
        ".byte 0x0f, 0x05",
        ".size comem_sigaction_restorer, 9",
        ".popsection",
    );

    unsafe extern "C" {
        fn comem_sigaction_restorer();
    }

    fn address() -> usize {
        comem_sigaction_restorer as *const () as usize
    }

    /// Whether this is the return address of a handler that the kernel has called by an action with Comem's restorer.
    #[inline]
    pub fn is_ours(return_address: usize) -> bool {
        return_address == address()
    }

    /// Gives the action that stands for the signal Comem's restorer, if it is this handler's and blocks no signals.
    pub fn take(signal: i32, handler: usize) {
        let mut there = Action::default();
        if exchange(signal, None, Some(&mut there))
            && there.handler == handler
            && there.mask == 0
            && there.flags & SA_RESTORER != 0
        {
            exchange(signal, Some(&Action { restorer: address(), ..there }), None);
        }
    }

    /// Sets an action, or asks for it; whether that went well.
    fn exchange(signal: i32, new: Option<&Action>, old: Option<&mut Action>) -> bool {
        let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
        let old = old.map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // SAFETY: reads one action or none and writes one or none, in the kernel's form; a restorer that is set is one.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>()) == 0 }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static RETURN_ADDRESS: AtomicUsize = AtomicUsize::new(0);

    #[unsafe(naked)]
    extern "C" fn on_signal(_signal: i32) {
        std::arch::naked_asm!("mov rdi, [rsp]", "jmp {note}", note = sym note)
    }

    extern "C" fn note(return_address: usize) {
        RETURN_ADDRESS.store(return_address, Ordering::Relaxed);
    }

    fn install(handler: usize) {
        install_blocking(handler, &[]);
    }

    fn install_blocking(handler: usize, blocked: &[i32]) {
        // SAFETY: all-zero bytes are an action with an empty mask, and the handler takes what a handler gets.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            blocked.iter().for_each(|signal| assert_eq!(libc::sigaddset(&raw mut action.sa_mask, *signal), 0));
            assert_eq!(libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()), 0);
        }
    }

    fn returns_to_ours() -> bool {
        // SAFETY: an integer call; a handler stands for the signal.
        unsafe { libc::raise(libc::SIGURG) };
        is_ours(RETURN_ADDRESS.load(Ordering::Relaxed))
    }

    #[test]
    fn a_handler_knows_by_its_return_address_whose_action_called_it() {
        let handler = on_signal as *const () as usize;
        install(handler);
        assert!(!returns_to_ours(), "the C library's");
        take(libc::SIGURG, handler + 1);
        assert!(!returns_to_ours(), "another handler's action stays as it is");
        take(libc::SIGURG, handler);
        assert!(returns_to_ours());
        install_blocking(handler, &[libc::SIGUSR2]);
        take(libc::SIGURG, handler);
        assert!(!returns_to_ours(), "one that blocks signals stays as it is");
        install(handler);
        assert!(!returns_to_ours(), "who installs an action anew installs the C library's");
    }
}
