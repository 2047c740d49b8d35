//! Barriers of some of the job's threads, named by any number (the barriers of PARMACS, which name how many
//! processes come: E. Lusk et al., *Portable Programs for Parallel Processors*, 1987).
//!
//! | at the manager | a thread comes that expects `n` in all |
//! |---|---|
//! | nobody is there | it waits; the barrier is one of `n` |
//! | a barrier of `n`, not the last | it waits |
//! | a barrier of `n`, the last | all go on |
//! | a barrier of another number | it is told so and does not come in |
//!
//! To come is a release and to go on is an acquire of what all who came have released. Nothing is kept between
//! barriers: what somebody learnt at one, they say again at the next. So any threads may come each time; and, unlike
//! the barrier of all threads, such a barrier ends no epoch: it clears no notices, collects no intervals and moves no
//! homes.

use super::objects::{Given, Place, SyncObjects, Waiter};
use super::{Context, IntervalMark};
use crate::coherence::Misbehaved;
use crate::ids::{Channel, Slot};
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Message, SyncRequest, Ticket};

/// A barrier of some threads, named by any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubsetBarrierId(pub u64);

/// Such a barrier at its manager.
#[derive(Clone, Debug, Default)]
pub(super) struct SubsetBarrier {
    /// How many are to come.
    threads: u32,
    there: Vec<Waiter>,
}

impl SubsetBarrier {
    pub(super) fn is_idle(&self) -> bool {
        self.there.is_empty()
    }

    /// Whether who expects so many threads can come in.
    fn is_of(&self, threads: u32) -> bool {
        threads > 0 && (self.there.is_empty() || self.threads == threads)
    }

    fn arrive(&mut self, waiter: Waiter, threads: u32, given: &mut Given) {
        self.threads = threads;
        self.there.push(waiter);
        if self.there.len() == threads as usize {
            given.extend(self.there.drain(..).map(|waiter| (waiter, true)));
        }
    }
}

impl SyncObjects {
    /// Thread `slot` comes to a barrier of `threads` threads; gives the answer when it is there at once: whether all
    /// were agreed on their number. Otherwise wait until woken or answered, and ask [`SyncObjects::collect`] for
    /// [`SyncRequest::Meet`].
    pub fn subset_barrier(
        &mut self,
        cx: &mut Context<'_>,
        id: SubsetBarrierId,
        threads: u32,
        slot: Slot,
    ) -> Option<bool> {
        let (request, name, object) = (SyncRequest::SubsetBarrier, id.0, SyncRequest::SubsetBarrier.object(id.0));
        let manager = object.manager(cx.nodes);
        self.question(slot, request, name);
        if manager == cx.me {
            let mut payload = Vec::new();
            if Rule::SubsetBarriersCarryNotices.on() {
                cx.payload.on_release(object.scope(), cx.me, &[], IntervalMark::NOW, &mut payload);
            }
            let waiter = Waiter { request, channel: Channel { node: cx.me, slot }, place: Place::Here };
            let come_in = self.arrive(cx, waiter, name, threads, &payload);
            debug_assert!(come_in.is_ok(), "nothing that a thread of this node says is refused");
            return self.collect(request, name, slot);
        }
        let payload = &mut *cx.payload;
        let target = Target::Request { node: manager, origin: Origin::Caller };
        cx.out.send_with(target, &Message::Meet { name, threads, payload: &[], knowledge: &[] }, |body| {
            // The empty payload's length ends the body so far.
            let length_at = body.len() - 4;
            if Rule::SubsetBarriersCarryNotices.on() {
                payload.on_release(object.scope(), manager, &[], IntervalMark::NOW, body);
            }
            let length = (body.len() - length_at - 4) as u32;
            body[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
            payload.knowledge(object.scope(), body);
        });
        None
    }

    /// At the manager: a thread elsewhere comes to a barrier.
    ///
    /// # Errors
    /// When no correct peer would have sent this.
    pub fn on_meet(
        &mut self,
        cx: &mut Context<'_>,
        (name, threads): (u64, u32),
        ticket: Ticket,
        (payload, knowledge): (&[u8], &[u8]),
    ) -> Result<(), Misbehaved> {
        let place = Place::There(ticket, knowledge.to_vec());
        self.arrive(
            cx,
            Waiter { request: SyncRequest::SubsetBarrier, channel: ticket.channel, place },
            name,
            threads,
            payload,
        )
    }

    fn arrive(
        &mut self,
        cx: &mut Context<'_>,
        waiter: Waiter,
        name: u64,
        threads: u32,
        payload: &[u8],
    ) -> Result<(), Misbehaved> {
        let object = SyncRequest::SubsetBarrier.object(name);
        self.step(cx, object, |entry, cx, given| {
            let from_here = waiter.place == Place::Here;
            match entry.subset_barrier()? {
                barrier if barrier.is_of(threads) => barrier.arrive(waiter, threads, given),
                _ => {
                    given.push((waiter, false));
                    return Ok(());
                }
            }
            entry.deposit(cx, object.scope(), payload, from_here);
            Ok(())
        })
    }
}
