//! A node's intervals and what it knows of those of others: the bookkeeping behind releases and acquires.
//!
//! | event | `hlrc` | `scope` |
//! |---|---|---|
//! | an interval closes | its entry joins the one history | its entry waits for the scopes that are released next |
//! | release of a lock | tell of the history what the acquirer lacks | own entries since the token came join the lock's history; tell of that what the acquirer lacks |
//! | acquire | apply what is new | the same, of the lock's history |
//! | barrier | tell all own entries of the epoch; apply all; forget everything | the same |
//!
//! Under `scope` a lock can be *wide* for the rest of the epoch: its releases tell, in a second blob, all that the node has written and
//! has learnt by such blobs, as `hlrc` would. A lock becomes wide by a release-consistent release or a lazy acquire, the two
//! primitives that Brazos adds to scope consistency (Speight and Bennett, USENIX Windows NT 1997, section 3.3), and on a node that
//! acquires it when it was wide before.

use super::PageEngine;
use super::history::{self, Blob, History, Vector};
use super::wire::{Entry, Group, Need, put_vector, take_vector};
use crate::ids::{LockId, NodeId};
use crate::rules::Rule;
use crate::sync::Scope;
use crate::wire::bytes::{Put, Reader, WireError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The history of one lock, flag or the like under `scope`.
#[derive(Clone, Debug, Default)]
struct Scoped {
    history: History,
    /// The last own interval that joined the history, or that was closed when the scope's token came.
    mark: u32,
}

/// What a blob is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// A lock, flag or the like; under `hlrc` everything.
    Of(Scope),
    /// Everything, under `scope`: the lock is wide.
    OfEverything,
    /// An epoch that is over.
    AtBarrier,
}

/// The ledger of one node.
#[derive(Clone, Debug)]
pub struct Ledger {
    me: NodeId,
    engine: PageEngine,
    epoch: u32,
    /// The last closed interval of this node.
    interval: u32,
    /// The own interval with which the epoch began.
    first: u32,
    /// Under `hlrc` everything; under `scope` this node's own entries, and what came with wide locks.
    history: History,
    scopes: BTreeMap<Scope, Scoped>,
    /// Under `scope`: the wide locks.
    wide: BTreeSet<Scope>,
    /// Under `scope`: entries applied in this epoch, through whichever scope they came.
    applied: BTreeSet<(NodeId, u32)>,
    serials: BTreeMap<NodeId, u32>,
    /// This node has said at a barrier what it wrote, and the barrier is not open yet.
    arrived: bool,
}

impl Ledger {
    /// The ledger of node `me` under `engine` (`hlrc` or `scope`).
    pub fn new(me: NodeId, engine: PageEngine) -> Ledger {
        Ledger {
            me,
            engine,
            epoch: 0,
            interval: 0,
            first: 0,
            history: History::default(),
            scopes: BTreeMap::new(),
            wide: BTreeSet::new(),
            applied: BTreeSet::new(),
            serials: BTreeMap::new(),
            arrived: false,
        }
    }

    /// The epoch that this node has come to.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number of entries kept, for tests of what collection leaves.
    pub fn entries(&self) -> usize {
        self.history.len() + self.scopes.values().map(|s| s.history.len()).sum::<usize>()
    }

    /// The number of the next message of diffs to `home`.
    pub fn next_serial(&mut self, home: NodeId) -> u32 {
        let serial = self.serials.entry(home).or_default();
        *serial += 1;
        *serial
    }

    /// The last message of diffs that was sent to `home`.
    pub fn last_serial(&self, home: NodeId) -> u32 {
        self.serials.get(&home).copied().unwrap_or_default()
    }

    /// Whether an interval may close now. Between a node's arrival at a barrier and the barrier's opening none may: what it closed
    /// would be told to nobody (the arrival has left, and who is past the barrier takes no notices of the old epoch), but a home
    /// would believe that its copies elsewhere had been ended.
    pub fn may_close(&self) -> bool {
        !self.arrived || !Rule::NothingClosesAfterArrival.on()
    }

    /// Ends the interval in which the pages of `groups` were written. An interval without writes does not end.
    pub fn close(&mut self, groups: Vec<Group>) {
        if groups.is_empty() {
            return;
        }
        self.interval += 1;
        let entry = Entry { writer: self.me, from: self.interval, interval: self.interval, groups };
        self.history.insert(Arc::new(entry));
    }

    /// Makes a lock wide: before a release-consistent release, so that it tells of everything, or before a lazy acquire, so that it
    /// asks for that. Under `hlrc` every lock is.
    pub fn widen(&mut self, lock: LockId) {
        if self.engine == PageEngine::Scope {
            self.wide.insert(Scope::Lock(lock));
        }
    }

    /// What this node has seen in a scope; goes with its requests.
    pub fn knowledge(&self, scope: Scope, out: &mut Vec<u8>) {
        out.put_u32(self.epoch);
        let none = Vector::new();
        let seen = match self.engine {
            PageEngine::Scope => self.scopes.get(&scope).map_or(&none, |s| s.history.seen()),
            _ => self.history.seen(),
        };
        put_vector(out, seen);
        if self.wide.contains(&scope) {
            put_vector(out, self.history.seen());
        }
    }

    /// Reads what [`Ledger::knowledge`] wrote: the epoch and what had been seen; nothing where the bytes make no sense.
    pub fn parse_knowledge(bytes: &[u8]) -> (u32, Vector) {
        let mut r = Reader::new(bytes);
        let parsed = r.u32().and_then(|epoch| Ok((epoch, take_vector(&mut r)?)));
        parsed.unwrap_or_default()
    }

    /// What had been seen of everything, when the request was for a wide lock.
    fn parse_wide_knowledge(bytes: &[u8]) -> Option<Vector> {
        let mut r = Reader::new(bytes);
        r.u32().and_then(|_| take_vector(&mut r)).and_then(|_| take_vector(&mut r)).ok()
    }

    /// A release of `scope`, after the interval was closed: appends what an acquirer with this knowledge lacks.
    pub fn tell(&mut self, scope: Scope, knowledge: &[u8], out: &mut Vec<u8>) {
        let (epoch, known) = Self::parse_knowledge(knowledge);
        let known = if epoch == self.epoch { known } else { Vector::new() };
        if self.engine == PageEngine::Scope {
            let scoped = self.scopes.entry(scope).or_default();
            for entry in self.history.after(self.me, scoped.mark.max(self.first)) {
                scoped.history.insert(entry.clone());
            }
            scoped.mark = self.interval;
            scoped.history.tell(self.epoch, &known, out);
            let asked = Self::parse_wide_knowledge(knowledge);
            if asked.is_some() || self.wide.contains(&scope) {
                let known = asked.filter(|_| epoch == self.epoch).unwrap_or_default();
                self.history.tell(self.epoch, &known, out);
            }
        } else {
            self.history.tell(self.epoch, &known, out);
        }
    }

    /// An acquire: takes in what a release said and gives the entries whose pages must be invalidated. Their needs have
    /// been added to `needs`.
    ///
    /// # Errors
    /// When no node would have said it.
    pub fn learn(&mut self, scope: Scope, payload: &[u8], needs: &mut Needs) -> Result<Vec<Arc<Entry>>, WireError> {
        let mut fresh = Vec::new();
        let of_a_lock = self.engine == PageEngine::Scope && matches!(scope, Scope::Lock(_));
        for (index, blob) in history::blobs(payload).enumerate() {
            let blob = history::open(blob?)?;
            if blob.epoch != self.epoch {
                continue;
            }
            let told = if of_a_lock && index > 0 { Told::OfEverything } else { Told::Of(scope) };
            if told == Told::OfEverything {
                self.wide.insert(scope);
            }
            self.take_in(told, blob, needs, &mut fresh);
        }
        if of_a_lock {
            let interval = self.interval;
            self.scopes.entry(scope).or_default().mark = interval;
        }
        Ok(fresh)
    }

    fn take_in(&mut self, told: Told, blob: Blob, needs: &mut Needs, fresh: &mut Vec<Arc<Entry>>) {
        for entry in blob.entries {
            let entry = Arc::new(entry);
            let new = match self.engine {
                PageEngine::Scope => {
                    match told {
                        Told::Of(scope) => drop(self.scopes.entry(scope).or_default().history.insert(entry.clone())),
                        Told::OfEverything => drop(self.history.insert(entry.clone())),
                        Told::AtBarrier => {}
                    }
                    let first_time = self.applied.insert((entry.writer, entry.interval));
                    first_time || entry.from != entry.interval
                }
                _ => self.history.insert(entry.clone()),
            };
            if new && entry.writer != self.me {
                needs.add(&entry);
                fresh.push(entry);
            }
        }
    }

    /// What this node says at a barrier, after the interval was closed: the notices of its own intervals of this epoch.
    pub fn arrive(&mut self, out: &mut Vec<u8>) {
        self.arrived = true;
        let mut own = History::default();
        for entry in self.history.after(self.me, self.first) {
            own.insert(entry.clone());
        }
        if !own.is_empty() {
            own.tell(self.epoch, &Vector::new(), out);
        }
    }

    /// The barrier is open, and `notices` is what all nodes said. Gives all their entries, and of each whether its pages must be
    /// invalidated here; a new epoch has begun.
    ///
    /// # Errors
    /// When no node would have said it.
    pub fn open(&mut self, notices: &[u8], needs: &mut Needs) -> Result<Vec<(Arc<Entry>, bool)>, WireError> {
        let mut all = Vec::new();
        for blob in history::blobs(notices) {
            let blob = history::open(blob?)?;
            if blob.epoch != self.epoch {
                continue;
            }
            let entries: Vec<Arc<Entry>> = blob.entries.iter().map(|e| Arc::new(e.clone())).collect();
            let mut fresh = Vec::new();
            self.take_in(Told::AtBarrier, blob, needs, &mut fresh);
            let is_fresh = |e: &Entry| fresh.iter().any(|f| (f.writer, f.interval) == (e.writer, e.interval));
            all.extend(entries.into_iter().map(|e| (e.clone(), is_fresh(&e))));
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.arrived = false;
        self.first = self.interval;
        self.history = History::default();
        self.scopes.clear();
        self.wide.clear();
        self.applied.clear();
        Ok(all)
    }
}

/// Which diffs each home must have applied before it answers this node's fetches.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    by_home: BTreeMap<NodeId, BTreeMap<NodeId, u32>>,
}

impl Needs {
    /// Notices say that `home` will have the writer's bytes with this message of diffs.
    pub fn raise(&mut self, home: NodeId, writer: NodeId, serial: u32) {
        if serial > 0 {
            let need = self.by_home.entry(home).or_default().entry(writer).or_default();
            *need = (*need).max(serial);
        }
    }

    fn add(&mut self, entry: &Entry) {
        for group in entry.groups.iter().filter(|g| g.home != entry.writer) {
            self.raise(group.home, entry.writer, group.serial);
        }
    }

    /// What a fetch from `home` must ask for.
    pub fn at(&self, home: NodeId) -> Vec<Need> {
        if !Rule::FetchNamesItsNeeds.on() {
            return Vec::new();
        }
        let needs = self.by_home.get(&home).into_iter().flatten();
        needs.map(|(writer, serial)| Need { writer: *writer, serial: *serial }).collect()
    }

    /// The home has answered a fetch with these needs: it need not be told of them again.
    pub fn confirm(&mut self, home: NodeId, met: &[Need]) {
        let Some(needs) = self.by_home.get_mut(&home) else { return };
        for need in met {
            if needs.get(&need.writer).is_some_and(|serial| *serial <= need.serial) {
                needs.remove(&need.writer);
            }
        }
    }
}
