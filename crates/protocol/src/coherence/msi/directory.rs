//! The home's side: who holds the unit, the one transaction under way, and the queue behind it.

use super::unit::{Asker, Operation, Unit};
use crate::coherence::node_set::NodeSet;
use crate::coherence::{Context, Misbehaved};
use crate::ids::{NodeId, Slot};
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Message, Ticket, Want};
use std::collections::VecDeque;

/// Who holds the unit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Holders {
    Modified(NodeId),
    /// Copies at these nodes, some perhaps still on their way there; the keeper certainly has one.
    Shared {
        sharers: NodeSet,
        keeper: NodeId,
    },
}

/// Who asked: a thread of the home, or a thread elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Requester {
    Here(Slot),
    There(Ticket),
}

impl Requester {
    fn node(self, me: NodeId) -> NodeId {
        match self {
            Requester::Here(_) => me,
            Requester::There(ticket) => ticket.channel.node,
        }
    }
}

/// How far the transaction has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// A holder was asked to send the unit to the requester.
    Forwarded(NodeId),
    /// Sharers were told to give up their copies; these have not confirmed yet.
    Invalidating { left: NodeSet, data: Option<Vec<u8>>, data_wanted: bool, sum: u64 },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Transaction {
    requester: Requester,
    want: Want,
    stage: Stage,
}

/// What stands in the home's queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Asked {
    /// Somebody wants the unit.
    Get(Requester, Want),
    /// A node gives its copy back, perhaps with the bytes.
    Back(Ticket, Vec<u8>),
}

/// The directory of one unit, at its home.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Directory {
    holders: Holders,
    busy: Option<Transaction>,
    queue: VecDeque<Asked>,
    /// A loop is at the queue: what ends a transaction within it need not start the next.
    pumping: bool,
}

impl Directory {
    /// The directory of a fresh unit: its home holds it in M.
    pub(super) fn new(home: NodeId) -> Directory {
        Directory { holders: Holders::Modified(home), busy: None, queue: VecDeque::new(), pumping: false }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy.is_none() && self.queue.is_empty()
    }

    /// Who holds the unit as the home sees it: the owner, or the sharers.
    pub fn holders(&self) -> Result<NodeId, &NodeSet> {
        match &self.holders {
            Holders::Modified(owner) => Ok(*owner),
            Holders::Shared { sharers, .. } => Err(sharers),
        }
    }
}

impl Unit {
    /// A node elsewhere asks this home for the unit.
    ///
    /// # Errors
    /// When this node is not the unit's home.
    pub fn on_get(&mut self, cx: &mut Context<'_>, ticket: Ticket, want: Want) -> Result<(), Misbehaved> {
        if cx.me != cx.home {
            return Err(Misbehaved("asked a node that is not the unit's home"));
        }
        self.enqueue(cx, Asked::Get(Requester::There(ticket), want));
        Ok(())
    }

    /// A node elsewhere gives its copy back.
    ///
    /// # Errors
    /// When this node is not the unit's home, or the bytes are not a unit's.
    pub fn on_give_back(&mut self, cx: &mut Context<'_>, ticket: Ticket, bytes: &[u8]) -> Result<(), Misbehaved> {
        if cx.me != cx.home || !(bytes.is_empty() || bytes.len() == cx.memory.len()) {
            return Err(Misbehaved("gave a unit back to a node that is not its home, or in part"));
        }
        self.enqueue(cx, Asked::Back(ticket, bytes.to_vec()));
        Ok(())
    }

    /// The home's own thread asks.
    pub(super) fn request_here(&mut self, cx: &mut Context<'_>, slot: Slot, want: Want) {
        self.enqueue(cx, Asked::Get(Requester::Here(slot), want));
    }

    /// A holder has sent the unit on.
    pub fn on_forward_done(&mut self, cx: &mut Context<'_>, from: NodeId) {
        let Some(directory) = self.directory.as_deref_mut() else { return };
        match &directory.busy {
            Some(Transaction { stage: Stage::Forwarded(holder), .. }) if *holder == from => {}
            _ => return,
        }
        let Some(done) = directory.busy.take() else { return };
        let node = done.requester.node(cx.me);
        directory.holders = match (&directory.holders, done.want) {
            (_, Want::Modified) => Holders::Modified(node),
            (Holders::Modified(owner), Want::Shared) => {
                Holders::Shared { sharers: [*owner, node].into_iter().collect(), keeper: *owner }
            }
            (Holders::Shared { sharers, keeper }, Want::Shared) => {
                let mut sharers = sharers.clone();
                sharers.insert(node);
                Holders::Shared { sharers, keeper: *keeper }
            }
        };
        if let (Holders::Shared { keeper, .. }, true) = (&mut directory.holders, node == cx.me) {
            *keeper = cx.me; // the home's own copy has arrived, and from here it costs no message
        }
        self.pump(cx);
    }

    /// Data for the home's own request arrived: that forward is done as well.
    pub(super) fn on_data_at_home(&mut self, cx: &mut Context<'_>) {
        let holder = self.directory.as_deref().and_then(|d| match &d.busy {
            Some(Transaction { requester: Requester::Here(_), stage: Stage::Forwarded(holder), .. }) => Some(*holder),
            _ => None,
        });
        if let Some(holder) = holder {
            self.on_forward_done(cx, holder);
        }
    }

    /// A sharer has given up its copy.
    ///
    /// # Errors
    /// In debug builds, when its copy differed from another sharer's.
    pub fn on_invalidate_done(
        &mut self,
        cx: &mut Context<'_>,
        from: NodeId,
        checksum: u64,
        bytes: &[u8],
    ) -> Result<(), Misbehaved> {
        let Some(Transaction { stage: Stage::Invalidating { left, data, data_wanted, sum }, .. }) =
            self.directory.as_deref_mut().and_then(|d| d.busy.as_mut())
        else {
            return Ok(());
        };
        if !left.remove(from) {
            return Ok(());
        }
        let differ = checksum != 0 && *sum != 0 && checksum != *sum;
        *sum = (*sum).max(checksum);
        if *data_wanted && bytes.len() == cx.memory.len() {
            *data = Some(bytes.to_vec());
        }
        if left.is_empty() || !Rule::GrantAfterAllInvalidations.on() {
            self.finish_invalidation(cx);
        }
        // The transaction goes on: whoever differs is told about, not waited for.
        if differ { Err(Misbehaved("held another value of a unit than another sharer did")) } else { Ok(()) }
    }

    fn enqueue(&mut self, cx: &mut Context<'_>, asked: Asked) {
        self.directory_mut(cx.me).queue.push_back(asked);
        self.pump(cx);
    }

    /// Starts the next transaction when none is under way, and those behind it that end at once.
    fn pump(&mut self, cx: &mut Context<'_>) {
        if self.directory.as_deref_mut().is_none_or(|d| std::mem::replace(&mut d.pumping, true)) {
            return;
        }
        while let Some(asked) = self.next_asked() {
            match asked {
                Asked::Get(requester, want) => self.start(cx, requester, want),
                Asked::Back(ticket, bytes) => self.take_back(cx, ticket, &bytes),
            }
        }
        self.directory_mut(cx.me).pumping = false;
    }

    fn next_asked(&mut self) -> Option<Asked> {
        let directory = self.directory.as_deref_mut()?;
        let busy = directory.busy.is_some() && Rule::HomeIsFirstComeFirstServed.on();
        if busy { None } else { directory.queue.pop_front() }
    }

    fn start(&mut self, cx: &mut Context<'_>, requester: Requester, want: Want) {
        let (me, node) = (cx.me, requester.node(cx.me));
        match (&mut self.directory_mut(me).holders, want) {
            (Holders::Modified(owner), _) if *owner == node => self.grant(cx, requester, None),
            (Holders::Modified(owner), _) => {
                let owner = *owner;
                self.forward(cx, requester, want, owner, true);
            }
            (Holders::Shared { keeper, .. }, Want::Shared) if *keeper != node => {
                let keeper = *keeper;
                self.forward(cx, requester, want, keeper, false);
            }
            // The home asked before a copy came back to it.
            (Holders::Shared { .. }, Want::Shared) if node == me => self.granted_here(cx, Want::Shared, None),
            (Holders::Shared { .. }, Want::Shared) => self.grant(cx, requester, None),
            (Holders::Shared { sharers, keeper }, Want::Modified) => {
                let (left, keeper) = (sharers.clone(), *keeper);
                self.invalidate(cx, requester, left, keeper);
            }
        }
    }

    /// Takes a copy back from a node that holds one; what was taken away from it meanwhile is not the latest any more.
    fn take_back(&mut self, cx: &mut Context<'_>, ticket: Ticket, bytes: &[u8]) {
        let (from, me) = (ticket.channel.node, cx.me);
        let directory = self.directory_mut(me);
        let here = match &mut directory.holders {
            Holders::Modified(owner) if *owner == from || !Rule::OnlyHoldersGiveBack.on() => Some(Want::Modified),
            Holders::Shared { sharers, keeper } if sharers.contains(from) && !(*keeper == from && bytes.is_empty()) => {
                sharers.remove(from);
                (*keeper == from).then_some(Want::Shared)
            }
            _ => None,
        };
        if let Some(held) = here.filter(|_| !bytes.is_empty()) {
            match (&mut directory.holders, held) {
                (Holders::Shared { sharers, keeper }, Want::Shared) => {
                    sharers.insert(me);
                    *keeper = me;
                }
                (holders, _) => *holders = Holders::Modified(me),
            }
            self.back_here(cx, held, bytes);
        }
        cx.out.send(Target::Reply(ticket), &Message::GiveBackDone { unit: cx.unit });
    }

    /// Whose channel the home's own messages for this requester leave from.
    fn origin(cx: &Context<'_>, requester: Requester) -> Origin {
        match requester {
            Requester::Here(slot) if cx.caller == Some(slot) => Origin::Caller,
            _ => Origin::Service,
        }
    }

    fn forward(&mut self, cx: &mut Context<'_>, requester: Requester, want: Want, holder: NodeId, as_owner: bool) {
        let to = match requester {
            Requester::Here(_) => None,
            Requester::There(ticket) => Some(ticket),
        };
        self.directory_mut(cx.me).busy = Some(Transaction { requester, want, stage: Stage::Forwarded(holder) });
        if holder == cx.me {
            self.defer(cx, Asker::Here, Operation::Give { want, as_owner, to });
            return;
        }
        if let Some(ticket) = to {
            cx.out.hand_on(ticket, holder);
        }
        let target = Target::Request { node: holder, origin: Self::origin(cx, requester) };
        cx.out.send(target, &Message::Forward { unit: cx.unit, want, as_owner, requester: to });
    }

    /// Takes their copies from all sharers, the requester's excepted.
    fn invalidate(&mut self, cx: &mut Context<'_>, requester: Requester, mut left: NodeSet, keeper: NodeId) {
        let node = requester.node(cx.me);
        let data_wanted = !left.remove(node);
        let stage = Stage::Invalidating { left: left.clone(), data: None, data_wanted, sum: 0 };
        self.directory_mut(cx.me).busy = Some(Transaction { requester, want: Want::Modified, stage });
        if left.is_empty() {
            self.finish_invalidation(cx);
            return;
        }
        let origin = Self::origin(cx, requester);
        for sharer in left.iter().filter(|n| *n != cx.me) {
            let send_data = data_wanted && sharer == keeper;
            cx.out.send(Target::Request { node: sharer, origin }, &Message::Invalidate { unit: cx.unit, send_data });
        }
        if left.contains(cx.me) {
            self.defer(cx, Asker::Here, Operation::Drop { send_data: data_wanted });
        }
    }

    fn finish_invalidation(&mut self, cx: &mut Context<'_>) {
        let Some(directory) = self.directory.as_deref_mut() else { return };
        let Some(done) = directory.busy.take() else { return };
        let Stage::Invalidating { data, .. } = done.stage else { return };
        self.grant(cx, done.requester, data.as_deref());
        self.pump(cx);
    }

    /// Makes the requester the owner and tells it so, with the bytes if it lacks them.
    fn grant(&mut self, cx: &mut Context<'_>, requester: Requester, data: Option<&[u8]>) {
        let node = requester.node(cx.me);
        self.directory_mut(cx.me).holders = Holders::Modified(node);
        match (requester, data) {
            (Requester::Here(_), data) => self.granted_here(cx, Want::Modified, data),
            (Requester::There(ticket), Some(bytes)) => {
                let grant = Message::Data { unit: cx.unit, grant: Want::Modified, bytes };
                cx.out.send(Target::Reply(ticket), &grant);
            }
            (Requester::There(ticket), None) => {
                cx.out.send(Target::Reply(ticket), &Message::Grant { unit: cx.unit });
            }
        }
    }
}
