//! Idle pages are untracked: they are unmapped, and no close scans them for writes.
//!
//! Each close of an interval looks at the kernel's notes of all copies, and of home pages that others hold, which takes
//! a call for each stretch of them. In programs with many closes most stretches were used once and are scanned ever
//! after. An untracked page stays what it is: its bytes and its twin are here and up to date, a notice ends it, a diff
//! is applied to it. The next access faults and maps it again, without a message.
//!
//! The order matters: the page is taken away first, and then looked at ([`Rule::AsideLooksAfterUnmap`]). What was
//! written up to then is mapped again, noted as written.

use super::state::{CopyState, UnitState};
use super::units::{Unit, Units};
use super::{Access, PageTable, PrefetchPlan, part};
use crate::coherence::pages::{Context, PageNo, push_range};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    /// Untracks what of `pages` was not written, where the kernel notes writes. In a table that is quiet as a whole
    /// they stay mapped, and stores are forbidden instead.
    pub fn untrack_idle(&mut self, cx: &mut Context<'_>, pages: &Range<PageNo>) {
        if self.freed || self.forbid_quiet_writes(cx) || !self.units.tuning.untrack_idle || !cx.memory.notes_writes() {
            return;
        }
        let mut runs: Vec<Range<PageNo>> = Vec::new();
        for unit in self.units.within(pages).filter(|unit| self.units[*unit].may_be_untracked()) {
            push_range(&mut runs, self.units.pages_of(unit));
        }
        runs.into_iter().for_each(|run| self.untrack_run(cx, &run));
        self.close_state.all_untracked = !self.units.iter().any(|unit| unit.state.is_tracked());
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
        for unit in self.units.within(run) {
            let at = self.units.pages_of(unit);
            if !part(&written, &at).is_empty() {
                cx.memory.map_write(at);
                continue;
            }
            self.units[unit].state.untrack();
            cx.tally.laid_aside += u64::from(at.end - at.start);
            cx.memory.untrack(at);
        }
        self.written = written;
    }
}

impl Unit {
    fn may_be_untracked(&self) -> bool {
        !self.notices.are_flushed() && !self.notices.is_left_writable() && self.state.may_be_untracked()
    }
}

impl Units {
    /// An untracked copy is touched: it is mapped again with those behind it, which are clean, for nobody could write
    /// to them.
    pub(super) fn remap(&mut self, cx: &mut Context<'_>, unit: usize, access: Access, plan: PrefetchPlan) {
        let lies = |u: &Unit| u.state == UnitState::Valid(CopyState::Untracked);
        let mut behind = self.behind(unit, plan, self.tuning.remap_units_max - 1, lies);
        let joined = if access == Access::Read && plan.stride == 1 { behind.next() } else { None };
        let first = unit..joined.map_or(unit + 1, |next| next.end);
        match access {
            Access::Read => cx.memory.map_read(self.pages(first.clone())),
            Access::Write => cx.memory.map_write(self.pages(first.clone())),
        }
        self[first].iter_mut().for_each(|unit| _ = unit.state.touch());
        for run in behind {
            self[run.clone()].iter_mut().for_each(|unit| _ = unit.state.touch());
            cx.memory.map_read(self.pages(run));
        }
    }
}
