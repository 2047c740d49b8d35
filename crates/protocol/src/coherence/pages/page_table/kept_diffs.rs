//! Units whose diffs stay with their writers: see [`kept_diffs`](crate::coherence::pages::kept_diffs).

use super::premap::map_installed;
use super::units::Units;
use super::{Access, DiffSink, Fault, PageTable};
use crate::coherence::Misbehaved;
use crate::coherence::pages::kept_diffs::runs::{Changes, StampMap, StampRun, stamped};
use crate::coherence::pages::kept_diffs::unit::{KeptUnit, raise_version, version_of};
use crate::coherence::pages::kept_diffs::wire::{
    BaseCopy, DiffAsk, Diffs, put_base, put_collected, put_diffs, put_freed,
};
use crate::coherence::pages::kept_diffs::{Ask, STAMP_MAX, Stamp, Wants};
use crate::coherence::pages::{Context, PAGE_BYTES, PageMemory, PageNo};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

/// What a table keeps of its units beside their states.
#[derive(Clone, Default, Debug)]
pub(super) struct KeptUnits {
    /// By unit; `None`: nobody has used or written it, as far as is known here.
    pub(super) units: Vec<Option<Box<KeptUnit>>>,
    /// Every copy has all that was written up to here.
    pub(super) floor: Stamp,
    /// Diffs up to here are of a region that had these addresses before.
    pub(super) born: Stamp,
    changes: Changes,
    /// The region is being freed: nobody will ask for a copy any more.
    ends: bool,
    /// Without [`Rule::DiffsAreMadeAtClose`]: units whose diff was put off.
    put_off: Vec<usize>,
}

impl KeptUnits {
    pub(super) fn new(units: usize) -> KeptUnits {
        KeptUnits { units: vec![None; units], ..KeptUnits::default() }
    }

    pub(super) fn unit(&mut self, unit: usize) -> &mut KeptUnit {
        self.units[unit].get_or_insert_default()
    }
}

impl PageTable {
    /// Whether the diffs of this table's units stay with their writers.
    pub fn keeps_diffs(&self) -> bool {
        self.kept.is_some()
    }

    /// Every copy that comes into being here has all that was written up to this stamp.
    pub fn set_floor(&mut self, floor: Stamp) {
        self.kept.iter_mut().for_each(|kept| kept.floor = floor);
    }

    /// Another region had these addresses before and was freed: what was written up to this stamp is about that. It is
    /// the stamp of a barrier after all nodes have heard of the free, and before one uses the new region
    /// ([`IntervalState::barrier_stamp`](crate::coherence::pages::intervals::IntervalState::barrier_stamp)). What is
    /// told to sets may come at any time, since nobody acknowledges it.
    pub fn set_birth(&mut self, stamp: Stamp) {
        if Rule::RegionsBeginAnew.on() {
            self.kept.iter_mut().for_each(|kept| kept.born = stamp);
        }
    }

    /// Whether what was said at this stamp is about the region that had these addresses before.
    pub fn was_before(&self, stamp: Stamp) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.born > 0 && stamp <= kept.born)
    }

    /// Whom notices name as the home of a unit.
    pub(super) fn noticed_home(&self, me: NodeId, unit: usize) -> NodeId {
        if self.kept.is_some() { me } else { self.units[unit].home }
    }

    /// What this unit's copy lacks, for tests.
    #[cfg(test)]
    pub(in crate::coherence::pages) fn missing_at(&self, page: PageNo) -> Vec<(NodeId, DiffAsk)> {
        let Some(kept) = &self.kept else { return Vec::new() };
        let unit = kept.units[self.units.index(page)].as_deref();
        unit.map_or(Vec::new(), |unit| unit.missing(page, kept.floor).collect())
    }

    /// A notice says that `writer` wrote these pages in its interval with this stamp.
    pub fn note_written(&mut self, pages: &Range<PageNo>, writer: NodeId, stamp: Stamp) {
        if self.freed {
            return;
        }
        for unit in self.units.within(pages) {
            let fetching = self.units[unit].is_fetching();
            if let Some(kept) = &mut self.kept
                && stamp > kept.floor.max(kept.born)
                && (!fetching || Rule::NoticesVoidAsks.on())
            {
                raise_version(&mut kept.unit(unit).needed, writer, stamp);
            }
        }
    }

    // ---- accesses

    /// A thread found an invalid unit unusable: what it must ask for.
    pub(super) fn kept_fault(&mut self, cx: &mut Context<'_>, unit: usize, access: Access) -> Fault {
        let asks = self.begin_ask(cx, unit, access);
        if asks.is_empty() {
            self.finish_ask(cx, unit);
            return Fault::Mapped;
        }
        Fault::Ask(asks)
    }

    /// Begins to complete a copy; what has to be asked for. The unit is in state `Fetching` now.
    fn begin_ask(&mut self, cx: &mut Context<'_>, unit: usize, access: Access) -> Vec<(NodeId, Ask)> {
        let (page, manager) = (self.units.pages_of(unit).start, self.units[unit].home);
        let pages = self.units.layout.unit_pages;
        let ask = |wants| Ask { page, pages, wants };
        self.units[unit].state.begin_fetch(access == Access::Write);
        let zeros = self.begins_with_zeros(unit);
        let Some(kept) = &mut self.kept else { return Vec::new() };
        let (floor, this) = (kept.floor, kept.unit(unit));
        this.awaited.clear();
        if !this.has_copy && this.is_written() && manager != cx.me && !zeros {
            this.awaited.push((manager, STAMP_MAX));
            this.sets.note_fault(access == Access::Read);
            self.list_for_arrival(unit);
            return vec![(manager, ask(Wants::Base))];
        }
        if !this.has_copy {
            self.install_base(cx, unit, BaseCopy::default());
        }
        if !Rule::PatchesReachTheTwin.on() && cx.memory.notes_writes() && !self.read_only {
            cx.memory.make_twin(self.units.pages_of(unit), false);
        }
        self.begin_round(cx, unit);
        let writers_max = self.writers_max();
        let Some(kept) = &mut self.kept else { return Vec::new() };
        let this = kept.unit(unit);
        let mut missing: Vec<_> = this.missing(page, floor).collect();
        if !this.quiet {
            missing.truncate(writers_max);
        }
        this.awaited.extend(missing.iter().map(|(writer, ask)| (*writer, ask.need)));
        let wants = |of: DiffAsk| Wants::Diffs { since: of.since, need: of.need };
        missing.into_iter().map(|(writer, of)| (writer, ask(wants(of)))).collect()
    }

    /// A copy comes into being: these bytes, and what this node wrote later.
    fn install_base(&mut self, cx: &mut Context<'_>, unit: usize, base: BaseCopy<'_>) {
        let pages = self.units.pages_of(unit);
        match base.bytes {
            Some(bytes) => cx.memory.install(pages.clone(), bytes),
            None => {
                self.bytes.clear();
                self.bytes.resize(pages.len() * PAGE_BYTES, 0);
                cx.memory.install(pages.clone(), &self.bytes);
            }
        }
        if self.units[unit].state.begin_copy() {
            cx.tally.held += self.units.held_pages(cx.me, unit);
        }
        let Some(kept) = &mut self.kept else { return };
        let this = kept.unit(unit);
        this.has_copy = true;
        this.stamps = if Rule::BasesBringTheirStamps.on() { base.stamps } else { StampMap::default() };
        this.had = base.had;
        let (runs, bytes): (Vec<StampRun>, Vec<&[u8]>) = this.own.after(0).unzip();
        patch(&mut this.stamps, cx.memory, &pages, (&runs, &bytes.concat()));
    }

    /// All answers have come, or none are needed: the unit is valid if nothing is missing. Else whoever needs it asks
    /// again.
    pub(super) fn finish_ask(&mut self, cx: &mut Context<'_>, unit: usize) {
        let pages = self.units.pages_of(unit);
        let waits = self.waiters.has(unit);
        let for_store = self.units[unit].state.fetch().is_some_and(|fetch| fetch.for_store) && !self.read_only;
        let Some(kept) = &mut self.kept else { return };
        let (floor, this) = (kept.floor, kept.unit(unit));
        let quiet = std::mem::take(&mut this.quiet) && !waits;
        let is_whole = if Rule::PagesWaitForAllDiffs.on() { this.is_complete(floor) } else { this.has_copy };
        this.awaited.clear();
        if !is_whole || quiet {
            cx.tally.void_fetches += u64::from(!is_whole && this.has_copy);
            self.units[unit].state.end_fetch();
        } else {
            if cx.memory.notes_writes() && !self.read_only && Rule::PatchesReachTheTwin.on() {
                cx.memory.make_twin(pages.clone(), false);
                cx.tally.twins_made += 1;
            }
            this.sets.is_complete();
            self.units[unit].state.arrive();
            cx.tally.pages_fetched += u64::from(self.units.layout.unit_pages);
            map_installed(cx, pages, for_store);
        }
        self.waiters.wake(cx, &(unit..unit + 1));
    }

    /// A node has answered for one unit, up to this interval of its own: whether somebody waits for that. An answer
    /// that does not reach as far is one of before.
    fn is_awaited(&mut self, unit: usize, from: NodeId, through: Stamp) -> bool {
        let fetching = self.units[unit].is_fetching();
        let Some(kept) = &mut self.kept else { return false };
        let awaited = &mut kept.unit(unit).awaited;
        let place = awaited.iter().position(|(node, need)| *node == from && *need <= through).filter(|_| fetching);
        place.map(|place| awaited.remove(place)).is_some()
    }

    pub(super) fn has_been_answered(&mut self, cx: &mut Context<'_>, unit: usize) {
        let answered = self.kept.as_mut().is_some_and(|kept| kept.unit(unit).awaited.is_empty());
        if answered || !Rule::PagesWaitForAllDiffs.on() {
            self.finish_ask(cx, unit);
        }
    }

    /// Whether an answer about the unit that begins at `page` and reaches so far into it may be true.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_answer(&self, page: PageNo, bytes: u64, exact: bool) -> Result<(), Misbehaved> {
        let unit = self.units.unit_of(page);
        let whole = unit.len() as u64 * PAGE_BYTES as u64;
        match self.keeps_diffs() && unit.start == page {
            true if bytes > whole || (exact && bytes != whole) => Err(Misbehaved("sent a diff that leaves its unit")),
            true => Ok(()),
            false => Err(Misbehaved("answered for what is no unit that keeps its diffs")),
        }
    }

    /// A writer's diffs of the unit that begins at `page` have come, and were checked.
    pub fn take_diffs(&mut self, cx: &mut Context<'_>, from: NodeId, page: PageNo, diffs: &Diffs<'_>) {
        let unit = self.units.index(page);
        let pages = self.units.pages_of(unit);
        if self.freed {
            return self.on_freed(cx, &pages);
        }
        if !self.is_awaited(unit, from, diffs.through) && Rule::DuplicatesPatchOnce.on() {
            return;
        }
        if let Some(kept) = &mut self.kept
            && kept.unit(unit).has_copy
        {
            let this = kept.unit(unit);
            patch(&mut this.stamps, cx.memory, &pages, (&diffs.runs, diffs.bytes));
            raise_version(&mut this.had, from, diffs.through);
            cx.tally.diffs_applied += 1;
        }
        if self.units[unit].is_fetching() {
            self.has_been_answered(cx, unit);
        }
    }

    /// Whether `writer` may have dropped what the copy of the unit that begins at `page` lacks, up to this stamp.
    ///
    /// # Errors
    /// When this node is the unit's manager: before diffs are dropped managers have them.
    pub fn check_collected(&self, me: NodeId, writer: NodeId, page: PageNo, dropped: Stamp) -> Result<(), Misbehaved> {
        self.check_answer(page, 0, false)?;
        let unit = self.units.index(page);
        let manages = !self.freed && self.units[unit].home == me;
        match manages && self.awaits(unit, writer) && self.lacks(unit, writer, dropped) {
            true => Err(Misbehaved("has dropped diffs that the manager of their page lacks")),
            false => Ok(()),
        }
    }

    /// Whether a thread waits for what a node is to say of a unit.
    fn awaits(&self, unit: usize, node: NodeId) -> bool {
        let of = self.kept.as_ref().and_then(|kept| kept.units[unit].as_deref());
        self.units[unit].is_fetching() && of.is_some_and(|of| of.awaited.iter().any(|(awaited, _)| *awaited == node))
    }

    /// Whether the copy of a unit has not all that a writer has written up to this stamp. What says so may be late, and
    /// about a copy of before.
    fn lacks(&self, unit: usize, writer: NodeId, stamp: Stamp) -> bool {
        let Some(kept) = &self.kept else { return false };
        kept.units[unit].as_deref().is_some_and(|of| version_of(&of.had, writer).max(kept.floor) < stamp)
    }

    /// A writer does not keep any more what the copy of this unit lacks, up to this stamp: the copy is of no use. That
    /// was checked.
    pub fn take_collected(&mut self, cx: &mut Context<'_>, from: NodeId, page: PageNo, dropped: Stamp) {
        let unit = self.units.index(page);
        if self.freed {
            return self.on_freed(cx, &self.units.pages_of(unit));
        }
        let is_late = !self.lacks(unit, from, dropped) || self.units[unit].home == cx.me;
        if is_late || !self.is_awaited(unit, from, STAMP_MAX - 1) {
            return;
        }
        if let Some(kept) = &mut self.kept {
            let this = kept.unit(unit);
            this.drop_copy();
            this.collected = true;
        }
        self.has_been_answered(cx, unit);
    }

    /// The manager's copy of the unit that begins at `page` has come, and was checked.
    pub fn take_base(&mut self, cx: &mut Context<'_>, from: NodeId, page: PageNo, base: BaseCopy<'_>) {
        let unit = self.units.index(page);
        if self.freed {
            return self.on_freed(cx, &self.units.pages_of(unit));
        }
        if !self.is_awaited(unit, from, Stamp::MAX) {
            return;
        }
        let had_copy = self.kept.as_mut().is_some_and(|kept| kept.unit(unit).has_copy);
        // One from before the last collection may lack what nobody keeps any more. One from behind the next tells of no
        // stamps that diffs here still have.
        if self.kept.as_ref().is_some_and(|kept| base.floor == kept.floor) {
            self.install_base(cx, unit, base);
            cx.tally.bases_fetched += 1;
            if let Some(kept) = self.kept.as_mut().filter(|_| had_copy) {
                kept.unit(unit).sets.begin_base();
            }
        }
        self.has_been_answered(cx, unit);
    }

    // ---- releases

    /// What was written to a copy joins what this node keeps; gives the number of bytes.
    pub(super) fn keep_changes(&mut self, cx: &mut Context<'_>, unit: usize, flush: &mut dyn DiffSink) -> usize {
        let (pages, stamp) = (self.units.pages_of(unit), flush.stamp());
        let Some(kept) = &mut self.kept else { return 0 };
        if !Rule::DiffsAreMadeAtClose.on() {
            match kept.put_off.iter().position(|other| *other == unit) {
                None => {
                    kept.put_off.push(unit);
                    return 1;
                }
                Some(place) => drop(kept.put_off.remove(place)),
            }
        }
        let reused = std::mem::take(&mut kept.unit(unit).reused);
        if !reused.is_empty() {
            // Before the comparison: what threads store meanwhile is in the twin only if that has seen it.
            self.bytes.clear();
            cx.memory.copy_out(pages.clone(), &mut self.bytes);
        }
        let mut changes = std::mem::take(&mut kept.changes);
        cx.memory.changes(pages, &mut changes);
        if !reused.is_empty() {
            changes.cover(reused, &self.bytes);
        }
        let this = kept.unit(unit);
        if changes.bytes() > 0 {
            let before = this.own.memory_bytes();
            this.own.add(&changes, stamp);
            cx.tally.diffs_kept += this.own.memory_bytes() as i64 - before as i64;
            let runs: Vec<StampRun> = stamped(&changes, stamp).collect();
            this.stamps.replace(&runs, |_, _| ());
        }
        let bytes = changes.bytes();
        kept.changes = changes;
        if bytes > 0 {
            self.count_diff(unit, bytes);
        }
        bytes
    }

    /// These bytes, from the first page of this table on, are given out again, and are about to be zeroed. Others may
    /// have them as they were before, and this node perhaps has not heard of that. So each of them joins the next diff,
    /// those too that are zero here already.
    pub fn note_reused(&mut self, bytes: Range<usize>) {
        if self.freed || !Rule::ReusedMemoryIsWritten.on() {
            return;
        }
        let unit_bytes = self.units.layout.unit_pages as usize * PAGE_BYTES;
        let Some(kept) = &mut self.kept else { return };
        for unit in bytes.start / unit_bytes..bytes.end.div_ceil(unit_bytes) {
            let within = |at: usize| at.clamp(unit * unit_bytes, (unit + 1) * unit_bytes) - unit * unit_bytes;
            kept.unit(unit).reused.push(within(bytes.start) as u32..within(bytes.end) as u32);
        }
    }

    // ---- what others ask

    /// Appends what this node wrote to a unit and another one lacks. All intervals up to `closed` are in.
    ///
    /// # Errors
    /// When no correct node would ask so.
    pub fn tell_diffs(&self, ask: DiffAsk, closed: Stamp, out: &mut Vec<u8>) -> Result<(), Misbehaved> {
        self.check_answer(ask.page, 0, false)?;
        if ask.need > closed {
            return Err(Misbehaved("asked for the diffs of an interval that has not closed"));
        }
        if self.freed {
            put_freed(out, ask.page);
            return Ok(());
        }
        match self.kept_unit(ask.page) {
            Some(this) if this.dropped > ask.since => put_collected(out, ask.page, this.dropped),
            Some(this) => put_diffs(out, ask.page, closed, this.own.after(ask.since)),
            None => put_diffs(out, ask.page, closed, std::iter::empty()),
        }
        Ok(())
    }

    fn kept_unit(&self, page: PageNo) -> Option<&KeptUnit> {
        self.kept.as_ref()?.units[self.units.index(page)].as_deref()
    }

    /// Appends this node's copy of a unit of which it is the manager, as what it wrote was released. All its intervals
    /// up to `closed` are in. Where managers move, a request to which nobody waits for the answer any more may come to
    /// a node that was the manager before. Any copy serves it. Without one zeros do, as long as nothing was collected.
    ///
    /// # Errors
    /// When no correct node would ask so.
    pub fn tell_base(
        &mut self,
        cx: &mut Context<'_>,
        page: PageNo,
        closed: Stamp,
        out: &mut Vec<u8>,
    ) -> Result<(), Misbehaved> {
        self.check_answer(page, 0, false)?;
        let unit = self.units.index(page);
        let manages = self.units[unit].home == cx.me;
        if !manages && !self.tells_sets() {
            return Err(Misbehaved("asked for a base whose manager is another node"));
        }
        if self.freed {
            put_freed(out, page);
            return Ok(());
        }
        if self.placement(page).is_homed
            && self.units[unit].state.is_absent()
            && self.kept_unit(page).is_some_and(|of| of.has_copy)
        {
            self.use_unasked(cx, unit);
        }
        let floor = self.kept.as_ref().map_or(0, |kept| kept.floor);
        let Some(this) = self.kept_unit(page).filter(|this| this.has_copy) else {
            let floor = if manages { floor } else { 0 };
            put_base(out, page, floor, (&Default::default(), &StampMap::default()), None);
            return Ok(());
        };
        let mut had = this.had.clone();
        raise_version(&mut had, cx.me, closed);
        let pages = self.units.pages_of(unit);
        put_base(out, page, floor, (&had, &this.stamps), Some(pages.len() * PAGE_BYTES));
        if !Rule::BasesAreReleased.on() || !cx.memory.copy_twin(pages.clone(), out) {
            cx.memory.copy_out(pages, out);
        }
        Ok(())
    }

    // ---- memory

    /// The copy's memory is about to be given back. `false`: it may not be, since others will ask for it.
    pub(super) fn may_give_back(&self, me: NodeId, unit: usize) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.ends) || self.units[unit].home != me
    }

    /// Whether a step that maps this page makes it, or may make it, one of which this node tells what it writes to it:
    /// a copy, or a home page that others hold.
    pub fn may_need_notices(&self, page: PageNo) -> bool {
        let unit = self.unit(page);
        // One that nobody has written is mapped at once.
        // And a store to one page lets threads store to all of the table.
        let allows = self.forbids_writes() && Rule::AllowedTablesAreListedFirst.on();
        allows || unit.may_need_notices() || self.keeps_diffs() && unit.state.is_absent()
    }

    /// The region is about to be freed.
    pub(super) fn kept_ends(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.ends = true);
    }

    /// It was.
    pub(super) fn kept_copy_is_gone(&mut self, unit: usize) {
        if let Some(this) = self.kept.as_mut().and_then(|kept| kept.units[unit].as_deref_mut()) {
            this.drop_copy();
            self.list_for_arrival(unit);
        }
    }

    /// A writer has freed the region already: what it wrote to this unit will not come any more.
    pub(super) fn expect_nothing(&mut self, unit: usize) {
        if let Some(this) = self.kept.as_mut().and_then(|kept| kept.units[unit].as_deref_mut()) {
            this.due.clear();
        }
    }

    /// The region was freed: nothing of it is kept.
    pub(super) fn drop_kept(&mut self, cx: &mut Context<'_>) {
        if let Some(kept) = &mut self.kept {
            let bytes: usize = kept.units.iter().flatten().map(|unit| unit.own.memory_bytes()).sum();
            cx.tally.diffs_kept -= bytes as i64;
            **kept = KeptUnits { ends: true, ..KeptUnits::new(self.units.len()) };
        }
    }

    // ---- collection

    /// A barrier has opened at which a node announced a collection. Copies that this node manages, and copies in use,
    /// are to be complete before the next barrier; appends what to ask for. Other copies that lack something end.
    pub fn begin_collection(&mut self, cx: &mut Context<'_>, asks: &mut Vec<(NodeId, Ask)>) {
        if self.freed {
            return;
        }
        for unit in 0..self.units.len() {
            let (this, manages) = (self.units[unit], self.units[unit].home == cx.me);
            let Some(kept) = &mut self.kept else { return };
            let floor = kept.floor;
            let Some(of) = kept.units[unit].as_deref_mut() else { continue };
            of.due = of.needed.clone();
            if !this.state.is_absent() || of.is_complete(floor) || !(of.has_copy || manages && of.is_written()) {
                continue;
            }
            if manages && !Rule::ManagersAreComplete.on() {
                continue;
            }
            if !manages && !self.units.is_used_again(unit) {
                self.give_memory_back(cx, unit);
                continue;
            }
            of.quiet = true;
            let of_unit = self.begin_ask(cx, unit, Access::Read);
            match of_unit.is_empty() {
                true => self.finish_ask(cx, unit),
                false => asks.extend(of_unit),
            }
        }
    }

    /// The barrier after that has opened: nobody asks any more for what was written up to `floor`.
    ///
    /// # Errors
    /// With the first page that this node manages and of which it lacks something: that is lost now.
    pub fn finish_collection(&mut self, cx: &mut Context<'_>, floor: Stamp) -> Result<(), PageNo> {
        if self.freed {
            return Ok(());
        }
        let mut lost = None;
        for unit in 0..self.units.len() {
            let manages = self.units[unit].home == cx.me;
            let Some(of) = self.kept.as_mut().and_then(|kept| kept.units[unit].as_deref_mut()) else { continue };
            if manages && !of.due.is_empty() && !of.has_what_was_due() {
                lost = lost.or(Some(self.units.pages_of(unit).start));
            }
            let before = of.own.memory_bytes();
            let goes = of.collect(floor);
            cx.tally.diffs_kept += of.own.memory_bytes() as i64 - before as i64;
            if goes && self.units[unit].state.is_absent() {
                self.give_memory_back(cx, unit);
            }
        }
        self.set_floor(floor);
        lost.map_or(Ok(()), Err)
    }

    /// What this table's units keep of this node's writes, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let units = self.kept.iter().flat_map(|kept| kept.units.iter().flatten());
        units.map(|unit| unit.own.memory_bytes()).sum()
    }

    /// Whether a copy ends by a notice with what was written to it kept first.
    pub(super) fn keeps_own_bytes(&self) -> bool {
        self.kept.is_none() || Rule::OwnBytesFirst.on()
    }
}

impl Units {
    /// The pages by which the unit's memory counts against the cache's bound: what a manager has stays, as homes do.
    pub(super) fn held_pages(&self, me: NodeId, unit: usize) -> i64 {
        let stays = self.layout.engine.keeps_diffs() && self[unit].home == me;
        if stays { 0 } else { self.layout.unit_pages.into() }
    }
}

/// Stores the bytes that are newer than those of a copy which no thread can see, and notes their stamps.
pub(super) fn patch(
    stamps: &mut StampMap,
    memory: &mut dyn PageMemory,
    unit: &Range<PageNo>,
    (runs, bytes): (&[StampRun], &[u8]),
) {
    let places: Vec<usize> = runs
        .iter()
        .scan(0, |end, run| {
            let start = *end;
            *end += (run.end - run.start) as usize;
            Some(start)
        })
        .collect();
    let takes = |piece: Range<u32>, run: usize| {
        let at = places[run] + (piece.start - runs[run].start) as usize;
        memory.patch(unit.clone(), piece.start as usize, &bytes[at..at + piece.len()]);
    };
    match (Rule::NewerBytesStay.on(), Rule::DuplicatesPatchOnce.on()) {
        (true, true) => stamps.raise(runs, takes),
        (true, false) => stamps.repeat(runs, takes),
        (false, _) => stamps.replace(runs, takes),
    }
}
