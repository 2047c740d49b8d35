//! Which node manages a unit whose diffs are told to sets, and whether its diffs go to sets or to its manager.
//!
//! Both are decided at barriers, for each unit by itself, from what all nodes said as they arrived. So all decide
//! alike, and no message is sent for it (Brazos, section 3.5; the thresholds are Comem's).
//!
//! | what | when |
//! |---|---|
//! | each node counts the epochs in which it used a unit, and the bytes of its diffs | in each epoch |
//! | each node with a copy says what it counted | at the last arrival of a *window* of some epochs |
//! | [`decide`] | as that barrier opens |
//!
//! - *The manager* is the node that used the unit in most epochs. Whoever says something has a copy, and each copy has
//!   what diffs do not tell any more. So whatever else it lacks, it can ask for.
//! - *Homed* units are those of which few nodes write much that they do not read: their diffs go to the manager alone,
//!   and whoever faults takes the manager's copy. Else a unit is *distributed*: writers tell sets. That costs the bytes
//!   of all diffs, and a homed unit costs its own bytes for each reader.
//!
//! Both are hints. A copy of the manager that lacks something is completed by its writers, as any base is, and who asks
//! writers of a homed unit is answered.

use crate::coherence::pages::{PAGE_BYTES, UNIT_PAGES_MAX};
use crate::ids::NodeId;
use crate::tuning::MulticastTuning;

/// In the lowest bits of the place of a serial, in an entry of no interval: how the writer used these pages.
pub const USES: u64 = 2;
const KIND_BITS: u32 = 2;
const EPOCHS_BITS: u32 = 8;
/// More sixteenths of a unit are not told.
const SIXTEENTHS_MAX: u64 = 1 << 15;

/// How a node used a unit in a window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Uses {
    /// In so many epochs, up to 255.
    pub epochs: u8,
    /// Whether it came to the unit to read what others wrote.
    pub reads: bool,
    /// The bytes of the diffs that it made, in sixteenths of the unit: a power of two, or 0.
    pub sixteenths: u64,
}

impl Uses {
    /// What a node says that made diffs of so many bytes, of a unit of so many pages.
    pub fn new(epochs: u8, reads: bool, diff_bytes: u64, unit_pages: u32) -> Uses {
        let sixteenth = u64::from(unit_pages.clamp(1, UNIT_PAGES_MAX)) * PAGE_BYTES as u64 / 16;
        let parts = diff_bytes.div_ceil(sixteenth).min(SIXTEENTHS_MAX);
        Uses { epochs, reads, sixteenths: if parts == 0 { 0 } else { 1 << parts.ilog2() } }
    }

    /// The number that stands for it in an entry.
    pub fn number(self) -> u64 {
        let parts = u64::from(self.sixteenths.checked_ilog2().map_or(0, |bits| bits + 1));
        (parts << 1 | u64::from(self.reads)) << (KIND_BITS + EPOCHS_BITS) | u64::from(self.epochs) << KIND_BITS | USES
    }

    /// What a number in an entry stands for, if that is uses.
    pub fn of_number(number: u64) -> Option<Uses> {
        let parts = number >> (KIND_BITS + EPOCHS_BITS + 1);
        let is_uses = number & ((1 << KIND_BITS) - 1) == USES && parts <= u64::from(SIXTEENTHS_MAX.ilog2()) + 1;
        is_uses.then(|| Uses {
            epochs: (number >> KIND_BITS) as u8,
            reads: number >> (KIND_BITS + EPOCHS_BITS) & 1 == 1,
            sixteenths: if parts == 0 { 0 } else { 1 << (parts - 1) },
        })
    }
}

/// Where a unit's bases are, and how its diffs come to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Who has its bases.
    pub manager: NodeId,
    /// Whether diffs go to the manager alone.
    pub is_homed: bool,
}

/// What becomes of a unit's placement at the end of a window, in which these nodes said how they used it.
pub fn decide(now: Placement, said: &[(NodeId, Uses)], tuning: &MulticastTuning) -> Placement {
    let epochs_of = |node: NodeId| said.iter().find(|(other, _)| *other == node).map_or(0, |(_, uses)| uses.epochs);
    let mut manager = now.manager;
    if tuning.managers_move {
        for (node, uses) in said {
            let (most, is_less) = (epochs_of(manager), *node < manager && manager != now.manager);
            if uses.epochs > most || uses.epochs == most && is_less {
                manager = *node;
            }
        }
    }
    let is_here = said.iter().any(|(node, _)| *node == manager);
    Placement { manager, is_homed: tuning.homed && is_here && pays_as_homed(said, tuning) }
}

/// Whether a unit costs fewer bytes if its diffs go to its manager.
fn pays_as_homed(said: &[(NodeId, Uses)], tuning: &MulticastTuning) -> bool {
    let all = said.iter().map(|(_, uses)| *uses);
    let (writers, others): (Vec<Uses>, Vec<Uses>) = all.partition(|uses| uses.sixteenths > 0);
    let few = (2..=tuning.homed_writers_max).contains(&writers.len());
    let readers = others.iter().filter(|uses| uses.reads).count() as u64;
    let epochs = writers.iter().map(|uses| u64::from(uses.epochs)).max().unwrap_or(0);
    let sixteenths: u64 = writers.iter().map(|uses| uses.sixteenths).sum();
    let large = sixteenths * 100 > 16 * readers * epochs * tuning.homed_percent;
    few && readers > 0 && large && writers.iter().all(|uses| !uses.reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: MulticastTuning = MulticastTuning::DEFAULT;

    fn used(node: u16, epochs: u8) -> (NodeId, Uses) {
        (NodeId(node), Uses { epochs, reads: true, sixteenths: 0 })
    }

    fn wrote(node: u16, epochs: u8, sixteenths: u64) -> (NodeId, Uses) {
        (NodeId(node), Uses { epochs, reads: false, sixteenths })
    }

    fn manager(now: u16, said: &[(NodeId, Uses)]) -> u16 {
        decide(Placement { manager: NodeId(now), is_homed: false }, said, &DEFAULT).manager.0
    }

    fn is_homed(said: &[(NodeId, Uses)]) -> bool {
        decide(Placement { manager: said[0].0, is_homed: false }, said, &DEFAULT).is_homed
    }

    #[test]
    fn uses_survive_as_numbers_and_other_numbers_are_none() {
        for epochs in [0, 1, 7, 255] {
            for reads in [false, true] {
                for bytes in [0, 1, 255, 256, 257, 4096, 8192, 1 << 40] {
                    let uses = Uses::new(epochs, reads, bytes, 1);
                    assert_eq!(Uses::of_number(uses.number()), Some(uses));
                    assert!(uses.number() < 1 << 16, "few bytes");
                }
            }
        }
        assert_eq!(Uses::new(1, false, 8192, 2).sixteenths, 16);
        assert_eq!(Uses::new(1, false, 3 * 256, 1).sixteenths, 2, "powers of two");
        for number in [0, 1, 3, u64::MAX, USES | 17 << 11 << 1, USES | 1 << 60] {
            assert_eq!(Uses::of_number(number), None, "{number:#x}");
        }
    }

    #[test]
    fn the_node_that_uses_it_in_most_epochs_manages_it() {
        assert_eq!(manager(0, &[]), 0);
        assert_eq!(manager(0, &[used(3, 1)]), 3, "the manager itself did not");
        assert_eq!(manager(0, &[used(0, 5), used(3, 5)]), 0, "as often is not more often");
        assert_eq!(manager(0, &[used(0, 5), used(3, 6), used(4, 6)]), 3, "of two the first");
        for said in [[used(5, 6), used(4, 6), used(1, 2)], [used(1, 2), used(4, 6), used(5, 6)]] {
            assert_eq!(manager(1, &said), 4, "whatever the order in which they spoke");
        }
        let stay = MulticastTuning { managers_move: false, ..DEFAULT };
        let now = Placement { manager: NodeId(0), is_homed: false };
        assert_eq!(decide(now, &[used(3, 1)], &stay).manager, NodeId(0));
    }

    #[test]
    fn few_writers_that_write_much_and_do_not_read_make_it_homed() {
        // In each of eight epochs both write all of it, and one node reads.
        assert!(is_homed(&[wrote(0, 8, 128), wrote(1, 8, 128), used(2, 8)]));
        assert!(!is_homed(&[wrote(0, 8, 128), wrote(1, 8, 128), used(2, 8), used(3, 8)]), "two diffs for two readers");
        assert!(!is_homed(&[wrote(0, 8, 64), wrote(1, 8, 64), used(2, 8)]), "small diffs");
        assert!(!is_homed(&[wrote(0, 8, 256), used(2, 8)]), "one writer, who may as well tell the readers");
        assert!(!is_homed(&[wrote(0, 8, 128), wrote(1, 8, 128)]), "nobody reads");
        let reads = |node| (NodeId(node), Uses { epochs: 8, reads: true, sixteenths: 128 });
        assert!(!is_homed(&[reads(0), reads(1), used(2, 8)]), "it goes from writer to writer");
        assert!(!is_homed(&[wrote(0, 8, 128), reads(1), used(2, 8)]));
        let many: Vec<_> = (0..5).map(|node| wrote(node, 8, 128)).chain([used(9, 8)]).collect();
        assert!(!is_homed(&many) && is_homed(&many[1..]), "few are four");
        let off = MulticastTuning { homed: false, ..DEFAULT };
        let now = Placement { manager: NodeId(0), is_homed: true };
        let said = [wrote(0, 8, 128), wrote(1, 8, 128), used(2, 8)];
        assert!(!decide(now, &said, &off).is_homed);
        let elsewhere = Placement { manager: NodeId(7), is_homed: false };
        let stay = MulticastTuning { managers_move: false, ..DEFAULT };
        assert!(!decide(elsewhere, &said, &stay).is_homed, "the manager may have no copy");
    }
}
