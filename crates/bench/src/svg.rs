//! The demonstration's table as a picture: numbers, a bar for each speed-up, and a bar for where the threads' time went.
//!
//! It brings its own background and turns dark where the reader prefers that.

use crate::stats::Times;
use crate::table::{Row, bytes, grouped, seconds, speed_up};
use std::fmt::Write;

const WIDTH: usize = 1170;
const TOP: usize = 118;
const ROW: usize = 30;
const BOTTOM: usize = 62;

/// Left edges of columns of texts and bars, right edges of columns of numbers.
const ENGINE: usize = 28;
const NODES: usize = 200;
const ITERATIONS: usize = 282;
const TIME: usize = 372;
const SPEED_UP: usize = 458;
const SPEED: usize = 472;
const SPEED_WIDTH: usize = 130;
const MESSAGES: usize = 702;
const BYTES: usize = 798;
const SHARE: usize = 824;
const SHARE_WIDTH: usize = 150;
const CHECK: usize = 996;

const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:14px;fill:#1f2328;font-variant-numeric:tabular-nums}
.paper{fill:#fff;stroke:#d1d5da}.band{fill:#f5f7f9}.rule{stroke:#c4cad1}.title{font-size:19px;font-weight:600}
.soft{fill:#59636e;font-size:12.5px}.head{fill:#59636e;font-size:12.5px;font-weight:600}.right{text-anchor:end}
.engine{font-weight:600}.good{fill:#1a7f37}.bad{fill:#cf222e;font-weight:600}.off{fill:#9a6700}
.speed{fill:#3b7dd8}.one{stroke:#59636e;stroke-dasharray:3 3}
.compute{fill:#3b7dd8}.protocol{fill:#8ec5f4}.fetch{fill:#e8833a}.lock{fill:#a05195}.barrier{fill:#d9b23d}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117;stroke:#30363d}.band{fill:#161b22}
.rule{stroke:#3d444d}.soft,.head{fill:#9198a1}.good{fill:#3fb950}.bad{fill:#ff7b72}.off{fill:#d29922}.one{stroke:#9198a1}
.speed,.compute{fill:#4b8fe8}.protocol{fill:#345f8f}.fetch{fill:#e8833a}.lock{fill:#b86bad}.barrier{fill:#c9a42f}}";

/// The parts of the threads' time, in the order of the bars.
fn parts(times: &Times) -> [(&'static str, &'static str, f64); 5] {
    [
        ("compute", "program", times.compute),
        ("protocol", "Comem", times.protocol),
        ("fetch", "waiting for data", times.fetch),
        ("lock", "for locks", times.lock),
        ("barrier", "at barriers", times.barrier),
    ]
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text elements and shapes one after the other.
struct Sheet(String);

impl Sheet {
    fn text(&mut self, x: usize, y: usize, class: &str, text: &str) {
        let _ = writeln!(self.0, r#"<text x="{x}" y="{y}" class="{class}">{}</text>"#, escape(text));
    }

    fn bar(&mut self, x: f64, y: usize, width: f64, class: &str, hint: &str) {
        let hint = escape(hint);
        let _ = writeln!(
            self.0,
            r#"<rect x="{x:.1}" y="{y}" width="{width:.1}" height="14" class="{class}"><title>{hint}</title></rect>"#
        );
    }

    fn line(&mut self, from: (usize, usize), to: (usize, usize), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(self.0, r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#);
    }
}

/// The table with a title and a line below it.
pub fn picture(rows: &[Row], title: &str, below: &str) -> String {
    let height = TOP + rows.len() * ROW + BOTTOM;
    let mut sheet = Sheet(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>{STYLE}</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" class=\"paper\"/>\n",
        WIDTH - 1,
        height - 1
    ));
    sheet.text(ENGINE, 40, "title", title);
    sheet.text(ENGINE, 63, "soft", below);
    heads(&mut sheet);
    let scale = rows.iter().map(|r| r.speed_up).fold(1.0, f64::max);
    let place_of_one = SPEED + (SPEED_WIDTH as f64 / scale) as usize;
    for (number, row) in rows.iter().enumerate() {
        let top = TOP + number * ROW;
        let first = number == 0 || rows[number - 1].name() != row.name();
        if number % 2 == 0 {
            let _ = writeln!(sheet.0, r#"<rect x="12" y="{top}" width="{}" height="{ROW}" class="band"/>"#, WIDTH - 24);
        }
        if first {
            sheet.line((12, top), (WIDTH - 12, top), "rule");
        }
        draw_row(&mut sheet, row, first, top, scale);
    }
    let end = TOP + rows.len() * ROW;
    sheet.line((12, end), (WIDTH - 12, end), "rule");
    sheet.line((place_of_one, TOP), (place_of_one, end), "one");
    key(&mut sheet, end + 34);
    sheet.0.push_str("</svg>\n");
    sheet.0
}

fn heads(sheet: &mut Sheet) {
    let y = TOP - 12;
    sheet.text(ENGINE, y, "head", "engine");
    sheet.text(SHARE, y, "head", "the threads' time");
    sheet.text(CHECK, y, "head", "against sequential");
    for (x, text) in [
        (NODES, "nodes"),
        (ITERATIONS, "iterations"),
        (TIME, "time"),
        (SPEED_UP, "speed-up"),
        (MESSAGES, "messages"),
        (BYTES, "bytes"),
    ] {
        sheet.text(x, y, "head right", text);
    }
}

fn draw_row(sheet: &mut Sheet, row: &Row, first: bool, top: usize, scale: f64) {
    let base = top + 20;
    if first {
        sheet.text(ENGINE, base, "engine", &row.name());
    }
    sheet.text(NODES, base, "right", &row.nodes.to_string());
    sheet.text(ITERATIONS, base, "right", &row.iterations.to_string());
    sheet.text(TIME, base, "right", &seconds(row.seconds));
    let width = row.speed_up / scale * SPEED_WIDTH as f64;
    sheet.bar(SPEED as f64, top + 8, width.max(1.0), "speed", "speed-up");
    sheet.text(SPEED_UP, base, "right", &speed_up(row.speed_up));
    if row.engine.is_some() {
        sheet.text(MESSAGES, base, "right", &grouped(row.totals.messages));
        sheet.text(BYTES, base, "right", &bytes(row.totals.bytes));
        share_bar(sheet, &row.totals.time, top + 8);
    }
    let class = match (row.is_good(), row.difference.is_none()) {
        (false, _) => "bad",
        (true, true) => "good",
        (true, false) => "off",
    };
    sheet.text(CHECK, base, if row.engine.is_some() { class } else { "soft" }, &row.check());
}

fn share_bar(sheet: &mut Sheet, times: &Times, top: usize) {
    let sum = times.sum();
    if sum <= 0.0 {
        return;
    }
    let mut x = SHARE as f64;
    for (class, name, part) in parts(times).into_iter().filter(|(_, _, part)| *part > 0.0) {
        let width = part / sum * SHARE_WIDTH as f64;
        sheet.bar(x, top, width, class, &format!("{name}: {:.1} %", 100.0 * part / sum));
        x += width;
    }
}

fn key(sheet: &mut Sheet, y: usize) {
    sheet.text(ENGINE, y, "soft", "The threads' time:");
    let mut x = ENGINE + 122;
    for (class, name, _) in parts(&Times::default()) {
        sheet.bar(x as f64, y - 11, 14.0, class, name);
        sheet.text(x + 20, y, "soft", name);
        x += 42 + name.len() * 7;
    }
    sheet.text(WIDTH - ENGINE, y, "soft right", "Dashes: the build without any Comem call.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::sample;

    #[test]
    fn every_run_is_in_the_picture() {
        let rows = sample();
        let picture = picture(&rows, "sea", "512 < 1024 & more");
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        assert!(picture.contains("512 &lt; 1024 &amp; more"));
        for row in &rows {
            assert!(picture.contains(&format!(">{}</text>", row.check())), "{}", row.check());
            assert!(picture.contains(&format!(">{}</text>", seconds(row.seconds))));
        }
        assert_eq!(picture.matches(r#"class="speed""#).count(), rows.len());
    }

    #[test]
    fn no_bar_leaves_its_column() {
        let picture = picture(&sample(), "sea", "");
        for line in picture.lines().filter(|l| l.starts_with("<rect") && l.contains("speed")) {
            let number = |name: &str| -> f64 {
                let rest = line.split(&format!("{name}=\"")).nth(1).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            };
            assert!(number(" x") + number("width") <= (SPEED + SPEED_WIDTH) as f64 + 0.1, "{line}");
        }
    }
}
