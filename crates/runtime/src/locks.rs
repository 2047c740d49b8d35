//! One-sided locks ([`comem_protocol::sync::one_sided`]): taken and let go in the table of the lock's home. Nodes of
//! one host map it. Where one-sided operations go by UCX, so do these ([`by_ucx`]).
//!
//! They serve jobs in which a release has nothing to tell: every region of shared memory is under an engine that keeps
//! it consistent at every access. What other synchronisation a job uses stays with messages
//! (`docs/decisions/0069-one-sided-locks.md`).

mod by_ucx;
mod place;

use crate::biased_mutex::BiasedMutex;
use crate::config::{Config, LockChoice};
use crate::error::{Error, Result};
use crate::names::Named;
use crate::node::{Node, Waiting};
use crate::thread::Thread;
use crate::thread::misuse::holds_already;
pub(crate) use by_ucx::LockPlaces;
use by_ucx::{FarTable, lost_locks_of};
use comem_memory::pages::LockTable;
use comem_net::{Backbone, Wait};
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::ids::{Channel, LockId, NodeId, Slot, manager_of};
use comem_protocol::sync::one_sided::{Acquire, LockWord, Release, ReleaseStep, Reply, Step};
use comem_protocol::time::{Span, Time};
use place::{Place, Table, find};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

/// So many short pauses lie between two looks at the clock and at the service socket.
const PAUSES_BETWEEN_CLOCKS: u32 = 4;

/// The tables of a job's locks, each node's own.
#[derive(Debug)]
pub(crate) struct LockTables {
    /// The job, which the names of the tables' files have.
    job: u64,
    of: Vec<OnceLock<LockTable>>,
}

/// A lock that a thread holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    lock: LockId,
    at: usize,
    word: LockWord,
}

impl Config {
    /// Whether this job's locks are one-sided: all nodes come to the same. Interpreters, and nodes that nobody has
    /// placed on their host, stay with tokens unless told otherwise. So do nodes that reach one another by UCX: where a
    /// processor carries its operations out, tokens cost less.
    pub(crate) fn locks_are_one_sided(&self) -> bool {
        self.locks_are_one_sided_under(self.page_engine)
    }

    /// As [`Config::locks_are_one_sided`], in a job whose engine of pages is this one.
    pub(crate) fn locks_are_one_sided_under(&self, page_engine: PageEngine) -> bool {
        let is_known = !page_engine.has_several_writers() && self.host_place.is_some() && crate::host::host().is_none();
        let by_memory = self.backbone.named() == Some(Backbone::Shm);
        let wanted = match self.locks {
            LockChoice::Tokens => false,
            LockChoice::OneSided => by_memory || self.uses_ucx(),
            LockChoice::Auto => by_memory && is_known,
        };
        wanted && self.nodes > 1
    }

    /// Whether the words of one-sided locks are reached by UCX: nodes that map one another's memory need none.
    pub(crate) fn locks_go_by_ucx(&self) -> bool {
        self.locks_are_one_sided() && self.backbone.named() != Some(Backbone::Shm)
    }

    /// Refuses one-sided locks where nodes do not reach one another's memory; call it when the backbone is certain.
    pub(crate) fn check_locks(&self) -> Result<()> {
        if self.locks == LockChoice::OneSided && self.nodes > 1 && !self.locks_are_one_sided() {
            return Err(Error::Start(format!(
                "--locks one-sided needs nodes that reach one another's memory, and the backbone is {}; start all \
                 nodes on one host with --backbone shm, or with --engine direct --one-sided ucx, or with \
                 --locks tokens",
                self.backbone
            )));
        }
        Ok(())
    }

    /// A thread that finds a lock held looks again after the first of these, then after twice that, and so on up to the
    /// second.
    pub(crate) fn lock_pauses(&self) -> (Span, Span) {
        let waits = &self.tuning.wait;
        (Span(waits.lock_pause_ns), Span(waits.lock_pause_max_ns.max(waits.lock_pause_ns)))
    }

    /// The same where the lock's word is on another host.
    fn far_lock_pauses(&self) -> (Span, Span) {
        let waits = &self.tuning.wait;
        (Span::from_us(waits.far_pause_us), Span::from_us(waits.far_pause_max_us.max(waits.far_pause_us)))
    }
}

impl LockTables {
    /// The table of this node, which is `me`.
    pub(crate) fn own(&self, me: NodeId) -> &LockTable {
        self.of[me.index()].get().expect("a node has its own table")
    }

    /// This node's table, and room for views of the others'.
    pub(crate) fn new(me: NodeId, nodes: usize, job: u64) -> Result<LockTables> {
        let trouble = Error::system("cannot make the table of locks (another kind of lock needs none: --locks tokens)");
        let own = LockTable::new(job).map_err(trouble)?;
        let of: Vec<OnceLock<LockTable>> = (0..nodes).map(|_| OnceLock::new()).collect();
        let _ = of[me.index()].set(own);
        Ok(LockTables { job, of })
    }

    /// Where a lock's word is, for `slot`'s thread.
    ///
    /// # Errors
    /// When there is no place left, or its home cannot be reached.
    fn place<'a>(&'a self, node: &'a Node, slot: Slot, lock: LockId) -> Result<Place<'a>> {
        let home = manager_of(lock.0, node.nodes());
        let table = self.table(node, home)?;
        let operations = Cell::new(0);
        let known = if table.is_far() { node.slots[slot].lock_places.found(lock) } else { None };
        let at = match known {
            Some(at) => Some(at),
            None => find(&table, lock, &operations).map_err(|error| lost_locks_of(node, home, error))?,
        };
        let Some(at) = at else {
            return Err(Error::TooManyLocks { lock, home: node.name_of(home) });
        };
        if table.is_far() && known.is_none() {
            node.slots[slot].lock_places.note(lock, at);
        }
        Ok(Place { node, lock, home, table, at, operations })
    }

    /// The table at a home, however this node reaches it.
    fn table<'a>(&'a self, node: &'a Node, home: NodeId) -> Result<Table<'a>> {
        if let Some(table) = FarTable::of(node, home) {
            return Ok(Table::Far(table));
        }
        match self.of[home.index()].get() {
            Some(table) => Ok(Table::Mapped(table)),
            None => self.map(node, home).map(Table::Mapped),
        }
    }

    /// Maps the table of another node, once.
    #[cold]
    fn map(&self, node: &Node, home: NodeId) -> Result<&LockTable> {
        let (_, pid) = node.wire.member(home).unwrap_or_default();
        match LockTable::of(pid, self.job) {
            Ok(table) => Ok(self.of[home.index()].get_or_init(|| table)),
            Err(error) => {
                let what = format!(
                    "cannot map the table of locks of {} (start the job with --locks tokens)",
                    node.name_of(home)
                );
                // Where its process has ended, that will be told soon, and says more.
                Err(node.life.loss_or(Error::system(what)(error)))
            }
        }
    }

    /// A lock for which somebody waits, in words.
    pub(crate) fn describe(&self, lock: LockId, name_of: impl Fn(NodeId) -> String) -> String {
        let home = manager_of(lock.0, self.of.len());
        let table = self.of[home.index()].get();
        let is_known = table.is_some();
        let place = table.and_then(|table| find(&Table::Mapped(table), lock, &Cell::new(0)).ok().flatten());
        let word = table.zip(place).map(|(table, at)| table.word(at));
        let holder = match word.and_then(LockWord::holder) {
            Some(holder) => {
                format!("which thread {} of {} holds", holder.slot.index().saturating_sub(1), name_of(holder.node))
            }
            None if is_known => "which nobody holds".to_string(),
            // It lies elsewhere and is not mapped: whoever describes waits for nobody.
            None => "whose holder that node knows".to_string(),
        };
        format!("lock {} (its word is at {}), {holder}", Named(lock.0), name_of(home))
    }
}

/// The one-sided locks that a thread holds, the latest last.
///
/// Mostly the thread itself takes the mutex, for one look or one change.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks(BiasedMutex<Vec<Held>>);

impl HeldLocks {
    fn push(&self, held: Held) {
        self.0.lock().push(held);
    }

    fn take(&self, lock: LockId) -> Option<Held> {
        let mut all = self.0.lock();
        let at = all.iter().rposition(|held| held.lock == lock);
        at.map(|at| all.remove(at))
    }

    fn has(&self, lock: LockId) -> bool {
        self.0.lock().iter().any(|held| held.lock == lock)
    }

    pub(crate) fn all(&self) -> Vec<LockId> {
        self.0.lock().iter().map(|held| held.lock).collect()
    }
}

impl Node {
    /// Whether `slot`'s thread holds a lock, of whichever kind locks are here.
    pub(crate) fn holds_lock(&self, lock: LockId, slot: Slot) -> bool {
        match self.sync.lock_tables() {
            Some(_) => self.slots[slot].held.has(lock),
            None => self.sync.lock_shard(lock).holds(lock, slot),
        }
    }

    /// Looks at a lock's word, or at another that nodes share, until it `changes` or the time is over, ever more
    /// seldom, and serves what comes for this node meanwhile. Whether it has changed.
    pub(crate) fn look_at_lock(
        &self,
        slot: Slot,
        until: Time,
        (pause, most): (&mut Span, Span),
        changes: impl Fn() -> bool,
    ) -> bool {
        let (mine, service) = (self.wire.endpoint(slot), self.wire.endpoint(Slot::SERVICE));
        let watched = service.watch(true);
        let start = self.now();
        let (mut look_at, mut settled) = (start + *pause, start);
        let changed = loop {
            (0..PAUSES_BETWEEN_CLOCKS).for_each(|_| std::hint::spin_loop());
            if watched && service.glance() {
                self.receive(Slot::SERVICE, slot, Some(Duration::ZERO), Wait::Block);
            }
            let now = self.now();
            if now >= look_at {
                if changes() {
                    break true;
                }
                *pause = Span((2 * pause.0).min(most.0));
                look_at = now + *pause;
            }
            if now >= until {
                break false;
            }
            // Who was sent something has had its moment to look.
            if (now - settled).0 >= self.config.unattended().0 {
                settled = now;
                mine.settle(true);
            }
        };
        if watched {
            service.watch(false);
            while service.glance() && self.receive(Slot::SERVICE, slot, Some(Duration::ZERO), Wait::Block) > 0 {}
        }
        mine.settle(false);
        self.slots[slot].spins.account(&self.config, changed);
        changed
    }
}

/// The thread as words of locks name it.
fn holder(thread: &Thread) -> Channel {
    Channel { node: thread.home().me(), slot: thread.slot() }
}

impl LockTables {
    /// Takes a lock for a thread if it is free; whether it was.
    pub(crate) fn take_free(&self, thread: &Thread, lock: LockId) -> Result<bool> {
        let place = self.place(thread.home(), thread.slot(), lock)?;
        let mut acquire = Acquire::new(holder(thread), false).tuned(&thread.home().config.tuning.locks);
        let mut step = acquire.next(Reply::Begin);
        while let Step::CompareAndSwap { expected, new } = step {
            step = acquire.next(place.swap(expected, new)?);
        }
        place.account(thread.counters());
        match step {
            Step::Held(word) => thread.home().slots[thread.slot()].held.push(place.held(word)),
            Step::HeldAlready => return Err(holds_already(thread.id(), lock)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes a lock that was not free just now, and has the thread wait until it is.
    pub(crate) fn take_in_turn(&self, thread: &Thread, lock: LockId) -> Result<()> {
        thread.operation(|| {
            thread.counters().lock_waits.add(1);
            thread.slow_down();
            thread.let_pins_go();
            let place = self.place(thread.home(), thread.slot(), lock)?;
            let mut acquire = Acquire::new(holder(thread), true).tuned(&thread.home().config.tuning.locks);
            let mut rest = by_ucx::Rest::new(&thread.home().config.tuning.wait);
            let mut step = acquire.next(Reply::Begin);
            let word = loop {
                let sleeps = thread.wait_with(Waiting::Lock(lock), |why, since| {
                    thread.home().slots.asleep(thread.slot(), why, since, || {
                        place.drive(thread, &mut acquire, &mut step, (since, &mut rest))
                    })
                });
                if let Some(word) = sleeps? {
                    break word;
                }
            };
            place.account(thread.counters());
            thread.home().slots[thread.slot()].held.push(place.held(word));
            thread.home().life.note_progress();
            thread.take_pins_back()
        })
    }

    /// Lets a lock go; whether the thread held it.
    ///
    /// # Errors
    /// When its home cannot be reached any more.
    pub(crate) fn let_go(&self, thread: &Thread, lock: LockId) -> Result<bool> {
        let held = thread.home().slots[thread.slot()].held.take(lock);
        let home = manager_of(lock.0, thread.home().nodes());
        let Some(held) = held else { return Ok(false) };
        let table = self.table(thread.home(), home)?;
        let place = Place { node: thread.home(), lock, home, table, at: held.at, operations: Cell::new(0) };
        let mut release = Release::new(holder(thread), held.word);
        let mut reply = Reply::Begin;
        let released = loop {
            reply = match release.next(reply) {
                ReleaseStep::CompareAndSwap { expected, new } => place.swap(expected, new)?,
                ReleaseStep::Wake { ticket } => {
                    if let Table::Mapped(table) = place.table {
                        thread.counters().lock_wakes.add(1);
                        table.wake(place.at, ticket);
                    }
                    Reply::Done
                }
                ReleaseStep::Released => break true,
                ReleaseStep::NotHeld => break false,
            };
        };
        place.account(thread.counters());
        Ok(released)
    }
}

impl Place<'_> {
    /// Takes step after step until the lock is held, or the thread has slept once.
    fn drive(
        &self,
        thread: &Thread,
        acquire: &mut Acquire,
        step: &mut Step,
        (since, rest): (Time, &mut by_ucx::Rest),
    ) -> Result<Option<LockWord>> {
        let (node, slot) = (thread.home(), thread.slot());
        let (first, most) = if self.table.is_far() { node.config.far_lock_pauses() } else { node.config.lock_pauses() };
        let (mut until, mut pause) = (None, first);
        loop {
            let reply = match *step {
                Step::CompareAndSwap { expected, new } => self.swap(expected, new)?,
                Step::Look => {
                    let (seen, now) = (self.word()?, node.now());
                    // As long as others need a core, not at all.
                    let spins = || node.slots[slot].spins.span(&node.config);
                    let until = *until.get_or_insert_with(|| now + spins());
                    // What cannot be read shows with the next look.
                    let changes = || self.word().map_or(true, |word| word != seen);
                    let changed = now < until && node.look_at_lock(slot, until, (&mut pause, most), changes);
                    let word = self.word()?;
                    if changed { Reply::Word(word) } else { Reply::Tired(word) }
                }
                Step::Sleep { seen, ticket } => {
                    node.life.goes_on()?;
                    // Nobody waits for this thread to be patient: it may sleep for long.
                    node.flush_wakeups(slot);
                    node.look_whether_unanswered(slot, Waiting::Lock(self.lock), since)?;
                    match &self.table {
                        Table::Mapped(table) => {
                            let most = Duration::from_millis(node.config.tuning.wait.sleep_max_ms);
                            table.sleep(self.at, seen, ticket, most);
                        }
                        Table::Far(_) => rest.sleep(seen, ticket),
                    }
                    node.life.goes_on()?;
                    *step = acquire.next(Reply::Word(self.word()?));
                    return Ok(None);
                }
                Step::Held(word) => return Ok(Some(word)),
                Step::HeldAlready => return Err(holds_already(thread.id(), self.lock)),
                Step::Busy | Step::Lost => return Err(Error::Stopped("the job is over".to_string())),
            };
            *step = acquire.next(reply);
        }
    }
}
