//! What the plug-in leaves in an object file about the checks that it has put in: the section `.comem.inline`, a line
//! of text for each module: `abi=2 module=a.c loads=10/25 stores=3/9 strips=2 calls=f,g`. Linkers put the sections of
//! all objects behind one another.

use crate::table::Table;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

/// The version of the agreement between checked code and libcomem.
pub use comem::inline::calls::ABI;
/// The section's name.
const SECTION: &str = ".comem.inline";

/// One module's line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The version that its checks are of; 0 where the line names none.
    pub abi: u32,
    /// The module: its source file.
    pub module: String,
    /// Loads with checks, of how many.
    pub loads: (u64, u64),
    /// Stores with checks, of how many.
    pub stores: (u64, u64),
    /// Loops whose stores have one check for all.
    pub strips: u64,
    /// Functions of other modules that get pointers which may be shared.
    pub calls: Vec<String>,
}

impl Record {
    fn parse(line: &str) -> Record {
        let mut record = Record::default();
        let pair = |text: &str| {
            let (checked, all) = text.split_once('/').unwrap_or((text, text));
            (checked.parse().unwrap_or(0), all.parse().unwrap_or(0))
        };
        for (name, value) in line.split(' ').filter_map(|word| word.split_once('=')) {
            match name {
                "abi" => record.abi = value.parse().unwrap_or(0),
                "module" => record.module = value.to_string(),
                "loads" => record.loads = pair(value),
                "stores" => record.stores = pair(value),
                "strips" => record.strips = value.parse().unwrap_or(0),
                "calls" => record.calls = value.split(',').map(str::to_string).collect(),
                _ => {}
            }
        }
        record
    }
}

/// What an object file, a program or a library says of its checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Its modules have checks.
    Checked(Vec<Record>),
    /// It has code, and no checks.
    Unchecked,
    /// It has no code.
    Data,
    /// It is a module of LLVM's, which the linker has compiled.
    Bitcode,
    /// It is no object file: a script for the linker, say.
    Other,
}

impl Content {
    /// Examines a file's bytes.
    pub fn of(bytes: &[u8]) -> Content {
        if is_bitcode(bytes) {
            return Content::Bitcode;
        }
        let Ok(file) = object::File::parse(bytes) else { return Content::Other };
        let mut records: Vec<Record> = Vec::new();
        let mut has_code = false;
        for section in file.sections() {
            has_code |= section.kind() == SectionKind::Text && section.size() > 0;
            if section.name() == Ok(SECTION) {
                let text = String::from_utf8_lossy(section.data().unwrap_or_default()).into_owned();
                let lines = text.split(['\n', '\0']).filter(|line| !line.is_empty());
                records.extend(lines.map(Record::parse));
            }
        }
        match (records.is_empty(), has_code) {
            (false, _) => Content::Checked(records),
            (true, true) => Content::Unchecked,
            (true, false) => Content::Data,
        }
    }
}

/// Whether a file that begins with these bytes is a module of LLVM's.
pub fn is_bitcode(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(b"\xde\xc0\x17\x0b")
}

/// The functions that a program takes from shared libraries, or those that a shared library has.
pub fn dynamic_symbols(bytes: &[u8], imported: bool) -> Vec<String> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let chosen = file.dynamic_symbols().filter(|symbol| symbol.is_undefined() == imported);
    chosen.filter_map(|symbol| symbol.name().ok().map(str::to_string)).collect()
}

/// The counts as a table: Table 1 of the DSZOOM paper.
pub fn table(records: &[Record]) -> String {
    let mut table = Table::new(&["<module", "loads", "checked", "%", "stores", "checked", "%", "strips"]);
    let mut row = |name: &str, loads: (u64, u64), stores: (u64, u64), strips: u64| {
        let share = |(checked, all): (u64, u64)| match all {
            0 => "-".to_string(),
            all => format!("{:.1}", checked as f64 * 100.0 / all as f64),
        };
        let (load_share, store_share) = (share(loads), share(stores));
        let numbers = [loads.1.to_string(), loads.0.to_string(), load_share];
        let more = [stores.1.to_string(), stores.0.to_string(), store_share, strips.to_string()];
        table.row([name.to_string()].into_iter().chain(numbers).chain(more).collect());
    };
    let sum =
        |pairs: &mut dyn Iterator<Item = (u64, u64)>| pairs.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    for record in records {
        row(&record.module, record.loads, record.stores, record.strips);
    }
    let loads = sum(&mut records.iter().map(|record| record.loads));
    let stores = sum(&mut records.iter().map(|record| record.stores));
    row("in all", loads, stores, records.iter().map(|record| record.strips).sum());
    table.text(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let record = Record::parse("abi=2 module=a.c loads=10/25 stores=3/9 strips=2 later=7 calls=f,g");
        assert_eq!((record.abi, record.module.as_str(), record.strips), (2, "a.c", 2));
        assert_eq!((record.loads, record.stores), ((10, 25), (3, 9)));
        assert_eq!(record.calls, ["f", "g"]);
        assert_eq!(Record::parse("what is this").abi, 0);
    }

    #[test]
    fn counts_are_added_up() {
        let line = |text: &str| Record::parse(text);
        let text = table(&[
            line("abi=2 module=a.c loads=10/25 stores=3/9 strips=2"),
            line("abi=2 module=b.c loads=0/0 stores=1/3"),
        ]);
        let rows: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[1], "a.c 25 10 40.0 9 3 33.3 2");
        assert_eq!(rows[2], "b.c 0 0 - 3 1 33.3 0");
        assert_eq!(rows[3], "in all 25 10 40.0 12 4 33.3 2");
    }

    #[test]
    fn files_that_are_no_objects_are_told_apart() {
        assert_eq!(Content::of(b"BC\xc0\xde...."), Content::Bitcode);
        assert_eq!(Content::of(b"GROUP ( /lib/libc.so.6 )"), Content::Other);
        assert_eq!(Content::of(b""), Content::Other);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Content::of(&own), Content::Unchecked);
        assert!(
            dynamic_symbols(&own, true).iter().any(|name| name == "malloc" || name == "memcpy"),
            "this program takes libc's"
        );
    }
}
