//! `--check-pointers`: at CREATE, variables of the program that point to what only node 0 has: its private heap, its stack, its arguments.
//!
//! What looks like a pointer may be a number, so this is asked for, not done always, and says only what it has seen.

use super::globals::PAGE;
use std::ops::Range;
use std::sync::Mutex;

/// Reports of one run; beyond, a program has more wrong with it than a list helps.
const REPORTS_MAX: usize = 20;

/// Variables that were reported already.
static REPORTED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Whether to look: `COMEM_CHECK_POINTERS`.
pub fn wanted() -> bool {
    std::env::var("COMEM_CHECK_POINTERS").is_ok_and(|on| matches!(on.as_str(), "on" | "1" | "true"))
}

/// Memory of this process alone, with what it is.
fn private() -> Vec<(Range<usize>, &'static str)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let kind = |line: &str| {
        let range = line.split(' ').next()?;
        let (low, high) = range.split_once('-')?;
        let (low, high) = (usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?);
        match line.split_whitespace().nth(5)? {
            "[heap]" => Some((low..high, "the private heap")),
            "[stack]" => Some((low..high, "main's stack or arguments")),
            _ => None,
        }
    };
    maps.lines().filter_map(kind).collect()
}

/// Looks through the touched pages of the variables.
pub fn check(variables: &Range<usize>, pages: &[usize]) {
    let private = private();
    let mut reported = super::locked(&REPORTED);
    let mut names = None;
    for page in pages {
        let start = variables.start + page * PAGE;
        for address in (start..start + PAGE).step_by(size_of::<usize>()) {
            // SAFETY: a word of the program's own variables.
            let value = unsafe { (address as *const usize).read_volatile() };
            let Some((_, what)) = private.iter().find(|(range, _)| range.contains(&value)) else { continue };
            if reported.len() >= REPORTS_MAX || reported.contains(&address) {
                continue;
            }
            reported.push(address);
            let names = names.get_or_insert_with(Symbols::of_this_program);
            eprintln!(
                "comem: {}: global {} points into {what} ({value:#x}): other nodes will not find what it points to; allocate it with \
                 G_MALLOC",
                crate::job::name(),
                names.name(address),
            );
        }
    }
}

/// The names of the program's variables, from the symbol table of its file.
struct Symbols(Vec<(Range<usize>, String)>);

impl Symbols {
    fn of_this_program() -> Symbols {
        let file = std::fs::read("/proc/self/exe").unwrap_or_default();
        Symbols(symbols(&file).unwrap_or_default())
    }

    /// `at 0x404040 (table+16)`, or without a name where there is none.
    fn name(&self, address: usize) -> String {
        match self.0.iter().find(|(range, _)| range.contains(&address)) {
            Some((range, name)) if address == range.start => format!("at {address:#x} ({name})"),
            Some((range, name)) => format!("at {address:#x} ({name}+{})", address - range.start),
            None => format!("at {address:#x}"),
        }
    }
}

/// The objects of an ELF file's symbol table (System V ABI, "Symbol Table"); `None` where the file is not what it should be.
fn symbols(file: &[u8]) -> Option<Vec<(Range<usize>, String)>> {
    const OBJECT: u8 = 1;
    const SYMBOL_TABLE: usize = 2;
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = file.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    let (sections, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
    let section = |index: usize| sections + index * size;
    let table = (0..count).find(|index| number(section(*index) + 4, 4) == Some(SYMBOL_TABLE)).map(section)?;
    let strings = number(section(number(table + 0x28, 4)?) + 0x18, 8)?;
    let (start, bytes) = (number(table + 0x18, 8)?, number(table + 0x20, 8)?);
    let mut found = Vec::new();
    for at in (start..start.checked_add(bytes)?).step_by(24) {
        let (name, kind, value, len) =
            (number(at, 4)?, number(at + 4, 1)? as u8, number(at + 8, 8)?, number(at + 16, 8)?);
        if kind & 15 == OBJECT && len > 0 {
            let name = file.get(strings + name..)?.split(|byte| *byte == 0).next()?;
            found.push((value..value.saturating_add(len), String::from_utf8_lossy(name).into_owned()));
        }
    }
    Some(found)
}
