//! Programs that do what they must not, and systems that do not give what Comem needs: each ends, or goes on, in a way
//! that tells what happened.

use crate::launcher::{Outcome, start};
use crate::matrix::{all_well, detectors};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, LockId, NodeId, Thread};
use std::os::unix::process::ExitStatusExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a role needs before Comem is started.
pub fn prepare(role: &str) {
    match role {
        "little-address-space" | "no-heap" => limit(libc::RLIMIT_AS, 8 << 30),
        "small-files" => limit(libc::RLIMIT_FSIZE, 1 << 20),
        "rather-small-files" => limit(libc::RLIMIT_FSIZE, 300 << 20),
        "handler-before" => handlers::install(),
        _ => {}
    }
}

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "beyond" => node_1(comem, |_, slice| assert_eq!(read_at(slice, 4 * WORDS + 1), 0)),
        "before" => before_a_far_one(comem),
        "freed" => freed(comem),
        "freed-at-home" => freed_at_home(comem),
        "freed-long-ago" => freed_long_ago(comem),
        "freed-on-the-way" => freed_on_the_way(comem),
        "null" => node_1(comem, |_, _| assert_eq!(read(std::ptr::null()), 0)),
        "deep" => node_1(comem, |_, _| assert!(deep(1) > 0)),
        "write-read-only" => write_read_only(comem, NodeId(1)),
        "home-writes-read-only" => write_read_only(comem, NodeId(0)),
        "read-only-after-locks" => read_only_after_locks(comem),
        "read-only-before-a-lock-moves" => read_only_before_a_lock_moves(comem),
        "used-behind-the-end" => use_behind_the_end(comem),
        "frees" => frees(comem),
        "calls" => calls(comem),
        "small-blocks-differ" => {
            for bytes in [16, if comem.node() == 1 { 48 } else { 16 }] {
                comem.alloc_all(bytes, &RegionOptions::default()).expect("there is room");
            }
            comem.parallel(|t| t.barrier());
        }
        "small-blocks-of-one" => {
            for _ in 0..=comem.node() {
                comem.alloc_all(16, &RegionOptions::default()).expect("there is room");
            }
            comem.parallel(|t| t.barrier());
        }
        "one-thread-too-many" => one_thread_too_many(comem),
        "threads-too-many" => threads_too_many(comem),
        "handler-before" | "handler-after" => handler(comem, role),
        "full-home" | "full-copy" => full(comem, role),
        "little-address-space" => plain_use(comem),
        "no-heap" => no_heap(comem, &["may have 8589934592 (RLIMIT_AS); raise `ulimit -v`"]),
        "small-files" => {
            no_heap(comem, &["RLIMIT_FSIZE", "of 1048576", "raise `ulimit -f`: no heap is smaller than 256M"])
        }
        "rather-small-files" => no_heap(comem, &["RLIMIT_FSIZE", "raise `ulimit -f`, or start with --heap 300M"]),
        "no-memory-files" => no_heap(comem, &["comem doctor"]),
        _ => return false,
    }
    true
}

fn limit(what: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(what, &raw const limit) }, 0);
}

fn read(at: *const u64) -> u64 {
    // SAFETY: none: the test is about what happens then.
    unsafe { at.read_volatile() }
}

fn read_at(slice: &PageSlice<u64>, index: usize) -> u64 {
    read(slice.as_ptr().wrapping_add(index))
}

/// A table of four pages; node 1 does something wrong with it while node 0 waits.
fn node_1(comem: &Comem, wrong: impl Fn(&Thread, &PageSlice<u64>) + Sync) {
    let slice = pages_of(comem, 4, &RegionOptions { label: "table".to_string(), ..RegionOptions::default() });
    comem.parallel(|t| {
        slice.set(t.id(), 1);
        t.barrier();
        if t.node() == NodeId(1) {
            wrong(t, &slice);
        }
        t.barrier();
    });
}

/// A second region begins far behind the table.
fn before_a_far_one(comem: &Comem) {
    let options = RegionOptions { label: "far".to_string(), alignment: 1 << 20, ..RegionOptions::default() };
    node_1(comem, |_, _| ());
    let far = pages_of(comem, 1, &options);
    if comem.node() == 1 {
        assert_eq!(read(far.as_ptr().wrapping_sub(3)), 0);
    }
    comem.parallel(|t| t.barrier());
}

/// The home has freed what node 1 has not yet, and reads.
fn freed_at_home(comem: &Comem) {
    let home = Home::On(NodeId(0));
    let slice = pages_of(comem, 4, &RegionOptions { label: "table".to_string(), home, ..RegionOptions::default() });
    comem.parallel(|t| t.barrier());
    if comem.node() == 0 {
        slice.set(WORDS, 7);
        comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
    }
    comem.parallel(|t| t.barrier());
    if comem.node() == 1 {
        assert_eq!(read_at(&slice, WORDS), 7);
    }
    comem.parallel(|t| t.barrier());
}

fn freed(comem: &Comem) {
    let slice = pages_of(comem, 4, &RegionOptions { label: "table".to_string(), ..RegionOptions::default() });
    comem.parallel(|t| {
        slice.set(t.id(), 1);
        t.barrier();
    });
    comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
    comem.parallel(|t| t.barrier());
    if comem.node() == 1 {
        assert_eq!(read_at(&slice, WORDS), 0);
    }
    comem.parallel(|t| t.barrier());
}

/// Two barriers have passed since a region was freed that is so large that nothing is remembered of it.
fn freed_long_ago(comem: &Comem) {
    let label = "table".to_string();
    let slice = pages_of(comem, 1025 * 512, &RegionOptions { label, ..RegionOptions::default() });
    comem.parallel(|t| {
        slice.set(t.id(), 1);
        t.barrier();
    });
    comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
    comem.parallel(|t| (0..3).for_each(|_| t.barrier()));
    if comem.node() == 1 {
        assert_eq!(read_at(&slice, WORDS), 0);
    }
    comem.parallel(|t| t.barrier());
}

/// Node 1 reads in order, so that more is on its way when the table is freed, and then one of those pages.
fn freed_on_the_way(comem: &Comem) {
    let home = Home::On(NodeId(0));
    let slice = pages_of(comem, 200, &RegionOptions { label: "table".to_string(), home, ..RegionOptions::default() });
    if comem.node() == 1 {
        (0..10).for_each(|page| assert_eq!(slice.get(page * WORDS), 0));
        comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
    }
    comem.parallel(|t| t.barrier());
    if comem.node() == 1 {
        assert_eq!(read_at(&slice, 60 * WORDS), 0);
    }
    comem.parallel(|t| t.barrier());
}

/// Nothing wrong: counters of all under several locks, a barrier, and from then on nobody writes.
fn read_only_after_locks(comem: &Comem) {
    let options = RegionOptions { home: Home::On(NodeId(comem.nodes() as u16 - 1)), ..RegionOptions::default() };
    let slice = pages_of(comem, 1, &options);
    comem.parallel(|t| {
        for i in 0..4 {
            let counter = (i + t.id()) % 4;
            t.locked(LockId(counter as u64), || slice.set(counter, slice.get(counter) + 1));
        }
        t.barrier();
    });
    comem.freeze(slice.as_ptr().cast()).expect("a region can be declared read-only");
    comem.parallel(|t| {
        for _ in 0..3 {
            assert_eq!([0, 1, 2, 3].map(|counter| slice.get(counter)), [t.threads() as u64; 4]);
            t.barrier();
        }
    });
}

/// Nothing wrong: what node 1 wrote under a lock is in no interval yet when all declare that nobody writes any more.
fn read_only_before_a_lock_moves(comem: &Comem) {
    let slice = pages_of(comem, 8, &RegionOptions { home: Home::On(NodeId(2)), ..RegionOptions::default() });
    let lock = LockId(9);
    comem.parallel(|t| {
        if t.node() == NodeId(1) {
            t.locked(lock, || (0..slice.len()).for_each(|i| slice.set(i, i as u64 + 1)));
        }
        t.checked_rendezvous().expect("all come");
    });
    comem.freeze(slice.as_ptr().cast()).expect("a region can be declared read-only");
    comem.parallel(|t| {
        t.checked_rendezvous().expect("all come");
        t.locked(lock, || (0..slice.len()).for_each(|i| assert_eq!(slice.get(i), i as u64 + 1, "word {i}")));
        t.barrier();
    });
}

#[allow(unconditional_recursion)]
fn deep(level: u64) -> u64 {
    let room = std::hint::black_box([level; 512]);
    deep(level + 1) + room[level as usize % 512]
}

fn write_read_only(comem: &Comem, writer: NodeId) {
    let slice = pages_of(comem, 4, &RegionOptions { label: "table".to_string(), ..RegionOptions::default() });
    comem.parallel(|t| {
        if t.node() == NodeId(0) {
            slice.set(0, 7);
        }
        t.barrier();
    });
    comem.freeze(slice.as_ptr().cast()).expect("a region can be declared read-only");
    comem.parallel(|t| {
        t.barrier();
        if t.node() == writer {
            // Home are in blocks: the first page is node 0's, which has written it.
            assert_eq!(slice.get(0), 7);
            slice.set(0, 1);
        }
        t.barrier();
        t.barrier();
    });
}

/// Node 0 reads what node 1 has written when the job has ended and node 1 is gone.
fn use_behind_the_end(comem: &Comem) {
    let homes = RegionOptions { home: Home::Block, label: "table".to_string(), ..RegionOptions::default() };
    let (slice, process) = (pages_of(comem, 2, &homes), pages_of(comem, 1, &RegionOptions::default()));
    comem.parallel(|t| {
        slice.set(comem.node() * WORDS, 7);
        if comem.node() == 1 {
            process.set(0, u64::from(std::process::id()));
        }
        t.barrier();
    });
    let other = process.get(0);
    comem.parallel(|t| t.barrier());
    comem.clone().finish().expect("the end");
    if comem.node() == 0 {
        // It answers as long as it is there.
        while is_at_work(other) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(slice.get(WORDS), 7);
    }
    std::process::exit(0);
}

/// Whether a process has not ended, be it noticed or not.
fn is_at_work(process: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])))
}

/// Every wrong way to free is refused and changes nothing.
fn frees(comem: &Comem) {
    let refused = |address: usize, part: &str| {
        let error = comem.free(address as *mut u8).expect_err("a wrong address is refused");
        let text = comem.sentence(&error);
        assert!(text.contains(&format!("cannot free {address:#x}: ")) && text.contains(part), "{text}");
    };
    let none = "no allocation begins there, or it was freed already";
    let slice = pages_of(comem, 4, &RegionOptions::default());
    let own = |bytes| comem.alloc(bytes, &RegionOptions::default()).expect("there is room").addr();
    let (small, large) = (own(100), own(100_000));
    let table = comem.page_slice::<usize>(comem.nodes() * 2, &RegionOptions::default()).expect("there is room");
    table.set(comem.node() * 2, small);
    table.set(comem.node() * 2 + 1, large);
    comem.parallel(|t| t.barrier());
    let next = (comem.node() + 1) % comem.nodes() * 2;
    for block in [small, large, table.get(next), table.get(next + 1)] {
        refused(block + 8, none);
        refused(block + 4096, none);
    }
    refused(slice.as_ptr().addr() + 4096, none);
    refused(std::ptr::from_ref(&none).addr(), "it is not in the shared heap");
    comem.parallel(|t| t.barrier());
    for block in [table.get(next), table.get(next + 1)] {
        comem.free(block as *mut u8).expect("a block can be freed");
        refused(block, none);
    }
    comem.parallel(|t| t.barrier());
    refused(small, none);
    refused(large, none);
    give_back(comem, slice);
    refused(slice.as_ptr().addr(), none);
    give_back(comem, table_as_words(&table));
}

fn table_as_words(table: &PageSlice<usize>) -> PageSlice<u64> {
    // SAFETY: both are eight bytes; the handle is used for its address alone.
    unsafe { std::mem::transmute::<PageSlice<usize>, PageSlice<u64>>(*table) }
}

/// System calls on buffers that are not here fail as the system says, and work once the memory was touched.
fn calls(comem: &Comem) {
    let slice = pages_of(comem, 4, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    if comem.node() == 0 {
        (0..slice.len()).for_each(|i| slice.set(i, i as u64));
    }
    comem.parallel(|t| t.barrier());
    if comem.node() == 1 {
        let (mut ends, bytes) = ([0; 2], 2 * WORDS * 8);
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let errno = || std::io::Error::last_os_error().raw_os_error();
        let (from, to) = (slice.as_ptr(), slice.as_ptr().wrapping_add(2 * WORDS));
        // SAFETY: the range is in the slice.
        let write = || unsafe { libc::write(ends[1], from.cast(), bytes) };
        // SAFETY: as above.
        let read = || unsafe { libc::read(ends[0], to.cast(), bytes) };
        assert_eq!((write(), errno()), (-1, Some(libc::EFAULT)));
        comem.prefetch(from.cast(), bytes, false).expect("the slice can be touched");
        assert_eq!(write(), bytes as isize);
        assert_eq!((read(), errno()), (-1, Some(libc::EFAULT)));
        comem.prefetch(to.cast(), bytes, true).expect("the slice can be touched");
        assert_eq!(read(), bytes as isize);
        assert!(comem.prefetch(std::ptr::null(), 8, false).is_err());
    }
    comem.parallel(|t| {
        t.barrier();
        (0..2 * WORDS).for_each(|i| assert_eq!(slice.get(2 * WORDS + i), i as u64, "what a system call wrote"));
    });
    give_back(comem, slice);
    assert!(
        comem.prefetch(slice.as_ptr().cast(), 8, true).is_err() || comem.nodes() == 1,
        "freed memory can be touched"
    );
}

fn one_thread_too_many(comem: &Comem) {
    let slice = pages_of(comem, 4, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    if comem.node() == 1 {
        std::thread::spawn(move || slice.get(3 * WORDS)).join().expect("the process ends first");
    }
    comem.parallel(|t| t.barrier());
}

/// Several at once. What the program has registered for its exit must not run in the midst of their faults.
fn threads_too_many(comem: &Comem) {
    extern "C" fn at_exit() {
        // SAFETY: ends the process.
        unsafe { libc::_exit(77) };
    }
    let slice = pages_of(comem, 4, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    // SAFETY: the function stays.
    unsafe { libc::atexit(at_exit) };
    if comem.node() == 1 {
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for page in 0..4 {
                let (together, slice) = (&together, &slice);
                scope.spawn(move || {
                    together.wait();
                    slice.get(page * WORDS)
                });
            }
        });
    }
    comem.parallel(|t| t.barrier());
}

fn plain_use(comem: &Comem) {
    let slice = pages_of(comem, 4, &RegionOptions::default());
    comem.parallel(|t| {
        slice.set(t.id(), t.id() as u64 + 1);
        t.barrier();
        (0..t.threads()).for_each(|id| assert_eq!(slice.get(id), id as u64 + 1));
    });
    give_back(comem, slice);
}

/// Without a heap, allocating fails with the reason, and the rest works.
fn no_heap(comem: &Comem, words: &[&str]) {
    let error = comem.alloc(100, &RegionOptions::default()).expect_err("there is no heap").to_string();
    assert!(error.contains("there is no shared heap") && words.iter().all(|word| error.contains(word)), "{error}");
    let array = comem.object_array::<u32>(comem.threads()).expect("objects need no heap");
    comem.parallel(|t| {
        array.write(t, t.id(), 7);
        t.barrier();
        (0..t.threads()).for_each(|id| assert_eq!(array.read(t, id), 7));
    });
}

mod handlers {
    use super::{AtomicUsize, Ordering};

    pub static CALLED: AtomicUsize = AtomicUsize::new(0);

    /// The program's own handler: makes the page at the address usable and returns.
    extern "C" fn on_signal(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        CALLED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel hands a valid record.
        let page = unsafe { (*info).si_addr() }.map_addr(|a| a & !4095);
        // SAFETY: the pages that fault here are the test's own, and without contents.
        unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) };
    }

    /// Installs it for SIGSEGV and SIGBUS.
    pub fn install() {
        // SAFETY: a zero action is valid, and the handler does what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            for signal in [libc::SIGSEGV, libc::SIGBUS] {
                assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
            }
        }
    }

    /// A page of the program's own that nobody may use yet.
    pub fn page() -> *mut u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page.cast()
    }
}

/// The program's handler gets the program's faults, and Comem its own, whoever came first.
fn handler(comem: &Comem, role: &str) {
    if role == "handler-after" {
        handlers::install();
        // The next call of Comem's notices.
        comem.parallel(|t| t.barrier());
    }
    for round in 1..=3 {
        plain_use(comem);
        let page = handlers::page();
        // SAFETY: the handler makes the page usable.
        unsafe { page.write_volatile(5) };
        assert_eq!(read(page), 5);
        assert_eq!(
            handlers::CALLED.load(Ordering::Relaxed),
            round,
            "the program's handler is called for its own faults alone"
        );
    }
}

/// A node's exit status, or the signal that ended it.
type End = (Option<i32>, Option<i32>);

/// How each node ended.
pub fn ends(role: &str, settings: &[(&str, &str)]) -> (Vec<End>, Outcome) {
    let mut cluster = start(role, 2, settings, &[]);
    cluster.tells_ends = true;
    let mut outcome = (Default::default(), Default::default());
    cluster.follow(&mut outcome.0, &mut outcome.1, |_| false);
    let ends = cluster.nodes.iter_mut().map(|n| n.wait().expect("a node ends")).map(|s| (s.code(), s.signal()));
    let ends = ends.collect();
    let mut rest = cluster.finish();
    rest.failures = outcome.0;
    (ends, rest)
}

/// Node 1 dies of a signal, after it said something; node 0 ends because of that.
#[track_caller]
pub fn dies(role: &str, settings: &[(&str, &str)], signal: i32, part: &str) -> Outcome {
    let (ends, outcome) = ends(role, settings);
    assert_eq!(ends, [(Some(4), None), (None, Some(signal))], "{role} {settings:?}: {outcome:#?}");
    assert!(outcome.errors[1].contains(part), "{role} {settings:?}: {:?}", outcome.errors[1]);
    outcome
}

#[test]
fn an_access_beyond_an_allocation_names_it_and_kills() {
    for engine in ["hlrc", "msi"] {
        for detector in detectors() {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_ENGINE", engine)];
            let part = "which is 8 bytes beyond the end of table (16384 bytes); check the pointer or index";
            let outcome = dies("beyond", &settings, libc::SIGSEGV, part);
            let line = outcome.errors[1].lines().find(|l| l.contains(part)).unwrap_or_default();
            assert!(line.starts_with("comem: node 1 (host ") && line.contains("a read of address 0x"), "{line}");
            assert_eq!(outcome.errors[1].matches(part).count(), 1, "it is said once");
        }
    }
}

#[test]
fn an_access_just_before_an_allocation_names_that() {
    for detector in detectors() {
        let part = "which is 24 bytes before the beginning of far (4096 bytes); check the pointer or index";
        dies("before", &[("COMEM_DETECTOR", detector)], libc::SIGSEGV, part);
    }
}

#[test]
fn an_access_to_freed_memory_says_that_it_was_freed_and_kills() {
    for detector in detectors() {
        let part = "which is 4096 bytes into table, which was freed";
        dies("freed", &[("COMEM_DETECTOR", detector)], libc::SIGSEGV, part);
        dies("freed-at-home", &[("COMEM_DETECTOR", detector)], libc::SIGSEGV, part);
    }
}

#[test]
fn of_memory_that_was_freed_long_ago_no_more_is_known_than_that() {
    for engine in ["hlrc", "scope", "lrc", "multicast", "msi"] {
        let part = "of the shared heap, in a region that was freed; check the pointer or index";
        dies("freed-long-ago", &[("COMEM_ENGINE", engine)], libc::SIGSEGV, part);
    }
}

#[test]
fn what_is_on_its_way_when_memory_is_freed_does_not_come_back() {
    for detector in detectors() {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp")];
        dies("freed-on-the-way", &settings, libc::SIGSEGV, "which is 245760 bytes into table, which was freed");
    }
}

#[test]
fn a_null_pointer_still_kills() {
    for detector in detectors() {
        let outcome = dies("null", &[("COMEM_DETECTOR", detector)], libc::SIGSEGV, "");
        assert!(!outcome.errors[1].contains("shared heap"), "{:?}", outcome.errors[1]);
    }
}

#[test]
fn a_stack_overflow_still_says_what_it_is() {
    for detector in detectors() {
        dies("deep", &[("COMEM_DETECTOR", detector)], libc::SIGABRT, "has overflowed its stack");
    }
}

#[test]
fn a_page_that_nobody_gives_behind_the_end_of_the_job_is_an_error() {
    for engine in ["hlrc", "msi"] {
        let settings = [("COMEM_BACKBONE", "udp"), ("COMEM_ENGINE", engine)];
        let outcome = start("used-behind-the-end", 2, &settings, &[]).finish();
        assert_eq!(outcome.statuses, [Some(2), Some(0)], "{outcome:#?}");
        let said = &outcome.errors[0];
        assert!(said.contains("waits for page 1 of table (first home: node 1"), "{said}");
        assert!(said.contains("the job has ended, and nobody answers any more"), "{said}");
    }
}

#[test]
fn a_write_to_memory_declared_read_only_is_reported() {
    for (detector, engine) in detectors().into_iter().flat_map(|d| [(d, "hlrc"), (d, "scope")]) {
        let (ends, outcome) = ends("write-read-only", &[("COMEM_DETECTOR", detector), ("COMEM_ENGINE", engine)]);
        let text = format!("{:?}{:?}", outcome.errors[1], outcome.failures);
        let told = "the program wrote to table, which it had declared read-only";
        assert_eq!(text.matches(told).count(), 1, "{detector} {engine}: {text}");
        assert_eq!(ends[1], (Some(2), None), "{detector} {engine}: {text}");
    }
}

#[test]
fn nobody_is_told_of_a_write_from_before_memory_was_declared_read_only() {
    for detector in detectors() {
        let outcome = start("read-only-after-locks", 3, &[("COMEM_DETECTOR", detector)], &[]).finish();
        assert_eq!(outcome.statuses, [Some(0); 3], "{detector}: {outcome:#?}");
        assert!(outcome.errors.iter().all(|e| !e.contains("read-only")), "{detector}: {:#?}", outcome.errors);
    }
}

#[test]
fn what_was_written_before_memory_was_declared_read_only_is_told() {
    for (detector, engine) in detectors().into_iter().cycle().zip(["hlrc", "scope", "hlrc"]) {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_ENGINE", engine)];
        let outcome = start("read-only-before-a-lock-moves", 3, &settings, &[]).finish();
        all_well("read-only-before-a-lock-moves", &outcome);
        assert!(outcome.errors.iter().all(|e| !e.contains("read-only")), "{detector}: {:#?}", outcome.errors);
    }
}

#[test]
fn under_msi_a_write_to_memory_declared_read_only_is_reported_wherever_its_home_is() {
    for detector in detectors() {
        // Home are in blocks: node 0 writes to a page of its own, node 1 to a copy.
        for (role, node) in [("home-writes-read-only", 0), ("write-read-only", 1)] {
            let (ends, outcome) = ends(role, &[("COMEM_DETECTOR", detector), ("COMEM_ENGINE", "msi")]);
            let text = format!("{:?}{:?}", outcome.errors[node], outcome.failures);
            let told = "the program wrote to table, which it had declared read-only";
            assert!(text.contains(told), "{detector} {role}: {text}");
            assert_eq!(ends[node], (Some(2), None), "{detector} {role}: {text}");
        }
    }
}

#[test]
fn wrong_ways_to_free_are_refused_on_every_node() {
    for detector in detectors() {
        for nodes in [2, 3] {
            all_well("frees", &start("frees", nodes, &[("COMEM_DETECTOR", detector)], &[]).finish());
        }
    }
}

#[test]
fn system_calls_on_pages_that_are_not_here_fail_and_work_after_a_touch() {
    for detector in detectors() {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_PREFETCH", "off")];
        all_well("calls", &start("calls", 2, &settings, &[]).finish());
    }
}

#[test]
fn a_thread_too_many_is_told_which_option_to_raise() {
    for detector in detectors() {
        let (ends, outcome) = ends("one-thread-too-many", &[("COMEM_DETECTOR", detector)]);
        assert_eq!(ends[1], (Some(2), None), "{outcome:#?}");
        let text = format!("{:?}{:?}", outcome.errors[1], outcome.failures);
        assert!(text.contains("all 1 places of this node are taken; start the job with -t 2 or more"), "{text}");
    }
}

#[test]
fn threads_whose_faults_cannot_be_served_end_their_node_once() {
    for detector in detectors() {
        let (ends, outcome) = ends("threads-too-many", &[("COMEM_DETECTOR", detector)]);
        assert_eq!(ends[1], (Some(2), None), "{outcome:#?}");
    }
}

#[test]
fn a_programs_own_signal_handler_keeps_its_faults_and_comem_its_own() {
    for role in ["handler-before", "handler-after"] {
        for detector in detectors() {
            all_well(role, &start(role, 2, &[("COMEM_DETECTOR", detector)], &[]).finish());
        }
    }
}

#[test]
fn a_heap_that_fits_the_limit_of_address_space_works_and_a_larger_one_is_refused_with_the_reason() {
    all_well("fits", &start("little-address-space", 2, &[("COMEM_HEAP", "1G")], &[]).finish());
    all_well("does not fit", &start("no-heap", 2, &[], &[]).finish());
}

#[test]
fn where_memory_files_must_be_small_there_is_no_heap_and_the_rest_works() {
    for role in ["small-files", "rather-small-files"] {
        all_well(role, &start(role, 2, &[], &[]).finish());
    }
}

/// Node 1's memory is full: no page gets any more, be it a home page (for which the kernel is asked) or a copy (which
/// is written to).
fn full(comem: &Comem, role: &str) {
    let (home, first) = if role == "full-home" { (1, 0) } else { (0, 1024) };
    let options =
        RegionOptions { home: Home::On(NodeId(home)), label: "temperatures".to_string(), ..RegionOptions::default() };
    let slice = pages_of(comem, 2048, &options);
    comem.parallel(|t| {
        if t.node() == NodeId(1) {
            if role == "full-home" {
                crate::seccomp::refuse_memory();
            } else {
                // Nothing that node 0 looks at is there.
                cut_memory_files();
            }
            slice.set(first * WORDS, 1);
        }
        t.barrier();
    });
}

/// Makes the file behind this process's pages so short that those behind its beginning cannot have memory.
fn cut_memory_files() {
    for entry in std::fs::read_dir("/proc/self/fd").expect("this process has descriptors").flatten() {
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        // Not another node's, which may be looked into just now.
        if name.to_string_lossy().contains(&format!("memfd:comem-tracked-{} ", std::process::id())) {
            let file = std::fs::File::options().write(true).open(entry.path()).expect("the file is this process's own");
            file.set_len(1 << 20).expect("it can be cut");
        }
    }
}

#[test]
fn memory_that_cannot_be_had_is_a_sentence_with_the_regions_name() {
    let ways = [("full-home", "uffd-async"), ("full-copy", "uffd-async"), ("full-copy", "mprotect")];
    for (role, detector) in ways.into_iter().filter(|(_, detector)| detectors().contains(detector)) {
        let outcome = start(role, 2, &[("COMEM_DETECTOR", detector)], &[]).finish();
        let said: Vec<&str> = outcome.errors[1].lines().filter(|l| l.starts_with("comem: ")).collect();
        let good = said.len() == 1
            && said[0].starts_with("comem: node 1 (host ")
            && said[0].contains("the system has no memory for a page of temperatures, at 0x")
            && said[0].contains("lower --cache");
        assert!(good && outcome.statuses[1].is_none(), "{role} {detector}: {outcome:#?}");
        assert_eq!(outcome.statuses[0], Some(4), "node 0 ends with node 1: {outcome:#?}");
    }
}

/// Such calls send nothing, so it is the next barrier that finds them.
#[test]
fn small_allocations_that_differ_between_nodes_are_an_error_at_the_next_barrier() {
    for role in ["small-blocks-differ", "small-blocks-of-one"] {
        let outcome = start(role, 2, &[], &[]).finish();
        let text = format!("{:?}{:?}", outcome.errors, outcome.failures);
        assert!(text.contains("every node must make the same collective calls"), "{role}: {outcome:#?}");
        assert!(outcome.statuses.contains(&Some(2)), "{role}: {outcome:#?}");
    }
}
