//! A program that is the runtime of a language, such as an interpreter, and does not end with its job.
//!
//! A node usually ends with its job: when another one is lost, the process prints a sentence and exits. With a [`Host`]
//! it stays: what waits gets the error, and so does every later call. Shared memory becomes memory of this process
//! alone, with what this node had last; whoever touches what was not here is told to the host, which can raise an
//! exception at its next step.

use crate::Comem;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::shared::{Shared, Views};
use crate::thread::Thread;
use comem_memory::pages::OneCopy;
use comem_memory::pages::fault::{Fault, Verdict};
use comem_protocol::ids::{NodeId, Slot};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often a thread that waits asks its host whether to go on.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Places for threads of a node with a host: threads of a language come and go, and it says nowhere how many.
pub(crate) const CALLER_SLOTS: usize = 16;
/// Behind these, one that threads share which find none.
pub(crate) const COMMON_SLOTS: usize = 1;

/// What a language's runtime is asked and told.
pub trait Host: Sync {
    /// A thread has waited for 50 ms, or 50 ms more: shall its wait end? Asked in that thread, where ordinary code may
    /// run.
    fn ends_wait(&self) -> bool;
    /// The same, of a thread that waits for a page: asked within a signal handler.
    fn ends_fault(&self) -> bool;
    /// Whether other threads than the calling one may use shared memory just now, also such as have not used Comem yet.
    /// Asked in a thread that makes a collective call.
    fn has_other_threads(&self) -> bool;
    /// The job is over for this node. Called once, by any thread.
    fn job_is_over(&self, error: &Error, sentence: &str);
    /// The calling thread touched shared memory that was not here, after the job was over: it goes on with what this
    /// node had last. Called within a signal handler.
    fn stale_access(&self);
}

static HOST: OnceLock<&'static dyn Host> = OnceLock::new();

/// Makes a host known, before [`crate::start`]; the first one stays.
pub fn attend(host: &'static dyn Host) {
    let _ = HOST.set(host);
}

/// To be called in a child made by `fork`, which has no shared memory: an access there finds zeros from then on, and
/// the host is told.
pub fn after_fork() {
    if host().is_some() && crate::shared::fault::heap_of_this_process().is_some() {
        // Where that fails, the access ends the child with a sentence.
        let _ = comem_memory::pages::fault::install(on_childs_fault);
    }
}

fn on_childs_fault(fault: &Fault) -> Verdict {
    let heap = crate::shared::fault::heap_of_this_process().filter(|heap| heap.contains(&fault.address));
    let (Some(heap), Some(host)) = (heap, host()) else { return Verdict::NotOurs };
    // SAFETY: the range was the heap's in the parent; nothing is mapped there in a child.
    let mapped = unsafe { comem_memory::pages::map_zeros(heap) };
    host.stale_access();
    if mapped.is_ok() { Verdict::Retry } else { Verdict::NotOurs }
}

/// A host may begin another job when one is over, with another copy of this library: each has one node in a process.
impl Comem {
    /// From now on copies of other nodes' pages stay here, however many they are: what is touched now is here when
    /// the others are gone.
    pub fn keep_copies(&self) {
        if let Some(shared) = self.node.shared() {
            shared.cache_pages_max.store(i64::MAX as u64, Ordering::Relaxed);
        }
    }

    /// Parts with a job that is over, by its end or a loss: the service thread ends, and what is kept of the heap is
    /// memory of this process alone, with what is here. Faults and signals are others' business.
    ///
    /// # Safety
    /// Nobody uses anything else of the heap any more, in this process or in children that it forks. What is kept are
    /// whole pages.
    ///
    /// # Errors
    /// What the system refused.
    pub unsafe fn part(&self, keep: &[Range<usize>]) -> Result<()> {
        self.node.life.set_over(|| Over::Finished);
        self.node.leave(false);
        self.node.wire.retire();
        crate::service::listen_no_more();
        let kept = Error::system("cannot keep the heap of a job that is over");
        let Some(shared) = self.node.shared() else { return Ok(()) };
        let Some(views) = &shared.views else {
            // SAFETY: by this function's contract; a node is kept as long as its process.
            return shared.plain.as_ref().map_or(Ok(()), |plain| unsafe { plain.shrink_to(keep) }.map_err(kept));
        };
        let detached = views.detach();
        let handed_on = detached.and_then(|()| comem_memory::pages::fault::install(|_| Verdict::NotOurs));
        if let Err(error) = handed_on {
            return Err(kept(error));
        }
        if !crate::service::has_ended() {
            // It may be about to look at pages: addresses are given back another time, at the process's end.
            return Ok(());
        }
        // SAFETY: no thread of this node is at work any more, and a node is kept as long as its process; the rest is
        // the caller's promise.
        let shrunk =
            unsafe { views.peers.iter().filter_map(OnceLock::get).flatten().try_for_each(|peer| peer.memory.unmap()) };
        // SAFETY: as above.
        let shrunk = shrunk.and_then(|()| unsafe { views.tracked.shrink_to(keep) });
        let shrunk = shrunk.and_then(|()| match &views.one_copy {
            // SAFETY: as above.
            Some(one_copy) => unsafe { one_copy.shrink_to(keep) },
            None => Ok(()),
        });
        // SAFETY: as above.
        shrunk.and_then(|()| unsafe { views.guarded.shrink_to(keep) }).map_err(kept)
    }

    /// Gives back what was kept of the heap of a job that is over.
    ///
    /// # Safety
    /// [`Comem::part`] was called, which kept exactly these pages, and nobody uses them any more.
    pub unsafe fn give_back(&self, part: Range<usize>) {
        let Some(shared) = self.node.shared() else { return };
        let one_copy = shared.views.as_ref().and_then(|views| views.one_copy.as_ref());
        if let Some(one_copy) = one_copy.filter(|memory| memory.contains(part.start)) {
            // SAFETY: by this function's contract. Where the system refuses it, the addresses stay in use.
            let _ = unsafe { one_copy.give_back(part) };
            return;
        }
        let arenas = shared.views.as_ref().map(|views| [&views.tracked, &views.guarded]);
        let arena = arenas.and_then(|arenas| arenas.into_iter().find(|arena| arena.contains(part.start)));
        // Where the system refuses it, the memory stays in use.
        let _ = match (arena, &shared.plain) {
            // SAFETY: by this function's contract.
            (Some(arena), _) => unsafe { arena.give_back(part) },
            // SAFETY: by this function's contract.
            (None, Some(plain)) => unsafe { plain.unmap(part) },
            (None, None) => Ok(()),
        };
    }
}

pub(crate) fn host() -> Option<&'static dyn Host> {
    HOST.get().copied()
}

/// How many threads of a node take part in a collective call: where there is a host, one.
pub(crate) fn callers(config: &Config) -> usize {
    if host().is_some() { 1 } else { config.threads }
}

/// How many threads may use a node at once.
pub(crate) fn places(config: &Config) -> usize {
    config.thread_slots - if host().is_some() { COMMON_SLOTS } else { 0 }
}

/// Why the job is over, as far as every later call needs to know.
#[derive(Debug)]
pub(crate) enum Over {
    Lost(NodeId, String),
    Stopped(String),
    Interrupted,
    Finished,
}

impl Over {
    pub(crate) fn of(error: &Error) -> Over {
        match error {
            Error::NodeLost { node, why } => Over::Lost(*node, why.clone()),
            Error::Stopped(why) => Over::Stopped(why.clone()),
            Error::Interrupted => Over::Interrupted,
            other => Over::Stopped(other.to_string()),
        }
    }

    pub(crate) fn error(&self) -> Error {
        match self {
            Over::Lost(node, why) => Error::NodeLost { node: *node, why: why.clone() },
            Over::Stopped(why) => Error::Stopped(why.clone()),
            Over::Interrupted => {
                Error::Stopped("a wait of this node was interrupted earlier, so the job cannot go on".to_string())
            }
            Over::Finished => Error::Finished("Comem was used after the job was finished; finish last".to_string()),
        }
    }
}

impl Node {
    /// Runs `f` for a thread that has found no place: in the one that such threads share, one after another. A
    /// language's threads may be more than there are places, and an access to memory cannot fail for that.
    pub(crate) fn in_common_place<R>(self: &Arc<Self>, f: impl FnOnce(&Thread) -> R) -> R {
        let _turn = self.common_place.lock();
        let slot = Slot(self.config.thread_slots as u16);
        self.slots[slot].take_place();
        let thread = Thread::new(self.clone(), slot);
        let since = thread.begin_life();
        let result = f(&thread);
        thread.end_life(since);
        thread.leave_slot();
        result
    }

    /// The job is over but the process stays: whoever waits is told.
    pub(crate) fn outlive(&self, host: &dyn Host, error: &Error) {
        self.life.set_over(|| {
            // Told first, so that it knows why when the first wait fails. It is the job that stops here.
            host.job_is_over(error, &self.words(error).replace("this node stops", "the job cannot go on"));
            Over::of(error)
        });
        self.slots.of_threads().for_each(|slot| self.wake_thread(slot));
    }
}

impl Views {
    /// From now on the heap is memory of this process alone, with what is here.
    fn detach(&self) -> std::io::Result<()> {
        self.tracked.detach()?;
        self.guarded.detach()?;
        self.one_copy.as_ref().map_or(Ok(()), OneCopy::detach)
    }

    /// The job has ended as it should. Nobody notices accesses to memory of one copy, so a process that goes on parts
    /// from it at once: what it writes from now on concerns no other.
    pub(crate) fn end_one_copy(&self) {
        if let (Some(memory), Some(_)) = (&self.one_copy, host()) {
            // Where that fails the memory stays shared with processes that are no nodes any more.
            let _ = memory.detach();
        }
    }
}

impl Shared {
    /// From now on the heap is memory of this process alone, with what is here. False where it cannot be.
    pub(crate) fn keep_alone(&self) -> bool {
        self.views.as_ref().is_none_or(|views| views.detach().is_ok())
    }
}
