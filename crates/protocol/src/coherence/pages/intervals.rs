//! A node's intervals and what it knows of those of others: the bookkeeping behind releases and acquires.
//!
//! What an acquire brings depends on the engine of the pages: there is a [`notice_log`](super::notice_log) for engines
//! that are scoped and one for those that are not. What engines have in common stands here: the epoch, the numbers of
//! intervals, and those of the diffs sent to each home, which applies them in order whosever pages they are.
//!
//! The *main* log is that of the job's engine; the *other* comes into being when the node hears of a region that needs
//! it. While there is none, nothing more is told than if there could be none.
//!
//! Under `scope` a lock can be *wide* for the rest of the epoch: its releases tell, in a second blob, all that the node
//! has written and has learnt by such blobs, as `hlrc` would. A lock becomes wide by a release-consistent release or a
//! lazy acquire, the two primitives that Brazos adds to scope consistency (Speight and Bennett, USENIX Windows NT 1997,
//! section 3.3), and on a node that acquires it when it was wide before. On a node that has acquired it lazily it stays
//! wide in later epochs. A token that has come without everything is *narrow* here, until a lazy acquire has asked for
//! the rest ([`catch_up`](crate::sync::lock::Locks::catch_up)), which is told as of [`Scope::All`]: where it goes on
//! with everything that this node has to tell, it says that this is not all.

use super::kept_diffs::{INTERVAL_STAMP_MAX, Stamp};
use super::notice_log::{IntervalClock, NoticeLog, NoticeScope};
use super::page_table::multicast::MemberChanges;
use super::piggyback;
use super::wire::{Entry, Group, Groups, IN_ROWS_MAX, RequiredDiff};
use super::write_notices::{self, Entries, Knowledge, VectorTime, WhichLog, WriteNotices};
use super::{PageEngine, PageNo};
use crate::ids::{LockId, NodeId};
use crate::rules::Rule;
use crate::sync::{IntervalMark, Scope, lock_batch};
use crate::wire::bytes::{Put, WireError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What an entry of an interval takes at least.
const ENTRY_BYTES: usize = 9;

/// In place of a serial, in an entry of no interval: copysets that the writer joins and leaves.
pub const MEMBERS: u64 = 0;
/// And pages that it wants told early.
pub const EARLY: u64 = 1;

/// What one node knows of intervals.
#[derive(Clone, Debug)]
pub struct IntervalState {
    at: IntervalClock,
    main: NoticeLog,
    other: Option<Box<NoticeLog>>,
    /// Under `scope`: the wide locks.
    wide: BTreeSet<Scope>,
    /// Locks that threads of this node acquire lazily. Their tokens are wanted, and come, before a thread asks, so they
    /// are wide in every epoch.
    lazy: BTreeSet<Scope>,
    serials: BTreeMap<NodeId, u64>,
    /// This node has said at a barrier what it wrote, and the barrier is not open yet.
    arrived: bool,
    /// At the last barrier a node has said that homes are to stay.
    homes_stay: bool,
    /// Page tables of an engine in use have a step at acquires.
    has_acquire_step: bool,
    stamps: Stamps,
    /// There are pages whose diffs travel with locks' tokens.
    carries_diffs: bool,
    /// The last interval with a stamp that has closed.
    closed_stamp: Stamp,
    /// Entries of no interval that name units whose copysets nodes have joined or left, as the last barrier told.
    members: Vec<Entry>,
}

/// The stamps of intervals whose diffs stay with their writers.
#[derive(Clone, Copy, Default, Debug)]
struct Stamps {
    /// The last one that this node has given or heard of.
    last: Stamp,
    /// The last one that was told at a barrier: of these all nodes have heard.
    at_barrier: Stamp,
    /// A collection was announced at the last barrier, up to this stamp.
    collecting: Option<Stamp>,
    /// One was announced at the barrier that has just opened.
    announced: bool,
}

impl IntervalState {
    /// The state of node `me` in a job under `engine`; unless that is scoped, the main log is that of `hlrc`.
    pub fn new(me: NodeId, engine: PageEngine) -> IntervalState {
        IntervalState {
            at: IntervalClock { me, epoch: 0, interval: 0, over: IntervalMark::FIRST },
            main: NoticeLog::new(WhichLog::Main, engine.is_scoped()),
            other: None,
            wide: BTreeSet::new(),
            lazy: BTreeSet::new(),
            serials: BTreeMap::new(),
            arrived: false,
            homes_stay: false,
            has_acquire_step: engine.at_acquire().is_some(),
            stamps: Stamps::default(),
            carries_diffs: engine.tells_sets(),
            closed_stamp: 0,
            members: Vec::new(),
        }
    }

    /// Whether there are pages whose diffs travel with locks' tokens.
    pub fn carries_diffs(&self) -> bool {
        self.carries_diffs
    }

    /// The stamp of the last interval that has closed with writes whose diffs stay here.
    pub fn closed_stamp(&self) -> Stamp {
        self.closed_stamp
    }

    /// The stamp of an interval that closes, later than all that this node has given or heard of.
    pub fn take_stamp(&mut self) -> Stamp {
        self.stamps.last += 1;
        self.stamps.last
    }

    /// An interval with this stamp has closed.
    pub fn has_closed_stamp(&mut self, stamp: Stamp) {
        self.closed_stamp = stamp;
    }

    /// The stamp of a diff of the open interval. Where a copy ends before its interval does, others may get the diff
    /// and then a later one of the same bytes: so each has its own.
    pub fn stamp_diff(&mut self) -> Stamp {
        match Rule::EveryDiffHasItsStamp.on() {
            true => self.take_stamp(),
            false => self.stamps.last + 1,
        }
    }

    /// The last stamp that this node has given or heard of. Whoever frees another node's memory says it.
    pub fn last_stamp(&self) -> Stamp {
        self.stamps.last
    }

    /// A node that has heard of all up to this stamp has freed memory that this node gives out again.
    pub fn hear_of_free(&mut self, stamp: Stamp) {
        if Rule::FreesBringTheirStamp.on() {
            self.stamps.last = self.stamps.last.max(stamp);
        }
    }

    /// A release has told up to which stamp its node had heard.
    pub fn hear_clock(&mut self, stamp: Stamp) {
        if Rule::ClocksFollowReleases.on() {
            self.stamps.last = self.stamps.last.max(stamp);
        }
    }

    /// Takes note of the stamp with which an entry was told; gives it.
    fn hear_stamp(&mut self, entry: &Entry) -> Result<Stamp, WireError> {
        let stamps = entry.groups.iter().filter(|group| group.home == entry.writer).map(|group| group.serial);
        let stamp = stamps.max().unwrap_or_default();
        if stamp > INTERVAL_STAMP_MAX {
            return Err(WireError::BadValue("stamp"));
        }
        if Rule::StampsFollowWhatIsTold.on() {
            self.stamps.last = self.stamps.last.max(stamp);
        }
        Ok(stamp)
    }

    /// Behind what this node says at a barrier: the diffs that stay with their writers are to be collected. It is an
    /// entry of no interval.
    pub fn announce_collection(&self, out: &mut Vec<u8>) {
        let announcement = Entry { writer: self.at.me, from: 0, interval: 0, groups: Groups::new() };
        write_notices::encode_entry(&announcement, WhichLog::Main, self.at.epoch, out);
    }

    /// Behind what this node says at a barrier: it joins the copysets of some pages, leaves those of others, and wants
    /// some told early; and how it used some. It is an entry of no interval. The pages of copysets that it joins count
    /// as held.
    pub fn announce_members(&self, changes: &MemberChanges, out: &mut Vec<u8>) {
        let MemberChanges { joins, leaves, early, uses } = changes;
        let runs = |runs: &[Range<PageNo>], held| runs.iter().map(|run| (run.clone(), held)).collect::<Vec<_>>();
        let members = [runs(joins, true), runs(leaves, false)].concat();
        let uses = uses.iter().map(|(number, of_these)| (*number, runs(of_these, true)));
        let groups = [(MEMBERS, members), (EARLY, runs(early, true))].into_iter().chain(uses);
        let groups = groups.filter(|(_, runs)| !runs.is_empty());
        let group = |(serial, runs): (u64, Vec<_>)| Group { home: self.at.me, serial, runs: runs.into() };
        let groups: Groups = groups.map(group).collect();
        if !groups.is_empty() {
            let entry = Entry { writer: self.at.me, from: 0, interval: 0, groups };
            write_notices::encode_entry(&entry, WhichLog::Main, self.at.epoch, out);
        }
    }

    /// What nodes have said of copysets at the barrier that has opened, as entries.
    pub fn take_members(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.members)
    }

    /// The last stamp that was told at a barrier: of what was written up to there all nodes have heard, or will as they
    /// leave that barrier.
    pub fn barrier_stamp(&self) -> Stamp {
        self.stamps.at_barrier
    }

    /// Whether a collection ends as the barrier opens whose notices have been taken in.
    pub fn collection_ends(&self) -> bool {
        self.stamps.collecting.is_some()
    }

    /// A barrier has opened: up to which stamp a collection ends now, and up to which one begins.
    pub fn collections(&mut self) -> (Option<Stamp>, Option<Stamp>) {
        // Threads that go on beside a barrier may be asking: then none begins.
        let announced = std::mem::take(&mut self.stamps.announced) && !self.homes_stay;
        let begins = announced.then_some(self.stamps.at_barrier);
        (std::mem::replace(&mut self.stamps.collecting, begins), begins)
    }

    /// The epoch that this node has come to.
    pub fn epoch(&self) -> u32 {
        self.at.epoch
    }

    /// The number of entries kept, for tests of what collection leaves.
    pub fn entries(&self) -> usize {
        self.main.len() + self.other.as_ref().map_or(0, |log| log.len())
    }

    /// The number of the next message of diffs to `home`.
    pub fn next_serial(&mut self, home: NodeId) -> u64 {
        let serial = self.serials.entry(home).or_default();
        *serial += 1;
        *serial
    }

    /// So many messages of diffs have been sent to `home`, for tests.
    #[cfg(test)]
    pub(super) fn has_sent(&mut self, home: NodeId, serial: u64) {
        self.serials.insert(home, serial);
    }

    /// The last message of diffs that was sent to `home`.
    pub fn last_serial(&self, home: NodeId) -> u64 {
        self.serials.get(&home).copied().unwrap_or_default()
    }

    /// The log of an engine with several writers.
    pub fn which(&self, engine: PageEngine) -> WhichLog {
        self.log_of_each()(engine)
    }

    /// The log of each engine with several writers, for steps that have the intervals otherwise in use.
    pub fn log_of_each(&self) -> impl Fn(PageEngine) -> WhichLog + use<> {
        let scoped = self.main.is_scoped();
        move |engine| if engine.is_scoped() == scoped { WhichLog::Main } else { WhichLog::Other }
    }

    /// There is a region under `engine`, so this node needs its log.
    pub fn on_region(&mut self, engine: PageEngine) {
        if engine.has_several_writers() {
            let which = self.which(engine);
            self.log(which);
            self.has_acquire_step |= engine.at_acquire().is_some();
            self.carries_diffs |= engine.tells_sets();
        }
    }

    /// Whether page tables of an engine in use have a step at acquires ([`PageEngine::at_acquire`]).
    pub fn has_acquire_step(&self) -> bool {
        self.has_acquire_step
    }

    fn log(&mut self, which: WhichLog) -> &mut NoticeLog {
        match which {
            WhichLog::Main => &mut self.main,
            WhichLog::Other => {
                let scoped = !self.main.is_scoped();
                self.other.get_or_insert_with(|| Box::new(NoticeLog::new(which, scoped)))
            }
        }
    }

    fn logs(&mut self) -> impl Iterator<Item = &mut NoticeLog> {
        std::iter::once(&mut self.main).chain(self.other.as_deref_mut())
    }

    /// Whether this node has said at a barrier what it wrote, and the barrier is not open yet.
    pub fn has_arrived(&self) -> bool {
        self.arrived
    }

    /// Whether an interval may close now. Between a node's arrival at a barrier and the barrier's opening none may:
    /// what it closed would be told to nobody (the arrival has left, and who is past the barrier takes no notices of
    /// the old epoch), but a home would believe that its copies elsewhere had been ended.
    pub fn may_close(&self) -> bool {
        !self.arrived || !Rule::NothingClosesAfterArrival.on()
    }

    /// Whether releases of all locks tell the same: all that the acquirer has not seen, as under `hlrc`.
    pub fn is_alike(&self) -> bool {
        !self.main.is_scoped() && self.other.is_none()
    }

    /// The intervals that this node has seen of the main log.
    pub fn seen(&self) -> &VectorTime {
        self.main.seen()
    }

    /// What this node knows of the main log, and a node that has seen so much does not.
    pub fn beyond<'a>(&'a self, seen: &'a VectorTime) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.main.beyond(seen)
    }

    /// Whether these tokens, which no thread had asked for, come from beyond the barrier at which this node is: what
    /// they tell is of an epoch that has not begun here, so they wait until it has. (Tokens from before it do not wait:
    /// somebody else may need them to come to the barrier.)
    pub fn are_ahead(&self, tokens: &[u8]) -> bool {
        let is_ahead = |said: &[u8]| write_notices::epoch(said) == Some(self.at.epoch.wrapping_add(1));
        Rule::TokensWaitForTheBarrier.on()
            && self.arrived
            && lock_batch::entries(tokens).flatten().any(|(_, said)| is_ahead(said))
    }

    /// As [`IntervalState::are_ahead`], for any payload of a release.
    pub fn is_ahead(&self, payload: &[u8]) -> bool {
        let next = self.at.epoch.wrapping_add(1);
        let (told, _) = piggyback::split_payload(payload);
        self.arrived && write_notices::blobs(told).flatten().any(|(_, blob)| write_notices::epoch_of(blob) == Ok(next))
    }

    /// Ends the interval in which the pages of `groups` were written, those of the main log and those of the other. An
    /// interval without writes does not end.
    pub fn close(&mut self, mut groups: [Groups; 2]) {
        if groups.iter().all(|groups| groups.is_empty()) {
            return;
        }
        if !Rule::NoticesKeepTheirLog.on() {
            groups.swap(0, 1);
        }
        self.at.interval += 1;
        let (writer, interval) = (self.at.me, self.at.interval);
        for (which, groups) in [WhichLog::Main, WhichLog::Other].into_iter().zip(groups) {
            if !groups.is_empty() {
                let over = self.at.over;
                self.log(which).close(over, Entry { writer, from: interval, interval, groups });
            }
        }
    }

    /// So many closes are over: what was written before a release at an earlier moment is in the intervals that have
    /// ended.
    pub fn closes_are_over(&mut self, closes: IntervalMark) {
        self.at.over = closes;
    }

    /// How many intervals with writes in them have ended in this epoch.
    pub fn ended(&self) -> u32 {
        self.at.interval
    }

    /// This node has come to this epoch, for tests.
    #[cfg(test)]
    pub(super) fn has_come_to(&mut self, epoch: u32) {
        self.at.epoch = epoch;
    }

    /// Whether this epoch has as many intervals as can be numbered: then none may end before the next.
    pub fn is_used_up(&self) -> bool {
        self.at.interval == u32::MAX || self.stamps.last >= INTERVAL_STAMP_MAX
    }

    /// So many intervals have ended in this epoch, for tests.
    #[cfg(test)]
    pub(super) fn has_closed(&mut self, intervals: u32) {
        self.at.interval = intervals;
    }

    /// Whether it can be told to anybody in so many bytes, whatever the lock, what there is to tell; an interval more
    /// is.
    pub fn fits(&self, bytes: usize) -> bool {
        self.other.is_none() && !self.main.is_scoped() && (self.main.len() + 1) * ENTRY_BYTES <= bytes
    }

    /// Makes a lock wide before a release-consistent release, so that it tells of everything. Under `hlrc` every lock
    /// is.
    pub fn require_full_notices(&mut self, lock: LockId) {
        self.wide.insert(Scope::Lock(lock));
    }

    /// The same before a lazy acquire, so that it asks for everything; and so do this node's later ones.
    pub fn require_full_notices_always(&mut self, lock: LockId) {
        self.require_full_notices(lock);
        self.lazy.insert(Scope::Lock(lock));
    }

    /// Whether the token of a lock, which a thread of this node has acquired lazily, came without everything: then the
    /// other nodes must be asked for it.
    pub fn has_partial_notices(&self, lock: LockId) -> bool {
        let mut books = std::iter::once(&self.main).chain(self.other.as_deref());
        Rule::LazyAcquiresCatchUp.on() && books.any(|log| log.has_partial_notices(Scope::Lock(lock)))
    }

    /// They have been asked.
    pub fn has_caught_up(&mut self, lock: LockId) {
        self.logs().for_each(|log| log.has_caught_up(Scope::Lock(lock)));
    }

    /// What this node has seen in a scope; goes with its requests.
    pub fn knowledge(&self, scope: Scope, out: &mut Vec<u8>) {
        out.put_u32(self.at.epoch);
        let wide = self.wide.contains(&scope);
        self.main.knowledge(scope, wide, out);
        if let Some(other) = &self.other {
            other.knowledge(scope, wide, out);
        }
    }

    /// A release of `scope` at some moment, after the interval was closed: appends what an acquirer with this knowledge
    /// lacks; nothing where all locks tell the same and it lacks nothing. What was written after the release is left
    /// out where that makes a difference, under `scope`.
    pub fn encode_notices(&mut self, (scope, released): (Scope, IntervalMark), knowledge: &[u8], out: &mut Vec<u8>) {
        // Who acquires takes in nothing where nothing is told, and then takes no step either.
        if self.is_alike() && !self.has_acquire_step && self.main.is_all_seen(self.at.epoch, knowledge) {
            return;
        }
        let mut knowledge = Knowledge::parse(knowledge);
        knowledge.come_to(self.at.epoch);
        let (at, release) = (self.at, (scope, self.wide.contains(&scope), released));
        self.main.encode_notices(at, release, knowledge.of(WhichLog::Main), out);
        if let Some(other) = &mut self.other {
            other.encode_notices(at, release, knowledge.of(WhichLog::Other), out);
        }
    }

    /// An acquire: takes in what a release said and gives the entries whose pages must be invalidated. Their needs have
    /// been added to `needs`.
    ///
    /// # Errors
    /// When no node would have said it.
    pub fn apply_notices(
        &mut self,
        scope: Scope,
        payload: &[u8],
        needs: &mut RequiredDiffs,
    ) -> Result<Vec<Arc<Entry>>, WireError> {
        let mut fresh = Vec::new();
        let (mut before, mut in_rows, mut is_news) = ([0_usize; 2], IN_ROWS_MAX, false);
        for blob in write_notices::blobs(payload) {
            let (which, blob) = blob?;
            let (epoch, mut entries) = Entries::of(blob)?;
            let index = before[which as usize];
            before[which as usize] += 1;
            if epoch != self.at.epoch {
                continue;
            }
            is_news = true;
            let (me, heard) = (self.at.me, fresh.len());
            let log = self.log(which);
            let told = log.scope_of_blob(scope, index);
            while let Some(entry) = entries.next(&mut in_rows, |writer, interval| log.knows(writer, interval))? {
                let entry = Arc::new(entry);
                if log.apply_notices(me, told, &entry, needs) {
                    fresh.push(entry);
                }
            }
            fresh[heard..].iter().try_for_each(|entry| self.hear_stamp(entry).map(drop))?;
            if told == NoticeScope::OfEverything && scope != Scope::All {
                self.wide.insert(scope);
            }
        }
        let interval = self.at.interval;
        for (log, blobs) in self.logs().zip(before) {
            log.mark(scope, interval);
            if is_news {
                log.came(scope, blobs);
            }
        }
        Ok(fresh)
    }

    /// What this node says at a barrier, after the interval was closed: the notices of its own intervals of this epoch.
    pub fn arrive(&mut self, out: &mut Vec<u8>) {
        self.arrived = true;
        let at = self.at;
        self.logs().for_each(|log| log.arrive(at, out));
    }

    /// Behind that: threads of this node go on until the barrier opens. So no home may move then, since what they write
    /// meanwhile to pages that move away from here would be lost. It is a blob without entries, as no other arrival
    /// has.
    pub fn keep_homes(&self, out: &mut Vec<u8>) {
        WriteNotices::default().encode_notices(WhichLog::Main, self.at.epoch, &VectorTime::new(), out);
    }

    /// Whether homes stay at the barrier that opened last, because a node has said so.
    pub fn homes_stay(&self) -> bool {
        self.homes_stay
    }

    /// The barrier is open, and `notices` is what all nodes said. Gives all their entries, and of each whether its
    /// pages must be invalidated here; a new epoch has begun.
    ///
    /// # Errors
    /// When no node would have said it.
    pub fn open(&mut self, notices: &[u8], needs: &mut RequiredDiffs) -> Result<Vec<(Entry, bool)>, WireError> {
        let mut all = Vec::new();
        let me = self.at.me;
        self.homes_stay = false;
        let mut in_rows = IN_ROWS_MAX;
        for blob in write_notices::blobs(notices) {
            let (which, blob) = blob?;
            let (epoch, mut entries) = Entries::of(blob)?;
            if epoch != self.at.epoch {
                continue;
            }
            let (before, mut announced, mut members) = (all.len(), false, Vec::new());
            let log = self.log(which);
            while let Some(entry) = entries.next(&mut in_rows, |_, _| false)? {
                if entry.interval == 0 && entry.groups.is_empty() {
                    announced = true;
                    continue;
                }
                if entry.interval == 0 {
                    members.push(entry);
                    continue;
                }
                let fresh = log.apply_notices_at_barrier(me, &entry, needs);
                all.push((entry, fresh));
            }
            self.homes_stay |= all.len() == before && !announced && members.is_empty();
            self.members.append(&mut members);
            self.stamps.announced |= announced;
            for (entry, _) in &all[before..] {
                let stamp = self.hear_stamp(entry)?;
                self.stamps.at_barrier = self.stamps.at_barrier.max(stamp);
            }
        }
        self.at.epoch = self.at.epoch.wrapping_add(1);
        // What was seen of another epoch counts nowhere, so each numbers its intervals from 1.
        self.at.interval = 0;
        self.arrived = false;
        self.wide.clone_from(&self.lazy);
        self.logs().for_each(NoticeLog::forget);
        Ok(all)
    }
}

/// Which diffs each home must have applied before it answers this node's fetches.
#[derive(Clone, Debug, Default)]
pub struct RequiredDiffs {
    by_home: BTreeMap<NodeId, BTreeMap<NodeId, u64>>,
    /// The homes of pages that came with tokens, as long as these homes may lack what the pages had in them.
    unconfirmed_homes: BTreeSet<NodeId>,
}

impl RequiredDiffs {
    /// Notices say that `home` will have the writer's bytes with this message of diffs.
    pub fn raise(&mut self, home: NodeId, writer: NodeId, serial: u64) {
        if serial > 0 {
            let need = self.by_home.entry(home).or_default().entry(writer).or_default();
            *need = (*need).max(serial);
        }
    }

    pub(super) fn add(&mut self, entry: &Entry) {
        for group in entry.groups.iter().filter(|g| g.home != entry.writer) {
            self.raise(group.home, entry.writer, group.serial);
        }
    }

    /// What a fetch from `home` must ask for.
    pub fn at(&self, home: NodeId) -> Vec<RequiredDiff> {
        if !Rule::FetchNamesItsNeeds.on() {
            return Vec::new();
        }
        let needs = self.by_home.get(&home).into_iter().flatten();
        needs.map(|(writer, serial)| RequiredDiff { writer: *writer, serial: *serial }).collect()
    }

    /// A page of `home` has come by another way than from there.
    pub fn note_unconfirmed_home(&mut self, home: NodeId) {
        self.unconfirmed_homes.insert(home);
    }

    /// What diffs of `me` for `home` must ask for: the home would overwrite them with what was in the pages before.
    pub fn before_diffs(&mut self, home: NodeId, me: NodeId) -> Vec<RequiredDiff> {
        if !self.unconfirmed_homes.contains(&home) {
            return Vec::new();
        }
        let needs: Vec<RequiredDiff> = self.at(home).into_iter().filter(|need| need.writer != me).collect();
        if needs.is_empty() {
            self.unconfirmed_homes.remove(&home);
        }
        needs
    }

    /// The home has answered a fetch with these needs: it need not be told of them again.
    pub fn confirm(&mut self, home: NodeId, met: &[RequiredDiff]) {
        let Some(needs) = self.by_home.get_mut(&home) else { return };
        for need in met {
            if needs.get(&need.writer).is_some_and(|serial| *serial <= need.serial) {
                needs.remove(&need.writer);
            }
        }
    }
}
