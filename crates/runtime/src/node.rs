//! One node: its parts, each with a lock of its own, and what needs several of them.
//!
//! | part | owns |
//! |---|---|
//! | [`slots`] | what belongs to each thread: its sleep, its counters, its answers |
//! | [`objects`] | explicit objects, and the guard that keeps stores apart from steps on them |
//! | [`inboxes`] | messages between a program's threads |
//! | [`sync_state`] | locks, flags, objects of synchronisation, the barrier |
//! | [`lifetime`] | how far the node has come, and why its job is over |
//! | [`local`] | all of them, as a message that has come finds them |
//!
//! `docs/internals/node.md` lists the parts that stand elsewhere, and the order of their locks.

pub(crate) mod inboxes;
pub(crate) mod lifetime;
pub(crate) mod local;
pub(crate) mod objects;
pub(crate) mod slots;
pub(crate) mod sync_state;
mod waiting;
mod waiting_in_words;

pub(crate) use inboxes::{INBOX_MAX, Inboxes};
pub(crate) use lifetime::Lifetime;
pub(crate) use local::LocalNode;
pub(crate) use objects::Objects;
pub(crate) use slots::{Slots, ThreadSlot};
pub(crate) use sync_state::SyncState;
pub use waiting::Waiting;

use crate::arrivals::ArrivalWords;
use crate::bind::OwnCores;
use crate::collective_gate::CollectiveGate;
use crate::config::Config;
use crate::control::{ControlWriter, FromNode};
use crate::counters::Counters;
use crate::direct::post::Served;
use crate::direct::reach::OneSidedReach;
use crate::error::Error;
use crate::io::Wire;
use crate::launcher_link::ToLauncher;
use crate::lock_schedule::Schedule;
use crate::mutex::Mutex;
use crate::shared::Shared;
use crate::shared::consistency::payload::PagePayload;
use crate::thread::deal::DynamicLoops;
use crate::watch::Watch;
use comem_net::clock::Clock;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::ids::{FlagId, LockId, NodeId, Slot};
use comem_protocol::node::startup::Startup;
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::sync::flag::Flags;
use comem_protocol::sync::lock::Locks;
use comem_protocol::sync::objects::{SyncObject, SyncObjects};
use comem_protocol::sync::{self, NoPayload};
use comem_protocol::time::Time;
use comem_protocol::tuning::LockTuning;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A node of the job.
pub struct Node {
    pub(crate) config: Config,
    pub(crate) clock: Arc<Clock>,
    me: NodeId,
    nodes: usize,
    /// Sockets, senders, receivers.
    pub(crate) wire: Wire,
    pub(crate) slots: Slots,
    pub(crate) inboxes: Inboxes,
    pub(crate) objects: Objects,
    pub(crate) sync: SyncState,
    /// Where arrivals at barriers may be words.
    pub(crate) arrival_words: ArrivalWords,
    /// When tokens of locks are given away.
    pub(crate) schedule: Schedule,
    pub(crate) loops: DynamicLoops,
    /// Where one thread makes a collective call and the others go on.
    pub(crate) gate: Option<CollectiveGate>,
    /// The shared heap.
    shared: OnceLock<Shared>,
    /// How threads of this node reach other nodes' memory.
    pub(crate) reach: OneSidedReach,
    /// One-sided operations that this node carries out for others.
    pub(crate) served: Served,
    /// The cores that application threads stay on or come back to.
    pub(crate) cores: OwnCores,
    /// Who is in the last of the slots, where that is for all that find none.
    pub(crate) common_place: Mutex<()>,
    pub(crate) life: Lifetime,
    /// The watch over the other nodes.
    pub(crate) watch: Watch,
    pub(crate) launcher: ToLauncher,
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
        let places = config.thread_slots;
        Node {
            me,
            nodes,
            slots: Slots::new(places, config.threads),
            inboxes: Inboxes::new(places, config.threads),
            objects: Objects::new(places),
            sync: SyncState::new(
                Barrier::new(me, nodes, callers).tuned(config.tuning.sync).for_notices(wire.free_notices_bytes()),
                &config.tuning,
            ),
            arrival_words: ArrivalWords::new(me, nodes),
            schedule: Schedule::new(LockTuning {
                defers: config.lock_turns && config.tuning.locks.defers,
                ..config.tuning.locks
            }),
            loops: DynamicLoops::default(),
            gate: crate::host::host().map(|_| CollectiveGate::new(config.tuning.sync)),
            shared: OnceLock::new(),
            reach: OneSidedReach::new(&config, nodes),
            served: Served::default(),
            cores: OwnCores::new(&config, wire.name_of(me)),
            common_place: Mutex::default(),
            life: Lifetime::default(),
            watch: Watch::new(&config, &wire, clock.now(), startup),
            launcher: ToLauncher::new(launcher),
            config,
            clock,
            wire,
        }
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

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// A node's name in messages: number, host and process.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        self.wire.name_of(node)
    }

    pub(crate) fn counters(&self, slot: Slot) -> &Counters {
        &self.slots[slot].counters
    }

    /// The shared heap; `None` before it is made, and where it cannot be.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        self.shared.get()
    }

    /// The engine of shared pages that name none, as start-up has settled it.
    pub(crate) fn page_engine(&self) -> PageEngine {
        self.shared().map_or(self.config.page_engine, |shared| shared.page_engine)
    }

    pub(crate) fn set_shared(&self, shared: Shared) {
        let set = self.shared.set(shared);
        debug_assert!(set.is_ok(), "the heap is made once");
    }

    pub(crate) fn begin(&self) {
        // What the start took, until all had their heaps, belongs to nobody's life.
        self.counters(Slot::thread(0)).begin();
        self.life.begin(self.now());
    }

    /// Takes the next message to `slot`'s thread.
    pub(crate) fn take_user(&self, slot: Slot) -> Option<(NodeId, Vec<u8>)> {
        let (message, was_full) = self.inboxes.take(slot)?;
        if was_full {
            // Neighbours may wait for room here. All are roused: one may be between its look and its sleep.
            self.slots.of_threads().filter(|other| *other != slot).for_each(|other| self.wake_thread(other));
        }
        Some(message)
    }

    // ---- steps of synchronisation

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
        self.with_payload(caller, out, |cx| f(&mut self.sync.lock_shard(lock), cx))
    }

    pub(crate) fn with_flags<R>(
        &self,
        flag: FlagId,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut Flags, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.with_payload(caller, out, |cx| f(&mut self.sync.flag_shard(flag), cx))
    }

    pub(crate) fn with_sync_objects<R>(
        &self,
        object: SyncObject,
        caller: Option<Slot>,
        out: &mut Outbox,
        f: impl FnOnce(&mut SyncObjects, &mut sync::Context<'_>) -> R,
    ) -> R {
        self.with_payload(caller, out, |cx| f(&mut self.sync.object_shard(object), cx))
    }

    // ---- what people are told

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
                self.reach.locked_by(self, *node).map_or(text.clone(), |locked| format!("{text}; {locked}"))
            }
            _ => text,
        }
    }
}
