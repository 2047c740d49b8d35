//! A process that has as many mappings as it may have (`vm.max_map_count`; only the detector `mprotect` uses many) goes
//! on with coarser ones: home pages are mapped together with their neighbours, and new regions have units of more
//! pages. That happens before the limit is met: the program needs mappings of its own, for the stacks of threads and
//! what it allocates.

use crate::mutex::Mutex;
use comem_memory::pages::{Arena, Detector, TooManyRanges, map_count_limit};
use comem_protocol::coherence::pages::PageNo;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Units and what is mapped together grow to so many pages.
pub(in crate::shared) const COARSE_PAGES_MAX: u32 = 16;

/// One page at first, twice as many each time the limit is met. The limit is the process's, and so is this.
static PAGES: AtomicU32 = AtomicU32::new(1);
/// So many changes may be made before the process's mappings are counted again.
static UNTIL_COUNTED: AtomicI64 = AtomicI64::new(0);
/// Held by the thread that makes room.
static MAKES_ROOM: Mutex<()> = Mutex::new(());

/// Pages that are mapped together here, and move together in new regions that say nothing else.
pub(in crate::shared) fn pages() -> u32 {
    PAGES.load(Ordering::Relaxed)
}

/// The next size, after the limit was met with this one.
fn next(pages: u32) -> u32 {
    (pages * 2).min(COARSE_PAGES_MAX)
}

/// Mappings are about to be changed, each time with two more at most: keeps a sixteenth of what the process may have
/// for the program.
pub(in crate::shared) fn keep_some(arena: &Arena) {
    if arena.detector() != Detector::Mprotect || UNTIL_COUNTED.fetch_sub(1, Ordering::Relaxed) > 0 {
        return;
    }
    // Whoever holds it counts, or makes room.
    let Some(_alone) = MAKES_ROOM.try_lock() else { return };
    let limit = map_count_limit();
    let count = mappings().unwrap_or(0);
    let (count, makes_room) = if is_too_many(count, limit) { (0, true) } else { (count, false) };
    UNTIL_COUNTED.store(changes_until(count, limit), Ordering::Relaxed);
    if makes_room {
        grow();
        // Where it fails, the change itself will.
        let _ = unmap_heap(arena);
    }
}

/// Whether there is so little left that it would have to be counted again soon.
fn is_too_many(count: usize, limit: usize) -> bool {
    count > limit / 8 * 7
}

/// How many changes leave the program its part.
fn changes_until(count: usize, limit: usize) -> i64 {
    (limit / 16 * 15).saturating_sub(count) as i64 / 2
}

/// How many mappings the process has.
fn mappings() -> io::Result<usize> {
    let mut file = File::open("/proc/self/maps")?;
    let (mut part, mut count) = ([0; 4096], 0);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(count),
            bytes => count += part[..bytes].iter().filter(|byte| **byte == b'\n').count(),
        }
    }
}

/// A step found no mapping left, for the program has used what was kept: room is made, and the step is taken again.
pub(in crate::shared) fn make_room(
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
    grow();
    unmap_heap(arena).and_then(|()| step(pages.clone()))
}

fn grow() {
    let met_with = pages();
    if met_with == 1 {
        tell();
    }
    PAGES.store(next(met_with), Ordering::Relaxed);
}

/// All pages of the heap are unmapped, of every engine, whichever of them had the mappings: that merges these into a
/// few. The pages come back as they are touched.
fn unmap_heap(arena: &Arena) -> io::Result<()> {
    let whole = |arena: &Arena| if arena.is_detached() { Ok(()) } else { arena.unmap(0..arena.pages()) };
    match crate::shared::fault::views_of_this_process() {
        Some(views) => whole(&views.tracked).and(whole(&views.guarded)),
        None => whole(arena),
    }
}

fn tell() {
    let limit = map_count_limit();
    crate::error::say(format_args!(
        "comem: shared pages with permissions of their own have used up most of the {limit} mappings that this \
         process may have; going on, slower, and what is allocated from now on has units of {} pages, of up to \
         {COARSE_PAGES_MAX} when that happens again, where the program and --unit-pages name none: raise \
         vm.max_map_count, or use units of more pages from the beginning (--unit-pages)",
        next(1)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_largest_one() {
        let sizes: Vec<u32> = std::iter::successors(Some(1), |pages| Some(next(*pages))).take(6).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 16]);
    }

    #[test]
    fn a_sixteenth_is_left_however_many_there_are() {
        const LIMIT: usize = 65_530;
        for count in (0..LIMIT).filter(|count| !is_too_many(*count, LIMIT)) {
            let changes = changes_until(count, LIMIT);
            assert!(count + 2 * changes as usize <= LIMIT - LIMIT / 16, "{count}");
            assert!(changes > 2000, "{count} are counted again after {changes} changes");
        }
    }
}
