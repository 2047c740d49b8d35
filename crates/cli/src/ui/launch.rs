//! A form's words as the arguments of `comem run`. They stay a list all the way: no shell ever reads them.

use crate::args::DaemonWay;
use crate::daemon::allow::Limits;
use crate::failure::{Failure, Outcome, exit};
use crate::program;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who refuses a program or a variable.
const WHO: &str = "the page";

/// What the form says. An empty text chooses nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// The program: a path, or a name that is looked up.
    pub program: String,
    /// Its arguments, each as it is.
    pub arguments: Vec<String>,
    /// Where to start it; this command's directory by default.
    pub directory: String,
    /// The job's name.
    pub name: String,
    /// `a:2,b`.
    pub hosts: String,
    /// How nodes on other hosts are started: `ssh` or `daemon`.
    pub launch: String,
    /// Nodes.
    pub nodes: Option<u32>,
    /// Application threads in each node.
    pub threads: Option<u32>,
    /// Where threads run.
    pub bind: String,
    /// What is added to the nodes' niceness.
    pub nice: Option<i32>,
    /// What keeps copies in step.
    pub engine: String,
    /// How bytes move.
    pub backbone: String,
    /// On one host, run what would run between hosts.
    pub rehearse: bool,
    /// Variables of the program.
    pub environment: BTreeMap<String, String>,
}

/// A job that can be started.
#[derive(Debug)]
pub struct Launch {
    /// The program, resolved where only some are allowed, and its arguments.
    pub words: Vec<String>,
    flags: Vec<String>,
    /// Of daemons, where they are asked.
    key_file: Option<PathBuf>,
    directory: PathBuf,
    environment: BTreeMap<String, String>,
}

impl Launch {
    /// Makes a job of what the form says.
    ///
    /// # Errors
    /// It cannot be, or is not allowed.
    pub fn new(wanted: &Wanted, limits: Option<&Limits>) -> Outcome<Launch> {
        let here = std::env::current_dir().map_err(|e| Failure::system("the current directory", e))?;
        let directory = here.join(&wanted.directory);
        if !directory.is_dir() {
            return Err(Failure::usage(format!("{} is no directory", directory.display()), "name one that is there"));
        }
        if wanted.program.is_empty() {
            return Err(Failure::usage("no program is named", "fill in the program"));
        }
        check_variables(&wanted.environment, limits)?;
        let mut program = wanted.program.clone();
        if let Some(limits) = limits {
            if wanted.nice.is_some_and(|more| more < 0) {
                let what = format!("{WHO} gives no priority over others");
                return Err(Failure::refused(what, "leave the niceness out, or give a positive number"));
            }
            program = allowed(&program, &directory, limits)?;
        }
        let words: Vec<String> = std::iter::once(program).chain(wanted.arguments.iter().cloned()).collect();
        let flags = flags(wanted);
        if words.iter().chain(&flags).any(|word| word.contains('\0')) {
            return Err(Failure::usage("a word holds the character 0, which no program can be given", "leave it out"));
        }
        Ok(Launch { words, flags, key_file: None, directory, environment: wanted.environment.clone() })
    }

    /// Has nodes elsewhere started by the daemons that the server itself asks.
    pub fn ask_daemons(&mut self, way: &DaemonWay) -> Outcome<()> {
        self.flags.push(format!("--daemon-port={}", way.port));
        self.flags.extend(way.iface.iter().map(|iface| format!("--iface={iface}")));
        let Some(file) = &way.key_file else { return Ok(()) };
        // The job may start in another directory.
        let file = std::path::absolute(file).map_err(|e| Failure::system("the key file", e))?;
        self.key_file = Some(file);
        Ok(())
    }

    /// `comem run` with all that, and these flags besides.
    fn command(&self, more: &[OsString]) -> Outcome<Command> {
        let own = std::env::current_exe().map_err(|e| Failure::system("cannot find this command", e))?;
        let mut command = Command::new(own);
        command.arg("run").args(&self.flags).args(more);
        if let Some(file) = &self.key_file {
            command.arg("--key-file").arg(file);
        }
        command.arg("--").args(&self.words);
        command.current_dir(&self.directory).envs(&self.environment);
        Ok(command)
    }

    /// Sees whether such a job could start at all.
    ///
    /// # Errors
    /// What `comem run` says against it.
    pub fn rehearse(&self) -> Outcome<()> {
        let mut command = self.command(&["--dry-run".into()])?;
        let output = command.stdin(Stdio::null()).output().map_err(|e| Failure::system("cannot start comem run", e))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("comem run says nothing").trim_start_matches("comem: ");
        Err(Failure::new(output.status.code().unwrap_or(exit::INTERNAL), last, ""))
    }

    /// The launcher, which writes its statistics there.
    ///
    /// # Errors
    /// This command is not found.
    pub fn launcher(&self, stats: &Path) -> Outcome<Command> {
        let mut flag = OsString::from("--stats=");
        flag.push(stats);
        self.command(&[flag])
    }

    /// The job's name where none was given.
    pub fn usual_name(&self) -> String {
        let name = Path::new(&self.words[0]).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// The flags of `comem run`, each one word, so that no value is taken for a flag.
fn flags(wanted: &Wanted) -> Vec<String> {
    let text = |flag: &str, value: &str| (!value.is_empty()).then(|| format!("--{flag}={value}"));
    let number = |flag: &str, value: Option<i64>| value.map(|value| format!("--{flag}={value}"));
    let chosen = [
        text("name", &wanted.name),
        text("hosts", &wanted.hosts),
        text("launch", &wanted.launch),
        number("nodes", wanted.nodes.map(i64::from)),
        number("threads", wanted.threads.map(i64::from)),
        text("bind", &wanted.bind),
        number("nice", wanted.nice.map(i64::from)),
        text("engine", &wanted.engine),
        text("backbone", &wanted.backbone),
        wanted.rehearse.then(|| "--rehearse".to_string()),
    ];
    // Nodes on other hosts are told of the variables that the launcher has.
    let variables = wanted.environment.keys().map(|name| format!("--env={name}"));
    chosen.into_iter().flatten().chain(variables).collect()
}

/// Checks names and values of variables.
fn check_variables(environment: &BTreeMap<String, String>, limits: Option<&Limits>) -> Outcome<()> {
    for (name, value) in environment {
        let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() || !is_word || name.starts_with(|c: char| c.is_ascii_digit()) || value.contains('\0') {
            let what = format!("{name:?} cannot be a variable with the value {value:?}");
            return Err(Failure::usage(what, "write NAME=VALUE: letters, digits and _ in the name"));
        }
        if limits.is_some_and(|limits| !limits.may_set(OsStr::new(name))) {
            let what = format!("{WHO} sets no variable {name}");
            return Err(Failure::refused(what, format!("start comem ui with --allow-env {name}")));
        }
    }
    Ok(())
}

/// The program by its whole path, links and `..` resolved, if it is allowed.
fn allowed(name: &str, directory: &Path, limits: &Limits) -> Outcome<String> {
    let found = program::locate(OsStr::new(name), directory)?;
    let resolved = limits.resolve_for(WHO, &found)?;
    resolved.into_os_string().into_string().map_err(|path| {
        let what = format!("{WHO} starts no program whose path is no text: {}", path.to_string_lossy());
        Failure::refused(what, "rename it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(program: &str) -> Wanted {
        Wanted { program: program.to_string(), ..Wanted::default() }
    }

    fn words(launch: &Launch) -> Vec<String> {
        let command = launch.launcher(Path::new("/s.json")).unwrap();
        command.get_args().map(|word| word.to_str().unwrap().to_string()).collect()
    }

    #[test]
    fn words_stay_as_they_are_and_none_becomes_a_flag() {
        let arguments = ["a b", "\"q\" 'r'", "$(x)", "line\nend", "", "--nodes=9"].map(str::to_string).to_vec();
        let form = Wanted { arguments: arguments.clone(), ..wanted("--gdb=0") };
        let launch = Launch::new(&form, None).unwrap();
        let expected: Vec<String> =
            ["run", "--stats=/s.json", "--", "--gdb=0"].map(str::to_string).into_iter().chain(arguments).collect();
        assert_eq!(words(&launch), expected);
        assert_eq!(launch.usual_name(), "--gdb=0");
    }

    #[test]
    fn a_form_becomes_flags_and_variables() {
        let form = Wanted {
            name: "-x".to_string(),
            hosts: "a:2,b".to_string(),
            nodes: Some(3),
            nice: Some(-1),
            bind: "0:0-3".to_string(),
            rehearse: true,
            environment: [("A_1".to_string(), "b,c=\n".to_string())].into(),
            ..wanted("prog")
        };
        let launch = Launch::new(&form, None).unwrap();
        let flags = ["--name=-x", "--hosts=a:2,b", "--nodes=3", "--bind=0:0-3", "--nice=-1", "--rehearse", "--env=A_1"];
        assert_eq!(words(&launch)[1..8], flags);
        let command = launch.launcher(Path::new("/s.json")).unwrap();
        let set: Vec<_> = command.get_envs().collect();
        assert_eq!(set, [(OsStr::new("A_1"), Some(OsStr::new("b,c=\n")))]);
    }

    #[test]
    fn daemons_are_those_that_the_server_asks() {
        let mut launch = Launch::new(&wanted("prog"), None).unwrap();
        let way = DaemonWay { key_file: Some("/my key".into()), port: 7, iface: Some("lo".to_string()) };
        launch.ask_daemons(&way).unwrap();
        let flags = ["--daemon-port=7", "--iface=lo", "--stats=/s.json", "--key-file", "/my key", "--", "prog"];
        assert_eq!(words(&launch)[1..], flags);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with_variable = |name: &str, value: &str| Wanted {
            environment: [(name.to_string(), value.to_string())].into(),
            ..wanted("prog")
        };
        let wrong = [
            wanted(""),
            wanted("a\0b"),
            Wanted { directory: "/nowhere at all".to_string(), ..wanted("prog") },
            with_variable("", "x"),
            with_variable("A=B", "x"),
            with_variable("1A", "x"),
            with_variable("A", "\0"),
        ];
        for form in wrong {
            assert_eq!(Launch::new(&form, None).map_err(|f| f.code).unwrap_err(), exit::USAGE, "{form:?}");
        }
        assert!(serde_json::from_str::<Wanted>(r#"{"program": "x", "gdb": 0}"#).is_err(), "no other flag");
    }

    #[test]
    fn where_few_programs_are_allowed_variables_are_too() {
        let limits = Limits { directories: Vec::new(), variables: vec!["MINE".to_string()] };
        let check = |name: &str| check_variables(&[(name.to_string(), String::new())].into(), Some(&limits));
        assert!(check("MINE").is_ok() && check("LC_ALL").is_ok());
        for name in ["LD_PRELOAD", "PATH", "COMEM_RSH"] {
            assert_eq!(check(name).map_err(|f| f.code), Err(exit::REFUSED), "{name}");
        }
    }
}
