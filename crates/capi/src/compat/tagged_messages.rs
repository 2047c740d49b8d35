//! Messages from node to node with tags, received in the order in which they were sent (as MPI's, and JIAJIA 2.1's,
//! section 4.5), on Comem's, which come in no particular order.
//!
//! A *letter* is cut into parts that fit a message. Each part says which letter of its sender's to this node it belongs
//! to; letters are *ready* when all their parts and all earlier letters of their sender have come.

use super::{argument, misuse};
use crate::failure::Outcome;
use crate::job::thread;
use comem_rt::NodeId;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a letter in one part.
const PART_BYTES: usize = 16 << 10;
/// In front of a part: kind, tag, letter's number, letter's length, offset.
const HEAD_BYTES: usize = 1 + 4 + 8 + 8 + 8;

/// A letter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaggedMessage {
    pub from: usize,
    /// Who deals with it: the program's own letters and others have separate tags.
    pub kind: u8,
    pub tag: i32,
    pub bytes: Vec<u8>,
}

/// A letter of which not all has come.
#[derive(Debug, Default)]
struct Partial {
    /// Without its bytes.
    letter: TaggedMessage,
    /// What has come, by its offset.
    parts: BTreeMap<u64, Vec<u8>>,
    missing: u64,
}

impl Partial {
    /// Takes a part; tells whether it makes sense.
    fn take(&mut self, length: u64, offset: u64, bytes: &[u8]) -> bool {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= length);
        let left = end.and_then(|_| self.missing.checked_sub(bytes.len() as u64));
        self.missing = left.unwrap_or(self.missing);
        left.is_some() && self.parts.insert(offset, bytes.to_vec()).is_none()
    }

    fn whole(self) -> TaggedMessage {
        let joined = self.parts.into_values().reduce(|mut bytes, part| {
            bytes.extend(part);
            bytes
        });
        TaggedMessage { bytes: joined.unwrap_or_default(), ..self.letter }
    }
}

/// What one sender's letters have come to.
#[derive(Debug, Default)]
struct Sender {
    /// The letter that is ready next.
    next: u64,
    under_way: BTreeMap<u64, Partial>,
}

/// A node's letters.
#[derive(Debug, Default)]
pub struct TaggedMessages {
    /// How many went to each node.
    sent: BTreeMap<usize, u64>,
    senders: BTreeMap<usize, Sender>,
    ready: VecDeque<TaggedMessage>,
}

/// The parts of a letter, as they are posted.
fn parts(kind: u8, tag: i32, number: u64, bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let offsets = std::iter::once(0).chain((PART_BYTES..bytes.len()).step_by(PART_BYTES));
    offsets.map(move |offset| {
        let mut part = Vec::with_capacity(HEAD_BYTES + PART_BYTES);
        part.push(kind);
        part.extend(tag.to_be_bytes());
        part.extend(number.to_be_bytes());
        part.extend((bytes.len() as u64).to_be_bytes());
        part.extend((offset as u64).to_be_bytes());
        part.extend(&bytes[offset..bytes.len().min(offset + PART_BYTES)]);
        part
    })
}

impl TaggedMessages {
    /// Sends one.
    pub fn send(&mut self, to: usize, kind: u8, tag: i32, bytes: &[u8]) -> Outcome<()> {
        let thread = thread()?;
        let number = self.sent.entry(to).or_default();
        for part in parts(kind, tag, *number, bytes) {
            thread.post(to, &part)?;
        }
        *number += 1;
        Ok(())
    }

    /// Waits for the first letter that `wanted` says yes to.
    pub fn receive(&mut self, wanted: impl Fn(&TaggedMessage) -> bool) -> Outcome<TaggedMessage> {
        let at = self.await_first(wanted)?;
        Ok(self.ready.remove(at).unwrap_or_default())
    }

    /// The same, for `receiver`; a letter that it does not take stays.
    pub fn receive_by<R>(
        &mut self,
        wanted: impl Fn(&TaggedMessage) -> bool,
        receiver: impl FnOnce(&TaggedMessage) -> Outcome<R>,
    ) -> Outcome<R> {
        let at = self.await_first(wanted)?;
        let result = receiver(&self.ready[at])?;
        self.ready.remove(at);
        Ok(result)
    }

    fn await_first(&mut self, wanted: impl Fn(&TaggedMessage) -> bool) -> Outcome<usize> {
        loop {
            if let Some(at) = self.ready.iter().position(&wanted) {
                return Ok(at);
            }
            let (from, part) = thread()?.receive();
            self.take_in(from.index(), &part)?;
        }
    }

    /// The first letter that `wanted` says yes to, if it is here.
    pub fn poll(&mut self, wanted: impl Fn(&TaggedMessage) -> bool) -> Outcome<Option<TaggedMessage>> {
        let thread = thread()?;
        self.poll_from(|| thread.try_receive(), wanted)
    }

    /// The first letter that `wanted` says yes to, if it is here or among what `next` gives.
    pub fn poll_from(
        &mut self,
        mut next: impl FnMut() -> Option<(NodeId, Vec<u8>)>,
        wanted: impl Fn(&TaggedMessage) -> bool,
    ) -> Outcome<Option<TaggedMessage>> {
        while let Some((from, part)) = next() {
            self.take_in(from.index(), &part)?;
        }
        Ok(self.take(wanted))
    }

    fn take(&mut self, wanted: impl Fn(&TaggedMessage) -> bool) -> Option<TaggedMessage> {
        let at = self.ready.iter().position(wanted)?;
        self.ready.remove(at)
    }

    fn take_in(&mut self, from: usize, part: &[u8]) -> Outcome<()> {
        let foreign =
            || misuse("a message of comem_post() came among the program's own; use one interface for messages");
        let (head, bytes) = part.split_first_chunk::<HEAD_BYTES>().ok_or_else(foreign)?;
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| head[at + i]));
        let tag = i32::from_be_bytes(std::array::from_fn(|i| head[1 + i]));
        let (number, length, offset) = (word(5), word(13), word(21));
        let sender = self.senders.entry(from).or_default();
        let partial = sender.under_way.entry(number).or_insert_with(|| {
            let letter = TaggedMessage { from, kind: head[0], tag, bytes: Vec::new() };
            Partial { letter, parts: BTreeMap::new(), missing: length }
        });
        if !partial.take(length, offset, bytes) {
            return Err(foreign());
        }
        while sender.under_way.get(&sender.next).is_some_and(|p| p.missing == 0) {
            let whole = sender.under_way.remove(&sender.next).unwrap_or_default();
            self.ready.push_back(whole.whole());
            sender.next += 1;
        }
        Ok(())
    }
}

/// The node that a program named by a number.
pub fn node(number: i32) -> Outcome<usize> {
    let nodes = crate::job::job()?.nodes();
    usize::try_from(number)
        .ok()
        .filter(|node| *node < nodes)
        .ok_or_else(|| argument(format!("there is no host {number}; the job's {nodes} count from 0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(letters: &mut TaggedMessages) -> Vec<(usize, i32, Vec<u8>)> {
        std::iter::from_fn(|| letters.take(|_| true)).map(|l| (l.from, l.tag, l.bytes)).collect()
    }

    #[test]
    fn letters_come_out_in_the_order_of_sending_whatever_order_their_parts_take() {
        let long: Vec<u8> = (0..2 * PART_BYTES + 5).map(|i| i as u8).collect();
        let mut posted: Vec<Vec<u8>> = parts(0, 3, 0, &long).chain(parts(0, -4, 1, b"")).collect();
        posted.extend(parts(0, 5, 2, b"last"));
        assert_eq!(posted.len(), 5);
        posted.reverse();
        let mut letters = TaggedMessages::default();
        for (index, part) in posted.iter().enumerate() {
            letters.take_in(1, part).unwrap();
            assert_eq!(letters.ready.is_empty(), index < 4, "nothing is ready before the first letter is whole");
        }
        assert_eq!(ready(&mut letters), [(1, 3, long), (1, -4, vec![]), (1, 5, b"last".to_vec())]);
    }

    #[test]
    fn a_letter_that_its_receiver_does_not_take_stays_where_it_was() {
        let mut letters = TaggedMessages::default();
        for (number, tag) in [1, 2, 3].into_iter().enumerate() {
            let part = parts(0, tag, number as u64, b"text").next().unwrap();
            letters.take_in(1, &part).unwrap();
        }
        assert!(letters.receive_by(|letter| letter.tag == 2, |_| Err::<(), _>(argument("too small"))).is_err());
        assert!(letters.receive_by(|letter| letter.tag == 3, |_| Ok(())).is_ok());
        let left: Vec<i32> = ready(&mut letters).into_iter().map(|(_, tag, _)| tag).collect();
        assert_eq!(left, [1, 2]);
    }

    #[test]
    fn senders_do_not_wait_for_each_other() {
        let mut letters = TaggedMessages::default();
        for part in parts(0, 0, 1, b"second") {
            letters.take_in(1, &part).unwrap();
        }
        for part in parts(0, 7, 0, b"other") {
            letters.take_in(2, &part).unwrap();
        }
        assert_eq!(ready(&mut letters), [(2, 7, b"other".to_vec())]);
    }

    #[test]
    fn a_part_that_makes_no_sense_is_refused() {
        let mut letters = TaggedMessages::default();
        assert!(letters.take_in(0, b"short").is_err());
        let mut part = parts(0, 0, 0, b"abc").next().unwrap();
        part[28] = 200;
        assert!(letters.take_in(0, &part).is_err(), "beyond the letter's end");
        let mut letters = TaggedMessages::default();
        assert!(letters.take_in(0, &[0xff; HEAD_BYTES + 3]).is_err(), "of a length that no memory takes");
        let mut letters = TaggedMessages::default();
        let part = parts(0, 0, 0, &[1; PART_BYTES + 1]).next().unwrap();
        assert!(letters.take_in(0, &part).is_ok());
        assert!(letters.take_in(0, &part).is_err(), "a second time");
    }
}
