//! `comem-sim`: runs the simulator over many seeds and prints the first that fails.
//!
//! One seed is one run, the same every time: `comem-sim --engine msi --loss 20 --seed 42 --trace` shows a failure
//! again, step by step.

mod teach;

use comem_protocol::coherence::Engine;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::faults::FaultSpec;
use comem_sim::cluster::Outcome;
use comem_sim::msi_pages;
use comem_sim::pages;
use comem_sim::pages::explore::{Case, Ways};
use comem_sim::pages::small::cases;
use comem_sim::scenario::{Kind, Scenario, Verdict};
use comem_sim::startup;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use teach::Lesson;

const HELP: &str = "\
comem-sim [OPTIONS]: simulate clusters under virtual time and check what they show

  --seeds A..B       run these seeds (default 0..1000)
  --seed S           run this seed alone
  --engine NAME      owner, broadcast or msi (default: each of them)
  --program NAME     mixed, hot, counters, ranges, barriers, messages, semaphores, buffer, readers, evictions,
                     SB, MP, LB, IRIW, WRC, 2+2W, CoRR, CoRR2 (default: the seed chooses)
  --nodes N          nodes (default: the seed chooses; litmus programs bring their own number)
  --threads T        threads in each node (default: the seed chooses)
  --loss PERCENT     short for --faults drop=PERCENT%,dup=10%,reorder=10%
  --faults SPEC      the network's faults, as for comem run (default: drop=20%,dup=10%,reorder=10%)
  --messages         whole messages over a network that only reorders, without the link
  --pages            the engines for pages: --engine hlrc, scope, lrc, multicast, mixed (regions under the first two in
                     one job) or msi (default: each of the six), --program mixed, migratory, sor, producer, same-lock,
                     second-lock, lock-wrc, chain, wavering, wide-release, wide-acquire, semaphores, readers,
                     conditions, reductions, meetings, relay, false-sharing, all-to-all, absent, blocks or gathered,
                     with nodes as the seed chooses; under msi: mixed, hot,
                     counters, spans, spins, evictions or a litmus program
  --memory KIND      of pages under hlrc and scope: noted (the kernel notes first writes) or faults (first writes
                     fault); default: each
  --delays N         of pages under hlrc and scope: all orders of events with up to N delays, of small programs, in
                     place of the programs and orders of seeds; a seed (default: 0 alone) decides which messages that
                     nobody guards are lost. With --trace, an order that fails is shown step by step
  --start N          start N nodes over the network, pass 100 barriers, stop; for each seed
  --jobs N           threads of this process (default: one for each core)
  --trace            print everything that happens (with --seed)
  --help             this text

  --litmus PROGRAM   for people: a table of the outcomes of a litmus program, under --engine owner, broadcast, msi, hlrc
                     or scope (default: each of them): seen how often, allowed, or forbidden. PROGRAM is a name,
                     `all`, `list` (which says what there is), or a text such as 'x = 1; y | y = 1; x'
  --diagram          with --litmus and --engine: a run as a message diagram, time downwards, a column for each node
  --svg FILE         the same as a picture
  --outcome A,B,...  the run that is shown is the first of the seeds with this outcome

Ends with 0 when all seeds pass, 1 when one fails, 2 when the options cannot be understood, 6 when this text cannot be
written.
";

/// What runs over all seeds.
#[derive(Clone, Copy)]
enum Job {
    /// An engine for explicit objects.
    Objects(Engine),
    /// Engines for pages, and whether the memory notes first writes.
    Pages(Engines, bool),
    /// Pages under `msi`.
    Single,
}

/// Which engines the regions of a job have.
#[derive(Clone, Copy)]
enum Engines {
    One(PageEngine),
    Mixed,
}

impl Engines {
    fn name(self) -> &'static str {
        match self {
            Engines::One(engine) => engine.name(),
            Engines::Mixed => "mixed",
        }
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Job::Objects(engine) => f.pad(engine.name()),
            Job::Pages(engines, true) => write!(f, "{}, writes noted", engines.name()),
            Job::Pages(engines, false) => write!(f, "{}, writes fault", engines.name()),
            Job::Single => f.pad("pages under msi"),
        }
    }
}

struct Options {
    seeds: Range<u64>,
    jobs_of: Vec<Job>,
    kind: Option<Kind>,
    page_kind: Option<pages::program::Kind>,
    single_kind: Option<msi_pages::program::Kind>,
    nodes: Option<usize>,
    threads: Option<usize>,
    faults: Option<FaultSpec>,
    delays: Option<usize>,
    start: Option<usize>,
    jobs: usize,
    trace: bool,
    lesson: Option<Lesson>,
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
        jobs_of: Vec::new(),
        kind: None,
        page_kind: None,
        single_kind: None,
        nodes: None,
        threads: None,
        faults: Some(parse("faults", "drop=20%,dup=10%,reorder=10%")?),
        delays: None,
        start: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        trace: false,
        lesson: None,
    };
    let mut lesson = Lesson::default();
    let (mut paged, mut engine, mut program, mut memory, mut seeded) = (false, None, None, None, false);
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--trace" => options.trace = true,
            "--litmus" => lesson.litmus = value()?,
            "--diagram" => lesson.diagram = true,
            "--svg" => lesson.svg = Some(value()?),
            "--outcome" => {
                let text = value()?;
                let values = text.split(',').map(|value| parse("outcome", value.trim()));
                lesson.outcome = Some(values.collect::<Result<Vec<u64>, String>>()?);
            }
            "--messages" => options.faults = None,
            "--seed" => {
                let seed = seed_of(&value()?)?;
                (options.seeds, seeded) = (seed..seed.saturating_add(1), true);
            }
            "--seeds" => {
                let text = value()?;
                let (from, to) =
                    text.split_once("..").ok_or_else(|| format!("seeds {text:?}: not of the form A..B"))?;
                (options.seeds, seeded) = (seed_of(from)?..seed_of(to)?, true);
            }
            "--pages" => paged = true,
            "--engine" => engine = Some(value()?),
            "--program" => program = Some(value()?),
            "--memory" => memory = Some(value()?),
            "--nodes" => options.nodes = Some(count("nodes", &value()?, 1..=1024)?),
            "--threads" => options.threads = Some(count("threads", &value()?, 1..=256)?),
            "--jobs" => options.jobs = count("jobs", &value()?, 1..=1024)?,
            "--delays" => options.delays = Some(count("delays", &value()?, 0..=4)?),
            "--start" => options.start = Some(count("start", &value()?, 1..=1024)?),
            "--faults" => options.faults = Some(parse("faults", &value()?)?),
            "--loss" => {
                let spec = format!("drop={}%,dup=10%,reorder=10%", value()?.trim_end_matches('%'));
                options.faults = Some(parse("loss", &spec)?);
            }
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    if !lesson.litmus.is_empty() {
        let others = paged || program.is_some() || memory.is_some() || options.delays.is_some() || options.trace;
        if others || options.start.is_some() || options.nodes.is_some() || options.threads.is_some() {
            return Err("--litmus goes with --engine, --seeds, --diagram, --svg and --outcome alone".to_string());
        }
        let seeds = options.seeds.clone();
        return Ok(Some(Options { lesson: Some(Lesson { engine, seeds, ..lesson }), ..options }));
    }
    if lesson.diagram || lesson.svg.is_some() || lesson.outcome.is_some() {
        return Err("--diagram, --svg and --outcome are for --litmus".to_string());
    }
    if let Some(name) = &program {
        options.kind = Kind::from_name(name);
        options.page_kind = pages::program::Kind::from_name(name);
        options.single_kind = msi_pages::program::Kind::from_name(name);
        let known = match (paged, engine.as_deref()) {
            (false, _) => options.kind.is_some(),
            (true, Some("msi")) => options.single_kind.is_some(),
            (true, None) => options.page_kind.is_some() && options.single_kind.is_some(),
            (true, Some(_)) => options.page_kind.is_some(),
        };
        let with = if paged { "; with --pages, some programs need their --engine" } else { "" };
        known.then_some(()).ok_or_else(|| format!("unknown program {name:?}{with}"))?;
    }
    if options.delays.is_some() {
        if !paged || program.is_some() || matches!(engine.as_deref(), Some("msi" | "mixed")) {
            return Err("--delays is for --pages under hlrc or scope, with small programs of its own".to_string());
        }
        options.seeds = if seeded { options.seeds } else { 0..1 };
    }
    if memory.is_some() && !paged {
        return Err("--memory is for --pages under hlrc and scope".to_string());
    }
    if options.seeds.is_empty() {
        let Range { start, end } = options.seeds;
        return Err(format!("seeds {start}..{end} are none; A..B are those from A to B - 1"));
    }
    options.jobs_of = if paged { page_jobs(engine, memory)? } else { object_jobs(engine)? };
    if options.trace && options.delays.is_none() && options.seeds.clone().count() != 1 {
        return Err("--trace shows one run; name it with --seed".to_string());
    }
    Ok(Some(options))
}

fn object_jobs(engine: Option<String>) -> Result<Vec<Job>, String> {
    Ok(match engine {
        Some(name) => vec![Job::Objects(parse("engine", &name)?)],
        None => Engine::ALL.map(Job::Objects).to_vec(),
    })
}

fn page_jobs(engine: Option<String>, memory: Option<String>) -> Result<Vec<Job>, String> {
    if engine.as_deref() == Some("msi") {
        let none = "--memory is for pages under hlrc and scope; under msi the seed chooses".to_string();
        return memory.map_or(Ok(vec![Job::Single]), |_| Err(none));
    }
    let single = (engine.is_none() && memory.is_none()).then_some(Job::Single);
    let engines = match engine.as_deref() {
        Some("mixed") => vec![Engines::Mixed],
        Some(name) => match PageEngine::named(name) {
            Some(engine) if engine.has_one_copy() => {
                return Err(format!("engine {engine}: it has no protocol, so there is nothing to simulate"));
            }
            Some(engine) => vec![Engines::One(engine)],
            None => vec![Engines::One(parse("engine", name)?)],
        },
        // Those that jobs may not have yet are tried here alone.
        None => {
            let tried = |engine: &PageEngine| engine.properties().is_listed || !engine.properties().is_for_jobs;
            let several = PageEngine::ALL.into_iter().filter(|engine| engine.has_several_writers()).filter(tried);
            several.map(Engines::One).chain([Engines::Mixed]).collect()
        }
    };
    let notes = match memory.as_deref() {
        Some("noted") => vec![true],
        Some("faults") => vec![false],
        Some(other) => return Err(format!("memory {other:?}: must be noted or faults")),
        None => vec![true, false],
    };
    let jobs = engines.into_iter().flat_map(|e| notes.iter().map(move |n| Job::Pages(e, *n)));
    Ok(jobs.chain(single).collect())
}

/// What one seed shows.
struct Run {
    program: String,
    violations: Vec<String>,
    steps: u64,
    /// Datagrams, and repetitions among them.
    datagrams: (u64, u64),
    trace: Vec<String>,
}

impl Run {
    fn new(program: String, violations: Vec<String>, outcome: Outcome) -> Run {
        Run { program, violations, steps: outcome.steps, datagrams: outcome.datagrams, trace: outcome.trace }
    }
}

fn run(options: &Options, job: Job, seed: u64) -> Run {
    if let Some(nodes) = options.start {
        let (violations, outcome) = startup::start_pass_stop(nodes, 100, options.faults.unwrap_or_default(), seed);
        return Run::new(format!("start of {nodes} nodes"), violations, outcome);
    }
    let engine = match job {
        Job::Objects(engine) => engine,
        Job::Pages(engines, notes_writes) => return run_pages(options, engines, notes_writes, seed),
        Job::Single => return run_single(options, seed),
    };
    let scenario = Scenario {
        kind: options.kind,
        engine,
        nodes: options.nodes,
        threads: options.threads,
        faults: options.faults,
        trace: options.trace,
    };
    let Verdict { kind, violations, outcome, .. } = scenario.run(seed);
    Run::new(kind.name().to_string(), violations, outcome)
}

fn run_pages(options: &Options, engines: Engines, notes_writes: bool, seed: u64) -> Run {
    let (engine, mixed) = match engines {
        Engines::One(engine) => (engine, false),
        Engines::Mixed if seed.is_multiple_of(2) => (PageEngine::Hlrc, true),
        Engines::Mixed => (PageEngine::Scope, true),
    };
    let scenario = pages::scenario::Scenario {
        kind: options.page_kind,
        engine,
        mixed,
        notes_writes: Some(notes_writes),
        faults: options.faults,
        lone: false,
        frees: false,
        schedules: false,
        tunes: true,
        told_loss: None,
        guesses: false,
        forbids: false,
        trace: options.trace,
    };
    let pages::scenario::Verdict { kind, violations, outcome } = scenario.run(seed);
    let (steps, datagrams, trace) = (outcome.steps, outcome.datagrams, outcome.trace);
    Run { program: kind.name().to_string(), violations, steps, datagrams, trace }
}

fn run_single(options: &Options, seed: u64) -> Run {
    let scenario = msi_pages::scenario::Scenario {
        kind: options.single_kind,
        nodes: options.nodes,
        threads: options.threads,
        faults: options.faults,
        even: false,
        trace: options.trace,
    };
    let msi_pages::scenario::Verdict { kind, violations, outcome } = scenario.run(seed);
    Run::new(kind.name().to_string(), violations, outcome)
}

/// All orders of all small programs for these jobs; whether all are right.
fn run_orders(options: &Options, delays: usize) -> bool {
    let wanted = |ways: &Ways| {
        let kept = (ways.engine, ways.notes);
        let is = |job: &Job| matches!(job, Job::Pages(Engines::One(engine), notes) if (*engine, *notes) == kept);
        options.jobs_of.iter().any(is)
    };
    let runs: Vec<(Ways, Case, u64)> = (Ways::all().into_iter().filter(wanted))
        .flat_map(|ways| cases(ways).into_iter().map(move |case| (ways, case)))
        .flat_map(|(ways, case)| options.seeds.clone().map(move |seed| (ways, case.clone(), seed)))
        .collect();
    let (next, failed, start) = (AtomicUsize::new(0), AtomicBool::new(false), std::time::Instant::now());
    let orders = AtomicU64::new(0);
    let bar = progress(runs.len() as u64, format!("orders with up to {delays} delays"));
    let work = || {
        while let Some((ways, case, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let explored = case.explore(*seed, delays);
            bar.inc(1);
            orders.fetch_add(explored.runs, Ordering::Relaxed);
            let Some((schedule, violations)) = explored.failure else { continue };
            if !failed.swap(true, Ordering::Relaxed) {
                bar.finish_and_clear();
                let trace = if options.trace { case.run(*seed, &schedule, true).trace } else { Vec::new() };
                print_all(&trace);
                eprintln!("comem-sim: {} fails with seed {seed:#x} under {ways}: {schedule:?}", case.name);
                violations.iter().for_each(|v| eprintln!("  {v}"));
            }
        }
    };
    std::thread::scope(|scope| {
        start_others(scope, options.jobs, work);
        work();
    });
    bar.finish_and_clear();
    let (orders, failed) = (orders.into_inner(), failed.into_inner());
    if !failed {
        let (count, seconds) = (runs.len(), start.elapsed().as_secs_f64());
        println!("{count} small programs, orders with up to {delays} delays: {orders}, no violation; {seconds:.1} s");
    }
    !failed
}

/// A line on the terminal that says how many of these runs are done; nothing where standard error is none, or of one
/// run.
fn progress(runs: u64, what: String) -> ProgressBar {
    let bar = if runs > 1 { ProgressBar::new(runs) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("comem-sim: {pos} of {len}: {wide_msg} {elapsed:>5}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}

/// What passed: steps, datagrams and repetitions among them.
type Totals = (u64, u64, u64);

/// Runs all seeds of one job; `None` when one fails.
fn run_all(options: &Options, job: Job) -> Option<Totals> {
    let (next, failed, totals) =
        (AtomicU64::new(options.seeds.start), AtomicBool::new(false), Mutex::new(Totals::default()));
    let seeds = options.seeds.end.saturating_sub(options.seeds.start);
    let bar = progress(if options.trace { 0 } else { seeds }, job.to_string());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= options.seeds.end {
                break;
            }
            let Run { program, violations, steps, datagrams, trace } = run(options, job, seed);
            bar.inc(1);
            let mut totals = totals.lock().unwrap_or_else(|e| e.into_inner());
            totals.0 += steps;
            totals.1 += datagrams.0;
            totals.2 += datagrams.1;
            print_all(&trace);
            if !violations.is_empty() && !failed.swap(true, Ordering::Relaxed) {
                bar.finish_and_clear();
                eprintln!("comem-sim: seed {seed:#x} fails: {program} under {job}");
                violations.iter().for_each(|v| eprintln!("  {v}"));
                let again = match job {
                    Job::Objects(engine) => format!("--engine {engine}"),
                    Job::Single => "--pages --engine msi".to_string(),
                    Job::Pages(engines, notes) => {
                        let memory = if notes { "noted" } else { "faults" };
                        format!("--pages --engine {} --memory {memory}", engines.name())
                    }
                };
                eprintln!("  see it again with the same options, {again} --seed {seed:#x} --trace");
            }
        }
    };
    std::thread::scope(|scope| {
        start_others(scope, options.jobs, work);
        work();
    });
    bar.finish_and_clear();
    let passed = !failed.load(Ordering::Relaxed);
    passed.then(|| totals.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// Starts the threads beside this one that do the same work; with fewer, where the system gives no more, it takes
/// longer.
fn start_others<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    jobs: usize,
    work: impl Fn() + Copy + Send + 'scope,
) {
    let started = (1..jobs).try_for_each(|_| std::thread::Builder::new().spawn_scoped(scope, work).map(drop));
    if let Err(why) = started {
        eprintln!("comem-sim: fewer than {jobs} threads can be had: {why}");
    }
}

/// Prints lines, for a reader who may have seen enough before the last.
fn print_all(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    let _ = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
}

/// Prints a text; a reader who has heard enough is no failure.
fn print_text(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("comem-sim: cannot write standard output: {why}");
            ExitCode::from(6)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return print_text(HELP),
        Err(why) => {
            eprintln!("comem-sim: {why}; try --help");
            return ExitCode::from(2);
        }
    };
    if let Some(lesson) = &options.lesson {
        return match lesson.give() {
            Ok((text, true)) => print_text(&text),
            Ok((text, false)) => {
                print_text(&text);
                eprintln!("comem-sim: an engine has shown what it forbids: see WRONG in the table");
                ExitCode::FAILURE
            }
            Err(why) => {
                eprintln!("comem-sim: {why}");
                ExitCode::from(2)
            }
        };
    }
    if let Some(delays) = options.delays {
        return if run_orders(&options, delays) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let jobs = if options.start.is_some() { &options.jobs_of[..1] } else { &options.jobs_of[..] };
    for job in jobs {
        let start = std::time::Instant::now();
        let Some((steps, datagrams, repeated)) = run_all(&options, *job) else { return ExitCode::FAILURE };
        let (count, seconds) = (options.seeds.clone().count(), start.elapsed().as_secs_f64());
        let what = options.start.map_or(job.to_string(), |n| format!("start of {n} nodes"));
        println!(
            "{what:<9}  {count} seeds from {:#x}: no violation; {steps} steps, {datagrams} datagrams, \
             {repeated} of them repeated; {seconds:.1} s",
            options.seeds.start
        );
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let words = line.split_whitespace().map(str::to_string);
        options(words).err().unwrap_or_else(|| panic!("{line}: not refused"))
    }

    #[test]
    fn no_seeds_are_refused() {
        for line in ["--seeds 5..5", "--seeds 5..1", "--pages --delays 1 --seeds 5..1", "--seed 0xffffffffffffffff"] {
            assert!(refusal(line).contains("are none"), "{line}: {}", refusal(line));
        }
        assert!(options(["--seeds", "5..6"].map(str::to_string).into_iter()).is_ok());
    }

    #[test]
    fn memory_is_of_pages() {
        for line in ["--memory noted", "--engine msi --memory faults", "--pages --engine msi --memory noted"] {
            assert!(refusal(line).starts_with("--memory is for"), "{line}: {}", refusal(line));
        }
    }
}
