//! What can go wrong, in one shape: `comem: node 3 (host b, pid 4711): what happened; what to do`.

use crate::config::ConfigError;
use crate::names::Named;
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::mismatch::Mismatch;
use comem_protocol::sync::one_sided::PLACES;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;
use std::fmt;
use std::io::Write;
use std::ops::Range;

/// Why Comem cannot do what was asked, or cannot go on.
///
/// [`Error::is_misuse`] tells errors of the program's own calls from the rest. `Display` gives the whole sentence: what
/// happened, and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment makes no sense.
    #[error("{0}")]
    Config(#[from] ConfigError),

    // ---- locks and their kin
    /// A thread acquires a lock that it holds.
    #[error("thread {thread} acquires lock {}, which it holds already; locks are not reentrant", Named(lock.0))]
    LockHeld {
        /// The thread's number in the job.
        thread: usize,
        /// Which lock.
        lock: LockId,
    },
    /// A thread releases a lock that it does not hold.
    #[error("thread {thread} releases lock {}, which it does not hold; acquire it first", Named(lock.0))]
    LockNotHeld {
        /// The thread's number in the job.
        thread: usize,
        /// Which lock.
        lock: LockId,
    },
    /// A thread acquires a reader-writer lock that it holds, and would wait for itself.
    #[error(
        "thread {thread} acquires reader-writer lock {}, which it holds already, and would wait for itself; release it \
         first",
        Named(lock.0)
    )]
    RwLockHeld {
        /// The thread's number in the job.
        thread: usize,
        /// Which lock.
        lock: RwLockId,
    },
    /// A thread releases a reader-writer lock that it does not hold.
    #[error("thread {thread} releases reader-writer lock {}, which it does not hold; acquire it first", Named(lock.0))]
    RwLockNotHeld {
        /// The thread's number in the job.
        thread: usize,
        /// Which lock.
        lock: RwLockId,
    },
    /// A thread waits for a condition variable without its lock.
    #[error(
        "thread {thread} waits for condition variable {} without holding lock {}; acquire it first",
        Named(condition.0),
        Named(lock.0)
    )]
    WaitWithoutLock {
        /// The thread's number in the job.
        thread: usize,
        /// Which condition variable.
        condition: ConditionId,
        /// The lock that it does not hold.
        lock: LockId,
    },
    /// One-sided locks have words for so many names, and these are used up.
    #[error(
        "lock {} finds no place: {PLACES} other locks have their words at {home}; use fewer names, or start the job \
         with --locks tokens",
        Named(lock.0)
    )]
    TooManyLocks {
        /// The lock without a word.
        lock: LockId,
        /// The node that keeps the words.
        home: String,
    },
    /// Threads that come to one subset barrier expect different numbers.
    #[error(
        "thread {thread} comes to barrier {} of {threads} threads, but those who wait there expect another number; let \
         all say the same",
        Named(barrier.0)
    )]
    BarrierMismatch {
        /// The thread's number in the job.
        thread: usize,
        /// Which barrier.
        barrier: SubsetBarrierId,
        /// How many threads it expects.
        threads: usize,
    },
    /// Threads say different things of one dynamic loop.
    #[error(
        "dynamic loop {number} has {} items in chunks of {} here, but {} in chunks of {} for another thread; every \
         thread makes the same loops in the same order",
        here.0, here.1, there.0, there.1
    )]
    LoopMismatch {
        /// The loop's number: how many such loops came before.
        number: u64,
        /// Items and items in a chunk, as this thread says.
        here: (u64, u64),
        /// The same as another thread says.
        there: (u64, u64),
    },
    /// A dynamic loop begins within another.
    #[error("a dynamic loop within a dynamic loop; deal out the outer one alone, or both as one")]
    NestedLoop,

    // ---- objects
    /// An index or a range leaves a shared object.
    #[error("{} is outside of {object}, which has {len} elements; check the index", Elements(range))]
    OutOfRange {
        /// The elements asked for.
        range: Range<usize>,
        /// The object's name in reports.
        object: String,
        /// How many elements it has.
        len: usize,
    },
    /// A thread ends a range access that it has not begun.
    #[error(
        "this thread has not begun {} the range {}..{} of {object}, which it ends; end each range in the thread that \
         began it, once, with the same bounds",
        if *write { "writing" } else { "reading" }, range.start, range.end
    )]
    RangeNotBegun {
        /// The elements.
        range: Range<usize>,
        /// The object's name in reports.
        object: String,
        /// Whether it was to be written.
        write: bool,
    },

    // ---- shared memory
    /// The shared heap has no room for an allocation.
    #[error("{0}")]
    HeapFull(String),
    /// The job has no shared heap.
    #[error("{0}")]
    NoHeap(String),
    /// An address is in no allocation.
    #[error("{sentence}")]
    NotAllocated {
        /// The address.
        address: usize,
        /// What was attempted there.
        sentence: String,
    },
    /// The memory was given back before.
    #[error("{0}")]
    Freed(String),
    /// The memory was declared read-only ([`Comem::freeze`](crate::Comem::freeze)).
    #[error("{0}")]
    Frozen(String),
    /// A word for an atomic operation is not aligned to its size.
    #[error("{0}")]
    Unaligned(String),
    /// The program's global variables cannot be shared like this.
    #[error("{0}")]
    Globals(String),

    // ---- threads and the job
    /// A thread uses Comem, and the node has no place left for it.
    #[error(
        "a thread uses shared memory, but all {places} places of this node are taken; start the job with -t {} or more",
        places + 1
    )]
    NoPlaceLeft {
        /// How many places the node has.
        places: usize,
    },
    /// A place that a thread was to get is another's.
    #[error("{sentence}")]
    PlaceTaken {
        /// Which place.
        place: usize,
        /// Whose it is, and what to do.
        sentence: String,
    },
    /// A thread that is being taken down, and had no place, uses Comem.
    #[error(
        "Comem was called by a thread that is being taken down, from a destructor or an atexit function; call it before"
    )]
    ThreadEnds,
    /// All threads of the node run a function, and one of them would start another.
    #[error("all threads of this node run already, and this is one of them; call the function itself")]
    RunsAlready,
    /// Comem is started again.
    #[error("Comem was started already; start it once, before anything else")]
    StartedAlready,
    /// Another process has this one's place in the job.
    #[error("{0}")]
    NodeTaken(String),
    /// Comem is used behind the end of the job.
    #[error("{0}")]
    Finished(String),
    /// There is no such thread to send a message to.
    #[error("there is no thread {thread}; the job has {threads} threads")]
    NoThread {
        /// The number asked for.
        thread: usize,
        /// How many threads the job has.
        threads: usize,
    },
    /// A message or an update is larger than the network takes.
    #[error("{0}")]
    TooLarge(String),

    /// Any other argument or option that makes no sense, or not in this job.
    #[error("{0}")]
    Argument(String),
    /// Another node said what makes no sense, or has overwritten what Comem keeps in shared memory.
    #[error("{0}")]
    PeerMisbehaved(String),

    // ---- what ends jobs
    /// Start-up failed.
    #[error("cannot start: {0}")]
    Start(String),
    /// A node is gone or silent.
    #[error("{node} {why}; this node stops, since its data may be lost with that one")]
    NodeLost {
        /// Which node.
        node: NodeId,
        /// What is known of its end.
        why: String,
    },
    /// The job was told to end.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The host ended a wait: see [`crate::host`].
    #[error("a wait was interrupted; the job cannot go on")]
    Interrupted,
    /// Nodes did not make the same collective calls.
    #[error("{0}; every node must make the same collective calls in the same order")]
    Mismatch(#[from] Mismatch),
    /// A thread of this node panicked, while others may wait for it.
    #[error(
        "thread {thread} of the job panicked, as Rust says in this node's output; the other threads cannot go on \
         without it"
    )]
    Panicked {
        /// Its number in the job.
        thread: usize,
    },
    /// A function of the program, which Comem has called, was left in another way than by its return: Comem's own
    /// frames cannot be.
    #[error("{what} left {function}, which Comem had called; deal with that inside the function, and let it return")]
    Unwound {
        /// What left it: an exception, `pthread_exit`.
        what: &'static str,
        /// Which function.
        function: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// An index or a range in a sentence.
struct Elements<'a>(&'a Range<usize>);

impl fmt::Display for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.0;
        if *end == start.saturating_add(1) { write!(f, "index {start}") } else { write!(f, "range {start}..{end}") }
    }
}

/// In words, like `Display`: a Rust program whose `main` returns the error prints it like this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "comem: {self}")
    }
}

/// A result with Comem's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Exit codes of a node that Comem ends; `docs/exit-codes.md` lists them all.
pub mod exit {
    /// The command line or the environment makes no sense, or the program misused Comem.
    pub const USAGE: i32 = 2;
    /// The job could not start.
    pub const START: i32 = 3;
    /// Another node was lost.
    pub const NODE_LOST: i32 = 4;
    /// The launcher told the node to stop.
    pub const STOPPED: i32 = 5;
    /// A bug in Comem, or memory ran out.
    pub const INTERNAL: i32 = 6;
    /// A thread of a Rust program panicked: what Rust's own processes end with then. Or a function that Comem has
    /// called was left by an exception of C++, `pthread_exit` or a cancellation.
    pub const PANICKED: i32 = 101;
}

impl Error {
    /// What another node has sent cannot be: from here on memory may be wrong, and others wait in vain.
    pub(crate) fn harm(what: String) -> Error {
        let advice = std::io::Error::other("shared memory may be wrong, so this node ends; please report this");
        Error::System { what, source: advice }
    }

    /// The exit code of a node that ends with this error.
    pub fn exit_code(&self) -> i32 {
        match self {
            Error::Start(_) => exit::START,
            Error::NodeLost { .. } => exit::NODE_LOST,
            Error::Stopped(_) | Error::Interrupted => exit::STOPPED,
            Error::System { .. } => exit::INTERNAL,
            Error::Panicked { .. } | Error::Unwound { .. } => exit::PANICKED,
            _ => exit::USAGE,
        }
    }

    /// Whether a call of the program was wrong: its arguments, its order, or what other nodes called at its time.
    pub fn is_misuse(&self) -> bool {
        self.exit_code() == exit::USAGE && !matches!(self, Error::Config(_))
    }

    /// Adds what was attempted to a system's error.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}

/// Whether a terminal would obey a character rather than show it, or show what is around it in another order.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A text that names what came from elsewhere (hosts, programs, what others said), with what would steer a terminal
/// written out.
/// Ends of lines stay.
fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len() + 1), |mut shown, c| {
        match steers(c) && !matches!(c, '\n' | '\t') {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
        shown
    })
}

/// Says something on standard error, if that takes it: that nobody can be told is no reason to end.
pub fn say(what: fmt::Arguments<'_>) {
    // In one piece: standard error has no buffer, and a node that is killed between two writes would leave half a line.
    let line = printable(&what.to_string()) + "\n";
    let _ = comem_net::within_file_limit(|| std::io::stderr().write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a program gets an error: as `dyn std::error::Error`, from which it finds the kind again.
    #[test]
    fn programs_can_match_on_what_was_misused() {
        let held: Box<dyn std::error::Error> = Box::new(Error::LockHeld { thread: 3, lock: LockId(7) });
        assert_eq!(held.to_string(), "thread 3 acquires lock 0x7, which it holds already; locks are not reentrant");
        assert!(matches!(held.downcast_ref(), Some(Error::LockHeld { thread: 3, lock: LockId(7) })));
        let outside = |range| Error::OutOfRange { range, object: "grid".to_string(), len: 5 }.to_string();
        assert_eq!(outside(7..8), "index 7 is outside of grid, which has 5 elements; check the index");
        assert_eq!(outside(3..8), "range 3..8 is outside of grid, which has 5 elements; check the index");
        assert!(Error::NestedLoop.is_misuse() && !Error::Interrupted.is_misuse());
        assert_eq!(Error::NestedLoop.exit_code(), exit::USAGE);
    }

    #[test]
    fn names_from_elsewhere_cannot_steer_a_terminal() {
        assert_eq!(printable("host \u{1b}[31mx\u{9b}1m\u{202e}y: ä\n"), "host \\u{1b}[31mx\\u{9b}1m\\u{202e}y: ä\n");
    }
}
