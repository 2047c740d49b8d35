//! Checked accesses by hand, as `comem-cc --inline` puts them into a program.

use comem::heap::RegionOptions;
use comem::inline::calls;
use comem::{Comem, Thread};
use std::cell::Cell;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, compiler_fence};

const MAGIC: u32 = 0xfffd_fffd;
const TABLE: usize = 0x7fff_0000;
/// The number of an addition among atomic operations.
const ADD: u32 = 1;

thread_local! {
    static HAZARD: Cell<*mut u64> = const { Cell::new(std::ptr::null_mut()) };
}

extern "C" fn hazard() -> *mut *mut u64 {
    HAZARD.with(Cell::as_ptr)
}

/// What a module of checked code does before the program begins.
pub fn attach() {
    attach_as(calls::ABI);
}

/// The same for a module whose checks are of this version.
pub fn attach_as(abi: u32) {
    // SAFETY: the name lives for ever, and the function gives a thread's own pointer.
    unsafe { calls::object(abi, c"by hand".as_ptr(), hazard) };
}

/// The entry of the line with this address, as the check of a store finds it.
pub fn entry(address: usize) -> &'static AtomicU16 {
    let at = std::ptr::with_exposed_provenance_mut(TABLE + ((address >> 6) << 1));
    // SAFETY: an entry of the table, which stays mapped; everybody uses entries atomically.
    unsafe { AtomicU16::from_ptr(at) }
}

/// Shared words.
#[derive(Clone, Copy)]
pub struct Words {
    start: usize,
}

impl Words {
    /// Allocates words, in a call that all nodes make.
    pub fn new(comem: &Comem, len: usize, options: &RegionOptions) -> Words {
        let words = comem.page_slice::<u64>(len, options).expect("a region");
        Words { start: words.as_ptr().expose_provenance() }
    }

    /// Where a word is.
    pub fn address(&self, index: usize) -> usize {
        self.start + 8 * index
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of a region; everybody uses it by instructions that are atomic.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(self.address(index))) }
    }

    /// A checked load.
    pub fn load(&self, index: usize) -> u64 {
        let mut value = self.word(index).load(Ordering::Relaxed);
        if value as u32 == MAGIC {
            let from = std::ptr::with_exposed_provenance(self.address(index));
            // SAFETY: a word of a region, and one of this function's.
            unsafe { calls::load(from, (&raw mut value).cast(), 8) };
        }
        value
    }

    /// A store or an atomic instruction within a hazard; whether it was made.
    fn within_hazard(&self, index: usize, change: impl FnOnce(&AtomicU64)) -> bool {
        let own = if HAZARD.get().is_null() { calls::enter() } else { HAZARD.get() };
        // SAFETY: the thread's own word, which stays mapped.
        let hazard = unsafe { AtomicU64::from_ptr(own) };
        hazard.store(self.address(index) as u64, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let may = entry(self.address(index)).load(Ordering::Relaxed) == 0;
        if may {
            change(self.word(index));
        }
        compiler_fence(Ordering::SeqCst);
        hazard.store(0, Ordering::Release);
        may
    }

    /// A checked store.
    pub fn store(&self, index: usize, value: u64) {
        if !self.within_hazard(index, |word| word.store(value, Ordering::Relaxed)) {
            let to = std::ptr::with_exposed_provenance_mut(self.address(index));
            // SAFETY: a word of a region, and one of this function's.
            unsafe { calls::store(to, (&raw const value).cast(), 8) };
        }
    }

    /// A store during which the thread loses its processor between check and store. Whether the check let it through.
    pub fn store_after(&self, index: usize, value: u64, time: std::time::Duration) -> bool {
        self.within_hazard(index, |word| {
            std::thread::sleep(time);
            word.store(value, Ordering::Relaxed);
        })
    }

    /// A checked atomic addition; gives the value before.
    pub fn fetch_add(&self, index: usize, summand: u64) -> u64 {
        let mut old = 0;
        if !self.within_hazard(index, |word| old = word.fetch_add(summand, Ordering::SeqCst)) {
            let (at, summand) = (std::ptr::with_exposed_provenance_mut(self.address(index)), &raw const summand);
            // SAFETY: a word of a region, and two of this function's.
            unsafe { calls::atomic(at, 8, ADD, summand.cast(), std::ptr::null(), (&raw mut old).cast()) };
        }
        old
    }
}

/// Runs the body on each thread of the node, and ends the job.
pub fn play(comem: Comem, body: impl Fn(&Thread) + Sync) {
    comem.parallel(|t| body(t));
    comem.finish().expect("the job ends well");
}
