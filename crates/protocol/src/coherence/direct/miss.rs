//! What a thread does that has missed: the paper's Algorithms 1 and 2, as a machine that asks for operations.
//!
//! [`Miss::start`] gives the first batch of operations; [`Miss::next`] takes what the last of them brought and gives
//! the
//! next batch, until the access is made. The machine does nothing itself, so the same one runs over shared memory,
//! over a
//! network and in the simulator.
//!
//! # A load (Algorithm 1)
//!
//! | step | what happens |
//! |---|---|
//! | 1 | lock this node's tag; after waiting for it, load again, for another thread may have fetched the unit |
//! | 2 | lock the directory |
//! | 3 | this node holds the unit, so the MAGIC value is genuine: read it, unlock |
//! | 4 | one other node holds it: revoke its right to store, then copy |
//! | 5 | several hold it: copy from the home, or else from the lowest holder |
//! | 6 | read the value, add this node to the holders, unlock |
//!
//! The value is read while the directory is locked. So a load ends however often others store meanwhile.
//!
//! # A store (Algorithm 2)
//!
//! | step | what happens |
//! |---|---|
//! | 1 | lock this node's tag; if it is exclusive, store and unlock |
//! | 2 | lock the directory |
//! | 3 | this node does not hold the unit: copy it, as a load does |
//! | 4 | fill all other copies with MAGIC, and wait until they are filled |
//! | 5 | store, make the tag exclusive, make this node the only holder, unlock |
//!
//! Tag and directory are one entry at the home. The lock of the tag joins the threads of one node: one of them at a
//! time
//! contends for the directory.
//!
//! # Why there is no deadlock
//!
//! A thread waits for a directory while it holds the tag of its own node, and that tag is not exclusive. A thread that
//! holds a directory waits only for the tag of the unit's only holder. The only holder's tag is exclusive, or locked
//! by a
//! thread that found it exclusive or is making it so; neither waits for the directory any more. So the paper's detour,
//! which unlocks the tag when the directory is busy, is not needed (decision 0065).
//!
//! The paper prints `IF (me == home)` where the single holder's tag is left alone; it has to be `remote_node == home`.
//! As printed, a home that stores leaves the former owner's tag exclusive, and a node that takes the unit from the home
//! waits for the entry that it has locked itself ([`Rule::PrintedAlgorithmTwo`]).

use super::directory::Layout;
use super::entry::Entry;
use super::one_sided::{Batch, Op, Reply};
use crate::coherence::node_set::NodeSet;
use crate::ids::NodeId;
use crate::rules::Rule;
use smallvec::smallvec;
use std::ops::ControlFlow;

/// What the access needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Want {
    /// A valid copy. [`Op::Access`] loads.
    Load,
    /// A valid copy, with no access: the thread loads again.
    Bring,
    /// The unit alone. [`Op::Access`] stores, or does an atomic operation.
    Store,
    /// The unit alone, with no access: the thread checks again and stores then.
    Own,
    /// The same, and biased if the backbone has a barrier: a thread in the middle of a strip can store in no other way.
    OwnBiased,
}

impl Want {
    /// Whether the thread makes an access during the miss.
    pub fn has_access(self) -> bool {
        matches!(self, Want::Load | Want::Store)
    }

    /// Whether a copy is enough that other nodes have too.
    fn is_shared(self) -> bool {
        matches!(self, Want::Load | Want::Bring)
    }
}

/// The unit that was missed, and who misses it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    /// This node.
    pub me: NodeId,
    /// The unit's home, and the job's size.
    pub layout: Layout,
    /// Lines of the unit: 1 for units of 64 bytes.
    pub lines: usize,
    /// Whether the backbone has [`Op::Quiesce`]. If not, every exclusive unit is locked.
    pub has_barrier: bool,
    /// Whether a store to a locked unit that this node holds alone leaves it biased ([`Entry::after_store`]).
    pub biases_again: bool,
}

/// What the thread is to do: these operations, in this order, and then [`Miss::next`] with what the last one brought;
/// or
/// nothing more.
pub type Step = ControlFlow<Outcome, Batch>;

/// How a miss ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The access is made. The unit was here: a load found a genuine MAGIC value, or another thread was faster.
    Here,
    /// The access is made. The unit's bytes came from another node.
    Fetched,
    /// The access is made. The bytes were here; other copies are gone.
    Upgraded,
    /// The job is lost. The thread waited for an entry that this node (modulo 128) has locked.
    Lost(Option<NodeId>),
    /// Another thread had locked an entry, and nothing was changed ([`super::group`]).
    GivenUp,
}

/// A miss under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Miss {
    site: Site,
    want: Want,
    state: State,
    /// Who had locked the entry for which the thread has waited last.
    waited_for: Option<NodeId>,
}

/// What this node's tag was before the thread locked it; `None` at the home, where the directory is the tag.
type Tag = Option<Entry>;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State {
    /// Locks this node's tag.
    Tag { has_waited: bool },
    /// Has locked the tag after waiting, and loads again.
    Peek { tag: Entry },
    /// Has locked the tag, and locks the directory.
    Directory { tag: Tag },
    /// Has locked directory and tag, and reads the wide words.
    Wide { directory: Entry, tag: Tag },
    /// Has locked directory and tag, and locks the tag of the only holder.
    Owner { directory: Entry, tag: Tag, holders: NodeSet, owner: NodeId },
    /// The last batch is under way.
    Ending(Outcome),
}

/// Where a unit's bytes come from, and what has to be done there first.
#[derive(Clone, Copy)]
struct Source {
    node: NodeId,
    /// It holds the unit alone, and stores to it without a lock.
    is_biased: bool,
    /// It holds the unit alone and is not the home: this thread has locked its tag.
    is_tag_locked: bool,
}

impl Miss {
    /// A thread of `site.me` has missed.
    pub fn start(site: Site, want: Want) -> (Miss, Batch) {
        let is_home = site.me == site.layout.home;
        let state = if is_home { State::Directory { tag: None } } else { State::Tag { has_waited: false } };
        let miss = Miss { site, want, state, waited_for: None };
        let first = miss.lock();
        (miss, first)
    }

    /// The unit that was missed, and by whom.
    pub fn site(&self) -> Site {
        self.site
    }

    /// What to do after `reply`, which the last operation of the last batch brought.
    pub fn next(&mut self, reply: Reply) -> Step {
        match (reply, self.state.clone()) {
            (Reply::Lost, _) if Rule::SpinnersHearOfLoss.on() => Step::Break(Outcome::Lost(self.waited_for)),
            (Reply::Lost, _) => self.wait(),
            (Reply::Entry(entry), _) => self.on_entry(entry),
            (Reply::Wide(set), State::Wide { directory, tag }) => {
                self.decide(directory, tag, self.site.layout.holders(directory, Some(&set)))
            }
            (Reply::Peeked { is_magic: true }, State::Peek { tag }) => self.lock_directory(tag),
            (Reply::Peeked { is_magic: false }, State::Peek { tag }) => {
                self.end(Outcome::Here, smallvec![Op::PutEntry { to: self.site.me, entry: tag }])
            }
            (Reply::Done, State::Ending(outcome)) => Step::Break(outcome),
            (reply, state) => unreachable!("{reply:?} in {state:?}"),
        }
    }

    /// Ends the miss instead of waiting for the entry that was found locked: what it unlocks stays as it was.
    pub(super) fn give_up(&self) -> Batch {
        let (me, home) = (self.site.me, self.site.layout.home);
        let (directory, tag) = match self.state {
            State::Directory { tag } => (None, tag),
            State::Owner { directory, tag, .. } => (Some(directory), tag),
            _ => (None, None),
        };
        let mut batch = Batch::new();
        if Rule::GivenUpEntriesAreUnlocked.on() {
            batch.extend(directory.map(|entry| Op::PutEntry { to: home, entry }));
        }
        batch.extend(tag.map(|entry| Op::PutEntry { to: me, entry }));
        batch
    }

    /// An entry, before a fetch-and-set.
    fn on_entry(&mut self, entry: Entry) -> Step {
        self.waited_for = entry.holder();
        if entry.is_busy() && Rule::BusyEntriesAreNotUsed.on() {
            return self.wait();
        }
        match self.state.clone() {
            State::Tag { .. } if entry.is_exclusive() => {
                let mut batch = Batch::new();
                self.push_access(&mut batch);
                batch.push(Op::PutEntry { to: self.site.me, entry: self.after_access(entry) });
                self.end(Outcome::Here, batch)
            }
            State::Tag { has_waited: true } if self.want == Want::Load => {
                self.state = State::Peek { tag: entry };
                Step::Continue(smallvec![Op::Peek])
            }
            State::Tag { .. } => self.lock_directory(entry),
            State::Directory { tag } => self.on_directory(entry, tag),
            State::Owner { directory, tag, holders, owner } => {
                let source = Source { node: owner, is_biased: !entry.is_locked(), is_tag_locked: true };
                self.transfer(directory, tag, &holders, Some(source))
            }
            State::Peek { .. } | State::Wide { .. } | State::Ending(_) => unreachable!("no entry was asked for"),
        }
    }

    fn lock_directory(&mut self, tag: Entry) -> Step {
        self.state = State::Directory { tag: Some(tag) };
        Step::Continue(self.lock())
    }

    /// Directory and tag are locked.
    fn on_directory(&mut self, directory: Entry, tag: Tag) -> Step {
        let layout = self.site.layout;
        if layout.is_wide(directory) {
            self.state = State::Wide { directory, tag };
            return Step::Continue(smallvec![Op::GetWide { at: layout.home }]);
        }
        self.decide(directory, tag, layout.holders(directory, None))
    }

    /// Directory and tag are locked, and who holds the unit is known.
    fn decide(&mut self, directory: Entry, tag: Tag, holders: NodeSet) -> Step {
        let (me, home) = (self.site.me, self.site.layout.home);
        if holders.contains(me) {
            return if self.want.is_shared() || holders.len() == 1 {
                let is_alone_at_home = holders.len() == 1 && me == home;
                let directory = if is_alone_at_home { self.after_access(directory) } else { directory };
                self.already_here(directory, tag)
            } else {
                self.transfer(directory, tag, &holders, None)
            };
        }
        let lowest = holders.first().unwrap_or(home);
        if holders.len() > 1 {
            let node = if holders.contains(home) { home } else { lowest };
            return self.transfer(
                directory,
                tag,
                &holders,
                Some(Source { node, is_biased: false, is_tag_locked: false }),
            );
        }
        let is_left_alone = if Rule::PrintedAlgorithmTwo.on() || self.want.is_shared() { lowest } else { me } == home;
        if is_left_alone {
            let is_biased = lowest == home && !directory.is_locked();
            return self.transfer(
                directory,
                tag,
                &holders,
                Some(Source { node: lowest, is_biased, is_tag_locked: false }),
            );
        }
        self.state = State::Owner { directory, tag, holders, owner: lowest };
        let mut batch = Batch::new();
        if !Rule::RemoteTagBeforeRead.on() {
            batch.push(Op::GetData { from: lowest });
        }
        batch.extend(self.lock());
        Step::Continue(batch)
    }

    /// This node may make the access already: it holds the unit, or holds it alone.
    fn already_here(&mut self, directory: Entry, tag: Tag) -> Step {
        let mut batch = Batch::new();
        self.push_access(&mut batch);
        self.push_tag(&mut batch, tag);
        batch.push(Op::PutEntry { to: self.site.layout.home, entry: directory });
        self.end(Outcome::Here, batch)
    }

    /// Gets the bytes from `source`, if they are not here, makes the access, and says who holds the unit from now on.
    fn transfer(&mut self, directory: Entry, tag: Tag, holders: &NodeSet, source: Option<Source>) -> Step {
        let mut batch = Batch::new();
        let is_home_biased = source.is_some_and(|s| s.is_biased && s.node == self.site.layout.home);
        let directory_after = |miss: &Miss, holders: &NodeSet, batch: &mut Batch| {
            let stays_biased =
                miss.want == Want::OwnBiased && miss.site.me == miss.site.layout.home && miss.site.has_barrier;
            let is_locked = directory.is_locked() || is_home_biased || !miss.site.has_barrier;
            miss.push_directory(batch, holders, is_locked && !stays_biased);
        };
        if self.want.is_shared() {
            let mut after = holders.clone();
            after.insert(self.site.me);
            if !Rule::DataBeforePresence.on() {
                directory_after(self, &after, &mut batch);
            }
            if let Some(source) = source {
                self.push_get(&mut batch, source);
                self.push_downgrade(&mut batch, source);
            }
            self.push_access(&mut batch);
            self.push_tag(&mut batch, tag);
            if Rule::DataBeforePresence.on() {
                directory_after(self, &after, &mut batch);
            }
            return self.end(Outcome::Fetched, batch);
        }
        let outcome = if source.is_some() { Outcome::Fetched } else { Outcome::Upgraded };
        if let Some(source) = source {
            self.push_get(&mut batch, source);
        }
        self.push_magic(&mut batch, holders);
        let after = NodeSet::from_iter([self.site.me]);
        if !Rule::MagicFlushedBeforeRelease.on() {
            directory_after(self, &after, &mut batch);
        }
        if Rule::MagicFlushedBeforeStore.on() {
            batch.push(Op::Flush);
        }
        self.push_access(&mut batch);
        if let Some(source) = source {
            self.push_downgrade(&mut batch, source);
        }
        self.push_exclusive(&mut batch, tag);
        if Rule::MagicFlushedBeforeRelease.on() {
            directory_after(self, &after, &mut batch);
        }
        self.end(outcome, batch)
    }

    /// Ends all other copies.
    fn push_magic(&self, batch: &mut Batch, holders: &NodeSet) {
        let (me, home) = (self.site.me, self.site.layout.home);
        let is_shared = holders.len() > 1;
        let keeps_home = is_shared && !Rule::HomeCountsAsHolder.on();
        let before = batch.len();
        batch.extend(
            holders.iter().filter(|to| *to != me && !(keeps_home && *to == home)).map(|to| Op::PutMagic { to }),
        );
        if is_shared && !Rule::EverySharerGetsMagic.on() && batch.len() > before {
            batch.pop();
        }
    }

    /// Copies the bytes, when nobody can store to them any more.
    fn push_get(&self, batch: &mut Batch, source: Source) {
        let get = Op::GetData { from: source.node };
        let is_read_already = source.is_tag_locked && !Rule::RemoteTagBeforeRead.on();
        if is_read_already || !Rule::QuiesceBeforeRead.on() {
            batch.extend((!is_read_already).then(|| get.clone()));
            self.push_revocation(batch, source);
        } else {
            self.push_revocation(batch, source);
            batch.push(get);
        }
    }

    /// A node whose entry is locked, and was biased, has no store under way after this.
    fn push_revocation(&self, batch: &mut Batch, source: Source) {
        if !source.is_biased {
            return;
        }
        if self.site.lines > 1 && Rule::MirrorsRevoked.on() {
            batch.push(Op::PutMirrors { to: source.node, entry: Entry::not_exclusive(true) });
            batch.push(Op::Flush);
        }
        batch.push(Op::Quiesce { at: source.node });
    }

    /// Unlocks the tag of the former only holder.
    fn push_downgrade(&self, batch: &mut Batch, source: Source) {
        if source.is_tag_locked {
            batch.push(Op::PutEntry { to: source.node, entry: Entry::not_exclusive(true) });
        }
    }

    /// Whether the unit is biased at this node afterwards, whatever it was.
    fn makes_biased(&self) -> bool {
        match self.want {
            Want::Load | Want::Bring | Want::Own => false,
            Want::Store => self.site.biases_again,
            Want::OwnBiased => self.site.has_barrier,
        }
    }

    /// What becomes of the entry of a unit that this node holds alone.
    fn after_access(&self, entry: Entry) -> Entry {
        entry.after_store(self.makes_biased())
    }

    fn push_access(&self, batch: &mut Batch) {
        if self.want.has_access() {
            batch.push(Op::Access);
        }
    }

    /// Unlocks this node's tag, which stays what it was.
    fn push_tag(&self, batch: &mut Batch, tag: Tag) {
        batch.extend(tag.map(|entry| Op::PutEntry { to: self.site.me, entry }));
    }

    /// Unlocks this node's tag, which becomes exclusive.
    fn push_exclusive(&self, batch: &mut Batch, tag: Tag) {
        let stays_biased = self.want == Want::OwnBiased && self.site.has_barrier;
        let is_locked = |entry: Entry| !stays_biased && (entry.is_locked() || !self.site.has_barrier);
        batch.extend(tag.map(|old| Op::PutEntry { to: self.site.me, entry: Entry::exclusive(is_locked(old)) }));
    }

    /// Unlocks the directory.
    fn push_directory(&self, batch: &mut Batch, holders: &NodeSet, is_locked: bool) {
        let home = self.site.layout.home;
        let coded = self.site.layout.code(holders);
        if let Some(holders) = coded.wide {
            batch.push(Op::PutWide { to: home, holders });
        }
        batch.push(Op::PutEntry { to: home, entry: Entry::directory(coded.presence, is_locked) });
    }

    fn end(&mut self, outcome: Outcome, batch: Batch) -> Step {
        self.state = State::Ending(outcome);
        Step::Continue(batch)
    }

    /// Locks the entry that the present state wants.
    fn lock(&self) -> Batch {
        smallvec![Op::FetchAndSet { at: self.locks() }]
    }

    /// Waits for that entry, and tries again.
    fn wait(&mut self) -> Step {
        if let State::Tag { has_waited } = &mut self.state {
            *has_waited = true;
        }
        Step::Continue(smallvec![Op::Pause { at: self.locks() }, Op::FetchAndSet { at: self.locks() }])
    }

    fn locks(&self) -> NodeId {
        match self.state {
            State::Tag { .. } => self.site.me,
            State::Owner { owner, .. } => owner,
            _ => self.site.layout.home,
        }
    }
}
