//! The program to run: where it is, and which file makes it what it is.

use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its absolute path.
    pub path: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The file whose contents must agree on all nodes: the program, or the script that an interpreter is given.
    pub hashed: OsString,
}

/// Interpreters, and their flags after which code or a module stands instead of a script: what `python3 prog.py` runs
/// is `prog.py`.
const INTERPRETERS: [(&[&str], &[&str]); 3] = [
    (&["python", "pypy"], &["-c", "-m"]),
    (&["sh", "bash", "dash", "zsh", "ksh"], &["-c"]),
    (&["perl", "ruby", "julia", "node", "lua", "Rscript"], &["-e"]),
];

impl Program {
    /// Finds the program that a command names. With `elsewhere` it may be missing on this host.
    ///
    /// # Errors
    /// It is not there, or cannot be run.
    pub fn find(command: &[OsString], cwd: &Path, elsewhere: bool) -> Outcome<Program> {
        let (name, args) = command.split_first().ok_or_else(|| Failure::usage("no program is named", ""))?;
        let path = match locate(name, cwd) {
            Ok(path) => path,
            Err(_) if elsewhere && Path::new(name).is_absolute() => PathBuf::from(name),
            Err(failure) => return Err(failure),
        };
        let mut program =
            Program { hashed: path.clone().into_os_string(), path: path.into_os_string(), args: args.to_vec() };
        program.find_script(cwd);
        Ok(program)
    }

    /// Under an interpreter, the script counts, and is named by its whole path.
    fn find_script(&mut self, cwd: &Path) {
        let stem = Path::new(&self.path).file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
        let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let Some((_, code_flags)) = INTERPRETERS.iter().find(|(names, _)| names.contains(&stem)) else { return };
        for arg in &self.args {
            if arg.to_str().is_some_and(|arg| code_flags.contains(&arg)) {
                return;
            }
            let path = cwd.join(arg);
            if !arg.as_encoded_bytes().starts_with(b"-") && path.is_file() {
                self.hashed = path.into_os_string();
                return;
            }
        }
    }

    /// Names the hashed file by its whole path among the arguments too, so that a copy can take its place.
    pub fn name_script_fully(&mut self, cwd: &Path) {
        for arg in &mut self.args {
            if cwd.join(&*arg) == Path::new(&self.hashed) {
                arg.clone_from(&self.hashed);
            }
        }
    }
}

/// Why a program, found and allowed to run, does not start, and what to do: `otherwise` where nothing better is known.
pub fn why_not_started<'a>(why: &std::io::Error, otherwise: &'a str) -> (String, &'a str) {
    match why.kind() {
        std::io::ErrorKind::ExecutableFileBusy => (
            "its file is open for writing (text file busy)".to_string(),
            "start again when what writes it, a compiler or a copy, is done",
        ),
        _ => (why.to_string(), otherwise),
    }
}

/// Whether a program is one of those that run scripts.
pub fn is_interpreter(name: &OsStr) -> bool {
    let stem = Path::new(name).file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().any(|(names, _)| names.contains(&stem))
}

/// The path of a program, as a shell would find it.
pub fn locate(name: &OsStr, cwd: &Path) -> Outcome<PathBuf> {
    let shown = name.to_string_lossy();
    if name.as_encoded_bytes().contains(&b'/') {
        let path = cwd.join(name);
        return check(&path).map(|()| path).map_err(|why| not_runnable(&shown, &why));
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).map(|dir| cwd.join(dir).join(name)).find(|path| check(path).is_ok());
    match found {
        Some(path) => Ok(path),
        None if shown.ends_with(".py") && cwd.join(name).is_file() => Err(python_script(&shown)),
        None if check(&cwd.join(name)).is_ok() => {
            let what = format!("the program {shown} is not in PATH, but in this directory");
            Err(Failure::start(what, format!("write ./{shown}")))
        }
        None => Err(Failure::start(format!("the program {shown} is not found"), "check its name and PATH")),
    }
}

/// A file that Python runs, named as if it were a program.
fn python_script(shown: &str) -> Failure {
    Failure::start(format!("{shown} is no program, but a script"), format!("write python {shown}"))
}

fn not_runnable(shown: &str, why: &Missing) -> Failure {
    match why {
        Missing::NotFound => Failure::start(format!("the program {shown} is not found"), "check its path"),
        Missing::Directory => Failure::start(format!("{shown} is a directory"), "name a program"),
        Missing::NotExecutable if shown.ends_with(".py") => python_script(shown),
        Missing::NotExecutable => {
            Failure::start(format!("the program {shown} is not executable"), format!("chmod +x {shown}"))
        }
        Missing::Forbidden => {
            let what =
                format!("this user may not run the program {shown}: permission denied for it or a directory above it");
            Failure::start(what, "ask their owner for permission, or use a copy of one's own")
        }
    }
}

enum Missing {
    NotFound,
    Directory,
    NotExecutable,
    /// It or a directory on the way to it is not open to this user.
    Forbidden,
}

fn check(path: &Path) -> Result<(), Missing> {
    let meta = path.metadata().map_err(|why| match why.kind() {
        std::io::ErrorKind::PermissionDenied => Missing::Forbidden,
        _ => Missing::NotFound,
    })?;
    if meta.is_dir() {
        return Err(Missing::Directory);
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Err(Missing::NotExecutable);
    }
    if crate::sys::may_execute(path) { Ok(()) } else { Err(Missing::Forbidden) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(command: &[&str]) -> Outcome<Program> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        Program::find(&command, &std::env::current_dir().unwrap(), false)
    }

    #[test]
    fn a_bare_name_is_found_in_the_path() {
        let program = find(&["sh", "-c", "true"]).unwrap();
        assert!(Path::new(&program.path).is_absolute());
        assert_eq!(program.hashed, program.path);
        assert_eq!(program.args, ["-c", "true"].map(OsString::from));
    }

    #[test]
    fn what_is_missing_or_no_program_is_named() {
        assert!(find(&["no-such-program-anywhere"]).unwrap_err().what.contains("not found"));
        assert!(find(&["./no/such"]).unwrap_err().what.contains("not found"));
        assert!(find(&["./src"]).unwrap_err().what.contains("directory"));
        assert!(find(&["./Cargo.toml"]).unwrap_err().what.contains("not executable"));
        assert_eq!(find(&["./Cargo.toml"]).unwrap_err().advice, "chmod +x ./Cargo.toml");
    }

    #[test]
    fn a_script_of_python_named_as_a_program_is_told_how_to_run() {
        let here = std::env::temp_dir().join(format!("comem-script-{}", std::process::id()));
        std::fs::create_dir_all(&here).unwrap();
        std::fs::write(here.join("prog.py"), "print(1)").unwrap();
        for (name, advice) in [("prog.py", "write python prog.py"), ("./prog.py", "write python ./prog.py")] {
            assert_eq!(locate(OsStr::new(name), &here).unwrap_err().advice, advice);
        }
        std::fs::remove_dir_all(&here).unwrap();
    }

    #[test]
    fn a_script_counts_for_its_interpreter() {
        let code = find(&["sh", "-c", "Cargo.toml", "Cargo.toml"]).unwrap();
        assert_eq!(code.hashed, code.path);
        let mut program = find(&["sh", "-e", "Cargo.toml", "src"]).unwrap();
        let script = std::env::current_dir().unwrap().join("Cargo.toml").into_os_string();
        assert_eq!(program.hashed, script);
        program.name_script_fully(&std::env::current_dir().unwrap());
        assert_eq!(program.args[1], script);
    }
}
