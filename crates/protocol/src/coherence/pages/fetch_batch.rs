//! What is fetched ahead, as requests to homes: as many pages in each as one may ask for.

use super::wire::FETCH_RUNS_MAX;
use super::{PageNo, push_range};
use crate::ids::NodeId;
use std::ops::Range;

/// Requests to one home.
#[derive(Debug)]
struct OfHome {
    home: NodeId,
    /// Most pages of a request; one of a single unit may have more.
    most: u32,
    full: Vec<Vec<Range<PageNo>>>,
    /// The last one, and how many pages it has.
    last: Vec<Range<PageNo>>,
    pages: u32,
}

/// Requests for units of pages, in the order in which their homes were met first.
#[derive(Default, Debug)]
pub struct FetchBatch {
    homes: Vec<OfHome>,
}

impl FetchBatch {
    /// A unit to be asked for at its home. Of each home, `most` is asked once for the most pages of a request.
    pub fn add(&mut self, home: NodeId, unit: Range<PageNo>, most: impl FnOnce(NodeId) -> u32) {
        let at = self.homes.iter().position(|of| of.home == home).unwrap_or_else(|| {
            self.homes.push(OfHome { home, most: most(home), full: Vec::new(), last: Vec::new(), pages: 0 });
            self.homes.len() - 1
        });
        let of = &mut self.homes[at];
        let pages = unit.end - unit.start;
        if of.pages > 0 && (of.pages + pages > of.most || of.last.len() >= FETCH_RUNS_MAX) {
            of.full.push(std::mem::take(&mut of.last));
            of.pages = 0;
        }
        of.pages += pages;
        push_range(&mut of.last, unit);
    }

    /// All requests to one home, then those to the next.
    pub fn into_all(self) -> impl Iterator<Item = (NodeId, Vec<Range<PageNo>>)> {
        self.homes.into_iter().flat_map(|of| of.full.into_iter().chain([of.last]).map(move |runs| (of.home, runs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(units: impl IntoIterator<Item = (u16, Range<PageNo>)>, most: u32) -> Vec<(u16, Vec<Range<PageNo>>)> {
        let mut requests = FetchBatch::default();
        units.into_iter().for_each(|(home, unit)| requests.add(NodeId(home), unit, |_| most));
        requests.into_all().map(|(home, runs)| (home.0, runs)).collect()
    }

    #[test]
    fn what_one_request_cannot_ask_for_is_left_for_the_next() {
        let units = [(7, 0..2), (3, 2..4), (7, 4..6), (7, 6..8), (3, 8..10), (7, 10..12)];
        assert_eq!(requests(units, 4), [(7, vec![0..2, 4..6]), (7, vec![6..8, 10..12]), (3, vec![2..4, 8..10])]);
        assert_eq!(requests([], 4), []);
    }

    #[test]
    fn a_unit_is_asked_for_however_large_it_is() {
        let runs: Vec<_> = requests([(1, 0..8), (1, 8..16)], 4).into_iter().flat_map(|(_, runs)| runs).collect();
        assert_eq!(runs, [0..8, 8..16]);
    }

    #[test]
    fn a_request_has_no_more_runs_than_a_message() {
        let scattered = (0..FETCH_RUNS_MAX as PageNo + 1).map(|i| (1, 2 * i..2 * i + 1));
        let lens: Vec<usize> = requests(scattered, u32::MAX).iter().map(|(_, runs)| runs.len()).collect();
        assert_eq!(lens, [FETCH_RUNS_MAX, 1]);
    }
}
