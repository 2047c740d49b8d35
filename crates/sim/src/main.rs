//! `comem-sim`: runs the simulator over many seeds and prints the first that fails.
//!
//! One seed is one run, the same every time: `comem-sim --engine msi --loss 20 --seed 42 --trace` shows a failure again, step
//! by step.

use comem_protocol::coherence::Engine;
use comem_protocol::faults::FaultSpec;
use comem_sim::cluster::Outcome;
use comem_sim::scenario::{Kind, Scenario, Verdict};
use comem_sim::startup;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const HELP: &str = "\
comem-sim [OPTIONS]: simulate clusters under virtual time and check what they show

  --seeds A..B       run these seeds (default 0..1000)
  --seed S           run this seed alone
  --engine NAME      owner, broadcast or msi (default: each of them)
  --program NAME     mixed, hot, counters, ranges, barriers, messages, SB, MP, LB, IRIW, WRC, 2+2W, CoRR, CoRR2
                     (default: the seed chooses)
  --nodes N          nodes (default: the seed chooses; litmus programs bring their own number)
  --threads T        threads in each node (default: the seed chooses)
  --loss PERCENT     short for --faults drop=PERCENT%,dup=10%,reorder=10%
  --faults SPEC      the network's faults, as for comem run (default: drop=20%,dup=10%,reorder=10%)
  --messages         whole messages over a network that only reorders, without the link
  --start N          start N nodes over the network, pass 100 barriers, stop; for each seed
  --jobs N           threads of this process (default: one for each core)
  --trace            print everything that happens (with --seed)
  --help             this text

Ends with 0 when all seeds pass, 1 when one fails, 2 when the options cannot be understood.
";

struct Options {
    seeds: Range<u64>,
    engines: Vec<Engine>,
    kind: Option<Kind>,
    nodes: Option<usize>,
    threads: Option<usize>,
    faults: Option<FaultSpec>,
    start: Option<usize>,
    jobs: usize,
    trace: bool,
}

fn parse<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|e| format!("{what} {text:?}: {e}"))
}

/// A count that must lie in a range.
fn count(what: &str, text: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = parse(what, text)?;
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(format!("{what} {number}: must be from {} to {}", range.start(), range.end()))
    }
}

fn seed_of(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map_err(|e| format!("seed {text:?}: {e}")),
        None => parse("seed", text),
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        seeds: 0..1000,
        engines: Engine::ALL.to_vec(),
        kind: None,
        nodes: None,
        threads: None,
        faults: Some(parse("faults", "drop=20%,dup=10%,reorder=10%")?),
        start: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        trace: false,
    };
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--trace" => options.trace = true,
            "--messages" => options.faults = None,
            "--seed" => {
                let seed = seed_of(&value()?)?;
                options.seeds = seed..seed.saturating_add(1);
            }
            "--seeds" => {
                let text = value()?;
                let (from, to) =
                    text.split_once("..").ok_or_else(|| format!("seeds {text:?}: not of the form A..B"))?;
                options.seeds = seed_of(from)?..seed_of(to)?;
            }
            "--engine" => options.engines = vec![parse("engine", &value()?)?],
            "--program" => {
                let text = value()?;
                options.kind = Some(Kind::from_name(&text).ok_or_else(|| format!("unknown program {text:?}"))?);
            }
            "--nodes" => options.nodes = Some(count("nodes", &value()?, 1..=1024)?),
            "--threads" => options.threads = Some(count("threads", &value()?, 1..=256)?),
            "--jobs" => options.jobs = count("jobs", &value()?, 1..=1024)?,
            "--start" => options.start = Some(count("start", &value()?, 1..=1024)?),
            "--faults" => options.faults = Some(parse("faults", &value()?)?),
            "--loss" => {
                let spec = format!("drop={}%,dup=10%,reorder=10%", value()?.trim_end_matches('%'));
                options.faults = Some(parse("loss", &spec)?);
            }
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    if options.trace && options.seeds.clone().count() != 1 {
        return Err("--trace shows one run; name it with --seed".to_string());
    }
    Ok(Some(options))
}

/// What one seed shows under one engine: the program's name, what is wrong, and the run.
fn run(options: &Options, engine: Engine, seed: u64) -> (String, Vec<String>, Outcome) {
    if let Some(nodes) = options.start {
        let (violations, outcome) = startup::start_pass_stop(nodes, 100, options.faults.unwrap_or_default(), seed);
        return (format!("start of {nodes} nodes"), violations, outcome);
    }
    let scenario = Scenario {
        kind: options.kind,
        engine,
        nodes: options.nodes,
        threads: options.threads,
        faults: options.faults,
        trace: options.trace,
    };
    let Verdict { kind, violations, outcome, .. } = scenario.run(seed);
    (kind.name().to_string(), violations, outcome)
}

/// What passed: steps, datagrams and repetitions among them.
type Totals = (u64, u64, u64);

/// Runs all seeds under one engine; `None` when one fails.
fn run_all(options: &Options, engine: Engine) -> Option<Totals> {
    let (next, failed, totals) =
        (AtomicU64::new(options.seeds.start), AtomicBool::new(false), Mutex::new(Totals::default()));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= options.seeds.end {
                break;
            }
            let (program, violations, outcome) = run(options, engine, seed);
            let mut totals = totals.lock().unwrap_or_else(|e| e.into_inner());
            totals.0 += outcome.steps;
            totals.1 += outcome.datagrams.0;
            totals.2 += outcome.datagrams.1;
            outcome.trace.iter().for_each(|line| println!("{line}"));
            if !violations.is_empty() && !failed.swap(true, Ordering::Relaxed) {
                eprintln!("comem-sim: seed {seed:#x} fails: {program} under {engine}");
                violations.iter().for_each(|v| eprintln!("  {v}"));
                eprintln!("  see it again with the same options, --engine {engine}, --seed {seed:#x} and --trace");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.jobs {
            scope.spawn(work);
        }
        work();
    });
    let passed = !failed.load(Ordering::Relaxed);
    passed.then(|| totals.into_inner().unwrap_or_else(|e| e.into_inner()))
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("comem-sim: {why}; try --help");
            return ExitCode::from(2);
        }
    };
    let engines = if options.start.is_some() { &options.engines[..1] } else { &options.engines[..] };
    for engine in engines {
        let start = std::time::Instant::now();
        let Some((steps, datagrams, repeated)) = run_all(&options, *engine) else { return ExitCode::FAILURE };
        let (count, seconds) = (options.seeds.clone().count(), start.elapsed().as_secs_f64());
        let what = options.start.map_or(engine.name().to_string(), |n| format!("start of {n} nodes"));
        println!(
            "{what:<9}  {count} seeds from {:#x}: no violation; {steps} steps, {datagrams} datagrams, \
             {repeated} of them repeated; {seconds:.1} s",
            options.seeds.start
        );
    }
    ExitCode::SUCCESS
}
