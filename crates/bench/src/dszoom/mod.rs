//! The tables and figures of the DSZOOM paper from what `bench/dszoom.sh` has measured, beside the paper's numbers.
//!
//! | module | what it does |
//! |---|---|
//! | [`paper`] | the numbers of the paper |
//! | [`runs`] | reads the measurements; medians, and ratios of what was measured in turn |
//! | [`tables`] | Tables 1 to 4 and the data of Figures 6 to 8 |
//! | [`figures`] | Figures 6 to 8 as pictures |

pub mod figures;
pub mod paper;
pub mod runs;
pub mod tables;

use paper::{PROGRAMS, Program};
use runs::{Measured, Place};
use std::collections::BTreeSet;

/// Where the time of a program on several nodes goes (Figure 7), and the class of each part in a picture.
pub const BREAKDOWN: [(&str, &str); 6] = [
    ("task", "compute"),
    ("checks", "k3"),
    ("locks", "lock"),
    ("barriers", "barrier"),
    ("misses", "fetch"),
    ("protocol", "protocol"),
];

/// What is shown of some measurements.
pub struct Shown {
    /// The measurements.
    pub measured: Measured,
    /// All places in them.
    pub places: Vec<Place>,
    /// The unit of coherence, in bytes, of all tables but Table 4.
    pub unit: usize,
}

impl Shown {
    /// Shows measurements with this unit of coherence.
    pub fn new(measured: Measured, unit: usize) -> Shown {
        Shown { places: measured.places(), measured, unit }
    }

    /// The programs that ran, in the paper's order.
    pub fn programs(&self) -> impl Iterator<Item = &'static Program> + '_ {
        PROGRAMS.iter().filter(|program| self.measured.runs.iter().any(|run| run.program == program.name))
    }

    /// The numbers of workers that were measured.
    pub fn workers(&self) -> Vec<usize> {
        self.places.iter().map(Place::workers).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The units of checked code on several nodes that were measured.
    pub fn units(&self) -> Vec<usize> {
        let of_lines = self.places.iter().filter(|place| ["direct", "lines"].contains(&place.system.as_str()));
        of_lines.map(|place| place.unit).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The plain build with `p` threads.
    pub fn threads(&self, p: usize) -> Place {
        Place { system: "threads".into(), backbone: "none".into(), unit: 0, nodes: 1, threads: p }
    }

    /// Checked code on one node of `p` threads.
    pub fn checked(&self, p: usize) -> Place {
        let measured = self.places.iter().find(|place| place.system == "checked" && place.threads == p);
        measured.cloned().unwrap_or(Place { system: "checked".into(), ..self.threads(p) })
    }

    /// `p` workers on several nodes.
    pub fn several(&self, system: &str, backbone: &str, unit: usize, p: usize) -> Option<Place> {
        let same = |place: &&Place| place.system == system && place.backbone == backbone && place.unit == unit;
        self.places.iter().filter(same).find(|place| place.workers() == p && place.nodes > 1).cloned()
    }

    /// What Figure 6 compares with `p` threads of the plain build.
    pub fn compared(&self, p: usize) -> Vec<Place> {
        let same = |place: &&Place| place.workers() == p && place.system != "threads" && place.unit == self.unit;
        self.places.iter().filter(same).cloned().collect()
    }

    /// The parts of [`BREAKDOWN`] as shares of the whole; `None` where the program did not run there, or wrong.
    pub fn breakdown(&self, program: &str, place: &Place) -> Option<[f64; 6]> {
        let [compute, fetch, lock, barrier, protocol, _service] = self.measured.parts_us(program, place)?;
        let p = place.workers();
        // Code without checks, as that of `pages`, has no overhead of them.
        let overhead = match place.system.as_str() {
            "pages" => 1.0,
            _ => self.measured.ratio(program, &self.checked(p), &self.threads(p)).unwrap_or(1.0).max(1.0),
        };
        let task = compute / overhead;
        let whole = compute + fetch + lock + barrier + protocol;
        (whole > 0.0).then(|| [task, compute - task, lock, barrier, fetch, protocol].map(|part| part / whole))
    }

    /// The columns of Figure 8: a name, and the places of which the fastest counts.
    pub fn speed_up_columns(&self, p: usize) -> Vec<(String, Vec<Place>)> {
        let mut columns = vec![("threads".to_string(), vec![self.threads(p)])];
        for place in self.compared(p) {
            let any_unit = |other: &&Place| Place { unit: place.unit, ..(*other).clone() } == place;
            columns.push((place.name(), self.places.iter().filter(any_unit).cloned().collect()));
        }
        columns
    }

    /// The time of one thread of the plain build over the least time in these places.
    pub fn speed_up(&self, program: &str, places: &[Place]) -> Option<f64> {
        let one = self.measured.time(program, &self.threads(1)).seconds()?;
        let times = places.iter().filter_map(|place| self.measured.time(program, place).seconds());
        times.min_by(f64::total_cmp).map(|least| one / least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds of two programs in a few places, and one wrong run.
    fn shown() -> Shown {
        let mut runs = String::from(
            "program,round,system,backbone,unit,nodes,threads,seconds,result,\
             compute,fetch,lock,barrier,protocol,service\n",
        );
        for (program, factor) in [("fft", 1.0), ("barnes", 2.0)] {
            for (round, noise) in [(1, 1.0), (2, 3.0)] {
                let places = [
                    ("threads,none,0,1,1", 1.0),
                    ("threads,none,0,1,2", 0.5),
                    ("checked,shm,128,1,1", 1.2),
                    ("checked,shm,128,1,2", 0.625),
                    ("direct,shm,64,2,1", 0.75),
                    ("direct,shm,128,2,1", 1.0),
                    ("direct,udp,128,2,1", 2.0),
                ];
                for (place, seconds) in places {
                    let seconds = seconds * factor * noise;
                    let result = if place.starts_with("direct,udp") && program == "barnes" { "WRONG" } else { "ok" };
                    runs += &format!("{program},{round},{place},{seconds},{result},500,100,200,100,100,9\n");
                }
            }
        }
        runs += "barnes,3,pages,shm,128,2,1,0,WRONG,\n";
        let checks = "head\nfft,10,40,3,4\nbarnes,0,0,0,0\n";
        Shown::new(Measured::parse(&runs, checks, "head\ndirect,shm,64,read-clean,612.5\n").unwrap(), 128)
    }

    /// The cells of the first row that begins with `program` below the heading `title`.
    fn row(text: &str, title: &str, program: &str) -> Vec<String> {
        let below = text.split("## ").find(|part| part.starts_with(title)).unwrap_or_else(|| panic!("{title}: {text}"));
        let line = below.lines().find(|line| line.starts_with(&format!("| {program}"))).unwrap();
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
    }

    #[test]
    fn ratios_are_those_of_one_round_and_wrong_runs_count_nowhere() {
        let text = tables::text(&shown());
        assert_eq!(row(&text, "Table 1", "fft")[2..9], ["2.000", "2.400", "1.20", "1.38", "–", "25.00", "19.0"]);
        assert_eq!(row(&text, "Table 1", "geometric mean")[4], "1.20");
        assert_eq!(row(&text, "Table 2", "barnes")[1], "1.25");
        assert_eq!(row(&text, "Table 3", "fft")[1..4], ["1.25", "1.60", "2.00"]);
        assert_eq!(row(&text, "Table 3", "barnes")[1..4], ["1.25", "1.60", "–"]);
        let of_two = text.split("## ").find(|part| part.starts_with("Figure 6: execution times, 2")).unwrap();
        assert!(of_two.contains("| barnes | 2.000 | WRONG | 2.500 (0.80) | 4.000 (0.50) | WRONG |"), "{of_two}");
        assert_eq!(row(&text, "Table 4: units of coherence, direct, shm", "fft")[1..3], ["1.500 (+33.3)", "2.000"]);
        // The best of the units.
        assert_eq!(row(&text, "Figure 8", "fft")[1..6], ["2.00", "–", "1.60", "1.33", "0.50"]);
        assert_eq!(row(&text, "Remote latencies", "direct, shm")[2], "0.61");
    }

    #[test]
    fn the_checks_are_the_overhead_of_the_programs_own_time() {
        let shown = shown();
        let place = shown.several("direct", "shm", 128, 2).unwrap();
        let shares = shown.breakdown("fft", &place).unwrap();
        let right = [0.4, 0.1, 0.2, 0.1, 0.1, 0.1];
        assert!(shares.iter().zip(right).all(|(share, right)| (share - right).abs() < 1e-9), "{shares:?}");
        assert_eq!(shown.breakdown("barnes", &shown.several("direct", "udp", 128, 2).unwrap()), None);
    }

    #[test]
    fn bars_stand_within_their_panels() {
        for (name, picture) in figures::pictures(&shown()) {
            assert!(!picture.contains("NaN") && picture.contains("fft"), "{name}: {picture}");
            let number = |line: &str, key: &str| -> f64 {
                line.split(&format!(" {key}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
            };
            let height: f64 = number(picture.lines().next().unwrap(), "height");
            let bars: Vec<&str> = picture.lines().filter(|line| line.contains("<title>fft")).collect();
            assert!(bars.len() >= 3, "{name}: {picture}");
            for bar in bars {
                let bottom = number(bar, "y") + number(bar, "height");
                assert!(
                    number(bar, "height") >= 0.0 && bottom < height - 20.0 && number(bar, "y") > 90.0,
                    "{name}: {bar}"
                );
            }
        }
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        let error = Measured::parse("head\nfft,1,threads\n", "", "").unwrap_err();
        assert!(error.contains("fft,1,threads"), "{error}");
    }
}
