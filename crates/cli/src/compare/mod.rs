//! `comem compare`: one program under every engine that fits, and whether it computed the same each time.

pub mod result;

use crate::args::CompareArgs;
use crate::choice::{EXPLICIT, EngineChoice};
use crate::failure::{Failure, Outcome, exit};
use crate::job::TAKES_PART;
use crate::progress;
use crate::table::{Table, bytes, grouped, seconds};
use crate::trial::{self, Setup, Trial};
use comem_protocol::coherence::Engine;
use comem_protocol::coherence::pages::PageEngine;

/// A program that every engine would leave as it is.
const NOBODY_JOINED: &str = "there are no engines to compare: the program has not joined the job, and shares no memory";

/// One line of the table.
#[derive(Clone, Debug)]
struct Line {
    engine: String,
    detector: String,
    verdict: Verdict,
}

#[derive(Clone, Debug)]
enum Verdict {
    /// The reference, or a run that printed the same: the trial of the median.
    Ok(Box<Trial>),
    /// What the reference printed, and what came instead.
    Differs(String, String),
    /// How it ended.
    Failed(String),
}

/// Runs the command; its exit code.
pub fn main(args: &CompareArgs) -> Outcome<i32> {
    let base = Setup { nodes: 1, threads: args.threads, flags: args.flags.clone(), ..Setup::default() };
    check(args, &base)?;
    let reference = trials(&base, args).and_then(|list| agreed(&list));
    let reference = reference.map_err(|why| {
        let advice = "the program must end with status 0 on one node and print the same result every time";
        Failure::new(exit::START, format!("the reference run on 1 node failed: {why}"), advice)
    })?;
    let has_pages = reference.run.has_pages();
    let pairs = pairs(args, has_pages)?;
    if result::says_nothing(&reference.output) {
        return Err(Failure::new(exit::START, result::NOTHING, result::NOTHING_ADVICE));
    }
    if reference.run.nobody_joined {
        return Err(Failure::new(exit::START, NOBODY_JOINED, TAKES_PART));
    }
    if let Some(names) = detectors_without_pages(args, has_pages) {
        crate::say(format_args!(
            "comem: the program shares no pages, so --detectors {names} changes nothing: each engine runs once"
        ));
    }
    progress::expect((pairs.len() + 1) * args.repeat as usize);
    let mut lines = vec![Line {
        engine: "(1 node)".to_string(),
        detector: String::new(),
        verdict: Verdict::Ok(Box::new(reference.clone())),
    }];
    for (engine, detector) in pairs {
        let line = examine(args, &reference, engine, &detector);
        // One line at a time, so that a long comparison shows that it moves.
        crate::say(format_args!("comem: {}", in_words(&line)));
        lines.push(line);
    }
    crate::show(&show(&lines))?;
    if let Some(finding) = finding(&lines) {
        crate::say(format_args!("comem: {finding}"));
    }
    let good = lines.iter().all(|line| matches!(line.verdict, Verdict::Ok(_)));
    Ok(if good { exit::SUCCESS } else { exit::DIFFERENCE })
}

/// Refuses what no run could start with, before the first one: it may take hours. What goes with which detector shows
/// for the engines that were named; those that are not depend on what the program shares.
fn check(args: &CompareArgs, base: &Setup) -> Outcome<()> {
    for engine in &args.engines {
        args.detectors.iter().try_for_each(|detector| engine.check_with(detector))?;
    }
    let engine = args.engines.first().map_or("msi", |engine| engine.name);
    let detector = args.detectors.first().map_or("", String::as_str);
    for setup in [base, &setup(args, engine, detector)] {
        trial::rehearse(setup, &args.command)?;
    }
    Ok(())
}

/// The runs of an engine.
fn setup(args: &CompareArgs, engine: &str, detector: &str) -> Setup {
    let mut flags = args.flags.clone();
    flags.push(format!("--engine={engine}"));
    if !detector.is_empty() {
        flags.push(format!("--detector={detector}"));
    }
    Setup { nodes: args.nodes, threads: args.threads, flags, ..Setup::default() }
}

/// The detectors that were asked for and that a program without pages has no use for.
fn detectors_without_pages(args: &CompareArgs, has_pages: bool) -> Option<String> {
    let of_pages = args.detectors.iter().any(|name| !name.is_empty() && name != EXPLICIT);
    (of_pages && !has_pages).then(|| args.detectors.join(","))
}

/// The engines to run, each with its detectors.
fn pairs(args: &CompareArgs, has_pages: bool) -> Outcome<Vec<(EngineChoice, String)>> {
    let named = |names: Vec<&str>| names.into_iter().filter_map(|name| EngineChoice::parse(name).ok()).collect();
    // What cannot start here, such as one memory for nodes of several hosts, is compared if it is named.
    let can_start =
        |e: &PageEngine| !e.has_one_copy() || trial::rehearse(&setup(args, e.name(), ""), &args.command).is_ok();
    let of_pages = || PageEngine::listed().filter(|e| e.keeps_pages()).filter(can_start);
    let engines: Vec<EngineChoice> = match (args.engines.as_slice(), has_pages) {
        ([], true) => named(of_pages().map(PageEngine::name).collect()),
        ([], false) => named(Engine::ALL.map(Engine::name).to_vec()),
        (list, _) => list.to_vec(),
    };
    let best = [String::new()];
    let detectors = if args.detectors.is_empty() { &best } else { args.detectors.as_slice() };
    let mut pairs = Vec::new();
    for engine in engines {
        let notices_nothing = !has_pages || !engine.fits_pages() || engine.pages.has_one_copy();
        for detector in detectors {
            engine.check_with(detector)?;
            if !notices_nothing {
                pairs.push((engine, detector.clone()));
            }
        }
        if notices_nothing {
            pairs.push((engine, String::new()));
        }
    }
    Ok(pairs)
}

/// The runs of one setup, or how the first one failed.
fn trials(setup: &Setup, args: &CompareArgs) -> Result<Vec<Trial>, String> {
    (0..args.repeat).map(|_| trial::run(setup, &args.command)).collect()
}

/// The trial of the median, when all printed the same as the first.
fn agreed(list: &[Trial]) -> Result<Trial, String> {
    let first = list.first().ok_or("no run")?;
    match list.iter().find_map(|trial| result::difference(&first.output, &trial.output)) {
        Some((one, other)) => Err(format!("one time it printed {one:?}, another time {other:?}")),
        None => Ok(median(list)),
    }
}

/// The trial with the middle time (the earlier of two).
fn median(list: &[Trial]) -> Trial {
    let mut sorted: Vec<&Trial> = list.iter().collect();
    sorted.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    sorted[(sorted.len() - 1) / 2].clone()
}

fn examine(args: &CompareArgs, reference: &Trial, engine: EngineChoice, detector: &str) -> Line {
    let list = trials(&setup(args, engine.name, detector), args);
    let used = list.as_ref().ok().and_then(|list| list.first()).and_then(detector_used);
    let used = if detector.is_empty() { used.unwrap_or_default() } else { detector.to_string() };
    Line { engine: engine.name.to_string(), detector: used, verdict: judge(reference, list) }
}

/// What the nodes say they used; programs without pages have the detector of objects.
fn detector_used(trial: &Trial) -> Option<String> {
    match (trial.run.has_pages(), &trial.run.detector) {
        (false, _) => Some(EXPLICIT.to_string()),
        (true, name) => (!name.is_empty()).then(|| name.clone()),
    }
}

fn judge(reference: &Trial, list: Result<Vec<Trial>, String>) -> Verdict {
    match list {
        Err(why) => Verdict::Failed(why),
        Ok(list) => match list.iter().find_map(|trial| result::difference(&reference.output, &trial.output)) {
            Some((wanted, got)) => Verdict::Differs(wanted, got),
            None => Verdict::Ok(Box::new(median(&list))),
        },
    }
}

/// What it means that a program is right where the hardware keeps one memory, and wrong where `hlrc` keeps copies.
fn finding(lines: &[Line]) -> Option<String> {
    let is_right = |engine: PageEngine| {
        let mut of_engine = lines.iter().filter(|line| line.engine == engine.name()).peekable();
        of_engine.peek()?;
        Some(of_engine.all(|line| matches!(line.verdict, Verdict::Ok(_))))
    };
    let (one_copy, copies) = (PageEngine::Hardware, PageEngine::Hlrc);
    (is_right(one_copy)? && !is_right(copies)?).then(|| {
        format!(
            "the program is right under {one_copy} alone, where a write is seen at once without a lock or barrier; \
             under {copies}, as between hosts, a synchronisation is missing, or it uses the processor's atomics or \
             spins on plain variables between nodes: docs/memory-model.md; comem run --rehearse runs it so on this \
             host"
        )
    })
}

fn in_words(line: &Line) -> String {
    let detector = if line.detector.is_empty() { String::new() } else { format!(" with {}", line.detector) };
    let how = match &line.verdict {
        Verdict::Ok(_) => "ok".to_string(),
        Verdict::Differs(wanted, got) => format!("differs: printed {got:?} instead of {wanted:?}"),
        Verdict::Failed(why) => format!("failed: {why}"),
    };
    format!("{}{detector}: {how}", line.engine)
}

fn show(lines: &[Line]) -> String {
    let heads = ["<engine", "<detector", "time", "messages", "bytes", "faults", "page requests", "<verdict"];
    let mut table = Table::new(&heads);
    for line in lines {
        let mut cells = vec![line.engine.clone(), line.detector.clone()];
        match &line.verdict {
            Verdict::Ok(trial) => {
                let [messages, sent] = ["messages", "bytes"].map(|head| trial.run.message_total(head));
                let faults = trial.pages("read_faults") + trial.pages("write_faults");
                cells.extend([seconds(trial.seconds()), grouped(messages), bytes(sent), grouped(faults)]);
                cells.extend([grouped(trial.pages("page_requests")), "ok".to_string()]);
            }
            Verdict::Differs(..) => cells.extend(["", "", "", "", "", "differs"].map(str::to_string)),
            Verdict::Failed(_) => cells.extend(["", "", "", "", "", "failed"].map(str::to_string)),
        }
        table.row(cells);
    }
    table.text(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Run, tests::file};

    fn trial(output: &str) -> Trial {
        Trial { output: output.to_string(), run: Run::parse("run", &file()).unwrap() }
    }

    #[test]
    fn the_median_counts() {
        let times = [3.0, 1.0, 2.0, 9.0].map(|s| trial(&format!("time_s={s}")));
        assert_eq!(median(&times).seconds(), 2.0);
        assert_eq!(median(&times[..1]).seconds(), 3.0);
    }

    #[test]
    fn a_program_that_is_right_under_the_hardware_alone_is_found() {
        let reference = trial("sum=4");
        let line = |engine: &str, output: &str| {
            let verdict = judge(&reference, Ok(vec![trial(output)]));
            Line { engine: engine.to_string(), detector: String::new(), verdict }
        };
        let found = |outputs: [(&str, &str); 2]| finding(&outputs.map(|(engine, output)| line(engine, output)));
        let text = found([("hardware", "sum=4"), ("hlrc", "sum=3")]).expect("it lacks a barrier");
        assert!(text.contains("right under hardware alone") && text.contains("--rehearse"), "{text}");
        assert_eq!(found([("hardware", "sum=4"), ("hlrc", "sum=4")]), None);
        assert_eq!(found([("hardware", "sum=3"), ("hlrc", "sum=3")]), None, "it is wrong everywhere");
        assert_eq!(found([("hardware", "sum=4"), ("scope", "sum=3")]), None, "scope promises less");
    }

    #[test]
    fn only_right_runs_have_a_time() {
        let reference = trial("sum=4 time_s=0.5");
        let line = |list: Result<Vec<Trial>, String>| {
            let verdict = judge(&reference, list);
            Line { engine: "hlrc".to_string(), detector: "uffd".to_string(), verdict }
        };
        let text = show(&[
            line(Ok(vec![trial("sum=4 time_s=0.25")])),
            line(Ok(vec![trial("sum=4 time_s=0.25"), trial("sum=5 time_s=0.25")])),
            line(Err("exit status: 139: crashed".to_string())),
        ]);
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "hlrc uffd 250.0 ms 201 8.0 KiB 26 15 ok");
        assert_eq!(rows[1].join(" "), "hlrc uffd differs");
        assert_eq!(rows[2].join(" "), "hlrc uffd failed");
    }
}
