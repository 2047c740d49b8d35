//! A miss over a backbone with one-sided operations: each is carried out as it comes.

use super::here::{Here, Span, wait, wide_words};
use super::miss::Reach;
use comem_protocol::coherence::direct::group::{Batches, Joint, is_waited_for, side_by_side};
use comem_protocol::coherence::direct::one_sided::{Place, Segment};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, MAGIC, OneSided, Op, Reply};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use smallvec::SmallVec;
use std::slice;

/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<u16>();
/// Most lines of a unit.
const LINES_MAX: usize = 2048 / LINE_BYTES;

const MAGIC_LINE: [u8; LINE_BYTES] = {
    let (value, mut line, mut at) = (MAGIC.to_ne_bytes(), [0; LINE_BYTES], 0);
    while at < LINE_BYTES {
        line[at] = value[at % value.len()];
        at += 1;
    }
    line
};

/// Carries operations out by one-sided ones.
pub(crate) struct OneByOne<O> {
    /// The backbone's operations, for this thread.
    pub(crate) operations: O,
    /// Words of a wide set.
    pub(crate) wide_words: usize,
    /// Whether entries and wide words of the thread's own node are changed by operations too.
    pub(crate) loops_back: bool,
}

impl<O: OneSided> Reach for OneByOne<O> {
    type Error = O::Error;

    #[inline]
    fn carry_out(&mut self, batch: &[Op], here: &mut Here<'_>) -> Result<Reply, O::Error> {
        let mut reply = Reply::Done;
        for op in batch {
            let loops_back = || (self.loops_back && changes_words(op)).then_some(here.me);
            reply = match op.target(here.me).or_else(loops_back) {
                Some(node) => self.at(node, op, here)?,
                None => {
                    if *op == Op::Flush {
                        self.operations.flush()?;
                    }
                    here.operate(op)
                }
            };
            if reply == Reply::Lost {
                break;
            }
        }
        Ok(reply)
    }

    fn carry_out_all(
        &mut self,
        batches: &Batches,
        spans: &[Span],
        here: &mut Here<'_>,
        replies: &mut [Reply],
    ) -> Result<(), O::Error> {
        let lists = batches.iter().map(|(number, batch)| (*number, batch.iter()));
        for joint in side_by_side(lists, |op| is_waited_for(op)) {
            match joint {
                Joint::One(number, op) => {
                    here.span = spans[number];
                    replies[number] = self.carry_out(slice::from_ref(op), here)?;
                    if replies[number] == Reply::Lost {
                        return Ok(());
                    }
                }
                Joint::Together(ops) => {
                    let place = |(number, op): &(usize, &Op)| match **op {
                        Op::Quiesce { at } => Some((at, spans[*number].offset() as u64, spans[*number].bytes() as u64)),
                        _ => None,
                    };
                    let places: SmallVec<[_; 4]> = ops.iter().filter_map(place).collect();
                    if places.len() < ops.len() {
                        self.carry_out(&[Op::Flush], here)?;
                    }
                    if !places.is_empty() {
                        self.operations.quiesce_all(&places)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether an operation is about an entry or wide words, and more than a plain load.
fn changes_words(op: &Op) -> bool {
    matches!(
        op,
        Op::FetchAndSet { .. } | Op::PutEntry { .. } | Op::PutMirrors { .. } | Op::PutWide { .. } | Op::GetWide { .. }
    )
}

impl<O: OneSided> OneByOne<O> {
    /// An operation on another node's memory.
    #[inline]
    fn at(&mut self, node: NodeId, op: &Op, here: &mut Here<'_>) -> Result<Reply, O::Error> {
        let (span, lines) = (here.span, here.span.lines);
        let entry_of = |line: usize| Place { node, segment: Segment::Entries, offset: (line * ENTRY_BYTES) as u64 };
        match *op {
            Op::FetchAndSet { .. } => {
                return self.operations.fetch_and_set(entry_of(span.line), here.me).map(Reply::Entry);
            }
            Op::GetWide { .. } => return self.get_wide(node, span.line).map(Reply::Wide),
            Op::GetData { .. } => {
                for offset in (span.offset()..span.offset() + span.bytes()).step_by(LINE_BYTES) {
                    let mut line = [0; LINE_BYTES];
                    let from = Place { node, segment: Segment::Data, offset: offset as u64 };
                    self.operations.get(from, &mut line)?;
                    here.memory.write(offset, &line);
                }
            }
            Op::PutMagic { .. } => {
                for offset in (span.offset()..span.offset() + span.bytes()).step_by(LINE_BYTES) {
                    let to = Place { node, segment: Segment::Data, offset: offset as u64 };
                    self.operations.put(to, &MAGIC_LINE)?;
                }
            }
            Op::PutMirrors { entry, .. } => self.put_mirrors(entry_of(span.line + 1), lines, entry)?,
            Op::PutEntry { entry, .. } => {
                self.put_mirrors(entry_of(span.line + 1), lines, entry)?;
                self.operations.put(entry_of(span.line), &entry.0.to_ne_bytes())?;
            }
            Op::PutWide { ref holders, .. } => {
                let words: SmallVec<[u8; 16]> =
                    wide_words(holders, self.wide_words).flat_map(u64::to_ne_bytes).collect();
                self.operations.put(self.wide_of(node, span.line), &words)?;
            }
            Op::Quiesce { .. } => self.operations.quiesce(node, span.offset() as u64, span.bytes() as u64)?,
            Op::Pause { .. } => return self.pause(entry_of(span.line), here),
            Op::Flush | Op::Peek | Op::Access => return Ok(here.operate(op)),
        }
        Ok(Reply::Done)
    }

    /// Replaces the entries of a unit's lines but the first.
    fn put_mirrors(&mut self, at: Place, lines: usize, entry: Entry) -> Result<(), O::Error> {
        if lines == 1 {
            return Ok(());
        }
        let mut bytes = [0; LINES_MAX * ENTRY_BYTES];
        let bytes = &mut bytes[..(lines - 1) * ENTRY_BYTES];
        bytes.chunks_exact_mut(ENTRY_BYTES).for_each(|place| place.copy_from_slice(&entry.0.to_ne_bytes()));
        self.operations.put(at, bytes)
    }

    fn wide_of(&self, node: NodeId, line: usize) -> Place {
        Place { node, segment: Segment::Wide, offset: (line * self.wide_words * size_of::<u64>()) as u64 }
    }

    fn get_wide(&mut self, node: NodeId, line: usize) -> Result<NodeSet, O::Error> {
        let mut bytes: SmallVec<[u8; 16]> = smallvec::smallvec![0; self.wide_words * size_of::<u64>()];
        self.operations.get(self.wide_of(node, line), &mut bytes)?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        let has = |word: u64, bit: &usize| word & (1 << bit) != 0;
        let nodes = |(at, word)| (0..64).filter(move |bit| has(word, bit)).map(move |bit| at * 64 + bit);
        Ok(words.enumerate().flat_map(nodes).map(|node| NodeId(node as u16)).collect())
    }

    /// Waits until a plain load finds an entry unlocked, or for a while.
    fn pause(&mut self, at: Place, here: &mut Here<'_>) -> Result<Reply, O::Error> {
        let (operations, failed) = (std::cell::RefCell::new(&mut self.operations), std::cell::Cell::new(None));
        let is_over = || {
            let mut entry = [0; ENTRY_BYTES];
            let got = operations.borrow_mut().get(at, &mut entry);
            got.map_or_else(
                |error| {
                    failed.set(Some(error));
                    true
                },
                |()| !Entry(u16::from_ne_bytes(entry)).is_busy(),
            )
        };
        let reply = wait(&mut here.pause, is_over, here.is_lost);
        failed.into_inner().map_or(Ok(reply), Err)
    }
}
