//! Untracked pages that are touched.

use super::*;

const PAGES: PageNo = 32;

/// A page table whose pages are untracked: copies, or home pages that others hold.
fn bench(home: NodeId) -> Bench {
    let mut bench = Bench::with_shape(home, true, |shape| shape.pages = PAGES);
    if home == ME {
        (0..PAGES).for_each(|page| drop(bench.fault(page, Access::Write)));
        bench.copy_out(0..PAGES);
    } else {
        bench.fetch(0..PAGES);
    }
    bench.step(|table, cx, _| table.untrack_idle(cx, &(0..PAGES)));
    bench
}

fn touch(bench: &mut Bench, page: PageNo, access: Access, units: usize, stride: isize) -> Vec<String> {
    let plan = PrefetchPlan { units, stride, known: 1, claims: false };
    let fault = bench.step(|table, cx, _| table.fault(cx, Slot::thread(0), page, access, plan));
    assert_eq!(fault, Fault::Mapped, "without a message");
    bench.memory.calls.clone()
}

#[test]
fn copies_come_back_with_those_behind_them() {
    let mut b = bench(OTHER);
    assert_eq!(touch(&mut b, 2, Access::Read, 1, 1), ["map_read 2..18"]);
    assert_eq!(touch(&mut b, 20, Access::Write, 1, 1), ["map_write 20..21", "map_read 21..32"]);
    assert_eq!(touch(&mut b, 1, Access::Read, 1, 1), ["map_read 1..2"], "what is here ends it");
}

#[test]
fn they_come_back_as_a_thread_goes_through_them_with_a_stride() {
    for home in [ME, OTHER] {
        let mut b = bench(home);
        let mut back = touch(&mut b, 2, Access::Read, 3, 8);
        back.sort_unstable();
        assert_eq!(back, ["map_read 10..11", "map_read 18..19", "map_read 2..3"]);
        assert_eq!(touch(&mut b, 17, Access::Write, 8, -8), ["map_write 17..18", "map_read 9..10", "map_read 1..2"]);
        assert_eq!(touch(&mut b, 0, Access::Read, 4, 9).len(), 1, "what is here ends it");
    }
}

#[test]
fn nobody_looks_at_them_and_what_was_written_meanwhile_is_mapped_again() {
    let mut b = bench(OTHER);
    b.memory.calls.clear();
    assert_eq!(b.close(), []);
    assert!(b.memory.calls.is_empty(), "{:?}", b.memory.calls);
    let mut b = Bench::new(OTHER, true);
    b.fetch(0..3);
    b.memory.written = vec![1];
    b.step(|table, cx, _| table.untrack_idle(cx, &(0..3)));
    assert_eq!(b.memory.calls, ["unmap 0..3", "written 0..3", "map_write 1..2"]);
    assert_eq!(b.close(), [(1..2, OTHER, true)]);
}

#[test]
fn a_copy_that_lay_aside_when_it_ended_is_looked_at_when_it_is_here_again() {
    type End = fn(&mut PageTable, &mut Context<'_>, &mut Flushed);
    let ends: [(End, NodeId); 2] = [
        (|table, cx, flushed| table.invalidate(cx, &[0..1], flushed), OTHER),
        (|table, cx, _| table.migrate(cx, &(0..1), NodeId(3)), NodeId(3)),
    ];
    for (end, home) in ends {
        let mut b = bench(OTHER);
        b.step(end);
        assert!(!b.table.unit(0).is_here());
        b.fetch(0..1);
        b.memory.written = vec![0];
        assert_eq!(b.close(), [(0..1, home, true)]);
    }
}
