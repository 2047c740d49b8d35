//! Litmus programs: a few threads, a few accesses, and the outcomes that sequential consistency allows, found by
//! trying every interleaving.
//!
//! An outcome is the values that the program's reads gave, thread by thread, and then what each thread reads in the
//! end, after a barrier, where the program asks for it.

use crate::history::{Deed, Record, ThreadId};
use crate::program::{Op, Program, Shape};
use comem_protocol::faults::Rng;
use comem_protocol::ids::NodeId;
use std::collections::BTreeSet;

/// An access of a litmus program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read a variable.
    R(usize),
    /// Write a value to a variable.
    W(usize, u64),
}
use Access::{R, W};

/// A litmus program.
#[derive(Clone, Copy, Debug)]
pub struct Litmus {
    /// Its name in the literature.
    pub name: &'static str,
    /// Variables.
    pub variables: usize,
    /// What each thread does.
    pub threads: &'static [&'static [Access]],
    /// Whether every thread reads all variables in the end.
    pub finally: bool,
    /// Whether memory without any consistency shows outcomes that sequential consistency forbids. The
    /// exceptions need a write that takes effect before an earlier read of its own thread, or a value that comes back
    /// without being written again; simulated threads execute in order, so not even `broadcast` can do that.
    pub seen_without_consistency: bool,
}

/// The litmus programs.
pub const ALL: [Litmus; 8] = [
    Litmus {
        name: "SB",
        variables: 2,
        threads: &[&[W(0, 1), R(1)], &[W(1, 1), R(0)]],
        finally: false,
        seen_without_consistency: true,
    },
    Litmus {
        name: "MP",
        variables: 2,
        threads: &[&[W(0, 1), W(1, 1)], &[R(1), R(0)]],
        finally: false,
        seen_without_consistency: true,
    },
    Litmus {
        name: "LB",
        variables: 2,
        threads: &[&[R(0), W(1, 1)], &[R(1), W(0, 1)]],
        finally: false,
        seen_without_consistency: false,
    },
    Litmus {
        name: "IRIW",
        variables: 2,
        threads: &[&[W(0, 1)], &[W(1, 1)], &[R(0), R(1)], &[R(1), R(0)]],
        finally: false,
        seen_without_consistency: true,
    },
    Litmus {
        name: "WRC",
        variables: 2,
        threads: &[&[W(0, 1)], &[R(0), W(1, 1)], &[R(1), R(0)]],
        finally: false,
        seen_without_consistency: true,
    },
    Litmus {
        name: "2+2W",
        variables: 2,
        threads: &[&[W(0, 1), W(1, 2)], &[W(1, 1), W(0, 2)]],
        finally: true,
        seen_without_consistency: true,
    },
    Litmus {
        name: "CoRR",
        variables: 1,
        threads: &[&[W(0, 1)], &[R(0), R(0)]],
        finally: false,
        seen_without_consistency: false,
    },
    Litmus {
        name: "CoRR2",
        variables: 1,
        threads: &[&[W(0, 1)], &[W(0, 2)], &[R(0), R(0), R(0), R(0)], &[R(0), R(0), R(0), R(0)]],
        finally: false,
        seen_without_consistency: true,
    },
];

/// From the beginning of one round to that of the next, in virtual time.
const ROUND_NS: u64 = 5_000_000;

/// The values read, in the order of the threads.
pub type Reads = Vec<u64>;

impl Litmus {
    /// The outcomes of all interleavings.
    pub fn allowed(&self) -> BTreeSet<Reads> {
        let mut outcomes = BTreeSet::new();
        let reads = vec![Reads::new(); self.threads.len()];
        self.interleave(&mut vec![0; self.threads.len()], &mut vec![0; self.variables], &reads, &mut outcomes);
        outcomes
    }

    fn interleave(&self, at: &mut [usize], memory: &mut [u64], reads: &[Reads], outcomes: &mut BTreeSet<Reads>) {
        let mut ended = true;
        for (t, ops) in self.threads.iter().enumerate() {
            let Some(op) = ops.get(at[t]) else { continue };
            ended = false;
            at[t] += 1;
            match *op {
                R(variable) => {
                    let mut reads = reads.to_vec();
                    reads[t].push(memory[variable]);
                    self.interleave(at, memory, &reads, outcomes);
                }
                W(variable, value) => {
                    let before = std::mem::replace(&mut memory[variable], value);
                    self.interleave(at, memory, reads, outcomes);
                    memory[variable] = before;
                }
            }
            at[t] -= 1;
        }
        if ended {
            let mut outcome = reads.to_vec();
            if self.finally {
                outcome.iter_mut().for_each(|reads| reads.extend_from_slice(memory));
            }
            outcomes.insert(outcome.concat());
        }
    }

    /// A cluster's program that runs the litmus program `rounds` times, each time on fresh variables, which some threads
    /// have read before. One thread on each node; `unit_elements` variables share a unit.
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
                for access in self.threads[thread] {
                    if rng.below(2) == 0 {
                        ops.push(Op::Think(rng.below(pause)));
                    }
                    ops.push(match *access {
                        R(variable) => Op::Read(first + variable),
                        W(variable, value) => Op::Write(first + variable, value),
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

#[derive(Clone, Copy, Debug)]
struct Warm {
    node: usize,
    reads: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(name: &str, outcome: &[u64]) -> bool {
        ALL.iter().find(|l| l.name == name).unwrap().allowed().contains(outcome)
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
