//! The shared memory in which orders stand: one place for each slot, one for each node's description of itself.

use super::globals::Version;
use crate::failure::Outcome;
use crate::variable;
use comem_rt::heap::{Home, RegionOptions};
use comem_rt::{Comem, NodeId};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// An order to a slot. No function: there is no more work.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Order {
    /// The function's address, the same on every node.
    pub function: usize,
    /// What it is called with: CREATE_WITH_ARG's, or 0.
    pub argument: usize,
    /// Which time it is that main creates workers with none at work; GET_PID counts anew each time.
    pub round: u32,
    /// Which of the slot's orders it is.
    pub serial: u64,
    /// The version of the program's globals that it begins with.
    pub version: Version,
}

/// Bytes for a node's description.
const DESCRIPTION_BYTES: usize = 8192;

/// What a node's description begins with.
#[derive(Clone, Copy)]
#[repr(C)]
struct Described {
    bytes: usize,
    /// Where it stands if it is longer than the room behind this; 0: there.
    elsewhere: usize,
}

/// Where orders stand.
pub struct Control {
    /// One for each slot, written by node 0.
    orders: *mut Order,
    /// One for each slot, written there: the serial of the last order that it has carried out. A cache line each.
    carried_out: *mut [u64; 8],
    /// One for each node, written there: where it stands, and mostly its bytes.
    descriptions: *mut u8,
    /// GET_PID's count: the round, and how many callers have a number in it.
    callers: *mut u64,
}

// SAFETY: the memory is shared by design; every access is ordered by the semaphores of this module's parent.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// Makes the place for `slots` slots; every node calls this.
    pub fn new(job: &Comem, slots: usize) -> Outcome<Control> {
        let orders_bytes = slots * size_of::<Order>();
        let descriptions_bytes = job.nodes() * DESCRIPTION_BYTES;
        let bytes = 2 * orders_bytes + descriptions_bytes + size_of::<u64>();
        let start: *mut u8 = if job.nodes() == 1 {
            Vec::leak(vec![Order::default(); bytes.div_ceil(size_of::<Order>())]).as_mut_ptr().cast()
        } else {
            let homes = Home::On(NodeId(0));
            let label = "orders to workers".to_string();
            job.alloc_all(bytes, &RegionOptions { home: homes, label, keeps_pages: true, ..RegionOptions::default() })?
        };
        // SAFETY: all four lie within the bytes just allocated; the sizes are multiples of the alignment.
        let (ended, descriptions, callers) = unsafe {
            let descriptions = start.add(2 * orders_bytes);
            (start.add(orders_bytes), descriptions, descriptions.add(descriptions_bytes))
        };
        Ok(Control { orders: start.cast(), carried_out: ended.cast(), descriptions, callers: callers.cast() })
    }

    /// GET_PID's number for a caller in this round: how many have come before.
    pub fn number_in(&self, round: u32) -> Outcome<u32> {
        let counted = |word: u64| {
            let so_far = if (word >> 32) as u32 == round { word as u32 } else { 0 };
            (u64::from(round) << 32 | u64::from(so_far + 1), so_far)
        };
        variable::alone("GET_PID", self.callers.cast(), size_of::<u64>(), |_| {
            // SAFETY: allocated by `new`, aligned, and used here alone.
            let callers = unsafe { AtomicU64::from_ptr(self.callers) };
            let (Ok(before) | Err(before)) = callers.fetch_update(AcqRel, Acquire, |word| Some(counted(word).0));
            (counted(before).1, true)
        })
    }

    /// Writes a slot's order.
    pub fn give(&self, slot: usize, order: Order) {
        // SAFETY: there is a place for each slot.
        unsafe { self.orders.add(slot).write_volatile(order) }
    }

    /// A slot's order.
    pub fn order(&self, slot: usize) -> Order {
        // SAFETY: as above.
        unsafe { self.orders.add(slot).read_volatile() }
    }

    /// Notes that a slot has carried out the order with this serial.
    pub fn set_carried_out(&self, slot: usize, serial: u64) {
        // SAFETY: as above; the first word of the slot's line.
        unsafe { self.carried_out.add(slot).cast::<u64>().write_volatile(serial) }
    }

    /// The last order that a slot has carried out.
    pub fn carried_out(&self, slot: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.carried_out.add(slot).cast::<u64>().read_volatile() }
    }

    /// Writes what a node says of itself.
    pub fn describe(&self, job: &Comem, node: usize, text: &str) -> Outcome<()> {
        // SAFETY: there is a place of this size for each node.
        let (place, room) = unsafe {
            let place = self.descriptions.add(node * DESCRIPTION_BYTES);
            (place, place.add(size_of::<Described>()))
        };
        let fits = text.len() <= DESCRIPTION_BYTES - size_of::<Described>();
        let to = if fits { room } else { job.alloc_piece(text.len(), Some(NodeId(0)))? };
        let elsewhere = if fits { 0 } else { to.expose_provenance() };
        // SAFETY: there is room for so many bytes, and only the node itself writes there.
        unsafe {
            place.cast::<Described>().write_volatile(Described { bytes: text.len(), elsewhere });
            std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
        }
        Ok(())
    }

    /// What a node has said of itself.
    pub fn description(&self, node: usize) -> String {
        // SAFETY: there is a place of this size for each node; the node that wrote there has said so since.
        let bytes = unsafe {
            let place = self.descriptions.add(node * DESCRIPTION_BYTES);
            let Described { bytes, elsewhere } = place.cast::<Described>().read_volatile();
            let from = match elsewhere {
                0 => place.add(size_of::<Described>()).cast_const(),
                address => std::ptr::with_exposed_provenance(address),
            };
            std::slice::from_raw_parts(from, bytes).to_vec()
        };
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
