//! The programs on shared pages: on two nodes against two plain threads of one process, and on more nodes than cores.

use super::subjects::Backbones;
use crate::jobs::Bench;
use crate::report;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use comem_bench::job::{self, Job};
use comem_bench::sample::{Comparison, Finding, median, quantile};
use comem_bench::sea;

/// Which programs, and how often.
#[derive(clap::Args, Clone, Debug)]
pub struct Selection {
    /// Programs, with commas between them [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(KERNELS.map(|kernel| kernel.name)))]
    pub programs: Vec<String>,
    /// Problem sizes [default: the smallest of a paper that the program has]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(PRESETS))]
    pub presets: Vec<String>,
    /// Engines
    #[arg(long, value_delimiter = ',', default_value = "hlrc,scope")]
    pub engines: Vec<String>,
    /// Backbones
    #[arg(long, value_enum, default_value_t = Backbones::Both)]
    pub backbones: Backbones,
    /// How often two programs are run in turn
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub repeat: usize,
    /// Nodes (`counts`)
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    pub nodes: Vec<usize>,
    /// Further flags of `comem run`, in one word: --with="--unit-pages 2"
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    pub with: String,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            programs: Vec::new(),
            presets: Vec::new(),
            engines: vec!["hlrc".to_string()],
            backbones: Backbones::Both,
            repeat: 5,
            nodes: vec![2, 4],
            with: String::new(),
        }
    }
}

impl Selection {
    /// Whether a program was asked for.
    pub fn has(&self, program: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|p| p == program)
    }

    /// The flags of a job with this backbone.
    pub fn flags(&self, backbone: &str) -> Vec<String> {
        ["--backbone", backbone].into_iter().chain(self.with.split_whitespace()).map(str::to_string).collect()
    }

    fn presets_of(&self, kernel: &Kernel) -> Vec<&str> {
        let asked = self.presets.iter().map(String::as_str).filter(|p| kernel.presets.contains(p));
        if self.presets.is_empty() { vec![kernel.presets[0]] } else { asked.collect() }
    }
}

/// A program: its problem sizes, and the speed that is aimed at on two nodes, as a part of that of two threads.
struct Kernel {
    name: &'static str,
    presets: &'static [&'static str],
    /// Under shm and udp; 0 where none was set.
    aims: [f64; 2],
}

const PRESETS: [&str; 6] = ["jiajia", "hlrc", "nautilus", "brazos", "large", "tiny"];

const KERNELS: [Kernel; 10] = [
    Kernel { name: "sor", presets: &["nautilus", "hlrc", "jiajia", "brazos", "large", "tiny"], aims: [0.85, 0.75] },
    Kernel { name: "lu", presets: &["nautilus", "hlrc", "jiajia", "large", "tiny"], aims: [0.85, 0.75] },
    Kernel { name: "ep", presets: &["nautilus", "jiajia", "large", "tiny"], aims: [0.85, 0.75] },
    Kernel { name: "water", presets: &["jiajia", "nautilus", "brazos", "large", "tiny"], aims: [0.85, 0.75] },
    Kernel { name: "fft", presets: &["hlrc", "large", "tiny"], aims: [0.75, 0.55] },
    Kernel { name: "radix", presets: &["hlrc", "large", "tiny"], aims: [0.0, 0.0] },
    Kernel { name: "is", presets: &["hlrc", "jiajia", "large", "tiny"], aims: [0.0, 0.0] },
    Kernel { name: "ilink", presets: &["brazos", "large", "tiny"], aims: [0.0, 0.0] },
    Kernel { name: "barnes", presets: &["brazos", "large", "tiny"], aims: [0.0, 0.0] },
    Kernel { name: "rays", presets: &["brazos", "large", "tiny"], aims: [0.0, 0.0] },
];

/// How much slower eight nodes may be than two where there are two cores.
const CROWD_LIMIT: f64 = 1.6;

/// The seconds that a program printed behind its verdict.
///
/// # Errors
/// A sentence with what was printed, where the result is not `ok`.
fn seconds_of_right_result(printed: &str) -> Result<f64, String> {
    if printed.trim_end().ends_with(" ok") {
        sea::seconds(printed)
    } else {
        Err(format!("the program's result is not ok: {}", printed.trim()))
    }
}

impl Bench {
    /// The programs on two nodes against two threads, and on eight nodes against two.
    ///
    /// # Errors
    /// A sentence about what went wrong: also a program whose result is not `ok`.
    pub fn kernels(&self, selection: &Selection) -> Result<bool, String> {
        let mut good = true;
        let mut crowds = Vec::new();
        report::heading("Programs: two nodes against two threads", &[]);
        println!(
            "| program | size | engine | backbone | two nodes, s | two threads, s | speed (quartiles) | n | aim | |"
        );
        println!("|---|---|---|---|---:|---:|---:|---:|---:|---|");
        for kernel in KERNELS.iter().filter(|k| selection.has(k.name)) {
            for preset in selection.presets_of(kernel) {
                good &= self.kernel(selection, kernel, preset, &mut crowds)?;
            }
        }
        let title = "Programs: eight nodes against two, on this machine's cores";
        Ok(report::print(title, &[], &crowds) && good)
    }

    fn kernel(
        &self,
        selection: &Selection,
        kernel: &Kernel,
        preset: &str,
        crowds: &mut Vec<Finding>,
    ) -> Result<bool, String> {
        let mut good = true;
        for engine in &selection.engines {
            for backbone in selection.backbones.names() {
                let runs = self.in_turn(selection, (kernel.name, preset), engine, backbone)?;
                let aim = kernel.aims[usize::from(*backbone == "udp")];
                let reached = runs.speed.ratio() >= aim;
                good &= reached;
                println!("| {} | {preset} | {engine} | {backbone} {} |", kernel.name, speed_cells(&runs.speed, aim));
                crowds.push(Finding {
                    what: format!("{} {preset}, {engine}, {backbone}: 8 nodes against 2", kernel.name),
                    unit: "s",
                    comparison: runs.crowd,
                    limit: Some(CROWD_LIMIT),
                });
            }
        }
        Ok(good)
    }

    /// Two threads, two nodes and eight nodes, by turns.
    fn in_turn(
        &self,
        selection: &Selection,
        (name, preset): (&str, &str),
        engine: &str,
        backbone: &str,
    ) -> Result<Runs, String> {
        let sized = |program: String| vec![program, "--preset".to_string(), preset.to_string()];
        let mut plain = vec!["env".to_string(), "COMEM_THREADS=2".to_string()];
        plain.extend(sized(self.programs.workload(&format!("{name}-threads"))?));
        let program = sized(self.programs.workload(name)?);
        let flags = selection.flags(backbone);
        let job =
            |nodes| Job { nodes, engine: Some(engine.to_string()), flags: flags.clone(), program: program.clone() };
        let mut runs = Runs::default();
        for _ in 0..selection.repeat {
            let threads = seconds_of_right_result(&job::run(&plain)?)?;
            let two = seconds_of_right_result(&self.programs.run(&job(2))?.output)?;
            let eight = seconds_of_right_result(&self.programs.run(&job(8))?.output)?;
            // A speed is the inverse of a time: the ratio is the threads' time by the nodes'.
            runs.speed.push(threads, two);
            runs.crowd.push(eight, two);
        }
        runs.speed.per_block = 1;
        runs.crowd.per_block = 1;
        Ok(runs)
    }
}

/// Times of a program.
#[derive(Default)]
struct Runs {
    /// Of two threads, and of two nodes.
    speed: Comparison,
    /// Of eight nodes, and of two nodes.
    crowd: Comparison,
}

fn speed_cells(speed: &Comparison, aim: f64) -> String {
    let ratios = speed.ratios();
    let (aim, verdict) = match aim {
        0.0 => ("–".to_string(), ""),
        aim => (format!("≥ {aim}"), if speed.ratio() >= aim { "reached" } else { "missed" }),
    };
    format!(
        "| {:.3} | {:.3} | {:.2} ({:.2}–{:.2}) | {} | {aim} | {verdict}",
        median(&speed.base),
        median(&speed.ours),
        speed.ratio(),
        quantile(&ratios, 0.25),
        quantile(&ratios, 0.75),
        speed.ours.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_right_result_has_a_time() {
        assert_eq!(seconds_of_right_result("sor rows=3 time_s=0.25 checksum=1 ok\n"), Ok(0.25));
        assert!(seconds_of_right_result("sor rows=3 time_s=0.25 checksum=1 WRONG\n").unwrap_err().contains("WRONG"));
    }

    #[test]
    fn a_program_that_takes_longer_on_nodes_is_slower() {
        let speed = Comparison { ours: vec![1.0, 1.0], base: vec![2.0, 2.0], per_block: 1 };
        assert!(speed_cells(&speed, 0.75).contains("0.50") && speed_cells(&speed, 0.75).ends_with("missed"));
        assert!(speed_cells(&speed, 0.5).ends_with("reached"));
    }

    #[test]
    fn a_size_that_a_program_lacks_is_left_out() {
        let selection = Selection { presets: vec!["jiajia".to_string()], ..Selection::default() };
        assert_eq!(selection.presets_of(&KERNELS[4]), Vec::<&str>::new());
        assert_eq!(selection.presets_of(&KERNELS[0]), ["jiajia"]);
        assert_eq!(Selection::default().presets_of(&KERNELS[4]), ["hlrc"]);
    }
}
