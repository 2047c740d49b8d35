//! Changes of a word in one step, by the processor, whatever the change is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Replaces the word of `bytes` bytes (4 or 8) at `at` by what `change` makes of it; gives what it held. `change` may
/// be called several times. The first instruction is a store already: where pages fault, the one fault asks for
/// writing.
///
/// # Safety
/// `at` is aligned to `bytes`, which are readable and writable there for as long as the call takes.
pub unsafe fn update(at: *mut u8, bytes: usize, change: impl Fn(u64) -> u64) -> u64 {
    let mut old = 0;
    if bytes == size_of::<u32>() {
        // SAFETY: the caller's promise; others use the word by atomic or by plain instructions of the same width.
        let word = unsafe { AtomicU32::from_ptr(at.cast()) };
        while let Err(now) = word.compare_exchange(old as u32, change(old) as u32, Ordering::SeqCst, Ordering::SeqCst) {
            old = now.into();
        }
        return old;
    }
    // SAFETY: as above.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    while let Err(now) = word.compare_exchange(old, change(old), Ordering::SeqCst, Ordering::SeqCst) {
        old = now;
    }
    old
}

/// Reads the word of `bytes` bytes (4 or 8) at `at`.
///
/// # Safety
/// `at` is aligned to `bytes`, which are readable there.
pub unsafe fn load(at: *const u8, bytes: usize) -> u64 {
    if bytes == size_of::<u32>() {
        // SAFETY: the caller's promise; a load stores nothing.
        return unsafe { AtomicU32::from_ptr(at.cast_mut().cast()) }.load(Ordering::SeqCst).into();
    }
    // SAFETY: as above.
    unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_both_sizes_change_in_one_step() {
        let mut wide = [5_u64, 7];
        // SAFETY: a word of the array, of which nobody else knows.
        let old = unsafe { update(wide.as_mut_ptr().cast(), 8, |n| n + 3) };
        // SAFETY: as above.
        let now = unsafe { load(wide.as_ptr().cast(), 8) };
        assert_eq!((old, now, wide), (5, 8, [8, 7]));
        let mut narrow = [u32::MAX, 7];
        // SAFETY: as above.
        let old = unsafe { update(narrow.as_mut_ptr().cast(), 4, |n| n + 1) };
        assert_eq!((old, narrow), (u64::from(u32::MAX), [0, 7]), "its neighbour stays");
        // SAFETY: as above.
        assert_eq!(unsafe { load(narrow.as_ptr().add(1).cast(), 4) }, 7);
    }

    #[test]
    fn threads_do_not_lose_each_others_changes() {
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        // SAFETY: the word outlives the scope, and all use it atomically.
                        unsafe { update(word.as_ptr().cast(), 8, |n| n + 1) };
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), 40_000);
    }
}
