//! A page fault, from the signal to the reply and back.
//!
//! The signal arrives in the thread that made the access. It finds region and chunk, steps the chunk under its lock,
//! sends its own request, waits in its own socket, and returns to try the access again. Nobody relays anything: a
//! wake-up costs more than the trip.

pub(in crate::shared) mod acquire_prefetch;
pub(in crate::shared) mod awaited;

use crate::Comem;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::inline::hazards;
use crate::node::{Node, Waiting};
use crate::path_counts;
use crate::shared::consistency::serve::written_though_read_only;
use crate::shared::heap::table::RegionState;
use crate::shared::{Shared, Views};
use crate::thread::Thread;
use comem_memory::pages::Detector;
use comem_memory::pages::fault::{self, Verdict};
use comem_protocol::coherence::pages::kept_diffs::Ask;
use comem_protocol::coherence::pages::node::fault::{Ahead, Faulted, Fetching, begin, premap, run_ahead};
use comem_protocol::coherence::pages::page_table::{PageTable, PrefetchPlan};
use comem_protocol::coherence::pages::policy::stride_prefetch::{Event, Query};
use comem_protocol::coherence::pages::policy::{Predictor, lock_working_set};
use comem_protocol::coherence::pages::region::Part;
use comem_protocol::coherence::pages::wire::Fetch;
use comem_protocol::coherence::pages::{Access, PAGE_BYTES, PageNo};
use comem_protocol::ids::NodeId;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// A thread that is woken and not told that its page has come looks whether it has, once in so many times.
const LOOK_EVERY: u32 = 16;

/// The node whose heap faults; there is one in a process.
static NODE: OnceLock<Arc<Node>> = OnceLock::new();

/// The node whose heap is this process's, if it is one of several.
pub(crate) fn node_of_this_process() -> Option<&'static Arc<Node>> {
    NODE.get()
}

/// Makes faults on the node's heap its business.
pub(crate) fn install(node: &Arc<Node>) -> Result<()> {
    if NODE.set(node.clone()).is_err() {
        return Err(Error::StartedAlready);
    }
    fault::introduce(format!("comem: {}", node.name_of(node.me())));
    fault::on_no_memory(tell_no_memory);
    // What it needs is found before a fault asks.
    comem_net::threads::is_one_beside_ours();
    fault::install(on_fault).map_err(Error::system("cannot install the handler of page faults"))
}

/// The node whose heap pointers may have been meant by accesses elsewhere.
static GUESSES: OnceLock<Arc<Node>> = OnceLock::new();

/// Has what can be guessed said of an access that ends the process, also in a job of one node, which has no faults.
pub(crate) fn guess_at_crashes(node: &Arc<Node>) -> Result<()> {
    if GUESSES.set(node.clone()).is_ok() {
        fault::introduce(format!("comem: {}", node.name_of(node.me())));
    }
    fault::on_crash(guess).map_err(Error::system("cannot install a handler of crashes"))
}

/// Whether an address is one that 32 bits of a pointer make: by themselves, or with their sign.
fn is_cut(address: usize) -> bool {
    address as u32 as usize == address || address as i32 as isize as usize == address
}

/// A function without a prototype gives an `int`, in old code and in Python's ctypes: of a pointer that goes through
/// it the lower half is left.
fn guess(address: usize, out: &mut dyn std::fmt::Write) {
    let Some(shared) = GUESSES.get().and_then(|node| node.shared()).filter(|_| is_cut(address)) else { return };
    let found = shared.table.with_low_half(address as u32, |page| shared.address_of(page));
    let Some((known, meant)) = found else { return };
    let over = meant - shared.address_of(known.region.first);
    // Where nothing of the kind is likely, a small address is a null pointer: to a field, or an element.
    if address < PAGE_BYTES && over >= PAGE_BYTES || known.region.bytes > u64::from(u32::MAX) {
        return;
    }
    // The first region of all may begin where the lower half is 0.
    let null = if address < PAGE_BYTES { "a null pointer was followed, or one that was cut: " } else { "" };
    let _ = write!(out, "{null}address {address:#x} looks like the lower half of shared address {meant:#x}, ");
    let _ = write!(out, "{over} bytes into ");
    known.write_name(out);
    let _ = write!(
        out,
        ": a pointer was cut to 32 bits; a function without a prototype does that (include its header, and compile \
         with -Wimplicit-function-declaration), so does a variable of type int, and in Python's ctypes a function \
         without a restype"
    );
}

/// Where the heap is whose faults come here, if there is one.
pub(crate) fn heap_of_this_process() -> Option<Range<usize>> {
    let shared = NODE.get()?.shared().filter(|shared| shared.views.is_some())?;
    Some(shared.base..shared.base + shared.bytes)
}

/// The views of the heap whose faults come here, if there is one.
pub(in crate::shared) fn views_of_this_process() -> Option<&'static Views> {
    NODE.get()?.shared()?.views.as_ref()
}

/// The node's last words: the system has no memory for the page at this address, or for a page's twin.
pub(in crate::shared) fn tell_no_memory(address: Option<usize>) {
    let Some((node, shared)) = NODE.get().and_then(|node| Some((node, node.shared()?))) else { return };
    let what = address.map_or_else(
        || "a twin of a shared page".to_string(),
        |address| {
            let known = shared.page_of(address).and_then(|page| shared.table.find(page));
            let whose = known.map_or_else(|| "the shared heap".to_string(), |known| known.name());
            format!("a page of {whose}, at {address:#x}")
        },
    );
    let (cached, who) =
        ((shared.cached_pages.load(Ordering::Relaxed) * PAGE_BYTES as u64) >> 20, node.name_of(shared.me));
    crate::error::say(format_args!(
        "comem: {who}: the system has no memory for {what}; copies of other nodes' pages take {cached} MiB here: \
         lower --cache, share less, use more hosts, or allow the process more (free -m, the cgroup's limit, \
         vm.overcommit_memory)"
    ));
}

/// The node's last words: the program has unmapped the page at this address.
pub(crate) fn tell_unmapped(address: usize) {
    let Some((node, shared)) = NODE.get().and_then(|node| Some((node, node.shared()?))) else { return };
    let known = shared.page_of(address).and_then(|page| shared.table.find(page));
    let whose = known.map_or_else(|| "the shared heap".to_string(), |known| known.name());
    crate::error::say(format_args!(
        "comem: {}: the program has unmapped shared memory of {whose}, at {address:#x} or behind it (munmap, or mmap \
         or mremap over it); only comem_free gives it back; the node ends",
        node.name_of(shared.me)
    ));
}

/// The runtime's part of the signal handler.
fn on_fault(fault: &fault::Fault) -> Verdict {
    let Some(node) = NODE.get() else { return Verdict::NotOurs };
    let Some(shared) = node.shared() else { return Verdict::NotOurs };
    if let Some(verdict) = shared.open_touched(node, fault) {
        return verdict;
    }
    let Some(page) = shared.page_of(fault.address) else { return Verdict::NotOurs };
    if let Some(verdict) = shared.one_copy_fault(node, fault, page) {
        return verdict;
    }
    let is_forbidden = fault.signal == libc::SIGSEGV && shared.has_userfaults();
    if is_forbidden {
        shared.permit_again(page);
    }
    // What is forbidden and was permitted before is a store, whether or not the processor's context tells.
    let access = match fault.access {
        fault::Access::Write => Access::Write,
        fault::Access::Unknown if is_forbidden => Access::Write,
        _ => Access::Read,
    };
    let step =
        |thread: &Thread| node.life.goes_on().and_then(|()| thread.page_fault(shared, page, access, fault.instruction));
    let host = crate::host::host();
    // Whoever is waited for here may wait for a store of this thread.
    let result = hazards::suspended(|| match crate::seated() {
        Some(thread) => step(&thread),
        None => in_some_place(node, step),
    });
    match (result, host) {
        (Ok(true), _) => Verdict::Retry,
        (Ok(false), _) => shared.refuse(node, fault),
        (Err(error), Some(host)) => shared.go_on_alone(node, host, &error),
        (Err(error), None) => node.end_for(&error),
    }
}

/// Runs the step for a thread that has no place yet.
#[cold]
pub(crate) fn in_some_place<R>(node: &Arc<Node>, step: impl FnOnce(&Thread) -> Result<R>) -> Result<R> {
    let comem = Comem { node: node.clone() };
    if crate::host::host().is_some() {
        return match comem.sit_anywhere() {
            Some(thread) => step(&thread),
            None => node.in_common_place(step),
        };
    }
    match comem.current() {
        Ok(thread) => step(&thread),
        // Another thread may be at that already: then this one waits, and runs nothing that the program has registered
        // for its exit.
        Err(error) => comem.end_with(&error),
    }
}

impl Shared {
    /// The job is over for a process that stays. The access goes on with what is here; the host makes an error of it as
    /// soon as it can.
    pub(in crate::shared) fn go_on_alone(&self, node: &Node, host: &dyn Host, error: &Error) -> Verdict {
        node.outlive(host, error);
        let kept = self.keep_alone();
        host.stale_access();
        if kept { Verdict::Retry } else { Verdict::NotOurs }
    }

    /// Whether a userfaultfd tells of accesses to pages that are not mapped.
    fn has_userfaults(&self) -> bool {
        self.views.as_ref().is_some_and(|views| views.detector != Detector::Mprotect)
    }

    /// A page that was refused when it belonged to nobody ([`Shared::refuse`]) may belong to a region by now. Where its
    /// page table forbids stores, the step of the fault allows them.
    fn permit_again(&self, page: PageNo) {
        let Some(known) = self.table.find(page).filter(|known| !known.is_freed()) else { return };
        let permit = || {
            let at = self.address_of(page) as *mut libc::c_void;
            // SAFETY: a page of the application's view, which permits everything where a userfaultfd watches it.
            unsafe { libc::mprotect(at, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) };
        };
        match &self.views {
            Some(views) if known.region.part() == Part::Tracked && !views.tracked.is_detached() => {
                // While the page table is locked nobody forbids stores to it.
                known.step(views, page, |_, table, _, _| {
                    if !table.forbids_writes() {
                        permit()
                    }
                });
            }
            _ => permit(),
        }
    }

    /// Where an address lies that belongs to no allocation: behind or before the nearest one.
    fn place_of(&self, address: usize, page: PageNo) -> String {
        let known = self.table.find(page);
        if known.is_none() && self.table.is_freed(page) {
            return "in a region that was freed".to_string();
        }
        let next = self.table.next_after(page).and_then(|first| self.table.find(first)).filter(|next| !next.is_freed());
        let ahead = next.map(|next| ((self.address_of(next.region.first) - address) as u64, next));
        let Some(known) = known.or_else(|| self.table.before(page)) else {
            return ahead.map_or_else(|| "where nothing is allocated".to_string(), before);
        };
        let over = address.saturating_sub(self.address_of(known.region.first)) as u64;
        if known.is_freed() && over < known.region.bytes {
            return format!("which is {over} bytes into {}, which was freed", known.name());
        }
        let beyond = over.saturating_sub(known.region.bytes);
        match ahead.filter(|(bytes, _)| *bytes < beyond) {
            Some(ahead) => before(ahead),
            None => {
                format!("which is {beyond} bytes beyond the end of {} ({} bytes)", known.name(), known.region.bytes)
            }
        }
    }

    /// Says that an access was to heap memory that belongs to nobody.
    pub(crate) fn say_nobodys(&self, node: &Node, address: usize, page: PageNo, access: fault::Access) {
        let what = if access == fault::Access::Write { "a write to" } else { "a read of" };
        let place = self.place_of(address, page);
        crate::error::say(format_args!(
            "comem: {}: {what} address {address:#x} of the shared heap, {place}; check the pointer or index",
            node.name_of(self.me)
        ));
    }

    /// An access to heap memory that belongs to nobody: says so, and lets the program meet its SIGSEGV.
    fn refuse(&self, node: &Node, fault: &fault::Fault) -> Verdict {
        // With a userfaultfd the first try came as SIGBUS, and was reported then.
        if fault.signal == libc::SIGSEGV && self.views.as_ref().is_none_or(|v| v.detector != Detector::Mprotect) {
            return Verdict::NotOurs;
        }
        let page = self.page_of(fault.address).unwrap_or_default();
        self.say_nobodys(node, fault.address, page, fault.access);
        // The second try raises the signal that it would raise without Comem.
        let at = self.address_of(page) as *mut libc::c_void;
        // SAFETY: the page belongs to no allocation, so taking it away takes nothing from anybody.
        let gone = unsafe { libc::mprotect(at, PAGE_BYTES, libc::PROT_NONE) };
        if gone == 0 && fault.signal == libc::SIGBUS { Verdict::Retry } else { Verdict::NotOurs }
    }
}

/// So many bytes before a region.
fn before((bytes, next): (u64, Arc<RegionState>)) -> String {
    format!("which is {bytes} bytes before the beginning of {} ({} bytes)", next.name(), next.region.bytes)
}

/// Whether the page is in one of these runs.
fn is_among(page: PageNo, runs: &[Range<PageNo>]) -> bool {
    runs.iter().any(|run| run.contains(&page))
}

impl Thread {
    /// An access to `page` faulted, of the instruction at this address (0: no instruction's). `false`: there is no such
    /// memory.
    pub(crate) fn page_fault(&self, shared: &Shared, page: PageNo, access: Access, instruction: usize) -> Result<bool> {
        let Some(known) = shared.table.find(page) else { return Ok(false) };
        if known.is_freed() {
            return Ok(false);
        }
        known.costs.faults.fetch_add(1, Ordering::Relaxed);
        let counters = self.counters();
        match access {
            Access::Read => counters.read_faults.add(1),
            Access::Write => counters.write_faults.add(1),
        }
        let fault = PageFault { thread: self, shared, known: &known, page, access };
        if known.region.part() == Part::Guarded {
            if access == Access::Write && known.read_only.load(Ordering::Acquire) {
                return Err(refuse_write(&known));
            }
            return self.operation(|| fault.on_msi_page(instruction)).map(|()| true);
        }
        let start = self.home().now();
        let done = self.operation(|| fault.fetch());
        known.costs.fetch_ns.fetch_add((self.home().now() - start).0, Ordering::Relaxed);
        done.map(|()| true)
    }

    /// Waits until a page is not being fetched any more.
    pub(in crate::shared) fn wait_for_fetch(&self, page: PageNo, is_fetching: impl Fn() -> bool) -> Result<()> {
        while is_fetching() {
            self.wait(Waiting::Page(page))?;
            self.home().attend_idle_sockets(self.slot());
        }
        Ok(())
    }
}

/// The error of a write to memory that was declared read-only.
pub(crate) fn refuse_write(known: &RegionState) -> Error {
    Error::Frozen(written_though_read_only(known))
}

/// One access of a thread that faulted.
pub(in crate::shared) struct PageFault<'a> {
    pub(in crate::shared) thread: &'a Thread,
    pub(in crate::shared) shared: &'a Shared,
    /// The page's region.
    pub(in crate::shared) known: &'a Arc<RegionState>,
    pub(in crate::shared) page: PageNo,
    pub(in crate::shared) access: Access,
}

impl PageFault<'_> {
    /// What to fetch with the page, when the cache has room for that and for the run behind it.
    fn plan(&self) -> Result<PrefetchPlan> {
        let PageFault { thread, shared, known, page, .. } = *self;
        let unit_pages = known.region.unit_pages();
        let stream = thread.stream(|s| s.predict(&(), Query::Fault { page, unit_pages }));
        // Of home pages no copies come, however many are mapped.
        let crowded = shared.under_pressure().filter(|_| shared.is_elsewhere(known, page));
        let ahead = match crowded {
            _ if !thread.home().config.prefetch => PrefetchPlan::NOTHING,
            Some(most) => {
                let units_max = (most / u64::from(unit_pages)) as usize;
                thread.stream(|s| s.predict(&(), Query::Crowded { page, plan: stream, units_max }))
            }
            None => stream,
        };
        let claims = self.may_claim();
        shared.page_cache.is_touched(thread.slot(), page);
        // Behind a single unit nothing is under way.
        let after = || thread.stream(|s| s.after(page, ahead, unit_pages, None));
        let behind = if ahead.units > 1 { after().map_or(0, |(_, behind)| behind.units) } else { 0 };
        let most = (ahead.units + behind) as u64 * u64::from(unit_pages);
        if shared.is_full(most) && (crowded.is_some() || shared.is_elsewhere(known, page)) {
            self.make_cache_room(most)?;
        }
        Ok(PrefetchPlan { claims, ..ahead })
    }

    /// Brings the page here, as the access needs it.
    fn fetch(&self) -> Result<()> {
        self.leave_section();
        let plan = self.plan()?;
        let result = self.fetch_with(plan);
        self.shared.awaited(self.thread.slot()).end();
        result
    }

    fn fetch_with(&self, mut plan: PrefetchPlan) -> Result<()> {
        let PageFault { thread, shared, known, page, access } = *self;
        let (node, slot, awaited) = (thread.home(), thread.slot(), shared.awaited(thread.slot()));
        if known.region.engine.tells_sets() {
            // What the fault needs may have come.
            node.look_at_told(slot);
        }
        let begun = thread.stepping(|out| {
            let plan_of = |table: &PageTable| {
                awaited.begin(page);
                if node.config.prefetch && table.unit(page).is_elsewhere() {
                    plan = thread.stream(|s| s.predict(&(), Query::Elsewhere { page, plan }));
                }
                plan
            };
            let mut pages = node.node_pages(shared, slot, out).of(known);
            path_counts::count(path_counts::Step::PageLogic);
            let mut begun = begin(&mut pages, (slot, page, access), plan_of, |home| node.peer_memory(shared, home));
            match &mut begun {
                Some((Faulted::Wait, _)) => awaited.waits(known, None),
                Some((Faulted::Fetch(fetching), Some(fetch))) if is_among(fetching.first, &fetch.runs) => {
                    let needs = std::mem::take(&mut fetch.needs);
                    awaited.waits(known, Some((fetching.home, needs)).filter(|(_, needs)| !needs.is_empty()));
                }
                _ => {}
            }
            begun
        });
        match begun {
            Some((Faulted::Mapped, _)) | None => Ok(()),
            Some((Faulted::ReadOnly, _)) => Err(refuse_write(known)),
            Some((Faulted::Ask(asks), _)) if known.region.engine.tells_sets() => thread.ask_sets(shared, page, &asks),
            Some((Faulted::Ask(asks), _)) => self.ask_writers(&asks),
            Some((Faulted::Wait, _)) => {
                self.run_ahead(plan, None);
                self.wait_for_page()
            }
            Some((Faulted::Fetch(mut fetching), fetch)) => {
                if !fetching.is_over() {
                    self.go_on_fetching(&mut fetching);
                }
                let Some(fetch) = fetch else { return Ok(()) };
                thread.counters().page_requests.add(1);
                let waits = is_among(fetching.first, &fetch.runs);
                self.run_ahead(plan, waits.then_some(&fetch.runs[..]));
                self.prepare_for(&fetching, &fetch);
                if !waits {
                    return Ok(());
                }
                self.premap(&fetch);
                self.wait_for_page()
            }
        }
    }

    /// What is left to do of a fetch of which the home was asked already, as far as it had to be.
    fn go_on_fetching(&self, fetching: &mut Fetching) {
        let PageFault { thread, shared, known, .. } = *self;
        let node = thread.home();
        let fetch = thread.stepping(|out| {
            let mut pages = node.node_pages(shared, thread.slot(), out).of(known);
            path_counts::count(path_counts::Step::PageLogic);
            fetching.run(&mut pages, |home| node.peer_memory(shared, home))
        });
        debug_assert!(fetch.is_none(), "the home is asked once");
    }

    /// A page that is touched under other locks than its own belongs to none.
    fn leave_section(&self) {
        let PageFault { thread, shared, page, .. } = *self;
        if shared.passes_over.load(Ordering::Relaxed) {
            shared.working_sets.lock().observe(&(), lock_working_set::Event::Missed(page));
        }
        if !thread.is_under_locks() {
            return;
        }
        let guard = shared.working_sets.lock().guard_of(page);
        if guard.is_some_and(|lock| !thread.home().holds_lock(lock, thread.slot())) {
            let touched = lock_working_set::Event::TouchedElsewhere(page);
            shared.working_sets.lock().observe(&(), touched);
        }
    }

    /// Asks for the run behind the one that this thread is about to wait for; its home works on it while this thread
    /// takes the first in, and the answer waits in this thread's socket until the thread gets there. So at most two
    /// runs are under way.
    fn run_ahead(&self, ahead: PrefetchPlan, fetched: Option<&[Range<PageNo>]>) {
        let PageFault { thread, shared, known, page, .. } = *self;
        let unit = known.region.unit_pages();
        let Some((far, ahead)) = thread.stream(|s| s.after(page, ahead, unit, fetched)) else { return };
        let first = page - (page - known.region.first) % unit;
        let mut next = i64::from(first) + far as i64 * i64::from(unit);
        if ahead.stride == 1 {
            // The run ends where the chunk does.
            next = next.min(i64::from(known.chunk_end(page)));
        }
        let in_region = u32::try_from(next).ok().filter(|p| known.region.range().contains(p));
        let Some(next) = in_region else { return };
        let begun = thread.stepping(|out| {
            path_counts::count(path_counts::Step::PageLogic);
            run_ahead(&mut thread.home().node_pages(shared, thread.slot(), out).of(known), next, ahead)
        });
        // Where nothing had to be asked for, it is here or on its way.
        let all = next.saturating_add(ahead.units as u32 * unit - 1);
        let last = match begun.as_ref().map(|begun| &begun.span) {
            Some(span) if ahead.stride > 0 => Some(span.end - 1),
            Some(span) => Some(span.start),
            None => Some(all).filter(|_| ahead.stride == 1),
        };
        if let Some(last) = last {
            thread.stream(|s| s.observe(&(), Event::RanAhead { page, last }));
        }
        let Some(Ahead { pages, mut fetching, fetch, .. }) = begun else { return };
        thread.counters().pages_prefetched.add(pages);
        if let Some(fetch) = &fetch {
            thread.counters().page_requests.add(1);
            self.prepare_for(&fetching, fetch);
        }
        if !fetching.is_over() {
            self.go_on_fetching(&mut fetching);
        }
    }

    /// Has memory ready, and near, for pages that are on their way: the time until they come is free.
    fn prepare_for(&self, fetching: &Fetching, fetch: &Fetch) {
        let PageFault { thread, shared, known, .. } = *self;
        let runs = &fetch.runs;
        let Some(views) = &shared.views else { return };
        let unit_bytes = known.region.unit_pages() as usize * PAGE_BYTES;
        let pages: u32 = runs.iter().map(|r| r.end - r.start).sum();
        let few = pages as usize * PAGE_BYTES <= unit_bytes
            && known.region.unit_pages() as usize <= shared.tuning.prefetch.near_unit_pages_max;
        if let Some(peer) = thread.home().peer_memory(shared, fetching.home).filter(|_| few) {
            peer.memory.look_ahead(runs[0].start as usize * PAGE_BYTES..runs[0].end as usize * PAGE_BYTES);
        }
        // What comes in long runs gets its memory with its bytes, and what is claimed when it is mapped.
        let filled = |run: &Range<PageNo>| {
            views.tracked.fills() && (fetch.claim || run.end - run.start > shared.tuning.pages.few_pages)
        };
        let parts = fetching.fresh.iter().flat_map(|fresh| {
            runs.iter().map(|run| run.start.max(fresh.start)..run.end.min(fresh.end)).filter(|part| !part.is_empty())
        });
        parts.filter(|run| !filled(run)).for_each(|run| views.tracked.prepare(run));
        let needs_twins = views.tracked.notes_writes() && !known.forbids_writes(runs[0].start);
        if !fetch.claim && needs_twins && !known.read_only.load(Ordering::Relaxed) {
            shared.twins.prepare(pages as usize * PAGE_BYTES / unit_bytes, unit_bytes);
            if few {
                shared.twins.look_ahead(unit_bytes);
            }
        }
        if few {
            views.tracked.look_ahead(runs[0].clone());
        }
    }

    /// Maps the unit that this thread is about to wait for, if nobody else can look at it before it is there: to map it
    /// is most of what is left to do once it has come.
    fn premap(&self, fetch: &Fetch) {
        let PageFault { thread, shared, known, page, .. } = *self;
        let is_one = fetch.runs.len() == 1 && fetch.runs[0].len() == known.region.unit_pages() as usize;
        // To ask whether there are others costs a system call.
        if !is_one || fetch.claim || fetch.direct || !comem_net::threads::is_one_beside_ours() {
            return;
        }
        path_counts::count(path_counts::Step::PageLogic);
        thread.stepping(|out| {
            premap(&mut thread.home().node_pages(shared, thread.slot(), out).of(known), page, fetch, || true);
        });
    }

    /// Asks writers for what the page needs, and waits until its unit is not being fetched any more.
    fn ask_writers(&self, asks: &[(NodeId, Ask)]) -> Result<()> {
        self.thread.ask_writers(self.shared, asks);
        let Some(views) = &self.shared.views else { return Ok(()) };
        self.thread.wait_for_fetch(self.page, || self.is_fetching(views))
    }

    fn is_fetching(&self, views: &Views) -> bool {
        self.known.step(views, self.page, |_, table, _, _| table.unit(self.page).is_fetching())
    }

    /// Waits until the page of this thread's fault is not being fetched any more.
    fn wait_for_page(&self) -> Result<()> {
        let PageFault { thread, shared, page, .. } = *self;
        let (awaited, Some(views)) = (shared.awaited(thread.slot()), &shared.views) else { return Ok(()) };
        let mut wakes = 0u32;
        while !awaited.is_over() {
            thread.wait(Waiting::Page(page))?;
            wakes += 1;
            // Each part of a long answer wakes the thread. Whoever takes the last one in says so.
            if awaited.is_over() || wakes.is_multiple_of(LOOK_EVERY) && !self.is_fetching(views) {
                break;
            }
            thread.home().attend_idle_sockets(thread.slot());
        }
        Ok(())
    }
}

impl Shared {
    /// Whether a page is being fetched.
    pub(in crate::shared) fn is_fetching(&self, page: PageNo) -> bool {
        let look = |views| self.table.step(views, page, |_, table, _, _| table.unit(page).is_fetching());
        self.views.as_ref().and_then(look) == Some(true)
    }

    /// Brings memory here, for reading or for writing too.
    ///
    /// # Errors
    /// When the range is not shared memory.
    pub(crate) fn touch(&self, address: usize, bytes: usize, write: bool) -> Result<()> {
        if self.views.is_none() {
            return Ok(());
        }
        let mut at = address;
        while at < address.saturating_add(bytes) {
            if let Some(end) = self.touch_lines(at, address.saturating_add(bytes), write)? {
                at = end;
                continue;
            }
            let nobodys = |what: &str| Error::NotAllocated { address: at, sentence: format!("{at:#x} is {what}") };
            let page = self.page_of(at).ok_or_else(|| nobodys("not in the shared heap"))?;
            let known = self.table.find(page).filter(|known| !known.is_freed());
            let Some(known) = known else { return Err(nobodys("in no allocation of the shared heap")) };
            if known.region.engine.has_one_copy() {
                at = self.address_of(known.region.range().end - 1) + PAGE_BYTES;
                continue;
            }
            let byte = at as *mut u8;
            // SAFETY: the address is in an allocation; the access faults the page in, and an exchange of a byte for
            // itself changes nothing whatever other threads do. (An addition of nothing would not do: compilers make a
            // load of it.)
            unsafe {
                if write {
                    let _ = (*byte.cast::<AtomicU8>()).compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
                } else {
                    byte.read_volatile();
                }
            }
            at = self.address_of(page) + PAGE_BYTES;
        }
        Ok(())
    }
}
