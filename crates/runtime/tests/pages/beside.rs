//! Threads that go on while another thread of their node makes a collective call, as those of a language's runtime do
//! ([`comem::host`]).

use crate::launcher::start;
use crate::matrix::{detectors, job};
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::host::Host;
use comem::{Comem, Error, FlagId, LockGuard, LockId, NodeId, RwLockId, SemaphoreId, Thread};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const LOCK: LockId = LockId(5);
/// Words of a page.
const WORDS: usize = 512;
/// So often each thread counts.
const TIMES: u64 = 150;
/// The ways in which nodes tell each other what they wrote.
const BACKBONES: [(&str, &str); 2] = [("COMEM_BACKBONE", "udp"), ("COMEM_BACKBONE", "shm")];
const ENGINES: [(&str, &str); 2] = [("COMEM_ENGINE", "hlrc"), ("COMEM_ENGINE", "scope")];

/// A runtime that keeps its main thread from looking for a while, if it is told to.
struct Language;

/// For so many milliseconds the next wait of this process goes on once it has been asked about.
static BUSY: AtomicU64 = AtomicU64::new(0);
/// Whether there is a thread that Comem has not seen.
static UNSEEN: AtomicBool = AtomicBool::new(false);
/// Whether the job was lost.
static OVER: AtomicBool = AtomicBool::new(false);
/// The thread whose waits those are.
static MAIN: AtomicU64 = AtomicU64::new(0);

fn this_thread() -> u64 {
    // SAFETY: gives a number, never fails.
    unsafe { libc::pthread_self() as u64 }
}

impl Host for Language {
    fn ends_wait(&self) -> bool {
        if MAIN.load(Ordering::Relaxed) == this_thread() {
            std::thread::sleep(Duration::from_millis(BUSY.swap(0, Ordering::Relaxed)));
        }
        false
    }

    fn ends_fault(&self) -> bool {
        false
    }

    fn has_other_threads(&self) -> bool {
        UNSEEN.load(Ordering::Relaxed)
    }

    fn job_is_over(&self, _: &Error, _: &str) {
        OVER.store(true, Ordering::Relaxed);
    }

    fn stale_access(&self) {}
}

/// What a role needs before Comem is started.
pub fn prepare(role: &str) {
    if role.starts_with("beside: ") {
        MAIN.store(this_thread(), Ordering::Relaxed);
        comem::host::attend(&Language);
    }
}

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "beside: counting" => counting(comem),
        "beside: given" => given(comem),
        "beside: taken" => taken(comem),
        "beside: moved" => moved(comem),
        "beside: told" => told(comem),
        "beside: told during a close" => told_during_a_close(comem),
        "beside: nothing to tell" => nothing_to_tell(comem),
        "beside: held back" => held_back(comem),
        "beside: patience" => patience(comem),
        "beside: patient in vain: lock" => patient_in_vain(comem, &|thread, f| thread.locked(LOCK, f)),
        "beside: patient in vain: rwlock" => patient_in_vain(comem, &writing),
        "beside: lent" => lent(comem),
        "beside: freed" => freed(comem),
        "beside: declared" => declared(comem),
        "beside: reported" => reported(comem),
        "beside: lost" => lost(comem),
        "beside: waiting at the end" => waiting_at_the_end(comem),
        _ => return false,
    }
    true
}

fn barrier(comem: &Comem) {
    comem.current().expect("a place").barrier();
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// A page that is at node `home` at first, of which all nodes have a copy.
fn page(comem: &Comem, home: u16) -> PageSlice<u64> {
    let options = RegionOptions { home: Home::StartingOn(NodeId(home)), ..RegionOptions::default() };
    let slice = comem.page_slice::<u64>(WORDS, &options).expect("a page");
    barrier(comem);
    assert_eq!(slice.get(0), 0);
    barrier(comem);
    slice
}

/// Runs `beside` in a thread of its own while this one runs `main`. As a language's runtime would, the host knows of it
/// before Comem does: the first collective call of `main` may begin before that.
fn with<R>(beside: impl FnOnce() + Send, main: impl FnOnce() -> R) -> R {
    UNSEEN.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, beside).expect("a thread");
        let result = main();
        thread.join().expect("a thread that ends well");
        UNSEEN.store(false, Ordering::Relaxed);
        result
    })
}

/// Two threads of each node count under locks while its main thread goes from barrier to barrier.
fn counting(comem: &Comem) {
    let slice = page(comem, 0);
    let done = AtomicU64::new(0);
    let counts = |index: usize| {
        let (slice, done) = (&slice, &done);
        move || {
            let thread = comem.current().expect("a place");
            for i in 0..TIMES {
                thread.locked(LOCK, || slice.set(0, slice.get(0) + 1));
                let writes = thread.write_lock(RwLockId(3));
                slice.set(1, slice.get(1) + 1);
                drop(writes);
                slice.set(8 + 2 * comem.node() + index, i + 1);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    with(counts(0), || {
        with(counts(1), || {
            let mut open = [1_i64];
            while open[0] > 0 {
                open[0] = 2 - done.load(Ordering::Relaxed) as i64;
                comem.current().expect("a place").reduce_i64(comem::Operator::Sum, &mut open);
            }
        });
    });
    barrier(comem);
    let counted = 2 * TIMES * comem.nodes() as u64;
    assert_eq!([slice.get(0), slice.get(1)], [counted; 2]);
    assert!((0..2 * comem.nodes()).all(|index| slice.get(8 + index) == TIMES));
}

/// Node 1 wants a lock that a thread of node 0 would have had while its main thread was at a barrier.
fn given(comem: &Comem) {
    let (slice, node) = (page(comem, 1), comem.node());
    let count = |ms| {
        sleep(ms);
        let thread = comem.current().expect("a place");
        thread.locked(LOCK, || slice.set(0, slice.get(0) + 1));
    };
    match node {
        0 => with(|| count(150), || barrier(comem)),
        _ => {
            count(400);
            barrier(comem);
        }
    }
    barrier(comem);
    assert_eq!(slice.get(0), 2);
}

/// Ways in which node 1 tells a thread of node 0 that it has written.
const WAYS: [&str; 3] = ["lock", "semaphore", "flag"];

/// Node 1 is past a barrier and tells a thread of node 0, whose main thread has not looked yet, that it has written.
fn taken(comem: &Comem) {
    let slice = page(comem, 1);
    // Some are managed here, some there.
    for (round, way) in (0..6).flat_map(|n| WAYS.map(|way| (n, way))) {
        let expected = slice.get(0) + 1;
        let thread = comem.current().expect("a place");
        let held = (comem.node() == 1 && way == "lock").then(|| thread.lock(LockId(100 + round)));
        barrier(comem);
        let wait = || {
            await_news(comem, way, round);
            assert_eq!(slice.get(0), expected, "{way} {round}");
        };
        if comem.node() == 0 {
            with(wait, || {
                sleep(40);
                BUSY.store(120, Ordering::Relaxed);
                barrier(comem);
            });
            BUSY.store(0, Ordering::Relaxed);
        } else {
            // The main thread of node 0 is at the barrier, and sleeps.
            sleep(110);
            barrier(comem);
            slice.set(0, expected);
            give_news(comem, (way, held), round);
        }
        barrier(comem);
    }
}

fn await_news(comem: &Comem, way: &str, round: u64) {
    let thread = comem.current().expect("a place");
    match way {
        "lock" => thread.locked(LockId(100 + round), || ()),
        "semaphore" => thread.sem_wait(SemaphoreId(200 + round)),
        _ => assert_eq!(thread.flag_wait(FlagId(300 + round), 1), 1),
    }
}

fn give_news(comem: &Comem, (way, held): (&str, Option<LockGuard<'_>>), round: u64) {
    let thread = comem.current().expect("a place");
    match way {
        "lock" => drop(held),
        "semaphore" => thread.sem_post(SemaphoreId(200 + round)),
        _ => thread.flag_set(FlagId(300 + round), 1),
    }
}

/// Node 1 alone has written a page of node 0's, and a thread of node 0 writes it while the main thread is at the
/// barrier: one that has used Comem before, and one of which the host alone knows.
fn moved(comem: &Comem) {
    for unseen in [false, true] {
        let slice = page(comem, 0);
        // The main thread's node knows of the other one before it arrives.
        let known = std::sync::Barrier::new(2);
        let writes = || {
            let _seat = (!unseen).then(|| comem.current().expect("a place"));
            known.wait();
            sleep(100);
            slice.set(1, 1);
        };
        if comem.node() == 0 {
            with(writes, || {
                known.wait();
                UNSEEN.store(unseen, Ordering::Relaxed);
                barrier(comem);
            });
        } else {
            slice.set(0, 1);
            sleep(200);
            barrier(comem);
        }
        barrier(comem);
        assert_eq!([slice.get(0), slice.get(1)], [1, 1], "unseen: {unseen}");
    }
}

/// A thread of node 0 writes and posts while the main thread is at a barrier; it waits until that is open.
fn told(comem: &Comem) {
    let (slice, other) = (page(comem, 1), page(comem, 0));
    for round in 0..4 {
        let beside = || {
            let thread = comem.current().expect("a place");
            if comem.node() == 0 {
                sleep(100);
                slice.set(0, round + 1);
                other.set(0, round + 1);
                thread.sem_post(SemaphoreId(600 + round));
                thread.flag_set(FlagId(700 + round), 1);
            } else {
                thread.sem_wait(SemaphoreId(600 + round));
                assert_eq!([slice.get(0), other.get(0)], [round + 1; 2], "by a semaphore");
                thread.flag_wait(FlagId(700 + round), 1);
            }
        };
        with(beside, || {
            sleep(200 * comem.node() as u64);
            barrier(comem);
        });
        barrier(comem);
    }
}

/// A thread of node 0 writes and sets a flag again and again, also while the main thread finds out, before a barrier,
/// what was written to many pages.
fn told_during_a_close(comem: &Comem) {
    const FLAG: FlagId = FlagId(750);
    const PAGES: usize = 2000;
    const LAST: u64 = 1 << 40;
    let slice = page(comem, 0);
    let options = RegionOptions { home: Home::On(NodeId(1)), ..RegionOptions::default() };
    let many = comem.page_slice::<u64>(PAGES * WORDS, &options).expect("pages");
    let done = AtomicBool::new(false);
    let tells = || {
        let thread = comem.current().expect("a place");
        let rounds = (1..LAST).take_while(|_| !done.load(Ordering::Relaxed)).chain([LAST]);
        for k in rounds {
            slice.set(0, k);
            thread.flag_set(FLAG, k);
            std::thread::sleep(Duration::from_micros(k * 389 % 1000));
        }
    };
    let hears = || {
        let (thread, mut heard) = (comem.current().expect("a place"), 0);
        while heard < LAST {
            heard = thread.flag_wait(FLAG, heard + 1);
            assert!(slice.get(0) >= heard, "{} was written before {heard} was told", slice.get(0));
        }
    };
    let calls = || {
        for round in 0..100 {
            if comem.node() == 0 {
                (0..PAGES).for_each(|page| many.set(page * WORDS, round + 1));
            }
            barrier(comem);
        }
        done.store(true, Ordering::Relaxed);
    };
    if comem.node() == 0 {
        with(tells, calls)
    } else {
        with(hears, calls)
    }
    barrier(comem);
}

/// As before, but nothing was written since it was told: node 1 may wait for that before it comes to the barrier.
fn nothing_to_tell(comem: &Comem) {
    let own = comem.page_slice::<u64>(WORDS, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    let own = own.expect("a page");
    if comem.node() == 0 {
        own.set(0, 1);
    }
    let slice = page(comem, 1);
    let post = || {
        sleep(100);
        comem.current().expect("a place").sem_post(SemaphoreId(800));
    };
    match comem.node() {
        0 => with(post, || barrier(comem)),
        _ => {
            comem.current().expect("a place").sem_wait(SemaphoreId(800));
            barrier(comem);
        }
    }
    assert_eq!(slice.get(0), 0);
}

/// A thread of node 0 waits for locks when the main thread comes to a barrier, and node 1 wants them again before it
/// does.
fn held_back(comem: &Comem) {
    let slice = page(comem, 0);
    let count = |thread: &Thread| {
        thread.locked(LOCK, || slice.set(0, slice.get(0) + 1));
        let writes = thread.write_lock(RwLockId(7));
        slice.set(1, slice.get(1) + 1);
        drop(writes);
    };
    if comem.node() == 1 {
        let thread = comem.current().expect("a place");
        let held = thread.lock(LOCK);
        let writes = thread.write_lock(RwLockId(7));
        barrier(comem);
        sleep(200);
        slice.set(0, slice.get(0) + 1);
        slice.set(1, slice.get(1) + 1);
        drop(writes);
        drop(held);
        sleep(50);
        count(&thread);
        barrier(comem);
    } else {
        barrier(comem);
        let writes = || {
            let thread = comem.current().expect("a place");
            let writes = thread.write_lock(RwLockId(7));
            slice.set(1, slice.get(1) + 1);
            drop(writes);
        };
        let locks = || comem.current().expect("a place").locked(LOCK, || slice.set(0, slice.get(0) + 1));
        with(writes, || {
            with(locks, || {
                sleep(50);
                barrier(comem);
            });
        });
    }
    barrier(comem);
    assert_eq!([slice.get(0), slice.get(1)], [3, 3]);
}

/// The main thread waits for one that holds a lock, which waits for one that wants another.
fn patience(comem: &Comem) {
    let slice = page(comem, 0);
    let posts = || {
        let thread = comem.current().expect("a place");
        sleep(100);
        thread.locked(LockId(901), || slice.set(1, slice.get(1) + 1));
        thread.sem_post(SemaphoreId(902 + comem.node() as u64));
    };
    let holds = || {
        let thread = comem.current().expect("a place");
        thread.locked(LockId(910 + comem.node() as u64), || thread.sem_wait(SemaphoreId(902 + comem.node() as u64)));
    };
    with(posts, || {
        with(holds, || {
            sleep(50);
            barrier(comem);
        });
    });
    barrier(comem);
    assert_eq!(slice.get(1), comem.nodes() as u64);
}

fn writing(thread: &Thread, f: &dyn Fn()) {
    let writes = thread.write_lock(RwLockId(9));
    f();
    drop(writes);
}

/// A thread of node 0 has been patient and wants locks that node 1 holds until the barrier is open.
fn patient_in_vain(comem: &Comem, locked: &(impl Fn(&Thread, &dyn Fn()) + Sync)) {
    let (slice, held) = (page(comem, 0), std::sync::Barrier::new(3));
    let thread = comem.current().expect("a place");
    let holds_locks = (comem.node() == 1).then(|| (thread.lock(LOCK), thread.write_lock(RwLockId(9))));
    barrier(comem);
    let holds = || {
        let thread = comem.current().expect("a place");
        thread.locked(LockId(920), || {
            held.wait();
            sleep(500);
        });
    };
    let wants = || {
        let thread = comem.current().expect("a place");
        held.wait();
        sleep(100);
        locked(&thread, &|| slice.set(0, 1));
    };
    if comem.node() == 0 {
        with(holds, || {
            with(wants, || {
                held.wait();
                barrier(comem);
            });
        });
    } else {
        barrier(comem);
        drop(holds_locks);
    }
    barrier(comem);
    assert_eq!(slice.get(0), 1);
}

/// A thread of node 0 tells something while it uses a range of an array, and node 1 wants that before it comes to the
/// barrier.
fn lent(comem: &Comem) {
    let array = comem.object_array::<u64>(8).expect("an array");
    let (slice, thread) = (page(comem, 1), comem.current().expect("a place"));
    let writes = || {
        let thread = comem.current().expect("a place");
        // SAFETY: node 1 reads these elements when it may have them, and knows nothing of what is in them.
        unsafe {
            array.range_mut(&thread, 0..8, |lent| {
                lent[0] = 1;
                sleep(100);
                slice.set(0, 1);
                thread.sem_post(SemaphoreId(940));
                lent[1] = 1;
            });
        }
    };
    if comem.node() == 0 {
        with(writes, || barrier(comem));
    } else {
        sleep(200);
        let _ = array.read(&thread, 0);
        barrier(comem);
    }
    barrier(comem);
    assert_eq!([array.read(&thread, 0), array.read(&thread, 1)], [1, 1]);
}

/// A thread of node 0 writes to a block of node 1's and frees it while the main thread is at a barrier; node 1 may use
/// it for something else then.
fn freed(comem: &Comem) {
    let place = page(comem, 1);
    let allocate = || comem.alloc(64, &RegionOptions::default()).expect("a block").cast::<u64>();
    if comem.node() == 1 {
        place.set(1, allocate().addr() as u64);
    }
    barrier(comem);
    let block = place.get(1) as usize;
    let frees = || {
        sleep(100);
        // SAFETY: the block is this thread's until it frees it.
        unsafe { (block as *mut u64).write(7) };
        comem.free(block as *mut u8).expect("any thread may free");
    };
    if comem.node() == 0 {
        with(frees, || barrier(comem));
        barrier(comem);
    } else {
        sleep(300);
        let other = allocate();
        // SAFETY: the block is this thread's.
        unsafe { other.write(1) };
        barrier(comem);
        barrier(comem);
        // SAFETY: as before.
        assert_eq!(unsafe { other.read() }, 1, "the block at {block:#x} was freed, this one is at {other:?}");
    }
    barrier(comem);
}

/// A thread of node 0 writes, and declares that nobody does any more, while the main thread is at a barrier.
fn declared(comem: &Comem) {
    let slice = page(comem, 1);
    let declares = || comem.freeze(slice.as_ptr().cast()).expect("a region can be declared read-only");
    let writes = || {
        sleep(100);
        slice.set(0, 1);
        declares();
    };
    if comem.node() == 0 {
        with(writes, || barrier(comem));
    } else {
        sleep(200);
        barrier(comem);
        declares();
    }
    barrier(comem);
    assert_eq!(slice.get(0), 1);
}

/// A thread waits at a gate, and the node is asked where its threads wait.
fn reported(comem: &Comem) {
    let asks = || {
        for _ in 0..5 {
            sleep(200);
            // SAFETY: a signal to this process, which has a handler for it.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        }
    };
    let locks = || {
        sleep(100);
        comem.current().expect("a place").locked(LOCK, || ());
    };
    match comem.node() {
        0 => with(asks, || with(locks, || barrier(comem))),
        _ => {
            sleep(1500);
            barrier(comem);
        }
    }
}

/// Node 1 dies while a post to it is under way.
fn lost(comem: &Comem) {
    let thread = comem.current().expect("a place");
    barrier(comem);
    if comem.node() == 1 {
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
    sleep(100);
    (0..64).for_each(|n| thread.sem_post(SemaphoreId(n)));
    let flushed = thread.flush_posts();
    assert!(matches!(flushed, Err(Error::NodeLost { node: NodeId(1), .. })) && OVER.load(Ordering::Relaxed));
    std::process::exit(0);
}

/// When the program ends, threads of it still wait for what nobody will give.
fn waiting_at_the_end(comem: &Comem) {
    barrier(comem);
    for n in 0..4 {
        let waits = comem.clone();
        std::thread::spawn(move || {
            let thread = waits.current().expect("a place");
            let _ = thread.checked_sem_wait(SemaphoreId(n));
        });
    }
    sleep(100);
}

#[test]
fn sections_beside_barriers_lose_nothing() {
    for (backbone, engine) in BACKBONES.into_iter().flat_map(|backbone| ENGINES.map(|engine| (backbone, engine))) {
        for (nodes, detector) in [2, 3, 2].into_iter().zip(detectors().into_iter().cycle()) {
            job("beside: counting", nodes, &[backbone, engine, ("COMEM_DETECTOR", detector)]);
        }
    }
}

/// Plays a role of two nodes over both backbones under both engines.
fn everywhere(role: &str) {
    for (backbone, engine) in BACKBONES.into_iter().flat_map(|backbone| ENGINES.map(|engine| (backbone, engine))) {
        job(role, 2, &[backbone, engine]);
    }
}

#[test]
fn a_section_waits_for_the_opening_so_that_no_token_leaves_with_something_untold() {
    everywhere("beside: given");
}

#[test]
fn what_comes_from_beyond_a_barrier_is_taken_in_when_it_has_opened() {
    for backbone in BACKBONES {
        job("beside: taken", 2, &[backbone, ENGINES[0]]);
    }
}

#[test]
fn homes_stay_where_threads_go_on_until_the_opening() {
    everywhere("beside: moved");
}

#[test]
fn a_release_waits_for_the_opening_if_there_is_something_to_tell() {
    for (backbone, detector) in BACKBONES.into_iter().flat_map(|b| detectors().into_iter().map(move |d| (b, d))) {
        job("beside: told", 2, &[backbone, ENGINES[0], ("COMEM_DETECTOR", detector)]);
    }
}

#[test]
fn a_release_goes_ahead_of_the_opening_if_there_is_nothing_to_tell() {
    for (backbone, engine) in BACKBONES.into_iter().flat_map(|backbone| ENGINES.map(|engine| (backbone, engine))) {
        for detector in detectors() {
            job("beside: nothing to tell", 2, &[backbone, engine, ("COMEM_DETECTOR", detector)]);
        }
    }
}

#[test]
fn a_release_beside_the_end_of_an_interval_has_something_to_tell() {
    for backbone in BACKBONES {
        job("beside: told during a close", 2, &[backbone, ENGINES[0]]);
    }
}

#[test]
fn a_lock_that_comes_too_late_is_handed_back() {
    everywhere("beside: held back");
}

#[test]
fn a_section_that_another_one_waits_for_begins_after_all() {
    everywhere("beside: patience");
}

#[test]
fn a_call_waits_for_nobody_who_waits_for_a_lock_however_long() {
    for backbone in BACKBONES {
        job("beside: patient in vain: lock", 2, &[backbone, ENGINES[0]]);
        job("beside: patient in vain: rwlock", 2, &[backbone, ENGINES[0]]);
    }
}

#[test]
fn a_release_that_waits_for_the_opening_lets_its_threads_ranges_go() {
    for backbone in BACKBONES {
        job("beside: lent", 2, &[backbone, ENGINES[0]]);
    }
}

#[test]
fn memory_that_a_thread_frees_beside_a_call_keeps_nothing_of_what_it_wrote() {
    everywhere("beside: freed");
}

#[test]
fn what_a_thread_wrote_beside_a_call_before_it_declared_the_memory_read_only_counts() {
    everywhere("beside: declared");
}

#[test]
fn a_node_says_that_a_thread_waits_for_a_collective_call_of_another() {
    let outcome = start("beside: reported", 2, &[], &[]).finish();
    let said = "the end of a collective call that another thread of this node makes";
    assert!(outcome.errors[0].contains(said), "{outcome:#?}");
}

#[test]
fn posts_to_a_node_that_is_lost_do_not_keep_the_others() {
    let mut cluster = start("beside: lost", 2, &[("COMEM_NODE_TIMEOUT", "2")], &[]);
    cluster.wait_until_started();
    let status = cluster.nodes[0].wait().expect("a node that ends");
    cluster.nodes[1].kill().expect("a node can be killed");
    assert!(status.success(), "{status}: {:#?}", cluster.finish());
}

#[test]
fn threads_that_wait_do_not_keep_their_node_from_ending() {
    everywhere("beside: waiting at the end");
}
