//! How many homes may come to this node ([`page_cache`](super::page_cache) says what they take), and what it knows of
//! those that went.
//!
//! Where nodes share a host, others claim pages of this node's share in its table without a word
//! ([`SharedDirectory::claim`]). So before it says that it has no room, it looks there
//! ([`NodePages::collect_remote_claims`]).

use crate::shared::Shared;
use crate::shared::consistency::effects::NodePages;
use crate::shared::fault::PageFault;
use comem_memory::pages::SharedDirectory;
use comem_protocol::coherence::pages::node::NodeEffects;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::coherence::pages::{CHUNK_PAGES, PageNo};
use comem_protocol::ids::NodeId;
use comem_protocol::tuning::HomeTuning;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// The homes that came to this node.
#[derive(Debug, Default)]
pub(in crate::shared) struct HomeQuota {
    /// Pages whose home this node became, without those of its own that have another home now.
    pages: AtomicI64,
    /// So many times no home comes before others' claims are looked at again.
    pause: AtomicU32,
    /// So long was the last pause.
    paused: AtomicU32,
    /// The epoch in which that was done last.
    epoch: AtomicU32,
}

impl HomeQuota {
    /// The pages beyond this node's share.
    pub(in crate::shared) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed).max(0) as u64
    }

    /// A look has found so many pages. If they were many, another one is worth it as soon as they are used up. Else it
    /// is after some refusals, and after twice as many each time: who goes through more memory than its cache holds is
    /// refused at each fault.
    fn found(&self, tuning: &HomeTuning, pages: u64) {
        let least = tuning.claims_worth_a_look;
        let longer = self.paused.load(Ordering::Relaxed).saturating_mul(2).max(least);
        let longer = longer.min(tuning.refusals_between_looks_max);
        let pause = if pages >= u64::from(least) { 0 } else { longer };
        self.paused.store(pause, Ordering::Relaxed);
        self.pause.store(pause, Ordering::Relaxed);
    }

    /// Whether it is time to look at what others have claimed.
    fn is_due(&self, epoch: u32) -> bool {
        let paused = self.pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pause| pause.checked_sub(1));
        self.epoch.swap(epoch, Ordering::Relaxed) != epoch || paused.is_err()
    }
}

impl Shared {
    /// Pages have their home here now, or had it.
    pub(in crate::shared) fn count_gained(&self, gained: i64) {
        if gained != 0 {
            self.home_quota.pages.fetch_add(gained, Ordering::Relaxed);
        }
    }

    /// Whether there is room for homes if others have claimed no more than this node has heard of.
    fn seems_to_have_room_for_homes(&self) -> bool {
        self.home_quota.pages.load(Ordering::Relaxed) < self.cache_pages_max.load(Ordering::Relaxed) as i64
    }

    /// How many of these pages with their home at `home` could come here to stay if there were room.
    pub(in crate::shared) fn would_come(&self, pages: &Range<PageNo>, home: NodeId) -> u64 {
        let migrate = self.table.find(pages.start).is_some_and(|known| known.migrates());
        if migrate && home != self.me { pages.len() as u64 } else { 0 }
    }

    /// The chunks of which other nodes have claimed something at this one.
    fn claimed_chunks(&self, directory: &SharedDirectory) -> Vec<PageNo> {
        let mut claimed = Vec::new();
        for known in self.table.all() {
            let region = &known.region;
            let late = matches!(region.homes, Homes::Automatic | Homes::Claimed) && region.engine.has_several_writers();
            if !late || known.is_freed() {
                continue;
            }
            for first in region.range().step_by(CHUNK_PAGES as usize) {
                // Shares lie in the order of their nodes.
                let chunk = first..known.chunk_end(first);
                let [least, most] = [chunk.start, chunk.end - 1].map(|page| region.home_of(page, self.nodes));
                if least <= self.me && self.me <= most && directory.is_claimed_by_others(chunk, self.me.0) {
                    claimed.push(first);
                }
            }
        }
        claimed
    }
}

impl NodePages<'_> {
    /// Takes what other nodes have claimed of this node's share off what came here, if that may have changed.
    pub(in crate::shared) fn collect_remote_claims(&mut self) {
        let shared = self.local.shared;
        let epoch = shared.epoch.load(Ordering::Relaxed);
        let Some(directory) = shared.directory().filter(|_| shared.home_quota.is_due(epoch)) else { return };
        let before = shared.home_quota.pages();
        for first in shared.claimed_chunks(directory) {
            self.step(first, |chunk, cx| chunk.collect_remote_claims(cx));
        }
        shared.home_quota.found(&shared.tuning.homes, before.saturating_sub(shared.home_quota.pages()));
    }

    /// Whether more pages may have their home here than by the layout of their regions.
    pub(in crate::shared) fn finds_room_for_homes(&mut self) -> bool {
        let shared = self.local.shared;
        shared.seems_to_have_room_for_homes() || {
            self.collect_remote_claims();
            shared.seems_to_have_room_for_homes()
        }
    }
}

impl PageFault<'_> {
    /// Whether memory of the region that nobody has touched becomes this node's where it touches it. Where homes do not
    /// migrate, nobody gets it for having set it up for others.
    pub(in crate::shared) fn may_claim(&self) -> bool {
        let PageFault { thread, shared, known, .. } = *self;
        let may = match known.region.homes {
            Homes::Automatic => thread.home().config.migration && shared.tuning.homes.first_touch,
            Homes::Claimed => shared.claims.load(Ordering::Relaxed),
            _ => false,
        };
        let looks =
            || thread.stepping(|out| thread.home().node_pages(shared, thread.slot(), out).finds_room_for_homes());
        may && (shared.seems_to_have_room_for_homes() || looks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_looked_at_once_an_epoch_and_after_pauses_that_grow_while_nothing_is_found() {
        let gained = HomeQuota::default();
        assert!(gained.is_due(1), "another epoch");
        for pause in [32, 64, 128] {
            gained.found(&HomeTuning::DEFAULT, 0);
            assert_eq!((0..pause).filter(|_| gained.is_due(1)).count(), 0);
            assert!(gained.is_due(1));
        }
        assert!(gained.is_due(2) && gained.is_due(2));
        gained.found(&HomeTuning::DEFAULT, 31);
        assert!(gained.is_due(3) && !gained.is_due(3), "another epoch in a pause");
        gained.found(&HomeTuning::DEFAULT, 32);
        assert!(gained.is_due(3));
        gained.found(&HomeTuning::DEFAULT, 0);
        assert_eq!((0..=32).filter(|_| gained.is_due(3)).count(), 1, "short again");
        (0..40).for_each(|_| gained.found(&HomeTuning::DEFAULT, 0));
        assert_eq!(gained.pause.load(Ordering::Relaxed), HomeTuning::DEFAULT.refusals_between_looks_max);
    }
}
