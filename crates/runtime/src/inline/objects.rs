//! Shared objects in lines memory: the detector `explicit` with the engine `direct`.
//!
//! The program's own code has no checks, so the library's functions make them: a load looks at the value, a store
//! publishes a hazard and looks at the entry. What misses goes to the engine as checked code does. Nothing is ever
//! permitted in an object's permission bytes, so every access of the program comes here.
//!
//! A unit of the object lies in one unit of lines memory. Each node's units lie in grains of their own, so that the
//! homes are those that the object's placement names. Elements of more than 8 bytes are made whole by a lock of their
//! node: while a thread holds it no other one of its node brings the unit, so what it has copied is of one moment
//! unless a part of it was invalidated. Elements of more than a unit have a version before them, which is odd while
//! one is written.

use super::calls;
use crate::error::Result;
use crate::mutex::Mutex;
use crate::object::UnitHomes;
use crate::thread::Thread;
use comem_memory::lines::GRAIN_BYTES;
use comem_protocol::coherence::direct::{MAGIC, UNIT_BYTES};
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::region::{GRAIN_PAGES, Homes};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

const UNIT_MAX: usize = UNIT_BYTES[UNIT_BYTES.len() - 1];
/// Bytes before an element that is larger than a unit; the first 8 are its version.
const VERSION_BYTES: usize = 64;
/// Locks for elements wider than a word; units share them.
const LOCKS: usize = 64;

/// How the units of an object lie in lines memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Elements in a unit of the object.
    pub(crate) unit_elements: usize,
    /// Bytes of a unit of lines memory.
    pub(crate) unit_bytes: usize,
    /// Bytes from one unit of the object to the next of the same home: one unit of lines memory, or several.
    step: usize,
    /// Bytes from the begin of a unit of the object to its first element.
    skip: usize,
    element: usize,
    unit_homes: UnitHomes,
    nodes: usize,
    units: usize,
    /// Bytes between the first units of two homes: whole grains. `None` where that is more than there can be.
    stride: Option<usize>,
}

impl Shape {
    /// The shape of an object of `len` elements of `element` bytes. `chosen` is how many elements of a unit the program
    /// asks for, or 0; `unit_bytes` is the job's unit.
    pub(crate) fn new(
        (element, len): (usize, usize),
        chosen: usize,
        unit_bytes: usize,
        (unit_homes, nodes): (UnitHomes, usize),
    ) -> Shape {
        let is_large = element > UNIT_MAX;
        let (unit_elements, unit_bytes, step, skip) = if is_large {
            (1, UNIT_MAX, (VERSION_BYTES + element).next_multiple_of(UNIT_MAX), VERSION_BYTES)
        } else {
            let most = UNIT_MAX / element;
            let asked = if chosen == 0 { unit_bytes } else { chosen.min(most).min(len.max(1)) * element };
            let unit_bytes = asked.max(element).next_power_of_two().clamp(UNIT_BYTES[0], UNIT_MAX);
            let fit = unit_bytes / element;
            (if chosen == 0 { fit } else { chosen.min(fit) }.min(len.max(1)), unit_bytes, unit_bytes, 0)
        };
        let units = len.div_ceil(unit_elements);
        let shape = Shape { unit_elements, unit_bytes, step, skip, element, unit_homes, nodes, units, stride: None };
        Shape { stride: shape.stride(), ..shape }
    }

    fn stride(&self) -> Option<usize> {
        let each = match self.unit_homes {
            UnitHomes::Block => self.units.div_ceil(self.nodes),
            UnitHomes::Cyclic(k) => {
                let k = k.max(1) as usize;
                self.units.div_ceil(k).div_ceil(self.nodes).checked_mul(k)?
            }
            UnitHomes::On(_) => self.units,
        };
        each.max(1).checked_mul(self.step)?.checked_next_multiple_of(GRAIN_BYTES)
    }

    /// Bytes of lines memory, and where the homes of its grains are; `None` where that is more than there can be.
    pub(crate) fn region(&self) -> Option<(usize, Homes)> {
        let stride = self.stride?;
        Some(match self.unit_homes {
            UnitHomes::On(node) => (stride, Homes::On(node)),
            _ => {
                let pages =
                    u32::try_from(stride / PAGE_BYTES).ok().filter(|pages| pages.is_multiple_of(GRAIN_PAGES))?;
                (stride.checked_mul(self.nodes)?, Homes::Cyclic(pages))
            }
        })
    }

    /// Bytes from the begin of the region to a unit of the object, whose first element comes there.
    fn offset_of(&self, unit: usize) -> usize {
        let (home, rank) = match self.unit_homes {
            UnitHomes::Block => {
                // The last home takes what is left; `Object::home_of` rounds down.
                let home = unit * self.nodes / self.units.max(1);
                (home, unit - (home * self.units).div_ceil(self.nodes))
            }
            UnitHomes::Cyclic(k) => {
                let (k, run) = (k.max(1) as usize, unit / k.max(1) as usize);
                (run % self.nodes, run / self.nodes * k + unit % k)
            }
            UnitHomes::On(_) => (0, unit),
        };
        home * self.stride.unwrap_or(0) + rank * self.step + self.skip
    }

    fn is_word(&self) -> bool {
        self.element.is_power_of_two() && self.element <= size_of::<u64>()
    }
}

/// An object's elements in lines memory.
#[derive(Debug)]
pub(crate) struct Lined {
    start: usize,
    shape: Shape,
    locks: Box<[Mutex<()>]>,
}

impl Lined {
    /// The elements of an object whose region begins at `start`.
    pub(crate) fn new(start: usize, shape: Shape) -> Lined {
        let locks = if shape.is_word() { 0 } else { LOCKS };
        let locks = (0..locks).map(|_| Mutex::new(())).collect();
        Lined { start, shape, locks }
    }

    /// Where the elements of a unit begin.
    #[inline]
    fn unit(&self, unit: usize) -> usize {
        self.start + self.shape.offset_of(unit)
    }

    #[inline]
    fn word_at(&self, index: usize) -> usize {
        let unit = index / self.shape.unit_elements;
        self.unit(unit) + (index - unit * self.shape.unit_elements) * self.shape.element
    }

    /// Loads an element of up to a word, if its unit is valid here. The index is within the object.
    #[inline]
    pub(crate) fn load_here(&self, index: usize) -> Option<u64> {
        if !self.shape.is_word() {
            return None;
        }
        let at = self.word_at(index);
        let word = std::ptr::with_exposed_provenance_mut::<u32>(at & !3);
        if self.shape.element == size_of::<u64>() {
            // SAFETY: an aligned element of the object's region, which is mapped as long as the job; others use it
            // atomically. A closed grain is opened by its first touch.
            let value = unsafe { AtomicU64::from_ptr(word.cast()) }.load(Ordering::Acquire);
            return (value as u32 != MAGIC && (value >> 32) as u32 != MAGIC).then_some(value);
        }
        // SAFETY: the aligned word around an element, as above.
        let value = unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire);
        let mask = u64::MAX >> (64 - 8 * self.shape.element);
        (value != MAGIC).then_some(u64::from(value) >> (8 * (at & 3)) & mask)
    }

    /// Stores an element of up to a word, if this node holds its unit alone; whether it did. The index is within the
    /// object.
    #[inline]
    pub(crate) fn store_here(&self, index: usize, bytes: &[u8]) -> bool {
        if !self.shape.is_word() || bytes.len() != self.shape.element {
            return false;
        }
        let is_done = calls::store_at_once(self.word_at(index), bytes);
        // No later load of this thread comes before the store.
        fence(Ordering::SeqCst);
        is_done
    }

    /// Reads whole elements of one unit, each as it was at one time, from `offset` bytes behind its first element on.
    pub(crate) fn read(&self, thread: &Thread, unit: u32, offset: usize, out: &mut [u8]) -> Result<()> {
        let at = self.unit(unit as usize) + offset;
        if self.shape.is_word() {
            // SAFETY: elements of the object, and room for them.
            unsafe { calls::read(out.as_mut_ptr(), std::ptr::with_exposed_provenance(at), out.len()) };
            return Ok(());
        }
        if self.shape.skip == 0 {
            return self.alone_here(thread, at, || calls::read_whole(at, out));
        }
        let (version, mut rounds) = (at - self.shape.skip, 0);
        loop {
            let before = self.version(thread, version)?;
            if before.is_multiple_of(2) {
                for (start, part) in pieces(at, out.len()) {
                    self.alone_here(thread, start, || calls::read_whole(start, &mut out[part]))?;
                }
                if self.version(thread, version)? == before {
                    return Ok(());
                }
            }
            pause(thread, &mut rounds)?;
        }
    }

    /// Writes whole elements of one unit, each at one time.
    pub(crate) fn write(&self, thread: &Thread, unit: u32, offset: usize, bytes: &[u8]) -> Result<()> {
        let at = self.unit(unit as usize) + offset;
        if self.shape.is_word() {
            // SAFETY: elements of the object, and as many bytes.
            unsafe { calls::write(std::ptr::with_exposed_provenance_mut(at), bytes.as_ptr(), bytes.len()) };
        } else if self.shape.skip == 0 {
            self.alone_here(thread, at, || calls::write_whole(at, bytes))?;
        } else {
            self.write_large(thread, at - self.shape.skip, at, bytes)?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Runs a step while no other thread of this node uses the unit around an address.
    fn alone_here(&self, thread: &Thread, at: usize, step: impl FnOnce()) -> Result<()> {
        let lock = &self.locks[at / self.shape.unit_bytes % self.locks.len()];
        let mut rounds = 0;
        loop {
            if let Some(_held) = lock.try_lock() {
                step();
                return Ok(());
            }
            pause(thread, &mut rounds)?;
        }
    }

    fn version(&self, thread: &Thread, at: usize) -> Result<u64> {
        let mut bytes = [0; size_of::<u64>()];
        self.alone_here(thread, at, || calls::read_whole(at, &mut bytes))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes an element larger than a unit, whose version is odd meanwhile.
    fn write_large(&self, thread: &Thread, version: usize, at: usize, bytes: &[u8]) -> Result<()> {
        let mut rounds = 0;
        let even = loop {
            let now = self.version(thread, version)?;
            if now.is_multiple_of(2) && self.change(thread, version, now, now + 1)? {
                break now;
            }
            pause(thread, &mut rounds)?;
        };
        for (start, part) in pieces(at, bytes.len()) {
            self.alone_here(thread, start, || calls::write_whole(start, &bytes[part]))?;
        }
        self.change(thread, version, even + 1, even + 2).map(drop)
    }

    /// Changes a version in one step, if it is still `old`; whether it was.
    fn change(&self, thread: &Thread, at: usize, old: u64, new: u64) -> Result<bool> {
        let mut is_done = false;
        self.alone_here(thread, at, || is_done = calls::change(at, old, new))?;
        Ok(is_done)
    }
}

/// The parts of a large element that lie in one unit: where each begins, and which bytes of the element it has.
fn pieces(at: usize, bytes: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut start = at;
    std::iter::from_fn(move || {
        let end = ((start / UNIT_MAX + 1) * UNIT_MAX).min(at + bytes);
        let piece = (start, start - at..end - at);
        start = end;
        (!piece.1.is_empty()).then_some(piece)
    })
}

/// A turn of a wait for another thread, of this node or of another one: it spins at first.
fn pause(thread: &Thread, rounds: &mut u32) -> Result<()> {
    thread.home().life.goes_on()?;
    *rounds += 1;
    match *rounds {
        0..64 => std::hint::spin_loop(),
        64..128 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::ids::NodeId;

    /// Where each element of an object lies: its home by the region's rule, and its offset.
    fn places(shape: &Shape, element: usize, len: usize) -> Vec<(usize, usize)> {
        let (bytes, homes) = shape.region().expect("a region");
        let grain_bytes = GRAIN_BYTES;
        (0..len)
            .map(|index| {
                let unit = index / shape.unit_elements;
                let at = shape.offset_of(unit) + index % shape.unit_elements * element;
                assert!(at + element <= bytes);
                let home = match homes {
                    Homes::On(node) => node.index(),
                    Homes::Cyclic(pages) => at / grain_bytes / (pages / GRAIN_PAGES) as usize % shape.nodes,
                    ref other => panic!("{other:?}"),
                };
                (home, at)
            })
            .collect()
    }

    #[test]
    fn elements_lie_apart_in_units_whose_homes_the_placement_names() {
        let placements = [UnitHomes::Block, UnitHomes::Cyclic(1), UnitHomes::Cyclic(3), UnitHomes::On(NodeId(1))];
        for (element, len, chosen) in [(8, 1000, 0), (4, 7, 0), (12, 500, 3), (1, 3, 0), (3000, 40, 0), (48, 9, 0)] {
            for placement in placements {
                let shape = Shape::new((element, len), chosen, 64, (placement, 3));
                let units = len.div_ceil(shape.unit_elements);
                let places = places(&shape, element, len);
                for (index, (home, at)) in places.iter().enumerate() {
                    let unit = index / shape.unit_elements;
                    let expected = match placement {
                        UnitHomes::Block => unit * 3 / units,
                        UnitHomes::Cyclic(k) => unit / k as usize % 3,
                        UnitHomes::On(node) => node.index(),
                    };
                    assert_eq!(*home, expected, "{shape:?} {index}");
                    assert_eq!(at % element.min(4), 0);
                    let is_in_one_unit = at / shape.unit_bytes == (at + element - 1) / shape.unit_bytes;
                    assert_eq!(is_in_one_unit, element <= UNIT_MAX, "{shape:?}");
                }
                let mut starts: Vec<usize> = places.iter().map(|(_, at)| *at).collect();
                starts.sort_unstable();
                assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= element), "{shape:?}");
            }
        }
    }

    #[test]
    fn units_have_what_was_asked_for_as_far_as_lines_allow() {
        let shape = |element, chosen, unit_bytes| {
            let shape = Shape::new((element, 1 << 20), chosen, unit_bytes, (UnitHomes::Block, 2));
            (shape.unit_elements, shape.unit_bytes)
        };
        assert_eq!([shape(8, 0, 64), shape(8, 0, 2048), shape(4, 5, 64)], [(8, 64), (256, 2048), (5, 64)]);
        assert_eq!([shape(8, 350, 64), shape(100, 0, 64), shape(12, 100, 64)], [(256, 2048), (1, 128), (100, 2048)]);
        assert_eq!(shape(5000, 3, 64), (1, 2048));
    }

    #[test]
    fn pieces_of_large_elements_lie_in_one_unit() {
        let found: Vec<_> = pieces(UNIT_MAX * 3 + 64, 5000).collect();
        let lengths: Vec<_> = found.iter().map(|(_, part)| part.len()).collect();
        assert_eq!(lengths, [1984, 2048, 968]);
        assert!(found.iter().all(|(start, part)| start / UNIT_MAX == (start + part.len() - 1) / UNIT_MAX));
    }
}
