//! Meetings: barriers of some of the job's threads, named by any number (the barriers of PARMACS, which name how many
//! processes come: E. Lusk et al., *Portable Programs for Parallel Processors*, 1987).
//!
//! | at the manager | a thread comes that expects `n` in all |
//! |---|---|
//! | nobody is there | it waits; the meeting is one of `n` |
//! | a meeting of `n`, not the last | it waits |
//! | a meeting of `n`, the last | all go on |
//! | a meeting of another number | it is told so and does not come in |
//!
//! To come is a release and to go on is an acquire of what all who came have released. Nothing is kept between meetings: what
//! somebody learnt at one, they say again at the next. So any threads may come each time; and, unlike the barrier of all
//! threads, a meeting ends no epoch: it clears no notices, collects no intervals and moves no homes.

use super::desk::{Desk, Given, Place, Waiter};
use super::{Context, Mark};
use crate::coherence::Misbehaved;
use crate::ids::{Channel, Slot};
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Message, Ticket, Wish};

/// A meeting, named by any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MeetingId(pub u64);

/// A meeting at its manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Meeting {
    /// How many are to come.
    threads: u32,
    there: Vec<Waiter>,
}

impl Meeting {
    pub(super) fn is_idle(&self) -> bool {
        self.there.is_empty()
    }

    /// Whether who expects so many threads can come in.
    fn is_of(&self, threads: u32) -> bool {
        threads > 0 && (self.there.is_empty() || self.threads == threads)
    }

    fn come(&mut self, waiter: Waiter, threads: u32, given: &mut Given) {
        self.threads = threads;
        self.there.push(waiter);
        if self.there.len() == threads as usize {
            given.extend(self.there.drain(..).map(|waiter| (waiter, true)));
        }
    }
}

impl Desk {
    /// Thread `slot` comes to a meeting of `threads` threads; gives the answer when it is there at once: whether all were
    /// agreed on their number. Otherwise wait until woken or answered, and ask [`Desk::collect`] for [`Wish::Meet`].
    pub fn meet(&mut self, cx: &mut Context<'_>, id: MeetingId, threads: u32, slot: Slot) -> Option<bool> {
        let (wish, name, thing) = (Wish::Meet, id.0, Wish::Meet.thing(id.0));
        let manager = thing.manager(cx.nodes);
        self.question(slot, wish, name);
        if manager == cx.me {
            let mut payload = Vec::new();
            if Rule::MeetingsTell.on() {
                cx.payload.on_release(thing.scope(), cx.me, &[], Mark::NOW, &mut payload);
            }
            let waiter = Waiter { wish, channel: Channel { node: cx.me, slot }, place: Place::Here };
            let come_in = self.come(cx, waiter, name, threads, &payload);
            debug_assert!(come_in.is_ok(), "nothing that a thread of this node says is refused");
            return self.collect(wish, name, slot);
        }
        let payload = &mut *cx.payload;
        let target = Target::Request { node: manager, origin: Origin::Caller };
        cx.out.send_with(target, &Message::Meet { name, threads, payload: &[], knowledge: &[] }, |body| {
            // The empty payload's length ends the body so far.
            let length_at = body.len() - 4;
            if Rule::MeetingsTell.on() {
                payload.on_release(thing.scope(), manager, &[], Mark::NOW, body);
            }
            let length = (body.len() - length_at - 4) as u32;
            body[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
            payload.knowledge(thing.scope(), body);
        });
        None
    }

    /// At the manager: a thread elsewhere comes to a meeting.
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
        self.come(cx, Waiter { wish: Wish::Meet, channel: ticket.channel, place }, name, threads, payload)
    }

    fn come(
        &mut self,
        cx: &mut Context<'_>,
        waiter: Waiter,
        name: u64,
        threads: u32,
        payload: &[u8],
    ) -> Result<(), Misbehaved> {
        let thing = Wish::Meet.thing(name);
        self.step(cx, thing, |entry, cx, given| {
            let from_here = waiter.place == Place::Here;
            match entry.meeting()? {
                meeting if meeting.is_of(threads) => meeting.come(waiter, threads, given),
                _ => {
                    given.push((waiter, false));
                    return Ok(());
                }
            }
            entry.deposit(cx, thing.scope(), payload, from_here);
            Ok(())
        })
    }
}
