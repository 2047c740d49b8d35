//! Loops whose items are dealt out while they run, as a thread takes part in them.
//!
//! What a node has of a loop stands in its [`Part`], under a lock that the thread that fetches the next batch keeps
//! while it waits: the others have nothing to do before it is there.

use super::Thread;
use crate::error::{Error, Result};
use crate::mutex::Mutex;
use crate::node::Waiting;
use comem_protocol::outbox::{Origin, Target};
use comem_protocol::sync::deal::{self, BatchRequest, Batches, Dealt, Loops};
use comem_protocol::time::Time;
use comem_protocol::wire::message::{Message, types};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a node has of a loop.
#[derive(Debug)]
pub(crate) struct Part {
    number: u64,
    total: u64,
    /// As the program says it; 0: guided.
    chunk: u64,
    batch: Mutex<Batch>,
    /// How many of the node's threads are still to leave the loop.
    threads: AtomicUsize,
}

#[derive(Debug)]
struct Batch {
    items: Range<u64>,
    /// The manager has said that nothing is left.
    over: bool,
    sizes: Batches,
    since: Time,
}

/// Loops whose items are dealt out: as their manager, and what this node has of them.
///
/// Each list has a mutex of its own, held for one look; a loop's batch is locked without them.
#[derive(Debug, Default)]
pub(crate) struct DynamicLoops {
    managed: Mutex<Loops>,
    parts: Mutex<BTreeMap<u64, Arc<Part>>>,
}

impl DynamicLoops {
    /// A step of the loops that this node manages.
    pub(crate) fn manage<R>(&self, step: impl FnOnce(&mut Loops) -> R) -> R {
        step(&mut self.managed.lock())
    }

    /// What this node has of a loop; `begin` makes it where none of its threads has come there before.
    fn part(&self, number: u64, begin: impl FnOnce() -> Arc<Part>) -> Arc<Part> {
        self.parts.lock().entry(number).or_insert_with(begin).clone()
    }

    /// The last of the node's threads has left a loop.
    fn leave(&self, number: u64) {
        self.parts.lock().remove(&number);
    }
}

/// Leaves the loop that a thread is in, also when its body panics.
struct Leaves<'a>(&'a Thread);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.leave_loop();
    }
}

impl Thread {
    /// Deals the numbers `0..total` out to all threads of all nodes while they run, `chunk` at a time, each once; 0:
    /// in pieces that grow smaller towards the end. Calls `body` with each piece that this thread gets. Every thread
    /// of the job makes the call, with the same numbers, and all make such calls in the same order.
    ///
    /// It orders nothing between threads: for what others are to see a barrier follows, as behind every loop. Most
    /// pieces cost no message. A loop within another is refused.
    ///
    /// # Errors that end the node
    /// When threads say different things of one loop.
    pub fn for_dynamic(&self, total: usize, chunk: usize, body: impl FnMut(Range<usize>)) {
        self.must(self.checked_for_dynamic(total, chunk, body));
    }

    /// As [`Thread::for_dynamic`].
    ///
    /// # Errors
    /// When threads say different things of one loop, within such a loop, or when the job ends meanwhile.
    pub fn checked_for_dynamic(&self, total: usize, chunk: usize, mut body: impl FnMut(Range<usize>)) -> Result<()> {
        self.is_in_no_loop()?;
        let _leaves = Leaves(self);
        while let Some(items) = self.next_items(total as u64, chunk as u64)? {
            body(items.start as usize..items.end as usize);
        }
        Ok(())
    }

    /// Whether this thread may begin a loop.
    ///
    /// # Errors
    /// When it is in one.
    pub fn is_in_no_loop(&self) -> Result<()> {
        match self.state.borrow().in_loop {
            Some(_) => Err(Error::NestedLoop),
            None => Ok(()),
        }
    }

    /// The next piece of the loop that this thread is in, or of the next one: [`Thread::for_dynamic`] piece by piece.
    /// `None`: it is over, and left.
    ///
    /// # Errors
    /// As for [`Thread::checked_for_dynamic`].
    pub fn next_items(&self, total: u64, chunk: u64) -> Result<Option<Range<u64>>> {
        let current = self.state.borrow().in_loop.clone();
        let part = current.unwrap_or_else(|| self.begin_loop(total, chunk));
        if (part.total, part.chunk) != (total, chunk) {
            return Err(unlike(part.number, (total, chunk), (part.total, part.chunk)));
        }
        let items = part.take(self);
        if !matches!(items, Ok(Some(_))) {
            self.leave_loop();
        }
        items
    }

    /// Leaves the loop that this thread is in, if it is in one; what is left of it is for others.
    pub fn leave_loop(&self) {
        let Some(part) = self.state.borrow_mut().in_loop.take() else { return };
        if part.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.node.loops.leave(part.number);
        }
    }

    fn begin_loop(&self, total: u64, chunk: u64) -> Arc<Part> {
        // One thread at a time sits here.
        let number = self.thread_slot().loops.fetch_add(1, Ordering::Relaxed);
        let threads = self.node.threads();
        let begin = || {
            let batch = Batch { items: 0..0, over: false, sizes: Batches::new(threads), since: Time(0) };
            Arc::new(Part { number, total, chunk, batch: Mutex::new(batch), threads: AtomicUsize::new(threads) })
        };
        let part = self.node.loops.part(number, begin);
        self.state.borrow_mut().in_loop = Some(part.clone());
        part
    }
}

impl Part {
    /// The next piece of the loop for a thread of this node; `None` where nothing is left.
    fn take(&self, thread: &Thread) -> Result<Option<Range<u64>>> {
        let threads = thread.node.threads();
        let mut batch = thread.locked_out(Waiting::Loop(self.number), &self.batch);
        if batch.items.is_empty() && !batch.over {
            let now = thread.node.now();
            if batch.since.0 > 0 {
                let span = now - batch.since;
                batch.sizes.lasted(&thread.home().config.tuning.sync, span);
            }
            let chunks = if self.chunk == 0 { u64::MAX } else { batch.sizes.chunks() };
            batch.items = self.next_batch(thread, chunks)?;
            batch.over = batch.items.is_empty();
            batch.since = thread.node.now();
        }
        let left = batch.items.end - batch.items.start;
        if left == 0 {
            return Ok(None);
        }
        let count = if self.chunk == 0 { deal::guided(left, threads) } else { self.chunk.min(left) };
        let start = batch.items.start;
        batch.items.start += count;
        Ok(Some(start..start + count))
    }

    /// Asks the loop's manager for a batch of so many chunks at most; it is empty when nothing is left.
    fn next_batch(&self, thread: &Thread, chunks: u64) -> Result<Range<u64>> {
        let wanted = BatchRequest { total: self.total, chunk: self.chunk.max(1), chunks };
        let manager = deal::manager(self.number, thread.node.nodes());
        let dealt = if manager == thread.node.me() {
            let dealt = thread.node.loops.manage(|loops| loops.deal(self.number, wanted, thread.node.nodes()));
            dealt.map_err(|misbehaved| Error::Argument(format!("this node {misbehaved}")))?
        } else {
            thread.operation(|| self.ask(thread, wanted))?
        };
        match dealt {
            Dealt::Items(items) => Ok(items),
            Dealt::Unlike(total, chunk) => Err(unlike(self.number, (self.total, wanted.chunk), (total, chunk))),
        }
    }

    fn ask(&self, thread: &Thread, wanted: BatchRequest) -> Result<Dealt> {
        let node = deal::manager(self.number, thread.node.nodes());
        thread.node.slots[thread.slot].expect_answer();
        let target = Target::Request { node, origin: Origin::Caller };
        thread.stepping(|out| out.send(target, &Message::Deal { number: self.number, wanted }));
        let answer = loop {
            if let Some(answer) = thread.node.slots[thread.slot].take_answer() {
                break answer;
            }
            thread.wait(Waiting::Loop(self.number))?;
        };
        match Message::parse(types::DEALT, &answer) {
            Ok(Message::Dealt { fine: true, low, high }) if low <= high && high <= wanted.total => {
                Ok(Dealt::Items(low..high))
            }
            Ok(Message::Dealt { fine: false, low, high }) => Ok(Dealt::Unlike(low, high)),
            _ => Err(Error::PeerMisbehaved("the manager of a dynamic loop answered what makes no sense".to_string())),
        }
    }
}

fn unlike(number: u64, here: (u64, u64), there: (u64, u64)) -> Error {
    Error::LoopMismatch { number, here, there }
}
