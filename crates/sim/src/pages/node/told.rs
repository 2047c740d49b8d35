//! Messages to sets of nodes. Who is asked is interrupted. For who is told they lie unread until a thread waits for
//! such messages, or faults, or comes to a barrier.

use super::{Node, Pages};
use crate::carrier::Incoming;
use crate::pages::thread::Phase;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::kept_diffs::Ask;
use comem_protocol::coherence::pages::multicast::serve::{Bystander, repair, send_asks};
use comem_protocol::coherence::pages::multicast::wire::asked_of;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::node::route::{NodeState, Origin};
use comem_protocol::outbox::Outbox;
use comem_protocol::wire::message::{Message, types};
use std::collections::VecDeque;

/// A socket has room for so many: then the oldest are lost.
const ROOM: usize = 64;

/// What lies unread at a node, and what its threads wait for.
#[derive(Debug, Default)]
pub(in crate::pages) struct Told {
    unread: VecDeque<Incoming>,
    /// Timers to be armed: units and rounds.
    pub(in crate::pages) repairs: Vec<(PageNo, u32)>,
    /// How many messages were read.
    pub(in crate::pages) read: u64,
}

impl Pages {
    /// What this node says of itself where sets are asked.
    pub(super) fn bystander(&self) -> Bystander {
        Bystander { me: self.me, nodes: self.layout.nodes, closed: self.closed_stamp, barrier: self.barrier_stamp }
    }

    /// Whether the diffs of the unit with this page are told to sets.
    pub(in crate::pages) fn tells_sets(&self, page: PageNo) -> bool {
        self.layout.engine_of(page).tells_sets()
    }
}

impl Node {
    /// Whether a message tells this node something and asks it nothing.
    pub(in crate::pages) fn is_told_alone(&self, message: &Incoming) -> bool {
        match message.ty {
            types::DIFFS_TOLD => true,
            types::DIFFS_ASKED => asked_of(&message.body).is_ok_and(|asked| !asked.contains(self.pages.me)),
            _ => false,
        }
    }

    /// Such a message has come; gives whether somebody reads it at once: a thread that waits for diffs.
    pub(in crate::pages) fn lies_unread(&mut self, message: Incoming) -> Option<usize> {
        self.told.unread.push_back(message);
        if self.told.unread.len() > ROOM {
            self.told.unread.pop_front();
        }
        self.threads.iter().position(|thread| thread.asleep && thread.phase == Phase::Joined)
    }

    /// Whether there is something to read.
    pub(in crate::pages) fn has_unread(&self) -> bool {
        !self.told.unread.is_empty()
    }

    /// Thread `t`, or nobody in particular, reads what lies unread.
    pub(in crate::pages) fn read_told(&mut self, t: Option<usize>, out: &mut Outbox) {
        let caller = t.map(Slot::thread);
        while let Some(message) = self.told.unread.pop_front() {
            self.told.read += 1;
            self.pages.caller = caller;
            let origin = Origin { from: message.from, ticket: None, caller };
            let read = Message::parse(message.ty, &message.body).map_err(|e| e.to_string());
            let done = read.and_then(|read| self.page(origin, read, out).map_err(|e| e.to_string()));
            self.pages.failure = self.pages.failure.take().or(done.err());
        }
    }

    /// Thread `t` asks for what its fault has come to, and arms its timer.
    pub(in crate::pages) fn ask_sets(&mut self, asks: &[(NodeId, Ask)], out: &mut Outbox) {
        let by = self.pages.bystander();
        let asked = send_asks(&mut self.pages, asks, by, out);
        self.told.repairs.extend(asked.repairs);
    }

    /// The timer of thread `t` has run out; gives how many writers were asked again.
    pub(in crate::pages) fn repair(&mut self, t: usize, round: (PageNo, u32), out: &mut Outbox) -> usize {
        self.pages.caller = Some(Slot::thread(t));
        repair(&mut self.pages, round, out)
    }
}
