//! Notes that are left, and when they are not.

use super::*;

/// A home of four pages, all of them mapped and written.
fn home() -> Bench {
    let mut bench = Bench::new(ME, true);
    (0..4).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
    bench
}

/// A copy of a page that was written once.
fn copy() -> Bench {
    let mut bench = Bench::new(OTHER, true);
    bench.fetch(0..1);
    let calls = epoch_of_copy(&mut bench, true).1;
    assert_eq!(calls, ["collect 0..1", "diff 0..1"], "it may be the only time");
    bench
}

/// Another node copies page 0, which is written then or not, and a barrier comes. Gives whether others were told, and
/// whether the note was taken.
fn epoch(bench: &mut Bench, copied: bool, written: bool) -> (bool, bool) {
    if copied {
        bench.copy_out(0..1);
    }
    if written {
        bench.memory.sample += 1;
        bench.memory.written = vec![0];
    }
    let told_and_taken = close(bench);
    bench.open();
    told_and_taken
}

/// A close; whether others were told of page 0, and whether its note was taken.
fn close(bench: &mut Bench) -> (bool, bool) {
    let noted = !bench.memory.written.is_empty();
    let told = !bench.close_having_seen(if noted { &[0..1] } else { &[] }).is_empty();
    (told, noted && bench.memory.written.is_empty())
}

#[test]
fn a_home_page_that_is_written_in_every_epoch_stays_writable() {
    let mut bench = home();
    for _ in 0..100 {
        assert_eq!(epoch(&mut bench, true, true), (true, false));
    }
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["regard 0..1", "copy_out 0..1"], "nor is it protected when it is copied");
}

#[test]
fn a_home_page_that_is_written_and_read_in_turn_stays_writable_where_others_can_take_it() {
    let mut bench = home();
    bench.memory.offers = true;
    epoch(&mut bench, true, true);
    for _ in 0..30 {
        assert_eq!(epoch(&mut bench, true, false), (true, false), "it counts as written while others hold it");
        assert_eq!(epoch(&mut bench, false, true), (false, false), "and then concerns nobody");
    }
}

#[test]
fn where_others_must_ask_a_home_page_that_is_found_unchanged_once_is_protected() {
    let mut bench = home();
    epoch(&mut bench, true, true);
    assert_eq!(epoch(&mut bench, true, false), (true, true), "its note counted for nothing");
    assert_eq!(epoch(&mut bench, true, true), (true, true), "and is taken now");
}

#[test]
fn notes_that_were_left_in_vain_are_taken_and_left_less_and_less_often() {
    let mut bench = home();
    let mut vain = 0;
    for _ in 0..1_000 {
        epoch(&mut bench, true, true);
        vain += (0..4).filter(|_| epoch(&mut bench, true, false).0).count();
    }
    assert!((2..160).contains(&vain), "{vain}");
}

#[test]
fn an_epoch_with_locks_leaves_no_notes_and_none_are_left_soon_after_it() {
    let mut bench = home();
    let until_left = |bench: &mut Bench| {
        bench.copy_out(0..1);
        bench.close();
        assert_eq!(epoch(bench, true, true), (true, true), "the second close of its epoch");
        (0..100).find(|_| epoch(bench, true, true) == (true, false)).unwrap()
    };
    assert!((1..4).contains(&until_left(&mut bench)), "a program may begin with a lock");
    assert!((9..20).contains(&until_left(&mut bench)), "but this one has locks between its barriers");
    assert!((9..20).contains(&until_left(&mut bench)));
}

/// This node's copy of page 0 is written or not, and a barrier comes. Gives whether others were told, and what the
/// close has called.
fn epoch_of_copy(bench: &mut Bench, written: bool) -> (bool, Vec<String>) {
    if written {
        bench.memory.written = vec![0];
    }
    bench.memory.unchanged = !written;
    let noted = !bench.memory.written.is_empty();
    let told = !bench.close_having_seen(if noted { &[0..1] } else { &[] }).is_empty();
    let calls = bench.memory.calls.clone();
    bench.open();
    (told, calls)
}

#[test]
fn a_copy_that_is_written_in_every_other_epoch_stays_writable_and_is_compared_in_each() {
    let mut bench = copy();
    for _ in 0..50 {
        assert_eq!(epoch_of_copy(&mut bench, true), (true, vec!["diff 0..1".to_string()]));
        assert_eq!(
            epoch_of_copy(&mut bench, false),
            (false, vec!["diff 0..1".to_string()]),
            "nobody is told of nothing"
        );
    }
}

#[test]
fn a_copy_that_is_compared_in_vain_again_and_again_is_protected() {
    let mut bench = copy();
    let mut vain = 0;
    for _ in 0..200 {
        assert!(epoch_of_copy(&mut bench, true).0);
        vain += (0..8).filter(|_| !epoch_of_copy(&mut bench, false).1.is_empty()).count();
    }
    assert!((3..80).contains(&vain), "{vain}");
}

#[test]
fn a_copy_that_is_written_now_and_then_is_compared_once_for_each_time() {
    let mut bench = copy();
    for _ in 0..50 {
        (0..3).for_each(|_| assert_eq!(epoch_of_copy(&mut bench, false), (false, vec![])));
        let calls = ["collect 0..1", "diff 0..1"].map(str::to_string);
        assert_eq!(epoch_of_copy(&mut bench, true), (true, calls.to_vec()));
    }
}

/// As [`epoch`], of an epoch in which another node has written the page too.
fn epoch_beside_others(bench: &mut Bench, written: bool, in_place: bool) -> (bool, bool) {
    bench.copy_out(0..1);
    bench.memory.sample += 1;
    if written {
        bench.memory.written = vec![0];
    }
    let told_and_taken = close(bench);
    bench.step(|table, cx, flushed| match in_place {
        true => table.invalidate_in_place(cx, std::slice::from_ref(&(0..1)), flushed),
        false => table.invalidate(cx, std::slice::from_ref(&(0..1)), flushed),
    });
    bench.open();
    told_and_taken
}

#[test]
fn a_home_page_that_others_write_and_its_home_now_and_then_is_protected() {
    let mut bench = home();
    for round in 0..20 {
        let others = |bench: &mut Bench| epoch_beside_others(bench, false, round % 2 == 0);
        (0..3).for_each(|_| assert_eq!(others(&mut bench), (false, false)));
        assert_eq!(epoch(&mut bench, true, true), (true, true), "that it looks different says nothing");
    }
}

#[test]
fn a_home_page_that_others_write_in_the_same_epochs_stays_writable() {
    let mut bench = home();
    for round in 0..50 {
        assert_eq!(epoch_beside_others(&mut bench, true, round % 2 == 0), (true, false));
    }
}
