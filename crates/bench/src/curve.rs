//! The crossover as a picture: speed-up over the size of the grid, a curve for each number of nodes, and a line where
//! one process is as fast.

use crate::crossover::Size;
use crate::svg::{BOTTOM_OF_TITLE, Sheet};
use crate::table::counted;

const WIDTH: usize = 760;
const HEIGHT: usize = 430;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = BOTTOM_OF_TITLE as f64 + 26.0;
const PLOT_HEIGHT: f64 = 270.0;

/// The picture of some sizes.
pub fn picture(sizes: &[Size], title: &str, below: &str) -> String {
    let mut sheet = Sheet::new(WIDTH, HEIGHT, title, below);
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return sheet.finish() };
    let speed_ups = || sizes.iter().flat_map(|size| size.nodes.iter().map(|(_, s)| size.alone_s / s));
    let highest = speed_ups().fold(1.0_f64, f64::max);
    let top = (highest * 2.0 + 0.2).ceil() / 2.0;
    let width = WIDTH as f64 - LEFT - RIGHT;
    let step = width / (sizes.len().max(2) - 1) as f64;
    let x = |index: usize| LEFT + index as f64 * step;
    let y = |value: f64| TOP + PLOT_HEIGHT * (1.0 - value / top);
    sheet.rect((LEFT, y(1.0)), (width, TOP + PLOT_HEIGHT - y(1.0)), "loses", "one process is faster");
    for mark in 0..=(top * 2.0) as usize {
        let value = mark as f64 / 2.0;
        sheet.line((LEFT, y(value)), (LEFT + width, y(value)), if mark == 0 { "rule" } else { "grid" });
        sheet.text(LEFT - 10.0, y(value) + 4.5, "soft right", &format!("{value:.1}×"));
    }
    sheet.line((LEFT, y(1.0)), (LEFT + width, y(1.0)), "one");
    // On the right: on the left, where grids are small, curves are mostly below the line.
    sheet.text(LEFT + width - 8.0, y(1.0) + 17.0, "soft right", "one process is faster below this line");
    sheet.text(28.0, TOP - 12.0, "soft", "speed-up over one process without Comem");
    for (index, size) in sizes.iter().enumerate() {
        sheet.line((x(index), TOP + PLOT_HEIGHT), (x(index), TOP + PLOT_HEIGHT + 5.0), "rule");
        sheet.text(x(index), TOP + PLOT_HEIGHT + 22.0, "soft middle", &format!("{0} × {0}", size.side));
    }
    sheet.text(LEFT + width / 2.0, TOP + PLOT_HEIGHT + 44.0, "soft middle", "cells of the grid");
    let mut ends: Vec<f64> = Vec::new();
    for (curve, (nodes, _)) in first.nodes.iter().enumerate() {
        let places: Vec<(f64, f64)> = (sizes.iter().enumerate())
            .filter_map(|(index, size)| Some((x(index), y(size.speed_up(*nodes)?))))
            .collect();
        let class = format!("k{}", curve % 4);
        sheet.path(&places, &class);
        for (place, size) in places.iter().zip(sizes) {
            let speed_up = size.speed_up(*nodes).unwrap_or(0.0);
            sheet.dot(*place, &class, &format!("{0} × {0}, {nodes} nodes: {speed_up:.2}×", size.side));
        }
        // The names of curves that end side by side do not cover each other.
        let mut at = y(last.speed_up(*nodes).unwrap_or(0.0)) + 4.5;
        while ends.iter().any(|end| (end - at).abs() < 17.0) {
            at += 17.0;
        }
        ends.push(at);
        sheet.text(LEFT + width + 12.0, at, &format!("label t{}", curve % 4), &counted(*nodes, "node"));
    }
    sheet.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crossover::tests::sample;

    #[test]
    fn every_curve_is_drawn_within_the_picture_and_named_once() {
        let text = picture(&sample(), "a < b", "below");
        assert_eq!(text.matches("<polyline").count(), 2, "{text}");
        assert_eq!((text.matches(">2 nodes</text>").count(), text.matches(">4 nodes</text>").count()), (1, 1));
        assert!(text.contains("a &lt; b") && !text.contains("NaN"));
        let points = text.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split(' '));
        for point in points {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=WIDTH as f64 - RIGHT).contains(&x) && (TOP..=TOP + PLOT_HEIGHT).contains(&y), "{point}");
        }
    }

    #[test]
    fn names_of_curves_that_end_together_stand_apart() {
        let mut sizes = sample();
        sizes[2].nodes = vec![(2, 1e-3), (4, 1e-3)];
        let text = picture(&sizes, "", "");
        let heights: Vec<f64> = (text.lines().filter(|line| line.contains("nodes</text>") && line.contains("label")))
            .map(|line| line.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(heights.len() == 2 && (heights[0] - heights[1]).abs() >= 16.9, "{heights:?}");
    }
}
