//! Datagrams that nobody keeps for repetition: replies, acknowledgements, wishes for a resend.
//!
//! Their numbers come from the upper half of the channel's free space, so that they never meet those of the free messages that
//! the channel's [`Sender`](super::Sender) numbers. Receivers do not look at them: a reply counts by the request it
//! answers, and acknowledgements and resends do no harm when they come twice.

use super::control::{AckRepr, ResendRepr};
use super::fragment::Cut;
use super::{FRAGMENT_BYTES, LinkConfig, REPLY_BYTES, SendError};
use crate::auth::Sealer;
use crate::ids::{COUNTER_BITS, Channel, Seq};
use crate::wire::bytes::Put;
use crate::wire::header::{Flags, HEADER_BYTES, HeaderRepr, MsgType};

const REPLY_HALF: u64 = 1 << (COUNTER_BITS - 2);

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
        let whole = self.config.room(tag_len, REPLY_BYTES);
        let too_large = SendError::TooLarge { len: body.len(), max };
        let cut = Cut::new(body.len(), whole, whole - FRAGMENT_BYTES).ok_or(too_large)?;
        let start = out.len();
        let mut segment = 0;
        let flags = Flags { ack: true, nack, ack_requested: false };
        for index in 0..cut.count {
            let at = self.begin(ty, flags, cut.frag_field(index), out);
            out.put_u64(seq.0);
            cut.emit(out);
            out.put_bytes(&body[cut.range(index)]);
            self.end(at, out);
            if index == 0 {
                segment = out.len() - start;
            }
        }
        Ok(segment)
    }

    /// Appends the datagram of an acknowledgement; it goes to the socket of the channel it names.
    pub fn ack(&mut self, ack: &AckRepr, out: &mut Vec<u8>) {
        let at = self.begin(MsgType::ACK, Flags { ack: true, ..Flags::default() }, 0, out);
        ack.emit(out);
        self.end(at, out);
    }

    /// Appends the datagram that asks a node for its stored reply; it goes to that node's service socket.
    pub fn resend(&mut self, resend: &ResendRepr, out: &mut Vec<u8>) {
        let at = self.begin(MsgType::RESEND, Flags::default(), 0, out);
        resend.emit(out);
        self.end(at, out);
    }

    fn begin(&mut self, ty: MsgType, flags: Flags, frag: u8, out: &mut Vec<u8>) -> usize {
        let at = out.len();
        let seq = Seq::free(self.me, REPLY_HALF | self.counter);
        self.counter = (self.counter + 1) & (REPLY_HALF - 1);
        HeaderRepr { prog: self.prog, ty, flags, len: 0, retrans: 0, frag, seq }.emit(out);
        at
    }

    fn end(&self, at: usize, out: &mut Vec<u8>) {
        close(at, &self.sealer, out);
    }
}

/// Ends the datagram that began at `at`: writes its length into the header and seals it.
pub(super) fn close(at: usize, sealer: &Sealer, out: &mut Vec<u8>) {
    let len = (out.len() - at - HEADER_BYTES) as u16;
    out[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
    sealer.seal(out, at);
}
