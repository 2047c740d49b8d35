//! Figures 6 to 8 as pictures: a group of bars for each program, a panel for each number of workers.

use super::runs::Place;
use super::{BREAKDOWN, Shown};
use crate::svg::{BOTTOM_OF_TITLE, Sheet};
use crate::table::counted;

const WIDTH: f64 = 1240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const LEGEND: f64 = BOTTOM_OF_TITLE as f64 + 16.0;
const PLOT_HEIGHT: f64 = 230.0;
/// Room above a panel for what it shows, and below it for the programs' names.
const ABOVE: f64 = 56.0;
const BELOW: f64 = 34.0;
/// Times beyond this are cut, and written above the bar.
const RATIO_MAX: f64 = 4.0;

/// The pictures, with the names of their files.
pub fn pictures(shown: &Shown) -> Vec<(&'static str, String)> {
    vec![("figure6.svg", execution_times(shown)), ("figure7.svg", breakdowns(shown)), ("figure8.svg", speed_ups(shown))]
}

/// A bar, from the bottom up: class, height as a value, hint.
type Bar = Vec<(String, f64, String)>;

/// One number of workers.
struct Panel {
    title: String,
    /// For each program its bars.
    groups: Vec<(&'static str, Vec<Bar>)>,
}

fn several(shown: &Shown) -> Vec<usize> {
    shown.workers().into_iter().filter(|p| *p > 1).collect()
}

fn colour(index: usize) -> String {
    format!("k{}", index % 7)
}

/// The threads have a colour of their own, so that all others have the same in Figures 6 and 8.
fn colour_of(name: &str, names: &[String]) -> String {
    if name == "threads" { "k7".to_string() } else { colour(names.iter().position(|known| known == name).unwrap_or(0)) }
}

/// The systems that any panel shows, in order.
fn names(places: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in places {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn execution_times(shown: &Shown) -> String {
    let workers = several(shown);
    let names = names(workers.iter().flat_map(|p| shown.compared(*p)).map(|place| place.name()));
    let panels = workers.iter().map(|p| {
        let base = shown.threads(*p);
        let bar = |program: &str, place: &Place| -> Bar {
            let Some(ratio) = shown.measured.ratio(program, place, &base) else { return Vec::new() };
            let time = shown.measured.time(program, place).seconds().unwrap_or(f64::NAN);
            let hint = format!("{program}, {}: {time:.3} s, {ratio:.2} times the threads'", place.name());
            vec![(colour_of(&place.name(), &names), ratio, hint)]
        };
        let places = shown.compared(*p);
        let group = |program: &'static str| (program, places.iter().map(|place| bar(program, place)).collect());
        Panel { title: counted(*p, "worker"), groups: shown.programs().map(|program| group(program.name)).collect() }
    });
    let legend: Vec<(String, &str)> = names.iter().map(|name| (colour_of(name, &names), name.as_str())).collect();
    let below = format!(
        "Times of the parallel phase over those of as many threads of the plain build; units of {} bytes",
        shown.unit
    );
    draw("Figure 6: execution times", &below, &legend, panels.collect(), (RATIO_MAX, "times the threads'"))
}

fn breakdowns(shown: &Shown) -> String {
    let panels =
        several(shown).into_iter().flat_map(|p| shown.compared(p)).filter(|place| place.nodes > 1).map(|place| {
            let bar = |program: &'static str| -> Bar {
                let shares = shown.breakdown(program, &place).unwrap_or_default();
                let part = |((name, class), share): ((&str, &str), f64)| {
                    (class.to_string(), 100.0 * share, format!("{program}: {name} {:.0} %", 100.0 * share))
                };
                BREAKDOWN.into_iter().zip(shares).map(part).collect()
            };
            let groups = shown.programs().map(|program| (program.name, vec![bar(program.name)])).collect();
            Panel { title: format!("{}, {}", place.name(), counted(place.workers(), "worker")), groups }
        });
    let legend: Vec<(String, &str)> = BREAKDOWN.iter().map(|(name, class)| (class.to_string(), *name)).collect();
    let below = format!("Of all threads' time from start to end, set-up included; units of {} bytes", shown.unit);
    draw("Figure 7: where the time goes", &below, &legend, panels.collect(), (100.0, "percent"))
}

fn speed_ups(shown: &Shown) -> String {
    let workers = several(shown);
    let mut names = names(workers.iter().flat_map(|p| shown.compared(*p)).map(|place| place.name()));
    names.push("threads".to_string());
    let panels = workers.iter().map(|p| {
        let columns = shown.speed_up_columns(*p);
        let bar = |program: &str, name: &str, places: &[Place]| -> Bar {
            let Some(speed_up) = shown.speed_up(program, places) else { return Vec::new() };
            vec![(colour_of(name, &names), speed_up, format!("{program}, {name}: {speed_up:.2}"))]
        };
        let group = |program: &'static str| {
            (program, columns.iter().map(|(name, places)| bar(program, name, places)).collect::<Vec<Bar>>())
        };
        Panel { title: counted(*p, "worker"), groups: shown.programs().map(|program| group(program.name)).collect() }
    });
    let legend: Vec<(String, &str)> = names.iter().map(|name| (colour_of(name, &names), name.as_str())).collect();
    let below = "One thread's time of the plain build over these times; checked code with the best of the units";
    let panels: Vec<Panel> = panels.collect();
    let heights =
        panels.iter().flat_map(|panel| &panel.groups).flat_map(|(_, bars)| bars).flatten().map(|(_, v, _)| *v);
    let top = (heights.fold(1.0, f64::max) - 0.05).ceil();
    draw("Figure 8: speed-ups", below, &legend, panels, (top, "speed-up"))
}

fn draw(title: &str, below: &str, legend: &[(String, &str)], panels: Vec<Panel>, (top, axis): (f64, &str)) -> String {
    let panel_height = ABOVE + PLOT_HEIGHT + BELOW;
    let height = LEGEND + 8.0 + panel_height * panels.len().max(1) as f64 + 8.0;
    let mut sheet = Sheet::new(WIDTH as usize, height as usize, title, below);
    if panels.is_empty() {
        sheet.text(LEFT, LEGEND + 40.0, "soft", "Nothing was measured on more than one worker.");
        return sheet.finish();
    }
    let mut x = 28.0;
    for (class, name) in legend {
        sheet.rect((x, LEGEND - 10.0), (12.0, 12.0), class, name);
        sheet.text(x + 17.0, LEGEND, "soft", name);
        x += 42.0 + name.chars().count() as f64 * 6.6;
    }
    for (index, panel) in panels.iter().enumerate() {
        let bottom = LEGEND + 8.0 + index as f64 * panel_height + ABOVE + PLOT_HEIGHT;
        draw_panel(&mut sheet, panel, bottom, top, axis);
    }
    sheet.finish()
}

fn draw_panel(sheet: &mut Sheet, panel: &Panel, bottom: f64, top: f64, axis: &str) {
    let scale = PLOT_HEIGHT / top;
    let roof = bottom - PLOT_HEIGHT;
    sheet.text(28.0, roof - 30.0, "label", &panel.title);
    sheet.text(28.0, roof - 12.0, "soft", axis);
    let marks = if top <= 8.0 { top as usize } else { 4 };
    for mark in 0..=marks {
        let value = top * mark as f64 / marks as f64;
        let y = bottom - value * scale;
        sheet.line((LEFT, y), (WIDTH - RIGHT, y), if mark == 0 { "rule" } else { "grid" });
        sheet.text(
            LEFT - 10.0,
            y + 4.5,
            "soft right",
            format!("{value:.2}").trim_end_matches('0').trim_end_matches('.'),
        );
    }
    if top == RATIO_MAX {
        sheet.line((LEFT, bottom - scale), (WIDTH - RIGHT, bottom - scale), "one");
    }
    let room = (WIDTH - RIGHT - LEFT) / panel.groups.len().max(1) as f64;
    for (index, (program, bars)) in panel.groups.iter().enumerate() {
        let from = LEFT + index as f64 * room;
        let thick = ((room - 16.0) / bars.len().max(1) as f64).min(44.0);
        let left = from + (room - thick * bars.len() as f64) / 2.0;
        for (place, bar) in bars.iter().enumerate() {
            let x = left + place as f64 * thick;
            let mut y = bottom;
            for (class, value, hint) in bar {
                let height = (value.max(0.0) * scale).min(y - roof);
                y -= height;
                sheet.rect((x + 0.5, y), (thick - 1.0, height), class, hint);
                if *value > top * 1.001 {
                    sheet.text(x + thick / 2.0, roof - 3.0, "small middle", &format!("{value:.0}"));
                }
            }
            if bar.is_empty() {
                sheet.text(x + thick / 2.0, bottom - 3.0, "small middle", "×");
            }
        }
        let words: Vec<&str> = split_name(program);
        for (line, word) in words.iter().enumerate() {
            sheet.text(from + room / 2.0, bottom + 16.0 + 13.0 * line as f64, "soft middle", word);
        }
    }
}

/// A program's name in one or two lines.
fn split_name(name: &str) -> Vec<&str> {
    name.split_once('-').map_or(vec![name], |(first, rest)| vec![first, rest])
}
