//! Idle pages are untracked: they are unmapped, and no close scans them for writes.
//!
//! Each close of an interval looks at the kernel's notes of all copies, and of home pages that others hold, which takes
//! a call for each stretch of them. In programs with many closes most stretches were used once and are scanned ever
//! after. An untracked page stays what it is: its bytes and its twin are here and up to date, a notice ends it, a diff
//! is applied to it. The next access faults and maps it again, without a message.
//!
//! The order matters: the page is taken away first, and then looked at ([`Rule::AsideLooksAfterUnmap`]). What was
//! written up to then is mapped again, noted as written.

use super::{
    ASSUMED_DIRTY, Access, DIRTY, HAS_COPIES, HAS_HOME_TWIN, INVALID_MAPPED, LEFT_WRITABLE, MAPPED, NOTICE_PENDING,
    PageTable, PrefetchPlan, State, UNTRACKED, Unit,
};
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Untracks what of `pages` was not written, where the kernel notes writes.
    pub fn untrack_idle(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>) {
        if !self.tuning.untrack_idle || !cx.memory.notes_writes() || self.freed {
            return;
        }
        let mut runs: Vec<Range<PageNo>> = Vec::new();
        for unit in self.units_in(pages).filter(|unit| Self::may_be_untracked(&self.units[*unit])) {
            push_range(&mut runs, self.pages(unit..unit + 1));
        }
        runs.into_iter().for_each(|run| self.untrack_run(cx, &run));
        self.all_untracked = !self.units.iter().any(Self::is_tracked);
    }

    fn may_be_untracked(unit: &Unit) -> bool {
        let busy = DIRTY | NOTICE_PENDING | LEFT_WRITABLE | INVALID_MAPPED | ASSUMED_DIRTY | UNTRACKED | HAS_HOME_TWIN;
        !unit.has(busy)
            && (unit.state == State::Valid || unit.state == State::Home && unit.has(HAS_COPIES) && unit.has(MAPPED))
    }

    fn untrack_run(&mut self, cx: &mut Context<'_>, run: &Range<PageNo>) {
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        if Rule::UntrackingScansAfterUnmap.on() {
            cx.memory.unmap(run.clone());
            cx.memory.written(run.clone(), &mut written);
        } else {
            cx.memory.written(run.clone(), &mut written);
            cx.memory.unmap(run.clone());
        }
        for unit in self.units_in(run) {
            let at = self.pages(unit..unit + 1);
            if !Self::part(&written, &at).is_empty() {
                cx.memory.map_write(at);
                continue;
            }
            let this = &mut self.units[unit];
            match this.state {
                State::Home => this.set(MAPPED, false),
                _ => this.set(UNTRACKED, true),
            }
            cx.tally.laid_aside += u64::from(at.end - at.start);
            cx.memory.untrack(at);
        }
        self.written = written;
    }

    /// An untracked copy is touched: it is mapped again with those behind it, which are clean, for nobody could write
    /// to them.
    pub(super) fn remap(&mut self, cx: &mut Context<'_>, unit: usize, access: Access, plan: PrefetchPlan) {
        let lies = |u: &Unit| u.state == State::Valid && u.has(UNTRACKED);
        let mut behind = self.behind(unit, plan, self.tuning.remap_units_max - 1, lies);
        let joined = if access == Access::Read && plan.stride == 1 { behind.next() } else { None };
        let first = unit..joined.map_or(unit + 1, |next| next.end);
        match access {
            Access::Read => cx.memory.map_read(self.pages(first.clone())),
            Access::Write => cx.memory.map_write(self.pages(first.clone())),
        }
        self.units[first].iter_mut().for_each(|u| u.set(UNTRACKED, false));
        for run in behind {
            self.units[run.clone()].iter_mut().for_each(|u| u.set(UNTRACKED, false));
            cx.memory.map_read(self.pages(run));
        }
    }
}
