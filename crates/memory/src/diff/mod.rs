//! Diffs: what changed in a unit of memory since its twin was taken, exact to the byte.
//!
//! Several nodes may write different bytes of one page at the same time; each sends what it changed to the page's home
//! (multiple-writer protocols; HLRC, Nautilus). So a diff holds the changed bytes and no other, and applying it stores
//! these bytes and no other, because a thread at the home may be writing the byte beside them.
//!
//! A unit is compared page by page. One pass loads each word of the page once, compares it with the twin, and makes it
//! the new twin; it leaves one bit for each byte (`kernel::Masks`). The encoding (`encoding`) is made from these bits
//! and from the new twin, so what is sent, what is compared and what later diffs are compared with cannot differ,
//! however busily others write. The pass exists three times, in AVX-512, AVX2 and plain Rust (`kernel`); the bytes are
//! the same.
//!
//! ```text
//! diff   = pages - 1 : u8, page...                      pages in ascending order; a unit has 1 to 256
//! page   = number : u8, form : u8, head, changed bytes  in ascending order
//! head   = nothing                                      form 0: all 4096 bytes changed
//!        | runs : u8, run...                            form 1: run = 4 bits length, 12 bits offset : u16,
//!                                                               and where the 4 bits are zero, length : u16
//!        | words : [u8; 64]                             form 2: one bit for each 8-byte word; all of the word
//!        | words : [u8; 64], partial, masks             form 3: partial = one bit for each changed word, in whole
//!                                                               bytes; masks = one byte for each partial word
//!        | lines : u64, usual : u64, others, line...    form 4: lines = one bit for each 64-byte line with a
//!                                                               change; usual = the bits of most of these; others =
//!                                                               one bit for each of them, in whole bytes: not as usual
//! line   = words : u8, masks                             which of its 8-byte words are not as usual; one byte for each
//! ```
//!
//! Numbers are little-endian. Counters of 4 bytes each, of which the lowest changes, are what form 4 is for. The
//! shortest form is taken. Heads that no maker writes (runs that touch each other, bits that say nothing) are refused.

mod encoding;
mod kernel;
#[cfg(test)]
mod tests;

use crate::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::ByteMarks;
use encoding::Reader;
use kernel::{Kernel, NO_MASKS, Page};
use std::fmt;
#[cfg(test)]
use std::ops::Range;

/// The largest unit, in bytes.
pub const UNIT_BYTES_MAX: usize = 256 * PAGE_BYTES;

/// Bytes that are not a diff of the unit they were meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDiff {
    /// They end too early.
    Truncated,
    /// A page number outside the unit, or out of order.
    Page,
    /// A form that does not exist.
    Form,
    /// Runs that are empty, touch each other, or reach over the page's end.
    Runs,
    /// Bits that name no byte, or more or fewer bytes than their form is for.
    Bits,
}

impl fmt::Display for BadDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadDiff::Truncated => "the diff ends too early",
            BadDiff::Page => "the diff names a page outside the unit, or out of order",
            BadDiff::Form => "the diff has a page of unknown form",
            BadDiff::Runs => "the diff has a run that is empty, touches another or leaves its page",
            BadDiff::Bits => "the diff has bits that do not fit their form",
        })
    }
}

impl std::error::Error for BadDiff {}

/// Compares `twin.len()` bytes at `now` with `twin`, appends the encoded diff to `out`, and brings `twin` up to date.
/// Other threads may be writing meanwhile: each word is read once. Returns the count of changed bytes; at 0 nothing was
/// appended.
///
/// # Panics
/// When the twin is not 1 to 256 whole pages.
///
/// # Safety
/// `now .. now + twin.len()` is readable.
pub unsafe fn make(now: *const u8, twin: &mut [u8], out: &mut Vec<u8>) -> usize {
    // SAFETY: the caller's promise, and `best` works here.
    unsafe { make_by(Kernel::best(), now, twin, out) }
}

/// As [`make`], for memory that nobody writes meanwhile.
///
/// # Panics
/// When the two differ in length, or as [`make`].
pub fn make_slice(now: &[u8], twin: &mut [u8], out: &mut Vec<u8>) -> usize {
    assert_eq!(now.len(), twin.len());
    // SAFETY: the slice is readable and as long as the twin.
    unsafe { make(now.as_ptr(), twin, out) }
}

/// # Safety
/// As for [`make`]; the kernel works on this processor.
unsafe fn make_by(kernel: Kernel, now: *const u8, twin: &mut [u8], out: &mut Vec<u8>) -> usize {
    assert!((1..=UNIT_BYTES_MAX).contains(&twin.len()) && twin.len().is_multiple_of(PAGE_BYTES));
    let (head, mut pages, mut total) = (out.len(), 0_usize, 0);
    let mut masks = NO_MASKS;
    for (number, twin) in twin.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().enumerate() {
        // SAFETY: as many pages at `now` as the twin has.
        let changed = unsafe { kernel.compare(now.add(number * PAGE_BYTES), twin, &mut masks) };
        if changed == 0 {
            continue;
        }
        if pages == 0 {
            out.push(0);
        }
        pages += 1;
        total += changed;
        out.push(number as u8);
        // SAFETY: the kernel works here.
        unsafe {
            kernel.write_head(&masks, changed, out);
            kernel.gather(twin, &masks, changed, out);
        }
    }
    if pages > 0 {
        out[head] = (pages - 1) as u8;
    }
    total
}

/// Brings `twin` up to date with `twin.len()` bytes at `now`, as [`make`] does, for who need not know what changed.
/// Gives whether anything did.
///
/// # Panics
/// When the twin is not whole pages.
///
/// # Safety
/// `now .. now + twin.len()` is readable.
pub unsafe fn update(now: *const u8, twin: &mut [u8]) -> bool {
    // SAFETY: the caller's promise, and `best` works here.
    unsafe { update_by(Kernel::best(), now, twin) }
}

/// # Safety
/// As for [`update`]; the kernel works on this processor.
unsafe fn update_by(kernel: Kernel, now: *const u8, twin: &mut [u8]) -> bool {
    assert!(twin.len().is_multiple_of(PAGE_BYTES));
    let (mut masks, mut changed) = (NO_MASKS, false);
    for (number, twin) in twin.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().enumerate() {
        // SAFETY: as many pages at `now` as the twin has.
        changed |= unsafe { kernel.compare(now.add(number * PAGE_BYTES), twin, &mut masks) } > 0;
    }
    changed
}

/// Checks an encoded diff for a unit of `len` bytes; more may follow it. Returns how many bytes of `encoded` it takes.
///
/// # Errors
/// [`BadDiff`], whatever the bytes are: it never panics, and it accepts no range outside the unit.
pub fn check(encoded: &[u8], len: usize) -> Result<usize, BadDiff> {
    let mut reader = Reader::new(encoded, len)?;
    let (kernel, mut masks) = (Kernel::best(), NO_MASKS);
    // SAFETY: `best` works here.
    while unsafe { kernel.next(&mut reader, &mut masks) }?.is_some() {}
    Ok(reader.taken())
}

/// Applies a diff that [`check`] has accepted: stores the changed bytes and nothing else.
///
/// # Errors
/// [`BadDiff`]; then the pages before the bad one have been stored, but nothing outside the unit.
///
/// # Safety
/// `target .. target + len` is writable. Others may use these bytes meanwhile; they see each changed byte old or
/// new.
pub unsafe fn apply(target: *mut u8, len: usize, encoded: &[u8]) -> Result<(), BadDiff> {
    // SAFETY: the caller's promise, and `best` works here.
    unsafe { apply_by(Kernel::best(), target, len, encoded) }
}

/// As [`apply`], for memory that nobody else uses meanwhile.
///
/// # Errors
/// As for [`apply`].
pub fn apply_slice(target: &mut [u8], encoded: &[u8]) -> Result<(), BadDiff> {
    // SAFETY: the slice is writable.
    unsafe { apply(target.as_mut_ptr(), target.len(), encoded) }
}

/// # Safety
/// As for [`apply`]; the kernel works on this processor.
unsafe fn apply_by(kernel: Kernel, target: *mut u8, len: usize, encoded: &[u8]) -> Result<(), BadDiff> {
    let mut reader = Reader::new(encoded, len)?;
    let mut masks = NO_MASKS;
    // SAFETY: the kernel works here.
    while let Some(Page { number, bytes }) = unsafe { kernel.next(&mut reader, &mut masks) }? {
        // SAFETY: the reader gives only pages within the unit, and as many bytes as the masks have bits.
        unsafe { kernel.scatter(target.add(number * PAGE_BYTES), &masks, bytes) };
    }
    Ok(())
}

/// Brings a unit up to date: what in `bytes` differs from `twin` is stored at `target` and in the twin, and nothing
/// else.
///
/// # Panics
/// When `bytes` and the twin differ in length, or are not whole pages.
///
/// # Safety
/// `target .. target + twin.len()` is writable. Others may use these bytes meanwhile; they see each changed byte old or
/// new.
pub unsafe fn renew(target: *mut u8, twin: &mut [u8], bytes: &[u8]) {
    // SAFETY: the caller's promise, and `best` works here.
    unsafe { renew_by(Kernel::best(), target, twin, bytes) }
}

/// # Safety
/// As for [`renew`]; the kernel works on this processor.
unsafe fn renew_by(kernel: Kernel, target: *mut u8, twin: &mut [u8], bytes: &[u8]) {
    assert!(twin.len() == bytes.len() && twin.len().is_multiple_of(PAGE_BYTES));
    let mut masks = NO_MASKS;
    let pages = twin.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().zip(bytes.as_chunks::<PAGE_BYTES>().0);
    for (number, (twin, bytes)) in pages.enumerate() {
        // SAFETY: a page is readable there; the caller's promise for the target.
        unsafe {
            if kernel.compare(bytes.as_ptr(), twin, &mut masks) > 0 {
                kernel.merge(target.add(number * PAGE_BYTES), twin, &masks);
            }
        }
    }
}

/// Compares `twin.len()` bytes at `now` with `twin`, stores what differs at `target` and in the twin, and nothing else:
/// [`make`] and [`apply`] in one, without an encoding between them. Other threads may be writing at `now` meanwhile:
/// each word is read once. `changed` is told of each page of the unit that changed, with one bit for each byte. Returns
/// the count of changed bytes.
///
/// # Panics
/// When the twin is not 1 to 256 whole pages.
///
/// # Safety
/// `now .. now + twin.len()` is readable and `target .. target + twin.len()` writable. Others may use the bytes at
/// `target` meanwhile; they see each changed byte old or new.
pub unsafe fn put(
    now: *const u8,
    twin: &mut [u8],
    target: *mut u8,
    changed: &mut dyn FnMut(usize, &ByteMarks),
) -> usize {
    // SAFETY: the caller's promise, and `best` works here.
    unsafe { put_by(Kernel::best(), now, twin, target, changed) }
}

/// # Safety
/// As for [`put`]; the kernel works on this processor.
unsafe fn put_by(
    kernel: Kernel,
    now: *const u8,
    twin: &mut [u8],
    target: *mut u8,
    changed: &mut dyn FnMut(usize, &ByteMarks),
) -> usize {
    assert!((1..=UNIT_BYTES_MAX).contains(&twin.len()) && twin.len().is_multiple_of(PAGE_BYTES));
    let (mut masks, mut total) = (NO_MASKS, 0);
    for (number, twin) in twin.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().enumerate() {
        let at = number * PAGE_BYTES;
        // SAFETY: as many pages at `now` and at `target` as the twin has.
        let count = unsafe { kernel.compare(now.add(at), twin, &mut masks) };
        if count > 0 {
            // SAFETY: as above.
            unsafe { kernel.merge(target.add(at), twin, &masks) };
            changed(number, &masks);
            total += count;
        }
    }
    total
}

/// The changed byte ranges of an encoded diff, in order. Ranges of different pages are not joined. It ends where the
/// bytes are not a diff.
#[cfg(test)]
fn ranges(encoded: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut reader = Reader::new(encoded, UNIT_BYTES_MAX).ok();
    let pages = std::iter::from_fn(move || {
        let mut masks = NO_MASKS;
        // SAFETY: `best` works here.
        let page = unsafe { Kernel::best().next(reader.as_mut()?, &mut masks) }.ok()??;
        Some((page.number * PAGE_BYTES, masks))
    });
    pages.flat_map(|(start, masks)| {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = encoding::next_run(&masks, at)?;
            at = run.end;
            Some(start + run.start..start + run.end)
        })
    })
}

/// Tells `f` of the pages of an encoded diff, in order, each by its number in the unit and with the bytes that changed.
/// It ends where the bytes are not a diff.
pub fn marks(encoded: &[u8], mut f: impl FnMut(usize, &ByteMarks)) {
    let Ok(mut reader) = Reader::new(encoded, UNIT_BYTES_MAX) else { return };
    let (kernel, mut masks) = (Kernel::best(), NO_MASKS);
    // SAFETY: `best` works here.
    while let Ok(Some(page)) = unsafe { kernel.next(&mut reader, &mut masks) } {
        f(page.number, &masks);
    }
}
