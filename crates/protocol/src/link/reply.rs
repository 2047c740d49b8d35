//! Datagrams that nobody keeps for repetition: replies, acknowledgements, wishes for a resend.
//!
//! Their numbers come from the upper half of the channel's free space, so that they never meet those of the free messages that
//! the channel's [`Sender`](super::Sender) numbers. Receivers do not look at them: a reply counts by the request it
//! answers, and acknowledgements and resends do no harm when they come twice.

use super::control::{AckRepr, ResendRepr};
use super::fragment::{Cut, Have, has};
use super::{LinkConfig, REPLY_BYTES, SendError};
use crate::auth::{Receiver, Sealer};
use crate::ids::{COUNTER_BITS, Channel, NodeId, Seq};
use crate::wire::bytes::Put;
use crate::wire::header::{Flags, HEADER_BYTES, HeaderRepr, LEN_AT, MsgType};

const REPLY_HALF: u64 = 1 << (COUNTER_BITS - 2);

/// What a datagram has before its fragment of a reply.
pub const LEAD: usize = HEADER_BYTES + REPLY_BYTES + super::FRAGMENT_BYTES;
/// The shortest fragment that is sent from where the reply was made, and received where it belongs: of shorter ones the system takes and gives several at a
/// time.
pub(super) const FRAGMENT_MIN: usize = 16 << 10;

/// A reply in long fragments, which are sent from where it was made. A datagram is one piece, so each in turn gets what stands before its fragment over the
/// end of the one before, of which as much is kept aside.
#[derive(Debug)]
pub struct LongReply {
    cut: Cut,
    /// What stands before each fragment.
    leads: Vec<[u8; LEAD]>,
    /// Room for the first of these, then the body.
    bytes: Vec<u8>,
}

impl LongReply {
    /// Hands out each datagram in turn, the reply once as it stands.
    pub fn each_datagram(&mut self, mut send: impl FnMut(&[u8])) {
        for (index, lead) in self.leads.iter().enumerate() {
            let range = self.cut.range(index);
            let (start, end) = (range.start, LEAD + range.end);
            let mut kept = [0; LEAD];
            kept.copy_from_slice(&self.bytes[start..start + LEAD]);
            self.bytes[start..start + LEAD].copy_from_slice(lead);
            send(&self.bytes[start..end]);
            self.bytes[start..start + LEAD].copy_from_slice(&kept);
        }
    }

    /// Appends the datagrams of those fragments that are not there, and returns the length of each but the reply's last.
    pub(super) fn append_missing(&self, have: &Have, out: &mut Vec<u8>) -> usize {
        for (index, lead) in self.leads.iter().enumerate().filter(|(index, _)| !has(have, *index)) {
            let range = self.cut.range(index);
            out.put_bytes(lead);
            out.put_bytes(&self.bytes[LEAD + range.start..LEAD + range.end]);
        }
        LEAD + self.cut.range(0).len()
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.leads[..])
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
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

    /// Takes the reply to request `seq` as it was made, behind [`LEAD`] bytes of room, if its fragments are so long that to put datagrams together would cost more
    /// than a call of the system for each; not where datagrams carry tags, which stand behind them.
    pub fn long_reply(&mut self, seq: Seq, ty: MsgType, bytes: &mut Vec<u8>) -> Option<LongReply> {
        let cut = self.config.cut(bytes.len().checked_sub(LEAD)?, 0, REPLY_BYTES)?;
        let last = cut.range(cut.count - 1).len();
        if self.sealer.tag_len() > 0 || cut.count == 1 || last < FRAGMENT_MIN {
            return None;
        }
        let flags = Flags { ack: true, ..Flags::default() };
        let mut lead = Vec::with_capacity(LEAD);
        let mut lead_of = |index| {
            lead.clear();
            let at = self.begin(ty, flags, cut.frag_field(index), &mut lead);
            lead.put_u64(seq.0);
            cut.emit(&mut lead);
            let len = lead.len() - at - HEADER_BYTES + cut.range(index).len();
            set_len(at, len, &mut lead);
            let mut fixed = [0; LEAD];
            fixed.copy_from_slice(&lead);
            fixed
        };
        let leads = (0..cut.count).map(&mut lead_of).collect();
        Some(LongReply { cut, leads, bytes: std::mem::take(bytes) })
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
