//! What the linker has taken, and whether it has checks.

use super::records::{ABI, Content, Record, dynamic_symbols};
use crate::failure::Failure;
use object::read::archive::ArchiveFile;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes linkers name every file that they take, and of archives every member, on standard output.
pub const TRACE: [&str; 2] = ["-Wl,--trace", "-Wl,--trace"];
/// Modules that a warning names for a function.
const CALLERS_SHOWN: usize = 3;
/// What a compiler adds of its own.
const STARTUP: [&str; 9] =
    ["crt0.o", "crt1.o", "crti.o", "crtn.o", "Scrt1.o", "rcrt1.o", "gcrt1.o", "grcrt1.o", "Mcrt1.o"];
/// Libraries that belong to the system or to Comem. Their functions that matter have others in their place, or a
/// warning of their own.
const SYSTEM: [&str; 24] = [
    "libc",
    "libm",
    "libmvec",
    "libpthread",
    "libdl",
    "librt",
    "libutil",
    "libresolv",
    "libc_nonshared",
    "libpthread_nonshared",
    "libstdc++",
    "libsupc++",
    "libc++",
    "libc++abi",
    "libunwind",
    "libgcc",
    "libgcc_s",
    "libgcc_eh",
    "libatomic",
    "libgomp",
    "libomp",
    "ld-linux-x86-64",
    "linux-vdso",
    "libcomem",
];

/// A file that the linker has taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Taken {
    /// The object, the archive or the shared library.
    pub file: PathBuf,
    /// A member of an archive.
    pub member: Option<Vec<u8>>,
}

impl Taken {
    /// `file`, `file(member)`, or as GNU ld writes it, `(file)member`.
    fn parse(line: &[u8]) -> Option<Taken> {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let position = |byte: u8| line.iter().position(|b| *b == byte);
        if line.first() == Some(&b'(') {
            let end = position(b')')?;
            return Some(Taken { file: path(&line[1..end]), member: Some(line[end + 1..].to_vec()) });
        }
        if let ([.., b')'], Some(start)) = (line, position(b'(')) {
            return Some(Taken { file: path(&line[..start]), member: Some(line[start + 1..line.len() - 1].to_vec()) });
        }
        let known = |end: &OsStr| matches!(end.as_bytes(), b"o" | b"a" | b"so" | b"obj" | b"lo");
        let taken = Taken { file: path(line), member: None };
        (taken.file.is_file() || taken.file.extension().is_some_and(known)).then_some(taken)
    }

    fn shown(&self) -> String {
        match &self.member {
            Some(member) => format!("{}({})", self.file.display(), String::from_utf8_lossy(member)),
            None => self.file.display().to_string(),
        }
    }
}

/// Parts what a traced linker prints into the files that it has taken and all other lines.
pub fn traced(output: &[u8]) -> (Vec<Taken>, Vec<u8>) {
    let (mut taken, mut said) = (Vec::new(), Vec::new());
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        match Taken::parse(line.strip_suffix(b"\n").unwrap_or(line)) {
            Some(one) => taken.push(one),
            None => said.extend_from_slice(line),
        }
    }
    taken.sort();
    taken.dedup();
    (taken, said)
}

/// What was found in everything that was linked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// Objects without checks.
    unchecked: Vec<String>,
    /// Objects with checks of another version.
    strangers: Vec<String>,
    /// Objects that the linker has compiled.
    bitcode: Vec<String>,
    /// Archives' members and shared libraries without checks.
    libraries: Vec<String>,
    /// Functions outside of the program that get pointers which may be shared, each with the modules that call it.
    calls: BTreeMap<String, BTreeSet<String>>,
    /// So many modules have no record in the program, though they were compiled for it.
    lost: usize,
    /// The program's records.
    pub records: Vec<Record>,
}

impl Findings {
    /// Examines the files, and `product`, which was made of them. Of the files that were compiled on the way and are
    /// gone again, `unchecked_sources` were not compiled by the plug-in's compiler.
    pub fn of(taken: &[Taken], product: &Path, trusts: &dyn Fn(&Path) -> bool, unchecked_sources: usize) -> Findings {
        let mut found = Findings::default();
        let (mut expected, mut gone, mut trusted) = (0, 0, Vec::new());
        for one in taken.iter().filter(|one| !is_systems(&one.file)) {
            let Ok(bytes) = std::fs::read(&one.file) else {
                gone += 1;
                continue;
            };
            if bytes.starts_with(b"!<arch>\n") && one.member.is_none() {
                continue;
            }
            let content = match &one.member {
                Some(member) => member_of(&one.file, &bytes, member),
                None => Content::of(&bytes),
            };
            let is_library = one.member.is_some() || is_shared(&bytes);
            match content {
                Content::Checked(records) => {
                    expected += if is_shared(&bytes) { 0 } else { records.len() };
                    found.strangers.extend(records.iter().any(|record| record.abi != ABI).then(|| one.shown()));
                }
                _ if trusts(&one.file) || trusts(Path::new(&one.shown())) => {
                    trusted.extend(dynamic_symbols(&bytes, false));
                }
                Content::Unchecked if is_library => found.libraries.push(one.shown()),
                Content::Unchecked => found.unchecked.push(one.shown()),
                Content::Bitcode => found.bitcode.push(one.shown()),
                Content::Data | Content::Other => {}
            }
        }
        let product = std::fs::read(product).unwrap_or_default();
        if let Content::Checked(records) = Content::of(&product) {
            found.records = records;
        }
        found.lost = (expected + gone).saturating_sub(unchecked_sources + found.records.len());
        let imported = dynamic_symbols(&product, true);
        for record in &found.records {
            for name in record.calls.iter().filter(|name| imported.contains(name) && !trusted.contains(name)) {
                found.calls.entry(name.clone()).or_default().insert(record.module.clone());
            }
        }
        found
    }

    /// Why the program may not be run.
    pub fn failure(&self) -> Option<Failure> {
        let list = |names: &[String]| names.join(", ");
        if !self.bitcode.is_empty() {
            return Some(built_for_lto(&self.bitcode));
        }
        let (what, advice) = if !self.unchecked.is_empty() {
            let what = format!("built without checks: {}", list(&self.unchecked));
            let name = &self.unchecked[0];
            (what, format!("build it with --inline, or name it (--inline-trust {name}) if it touches no shared memory"))
        } else if !self.strangers.is_empty() {
            let what = format!("built with the checks of another version of Comem: {}", list(&self.strangers));
            (what, "build it again with --inline".to_string())
        } else if self.lost > 0 {
            let what = format!("{} of the program's modules have no checks, though --inline was given", self.lost);
            (
                what,
                "leave out flags that keep the plug-in from its work, such as -Xclang -disable-llvm-passes".to_string(),
            )
        } else {
            return None;
        };
        Some(Failure::usage(what, advice))
    }

    /// What may go wrong, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.libraries.is_empty() {
            warnings.push(format!(
                "these libraries have no checks, so they may not touch shared memory: {}; \
                 --inline-trust FILE silences this",
                self.libraries.join(", ")
            ));
        }
        if !self.calls.is_empty() {
            warnings.push(format!(
                "these functions have no checks, and get pointers that may be shared: {}; give them private copies",
                self.calls.iter().map(|(name, modules)| called(name, modules)).collect::<Vec<_>>().join(", ")
            ));
        }
        warnings
    }
}

/// Refuses objects that the linker, or a plug-in of it, would compile again.
pub fn built_for_lto(names: &[String]) -> Failure {
    let what = format!("built for optimisation at link time, which moves code past the checks: {}", names.join(", "));
    Failure::usage(what, "build it with --inline and without -flto")
}

/// `strsep (called in a.c, b.c, c.c and 2 more)`.
fn called(function: &str, modules: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = modules.iter().take(CALLERS_SHOWN).map(String::as_str).collect();
    let more = match modules.len() - shown.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!("{function} (called in {}{more})", shown.join(", "))
}

fn is_systems(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Where a name ends: libc.so.6, libc++abi.a, libclang_rt.builtins-x86_64.a.
    let stem = name.split_once(".so").or_else(|| name.rsplit_once(".a")).map_or(name.as_str(), |(stem, _)| stem);
    let startup = STARTUP.contains(&name.as_str()) || name.starts_with("crtbegin") || name.starts_with("crtend");
    startup || SYSTEM.contains(&stem) || name.starts_with("libclang_rt.")
}

fn is_shared(bytes: &[u8]) -> bool {
    use object::{Object, ObjectKind};
    object::File::parse(bytes).is_ok_and(|file| file.kind() == ObjectKind::Dynamic)
}

/// What the members of this name are; the worst of them, where several have it.
fn member_of(archive: &Path, bytes: &[u8], name: &[u8]) -> Content {
    let Ok(file) = ArchiveFile::parse(bytes) else { return Content::Other };
    let named = file.members().filter_map(Result::ok).filter(|member| member.name() == name);
    let contents = named.map(|member| match member.data(bytes) {
        Ok(data) if !member.is_thin() => Content::of(data),
        // A thin archive names its members' files.
        _ => {
            let folder = archive.parent().unwrap_or(Path::new("."));
            std::fs::read(folder.join(OsStr::from_bytes(name))).map_or(Content::Other, |data| Content::of(&data))
        }
    });
    contents.reduce(|one, other| if matches!(one, Content::Checked(_)) { other } else { one }).unwrap_or(Content::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linkers_name_what_they_take_in_their_ways() {
        let (taken, said) = traced(b"a.o\n(./libf.a)f.o\nlib/libg.a(g.o)\nlibm.so.6: note\nb.o\na.o\nhello\n");
        let shown: Vec<String> = taken.iter().map(Taken::shown).collect();
        assert_eq!(shown, ["./libf.a(f.o)", "a.o", "b.o", "lib/libg.a(g.o)"]);
        assert_eq!(String::from_utf8_lossy(&said), "libm.so.6: note\nhello\n");
    }

    #[test]
    fn libraries_of_the_system_are_known_by_name() {
        for name in ["libc.so.6", "libm.a", "libstdc++.so", "libc++abi.a", "crtbeginS.o", "Scrt1.o", "libcomem.so"] {
            assert!(is_systems(&Path::new("/usr/lib").join(name)), "{name}");
        }
        for name in ["libcrypto.so.3", "libcomedy.a", "cr.o", "main.o", "libmine.so"] {
            assert!(!is_systems(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn each_finding_has_its_sentence() {
        let names = || vec!["x.o".to_string(), "y.o".to_string()];
        let cases = [
            (Findings { unchecked: names(), ..Findings::default() }, "built without checks: x.o, y.o; build it with"),
            (
                Findings { strangers: names(), ..Findings::default() },
                "another version of Comem: x.o, y.o; build it again",
            ),
            (Findings { bitcode: names(), ..Findings::default() }, "past the checks: x.o, y.o; build it"),
            (Findings { lost: 2, ..Findings::default() }, "2 of the program's modules have no checks"),
        ];
        for (found, part) in cases {
            let text = found.failure().expect("a failure").to_string();
            assert!(text.contains(part), "{text}");
        }
        let modules = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
        let calls = BTreeMap::from([
            ("f".to_string(), modules(&["a.c"])),
            ("g".to_string(), modules(&["a.c", "b.c", "c.c", "d.c", "e.c"])),
        ]);
        let fine = Findings { libraries: names(), calls, ..Findings::default() };
        assert_eq!(fine.failure(), None);
        let warnings = fine.warnings();
        assert!(warnings[0].contains("no checks, so they may not touch shared memory: x.o, y.o"), "{warnings:?}");
        let called = "may be shared: f (called in a.c), g (called in a.c, b.c, c.c and 2 more); give them";
        assert!(warnings[1].contains(called), "{warnings:?}");
    }
}
