//! What a process takes of the machine: its own memory, and that of the files in memory that it made.
//!
//! A page of such a file counts once here, however often it is mapped; the kernel's VmRSS counts it once for each view
//! through which it was touched.

use super::node::{PAGE_WORDS, at_node_one, word_of};
use crate::node::Task;
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, NodeId, Thread};
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// An allocation of 30 GB, of which each node touches 20 MB.
const LARGE_BYTES: usize = 30_000_000_000;
const TOUCHED_BYTES: usize = 20_000_000;

/// Bytes that a process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Memory of its own (RssAnon).
    pub own: u64,
    /// Files in memory that it made, as far as they have pages.
    pub files: u64,
    /// VmRSS.
    pub resident: u64,
    /// What the kernel needs for its tables of pages (VmPTE).
    pub tables: u64,
}

impl Footprint {
    /// This process, now.
    pub fn now() -> Footprint {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let of = |name: &str| value_of(&status, name).unwrap_or(0);
        Footprint { own: of("RssAnon:"), files: memory_files(), resident: of("VmRSS:"), tables: of("VmPTE:") }
    }

    fn since(&self, before: &Footprint) -> Value {
        json!({
            "own": self.own.saturating_sub(before.own),
            "files": self.files.saturating_sub(before.files),
            "resident": self.resident.saturating_sub(before.resident),
            "tables": self.tables.saturating_sub(before.tables),
        })
    }
}

/// A line such as `VmRSS:  123 kB` of a status file, in bytes.
fn value_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes of the pages of all files in memory that are open here, each file once.
fn memory_files() -> u64 {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let mut sizes = std::collections::BTreeMap::new();
    for path in open.flatten().map(|entry| entry.path()) {
        let name = std::fs::read_link(&path).unwrap_or_default();
        if let (true, Ok(file)) = (name.to_string_lossy().starts_with("/memfd:"), std::fs::metadata(&path)) {
            sizes.insert((file.dev(), file.ino()), file.blocks() * 512);
        }
    }
    sizes.values().sum()
}

/// Node 0 reads memory that is at home on node 1, then writes to all those pages; then both touch their parts of a
/// large allocation, in one piece and scattered.
///
/// # Errors
/// When memory cannot be had.
pub fn side(task: &Task, comem: &Comem, thread: &Thread) -> io::Result<Value> {
    let pages = task.cached;
    let region = at_node_one(comem, pages)?;
    let first = thread.id() == 0;
    if !first {
        (0..pages).for_each(|page| region.set(word_of(page), 1));
    }
    thread.barrier();
    let before = Footprint::now();
    let sum: u64 = if first { (0..pages).map(|page| region.get(word_of(page))).sum() } else { 0 };
    let read = Footprint::now();
    if first {
        (0..pages).for_each(|page| region.set(word_of(page), 2));
    }
    thread.barrier();
    let written = Footprint::now();
    if first && sum != pages as u64 {
        return Err(io::Error::other(format!("the pages' sum is {sum}")));
    }
    let large = json!({
        "in one piece": touch_large(comem, thread, 1)?,
        "every 730th page": touch_large(comem, thread, 730)?,
    });
    Ok(json!({
        "cached": pages * super::bulk::PAGE_BYTES,
        "read": read.since(&before), "written": written.since(&before), "large": large,
    }))
}

/// Allocates 30 GB, half at each node; each node touches 20 MB of its half, every so-manieth page, and the other's
/// first page. What node 0 takes for it.
fn touch_large(comem: &Comem, thread: &Thread, every: usize) -> io::Result<Value> {
    let before = Footprint::now();
    let start = Instant::now();
    let halves = [NodeId(0), NodeId(1)].map(|node| -> io::Result<PageSlice<u64>> {
        let options = RegionOptions { home: Home::On(node), ..RegionOptions::default() };
        comem.page_slice(LARGE_BYTES / 2 / size_of::<u64>(), &options).map_err(io::Error::other)
    });
    let allocated_us = start.elapsed().as_secs_f64() * 1e6;
    let [low, high] = halves;
    let (low, high) = (low?, high?);
    let (mine, other) = if thread.id() == 0 { (low, high) } else { (high, low) };
    let pages = TOUCHED_BYTES / (PAGE_WORDS * size_of::<u64>());
    (0..pages).for_each(|i| mine.set(i * every * PAGE_WORDS, i as u64 + 1));
    thread.barrier();
    if other.get(0) != 1 {
        return Err(io::Error::other("the other node's first page is wrong"));
    }
    thread.barrier();
    let after = Footprint::now();
    for half in [low, high] {
        comem.free(half.as_ptr().cast()).map_err(io::Error::other)?;
    }
    thread.barrier();
    Ok(json!({ "touched": pages * PAGE_WORDS * 8, "takes": after.since(&before), "allocated_us": allocated_us }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_counted() {
        assert_eq!(value_of("Name:\tx\nVmRSS:\t     123 kB\n", "VmRSS:"), Some(123 * 1024));
        assert_eq!(value_of("Name:\tx\n", "VmRSS:"), None);
        let before = Footprint::now();
        let block = std::hint::black_box(vec![1_u8; 32 << 20]);
        let after = Footprint::now();
        assert!(after.own >= before.own + (31 << 20), "{before:?} {after:?}");
        drop(block);
    }
}
