//! Accesses that hit: instructions of element accesses, and the time of ranges, both against plain memory.
//!
//! Instructions are counted by `perf stat` (or callgrind where the machine has no counters) over two loops of different
//! length; their difference, divided by the difference of lengths, is what one access costs.

use crate::jobs::Bench;
use crate::node::{Task, What};
use crate::report;
use comem::{Comem, ObjectArray, Thread};
use comem_bench::job;
use comem_bench::sample::{Comparison, Finding, median};
use serde_json::json;
use std::hint::black_box;
use std::time::Instant;

/// Elements of the array that hits.
const ELEMENTS: usize = 4096;
/// Lengths of the two loops.
const SHORT: u64 = 4_000_000;
const LONG: u64 = 12_000_000;

/// Measures and reports; tells whether the aims were reached.
///
/// # Errors
/// A sentence about what went wrong.
pub fn run(bench: &Bench) -> Result<bool, String> {
    let good = ranges(bench)?;
    Ok(instructions(bench)? && good)
}

fn ranges(bench: &Bench) -> Result<bool, String> {
    let mut findings = Vec::new();
    let mut commands = Vec::new();
    for (elements, what) in [(16 << 10, "64 KiB"), (1 << 18, "1 MiB"), (1 << 22, "16 MiB")] {
        let words = bench.own_words(&["node", "range", "--blocks", "101", "--rounds", &elements.to_string()]);
        let comparison = bench.comparison(&job::run(&words)?)?;
        findings.push(Finding {
            what: format!("sum over a range of {what} (i32) against a plain slice"),
            unit: "us",
            comparison: Comparison { per_block: 1, ..comparison },
            limit: Some(1.1),
        });
        commands.push(words);
    }
    Ok(report::print("Range access", &commands, &findings))
}

/// What counts instructions here.
enum Counter {
    Perf,
    Callgrind,
}

impl Counter {
    /// callgrind is some fifty times slower; its counts are exact, so shorter loops do.
    fn scale(&self) -> u64 {
        if matches!(self, Counter::Callgrind) { 10 } else { 1 }
    }
}

fn instructions(bench: &Bench) -> Result<bool, String> {
    let Some(counter) = find_counter() else {
        println!("\nSKIP: instructions of accesses: neither perf with hardware counters nor valgrind is here");
        return Ok(true);
    };
    let rust = |what: &str| bench.own_words(&["node", what, "--rounds"]);
    let mut cases = vec![
        ("read hit, Rust", rust("read-hits"), rust("read-plain"), 5.0),
        ("write hit, Rust", rust("write-hits"), rust("write-plain"), 8.0),
    ];
    match bench.programs.workloads.with_file_name("bench").join("access") {
        program if program.is_file() => {
            let c = |what: &str| vec![program.display().to_string(), what.to_string()];
            cases.push(("read hit, C", c("read-hits"), c("read-plain"), 5.0));
            cases.push(("write hit, C", c("write-hits"), c("write-plain"), 8.0));
        }
        program => println!("\nSKIP: instructions of accesses in C: there is no {}; make build", program.display()),
    }
    let mut good = true;
    let commands: Vec<_> =
        cases.iter().map(|(_, words, _, _)| counted(&counter, words, LONG / counter.scale())).collect();
    report::heading("Instructions of an access that hits", &commands);
    println!("| what | ours | plain | more | aim | |\n|---|---:|---:|---:|---:|---|");
    for (what, ours, plain, limit) in &cases {
        let (ours, plain) = (per_access(&counter, ours)?, per_access(&counter, plain)?);
        let reached = ours - plain <= limit + 0.05;
        good &= reached;
        let verdict = if reached { "reached" } else { "missed" };
        println!("| {what} | {ours:.2} | {plain:.2} | {:+.2} | ≤ {limit} | {verdict} |", ours - plain);
    }
    Ok(good)
}

fn find_counter() -> Option<Counter> {
    let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    if count(&counted(&Counter::Perf, &words("true"), 0)).is_ok_and(|n| n > 1000) {
        return Some(Counter::Perf);
    }
    job::run(&words("valgrind --version")).is_ok().then_some(Counter::Callgrind)
}

fn counted(counter: &Counter, words: &[String], rounds: u64) -> Vec<String> {
    let prefix: &[&str] = match counter {
        Counter::Perf => &["perf", "stat", "-x,", "-e", "instructions:u", "--log-fd", "1", "--"],
        Counter::Callgrind => &["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=1"],
    };
    let rounds = rounds.to_string();
    prefix.iter().map(|s| s.to_string()).chain(words.iter().cloned()).chain([rounds]).collect()
}

fn per_access(counter: &Counter, words: &[String]) -> Result<f64, String> {
    let scale = counter.scale();
    let short = count(&counted(counter, words, SHORT / scale))?;
    let long = count(&counted(counter, words, LONG / scale))?;
    Ok((long as f64 - short as f64) / ((LONG - SHORT) / scale) as f64)
}

/// Runs a counted command and finds the count in what was printed.
fn count(words: &[String]) -> Result<u64, String> {
    let printed = job::run(words)?;
    parse_count(&printed).ok_or_else(|| format!("no count of instructions in: {printed}"))
}

/// The count in what perf (`123,,instructions:u,…`) or callgrind (`==1== Collected : 123`) printed.
fn parse_count(printed: &str) -> Option<u64> {
    printed.lines().find_map(|line| {
        let text = match line.split_once("Collected :") {
            Some((_, count)) => count.trim(),
            None if line.contains("instructions") => line.split(',').next()?,
            None => return None,
        };
        text.parse().ok()
    })
}

/// The side that is measured: a job of one node.
///
/// # Errors
/// A sentence about what went wrong.
pub fn in_one_node(task: &Task) -> Result<(), String> {
    let comem = comem::start().map_err(|e| e.to_string())?;
    if comem.threads() != 1 {
        return Err("this measurement takes one thread".to_string());
    }
    match task.what {
        What::Range => measure_range(&comem, task)?,
        what => {
            let array = comem.object_array::<u64>(ELEMENTS).map_err(|e| e.to_string())?;
            comem.parallel(|thread| {
                // Every element has been written here, so that all accesses hit.
                (0..ELEMENTS).for_each(|i| array.write(thread, i, i as u64));
                loops(what, thread, &array, task.rounds / ELEMENTS);
            });
        }
    }
    comem.finish().map_err(|e| e.to_string())
}

fn loops(what: What, thread: &Thread, array: &ObjectArray<u64>, times: usize) {
    let (mut plain, mut sum) = (vec![1_u64; ELEMENTS], 0_u64);
    for _ in 0..times {
        let count = black_box(ELEMENTS);
        match what {
            What::ReadHits => sum = sum.wrapping_add(read_hits(thread, array, count)),
            What::WriteHits => write_hits(thread, array, count),
            What::WritePlain => write_plain(black_box(&mut plain), count),
            _ => sum = sum.wrapping_add(read_plain(black_box(&plain), count)),
        }
    }
    black_box((plain, sum));
}

/// The next index, which the compiler knows nothing of: it leaves each loop as it is written, one access a turn, and
/// may still use a load as an operand.
#[inline(always)]
fn after(index: usize) -> usize {
    let mut next = index + 1;
    // SAFETY: no instruction; the value stays as it is.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) next, options(nomem, nostack, preserves_flags)) };
    next
}

#[inline(never)]
fn read_hits(thread: &Thread, array: &ObjectArray<u64>, count: usize) -> u64 {
    let (mut i, mut sum) = (0, 0_u64);
    while i < count {
        sum = sum.wrapping_add(array.read(thread, i));
        i = after(i);
    }
    sum
}

#[inline(never)]
fn read_plain(plain: &[u64], count: usize) -> u64 {
    let (mut i, mut sum) = (0, 0_u64);
    while i < count {
        // SAFETY: `loops` gives the slice's length.
        sum = sum.wrapping_add(unsafe { *plain.get_unchecked(i) });
        i = after(i);
    }
    sum
}

#[inline(never)]
fn write_hits(thread: &Thread, array: &ObjectArray<u64>, count: usize) {
    let mut i = 0;
    while i < count {
        array.write(thread, i, i as u64);
        i = after(i);
    }
}

#[inline(never)]
fn write_plain(plain: &mut [u64], count: usize) {
    let mut i = 0;
    while i < count {
        // SAFETY: `loops` gives the slice's length.
        unsafe { *plain.get_unchecked_mut(i) = i as u64 };
        i = after(i);
    }
}

fn measure_range(comem: &Comem, task: &Task) -> Result<(), String> {
    let array = comem.object_array::<i32>(task.rounds).map_err(|e| e.to_string())?;
    let plain: Vec<i32> = (0..task.rounds as i32).collect();
    let mut comparison = Comparison { per_block: 1, ..Comparison::default() };
    comem.parallel(|_| ());
    let thread = comem.current().map_err(|e| e.to_string())?;
    array.write_from(&thread, 0, &plain);
    let sum = |values: &[i32]| values.iter().fold(0_i32, |sum, value| sum.wrapping_add(*value));
    // Small ranges are summed several times in a block, begin and end included each time.
    let repeats = ((1 << 20) / task.rounds).max(1);
    for block in 0..=task.blocks {
        let ours = timed(repeats, || {
            // SAFETY: this is the job's only thread, and it does not write meanwhile.
            black_box(unsafe { array.range(&thread, 0..task.rounds, sum) });
        });
        let base = timed(repeats, || {
            black_box(sum(black_box(&plain)));
        });
        if block > 0 {
            comparison.push(ours, base);
        }
    }
    println!("{}", json!({"ours": comparison.ours, "base": comparison.base, "per_block": 1}));
    Ok(())
}

/// Microseconds of one of so many repetitions (the middle one).
fn timed(repeats: usize, mut operation: impl FnMut()) -> f64 {
    let times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            operation();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    median(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_what_the_tools_print() {
        assert_eq!(parse_count("123456,,instructions:u,99,100.00,,\n"), Some(123_456));
        assert_eq!(parse_count("==7== \n==7== Collected : 4242\n"), Some(4242));
        assert_eq!(parse_count("<not supported>,,instructions:u,0,100.00,,\n"), None);
    }
}
