//! Where this command was installed, and the files that belong to it. All are found from the command's own place, so a
//! tree that is moved or unpacked elsewhere still works.
//!
//! | installed | the command | libraries | headers |
//! |---|---|---|---|
//! | by `make install` or a package | `bin` | `lib`, `lib64`, `lib/TRIPLE`; those for `LD_PRELOAD` and clang in `comem`
//! there | `include/comem` |
//! | with the Python package | `comem/_bin` | beside it | `include` beside it |
//! | built in the source tree | `target/release` | beside it, and `out/compiler` | `include` of the sources |

use crate::failure::{Failure, Outcome};
use crate::inline::toolchain;
use crate::preload;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The shared library as the linker asks for it.
pub const LIBRARY: &str = "libcomem.so";
/// A header that no other software has: where it is, the others are.
pub const HEADER: &str = "compat/comem_parmacs.h";
/// Names the directory of the headers.
pub const INCLUDE: &str = "COMEM_INCLUDE";
/// Names the directory of the library.
pub const LIB: &str = "COMEM_LIB";
/// The list of what `make install` has put below its prefix.
const MANIFEST: &str = "share/comem/manifest";
/// What a Debian package alone brings.
const DEBIAN: &str = "share/doc/comem/changelog.Debian.gz";
/// How many files that are gone are named.
const NAMED_MAX: usize = 3;

/// The command's own file, and the two directories from which the others are found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installation {
    /// This command.
    pub command: PathBuf,
}

impl Installation {
    /// Looks where this command is.
    ///
    /// # Errors
    /// The system does not say.
    pub fn find() -> Outcome<Installation> {
        let command = std::env::current_exe().map_err(|e| Failure::system("cannot find this command", e))?;
        Ok(Installation { command })
    }

    /// The command's directory.
    fn beside(&self) -> &Path {
        self.command.parent().unwrap_or(Path::new("."))
    }

    /// The directory that holds `bin`.
    pub fn prefix(&self) -> &Path {
        self.beside().parent().unwrap_or(Path::new("."))
    }

    /// Where the libraries that programs are linked with may be.
    pub fn library_places(&self) -> Vec<PathBuf> {
        let lib = self.prefix().join("lib");
        let triple = lib.join(format!("{}-linux-gnu", std::env::consts::ARCH));
        vec![self.beside().to_path_buf(), lib, self.prefix().join("lib64"), triple]
    }

    /// Where libraries may be that no program is linked with.
    pub fn private_places(&self) -> Vec<PathBuf> {
        let (beside, others) = (self.beside().to_path_buf(), self.library_places().into_iter().skip(1));
        std::iter::once(beside).chain(others.flat_map(|place| [place.join("comem"), place])).collect()
    }

    /// Where the headers may be.
    pub fn header_places(&self) -> Vec<PathBuf> {
        let up = self.prefix();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        vec![self.beside().join("include"), up.join("include/comem"), up.join("include"), up.join("../include"), source]
    }

    /// The directory with a header or a library, or the one that a variable names.
    ///
    /// # Errors
    /// It has not got the file; says where it was looked for.
    fn place(variable: &str, places: &[PathBuf], file: &str, what: &str) -> Outcome<PathBuf> {
        let named = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let places = named.as_ref().map_or(places, std::slice::from_ref);
        let found = places.iter().find(|place| place.join(file).is_file());
        let found = found.and_then(|place| place.canonicalize().ok());
        found.ok_or_else(|| {
            Failure::usage(
                format!("{what} ({file}) cannot be found in {}", listed(places, ", ")),
                format!("make install in Comem's sources brings them, or name their directory in {variable}"),
            )
        })
    }

    /// The directory of `comem.h`.
    ///
    /// # Errors
    /// It is not there.
    pub fn headers(&self) -> Outcome<PathBuf> {
        Installation::place(INCLUDE, &self.header_places(), HEADER, "the headers")
    }

    /// The directory of `libcomem.so`.
    ///
    /// # Errors
    /// It is not there.
    pub fn library(&self) -> Outcome<PathBuf> {
        Installation::place(LIB, &self.library_places(), LIBRARY, "the library")
    }

    /// How the command came here, in words.
    fn how(&self) -> String {
        let prefix = self.prefix().display();
        if self.beside().ends_with("_bin") && self.prefix().join("__init__.py").is_file() {
            return format!("with the Python package {prefix}");
        }
        if self.manifest().is_some() {
            return format!("by make install below {prefix}");
        }
        if self.prefix().join(DEBIAN).is_file() {
            return "by the Debian package comem".to_string();
        }
        if self.prefix().join("CACHEDIR.TAG").is_file() {
            return format!("built in {}", self.beside().display());
        }
        if self.prefix().join(".crates.toml").is_file() {
            return format!("by cargo install below {prefix}, which installs the command alone");
        }
        format!("by itself in {}", self.beside().display())
    }

    /// What `make install` has put below the prefix, by paths from there.
    fn manifest(&self) -> Option<Vec<String>> {
        let text = std::fs::read_to_string(self.prefix().join(MANIFEST)).ok()?;
        Some(text.lines().filter(|line| !line.is_empty()).map(str::to_string).collect())
    }

    /// The files that were installed and are gone.
    fn gone(&self) -> Vec<String> {
        let listed = self.manifest().unwrap_or_default();
        listed.into_iter().filter(|file| self.prefix().join(file).symlink_metadata().is_err()).collect()
    }
}

/// Paths for a person.
pub fn listed(places: &[PathBuf], between: &str) -> String {
    let shown: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    shown.join(between)
}

/// What `comem doctor` says of the installation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InstallationReport {
    /// The command's path; empty where the host does not say.
    pub command: String,
    /// How it came there.
    pub how: String,
    /// The directory of `libcomem.so`, if it is there.
    pub library: Option<String>,
    /// The directory of the headers, if they are there.
    pub headers: Option<String>,
    /// What is missing, and what for.
    pub missing: Vec<String>,
}

impl InstallationReport {
    /// Examines this host's.
    pub fn here() -> InstallationReport {
        let Ok(installation) = Installation::find() else { return InstallationReport::default() };
        let shown = |path: Outcome<PathBuf>| path.ok().map(|path| path.display().to_string());
        let (library, headers) = (shown(installation.library()), shown(installation.headers()));
        let parts = [
            (library.is_some(), "libcomem.so (programs in C, C++ and Fortran)"),
            (headers.is_some(), "headers (programs in C, C++ and Fortran, PARMACS macros)"),
            (preload::library().is_ok(), "libcomem_wrap.so (system calls on shared memory)"),
            (toolchain::Plugin::anywhere().is_ok(), "the plug-in for clang (comem-cc --inline)"),
        ];
        let mut missing: Vec<String> =
            parts.into_iter().filter(|(there, _)| !there).map(|(_, what)| what.to_string()).collect();
        missing.extend(gone_in_words(&installation.gone()));
        let (command, how) = (installation.command.display().to_string(), installation.how());
        InstallationReport { command, how, library, headers, missing }
    }

    /// Lines of a table.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        if self.command.is_empty() {
            return vec![("installed", "it does not say".to_string())];
        }
        let or_not = |place: &Option<String>| place.clone().unwrap_or_else(|| "not there".to_string());
        let mut lines = vec![
            ("installed", format!("{}: {}", self.command, self.how)),
            ("  library", or_not(&self.library)),
            ("  headers", or_not(&self.headers)),
        ];
        let advice = "; make install in Comem's sources brings all";
        lines.push(match self.missing.as_slice() {
            [] => ("  missing", "nothing".to_string()),
            missing => ("  missing", missing.join(", ") + advice),
        });
        lines
    }
}

/// What is said of installed files that are gone.
fn gone_in_words(gone: &[String]) -> Option<String> {
    let named = gone.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match gone.len() {
        0 => None,
        1..=NAMED_MAX => Some(format!("{named} (installed, and gone)")),
        count => Some(format!("{named} and {} more files (installed, and gone)", count - NAMED_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_from_the_commands_own_place() {
        let installation = Installation { command: "/opt/my comem/bin/comem".into() };
        let triple = format!("/opt/my comem/lib/{}-linux-gnu", std::env::consts::ARCH);
        let library = ["/opt/my comem/bin", "/opt/my comem/lib", "/opt/my comem/lib64", &triple].map(PathBuf::from);
        assert_eq!(installation.library_places(), library);
        assert!(installation.private_places().contains(&"/opt/my comem/lib/comem".into()));
        assert!(installation.header_places().contains(&"/opt/my comem/include/comem".into()));
    }

    #[test]
    fn how_it_came_here_and_what_is_gone_is_told() {
        let folder = std::env::temp_dir().join(format!("comem-installation-{}", std::process::id()));
        let installation = Installation { command: folder.join("bin/comem") };
        let file = |name: &str, text: &str| {
            std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        };
        file("bin/comem", "");
        assert!(installation.how().starts_with("by itself in "));
        file(".crates.toml", "");
        assert!(installation.how().contains("cargo install"));
        file("CACHEDIR.TAG", "");
        assert!(installation.how().starts_with("built in "));
        file(MANIFEST, "bin/comem\nlib/libcomem.so\n");
        assert!(installation.how().starts_with("by make install below "));
        assert_eq!(installation.gone(), ["lib/libcomem.so"]);
        let package = Installation { command: folder.join("_bin/comem") };
        file("__init__.py", "");
        assert!(package.how().starts_with("with the Python package "));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn of_many_files_that_are_gone_some_are_named() {
        let gone = |count: usize| (0..count).map(|n| format!("f{n}")).collect::<Vec<_>>();
        assert_eq!(gone_in_words(&gone(0)), None);
        assert_eq!(gone_in_words(&gone(2)).unwrap(), "f0, f1 (installed, and gone)");
        assert_eq!(gone_in_words(&gone(5)).unwrap(), "f0, f1, f2 and 2 more files (installed, and gone)");
    }

    #[test]
    fn a_host_of_another_version_says_nothing() {
        assert_eq!(InstallationReport::default().lines(), [("installed", "it does not say".to_string())]);
    }
}
