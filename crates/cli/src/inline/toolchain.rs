//! The compiler and the plug-in that put checks into programs.
//!
//! The compiler is `$COMEM_CLANG`, else `clang-19` (`clang++-19`). The plug-in is `$COMEM_INLINE_PLUGIN`, else
//! `libcomem_inline.so` where this command's libraries are ([`crate::installation`]), or in `out/compiler` of the
//! source tree.

use super::records::ABI;
use crate::cc::{self, Language};
use crate::failure::{Failure, Outcome};
use crate::installation::{Installation, listed};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names a clang.
pub const CLANG: &str = "COMEM_CLANG";
/// Tells the plug-in to check what it takes for private, too.
pub const VERIFY: &str = "COMEM_INLINE_VERIFY";
/// Names the plug-in.
pub const PLUGIN: &str = "COMEM_INLINE_PLUGIN";
/// The version of LLVM that the plug-in is written for.
pub const LLVM_MAJOR: u32 = 19;
const LIBRARY: &str = "libcomem_inline.so";
/// What stands in the plug-in's file before the major version of the LLVM that it was built with, and behind that
/// before the version of the checks that it makes.
const MARKS: [&[u8]; 2] = [b"comem-inline-plugin llvm=", b" abi="];
const INSTALL: &str = "install it (sudo apt-get install clang-19), or name one in COMEM_CLANG";

/// A clang that runs here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clang {
    program: String,
    arguments: Vec<String>,
    /// Its major version.
    pub major: u32,
}

impl Clang {
    /// Finds it, and asks for its version.
    pub fn find(language: Language) -> Outcome<Clang> {
        let named = |variable: &str| std::env::var(variable).ok().filter(|line| !line.trim().is_empty());
        if let Some(line) = named(CLANG) {
            let mut clang = Clang::ask(&line)?;
            clang.arguments.extend((language == Language::Cxx).then(|| "--driver-mode=g++".to_string()));
            return Ok(clang);
        }
        // Whoever names another compiler for all programs should learn that it is not taken.
        if let Some(line) = named(language.variable()) {
            return Clang::ask(&line).map_err(|failure| {
                let variable = language.variable();
                Failure { advice: format!("{variable} names it: name clang-19 there, or in COMEM_CLANG"), ..failure }
            });
        }
        Clang::ask(match language {
            Language::C => "clang-19",
            Language::Cxx => "clang++-19",
        })
    }

    /// Asks a compiler who it is.
    fn ask(line: &str) -> Outcome<Clang> {
        let mut words = line.split_whitespace().map(str::to_string);
        let program = words.next().unwrap_or_default();
        let arguments: Vec<String> = words.collect();
        let said = Command::new(&program).args(&arguments).arg("--version").output();
        let said = said.map_err(|error| {
            Failure::usage(format!("--inline needs clang {LLVM_MAJOR}, and {program} cannot be run: {error}"), INSTALL)
        })?;
        let major = major_of(&String::from_utf8_lossy(&said.stdout)).ok_or_else(|| {
            Failure::usage(format!("--inline needs clang {LLVM_MAJOR}, and {program} is another compiler"), INSTALL)
        })?;
        Ok(Clang { program, arguments, major })
    }

    /// The command without arguments of the user's.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.program
    }

    /// Why it does not run.
    pub fn cannot_run(&self, why: &io::Error) -> Failure {
        Failure::usage(format!("cannot run the compiler {}: {why}", self.program), INSTALL)
    }
}

/// The major version in what a clang says of itself.
fn major_of(said: &str) -> Option<u32> {
    let (_, version) = said.lines().next()?.split_once("clang version ")?;
    version.split('.').next()?.parse().ok()
}

/// The plug-in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plugin {
    /// Where it is.
    pub path: PathBuf,
    /// The major version of the LLVM that it was built with.
    pub major: u32,
    /// The version of its checks.
    pub abi: u32,
}

impl Plugin {
    /// Finds the one that fits this clang.
    pub fn find(clang: &Clang) -> Outcome<Plugin> {
        let plugin = Plugin::anywhere()?;
        if plugin.major != clang.major {
            let (path, name) = (plugin.path.display(), clang.name());
            return Err(Failure::usage(
                format!("{path} is for LLVM {}, and {name} is of version {}", plugin.major, clang.major),
                format!("name a clang {} in COMEM_CLANG, or build the plug-in with that LLVM", plugin.major),
            ));
        }
        if plugin.abi != ABI {
            return Err(Failure::usage(
                format!(
                    "{} makes checks of version {}, and this Comem knows version {ABI}",
                    plugin.path.display(),
                    plugin.abi
                ),
                "build the plug-in of this Comem with make, or name it in COMEM_INLINE_PLUGIN",
            ));
        }
        Ok(plugin)
    }

    /// Finds it, whatever LLVM it is for.
    pub fn anywhere() -> Outcome<Plugin> {
        let path = Plugin::path()?;
        let unfit = |what: String| {
            let advice = "build it with make, or name another one in COMEM_INLINE_PLUGIN";
            Failure::usage(format!("{} is no plug-in of Comem: {what}", path.display()), advice)
        };
        let file = std::fs::read(&path).map_err(|error| unfit(error.to_string()))?;
        let (major, abi) = marked(&file).ok_or_else(|| unfit("it does not say which LLVM it is for".to_string()))?;
        Ok(Plugin { path, major, abi })
    }

    fn path() -> Outcome<PathBuf> {
        if let Some(named) = std::env::var_os(PLUGIN).filter(|named| !named.is_empty()) {
            return Ok(named.into());
        }
        let installation = Installation::find()?;
        let mut places = installation.private_places();
        places.push(installation.prefix().join("../out/compiler"));
        places.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/compiler"));
        let found = places.iter().map(|place| place.join(LIBRARY)).find(|library| library.is_file());
        found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
            Failure::usage(
                format!("the plug-in for --inline ({LIBRARY}) cannot be found in {}", listed(&places, ", ")),
                "install llvm-19-dev (sudo apt-get install llvm-19-dev) and run make, or name it in \
                 COMEM_INLINE_PLUGIN",
            )
        })
    }

    /// What clang is given.
    pub fn flag(&self) -> OsString {
        cc::with("-fpass-plugin=", &self.path)
    }
}

/// The numbers behind the marks in a plug-in's file: LLVM's, and that of the checks, 0 where there is none.
fn marked(file: &[u8]) -> Option<(u32, u32)> {
    let [llvm, abi] = MARKS;
    let at = file.windows(llvm.len()).position(|part| part == llvm)? + llvm.len();
    let (major, rest) = number(&file[at..])?;
    let version = rest.strip_prefix(abi).and_then(number).map_or(0, |(version, _)| version);
    Some((major, version))
}

/// The number at the start of a text, and what comes behind it.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((std::str::from_utf8(&text[..end]).ok()?.parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major_of("Debian clang version 19.1.7 (3~deb12u1)\nTarget: x86_64-pc-linux-gnu\n"), Some(19));
        assert_eq!(major_of("clang version 20.0.0git\n"), Some(20));
        assert_eq!(major_of("cc (Debian 12.2.0-14) 12.2.0\n"), None);
        assert_eq!(major_of(""), None);
        assert_eq!(marked(b"\x7fELF..comem-inline-plugin llvm=19 abi=2u\0"), Some((19, 2)));
        assert_eq!(marked(b"comem-inline-plugin llvm=19\0 abi=2"), Some((19, 0)), "one from before there was a number");
        assert_eq!(marked(b"comem-inline-plugin llvm="), None);
        assert_eq!(marked(b"another file"), None);
    }
}
