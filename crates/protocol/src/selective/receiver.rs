//! Takes in datagrams to sets of nodes: nothing in one is read before its tag is right, none counts twice.

use super::MESSAGE_BYTES_MAX;
use super::head::SetsRepr;
use crate::auth::{self, Sealer};
use crate::ids::{NodeId, Slot};
use crate::link::window::{Place, ReceiveWindow};
use crate::wire::bytes::WireError;
use crate::wire::header::{MsgType, Packet};
use std::borrow::Cow;
use std::collections::VecDeque;

/// Messages that may be half in at a time. Nobody sends what is missing again: one more ends the oldest.
const PARTIAL_MAX: usize = 64;

/// How a node is named in a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It is asked, and perhaps told too.
    Asked,
    /// It is told, and not asked.
    Told,
}

/// Why a datagram counts for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Whoever made it does not have the job's key, or changed it.
    #[error("it does not carry the job's key")]
    Key,
    /// It makes no sense.
    #[error("{0}")]
    Malformed(#[from] WireError),
    /// It is another job's.
    #[error("it belongs to another job")]
    OtherJob,
    /// No other node of this job has this number.
    #[error("it claims to come from {0}, which is no other node of this job")]
    Sender(NodeId),
    /// It does not come from where that node is.
    #[error("its sender is not part of this job")]
    Address,
    /// One of its sets has this number, which no node has.
    #[error("it names node {0}, which this job does not have")]
    Stranger(u32),
    /// It has come before, or is so old that it may have.
    #[error("it has come before")]
    Seen,
}

impl Refused {
    /// Whether a node with the job's key has made what no correct node makes.
    pub fn is_violation(self) -> bool {
        matches!(self, Refused::Malformed(_) | Refused::Sender(_) | Refused::Stranger(_))
    }
}

/// A whole message. It borrows from the datagram alone, so that who acts on it holds no lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub from: NodeId,
    /// What this node is to it.
    pub role: Role,
    /// What it says.
    pub payload: Cow<'a, [u8]>,
}

/// What a datagram has brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken<'a> {
    /// Nothing: it is for others.
    Others,
    /// A part of a message, of which others are missing.
    Part(Role),
    /// A message, or the rest of one.
    Whole(Message<'a>),
}

/// A message of which fragments are missing.
#[derive(Debug)]
struct Partial {
    from: NodeId,
    role: Role,
    /// The number of its first fragment.
    first: u64,
    left: usize,
    bytes: usize,
    /// No fragment is empty, but those that are missing.
    parts: Vec<Vec<u8>>,
}

/// What one node takes in.
#[derive(Debug)]
pub struct Receiver {
    me: NodeId,
    prog: u16,
    job: u32,
    sealer: Sealer,
    /// By sender, and by role: what a node is told may lie long before anybody looks.
    windows: Vec<[Option<Box<ReceiveWindow>>; 2]>,
    partial: VecDeque<Partial>,
}

impl Receiver {
    /// Node `me` of a job of so many nodes. The sealer is the job's ([`Sealer::of_job`]).
    pub fn new((me, prog, job): (NodeId, u16, u64), nodes: usize, sealer: Sealer) -> Receiver {
        let windows = (0..nodes).map(|_| [None, None]).collect();
        Receiver { me, prog, job: job as u32, sealer, windows, partial: VecDeque::new() }
    }

    /// Takes in a datagram. `is_from`: whether it has come from an address of that node.
    ///
    /// # Errors
    /// It counts for nothing, and why.
    pub fn take<'a>(&mut self, datagram: &'a [u8], is_from: impl FnOnce(NodeId) -> bool) -> Result<Taken<'a>, Refused> {
        let bytes = self.sealer.open(datagram, auth::Receiver::Sets).ok_or(Refused::Key)?;
        let packet = Packet::new_checked(bytes)?;
        let header = packet.header;
        if header.ty != MsgType::SETS || header.flags.ack || header.flags.ack_requested {
            return Err(WireError::BadType(header.ty.0).into());
        }
        let (sets, payload) = SetsRepr::parse(packet.payload)?;
        if header.prog != self.prog || sets.job != self.job {
            return Err(Refused::OtherJob);
        }
        let from = packet.channel.node;
        if packet.channel.slot != Slot::SERVICE || !header.seq.is_free() {
            return Err(WireError::BadValue("sequence number").into());
        }
        if from == self.me || from.index() >= self.windows.len() {
            return Err(Refused::Sender(from));
        }
        if !is_from(from) {
            return Err(Refused::Address);
        }
        let nodes = self.windows.len() as u32;
        if let Some(stranger) = [sets.asked, sets.told].iter().filter_map(|set| set.last()).find(|last| *last >= nodes)
        {
            return Err(Refused::Stranger(stranger));
        }
        let role = match (sets.asked.contains(self.me), sets.told.contains(self.me)) {
            (true, _) => Role::Asked,
            (false, true) => Role::Told,
            (false, false) => return Ok(Taken::Others),
        };
        let number = header.seq.counter();
        let window = self.windows[from.index()][usize::from(role == Role::Told)].get_or_insert_default();
        if window.place(number) != Place::New {
            return Err(Refused::Seen);
        }
        window.insert(number);
        if header.frag == 0 {
            return Ok(Taken::Whole(Message { from, role, payload: Cow::Borrowed(payload) }));
        }
        let (index, count) = (usize::from(header.frag) - 1, usize::from(header.retrans));
        let first = number.checked_sub(index as u64).ok_or(WireError::BadValue("fragment"))?;
        let whole = self.take_fragment((from, role, first), (index, count), payload)?;
        let whole = whole.map(|bytes| Taken::Whole(Message { from, role, payload: Cow::Owned(bytes) }));
        Ok(whole.unwrap_or(Taken::Part(role)))
    }

    fn take_fragment(
        &mut self,
        (from, role, first): (NodeId, Role, u64),
        (index, count): (usize, usize),
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, Refused> {
        let bad = Err(WireError::BadValue("fragment").into());
        if count < 2 || index >= count || part.is_empty() {
            return bad;
        }
        let same = |partial: &Partial| (partial.from, partial.role, partial.first) == (from, role, first);
        let at = self.partial.iter().position(same).unwrap_or_else(|| {
            if self.partial.len() == PARTIAL_MAX {
                self.partial.pop_front();
            }
            self.partial.push_back(Partial {
                from,
                role,
                first,
                left: count,
                bytes: 0,
                parts: vec![Vec::new(); count],
            });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[at];
        if partial.parts.len() != count || partial.bytes + part.len() > MESSAGE_BYTES_MAX {
            self.partial.remove(at);
            return bad;
        }
        partial.bytes += part.len();
        partial.left -= usize::from(partial.parts[index].is_empty());
        partial.parts[index] = part.to_vec();
        if partial.left > 0 {
            return Ok(None);
        }
        Ok(self.partial.remove(at).map(|partial| partial.parts.concat()))
    }

    /// Bytes that are kept for messages that are half in.
    pub fn kept_bytes(&self) -> usize {
        self.partial.iter().map(|partial| partial.bytes).sum()
    }
}
