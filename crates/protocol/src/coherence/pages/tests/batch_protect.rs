//! Home pages that are protected along with their neighbours.

use super::*;

/// The home of 64 mapped pages, in an epoch without locks.
fn bench() -> Bench {
    let mut b = Bench::with_shape(ME, true, |shape| shape.pages = 64);
    (0..64).for_each(|page| drop(b.fault(page, Access::Write)));
    b.close();
    b.open();
    b
}

/// What another node's copy of this page makes the home do first.
fn first_call(b: &mut Bench, page: PageNo) -> String {
    b.copy_out(page..page + 1);
    b.memory.calls[0].clone()
}

#[test]
fn neighbours_of_pages_that_are_asked_for_one_by_one_are_protected_with_them() {
    let mut b = bench();
    assert_eq!(first_call(&mut b, 30), "protect 30..31", "one page may be the only one");
    assert_eq!(first_call(&mut b, 10), "protect 9..12");
    assert_eq!(first_call(&mut b, 11), "regard 11..12");
    assert_eq!(first_call(&mut b, 20), "protect 18..23", "more, since that was of use");
    b.memory.written = vec![9, 11];
    assert_eq!(b.close(), [(11..12, ME, false)], "whoever holds a copy hears of it");
}

#[test]
fn pages_that_others_hold_are_not_protected_along_with_others() {
    let mut b = bench();
    b.copy_out(20..21);
    for page in (0..64).filter(|page| page % 7 == 1) {
        b.copy_out(page..page + 1);
        let protected = b.memory.calls.iter().find_map(|call| call.strip_prefix("protect "));
        let (start, end) = protected.unwrap_or("0..0").split_once("..").unwrap();
        let run = start.parse::<PageNo>().unwrap()..end.parse().unwrap();
        assert!(!run.contains(&20), "{run:?}");
    }
}

#[test]
fn what_was_protected_along_counts_for_one_epoch() {
    let mut b = bench();
    b.copy_out(30..31);
    b.copy_out(10..11);
    b.close();
    b.open();
    assert_eq!(first_call(&mut b, 11), "protect 11..12");
}

#[test]
fn in_epochs_with_locks_each_page_is_protected_by_itself() {
    let mut b = bench();
    b.close();
    b.close();
    for page in [30, 10, 11] {
        assert_eq!(first_call(&mut b, page), format!("protect {page}..{}", page + 1));
    }
}
