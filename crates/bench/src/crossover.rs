//! From which size on several nodes are faster than one process: the workload `sor` on grids of growing size.
//!
//! An iteration passes two barriers, whose cost hardly depends on the size, while the computation grows with the grid.
//! So small grids are faster in one process, and large ones on several nodes.

use crate::job::{self, Job, Programs};
use crate::sea;
use crate::table::{Align, aligned, speed_up};

/// Cells that a run computes, about: small grids make more iterations.
const CELLS_PER_RUN: usize = 1 << 26;
/// Bounds of a run's iterations.
const ITERATIONS: std::ops::RangeInclusive<usize> = 10..=1000;

/// A grid of one size, in one process and on several nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Rows and columns of the grid.
    pub side: usize,
    /// Seconds of an iteration in one process, built without Comem.
    pub alone_s: f64,
    /// The same on nodes of one thread each: the number of nodes, and the seconds of an iteration.
    pub nodes: Vec<(usize, f64)>,
}

impl Size {
    /// How much faster than one process so many nodes are.
    pub fn speed_up(&self, nodes: usize) -> Option<f64> {
        self.nodes.iter().find(|(n, _)| *n == nodes).map(|(_, seconds)| self.alone_s / seconds)
    }

    /// The best speed-up, and by how many nodes.
    pub fn best(&self) -> Option<(usize, f64)> {
        let speed_ups = self.nodes.iter().map(|(nodes, seconds)| (*nodes, self.alone_s / seconds));
        speed_ups.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// How many iterations a run makes on a grid of this size.
pub fn iterations(side: usize) -> usize {
    (CELLS_PER_RUN / (side * side).max(1)).clamp(*ITERATIONS.start(), *ITERATIONS.end())
}

/// Measures one size: one process and each number of nodes in turn, so often. The shortest times count: whatever else
/// runs on the machine makes the others longer.
///
/// # Errors A sentence about a program that failed, or computed something else than one process did.
pub fn measure(programs: &Programs, side: usize, nodes: &[usize], repeats: usize) -> Result<Size, String> {
    let iterations = iterations(side);
    let program = |name: &str| -> Result<Vec<String>, String> {
        let numbers = [("--rows", side), ("--columns", side), ("--iterations", iterations)];
        let numbers = numbers.into_iter().flat_map(|(name, number)| [name.to_string(), number.to_string()]);
        Ok(std::iter::once(programs.workload(name)?).chain(numbers).collect())
    };
    let (alone, shared) = (program("sor-sequential")?, program("sor")?);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); 1 + nodes.len()];
    for _ in 0..repeats.max(1) {
        let reference = job::run(&alone)?;
        times[0].push(sea::seconds(&reference)? / iterations as f64);
        for (index, nodes) in nodes.iter().enumerate() {
            let flags = vec!["--threads=1".to_string()];
            let job = Job { nodes: *nodes, engine: Some("hlrc".to_string()), flags, program: shared.clone() };
            let output = programs.run(&job)?.output;
            if checksum(&output) != checksum(&reference) {
                let what = format!("sor on {side} × {side} cells computed something else on {nodes} nodes");
                return Err(format!("{what}:\n{output}instead of\n{reference}"));
            }
            times[1 + index].push(sea::seconds(&output)? / iterations as f64);
        }
    }
    let shortest: Vec<f64> = times.iter().map(|times| times.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    let nodes = nodes.iter().copied().zip(shortest[1..].iter().copied()).collect();
    Ok(Size { side, alone_s: shortest[0], nodes })
}

fn checksum(output: &str) -> Option<&str> {
    output.split_whitespace().find_map(|word| word.strip_prefix("checksum="))
}

/// A short time with a unit that fits.
pub fn time(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us < 99.95 => format!("{us:.1} us"),
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// The smallest size from which on some number of nodes is always faster than one process, and that of the best
/// speed-up.
fn pays_from(sizes: &[Size]) -> Option<(&Size, &Size)> {
    let pays = |size: &&Size| size.best().is_some_and(|(_, speed_up)| speed_up > 1.0);
    let from = sizes.len() - sizes.iter().rev().take_while(|size| pays(size)).count();
    let of = |size: &Size| size.best().map_or(0.0, |(_, speed_up)| speed_up);
    let best = sizes[from..].iter().max_by(|a, b| of(a).total_cmp(&of(b)))?;
    Some((&sizes[from], best))
}

/// The sizes as a table for a terminal. What beats one process is marked.
pub fn text(sizes: &[Size]) -> String {
    let Some(first) = sizes.first() else { return String::new() };
    let mut head = vec!["grid".to_string(), "one process".to_string()];
    head.extend(first.nodes.iter().flat_map(|(nodes, _)| [format!("{nodes} nodes"), "speed-up".to_string()]));
    head.push(String::new());
    let mut rows = vec![head];
    for size in sizes {
        let mut row = vec![format!("{0} × {0}", size.side), time(size.alone_s)];
        row.extend(size.nodes.iter().flat_map(|(_, s)| [time(*s), speed_up(size.alone_s / s)]));
        let best = size.best().filter(|(_, speed_up)| *speed_up > 1.0);
        row.push(best.map_or("one process is faster".to_string(), |(nodes, _)| format!("{nodes} nodes are faster")));
        rows.push(row);
    }
    let last = rows[0].len() - 1;
    aligned(&rows, |column| if column == last { Align::Left } else { Align::Right }, |row| row == 1)
}

/// What the table shows, in sentences.
pub fn explain(sizes: &[Size], cores: usize) -> String {
    let (Some(smallest), Some(largest)) = (sizes.first(), sizes.last()) else { return String::new() };
    let lost = smallest.nodes.iter().map(|(_, seconds)| seconds - smallest.alone_s).fold(f64::NAN, f64::min);
    let why = format!(
        "Nodes pay where there is more to compute between two barriers than the barriers cost.\n\
         On {0} × {0} cells an iteration takes {1} in one process",
        smallest.side,
        time(smallest.alone_s),
    );
    let why = match lost > 0.0 {
        true => format!("{why}, and its two barriers cost {} more than splitting the work gains.", time(lost)),
        false => format!("{why}."),
    };
    let where_it_pays = match pays_from(sizes) {
        Some((from, best)) if best.best().is_some() => {
            let (nodes, speed_up) = best.best().unwrap_or_default();
            format!(
                "From {0} × {0} on nodes are faster; {nodes} nodes gain most, {speed_up:.2} times the speed of one \
                 process, on {1} × {1}.",
                from.side, best.side
            )
        }
        _ if cores < 2 => "This machine has one core: several nodes share it, and cannot be faster.".to_string(),
        _ => {
            let is_faster = |size: &&Size| size.best().is_some_and(|(_, speed_up)| speed_up > 1.0);
            let here = match sizes.iter().rev().find(is_faster) {
                Some(size) => {
                    format!("{0} × {0} is faster on several nodes, and {1} × {1} is not", size.side, largest.side)
                }
                None => format!("No size here is faster on several nodes, not even {0} × {0}", largest.side),
            };
            format!("{here}: is the machine busy with something else?")
        }
    };
    format!("{why}\n{where_it_pays}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One iteration in one process, on two and on four nodes, in microseconds, by the grid's side.
    pub(crate) fn sample() -> Vec<Size> {
        let size = |side, alone: f64, two: f64, four: f64| Size {
            side,
            alone_s: alone * 1e-6,
            nodes: vec![(2, two * 1e-6), (4, four * 1e-6)],
        };
        vec![size(64, 2.0, 22.0, 130.0), size(512, 140.0, 100.0, 210.0), size(2048, 2600.0, 1400.0, 1500.0)]
    }

    #[test]
    fn the_table_says_who_is_faster() {
        let text = text(&sample());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 1 + 3, "a head, a rule, a line for each size: {text}");
        assert!(lines[2].ends_with("one process is faster") && lines[2].contains("0.09"), "{text}");
        assert!(lines[3].ends_with("2 nodes are faster") && lines[3].contains("1.40×"), "{text}");
        assert!(lines[4].contains("2.60 ms") && lines[4].contains("1.86×"), "{text}");
    }

    #[test]
    fn the_crossover_is_explained() {
        let said = explain(&sample(), 2);
        assert!(said.contains("From 512 × 512 on") && said.contains("2 nodes gain most, 1.86 times"), "{said}");
        assert!(said.contains("cost 20.0 us more"), "{said}");
        let slow: Vec<Size> = sample().into_iter().map(|size| Size { alone_s: 1e-6, ..size }).collect();
        assert!(explain(&slow, 2).contains("is the machine busy"), "{}", explain(&slow, 2));
        assert!(explain(&slow, 1).contains("one core"), "{}", explain(&slow, 1));
        // What the sentence says is what the table shows.
        let mut late: Vec<Size> = sample();
        late[2].alone_s = 1e-6;
        let said = explain(&late, 2);
        assert!(said.contains("512 × 512 is faster on several nodes, and 2048 × 2048 is not"), "{said}");
        // One lucky small size is no crossover.
        let mut odd = sample();
        odd[0].alone_s = 1.0;
        odd[1].alone_s = 1e-6;
        assert!(explain(&odd, 2).contains("From 2048 × 2048 on"), "{}", explain(&odd, 2));
    }

    #[test]
    fn small_grids_make_more_iterations() {
        assert_eq!([64, 1024, 8192].map(iterations), [1000, 64, 10]);
    }

    #[test]
    fn times_have_fitting_units() {
        assert_eq!([2e-6, 3.7e-3, 0.045, 1.5].map(time), ["2.0 us", "3.70 ms", "45 ms", "1.50 s"]);
    }
}
