//! The programs on shared pages: one thread of each build against the sequential program, two nodes against two plain
//! threads of one process, and more nodes than cores.
//!
//! A program's builds have the same instructions where it spends its time (`KERNEL_HOT` in `workloads/kernel.h`). That
//! one thread takes as long in each is measured all the same: a ratio to a build that the compiler handicaps would say
//! nothing.

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
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(KERNELS.iter().map(|k| k.name)))]
    pub programs: Vec<String>,
    /// Problem sizes [default: the smallest of a paper that the program has]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(PRESETS))]
    pub presets: Vec<String>,
    /// Engines (`counts` leaves out hardware, which has nothing to count)
    #[arg(long, value_delimiter = ',', default_value = "hardware,hlrc,scope")]
    pub engines: Vec<String>,
    /// Backbones
    #[arg(long, value_enum, default_value_t = Backbones::Both)]
    pub backbones: Backbones,
    /// How far the compiler optimises (`kernels`)
    #[arg(long, value_enum, value_delimiter = ',', default_value = "O2,O3")]
    pub levels: Vec<Level>,
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
            engines: vec![HARDWARE.to_string(), "hlrc".to_string()],
            backbones: Backbones::Both,
            levels: vec![Level::O2, Level::O3],
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

    /// The engines that keep copies, and so have something to count.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.engines.iter().map(String::as_str).filter(|engine| *engine != HARDWARE)
    }

    /// The backbones under an engine: nodes that map one memory share it for their messages too.
    fn backbones_of(&self, engine: &str) -> &'static [&'static str] {
        if engine == HARDWARE { &["shm"] } else { self.backbones.names() }
    }

    /// Each program in each of its sizes, at each level of optimisation.
    fn builds(&self, levels: &[Level]) -> Vec<Build<'_>> {
        let of = |kernel: &'static Kernel| {
            let presets = self.presets_of(kernel).into_iter();
            presets.flat_map(move |preset| levels.iter().map(move |level| Build { kernel, preset, level: *level }))
        };
        KERNELS.iter().filter(|kernel| self.has(kernel.name)).flat_map(of).collect()
    }
}

/// The engine under which the nodes of a host map one memory.
const HARDWARE: &str = "hardware";

/// How far the compiler optimises the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// As they are built for tests: few loops become vector instructions.
    #[value(name = "O2")]
    O2,
    /// In a folder of their own, which `make bench` builds.
    #[value(name = "O3")]
    O3,
}

impl Level {
    /// The compiler's flag.
    pub fn flag(self) -> &'static str {
        match self {
            Level::O2 => "-O2",
            Level::O3 => "-O3",
        }
    }

    /// Where a program of this level is, within the folder of workloads.
    pub fn path(self, program: &str) -> String {
        match self {
            Level::O2 => program.to_string(),
            Level::O3 => format!("O3/{program}"),
        }
    }
}

/// A program in one of its sizes, built in one way.
#[derive(Clone, Copy)]
struct Build<'a> {
    kernel: &'static Kernel,
    preset: &'a str,
    level: Level,
}

impl Build<'_> {
    fn name(&self) -> String {
        format!("{} {} {}", self.kernel.name, self.preset, self.level.flag())
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

static KERNELS: [Kernel; 10] = [
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

/// The part of two threads' speed that two nodes shall have where all map one memory, whatever the program.
const HARDWARE_AIM: f64 = 0.95;

/// How much longer than the sequential program one thread of another build may take, for measurements vary.
const ALONE_LIMIT: f64 = 1.05;

/// How much slower eight nodes may be than two where there are two cores.
const CROWD_LIMIT: f64 = 1.6;

/// What the forms of one program of one size have printed.
#[derive(Default)]
struct Results {
    /// Of the first result that the program did not check itself.
    checksum: Option<String>,
}

impl Results {
    /// The seconds that a program printed, if its result is right: by its own verdict, or, where a check of its own
    /// would take too long, as the other forms' results.
    ///
    /// # Errors
    /// A sentence with what was printed.
    fn seconds(&mut self, printed: &str) -> Result<f64, String> {
        let printed = printed.trim_end();
        let sum = printed.split_whitespace().find_map(|word| word.strip_prefix("checksum="));
        let same = |sum: &str| self.checksum.as_deref().is_none_or(|first| first == sum);
        match sum {
            _ if printed.ends_with(" ok") => {}
            Some(sum) if printed.ends_with(" unchecked") && same(sum) => self.checksum = Some(sum.to_string()),
            Some(_) if printed.ends_with(" unchecked") => {
                return Err(format!("the forms of a program have different results: {printed}"));
            }
            _ => return Err(format!("the program's result is not ok: {printed}")),
        }
        sea::seconds(printed)
    }
}

impl Bench {
    /// The programs: one thread of each build against the sequential one, two nodes against two threads, and eight
    /// nodes against two.
    ///
    /// # Errors
    /// A sentence about what went wrong: also a program whose result is not `ok`.
    pub fn kernels(&self, selection: &Selection) -> Result<bool, String> {
        let levels = self.levels(selection);
        let builds = selection.builds(&levels);
        let mut good = self.alone(selection, &builds)?;
        let mut crowds = Vec::new();
        report::heading("Programs: two nodes against two threads", &[]);
        println!(
            "| program | size | level | engine | backbone | two nodes, s | two threads, s | speed (quartiles) | n \
             | aim | |"
        );
        println!("|---|---|---|---|---|---:|---:|---:|---:|---:|---|");
        for build in &builds {
            good &= self.kernel(selection, build, &mut crowds)?;
        }
        let title = "Programs: eight nodes against two, on this machine's cores";
        Ok(report::print(title, &[], &crowds) && good)
    }

    /// The levels that were asked for, as far as there are programs; a line says which are missing.
    fn levels(&self, selection: &Selection) -> Vec<Level> {
        let is_there = |level: &Level| {
            let folder = self.programs.workloads.join(level.path(""));
            let found = folder.is_dir();
            if !found {
                println!("\nSKIP: {}: there is no {}; make bench builds it", level.flag(), folder.display());
            }
            found
        };
        selection.levels.iter().copied().filter(is_there).collect()
    }

    /// One plain thread and one node, each against the sequential program.
    fn alone(&self, selection: &Selection, builds: &[Build<'_>]) -> Result<bool, String> {
        let mut findings = Vec::new();
        for build in builds {
            let sequential = self.words(build, "-sequential")?;
            let plain = self.plain(build, 1)?;
            let job = Job { nodes: 1, program: self.words(build, "")?, ..Job::default() };
            let mut pairs = [(); 2].map(|()| Comparison { per_block: 1, ..Comparison::default() });
            let mut results = Results::default();
            for _ in 0..selection.repeat {
                let base = results.seconds(&job::run(&sequential)?)?;
                pairs[0].push(results.seconds(&job::run(&plain)?)?, base);
                pairs[1].push(results.seconds(&self.programs.run(&job)?.output)?, base);
            }
            for (comparison, which) in pairs.into_iter().zip(["plain thread", "node"]) {
                let what = format!("{}: one {which} against the sequential program", build.name());
                findings.push(Finding { what, unit: "s", comparison, limit: Some(ALONE_LIMIT) });
            }
        }
        Ok(report::print("Programs: one thread of each build, which have the same inner loops", &[], &findings))
    }

    /// The command of a build: `-sequential`, `-threads` or the one with Comem.
    fn words(&self, build: &Build<'_>, form: &str) -> Result<Vec<String>, String> {
        let program = self.programs.workload(&build.level.path(&format!("{}{form}", build.kernel.name)))?;
        Ok(vec![program, "--preset".to_string(), build.preset.to_string()])
    }

    /// The command of so many plain threads.
    fn plain(&self, build: &Build<'_>, threads: usize) -> Result<Vec<String>, String> {
        let mut words = vec!["env".to_string(), format!("COMEM_THREADS={threads}")];
        words.extend(self.words(build, "-threads")?);
        Ok(words)
    }

    fn kernel(&self, selection: &Selection, build: &Build<'_>, crowds: &mut Vec<Finding>) -> Result<bool, String> {
        let mut good = true;
        for engine in &selection.engines {
            for backbone in selection.backbones_of(engine) {
                let runs = self.in_turn(selection, build, engine, backbone)?;
                let aims = if engine == HARDWARE { [HARDWARE_AIM; 2] } else { build.kernel.aims };
                let aim = aims[usize::from(*backbone == "udp")];
                good &= runs.speed.ratio() >= aim;
                let (name, level) = (build.kernel.name, build.level.flag());
                let cells = speed_cells(&runs.speed, aim);
                println!("| {name} | {} | {level} | {engine} | {backbone} {cells} |", build.preset);
                if !runs.crowd.ours.is_empty() {
                    let what = format!("{}, {engine}, {backbone}: 8 nodes against 2", build.name());
                    crowds.push(Finding { what, unit: "s", comparison: runs.crowd, limit: Some(CROWD_LIMIT) });
                }
            }
        }
        Ok(good)
    }

    /// Two threads, two nodes and, at the first level, eight nodes, by turns.
    fn in_turn(&self, selection: &Selection, build: &Build<'_>, engine: &str, backbone: &str) -> Result<Runs, String> {
        let (plain, program) = (self.plain(build, 2)?, self.words(build, "")?);
        let flags = selection.flags(backbone);
        let job =
            |nodes| Job { nodes, engine: Some(engine.to_string()), flags: flags.clone(), program: program.clone() };
        let (mut runs, mut results) = (Runs::default(), Results::default());
        for _ in 0..selection.repeat {
            let threads = results.seconds(&job::run(&plain)?)?;
            let two = results.seconds(&self.programs.run(&job(2))?.output)?;
            // A speed is the inverse of a time: the ratio is the threads' time by the nodes'.
            runs.speed.push(threads, two);
            if build.level == Level::O2 {
                runs.crowd.push(results.seconds(&self.programs.run(&job(8))?.output)?, two);
            }
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
        let mut results = Results::default();
        assert_eq!(results.seconds("sor rows=3 time_s=0.25 checksum=1 ok\n"), Ok(0.25));
        assert!(results.seconds("sor rows=3 time_s=0.25 checksum=1 WRONG\n").unwrap_err().contains("WRONG"));
        assert_eq!(results.seconds("ilink time_s=0.5 checksum=2 unchecked\n"), Ok(0.5));
        assert_eq!(results.seconds("ilink time_s=0.25 checksum=2 unchecked\n"), Ok(0.25));
        assert!(results.seconds("ilink time_s=0.25 checksum=3 unchecked\n").unwrap_err().contains("different"));
    }

    #[test]
    fn a_program_that_takes_longer_on_nodes_is_slower() {
        let speed = Comparison { ours: vec![1.0, 1.0], base: vec![2.0, 2.0], per_block: 1 };
        assert!(speed_cells(&speed, 0.75).contains("0.50") && speed_cells(&speed, 0.75).ends_with("missed"));
        assert!(speed_cells(&speed, 0.5).ends_with("reached"));
    }

    #[test]
    fn nodes_that_map_one_memory_have_no_network_and_nothing_to_count() {
        let selection = Selection::default();
        assert_eq!((selection.backbones_of(HARDWARE), selection.backbones_of("hlrc").len()), (&["shm"][..], 2));
        assert_eq!(selection.protocols().collect::<Vec<_>>(), ["hlrc"]);
    }

    #[test]
    fn each_level_has_builds_of_its_own() {
        let selection = Selection { programs: vec!["lu".to_string()], ..Selection::default() };
        let builds = selection.builds(&[Level::O2, Level::O3]);
        let names: Vec<String> = builds.iter().map(Build::name).collect();
        assert_eq!(names, ["lu nautilus -O2", "lu nautilus -O3"]);
        assert_eq!(builds[1].level.path("lu-threads"), "O3/lu-threads");
    }

    #[test]
    fn a_size_that_a_program_lacks_is_left_out() {
        let selection = Selection { presets: vec!["jiajia".to_string()], ..Selection::default() };
        assert_eq!(selection.presets_of(&KERNELS[4]), Vec::<&str>::new());
        assert_eq!(selection.presets_of(&KERNELS[0]), ["jiajia"]);
        assert_eq!(Selection::default().presets_of(&KERNELS[4]), ["hlrc"]);
    }
}
