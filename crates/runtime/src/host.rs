//! A program that is the runtime of a language, such as an interpreter, and does not end with its job.
//!
//! A node usually ends with its job: when another one is lost, the process prints a sentence and exits. With a [`Host`] it stays: what
//! waits gets the error, and so does every later call. Shared memory becomes memory of this process alone, with what
//! this node had last; whoever touches what was not here is told to the host, which can raise an exception at its next step.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::shared::Shared;
use crate::thread::Thread;
use comem_memory::pages::fault::{Fault, Verdict};
use comem_protocol::ids::{NodeId, Slot};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often a thread that waits asks its host whether to go on.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Places for threads of a node with a host: threads of a language come and go, and it says nowhere how many.
pub(crate) const SEATS: usize = 16;
/// Behind these, one that threads share which find none.
pub(crate) const COMMON_SEATS: usize = 1;

/// What a language's runtime is asked and told.
pub trait Host: Sync {
    /// A thread has waited for 50 ms, or 50 ms more: shall its wait end? Asked in that thread, where ordinary code may run.
    fn ends_wait(&self) -> bool;
    /// The same, of a thread that waits for a page: asked within a signal handler.
    fn ends_fault(&self) -> bool;
    /// Whether other threads than the calling one may use shared memory just now, also such as have not used Comem yet. Asked in a thread that makes a
    /// collective call.
    fn has_other_threads(&self) -> bool;
    /// The job is over for this node. Called once, by any thread.
    fn job_is_over(&self, error: &Error, sentence: &str);
    /// The calling thread touched shared memory that was not here, after the job was over: it goes on with what this node had last.
    /// Called within a signal handler.
    fn stale_access(&self);
}

static HOST: OnceLock<&'static dyn Host> = OnceLock::new();

/// Makes a host known, before [`crate::start`]; the first one stays.
pub fn attend(host: &'static dyn Host) {
    let _ = HOST.set(host);
}

/// To be called in a child made by `fork`, which has no shared memory: an access there finds zeros from then on, and the host is told.
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

pub(crate) fn host() -> Option<&'static dyn Host> {
    HOST.get().copied()
}

/// How many threads of a node take part in a collective call: where there is a host, one.
pub(crate) fn callers(config: &Config) -> usize {
    if host().is_some() { 1 } else { config.threads }
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

    fn error(&self) -> Error {
        match self {
            Over::Lost(node, why) => Error::NodeLost { node: *node, why: why.clone() },
            Over::Stopped(why) => Error::Stopped(why.clone()),
            Over::Interrupted => {
                Error::Stopped("a wait of this node was interrupted earlier, so the job cannot go on".to_string())
            }
            Over::Finished => Error::Misuse("Comem was used after the job was finished; finish last".to_string()),
        }
    }
}

impl Node {
    /// How many threads may use this node at once.
    pub(crate) fn places(&self) -> usize {
        self.config.seats - if host().is_some() { COMMON_SEATS } else { 0 }
    }

    /// Runs `f` for a thread that has found no place: in the one that such threads share, one after another. A language's threads may be more than there are
    /// places, and an access to memory cannot fail for that.
    pub(crate) fn in_common_place<R>(self: &Arc<Self>, f: impl FnOnce(&Thread) -> R) -> R {
        let _turn = self.common_place.lock();
        let slot = Slot(self.config.seats as u16);
        self.seats[slot.index()].taken.store(true, Ordering::Release);
        let thread = Thread::new(self.clone(), slot);
        let since = thread.begin_life();
        let result = f(&thread);
        thread.end_life(since);
        thread.leave_seat();
        result
    }

    /// Nothing, or why every wait and every call fails from now on.
    pub(crate) fn goes_on(&self) -> Result<()> {
        self.over.get().map_or(Ok(()), |over| Err(over.error()))
    }

    /// The job is over but the process stays: whoever waits is told.
    pub(crate) fn outlive(&self, host: &dyn Host, error: &Error) {
        self.over.get_or_init(|| {
            // Told first, so that it knows why when the first wait fails. It is the job that stops here.
            host.job_is_over(error, &self.words(error).replace("this node stops", "the job cannot go on"));
            Over::of(error)
        });
        (1..self.seats.len()).for_each(|index| self.rouse(Slot(index as u16)));
    }

    /// After the closing barrier: the process goes on without the others.
    pub(crate) fn outlive_finish(&self) {
        if host().is_some() {
            let _ = self.over.set(Over::Finished);
        }
    }
}

impl Shared {
    /// From now on the heap is memory of this process alone, with what is here. False where it cannot be.
    pub(crate) fn keep_alone(&self) -> bool {
        self.views.as_ref().is_none_or(|views| views.tracked.detach().is_ok() && views.guarded.detach().is_ok())
    }
}
