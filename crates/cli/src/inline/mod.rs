//! `comem cc --inline` and `comem c++ --inline`: programs with checks in their own code, for the detector `inline`.
//!
//! | module | |
//! |---|---|
//! | [`toolchain`] | finds clang and the plug-in that puts the checks in, which must have one major version |
//! | [`records`] | reads what the plug-in has left in an object file about its checks |
//! | [`linked`] | looks at everything that the linker has taken |
//!
//! Memory that is kept coherent by lines traps nobody: code without checks reads old data there and loses what it
//! stores. So whatever cannot be checked is refused before anything is compiled: optimisation at link time, which
//! compiles again what was checked, assembly, and Fortran. After the linker has run, each file that it took is looked
//! at; an object without checks takes the program with it, unless `--inline-trust` names it.

pub mod linked;
pub mod records;
pub mod toolchain;

use crate::cc::{self, Input, Language, Places};
use crate::failure::{Failure, Outcome, exit};
use crate::sys;
use comem::error::say;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use toolchain::{Clang, Plugin};

/// Flags with which no linker runs.
const NO_LINKER: [&str; 8] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "--help"];
/// Makes clang keep the line of each instruction, which errors of the plug-in name, and leave nothing of them in the
/// object. It asks for remarks of an optimisation that there is not. The program's own `-Rpass` and `-g`, which come
/// behind, do the same. Without the brackets clang would warn where it compiles nothing.
const KEEP_LINES: [&str; 3] = ["--start-no-unused-arguments", "-Rpass=comem-inline", "--end-no-unused-arguments"];
/// How sources in assembly are called.
const ASSEMBLY: [&str; 4] = ["s", "S", "sx", "asm"];
/// How sources in Fortran are called, which clang hands to another compiler.
const FORTRAN: [&str; 12] = ["f", "F", "for", "FOR", "ftn", "f77", "f90", "F90", "f95", "F95", "f03", "f08"];

/// The flags about checks, and all others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `--inline-verify`: the program asserts that what was taken for private is.
    pub verify: bool,
    /// `--inline-counts`: say at the end of linking how many loads and stores have checks.
    pub counts: bool,
    /// `--inline-trust FILE`: objects, archives and sources that need no checks.
    pub trusted: Vec<PathBuf>,
    /// The compiler's own arguments.
    pub rest: Vec<OsString>,
}

impl Options {
    /// Takes them from a command line; `None` without `--inline`.
    pub fn take(arguments: &[OsString]) -> Outcome<Option<Options>> {
        let (mut options, mut inline, mut other) = (Options::default(), false, None);
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.to_str().unwrap_or_default() {
                "--inline" => inline = true,
                "--inline-verify" => (options.verify, other) = (true, Some("--inline-verify")),
                "--inline-counts" => (options.counts, other) = (true, Some("--inline-counts")),
                "--inline-trust" => {
                    let no_file = || Failure::usage("--inline-trust names no file", "write --inline-trust FILE");
                    options.trusted.push(words.next().ok_or_else(no_file)?.into());
                    other = Some("--inline-trust");
                }
                text if text.starts_with("--inline-trust=") => {
                    options.trusted.push(text["--inline-trust=".len()..].into());
                    other = Some("--inline-trust");
                }
                text if text.starts_with("--inline") => {
                    return Err(Failure::usage(
                        format!("there is no flag {text}"),
                        "those about checks are --inline, --inline-verify, --inline-counts and --inline-trust FILE",
                    ));
                }
                _ => {
                    options.rest.push(word.clone());
                    if cc::takes_value(word) {
                        options.rest.extend(words.next().cloned());
                    }
                }
            }
        }
        match other {
            Some(flag) if !inline => {
                Err(Failure::usage(format!("{flag} is about checks in the program"), "give --inline, too"))
            }
            _ => Ok(inline.then_some(options)),
        }
    }

    fn trusts(&self, file: &Path) -> bool {
        let known = |trusted: &PathBuf| match (trusted.canonicalize(), file.canonicalize()) {
            (Ok(trusted), Ok(file)) => trusted == file,
            _ => trusted == file,
        };
        self.trusted.iter().any(known)
    }
}

/// Compiles or links with checks; the exit code.
pub fn compile(language: Language, options: &Options) -> Outcome<i32> {
    let words = cc::words_in(&options.rest);
    let inputs = cc::inputs(&words);
    refuse_lto(&words)?;
    inputs.iter().try_for_each(|input| refuse_source(input, options))?;
    let clang = Clang::find(language)?;
    sys::signals::give_file_limit_back();
    if inputs.is_empty() {
        let error = clang.command().args(&options.rest).exec();
        return Err(clang.cannot_run(&error));
    }
    let places = Places::find()?;
    let plugin = Plugin::find(&clang)?;
    let mut line = vec![plugin.flag()];
    line.extend(KEEP_LINES.map(OsString::from));
    line.extend(cc::command_line(&places, &options.rest));
    // Comem's own header has assembly, and does without it for code with checks.
    line.push("-DCOMEM_INLINE_CHECKS_".into());
    // The functions that check lengths would be more names to stand before. This comes behind the program's own flags.
    line.push("-U_FORTIFY_SOURCE".into());
    let mut command = clang.command();
    command.args(line).env(toolchain::VERIFY, if options.verify { "1" } else { "0" });
    if words.iter().any(|word| cc::one_of(word, &NO_LINKER)) {
        return Err(clang.cannot_run(&command.exec()));
    }
    link(&clang, command, &words, &inputs, options)
}

/// Links, and looks at what the linker has taken.
fn link(clang: &Clang, mut command: Command, words: &[OsString], inputs: &[Input], options: &Options) -> Outcome<i32> {
    command.args(linked::TRACE).stdout(Stdio::piped());
    let child = command.spawn().map_err(|error| clang.cannot_run(&error))?;
    let done = child.wait_with_output().map_err(|error| clang.cannot_run(&error))?;
    let (taken, said) = linked::traced(&done.stdout);
    crate::show(&said)?;
    if !done.status.success() {
        return Ok(code_of(done.status));
    }
    let product = product(words);
    let unchecked_sources = inputs.iter().filter(|input| is_assembly(input)).count();
    let found = linked::Findings::of(&taken, &product, &|file| options.trusts(file), unchecked_sources);
    if let Some(failure) = found.failure() {
        let _ = std::fs::remove_file(&product);
        return Err(failure);
    }
    found.warnings().iter().for_each(|warning| say(format_args!("comem: {warning}")));
    if options.counts {
        crate::show(&records::table(&found.records))?;
    }
    Ok(exit::SUCCESS)
}

/// What the linker makes.
fn product(words: &[OsString]) -> PathBuf {
    let (mut product, mut rest) = (PathBuf::from("a.out"), words.iter());
    while let Some(word) = rest.next() {
        match word.as_encoded_bytes() {
            b"-o" => product = rest.next().map_or(product, PathBuf::from),
            [b'-', b'o', _, ..] => product = word.to_str().map_or(product, |word| word[2..].into()),
            _ if cc::takes_value(word) => drop(rest.next()),
            _ => {}
        }
    }
    product
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| exit::SIGNAL + status.signal().unwrap_or(0))
}

/// Optimisation at link time compiles objects again, after the checks were put in.
fn refuse_lto(words: &[OsString]) -> Outcome<()> {
    let about = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-flto") || *word == "-fno-lto";
    match words.iter().rfind(about) {
        Some(word) if *word != "-fno-lto" => Err(Failure::usage(
            format!("{} moves code past the checks of --inline", word.display()),
            "leave it out, or add -fno-lto behind it",
        )),
        _ => Ok(()),
    }
}

fn is_assembly(input: &Input) -> bool {
    is_in(input, &ASSEMBLY, |language| language.starts_with("assembler"))
}

fn is_in(input: &Input, ends: &[&str], is_language: impl Fn(&str) -> bool) -> bool {
    match input.language.to_string_lossy().as_ref() {
        "" | "none" => Path::new(&input.file).extension().is_some_and(|end| cc::one_of(end, ends)),
        language => is_language(language),
    }
}

fn refuse_source(input: &Input, options: &Options) -> Outcome<()> {
    let file = Path::new(&input.file);
    let shown = file.display();
    if is_assembly(input) && !options.trusts(file) {
        let advice = format!("name it in --inline-trust {shown}, if it touches no shared memory");
        return Err(Failure::usage(format!("assembly gets no checks: {shown}"), advice));
    }
    if is_in(input, &FORTRAN, |language| OsStr::new(language) == "f77" || language.starts_with("f95")) {
        let advice = "leave --inline out, and run the program on pages (--engine hlrc, scope, lrc, multicast or msi)";
        return Err(Failure::usage(format!("programs in Fortran cannot have checks in their code: {shown}"), advice));
    }
    // Most linkers would only say that they do not know the format.
    if holds_bitcode(file) && !options.trusts(file) {
        return Err(linked::built_for_lto(&[shown.to_string()]));
    }
    Ok(())
}

fn holds_bitcode(file: &Path) -> bool {
    let mut first = [0; 4];
    let is_read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut first)).is_ok();
    is_read && records::is_bitcode(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn taken(line: &str) -> Options {
        Options::take(&words(line)).unwrap().expect("there is --inline")
    }

    fn refused(line: &str) -> String {
        let options = taken(line);
        let all = refuse_lto(&options.rest)
            .and_then(|()| cc::inputs(&options.rest).iter().try_for_each(|input| refuse_source(input, &options)));
        all.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn flags_about_checks_are_taken_out_and_others_pass() {
        assert_eq!(Options::take(&words("-O2 -c a.c")), Ok(None));
        let options =
            taken("-O2 --inline -o --inline-counts a.c --inline-trust b.o --inline-trust=c.o --inline-verify");
        assert_eq!(options.rest, words("-O2 -o --inline-counts a.c"), "an output file may have any name");
        assert_eq!(options.trusted, [PathBuf::from("b.o"), PathBuf::from("c.o")]);
        assert!(options.verify && !options.counts);
        for (line, part) in [
            ("--inline-verify a.c", "give --inline, too"),
            ("--inline --inline-trust", "names no file"),
            ("--inline --inline-everything", "there is no flag --inline-everything"),
        ] {
            let failure = Options::take(&words(line)).unwrap_err().to_string();
            assert!(failure.contains(part), "{failure}");
        }
    }

    #[test]
    fn what_gets_no_checks_is_refused() {
        assert!(refused("--inline -flto a.c").contains("-flto moves code past the checks"));
        assert!(refused("--inline -fno-lto -flto=thin a.c").contains("-flto=thin"));
        assert_eq!(refused("--inline -flto -fno-lto a.c"), "");
        for name in ["a.s", "a.S", "a.sx", "a.asm"] {
            assert!(refused(&format!("--inline {name}")).contains("assembly gets no checks"), "{name}");
            assert_eq!(refused(&format!("--inline {name} --inline-trust {name}")), "", "{name}");
        }
        assert!(refused("--inline -x assembler-with-cpp a").contains("assembly gets no checks"));
        assert!(refused("--inline -xassembler -").contains("assembly gets no checks"));
        assert!(refused("--inline -c a.f90").contains("Fortran"));
        assert_eq!(refused("--inline a.c b.cpp c.o -x c d.s"), "", "named a C source");
    }

    #[test]
    fn the_product_is_found() {
        for (line, file) in [("a.c", "a.out"), ("a.c -o b", "b"), ("-ob a.c", "b"), ("-o a -ob -D -oc", "b")] {
            assert_eq!(product(&words(line)), PathBuf::from(file), "{line}");
        }
    }
}
