//! The tables, in Markdown, each number beside the paper's.

use super::Shown;
use super::paper::{self, PROGRAMS, Program};
use super::runs::{Latency, Place, Time};
use crate::table::counted;
use std::fmt::Write;

/// All tables.
pub fn text(shown: &Shown) -> String {
    let tables =
        [table_1, table_2, table_3, latencies, figure_6, figure_7, table_4, figure_8].map(|table| table(shown));
    tables.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A table under construction.
struct Table {
    text: String,
    columns: usize,
}

impl Table {
    fn new(title: &str, note: &str, columns: &[String]) -> Table {
        let mut table = Table { text: format!("## {title}\n\n{note}\n\n"), columns: columns.len() };
        table.row(columns);
        let _ = writeln!(table.text, "|---{}|", "|---:".repeat(columns.len() - 1));
        table
    }

    fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.columns, "a row has as many cells as the head: {cells:?}");
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }
}

fn head(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

/// A number with two digits, or a dash where there is none.
fn number(value: Option<f64>) -> String {
    value.map_or("–".to_string(), |value| format!("{value:.2}"))
}

fn percent((part, whole): (u64, u64)) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

fn seconds(time: Time) -> String {
    match time {
        Time::Missing => "–".to_string(),
        Time::Wrong => "WRONG".to_string(),
        Time::Seconds(s) if s < 0.1 => format!("{s:.4}"),
        Time::Seconds(s) => format!("{s:.3}"),
    }
}

/// The geometric mean of the numbers that are there.
pub fn geometric_mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let logarithms: Vec<f64> = values.flatten().map(f64::ln).collect();
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

fn mean_of_paper(value: impl Fn(&Program) -> f64) -> String {
    number(geometric_mean(PROGRAMS.iter().map(|program| Some(value(program)))))
}

fn table_1(shown: &Shown) -> String {
    let names = [
        "program",
        "the paper's size",
        "threads s",
        "checked s",
        "overhead",
        "paper",
        "pages, 1 node",
        "loads checked %",
        "paper",
        "stores checked %",
        "paper",
    ];
    let note = "One thread: the plain build, checked code on one node, and plain code on one node under hlrc, the last \
        two over the plain build. Loads and stores are counted in the programs' code, not while they run.";
    let mut table = Table::new("Table 1: overhead of the checks on one processor", note, &head(&names));
    let (plain, checked) = (shown.threads(1), shown.checked(1));
    let pages = shown.places.iter().find(|place| place.system == "pages" && place.workers() == 1);
    let overhead = |program: &Program| shown.measured.ratio(program.name, &checked, &plain);
    let of_pages = |program: &Program| shown.measured.ratio(program.name, pages?, &plain);
    for program in shown.programs() {
        let counts = shown.measured.checks.iter().find(|checks| checks.program == program.name);
        table.row(&[
            program.name.to_string(),
            program.size.to_string(),
            seconds(shown.measured.time(program.name, &plain)),
            seconds(shown.measured.time(program.name, &checked)),
            number(overhead(program)),
            number(Some(program.overhead)),
            number(of_pages(program)),
            number(counts.and_then(|counts| percent(counts.loads))),
            format!("{:.1}", program.loads_percent),
            number(counts.and_then(|counts| percent(counts.stores))),
            format!("{:.1}", program.stores_percent),
        ]);
    }
    let mut last = vec![String::new(); names.len()];
    last[0] = "geometric mean".to_string();
    last[4] = number(geometric_mean(shown.programs().map(overhead)));
    last[5] = mean_of_paper(|program| program.overhead);
    last[6] = number(geometric_mean(shown.programs().map(of_pages)));
    table.row(&last);
    table.text
}

fn table_2(shown: &Shown) -> String {
    let workers: Vec<usize> = shown.workers().into_iter().filter(|p| *p > 1).collect();
    let mut columns = vec!["program".to_string()];
    columns.extend(workers.iter().map(|p| format!("{p} threads")));
    columns.extend(["paper, 8".to_string(), "paper, 16".to_string()]);
    let note = "Checked code on one node of several threads, over as many threads of the plain build.";
    let mut table = Table::new("Table 2: overhead of the checks with several threads", note, &columns);
    let overhead =
        |program: &Program, p: usize| shown.measured.ratio(program.name, &shown.checked(p), &shown.threads(p));
    for program in shown.programs() {
        let mut row = vec![program.name.to_string()];
        row.extend(workers.iter().map(|p| number(overhead(program, *p))));
        row.extend(program.overhead_parallel.map(|overhead| number(Some(overhead))));
        table.row(&row);
    }
    let mut row = vec!["geometric mean".to_string()];
    row.extend(workers.iter().map(|p| number(geometric_mean(shown.programs().map(|program| overhead(program, *p))))));
    row.extend([0, 1].map(|i| mean_of_paper(|program| program.overhead_parallel[i])));
    table.row(&row);
    table.text
}

/// The three factors of Table 3: checks, protocol, distribution.
fn factors(shown: &Shown, program: &Program, p: usize) -> [Option<f64>; 3] {
    let direct = |backbone: &str| shown.several("direct", backbone, shown.unit, p);
    let ratio = |place: Option<Place>, base: Option<Place>| shown.measured.ratio(program.name, &place?, &base?);
    [
        ratio(Some(shown.checked(p)), Some(shown.threads(p))),
        ratio(direct("shm"), Some(shown.checked(p))),
        ratio(direct("udp"), direct("shm")),
    ]
}

fn table_3(shown: &Shown) -> String {
    let workers: Vec<usize> = shown.workers().into_iter().filter(|p| *p > 1).collect();
    let mut columns = vec!["program".to_string()];
    for p in &workers {
        columns.extend(["checks", "protocol", "distribution"].map(|what| format!("{what}, {p}")));
    }
    columns.extend(["paper: checks", "protocol", "distribution"].map(str::to_string));
    let note = "The engine direct. Checks: one node over threads. Protocol: several nodes over shm, over one node of \
        as many threads. Distribution: over udp, where a service thread emulates one-sided operations, over shm. The \
        paper: 8 processors, 2 nodes.";
    let mut table = Table::new("Table 3: what checks, protocol and distribution cost", note, &columns);
    for program in shown.programs() {
        let mut row = vec![program.name.to_string()];
        row.extend(workers.iter().flat_map(|p| factors(shown, program, *p)).map(number));
        row.extend([program.overhead_parallel[0], program.protocol, program.distribution].map(|v| number(Some(v))));
        table.row(&row);
    }
    let mut row = vec!["geometric mean".to_string()];
    for p in &workers {
        let of_programs: Vec<[Option<f64>; 3]> = shown.programs().map(|program| factors(shown, program, *p)).collect();
        row.extend([0, 1, 2].map(|i| number(geometric_mean(of_programs.iter().map(|factors| factors[i])))));
    }
    row.push(mean_of_paper(|program| program.overhead_parallel[0]));
    row.push(mean_of_paper(|program| program.protocol));
    row.push(mean_of_paper(|program| program.distribution));
    table.row(&row);
    table.text
}

fn latencies(shown: &Shown) -> String {
    let all = &shown.measured.latencies;
    let mut cases: Vec<&str> = Vec::new();
    let mut systems: Vec<(&str, &str, usize)> = Vec::new();
    for latency in all {
        let system = (latency.system.as_str(), latency.backbone.as_str(), latency.unit);
        if !cases.contains(&latency.case.as_str()) {
            cases.push(&latency.case);
        }
        if !systems.contains(&system) {
            systems.push(system);
        }
    }
    let mut columns = vec!["system".to_string(), "unit".to_string()];
    columns.extend(cases.iter().map(|case| case.replace('-', " ")));
    let note = format!(
        "Microseconds, three nodes of this host; the requester is not the home unless the case begins with `home`. The \
         paper: {}.",
        paper::LATENCY
    );
    let mut table = Table::new("Remote latencies", &note, &columns);
    for (system, backbone, unit) in systems {
        let mut row = vec![format!("{system}, {backbone}"), unit.to_string()];
        row.extend(cases.iter().map(|case| {
            let of_case = |l: &&Latency| {
                (l.system.as_str(), l.backbone.as_str(), l.unit) == (system, backbone, unit) && l.case == *case
            };
            number(all.iter().find(of_case).map(|latency| latency.ns / 1e3))
        }));
        table.row(&row);
    }
    table.text
}

fn figure_6(shown: &Shown) -> String {
    let mut tables = Vec::new();
    for p in shown.workers() {
        let places = shown.compared(p);
        let mut columns = vec!["program".to_string(), "threads".to_string()];
        columns.extend(places.iter().map(Place::name));
        columns.push("paper: DSZOOM-WF".to_string());
        let note = "Seconds of the parallel phase; in parentheses the speed against the threads (their time over \
            this). The paper: 8 processors on 2 nodes against the E6000, by Table 3.";
        let title = format!(
            "Figure 6: execution times, {}, checked code in units of {} bytes",
            counted(p, "worker"),
            shown.unit
        );
        let mut table = Table::new(&title, note, &columns);
        let base = shown.threads(p);
        let speed = |program: &Program, place: &Place| {
            shown.measured.ratio(program.name, place, &base).map(|ratio| 1.0 / ratio)
        };
        for program in shown.programs() {
            let mut row = vec![program.name.to_string(), seconds(shown.measured.time(program.name, &base))];
            row.extend(places.iter().map(|place| {
                let time = seconds(shown.measured.time(program.name, place));
                speed(program, place).map_or(time.clone(), |speed| format!("{time} ({speed:.2})"))
            }));
            row.push(number(Some(program.speed_of_two_nodes())));
            table.row(&row);
        }
        let mut row = vec!["geometric mean".to_string(), String::new()];
        row.extend(
            places.iter().map(|place| number(geometric_mean(shown.programs().map(|program| speed(program, place))))),
        );
        row.push(mean_of_paper(Program::speed_of_two_nodes));
        table.row(&row);
        tables.push(table.text);
    }
    tables.join("\n")
}

fn figure_7(shown: &Shown) -> String {
    let mut tables = Vec::new();
    for p in shown.workers().into_iter().filter(|p| *p > 1) {
        let mut columns = vec!["program".to_string(), "system".to_string()];
        columns.extend(super::BREAKDOWN.map(|(name, _)| format!("{name} %")));
        let note = "Of all threads' time from start to end, set-up included. Checks are what the program's own time \
            has of the overhead on one node of as many threads. The paper prints no numbers for this figure.";
        let title = format!("Figure 7: where the time goes, {p} workers, units of {} bytes", shown.unit);
        let mut table = Table::new(&title, note, &columns);
        for program in shown.programs() {
            for place in shown.compared(p).iter().filter(|place| place.nodes > 1) {
                let Some(shares) = shown.breakdown(program.name, place) else { continue };
                let mut row = vec![program.name.to_string(), place.name()];
                row.extend(shares.map(|share| format!("{:.0}", 100.0 * share)));
                table.row(&row);
            }
        }
        tables.push(table.text);
    }
    tables.join("\n")
}

fn table_4(shown: &Shown) -> String {
    let mut tables = Vec::new();
    let units = shown.units();
    for p in shown.workers().into_iter().filter(|p| *p > 1) {
        for place in shown.compared(p).iter().filter(|place| ["direct", "lines"].contains(&place.system.as_str())) {
            let mut columns = vec!["program".to_string()];
            columns.extend(units.iter().map(|unit| format!("{unit} bytes")));
            columns.extend(["paper: best unit", "paper: gain"].map(str::to_string));
            let title = format!("Table 4: units of coherence, {}, {p} workers", place.name());
            let note = format!(
                "Seconds; in parentheses what the unit gains over {} bytes, in percent. The paper: DSZOOM-WF, 8 \
                 processors.",
                shown.unit
            );
            let mut table = Table::new(&title, &note, &columns);
            for program in shown.programs() {
                let mut row = vec![program.name.to_string()];
                row.extend(units.iter().map(|unit| {
                    let other = Place { unit: *unit, ..place.clone() };
                    let time = seconds(shown.measured.time(program.name, &other));
                    let ratio = shown.measured.ratio(program.name, place, &other).filter(|_| *unit != shown.unit);
                    ratio.map_or(time.clone(), |ratio| format!("{time} ({:+.1})", 100.0 * (ratio - 1.0)))
                }));
                row.extend(match program.best_unit {
                    Some((unit, _, gain)) => [unit.to_string(), format!("{gain:+.1}")],
                    None => [paper::UNIT.to_string(), String::new()],
                });
                table.row(&row);
            }
            tables.push(table.text);
        }
    }
    tables.join("\n")
}

fn figure_8(shown: &Shown) -> String {
    let mut tables = Vec::new();
    for p in shown.workers().into_iter().filter(|p| *p > 1) {
        let columns = shown.speed_up_columns(p);
        let mut names = vec!["program".to_string()];
        names.extend(columns.iter().map(|(name, _)| name.clone()));
        names.push("paper: DSZOOM-WF, 8".to_string());
        let note = "One thread's time of the plain build over this time; checked code with the best of the units. The \
            paper's figure has 16 processors and no numbers; its Tables 1 and 4 give these for 8.";
        let mut table = Table::new(&format!("Figure 8: speed-ups, {p} workers"), note, &names);
        for program in shown.programs() {
            let mut row = vec![program.name.to_string()];
            row.extend(columns.iter().map(|(_, places)| number(shown.speed_up(program.name, places))));
            row.push(number(program.speed_up()));
            table.row(&row);
        }
        let mut row = vec!["geometric mean".to_string()];
        row.extend(columns.iter().map(|(_, places)| {
            number(geometric_mean(shown.programs().map(|program| shown.speed_up(program.name, places))))
        }));
        row.push(String::new());
        table.row(&row);
        tables.push(table.text);
    }
    tables.join("\n")
}
