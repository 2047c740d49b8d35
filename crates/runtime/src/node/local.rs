//! The parts of a node, as a message that has come finds them.

use super::Node;
use crate::inline::msi;
use crate::shared::consistency::msi_pages;
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::{self, Engine, Misbehaved};
use comem_protocol::ids::{FlagId, LockId, NodeId, Slot, UnitId};
use comem_protocol::node::route::{NodeState, Origin};
use comem_protocol::outbox::Outbox;
use comem_protocol::sync;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::deal::Loops;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{SyncObject, SyncObjects};
use comem_protocol::time::Time;
use comem_protocol::wire::message::Message;

/// The node's state machines as one message sees them.
pub(crate) struct LocalNode<'a> {
    pub(crate) node: &'a Node,
    /// Whose request a reply answers.
    pub(crate) answers: Slot,
    /// Whoever must be roused besides those in the outbox.
    pub(crate) roused: Option<Slot>,
    /// A message for a program's thread, to be delivered after dispatch.
    pub(crate) user: Option<(NodeId, u16, Vec<u8>)>,
}

impl NodeState for LocalNode<'_> {
    fn unit<R>(
        &mut self,
        id: UnitId,
        engine: Engine,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        if id.object == msi_pages::PAGES && engine == Engine::Msi {
            return self.node.msi_step(id.index, caller, out, step);
        }
        if let Some(line) = msi::line_of(id).filter(|_| engine == Engine::Msi) {
            return msi::line_step(self.node.shared()?, line, caller, out, step);
        }
        let object = self.node.objects.get(id.object).filter(|o| o.engine == engine)?;
        object.step(self.node.objects.guard(), id.index, caller, out, step)
    }

    fn is_freed(&mut self, id: UnitId) -> bool {
        if let Some(line) = msi::line_of(id) {
            return self.node.shared().is_some_and(|shared| msi::is_line_freed(shared, line));
        }
        id.object == msi_pages::PAGES && self.node.shared().is_some_and(|shared| shared.table.is_freed(id.index))
    }

    fn locks(
        &mut self,
        id: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        self.node.with_locks(id, caller, out, step);
    }

    fn flags(
        &mut self,
        id: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        self.node.with_flags(id, caller, out, step);
    }

    fn sync_objects<R>(
        &mut self,
        object: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.node.with_sync_objects(object, caller, out, step)
    }

    fn barrier(&mut self, out: &mut Outbox, step: impl FnOnce(&mut Barrier, &mut Outbox)) {
        self.node.sync.with_barrier(|b| step(b, out));
    }

    fn page(&mut self, origin: Origin, message: Message<'_>, out: &mut Outbox) -> std::result::Result<(), Misbehaved> {
        if let Some(answer) = self.node.on_page_message((origin, self.answers), message, out)? {
            self.answer(&answer);
        }
        Ok(())
    }

    fn remote(
        &mut self,
        now: Time,
        origin: Origin,
        message: Message<'_>,
        out: &mut Outbox,
    ) -> std::result::Result<(), Misbehaved> {
        if let Message::Invitation { body } = message {
            self.answer(body);
            return Ok(());
        }
        self.node.on_remote(now, (origin, self.answers), message, out)
    }

    fn loops<R>(&mut self, step: impl FnOnce(&mut Loops, usize) -> R) -> Option<R> {
        Some(self.node.loops.manage(|loops| step(loops, self.node.nodes)))
    }

    fn answer(&mut self, bytes: &[u8]) {
        let Some(thread_slot) = self.node.slots.get(self.answers.index()) else { return };
        thread_slot.give_answer(bytes);
        self.roused = Some(self.answers);
    }

    fn user(&mut self, from: NodeId, thread: u16, bytes: &[u8]) {
        self.user = Some((from, thread, bytes.to_vec()));
    }
}
