use crate::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use crate::coherence::pages::scope_intervals::APART_MAX;
use crate::coherence::pages::wire::{Entry, Group, Groups, RequiredDiff, put_vector};
use crate::coherence::pages::write_notices::{self, ENTRIES_MAX, Knowledge, VectorTime, WhichLog, WriteNotices};
use crate::coherence::pages::{PageEngine, PageNo};
use crate::ids::{FlagId, LockId, NodeId};
use crate::sync::{IntervalMark, Scope};
use smallvec::smallvec;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

pub(super) const LOCK: Scope = Scope::Lock(LockId(1));
pub(super) const LOCK_2: Scope = Scope::Lock(LockId(2));

pub(super) fn intervals(node: u16, engine: PageEngine) -> IntervalState {
    IntervalState::new(NodeId(node), engine)
}

/// An interval in which pages of the main log's engine were written.
fn wrote(pages: Range<u32>, home: u16, serial: u64) -> [Groups; 2] {
    [smallvec![Group { home: NodeId(home), serial, runs: smallvec![(pages, true)] }], Groups::new()]
}

/// A lock moves from one node to another; gives the pages that the acquirer must invalidate.
pub(super) fn moves(from: &mut IntervalState, to: &mut IntervalState, scope: Scope) -> Vec<Range<u32>> {
    let (mut known, mut payload, mut needs) = (Vec::new(), Vec::new(), RequiredDiffs::default());
    to.knowledge(scope, &mut known);
    from.encode_notices((scope, IntervalMark::NOW), &known, &mut payload);
    let fresh = to.apply_notices(scope, &payload, &mut needs).unwrap();
    fresh.iter().flat_map(|e| write_notices::pages_of(e)).collect()
}

/// All pass a barrier; gives what each must invalidate.
pub(super) fn barrier(ledgers: &mut [IntervalState]) -> Vec<Vec<Range<u32>>> {
    let mut notices = Vec::new();
    ledgers.iter_mut().for_each(|l| l.arrive(&mut notices));
    let open = |l: &mut IntervalState| {
        let all = l.open(&notices, &mut RequiredDiffs::default()).unwrap();
        all.iter().filter(|(_, fresh)| *fresh).flat_map(|(e, _)| write_notices::pages_of(e)).collect()
    };
    ledgers.iter_mut().map(open).collect()
}

#[test]
fn a_release_after_no_writes_names_nothing_and_ends_no_interval() {
    let (mut a, mut b) = (intervals(0, PageEngine::Hlrc), intervals(1, PageEngine::Hlrc));
    for _ in 0..3 {
        a.close([Groups::new(), Groups::new()]);
        assert_eq!(moves(&mut a, &mut b, LOCK), []);
    }
    assert_eq!(a.entries(), 0);
    let mut said = Vec::new();
    a.arrive(&mut said);
    assert!(said.is_empty(), "nor does a barrier");
}

#[test]
fn an_acquirer_hears_what_it_lacks_and_nothing_twice() {
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        let (mut a, mut b) = (intervals(0, engine), intervals(1, engine));
        a.close(wrote(0..2, 3, 1));
        assert_eq!(moves(&mut a, &mut b, LOCK), vec![0..2]);
        assert_eq!(moves(&mut b, &mut a, LOCK), [], "its own writes are no news");
        a.close(wrote(5..6, 3, 2));
        assert_eq!(moves(&mut a, &mut b, LOCK), vec![5..6]);
    }
}

#[test]
fn under_hlrc_who_has_seen_everything_is_told_nothing() {
    for (engine, told) in [(PageEngine::Hlrc, false), (PageEngine::Scope, true)] {
        let (mut a, mut b) = (intervals(0, engine), intervals(1, engine));
        a.close(wrote(0..2, 3, 1));
        b.close(wrote(7..8, 3, 1));
        let says = |from: &mut IntervalState, known: &[u8]| {
            let mut said = Vec::new();
            from.encode_notices((LOCK, IntervalMark::NOW), known, &mut said);
            !said.is_empty()
        };
        let knows = |of: &IntervalState| {
            let mut known = Vec::new();
            of.knowledge(LOCK, &mut known);
            known
        };
        assert!(says(&mut a, &knows(&b)) && says(&mut a, &[]), "one interval is news");
        moves(&mut b, &mut a, LOCK);
        moves(&mut a, &mut b, LOCK);
        assert_eq!(says(&mut a, &knows(&b)), told, "{engine}");
        let [mut longer, mut damaged] = [(); 2].map(|()| knows(&b));
        longer.push(0);
        damaged.pop();
        assert!(says(&mut a, &longer) && says(&mut a, &damaged), "not what this node has seen");
        a.close(wrote(2..3, 3, 2));
        assert!(says(&mut a, &knows(&b)));
    }
}

#[test]
fn hlrc_hands_on_what_came_through_another_lock_and_scope_does_not() {
    for (engine, heard) in [(PageEngine::Hlrc, vec![0..2]), (PageEngine::Scope, vec![])] {
        let (mut a, mut b, mut c) = (intervals(0, engine), intervals(1, engine), intervals(2, engine));
        a.close(wrote(0..2, 3, 1));
        moves(&mut a, &mut b, LOCK);
        assert_eq!(moves(&mut b, &mut c, LOCK_2), heard, "{engine}");
    }
}

#[test]
fn under_scope_a_lock_tells_of_what_was_written_since_its_token_came() {
    let (mut a, mut b) = (intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope));
    a.close(wrote(0..1, 3, 1));
    moves(&mut b, &mut a, LOCK);
    a.close(wrote(1..2, 3, 2));
    assert_eq!(moves(&mut a, &mut b, LOCK), vec![1..2]);
}

pub(super) fn wide(lock: Scope) -> LockId {
    let Scope::Lock(lock) = lock else { unreachable!("locks alone are wide") };
    lock
}

#[test]
fn under_scope_a_release_consistent_release_tells_of_everything_and_so_do_those_behind_it() {
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| intervals(n, PageEngine::Scope));
    a.close(wrote(0..1, 3, 1));
    moves(&mut b, &mut a, LOCK);
    a.close(wrote(1..2, 3, 2));
    a.require_full_notices(wide(LOCK));
    assert_eq!(moves(&mut a, &mut b, LOCK), vec![1..2, 0..1], "what was written before the token came, too");
    assert_eq!(moves(&mut b, &mut a, LOCK), []);
    b.close(wrote(5..6, 3, 1));
    moves(&mut c, &mut b, LOCK_2);
    assert_eq!(
        moves(&mut b, &mut c, LOCK),
        vec![1..2, 5..6, 0..1],
        "the lock stays wide, and hands on what it brought"
    );
    assert_eq!(moves(&mut c, &mut b, LOCK), [], "nothing is told twice");
}

#[test]
fn under_scope_a_lazy_acquire_hears_of_everything_from_a_plain_release() {
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| intervals(n, PageEngine::Scope));
    a.close(wrote(0..1, 3, 1));
    moves(&mut b, &mut a, LOCK);
    b.require_full_notices(wide(LOCK));
    assert_eq!(moves(&mut a, &mut b, LOCK), vec![0..1]);
    moves(&mut c, &mut a, LOCK_2);
    assert_eq!(moves(&mut a, &mut c, LOCK_2), [], "another lock stays what it was");
}

#[test]
fn under_scope_a_node_that_catches_up_hears_of_everything_and_its_locks_stay_what_they_were() {
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| intervals(n, PageEngine::Scope));
    a.close(wrote(0..1, 3, 1));
    moves(&mut b, &mut a, LOCK);
    a.close(wrote(1..2, 3, 2));
    assert_eq!(moves(&mut a, &mut b, LOCK), vec![1..2]);
    b.close(wrote(5..6, 3, 1));
    assert_eq!(moves(&mut a, &mut b, Scope::All), vec![0..1], "what the token brought ends nothing again");
    assert_eq!(moves(&mut a, &mut b, Scope::All), []);
    assert_eq!(moves(&mut b, &mut c, LOCK), vec![1..2, 5..6], "it still tells what was written under it, and no more");
    assert_eq!(moves(&mut c, &mut a, Scope::All), [], "what was learnt of one lock is not told");
}

#[test]
fn under_scope_a_token_that_came_plainly_is_narrow_until_its_node_has_caught_up_and_says_so_when_it_goes_on() {
    let is_narrow = |l: &IntervalState| l.has_partial_notices(wide(LOCK));
    let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|n| intervals(n, PageEngine::Scope));
    assert!(!is_narrow(&a), "it has been here since the epoch began");
    a.close(wrote(0..1, 3, 1));
    moves(&mut d, &mut a, LOCK);
    moves(&mut a, &mut b, LOCK);
    assert!(is_narrow(&b));
    c.require_full_notices_always(wide(LOCK));
    assert_eq!(moves(&mut b, &mut c, LOCK), [], "who hands it on without having learnt more has no more to tell");
    assert!(is_narrow(&c));
    assert_eq!(moves(&mut a, &mut c, Scope::All), vec![0..1]);
    c.has_caught_up(wide(LOCK));
    assert!(!is_narrow(&c));
    assert_eq!(moves(&mut c, &mut d, LOCK), vec![0..1], "it is wide, and tells everything");
    assert!(!is_narrow(&d));
    d.require_full_notices(wide(LOCK_2));
    moves(&mut a, &mut b, LOCK_2);
    moves(&mut b, &mut d, LOCK_2);
    assert!(d.has_partial_notices(wide(LOCK_2)));
    let mut all = [a, b, c, d];
    barrier(&mut all);
    assert!(!is_narrow(&all[1]) && !all[3].has_partial_notices(wide(LOCK_2)), "all have heard of all");
}

#[test]
fn a_barrier_ends_what_is_wide() {
    let mut ledgers = [intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope)];
    ledgers[0].close(wrote(0..1, 3, 1));
    ledgers[0].require_full_notices(wide(LOCK));
    assert_eq!(barrier(&mut ledgers), [vec![], vec![0..1]]);
    let [a, b] = &mut ledgers;
    a.close(wrote(7..8, 3, 2));
    moves(b, a, LOCK);
    assert_eq!(moves(a, b, LOCK), [], "a plain lock again");
    assert_eq!(barrier(&mut ledgers), [vec![], vec![7..8]]);
}

#[test]
fn at_a_barrier_all_hear_of_all_but_what_they_know_and_then_all_is_forgotten() {
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        let mut ledgers = [intervals(0, engine), intervals(1, engine), intervals(2, engine)];
        ledgers[0].close(wrote(0..1, 3, 1));
        let [a, b, _] = &mut ledgers;
        moves(a, b, LOCK);
        ledgers[1].close(wrote(7..8, 3, 1));
        assert_eq!(barrier(&mut ledgers), [vec![7..8], vec![], vec![0..1, 7..8]], "{engine}");
        assert!(ledgers.iter().all(|l| l.entries() == 0 && l.epoch() == 1));
        assert_eq!(barrier(&mut ledgers), [vec![], vec![], vec![]]);
    }
}

#[test]
fn what_was_said_in_an_older_epoch_is_no_news() {
    let mut ledgers = [intervals(0, PageEngine::Hlrc), intervals(1, PageEngine::Hlrc)];
    ledgers[0].close(wrote(0..1, 1, 1));
    let mut old = Vec::new();
    ledgers[0].encode_notices((LOCK, IntervalMark::NOW), &[], &mut old);
    barrier(&mut ledgers);
    assert_eq!(ledgers[1].apply_notices(LOCK, &old, &mut RequiredDiffs::default()).unwrap(), []);
}

#[test]
fn no_interval_closes_between_arrival_and_opening() {
    let mut ledgers = [intervals(0, PageEngine::Hlrc)];
    assert!(ledgers[0].may_close());
    ledgers[0].arrive(&mut Vec::new());
    assert!(!ledgers[0].may_close());
    barrier(&mut ledgers);
    assert!(ledgers[0].may_close());
}

#[test]
fn homes_stay_at_a_barrier_at_which_a_node_says_so_and_at_no_other() {
    let mut nodes = [intervals(0, PageEngine::Hlrc), intervals(1, PageEngine::Hlrc)];
    for says in [false, true, false] {
        nodes[1].close(wrote(4..5, 0, 1));
        let mut notices = Vec::new();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.arrive(&mut notices);
            if says && index == 0 {
                node.keep_homes(&mut notices);
            }
        }
        for node in &mut nodes {
            assert_eq!(node.open(&notices, &mut RequiredDiffs::default()).unwrap().len(), 1);
            assert_eq!(node.homes_stay(), says);
        }
    }
}

#[test]
fn what_is_told_beyond_a_barrier_is_ahead_of_who_has_arrived_there() {
    let (mut a, mut b) = (intervals(0, PageEngine::Hlrc), intervals(1, PageEngine::Hlrc));
    let told = |from: &mut IntervalState, known: &[u8]| {
        let mut said = Vec::new();
        from.encode_notices((LOCK, IntervalMark::NOW), known, &mut said);
        said
    };
    let mut known = Vec::new();
    a.knowledge(LOCK, &mut known);
    b.close(wrote(4..5, 1, 0));
    let before = told(&mut b, &known);
    let mut notices = Vec::new();
    a.arrive(&mut notices);
    b.arrive(&mut notices);
    b.open(&notices, &mut RequiredDiffs::default()).unwrap();
    b.close(wrote(6..7, 1, 0));
    let beyond = told(&mut b, &known);
    let mut both = before.clone();
    write_notices::unite(&beyond, &mut both);
    assert_eq!([&before, &beyond, &both].map(|said| a.is_ahead(said)), [false, true, true]);
    a.open(&notices, &mut RequiredDiffs::default()).unwrap();
    assert!(!a.is_ahead(&beyond) && !a.is_ahead(&[]));
}

#[test]
fn a_program_with_locks_only_needs_memory_for_its_pages_and_not_for_its_intervals() {
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        let (mut a, mut b) = (intervals(0, engine), intervals(1, engine));
        let (rounds, apart) = if engine.is_scoped() { (5_000, 2 * APART_MAX) } else { (2_000, 0) };
        for round in 0..rounds {
            a.close(wrote(round % 10..round % 10 + 1, 3, u64::from(round) + 1));
            if round % 7 == 0 {
                moves(&mut a, &mut b, LOCK);
            }
        }
        moves(&mut a, &mut b, LOCK);
        let (of_a, of_b) = (a.entries(), b.entries());
        assert!(of_a <= 2 * ENTRIES_MAX + apart && of_b <= ENTRIES_MAX, "{of_a} {of_b}");
        let (mut c, mut needs, mut payload) = (intervals(2, engine), RequiredDiffs::default(), Vec::new());
        a.encode_notices((LOCK, IntervalMark::NOW), &[], &mut payload);
        let pages = c.apply_notices(LOCK, &payload, &mut needs).unwrap();
        let named = |page: u32| pages.iter().any(|e| write_notices::pages_of(e).iter().any(|run| run.contains(&page)));
        assert!((0..10).all(named), "who comes late hears of every page");
        assert_eq!(needs.at(NodeId(3)), [RequiredDiff { writer: NodeId(0), serial: rounds.into() }]);
    }
}

#[test]
fn what_was_merged_is_applied_once_however_many_locks_tell_it() {
    let (mut a, mut b) = (intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope));
    let count = 2 * APART_MAX as u32;
    (0..count).for_each(|n| a.close(wrote(n % 10..n % 10 + 1, 0, 0)));
    assert!(a.entries() < APART_MAX + ENTRIES_MAX);
    let told: BTreeSet<u32> = moves(&mut a, &mut b, LOCK).into_iter().flatten().collect();
    assert!(told.into_iter().eq(0..10));
    a.close(wrote(900..901, 0, 0));
    assert_eq!(moves(&mut a, &mut b, LOCK_2), [900..901], "the rest came with the other lock");
    // What one lock tells of every other interval does not say which these were.
    let count = 2 * ENTRIES_MAX as u32;
    let (mut a, mut b) = (intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope));
    for page in 0..count {
        a.close(wrote(page..page + 1, 0, 0));
        moves(&mut a, &mut b, LOCK);
        moves(&mut b, &mut a, LOCK);
        a.close(wrote(1_000 + page..1_001 + page, 0, 0));
        moves(&mut b, &mut a, LOCK);
    }
    let mut c = intervals(2, PageEngine::Scope);
    let told: Vec<u32> = moves(&mut a, &mut c, LOCK).into_iter().flatten().collect();
    assert!((0..count).all(|page| told.contains(&page)), "{told:?}");
}

#[test]
fn merged_intervals_say_whether_some_between_them_are_missing_and_what_was_said_last() {
    for (step, from) in [(1, 1), (2, 0)] {
        let mut history = WriteNotices::default();
        for (interval, held) in (1..).step_by(step).zip([false, true].into_iter().cycle()).take(ENTRIES_MAX + 1) {
            let group = Group { home: NodeId(9), serial: interval.into(), runs: smallvec![(4..5, held)] };
            history.insert(Arc::new(Entry { writer: NodeId(0), from: interval, interval, groups: smallvec![group] }));
        }
        let merged = history.after(NodeId(0), 0).next().unwrap();
        assert!(merged.interval > 1 && merged.interval.is_multiple_of(2) == (step == 1), "{merged:?}");
        assert_eq!(merged.from, from);
        let last = merged.interval.div_ceil(step as u32);
        assert_eq!(merged.groups[0].runs[..], [(4..5, last.is_multiple_of(2))]);
    }
}

#[test]
fn of_merged_intervals_with_some_missing_the_last_may_be_known_and_the_others_not() {
    let mut intervals = intervals(1, PageEngine::Scope);
    let mut hears = |scope, from, pages: Range<u32>| {
        let ([groups, _], mut history, mut told) = (wrote(pages, 9, 1), WriteNotices::default(), Vec::new());
        history.insert(Arc::new(Entry { writer: NodeId(0), from, interval: 5, groups }));
        history.encode_notices(WhichLog::Main, 0, &VectorTime::new(), &mut told);
        intervals.apply_notices(scope, &told, &mut RequiredDiffs::default()).unwrap().len()
    };
    assert_eq!(hears(LOCK_2, 5, 7..8), 1);
    assert_eq!(hears(LOCK, 0, 3..8), 1);
}

#[test]
fn needs_only_rise_and_are_confirmed_as_far_as_they_were_met() {
    let (mut needs, home, writer) = (RequiredDiffs::default(), NodeId(0), NodeId(1));
    let need = |serial| RequiredDiff { writer, serial };
    needs.raise(home, writer, 5);
    needs.raise(home, writer, 3);
    needs.raise(home, NodeId(2), 0);
    assert_eq!(needs.at(home), [need(5)]);
    needs.raise(home, writer, 6);
    needs.confirm(home, &[need(5)]);
    assert_eq!(needs.at(home), [need(6)], "a notice that came meanwhile still counts");
    needs.confirm(home, &[need(6)]);
    assert_eq!(needs.at(home), []);
    assert_eq!(needs.at(NodeId(9)), []);
}

pub(super) fn blob(which: WhichLog, entries: &[(u16, u32)]) -> Vec<u8> {
    let mut history = WriteNotices::default();
    for (writer, interval) in entries {
        let [groups, _] = wrote(*interval..*interval + 1, 9, 1);
        history.insert(Arc::new(Entry { writer: NodeId(*writer), from: *interval, interval: *interval, groups }));
    }
    let mut out = Vec::new();
    history.encode_notices(which, 0, &VectorTime::new(), &mut out);
    out
}

/// What an acquirer in the first epoch says that has seen this of the main log.
fn seen(vector: &VectorTime) -> Knowledge {
    let mut bytes = vec![0; 4];
    put_vector(&mut bytes, vector, WhichLog::Main);
    Knowledge::parse(&bytes)
}

#[test]
fn of_two_deposits_of_which_one_covers_the_other_one_is_kept_and_else_both() {
    let main = |entries| blob(WhichLog::Main, entries);
    let (small, large, aside) = (main(&[(0, 1)]), main(&[(0, 1), (0, 2)]), main(&[(1, 1)]));
    let mut stored = Vec::new();
    write_notices::unite(&small, &mut stored);
    write_notices::unite(&large, &mut stored);
    write_notices::unite(&small, &mut stored);
    assert_eq!(stored, large);
    write_notices::unite(&aside, &mut stored);
    assert_eq!(write_notices::blobs(&stored).count(), 2);
    let mut handed = Vec::new();
    write_notices::hand_out(&stored, &seen(&VectorTime::from([(NodeId(0), 1)])), &mut handed);
    let opened: Vec<_> = write_notices::blobs(&handed).map(|b| write_notices::open(b.unwrap().1).unwrap()).collect();
    let intervals: Vec<_> = opened.iter().flat_map(|b| &b.entries).map(|e| (e.writer.0, e.interval)).collect();
    assert_eq!(intervals, [(0, 2), (1, 1)], "without what the acquirer has seen");
}

/// A lock moves that was released at this moment; gives how many bytes that tells, and the pages that the acquirer must
/// invalidate.
fn moves_released(
    from: &mut IntervalState,
    to: &mut IntervalState,
    scope: Scope,
    released: IntervalMark,
) -> (usize, Vec<Range<u32>>) {
    let (mut known, mut payload) = (Vec::new(), Vec::new());
    to.knowledge(scope, &mut known);
    from.encode_notices((scope, released), &known, &mut payload);
    let fresh = to.apply_notices(scope, &payload, &mut RequiredDiffs::default()).unwrap();
    (payload.len(), fresh.iter().flat_map(|e| write_notices::pages_of(e)).collect())
}

/// So many closes, each of an interval in which one page was written; gives the moments before them, which are those of
/// releases under which that was.
fn closes(intervals: &mut IntervalState, pages: Range<u32>) -> Vec<IntervalMark> {
    let close = |page: u32| {
        let before = IntervalMark(IntervalMark::FIRST.0 + u64::from(page));
        intervals.close(wrote(page..page + 1, 3, u64::from(page) + 1));
        intervals.closes_are_over(IntervalMark(before.0 + 1));
        before
    };
    pages.map(close).collect()
}

#[test]
fn under_scope_a_release_tells_of_nothing_that_was_written_after_it() {
    let (mut a, mut b) = (intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope));
    let marks = closes(&mut a, 0..2);
    moves(&mut b, &mut a, LOCK);
    let marks = [marks, closes(&mut a, 2..10)].concat();
    assert_eq!(moves_released(&mut a, &mut b, LOCK_2, IntervalMark::default()).1, [], "it was never taken");
    assert_eq!(moves_released(&mut a, &mut b, LOCK, marks[4]).1, [2..3, 3..4, 4..5]);
    moves(&mut b, &mut a, LOCK);
    assert_eq!(moves_released(&mut a, &mut b, LOCK, marks[4]).1, [], "it was not taken since it came back");
    assert_eq!(moves(&mut a, &mut b, Scope::Flag(FlagId(1))).len(), 10 - 3, "what is told of at once tells of all");
}

#[test]
fn under_scope_a_slice_of_a_close_is_told_of_with_the_rest_of_it() {
    let (mut a, mut b) = (intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope));
    let marks = closes(&mut a, 0..3);
    let before = IntervalMark(marks[2].0 + 1);
    [10, 11].into_iter().for_each(|page| a.close(wrote(page..page + 1, 3, 20)));
    closes(&mut a, 3..4);
    a.close(wrote(12..13, 3, 20));
    assert_eq!(moves_released(&mut a, &mut b, LOCK, before).1.len(), 6, "three before, two slices, and the close");
}

#[test]
fn under_scope_what_a_lock_tells_does_not_grow_with_the_number_of_locks() {
    let mut told = Vec::new();
    for locks in [1_000, 20_000] {
        let [mut a, mut b] = [0, 1].map(|n| intervals(n, PageEngine::Scope));
        // Each of the locks comes, is taken, and is released; then another node wants them all.
        let scope = |n: u32| Scope::Lock(LockId(n.into()));
        let mut marks = Vec::new();
        for n in 0..locks {
            moves(&mut b, &mut a, scope(n));
            marks.extend(closes(&mut a, n..n + 1));
        }
        let all = (0..locks).zip(marks).map(|(n, mark)| moves_released(&mut a, &mut b, scope(n), mark));
        let (bytes, pages): (Vec<usize>, Vec<_>) = all.unzip();
        assert!(pages.into_iter().flatten().eq((0..locks).map(|page| page..page + 1)));
        told.push(bytes.into_iter().max());
    }
    // Larger numbers of intervals and pages take a few bytes more.
    assert!(told[1] <= told[0].map(|bytes| bytes + 8), "{told:?}");
}

#[test]
fn old_intervals_that_name_more_pages_than_all_behind_them_are_not_merged_again() {
    let mut history = WriteNotices::default();
    for n in 1..=10_000 {
        let [groups, _] = wrote(7 * n..7 * n + 1, 9, n.into());
        history.insert(Arc::new(Entry { writer: NodeId(0), from: n, interval: n, groups }));
        assert!(history.len() <= ENTRIES_MAX);
    }
    let sizes: Vec<u64> = history.after(NodeId(0), 0).map(|e| e.pages()).collect();
    assert_eq!(sizes.iter().sum::<u64>(), 10_000, "each is named once");
    assert!(sizes.iter().filter(|pages| **pages > 1).count() > 3, "{sizes:?}");
}

#[test]
fn each_epoch_numbers_its_intervals_anew_and_says_when_it_has_no_more_numbers() {
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        let mut ledgers = [intervals(0, engine), intervals(1, engine)];
        ledgers[0].has_closed(u32::MAX - 2);
        for page in 1..6 {
            let [a, b] = &mut ledgers;
            assert!(!a.is_used_up(), "page {page}");
            a.close(wrote(page..page + 1, 0, 0));
            assert_eq!(moves(a, b, LOCK), [page..page + 1]);
            if page == 2 {
                assert!(a.is_used_up());
                barrier(&mut ledgers);
            }
        }
    }
}

/// Node 0 writes this page and sets a flag, whose manager stores what it tells; node 1 waits for the flag. Gives the
/// pages that it hears of.
fn hears_by_a_flag(ledgers: &mut [IntervalState; 2], stored: &mut Vec<u8>, page: PageNo) -> Vec<Range<PageNo>> {
    let ([a, b], mut said) = (ledgers, [Vec::new(), Vec::new(), Vec::new()]);
    a.close(wrote(page..page + 1, 0, 0));
    a.encode_notices((Scope::Flag(FlagId(3)), IntervalMark::NOW), &[], &mut said[0]);
    write_notices::unite(&said[0], stored);
    b.knowledge(LOCK, &mut said[1]);
    write_notices::hand_out(stored, &Knowledge::parse(&said[1]), &mut said[2]);
    let fresh = b.apply_notices(LOCK, &said[2], &mut RequiredDiffs::default()).unwrap();
    fresh.iter().flat_map(|e| write_notices::pages_of(e)).collect()
}

#[test]
fn epochs_go_on_beyond_32_bits() {
    let mut ledgers = [intervals(0, PageEngine::Hlrc), intervals(1, PageEngine::Hlrc)];
    ledgers.iter_mut().for_each(|intervals| intervals.has_come_to(u32::MAX - 1));
    let mut stored = Vec::new();
    for page in 1..5 {
        assert_eq!(hears_by_a_flag(&mut ledgers, &mut stored, page), [page..page + 1]);
        barrier(&mut ledgers);
    }
}

/// A flag, a semaphore or the like may lie unused for as long as it likes.
#[test]
fn what_was_said_long_ago_keeps_nothing_from_being_said_however_many_epochs_have_passed() {
    for passed in [1 << 16, 1 << 31, (1 << 31) + 5, u32::MAX - (1 << 17)] {
        let mut ledgers = [intervals(0, PageEngine::Hlrc), intervals(1, PageEngine::Hlrc)];
        let mut stored = Vec::new();
        for (epoch, page) in [(7_u32, 1), (7_u32.wrapping_add(passed), 2)] {
            barrier(&mut ledgers);
            ledgers.iter_mut().for_each(|intervals| intervals.has_come_to(epoch));
            let pages = hears_by_a_flag(&mut ledgers, &mut stored, page);
            assert_eq!(pages, [page..page + 1], "after {passed} epochs");
        }
    }
}

/// Who releases may be past a barrier at which who wants the lock still was when it asked.
#[test]
fn what_was_seen_of_one_epoch_leaves_nothing_out_of_what_is_told_in_the_next() {
    for engine in [PageEngine::Hlrc, PageEngine::Scope] {
        let (mut ledgers, mut known, mut told) = ([intervals(0, engine), intervals(1, engine)], Vec::new(), Vec::new());
        let [a, b] = &mut ledgers;
        a.close(wrote(1..2, 3, 1));
        assert_eq!(moves(a, b, LOCK), vec![1..2]);
        b.knowledge(LOCK, &mut known);
        barrier(&mut ledgers);
        let [a, b] = &mut ledgers;
        a.close(wrote(5..6, 3, 2));
        a.encode_notices((LOCK, IntervalMark::NOW), &known, &mut told);
        let mut handed = Vec::new();
        write_notices::hand_out(&told, &Knowledge::parse(&known), &mut handed);
        assert_eq!(handed, told, "nor does a manager leave anything out");
        let fresh = b.apply_notices(LOCK, &told, &mut RequiredDiffs::default()).unwrap();
        assert_eq!(fresh.iter().flat_map(|e| write_notices::pages_of(e)).collect::<Vec<_>>(), vec![5..6], "{engine}");
    }
}

#[test]
fn a_lock_that_a_node_acquires_lazily_brings_it_everything_in_every_epoch() {
    let mut ledgers = [intervals(0, PageEngine::Scope), intervals(1, PageEngine::Scope)];
    ledgers[1].require_full_notices_always(wide(LOCK));
    for epoch in 0..3 {
        let [a, b] = &mut ledgers;
        a.close(wrote(0..1, 3, 1));
        moves(b, a, LOCK);
        a.close(wrote(1..2, 3, 2));
        assert_eq!(moves(a, b, LOCK), vec![1..2, 0..1], "in epoch {epoch}");
        barrier(&mut ledgers);
    }
}
