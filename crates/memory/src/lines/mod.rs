//! Lines memory: memory whose accesses the program checks itself, kept coherent by units of 64 to 2048 bytes.
//!
//! Each node keeps its lines memory in one memory file with these parts:
//!
//! | part | bytes | holds |
//! |---|---|---|
//! | data | as many as lines memory has | what the program loads and stores |
//! | entries | 2 a line | the tag of each line; at the line's home its directory |
//! | wide words | 8 `wide_words` a line | the directory's wide words; jobs of more than 8 nodes only |
//! | hazards | 64 a slot | the addresses that threads are about to store to |
//! | misses | 64 a seat | the units that threads are about to lock, or have locked |
//!
//! A [`LinesMemory`] is a view of such a file in which nothing ever faults. [`Lines`] is this node's own, which the
//! program sees besides: the data at their address, the entries in the [`Table`]. [`PeerLines`] is another node's on
//! this host. What nodes do to each other's memory is in one piece for each aligned word of 8 bytes.
//!
//! The program's view is closed at first and is opened by *grains*: [`Lines::open_grain`].

mod area;
pub mod barrier;
mod hazards;
mod memory;
mod own;
mod peer;
mod table;

pub use area::HazardArea;
pub use hazards::{HAZARD_SLOT_BYTES, HAZARD_SLOTS, HazardSlots};
pub use memory::LinesMemory;
pub use own::Lines;
pub use peer::PeerLines;
pub use table::{TABLE_ADDRESS, TABLE_BYTES, Table, TableError};

use comem_protocol::coherence::direct::LINE_BYTES;

/// Bytes of lines memory that are opened together; their entries are one page of the table. A region is whole grains.
pub const GRAIN_BYTES: usize = 128 << 10;
/// Lines of a grain.
pub const GRAIN_LINES: usize = GRAIN_BYTES / LINE_BYTES;
/// Threads of a node that can say which unit they are about to lock.
pub const THREAD_SLOTS_MAX: usize = 4096;
/// Bytes of a seat's word, with those that keep it alone in its cache line.
const THREAD_SLOT_BYTES: usize = 64;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 2;

const _: () = assert!(GRAIN_LINES * ENTRY_BYTES == crate::pages::PAGE_BYTES);

/// How large a node's lines memory is, and where; the same on all nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the program sees it.
    pub base: usize,
    /// Bytes of data, whole grains.
    pub bytes: usize,
    /// Wide words of the directory a line ([`comem_protocol::coherence::direct::directory::Layout::wide_words`]).
    pub wide_words: usize,
}

impl Extent {
    /// Lines that it has.
    pub fn lines(&self) -> usize {
        self.bytes / LINE_BYTES
    }

    /// Where the entries begin in the memory file.
    pub fn entries(&self) -> usize {
        self.bytes
    }

    /// Where the wide words begin in the memory file.
    pub fn wide(&self) -> usize {
        self.entries() + self.lines() * ENTRY_BYTES
    }

    fn hazards(&self) -> usize {
        self.wide() + self.lines() * self.wide_words * size_of::<u64>()
    }

    fn misses(&self) -> usize {
        self.hazards() + HAZARD_SLOTS * HAZARD_SLOT_BYTES
    }

    /// Bytes of the whole memory file.
    fn file_bytes(&self) -> usize {
        self.misses() + THREAD_SLOTS_MAX * THREAD_SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::coherence::direct::MAGIC;

    /// A constant of the header that checked code is built with.
    fn defined(name: &str) -> u64 {
        let header = include_str!("abi.h");
        let values = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
        let value = values.filter(|(known, _)| *known == name).map(|(_, value)| value).next();
        let text = value.unwrap_or_else(|| panic!("{name} is not defined")).trim_end_matches(['u', 'l']);
        let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
        parsed.unwrap_or_else(|_| panic!("{name} is {text:?}"))
    }

    #[test]
    fn checked_code_has_the_same_constants() {
        let here = [
            ("COMEM_LINE_BYTES", LINE_BYTES),
            ("COMEM_LINE_SHIFT", LINE_BYTES.trailing_zeros() as usize),
            ("COMEM_GRAIN_BYTES", GRAIN_BYTES),
            ("COMEM_MAGIC", MAGIC as usize),
            ("COMEM_TABLE", TABLE_ADDRESS),
            ("COMEM_ADDRESS_END", TABLE_BYTES / ENTRY_BYTES * LINE_BYTES),
            ("COMEM_HAZARD_LINES_SHIFT", hazards::ADDRESS_BITS as usize),
            ("COMEM_HAZARD_SLOTS", HAZARD_SLOTS),
            ("COMEM_HAZARD_SLOT_BYTES", HAZARD_SLOT_BYTES),
        ];
        for (name, value) in here {
            assert_eq!(defined(name), value as u64, "{name}");
        }
    }
}
