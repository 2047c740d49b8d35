//! `comem bench brazos`: the five programs of the Brazos paper on this machine (E. Speight, J. K. Bennett, "Brazos: A
//! Third Generation DSM System", USENIX Windows NT Workshop, 1997, section 4). Time, speed-up, messages, datagrams and
//! bytes in each configuration stand beside what the paper says of its Figure 4, and the reductions between
//! configurations beside the paper's.
//!
//! The paper ran Brazos and TreadMarks on four PCs of two processors (Pentium Pro at 200 MHz, 100 Mbit/s Ethernet).
//! Counts and ratios can be compared, times cannot. "Reduced by x %" is read as (old - new) / new, since x goes beyond
//! 100. The paper's input for ILINK is not public, and the programs here are others than the paper's, of the same
//! kind; `--splash` adds SPLASH's own.

use super::median;
use super::programs::{self, Commands};
use crate::args::BrazosArgs;
use crate::choice::EngineChoice;
use crate::compare::result;
use crate::failure::{Failure, Outcome, exit};
use crate::progress;
use crate::table::{Table, bytes, grouped, seconds};
use crate::trial::{self, Setup, Surroundings, Trial};
use std::ffi::OsString;
use std::path::Path;

/// A way of running a program on several nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Configuration {
    name: &'static str,
    engine: &'static str,
    /// Flags of `comem run` besides the engine.
    flags: &'static [&'static str],
    /// Each thread is a node: what threads that share a machine's memory save.
    each_alone: bool,
}

impl Configuration {
    const fn of(engine: &'static str) -> Configuration {
        Configuration { name: engine, engine, flags: &[], each_alone: false }
    }

    /// Whether this version has the engine.
    fn is_known(&self) -> bool {
        EngineChoice::parse(self.engine).is_ok()
    }
}

/// All configurations. The first one known is what the others are compared with.
const CONFIGURATIONS: [Configuration; 5] = [
    Configuration::of("lrc"),
    Configuration { name: "lrc, 1 thread", each_alone: true, ..Configuration::of("lrc") },
    Configuration::of("hlrc"),
    Configuration::of("scope"),
    Configuration::of("multicast"),
];

/// By how much the paper says that something became less.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Reduction {
    Unsaid,
    /// "Reduced by so many per cent", which is (old - new) / new.
    Percent(f64),
    /// "More than so many times."
    MoreThan(f64),
}

impl Reduction {
    fn text(self) -> String {
        match self {
            Reduction::Unsaid => "-".to_string(),
            Reduction::Percent(percent) => format!("{:.2} ({percent} %)", 1.0 + percent / 100.0),
            Reduction::MoreThan(times) => format!("more than {times}"),
        }
    }
}

/// What the paper says of a program.
struct Paper {
    /// What it is called here.
    program: &'static str,
    /// SPLASH's program of this kind, with its folder, its arguments for so many workers and its input.
    splash: Option<Splash>,
    /// Table 2.
    input: &'static str,
    /// About Figure 4, whose numbers the paper does not print.
    said: &'static [&'static str],
    /// From TreadMarks to Brazos.
    messages: Reduction,
    bytes: Reduction,
}

struct Splash {
    name: &'static str,
    folder: &'static str,
    /// Where the program is, seen from the folder.
    binary: &'static str,
    arguments: fn(usize) -> Vec<String>,
    input: fn(usize) -> String,
    flags: &'static [&'static str],
}

static PAPERS: [Paper; 5] = [
    Paper {
        program: "sor",
        splash: None,
        input: "2048 x 2048",
        said: &["threads of one machine halve communication", "multicast does not help"],
        messages: Reduction::Unsaid,
        bytes: Reduction::Unsaid,
    },
    Paper {
        program: "ilink",
        splash: None,
        input: "Amish",
        said: &[
            "communication 3.38 times less (238 %)",
            "by early updates 1.37 times less again (37 %)",
            "54 % faster",
        ],
        messages: Reduction::Percent(238.0),
        bytes: Reduction::Unsaid,
    },
    Paper {
        program: "barnes",
        splash: Some(Splash {
            name: "SPLASH barnes",
            folder: "codes/apps/barnes",
            binary: "./BARNES",
            arguments: |_| Vec::new(),
            input: |workers| format!("\n32768\n123\n\n0.025\n0.05\n1.0\n2.0\n5.0\n0.075\n0.25\n{workers}\n"),
            flags: &[],
        }),
        input: "32,768 bodies",
        said: &["communication more than 7 times less", "nearly twice as fast"],
        messages: Reduction::MoreThan(7.0),
        bytes: Reduction::Unsaid,
    },
    Paper {
        program: "water",
        splash: Some(Splash {
            name: "SPLASH water",
            folder: "codes/apps/water-nsquared",
            binary: "./WATER-NSQUARED",
            arguments: |_| Vec::new(),
            input: |workers| format!("1.5e-16 729 10 6\n-1 3000 3 0\n{workers} 6.212752\n"),
            flags: &["--globals=share"],
        }),
        input: "729 molecules, 10 steps",
        said: &["hardly faster than TreadMarks", "over 70 % of the messages synchronise"],
        messages: Reduction::Unsaid,
        bytes: Reduction::Unsaid,
    },
    Paper {
        program: "rays",
        splash: Some(Splash {
            name: "SPLASH raytrace",
            folder: "codes/apps/raytrace/inputs",
            binary: "../RAYTRACE",
            arguments: |workers| vec![format!("-p{workers}"), "-m64".to_string(), "balls4.env".to_string()],
            input: |_| String::new(),
            flags: &[],
        }),
        input: "balls4",
        said: &["speed-up 1.64", "TreadMarks is slower than one processor", "scope consistency saves most"],
        messages: Reduction::Percent(202.0),
        bytes: Reduction::Percent(614.0),
    },
];

/// A program as it is run here.
struct Subject {
    name: String,
    paper: &'static Paper,
    commands: Box<dyn Fn(usize) -> Commands>,
    surroundings: Box<dyn Fn(usize) -> Surroundings>,
    flags: &'static [&'static str],
    /// Whether what it prints must be what it prints on one node.
    is_compared: bool,
}

/// What a configuration came to.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Measured {
    seconds: f64,
    messages: f64,
    datagrams: f64,
    bytes: f64,
}

/// What the columns are.
const COLUMNS: &str = "\
time: what the program says in time_s=, else the wall time; speed-up: over the sequential program
messages, datagrams (with acknowledgements and repetitions) and bytes: of all nodes, set-up and final check included
";
const REDUCTIONS: &str = "\
times fewer: the counts of the first configuration over those of the second; the paper: from TreadMarks to Brazos
";

/// Runs the command; its exit code.
pub fn main(args: &BrazosArgs) -> Outcome<i32> {
    let subjects = subjects(args)?;
    let (known, unknown): (Vec<Configuration>, Vec<Configuration>) =
        CONFIGURATIONS.into_iter().partition(Configuration::is_known);
    for configuration in unknown {
        crate::say(format_args!(
            "comem: {} is left out: this version has no engine {}",
            configuration.name, configuration.engine
        ));
    }
    let mut rows =
        Table::new(&["<program", "<configuration", "time", "speed-up", "messages", "datagrams", "bytes", "<| paper"]);
    let mut reductions =
        Table::new(&["<program", "<from", "<to", "messages: times fewer", "bytes", "| paper: messages", "bytes"]);
    let of = |subject: &Subject| 1 + known.iter().filter(|configuration| fits(configuration, subject)).count();
    progress::expect(subjects.iter().map(of).sum::<usize>() * args.repeat as usize);
    let mut good = true;
    for subject in &subjects {
        good &= examine(args, subject, &known, &mut rows, &mut reductions);
    }
    let (nodes, threads, preset) = (args.nodes, args.threads, &args.preset);
    crate::show(&format!(
        "{nodes} nodes of {threads} threads, sizes {preset}; the paper's figures are of 4 nodes of 2 threads\n"
    ))?;
    crate::show(&rows.text(0))?;
    crate::show(COLUMNS)?;
    if args.splash.is_some() {
        crate::show("what SPLASH's own programs print is not compared: bench/splash3.sh does that\n")?;
    }
    crate::show("\n")?;
    crate::show(&reductions.text(0))?;
    crate::show(REDUCTIONS)?;
    Ok(if good { exit::SUCCESS } else { exit::DIFFERENCE })
}

/// The programs asked for, those of SPLASH behind each.
fn subjects(args: &BrazosArgs) -> Outcome<Vec<Subject>> {
    let mut list = Vec::new();
    let papers = args.programs.iter().map(|name| paper(name)).collect::<Outcome<Vec<_>>>()?;
    let folder = programs::folder(args.workloads.as_deref())?;
    for paper in papers {
        let commands = Commands::of(&folder, paper.program, &args.preset)?;
        list.push(Subject {
            name: paper.program.to_string(),
            paper,
            commands: Box::new(move |_| commands.clone()),
            surroundings: Box::new(|_| Surroundings::default()),
            flags: &[],
            is_compared: true,
        });
        if let (Some(suite), Some(splash)) = (&args.splash, &paper.splash) {
            list.push(splash_subject(suite, paper, splash)?);
        }
    }
    Ok(list)
}

fn paper(name: &str) -> Outcome<&'static Paper> {
    PAPERS.iter().find(|paper| paper.program == name).ok_or_else(|| {
        let names: Vec<&str> = PAPERS.iter().map(|paper| paper.program).collect();
        Failure::usage(format!("the paper has no program {name:?}"), format!("choose from {}", names.join(", ")))
    })
}

/// A program of a SPLASH-3 checkout that was built with Comem's macros: by itself it runs in one process.
fn splash_subject(suite: &Path, paper: &'static Paper, splash: &'static Splash) -> Outcome<Subject> {
    let folder = suite.join(splash.folder);
    let binary = folder.join(splash.binary).canonicalize().map_err(|e| {
        let source = folder.join(splash.binary);
        Failure::start(
            format!("{} cannot be used: {e}", source.display()),
            "build it there with make MACROS=\"$(comem config --parmacs)\" CC=comem-cc, or leave --splash out",
        )
    })?;
    let words = move |workers: usize| {
        let arguments = (splash.arguments)(workers).into_iter().map(OsString::from);
        [binary.clone().into_os_string()].into_iter().chain(arguments).collect::<Vec<OsString>>()
    };
    Ok(Subject {
        name: splash.name.to_string(),
        paper,
        commands: Box::new(move |workers| Commands { shared: words(workers), sequential: Some(words(1)) }),
        surroundings: Box::new(move |workers| Surroundings {
            folder: Some(folder.clone()),
            input: (splash.input)(workers),
        }),
        flags: splash.flags,
        is_compared: false,
    })
}

/// Runs one program in all configurations and adds its lines; whether all was well.
fn examine(
    args: &BrazosArgs,
    subject: &Subject,
    known: &[Configuration],
    rows: &mut Table,
    reductions: &mut Table,
) -> bool {
    let reference = match reference(args, subject) {
        Ok(list) => list,
        Err(why) => {
            crate::say(format_args!("comem: {} without Comem, or on one node, failed: {why}", subject.name));
            rows.row(vec![subject.name.clone(), "sequential".to_string(), "failed".to_string()]);
            return false;
        }
    };
    let one_s = summary(&reference).seconds;
    let name = &subject.name;
    let mut cells = line(name, "sequential", one_s, None, seconds(one_s));
    cells.push(format!("| {}", subject.paper.input));
    rows.row(cells);
    let (mut good, mut first) = (true, None);
    for configuration in known.iter().filter(|configuration| fits(configuration, subject)) {
        let measured = trials(args, subject, configuration, &reference[0]).map(|list| summary(&list));
        if let Err(why) = &measured {
            crate::say(format_args!("comem: {name} {}: {why}", configuration.name));
            good = false;
        }
        let measured = measured.ok();
        rows.row(line(name, configuration.name, one_s, measured, "failed".to_string()));
        let Some(measured) = measured else { continue };
        match &first {
            None => first = Some((configuration.name, measured)),
            Some((from, base)) => {
                reductions.row(reduction(subject, (*from, base), (configuration.name, &measured), configuration))
            }
        }
    }
    // In rows of their own: what the paper says is not of one of these configurations.
    for text in subject.paper.said {
        let blanks = (0..6).map(|_| String::new());
        rows.row([name.clone()].into_iter().chain(blanks).chain([format!("| {text}")]).collect());
    }
    good
}

/// Threads that are nodes of their own are of interest where the paper names what shared memory saves.
fn fits(configuration: &Configuration, subject: &Subject) -> bool {
    !configuration.each_alone || subject.name == "sor"
}

/// The sequential program, or one node where there is none.
fn reference(args: &BrazosArgs, subject: &Subject) -> Result<Vec<Trial>, String> {
    let (commands, surroundings) = ((subject.commands)(1), (subject.surroundings)(1));
    let list = (0..args.repeat).map(|_| match &commands.sequential {
        Some(words) => trial::run_plain(words, &surroundings),
        None => {
            let setup = Setup { nodes: 1, threads: 1, flags: args.flags.clone(), surroundings: surroundings.clone() };
            trial::run(&setup, &commands.shared)
        }
    });
    let list = list.collect::<Result<Vec<Trial>, String>>()?;
    if subject.is_compared && result::says_nothing(&list[0].output) {
        return Err(result::NOTHING.to_string());
    }
    Ok(list)
}

fn trials(
    args: &BrazosArgs,
    subject: &Subject,
    configuration: &Configuration,
    reference: &Trial,
) -> Result<Vec<Trial>, String> {
    let workers = args.nodes * args.threads;
    let (nodes, threads) = if configuration.each_alone { (workers, 1) } else { (args.nodes, args.threads) };
    let own = configuration.flags.iter().chain(subject.flags).map(|flag| (*flag).to_string());
    let flags = [format!("--engine={}", configuration.engine)].into_iter().chain(own).chain(args.flags.clone());
    let setup = Setup { nodes, threads, flags: flags.collect(), surroundings: (subject.surroundings)(workers) };
    let command = (subject.commands)(workers).shared;
    let list = (0..args.repeat).map(|_| trial::run(&setup, &command)).collect::<Result<Vec<Trial>, String>>()?;
    let mut compared = list.iter().filter(|_| subject.is_compared);
    let difference = compared.find_map(|trial| result::difference(&reference.output, &trial.output));
    match difference {
        Some((wanted, got)) => Err(format!("printed {got:?} instead of {wanted:?}")),
        None => Ok(list),
    }
}

/// Medians over the runs.
fn summary(list: &[Trial]) -> Measured {
    let middle = |of: &dyn Fn(&Trial) -> f64| median(&mut list.iter().map(of).collect::<Vec<f64>>());
    let total =
        |trial: &Trial, heads: &[&str]| -> f64 { heads.iter().map(|head| trial.run.message_total(head) as f64).sum() };
    Measured {
        seconds: middle(&Trial::seconds),
        messages: middle(&|trial| total(trial, &["messages"])),
        datagrams: middle(&|trial| total(trial, &["messages", "acks", "repeated"])),
        bytes: middle(&|trial| total(trial, &["bytes"])),
    }
}

/// A row; `instead` stands for the time where nothing was measured on nodes.
fn line(program: &str, configuration: &str, one_s: f64, measured: Option<Measured>, instead: String) -> Vec<String> {
    let mut cells = vec![program.to_string(), configuration.to_string()];
    match measured {
        Some(m) => cells.extend([
            seconds(m.seconds),
            format!("{:.2}", one_s / m.seconds),
            grouped(m.messages as u64),
            grouped(m.datagrams as u64),
            bytes(m.bytes as u64),
        ]),
        None => cells.extend([instead, String::new(), String::new(), String::new(), String::new()]),
    }
    cells
}

/// How much less a configuration took than the first one, beside the paper. The paper's figures are those from
/// TreadMarks to Brazos; what threads of one machine save is its own.
fn reduction(
    subject: &Subject,
    (from, base): (&str, &Measured),
    (to, measured): (&str, &Measured),
    configuration: &Configuration,
) -> Vec<String> {
    let times = |old: f64, new: f64| if new > 0.0 { format!("{:.2}", old / new) } else { "-".to_string() };
    let (from, to, old, new) =
        if configuration.each_alone { (to, from, measured, base) } else { (from, to, base, measured) };
    let (messages, bytes) = if configuration.each_alone {
        ("2 (by half)".to_string(), "2 (by half)".to_string())
    } else {
        (subject.paper.messages.text(), subject.paper.bytes.text())
    };
    vec![
        subject.name.clone(),
        from.to_string(),
        to.to_string(),
        times(old.messages, new.messages),
        times(old.bytes, new.bytes),
        format!("| {messages}"),
        bytes,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &'static str) -> Subject {
        Subject {
            name: name.to_string(),
            paper: paper(name).unwrap(),
            commands: Box::new(|_| Commands { shared: Vec::new(), sequential: None }),
            surroundings: Box::new(|_| Surroundings::default()),
            flags: &[],
            is_compared: true,
        }
    }

    fn measured(messages: f64, bytes: f64) -> Measured {
        Measured { seconds: 2.0, messages, datagrams: 1.5 * messages, bytes }
    }

    #[test]
    fn per_cents_beyond_a_hundred_are_of_what_is_left() {
        assert_eq!(Reduction::Percent(202.0).text(), "3.02 (202 %)");
        assert_eq!(Reduction::Percent(614.0).text(), "7.14 (614 %)");
        assert_eq!(Reduction::Percent(238.0).text(), "3.38 (238 %)");
        assert_eq!(Reduction::MoreThan(7.0).text(), "more than 7");
        assert_eq!(Reduction::Unsaid.text(), "-");
    }

    #[test]
    fn a_row_has_a_cell_for_each_count() {
        let cells = line("rays", "scope", 8.0, Some(measured(1234.0, 2048.0)), String::new());
        assert_eq!(cells.join(" "), "rays scope 2.00 s 4.00 1,234 1,851 2.0 KiB");
        let cells = line("rays", "scope", 8.0, None, "failed".to_string());
        assert_eq!((cells.len(), cells[2].as_str()), (7, "failed"));
    }

    #[test]
    fn reductions_are_old_over_new() {
        let (old, new) = (measured(600.0, 7000.0), measured(200.0, 1000.0));
        let cells = reduction(&subject("rays"), ("hlrc", &old), ("scope", &new), &Configuration::of("scope"));
        assert_eq!(cells.join(" "), "rays hlrc scope 3.00 7.00 | 3.02 (202 %) 7.14 (614 %)");
        let alone = Configuration { name: "alone", each_alone: true, ..Configuration::of("hlrc") };
        let cells = reduction(&subject("sor"), ("hlrc", &new), ("alone", &old), &alone);
        assert_eq!(cells.join(" "), "sor alone hlrc 3.00 7.00 | 2 (by half) 2 (by half)");
        assert!(!fits(&alone, &subject("rays")) && fits(&alone, &subject("sor")));
    }

    #[test]
    fn the_engines_of_this_version_are_all_that_is_run() {
        assert!(Configuration::of("hlrc").is_known() && Configuration::of("scope").is_known());
        assert!(!Configuration::of("pigeon").is_known());
        assert!(CONFIGURATIONS.iter().any(Configuration::is_known));
    }

    #[test]
    fn unknown_programs_are_answered_with_the_known() {
        let failure = paper("fft").err().unwrap().to_string();
        assert!(failure.contains("sor, ilink, barnes, water, rays"), "{failure}");
    }
}
