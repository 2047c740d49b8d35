//! False sharing under `msi`: a unit goes to and fro between nodes that write different bytes of it.
//!
//! Nobody hears which bytes a node writes to a unit that is its own. But a node sees its bytes whenever they come and
//! whenever they leave. What changed between coming and leaving it has written itself; what changed between leaving and
//! coming others have. If these bytes of a page have none in common, the page is shared falsely.
//!
//! Most units travel little, and cost a count. One that has left [`FROM`] times is watched: its bytes are kept and
//! compared, for [`TRAVELS_WATCHED`] times, or until it was found shared falsely [`FALSE_SHARING_ENOUGH`] times. After
//! some more travels it is watched again, for programs have phases. A store of the value that was there is not seen.

use crate::coherence::pages::PAGE_BYTES;

/// A unit that has left so often is watched.
pub const FROM: u16 = 4;
/// So many travels of a unit are looked at in a row.
pub const TRAVELS_WATCHED: u16 = 64;
/// Before it is watched again, it leaves so often.
pub const REST: u16 = 1024;
/// A page that was shared falsely so often is known, and watched no more.
pub const FALSE_SHARING_ENOUGH: u64 = 64;

/// Words of marks for a page: a bit for each byte.
const MARKS: usize = PAGE_BYTES / 64;

/// What a node knows of its sharing of a unit with others.
#[derive(Clone, Debug, Default)]
pub struct PingPong {
    /// How often the unit has left since it was watched last.
    left: u16,
    /// How long it is not watched.
    rest: u16,
    watched: Option<Box<Watched>>,
    /// How often each page of the unit was shared falsely.
    times: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Watched {
    /// The unit when it came or left last.
    bytes: Vec<u8>,
    /// What this node has written since others wrote, and what they have written since this one did; a bit for each
    /// byte.
    own: Vec<u64>,
    others: Vec<u64>,
    looks: u16,
}

impl PingPong {
    /// The unit's bytes have come from another node.
    pub fn comes(&mut self, bytes: &[u8]) {
        let is_due = self.left >= FROM.saturating_add(self.rest) && !self.is_known();
        match &mut self.watched {
            Some(watched) if watched.bytes.len() == bytes.len() => watched.take(bytes, false),
            Some(_) => self.watched = None,
            None if is_due => {
                let marks = vec![0; bytes.len().div_ceil(64)];
                let (own, others) = (marks.clone(), marks);
                self.watched = Some(Box::new(Watched { bytes: bytes.to_vec(), own, others, looks: 0 }));
            }
            None => {}
        }
    }

    /// The unit's bytes leave for another node.
    pub fn leaves(&mut self, bytes: &[u8]) {
        let Some(watched) = &mut self.watched else {
            self.left = self.left.saturating_add(1);
            return;
        };
        if watched.bytes.len() == bytes.len() {
            watched.take(bytes, true);
            watched.judge(&mut self.times);
            watched.looks += 1;
        }
        if self.watched.as_ref().is_none_or(|watched| watched.looks >= TRAVELS_WATCHED) || self.is_known() {
            (self.watched, self.left, self.rest) = (None, 0, REST);
        }
    }

    fn is_known(&self) -> bool {
        self.times.iter().any(|times| *times >= FALSE_SHARING_ENOUGH)
    }

    /// The pages of the unit that were shared falsely, by their places in it, and how often each was.
    pub fn found(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(self.times.iter().copied()).filter(|(_, times)| *times > 0)
    }
}

impl Watched {
    fn take(&mut self, bytes: &[u8], own: bool) {
        let marks = if own { &mut self.own } else { &mut self.others };
        for ((line, old), mark) in bytes.chunks(64).zip(self.bytes.chunks(64)).zip(marks) {
            if line != old {
                let changed = line.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old);
                changed.for_each(|(at, _)| *mark |= 1 << at);
            }
        }
        self.bytes.copy_from_slice(bytes);
    }

    /// Once both sides have written, each page tells.
    fn judge(&mut self, times: &mut Vec<u64>) {
        if self.own.iter().all(|mark| *mark == 0) || self.others.iter().all(|mark| *mark == 0) {
            return;
        }
        for (page, (own, others)) in self.own.chunks(MARKS).zip(self.others.chunks(MARKS)).enumerate() {
            let both_wrote = own.iter().any(|mark| *mark != 0) && others.iter().any(|mark| *mark != 0);
            if both_wrote && own.iter().zip(others).all(|(own, others)| own & others == 0) {
                if times.len() <= page {
                    times.resize(page + 1, 0);
                }
                times[page] += 1;
            }
        }
        self.own.fill(0);
        self.others.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A unit that comes and leaves so often; each time others store to one byte, and then this node to another.
    fn travels(times: u64, pages: usize, theirs: usize, ours: usize) -> PingPong {
        let (mut watch, mut bytes) = (PingPong::default(), vec![0u8; pages * PAGE_BYTES]);
        for _ in 0..times {
            bytes[theirs] = bytes[theirs].wrapping_add(1);
            watch.comes(&bytes);
            bytes[ours] = bytes[ours].wrapping_add(1);
            watch.leaves(&bytes);
        }
        watch
    }

    fn found(watch: &PingPong) -> Vec<(u32, u64)> {
        watch.found().collect()
    }

    #[test]
    fn different_bytes_of_a_page_are_shared_falsely_and_the_same_byte_is_not() {
        // The first four travels are not looked at, and in the fifth it is not known who wrote before.
        assert_eq!(found(&travels(30, 1, 0, 8)), [(0, 25)]);
        assert_eq!(found(&travels(30, 1, 0, 1)), [(0, 25)], "beside each other is different");
        assert_eq!(found(&travels(30, 1, 8, 8)), []);
    }

    #[test]
    fn pages_of_a_unit_are_told_apart() {
        assert_eq!(found(&travels(30, 4, PAGE_BYTES + 1, PAGE_BYTES + 2)), [(1, 25)]);
        assert_eq!(found(&travels(30, 4, PAGE_BYTES, 3 * PAGE_BYTES)), [], "no page has two writers");
    }

    #[test]
    fn who_only_reads_shares_nothing() {
        let (mut watch, mut bytes) = (PingPong::default(), vec![0u8; PAGE_BYTES]);
        for round in 0..60 {
            bytes[7] = round;
            watch.comes(&bytes);
            watch.leaves(&bytes);
        }
        assert_eq!(found(&watch), []);
    }

    #[test]
    fn what_is_known_is_watched_no_more_and_what_was_looked_at_in_vain_rests() {
        let known = travels(1000, 1, 0, 8);
        assert!(
            known.watched.is_none() && found(&known) == [(0, u64::from(TRAVELS_WATCHED) - 1)],
            "{:?}",
            found(&known)
        );
        let vain = travels(100, 1, 8, 8);
        assert!(vain.watched.is_none() && vain.rest == REST);
        let later = travels(u64::from(REST) + 80, 1, 8, 8);
        assert!(later.watched.is_some(), "programs have phases");
    }
}
