//! Signal handlers of checked code.
//!
//! A handler may interrupt its thread between the check of a store and the store. Whatever the handler then waits for
//! may wait for that store, whose hazard is up. So the hazard is lowered while the handler runs; afterwards it is
//! raised again, and the store may go ahead as its check had found.

use comem_rt::inline::calls::without_hazard;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// More than the kernel has.
const SIGNALS: usize = 128;

/// The program's handlers, by signal; and whether each takes three arguments.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static TAKES_RECORD: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

extern "C" fn on_signal(signal: c_int, record: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(place) = usize::try_from(signal).ok().filter(|at| *at < SIGNALS) else { return };
    let handler = HANDLERS[place].load(Ordering::Acquire);
    if handler == 0 {
        return;
    }
    let takes_record = TAKES_RECORD[place].load(Ordering::Acquire) != 0;
    without_hazard(|| {
        if takes_record {
            // SAFETY: what the program gave to `sigaction` with SA_SIGINFO.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, record, context);
        } else {
            // SAFETY: what the program gave to `sigaction` without it, or to `signal`.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    });
}

fn is_ours(handler: usize) -> bool {
    handler == on_signal as *const () as usize
}

/// `sigaction`.
///
/// # Safety
/// As for `sigaction`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let place = usize::try_from(signal).ok().filter(|at| *at < SIGNALS);
    // SAFETY: by this function's contract.
    let (Some(place), wanted) = (place, unsafe { action.as_ref() }) else {
        // SAFETY: by this function's contract; the system refuses the signal.
        return unsafe { libc::sigaction(signal, action, old) };
    };
    let before = (HANDLERS[place].load(Ordering::Acquire), TAKES_RECORD[place].load(Ordering::Acquire));
    // SAFETY: a record of integers.
    let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
    let result = match wanted {
        // SAFETY: writes the record.
        None => unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut found) },
        Some(wanted) => {
            let mut ours = *wanted;
            if wanted.sa_sigaction != libc::SIG_DFL && wanted.sa_sigaction != libc::SIG_IGN {
                ours.sa_sigaction = on_signal as *const () as usize;
                ours.sa_flags |= libc::SA_SIGINFO;
                TAKES_RECORD[place].store((wanted.sa_flags & libc::SA_SIGINFO) as usize, Ordering::Release);
                HANDLERS[place].store(wanted.sa_sigaction, Ordering::Release);
            }
            // SAFETY: a handler that lives for ever, with the program's flags.
            unsafe { libc::sigaction(signal, &raw const ours, &raw mut found) }
        }
    };
    if result != 0 {
        HANDLERS[place].store(before.0, Ordering::Release);
        TAKES_RECORD[place].store(before.1, Ordering::Release);
        return result;
    }
    if is_ours(found.sa_sigaction) {
        found.sa_sigaction = before.0;
        if before.1 == 0 {
            found.sa_flags &= !libc::SA_SIGINFO;
        }
    }
    // SAFETY: by this function's contract.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = found;
    }
    result
}

/// `signal`, as the C library of Linux has it: system calls are begun again, and the handler stays.
///
/// # Safety
/// As for `signal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __comem_inline_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: a record of integers.
    let (mut action, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: writes the mask of the record.
    unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
    // SAFETY: both records live; the rest is this function's contract.
    match unsafe { __comem_inline_sigaction(signal, &raw const action, &raw mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}
