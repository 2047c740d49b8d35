//! Where the machines of a node find each other when a message has come.

use super::{Node, Pages};
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::pages::atomic::Answer;
use comem_protocol::coherence::pages::home_queue::HomeQueue;
use comem_protocol::coherence::pages::kept_diffs::{self, Stamp};
use comem_protocol::coherence::pages::multicast;
use comem_protocol::coherence::pages::page_table::PageTable;
use comem_protocol::coherence::pages::push::PushBuffer;
use comem_protocol::coherence::pages::region::Region;
use comem_protocol::coherence::pages::serve::{self, Listing, PageState};
use comem_protocol::coherence::pages::{self, PageNo};
use comem_protocol::coherence::{self, Engine, Misbehaved};
use comem_protocol::ids::{FlagId, LockId, NodeId, Slot, UnitId};
use comem_protocol::node::route::{NodeState, Origin};
use comem_protocol::outbox::Outbox;
use comem_protocol::rules::Rule;
use comem_protocol::sync;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::SyncObject;
use comem_protocol::tuning::Tuning;
use comem_protocol::wire::message::Message;

impl PageState for Pages {
    fn closed_stamp(&self) -> Stamp {
        self.closed_stamp
    }

    fn tuning(&self) -> &Tuning {
        &self.layout.tuning
    }

    fn listed_chunk<R>(
        &mut self,
        (page, listing): (PageNo, Listing),
        _: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut pages::Context<'_>) -> R,
    ) -> Option<R> {
        let at = self.chunk_of(page)?;
        match listing {
            Listing::AsBefore | Listing::Idle => {}
            Listing::Taken => self.active.strike(at),
            Listing::Live if self.is_freed(page) => return None,
            Listing::Shared | Listing::Live if !Rule::SharedChunksAreListedFirst.on() => {}
            Listing::Fault if !self.chunks[at].may_need_notices(page) => {}
            Listing::Mapped | Listing::Fault if !Rule::MappedChunksAreListedFirst.on() => {}
            Listing::Shared | Listing::Live | Listing::Mapped | Listing::Fault => self.active.put(at),
        }
        Some(self.with(at, step))
    }

    fn is_freed(&mut self, page: PageNo) -> bool {
        self.freed.iter().any(|range| range.contains(&page))
    }

    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.home_queue)
    }

    fn push_buffer<R>(&mut self, step: impl FnOnce(&mut PushBuffer) -> R) -> Option<R> {
        Some(step(&mut self.push_buffer))
    }
}

impl Node {
    /// The reply to a request of a thread has come. What a writer says that was asked a second time may come when the
    /// thread waits for something else.
    fn has_answer(&mut self, of_kept: bool) {
        let thread = self.answers.index().checked_sub(1).and_then(|t| self.threads.get_mut(t));
        if let Some(thread) = thread.filter(|thread| thread.awaits_kept == of_kept) {
            thread.outstanding = thread.outstanding.saturating_sub(1);
        }
    }
}

impl NodeState for Node {
    fn unit<R>(
        &mut self,
        _: UnitId,
        _: Engine,
        _: Option<Slot>,
        _: &mut Outbox,
        _: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        None
    }

    fn locks(
        &mut self,
        _: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        self.on_locks(caller, out, step);
    }

    fn flags(
        &mut self,
        _: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        self.on_flags(caller, out, step);
    }

    fn sync_objects<R>(
        &mut self,
        _: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut sync::objects::SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.on_sync_objects(caller, out, step)
    }

    fn barrier(&mut self, out: &mut Outbox, step: impl FnOnce(&mut Barrier, &mut Outbox)) {
        step(&mut self.barrier, out);
    }

    fn answer(&mut self, _: &[u8]) {}

    fn page(&mut self, origin: Origin, message: Message<'_>, out: &mut Outbox) -> Result<(), Misbehaved> {
        match (message, origin.ticket) {
            (Message::Fetch { body }, Some(ticket)) => serve::on_fetch(&mut self.pages, ticket, body, out),
            (Message::FetchDiffs { body }, Some(ticket)) => {
                kept_diffs::serve::on_fetch_diffs(&mut self.pages, ticket, body, out)
            }
            (Message::FetchBase { body }, Some(ticket)) => {
                // Diffs that were told to this node as the manager may lie unread.
                self.read_told(None, out);
                kept_diffs::serve::on_fetch_base(&mut self.pages, ticket, body, out)
            }
            (Message::KeptDiffs { body }, _) => {
                self.has_answer(true);
                kept_diffs::serve::on_kept_diffs(&mut self.pages, origin.from.node, body, out)
            }
            (Message::Base { body }, _) => {
                self.has_answer(true);
                kept_diffs::serve::on_base(&mut self.pages, origin.from.node, body, out)
            }
            (Message::DiffsAsked { body }, _) => {
                let by = self.pages.bystander();
                multicast::serve::on_asked(&mut self.pages, origin.from.node, body, by, out)
            }
            (Message::DiffsTold { body }, _) => multicast::serve::on_told(&mut self.pages, origin.from.node, body, out),
            (Message::Pages { body }, _) => {
                self.has_answer(false);
                serve::on_pages(&mut self.pages, origin.from.node, body, out)
            }
            (Message::Atomic { body }, Some(ticket)) => serve::on_atomic(&mut self.pages, ticket, body, out),
            (Message::AtomicDone { body }, _) => {
                const NONSENSE: Misbehaved = Misbehaved("answered an atomic operation with what makes no sense");
                let answer = Answer::parse(body).map_err(|_| NONSENSE)?;
                let thread = self.answers.index().checked_sub(1).and_then(|t| self.threads.get_mut(t));
                thread.into_iter().for_each(|thread| thread.answer = Some(answer));
                Ok(())
            }
            (Message::Diffs { body }, _) => {
                self.pages.applied = true;
                serve::on_diffs(&mut self.pages, origin.from.node, body, out)
            }
            (Message::Push { body }, _) => serve::on_push(&mut self.pages, origin.from.node, body),
            (Message::Region { body }, _) => {
                let region =
                    Region::parse(body).map_err(|_| Misbehaved("told of a region in bytes that make no sense"))?;
                self.pages.drop_region(&region);
                Ok(())
            }
            (Message::Free { page, offset, stamp, .. }, _) => {
                self.pages.block_is_free((page, offset), stamp);
                Ok(())
            }
            (Message::PushUnused { body }, _) => serve::on_unused(&mut self.pages, origin.from.node, body, out),
            _ => Err(Misbehaved("sent a message about pages that nobody here understands")),
        }
    }

    fn user(&mut self, _: NodeId, _: u16, _: &[u8]) {}
}
