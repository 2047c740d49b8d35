//! Guaranteed, at-most-once delivery over datagrams that may be lost, doubled and reordered (DSM/IP, sections 3.2.1.3
//! and 3.2.1.4): requests whose replies acknowledge them, fragments, congestion. Pure state machines: no clock, no
//! socket.
//!
//! Whoever starts a request is the one who repeats it. Three classes of messages:
//!
//! | class | number | sender keeps it until | acknowledged by |
//! |---|---|---|---|
//! | [`Class::Request`] | guarded, `ACK_REQUESTED` | the reply is in | the reply, which may come from a third node |
//! | [`Class::Post`] | guarded | all its packets are acknowledged | batched [`AckRepr`] datagrams |
//! | [`Class::Free`] | free | it is sent | nothing |
//!
//! A reply is not acknowledged: its sender stores it in the [`PeerChannel`] of the requester and sends it again when
//! the request comes again. A request that comes again before its reply exists is *noted* by an acknowledgement: from
//! then on it is repeated slowly. All repetitions go to the node's service socket.
//!
//! # Bytes behind the header
//!
//! | datagram | payload |
//! |---|---|
//! | request | `delta` u16, \[fragment u32\], body |
//! | post | \[fragment u32\], body |
//! | free | \[fragment u32\], body; to a group always one datagram |
//! | reply (flag `ACK`) | request's number u64, \[fragment u32\], body |
//! | [`MsgType::ACK`](crate::wire::header::MsgType::ACK), flag `ACK` | first number u64, then a bitmap in words of 64 |
//! | [`MsgType::RESEND`](crate::wire::header::MsgType::RESEND) | request's number u64, a bitmap of fragments |
//!
//! `delta` is the request's number less the oldest one that the channel still keeps: older stored replies can go. A
//! RESEND tells which fragments of the reply are there.
//!
//! A message of several fragments says in each: their count (8 bits) and the message's length (24 bits). All
//! fragments but the last are equally long, so that the kernel can cut them from one buffer (GSO).
//!
//! Datagrams are at most [`LinkConfig::datagram_bytes`] long, but for those of messages that do not fit
//! [`FRAGMENTS_MAX`] of them: these are as long as need be, up to [`LONG_DATAGRAM_BYTES`], and IP cuts them where the
//! way takes less.
//!
//! # Polling contract
//!
//! One [`Sender`] for each of the node's channels, one [`PeerChannel`] for each remote channel heard of, one
//! [`ReplyEncoder`] for each thread that answers. For every datagram that comes in:
//! [`Sealer::open`](crate::auth::Sealer::open), then [`Packet::new_checked`](crate::wire::header::Packet::new_checked),
//! then by what it is:
//!
//! - flag `ACK` and type `ACK`: [`AckRepr::parse`], then [`Sender::on_ack`] of the sender it names
//!   ([`AckRepr::channel`]);
//! - flag `ACK`, any other type: [`acked`] names the channel, then [`Sender::on_reply`] there;
//! - type `RESEND`: [`ResendRepr::parse`], then [`PeerChannel::stored_reply`] of the channel it names;
//! - otherwise: [`PeerChannel::on_packet`] of the packet's channel. `Duplicate(Reply)`: send `stored_reply` to the
//!   channel's socket; `Duplicate(Forwarded(node))`: send that node's service socket a [`ReplyEncoder::resend`].
//!
//! After a drain of the socket, send what [`PeerChannel::owed_ack`] returns until it returns `None`; only where
//! [`PeerChannel::ack_presses`] before need anybody be woken for it. After every `send`, `on_ack`, `on_reply` and
//! `on_timeout`, call [`Sender::poll_transmit`] until it returns `None`; then wait for a datagram, but not longer than
//! [`Sender::next_timeout`], and then call [`Sender::on_timeout`]. Calling any of them too often is harmless.
//!
//! # Cost
//!
//! A small request and its reply allocate nothing once the buffers have grown: one datagram, one copy into the sender's
//! buffer, one into the datagram.

mod congestion;
mod control;
mod fragment;
mod receiver;
mod reply;
mod rtt;
mod sender;
pub(crate) mod window;

#[cfg(test)]
mod pair;
#[cfg(test)]
mod tests;

pub use congestion::Congestion;
pub use control::{AckRepr, ResendRepr, acked};
pub use fragment::FRAGMENTS_MAX;
pub use receiver::{Arrival, Part, PeerChannel, Repeat};
pub use reply::{LEAD, LongReply, ReplyEncoder};
pub use rtt::Rtt;
pub use sender::{BATCH_BYTES_MAX, Body, Counters, Dest, Lent, Reply, SEGMENTS_MAX, SendError, Sender, To, Transmit};
pub use window::WINDOW;

use self::fragment::Cut;
use crate::ids::Slot;
use crate::time::Span;
use crate::tuning::LinkTuning;
use crate::wire::header::{HEADER_BYTES, MsgType};
use crate::wire::message::types;

/// How a message is delivered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Guarded, expects a reply.
    Request,
    /// Guarded, expects none.
    Post,
    /// Sent once and forgotten.
    Free,
}

/// The smallest datagram the link works with; every IPv4 host must accept a little more.
pub const DATAGRAM_MIN: usize = 512;
/// The largest UDP payload over IPv4.
pub const DATAGRAM_MAX: usize = 65_507;
/// So long may a datagram be when its message fits no number of shorter ones.
pub const LONG_DATAGRAM_BYTES: usize = 60 << 10;

/// Sizes and times of the link. Every node of a job has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Most bytes of a datagram, header and tag included, unless its message is longer than
    /// [`LinkConfig::usual_message_bytes`].
    pub datagram_bytes: usize,
    /// How far the numbers of kept packets may lie apart; at most [`WINDOW`].
    pub window: u64,
    /// Requests that an application thread may have under way, and as many replies are stored for it elsewhere.
    pub requests_per_thread: usize,
    /// The same for a service thread, which may have to invalidate a unit on every node at once.
    pub requests_per_service: usize,
    /// Wait before the first repetition while nothing is known of a node.
    pub rto_initial: Span,
    /// Least wait before a repetition.
    pub rto_min: Span,
    /// Longest wait before a repetition of what was not acknowledged, where a node is near.
    pub rto_max: Span,
    /// The same where it is far, or not known to be near.
    pub rto_far: Span,
    /// First wait before a noted request is repeated.
    pub probe_min: Span,
    /// Longest wait before a noted request is repeated.
    pub probe_max: Span,
    /// Acknowledgements may lie unread for a while ([`PeerChannel::ack_presses`]), and show no round trip.
    pub acks_may_lie: bool,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig::tuned(&LinkTuning::DEFAULT, false)
    }
}

impl LinkConfig {
    /// The times and bounds of these numbers, on a host where threads spin, or block (`blocks`).
    pub fn tuned(tuning: &LinkTuning, blocks: bool) -> LinkConfig {
        let (first, least) = match blocks {
            true => (tuning.retry_first_blocking_us, tuning.retry_min_blocking_us),
            false => (tuning.retry_first_us, tuning.retry_min_us),
        };
        let least = Span::from_us(least);
        LinkConfig {
            requests_per_thread: tuning.requests_per_thread,
            rto_initial: Span::from_us(first).max(least),
            rto_min: least,
            rto_max: Span::from_ms(tuning.retry_max_ms).max(least),
            rto_far: Span::from_ms(tuning.retry_far_ms.max(tuning.retry_max_ms)).max(least),
            probe_min: Span::from_ms(tuning.probe_min_ms),
            probe_max: Span::from_ms(tuning.probe_max_ms.max(tuning.probe_min_ms)),
            datagram_bytes: 1472,
            window: WINDOW,
            requests_per_service: WINDOW as usize,
            acks_may_lie: false,
        }
    }

    /// The longest guarded message or reply in bytes, when every datagram ends with a tag of `tag_len`.
    pub fn max_message_bytes(&self, tag_len: usize) -> usize {
        (FRAGMENTS_MAX * self.long_room(tag_len, REPLY_BYTES + FRAGMENT_BYTES)).min(fragment::TOTAL_MAX)
    }

    /// The longest message whose datagrams are no longer than usual; a free one is not longer, and one to a group has
    /// less room.
    pub fn usual_message_bytes(&self, tag_len: usize) -> usize {
        (FRAGMENTS_MAX * self.room(tag_len, REPLY_BYTES + FRAGMENT_BYTES)).min(fragment::TOTAL_MAX)
    }

    /// The longest free message to a group, in bytes: what one datagram takes.
    pub fn max_free_bytes(&self, tag_len: usize) -> usize {
        self.room(tag_len, 0)
    }

    /// Bytes left for a body behind the header and `prefix` more.
    fn room(&self, tag_len: usize, prefix: usize) -> usize {
        self.datagram_bytes.clamp(DATAGRAM_MIN, DATAGRAM_MAX) - HEADER_BYTES - tag_len - prefix
    }

    /// The same of the longest datagrams.
    fn long_room(&self, tag_len: usize, prefix: usize) -> usize {
        self.datagram_bytes.clamp(LONG_DATAGRAM_BYTES, DATAGRAM_MAX) - HEADER_BYTES - tag_len - prefix
    }

    /// How a guarded message or a reply of `total` bytes is cut that has `prefix` bytes in front of its fragments' own
    /// headers; `None` when it is too long.
    fn cut(&self, total: usize, tag_len: usize, prefix: usize) -> Option<Cut> {
        let (whole, long) = (self.room(tag_len, prefix), self.long_room(tag_len, prefix + FRAGMENT_BYTES));
        Cut::new(total, whole, whole - FRAGMENT_BYTES, long)
            .filter(|cut| cut.count == 1 || total <= self.max_message_bytes(tag_len))
    }

    /// How many requests a channel in this slot may have under way.
    fn requests_max(&self, slot: Slot) -> usize {
        if slot == Slot::SERVICE { self.requests_per_service } else { self.requests_per_thread }
    }
}

/// Which lane a message's packets take. A receiver leaves a program's messages unseen while it has no room for them,
/// perhaps until something else has come that their sender sends behind them: all else goes before them.
fn lane_of(ty: MsgType) -> usize {
    usize::from(ty == types::USER)
}

/// Bytes of a request's `delta`.
const DELTA_BYTES: usize = 2;
/// Bytes in front of a reply's body: the number it answers.
const REPLY_BYTES: usize = 8;
/// Bytes in front of a fragment.
const FRAGMENT_BYTES: usize = 4;

/// Buffers that are kept for reuse: so many, and so many bytes of them together.
const SPARE_BUFFERS_MAX: usize = 16;
const SPARES_BYTES_MAX: usize = 1 << 20;

/// A shelf of buffers, so that the usual path allocates nothing.
#[derive(Default, Debug)]
struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// The smallest buffer with room for `len` bytes, or a new one. It holds whatever its last user left there.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let fit = self.buffers.iter().enumerate().filter(|(_, b)| b.capacity() >= len);
        match fit.min_by_key(|(_, b)| b.capacity()).map(|(at, _)| at) {
            Some(at) => {
                let buffer = self.buffers.swap_remove(at);
                self.bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(len),
        }
    }

    /// A copy of `bytes`.
    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(bytes.len());
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    fn give(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes != 0 && self.buffers.len() < SPARE_BUFFERS_MAX && self.bytes + bytes <= SPARES_BYTES_MAX {
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }
}
