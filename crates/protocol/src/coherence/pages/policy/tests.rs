//! What all predictors have in common.

use super::batch_protect::{self, BatchProtect};
use super::extent::{Before, ExtendWrites, MapAhead, Mapped, OfferAhead, Offered};
use super::keepers::{self, Keepers};
use super::lock_working_set::{self, LockWorkingSets};
use super::push_predictor::{self, PushPredictor};
use super::reuse::{self, Reuse};
use super::scan_cost::{Look, ScanCost};
use super::stride_prefetch::{Query, StridePrefetcher};
use super::write_prefetch::{Miss, WritePrefetch};
use super::*;
use crate::ids::{LockId, NodeId};
use crate::tuning::{CacheTuning, HomeTuning, PageTuning, PrefetchTuning, WorkingSetTuning};

/// Every switch that the table of predictors names is one of the numbers.
#[test]
fn the_switches_in_the_table_are_numbers() {
    let named = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! | [`"));
    let names = named.filter_map(|line| line.rsplit('`').nth(1));
    let switches: Vec<&str> = names.filter(|name| name.contains('.')).collect();
    assert_eq!(switches.len(), 13, "{switches:?}");
    for name in switches {
        let number = crate::tuning::Tuning::number(name);
        assert!(number.is_some_and(|number| number.is_switch), "{name}");
    }
}

#[test]
fn switched_off_they_learn_nothing_and_say_nothing() {
    let on = PageTuning::DEFAULT;
    let off = PageTuning { reuse: false, write_prefetch: false, push: false, batch_protect: false, ..on };

    let mut reuse = Reuse::default();
    (0..9).for_each(|_| reuse.observe(&off, reuse::Event::Missed(0)));
    assert!(!reuse.predict(&on, ()) && !reuse.predict(&off, ()));

    let miss = Miss { epoch: 1, barriers_alone: true, again: true, by_itself: true };
    assert!([on, off].map(|numbers| WritePrefetch::default().predict(&numbers, miss)) == [true, false]);

    let mut batch = BatchProtect::default();
    (0..9).for_each(|_| batch.observe(&off, batch_protect::Event::Protects(1)));
    assert_eq!(batch.predict(&on, ()), 0);

    let mut push = PushPredictor::default();
    let asked = push_predictor::Event::Asked { unit: 0, node: NodeId(1), epoch: 1, home_wrote: true, new: false };
    push.observe(&off, asked);
    assert!(push.units().is_empty());

    let off = PageTuning { extend_writes: false, map_ahead: false, offer_ahead: false, ..on };
    assert_eq!(ExtendWrites.predict(&off, Before { in_use: &|_| true }), 1);
    assert_eq!(MapAhead.predict(&off, Mapped { unit_pages: 1, before: &|most| most }), 1);
    assert_eq!(OfferAhead.predict(&off, Offered { asked: 3, before: 5 }), 0);

    let homes = HomeTuning { keeper: false, ..HomeTuning::DEFAULT };
    let (mut keepers, writers) = (Keepers::default(), [NodeId(1), NodeId(2)]);
    keepers.observe(&homes, keepers::Event::Contested { page: 0, writers: &writers, epoch: 1 });
    let moved = |writer| keepers::Move { page: 0, writer, epoch: 1 };
    assert!(writers.into_iter().all(|writer| keepers.predict(&HomeTuning::DEFAULT, moved(writer))));

    let mut sets = LockWorkingSets::new(WorkingSetTuning { follow: false, ..WorkingSetTuning::DEFAULT });
    let written = lock_working_set::Event::Written { lock: LockId(1), pages: 0..9 };
    (0..9).for_each(|_| sets.observe(&(), written.clone()));
    assert_eq!(sets.guard_of(0), None);

    let mut strides = StridePrefetcher::new(PrefetchTuning { stride: false, ..PrefetchTuning::DEFAULT });
    assert!((0..9).all(|page| strides.predict(&(), Query::Fault { page, unit_pages: 1 }).units == 1));

    let mut costs = ScanCost::new(CacheTuning { scan_cost: false, ..CacheTuning::DEFAULT });
    let mut untracked = Vec::new();
    for close in 0..1000 {
        costs.predict(&(), Look { pages: &(0..1), found: &[], close, untracked: &mut untracked });
    }
    assert!(untracked.is_empty());
}
