//! Addresses of freed regions, used again by what all nodes allocate together when they find no others.
//!
//! Each node frees such a region for itself, at a moment of its own, and forgets it two barriers of all threads later at the earliest, when it has the answers to
//! all that it has asked about it ([`super::graves`]): then nothing about it is on its way to this node, and its tables hold nothing of it. What all nodes have forgotten is as good as what nobody has
//! had. All come to the end of their common stretch in the same call, since they allocate there in the same order. So they agree in it on the first place that is
//! forgotten everywhere: each says where it has one, the largest answer is where all look on, and when all answers are the same it is found.
//!
//! Left out is `msi`, whose directories know pages by their numbers.

use super::Shared;
use crate::error::Result;
use crate::thread::Thread;
use comem_protocol::coherence::pages::{PageEngine, PageNo};
use comem_protocol::wire::message::Collective;
use std::ops::Range;

/// A node's answer when it has no place.
const NOWHERE: i64 = i64::MAX;

/// Whether addresses of such a region, which all nodes have allocated together, may be used again, and used for such a one.
pub(super) fn may_come_again(engine: PageEngine) -> bool {
    engine != PageEngine::Msi
}

impl Thread {
    /// A place of so many pages that all nodes have forgotten; each makes the call when its common stretch has no room, and all get the same answer.
    pub(super) fn take_again(&self, shared: &Shared, pages: u64, align: u64) -> Result<Option<u64>> {
        if shared.views.is_none() {
            return Ok(None);
        }
        // What was fetched ahead and never looked at would be taken for what lies there next.
        while let Some(page) = shared.table.awaited_of_freed() {
            self.wait_for_fetch(page)?;
        }
        shared.forget_all_freed();
        let mut from: PageNo = 0;
        loop {
            let mine = shared.table.place_again(from, pages, align).map_or(NOWHERE, i64::from);
            let answers: Vec<u8> = [mine, -mine].into_iter().flat_map(i64::to_be_bytes).collect();
            let (most, least) = self.collective(Collective::AGAIN, &answers, |result| {
                let number =
                    |at: usize| result.as_chunks::<8>().0.get(at).map_or(NOWHERE, |word| i64::from_be_bytes(*word));
                (number(0), -number(1))
            })?;
            let Ok(place) = PageNo::try_from(most) else { return Ok(None) };
            if most == least {
                self.reuse(shared, place..place + pages as PageNo);
                return Ok(Some(place.into()));
            }
            from = place;
        }
    }

    /// These pages are new again. No node uses them before all have come so far: the call ends with another one of all nodes.
    fn reuse(&self, shared: &Shared, pages: Range<PageNo>) {
        // Nodes that had not freed them yet may have put bytes into the memory of those that had.
        if let Some(views) = &shared.views {
            super::memory::change(&views.tracked, &pages, |pages| views.tracked.discard(pages));
            // Who has touched them first, as others have said here.
            if let Some(offers) = &views.offers {
                offers.forget_claims(pages.clone());
            }
        }
        shared.active.lock().retain(|first| !pages.contains(first));
        shared.table.reuse(&pages);
    }
}

impl Shared {
    /// Forgets all regions that were freed two barriers ago.
    fn forget_all_freed(&self) {
        let ledger = self.ledger.lock();
        for gone in self.table.forget_all_freed(ledger.epoch()) {
            self.sharing.lock().forget(&gone);
        }
    }
}
