//! Makes the datagrams of a message to sets of nodes.

use super::MESSAGE_BYTES_MAX;
use super::head::{HEAD_BYTES, Named, SetsRepr};
use crate::auth::{self, Sealer};
use crate::ids::{COUNTER_BITS, Channel, NodeId, Seq};
use crate::wire::header::{Flags, HEADER_BYTES, HeaderRepr, MsgType};

/// Most fragments of a message: their number has a byte.
const FRAGMENTS_MAX: usize = 255;
/// Numbers repeat after so many.
const NUMBERS: u64 = 1 << (COUNTER_BITS - 1);

/// A message has more bytes than a node may send at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message to sets of nodes has {bytes} bytes, and {max} is the most; send several")]
pub struct TooLong {
    /// How many it has.
    pub bytes: usize,
    /// How many it may have.
    pub max: usize,
}

/// What all messages of one node to sets of nodes have in common.
///
/// Numbers are the caller's: each message takes as many as it has datagrams ([`Author::datagrams`] for each pair of
/// windows), and none may come twice, since receivers take what has an old number for a replay.
#[derive(Clone, Debug)]
pub struct Author {
    me: NodeId,
    prog: u16,
    job: u32,
    sealer: Sealer,
    /// Bytes of payload that fit one datagram.
    room: usize,
}

impl Author {
    /// The messages of node `me` in a job, in datagrams of at most so many bytes. The sealer is the job's
    /// ([`Sealer::of_job`]).
    pub fn new((me, prog, job): (NodeId, u16, u64), sealer: Sealer, datagram_bytes: usize) -> Author {
        let longest = HEADER_BYTES + usize::from(u16::MAX) + sealer.tag_len();
        let room = datagram_bytes.min(longest).saturating_sub(HEAD_BYTES + sealer.tag_len()).max(1);
        Author { me, prog, job: job as u32, sealer, room }
    }

    /// Most bytes of one message.
    pub fn payload_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX.min(self.room.saturating_mul(FRAGMENTS_MAX))
    }

    /// Bytes of a message that fits one datagram, of which no fragment can be lost alone.
    pub fn payload_bytes_of_one(&self) -> usize {
        self.room.min(MESSAGE_BYTES_MAX)
    }

    /// How many datagrams a message of so many bytes takes for each pair of windows.
    ///
    /// # Errors
    /// It has too many bytes.
    pub fn datagrams(&self, payload_bytes: usize) -> Result<usize, TooLong> {
        let max = self.payload_bytes_max();
        if payload_bytes > max {
            return Err(TooLong { bytes: payload_bytes, max });
        }
        Ok(payload_bytes.div_ceil(self.room).max(1))
    }

    /// Appends the datagrams of a message to those that one pair of windows names, numbered from `first` on. Gives the
    /// length of each but the last, which may be shorter.
    ///
    /// # Errors
    /// The payload has too many bytes; nothing is appended.
    pub fn emit(&self, first: u64, named: Named, payload: &[u8], out: &mut Vec<u8>) -> Result<usize, TooLong> {
        let count = self.datagrams(payload.len())?;
        let sets = SetsRepr { job: self.job, asked: named.0, told: named.1 };
        // A message without bytes is a datagram too.
        let parts = payload.chunks(self.room).chain(std::iter::once(&[][..])).take(count);
        for (index, part) in parts.enumerate() {
            let start = out.len();
            let seq = Seq::free(Channel::service(self.me), (first + index as u64) % NUMBERS);
            let (frag, retrans) = if count == 1 { (0, 0) } else { (index as u8 + 1, count as u8) };
            let len = (HEAD_BYTES - HEADER_BYTES + part.len()) as u16;
            HeaderRepr { prog: self.prog, ty: MsgType::SETS, flags: Flags::default(), len, retrans, frag, seq }
                .emit(out);
            sets.emit(out);
            out.extend_from_slice(part);
            self.sealer.seal(out, start, auth::Receiver::Sets);
        }
        Ok(HEAD_BYTES + self.room.min(payload.len()) + self.sealer.tag_len())
    }
}
