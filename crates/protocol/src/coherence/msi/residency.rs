//! How long a page stays with the thread that it came for, while others want it.
//!
//! A page that came is mapped, and its thread tries its access again. Nothing tells the node that the access was made,
//! so the page stays for a short time, or until the thread faults elsewhere. An access may need two pages (it spans
//! both, or an instruction loads from one and stores to the other), and on a slow network the first is gone before the
//! second is there; where all nodes do so at the same pace, none ever has both. So the time doubles with each further
//! fault of one instruction on two units in turn, and is up to twice as long as that, on each node differently: one of
//! them has both pages in the end. It doubles a few times only: a thread that computes after its access, and faults
//! nowhere, keeps its pages from others for as long.

use crate::ids::NodeId;
use crate::rules::Rule;
use crate::time::Span;
use crate::tuning::MsiTuning;

impl MsiTuning {
    /// A granted unit stays at most so long while others want it, if it is the first or the second that its access
    /// faulted on.
    pub fn residency(&self) -> Span {
        Span::from_us(self.residency_us)
    }
}

/// What a thread's last faults tell of the access that it is in.
#[derive(Clone, Copy, Default, Debug)]
pub struct Residency {
    instruction: u64,
    /// The units of its last two faults, which differ.
    units: [Option<u32>; 2],
    /// Faults in a row on the unit before the last.
    turns: u32,
    tuning: MsiTuning,
}

impl Residency {
    /// Of a thread that has not faulted, by these numbers.
    pub fn new(tuning: MsiTuning) -> Residency {
        Residency { tuning, ..Residency::default() }
    }

    /// An access faulted on a unit; `instruction` tells it from others of its thread (0: nothing does).
    pub fn faulted(&mut self, instruction: u64, unit: u32) {
        let [before, last] = self.units;
        if instruction != self.instruction || instruction == 0 {
            *self = Residency { instruction, units: [None, Some(unit)], turns: 0, ..*self };
        } else if last != Some(unit) {
            self.turns = if before == Some(unit) { self.turns + 1 } else { 0 };
            self.units = [last, Some(unit)];
        }
    }

    /// How long the unit of its last fault stays on this node while others want it.
    #[must_use]
    pub fn hold(&self, me: NodeId) -> Span {
        if self.turns == 0 || !Rule::HoldsGrow.on() {
            return self.tuning.residency();
        }
        let grown = self.tuning.residency().0 << self.turns.min(self.tuning.residency_doublings_max);
        // Any number will do that differs between nodes, and on one from turn to turn.
        let differs = (u64::from(me.0) * 64 + u64::from(self.turns)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        Span(grown + grown * differs / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(faults: &[(u64, u32)]) -> Vec<u64> {
        let mut grip = Residency::default();
        let us = |(instruction, unit): &(u64, u32)| {
            grip.faulted(*instruction, *unit);
            grip.hold(NodeId(0)).0 / 1000
        };
        faults.iter().map(us).collect()
    }

    #[test]
    fn it_doubles_with_each_fault_of_one_access_on_two_units_in_turn() {
        let many: Vec<_> = (0..40).map(|at| (7, at % 2)).collect();
        for (at, hold) in holds(&many).into_iter().enumerate() {
            let doublings = MsiTuning::default().residency_doublings_max;
            let least = 60 << at.saturating_sub(1).min(doublings as usize);
            assert!((least..2 * least).contains(&hold), "{hold} us after {at} faults");
        }
        let mut grip = Residency::default();
        (0..4).for_each(|at| grip.faulted(7, at % 2));
        let nodes: std::collections::BTreeSet<_> = (0..64).map(|node| grip.hold(NodeId(node))).collect();
        assert!(nodes.len() > 60, "nodes differ");
    }

    #[test]
    fn it_stays_short_where_accesses_differ_or_one_unit_comes_and_goes() {
        assert_eq!(holds(&[(7, 1), (8, 2), (7, 1), (8, 2)]), [60; 4], "a lock and what it guards");
        assert_eq!(holds(&[(7, 1), (7, 1), (7, 1)]), [60; 3], "a loop that waits for a store");
        assert_eq!(holds(&[(7, 1), (7, 2), (7, 3), (7, 1)]), [60; 4]);
        assert_eq!(holds(&[(0, 1), (0, 2), (0, 1), (0, 2)]), [60; 4]);
        assert_eq!(holds(&[(7, 1), (7, 2), (7, 1), (9, 2)])[3], 60, "the next access begins anew");
    }
}
