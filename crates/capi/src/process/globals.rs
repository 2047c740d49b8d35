//! The program's own variables, as they stood at CREATE.
//!
//! The linker script `comem_globals.ld` gathers them on pages of their own. At CREATE of a worker on an idle node, node 0 takes a
//! *version* of them: it looks at the pages that the program has touched (an untouched one is what it was when the program began,
//! here and there, so hundreds of megabytes of zeros cost nothing), stores those that differ from what is stored already in shared
//! memory, and tells the worker where each page stands. The worker's node lets go of its own pages and copies these.
//!
//! So each node's first worker in a round sees the variables as they stood at *its* CREATE, also where the program changes one between two of
//! them. Workers that share a node share its variables, as threads do: while one of them is at work, another CREATE there takes no
//! new version. A stored page is overwritten only while no worker is at work; otherwise a changed page gets another place.

use super::{Process, locked, pointers};
use crate::failure::{Code, Failure, Outcome};
use comem_rt::heap::{Homes, RegionOptions};
use comem_rt::{Comem, NodeId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Pages of the program's variables.
pub const PAGE: usize = 4096;
/// Shared memory for versions is taken by so many bytes, or more where one version needs them.
const STORE_BYTES: usize = 1 << 20;

/// What happens to variables: `COMEM_GLOBALS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Workers begin with copies.
    Copy,
    /// The pages are shared by other means; nothing is to be copied.
    Share,
}

/// Consecutive pages and where they are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Run {
    first: u64,
    count: u64,
    place: u64,
}

/// The program's own variables in this process.
pub struct Variables {
    range: Range<usize>,
    mode: Mode,
    store: Mutex<Store>,
}

/// Shared memory in which versions stand, as node 0 knows it.
#[derive(Default)]
struct Store {
    /// The number of the last version; the one that each node began with, and its table.
    version: u64,
    of_node: BTreeMap<usize, (u64, usize, usize)>,
    /// Where each page stands.
    places: BTreeMap<usize, usize>,
    /// Places that no version of workers at work needs, once none is at work.
    old: Vec<usize>,
    free: Vec<usize>,
    /// What is left of the last region.
    next: usize,
    end: usize,
}

impl Variables {
    /// The variables in a range of whole pages; an empty one is a program without the linker script.
    ///
    /// # Safety
    /// Nothing but the program's own variables is there.
    pub unsafe fn new(range: Range<usize>) -> Variables {
        let mode = if std::env::var("COMEM_GLOBALS").is_ok_and(|m| m == "share") { Mode::Share } else { Mode::Copy };
        Variables { range, mode, store: Mutex::default() }
    }

    /// Makes them shared memory of all nodes, where the job wants that; collective.
    pub fn share_if_wanted(&self, job: &Comem) -> Outcome<()> {
        if self.mode != Mode::Share || job.nodes() == 1 {
            return Ok(());
        }
        if self.range.is_empty() {
            let what = "--globals share: the program's variables are not on pages of their own; link it with comem-cc";
            return Err(Failure::new(Code::Start, what));
        }
        let at = |address| std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: by the contract of `new` these are the program's own variables, and it is not running yet.
        unsafe { job.share_globals(at(self.range.start), at(self.range.end))? };
        Ok(())
    }

    /// The version that a worker on `node` begins with: its number, and where its table stands.
    pub fn version_for(
        &self,
        process: &Process,
        node: usize,
        node_is_idle: bool,
        all_idle: bool,
    ) -> Outcome<(u64, usize, usize)> {
        if self.range.is_empty() {
            return Ok((0, 0, 0));
        }
        if self.mode == Mode::Share {
            if pointers::wanted() {
                // Those that are here are those that main has used last.
                pointers::check(&self.range, &self.touched_or_why()?);
            }
            return Ok((0, 0, 0));
        }
        let mut store = locked(&self.store);
        if !node_is_idle {
            return Ok(store.of_node.get(&node).copied().unwrap_or_default());
        }
        if all_idle {
            let old = std::mem::take(&mut store.old);
            store.free.extend(old);
        }
        let pages = self.touched_or_why()?;
        if pointers::wanted() {
            pointers::check(&self.range, &pages);
        }
        let mut runs: Vec<Run> = Vec::new();
        for page in pages {
            let place = self.keep(process.job, &mut store, page, all_idle)?;
            match runs.last_mut() {
                Some(run)
                    if run.first + run.count == page as u64 && run.place + run.count * PAGE as u64 == place as u64 =>
                {
                    run.count += 1;
                }
                _ => runs.push(Run { first: page as u64, count: 1, place: place as u64 }),
            }
        }
        let table = write_table(process.job, &mut store, &runs)?;
        store.version += 1;
        let version = (store.version, table, runs.len());
        store.of_node.insert(node, version);
        Ok(version)
    }

    /// Sees to it that a page stands in the store as it is now.
    fn keep(&self, job: &Comem, store: &mut Store, page: usize, all_idle: bool) -> Outcome<usize> {
        let from = (self.range.start + page * PAGE) as *const u8;
        let before = store.places.get(&page).copied();
        if let Some(place) = before {
            // SAFETY: both are whole pages; a page of the store is this node's and nobody writes to it meanwhile.
            let same = unsafe { libc::memcmp(from.cast(), place as *const libc::c_void, PAGE) } == 0;
            if same {
                return Ok(place);
            }
        }
        let place = match before {
            Some(place) if all_idle => place,
            _ => take_pages(job, store, 1)?,
        };
        store.old.extend(before.filter(|before| *before != place));
        // SAFETY: both are whole pages, of the program's variables and of the store; no version at work names this place.
        unsafe { std::ptr::copy_nonoverlapping(from, place as *mut u8, PAGE) };
        store.places.insert(page, place);
        Ok(place)
    }

    fn touched_or_why(&self) -> Outcome<Vec<usize>> {
        self.touched().map_err(|e| {
            Failure::new(Code::System, format!("cannot see which of the program's variables were touched: {e}"))
        })
    }

    /// The pages that the program has touched, by their number in the range.
    fn touched(&self) -> std::io::Result<Vec<usize>> {
        const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
        let map = std::fs::File::open("/proc/self/pagemap")?;
        let pages = self.range.len() / PAGE;
        let mut touched = Vec::new();
        let mut buffer = vec![0_u8; 64 << 10];
        let mut at = 0;
        while at < pages {
            let bytes = ((pages - at) * 8).min(buffer.len());
            let part = &mut buffer[..bytes];
            map.read_exact_at(part, ((self.range.start / PAGE + at) * 8) as u64)?;
            let entries = part.as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
            touched.extend(entries.enumerate().filter(|(_, e)| e & PRESENT_OR_SWAPPED != 0).map(|(i, _)| at + i));
            at += bytes / 8;
        }
        Ok(touched)
    }

    /// On a worker's node: makes the variables what they were.
    ///
    /// # Safety
    /// `table` is a table of `runs` runs that node 0 wrote, and no thread of this process uses the program's variables meanwhile.
    pub unsafe fn install(&self, table: usize, runs: usize) {
        // SAFETY: whole pages of the program's own variables: anonymous ones become zero, those of the file what the file says.
        unsafe { libc::madvise(self.range.start as *mut libc::c_void, self.range.len(), libc::MADV_DONTNEED) };
        for index in 0..runs {
            // SAFETY: the table has so many runs; each names pages of the store and as many of the variables.
            unsafe {
                let run = (table as *const Run).add(index).read_volatile();
                let to = (self.range.start + run.first as usize * PAGE) as *mut u8;
                std::ptr::copy_nonoverlapping(run.place as *const u8, to, run.count as usize * PAGE);
            }
        }
    }
}

/// Takes consecutive pages of the store.
fn take_pages(job: &Comem, store: &mut Store, pages: usize) -> Outcome<usize> {
    if let Some(place) = store.free.pop_if(|_| pages == 1) {
        return Ok(place);
    }
    let bytes = pages * PAGE;
    if store.next + bytes > store.end {
        let region = bytes.next_multiple_of(STORE_BYTES);
        let label = "globals at CREATE".to_string();
        let homes = Homes::On(NodeId(0));
        let options = RegionOptions { homes, label, alignment: PAGE, ..RegionOptions::default() };
        let start = job.alloc_at(region, &options, "")? as usize;
        (store.next, store.end) = (start, start + region);
    }
    store.next += bytes;
    Ok(store.next - bytes)
}

fn write_table(job: &Comem, store: &mut Store, runs: &[Run]) -> Outcome<usize> {
    let pages = size_of_val(runs).div_ceil(PAGE).max(1);
    let table = take_pages(job, store, pages)?;
    store.old.extend((0..pages).map(|page| table + page * PAGE));
    // SAFETY: the pages were just taken and are as large as the table.
    unsafe { std::ptr::copy_nonoverlapping(runs.as_ptr(), table as *mut Run, runs.len()) };
    Ok(table)
}
