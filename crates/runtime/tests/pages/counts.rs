//! What a step costs, exactly. A job runs twice, with some steps and with more: the difference is what the steps cost.
//!
//! Where a node is kept from its processor for long, the others ask again, and that is counted too: what counts is the
//! least of a few runs.

mod pages;

use crate::launcher::Outcome;
use crate::matrix::{counted, detectors, job, works};
use crate::order::many_locks;
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, PageEngine, PageSlice, RegionOptions};
use comem::{Comem, LockId, NodeId};
use std::sync::atomic::{AtomicUsize, Ordering};

const STEPS: &str = "COMEM_TEST_STEPS";

/// How many steps the role takes.
pub fn steps() -> usize {
    std::env::var(STEPS).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "barriers" => comem.parallel(|t| (0..steps()).for_each(|_| t.barrier())),
        "rendezvous" => comem.parallel(|t| (0..steps()).for_each(|_| t.checked_rendezvous().expect("all meet"))),
        "long-close" => a_long_close(comem),
        "locks-again" => locks_again(comem),
        "many-locks" => many_locks(comem),
        "lock-in-turn" => lock_in_turn(comem),
        "writes-to-valid-pages" => writes_to_valid_pages(comem),
        "diffs-for-one-home" => diffs_for_one_home(comem),
        "threads-that-fault-together" => threads_that_fault_together(comem),
        "private-pages" => private_pages(comem),
        "set-up" => set_up(comem),
        "idle-for-long" => crate::pages::idle_for_long(comem),
        "quiet" => quiet(comem),
        "in-order" => in_order(comem),
        "untouched" => untouched(comem, Home::Claimed),
        "untouched-automatic" => untouched(comem, Home::Automatic),
        "read-in-turn" => read_in_turn(comem),
        "written-in-turn" => written_in_turn(comem),
        "shared-falsely" => shared_falsely(comem),
        "to-and-fro" => to_and_fro(comem),
        "small-blocks-of-all" => {
            let block = || comem.alloc_all(64, &RegionOptions::default()).expect("there is room");
            (0..steps()).for_each(|_| assert!(!block().is_null()));
        }
        "small-blocks-beside-a-barrier" => small_blocks_beside_a_barrier(comem),
        "many-puts" => many_puts(comem),
        "additions" => additions(comem),
        "items" => items(comem),
        "node-barriers" => (0..steps()).for_each(|_| comem.current().unwrap().node_barrier()),
        _ => return false,
    }
    true
}

/// One thread of each node allocates while the other has come to a barrier, after the first block on node 0.
fn small_blocks_beside_a_barrier(comem: &Comem) {
    static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
    let soon = std::time::Duration::from_millis(100);
    comem.parallel(|t| {
        let allocates = t.id() % comem.threads_per_node() == 0;
        if allocates {
            if comem.node() != 0 {
                std::thread::sleep(3 * soon);
            }
            comem.alloc_all(64, &RegionOptions::default()).expect("there is room");
            ALLOCATED.store(1, Ordering::Release);
            std::thread::sleep(soon);
            comem.alloc_all(1 << 20, &RegionOptions::default()).expect("there is room");
        } else {
            while comem.node() == 0 && ALLOCATED.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
        }
        t.barrier();
    });
}

/// How many bytes of `slice`, whole pages, may be loaded from and not stored to, as the kernel says.
fn bytes_without_stores(slice: &PageSlice<u64>) -> usize {
    let start = slice.as_ptr().addr();
    let end = start + slice.len() * size_of::<u64>();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let ranges = maps.lines().filter_map(|line| line.split_once(' ')).filter(|(_, rest)| rest.starts_with("r--s"));
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    let parts = ranges.filter_map(|(range, _)| {
        let (first, last) = range.split_once('-')?;
        Some(number(last)?.min(end).saturating_sub(number(first)?.max(start)))
    });
    parts.sum()
}

/// The last node reads three tables of pages that node 0 has written, in order: nothing has a twin, and nothing is
/// looked at once it is quiet. Then both write some of it, and each finds what the other has written.
fn quiet(comem: &Comem) {
    const PAGES: usize = 3 * 512;
    let slice = homed_at_zero(comem, PAGES);
    let address = |page: usize| page * WORDS;
    comem.parallel(|t| {
        let reads = t.id() + 1 == t.threads();
        if t.id() == 0 {
            (0..PAGES).for_each(|page| slice.set(address(page), page as u64 + 1));
        }
        t.barrier();
        if reads {
            (0..PAGES).for_each(|page| assert_eq!(slice.get(address(page)), page as u64 + 1));
        }
        (0..100).for_each(|_| t.barrier());
        if steps() == 0 {
            if reads {
                assert_eq!(bytes_without_stores(&slice), PAGES * 4096, "all of it is quiet");
            }
            t.barrier();
            return;
        }
        for page in (t.id()..PAGES).step_by(PAGES / 7) {
            slice.set(address(page) + 1 + t.id(), 7);
        }
        t.barrier();
        for id in 0..t.threads() {
            for page in (id..PAGES).step_by(PAGES / 7) {
                assert_eq!(slice.get(address(page) + 1 + id), 7, "page {page} of thread {id}");
            }
        }
        (0..PAGES).for_each(|page| assert_eq!(slice.get(address(page)), page as u64 + 1));
        t.barrier();
    });
    give_back(comem, slice);
}

fn homed_at_zero(comem: &Comem, pages: usize) -> PageSlice<u64> {
    pages_of(comem, pages, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() })
}

/// Node 1 adds to a word whose home is node 0, of whose page it has a copy at first.
fn additions(comem: &Comem) {
    let slice = homed_at_zero(comem, 1);
    comem.parallel(|t| {
        if t.node() == NodeId(0) {
            slice.set(0, 5);
        }
        t.barrier();
        assert_eq!(slice.get(0), 5);
        t.barrier();
        let adds = t.id() + 1 == t.threads();
        (0..if adds { steps() } else { 0 }).for_each(|step| {
            assert_eq!(slice.fetch_add_relaxed(t, 0, 1), 5 + step as u64);
        });
        t.barrier();
        assert_eq!(slice.get(0), 5 + steps() as u64);
        t.barrier();
    });
    give_back(comem, slice);
}

/// Counts to which each thread adds the items that it gets.
fn items(comem: &Comem) {
    let slice = homed_at_zero(comem, 1);
    let total = 10_000 * steps();
    comem.parallel(|t| {
        t.barrier();
        for chunk in [1, 3, 0] {
            let (mut mine, mut sum) = (0, 0);
            t.for_dynamic(total, chunk, |items| {
                mine += items.len() as u64;
                sum += items.map(|item| item as u64).sum::<u64>();
            });
            slice.fetch_add_relaxed(t, 1, mine);
            slice.fetch_add_relaxed(t, 2, sum);
        }
        t.barrier();
        let all = total as u64;
        assert_eq!((slice.get(1), slice.get(2)), (3 * all, 3 * (all * all.saturating_sub(1) / 2)));
        t.barrier();
    });
    give_back(comem, slice);
}

/// Threads take a lock one after the other, and count under it.
fn lock_in_turn(comem: &Comem) {
    let slice = homed_at_zero(comem, 1);
    comem.parallel(|t| {
        t.barrier();
        for step in 0..steps() {
            if step % t.threads() == t.id() {
                t.locked(LockId(1), || slice.set(0, slice.get(0) + 1));
            }
            t.checked_rendezvous().unwrap();
        }
        t.barrier();
        assert_eq!(slice.get(0), steps() as u64);
        t.barrier();
    });
}

/// Each thread has a word of its own in the first page; in the second all count in one word, under a lock.
fn to_and_fro(comem: &Comem) {
    let slice = homed_at_zero(comem, 2);
    comem.parallel(|t| {
        for step in 0..steps() as u64 {
            slice.set(8 * t.id(), step + 1);
            t.locked(LockId(1), || slice.set(WORDS, slice.get(WORDS) + 1));
            t.barrier();
        }
        assert_eq!(slice.get(WORDS), (t.threads() * steps()) as u64);
        t.barrier();
    });
}

/// Ways in which threads other than the first, the home's, write a page: of its own writes the home knows the page
/// alone, and is mistaken in epochs with one other writer, more often on a busy machine.
fn share_a_page(t: &comem::Thread, slice: &PageSlice<u64>, way: usize, step: u64) {
    let (from, others, me) = (way * WORDS, t.threads() - 1, t.id() - 1);
    let count = |word: usize| t.locked(LockId(1), || slice.set(from + word, slice.get(from + word) + 1));
    let write = |words: &mut dyn Iterator<Item = usize>| words.for_each(|word| slice.set(from + word, step));
    match way {
        // Every third word: of a line each writes other ones than of the next.
        2 => write(&mut (me..WORDS).step_by(others)),
        // Borders within a line.
        3 => write(&mut (me * WORDS / others..(me + 1) * WORDS / others)),
        // Two count in a word, and one writes another.
        4 if me < 2 => count(0),
        4 => write(&mut (1..2)),
        // All count in one.
        _ => count(0),
    }
}

/// All write a word each, of one line, and of a line each; and all but one in other ways ([`share_a_page`]).
fn shared_falsely(comem: &Comem) {
    let slice = homed_at_zero(comem, 6);
    comem.parallel(|t| {
        for step in 1..=steps() as u64 {
            slice.set(t.id(), step);
            slice.set(WORDS + 64 * t.id(), step);
            if t.id() > 0 {
                (2..6).for_each(|way| share_a_page(t, &slice, way, step));
            }
            t.barrier();
        }
    });
}

/// The last thread writes a word of so many pages, which have their home at node 0.
fn many_puts(comem: &Comem) {
    let slice = homed_at_zero(comem, steps());
    comem.parallel(|t| {
        t.barrier();
        if t.id() + 1 == t.threads() {
            (0..steps()).for_each(|page| slice.set(page * WORDS, 1));
        }
        t.barrier();
    });
}

/// Threads write the same page under `msi` one after the other.
fn written_in_turn(comem: &Comem) {
    let options =
        RegionOptions { engine: Some(PageEngine::Msi), home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let slice = pages_of(comem, 1, &options);
    comem.parallel(|t| {
        for step in 0..steps() {
            if step % t.threads() == t.id() {
                slice.set(0, step as u64);
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// The last thread takes a lock again and again, and writes under it.
fn locks_again(comem: &Comem) {
    let slice = homed_at_zero(comem, 1);
    comem.parallel(|t| {
        if t.id() + 1 == t.threads() {
            t.locked(LockId(1), || slice.set(0, 1));
            t.locked(LockId(1), || slice.set(1, 1));
            (0..steps()).for_each(|step| t.locked(LockId(1), || slice.set(step % WORDS, step as u64)));
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// All nodes have a page valid, and then write to it, the home too.
fn writes_to_valid_pages(comem: &Comem) {
    let slice = homed_at_zero(comem, 8);
    comem.parallel(|t| {
        for node in 0..comem.nodes() {
            // In turns, for how many faults the home takes depends on who is first.
            if node == t.node().index() {
                (0..8).for_each(|page| assert_eq!(slice.get(page * WORDS), 0));
            }
            t.barrier();
        }
        for step in 0..steps() {
            (0..8).for_each(|page| slice.set(page * WORDS + t.id() * 8, step as u64));
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// Every node but the first writes pages of its own, all with their homes at node 0.
fn diffs_for_one_home(comem: &Comem) {
    const EACH: usize = 20;
    let slice = homed_at_zero(comem, EACH * comem.nodes());
    comem.parallel(|t| {
        let own = t.node().index() * EACH..(t.node().index() + 1) * EACH;
        own.clone().for_each(|page| assert_eq!(slice.get(page * WORDS), 0));
        t.barrier();
        for step in 1..=steps() {
            if t.node().index() > 0 {
                own.clone().for_each(|page| slice.set(page * WORDS + 5, step as u64));
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// The threads of node 1 read the same pages at the same moments.
fn threads_that_fault_together(comem: &Comem) {
    static ARRIVED: AtomicUsize = AtomicUsize::new(0);
    let slice = homed_at_zero(comem, 64);
    comem.parallel(|t| {
        if t.node().index() == 1 {
            for page in 0..64 {
                ARRIVED.fetch_add(1, Ordering::AcqRel);
                while ARRIVED.load(Ordering::Acquire) < (page + 1) * comem.threads_per_node() {
                    std::hint::spin_loop();
                }
                assert_eq!(slice.get(page * WORDS + t.local_id()), 0);
            }
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// Every node writes pages whose homes it has, and that nobody else looks at.
fn private_pages(comem: &Comem) {
    let slice = pages_of(comem, 4 * comem.nodes(), &RegionOptions { home: Home::Block, ..RegionOptions::default() });
    comem.parallel(|t| {
        let own = t.node().index() * 4..(t.node().index() + 1) * 4;
        own.clone().for_each(|page| slice.set(page * WORDS + t.local_id(), 1));
        t.barrier();
        for step in 0..steps() {
            own.clone().for_each(|page| slice.set(page * WORDS + t.local_id(), step as u64));
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// Node 0 writes pages whose homes are at node 1: with no steps as if they were its own, else as set-up for others.
fn set_up(comem: &Comem) {
    let slice = pages_of(comem, 8, &RegionOptions { home: Home::Claimed, ..RegionOptions::default() });
    comem.parallel(|t| {
        if t.node().index() == 0 {
            (0..8).for_each(|page| slice.set(page * WORDS, 7));
            if steps() > 0 {
                t.end_setup();
            }
        }
        t.barrier();
        (0..8).for_each(|page| assert_eq!(slice.get(page * WORDS), 7));
        t.barrier();
    });
    give_back(comem, slice);
}

/// Every node writes pages that nobody has touched and whose homes by their layout are at the next node: with no steps
/// as before workers begin, else as their work, if that makes a difference.
fn untouched(comem: &Comem, homes: Home) {
    let (nodes, each) = (comem.nodes(), 16);
    let late = homes == Home::Claimed;
    let slice = pages_of(comem, each * nodes, &RegionOptions { home: homes, ..RegionOptions::default() });
    comem.parallel(|t| {
        if steps() > 0 && late {
            t.begin_work();
        }
        let next = (t.node().index() + 1) % nodes;
        (next * each..(next + 1) * each).for_each(|page| slice.set(page * WORDS, page as u64 + 1));
        t.barrier();
        if steps() > 1 {
            (0..each * nodes).for_each(|page| assert_eq!(slice.get(page * WORDS), page as u64 + 1));
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// Node 0 writes two chunks of its own and two of the other node's, which nobody has touched.
fn in_order(comem: &Comem) {
    const PAGES: usize = 4 * 512;
    let slice = pages_of(comem, PAGES, &RegionOptions { home: Home::Block, ..RegionOptions::default() });
    comem.parallel(|t| {
        if t.node().index() == 0 {
            (0..PAGES).for_each(|page| slice.set(page * WORDS, page as u64 + 1));
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// Node 0 writes its pages, and node 1 reads them all, one by one; then node 0 reads a page of node 1's.
fn read_in_turn(comem: &Comem) {
    const PAGES: usize = 64;
    let slice = homed_at_zero(comem, PAGES);
    let other = pages_of(comem, 1, &RegionOptions { home: Home::On(NodeId(1)), ..RegionOptions::default() });
    comem.parallel(|t| {
        for step in 1..=steps() {
            if t.node().index() == 0 {
                (0..PAGES).for_each(|page| slice.set(page * WORDS + step, (step * PAGES + page) as u64));
            }
            t.barrier();
            if t.node().index() == 1 {
                // In no order, not even in several that take turns, or pages would come in runs.
                for page in (0..PAGES).map(|i| (5 * i + 6 * i * i) % PAGES) {
                    assert_eq!(slice.get(page * WORDS + step), (step * PAGES + page) as u64, "step {step}");
                }
                other.set(step, step as u64);
            }
            t.barrier();
            assert_eq!(other.get(step), step as u64);
        }
    });
    give_back(comem, slice);
    give_back(comem, other);
}

/// Pages of 24 chunks, and as many more that are read one by one.
const MANY: usize = 24 * 512;

/// Node 0 writes much under a lock and lets it go. A thread of node 1 reads other pages of node 0's, one by one, while
/// another takes the lock and finds what was written.
fn a_long_close(comem: &Comem) {
    static READ: AtomicUsize = AtomicUsize::new(0);
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let options = |node| RegionOptions { home: Home::On(NodeId(node)), ..RegionOptions::default() };
    let (written, other) = (pages_of(comem, MANY, &options(1)), pages_of(comem, MANY, &options(0)));
    comem.parallel(|t| {
        if t.id() == 0 {
            let held = t.lock(LockId(0));
            (0..MANY).for_each(|page| written.set(page * WORDS, page as u64 + 1));
            drop(held);
        }
        // Barriers are releases too: the threads of node 1 wait for word by a message instead.
        match (t.node().index(), t.local_id()) {
            (0, 0) => {
                t.post(comem.threads_per_node(), b"written").expect("a message can be sent");
                // Nothing closes while a node is at a barrier.
                t.receive();
            }
            (1, 0) => {
                t.receive();
                READ.store(1, Ordering::Release);
                while READ.load(Ordering::Acquire) < 4 {
                    std::thread::yield_now();
                }
                let held = t.lock(LockId(0));
                TAKEN.store(1, Ordering::Release);
                t.post(0, b"taken").expect("a message can be sent");
                (0..MANY).step_by(37).for_each(|page| assert_eq!(written.get(page * WORDS), page as u64 + 1));
                drop(held);
            }
            (1, 1) => {
                while READ.load(Ordering::Acquire) < 1 {
                    std::thread::yield_now();
                }
                for page in 0..MANY {
                    assert_eq!(other.get(page * WORDS), 0);
                    READ.fetch_add(1, Ordering::AcqRel);
                    if TAKEN.load(Ordering::Acquire) == 1 {
                        break;
                    }
                }
            }
            _ => {}
        }
        t.barrier();
    });
    give_back(comem, other);
    give_back(comem, written);
}

fn messages(outcome: &Outcome) -> u64 {
    counted(outcome, "messages_sent")
}

/// Steps cost exactly so much each of every counter that is named. Beside other load a job's beginning and end may cost
/// a message or two more each time, or less; a step that cost one more would show twenty times.
#[track_caller]
pub fn costs(role: &str, nodes: usize, settings: &[(&str, &str)], expected: &[(&str, u64)]) {
    let mut least = [vec![u64::MAX; expected.len()], vec![u64::MAX; expected.len()]];
    let differs = |least: &[Vec<u64>; 2], which: usize| {
        let expected = least[0][which].saturating_add(20 * expected[which].1);
        least[1][which].abs_diff(expected)
    };
    for _ in 0..10 {
        for (least, steps) in least.iter_mut().zip(["10", "30"]) {
            let outcome = job(role, nodes, &[settings, &[(STEPS, steps)]].concat());
            for (least, (name, _)) in least.iter_mut().zip(expected) {
                *least = (*least).min(counted(&outcome, name));
            }
        }
        if (0..expected.len()).all(|which| differs(&least, which) == 0) {
            return;
        }
    }
    for (which, (name, each)) in expected.iter().enumerate() {
        let (few, many) = (least[0][which], least[1][which]);
        assert!(
            differs(&least, which) <= 2,
            "{role}, {nodes} nodes, {settings:?}: {name} {few} for 10 steps and {many} for 30, expected {each} each"
        );
    }
}

#[test]
fn a_barrier_costs_one_message_each_way_a_node() {
    for nodes in [2, 3, 4] {
        for backbone in ["udp", "shm"] {
            let settings = [("COMEM_THREADS", "2"), ("COMEM_BACKBONE", backbone)];
            costs("barriers", nodes, &settings, &[("messages_sent", 2 * (nodes as u64 - 1))]);
        }
    }
    costs("rendezvous", 3, &[], &[("messages_sent", 4)]);
}

#[test]
fn a_small_allocation_of_all_nodes_sends_nothing() {
    for engine in ["hlrc", "msi"] {
        costs("small-blocks-of-all", 3, &[("COMEM_ENGINE", engine)], &[("messages_sent", 0)]);
    }
}

#[test]
fn a_thread_may_allocate_while_another_waits_at_a_barrier() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_THREADS", "2"), ("COMEM_BACKBONE", backbone)];
        job("small-blocks-beside-a-barrier", 2, &[&settings[..], &[(STEPS, "1")]].concat());
    }
}

#[test]
fn an_atomic_operation_costs_a_request_and_a_reply_or_nothing() {
    for (engine, backbone) in [("hlrc", "udp"), ("scope", "udp"), ("msi", "udp"), ("hlrc", "shm"), ("scope", "shm")] {
        for detector in detectors() {
            let settings = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
            // Under shm the home's memory can be changed from here where there is a table of who may.
            let there = engine == "msi" || (backbone, detector) == ("shm", "uffd-async");
            let others = ["signals", "write_notices", "page_requests", "diffs_sent", "invalidations"];
            let mut expected = vec![("messages_sent", if there { 0 } else { 2 })];
            expected.extend(others.map(|name| (name, 0)));
            costs("additions", 2, &settings, &expected);
        }
    }
}

#[test]
fn a_barrier_of_nodes_costs_what_one_of_threads_does() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "2")];
        costs("node-barriers", 3, &settings, &[("messages_sent", 4)]);
    }
}

#[test]
fn items_of_a_loop_are_dealt_out_once_and_most_without_a_message() {
    for (nodes, backbone) in [(1, "udp"), (2, "udp"), (2, "shm"), (4, "udp")] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "2")];
        let run = |steps| messages(&job("items", nodes, &[&settings[..], &[(STEPS, steps)]].concat()));
        let (none, sent) = (run("0"), run("3"));
        assert!(sent < none + 3 * 30_000 / 10, "{sent} messages for 90,000 items, {none} for none");
    }
}

#[test]
fn taking_a_lock_again_sends_nothing_however_much_is_written_under_it() {
    for engine in ["hlrc", "scope"] {
        for detector in detectors() {
            let settings = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_THREADS", "2")];
            costs("locks-again", 2, &settings, &[("messages_sent", 0), ("signals", 0)]);
        }
    }
}

#[test]
fn nodes_that_share_cores_take_published_tokens_without_a_message() {
    if !works("uffd-async", "nodes_that_share_cores_take_published_tokens_without_a_message") {
        return;
    }
    let settings = [("COMEM_DETECTOR", "uffd-async"), ("COMEM_BACKBONE", "shm"), ("COMEM_WAIT", "block")];
    let of_rendezvous = 2 * (3 - 1);
    costs("lock-in-turn", 3, &settings, &[("messages_sent", of_rendezvous), ("lock_taken", 1)]);
}

#[test]
fn no_request_for_a_lock_is_kept_waiting_where_nodes_take_no_turns() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_LOCK_TURNS", "off"), ("COMEM_BACKBONE", backbone)];
        let outcome = job("many-locks", 2, &settings);
        let counted = |name| outcome.stats.values().map(|s| s[name].as_u64().unwrap()).sum::<u64>();
        assert!(counted("lock_remote") > 0, "{:?}", outcome.stats);
        assert_eq!((counted("lock_turns"), counted("lock_kept")), (0, 0), "{:?}", outcome.stats);
    }
}
