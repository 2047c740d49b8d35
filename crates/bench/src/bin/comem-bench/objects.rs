//! Accesses to shared objects under `direct`, against the same accesses under `msi`.
//!
//! One job of two nodes has an array under each engine, both at home on node 1, with units of 64 bytes. Node 0 measures
//! both in turn, block by block. Before each block of misses node 1 writes every unit, so that it alone holds them.

use crate::echo::{Peer, Request};
use crate::jobs::Bench;
use crate::node::{Task, What};
use crate::report;
use comem::{Comem, Engine, Home, NodeId, ObjectArray, ObjectOptions, Thread};
use comem_bench::job::Job;
use comem_bench::sample::{Comparison, Finding};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// Elements in a unit of 64 bytes.
const UNIT: usize = 8;
/// A prime: units are accessed in no order that a run of fetches would follow.
const STEP: usize = 7919;

/// The arrays, `direct` first.
pub struct Objects {
    arrays: [ObjectArray<u64>; 2],
}

impl Objects {
    /// Creates both arrays, with a unit for each of a block's accesses. Collective.
    pub fn new(comem: &Comem, rounds: usize) -> comem::Result<Objects> {
        let array = |engine| {
            let homes = Home::On(NodeId(1));
            let options =
                ObjectOptions { unit_elements: UNIT, engine: Some(engine), home: homes, ..ObjectOptions::default() };
            comem.object_array_with(rounds * UNIT, &options)
        };
        Ok(Objects { arrays: [array(Engine::Direct)?, array(Engine::Msi)?] })
    }

    /// Takes all units away from the other node.
    pub fn take(&self, thread: &Thread) {
        for array in &self.arrays {
            (0..array.len()).step_by(UNIT).for_each(|at| array.write(thread, at, at as u64));
        }
    }

    /// Node 0's part: the mean of each block's accesses, in microseconds.
    pub fn measure(&self, thread: &Thread, peer: &Peer, task: &Task) -> io::Result<Value> {
        let mut comparison = Comparison { per_block: task.rounds, ..Comparison::default() };
        // The first block warms up and does not count.
        for block in 0..=task.blocks {
            let mut means = [0.0; 2];
            for (mean, array) in means.iter_mut().zip(&self.arrays) {
                match task.what {
                    What::ObjectReadMisses | What::ObjectWriteMisses => peer.ask(Request::Take)?,
                    // Whatever is not here comes now.
                    _ => drop(accesses(array, thread, task)),
                }
                *mean = accesses(array, thread, task);
            }
            if block > 0 {
                comparison.push(means[0], means[1]);
            }
        }
        peer.ask(Request::Stop)?;
        Ok(json!({"ours": comparison.ours, "base": comparison.base, "per_block": comparison.per_block}))
    }
}

/// Accesses an element of each unit; gives how many microseconds one takes.
fn accesses(array: &ObjectArray<u64>, thread: &Thread, task: &Task) -> f64 {
    let units = task.rounds;
    let start = Instant::now();
    for round in 0..units {
        let at = round * STEP % units * UNIT;
        match task.what {
            What::ObjectWriteHits | What::ObjectWriteMisses => array.write(thread, at, round as u64),
            _ => drop(black_box(array.read(thread, at))),
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / units as f64
}

impl Bench {
    pub fn objects(&self) -> Result<bool, String> {
        let cases = [
            ("object-read-hits", "read of an element that is here"),
            ("object-write-hits", "write of an element that is here alone"),
            ("object-read-misses", "read of an element that its home has written"),
            ("object-write-misses", "write of an element that its home has written"),
        ];
        let (mut findings, mut commands) = (Vec::new(), Vec::new());
        for backbone in ["shm", "udp"] {
            for (task, what) in cases {
                let flags = vec!["--backbone".to_string(), backbone.to_string()];
                let engine = Some("direct".to_string());
                let job = Job { nodes: 2, engine, flags, program: self.own_words(&["node", task]) };
                commands.push(self.whole_command(&job));
                let comparison = self.comparison(&self.programs.run(&job)?.output)?;
                let what = format!("{what}, direct against msi, {backbone}");
                findings.push(Finding { what, unit: "us", comparison, limit: None });
            }
        }
        Ok(report::print("Shared objects under direct", &commands, &findings))
    }
}
