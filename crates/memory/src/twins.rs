//! Twins: what a unit held when it arrived, to find out later what was changed.
//!
//! Twins come and go with the units that a node caches, all of a few sizes. Blocks are cut from larger pieces of memory and kept for the
//! next twin of their size, so that making a twin is a copy and nothing else: as many bytes as the owner of the pool says it may
//! want ([`Twins::keep`]). Beyond that a free block's memory is given back, but not its addresses: giving those back one
//! by one would leave the process with more mappings than it may have.

use crate::mapping::Mapping;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Free blocks keep their memory up to this many bytes, whatever is in use.
const KEPT_BYTES_MIN: usize = 32 << 20;
/// What is asked of the system at a time: addresses, and memory behind them.
const PIECE_BYTES: usize = 4 << 20;
const BATCH_BYTES: usize = 64 << 10;

/// A block's address. It lies in a piece that its pool keeps.
#[derive(Clone, Copy, Debug)]
struct Block(NonNull<u8>);

// SAFETY: an address; whoever takes a block from the pool is the only one to have it.
unsafe impl Send for Block {}
// SAFETY: as above: it is used through the twin that owns it alone.
unsafe impl Sync for Block {}

/// Free blocks of one size.
#[derive(Debug)]
struct Size {
    bytes: usize,
    /// Blocks with memory.
    warm: Vec<Block>,
    /// Blocks that have none until they are touched.
    cold: Vec<Block>,
}

#[derive(Debug, Default)]
struct Free {
    sizes: Vec<Size>,
    warm_bytes: usize,
    pieces: Vec<Mapping>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Mutex<Free>,
    in_use: AtomicUsize,
    /// How much memory free blocks keep beyond [`KEPT_BYTES_MIN`], with what is in use.
    wanted: AtomicUsize,
}

/// A pool of twins, for use by many threads. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Twins {
    pool: Arc<Pool>,
}

/// A block of memory that goes back to its pool when it is dropped. At first it holds whatever its last user left
/// there.
#[derive(Debug)]
pub struct Twin {
    block: Block,
    bytes: usize,
    pool: Arc<Pool>,
}

impl Twins {
    /// An empty pool.
    pub fn new() -> Twins {
        Twins::default()
    }

    /// A block of `bytes` bytes, a unit's size. What it holds is arbitrary.
    ///
    /// # Panics
    /// When `bytes` is not a multiple of 4096, or 0; when the system has no memory for it, as any allocation would.
    pub fn take(&self, bytes: usize) -> Twin {
        assert!(bytes > 0 && bytes.is_multiple_of(4096));
        let block = self.pool.lock().take(bytes);
        self.pool.in_use.fetch_add(bytes, Ordering::Relaxed);
        Twin { block, bytes, pool: self.pool.clone() }
    }

    /// Gives a block of `bytes` bytes to each place that has none, in one look at the pool; in the order of their addresses, so that many lie one
    /// behind the other.
    ///
    /// # Panics
    /// As [`Twins::take`].
    pub fn take_into(&self, places: &mut [Option<Twin>], bytes: usize) {
        assert!(bytes > 0 && bytes.is_multiple_of(4096));
        let count = places.iter().filter(|place| place.is_none()).count();
        let mut free = self.pool.lock();
        let mut blocks: Vec<Block> = (0..count).map(|_| free.take(bytes)).collect();
        drop(free);
        // Blocks that were taken together come back together, in the other order.
        blocks.sort_unstable_by_key(|block| block.0);
        for (place, block) in places.iter_mut().filter(|place| place.is_none()).zip(blocks) {
            *place = Some(Twin { block, bytes, pool: self.pool.clone() });
        }
        self.pool.in_use.fetch_add(count * bytes, Ordering::Relaxed);
    }

    /// Has memory ready for `count` twins of `bytes` bytes each, as far as that can be had; for moments with nothing else to do.
    ///
    /// # Panics
    /// As [`Twins::take`].
    pub fn prepare(&self, count: usize, bytes: usize) {
        assert!(bytes > 0 && bytes.is_multiple_of(4096));
        self.pool.lock().prepare(count, bytes);
    }

    /// Brings the memory of the next twin of this size nearer.
    pub fn look_ahead(&self, bytes: usize) {
        if let Some(block) = self.pool.lock().size(bytes).warm.last() {
            crate::ahead::of_writes(block.0.as_ptr(), bytes);
        }
    }

    /// From now on so many bytes of twins may be wanted at a time, those in use included.
    pub fn keep(&self, bytes: usize) {
        let before = self.pool.wanted.swap(bytes, Ordering::Relaxed);
        if bytes < before {
            let limit = self.pool.limit();
            self.pool.lock().trim(limit);
        }
    }

    /// Bytes in twins that are in use.
    pub fn bytes_in_use(&self) -> usize {
        self.pool.in_use.load(Ordering::Relaxed)
    }

    /// Bytes of memory in free blocks.
    pub fn bytes_kept(&self) -> usize {
        self.pool.lock().warm_bytes
    }
}

impl Pool {
    /// How many bytes of memory free blocks may keep: as much again as is in use may be wanted next.
    fn limit(&self) -> usize {
        let in_use = self.in_use.load(Ordering::Relaxed);
        let wanted = self.wanted.load(Ordering::Relaxed).saturating_sub(in_use);
        wanted.max(in_use).max(KEPT_BYTES_MIN)
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Free {
    fn size(&mut self, bytes: usize) -> &mut Size {
        let index = self.sizes.iter().position(|size| size.bytes == bytes).unwrap_or_else(|| {
            self.sizes.push(Size { bytes, warm: Vec::new(), cold: Vec::new() });
            self.sizes.len() - 1
        });
        &mut self.sizes[index]
    }

    fn take(&mut self, bytes: usize) -> Block {
        if self.size(bytes).warm.is_empty() {
            self.prepare(1, bytes);
        }
        if let Some(block) = self.size(bytes).warm.pop() {
            self.warm_bytes -= bytes;
            return block;
        }
        self.cold(bytes)
    }

    /// A block that has no memory until it is touched.
    fn cold(&mut self, bytes: usize) -> Block {
        if let Some(block) = self.size(bytes).cold.pop() {
            return block;
        }
        let piece = Mapping::new(PIECE_BYTES.max(bytes)).expect("memory for twins");
        let count = piece.bytes() / bytes;
        // SAFETY: block number `index` lies within the piece, which stays as long as the pool.
        let block = |index| Block(unsafe { NonNull::new_unchecked(piece.start().add(index * bytes)) });
        self.size(bytes).cold.extend((1..count).rev().map(block));
        let first = block(0);
        self.pieces.push(piece);
        first
    }

    /// Gives memory to cold blocks, many at a time, until `count` are warm.
    fn prepare(&mut self, count: usize, bytes: usize) {
        while self.size(bytes).warm.len() < count {
            let first = self.cold(bytes);
            let mut blocks = vec![first];
            let next = |blocks: &[Block]| blocks[0].0.as_ptr().wrapping_add(blocks.len() * bytes);
            let cold = &mut self.size(bytes).cold;
            while (blocks.len() + 1) * bytes <= BATCH_BYTES
                && cold.last().is_some_and(|b| b.0.as_ptr() == next(&blocks))
            {
                blocks.extend(cold.pop());
            }
            let len = blocks.len() * bytes;
            // SAFETY: whole pages of private mappings, which nobody uses. That the system may not know the call costs nothing.
            unsafe { libc::madvise(first.0.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
            self.warm_bytes += len;
            self.size(bytes).warm.extend(blocks);
        }
    }

    fn put(&mut self, block: Block, bytes: usize, limit: usize) {
        if self.warm_bytes + bytes <= limit {
            self.size(bytes).warm.push(block);
            self.warm_bytes += bytes;
        } else {
            self.release(block, bytes);
        }
    }

    fn release(&mut self, block: Block, bytes: usize) {
        // SAFETY: whole pages of a private mapping, which nobody uses: they lose their contents and stay mapped.
        let released = unsafe { libc::madvise(block.0.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        debug_assert_eq!(released, 0);
        self.size(bytes).cold.push(block);
    }

    /// Gives memory back until free blocks keep no more than `limit` bytes.
    fn trim(&mut self, limit: usize) {
        for index in 0..self.sizes.len() {
            let bytes = self.sizes[index].bytes;
            while self.warm_bytes > limit
                && let Some(block) = self.sizes[index].warm.pop()
            {
                self.warm_bytes -= bytes;
                self.release(block, bytes);
            }
        }
    }
}

impl Twin {
    /// Copies the twin's length from `from`, past the caches where `stream` says that this twin will not be looked at soon
    /// (pages that arrive in runs): then the copy costs the caches nothing.
    ///
    /// # Safety
    /// As many bytes are readable at `from`, and nobody stores there meanwhile.
    pub unsafe fn copy_from(&mut self, from: *const u8, stream: bool) {
        let (to, len) = (self.block.0.as_ptr(), self.bytes);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if stream {
            // SAFETY: as many bytes on both sides; blocks are whole pages.
            unsafe { copy_past_caches(from, to, len) };
            return settle();
        }
        let _ = stream;
        // SAFETY: as many bytes on both sides, and the block is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// What the first of these twins holds, with those behind it as far as they lie one behind the other in memory too; empty if there is no first.
pub fn stretch(twins: &[Option<Twin>]) -> &[u8] {
    let mut twins = twins.iter().map_while(Option::as_ref);
    let Some(first) = twins.next() else { return &[] };
    let (start, mut bytes) = (first.block.0.as_ptr(), first.bytes);
    for twin in twins.take_while(|twin| twin.bytes == first.bytes) {
        if twin.block.0.as_ptr() != start.wrapping_add(bytes) {
            break;
        }
        bytes += twin.bytes;
    }
    // SAFETY: all of it belongs to these twins. Where one piece ends and another begins, it is still memory that the system gave at these addresses.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}

/// Copies bytes that stand one behind the other at `from` to these twins, past the caches.
///
/// # Safety
/// As many bytes as the twins have are readable at `from`, and nobody stores there meanwhile.
pub unsafe fn copy_from<'a>(twins: impl Iterator<Item = &'a mut Twin>, from: *const u8) {
    let mut at = 0;
    for twin in twins {
        // SAFETY: as many bytes on both sides, and blocks are ours alone and whole pages.
        unsafe { pass(from.add(at), twin.block.0.as_ptr(), None, twin.bytes) };
        at += twin.bytes;
    }
    settle();
}

/// As [`copy_from`], and to `also`: for units that arrive in runs, which are more than the caches hold. The units' memory need not be
/// brought near to be overwritten then. Each byte at `from` is read but once: where that is another node's memory, it may change meanwhile, and twin and
/// unit must be the same.
///
/// # Safety
/// As many bytes as the twins have are readable at `from` and writable at `also`, which is a page's beginning; nobody stores to `also` meanwhile.
pub unsafe fn copy_both<'a>(twins: impl Iterator<Item = &'a mut Twin>, from: *const u8, also: *mut u8) {
    let mut at = 0;
    for twin in twins {
        // SAFETY: as many bytes on all sides, and blocks are ours alone and whole pages.
        unsafe { pass(from.add(at), twin.block.0.as_ptr(), Some(also.add(at)), twin.bytes) };
        at += twin.bytes;
    }
    settle();
}

/// Copies past the caches, as far as the processor can; [`settle`] is to follow.
///
/// # Safety
/// `len` bytes, a multiple of 4096, are readable at `from` and writable at `to` and at `also`, which are aligned to 16.
unsafe fn pass(from: *const u8, to: *mut u8, also: Option<*mut u8>, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: this function's own condition.
    unsafe {
        match also {
            Some(also) => copy_twice_past_caches(from, to, also, len),
            None => copy_past_caches(from, to, len),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: this function's own condition. What lies at `from` is read once: the second copy is one of the first.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, len);
        if let Some(also) = also {
            std::ptr::copy_nonoverlapping(to, also, len);
        }
    }
}

/// Streaming stores wait for nobody: without this a thread that is handed a twin, or sees the unit, could find it older. Once for a run: the wait for each
/// page's stores took 0.06 us of 0.42.
fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: part of this architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// # Safety
/// `len` bytes, a multiple of 64, are readable at `from` and writable at `to` and at `also`, which are aligned to 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_twice_past_caches(from: *const u8, to: *mut u8, also: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let (from, to, also) = (from.cast::<__m128i>(), to.cast::<__m128i>(), also.cast::<__m128i>());
    for at in (0..len / 16).step_by(4) {
        // SAFETY: within all ranges; the targets are aligned; SSE2 is part of this architecture.
        unsafe {
            let mut words: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(at + i)));
            let [a, b, c, d] = &mut words;
            // Another node may be writing there: what was loaded is stored to both, and nothing is loaded twice.
            std::arch::asm!(
                "/* {0} {1} {2} {3} */",
                inout(xmm_reg) * a,
                inout(xmm_reg) * b,
                inout(xmm_reg) * c,
                inout(xmm_reg) * d,
                options(nomem, nostack, preserves_flags)
            );
            words.iter().enumerate().for_each(|(i, word)| _mm_stream_si128(to.add(at + i), *word));
            words.iter().enumerate().for_each(|(i, word)| _mm_stream_si128(also.add(at + i), *word));
        }
    }
}

/// # Safety
/// `len` bytes, a multiple of 64, are readable at `from` and writable at `to`, which is aligned to 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for at in (0..len / 16).step_by(4) {
        // SAFETY: within both ranges; the target is aligned; SSE2 is part of this architecture.
        unsafe {
            let words: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(at + i)));
            words.iter().enumerate().for_each(|(i, word)| _mm_stream_si128(to.add(at + i), *word));
        }
    }
}

impl Deref for Twin {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block is as long, holds bytes, and is ours alone; the pool keeps its piece.
        unsafe { std::slice::from_raw_parts(self.block.0.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Twin {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.block.0.as_ptr(), self.bytes) }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.pool.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
        let limit = self.pool.limit();
        self.pool.lock().put(self.block, self.bytes, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_used_again_for_its_size_alone() {
        let twins = Twins::new();
        let mut twin = twins.take(4096);
        twin[4095] = 7;
        assert_eq!((twin.len(), twins.bytes_in_use(), twins.bytes_kept()), (4096, 4096, BATCH_BYTES - 4096));
        let at = twin.as_ptr();
        drop(twin);
        assert_eq!((twins.bytes_in_use(), twins.bytes_kept()), (0, BATCH_BYTES));
        assert_eq!(twins.take(8192).len(), 8192);
        let again = twins.take(4096);
        assert_eq!((again.as_ptr(), again[4095]), (at, 7));
    }

    #[test]
    fn blocks_that_are_taken_together_lie_one_behind_the_other() {
        let twins = Twins::new();
        let mut places: Vec<Option<Twin>> = (0..8).map(|_| None).collect();
        // The one that was there before is somewhere else.
        places[3] = Some(twins.take(4096));
        for _ in 0..3 {
            twins.take_into(&mut places, 4096);
            for (index, twin) in places.iter_mut().flatten().enumerate() {
                twin.fill(index as u8);
            }
            let parts = [stretch(&places), stretch(&places[4..])];
            assert_eq!(parts.map(<[u8]>::len), [3 * 4096, 4 * 4096]);
            assert!(parts[1].chunks(4096).zip(4..8).all(|(twin, index)| twin.iter().all(|byte| *byte == index)));
            // However they come back.
            places.iter_mut().enumerate().filter(|(index, _)| *index != 3).for_each(|(_, place)| *place = None);
        }
        assert!(stretch(&[None]).is_empty());
    }

    #[test]
    fn memory_is_given_back_beyond_the_limit() {
        let twins = Twins::new();
        let mut many: Vec<Twin> = (0..100).map(|_| twins.take(1 << 20)).collect();
        many.iter_mut().for_each(|twin| twin[0] = 1);
        assert_eq!(twins.bytes_in_use(), 100 << 20);
        drop(many);
        assert!(twins.bytes_kept() >= KEPT_BYTES_MIN && twins.bytes_kept() <= 50 << 20, "{}", twins.bytes_kept());
        let all: Vec<Twin> = (0..100).map(|_| twins.take(1 << 20)).collect();
        let with_memory = all.iter().filter(|twin| twin[0] != 0).count();
        assert!((4..=50).contains(&with_memory), "{with_memory} blocks kept what was in them");
    }

    #[test]
    fn as_much_memory_is_kept_as_may_be_wanted() {
        let twins = Twins::new();
        twins.keep(80 << 20);
        let many: Vec<Twin> = (0..80).map(|_| twins.take(1 << 20)).collect();
        drop(many);
        assert_eq!(twins.bytes_kept(), 80 << 20);
        twins.keep(50 << 20);
        assert_eq!(twins.bytes_kept(), 50 << 20);
    }

    #[test]
    fn copies_are_exact_past_the_caches_or_not() {
        let twins = Twins::new();
        let source: Vec<u8> = (0..12_289).map(|at| (at * 7 % 251) as u8).collect();
        for stream in [false, true] {
            for (bytes, skip) in [(4096, 0), (12_288, 1)] {
                let mut twin = twins.take(bytes);
                twin.fill(0);
                // SAFETY: the source has so many bytes.
                unsafe { twin.copy_from(source[skip..].as_ptr(), stream) };
                assert_eq!(twin[..], source[skip..skip + bytes]);
            }
        }
    }

    #[test]
    fn twins_and_units_of_a_run_are_made_of_the_same_bytes() {
        let pool = Twins::new();
        let source: Vec<u8> = (0..3 * 8192 + 1).map(|at| (at * 13 % 251) as u8).collect();
        for skip in [0, 1] {
            let mut unit = pool.take(3 * 8192);
            let mut twins = [None, Some(pool.take(8192)), None];
            let kept = twins[1].as_ref().map(|twin| twin.as_ptr());
            pool.take_into(&mut twins, 8192);
            assert_eq!((twins[1].as_ref().map(|twin| twin.as_ptr()), pool.bytes_in_use()), (kept, 6 * 8192));
            for both in [true, false] {
                unit.fill(0);
                twins.iter_mut().flatten().for_each(|twin| twin.fill(0));
                let of_run = twins.iter_mut().flatten();
                // SAFETY: the source has so many bytes, and the unit is a block of as many.
                unsafe {
                    match both {
                        true => copy_both(of_run, source[skip..].as_ptr(), unit.as_mut_ptr()),
                        false => copy_from(of_run, source[skip..].as_ptr()),
                    }
                }
                let made: Vec<u8> = twins.iter().flatten().flat_map(|twin| twin.iter().copied()).collect();
                assert_eq!(made, source[skip..skip + 3 * 8192]);
                assert_eq!(unit[..] == made[..], both);
            }
        }
    }

    #[test]
    fn threads_never_share_a_block() {
        let twins = Twins::new();
        std::thread::scope(|scope| {
            for thread in 0..2_u8 {
                let twins = &twins;
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let mut held = [twins.take(4096), twins.take(4096)];
                        held.iter_mut().for_each(|twin| twin.fill(thread));
                        assert!(held.iter().all(|twin| twin.iter().all(|byte| *byte == thread)));
                    }
                });
            }
        });
        assert_eq!((twins.bytes_in_use(), twins.bytes_kept() <= BATCH_BYTES), (0, true));
    }
}
