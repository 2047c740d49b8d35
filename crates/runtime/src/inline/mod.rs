//! The detector `inline`: programs whose own code checks its accesses to shared memory.
//!
//! `comem-cc --inline` puts a check behind each load and around each store. A check that misses calls one of the
//! functions here ([`calls`]). They find the region and the unit, and have the region's engine bring the unit.
//!
//! *Lines memory* is the part of the heap that these checks watch: it is kept coherent by units of 64 to 2048 bytes.
//! An invalid unit is full of [`MAGIC`](comem_protocol::coherence::direct::MAGIC). Each line of 64 bytes has an entry,
//! which is 0 where this node may store.
//!
//! | file | does |
//! |---|---|
//! | [`ahead`] | neighbouring units that are brought side by side |
//! | [`calls`] | the functions that checked code calls |
//! | [`hazards`] | which modules have checks, and each thread's hazard |
//! | [`plain`] | atomic operations on memory at hand |
//! | [`objects`] | shared objects under `direct`, whose accesses the library checks |
//! | [`units`] | the units of a region under `msi` |
//! | [`msi`] | what `msi` does to them |

mod ahead;
pub mod calls;
pub(crate) mod hazards;
pub(crate) mod msi;
pub(crate) mod objects;
mod plain;
pub(crate) mod units;

use crate::counters::{Count, Counters};
use crate::direct::locked;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::shared::Shared;
use crate::shared::fault::{in_some_place, node_of_this_process};
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::lines::{Extent, GRAIN_BYTES, HazardArea, Lines, Table};
use comem_memory::pages::fault::{Access, Fault, Verdict, end_in_the_middle};
use comem_protocol::coherence::direct::directory::Layout;
use comem_protocol::coherence::direct::{LINE_BYTES, Want};
use comem_protocol::coherence::pages::region::{GRAIN_PAGES, Unit};
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo, engine};
use comem_protocol::ids::NodeId;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use units::LineCosts;

const _: () = assert!(GRAIN_PAGES as usize * PAGE_BYTES == GRAIN_BYTES);

/// A unit of lines memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineUnit {
    /// Its number within its region.
    pub(crate) index: u64,
    /// The number of its first line within lines memory.
    pub(crate) line: u64,
    /// How many lines it has: a power of two.
    pub(crate) lines: u32,
    /// The unit's home.
    pub(crate) home: NodeId,
}

/// What keeps units of lines memory coherent.
pub(crate) trait LineEngine {
    /// Makes `access` on this node's memory while the unit is valid here ([`Want::Load`]), or while this node holds it
    /// alone ([`Want::Store`]). [`Want::Own`] and [`Want::OwnBiased`] access nothing.
    ///
    /// `access` gets the address of the unit's first byte in memory that may be read and written. It may run with the
    /// unit locked, so it touches that unit and private memory only. It runs once. The unit's grain is open.
    ///
    /// # Errors
    /// When the job is lost.
    fn unit_access(
        &self,
        thread: &Thread,
        known: &RegionState,
        unit: LineUnit,
        want: Want,
        access: &mut dyn FnMut(*mut u8),
    ) -> Result<()>;

    /// Brings units of one region that the thread may miss soon, all different, without an access on them. What would
    /// have to wait for another thread is left out, and an engine may leave out all. The units' grains are open.
    ///
    /// # Errors
    /// When the job is lost.
    fn units_ahead(&self, _: &Thread, _: &RegionState, _: &[LineUnit], _: Want) -> Result<()> {
        Ok(())
    }
}

/// The engine of a region of lines memory.
fn engine_of(known: &RegionState) -> &'static dyn LineEngine {
    if known.region.engine.is_one_sided() { &crate::direct::engine::Direct } else { &msi::ByLines }
}

/// Where the program sees lines memory; 0 and 0 where it has none.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Whether any of these addresses is in lines memory.
fn touches_lines(addresses: Range<usize>) -> bool {
    addresses.start < END.load(Ordering::Relaxed) && START.load(Ordering::Relaxed) < addresses.end
}

fn lines_end() -> usize {
    END.load(Ordering::Relaxed)
}

/// The first line of lines memory, as a number of the address space, that a range has, and the memory.
fn lines_of(range: &Range<usize>) -> Option<(usize, &'static Lines)> {
    if range.is_empty() || !touches_lines(range.clone()) {
        return None;
    }
    let lines = node_of_this_process()?.shared()?.views.as_ref()?.lines.as_ref()?;
    Some((range.start.max(lines.extent().base) / LINE_BYTES, lines))
}

/// Makes `access` on bytes of lines memory if they lie in a locked unit that this node holds alone; whether it did.
fn on_locked(address: usize, bytes: usize, access: impl FnOnce(*mut u8)) -> bool {
    let Some(node) = node_of_this_process().filter(|node| node.reach.changes_entries()) else { return false };
    let Some(shared) = node.shared() else { return false };
    let Some(lines) = shared.views.as_ref().and_then(|views| views.lines.as_ref()) else { return false };
    let count = |add: &dyn Fn(&Counters)| _ = crate::seated().inspect(|thread| add(thread.counters()));
    if IN_A_CALL.replace(true) {
        // In the midst of another call: whoever goes on to bring the unit finds that.
        return false;
    }
    let is_done = locked::access(lines, shared.me, address, bytes, count, access);
    IN_A_CALL.set(false);
    is_done
}

/// Ends the node, or the process if it is none yet.
fn end_for(error: &Error) -> ! {
    match node_of_this_process() {
        Some(node) => node.end_for(error),
        None => {
            crate::error::say(format_args!("comem: {error}"));
            std::process::exit(error.exit_code())
        }
    }
}

thread_local! {
    /// Whether this thread is in the midst of a call.
    static IN_A_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a step with the calling thread's place; what cannot be done ends the node.
fn with_thread(step: impl FnOnce(&Thread, &Shared, &Lines) -> Result<()>) {
    let Some(node) = node_of_this_process() else { return };
    let Some(shared) = node.shared() else { return };
    let Some(lines) = shared.views.as_ref().and_then(|views| views.lines.as_ref()) else { return };
    let step = |thread: &Thread| node.life.goes_on().and_then(|()| step(thread, shared, lines));
    if IN_A_CALL.replace(true) {
        // A signal's handler waits for a unit that its own thread may have in hand.
        end_in_the_middle();
    }
    let result = match crate::seated() {
        Some(thread) => step(&thread),
        None => in_some_place(node, step),
    };
    IN_A_CALL.set(false);
    if let Err(error) = result {
        node.end_for(&error);
    }
}

/// Counts something for a thread and for a region.
fn counted<'a>(
    thread: &'a Thread,
    known: &'a RegionState,
    which: impl FnOnce(&'a Counters, &'a LineCosts) -> (&'a Count, &'a AtomicU64),
) {
    let (of_thread, of_region) = which(thread.counters(), &known.line_costs);
    of_thread.add(1);
    of_region.fetch_add(1, Ordering::Relaxed);
}

/// Makes lines memory of so many bytes at this address. `has_barrier`: all nodes have barriers on one another's
/// threads.
///
/// # Errors
/// When the system refuses.
pub(crate) fn make_lines(base: usize, bytes: usize, nodes: usize, has_barrier: bool) -> Result<Lines> {
    // Code with checks has mapped it already.
    Table::map().map_err(|error| Error::Start(format!("the engine direct and the detector inline: {error}")))?;
    // The home plays no part in how many words there are.
    let wide_words = Layout { home: NodeId(0), nodes }.wide_words();
    let lines = Lines::new(Extent { base, bytes, wide_words }, has_barrier);
    let lines = lines.map_err(Error::system("cannot make memory whose accesses are checked in line"))?;
    let area = HazardArea::of_process().and_then(|area| area.join(&lines));
    area.map_err(Error::system("cannot share the hazards of checked stores"))?;
    START.store(base, Ordering::Release);
    END.store(base + bytes, Ordering::Release);
    Ok(lines)
}

/// Refuses a job whose memory the program's code is to check if that has no checks. Under the engine `direct` the
/// program may do with shared objects: [`refuse_unchecked_memory`] tells it when it allocates memory.
pub(crate) fn refuse_unchecked(config: &crate::config::Config) -> Result<()> {
    if !config.checks_code || hazards::is_checked() {
        return Ok(());
    }
    Err(Error::Start(needs_checks(config)))
}

/// Refuses memory of lines that the program uses by plain loads and stores, if its code has no checks.
pub(crate) fn refuse_unchecked_memory(config: &crate::config::Config) -> Result<()> {
    if hazards::is_checked() {
        return Ok(());
    }
    Err(Error::Start(needs_checks(config)))
}

fn needs_checks(config: &crate::config::Config) -> String {
    let (asked, objects) = match config.page_engine.keeps_pages() {
        false => (format!("memory under the engine {}", config.page_engine), "; only shared objects need none"),
        true => ("the detector inline".to_string(), ""),
    };
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_name());
    let program = name.map_or("this one".into(), |name| name.to_string_lossy());
    format!(
        "{asked} needs a program whose code checks its own accesses, and {program} does not{objects}: build it with \
         comem-cc --inline or comem-cxx --inline (C and C++), or run it on pages, as programs in Fortran, Python and \
         Rust are: --engine {}, without --detector inline",
        engine::names_of_pages("or")
    )
}

impl Shared {
    /// The unit of a region of lines memory around an address; `None` for other regions.
    pub(crate) fn line_unit(&self, known: &RegionState, address: usize) -> Option<LineUnit> {
        let Unit::Bytes(unit_bytes) = known.region.unit else { return None };
        let lines = self.views.as_ref()?.lines.as_ref()?;
        let start = self.address_of(known.region.first);
        let offset = address.checked_sub(start)?;
        let index = (offset / unit_bytes as usize) as u64;
        let grain = known.region.first + (offset / GRAIN_BYTES) as PageNo * GRAIN_PAGES;
        Some(LineUnit {
            index,
            line: ((start - lines.extent().base) / LINE_BYTES) as u64
                + index * u64::from(unit_bytes) / LINE_BYTES as u64,
            lines: unit_bytes / LINE_BYTES as u32,
            home: known.region.home_of(grain, self.nodes),
        })
    }

    /// Lets the program into the grain with this address of a region.
    fn open_grain_at(&self, lines: &Lines, known: &RegionState, address: usize) -> Result<()> {
        let Some(grain) = lines.grain_at(address) else { return Ok(()) };
        if lines.is_open(grain) {
            return Ok(());
        }
        let first = self.address_of(known.region.first);
        let page = known.region.first + ((address - first) / GRAIN_BYTES) as PageNo * GRAIN_PAGES;
        let is_home = known.region.home_of(page, self.nodes) == self.me;
        let opened = lines.open_grain(grain, is_home);
        opened.map_err(Error::system("cannot open memory whose accesses are checked in line"))?;
        if let (true, Unit::Bytes(bytes)) = (known.region.engine.is_one_sided(), known.region.unit) {
            lines.set_unit_lines(grain, bytes as usize / LINE_BYTES);
        }
        Ok(())
    }

    /// Takes freed pages of lines memory from the program.
    pub(crate) fn close_lines(&self, pages: &Range<PageNo>) {
        let Some(lines) = self.views.as_ref().and_then(|views| views.lines.as_ref()) else { return };
        let grain = |page: PageNo| (self.base + page as usize * PAGE_BYTES - lines.extent().base) / GRAIN_BYTES;
        if let Err(error) = lines.close_grains(grain(pages.start)..grain(pages.end)) {
            crate::error::say(format_args!("comem: cannot give freed memory back: {error}; the node ends"));
            std::process::abort();
        }
    }

    /// Fills a block with zeros before it is handed out again.
    ///
    /// # Safety
    /// The block is in an allocated region and belongs to nobody else.
    pub(crate) unsafe fn clear(&self, address: usize, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { calls::set(std::ptr::with_exposed_provenance_mut(address), 0, bytes) };
    }

    /// Brings the part of a range here that lies in the region with its first byte, if that is lines memory; gives
    /// where it ends.
    ///
    /// # Errors
    /// When nothing is allocated there.
    pub(crate) fn touch_lines(&self, start: usize, end: usize, write: bool) -> Result<Option<usize>> {
        let nobodys = || Error::NotAllocated {
            address: start,
            sentence: format!("{start:#x} is in no allocation of the shared heap"),
        };
        if !touches_lines(start..start.saturating_add(1)) {
            return Ok(None);
        }
        let known = self.page_of(start).and_then(|page| self.table.find(page)).filter(|known| !known.is_freed());
        let known = known.ok_or_else(nobodys)?;
        let end = end.min(self.address_of(known.region.first) + known.region.pages as usize * PAGE_BYTES);
        if write {
            calls::own(std::ptr::with_exposed_provenance(start), end - start);
        } else {
            calls::bring(start..end);
        }
        Ok(Some(end))
    }

    /// A touch of closed lines memory, or of its part of the table: opens the grain if it is allocated. `None` where
    /// the fault is about something else.
    pub(crate) fn open_touched(&self, node: &Arc<Node>, fault: &Fault) -> Option<Verdict> {
        let lines = self.views.as_ref()?.lines.as_ref()?;
        let grain = lines.grain_at(fault.address)?;
        let grain_start = lines.extent().base + grain * GRAIN_BYTES;
        let is_entry = !touches_lines(fault.address..fault.address + 1);
        let address = if is_entry { grain_start + self.entry_offset(fault.address) } else { fault.address };
        let page = self.page_of(address)?;
        let Some(known) = self.table.find(page).filter(|known| !known.is_freed()) else {
            let access = if is_entry { Access::Write } else { fault.access };
            self.say_nobodys(node, address, page, access);
            return Some(Verdict::NotOurs);
        };
        if lines.is_open(grain) && !Lines::is_mapped(fault.address) {
            crate::shared::fault::tell_unmapped(address);
            return Some(Verdict::NotOurs);
        }
        match self.open_grain_at(lines, &known, address) {
            Ok(()) => Some(Verdict::Retry),
            Err(error) => node.end_for(&error),
        }
    }

    /// Where in its grain the line begins whose entry was touched.
    fn entry_offset(&self, entry: usize) -> usize {
        entry % PAGE_BYTES / size_of::<u16>() * LINE_BYTES
    }
}
