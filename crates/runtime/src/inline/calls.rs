//! The functions that checked code calls. All of them take addresses of any memory.
//!
//! An access of up to 64 bytes that lies in one unit is made in one piece, as the plain instruction would make it.
//! What spans several units is made unit by unit, the lowest address first.

use super::ahead;
use super::hazards::store_inline;
use super::plain::{self, Op};
use super::{LineUnit, counted, engine_of, lines_of, on_locked, with_thread};
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::shared::one_sided::atomic::where_it_is;
use crate::thread::Thread;
use comem_memory::lines::Lines;
use comem_protocol::coherence::direct::{LINE_BYTES, MAGIC, UNIT_BYTES, Want};
use comem_protocol::coherence::pages::atomic::Atomic;
use std::ffi::{CStr, c_char};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence};

pub use super::hazards::{ABI, enter, object, without_hazard};

const UNIT_MAX: usize = UNIT_BYTES[UNIT_BYTES.len() - 1];
const WORD: usize = size_of::<u64>();
/// Bytes on their way between two places of shared memory.
#[repr(align(64))]
struct Buffer([u8; UNIT_MAX]);

/// Part of an access that lies in one unit.
pub(super) struct Piece<'a> {
    pub(super) thread: &'a Thread,
    pub(super) known: &'a RegionState,
    pub(super) unit: LineUnit,
    /// Bytes from the unit's first one.
    offset: usize,
    /// Which bytes of the access.
    bytes: Range<usize>,
}

impl Piece<'_> {
    /// Makes the access where the unit can be accessed; it gets the address of the piece's first byte.
    fn access(&self, want: Want, access: &mut dyn FnMut(*mut u8)) -> Result<()> {
        let offset = self.offset;
        let mut at_offset = |unit: *mut u8| access(unit.wrapping_add(offset));
        engine_of(self.known).unit_access(self.thread, self.known, self.unit, want, &mut at_offset)
    }
}

/// Whether all these bytes, or any of them, are lines memory.
pub fn touches_lines(address: usize, bytes: usize) -> bool {
    super::touches_lines(address..address.saturating_add(bytes))
}

/// Calls `f` for each unit of an access. Where nothing is allocated, the process ends as a plain access would end it.
fn each_piece(range: Range<usize>, mut f: impl FnMut(&Piece<'_>) -> Result<()>) {
    with_thread(|thread, shared, lines| {
        let mut at = range.start;
        while at < range.end {
            let Some((known, unit)) = unit_at(shared, lines, at)? else {
                // SAFETY: an address of lines memory in no allocation: it is closed, and the fault's handler says so.
                unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() };
                continue;
            };
            let start = lines.extent().base + unit.line as usize * LINE_BYTES;
            let end = (start + unit.lines as usize * LINE_BYTES).min(range.end);
            let bytes = at - range.start..end - range.start;
            f(&Piece { thread, known: &known, unit, offset: at - start, bytes })?;
            at = end;
        }
        Ok(())
    });
}

/// The unit with an address of lines memory, which is open from now on; `None` where nothing is allocated.
pub(super) fn unit_at(shared: &Shared, lines: &Lines, address: usize) -> Result<Option<(Arc<RegionState>, LineUnit)>> {
    let Some(known) = shared.page_of(address).and_then(|page| shared.table.find(page)) else { return Ok(None) };
    if known.is_freed() {
        return Ok(None);
    }
    let Some(unit) = shared.line_unit(&known, address) else { return Ok(None) };
    shared.open_grain_at(lines, &known, address)?;
    Ok(Some((known, unit)))
}

/// Whether stores to these bytes may go ahead now, if their hazard is up.
pub(super) fn may_store(range: Range<usize>) -> bool {
    let Some((first, lines)) = lines_of(&range) else { return true };
    (first..=(range.end - 1) / LINE_BYTES).all(|line| {
        let Some(at) = lines.line_at(line * LINE_BYTES) else { return true };
        let grain = at / comem_memory::lines::GRAIN_LINES;
        lines.is_open(grain) && lines.entry(at).load(Ordering::Relaxed) == 0
    })
}

/// Whether a value that was loaded from this address may be part of an invalid unit.
fn looks_invalid(at: *const u8, bytes: usize) -> bool {
    let (start, end) = (at.addr() / 4 * 4, at.addr() + bytes);
    (start..end).step_by(4).any(|word| {
        // SAFETY: an aligned word in the unit of the access, which may be read.
        let word = unsafe { AtomicU32::from_ptr(at.with_addr(word).cast_mut().cast()) };
        word.load(Ordering::Relaxed) == MAGIC
    })
}

/// Copies between private memory and memory that others use: in one piece where a plain instruction would, else in
/// words as far as they are whole.
///
/// # Safety
/// `from` may be read and `to` written; one of them is private, and they do not overlap.
unsafe fn transfer(from: *const u8, to: *mut u8, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        // SAFETY: within the range, by the loop's condition.
        let (from, to) = unsafe { (from.add(done), to.add(done)) };
        // SAFETY: by this function's contract; shared words are accessed atomically.
        done += unsafe { transfer_word(from, to, bytes - done) };
    }
}

/// Copies the largest word that both places are aligned for, or a byte; gives its length.
///
/// # Safety
/// As for [`transfer`].
#[inline]
unsafe fn transfer_word(from: *const u8, to: *mut u8, left: usize) -> usize {
    macro_rules! word {
        ($($atomic:ident $plain:ident),*) => { $(
            // The private side needs no alignment: which it is, the other's alignment does not tell.
            if left >= size_of::<$plain>() && from.cast::<$plain>().is_aligned() {
                // SAFETY: by this function's contract, and aligned.
                let value = unsafe { $atomic::from_ptr(from.cast_mut().cast()) }.load(Ordering::Relaxed);
                if to.cast::<$plain>().is_aligned() {
                    // SAFETY: as above.
                    unsafe { $atomic::from_ptr(to.cast()) }.store(value, Ordering::Relaxed);
                } else {
                    // SAFETY: by this function's contract.
                    unsafe { to.cast::<$plain>().write_unaligned(value) };
                }
                return size_of::<$plain>();
            }
            if left >= size_of::<$plain>() && to.cast::<$plain>().is_aligned() {
                // SAFETY: by this function's contract.
                let value = unsafe { from.cast::<$plain>().read_unaligned() };
                // SAFETY: by this function's contract, and aligned.
                unsafe { $atomic::from_ptr(to.cast()) }.store(value, Ordering::Relaxed);
                return size_of::<$plain>();
            }
        )* };
    }
    word!(AtomicU64 u64, AtomicU32 u32, AtomicU16 u16);
    // SAFETY: by this function's contract.
    unsafe {
        AtomicU8::from_ptr(to).store(AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed), Ordering::Relaxed)
    };
    1
}

/// A load whose value looked invalid.
///
/// # Safety
/// As for a load of so many bytes; `value` is private.
pub unsafe fn load(address: *const u8, value: *mut u8, bytes: usize) {
    let start = address.expose_provenance();
    if !touches_lines(start, bytes) {
        // SAFETY: by this function's contract.
        return unsafe { transfer(address, value, bytes) };
    }
    each_piece(start..start + bytes, |piece| {
        counted(piece.thread, piece.known, |thread, region| (&thread.load_misses, &region.load_misses));
        if ahead::after_miss(piece, Want::Bring)? {
            // SAFETY: by this function's contract.
            let is_here = unsafe { read_valid(address.add(piece.bytes.start), piece.bytes.len()) };
            if let Some(bytes) = is_here {
                // SAFETY: the value has room for the piece.
                unsafe { bytes.as_ptr().copy_to_nonoverlapping(value.add(piece.bytes.start), piece.bytes.len()) };
                return Ok(());
            }
        }
        piece.access(Want::Load, &mut |at| {
            // SAFETY: the piece may be read, and the value has room for it.
            unsafe { transfer(at, value.add(piece.bytes.start), piece.bytes.len()) };
            if looks_invalid(at, piece.bytes.len()) {
                counted(piece.thread, piece.known, |thread, region| (&thread.genuine_magic, &region.genuine_magic));
            }
        })
    });
}

/// A store to a line that is not this node's alone.
///
/// # Safety
/// As for a store of so many bytes; `value` is private.
pub unsafe fn store(address: *mut u8, value: *const u8, bytes: usize) {
    let start = address.expose_provenance();
    if !touches_lines(start, bytes) {
        // SAFETY: by this function's contract.
        return unsafe { transfer(value, address, bytes) };
    }
    // SAFETY: the bytes may be written while the unit is locked, and the value has so many.
    if on_locked(start, bytes, |at| unsafe { transfer(value, at, bytes) }) {
        return;
    }
    each_piece(start..start + bytes, |piece| {
        written(piece)?;
        ahead::after_miss(piece, Want::Own)?;
        piece.access(Want::Store, &mut |at| {
            // SAFETY: the piece may be written, and the value has so many bytes.
            unsafe { transfer(value.add(piece.bytes.start), at, piece.bytes.len()) };
        })
    });
}

/// Loads up to 64 bytes as a program does, in whole words; `None` if one of them may be of an invalid unit.
///
/// # Safety
/// The bytes lie in one unit, which may be read.
unsafe fn read_valid(from: *const u8, bytes: usize) -> Option<[u8; LINE_BYTES]> {
    let mut out = [0; LINE_BYTES];
    let (start, mut done) = (from.addr() / WORD * WORD, 0);
    for at in (start..from.addr() + bytes).step_by(WORD) {
        // SAFETY: an aligned word in the unit of the access.
        let word = unsafe { AtomicU64::from_ptr(from.with_addr(at).cast_mut().cast()) }.load(Ordering::Relaxed);
        if word as u32 == MAGIC || (word >> 32) as u32 == MAGIC {
            return None;
        }
        let skip = if at < from.addr() { from.addr() - at } else { 0 };
        let part = word.to_ne_bytes();
        let part = &part[skip..WORD.min(skip + bytes - done)];
        out.get_mut(done..done + part.len())?.copy_from_slice(part);
        done += part.len();
    }
    Some(out)
}

/// Why an operation in one step is refused.
fn two_units(piece: &Piece<'_>, address: usize, bytes: usize) -> Error {
    Error::Unaligned(format!(
        "an atomic operation on {bytes} bytes at {address:#x} of {}, which lie in two units of {} bytes; align the \
         value",
        piece.known.name(),
        piece.unit.lines as usize * LINE_BYTES
    ))
}

/// A store has missed: counts it, unless the program has said that there will be none.
fn written(piece: &Piece<'_>) -> Result<()> {
    store_missed(piece.thread, piece.known)
}

/// The same for a unit of this region.
pub(super) fn store_missed(thread: &Thread, known: &RegionState) -> Result<()> {
    counted(thread, known, |thread, region| (&thread.store_misses, &region.store_misses));
    if known.read_only.load(Ordering::Acquire) {
        return Err(crate::shared::fault::refuse_write(known));
    }
    Ok(())
}

/// Makes the units of a range this node's alone, as far as that lasts. Locked ones stay locked: a strip does not store
/// to them, and its stores are calls.
pub fn own(first: *const u8, bytes: usize) {
    own_as(first, bytes, Want::Own);
}

/// The same for a thread in the middle of a strip, which can go on in no other way: locked units become biased, where
/// there are barriers. Without them no strip begins in lines memory.
pub fn own_again(first: *const u8, bytes: usize) {
    own_as(first, bytes, Want::OwnBiased);
}

fn own_as(first: *const u8, bytes: usize, want: Want) {
    let start = first.expose_provenance();
    // A strip may begin or end in private memory.
    let Some((first, _)) = lines_of(&(start..start + bytes)) else { return };
    ahead::take(start.max(first * LINE_BYTES)..super::lines_end().min(start + bytes), want);
}

/// Brings the units of a range here, to be read.
pub(super) fn bring(range: Range<usize>) {
    ahead::take(range, Want::Bring);
}

/// An atomic operation on a line that is not this node's alone.
///
/// # Safety
/// As for the operation; the other pointers are to private values of so many bytes.
pub unsafe fn atomic(address: *mut u8, bytes: u32, op: u32, operand: *const u8, expected: *const u8, old: *mut u8) {
    let (start, bytes) = (address.expose_provenance(), bytes as usize);
    let wrong = |what: String| super::end_for(&Error::Argument(what));
    let Some(op) = Op::of(op, bytes) else {
        wrong(format!("checked code asks for atomic operation {op} on {bytes} bytes, which there is not"))
    };
    // SAFETY: by this function's contract.
    let value = |at: *const u8| if at.is_null() { 0 } else { unsafe { plain::read(at, bytes) } };
    let (operand, expected) = (value(operand), value(expected));
    if bytes == 16 && !start.is_multiple_of(16) {
        wrong(format!("an atomic operation on 16 bytes at {start:#x}, which is no multiple of 16; align the value"));
    }
    // SAFETY: by this function's contract.
    let give = |before: u128| unsafe { old.copy_from_nonoverlapping(before.to_le_bytes().as_ptr(), bytes) };
    if !touches_lines(start, bytes) {
        // SAFETY: by this function's contract.
        return give(unsafe { op.make(address, bytes, operand, expected) });
    }
    // SAFETY: the bytes may be read and written while the unit is locked.
    if on_locked(start, bytes, |at| give(unsafe { op.make(at, bytes, operand, expected) })) {
        return;
    }
    each_piece(start..start + bytes, |piece| {
        if piece.bytes != (0..bytes) {
            return Err(two_units(piece, start, bytes));
        }
        written(piece)?;
        piece.access(Want::Store, &mut |at| {
            // SAFETY: the bytes may be read and written.
            give(unsafe { op.make(at, bytes, operand, expected) });
        })
    });
}

/// Makes `access` on some bytes of lines memory while they are this node's alone, if they lie in one unit; it gets
/// their address there. `false`, and nothing is done, where they are no lines memory.
///
/// # Errors
/// When they lie in two units, or the job is lost.
pub fn alone(address: usize, bytes: usize, access: &mut dyn FnMut(*mut u8)) -> Result<bool> {
    if !touches_lines(address, bytes) {
        return Ok(false);
    }
    let mut result = Ok(true);
    each_piece(address..address + bytes, |piece| {
        if piece.bytes != (0..bytes) {
            result = Err(two_units(piece, address, bytes));
            return Ok(());
        }
        written(piece)?;
        piece.access(Want::Store, access)
    });
    result
}

/// An atomic operation of the interface, not of checked code.
pub(crate) fn atomic_here(address: usize, operation: Atomic) -> Result<u64> {
    let mut result = 0;
    alone(address, operation.kind.bytes(), &mut |at| result = where_it_is(at.expose_provenance(), operation))?;
    Ok(result)
}

/// Stores up to a word to lines memory if its unit is this node's alone; whether it did. The address is a multiple of
/// the length.
#[inline]
pub(super) fn store_at_once(address: usize, bytes: &[u8]) -> bool {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the bytes may be written while their hazard is up and their entry is free.
    store_inline(address..address + bytes.len(), || unsafe { transfer(bytes.as_ptr(), at, bytes.len()) })
}

/// Reads bytes of one unit as they were at one time. No other thread of this node uses the unit meanwhile, and none
/// brings it ahead.
pub(super) fn read_whole(address: usize, out: &mut [u8]) {
    let at = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the bytes may be read; a closed grain is opened by its first touch.
    unsafe { transfer(at, out.as_mut_ptr(), out.len()) };
    compiler_fence(Ordering::SeqCst);
    // What has been taken away while it was copied looks so now: nobody brings it back.
    if !looks_invalid(at, out.len()) {
        return;
    }
    each_piece(address..address + out.len(), |piece| {
        counted(piece.thread, piece.known, |thread, region| (&thread.load_misses, &region.load_misses));
        piece.access(Want::Load, &mut |at| {
            // SAFETY: the piece may be read, and there is room for it.
            unsafe { transfer(at, out[piece.bytes.clone()].as_mut_ptr(), piece.bytes.len()) };
            if looks_invalid(at, piece.bytes.len()) {
                counted(piece.thread, piece.known, |thread, region| (&thread.genuine_magic, &region.genuine_magic));
            }
        })
    });
}

/// Writes bytes of one unit, with the same conditions.
pub(super) fn write_whole(address: usize, bytes: &[u8]) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the bytes may be written while their hazard is up and their entries are free.
    if store_inline(address..address + bytes.len(), || unsafe { transfer(bytes.as_ptr(), at, bytes.len()) }) {
        return;
    }
    // SAFETY: the bytes may be written while the unit is locked.
    if on_locked(address, bytes.len(), |at| unsafe { transfer(bytes.as_ptr(), at, bytes.len()) }) {
        return;
    }
    each_piece(address..address + bytes.len(), |piece| {
        written(piece)?;
        piece.access(Want::Store, &mut |at| {
            // SAFETY: the piece may be written, and there are as many bytes.
            unsafe { transfer(bytes[piece.bytes.clone()].as_ptr(), at, piece.bytes.len()) };
        })
    });
}

/// Changes an aligned word of lines memory from `old` to `new` in one step; whether it was `old`.
pub(super) fn change(address: usize, old: u64, new: u64) -> bool {
    let mut is_done = false;
    each_piece(address..address + WORD, |piece| {
        written(piece)?;
        piece.access(Want::Store, &mut |at| {
            // SAFETY: an aligned word that may be read and written; others use it atomically.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            is_done = word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        })
    });
    is_done
}

/// Runs `step` for the parts of a range that lie in one unit of the largest size; the last part first if `backwards`.
fn each_chunk(range: Range<usize>, backwards: bool, mut step: impl FnMut(Range<usize>)) {
    let (mut start, mut end) = (range.start, range.end);
    while start < end {
        let part = match backwards {
            false => start..((start / UNIT_MAX + 1) * UNIT_MAX).min(end),
            true => ((end - 1) / UNIT_MAX * UNIT_MAX).max(start)..end,
        };
        if backwards {
            end = part.start
        } else {
            start = part.end
        }
        step(part);
    }
}

/// Reads a part of lines memory: word by word, and by calls where a word may be of an invalid unit.
///
/// # Safety
/// The part may be read, and `out` is private and has room for it.
unsafe fn read_chunk(from: Range<usize>, out: *mut u8) {
    for start in (from.start / WORD * WORD..from.end).step_by(WORD) {
        // SAFETY: an aligned word with bytes of the part, which lie in one unit; a closed grain is opened by its first
        // touch.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(start)) }.load(Ordering::Relaxed);
        let part = start.max(from.start)..(start + WORD).min(from.end);
        let mut bytes = word.to_le_bytes();
        let bytes = &mut bytes[part.start - start..part.end - start];
        if word as u32 == MAGIC || (word >> 32) as u32 == MAGIC {
            // SAFETY: bytes of the part, and room for them.
            unsafe { load(std::ptr::with_exposed_provenance(part.start), bytes.as_mut_ptr(), bytes.len()) };
        }
        // SAFETY: as above.
        unsafe { out.add(part.start - from.start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

/// Reads shared memory of any length into private memory.
///
/// # Safety
/// As for `memcpy`; `out` is private.
pub unsafe fn read(out: *mut u8, shared: *const u8, bytes: usize) {
    let start = shared.expose_provenance();
    if !touches_lines(start, bytes) {
        // SAFETY: by this function's contract.
        return unsafe { std::ptr::copy(shared, out, bytes) };
    }
    each_chunk(start..start + bytes, false, |part| {
        // SAFETY: a part of the range, and room for it.
        unsafe { read_chunk(part.clone(), out.add(part.start - start)) };
    });
}

/// Writes a chunk from private memory: by plain stores where they may go ahead, else by calls.
///
/// # Safety
/// As for [`write`], of a part that lies in one chunk.
unsafe fn write_chunk(to: Range<usize>, from: *const u8) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(to.start);
    // SAFETY: by this function's contract.
    if !store_inline(to.clone(), || unsafe { transfer(from, at, to.len()) }) {
        // SAFETY: by this function's contract.
        unsafe { store(at, from, to.len()) };
    }
}

/// Writes private memory of any length into shared memory.
///
/// # Safety
/// As for `memcpy`; `from` is private.
pub unsafe fn write(shared: *mut u8, from: *const u8, bytes: usize) {
    let start = shared.expose_provenance();
    if !touches_lines(start, bytes) {
        // SAFETY: by this function's contract.
        return unsafe { std::ptr::copy(from, shared, bytes) };
    }
    each_chunk(start..start + bytes, false, |part| {
        // SAFETY: a part of the range, and as many bytes.
        unsafe { write_chunk(part.clone(), from.add(part.start - start)) };
    });
}

/// `memmove` between memory of any kind.
///
/// # Safety
/// As for `memmove`.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    let (start, target) = (from.expose_provenance(), to.expose_provenance());
    if !touches_lines(start, bytes) && !touches_lines(target, bytes) {
        // SAFETY: by this function's contract.
        return unsafe { std::ptr::copy(from, to, bytes) };
    }
    let backwards = target > start && target < start + bytes;
    each_chunk(start..start + bytes, backwards, |part| {
        // Neither side may fault, nor be waited for, while the other is accessed.
        let mut buffer = Buffer([0; UNIT_MAX]);
        // SAFETY: a part of both ranges, and the buffer has room for it.
        unsafe {
            read(buffer.0.as_mut_ptr(), std::ptr::with_exposed_provenance(part.start), part.len());
            write(to.add(part.start - start), buffer.0.as_ptr(), part.len());
        }
    });
}

/// `memset` of memory of any kind.
///
/// # Safety
/// As for `memset`.
pub unsafe fn set(to: *mut u8, byte: u8, bytes: usize) {
    let start = to.expose_provenance();
    if !touches_lines(start, bytes) {
        // SAFETY: by this function's contract.
        return unsafe { std::ptr::write_bytes(to, byte, bytes) };
    }
    let buffer = Buffer([byte; UNIT_MAX]);
    each_chunk(start..start + bytes, false, |part| {
        // SAFETY: a part of the range; no chunk is longer than the buffer.
        unsafe { write_chunk(part.clone(), buffer.0.as_ptr()) };
    });
}

/// The compiler took these bytes for private: the node ends if they are not.
///
/// # Safety
/// `place` is null or a string.
pub unsafe fn verify(address: *const u8, bytes: usize, place: *const c_char) {
    let start = address.addr();
    if !touches_lines(start, bytes) {
        return;
    }
    // SAFETY: by this function's contract.
    let place = if place.is_null() { "?".into() } else { unsafe { CStr::from_ptr(place) }.to_string_lossy() };
    super::end_for(&Error::Argument(format!(
        "{place}: an access to {start:#x} was taken for one to private memory, and it is shared; please report this, \
         with the function's text"
    )))
}
