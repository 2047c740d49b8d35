//! How far a step goes beyond the unit that it is about, as what lies beside it says.

use super::Predictor;
use crate::tuning::PageTuning;

/// How many units to fetch for a write that follows no sequence.
///
/// Where a thread writes to more places in turn than its memory of sequences holds (a sort by digits), as many again
/// are fetched as are in use before it.
#[derive(Clone, Copy, Default, Debug)]
pub struct ExtendWrites;

/// What lies before the written unit.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    /// Whether the unit so many places before it is in use.
    pub in_use: &'a dyn Fn(usize) -> bool,
}

impl Predictor for ExtendWrites {
    type Numbers = PageTuning;
    /// It keeps nothing.
    type Event<'a> = ();
    type Query<'a> = Before<'a>;
    /// Units, the written one included.
    type Prediction = usize;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.extend_writes
    }

    fn otherwise(&self, _: &PageTuning, _: Before<'_>) -> usize {
        1
    }

    fn answer(&mut self, numbers: &PageTuning, before: Before<'_>) -> usize {
        1 + (1..=numbers.extend_writes_units_max).take_while(|back| (before.in_use)(*back)).count()
    }
}

/// How many home units that nobody shares a fault maps.
///
/// As many as in proportion to what was touched just before: a scan soon maps long runs, scattered touches cost a unit
/// each. At most as many as a fetch asks for: so, to who looks at faults alone, a sequence goes on behind them.
#[derive(Clone, Copy, Default, Debug)]
pub struct MapAhead;

/// What lies before the touched unit.
#[derive(Clone, Copy)]
pub struct Mapped<'a> {
    /// Pages of a unit.
    pub unit_pages: u32,
    /// How many units in a row before it are mapped, of so many that are looked at.
    pub before: &'a dyn Fn(usize) -> usize,
}

impl Predictor for MapAhead {
    type Numbers = PageTuning;
    /// It keeps nothing.
    type Event<'a> = ();
    type Query<'a> = Mapped<'a>;
    /// Units, the touched one included.
    type Prediction = usize;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.map_ahead
    }

    fn otherwise(&self, _: &PageTuning, _: Mapped<'_>) -> usize {
        1
    }

    fn answer(&mut self, numbers: &PageTuning, mapped: Mapped<'_>) -> usize {
        let most = (numbers.home_map_pages / mapped.unit_pages).max(1) as usize;
        ((mapped.before)(most) * 3).clamp(1, most)
    }
}

/// How many units are offered for one-sided fetches beside those that were asked for.
///
/// In proportion to what was offered here before: whoever asks often is soon spared the trouble. What is offered in
/// vain costs its next writer a note in the kernel.
#[derive(Clone, Copy, Default, Debug)]
pub struct OfferAhead;

/// What is offered now and was before.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Units that were asked for now.
    pub asked: usize,
    /// Units that are offered already.
    pub before: usize,
}

impl Predictor for OfferAhead {
    type Numbers = PageTuning;
    /// It keeps nothing.
    type Event<'a> = ();
    type Query<'a> = Offered;
    /// Units, without those that were asked for.
    type Prediction = usize;

    fn is_on(&self, numbers: &PageTuning) -> bool {
        numbers.offer_ahead
    }

    fn answer(&mut self, numbers: &PageTuning, offered: Offered) -> usize {
        numbers.offer_growth * (offered.asked + offered.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PageTuning = PageTuning::DEFAULT;

    #[test]
    fn a_write_brings_as_many_units_as_are_in_use_before_it() {
        let brings = |used: usize| ExtendWrites.predict(&NUMBERS, Before { in_use: &|back| back <= used });
        assert_eq!([0, 1, 2, 3, 9].map(brings), [1, 2, 3, 4, 4]);
    }

    #[test]
    fn a_scan_maps_ever_longer_runs_of_no_more_pages_than_a_fetch() {
        let maps =
            |unit_pages, used: usize| MapAhead.predict(&NUMBERS, Mapped { unit_pages, before: &|most| used.min(most) });
        assert_eq!([0, 1, 4, 13, 40].map(|used| maps(1, used)), [1, 3, 12, 39, 60]);
        assert_eq!([1, 4, 40].map(|used| maps(8, used)), [3, 7, 7]);
        assert_eq!(maps(256, 3), 1);
    }

    #[test]
    fn the_more_was_asked_for_the_more_is_offered() {
        let offers = |asked, before| OfferAhead.predict(&NUMBERS, Offered { asked, before });
        assert_eq!([offers(1, 0), offers(1, 5), offers(0, 0)], [4, 24, 0]);
    }
}
