//! Neighbouring units that are brought side by side: of a range, and ahead of a run of misses at rising addresses.

use super::calls::{Piece, store_missed, unit_at};
use super::{LineUnit, counted, engine_of, with_thread};
use crate::error::Result;
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::lines::{GRAIN_LINES, Lines};
use comem_protocol::coherence::direct::group::LINES_MAX;
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, MAGIC, Want};
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::tuning::PrefetchTuning;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

type Units = SmallVec<[LineUnit; LINES_MAX]>;

/// Runs that a thread may be in at a time.
const RUNS: usize = 4;

/// Misses at rising addresses.
#[derive(Clone, Copy)]
struct Run {
    /// The line behind what the last miss has brought.
    next: u64,
    /// How many misses there were.
    misses: u32,
    stores: bool,
}

impl Run {
    const NONE: Run = Run { next: u64::MAX, misses: 0, stores: false };
}

thread_local! {
    /// The thread's runs, and which of them the next new one replaces.
    static IN: Cell<([Run; RUNS], usize)> = const { Cell::new(([Run::NONE; RUNS], 0)) };
}

/// How many units a thread should bring that has missed `unit`: 1 at first, and then twice as many each time that the
/// run goes on.
fn units_of_run(tuning: &PrefetchTuning, unit: LineUnit, stores: bool) -> u64 {
    let (mut runs, mut oldest) = IN.get();
    let goes_on = |run: &Run| run.stores == stores && unit.line.wrapping_sub(run.next) <= tuning.line_gap_max;
    let run = if let Some(run) = runs.iter_mut().find(|run| goes_on(run)) {
        run
    } else {
        let run = &mut runs[oldest];
        oldest = (oldest + 1) % RUNS;
        *run = Run { next: 0, misses: 0, stores };
        run
    };
    let most = (LINES_MAX as u64 / u64::from(unit.lines)).max(1);
    let units = (1 << run.misses.saturating_sub(tuning.line_misses - 1).min(LINES_MAX.ilog2())).min(most);
    run.misses += 1;
    run.next = unit.line + units * u64::from(unit.lines);
    IN.set((runs, oldest));
    units
}

/// Whether this node lacks what `want` is about.
fn lacks(lines: &Lines, unit: LineUnit, want: Want) -> bool {
    let first = unit.line as usize;
    let entry = |line: usize| Entry(lines.entry(line).load(Ordering::Relaxed));
    match want {
        Want::Load | Want::Bring => lines.word(first * LINE_BYTES).load(Ordering::Relaxed) as u32 == MAGIC,
        Want::Store | Want::Own => !matches!(entry(first), Entry::BIASED | Entry::LOCKED),
        Want::OwnBiased => (first..first + unit.lines as usize).any(|line| entry(line) != Entry::BIASED),
    }
}

/// The thread has missed the unit of `piece`: brings it and those behind it, if its misses are a run. Tells whether it
/// has brought any. Nothing is certain: the thread looks again.
pub(super) fn after_miss(piece: &Piece<'_>, want: Want) -> Result<bool> {
    if !piece.known.region.engine.is_one_sided() {
        return Ok(false);
    }
    // What others store to is dear to take for nothing, and a miss in mapped memory is cheap.
    if want == Want::Own && piece.thread.home().reach.maps_others() {
        return Ok(false);
    }
    let tuning = &piece.thread.home().config.tuning.prefetch;
    if !tuning.lines {
        return Ok(false);
    }
    let units = units_of_run(tuning, piece.unit, want == Want::Own);
    if units == 1 {
        return Ok(false);
    }
    piece.bring_run(units, want)
}

impl Piece<'_> {
    fn bring_run(&self, units: u64, want: Want) -> Result<bool> {
        let Some(shared) = self.thread.home().shared() else { return Ok(false) };
        let Some(lines) = shared.views.as_ref().and_then(|views| views.lines.as_ref()) else { return Ok(false) };
        let run = units_from(shared, lines, self.known, self.unit).take(units as usize);
        let found: Units = run.filter(|unit| lacks(lines, *unit, want)).collect();
        if found.len() < 2 {
            return Ok(false);
        }
        engine_of(self.known).units_ahead(self.thread, self.known, &found, want)?;
        Ok(true)
    }
}

/// A unit and those behind it, as far as they lie in its grain and its region. That grain is open.
fn units_from(
    shared: &Shared,
    lines: &Lines,
    known: &RegionState,
    first: LineUnit,
) -> impl Iterator<Item = LineUnit> + use<> {
    let start = (shared.address_of(known.region.first) - lines.extent().base) / LINE_BYTES;
    let region_end = start + known.region.pages as usize * (PAGE_BYTES / LINE_BYTES);
    let grain_end = (first.line as usize / GRAIN_LINES + 1) * GRAIN_LINES;
    let unit = move |index: u64| LineUnit {
        index: first.index + index,
        line: first.line + index * u64::from(first.lines),
        ..first
    };
    let end = region_end.min(grain_end) as u64;
    (0..).map(unit).take_while(move |unit| unit.line + u64::from(unit.lines) <= end)
}

/// Brings the units of a range of lines memory here, as `want` says, which makes no access.
pub(super) fn take(range: Range<usize>, want: Want) {
    with_thread(|thread, shared, lines| {
        let mut at = range.start;
        while at < range.end {
            at = take_some(thread, (shared, lines), at..range.end, want)?;
        }
        Ok(())
    });
}

/// Brings the first units of a range; gives where the rest begins.
fn take_some(thread: &Thread, (shared, lines): (&Shared, &Lines), range: Range<usize>, want: Want) -> Result<usize> {
    let Some((known, first)) = unit_at(shared, lines, range.start)? else {
        // SAFETY: an address of lines memory in no allocation: it is closed, and the fault's handler says so.
        unsafe { std::ptr::with_exposed_provenance::<u8>(range.start).read_volatile() };
        return Ok(range.start);
    };
    let (mut end, mut units) = (range.start, Units::new());
    for unit in units_from(shared, lines, &known, first) {
        if end >= range.end || units.len() == LINES_MAX {
            break;
        }
        end = lines.extent().base + (unit.line as usize + unit.lines as usize) * LINE_BYTES;
        if lacks(lines, unit, want) {
            units.push(unit);
        }
    }
    let is_load = want == Want::Bring;
    for _ in &units {
        if is_load {
            counted(thread, &known, |thread, region| (&thread.load_misses, &region.load_misses));
        } else {
            store_missed(thread, &known)?;
        }
    }
    let single = if is_load { Want::Load } else { want };
    let (engine, lines_max) = (engine_of(&known), LINES_MAX / units.first().map_or(1, |unit| unit.lines as usize));
    for group in units.chunks(lines_max.max(1)).filter(|group| group.len() > 1) {
        engine.units_ahead(thread, &known, group, want)?;
    }
    // What others had in hand, or have taken again.
    for unit in units.into_iter().filter(|unit| lacks(lines, *unit, want)) {
        engine.unit_access(thread, &known, unit, single, &mut |_| ())?;
    }
    Ok(end)
}
