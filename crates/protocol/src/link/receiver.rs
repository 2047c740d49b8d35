//! What a node remembers of one remote channel: which packets it has seen, which messages are half in, which requests
//! it has answered and with what.
//!
//! A request is in one of three states until it is forgotten:
//!
//! | state | when it comes again |
//! |---|---|
//! | pending | it is noted: an acknowledgement tells its sender to be patient |
//! | forwarded to a node | that node is asked to send its stored reply again; noted when it has come often |
//! | replied | the stored reply is sent again |
//!
//! Forgetting needs no timer. Each request tells how far back its channel still waits; and the channel has at most
//! `requests_max` numbers of requests between its newest and the oldest it waits for, so when more are remembered,
//! the oldest of them is over. That holds also at a third node, which answers requests that were sent to another.
//!
//! Memory, in bytes, for each remote channel that has ever sent anything:
//!
//! ```text
//! receive windows          3 x 528
//! + messages half in       ASSEMBLY_BYTES_MAX, never more than ASSEMBLIES_MAX of them
//! + free messages half in  FREE_ASSEMBLIES_MAX x FREE_BYTES_MAX
//! + requests remembered    requests_max x (64 + a stored reply)
//! + spare buffers          SPARES_BYTES_MAX
//! ```
//!
//! A thread that waits for each reply before its next request occupies one stored reply.

use super::congestion::WINDOW_INITIAL;
use super::control::{ACK_WORDS, AckRepr, ResendRepr};
use super::fragment::{Assembly, Cut, Have, TOTAL_MAX, has};
use super::reply::LongReply;
use super::window::{Place, ReceiveWindow, Ring, WINDOW};
use super::{Class, LinkConfig, Spares, lane_of};
use crate::ids::{Channel, NodeId, Seq};
use crate::rules::Rule;
use crate::wire::bytes::{Reader, WireError};
use crate::wire::header::{HeaderRepr, MsgType, Packet};
use std::borrow::Cow;
use std::collections::VecDeque;

/// An acknowledgement of so many packets presses, and one of fewer may lie unread: the sender has room for as many
/// more.
const PRESSING_AFTER: u32 = WINDOW_INITIAL / 2;

/// Messages of one channel that may be half in at a time.
pub const ASSEMBLIES_MAX: usize = 16;
/// Bytes that they may have together; room for the longest message at least.
pub const ASSEMBLY_BYTES_MAX: usize = 2 * (TOTAL_MAX + 1);
/// Free messages of one channel that may be half in at a time. Nobody sends what is missing again: when one more begins
/// to come, the oldest is given up.
const FREE_ASSEMBLIES_MAX: usize = 2;
/// Bytes of a free message in several datagrams.
const FREE_BYTES_MAX: usize = 512 << 10;

/// From this repetition on a forwarded request is noted like a pending one. The first few are more likely to mean that
/// the reply was lost on its way, and a noted request would ask for it late; many mean a wait, for a lock perhaps, in
/// which this node should be heard of.
const FORWARDED_NOTED_FROM: u8 = 4;

/// What a packet meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival<'p> {
    /// A message is complete: process it, now and only now.
    Message {
        /// The number of its first packet, its name.
        seq: Seq,
        /// How it was sent; a request wants a reply to `seq`.
        class: Class,
        /// What it is about.
        ty: MsgType,
        /// Its body. Owned when it came in fragments: [`PeerChannel::recycle`] takes it back.
        body: Cow<'p, [u8]>,
    },
    /// Part of a message that is not complete yet.
    Incomplete,
    /// Seen before: do not process it.
    Duplicate(Repeat),
    /// Older than anything the sender can still be waiting for.
    Stale,
}

/// What a guarded packet would be to its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'p> {
    /// The beginning, which has not been here yet: the message's first bytes.
    Beginning(&'p [u8]),
    /// What follows a beginning that is here, or what was here before.
    Following,
    /// What has come before its beginning.
    Ahead,
}

/// What to do about a packet that was seen before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// A request that was answered: send [`PeerChannel::stored_reply`] again.
    Reply,
    /// A request that was handed to this node: ask it to send its stored reply again.
    Forwarded(NodeId),
    /// A request in work: the next acknowledgement will say so.
    Pending,
    /// Needs no answer but an acknowledgement, if any.
    Post,
}

#[derive(Debug)]
struct Request {
    counter: u64,
    state: RequestState,
}

#[derive(Debug)]
enum RequestState {
    Pending,
    Forwarded(NodeId),
    Replied(Stored),
}

/// A reply, in case it is asked for again.
#[derive(Debug)]
enum Stored {
    /// Sealed datagrams of `segment` bytes each but the last.
    Datagrams { datagrams: Vec<u8>, segment: usize },
    /// As it was made.
    Long(LongReply),
}

impl Stored {
    /// Appends the datagrams of the fragments that are not there, and returns the length of each but the last.
    fn append_missing(&self, have: &Have, out: &mut Vec<u8>) -> usize {
        match self {
            Stored::Datagrams { datagrams, segment } => {
                for (index, datagram) in datagrams.chunks((*segment).max(1)).enumerate() {
                    if index >= 256 || !has(have, index) {
                        out.extend_from_slice(datagram);
                    }
                }
                *segment
            }
            Stored::Long(reply) => reply.append_missing(have, out),
        }
    }

    fn kept_bytes(&self) -> usize {
        match self {
            Stored::Datagrams { datagrams, .. } => datagrams.len(),
            Stored::Long(reply) => reply.kept_bytes(),
        }
    }

    fn into_buffer(self) -> Vec<u8> {
        match self {
            Stored::Datagrams { datagrams, .. } => datagrams,
            Stored::Long(reply) => reply.into_bytes(),
        }
    }
}

/// The receiving side of one remote channel.
#[derive(Debug)]
pub struct PeerChannel {
    channel: Channel,
    requests_max: usize,
    guarded: ReceiveWindow,
    /// Of the guarded packets seen, those that an acknowledgement may name. A request that came whole is not among them
    /// until it was repeated: its acknowledgement is the reply.
    acknowledged: Ring,
    free: ReceiveWindow,
    /// The numbers (first and last) between which acknowledgements are owed.
    owed: Option<(u64, u64)>,
    /// Packets for which one was owed since the last that pressed.
    unpressed: u32,
    /// With the first counter of each, and its lane.
    assemblies: Vec<(u64, usize, Assembly)>,
    free_assemblies: Vec<(u64, Assembly)>,
    /// In order of their counters.
    requests: VecDeque<Request>,
    spares: Spares,
}

/// A guarded packet, taken apart.
struct Guarded<'p> {
    counter: u64,
    /// The counter of its message's first packet.
    first: u64,
    class: Class,
    lane: usize,
    /// The oldest counter that the channel still keeps; requests alone tell.
    oldest: u64,
    cut: Cut,
    index: usize,
    bytes: &'p [u8],
}

impl<'p> Guarded<'p> {
    fn parse(packet: &Packet<'p>) -> Result<Guarded<'p>, WireError> {
        let mut r = Reader::new(packet.payload);
        let counter = packet.header.seq.counter();
        let class = if packet.header.flags.ack_requested { Class::Request } else { Class::Post };
        let mut oldest = 0;
        if class == Class::Request {
            let delta = u64::from(r.u16()?);
            oldest = counter.checked_sub(delta).filter(|_| delta <= WINDOW).ok_or(WireError::BadValue("delta"))?;
        }
        let (cut, index, bytes) = Cut::parse(packet.header.frag, &mut r)?;
        let first = counter.checked_sub(index as u64).ok_or(WireError::BadValue("fragment"))?;
        Ok(Guarded { counter, first, class, lane: lane_of(packet.header.ty), oldest, cut, index, bytes })
    }

    fn is_last(&self) -> bool {
        self.index + 1 == self.cut.count
    }
}

impl PeerChannel {
    /// Nothing has been heard from `channel` yet.
    pub fn new(channel: Channel, config: &LinkConfig) -> PeerChannel {
        PeerChannel {
            channel,
            requests_max: config.requests_max(channel.slot),
            guarded: ReceiveWindow::new(),
            acknowledged: Ring::new(),
            free: ReceiveWindow::new(),
            owed: None,
            unpressed: 0,
            assemblies: Vec::new(),
            free_assemblies: Vec::new(),
            requests: VecDeque::new(),
            spares: Spares::default(),
        }
    }

    /// Takes in a packet of this channel that is not a reply, an acknowledgement or a resend.
    ///
    /// # Errors
    /// Says what is wrong with the packet, which then has had no effect.
    pub fn on_packet<'p>(&mut self, packet: &Packet<'p>) -> Result<Arrival<'p>, WireError> {
        let header = &packet.header;
        if packet.channel != self.channel || header.flags.ack {
            return Err(WireError::BadValue("sender"));
        }
        if header.seq.is_free() {
            return self.on_free(packet);
        }
        let guarded = Guarded::parse(packet)?;
        self.forget_before(guarded.oldest);
        match self.guarded.place(guarded.counter) {
            Place::Stale => Ok(Arrival::Stale),
            Place::Seen if Rule::AtMostOnce.on() || guarded.cut.count > 1 => Ok(self.on_duplicate(&guarded, header)),
            Place::Seen | Place::New => self.on_new(guarded, header.ty),
        }
    }

    /// What [`PeerChannel::on_packet`] would take a guarded packet for, which may as well be left unseen: then it will
    /// be sent again.
    ///
    /// # Errors
    /// Says what is wrong with the packet.
    pub fn part_of<'p>(&self, packet: &Packet<'p>) -> Result<Part<'p>, WireError> {
        if packet.header.seq.is_free() {
            return Err(WireError::BadValue("class"));
        }
        let guarded = Guarded::parse(packet)?;
        let has_been_here = |counter| self.guarded.place(counter) != Place::New;
        Ok(match guarded.index {
            _ if has_been_here(guarded.counter) || has_been_here(guarded.first) => Part::Following,
            0 => Part::Beginning(guarded.bytes),
            _ => Part::Ahead,
        })
    }

    fn on_free<'p>(&mut self, packet: &Packet<'p>) -> Result<Arrival<'p>, WireError> {
        let (seq, class, ty) = (packet.header.seq, Class::Free, packet.header.ty);
        let (cut, index, bytes) = Cut::parse(packet.header.frag, &mut Reader::new(packet.payload))?;
        let first = seq.counter().checked_sub(index as u64).filter(|_| cut.count == 1 || cut.total <= FREE_BYTES_MAX);
        let Some(first) = first.filter(|_| !packet.header.flags.ack_requested) else {
            return Err(WireError::BadValue("fragment"));
        };
        match self.free.place(seq.counter()) {
            Place::Stale => return Ok(Arrival::Stale),
            Place::Seen if Rule::AtMostOnce.on() || cut.count > 1 => return Ok(Arrival::Duplicate(Repeat::Post)),
            Place::Seen | Place::New => {}
        }
        if cut.count == 1 {
            self.free.insert(seq.counter());
            return Ok(Arrival::Message { seq, class, ty, body: Cow::Borrowed(bytes) });
        }
        let whole = self.assemble_free(first, cut, (index, bytes))?;
        self.free.insert(seq.counter());
        Ok(whole.map_or(Arrival::Incomplete, |body| {
            let seq = Seq::free(self.channel, first);
            Arrival::Message { seq, class, ty, body: Cow::Owned(body) }
        }))
    }

    /// Takes in a fragment of a free message; returns the message when it is complete.
    fn assemble_free(
        &mut self,
        first: u64,
        cut: Cut,
        (index, bytes): (usize, &[u8]),
    ) -> Result<Option<Vec<u8>>, WireError> {
        let at = match self.free_assemblies.iter().position(|(of, _)| *of == first) {
            Some(at) if self.free_assemblies[at].1.cut() != cut => return Err(WireError::BadValue("fragment")),
            Some(at) => at,
            None => {
                if self.free_assemblies.len() == FREE_ASSEMBLIES_MAX {
                    let given_up = self.free_assemblies.remove(0).1.into_bytes();
                    self.spares.give(given_up);
                }
                self.free_assemblies.push((first, Assembly::new(cut, &mut self.spares)));
                self.free_assemblies.len() - 1
            }
        };
        self.free_assemblies[at].1.insert(index, bytes);
        let complete = self.free_assemblies[at].1.is_complete();
        Ok(complete.then(|| self.free_assemblies.remove(at).1.into_bytes()))
    }

    fn on_new<'p>(&mut self, packet: Guarded<'p>, ty: MsgType) -> Result<Arrival<'p>, WireError> {
        let body = if packet.cut.count == 1 {
            self.guarded.insert(packet.counter);
            if packet.class == Class::Post {
                self.owe(packet.counter);
            }
            Cow::Borrowed(packet.bytes)
        } else {
            match self.assemble(&packet)? {
                Some(body) => Cow::Owned(body),
                None => return Ok(Arrival::Incomplete),
            }
        };
        if packet.class == Class::Request {
            self.remember(packet.first, RequestState::Pending);
        }
        let seq = Seq::guarded(self.channel, packet.first);
        Ok(Arrival::Message { seq, class: packet.class, ty, body })
    }

    /// Takes in a fragment; returns the message when it is complete. When no more messages may be half in, the fragment
    /// is left unseen, to be sent again later.
    fn assemble(&mut self, packet: &Guarded<'_>) -> Result<Option<Vec<u8>>, WireError> {
        let start = self.guarded.start();
        self.assemblies.retain(|(first, _, a)| first + a.cut().count as u64 > start);
        let at = match self.assemblies.iter().position(|(first, ..)| *first == packet.first) {
            Some(at) => at,
            None => {
                // The beginning of a program's message may be left unseen for long: such messages have half of the room
                // among themselves.
                let has_room = (0..=packet.lane).all(|lane| {
                    let half_in = self.assemblies.iter().filter(|(_, of, _)| *of >= lane);
                    let bytes: usize = half_in.clone().map(|(.., a)| a.cut().total).sum();
                    half_in.count() < ASSEMBLIES_MAX >> lane && bytes + packet.cut.total <= ASSEMBLY_BYTES_MAX >> lane
                });
                if !has_room {
                    return Ok(None);
                }
                self.assemblies.push((packet.first, packet.lane, Assembly::new(packet.cut, &mut self.spares)));
                self.assemblies.len() - 1
            }
        };
        let assembly = &mut self.assemblies[at].2;
        if assembly.cut() != packet.cut {
            return Err(WireError::BadValue("fragment"));
        }
        assembly.insert(packet.index, packet.bytes);
        let complete = assembly.is_complete();
        self.guarded.insert(packet.counter);
        self.owe(packet.counter);
        Ok(complete.then(|| self.assemblies.swap_remove(at).2.into_bytes()))
    }

    fn on_duplicate<'p>(&mut self, packet: &Guarded<'p>, header: &HeaderRepr) -> Arrival<'p> {
        if packet.class == Class::Post {
            self.owe_again(packet.counter);
            return Arrival::Duplicate(Repeat::Post);
        }
        let whole = packet.cut.count == 1;
        let Ok(at) = self.find(packet.first) else {
            if whole {
                return Arrival::Stale;
            }
            self.owe_again(packet.counter);
            return Arrival::Duplicate(Repeat::Post);
        };
        // Of a request in fragments the sender repeats the last one when it asks for the reply; any other is a late
        // double.
        if !packet.is_last() {
            self.owe_again(packet.counter);
            return Arrival::Duplicate(Repeat::Post);
        }
        match self.requests[at].state {
            RequestState::Replied(_) if whole && !Rule::RepliesAreStored.on() => Arrival::Message {
                seq: Seq::guarded(self.channel, packet.first),
                class: Class::Request,
                ty: header.ty,
                body: Cow::Borrowed(packet.bytes),
            },
            RequestState::Replied(_) => Arrival::Duplicate(Repeat::Reply),
            RequestState::Forwarded(node) => {
                if header.retrans >= FORWARDED_NOTED_FROM {
                    self.owe_again(packet.counter);
                }
                Arrival::Duplicate(Repeat::Forwarded(node))
            }
            RequestState::Pending => {
                self.owe_again(packet.counter);
                Arrival::Duplicate(Repeat::Pending)
            }
        }
    }

    /// What came once more is waited for.
    fn owe_again(&mut self, counter: u64) {
        self.owe(counter);
        self.unpressed = PRESSING_AFTER;
    }

    fn owe(&mut self, counter: u64) {
        self.acknowledged.set(counter);
        self.unpressed = self.unpressed.saturating_add(1);
        let (first, last) = self.owed.unwrap_or((counter, counter));
        let last = last.max(counter);
        // What lies further back is remembered no more.
        self.owed = Some((first.min(counter).max(last.saturating_sub(WINDOW)), last));
    }

    /// The acknowledgement to send next; call it when the socket is drained, until it returns `None`. It also repeats
    /// what was acknowledged shortly before, in case that got lost.
    pub fn owed_ack(&mut self) -> Option<AckRepr> {
        let (first, last) = self.owed.take()?;
        if self.ack_presses() {
            self.unpressed = 0;
        }
        let start = (first / 64).saturating_sub(1);
        let mut end = last / 64 + 1;
        if end - start > ACK_WORDS as u64 {
            end = start + ACK_WORDS as u64;
            self.owed = Some((end * 64, last));
        }
        let mut ack = AckRepr::new(self.channel, start * 64);
        (start..end).for_each(|index| ack.push(self.acknowledged.word(index)));
        Some(ack)
    }

    /// Whether the sender may wait for the acknowledgement that is owed: it has sent something again, or half as many
    /// packets as its window holds at the start. Any other may lie unread until the sender looks by itself.
    pub fn ack_presses(&self) -> bool {
        self.unpressed >= PRESSING_AFTER
    }

    /// Whether [`PeerChannel::owed_ack`] would return something.
    pub fn owes_ack(&self) -> bool {
        self.owed.is_some()
    }

    /// Notes that another node will answer request `seq`.
    pub fn mark_forwarded(&mut self, seq: Seq, node: NodeId) {
        self.remember(seq.counter(), RequestState::Forwarded(node));
    }

    /// Keeps the reply to request `seq`: sealed datagrams of `segment` bytes each but the last.
    pub fn store_reply(&mut self, seq: Seq, datagrams: Vec<u8>, segment: usize) {
        self.remember(seq.counter(), RequestState::Replied(Stored::Datagrams { datagrams, segment }));
    }

    /// As [`PeerChannel::store_reply`], for one that was sent from where it was made.
    pub fn store_long_reply(&mut self, seq: Seq, reply: LongReply) {
        self.remember(seq.counter(), RequestState::Replied(Stored::Long(reply)));
    }

    /// An empty buffer for about `len` bytes, from those that earlier replies left.
    pub fn spare(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spares.take(len);
        buffer.clear();
        buffer
    }

    /// Appends the stored reply to the request, without the fragments that are there already, and returns the length of
    /// each datagram but the last; `None` when no reply is stored.
    pub fn stored_reply(&self, resend: &ResendRepr, out: &mut Vec<u8>) -> Option<usize> {
        let at = self.find(resend.seq.counter()).ok()?;
        let RequestState::Replied(stored) = &self.requests[at].state else { return None };
        Some(stored.append_missing(&resend.have, out))
    }

    /// Takes back the buffer of a message that came in fragments.
    pub fn recycle(&mut self, body: Cow<'_, [u8]>) {
        if let Cow::Owned(buffer) = body {
            self.spares.give(buffer);
        }
    }

    /// Bytes of messages half in and of stored replies.
    pub fn kept_bytes(&self) -> usize {
        let guarded = self.assemblies.iter().map(|(.., a)| a);
        let half_in: usize = guarded.chain(self.free_assemblies.iter().map(|(_, a)| a)).map(|a| a.cut().total).sum();
        let requests = self.requests.iter().map(|r| match &r.state {
            RequestState::Replied(stored) => size_of::<Request>() + stored.kept_bytes(),
            RequestState::Pending | RequestState::Forwarded(_) => size_of::<Request>(),
        });
        half_in + requests.sum::<usize>()
    }

    fn find(&self, counter: u64) -> Result<usize, usize> {
        match self.requests.back() {
            Some(newest) if newest.counter < counter => Err(self.requests.len()),
            _ => self.requests.binary_search_by_key(&counter, |r| r.counter),
        }
    }

    fn remember(&mut self, counter: u64, state: RequestState) {
        let old = match self.find(counter) {
            Ok(at) => Some(std::mem::replace(&mut self.requests[at].state, state)),
            Err(at) => {
                self.requests.insert(at, Request { counter, state });
                let over = self.requests.len() > self.requests_max;
                if over { self.requests.pop_front().map(|r| r.state) } else { None }
            }
        };
        self.reuse(old);
    }

    fn forget_before(&mut self, oldest: u64) {
        while self.requests.front().is_some_and(|r| r.counter < oldest) {
            let old = self.requests.pop_front().map(|r| r.state);
            self.reuse(old);
        }
    }

    fn reuse(&mut self, old: Option<RequestState>) {
        if let Some(RequestState::Replied(stored)) = old {
            self.spares.give(stored.into_buffer());
        }
    }
}
