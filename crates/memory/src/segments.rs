//! The memory of one shared object: its elements, and one permission byte for each.
//!
//! A permission byte an element (not a unit) lets an access check it without a division or a shift: the element's
//! index is the byte's. The protocol changes them a unit at a time.

use crate::guard::{NONE, READ, StoreGuard, WRITE};
use crate::mapping::Mapping;
use comem_protocol::coherence::{Permission, UnitMemory};
use comem_protocol::ids::Slot;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Elements up to this size are loaded and stored by one instruction; wider ones under their unit's lock.
pub const WORD: usize = 8;

/// The memory of a shared object.
#[derive(Debug)]
pub struct Segments {
    data: Mapping,
    permissions: Mapping,
    element: usize,
    len: usize,
    unit_elements: usize,
    /// What is permitted in each unit: [`NONE`], [`READ`] or [`WRITE`], also where elements have no fast path.
    held: Box<[AtomicU8]>,
}

impl Segments {
    /// Memory for `len` elements of `element` bytes in units of `unit_elements`, all zero, nothing permitted.
    ///
    /// # Errors
    /// What the system says when there is no room.
    pub fn new(element: usize, len: usize, unit_elements: usize) -> io::Result<Segments> {
        let bytes = element.checked_mul(len).ok_or(io::ErrorKind::OutOfMemory)?;
        let data = Mapping::new(bytes)?;
        let permissions = Mapping::new(len)?;
        let unit_elements = unit_elements.clamp(1, len.max(1));
        let mut held = Vec::new();
        held.try_reserve_exact(len.div_ceil(unit_elements))?;
        held.resize_with(len.div_ceil(unit_elements), || AtomicU8::new(NONE));
        Ok(Segments { data, permissions, element, len, unit_elements, held: held.into() })
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in an element.
    pub fn element(&self) -> usize {
        self.element
    }

    /// Elements in a unit (the last may have fewer).
    pub fn unit_elements(&self) -> usize {
        self.unit_elements
    }

    /// How many units there are.
    pub fn units(&self) -> usize {
        self.len.div_ceil(self.unit_elements)
    }

    /// The unit of an element.
    pub fn unit_of(&self, element: usize) -> u32 {
        (element / self.unit_elements) as u32
    }

    /// The elements of a unit.
    pub fn elements_of(&self, unit: u32) -> std::ops::Range<usize> {
        let start = unit as usize * self.unit_elements;
        start..(start + self.unit_elements).min(self.len)
    }

    /// Whether all these units permit at least `permission`.
    ///
    /// # Safety
    /// No unit's permission changes meanwhile: the caller keeps engines from taking steps.
    pub unsafe fn all_hold(&self, units: std::ops::Range<u32>, permission: Permission) -> bool {
        let Some(held) = self.held.get(units.start as usize..units.end as usize) else { return false };
        // SAFETY: as many bytes as the slice has, and by the function's contract nobody stores to them.
        let held = unsafe { std::slice::from_raw_parts(held.as_ptr().cast::<u8>(), held.len()) };
        // Each level has the bits of the lower ones, so this looks at many units at once.
        held.iter().fold(WRITE, |all, unit| all & unit) >= level(permission)
    }

    /// Where the elements stand.
    pub fn data(&self) -> *mut u8 {
        self.data.start()
    }

    /// Where the permission bytes stand.
    pub fn permissions(&self) -> *const u8 {
        self.permissions.start()
    }

    fn permission(&self, element: usize) -> &AtomicU8 {
        debug_assert!(element < self.len);
        // SAFETY: the mapping holds `len` bytes and lives as long as `self`; they are only accessed as atomics.
        unsafe { AtomicU8::from_ptr(self.permissions.start().add(element)) }
    }

    /// Whether one instruction loads or stores an element.
    pub fn is_word(&self) -> bool {
        self.element.is_power_of_two() && self.element <= WORD
    }

    /// Loads whole elements from byte `start` on into `out`, each at once.
    ///
    /// # Safety
    /// The range lies within the data and begins and ends at elements; wide elements need their unit's lock.
    unsafe fn load(&self, start: usize, out: &mut [u8]) {
        // SAFETY: the caller keeps `start` within the mapping.
        let from = unsafe { self.data.start().add(start) };
        macro_rules! by {
            ($word:ty, $atomic:ty) => {
                for (i, chunk) in out.chunks_exact_mut(size_of::<$word>()).enumerate() {
                    // SAFETY: within the range by the caller's word, aligned because ranges begin at elements.
                    let word = unsafe { <$atomic>::from_ptr(from.cast::<$word>().add(i)) };
                    chunk.copy_from_slice(&word.load(Ordering::SeqCst).to_ne_bytes());
                }
            };
        }
        match self.element {
            1 => by!(u8, AtomicU8),
            2 => by!(u16, AtomicU16),
            4 => by!(u32, AtomicU32),
            8 => by!(u64, AtomicU64),
            // SAFETY: as above; nobody else touches wide elements without the lock that the caller holds.
            _ => unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) },
        }
    }

    /// Stores whole elements from byte `start` on, each at once.
    ///
    /// # Safety
    /// As for [`Segments::load`].
    unsafe fn store(&self, start: usize, bytes: &[u8], order: Ordering) {
        // SAFETY: the caller keeps `start` within the mapping.
        let to = unsafe { self.data.start().add(start) };
        macro_rules! by {
            ($word:ty, $atomic:ty) => {
                for (i, chunk) in bytes.as_chunks::<{ size_of::<$word>() }>().0.iter().enumerate() {
                    // SAFETY: within the range by the caller's word, aligned because ranges begin at elements.
                    let word = unsafe { <$atomic>::from_ptr(to.cast::<$word>().add(i)) };
                    word.store(<$word>::from_ne_bytes(*chunk), order);
                }
            };
        }
        match self.element {
            1 => by!(u8, AtomicU8),
            2 => by!(u16, AtomicU16),
            4 => by!(u32, AtomicU32),
            8 => by!(u64, AtomicU64),
            // SAFETY: as above; nobody else touches wide elements without the lock that the caller holds.
            _ => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) },
        }
    }
}

fn level(permission: Permission) -> u8 {
    match permission {
        Permission::None => NONE,
        Permission::Read => READ,
        Permission::Write => WRITE,
    }
}

/// One unit's memory, for the engine. Whoever makes one holds the unit's lock.
#[derive(Debug)]
pub struct UnitView<'a> {
    segments: &'a Segments,
    guard: &'a StoreGuard,
    caller: Option<Slot>,
    unit: u32,
    first: usize,
    count: usize,
    lent: bool,
    asked: Cell<bool>,
}

impl<'a> UnitView<'a> {
    /// The view of unit `unit`, for a step taken by `caller`.
    pub fn new(segments: &'a Segments, guard: &'a StoreGuard, caller: Option<Slot>, unit: u32) -> UnitView<'a> {
        let elements = segments.elements_of(unit);
        let (first, count) = (elements.start, elements.len());
        UnitView { segments, guard, caller, unit, first, count, lent: false, asked: Cell::new(false) }
    }

    /// Says that a range lent to the program covers the unit.
    pub fn lent(self, lent: bool) -> UnitView<'a> {
        UnitView { lent, ..self }
    }

    /// Whether the engine was kept from something because the unit is lent.
    pub fn kept_something_back(&self) -> bool {
        self.asked.get()
    }

    fn set(&self, permission: Permission) {
        self.segments.held[self.unit as usize].store(level(permission), Ordering::Release);
        let byte = self.byte(permission);
        for element in self.first..self.first + self.count {
            self.segments.permission(element).store(byte, Ordering::Relaxed);
        }
    }

    fn byte(&self, permission: Permission) -> u8 {
        match permission {
            Permission::None => NONE,
            Permission::Write if self.segments.is_word() && self.guard.fast() => WRITE,
            // A reader of wide elements takes the unit's lock as well, so nothing is permitted without.
            _ if !self.segments.is_word() => NONE,
            _ => READ,
        }
    }

    /// Byte range of the data that `offset` and `len` name, if it lies within the unit and at elements.
    fn place(&self, offset: usize, len: usize) -> Option<usize> {
        let element = self.segments.element;
        let end = offset.checked_add(len)?;
        let fits = end <= self.len() && offset.is_multiple_of(element) && len.is_multiple_of(element);
        fits.then_some(self.first * element + offset)
    }
}

impl UnitMemory for UnitView<'_> {
    fn len(&self) -> usize {
        self.count * self.segments.element
    }

    fn permit(&mut self, permission: Permission) {
        fence(Ordering::Release);
        self.set(permission);
    }

    fn revoke(&mut self, permission: Permission) {
        self.set(permission);
        self.guard.quiesce(self.caller);
    }

    fn is_lent(&self) -> bool {
        self.asked.set(self.asked.get() || self.lent);
        self.lent
    }

    fn copy_out(&self, out: &mut Vec<u8>) {
        let start = self.first * self.segments.element;
        out.reserve(self.len());
        // SAFETY: the unit lies within the mapping. Nobody stores to it: the engine copies only units whose write
        // permission it has revoked (or that were in S), and wide elements need the lock that the caller holds.
        let bytes = unsafe { std::slice::from_raw_parts(self.segments.data.start().add(start), self.len()) };
        out.extend_from_slice(bytes);
    }

    fn install(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len());
        // SAFETY: exactly the unit's elements; loads that lost their race see each element old or new.
        unsafe { self.segments.store(self.first * self.segments.element, bytes, Ordering::Relaxed) };
    }

    fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let Some(start) = self.place(offset, len) else { return false };
        let end = out.len();
        out.resize(end + len, 0);
        // SAFETY: `place` has checked the range; the caller holds the unit's lock.
        unsafe { self.segments.load(start, &mut out[end..]) };
        true
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let Some(start) = self.place(offset, bytes.len()) else { return false };
        // SAFETY: `place` has checked the range; the caller holds the unit's lock.
        unsafe { self.segments.store(start, bytes, Ordering::SeqCst) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::StoreFlag;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_units_permission_changes_for_its_elements_alone() {
        let (segments, guard) = (Segments::new(4, 10, 4).unwrap(), StoreGuard::new(true));
        let mut unit = UnitView::new(&segments, &guard, None, 1);
        unit.permit(Permission::Write);
        let bytes: Vec<u8> = (0..10).map(|i| segments.permission(i).load(Ordering::Relaxed)).collect();
        assert_eq!(bytes, [0, 0, 0, 0, 3, 3, 3, 3, 0, 0]);
        unit.revoke(Permission::Read);
        assert_eq!(segments.permission(5).load(Ordering::Relaxed), READ);
    }

    #[test]
    fn bytes_come_to_their_own_unit_and_out_of_it() {
        for element in [1_usize, 2, 4, 8, 24] {
            let (segments, guard) = (Segments::new(element, 7, 3).unwrap(), StoreGuard::new(true));
            assert_eq!(segments.is_word(), element <= 8);
            let bytes: Vec<u8> = (0..3 * element as u8).collect();
            UnitView::new(&segments, &guard, None, 1).install(&bytes);
            let mut all = Vec::new();
            (0..3).for_each(|unit| UnitView::new(&segments, &guard, None, unit).copy_out(&mut all));
            assert_eq!(all, [vec![0; 3 * element], bytes, vec![0; element]].concat());
        }
    }

    #[test]
    fn units_hold_a_permission_together_if_each_does() {
        let (segments, guard) = (Segments::new(8, 5, 2).unwrap(), StoreGuard::new(true));
        let unit = |unit| UnitView::new(&segments, &guard, None, unit);
        (0..3).for_each(|number| unit(number).permit(Permission::Write));
        unit(1).revoke(Permission::Read);
        let hold = |units, permission| {
            // SAFETY: no other thread knows these units.
            unsafe { segments.all_hold(units, permission) }
        };
        assert!(hold(0..1, Permission::Write) && hold(2..3, Permission::Write) && hold(0..3, Permission::Read));
        assert!(!hold(0..3, Permission::Write) && !hold(2..4, Permission::None));
    }

    #[test]
    fn without_the_handshake_no_store_is_fast() {
        let (segments, guard) = (Segments::new(4, 2, 1).unwrap(), StoreGuard::new(false));
        UnitView::new(&segments, &guard, None, 0).permit(Permission::Write);
        assert_eq!(segments.permission(0).load(Ordering::Relaxed), READ);
    }

    #[test]
    fn a_permission_is_revoked_when_no_store_is_under_way() {
        let (segments, guard) = (Segments::new(4, 1, 1).unwrap(), StoreGuard::new(true));
        let flag: &'static StoreFlag = Box::leak(Box::new(StoreFlag::new()));
        guard.attach(Slot::thread(0), flag);
        UnitView::new(&segments, &guard, None, 0).permit(Permission::Write);
        flag.writing.store(1, Ordering::SeqCst);
        let revoked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                UnitView::new(&segments, &guard, None, 0).revoke(Permission::None);
                revoked.store(true, Ordering::SeqCst);
            });
            while segments.permission(0).load(Ordering::SeqCst) != NONE {
                std::thread::yield_now();
            }
            (0..1_000).for_each(|_| std::thread::yield_now());
            assert!(!revoked.load(Ordering::SeqCst), "a store is under way");
            flag.writing.store(0, Ordering::SeqCst);
        });
        assert!(revoked.load(Ordering::SeqCst));
    }

    #[test]
    fn who_asked_whether_a_unit_is_lent_was_kept_from_something_if_it_is() {
        let (segments, guard) = (Segments::new(4, 1, 1).unwrap(), StoreGuard::new(true));
        for lent in [false, true] {
            let unit = UnitView::new(&segments, &guard, None, 0).lent(lent);
            assert!(!unit.kept_something_back());
            assert_eq!((unit.is_lent(), unit.kept_something_back()), (lent, lent));
        }
    }

    #[test]
    fn reads_and_writes_stay_within_the_unit_and_at_elements() {
        let (segments, guard) = (Segments::new(8, 5, 2).unwrap(), StoreGuard::new(true));
        let mut unit = UnitView::new(&segments, &guard, None, 2);
        assert_eq!(unit.len(), 8, "the last unit holds one element");
        assert!(unit.write(0, &7_u64.to_ne_bytes()));
        assert!(!unit.write(4, &[0; 4]) && !unit.write(8, &[0; 8]) && !unit.write(usize::MAX, &[0; 8]));
        let mut out = Vec::new();
        assert!(unit.read(0, 8, &mut out) && !unit.read(0, 16, &mut out));
        assert_eq!(out, 7_u64.to_ne_bytes());
        let mut unit = UnitView::new(&segments, &guard, None, 0);
        assert!(!unit.write(4, &[0; 8]) && !unit.write(0, &[0; 4]) && !unit.read(8, 16, &mut out), "not at elements");
    }

    #[test]
    fn wide_elements_are_never_touched_without_the_lock() {
        let (segments, guard) = (Segments::new(24, 4, 2).unwrap(), StoreGuard::new(true));
        UnitView::new(&segments, &guard, None, 0).permit(Permission::Write);
        assert_eq!(segments.permission(0).load(Ordering::Relaxed), NONE);
    }
}
