//! Messages between threads, some of whose inboxes are full.

use comem::{Comem, FlagId, Home, NodeId, ObjectOptions, Thread};
use std::sync::Barrier;

/// As many as an inbox takes.
const FULL: u32 = 4096;
/// What needs several datagrams, wherever it goes.
const LONG: usize = 100_000;

/// Node 0's first thread lets its inbox fill up and comes to a barrier. Its neighbour comes there only when it has got
/// one message, a short one or a long one, from another thread than those that filled the inbox, or from the same.
pub fn one_inbox_is_full(comem: &Comem) {
    let filled = Barrier::new(2);
    comem.parallel(|t| {
        for (bytes, by_other) in [(8, true), (LONG, true), (8, false), (LONG, false)] {
            match (t.node(), t.local_id()) {
                (NodeId(0), 0) => {
                    t.barrier();
                    let sum: u32 = (0..FULL).map(|_| number_of(t)).sum();
                    assert_eq!(sum, FULL * (FULL - 1) / 2);
                }
                (NodeId(0), _) => {
                    assert_eq!(t.receive().1.len(), bytes);
                    t.barrier();
                }
                (_, thread) => {
                    if thread == 0 {
                        fill(t);
                    }
                    filled.wait();
                    if (thread == 1) == by_other {
                        t.post(1, &vec![7; bytes]).expect("there is room");
                    }
                    t.barrier();
                }
            }
            t.barrier();
        }
    });
}

/// Both nodes end with more posted to each other than an inbox takes, and read nothing.
pub fn nobody_reads(comem: &Comem) {
    comem.parallel(|t| {
        for number in 0..FULL + 50 {
            t.post(1 - t.id(), &number.to_be_bytes()).expect("there is room");
        }
    });
}

/// Node 1 is at the end of the job when node 0 has posted more to it than an inbox takes.
pub fn one_reads_nothing(comem: &Comem) {
    comem.parallel(|t| {
        for number in (0..FULL + 50).filter(|_| t.id() == 0) {
            t.post(1, &number.to_be_bytes()).expect("there is room");
        }
    });
}

fn fill(t: &Thread) {
    for number in 0..FULL {
        t.post(0, &number.to_be_bytes()).expect("there is room");
    }
    t.flush_posts().expect("all arrive");
}

fn number_of(t: &Thread) -> u32 {
    u32::from_be_bytes(t.receive().1.try_into().expect("four bytes"))
}

/// Node 0 posts more than an inbox takes, and then wants what node 1 is home to; node 1 reads only when that is done.
pub fn posts_go_before_an_access(comem: &Comem) {
    let more: u32 = std::env::var("COMEM_TEST_MORE").expect("how many more").parse().expect("a number");
    let there = ObjectOptions { home: Home::On(NodeId(1)), ..ObjectOptions::default() };
    let array = comem.object_array_with::<u32>(1, &there).expect("an array");
    comem.parallel(|t| {
        if t.id() == 0 {
            for number in 0..FULL + more {
                t.post(1, &number.to_be_bytes()).expect("there is room");
            }
            array.write(t, 0, 5);
            t.flag_set(FlagId(1), 1);
        } else {
            t.flag_wait(FlagId(1), 1);
            assert_eq!(array.read(t, 0), 5);
            let sum: u32 = (0..FULL + more).map(|_| number_of(t)).sum();
            assert_eq!(sum, (FULL + more) * (FULL + more - 1) / 2);
        }
        t.barrier();
    });
}

/// A thread waits for a message, or for room for one, while a range is lent to it; its neighbour needs an element of
/// the same unit before it sends, or reads.
pub fn waits_while_lent(comem: &Comem) {
    let whole = ObjectOptions { unit_elements: 2, home: Home::On(NodeId(0)), ..ObjectOptions::default() };
    let array = comem.object_array_with::<u64>(2, &whole).expect("an array");
    comem.parallel(|t| {
        let (mine, other) = (t.id(), 1 - t.id());
        for round in 1..4 {
            t.barrier();
            if mine == 0 {
                // SAFETY: the first element is this thread's alone.
                unsafe {
                    array.range_mut(t, 0..1, |first| {
                        first[0] += 1;
                        t.flag_set(FlagId(round), 1);
                        assert_eq!(t.receive().1, [7]);
                        // More than an inbox and half a window take.
                        (0..3 * FULL).for_each(|n| t.post(other, &n.to_be_bytes()).expect("there is room"));
                        first[0] += 1;
                    });
                }
            } else {
                t.flag_wait(FlagId(round), 1);
                array.write(t, 1, array.read(t, 1) + 1);
                t.post(other, &[7]).expect("there is room");
                std::thread::sleep(std::time::Duration::from_millis(200));
                array.write(t, 1, array.read(t, 1) + 1);
                (0..3 * FULL).for_each(|_| drop(t.receive()));
            }
            t.barrier();
            assert_eq!([array.read(t, 0), array.read(t, 1)], [2 * round; 2]);
        }
    });
}
