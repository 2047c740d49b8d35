//! A lane: the ring through which the threads of one process send records to one endpoint.
//!
//! One producer (the sending process, whose threads take turns) and one consumer (the endpoint). The producer copies a
//! record in and only then moves the *tail*; the consumer copies it out and only then moves the *head*. So a producer
//! that dies at any moment leaves whole records or nothing, and no lock.
//!
//! A record is a header of 16 bytes and the datagrams of one send, in one piece and rounded up to whole cache lines.
//! Where too little is left before the end of the ring, a *skip* leads back to its start. And when the consumer has
//! taken everything, the producer may declare its position to be the start of the ring, the *base*: so a lane with
//! little traffic stays within its first pages, in the cache and in memory.
//!
//! Each side keeps its own position itself and believes the other's only within bounds. Whatever stands in
//! the memory, the consumer reads within the ring and moves on; what it cannot read is lost, as a datagram may be.

use super::sys::Mapping;
use crate::BATCH_BYTES_MAX;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The bytes of a lane's ring: as much as a UDP socket keeps. Memory is used only as far as a lane is ever filled.
pub(super) const RING_BYTES: usize = 4 << 20;
/// The bytes of a lane's memory file: a page for the positions, and the ring.
pub(super) const LANE_BYTES: usize = RING + RING_BYTES;

const TAIL: usize = 0;
/// On the tail's cache line: who reads the one reads the other.
const BASE: usize = 8;
/// Not on the tail's cache line, nor on its neighbour, which processors fetch along.
const HEAD: usize = 256;
const RING: usize = 4096;

/// Records begin on cache lines.
const LINE: usize = 64;
const HEADER_BYTES: usize = 16;
const RECORD: u16 = 0x5243;
const SKIP: u16 = 0x534b;
/// From here on, a lane that was emptied goes back to its start: so far, both sides' first caches hold it.
const REWIND_FROM: usize = 8 << 10;
const RECORD_BYTES_MAX: usize = record_bytes(BATCH_BYTES_MAX);

const fn record_bytes(len: usize) -> usize {
    (HEADER_BYTES + len).next_multiple_of(LINE)
}

const _: () = assert!(2 * RECORD_BYTES_MAX <= RING_BYTES && RING_BYTES.is_power_of_two());

/// What stands before a record's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    kind: u16,
    /// The sending endpoint's port.
    port: u16,
    len: u32,
    segment: u32,
}

impl Header {
    const SKIP: Header = Header { kind: SKIP, port: 0, len: 0, segment: 0 };

    fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.segment.to_ne_bytes());
        bytes
    }

    fn parse(bytes: [u8; HEADER_BYTES]) -> Header {
        let [k0, k1, p0, p1, l0, l1, l2, l3, s0, s1, s2, s3, ..] = bytes;
        Header {
            kind: u16::from_ne_bytes([k0, k1]),
            port: u16::from_ne_bytes([p0, p1]),
            len: u32::from_ne_bytes([l0, l1, l2, l3]),
            segment: u32::from_ne_bytes([s0, s1, s2, s3]),
        }
    }
}

/// Where a position lies in the ring, if the base lies at its start.
fn offset(position: u64, base: u64) -> usize {
    position.wrapping_sub(base) as usize & (RING_BYTES - 1)
}

/// The producer's side.
#[derive(Debug)]
pub(super) struct Producer {
    memory: Mapping,
    tail: u64,
    /// A position at which the ring starts; changed only while the lane is empty, so the consumer stands there then.
    base: u64,
    /// The consumer's position when it was last looked at.
    head: u64,
}

impl Producer {
    /// Maps a lane that nobody has written to yet.
    pub(super) fn new(file: BorrowedFd<'_>) -> io::Result<Producer> {
        Ok(Producer { memory: Mapping::of(file, LANE_BYTES)?, tail: 0, base: 0, head: 0 })
    }

    /// Puts a record of at most [`BATCH_BYTES_MAX`] bytes into the lane; `false` when there is no room.
    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8], segment: usize, port: u16) -> bool {
        let size = record_bytes(bytes.len());
        if offset(self.tail, self.base) >= REWIND_FROM && self.is_drained() {
            self.base = self.tail;
        }
        let at = offset(self.tail, self.base);
        let to_end = RING_BYTES - at;
        let skipped = if size > to_end { to_end } else { 0 };
        let begin = self.tail.wrapping_add(skipped as u64);
        let end = begin.wrapping_add(size as u64);
        if !self.has_room(end) {
            return false;
        }
        if skipped > 0 {
            self.memory.write(RING + at, &Header::SKIP.bytes());
        }
        let header = Header { kind: RECORD, port, len: bytes.len() as u32, segment: segment as u32 };
        let place = RING + offset(begin, self.base);
        self.memory.write(place, &header.bytes());
        self.memory.write(place + HEADER_BYTES, bytes);
        self.tail = end;
        self.memory.word(BASE).store(self.base, Relaxed);
        self.memory.word(TAIL).store(end, Release);
        true
    }

    fn look(&mut self) {
        let head = self.memory.word(HEAD).load(Acquire);
        // A position that cannot be is nobody's; the consumer writes the right one when it looks next.
        if self.tail.wrapping_sub(head) <= RING_BYTES as u64 {
            self.head = head;
        }
    }

    fn is_drained(&mut self) -> bool {
        self.look();
        self.head == self.tail
    }

    fn has_room(&mut self, end: u64) -> bool {
        let fits = |head| end.wrapping_sub(head) <= RING_BYTES as u64;
        if !fits(self.head) {
            self.look();
        }
        fits(self.head)
    }
}

/// A record that was copied out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) port: u16,
    pub(super) len: usize,
    pub(super) segment: usize,
    /// Whether another one stands behind it.
    pub(super) more: bool,
}

/// The consumer's side.
#[derive(Debug)]
pub(super) struct Consumer {
    memory: Mapping,
    head: u64,
    /// How often something was there that no producer writes.
    damaged: u64,
}

impl Consumer {
    /// Maps a new lane.
    pub(super) fn new(file: BorrowedFd<'_>) -> io::Result<Consumer> {
        Ok(Consumer { memory: Mapping::of(file, LANE_BYTES)?, head: 0, damaged: 0 })
    }

    /// Takes the next record; what exceeds the buffer is cut off.
    #[inline]
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> Option<Record> {
        let tail = self.memory.word(TAIL).load(Acquire);
        let filled = tail.wrapping_sub(self.head);
        let base = self.memory.word(BASE).load(Relaxed);
        let odd = |position: u64| !position.is_multiple_of(LINE as u64);
        if filled > RING_BYTES as u64 || odd(tail) || odd(base) {
            return self.give_up(tail);
        }
        // The second time round, a skip has been followed.
        for _ in 0..2 {
            let at = offset(self.head, base);
            let left = tail.wrapping_sub(self.head).min((RING_BYTES - at) as u64) as usize;
            if left == 0 {
                break;
            }
            let mut header = [0; HEADER_BYTES];
            self.memory.read(RING + at, &mut header);
            let header = Header::parse(header);
            let len = header.len as usize;
            match header.kind {
                SKIP if left == RING_BYTES - at => self.head = self.head.wrapping_add(left as u64),
                RECORD if len <= BATCH_BYTES_MAX && record_bytes(len) <= left => {
                    let len = len.min(buffer.len());
                    self.memory.read(RING + at + HEADER_BYTES, &mut buffer[..len]);
                    self.move_to(self.head.wrapping_add(record_bytes(header.len as usize) as u64));
                    let segment = (header.segment as usize).clamp(1, len.max(1));
                    return Some(Record { port: header.port, len, segment, more: self.head != tail });
                }
                _ => return self.give_up(tail),
            }
        }
        // Nothing was there, or a skip alone; the position is written again in case it was overwritten.
        self.move_to(self.head);
        None
    }

    #[inline]
    fn move_to(&mut self, head: u64) {
        self.head = head;
        self.memory.word(HEAD).store(head, Release);
    }

    /// Leaves out everything up to `tail`: should that be wrong too, the producer's next record sets it right.
    #[cold]
    fn give_up(&mut self, tail: u64) -> Option<Record> {
        self.damaged += 1;
        self.move_to(tail & !(LINE as u64 - 1));
        None
    }

    /// Whether the producer has left nothing behind.
    pub(super) fn is_empty(&self) -> bool {
        self.memory.word(TAIL).load(Relaxed) == self.head
    }
}

#[cfg(test)]
mod tests;
