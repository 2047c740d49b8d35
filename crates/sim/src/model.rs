//! The `msi` engine as a model to be checked exhaustively: one unit, a few nodes, a few accesses each.
//!
//! The model runs the production [`Unit`] and the production routing and wire code. What it leaves open is only
//! what a real run leaves open: which message in flight arrives next (the network keeps no order), and which thread
//! takes its next step. A store is two steps, the check of the permission and the store itself, and
//! whoever revokes a permission waits for the stores that were checked under it, as the runtime does.
//!
//! What must hold in every state stands in [`State::violation`].

use comem_protocol::coherence::msi::{Begin, Unit};
use comem_protocol::coherence::{self, Engine, Permission, UnitMemory};
use comem_protocol::ids::{Channel, FlagId, LockId, NodeId, ObjectId, Seq, Slot, UnitId};
use comem_protocol::node::route::{NodeState, Origin, dispatch};
use comem_protocol::outbox::{self, Outbox, Target};
use comem_protocol::rules::Rule;
use comem_protocol::sync;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{SyncObject, SyncObjects};
use comem_protocol::time::Time;
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::{Message, Ticket, Want, types};

const HOME: NodeId = NodeId(0);
const UNIT: UnitId = UnitId { object: ObjectId(0), index: 0 };

/// One access of a thread's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Load the unit's value.
    Read,
    /// Store a value that nothing else stores.
    Write,
    /// Give the copy back to the home, if there is one and nobody uses it.
    GiveBack,
}

/// What the threads do: a program for each thread of each node. The unit's home is node 0.
#[derive(Clone, Debug)]
pub struct Programs(pub Vec<Vec<Vec<Access>>>);

/// One byte of memory and what the threads may do with it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Memory {
    value: u8,
    permission: Permission,
    /// Stores whose permission was checked and that are not made yet.
    checked: Vec<(Slot, u8)>,
    /// Values stored since the cluster last looked, by revocations that waited for them.
    stored: Vec<u8>,
}

impl UnitMemory for Memory {
    fn len(&self) -> usize {
        1
    }
    fn permit(&mut self, permission: Permission) {
        self.permission = permission;
    }
    fn revoke(&mut self, permission: Permission) {
        self.permission = permission;
        if Rule::RevokeWaitsForStores.on() {
            for (_, value) in self.checked.drain(..) {
                self.value = value;
                self.stored.push(value);
            }
        }
    }
    fn copy_out(&self, out: &mut Vec<u8>) {
        out.push(self.value);
    }
    fn install(&mut self, bytes: &[u8]) {
        self.value = bytes[0];
    }
    fn discard(&mut self) {
        self.value = 0;
    }
    fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let inside = offset == 0 && len == 1;
        if inside {
            out.push(self.value);
        }
        inside
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let inside = offset == 0 && bytes.len() == 1;
        if inside {
            self.value = bytes[0];
        }
        inside
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Begins its next access.
    Ready,
    /// Was woken or answered, and begins its access again.
    Again,
    /// Waits to be woken or answered.
    Waiting,
    /// Has checked its permission and is about to store.
    Storing,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Thread {
    phase: Phase,
    done: u8,
    begun: bool,
    /// The values that the unit has had since this thread's access began.
    values: Vec<u8>,
    /// Requests sent from this thread's channel.
    sent: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    unit: Unit,
    memory: Memory,
    threads: Vec<Thread>,
    sent: u8,
}

/// A message in flight.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Envelope {
    to: Channel,
    from: Channel,
    ticket: Option<Ticket>,
    ty: MsgType,
    body: Vec<u8>,
}

/// What may happen next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// This message arrives.
    Deliver(Envelope),
    /// This thread takes a step.
    Step(NodeId, usize),
}

/// The whole model at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    nodes: Vec<Node>,
    /// Sorted, so that states that differ only in the order of sending are one.
    wire: Vec<Envelope>,
    latest: u8,
    error: Option<&'static str>,
}

impl State {
    /// The state in which nothing has happened.
    pub fn new(programs: &Programs) -> State {
        let thread = Thread { phase: Phase::Ready, done: 0, begun: false, values: Vec::new(), sent: 0 };
        let nodes = programs.0.iter().enumerate().map(|(n, threads)| {
            let is_home = n == HOME.index();
            let permission = Unit::first_permission(is_home);
            let memory = Memory { value: 0, permission, checked: Vec::new(), stored: Vec::new() };
            Node { unit: Unit::new(is_home), memory, threads: vec![thread.clone(); threads.len()], sent: 0 }
        });
        State { nodes: nodes.collect(), wire: Vec::new(), latest: 0, error: None }
    }

    /// What may happen in this state.
    pub fn actions(&self, programs: &Programs) -> Vec<Action> {
        let mut actions: Vec<Action> = Vec::new();
        if self.error.is_some() {
            return actions;
        }
        for (i, envelope) in self.wire.iter().enumerate() {
            if i == 0 || self.wire[i - 1] != *envelope {
                actions.push(Action::Deliver(envelope.clone()));
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            for (t, thread) in node.threads.iter().enumerate() {
                let left = usize::from(thread.done) < programs.0[n][t].len();
                if left && thread.phase != Phase::Waiting {
                    actions.push(Action::Step(NodeId(n as u16), t));
                }
            }
        }
        actions
    }

    /// The state after `action`.
    pub fn after(&self, programs: &Programs, action: &Action) -> State {
        let mut next = self.clone();
        match action {
            Action::Deliver(envelope) => next.deliver(envelope),
            Action::Step(node, thread) => next.step(programs, node.index(), *thread),
        }
        next
    }

    /// What is wrong with this state, if anything.
    ///
    /// At most one node may write, and then no other may read; every copy that may be read has the latest value; some
    /// node has the unit or it is on its way; every read gave a value that the unit had while the read went on; and
    /// when nothing can happen any more, every access has come to its end.
    pub fn violation(&self, programs: &Programs) -> Option<&'static str> {
        if self.error.is_some() {
            return self.error;
        }
        let may = |p: Permission| self.nodes.iter().filter(|n| n.memory.permission >= p).count();
        if may(Permission::Write) > 1 || (may(Permission::Write) == 1 && may(Permission::Read) > 1) {
            return Some("one node may write while another may read or write");
        }
        if self.nodes.iter().any(|n| n.memory.permission >= Permission::Read && n.memory.value != self.latest) {
            return Some("a valid copy has an old value");
        }
        let travels = |e: &Envelope| [types::DATA, types::INVALIDATE_DONE, types::GIVE_BACK].contains(&e.ty);
        let kept_at_home = !self.nodes[HOME.index()].unit.is_quiet();
        if may(Permission::Read) == 0 && !self.wire.iter().any(travels) && !kept_at_home {
            return Some("nobody has the unit and it is not on its way");
        }
        if self.actions(programs).is_empty() && !self.is_finished(programs) {
            return Some("nothing can happen any more, but an access waits");
        }
        None
    }

    /// Whether every access has come to its end.
    pub fn is_finished(&self, programs: &Programs) -> bool {
        let threads = self.nodes.iter().zip(&programs.0).flat_map(|(n, p)| n.threads.iter().zip(p));
        threads.into_iter().all(|(thread, program)| usize::from(thread.done) == program.len())
    }

    /// Whether every node could forget the unit, and nothing about it is under way then: what lies at its addresses
    /// next
    /// gets no message that was meant for it.
    pub fn quiet_units_leave_nothing(&self) -> bool {
        self.wire.is_empty() || self.nodes.iter().any(|n| !n.unit.is_quiet())
    }

    /// Whether every machine has come to rest as well; must follow from [`State::is_finished`] with nothing in flight.
    pub fn is_quiet(&self) -> bool {
        self.wire.is_empty() && self.nodes.iter().all(|n| n.unit.is_quiet())
    }

    fn deliver(&mut self, envelope: &Envelope) {
        let Some(at) = self.wire.iter().position(|e| e == envelope) else { return };
        self.wire.remove(at);
        let (node, slot) = (envelope.to.node.index(), envelope.to.slot);
        let caller = (slot != Slot::SERVICE).then_some(slot);
        let message = match Message::parse(envelope.ty, &envelope.body) {
            Ok(message) => message,
            Err(_) => return self.error = Some("a message that does not parse"),
        };
        let mut out = Outbox::new();
        let origin = Origin { from: envelope.from, ticket: envelope.ticket, caller };
        let mut room = NodeView { me: envelope.to.node, nodes: self.nodes.len(), node: &mut self.nodes[node] };
        if dispatch(&mut room, Time(0), origin, message, &mut out).is_err() {
            self.error = Some("a node finds that another misbehaves");
        }
        if let Some(slot) = caller {
            self.wake(node, slot);
        }
        self.effects(node, caller, &out);
    }

    fn step(&mut self, programs: &Programs, n: usize, t: usize) {
        let slot = Slot::thread(t);
        let latest = self.latest;
        let thread = &mut self.nodes[n].threads[t];
        let access = programs.0[n][t][usize::from(thread.done)];
        if !thread.begun {
            (thread.begun, thread.values) = (true, vec![latest]);
        }
        if thread.phase == Phase::Storing {
            return self.store(n, t);
        }
        if access == Access::GiveBack {
            let mut out = Outbox::new();
            self.on_unit(n, slot, &mut out, |unit, cx| unit.give_back(cx));
            self.finish(n, t);
            return self.effects(n, Some(slot), &out);
        }
        let (fast, value) = (thread.phase == Phase::Ready, unique_value(n, t, thread.done));
        let permission = self.nodes[n].memory.permission;
        match access {
            Access::Read if fast && permission >= Permission::Read => self.load(n, t),
            Access::Write if fast && permission == Permission::Write => {
                self.nodes[n].memory.checked.push((slot, value));
                self.nodes[n].threads[t].phase = Phase::Storing;
            }
            _ => self.step_slowly(n, t, access, value),
        }
    }

    fn step_slowly(&mut self, n: usize, t: usize, access: Access, value: u8) {
        let slot = Slot::thread(t);
        let want = if access == Access::Read { Want::Shared } else { Want::Modified };
        let mut out = Outbox::new();
        let begin = self.on_unit(n, slot, &mut out, |unit, cx| unit.begin(cx, slot, want, false));
        if begin == Begin::Wait {
            self.nodes[n].threads[t].phase = Phase::Waiting;
        } else {
            match access {
                Access::Read => self.load(n, t),
                Access::Write | Access::GiveBack => {
                    self.nodes[n].memory.value = value;
                    self.nodes[n].memory.stored.push(value);
                    self.note_stores(n);
                    self.finish(n, t);
                }
            }
            self.on_unit(n, slot, &mut out, |unit, cx| unit.settle(cx));
        }
        self.effects(n, Some(slot), &out);
    }

    fn load(&mut self, n: usize, t: usize) {
        let value = self.nodes[n].memory.value;
        if !self.nodes[n].threads[t].values.contains(&value) {
            self.error = Some("a read gave a value that the unit did not have while the read went on");
        }
        self.finish(n, t);
    }

    fn store(&mut self, n: usize, t: usize) {
        let memory = &mut self.nodes[n].memory;
        let slot = Slot::thread(t);
        // A revocation that waited has let this store be made already.
        if let Some(at) = memory.checked.iter().position(|(s, _)| *s == slot) {
            let (_, value) = memory.checked.remove(at);
            memory.value = value;
            memory.stored.push(value);
        }
        self.note_stores(n);
        self.finish(n, t);
    }

    fn finish(&mut self, n: usize, t: usize) {
        let thread = &mut self.nodes[n].threads[t];
        (thread.phase, thread.begun, thread.done) = (Phase::Ready, false, thread.done + 1);
        thread.values.clear();
    }

    /// The stores just made are the unit's latest value, which every access that goes on may see.
    fn note_stores(&mut self, n: usize) {
        for value in std::mem::take(&mut self.nodes[n].memory.stored) {
            self.latest = value;
            for thread in self.nodes.iter_mut().flat_map(|n| &mut n.threads).filter(|t| t.begun) {
                thread.values.push(value);
                thread.values.sort_unstable();
            }
        }
    }

    fn on_unit<R>(
        &mut self,
        n: usize,
        slot: Slot,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> R {
        let mut room = NodeView { me: NodeId(n as u16), nodes: self.nodes.len(), node: &mut self.nodes[n] };
        room.step(Some(slot), out, step)
    }

    fn wake(&mut self, n: usize, slot: Slot) {
        let thread = &mut self.nodes[n].threads[slot.index() - 1];
        if thread.phase == Phase::Waiting {
            thread.phase = Phase::Again;
        }
    }

    fn effects(&mut self, n: usize, caller: Option<Slot>, out: &Outbox) {
        self.note_stores(n);
        for slot in out.wakes() {
            self.wake(n, *slot);
        }
        for send in out.sends() {
            let envelope = self.envelope(n, caller, send, out.body(send));
            self.wire.push(envelope);
        }
        self.wire.sort();
    }

    fn envelope(&mut self, n: usize, caller: Option<Slot>, send: &outbox::Send, body: &[u8]) -> Envelope {
        let me = NodeId(n as u16);
        let (to, ticket) = match send.target {
            Target::Request { node, origin } | Target::Post { node, origin } => {
                let slot = caller.filter(|_| origin == outbox::Origin::Caller).unwrap_or(Slot::SERVICE);
                (Channel::service(node), Some(self.ticket(n, slot)))
            }
            Target::Reply(ticket) => (ticket.channel, None),
            Target::Free { node, slot } => (Channel { node, slot }, None),
            Target::FreeToAll | Target::Set(_) => unreachable!("msi tells nothing to all, nor to sets"),
        };
        let from = ticket.map_or(Channel::service(me), |t| t.channel);
        Envelope { to, from, ticket, ty: send.ty, body: body.to_vec() }
    }

    fn ticket(&mut self, n: usize, slot: Slot) -> Ticket {
        let node = &mut self.nodes[n];
        let sent = match slot {
            Slot::SERVICE => &mut node.sent,
            thread => &mut node.threads[thread.index() - 1].sent,
        };
        *sent += 1;
        let channel = Channel { node: NodeId(n as u16), slot };
        Ticket { channel, seq: Seq::guarded(channel, u64::from(*sent)) }
    }
}

/// A value that no other access stores, and never zero.
fn unique_value(node: usize, thread: usize, access: u8) -> u8 {
    1 + (node as u8) * 64 + (thread as u8) * 16 + access
}

/// One node's only unit; the model has nothing else.
struct NodeView<'a> {
    me: NodeId,
    nodes: usize,
    node: &'a mut Node,
}

impl NodeView<'_> {
    fn step<R>(
        &mut self,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> R {
        let memory = &mut self.node.memory;
        let (me, nodes) = (self.me, self.nodes);
        step(&mut self.node.unit, &mut coherence::Context { me, nodes, caller, unit: UNIT, home: HOME, memory, out })
    }
}

impl NodeState for NodeView<'_> {
    fn unit<R>(
        &mut self,
        id: UnitId,
        engine: Engine,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        (id == UNIT && engine == Engine::Msi).then(|| self.step(caller, out, step))
    }
    fn locks(
        &mut self,
        _: LockId,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        unreachable!("the model has no locks")
    }
    fn flags(
        &mut self,
        _: FlagId,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        unreachable!("the model has no flags")
    }
    fn sync_objects<R>(
        &mut self,
        _: SyncObject,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        unreachable!("the model has no semaphores")
    }
    fn barrier(&mut self, _: &mut Outbox, _: impl FnOnce(&mut Barrier, &mut Outbox)) {
        unreachable!("the model has no barrier")
    }
    fn answer(&mut self, _: &[u8]) {
        unreachable!("the model has no owners")
    }
    fn user(&mut self, _: NodeId, _: u16, _: &[u8]) {
        unreachable!("the model's programs send no messages")
    }
}
