//! How a process ends, process groups, and strays that left theirs.

use super::{check, signals};
use crate::failure::exit;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// By SIGKILL, while the system killed processes because memory had run out.
    OutOfMemory,
}

impl Ended {
    /// The exit code a shell would report.
    pub fn code(self) -> i32 {
        match self {
            Ended::Status(status) => status,
            Ended::Signal(signal) => exit::SIGNAL + signal,
            Ended::OutOfMemory => exit::SIGNAL + libc::SIGKILL,
        }
    }
    /// Whether this is success.
    pub fn is_good(self) -> bool {
        self == Ended::Status(0)
    }
    /// What a user can do who wonders why this node ended so.
    pub fn advice(self, node: u16, nodes: usize) -> Option<String> {
        match self {
            Ended::Signal(libc::SIGKILL) => {
                Some("the kernel's log (dmesg) says whether memory ran out; if not, somebody sent it".to_string())
            }
            Ended::Signal(libc::SIGSEGV) if nodes > 1 => Some(format!(
                "see where, with comem run --gdb {node}; if this node has said nothing of it before: a pointer to \
                 what another node has for itself (malloc, stack, variables) leads nowhere"
            )),
            Ended::Signal(libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGABRT) => {
                Some(format!("see where, with comem run --gdb {node}"))
            }
            // The loader's status, and a shell's.
            Ended::Status(127) => Some(
                "something was not found, and the line before says what; if it is libcomem.so, link with comem-cc, or \
                 with -Wl,-rpath and its directory"
                    .to_string(),
            ),
            _ => None,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Status(status) => write!(f, "ended with status {status}"),
            Ended::Signal(signal) => write!(f, "was killed by {}", signals::name(*signal)),
            Ended::OutOfMemory => write!(
                f,
                "was killed by {}, probably because memory ran out (lower --cache, share less, use more hosts, or \
                 allow the job more memory)",
                signals::name(libc::SIGKILL)
            ),
        }
    }
}

/// A descriptor that becomes readable when the child `pid` ends.
pub fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and touches no memory.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) as libc::c_int })?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How the child behind `pidfd` ended; `None` while it runs. The child stays a zombie, so that its number, and that
/// of its process group, cannot be given to a stranger before [`reap`].
pub fn peek_end(pidfd: &OwnedFd) -> Option<Ended> {
    // SAFETY: an all-zero record is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: the record is ours and outlives the call; the descriptor is open.
    let result = unsafe { libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t, &mut info, options) };
    // SAFETY: `waitid` filled the record in, or left the zeroes in which the fields are valid numbers too.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    match (result, pid) {
        (0, 0) => None,
        (0, _) if info.si_code == libc::CLD_EXITED => Some(Ended::Status(status)),
        (0, _) => Some(Ended::Signal(status)),
        // Not our child any more: nothing can be known but that it is gone.
        _ => Some(Ended::Status(exit::INTERNAL)),
    }
}

/// Waits for a child and forgets it.
pub fn reap(pid: u32) {
    loop {
        // SAFETY: the status is not asked for, so no memory is touched.
        let result = unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), 0) };
        if result >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Sends `signal` to a process.
pub fn kill(pid: u32, signal: i32) {
    // SAFETY: the call takes two numbers and touches no memory; a process that is gone is no error to us.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Whether there is a process of this number.
pub fn is_there(pid: u32) -> bool {
    // SAFETY: the call takes two numbers, touches no memory and sends nothing.
    let found = unsafe { libc::kill(pid as libc::pid_t, 0) } == 0;
    found || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Sends `signal` to every process of the group that `leader` leads.
pub fn kill_group(leader: u32, signal: i32) {
    // SAFETY: as for `kill`.
    unsafe { libc::kill(-(leader as libc::pid_t), signal) };
}

/// Sends `signal` to those processes of the group that `leader` leads which catch it: whoever does not would be ended
/// by what only asks.
pub fn ask_group(leader: u32, signal: i32) {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| group_of(*pid) == Some(leader) && catches(*pid, signal)).for_each(|pid| kill(pid, signal));
}

/// The group of a process that is there.
fn group_of(pid: u32) -> Option<u32> {
    // SAFETY: the call takes a number and touches no memory.
    u32::try_from(unsafe { libc::getpgid(pid as libc::pid_t) }).ok()
}

/// Whether a process has a handler for `signal`.
fn catches(pid: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    caught >> (signal - 1) & 1 == 1
}

/// Asks that orphans among our descendants become our children, so that none escapes by leaving its group.
pub fn adopt_orphans() {
    // SAFETY: the option takes one number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Ends the children of this process whose programs began with an environment that `is_ours`, and the orphans that
/// become its children by that. Others are not ours to end: who reads our output may be our child, and what a remote
/// shell leaves in the background becomes one.
pub fn kill_strays(is_ours: impl Fn(&[u8]) -> bool) {
    for _round in 0..100 {
        let strays: Vec<u32> = children().into_iter().filter(|pid| is_ours(&environment(*pid))).collect();
        if strays.is_empty() {
            return;
        }
        for pid in strays {
            kill(pid, libc::SIGKILL);
            reap(pid);
        }
    }
}

/// The environment with which a process's program began, each variable with a zero byte behind it; empty for one that
/// has ended.
fn environment(pid: u32) -> Vec<u8> {
    let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    environment_by(read, || has_ended(pid), || std::thread::sleep(Duration::from_millis(1)))
}

/// As [`environment`]. A process that is just exchanging its program has neither environment nor arguments for a
/// moment, which is long where other processes have the cores; one that keeps having arguments alone began without an
/// environment.
fn environment_by(read: impl Fn(&str) -> Vec<u8>, has_ended: impl Fn() -> bool, wait: impl Fn()) -> Vec<u8> {
    const LOOKS: u32 = 5_000;
    const ENOUGH: u32 = 20;
    let mut with_arguments = 0;
    for _look in 0..LOOKS {
        let bytes = read("environ");
        if !bytes.is_empty() || with_arguments == ENOUGH || has_ended() {
            return bytes;
        }
        with_arguments = if read("cmdline").is_empty() { 0 } else { with_arguments + 1 };
        wait();
    }
    Vec::new()
}

/// Whether a process is a zombie, or gone.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// The children of this process, from all its threads.
fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

/// In a child between fork and exec: have `signal` when `parent` dies; fails when it is dead already.
/// Async-signal-safe.
pub fn die_with(parent: u32, signal: i32) -> io::Result<()> {
    // SAFETY: the option takes one number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) })?;
    // SAFETY: the call reads nothing and cannot fail.
    let still = unsafe { libc::getppid() } as u32 == parent;
    if still { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// In a helper of ours between fork and exec: no signal is blocked, and SIGTERM comes when `parent` dies.
/// Async-signal-safe.
pub fn begin_helper(parent: u32) -> io::Result<()> {
    signals::unblock_all();
    signals::give_file_limit_back();
    die_with(parent, libc::SIGTERM)
}

/// In a child between fork and exec: keep `fd` open in the new program. Async-signal-safe.
pub fn let_inherit(fd: i32) -> io::Result<()> {
    // SAFETY: setting a descriptor's flags touches no memory.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

/// In a child before its program begins: these become its standard input, output and error; without one it has its
/// parent's. Async-signal-safe.
pub fn have_standard(streams: [Option<RawFd>; 3]) -> io::Result<()> {
    for (fd, place) in streams.into_iter().zip(0..).filter_map(|(fd, place)| Some((fd?, place))) {
        match fd == place {
            true => let_inherit(fd)?,
            // SAFETY: the call takes two numbers and touches no memory; the child's own streams are its own to replace.
            false => check(unsafe { libc::dup2(fd, place) }).map(drop)?,
        }
    }
    Ok(())
}

/// In a child before its program begins: this is its working directory. Async-signal-safe.
pub fn go_to(directory: &CStr) -> io::Result<()> {
    // SAFETY: the path is a string with an end that outlives the call.
    check(unsafe { libc::chdir(directory.as_ptr()) }).map(drop)
}

/// In a child before its program begins: it leads a process group of its own. Async-signal-safe.
pub fn lead_a_group() -> io::Result<()> {
    // SAFETY: the call takes two numbers and touches no memory.
    check(unsafe { libc::setpgid(0, 0) }).map(drop)
}

/// The niceness that processes get to whose own this adds so much; `None` where that changes nothing.
///
/// # Errors
/// The system does not let this process give them so little of it.
pub fn niceness(more: i32) -> io::Result<Option<i32>> {
    // SAFETY: the call takes numbers and touches no memory.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let wanted = (own + more).clamp(-20, 19);
    if wanted < own {
        // It is tried here, where a refusal can be told; the way back is open to all.
        be_nice(wanted).and_then(|()| be_nice(own))?;
    }
    Ok((wanted != own).then_some(wanted))
}

/// Gives the calling thread a niceness. Async-signal-safe.
pub fn be_nice(niceness: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers and touches no memory.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) }).map(drop)
}

/// The limit of open descriptors: what a program gets, and what it may ask for.
pub type FdLimit = libc::rlimit;

/// Raises the limit of open descriptors as far as allowed; returns the one before, for programs we start.
pub fn raise_fd_limit() -> FdLimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record is ours and outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    set_fd_limit(&libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
    limit
}

/// Sets the limit of open descriptors. Async-signal-safe.
pub fn set_fd_limit(limit: &FdLimit) {
    // SAFETY: the record outlives the call; a refusal leaves the limit as it is, which is harmless.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
}

/// Whether this process may read its terminal: it stands in the terminal's foreground group.
pub fn owns_terminal(terminal: i32) -> bool {
    // SAFETY: both calls take or give numbers and touch no memory.
    unsafe { libc::tcgetpgrp(terminal) == libc::getpgrp() }
}

/// Whether `fd` is a terminal that another process group has in the foreground: it cannot be read for now.
pub fn is_kept_from(fd: &impl AsFd) -> bool {
    // SAFETY: both calls take or give numbers and touch no memory; what is no terminal of ours has no foreground.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(fd.as_fd().as_raw_fd()), libc::getpgrp()) };
    foreground > 0 && foreground != own
}

/// Makes this process's group the foreground of its terminal, whoever was. Async-signal-safe.
pub fn take_terminal() {
    signals::with_blocked(libc::SIGTTOU, || {
        // SAFETY: both calls take or give numbers and touch no memory; without a terminal nothing happens.
        unsafe { libc::tcsetpgrp(0, libc::getpgrp()) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// What is read of a process that exchanges its program for so many looks, and has this environment then.
    fn found(exchanging: u32, environment: &[u8]) -> (Vec<u8>, u32) {
        let looks = Cell::new(0);
        let read = |what: &str| match what {
            _ if looks.get() < exchanging => Vec::new(),
            "environ" => environment.to_vec(),
            _ => b"sh\0".to_vec(),
        };
        let bytes = environment_by(read, || false, || looks.set(looks.get() + 1));
        (bytes, looks.get())
    }

    #[test]
    fn a_process_that_exchanges_its_program_is_waited_for_however_slow_it_is() {
        assert_eq!(found(0, b"A=1\0"), (b"A=1\0".to_vec(), 0));
        assert_eq!(found(700, b"A=1\0"), (b"A=1\0".to_vec(), 700));
    }

    #[test]
    fn a_process_without_an_environment_is_soon_known_for_one() {
        assert_eq!(found(3, b""), (Vec::new(), 23));
    }
}
