//! One node: its state machines, each behind a lock, and a slot for each thread.

use crate::biased_mutex::{self, BiasedMutex};
use crate::bind::{self, Bind};
use crate::capacity;
use crate::collective_gate::CollectiveGate;
use crate::config::Config;
use crate::control::{ControlWriter, FromNode};
use crate::counters::{Count, Counters, Since};
use crate::direct::post::{Requests, Served};
use crate::direct::ucx::Reached;
use crate::error::{Error, Result};
use crate::inline::objects::Shape;
use crate::io::Wire;
use crate::lock_schedule::Schedule;
use crate::locks::{Held, LockTables};
use crate::mutex::{Mutex, RwLock};
use crate::names::Named;
use crate::object::{Object, ObjectOptions, UNIT_BYTES_MAX, UnitHomes, automatic_unit};
use crate::service::SpinBudget;
use crate::shared::Shared;
use crate::shared::consistency::msi_pages;
use crate::shared::consistency::payload::PagePayload;
use crate::shutdown::Shutdown;
use crate::thread::deal::Part;
use crate::waiter::Waiter;
use crate::watch::Watch;
use crate::write_combining::CombinedWrites;
use comem_memory::pages::ArrivalTable;
use comem_memory::{StoreFlag, StoreGuard};
use comem_net::Backbone;
use comem_net::clock::Clock;
use comem_protocol::coherence::msi::Unit;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::coherence::{self, Engine, Misbehaved};
use comem_protocol::ids::{FlagId, LockId, NodeId, ObjectId, Slot, UnitId};
use comem_protocol::node::route::{NodeState, Origin};
use comem_protocol::node::startup::Startup;
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::barrier::{Barrier, kinds};
use comem_protocol::sync::deal::Loops;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{SyncObject, SyncObjects};
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::{self, NoPayload};
use comem_protocol::time::Time;
use comem_protocol::tuning::LockTuning;
use comem_protocol::wire::message::{Collective, Message, SyncRequest};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

const LOCK_SHARDS: usize = 64;
const FLAG_SHARDS: usize = 16;
const SYNC_OBJECT_SHARDS: usize = 64;
/// Messages to one thread that it has not taken yet; beyond, senders have to wait.
pub(crate) const INBOX_MAX: usize = 4096;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// A unit.
    Fetch {
        /// Of which object.
        object: ObjectId,
        /// Which one.
        unit: u32,
    },
    /// A lock.
    Lock(LockId),
    /// A flag, to reach a value.
    Flag(FlagId, u64),
    /// The answer of a semaphore, condition variable or reader-writer lock of this name.
    Answer(SyncRequest, u64),
    /// A page of the shared heap.
    Page(PageNo),
    /// Diffs for pages whose home is here.
    Diffs,
    /// A collective call, with its number.
    Barrier(Collective, u32),
    /// Other threads of this node, to let go of their locks before this one comes to a collective call.
    Sections,
    /// The end of a collective call that another thread of this node makes.
    Opening,
    /// One-sided operations, which a node carries out for this one.
    Operations(NodeId),
    /// Items of the loop with this number, from its manager.
    Loop(u64),
    /// Room to send.
    Room,
    /// Messages from other threads.
    Messages,
}

impl Waiting {
    /// Whether the thread waits for what other threads do, and not for data.
    pub(crate) fn is_for_others(self) -> bool {
        matches!(
            self,
            Waiting::Lock(_)
                | Waiting::Flag(..)
                | Waiting::Answer(..)
                | Waiting::Barrier(..)
                | Waiting::Sections
                | Waiting::Opening
                | Waiting::Messages
        )
    }

    /// Whether the thread is between two pieces of work, or waits for one to end: that may take as long as it likes.
    pub(crate) fn is_for_work(self) -> bool {
        matches!(self, Waiting::Answer(SyncRequest::SemWait, name) if SemaphoreId(name).is_reserved())
    }

    /// The counter to which the time of such waits goes.
    pub(crate) fn time(self, counters: &Counters) -> &Count {
        match self {
            Waiting::Fetch { .. }
            | Waiting::Page(_)
            | Waiting::Diffs
            | Waiting::Room
            | Waiting::Operations(_)
            | Waiting::Loop(_) => &counters.fetch_ns,
            Waiting::Barrier(..)
            | Waiting::Sections
            | Waiting::Opening
            | Waiting::Answer(SyncRequest::SubsetBarrier, _) => &counters.barrier_ns,
            Waiting::Lock(_) | Waiting::Flag(..) | Waiting::Answer(..) | Waiting::Messages => &counters.lock_ns,
        }
    }
}

/// What belongs to one slot of the node.
#[derive(Debug, Default)]
pub(crate) struct ThreadSlot {
    pub(crate) waiter: Waiter,
    pub(crate) counters: Counters,
    /// What the thread waits for, since when.
    pub(crate) status: Mutex<Option<(Waiting, Time)>>,
    answer: Mutex<Option<Vec<u8>>>,
    /// Its one-sided operations, where other nodes carry them out.
    pub(crate) requests: Mutex<Requests>,
    inbox: Mutex<VecDeque<(NodeId, Vec<u8>)>>,
    /// The one-sided locks that the thread holds, the latest last.
    pub(crate) held: BiasedMutex<Vec<Held>>,
    /// Where the thread has found words of one-sided locks that it reaches by UCX.
    pub(crate) lock_places: BiasedMutex<Vec<Option<(LockId, u32)>>>,
    pub(crate) combined_writes: Mutex<CombinedWrites>,
    /// Whether anything may be gathered there.
    pub(crate) combines_writes: AtomicBool,
    pub(crate) spins: SpinBudget,
    /// Whoever is sent something by this thread just now gets a moment to look before it is roused.
    pub(crate) patient: AtomicBool,
    /// Set while an application thread sits here.
    pub(crate) taken: AtomicBool,
    /// How many loops whose items are dealt out the threads that sat here have begun.
    pub(crate) loops: AtomicU64,
    /// Since when the life of the thread that sits here is not booked.
    pub(crate) lives: Since,
    /// Since when the wait of that thread is not booked.
    pub(crate) waits: Since,
}

impl ThreadSlot {
    /// What a thread that is not at its end has not booked yet.
    pub(crate) fn unbooked(&self, now: Time) -> Counters {
        let unbooked = Counters::default();
        if let Some(since) = self.lives.get() {
            unbooked.lifetime_ns.add((now - since).0);
        }
        if let (Some(since), Some((why, _))) = (self.waits.get(), *self.status.lock()) {
            why.time(&unbooked).add((now - since).0);
        }
        unbooked
    }
}

/// The cores that this node's threads are to stay on.
fn own_cores(config: &Config) -> Option<Vec<usize>> {
    let place = config.host_place.filter(|_| config.bind != Bind::Off)?;
    let allowed = bind::allowed_cores();
    let fits = config.host_nodes.saturating_mul(config.threads) <= capacity::cores();
    let own = bind::share_of(&allowed, place, config.host_nodes, config.threads).filter(|_| fits);
    if config.verbose {
        match own {
            Some(own) => {
                let how = if config.bind == Bind::Cores { "stay on" } else { "come back to" };
                crate::error::say(format_args!("comem: application threads {how} cores {}", bind::in_words(own)))
            }
            None => crate::error::say(format_args!(
                "comem: no cores of their own for threads: {} nodes with {} each, {} cores",
                config.host_nodes,
                config.threads,
                allowed.len()
            )),
        }
    }
    own.map(<[usize]>::to_vec)
}

/// A node of the job.
pub struct Node {
    pub(crate) config: Config,
    /// The cores that application threads stay on or come back to, where they have some of their own.
    cores: Option<Vec<usize>>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) wire: Wire,
    me: NodeId,
    nodes: usize,
    guard: StoreGuard,
    store_flags: Vec<&'static StoreFlag>,
    objects: RwLock<Vec<Arc<Object>>>,
    locks: Vec<BiasedMutex<Locks>>,
    /// Where locks are one-sided: their words.
    lock_tables: OnceLock<LockTables>,
    /// Where arrivals at barriers may be words: all nodes' words.
    arrival_words: OnceLock<ArrivalTable>,
    /// When tokens of locks are given away.
    pub(crate) schedule: Schedule,
    flags: Vec<Mutex<Flags>>,
    sync_objects: Vec<Mutex<SyncObjects>>,
    barrier: Mutex<Barrier>,
    /// Loops whose items are dealt out: as their manager, and what this node has of them.
    pub(crate) loops: Mutex<Loops>,
    pub(crate) parts: Mutex<BTreeMap<u64, Arc<Part>>>,
    /// One-sided operations that this node carries out for others.
    pub(crate) served: Served,
    /// The nodes' memories as UCX reaches them, where it is asked for.
    pub(crate) ucx: OnceLock<Reached>,
    /// Where one thread makes a collective call and the others go on.
    pub(crate) gate: Option<CollectiveGate>,
    shared: OnceLock<Shared>,
    began: OnceLock<Time>,
    pub(crate) slots: Vec<ThreadSlot>,
    /// Who is in the last of these, where that is for all that find none.
    pub(crate) common_place: Mutex<()>,
    /// Application threads that wait just now.
    pub(crate) waiting: AtomicU64,
    /// Of these, the ones that spin, and look after the service socket meanwhile.
    pub(crate) spinning: AtomicU64,
    /// Counts steps, so that a hang can be told from slow progress.
    pub(crate) progress: AtomicU64,
    /// This node has come to the end of the job and reads no more messages: its inboxes take what others have posted
    /// yet, since they wait for that.
    pub(crate) reads_no_more: AtomicBool,
    /// How the program has misused shared memory, found where the node could not be ended at once.
    pub(crate) misuse: OnceLock<String>,
    /// Called whenever a message to a thread of this node has come.
    pub(crate) told_of_messages: OnceLock<fn()>,
    pub(crate) shutdown: Shutdown,
    /// Who has ended the node's part, and when: nobody answers any more.
    pub(crate) ended: OnceLock<(Slot, Time)>,
    /// Why the job is over, where the process outlives it.
    pub(crate) over: OnceLock<crate::host::Over>,
    pub(crate) watch: Watch,
    pub(crate) launcher: Option<Arc<ControlWriter<FromNode>>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} of {})", self.me.0, self.nodes)
    }
}

impl Node {
    pub(crate) fn new(
        config: Config,
        clock: Arc<Clock>,
        wire: Wire,
        startup: Option<Startup>,
        launcher: Option<Arc<ControlWriter<FromNode>>>,
    ) -> Node {
        let (me, nodes) = (wire.me(), wire.nodes());
        let callers = crate::host::callers(&config);
        let slots = config.thread_slots;
        let guard = StoreGuard::new(true);
        let store_flags: Vec<&'static StoreFlag> =
            (0..=slots).map(|_| &*Box::leak(Box::new(StoreFlag::new()))).collect();
        for (index, flag) in store_flags.iter().enumerate().skip(1) {
            guard.attach(Slot(index as u16), flag);
        }
        Node {
            me,
            nodes,
            guard,
            store_flags,
            objects: RwLock::default(),
            locks: (0..LOCK_SHARDS).map(|_| BiasedMutex::around(Locks::new().tuned(config.tuning.locks))).collect(),
            lock_tables: OnceLock::new(),
            arrival_words: OnceLock::new(),
            schedule: Schedule::new(LockTuning {
                defers: config.lock_turns && config.tuning.locks.defers,
                ..config.tuning.locks
            }),
            flags: (0..FLAG_SHARDS).map(|_| Mutex::default()).collect(),
            sync_objects: (0..SYNC_OBJECT_SHARDS)
                .map(|_| Mutex::new(SyncObjects::new().tuned(config.tuning.sync)))
                .collect(),
            barrier: Mutex::new(
                Barrier::new(me, nodes, callers).tuned(config.tuning.sync).for_notices(wire.free_notices_bytes()),
            ),
            gate: crate::host::host().map(|_| CollectiveGate::new(config.tuning.sync)),
            shared: OnceLock::new(),
            began: OnceLock::new(),
            loops: Mutex::default(),
            parts: Mutex::default(),
            served: Served::default(),
            ucx: OnceLock::new(),
            slots: (0..=slots).map(|_| ThreadSlot::default()).collect(),
            common_place: Mutex::default(),
            waiting: AtomicU64::new(0),
            spinning: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            reads_no_more: AtomicBool::new(false),
            misuse: OnceLock::new(),
            told_of_messages: OnceLock::new(),
            shutdown: Shutdown::default(),
            ended: OnceLock::new(),
            over: OnceLock::new(),
            watch: Watch::new(&config, &wire, clock.now(), startup),
            launcher,
            cores: own_cores(&config),
            config,
            clock,
            wire,
        }
    }

    /// The cores that the thread in this slot comes back to, if any. A node alone on its host has no other to keep
    /// apart from.
    pub(crate) fn cores_of(&self, slot: Slot) -> Option<bind::CpuSet> {
        let comes_back = self.config.bind == Bind::Auto && self.config.host_nodes > 1;
        let cores = self.cores.as_ref().filter(|_| comes_back)?;
        Some(bind::CpuSet::of(cores, &bind::allowed_cores(), slot.index() - 1, self.config.threads))
    }

    /// Keeps the service thread on its node's own cores. Whether no other node's threads come back to where it runs.
    pub(crate) fn keep_service_at_home(&self) -> bool {
        self.config.host_nodes == 1 || self.cores.as_ref().is_some_and(|cores| self.stays_on(cores))
    }

    /// Keeps the calling thread on the node's own cores, if it has some to stay on.
    pub(crate) fn stay_on_its_cores(&self) {
        if let Some(cores) = self.cores.as_ref().filter(|_| self.config.bind == Bind::Cores) {
            self.stays_on(cores);
        }
    }

    /// Keeps the calling thread on these cores. A host that forbids it has a reason; the thread runs all the same.
    fn stays_on(&self, cores: &[usize]) -> bool {
        let stays = bind::stay_on(cores);
        if let Err(error) = &stays
            && self.config.verbose
        {
            crate::error::say(format_args!(
                "comem: {}: a thread cannot stay on its cores: {error}",
                self.name_of(self.me)
            ));
        }
        stays.is_ok()
    }

    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    pub(crate) fn threads(&self) -> usize {
        self.config.threads
    }

    /// Whether threads come and go here, in a job of this node alone: then the number with which it was started says
    /// nothing of how many there are.
    pub(crate) fn has_spare_places(&self) -> bool {
        self.nodes == 1 && self.config.thread_slots > self.config.threads
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The shared heap; `None` before it is made, and where it cannot be.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        self.shared.get()
    }

    /// When the program's main thread took its place; start-up is over then.
    pub(crate) fn began(&self) -> Time {
        self.began.get().copied().unwrap_or_else(|| self.wire.started())
    }

    /// Whether start-up is over.
    pub(crate) fn has_begun(&self) -> bool {
        self.began.get().is_some()
    }

    pub(crate) fn begin(&self) {
        // What the start took, until all had their heaps, belongs to nobody's life.
        self.counters(Slot::thread(0)).begin();
        let _ = self.began.set(self.now());
    }

    pub(crate) fn set_shared(&self, shared: Shared) {
        let set = self.shared.set(shared);
        debug_assert!(set.is_ok(), "the heap is made once");
    }

    /// The tables of locks; `None` where they are tokens.
    #[inline]
    pub(crate) fn lock_tables(&self) -> Option<&LockTables> {
        self.lock_tables.get()
    }

    pub(crate) fn set_lock_tables(&self, tables: LockTables) {
        let set = self.lock_tables.set(tables);
        debug_assert!(set.is_ok(), "they are made once");
    }

    /// The words of arrivals; `None` where all go by messages.
    #[inline]
    pub(crate) fn arrival_words(&self) -> Option<&ArrivalTable> {
        self.arrival_words.get()
    }

    pub(crate) fn set_arrival_words(&self, table: ArrivalTable) {
        let set = self.arrival_words.set(table);
        debug_assert!(set.is_ok(), "they are made once");
    }

    pub(crate) fn guard(&self) -> &StoreGuard {
        &self.guard
    }

    pub(crate) fn flag(&self, slot: Slot) -> &'static StoreFlag {
        self.store_flags[slot.index()]
    }

    pub(crate) fn counters(&self, slot: Slot) -> &Counters {
        &self.slots[slot.index()].counters
    }

    pub(crate) fn slow_factor(&self) -> f64 {
        self.config.slow
    }

    /// The processor time that the calling thread has used.
    pub(crate) fn thread_cpu_ns(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes to `time`, which is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// An error as people read it: which node, what happened, what to do.
    pub(crate) fn sentence(&self, error: &Error) -> String {
        format!("comem: {}: {}", self.name_of(self.me), self.words(error))
    }

    /// An error with everything that is known of the nodes it speaks of.
    pub(crate) fn words(&self, error: &Error) -> String {
        let text = error.to_string();
        match error {
            Error::NodeLost { node, .. } => {
                let text = match text.strip_prefix(&node.to_string()) {
                    Some(rest) => format!("{}{rest}", self.name_of(*node)),
                    None => text,
                };
                self.locked_by(*node).map_or(text.clone(), |locked| format!("{text}; {locked}"))
            }
            _ => text,
        }
    }

    /// The name of what moves this job's datagrams; `none` where there are none to move.
    pub(crate) fn backbone(&self) -> &'static str {
        self.config.backbone.named().map_or("none", Backbone::name)
    }

    /// A node's name in messages: number, host and process.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        match self.wire.member(node) {
            Some((host, pid)) => format!("node {} (host {host}, pid {pid})", node.0),
            None => node.to_string(),
        }
    }

    // ---- state machines

    pub(crate) fn with_barrier<R>(&self, f: impl FnOnce(&mut Barrier) -> R) -> R {
        f(&mut self.barrier.lock())
    }

    #[inline]
    pub(crate) fn lock_shard(&self, lock: LockId) -> biased_mutex::Guard<'_, Locks> {
        self.locks[(lock.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % LOCK_SHARDS].lock()
    }

    pub(crate) fn flag_shard(&self, flag: FlagId) -> MutexGuard<'_, Flags> {
        self.flags[(flag.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % FLAG_SHARDS].lock()
    }

    /// A step of synchronisation: what it releases closes the pages' interval, what it acquires ends copies of pages.
    /// The diffs that this makes leave before anything else the step sends.
    fn with_payload<R>(
        &self,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut sync::Context<'_>) -> R,
    ) -> R {
        let (me, nodes) = (self.me, self.nodes);
        let Some(shared) = self.shared().filter(|s| s.views.is_some()) else {
            return f(&mut sync::Context { me, nodes, caller, payload: &mut NoPayload, out });
        };
        let slot = caller.unwrap_or(Slot::SERVICE);
        let mut payload = PagePayload { node: self, shared, slot, side: Outbox::new() };
        let result = f(&mut sync::Context { me, nodes, caller, payload: &mut payload, out });
        self.flush(slot, &mut payload.side);
        result
    }

    pub(crate) fn with_locks<R>(
        &self,
        lock: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut Locks, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.with_payload(caller, out, |cx| f(&mut self.lock_shard(lock), cx))
    }

    pub(crate) fn with_flags<R>(
        &self,
        flag: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut Flags, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.with_payload(caller, out, |cx| f(&mut self.flag_shard(flag), cx))
    }

    pub(crate) fn sync_object_shard(&self, object: SyncObject) -> MutexGuard<'_, SyncObjects> {
        self.sync_objects[(object.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SYNC_OBJECT_SHARDS].lock()
    }

    pub(crate) fn with_sync_objects<R>(
        &self,
        object: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.with_payload(caller, out, |cx| f(&mut self.sync_object_shard(object), cx))
    }

    pub(crate) fn object(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.objects.read().get(id.0 as usize).cloned()
    }

    /// Makes an object's memory here; the caller sees to it that all nodes do the same.
    pub(crate) fn make_object(&self, element: usize, len: usize, options: &ObjectOptions) -> Result<Arc<Object>> {
        let bytes = element.checked_mul(len).filter(|b| *b <= isize::MAX as usize / 2);
        let Some(bytes) = bytes else {
            return Err(Error::Argument(format!(
                "an object of {len} elements of {element} bytes is larger than the address space; make it smaller"
            )));
        };
        if element > UNIT_BYTES_MAX {
            return Err(Error::Argument(format!(
                "an element of {element} bytes is larger than the largest unit, {UNIT_BYTES_MAX} bytes; split it"
            )));
        }
        let datagram = self.wire.payload_bytes();
        let unit = match options.unit_elements {
            0 => automatic_unit(element, len, self.nodes, datagram),
            chosen => chosen.min(len.max(1)),
        };
        if unit.saturating_mul(element) > UNIT_BYTES_MAX {
            return Err(Error::Argument(format!(
                "a unit of {unit} elements of {element} bytes is larger than {UNIT_BYTES_MAX} bytes; choose fewer elements"
            )));
        }
        if UnitHomes::of(&options.homes).is_none() {
            let what = "units of objects have their homes in blocks, in turn, or on one node; others are for pages";
            return Err(Error::Argument(what.to_string()));
        }
        if let Homes::On(node) = options.homes
            && node.index() >= self.nodes
        {
            return Err(Error::Argument(format!("there is no {node}; the job has {} nodes", self.nodes)));
        }
        let engine = match options.engine {
            Some(engine) if !self.config.force_engine => engine,
            _ => self.config.engine,
        };
        let unit = match engine {
            Engine::Direct if len > 0 => {
                let placed = (UnitHomes::of(&options.homes).unwrap_or_default(), self.nodes);
                Shape::new((element, len), options.unit_elements, self.config.unit_bytes, placed).unit_elements
            }
            _ => unit,
        };
        // What is told without an acknowledgement travels in datagrams no longer than usual; the unit and the offset
        // stand before it.
        let told_at_once = self.wire.message_bytes() - 16;
        if engine == Engine::Broadcast && self.nodes > 1 && element > told_at_once {
            return Err(Error::Argument(format!(
                "an element of {element} bytes is larger than what broadcast tells at once here, {told_at_once} bytes; split it, \
                 or start the job with a larger --mtu"
            )));
        }
        let mut objects = self.objects.write();
        let id = ObjectId(objects.len() as u32);
        let who = (self.me, self.nodes);
        let object = Object::new(id, (element, len, unit), engine, options, who, &self.guard)
            .map_err(Error::system(format!("cannot reserve {bytes} bytes for a shared object")))?;
        let object = Arc::new(object);
        objects.push(object.clone());
        Ok(object)
    }

    // ---- what threads get

    pub(crate) fn expect_answer(&self, slot: Slot) {
        *self.slots[slot.index()].answer.lock() = None;
    }

    pub(crate) fn take_answer(&self, slot: Slot) -> Option<Vec<u8>> {
        self.slots[slot.index()].answer.lock().take()
    }

    pub(crate) fn take_user(&self, slot: Slot) -> Option<(NodeId, Vec<u8>)> {
        let mut inbox = self.slots[slot.index()].inbox.lock();
        let was_full = inbox.len() >= INBOX_MAX;
        let message = inbox.pop_front();
        drop(inbox);
        if was_full {
            // Neighbours may wait for room here. All are roused: one may be between its look and its sleep.
            (1..self.slots.len()).map(|i| Slot(i as u16)).filter(|s| *s != slot).for_each(|s| self.wake_thread(s));
        }
        message
    }

    /// Puts back, in front of others, what was taken and not used.
    pub(crate) fn give_back_user(&self, slot: Slot, messages: VecDeque<(NodeId, Vec<u8>)>) {
        let mut inbox = self.slots[slot.index()].inbox.lock();
        messages.into_iter().rev().for_each(|message| inbox.push_front(message));
    }

    /// Whether thread `thread` of this node can take one more message.
    pub(crate) fn inbox_has_room(&self, thread: u16) -> bool {
        let thread_slot = self.slots.get(usize::from(thread) + 1);
        thread_slot.is_some_and(|s| s.inbox.lock().len() < INBOX_MAX) || self.reads_no_more.load(Ordering::Acquire)
    }

    pub(crate) fn deliver_user(&self, from: NodeId, thread: u16, bytes: &[u8], out: &mut Outbox) {
        if let Some(thread_slot) = self.slots.get(usize::from(thread) + 1) {
            // They may lie in shared memory, whose fault must not wait for a page with the inbox locked.
            let bytes = bytes.to_vec();
            thread_slot.inbox.lock().push_back((from, bytes));
            out.wake(Slot::thread(usize::from(thread)));
            if let Some(told) = self.told_of_messages.get() {
                told();
            }
        }
    }

    /// The number of a slot's thread among all threads of the job.
    fn thread_in(&self, slot: Slot) -> usize {
        self.me().index() * self.threads() + slot.index() - 1
    }

    /// A few of the locks that threads of this node hold, each with the thread that does.
    pub(crate) fn locks_held(&self) -> Vec<String> {
        const FEW: usize = 8;
        let mut locks: Vec<_> = self.locks.iter().flat_map(|room| room.lock().held().collect::<Vec<_>>()).collect();
        locks.extend(self.one_sided_held());
        locks.sort_unstable();
        let locks = locks.into_iter().map(|(lock, slot)| (slot, format!("lock {}", Named(lock.0))));
        let mut others: Vec<_> =
            self.sync_objects.iter().flat_map(|room| room.lock().held().collect::<Vec<_>>()).collect();
        others.sort_unstable();
        let others = others.into_iter().map(|(name, slot, writes)| {
            (slot, format!("reader-writer lock {} for {}", Named(name), if writes { "writing" } else { "reading" }))
        });
        locks
            .chain(others)
            .take(FEW)
            .map(|(slot, what)| format!("thread {} holds {what}", self.thread_in(slot)))
            .collect()
    }

    /// A few of the arrays of which threads of this node use ranges just now.
    pub(crate) fn ranges_in_use(&self) -> Vec<String> {
        const FEW: usize = 4;
        let objects = self.objects.read();
        let in_use = objects.iter().filter(|object| object.is_lent()).take(FEW);
        in_use.map(|object| format!("a range of {} is in use", object.label)).collect()
    }

    /// Whether a thread waits for such a thing.
    pub(crate) fn somebody_waits(&self, such: impl Fn(Waiting) -> bool) -> bool {
        self.slots.iter().any(|thread_slot| thread_slot.status.lock().is_some_and(|(waiting, _)| such(waiting)))
    }

    /// One line for each thread that waits: for what, how long.
    pub(crate) fn where_threads_wait(&self) -> Vec<String> {
        let now = self.now();
        let mut lines = Vec::new();
        for (index, thread_slot) in self.slots.iter().enumerate().skip(1) {
            let Some((waiting, since)) = *thread_slot.status.lock() else { continue };
            let seconds = (now - since).0 as f64 / 1e9;
            let thread = self.thread_in(Slot(index as u16));
            lines.push(format!("thread {thread} has waited {seconds:.1} s for {}", self.describe(waiting)));
        }
        lines
    }

    pub(crate) fn describe(&self, waiting: Waiting) -> String {
        match waiting {
            Waiting::Fetch { object, unit } => match self.object(object) {
                Some(o) => format!("unit {unit} of {} (home: {})", o.label, self.name_of(o.home_of(unit))),
                None => format!("unit {unit} of object {}", object.0),
            },
            Waiting::Page(page) => match self.shared().and_then(|s| s.table.find(page)) {
                Some(known) => {
                    let home = known
                        .region
                        .home_of(page - (page - known.region.first) % known.region.unit_pages(), self.nodes);
                    format!(
                        "page {} of {} (first home: {})",
                        page - known.region.first,
                        known.name(),
                        self.name_of(home)
                    )
                }
                None => format!("page {page} of the shared heap"),
            },
            Waiting::Diffs => "the diffs of pages whose home it is".to_string(),
            Waiting::Lock(lock) => {
                if let Some(words) = self.describe_one_sided(lock) {
                    return words;
                }
                let manager = comem_protocol::ids::manager_of(lock.0, self.nodes);
                let holder = match self.lock_shard(lock).holder(lock) {
                    Some(slot) => format!("which thread {} holds", slot.index() - 1),
                    None => "which no thread of this node holds".to_string(),
                };
                format!("lock {} (managed by {}), {holder}", Named(lock.0), self.name_of(manager))
            }
            Waiting::Flag(flag, value) => format!("flag {} to reach {value}", Named(flag.0)),
            Waiting::Answer(..) if waiting.is_for_work() => "work, or for the end of a worker".to_string(),
            Waiting::Answer(request, name) => {
                let named = Named(name);
                let what = match request {
                    SyncRequest::SemWait | SyncRequest::SemTryWait | SyncRequest::SemPass => {
                        format!("semaphore {named} to be posted")
                    }
                    SyncRequest::SemGive | SyncRequest::SemReset => format!("word that semaphore {named} has changed"),
                    SyncRequest::CondJoin | SyncRequest::CondAwait => {
                        format!("condition variable {named} to be signalled")
                    }
                    SyncRequest::ReadLock => format!("reader-writer lock {named}, to read"),
                    SyncRequest::WriteLock => format!("reader-writer lock {named}, to write"),
                    SyncRequest::SubsetBarrier => format!("the other threads at barrier {named}"),
                };
                format!("{what} (managed by {})", self.name_of(request.object(name).manager(self.nodes)))
            }
            Waiting::Barrier(what, number) => {
                let (threads, nodes) = self.with_barrier(|b| {
                    let (threads, nodes) = b.missing();
                    (threads, self.missing_by_words(b).unwrap_or(nodes))
                });
                let mut missing: Vec<String> = nodes.iter().map(|n| self.name_of(*n)).collect();
                if threads > 0 {
                    missing.insert(0, format!("{threads} of its own threads"));
                }
                let missing = match (missing.is_empty(), self.with_barrier(|b| b.parent())) {
                    (true, Some(parent)) => {
                        format!("{}, or others of which it would hear", self.name_of(parent))
                    }
                    (true, None) => "the release".to_string(),
                    _ => missing.join(", "),
                };
                format!("{} (number {number}): missing {missing}", kinds::name(what.kind))
            }
            Waiting::Sections => {
                "other threads of this node to release their locks, before a collective call".to_string()
            }
            Waiting::Opening => "the end of a collective call that another thread of this node makes".to_string(),
            Waiting::Operations(node) => format!("one-sided operations that {} carries out", self.name_of(node)),
            Waiting::Loop(number) => {
                let manager = comem_protocol::sync::deal::manager(number, self.nodes);
                format!("items of dynamic loop {number} (managed by {})", self.name_of(manager))
            }
            Waiting::Room => "room to send".to_string(),
            Waiting::Messages => "a message from another thread".to_string(),
        }
    }

    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}

/// The node's state machines as one message sees them.
pub(crate) struct LocalNode<'a> {
    pub(crate) node: &'a Node,
    /// Whose request a reply answers.
    pub(crate) answers: Slot,
    /// Whoever must be roused besides those in the outbox.
    pub(crate) roused: Option<Slot>,
    /// A message for a program's thread, to be delivered after dispatch.
    pub(crate) user: Option<(NodeId, u16, Vec<u8>)>,
}

impl NodeState for LocalNode<'_> {
    fn unit<R>(
        &mut self,
        id: UnitId,
        engine: Engine,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Unit, &mut coherence::Context<'_>) -> R,
    ) -> Option<R> {
        if id.object == msi_pages::PAGES && engine == Engine::Msi {
            return self.node.msi_step(id.index, caller, out, step);
        }
        if let Some(line) = crate::inline::msi::line_of(id).filter(|_| engine == Engine::Msi) {
            return self.node.line_step(line, caller, out, step);
        }
        let object = self.node.object(id.object).filter(|o| o.engine == engine)?;
        object.step(&self.node.guard, id.index, caller, out, step)
    }

    fn is_freed(&mut self, id: UnitId) -> bool {
        if let Some(line) = crate::inline::msi::line_of(id) {
            return self.node.is_line_freed(line);
        }
        id.object == msi_pages::PAGES && self.node.shared().is_some_and(|shared| shared.table.is_freed(id.index))
    }

    fn locks(
        &mut self,
        id: LockId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Locks, &mut sync::Context<'_>),
    ) {
        self.node.with_locks(id, caller, out, step);
    }

    fn flags(
        &mut self,
        id: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut Flags, &mut sync::Context<'_>),
    ) {
        self.node.with_flags(id, caller, out, step);
    }

    fn sync_objects<R>(
        &mut self,
        object: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        step: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.node.with_sync_objects(object, caller, out, step)
    }

    fn barrier(&mut self, out: &mut Outbox, step: impl FnOnce(&mut Barrier, &mut Outbox)) {
        self.node.with_barrier(|b| step(b, out));
    }

    fn page(&mut self, origin: Origin, message: Message<'_>, out: &mut Outbox) -> std::result::Result<(), Misbehaved> {
        if let Some(answer) = self.node.on_page_message(origin, message, out)? {
            self.answer(&answer);
        }
        Ok(())
    }

    fn remote(
        &mut self,
        now: Time,
        origin: Origin,
        message: Message<'_>,
        out: &mut Outbox,
    ) -> std::result::Result<(), Misbehaved> {
        if let Message::Invitation { body } = message {
            self.answer(body);
            return Ok(());
        }
        self.node.on_remote(now, (origin, self.answers), message, out)
    }

    fn loops<R>(&mut self, step: impl FnOnce(&mut Loops, usize) -> R) -> Option<R> {
        Some(step(&mut self.node.loops.lock(), self.node.nodes))
    }

    fn answer(&mut self, bytes: &[u8]) {
        let Some(thread_slot) = self.node.slots.get(self.answers.index()) else { return };
        *thread_slot.answer.lock() = Some(bytes.to_vec());
        self.roused = Some(self.answers);
    }

    fn user(&mut self, from: NodeId, thread: u16, bytes: &[u8]) {
        self.user = Some((from, thread, bytes.to_vec()));
    }
}
