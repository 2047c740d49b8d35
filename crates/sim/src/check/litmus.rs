//! Litmus programs: a few threads, a few accesses, and the outcomes that a memory model allows.
//!
//! Sequential consistency allows what some interleaving gives: all are tried ([`Litmus::allowed`]). What the weaker
//! models of pages allow, [`weak`] says.
//!
//! A program is a line of text: threads stand between bars, what a thread does between semicolons.
//!
//! | text | meaning |
//! |---|---|
//! | `x = 1` | store 1 to the variable x |
//! | `x` | load x |
//! | `lock a`, `unlock a` | acquire and release the lock a |
//! | `set f`, `wait f` | raise the flag f; wait until it is up |
//! | `barrier` | pass the barrier of all threads |
//! | `finally`, in place of a last thread | behind a barrier every thread loads all variables |
//!
//! An outcome is the values that the program's loads gave, thread by thread, and then what each thread loads in the
//! end, where the program asks for it.

pub mod weak;

use crate::history::{Deed, Record, ThreadId};
use crate::program::{Op, Program, Shape};
use comem_protocol::faults::Rng;
use comem_protocol::ids::{FlagId, LockId, NodeId};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A step of a litmus program's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Load a variable.
    R(usize),
    /// Store a value to a variable.
    W(usize, u64),
    /// Acquire a lock.
    Lock(usize),
    /// Release it.
    Unlock(usize),
    /// Raise a flag.
    Set(usize),
    /// Wait until it is up.
    Wait(usize),
    /// Pass the barrier of all threads.
    Barrier,
}
use Access::{R, W};

/// A litmus program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Litmus {
    /// Its name in the literature.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The variables' names.
    pub names: Vec<String>,
    /// The locks' names, by their numbers.
    pub locks: Vec<String>,
    /// The flags' names, by their numbers.
    pub flags: Vec<String>,
    /// Variables.
    pub variables: usize,
    /// What each thread does.
    pub threads: Vec<Vec<Access>>,
    /// Whether every thread reads all variables in the end.
    pub finally: bool,
    /// Whether memory without any consistency shows outcomes that sequential consistency forbids. The
    /// exceptions need a write that takes effect before an earlier read of its own thread, or a value that comes back
    /// without being written again; simulated threads execute in order, so not even `broadcast` can do that.
    pub seen_without_consistency: bool,
}

/// The litmus programs without synchronisation.
pub static ALL: LazyLock<Vec<Litmus>> = LazyLock::new(|| {
    let known = |name, text, seen_without_consistency| Litmus { seen_without_consistency, ..Litmus::known(name, text) };
    vec![
        known("SB", "x = 1; y | y = 1; x", true),
        known("MP", "x = 1; y = 1 | y; x", true),
        known("LB", "x; y = 1 | y; x = 1", false),
        known("IRIW", "x = 1 | y = 1 | x; y | y; x", true),
        known("WRC", "x = 1 | x; y = 1 | y; x", true),
        known("2+2W", "x = 1; y = 2 | y = 1; x = 2 | finally", true),
        known("CoRR", "x = 1 | x; x", false),
        known("CoRR2", "x = 1 | x = 2 | x; x; x; x | x; x; x; x", true),
    ]
});

/// Litmus programs with synchronisation: where it orders all accesses that conflict, sequential consistency is what
/// every engine that keeps copies coherent must show.
pub static SYNCHRONISED: LazyLock<Vec<Litmus>> = LazyLock::new(|| {
    let threads = [
        ("SB+lock", "lock a; x = 1; y; unlock a | lock a; y = 1; x; unlock a"),
        ("SB+barrier", "x = 1; barrier; y | y = 1; barrier; x"),
        ("MP+lock", "lock a; x = 1; y = 1; unlock a | lock a; y; x; unlock a"),
        ("MP+publish", "x = 1; lock a; y = 1; unlock a | lock a; y; unlock a; x"),
        ("MP+flag", "x = 1; set f | wait f; x"),
        ("LB+lock", "lock a; x; y = 1; unlock a | lock a; y; x = 1; unlock a"),
        (
            "IRIW+locks",
            "lock a; x = 1; unlock a | lock b; y = 1; unlock b | lock a; x; unlock a; lock b; y; unlock b | \
             lock b; y; unlock b; lock a; x; unlock a",
        ),
        (
            "WRC+locks",
            "lock a; x = 1; unlock a | lock a; x; unlock a; lock b; y = 1; unlock b | lock b; y; unlock b; x",
        ),
    ];
    threads.into_iter().map(|(name, text)| Litmus::known(name, text)).collect()
});

/// Most threads of a program, and most steps of all its threads: more takes too long to enumerate.
const THREADS_MAX: usize = 6;
const STEPS_MAX: usize = 20;

impl Litmus {
    /// The program of this name, whatever its letters' case.
    pub fn named(name: &str) -> Option<Litmus> {
        ALL.iter().chain(SYNCHRONISED.iter()).find(|litmus| litmus.name.eq_ignore_ascii_case(name)).cloned()
    }

    fn known(name: &str, text: &str) -> Litmus {
        match Litmus::parse(name, text) {
            Ok(litmus) => litmus,
            Err(why) => unreachable!("{name}: {why}"),
        }
    }

    /// Reads a program.
    ///
    /// # Errors
    /// A sentence about what is not understood, or that its threads wait for each other for ever.
    pub fn parse(name: &str, text: &str) -> Result<Litmus, String> {
        let mut parts: Vec<&str> = text.split('|').map(str::trim).collect();
        let finally = parts.last() == Some(&"finally");
        parts.truncate(parts.len() - usize::from(finally));
        let (mut names, mut locks, mut flags) = (Vec::new(), Vec::new(), Vec::new());
        let mut threads = Vec::new();
        for part in parts {
            let steps = part.split(';').map(str::trim).filter(|step| !step.is_empty());
            let steps: Result<Vec<Access>, String> =
                steps.map(|step| parse_step(step, &mut names, &mut locks, &mut flags)).collect();
            threads.push(steps?);
        }
        let litmus = Litmus {
            name: name.to_string(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            variables: names.len(),
            names,
            locks,
            flags,
            threads,
            finally,
            seen_without_consistency: false,
        };
        litmus.check()?;
        Ok(litmus)
    }

    fn check(&self) -> Result<(), String> {
        if !(2..=THREADS_MAX).contains(&self.threads.len()) {
            return Err(format!(
                "a litmus program has 2 to {THREADS_MAX} threads, and this one has {}",
                self.threads.len()
            ));
        }
        let steps: usize = self.threads.iter().map(Vec::len).sum();
        if steps > STEPS_MAX {
            return Err(format!("a litmus program has at most {STEPS_MAX} steps in all, and this one has {steps}"));
        }
        for (number, thread) in self.threads.iter().enumerate() {
            let mut held = BTreeSet::new();
            for step in thread {
                let fine = match *step {
                    Access::Lock(lock) => held.insert(lock),
                    Access::Unlock(lock) => held.remove(&lock),
                    _ => true,
                };
                if !fine {
                    return Err(format!(
                        "thread {number} takes a lock that it holds, or releases one that it does not"
                    ));
                }
            }
            if !held.is_empty() {
                return Err(format!("thread {number} ends with a lock in its hands"));
            }
        }
        match self.reads() {
            0 => {
                Err("it loads nothing, so there is nothing to see; load a variable, or end it with | finally"
                    .to_string())
            }
            _ if self.allowed().is_empty() => Err("its threads wait for each other for ever".to_string()),
            _ => Ok(()),
        }
    }

    /// How many values an outcome has.
    pub fn reads(&self) -> usize {
        let loads = self.threads.iter().flatten().filter(|step| matches!(step, R(_))).count();
        loads + if self.finally { self.threads.len() * self.variables } else { 0 }
    }

    /// What each value of an outcome is: the thread that loads it, and the variable.
    pub fn loads(&self) -> Vec<(usize, usize)> {
        let of_thread = |(thread, steps): (usize, &Vec<Access>)| {
            let loads = steps.iter().filter_map(|step| if let R(variable) = step { Some(*variable) } else { None });
            let last = 0..if self.finally { self.variables } else { 0 };
            loads.chain(last).map(|variable| (thread, variable)).collect::<Vec<_>>()
        };
        self.threads.iter().enumerate().flat_map(of_thread).collect()
    }

    /// All values that a variable may have: zero, and what is stored to it.
    pub fn values(&self, variable: usize) -> BTreeSet<u64> {
        let stored = self.threads.iter().flatten().filter_map(|step| match *step {
            W(to, value) if to == variable => Some(value),
            _ => None,
        });
        std::iter::once(0).chain(stored).collect()
    }
}

fn parse_step(
    step: &str,
    names: &mut Vec<String>,
    locks: &mut Vec<String>,
    flags: &mut Vec<String>,
) -> Result<Access, String> {
    fn number(list: &mut Vec<String>, name: &str) -> Result<usize, String> {
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(format!("{name:?} is no name"));
        }
        if let Some(at) = list.iter().position(|known| known == name) {
            return Ok(at);
        }
        list.push(name.to_string());
        Ok(list.len() - 1)
    }
    if let Some((name, value)) = step.split_once('=') {
        let value = value.trim().parse().ok().filter(|value| *value > 0);
        let value = value.ok_or_else(|| format!("{step:?}: a variable begins with 0; store a whole number above 0"))?;
        return Ok(W(number(names, name.trim())?, value));
    }
    let words: Vec<&str> = step.split_whitespace().collect();
    match words[..] {
        ["barrier"] => Ok(Access::Barrier),
        ["lock", name] => Ok(Access::Lock(number(locks, name)?)),
        ["unlock", name] => Ok(Access::Unlock(number(locks, name)?)),
        ["set", name] => Ok(Access::Set(number(flags, name)?)),
        ["wait", name] => Ok(Access::Wait(number(flags, name)?)),
        [name] => Ok(R(number(names, name)?)),
        _ => Err(format!("{step:?} is none of: x = 1, x, lock a, unlock a, set f, wait f, barrier")),
    }
}

/// From the beginning of one round to that of the next, in virtual time.
const ROUND_NS: u64 = 5_000_000;

/// The values read, in the order of the threads.
pub type Reads = Vec<u64>;

/// A moment of an interleaving.
#[derive(Clone, Debug)]
struct Moment {
    /// The next step of each thread.
    at: Vec<usize>,
    memory: Vec<u64>,
    reads: Vec<Reads>,
    held: BTreeSet<usize>,
    raised: BTreeSet<usize>,
}

impl Litmus {
    /// The outcomes of all interleavings.
    pub fn allowed(&self) -> BTreeSet<Reads> {
        let (threads, mut outcomes) = (self.threads.len(), BTreeSet::new());
        let start = Moment {
            at: vec![0; threads],
            memory: vec![0; self.variables],
            reads: vec![Reads::new(); threads],
            held: BTreeSet::new(),
            raised: BTreeSet::new(),
        };
        // Moments from which all was tried.
        let mut seen = BTreeSet::new();
        self.interleave(start, &mut seen, &mut outcomes);
        outcomes
    }

    fn interleave(
        &self,
        moment: Moment,
        seen: &mut BTreeSet<(Vec<usize>, Vec<u64>, Vec<Reads>)>,
        outcomes: &mut BTreeSet<Reads>,
    ) {
        if !seen.insert((moment.at.clone(), moment.memory.clone(), moment.reads.clone())) {
            return;
        }
        let next = |t: usize| self.threads[t].get(moment.at[t]).copied();
        if (0..self.threads.len()).all(|t| next(t).is_none()) {
            let mut outcome = moment.reads.clone();
            if self.finally {
                outcome.iter_mut().for_each(|reads| reads.extend_from_slice(&moment.memory));
            }
            outcomes.insert(outcome.concat());
            return;
        }
        if (0..self.threads.len()).all(|t| next(t) == Some(Access::Barrier)) {
            let at = moment.at.iter().map(|at| at + 1).collect();
            return self.interleave(Moment { at, ..moment }, seen, outcomes);
        }
        for t in 0..self.threads.len() {
            let mut after = moment.clone();
            after.at[t] += 1;
            let may = match next(t) {
                None | Some(Access::Barrier) => false,
                Some(R(variable)) => {
                    after.reads[t].push(moment.memory[variable]);
                    true
                }
                Some(W(variable, value)) => {
                    after.memory[variable] = value;
                    true
                }
                Some(Access::Lock(lock)) => after.held.insert(lock),
                Some(Access::Unlock(lock)) => after.held.remove(&lock),
                Some(Access::Set(flag)) => {
                    after.raised.insert(flag);
                    true
                }
                Some(Access::Wait(flag)) => moment.raised.contains(&flag),
            };
            if may {
                self.interleave(after, seen, outcomes);
            }
        }
    }

    /// A cluster's program that runs the litmus program `rounds` times, each time on fresh variables, which some
    /// threads have read before. One thread on each node; `unit_elements` variables share a unit.
    pub fn program(&self, rounds: usize, unit_elements: usize, rng: &mut Rng) -> Run {
        let nodes = self.threads.len();
        let shape = Shape { nodes, elements: rounds * self.variables, width: 8, unit_elements };
        let mut run = Run { program: Program { shape, threads: vec![vec![Vec::new()]; nodes] }, warm: Vec::new() };
        let mut places: Vec<usize> = (0..nodes).collect();
        for round in 0..rounds {
            let first = round * self.variables;
            // Another thread gets another node each time, so that homes are met from all sides.
            places.rotate_left(rng.below(nodes as u64) as usize);
            let mut warm = Vec::new();
            // Some windows are narrow and some are wide.
            let pause = [20_000, 100_000, 300_000][rng.below(3) as usize];
            for (thread, node) in places.iter().enumerate() {
                let ops = &mut run.program.threads[*node][0];
                let mut count = 0;
                for variable in 0..self.variables {
                    if rng.below(2) == 0 {
                        ops.push(Op::Read(first + variable));
                        count += 1;
                    }
                }
                warm.push(Warm { node: *node, reads: count });
                ops.push(Op::At((round as u64 + 1) * ROUND_NS + rng.below(pause)));
                for access in &self.threads[thread] {
                    if rng.below(2) == 0 {
                        ops.push(Op::Think(rng.below(pause)));
                    }
                    ops.push(match *access {
                        R(variable) => Op::Read(first + variable),
                        W(variable, value) => Op::Write(first + variable, value),
                        Access::Lock(lock) => Op::Lock(LockId(lock as u64)),
                        Access::Unlock(lock) => Op::Unlock(LockId(lock as u64)),
                        Access::Set(flag) => Op::Set(FlagId((round * STEPS_MAX + flag) as u64), 1),
                        Access::Wait(flag) => Op::Await(FlagId((round * STEPS_MAX + flag) as u64), 1),
                        Access::Barrier => Op::Barrier(0),
                    });
                }
                if self.finally {
                    ops.push(Op::Barrier(0));
                    ops.push(Op::Think(2_000_000)); // even unguarded news has arrived by then, or never will
                    ops.extend((0..self.variables).map(|variable| Op::Read(first + variable)));
                }
            }
            run.warm.push(warm);
        }
        run
    }

    /// The outcome of every round of a run.
    pub fn outcomes(&self, run: &Run, records: &[Record]) -> Vec<Reads> {
        let reads_of = |round: usize, warm: &Warm| -> Reads {
            let thread = ThreadId(NodeId(warm.node as u16), 0);
            let elements = round * self.variables..(round + 1) * self.variables;
            let reads = records.iter().filter(|r| r.thread == thread).filter_map(|r| match r.deed {
                Deed::Read { element, value } if elements.contains(&element) => Some(value),
                _ => None,
            });
            reads.skip(warm.reads).collect()
        };
        let outcome = |(round, warm): (usize, &Vec<Warm>)| warm.iter().flat_map(|w| reads_of(round, w)).collect();
        run.warm.iter().enumerate().map(outcome).collect()
    }
}

/// A litmus program made ready for a cluster.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the cluster runs.
    pub program: Program,
    /// For each round and thread, where it runs and how often it read before the round began.
    warm: Vec<Vec<Warm>>,
}

impl Run {
    /// Where each thread runs in the last round.
    pub fn nodes_of_last_round(&self) -> Vec<usize> {
        self.warm.last().into_iter().flatten().map(|warm| warm.node).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Warm {
    node: usize,
    reads: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(name: &str, outcome: &[u64]) -> bool {
        Litmus::named(name).unwrap().allowed().contains(outcome)
    }

    #[test]
    fn synchronisation_forbids_what_is_forbidden() {
        assert!(!allows("SB+lock", &[0, 0]) && allows("SB+lock", &[0, 1]));
        assert_eq!(Litmus::named("sb+barrier").unwrap().allowed(), [vec![1, 1]].into());
        assert!(!allows("MP+publish", &[1, 0]) && allows("MP+publish", &[0, 0]));
        assert_eq!(Litmus::named("MP+flag").unwrap().allowed(), [vec![1]].into());
        assert!(!allows("WRC+locks", &[1, 1, 0]) && allows("WRC+locks", &[1, 0, 0]));
        assert!(!allows("IRIW+locks", &[1, 0, 1, 0]));
    }

    #[test]
    fn programs_are_read_from_text() {
        let litmus = Litmus::parse("mine", " a=1 ;b |  b; a|finally").unwrap();
        assert_eq!(litmus.threads, [vec![W(0, 1), R(1)], vec![R(1), R(0)]]);
        assert_eq!((litmus.names.concat().as_str(), litmus.finally, litmus.reads()), ("ab", true, 7));
        assert_eq!(litmus.loads()[..3], [(0, 1), (0, 0), (0, 1)]);
    }

    #[test]
    fn what_is_no_program_is_refused_with_a_reason() {
        for (text, why) in [
            ("x = 1; y", "2 to 6 threads"),
            ("x = 0; y | x", "above 0"),
            ("x := 1 | x", "is no name"),
            ("lock a; x | x", "with a lock in its hands"),
            ("unlock a; x | x", "releases one that it does not"),
            ("x = 1 | y = 1", "loads nothing"),
            ("wait f; x | x = 1", "wait for each other"),
            ("barrier; x | x = 1", "wait for each other"),
            ("fence a b; x | x", "is none of"),
        ] {
            let said = Litmus::parse("", text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn the_forbidden_outcomes_are_the_literatures() {
        assert!(!allows("SB", &[0, 0]) && allows("SB", &[0, 1]));
        assert!(!allows("MP", &[1, 0]) && allows("MP", &[0, 1]));
        assert!(!allows("LB", &[1, 1]) && allows("LB", &[0, 0]));
        assert!(!allows("IRIW", &[1, 0, 1, 0]) && allows("IRIW", &[1, 0, 1, 1]));
        assert!(!allows("WRC", &[1, 1, 0]) && allows("WRC", &[1, 0, 0]));
        assert!(!allows("2+2W", &[1, 1, 1, 1]) && allows("2+2W", &[2, 2, 2, 2]));
        assert!(!allows("CoRR", &[1, 0]) && allows("CoRR", &[0, 1]));
        assert!(!allows("CoRR2", &[1, 1, 2, 2, 0, 2, 2, 1]) && allows("CoRR2", &[0, 1, 1, 2, 1, 2, 2, 2]));
    }
}
