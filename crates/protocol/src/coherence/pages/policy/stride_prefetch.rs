//! Sequences among a thread's page faults, and what is fetched ahead for them.

use super::Predictor;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::page_table::PrefetchPlan;
use crate::coherence::pages::wire::FETCH_PAGES_MAX;
use crate::tuning::PrefetchTuning;
use std::ops::Range;

/// One sequence of faults: pages in a row, or with a stride.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    first: PageNo,
    last: PageNo,
    /// From each to the next, in pages; 0 while there was but one fault.
    stride: i64,
    /// Units fetched at the last fault, if it fetched any; 0: no stream yet.
    units: usize,
    /// At most so many units were fetched at its last fault that was no home page's; 0: there was none.
    fetched: usize,
    /// Steps from `last` on that were asked for: the run of the last fault, and the run ahead.
    reach: usize,
    /// Whether each of its units follows the one before.
    in_a_row: bool,
    /// Whether it went on beyond the usual length.
    beyond: bool,
    /// Up to how many units are to be asked for from `last` on, where it seems to be of the usual length or copies have
    /// to go for them.
    left: Option<usize>,
    /// When it last went on.
    used: u32,
    /// So many steps with this stride have followed each other since that was last counted.
    even: usize,
    /// An access has shown that what was fetched ahead is not what the program goes on with.
    failed: bool,
    /// Behind which synchronisation its last fault was, and the first one behind that.
    since: u32,
    began: PageNo,
    /// At so many more synchronisations nothing is fetched ahead but what it went through since the one before: more
    /// has ended unused.
    wary: u8,
    /// So often that has been so, doubled each time.
    spoiled: u8,
}

impl Stream {
    /// The thread has synchronised, and faults at `page`: how far to fetch, if no further than the sequence went since
    /// the synchronisation before. A page that was asked for then and faults now has ended meanwhile, unused: in a
    /// factorisation everybody reads a row at each step, and those behind it are written before anybody comes to them.
    fn goes_on_later(&mut self, tuning: &PrefetchTuning, page: PageNo) -> Option<usize> {
        if !tuning.wary {
            return None;
        }
        let steps = |from: PageNo| (i64::from(page) - i64::from(from)).checked_div(self.stride).unwrap_or_default();
        let (went, far) = (steps(self.began).max(1) as usize, steps(self.last).max(1) as usize);
        if self.reach > 1 && far < self.reach {
            self.spoiled = (self.spoiled * 2).clamp(1, tuning.wary_max);
            self.wary = self.spoiled;
            return Some(went);
        }
        if self.wary == 0 {
            // What was fetched ahead was of use.
            self.spoiled = 0;
            return None;
        }
        self.wary -= 1;
        (self.wary > 0).then_some(went)
    }

    /// In how many pages it has ended: what its last fault touched, and what was fetched then.
    fn ends(&self) -> (u32, u32) {
        let before = self.last - self.first;
        (before.saturating_add(1), before.saturating_add(self.reach as u32 * self.stride as u32))
    }
}

/// How long sequences of pages in a row are, where they have one length: who reads a matrix in blocks needs nothing
/// behind a block's end.
///
/// A sequence has ended somewhere in what was fetched at its last fault. Where that is differs from one to the next,
/// and each is fetched no further than to the middle of what all leave open.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    /// The least and the most number of pages.
    ends: (u32, u32),
    /// How many sequences agreed.
    agreed: u8,
}

impl Usual {
    /// A sequence has ended in one of so many pages.
    fn record(&mut self, (least, most): (u32, u32)) {
        let both = (self.ends.0.max(least), self.ends.1.min(most));
        let agrees = self.agreed > 0 && both.0 <= both.1;
        self.agreed = if agrees { self.agreed.saturating_add(1) } else { 1 };
        self.ends = if agrees { both } else { (least, most) };
    }

    /// How many pages a sequence needs that faults behind so many, and was `beyond` the end already; `None` where
    /// nobody knows. An end that is known to some pages is known, and who goes on beyond it by less moves it.
    fn left(&mut self, tuning: &PrefetchTuning, behind: u32, beyond: &mut bool) -> Option<u32> {
        let tolerance = tuning.end_tolerance_pages;
        if self.agreed >= tuning.agreeing_ends && behind >= self.ends.1 {
            let far = std::mem::replace(beyond, true) || behind - self.ends.1 >= tolerance;
            self.agreed = if far { 0 } else { self.agreed };
            self.ends.1 = self.ends.1.saturating_add(tolerance);
        }
        if !tuning.usual_length || self.agreed < tuning.agreeing_ends {
            return None;
        }
        let (least, most) = (self.ends.0.max(behind + 1), self.ends.1);
        let end = if most - least <= tolerance { most } else { least.midpoint(most) };
        Some(end - behind)
    }
}

/// What a thread's faults look like: each sequence among them is followed by itself, and fetched ahead in growing runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct StridePrefetcher {
    streams: [Stream; StridePrefetcher::STREAMS_MAX],
    faults: u32,
    /// Strides that were followed lately, in pages: the second fault at such a distance begins a run at once.
    strides: [i64; 4],
    usual: Usual,
    /// How often sequences with a stride have ended before what was fetched for them, lately.
    doubt: usize,
    /// How often the thread has synchronised with others.
    synchronised: u32,
    tuning: PrefetchTuning,
}

impl StridePrefetcher {
    const STREAMS_MAX: usize = 8;

    /// Of a thread that has not faulted.
    pub fn new(tuning: PrefetchTuning) -> StridePrefetcher {
        StridePrefetcher { tuning, ..StridePrefetcher::default() }
    }

    /// The lengths of a sequence's runs, in units; behind the last all are as long.
    fn growth(&self) -> [usize; 4] {
        let PrefetchTuning { second_run_units, third_run_units, run_units_max, .. } = self.tuning;
        [1, second_run_units, third_run_units, run_units_max]
    }

    /// The run behind one of so many units.
    fn next_run(&self, units: usize) -> usize {
        let growth = self.growth();
        growth.into_iter().find(|n| *n > units).unwrap_or(growth[3])
    }

    /// [`Query::Fault`].
    fn next(&mut self, page: PageNo, unit_pages: u32) -> PrefetchPlan {
        self.faults += 1;
        let most = units_max(unit_pages);
        let unit = i64::from(unit_pages);
        let far = |s: &Stream| i64::from(page) - i64::from(s.last);
        let goes_on = |s: &Stream| {
            let in_a_row = s.units == 1 && far(s) == unit;
            // Within the run: it was cut short, where another home or another part of the page table begins.
            let in_reach = || {
                let ahead = far(s) != 0 && (far(s) < 0) == (s.stride < 0);
                ahead && far(s).unsigned_abs() <= s.reach as u64 * s.stride.unsigned_abs() && far(s) % s.stride == 0
            };
            s.units > 0 && (in_a_row || (s.stride != 0 && in_reach()))
        };
        let longest = i64::from(self.tuning.stride_pages_max);
        let is_whole = |far: i64| unit == 1 || far % unit == 0;
        let begins = |s: &Stream| s.units == 1 && far(s) != 0 && far(s).abs() <= longest && is_whole(far(s));
        let found = self.streams.iter().position(goes_on);
        let at = found.unwrap_or_else(|| {
            let near = (0..Self::STREAMS_MAX).filter(|i| begins(&self.streams[*i]));
            let near = near.min_by_key(|i| far(&self.streams[*i]).abs());
            if let Some(near) = near.filter(|i| self.streams[*i].stride != 0) {
                return near;
            }
            // What it might follow at a distance may as well go on by itself: two arrays that are walked together.
            let begun = near.map(|i| self.streams[i]);
            let at = (0..Self::STREAMS_MAX).min_by_key(|i| self.streams[*i].used).unwrap_or_default();
            self.forget(at);
            self.streams[at] = begun.unwrap_or(Stream { first: page, ..Stream::default() });
            at
        });
        self.record(page, unit, found);
        let (tuning, growth) = (self.tuning, self.next_run(self.streams[at].units));
        let stream = &mut self.streams[at];
        if found.is_some() {
            if stream.units == 1 && far(stream) == unit {
                (stream.stride, stream.first) = (unit, stream.last);
            }
            if !self.strides.contains(&stream.stride) {
                self.strides.rotate_right(1);
                self.strides[0] = stream.stride;
            }
            let later = stream.since != self.synchronised;
            let no_further = if later { stream.goes_on_later(&tuning, page) } else { None };
            stream.units = no_further.unwrap_or(growth).min(most);
        } else {
            if stream.units > 0 {
                (stream.stride, stream.first) = (far(stream), stream.last);
            }
            let known = stream.stride != 0 && self.strides.contains(&stream.stride);
            stream.units = if known { tuning.second_run_units.min(most) } else { 1 };
        }
        stream.in_a_row = found.is_some() && stream.stride == unit;
        // How long a walk through home pages is, says nothing of what is fetched.
        let left = if stream.in_a_row && stream.fetched > 0 {
            self.usual.left(&tuning, page - stream.first, &mut stream.beyond)
        } else {
            None
        };
        stream.left = left.map(|pages| pages.div_ceil(unit_pages) as usize);
        let units = stream.left.map_or(stream.units, |left| left.min(stream.units));
        (stream.last, stream.used, stream.reach) = (page, self.faults, units);
        if stream.since != self.synchronised || stream.units == 1 && found.is_none() {
            (stream.since, stream.began) = (self.synchronised, page);
        }
        // A distance that was seen once is no stride yet; but what lies behind the page may have been in use with it.
        let stride = if stream.units == 1 { 1 } else { (stream.stride / unit) as isize };
        if stride == 0 {
            // It began in a region with smaller units.
            return PrefetchPlan::NOTHING;
        }
        PrefetchPlan {
            units,
            stride,
            known: if stride == 1 { most.min(tuning.third_run_units) } else { most },
            claims: false,
        }
    }

    /// [`Query::Elsewhere`].
    fn fetches(&mut self, page: PageNo, ahead: PrefetchPlan) -> PrefetchPlan {
        let Some(at) = self.of_fault(page) else { return ahead };
        let next = self.next_run(self.streams[at].fetched);
        let stream = &mut self.streams[at];
        if stream.fetched == 0 {
            (stream.first, stream.in_a_row) = (page, false);
        }
        stream.fetched = next;
        if stream.fetched >= ahead.units {
            return ahead;
        }
        stream.reach = stream.fetched;
        PrefetchPlan { units: stream.fetched, stride: if stream.fetched == 1 { 1 } else { ahead.stride }, ..ahead }
    }

    /// What a fault at `page` says of the sequences with a stride: it goes on with this one, or lies where one does not
    /// come by.
    fn record(&mut self, page: PageNo, unit: i64, found: Option<usize>) {
        let far = |s: &Stream| i64::from(page) - i64::from(s.last);
        if let Some(stream) = found.map(|at| &mut self.streams[at]) {
            stream.failed = false;
            stream.even += far(stream).checked_div(stream.stride).unwrap_or_default().unsigned_abs() as usize;
            if stream.stride != unit && stream.even >= self.tuning.even_steps {
                stream.even = 0;
                self.doubt = self.doubt.saturating_sub(1);
            }
            return;
        }
        for stream in self.streams.iter_mut().filter(|s| s.reach > 1 && s.stride.abs() > unit && !s.failed) {
            let within = far(stream).unsigned_abs() <= stream.reach as u64 * stream.stride.unsigned_abs();
            if self.tuning.doubt && within && (far(stream) < 0) == (stream.stride < 0) {
                stream.failed = true;
                self.doubt = (self.doubt + self.tuning.doubt_enough).min(self.tuning.doubt_max);
            }
        }
    }

    /// [`Query::Crowded`].
    fn throttle(&mut self, page: PageNo, ahead: PrefetchPlan, most: usize) -> PrefetchPlan {
        let Some(at) = self.of_fault(page) else { return ahead };
        let stream = &mut self.streams[at];
        let doubtful = ahead.stride != 1 && self.doubt >= self.tuning.doubt_enough;
        let units = if doubtful { 1 } else { ahead.units.min(most.max(1)) };
        (stream.units, stream.reach) = (units, units);
        stream.left = Some(stream.left.map_or(2 * units, |left| left.min(2 * units)));
        PrefetchPlan { units, stride: if units == 1 { 1 } else { ahead.stride }, ..ahead }
    }

    /// The one that the last fault belongs to, if that was at `page`.
    fn of_fault(&self, page: PageNo) -> Option<usize> {
        self.streams.iter().position(|s| s.used == self.faults && s.last == page)
    }

    /// Its place is needed for another one.
    fn forget(&mut self, at: usize) {
        let stream = std::mem::take(&mut self.streams[at]);
        if stream.fetched >= self.tuning.third_run_units && stream.in_a_row {
            self.usual.record(stream.ends());
        }
    }

    /// What follows the run that the fault at `page` fetched, once runs are so long that it pays to have the next one
    /// under way: how far on it begins, in units, and how long it is.
    pub fn after(
        &self,
        page: PageNo,
        ahead: PrefetchPlan,
        unit_pages: u32,
        fetched: Option<&[Range<PageNo>]>,
    ) -> Option<(isize, PrefetchPlan)> {
        let most = units_max(unit_pages);
        let long = ahead.units >= self.tuning.third_run_units.min(most) && ahead.units > 1;
        let stream = self.of_fault(page).map(|at| self.streams[at]);
        let left = stream.and_then(|s| s.left).map_or(most, |left| left.saturating_sub(ahead.units));
        let units = self.next_run(ahead.units).min(most).min(left);
        // With what lies between them, fewer fit one request.
        let reached =
            fetched.filter(|_| ahead.stride > 1).and_then(|runs| Some(runs.last()?.end - 1 - runs.first()?.start));
        let steps = reached.map(|pages| (pages / unit_pages) as usize / ahead.stride.unsigned_abs() + 1);
        let far = ahead.stride * steps.unwrap_or(ahead.units) as isize;
        (long && units > 0).then_some((far, PrefetchPlan { units, ..ahead }))
    }
}

/// The units of one fetch at most.
fn units_max(unit_pages: u32) -> usize {
    (FETCH_PAGES_MAX / unit_pages).max(1) as usize
}

/// What has happened to a thread.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It has made an acquire: copies may have ended.
    Synchronised,
    /// The run ahead of its fault at `page` was asked for, as far as `last`: what lies before that may come without
    /// another fault.
    RanAhead {
        /// Where it faulted.
        page: PageNo,
        /// The last page.
        last: PageNo,
    },
}

/// What to fetch with a page at which a thread faults. The first question is asked of each fault, the others if what
/// they say is known of the page.
#[derive(Clone, Copy, Debug)]
pub enum Query {
    /// It faults.
    Fault {
        /// The page.
        page: PageNo,
        /// Pages of its unit.
        unit_pages: u32,
    },
    /// Its home is another node, and this was said: as much of it as is to be fetched. A sequence that went through
    /// home pages has not been fetched so far, however long it is.
    Elsewhere {
        /// The page.
        page: PageNo,
        /// What was said.
        plan: PrefetchPlan,
    },
    /// Copies have to go for what is fetched ahead, and this was said: so much of it that copies which are in use do
    /// not go for others that never are.
    Crowded {
        /// The page.
        page: PageNo,
        /// What was said.
        plan: PrefetchPlan,
        /// So many units at most, and as many behind them; of a sequence with a stride none where such ended early.
        units_max: usize,
    },
}

impl Predictor for StridePrefetcher {
    type Numbers = ();
    type Event<'a> = Event;
    type Query<'a> = Query;
    type Prediction = PrefetchPlan;

    fn is_on(&self, (): &()) -> bool {
        self.tuning.stride
    }

    fn otherwise(&self, (): &(), query: Query) -> PrefetchPlan {
        match query {
            // What was in use behind the page may come with it all the same.
            Query::Fault { unit_pages, .. } => {
                PrefetchPlan { known: units_max(unit_pages).min(self.tuning.third_run_units), ..PrefetchPlan::NOTHING }
            }
            Query::Elsewhere { plan, .. } | Query::Crowded { plan, .. } => plan,
        }
    }

    fn learn(&mut self, (): &(), event: Event) {
        match event {
            Event::Synchronised => self.synchronised = self.synchronised.wrapping_add(1),
            Event::RanAhead { page, last } => {
                let Some(at) = self.of_fault(page) else { return };
                let stream = &mut self.streams[at];
                let steps = (i64::from(last) - i64::from(page)).checked_div(stream.stride).unwrap_or_default();
                stream.reach = stream.reach.max(usize::try_from(steps + 1).unwrap_or_default());
            }
        }
    }

    fn answer(&mut self, (): &(), query: Query) -> PrefetchPlan {
        match query {
            Query::Fault { page, unit_pages } => self.next(page, unit_pages),
            Query::Elsewhere { page, plan } => self.fetches(page, plan),
            Query::Crowded { page, plan, units_max } => self.throttle(page, plan, units_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Rng;
    use std::collections::BTreeSet;

    /// A fault at a page whose home is elsewhere.
    fn next(streams: &mut StridePrefetcher, page: PageNo) -> PrefetchPlan {
        let plan = streams.predict(&(), Query::Fault { page, unit_pages: 1 });
        let fetched = streams.predict(&(), Query::Elsewhere { page, plan });
        assert!(fetched == plan || streams.of_fault(page).is_some());
        fetched
    }

    fn units(pages: &[PageNo]) -> Vec<(usize, isize)> {
        let mut streams = StridePrefetcher::default();
        pages.iter().map(|p| next(&mut streams, *p)).map(|a| (a.units, a.stride)).collect()
    }

    #[test]
    fn what_is_behind_home_pages_is_fetched_in_growing_runs_from_its_beginning() {
        let mut streams = StridePrefetcher::default();
        // So a home maps its pages.
        [0, 1, 4, 16, 64, 124, 184].into_iter().for_each(|page| assert_eq!(streams.next(page, 1).stride, 1));
        let fetched = [240, 241, 249, 279, 339].map(|page| next(&mut streams, page));
        assert_eq!(fetched.map(|ahead| (ahead.units, ahead.stride)), [(1, 1), (8, 1), (30, 1), (60, 1), (60, 1)]);
        // Home pages again, as where homes are dealt out in turn.
        assert_eq!(streams.next(399, 1).units, 60);
        assert_eq!(next(&mut streams, 459).units, 60);
    }

    #[test]
    fn a_walk_through_home_pages_says_nothing_of_how_long_sequences_are() {
        let mut streams = StridePrefetcher::default();
        for i in 1..40 {
            read(&mut streams, 10_000 * i, 200);
        }
        let (agreed, ends) = (streams.usual.agreed, streams.usual.ends);
        for i in 0..20 {
            let walk = [0, 1, 4, 16, 64, 124, 184].into_iter().chain((244..2000).step_by(60));
            walk.for_each(|page| assert_eq!(streams.next(1_000_000 + 10_000 * i + page, 1).stride, 1));
        }
        assert_eq!((streams.usual.agreed >= agreed, streams.usual.ends), (true, ends));
    }

    #[test]
    fn pages_in_a_row_are_fetched_in_growing_runs() {
        assert_eq!(units(&[1000, 1001, 1009, 1039, 1099]), [(1, 1), (8, 1), (30, 1), (60, 1), (60, 1)]);
    }

    #[test]
    fn a_run_that_was_cut_short_goes_on() {
        assert_eq!(units(&[1000, 1001, 1009, 1039, 1060, 1120])[3..], [(60, 1), (60, 1), (60, 1)]);
    }

    #[test]
    fn a_run_ahead_that_came_without_a_fault_belongs_to_the_stream() {
        let mut streams = StridePrefetcher::default();
        [1000, 1001, 1009].into_iter().for_each(|page| {
            streams.next(page, 1);
        });
        let ahead = streams.next(1039, 1);
        assert_eq!(streams.after(1039, ahead, 1, None).map(|(far, next)| (far, next.units)), Some((60, 60)));
        streams.observe(&(), Event::RanAhead { page: 1039, last: 1158 });
        assert_eq!(streams.next(1159, 1).units, 60);
        // A run ahead of another fault changes nothing.
        streams.observe(&(), Event::RanAhead { page: 1039, last: 1400 });
        assert_eq!(streams.next(1300, 1).units, 1);
    }

    /// At each step of a factorisation one row is read, and those behind it are written before the next step.
    #[test]
    fn what_ends_unused_at_synchronisations_is_hardly_fetched_ahead() {
        for row in [1, 3] {
            let mut streams = StridePrefetcher::default();
            let mut fetched = 0;
            for step in 0..200 {
                let (first, mut here) = (1000 + step * row, 0);
                while here < row {
                    let units = next(&mut streams, first + here).units;
                    (here, fetched) = (here + units as PageNo, fetched + units);
                }
                streams.observe(&(), Event::Synchronised);
            }
            let read = 200 * row as usize;
            assert!(fetched < read * 2, "{fetched} pages for {read}");
        }
    }

    #[test]
    fn who_goes_on_behind_a_synchronisation_with_what_is_still_here_gets_growing_runs() {
        let mut streams = StridePrefetcher::default();
        let (mut page, mut runs) = (1000, Vec::new());
        while page < 2000 {
            let ahead = next(&mut streams, page);
            runs.push(ahead.units);
            // Whoever takes work out of a queue synchronises for each part.
            (0..ahead.units.div_ceil(7)).for_each(|_| streams.observe(&(), Event::Synchronised));
            page += ahead.units as PageNo;
        }
        assert_eq!(runs[..5], [1, 8, 30, 60, 60]);
        // Once too much was fetched, and then not again.
        assert_eq!(next(&mut streams, page - 40).units, 20);
        streams.observe(&(), Event::Synchronised);
        assert_eq!(next(&mut streams, page - 20).units, 30);
    }

    #[test]
    fn a_stride_is_followed() {
        assert_eq!(units(&[1000, 1007, 1014, 1070]), [(1, 1), (1, 1), (8, 7), (30, 7)]);
    }

    /// The rows of a matrix that is stored by columns: a column every 39.06 pages, or 6.49.
    #[test]
    fn where_strides_end_early_nothing_is_fetched_for_them_at_others_cost() {
        for column_bytes in [160_000, 26_592] {
            let mut streams = StridePrefetcher::default();
            let fetched = [false, true].map(|crowded| {
                let mut here = BTreeSet::new();
                for page in (0..700_u64).map(|column| (column * column_bytes / 4096) as PageNo) {
                    if here.contains(&page) {
                        continue;
                    }
                    let ahead = streams.next(page, 1);
                    let ahead = if crowded { streams.throttle(page, ahead, 128) } else { ahead };
                    here.extend((0..ahead.units as PageNo).map(|step| page + step * ahead.stride as PageNo));
                }
                here.len()
            });
            assert!(fetched[0] > 1000 && fetched[1] < 800, "{column_bytes}: {fetched:?} pages");
        }
    }

    #[test]
    fn without_strides_a_fault_fetches_its_page_and_what_was_in_use_behind_it() {
        let mut streams = StridePrefetcher::new(PrefetchTuning { stride: false, ..PrefetchTuning::DEFAULT });
        let nothing_ahead = PrefetchPlan { known: 30, ..PrefetchPlan::NOTHING };
        assert!((0..40).all(|page| next(&mut streams, page) == nothing_ahead));
    }

    #[test]
    fn regular_strides_are_followed_when_copies_have_to_go() {
        let mut streams = StridePrefetcher { doubt: 7, ..StridePrefetcher::default() };
        let ahead = |streams: &mut StridePrefetcher, page| {
            let ahead = streams.next(page, 1);
            streams.throttle(page, ahead, 128).units
        };
        assert!((0..60).all(|step| ahead(&mut streams, 1000 + 64 * step) == 1), "strides are in doubt");
        let (mut page, mut units) = (100_000, 0);
        while page < 200_000 {
            units = ahead(&mut streams, page);
            page += 64 * units as PageNo;
        }
        assert_eq!((units, streams.doubt), (60, 0));
    }

    #[test]
    fn pages_in_a_row_are_fetched_as_far_as_the_cache_allows() {
        let mut streams = StridePrefetcher::default();
        let mut page = 1000;
        let runs = [(); 6].map(|()| {
            let ahead = streams.next(page, 1);
            let ahead = streams.throttle(page, ahead, 10);
            page += ahead.units as PageNo;
            ahead.units
        });
        assert_eq!(runs, [1, 8, 10, 10, 10, 10]);
    }

    #[test]
    fn arrays_that_are_walked_together_are_followed_each_by_itself_however_near_they_lie() {
        for (arrays, pages) in [(2, 100), (2, 256), (2, 300), (3, 80), (3, 256), (4, 60), (4, 200)] {
            let (mut streams, mut here, mut faults) = (StridePrefetcher::default(), BTreeSet::new(), 0);
            for step in 0..pages {
                for page in (0..arrays).map(|array| 1000 + array * pages + step) {
                    if !here.contains(&page) {
                        let ahead = next(&mut streams, page);
                        here.extend((0..ahead.units as isize).map(|i| (page as isize + i * ahead.stride) as PageNo));
                        faults += 1;
                    }
                }
            }
            assert!(faults <= arrays * (6 + pages / 60), "{arrays} arrays of {pages} pages: {faults} faults");
        }
    }

    #[test]
    fn the_run_behind_is_no_longer_than_the_one_for_which_copies_have_to_go() {
        let mut streams = StridePrefetcher::default();
        let mut page = 1000;
        let behind = [(); 6].map(|()| {
            let ahead = streams.next(page, 1);
            let ahead = streams.throttle(page, ahead, 32);
            page += ahead.units as PageNo;
            streams.after(page - ahead.units as PageNo, ahead, 1, None).map(|(_, run)| run.units)
        });
        assert_eq!(behind, [None, None, Some(30), Some(32), Some(32), Some(32)]);
    }

    #[test]
    fn a_stride_within_a_larger_unit_is_none() {
        let mut streams = StridePrefetcher::default();
        [1000, 1002].into_iter().for_each(|page| assert_eq!(streams.next(page, 2).stride, 1));
        assert_eq!(streams.next(1004, 8), PrefetchPlan::NOTHING);
    }

    #[test]
    fn streams_that_take_turns_are_followed_each_by_itself() {
        assert_eq!(units(&[1000, 9000, 1001, 9001, 1009, 9009]), [(1, 1), (1, 1), (8, 1), (8, 1), (30, 1), (30, 1)]);
    }

    #[test]
    fn scattered_pages_are_fetched_one_by_one() {
        assert!(units(&[5, 900, 77, 4000, 12]).iter().all(|(units, _)| *units == 1));
    }

    /// Reads so many pages from `first` on, of which none is here: with how many faults, and how many pages come.
    fn read(streams: &mut StridePrefetcher, first: PageNo, pages: u32) -> (usize, u32) {
        let (mut at, mut faults) = (first, 0);
        while at < first + pages {
            let ahead = next(streams, at);
            let behind = streams.after(at, ahead, 1, None);
            let run = ahead.units as u32 + behind.map_or(0, |(_, ahead)| ahead.units as u32);
            if behind.is_some() {
                streams.observe(&(), Event::RanAhead { page: at, last: at + run - 1 });
            }
            (at, faults) = (at + run, faults + 1);
        }
        (faults, at - first)
    }

    #[test]
    fn blocks_of_one_length_are_soon_fetched_as_far_as_they_go() {
        for pages in [110, 200, 256, 500] {
            let mut streams = StridePrefetcher::default();
            let mut block = |i: u32| read(&mut streams, 10_000 * (i + 1), pages);
            let (faults, fetched) = block(0);
            let end = pages + PrefetchTuning::DEFAULT.end_tolerance_pages;
            assert!(fetched > end, "{fetched} of {pages}");
            let later: Vec<_> = (1..60).map(&mut block).skip(30).collect();
            assert!(later.iter().all(|(_, fetched)| *fetched <= end), "{pages}: {later:?}");
            assert!(later.iter().all(|(now, _)| *now <= faults + 1), "{pages}: {later:?}");
        }
    }

    #[test]
    fn a_longer_sequence_than_usual_is_followed_and_ends_the_habit() {
        let mut streams = StridePrefetcher::default();
        for i in 1..40 {
            read(&mut streams, 10_000 * i, 200);
        }
        let usual = read(&mut StridePrefetcher::default(), 0, 20_000);
        let (faults, _) = read(&mut streams, 1_000_000, 20_000);
        assert!(faults <= usual.0 + 3, "{faults} and not {}", usual.0);
        assert_eq!(streams.usual.agreed, 0);
    }

    #[test]
    fn a_sequence_that_a_step_back_begins_counts_from_there() {
        let mut streams = StridePrefetcher::default();
        let pages = [1000, 990, 991, 992, 1000, 1030].map(|page| streams.next(page, 1).units);
        assert_eq!(pages, [1, 1, 8, 30, 60, 60]);
        assert_eq!(streams.streams.iter().find(|s| s.used == 6).map(|s| s.first), Some(990));
    }

    #[test]
    fn a_sequence_in_a_row_begins_at_its_first_page_in_regions_of_all_units() {
        let mut streams = StridePrefetcher::default();
        // Strides of two pages are known, by pages in a row of a region with such units.
        [4000, 4002, 4004].into_iter().for_each(|page| assert_ne!(streams.next(page, 2), PrefetchPlan::NOTHING));
        [1000, 990, 992].into_iter().for_each(|page| assert_ne!(streams.next(page, 1), PrefetchPlan::NOTHING));
        assert_eq!(streams.next(994, 2).stride, 1);
        let goes_on = streams.of_fault(994).map(|at| streams.streams[at]);
        assert_eq!(goes_on.map(|s| (s.first, s.in_a_row)), Some((990, true)));
    }

    #[test]
    fn sequences_of_all_lengths_are_fetched_as_if_nothing_were_known() {
        let (mut streams, mut faults, mut alone) = (StridePrefetcher::default(), 0, 0);
        for i in 1..200 {
            let pages = 100 + i * 7919 % 900;
            faults += read(&mut streams, 10_000 * i, pages).0;
            alone += read(&mut StridePrefetcher::default(), 10_000 * i, pages).0;
        }
        assert!(faults * 10 <= alone * 11, "{faults} faults and not {alone}");
    }

    #[test]
    fn a_sequence_ends_behind_its_beginning_whatever_was_touched() {
        for seed in 0..1000 {
            let (mut rng, mut streams) = (Rng::new(seed), StridePrefetcher::default());
            for _ in 0..rng.below(200) {
                let unit = 1 << rng.below(3);
                let page = (1000 + rng.below(10) as PageNo) & !(unit - 1);
                let ahead = streams.next(page, unit);
                if let (0, Some((_, run))) = (rng.below(2), streams.after(page, ahead, unit, None)) {
                    streams.observe(&(), Event::RanAhead { page, last: page + run.units as u32 });
                }
                assert!(streams.streams.iter().all(|s| !s.in_a_row || s.first < s.last), "seed {seed}: {streams:?}");
            }
        }
    }
}
