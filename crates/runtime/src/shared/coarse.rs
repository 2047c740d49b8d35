//! A process that has as many mappings as it may have (`vm.max_map_count`; only the detector `mprotect` uses many) goes on with
//! coarser ones: home pages are mapped together with their neighbours, and new regions have units of more pages.

use comem_memory::pages::{Arena, TooManyRanges};
use comem_protocol::coherence::pages::PageNo;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Units and what is mapped together grow to so many pages.
pub(super) const COARSE_PAGES_MAX: u32 = 16;

/// One page at first, twice as many each time the limit is met. The limit is the process's, and so is this.
static PAGES: AtomicU32 = AtomicU32::new(1);
/// Held by the thread that makes room.
static MAKES_ROOM: Mutex<()> = Mutex::new(());

/// Pages that are mapped together here, and move together in new regions that say nothing else.
pub(super) fn pages() -> u32 {
    PAGES.load(Ordering::Relaxed)
}

/// The next size, after the limit was met with this one.
fn next(pages: u32) -> u32 {
    (pages * 2).min(COARSE_PAGES_MAX)
}

/// A step found no mapping left: all pages of the arena are unmapped, which merges its mappings into one, and it is taken again. The pages
/// come back as they are touched.
pub(super) fn make_room(
    arena: &Arena,
    pages: &Range<PageNo>,
    step: impl Fn(Range<PageNo>) -> io::Result<()>,
) -> io::Result<()> {
    let _alone = MAKES_ROOM.lock();
    // Another thread may have made room meanwhile.
    let result = step(pages.clone());
    if !result.as_ref().is_err_and(TooManyRanges::is) {
        return result;
    }
    let met_with = self::pages();
    if met_with == 1 {
        tell();
    }
    PAGES.store(next(met_with), Ordering::Relaxed);
    arena.unmap(0..arena.pages()).and_then(|()| step(pages.clone()))
}

fn tell() {
    let limit = comem_memory::pages::map_count_limit();
    eprintln!(
        "comem: shared pages with permissions of their own have used up the {limit} mappings that this process may have; \
         going on, slower, and what is allocated from now on has units of {} pages, of up to {COARSE_PAGES_MAX} when that \
         happens again, where the program and --unit-pages name none: raise vm.max_map_count, or use units of more pages \
         from the beginning (--unit-pages)",
        next(1)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_largest_one() {
        let sizes: Vec<u32> = std::iter::successors(Some(1), |pages| Some(next(*pages))).take(6).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 16]);
    }
}
