//! One-sided operations where nodes share a host: plain loads and stores in other nodes' memory, and no handler.

use super::here::wait;
use comem_memory::lines::{ENTRY_BYTES, LinesMemory, barrier};
use comem_protocol::coherence::direct::one_sided::{Place, Segment};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, OneSided, Reply};
use comem_protocol::ids::NodeId;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The nodes' memories, as far as this process can reach them.
pub(crate) trait Memories {
    /// The lines memory of a node.
    fn memory(&self, node: NodeId) -> Option<&LinesMemory>;
}

/// Why an operation had no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The node's memory cannot be reached.
    NoMemory(NodeId),
    /// It is about what the region does not have.
    Outside(Place),
    /// The system has no barrier on other processes' threads any more.
    NoBarrier,
    /// The node's memory cannot be reached any more, and why.
    Failed(NodeId, String),
    /// The job is lost.
    Lost,
}

/// The operations of one thread on one region.
pub(crate) struct Shm<'a, M> {
    pub(crate) memories: &'a M,
    /// The region's lines. Nothing else is touched.
    pub(crate) region: Range<usize>,
    /// Whether the job is lost. It is told whether the thread sleeps by now, and not spins.
    pub(crate) is_lost: &'a dyn Fn(bool) -> bool,
}

impl<M: Memories> Shm<'_, M> {
    fn memory(&self, node: NodeId) -> Result<&LinesMemory, Refusal> {
        self.memories.memory(node).ok_or(Refusal::NoMemory(node))
    }

    /// The target's memory, and the first line that `bytes` bytes at a place are about.
    fn target(&self, at: Place, bytes: usize) -> Result<(&LinesMemory, usize), Refusal> {
        let outside = Refusal::Outside(at);
        let memory = self.memory(at.node)?;
        let (bytes_per_line, grain) = match at.segment {
            Segment::Data => (LINE_BYTES, size_of::<u64>()),
            Segment::Entries => (ENTRY_BYTES, ENTRY_BYTES),
            Segment::Wide => (memory.extent().wide_words * size_of::<u64>(), size_of::<u64>()),
            Segment::Hazards | Segment::Claims | Segment::Locks => return Err(outside),
        };
        let offset = usize::try_from(at.offset).map_err(|_| outside.clone())?;
        let first = offset.checked_div(bytes_per_line).ok_or_else(|| outside.clone())?;
        let end = offset.checked_add(bytes).ok_or_else(|| outside.clone())?.div_ceil(bytes_per_line);
        let is_whole = offset.is_multiple_of(grain) && bytes.is_multiple_of(grain);
        if is_whole && self.region.start <= first && end <= self.region.end {
            Ok((memory, first))
        } else {
            Err(outside)
        }
    }

    fn word(&self, at: Place) -> Result<&AtomicU64, Refusal> {
        let (memory, line) = self.target(at, size_of::<u64>())?;
        match at.segment {
            Segment::Data => Ok(memory.word(at.offset as usize)),
            Segment::Wide => {
                let words = memory.wide(line);
                Ok(&words[at.offset as usize / size_of::<u64>() % words.len()])
            }
            _ => Err(Refusal::Outside(at)),
        }
    }
}

impl<M: Memories> OneSided for Shm<'_, M> {
    type Error = Refusal;

    #[inline]
    fn get(&mut self, from: Place, into: &mut [u8]) -> Result<(), Refusal> {
        let (memory, line) = self.target(from, into.len())?;
        match from.segment {
            Segment::Data => memory.read(from.offset as usize, into),
            Segment::Entries => {
                for (line, bytes) in (line..).zip(into.chunks_exact_mut(ENTRY_BYTES)) {
                    bytes.copy_from_slice(&memory.entry(line).load(Ordering::Acquire).to_ne_bytes());
                }
            }
            _ => {
                for (at, bytes) in (from.offset..).step_by(8).zip(into.chunks_exact_mut(8)) {
                    let word = self.word(Place { offset: at, ..from })?;
                    bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, to: Place, bytes: &[u8]) -> Result<(), Refusal> {
        let (memory, line) = self.target(to, bytes.len())?;
        match to.segment {
            Segment::Data => memory.write(to.offset as usize, bytes),
            Segment::Entries => {
                for (line, bytes) in (line..).zip(bytes.chunks_exact(ENTRY_BYTES)) {
                    let entry = u16::from_ne_bytes(bytes.try_into().expect("an entry"));
                    memory.entry(line).store(entry, Ordering::Release);
                }
            }
            _ => {
                for (at, bytes) in (to.offset..).step_by(8).zip(bytes.chunks_exact(8)) {
                    let word = u64::from_ne_bytes(bytes.try_into().expect("a word"));
                    self.word(Place { offset: at, ..to })?.store(word, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn fetch_and_set(&mut self, at: Place, holder: NodeId) -> Result<Entry, Refusal> {
        if at.segment != Segment::Entries {
            return Err(Refusal::Outside(at));
        }
        let (memory, line) = self.target(at, ENTRY_BYTES)?;
        Ok(memory.fetch_and_set(line, holder))
    }

    fn fetch_add(&mut self, at: Place, summand: u64) -> Result<u64, Refusal> {
        Ok(self.word(at)?.fetch_add(summand, Ordering::SeqCst))
    }

    fn compare_and_swap(&mut self, at: Place, expected: u64, new: u64) -> Result<u64, Refusal> {
        let swapped = self.word(at)?.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
        Ok(swapped.unwrap_or_else(|found| found))
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Refusal> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn quiesce(&mut self, node: NodeId, offset: u64, bytes: u64) -> Result<(), Refusal> {
        self.quiesce_all(&[(node, offset, bytes)])
    }

    fn quiesce_all(&mut self, places: &[(NodeId, u64, u64)]) -> Result<(), Refusal> {
        let mut spans = SmallVec::<[_; 4]>::new();
        for &(node, offset, bytes) in places {
            let (memory, line) = self.target(Place { node, segment: Segment::Data, offset }, bytes as usize)?;
            spans.push((memory, line..line + bytes as usize / LINE_BYTES));
        }
        barrier::all_processes().map_err(|_| Refusal::NoBarrier)?;
        for (memory, lines) in spans {
            let mut pause = super::pause::Pause::new(lines.start);
            while memory.has_hazard(lines.clone()) {
                if wait(&mut pause, || !memory.has_hazard(lines.clone()), self.is_lost) == Reply::Lost {
                    return Err(Refusal::Lost);
                }
            }
        }
        Ok(())
    }
}
