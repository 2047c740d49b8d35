//! Signals as something to wait for: they are blocked, and read from a descriptor.

use super::{ReadOutcome, check, read_some};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A signal that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caught {
    /// Its number.
    pub number: i32,
    /// Whether it came from a key of the terminal, and not from a process.
    pub typed: bool,
}

/// A descriptor from which blocked signals are read.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks `wanted` in this thread (and those it starts later) and reads them from here on. Programs that are
    /// started inherit what is blocked unless they [`unblock_all`] before they begin. What our caller has this process
    /// ignore, as `nohup` does, stays ignored.
    pub fn block(wanted: &[i32]) -> io::Result<Signals> {
        let heeded: Vec<i32> = wanted.iter().copied().filter(|signal| !is_ignored(*signal)).collect();
        let set = set_of(&heeded);
        // SAFETY: the set is initialised, and the old one is not asked for.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
        // SAFETY: the kernel has just made this descriptor for us alone.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The signals that have come.
    pub fn take(&self) -> Vec<Caught> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut taken = Vec::new();
        let mut info = [0; SIZE];
        while read_some(&self.fd, &mut info) == ReadOutcome::Bytes(SIZE) {
            taken.push(Caught::parse(&info));
        }
        taken
    }
}

impl Caught {
    fn parse(info: &[u8]) -> Caught {
        let field = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        let number = field(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo));
        let from_kernel = field(std::mem::offset_of!(libc::signalfd_siginfo, ssi_code)) == libc::SI_KERNEL;
        Caught { number, typed: from_kernel && matches!(number, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP) }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set_of(wanted: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid value to start from.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and initialised.
    unsafe { libc::sigemptyset(&mut set) };
    for signal in wanted {
        // SAFETY: the set is ours and initialised; a number that is no signal is refused without effect.
        unsafe { libc::sigaddset(&mut set, *signal) };
    }
    set
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero record is a valid value to be overwritten.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given; the record for the present one is ours and outlives the call.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Does something while a signal is held back. Async-signal-safe.
pub fn with_blocked(signal: i32, act: impl FnOnce()) {
    let set = set_of(&[signal]);
    let mut before = set_of(&[]);
    // SAFETY: both sets are ours and initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
    act();
    // SAFETY: the set is ours, filled in by the call above; the new one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
}

/// Does something while all signals are held back.
pub fn with_all_blocked(act: impl FnOnce()) {
    let (mut all, mut before) = (set_of(&[]), set_of(&[]));
    // SAFETY: the sets are ours and initialised.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    act();
    // SAFETY: the set is ours, filled in by the call above; the new one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
}

/// Lets all signals come again. Async-signal-safe, for use between fork and exec.
pub fn unblock_all() {
    let set = set_of(&[]);
    // SAFETY: the set is initialised, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) };
}

/// Lets the system drop a signal, as a background process does with SIGTTIN to get an error instead of a stop.
pub fn ignore(signal: i32) {
    // SAFETY: ignoring a signal installs no handler code.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Gives a signal its default effect. Async-signal-safe, for use between fork and exec.
pub fn restore_default(signal: i32) {
    // SAFETY: the default action installs no handler code.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Whether our caller had this process ignore SIGXFSZ.
static FILE_LIMIT_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Lets a write beyond the limit of files (`ulimit -f`) fail with EFBIG, where it would end this process without a
/// word. Programs
/// that we start [`give_file_limit_back`].
pub fn survive_file_limit() {
    FILE_LIMIT_WAS_IGNORED.store(is_ignored(libc::SIGXFSZ), Ordering::Relaxed);
    ignore(libc::SIGXFSZ);
}

/// What a program that we start does beyond the limit of files is what it would do without us. Async-signal-safe.
pub fn give_file_limit_back() {
    if !FILE_LIMIT_WAS_IGNORED.load(Ordering::Relaxed) {
        restore_default(libc::SIGXFSZ);
    }
}

/// Stops this process until it is continued.
pub fn stop_self() {
    // SAFETY: raising a signal in this process touches no memory.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// A signal's name, for messages.
pub fn name(signal: i32) -> String {
    const NAMES: [(i32, &str); 17] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
    ];
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}
