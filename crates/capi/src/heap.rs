//! Shared memory for ordinary loads and stores.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, done, reported};
use crate::job::{job, started, thread};
use comem_rt::NodeId;
use comem_rt::heap::{Home, PageEngine, RegionOptions};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// The header's `comem_region_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CRegionOptions {
    engine: *const c_char,
    label: *const c_char,
    home: c_int,
    home_number: c_int,
    alignment: usize,
    unit_pages: c_uint,
    unit_bytes: c_uint,
}

thread_local! {
    /// Where in the program this thread allocates next: the header's macros say so.
    static SITE: Cell<(*const c_char, c_int)> = const { Cell::new((std::ptr::null(), 0)) };
}

/// Says where the next allocation stands in the program's text.
///
/// # Safety
/// `file` is null or a string that lives until this thread's next allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_site_(file: *const c_char, line: c_int) {
    SITE.set((file, line));
}

/// The place that was said, once.
pub fn site() -> String {
    let (file, line) = SITE.replace((std::ptr::null(), 0));
    // SAFETY: by the contract of the function that said it.
    let file = unsafe { buffer::text_of(file) };
    file.map_or_else(String::new, |file| {
        format!("{}:{line}", file.to_string_lossy().rsplit('/').next().unwrap_or_default())
    })
}

fn argument(what: String) -> Failure {
    Failure::new(Code::Argument, what)
}

/// A number of bytes, which a program may have computed with signs.
fn not_negative(what: &str, bytes: usize) -> Outcome<usize> {
    match bytes as isize {
        ..0 => Err(argument(format!(
            "{what} of {} bytes ({bytes} without a sign): give a number that is not negative and below 2^63",
            bytes as isize
        ))),
        _ => Ok(bytes),
    }
}

/// A string of the program's, if there is one.
///
/// # Safety
/// `text` is null or a string that lives during the call.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: by this function's contract.
    unsafe { buffer::text_of(text) }.map(|text| text.to_string_lossy().into_owned())
}

/// The options of a call.
///
/// # Safety
/// `options` is null or points to options whose strings live during the call.
unsafe fn region_options(options: *const CRegionOptions) -> Outcome<RegionOptions> {
    // SAFETY: by this function's contract.
    let Some(given) = (unsafe { buffer::value_of(options) }) else { return Ok(RegionOptions::default()) };
    // SAFETY: by this function's contract.
    let engine = unsafe { text(given.engine) };
    let engine = engine.map(|name| name.parse::<PageEngine>()).transpose().map_err(|e| argument(e.to_string()))?;
    let homes = match (given.home, given.home_number) {
        (0, _) => Home::Block,
        (1, pages) if pages >= 0 => Home::Cyclic(pages.max(1) as u32),
        (2, node @ 0..=1023) => Home::On(NodeId(node as u16)),
        (3, _) => Home::FirstTouch,
        (4, _) => Home::Automatic,
        (home, number) => {
            return Err(argument(format!("home {home} with the number {number} makes no sense; see COMEM_HOME_…")));
        }
    };
    Ok(RegionOptions {
        engine,
        home: homes,
        alignment: match not_negative("an alignment", given.alignment)? {
            0 => 64,
            alignment => alignment,
        },
        unit_pages: given.unit_pages,
        unit_bytes: given.unit_bytes as usize,
        // SAFETY: by this function's contract.
        label: unsafe { text(given.label) }.unwrap_or_default(),
        ..RegionOptions::default()
    })
}

fn pointer(of: impl FnOnce() -> Outcome<*mut u8>) -> *mut c_void {
    reported(|| of().map(|p| p.cast()), |_| null_mut())
}

/// Allocates.
#[unsafe(no_mangle)]
pub extern "C" fn comem_alloc(bytes: usize) -> *mut c_void {
    pointer(|| Ok(job()?.alloc_at(bytes, &RegionOptions::default(), &site())?))
}

/// Allocates.
///
/// # Safety
/// `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_alloc_with(bytes: usize, options: *const CRegionOptions) -> *mut c_void {
    // SAFETY: by this function's contract.
    pointer(|| Ok(job()?.alloc_at(bytes, &unsafe { region_options(options) }?, &site())?))
}

/// Allocates, collectively.
///
/// # Safety
/// `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_alloc_all(bytes: usize, options: *const CRegionOptions) -> *mut c_void {
    // SAFETY: by this function's contract.
    pointer(|| Ok(job()?.alloc_all_at(bytes, &unsafe { region_options(options) }?, &site())?))
}

/// Gives memory back.
#[unsafe(no_mangle)]
pub extern "C" fn comem_free(pointer: *mut c_void) -> c_int {
    done(|| if pointer.is_null() { Ok(()) } else { Ok(job()?.free(pointer.cast())?) })
}

/// Names a region.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_label(pointer: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: by this function's contract.
    done(|| Ok(job()?.label(pointer.cast(), &unsafe { text(name) }.unwrap_or_default())?))
}

/// Declares a region read-only.
#[unsafe(no_mangle)]
pub extern "C" fn comem_freeze(pointer: *const c_void) -> c_int {
    done(|| Ok(job()?.freeze(pointer.cast())?))
}

/// Brings memory here.
#[unsafe(no_mangle)]
pub extern "C" fn comem_prefetch(pointer: *const c_void, bytes: usize, for_writing: c_int) -> c_int {
    done(|| Ok(job()?.prefetch(pointer.cast(), not_negative("a range", bytes)?, for_writing != 0)?))
}

/// Whether an address is in the shared heap: 1 or 0, also before the start.
#[unsafe(no_mangle)]
pub extern "C" fn comem_is_shared(pointer: *const c_void) -> c_int {
    c_int::from(started().is_some_and(|job| job.is_shared(pointer.cast())))
}

/// A barrier that says nothing about memory.
#[unsafe(no_mangle)]
pub extern "C" fn comem_rendezvous() -> c_int {
    done(|| Ok(thread()?.checked_rendezvous()?))
}
