//! Many locks in one message: requests for their tokens, or the tokens themselves.
//!
//! An entry is a lock and what is said of it: what the wisher has seen, or what the acquirer must know. Mostly that is
//! the same as for the entry before, and stands there once.

use crate::ids::LockId;
use crate::wire::bytes::{Put, Reader, WireError};
use std::ops::Range;

/// A bundle of several entries has no more bytes: others go in another message.
pub const LOCK_BATCH_BYTES: usize = 64 << 10;

/// In place of a length: the same bytes as for the entry before.
const SAME: u32 = u32::MAX;
/// What an entry takes beside what it says.
const ENTRY_BYTES: usize = 8 + 4;

/// Entries of a message to be.
#[derive(Clone, Default, Debug)]
pub struct LockBatch {
    bytes: Vec<u8>,
    /// Where the bytes of the last entry stand.
    last: Range<usize>,
}

impl LockBatch {
    /// Adds a lock and what is said of it.
    pub fn add(&mut self, lock: LockId, said: &[u8]) {
        let same = !self.bytes.is_empty() && self.bytes[self.last.clone()] == *said;
        self.bytes.put_u64(lock.0);
        if same {
            self.bytes.put_u32(SAME);
        } else {
            self.bytes.put_u32(said.len() as u32);
            let start = self.bytes.len();
            self.bytes.put_bytes(said);
            self.last = start..self.bytes.len();
        }
    }

    /// Whether an entry that says this has room beside those that are in.
    pub fn has_room_for(&self, said: &[u8]) -> bool {
        self.is_empty() || self.bytes.len() + ENTRY_BYTES + said.len() <= LOCK_BATCH_BYTES
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The entries as they travel.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The locks of a message, and what it says of each.
///
/// # Errors
/// An entry that does not make sense; nothing follows it.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<(LockId, &[u8]), WireError>> {
    let (mut reader, mut last, mut over) = (Reader::new(bytes), None, false);
    std::iter::from_fn(move || {
        if over || reader.finish().is_ok() {
            return None;
        }
        let entry = entry(&mut reader, &mut last);
        over = entry.is_err();
        Some(entry)
    })
}

fn entry<'a>(reader: &mut Reader<'a>, last: &mut Option<&'a [u8]>) -> Result<(LockId, &'a [u8]), WireError> {
    let lock = LockId(reader.u64()?);
    let said = match reader.u32()? {
        SAME => last.ok_or(WireError::BadValue("an entry like one that is not there"))?,
        len => reader.take(len as usize)?,
    };
    *last = Some(said);
    Ok((lock, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Result<(LockId, &[u8]), WireError>> {
        entries(bytes).collect()
    }

    #[test]
    fn what_is_said_again_stands_there_once() {
        let mut batch = LockBatch::default();
        assert!(batch.is_empty());
        let all: [(u64, &[u8]); 5] =
            [(1, b""), (2, b"long enough to count"), (3, b"long enough to count"), (4, b"x"), (4, b"")];
        all.iter().for_each(|(lock, said)| batch.add(LockId(*lock), said));
        let expected: Vec<_> = all.iter().map(|(lock, said)| Ok((LockId(*lock), *said))).collect();
        assert_eq!(read(batch.bytes()), expected);
        assert_eq!(batch.bytes().len(), 5 * 12 + 20 + 1);
    }

    #[test]
    fn an_entry_that_makes_no_sense_is_the_last() {
        let mut batch = LockBatch::default();
        batch.add(LockId(1), b"abc");
        batch.add(LockId(2), b"de");
        for len in 1..batch.bytes().len() {
            let read = read(&batch.bytes()[..len]);
            assert!(read.len() <= 2 && read.last().is_some_and(|last| last.is_err() == (len != 15)), "{len}: {read:?}");
        }
        let mut like_none = Vec::new();
        like_none.put_u64(1);
        like_none.put_u32(SAME);
        assert!(matches!(read(&like_none)[..], [Err(_)]));
    }
}
