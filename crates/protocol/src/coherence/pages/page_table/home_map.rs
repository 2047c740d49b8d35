//! A home maps its pages where they are touched, and those about to be.

use super::units::{Unit, Units};
use super::{Access, Fault, FirstTouch, PageTable, PrefetchPlan};
use crate::coherence::pages::policy::Predictor;
use crate::coherence::pages::policy::extent::{MapAhead, Mapped};
use crate::coherence::pages::{Context, PageNo};
use crate::rules::Rule;
use std::ops::Range;

impl PageTable {
    pub(super) fn home_fault(
        &mut self,
        cx: &mut Context<'_>,
        unit: usize,
        access: Access,
        plan: PrefetchPlan,
    ) -> Fault {
        let noted = cx.memory.notes_writes();
        let (pages, state) = (self.units.pages_of(unit), &mut self.units[unit].state);
        let was_mapped = state.is_mapped_home();
        if state.is_shared() {
            state.touch();
            // A mapped page that faults under a kernel that notes writes was reclaimed: it counts as written.
            let spurious = noted && was_mapped && Rule::SpuriousFaultCountsAsWritten.on();
            if access == Access::Write || spurious {
                state.set_dirty(!noted);
                cx.memory.map_write(pages);
            } else {
                cx.memory.map_read(pages);
            }
            self.units.map_shared_behind(cx, unit, plan);
            return Fault::Mapped;
        }
        if was_mapped {
            let together = self.units.mapped_together(cx, unit);
            self.units.map_units(cx, together);
            return Fault::Mapped;
        }
        if plan.stride != 1 {
            self.map_with_stride(cx, unit, plan);
            return Fault::Mapped;
        }
        let units = &self.units;
        let before =
            |most: usize| units[..unit].iter().rev().take(most).take_while(|u| u.state.is_mapped_home()).count();
        let mapped = Mapped { unit_pages: units.layout.unit_pages, before: &before };
        let end = (unit + MapAhead.predict(&units.tuning, mapped)).min(units.len());
        if self.units.layout.first_touch == FirstTouch::Late {
            let me = cx.me;
            (unit..end).for_each(|i| self.resolve_first_touch(cx, i, me));
        }
        let run = unit..(unit..end).take_while(|i| self.units[*i].is_plain()).last().unwrap_or(unit) + 1;
        let together = self.units.mapped_together(cx, unit);
        self.units.map_units(cx, together.start..run.end.max(together.end));
        Fault::Mapped
    }
}

impl Units {
    fn map_units(&mut self, cx: &mut Context<'_>, units: Range<usize>) {
        map_plain(cx, self.pages(units.clone()));
        self[units].iter_mut().for_each(|unit| _ = unit.state.touch());
    }

    /// Others hold copies of a home page that is touched, so its memory is there, and so is that of the pages behind it
    /// that others hold too: to map them costs little beside a fault. They are mapped protected: what is written is
    /// noted.
    fn map_shared_behind(&mut self, cx: &mut Context<'_>, unit: usize, plan: PrefetchPlan) {
        let alike = |u: &Unit| u.state.is_shared() && !u.state.is_mapped_home();
        for run in self.behind(unit, plan, self.tuning.home_map_shared_units, alike) {
            cx.memory.map_read(self.pages(run.clone()));
            self[run].iter_mut().for_each(|unit| _ = unit.state.touch());
        }
    }

    /// This home unit with those around it that are mapped with it, in an aligned stretch of pages.
    fn mapped_together(&self, cx: &Context<'_>, unit: usize) -> Range<usize> {
        let most = (cx.memory.mapped_together() / self.layout.unit_pages).max(1) as usize;
        let start = unit - unit % most;
        let end = (start + most).min(self.len());
        let plain = |i: &usize| self[*i].state.is_private();
        let before = (start..unit).rev().take_while(plain).count();
        unit - before..unit + 1 + (unit + 1..end).take_while(plain).count()
    }

    /// Units that are touched next if those behind `unit` are, as runs: the next ones, at most `most` of them, or those
    /// that a thread meets which goes on with its stride; as far as they are `alike`.
    pub(super) fn behind(
        &self,
        unit: usize,
        plan: PrefetchPlan,
        most: usize,
        alike: fn(&Unit) -> bool,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let (stride, in_a_row) = (plan.stride, plan.stride == 1);
        let most = if in_a_row { most } else { plan.units.saturating_sub(1) };
        let place = move |step: usize| unit.checked_add_signed(stride * step as isize);
        let is_alike = |step: &usize| place(*step).and_then(|at| self.get(at)).is_some_and(alike);
        let count = (1..=most).take_while(is_alike).count();
        let (runs, len) = if in_a_row { (count.min(1), count) } else { (count, 1) };
        (1..=runs).filter_map(place).map(move |at| at..at + len)
    }
}

/// Maps home pages of which nobody holds a copy.
pub(super) fn map_plain(cx: &mut Context<'_>, pages: Range<PageNo>) {
    cx.memory.map_write(pages.clone());
    cx.memory.untrack(pages);
}
