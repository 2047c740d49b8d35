//! `comem fc` (and `comem-fc`): the Fortran compiler with what programs for Comem need.
//!
//! The compiler is `$COMEM_FC`, else `$FC`, else `gfortran`. It gets the directory with the compiled module `comem`,
//! and `-frecursive` where it is gfortran, so that local arrays are each thread's own. When it links a program, it
//! also gets the module's object file, the library and where to find it when the program runs. Everything else passes
//! through, behind ours where the last of two flags wins.
//!
//! The module is compiled from `comem.f90` by the same compiler when a program first needs it, and kept in the user's
//! cache (`$XDG_CACHE_HOME/comem`, else `~/.cache/comem`), once for each compiler, version of the file and set of
//! flags that change its interface. A command line that names a `comem.f90` or `comem.o` of its own gets no other.

use crate::cc::{self, Places};
use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags that change what the module's procedures look like to their callers.
const OF_INTERFACES: [&str; 9] = [
    "-fdefault-integer-8",
    "-fdefault-real-8",
    "-fdefault-double-8",
    "-finteger-4-integer-8",
    "-freal-4-real-8",
    "-fno-underscoring",
    "-fsecond-underscore",
    "-m32",
    "-i8",
];
/// The files of the module.
const SOURCES: [&str; 5] =
    ["comem.f90", "comem_allocation.inc", "comem_integers.inc", "comem_library.inc", "comem_release.inc"];

/// A Fortran compiler.
struct Compiler {
    program: String,
    arguments: Vec<String>,
    /// What it says of itself.
    version: Vec<u8>,
}

impl Compiler {
    fn find() -> Outcome<Compiler> {
        let named = ["COMEM_FC", "FC"].into_iter().filter_map(|name| std::env::var(name).ok());
        let line = named.into_iter().find(|line| !line.trim().is_empty()).unwrap_or_else(|| "gfortran".to_string());
        let mut words = line.split_whitespace().map(str::to_string);
        let program = words.next().unwrap_or_default();
        let arguments: Vec<String> = words.collect();
        let said = Command::new(&program).args(&arguments).arg("--version").output().map_err(|error| {
            Failure::usage(
                format!("cannot run the Fortran compiler {program}: {error}"),
                "install gfortran (apt-get install gfortran), or name a compiler in COMEM_FC".to_string(),
            )
        })?;
        Ok(Compiler { program, arguments, version: said.stdout })
    }

    fn is_gfortran(&self) -> bool {
        self.version.starts_with(b"GNU Fortran")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }
}

/// Whether a command line brings the module itself.
fn brings_module(words: &[OsString]) -> bool {
    words.iter().any(|word| Path::new(word).file_name().is_some_and(|name| name == "comem.f90" || name == "comem.o"))
}

/// Whether it compiles or links something.
fn does_something(words: &[OsString]) -> bool {
    words.iter().any(|word| !word.as_encoded_bytes().starts_with(b"-"))
}

/// The flags among these that the module has to be compiled with.
fn of_interfaces(words: &[OsString]) -> Vec<&OsStr> {
    let mut flags: Vec<&OsStr> =
        words.iter().map(OsString::as_os_str).filter(|word| OF_INTERFACES.iter().any(|flag| word == flag)).collect();
    flags.sort_unstable();
    flags.dedup();
    flags
}

/// Where compiled modules are kept.
fn cache() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").filter(|name| Path::new(name).is_absolute()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".cache"));
    Some(named.or_else(home)?.join("comem"))
}

/// The directory with the module for this compiler and these flags, compiled if it is not there.
fn module(compiler: &Compiler, places: &Places, words: &[OsString]) -> Outcome<PathBuf> {
    let cannot = |what: String| {
        let advice =
            "name a directory that can be written in XDG_CACHE_HOME, or give comem.f90 to the compiler yourself";
        Failure::usage(format!("cannot keep the compiled module comem: {what}"), advice.to_string())
    };
    let flags = of_interfaces(words);
    let mut hash = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(compiler.program.as_bytes());
    compiler.arguments.iter().for_each(|argument| add(argument.as_bytes()));
    add(&compiler.version);
    flags.iter().for_each(|flag| add(flag.as_encoded_bytes()));
    for source in SOURCES {
        let path = places.include.join(source);
        add(&std::fs::read(&path).map_err(|e| Failure::system(format!("cannot read {}", path.display()), e))?);
    }
    let name = format!("fortran-{}", &hash.finalize().to_hex()[..16]);
    let cache = cache().ok_or_else(|| cannot("HOME is not set".to_string()))?;
    let kept = cache.join(&name);
    if kept.join("comem.o").is_file() {
        return Ok(kept);
    }
    // Others may be at it: whoever is first to give the directory its name has made it.
    let fresh = cache.join(format!("{name}.{}", std::process::id()));
    let in_cache = |what: &Path, error: io::Error| cannot(format!("{}: {error}", what.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&fresh).map_err(|e| in_cache(&fresh, e))?;
    let mut command = compiler.command();
    command.current_dir(&fresh).args(&flags).args(["-O2", "-fPIC", "-c"]);
    let done = command.arg(places.include.join("comem.f90")).args(["-o", "comem.o"]).status();
    let ended = match done {
        Ok(status) if status.success() => std::fs::rename(&fresh, &kept).map_err(|e| in_cache(&kept, e)),
        Ok(status) => Err(Failure::usage(
            format!("{} cannot compile the module comem ({status})", compiler.program),
            "it needs Fortran 2008; name another compiler in COMEM_FC".to_string(),
        )),
        Err(error) => Err(Failure::system(format!("cannot run {}", compiler.program), error)),
    };
    if ended.is_err() {
        let _ = std::fs::remove_dir_all(&fresh);
        if !kept.join("comem.o").is_file() {
            ended?;
        }
    }
    Ok(kept)
}

/// The compiler's arguments.
fn command_line(gfortran: bool, places: &Places, module: Option<&Path>, arguments: &[OsString]) -> Vec<OsString> {
    let mut line: Vec<OsString> = Vec::new();
    if gfortran {
        line.push("-frecursive".into());
    }
    line.extend(module.map(|module| cc::with("-I", module)));
    line.push(cc::with("-I", &places.include));
    line.extend_from_slice(arguments);
    if cc::links(arguments) {
        line.extend(module.map(|module| module.join("comem.o").into_os_string()));
        line.extend(cc::library_flags(places));
    }
    line
}

/// Becomes the compiler.
pub fn compile(arguments: &[OsString]) -> Outcome<i32> {
    if arguments.iter().any(|word| word == "--inline") {
        return Err(Failure::usage(
            "programs in Fortran cannot have checks in their code (--inline)",
            "leave --inline out, and run them on pages (--engine hlrc, scope, lrc, multicast or msi)",
        ));
    }
    let places = Places::find()?;
    let compiler = Compiler::find()?;
    let words = cc::words_in(arguments);
    let wants = does_something(&words) && !brings_module(&words);
    let module = if wants { Some(module(&compiler, &places, &words)?) } else { None };
    let line = command_line(compiler.is_gfortran(), &places, module.as_deref(), arguments);
    let error = compiler.command().args(line).exec();
    Err(Failure::system(format!("cannot run {}", compiler.program), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn line(arguments: &str) -> String {
        let places = Places { include: "/i".into(), lib: "/l".into() };
        let arguments = words(arguments);
        let module = (!brings_module(&arguments)).then_some(Path::new("/m"));
        let line = command_line(true, &places, module, &arguments);
        line.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn compiling_takes_the_module_and_linking_the_library_too() {
        assert_eq!(line("-O2 -c a.f90"), "-frecursive -I/m -I/i -O2 -c a.f90");
        let both = line("a.f90 -o a");
        assert!(both.ends_with("a.f90 -o a /m/comem.o -L/l -Wl,-rpath,/l -lcomem"), "{both}");
        let own = line("/x/comem.f90 a.f90 -o a");
        assert!(!own.contains("/m") && own.ends_with("-lcomem"), "{own}");
        assert!(!line("comem.o a.o -o a").contains("/m/comem.o"));
        assert!(!does_something(&words("--version")) && does_something(&words("-O2 a.f90")));
    }

    #[test]
    fn flags_that_change_interfaces_have_a_module_of_their_own() {
        let of = |line: &str| of_interfaces(&words(line)).join(OsStr::new(" "));
        assert_eq!(of("-O2 -fdefault-real-8 a.f90 -fdefault-integer-8"), "-fdefault-integer-8 -fdefault-real-8");
        assert_eq!(of("-O3 -Wall"), "");
    }
}
