//! Units whose diffs are told to sets of nodes: see [`multicast`](crate::coherence::pages::multicast).

use super::PageTable;
use super::kept_diffs::patch;
use crate::coherence::Misbehaved;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::kept_diffs::unit::{KeptUnit, raise_version, version_of};
use crate::coherence::pages::kept_diffs::{Ask, STAMP_MAX, Stamp, Wants};
use crate::coherence::pages::multicast::carry::put_unit;
use crate::coherence::pages::multicast::serve::{Bystander, ComposedAsks};
use crate::coherence::pages::multicast::unit::Unasked;
use crate::coherence::pages::multicast::wire::{
    AskedWriter, SetAsk, TOLD_UNITS_MAX, put_set_ask, put_told, put_told_collected, put_told_diffs, put_too_long,
};
use crate::coherence::pages::{Context, PAGE_BYTES, PageNo, push_range};
use crate::ids::NodeId;
use crate::outbox::Audience;
use crate::rules::Rule;
use crate::tuning::MulticastTuning;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a table keeps beside what it keeps of its units.
#[derive(Clone, Default, Debug)]
pub(super) struct SetTable {
    pub(super) tuning: MulticastTuning,
    /// Units at which the next arrival at a barrier looks.
    listed: Vec<usize>,
    /// Units that are told before each arrival.
    pub(super) early: Vec<usize>,
    /// Units that this node has used since the window began.
    pub(super) used: Vec<usize>,
    /// Units of which nodes said how they used them, at the barrier that is opening.
    pub(super) said: Vec<usize>,
}

/// The bytes of diffs, as they go in a message: each run has a few numbers.
fn told_bytes(of: &KeptUnit, since: Stamp) -> usize {
    const NUMBERS_BYTES: usize = 12;
    of.own.after(since).map(|(_, bytes)| bytes.len() + NUMBERS_BYTES).sum()
}

/// Whether a copy has all that `writer` wrote up to this stamp.
fn reaches(of: &KeptUnit, floor: Stamp, writer: NodeId, stamp: Stamp) -> bool {
    version_of(&of.had, writer).max(floor).max(of.sets.whole_to.unwrap_or(0)) >= stamp
}

impl PageTable {
    /// The same table with these numbers instead of their defaults.
    #[must_use]
    pub fn with_sets_tuned(mut self, tuning: MulticastTuning) -> PageTable {
        self.sets.iter_mut().for_each(|sets| sets.tuning = tuning);
        self
    }

    /// Whether the diffs of this table's units are told to sets.
    pub fn tells_sets(&self) -> bool {
        self.sets.is_some()
    }

    /// The copyset of a unit, as far as is known here.
    pub fn members(&self, page: PageNo) -> NodeSet {
        let unit = self.kept.as_ref().and_then(|kept| kept.units[self.units.index(page)].as_deref());
        unit.map_or_else(NodeSet::new, |unit| unit.sets.members.clone())
    }

    /// The memory that diffs take which came unasked.
    pub fn unasked_bytes(&self) -> usize {
        self.kept.iter().flat_map(|kept| kept.units.iter().flatten()).map(|of| of.sets.unasked_bytes()).sum()
    }

    /// Most writers that a fault asks at a time.
    pub(super) fn writers_max(&self) -> usize {
        self.sets.as_ref().map_or(usize::MAX, |sets| sets.tuning.writers_max)
    }

    /// The next arrival at a barrier has a look at this unit.
    pub(super) fn list_for_arrival(&mut self, unit: usize) {
        if let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept)
            && !std::mem::replace(&mut kept.unit(unit).sets.is_listed, true)
        {
            sets.listed.push(unit);
        }
    }

    // ---- a thread that has faulted

    /// A copy begins to be completed: what came unasked is stored into it.
    pub(super) fn begin_round(&mut self, cx: &mut Context<'_>, unit: usize) {
        if self.sets.is_none() {
            return;
        }
        if let Some(kept) = &mut self.kept {
            let of = kept.unit(unit);
            cx.tally.diffs_indirect_used += of.sets.unasked.len() as u64;
            let reads = self.units[unit].state.fetch().is_some_and(|fetch| !fetch.for_store);
            of.sets.begin_round(!of.quiet, reads);
        }
        self.list_for_arrival(unit);
        self.use_unasked(cx, unit);
    }

    /// Stores what came unasked into a copy that no thread can see.
    pub(super) fn use_unasked(&mut self, cx: &mut Context<'_>, unit: usize) {
        let pages = self.units.pages_of(unit);
        let Some(kept) = &mut self.kept else { return };
        let (floor, of) = (kept.floor, kept.unit(unit));
        let mut unasked = std::mem::take(&mut of.sets.unasked);
        unasked.sort_by_key(|diffs| diffs.since);
        for diffs in unasked {
            patch(&mut of.stamps, cx.memory, &pages, (&diffs.runs, &diffs.bytes));
            for (writer, through) in diffs.covers.iter().filter(|(writer, _)| *writer != cx.me) {
                let rule = if diffs.is_carried { Rule::CarriedDiffsLeaveNoGap } else { Rule::ToldDiffsLeaveNoGap };
                if reaches(of, floor, *writer, diffs.since) || !rule.on() {
                    raise_version(&mut of.had, *writer, *through);
                }
            }
            cx.tally.diffs_applied += 1;
        }
    }

    /// What goes out for the asks to which a fault on the unit that begins at `page` has come, as far as they are not
    /// answered meanwhile.
    pub fn compose_asks(&mut self, page: PageNo, by: Bystander) -> ComposedAsks {
        let mut composed = ComposedAsks::default();
        let (unit, pages) = (self.units.index(page), self.units.layout.unit_pages);
        let manager = self.units[unit].home;
        let told_bytes_max = self.sets.as_ref().map_or(0, |sets| sets.tuning.told_bytes_max);
        let Some(kept) = self.kept.as_mut().filter(|_| !self.freed && self.units[unit].is_fetching()) else {
            return composed;
        };
        let (floor, of) = (kept.floor, kept.unit(unit));
        if !of.has_copy {
            let base = Ask { page, pages, wants: Wants::Base };
            composed.direct.extend(of.awaited.iter().map(|(manager, _)| (*manager, base)));
            return composed;
        }
        let (mut asked, mut waits) = (Vec::new(), false);
        for (writer, need) in of.awaited.clone() {
            let since = version_of(&of.had, writer).max(floor);
            if need > by.barrier || of.sets.is_direct {
                composed.direct.push((writer, Ask { page, pages, wants: Wants::Diffs { since, need } }));
                of.sets.certain.push(writer);
            } else if version_of(&of.sets.expected, writer) >= need && version_of(&of.sets.heard, writer) < need {
                // What has come and is not enough leaves a gap: nobody will tell that unasked.
                waits = true;
            } else {
                asked.push(AskedWriter { node: writer, since, need });
            }
        }
        if of.sets.is_homed && asked.len() > 1 && manager != by.me {
            // It has what they wrote, or most of that. The rest is asked of them point to point.
            of.awaited.clear();
            of.awaited.push((manager, STAMP_MAX));
            composed.direct = vec![(manager, Ask { page, pages, wants: Wants::Base })];
            return composed;
        }
        if of.sets.is_homed {
            // Whoever else has a copy takes the manager's when it needs it.
            for AskedWriter { node, since, need } in asked {
                composed.direct.push((node, Ask { page, pages, wants: Wants::Diffs { since, need } }));
                of.sets.certain.push(node);
            }
        } else if !asked.is_empty() {
            compose_set_ask(of, (page, pages), asked, (by, told_bytes_max), &mut composed);
        }
        composed.waits = (waits || composed.to_set.is_some()).then_some(of.sets.round);
        composed
    }

    /// The timer of a thread has run out, which waits for the answers of this round.
    pub fn repair_asks(&mut self, cx: &mut Context<'_>, page: PageNo, round: u32) -> Vec<(NodeId, Ask)> {
        let (unit, pages) = (self.units.index(page), self.units.layout.unit_pages);
        let fetching = self.units[unit].is_fetching();
        let Some(kept) = self.kept.as_mut().filter(|_| fetching && !self.freed) else { return Vec::new() };
        let (floor, of) = (kept.floor, kept.unit(unit));
        if of.sets.round != round || !of.has_copy || !Rule::RepairAsksWriters.on() {
            return Vec::new();
        }
        let mut asks = Vec::new();
        for (writer, need) in of.awaited.iter().filter(|(writer, _)| !of.sets.certain.contains(writer)) {
            let since = version_of(&of.had, *writer).max(floor);
            asks.push((*writer, Ask { page, pages, wants: Wants::Diffs { since, need: *need } }));
        }
        of.sets.certain.extend(asks.iter().map(|(writer, _)| *writer));
        cx.tally.diffs_repaired += asks.len() as u64;
        asks
    }

    // ---- what others ask and tell

    /// Whether an ask of a set may be true.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_set_ask(&self, ask: &SetAsk<'_>, by: Bystander) -> Result<(), Misbehaved> {
        if !self.tells_sets() {
            return Err(Misbehaved("asked a set for diffs of pages that are not told to sets"));
        }
        self.check_answer(ask.page, ask.own.as_ref().map_or(0, |own| own.end().into()), false)?;
        let is_open = |writer: &AskedWriter| writer.node == by.me && writer.need > by.closed;
        match ask.writers.iter().any(is_open) {
            true => Err(Misbehaved("asked a set for the diffs of an interval that has not closed")),
            false => Ok(()),
        }
    }

    /// Another node asks a set for the unit that begins at `page`, which was checked. To be called before what it
    /// brings is taken in: that may be the last for which this node's own fetch waits.
    pub fn note_ask(&mut self, page: PageNo) {
        let unit = self.units.index(page);
        let notes = self.sets.as_ref().is_some_and(|sets| sets.tuning.early) && self.units[unit].is_fetching();
        let Some(kept) = self.kept.as_mut().filter(|_| notes && !self.freed) else { return };
        kept.unit(unit).sets.met = true;
        self.list_for_arrival(unit);
    }

    /// Takes note of what an ask says, which was checked. Where this node is to answer, appends its answer; gives whom
    /// it goes to.
    pub fn answer_set_ask(
        &mut self,
        cx: &mut Context<'_>,
        from: NodeId,
        ask: &SetAsk<'_>,
        by: Bystander,
        out: &mut Vec<u8>,
    ) -> Option<NodeSet> {
        let (unit, tuning) = (self.units.index(ask.page), self.sets.as_ref()?.tuning);
        // An ask for what a region wrote that had these addresses before is late.
        if self.freed || ask.writers.iter().all(|writer| self.was_before(writer.need)) {
            return None;
        }
        let of = self.kept.as_mut()?.unit(unit);
        for writer in ask.writers.iter().filter(|writer| writer.node != cx.me) {
            raise_version(&mut of.sets.expected, writer.node, writer.need);
        }
        let mine = ask.writers.iter().find(|writer| writer.node == cx.me && ask.asked.contains(cx.me))?;
        let is_told = match Rule::SilentOnlyIfTold.on() {
            true => of.sets.has_told(from, mine.since, mine.need),
            false => of.sets.has_told_anybody(mine.need),
        };
        if is_told || !of.sets.members.contains(cx.me) && !Rule::LeaversServeUntilHeard.on() {
            return None;
        }
        if of.dropped > mine.since {
            put_told_collected(out, ask.page, of.dropped);
            return Some(std::iter::once(from).collect());
        }
        let mut set: NodeSet = ask.asked.iter().chain(ask.told.iter()).chain([from]).collect();
        set.remove(cx.me);
        // From where all are that were told before, as far as this node still has it.
        let since = of.sets.told_since(&set).map_or(mine.since, |told| told.min(mine.since)).max(of.dropped);
        if told_bytes(of, since) > tuning.told_bytes_max {
            put_too_long(out, ask.page, by.closed);
            return Some(set);
        }
        put_told(out, ask.page, (since, by.closed), of.own.after(since));
        of.sets.mark_told(set.iter(), since, by.closed);
        Some(set)
    }

    /// Diffs of the unit that begins at `page` have come, and were checked. A copy that waits for them is patched;
    /// else they are kept for the next fault.
    pub fn take_unasked(&mut self, cx: &mut Context<'_>, page: PageNo, mut diffs: Unasked) {
        let unit = self.units.index(page);
        let pages = self.units.pages_of(unit);
        if self.freed {
            return self.on_freed(cx, &pages);
        }
        let tuning = self.sets.as_ref().map(|sets| sets.tuning).unwrap_or_default();
        let is_absent = self.units[unit].state.is_absent();
        let manages = self.units[unit].home == cx.me;
        let fetching = self.units[unit].is_fetching();
        let Some(kept) = self.kept.as_mut().filter(|_| self.sets.is_some()) else { return };
        let (floor, of) = (kept.floor.max(kept.born), kept.unit(unit));
        let is_new = |(writer, through): &(NodeId, Stamp)| {
            *writer != cx.me && *through > version_of(&of.had, *writer).max(floor)
        };
        if !diffs.covers.iter().any(is_new) && Rule::DuplicatesPatchOnce.on() {
            return;
        }
        if let [(writer, through)] = diffs.covers[..]
            && !diffs.is_carried
        {
            raise_version(&mut of.sets.heard, writer, through);
        }
        // The copy's stamps up to the floor are forgotten: what comes from before it would overwrite newer bytes.
        diffs.drop_to(floor);
        if !Rule::DuplicatesPatchOnce.on() && of.has_copy {
            patch(&mut of.stamps, cx.memory, &pages, (&diffs.runs, &diffs.bytes));
        }
        let is_carried = diffs.is_carried;
        of.sets.unasked.push(diffs);
        if fetching && of.has_copy {
            self.use_unasked(cx, unit);
            return self.look_what_is_awaited(cx, unit);
        }
        cx.tally.diffs_indirect += 1;
        let keeps_for_others = of.sets.is_homed && manages;
        if keeps_for_others && of.has_copy && is_absent {
            return self.use_unasked(cx, unit);
        }
        // That others ask for the copy of a manager is use enough.
        of.sets.came |= !is_carried && !keeps_for_others;
        let units = tuning.unasked_units_max.max(if keeps_for_others { tuning.homed_writers_max } else { 0 });
        if of.sets.unasked_bytes() > units * pages.len() * PAGE_BYTES {
            of.sets.drop_unasked();
        }
        self.list_for_arrival(unit);
    }

    /// What came may be all for which a thread waits.
    fn look_what_is_awaited(&mut self, cx: &mut Context<'_>, unit: usize) {
        let Some(kept) = &mut self.kept else { return };
        let of = kept.unit(unit);
        let before = of.awaited.len();
        let had = std::mem::take(&mut of.had);
        of.awaited.retain(|(writer, need)| version_of(&had, *writer) < *need);
        of.had = had;
        if of.awaited.len() < before {
            self.has_been_answered(cx, unit);
        }
    }

    /// Whether a thread waits for the diffs of a writer.
    fn awaits_diffs_of(&mut self, unit: usize, writer: NodeId) -> bool {
        let fetching = self.units[unit].is_fetching() && !self.freed;
        let Some(kept) = self.kept.as_mut().filter(|_| fetching && self.sets.is_some()) else { return false };
        let of = kept.unit(unit);
        of.has_copy && of.awaited.iter().any(|(node, need)| *node == writer && *need < STAMP_MAX)
    }

    /// A writer says to a set that it does not keep any more what the copy of this unit lacks.
    pub fn take_told_collected(&mut self, cx: &mut Context<'_>, from: NodeId, page: PageNo, dropped: Stamp) {
        if self.awaits_diffs_of(self.units.index(page), from) {
            self.take_collected(cx, from, page, dropped);
        }
    }

    /// What a writer wrote to this unit is too long for a datagram: whoever needs it asks again.
    pub fn take_too_long(&mut self, cx: &mut Context<'_>, from: NodeId, page: PageNo, closed: Stamp) {
        if self.was_before(closed) {
            return;
        }
        let unit = self.units.index(page);
        let Some(kept) = self.kept.as_mut().filter(|_| self.sets.is_some() && !self.freed) else { return };
        kept.unit(unit).sets.is_direct = true;
        if self.awaits_diffs_of(unit, from) {
            self.finish_ask(cx, unit);
        }
    }

    // ---- diffs with a lock's token

    /// A token tells that these pages were written. Copies that lack nothing have all up to the last barrier, which
    /// told of all that was written up to this stamp.
    pub fn note_whole(&mut self, pages: &Range<PageNo>, barrier: Stamp) {
        if self.freed || self.sets.is_none() {
            return;
        }
        for unit in self.units.within(pages) {
            let Some(kept) = &mut self.kept else { return };
            let (floor, of) = (kept.floor, kept.unit(unit));
            let is_whole = if of.has_copy { of.is_complete(floor) } else { !of.is_written() };
            if is_whole {
                of.sets.whole_to = of.sets.whole_to.max(Some(barrier));
            }
        }
    }

    /// Whether a copy of a unit that somebody has written may begin with zeros all the same.
    pub(super) fn begins_with_zeros(&self, unit: usize) -> bool {
        let of = self.kept.as_ref().and_then(|kept| kept.units[unit].as_deref());
        of.is_some_and(|of| !of.has_copy && of.sets.whole_to.is_some())
    }

    /// Appends what this node's copy has of a unit, as it was released, of what was written after `since`, in `most`
    /// bytes at most. All this node's intervals up to `closed` are in.
    pub fn carry(
        &mut self,
        cx: &mut Context<'_>,
        page: PageNo,
        (since, closed): (Stamp, Stamp),
        most: usize,
        out: &mut Vec<u8>,
    ) {
        let unit = self.units.index(page);
        let pages = self.units.pages_of(unit);
        if self.freed || self.sets.is_none() {
            return;
        }
        let has_copy = self.kept.as_ref().is_some_and(|kept| kept.units[unit].as_ref().is_some_and(|of| of.has_copy));
        if !has_copy {
            return;
        }
        if self.units[unit].state.is_absent() {
            // What came and was not used goes on.
            self.use_unasked(cx, unit);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        if !Rule::CarriedDiffsAreReleased.on() || !cx.memory.copy_twin(pages.clone(), &mut bytes) {
            cx.memory.copy_out(pages.clone(), &mut bytes);
        }
        if let Some(kept) = &mut self.kept {
            let of = kept.unit(unit);
            let mut covers = of.had.clone();
            raise_version(&mut covers, cx.me, closed);
            covers.retain(|(_, stamp)| *stamp > since);
            let runs = of.stamps.runs().iter().filter(|run| run.stamp > since);
            let runs = runs.map(|run| (*run, &bytes[run.start as usize..run.end as usize]));
            let at = out.len();
            put_unit(out, pages.start, &covers, runs);
            if out.len() - at > most || covers.is_empty() {
                out.truncate(at);
            }
        }
        self.bytes = bytes;
    }

    // ---- copysets

    /// This node arrives at a barrier: appends the pages of which it has something to say.
    pub fn change_members(&mut self, cx: &mut Context<'_>, changes: &mut MemberChanges) {
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        let mut listed = std::mem::take(&mut sets.listed);
        if self.freed {
            return;
        }
        listed.sort_unstable();
        for unit in listed {
            let of = kept.unit(unit);
            of.sets.is_listed = false;
            if std::mem::take(&mut of.sets.came) {
                of.sets.unused = of.sets.unused.saturating_add(1);
            }
            let used = std::mem::take(&mut of.sets.used);
            if std::mem::take(&mut of.sets.wrote) || used {
                let window = &mut of.sets.window;
                window.epochs = window.epochs.saturating_add(1);
                if !std::mem::replace(&mut window.is_listed, true) {
                    sets.used.push(unit);
                }
            }
            let is_member = of.sets.members.contains(cx.me);
            let is_of_no_use = of.sets.unused >= sets.tuning.leave_after || !of.has_copy;
            if is_member && is_of_no_use && of.sets.members.len() > 1 {
                push_range(&mut changes.leaves, self.units.pages_of(unit));
                cx.tally.copysets_left += 1;
            } else if !is_member && used && of.has_copy {
                push_range(&mut changes.joins, self.units.pages_of(unit));
            }
            if std::mem::take(&mut of.sets.met) && !of.sets.is_early {
                push_range(&mut changes.early, self.units.pages_of(unit));
            }
        }
    }

    /// A barrier has told that a node joins the copysets of these pages, or leaves them. The last member stays.
    pub fn note_member(&mut self, me: NodeId, pages: &Range<PageNo>, node: NodeId, joins: bool) {
        if self.freed || self.sets.is_none() {
            return;
        }
        for unit in self.units.within(pages) {
            let Some(kept) = &mut self.kept else { return };
            let sets = &mut kept.unit(unit).sets;
            if joins {
                sets.members.insert(node);
            } else if sets.members.contains(node) && sets.members.len() > 1 {
                sets.members.remove(node);
                sets.is_early &= sets.members.len() > 1;
                if node == me {
                    sets.unused = 0;
                    sets.drop_unasked();
                }
            }
        }
    }

    /// A barrier has told that what is written to these pages is told before each arrival from now on.
    pub fn note_early(&mut self, pages: &Range<PageNo>) {
        let units = self.units.within(pages);
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        for unit in units.filter(|_| !self.freed) {
            if !std::mem::replace(&mut kept.unit(unit).sets.is_early, true) {
                sets.early.push(unit);
            }
        }
    }

    /// This node is about to arrive at a barrier, and all its intervals up to `closed` have ended: appends what it
    /// tells of units of which that is told early, as messages to sets.
    pub fn tell_early(&mut self, me: NodeId, closed: Stamp, messages: &mut Vec<EarlyTells>) {
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        if self.freed {
            return;
        }
        let most = sets.tuning.told_bytes_max;
        sets.early.retain(|unit| kept.unit(*unit).sets.is_early || kept.unit(*unit).sets.is_homed);
        for unit in &sets.early {
            let (of, manager) = (kept.unit(*unit), self.units[*unit].home);
            let mut told = if of.sets.is_homed { NodeSet::from_iter([manager]) } else { of.sets.members.clone() };
            told.remove(me);
            let since = of.sets.told_since(&told).unwrap_or(0).max(of.dropped);
            let bytes = told_bytes(of, since);
            if told.is_empty() || bytes == 0 || bytes > most || since >= closed {
                continue;
            }
            let fits = |early: &EarlyTells| {
                early.told == told && early.units < TOLD_UNITS_MAX && early.body.len() + bytes <= most
            };
            let at = messages.iter().position(fits).unwrap_or_else(|| {
                messages.push(EarlyTells { told: told.clone(), ..EarlyTells::default() });
                messages.len() - 1
            });
            let page = self.units.pages_of(*unit).start;
            put_told(&mut messages[at].body, page, (since, closed), of.own.after(since));
            messages[at].units += 1;
            of.sets.mark_told(told.iter(), since, closed);
        }
    }
}

/// What a node says of copysets as it arrives at a barrier.
#[derive(Clone, Default, Debug)]
pub struct MemberChanges {
    /// It joins those of these pages.
    pub joins: Vec<Range<PageNo>>,
    /// It leaves those of these.
    pub leaves: Vec<Range<PageNo>>,
    /// It asked for these while another did: what is written to them is to be told before each arrival.
    pub early: Vec<Range<PageNo>>,
    /// How it used these, by the number that says it ([`Uses`](crate::coherence::pages::multicast::placement::Uses)).
    pub uses: BTreeMap<u64, Vec<Range<PageNo>>>,
}

/// What is told to a set before an arrival.
#[derive(Clone, Default, Debug)]
pub struct EarlyTells {
    /// The set.
    pub told: NodeSet,
    /// Of so many units.
    pub units: usize,
    /// The message's body.
    pub body: Vec<u8>,
}

/// Makes an ask of a set, to which the asker adds what it wrote itself. Where that is a message to one node without
/// anything added, it goes point to point.
fn compose_set_ask(
    of: &mut KeptUnit,
    (page, pages): (PageNo, u32),
    asked: Vec<AskedWriter>,
    (by, told_bytes_max): (Bystander, usize),
    composed: &mut ComposedAsks,
) {
    let to: NodeSet = asked.iter().map(|writer| writer.node).collect();
    let mut everybody: NodeSet = to.iter().chain(of.sets.members.iter()).collect();
    everybody.remove(by.me);
    let since = of.sets.told_since(&everybody).unwrap_or(0).max(of.dropped);
    let has_news = of.own.after(since).any(|(run, _)| run.stamp <= by.barrier);
    let has_own = has_news && since < by.closed && told_bytes(of, since) <= told_bytes_max;
    if let [one] = asked[..]
        && everybody.len() == 1
        && !has_own
    {
        let wants = Wants::Diffs { since: one.since, need: one.need };
        composed.direct.push((one.node, Ask { page, pages, wants }));
        of.sets.certain.push(one.node);
        return;
    }
    let mut others = everybody.clone();
    to.iter().for_each(|node| _ = others.remove(node));
    let mut writers = asked;
    for (node, need) in of.needed.iter().filter(|(node, need)| *need <= by.barrier && !to.contains(*node)) {
        let on_its_way = version_of(&of.sets.heard, *node).max(version_of(&of.sets.expected, *node)) >= *need;
        if on_its_way {
            writers.push(AskedWriter { node: *node, since: 0, need: *need });
        }
    }
    let mut body = Vec::new();
    put_set_ask(&mut body, (&to, &others), page, &writers, has_own);
    if has_own {
        put_told_diffs(&mut body, (since, by.closed), of.own.after(since));
        of.sets.mark_told(everybody.iter(), since, by.closed);
    }
    // Without anything from the asker there is nothing in it for those that are not asked.
    let told = if has_own { others } else { NodeSet::new() };
    composed.to_set = Some((Audience { asked: to, told }, body));
}
