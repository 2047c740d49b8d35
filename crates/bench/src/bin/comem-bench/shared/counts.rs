//! What the programs on shared pages cost in requests, messages, signals and bytes, beside what was published.
//!
//! Counts need no quiet machine. A library that is preloaded ends each program when its parallel phase is over: the
//! check of the result reads all memory on one node, and is no part of what the papers count.

use super::kernels::Selection;
use crate::jobs::Bench;
use crate::report;
use comem_bench::job::{self, Job};
use comem_bench::stats::Stats;
use std::path::PathBuf;

/// A page.
const PAGE_BYTES: u64 = 4096;
/// Bytes on the wire for each byte of pages and diffs.
const WIRE_LIMIT: f64 = 1.1;

/// A program, and what was counted when it ran under other systems.
struct Case {
    name: &'static str,
    arguments: &'static str,
    /// Arguments of a run whose counts are taken off: what the published counts leave out.
    without: Option<&'static str>,
    /// Requests for pages and messages under JIAJIA, all nodes together, on 2 and 4 nodes.
    jiajia: [Option<(u64, u64)>; 2],
    /// Signals of a node on 8 nodes, Nautilus's best.
    signals: Option<u64>,
}

const CASES: [Case; 4] = [
    Case {
        name: "sor",
        arguments: "--rows 1792 --columns 1792 --iterations 10",
        // Filling the grid, and one iteration to warm up.
        without: Some("--rows 1792 --columns 1792 --iterations 0"),
        jiajia: [Some((39, 91)), Some((195, 505))],
        signals: Some(458),
    },
    Case {
        name: "lu",
        arguments: "--size 1792 --block 32",
        without: None,
        jiajia: [Some((4760, 9572)), Some((9863, 19955))],
        signals: Some(245),
    },
    Case {
        name: "water",
        arguments: "--preset jiajia",
        without: None,
        jiajia: [Some((416, 1690)), Some((1228, 4531))],
        signals: Some(671),
    },
    Case {
        name: "is",
        arguments: "--preset jiajia",
        without: None,
        jiajia: [Some((256, 960)), Some((610, 2223))],
        signals: None,
    },
];

const HEAD: &str = "\
| program | nodes | engine | requests | JIAJIA | messages | JIAJIA | signals of a node (most) | Nautilus on 8 | faults \
| pages fetched | ahead | diffs, bytes | sent, bytes | of pages and diffs, times | sent again | |
|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|";

impl Bench {
    /// The counts as a table; tells whether no count exceeds the published one, nor the wire its part.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn counts(&self, selection: &Selection) -> Result<bool, String> {
        let library = self.only_the_work()?;
        let mut good = true;
        report::heading("Requests, messages, signals and bytes of the programs' parallel phase, udp", &[]);
        println!("{HEAD}");
        for case in CASES.iter().filter(|c| selection.has(c.name)) {
            for engine in selection.protocols() {
                for nodes in &selection.nodes {
                    let row = self.count(selection, &library, case, (engine, *nodes))?;
                    good &= row.good;
                    println!("{}", row.text);
                }
            }
        }
        Ok(good)
    }

    fn count(
        &self,
        selection: &Selection,
        library: &str,
        case: &Case,
        (engine, nodes): (&str, usize),
    ) -> Result<Row, String> {
        let run = |arguments: &str| -> Result<Counted, String> {
            let mut program = vec!["env".to_string(), format!("LD_PRELOAD={library}")];
            program.push(self.programs.workload(case.name)?);
            program.extend(arguments.split(' ').map(str::to_string));
            let job = Job { nodes, engine: Some(engine.to_string()), flags: selection.flags("udp"), program };
            Counted::of(&self.programs.run(&job)?.stats)
        };
        let counted = match case.without {
            None => run(case.arguments)?,
            Some(without) => run(case.arguments)?.less(&run(without)?),
        };
        Ok(row(case, engine, nodes, &counted))
    }

    /// The library to preload, compiled if it is not there.
    fn only_the_work(&self) -> Result<String, String> {
        let folder = self.programs.workloads.with_file_name("bench");
        let library = folder.join("only-the-work.so");
        if !library.is_file() {
            let source = PathBuf::from("bench/pages/only-the-work.c");
            std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
            let (source, library) = (source.display().to_string(), library.display().to_string());
            job::run(&["cc", "-shared", "-fPIC", "-O2", &source, "-o", &library].map(str::to_string))?;
        }
        let whole = library.canonicalize().map_err(|e| format!("there is no {}: {e}", library.display()))?;
        Ok(whole.display().to_string())
    }
}

struct Row {
    text: String,
    good: bool,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    requests: u64,
    messages: u64,
    /// Of the node that has the most.
    signals: u64,
    faults: u64,
    pages: u64,
    ahead: u64,
    diff_bytes: u64,
    sent_bytes: u64,
    repeated: u64,
}

impl Counted {
    fn of(stats: &Stats) -> Result<Counted, String> {
        let of = |name: &str| stats.total(name);
        Ok(Counted {
            requests: of("pages/page_requests")?,
            messages: of("messages_sent")?,
            signals: stats.each_node("pages/signals")?.into_iter().max().unwrap_or(0),
            faults: of("pages/read_faults")? + of("pages/write_faults")?,
            pages: of("pages/pages_fetched")?,
            ahead: of("pages/pages_prefetched")?,
            diff_bytes: of("pages/diff_bytes")?,
            sent_bytes: of("bytes_sent")?,
            repeated: of("retransmissions")?,
        })
    }

    fn less(&self, other: &Counted) -> Counted {
        Counted {
            requests: self.requests.saturating_sub(other.requests),
            messages: self.messages.saturating_sub(other.messages),
            signals: self.signals.saturating_sub(other.signals),
            faults: self.faults.saturating_sub(other.faults),
            pages: self.pages.saturating_sub(other.pages),
            ahead: self.ahead.saturating_sub(other.ahead),
            diff_bytes: self.diff_bytes.saturating_sub(other.diff_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(other.sent_bytes),
            repeated: self.repeated.saturating_sub(other.repeated),
        }
    }

    /// Bytes on the wire for each byte of pages and diffs.
    fn wire(&self) -> f64 {
        self.sent_bytes as f64 / (self.pages * PAGE_BYTES + self.diff_bytes).max(1) as f64
    }
}

fn row(case: &Case, engine: &str, nodes: usize, counted: &Counted) -> Row {
    let published = match nodes {
        2 => case.jiajia[0],
        4 => case.jiajia[1],
        _ => None,
    };
    let most_signals = case.signals.filter(|_| nodes == 8);
    let mut more = Vec::new();
    let mut check = |name: &'static str, is_more: bool| more.extend(is_more.then_some(name));
    check("requests", published.is_some_and(|p| counted.requests > p.0));
    check("messages", published.is_some_and(|p| counted.messages > p.1));
    check("signals", most_signals.is_some_and(|most| counted.signals > most));
    check("bytes", counted.wire() > WIRE_LIMIT);
    let shown = |number: Option<u64>| number.map_or("–".to_string(), |n| n.to_string());
    let Counted { requests, messages, signals, faults, pages, ahead, diff_bytes, sent_bytes, repeated } = counted;
    let text = format!(
        "| {} {} | {nodes} | {engine} | {requests} | {} | {messages} | {} | {signals} | {} | {faults} | {pages} | \
         {ahead} | {diff_bytes} | {sent_bytes} | {:.3} | {repeated} | {} |",
        case.name,
        case.arguments,
        shown(published.map(|p| p.0)),
        shown(published.map(|p| p.1)),
        shown(most_signals),
        counted.wire(),
        if more.is_empty() { String::new() } else { format!("more {}", more.join(", ")) },
    );
    Row { text, good: more.is_empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_exceeds_the_published_counts() {
        let counted = Counted { requests: 40, messages: 90, pages: 10, sent_bytes: 40_960, ..Counted::default() };
        let row_of = |nodes| row(&CASES[0], "hlrc", nodes, &counted);
        assert!(row_of(2).text.ends_with("more requests |") && !row_of(2).good);
        assert!(row_of(4).good);
        let wasteful = Counted { sent_bytes: 50_000, ..counted };
        assert!(row(&CASES[0], "hlrc", 4, &wasteful).text.ends_with("more bytes |"));
    }

    #[test]
    fn what_a_shorter_run_costs_is_taken_off() {
        let long = Counted { requests: 44, messages: 146, ..Counted::default() };
        let short = Counted { requests: 4, messages: 28, repeated: 3, ..Counted::default() };
        assert_eq!(long.less(&short), Counted { requests: 40, messages: 118, ..Counted::default() });
    }
}
