//! Sleep on words of memory that processes share.
//!
//! The kernel knows shared memory by its file, so a thread of another process wakes those that sleep here.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Whoever sleeps, or is woken, whatever bits it has.
pub const ANY: u32 = u32::MAX;

/// Sleeps while `word` is `seen`, until somebody wakes a sleeper with one of these bits, for `most` at most, or for no
/// reason.
pub fn sleep(word: *const AtomicU32, seen: u32, bits: u32, most: Duration) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `now`, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let until = Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + most;
    let until = libc::timespec {
        tv_sec: until.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(until.subsec_nanos() as i32),
    };
    // SAFETY: the system reads the word, or refuses an address that is none; the time outlives the call. All processes
    // mean the same word: not private.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT_BITSET,
            seen,
            &raw const until,
            std::ptr::null::<u32>(),
            bits,
        )
    };
}

/// Wakes all who sleep on `word` with one of these bits.
pub fn wake(word: *const AtomicU32, bits: u32) {
    let (none, all) = (std::ptr::null::<u32>(), i32::MAX);
    // SAFETY: the system only takes the word's address.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_BITSET, all, none, none, bits) };
}
