//! Programs whose workers are processes: those for JIAJIA, TreadMarks and Quarks keep their own data in global
//! variables, so that two workers cannot be threads of one process. Where such a program is asked to run on N nodes of
//! T threads, N times T processes do what is meant.
//!
//! The headers of these interfaces mark a program by a note in its ELF file (System V ABI, "Note Section"): owner
//! `Comem`, type 1. A note survives `strip`, and can be read without running the program.

use crate::args::RunArgs;
use crate::program::Program;
use std::ffi::OsStr;
use std::path::Path;

/// The note's owner, with the zero at its end.
const OWNER: &[u8] = b"Comem\0";
/// The note's type: a worker is a process.
const WORKER_IS_A_PROCESS: usize = 1;
/// The type of a program header that leads to notes.
const PT_NOTE: usize = 4;

/// Turns threads into processes where the program wants that. A program that is not on this host, or no ELF file, stays
/// as it is: the library refuses threads that it cannot have.
pub fn spread(args: &RunArgs) -> RunArgs {
    let mut args = args.clone();
    if args.node.threads > 1 && program_is_marked(&args) {
        args.processes = std::mem::replace(&mut args.node.threads, 1);
    }
    args
}

fn program_is_marked(args: &RunArgs) -> bool {
    let Ok(cwd) = std::env::current_dir() else { return false };
    Program::find(&args.command, &cwd, true).is_ok_and(|program| marked(&program.path))
}

fn marked(path: &OsStr) -> bool {
    std::fs::read(Path::new(path)).is_ok_and(|file| has_note(&file).unwrap_or(false))
}

/// Whether a 64-bit ELF file has our note; `None` where the file is not what it should be.
fn has_note(file: &[u8]) -> Option<bool> {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = file.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    if file.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (headers, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    for header in (0..count).map(|index| headers.saturating_add(index * size)) {
        if number(header, 4)? != PT_NOTE {
            continue;
        }
        let (start, bytes) = (number(header + 8, 8)?, number(header + 32, 8)?);
        let align = if number(header + 48, 8)? == 8 { 8 } else { 4 };
        let end = start.checked_add(bytes)?;
        file.get(start..end)?;
        let mut at = start;
        while at.checked_add(12)? <= end {
            let (name, description, kind) = (number(at, 4)?, number(at + 4, 4)?, number(at + 8, 4)?);
            let owner = at + 12;
            if kind == WORKER_IS_A_PROCESS && file.get(owner..owner + name)? == OWNER {
                return Some(true);
            }
            at = (owner + name).next_multiple_of(align).checked_add(description)?.next_multiple_of(align);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one program header, for notes.
    fn file(notes: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        file[0x20] = 64;
        (file[0x36], file[0x38]) = (56, 1);
        (file[64], file[64 + 8], file[64 + 32]) = (PT_NOTE as u8, 120, notes.len() as u8);
        file[64 + 48] = 4;
        file.extend(notes);
        file
    }

    fn note(owner: &[u8], kind: u8, description: &[u8]) -> Vec<u8> {
        let mut note = vec![owner.len() as u8, 0, 0, 0, description.len() as u8, 0, 0, 0, kind, 0, 0, 0];
        note.extend(owner);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(description);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn the_mark_is_found_behind_other_notes() {
        let others = [note(b"GNU\0", 1, &[1; 16]), note(b"Comem\0", 2, &[]), note(b"stapsdt\0", 3, &[7; 5])].concat();
        assert_eq!(has_note(&file(&others)), Some(false));
        assert_eq!(has_note(&file(&[others, note(OWNER, 1, &[])].concat())), Some(true));
    }

    #[test]
    fn what_is_no_program_has_no_mark() {
        assert_eq!(has_note(b"#!/bin/sh\n"), None);
        assert_eq!(has_note(b""), None);
        let whole = file(&note(OWNER, 1, &[]));
        assert!((0..whole.len()).all(|len| has_note(&whole[..len]) != Some(true)), "a file that was cut short");
    }
}
