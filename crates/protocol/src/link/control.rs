//! The link's own messages: acknowledgements of packets, and the wish to have a stored reply sent again.

use super::fragment::Have;
use crate::ids::{Channel, Seq};
use crate::wire::bytes::{Put, Reader, WireError};
use crate::wire::header::Packet;

/// Most words in an acknowledgement: half a receive window, which fits the smallest datagram.
pub(super) const ACK_WORDS: usize = 32;

/// Which packets of a channel a node has received: bit `b` of word `w` stands for number `base + 64 w + b`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AckRepr {
    base: Seq,
    channel: Channel,
    words: [u64; ACK_WORDS],
    len: usize,
}

impl AckRepr {
    /// An acknowledgement of the numbers of `channel` from `base` on; it says yes to none yet.
    pub(super) fn new(channel: Channel, base: u64) -> AckRepr {
        AckRepr { base: Seq::guarded(channel, base), channel, words: [0; ACK_WORDS], len: 0 }
    }

    /// Appends the next 64 numbers; what does not fit is left out.
    pub(super) fn push(&mut self, word: u64) {
        if let Some(slot) = self.words.get_mut(self.len) {
            *slot = word;
            self.len += 1;
        }
    }

    /// The channel whose packets they are.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// The acknowledged counters within `from..to`, in order.
    pub(super) fn counters(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + '_ {
        let base = self.base.counter();
        self.words[..self.len].iter().enumerate().flat_map(move |(w, &word)| {
            let start = base + 64 * w as u64;
            let live = if start >= to || start + 64 <= from { 0 } else { word };
            Bits(live).map(move |b| start + b).filter(move |c| (from..to).contains(c))
        })
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u64(self.base.0);
        self.words[..self.len].iter().for_each(|&word| out.put_u64(word));
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(payload: &[u8]) -> Result<AckRepr, WireError> {
        let mut r = Reader::new(payload);
        let base = Seq(r.u64()?);
        let channel = guarded_channel(base)?;
        let mut ack = AckRepr { base, channel, words: [0; ACK_WORDS], len: 0 };
        while r.finish().is_err() {
            if ack.len == ACK_WORDS {
                return Err(WireError::Trailing);
            }
            ack.push(r.u64()?);
        }
        Ok(ack)
    }
}

/// The positions of the bits that are set.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let bit = (self.0 != 0).then(|| u64::from(self.0.trailing_zeros()))?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

/// "Send your stored reply to this request again, except the fragments that are there."
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResendRepr {
    /// The request's number.
    pub seq: Seq,
    /// The fragments that are there; all zero asks for the whole reply.
    pub have: [u64; 4],
}

impl ResendRepr {
    /// Asks for the whole reply to `seq`.
    pub fn whole(seq: Seq) -> ResendRepr {
        ResendRepr { seq, have: [0; 4] }
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u64(self.seq.0);
        self.have.iter().for_each(|&word| out.put_u64(word));
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(payload: &[u8]) -> Result<ResendRepr, WireError> {
        let mut r = Reader::new(payload);
        let seq = Seq(r.u64()?);
        guarded_channel(seq)?;
        let have: Have = [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        r.finish()?;
        Ok(ResendRepr { seq, have })
    }

    /// The channel that awaits the reply.
    ///
    /// # Errors
    /// When the number names nobody.
    pub fn channel(&self) -> Result<Channel, WireError> {
        guarded_channel(self.seq)
    }
}

/// Which request of which channel a reply answers.
///
/// # Errors
/// When the packet is not a reply or names nobody's request.
pub fn acked(packet: &Packet<'_>) -> Result<(Channel, Seq), WireError> {
    if !packet.header.flags.ack {
        return Err(WireError::BadValue("flags"));
    }
    let seq = Seq(Reader::new(packet.payload).u64()?);
    Ok((guarded_channel(seq)?, seq))
}

fn guarded_channel(seq: Seq) -> Result<Channel, WireError> {
    seq.channel().filter(|_| !seq.is_free()).ok_or(WireError::BadValue("sequence number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NodeId, Slot};

    #[test]
    fn acknowledgements_and_resends_survive_the_wire() {
        let channel = Channel { node: NodeId(3), slot: Slot::thread(2) };
        let mut ack = AckRepr::new(channel, 128);
        ack.push(0b1001);
        ack.push(1 << 63);
        let mut bytes = Vec::new();
        ack.emit(&mut bytes);
        let parsed = AckRepr::parse(&bytes).unwrap();
        assert_eq!((parsed.channel(), &parsed), (channel, &ack));
        assert_eq!(parsed.counters(0, 1000).collect::<Vec<_>>(), [128, 131, 255]);
        assert_eq!(parsed.counters(129, 255).collect::<Vec<_>>(), [131]);
        bytes.pop();
        assert_eq!(AckRepr::parse(&bytes), Err(WireError::Short));

        let resend = ResendRepr { seq: Seq::guarded(channel, 9), have: [1, 2, 3, 4] };
        let mut bytes = Vec::new();
        resend.emit(&mut bytes);
        assert_eq!(ResendRepr::parse(&bytes), Ok(resend));
        bytes.push(0);
        assert_eq!(ResendRepr::parse(&bytes), Err(WireError::Trailing));
    }

    #[test]
    fn free_numbers_and_nobodys_numbers_are_not_acknowledged() {
        let free = Seq::free(Channel::service(NodeId(1)), 5);
        for seq in [free, Seq(u64::MAX >> 20 << 20)] {
            assert!(AckRepr::parse(&seq.0.to_be_bytes()).is_err());
        }
        assert_eq!(AckRepr::parse(&[0; 8 + 65 * 8]), Err(WireError::Trailing));
    }
}
