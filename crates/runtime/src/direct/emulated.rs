//! One-sided operations over a backbone that has none: the service thread of the other node carries them out
//! (*emulated*).
//!
//! A batch goes out as [`split`] says: one message to each node, whose answer says that all of it is done. The thread
//! sends from its own socket and waits there, as for a page. What comes with an answer is stored by the thread itself.

use super::here::{Here, Span};
use super::miss::Reach;
use comem_protocol::coherence::direct::group::{Batches, Joint, side_by_side};
use comem_protocol::coherence::direct::remote::{Answer, Brought, Command, Request, Step, UnitAt, split};
use comem_protocol::coherence::direct::{Op, Reply};
use comem_protocol::ids::NodeId;
use comem_protocol::wire::bytes::WireError;
use smallvec::SmallVec;

/// How long a target keeps a request that waits for an entry before it says that the entry is still locked. The
/// sender looks then whether the job is lost.
const PAUSE_US: u16 = 10_000;

/// How a thread sends requests and gets the answers.
pub(crate) trait Post {
    /// Why it cannot.
    type Error;

    /// The number of the thread's next request.
    fn next_serial(&mut self) -> u16;

    /// Sends a request.
    fn send(&mut self, to: NodeId, request: &Request) -> Result<(), Self::Error>;

    /// Waits for the answer of a node to the request with this number; gives its body.
    fn answer(&mut self, from: NodeId, serial: u16) -> Result<Vec<u8>, Self::Error>;

    /// An entry was locked by a thread of this node, or by nobody.
    fn found(&mut self, holder: Option<NodeId>);

    /// The node's answer makes no sense.
    fn nonsense(&self, from: NodeId, why: WireError) -> Self::Error;

    /// The node has not carried a request out: the region was freed.
    fn freed(&self) -> Self::Error;
}

/// Carries operations out by messages.
pub(crate) struct Emulated<P> {
    /// Sends them.
    pub(crate) post: P,
}

/// A request that is not answered yet.
struct Sent {
    to: NodeId,
    request: Request,
}

impl<P: Post> Reach for Emulated<P> {
    type Error = P::Error;

    fn carry_out(&mut self, batch: &[Op], here: &mut Here<'_>) -> Result<Reply, P::Error> {
        let mut sent = SmallVec::<[Sent; 4]>::new();
        let mut reply = Reply::Done;
        for step in split(here.me, batch) {
            match step {
                Step::Here(op) => reply = here.operate(&op),
                Step::Send(to, ops) => sent.push(self.send(to, &ops, here.span)?),
                Step::Await => {
                    let mut has_paused = false;
                    for Sent { to, request } in sent.drain(..) {
                        has_paused |= request.commands.iter().any(|command| matches!(command, Command::Pause(_)));
                        reply = self.take_answer(to, &request, here)?;
                    }
                    if has_paused && (here.is_lost)(true) {
                        reply = Reply::Lost;
                    }
                }
            }
            if reply == Reply::Lost {
                break;
            }
        }
        Ok(reply)
    }

    fn carry_out_all(
        &mut self,
        batches: &Batches,
        spans: &[Span],
        here: &mut Here<'_>,
        replies: &mut [Reply],
    ) -> Result<(), P::Error> {
        let mut sent = SmallVec::<[(usize, Sent); 32]>::new();
        let lists = batches.iter().map(|(number, batch)| (*number, split(here.me, batch)));
        for joint in side_by_side(lists, |step| *step == Step::Await) {
            match joint {
                Joint::One(number, Step::Here(op)) => {
                    here.span = spans[number];
                    replies[number] = here.operate(&op);
                }
                Joint::One(number, Step::Send(to, ops)) => sent.push((number, self.send(to, &ops, spans[number])?)),
                Joint::One(_, Step::Await) | Joint::Together(_) => {
                    for (number, Sent { to, request }) in sent.drain(..) {
                        here.span = spans[number];
                        replies[number] = self.take_answer(to, &request, here)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl<P: Post> Emulated<P> {
    fn send(&mut self, to: NodeId, ops: &[Op], span: Span) -> Result<Sent, P::Error> {
        let commands = ops.iter().filter_map(|op| Command::of(op, PAUSE_US)).collect();
        let request = Request { serial: self.post.next_serial(), unit: span.unit(), commands };
        self.post.send(to, &request)?;
        Ok(Sent { to, request })
    }

    /// Waits for an answer, and stores the bytes that it brings.
    fn take_answer(&mut self, from: NodeId, request: &Request, here: &mut Here<'_>) -> Result<Reply, P::Error> {
        let body = self.post.answer(from, request.serial)?;
        let mut reply = Reply::Done;
        let take = |brought: Brought<'_>| match brought {
            Brought::Entry(entry) => reply = Reply::Entry(entry),
            Brought::Wide(holders) => reply = Reply::Wide(holders),
            Brought::Data(bytes) => here.memory.write(here.span.offset(), bytes),
        };
        let answer = Answer::parse(&body).map_err(|why| self.post.nonsense(from, why))?;
        if !answer.is_done {
            return Err(self.post.freed());
        }
        answer.each(request.unit, &request.commands, take).map_err(|why| self.post.nonsense(from, why))?;
        if let Reply::Entry(entry) = &reply {
            self.post.found(entry.holder());
        }
        Ok(reply)
    }
}

impl Span {
    /// The unit, as messages name it.
    fn unit(&self) -> UnitAt {
        UnitAt::new(self.line as u64, self.lines as u16).expect("a unit begins at a multiple of its size")
    }
}
