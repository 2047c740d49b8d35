//! A message in several datagrams: how it is cut, and how it becomes whole again.
//!
//! The cut follows from two numbers that every fragment carries, count and length of the message: all fragments are
//! ⌈length / count⌉ bytes long, the last one shorter. So each fragment's place is known whichever comes first, and a
//! fragment of the wrong size is refused.

use super::Spares;
use crate::rules::Rule;
use crate::wire::bytes::{Put, Reader, WireError};

/// Most fragments of a message: the header counts them in one byte, from 1.
pub const FRAGMENTS_MAX: usize = 255;
/// Most bytes of a message: 24 bits.
pub(super) const TOTAL_MAX: usize = (1 << 24) - 1;

/// How a message is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Number of fragments; 1 when the message is whole.
    pub count: usize,
    /// Bytes of the message.
    pub total: usize,
}

impl Cut {
    /// The cut of `total` bytes when a whole message has room for `whole` bytes and a fragment for `piece`. Where that
    /// would take too many, they are longer, up to `long` bytes; `None` when that does not do either.
    pub fn new(total: usize, whole: usize, piece: usize, long: usize) -> Option<Cut> {
        if total <= whole && total <= TOTAL_MAX {
            return Some(Cut { count: 1, total });
        }
        let needed = total.div_ceil(FRAGMENTS_MAX);
        let fits = needed <= piece.max(long) && total <= TOTAL_MAX;
        fits.then(|| Cut { count: total.div_ceil(piece.max(needed)), total })
    }

    /// Bytes of every fragment but the last.
    fn piece(self) -> usize {
        self.total.div_ceil(self.count)
    }

    /// Where fragment `index` stands in the message.
    pub fn range(self, index: usize) -> std::ops::Range<usize> {
        let start = (index * self.piece()).min(self.total);
        start..(start + self.piece()).min(self.total)
    }

    /// The header's `frag` field for fragment `index`.
    pub fn frag_field(self, index: usize) -> u8 {
        if self.count == 1 { 0 } else { index as u8 + 1 }
    }

    /// Appends the fragment's own header; nothing when the message is whole.
    pub fn emit(self, out: &mut Vec<u8>) {
        if self.count > 1 {
            out.put_u32((self.count as u32) << 24 | self.total as u32);
        }
    }

    /// Reads a fragment's own header and checks it against the rest of the datagram.
    pub fn parse<'a>(frag: u8, r: &mut Reader<'a>) -> Result<(Cut, usize, &'a [u8]), WireError> {
        let Some(index) = usize::from(frag).checked_sub(1) else {
            let body = r.rest();
            return Ok((Cut { count: 1, total: body.len() }, 0, body));
        };
        let word = r.u32()?;
        let cut = Cut { count: (word >> 24) as usize, total: word as usize & TOTAL_MAX };
        let bytes = r.rest();
        let range = if cut.count > 1 && index < cut.count { cut.range(index) } else { 0..0 };
        if range.is_empty() || bytes.len() != range.len() {
            return Err(WireError::BadValue("fragment"));
        }
        Ok((cut, index, bytes))
    }
}

/// Which fragments are there.
pub(super) type Have = [u64; 4];

/// Whether fragment `index` is among `have`.
pub(super) fn has(have: &Have, index: usize) -> bool {
    have[index / 64] & 1 << (index % 64) != 0
}

/// A message some fragments of which are still to come.
#[derive(Debug)]
pub(super) struct Assembly {
    cut: Cut,
    have: Have,
    missing: usize,
    bytes: Vec<u8>,
    /// The bytes are elsewhere for a while, where a fragment is received.
    lent: bool,
}

impl Assembly {
    pub fn new(cut: Cut, spares: &mut Spares) -> Assembly {
        // Whatever the buffer held, every byte of it is overwritten before anybody reads it.
        let mut bytes = spares.take(cut.total);
        bytes.resize(cut.total, 0);
        Assembly { cut, have: [0; 4], missing: cut.count, bytes, lent: false }
    }

    pub fn cut(&self) -> Cut {
        self.cut
    }

    pub fn have(&self) -> &Have {
        &self.have
    }

    /// Puts a fragment in its place; says whether it was missing. While the bytes are lent it is as if it had not come.
    pub fn insert(&mut self, index: usize, bytes: &[u8]) -> bool {
        let new = !has(&self.have, index) && !self.lent;
        if new {
            self.bytes[self.cut.range(index)].copy_from_slice(bytes);
            self.note(index);
        }
        new
    }

    /// A fragment is in its place; says whether it was missing.
    pub fn note(&mut self, index: usize) -> bool {
        let new = !has(&self.have, index);
        if new {
            self.have[index / 64] |= 1 << (index % 64);
            self.missing -= 1;
        }
        new
    }

    /// The first fragment that is missing.
    pub fn next(&self) -> Option<usize> {
        (0..self.cut.count).find(|index| !has(&self.have, *index))
    }

    /// Gives the bytes away, for the next fragment to be received there; `None` when they are away already.
    pub fn lend(&mut self) -> Option<Vec<u8>> {
        (!std::mem::replace(&mut self.lent, true)).then(|| std::mem::take(&mut self.bytes))
    }

    /// Whether the bytes of this message, cut like that, are lent.
    pub fn is_lent(&self, cut: Cut) -> bool {
        self.lent && self.cut == cut
    }

    /// Takes the bytes back.
    pub fn take_back(&mut self, bytes: Vec<u8>) {
        (self.bytes, self.lent) = (bytes, false);
    }

    /// Whether a fragment behind `index` is missing.
    pub fn lacks_beyond(&self, index: usize) -> bool {
        (index + 1..self.cut.count).any(|i| !has(&self.have, i))
    }

    /// Whether the message can be delivered.
    pub fn is_complete(&self) -> bool {
        self.missing == 0 || !Rule::FragmentsAllIn.on()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_covers_the_message_with_no_empty_fragment() {
        for (piece, long) in [(1, 1), (3, 2), (3, 5), (700, 701)] {
            let most = piece.max(long);
            for total in 1..most * 255 + 2 {
                let Some(cut) = Cut::new(total, piece, piece, long) else {
                    assert!(total > most * 255);
                    continue;
                };
                let piece = if total > piece * 255 { most } else { piece };
                let ends: Vec<_> = (0..cut.count).map(|i| cut.range(i)).collect();
                assert_eq!((ends[0].start, ends[cut.count - 1].end), (0, total));
                assert!(ends.windows(2).all(|w| w[0].end == w[1].start && w[0].len() >= w[1].len()));
                assert!(ends.iter().all(|r| !r.is_empty() && r.len() <= piece), "{total} by {piece}");
            }
        }
    }

    #[test]
    fn fragments_of_a_wrong_size_or_place_are_refused() {
        let parse = |frag, word: u32, len: usize| {
            let mut bytes = word.to_be_bytes().to_vec();
            bytes.resize(4 + len, 1);
            Cut::parse(frag, &mut Reader::new(&bytes)).map(|(_, index, _)| index)
        };
        assert_eq!(parse(3, 3 << 24 | 8, 2), Ok(2));
        for (frag, word, len) in
            [(3, 3 << 24 | 8, 3), (4, 3 << 24 | 8, 2), (1, 1 << 24 | 8, 8), (1, 8, 8), (4, 4 << 24 | 3, 0)]
        {
            assert_eq!(parse(frag, word, len), Err(WireError::BadValue("fragment")), "{frag} {word:x} {len}");
        }
    }

    #[test]
    fn fragments_in_any_order_make_the_message() {
        let message: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        let cut = Cut::new(1000, 99, 77, 0).unwrap();
        let mut assembly = Assembly::new(cut, &mut Spares::default());
        for i in (0..cut.count).rev() {
            assert!(!assembly.is_complete());
            assert!(assembly.insert(i, &message[cut.range(i)]));
            assert!(!assembly.insert(i, &message[cut.range(i)]));
        }
        assert!(assembly.is_complete());
        assert_eq!(assembly.into_bytes(), message);
    }
}
