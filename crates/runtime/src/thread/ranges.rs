//! Ranges of elements that are lent to the program as plain memory.

use super::Thread;
use super::object_access::read_part;
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
            Engine::Msi => self.operation(|| self.pin_range(pin)),
            Engine::Broadcast | Engine::Owner | Engine::Direct => {
                if object.engine == Engine::Owner {
                    self.operation(|| self.fetch_range_from_owners(object, &range))?;
                } else if object.lined().is_some() {
                    self.copy_range_from_lines(object, &range)?;
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
            Engine::Msi => self.give_back(&pin),
            Engine::Broadcast if write => self.operation(|| self.tell_range(object, &range))?,
            Engine::Owner if write => self.operation(|| self.return_range_to_owners(object, &range))?,
            Engine::Direct if write && object.lined().is_some() => self.copy_range_to_lines(object, &range)?,
            Engine::Broadcast | Engine::Owner | Engine::Direct => {}
        }
        Ok(())
    }

    /// Borrows a range that is not all here: every range of this thread is taken anew in the order of objects and
    /// units, which all threads keep, so that no two wait for each other's.
    fn pin_range(&self, pin: Pin) -> Result<()> {
        self.let_pins_go();
        self.state.borrow_mut().ranges.pins.push(pin);
        self.take_pins_back()
    }

    /// The thread goes away: others may have what it has left open.
    pub(super) fn end_ranges(&self) {
        let left = std::mem::take(&mut self.state.borrow_mut().ranges.pins);
        left.iter().for_each(|pin| self.give_back(pin));
    }

    /// Ends a lending, and serves those who waited for it.
    pub(super) fn give_back(&self, pin: &Pin) {
        for unit in pin.object.end_lending(&pin.units) {
            self.stepping(|out| {
                pin.object.step(self.node.objects.guard(), unit, Some(self.slot), out, |state, cx| state.settle(cx))
            });
        }
    }

    /// About to wait: a thread that waits is not using its ranges, so others may have them meanwhile.
    pub(crate) fn let_pins_go(&self) {
        if let Some(shared) = self.node.shared().filter(|s| s.views.is_some()) {
            self.let_go_of(shared, None);
        }
        let pins = self.state.borrow_mut().ranges.let_go();
        pins.iter().for_each(|pin| self.give_back(pin));
    }

    /// The wait is over: every range that the program still uses comes back before it goes on.
    pub(crate) fn take_pins_back(&self) -> Result<()> {
        let mut pins = self.state.borrow_mut().ranges.take_back();
        pins.sort_by_key(Pin::key);
        for at in 0..pins.len() {
            self.borrow_again(&pins, at)?;
        }
        Ok(())
    }

    /// Borrows range `at` of `pins`, all earlier ones being borrowed. What another range of this thread needs for
    /// writing is asked for writing at once: a unit that is lent cannot be upgraded while somebody else wants it.
    pub(super) fn borrow_again(&self, pins: &[Pin], at: usize) -> Result<()> {
        let pin = &pins[at];
        let writes = pins.iter().any(|other| other.want == Want::Modified && other.overlaps(pin));
        let want = if writes { Want::Modified } else { pin.want };
        if pin.object.try_lend(&pin.units, want) {
            return Ok(());
        }
        let mut pinned = Vec::new();
        let mine = |unit: u32| pins[..at].iter().any(|p| p.object.id == pin.object.id && p.units.contains(&unit));
        for unit in pin.units.clone().filter(|unit| !mine(*unit)) {
            let mut missed = false;
            while !self.try_unit(&pin.object, unit, want, true, &mut |_| ()) {
                self.counters().count_miss(&mut missed, want);
                self.wait(Waiting::Fetch { object: pin.object.id, unit })?;
            }
            pinned.push(unit);
        }
        pin.object.lend_pinned(&pin.units);
        for unit in pinned {
            self.stepping(|out| {
                pin.object.step(self.node.objects.guard(), unit, Some(self.slot), out, |state, cx| state.unpin(cx))
            });
        }
        Ok(())
    }

    pub(super) fn fetch_range_from_owners(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let mut bytes = vec![0; range.len() * object.segments.element()];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            if object.home_of(unit) == self.node.me() {
                return Ok(());
            }
            self.read_at_owner(object, unit, offset, &mut bytes[part.clone()])?;
            self.locally(object, unit, |memory| {
                memory.write(offset, &bytes[part]);
            })
        })
    }

    /// Nothing of a lent range is locked while the program uses it: it gets a copy, which nobody else writes to.
    fn copy_range_from_lines(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let mut bytes = vec![0; range.len() * object.segments.element()];
        self.read_elements(object, range.start, &mut bytes)?;
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            self.locally(object, unit, |memory| {
                memory.write(offset, &bytes[part]);
            })
        })
    }

    fn copy_range_to_lines(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let mut bytes = vec![0; range.len() * object.segments.element()];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            self.locally(object, unit, |memory| read_part(memory, offset, &mut bytes[part]))
        })?;
        self.write_elements(object, range.start, &bytes)
    }

    pub(super) fn return_range_to_owners(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let mut bytes = vec![0; range.len() * object.segments.element()];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            if object.home_of(unit) == self.node.me() {
                return Ok(());
            }
            self.locally(object, unit, |memory| read_part(memory, offset, &mut bytes[part.clone()]))?;
            self.write_at_owner(object, unit, offset, &bytes[part])
        })
    }

    pub(super) fn tell_range(&self, object: &Arc<Object>, range: &Range<usize>) -> Result<()> {
        let element = object.segments.element();
        let mut bytes = vec![0; range.len() * element];
        object.each_unit(range.start, bytes.len(), |unit, offset, part| {
            self.locally(object, unit, |memory| read_part(memory, offset, &mut bytes[part.clone()]))?;
            self.node.combine_write(self.slot, object, (unit, offset), &bytes[part]);
            Ok(())
        })
    }
}
