//! Where the time went, as a picture: a stacked bar for each node (HLRC on UDP, figure 8). The six parts of the
//! application threads' time are piled up; the service thread's work is a thin bar beside them. A bar is the mean of
//! its node's
//! threads, so it is as high as the node's life is long, and the caption below says how long that was.

use super::model::{PARTS, Run, THREAD_PARTS};
use crate::picture::{Sheet, step};
use crate::table::{seconds, shortened};

const LEFT: f64 = 78.0;
const TOP: f64 = 126.0;
const HEIGHT: f64 = 300.0;
const BOTTOM: f64 = 62.0;
const RIGHT: f64 = 28.0;
const SLIM: f64 = 7.0;
/// A picture is at least so wide, for its legend.
const WIDTH_MIN: f64 = 640.0;
/// Many nodes make narrow bars, a few wide ones.
const BARS_WIDTH_MAX: f64 = 1400.0;
const PITCH_MIN: f64 = 8.0;
/// The widest bar; where there are few, each has more room.
const THICK_MAX: f64 = 120.0;
const RUN_GAP: f64 = 26.0;
/// Longest name of a run in the picture, in characters, and the width of one in its caption.
const CAPTION_MOST: usize = 40;
const CAPTION_CHARACTER: f64 = 7.4;

/// The picture of one or several runs.
pub fn picture(runs: &[Run]) -> String {
    let bars: usize = runs.iter().map(|run| run.nodes.len()).sum();
    let gaps = runs.len().saturating_sub(1) as f64 * RUN_GAP;
    let least = (WIDTH_MIN - LEFT - RIGHT - gaps) / bars.max(1) as f64;
    let pitch = (BARS_WIDTH_MAX / bars.max(1) as f64).min(least.max(64.0)).max(PITCH_MIN);
    let bars_width: f64 = runs.iter().map(|run| group_width(run, runs.len(), pitch)).sum::<f64>() + gaps;
    let width = (LEFT + bars_width + RIGHT).max(WIDTH_MIN);
    let mut sheet = Sheet::new(width, TOP + HEIGHT + BOTTOM);
    sheet.text(24.0, 32.0, "title", "Where the threads' time went");
    sheet.text(24.0, 54.0, "soft", &shortened(&below_title(runs), ((width - 48.0) / 6.8) as usize));
    let names: Vec<(String, &str)> = PARTS.iter().enumerate().map(|(i, name)| (class(i), *name)).collect();
    let names: Vec<(&str, &str)> = names.iter().map(|(class, name)| (class.as_str(), *name)).collect();
    sheet.legend(24.0, 82.0, &names);
    let highest = runs
        .iter()
        .flat_map(|run| &run.nodes)
        .map(|node| node.of_a_thread_us().max(node.times_us[THREAD_PARTS] as f64))
        .fold(0.0, f64::max);
    let scale = Scale::new(highest / 1e6);
    scale.draw(&mut sheet, width);
    // What is wider than the bars has them in its middle.
    let mut x = LEFT + (width - LEFT - RIGHT - bars_width) / 2.0;
    for run in runs {
        let width = group_width(run, runs.len(), pitch);
        let bars = run.nodes.len() as f64 * pitch;
        draw_run(&mut sheet, run, x + (width - bars) / 2.0, pitch, &scale);
        x += width + RUN_GAP;
    }
    sheet.finish()
}

/// The bars of a run are as wide as its caption at least, where captions stand side by side.
fn group_width(run: &Run, runs: usize, pitch: f64) -> f64 {
    let bars = run.nodes.len() as f64 * pitch;
    if runs == 1 { bars } else { bars.max(caption(run).chars().count() as f64 * CAPTION_CHARACTER) }
}

/// The run's name, its engine, and the life of its longest node, which is the height of its highest bar.
fn caption(run: &Run) -> String {
    let engines = run.engines();
    let engines = if engines.is_empty() { engines } else { format!(", {engines}") };
    format!("{}{engines}: {}", shortened(&run.name, CAPTION_MOST), seconds(run.longest_s()))
}

/// The command of all runs, if they have one in common, or how many there are.
fn below_title(runs: &[Run]) -> String {
    match runs {
        [first, others @ ..] if others.iter().all(|run| run.command == first.command) => first.command.clone(),
        _ => format!("{} runs of different commands", runs.len()),
    }
}

/// The colour of a part: idle time is as good as not there.
fn class(part: usize) -> String {
    match PARTS[part] {
        "idle" => "idle".to_string(),
        "service" => "c5".to_string(),
        _ => format!("c{part}"),
    }
}

/// Seconds to heights.
struct Scale {
    top_s: f64,
    step_s: f64,
}

impl Scale {
    fn new(highest_s: f64) -> Scale {
        let step_s = step(highest_s.max(1e-6), 6.0);
        Scale { top_s: (highest_s.max(1e-6) / step_s).ceil() * step_s, step_s }
    }

    fn height(&self, us: f64) -> f64 {
        us / 1e6 / self.top_s * HEIGHT
    }

    fn draw(&self, sheet: &mut Sheet, width: f64) {
        let marks = (self.top_s / self.step_s).round() as usize;
        for mark in 0..=marks {
            let y = TOP + HEIGHT * (1.0 - mark as f64 / marks as f64);
            sheet.line((LEFT, y), (width - RIGHT, y), if mark == 0 { "rule" } else { "grid" });
            sheet.text(LEFT - 8.0, y + 4.0, "soft right", &mark_text(mark as f64 * self.step_s));
        }
        sheet.text(24.0, TOP - 14.0, "soft", "a thread's life (mean of the node's threads)");
    }
}

/// A time that is a round number.
fn mark_text(value_s: f64) -> String {
    match value_s {
        0.0 => "0".to_string(),
        v if v < 0.95e-6 => format!("{:.0} ns", v * 1e9),
        v if v < 1e-5 => format!("{:.1} us", v * 1e6).replace(".0 ", " "),
        v => seconds(v).replace(".00 ", " ").replace(".0 ", " "),
    }
}

fn draw_run(sheet: &mut Sheet, run: &Run, from: f64, pitch: f64, scale: &Scale) {
    let thick = (pitch - SLIM - 5.0).max(pitch * 0.6).min(THICK_MAX);
    for (index, node) in run.nodes.iter().enumerate() {
        let x = from + index as f64 * pitch + (pitch - thick - SLIM.min(pitch * 0.25) - 1.0).max(0.0) / 2.0;
        let of_each = 1.0 / node.threads.max(1) as f64;
        let mut y = TOP + HEIGHT;
        let whole = node.threads_us().max(1) as f64;
        for (part, us) in node.times_us[..THREAD_PARTS].iter().enumerate() {
            let height = scale.height(*us as f64 * of_each);
            y -= height;
            let percent = 100.0 * *us as f64 / whole;
            let hint = format!("node {}: {} {} ({percent:.1} %)", node.node, PARTS[part], seconds(*us as f64 / 1e6));
            sheet.bar(x, y, thick, height, &class(part), &hint);
        }
        let service = node.times_us[THREAD_PARTS];
        let height = scale.height(service as f64);
        let hint = format!("node {}: service {}", node.node, seconds(service as f64 / 1e6));
        sheet.bar(x + thick + 1.0, TOP + HEIGHT - height, SLIM.min(pitch * 0.25), height, &class(THREAD_PARTS), &hint);
        if pitch >= 18.0 || index % 8 == 0 {
            let label = if pitch >= 60.0 { format!("node {}", node.node) } else { node.node.to_string() };
            sheet.text(x + thick / 2.0, TOP + HEIGHT + 18.0, "soft middle", &label);
        }
    }
    let width = run.nodes.len() as f64 * pitch;
    sheet.text(from + width / 2.0, TOP + HEIGHT + 40.0, "middle", &caption(run));
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::file;
    use super::*;

    fn numbers(line: &str, names: [&str; 2]) -> [f64; 2] {
        names.map(|name| {
            let rest = line.split(&format!(" {name}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        })
    }

    #[test]
    fn every_node_has_a_bar_of_six_parts_that_stand_on_each_other() {
        let run = Run::parse("run", &file()).unwrap();
        let text = picture(&[run.clone(), run]);
        for node in 0..2 {
            let parts: Vec<[f64; 2]> = text
                .lines()
                .filter(|line| line.contains(&format!("<title>node {node}: ")) && !line.contains("service"))
                .map(|line| numbers(line, ["y", "height"]))
                .collect();
            assert_eq!(parts.len(), 12, "two runs: {text}");
            for pair in parts[..6].windows(2) {
                assert!((pair[0][0] - pair[1][0] - pair[1][1]).abs() < 0.3, "{parts:?}");
            }
            let sum: f64 = parts[..6].iter().map(|part| part[1]).sum();
            assert!(sum > 0.5 * HEIGHT && sum <= HEIGHT + 0.5, "{sum}");
        }
    }

    #[test]
    fn captions_say_how_high_the_bars_are_and_which_engine_it_was() {
        let mut run = Run::parse("run", &file()).unwrap();
        run.nodes.iter_mut().for_each(|node| {
            node.threads = 2;
            node.times_us = [500_000, 0, 0, 1_500_000, 0, 0, 7];
        });
        let text = picture(&[run]);
        assert!(text.contains(">run, hlrc: 1.00 s</text>"), "{text}");
        let of_node: Vec<[f64; 2]> = text
            .lines()
            .filter(|line| line.contains("<title>node 0: ") && !line.contains("service"))
            .map(|line| numbers(line, ["y", "height"]))
            .collect();
        let (high, sum) = (of_node.last().unwrap()[0], of_node.iter().map(|part| part[1]).sum::<f64>());
        assert!((high - TOP).abs() < 0.2 && (sum - HEIGHT).abs() < 0.5, "one second is the whole scale: {of_node:?}");
    }

    #[test]
    fn few_bars_fill_the_width() {
        let run = Run::parse("run", &file()).unwrap();
        let text = picture(&[run]);
        let bars = text.lines().filter(|line| line.contains("<title>node ")).map(|line| numbers(line, ["x", "width"]));
        let (low, high) = bars.fold((f64::MAX, 0.0_f64), |(low, high), [x, width]| (low.min(x), high.max(x + width)));
        let (left, right) = (low - LEFT, WIDTH_MIN - RIGHT - high);
        assert!((left - right).abs() < 20.0, "as much room on the left as on the right: {left} {right}");
    }

    #[test]
    fn the_marks_of_a_tiny_scale_differ() {
        for highest_s in [0.0, 1e-6, 3e-6] {
            let scale = Scale::new(highest_s);
            let marks = (scale.top_s / scale.step_s).round() as usize;
            let texts: Vec<String> = (0..=marks).map(|mark| mark_text(mark as f64 * scale.step_s)).collect();
            assert!((1..texts.len()).all(|i| !texts[..i].contains(&texts[i])), "{texts:?}");
        }
    }

    #[test]
    fn a_run_that_did_nothing_is_drawn_too() {
        let mut run = Run::parse("run", &file()).unwrap();
        run.nodes.iter_mut().for_each(|node| node.times_us = [0; PARTS.len()]);
        assert!(!picture(&[run]).contains("NaN"));
    }
}
