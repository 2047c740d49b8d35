//! Tables for a terminal, and numbers that people can read.

/// Longer cells lose their middle.
const CELL_CHARS: usize = 1000;

/// Which side a column's entries keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// Rows of texts under heads.
#[derive(Clone, Debug)]
pub struct Table {
    heads: Vec<(String, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns: a head that begins with `<` names a column of texts, any other one of numbers.
    pub fn new(heads: &[&str]) -> Table {
        let head = |head: &&str| match head.strip_prefix('<') {
            Some(text) => (one_line(text), Side::Left),
            None => (one_line(head), Side::Right),
        };
        Table { heads: heads.iter().map(head).collect(), rows: Vec::new() }
    }

    /// Adds a row; what is missing stays empty.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.heads.len(), String::new());
        self.rows.push(cells.iter().map(|cell| shortened(&one_line(cell), CELL_CHARS)).collect());
    }

    /// The lines, two blanks between columns, `indent` blanks in front.
    pub fn text(&self, indent: usize) -> String {
        let width_of = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.heads[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width_of).collect();
        let line = |cells: Vec<&str>| {
            let mut line = " ".repeat(indent);
            for (column, cell) in cells.into_iter().enumerate() {
                let width = widths[column];
                let gap = if column > 0 { "  " } else { "" };
                line += &match self.heads[column].1 {
                    Side::Left => format!("{gap}{cell:<width$}"),
                    Side::Right => format!("{gap}{cell:>width$}"),
                };
            }
            line.trim_end().to_string() + "\n"
        };
        let heads = line(self.heads.iter().map(|(head, _)| head.as_str()).collect());
        heads + &self.rows.iter().map(|row| line(row.iter().map(String::as_str).collect())).collect::<String>()
    }
}

/// A text of at most so many characters, without its middle if it was longer.
pub fn shortened(text: &str, most: usize) -> String {
    let chars = text.chars().count();
    if chars <= most {
        return text.to_string();
    }
    let (front, behind) = (most / 2, most - most / 2 - 1);
    text.chars().take(front).chain(['…']).chain(text.chars().skip(chars - behind)).collect()
}

/// A text from elsewhere as part of one line: line ends, and whatever else a terminal would obey, are written out.
pub fn one_line(text: &str) -> String {
    text.chars().fold(String::new(), |mut line, c| {
        match comem::error::steers(c) {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
        line
    })
}

/// A JSON text in which no character would steer a terminal: JSON itself lets some through.
pub fn plain_json(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut plain, c| {
        match comem::error::steers(c) && c != '\n' {
            true => plain += &format!("\\u{:04x}", u32::from(c)),
            false => plain.push(c),
        }
        plain
    })
}

/// A count with a comma between thousands.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 node`, `4 nodes`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A number of bytes with its unit, by powers of two.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Seconds with as many digits as a person reads.
pub fn seconds(value: f64) -> String {
    match value {
        v if v < 0.001 => format!("{:.0} us", v * 1e6),
        v if v < 1.0 => format!("{:.1} ms", v * 1e3),
        v => format!("{v:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_entry() {
        let mut table = Table::new(&["<name", "count"]);
        table.row(vec!["a".to_string(), "1,000,000".to_string()]);
        table.row(vec!["long name".to_string()]);
        assert_eq!(table.text(2), "  name           count\n  a          1,000,000\n  long name\n");
    }

    #[test]
    fn long_cells_lose_their_middle() {
        assert_eq!([shortened("abcdef", 6), shortened("abc\u{e4}efg", 6)], ["abcdef", "abc…fg"]);
        let mut table = Table::new(&["<name"]);
        table.row(vec!["x".repeat(100_000)]);
        assert_eq!(table.text(0).lines().nth(1).map(|line| line.chars().count()), Some(CELL_CHARS));
    }

    #[test]
    fn names_cannot_break_a_line_or_steer_the_terminal() {
        let mut table = Table::new(&["<name"]);
        table.row(vec!["a\nb\u{1b}[31mc \u{e4}".to_string()]);
        assert_eq!(table.text(0), "name\na\\nb\\u{1b}[31mc \u{e4}\n");
    }

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        assert_eq!(
            ["0", "999", "1,000", "12,345,678"],
            [0, 999, 1000, 12_345_678].map(grouped).each_ref().map(|s| &s[..])
        );
        assert_eq!([bytes(1023), bytes(1024), bytes(3 << 29)], ["1023 B", "1.0 KiB", "1.5 GiB"]);
        assert_eq!([seconds(0.0000123), seconds(0.25), seconds(12.345)], ["12 us", "250.0 ms", "12.35 s"]);
    }
}
