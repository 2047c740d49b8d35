//! The demonstration's table: one row for each run.

use crate::field::{DEGREE, Difference};
use crate::stats::Totals;

/// One run.
#[derive(Clone, Debug)]
pub struct Row {
    /// The engine; `None` for the build without any Comem call.
    pub engine: Option<String>,
    /// Whether the program goes by ranges instead of cell by cell.
    pub ranges: bool,
    /// How many nodes.
    pub nodes: usize,
    /// How many iterations there was time for.
    pub iterations: usize,
    /// How long the computation took.
    pub seconds: f64,
    /// How much faster than as many iterations of the build without any Comem call.
    pub speed_up: f64,
    /// The counters; all zero without Comem.
    pub totals: Totals,
    /// How the result differs from the sequential one.
    pub difference: Difference,
    /// Cells in the result.
    pub cells: usize,
}

impl Row {
    /// The engine and the way of access, in words.
    pub fn name(&self) -> String {
        match (&self.engine, self.ranges) {
            (None, false) => "without Comem".to_string(),
            (None, true) => "without, ranges".to_string(),
            (Some(engine), false) => engine.clone(),
            (Some(engine), true) => format!("{engine}, ranges"),
        }
    }

    /// Whether the engine promises the sequential answer.
    pub fn promises(&self) -> bool {
        self.engine.as_deref() != Some("broadcast")
    }

    /// Whether the run kept its promise.
    pub fn is_good(&self) -> bool {
        self.difference.is_none() || !self.promises()
    }

    /// The result of the check, in words.
    pub fn check(&self) -> String {
        if self.engine.is_none() {
            return "the measure".to_string();
        }
        if self.difference.is_none() {
            return "same bits".to_string();
        }
        let degrees = self.difference.largest as f64 / f64::from(DEGREE);
        let share = 100.0 * self.difference.cells as f64 / self.cells.max(1) as f64;
        match self.promises() {
            true => format!("WRONG in {share:.1} %"),
            false if degrees < 0.01 => format!("{share:.1} % off, under 0.01°"),
            false => format!("{share:.1} % off, up to {degrees:.2}°"),
        }
    }

    /// The row's texts, in the order of [`HEAD`].
    pub fn texts(&self) -> [String; 9] {
        let with_comem = |text: String| if self.engine.is_some() { text } else { "–".to_string() };
        [
            self.name(),
            self.nodes.to_string(),
            self.iterations.to_string(),
            seconds(self.seconds),
            speed_up(self.speed_up),
            with_comem(grouped(self.totals.messages)),
            with_comem(bytes(self.totals.bytes)),
            with_comem(format!("{:.0} %", 100.0 * self.totals.time.waiting_share())),
            self.check(),
        ]
    }
}

/// The heads of the columns.
pub const HEAD: [&str; 9] =
    ["engine", "nodes", "iterations", "time", "speed-up", "messages", "bytes", "waiting", "check"];

/// Seconds with a unit that fits.
pub fn seconds(value: f64) -> String {
    if value >= 1.0 { format!("{value:.2} s") } else { format!("{:.1} ms", value * 1000.0) }
}

/// A speed-up; small ones keep two digits that count.
pub fn speed_up(value: f64) -> String {
    match value {
        v if v >= 0.095 => format!("{v:.2}×"),
        v if v >= 0.0095 => format!("{v:.3}×"),
        v => format!("{v:.4}×"),
    }
}

/// A number with thin gaps between groups of three digits.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A count of bytes with a unit that fits.
pub fn bytes(count: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", count as f64 / size as f64),
        None => format!("{count} B"),
    }
}

/// On which side of its column a text stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// At the left edge: words.
    Left,
    /// At the right edge: numbers.
    Right,
}

/// Rows of texts in columns, each as wide as its widest text, with a rule above the rows for which `ruled` holds.
pub fn aligned(rows: &[Vec<String>], align: impl Fn(usize) -> Align, ruled: impl Fn(usize) -> bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        if ruled(number) {
            text.push_str(&"─".repeat(widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1)));
            text.push('\n');
        }
        let cells: Vec<String> = (row.iter().zip(&widths).enumerate())
            .map(|(i, (cell, width))| match align(i) {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The table for a terminal.
pub fn text(rows: &[Row]) -> String {
    let lines: Vec<Vec<String>> =
        std::iter::once(HEAD.map(str::to_string)).chain(rows.iter().map(Row::texts)).map(Vec::from).collect();
    let align = |column| if [0, 8].contains(&column) { Align::Left } else { Align::Right };
    aligned(&lines, align, |row| row == 1 || (row > 1 && lines[row][0] != lines[row - 1][0]))
}

/// What the table shows, in sentences: the fastest run and the slowest, and why.
pub fn explain(rows: &[Row]) -> String {
    let nodes = |row: &Row| format!("{} on {}", row.name(), counted(row.nodes, "node"));
    let right = || rows.iter().filter(|row| row.engine.is_some() && row.promises() && row.nodes > 1);
    let fastest = right().max_by(|a, b| a.speed_up.total_cmp(&b.speed_up));
    let slowest = right().min_by(|a, b| a.speed_up.total_cmp(&b.speed_up));
    let (Some(fastest), Some(slowest)) = (fastest, slowest) else { return String::new() };
    let per_iteration = |row: &Row| row.totals.messages / row.iterations.max(1) as u64;
    let verdict = match fastest.speed_up > 1.0 {
        true => "more than one process without Comem",
        false => {
            "still less than one process without Comem: the sea is too small for this machine, or the machine is busy"
        }
    };
    format!(
        "Fastest of several nodes that give the right answer: {}, {} the speed, {verdict}.\n\
         It sends {} messages an iteration; {}, the slowest ({}), sends {}.",
        nodes(fastest),
        speed_up(fastest.speed_up),
        grouped(per_iteration(fastest)),
        nodes(slowest),
        speed_up(slowest.speed_up),
        grouped(per_iteration(slowest)),
    )
}

/// A number with the word for what is counted.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stats::Times;

    pub(crate) fn sample() -> Vec<Row> {
        let row = |engine: Option<&str>, nodes: usize, seconds: f64, messages: u64, wrong: usize| Row {
            engine: engine.map(str::to_string),
            ranges: false,
            nodes,
            iterations: 100,
            seconds,
            speed_up: 0.12 / seconds,
            totals: Totals {
                messages,
                bytes: messages * 71,
                time: Times {
                    compute: 0.4,
                    protocol: 0.1,
                    fetch: messages as f64 / 4e5,
                    lock: 0.0,
                    barrier: 0.1 * nodes as f64,
                },
                ..Totals::default()
            },
            difference: Difference { cells: wrong, largest: wrong as u64 * 3 },
            cells: 262_144,
        };
        vec![
            row(None, 1, 0.12, 0, 0),
            row(Some("owner"), 1, 1.1, 0, 0),
            row(Some("owner"), 2, 3.8, 204_800, 0),
            row(Some("owner"), 4, 12.3, 614_400, 0),
            row(Some("broadcast"), 1, 0.19, 0, 0),
            row(Some("broadcast"), 2, 0.31, 26_000, 2_100),
            row(Some("broadcast"), 4, 0.42, 52_000, 12_345),
            row(Some("msi"), 1, 0.17, 0, 0),
            row(Some("msi"), 2, 0.11, 1_204, 0),
            row(Some("msi"), 4, 0.16, 3_610, 0),
        ]
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((grouped(0), grouped(999)), ("0".to_string(), "999".to_string()));
        assert_eq!((bytes(12), bytes(2048), bytes(3 << 20)), ("12 B".into(), "2.0 KiB".into(), "3.0 MiB".into()));
        assert_eq!((seconds(0.0123), seconds(2.5)), ("12.3 ms".to_string(), "2.50 s".to_string()));
        assert_eq!(
            (speed_up(1.5), speed_up(0.012), speed_up(0.0012)),
            ("1.50×".into(), "0.012×".into(), "0.0012×".into())
        );
    }

    #[test]
    fn broadcast_may_differ_and_msi_may_not() {
        let mut rows = sample();
        assert!(rows.iter().all(Row::is_good));
        assert_eq!(rows[6].check(), "4.7 % off, up to 3.70°");
        rows[6].difference.largest = 1;
        assert_eq!(rows[6].check(), "4.7 % off, under 0.01°");
        rows[9].difference = Difference { cells: 1, largest: 1 };
        assert!(!rows[9].is_good() && rows[9].check().starts_with("WRONG"));
    }

    #[test]
    fn the_fastest_and_the_slowest_are_named() {
        let said = explain(&sample());
        assert!(said.contains("msi on 2 nodes, 1.09× the speed, more than one process"), "{said}");
        assert!(said.contains("sends 12 messages an iteration; owner on 4 nodes"), "{said}");
        assert!(explain(&sample()[..7]).contains("still less than one process"), "{}", explain(&sample()[..7]));
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let text = text(&sample());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("engine"));
        let end = |line: &str, part: &str| line.find(part).map(|at| line[..at + part.len()].chars().count());
        assert_eq!(end(lines[0], "speed-up"), end(lines[2], "1.00×"));
        assert_eq!(lines.len(), 1 + 10 + 4, "a rule under the head and between engines");
    }
}
