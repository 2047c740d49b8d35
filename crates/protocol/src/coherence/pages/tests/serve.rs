//! What a home does when it is asked for pages.

use super::*;
use crate::coherence::pages::desk::Desk;
use crate::coherence::pages::serve::{PageRooms, on_fetch};
use crate::coherence::pages::wire::Fetch;
use crate::ids::{Channel, Seq, Slot};
use crate::outbox::Outbox;
use crate::wire::message::Ticket;

/// The rooms of a home with one chunk, which know in which kind of step pages were copied out.
struct Rooms {
    bench: Bench,
    desk: Desk,
    shares: bool,
    copied: Vec<bool>,
}

impl PageRooms for Rooms {
    fn chunk<R>(
        &mut self,
        _: PageNo,
        _: &mut Outbox,
        step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let result = self.bench.step(|chunk, cx, _| step(chunk, cx));
        let copies = self.bench.memory.calls.iter().filter(|call| call.starts_with("copy_out")).count();
        self.copied.extend((0..copies).map(|_| self.shares));
        Some(result)
    }

    fn shared_chunk<R>(
        &mut self,
        page: PageNo,
        out: &mut Outbox,
        step: impl FnOnce(&mut Chunk, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.shares = true;
        let result = self.chunk(page, out, step);
        self.shares = false;
        result
    }

    fn page_desk<R>(&mut self, step: impl FnOnce(&mut Desk) -> R) -> R {
        step(&mut self.desk)
    }
}

/// A thread may write behind the copying and end its interval before it is over: then that must come by this chunk.
#[test]
fn pages_are_copied_out_in_steps_that_closes_know_of() {
    let mut rooms = Rooms { bench: Bench::new(ME, true), desk: Desk::default(), shares: false, copied: Vec::new() };
    let ticket = Ticket { channel: Channel { node: OTHER, slot: Slot::thread(0) }, seq: Seq(1) };
    let mut body = Vec::new();
    Fetch { epoch: 0, claim: false, direct: false, needs: Vec::new(), runs: vec![0..2] }.emit(&mut body);
    on_fetch(&mut rooms, ticket, &body, &mut Outbox::new()).unwrap();
    assert_eq!(rooms.copied, [true]);
}
