use super::{Bench, ME, OTHER};
use crate::coherence::pages::push::{PushBuffer, PushedPages, Pushes};
use crate::coherence::pages::wire::{Entry, Group, Push, RequiredDiff, Runs};
use crate::coherence::pages::{Access, PAGE_BYTES, PageNo};
use crate::ids::NodeId;
use smallvec::smallvec;
use std::ops::Range;

const THIRD: NodeId = NodeId(3);

/// Pages of [`OTHER`], each full of its number, sent at the end of `epoch` after so many messages of diffs from
/// [`THIRD`] had been applied.
fn keep(buffer: &mut PushBuffer, epoch: u32, pages: Range<PageNo>, applied: u64) {
    let bytes: Vec<u8> = pages.clone().flat_map(|page| [page as u8; PAGE_BYTES]).collect();
    let applied = vec![RequiredDiff { writer: THIRD, serial: applied }];
    buffer.keep(OTHER, Push { epoch, applied, runs: Runs::from_iter([pages]) }, &bytes);
}

/// What `writer` wrote of the pages of [`OTHER`].
fn wrote(writer: NodeId, serial: u64, pages: Range<PageNo>) -> Entry {
    let groups = smallvec![Group { home: OTHER, serial, runs: smallvec![(pages, true)] }];
    Entry { writer, from: 1, interval: 1, groups }
}

fn open(buffer: &mut PushBuffer, epoch: u32, entries: &[Entry]) -> Vec<(NodeId, Vec<Range<PageNo>>)> {
    buffer.open(epoch, entries.iter())
}

/// The pages that are found, and the runs that must be asked for.
fn pick(buffer: &mut PushBuffer, home: NodeId, units: &[Range<PageNo>]) -> (Vec<Range<PageNo>>, Vec<Range<PageNo>>) {
    let (mut pushed, mut left) = (Vec::new(), Vec::new());
    buffer.pick(home, units, &mut pushed, &mut left);
    for run in &pushed {
        let right =
            run.pages.clone().zip(run.bytes().chunks(PAGE_BYTES)).all(|(page, b)| b == [page as u8; PAGE_BYTES]);
        assert!(right, "each page has its own bytes: {:?}", run.pages);
    }
    (pushed.into_iter().map(|PushedPages { pages, .. }| pages).collect(), left)
}

#[test]
fn what_came_for_a_barrier_can_be_used_once_when_the_barrier_has_opened() {
    let mut buffer = PushBuffer::default();
    keep(&mut buffer, 0, 4..8, 0);
    assert_eq!(pick(&mut buffer, OTHER, &[4..5]), (vec![], vec![4..5]), "the barrier is not open yet");
    open(&mut buffer, 1, &[wrote(OTHER, 0, 4..8)]);
    assert_eq!(pick(&mut buffer, OTHER, &[5..6, 6..7, 9..10]), (vec![5..7], vec![9..10]));
    assert_eq!(pick(&mut buffer, OTHER, &[5..6]), (vec![], vec![5..6]), "used once");
    assert_eq!(pick(&mut buffer, THIRD, &[4..5]), (vec![], vec![4..5]), "another node's page");
}

#[test]
fn pages_whose_bytes_do_not_stand_in_their_order_are_picked_apart() {
    let mut buffer = PushBuffer::default();
    let runs = [0..1, 2..3, 1..2];
    let bytes: Vec<u8> = runs.iter().flat_map(|run| [run.start as u8; PAGE_BYTES]).collect();
    buffer.keep(OTHER, Push { epoch: 0, applied: Vec::new(), runs: Runs::from_iter(runs) }, &bytes);
    open(&mut buffer, 1, &[]);
    assert_eq!(pick(&mut buffer, OTHER, &[0..1, 1..2, 2..3]), (vec![0..1, 1..2, 2..3], vec![]));
}

#[test]
fn what_comes_late_early_or_twice_is_forgotten() {
    let mut buffer = PushBuffer::default();
    open(&mut buffer, 5, &[]);
    keep(&mut buffer, 4, 0..1, 0);
    keep(&mut buffer, 7, 0..1, 0);
    open(&mut buffer, 6, &[]);
    assert!(buffer.is_empty());
    keep(&mut buffer, 6, 0..1, 0);
    keep(&mut buffer, 6, 1..2, 0);
    open(&mut buffer, 7, &[]);
    assert_eq!(pick(&mut buffer, OTHER, &[0..1, 1..2]), (vec![0..1], vec![1..2]));
}

#[test]
fn what_a_node_sends_that_is_one_barrier_ahead_is_kept_for_its_barrier() {
    let mut buffer = PushBuffer::default();
    keep(&mut buffer, 1, 0..1, 0);
    keep(&mut buffer, 0, 1..2, 0);
    open(&mut buffer, 1, &[]);
    assert_eq!(pick(&mut buffer, OTHER, &[0..1, 1..2]), (vec![1..2], vec![0..1]));
    open(&mut buffer, 2, &[wrote(OTHER, 0, 0..1)]);
    assert_eq!(pick(&mut buffer, OTHER, &[0..1]), (vec![0..1], vec![]));
}

#[test]
fn a_page_counts_only_if_its_home_had_what_others_wrote_to_it() {
    for (serial, fine) in [(3, true), (4, false)] {
        let mut buffer = PushBuffer::default();
        keep(&mut buffer, 0, 0..4, 3);
        let unused = open(&mut buffer, 1, &[wrote(OTHER, 0, 0..4), wrote(THIRD, serial, 1..2)]);
        assert_eq!(unused, if fine { vec![] } else { vec![(OTHER, vec![1..2])] });
        let (found, left) = if fine { (vec![0..4], vec![]) } else { (vec![0..1, 2..4], vec![1..2]) };
        assert_eq!(pick(&mut buffer, OTHER, &[0..1, 1..2, 2..3, 3..4]), (found, left));
    }
}

#[test]
fn notices_end_what_is_kept_and_the_home_hears_what_was_of_no_use() {
    let mut buffer = PushBuffer::default();
    keep(&mut buffer, 0, 0..6, 0);
    open(&mut buffer, 1, &[]);
    buffer.void(&(0..2));
    assert_eq!(pick(&mut buffer, OTHER, &[0..1, 2..3]), (vec![2..3], vec![0..1]));
    // A page that nobody writes can be used in the next epoch too.
    assert_eq!(open(&mut buffer, 2, &[wrote(OTHER, 0, 3..5)]), [(OTHER, vec![0..2, 3..5])]);
    assert_eq!(pick(&mut buffer, OTHER, &[5..6]), (vec![5..6], vec![]));
}

#[test]
fn what_is_never_used_is_given_up() {
    let mut buffer = PushBuffer::default();
    keep(&mut buffer, 0, 0..1, 0);
    let told: Vec<_> = (1..20).flat_map(|epoch| open(&mut buffer, epoch, &[])).collect();
    assert_eq!(told, [(OTHER, vec![0..1])]);
    assert!(buffer.is_empty());
}

#[test]
fn a_unit_counts_only_if_all_of_it_is_there() {
    let mut buffer = PushBuffer::default();
    keep(&mut buffer, 0, 0..7, 0);
    open(&mut buffer, 1, &[]);
    buffer.void(&(2..3));
    assert_eq!(pick(&mut buffer, OTHER, &[0..2, 2..4, 4..6, 6..8]), (vec![0..2, 4..6], vec![2..4, 6..8]));
    assert!(buffer.is_empty(), "of what is asked for nothing stays");
}

#[test]
fn memory_that_was_allocated_meanwhile_is_not_filled_with_what_was_there_before() {
    let mut buffer = PushBuffer::default();
    keep(&mut buffer, 0, 0..2, 0);
    buffer.on_allocation(0..1);
    open(&mut buffer, 1, &[]);
    buffer.on_allocation(1..2);
    assert!(buffer.is_empty());
}

#[test]
fn nobody_can_fill_the_stash() {
    let mut buffer = PushBuffer::default();
    let pages_of = |node: u16| u32::from(node) * 100..u32::from(node) * 100 + 60;
    for node in 0..100 {
        buffer.keep(
            NodeId(node),
            Push { runs: Runs::from_iter([pages_of(node)]), ..Push::default() },
            &vec![0; 60 * PAGE_BYTES],
        );
    }
    open(&mut buffer, 1, &[]);
    let mut pushed = Vec::new();
    (0..100).for_each(|node| buffer.pick(NodeId(node), &[pages_of(node)], &mut pushed, &mut Vec::new()));
    assert_eq!(pushed.iter().map(|run| run.pages.len()).sum::<usize>(), 1024 / 60 * 60);
}

/// A home, its reader in `epoch`, and what the home sends at the end of it after it has written page 0.
fn written(bench: &mut Bench, epoch: u32, asked: bool) -> Vec<Range<PageNo>> {
    written_of(bench, 0..1, epoch, asked)
}

/// As [`written`], of these pages.
fn written_of(bench: &mut Bench, pages: Range<PageNo>, epoch: u32, asked: bool) -> Vec<Range<PageNo>> {
    if asked {
        bench.copy_out(pages.clone());
        bench.step(|table, _, _| table.note_reader(std::slice::from_ref(&pages), OTHER, epoch));
    }
    bench.memory.written = pages.collect();
    assert!(!bench.close().is_empty(), "epoch {epoch}");
    let mut pushes = Pushes::new(60);
    bench.step(|table, cx, _| table.pushes(cx, epoch, &mut pushes));
    let sent: Vec<_> = pushes.into_messages().flat_map(|(_, parts)| parts).flat_map(|(_, runs)| runs).collect();
    // Whoever is sent a page holds it.
    sent.iter().for_each(|run| bench.copy_out(run.clone()));
    bench.open();
    sent
}

fn home() -> Bench {
    let mut bench = Bench::new(ME, true);
    bench.fault(0, Access::Write);
    bench
}

/// A home in a program that has locks between its barriers.
fn after_locks() -> Bench {
    let mut bench = home();
    (0..2).for_each(|_| bench.sync_phase.close());
    bench.sync_phase.open();
    bench.sync_phase.close();
    bench.sync_phase.open();
    (0..2).for_each(|_| bench.sync_phase.close());
    bench.sync_phase.open();
    bench
}

#[test]
fn a_page_is_sent_unasked_when_it_was_asked_for_and_then_written_or_after_two_such_epochs_where_there_are_locks() {
    let mut bench = home();
    let sent: Vec<bool> = (0..6).map(|epoch| !written(&mut bench, epoch, epoch < 1).is_empty()).collect();
    assert_eq!(sent, [true; 6]);
    let mut bench = after_locks();
    let sent: Vec<bool> = (0..6).map(|epoch| !written(&mut bench, epoch, epoch < 3).is_empty()).collect();
    assert_eq!(sent, [false, false, true, true, true, true]);
}

/// How many of 40 pages, all written in each epoch, are sent at its end after these were asked for.
fn sent_of_many<const N: usize>(asked: [&[Range<PageNo>]; N]) -> [usize; N] {
    let mut bench = Bench::with_shape(ME, true, |shape| shape.pages = 40);
    (0..40).for_each(|page| drop(bench.fault(page, Access::Write)));
    let mut epoch = 0..;
    asked.map(|asked| {
        let epoch = epoch.next().unwrap();
        bench.copy_out(0..40);
        for run in asked {
            bench.step(|table, _, _| table.note_reader(std::slice::from_ref(run), OTHER, epoch));
        }
        written_of(&mut bench, 0..40, epoch, false).iter().map(ExactSizeIterator::len).sum()
    })
}

#[test]
fn few_pages_of_a_chunk_are_sent_after_one_question() {
    assert_eq!(sent_of_many([&[0..40], &[0..40], &[8..40], &[]]), [0, 8, 40, 40]);
}

#[test]
fn of_many_pages_no_new_reader_is_remembered() {
    assert_eq!(sent_of_many([&[4..5, 9..10], &[]]), [2, 2]);
    assert_eq!(sent_of_many([&[4..6], &[]]), [0, 0], "the second may have been asked for along with the first");
    let each: Vec<Range<PageNo>> = (0..20).map(|page| page..page + 1).collect();
    assert_eq!(sent_of_many([&each, &[]]), [8, 8]);
}

#[test]
fn a_new_readers_only_question_does_not_count_where_there_are_locks() {
    let mut bench = after_locks();
    let sent = (0..4).map(|epoch| {
        bench.copy_out(0..1);
        written(&mut bench, epoch, epoch < 2).len()
    });
    assert_eq!(sent.sum::<usize>(), 0, "of two questions the first did not count");
}

#[test]
fn a_page_that_is_told_of_and_was_probably_not_written_is_not_sent() {
    let mut bench = home();
    let mut sent = |epoch, asked: bool, written: bool| {
        if asked {
            bench.copy_out(0..1);
            bench.step(|table, _, _| table.note_reader(&[0..1], OTHER, epoch));
        }
        bench.memory.sample += u32::from(written);
        bench.memory.written = vec![0];
        assert_eq!(bench.close_having_seen(&[0..1]), [(0..1, ME, false)], "the note was left, and counts");
        let mut pushes = Pushes::new(60);
        bench.step(|table, cx, _| table.pushes(cx, epoch, &mut pushes));
        let sends = pushes.into_messages().count() == 1;
        if sends {
            bench.copy_out(0..1);
        }
        bench.open();
        sends
    };
    let steps = [(true, true), (false, true), (false, false), (true, true), (false, true)];
    let sent = steps.into_iter().enumerate().map(|(epoch, (asked, written))| sent(epoch as u32, asked, written));
    assert_eq!(sent.collect::<Vec<_>>(), [true, true, false, true, true]);
}

#[test]
fn what_was_sent_in_vain_is_asked_for_more_often_before_it_is_sent_again() {
    let mut bench = after_locks();
    (0..3).for_each(|epoch| drop(written(&mut bench, epoch, true)));
    bench.step(|table, _, _| table.on_unused(&(0..1), OTHER));
    let sent: Vec<bool> = (3..9).map(|epoch| !written(&mut bench, epoch, true).is_empty()).collect();
    assert_eq!(sent, [false, false, false, true, false, false], "the question after it says that it did not come");
}

#[test]
fn a_chunk_in_which_much_was_of_no_use_wants_more_questions_of_readers_that_it_does_not_know() {
    let mut bench = after_locks();
    for epoch in 0..7 {
        if !written(&mut bench, epoch, true).is_empty() {
            bench.step(|table, _, _| table.on_unused(&(0..1), OTHER));
        }
    }
    let sent = (7..11).map(|epoch| {
        bench.copy_out(0..1);
        bench.step(|table, _, _| table.note_reader(&[0..1], THIRD, epoch));
        !written(&mut bench, epoch, false).is_empty()
    });
    assert_eq!(sent.collect::<Vec<_>>(), [false, false, false, true], "four questions instead of two");
}

#[test]
fn a_question_of_before_says_nothing_of_what_was_sent_since() {
    let mut bench = after_locks();
    (0..3).for_each(|epoch| drop(written(&mut bench, epoch, true)));
    bench.step(|table, _, _| table.note_reader(&[0..1], OTHER, 2));
    assert_eq!(written(&mut bench, 3, false), [0..1]);
}

#[test]
fn a_page_that_others_write_too_is_not_sent() {
    let mut bench = home();
    for epoch in 0..5 {
        bench.step(|table, cx, _| table.on_diff(cx, 0, &[])).unwrap();
        assert_eq!(written(&mut bench, epoch, true), []);
    }
}
