//! A notice log: what a node knows of the intervals written under one engine, and what it tells of them.
//!
//! [`IntervalState`](super::intervals::IntervalState) has a log for each kind of
//! engine that a job's regions use, scoped (`scope`) or not (`hlrc`), and all that the two share.
//!
//! | event | not scoped | scoped |
//! |---|---|---|
//! | an interval closes | joins the one log | is kept apart ([`scope_intervals`](super::scope_intervals)) |
//! | release of a lock | tell of the log what the acquirer lacks | own entries since the token came join its log |
//! | acquire | apply what is new | the same, of the lock's history |
//! | barrier | tell all own entries of the epoch; apply all; forget everything | the same |

use super::intervals::RequiredDiffs;
use super::scope_intervals::{AppliedIntervals, ScopeIntervals};
use super::wire::Entry;
use super::write_notices::{Knowledge, SeenTimes, VectorTime, WhichLog, WriteNotices};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::sync::{IntervalMark, Scope};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The history of one lock, flag or the like under `scope`.
#[derive(Clone, Debug, Default)]
struct Scoped {
    notices: WriteNotices,
    /// The last own interval that joined the history, or that was closed when the scope's token came.
    mark: u32,
    /// The lock's token came without everything that had happened before.
    partial: bool,
}

/// What a blob is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NoticeScope {
    /// A lock, flag or the like; under `hlrc` everything.
    Of(Scope),
    /// Everything, under `scope`: the lock is wide.
    OfEverything,
}

/// Where a node stands: what its logs have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntervalClock {
    pub(super) me: NodeId,
    pub(super) epoch: u32,
    /// The last interval of this node that has ended in this epoch.
    pub(super) interval: u32,
    /// How many closes are over.
    pub(super) over: IntervalMark,
}

/// The notice log of the engines that are scoped, or of those that are not.
#[derive(Clone, Debug)]
pub(super) struct NoticeLog {
    which: WhichLog,
    scoped: bool,
    /// Under `hlrc` everything; under `scope` this node's own entries, and what came with wide locks.
    notices: WriteNotices,
    /// Under `scope`: this node's own entries, apart.
    own_intervals: ScopeIntervals,
    scopes: BTreeMap<Scope, Scoped>,
    /// Under `scope`: intervals applied in this epoch, through whichever scope they came.
    applied: AppliedIntervals,
}

impl NoticeLog {
    /// The empty log of the engines that are `scoped`, or of those that are not.
    pub(super) fn new(which: WhichLog, scoped: bool) -> NoticeLog {
        let (notices, scopes) = (WriteNotices::default(), BTreeMap::new());
        NoticeLog {
            which,
            scoped,
            notices,
            own_intervals: ScopeIntervals::default(),
            scopes,
            applied: AppliedIntervals::default(),
        }
    }

    /// How many entries are kept.
    pub(super) fn len(&self) -> usize {
        self.notices.len() + self.own_intervals.len() + self.scopes.values().map(|s| s.notices.len()).sum::<usize>()
    }

    /// Whether it is that of the scoped engines.
    pub(super) fn is_scoped(&self) -> bool {
        self.scoped
    }

    /// Whether what is told about this scope has a history of its own.
    fn keeps_apart(&self, scope: Scope) -> bool {
        self.is_scoped() && scope != Scope::All
    }

    /// An own interval has ended in which pages of this log's engine were written, when so many closes were over.
    pub(super) fn close(&mut self, over: IntervalMark, entry: Entry) {
        let entry = Arc::new(entry);
        if self.is_scoped() {
            self.own_intervals.close(over, entry.clone());
        }
        self.notices.insert(entry);
    }

    /// What this node has seen in a scope, which may be wide, for `out`.
    pub(super) fn knowledge(&self, scope: Scope, wide: bool, out: &mut Vec<u8>) {
        let none = VectorTime::new();
        let seen = if self.keeps_apart(scope) {
            self.scopes.get(&scope).map_or(&none, |s| s.notices.seen())
        } else {
            self.notices.seen()
        };
        let everything = (wide && self.is_scoped()).then(|| self.notices.seen());
        if self.which == WhichLog::Main || everything.is_some() || !seen.is_empty() {
            Knowledge::emit(self.which, seen, everything, out);
        }
    }

    /// The intervals that this node has seen.
    pub(super) fn seen(&self) -> &VectorTime {
        self.notices.seen()
    }

    /// The entries that a node which has seen so much lacks.
    pub(super) fn beyond<'a>(&'a self, seen: &'a VectorTime) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.notices.beyond(seen)
    }

    /// Whether this knowledge of the one log that there is, under `hlrc`, is all that this node has seen.
    pub(super) fn is_all_seen(&self, epoch: u32, knowledge: &[u8]) -> bool {
        Knowledge::is(knowledge, epoch, self.notices.seen())
    }

    /// A release of `scope`, which may be wide, at some moment: appends what an acquirer that has seen this lacks.
    pub(super) fn encode_notices(
        &mut self,
        at: IntervalClock,
        (scope, wide, released): (Scope, bool, IntervalMark),
        seen: &SeenTimes,
        out: &mut Vec<u8>,
    ) {
        let (which, epoch) = (self.which, at.epoch);
        if which == WhichLog::Other && !Rule::BothLogsAreTold.on() {
            return;
        }
        if !self.keeps_apart(scope) {
            return encode_notices(which, &self.notices, epoch, &seen.of_scope, false, out);
        }
        let scoped = self.scopes.entry(scope).or_default();
        for entry in self.own_intervals.between(scoped.mark, released) {
            scoped.mark = entry.interval;
            scoped.notices.insert(entry.clone());
        }
        let wide = wide || seen.everything.is_some();
        // A blob of everything is known by the one before it.
        encode_notices(which, &scoped.notices, epoch, &seen.of_scope, wide, out);
        if wide {
            let none = VectorTime::new();
            self.notices.encode_notices(which, epoch, seen.everything.as_ref().unwrap_or(&none), out);
            // A blob more says that it is not all.
            if scoped.partial && Rule::NarrowTokensAreMarked.on() {
                WriteNotices::default().encode_notices(which, epoch, &none, out);
            }
        }
    }

    /// What blob number `index` of this log in a payload is about.
    pub(super) fn scope_of_blob(&self, scope: Scope, index: usize) -> NoticeScope {
        let of_a_lock = matches!(scope, Scope::Lock(_));
        let of_everything = of_a_lock && index > 0 || scope == Scope::All;
        if self.is_scoped() && of_everything { NoticeScope::OfEverything } else { NoticeScope::Of(scope) }
    }

    /// A lock's token has come, with so many blobs of this log: whether it brought everything.
    pub(super) fn came(&mut self, scope: Scope, blobs: usize) {
        if self.is_scoped() && matches!(scope, Scope::Lock(_)) {
            self.scopes.entry(scope).or_default().partial = blobs != 2;
        }
    }

    /// Whether a lock's token, which is here, came without everything.
    pub(super) fn has_partial_notices(&self, scope: Scope) -> bool {
        self.scopes.get(&scope).is_some_and(|scoped| scoped.partial)
    }

    /// This node has asked all others what they have written since the lock's token came.
    pub(super) fn has_caught_up(&mut self, scope: Scope) {
        if let Some(scoped) = self.scopes.get_mut(&scope) {
            scoped.partial = false;
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
        !self.is_scoped() && self.notices.covers(writer, interval)
    }

    /// A release has told of an entry: takes it in; whether its pages must be invalidated here. Then its needs are
    /// added to `needs`.
    pub(super) fn apply_notices(
        &mut self,
        me: NodeId,
        told: NoticeScope,
        entry: &Arc<Entry>,
        needs: &mut RequiredDiffs,
    ) -> bool {
        let new = if self.is_scoped() {
            match told {
                NoticeScope::Of(scope) => drop(self.scopes.entry(scope).or_default().notices.insert(entry.clone())),
                NoticeScope::OfEverything => drop(self.notices.insert(entry.clone())),
            }
            self.is_first_time(entry)
        } else {
            self.notices.insert(entry.clone())
        };
        applies(new, me, entry, needs)
    }

    /// As [`NoticeLog::apply_notices`], where all nodes have told all: nothing need be kept, since what was seen of an
    /// epoch counts in no other one.
    pub(super) fn apply_notices_at_barrier(&mut self, me: NodeId, entry: &Entry, needs: &mut RequiredDiffs) -> bool {
        let new = match self.is_scoped() {
            true => self.is_first_time(entry),
            false => !self.notices.covers(entry.writer, entry.interval),
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
    pub(super) fn arrive(&self, at: IntervalClock, out: &mut Vec<u8>) {
        self.notices.encode_entries(at.me, self.which, at.epoch, out);
    }

    /// A new epoch begins: everybody knows everything.
    pub(super) fn forget(&mut self) {
        *self = NoticeLog::new(self.which, self.scoped);
    }
}

/// Whether an entry that is new ends copies of this node `me`. Then its needs are added.
fn applies(new: bool, me: NodeId, entry: &Entry, needs: &mut RequiredDiffs) -> bool {
    let applies = new && entry.writer != me;
    if applies {
        needs.add(entry);
    }
    applies
}

/// Appends a blob; of the other log only if it says something new, or `always`.
fn encode_notices(
    which: WhichLog,
    notices: &WriteNotices,
    epoch: u32,
    known: &VectorTime,
    always: bool,
    out: &mut Vec<u8>,
) {
    if which == WhichLog::Main || always || notices.has_news(known) {
        notices.encode_notices(which, epoch, known, out);
    }
}
