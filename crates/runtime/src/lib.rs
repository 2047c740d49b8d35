//! Comem: software distributed shared memory. The threads of one program run on several computers and share memory
//! through small typed objects, locks and barriers.
//!
//! ```no_run
//! let comem = comem::start()?;
//! let sums = comem.object_array::<i64>(comem.threads())?;
//! comem.parallel(|t| {
//!     sums.write(t, t.id(), t.split(1_000_000).map(|i| i as i64).sum());
//!     t.barrier();
//!     if t.id() == 0 {
//!         let total: i64 = (0..t.threads()).map(|i| sums.read(t, i)).sum();
//!         println!("{total}");
//!     }
//! });
//! comem.finish()?;
//! # Ok::<(), comem::Error>(())
//! ```
//!
//! `comem run -n 4 PROGRAM` runs it on four nodes; alone, the program is a correct job of one node.
//!
//! | module | what |
//! |---|---|
//! | [`array`] | typed objects: arrays and values whose elements are read and written by calls |
//! | [`heap`] | pages: shared memory for ordinary loads and stores |
//! | [`thread`] | a thread's view: accesses, locks, barriers, reductions, flags, messages |
//! | [`raw`] | the same without types, for other languages |
//! | [`bind`] | cores of a node's own |
//! | [`host`] | a language's runtime that does not end with its job |
//! | [`guest`] | becoming a node in a process that MPI, torchrun or anything else has started |
//! | [`control`] | how launchers talk to nodes |
//! | [`keys`] | where a job's key comes from without a launcher |

pub mod array;
mod arrivals;
mod biased_mutex;
pub mod bind;
mod boot;
pub mod capacity;
mod collective_gate;
mod config;
pub mod control;
mod counters;
mod direct;
pub mod error;
pub mod guest;
pub mod heap;
pub mod host;
#[doc(hidden)]
pub mod inline;
mod io;
pub mod keys;
mod launcher_link;
mod load_balance;
mod lock_schedule;
mod locks;
mod mutex;
pub mod names;
mod node;
mod object;
mod openmp;
#[doc(hidden)]
pub mod path_counts;
pub mod raw;
mod report;
mod service;
pub mod settings;
mod shared;
mod shutdown;
mod symbols;
pub mod thread;
mod waiter;
mod watch;
mod write_combining;

pub use array::{Element, ObjectArray, ObjectVar};
#[doc(hidden)]
pub use comem_net::threads;
pub use comem_protocol::coherence::Engine;
pub use comem_protocol::ids::{FlagId, LockId, NodeId};
pub use comem_protocol::sync::condition::ConditionId;
pub use comem_protocol::sync::reduce::Operator;
pub use comem_protocol::sync::rwlock::RwLockId;
pub use comem_protocol::sync::semaphore::SemaphoreId;
pub use comem_protocol::sync::subset_barrier::SubsetBarrierId;
pub use error::{Error, Result};
pub use guest::{Builder, UniqueId};
pub use heap::{Home, PageSlice};
pub use object::ObjectOptions;
pub use report::STATS_SCHEMA;
pub use thread::{LockGuard, ReadGuard, Thread, WriteGuard, split};

use comem_memory::pages::fault::uncancelled;
use comem_protocol::coherence::checksum;
use comem_protocol::ids::Slot;
use comem_protocol::wire::message::Collective;
use guest::orders::Orders;
use node::Node;
use object::Object;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The programs of the page for Rust, compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct PageForRust;

/// This node's part in the job.
#[derive(Clone, Debug)]
pub struct Comem {
    node: Arc<Node>,
}

thread_local! {
    static CURRENT: RefCell<Option<Seated>> = const { RefCell::new(None) };
    /// Touched last, and so destroyed first.
    static LEAVES: Leaves = const { Leaves };
    /// Whether this thread is in a function that all threads of the node run.
    static RUNS_ITS_PART: Cell<bool> = const { Cell::new(false) };
}

/// Has a thread that ends leave its slot while it still has what that needs: it gives back ranges, and sends.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        let seated = CURRENT.try_with(|current| current.borrow_mut().take());
        drop(seated);
    }
}

/// A thread in its slot; leaves it when the thread ends.
struct Seated {
    thread: Rc<Thread>,
    since: Option<comem_protocol::time::Time>,
}

/// Books the calling thread's life up to now.
pub(crate) fn end_current_life() {
    CURRENT.with(|current| {
        if let Some(seated) = current.borrow_mut().as_mut()
            && let Some(since) = seated.since.take()
        {
            seated.thread.end_life(since);
        }
    });
}

impl Seated {
    fn new(node: &Arc<Node>, slot: Slot) -> Seated {
        let thread = Thread::new(node.clone(), slot);
        let since = thread.begin_life();
        Seated { thread: Rc::new(thread), since: Some(since) }
    }
}

/// So long a slot is waited for: a thread leaves its own as it is taken down, when whoever has joined it may have gone
/// on.
const FAREWELL: Duration = Duration::from_secs(1);

/// What `take` gives, as soon as it gives something.
fn soon<T>(mut take: impl FnMut() -> Option<T>) -> Option<T> {
    let mut until = None;
    loop {
        let taken = take();
        if taken.is_some() || Instant::now() >= *until.get_or_insert_with(|| Instant::now() + FAREWELL) {
            return taken;
        }
        // No cancellation point: nothing here could be unwound.
        uncancelled(|| std::thread::sleep(Duration::from_millis(1)));
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.thread.end_life(since);
        }
        self.thread.leave_slot();
    }
}

/// Joins the job that the environment describes, or becomes a job of one node; returns when all nodes have met. The
/// calling thread becomes thread 0 of its node. To be called once.
///
/// # Errors
/// When the environment makes no sense or the nodes do not come together.
pub fn start() -> Result<Comem> {
    begin(&Orders::of_environment(false))
}

/// As [`start`], for programs whose threads come and go: a job of one node has places for as many threads as there can
/// be, whatever number it was started with.
///
/// # Errors
/// As for [`start`].
pub fn start_with_spare_places() -> Result<Comem> {
    begin(&Orders::of_environment(true))
}

fn begin(orders: &Orders) -> Result<Comem> {
    comem_memory::pages::fault::watch_forks();
    boot::start(orders).map(|node| {
        let comem = Comem { node };
        comem.node.begin();
        comem.sit(Slot::thread(0));
        if !orders.spare && comem.node() == 0 && comem.node.config.globals == config::Globals::Share {
            error::say(format_args!("comem: --globals share does nothing here: it is for programs for PARMACS"));
        }
        comem
    })
}

/// Whether this process was made by `fork` from a node: it is none itself, and must not use the job.
#[inline]
pub fn in_a_child() -> bool {
    comem_memory::pages::fault::in_a_child()
}

/// How many bytes of stack a node's threads get: the soft limit (`ulimit -s`), as with pthreads, within reason.
pub fn stack_bytes() -> usize {
    const LEAST: u64 = 8 << 20;
    const MOST: u64 = 1 << 30;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if known && limit.rlim_cur != libc::RLIM_INFINITY {
        limit.rlim_cur.clamp(LEAST, MOST) as usize
    } else {
        LEAST as usize
    }
}

/// The calling thread, if it has a place.
pub(crate) fn seated() -> Option<Rc<Thread>> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(|seated| seated.thread.clone())).ok().flatten()
}

/// Runs a thread's part. Where it panics and the node has other threads, the node ends: they may wait for this one for
/// ever.
fn call(f: &impl Fn(&Thread), thread: &Thread) {
    struct Unwinding<'a>(&'a Thread);
    impl Drop for Unwinding<'_> {
        fn drop(&mut self) {
            RUNS_ITS_PART.set(false);
            let node = self.0.home();
            if std::thread::panicking() && node.threads() > 1 && host::host().is_none() {
                node.end_for(&Error::Panicked { thread: self.0.id() });
            }
        }
    }
    let _unwinding = Unwinding(thread);
    RUNS_ITS_PART.set(true);
    f(thread);
}

impl Comem {
    /// Says how a job is to be joined, as far as the environment is not to: by a unique id, with settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn sit(&self, slot: Slot) -> Rc<Thread> {
        self.node.slots[slot].take_place();
        if let Err(error) = comem_memory::pages::fault::prepare_thread() {
            crate::error::say(format_args!("comem: cannot prepare a thread for page faults: {error}"));
        }
        self.node.cores.stay();
        io::touch_own();
        let seated = Seated::new(&self.node, slot);
        let thread = seated.thread.clone();
        CURRENT.with(|current| *current.borrow_mut() = Some(seated));
        LEAVES.with(|_| ());
        thread
    }

    /// The calling thread, seated in a free place of this node if it has none.
    ///
    /// # Errors
    /// When more threads come than the node was started with.
    #[inline]
    pub fn current(&self) -> Result<Rc<Thread>> {
        let seated = CURRENT.try_with(|c| c.borrow().as_ref().map(|s| s.thread.clone()));
        match seated {
            Ok(Some(thread)) => Ok(thread),
            seated => self.place_for_caller(seated),
        }
    }

    #[cold]
    fn place_for_caller(
        &self,
        seated: std::result::Result<Option<Rc<Thread>>, std::thread::AccessError>,
    ) -> Result<Rc<Thread>> {
        if let Some(thread) = seated.map_err(|_| Error::ThreadEnds)? {
            return Ok(thread);
        }
        if let Some(thread) = soon(|| self.sit_anywhere()) {
            return Ok(thread);
        }
        Err(Error::NoPlaceLeft { places: self.places() })
    }

    /// Seats the calling thread, which has no place, if there is a free one and the thread is not being taken down.
    pub(crate) fn sit_anywhere(&self) -> Option<Rc<Thread>> {
        CURRENT.try_with(|_| ()).ok()?;
        let index = (1..=self.places()).find(|index| self.take_seat(*index))?;
        Some(self.sit(Slot(index as u16)))
    }

    /// Seats the calling thread in place `place` of this node (0 is the main thread's).
    ///
    /// # Errors
    /// When there is no such place, it is taken, or the thread has another.
    pub fn take_place(&self, place: usize) -> Result<Rc<Thread>> {
        let sentence = || format!("place {place} of this node is taken, or there is none");
        let taken = || Error::PlaceTaken { place, sentence: sentence() };
        let thread_slot = place.checked_add(1).and_then(|slot| self.node.slots.get(slot)).ok_or_else(taken)?;
        let has_another = CURRENT.with(|c| c.borrow().is_some());
        if has_another || !thread_slot.take_place() {
            return Err(taken());
        }
        Ok(self.sit(Slot::thread(place)))
    }

    /// Seats the calling thread in a place whose thread will not use Comem any more: it waits for this one, or is being
    /// taken down.
    ///
    /// # Safety
    /// That thread does nothing with Comem, nor with shared memory, from now until the calling thread has ended.
    pub unsafe fn inherit_place(&self, place: usize) -> Rc<Thread> {
        self.sit(Slot::thread(place))
    }

    /// From now on `told` is called whenever a message to a thread of this node has come: by any thread of the
    /// process, perhaps in the midst
    /// of a page fault. It must be short, must not use Comem, and may do only what a signal handler may. The first
    /// call counts.
    pub fn tell_of_messages(&self, told: fn()) {
        self.node.inboxes.tell(told);
    }

    /// Takes the next message to the thread in place `place` of this node, if one is there, from any thread of the
    /// process.
    pub fn take_message(&self, place: usize) -> Option<(NodeId, Vec<u8>)> {
        if place < self.places() { self.node.take_user(Slot::thread(place)) } else { None }
    }

    /// How many threads of this node may use Comem at once.
    pub fn places(&self) -> usize {
        host::places(&self.node.config)
    }

    /// This node's number.
    pub fn node(&self) -> usize {
        self.node.me().index()
    }

    /// How many nodes the job has.
    pub fn nodes(&self) -> usize {
        self.node.nodes()
    }

    /// Application threads in each node.
    pub fn threads_per_node(&self) -> usize {
        self.node.threads()
    }

    /// Application threads in the whole job.
    pub fn threads(&self) -> usize {
        self.nodes() * self.threads_per_node()
    }

    /// An error as people read it: `comem: node 3 (host b, pid 4711): what happened; what to do`.
    pub fn sentence(&self, error: &Error) -> String {
        self.node.sentence(error)
    }

    /// Ends this node, and so the job, with an error: the launcher is told, statistics are written.
    pub fn end_with(&self, error: &Error) -> ! {
        if host::host().is_none() {
            self.node.end_for(error);
        }
        self.node.end_with(error);
        std::process::exit(error.exit_code())
    }

    /// What tells this job from others, the same on every node: host and process of its first node.
    pub fn job_name(&self) -> String {
        self.node.wire.member(NodeId(0)).map_or_else(|| "node 0".to_string(), |(host, pid)| format!("{host}/{pid}"))
    }

    /// The engine of objects that name none.
    pub fn engine(&self) -> Engine {
        self.node.config.engine
    }

    /// The backbone that moves this job's datagrams: `udp` or `shm`; `none` in a job of one node that nobody launched.
    pub fn backbone(&self) -> &'static str {
        self.node.config.backbone_name()
    }

    /// Runs `f` in every application thread of this node, the calling (main) thread included, and returns when all
    /// have finished. Where [`Comem::checked_parallel`] fails the node ends.
    ///
    /// # Panics
    /// When `f` panics and the node has one thread. A node of several ends, since the others may wait for that one.
    pub fn parallel<F: Fn(&Thread) + Sync>(&self, f: F) {
        self.checked_parallel(f).unwrap_or_else(|error| self.end_with(&error));
    }

    /// As [`Comem::parallel`].
    ///
    /// # Errors
    /// When a place that one of these threads would have is that of another thread, which has used Comem and has not
    /// ended (idle threads of OpenMP are ended for that); within such a function, when all of them run.
    ///
    /// # Panics
    /// As [`Comem::parallel`]. When a thread cannot be started the node ends, too: those that have been wait for it.
    pub fn checked_parallel<F: Fn(&Thread) + Sync>(&self, f: F) -> Result<()> {
        let main = self.current()?;
        if RUNS_ITS_PART.get() {
            return Err(Error::RunsAlready);
        }
        let others = || (1..=self.node.threads()).filter(|i| *i != main.local_id() + 1);
        if others().any(|index| self.node.slots[Slot(index as u16)].is_taken()) {
            openmp::end_idle_threads();
        }
        self.reserve(others())?;
        std::thread::scope(|scope| {
            for index in others() {
                let (f, comem) = (&f, self.clone());
                let name = format!("comem-{}", index - 1);
                let body = move || {
                    call(f, &comem.sit(Slot(index as u16)));
                    CURRENT.with(|c| c.borrow_mut().take());
                };
                let builder = std::thread::Builder::new().name(name).stack_size(stack_bytes());
                if let Err(source) = builder.spawn_scoped(scope, body) {
                    let what = format!("cannot start thread {} of {}", index - 1, self.node.threads());
                    self.end_with(&Error::System { what, source });
                }
            }
            call(&f, &main);
        });
        Ok(())
    }

    /// Takes a slot, if nobody has it.
    fn take_seat(&self, index: usize) -> bool {
        self.node.slots[Slot(index as u16)].take_place()
    }

    /// Takes these seats, or none.
    fn reserve(&self, places: impl Iterator<Item = usize> + Clone) -> Result<()> {
        let taken = places.clone().find(|index| soon(|| self.take_seat(*index).then_some(())).is_none());
        let Some(taken) = taken else { return Ok(()) };
        places.take_while(|index| *index != taken).for_each(|i| self.node.slots[Slot(i as u16)].leave_place());
        let place = taken - 1;
        let sentence = format!(
            "place {place} of this node is that of a thread of the program, which has used Comem and has not ended; \
             let it end before all threads of the node are started, or let the threads of the pool do all the work \
             (comem_node_barrier)"
        );
        Err(Error::PlaceTaken { place, sentence })
    }

    /// Makes an untyped shared object; collective.
    pub(crate) fn create(&self, element: usize, len: usize, options: &ObjectOptions) -> Result<Arc<Object>> {
        let object = self.node.objects.make((element, len), options, &self.node.config, &self.node.wire)?;
        if object.engine == Engine::Direct && self.nodes() > 1 && len > 0 {
            self.lay_in_lines(&object, options)?;
        }
        let shape = format!(
            "{} {element} {len} {} {} {:?}",
            object.id.0,
            object.segments.unit_elements(),
            object.engine,
            options.home
        );
        self.current()?.collective(Collective::create(checksum(shape.as_bytes())), &[], |_| ())?;
        Ok(object)
    }

    /// Gives an object under `direct` its part of lines memory.
    fn lay_in_lines(&self, object: &Object, options: &ObjectOptions) -> Result<()> {
        let shape = object.shape(options.unit_elements, self.node.config.unit_bytes);
        let (bytes, homes) = shape.region().ok_or_else(|| {
            Error::Argument(format!(
                "{} with its homes is larger than the shared heap can be; make it smaller",
                object.label
            ))
        })?;
        let region = heap::RegionOptions {
            engine: Some(comem_protocol::coherence::pages::PageEngine::Direct),
            home: homes,
            unit_bytes: shape.unit_bytes,
            label: object.label.clone(),
            holds_objects: true,
            ..heap::RegionOptions::default()
        };
        let shared = self.node.shared().ok_or_else(|| {
            Error::NoHeap(format!(
                "{} is under the engine direct: {}",
                object.label,
                shared::heap::address_space::why_none(self.node.config.heap)
            ))
        })?;
        let thread = self.current()?;
        let start = shared::heap::ThreadHeap::new(&thread, shared).allocate_common(bytes, &region, "")?;
        object.lies_in(inline::objects::Lined::new(start, shape));
        Ok(())
    }

    /// Ends this node's part: waits for the others to come as far, and reports what was counted. Objects can still be
    /// read afterwards, as far as they are here; what another node would have to give ends this one with a sentence.
    ///
    /// # Errors
    /// When another node makes a different collective call, or when the statistics cannot be written.
    pub fn finish(self) -> Result<()> {
        boot::finish(&self.node, &*self.current()?)
    }
}
