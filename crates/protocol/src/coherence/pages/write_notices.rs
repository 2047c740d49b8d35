//! What a node knows of the intervals of others since the last barrier, in one scope: under `hlrc` there is one scope
//! for everything, under `scope` one for each lock.
//!
//! A history is told to another node as a *blob*: epoch, the vector of intervals that it covers, both in numbers of few
//! bytes, then the entries that the other has not seen. Several releases may be handed out at once: then blobs stand
//! one behind the other, each with its length (u32) in front, whose top bit is set where the blob is of the other log
//! ([`WhichLog`]).

use super::kept_diffs::clock;
use super::wire::{
    Entry, Group, Groups, IN_ROWS_MAX, IN_ROWS_TOLD, Notices, is_vector, put_seen, put_vector, skip_seen, take_seen,
    take_vector, take_vector_of,
};
use super::{is_later, is_over, push_range};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::wire::bytes::{Put, Reader, WireError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Entries of one writer that are kept apart; older ones are merged, so that a program without barriers needs memory
/// for the pages it writes, not for the times it writes them.
pub const ENTRIES_MAX: usize = 64;

/// A vector timestamp without the entries that are as at the last barrier.
pub type VectorTime = BTreeMap<NodeId, u32>;

/// Which of a node's notice logs something is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhichLog {
    /// The log of the job's engine.
    Main,
    /// That of the engine that only some regions have.
    Other,
}

/// What a node has seen of one log.
#[derive(Clone, Debug, Default)]
pub struct SeenTimes {
    /// Of a scope.
    pub of_scope: VectorTime,
    /// Of everything, where the scope is a wide lock.
    pub everything: Option<VectorTime>,
}

/// What an acquirer has seen: epoch u32, the main log's vector, and one of everything where the lock is wide; behind
/// them the same of the other log, if anything was seen of it, with a mark on the first of its vectors.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// `None`: it says nothing.
    epoch: Option<u32>,
    main: SeenTimes,
    other: Option<Box<SeenTimes>>,
}

static NOTHING: SeenTimes = SeenTimes { of_scope: VectorTime::new(), everything: None };

impl Knowledge {
    /// Appends one log's part.
    pub(super) fn emit(which: WhichLog, of_scope: &VectorTime, everything: Option<&VectorTime>, out: &mut Vec<u8>) {
        put_vector(out, of_scope, which);
        if let Some(everything) = everything {
            put_vector(out, everything, WhichLog::Main);
        }
    }

    /// Whether these bytes say that this was seen of the main log in this epoch, and nothing else.
    pub(super) fn is(bytes: &[u8], epoch: u32, of_scope: &VectorTime) -> bool {
        let mut r = Reader::new(bytes);
        let alike = r.u32() == Ok(epoch) && is_vector(&mut r, of_scope);
        alike && r.finish().is_ok()
    }

    /// Reads what an acquirer said; nothing where the bytes make no sense.
    pub fn parse(bytes: &[u8]) -> Knowledge {
        Self::try_parse(bytes).unwrap_or_default()
    }

    fn try_parse(bytes: &[u8]) -> Result<Knowledge, WireError> {
        let mut r = Reader::new(bytes);
        let (epoch, of_scope) = (r.u32()?, take_vector(&mut r)?);
        let mut knowledge =
            Knowledge { epoch: Some(epoch), main: SeenTimes { of_scope, everything: None }, other: None };
        while r.finish().is_err() {
            let (which, of_scope) = take_vector_of(&mut r)?;
            match (which, &mut knowledge.other) {
                (WhichLog::Other, other @ None) => *other = Some(Box::new(SeenTimes { of_scope, everything: None })),
                (WhichLog::Main, Some(other)) => other.everything = Some(of_scope),
                (WhichLog::Main, None) => knowledge.main.everything = Some(of_scope),
                _ => return Err(WireError::BadValue("knowledge")),
            }
        }
        Ok(knowledge)
    }

    /// Leaves what counts for somebody in `epoch`: nothing that was seen in another one.
    pub(super) fn come_to(&mut self, epoch: u32) {
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            for seen in [Some(&mut self.main), self.other.as_deref_mut()].into_iter().flatten() {
                seen.of_scope.clear();
                seen.everything.iter_mut().for_each(VectorTime::clear);
            }
        }
    }

    /// What was seen of a log.
    pub(super) fn of(&self, which: WhichLog) -> &SeenTimes {
        match which {
            WhichLog::Other if Rule::KnowledgeIsOfOneLog.on() => self.other.as_deref().unwrap_or(&NOTHING),
            _ => &self.main,
        }
    }
}

/// Intervals and their write notices since the last barrier.
#[derive(Clone, Debug, Default)]
pub struct WriteNotices {
    seen: VectorTime,
    entries: BTreeMap<(NodeId, u32), Arc<Entry>>,
}

impl WriteNotices {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// How many entries are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The last interval of each node that is covered.
    pub fn seen(&self) -> &VectorTime {
        &self.seen
    }

    /// Whether an interval of a writer is covered.
    pub fn covers(&self, writer: NodeId, interval: u32) -> bool {
        self.seen.get(&writer).is_some_and(|seen| *seen >= interval)
    }

    /// Takes an entry in; `false` when it was covered.
    pub fn insert(&mut self, entry: Arc<Entry>) -> bool {
        let (writer, interval) = (entry.writer, entry.interval);
        if self.covers(writer, interval) {
            return false;
        }
        self.seen.insert(writer, interval);
        self.entries.insert((writer, interval), entry);
        if self.entries.range((writer, 0)..=(writer, u32::MAX)).count() > ENTRIES_MAX {
            self.merge_old(writer);
        }
        true
    }

    fn merge_old(&mut self, writer: NodeId) {
        let of_writer = self.entries.range((writer, 0)..=(writer, u32::MAX));
        let old: Vec<_> = of_writer.take(ENTRIES_MAX / 2).map(|(_, e)| e.clone()).collect();
        let old = &old[large(&old)..];
        old.iter().for_each(|e| drop(self.entries.remove(&(writer, e.interval))));
        if let Some(merged) = merge(old.iter().map(|e| &**e)) {
            self.entries.insert((writer, merged.interval), Arc::new(merged));
        }
    }

    /// The entries of `writer` after its interval `after`.
    pub fn after(&self, writer: NodeId, after: u32) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.range((writer, after.saturating_add(1))..=(writer, u32::MAX)).map(|(_, e)| e)
    }

    /// The entries that somebody who has seen `known` lacks.
    pub fn beyond<'a>(&'a self, known: &'a VectorTime) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.seen.keys().flat_map(|writer| self.after(*writer, known.get(writer).copied().unwrap_or_default()))
    }

    /// Whether somebody who has seen `known` lacks anything.
    pub fn has_news(&self, known: &VectorTime) -> bool {
        self.seen.iter().any(|(writer, seen)| known.get(writer).is_none_or(|known| seen > known))
    }

    /// Appends a blob of what somebody who has seen `known` lacks.
    pub fn encode_notices(&self, which: WhichLog, epoch: u32, known: &VectorTime, out: &mut Vec<u8>) {
        put_blob(out, which, epoch, self.seen.iter(), |out, in_rows| {
            for (writer, seen) in &self.seen {
                let known = known.get(writer).copied();
                if known.is_some_and(|known| known >= *seen) {
                    continue;
                }
                self.after(*writer, known.unwrap_or_default()).for_each(|entry| entry.emit_within(in_rows, out));
            }
        });
    }

    /// Appends a blob of all entries of one writer, if there are any.
    pub(super) fn encode_entries(&self, writer: NodeId, which: WhichLog, epoch: u32, out: &mut Vec<u8>) {
        let Some(seen) = self.seen.get(&writer) else { return };
        put_blob(out, which, epoch, std::iter::once((&writer, seen)), |out, in_rows| {
            self.after(writer, 0).for_each(|entry| entry.emit_within(in_rows, out));
        });
    }
}

/// Appends a blob of one entry that covers no interval.
pub(super) fn encode_entry(entry: &Entry, which: WhichLog, epoch: u32, out: &mut Vec<u8>) {
    put_blob(out, which, epoch, std::iter::empty(), |out, in_rows| entry.emit_within(in_rows, out));
}

/// Appends a blob with these entries.
fn put_blob<'a>(
    out: &mut Vec<u8>,
    which: WhichLog,
    epoch: u32,
    seen: impl ExactSizeIterator<Item = (&'a NodeId, &'a u32)>,
    entries: impl FnOnce(&mut Vec<u8>, &mut u32),
) {
    let at = out.len();
    out.put_u32(0);
    out.put_var(epoch.into());
    put_seen(out, seen);
    entries(out, &mut IN_ROWS_TOLD.clone());
    let len = (out.len() - at - 4) as u32 | mark(which);
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// How many of the first of these entries name more pages than all behind them: merged with these again and again, they
/// would cost more than they save.
fn large(entries: &[Arc<Entry>]) -> usize {
    let mut behind: u64 = entries.iter().map(|e| e.pages()).sum();
    let is_large = |entry: &&Arc<Entry>| {
        behind -= entry.pages();
        entry.pages() > behind
    };
    entries.iter().take(ENTRIES_MAX / 4).take_while(is_large).count()
}

/// One entry for all of `entries`, which are of one writer, in order.
pub(super) fn merge<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<Entry> {
    let mut merged: Option<Entry> = None;
    let mut pages: BTreeMap<NodeId, (u64, BTreeMap<u32, bool>)> = BTreeMap::new();
    for entry in entries {
        let whole = merged.get_or_insert_with(|| Entry { interval: 0, groups: Groups::new(), ..entry.clone() });
        let goes_on = whole.interval == 0 || (whole.from > 0 && entry.from == whole.interval + 1);
        whole.from = if goes_on { whole.from } else { 0 };
        whole.interval = entry.interval;
        for group in &entry.groups {
            let (serial, of_home) = pages.entry(group.home).or_default();
            *serial = (*serial).max(group.serial);
            for (run, held) in &group.runs {
                of_home.extend(run.clone().map(|page| (page, *held)));
            }
        }
    }
    let mut merged = merged?;
    for (home, (serial, of_home)) in pages {
        let mut group = Group { home, serial, runs: Notices::new() };
        of_home.into_iter().for_each(|(page, held)| push_held(&mut group.runs, page..page + 1, held));
        merged.groups.push(group);
    }
    Some(merged)
}

/// Adds written pages to the group of their home, which has this `serial` if it is its first.
pub fn add_notice(groups: &mut Groups, home: NodeId, serial: impl FnOnce() -> u64, pages: Range<u32>, held: bool) {
    let at = groups.binary_search_by_key(&home, |group| group.home).unwrap_or_else(|at| {
        groups.insert(at, Group { home, serial: serial(), runs: Notices::new() });
        at
    });
    push_held(&mut groups[at].runs, pages, held);
}

/// Appends pages to a group's runs, joined with the last run where they touch and agree.
fn push_held(runs: &mut Notices, pages: Range<u32>, held: bool) {
    match runs.last_mut() {
        Some((last, last_held)) if last.end == pages.start && *last_held == held => last.end = pages.end,
        _ => runs.push((pages, held)),
    }
}

/// A blob, taken apart.
#[derive(Clone, Debug)]
pub struct Blob {
    /// The teller's epoch.
    pub epoch: u32,
    /// What it covers.
    pub seen: VectorTime,
    /// The entries in it.
    pub entries: Vec<Arc<Entry>>,
}

/// In front of a blob of the other log, beside its length.
const OTHER_LOG: u32 = 1 << 31;

fn mark(which: WhichLog) -> u32 {
    if which == WhichLog::Other { OTHER_LOG } else { 0 }
}

/// How long a blob is behind its first word.
pub(super) fn blob_bytes(word: u32) -> usize {
    (word & !OTHER_LOG) as usize
}

/// The blobs in a payload, still closed, and the logs that they are of.
pub fn blobs(payload: &[u8]) -> impl Iterator<Item = Result<(WhichLog, &[u8]), WireError>> {
    let mut left = payload;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let mut r = Reader::new(left);
        let blob = r.u32().and_then(|len| {
            let which = if len & OTHER_LOG == 0 { WhichLog::Main } else { WhichLog::Other };
            Ok((which, r.take(blob_bytes(len))?))
        });
        left = if blob.is_ok() { r.rest() } else { &[] };
        Some(blob)
    })
}

/// Opens a blob.
///
/// # Errors
/// When no node would have sent it.
pub fn open(blob: &[u8]) -> Result<Blob, WireError> {
    let mut r = Reader::new(blob);
    let (epoch, seen) = (r.var32()?, take_seen(&mut r)?);
    let (mut left, mut in_rows, mut entries) = (Entries(r), IN_ROWS_MAX, Vec::new());
    while let Some(entry) = left.next(&mut in_rows, |_, _| false)? {
        entries.push(Arc::new(entry));
    }
    Ok(Blob { epoch, seen, entries })
}

/// The entries of a blob that were not read yet.
pub(super) struct Entries<'a>(Reader<'a>);

impl<'a> Entries<'a> {
    /// All of a blob, and the epoch in which it was told.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub(super) fn of(blob: &'a [u8]) -> Result<(u32, Entries<'a>), WireError> {
        let mut r = Reader::new(blob);
        let epoch = r.var32()?;
        skip_seen(&mut r)?;
        Ok((epoch, Entries(r)))
    }

    /// The next one that is not `known` by its writer and interval. It may have so many runs in rows; what there are of
    /// them is taken off, for the entries and blobs behind it in the payload.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub(super) fn next(
        &mut self,
        in_rows: &mut u32,
        known: impl Fn(NodeId, u32) -> bool,
    ) -> Result<Option<Entry>, WireError> {
        while self.0.finish().is_err() {
            if let Some(entry) = Entry::parse_unless(&mut self.0, in_rows, &known)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// The epoch in which a payload was told, if it tells anything.
pub fn epoch(payload: &[u8]) -> Option<u32> {
    let (_, blob) = blobs(payload).next()?.ok()?;
    epoch_of(blob).ok()
}

/// The epoch in which a blob was told.
///
/// # Errors
/// When no node would have sent it.
pub(super) fn epoch_of(blob: &[u8]) -> Result<u32, WireError> {
    Reader::new(blob).var32()
}

/// The epoch and the vector of a blob.
fn head(blob: &[u8]) -> Result<(u32, VectorTime), WireError> {
    let mut r = Reader::new(blob);
    Ok((r.var32()?, take_seen(&mut r)?))
}

/// At a manager: adds a payload to what is stored. A blob covers every earlier one of the same teller, so of blobs of
/// one log that cover each other the larger stays; older epochs are known to all. So does the later of two times.
pub fn unite(payload: &[u8], stored: &mut Vec<u8>) {
    let clock = [&stored[..], payload].into_iter().filter_map(|bytes| clock::heard(bytes).ok().flatten()).max();
    let mut kept: Vec<(WhichLog, u32, VectorTime, Vec<u8>)> = Vec::new();
    let before = if Rule::PostersAreUnited.on() { &stored[..] } else { &[] };
    for (which, blob) in blobs(before).chain(blobs(payload)).flatten() {
        let Ok((epoch, seen)) = head(blob) else { continue };
        let same = |w: &WhichLog| *w == which || !Rule::LogsAreMergedApart.on();
        let covers = |a: &VectorTime, b: &VectorTime| b.iter().all(|(n, i)| a.get(n).is_some_and(|j| j >= i));
        if kept.iter().any(|(w, e, s, _)| is_later(*e, epoch) || (*e == epoch && same(w) && covers(s, &seen))) {
            continue;
        }
        kept.retain(|(w, e, s, _)| *e == epoch && !(same(w) && covers(&seen, s)));
        kept.push((which, epoch, seen, blob.to_vec()));
    }
    stored.clear();
    for (which, _, _, blob) in kept {
        stored.put_u32(blob.len() as u32 | mark(which));
        stored.put_bytes(&blob);
    }
    clock.into_iter().for_each(|stamp| clock::put(stored, stamp));
}

/// At a manager: appends what is stored and somebody with this knowledge lacks.
pub fn hand_out(stored: &[u8], knowledge: &Knowledge, out: &mut Vec<u8>) {
    let none = VectorTime::new();
    for (which, blob) in blobs(stored).flatten() {
        let Ok(blob) = open(blob) else { continue };
        if knowledge.epoch.is_some_and(|epoch| is_over(blob.epoch, epoch)) {
            continue;
        }
        let known = if Some(blob.epoch) == knowledge.epoch { &knowledge.of(which).of_scope } else { &none };
        let history = WriteNotices {
            seen: blob.seen,
            entries: blob.entries.into_iter().map(|e| ((e.writer, e.interval), e)).collect(),
        };
        if which == WhichLog::Main || history.has_news(known) {
            history.encode_notices(which, blob.epoch, known, out);
        }
    }
    clock::heard(stored).ok().flatten().into_iter().for_each(|stamp| clock::put(out, stamp));
}

/// The ranges of pages of an entry, by home.
pub fn pages_of(entry: &Entry) -> Vec<Range<u32>> {
    let mut all = Vec::new();
    for (run, _) in entry.groups.iter().flat_map(|g| &g.runs) {
        push_range(&mut all, run.clone());
    }
    all
}
