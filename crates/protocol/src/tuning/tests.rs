//! Numbers are named once, fit their ranges, and are read and shown alike.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_number_has_a_name_of_its_own_a_line_and_a_default_in_its_range() {
    let mut names = BTreeSet::new();
    for number in Tuning::NUMBERS {
        assert!(names.insert(number.name), "{} stands there twice", number.name);
        let (low, high) = number.range;
        assert!((low..=high).contains(&number.default), "{}: {} is not in {low}..={high}", number.name, number.default);
        assert_eq!((number.get)(&Tuning::default()), number.default, "{}", number.name);
        assert_eq!(number.is_switch, number.range == (0, 1), "{}", number.name);
        let doc = number.doc.trim();
        assert!(doc.len() > 3 && doc.ends_with('.') && !doc.contains('|'), "{}: {doc:?}", number.name);
    }
    assert_eq!(Tuning::subjects(), Tuning::SUBJECTS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[test]
fn both_ends_of_every_range_fit_the_number() {
    for number in Tuning::NUMBERS {
        for value in [number.range.0, number.range.1] {
            let mut tuning = Tuning::default();
            (number.set)(&mut tuning, value);
            assert_eq!((number.get)(&tuning), value, "{}", number.name);
            let text = tuning.differences();
            let read = if text.is_empty() { Ok(Tuning::default()) } else { Tuning::parse(&text) };
            assert_eq!(read, Ok(tuning), "{text}");
        }
    }
}

#[test]
fn what_is_named_is_set_and_the_rest_keeps_its_default() {
    let tuning = Tuning::parse("pages.push=off, locks.turn_us=100,pages.push_after=1").unwrap();
    assert_eq!((tuning.pages.push, tuning.pages.push_after, tuning.locks.turn_us), (false, 1, 100));
    assert_eq!(tuning.differences(), "pages.push=off,pages.push_after=1,locks.turn_us=100");
    assert_eq!(Tuning { pages: PageTuning::default(), locks: LockTuning::default(), ..tuning }, Tuning::default());
    assert_eq!(Tuning::default().differences(), "");
}

#[test]
fn nonsense_is_refused() {
    let said = |text: &str| Tuning::parse(text).unwrap_err().to_string();
    assert_eq!(said("pages.pusch=off"), "there is no number pages.pusch");
    assert_eq!(said("locks.turn_us"), "\"locks.turn_us\" is not of the form name=value");
    assert_eq!(said("pages.push=off,"), "\"\" is not of the form name=value");
    assert_eq!(said("pages.push=maybe"), "pages.push may be on or off, not \"maybe\"");
    assert_eq!(said("pages.push_after=32"), "pages.push_after may be 1 to 31, not \"32\"");
    assert_eq!(said("pages.push_after=-1"), "pages.push_after may be 1 to 31, not \"-1\"");
    assert_eq!(said("pages.push_after=on"), "pages.push_after may be 1 to 31, not \"on\"");
    assert_eq!(said("pages.push=off,pages.push=on"), "pages.push stands there twice");
    assert_eq!(
        said("locks.turn_us=99999999999999999999999"),
        "locks.turn_us may be 0 to 10000000, not \"99999999999999999999999\""
    );
}

/// The documentation shows what stands in [`numbers`].
#[test]
fn the_documented_table_is_made_from_the_numbers() {
    const MARK: &str = "<!-- The rest is made from crates/protocol/src/tuning/numbers.rs. -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tuning.md");
    let text = std::fs::read_to_string(path).expect("docs/tuning.md");
    let (head, table) = text.split_once(MARK).expect("the line behind which the table stands");
    let wanted = Tuning::table();
    if std::env::var_os("COMEM_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{MARK}\n{wanted}")).expect("docs/tuning.md can be written");
    } else {
        let same = table.trim() == wanted.trim();
        assert!(
            same,
            "docs/tuning.md is out of date; run COMEM_WRITE_DOCS=1 cargo test -p comem-protocol --lib tuning"
        );
    }
}

/// The name of a constant that is a number or a time, if a line declares one.
fn constant(line: &str) -> Option<&str> {
    const TYPES: [&str; 12] =
        ["Duration", "Span", "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "f64"];
    let (before, rest) = line.split_once("const ")?;
    let before = before.trim();
    if !(before.is_empty() || before == "pub" || before.starts_with("pub(") && before.ends_with(')')) {
        return None;
    }
    let (name, rest) = rest.split_once(": ")?;
    let (ty, _) = rest.split_once(" =")?;
    let ty = ty.trim_start_matches(['(', '[']).split([',', ';', ')', ']']).next().unwrap_or_default();
    let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    (is_name && TYPES.contains(&ty.trim_start_matches("std::time::"))).then_some(name)
}

/// Appends the constants of all files below a folder that are no tests, with the file's path from the crates' folder.
fn constants_below(crates: &Path, folder: &Path, found: &mut BTreeSet<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("its entry").path();
        let name = path.strip_prefix(crates).expect("a path below").to_string_lossy().replace("/src/", "/");
        if name.contains("/tests") || name.contains("_tests") || name.contains("/tuning") {
            continue;
        }
        if path.is_dir() {
            constants_below(crates, &path, found);
        } else if name.ends_with(".rs") {
            let source = std::fs::read_to_string(&path).expect("a source");
            let code = source.split("\nmod tests {").next().unwrap_or_default();
            found.extend(code.lines().filter_map(constant).map(|constant| (name.clone(), constant.to_string())));
        }
    }
}

#[test]
fn a_constant_outside_the_struct_is_documented_with_its_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for name in ["protocol", "net", "memory", "runtime"] {
        constants_below(&crates, &crates.join(name).join("src"), &mut found);
    }
    let text = std::fs::read_to_string(crates.join("../docs/constants.md")).expect("docs/constants.md");
    let mut listed = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.split('`').skip(1).step_by(2).map(str::to_string);
        let file = cells.next().expect("a file");
        cells.for_each(|name| assert!(listed.insert((file.clone(), name)), "{row}: listed twice"));
    }
    assert!(found.len() > 300, "{}", found.len());
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "make them tuning numbers, or list them in docs/constants.md: {unlisted:?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "docs/constants.md lists what is no more: {gone:?}");
}

#[test]
fn declarations_of_constants_are_told_from_what_looks_alike() {
    assert_eq!(constant("    pub(super) const PAUSES: (Span, Span) = (A, B);"), Some("PAUSES"));
    assert_eq!(constant("const WAIT: std::time::Duration = Duration::from_secs(1);"), Some("WAIT"));
    assert_eq!(constant("const REPEATS: [Span; 2] = [A, B];"), Some("REPEATS"));
    let others =
        ["const NAME: &str = \"x\";", "const fn at(x: u64) -> u64 = 1", "/// const A: u64 = 1", "let a: u64 = 1;"];
    assert!(others.into_iter().all(|line| constant(line).is_none()));
}
