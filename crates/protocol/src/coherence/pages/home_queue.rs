//! A home's queue: which diffs of which node have been applied, and what waits until it can be done.
//!
//! Diffs of one node are applied in the order of their serials, or an older one could undo a newer. A fetch waits until
//! the diffs that it names have been applied; so do diffs that name others, which are of pages that came with a token
//! ([`piggyback`](super::piggyback)). What a node in a later epoch sends waits until this node has come as far: homes
//! may have changed.

use super::atomic::Request;
use super::wire::{DiffsHead, Fetch, RequiredDiff};
use super::{PageNo, is_later};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::wire::message::Ticket;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
struct Writer {
    /// The last serial that was applied, and before it all others.
    applied: u64,
    /// Later messages, until their turn comes.
    held: BTreeMap<u64, (DiffsHead, Vec<u8>)>,
}

/// What lies at a home.
#[derive(Clone, Debug, Default)]
pub struct HomeQueue {
    epoch: u32,
    writers: BTreeMap<NodeId, Writer>,
    fetches: Vec<(Ticket, Fetch)>,
    atomics: Vec<(Ticket, Request)>,
    /// Requests for bases ([`kept_diffs`](super::kept_diffs)), with the epochs of those who ask.
    bases: Vec<(Ticket, u32, Vec<PageNo>)>,
}

impl HomeQueue {
    /// An empty queue in epoch 0.
    pub fn new() -> HomeQueue {
        HomeQueue::default()
    }

    /// Diffs have come: gives `true` when they are to be applied now; call [`HomeQueue::applied`] afterwards. Otherwise
    /// they are kept.
    pub fn take_diffs(&mut self, from: NodeId, head: DiffsHead, body: &[u8]) -> bool {
        let may_go = self.may_be_applied(&head);
        let writer = self.writers.entry(from).or_default();
        let in_order = head.serial == writer.applied + 1 || !Rule::DiffsInOrder.on();
        if in_order && may_go {
            return true;
        }
        if head.serial > writer.applied {
            writer.held.insert(head.serial, (head, body.to_vec()));
        }
        false
    }

    /// Whether diffs can be applied now, as far as other nodes and the epoch are concerned.
    fn may_be_applied(&self, head: &DiffsHead) -> bool {
        let not_ahead = !is_later(head.epoch, self.epoch) || !Rule::LaterEpochsWait.on();
        not_ahead && (self.meets(&head.needs) || !Rule::DiffsFollowWhatTheyNeed.on())
    }

    /// A message of diffs has been applied.
    pub fn applied(&mut self, from: NodeId, serial: u64) {
        let writer = self.writers.entry(from).or_default();
        writer.applied = writer.applied.max(serial);
    }

    /// The next kept message of diffs whose turn has come.
    pub fn next_diffs(&mut self) -> Option<(NodeId, DiffsHead, Vec<u8>)> {
        let (node, serial) = self.writers.iter().find_map(|(node, writer)| {
            let serial = writer.applied + 1;
            writer.held.get(&serial).is_some_and(|(head, _)| self.may_be_applied(head)).then_some((*node, serial))
        })?;
        let (head, body) = self.writers.get_mut(&node)?.held.remove(&serial)?;
        Some((node, head, body))
    }

    /// The epoch that this node has come to, with homes migrated.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What has been applied: of each writer the last message of diffs.
    pub fn all_applied(&self) -> Vec<RequiredDiff> {
        let any = self.writers.iter().filter(|(_, writer)| writer.applied > 0);
        any.map(|(node, writer)| RequiredDiff { writer: *node, serial: writer.applied }).collect()
    }

    /// Whether all these diffs have been applied.
    pub fn meets(&self, needs: &[RequiredDiff]) -> bool {
        needs.iter().all(|need| self.writers.get(&need.writer).is_some_and(|w| w.applied >= need.serial))
    }

    /// Whether a fetch can be answered now; otherwise it is kept.
    pub fn take_fetch(&mut self, ticket: Ticket, fetch: Fetch) -> Option<Fetch> {
        if self.is_ripe(&fetch) {
            return Some(fetch);
        }
        self.fetches.push((ticket, fetch));
        None
    }

    fn is_ripe(&self, fetch: &Fetch) -> bool {
        self.may_go(fetch.epoch, &fetch.needs)
    }

    fn may_go(&self, epoch: u32, needs: &[RequiredDiff]) -> bool {
        let not_ahead = !is_later(epoch, self.epoch) || !Rule::LaterEpochsWait.on();
        not_ahead && (self.meets(needs) || !Rule::FetchWaitsForDiffs.on())
    }

    /// Whether an atomic operation can be carried out now; otherwise it is kept, as a fetch is.
    pub fn take_atomic(&mut self, ticket: Ticket, request: Request) -> Option<Request> {
        if self.may_go(request.epoch, &request.needs) {
            return Some(request);
        }
        self.atomics.push((ticket, request));
        None
    }

    /// The next kept atomic operation that can be carried out now.
    pub fn next_atomic(&mut self) -> Option<(Ticket, Request)> {
        let ripe = |(_, request): &(Ticket, Request)| self.may_go(request.epoch, &request.needs);
        let ripe = self.atomics.iter().position(ripe)?;
        Some(self.atomics.remove(ripe))
    }

    /// The next kept fetch that can be answered now.
    pub fn next_fetch(&mut self) -> Option<(Ticket, Fetch)> {
        let ripe = (0..self.fetches.len()).find(|i| self.is_ripe(&self.fetches[*i].1))?;
        Some(self.fetches.swap_remove(ripe))
    }

    /// Whether a request for bases, by a node in this epoch, can be answered now; otherwise it is kept.
    pub fn take_bases(&mut self, ticket: Ticket, epoch: u32, pages: Vec<PageNo>) -> Option<Vec<PageNo>> {
        if self.may_go(epoch, &[]) {
            return Some(pages);
        }
        self.bases.push((ticket, epoch, pages));
        None
    }

    /// The next kept request for bases that can be answered now.
    pub fn next_bases(&mut self) -> Option<(Ticket, Vec<PageNo>)> {
        let ripe = (0..self.bases.len()).find(|i| self.may_go(self.bases[*i].1, &[]))?;
        let (ticket, _, pages) = self.bases.swap_remove(ripe);
        Some((ticket, pages))
    }

    /// This node has come to an epoch, with homes migrated; see what was kept.
    pub fn open(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// How many messages are kept, for reports.
    pub fn kept(&self) -> usize {
        self.fetches.len()
            + self.atomics.len()
            + self.bases.len()
            + self.writers.values().map(|w| w.held.len()).sum::<usize>()
    }
}
