//! Units of lines memory under `msi`: one writer or many readers, over every backbone.
//!
//! The directory and the transitions are those of explicit objects and of pages. Here is what they do to lines memory.
//!
//! | step of the protocol | what happens |
//! |---|---|
//! | bytes come | they stand aside until the permission comes with which they count |
//! | permission to read | the bytes go in; the entries stay *not exclusive* |
//! | permission to write | the bytes go in, then the entries become 0 |
//! | revoked to reading | the entries become *not exclusive*, then a barrier, then no hazard is left |
//! | revoked | the same, then the bytes are kept for whoever gets them, and MAGIC goes in |

use super::units::LineState;
use super::{LineEngine, LineUnit};
use crate::error::Result;
use crate::node::Waiting;
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::lines::{GRAIN_LINES, Lines};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, Want};
use comem_protocol::coherence::msi::{Begin, Unit};
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo};
use comem_protocol::coherence::{Context, Permission, UnitMemory};
use comem_protocol::ids::{ObjectId, Slot, UnitId};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::message;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Lines memory is so many objects, from this one on: of 2^32 lines each. A unit's index is its first line.
const OBJECTS: Range<u32> = u32::MAX - 16..u32::MAX;

/// The name of the unit that begins at a line, in messages.
fn id_of(line: u64) -> UnitId {
    UnitId { object: ObjectId(OBJECTS.start + (line >> 32) as u32), index: line as u32 }
}

/// The line that a unit in a message begins at; `None` where it is none of lines memory.
pub(crate) fn line_of(unit: UnitId) -> Option<u64> {
    let high = OBJECTS.contains(&unit.object.0).then(|| unit.object.0 - OBJECTS.start)?;
    Some(u64::from(high) << 32 | u64::from(unit.index))
}

/// Where a thread's loads would miss next if they went on in order.
#[derive(Clone, Copy)]
struct Run {
    next_line: u64,
    /// Units to ask for ahead.
    ahead: u64,
}

thread_local! {
    static RUN: Cell<Run> = const { Cell::new(Run { next_line: u64::MAX, ahead: 0 }) };
}

/// How many units behind this one to ask for with it: more with each miss in a row. All lie in its grain, which is
/// open.
fn units_ahead(most: u64, unit: LineUnit) -> u64 {
    let Run { next_line, ahead } = RUN.get();
    let lines = u64::from(unit.lines);
    let left = (GRAIN_LINES as u64 - unit.line % GRAIN_LINES as u64) / lines - 1;
    let ahead = if next_line == unit.line { (ahead * 2).max(1).min(most).min(left) } else { 0 };
    RUN.set(Run { next_line: unit.line + lines * (1 + ahead), ahead });
    ahead
}

/// This node's memory of one unit, during one step.
struct Frame<'a> {
    lines: &'a Lines,
    unit: LineUnit,
    /// The region was freed: nothing that was on its way is to bring its memory back.
    is_freed: bool,
    /// Bytes that have come, and do not count yet.
    fresh: Option<Bytes>,
    /// What the unit held before MAGIC went in.
    kept: Option<Bytes>,
}

/// A unit's bytes; those of a small one are on the stack.
type Bytes = SmallVec<[u8; 256]>;

impl Frame<'_> {
    fn span(&self) -> Range<usize> {
        self.unit.line as usize..self.unit.line as usize + self.unit.lines as usize
    }

    fn offset(&self) -> usize {
        self.unit.line as usize * LINE_BYTES
    }

    fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::from_elem(0, self.len());
        self.lines.read(self.offset(), &mut bytes);
        bytes
    }

    /// No store may go ahead any more, and those that could are in memory.
    fn revoke_stores(&mut self) {
        let first = Entry(self.lines.entry(self.unit.line as usize).load(Ordering::Acquire));
        self.lines.put_entries(self.span(), Entry::not_exclusive(!self.lines.has_barrier()));
        if first != Entry::BIASED {
            return;
        }
        let mut is_up = match self.lines.begin_quiesce_own(self.span()) {
            Ok(is_up) => is_up,
            Err(error) => {
                // Without it stores may be lost.
                crate::error::say(format_args!("comem: the system has no barrier any more: {error}; the node ends"));
                std::process::abort();
            }
        };
        let mut spins = 0_u32;
        while is_up {
            spins += 1;
            // A thread that lost its core in the middle of a store is to have this one.
            if spins < 100 {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            is_up = self.lines.has_hazard(self.span());
        }
    }
}

impl UnitMemory for Frame<'_> {
    fn len(&self) -> usize {
        self.unit.lines as usize * LINE_BYTES
    }

    fn permit(&mut self, permission: Permission) {
        if self.is_freed {
            return;
        }
        if let Some(fresh) = self.fresh.take() {
            self.lines.write(self.offset(), &fresh);
        }
        if permission == Permission::Write {
            self.lines.put_entries(self.span(), Entry::exclusive(!self.lines.has_barrier()));
        }
    }

    fn revoke(&mut self, permission: Permission) {
        if self.is_freed {
            return;
        }
        self.revoke_stores();
        if permission == Permission::None {
            self.kept = Some(self.bytes());
            self.lines.fill_magic(self.offset(), self.len());
        }
    }

    fn copy_out(&self, out: &mut Vec<u8>) {
        match &self.kept {
            Some(kept) => out.extend_from_slice(kept),
            None => out.extend_from_slice(&self.bytes()),
        }
    }

    fn install(&mut self, bytes: &[u8]) {
        self.fresh = Some(Bytes::from_slice(bytes));
    }

    fn read(&self, _offset: usize, _len: usize, _out: &mut Vec<u8>) -> bool {
        false // lines are read where they are
    }

    fn write(&mut self, _offset: usize, _bytes: &[u8]) -> bool {
        false // as above
    }
}

/// What a thread finds that wants a unit.
enum Found {
    /// The access is made.
    Done,
    /// The unit will come.
    OnItsWay,
    /// What came is no use. It must be asked for again.
    Void,
}

/// Runs a step on the unit that a message is about; `None` when there is none.
pub(crate) fn line_step<R>(
    shared: &Shared,
    line: u64,
    caller: Option<Slot>,
    out: &mut Outbox,
    step: impl FnOnce(&mut Unit, &mut Context<'_>) -> R,
) -> Option<R> {
    let lines = shared.views.as_ref()?.lines.as_ref()?;
    let address = lines.extent().base + usize::try_from(line).ok()?.checked_mul(LINE_BYTES)?;
    let known = shared.table.find(shared.page_of(address)?)?;
    let unit = shared.line_unit(&known, address).filter(|unit| unit.line == line)?;
    known_line(shared, lines, (&known, unit), caller, out, |state, cx, _| step(state, cx))
}

/// Whether the region with this line was freed.
pub(crate) fn is_line_freed(shared: &Shared, line: u64) -> bool {
    let lines = shared.views.as_ref().and_then(|views| views.lines.as_ref());
    let page = lines.and_then(|lines| shared.page_of(lines.extent().base + line as usize * LINE_BYTES));
    page.is_some_and(|page| shared.table.is_freed(page))
}

/// Runs a step on a unit of a region that the caller has looked up; it gets the bytes that came for one access.
fn known_line<R>(
    shared: &Shared,
    lines: &Lines,
    (known, unit): (&RegionState, LineUnit),
    caller: Option<Slot>,
    out: &mut Outbox,
    step: impl FnOnce(&mut Unit, &mut Context<'_>, &mut Option<Box<[u8]>>) -> R,
) -> Option<R> {
    if !known.region.engine.has_directory() {
        return None;
    }
    let new = || LineState { unit: Unit::new(unit.home == shared.me), once: None };
    let mut state = known.lines.unit(unit.index, unit.lines as usize * LINE_BYTES, new)?.lock();
    let LineState { unit: state, once } = &mut *state;
    let is_freed = known.freed.load(Ordering::Acquire);
    let mut frame = Frame { lines, unit, is_freed, fresh: None, kept: None };
    let mut cx = Context {
        me: shared.me,
        nodes: shared.nodes,
        caller,
        unit: id_of(unit.line),
        home: unit.home,
        memory: &mut frame,
        out,
    };
    let had = state.holds(message::Want::Shared);
    let result = step(state, &mut cx, once);
    if had && !state.holds(message::Want::Shared) {
        known.costs.invalidations.fetch_add(1, Ordering::Relaxed);
    }
    // What came and was not permitted counts for one access, which looks for it here.
    if frame.fresh.is_some() {
        *once = frame.fresh.take().map(|bytes| bytes.into_vec().into_boxed_slice());
    }
    Some(result)
}

/// The engine `msi`, by lines.
#[derive(Debug)]
pub(crate) struct ByLines;

impl LineEngine for ByLines {
    fn unit_access(
        &self,
        thread: &Thread,
        known: &RegionState,
        unit: LineUnit,
        want: Want,
        access: &mut dyn FnMut(*mut u8),
    ) -> Result<()> {
        let node = thread.home();
        let Some(shared) = node.shared() else { return Ok(()) };
        let Some(lines) = shared.views.as_ref().and_then(|views| views.lines.as_ref()) else { return Ok(()) };
        let place = Place { shared, lines, known, unit, want };
        let mut found = place.try_access(thread, access);
        if matches!(found, Found::Done) {
            return Ok(());
        }
        let start = node.now();
        match want {
            Want::Load => thread.counters().remote_reads.add(1),
            _ => thread.counters().remote_writes.add(1),
        }
        let result = thread.operation(|| {
            let is_read = want == Want::Load && matches!(found, Found::OnItsWay) && node.config.prefetch;
            let asked = is_read && place.fetch_ahead(thread, units_ahead(node.config.tuning.msi.ahead_units_max, unit));
            loop {
                match found {
                    Found::Done => {
                        // Nothing of it is left for later: this thread may not come by again for long.
                        while asked && node.wire.is_sending(thread.slot()) {
                            thread.wait(Waiting::Page(page_of(shared, lines, unit)))?;
                        }
                        return Ok(());
                    }
                    Found::OnItsWay => thread.wait(Waiting::Page(page_of(shared, lines, unit)))?,
                    Found::Void => {}
                }
                found = place.try_access(thread, access);
            }
        });
        known.costs.fetch_ns.fetch_add((node.now() - start).0, Ordering::Relaxed);
        result
    }
}

fn page_of(shared: &Shared, lines: &Lines, unit: LineUnit) -> PageNo {
    ((lines.extent().base - shared.base + unit.line as usize * LINE_BYTES) / PAGE_BYTES) as PageNo
}

/// What a thread wants of which unit.
struct Place<'a> {
    shared: &'a Shared,
    lines: &'a Lines,
    known: &'a RegionState,
    unit: LineUnit,
    want: Want,
}

impl Place<'_> {
    /// Asks for so many units behind this one, as far as they are of its region and nobody here has asked for them;
    /// whether for any.
    fn fetch_ahead(&self, thread: &Thread, units: u64) -> bool {
        let (slot, unit) = (thread.slot(), self.unit);
        let bytes = self.known.region.pages as u64 * PAGE_BYTES as u64;
        let of_region = bytes / (u64::from(unit.lines) * LINE_BYTES as u64);
        let asked = thread.stepping(|out| {
            let behind = (1..=units).filter(|step| unit.index + step < of_region);
            let ask = |step: u64| {
                let line = unit.line + step * u64::from(unit.lines);
                let unit = LineUnit { index: unit.index + step, line, ..unit };
                let fetch = |state: &mut Unit, cx: &mut Context<'_>, _: &mut _| state.fetch_ahead(cx, slot);
                known_line(self.shared, self.lines, (self.known, unit), Some(slot), out, fetch)
            };
            behind.map(ask).filter(|asked| *asked == Some(true)).count()
        });
        thread.counters().lines_ahead.add(asked as u64);
        asked > 0
    }

    fn try_access(&self, thread: &Thread, access: &mut dyn FnMut(*mut u8)) -> Found {
        let slot = thread.slot();
        let (known, unit, lines) = (self.known, self.unit, self.lines);
        let wanted = if self.want == Want::Load { message::Want::Shared } else { message::Want::Modified };
        let bytes = unit.lines as usize * LINE_BYTES;
        let found = thread.stepping(|out| {
            known_line(self.shared, lines, (known, unit), Some(slot), out, |state, cx, once| {
                if state.begin(cx, slot, wanted, false) == Begin::Wait {
                    return Found::OnItsWay;
                }
                let at = match once.take() {
                    _ if state.holds(wanted) => Some(lines.data(unit.line as usize * LINE_BYTES, bytes)),
                    Some(mut once) => {
                        access(once.as_mut_ptr());
                        state.settle(cx);
                        return Found::Done;
                    }
                    None => None,
                };
                if let Some(at) = at.filter(|_| self.want.has_access()) {
                    access(at);
                }
                state.settle(cx);
                if at.is_some() { Found::Done } else { Found::Void }
            })
        });
        // A region that is gone has no units; whoever looked it up finds that at the next try.
        found.unwrap_or(Found::Void)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::ids::NodeId;
    use comem_protocol::tuning::MsiTuning;

    const MOST: u64 = MsiTuning::DEFAULT.ahead_units_max;

    #[test]
    fn misses_in_a_row_ask_for_more_and_never_beyond_the_grain() {
        let unit = |line| LineUnit { index: line / 2, line, lines: 2, home: NodeId(1) };
        let mut line = 100;
        let mut asked = Vec::new();
        for _ in 0..7 {
            asked.push(units_ahead(MOST, unit(line)));
            line += 2 * (1 + asked[asked.len() - 1]);
        }
        assert_eq!(asked, [0, 1, 2, 4, 8, 16, 16]);
        assert_eq!(units_ahead(MOST, unit(7)), 0, "elsewhere");
        assert_eq!(units_ahead(MOST, unit(9)), 1);
        let last = GRAIN_LINES as u64 - 4;
        assert_eq!(units_ahead(MOST, unit(last - 2)), 0);
        assert_eq!(
            [units_ahead(MOST, unit(last)), units_ahead(MOST, unit(last + 4))],
            [1, 2],
            "one is left, then the next grain"
        );
    }

    #[test]
    fn the_names_of_lines_fit_messages_and_are_no_pages() {
        for line in [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 36) - 1] {
            assert_eq!(line_of(id_of(line)), Some(line));
        }
        assert_eq!(line_of(UnitId { object: crate::shared::consistency::msi_pages::PAGES, index: 7 }), None);
        assert_eq!(line_of(UnitId { object: ObjectId(7), index: 7 }), None);
    }
}
