//! Managers that move, and units that go home: see [`placement`](crate::coherence::pages::multicast::placement).

use super::PageTable;
use crate::coherence::pages::multicast::history::Choice;
use crate::coherence::pages::multicast::placement::{Placement, Uses, decide};
use crate::coherence::pages::page_table::multicast::MemberChanges;
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

/// What a node has counted of a unit since the window began.
#[derive(Clone, Copy, Default, Debug)]
pub struct Window {
    /// In so many epochs a thread used it.
    pub epochs: u8,
    /// A fault wanted what others had written.
    pub reads: bool,
    /// The diffs that were made here had so many bytes.
    pub diff_bytes: u64,
    /// It is among those of which the node will speak.
    pub is_listed: bool,
}

impl PageTable {
    /// Where a unit's bases are, and how its diffs come to others, as far as is known here.
    pub fn placement(&self, page: PageNo) -> Placement {
        let unit = self.units.index(page);
        let of = self.kept.as_ref().and_then(|kept| kept.units[unit].as_deref());
        Placement { manager: self.units[unit].home, is_homed: of.is_some_and(|of| of.sets.is_homed) }
    }

    /// What was arrived at of this table's units, as runs of pages; units that nobody has used are left out.
    pub fn choices(&self) -> Vec<(Range<PageNo>, Choice)> {
        let mut choices: Vec<(Range<PageNo>, Choice)> = Vec::new();
        let Some(kept) = self.kept.as_ref().filter(|_| self.sets.is_some() && !self.freed) else { return choices };
        for (unit, of) in kept.units.iter().enumerate() {
            let Some(sets) = of.as_deref().map(|of| &of.sets).filter(|sets| !sets.members.is_empty()) else { continue };
            let (pages, placement) = (self.units.pages_of(unit), self.placement(self.units.pages_of(unit).start));
            // As a power of two, so that neighbours are alike; whatever has a copyset was used.
            let epochs = 1 << sets.epochs.max(1).ilog2();
            let choice = Choice { placement, is_early: sets.is_early, members: sets.members.clone(), epochs };
            match choices.last_mut() {
                Some((run, last)) if run.end == pages.start && *last == choice => run.end = pages.end,
                _ => choices.push((pages, choice)),
            }
        }
        choices
    }

    /// Starts with what an earlier run arrived at of these pages, of which nobody has used any. All nodes do the same.
    pub fn start_with(&mut self, pages: &Range<PageNo>, choice: &Choice) {
        let units = self.units.within(pages);
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        for unit in units {
            self.units[unit].home = choice.placement.manager;
            let of = &mut kept.unit(unit).sets;
            of.members = choice.members.clone();
            of.epochs = choice.epochs / 2;
            (of.is_homed, of.is_early) = (choice.placement.is_homed, choice.is_early && choice.members.len() > 1);
            if of.is_homed || of.is_early {
                sets.early.push(unit);
            }
        }
    }

    /// Diffs of so many bytes were made here.
    pub(super) fn count_diff(&mut self, unit: usize, bytes: usize) {
        if let (Some(kept), true) = (&mut self.kept, self.sets.is_some()) {
            let sets = &mut kept.unit(unit).sets;
            sets.wrote = true;
            sets.window.diff_bytes += bytes as u64;
            self.list_for_arrival(unit);
        }
    }

    /// This node arrives at the last barrier of a window: appends how it used the units of which it has copies.
    pub fn say_uses(&mut self, changes: &mut MemberChanges) {
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        let mut used = std::mem::take(&mut sets.used);
        if self.freed {
            return;
        }
        used.sort_unstable();
        for unit in used {
            let of = kept.unit(unit);
            let Window { epochs, reads, diff_bytes, .. } = std::mem::take(&mut of.sets.window);
            if of.has_copy || !Rule::ManagersHaveCopies.on() {
                let uses = Uses::new(epochs, reads, diff_bytes, self.units.layout.unit_pages);
                push_range(changes.uses.entry(uses.number()).or_default(), self.units.pages_of(unit));
            }
        }
    }

    /// A barrier has told how a node used these pages.
    pub fn note_uses(&mut self, pages: &Range<PageNo>, node: NodeId, uses: Uses) {
        let units = self.units.within(pages);
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        for unit in units.filter(|_| !self.freed) {
            let said = &mut kept.unit(unit).sets.said;
            if said.is_empty() {
                sets.said.push(unit);
            }
            said.retain(|(other, _)| *other != node);
            said.push((node, uses));
        }
    }

    /// The barrier has told all of that. `managers_stay` where they may not move at this one.
    pub fn decide_placement(&mut self, cx: &mut Context<'_>, managers_stay: bool) {
        let Some(sets) = &mut self.sets else { return };
        let (tuning, units) = (sets.tuning, std::mem::take(&mut sets.said));
        if self.freed {
            return;
        }
        for unit in units {
            let Some(kept) = &mut self.kept else { return };
            let said = std::mem::take(&mut kept.unit(unit).sets.said);
            let epochs = said.iter().map(|(_, uses)| u32::from(uses.epochs)).max().unwrap_or(0);
            kept.unit(unit).sets.epochs = kept.unit(unit).sets.epochs.saturating_add(epochs);
            let now = Placement { manager: self.units[unit].home, is_homed: kept.unit(unit).sets.is_homed };
            let next = decide(now, &said, &tuning);
            if !managers_stay {
                self.place(cx, unit, next);
            }
        }
    }

    fn place(&mut self, cx: &mut Context<'_>, unit: usize, next: Placement) {
        let (Some(sets), Some(kept)) = (&mut self.sets, &mut self.kept) else { return };
        let (of, pages) = (kept.unit(unit), self.units.layout.unit_pages);
        if next.is_homed && !std::mem::replace(&mut of.sets.is_homed, next.is_homed) {
            cx.tally.pages_homed += u64::from(if next.manager == cx.me { pages } else { 0 });
            sets.early.push(unit);
            sets.early.sort_unstable();
            sets.early.dedup();
        }
        of.sets.is_homed = next.is_homed;
        if self.units[unit].home == next.manager {
            return;
        }
        cx.tally.managers_moved += u64::from(next.manager == cx.me);
        // What a manager has does not count against the bound for copies.
        let held = self.units[unit].state.has_memory().then(|| self.units.held_pages(cx.me, unit));
        self.units[unit].home = next.manager;
        if let Some(held) = held {
            cx.tally.held += self.units.held_pages(cx.me, unit) - held;
        }
    }
}
