//! What `bench/dszoom.sh` has measured: its files runs.csv, checks.csv and latency.csv.

use crate::sample::median;
use std::path::Path;

/// Where a program ran.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// `threads`, `pages`, `checked`, `direct` or `lines`; `bench/dszoom.sh` says what they are.
    pub system: String,
    /// `shm`, `udp`, `ucx`; `none` for threads.
    pub backbone: String,
    /// The unit of coherence in bytes; 0 for threads.
    pub unit: usize,
    /// Nodes.
    pub nodes: usize,
    /// Threads on each node.
    pub threads: usize,
}

impl Place {
    /// All threads.
    pub fn workers(&self) -> usize {
        self.nodes * self.threads
    }

    /// The system, and the backbone where it has one of several nodes.
    pub fn name(&self) -> String {
        match self.system.as_str() {
            "threads" | "checked" => self.system.clone(),
            system => format!("{system}, {}", self.backbone),
        }
    }
}

/// One run of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The program's name.
    pub program: String,
    /// In which round: runs of one round are compared with each other.
    pub round: usize,
    /// Where it ran.
    pub place: Place,
    /// Its parallel phase, in seconds.
    pub seconds: f64,
    /// Whether its results were right.
    pub right: bool,
    /// What all its threads did from start to end, in microseconds, in the order of [`PARTS`].
    pub parts_us: [f64; 6],
}

/// What a thread's time goes into. `service` is that of other threads.
pub const PARTS: [&str; 6] = ["compute", "fetch", "lock", "barrier", "protocol", "service"];

/// The loads and stores in a program's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The program's name.
    pub program: String,
    /// Loads: with a check, and all.
    pub loads: (u64, u64),
    /// Stores: with a check, and all.
    pub stores: (u64, u64),
}

/// What one kind of miss costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// As of [`Place`].
    pub system: String,
    /// As of [`Place`].
    pub backbone: String,
    /// In bytes.
    pub unit: usize,
    /// As `bench/dszoom/latency.c` calls it.
    pub case: String,
    /// The median, in nanoseconds.
    pub ns: f64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// All runs.
    pub runs: Vec<Run>,
    /// What was counted in the programs' code.
    pub checks: Vec<Checks>,
    /// What misses cost.
    pub latencies: Vec<Latency>,
}

/// What runs of one program in one place give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Time {
    /// It was not run there.
    Missing,
    /// One of its runs was wrong.
    Wrong,
    /// The median, in seconds.
    Seconds(f64),
}

impl Time {
    /// The seconds, if there are any.
    pub fn seconds(self) -> Option<f64> {
        if let Time::Seconds(seconds) = self { Some(seconds) } else { None }
    }
}

impl Measured {
    /// Reads the files.
    ///
    /// # Errors
    /// A sentence about a file that is missing, or a line that is none.
    pub fn load(folder: &Path) -> Result<Measured, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))
        };
        Measured::parse(&read("runs.csv")?, &read("checks.csv")?, &read("latency.csv")?)
    }

    /// The texts of the files.
    ///
    /// # Errors
    /// A sentence about a line that is none.
    pub fn parse(runs: &str, checks: &str, latencies: &str) -> Result<Measured, String> {
        Ok(Measured {
            runs: lines(runs, run)?,
            checks: lines(checks, checks_of)?,
            latencies: lines(latencies, latency)?,
        })
    }

    fn of<'a>(&'a self, program: &'a str, place: &'a Place) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.program == program && run.place == *place)
    }

    /// A program's time.
    pub fn time(&self, program: &str, place: &Place) -> Time {
        let runs: Vec<&Run> = self.of(program, place).collect();
        match runs.as_slice() {
            [] => Time::Missing,
            runs if runs.iter().any(|run| !run.right) => Time::Wrong,
            runs => Time::Seconds(median(&runs.iter().map(|run| run.seconds).collect::<Vec<_>>())),
        }
    }

    /// The time in `place` over that in `base`: the median of the rounds' ratios. `None` where one is missing or wrong.
    pub fn ratio(&self, program: &str, place: &Place, base: &Place) -> Option<f64> {
        self.time(program, place).seconds()?;
        self.time(program, base).seconds()?;
        let ratios: Vec<f64> = self
            .of(program, place)
            .filter_map(|run| {
                Some(run.seconds / self.of(program, base).find(|other| other.round == run.round)?.seconds)
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    /// What the threads did in all runs of a program in a place, in microseconds. `None` where one is missing or wrong.
    pub fn parts_us(&self, program: &str, place: &Place) -> Option<[f64; 6]> {
        self.time(program, place).seconds()?;
        let mut sum = [0.0; 6];
        for run in self.of(program, place) {
            sum.iter_mut().zip(run.parts_us).for_each(|(sum, part)| *sum += part);
        }
        Some(sum)
    }

    /// All places, sorted by system as the script names them, then by backbone, unit and nodes.
    pub fn places(&self) -> Vec<Place> {
        let rank =
            |place: &Place| ["threads", "pages", "checked", "direct", "lines"].iter().position(|s| *s == place.system);
        let mut places: Vec<Place> = self.runs.iter().map(|run| run.place.clone()).collect();
        places.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
        places.dedup();
        places
    }
}

/// The lines of a file behind its head.
fn lines<T>(text: &str, parse: impl Fn(&[&str]) -> Option<T>) -> Result<Vec<T>, String> {
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        parse(&words).ok_or_else(|| format!("this line says nothing: {line}"))
    };
    text.lines().skip(1).map(of_line).collect()
}

fn run(words: &[&str]) -> Option<Run> {
    let [program, round, system, backbone, unit, nodes, threads, seconds, result, parts @ ..] = words else {
        return None;
    };
    let mut parts_us = [0.0; 6];
    // A run that has died leaves no statistics.
    for (part, word) in parts_us.iter_mut().zip(parts).filter(|(_, word)| !word.is_empty()) {
        *part = word.parse().ok()?;
    }
    Some(Run {
        program: program.to_string(),
        round: round.parse().ok()?,
        place: Place {
            system: system.to_string(),
            backbone: backbone.to_string(),
            unit: unit.parse().ok()?,
            nodes: nodes.parse().ok()?,
            threads: threads.parse().ok()?,
        },
        seconds: seconds.parse().ok()?,
        right: *result == "ok",
        parts_us,
    })
}

fn checks_of(words: &[&str]) -> Option<Checks> {
    let [program, counts @ ..] = words else { return None };
    let counts: Vec<u64> = counts.iter().filter_map(|word| word.parse().ok()).collect();
    let [checked_loads, loads, checked_stores, stores] = counts.as_slice() else { return None };
    Some(Checks { program: program.to_string(), loads: (*checked_loads, *loads), stores: (*checked_stores, *stores) })
}

fn latency(words: &[&str]) -> Option<Latency> {
    let [system, backbone, unit, case, ns] = words else { return None };
    Some(Latency {
        system: system.to_string(),
        backbone: backbone.to_string(),
        unit: unit.parse().ok()?,
        case: case.to_string(),
        ns: ns.parse().ok()?,
    })
}
