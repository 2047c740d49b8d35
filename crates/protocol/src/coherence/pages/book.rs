//! A book: what a node knows of the intervals written under one engine, and what it tells of them.
//!
//! The [`ledger`](super::ledger) has a book for each engine that a job's regions use, `hlrc` or `scope`, and all that the two share.
//!
//! | event | `hlrc` | `scope` |
//! |---|---|---|
//! | an interval closes | its entry joins the one history | its entry is kept apart ([`own`](super::own)) for the scopes that are released until then |
//! | release of a lock | tell of the history what the acquirer lacks | own entries from the token's coming to the release join the lock's history; tell of that what the acquirer lacks |
//! | acquire | apply what is new | the same, of the lock's history |
//! | barrier | tell all own entries of the epoch; apply all; forget everything | the same |

use super::PageEngine;
use super::history::{History, Knowledge, Seen, Vector, Which};
use super::ledger::Needs;
use super::own::{Applied, Own};
use super::wire::Entry;
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::sync::{Mark, Scope};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The history of one lock, flag or the like under `scope`.
#[derive(Clone, Debug, Default)]
struct Scoped {
    history: History,
    /// The last own interval that joined the history, or that was closed when the scope's token came.
    mark: u32,
    /// The lock's token came without everything that had happened before.
    narrow: bool,
}

/// What a blob is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A lock, flag or the like; under `hlrc` everything.
    Of(Scope),
    /// Everything, under `scope`: the lock is wide.
    OfEverything,
}

/// Where a node stands: what its books have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) me: NodeId,
    pub(super) epoch: u32,
    /// The last interval of this node that has ended in this epoch.
    pub(super) interval: u32,
    /// How many closes are over.
    pub(super) over: Mark,
}

/// The book of one engine.
#[derive(Clone, Debug)]
pub(super) struct Book {
    which: Which,
    engine: PageEngine,
    /// Under `hlrc` everything; under `scope` this node's own entries, and what came with wide locks.
    history: History,
    /// Under `scope`: this node's own entries, apart.
    own: Own,
    scopes: BTreeMap<Scope, Scoped>,
    /// Under `scope`: intervals applied in this epoch, through whichever scope they came.
    applied: Applied,
}

impl Book {
    /// The empty book of `engine` (`hlrc` or `scope`).
    pub(super) fn new(which: Which, engine: PageEngine) -> Book {
        let (history, scopes) = (History::default(), BTreeMap::new());
        Book { which, engine, history, own: Own::default(), scopes, applied: Applied::default() }
    }

    /// How many entries are kept.
    pub(super) fn len(&self) -> usize {
        self.history.len() + self.own.len() + self.scopes.values().map(|s| s.history.len()).sum::<usize>()
    }

    /// Whether it is that of `scope`.
    pub(super) fn is_scoped(&self) -> bool {
        self.engine == PageEngine::Scope
    }

    /// Whether what is told about this scope has a history of its own.
    fn keeps_apart(&self, scope: Scope) -> bool {
        self.is_scoped() && scope != Scope::All
    }

    /// An own interval has ended in which pages of this book's engine were written, when so many closes were over.
    pub(super) fn close(&mut self, over: Mark, entry: Entry) {
        let entry = Arc::new(entry);
        if self.is_scoped() {
            self.own.close(over, entry.clone());
        }
        self.history.insert(entry);
    }

    /// What this node has seen in a scope, which may be wide, for `out`.
    pub(super) fn knowledge(&self, scope: Scope, wide: bool, out: &mut Vec<u8>) {
        let none = Vector::new();
        let seen = if self.keeps_apart(scope) {
            self.scopes.get(&scope).map_or(&none, |s| s.history.seen())
        } else {
            self.history.seen()
        };
        let everything = (wide && self.is_scoped()).then(|| self.history.seen());
        if self.which == Which::Main || everything.is_some() || !seen.is_empty() {
            Knowledge::emit(self.which, seen, everything, out);
        }
    }

    /// The intervals that this node has seen.
    pub(super) fn seen(&self) -> &Vector {
        self.history.seen()
    }

    /// The entries that a node which has seen so much lacks.
    pub(super) fn beyond<'a>(&'a self, seen: &'a Vector) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.history.beyond(seen)
    }

    /// Whether this knowledge of the one book that there is, under `hlrc`, is all that this node has seen.
    pub(super) fn is_all_seen(&self, epoch: u32, knowledge: &[u8]) -> bool {
        Knowledge::is(knowledge, epoch, self.history.seen())
    }

    /// A release of `scope`, which may be wide, at some moment: appends what an acquirer that has seen this lacks.
    pub(super) fn tell(
        &mut self,
        at: Standing,
        (scope, wide, released): (Scope, bool, Mark),
        seen: &Seen,
        out: &mut Vec<u8>,
    ) {
        let (which, epoch) = (self.which, at.epoch);
        if which == Which::Other && !Rule::BothBooksAreTold.on() {
            return;
        }
        if !self.keeps_apart(scope) {
            return tell(which, &self.history, epoch, &seen.of_scope, false, out);
        }
        let scoped = self.scopes.entry(scope).or_default();
        for entry in self.own.between(scoped.mark, released) {
            scoped.mark = entry.interval;
            scoped.history.insert(entry.clone());
        }
        let wide = wide || seen.everything.is_some();
        // A blob of everything is known by the one before it.
        tell(which, &scoped.history, epoch, &seen.of_scope, wide, out);
        if wide {
            let none = Vector::new();
            self.history.tell(which, epoch, seen.everything.as_ref().unwrap_or(&none), out);
            // A blob more says that it is not all.
            if scoped.narrow && Rule::NarrowTokensAreMarked.on() {
                History::default().tell(which, epoch, &none, out);
            }
        }
    }

    /// What blob number `index` of this book in a payload is about.
    pub(super) fn told(&self, scope: Scope, index: usize) -> Told {
        let of_a_lock = matches!(scope, Scope::Lock(_));
        let of_everything = of_a_lock && index > 0 || scope == Scope::All;
        if self.is_scoped() && of_everything { Told::OfEverything } else { Told::Of(scope) }
    }

    /// A lock's token has come, with so many blobs of this book: whether it brought everything.
    pub(super) fn came(&mut self, scope: Scope, blobs: usize) {
        if self.is_scoped() && matches!(scope, Scope::Lock(_)) {
            self.scopes.entry(scope).or_default().narrow = blobs != 2;
        }
    }

    /// Whether a lock's token, which is here, came without everything.
    pub(super) fn is_narrow(&self, scope: Scope) -> bool {
        self.scopes.get(&scope).is_some_and(|scoped| scoped.narrow)
    }

    /// This node has asked all others what they have written since the lock's token came.
    pub(super) fn has_caught_up(&mut self, scope: Scope) {
        if let Some(scoped) = self.scopes.get_mut(&scope) {
            scoped.narrow = false;
        }
    }

    /// A lock's token has come: what is written from now on is written under it.
    pub(super) fn mark(&mut self, scope: Scope, interval: u32) {
        if self.is_scoped() && matches!(scope, Scope::Lock(_)) {
            self.scopes.entry(scope).or_default().mark = interval;
        }
    }

    /// Whether an entry brings nothing new, whatever it is told about.
    pub(super) fn knows(&self, writer: NodeId, interval: u32) -> bool {
        !self.is_scoped() && self.history.covers(writer, interval)
    }

    /// A release has told of an entry: takes it in; whether its pages must be invalidated here. Then its needs are added to `needs`.
    pub(super) fn learn(&mut self, me: NodeId, told: Told, entry: &Arc<Entry>, needs: &mut Needs) -> bool {
        let new = if self.is_scoped() {
            match told {
                Told::Of(scope) => drop(self.scopes.entry(scope).or_default().history.insert(entry.clone())),
                Told::OfEverything => drop(self.history.insert(entry.clone())),
            }
            self.is_first_time(entry)
        } else {
            self.history.insert(entry.clone())
        };
        applies(new, me, entry, needs)
    }

    /// As [`Book::learn`], where all nodes have told all: nothing need be kept, since what was seen of an epoch counts in no other one.
    pub(super) fn learn_at_barrier(&mut self, me: NodeId, entry: &Entry, needs: &mut Needs) -> bool {
        let new = match self.is_scoped() {
            true => self.is_first_time(entry),
            false => !self.history.covers(entry.writer, entry.interval),
        };
        applies(new, me, entry, needs)
    }

    /// Under `scope`: whether an entry names what was not applied here before; from now on it was.
    fn is_first_time(&mut self, entry: &Entry) -> bool {
        let (from, last) = (entry.from, entry.interval);
        // Of some intervals in between nobody knows which these are.
        if from == 0 {
            self.applied.add(entry.writer, last, last);
            return true;
        }
        self.applied.add(entry.writer, from, last)
    }

    /// At a barrier: appends the own entries of this epoch.
    pub(super) fn arrive(&self, at: Standing, out: &mut Vec<u8>) {
        self.history.tell_of(at.me, self.which, at.epoch, out);
    }

    /// A new epoch begins: everybody knows everything.
    pub(super) fn forget(&mut self) {
        *self = Book::new(self.which, self.engine);
    }
}

/// Whether an entry that is new ends copies of this node `me`. Then its needs are added.
fn applies(new: bool, me: NodeId, entry: &Entry, needs: &mut Needs) -> bool {
    let applies = new && entry.writer != me;
    if applies {
        needs.add(entry);
    }
    applies
}

/// Appends a blob; of the other book only if it says something new, or `always`.
fn tell(which: Which, history: &History, epoch: u32, known: &Vector, always: bool, out: &mut Vec<u8>) {
    if which == Which::Main || always || history.has_news(known) {
        history.tell(which, epoch, known, out);
    }
}
