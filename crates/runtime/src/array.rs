//! Typed shared arrays: what Rust programs use.

use crate::error::{Error, Result};
use crate::object::{Object, ObjectOptions};
use crate::thread::Thread;
use comem_memory::guard::WRITE;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence};

/// What a shared array can hold: numbers, arrays of them, and structs by [`derive(Plain)`](crate::heap::Plain).
///
/// # Safety
/// Every bit pattern must be a value, and the type must have no padding and no pointers into this process.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a shared array",
    label = "not every pattern of bytes is a `{Self}` on every node, as far as the compiler knows",
    note = "a struct of numbers, arrays of them and other such structs becomes one by `#[derive(Clone, Copy, \
            comem::heap::Plain)]`"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        // SAFETY: a number: every bit pattern is a value, no padding.
        unsafe impl Element for $ty {}
    )* };
}
elements!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);
// SAFETY: an array of elements has no padding between them.
unsafe impl<T: Element, const N: usize> Element for [T; N] {}

/// An array that all nodes share. Copies of it on all nodes name the same elements.
///
/// `read` and `write` are atomic for elements of any size and, under the engines `owner`, `msi` and `direct`,
/// sequentially consistent (DSM/IP, section 3.1). Element types wider than eight bytes are accessed under a lock of
/// their unit.
#[derive(Debug)]
pub struct ObjectArray<T: Element> {
    data: *mut T,
    permissions: *const u8,
    len: usize,
    object: Arc<Object>,
    marker: PhantomData<T>,
}

// SAFETY: the pointers lead into the object's memory, which `object` keeps alive; all access is through atomics
// or under the unit's lock.
unsafe impl<T: Element> Send for ObjectArray<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for ObjectArray<T> {}

impl<T: Element> Clone for ObjectArray<T> {
    fn clone(&self) -> Self {
        ObjectArray { object: self.object.clone(), ..*self }
    }
}

impl<T: Element> ObjectArray<T> {
    const IS_WORD: bool = size_of::<T>().is_power_of_two() && size_of::<T>() <= 8;

    pub(crate) fn new(object: Arc<Object>) -> ObjectArray<T> {
        ObjectArray {
            data: object.segments.data().cast(),
            permissions: object.segments.permissions(),
            len: object.segments.len(),
            object,
            marker: PhantomData,
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements in a coherence unit.
    pub fn unit_elements(&self) -> usize {
        self.object.segments.unit_elements()
    }

    /// Reads element `index`.
    ///
    /// # Errors that end the node
    /// When there is no such element.
    #[inline(always)]
    pub fn read(&self, thread: &Thread, index: usize) -> T {
        if Self::IS_WORD && index < self.len {
            // SAFETY: `index` is within the permission bytes, which are only accessed as atomics.
            let permission = unsafe { AtomicU8::from_ptr(self.permissions.add(index).cast_mut()) };
            if permission.load(Ordering::Acquire) != 0 {
                // SAFETY: `index` is within the data, and a word's elements stand at multiples of their size.
                return unsafe { load(self.data.add(index)) };
            }
        }
        self.read_slowly(thread, index)
    }

    /// Writes element `index`.
    ///
    /// # Errors that end the node
    /// When there is no such element.
    #[inline(always)]
    pub fn write(&self, thread: &Thread, index: usize, value: T) {
        if Self::IS_WORD && index < self.len {
            let flag = thread.flag();
            // What `value` is read from may be shared, and reading it may wait: not while a store is announced.
            compiler_fence(Ordering::SeqCst);
            flag.writing.store(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // SAFETY: `index` is within the permission bytes, which are only accessed as atomics.
            let permission = unsafe { AtomicU8::from_ptr(self.permissions.add(index).cast_mut()) };
            if permission.load(Ordering::Relaxed) == WRITE {
                // SAFETY: `index` is within the data; the raised flag keeps the permission until the store is made.
                unsafe { store(self.data.add(index), value) };
                compiler_fence(Ordering::SeqCst);
                flag.writing.store(0, Ordering::Release);
                return;
            }
            flag.writing.store(0, Ordering::Release);
        }
        self.write_slowly(thread, index, value);
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&self, thread: &Thread, index: usize) -> T {
        if let Some(lined) = self.object.lined().filter(|_| Self::IS_WORD && index < self.len)
            && let Some(bits) = lined.load_here(index)
        {
            // SAFETY: the first bytes are the element's, and any bytes are a T.
            return unsafe { std::mem::transmute_copy(&bits) };
        }
        let mut value = std::mem::MaybeUninit::<T>::zeroed();
        // SAFETY: as many bytes as a T has; any bytes are a T.
        let bytes = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        thread.must(thread.access(&self.object).read(index, bytes));
        // SAFETY: any bytes are a T, and all of them are initialised.
        unsafe { value.assume_init() }
    }

    #[cold]
    #[inline(never)]
    fn write_slowly(&self, thread: &Thread, index: usize, value: T) {
        // SAFETY: a T has no padding, so all its bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(&value).cast::<u8>(), size_of::<T>()) };
        if index < self.len && self.object.lined().is_some_and(|lined| lined.store_here(index, bytes)) {
            return;
        }
        thread.must(thread.access(&self.object).write(index, bytes));
    }

    /// Copies the elements from `start` on into `out`, each atomically.
    ///
    /// # Errors that end the node
    /// When the range leaves the array.
    pub fn read_into(&self, thread: &Thread, start: usize, out: &mut [T]) {
        // SAFETY: the same bytes; any bytes are T's.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), size_of_val(out)) };
        thread.must(thread.access(&self.object).read(start, bytes));
    }

    /// Copies `values` to the elements from `start` on, each atomically.
    ///
    /// # Errors that end the node
    /// When the range leaves the array.
    pub fn write_from(&self, thread: &Thread, start: usize, values: &[T]) {
        // SAFETY: a T has no padding, so all its bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        thread.must(thread.access(&self.object).write(start, bytes));
    }

    /// Lends the elements of `range` as a plain slice while `f` runs; their units stay here as long.
    ///
    /// # Errors that end the node
    /// When the range leaves the array.
    ///
    /// # Safety
    /// No thread of any node writes these elements while `f` runs.
    pub unsafe fn range<R>(&self, thread: &Thread, range: Range<usize>, f: impl FnOnce(&[T]) -> R) -> R {
        let lent = Lent::new(thread, &self.object, range.clone(), false);
        // SAFETY: the range was checked by `Lent`, its units are readable here, and the caller keeps writers away.
        let result = f(unsafe { std::slice::from_raw_parts(self.data.add(range.start), range.len()) });
        drop(lent);
        result
    }

    /// Lends the elements of `range` as a plain mutable slice while `f` runs; their units stay here as long.
    ///
    /// # Errors that end the node
    /// When the range leaves the array.
    ///
    /// # Safety
    /// No other access to these elements, from any thread of any node or from within `f`, while `f` runs.
    pub unsafe fn range_mut<R>(&self, thread: &Thread, range: Range<usize>, f: impl FnOnce(&mut [T]) -> R) -> R {
        let lent = Lent::new(thread, &self.object, range.clone(), true);
        // SAFETY: the range was checked by `Lent`, its units are writable here, and the caller keeps others away.
        let result = f(unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) });
        drop(lent);
        result
    }
}

/// Loads a word of the size of `T`.
///
/// # Safety
/// `T` is 1, 2, 4 or 8 bytes and any bits are a `T`; `at` is aligned to that size and accessed by atomics only.
#[inline(always)]
unsafe fn load<T: Copy>(at: *mut T) -> T {
    macro_rules! by {
        ($word:ty, $atomic:ty) => {{
            // SAFETY: by the function's contract.
            let word = unsafe { <$atomic>::from_ptr(at.cast::<$word>()) }.load(Ordering::SeqCst);
            // SAFETY: `T` has the word's size and any bits are a `T`.
            unsafe { std::mem::transmute_copy(&word) }
        }};
    }
    match size_of::<T>() {
        1 => by!(u8, AtomicU8),
        2 => by!(u16, AtomicU16),
        4 => by!(u32, AtomicU32),
        _ => by!(u64, AtomicU64),
    }
}

/// Stores a word of the size of `T`.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
unsafe fn store<T: Copy>(at: *mut T, value: T) {
    macro_rules! by {
        ($word:ty, $atomic:ty) => {{
            // SAFETY: `T` has the word's size and no padding.
            let word: $word = unsafe { std::mem::transmute_copy(&value) };
            // SAFETY: by the function's contract.
            unsafe { <$atomic>::from_ptr(at.cast::<$word>()) }.store(word, Ordering::SeqCst);
        }};
    }
    match size_of::<T>() {
        1 => by!(u8, AtomicU8),
        2 => by!(u16, AtomicU16),
        4 => by!(u32, AtomicU32),
        _ => by!(u64, AtomicU64),
    }
}

/// A range lent to the program; ends when dropped, in unwinding too.
struct Lent<'a> {
    thread: &'a Thread,
    object: &'a Arc<Object>,
    range: Range<usize>,
    write: bool,
}

impl<'a> Lent<'a> {
    fn new(thread: &'a Thread, object: &'a Arc<Object>, range: Range<usize>, write: bool) -> Lent<'a> {
        thread.must(thread.range_begin(object, range.clone(), write));
        Lent { thread, object, range, write }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.thread.must(self.thread.range_end(self.object, self.range.clone(), self.write));
    }
}

/// One shared value.
#[derive(Debug)]
pub struct ObjectVar<T: Element>(ObjectArray<T>);

impl<T: Element> Clone for ObjectVar<T> {
    fn clone(&self) -> Self {
        ObjectVar(self.0.clone())
    }
}

impl<T: Element> ObjectVar<T> {
    /// Reads the value.
    #[inline(always)]
    pub fn read(&self, thread: &Thread) -> T {
        self.0.read(thread, 0)
    }
    /// Writes the value.
    #[inline(always)]
    pub fn write(&self, thread: &Thread, value: T) {
        self.0.write(thread, 0, value);
    }
}

impl crate::Comem {
    /// Makes a shared array of `len` elements, all zero. Every node must call it, in the same order, with the same
    /// arguments, from its main thread.
    ///
    /// # Errors
    /// When the shape is impossible, when memory runs out, or when nodes disagree.
    pub fn object_array<T: Element>(&self, len: usize) -> Result<ObjectArray<T>> {
        self.object_array_with(len, &ObjectOptions::default())
    }

    /// As [`Comem::object_array`](crate::Comem::object_array), with options.
    ///
    /// # Errors
    /// As there.
    pub fn object_array_with<T: Element>(&self, len: usize, options: &ObjectOptions) -> Result<ObjectArray<T>> {
        if size_of::<T>() == 0 {
            return Err(Error::Argument("an element must have at least one byte".to_string()));
        }
        Ok(ObjectArray::new(self.create(size_of::<T>(), len, options)?))
    }

    /// Makes a shared value, zero at first; to be called as [`Comem::object_array`](crate::Comem::object_array).
    ///
    /// # Errors
    /// As there.
    pub fn object_var<T: Element>(&self) -> Result<ObjectVar<T>> {
        Ok(ObjectVar(self.object_array(1)?))
    }
}
