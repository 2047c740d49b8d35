//! Systems that forbid what the fast detectors need, as containers do: a filter refuses the call, and the job goes on
//! with a slower detector and says so once. Or they forbid to open other processes' memory: then pages travel.

use crate::launcher::{Outcome, start};
use crate::matrix::{all_well, counted, works};

/// What a node may not do: `userfaultfd`, `pagemap-scan`, `memory-files`, or `foreign-files` (opening other processes'
/// memory files).
const FORBID: &str = "COMEM_TEST_FORBID";

/// The request of `ioctl` that finds written pages (linux/fs.h, `PAGEMAP_SCAN`).
const PAGEMAP_SCAN: u32 = 0xC060_6610;
/// The request of `ioctl` on /dev/userfaultfd that makes one (linux/userfaultfd.h, `USERFAULTFD_IOC_NEW`).
const USERFAULTFD_NEW: u32 = 0xAA00;
const USERFAULTFD_ZEROPAGE: u32 = 0xC020_AA04;

/// Installs the filter that the environment asks for, in this thread and all that it starts.
pub fn prepare() {
    match std::env::var(FORBID).as_deref() {
        Ok("userfaultfd") => install(&forbid_userfaultfd()),
        Ok("pagemap-scan") => install(&forbid_ioctl(PAGEMAP_SCAN)),
        Ok("memory-files") => install(&forbid_memory_files()),
        Ok("foreign-files") => close_own_files(),
        _ => {}
    }
}

/// Makes this process one whose files in /proc only root may open, and no longer root.
fn close_own_files() {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: the calls take numbers only.
    let done = unsafe {
        (libc::geteuid() != 0 || libc::setresuid(NOBODY, NOBODY, NOBODY) == 0)
            && libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    };
    assert!(done, "rights can be given up: {}", std::io::Error::last_os_error());
}

/// Loads a word of the call's description: 0 is its number, 24 the lower half of its second argument.
fn load(offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

fn skip_unless(value: u32, skipped: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: skipped, k: value }
}

fn answer(action: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: action }
}

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

fn forbid_ioctl(request: u32) -> Vec<libc::sock_filter> {
    vec![
        load(0),
        skip_unless(libc::SYS_ioctl as u32, 3),
        load(24),
        skip_unless(request, 1),
        answer(REFUSE),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

fn forbid_userfaultfd() -> Vec<libc::sock_filter> {
    let call = [load(0), skip_unless(libc::SYS_userfaultfd as u32, 1), answer(REFUSE)];
    call.into_iter().chain(forbid_ioctl(USERFAULTFD_NEW)).collect()
}

fn forbid_memory_files() -> [libc::sock_filter; 4] {
    let call = skip_unless(libc::SYS_memfd_create as u32, 1);
    [load(0), call, answer(REFUSE), answer(libc::SECCOMP_RET_ALLOW)]
}

/// From now on the system has no memory for new pages of files when the calling thread asks for some in advance, or for
/// zeros by its userfaultfd.
pub fn refuse_memory() {
    const FULL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSPC as u32;
    let call = [load(0), skip_unless(libc::SYS_fallocate as u32, 3), load(24), skip_unless(0, 1), answer(FULL)];
    install(&call.into_iter().chain(forbid_ioctl(USERFAULTFD_ZEROPAGE)).collect::<Vec<_>>());
}

fn install(filter: &[libc::sock_filter]) {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program is well-formed and outlives the calls, which copy it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(installed, "a filter can be installed: {}", std::io::Error::last_os_error());
}

fn forbidden(what: &str) -> Outcome {
    let outcome = start("suite", 2, &[(FORBID, what), ("COMEM_TEST_ONLY", "locks")], &[]).finish();
    all_well(what, &outcome);
    outcome
}

fn detectors(outcome: &Outcome) -> Vec<&str> {
    (0..outcome.stats.len()).filter_map(|node| outcome.stats[&node]["detector"].as_str()).collect()
}

/// What Comem said, but for the names of what the test has done.
fn said(outcome: &Outcome) -> Vec<&str> {
    outcome.errors.iter().flat_map(|e| e.lines()).filter(|l| l.starts_with("comem: ")).collect()
}

#[test]
fn where_userfaultfd_is_forbidden_pages_are_protected_and_one_line_says_so() {
    let outcome = forbidden("userfaultfd");
    assert_eq!(detectors(&outcome), ["mprotect", "mprotect"]);
    let said = said(&outcome);
    assert!(said.len() == 1 && said[0].contains("taking mprotect, which is slower"), "{said:?}");
}

#[test]
fn where_written_pages_cannot_be_found_write_faults_are_taken_and_one_line_says_so() {
    if !works("uffd-async", "where_written_pages_cannot_be_found_write_faults_are_taken_and_one_line_says_so") {
        return;
    }
    let outcome = forbidden("pagemap-scan");
    assert_eq!(detectors(&outcome), ["uffd", "uffd"]);
    let said = said(&outcome);
    assert!(said.len() == 1 && said[0].contains("taking uffd, which is slower"), "{said:?}");
}

#[test]
fn where_no_detector_works_none_is_said_to_be_taken() {
    let settings = [(FORBID, "memory-files"), ("COMEM_BACKBONE", "udp")];
    let outcome = start("no-memory-files", 2, &settings, &[]).finish();
    all_well("no memory files", &outcome);
    let said = said(&outcome);
    let (none, others): (Vec<&str>, Vec<&str>) = said.into_iter().partition(|line| line.contains("no detector works"));
    assert!(none.len() == 1 && none[0].contains("memfd_create"), "{none:?}");
    assert!(others.iter().all(|line| line.contains("there is no shared heap")), "{others:?}");
}

#[test]
fn nodes_with_different_detectors_work_together() {
    if !works("uffd-async", "nodes_with_different_detectors_work_together") {
        return;
    }
    let own = [(0, "COMEM_DETECTOR", "mprotect"), (1, "COMEM_DETECTOR", "uffd"), (2, "COMEM_DETECTOR", "uffd-async")];
    for engine in ["hlrc", "scope", "lrc", "multicast", "msi"] {
        // Some of the suite's regions name an engine whose locks tell what was written.
        let locks = ("COMEM_LOCKS", "tokens");
        let settings = [("COMEM_ENGINE", engine), ("COMEM_THREADS", "2"), ("COMEM_TEST_ONLY", "e"), locks];
        let outcome = start("suite", 3, &settings, &own).finish();
        all_well(engine, &outcome);
        assert_eq!(detectors(&outcome), ["mprotect", "uffd", "uffd-async"]);
    }
}

#[test]
fn a_detector_that_was_ordered_and_does_not_work_is_an_error() {
    let mut cluster = start("suite", 2, &[(FORBID, "userfaultfd"), ("COMEM_DETECTOR", "uffd")], &[]);
    cluster.tells_ends = true;
    let outcome = cluster.finish();
    let text = format!("{:?}{:?}", outcome.errors, outcome.failures);
    assert!(text.contains("the detector uffd does not work on host "), "{outcome:#?}");
    assert!(outcome.statuses.contains(&Some(3)), "{outcome:#?}");
}

#[test]
fn where_a_nodes_memory_may_not_be_opened_its_pages_travel_through_shared_memory() {
    let job = |more: &[_]| {
        let settings = [("COMEM_BACKBONE", "shm"), ("COMEM_DETECTOR", "mprotect"), ("COMEM_TEST_ONLY", "locks")];
        let outcome = start("suite", 2, &[&settings[..], more].concat(), &[]).finish();
        all_well("suite", &outcome);
        let bytes: u64 = outcome.stats.values().map(|s| s["bytes_sent"].as_u64().unwrap_or(0)).sum();
        (bytes, 4096 * counted(&outcome, "pages_fetched"))
    };
    let (bytes, fetched) = job(&[]);
    assert!(bytes < fetched, "pages are read in place: {bytes} bytes were sent, {fetched} fetched");
    let (bytes, fetched) = job(&[(FORBID, "foreign-files")]);
    assert!(bytes >= fetched && fetched > 0, "pages travel: {bytes} bytes were sent, {fetched} fetched");
}
