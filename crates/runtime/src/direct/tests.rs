//! Nodes within one process, each with lines memory of its own, and threads whose accesses are checked as compiled code
//! checks them.

#[path = "emulated_tests.rs"]
mod emulated;

use super::emulated::Emulated;
use super::here::{Here, Span};
use super::locked;
use super::miss::run;
use super::one_by_one::OneByOne;
use super::pause::Pause;
use super::shm::{Memories, Refusal, Shm};
use crate::counters::Counters;
use comem_memory::lines::{Extent, GRAIN_BYTES, GRAIN_LINES, HazardArea, Lines, LinesMemory, Table, barrier};
use comem_protocol::coherence::direct::directory::Layout;
use comem_protocol::coherence::direct::miss::Site;
use comem_protocol::coherence::direct::one_sided::{Place, Segment};
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, MAGIC, OneSided, Outcome, UNIT_BYTES, Want};
use comem_protocol::ids::NodeId;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Barrier, OnceLock};

/// Homes take turns, grain by grain, as regions are dealt out.
const GRAINS: usize = 4;

struct Nodes {
    of: Vec<Lines>,
    unit_lines: usize,
    has_barrier: bool,
    lost: AtomicBool,
    /// Where operations are emulated.
    servers: Option<emulated::Servers>,
}

impl Memories for Nodes {
    fn memory(&self, node: NodeId) -> Option<&LinesMemory> {
        self.of.get(node.index()).map(|lines| &**lines)
    }
}

impl Nodes {
    fn new(nodes: usize, unit_bytes: usize) -> Nodes {
        Nodes::with(nodes, unit_bytes, barrier::register())
    }

    fn with(nodes: usize, unit_bytes: usize, has_barrier: bool) -> Nodes {
        static NEXT: AtomicUsize = AtomicUsize::new(0x3b00_0000_0000);
        let layout = Layout { home: NodeId(0), nodes };
        let extent = |_| {
            let base = NEXT.fetch_add(1 << 30, Ordering::Relaxed);
            Extent { base, bytes: GRAINS * GRAIN_BYTES, wide_words: layout.wide_words() }
        };
        let of: Vec<_> = (0..nodes).map(|node| Lines::new(extent(node), has_barrier).expect("lines memory")).collect();
        for (node, lines) in of.iter().enumerate() {
            for grain in 0..GRAINS {
                lines.open_grain(grain, grain % nodes == node).expect("a grain");
                lines.set_unit_lines(grain, unit_bytes / LINE_BYTES);
            }
        }
        // Whose store is under way is said there.
        HazardArea::of_process().expect("an area");
        let servers = emulated::IS_EMULATED.get().then(|| emulated::Servers::new(nodes));
        Nodes { of, unit_lines: unit_bytes / LINE_BYTES, has_barrier, lost: AtomicBool::new(false), servers }
    }

    fn site(&self, me: usize, line: usize) -> Site {
        let home = NodeId((line / GRAIN_LINES % self.of.len()) as u16);
        let layout = Layout { home, nodes: self.of.len() };
        Site {
            me: NodeId(me as u16),
            layout,
            lines: self.unit_lines,
            has_barrier: self.has_barrier,
            biases_again: false,
        }
    }

    fn entry(&self, node: usize, line: usize) -> Entry {
        Entry(self.of[node].entry(line).load(Ordering::Acquire))
    }

    /// Runs a thread on each of these nodes.
    fn run<R: Send>(&self, threads: &[usize], body: impl Fn(usize, &Program<'_>) -> R + Sync) -> Vec<R> {
        let body = &body;
        std::thread::scope(|scope| {
            let start = |(index, node): (usize, &usize)| {
                let program = Program::new(self, *node, index);
                scope.spawn(move || body(index, &program))
            };
            let running: Vec<_> = threads.iter().enumerate().map(start).collect();
            running.into_iter().map(|thread| thread.join().expect("a thread's end")).collect()
        })
    }
}

/// A thread of a node whose accesses are checked.
struct Program<'a> {
    nodes: &'a Nodes,
    me: usize,
    hazard: &'a AtomicU64,
    counters: Counters,
    seed: usize,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        self.lines().give_hazard_slot(self.hazard);
    }
}

impl<'a> Program<'a> {
    fn new(nodes: &'a Nodes, me: usize, seed: usize) -> Program<'a> {
        let hazard = nodes.of[me].take_hazard_slot().expect("a slot");
        Program { nodes, me, hazard, counters: Counters::default(), seed }
    }

    fn lines(&self) -> &'a Lines {
        &self.nodes.of[self.me]
    }

    /// The word at an offset, where the program sees it.
    fn word(&self, at: usize) -> &AtomicU64 {
        let address = std::ptr::with_exposed_provenance_mut(self.lines().extent().base + at);
        // SAFETY: an aligned word of memory that is open; everybody uses it atomically.
        unsafe { AtomicU64::from_ptr(address) }
    }

    /// What the check of a store loads, from the table.
    fn checked_entry(&self, at: usize) -> u16 {
        let line = (self.lines().extent().base + at) / LINE_BYTES * LINE_BYTES;
        let entry = std::ptr::with_exposed_provenance::<u16>(Table::entries(line..line).start);
        // SAFETY: an entry of an open grain; other threads store whole entries.
        unsafe { entry.read_volatile() }
    }

    fn miss(&self, at: usize, want: Want, access: &mut dyn FnMut(&AtomicU64)) -> Outcome {
        self.bring(&[at], want, access)
    }

    /// Brings the units with these words, side by side if there are several; makes the access on the first one.
    fn bring(&self, ats: &[usize], want: Want, access: &mut dyn FnMut(&AtomicU64)) -> Outcome {
        assert_eq!(self.hazard.load(Ordering::Relaxed), 0, "who waits has lowered its hazard");
        let unit_lines = self.nodes.unit_lines;
        let lines_of = |at: &usize| at / LINE_BYTES / unit_lines * unit_lines;
        let (at, line) = (ats[0], lines_of(&ats[0]));
        let sites: Vec<Site> = ats.iter().map(|at| self.nodes.site(self.me, lines_of(at))).collect();
        let spans: Vec<Span> = ats.iter().map(|at| Span { line: lines_of(at), lines: unit_lines }).collect();
        let site = sites[0];
        let is_lost = |_| self.nodes.lost.load(Ordering::Relaxed);
        let memories = self.nodes;
        let operations = Shm { memories, region: 0..GRAINS * GRAIN_LINES, is_lost: &is_lost };
        let mut reach = OneByOne { operations, wide_words: site.layout.wide_words(), loops_back: false };
        let within = at - line * LINE_BYTES;
        let mut on_unit = |unit: *mut u8| {
            // SAFETY: an aligned word of the unit.
            access(unsafe { AtomicU64::from_ptr(unit.add(within).cast()) });
        };
        let mut here = Here {
            me: site.me,
            memory: self.lines(),
            span: Span { line, lines: self.nodes.unit_lines },
            want,
            access: &mut on_unit,
            is_lost: &is_lost,
            pause: Pause::new(self.seed),
            remote: 0,
            retries: 0,
        };
        self.run((&sites, &spans), &mut reach, &mut here)
    }

    fn run<M: Memories>(
        &self,
        units: (&[Site], &[Span]),
        reach: &mut OneByOne<Shm<'_, M>>,
        here: &mut Here<'_>,
    ) -> Outcome {
        let outcome = match &self.nodes.servers {
            None => run(units, reach, here, &self.counters),
            Some(servers) => {
                let post = emulated::InProcess::new(self.nodes, servers, here.me);
                run(units, &mut Emulated { post }, here, &self.counters)
            }
        };
        outcome.expect("no operation is refused")
    }

    fn load(&self, at: usize) -> u64 {
        let mut value = self.word(at).load(Ordering::Relaxed);
        if value as u32 == MAGIC {
            self.miss(at, Want::Load, &mut |word| value = word.load(Ordering::Relaxed));
        }
        value
    }

    /// A store, or an atomic instruction, within a hazard.
    fn change(&self, at: usize, change: &mut dyn FnMut(&AtomicU64)) {
        self.hazard.store((self.lines().extent().base + at) as u64, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.checked_entry(at) == 0 {
            change(self.word(at));
            compiler_fence(Ordering::SeqCst);
            self.hazard.store(0, Ordering::Release);
        } else {
            self.hazard.store(0, Ordering::Release);
            let (lines, me) = (self.lines(), NodeId(self.me as u16));
            let mut on_word = |at: *mut u8| {
                // SAFETY: an aligned word of a unit that is locked.
                change(unsafe { AtomicU64::from_ptr(at.cast()) });
            };
            let count = |add: &dyn Fn(&Counters)| add(&self.counters);
            if !locked::access(lines, me, lines.extent().base + at, 8, count, &mut on_word) {
                self.miss(at, Want::Store, change);
            }
        }
    }

    fn store(&self, at: usize, value: u64) {
        self.change(at, &mut |word| word.store(value, Ordering::Relaxed));
    }

    fn fetch_add(&self, at: usize, summand: u64) -> u64 {
        let mut old = 0;
        self.change(at, &mut |word| old = word.fetch_add(summand, Ordering::SeqCst));
        old
    }

    fn swap(&self, at: usize, value: u64) {
        self.change(at, &mut |word| _ = word.swap(value, Ordering::SeqCst));
    }

    /// Operations on other nodes since the last call: fetch-and-set, get, put, and the puts of MAGIC among these.
    fn took(&self) -> [u64; 4] {
        let counters = &self.counters;
        let now = [&counters.remote_fetch_and_sets, &counters.remote_gets, &counters.remote_puts, &counters.magic_puts];
        let [sets, gets, puts, magic] = now.map(|count| count.get());
        now.into_iter().for_each(|count| count.add(count.get().wrapping_neg()));
        [sets, gets, puts, magic]
    }
}

/// Bytes by the paper's model (section 2.4): packets of 10 bytes, or of 68 with a unit of 64 bytes.
fn bytes([sets, gets, puts, magic]: [u64; 4]) -> u64 {
    sets * 20 + gets * 78 + (puts - magic) * 10 + magic * 68
}

/// A program of each node, on this thread.
fn programs(nodes: &Nodes) -> Vec<Program<'_>> {
    (0..nodes.of.len()).map(|node| Program::new(nodes, node, node)).collect()
}

#[test]
fn each_kind_of_miss_takes_the_operations_that_the_paper_says() {
    let nodes = Nodes::new(8, 64);
    let p = programs(&nodes);
    let mut line = 0;
    // A line that only its home, node 0, has ever met.
    let mut fresh = || {
        line += LINE_BYTES;
        line
    };
    let cost = |node: usize, act: &dyn Fn(&Program<'_>)| {
        p[node].took();
        act(&p[node]);
        p[node].took()
    };
    let at = fresh();
    let read = cost(1, &|p| assert_eq!(p.load(at), 0));
    assert_eq!((&read[..3], bytes(read)), (&[1, 1, 1][..], 108), "figure 1");
    let at = fresh();
    p[1].store(at, 7);
    let read = cost(2, &|p| assert_eq!(p.load(at), 7));
    assert_eq!((&read[..3], bytes(read)), (&[2, 1, 2][..], 138), "figure 2");
    let at = fresh();
    let write = cost(1, &|p| p.store(at, 7));
    assert_eq!((write, bytes(write)), ([1, 1, 2, 1], 176), "the sole holder is the home");
    let write = cost(2, &|p| p.store(at, 8));
    assert_eq!((write, bytes(write)), ([2, 1, 3, 1], 206), "the sole holder is another node");
    assert_eq!(cost(0, &|p| assert_eq!(p.load(at), 8)), [1, 1, 1, 0], "the home reads");
    p[2].store(at, 9);
    assert_eq!(cost(0, &|p| p.store(at, 10)), [1, 1, 2, 1], "the home writes");
    for sharers in 1..=6 {
        let at = fresh();
        (1..=sharers).for_each(|node| _ = p[node].load(at));
        let others = sharers as u64;
        assert_eq!(cost(1, &|p| p.store(at, 1)), [1, 0, others + 1, others], "an upgrade, {others} other holders");
        let at = fresh();
        (1..=sharers).for_each(|node| _ = p[node].load(at));
        let holders = sharers as u64 + 1;
        assert_eq!(cost(7, &|p| p.store(at, 1)), [1, 1, holders + 1, holders], "a miss, {holders} holders");
    }
    let at = fresh();
    let magic = u64::from(MAGIC) | 7 << 32;
    p[0].store(at, magic);
    p[1].load(at);
    assert_eq!(cost(1, &|p| assert_eq!(p.load(at), magic)), [1, 0, 1, 0], "genuine MAGIC");
    p[1].store(at, magic);
    assert_eq!(cost(1, &|p| assert_eq!(p.load(at), magic)), [0; 4], "genuine MAGIC of a unit held alone");
}

#[test]
fn a_unit_is_revoked_with_a_barrier_while_it_is_biased_and_without_one_afterwards() {
    let nodes = Nodes::new(3, 64);
    let p = programs(&nodes);
    let quiesces = |node: usize| p[node].counters.quiesces.get();
    p[1].store(64, 1);
    p[2].store(64, 2);
    assert_eq!(p[1].load(64), 2);
    assert_eq!(p[1].load(64), 2, "it is valid here now");
    p[1].store(64, 3);
    p[2].store(64, 4);
    assert_eq!((p[0].load(64), p[1].load(64)), (4, 4));
    if nodes.has_barrier {
        // From the biased home, from biased node 1, from biased node 2; then all are locked.
        assert_eq!((quiesces(1), quiesces(2)), (2, 1));
        assert!(nodes.entry(1, 1).0 & 1 == 1);
    } else {
        assert_eq!((quiesces(1), quiesces(2)), (0, 0));
    }
}

/// As many operations as one by one, but one barrier for all.
#[test]
fn units_side_by_side_take_one_barrier() {
    for unit_bytes in [64, 256] {
        let nodes = Nodes::new(3, unit_bytes);
        let p = programs(&nodes);
        let units: Vec<usize> = (1..=16).map(|unit| unit * unit_bytes).collect();
        units.iter().for_each(|at| p[0].store(*at, *at as u64));
        p[1].bring(&units, Want::Bring, &mut |_| unreachable!("a group makes no access"));
        let puts = if unit_bytes == 64 { 16 } else { 32 };
        assert_eq!(p[1].took(), [16, 16, puts, 0], "read from the biased home");
        assert!(units.iter().all(|at| p[1].load(*at) == *at as u64));
        assert_eq!(p[1].took(), [0; 4], "they are all here");
        p[2].bring(&units, Want::Own, &mut |_| unreachable!("a group makes no access"));
        assert_eq!(p[2].took(), [16, 16, 48, 32], "written, with two holders each");
        let barriers = [&p[1], &p[2]].map(|p| p.counters.quiesces.get());
        assert_eq!(barriers, if nodes.has_barrier { [1, 0] } else { [0, 0] });
        assert!(units.iter().all(|at| p[1].load(*at) == *at as u64));
    }
}

/// Threads lock the same units side by side in different orders, and give up what others have locked.
#[test]
fn groups_that_want_the_same_units_lose_no_store() {
    for unit_bytes in [64, 512] {
        let nodes = Nodes::new(3, unit_bytes);
        let rounds = times(100_000, 1_000);
        let threads = [0, 1, 2, 1];
        nodes.run(&threads, |index, p| {
            let mut units: Vec<usize> = (0..8).map(|unit| unit * unit_bytes + 8 * index).collect();
            units.extend((0..2).map(|unit| GRAIN_BYTES + unit * unit_bytes + 8 * index));
            units.rotate_left(index * 3);
            if index % 2 == 1 {
                units.reverse();
            }
            for round in 1..=rounds as u64 {
                let want = [Want::Own, Want::OwnBiased, Want::Bring][(round as usize + index) % 3];
                p.bring(&units, want, &mut |_| ());
                for at in &units {
                    assert_eq!(p.load(*at), round - 1, "what this thread has stored itself");
                    p.store(*at, round);
                }
            }
        });
    }
}

/// What the short runs of the tests divide by; the long ones are run by hand.
fn times(long: usize, short: usize) -> usize {
    if std::env::var_os("COMEM_LONG_TESTS").is_some() { long } else { short }
}

#[test]
fn additions_of_all_nodes_add_up() {
    for unit_bytes in [64, 2048] {
        let nodes = Nodes::new(4, unit_bytes);
        let each = times(1_000_000, 5_000);
        // Two counters of one unit, and one of another home.
        let counters = [8, 40, GRAIN_BYTES + 8];
        nodes.run(&[0, 1, 2, 3, 3], |_, p| {
            for i in 0..each {
                p.fetch_add(counters[i % 3], 1);
            }
        });
        let p = Program::new(&nodes, 2, 0);
        assert_eq!(counters.iter().map(|at| p.load(*at)).sum::<u64>(), 5 * each as u64, "{unit_bytes}");
    }
}

#[test]
fn threads_of_one_node_join_for_a_unit() {
    let nodes = Nodes::new(2, 64);
    let rounds = times(20_000, 300);
    let barrier = Barrier::new(4);
    let took = nodes.run(&[0, 1, 1, 1], |index, p| {
        for round in 1..=rounds {
            if index == 0 {
                p.store(128, round as u64);
            }
            barrier.wait();
            assert_eq!(p.load(128 + 8), 0);
            assert_eq!(p.load(128), round as u64);
            barrier.wait();
        }
        p.counters.lines_read.get()
    });
    assert_eq!(took[1..].iter().sum::<u64>(), rounds as u64, "one of three fetched it each time: {took:?}");
}

#[test]
fn words_of_one_unit_that_different_nodes_store_to_do_not_disturb_each_other() {
    for unit_bytes in UNIT_BYTES {
        let nodes = Nodes::new(4, unit_bytes);
        let rounds = times(100_000, 1_000);
        // Each node has words at the unit's begin and at its end.
        let words = |index: usize| [index, unit_bytes / 8 - 1 - index];
        nodes.run(&[0, 1, 2, 3], |index, p| {
            for round in 1..=rounds {
                for at in words(index).map(|word| GRAIN_BYTES + 8 * word) {
                    p.store(at, (round * 8 + index) as u64);
                    assert_eq!(p.load(at), (round * 8 + index) as u64);
                }
            }
        });
        let p = Program::new(&nodes, 1, 0);
        for index in 0..4 {
            let expected = (rounds * 8 + index) as u64;
            let found = words(index).map(|word| p.load(GRAIN_BYTES + 8 * word));
            assert_eq!(found, [expected; 2], "{unit_bytes} bytes");
        }
    }
}

#[test]
fn a_thread_that_spins_on_a_plain_flag_sees_it_and_what_was_stored_before() {
    for (data, flag) in [(0, 24), (0, 4096), (GRAIN_BYTES, 2 * GRAIN_BYTES)] {
        let nodes = Nodes::new(3, 128);
        let rounds = times(50_000, 100) as u64;
        nodes.run(&[0, 1, 2], |index, p| {
            for round in 1..=rounds {
                if round % 3 == index as u64 {
                    p.store(data, round * 5);
                    p.store(flag, round);
                }
                while p.load(flag) < round {
                    // There may be fewer processors than threads.
                    std::thread::yield_now();
                }
                assert!(p.load(data) >= round * 5);
            }
        });
    }
}

/// Runs two or four threads step by step, many times, and gives what they have seen each time.
fn litmus(threads: &[usize], act: impl Fn(usize, usize, &Program<'_>) -> u64 + Sync) -> Vec<Vec<u64>> {
    let nodes = Nodes::new(4, 64);
    let rounds = times(50_000, 1_500);
    let barrier = Barrier::new(threads.len());
    let seen = nodes.run(threads, |index, p| {
        let step = |round: usize| {
            barrier.wait();
            // Not always at the same moment.
            (0..(round * 7 + index * 13) % 60).for_each(|_| std::hint::spin_loop());
            act(index, round, p)
        };
        (1..=rounds).map(step).collect::<Vec<_>>()
    });
    (0..rounds).map(|round| seen.iter().map(|of| of[round]).collect()).collect()
}

/// Two variables: of one unit, of two units, of two homes.
const PAIRS: [(usize, usize); 3] = [(0, 8), (0, 128), (64, GRAIN_BYTES)];

#[test]
fn store_buffering_of_atomics_is_never_seen() {
    for (x, y) in PAIRS {
        let seen = litmus(&[1, 2], |index, round, p| {
            let (own, other) = if index == 0 { (x, y) } else { (y, x) };
            p.swap(own, round as u64);
            p.load(other)
        });
        for (round, seen) in (1..).zip(seen) {
            assert!(seen.contains(&round), "both of two atomic stores were overtaken: {seen:?} in round {round}");
        }
    }
}

#[test]
fn messages_by_plain_stores_do_not_overtake_each_other() {
    for (x, y) in PAIRS {
        let seen = litmus(&[1, 2], |index, round, p| {
            if index == 0 {
                p.store(x, round as u64);
                p.store(y, round as u64);
                return 1;
            }
            let (flag, data) = (p.load(y), p.load(x));
            u64::from(data >= flag)
        });
        assert!(seen.iter().all(|seen| seen[1] == 1));
    }
}

#[test]
fn readers_agree_on_the_order_of_independent_stores() {
    for (x, y) in PAIRS {
        let seen = litmus(&[0, 1, 2, 3], |index, round, p| {
            let (round, read) = (round as u64, |at| u64::from(p.load(at) == round as u64));
            match index {
                0 => p.store(x, round),
                1 => p.store(y, round),
                2 => return read(x) << 1 | read(y),
                _ => return read(y) << 1 | read(x),
            }
            0
        });
        // New and then old of both, in both orders.
        assert!(seen.iter().all(|seen| !(seen[2] == 2 && seen[3] == 2)), "{x} {y}");
    }
}

#[test]
fn random_programs_agree_with_a_model() {
    for unit_bytes in UNIT_BYTES {
        let (nodes, steps) = (Nodes::new(3, unit_bytes), times(300_000, 3_000));
        let threads = [0, 0, 1, 1, 2, 2];
        // Words by who stores to them: each counts its own stores. The last two are added to by all.
        let own = |thread: usize, n: usize| [0, GRAIN_BYTES, 3 * GRAIN_BYTES][n % 3] + 8 * thread;
        let all = [48, GRAIN_BYTES + 56];
        let ends = nodes.run(&threads, |thread, p| {
            let mut noise = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 + 1);
            let (mut stored, mut seen, mut added) = ([0_u64; 3], vec![[0_u64; 3]; threads.len()], 0_u64);
            for _ in 0..steps {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                let (n, other) = (noise as usize >> 8, noise as usize >> 24);
                match noise % 5 {
                    0 | 1 => {
                        stored[n % 3] += 1;
                        // Now and then a value that looks like an invalid one's.
                        let low = if n.is_multiple_of(16) { MAGIC } else { 1 };
                        p.store(own(thread, n), stored[n % 3] << 32 | u64::from(low));
                    }
                    2 => {
                        p.fetch_add(all[n % 2], 1 << 32);
                        added += 1;
                    }
                    _ => {
                        let whose = other % threads.len();
                        let value = p.load(own(whose, n)) >> 32;
                        let known = &mut seen[whose][n % 3];
                        assert!(value >= *known, "{value} after {known} of thread {whose}");
                        assert!(whose != thread || value == stored[n % 3]);
                        *known = value;
                    }
                }
            }
            (stored, added)
        });
        for node in 0..3 {
            let p = Program::new(&nodes, node, 0);
            for (thread, (stored, _)) in ends.iter().enumerate() {
                (0..3).for_each(|n| assert_eq!(p.load(own(thread, n)) >> 32, stored[n], "{unit_bytes} bytes"));
            }
            let added: u64 = ends.iter().map(|(_, added)| added).sum();
            assert_eq!(all.iter().map(|at| p.load(*at) >> 32).sum::<u64>(), added);
        }
    }
}

#[test]
fn more_nodes_than_presence_bits_share_a_unit() {
    const NODES: usize = 20;
    let nodes = Nodes::new(NODES, 128);
    let p = programs(&nodes);
    p[19].store(0, 5);
    assert!(p.iter().all(|p| p.load(0) == 5));
    assert_eq!(p[12].took()[..3], [1, 2, 2], "the wide words, the unit, the directory and its wide words");
    p[3].store(0, 6);
    assert!(p.iter().all(|p| p.load(0) == 6));
    nodes.run(&(0..NODES).collect::<Vec<_>>(), |_, p| (0..times(10_000, 100)).for_each(|_| _ = p.fetch_add(16, 1)));
    assert_eq!(p[11].load(16), (NODES * times(10_000, 100)) as u64);
}

#[test]
fn what_lies_outside_of_the_region_is_refused_and_stays_as_it_is() {
    let nodes = Nodes::new(2, 64);
    let lost = |_| false;
    let mut shm = Shm { memories: &nodes, region: 8..16, is_lost: &lost };
    let place = |segment, offset| Place { node: NodeId(1), segment, offset };
    let refused = |at: Place| Err(Refusal::Outside(at));
    for offset in [0, 7 * 64, 16 * 64, 16 * 64 - 32, 8 * 64 + 4, u64::MAX - 7, GRAIN_BYTES as u64 * 100] {
        let at = place(Segment::Data, offset);
        assert_eq!(shm.put(at, &[1; 64]), refused(at));
        assert_eq!(shm.get(at, &mut [0; 64]), refused(at));
        assert!(shm.quiesce(NodeId(1), offset, 64).is_err());
    }
    assert!(nodes.of[1].word(7 * 64).load(Ordering::Relaxed) as u32 == MAGIC);
    for offset in [0, 14, 32, 17, u64::MAX] {
        let at = place(Segment::Entries, offset);
        assert_eq!(shm.fetch_and_set(at, NodeId(0)).err(), Some(Refusal::Outside(at)));
        assert_eq!(shm.put(at, &[0; 2]), refused(at));
    }
    assert!((0..GRAIN_LINES).all(|line| nodes.entry(1, line) == Entry::not_exclusive(!nodes.has_barrier)));
    for segment in [Segment::Hazards, Segment::Claims, Segment::Locks, Segment::Wide] {
        let at = place(segment, 8 * 64);
        assert_eq!((shm.put(at, &[0; 8]), shm.fetch_add(at, 1).err()), (refused(at), Some(Refusal::Outside(at))));
    }
    let nobody = Place { node: NodeId(9), ..place(Segment::Data, 8 * 64) };
    assert_eq!(shm.put(nobody, &[0; 64]), Err(Refusal::NoMemory(NodeId(9))));
    // Within it all work.
    let at = place(Segment::Data, 8 * 64);
    shm.put(at, &[0; 64]).unwrap();
    assert_eq!((shm.fetch_add(at, 5), shm.fetch_add(at, 5)), (Ok(0), Ok(5)));
    assert_eq!((shm.compare_and_swap(at, 10, 1), shm.compare_and_swap(at, 10, 2)), (Ok(10), Ok(1)));
    assert!(shm.fetch_and_set(place(Segment::Entries, 16), NodeId(0)).is_ok());
}

#[test]
fn who_waits_for_an_entry_hears_that_the_job_is_lost_and_who_has_it() {
    let nodes = Nodes::new(3, 64);
    // Node 2 has locked the directory of a unit, and has ended there.
    nodes.of[0].fetch_and_set(1, NodeId(2));
    let waiting = &OnceLock::new();
    let ended = std::thread::scope(|scope| {
        let waits = |node: usize| {
            let p = Program::new(&nodes, node, node);
            let _ = waiting.set(());
            let mut value = 0;
            (p.miss(64, Want::Load, &mut |word| value = word.load(Ordering::Relaxed)), p.counters.dir_retries.get())
        };
        let running: Vec<_> = [0, 1].map(|node| scope.spawn(move || waits(node))).into_iter().collect();
        while waiting.get().is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        nodes.lost.store(true, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().expect("it ends")).collect::<Vec<_>>()
    });
    assert!(ended.iter().all(|(outcome, retries)| *outcome == Outcome::Lost(Some(NodeId(2))) && *retries > 0));
}

#[test]
fn stores_to_a_locked_unit_need_no_miss_and_make_it_biased_in_time() {
    for unit_bytes in [64, 512] {
        let nodes = Nodes::new(3, unit_bytes);
        let p = programs(&nodes);
        if !nodes.has_barrier {
            println!("SKIP: this system has no expedited membarrier");
            return;
        }
        // At the home, and elsewhere.
        for (node, at) in [(0, 0), (1, 8192), (1, 2 * GRAIN_BYTES)] {
            p[node].store(at, 1);
            p[2].store(at, 2);
            p[node].store(at, 3);
            let mirror = (at + unit_bytes) / LINE_BYTES - 1;
            assert_eq!([at / LINE_BYTES, mirror].map(|line| nodes.entry(node, line)), [Entry::LOCKED; 2]);
            p[node].took();
            let before = p[node].counters.locked_stores.get();
            (0..200).for_each(|n| p[node].store(at, n));
            assert_eq!((p[node].took(), p[node].counters.locked_stores.get() - before), ([0; 4], 128));
            assert_eq!([at / LINE_BYTES, mirror].map(|line| nodes.entry(node, line)), [Entry::BIASED; 2]);
            let quiesces = p[2].counters.quiesces.get();
            assert_eq!((p[2].load(at), p[2].counters.quiesces.get() - quiesces), (199, 1));
            p[node].store(at, 5);
            assert_eq!(nodes.entry(node, mirror), Entry::LOCKED);
        }
    }
}

#[test]
fn without_barriers_every_unit_is_locked_and_no_store_is_lost() {
    for unit_bytes in [64, 256] {
        let (nodes, each) = (Nodes::with(3, unit_bytes, false), times(200_000, 2_000));
        let quiesces = nodes.run(&[0, 0, 1, 2], |index, p| {
            for i in 0..each {
                p.fetch_add([0, GRAIN_BYTES][i % 2], 1);
                p.store(8 + 8 * index, i as u64);
                assert_eq!(p.load(8 + 8 * index), i as u64);
            }
            p.counters.quiesces.get()
        });
        let p = Program::new(&nodes, 1, 0);
        assert_eq!(p.load(0) + p.load(GRAIN_BYTES), 4 * each as u64);
        assert_eq!(quiesces, [0; 4]);
        let lines = (0..2 * GRAIN_LINES).step_by(nodes.unit_lines);
        assert!((0..3).all(|node| lines.clone().all(|line| nodes.entry(node, line).is_locked())), "{unit_bytes}");
    }
}

#[test]
fn a_revocation_waits_for_the_store_under_way() {
    let nodes = Nodes::new(2, 64);
    if !nodes.has_barrier {
        println!("SKIP: this system has no expedited membarrier");
        return;
    }
    let p = Program::new(&nodes, 1, 1);
    p.store(8, 1);
    // Its next store has passed the check.
    p.hazard.store((p.lines().extent().base + 8) as u64, Ordering::Relaxed);
    assert_eq!(p.checked_entry(8), 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = || {
            let value = Program::new(&nodes, 0, 0).load(8);
            done.store(true, Ordering::SeqCst);
            value
        };
        let reader = scope.spawn(reads);
        while !nodes.entry(1, 0).is_busy() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(!done.load(Ordering::SeqCst), "it waits for the hazard");
        p.word(8).store(2, Ordering::Relaxed);
        p.hazard.store(0, Ordering::Release);
        assert_eq!(reader.join().expect("it ends"), 2);
    });
}
