//! The names of the program's variables, from the symbol table in its own file, for reports and errors. Slow: for the
//! end of a job.

use std::ops::Range;

/// Variables by address. A program whose symbols were stripped has none.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// In the order of their addresses.
    variables: Vec<(Range<usize>, String)>,
}

/// A number of `N` bytes at an offset.
fn number<const N: usize>(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(N)?)?;
    bytes.iter().rev().try_fold(0_usize, |n, byte| Some(n.checked_mul(256)? + usize::from(*byte)))
}

/// A section of an ELF file: its kind, the section it belongs with, and its bytes.
struct Section<'a> {
    kind: usize,
    link: usize,
    bytes: &'a [u8],
}

fn sections(file: &[u8]) -> Option<Vec<Section<'_>>> {
    let is_elf_64_little = file.starts_with(b"\x7fELF\x02\x01");
    let (table, size, count) = (number::<8>(file, 40)?, number::<2>(file, 58)?, number::<2>(file, 60)?);
    let one = |index: usize| {
        let at = table.checked_add(index * size)?;
        let (kind, link) = (number::<4>(file, at + 4)?, number::<4>(file, at + 40)?);
        let (from, len) = (number::<8>(file, at + 24)?, number::<8>(file, at + 32)?);
        // What is zero at first takes no bytes of the file.
        const NOBITS: usize = 8;
        let bytes = if kind == NOBITS { &[] } else { file.get(from..from.checked_add(len)?)? };
        Some(Section { kind, link, bytes })
    };
    if is_elf_64_little { (0..count).map(one).collect() } else { None }
}

impl Symbols {
    /// Those of the program that runs; none where its file cannot be read or is no ELF file with symbols at fixed
    /// addresses.
    pub(crate) fn of_this_program() -> Symbols {
        std::fs::read("/proc/self/exe").ok().and_then(|file| Symbols::parse(&file)).unwrap_or_default()
    }

    fn parse(file: &[u8]) -> Option<Symbols> {
        const SYMTAB: usize = 2;
        const OBJECT: u8 = 1;
        let sections = sections(file)?;
        let table = sections.iter().find(|section| section.kind == SYMTAB)?;
        let names = sections.get(table.link)?.bytes;
        let mut variables = Vec::new();
        for entry in table.bytes.as_chunks::<24>().0.iter().filter(|entry| entry[4] & 15 == OBJECT) {
            let (start, size) = (number::<8>(entry, 8)?, number::<8>(entry, 16)?);
            let name = names.get(number::<4>(entry, 0)?..)?.split(|byte| *byte == 0).next()?;
            if size > 0 {
                variables.push((start..start.checked_add(size)?, String::from_utf8_lossy(name).into_owned()));
            }
        }
        variables.sort_by_key(|(range, _)| range.start);
        Some(Symbols { variables })
    }

    /// The variables that have bytes in the range, in order.
    pub(crate) fn within(&self, range: &Range<usize>) -> impl Iterator<Item = &str> {
        let meets = |of: &Range<usize>| of.start < range.end && of.end > range.start;
        self.variables.iter().filter(move |(of, _)| meets(of)).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one variable, `grid`, of 8 bytes at 0x4000, and a function.
    fn file() -> Vec<u8> {
        let mut file = vec![0; 64 + 3 * 64 + 48 + 11];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let put = |file: &mut Vec<u8>, at: usize, n: u64| file[at..at + 8].copy_from_slice(&n.to_le_bytes());
        put(&mut file, 40, 64);
        file[58..62].copy_from_slice(&[64, 0, 3, 0]);
        for (section, kind, link, from, len) in [(1, 2, 2, 256, 48), (2, 3, 0, 304, 11)] {
            let at = 64 + section * 64;
            (file[at + 4], file[at + 40]) = (kind, link);
            put(&mut file, at + 24, from);
            put(&mut file, at + 32, len);
        }
        for (symbol, name, kind, address) in [(0, 1, 1, 0x4000), (1, 6, 2, 0x3000)] {
            let at = 256 + symbol * 24;
            (file[at], file[at + 4]) = (name, kind);
            put(&mut file, at + 8, address);
            put(&mut file, at + 16, 8);
        }
        file[304..].copy_from_slice(b"\0grid\0main\0");
        file
    }

    #[test]
    fn a_variable_is_found_by_any_of_its_bytes() {
        let symbols = Symbols::parse(&file()).unwrap();
        let found = |range: Range<usize>| symbols.within(&range).collect::<Vec<_>>();
        assert_eq!(found(0x4007..0x5000), ["grid"]);
        assert_eq!(found(0x4008..0x5000), [""; 0]);
        assert_eq!(found(0x3000..0x4000), [""; 0], "a function is no variable");
    }

    #[test]
    fn files_that_end_anywhere_have_no_symbols() {
        let whole = file();
        (0..whole.len() - 1).for_each(|len| assert!(Symbols::parse(&whole[..len]).is_none(), "{len} bytes"));
        assert!(Symbols::parse(b"#!/bin/sh\necho hello, this is a script and no program\n#----------").is_none());
    }
}
