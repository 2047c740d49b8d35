//! Addresses of freed regions, used again by allocations that find no others.
//!
//! Each node frees such a region for itself, at a moment of its own, and forgets it two barriers of all threads later
//! at the earliest, when it has the answers to all that it has asked about it ([`super::freed_regions`]): then nothing
//! about it is on its way to this node, and its tables hold nothing of it. What all nodes have forgotten is as good as
//! what nobody has had. All come to the end of their common stretch in the same call, since they allocate there in the
//! same order. So they agree in it on the first place that is forgotten everywhere: each says where it has one, the
//! largest answer is where all look on, and when all answers are the same it is found.
//!
//! A node that allocates alone asks all others whether they have forgotten the place, one question and one answer for
//! each. Others hear of a free by a message that wakes nobody, so they count the two barriers from the epoch in which
//! the owner freed the region. Once all have said yes, nothing of the region is on its way to anybody, and a second
//! round makes the place one that nobody has had. After a no the node tries its next place. Where a node had sent
//! diffs of the region of which it had told nobody when it heard of the free, nobody knows when they arrive: that node
//! never says yes.
//!
//! Where diffs are told to sets of nodes, nobody acknowledges them, so they may come at any time. Those of the region
//! that was freed have stamps that a barrier has told. So the region that takes its place ignores what is not later
//! than this node's last barrier.
//!
//! Under `msi` a region is forgotten only when every unit of it is quiet here: no thread fetches it, no copy is on its
//! way home, and its directory is in no transaction. A transaction ends when the home has heard of every message of it.
//! So when all nodes have forgotten the region, no message about its pages is under way (the model checker's tests show
//! that quiet units leave nothing in flight).

use crate::error::Result;
use crate::shared::Shared;
use crate::shared::heap::ThreadHeap;
use crate::shared::heap::alloc::Keeping;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::region::{Homes, Part, Region};
use comem_protocol::ids::NodeId;
use comem_protocol::wire::message::Collective;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A node's answer when it has no place.
const NOWHERE: i64 = i64::MAX;

/// How many places a node asks others for in one allocation.
const PLACES_TRIED: usize = 16;

impl ThreadHeap<'_> {
    /// A place of so many pages that all nodes have forgotten; each makes the call when its common stretch has no room,
    /// and all get the same answer.
    pub(in crate::shared) fn take_again(&self, part: Part, pages: u64, align: u64) -> Result<Option<u64>> {
        let ThreadHeap { thread, shared } = *self;
        if shared.views.is_none() {
            return Ok(None);
        }
        // What was fetched ahead and never looked at would be taken for what lies there next.
        while let Some(page) = shared.table.awaited_of_freed() {
            thread.wait_for_fetch(page, || shared.is_fetching(page))?;
        }
        shared.forget_all_freed();
        let mut within = shared.allocator.lock().stretch_of(part, None);
        loop {
            let mine = shared.table.place_again(&within, pages, align).map_or(NOWHERE, i64::from);
            let answers: Vec<u8> = [mine, -mine].into_iter().flat_map(i64::to_be_bytes).collect();
            let (most, least) = thread.collective(Collective::AGAIN, &answers, |result| {
                let number =
                    |at: usize| result.as_chunks::<8>().0.get(at).map_or(NOWHERE, |word| i64::from_be_bytes(*word));
                (number(0), -number(1))
            })?;
            let Ok(place) = PageNo::try_from(most) else { return Ok(None) };
            if most == least {
                // No node uses them before all have come so far: the call ends with another one of all nodes.
                shared.reuse(part, place..place + pages as PageNo);
                return Ok(Some(place.into()));
            }
            within.start = place;
        }
    }

    /// A place of so many pages, of those that this node has allocated alone, that all nodes have forgotten.
    pub(in crate::shared) fn take_own_again(&self, kept: Keeping, pages: u64, align: u64) -> Result<Option<u64>> {
        let ThreadHeap { shared, .. } = *self;
        if shared.views.is_none() {
            return Ok(None);
        }
        let part = Part::of(kept.0, kept.1);
        shared.forget_all_freed();
        let mut within = shared.allocator.lock().stretch_of(part, Some(shared.me));
        for _ in 0..PLACES_TRIED {
            let Some(first) = shared.table.take_place_again(&within, pages, align) else { break };
            let place = first..first + pages as PageNo;
            if self.all_have_forgotten(kept, &place)? {
                shared.reuse(part, place);
                return Ok(Some(first.into()));
            }
            within.start = place.end;
            shared.table.put_back_place(place);
        }
        Ok(None)
    }

    /// Asks all other nodes whether these pages, which this node allocates from alone, may be used again. If all say
    /// yes they know nothing of them any more.
    fn all_have_forgotten(&self, (engine, unit): Keeping, pages: &Range<PageNo>) -> Result<bool> {
        let ThreadHeap { shared, .. } = *self;
        let place = |taken| Region {
            first: pages.start,
            pages: pages.end - pages.start,
            bytes: 0,
            unit,
            engine,
            homes: Homes::Block,
            owner: Some(shared.me),
            // Of a place that is asked for this says that all have agreed.
            cut_up: taken,
            label: String::new(),
        };
        for taken in [false, true] {
            for node in NodeId::all(shared.nodes).filter(|node| *node != shared.me) {
                if self.ask_of_region(node, &place(taken))? != [1] {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl Shared {
    /// Another node wants to use pages again that it alone allocates from: whether nothing of them is here. Where all
    /// nodes have agreed (`taken`) nothing is known of them from now on.
    pub(in crate::shared) fn gives_up(&self, part: Part, pages: Range<PageNo>, taken: bool) -> bool {
        self.forget_all_freed();
        let unused = self.table.is_unused(&pages);
        if unused && taken {
            self.reuse(part, pages);
        }
        unused
    }

    /// These pages are new again.
    fn reuse(&self, part: Part, pages: Range<PageNo>) {
        // Nodes that had not freed them yet may have put bytes into the memory of those that had.
        if part == Part::Lines {
            self.close_lines(&pages);
        } else if part == Part::OneCopy {
            self.discard_one_copy(&pages);
        } else if let Some(views) = &self.views
            && part == Part::Guarded
        {
            let from = self.guarded_from();
            crate::shared::memory::change(&views.guarded, &(pages.start - from..pages.end - from), |pages| {
                views.guarded.discard(pages)
            });
            self.units.lock().retain(|first| !pages.contains(first));
        } else if let Some(views) = &self.views {
            crate::shared::memory::change(&views.tracked, &pages, |pages| views.tracked.discard(pages));
            // Who has touched them first, as others have said here.
            if let Some(directory) = &views.directory {
                directory.forget_claims(pages.clone());
            }
        }
        self.active.lock().retain(|first| !pages.contains(first));
        // All nodes had heard of the free by that barrier.
        let stamp = self.intervals.lock().barrier_stamp();
        self.table.reuse(&pages, stamp);
    }

    /// Forgets all regions that were freed two barriers ago.
    fn forget_all_freed(&self) {
        for gone in self.table.forget_all_freed(self.epoch.load(Ordering::Acquire)) {
            self.sharing.forget(&gone);
        }
    }
}
