//! Sequences among a thread's page faults, and what is fetched ahead for them.

use comem_protocol::coherence::pages::chunk::Ahead;
use comem_protocol::coherence::pages::wire::FETCH_PAGES_MAX;
use comem_protocol::coherence::pages::{CHUNK_PAGES, PageNo};
use std::ops::Range;

/// One sequence of faults: pages in a row, or with a stride.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    last: PageNo,
    /// From each to the next, in pages; 0 while there was but one fault.
    stride: i64,
    /// Units fetched at the last fault; 0: no stream yet.
    units: usize,
    /// Steps from `last` on that were asked for: the run of the last fault, and the run ahead.
    reach: usize,
    /// When it last went on.
    used: u32,
}

/// What a thread's faults look like: each sequence among them is followed by itself, and fetched ahead in growing runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; Streams::MANY],
    faults: u32,
    /// Strides that were followed lately, in pages: the second fault at such a distance begins a run at once.
    strides: [i64; 4],
}

impl Streams {
    const MANY: usize = 8;
    const GROWTH: [usize; 4] = [1, 8, 30, 60];
    /// Longest stride that is taken for one, in pages.
    const STRIDE_MAX: i64 = CHUNK_PAGES as i64 / 2;

    /// A fault at `page`: what to fetch with it.
    pub(super) fn next(&mut self, page: PageNo, unit_pages: u32) -> Ahead {
        self.faults += 1;
        let unit = i64::from(unit_pages);
        let far = |s: &Stream| i64::from(page) - i64::from(s.last);
        let goes_on = |s: &Stream| {
            let in_a_row = s.units == 1 && far(s) == unit;
            // Within the run: it was cut short, where another home or another part of the page table begins.
            let steps = if s.stride == 0 { 0 } else { far(s) / s.stride };
            let in_run = (1..=s.reach as i64).contains(&steps) && far(s) == s.stride * steps;
            s.units > 0 && (in_a_row || (in_run && (s.units > 1 || s.stride != 0)))
        };
        let begins = |s: &Stream| s.units == 1 && far(s) % unit == 0 && far(s).abs() <= Self::STRIDE_MAX && far(s) != 0;
        let found = self.streams.iter().position(goes_on);
        let at = found.or_else(|| {
            let near = (0..Self::MANY).filter(|i| begins(&self.streams[*i]));
            near.min_by_key(|i| far(&self.streams[*i]).abs())
        });
        let at = at.unwrap_or_else(|| {
            let oldest = (0..Self::MANY).min_by_key(|i| self.streams[*i].used).unwrap_or_default();
            self.streams[oldest] = Stream::default();
            oldest
        });
        let most = (FETCH_PAGES_MAX / unit_pages).max(1) as usize;
        let stream = &mut self.streams[at];
        if found.is_some() {
            if stream.units == 1 && far(stream) == unit {
                stream.stride = unit;
            }
            if !self.strides.contains(&stream.stride) {
                self.strides.rotate_right(1);
                self.strides[0] = stream.stride;
            }
            stream.units = Self::GROWTH.into_iter().find(|n| *n > stream.units).unwrap_or(Self::GROWTH[3]).min(most);
        } else {
            stream.stride = if stream.units == 0 { 0 } else { far(stream) };
            let known = stream.stride != 0 && self.strides.contains(&stream.stride);
            stream.units = if known { Self::GROWTH[1].min(most) } else { 1 };
        }
        (stream.last, stream.used, stream.reach) = (page, self.faults, stream.units);
        // A distance that was seen once is no stride yet; but what lies behind the page may have been in use with it.
        let stride = if stream.units == 1 { 1 } else { (stream.stride / unit) as isize };
        if stride == 0 {
            // It began in a region with smaller units.
            return Ahead::NOTHING;
        }
        Ahead {
            units: stream.units,
            stride,
            known: if stride == 1 { most.min(Self::GROWTH[2]) } else { most },
            claims: false,
        }
    }

    /// The run ahead of the fault at `page` was asked for, as far as `last`: what lies before that may come without another fault.
    pub(super) fn goes_on_to(&mut self, page: PageNo, last: PageNo) {
        let Some(stream) = self.streams.iter_mut().find(|s| s.used == self.faults && s.last == page) else { return };
        let steps = (i64::from(last) - i64::from(page)).checked_div(stream.stride).unwrap_or_default();
        stream.reach = stream.reach.max(usize::try_from(steps + 1).unwrap_or_default());
    }

    /// What follows a run that was just fetched, once runs are so long that it pays to have the next one under way: how far on it
    /// begins, in units, and how long it is.
    pub(super) fn after(ahead: Ahead, unit_pages: u32, fetched: Option<&[Range<PageNo>]>) -> Option<(isize, Ahead)> {
        let most = (FETCH_PAGES_MAX / unit_pages).max(1) as usize;
        let long = ahead.units >= Self::GROWTH[2].min(most) && ahead.units > 1;
        let units = Self::GROWTH.into_iter().find(|n| *n > ahead.units).unwrap_or(Self::GROWTH[3]).min(most);
        // With what lies between them, fewer fit one request.
        let reached =
            fetched.filter(|_| ahead.stride > 1).and_then(|runs| Some(runs.last()?.end - 1 - runs.first()?.start));
        let steps = reached.map(|pages| (pages / unit_pages) as usize / ahead.stride.unsigned_abs() + 1);
        long.then_some((ahead.stride * steps.unwrap_or(ahead.units) as isize, Ahead { units, ..ahead }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(pages: &[PageNo]) -> Vec<(usize, isize)> {
        let mut streams = Streams::default();
        pages.iter().map(|p| streams.next(*p, 1)).map(|a| (a.units, a.stride)).collect()
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
        let mut streams = Streams::default();
        [1000, 1001, 1009].into_iter().for_each(|page| {
            streams.next(page, 1);
        });
        let ahead = streams.next(1039, 1);
        assert_eq!(Streams::after(ahead, 1, None).map(|(far, next)| (far, next.units)), Some((60, 60)));
        streams.goes_on_to(1039, 1158);
        assert_eq!(streams.next(1159, 1).units, 60);
        // A run ahead of another fault changes nothing.
        streams.goes_on_to(1039, 1400);
        assert_eq!(streams.next(1300, 1).units, 1);
    }

    #[test]
    fn a_stride_is_followed() {
        assert_eq!(units(&[1000, 1007, 1014, 1070]), [(1, 1), (1, 1), (8, 7), (30, 7)]);
    }

    #[test]
    fn a_stride_within_a_larger_unit_is_none() {
        let mut streams = Streams::default();
        [1000, 1002].into_iter().for_each(|page| assert_eq!(streams.next(page, 2).stride, 1));
        assert_eq!(streams.next(1004, 8), Ahead::NOTHING);
    }

    #[test]
    fn streams_that_take_turns_are_followed_each_by_itself() {
        assert_eq!(units(&[1000, 9000, 1001, 9001, 1009, 9009]), [(1, 1), (1, 1), (8, 1), (8, 1), (30, 1), (30, 1)]);
    }

    #[test]
    fn scattered_pages_are_fetched_one_by_one() {
        assert!(units(&[5, 900, 77, 4000, 12]).iter().all(|(units, _)| *units == 1));
    }
}
