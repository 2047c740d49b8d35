//! Home pages that are compared, of which there are few.

use super::*;

/// A home of 40 pages, all mapped, of which another node holds page 0.
fn home() -> Bench {
    let mut bench = Bench::with_shape(ME, true, |shape| shape.pages = 40);
    (0..40).for_each(|page| assert_eq!(bench.fault(page, Access::Write), Fault::Mapped));
    bench.copy_out(0..1);
    bench
}

/// Page 0 is written or not, and a barrier comes; the other node fetches the page again if it was told. Gives whether
/// it was, what the close called, and what the copying out.
fn epoch(bench: &mut Bench, written: bool) -> (bool, Vec<String>, Vec<String>) {
    if written {
        bench.memory.written = vec![0];
    }
    bench.memory.unchanged = !written;
    let noted = !bench.memory.written.is_empty();
    let told = !bench.close_having_seen(if noted { &[0..1] } else { &[] }).is_empty();
    let closing = bench.memory.calls.clone();
    let mut copying = Vec::new();
    if told {
        bench.copy_out(0..1);
        copying = bench.memory.calls.clone();
    }
    bench.open();
    (told, closing, copying)
}

fn calls(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{name} 0..1")).collect()
}

/// The same after two epochs in which page 0 was written.
fn compared() -> Bench {
    let mut bench = home();
    assert_eq!(epoch(&mut bench, true), (true, calls(&["collect"]), calls(&["copy_out"])), "it may be the only time");
    assert_eq!(epoch(&mut bench, true), (true, calls(&["make_twin"]), calls(&["copy_twin"])));
    bench
}

#[test]
fn a_page_that_is_written_in_every_other_epoch_stays_writable_and_others_hear_of_it_when_it_was_written() {
    let mut bench = compared();
    for _ in 0..60 {
        assert_eq!(epoch(&mut bench, false), (false, calls(&["diff"]), vec![]));
        assert_eq!(epoch(&mut bench, true), (true, calls(&["diff"]), calls(&["copy_twin"])));
    }
}

#[test]
fn pages_beside_it_are_copied_out_as_they_are() {
    let mut bench = compared();
    bench.copy_out(0..3);
    assert_eq!(bench.memory.calls[1..], ["copy_twin 0..1", "copy_out 1..2", "copy_out 2..3"]);
}

#[test]
fn a_page_that_is_compared_in_vain_again_and_again_is_protected_and_told_of_once() {
    let mut bench = compared();
    let vain: Vec<_> = (0..40).map(|_| epoch(&mut bench, false)).take_while(|(told, _, _)| !told).collect();
    assert!((3..10).contains(&vain.len()), "{}", vain.len());
    assert!(!bench.memory.has_twin(0..1));
    assert_eq!(bench.close_having_seen(&[]), []);
}

#[test]
fn a_diff_of_another_node_ends_it_for_a_while() {
    let mut bench = compared();
    bench.step(|table, cx, _| table.on_diff(cx, 0, &[1])).unwrap();
    assert_eq!(bench.memory.calls, ["drop_twin 0..1", "apply 0..1"], "or the diff would not be in what others get");
    assert_eq!(epoch(&mut bench, false), (true, calls(&["collect"]), calls(&["copy_out"])), "its note counts");
    let again = (0..10).take_while(|_| epoch(&mut bench, true).1 == calls(&["collect"])).count();
    assert_eq!(again, 1);
}

#[test]
fn an_epoch_with_locks_ends_it() {
    let mut bench = compared();
    bench.close_having_seen(&[0..1]);
    bench.close_having_seen(&[0..1]);
    assert_eq!(bench.memory.calls, ["drop_twin 0..1", "collect 0..1"]);
}

#[test]
fn it_ends_when_nobody_holds_the_page_and_goes_on_with_the_next_copy() {
    let mut bench = compared();
    bench.memory.written = vec![0];
    assert_eq!(bench.close_having_seen(&[0..1]), [(0..1, ME, false)]);
    bench.open();
    assert!(!bench.memory.has_twin(0..1), "nobody has fetched it meanwhile");
    bench.copy_out(0..1);
    assert_eq!(bench.memory.calls, ["regard 0..1", "make_twin 0..1", "copy_twin 0..1"]);
    assert_eq!(epoch(&mut bench, false), (false, calls(&["diff"]), vec![]));
}

#[test]
fn where_others_take_pages_by_themselves_none_is_compared() {
    let mut bench = home();
    bench.memory.offers = true;
    for _ in 0..10 {
        assert!(!epoch(&mut bench, true).1.contains(&"make_twin 0..1".to_string()));
    }
}

#[test]
fn freed_memory_keeps_no_twin() {
    let mut bench = compared();
    bench.step(|table, cx, flushed| table.free(cx, flushed));
    assert!(!bench.memory.has_twin(0..1));
}
