//! The place in memory of the fragment that comes next, for whoever receives it there: a reply of many pages comes in
//! datagrams of 60 KiB, and need not be copied from a receive buffer to where it becomes whole.
//!
//! A datagram is one piece, and its header lies before the fragment. So it comes over the end of the fragment before,
//! of which as much is kept aside.

use super::{Reply, Sender};
use crate::ids::{NodeId, Seq};
use crate::link::fragment::Cut;
use crate::link::reply::{FRAGMENT_MIN, LEAD};
use crate::time::Time;
use crate::wire::bytes::{Reader, WireError};
use crate::wire::header::{HeaderRepr, MsgType, Packet};
use std::borrow::Cow;
use std::ops::Range;

/// Room for a datagram with a fragment of a reply that is half in. It must be given back, by [`Sender::take_back`] or
/// [`Sender::on_lent`]; until then what comes of this reply by another way is dropped, to be asked for again.
#[derive(Debug)]
pub struct Lent {
    seq: Seq,
    cut: Cut,
    index: usize,
    bytes: Vec<u8>,
    lead: [u8; LEAD],
}

impl Lent {
    fn range(&self) -> Range<usize> {
        let range = self.cut.range(self.index);
        range.start - LEAD..range.end
    }

    /// Where the datagram is to be received; what follows it, its tag, has room elsewhere.
    pub fn room(&mut self) -> &mut [u8] {
        let range = self.range();
        &mut self.bytes[range]
    }

    /// What was received there.
    pub fn received(&self) -> &[u8] {
        &self.bytes[self.range()]
    }

    /// Whether the datagram that came is the expected one; it must have filled the room, and its tag must be right.
    pub fn is_expected(&self, packet: &Packet<'_>) -> bool {
        let mut r = Reader::new(packet.payload);
        let is_reply = packet.header.flags.ack && packet.header.ty != MsgType::ACK;
        is_reply
            && r.u64().is_ok_and(|seq| seq == self.seq.0)
            && Cut::parse(packet.header.frag, &mut r)
                .is_ok_and(|(cut, index, _)| (cut, index) == (self.cut, self.index))
    }
}

impl Sender {
    /// Lends the place of the fragment that will probably come next, without its tag; `None` when none is so long.
    pub fn lend(&mut self) -> Option<Lent> {
        for &ordinal in &self.requests {
            let at = ordinal.checked_sub(self.first_ordinal).map(|at| at as usize);
            let Some(message) = at.and_then(|at| self.messages.get_mut(at)).filter(|m| m.live) else { continue };
            let Some((_, assembly)) = &mut message.reply else { continue };
            let cut = assembly.cut();
            let next = assembly.next().filter(|index| {
                let range = cut.range(*index);
                range.len() >= FRAGMENT_MIN && range.start >= LEAD
            });
            let (Some(index), seq) = (next, Seq::guarded(self.me, message.first)) else { continue };
            let bytes = assembly.lend()?;
            let start = cut.range(index).start;
            let mut lead = [0; LEAD];
            lead.copy_from_slice(&bytes[start - LEAD..start]);
            return Some(Lent { seq, cut, index, bytes, lead });
        }
        None
    }

    /// Takes room back in which nothing came, or something else. Gives whether the reply is still half in.
    pub fn take_back(&mut self, mut lent: Lent) -> bool {
        let lead = lent.lead;
        lent.room()[..LEAD].copy_from_slice(&lead);
        if let Some(ordinal) = self.request(lent.seq)
            && let Some((_, assembly)) = &mut self.messages[(ordinal - self.first_ordinal) as usize].reply
            && assembly.is_lent(lent.cut)
        {
            assembly.take_back(lent.bytes);
            return true;
        }
        self.spares.give(lent.bytes);
        false
    }

    /// As [`Sender::on_reply`], for the datagram with this header that was received where it belongs, and is
    /// [expected](Lent::is_expected).
    ///
    /// # Errors
    /// As [`Sender::on_reply`].
    pub fn on_lent(
        &mut self,
        now: Time,
        from: NodeId,
        lent: Lent,
        header: &HeaderRepr,
    ) -> Result<Reply<'static>, WireError> {
        let (seq, cut, index) = (lent.seq, lent.cut, lent.index);
        self.heard(now, from);
        let there = self.take_back(lent);
        let Some(ordinal) = self.request(seq).filter(|_| there) else { return Ok(Reply::Late) };
        match self.on_reply_fragment(now, from, ordinal, cut, index, None)? {
            Some(body) => Ok(self.answered(now, from, ordinal, (seq, header), Cow::Owned(body))),
            None => Ok(Reply::Partial),
        }
    }
}
