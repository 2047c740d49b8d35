//! An arena whose faults are answered as a runtime would, and counted.
#![allow(dead_code, reason = "each test program uses a part")]

use comem_memory::pages::fault::{self, Access, Fault, Verdict};
use comem_memory::pages::{Arena, Detector, PAGE_BYTES, Tracking};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

/// An arena with the faults that were answered for it.
pub struct Subject {
    pub arena: Arena,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    step: Mutex<()>,
    /// Stores to these pages are forbidden until one faults.
    forbidden: Mutex<Option<Range<u32>>>,
}

static SUBJECTS: RwLock<Vec<&'static Subject>> = RwLock::new(Vec::new());

/// Answers a fault on any of the arenas.
pub fn on_fault(fault: &Fault) -> Verdict {
    let subjects = SUBJECTS.read().unwrap();
    let found = subjects.iter().find_map(|s| s.arena.page_of(fault.address).map(|page| (*s, page)));
    let Some((subject, page)) = found else { return Verdict::NotOurs };
    drop(subjects);
    subject.answer(page, fault.access);
    Verdict::Retry
}

/// A fresh address range for each arena.
pub fn free_base(bytes: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);
    loop {
        let base = NEXT.fetch_add(bytes.next_multiple_of(1 << 30), Ordering::Relaxed);
        if Arena::is_free(base, bytes) {
            return base;
        }
    }
}

/// The detectors that work here; the others are named.
pub fn detectors() -> Vec<Detector> {
    let works = |detector: &Detector| match detector.probe() {
        Ok(()) => true,
        Err(reason) => {
            let required = std::env::var_os("COMEM_NO_SKIP").is_some() || *detector == Detector::Mprotect;
            assert!(!required, "{detector} may not be skipped here: {reason}");
            println!("SKIP: {detector}: {reason}");
            false
        }
    };
    Detector::ALL.into_iter().filter(works).collect()
}

/// An arena of `pages` pages under the handler.
pub fn subject(pages: usize, tracking: Tracking, detector: Detector) -> &'static Subject {
    fault::install(on_fault).unwrap();
    fault::prepare_thread().unwrap();
    let bytes = pages * PAGE_BYTES;
    let arena = Arena::new(free_base(bytes), bytes, tracking, detector).unwrap();
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let subject: &'static Subject =
        Box::leak(Box::new(Subject { arena, reads, writes, step: Mutex::new(()), forbidden: Mutex::new(None) }));
    SUBJECTS.write().unwrap().push(subject);
    subject
}

/// One for each detector that works, and each kind of tracking.
pub fn subjects(pages: usize) -> impl Iterator<Item = &'static Subject> {
    let pairs = detectors().into_iter().flat_map(|d| [(d, Tracking::Tracked), (d, Tracking::Guarded)]);
    pairs.map(move |(detector, tracking)| subject(pages, tracking, detector))
}

/// How many pages the kernel has moved, or tried to, to make room for larger ones.
fn moved_pages() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let number = |line: &str| line.strip_prefix("pgmigrate_")?.split_once(' ')?.1.parse::<u64>().ok();
    counters.lines().filter_map(number).sum()
}

/// Has `body` look at each subject, and once more at fresh ones when it failed while the kernel moved pages. The entry
/// of a page that is being moved may miss its protection afterwards, or be absent for a moment: the page is reported as
/// written once too often, or faults. Nothing is lost by it, but exact counts are.
pub fn undisturbed<S, I: Iterator<Item = S>>(subjects: impl Fn() -> I, body: impl Fn(S)) {
    for attempt in 1.. {
        let before = moved_pages();
        let Err(failure) = catch_unwind(AssertUnwindSafe(|| subjects().for_each(&body))) else { return };
        if moved_pages() == before || attempt == 20 {
            resume_unwind(failure);
        }
        println!("once more: the kernel moved pages meanwhile");
    }
}

/// What the kernel says of the mapping that begins at this address (`VmFlags`).
pub fn mapping_flags(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{address:x}-")));
    lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default().to_string()
}

impl Subject {
    fn answer(&self, page: u32, access: Access) {
        let _step = self.step.lock().unwrap();
        let pages = page..page + 1;
        if access == Access::Read {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.arena.map_read(pages).unwrap();
        } else {
            self.writes.fetch_add(1, Ordering::Relaxed);
            match self.forbidden.lock().unwrap().take() {
                Some(forbidden) => self.arena.allow_writes(forbidden).unwrap(),
                None => self.arena.map_write(pages).unwrap(),
            }
        }
    }

    /// Stores to these pages are forbidden; the first that faults allows them.
    pub fn allow_at_the_next_store(&self, pages: Range<u32>) {
        *self.forbidden.lock().unwrap() = Some(pages);
    }

    /// Does something while no fault is being answered.
    pub fn alone<T>(&self, what: impl FnOnce() -> T) -> T {
        let _step = self.step.lock().unwrap();
        what()
    }

    /// What the page's fault handler was called for: reads, then writes.
    pub fn faults(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    pub fn address(&self, page: u32) -> *mut u64 {
        std::ptr::with_exposed_provenance_mut(self.arena.base() + page as usize * PAGE_BYTES)
    }

    /// Loads a page's first word as a program would.
    pub fn load(&self, page: u32) -> u64 {
        // SAFETY: within the arena; the handler makes the page readable.
        unsafe { self.address(page).read_volatile() }
    }

    /// Stores a page's first word as a program would.
    pub fn store(&self, page: u32, word: u64) {
        // SAFETY: within the arena; the handler makes the page writable.
        unsafe { self.address(page).write_volatile(word) }
    }

    /// The page's first word in the service view.
    pub fn service(&self, page: u32) -> *mut u64 {
        // SAFETY: the service view has all pages of the arena.
        unsafe { self.arena.service().add(page as usize * PAGE_BYTES) }.cast()
    }

    /// What was written, by the kernel's notes.
    pub fn collect(&self, pages: Range<u32>) -> Vec<Range<u32>> {
        let mut written = Vec::new();
        self.arena.collect(pages, &mut written).unwrap();
        written
    }

    pub fn name(&self) -> String {
        format!("{} {:?}", self.arena.detector(), self.arena.tracking())
    }
}
