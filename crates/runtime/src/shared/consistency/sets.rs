//! Pages whose diffs are asked of sets of nodes, and told to sets (engine `multicast`): the threads' side of their
//! faults. [`multicast`](comem_protocol::coherence::pages::multicast) has the idea.
//!
//! What a node is told lies in a socket in which nobody waits. Any thread of the node may take it out: before its
//! fault, while it waits for diffs, and around barriers. Whoever takes in what another thread waits for wakes that
//! thread, since the page table knows who waits ([`PageTable::wait_for_fetch`]).
//!
//! [`PageTable::wait_for_fetch`]: comem_protocol::coherence::pages::page_table::PageTable::wait_for_fetch

use crate::error::{Result, say};
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::thread::Thread;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::kept_diffs::Ask;
use comem_protocol::coherence::pages::multicast::serve::{Bystander, repair, repair_wait, send_asks};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::time::Span;

/// What is said of a node that sends to each member of a set from now on.
pub(crate) const GAVE_UP: &str = "over half of its last 64 asks of sets of nodes had to be repaired, so it sends to \
                                  each node from now on";

impl Shared {
    /// What this node says of itself where sets are asked. To be called before the step of the page table: what it says
    /// is in the table's stores then.
    pub(super) fn bystander(&self) -> Bystander {
        let (closed, barrier) = (self.kept_diffs.closed(), self.kept_diffs.barrier());
        Bystander { me: self.me, nodes: self.nodes, closed, barrier }
    }
}

impl Thread {
    /// Asks for what a fault on this page lacks, and waits until its unit is not being fetched any more. What does not
    /// come in time is asked for again, of each writer by itself.
    pub(in crate::shared) fn ask_sets(&self, shared: &Shared, page: PageNo, asks: &[(NodeId, Ask)]) -> Result<()> {
        let (node, slot) = (self.home(), self.slot());
        let by = shared.bystander();
        let mut asked = self.stepping(|out| send_asks(&mut node.local_pages(shared, slot), asks, by, out));
        self.counters().page_requests.add(asked.requests as u64);
        let until = node.now() + repair_wait(&shared.tuning.multicast, self.round_trip(asks));
        let mut repaired = 0;
        while self.stepping(|out| node.waits_for_fetch((slot, page), out)) {
            if !asked.repairs.is_empty() && node.now() >= until {
                for round in std::mem::take(&mut asked.repairs) {
                    repaired += self.stepping(|out| repair(&mut node.local_pages(shared, slot), round, out));
                }
            }
            let until = (!asked.repairs.is_empty()).then_some(until);
            self.wait(Waiting::Told(page, until))?;
            node.attend_idle_sockets(slot);
        }
        self.counters().page_requests.add(repaired as u64);
        if asked.to_sets > 0 && node.wire.selective().is_some_and(|selective| selective.note_ask(repaired > 0)) {
            node.says_that_it_gave_up();
        }
        Ok(())
    }

    /// How long a message and its answer take, as far as this thread knows, to the farthest of those that it asks.
    fn round_trip(&self, asks: &[(NodeId, Ask)]) -> Span {
        let sender = self.home().wire.sender(self.slot()).lock();
        let of = |(node, _): &(NodeId, Ask)| sender.rtt(*node)?.smoothed();
        asks.iter().filter_map(of).max().unwrap_or_default()
    }
}

impl Node {
    /// Whether the unit with this page is being fetched. Whoever takes in the last of it wakes the thread in the slot.
    fn waits_for_fetch(&self, (slot, page): (Slot, PageNo), out: &mut Outbox) -> bool {
        self.page_step(slot, page, out, |table, _| table.wait_for_fetch(slot, page)) == Some(true)
    }

    fn says_that_it_gave_up(&self) {
        if self.config.verbose {
            say(format_args!("comem: {}: multicast: fanout: {GAVE_UP}", self.name_of(self.me())));
        }
    }
}
