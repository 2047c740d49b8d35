//! The table of entries: 2 bytes for each line of the address space, so that the check of a store is one instruction.

use super::ENTRY_BYTES;
use crate::pages::sys::{self, View};
use comem_protocol::coherence::direct::LINE_BYTES;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Mutex;

/// Where the table begins: the largest displacement that an instruction can add, so that the table does not collide
/// with programs at low addresses.
pub const TABLE_ADDRESS: usize = 0x7fff_0000;
/// Addresses below 2^47 have entries.
const COVERED_BYTES: usize = 1 << 47;
/// Bytes of the table. They cost nothing until they are touched, and private memory's are only ever read.
pub const TABLE_BYTES: usize = COVERED_BYTES / LINE_BYTES * ENTRY_BYTES;

/// The table of this process. Entries of private memory are 0, which says that a store may go ahead.
#[derive(Debug)]
pub struct Table {
    /// Nobody else can make one.
    _private: (),
}

/// The table could not be mapped.
#[derive(Debug)]
pub struct TableError {
    /// What the system refused.
    pub error: io::Error,
    /// Which limit is the reason, and what to do, if that is known.
    pub advice: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableError { error, advice } = self;
        write!(f, "the table of entries (4 TiB of addresses, no memory) cannot be mapped: {error}{advice}")
    }
}

impl std::error::Error for TableError {}

static TABLE: Table = Table { _private: () };
static IS_MAPPED: Mutex<bool> = Mutex::new(false);

impl Table {
    /// The process's table, which is mapped if it is not yet. It stays mapped for good.
    ///
    /// # Errors
    /// When the system refuses to map it.
    pub fn map() -> Result<&'static Table, TableError> {
        let mut is_mapped = IS_MAPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !*is_mapped {
            let table = View::new(Some(TABLE_ADDRESS), TABLE_BYTES, sys::BOTH, None)
                .map_err(|error| TableError { advice: advice(&error, AddressLimits::now()), error })?;
            // Private memory's entries are only read: a huge page of zeros stands for many pages of zeros, and costs
            // no memory either. Its failure costs nothing.
            let _ = table.advise(0, TABLE_BYTES, libc::MADV_HUGEPAGE);
            std::mem::forget(table);
            *is_mapped = true;
        }
        Ok(&TABLE)
    }

    /// The addresses of the entries of a range of addresses, both whole grains.
    pub fn entries(addresses: Range<usize>) -> Range<usize> {
        let entry = |address: usize| TABLE_ADDRESS + address / LINE_BYTES * ENTRY_BYTES;
        entry(addresses.start)..entry(addresses.end)
    }

    /// The first byte of the line whose entry lies at this address; `None` outside the table.
    pub fn line_of(entry: usize) -> Option<usize> {
        let offset = entry.checked_sub(TABLE_ADDRESS).filter(|offset| *offset < TABLE_BYTES)?;
        Some(offset / ENTRY_BYTES * LINE_BYTES)
    }
}

/// What bounds how many addresses the process may map.
struct AddressLimits {
    /// Bytes (`ulimit -v` counts KiB); `RLIM_INFINITY` for any.
    addresses: u64,
    /// `vm.overcommit_memory`.
    overcommit: String,
}

impl AddressLimits {
    fn now() -> AddressLimits {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call fills the record, which is ours.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
        AddressLimits { addresses: limit.rlim_cur, overcommit: overcommit.trim().to_string() }
    }
}

/// What a refusal comes from.
fn advice(error: &io::Error, limits: AddressLimits) -> String {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let end = TABLE_ADDRESS + TABLE_BYTES;
        return format!("; something of the program lies between {TABLE_ADDRESS:#x} and {end:#x}");
    }
    if limits.addresses != libc::RLIM_INFINITY {
        let limit = limits.addresses / 1024;
        return format!("; RLIMIT_AS permits {limit} KiB of addresses: raise it (ulimit -v unlimited)");
    }
    if limits.overcommit == "2" {
        let what = "the host promises no more memory than it has";
        return format!("; {what} (vm.overcommit_memory=2): set vm.overcommit_memory to 0 or 1");
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_passes_the_check_of_a_store() {
        Table::map().expect("a table");
        Table::map().expect("it is there");
        let (on_heap, on_stack) = (Box::new(7_u64), 8_u64);
        for address in [(&raw const *on_heap).addr(), (&raw const on_stack).addr(), 0x40_0000, COVERED_BYTES - 1] {
            let entry = Table::entries(address..address).start;
            // SAFETY: an aligned entry of the table, which stays mapped.
            let entry_value = unsafe { std::ptr::with_exposed_provenance::<u16>(entry).read_volatile() };
            assert_eq!((entry_value, Table::line_of(entry)), (0, Some(address / 64 * 64)));
        }
        assert_eq!(Table::line_of(TABLE_ADDRESS + TABLE_BYTES), None);
        assert_eq!(Table::line_of(TABLE_ADDRESS - 1), None);
    }

    #[test]
    fn a_refusal_names_the_limit() {
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let limits = |addresses, overcommit: &str| AddressLimits { addresses, overcommit: overcommit.to_string() };
        let is_told = |told: String, words: &[&str]| words.iter().all(|word| told.contains(word));
        assert!(is_told(advice(&no_memory(), limits(1 << 30, "0")), &["RLIMIT_AS", "1048576 KiB", "ulimit -v"]));
        assert!(is_told(advice(&no_memory(), limits(libc::RLIM_INFINITY, "2")), &["vm.overcommit_memory=2"]));
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        assert!(is_told(advice(&taken, limits(libc::RLIM_INFINITY, "0")), &["0x7fff0000"]));
        assert_eq!(advice(&no_memory(), limits(libc::RLIM_INFINITY, "1")), "");
    }
}
