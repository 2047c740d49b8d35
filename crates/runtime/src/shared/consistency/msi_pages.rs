//! Pages under `msi`: one writer or many readers, sequentially consistent (IVY). The directory and the transitions are
//! those of explicit objects; here is what they do to pages, and the holding of a granted unit until the faulting
//! thread has retried.

use crate::error::Result;
use crate::mutex::Mutex;
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::shared::fault::PageFault;
use crate::shared::heap::table::RegionState;
use crate::shared::memory;
use crate::thread::Thread;
use comem_memory::pages::Arena;
use comem_protocol::coherence::msi::ping_pong::PingPong;
use comem_protocol::coherence::msi::residency::Residency;
use comem_protocol::coherence::msi::{Begin, Unit, WriteBack};
use comem_protocol::coherence::pages::policy::Predictor;
use comem_protocol::coherence::pages::policy::stride_prefetch::Query;
use comem_protocol::coherence::pages::region::Part;
use comem_protocol::coherence::pages::{Access, PAGE_BYTES, PageNo};
use comem_protocol::coherence::{Context, Permission, UnitMemory};
use comem_protocol::ids::{NodeId, ObjectId, Slot, UnitId};
use comem_protocol::outbox::Outbox;
use comem_protocol::time::{Span, Time};
use comem_protocol::tuning::MsiTuning;
use comem_protocol::wire::message::Want;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering};

/// The object that pages under `msi` are units of; a unit's index is its first page.
pub(crate) const PAGES: ObjectId = ObjectId(u32::MAX);
/// Most pages of a unit: it must fit one message on every network.
pub(crate) const MSI_UNIT_PAGES_MAX: u32 = 64;

/// So many units of freed regions may stand in the list of those in use here, beside as many as there are pages in use.
const UNITS_KEPT: u64 = 1024;

/// A unit that is held, by its first page, since when, and until when if others want it.
type Hold = Option<(PageNo, Time, Time)>;

/// The units that each thread holds: an access that spans two pages needs both.
///
/// Each slot has its mutexes, held for one look. They are taken with no unit locked.
#[derive(Debug)]
pub(crate) struct Holds {
    of_slot: Vec<Mutex<[Hold; 2]>>,
    residency: Vec<Mutex<Residency>>,
    wanted: AtomicBool,
    tuning: MsiTuning,
}

impl Holds {
    pub(crate) fn new(slots: usize, tuning: MsiTuning) -> Holds {
        Holds {
            of_slot: (0..slots).map(|_| Mutex::default()).collect(),
            residency: (0..slots).map(|_| Mutex::new(Residency::new(tuning))).collect(),
            wanted: AtomicBool::new(false),
            tuning,
        }
    }

    /// `slot`'s thread has faulted on the unit that begins with this page: how long it may hold it.
    fn faulted(&self, slot: Slot, me: NodeId, instruction: usize, first: PageNo) -> Span {
        let mut residency = self.residency[slot.index()].lock();
        residency.faulted(instruction as u64, first);
        residency.hold(me)
    }

    /// Lets `slot`'s thread hold a unit; false where it holds two already.
    fn hold(&self, slot: Slot, first: PageNo, now: Time, hold: Span) -> bool {
        let mut held = self.of_slot[slot.index()].lock();
        let free = held.iter_mut().find(|held| held.is_none());
        free.map(|free| *free = Some((first, now, now + hold))).is_some()
    }

    /// What `slot`'s thread holds no longer as it goes on to `next`: all, but for the unit it held last if it faults on
    /// that one's neighbour (an access may span both).
    fn let_go(&self, slot: Slot, next: Option<PageNo>) -> [Option<PageNo>; 2] {
        let mut due = [None, None];
        let mut held = self.of_slot[slot.index()].lock();
        let newest = held.iter().flatten().max_by_key(|(_, since, _)| *since).map(|(page, ..)| *page);
        for (held, due) in held.iter_mut().zip(&mut due) {
            let keep = next.is_some() && held.is_some_and(|(page, ..)| Some(page) == newest && next != Some(page));
            if !keep {
                *due = held.take().map(|(page, ..)| page);
            }
        }
        due
    }

    /// Somebody wants a unit that may be held; whether nobody did before.
    fn want(&self) -> bool {
        !self.wanted.swap(true, Ordering::AcqRel)
    }

    /// Takes out, if somebody wants any, the units that were held long enough; and when to look again, if others are
    /// left.
    fn take_due(&self, now: impl FnOnce() -> Time) -> Option<(Vec<PageNo>, Option<Time>)> {
        if !self.wanted.load(Ordering::Relaxed) || !self.wanted.swap(false, Ordering::AcqRel) {
            return None;
        }
        let (now, mut due, mut left) = (now(), Vec::new(), false);
        for held in self.of_slot.iter().skip(1) {
            for held in held.lock().iter_mut() {
                match *held {
                    Some((page, _, until)) if until <= now => {
                        *held = None;
                        due.push(page);
                    }
                    Some(_) => left = true,
                    None => {}
                }
            }
        }
        if left {
            self.wanted.store(true, Ordering::Release);
        }
        Some((due, left.then(|| now + self.tuning.residency())))
    }
}

/// A unit of pages, with what is known of its travels.
#[derive(Debug)]
pub(crate) struct MsiUnit {
    unit: Unit,
    ping_pong: PingPong,
}

impl MsiUnit {
    pub(in crate::shared) fn new(unit: Unit) -> MsiUnit {
        MsiUnit { unit, ping_pong: PingPong::default() }
    }
}

impl Deref for MsiUnit {
    type Target = Unit;

    fn deref(&self) -> &Unit {
        &self.unit
    }
}

impl DerefMut for MsiUnit {
    fn deref_mut(&mut self) -> &mut Unit {
        &mut self.unit
    }
}

/// What a faulting thread finds.
enum Found {
    /// The unit, which is mapped now.
    Here,
    /// The unit will come.
    OnItsWay,
    /// What came may be used once, which a page's permission cannot say. It must be asked for again.
    Void,
}

/// The memory of one unit.
struct Frame<'a> {
    arena: &'a Arena,
    pages: Range<PageNo>,
    /// Declared by the program: whoever stores there is to fault, whatever the unit's state.
    read_only: bool,
    /// Its region was freed, and its memory went back to the system: nothing that was on its way is to bring it back.
    freed: bool,
    /// Sees the bytes that come and leave.
    ping_pong: RefCell<&'a mut PingPong>,
}

impl Frame<'_> {
    fn pointer(&self) -> *mut u8 {
        // SAFETY: the pages lie within the service view.
        unsafe { self.arena.service().add(self.pages.start as usize * PAGE_BYTES) }
    }
}

impl UnitMemory for Frame<'_> {
    fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    fn permit(&mut self, permission: Permission) {
        match permission {
            _ if self.freed => {}
            Permission::Write if !self.read_only => {
                memory::change(self.arena, &self.pages, |p| self.arena.map_write(p));
            }
            Permission::Read | Permission::Write => memory::change(self.arena, &self.pages, |p| self.arena.map_read(p)),
            Permission::None => {}
        }
    }

    fn revoke(&mut self, permission: Permission) {
        match permission {
            Permission::Read => memory::change(self.arena, &self.pages, |p| self.arena.protect(p)),
            Permission::None => memory::change(self.arena, &self.pages, |p| self.arena.unmap(p)),
            Permission::Write => {}
        }
    }

    fn copy_out(&self, out: &mut Vec<u8>) {
        let len = self.len();
        out.reserve(len);
        // SAFETY: there is room for `len` bytes, the pages lie within the service view, and nobody may write to them
        // now.
        unsafe {
            std::ptr::copy_nonoverlapping(self.pointer(), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
        self.ping_pong.borrow_mut().leaves(&out[out.len() - len..]);
    }

    fn install(&mut self, bytes: &[u8]) {
        if self.freed {
            return;
        }
        let len = self.len().min(bytes.len());
        // SAFETY: the pages lie within the service view, and no thread may access them now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(), len) };
        self.ping_pong.get_mut().comes(&bytes[..len]);
    }

    fn discard(&mut self) {
        memory::change(self.arena, &self.pages, |p| self.arena.discard(p));
    }

    fn read(&self, _offset: usize, _len: usize, _out: &mut Vec<u8>) -> bool {
        false // pages are read through the application's view
    }

    fn write(&mut self, _offset: usize, _bytes: &[u8]) -> bool {
        false // as above
    }
}

impl Shared {
    /// The region was declared read-only. What of it is mapped here may be writable, and so is mapped anew when it is
    /// touched.
    pub(crate) fn unmap_writable(&self, known: &RegionState) {
        let Some(views) = self.views.as_ref().filter(|_| known.region.part() == Part::Guarded) else { return };
        let from = self.guarded_from();
        for (index, unit) in known.used_units() {
            let unit = unit.lock();
            let pages = known.pages_of_unit(index);
            memory::change(&views.guarded, &(pages.start - from..pages.end - from), |p| views.guarded.unmap(p));
            drop(unit);
        }
    }
}

impl Node {
    /// Runs a step on the `msi` unit that begins at `page`; `None` when there is none.
    pub(crate) fn msi_step<R>(
        &self,
        page: PageNo,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let shared = self.shared()?;
        let known = shared.table.find(page).filter(|k| k.region.part() == Part::Guarded)?;
        self.known_unit(shared, &known, (page - known.region.first) / known.region.unit_pages(), caller, out, step)
    }

    /// As [`Node::msi_step`], on unit `index` of a region that the caller has looked up.
    fn known_unit<R>(
        &self,
        shared: &Shared,
        known: &RegionState,
        index: u32,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let views = shared.views.as_ref()?;
        let pages = known.pages_of_unit(index);
        let from = shared.guarded_from();
        let unit = UnitId { object: PAGES, index: pages.start };
        let mut single = known.unit(index)?.lock();
        let MsiUnit { unit: state, ping_pong } = &mut *single;
        let mut frame = Frame {
            arena: &views.guarded,
            pages: pages.start - from..pages.end - from,
            read_only: known.read_only.load(Ordering::Acquire),
            freed: known.freed.load(Ordering::Acquire),
            ping_pong: RefCell::new(ping_pong),
        };
        let mut cx = Context {
            me: shared.me,
            nodes: shared.nodes,
            caller,
            unit,
            home: known.home_of_unit(index),
            memory: &mut frame,
            out,
        };
        let before = state.is_stored();
        let had = state.holds(Want::Shared) && state.leaving().is_none();
        let result = step(state, &mut cx);
        shared.count_unit(known, pages.start, before, state.is_stored());
        if had && !state.holds(Want::Shared) && state.leaving().is_none() {
            known.costs.invalidations.fetch_add(pages.len() as u64, Ordering::Relaxed);
        }
        let wanted = state.is_wanted() && shared.holds.want();
        drop(single);
        // It may be asleep until its next tick, and this thread may do nothing else for long.
        if wanted && crate::seated().is_some() {
            self.wake_service();
        }
        Some(result)
    }

    /// For the service thread: lets units go that were held long enough while others want them. Gives when to look
    /// again.
    pub(crate) fn release_holds(&self) -> Option<Time> {
        let shared = self.shared()?;
        let (due, next) = shared.holds.take_due(|| self.now())?;
        due.into_iter().for_each(|page| self.let_go(Slot::SERVICE, page));
        next
    }

    fn let_go(&self, slot: Slot, page: PageNo) {
        let mut out = Outbox::new();
        let caller = (slot != Slot::SERVICE).then_some(slot);
        self.msi_step(page, caller, &mut out, |unit, cx| unit.unpin(cx));
        self.flush(slot, &mut out);
    }
}

impl Shared {
    /// Books that the memory of a unit of another home is in use here now, or no longer.
    fn count_unit(&self, known: &RegionState, first: PageNo, before: bool, now: bool) {
        let pages = u64::from(known.region.unit_pages());
        match (before, now) {
            (false, true) => {
                self.cached_pages.fetch_add(pages, Ordering::Relaxed);
                self.units.lock().push_back(first);
            }
            (true, false) => {
                self.cached_pages.fetch_sub(pages, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// The pages of a region under `msi` that this node and others have written in turn, at different bytes, and how
    /// often.
    pub(crate) fn falsely_shared_units(&self, known: &RegionState) -> Vec<(PageNo, u64)> {
        let of_unit = |(index, unit): (u32, &Mutex<MsiUnit>)| {
            let first = known.pages_of_unit(index).start;
            unit.lock().ping_pong.found().map(|(page, times)| (first + page, times)).collect::<Vec<_>>()
        };
        known.used_units().flat_map(of_unit).collect()
    }

    /// The memory of a freed region's units is gone.
    pub(in crate::shared) fn forget_units(&self, known: &RegionState) {
        for (_, unit) in known.used_units() {
            if unit.lock().abandon() {
                self.cached_pages.fetch_sub(u64::from(known.region.unit_pages()), Ordering::Relaxed);
            }
        }
        let mut units = self.units.lock();
        if units.len() as u64 > 2 * self.cached_pages.load(Ordering::Relaxed) + UNITS_KEPT {
            units.retain(|first| self.table.find(*first).is_some_and(|known| !known.is_freed()));
        }
    }
}

impl PageFault<'_> {
    /// Gives units back to their homes until `pages` more fit the cache's bound: those that came first go first, and
    /// those that are in use stay. Several go at once, for their homes' answers must be waited for.
    pub(in crate::shared) fn give_units_back(&self, pages: u64) -> Result<()> {
        let PageFault { thread, shared, .. } = *self;
        if !shared.is_full(pages) {
            return Ok(());
        }
        let wanted =
            pages + (shared.cache_pages_max.load(Ordering::Relaxed) / 8).min(shared.tuning.msi.give_back_pages_max);
        let (mut leaving, mut looks) = (0, shared.units.lock().len());
        let mut waits_for = None;
        while looks > 0 && shared.is_full(wanted.saturating_sub(leaving)) {
            looks -= 1;
            let Some(first) = shared.units.lock().pop_front() else { break };
            let Some(known) = shared.table.find(first).filter(|known| !known.is_freed()) else { continue };
            let back = thread
                .stepping(|out| thread.home().msi_step(first, Some(thread.slot()), out, |unit, cx| unit.give_back(cx)));
            match back {
                Some(WriteBack::Stays) => shared.units.lock().push_back(first),
                Some(WriteBack::Leaves) => {
                    thread.counters().evictions.add(1);
                    leaving += u64::from(known.region.unit_pages());
                    waits_for = Some(first);
                }
                Some(WriteBack::Gone) | None => {}
            }
        }
        // All answers must be in before this thread asks for anything else (`Unit::leaving`).
        while let Some(first) = waits_for.filter(|_| thread.home().wire.is_sending(thread.slot())) {
            thread.wait(Waiting::Page(first))?;
        }
        Ok(())
    }

    /// The same of a page under `msi`, by the instruction at this address.
    pub(in crate::shared) fn on_msi_page(&self, instruction: usize) -> Result<()> {
        let PageFault { thread, shared, known, page, access } = *self;
        let want = if access == Access::Write { Want::Modified } else { Want::Shared };
        let index = (page - known.region.first) / known.region.unit_pages();
        let first = known.pages_of_unit(index).start;
        let slot = thread.slot();
        let hold = shared.holds.faulted(slot, shared.me, instruction, first);
        shared.let_units_go(thread, Some(first));
        let mut ahead = Vec::new();
        if known.home_of_unit(index) != shared.me {
            if want == Want::Shared && thread.home().config.prefetch {
                ahead = self.units_ahead(index);
            }
            self.give_units_back((1 + ahead.len() as u64) * u64::from(known.region.unit_pages()))?;
        }
        self.pin_unit(index, want, &ahead)?;
        let now = thread.home().now();
        if shared.holds.hold(slot, first, now, hold) {
            // Who wanted the unit before it stood in the list looked for it there in vain: the step tells the service
            // thread anew.
            thread.stepping(|out| thread.home().known_unit(shared, known, index, Some(slot), out, |_, _| ()));
        } else {
            thread.home().let_go(slot, first);
        }
        Ok(())
    }

    /// The units to ask for with unit `index`, at which a read faults: what a sequence of such faults goes on with, up
    /// to where a copy is here, as far as it has other homes and does not drive everything else out.
    fn units_ahead(&self, index: u32) -> Vec<u32> {
        let PageFault { thread, shared, known, .. } = *self;
        let (unit_pages, first) = (known.region.unit_pages(), known.pages_of_unit(index).start);
        let room =
            shared.cache_pages_max.load(Ordering::Relaxed) / shared.tuning.msi.prefetch_part / u64::from(unit_pages);
        let ahead = thread.stream(|s| {
            let mut plan = s.predict(&(), Query::Fault { page: first, unit_pages });
            if plan.units as u64 > room {
                plan = s.predict(&(), Query::Crowded { page: first, plan, units_max: room as usize });
            }
            s.predict(&(), Query::Elsewhere { page: first, plan })
        });
        let (units, stride) = (known.region.pages / unit_pages, ahead.stride as i64);
        let behind = (1..ahead.units as i64).map_while(|step| u32::try_from(i64::from(index) + step * stride).ok());
        let elsewhere = |index: &u32| known.home_of_unit(*index) != shared.me;
        let is_here = |index| known.unit_if_used(index).is_some_and(|unit| unit.lock().holds(Want::Shared));
        let missing = behind.take_while(|index| *index < units).filter(elsewhere).take_while(|index| !is_here(*index));
        missing.collect()
    }

    /// Waits until unit `index` is here, as is wanted for the access, and pins it. If other nodes have to be
    /// asked for it, they are asked for those `ahead` too, and all that was asked for is here when the call ends.
    fn pin_unit(&self, index: u32, want: Want, ahead: &[u32]) -> Result<()> {
        let PageFault { thread, shared, known, page, .. } = *self;
        let (slot, mut asked, mut asked_ahead) = (thread.slot(), false, 0);
        loop {
            let found = thread.stepping(|out| {
                let before = out.sends().len();
                let found = thread.home().known_unit(shared, known, index, Some(slot), out, |unit, cx| {
                    if unit.begin(cx, slot, want, true) == Begin::Wait {
                        return Found::OnItsWay;
                    }
                    if !unit.holds(want) {
                        unit.settle(cx);
                        return Found::Void;
                    }
                    unit.pin();
                    let all = unit.holds(Want::Modified);
                    cx.memory.permit(if all { Permission::Write } else { Permission::Read });
                    Found::Here
                });
                if out.sends().len() > before && !asked {
                    asked = true;
                    let fetch = |unit: &mut Unit, cx: &mut Context<'_>| unit.fetch_ahead(cx, slot);
                    let mut ask = |index| thread.home().known_unit(shared, known, index, Some(slot), out, fetch);
                    asked_ahead = ahead.iter().filter(|index| ask(**index) == Some(true)).count();
                }
                found
            });
            match found {
                Some(Found::OnItsWay) => {}
                Some(Found::Void) => continue,
                Some(Found::Here) | None => break,
            }
            let start = thread.home().now();
            thread.wait(Waiting::Page(page))?;
            // Nothing of it is left for later: this thread may not come by again for long.
            while asked_ahead > 0 && thread.home().wire.is_sending(thread.slot()) {
                thread.wait(Waiting::Page(page))?;
            }
            known.costs.fetch_ns.fetch_add((thread.home().now() - start).0, Ordering::Relaxed);
        }
        if asked {
            let [one, ahead] = [1, asked_ahead].map(|units| units as u64 * u64::from(known.region.unit_pages()));
            thread.counters().page_requests.add(1 + asked_ahead as u64);
            thread.counters().pages_fetched.add(one + ahead);
            thread.counters().pages_prefetched.add(ahead);
            known.costs.pages_fetched.fetch_add(one + ahead, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Shared {
    /// A thread has made its access, for it does something else now: lets its units go, but for the one it held last if
    /// it faults on that one's neighbour, `next`.
    pub(crate) fn let_units_go(&self, thread: &Thread, next: Option<PageNo>) {
        let due = self.holds.let_go(thread.slot(), next);
        due.into_iter().flatten().for_each(|page| thread.home().let_go(thread.slot(), page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot(1);

    #[test]
    fn a_thread_holds_two_units_until_somebody_wants_them_and_has_waited() {
        let holds = Holds::new(2, MsiTuning::DEFAULT);
        let hold = |first, now| holds.hold(SLOT, first, Time(now), Span(10));
        assert_eq!([hold(7, 0), hold(8, 5), hold(9, 6)], [true, true, false]);
        assert_eq!(holds.take_due(|| Time(100)), None, "nobody wants them");
        assert!(holds.want() && !holds.want());
        assert_eq!(holds.take_due(|| Time(12)), Some((vec![7], Some(Time(12) + MsiTuning::DEFAULT.residency()))));
        assert!(!holds.want(), "one is left, and somebody may want it");
        assert_eq!(holds.take_due(|| Time(20)), Some((vec![8], None)));
        assert_eq!(holds.take_due(|| Time(30)), None);
    }

    #[test]
    fn who_goes_on_to_the_neighbour_keeps_the_unit_that_it_held_last() {
        let holds = Holds::new(2, MsiTuning::DEFAULT);
        assert!(holds.hold(SLOT, 7, Time(0), Span(10)) && holds.hold(SLOT, 8, Time(5), Span(10)));
        assert_eq!(holds.let_go(SLOT, Some(9)), [Some(7), None]);
        assert_eq!(holds.let_go(SLOT, None), [None, Some(8)]);
    }
}
