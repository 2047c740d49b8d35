//! What changed in copies, on its way to their homes: stored into a home's memory unit by unit where that can be written (a put, decision 0018), else
//! gathered, so that diffs for one home travel together.
//!
//! All that one close puts into a home's memory has one serial. The table of the home says that it is in when all of it is, before anybody is told.

use super::Shared;
use crate::node::Node;
use comem_memory::pages::Offers;
use comem_protocol::coherence::pages::chunk::Flush;
use comem_protocol::coherence::pages::ledger::Ledger;
use comem_protocol::coherence::pages::wire::{DIFFS_BYTES, DIFFS_HEAD_BYTES, DiffsHead, put_part};
use comem_protocol::coherence::pages::{ByteMarks, PageNo};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::{Origin, Outbox};
use comem_protocol::rules::Rule;
use comem_protocol::wire::message::types;
use std::collections::BTreeMap;

/// A home as this close finds it.
struct Home<'a> {
    node: NodeId,
    /// Its table, if its memory may be written in this close.
    offers: Option<&'a Offers>,
    /// The serial of what was put there, if anything was.
    serial: Option<u64>,
}

/// What changed in copies, on its way to their homes. The ledger stays locked meanwhile, so that no thread of this node is between a diff and its serial.
pub(super) struct Gather<'a> {
    node: &'a Node,
    shared: &'a Shared,
    pub(super) ledger: &'a mut Ledger,
    homes: Vec<Home<'a>>,
    /// Messages with their serials, each behind room for its head.
    by_home: BTreeMap<NodeId, Vec<(u64, Vec<u8>)>>,
}

impl<'a> Gather<'a> {
    pub(super) fn new(node: &'a Node, shared: &'a Shared, ledger: &'a mut Ledger) -> Gather<'a> {
        Gather { node, shared, ledger, homes: Vec::new(), by_home: BTreeMap::new() }
    }

    /// Where a home stands in the list.
    fn home(&mut self, node: NodeId) -> usize {
        if let Some(at) = self.homes.iter().position(|home| home.node == node) {
            return at;
        }
        let offers = self.node.peer_memory(self.shared, node).filter(|peer| peer.memory.is_writable());
        let offers = offers.and_then(|peer| peer.offers.as_ref()).filter(|offers| {
            let in_order = offers.diffs_in(self.shared.me.0) == self.ledger.last_serial(node);
            (in_order || !Rule::PutsKeepTheirOrder.on()) && self.ledger.may_close()
        });
        self.homes.push(Home { node, offers, serial: None });
        self.homes.len() - 1
    }

    /// The serial of what leaves for a home next.
    fn next_serial(&mut self, home: NodeId) -> u64 {
        let serial = self.ledger.next_serial(home);
        // Who fetches these pages again waits at the home for this node's own diffs. The chunk is locked now, so that another
        // thread that finds the copy ended finds the need too.
        self.shared.needs.lock().raise(home, self.shared.me, serial);
        serial
    }

    /// Says what was put, and puts or sends the rest, in the order that the homes will apply it.
    pub(super) fn send(mut self, slot: Slot, side: &mut Outbox) {
        for home in &self.homes {
            if let (Some(offers), Some(serial)) = (home.offers, home.serial) {
                offers.diffs_are_in(self.shared.me.0, serial);
            }
        }
        for (home, messages) in std::mem::take(&mut self.by_home) {
            self.send_to(home, messages, slot, side);
        }
    }

    /// Sends what has grown so long that more goes into another message: the memory is used again for the next, and homes have something to do meanwhile.
    /// Not where something was put before it: that is not said to be in yet, and nobody at the home would look for what waits for it.
    pub(super) fn send_full(&mut self, slot: Slot) {
        if self.by_home.values().all(|messages| messages.len() == 1) {
            return;
        }
        let mut out = Outbox::new();
        let mut by_home = std::mem::take(&mut self.by_home);
        for (home, messages) in &mut by_home {
            if self.homes.iter().any(|h| h.node == *home && h.serial.is_some()) {
                continue;
            }
            let full = messages.drain(..messages.len() - 1).collect();
            self.send_to(*home, full, slot, &mut out);
        }
        self.by_home = by_home;
        self.node.flush(slot, &mut out);
    }

    fn send_to(&mut self, home: NodeId, messages: Vec<(u64, Vec<u8>)>, slot: Slot, side: &mut Outbox) {
        let needs = self.shared.needs.lock().before_diffs(home, self.shared.me);
        for (serial, mut message) in messages {
            if self.node.put(self.shared, self.ledger, (home, serial), &message[DIFFS_HEAD_BYTES..], slot) {
                continue;
            }
            let start =
                DiffsHead { epoch: self.ledger.epoch(), serial, needs: needs.clone() }.emit_before(&mut message);
            // Receipts go to the service thread, which also sends what the window holds back while this thread computes.
            side.post_buffer(home, Origin::Service, types::DIFFS, message, start);
        }
    }
}

impl Flush for Gather<'_> {
    fn diff(&mut self, home: NodeId, page: PageNo, diff: &[u8]) {
        self.shared.stash.lock().void(&(page..page + 1));
        // What is put behind it in this close would be said to be in before it: so nothing is.
        let at = self.home(home);
        if self.homes[at].serial.is_none() {
            self.homes[at].offers = None;
        }
        let last = self.by_home.get(&home).and_then(|messages| messages.last());
        if last.is_none_or(|(_, m)| m.len() + diff.len() > DIFFS_BYTES) {
            let serial = self.next_serial(home);
            let mut message = self.node.wire.sender(Slot::SERVICE).lock().spare(DIFFS_HEAD_BYTES + 8 + diff.len());
            message.resize(DIFFS_HEAD_BYTES, 0);
            self.by_home.entry(home).or_default().push((serial, message));
        }
        if let Some((_, last)) = self.by_home.get_mut(&home).and_then(|messages| messages.last_mut()) {
            put_part(last, page, diff);
        }
    }

    fn puts(&mut self, home: NodeId) -> bool {
        let at = self.home(home);
        self.homes[at].offers.is_some()
    }

    fn was_put(&mut self, home: NodeId, page: PageNo, marks: &ByteMarks) {
        let at = self.home(home);
        if self.homes[at].serial.is_none() {
            self.homes[at].serial = Some(self.next_serial(home));
        }
        if let Some(offers) = self.homes[at].offers {
            offers.note_writer(self.shared.me.0, self.ledger.epoch(), page, marks);
        }
    }
}
