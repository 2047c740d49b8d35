//! Latency and bandwidth over the size of messages as a picture: two diagrams, both scales by powers.

use super::net::{Curve, Point};
use crate::picture::{COLOURS, Sheet};
use crate::table::bytes;

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 430.0;
const TOP: f64 = 84.0;
const PLOT_WIDTH: f64 = 420.0;
const PLOT_HEIGHT: f64 = 270.0;

/// One diagram's value of a point.
type Value = fn(&Point) -> f64;

/// The picture; the titles are those of both diagrams and of what goes along the bottom.
pub fn picture(curves: &[Curve], [latency, rate, sizes]: [&str; 3]) -> String {
    let mut sheet = Sheet::new(WIDTH, HEIGHT);
    let classes: Vec<String> = (0..curves.len()).map(|index| format!("c{}", index % COLOURS)).collect();
    let names: Vec<(&str, &str)> =
        classes.iter().zip(curves).map(|(class, curve)| (class.as_str(), curve.name.as_str())).collect();
    sheet.legend(24.0, 34.0, &names);
    diagram(&mut sheet, curves, 76.0, [latency, sizes], |point| point.latency_us);
    diagram(&mut sheet, curves, 620.0, [rate, sizes], |point| point.megabytes_per_s);
    sheet.finish()
}

fn diagram(sheet: &mut Sheet, curves: &[Curve], left: f64, [title, below]: [&str; 2], value: Value) {
    sheet.text(left, TOP - 16.0, "", title);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let usable = |v: &f64| v.is_finite() && *v > 0.0;
    let values: Vec<f64> = points().map(value).filter(usable).collect();
    let sizes: Vec<f64> = points().map(|point| point.bytes as f64).collect();
    if values.is_empty() {
        return;
    }
    let y_axis = Axis::over(&values, 10.0);
    let x_axis = Axis::over(&sizes, 2.0);
    let (x, y) = (|v: f64| left + x_axis.at(v) * PLOT_WIDTH, |v: f64| TOP + (1.0 - y_axis.at(v)) * PLOT_HEIGHT);
    for mark in y_axis.marks(1) {
        sheet.line((left, y(mark)), (left + PLOT_WIDTH, y(mark)), "grid");
        sheet.text(left - 8.0, y(mark) + 4.0, "soft right", &mark.to_string());
    }
    for mark in x_axis.marks(4) {
        sheet.line((x(mark), TOP + PLOT_HEIGHT), (x(mark), TOP + PLOT_HEIGHT + 5.0), "rule");
        sheet.text(x(mark), TOP + PLOT_HEIGHT + 20.0, "soft middle", &bytes(mark as u64).replace(".0", ""));
    }
    sheet.line((left, TOP + PLOT_HEIGHT), (left + PLOT_WIDTH, TOP + PLOT_HEIGHT), "rule");
    sheet.text(left + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 42.0, "soft middle", below);
    for (index, curve) in curves.iter().enumerate() {
        let class = format!("c{}", index % COLOURS);
        let known = curve.points.iter().filter(|point| usable(&value(point)));
        let places: Vec<(f64, f64)> = known.map(|point| (x(point.bytes as f64), y(value(point)))).collect();
        sheet.path(&places, &class);
        for (x, y) in places {
            sheet.bar(x - 2.5, y - 2.5, 5.0, 5.0, &class, &curve.name);
        }
    }
}

/// A scale by powers of a base, from one power to another.
struct Axis {
    base: f64,
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: &[f64], base: f64) -> Axis {
        let power = |v: f64| v.ln() / base.ln();
        let low = values.iter().copied().map(power).fold(f64::INFINITY, f64::min).floor();
        let high = values.iter().copied().map(power).fold(f64::NEG_INFINITY, f64::max);
        // What is a power but for rounding is one.
        Axis { base, low, high: (high - 1e-9).ceil().max(low + 1.0) }
    }

    /// Where a value stands, 0 to 1.
    fn at(&self, value: f64) -> f64 {
        (value.ln() / self.base.ln() - self.low) / (self.high - self.low)
    }

    /// Every so many powers.
    fn marks(&self, every: usize) -> impl Iterator<Item = f64> {
        let (base, low, count) = (self.base, self.low, (self.high - self.low).round() as usize);
        (0..=count).step_by(every).map(move |index| base.powf(low + index as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, latency: f64) -> Curve {
        let point = |bytes: usize| Point { bytes, latency_us: latency, megabytes_per_s: bytes as f64, lost: 0 };
        Curve { name: name.to_string(), points: [1, 64, 1 << 18].map(point).to_vec() }
    }

    #[test]
    fn every_point_lies_within_its_diagram() {
        let text = picture(&[curve("udp, block", 20.0), curve("udp, spin", 4.0)], ["one", "two", "sizes"]);
        assert_eq!(text.matches("<polyline").count(), 4);
        assert!(text.contains(">one<") && text.contains(">two<") && text.matches(">sizes<").count() == 2, "{text}");
        for pair in text.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split(' ')) {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((76.0..=1041.0).contains(&x) && (TOP..=TOP + PLOT_HEIGHT).contains(&y), "{pair}");
        }
    }

    #[test]
    fn what_was_never_measured_is_left_out() {
        let text = picture(&[curve("udp, block", f64::NAN)], ["one", "two", "sizes"]);
        assert!(!text.contains("NaN"), "{text}");
    }
}
