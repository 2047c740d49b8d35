//! Ranges of elements that are lent to the program as plain memory.

use super::Thread;
use super::object_access::{ObjectAccess, read_part};
use crate::error::{Error, Result};
use crate::node::Waiting;
use crate::object::Object;
use comem_protocol::coherence::Engine;
use comem_protocol::wire::message::Want;
use std::ops::Range;
use std::sync::Arc;

/// A range of elements that is lent to the program, and its units.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    object: Arc<Object>,
    elements: Range<usize>,
    units: Range<u32>,
    want: Want,
}

impl Pin {
    fn new(object: &Arc<Object>, elements: &Range<usize>, write: bool) -> Pin {
        let (object, elements) = (object.clone(), elements.clone());
        let units = object.segments.unit_of(elements.start)..object.segments.unit_of(elements.end - 1) + 1;
        Pin { object, elements, units, want: wanted(write) }
    }

    pub(super) fn key(&self) -> (u32, u32) {
        (self.object.id.0, self.units.start)
    }

    /// Whether some of these bytes lie in the range's memory.
    pub(super) fn meets(&self, bytes: &[u8]) -> bool {
        let (data, element) = (self.object.segments.data().addr(), self.object.segments.element());
        let (start, end) = (data + self.elements.start * element, data + self.elements.end * element);
        let theirs = bytes.as_ptr_range();
        theirs.start.addr() < end && start < theirs.end.addr()
    }

    pub(super) fn overlaps(&self, other: &Pin) -> bool {
        let (a, b) = (&self.units, &other.units);
        self.object.id == other.object.id && a.start < b.end && b.start < a.end
    }

    /// Ends a lending, and serves those who waited for it.
    fn give_back(&self, thread: &Thread) {
        for unit in self.object.end_lending(&self.units) {
            thread.stepping(|out| {
                self.object
                    .step(thread.node.objects.guard(), unit, Some(thread.slot), out, |state, cx| state.settle(cx))
            });
        }
    }

    /// Borrows the range, which is number `at` of all `pins`, the earlier ones being borrowed. What another range of
    /// this thread needs for writing is asked for writing at once: a unit that is lent cannot be upgraded while
    /// somebody else wants it.
    fn borrow(&self, thread: &Thread, pins: &[Pin], at: usize) -> Result<()> {
        let writes = pins.iter().any(|other| other.want == Want::Modified && other.overlaps(self));
        let want = if writes { Want::Modified } else { self.want };
        if self.object.try_lend(&self.units, want) {
            return Ok(());
        }
        let mut pinned = Vec::new();
        let mine = |unit: u32| pins[..at].iter().any(|p| p.object.id == self.object.id && p.units.contains(&unit));
        for unit in self.units.clone().filter(|unit| !mine(*unit)) {
            let mut missed = false;
            while !thread.access(&self.object).try_unit(unit, want, true, &mut |_| ()) {
                thread.counters().count_miss(&mut missed, want);
                thread.wait(Waiting::Fetch { object: self.object.id, unit })?;
            }
            pinned.push(unit);
        }
        self.object.lend_pinned(&self.units);
        for unit in pinned {
            thread.stepping(|out| {
                self.object.step(thread.node.objects.guard(), unit, Some(thread.slot), out, |state, cx| state.unpin(cx))
            });
        }
        Ok(())
    }
}

fn wanted(write: bool) -> Want {
    if write { Want::Modified } else { Want::Shared }
}

/// The ranges that a thread uses.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pins: Vec<Pin>,
    /// Ranges in use under engines that lend copies.
    copies: Vec<Pin>,
    /// The pins are let go while the thread waits.
    are_let_go: bool,
}

impl Ranges {
    /// Whether some of these bytes lie in a range that is lent.
    pub(super) fn meet(&self, bytes: &[u8]) -> bool {
        self.pins.iter().any(|pin| pin.meets(bytes))
    }

    /// Whether the pins are let go.
    pub(super) fn are_let_go(&self) -> bool {
        self.are_let_go
    }

    /// Takes a range, which is over, out of the list of those in use.
    fn close(&mut self, object: &Object, range: &Range<usize>, write: bool) -> Result<Pin> {
        let list = if object.engine == Engine::Msi { &mut self.pins } else { &mut self.copies };
        let same = |p: &Pin| p.object.id == object.id && p.elements == *range && p.want == wanted(write);
        list.iter().rposition(same).map(|at| list.remove(at)).ok_or_else(|| Error::RangeNotBegun {
            range: range.clone(),
            object: object.label.clone(),
            write,
        })
    }

    /// The thread is about to wait: the pins to let go, unless they are already.
    fn let_go(&mut self) -> Vec<Pin> {
        if std::mem::replace(&mut self.are_let_go, true) { Vec::new() } else { self.pins.clone() }
    }

    /// The wait is over: the pins to take back, if they were let go.
    fn take_back(&mut self) -> Vec<Pin> {
        if std::mem::take(&mut self.are_let_go) { self.pins.clone() } else { Vec::new() }
    }
}

impl Thread {
    /// Brings a range here and keeps it: afterwards its memory may be accessed plainly until
    /// [`Thread::range_end`].
    pub(crate) fn range_begin(&self, object: &Arc<Object>, range: Range<usize>, write: bool) -> Result<()> {
        object.check_range(range.start, range.end)?;
        if range.is_empty() {
            return Ok(());
        }
        let pin = Pin::new(object, &range, write);
        match object.engine {
            Engine::Msi if pin.object.try_lend(&pin.units, pin.want) => {
                // So short that its time is not booked.
                self.state.borrow_mut().ranges.pins.push(pin);
                Ok(())
            }
            // Not all is here: every range of this thread is taken anew in the order of objects and units, which all
            // threads keep, so that no two wait for each other's.
            Engine::Msi => self.operation(|| {
                self.let_pins_go();
                self.state.borrow_mut().ranges.pins.push(pin);
                self.take_pins_back()
            }),
            Engine::Broadcast | Engine::Owner | Engine::Direct => {
                if object.engine == Engine::Owner {
                    self.operation(|| self.access(object).fetch_range_from_owners(&range))?;
                } else if object.lined().is_some() {
                    self.access(object).copy_range_from_lines(&range)?;
                }
                self.state.borrow_mut().ranges.copies.push(pin);
                Ok(())
            }
        }
    }

    /// Ends a range access; what was written becomes visible to others.
    ///
    /// # Errors
    /// When this thread has begun no such access.
    pub(crate) fn range_end(&self, object: &Arc<Object>, range: Range<usize>, write: bool) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let pin = self.state.borrow_mut().ranges.close(object, &range, write)?;
        match object.engine {
            Engine::Msi => pin.give_back(self),
            Engine::Broadcast if write => self.operation(|| self.access(object).tell_range(&range))?,
            Engine::Owner if write => self.operation(|| self.access(object).return_range_to_owners(&range))?,
            Engine::Direct if write && object.lined().is_some() => self.access(object).copy_range_to_lines(&range)?,
            Engine::Broadcast | Engine::Owner | Engine::Direct => {}
        }
        Ok(())
    }

    /// The thread goes away: others may have what it has left open.
    pub(super) fn end_ranges(&self) {
        let left = std::mem::take(&mut self.state.borrow_mut().ranges.pins);
        left.iter().for_each(|pin| pin.give_back(self));
    }

    /// About to wait: a thread that waits is not using its ranges, so others may have them meanwhile.
    pub(crate) fn let_pins_go(&self) {
        if let Some(shared) = self.node.shared().filter(|s| s.views.is_some()) {
            shared.let_units_go(self, None);
        }
        let pins = self.state.borrow_mut().ranges.let_go();
        pins.iter().for_each(|pin| pin.give_back(self));
    }

    /// The wait is over: every range that the program still uses comes back before it goes on.
    pub(crate) fn take_pins_back(&self) -> Result<()> {
        let mut pins = self.state.borrow_mut().ranges.take_back();
        pins.sort_by_key(Pin::key);
        for at in 0..pins.len() {
            pins[at].borrow(self, &pins, at)?;
        }
        Ok(())
    }
}

impl ObjectAccess<'_> {
    /// Brings what other nodes own of a range into this node's copy.
    fn fetch_range_from_owners(&self, range: &Range<usize>) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        let mut bytes = vec![0; range.len() * object.segments.element()];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            if object.home_of(unit) == thread.node.me() {
                return Ok(());
            }
            self.read_at_owner(unit, offset, &mut bytes[part.clone()])?;
            self.locally(unit, |memory| {
                memory.write(offset, &bytes[part]);
            })
        })
    }

    /// Nothing of a lent range is locked while the program uses it: it gets a copy, which nobody else writes to.
    fn copy_range_from_lines(&self, range: &Range<usize>) -> Result<()> {
        let ObjectAccess { object, .. } = *self;
        let mut bytes = vec![0; range.len() * object.segments.element()];
        self.read(range.start, &mut bytes)?;
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            self.locally(unit, |memory| {
                memory.write(offset, &bytes[part]);
            })
        })
    }

    /// Writes the copy of a range back.
    fn copy_range_to_lines(&self, range: &Range<usize>) -> Result<()> {
        let ObjectAccess { object, .. } = *self;
        let mut bytes = vec![0; range.len() * object.segments.element()];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            self.locally(unit, |memory| read_part(memory, offset, &mut bytes[part]))
        })?;
        self.write(range.start, &bytes)
    }

    /// Gives owners what was written to this node's copy of a range.
    fn return_range_to_owners(&self, range: &Range<usize>) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        let mut bytes = vec![0; range.len() * object.segments.element()];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            if object.home_of(unit) == thread.node.me() {
                return Ok(());
            }
            self.locally(unit, |memory| read_part(memory, offset, &mut bytes[part.clone()]))?;
            self.write_at_owner(unit, offset, &bytes[part])
        })
    }

    /// Tells all nodes what was written to a range.
    fn tell_range(&self, range: &Range<usize>) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        let element = object.segments.element();
        let mut bytes = vec![0; range.len() * element];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            self.locally(unit, |memory| read_part(memory, offset, &mut bytes[part.clone()]))?;
            thread.node.combine_write(thread.slot, object, (unit, offset), &bytes[part]);
            Ok(())
        })
    }
}
