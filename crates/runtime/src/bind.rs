//! Cores of a node's own.
//!
//! Where the threads of all nodes of a host fit the cores that the host allows, each node's application threads stay on its share of
//! them: neighbours in the order of the cores' numbers, the shares equal as far as that goes. A thread may move within the share, and so
//! may what it starts itself (a library's threads inherit the share). The service thread may run on any allowed core. Where the
//! threads do not fit, the system does better by itself.

use crate::thread::share;
use std::mem::{MaybeUninit, size_of};

/// Whether a node's threads get cores of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// They go where the system puts them.
    #[default]
    Off,
    /// They stay on the node's share.
    Cores,
}

impl std::str::FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Bind, String> {
        match text {
            "off" => Ok(Bind::Off),
            "cores" => Ok(Bind::Cores),
            _ => Err("expected off or cores".to_string()),
        }
    }
}

impl Bind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Bind::Off => "off",
            Bind::Cores => "cores",
        }
    }
}

/// The cores that the calling thread may run on, in order; none where the system does not say.
pub fn allowed_cores() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the call writes at most the given number of bytes to `set`.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    // SAFETY: plain numbers, zero where the call wrote nothing.
    let set = unsafe { set.assume_init() };
    // SAFETY: the numbers are below the set's size, and the call only reads it.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// The share of node `place` among `nodes` on a host; `None` where `threads` of each do not fit.
pub fn share_of(cores: &[usize], place: usize, nodes: usize, threads: usize) -> Option<&[usize]> {
    let fit = place < nodes && nodes.checked_mul(threads).is_some_and(|all| 0 < all && all <= cores.len());
    fit.then(|| &cores[share(cores.len(), place, nodes)])
}

/// Keeps the calling thread, and what it will start, on these cores.
pub(crate) fn stay_on(cores: &[usize]) -> std::io::Result<()> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    for core in cores {
        // SAFETY: a zeroed set is an empty one, and the number is below its size, as `allowed_cores` gave it.
        unsafe { libc::CPU_SET(*core, set.assume_init_mut()) };
    }
    // SAFETY: the call reads the set.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Cores as people write them: `0-3,6`.
pub fn in_words(cores: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &core in cores {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => runs.push((core, core)),
        }
    }
    let words = runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_neighbours_and_leave_no_core_out() {
        let cores = [0, 1, 2, 3, 6, 7, 8];
        let shares: Vec<&[usize]> = (0..3).map(|place| share_of(&cores, place, 3, 2).unwrap()).collect();
        assert_eq!(shares, [&[0, 1, 2][..], &[3, 6], &[7, 8]]);
        assert_eq!(share_of(&cores, 0, 1, 7), Some(&cores[..]));
    }

    #[test]
    fn threads_that_do_not_fit_get_no_share() {
        assert_eq!(share_of(&[0, 1], 0, 2, 2), None);
        assert_eq!(share_of(&[0, 1], 2, 2, 1), None);
        assert_eq!(share_of(&[], 0, 1, 1), None);
        assert_eq!(share_of(&[0], 0, usize::MAX, 2), None);
    }

    #[test]
    fn a_thread_that_stays_on_a_core_has_that_one_alone() {
        let all = allowed_cores();
        let last = *all.last().expect("this thread runs somewhere");
        let seen = std::thread::spawn(move || stay_on(&[last]).map(|()| allowed_cores()));
        assert_eq!(seen.join().unwrap().unwrap(), [last]);
        assert_eq!(allowed_cores(), all, "other threads are not concerned");
    }

    #[test]
    fn runs_of_cores_are_written_short() {
        assert_eq!(in_words(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(in_words(&[]), "");
    }
}
