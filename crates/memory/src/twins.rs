//! Twins: what a unit held when it arrived, to find out later what was changed.
//!
//! Twins come and go with the units that a node caches, all of a few sizes. Blocks are cut from larger pieces of memory
//! and kept for the next twin of their size, so that making a twin is a copy and nothing else: as many bytes as the
//! owner of the pool says it may want ([`Twins::keep`]). Beyond that a free block's memory is given back, but not its
//! addresses: giving those back one by one would leave the process with more mappings than it may have.

mod copy;
mod row;

pub use row::Row;

use crate::mapping::{self, Mapping};
use crate::pages::fault::end_without_memory;
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
// SAFETY: as above: it is used through the row that owns it alone.
unsafe impl Sync for Block {}

/// Free blocks of one size.
#[derive(Debug)]
struct Size {
    bytes: usize,
    /// Blocks with memory, of twins that were.
    warm: Vec<Block>,
    /// Blocks with memory that were never used: the system has just cleared it, and it lies in the caches.
    fresh: Vec<Block>,
    /// Blocks that have none until they are touched.
    cold: Vec<Block>,
}

impl Size {
    fn with_memory(&self) -> usize {
        self.warm.len() + self.fresh.len()
    }

    /// A block that has memory, and whether it is fresh.
    fn take(&mut self) -> Option<(Block, bool)> {
        let used = self.warm.pop().map(|block| (block, false));
        used.or_else(|| Some((self.fresh.pop()?, true)))
    }
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

/// A pool of twins, for use by many threads. Clones share it. Twins are taken from it by a [`Row`].
#[derive(Clone, Debug, Default)]
pub struct Twins {
    pool: Arc<Pool>,
}

impl Twins {
    /// An empty pool.
    pub fn new() -> Twins {
        Twins::default()
    }

    /// A block of `bytes` bytes, a unit's size, and whether it is fresh. What it holds is arbitrary.
    fn take(&self, bytes: usize) -> (Block, bool) {
        let taken = self.pool.lock().take(bytes);
        self.pool.in_use.fetch_add(bytes, Ordering::Relaxed);
        taken
    }

    /// As many blocks, in the order of their addresses, and whether some are fresh.
    fn take_many(&self, count: usize, bytes: usize) -> (Vec<Block>, bool) {
        let mut free = self.pool.lock();
        let mut blocks = Vec::with_capacity(count);
        let mut some_fresh = false;
        for _ in 0..count {
            let (block, fresh) = free.take(bytes);
            blocks.push(block);
            some_fresh |= fresh;
        }
        drop(free);
        // Blocks that were taken together come back together, in the other order.
        blocks.sort_unstable_by_key(|block| block.0);
        self.pool.in_use.fetch_add(count * bytes, Ordering::Relaxed);
        (blocks, some_fresh)
    }

    /// Takes a block back.
    fn put(&self, block: Block, bytes: usize) {
        self.pool.in_use.fetch_sub(bytes, Ordering::Relaxed);
        let limit = self.pool.limit();
        self.pool.lock().put(block, bytes, limit);
    }

    /// Has memory ready for `count` twins of `bytes` bytes each, as far as that can be had; for moments with nothing
    /// else to do.
    ///
    /// # Panics
    /// When `bytes` is not a multiple of 4096, or 0.
    pub fn prepare(&self, count: usize, bytes: usize) {
        assert!(bytes > 0 && bytes.is_multiple_of(4096));
        self.pool.lock().prepare(count, bytes);
    }

    /// Brings the memory of the next twin of this size nearer.
    pub fn look_ahead(&self, bytes: usize) {
        let mut free = self.pool.lock();
        let size = free.size(bytes);
        if let Some(block) = size.warm.last().or(size.fresh.last()) {
            crate::prefetch_hint::of_writes(block.0.as_ptr(), bytes);
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
            self.sizes.push(Size { bytes, warm: Vec::new(), fresh: Vec::new(), cold: Vec::new() });
            self.sizes.len() - 1
        });
        &mut self.sizes[index]
    }

    /// A block, and whether it is fresh.
    fn take(&mut self, bytes: usize) -> (Block, bool) {
        self.prepare(1, bytes);
        if let Some(taken) = self.size(bytes).take() {
            self.warm_bytes -= bytes;
            return taken;
        }
        (self.cold(bytes), false)
    }

    /// A block that has no memory until it is touched.
    fn cold(&mut self, bytes: usize) -> Block {
        if let Some(block) = self.size(bytes).cold.pop() {
            return block;
        }
        let piece = Mapping::new(PIECE_BYTES.max(bytes)).unwrap_or_else(|_| end_without_memory(None));
        let count = piece.bytes() / bytes;
        // SAFETY: block number `index` lies within the piece, which stays as long as the pool.
        let block = |index| Block(unsafe { NonNull::new_unchecked(piece.start().add(index * bytes)) });
        self.size(bytes).cold.extend((1..count).rev().map(block));
        let first = block(0);
        self.pieces.push(piece);
        first
    }

    /// Gives memory to cold blocks, many at a time, until `count` have it.
    fn prepare(&mut self, count: usize, bytes: usize) {
        while self.size(bytes).with_memory() < count {
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
            // SAFETY: whole pages of private mappings, which nobody uses. That the system may not know the call costs
            // nothing.
            unsafe { libc::madvise(first.0.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
            self.warm_bytes += len;
            self.size(bytes).fresh.extend(blocks);
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
        // SAFETY: whole pages of a private mapping, which nobody uses: they lose their contents and stay mapped. Where
        // the system refuses that, they keep their memory.
        let _ = unsafe { mapping::give_back(block.0.as_ptr(), bytes) };
        self.size(bytes).cold.push(block);
    }

    /// Gives memory back until free blocks keep no more than `limit` bytes.
    fn trim(&mut self, limit: usize) {
        for index in 0..self.sizes.len() {
            let bytes = self.sizes[index].bytes;
            while self.warm_bytes > limit
                && let Some((block, _)) = self.sizes[index].take()
            {
                self.warm_bytes -= bytes;
                self.release(block, bytes);
            }
        }
    }
}

/// The first of these twins with those behind it as far as they lie one behind the other in memory; empty if there is
/// none.
fn stretch<'a>(mut twins: impl Iterator<Item = &'a [u8]>) -> &'a [u8] {
    let Some(first) = twins.next() else { return &[] };
    let mut bytes = first.len();
    for twin in twins {
        if twin.as_ptr() != first.as_ptr().wrapping_add(bytes) {
            break;
        }
        bytes += twin.len();
    }
    // SAFETY: all of it belongs to these twins. Where one piece ends and another begins, it is still memory that the
    // system gave at these addresses.
    unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of one unit with a twin.
    fn twin(twins: &Twins, bytes: usize) -> Row {
        let mut row = twins.row(1, bytes);
        row.take(0..1);
        row
    }

    fn bytes(row: &mut Row) -> &mut [u8] {
        row.get_mut(0).expect("it has a twin")
    }

    #[test]
    fn a_block_is_used_again_for_its_size_alone() {
        let twins = Twins::new();
        let mut first = twin(&twins, 4096);
        bytes(&mut first)[4095] = 7;
        assert_eq!((twins.bytes_in_use(), twins.bytes_kept()), (4096, BATCH_BYTES - 4096));
        let at = bytes(&mut first).as_ptr();
        drop(first);
        assert_eq!((twins.bytes_in_use(), twins.bytes_kept()), (0, BATCH_BYTES));
        assert_eq!(bytes(&mut twin(&twins, 8192)).len(), 8192);
        let mut again = twin(&twins, 4096);
        assert_eq!((bytes(&mut again).as_ptr(), bytes(&mut again)[4095]), (at, 7));
    }

    #[test]
    fn blocks_that_are_taken_together_lie_one_behind_the_other() {
        let twins = Twins::new();
        let mut row = twins.row(8, 4096);
        // The one that was there before is somewhere else.
        row.take(3..4);
        for _ in 0..3 {
            row.take(0..8);
            (0..8).for_each(|unit| row.get_mut(unit).expect("it has a twin").fill(unit as u8));
            let parts = [row.stretch(0..8), row.stretch(4..8)];
            assert_eq!(parts.map(<[u8]>::len), [3 * 4096, 4 * 4096]);
            assert!(parts[1].chunks(4096).zip(4..8).all(|(twin, unit)| twin.iter().all(|byte| *byte == unit)));
            // However they come back.
            (0..8).filter(|unit| *unit != 3).for_each(|unit| row.drop_twin(unit));
        }
    }

    #[test]
    fn memory_is_given_back_beyond_the_limit() {
        let twins = Twins::new();
        let mut many: Vec<Row> = (0..100).map(|_| twin(&twins, 1 << 20)).collect();
        many.iter_mut().for_each(|row| bytes(row)[0] = 1);
        assert_eq!(twins.bytes_in_use(), 100 << 20);
        drop(many);
        assert!(twins.bytes_kept() >= KEPT_BYTES_MIN && twins.bytes_kept() <= 50 << 20, "{}", twins.bytes_kept());
        let mut all: Vec<Row> = (0..100).map(|_| twin(&twins, 1 << 20)).collect();
        let with_memory = all.iter_mut().filter_map(|row| (bytes(row)[0] != 0).then_some(())).count();
        assert!((4..=50).contains(&with_memory), "{with_memory} blocks kept what was in them");
    }

    #[test]
    fn as_much_memory_is_kept_as_may_be_wanted() {
        let twins = Twins::new();
        twins.keep(80 << 20);
        let many: Vec<Row> = (0..80).map(|_| twin(&twins, 1 << 20)).collect();
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
            for (size, skip) in [(4096, 0), (12_288, 1)] {
                let mut row = twins.row(1, size);
                // SAFETY: the source has so many bytes.
                unsafe { row.copy_from(0, source[skip..].as_ptr(), stream) };
                assert_eq!(bytes(&mut row)[..], source[skip..skip + size]);
            }
        }
    }

    #[test]
    fn what_the_program_has_locked_is_given_back_too() {
        let mut free = Free::default();
        let (block, _) = free.take(8192);
        let start = block.0.as_ptr();
        // SAFETY: the block's own bytes.
        unsafe {
            start.add(5000).write(7);
            assert_eq!(libc::mlock(start.cast(), 8192), 0, "{}", std::io::Error::last_os_error());
            free.release(block, 8192);
            assert_eq!(start.add(5000).read(), 0);
        }
    }

    #[test]
    fn a_block_may_be_larger_than_a_piece() {
        let twins = Twins::new();
        let mut row = twin(&twins, PIECE_BYTES + 4096);
        bytes(&mut row).fill(1);
        assert_eq!((twins.bytes_in_use(), bytes(&mut row)[PIECE_BYTES + 4095]), (PIECE_BYTES + 4096, 1));
    }

    #[test]
    fn twins_and_units_of_a_run_are_made_of_the_same_bytes() {
        let pool = Twins::new();
        let source: Vec<u8> = (0..3 * 8192 + 1).map(|at| (at * 13 % 251) as u8).collect();
        for skip in [0, 1] {
            let mut unit = twin(&pool, 3 * 8192);
            let mut row = pool.row(3, 8192);
            row.take(1..2);
            let kept = row.get(1).map(<[u8]>::as_ptr);
            for both in [true, false] {
                bytes(&mut unit).fill(0);
                row.take(0..3);
                (0..3).for_each(|at| row.get_mut(at).expect("it has a twin").fill(0));
                let also = both.then(|| bytes(&mut unit).as_mut_ptr());
                // SAFETY: the source has so many bytes, and the unit is a block of as many.
                unsafe { row.copy_run(0..3, source[skip..].as_ptr(), also) };
                assert_eq!((row.get(1).map(<[u8]>::as_ptr), pool.bytes_in_use()), (kept, 6 * 8192));
                let made: Vec<u8> = (0..3).filter_map(|at| row.get(at)).flatten().copied().collect();
                assert_eq!(made, source[skip..skip + 3 * 8192]);
                assert_eq!(bytes(&mut unit)[..] == made[..], both);
            }
        }
    }

    #[test]
    fn what_was_never_used_is_fresh_once() {
        let pool = Twins::new();
        let source: Vec<u8> = (0..20 * 4096).map(|at| (at * 11 % 251) as u8).collect();
        let mut unit = twin(&pool, 20 * 4096);
        for fresh in [true, false] {
            let mut row = pool.row(20, 4096);
            assert_eq!(row.take(0..9), fresh);
            assert_eq!(row.take(9..16), fresh);
            bytes(&mut unit).fill(0);
            let also = bytes(&mut unit).as_mut_ptr();
            // SAFETY: the source has so many bytes, and the unit is a block of as many.
            unsafe { row.copy_run(0..20, source.as_ptr(), Some(also)) };
            let made: Vec<u8> = (0..20).filter_map(|at| row.get(at)).flatten().copied().collect();
            assert!(made == source && bytes(&mut unit)[..] == source[..]);
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
                        let mut held = [twin(twins, 4096), twin(twins, 4096)];
                        held.iter_mut().for_each(|row| bytes(row).fill(thread));
                        assert!(held.iter_mut().all(|row| bytes(row).iter().all(|byte| *byte == thread)));
                    }
                });
            }
        });
        assert_eq!((twins.bytes_in_use(), twins.bytes_kept() <= BATCH_BYTES), (0, true));
    }
}
