//! `docs/api-names.md` tells the truth: every name in its tables is in that language's interface.

mod common;

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::Path;

/// A file of the workspace, without comments.
fn source(path: &str) -> String {
    let text = read_to_string(common::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    match path.rsplit('.').next() {
        Some("rs" | "hpp") => text.lines().map(line).collect::<Vec<_>>().join("\n"),
        Some("f90" | "inc") => text.lines().filter(|l| !l.trim_start().starts_with('!')).collect::<Vec<_>>().join("\n"),
        _ => text,
    }
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect()
}

/// What is declared in the Rust sources of a folder by `pub`: functions, types, fields.
fn rust_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in folder.read_dir().expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_names(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = source(path.strip_prefix(common::root()).expect("in the workspace").to_str().expect("a path"));
            // What macros declare stands in their calls: `fetch_add, fetch_add_relaxed: Add;`.
            let made = text.lines().filter(|line| line.trim_end().ends_with(';') && line.contains("_relaxed: "));
            names.extend(made.flat_map(words).map(str::to_string));
            for declared in text.split("pub ").skip(1) {
                let mut all =
                    declared.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
                let first = all.next().unwrap_or_default();
                let named = match first {
                    "fn" | "struct" | "enum" | "trait" | "type" => all.next(),
                    "unsafe" => all.nth(1),
                    _ => Some(first),
                };
                names.extend(named.map(str::to_string));
            }
        }
    }
}

/// The interfaces, in the order of the columns: what is in each, by its last part.
struct Interfaces([BTreeSet<String>; 5]);

impl Interfaces {
    fn read() -> Interfaces {
        let owned = |texts: &[&str]| texts.iter().flat_map(|text| words(text)).map(str::to_string).collect();
        let header = source("include/comem.h");
        let mut c: BTreeSet<String> = owned(&[&header]);
        // `comem_read_NAME` stands for one function of each type.
        let per_type: Vec<String> =
            c.iter().filter_map(|name| name.strip_suffix("_NAME").map(|n| format!("{n}_f64"))).collect();
        c.extend(per_type);
        let fortran =
            ["comem.f90", "comem_integers.inc", "comem_allocation.inc", "comem_library.inc", "comem_release.inc"]
                .map(|file| source(&format!("include/{file}")));
        // Only names of the module, and arguments of its procedures.
        let offered =
            |line: &&str| ["public ::", "optional ::", "parameter, public"].iter().any(|mark| line.contains(mark));
        let fortran = fortran.iter().flat_map(|text| text.lines().filter(offered)).flat_map(words);
        let package = ["__init__", "_arrays", "_cluster", "_sync"].map(|module| {
            let text = source(&format!("crates/python/python/comem/{module}.py"));
            if module == "__init__" { text.split_once("__all__").expect("a list of names").1.to_string() } else { text }
        });
        let [all, modules @ ..] = &package;
        let defined =
            modules.iter().flat_map(|text| text.lines().filter(|line| line.contains("def ") || line.contains(": ")));
        let python = words(all).into_iter().chain(defined.flat_map(words));
        let mut rust = BTreeSet::new();
        rust_names(&common::root().join("crates/runtime/src"), &mut rust);
        let heap = source("crates/runtime/src/heap.rs");
        rust.extend(heap.contains("region::Homes as Home;").then(|| "Home".to_string()));
        let cpp_source = source("include/comem.hpp");
        let mut cpp: BTreeSet<String> = owned(&[&cpp_source]);
        // A macro makes both functions of an operation.
        let made = cpp_source.lines().filter_map(|line| line.strip_prefix("COMEM_WORD_OPERATION_(")?.split(',').next());
        cpp.extend(made.map(|name| format!("{name}_relaxed")));
        Interfaces([c, cpp, python.map(str::to_string).collect(), fortran.map(str::to_string).collect(), rust])
    }
}

const LANGUAGES: [&str; 5] = ["C", "C++", "Python", "Fortran", "Rust"];

#[test]
fn every_name_of_the_table_is_in_its_language() {
    let table = read_to_string(common::root().join("docs/api-names.md")).expect("the table");
    let interfaces = Interfaces::read();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 6, "{row}");
        for ((cell, names), language) in cells[1..].iter().zip(&interfaces.0).zip(LANGUAGES) {
            let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!named.is_empty() || cell.trim() == "-" || !cell.trim().is_empty(), "an empty cell: {row}");
            for name in named {
                let parts = words(name);
                found += parts.len();
                let lacks = parts.iter().filter(|part| !names.contains(**part) && !["t", "Comem"].contains(*part));
                wrong.extend(lacks.map(|part| format!("{language}: {part} of {name}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found > 200, "only {found} names were found: the table has another form");
}

/// Names that were given up appear nowhere in the interfaces: there are no aliases.
#[test]
fn what_was_renamed_is_gone() {
    let gone: [&[&str]; 5] = [
        &["comem_readonly", "comem_touch", "comem_poll", "comem_options", "COMEM_PLACE_ON", "placement"],
        &["Startup", "Finish", "NodeBarrier", "Guard", "RwLock", "SharedArray", "AtomicLoad", "Placement"],
        &["placement", "readonly"],
        &["comem_readonly", "comem_touch", "comem_place_on", "placement", "place"],
        &["try_lock_blocking", "barrier_of", "SharedSlice", "SharedArray", "readonly", "touch", "try_run", "Placement"],
    ];
    let interfaces = Interfaces::read();
    for ((gone, names), language) in gone.iter().zip(&interfaces.0).zip(LANGUAGES) {
        let left: Vec<_> = gone.iter().filter(|name| names.contains(**name)).collect();
        assert!(left.is_empty(), "{language} still has {left:?}");
    }
}
