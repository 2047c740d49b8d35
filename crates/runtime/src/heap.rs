//! Shared memory for ordinary loads and stores: allocated here, at the same address on every node.
//!
//! ```no_run
//! use comem::PageSlice;
//! use comem::heap::RegionOptions;
//!
//! let comem = comem::start()?;
//! let grid: PageSlice<f64> = comem.page_slice(1 << 20, &RegionOptions::default())?;
//! comem.parallel(|t| {
//!     for i in t.split(grid.len()) {
//!         grid.set(i, i as f64);
//!     }
//!     t.barrier();
//!     assert_eq!(grid.get(7), 7.0);
//! });
//! comem.finish()?;
//! # Ok::<(), comem::Error>(())
//! ```

pub use crate::config::size as size_bytes;
pub use crate::shared::heap::alloc::RegionOptions;
pub use crate::shared::one_sided::atomic::Word;
/// Makes a struct of plain fields [`Plain`], and an [`Element`](crate::Element) of shared arrays.
pub use comem_derive::Plain;
pub use comem_protocol::coherence::pages::PageEngine;
#[doc(hidden)]
pub use comem_protocol::coherence::pages::atomic::{Atomic, Kind, Op};
pub use comem_protocol::coherence::pages::region::Homes as Home;
#[doc(hidden)]
pub use comem_protocol::coherence::pages::region::{Dealt, RUN_LENGTHS_MAX};

use crate::Comem;
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::address_space;
use crate::thread::Thread;
use comem_memory::pages::fault::uncancelled;
use comem_protocol::coherence::checksum;
use comem_protocol::coherence::pages::node::close::CloseReason;
use comem_protocol::ids::NodeId;
use comem_protocol::wire::message::Collective;
use std::marker::PhantomData;
use std::ops::Range;

/// The most address space that a heap can have, and has where nothing is asked for; only what is touched costs
/// anything.
pub const HEAP_BYTES: u64 = 16 << 40;
/// The least.
pub const HEAP_BYTES_MIN: u64 = 256 << 20;

/// Types that may live in shared memory: any bytes are a value, and no pointer to this node's own memory is in them.
///
/// Numbers and arrays of them are plain. A struct of plain fields becomes so by `#[derive(Plain)]`, which checks that
/// there are no bytes between its fields:
///
/// ```
/// use comem::heap::Plain;
///
/// #[derive(Clone, Copy, Plain)]
/// struct Body {
///     place: [f64; 3],
///     speed: [f64; 3],
///     mass: f64,
/// }
/// fn goes_into_shared_memory<T: Plain>() {}
/// goes_into_shared_memory::<Body>();
/// ```
///
/// Fields that own memory of one node, gaps between fields and types of which not all bytes are values are refused
/// when the program is compiled:
///
/// ```compile_fail
/// #[derive(Clone, comem::heap::Plain)]
/// struct Named {
///     name: String, // one node's own memory
/// }
/// ```
/// ```compile_fail
/// #[derive(Clone, Copy, comem::heap::Plain)]
/// struct Gap {
///     flag: u8, // seven bytes of padding behind it
///     value: f64,
/// }
/// ```
/// ```compile_fail
/// #[derive(Clone, Copy, comem::heap::Plain)]
/// struct Answer {
///     yes: bool, // 2 is no bool
/// }
/// ```
/// ```compile_fail
/// #[derive(Clone, Copy, comem::heap::Plain)]
/// enum Colour {
///     Red,
///     Green,
/// }
/// ```
///
/// # Safety
/// All bit patterns of the type are valid values, all zero among them, and a copy on another node means the same.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot live in shared memory: it is not `comem::heap::Plain`",
    label = "not every pattern of bytes is a `{Self}` on every node, as far as the compiler knows",
    note = "a struct of numbers, arrays and other plain structs becomes so by `#[derive(Clone, Copy, \
            comem::heap::Plain)]`",
    note = "store `u8` for `bool` and `u32` for `char`; `String`, `Vec`, `Box` and references are one node's own: \
            store an index"
)]
pub unsafe trait Plain: Copy + Send + 'static {}

macro_rules! plain {
    ($($ty:ty),*) => { $(
        // SAFETY: numbers: every bit pattern is a value.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128, isize, usize, f32, f64);
// SAFETY: an array of plain values has no padding and no other bytes than theirs.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A slice in shared memory. A copy of the handle means the same memory, on every node.
#[derive(Debug)]
pub struct PageSlice<T> {
    start: *mut T,
    len: usize,
    what: PhantomData<T>,
}

impl<T> Clone for PageSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for PageSlice<T> {}
// SAFETY: the memory is shared by design; who may access what when is the program's synchronisation.
unsafe impl<T: Plain> Send for PageSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for PageSlice<T> {}

impl<T: Plain> PageSlice<T> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the memory begins.
    pub fn as_ptr(&self) -> *mut T {
        self.start
    }

    /// Element `index`. While others store to it, without synchronisation, one of more than 8 bytes may be part old and
    /// part new.
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.len, "index {index} is outside of {} elements", self.len);
        // SAFETY: within the allocation; a fault brings the page. Volatile, because other threads and nodes may write.
        unsafe { self.start.add(index).read_volatile() }
    }

    /// Stores element `index`.
    ///
    /// # Panics
    /// When there is no such element.
    #[inline]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.len, "index {index} is outside of {} elements", self.len);
        // SAFETY: as for `get`.
        unsafe { self.start.add(index).write_volatile(value) }
    }

    /// Some of the elements, as a slice of its own over the same memory.
    ///
    /// # Panics
    /// When the range leaves the slice.
    #[track_caller]
    pub fn part(&self, range: Range<usize>) -> PageSlice<T> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is outside of {} elements", self.len);
        // SAFETY: within the allocation, or one behind its end.
        PageSlice { start: unsafe { self.start.add(range.start) }, len: range.len(), what: PhantomData }
    }

    /// The elements' values, in order, each read as [`PageSlice::get`] reads it when its turn comes.
    pub fn iter(&self) -> Iter<T> {
        Iter { slice: *self, range: 0..self.len }
    }

    /// The elements' values as they are found now.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }

    /// Stores `value` to every element.
    pub fn fill(&self, value: T) {
        (0..self.len).for_each(|index| self.set(index, value));
    }

    /// Stores values to the elements, in order.
    ///
    /// # Panics
    /// When there are not as many values as elements.
    #[track_caller]
    pub fn copy_from_slice(&self, values: &[T]) {
        assert!(values.len() == self.len, "{} values for {} elements", values.len(), self.len);
        values.iter().enumerate().for_each(|(index, value)| self.set(index, *value));
    }

    /// The elements as ordinary memory.
    ///
    /// # Safety
    /// While the slice is in use, no thread of any node writes to it or frees the memory.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the memory lives as long as the allocation; by this function's contract nobody writes.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Part of the elements as ordinary memory to write.
    ///
    /// # Safety
    /// While the slice is in use, no other thread of any node uses these elements or frees the memory.
    ///
    /// # Panics
    /// When the range leaves the slice.
    #[allow(clippy::mut_from_ref)] // distinct threads take distinct parts of one handle
    pub unsafe fn part_mut(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is outside of {} elements", self.len);
        // SAFETY: within the allocation; by this function's contract nobody else uses the range.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// One element of a [`PageSlice`], which `slice[index]` gives: `grid[i].set(grid[i - 1].get() + 1.0)`.
///
/// It is a place and not a value, because other threads and nodes may store there as long as it is in use: a `&T`
/// would promise that nobody does.
#[repr(transparent)]
pub struct PageCell<T>(std::cell::UnsafeCell<T>);

// SAFETY: as for the slice.
unsafe impl<T: Plain> Sync for PageCell<T> {}

impl<T: Plain> PageCell<T> {
    /// The value, read as [`PageSlice::get`] does.
    #[inline]
    pub fn get(&self) -> T {
        // SAFETY: a place within an allocation; a fault brings the page. Volatile, because other threads and nodes may
        // write.
        unsafe { self.0.get().read_volatile() }
    }

    /// Stores a value.
    #[inline]
    pub fn set(&self, value: T) {
        // SAFETY: as for `get`.
        unsafe { self.0.get().write_volatile(value) }
    }

    /// Reads the value, and stores what `change` makes of it: two accesses, between which others may come.
    #[inline]
    pub fn update(&self, change: impl FnOnce(T) -> T) {
        self.set(change(self.get()));
    }
}

impl<T: Plain + std::fmt::Debug> std::fmt::Debug for PageCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: Plain> std::ops::Index<usize> for PageSlice<T> {
    type Output = PageCell<T>;

    #[inline]
    #[track_caller]
    fn index(&self, index: usize) -> &PageCell<T> {
        assert!(index < self.len, "index {index} is outside of {} elements", self.len);
        // SAFETY: within the allocation. The cell says no more of the memory than a pointer does, so others may store
        // there meanwhile.
        unsafe { &*self.start.add(index).cast() }
    }
}

/// The values of a [`PageSlice`], in order.
#[derive(Clone, Debug)]
pub struct Iter<T> {
    slice: PageSlice<T>,
    range: Range<usize>,
}

impl<T: Plain> Iterator for Iter<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.range.next().map(|index| self.slice.get(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl<T: Plain> DoubleEndedIterator for Iter<T> {
    fn next_back(&mut self) -> Option<T> {
        self.range.next_back().map(|index| self.slice.get(index))
    }
}

impl<T: Plain> ExactSizeIterator for Iter<T> {}
impl<T: Plain> std::iter::FusedIterator for Iter<T> {}

impl<T: Plain> IntoIterator for PageSlice<T> {
    type Item = T;
    type IntoIter = Iter<T>;
    fn into_iter(self) -> Iter<T> {
        self.iter()
    }
}

impl<T: Plain> IntoIterator for &PageSlice<T> {
    type Item = T;
    type IntoIter = Iter<T>;
    fn into_iter(self) -> Iter<T> {
        self.iter()
    }
}

macro_rules! atomics {
    ($($(#[$doc:meta])* $ordered:ident, $relaxed:ident: $op:ident;)*) => { $(
        $(#[$doc])*
        /// Gives what the element held before. An acquire and a release: what happened before such an operation on
        /// this element is seen after the next one on it, on whatever node.
        ///
        /// # Errors that end the node
        /// When the memory was freed or declared read-only.
        ///
        /// # Panics
        /// When there is no such element.
        #[track_caller]
        pub fn $ordered(&self, t: &Thread, index: usize, operand: T) -> T {
            T::of_bits64(self.atomic(t, index, Op::$op, (operand.to_bits64(), 0), true))
        }

        #[doc = concat!("As [`PageSlice::", stringify!($ordered), "`], but says nothing about other memory: one \
                                                                   request and one reply at most, and no write")]
        /// notices.
        #[track_caller]
        pub fn $relaxed(&self, t: &Thread, index: usize, operand: T) -> T {
            T::of_bits64(self.atomic(t, index, Op::$op, (operand.to_bits64(), 0), false))
        }
    )* };
}

/// Atomic operations between all threads of all nodes, under every engine.
impl<T: Word> PageSlice<T> {
    atomics! {
        /// Adds to an element; integers wrap.
        fetch_add, fetch_add_relaxed: Add;
        /// Subtracts from an element; integers wrap.
        fetch_sub, fetch_sub_relaxed: Sub;
        /// Leaves the bits that both have.
        fetch_and, fetch_and_relaxed: And;
        /// Leaves the bits that either has.
        fetch_or, fetch_or_relaxed: Or;
        /// Leaves the bits in which both differ.
        fetch_xor, fetch_xor_relaxed: Xor;
        /// Leaves the lesser of both; a NaN if one is.
        fetch_min, fetch_min_relaxed: Min;
        /// Leaves the greater of both; a NaN if one is.
        fetch_max, fetch_max_relaxed: Max;
        /// Stores the operand.
        exchange, exchange_relaxed: Exchange;
    }

    /// Stores `new` if the element holds `expected`, bit by bit. Gives what it held; ordered as
    /// [`PageSlice::fetch_add`].
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn compare_exchange(&self, t: &Thread, index: usize, expected: T, new: T) -> T {
        let bits = (new.to_bits64(), expected.to_bits64());
        T::of_bits64(self.atomic(t, index, Op::CompareExchange, bits, true))
    }

    /// As [`PageSlice::compare_exchange`], unordered.
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn compare_exchange_relaxed(&self, t: &Thread, index: usize, expected: T, new: T) -> T {
        let bits = (new.to_bits64(), expected.to_bits64());
        T::of_bits64(self.atomic(t, index, Op::CompareExchange, bits, false))
    }

    /// The element as atomic operations have left it, unordered. (A plain [`PageSlice::get`] may be as old as this
    /// node's last acquire.)
    ///
    /// # Panics
    /// When there is no such element.
    #[track_caller]
    pub fn load_relaxed(&self, t: &Thread, index: usize) -> T {
        T::of_bits64(self.atomic(t, index, Op::Load, (0, 0), false))
    }

    #[track_caller]
    fn atomic(&self, t: &Thread, index: usize, op: Op, (operand, expected): (u64, u64), ordered: bool) -> u64 {
        assert!(index < self.len, "index {index} is outside of {} elements", self.len);
        let address = self.start.wrapping_add(index).expose_provenance();
        t.must(t.raw_atomic(address, Atomic { kind: T::KIND, op, operand, expected }, ordered))
    }
}

/// Where in the program something was allocated.
fn site(at: &std::panic::Location<'_>) -> String {
    format!("{}:{}", at.file().rsplit('/').next().unwrap_or_default(), at.line())
}

impl Comem {
    fn shared(&self) -> Result<&Shared> {
        self.node.shared().ok_or_else(|| Error::NoHeap(address_space::why_none(self.node.config.heap)))
    }

    /// The engine of shared memory that names none.
    pub fn page_engine(&self) -> PageEngine {
        self.node.page_engine()
    }

    /// Allocates shared memory, all zero; any thread of any node may, at any time. Other nodes use it once they have
    /// got the pointer through synchronisation.
    ///
    /// # Errors
    /// When the options make no sense or there is no room.
    #[track_caller]
    pub fn alloc(&self, bytes: usize, options: &RegionOptions) -> Result<*mut u8> {
        let site = site(std::panic::Location::caller());
        self.alloc_at(bytes, options, &site)
    }

    /// As [`Comem::alloc`]; `site` names the region where it has no label.
    ///
    /// # Errors
    /// As for [`Comem::alloc`].
    pub fn alloc_at(&self, bytes: usize, options: &RegionOptions, site: &str) -> Result<*mut u8> {
        let thread = self.current()?;
        let address = ThreadHeap::new(&thread, self.shared()?).allocate(bytes, options, site)?;
        Ok(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Allocates shared memory, all zero; collective: one thread of every node calls with the same arguments, and all
    /// get the same address.
    ///
    /// Up to 2 KiB without a label lie side by side, so that many of them cost little more than their bytes. Nodes
    /// that write two that share a page share it falsely; an alignment of 4096 gives pages of its own. Such a call
    /// waits for nobody.
    ///
    /// # Errors
    /// As for [`Comem::alloc`], and when nodes disagree.
    #[track_caller]
    pub fn alloc_all(&self, bytes: usize, options: &RegionOptions) -> Result<*mut u8> {
        let site = site(std::panic::Location::caller());
        self.alloc_all_at(bytes, options, &site)
    }

    /// As [`Comem::alloc_all`]; `site` names the region where it has no label.
    ///
    /// # Errors
    /// As for [`Comem::alloc_all`].
    pub fn alloc_all_at(&self, bytes: usize, options: &RegionOptions, site: &str) -> Result<*mut u8> {
        let (thread, shared) = (self.current()?, self.shared()?);
        let heap = ThreadHeap::new(&thread, shared);
        if let Some(address) = heap.allocate_packed(bytes, options)? {
            return Ok(std::ptr::with_exposed_provenance_mut(address));
        }
        let address = heap.allocate_common(bytes, options, site)?;
        shared.name(address, site);
        let place = if self.nodes() > 1 { address } else { 0 };
        let shape = format!("shared memory {bytes} {options:?} {place:#x}");
        thread.collective(Collective::create(checksum(shape.as_bytes())), &[], |_| ())?;
        Ok(std::ptr::with_exposed_provenance_mut(address))
    }

    /// A shared slice of `len` elements, all zero; collective.
    ///
    /// # Errors
    /// As for [`Comem::alloc_all`].
    #[track_caller]
    pub fn page_slice<T: Plain>(&self, len: usize, options: &RegionOptions) -> Result<PageSlice<T>> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| {
            Error::Argument(format!("{len} elements of {} bytes are more than an address space holds", size_of::<T>()))
        })?;
        let alignment = options.alignment.max(align_of::<T>());
        let start = self.alloc_all(bytes, &RegionOptions { alignment, ..options.clone() })?.cast();
        Ok(PageSlice { start, len, what: PhantomData })
    }

    /// Allocates memory for one structure among many: small pieces share regions of their node, so that each costs no
    /// message. At `home`, or where its pages are used.
    ///
    /// # Errors
    /// When there is no such node, or no room.
    #[track_caller]
    pub fn alloc_piece(&self, bytes: usize, home: Option<NodeId>) -> Result<*mut u8> {
        let site = site(std::panic::Location::caller());
        self.alloc_piece_at(bytes, home, &site)
    }

    /// As [`Comem::alloc_piece`]; `site` names a region that the piece has to itself.
    ///
    /// # Errors
    /// As for [`Comem::alloc_piece`].
    pub fn alloc_piece_at(&self, bytes: usize, home: Option<NodeId>, site: &str) -> Result<*mut u8> {
        let thread = self.current()?;
        let address = ThreadHeap::new(&thread, self.shared()?).allocate_piece(bytes, home, site)?;
        Ok(std::ptr::with_exposed_provenance_mut(address))
    }

    /// What this node has allocated by [`Comem::alloc_piece`] and not given back, in the order of addresses.
    pub fn pieces(&self) -> Vec<Range<usize>> {
        self.node.shared().map_or_else(Vec::new, Shared::pieces)
    }

    /// Gives memory back, from any node. What was allocated together is freed by every node.
    ///
    /// A [`PageSlice`] of it has nothing left to show: what is read through it may be 0, or of what was allocated
    /// there since, and an access may end the program with the region's name. Slices of its memory
    /// ([`PageSlice::as_slice`], [`PageSlice::part_mut`]) must be gone by then.
    ///
    /// # Errors
    /// When no allocation begins there, or it was freed already.
    pub fn free(&self, pointer: *mut u8) -> Result<()> {
        let thread = self.current()?;
        // To give memory back is a cancellation point.
        uncancelled(|| ThreadHeap::new(&thread, self.shared()?).free(pointer.addr()))
    }

    /// Names the region of an address in reports. A block of a region that is handed out in blocks names itself only:
    /// the region's name tells of it.
    ///
    /// # Errors
    /// When the address is in no region.
    pub fn label(&self, pointer: *const u8, name: &str) -> Result<()> {
        let known = self.region(pointer)?;
        let cut_up = known.region.cut_up;
        known.name.lock().set(name, cut_up);
        Ok(())
    }

    /// Declares that nobody writes to the region from here on: copies cost half. To be called by every node. Of a block
    /// whose pages hold other blocks too nothing is saved, and nothing is declared.
    ///
    /// # Errors
    /// When the address is in no region.
    pub fn freeze(&self, pointer: *const u8) -> Result<()> {
        let known = self.region(pointer)?;
        if known.region.cut_up {
            return Ok(());
        }
        if self.shared()?.globals.get().is_some_and(|globals| globals.has(known.region.first)) {
            return Err(Error::Globals("global variables are one region and cannot be declared read-only".to_string()));
        }
        if known.region.engine.has_several_writers() && self.shared()?.views.is_some() {
            // What was written before counts, though it be in no interval yet: the token of its lock may rest here.
            // Beside a collective call of another thread no interval ends, so it is a release like any other.
            let (thread, shared) = (self.current()?, self.shared()?);
            thread.releasing(|| thread.end_interval(shared, CloseReason::Else));
        }
        known.declare_read_only();
        self.shared()?.unmap_writable(&known);
        self.shared()?.freeze_one_copy(&known.region);
        Ok(())
    }

    /// Brings memory here, for reading or for writing too, so that a system call can use it.
    ///
    /// # Errors
    /// When the range is not allocated.
    pub fn prefetch(&self, pointer: *const u8, bytes: usize, write: bool) -> Result<()> {
        self.current()?;
        self.shared()?.touch(pointer.addr(), bytes, write)
    }

    /// Makes the program's global variables shared memory, where they are: from `start` to `end`. Collective, and
    /// before anybody uses them in parallel: one thread of every node calls, and all see what stands in them on node 0.
    /// What nobody has touched, of memory in no file, costs nothing. A job of one node does nothing.
    ///
    /// After [`Comem::finish`] they are each process's own again; node 0 keeps what they were last.
    ///
    /// # Errors
    /// When the range is not of whole pages, when nodes have them at different addresses, when it was done
    /// before, or when the system refuses.
    ///
    /// # Safety
    /// The range is writable memory of the program alone (nothing of the C library, the loader or Comem), and no thread
    /// of this process uses it during the call.
    pub unsafe fn share_globals(&self, start: *mut u8, end: *mut u8) -> Result<()> {
        let program = start.expose_provenance()..end.expose_provenance();
        let thread = self.current()?;
        // SAFETY: by this function's contract.
        unsafe { ThreadHeap::new(&thread, self.shared()?).share_globals(program) }
    }

    /// Whether an address is in the shared heap.
    pub fn is_shared(&self, pointer: *const u8) -> bool {
        self.node.shared().is_some_and(|s| s.page_of(pointer.addr()).is_some())
    }

    /// The engine of the memory at an address; `None` where each node has its own.
    ///
    /// # Errors
    /// When no region is there, or the job is over.
    pub fn engine_of(&self, pointer: *const u8) -> Result<Option<PageEngine>> {
        let Some(shared) = self.node.shared() else { return Ok(None) };
        let Some(page) = shared.page_of(pointer.addr()) else { return Ok(None) };
        if shared.table.find(page).is_none() {
            // Another node's region, of which this one has yet to hear.
            self.prefetch(pointer, 1, false)?;
        }
        Ok(Some(self.region(pointer)?.region.engine))
    }

    fn region(&self, pointer: *const u8) -> Result<std::sync::Arc<crate::shared::heap::table::RegionState>> {
        let shared = self.shared()?;
        let page = shared.page_of(pointer.addr());
        match page.and_then(|page| shared.table.find(page)) {
            Some(known) if known.is_freed() => {
                Err(Error::Freed(format!("{pointer:?} is in {}, which was freed", known.name())))
            }
            Some(known) => Ok(known),
            None => {
                let sentence = format!("{pointer:?} is in no allocation of the shared heap");
                Err(Error::NotAllocated { address: pointer.addr(), sentence })
            }
        }
    }
}
