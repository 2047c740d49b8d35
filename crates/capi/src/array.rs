//! Arrays: their handles, the way of an access that the header's inline part cannot finish, and ranges.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, checked, done, reported};
use crate::job::{job, thread};
use comem_rt::raw::{self, Array};
use comem_rt::{Home, NodeId, ObjectOptions};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// The header's `comem_array`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    data: *mut u8,
    access: *const u8,
    length: u64,
    object: *const Array,
}

impl Handle {
    /// The handle of an array that is never taken down: C programs copy handles as they like.
    fn of(array: Array) -> Handle {
        let (data, access, length) = (array.data(), array.permissions(), array.len() as u64);
        Handle { data, access, length, object: Box::leak(Box::new(array)) }
    }

    const NONE: Handle = Handle { data: ptr::null_mut(), access: ptr::null(), length: 0, object: ptr::null() };
}

/// The header's `comem_object_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct COptions {
    unit_elements: u64,
    engine: *const c_char,
    label: *const c_char,
    home: c_int,
    home_number: c_int,
}

/// The header's `struct comem_tls`: what a store announces itself in.
type StoreFlag = c_void;

fn argument(what: String) -> Failure {
    Failure::new(Code::Argument, what)
}

/// A text that C gave; `None` for null.
///
/// # Safety
/// `text` is a string or null.
unsafe fn text(text: *const c_char, name: &str) -> Outcome<Option<String>> {
    // SAFETY: by the contract above.
    let Some(text) = (unsafe { buffer::text_of(text) }) else { return Ok(None) };
    text.to_str()
        .map(|s| Some(s.to_string()))
        .map_err(|_| argument(format!("the {name} of an array is not UTF-8; write it so")))
}

fn homes(kind: c_int, number: c_int) -> Outcome<Home> {
    let number_in = |range: std::ops::RangeInclusive<c_int>| {
        range.contains(&number).then_some(number).ok_or_else(|| {
            argument(format!("an array cannot have its home at {number}; use a node's number, or of units"))
        })
    };
    match kind {
        0 => Ok(Home::Block),
        1 => Ok(Home::Cyclic(number_in(0..=c_int::MAX)?.max(1) as u32)),
        2 => Ok(Home::On(NodeId(number_in(0..=c_int::from(u16::MAX))? as u16))),
        _ => Err(argument(format!("there is no home {kind}; use COMEM_HOME_BLOCK, CYCLIC or ON"))),
    }
}

/// # Safety
/// The options' texts are strings or null.
unsafe fn options(given: &COptions) -> Outcome<ObjectOptions> {
    // SAFETY: by the contract above.
    let (engine, label) = unsafe { (text(given.engine, "engine")?, text(given.label, "label")?) };
    let engine = engine.map(|name| name.parse()).transpose().map_err(|e| Failure::new(Code::Array, format!("{e}")))?;
    let unit_elements = usize::try_from(given.unit_elements).unwrap_or(usize::MAX);
    Ok(ObjectOptions { unit_elements, engine, label, home: homes(given.home, given.home_number)? })
}

/// # Safety
/// `given` points to options or is null.
unsafe fn create(element: usize, length: u64, given: *const COptions) -> Outcome<Handle> {
    // SAFETY: by the contract above.
    let options = match unsafe { buffer::value_of(given) } {
        // SAFETY: as above.
        Some(given) => unsafe { options(&given) }?,
        None => ObjectOptions::default(),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let job = job()?;
    thread()?;
    let array = raw::create(job, element, length, &options).map_err(|error| {
        let failure = Failure::from(error);
        let code = if failure.code == Code::Misuse { Code::Array } else { failure.code };
        Failure { code, ..failure }
    })?;
    Ok(Handle::of(array))
}

/// Creates an array.
///
/// # Safety
/// `array` points to a handle to be filled in, `options` to options or nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_create(
    array: *mut Handle,
    element: usize,
    length: u64,
    options: *const COptions,
) -> c_int {
    checked(|| {
        if array.is_null() {
            return Err(argument("comem_create() was given no place for the array; pass a pointer to one".to_string()));
        }
        // SAFETY: not null; by this function's contract.
        unsafe {
            buffer::give(array, Handle::NONE);
            buffer::give(array, create(element, length, options)?);
        }
        Ok(0)
    })
}

/// Creates an array, or reports why not.
///
/// # Safety
/// `options` points to options or nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_new_(element: usize, length: u64, options: *const COptions) -> Handle {
    // SAFETY: by this function's contract.
    reported(|| unsafe { create(element, length, options) }, |_| Handle::NONE)
}

/// The array behind a handle.
///
/// # Safety
/// `object` comes from a handle made here, or is null.
unsafe fn array<'a>(object: *const Array) -> Outcome<&'a Array> {
    // SAFETY: handles' objects are never freed.
    unsafe { object.as_ref() }
        .ok_or_else(|| Failure::new(Code::Array, "an array is used that was not created; create it first"))
}

fn check_index(array: &Array, index: u64) -> Outcome<usize> {
    let length = array.len();
    usize::try_from(index).ok().filter(|i| *i < length).ok_or_else(|| {
        let what =
            format!("index {index} is outside of {}, which has {length} elements; check the index", array.label());
        Failure::new(Code::Index, what)
    })
}

fn check_range(array: &Array, low: u64, high: u64) -> Outcome<(usize, usize)> {
    let length = array.len() as u64;
    if low <= high && high <= length {
        return Ok((low as usize, high as usize));
    }
    let what = format!("range {low}..{high} is outside of {}, which has {length} elements; check it", array.label());
    Err(Failure::new(Code::Index, what))
}

/// A load that the inline part could not make: gives the element's bytes, the first of them first in memory.
///
/// # Safety
/// `object` comes from a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_load_(object: *const Array, index: u64) -> u64 {
    // SAFETY: by this function's contract; handles' objects are never freed.
    if let Some(bits) = unsafe { object.as_ref() }.and_then(|array| raw::load_here(array, index)) {
        return bits;
    }
    reported(
        || {
            // SAFETY: by this function's contract.
            let array = unsafe { array(object) }?;
            let index = check_index(array, index)?;
            let mut bytes = [0; 8];
            let out = bytes.get_mut(..array.element()).ok_or_else(wrong_width)?;
            raw::read(&*thread()?, array, index, out)?;
            Ok(u64::from_ne_bytes(bytes))
        },
        |_| 0,
    )
}

/// A store that the inline part could not make. Gives the thread's store flag, which serves it from now on.
///
/// # Safety
/// `object` comes from a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_store_(object: *const Array, index: u64, bits: u64) -> *const StoreFlag {
    let store = || {
        // SAFETY: by this function's contract.
        let array = unsafe { array(object) }?;
        let index = check_index(array, index)?;
        let bytes = bits.to_ne_bytes();
        let bytes = bytes.get(..array.element()).ok_or_else(wrong_width)?;
        let thread = thread()?;
        if !raw::store_here(array, index as u64, bits) {
            raw::write(&thread, array, index, bytes)?;
        }
        Ok(ptr::from_ref(raw::store_flag(&thread)).cast())
    };
    reported(store, |_| thread().map_or(ptr::from_ref(&NO_SEAT).cast(), |t| ptr::from_ref(raw::store_flag(&t)).cast()))
}

/// What a thread without a seat is given: nothing is permitted with it. Same layout as the header's block.
static NO_SEAT: [std::sync::atomic::AtomicU8; 2] =
    [std::sync::atomic::AtomicU8::new(0), std::sync::atomic::AtomicU8::new(0xFF)];

fn wrong_width() -> Failure {
    Failure::new(
        Code::Array,
        "an array of wide elements is accessed as one of numbers; use comem_read() and comem_write()",
    )
}

/// Reads one element of any size.
///
/// # Safety
/// `handle` was made here; `out` has room for an element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_read(handle: Handle, index: u64, out: *mut c_void) -> c_int {
    done(|| {
        // SAFETY: by this function's contract.
        let array = unsafe { array(handle.object) }?;
        let index = check_index(array, index)?;
        if out.is_null() {
            return Err(argument("comem_read() was given no place for the element; pass a pointer to one".to_string()));
        }
        let thread = thread()?;
        let zeros = vec![0; array.element()];
        // SAFETY: not null, with room for an element. It may be uninitialised, so it is filled first.
        let out = unsafe {
            buffer::fill(out.cast(), &zeros);
            std::slice::from_raw_parts_mut(out.cast::<u8>(), array.element())
        };
        Ok(raw::read(&thread, array, index, out)?)
    })
}

/// Writes one element of any size.
///
/// # Safety
/// `handle` was made here; `value` points to an element's bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_write(handle: Handle, index: u64, value: *const c_void) -> c_int {
    done(|| {
        // SAFETY: by this function's contract.
        let array = unsafe { array(handle.object) }?;
        let index = check_index(array, index)?;
        if value.is_null() {
            return Err(argument("comem_write() was given no element; pass a pointer to one".to_string()));
        }
        // SAFETY: not null; by this function's contract.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), array.element()) };
        Ok(raw::write(&*thread()?, array, index, bytes)?)
    })
}

/// # Safety
/// `handle` was made here.
unsafe fn begin(handle: Handle, low: u64, high: u64, write: bool) -> *mut c_void {
    let begin = || {
        // SAFETY: by the contract above.
        let array = unsafe { array(handle.object) }?;
        let (low, high) = check_range(array, low, high)?;
        Ok(raw::range_begin(&*thread()?, array, low, high, write)?.cast())
    };
    reported(begin, |_| ptr::null_mut())
}

/// # Safety
/// `handle` was made here.
unsafe fn finish(handle: Handle, low: u64, high: u64, write: bool) -> c_int {
    done(|| {
        // SAFETY: by the contract above.
        let array = unsafe { array(handle.object) }?;
        let (low, high) = check_range(array, low, high)?;
        Ok(raw::range_end(&*thread()?, array, low, high, write)?)
    })
}

/// Lends a range for reading.
///
/// # Safety
/// `handle` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_read_begin(handle: Handle, low: u64, high: u64) -> *const c_void {
    // SAFETY: by this function's contract.
    unsafe { begin(handle, low, high, false) }
}

/// Ends a range lent for reading.
///
/// # Safety
/// `handle` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_read_end(handle: Handle, low: u64, high: u64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { finish(handle, low, high, false) }
}

/// Lends a range for reading and writing.
///
/// # Safety
/// `handle` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_write_begin(handle: Handle, low: u64, high: u64) -> *mut c_void {
    // SAFETY: by this function's contract.
    unsafe { begin(handle, low, high, true) }
}

/// Ends a range lent for reading and writing.
///
/// # Safety
/// `handle` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_write_end(handle: Handle, low: u64, high: u64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { finish(handle, low, high, true) }
}
