//! Pictures as SVG texts: a sheet with its own background that turns dark where the reader prefers that.

use crate::failure::{Failure, Outcome};
use crate::table::one_line;
use std::fmt::Write;
use std::path::Path;

/// Colours that can be told apart, also by people who see few; the sheet's style gives them their names `c0` to `c7`.
pub const COLOURS: usize = 8;

const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:13px;fill:#1f2328;
font-variant-numeric:tabular-nums}
.paper{fill:#fff;stroke:#d1d5da}.rule{stroke:#8b949e}.grid{stroke:#dde1e6}.title{font-size:18px;font-weight:600}
.soft{fill:#59636e;font-size:12px}.right{text-anchor:end}.middle{text-anchor:middle}
.c0{fill:#3b7dd8;stroke:#3b7dd8}.c1{fill:#e8833a;stroke:#e8833a}.c2{fill:#a05195;stroke:#a05195}
.c3{fill:#d9b23d;stroke:#d9b23d}
.c4{fill:#8ec5f4;stroke:#8ec5f4}.c5{fill:#6b7a89;stroke:#6b7a89}.c6{fill:#2a9d6f;stroke:#2a9d6f}
.c7{fill:#cf4a5a;stroke:#cf4a5a}
.idle{fill:#e4e7eb}
rect{stroke-width:0}polyline{stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117;stroke:#30363d}.grid{stroke:#252c35}
.soft{fill:#9198a1}.c4{fill:#345f8f;stroke:#345f8f}.idle{fill:#20262e}}";

/// A picture under construction; lengths are in pixels, from the upper left corner.
pub struct Sheet {
    text: String,
}

/// Makes a text safe between tags and quotes. What no XML may hold, not even as a number, is written out.
pub fn escape(text: &str) -> String {
    let text = one_line(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Refuses a file whose name says that it is something else than an SVG picture: others would take it for that.
///
/// # Errors
/// It ends in another kind's name.
pub fn check_name(flag: &str, path: &Path) -> Outcome<()> {
    let extension = path.extension().map(|ending| ending.to_string_lossy().into_owned());
    match extension.filter(|ending| !["svg", "xml"].contains(&ending.to_lowercase().as_str())) {
        None => Ok(()),
        Some(ending) => {
            let what = format!("{flag} {}: what is drawn is an SVG picture, and no .{ending} file", path.display());
            let advice = format!("name it {}, and convert that", path.with_extension("svg").display());
            Err(Failure::usage(what, advice))
        }
    }
}

impl Sheet {
    /// An empty sheet.
    pub fn new(width: f64, height: f64) -> Sheet {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n\
             <style>{STYLE}</style>\n\
             <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" class=\"paper\" \
             style=\"stroke-width:1\"/>\n",
            width - 1.0,
            height - 1.0
        );
        Sheet { text }
    }

    /// A text whose base line begins (or, by its class, ends or has its middle) there.
    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.text, r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{}</text>"#, escape(text));
    }

    /// A filled rectangle; `hint` is shown when a pointer rests on it.
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, hint: &str) {
        let hint = escape(hint);
        let _ = write!(self.text, r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" "#);
        let _ = writeln!(self.text, r#"class="{class}"><title>{hint}</title></rect>"#);
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(self.text, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#);
    }

    /// A line through points.
    pub fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.text, r#"<polyline points="{}" class="{class}" style="fill:none"/>"#, list.join(" "));
    }

    /// A row of coloured squares with names, from `x` on.
    pub fn legend(&mut self, x: f64, y: f64, names: &[(&str, &str)]) {
        let mut x = x;
        for (class, name) in names {
            self.bar(x, y - 10.0, 12.0, 12.0, class, name);
            self.text(x + 17.0, y, "soft", name);
            x += 40.0 + name.chars().count() as f64 * 6.6;
        }
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// A step for a scale from 0 to `max` that has about `count` marks and is 1, 2 or 5 times a power of ten.
pub fn step(max: f64, count: f64) -> f64 {
    let rough = (max / count).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|s| *s >= rough).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_picture() {
        let mut sheet = Sheet::new(10.0, 10.0);
        sheet.text(0.0, 0.0, "soft", "a<b & \"c\"");
        sheet.bar(0.0, 0.0, 1.0, 1.0, "c0", "</title><script>");
        let text = sheet.finish();
        assert_eq!(escape("a\u{1b}b\u{0}\u{ffff}"), "a\\u{1b}b\\u{0}\u{fffd}");
        assert!(text.contains("a&lt;b &amp; &quot;c&quot;") && !text.contains("<script>"), "{text}");
    }

    #[test]
    fn a_picture_gets_no_name_of_another_kind() {
        for (name, right) in [("x.svg", true), ("x", true), ("/dev/stdout", true), ("X.SVG", true), ("x.png", false)] {
            assert_eq!(check_name("--svg", Path::new(name)).is_ok(), right, "{name}");
        }
        assert!(check_name("--svg", Path::new("a/x.png")).unwrap_err().advice.contains("a/x.svg"));
    }

    #[test]
    fn scales_have_round_steps() {
        assert_eq!(step(10.0, 5.0), 2.0);
        assert_eq!(step(97.0, 5.0), 20.0);
        assert_eq!(step(1.3, 5.0), 0.5);
    }
}
