//! Units that nobody has touched, and who becomes their home.
//!
//! A unit placed by first touch has a home by the layout of its region, which is home of nothing yet: it holds the unit
//! in state `Unclaimed`. Whoever touches the unit *claims* it there. Where nodes share a host, the one that claims
//! writes its number into the home's table, if nobody else's is in it, and asks nobody ([`OneSidedMemory::claim`]).
//! Elsewhere the home does so for whoever asks first. What the table says stands: the home looks there before it takes
//! an untouched unit for its own.
//!
//! [`OneSidedMemory::claim`]: crate::coherence::pages::OneSidedMemory::claim
//!
//! All other nodes know the layout alone: the unit is `Unheard` of. They ask the home of the layout, or look into its
//! table, and hear who it is. Whoever has heard of a home from anybody claims no more: the unit may have migrated
//! meanwhile, and its new home's table says nothing of it.
//!
//! With [`FirstTouch::Late`] units belong to the home of the layout as long as faults claim nothing, and those behind a
//! touched one with it.

use super::home_map::map_plain;
use super::state::{Home, UnitState};
use super::units::Units;
use super::{ChunkLayout, FirstTouch, PageTable, PrefetchPlan};
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

/// Pages whose home this node became, without those that have another home now.
#[derive(Clone, Default, Debug)]
pub(super) struct GainedHomes {
    pages: i64,
    /// The region was freed: nothing counts any more.
    is_over: bool,
}

impl GainedHomes {
    /// Of a region that was freed before anything was gained.
    pub(super) fn of_freed() -> GainedHomes {
        GainedHomes { pages: 0, is_over: true }
    }

    /// This node is the home of so many units more than before: by the layout, or later.
    pub(super) fn add(&mut self, cx: &mut Context<'_>, layout: ChunkLayout, units: i64) {
        // Who places memory by first touch wants it where it was touched.
        if !self.is_over && layout.first_touch != FirstTouch::Always {
            let pages = units * i64::from(layout.unit_pages);
            self.pages += pages;
            cx.tally.gained += pages;
        }
    }

    /// The region is freed.
    pub(super) fn end(&mut self, cx: &mut Context<'_>) {
        cx.tally.gained -= self.pages;
        *self = GainedHomes::of_freed();
    }
}

impl PageTable {
    /// `node` touches the unit. If it was untouched, as far as is known here, it belongs to `node` now, or to who has
    /// claimed it before.
    pub(super) fn resolve_first_touch(&mut self, cx: &mut Context<'_>, unit: usize, node: NodeId) {
        if self.units[unit].state != UnitState::Unclaimed {
            return;
        }
        let layout = self.units.layout;
        let first = self.units.pages_of(unit).start;
        let home = if Rule::ClaimsAreHeeded.on() { cx.memory.claim(cx.me, first, node) } else { None };
        let this = &mut self.units[unit];
        this.home = home.unwrap_or(node);
        this.state.settle(this.home == cx.me, layout.write_detection);
        if this.home != cx.me {
            self.gained.add(cx, layout, -1);
        }
    }

    /// Takes note of what other nodes have claimed in this node's table.
    pub fn collect_remote_claims(&mut self, cx: &mut Context<'_>) {
        if self.freed {
            return;
        }
        for unit in 0..self.units.len() {
            if self.units[unit].state == UnitState::Unclaimed {
                let first = self.units.pages_of(unit).start;
                let claimant = cx.memory.claimant(cx.me, first).filter(|node| *node != cx.me);
                claimant.into_iter().for_each(|node| self.resolve_first_touch(cx, unit, node));
            }
        }
    }

    /// Maps home units of which nobody holds a copy as a thread goes through them.
    pub(super) fn map_with_stride(&mut self, cx: &mut Context<'_>, unit: usize, plan: PrefetchPlan) {
        let (me, mut at) = (cx.me, Some(unit));
        for _ in 0..plan.units.max(1) {
            let Some(next) = at.filter(|i| *i < self.units.len()) else { return };
            if self.units.layout.first_touch == FirstTouch::Late {
                self.resolve_first_touch(cx, next, me);
            }
            if !self.units[next].is_plain() {
                return;
            }
            self.units[next].state.touch();
            map_plain(cx, self.units.pages_of(next));
            at = next.checked_add_signed(plan.stride);
        }
    }

    /// Whether these pages can be sent: the list is empty when this node is the home of all, else it names the pages
    /// with other homes. Untouched pages go to an asker that claims them.
    ///
    /// A node that has claimed a page and has not been answered yet knows the home from before. When that is the asker
    /// itself, naming it would look like the grant of a claim, so the asker is told to ask here again.
    pub fn lookup(
        &mut self,
        cx: &mut Context<'_>,
        pages: &Range<PageNo>,
        asker: NodeId,
        claims: bool,
    ) -> Vec<(Range<PageNo>, NodeId)> {
        if !claims && self.units.layout.first_touch == FirstTouch::Late && !self.all_claimed {
            // As if it had been this node's from the beginning, so that what follows can be offered.
            let me = cx.me;
            (0..self.units.len()).for_each(|unit| self.resolve_first_touch(cx, unit, me));
            self.all_claimed = true;
        }
        let mut moved: Vec<(Range<PageNo>, NodeId)> = Vec::new();
        for unit in self.units.within(pages) {
            let was_unclaimed = self.units[unit].state == UnitState::Unclaimed;
            let node = if claims { asker } else { cx.me };
            self.resolve_first_touch(cx, unit, node);
            let (at, this) = (self.units.pages_of(unit), &self.units[unit]);
            let home = match this.state {
                UnitState::Home(_) => continue,
                _ if this.home == asker && !(was_unclaimed && claims) => cx.me,
                _ => this.home,
            };
            match moved.last_mut() {
                Some((run, to)) if *to == home && run.end == at.start => run.end = at.end,
                _ => moved.push((at, home)),
            }
        }
        moved
    }

    /// Claims units that are being fetched and whose home by the layout is `home`; appends to `left` what cannot be
    /// settled without asking it.
    pub fn claim(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>, home: NodeId, left: &mut Vec<Range<PageNo>>) {
        let mut settled: Vec<(Range<PageNo>, NodeId)> = Vec::new();
        for unit in self.units.within(pages) {
            let at = self.units.pages_of(unit);
            let first = if self.units.is_home_unknown(unit) { cx.memory.claim(home, at.start, cx.me) } else { None };
            match first.map(|other| if Rule::FirstClaimsCount.on() { other } else { cx.me }) {
                Some(other) if other != home => match settled.last_mut() {
                    Some((run, to)) if *to == other && run.end == at.start => run.end = at.end,
                    _ => settled.push((at, other)),
                },
                _ => push_range(left, at),
            }
        }
        settled.into_iter().for_each(|(run, node)| self.on_moved(cx, run, node));
    }

    /// The home of these pages, which are being fetched, is another node; when it is this one, they are its own.
    pub fn on_moved(&mut self, cx: &mut Context<'_>, pages: Range<PageNo>, home: NodeId) {
        if self.freed {
            return self.on_freed(cx, &pages);
        }
        let mut mine: Vec<Range<PageNo>> = Vec::new();
        for unit in self.units.within(&pages).filter(|unit| self.units[*unit].is_fetching()).collect::<Vec<_>>() {
            self.units.drop_stale_mapping(cx, unit);
            self.units.unmap_premapped(cx, unit);
            let at = self.units.pages_of(unit);
            let (this, here) = (&mut self.units[unit], home == cx.me);
            this.home = home;
            this.state.end_fetch();
            this.state.hear_of_home();
            if here {
                let layout = self.units.layout;
                self.units.become_home(cx, unit, layout.write_detection);
                self.gained.add(cx, layout, 1);
                cx.tally.claimed += u64::from(layout.unit_pages);
                if layout.write_detection {
                    push_range(&mut mine, at);
                }
            }
        }
        // They were expected to be touched.
        mine.into_iter().for_each(|run| map_plain(cx, run));
        self.waiters.wake(cx, &self.units.within(&pages));
    }
}

impl Units {
    /// This node is the unit's home from now on. What it had of a copy is its memory as the home.
    pub(super) fn become_home(&mut self, cx: &mut Context<'_>, unit: usize, mapped: bool) {
        let (layout, this) = (self.layout, &mut self[unit]);
        if this.state.has_memory() {
            cx.tally.held -= i64::from(layout.unit_pages);
        }
        this.state = UnitState::Home(Home::new(layout.write_detection, mapped));
    }
}
