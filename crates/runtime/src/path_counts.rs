//! What single page faults and remote locks cost inside the library, counted where debug assertions are on. In other
//! builds to count is to do nothing.

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A page's region was looked up.
    RegionLookup,
    /// The lock of a page table was taken.
    TableLock,
    /// A thread's fault has called the page logic of the protocol.
    PageLogic,
    /// The schedule of locks was asked whether a message waits.
    ShouldDefer,
}

#[cfg(debug_assertions)]
mod counts {
    use std::sync::atomic::AtomicU64;

    pub static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
}

/// Counts a step.
#[inline(always)]
pub(crate) fn count(step: Step) {
    #[cfg(debug_assertions)]
    counts::COUNTS[step as usize].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    let _ = step;
}

/// How often this process has taken each [`Step`] so far, in their order, whichever thread it was.
#[cfg(debug_assertions)]
pub fn so_far() -> [u64; 4] {
    counts::COUNTS.each_ref().map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
}
