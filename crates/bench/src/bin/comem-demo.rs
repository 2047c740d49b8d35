//! The demonstration, in two parts. First, from which size on nodes pay: `sor` on grids of growing size, in one
//! process and on
//! several nodes. Then, what an engine is worth: `sea` without Comem, and under each engine of objects on more and
//! more nodes.
//! Every result is checked against that of the build without Comem. Each part ends with a table, what to see in it,
//! and pictures.
//!
//! In the second part, a try of one iteration tells how many iterations a run has time for: an engine that needs a
//! message for every
//! write makes fewer than the others, and is compared with as many iterations without Comem.

use clap::Parser;
use comem_bench::crossover::{self, Size};
use comem_bench::field::Field;
use comem_bench::job::{self, Job, Outcome, Programs};
use comem_bench::sample::median;
use comem_bench::sea::{self, Sea};
use comem_bench::stats::Totals;
use comem_bench::table::{self, Row};
use comem_bench::{curve, paint, svg};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Shows from which size on nodes are faster than one process, and what each engine makes of one program; checks
/// every result, and draws
/// what came out.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Rows and columns of the grids of the first part
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024, 2048])]
    sizes: Vec<usize>,
    /// Rows of the sea
    #[arg(long, default_value_t = 1536)]
    rows: usize,
    /// Columns of the sea
    #[arg(long, default_value_t = 2560)]
    columns: usize,
    /// How often each cell becomes the average of its neighbours, where time allows
    #[arg(long, default_value_t = 100)]
    iterations: usize,
    /// Seconds for a run; where they would not do, it makes fewer iterations
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Numbers of nodes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    nodes: Vec<usize>,
    /// Engines; `msi:ranges` accesses rows as ranges instead of cell by cell
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = ["owner", "broadcast", "msi", "msi:ranges"].map(str::to_string)
    )]
    engines: Vec<String>,
    /// Where the compiled workloads are
    #[arg(long, default_value = "out/workloads")]
    workloads: PathBuf,
    /// Where the pictures go
    #[arg(long, default_value = "out/demo")]
    out: PathBuf,
}

/// Ends the name of an engine under which the program accesses rows as ranges.
const RANGES: &str = ":ranges";

/// How often each size of the first part is measured; the shortest times count.
const SIZE_REPEATS: usize = 5;

/// How often a run that is shorter than a third of its time is made; the middle time counts.
const REPEATS: usize = 3;

fn main() -> ExitCode {
    // The demonstration is the same whatever the user has set for jobs of their own.
    // SAFETY: the process has one thread so far.
    unsafe { job::forget_settings() };
    match Demo::new(Arguments::parse()).and_then(|demo| demo.run()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("comem-demo: a result differs from the sequential one where none may; see the table");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("comem-demo: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Demo {
    arguments: Arguments,
    programs: Programs,
    sea: Sea,
    dump: PathBuf,
    progress: Progress,
}

impl Demo {
    fn new(arguments: Arguments) -> Result<Demo, String> {
        let programs = Programs::find(&arguments.workloads)?;
        let out = &arguments.out;
        std::fs::create_dir_all(out).map_err(|e| format!("cannot make the folder {}: {e}", out.display()))?;
        let out = std::path::absolute(out).map_err(|e| format!("cannot find {}: {e}", out.display()))?;
        let bases = 1 + usize::from(arguments.engines.iter().any(|e| e.ends_with(RANGES)));
        Ok(Demo {
            sea: Sea { rows: arguments.rows, columns: arguments.columns, iterations: arguments.iterations },
            dump: out.join(format!("sea-{}.field", std::process::id())),
            progress: Progress::new(arguments.sizes.len() + bases + arguments.engines.len() * arguments.nodes.len()),
            programs,
            arguments,
        })
    }

    /// The whole demonstration; tells whether every result is what it must be.
    fn run(&self) -> Result<bool, String> {
        let result = self.crossover().and_then(|()| self.engines());
        let _ = std::fs::remove_file(&self.dump);
        self.progress.0.finish_and_clear();
        result
    }

    /// The first part.
    fn crossover(&self) -> Result<(), String> {
        let nodes = worth_comparing(&self.arguments.nodes, cores());
        if nodes.is_empty() || self.arguments.sizes.is_empty() {
            return Ok(());
        }
        let mut sizes: Vec<Size> = Vec::new();
        for side in &self.arguments.sizes {
            self.progress.begin(format!("sor on {side} × {side} cells"));
            let size = crossover::measure(&self.programs, *side, &nodes, SIZE_REPEATS)?;
            let best = size.best().unwrap_or((1, 1.0));
            self.progress.done(&format!("sor on {side} × {side} cells: {} nodes, {}", best.0, table::speed_up(best.1)));
            sizes.push(size);
        }
        let cores = cores();
        let headline = format!(
            "sor, shared pages under hlrc, one iteration; all nodes on this machine ({})",
            counted_cores(cores)
        );
        let path = self.arguments.out.join("crossover.svg");
        let picture = curve::picture(&sizes, "Comem: from which size on nodes pay", &headline);
        std::fs::write(&path, picture).map_err(|e| failed(&path, e))?;
        self.progress.0.suspend(|| {
            println!("\n1. From which size on do nodes pay?\n   {headline}\n");
            println!("{}\n{}", crossover::text(&sizes), crossover::explain(&sizes, cores));
            println!("\npicture of the crossover: {}", path.display());
        });
        Ok(())
    }

    /// The second part.
    fn engines(&self) -> Result<bool, String> {
        let (rows, field, maker, makers) = self.measure()?;
        self.progress.0.finish_and_clear();
        println!("\n2. What does each engine make of one program?\n   {}\n", self.headline());
        print!("{}", table::text(&rows));
        self.explain(&rows);
        self.draw(&rows, &field, &maker, makers)?;
        Ok(rows.iter().all(Row::is_good))
    }

    /// Runs everything; gives the rows, a field to show, who computed it, and how many nodes that were.
    fn measure(&self) -> Result<(Vec<Row>, Field, String, usize), String> {
        let ranges = self.arguments.engines.iter().any(|e| e.ends_with(RANGES));
        self.progress.begin("sea without Comem".to_string());
        let mut bases = vec![self.without_comem(false, self.sea.iterations)?];
        if ranges {
            bases.push(self.without_comem(true, self.sea.iterations)?);
        }
        let mut rows: Vec<Row> = bases.iter().map(|base| base.0.clone()).collect();
        rows.iter().for_each(|row| self.progress.done(&progress_of(row)));
        let (mut shown, mut maker, mut makers) = (bases[0].1.clone(), "one process without Comem".to_string(), 1);
        for engine in &self.arguments.engines {
            let (engine, ranges) = engine.strip_suffix(RANGES).map_or((engine.as_str(), false), |e| (e, true));
            for &nodes in &self.arguments.nodes {
                self.progress.begin(format!("sea under {engine}, {}", table::counted(nodes, "node")));
                let (row, field) = self.with_comem(engine, nodes, &bases[usize::from(ranges)])?;
                self.progress.done(&progress_of(&row));
                if row.promises() && row.difference.is_none() && row.iterations == self.sea.iterations {
                    (shown, makers) = (field, nodes);
                    maker = format!("{} under {}", table::counted(nodes, "node"), row.name());
                }
                rows.push(row);
            }
        }
        Ok((rows, shown, maker, makers))
    }

    /// The build without any Comem call.
    fn without_comem(&self, ranges: bool, iterations: usize) -> Result<(Row, Field), String> {
        let mut words = vec![self.programs.workload("sea-seq")?];
        words.extend(Sea { iterations, ..self.sea }.arguments(Some(&self.dump)));
        words.extend(ranges.then(|| "--ranges".to_string()));
        let (seconds, ()) = self.repeated(|| Ok((sea::seconds(&job::run(&words)?)?, ())))?;
        let field = Field::load(&self.dump)?;
        let row = Row {
            engine: None,
            ranges,
            nodes: 1,
            iterations,
            seconds,
            speed_up: 1.0,
            totals: Totals::default(),
            difference: field.difference(&field)?,
            cells: field.cells.len(),
        };
        Ok((row, field))
    }

    fn with_comem(
        &self,
        engine: &str,
        nodes: usize,
        (base, base_field): &(Row, Field),
    ) -> Result<(Row, Field), String> {
        let run = |iterations: usize| -> Result<(f64, Outcome), String> {
            let mut program = vec![self.programs.workload("sea")?];
            program.extend(Sea { iterations, ..self.sea }.arguments(Some(&self.dump)));
            program.extend(base.ranges.then(|| "--ranges".to_string()));
            let job = Job { nodes, engine: Some(engine.to_string()), program, ..Job::default() };
            let outcome = self.programs.run(&job)?;
            Ok((sea::seconds(&outcome.output)?, outcome))
        };
        let mut one = run(1)?;
        // One iteration at a bad moment must not decide about all.
        if affordable(one.0, self.arguments.seconds, self.sea.iterations) < self.sea.iterations {
            one = [one, run(1)?].into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no run")?;
        }
        let iterations = affordable(one.0, self.arguments.seconds, self.sea.iterations);
        let (seconds, outcome) = if iterations > 1 { self.repeated(|| run(iterations))? } else { one };
        let field = Field::load(&self.dump)?;
        let difference = match iterations == base.iterations {
            true => base_field.difference(&field)?,
            false => self.without_comem(base.ranges, iterations)?.1.difference(&field)?,
        };
        // Without Comem every iteration takes as long as any other.
        let base_seconds = base.seconds * iterations as f64 / base.iterations as f64;
        let row = Row {
            engine: Some(engine.to_string()),
            ranges: base.ranges,
            nodes,
            iterations,
            seconds,
            speed_up: base_seconds / seconds,
            totals: outcome.totals,
            difference,
            cells: field.cells.len(),
        };
        Ok((row, field))
    }

    /// Makes a run a few times if it is short; gives the middle time and what the last run gave.
    fn repeated<T>(&self, mut run: impl FnMut() -> Result<(f64, T), String>) -> Result<(f64, T), String> {
        let (first, mut last) = run()?;
        let mut times = vec![first];
        while times.len() < REPEATS && times[0] < self.arguments.seconds / REPEATS as f64 {
            let (seconds, result) = run()?;
            times.push(seconds);
            last = result;
        }
        Ok((median(&times), last))
    }

    fn headline(&self) -> String {
        let Sea { rows, columns, iterations } = self.sea;
        let cores = counted_cores(comem::capacity::cores());
        format!("sea, {rows} × {columns} cells, up to {iterations} iterations; all nodes on this machine ({cores})")
    }

    fn explain(&self, rows: &[Row]) {
        println!(
            "\n{}\n\n\
             speed-up: over as many iterations of the same program, with the same way of access, built without any \
             Comem call;\n\
             a run that has not the time for all iterations makes fewer. waiting: share of the threads' time. check: \
             against\n\
             the result without Comem, bit by bit; broadcast promises nothing, so its error is shown.",
            table::explain(rows)
        );
    }

    fn draw(&self, rows: &[Row], field: &Field, maker: &str, makers: usize) -> Result<(), String> {
        let Sea { rows: height, columns, iterations } = self.sea;
        let below = format!("{height} × {columns} cells after {iterations} iterations, computed by {maker}");
        let sea = self.arguments.out.join("sea.png");
        let picture = paint::paint(field, "sea: the temperature of the water", &below, makers);
        let file = File::create(&sea).map_err(|e| failed(&sea, e))?;
        picture.write_png(BufWriter::new(file)).map_err(|e| failed(&sea, e))?;
        let table = self.arguments.out.join("table.svg");
        let text = svg::picture(rows, "Comem: one program under each engine", &self.headline());
        std::fs::write(&table, text).map_err(|e| failed(&table, e))?;
        println!("\npicture of the sea:   {}\npicture of the table: {}", sea.display(), table.display());
        Ok(())
    }
}

fn failed(path: &Path, why: std::io::Error) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// Of these numbers of nodes, those that have a core each; if there is none, the smallest. One node is compared with
/// nothing.
fn worth_comparing(nodes: &[usize], cores: usize) -> Vec<usize> {
    let several = || nodes.iter().copied().filter(|nodes| *nodes > 1);
    let fit: Vec<usize> = several().filter(|nodes| *nodes <= cores).collect();
    if fit.is_empty() { several().min().into_iter().collect() } else { fit }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn counted_cores(cores: usize) -> String {
    table::counted(cores, "core")
}

/// A run in a line of its own.
fn progress_of(row: &Row) -> String {
    let time = table::seconds(row.seconds);
    format!("sea {}, {}, {time}, {}", row.name(), table::counted(row.nodes, "node"), row.check())
}

/// How many iterations fit into the time, when one takes `one` seconds (and costs more than each of many).
fn affordable(one: f64, seconds: f64, wanted: usize) -> usize {
    ((seconds / one) as usize).clamp(1, wanted.max(1))
}

/// A bar on a terminal, plain lines elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new(runs: usize) -> Progress {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(runs as u64)
        } else {
            ProgressBar::hidden().with_finish(indicatif::ProgressFinish::AndClear)
        };
        bar.set_length(runs as u64);
        let style = ProgressStyle::with_template("{spinner} {bar:32} {pos}/{len} runs, {elapsed}: {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(120));
        Progress(bar)
    }

    fn begin(&self, what: String) {
        self.0.set_message(what);
    }

    fn done(&self, what: &str) {
        self.0.inc(1);
        if self.0.is_hidden() {
            let (place, runs) = (self.0.position(), self.0.length().unwrap_or(0));
            eprintln!("demo: {place}/{runs}: {what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_share_cores_are_not_compared_with_one_process_where_others_need_not() {
        assert_eq!(worth_comparing(&[1, 2, 4], 2), [2]);
        assert_eq!(worth_comparing(&[1, 2, 4], 8), [2, 4]);
        assert_eq!(worth_comparing(&[4, 2, 1], 1), [2]);
        assert!(worth_comparing(&[1], 8).is_empty());
    }

    #[test]
    fn slow_engines_make_fewer_iterations() {
        assert_eq!(affordable(0.001, 2.5, 200), 200);
        assert_eq!(affordable(0.5, 2.5, 200), 5);
        assert_eq!(affordable(9.0, 2.5, 200), 1);
    }
}
