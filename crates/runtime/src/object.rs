//! A shared object in one node: its memory, the state of its units, and who is home to which.

use crate::error::{Error, Result};
use crate::inline::objects::{Lined, Shape};
use crate::mutex::{Mutex, RwLock};
use comem_memory::{Segments, StoreGuard, UnitView};
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::coherence::{Context, Engine, Permission, UnitMemory};
use comem_protocol::ids::{NodeId, ObjectId, Slot, UnitId};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::message::Want;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest unit: it must fit one message at the smallest usual path MTU (255 fragments of about 1,400 bytes).
pub const UNIT_BYTES_MAX: usize = 256 * 1024;

/// Those [`Homes`] that an object's units can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum UnitHomes {
    /// Consecutive runs of units, one for each node.
    #[default]
    Block,
    /// `k` units to each node in turn.
    Cyclic(u32),
    /// All on one node.
    On(NodeId),
}

impl UnitHomes {
    /// `None` for homes that only pages have.
    pub(crate) fn of(homes: &Homes) -> Option<UnitHomes> {
        match homes {
            Homes::Block | Homes::Automatic => Some(UnitHomes::Block),
            Homes::Cyclic(units) => Some(UnitHomes::Cyclic(*units)),
            Homes::On(node) => Some(UnitHomes::On(*node)),
            Homes::FirstTouch | Homes::StartingOn(_) | Homes::Claimed | Homes::Dealt(_) => None,
        }
    }
}

/// How an object is shared; the default suits most.
#[derive(Clone, Debug)]
pub struct ObjectOptions {
    /// Elements in a coherence unit; 0 lets Comem choose, so that a unit's message fills about one datagram but every
    /// node has several units. Under the engine `direct` a unit has 64 to 2048 bytes: of what is asked for as many
    /// elements as fit, and of 0 as many as fit the job's unit (`--unit-bytes`).
    pub unit_elements: usize,
    /// The engine; `None` takes the job's.
    pub engine: Option<Engine>,
    /// Which nodes are home to the units (under `owner`: own them): [`Homes::Block`], which is automatic, too,
    /// [`Homes::Cyclic`] (so many units to each node in turn) or [`Homes::On`]; pages alone have others.
    pub home: Homes,
    /// A name for reports.
    pub label: Option<String>,
}

impl Default for ObjectOptions {
    fn default() -> ObjectOptions {
        ObjectOptions { unit_elements: 0, engine: None, home: Homes::Automatic, label: None }
    }
}

/// A shared object.
#[derive(Debug)]
pub struct Object {
    /// Its number, the same on every node.
    pub id: ObjectId,
    /// Its engine.
    pub engine: Engine,
    /// Its name in reports.
    pub label: String,
    /// Its memory.
    pub segments: Segments,
    units: Box<[Mutex<Unit>]>,
    /// The ranges of units that are lent to the program just now. Steps hold it for reading: none is under way while a
    /// range is lent or given back.
    lent: RwLock<Vec<Range<u32>>>,
    /// Units in lent ranges that somebody wants.
    wanted: Mutex<BTreeSet<u32>>,
    /// How many those are, to look at without the lock.
    wanted_count: AtomicUsize,
    homes: UnitHomes,
    nodes: usize,
    me: NodeId,
    /// Where the elements are under `direct`, once there is memory for them; in a job of one node they are in the
    /// segments. With several nodes the segments hold copies of ranges that are lent.
    lined: OnceLock<Lined>,
}

/// Elements in a unit when the program leaves the choice to Comem.
///
/// Small units cost a message each for few bytes, large ones carry bytes that nobody asked for: aim at one
/// datagram, but leave each node at least eight units so that neighbours share only their borders.
pub fn automatic_unit(element: usize, len: usize, nodes: usize, datagram: usize) -> usize {
    let one_datagram = (datagram / element.max(1)).max(1);
    let several_each = len.div_ceil(nodes * 8).max(1);
    let not_tiny = (64 / element.max(1)).max(1);
    one_datagram.min(several_each).max(not_tiny).min(len.max(1))
}

impl Object {
    /// Calls `f` for each unit of a run of elements that has so many bytes: the unit, where the run begins in it, and
    /// the run's bytes there.
    ///
    /// # Errors
    /// When these are not elements of the object, or that of `f`.
    pub(crate) fn each_unit(
        &self,
        start: usize,
        bytes: usize,
        mut f: impl FnMut(u32, usize, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let element = self.segments.element();
        let end = start.saturating_add(bytes / element);
        self.check_range(start, end)?;
        let mut at = start;
        while at < end {
            let unit = self.segments.unit_of(at);
            let elements = self.segments.elements_of(unit);
            let stop = elements.end.min(end);
            let part = (at - start) * element..(stop - start) * element;
            f(unit, (at - elements.start) * element, part)?;
            at = stop;
        }
        Ok(())
    }

    /// Whether these are elements of the object.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) fn check_range(&self, start: usize, end: usize) -> Result<()> {
        let len = self.segments.len();
        if start <= end && end <= len {
            return Ok(());
        }
        Err(Error::OutOfRange { range: start..end, object: self.label.clone(), len })
    }

    /// Makes the object's memory and units, with the permissions that fresh units have.
    pub fn new(
        id: ObjectId,
        shape: (usize, usize, usize),
        engine: Engine,
        options: &ObjectOptions,
        (me, nodes): (NodeId, usize),
        guard: &StoreGuard,
    ) -> io::Result<Object> {
        let (element, len, unit_elements) = shape;
        let count = len.div_ceil(unit_elements.clamp(1, len.max(1)));
        let count = u32::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let segments = Segments::new(element, len, unit_elements)?;
        let mut object = Object {
            id,
            engine,
            label: options.label.clone().unwrap_or_else(|| format!("array {}", id.0)),
            segments,
            units: Box::default(),
            lent: RwLock::default(),
            wanted: Mutex::default(),
            wanted_count: AtomicUsize::new(0),
            homes: UnitHomes::of(&options.home).unwrap_or_default(),
            nodes,
            me,
            lined: OnceLock::new(),
        };
        let mut units = Vec::new();
        units.try_reserve_exact(count as usize)?;
        units.extend((0..count).map(|u| Mutex::new(Unit::new(object.home_of(u) == me))));
        object.units = units.into();
        for unit in 0..count {
            let here = object.home_of(unit) == me;
            let permission = match engine {
                Engine::Owner if here => Permission::Write,
                Engine::Owner => Permission::None,
                // Writes go the slow way because others must be told; alone there is nobody to tell.
                Engine::Broadcast if nodes == 1 => Permission::Write,
                Engine::Broadcast => Permission::Read,
                // The library looks at the values and at the entries of lines, not at permissions.
                Engine::Direct if nodes > 1 => Permission::None,
                Engine::Direct => Permission::Write,
                Engine::Msi => Unit::first_permission(here),
            };
            if permission != Permission::None {
                UnitView::new(&object.segments, guard, None, unit).permit(permission);
            }
        }
        Ok(object)
    }

    /// The node that is home to a unit.
    pub fn home_of(&self, unit: u32) -> NodeId {
        let (units, nodes) = (self.segments.units().max(1) as u64, self.nodes as u64);
        match self.homes {
            UnitHomes::Block => NodeId((u64::from(unit) * nodes / units) as u16),
            UnitHomes::Cyclic(k) => NodeId((u64::from(unit / k.max(1)) % nodes) as u16),
            UnitHomes::On(node) => node,
        }
    }

    /// The elements in lines memory, if that is where they are.
    #[inline]
    pub(crate) fn lined(&self) -> Option<&Lined> {
        self.lined.get()
    }

    /// Says where in lines memory the elements are.
    pub(crate) fn lies_in(&self, lined: Lined) {
        let _ = self.lined.set(lined);
    }

    /// How the units lie in lines memory whose unit is `unit_bytes`; `chosen` is what the program asks of a unit.
    pub(crate) fn shape(&self, chosen: usize, unit_bytes: usize) -> Shape {
        let shape = (self.segments.element(), self.segments.len());
        Shape::new(shape, chosen, unit_bytes, (self.homes, self.nodes))
    }

    /// How many units there are.
    #[cfg(test)]
    fn units(&self) -> u32 {
        self.units.len() as u32
    }

    /// Locks a unit and takes a step with its state and memory; `None` when there is no such unit.
    pub fn step<R>(
        &self,
        guard: &StoreGuard,
        unit: u32,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let lent = self.lent.read();
        let covered = lent.iter().any(|units| units.contains(&unit));
        let mut state = self.units.get(unit as usize)?.lock();
        let mut memory = UnitView::new(&self.segments, guard, caller, unit).lent(covered);
        let mut cx = Context {
            me: self.me,
            nodes: self.nodes,
            caller,
            unit: UnitId { object: self.id, index: unit },
            home: self.home_of(unit),
            memory: &mut memory,
            out,
        };
        let result = step(&mut state, &mut cx);
        if memory.kept_something_back() {
            let mut wanted = self.wanted.lock();
            // Every step of a thread that uses it meanwhile comes by here.
            wanted.insert(unit);
            self.wanted_count.store(wanted.len(), Ordering::Release);
        }
        Some(result)
    }

    /// Lends units that are all here in the state wanted and that nobody else waits for; `false` when some are not.
    pub fn try_lend(&self, units: &Range<u32>, want: Want) -> bool {
        let permission = if want == Want::Modified { Permission::Write } else { Permission::Read };
        let mut lent = self.lent.write();
        let wanted = || {
            self.wanted_count.load(Ordering::Acquire) > 0 && self.wanted.lock().range(units.clone()).next().is_some()
        };
        // SAFETY: steps hold `lent` for reading, and here it is held for writing.
        let here = !wanted() && unsafe { self.segments.all_hold(units.clone(), permission) };
        if here {
            lent.push(units.clone());
        }
        here
    }

    /// Whether anything is lent.
    pub fn is_lent(&self) -> bool {
        !self.lent.read().is_empty()
    }

    /// Lends units that the caller has pinned one by one.
    pub fn lend_pinned(&self, units: &Range<u32>) {
        self.lent.write().push(units.clone());
    }

    /// Ends a lending; gives the units that somebody waits for, to be settled.
    pub fn end_lending(&self, units: &Range<u32>) -> Vec<u32> {
        let mut lent = self.lent.write();
        if let Some(at) = lent.iter().rposition(|other| other == units) {
            lent.swap_remove(at);
        }
        if self.wanted_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut wanted = self.wanted.lock();
        let mut now = wanted.split_off(&units.start);
        wanted.append(&mut now.split_off(&units.end));
        self.wanted_count.store(wanted.len(), Ordering::Release);
        now.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::coherence::msi::Begin;
    use comem_protocol::ids::{Channel, Seq};
    use comem_protocol::wire::message::Ticket;

    #[test]
    fn automatic_units_fill_a_datagram_but_leave_every_node_several() {
        assert_eq!(automatic_unit(4, 1 << 20, 4, 1400), 350);
        assert_eq!(automatic_unit(8, 256, 4, 1400), 8);
        assert_eq!(automatic_unit(4, 10, 2, 1400), 10, "never less than a cache line, never more than there is");
        assert_eq!(automatic_unit(4096, 100, 2, 1400), 1);
    }

    #[test]
    fn a_lent_unit_that_is_used_while_somebody_wants_it_is_noted_once() {
        let guard = StoreGuard::new(false);
        let here = ObjectOptions { home: Homes::On(NodeId(0)), ..ObjectOptions::default() };
        let object = Object::new(ObjectId(0), (4, 8, 4), Engine::Msi, &here, (NodeId(0), 2), &guard).unwrap();
        assert!(object.try_lend(&(0..2), Want::Modified));
        let (mut out, channel) = (Outbox::new(), Channel::service(NodeId(1)));
        for unit in 0..2 {
            let ticket = Ticket { channel, seq: Seq::guarded(channel, u64::from(unit)) };
            let asked = object.step(&guard, unit, None, &mut out, |u, cx| u.on_get(cx, ticket, Want::Modified));
            assert_eq!(asked, Some(Ok(())));
        }
        for unit in [0, 1].repeat(1000) {
            object.step(&guard, unit, Some(Slot(1)), &mut out, |u, cx| {
                assert_eq!(u.begin(cx, Slot(1), Want::Shared, false), Begin::Hit);
                u.settle(cx);
            });
        }
        assert_eq!((object.wanted_count.load(Ordering::Relaxed), out.is_empty()), (2, true));
        assert_eq!(object.end_lending(&(0..2)), [0, 1]);
    }

    #[test]
    fn more_units_than_there_is_room_for_are_an_error() {
        let (guard, options) = (StoreGuard::new(false), ObjectOptions::default());
        for len in [1 << 34, 1 << 43] {
            let object =
                Object::new(ObjectId(0), (1, len, 1), Engine::Msi, &options, (NodeId(0), 1), &guard).map(|_| ());
            assert_eq!(object.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn every_unit_has_a_home_among_the_nodes() {
        let guard = StoreGuard::new(false);
        for homes in [Homes::Block, Homes::Cyclic(3), Homes::On(NodeId(2))] {
            let options = ObjectOptions { home: homes, ..ObjectOptions::default() };
            let who = (NodeId(0), 3);
            let object = Object::new(ObjectId(0), (4, 100, 3), Engine::Msi, &options, who, &guard).unwrap();
            let homes: Vec<_> = (0..object.units()).map(|u| object.home_of(u).0).collect();
            assert!(homes.iter().all(|h| *h < 3), "{homes:?}");
        }
    }
}
