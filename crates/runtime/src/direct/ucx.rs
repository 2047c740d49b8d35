//! One-sided operations by UCX, while messages take the job's backbone.
//!
//! An adapter may carry out atomic operations that the processors' own do not respect. So entries and wide words of
//! this node are changed through it too (*loopback*), and no unit is biased: the processor makes no change to an entry.
//! It loads entries, as the check of a store does.

use super::engine::lines_of;
use super::shm::Refusal;
use crate::error::{Error, Result};
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::lines::{ENTRY_BYTES, Lines};
use comem_net::ucx::{Invitation, Library, Peer, Worker};
use comem_protocol::coherence::direct::one_sided::{Place, Segment};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, OneSided};
use comem_protocol::ids::NodeId;
use comem_protocol::outbox::{Origin, Target};
use comem_protocol::wire::message::Message;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes of a word on which operations are atomic.
const WORD: u64 = size_of::<u64>() as u64;
/// How long the thread that attends the worker sleeps at most.
const ATTENDS: Duration = Duration::from_millis(100);

/// All nodes' memories, as UCX reaches them.
#[derive(Debug)]
pub(crate) struct Reached {
    worker: Worker,
    own: Invitation,
    /// Where locks are one-sided: the table of this node's.
    own_locks: Option<Invitation>,
    /// By node, this one too.
    peers: OnceLock<Vec<Peer>>,
    /// The tables of locks, by node, where there are any.
    lock_peers: OnceLock<Vec<Peer>>,
}

impl Reached {
    /// What reaches the table of locks at a node, once all have met.
    pub(crate) fn locks_of(&self, node: NodeId) -> Option<(&Worker, &Peer)> {
        Some((&self.worker, self.lock_peers.get()?.get(node.index())?))
    }

    /// How other nodes reach this one's memory, as the body of a message.
    pub(super) fn invitation(&self) -> Vec<u8> {
        let mut body = Vec::new();
        std::iter::once(&self.own).chain(&self.own_locks).for_each(|told| write_invitation(told, &mut body));
        body
    }
}

/// The operations of one thread on one region.
pub(crate) struct Ucx<'a> {
    reached: &'a Reached,
    lines: &'a Lines,
    /// The region's lines. Nothing else is touched.
    region: Range<usize>,
    is_lost: &'a dyn Fn(bool) -> bool,
}

impl<'a> Ucx<'a> {
    pub(crate) fn new(
        reached: &'a Reached,
        (shared, lines): (&Shared, &'a Lines),
        known: &RegionState,
        is_lost: &'a dyn Fn(bool) -> bool,
    ) -> Ucx<'a> {
        Ucx { reached, lines, region: lines_of(shared, lines, known), is_lost }
    }

    fn peer(&self, node: NodeId) -> std::result::Result<&'a Peer, Refusal> {
        self.reached.peers.get().and_then(|peers| peers.get(node.index())).ok_or(Refusal::NoMemory(node))
    }

    /// Who has the place, and where it is in the memory there.
    fn target(&self, at: Place, bytes: usize) -> std::result::Result<(&'a Peer, u64), Refusal> {
        let extent = self.lines.extent();
        let (begin, bytes_per_line) = match at.segment {
            Segment::Data => (0, LINE_BYTES),
            Segment::Entries => (extent.entries(), ENTRY_BYTES),
            Segment::Wide => (extent.wide(), extent.wide_words * size_of::<u64>()),
            Segment::Hazards | Segment::Claims | Segment::Locks => return Err(Refusal::Outside(at)),
        };
        let outside = || Refusal::Outside(at);
        let first = at.offset.checked_div(bytes_per_line as u64).ok_or_else(outside)?;
        let end = at.offset.checked_add(bytes as u64).ok_or_else(outside)?.div_ceil(bytes_per_line as u64);
        let is_within = self.region.start as u64 <= first && end <= self.region.end as u64;
        if is_within { Ok((self.peer(at.node)?, begin as u64 + at.offset)) } else { Err(outside()) }
    }

    fn failed(at: Place) -> impl FnOnce(io::Error) -> Refusal {
        move |error| match error.kind() {
            io::ErrorKind::Interrupted => Refusal::Lost,
            io::ErrorKind::InvalidInput => Refusal::Outside(at),
            _ => Refusal::Failed(at.node, error.to_string()),
        }
    }

    fn lost(&self) -> impl Fn() -> bool + '_ {
        || (self.is_lost)(true)
    }
}

impl OneSided for Ucx<'_> {
    type Error = Refusal;

    fn get(&mut self, from: Place, into: &mut [u8]) -> std::result::Result<(), Refusal> {
        let (peer, offset) = self.target(from, into.len())?;
        self.reached.worker.get(peer, offset, into, &self.lost()).map_err(Self::failed(from))
    }

    /// The library keeps no order between puts: each one is waited for.
    fn put(&mut self, to: Place, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let (peer, offset) = self.target(to, bytes.len())?;
        let put = self.reached.worker.put(peer, offset, bytes, &self.lost());
        put.and_then(|()| self.reached.worker.flush(peer, &self.lost())).map_err(Self::failed(to))
    }

    /// By a compare-and-swap of the word that the entry is part of, until nobody has changed that word meanwhile. A
    /// fetching OR would need no get, and is not used: that of libucx 1.13.1 may change nothing (decision 0068).
    fn fetch_and_set(&mut self, at: Place, holder: NodeId) -> std::result::Result<Entry, Refusal> {
        let (peer, offset) = self.target(at, ENTRY_BYTES)?;
        let (start, shift) = (offset - offset % WORD, offset % WORD * 8);
        let mut bytes = [0; WORD as usize];
        self.reached.worker.get(peer, start, &mut bytes, &self.lost()).map_err(Self::failed(at))?;
        let mut word = u64::from_ne_bytes(bytes);
        loop {
            let entry = Entry((word >> shift) as u16);
            if entry.is_busy() {
                return Ok(entry);
            }
            let others = word & !(u64::from(u16::MAX) << shift);
            let locked = others | u64::from(entry.after_fetch_and_set(holder).0) << shift;
            let swapped = self.reached.worker.compare_and_swap(peer, start, (word, locked), &self.lost());
            let found = swapped.map_err(Self::failed(at))?;
            if found == word {
                return Ok(entry);
            }
            word = found;
        }
    }

    fn fetch_add(&mut self, at: Place, summand: u64) -> std::result::Result<u64, Refusal> {
        let (peer, offset) = self.target(at, WORD as usize)?;
        self.reached.worker.fetch_add(peer, offset, summand, &self.lost()).map_err(Self::failed(at))
    }

    fn compare_and_swap(&mut self, at: Place, expected: u64, new: u64) -> std::result::Result<u64, Refusal> {
        let (peer, offset) = self.target(at, WORD as usize)?;
        let swapped = self.reached.worker.compare_and_swap(peer, offset, (expected, new), &self.lost());
        swapped.map_err(Self::failed(at))
    }

    fn flush(&mut self) -> std::result::Result<(), Refusal> {
        Ok(())
    }

    /// No unit is biased that a thread has ever stored to.
    fn quiesce(&mut self, _node: NodeId, _offset: u64, _bytes: u64) -> std::result::Result<(), Refusal> {
        Ok(())
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> Error + use<> {
    Error::system(format!("cannot {what} by UCX (--one-sided ucx)"))
}

impl Node {
    /// Prepares one-sided operations by UCX, if the job asks for them. To be called when this node has its heap, before
    /// any other may ask how its memory is reached.
    ///
    /// # Errors
    /// When the library is not there, or refuses.
    pub(crate) fn prepare_ucx(self: &Arc<Node>) -> Result<()> {
        let lines = self.shared().and_then(|shared| shared.views.as_ref()?.lines.as_ref());
        let Some(lines) = lines.filter(|_| self.config.uses_ucx()) else { return Ok(()) };
        let library = Library::load().map_err(|missing| Error::Start(format!("--one-sided ucx: {missing}")))?;
        if self.config.verbose {
            let ((major, minor, release), how) = (library.version(), comem_net::ucx::in_words());
            crate::error::say(format_args!(
                "comem: {}: one-sided operations of the engine direct go by {how} (libucp {major}.{minor}.{release})",
                self.name_of(self.me())
            ));
        }
        let worker = Worker::new(library, None).map_err(failed("begin"))?;
        let (start, bytes) = lines.whole();
        // SAFETY: the view of lines memory stays mapped for good, and all use it as memory of many threads.
        let own = unsafe { worker.invite(start, bytes) }.map_err(failed("let other nodes into lines memory"))?;
        let tables = self.sync.lock_tables().filter(|_| self.config.locks_go_by_ucx());
        let own_locks = tables.map(|tables| {
            let (start, bytes) = tables.own(self.me()).whole();
            // SAFETY: the node keeps its table, which all use as memory of many threads.
            unsafe { worker.invite(start, bytes) }.map_err(failed("let other nodes into the table of locks"))
        });
        let own_locks = own_locks.transpose()?;
        let (peers, lock_peers) = (OnceLock::new(), OnceLock::new());
        self.reach.set_ucx(Reached { worker, own, own_locks, peers, lock_peers });
        let node = self.clone();
        let attend = move || {
            while let (Some(reached), false) = (node.reach.ucx(), node.life.is_ending()) {
                if let Err(error) = reached.worker.attend(ATTENDS) {
                    return node.end_with(&failed("attend to other nodes' operations")(error));
                }
            }
        };
        comem_net::threads::start("comem-ucx", attend).map(drop).map_err(Error::system("cannot start a thread for UCX"))
    }
}

fn write_invitation(Invitation { address, key, start, bytes }: &Invitation, body: &mut Vec<u8>) {
    let numbers = [address.len() as u64, key.len() as u64, *start, *bytes].map(u64::to_be_bytes);
    [numbers.as_flattened(), address, key].iter().for_each(|part| body.extend(*part));
}

/// Reads one invitation; what follows it stays.
fn read_invitation(body: &mut &[u8]) -> Option<Invitation> {
    let (numbers, rest) = body.split_first_chunk::<32>()?;
    let number = |at: usize| u64::from_be_bytes(numbers[8 * at..8 * at + 8].try_into().expect("eight bytes"));
    let (address, rest) = rest.split_at_checked(usize::try_from(number(0)).ok()?)?;
    let (key, rest) = rest.split_at_checked(usize::try_from(number(1)).ok()?)?;
    *body = rest;
    Some(Invitation { address: address.to_vec(), key: key.to_vec(), start: number(2), bytes: number(3) })
}

impl Reached {
    /// Learns how the memories of all nodes are self. To be called when all are prepared.
    ///
    /// # Errors
    /// When one cannot be self.
    pub(crate) fn meet(&self, thread: &Thread) -> Result<()> {
        let node = thread.home();
        let (mut peers, mut lock_peers) = (Vec::new(), Vec::new());
        for of in NodeId::all(node.nodes()) {
            let (lines, locks) = self.invited_by(thread, of)?;
            let unreached = || failed(&format!("reach the memory of {}", node.name_of(of)));
            let peer = self.worker.accept(&lines).map_err(unreached()).map_err(|e| node.life.loss_or(e))?;
            if let Some(locks) = locks {
                lock_peers.push(self.worker.accept_more(&peer, &locks).map_err(unreached())?);
            }
            peers.push(peer);
        }
        let _ = self.peers.set(peers);
        if self.own_locks.is_some() {
            let _ = self.lock_peers.set(lock_peers);
        }
        Ok(())
    }

    /// A node's invitations: to its lines memory, and to its table of locks where there are such.
    fn invited_by(&self, thread: &Thread, of: NodeId) -> Result<(Invitation, Option<Invitation>)> {
        let node = thread.home();
        if of == node.me() {
            return Ok((self.own.clone(), self.own_locks.clone()));
        }
        node.slots[thread.slot()].expect_answer();
        let target = Target::Request { node: of, origin: Origin::Caller };
        thread.stepping(|out| out.send(target, &Message::Invite));
        let body = loop {
            match node.slots[thread.slot()].take_answer() {
                Some(body) => break body,
                None => thread.wait(Waiting::Operations(of))?,
            }
        };
        let nonsense = || Error::harm(format!("{} told nonsense of how its memory is reached", node.name_of(of)));
        let mut rest = &body[..];
        let like = |own: &Invitation, told: Option<Invitation>| {
            told.filter(|told| told.bytes == own.bytes).ok_or_else(nonsense)
        };
        let lines = like(&self.own, read_invitation(&mut rest))?;
        let locks = self.own_locks.as_ref().map(|own| like(own, read_invitation(&mut rest))).transpose()?;
        if rest.is_empty() { Ok((lines, locks)) } else { Err(nonsense()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitations_that_follow_one_another_are_read_and_cut_ones_are_not() {
        let lines = Invitation { address: vec![1, 2, 3], key: vec![4; 70], start: 1 << 44, bytes: 1 << 42 };
        let locks = Invitation { address: vec![], key: vec![5], start: 4096, bytes: 1 << 26 };
        let mut body = Vec::new();
        [&lines, &locks].iter().for_each(|told| write_invitation(told, &mut body));
        let mut rest = &body[..];
        assert_eq!([read_invitation(&mut rest), read_invitation(&mut rest)], [Some(lines), Some(locks)]);
        assert_eq!((rest, read_invitation(&mut rest)), (&[][..], None));
        for len in 0..32 + 3 + 70 {
            assert_eq!(read_invitation(&mut &body[..len]), None, "{len} bytes");
        }
        body[..8].fill(0xff);
        assert_eq!(read_invitation(&mut &body[..]), None, "an address that is longer than the message");
    }
}
