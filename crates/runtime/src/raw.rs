//! Shared arrays without types, for the C interface and other languages.

use crate::error::{Error, Result};
use crate::object::{Object, ObjectOptions};
use crate::{Comem, Thread};
use comem_memory::StoreFlag;
use std::sync::Arc;

/// A shared array of elements of any size.
#[derive(Clone, Debug)]
pub struct Array {
    object: Arc<Object>,
}

impl Array {
    /// Where the elements stand.
    pub fn data(&self) -> *mut u8 {
        self.object.segments.data()
    }
    /// One permission byte for each element: 0 nothing, 1 load, 3 load and store.
    pub fn permissions(&self) -> *const u8 {
        self.object.segments.permissions()
    }
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.object.segments.len()
    }
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes in an element.
    pub fn element(&self) -> usize {
        self.object.segments.element()
    }
    /// Elements in a coherence unit.
    pub fn unit_elements(&self) -> usize {
        self.object.segments.unit_elements()
    }
    /// The object's number.
    pub fn id(&self) -> u32 {
        self.object.id.0
    }
    /// The object's name in reports.
    pub fn label(&self) -> &str {
        &self.object.label
    }
}

/// Makes an array of `len` elements of `element` bytes, all zero; collective.
///
/// # Errors
/// When the shape is impossible, when memory runs out, or when nodes disagree.
pub fn create(comem: &Comem, element: usize, len: usize, options: &ObjectOptions) -> Result<Array> {
    if element == 0 {
        return Err(Error::Argument("an element must have at least one byte".to_string()));
    }
    Ok(Array { object: comem.create(element, len, options)? })
}

/// The store flag of a thread, for accessors that are compiled into the program.
pub fn store_flag(thread: &Thread) -> &'static StoreFlag {
    thread.flag()
}

/// Loads an element of up to a word that is here, under engines without permission bytes. Its bytes come first.
#[inline]
pub fn load_here(array: &Array, index: u64) -> Option<u64> {
    let index = usize::try_from(index).ok().filter(|index| *index < array.len())?;
    array.object.lined()?.load_here(index)
}

/// Stores an element of up to a word if that asks nobody, under engines without permission bytes; whether it did.
#[inline]
pub fn store_here(array: &Array, index: u64, bits: u64) -> bool {
    let index = usize::try_from(index).ok().filter(|index| *index < array.len());
    let bytes = bits.to_ne_bytes();
    let (Some(index), Some(lined)) = (index, array.object.lined()) else { return false };
    bytes.get(..array.element()).is_some_and(|bytes| lined.store_here(index, bytes))
}

/// Reads whole elements from `start` on, each atomically.
///
/// # Errors
/// When the range leaves the array.
pub fn read(thread: &Thread, array: &Array, start: usize, out: &mut [u8]) -> Result<()> {
    whole(array, out.len())?;
    thread.access(&array.object).read(start, out)
}

/// Writes whole elements from `start` on, each atomically.
///
/// # Errors
/// When the range leaves the array.
pub fn write(thread: &Thread, array: &Array, start: usize, bytes: &[u8]) -> Result<()> {
    whole(array, bytes.len())?;
    thread.access(&array.object).write(start, bytes)
}

/// Brings the elements `low..high` here and keeps them until [`range_end`]; gives the address of element `low`.
///
/// # Errors
/// When the range leaves the array.
pub fn range_begin(thread: &Thread, array: &Array, low: usize, high: usize, write: bool) -> Result<*mut u8> {
    thread.range_begin(&array.object, low..high, write)?;
    Ok(array.data().wrapping_add(low * array.element()))
}

/// Ends a range access that this thread has begun with the same arguments.
///
/// # Errors
/// When it has begun none.
pub fn range_end(thread: &Thread, array: &Array, low: usize, high: usize, write: bool) -> Result<()> {
    thread.range_end(&array.object, low..high, write)
}

fn whole(array: &Array, bytes: usize) -> Result<()> {
    if bytes.is_multiple_of(array.element()) {
        Ok(())
    } else {
        Err(Error::Argument(format!("{bytes} bytes are not whole elements of {} bytes", array.element())))
    }
}
