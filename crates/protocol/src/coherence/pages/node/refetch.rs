//! Copies that an acquire or a barrier has ended and that were in use are fetched again, without faults: a few requests
//! to each home.

use super::NodeEffects;
use super::fault::{Fetching, HomeMemory, Progress};
use super::invalidate::fetch_again;
use crate::coherence::pages::PageNo;
use crate::coherence::pages::serve::PageState;
use crate::coherence::pages::wire::Fetch;
use crate::ids::NodeId;
use crate::rules::Rule;
use std::collections::VecDeque;
use std::ops::Range;

/// What is being fetched again. It must be finished: others may wait for these pages by now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refetch {
    wanted: VecDeque<Fetching>,
    asked: VecDeque<(NodeId, Fetch)>,
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next stage of a fetch from this home ([`Refetch::step`]).
    Fetch(NodeId),
    /// This page is on its way: when it has come there may be more to do.
    Wait(PageNo),
    /// All has come.
    Nothing,
}

impl Refetch {
    /// Begins to fetch again what was in use of these pages; of each home, `most` says how many go into a request.
    pub fn begin(node: &mut impl NodeEffects, ended: &[Range<PageNo>], most: impl Fn(NodeId) -> u32) -> Refetch {
        let requests = fetch_again(node, ended, most).into_all();
        let wanted = requests.filter(|(_, runs)| !runs.is_empty()).map(|(home, runs)| Fetching::again(home, runs));
        Refetch { wanted: wanted.collect(), asked: VecDeque::new() }
    }

    /// What is to be done next, if the caller has nothing better to do than to wait.
    pub fn next(&mut self, node: &mut impl NodeEffects) -> Next {
        loop {
            if let Some(home) = self.next_fetch(node) {
                return Next::Fetch(home);
            }
            let Some((home, fetch)) = self.asked.front() else { return Next::Nothing };
            // Another thread may be taking the answer in, in the order of the pages, one table after another.
            let mut ends = fetch.runs.iter().map(|run| run.end - 1);
            if let Some(page) = ends.find(|page| Rule::RefetchesAreAwaited.on() && node.is_fetching(*page)) {
                return Next::Wait(page);
            }
            node.needs(|needs| needs.confirm(*home, &fetch.needs));
            self.asked.pop_front();
        }
    }

    /// The home of the fetch that goes on, as far as requests may be under way.
    pub fn next_fetch(&self, node: &mut impl NodeEffects) -> Option<NodeId> {
        let next = self.wanted.front()?;
        let with_bytes = self.asked.iter().filter(|(_, fetch)| !fetch.direct).count();
        let may = with_bytes < node.pages().tuning().prefetch.acquire_under_way
            || !next.has_to_ask()
            || node.reads_memory_of(next.home);
        may.then_some(next.home)
    }

    /// The pages of the fetch that goes on.
    pub fn front(&self) -> Option<&Fetching> {
        self.wanted.front()
    }

    /// The next stage of the fetch that goes on, or a part of it. `home` is the home's memory, where this node sees it.
    /// Whether the home was asked for something.
    pub fn step<E: NodeEffects, H: HomeMemory>(&mut self, node: &mut E, home: Option<&mut H>) -> bool {
        let Some(fetching) = self.wanted.front_mut() else { return false };
        let of = fetching.home;
        let progress = fetching.step(node, home);
        if fetching.is_over() {
            self.wanted.pop_front();
        }
        let Progress::Asked(fetch) = progress else { return false };
        self.asked.push_back((of, fetch));
        true
    }

    /// As [`Refetch::step`], until the fetch is over or its home was asked.
    pub fn run<E: NodeEffects, H: HomeMemory>(&mut self, node: &mut E, mut home: Option<H>) -> bool {
        let before = self.wanted.len();
        loop {
            if self.step(node, home.as_mut()) {
                return true;
            }
            if self.wanted.len() < before {
                return false;
            }
        }
    }
}
