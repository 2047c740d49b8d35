//! The handlers that share a signal: Comem's in front, those that it found there behind it.
//!
//! A signal that is not Comem's is handed to the handler that was found when Comem's was put in front. When somebody
//! comes later and takes the front, Comem's handler goes before him again, but through another *entry*. What the
//! newcomer hands on, in whatever way (a call, a signal raised again, an action restored so that the access faults
//! again), arrives at the older entry, since that is what he had found; and behind that stands what stood there before
//! him. So nothing has to be guessed, and nobody is asked twice.

use super::restorer;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The signals by which detectors tell of faults.
pub const SIGNALS: [i32; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// A signal handler of the form that takes the signal's record.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// How often the front can be taken back while all who took it still stand there. The last entry is used again after
/// that.
pub const ENTRIES: usize = 8;

/// What stood in front of a signal when each entry was put there.
struct Found {
    /// Null, or leaked: handlers may be looking at it.
    actions: [AtomicPtr<libc::sigaction>; ENTRIES],
    /// Entries in use; the last of them is the one in front.
    used: AtomicUsize,
}

static FOUND: [Found; SIGNALS.len()] =
    [const { Found { actions: [const { AtomicPtr::new(std::ptr::null_mut()) }; ENTRIES], used: AtomicUsize::new(0) } };
        SIGNALS.len()];

/// Held while the front is taken; never by a signal handler.
static CHANGE: Mutex<()> = Mutex::new(());

impl Found {
    fn of(signal: i32) -> &'static Found {
        &FOUND[usize::from(signal != SIGNALS[0])]
    }

    fn action(&self, entry: usize) -> Option<&'static libc::sigaction> {
        // SAFETY: null or a leaked action that nobody changes.
        unsafe { self.actions[entry].load(Ordering::Acquire).as_ref() }
    }
}

/// Sets an action, or asks for it; returns what was there.
fn action(signal: i32, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: reads one action or none and writes one.
    match unsafe { libc::sigaction(signal, new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

fn action_of(handler: usize, flags: i32) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid `sigaction`, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// Puts one of `entries` in front of the signal, unless one is there. True if it was not.
pub fn come_first(signal: i32, entries: &[Handler; ENTRIES]) -> io::Result<bool> {
    let found = Found::of(signal);
    let entry_of =
        |action: &libc::sigaction| entries.iter().position(|entry| *entry as *const () as usize == action.sa_sigaction);
    if let Some(entry) = entry_of(&action(signal, None)?) {
        // Whoever came after this entry has withdrawn.
        if found.used.load(Ordering::Relaxed) != entry + 1 {
            found.used.store(entry + 1, Ordering::Relaxed);
        }
        return Ok(false);
    }
    let _change = CHANGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let there = action(signal, None)?;
    if entry_of(&there).is_some() {
        return Ok(false);
    }
    let entry = found.used.load(Ordering::Relaxed).min(ENTRIES - 1);
    // Stored first: a signal may come as soon as the entry stands.
    found.actions[entry].store(Box::leak(Box::new(there)), Ordering::Release);
    found.used.store(entry + 1, Ordering::Relaxed);
    // Not deferred, so that a fault inside the handler comes to the handler instead of ending the process in silence.
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    let handler = entries[entry] as *const () as usize;
    action(signal, Some(&action_of(handler, flags)))?;
    restorer::take(signal, handler);
    Ok(true)
}

/// Unblocks the signals in the calling thread: the kernel ends a process whose thread faults while they are blocked.
pub fn unblock() -> io::Result<()> {
    let set = set_of(&SIGNALS);
    // SAFETY: reads one set.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: all-zero bytes are a valid `sigset_t`; sigemptyset makes it one of no signals.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes to one set of ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: writes to one set of ours.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

/// Gives a signal that arrived at an entry to the handler behind it.
///
/// # Safety
/// `info` and `context` are what the kernel handed to a handler of this signal.
pub unsafe fn hand_on(entry: usize, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: valid by the function's contract.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let sent_by_somebody = code <= 0;
    let found = Found::of(signal);
    match found.action(entry) {
        Some(next) if next.sa_sigaction != libc::SIG_DFL && next.sa_sigaction != libc::SIG_IGN => {
            if next.sa_flags & libc::SA_RESETHAND != 0 {
                // It is called once, and the default stands behind it.
                found.actions[entry].store(std::ptr::null_mut(), Ordering::Release);
            }
            // SAFETY: the action stood for this signal, so its handler has the form that its flags say.
            unsafe { call(next, signal, info, context) };
            // Rust's handler restores the default and counts on the access to fault again; nothing faults again here.
            let left_to_default = || action(signal, None).is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL);
            if sent_by_somebody && left_to_default() {
                fall_back(signal, true);
            }
        }
        Some(next) if sent_by_somebody && next.sa_sigaction == libc::SIG_IGN => {}
        _ => {
            const NOTHING_IS_MAPPED: i32 = 1;
            if signal == libc::SIGSEGV && code == NOTHING_IS_MAPPED {
                super::fault::say_what_was_meant(address, context);
            }
            fall_back(signal, sent_by_somebody);
        }
    }
}

/// Calls another's handler with the signals blocked that it wants blocked.
///
/// # Safety
/// `action` holds a handler of the form that its flags say; the rest is the kernel's.
unsafe fn call(action: &libc::sigaction, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let mut old = set_of(&[]);
    let own = if action.sa_flags & libc::SA_NODEFER == 0 { set_of(&[signal]) } else { set_of(&[]) };
    // SAFETY: reads and writes sets that outlive the calls.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const action.sa_mask, &raw mut old);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const own, std::ptr::null_mut());
    }
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag a handler takes three arguments.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it takes one.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(action.sa_sigaction) };
        handler(signal);
    }
    // SAFETY: reads one set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
}

/// Restores the default: an access that faulted will fault again and end the process as it would have without
/// Comem; a signal that somebody sent is sent again.
fn fall_back(signal: i32, sent_by_somebody: bool) {
    let _ = action(signal, Some(&action_of(libc::SIG_DFL, 0)));
    if sent_by_somebody {
        // SAFETY: an integer call; the signal is not blocked, or comes when it is unblocked.
        unsafe { libc::raise(signal) };
    }
}
