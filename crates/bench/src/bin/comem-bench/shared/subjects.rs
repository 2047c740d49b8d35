//! The jobs of two nodes that measure shared pages, and what their numbers mean.

use super::cached_barrier::Sizes;
use super::interval::CACHED_PAGES;
use crate::jobs::{BOTH, Bench, PAIRS, Way, numbers};
use crate::report::{self, Figure};
use comem_bench::job::{Job, Outcome};
use comem_bench::sample::{Comparison, Finding, median};
use serde_json::Value;

/// How to find accesses: all that `comem run --detector` takes for pages.
const DETECTORS: [&str; 3] = ["uffd-async", "uffd", "mprotect"];

/// Parts of a measurement of fetches.
const PARTS: [(&str, &str); 2] = [("fresh", "a page that never was here"), ("again", "a page written again")];

/// What a page is compared with: what one would write where memory is shared, and where it is not.
const COPY: &str = "a copy of 4 KiB within memory";
const EXCHANGE: &str = "a bare UDP exchange of 64 B and 4 KiB";

/// What pages in order are compared with.
pub(super) fn stream_baseline(backbone: &str) -> &'static str {
    match backbone {
        "shm" => "a copy of as many bytes within memory",
        _ => "a stream of plain datagrams (GSO, two runs of 60 pages)",
    }
}

/// How much to measure.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Effort {
    /// Blocks of each measurement [default: as many as the subject needs for steady medians]
    #[arg(long)]
    pub blocks: Option<usize>,
    /// Operations in a block [default: likewise]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Backbones
    #[arg(long, value_enum, default_value_t = Backbones::Both)]
    pub backbones: Backbones,
}

/// Of how large copies to measure the memory.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Copies {
    /// How much of the other node's memory is read, then written, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub mebibytes: u32,
    /// Backbones
    #[arg(long, value_enum, default_value_t = Backbones::Both)]
    pub backbones: Backbones,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { mebibytes: 64, backbones: Backbones::Both }
    }
}

/// Which backbones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Backbones {
    /// udp alone.
    Udp,
    /// shm alone.
    Shm,
    /// Both.
    #[default]
    Both,
}

impl Backbones {
    /// Their names.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Backbones::Udp => &["udp"],
            Backbones::Shm => &["shm"],
            Backbones::Both => &["udp", "shm"],
        }
    }
}

/// What a job is told, and what for.
pub(super) struct Case<'a> {
    pub what: &'a str,
    pub flags: Vec<&'a str>,
    pub task: Vec<String>,
}

/// A job's numbers and counters.
pub(super) struct Measured {
    value: Value,
    outcome: Outcome,
    pub command: Vec<String>,
}

impl Measured {
    pub fn list(&self, name: &str) -> Result<Vec<f64>, String> {
        numbers(&self.value, name).ok_or_else(|| format!("the node printed no {name}"))
    }

    /// The comparison in a part of the measurement: under `shm` with a copy of the bytes, which nodes that share memory
    /// can do, else with plain datagrams.
    pub fn comparison(&self, part: &str, backbone: &str) -> Result<Comparison, String> {
        let value = &self.value[part];
        let list = |name: &str| numbers(value, name).ok_or_else(|| format!("the node printed no {part}.{name}"));
        let per_block = value["per_block"].as_u64().unwrap_or(1) as usize;
        let base = if backbone == "shm" { "copied" } else { "base" };
        Ok(Comparison { ours: list("ours")?, base: list(base)?, per_block })
    }

    pub fn number(&self, name: &str) -> Result<f64, String> {
        self.value[name].as_f64().ok_or_else(|| format!("the node printed no {name}"))
    }

    /// A counter of node 0.
    fn of_node_zero(&self, name: &str) -> Result<f64, String> {
        Ok(self.outcome.stats.each_node(name)?.first().copied().unwrap_or(0) as f64)
    }
}

impl Effort {
    /// The options of a node's task; where nothing was asked for, so many blocks and rounds.
    pub fn words(&self, blocks: usize, rounds: usize) -> Vec<String> {
        let (blocks, rounds) = (self.blocks.unwrap_or(blocks), self.rounds.unwrap_or(rounds));
        ["--blocks".to_string(), blocks.to_string(), "--rounds".to_string(), rounds.to_string()].to_vec()
    }
}

impl Bench {
    pub(super) fn measure(&self, case: &Case<'_>) -> Result<Measured, String> {
        let mut program = self.own_words(&["node", case.what]);
        program.extend(case.task.iter().cloned());
        let flags = case.flags.iter().map(|f| f.to_string()).collect();
        let job = Job { nodes: 2, engine: Some("hlrc".to_string()), flags, program };
        let outcome = self.programs.run(&job)?;
        Ok(Measured { value: self.value(&outcome.output)?, outcome, command: self.whole_command(&job) })
    }

    /// A page fetched by a fault, against an exchange of 64 bytes for 4 KiB.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn pages(&self, effort: Effort) -> Result<bool, String> {
        let mut all = Report::default();
        for (wait, how) in BOTH {
            for detector in DETECTORS {
                let words = ["--wait", wait, "--detector", detector];
                for backbone in effort.backbones.names() {
                    self.scattered(&mut all, effort, (backbone, how), &words, false)?;
                }
            }
        }
        for backbone in effort.backbones.names() {
            self.scattered(&mut all, effort, (backbone, "auto"), &["--wait", "auto"], true)?;
        }
        Ok(all.print("A scattered page by a fault"))
    }

    fn scattered(
        &self,
        all: &mut Report,
        effort: Effort,
        (backbone, how): (&str, &str),
        words: &[&str],
        busy: bool,
    ) -> Result<(), String> {
        let mut case = Case { what: "pages", flags: words.to_vec(), task: effort.words(40, 200) };
        case.flags.extend(["--backbone", backbone, "--auth", "off"]);
        case.task.extend(busy.then(|| "--busy".to_string()));
        let got = self.measure(&case)?;
        let detector = words.get(3).copied().unwrap_or("best detector");
        let cores = if busy { ", every core computing" } else { "" };
        let usual = detector == DETECTORS[0] && !busy;
        for (part, which) in PARTS {
            let name = format!("{which} by a scattered fault, {backbone}, {detector}, {how}{cores}");
            let comparison = got.comparison(part, backbone)?;
            let most = (backbone == "shm" && usual && how == "spinning").then_some(7.0);
            let p99 = numbers(&got.value[part], "p99").unwrap_or(vec![f64::NAN; 2]);
            all.figures.extend([
                Figure { what: format!("{name}: median"), value: median(&comparison.ours), unit: "us", most },
                Figure { what: format!("{name}: 99 of 100 are faster than"), value: p99[0], unit: "us", most: None },
                Figure { what: "the same of a bare UDP exchange".to_string(), value: p99[1], unit: "us", most: None },
            ]);
            let aim = if how == "spinning" { 2.2 } else { 1.4 };
            all.findings.push(Finding {
                what: format!("{name}, against {}", if backbone == "shm" { COPY } else { EXCHANGE }),
                unit: "us",
                comparison,
                limit: (backbone == "udp" && usual).then_some(aim),
            });
        }
        let value = got.of_node_zero("pages/page_requests")? / got.number("touched")?;
        let what = format!("{backbone}, {detector}, {how}{cores}: requests for a touched page");
        all.figures.push(Figure { what, value, unit: "", most: Some(1.001) });
        all.commands.push(got.command);
        Ok(())
    }

    /// 64 MiB in order, against a stream of plain datagrams.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn stream(&self, effort: Effort) -> Result<bool, String> {
        let mut all = Report::default();
        for (wait, how) in BOTH {
            for backbone in effort.backbones.names() {
                let flags = vec!["--wait", wait, "--backbone", *backbone, "--auth", "off"];
                let got = self.measure(&Case { what: "stream", flags, task: effort.words(5, 1) })?;
                let (touched, spinning) = (got.number("touched")?, how == "spinning");
                for (part, which) in PARTS {
                    let comparison = got.comparison(part, backbone)?;
                    let name = format!("64 MiB in order, {which}, {backbone}, {how}");
                    let most = (*backbone == "shm" && spinning).then_some(1.3);
                    let value = median(&comparison.ours);
                    all.figures.push(Figure { what: name.clone(), value, unit: "us", most });
                    let what = format!("{name}, against {}", stream_baseline(backbone));
                    let limit = (*backbone == "udp" && spinning).then_some(1.4);
                    all.findings.push(Finding { what, unit: "us", comparison, limit });
                }
                for (what, counter) in [("requests", "pages/page_requests"), ("signals", "pages/signals")] {
                    let what = format!("{backbone}, {how}: {what} for a page");
                    let value = got.of_node_zero(counter)? / touched;
                    all.figures.push(Figure { what, value, unit: "", most: None });
                }
                all.commands.push(got.command);
            }
        }
        Ok(all.print("Pages in order"))
    }

    /// Pages that a barrier invalidated: by one request, against a fault for each.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn refetch(&self, effort: Effort) -> Result<bool, String> {
        let mut all = Report::default();
        for (wait, how) in BOTH {
            for pages in [1, 4, 14] {
                self.refetched(&mut all, effort, (wait, how), pages)?;
            }
        }
        Ok(all.print("Pages that a barrier invalidated"))
    }

    fn refetched(&self, all: &mut Report, effort: Effort, (wait, how): Way, pages: u16) -> Result<(), String> {
        let mut comparison = Comparison { per_block: 1, ..Comparison::default() };
        let mut last = Vec::new();
        let pairs = if effort.blocks.is_some() { 1 } else { PAIRS };
        for _ in 0..pairs {
            last.clear();
            for prefetch in ["on", "off"] {
                let flags = vec!["--backbone", "udp", "--wait", wait, "--prefetch", prefetch, "--auth", "off"];
                let mut task = effort.words(10, 100);
                task.extend(["--pages".to_string(), pages.to_string()]);
                last.push(self.measure(&Case { what: "refetch", flags, task })?);
            }
            let cost = |got: &Measured| -> Result<f64, String> {
                Ok((median(&got.list("with")?) - median(&got.list("without")?)) / f64::from(pages))
            };
            comparison.push(cost(&last[0])?, cost(&last[1])?);
        }
        let limit = (pages == 14).then_some(0.5);
        let what = format!("{pages} pages that were in use, {how}: a page by one request against a fault");
        all.findings.push(Finding { what, unit: "us", comparison, limit });
        for (got, way) in last.into_iter().zip(["by one request", "by faults"]) {
            let rounds = got.number("rounds")?;
            for (counter, name) in [("pages/page_requests", "requests"), ("pages/read_faults", "faults of loads")] {
                let what = format!("{pages} pages {way}, {how}: {name} in a round");
                let value = got.of_node_zero(counter)? / rounds;
                all.figures.push(Figure { what, value, unit: "", most: None });
            }
            all.commands.push(got.command);
        }
        Ok(())
    }

    /// Acquiring a lock that was last held here.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn relock(&self, effort: Effort) -> Result<bool, String> {
        let mut all = Report::default();
        let blocks = effort.blocks.unwrap_or(40);
        let run = |blocks: usize| {
            let mut task = Effort { blocks: Some(blocks), ..effort }.words(blocks, 300);
            task.extend(["--pages".to_string(), "100".to_string()]);
            self.measure(&Case { what: "relock", flags: vec!["--backbone", "udp", "--auth", "off"], task })
        };
        let (got, few) = (run(blocks)?, run(blocks.div_ceil(4))?);
        let pair = |first: &str, second: &str| -> Result<Comparison, String> {
            Ok(Comparison {
                ours: got.list(first)?,
                base: got.list(second)?,
                per_block: 32 * effort.rounds.unwrap_or(300),
            })
        };
        for (what, ours, base) in [("acquire", "acquire", "plain_acquire"), ("release", "release", "plain_release")] {
            let comparison = pair(ours, base)?;
            let most = (what == "acquire").then_some(150.0);
            let name = format!("{what} a lock last held here, 100 written of {CACHED_PAGES} cached pages");
            all.figures.push(Figure { what: name.clone(), value: median(&comparison.ours), unit: "ns", most });
            let what = format!("{name}, against a mutex of pthreads");
            all.findings.push(Finding { what, unit: "ns", comparison, limit: None });
        }
        // What grows with the number of operations belongs to them; the rest to start-up.
        let more = got.number("operations")? - few.number("operations")?;
        for (counter, name) in [("messages_sent", "messages"), ("lock_remote", "locks fetched")] {
            let value = (got.of_node_zero(counter)? - few.of_node_zero(counter)?).max(0.0);
            let what = format!("{name} of {more} more acquisitions");
            all.figures.push(Figure { what, value, unit: "", most: Some(more / 1000.0) });
        }
        all.commands.push(got.command);
        Ok(all.print("A lock last held here"))
    }

    /// Closing an interval.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn release(&self, effort: Effort) -> Result<bool, String> {
        let mut all = Report::default();
        let mut rows = Vec::new();
        for whole in [false, true] {
            for pages in [1_u16, 10, 100, 1000] {
                let mut task = effort.words(10, 100);
                task.extend(["--pages".to_string(), pages.to_string()]);
                task.extend(whole.then(|| "--whole".to_string()));
                let flags = vec!["--backbone", "shm", "--wait", "spin", "--auth", "off"];
                let got = self.measure(&Case { what: "release", flags, task })?;
                rows.push(release_row(&got, pages, whole)?);
                all.commands.push(got.command);
            }
        }
        report::heading("Closing an interval", &all.commands);
        println!(
            "| written of {CACHED_PAGES} cached pages | | more than nothing written, us | a page, us | nothing \
             written, us | nothing cached, us | diffs, bytes | write faults \
             |\n|---:|---|---:|---:|---:|---:|---:|---:|"
        );
        rows.iter().for_each(|row| println!("{row}"));
        Ok(true)
    }

    /// What a process takes of the machine's memory.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn memory(&self, copies: &Copies) -> Result<bool, String> {
        let mut all = Report::default();
        for backbone in copies.backbones.names() {
            for detector in DETECTORS {
                let flags = vec!["--backbone", backbone, "--detector", detector, "--auth", "off"];
                let pages = copies.mebibytes as usize * 256;
                let task = vec!["--cached".to_string(), pages.to_string()];
                let got = self.measure(&Case { what: "memory", flags, task })?;
                footprints(&mut all, &got, &format!("{backbone}, {detector}"))?;
                all.commands.push(got.command);
            }
        }
        Ok(all.print(&format!("Memory, with copies of {} MiB", copies.mebibytes)))
    }

    /// Everything about shared pages between two nodes.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn shared_pages(&self, effort: Effort) -> Result<bool, String> {
        let mut good = self.pages(effort)?;
        good &= self.stream(effort)? & self.refetch(effort)? & self.relock(effort)?;
        good &= self.release(effort)? & self.first_touch(effort)?;
        Ok(good & self.cached_barrier(&Sizes::default())? & self.memory(&Copies::default())?)
    }
}

/// What a node takes for a byte of its copies, and for a large allocation. A copy that is only read can do with one
/// page; one that is written has a twin beside it.
fn footprints(all: &mut Report, got: &Measured, how: &str) -> Result<(), String> {
    let cached = got.number("cached")?;
    let of = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
    let takes = |value: &Value| of(value, "own") + of(value, "files") + of(value, "tables");
    for (what, most) in [("read", 1.1), ("written", 2.2)] {
        let value = &got.value[what];
        let name = |part: &str| format!("a cached byte, {what}, {how}: {part}");
        all.figures.push(Figure { what: name("all"), value: takes(value) / cached, unit: "B", most: Some(most) });
        for part in ["own", "files", "tables", "resident"] {
            let value = of(value, part) / cached;
            all.figures.push(Figure { what: name(part), value, unit: "B", most: None });
        }
    }
    for (spread, value) in got.value["large"].as_object().into_iter().flatten() {
        let what = |name: &str| format!("30 GB, of which this node touches 20 MB {spread}, {how}: {name}");
        let (touched, takes) = (of(value, "touched"), takes(&value["takes"]));
        all.figures.extend([
            Figure { what: what("memory taken"), value: takes / 1e6, unit: "MB", most: None },
            Figure { what: what("for each touched byte"), value: takes / touched, unit: "B", most: None },
            Figure { what: what("allocation"), value: of(value, "allocated_us"), unit: "us", most: None },
        ]);
    }
    Ok(())
}

fn release_row(got: &Measured, pages: u16, whole: bool) -> Result<String, String> {
    let middle = |name: &str| -> Result<f64, String> { Ok(median(&got.list(name)?)) };
    let (with, without, empty) = (middle("with")?, middle("without")?, middle("nothing_cached")?);
    let rounds = got.number("rounds")?;
    let each = |counter: &str| -> Result<f64, String> { Ok(got.of_node_zero(counter)? / rounds) };
    Ok(format!(
        "| {pages} | {} | {:.1} | {:.2} | {without:.1} | {empty:.1} | {:.0} | {:.2} |",
        if whole { "whole" } else { "a word" },
        with - without,
        (with - without) / f64::from(pages),
        each("pages/diff_bytes")?,
        each("pages/write_faults")?,
    ))
}

/// What is gathered for a subject's tables.
#[derive(Default)]
pub(super) struct Report {
    pub commands: Vec<Vec<String>>,
    pub findings: Vec<Finding>,
    pub figures: Vec<Figure>,
}

impl Report {
    pub fn print(&self, title: &str) -> bool {
        let mut good = true;
        report::heading(title, &self.commands);
        if !self.findings.is_empty() {
            good = report::table(&self.findings);
            println!();
        }
        report::figures(&self.figures) && good
    }
}
