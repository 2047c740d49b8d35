//! Cores of a node's own.
//!
//! Where the threads of all nodes of a host fit the cores that the host allows, each node's application threads stay on
//! its share of them: neighbours in the order of the cores' numbers, the shares equal as far as that goes. A thread may
//! move within the share, and so may what it starts itself (a library's threads inherit the share). Where the threads
//! do not fit, the system does better by itself.
//!
//! Threads that come back instead may run anywhere, and so may what they start. But a system that wakes a thread likes
//! to put it where the one runs that woke it, and then keeps two nodes by turns on one core beside an idle one for many
//! milliseconds. So a thread that has waited and finds itself elsewhere moves to cores of its own.
//!
//! The service thread stays on its node's share in either case. Where it could run anywhere, the system woke it on the
//! core of whoever sent something, another node's thread; it answered there, and then looked for more for a while, and
//! the one that had asked could not see the answer before that was over.

use crate::capacity;
use crate::config::Config;
use crate::thread::split;
use comem_protocol::ids::Slot;
use comem_protocol::time::Time;
use std::cell::Cell;
use std::mem::{MaybeUninit, size_of};

/// What a launcher tells a node that it has put on cores.
pub const GIVEN: &str = "given";

/// Whether a node's threads get cores of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// They go where the system puts them.
    #[default]
    Off,
    /// They go where the system puts them, and come back to cores of their own when they have waited.
    Auto,
    /// They stay on the node's share.
    Cores,
    /// The launcher has put the whole process on cores that no other node has.
    Given,
}

impl std::str::FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Bind, String> {
        match text {
            "off" => Ok(Bind::Off),
            "auto" => Ok(Bind::Auto),
            "cores" => Ok(Bind::Cores),
            GIVEN => Ok(Bind::Given),
            _ => Err("expected auto, off or cores".to_string()),
        }
    }
}

impl Bind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Bind::Off => "off",
            Bind::Auto => "auto",
            Bind::Cores => "cores",
            Bind::Given => GIVEN,
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

/// The core that the calling thread runs on, where the system says it.
fn core() -> Option<usize> {
    // SAFETY: the call only tells.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The share of node `place` among `nodes` on a host; `None` where `threads` of each do not fit.
pub fn share_of(cores: &[usize], place: usize, nodes: usize, threads: usize) -> Option<&[usize]> {
    let fit = place < nodes && nodes.checked_mul(threads).is_some_and(|all| 0 < all && all <= cores.len());
    fit.then(|| &cores[split(cores.len(), place, nodes)])
}

/// Keeps the calling thread, and what it will start, on these cores.
///
/// # Errors
/// None of them is there, or may be used. Async-signal-safe.
pub fn stay_on(cores: &[usize]) -> std::io::Result<()> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    for core in cores {
        // SAFETY: a zeroed set is an empty one, and the number is below its size, as `allowed_cores` gave it.
        unsafe { libc::CPU_SET(*core, set.assume_init_mut()) };
    }
    // SAFETY: the call reads the set.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Least nanoseconds between two moves of a thread: where something else keeps it from its cores, it does not fight for
/// them.
const MOVES_NS: u64 = 500_000;

/// The cores that a thread comes back to.
#[derive(Debug)]
pub(crate) struct CpuSet {
    cores: Vec<usize>,
    allowed: Vec<usize>,
    moved: Cell<Option<Time>>,
}

impl CpuSet {
    /// Of a node's share of the allowed cores, the part of thread `index` of `threads`.
    pub(crate) fn of(share_of_node: &[usize], allowed: &[usize], index: usize, threads: usize) -> CpuSet {
        let cores = share_of_node[split(share_of_node.len(), index % threads, threads)].to_vec();
        CpuSet { cores, allowed: allowed.to_vec(), moved: Cell::new(None) }
    }

    /// Moves the calling thread there if it runs elsewhere; it may run everywhere afterwards, as before. A thread that
    /// somebody has placed otherwise stays where it is. Says whether it moved.
    pub(crate) fn come_back(&self, now: Time) -> bool {
        if self.is_there() || self.moved.get().is_some_and(|last| (now - last).0 < MOVES_NS) {
            return false;
        }
        self.moved.set(Some(now));
        allowed_cores() == self.allowed && stay_on(&self.cores).and_then(|()| stay_on(&self.allowed)).is_ok()
    }

    /// Whether the calling thread runs there.
    fn is_there(&self) -> bool {
        core().is_none_or(|core| self.cores.binary_search(&core).is_ok())
    }
}

/// Whether each computing thread on the host can have a core of its own. A node that was put on cores has these for
/// itself.
pub(crate) fn threads_have_cores(config: &Config) -> bool {
    let nodes = if config.bind == Bind::Given { 1 } else { config.host_nodes };
    nodes.saturating_mul(config.threads) <= capacity::cores()
}

/// The cores that this node's threads are to stay on.
fn own_cores(config: &Config) -> Option<Vec<usize>> {
    let place = config.host_place.filter(|_| config.bind != Bind::Off)?;
    let allowed = allowed_cores();
    let own = match config.bind {
        Bind::Given => Some(&allowed[..]),
        _ => share_of(&allowed, place, config.host_nodes, config.threads),
    };
    let own = own.filter(|_| threads_have_cores(config));
    if config.verbose {
        match own {
            Some(own) => {
                let how = if config.bind == Bind::Auto { "come back to" } else { "stay on" };
                crate::error::say(format_args!("comem: application threads {how} cores {}", in_words(own)))
            }
            None => crate::error::say(format_args!(
                "comem: no cores of their own for threads: {} nodes with {} each, {} cores",
                config.host_nodes,
                config.threads,
                allowed.len()
            )),
        }
    }
    own.map(<[usize]>::to_vec)
}

/// The cores that a node's threads stay on or come back to, where they have some of their own.
#[derive(Debug)]
pub(crate) struct OwnCores {
    cores: Option<Vec<usize>>,
    bind: Bind,
    /// Whether this is the only node on its host.
    is_alone: bool,
    threads: usize,
    /// The node's name, where it says which thread the host keeps from its cores.
    tells_as: Option<String>,
}

impl OwnCores {
    pub(crate) fn new(config: &Config, node: String) -> OwnCores {
        OwnCores {
            cores: own_cores(config),
            bind: config.bind,
            is_alone: config.host_nodes == 1,
            threads: config.threads,
            tells_as: config.verbose.then_some(node),
        }
    }

    /// The cores that the thread in this slot comes back to, if any. A node alone on its host has no other to keep
    /// apart from.
    pub(crate) fn of(&self, slot: Slot) -> Option<CpuSet> {
        let comes_back = self.bind == Bind::Auto && !self.is_alone;
        let cores = self.cores.as_ref().filter(|_| comes_back)?;
        Some(CpuSet::of(cores, &allowed_cores(), slot.index() - 1, self.threads))
    }

    /// Keeps the service thread on its node's own cores. Whether no other node's threads come back to where it runs.
    pub(crate) fn keep_service_at_home(&self) -> bool {
        self.is_alone || self.cores.as_ref().is_some_and(|cores| self.keep_on(cores))
    }

    /// Keeps the calling thread on the node's own cores, if it has some to stay on.
    pub(crate) fn stay(&self) {
        if let Some(cores) = self.cores.as_ref().filter(|_| self.bind == Bind::Cores) {
            self.keep_on(cores);
        }
    }

    /// Keeps the calling thread on these cores. A host that forbids it has a reason; the thread runs all the same.
    fn keep_on(&self, cores: &[usize]) -> bool {
        let stays = stay_on(cores);
        if let (Err(error), Some(node)) = (&stays, &self.tells_as) {
            crate::error::say(format_args!("comem: {node}: a thread cannot stay on its cores: {error}"));
        }
        stays.is_ok()
    }
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
    fn a_thread_comes_back_to_its_part_of_the_share() {
        let all = allowed_cores();
        let own = CpuSet::of(&all, &all, 0, all.len());
        let last = *all.last().expect("this thread runs somewhere");
        let away = move |hold: bool| {
            stay_on(&[last]).unwrap();
            if !hold {
                stay_on(&own.allowed).unwrap();
            }
            let long = Time(own.moved.get().map_or(0, |t| t.0) + MOVES_NS);
            // The system may have moved it meanwhile.
            let elsewhere = core() == Some(last) && own.cores != [last];
            (elsewhere, own.come_back(long), own.come_back(long), allowed_cores())
        };
        let seen = std::thread::spawn(move || [away(true), away(false), away(false), away(false)]).join().unwrap();
        assert_eq!((seen[0].1, &seen[0].3), (false, &vec![last]), "somebody has placed it");
        for (elsewhere, moved, again, allowed) in &seen[1..] {
            assert!(*moved || !elsewhere, "{seen:?}");
            assert!(!again, "once in a while is enough: {seen:?}");
            assert_eq!(*allowed, all, "it may run everywhere");
        }
    }

    #[test]
    fn threads_of_a_node_come_back_to_parts_of_its_share() {
        let part = |share: &[usize], index| CpuSet::of(share, &[0, 1, 2, 3], index, 2).cores;
        assert_eq!((part(&[2, 3], 0), part(&[2, 3], 1)), (vec![2], vec![3]));
        assert_eq!((part(&[1, 2, 3], 0), part(&[1, 2, 3], 2)), (vec![1, 2], vec![1, 2]));
    }

    #[test]
    fn runs_of_cores_are_written_short() {
        assert_eq!(in_words(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(in_words(&[]), "");
    }
}
