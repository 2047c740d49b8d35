//! Barriers on other threads' processors, so that threads that run often need none of their own (`membarrier`).
//!
//! A thread that publishes a hazard and then loads an entry needs a barrier between the two only if somebody revokes
//! the unit. Who revokes it makes the barrier for both, by a system call.

use std::io;

const QUERY: libc::c_int = 0;
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Runs one command; the kernel's answer, or its error.
fn membarrier(command: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: a system call of integers, which touches no memory of ours.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        answer if answer >= 0 => Ok(answer as libc::c_int),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has this process's threads answer barriers of this process and of others. `false` where the system has no such
/// barriers, or forbids them.
pub fn register() -> bool {
    let wanted = [GLOBAL_EXPEDITED, REGISTER_GLOBAL_EXPEDITED, PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED];
    let wanted = wanted.iter().fold(0, |all, command| all | command);
    membarrier(QUERY).is_ok_and(|known| known & wanted == wanted)
        && membarrier(REGISTER_GLOBAL_EXPEDITED).is_ok()
        && membarrier(REGISTER_PRIVATE_EXPEDITED).is_ok()
}

/// Every running thread of this process passes a full barrier before this returns; [`register`] was successful.
///
/// # Errors
/// What the system refused.
pub fn own_threads() -> io::Result<()> {
    membarrier(PRIVATE_EXPEDITED).map(|_| ())
}

/// Every running thread of every process that has called [`register`] passes a full barrier before this returns.
///
/// # Errors
/// What the system refused.
pub fn all_processes() -> io::Result<()> {
    membarrier(GLOBAL_EXPEDITED).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_work_where_they_can_be_registered() {
        if !register() {
            println!("SKIP: this system has no expedited membarrier");
            return;
        }
        own_threads().unwrap();
        all_processes().unwrap();
    }
}
