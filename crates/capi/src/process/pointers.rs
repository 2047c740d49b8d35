//! `--check-pointers`: at CREATE, variables of the program and words of shared memory that point to what only node 0
//! has: its private memory, its stack, its arguments, libraries that it has loaded since it began.
//!
//! What looks like a pointer may be a number, so this is asked for, not done always, and says only what it has seen.

use super::globals::{self, PAGE};
use crate::failure::Outcome;
use std::cell::LazyCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Mutex, OnceLock};

/// Reports of one run; beyond, a program has more wrong with it than a list helps.
const REPORTS_MAX: usize = 20;

const MIB: usize = 1 << 20;
/// So many touched pages of shared memory are looked at for each CREATE, which takes some tenths of a second.
const SHARED_PAGES_MAX: usize = 64 * MIB / PAGE;

/// Places that were reported already.
static REPORTED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Where the program's libraries were when it began.
static AT_START: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Notes the libraries of this moment: what `main` loads later is not there on other nodes.
pub fn note_libraries() {
    if wanted() {
        AT_START.get_or_init(|| brought().segments);
    }
}

/// Whether to look: `COMEM_CHECK_POINTERS`.
pub fn wanted() -> bool {
    std::env::var("COMEM_CHECK_POINTERS").is_ok_and(|on| matches!(on.as_str(), "on" | "1" | "true"))
}

/// Memory that only this process has: every private mapping that can be written, but for what the program and its
/// libraries brought with them, which is at the same addresses on every node.
struct Private {
    /// In order, with what they are.
    mappings: Vec<(Range<usize>, &'static str)>,
    /// What was brought, and what came later.
    brought: Vec<Range<usize>>,
    later: Vec<Range<usize>>,
}

impl Private {
    fn of_this_process() -> Private {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let Brought { segments, variables } = brought();
        let was_there = |segment: &Range<usize>| AT_START.get().is_none_or(|first| first.contains(segment));
        let (mut brought, later): (Vec<_>, Vec<_>) = segments.into_iter().partition(was_there);
        brought.extend(variables);
        Private { mappings: maps.lines().filter_map(private_mapping).collect(), brought, later }
    }

    /// What is at an address, if it is such memory.
    fn at(&self, address: usize) -> Option<&'static str> {
        if self.later.iter().any(|range| range.contains(&address)) {
            return Some("a library that was loaded later");
        }
        let behind = self.mappings.partition_point(|(range, _)| range.start <= address);
        let (range, what) = self.mappings.get(behind.checked_sub(1)?)?;
        let private = range.contains(&address) && !self.brought.iter().any(|range| range.contains(&address));
        private.then_some(*what)
    }
}

/// A line of `/proc/self/maps` (proc(5)), if it tells of a private mapping that can be written.
fn private_mapping(line: &str) -> Option<(Range<usize>, &'static str)> {
    let mut fields = line.split_ascii_whitespace();
    let (low, high) = fields.next()?.split_once('-')?;
    let range = usize::from_str_radix(low, 16).ok()?..usize::from_str_radix(high, 16).ok()?;
    let private = fields.next().is_some_and(|access| access.contains('w') && access.ends_with('p'));
    let what = match fields.nth(3) {
        Some("[heap]") => "the private heap",
        Some("[stack]") => "main's stack or arguments",
        _ => "private memory of malloc or mmap",
    };
    private.then_some((range, what))
}

/// The program's and its libraries' own memory, and this thread's variables. The kernel makes one mapping of it and of
/// what `mmap` gave beside it, so it has to be asked for.
#[derive(Default)]
struct Brought {
    segments: Vec<Range<usize>>,
    variables: Vec<Range<usize>>,
}

fn brought() -> Brought {
    let mut found = Brought::default();
    // SAFETY: the callback gets back the lists, which live during the call.
    unsafe { libc::dl_iterate_phdr(Some(add_object), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn add_object(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the linker gives a description of a loaded object; [`brought`] gives its lists.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Brought>()) };
    // SAFETY: the linker's table of this many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        let (start, list) = match header.p_type {
            libc::PT_LOAD => ((info.dlpi_addr + header.p_vaddr) as usize, &mut found.segments),
            libc::PT_TLS => (info.dlpi_tls_data.addr(), &mut found.variables),
            _ => continue,
        };
        list.push(start..start + header.p_memsz as usize);
    }
    0
}

/// What a value points to, if that is memory that only this process has.
pub fn private(value: usize) -> Option<&'static str> {
    if value < PAGE { None } else { Private::of_this_process().at(value) }
}

/// Looks through the touched pages of the variables.
pub fn check(variables: &Range<usize>, pages: &[usize]) {
    let names = LazyCell::new(Symbols::of_this_program);
    let pages = pages.iter().map(|page| variables.start + page * PAGE);
    report(pages, |address| Some(format!("global {}", names.name(address))));
}

/// Looks through what this process has touched of its shared memory, in which these pieces are in use.
pub fn check_shared(pieces: &[Range<usize>]) -> Outcome<()> {
    let mut pages = Vec::new();
    for run in runs_of_pages(pieces) {
        pages.extend(globals::pages_that_are(globals::PRESENT, &run)?.into_iter().map(|page| run.start + page * PAGE));
    }
    static SAID: std::sync::Once = std::sync::Once::new();
    if pages.len() > SHARED_PAGES_MAX {
        let (of, looked_at) = (pages.len() * PAGE / MIB, SHARED_PAGES_MAX * PAGE / MIB);
        SAID.call_once(|| {
            let job = crate::job::name();
            comem_rt::error::say(format_args!(
                "comem: {job}: --check-pointers looks at the first {looked_at} of {of} MiB of shared memory at a CREATE"
            ));
        });
        pages.truncate(SHARED_PAGES_MAX);
    }
    report(pages.into_iter(), |address| {
        let piece = &pieces[pieces.partition_point(|piece| piece.start <= address).checked_sub(1)?];
        let (start, bytes) = (piece.start, piece.len());
        let at = format!("shared memory at {address:#x} ({bytes} bytes from {start:#x}+{})", address - start);
        piece.contains(&address).then_some(at)
    });
    Ok(())
}

/// The pages in which pieces are, which are in the order of their addresses.
fn runs_of_pages(pieces: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for piece in pieces {
        let (start, end) = (piece.start / PAGE * PAGE, piece.end.next_multiple_of(PAGE));
        match runs.last_mut() {
            Some(run) if run.end >= start => run.end = run.end.max(end),
            _ => runs.push(start..end),
        }
    }
    runs
}

/// Tells of pointers in these pages to what only this process has, where `name` has a name for their place.
fn report(pages: impl Iterator<Item = usize>, name: impl Fn(usize) -> Option<String>) {
    let private = Private::of_this_process();
    let mut reported = super::locked(&REPORTED);
    for address in pages.flat_map(|start| (start..start + PAGE).step_by(size_of::<usize>())) {
        // SAFETY: a word of the program's own variables, or of shared memory that is allocated.
        let value = unsafe { (address as *const usize).read_volatile() };
        let Some(what) = private.at(value) else { continue };
        if reported.len() >= REPORTS_MAX || reported.contains(&address) {
            continue;
        }
        let Some(name) = name(address) else { continue };
        reported.push(address);
        comem_rt::error::say(format_args!(
            "comem: {}: {name} points into {what} ({value:#x}): other nodes will not find what it points to; {}",
            crate::job::name(),
            remedy(what),
        ));
    }
}

fn remedy(what: &str) -> &'static str {
    if what.contains("library") {
        "link the program with the library, so that every node has it"
    } else {
        "allocate it with G_MALLOC"
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

/// The objects of an ELF file's symbol table (System V ABI, "Symbol Table"); `None` where the file is not what it
/// should be.
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

#[cfg(test)]
mod tests {
    use super::*;

    static INITIALISED: std::sync::Mutex<usize> = std::sync::Mutex::new(7);
    thread_local! {
        static OWN: std::cell::Cell<usize> = const { std::cell::Cell::new(1) };
    }

    #[test]
    fn private_mappings_are_those_that_are_written_and_not_shared() {
        let what = |line| private_mapping(line).map(|(_, what)| what);
        let heap = "00405000-00426000 rw-p 00000000 00:00 0                                  [heap]";
        assert_eq!(private_mapping(heap), Some((0x405000..0x426000, "the private heap")));
        assert_eq!(what("7ffe0000-7fff0000 rw-p 00000000 00:00 0 [stack]"), Some("main's stack or arguments"));
        assert_eq!(what("7f000000-7f001000 rw-p 00000000 00:00 0 "), Some("private memory of malloc or mmap"));
        assert_eq!(what("7f000000-7f001000 rw-s 00000000 00:01 9 /memfd:comem (deleted)"), None);
        assert_eq!(what("7f000000-7f001000 r--p 00000000 fe:00 9 /usr/lib/locale/locale-archive"), None);
    }

    #[test]
    fn pieces_on_the_same_pages_are_looked_at_once() {
        let pieces = [0x1040..0x1080, 0x1080..0x2000, 0x2000..0x2040, 0x5fc0..0x6040];
        assert_eq!(runs_of_pages(&pieces), [0x1000..0x3000, 0x5000..0x7000]);
    }

    #[test]
    fn what_was_allocated_is_private_and_what_the_program_brought_is_not() {
        let large = vec![1_u8; 32 << 20];
        let private = Private::of_this_process();
        assert_eq!(private.at(large.as_ptr().addr() + (16 << 20)), Some("private memory of malloc or mmap"));
        assert_eq!(private.at((&raw const INITIALISED).addr()), None);
        assert_eq!(private.at(OWN.with(|own| (&raw const *own).addr())), None);
    }
}
