//! `comem cc` (and `comem-cc`): the C compiler with what programs for Comem need; `comem config`: where that is.
//!
//! The compiler is `$COMEM_CC` (`$COMEM_CXX` for `comem c++`), else `cc` (`c++`). It gets the directories of the
//! headers and `-fPIC`, so that no variable of the C library is copied into the program. When it links a program, it
//! also gets the library and where to find it when the program runs, `-no-pie`, so that functions and variables have
//! one address on every node, the linker script that gathers the program's own variables, and `--wrap=exit`, by which a
//! worker's exit is caught. Everything else passes through, behind ours where the last of two flags wins.
//!
//! Headers and libraries are found from this command's own place ([`crate::installation`]); `$COMEM_INCLUDE` and
//! `$COMEM_LIB` name other places.
//!
//! With `--inline` the program gets checks in its own code: see [`crate::inline`].

use crate::failure::{Failure, Outcome};
use crate::inline;
use crate::installation::Installation;
use crate::preload;
use crate::remote::quoted;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags with which a compiler links no program.
const NO_LINKING: [&str; 11] =
    ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-r", "-shared", "--shared", "--version", "--help"];
/// Flags whose value is the next word, and no input.
const WITH_VALUE: &str = "-o -I -L -l -D -U -T -u -z -e -A -J -B -MF -MT -MQ -include -imacros -isystem -idirafter \
                          -iquote --param -isysroot -iprefix -iwithprefix -iwithprefixbefore -target -mllvm -Xclang \
                          -Xlinker -Xassembler -Xpreprocessor";
/// What headers are called. Alone they are compiled for later use.
const HEADERS: [&str; 9] = ["h", "hh", "H", "hp", "hxx", "hpp", "HPP", "h++", "tcc"];
/// Files of arguments may name others; so deep is looked.
const DEPTH_MAX: usize = 8;

/// Where headers and libraries are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of `comem.h`.
    pub include: PathBuf,
    /// The directory of `libcomem.so`.
    pub lib: PathBuf,
}

impl Places {
    /// Looks for them.
    pub fn find() -> Outcome<Places> {
        let installation = Installation::find()?;
        Ok(Places { include: installation.headers()?, lib: installation.library()? })
    }

    /// What `comem cc` compiles with, which fits programs for PARMACS too.
    fn compile_flags(&self) -> Vec<OsString> {
        vec![with("-I", &self.include), with("-I", &self.include.join("compat")), "-fPIC".into()]
    }

    /// What `comem cc` links with, which fits programs for PARMACS too.
    fn link_flags(&self) -> Vec<OsString> {
        let mut flags = vec!["-no-pie".into()];
        flags.extend(for_linker("-T", &self.include.join("compat/comem_globals.ld")));
        flags.push("-Wl,--wrap=exit".into());
        flags.extend(library_flags(self));
        flags.push("-lpthread".into());
        flags
    }

    /// What an ordinary program compiles with.
    fn plain_compile_flags(&self) -> Vec<OsString> {
        vec![with("-I", &self.include)]
    }
}

/// A flag and a path in one word.
pub fn with(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

/// A flag of the linker's and its value. Commas separate such words, so a path with a comma goes another way.
fn for_linker(flag: &str, path: &Path) -> Vec<OsString> {
    if path.as_os_str().as_encoded_bytes().contains(&b',') {
        ["-Xlinker", flag, "-Xlinker"].iter().map(OsString::from).chain([path.into()]).collect()
    } else {
        vec![with(&format!("-Wl,{flag},"), path)]
    }
}

/// An input of a compiler, and the language that `-x` gives it; empty where its name decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// The file; `-` is standard input.
    pub file: OsString,
    /// What `-x` said.
    pub language: OsString,
}

/// Whether a compiler with these arguments links a program.
pub fn links(arguments: &[OsString]) -> bool {
    let words = words_in(arguments);
    !words.iter().any(|word| one_of(word, &NO_LINKING)) && inputs(&words).iter().any(|input| !is_header(input))
}

/// What a compiler with these words reads.
pub fn inputs(words: &[OsString]) -> Vec<Input> {
    let (mut inputs, mut language) = (Vec::new(), OsString::new());
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_encoded_bytes() {
            b"-x" => language = rest.next().cloned().unwrap_or_default(),
            [b'-', b'x', of @ ..] => language = String::from_utf8_lossy(of).into_owned().into(),
            [b'-', _, ..] => drop(takes_value(word).then(|| rest.next())),
            _ => inputs.push(Input { file: word.clone(), language: language.clone() }),
        }
    }
    inputs
}

/// Whether the next word is a flag's value.
pub fn takes_value(flag: &OsStr) -> bool {
    WITH_VALUE.split_whitespace().any(|known| flag == known)
}

/// The arguments with what stands in files of arguments in their place.
pub fn words_in(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = Vec::new();
    expand(arguments, DEPTH_MAX, &mut words);
    words
}

/// The library, and its directory for the linker and for who runs the program, unless both look there anyway.
pub fn library_flags(places: &Places) -> Vec<OsString> {
    let mut flags = Vec::new();
    if !is_searched_anyway(&places.lib) {
        flags.push(with("-L", &places.lib));
        flags.extend(for_linker("-rpath", &places.lib));
    }
    flags.push("-lcomem".into());
    flags
}

/// Whether compilers and the dynamic linker look in this directory unasked.
fn is_searched_anyway(directory: &Path) -> bool {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let roots = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"].map(Path::new);
    roots.iter().any(|root| directory == *root || directory == root.join(&triple))
}

/// Whether a word is one of these.
pub fn one_of(word: &OsStr, words: &[&str]) -> bool {
    words.iter().any(|w| word == OsStr::new(w))
}

/// Whether an input is a header, which is compiled and not linked: by its name, unless the language was named.
fn is_header(input: &Input) -> bool {
    match input.language.to_string_lossy().as_ref() {
        "" | "none" => Path::new(&input.file).extension().is_some_and(|end| one_of(end, &HEADERS)),
        language => language.ends_with("-header"),
    }
}

/// The arguments with those in files (`@file`) in their place, as compilers read them; a file that cannot be read is an
/// argument.
fn expand(arguments: &[OsString], depth: usize, words: &mut Vec<OsString>) {
    for argument in arguments {
        let file = argument.to_str().and_then(|argument| argument.strip_prefix('@')).filter(|_| depth > 0);
        match file.and_then(|file| std::fs::read_to_string(file).ok()) {
            Some(text) => expand(&words_of(&text), depth - 1, words),
            None => words.push(argument.clone()),
        }
    }
}

/// The words of a file of arguments: blanks separate them, quotes of both kinds keep them together, and what follows a
/// backslash is itself.
fn words_of(text: &str) -> Vec<OsString> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(characters.next()),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(end)) if c == end => quote = None,
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from).collect()
}

/// The compiler's whole command line.
pub fn command_line(places: &Places, arguments: &[OsString]) -> Vec<OsString> {
    let mut line = places.compile_flags();
    line.extend_from_slice(arguments);
    if links(arguments) {
        line.extend(places.link_flags());
    }
    line
}

/// A language that programs are compiled from, and the compiler's usual names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// `comem cc`.
    C,
    /// `comem c++`.
    Cxx,
}

impl Language {
    /// The variable that names a compiler.
    pub fn variable(self) -> &'static str {
        match self {
            Language::C => "COMEM_CC",
            Language::Cxx => "COMEM_CXX",
        }
    }

    fn usual_compiler(self) -> &'static str {
        match self {
            Language::C => "cc",
            Language::Cxx => "c++",
        }
    }
}

/// Becomes the compiler; with `--inline` that is clang, and its work is looked at.
pub fn compile(language: Language, arguments: &[OsString]) -> Outcome<i32> {
    if let Some(options) = inline::Options::take(arguments)? {
        return inline::compile(language, &options);
    }
    let places = Places::find()?;
    let variable = language.variable();
    let compiler = std::env::var(variable).unwrap_or_default();
    let mut words = compiler.split_whitespace();
    let program = words.next().unwrap_or(language.usual_compiler());
    crate::sys::signals::give_file_limit_back();
    let error = Command::new(program).args(words).args(command_line(&places, arguments)).exec();
    Err(Failure::usage(
        format!("cannot run the compiler {program}: {error}"),
        format!("name another one in {variable}"),
    ))
}

/// `comem config`: prints paths and flags, one line for each question.
pub fn config(questions: &[&str]) -> Outcome<i32> {
    for question in questions {
        if *question == "wrapper" {
            let library = preload::library().map_err(|why| Failure::start(why, ""))?;
            crate::show(&[library.as_os_str().as_encoded_bytes(), b"\n"].concat())?;
            continue;
        }
        let places = Places::find()?;
        let mut answer = match *question {
            "parmacs" => places.include.join("compat/parmacs.m4").into_os_string().into_encoded_bytes(),
            "include" => places.include.clone().into_os_string().into_encoded_bytes(),
            "cflags" => for_shell(&places.plain_compile_flags()),
            "libs" => for_shell(&library_flags(&places)),
            "parmacs-cflags" => for_shell(&places.compile_flags()),
            _ => for_shell(&places.link_flags()),
        };
        answer.push(b'\n');
        crate::show(&answer)?;
    }
    Ok(0)
}

/// Words as a shell reads them again, as in a recipe of make, or by `eval`.
fn for_shell(words: &[OsString]) -> Vec<u8> {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' ')
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
        let lines = [
            &["-E", "a.c"][..],
            &["--version"],
            &["-shared", "a.o", "-o", "a.so"],
            &["--shared", "a.o", "-o", "a.so"],
            &["-MM", "a.c"],
            &["a.h", "-o", "a.h.gch"],
            &["-xc-header", "a", "-include", "b.c"],
            &["-v", "-o", "a"],
        ];
        for arguments in lines {
            assert!(!line(arguments).contains("-lcomem"), "{arguments:?}");
        }
    }

    #[test]
    fn what_comes_by_standard_input_is_a_program() {
        for arguments in [&["-xc", "-"][..], &["-x", "c", "-", "-o", "a"], &["a.h", "a.c"], &["-x", "none", "a.o"]] {
            assert!(line(arguments).contains("-lcomem"), "{arguments:?}");
        }
    }

    #[test]
    fn files_of_arguments_are_read() {
        let folder = std::env::temp_dir().join(format!("comem-cc-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            format!("@{}", path.display())
        };
        let inner = file("inner", "-c");
        let outer = file("outer", &format!("'a file.c'\n-o \"a\" {inner}\\\n"));
        let program = file("program", "a\\ file.c\n");
        assert!(!line(&[&inner, "a.c"]).contains("-lcomem"));
        assert!(line(&[&outer]).contains("-lcomem"), "the inner file's name goes on after the backslash");
        assert!(!line(&[&file("both", &format!("a.c {inner}"))]).contains("-lcomem"));
        assert!(line(&[&program]).contains("-lcomem"));
        assert!(line(&["@nowhere.c"]).contains("-lcomem"), "no such file, so an input");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn words_in_a_file_are_quoted_as_compilers_want_them() {
        let words = words_of(" -DA=\"b c\" 'x \"y\"' \\\"z ''\n-o\ta");
        assert_eq!(words, ["-DA=b c", "x \"y\"", "\"z", "", "-o", "a"]);
    }

    #[test]
    fn paths_with_commas_reach_the_linker_whole() {
        let places = Places { include: "/i,j".into(), lib: "/l,m".into() };
        let words = places.link_flags();
        let after = |word: &str| words.iter().position(|w| w == word).map(|at| words[at + 2].clone());
        assert_eq!(after("-T"), Some("/i,j/compat/comem_globals.ld".into()));
        assert_eq!(after("-rpath"), Some("/l,m".into()));
    }

    #[test]
    fn ordinary_programs_are_told_where_things_are_and_nothing_else() {
        let places = Places { include: "/i".into(), lib: "/l".into() };
        assert_eq!(places.plain_compile_flags(), ["-I/i"]);
        assert_eq!(library_flags(&places), ["-L/l", "-Wl,-rpath,/l", "-lcomem"]);
    }

    #[test]
    fn directories_that_every_linker_knows_are_not_named() {
        let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        for lib in ["/usr/lib", &triple, "/lib64"] {
            let places = Places { include: "/i".into(), lib: lib.into() };
            assert_eq!(library_flags(&places), ["-lcomem"], "{lib}");
        }
        let places = Places { include: "/i".into(), lib: "/usr/local/lib".into() };
        assert_eq!(library_flags(&places), ["-L/usr/local/lib", "-Wl,-rpath,/usr/local/lib", "-lcomem"]);
    }

    #[test]
    fn flags_are_read_back_by_a_shell() {
        for (include, lib) in [("/i", "/l"), ("/my head's", "/a $b\"`c"), ("/i,j", "/l;m*\\n")] {
            let places = Places { include: include.into(), lib: lib.into() };
            let words = [places.compile_flags(), places.link_flags()].concat();
            let text = String::from_utf8(for_shell(&words)).unwrap();
            let script = format!("printf '%s\\0' {text}");
            let read = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
            let read: Vec<&str> = std::str::from_utf8(&read).unwrap().split_terminator('\0').collect();
            assert_eq!(read, words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>());
            assert_eq!(text.contains('\''), include != "/i", "nothing is quoted without need: {text}");
        }
    }
}
