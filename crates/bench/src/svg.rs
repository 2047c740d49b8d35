//! The demonstration's table as a picture: numbers, a bar for each speed-up, and a bar for where the threads' time
//! went.
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
const ENGINE: f64 = 28.0;
const NODES: f64 = 200.0;
const ITERATIONS: f64 = 282.0;
const TIME: f64 = 372.0;
const SPEED_UP: f64 = 458.0;
const SPEED: f64 = 472.0;
const SPEED_WIDTH: f64 = 130.0;
const MESSAGES: f64 = 702.0;
const BYTES: f64 = 798.0;
const SHARE: f64 = 824.0;
const SHARE_WIDTH: f64 = 150.0;
const CHECK: f64 = 996.0;
/// Height of a bar.
const BAR: f64 = 14.0;

const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:14px;fill:#1f2328;
font-variant-numeric:tabular-nums}
.paper{fill:#fff;stroke:#d1d5da}.band{fill:#f5f7f9}.rule{stroke:#c4cad1}.title{font-size:19px;font-weight:600}
.soft{fill:#59636e;font-size:12.5px}.head{fill:#59636e;font-size:12.5px;font-weight:600}
.right{text-anchor:end}.middle{text-anchor:middle}
.engine{font-weight:600}.good{fill:#1a7f37}.bad{fill:#cf222e;font-weight:600}.off{fill:#9a6700}
.speed{fill:#3b7dd8}.one{stroke:#59636e;stroke-dasharray:3 3}
.compute{fill:#3b7dd8}.protocol{fill:#8ec5f4}.fetch{fill:#e8833a}.lock{fill:#a05195}.barrier{fill:#d9b23d}
.grid{stroke:#e3e7eb}.loses{fill:#f3f0ec}.curve{fill:none;stroke-width:2.5}.dot{stroke:none}.label{font-weight:600}
.k0{stroke:#3b7dd8;fill:#3b7dd8}.k1{stroke:#e8833a;fill:#e8833a}.k2{stroke:#a05195;fill:#a05195}
.k3{stroke:#2a9d6f;fill:#2a9d6f}
.k4{fill:#d9b23d}.k5{fill:#6b7a89}.k6{fill:#cf4a5a}.k7{fill:#8ec5f4}rect.k0,rect.k1,rect.k2,rect.k3{stroke:none}
.small{font-size:9.5px;fill:#59636e}
.curve.k0,.curve.k1,.curve.k2,.curve.k3{fill:none}.t0{fill:#2a65b5}.t1{fill:#b85c16}.t2{fill:#86407b}.t3{fill:#1f7a56}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117;stroke:#30363d}.band{fill:#161b22}
.rule{stroke:#3d444d}.soft,.head{fill:#9198a1}.good{fill:#3fb950}.bad{fill:#ff7b72}
.off{fill:#d29922}.one{stroke:#9198a1}
.grid{stroke:#21262d}.loses{fill:#161b22}.t0{fill:#79b0f5}.t1{fill:#f0a56b}.t2{fill:#d39acb}.t3{fill:#5cc79a}
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
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where what stands below the title and the line under it may begin.
pub(crate) const BOTTOM_OF_TITLE: usize = 78;

/// A picture under construction: text elements and shapes one after the other. Lengths are in pixels from the upper
/// left corner.
pub(crate) struct Sheet(String);

impl Sheet {
    /// A sheet with its background, a title and a line below it.
    pub(crate) fn new(width: usize, height: usize, title: &str, below: &str) -> Sheet {
        let mut sheet = Sheet(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n\
             <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" class=\"paper\"/>\n",
            escape(title),
            width - 1,
            height - 1
        ));
        sheet.text(ENGINE, 40.0, "title", title);
        sheet.text(ENGINE, 63.0, "soft", below);
        sheet
    }

    /// A text whose base line begins there, or ends or has its middle there, by its class.
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.0, r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{}</text>"#, escape(text));
    }

    /// A rectangle; `hint` is shown when a pointer rests on it.
    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str, hint: &str) {
        let hint = escape(hint);
        let _ = write!(self.0, r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" "#);
        let _ = writeln!(self.0, r#"class="{class}"><title>{hint}</title></rect>"#);
    }

    /// A straight line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(self.0, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#);
    }

    /// A line through points.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.0, r#"<polyline points="{}" class="curve {class}"/>"#, points.join(" "));
    }

    /// A point of a curve.
    pub(crate) fn dot(&mut self, (x, y): (f64, f64), class: &str, hint: &str) {
        let hint = escape(hint);
        let _ = writeln!(
            self.0,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" class="dot {class}"><title>{hint}</title></circle>"#
        );
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// The table with a title and a line below it.
pub fn picture(rows: &[Row], title: &str, below: &str) -> String {
    let height = TOP + rows.len() * ROW + BOTTOM;
    let mut sheet = Sheet::new(WIDTH, height, title, below);
    heads(&mut sheet);
    let (left, right) = (12.0, (WIDTH - 12) as f64);
    let scale = rows.iter().map(|r| r.speed_up).fold(1.0, f64::max);
    let place_of_one = SPEED + SPEED_WIDTH / scale;
    for (number, row) in rows.iter().enumerate() {
        let top = (TOP + number * ROW) as f64;
        let first = number == 0 || rows[number - 1].name() != row.name();
        if number % 2 == 0 {
            sheet.rect((left, top), (right - left, ROW as f64), "band", &row.name());
        }
        if first {
            sheet.line((left, top), (right, top), "rule");
        }
        draw_row(&mut sheet, row, first, top, scale);
    }
    let end = (TOP + rows.len() * ROW) as f64;
    sheet.line((left, end), (right, end), "rule");
    sheet.line((place_of_one, TOP as f64), (place_of_one, end), "one");
    key(&mut sheet, end + 34.0);
    sheet.finish()
}

fn heads(sheet: &mut Sheet) {
    let y = TOP as f64 - 12.0;
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

fn draw_row(sheet: &mut Sheet, row: &Row, first: bool, top: f64, scale: f64) {
    let base = top + 20.0;
    if first {
        sheet.text(ENGINE, base, "engine", &row.name());
    }
    sheet.text(NODES, base, "right", &row.nodes.to_string());
    sheet.text(ITERATIONS, base, "right", &row.iterations.to_string());
    sheet.text(TIME, base, "right", &seconds(row.seconds));
    let width = (row.speed_up / scale * SPEED_WIDTH).max(1.0);
    sheet.rect((SPEED, top + 8.0), (width, BAR), "speed", &format!("speed-up {}", speed_up(row.speed_up)));
    sheet.text(SPEED_UP, base, "right", &speed_up(row.speed_up));
    if row.engine.is_some() {
        sheet.text(MESSAGES, base, "right", &grouped(row.totals.messages));
        sheet.text(BYTES, base, "right", &bytes(row.totals.bytes));
        share_bar(sheet, &row.totals.time, top + 8.0);
    }
    let class = match (row.is_good(), row.difference.is_none()) {
        (false, _) => "bad",
        (true, true) => "good",
        (true, false) => "off",
    };
    sheet.text(CHECK, base, if row.engine.is_some() { class } else { "soft" }, &row.check());
}

fn share_bar(sheet: &mut Sheet, times: &Times, top: f64) {
    let sum = times.sum();
    if sum <= 0.0 {
        return;
    }
    let mut x = SHARE;
    for (class, name, part) in parts(times).into_iter().filter(|(_, _, part)| *part > 0.0) {
        let width = part / sum * SHARE_WIDTH;
        sheet.rect((x, top), (width, BAR), class, &format!("{name}: {:.1} %", 100.0 * part / sum));
        x += width;
    }
}

fn key(sheet: &mut Sheet, y: f64) {
    sheet.text(ENGINE, y, "soft", "The threads' time:");
    let mut x = ENGINE + 122.0;
    for (class, name, _) in parts(&Times::default()) {
        sheet.rect((x, y - 11.0), (14.0, BAR), class, name);
        sheet.text(x + 20.0, y, "soft", name);
        x += 40.0 + name.len() as f64 * 7.4;
    }
    sheet.text(WIDTH as f64 - ENGINE, y, "soft right", "Dashes: the build without any Comem call.");
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
            assert!(number(" x") + number("width") <= SPEED + SPEED_WIDTH + 0.1, "{line}");
        }
    }
}
