//! Units that nobody has touched, and who becomes their home.
//!
//! A unit placed by first touch has a home by the layout of its region, which is home of nothing yet: it holds the unit
//! in state `Unclaimed`. Whoever touches the unit *claims* it there. Where nodes share a host, the one that claims
//! writes its number into the home's table, if nobody else's is in it, and asks nobody
//! ([`PageMemory::claim`](crate::coherence::pages::PageMemory::claim)); else the home does so for whoever asks first.
//! What the table says stands: the home looks there before it takes an untouched unit for its own.
//!
//! All other nodes know the layout alone, of which the flag `HOME_UNKNOWN` is a sign. They ask the home of the layout,
//! or look into its table, and hear who it is. Whoever has heard of a home from anybody claims no more: the unit may
//! have migrated meanwhile, and its new home's table says nothing of it.
//!
//! With [`FirstTouch::Late`] units belong to the home of the layout as long as faults claim nothing, and those behind a
//! touched one with it.

use super::{FETCH_CANCELLED, FirstTouch, HAS_COPIES, HOME_UNKNOWN, MAPPED, PageTable, PrefetchPlan, State};
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Whether a fault on the invalid unit claims it.
    pub(super) fn claims(&self, unit: usize, plan: PrefetchPlan) -> bool {
        let may = match self.layout.first_touch {
            FirstTouch::Never => false,
            FirstTouch::Late => plan.claims,
            FirstTouch::Always => true,
        };
        may && self.is_home_unknown(unit)
    }

    fn is_home_unknown(&self, unit: usize) -> bool {
        self.units[unit].has(HOME_UNKNOWN) || !Rule::OnlyFreshPagesAreClaimed.on()
    }

    /// `node` touches the unit. If it was untouched, as far as is known here, it belongs to `node` now, or to who has
    /// claimed it before.
    pub(super) fn resolve_first_touch(&mut self, cx: &mut Context<'_>, unit: usize, node: NodeId) {
        if self.units[unit].state != State::Unclaimed {
            return;
        }
        let first = self.pages(unit..unit + 1).start;
        let home = if Rule::ClaimsAreHeeded.on() { cx.memory.claim(cx.me, first, node) } else { None };
        let this = &mut self.units[unit];
        this.home = home.unwrap_or(node);
        this.state = if this.home == cx.me { State::Home } else { State::Invalid };
        this.set(HAS_COPIES, this.home == cx.me && !self.layout.write_detection);
        if this.home != cx.me {
            self.home_lost(cx);
        }
    }

    /// Takes note of what other nodes have claimed in this node's table.
    pub fn collect_remote_claims(&mut self, cx: &mut Context<'_>) {
        if self.freed {
            return;
        }
        for unit in 0..self.units.len() {
            if self.units[unit].state == State::Unclaimed {
                let first = self.pages(unit..unit + 1).start;
                let claimant = cx.memory.claimant(cx.me, first).filter(|node| *node != cx.me);
                claimant.into_iter().for_each(|node| self.resolve_first_touch(cx, unit, node));
            }
        }
    }

    /// This node is the home of one unit more.
    pub(super) fn home_gained(&mut self, cx: &mut Context<'_>) {
        self.count_gained(cx, i64::from(self.layout.unit_pages));
    }

    /// Another node is the home of a unit that was this node's, by the layout or later.
    pub(super) fn home_lost(&mut self, cx: &mut Context<'_>) {
        self.count_gained(cx, -i64::from(self.layout.unit_pages));
    }

    fn count_gained(&mut self, cx: &mut Context<'_>, pages: i64) {
        // Of what was freed nothing counts any more; and who places memory by first touch wants it where it was
        // touched.
        if !self.freed && self.layout.first_touch != FirstTouch::Always {
            self.gained += pages;
            cx.tally.gained += pages;
        }
    }

    /// Maps home units of which nobody holds a copy as a thread goes through them.
    pub(super) fn map_with_stride(&mut self, cx: &mut Context<'_>, unit: usize, plan: PrefetchPlan) {
        let (me, mut at) = (cx.me, Some(unit));
        for _ in 0..plan.units.max(1) {
            let Some(next) = at.filter(|i| *i < self.units.len()) else { return };
            if self.layout.first_touch == FirstTouch::Late {
                self.resolve_first_touch(cx, next, me);
            }
            let this = &mut self.units[next];
            if this.state != State::Home || this.has(HAS_COPIES | MAPPED) {
                return;
            }
            this.set(MAPPED, true);
            Self::map_plain(cx, self.pages(next..next + 1));
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
        if !claims && self.layout.first_touch == FirstTouch::Late && !self.all_claimed {
            // As if it had been this node's from the beginning, so that what follows can be offered.
            let me = cx.me;
            (0..self.units.len()).for_each(|unit| self.resolve_first_touch(cx, unit, me));
            self.all_claimed = true;
        }
        let mut moved: Vec<(Range<PageNo>, NodeId)> = Vec::new();
        for unit in self.units_in(pages) {
            let was_unclaimed = self.units[unit].state == State::Unclaimed;
            let node = if claims { asker } else { cx.me };
            self.resolve_first_touch(cx, unit, node);
            let (at, this) = (self.pages(unit..unit + 1), &self.units[unit]);
            let home = match this.state {
                State::Home => continue,
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
        for unit in self.units_in(pages) {
            let at = self.pages(unit..unit + 1);
            let first = if self.is_home_unknown(unit) { cx.memory.claim(home, at.start, cx.me) } else { None };
            match first {
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
        for unit in self.units_in(&pages).filter(|unit| self.units[*unit].state == State::Fetching).collect::<Vec<_>>()
        {
            self.drop_stale_mapping(cx, unit);
            self.unmap_premapped(cx, unit);
            let at = self.pages(unit..unit + 1);
            let this = &mut self.units[unit];
            this.home = home;
            this.set(FETCH_CANCELLED | HOME_UNKNOWN, false);
            this.state = if home == cx.me { State::Home } else { State::Invalid };
            this.set(HAS_COPIES, home == cx.me && !self.layout.write_detection);
            if home == cx.me && self.layout.write_detection {
                this.set(MAPPED, true);
                push_range(&mut mine, at);
            }
            if home == cx.me {
                self.home_gained(cx);
                cx.tally.claimed += u64::from(self.layout.unit_pages);
            }
        }
        // They were expected to be touched.
        mine.into_iter().for_each(|run| Self::map_plain(cx, run));
        self.wake_waiters(cx, &pages);
    }
}
