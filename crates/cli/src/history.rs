//! `--history`: what earlier runs of a program arrived at under `multicast`, and what this one does.
//!
//! The launcher reads the file before the job starts, and tells all nodes the same. When all has gone well, node zero
//! says what the job arrived at, and the launcher writes it. The file holds hints: whatever it holds, no result
//! changes. So one that is not fit costs a warning, is not used, and stays as it is ([`file`] says which are not).

mod file;

use crate::args::RunArgs;
use crate::plan::Plan;
use comem_protocol::coherence::pages::multicast::history::{History, Identity};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most characters of a program's name in the name of its file.
const NAME_CHARS_MAX: usize = 64;

/// What `--history` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HistoryChoice {
    /// None is kept.
    Off,
    /// In a file of the user's own, found by the program's path and the job's form.
    Auto,
    /// In this one.
    File(PathBuf),
}

impl FromStr for HistoryChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<HistoryChoice, Infallible> {
        Ok(match text {
            "off" | "" => HistoryChoice::Off,
            "auto" => HistoryChoice::Auto,
            path => HistoryChoice::File(path.into()),
        })
    }
}

/// The history of a job.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    /// Whether the directory is made where there is none.
    is_auto: bool,
    /// The job. The launcher does not know the program's hash, and nothing here asks for it.
    job: Identity,
    /// What earlier runs arrived at, as a file has it.
    earlier: String,
}

impl Kept {
    /// Reads what is known of earlier runs; `None` where the job keeps no history. `say` says why a file is not used.
    pub fn open(args: &RunArgs, plan: &Plan, say: &mut dyn FnMut(&str)) -> Option<Kept> {
        let nodes = plan.job.hosts.len();
        if args.history == HistoryChoice::Off || nodes < 2 {
            return None;
        }
        let engine = match (&args.history, plan.page_engine) {
            (_, Some(engine)) if engine.tells_sets() => engine,
            (HistoryChoice::File(_), Some(engine)) => engine,
            _ => return None,
        };
        let job = Identity { program: [0; 32], nodes: nodes as u16, threads: args.node.threads as u16, engine };
        let (path, is_auto) = match &args.history {
            HistoryChoice::File(path) => (path.clone(), false),
            _ => match directory(|name| std::env::var_os(name)) {
                Some(directory) => (directory.join(file_name(&plan.cwd.join(&plan.program.hashed), &job)), true),
                None => {
                    say("comem: no history is kept: HOME is not set");
                    return None;
                }
            },
        };
        match file::read(&path, &job) {
            Ok(earlier) => {
                let earlier = earlier.map_or_else(String::new, |earlier| earlier.encode());
                Some(Kept { path, is_auto, job, earlier })
            }
            Err(why) => {
                say(&format!("comem: the history {} is not used, and stays as it is: {why}", path.display()));
                None
            }
        }
    }

    /// What all nodes are told.
    pub fn earlier(&self) -> &str {
        &self.earlier
    }

    /// The job has come to a good end, having arrived at this.
    pub fn write(&self, arrived_at: &str, say: &mut dyn FnMut(&str)) {
        let written = History::decode(arrived_at.as_bytes(), &self.job)
            .map_err(|why| format!("node 0 has told one that is none: {why}; please report this"))
            .and_then(|history| file::write(&self.path, history, &self.job, self.is_auto));
        if let Err(why) = written {
            say(&format!("comem: the history {} is not written: {why}", self.path.display()));
        }
    }
}

/// Where histories lie that nobody names.
fn directory(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    Some(state.or_else(|| home().map(|home| home.join(".local/state")))?.join("comem/history"))
}

/// The name of the file: the program's, and a hash of where it lies and of the job's form. So a program that was built
/// anew has the same file, and a job of another form has one of its own.
fn file_name(program: &Path, job: &Identity) -> String {
    let place = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
    let mut hasher = blake3::Hasher::new_derive_key("comem 2026 name of a history");
    hasher.update(place.as_os_str().as_encoded_bytes());
    hasher.update(format!("\0{} {} {}", job.nodes, job.threads, job.engine).as_bytes());
    let name = place.file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(plain).collect();
    format!("{}-{}.history", name.trim_start_matches(['.', '-']), &hasher.finalize().to_hex()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::coherence::pages::PageEngine;
    use std::ffi::OsString;

    #[test]
    fn histories_lie_where_a_users_state_does() {
        let with = |state: &'static str, home: &'static str| {
            directory(move |name| match name {
                "XDG_STATE_HOME" => (!state.is_empty()).then(|| OsString::from(state)),
                "HOME" => (!home.is_empty()).then(|| OsString::from(home)),
                _ => None,
            })
        };
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(with("", "/home/ann"), path("/home/ann/.local/state/comem/history"));
        assert_eq!(with("/state", "/home/ann"), path("/state/comem/history"));
        assert_eq!(with("not/absolute", "/home/ann"), path("/home/ann/.local/state/comem/history"));
        assert_eq!([with("", ""), with("", "ann")], [None, None]);
    }

    #[test]
    fn each_program_and_form_of_a_job_has_a_file_of_its_own() {
        let job = |nodes| Identity { program: [0; 32], nodes, threads: 2, engine: PageEngine::Multicast };
        let name = |path: &str, nodes| file_name(Path::new(path), &job(nodes));
        let one = name("/no/such/sor", 4);
        assert!(one.starts_with("sor-") && one.ends_with(".history") && one.len() == 4 + 8 + 8, "{one}");
        assert_eq!(name("/no/such/sor", 4), one);
        assert_ne!(name("/no/such/sor", 8), one);
        assert_ne!(name("/no/other/sor", 4), one);
        let odd = name("/no/such/..größe of\nall", 4);
        assert!(odd.starts_with("gr__e_of_all-") || odd.starts_with("gr"), "{odd}");
        assert!(odd.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{odd}");
        assert!(name(&format!("/no/{}", "x".repeat(250)), 4).len() < 100);
    }

    #[test]
    fn a_choice_is_a_word_or_a_file() {
        let read = |text: &str| text.parse::<HistoryChoice>().unwrap();
        assert_eq!([read("off"), read("")], [HistoryChoice::Off, HistoryChoice::Off]);
        assert_eq!(read("auto"), HistoryChoice::Auto);
        assert_eq!(read("./auto"), HistoryChoice::File("./auto".into()));
    }
}
