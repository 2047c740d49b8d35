//! One node's memory of the shared array, with the steps that real memory has.
//!
//! A store is four steps, between any two of which the service thread or another thread may act: raise the flag, check
//! the permission, store, lower the flag. What lies between the check and the store stands in
//! [`Memory::check_store`]'s list; to wait for a raised flag *is* to let the stores of that list be made.

use crate::program::Shape;
use comem_protocol::coherence::{Permission, UnitMemory};
use comem_protocol::ids::Slot;
use comem_protocol::rules::Rule;

/// A store whose permission was checked and that is not made yet.
#[derive(Clone, Debug)]
struct CheckedStore {
    slot: Slot,
    element: usize,
    value: u64,
}

/// The memory of one node.
#[derive(Clone, Debug)]
pub struct Memory {
    shape: Shape,
    bytes: Vec<u8>,
    permissions: Vec<Permission>,
    checked: Vec<CheckedStore>,
}

impl Memory {
    /// Memory for an array of this shape, all zero, nothing permitted.
    pub fn new(shape: Shape) -> Memory {
        Memory {
            shape,
            bytes: vec![0; shape.elements * shape.width],
            permissions: vec![Permission::None; shape.units()],
            checked: Vec::new(),
        }
    }

    /// What a thread may do with an element without a lock; elements wider than a word allow nothing.
    pub fn permission(&self, element: usize) -> Permission {
        if self.shape.is_word() { self.permissions[self.shape.unit_of(element) as usize] } else { Permission::None }
    }

    /// Loads an element; `None` when its words are not of one store.
    pub fn load(&self, element: usize) -> Option<u64> {
        let start = element * self.shape.width;
        decode(&self.bytes[start..start + self.shape.width])
    }

    /// Stores an element, whether that is permitted or not.
    pub fn store(&mut self, element: usize, value: u64) {
        let start = element * self.shape.width;
        encode(value, &mut self.bytes[start..start + self.shape.width]);
    }

    /// The second step of a store: checks the permission. Afterwards the store will be made, come what may.
    pub fn check_store(&mut self, slot: Slot, element: usize, value: u64) -> bool {
        let may = self.permission(element) == Permission::Write;
        if may {
            self.checked.push(CheckedStore { slot, element, value });
        }
        may
    }

    /// The third step of a store; does nothing when a revocation has waited for it.
    pub fn make_store(&mut self, slot: Slot) {
        if let Some(at) = self.checked.iter().position(|s| s.slot == slot) {
            let store = self.checked.remove(at);
            self.store(store.element, store.value);
        }
    }

    /// Lets every store be made that was checked before.
    fn quiesce(&mut self) {
        for store in std::mem::take(&mut self.checked) {
            self.store(store.element, store.value);
        }
    }
}

/// Writes a value as an element of any width: wide ones repeat it, so that a torn one shows.
pub fn encode(value: u64, out: &mut [u8]) {
    match out.len() {
        4 => out.copy_from_slice(&(value as u32).to_be_bytes()),
        _ => out.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = value.to_be_bytes()),
    }
}

/// Reads an element's value; `None` when it is torn.
pub fn decode(bytes: &[u8]) -> Option<u64> {
    if let Ok(word) = <[u8; 4]>::try_from(bytes) {
        return Some(u64::from(u32::from_be_bytes(word)));
    }
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}

/// One unit of the memory, for the engine.
pub struct UnitView<'a> {
    /// The memory.
    pub memory: &'a mut Memory,
    /// The unit's number.
    pub unit: u32,
}

impl UnitView<'_> {
    fn start(&self) -> usize {
        self.unit as usize * self.memory.shape.unit_elements * self.memory.shape.width
    }

    fn place(&self, offset: usize, len: usize) -> Option<std::ops::Range<usize>> {
        let width = self.memory.shape.width;
        let end = offset.checked_add(len)?;
        let fits = end <= self.len() && offset.is_multiple_of(width) && len.is_multiple_of(width);
        fits.then(|| self.start() + offset..self.start() + end)
    }
}

impl UnitMemory for UnitView<'_> {
    fn len(&self) -> usize {
        self.memory.shape.elements_of(self.unit).len() * self.memory.shape.width
    }
    fn permit(&mut self, permission: Permission) {
        self.memory.permissions[self.unit as usize] = permission;
    }
    fn revoke(&mut self, permission: Permission) {
        self.memory.permissions[self.unit as usize] = permission;
        if Rule::RevokeWaitsForStores.on() {
            self.memory.quiesce();
        }
    }
    fn copy_out(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.memory.bytes[self.start()..self.start() + self.len()]);
    }
    fn install(&mut self, bytes: &[u8]) {
        let start = self.start();
        self.memory.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }
    fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let place = self.place(offset, len);
        if let Some(place) = place.clone() {
            out.extend_from_slice(&self.memory.bytes[place]);
        }
        place.is_some()
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let place = self.place(offset, bytes.len());
        if let Some(place) = place.clone() {
            self.memory.bytes[place].copy_from_slice(bytes);
        }
        place.is_some()
    }
}
