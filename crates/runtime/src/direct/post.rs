//! Messages with one-sided operations: a thread's own, and those of other nodes.

use super::emulated::Post;
use super::target::Target;
use crate::error::{Error, Result};
use crate::mutex::Mutex;
use crate::node::{Node, Slots, ThreadSlot, Waiting};
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::lines::{GRAIN_LINES, Lines};
use comem_protocol::coherence::Misbehaved;
use comem_protocol::coherence::direct::remote::{Found, LOOK_EVERY, RemoteMemory, Request, Server, UnitAt};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::node::route::Origin as From;
use comem_protocol::outbox::{Origin, Outbox, Target as To};
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::bytes::WireError;
use comem_protocol::wire::message::{Message, Ticket};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// While requests wait in vain, the service thread looks at them less and less often: each time after twice as long,
/// so many times.
const LOOKS_GROW: u32 = 4;

/// One thread's requests and their answers.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    serial: u16,
    /// Those that are not answered.
    expected: Vec<(NodeId, u16)>,
    /// Answers that the thread has not taken.
    came: Vec<(NodeId, Vec<u8>)>,
    /// The first line of the unit that the thread misses.
    line: usize,
    /// Whose thread has locked the entry for which it waits.
    holder: Option<NodeId>,
}

impl Requests {
    /// An answer has come. What nobody expects answers a request whose thread has given up.
    fn on_answer(&mut self, from: NodeId, body: &[u8]) {
        if self.expected.iter().any(|(to, serial)| *to == from && body.starts_with(&serial.to_be_bytes())) {
            self.came.push((from, body.to_vec()));
        }
    }

    fn take(&mut self, from: NodeId, serial: u16) -> Option<Vec<u8>> {
        let is_it = |(node, body): &(NodeId, Vec<u8>)| *node == from && body.starts_with(&serial.to_be_bytes());
        let at = self.came.iter().position(is_it)?;
        self.expected.retain(|expected| *expected != (from, serial));
        Some(self.came.swap_remove(at).1)
    }
}

/// A thread's requests, from its own socket.
pub(crate) struct Sockets<'a> {
    thread: &'a Thread,
    known: &'a RegionState,
}

impl<'a> Sockets<'a> {
    /// For one miss of a unit of this region, which begins with this line.
    pub(crate) fn new(thread: &'a Thread, known: &'a RegionState, line: usize) -> Sockets<'a> {
        let sockets = Sockets { thread, known };
        let mut requests = sockets.requests().lock();
        // A wait that was interrupted may have left some.
        requests.expected.clear();
        requests.came.clear();
        (requests.line, requests.holder) = (line, None);
        drop(requests);
        sockets
    }

    fn requests(&self) -> &'a Mutex<Requests> {
        &self.thread.home().slots[self.thread.slot()].requests
    }
}

impl Post for Sockets<'_> {
    type Error = Error;

    fn next_serial(&mut self) -> u16 {
        let mut requests = self.requests().lock();
        requests.serial = requests.serial.wrapping_add(1);
        requests.serial
    }

    fn send(&mut self, to: NodeId, request: &Request) -> Result<()> {
        self.requests().lock().expected.push((to, request.serial));
        self.thread.counters().remote_batches.add(1);
        let target = To::Request { node: to, origin: Origin::Caller };
        self.thread.stepping(|out| out.send_with(target, &Message::Remote { body: &[] }, |body| request.emit(body)));
        Ok(())
    }

    fn answer(&mut self, from: NodeId, serial: u16) -> Result<Vec<u8>> {
        loop {
            if let Some(answer) = self.requests().lock().take(from, serial) {
                return Ok(answer);
            }
            self.thread.wait(Waiting::Operations(from))?;
        }
    }

    fn found(&mut self, holder: Option<NodeId>) {
        self.requests().lock().holder = holder;
    }

    fn nonsense(&self, from: NodeId, why: WireError) -> Error {
        let node = self.thread.home();
        Error::harm(format!("{} answered one-sided operations by what makes no sense: {why}", node.name_of(from)))
    }

    fn freed(&self) -> Error {
        Error::Freed(format!("an access to {}, which was freed", self.known.name()))
    }
}

/// What this node does for others.
///
/// The server's mutex is held while it acts on lines memory, and nothing is taken behind it but units' own locks. That
/// of the grains is held for one look.
#[derive(Debug, Default)]
pub(crate) struct Served {
    server: Mutex<Server>,
    /// Whether requests wait there, and how often in a row the service thread has looked in vain.
    is_busy: AtomicBool,
    vain_looks: AtomicU32,
    /// The grains that others' operations have been about.
    grains: Mutex<BTreeSet<usize>>,
}

impl Served {
    /// Carries out a request, or puts it aside; whether any wait now.
    ///
    /// # Errors
    /// When it is none.
    fn on_request(
        &self,
        target: &impl RemoteMemory,
        from: (Time, Ticket),
        body: &[u8],
        out: &mut Outbox,
    ) -> std::result::Result<bool, Misbehaved> {
        let mut server = self.server.lock();
        let result = server.on_request(target, from, body, out);
        let is_busy = server.is_busy();
        self.is_busy.store(is_busy, Ordering::Release);
        drop(server);
        let unit = result?;
        self.grains.lock().insert(unit.first() as usize / GRAIN_LINES);
        if is_busy {
            self.vain_looks.store(0, Ordering::Relaxed);
        }
        Ok(is_busy)
    }

    /// Whether requests wait.
    fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Goes on with requests that have waited. Gives how long to wait before the next look, while any still do.
    fn look(&self, target: &impl RemoteMemory, now: Time, out: &mut Outbox) -> Option<Span> {
        let mut server = self.server.lock();
        let is_busy = server.look(target, now, out);
        self.is_busy.store(is_busy, Ordering::Release);
        drop(server);
        let looks = self.vain_looks.fetch_add(1, Ordering::Relaxed);
        if !out.is_empty() {
            self.vain_looks.store(0, Ordering::Relaxed);
        }
        is_busy.then_some(Span(LOOK_EVERY.0 << looks.min(LOOKS_GROW)))
    }

    /// What is known here of what a node held locked that has ended. Other nodes may know more.
    pub(super) fn what_was_locked(&self, slots: &Slots, lines: &Lines, lost: NodeId) -> Option<Locked> {
        let holder = NodeId(lost.0 & 0x7f);
        let is_its = |line: &usize| Entry(lines.entry(*line).load(Ordering::Acquire)).holder() == Some(holder);
        let grains = self.grains.lock();
        let here = grains.iter().flat_map(|grain| grain * GRAIN_LINES..(grain + 1) * GRAIN_LINES).find(is_its);
        let waits = |find: &dyn Fn(&Requests) -> bool| {
            let line = |thread_slot: &ThreadSlot| {
                Some(&*thread_slot.requests.lock()).filter(|requests| find(requests)).map(|r| r.line)
            };
            slots.iter().find_map(line)
        };
        here.or_else(|| waits(&|requests| requests.holder == Some(holder)))
            .map(Locked::Entry)
            .or_else(|| waits(&|requests| requests.expected.iter().any(|(to, _)| *to == lost)).map(Locked::Perhaps))
    }
}

impl Shared {
    /// This node's lines memory as a target. Operations are for units under `direct` of regions that it knows.
    fn as_target(&self) -> Option<Target<'_, impl Fn(UnitAt) -> Found>> {
        let lines = self.views.as_ref()?.lines.as_ref()?;
        Some(Target { lines, nodes: self.nodes, find: move |unit| self.find_unit(lines, unit) })
    }
}

impl Node {
    /// One-sided operations of another node, or the answer to those of a thread of this one.
    pub(crate) fn on_remote(
        &self,
        now: Time,
        (origin, answers): (From, Slot),
        message: Message<'_>,
        out: &mut Outbox,
    ) -> std::result::Result<(), Misbehaved> {
        const NO_LINES: Misbehaved =
            Misbehaved("sent a one-sided operation on memory of lines, of which this node has none");
        match (message, origin.ticket) {
            (Message::Remote { body }, Some(ticket)) => {
                let target = self.shared().and_then(Shared::as_target).ok_or(NO_LINES)?;
                // The service thread may be asleep until its next tick, and this thread may do nothing else for long.
                if self.served.on_request(&target, (now, ticket), body, out)? && origin.caller.is_some() {
                    self.wake_service();
                }
                Ok(())
            }
            (Message::RemoteDone { body }, None) => {
                if let Some(thread_slot) = self.slots.get(answers.index()) {
                    thread_slot.requests.lock().on_answer(origin.from.node, body);
                }
                Ok(())
            }
            (Message::Invite, Some(ticket)) => {
                const NONE: Misbehaved = Misbehaved("asked for an invitation, which this job does not have");
                let body = self.reach.ucx().ok_or(NONE)?.invitation();
                out.send(To::Reply(ticket), &Message::Invitation { body: &body });
                Ok(())
            }
            _ => Err(Misbehaved("sent one-sided operations that nobody could answer")),
        }
    }

    /// For the service thread: goes on with requests that have waited. Gives when to look again.
    pub(crate) fn look_at_remote(&self) -> Option<Time> {
        if !self.served.is_busy() {
            return None;
        }
        let (target, mut out) = (self.shared()?.as_target()?, Outbox::new());
        let again = self.served.look(&target, self.now(), &mut out);
        if !out.is_empty() {
            self.flush(Slot::SERVICE, &mut out);
        }
        again.map(|span| self.now() + span)
    }
}

/// The first line of a unit of which a node that has ended had locked an entry.
pub(super) enum Locked {
    /// It had.
    Entry(usize),
    /// A thread waits for its answer, and nobody knows.
    Perhaps(usize),
}

impl Shared {
    /// What is where another node says that a unit under `direct` is.
    fn find_unit(&self, lines: &Lines, unit: UnitAt) -> Found {
        let address = lines.extent().base + unit.first() as usize * LINE_BYTES;
        let Some(page) = self.page_of(address) else { return Found::Nothing };
        let Some(known) = self.table.find(page) else {
            return if self.table.is_freed(page) { Found::Freed } else { Found::Nothing };
        };
        if known.is_freed() {
            return Found::Freed;
        }
        let there = self.line_unit(&known, address).filter(|_| known.region.engine.is_one_sided());
        match there {
            Some(there) if (there.line, there.lines) == (unit.first(), unit.lines().into()) => Found::Unit,
            _ => Found::Nothing,
        }
    }
}
