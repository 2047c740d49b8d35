//! Datagrams that nobody keeps for repetition: replies, acknowledgements, wishes for a resend.
//!
//! Their numbers come from the upper half of the channel's free space, so that they never meet those of the free
//! messages that the channel's [`Sender`](super::Sender) numbers. Receivers do not look at them: a reply counts by the
//! request it answers, and acknowledgements and resends do no harm when they come twice.

use super::control::{AckRepr, ResendRepr};
use super::fragment::{Cut, Have, has};
use super::{LinkConfig, REPLY_BYTES, SendError};
use crate::auth::{Receiver, Sealer, TAG_BYTES};
use crate::ids::{COUNTER_BITS, Channel, NodeId, Seq};
use crate::wire::bytes::Put;
use crate::wire::header::{Flags, HEADER_BYTES, HeaderRepr, LEN_AT, MsgType};

const REPLY_HALF: u64 = 1 << (COUNTER_BITS - 2);

/// What a datagram has before its fragment of a reply.
pub const LEAD: usize = HEADER_BYTES + REPLY_BYTES + super::FRAGMENT_BYTES;
/// The shortest fragment that is sent from where the reply was made, and received where it belongs: of shorter ones the
/// system takes and gives several at a time.
pub(super) const FRAGMENT_MIN: usize = 16 << 10;

/// A reply in long fragments, which are sent from where it was made. A datagram is one piece, so each in turn gets what
/// stands before its fragment over the end of the one before, of which as much is kept aside.
#[derive(Debug)]
pub struct LongReply {
    cut: Cut,
    /// What stands before each fragment, and behind it.
    ends: Vec<Ends>,
    /// Bytes of each tag.
    tag_len: usize,
    /// Room for the first lead, then the body, then room for the last tag.
    bytes: Vec<u8>,
}

/// What a datagram has besides its fragment.
#[derive(Clone, Copy, Debug)]
struct Ends {
    lead: [u8; LEAD],
    tag: [u8; TAG_BYTES],
}

impl LongReply {
    /// Hands out each datagram in turn, the reply once as it stands.
    pub fn each_datagram(&mut self, mut send: impl FnMut(&[u8])) {
        for (index, ends) in self.ends.iter().enumerate() {
            let (start, end) = span(self.cut, index);
            let after = end + self.tag_len;
            let kept_tag = swap(&mut self.bytes[end..after], &ends.tag);
            let kept_lead = swap(&mut self.bytes[start..start + LEAD], &ends.lead);
            send(&self.bytes[start..after]);
            self.bytes[start..start + LEAD].copy_from_slice(&kept_lead);
            self.bytes[end..after].copy_from_slice(&kept_tag[..self.tag_len]);
        }
    }

    /// Appends the datagrams of those fragments that are not there, and returns the length of each but the reply's
    /// last.
    pub(super) fn append_missing(&self, have: &Have, out: &mut Vec<u8>) -> usize {
        for (index, ends) in self.ends.iter().enumerate().filter(|(index, _)| !has(have, *index)) {
            let (start, end) = span(self.cut, index);
            out.put_bytes(&ends.lead);
            out.put_bytes(&self.bytes[start + LEAD..end]);
            out.put_bytes(&ends.tag[..self.tag_len]);
        }
        LEAD + self.cut.range(0).len() + self.tag_len
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.ends[..])
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Where a fragment's datagram begins and ends in a long reply, its tag left out.
fn span(cut: Cut, index: usize) -> (usize, usize) {
    let range = cut.range(index);
    (range.start, LEAD + range.end)
}

/// Writes the beginning of `new` over `place`, and returns what stood there.
fn swap<const N: usize>(place: &mut [u8], new: &[u8; N]) -> [u8; N] {
    let mut kept = [0; N];
    kept[..place.len()].copy_from_slice(place);
    place.copy_from_slice(&new[..place.len()]);
    kept
}

/// Makes the unguarded datagrams of one channel.
#[derive(Clone, Debug)]
pub struct ReplyEncoder {
    me: Channel,
    prog: u16,
    config: LinkConfig,
    sealer: Sealer,
    counter: u64,
}

impl ReplyEncoder {
    /// An encoder for channel `me` of the job with this `prog`.
    pub fn new(me: Channel, prog: u16, config: LinkConfig, sealer: Sealer) -> ReplyEncoder {
        ReplyEncoder { me, prog, config, sealer, counter: 0 }
    }

    /// Appends the datagrams of the reply to request `seq` and returns the length of each but the last. `nack`
    /// marks a refusal.
    ///
    /// # Errors
    /// [`SendError::TooLarge`] when `body` is longer than a message may be; then nothing is appended.
    pub fn reply(
        &mut self,
        seq: Seq,
        ty: MsgType,
        nack: bool,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, SendError> {
        let tag_len = self.sealer.tag_len();
        let max = self.config.max_message_bytes(tag_len);
        let too_large = SendError::TooLarge { len: body.len(), max };
        let cut = self.config.cut(body.len(), tag_len, REPLY_BYTES).ok_or(too_large)?;
        let start = out.len();
        let mut segment = 0;
        let flags = Flags { ack: true, nack, ack_requested: false };
        for index in 0..cut.count {
            let at = self.begin(ty, flags, cut.frag_field(index), out);
            out.put_u64(seq.0);
            cut.emit(out);
            out.put_bytes(&body[cut.range(index)]);
            self.end(at, of_channel(seq.channel()), out);
            if index == 0 {
                segment = out.len() - start;
            }
        }
        Ok(segment)
    }

    /// Takes the reply to request `seq` as it was made, behind [`LEAD`] bytes of room, if its fragments are so long
    /// that to put datagrams together would cost more than a call of the system for each.
    pub fn long_reply(&mut self, seq: Seq, ty: MsgType, bytes: &mut Vec<u8>) -> Option<LongReply> {
        let tag_len = self.sealer.tag_len();
        let cut = self.config.cut(bytes.len().checked_sub(LEAD)?, tag_len, REPLY_BYTES)?;
        let last = cut.range(cut.count - 1).len();
        if cut.count == 1 || last < FRAGMENT_MIN {
            return None;
        }
        let mut bytes = std::mem::take(bytes);
        bytes.resize(bytes.len() + tag_len, 0);
        let mut head = Vec::with_capacity(LEAD);
        let ends = (0..cut.count).map(|index| self.ends_of((cut, index), (seq, ty), &mut head, &mut bytes)).collect();
        Some(LongReply { cut, ends, tag_len, bytes })
    }

    /// What a fragment of a long reply has before and behind it; `head` is where the first is put together.
    fn ends_of(
        &mut self,
        (cut, index): (Cut, usize),
        (seq, ty): (Seq, MsgType),
        head: &mut Vec<u8>,
        bytes: &mut [u8],
    ) -> Ends {
        head.clear();
        let at = self.begin(ty, Flags { ack: true, ..Flags::default() }, cut.frag_field(index), head);
        head.put_u64(seq.0);
        cut.emit(head);
        let len = head.len() - at - HEADER_BYTES + cut.range(index).len();
        set_len(at, len, head);
        let mut lead = [0; LEAD];
        lead.copy_from_slice(head);
        let (start, end) = span(cut, index);
        let kept = swap(&mut bytes[start..start + LEAD], &lead);
        let tag = self.sealer.tag(&bytes[start..end], of_channel(seq.channel()));
        bytes[start..start + LEAD].copy_from_slice(&kept);
        Ends { lead, tag: tag.unwrap_or_default() }
    }

    /// Appends the datagram of an acknowledgement; it goes to the socket of the channel it names.
    pub fn ack(&mut self, ack: &AckRepr, out: &mut Vec<u8>) {
        let at = self.begin(MsgType::ACK, Flags { ack: true, ..Flags::default() }, 0, out);
        ack.emit(out);
        self.end(at, Receiver::Node(ack.channel().node), out);
    }

    /// Appends the datagram that asks node `to` for its stored reply; it goes to that node's service socket.
    pub fn resend(&mut self, to: NodeId, resend: &ResendRepr, out: &mut Vec<u8>) {
        let at = self.begin(MsgType::RESEND, Flags::default(), 0, out);
        resend.emit(out);
        self.end(at, Receiver::Node(to), out);
    }

    fn begin(&mut self, ty: MsgType, flags: Flags, frag: u8, out: &mut Vec<u8>) -> usize {
        let at = out.len();
        let seq = Seq::free(self.me, REPLY_HALF | self.counter);
        self.counter = (self.counter + 1) & (REPLY_HALF - 1);
        HeaderRepr { prog: self.prog, ty, flags, len: 0, retrans: 0, frag, seq }.emit(out);
        at
    }

    fn end(&self, at: usize, to: Receiver, out: &mut Vec<u8>) {
        close(at, &self.sealer, to, out);
    }
}

/// The node of a request's number, which gets the reply; a number that is none's is answered to nobody.
fn of_channel(channel: Option<Channel>) -> Receiver {
    channel.map_or(Receiver::Anybody, |channel| Receiver::Node(channel.node))
}

/// Ends the datagram that began at `at`: writes its length into the header and seals it for its receiver.
pub(super) fn close(at: usize, sealer: &Sealer, to: Receiver, out: &mut Vec<u8>) {
    set_len(at, out.len() - at - HEADER_BYTES, out);
    sealer.seal(out, at, to);
}

/// Writes the length of what follows it into the header at `at`.
fn set_len(at: usize, len: usize, out: &mut [u8]) {
    out[at + LEN_AT..at + LEN_AT + 2].copy_from_slice(&(len as u16).to_be_bytes());
}
