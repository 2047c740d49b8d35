//! The 16-byte header of every datagram (DSM/IP, section 3.2.1.1).
//!
//! ```text
//! 0       2         4         6          7      8                16
//! | progID | msgType | dataLen | retransNum | frag | seqNum        | payload … | tag |
//! ```
//!
//! All numbers are in network byte order. The upper three bits of `msgType` are flags. `retransNum` counts the
//! transmissions of this datagram before this one (the paper reserves the field and leaves it unused). `frag` is 0 for
//! a whole message and `i + 1` for its fragment `i`; fragments have consecutive sequence numbers.

use super::bytes::{Put, Reader, WireError};
use crate::ids::{Channel, Seq};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Where `dataLen` stands: a datagram is as long as that, the header and the tag.
pub const LEN_AT: usize = 4;

/// What a message is about: 13 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MsgType(pub u16);

impl MsgType {
    /// Acknowledgement of packets and nothing else.
    pub const ACK: MsgType = MsgType(1);
    /// "Send your stored reply to this request again."
    pub const RESEND: MsgType = MsgType(2);
    /// A message to the nodes that it names ([`crate::selective`]).
    pub const SETS: MsgType = MsgType(3);
    const MASK: u16 = 0x1fff;
}

/// The flags in the upper bits of the type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags {
    /// The payload begins with the sequence number that this datagram answers.
    pub ack: bool,
    /// The sender waits for an answer.
    pub ack_requested: bool,
    /// The answer is a refusal.
    pub nack: bool,
}

/// A header, parsed or to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeaderRepr {
    /// Which program's job the datagram belongs to.
    pub prog: u16,
    /// What the message is about.
    pub ty: MsgType,
    /// Its flags.
    pub flags: Flags,
    /// Bytes of payload.
    pub len: u16,
    /// Transmissions before this one.
    pub retrans: u8,
    /// 0, or the fragment's index plus one.
    pub frag: u8,
    /// The datagram's sequence number.
    pub seq: Seq,
}

impl HeaderRepr {
    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flags = u16::from(self.flags.ack) << 15
            | u16::from(self.flags.ack_requested) << 14
            | u16::from(self.flags.nack) << 13;
        let first = u64::from(self.prog) << 48
            | u64::from(flags | (self.ty.0 & MsgType::MASK)) << 32
            | u64::from(self.len) << 16
            | u64::from(self.retrans) << 8
            | u64::from(self.frag);
        out.put_bytes(&(u128::from(first) << 64 | u128::from(self.seq.0)).to_be_bytes());
    }
}

/// A datagram whose header has been checked: a view, nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: HeaderRepr,
    /// The channel that sent it.
    pub channel: Channel,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The program number that a datagram begins with, which nobody has checked.
    pub fn prog_of(datagram: &[u8]) -> Option<u16> {
        datagram.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// The type that a datagram carries, which nobody has checked. `None` where there are flags too.
    pub fn plain_type_of(datagram: &[u8]) -> Option<MsgType> {
        let word = u16::from_be_bytes(*datagram.get(2..)?.first_chunk()?);
        (word & !MsgType::MASK == 0).then_some(MsgType(word))
    }

    /// Checks a datagram without its tag: length, sender and flags.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new_checked(datagram: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let mut r = Reader::new(datagram);
        let prog = r.u16()?;
        let word = r.u16()?;
        let (len, retrans, frag, seq) = (r.u16()?, r.u8()?, r.u8()?, Seq(r.u64()?));
        let flags = Flags { ack: word & 1 << 15 != 0, ack_requested: word & 1 << 14 != 0, nack: word & 1 << 13 != 0 };
        let payload = r.rest();
        match payload.len().cmp(&usize::from(len)) {
            std::cmp::Ordering::Less => return Err(WireError::Short),
            std::cmp::Ordering::Greater => return Err(WireError::Trailing),
            std::cmp::Ordering::Equal => {}
        }
        if flags.ack && flags.ack_requested || flags.nack && !flags.ack {
            return Err(WireError::BadValue("flags"));
        }
        let channel = seq.channel().ok_or(WireError::BadValue("sequence number"))?;
        let header = HeaderRepr { prog, ty: MsgType(word & MsgType::MASK), flags, len, retrans, frag, seq };
        Ok(Packet { header, channel, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NodeId, Slot};

    #[test]
    fn the_header_is_the_papers_byte_for_byte() {
        let channel = Channel { node: NodeId(1), slot: Slot::thread(1) };
        let flags = Flags { ack_requested: true, ..Flags::default() };
        let seq = Seq::guarded(channel, 0x1234);
        let header = HeaderRepr { prog: 0xbeef, ty: MsgType(0x105), flags, len: 3, retrans: 2, frag: 7, seq };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        bytes.extend_from_slice(b"abc");
        let golden = [
            0xbe, 0xef, // progID
            0x41, 0x05, // ACK_REQUESTED, type 0x105
            0x00, 0x03, // dataLen
            0x02, 0x07, // retransNum, frag
            0x00, 0x40, 0x40, 0x00, 0x00, 0x00, 0x12, 0x34, // node 1, slot 2, number 0x1234
            b'a', b'b', b'c',
        ];
        assert_eq!(bytes, golden);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!((packet.header, packet.channel, packet.payload), (header, channel, &b"abc"[..]));
    }

    #[test]
    fn short_long_and_nonsensical_datagrams_are_refused() {
        let channel = Channel::service(NodeId(0));
        let mut header = HeaderRepr {
            prog: 1,
            ty: MsgType(1),
            flags: Flags::default(),
            len: 1,
            retrans: 0,
            frag: 0,
            seq: Seq::free(channel, 1),
        };
        let emit = |header: &HeaderRepr, payload: &[u8]| {
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            bytes.extend_from_slice(payload);
            bytes
        };
        assert!(Packet::new_checked(&emit(&header, b"x")).is_ok());
        assert_eq!(Packet::new_checked(&emit(&header, b"")).unwrap_err(), WireError::Short);
        assert_eq!(Packet::new_checked(&emit(&header, b"xy")).unwrap_err(), WireError::Trailing);
        assert_eq!(Packet::new_checked(&[0; 15]).unwrap_err(), WireError::Short);
        header.flags = Flags { nack: true, ..Flags::default() };
        assert!(Packet::new_checked(&emit(&header, b"x")).is_err());
        header.seq = Seq(u64::MAX);
        header.flags = Flags::default();
        assert!(Packet::new_checked(&emit(&header, b"x")).is_err());
    }
}
