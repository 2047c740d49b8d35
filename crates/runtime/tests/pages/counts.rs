//! What a step costs, exactly. A job runs twice, with some steps and with more: the difference is what the steps cost.
//!
//! Where a node is kept from its processor for long, the others ask again, and that is counted too: what counts is the
//! least of a few runs.

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
        "many-puts" => many_puts(comem),
        "additions" => additions(comem),
        "items" => items(comem),
        "node-barriers" => (0..steps()).for_each(|_| comem.current().unwrap().node_barrier()),
        _ => return false,
    }
    true
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

#[test]
fn a_write_to_a_valid_page_raises_no_signal_where_the_kernel_notes_writes() {
    if !works("uffd-async", "a_write_to_a_valid_page_raises_no_signal_where_the_kernel_notes_writes") {
        return;
    }
    for engine in ["hlrc", "scope"] {
        let settings = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", "uffd-async")];
        let signals = |steps: &str| {
            counted(&job("writes-to-valid-pages", 2, &[&settings[..], &[(STEPS, steps)]].concat()), "signals")
        };
        assert_eq!(signals("0"), signals("50"), "{engine}");
    }
}

#[test]
fn pages_that_nobody_uses_for_long_are_laid_aside_where_the_kernel_notes_writes() {
    for backbone in ["shm", "udp"] {
        for detector in detectors() {
            let settings = [("COMEM_BACKBONE", backbone), ("COMEM_DETECTOR", detector)];
            let laid = counted(&job("idle-for-long", 2, &settings), "laid_aside");
            // Two pages, each with a copy.
            let expected = if detector == "uffd-async" { 4 } else { 0 };
            assert_eq!(laid, expected, "{backbone} {detector}");
        }
    }
}

#[test]
fn all_diffs_for_one_home_travel_in_one_message_or_in_none() {
    for (nodes, backbone) in [(2, "udp"), (4, "shm")] {
        let writers = nodes as u64 - 1;
        for detector in detectors() {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
            let of_diffs = if (backbone, detector) == ("shm", "uffd-async") { 0 } else { writers };
            let diffs = 20 * writers;
            let expected = [("messages_sent", 2 * writers + of_diffs), ("diffs_sent", diffs), ("diffs_applied", diffs)];
            costs("diffs-for-one-home", nodes, &settings, &expected);
        }
    }
}

#[test]
fn threads_of_a_node_that_fault_on_one_page_fetch_it_once() {
    for detector in detectors() {
        for backbone in ["udp", "shm"] {
            let settings = [
                ("COMEM_DETECTOR", detector),
                ("COMEM_BACKBONE", backbone),
                ("COMEM_THREADS", "2"),
                ("COMEM_PREFETCH", "off"),
            ];
            let outcome = job("threads-that-fault-together", 2, &settings);
            assert_eq!(counted(&outcome, "pages_fetched"), 64, "{detector}, {backbone}");
            // Under shm most are taken without being asked for.
            if backbone == "udp" {
                assert_eq!(counted(&outcome, "page_requests"), 64, "{detector}");
            }
        }
    }
}

#[test]
fn under_shm_a_page_that_was_asked_for_once_is_taken_without_asking_from_then_on() {
    if !works("uffd-async", "under_shm_a_page_that_was_asked_for_once_is_taken_without_asking_from_then_on") {
        return;
    }
    for engine in ["hlrc", "scope"] {
        let settings = [
            ("COMEM_ENGINE", engine),
            ("COMEM_BACKBONE", "shm"),
            ("COMEM_DETECTOR", "uffd-async"),
            ("COMEM_PREFETCH", "off"),
        ];
        let expected = [("pages_taken", 64 + 1), ("page_requests", 0), ("pages_fetched", 64 + 1)];
        costs("read-in-turn", 2, &settings, &expected);
    }
    let outcome = job("read-in-turn", 2, &[("COMEM_BACKBONE", "udp"), (STEPS, "3")]);
    assert_eq!(counted(&outcome, "pages_taken"), 0, "there is no table of offers");
}

#[test]
fn over_a_network_pages_that_are_read_whenever_their_home_has_written_them_come_without_being_asked_for() {
    for engine in ["hlrc", "scope"] {
        for detector in detectors() {
            let settings =
                [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp"), (STEPS, "20")];
            // What they hold is checked by who reads them. A node that loses its processor for long may find that they
            // are late.
            let (mut used, mut sent) = (0, 0);
            let mostly = (0..40).any(|_| {
                let outcome = job("read-in-turn", 2, &settings);
                (used, sent) = (counted(&outcome, "pages_pushed_used"), counted(&outcome, "pages_pushed"));
                used >= 12 * 60 && used * 4 >= sent * 3
            });
            assert!(mostly, "{engine}, {detector}: {used} of {sent} sent were used");
        }
        // Who sleeps has a socket of its own for them, unless the ports are counted.
        for extra in [("COMEM_WAIT", "spin"), ("COMEM_WAIT", "block"), ("COMEM_PORTS", "20000-32000")] {
            let settings =
                [("COMEM_ENGINE", engine), ("COMEM_BACKBONE", "udp"), ("COMEM_WAIT", "block"), (STEPS, "20"), extra];
            let mut used = 0;
            let mostly = (0..20).any(|_| {
                used = counted(&job("read-in-turn", 2, &settings), "pages_pushed_used");
                used >= 12 * 60
            });
            assert!(mostly, "{engine}, {extra:?}: {used} were used");
        }
        for wait in ["spin", "block"] {
            let harmed = [
                ("COMEM_ENGINE", engine),
                ("COMEM_BACKBONE", "udp"),
                ("COMEM_FAULTS", "drop=5%,dup=5%,reorder=10%"),
                ("COMEM_WAIT", wait),
                (STEPS, "20"),
            ];
            let outcome = job("read-in-turn", 2, &harmed);
            let (used, sent) = (counted(&outcome, "pages_pushed_used"), counted(&outcome, "pages_pushed"));
            assert!(used > 0 && used < sent, "{engine}, {wait}: {used} of {sent}, of which some were lost");
        }
        let outcome = job("read-in-turn", 2, &[("COMEM_ENGINE", engine), ("COMEM_BACKBONE", "shm"), (STEPS, "20")]);
        assert_eq!(counted(&outcome, "pages_pushed"), 0, "{engine}: nodes of one host take pages themselves");
    }
}

#[test]
fn over_a_network_the_pages_of_a_critical_section_come_with_its_lock() {
    // One page, homed at node 0, in the sections of nodes 0, 1 and 2 in turn. What two of three steps cost is a
    // request, until the page comes with the token.
    for (engine, asked) in [("hlrc", 0), ("scope", 20)] {
        for detector in detectors() {
            let requests = |steps: &str| {
                let fixed = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp")];
                let outcome = job("lock-in-turn", 3, &[&fixed[..], &[(STEPS, steps)]].concat());
                counted(&outcome, "page_requests")
            };
            // A node that loses its processor for long asks again.
            let (mut few, mut many) = (u64::MAX, u64::MAX);
            let exact = (0..10).any(|_| {
                (few, many) = (few.min(requests("30")), many.min(requests("60")));
                many == few + asked
            });
            assert!(exact, "{engine}, {detector}: {few} requests in 30 steps, {many} in 60");
        }
    }
    let harmed = [("COMEM_BACKBONE", "udp"), ("COMEM_FAULTS", "drop=5%,dup=5%,reorder=10%"), (STEPS, "60")];
    let outcome = job("lock-in-turn", 3, &harmed);
    assert!(counted(&outcome, "pages_pushed_used") > 0, "{:?}", outcome.stats);
}

#[test]
fn a_home_page_that_nobody_else_holds_costs_nothing_when_it_is_written() {
    for detector in detectors() {
        let settings = [("COMEM_DETECTOR", detector)];
        let expected = ["signals", "write_notices", "diffs_sent", "twins_made"].map(|name| (name, 0));
        costs("private-pages", 2, &settings, &expected);
    }
}

#[test]
fn no_home_moves_to_who_has_written_a_page_to_set_it_up_for_others() {
    for detector in detectors() {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_THREADS", "1")];
        let moved =
            |steps: &str| counted(&job("set-up", 2, &[&settings[..], &[(STEPS, steps)]].concat()), "migrations");
        assert_eq!((moved("0"), moved("1")), (4, 0), "{detector}");
    }
}

#[test]
fn what_a_region_under_msi_costs_is_booked() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1"), (STEPS, "20")];
        let outcome = job("written-in-turn", 2, &settings);
        for (node, stats) in &outcome.stats {
            let regions = stats["regions"].as_array().expect("regions");
            let region = regions.iter().find(|region| region["engine"] == "msi").expect("the region");
            let count = |name: &str| region[name].as_u64().unwrap_or(0);
            // The home has the page at first, and node 1 has it in the end.
            let expected = if *node == 0 { [9, 10] } else { [10, 9] };
            assert_eq!([count("pages_fetched"), count("invalidations")], expected, "{backbone}, node {node}: {region}");
            assert!(count("fetch_us") > 0, "{backbone}, node {node}: {region}");
        }
    }
}

#[test]
fn untouched_pages_are_their_first_writers_own_some_of_them_once_workers_have_begun() {
    for (detector, backbone) in detectors().into_iter().flat_map(|d| [(d, "udp"), (d, "shm")]) {
        for nodes in [2, 4] {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
            let counts = |outcome: &Outcome| ["pages_fetched", "diffs_sent"].map(|name| counted(outcome, name));
            let pages = 16 * nodes as u64;
            for role in ["untouched", "untouched-automatic"] {
                let run = |steps: &str| job(role, nodes, &[&settings[..], &[(STEPS, steps)]].concat());
                let late = role == "untouched";
                assert_eq!(counts(&run("0"))[1], if late { pages } else { 0 }, "{detector}, {backbone}, {role}");
                let own = run("1");
                assert_eq!(counts(&own), [0, 0], "{detector}, {backbone}, {role}");
                assert_eq!(counted(&own, "claimed"), pages, "{detector}, {backbone}, {role}");
                let tables = backbone == "shm" && detector == "uffd-async";
                let asks = counted(&own, "page_requests");
                assert_eq!(asks == 0, tables, "{detector}, {backbone}, {role}: who claims asks nobody");
                assert_eq!(counts(&run("2")), [pages * (nodes as u64 - 1), 0], "{detector}, {backbone}, {role}");
            }
        }
    }
}

#[test]
fn who_goes_through_memory_in_order_asks_in_long_runs_whoever_has_it() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
        let outcome = job("in-order", 2, &settings);
        // In growing runs up to 60 pages, first of its own and then of the other node's, in chunks of 512; twice 512
        // pages each.
        let faults = counted(&outcome, "signals");
        assert!(faults <= 2 * (4 + 2 * 512_u64.div_ceil(60) + 2), "{backbone}: {faults} signals");
    }
}

#[test]
fn who_asks_for_a_page_during_a_long_close_need_not_wait_for_its_end() {
    for engine in ["hlrc", "scope"] {
        let settings = [("COMEM_ENGINE", engine), ("COMEM_THREADS", "2"), ("COMEM_PREFETCH", "off")];
        // On a busy host the reader may not get a processor while the close lasts.
        let answered = (0..40).any(|_| {
            let outcome = job("long-close", 2, &settings);
            let of_node_0 = |name: &str| outcome.stats[&0]["pages"][name].as_u64().unwrap_or(0);
            assert!(of_node_0("slices") >= 24, "{engine}: {:?}", outcome.stats[&0]);
            of_node_0("between_slices") > 0
        });
        assert!(answered, "{engine}: no request was ever answered between two slices");
    }
}

#[test]
fn false_sharing_is_found_to_the_byte_and_true_sharing_is_none() {
    for (detector, backbone) in detectors().into_iter().flat_map(|d| [(d, "udp"), (d, "shm")]) {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone), (STEPS, "12")];
        let outcome = job("shared-falsely", 4, &settings);
        let found = &outcome.stats[&0]["regions"][0]["false_sharing"];
        let often = |page: &&serde_json::Value| page["times"].as_u64() > Some(6);
        let often: Vec<_> = found.as_array().unwrap().iter().filter(often).collect();
        let mut pages: Vec<_> = often.iter().map(|page| page["offset"].as_u64().unwrap() / 4096).collect();
        pages.sort_unstable();
        assert_eq!(pages, [0, 1, 2, 3, 4], "{detector}, {backbone}: {found}");
        for page in often {
            let nodes = page["nodes"].as_array().unwrap();
            assert!([1, 2, 3].iter().all(|node| nodes.contains(&(*node).into())), "{detector}, {backbone}: {found}");
        }
    }
}

#[test]
fn under_msi_false_sharing_is_found_by_those_who_write_in_turn() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_ENGINE", "msi"), ("COMEM_BACKBONE", backbone), (STEPS, "60")];
        let outcome = job("to-and-fro", 2, &settings);
        let found: Vec<(u64, u64)> = (outcome.stats.values())
            .flat_map(|stats| stats["regions"][0]["false_sharing"].as_array().unwrap().clone())
            .map(|page| (page["offset"].as_u64().unwrap(), page["nodes"][0].as_u64().unwrap()))
            .collect();
        assert!(!found.is_empty() && found.iter().all(|(offset, _)| *offset == 0), "{backbone}: {found:?}");
        let nodes: std::collections::BTreeSet<u64> = found.iter().map(|(_, node)| *node).collect();
        assert_eq!(nodes, [0, 1].into(), "{backbone}");
    }
}

#[test]
fn writes_that_are_not_looked_at_for_false_sharing_are_counted() {
    if !works("uffd-async", "writes_that_are_not_looked_at_for_false_sharing_are_counted") {
        return;
    }
    // A home keeps notes of so many pages that others have put into its memory.
    const NOTES: usize = 1 << 14;
    for (pages, unseen) in [(NOTES, 0), (NOTES + 216, 216)] {
        let place = [("COMEM_DETECTOR", "uffd-async"), ("COMEM_BACKBONE", "shm")];
        let outcome = job("many-puts", 2, &[&place[..], &[(STEPS, pages.to_string().as_str())]].concat());
        assert_eq!(outcome.stats[&0]["pages"]["sharing_unseen"], unseen, "{pages} pages");
    }
}
