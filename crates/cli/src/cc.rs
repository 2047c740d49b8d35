//! `comem cc` (and `comem-cc`): the C compiler with what programs for Comem need; `comem config`: where that is.
//!
//! The compiler is `$COMEM_CC` (`$COMEM_CXX` for `comem c++`), else `cc` (`c++`). It gets the directories of the headers and `-fPIC`, so
//! that no variable of the C library is copied into the program. When it links a program, it also gets the library and where to find it when
//! the program runs, `-no-pie`, so that functions and variables have one address on every node, the linker script that gathers the
//! program's own variables, and `--wrap=exit`, by which a worker's exit is caught. Everything else passes through, behind ours where the last of two flags wins.
//!
//! Headers and libraries are found beside this command (`include`, `libcomem.so`), in the directories `include` and `lib` next to its own, as
//! installed, or in the source tree that it was built from; `$COMEM_INCLUDE` and `$COMEM_LIB` name other places.

use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags with which a compiler does not link.
const NO_LINKING: [&str; 7] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-r"];

/// Where headers and libraries are.
pub struct Places {
    /// The directory of `comem.h`.
    pub include: PathBuf,
    /// The directory of `libcomem.so`.
    pub lib: PathBuf,
}

impl Places {
    /// Looks for them.
    pub fn find() -> Outcome<Places> {
        let command = std::env::current_exe().map_err(|e| Failure::system("cannot find this command", e))?;
        let beside = command.parent().unwrap_or(Path::new("."));
        let up = beside.parent().unwrap_or(Path::new("."));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let include = [beside.join("include"), up.join("include"), up.join("../include"), source];
        let include = find("COMEM_INCLUDE", &include, "compat/comem_parmacs.h", "the headers")?;
        let lib = find("COMEM_LIB", &[beside.to_path_buf(), up.join("lib")], "libcomem.so", "libcomem.so")?;
        Ok(Places { include, lib })
    }

    fn compile_flags(&self) -> Vec<OsString> {
        vec![with("-I", &self.include), with("-I", &self.include.join("compat")), "-fPIC".into()]
    }

    fn link_flags(&self) -> Vec<OsString> {
        vec![
            "-no-pie".into(),
            with("-Wl,-T,", &self.include.join("compat/comem_globals.ld")),
            "-Wl,--wrap=exit".into(),
            with("-L", &self.lib),
            with("-Wl,-rpath,", &self.lib),
            "-lcomem".into(),
            "-lpthread".into(),
        ]
    }
}

fn find(variable: &str, places: &[PathBuf], file: &str, what: &str) -> Outcome<PathBuf> {
    let named = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let places = named.as_ref().map_or(places, std::slice::from_ref);
    let found = places.iter().find(|place| place.join(file).is_file());
    let found = found.and_then(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Failure::usage(
            format!("{what} ({file}) are not in {}", looked.join(", ")),
            format!("install them there, or name their directory in {variable}"),
        )
    })
}

fn with(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

/// Whether a compiler with these arguments links a program.
fn links(arguments: &[OsString]) -> bool {
    let one_of = |argument: &OsString, flags: &[&str]| flags.iter().any(|flag| argument == OsStr::new(flag));
    let no_linking = |a: &OsString| one_of(a, &NO_LINKING) || one_of(a, &["-shared", "--version", "--help"]);
    let is_input = |a: &OsString| !a.as_encoded_bytes().starts_with(b"-");
    !arguments.iter().any(no_linking) && arguments.iter().any(is_input)
}

/// The compiler's whole command line.
fn command_line(places: &Places, arguments: &[OsString]) -> Vec<OsString> {
    let mut line = places.compile_flags();
    line.extend_from_slice(arguments);
    if links(arguments) {
        line.extend(places.link_flags());
    }
    line
}

/// Becomes the compiler.
pub fn compile(variable: &str, usual: &str, arguments: &[OsString]) -> Outcome<i32> {
    let places = Places::find()?;
    let compiler = std::env::var(variable).unwrap_or_default();
    let mut words = compiler.split_whitespace();
    let program = words.next().unwrap_or(usual);
    let error = Command::new(program).args(words).args(command_line(&places, arguments)).exec();
    Err(Failure::usage(
        format!("cannot run the compiler {program}: {error}"),
        format!("name another one in {variable}"),
    ))
}

/// `comem config`: prints paths and flags, one line for each question.
pub fn config(questions: &[&str]) -> Outcome<i32> {
    let places = Places::find()?;
    let join = |words: Vec<OsString>| {
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    };
    for question in questions {
        let answer = match *question {
            "parmacs" => places.include.join("compat/parmacs.m4").display().to_string(),
            "include" => places.include.display().to_string(),
            "cflags" => join(places.compile_flags()),
            _ => join(places.link_flags()),
        };
        crate::show(&format!("{answer}\n"));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> String {
        let places = Places { include: "/i".into(), lib: "/l".into() };
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let words: Vec<String> =
            command_line(&places, &arguments).iter().map(|w| w.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn compiling_takes_headers_and_linking_the_library_too() {
        assert_eq!(line(&["-c", "a.c"]), "-I/i -I/i/compat -fPIC -c a.c");
        let both = line(&["a.c", "-o", "a", "-lm"]);
        assert!(both.contains("-fPIC a.c -o a -lm -no-pie"), "{both}");
        assert!(both.contains("-Wl,-T,/i/compat/comem_globals.ld") && both.contains("-Wl,-rpath,/l -lcomem"), "{both}");
        assert!(both.contains("-Wl,--wrap=exit"), "{both}");
    }

    #[test]
    fn what_links_no_program_gets_no_library() {
        for arguments in [&["-E", "a.c"][..], &["--version"], &["-shared", "a.o", "-o", "a.so"], &["-MM", "a.c"]] {
            assert!(!line(arguments).contains("-lcomem"), "{arguments:?}");
        }
    }
}
