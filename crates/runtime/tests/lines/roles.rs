//! What the nodes do.

use crate::checked::{Words, entry, play as run};
use crate::network;
use comem::heap::{Home, PageEngine, RegionOptions};
use comem::{Comem, LockId, NodeId};
use comem_protocol::ids::manager_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Words of a grain, all of which have one home.
const GRAIN: usize = (128 << 10) / 8;
const LINE: usize = 8;
const MAGIC: u64 = 0xfffd_fffd;

pub fn play(role: &str, comem: Comem) {
    match role {
        "additions" | "cramped" => additions(comem),
        "unchecked" => {
            let error = comem.alloc_all(GRAIN, &RegionOptions::default()).expect_err("nobody checks accesses to it");
            eprintln!("{error}");
            std::process::exit(error.exit_code());
        }
        "model" => model(comem),
        "flags" => flags(comem),
        "cases" => cases(comem),
        "regions" => regions(comem),
        "killed" => killed(comem),
        "interrupted" => interrupted(comem),
        "sections" => sections(comem),
        "lock-taken" => lock_taken(comem),
        "lock-kept" => lock_kept(comem),
        _ if role.starts_with("forges-") => network::forge(comem, role),
        _ => panic!("there is no role {role}"),
    }
}

/// What a node does before it begins.
pub fn prepare(role: &str) {
    if role == "cramped" {
        // Pages take 24 TiB of addresses, the node's own lines memory 8, the table 4. There is no room for the 4 of the
        // other node's.
        let bytes = 39 << 40;
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: sets a limit of this process.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    }
}

/// What the short runs of the tests divide by; the long ones are run by hand.
fn times(long: usize, short: usize) -> usize {
    if std::env::var_os("COMEM_LONG_TESTS").is_some() { long } else { short }
}

fn additions(comem: Comem) {
    let words = Words::new(&comem, 4 * GRAIN, &RegionOptions::default());
    // One that all add to, two of one line, and one of another home.
    let counters = [3, 16, 20, GRAIN + 7];
    let each = times(1_000_000, 4_000);
    run(comem, |t| {
        (0..each).for_each(|_| _ = words.fetch_add(counters[0], 1));
        (0..each).for_each(|i| _ = words.fetch_add(counters[1 + i % 3], 2));
        t.barrier();
        let (all, sum) = ((t.threads() * each) as u64, counters[1..].iter().map(|at| words.load(*at)).sum::<u64>());
        assert_eq!((words.load(counters[0]), sum), (all, 2 * all));
    });
}

/// Sums in words of one line, each under a lock of its own, and one under a lock of all.
fn sections(comem: Comem) {
    let words = Words::new(&comem, 4 * GRAIN, &RegionOptions::default());
    let each = times(100_000, 500);
    run(comem, |t| {
        let add = |at: usize| words.store(at, words.load(at) + 1);
        for step in 0..each {
            let at = 1 + (step * (t.id() + 1)) % 3;
            t.locked(LockId(0), || add(0));
            t.locked(LockId(at as u64), || add(at));
        }
        t.barrier();
        let all = (t.threads() * each) as u64;
        assert_eq!((words.load(0), (1..4).map(|at| words.load(at)).sum::<u64>()), (all, all));
        t.barrier();
    });
}

/// How often the role `lock-taken` takes its lock.
pub const TIMES: &str = "COMEM_TEST_TIMES";

/// A lock whose home is a node, in a job of `nodes`.
fn lock_at(node: u16, nodes: usize) -> LockId {
    (0..).map(LockId).find(|lock| manager_of(lock.0, nodes) == NodeId(node)).expect("some lock")
}

/// Node 1 takes a lock of node 0 again and again. Nobody else does anything.
fn lock_taken(comem: Comem) {
    let times: usize = std::env::var(TIMES).expect("how often").parse().expect("a number");
    let lock = lock_at(0, comem.nodes());
    run(comem, |t| {
        if t.node() == NodeId(1) {
            (0..times).for_each(|_| t.locked(lock, || ()));
        }
        t.barrier();
    });
}

/// Node 1 is killed while it holds two locks. For one of them node 0 waits, and its word is lost. For the other node 2
/// waits, and its word is at node 0.
fn lock_kept(comem: Comem) {
    let locks = [1, 0].map(|home| lock_at(home, comem.nodes()));
    run(comem, |t| {
        let _held = (t.node() == NodeId(1)).then(|| locks.map(|lock| t.lock(lock)));
        t.barrier();
        match t.node() {
            NodeId(1) => {
                // By then the others mostly wait. Whether they do or not, they have to end.
                std::thread::sleep(Duration::from_millis(300));
                // SAFETY: a signal to this process, which ends it.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            node => drop(t.lock(locks[node.index() / 2])),
        }
    });
}

fn model(comem: Comem) {
    let words = Words::new(&comem, 4 * GRAIN, &RegionOptions::default());
    let steps = times(300_000, 3_000);
    run(comem, |t| {
        let (me, all) = (t.id(), t.threads());
        // Words by who stores to them: each counts its own stores. The last two are added to by all.
        let own = |thread: usize, n: usize| [0, GRAIN, 3 * GRAIN][n % 3] + thread;
        let shared = [60, GRAIN + 61];
        let (mut stored, mut seen, mut noise) = ([0_u64; 3], vec![[0_u64; 3]; all], 0x9e37_79b9_7f4a_7c15_u64);
        noise = noise.wrapping_mul(me as u64 + 1);
        for step in 0..steps {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            let (n, other) = (noise as usize >> 8, (noise as usize >> 24) % all);
            match noise % 5 {
                0 | 1 => {
                    stored[n % 3] += 1;
                    // Now and then a value that looks like an invalid one's.
                    let low = if n.is_multiple_of(16) { MAGIC } else { 1 };
                    words.store(own(me, n), stored[n % 3] << 32 | low);
                }
                2 => _ = words.fetch_add(shared[step % 2], 0),
                _ => {
                    let (value, known) = (words.load(own(other, n)) >> 32, &mut seen[other][n % 3]);
                    assert!(value >= *known, "{value} after {known} of thread {other}");
                    assert!(other != me || value == stored[n % 3]);
                    *known = value;
                }
            }
            if step % 7 == 0 {
                words.fetch_add(shared[0], 1);
            }
        }
        (0..3).for_each(|n| words.store(128 + 8 * me + n, stored[n]));
        t.barrier();
        for thread in 0..all {
            (0..3).for_each(|n| assert_eq!(words.load(own(thread, n)) >> 32, words.load(128 + 8 * thread + n)));
        }
        assert_eq!(words.load(shared[0]), (all * steps.div_ceil(7)) as u64);
        t.barrier();
    });
}

fn flags(comem: Comem) {
    let words = Words::new(&comem, 4 * GRAIN, &RegionOptions::default());
    let rounds = times(100_000, 200) as u64;
    run(comem, |t| {
        for (data, flag) in [(0, 3), (8, 512), (GRAIN, 2 * GRAIN)] {
            for round in 1..=rounds {
                if round % t.threads() as u64 == t.id() as u64 {
                    words.store(data, round * 5);
                    words.store(flag, round);
                }
                while words.load(flag) < round {
                    // There may be fewer processors than threads.
                    std::thread::yield_now();
                }
                assert!(words.load(data) >= round * 5);
            }
        }
    });
}

/// Messages that [`cases`] takes where operations are emulated. In its order: 3, 3, 4, 3, 5, 2, 1, 3, 3, 3 and 2.
pub const CASES_BATCHES: u64 = 32;

/// What [`cases`] takes of all nodes: fetch-and-set, get, put, and the puts of MAGIC among these.
pub const CASES: [u64; 4] = {
    let cases: [[u64; 4]; 10] = [
        // A read from the home; from a third node.
        [1, 1, 1, 0],
        [1, 1, 2, 1],
        [2, 1, 2, 0],
        // A write of what the home alone holds, of what a third node alone holds.
        [1, 1, 2, 1],
        [2, 1, 3, 1],
        // The home reads, and then it writes.
        [1, 1, 1, 0],
        [0, 0, 1, 1],
        // An upgrade with the home as the other holder, after a read.
        [1, 1, 1, 0],
        [1, 0, 2, 1],
        // Genuine MAGIC: the look at the directory.
        [1, 0, 1, 0],
    ];
    let (mut sum, mut case) = ([0; 4], 0);
    while case < cases.len() {
        let mut kind = 0;
        while kind < 4 {
            sum[kind] += cases[case][kind];
            kind += 1;
        }
        case += 1;
    }
    // The genuine value is read once from its home before.
    [sum[0] + 1, sum[1] + 1, sum[2] + 1, sum[3]]
};

fn cases(comem: Comem) {
    let options = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let words = Words::new(&comem, GRAIN, &options);
    run(comem, |t| {
        let on = |node: usize, act: &dyn Fn()| {
            t.barrier();
            if t.id() == node {
                act();
            }
            t.barrier();
        };
        let line = |n: usize| n * LINE;
        on(1, &|| assert_eq!(words.load(line(1)), 0));
        on(1, &|| words.store(line(2), 5));
        on(2, &|| assert_eq!(words.load(line(2)), 5));
        on(1, &|| words.store(line(3), 6));
        on(2, &|| words.store(line(3), 7));
        on(0, &|| assert_eq!(words.load(line(3)), 7));
        on(0, &|| words.store(line(3), 8));
        on(2, &|| assert_eq!(words.load(line(4)), 0));
        on(2, &|| words.store(line(4), 9));
        on(0, &|| words.store(line(5), MAGIC | 3 << 32));
        on(1, &|| assert_eq!(words.load(line(5)), MAGIC | 3 << 32));
        on(1, &|| assert_eq!(words.load(line(5)), MAGIC | 3 << 32));
    });
}

fn regions(comem: Comem) {
    let region = |unit_bytes, label: &str| {
        let label = label.to_string();
        Words::new(&comem, GRAIN, &RegionOptions { unit_bytes, label, ..RegionOptions::default() })
    };
    let (usual, fine) = (region(0, "usual"), region(64, "fine"));
    let engine = |words: Words| comem.engine_of(std::ptr::with_exposed_provenance(words.address(0))).unwrap();
    assert_eq!((engine(usual), engine(fine)), (Some(PageEngine::Direct), Some(PageEngine::Direct)));
    run(comem, |t| {
        if t.id() == 1 {
            (0..9 * LINE).for_each(|word| [usual, fine].iter().for_each(|words| words.store(word, 7)));
        }
        t.barrier();
        if t.id() == 0 {
            // Here is the home: the presence byte is 0 where no other node has the line.
            let holds = |words: Words, line: usize| entry(words.address(line * LINE)).load(Ordering::Relaxed) >> 8 == 0;
            [usual, fine].iter().for_each(|words| words.store(LINE, 8));
            let held = |words: Words| (0..9).filter(|line| holds(words, *line)).collect::<Vec<_>>();
            assert_eq!((held(fine), held(usual)), (vec![1], (0..8).collect()));
        }
        t.barrier();
    });
}

/// Node 0 loads what node 1 is about to store, while a thread of node 1 is between check and store.
fn interrupted(comem: Comem) {
    const BETWEEN: Duration = Duration::from_millis(120);
    let options = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let words = Words::new(&comem, GRAIN, &options);
    run(comem, |t| {
        let mut waited = 0;
        for round in 0..5 {
            // A line that has not been revoked before: its stores need no lock.
            let at = round * LINE;
            if t.id() == 1 {
                words.store(at, 1);
            }
            t.barrier();
            if t.id() == 1 {
                // Where this node leaves the barrier late, the other one has loaded already.
                if !words.store_after(at, 2, BETWEEN) {
                    words.store(at, 2);
                }
            } else {
                std::thread::sleep(BETWEEN / 4);
                let start = Instant::now();
                let value = words.load(at);
                waited += usize::from(start.elapsed() > BETWEEN / 4);
                assert!(value == 2 || value == 1 && start.elapsed() < BETWEEN, "{value} after {:?}", start.elapsed());
            }
            t.barrier();
            assert_eq!(words.load(at), 2);
            t.barrier();
        }
        assert!(waited > 0 || t.id() == 1, "no load waited for the store under way");
    });
}

/// Address of the word whose entry the victim looks at when its timer rings.
static WATCHED: AtomicUsize = AtomicUsize::new(0);

/// The thread that misses.
static VICTIM: AtomicUsize = AtomicUsize::new(0);

/// Ends the process as soon as it is found in the midst of a miss, with the entry locked. It looks in the thread that
/// misses, which would go on elsewhere.
extern "C" fn on_alarm(signal: i32) {
    const BUSY_BY_NODE_0: u16 = 0x80;
    let victim = VICTIM.load(Ordering::Relaxed) as libc::pthread_t;
    // SAFETY: asks who this thread is.
    if unsafe { libc::pthread_self() } != victim {
        // SAFETY: the thread lives as long as the process.
        unsafe { libc::pthread_kill(victim, signal) };
    } else if entry(WATCHED.load(Ordering::Relaxed)).load(Ordering::Relaxed) & 0xff == BUSY_BY_NODE_0 {
        // The interrupted thread keeps the entry locked, until another node has come to wait for it.
        // SAFETY: waits, and ends this process.
        unsafe {
            libc::usleep(200_000);
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
    }
}

/// All nodes store to one line in turn. Node 0 is its home, where the entry is the directory.
fn killed(comem: Comem) {
    let options =
        RegionOptions { home: Home::On(NodeId(0)), label: "a matrix".to_string(), ..RegionOptions::default() };
    let words = Words::new(&comem, GRAIN, &options);
    let done = AtomicU64::new(0);
    run(comem, |t| {
        words.store(LINE, 1);
        t.barrier();
        if t.id() == 0 {
            WATCHED.store(words.address(LINE), Ordering::Relaxed);
            let often = libc::timeval { tv_sec: 0, tv_usec: 50 };
            let timer = libc::itimerval { it_interval: often, it_value: often };
            // SAFETY: a handler that makes system calls and loads a word; a timer of this process.
            unsafe {
                VICTIM.store(libc::pthread_self() as usize, Ordering::Relaxed);
                libc::signal(libc::SIGALRM, on_alarm as extern "C" fn(i32) as libc::sighandler_t);
                libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
            }
        }
        loop {
            words.fetch_add(LINE, 1);
            done.fetch_add(1, Ordering::Relaxed);
            if t.id() == 3 && done.load(Ordering::Relaxed) > 10 {
                // It waits for nothing of that line when the node is killed.
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    });
}
