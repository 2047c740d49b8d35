//! Feeds damaged datagrams to a node's state machines for a while, by seed: the fuzzing that needs no special
//! toolchain. A failure prints the seed that repeats it.

use clap::Parser;
use comem_bench::fuzz::{Author, Victim};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Feeds damaged datagrams to Comem's link, engines, locks, barriers and start-up.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// How long
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// At most so many seeds
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Inputs fed to one victim.
const INPUTS: usize = 1_000;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (start, limit) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let (mut seeds, mut messages, mut steps, mut refused) = (0, 0, 0, 0);
    for seed in (arguments.seed..).take(usize::try_from(arguments.seeds).unwrap_or(usize::MAX)) {
        match catch_unwind(AssertUnwindSafe(|| feed(seed))) {
            Ok(seen) => {
                seeds += 1;
                messages += seen.0;
                steps += seen.1;
                refused += seen.2;
            }
            Err(_) => {
                eprintln!(
                    "comem-fuzz: seed {seed} failed (see above); to repeat it: comem-fuzz --seed {seed} --seeds 1"
                );
                return ExitCode::FAILURE;
            }
        }
        if start.elapsed() >= limit {
            break;
        }
    }
    println!(
        "comem-fuzz: seeds {}..{}, {INPUTS} inputs each: {messages} messages delivered, {steps} steps taken, \
         {refused} datagrams refused, no failure",
        arguments.seed,
        arguments.seed + seeds
    );
    ExitCode::SUCCESS
}

fn feed(seed: u64) -> (u64, u64, u64) {
    let (mut author, mut victim) = (Author::new(seed), Victim::new());
    for _ in 0..INPUTS {
        victim.feed(&author.write());
    }
    let seen = victim.seen();
    (seen.messages, seen.steps, seen.refused)
}
