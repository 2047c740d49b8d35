//! Which machine a message is for. The runtime and the simulator keep their machines in different places (behind
//! locks, or in a vector), but every message takes the same way through the [`NodeState`].

use crate::coherence::msi::Unit;
use crate::coherence::{self, Engine, Misbehaved, broadcast, owner};
use crate::ids::{Channel, FlagId, LockId, NodeId, Slot, UnitId};
use crate::outbox::{Origin as Sender, Outbox, Target};
use crate::sync::barrier::{Barrier, Heard};
use crate::sync::deal::{BatchRequest, Dealt, Loops};
use crate::sync::flag::Flags;
use crate::sync::lock::{Locks, Wanted};
use crate::sync::lock_batch::{self, LockBatch};
use crate::sync::objects::{SyncObject, SyncObjects};
use crate::sync::{self, Scope};
use crate::time::Time;
use crate::wire::message::{Message, SyncRequest, Ticket};
use std::collections::BTreeMap;

/// Where a node keeps its state machines. A closure runs under the lock of what it changes.
pub trait NodeState {
    /// The unit, with its memory; `None` when there is no such unit or another engine keeps it.
    fn unit<R>(
        &mut self,
        id: UnitId,
        engine: Engine,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R>;
    /// Whether the unit, which does not exist, is of memory that was freed.
    fn is_freed(&mut self, _: UnitId) -> bool {
        false
    }
    /// The locks among which this one is.
    fn locks(
        &mut self,
        id: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    );
    /// The flags among which this one is.
    fn flags(
        &mut self,
        id: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    );
    /// The objects among which this one is.
    fn sync_objects<R>(
        &mut self,
        object: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R;
    /// The barrier of all threads.
    fn barrier(&mut self, out: &mut Outbox, step: impl FnOnce(&mut Barrier, &mut Outbox));
    /// The loops of which this node is the manager, with the number of nodes; `None` where none are dealt out.
    fn loops<R>(&mut self, _step: impl FnOnce(&mut Loops, usize) -> R) -> Option<R> {
        None
    }
    /// The value of, or the receipt for, this thread's own access at an owner, or the items of a loop that it asked
    /// for.
    fn answer(&mut self, bytes: &[u8]);
    /// A message about pages ([`serve`](crate::coherence::pages::serve) says what is done with it).
    ///
    /// # Errors
    /// When no correct peer would have sent it.
    fn page(&mut self, _origin: Origin, _message: Message<'_>, _out: &mut Outbox) -> Result<(), Misbehaved> {
        Err(Misbehaved("sent a message about pages, of which this node has none"))
    }
    /// One-sided operations of another node, or the answer to those of this one
    /// ([`remote`](crate::coherence::direct::remote)).
    ///
    /// # Errors
    /// When no correct peer would have sent it.
    fn remote(
        &mut self,
        _now: Time,
        _origin: Origin,
        _message: Message<'_>,
        _out: &mut Outbox,
    ) -> Result<(), Misbehaved> {
        Err(Misbehaved("sent a one-sided operation on memory of lines, of which this node has none"))
    }
    /// A program's own message for application thread `thread` of this node.
    fn user(&mut self, from: NodeId, thread: u16, bytes: &[u8]);
}

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The channel that sent it.
    pub from: Channel,
    /// Its ticket, when it is a request.
    pub ticket: Option<Ticket>,
    /// The application thread that received it; `None` for the service thread.
    pub caller: Option<Slot>,
}

/// Takes `message` to its state machine.
///
/// # Errors
/// When no correct peer would have sent it; then it has had no effect.
pub fn dispatch(
    state: &mut impl NodeState,
    now: Time,
    origin: Origin,
    message: Message<'_>,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    match message {
        Message::Get { .. }
        | Message::Forward { .. }
        | Message::Invalidate { .. }
        | Message::Data { .. }
        | Message::Grant { .. }
        | Message::ForwardDone { .. }
        | Message::InvalidateDone { .. }
        | Message::GiveBack { .. }
        | Message::GiveBackDone { .. } => msi(state, origin, message, out),
        Message::OwnerRead { .. } | Message::OwnerWrite { .. } => owned(state, origin, message, out),
        Message::OwnerValue { bytes, .. } => {
            state.answer(bytes);
            Ok(())
        }
        Message::OwnerDone { .. } => {
            state.answer(&[]);
            Ok(())
        }
        Message::Update { unit, offset, bytes } => state
            .unit(unit, Engine::Broadcast, origin.caller, out, |_, cx| broadcast::on_update(cx, offset, bytes))
            .unwrap_or(Err(NO_UNIT)),
        Message::Deal { number, wanted } => deal(state, origin, (number, wanted), out),
        Message::Dealt { fine, low, high } => {
            let mut answer = Vec::new();
            Message::Dealt { fine, low, high }.emit(&mut answer);
            state.answer(&answer);
            Ok(())
        }
        Message::User { thread, bytes } => {
            state.user(origin.from.node, thread, bytes);
            Ok(())
        }
        Message::Fetch { .. }
        | Message::Pages { .. }
        | Message::Diffs { .. }
        | Message::Region { .. }
        | Message::RegionHeard
        | Message::Free { .. }
        | Message::Freed { .. }
        | Message::Push { .. }
        | Message::PushUnused { .. }
        | Message::Atomic { .. }
        | Message::AtomicDone { .. }
        | Message::FetchDiffs { .. }
        | Message::KeptDiffs { .. }
        | Message::FetchBase { .. }
        | Message::Base { .. }
        | Message::DiffsAsked { .. }
        | Message::DiffsTold { .. } => state.page(origin, message, out),
        Message::Remote { .. } | Message::RemoteDone { .. } | Message::Invite | Message::Invitation { .. } => {
            state.remote(now, origin, message, out)
        }
        _ => synchronise(state, now, origin, message, out),
    }
}

const NO_UNIT: Misbehaved = Misbehaved("named a unit that does not exist here or has another engine");
const BAD_BATCH: Misbehaved = Misbehaved("sent locks in a bundle that makes no sense");
const NO_ROOM: Misbehaved = Misbehaved("sent a message that no room takes");
const NO_TICKET: Misbehaved = Misbehaved("sent a request as if it were a reply");

fn msi(state: &mut impl NodeState, origin: Origin, message: Message<'_>, out: &mut Outbox) -> Result<(), Misbehaved> {
    let ticket = || origin.ticket.ok_or(NO_TICKET);
    let node = origin.from.node;
    let (unit, ask) = match message {
        Message::Get { unit, .. }
        | Message::Forward { unit, .. }
        | Message::Invalidate { unit, .. }
        | Message::GiveBack { unit, .. } => (unit, Some(ticket()?)),
        Message::Data { unit, .. }
        | Message::Grant { unit }
        | Message::ForwardDone { unit }
        | Message::InvalidateDone { unit, .. }
        | Message::GiveBackDone { unit } => (unit, None),
        _ => return Err(NO_UNIT),
    };
    let step = |u: &mut Unit, cx: &mut coherence::Context<'_>| match (message, ask) {
        (Message::Get { want, .. }, Some(ticket)) => u.on_get(cx, ticket, want),
        (Message::Forward { want, as_owner, requester, .. }, Some(ticket)) => {
            u.on_forward(cx, ticket, want, as_owner, requester);
            Ok(())
        }
        (Message::Invalidate { send_data, .. }, Some(ticket)) => {
            u.on_invalidate(cx, ticket, send_data);
            Ok(())
        }
        (Message::GiveBack { bytes, .. }, Some(ticket)) => u.on_give_back(cx, ticket, bytes),
        (Message::GiveBackDone { .. }, _) => {
            u.on_give_back_done(cx);
            Ok(())
        }
        (Message::Data { grant, bytes, .. }, _) => u.on_data(cx, grant, bytes),
        (Message::Grant { .. }, _) => u.on_grant(cx),
        (Message::ForwardDone { .. }, _) => {
            u.on_forward_done(cx, node);
            Ok(())
        }
        (Message::InvalidateDone { checksum, bytes, .. }, _) => u.on_invalidate_done(cx, node, checksum, bytes),
        _ => Err(NO_UNIT),
    };
    match state.unit(unit, Engine::Msi, origin.caller, out, step) {
        Some(done) => done,
        // Nothing of freed memory is used any more, but messages about it may come late. What confirms has no effect.
        // Who
        // has not heard of the free may give its copy back, and waits until the home has it. What asks was sent before
        // the free (by a fetch ahead of any access, say), and nobody waits for the answer.
        None if state.is_freed(unit) => {
            if let (Message::GiveBack { .. }, Some(ticket)) = (message, ask) {
                out.send(Target::Reply(ticket), &Message::GiveBackDone { unit });
            }
            Ok(())
        }
        None => Err(NO_UNIT),
    }
}

fn owned(state: &mut impl NodeState, origin: Origin, message: Message<'_>, out: &mut Outbox) -> Result<(), Misbehaved> {
    let ticket = origin.ticket.ok_or(NO_TICKET)?;
    match message {
        Message::OwnerRead { unit, offset, len } => {
            state.unit(unit, Engine::Owner, origin.caller, out, |_, cx| owner::serve_read(cx, ticket, offset, len))
        }
        Message::OwnerWrite { unit, offset, bytes } => {
            state.unit(unit, Engine::Owner, origin.caller, out, |_, cx| owner::serve_write(cx, ticket, offset, bytes))
        }
        _ => None,
    }
    .unwrap_or(Err(NO_UNIT))
}

/// A node wants items of a loop.
fn deal(
    state: &mut impl NodeState,
    origin: Origin,
    (number, wanted): (u64, BatchRequest),
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let ticket = origin.ticket.ok_or(NO_TICKET)?;
    let reply = match state.loops(|loops, nodes| loops.deal(number, wanted, nodes)).ok_or(NO_ROOM)?? {
        Dealt::Items(items) => Message::Dealt { fine: true, low: items.start, high: items.end },
        Dealt::Unlike(total, chunk) => Message::Dealt { fine: false, low: total, high: chunk },
    };
    out.send(Target::Reply(ticket), &reply);
    Ok(())
}

fn synchronise(
    state: &mut impl NodeState,
    now: Time,
    origin: Origin,
    message: Message<'_>,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let (caller, node) = (origin.caller, origin.from.node);
    match message {
        Message::Ask { .. }
        | Message::Answer { .. }
        | Message::Meet { .. }
        | Message::Tell { .. }
        | Message::Hears { .. } => return at_sync_object(state, origin, message, out),
        Message::Arrive { epoch, repeated, elsewhere, what, payload, notices } => {
            let heard = Heard { from: node, epoch, repeated, elsewhere, what, payload, notices };
            state.barrier(out, |b, out| b.on_arrive(now, caller, heard, out));
        }
        Message::Noted { epoch } => state.barrier(out, |b, _| b.on_noted(now, origin.from.node, epoch)),
        Message::Release { epoch, what, payload, notices } => {
            state.barrier(out, |b, out| b.on_release(caller, (epoch, what), (payload, notices), out));
        }
        Message::Apart { epoch, apart } => {
            state.barrier(out, |b, out| b.on_apart(node, (epoch, apart), caller, out));
        }
        _ => return locked(state, origin, message, out),
    }
    Ok(())
}

/// Locks and flags.
fn locked(
    state: &mut impl NodeState,
    origin: Origin,
    message: Message<'_>,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let caller = origin.caller;
    let ticket = || origin.ticket.ok_or(NO_TICKET);
    match message {
        Message::LockRequest { lock, knowledge } => {
            let ticket = ticket()?;
            state.locks(lock, caller, out, |l, cx| l.on_request(cx, lock, ticket, knowledge));
        }
        Message::LockForward { lock, requester, knowledge } => {
            let ticket = requester.map_or_else(ticket, Ok)?;
            state.locks(lock, caller, out, |l, cx| l.on_forward(cx, lock, ticket, knowledge));
        }
        Message::LockGrant { lock, payload } => {
            state.locks(lock, caller, out, |l, cx| {
                l.on_grant(cx, lock, payload);
            });
        }
        Message::LockWants { of, queued, entries } => return give_wanted(state, caller, (of, queued), entries, out),
        Message::LockTokens { entries } => {
            let mut known = None;
            for entry in lock_batch::entries(entries) {
                let (lock, payload) = entry.map_err(|_| BAD_BATCH)?;
                state.locks(lock, caller, out, |l, cx| l.on_token(cx, lock, payload, &mut known));
            }
        }
        Message::CatchUp { lock, knowledge } => {
            let ticket = ticket()?;
            state.locks(lock, caller, out, |l, cx| l.on_catch_up(cx, lock, ticket, knowledge));
        }
        Message::CaughtUp { lock, payload } => {
            state.locks(lock, caller, out, |l, cx| l.on_caught_up(cx, lock, origin.from.node, payload));
        }
        Message::FlagSet { flag, value, payload } => {
            state.flags(flag, caller, out, |f, cx| f.on_set(cx, flag, value, payload));
        }
        Message::FlagWait { flag, value, knowledge } => {
            let ticket = ticket()?;
            state.flags(flag, caller, out, |f, cx| f.on_wait(cx, flag, ticket, value, knowledge));
        }
        Message::FlagUp { flag, value, payload } => {
            state.flags(flag, caller, out, |f, cx| f.on_up(cx, flag, value, payload));
        }
        _ => return Err(NO_ROOM),
    }
    Ok(())
}

/// Conditions, semaphores, reader-writer locks and barriers of some threads.
fn at_sync_object(
    state: &mut impl NodeState,
    origin: Origin,
    message: Message<'_>,
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let (caller, node) = (origin.caller, origin.from.node);
    let ticket = || origin.ticket.ok_or(NO_TICKET);
    match message {
        Message::Ask { request, name, knowledge } => {
            let ticket = ticket()?;
            state
                .sync_objects(request.object(name), caller, out, |d, cx| d.on_ask(cx, request, name, ticket, knowledge))
        }
        Message::Answer { request, name, slot, yes, payload } => {
            let step =
                |d: &mut SyncObjects, cx: &mut sync::Context<'_>| d.on_answer(cx, (request, name), slot, yes, payload);
            state.sync_objects(request.object(name), caller, out, step)
        }
        Message::Meet { name, threads, payload, knowledge } => {
            let ticket = ticket()?;
            let step = |d: &mut SyncObjects, cx: &mut sync::Context<'_>| {
                d.on_meet(cx, (name, threads), ticket, (payload, knowledge))
            };
            state.sync_objects(SyncRequest::SubsetBarrier.object(name), caller, out, step)
        }
        Message::Tell { update, name, payload } => {
            let step = |d: &mut SyncObjects, cx: &mut sync::Context<'_>| d.on_tell(cx, node, (update, name), payload);
            state.sync_objects(update.object(name), caller, out, step)
        }
        Message::Hears { name, serial, interest } => {
            let step = |d: &mut SyncObjects, cx: &mut sync::Context<'_>| d.on_hears(cx, node, (name, serial), interest);
            state.sync_objects(SyncRequest::CondJoin.object(name), caller, out, step)
        }
        _ => Err(NO_ROOM),
    }
}

/// Wants the tokens of these locks for this node, although no thread waits for them: they were used here, and will be
/// again. Those that are here or asked for are passed over.
pub fn prefetch_tokens(
    state: &mut impl NodeState,
    me: NodeId,
    caller: Option<Slot>,
    locks: &[LockId],
    out: &mut Outbox,
) {
    let mut requests = TokenRequests { of: me, batches: BTreeMap::new() };
    // Where all locks tell the same, this node has seen at least that when it comes to the next.
    let (mut seen, mut alike) = (Vec::new(), false);
    for lock in locks {
        state.locks(*lock, caller, out, |l, cx| {
            if let Some(whom) = l.prefetch_token(cx, *lock) {
                if !alike {
                    seen.clear();
                    cx.payload.knowledge(Scope::Lock(*lock), &mut seen);
                    alike = cx.payload.is_alike();
                }
                requests.add(whom, *lock, &seen, cx.out);
            }
        });
    }
    requests.post(out);
}

/// Wishes of a node for tokens, by whom they go to and whether they stand in the queue behind that one.
struct TokenRequests {
    of: NodeId,
    batches: BTreeMap<(NodeId, bool), LockBatch>,
}

impl TokenRequests {
    /// Adds one; those before it leave if there is no room for it beside them.
    fn add(&mut self, whom: (NodeId, bool), lock: LockId, seen: &[u8], out: &mut Outbox) {
        let batch = self.batches.entry(whom).or_default();
        if !batch.has_room_for(seen) {
            post_token_requests(self.of, whom, &std::mem::take(batch), out);
        }
        batch.add(lock, seen);
    }

    fn post(self, out: &mut Outbox) {
        self.batches.iter().for_each(|(whom, batch)| post_token_requests(self.of, *whom, batch, out));
    }
}

fn post_token_requests(of: NodeId, (node, queued): (NodeId, bool), batch: &LockBatch, out: &mut Outbox) {
    post(node, &Message::LockWants { of, queued, entries: batch.bytes() }, out);
}

/// A node wants tokens: those that rest here go there together, the others when they are free, and those that others
/// were the last to ask for are for these to give.
fn give_wanted(
    state: &mut impl NodeState,
    caller: Option<Slot>,
    (of, queued): (NodeId, bool),
    requests: &[u8],
    out: &mut Outbox,
) -> Result<(), Misbehaved> {
    let mut tokens = LockBatch::default();
    let mut elsewhere = TokenRequests { of, batches: BTreeMap::new() };
    // Where all locks say the same, what this node had seen before it gave a token goes with that one, and need not be
    // said again.
    let mut told: Option<Vec<u8>> = None;
    let mut all_told = false;
    let (mut said, mut now) = (Vec::new(), Vec::new());
    for request in lock_batch::entries(requests) {
        let (lock, seen) = request.map_err(|_| BAD_BATCH)?;
        state.locks(lock, caller, out, |l, cx| {
            said.clear();
            let tells = !all_told && cx.payload.is_alike();
            if tells {
                now.clear();
                cx.payload.knowledge(Scope::Lock(lock), &mut now);
            }
            match l.on_token_prefetch(cx, lock, (of, queued), (seen, told.as_deref()), &mut said) {
                Wanted::Goes => {
                    // What is told once for all must be in the same message as they.
                    if told.is_none() && !tokens.has_room_for(&said) {
                        post_tokens(of, &std::mem::take(&mut tokens), cx.out);
                    }
                    tokens.add(lock, &said);
                    if tells {
                        told.get_or_insert_default().clone_from(&now);
                    }
                    all_told = told.is_some() && said.is_empty();
                }
                Wanted::HandOn(last) => elsewhere.add((last, true), lock, seen, cx.out),
                Wanted::Later => {}
            }
        });
    }
    if !tokens.is_empty() {
        post_tokens(of, &tokens, out);
    }
    elsewhere.post(out);
    Ok(())
}

fn post_tokens(of: NodeId, tokens: &LockBatch, out: &mut Outbox) {
    post(of, &Message::LockTokens { entries: tokens.bytes() }, out);
}

fn post(node: NodeId, message: &Message<'_>, out: &mut Outbox) {
    out.send(Target::Post { node, origin: Sender::Service }, message);
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
