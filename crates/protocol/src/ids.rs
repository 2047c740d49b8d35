//! Who is who: nodes, channels, sequence numbers, and the things nodes share.
//!
//! A *node* is one process. A *channel* is one sender inside it: the node's service thread or one of its
//! application threads. Every channel owns a range of sequence numbers of its own, so that no two channels
//! ever need to agree on a number (DSM/IP, section 3.2.1.1: 2^64/N numbers for each of N senders).

use std::fmt;

/// Most nodes in one job.
pub const NODES_MAX: usize = 1 << NODE_BITS;
/// Most application threads in one node.
pub const THREADS_MAX: usize = 256;

const NODE_BITS: u32 = 10;
const SLOT_BITS: u32 = 9;
const CHANNEL_BITS: u32 = NODE_BITS + SLOT_BITS;
/// Width of the counter inside a sequence number: 2^64/N with N = 2^19 channels.
pub const COUNTER_BITS: u32 = 64 - CHANNEL_BITS;

/// One process of the job, counted from zero. Node zero serves the others during start-up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u16);

impl NodeId {
    /// The node's number as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
    /// The first `count` nodes, in order.
    pub fn all(count: usize) -> impl DoubleEndedIterator<Item = NodeId> {
        (0..count as u16).map(NodeId)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A place inside a node that sends and receives: slot 0 is the service thread, slot `1 + t` is application
/// thread `t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u16);

impl Slot {
    /// The node's service thread.
    pub const SERVICE: Slot = Slot(0);
    /// The slot of application thread `thread`, counted from zero within its node.
    pub fn thread(thread: usize) -> Slot {
        debug_assert!(thread < THREADS_MAX);
        Slot(1 + thread as u16)
    }
    /// The slot's number as an index into the node's sockets.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
    /// Whether a number read from the network is a slot at all.
    pub fn is_valid(self) -> bool {
        self.index() <= THREADS_MAX
    }
}

/// A sender: one slot of one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Channel {
    /// The node the sender lives in.
    pub node: NodeId,
    /// Its place in that node.
    pub slot: Slot,
}

impl Channel {
    /// The service channel of `node`.
    pub fn service(node: NodeId) -> Channel {
        Channel { node, slot: Slot::SERVICE }
    }
    /// The channel's number, the upper bits of all its sequence numbers.
    pub fn number(self) -> u32 {
        (u32::from(self.node.0) << SLOT_BITS) | u32::from(self.slot.0)
    }
    /// The channel with this number; `None` when no node or slot has it.
    pub fn from_number(number: u32) -> Option<Channel> {
        let channel = Channel {
            node: NodeId((number >> SLOT_BITS) as u16),
            slot: Slot((number & ((1 << SLOT_BITS) - 1)) as u16),
        };
        (channel.node.index() < NODES_MAX && channel.slot.is_valid()).then_some(channel)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot.0 {
            0 => write!(f, "{}, service", self.node),
            s => write!(f, "{}, thread {}", self.node, s - 1),
        }
    }
}

/// A sequence number: the sender's channel in the upper 19 bits, a counter below.
///
/// The counter's top bit tells two spaces apart. *Guarded* numbers (bit clear) name packets that the sender
/// keeps until they are acknowledged; *free* numbers (bit set) name replies, acknowledgements and
/// unreliable updates, of which the sender keeps nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

impl Seq {
    const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;
    const FREE_BIT: u64 = 1 << (COUNTER_BITS - 1);

    /// The guarded number `counter` of `channel`.
    pub fn guarded(channel: Channel, counter: u64) -> Seq {
        debug_assert!(counter < Self::FREE_BIT);
        Seq((u64::from(channel.number()) << COUNTER_BITS) | counter)
    }
    /// The free number `counter` of `channel`.
    pub fn free(channel: Channel, counter: u64) -> Seq {
        Seq(Self::guarded(channel, counter).0 | Self::FREE_BIT)
    }
    /// The sender; `None` when the bits name no channel (a stranger's or damaged packet).
    pub fn channel(self) -> Option<Channel> {
        Channel::from_number((self.0 >> COUNTER_BITS) as u32)
    }
    /// Whether the number belongs to the free space.
    pub fn is_free(self) -> bool {
        self.0 & Self::FREE_BIT != 0
    }
    /// The counter within its space.
    pub fn counter(self) -> u64 {
        self.0 & Self::COUNTER_MASK & !Self::FREE_BIT
    }
}

/// A shared object (an allocation of the explicit detector), numbered in the order of collective creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectId(pub u32);

/// A coherence unit: segment `index` of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnitId {
    /// The object the unit is part of.
    pub object: ObjectId,
    /// The unit's position in it.
    pub index: u32,
}

/// A lock, named by any number (an address will do).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LockId(pub u64);

/// A flag: a number that only grows, to be set by one thread and awaited by others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlagId(pub u64);

/// The node that manages `key` (a lock or flag) among `nodes`: spread by a multiplicative hash.
pub fn manager_of(key: u64, nodes: usize) -> NodeId {
    let mixed = key.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    NodeId(((u128::from(mixed) * nodes as u128) >> 64) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_names_its_channel_and_space() {
        let channel = Channel { node: NodeId(1023), slot: Slot::thread(255) };
        for seq in [Seq::guarded(channel, 77), Seq::free(channel, 77)] {
            assert_eq!(seq.channel(), Some(channel));
            assert_eq!(seq.counter(), 77);
        }
        assert!(Seq::free(channel, 0).is_free());
        assert!(!Seq::guarded(channel, 5).is_free());
    }

    #[test]
    fn a_number_beyond_the_last_slot_names_nobody() {
        assert_eq!(Channel::from_number(300), None);
    }

    #[test]
    fn managers_are_spread_over_all_nodes() {
        let mut seen = [0; 7];
        for key in 0..7000 {
            seen[manager_of(key, 7).index()] += 1;
        }
        assert!(seen.iter().all(|&n| n > 500), "{seen:?}");
    }
}
