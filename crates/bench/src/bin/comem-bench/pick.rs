//! What a user would pick on one host: the same heat and k-means in threads, by MPI, with `multiprocessing`, Dask and
//! Comem. Every way runs in turn, and all must end with the checksum of one process.
//!
//! C's programs are in `workloads`, compiled with the most optimisation that there is; Python's are
//! `bench/python/pick.py`.

use crate::companions::{Mpi, Python, Way as MpiWay, skip};
use crate::jobs::Bench;
use crate::report;
use comem_bench::job::{self, Job};
use comem_bench::sample::{Comparison, Finding, median};
use comem_bench::sea;

/// How much longer than the best of the others Comem may take.
const LIMIT: f64 = 1.05;

/// What to run.
#[derive(clap::Args, Clone, Debug)]
pub struct Choice {
    /// Workers: threads, processes or nodes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// How often each way is run, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeat: u16,
    /// Small problems, each once: whether all works
    #[arg(long)]
    pub quick: bool,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice { workers: 2, repeat: 5, quick: false }
    }
}

/// A problem: what both languages call it, and the option for its size in C.
struct Problem {
    name: &'static str,
    size_option: &'static str,
    /// Size and steps, usual and quick.
    usual: [&'static str; 2],
    quick: [&'static str; 2],
}

const PROBLEMS: [Problem; 2] = [
    Problem { name: "heat", size_option: "--size", usual: ["1000", "200"], quick: ["66", "30"] },
    Problem { name: "kmeans", size_option: "--points", usual: ["200000", "20"], quick: ["2000", "10"] },
];

/// One way of solving a problem.
struct Way {
    name: &'static str,
    words: Vec<String>,
    seconds: Vec<f64>,
}

impl Way {
    fn new(name: &'static str, words: Vec<String>) -> Way {
        Way { name, words, seconds: Vec::new() }
    }
}

/// The way whose result the others' must be.
const ALONE: &str = "one process";
/// The way that is to be as good as the best of the others.
const OURS: &str = "Comem";

/// The checksum that a program printed, and its seconds.
fn result(printed: &str) -> Result<(f64, &str), String> {
    let sum = printed.split_whitespace().find_map(|word| word.strip_prefix("checksum="));
    let sum = sum.ok_or_else(|| format!("no checksum in what was printed: {printed}"))?;
    Ok((sea::seconds(printed)?, sum))
}

/// Runs each way in turn, so many times; all must end with the same checksum.
fn run_in_turn(ways: &mut [Way], repeat: usize, expected: &mut Option<String>) -> Result<(), String> {
    for _ in 0..repeat {
        for way in &mut *ways {
            let printed = job::run(&way.words)?;
            let (seconds, sum) = result(&printed)?;
            match expected {
                Some(other) if other != sum => {
                    return Err(format!("WRONG: `{}` ends with {sum} instead of {other}", way.words.join(" ")));
                }
                _ => *expected = Some(sum.to_string()),
            }
            way.seconds.push(seconds);
        }
    }
    Ok(())
}

/// A row for each way, in relation to the best of those without Comem.
fn findings(what: &str, ways: &[Way]) -> Vec<Finding> {
    let others = ways.iter().filter(|way| way.name != OURS);
    let best = others.min_by(|a, b| median(&a.seconds).total_cmp(&median(&b.seconds)));
    let Some(best) = best else { return Vec::new() };
    let row = |way: &Way| Finding {
        what: format!("{what}: {} (best of the others: {})", way.name, best.name),
        unit: "s",
        comparison: Comparison { ours: way.seconds.clone(), base: best.seconds.clone(), per_block: 1 },
        limit: (way.name == OURS).then_some(LIMIT),
    };
    ways.iter().map(row).collect()
}

impl Bench {
    /// Heat and k-means in every way that is installed.
    ///
    /// # Errors
    /// A sentence about what went wrong: also a result that is not that of one process.
    pub fn pick(&self, choice: &Choice) -> Result<bool, String> {
        let (mut rows, mut commands) = (Vec::new(), Vec::new());
        let repeat = if choice.quick { 1 } else { usize::from(choice.repeat) };
        let python = Python::find();
        let is_python = python.has("heat and kmeans in Python", "numpy");
        for problem in &PROBLEMS {
            let mut expected = None;
            let mut sets = vec![("C", self.ways_in_c(choice, problem)?)];
            if is_python {
                sets.push(("Python", ways_in_python(choice, problem, &python)));
            }
            for (language, mut ways) in sets {
                run_in_turn(&mut ways, repeat, &mut expected)?;
                rows.extend(findings(&format!("{} in {language}", problem.name), &ways));
                commands.extend(ways.into_iter().map(|way| way.words));
            }
        }
        Ok(report::print("What a user would pick on one host", &commands, &rows))
    }

    fn ways_in_c(&self, choice: &Choice, problem: &Problem) -> Result<Vec<Way>, String> {
        let (name, workers) = (problem.name, usize::from(choice.workers));
        let [size, steps] = problem.sizes(choice);
        let arguments = [problem.size_option, size, "--steps", steps];
        let build = |form: &str| -> Result<Vec<String>, String> {
            let program = self.best_workload(&format!("{name}{form}"))?;
            Ok(std::iter::once(program).chain(arguments.map(str::to_string)).collect())
        };
        let mut threads = vec!["env".to_string(), format!("COMEM_THREADS={workers}")];
        threads.extend(build("-threads")?);
        let mut ways = vec![Way::new(ALONE, build("-sequential")?), Way::new("threads", threads)];
        let mpi = self.mpi_words(&format!("{name}-mpi"), workers, MpiWay::Chosen, &arguments);
        ways.extend(mpi.map(|words| Way::new("MPI", words)));
        let job = Job { nodes: workers, program: build("")?, ..Job::default() };
        ways.push(Way::new(OURS, self.whole_command(&job)));
        Ok(ways)
    }
}

impl Problem {
    fn sizes(&self, choice: &Choice) -> [&'static str; 2] {
        if choice.quick { self.quick } else { self.usual }
    }
}

fn ways_in_python(choice: &Choice, problem: &Problem, python: &Python) -> Vec<Way> {
    let [size, steps] = problem.sizes(choice);
    let count = choice.workers.to_string();
    let script = |way: &str| {
        python.script("pick.py", &[problem.name, way, "--size", size, "--steps", steps, "--workers", &count])
    };
    let mut ways = vec![
        Way::new(ALONE, script("one")),
        Way::new("threads", script("threads")),
        Way::new("multiprocessing", script("multiprocessing")),
    ];
    let workers = usize::from(choice.workers);
    let named = |way: &str| format!("{} in Python: {way}", problem.name);
    match Mpi::find() {
        Some(mpi) if python.has(&named("mpi4py"), "mpi4py.MPI") => {
            ways.push(Way::new("mpi4py", mpi.words(workers, MpiWay::Chosen, &script("mpi4py"))));
        }
        Some(_) => {}
        None => skip(&named("mpi4py"), "there is no mpirun; sudo apt-get install openmpi-bin"),
    }
    if python.has(&named("Dask"), "dask.array") {
        ways.push(Way::new("Dask", script("dask")));
    }
    if python.has(&named(OURS), "comem") {
        ways.push(Way::new(OURS, python.job(workers, &[], &script("comem"))));
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printing(sum: &str, seconds: &str) -> Vec<String> {
        ["echo", &format!("heat time_s={seconds}"), &format!("checksum={sum}")].map(str::to_string).to_vec()
    }

    #[test]
    fn another_result_than_that_of_one_process_is_an_error() {
        let mut ways = [Way::new(ALONE, printing("0f", "2.0")), Way::new(OURS, printing("0f", "1.5"))];
        let mut expected = None;
        run_in_turn(&mut ways, 2, &mut expected).unwrap();
        assert_eq!((ways[1].seconds.as_slice(), expected.as_deref()), (&[1.5, 1.5][..], Some("0f")));
        let mut wrong = [Way::new("threads", printing("10", "1.0"))];
        let said = run_in_turn(&mut wrong, 1, &mut expected).unwrap_err();
        assert!(said.contains("WRONG") && said.contains("10 instead of 0f"), "{said}");
    }

    #[test]
    fn every_way_is_compared_with_the_best_of_those_without_comem() {
        let way = |name, seconds| Way { name, words: Vec::new(), seconds: vec![seconds] };
        let rows = findings("heat in C", &[way(ALONE, 4.0), way("threads", 2.0), way(OURS, 1.0)]);
        let ratios: Vec<f64> = rows.iter().map(|row| row.comparison.ratio()).collect();
        assert_eq!(ratios, [2.0, 1.0, 0.5]);
        assert!(rows[2].is_good() && rows[2].limit == Some(LIMIT) && rows[0].limit.is_none());
        assert!(findings("heat in C", &[way(OURS, 1.0)]).is_empty());
    }
}
