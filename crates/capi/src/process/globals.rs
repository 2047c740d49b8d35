//! The program's own variables, as they stood at CREATE.
//!
//! The linker script `comem_globals.ld` gathers them on pages of their own. At CREATE of a worker, node 0 takes a
//! *version* of them: it looks at the pages that the program has touched (an untouched one is what it was when the
//! program began, here and there, and so is one of zeros that was zero then, so hundreds of megabytes of zeros cost
//! nothing), stores those that differ from what is stored already in shared memory, and tells the worker where each
//! page stands. The node of the first worker lets go of its own pages and copies these.
//!
//! So each worker begins with the variables as they stood at *its* CREATE, also where the program changes one between
//! two of them. Workers that share a node share its variables, as threads do: while one of them is at work, a further
//! CREATE there brings what `main` has changed since ([`merge`]). A stored page is overwritten only while no worker is
//! at work; otherwise a changed page gets another place.

use super::{Process, locked, merge, pointers};
use crate::failure::{Code, Failure, Outcome};
use crate::job;
use comem_rt::heap::{Home, RegionOptions};
use comem_rt::{Comem, NodeId};
use std::collections::{BTreeMap, BTreeSet};
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

/// The variables as they stood at a CREATE. Number 0 is what they were when the program began.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Version {
    /// Later ones have greater numbers.
    number: u64,
    /// The one that was taken when the node was idle last: who has an older one has nobody at work.
    since_idle: u64,
    /// Where the pages stand: a table of runs, and how many.
    table: usize,
    runs: usize,
}

impl Version {
    /// The later one of two.
    pub fn later(self, other: Version) -> Version {
        if other.number > self.number { other } else { self }
    }

    /// Where each page stands.
    ///
    /// # Safety
    /// Node 0 wrote the table, and has not used its memory for something else since.
    unsafe fn places(&self) -> BTreeMap<usize, usize> {
        // SAFETY: the table has so many runs.
        let run = |index| unsafe { (self.table as *const Run).add(index).read_volatile() };
        let pages =
            |run: Run| (0..run.count as usize).map(move |i| (run.first as usize + i, run.place as usize + i * PAGE));
        (0..self.runs).flat_map(|index| pages(run(index))).collect()
    }
}

/// The program's own variables in this process.
pub struct Variables {
    range: Range<usize>,
    /// What the program's file says of them.
    file: merge::FilePart,
    mode: Mode,
    store: Mutex<Store>,
}

/// Shared memory in which versions stand, as node 0 knows it.
#[derive(Default)]
struct Store {
    /// The number of the last version; the last one of each node, and where its pages stand.
    version: u64,
    of_node: BTreeMap<usize, (Version, Vec<Run>)>,
    /// Where each page stands.
    places: BTreeMap<usize, usize>,
    /// Places that no version of workers at work needs, once none is at work.
    old: Vec<usize>,
    free: Vec<usize>,
    /// Where its regions begin, and what is left of the last one.
    regions: Vec<usize>,
    next: usize,
    end: usize,
}

impl Variables {
    /// The variables in a range of whole pages; one at address 0 is a program without the linker script.
    ///
    /// # Safety
    /// Nothing but the program's own variables is there.
    pub unsafe fn new(range: Range<usize>) -> Variables {
        let mode = if std::env::var("COMEM_GLOBALS").is_ok_and(|m| m == "share") { Mode::Share } else { Mode::Copy };
        Variables { file: merge::FilePart::of(range.start), range, mode, store: Mutex::default() }
    }

    /// Whether the linker has put the program's variables, if it has any, on pages of their own.
    fn are_apart(&self) -> bool {
        self.range.start != 0
    }

    /// Makes them shared memory of all nodes, where the job wants that; collective.
    pub fn share_if_wanted(&self, job: &Comem) -> Outcome<()> {
        if self.mode != Mode::Share || job.nodes() == 1 {
            return Ok(());
        }
        if !self.are_apart() {
            let what = "--globals share: the program's variables are not on pages of their own; link it with comem-cc";
            return Err(Failure::new(Code::Start, what));
        }
        if self.range.is_empty() {
            return Ok(());
        }
        let at = |address| std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: by the contract of `new` these are the program's own variables, and it is not running yet.
        unsafe { job.share_globals(at(self.range.start), at(self.range.end))? };
        Ok(())
    }

    /// Whether a region of shared memory is one in which variables stand for workers.
    pub fn is_store(&self, start: usize) -> bool {
        locked(&self.store).regions.contains(&start)
    }

    /// The version that a worker on `node` begins with.
    pub fn version_for(&self, process: &Process, node: usize, node_is_idle: bool, all_idle: bool) -> Outcome<Version> {
        if !self.are_apart() {
            say_that_variables_stay_behind();
        }
        if self.range.is_empty() {
            return Ok(Version::default());
        }
        if self.mode == Mode::Share {
            if pointers::wanted() {
                // Those that are here are those that main has used last.
                pointers::check(&self.range, &pages_that_are(PRESENT_OR_SWAPPED, &self.range)?);
            }
            return Ok(Version::default());
        }
        let mut store = locked(&self.store);
        if all_idle {
            let old = std::mem::take(&mut store.old);
            store.free.extend(old);
        }
        let runs = self.keep_all(process.job, &mut store, all_idle)?;
        let at_work = store.of_node.get(&node).filter(|_| !node_is_idle);
        if let Some((version, _)) = at_work.filter(|(_, kept)| *kept == runs) {
            return Ok(*version);
        }
        let since_idle = at_work.map(|(version, _)| version.since_idle);
        let table = write_table(process.job, &mut store, &runs)?;
        store.version += 1;
        let number = store.version;
        let version = Version { number, since_idle: since_idle.unwrap_or(number), table, runs: runs.len() };
        store.of_node.insert(node, (version, runs));
        Ok(version)
    }

    /// Sees to it that all pages that the program has touched stand in the store as they are now.
    fn keep_all(&self, job: &Comem, store: &mut Store, all_idle: bool) -> Outcome<Vec<Run>> {
        let pages = pages_that_are(PRESENT_OR_SWAPPED, &self.range)?;
        if pointers::wanted() {
            pointers::check(&self.range, &pages);
        }
        let mut runs: Vec<Run> = Vec::new();
        for page in pages.into_iter().filter(|page| !self.is_as_nobody_touched_it(*page)) {
            let place = self.keep(job, store, page, all_idle)?;
            match runs.last_mut() {
                Some(run)
                    if run.first + run.count == page as u64 && run.place + run.count * PAGE as u64 == place as u64 =>
                {
                    run.count += 1;
                }
                _ => runs.push(Run { first: page as u64, count: 1, place: place as u64 }),
            }
        }
        Ok(runs)
    }

    /// Whether a page that the program has touched holds zeros, and would if it had not: workers find it so without
    /// being told.
    fn is_as_nobody_touched_it(&self, page: usize) -> bool {
        let address = self.range.start + page * PAGE;
        // SAFETY: a whole page of the program's variables, and present; `main` is here and not there.
        self.file.is_zero_at_first(address) && merge::same(unsafe { &*(address as *const merge::Page) }, &[0; PAGE / 8])
    }

    /// Sees to it that a page stands in the store as it is now.
    fn keep(&self, job: &Comem, store: &mut Store, page: usize, all_idle: bool) -> Outcome<usize> {
        let from = (self.range.start + page * PAGE) as *const u8;
        let before = store.places.get(&page).copied();
        if let Some(place) = before {
            // SAFETY: both are whole pages; a page of the store is this node's and nobody writes to it meanwhile.
            let same = unsafe { merge::same(&*from.cast(), &*(place as *const merge::Page)) };
            if same {
                return Ok(place);
            }
        }
        let place = match before {
            Some(place) if all_idle => place,
            _ => take_pages(job, store, 1)?,
        };
        store.old.extend(before.filter(|before| *before != place));
        // SAFETY: both are whole pages, of the program's variables and of the store; no version at work names this
        // place.
        unsafe { std::ptr::copy_nonoverlapping(from, place as *mut u8, PAGE) };
        store.places.insert(page, place);
        Ok(place)
    }

    /// On a worker's node, which has the variables as they were in `before` or as its workers have changed them since:
    /// makes them what they were in `version`.
    ///
    /// # Safety
    /// Node 0 wrote both versions. While nobody is at work, no thread of this process uses the program's variables
    /// meanwhile.
    pub unsafe fn bring(&self, before: &Version, version: &Version) -> Outcome<()> {
        if version.number <= before.number {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        unsafe {
            if before.number < version.since_idle {
                self.install(version);
                Ok(())
            } else {
                self.change(before, version).map_err(|e| {
                    Failure::new(Code::System, format!("cannot see the program's first values in its file: {e}"))
                })
            }
        }
    }

    /// # Safety
    /// Node 0 wrote the version, and no thread of this process uses the program's variables meanwhile.
    unsafe fn install(&self, version: &Version) {
        // SAFETY: whole pages of the program's own variables: anonymous ones become zero, those of the file what the
        // file says.
        unsafe { libc::madvise(self.range.start as *mut libc::c_void, self.range.len(), libc::MADV_DONTNEED) };
        for index in 0..version.runs {
            // SAFETY: the table has so many runs; each names pages of the store and as many of the variables.
            unsafe {
                let run = (version.table as *const Run).add(index).read_volatile();
                let to = (self.range.start + run.first as usize * PAGE) as *mut u8;
                std::ptr::copy_nonoverlapping(run.place as *const u8, to, run.count as usize * PAGE);
            }
        }
    }

    /// Workers are at work here: brings what is different between two versions, but for what they have changed
    /// themselves.
    ///
    /// # Safety
    /// Node 0 wrote both versions.
    unsafe fn change(&self, before: &Version, version: &Version) -> std::io::Result<()> {
        // SAFETY: by this function's contract; what stands in the store stays there while workers are at work.
        let (old, new) = unsafe { (before.places(), version.places()) };
        let pages: BTreeSet<usize> = old.keys().chain(new.keys()).copied().collect();
        for page in pages.into_iter().filter(|page| old.get(page) != new.get(page)) {
            let address = self.range.start + page * PAGE;
            let content = |places: &BTreeMap<usize, usize>| match places.get(&page) {
                // SAFETY: a whole page of the store.
                Some(place) => Ok(unsafe { (*place as *const merge::Page).read_volatile() }),
                None => self.file.first_content(address),
            };
            let (old, new) = (content(&old)?, content(&new)?);
            // SAFETY: a whole page of the program's variables, which nobody reads or writes but by loads and stores.
            merge::change(unsafe { &*(address as *const merge::Now) }, &old, &new);
        }
        Ok(())
    }
}

/// What the kernel says of a page of a process (its documentation, "pagemap").
pub const PRESENT: u64 = 1 << 63;
/// The program has touched the page.
const PRESENT_OR_SWAPPED: u64 = PRESENT | 1 << 62;

/// The pages of a range that are one of these in this process, by their number in the range.
pub fn pages_that_are(bits: u64, range: &Range<usize>) -> Outcome<Vec<usize>> {
    let system =
        |e| Failure::new(Code::System, format!("cannot see which pages of the program's memory were touched: {e}"));
    let map = std::fs::File::open("/proc/self/pagemap").map_err(system)?;
    let pages = range.len() / PAGE;
    let mut touched = Vec::new();
    let mut buffer = vec![0_u8; (pages * 8).min(64 << 10)];
    let mut at = 0;
    while at < pages {
        let bytes = ((pages - at) * 8).min(buffer.len());
        let part = &mut buffer[..bytes];
        map.read_exact_at(part, ((range.start / PAGE + at) * 8) as u64).map_err(system)?;
        let entries = part.as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        touched.extend(entries.enumerate().filter(|(_, e)| e & bits != 0).map(|(i, _)| at + i));
        at += bytes / 8;
    }
    Ok(touched)
}

/// Once: the program was linked without the script. It may have no variables that its workers need, so this is no
/// error.
fn say_that_variables_stay_behind() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let what = "the program's variables are not on pages of their own, so workers on other nodes do not find in them \
                what main has set; link it with comem-cc";
    ONCE.call_once(|| comem_rt::error::say(format_args!("comem: {}: CREATE: {what}", job::name())));
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
        let home = Home::On(NodeId(0));
        let options = RegionOptions { home, label, alignment: PAGE, keeps_pages: true, ..RegionOptions::default() };
        let start = job.alloc_at(region, &options, "")? as usize;
        store.regions.push(start);
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
