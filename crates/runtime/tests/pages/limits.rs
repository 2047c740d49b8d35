//! More memory than fits: the cache's bound, address space that is never touched, the kernel's limit of mappings.

use crate::launcher::{Outcome, start};
use crate::matrix::{all_well, counted, detectors, job, works};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, PageEngine, PageSlice, RegionOptions};
use comem::{Comem, NodeId};

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "small-cache" => small_cache(comem),
        "written-cache" => written_cache(comem),
        "ended-copies" => copies_out_of_use(comem, true),
        "aside-copies" => copies_out_of_use(comem, false),
        "growing" => growing(comem),
        "rows-of-columns" => rows_of_columns(comem),
        "factorisation" => factorisation(comem),
        "few-units" => few_units(comem),
        "vast" => vast(comem),
        "scattered" => scattered(comem),
        "half-read" => half_read(comem),
        "freed-shared" => freed_shared(comem),
        "scattered-units" => scattered_beside(comem, || ()),
        "scattered-own" => scattered_beside(comem, map_own_memory),
        "too-much" => too_much(comem),
        "one-page-of-each-chunk" => one_page_of_each_chunk(comem),
        _ => return false,
    }
    true
}

const SHARED_PAGES: usize = (64 << 20) / 4096;

/// Bytes of memory files that this process has mapped and that are in memory.
pub fn file_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("RssShmem:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
}

/// Each node reads all of 64 MiB, of which it may keep 1 MiB beside its own part.
fn small_cache(comem: &Comem) {
    let slice = pages_of(comem, SHARED_PAGES, &RegionOptions { home: Home::Block, ..RegionOptions::default() });
    comem.parallel(|t| {
        for page in t.split(SHARED_PAGES) {
            slice.set(page * WORDS + 7, page as u64 + 1);
        }
        t.barrier();
        for page in 0..SHARED_PAGES {
            assert_eq!(slice.get(page * WORDS + 7), page as u64 + 1, "page {page}");
        }
        let (own, cache) = ((SHARED_PAGES / comem.nodes() * 4096) as u64, 1 << 20);
        // What is not the heap: rings of the backbone, buffers.
        let slack = 6 << 20;
        assert!(file_bytes() < 2 * (own + cache) + slack, "{} bytes of memory files", file_bytes());
        t.barrier();
    });
    give_back(comem, slice);
}

/// Node 1 reads rows of a matrix of 700 columns that lie one behind the other, from the home of all: 700 pages at
/// strides of 39 and 40, again and again, of which the cache holds 1024.
fn rows_of_columns(comem: &Comem) {
    const COLUMN: usize = 20_000;
    let on_0 = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let slice = comem.page_slice::<u64>(700 * COLUMN, &on_0).unwrap();
    comem.parallel(|t| {
        let rows = if t.node() == NodeId(1) { 0..20 } else { 0..0 };
        for row in rows {
            assert_eq!((0..700).map(|column| slice.get(column * COLUMN + row)).sum::<u64>(), 0);
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// At each step all read one row of a page, and its owner writes those behind it, which it has for itself.
fn factorisation(comem: &Comem) {
    let slice = pages_of(comem, ROWS, &RegionOptions { home: Home::Block, ..RegionOptions::default() });
    comem.parallel(|t| {
        let mine = |row: &usize| row * comem.nodes() / ROWS == t.node().index();
        for step in 0..ROWS {
            assert_eq!(slice.get(step * WORDS), step as u64);
            for row in (step + 1..ROWS).filter(mine) {
                (0..WORDS).for_each(|word| slice.set(row * WORDS + word, step as u64 + 1));
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

const ROWS: usize = 160;

/// As many pages are written, all of which have their home at node 0.
const WRITTEN_PAGES: usize = 1200;

/// Every node writes to every page, in several passes; then each by itself, while the others wait.
fn written_cache(comem: &Comem) {
    let pages = WRITTEN_PAGES;
    let slice = pages_of(comem, pages, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    comem.parallel(|t| {
        for pass in 1..=3 {
            for page in 0..pages {
                let at = page * WORDS + t.id() * 8;
                assert_eq!(slice.get(at), pass - 1, "page {page} before pass {pass}");
                slice.set(at, pass);
            }
            if pass == 2 {
                t.barrier();
            }
        }
        t.barrier();
        for page in (0..pages).step_by(7) {
            (0..t.threads()).for_each(|id| assert_eq!(slice.get(page * WORDS + id * 8), 3, "page {page}, thread {id}"));
        }
        for turn in 0..comem.nodes() {
            t.barrier();
            let here = comem::split(pages, t.local_id(), t.threads() / comem.nodes());
            let mine = if t.node().index() == turn { here } else { 0..0 };
            mine.for_each(|page| slice.set(page * WORDS + 500 + turn, page as u64));
        }
        t.barrier();
        for page in (0..pages).step_by(7) {
            (0..comem.nodes()).for_each(|n| assert_eq!(slice.get(page * WORDS + 500 + n), page as u64, "page {page}"));
        }
    });
    give_back(comem, slice);
}

/// A slice of the first node's pages, with a name for reports.
fn named(comem: &Comem, label: &str, pages: usize, unit_pages: u32) -> PageSlice<u64> {
    let label = label.to_string();
    let options = RegionOptions { home: Home::On(NodeId(0)), unit_pages, label, ..RegionOptions::default() };
    pages_of(comem, pages, &options)
}

/// The eight bytes around the beginning of a page.
fn spanning(slice: &PageSlice<u64>, page: usize) -> *mut u64 {
    // SAFETY: the page is not the slice's first, and so the address lies within the slice.
    unsafe { slice.as_ptr().cast::<u8>().add(page * 4096 - 4).cast() }
}

/// Where the second node reads again and again: fewer pages than it may keep.
const AGAIN_PAGES: usize = 160;

/// The second node fills its cache with pages that it does not use any more: they end by a notice, or it looks for long
/// in vain where they were written. Then it reads others, of which some accesses need two.
fn copies_out_of_use(comem: &Comem, end: bool) {
    let [once, two, again, marks] =
        [("once", 240), ("two", 8), ("again", AGAIN_PAGES), ("marks", 1)].map(|(l, n)| named(comem, l, n, 1));
    comem.parallel(|t| {
        let write = |slice: &PageSlice<u64>, value| (0..slice.len()).for_each(|i| slice.set(i, value));
        let first = t.node() == NodeId(0);
        if first {
            [&once, &two, &again].into_iter().for_each(|slice| write(slice, 1));
        }
        t.barrier();
        if !first {
            (0..240).for_each(|page| assert_eq!(once.get(page * WORDS), 1));
        }
        for step in 0..100 {
            t.barrier();
            marks.set(t.id() * 8, step);
            if first && end {
                write(&once, step);
            }
        }
        t.barrier();
        if !first {
            for page in 1..8 {
                // SAFETY: within the slice, and nobody writes.
                assert_eq!(unsafe { spanning(&two, page).read_unaligned() }, 1 << 32);
            }
            for _ in 0..20 {
                (0..AGAIN_PAGES).for_each(|page| assert_eq!(again.get(page * WORDS + 3), 1));
            }
        }
        t.barrier();
    });
    [once, two, again, marks].into_iter().for_each(|slice| give_back(comem, slice));
}

/// Bytes of files without names that this process has open and that are in memory, of those as large as heaps are.
fn heap_file_bytes() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let files = files.filter_map(|file| std::fs::metadata(file.path()).ok());
    files.filter(|file| file.is_file() && file.len() > 1 << 32).map(|file| 512 * file.blocks()).sum()
}

/// The second node reads one region after another, all of which the first writes again.
fn growing(comem: &Comem) {
    let regions: Vec<_> = (0..32).map(|_| named(comem, "", 256, 1)).collect();
    comem.parallel(|t| {
        let first = t.node() == NodeId(0);
        for (round, slice) in regions.iter().enumerate() {
            for value in [round as u64, 99] {
                if first {
                    (0..256).for_each(|page| slice.set(page * WORDS, value));
                }
                t.barrier();
                if !first && value != 99 {
                    (0..256).for_each(|page| assert_eq!(slice.get(page * WORDS), value));
                }
                t.barrier();
            }
            t.barrier();
        }
        let bytes = heap_file_bytes();
        assert!(first || (1..5 << 19).contains(&bytes), "{bytes} bytes of copies, where 2 MiB may be kept");
        t.barrier();
    });
    regions.into_iter().for_each(|slice| give_back(comem, slice));
}

/// Every thread accesses two units of many at a time, of which the cache would hold one.
fn few_units(comem: &Comem) {
    const UNIT: usize = 64;
    const UNITS: usize = 48;
    let slice = named(comem, "", UNITS * UNIT, UNIT as u32);
    comem.parallel(|t| {
        let mut seed = 17 + t.id();
        for round in 0..8 {
            for _ in 0..20 {
                seed = (seed * 1_103_515_245 + 12_345) % (1 << 31);
                let at = spanning(&slice, (1 + (seed >> 8) % (UNITS - 1)) * UNIT);
                // SAFETY: within the slice, where nobody has written.
                assert_eq!(unsafe { at.read_unaligned() }, 0, "round {round}");
            }
            t.barrier();
        }
        for unit in (1..UNITS).filter(|unit| unit % t.threads() == t.id()) {
            // SAFETY: within the slice; each of these words has one writer.
            unsafe { spanning(&slice, unit * UNIT).write_unaligned(unit as u64 * 0x1_0000_0001) };
        }
        t.barrier();
        for unit in 1..UNITS {
            // SAFETY: as above; nobody writes any more.
            assert_eq!(unsafe { spanning(&slice, unit * UNIT).read_unaligned() }, unit as u64 * 0x1_0000_0001);
        }
        t.barrier();
    });
    give_back(comem, slice);
}

/// 30 GB are allocated, 40 MB of them used.
fn vast(comem: &Comem) {
    const WORDS_IN_ALL: usize = 30_000_000_000 / 8;
    const STEP: usize = WORDS_IN_ALL / (40_000_000 / 4096);
    let slice = comem.page_slice::<u64>(WORDS_IN_ALL, &RegionOptions::default()).expect("address space is cheap");
    let places = WORDS_IN_ALL / STEP;
    comem.parallel(|t| {
        for place in t.split(places) {
            slice.set(place * STEP, place as u64 + 1);
        }
        t.barrier();
        let other = comem::split(places, (t.id() + 1) % t.threads(), t.threads());
        for place in other.clone() {
            assert_eq!(slice.get(place * STEP), place as u64 + 1);
        }
        assert!(file_bytes() < 2 * 45_000_000, "{} bytes of memory files", file_bytes());
        assert!(crate::sharing::own_bytes() < 200 << 20, "{} bytes of tables", crate::sharing::own_bytes());
        t.barrier();
    });
    comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
}

/// So many chunks of 2 MiB, of each of which one page is used.
const CHUNKS: usize = 10_240;

/// Node 0 reads, and writes, one page of each chunk of another node's memory.
fn one_page_of_each_chunk(comem: &Comem) {
    const CHUNK_WORDS: usize = 512 * WORDS;
    let slice = pages_of(comem, CHUNKS * 512, &RegionOptions { home: Home::On(NodeId(1)), ..RegionOptions::default() });
    let place = |chunk: usize| chunk * CHUNK_WORDS + chunk % 512 * WORDS;
    comem.parallel(|t| {
        if t.node() == NodeId(1) {
            (0..CHUNKS).for_each(|chunk| slice.set(place(chunk), chunk as u64 + 1));
        }
        t.barrier();
        if t.node() == NodeId(0) {
            let before = crate::sharing::own_bytes();
            for chunk in 0..CHUNKS {
                assert_eq!(slice.get(place(chunk)), chunk as u64 + 1);
                slice.set(place(chunk) + 1, chunk as u64 + 2);
            }
            let each = (crate::sharing::own_bytes() - before) as usize / CHUNKS;
            // The twin, a table of 512 units of 12 bytes, and what finds the two.
            assert!(each < 14 << 10, "a page alone in its chunk costs {each} bytes beside its own");
        }
        t.barrier();
        if t.node() == NodeId(1) {
            (0..CHUNKS).for_each(|chunk| assert_eq!(slice.get(place(chunk) + 1), chunk as u64 + 2));
        }
    });
    give_back(comem, slice);
}

/// Node 1 begins to read regions in order, and frees them while more of them is on its way.
fn half_read(comem: &Comem) {
    let options = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    for _ in 0..300 {
        let slice = pages_of(comem, 200, &options);
        if comem.node() == 1 {
            (0..20).for_each(|page| assert_eq!(slice.get(page * WORDS), 0));
            comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        }
        comem.parallel(|t| t.barrier());
        if comem.node() == 0 {
            comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        }
    }
    assert!(file_bytes() < 16 << 20, "{} bytes of memory files", file_bytes());
}

/// Node 0 writes pages of which node 1 has copies and frees them, and then a barrier opens.
fn freed_shared(comem: &Comem) {
    const PAGES: usize = 1024;
    let slice = pages_of(comem, PAGES, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    comem.parallel(|t| {
        let first = t.node() == NodeId(0);
        let write = |value| (0..PAGES).filter(|_| first).for_each(|page| slice.set(page * WORDS, value));
        write(1);
        t.barrier();
        (0..PAGES).filter(|_| !first).for_each(|page| assert_eq!(slice.get(page * WORDS), 1));
        t.barrier();
        write(2);
        comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
        (0..2).for_each(|_| t.barrier());
        assert!(heap_file_bytes() < 1 << 20, "{} bytes of a heap in which nothing is left", heap_file_bytes());
        t.barrier();
    });
}

/// Every second page is used, so that under `mprotect` each is a mapping of its own; by the last node few of them.
fn scattered(comem: &Comem) {
    let each = 2 * (map_count_limit() + 2000);
    let slice = pages_of(comem, each * comem.nodes(), &RegionOptions::default());
    let place = |node: usize, n: usize| (node * each + 2 * n) * WORDS;
    comem.parallel(|t| {
        let (node, next) = (t.node().index(), (t.node().index() + 1) % comem.nodes());
        let step = if next == 0 { 999 } else { 1 };
        (0..each / 2).step_by(step).for_each(|n| slice.set(place(node, n), n as u64 + 1));
        t.barrier();
        for n in (0..each / 2).step_by(999) {
            assert_eq!(slice.get(place(next, n)), n as u64 + 1);
            slice.set(place(next, n) + 1, n as u64 + 2);
        }
        t.barrier();
        for n in (0..each / 2).step_by(999) {
            assert_eq!(slice.get(place(node, n) + 1), n as u64 + 2);
        }
    });
    allocated_afterwards(comem);
    give_back(comem, slice);
}

/// Node 0 uses up its mappings, and between the last of them takes a word under `msi` from node 1 and does something
/// else.
fn scattered_beside(comem: &Comem, other: impl Fn() + Sync) {
    let (all, last) = (map_count_limit() / 2, 1000);
    let on_0 = RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() };
    let slice = pages_of(comem, 2 * all, &on_0);
    let word = pages_of(comem, 1, &RegionOptions { engine: Some(PageEngine::Msi), ..on_0 });
    comem.parallel(|t| {
        let (me, before) = (t.node().index(), all - last);
        (0..before).filter(|_| me == 0).for_each(|n| slice.set(2 * n * WORDS, n as u64 + 1));
        for n in before..all {
            if me == 0 {
                slice.set(2 * n * WORDS, n as u64 + 1);
                assert_eq!(word.get(0), (n - before) as u64);
                other();
            }
            t.barrier();
            if me == 1 {
                word.set(0, word.get(0) + 1);
            }
            t.barrier();
        }
        (0..all).filter(|_| me == 0).for_each(|n| assert_eq!(slice.get(2 * n * WORDS), n as u64 + 1));
        t.barrier();
    });
    give_back(comem, slice);
}

/// As many mappings as the stacks of a few threads are.
fn map_own_memory() {
    const PAGES: usize = 32;
    let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, std::ptr::null_mut());
    // SAFETY: a fresh mapping, which nobody else knows and which goes again.
    unsafe {
        let start = libc::mmap(none, PAGES * 4096, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        for page in (1..PAGES).step_by(2) {
            let done = libc::mprotect(start.byte_add(page * 4096), 4096, libc::PROT_READ);
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        assert_eq!(libc::munmap(start, PAGES * 4096), 0);
    }
}

/// Pages of each region that is allocated once mappings have run out.
const AFTERWARDS_PAGES: usize = 40;

/// By all nodes together, by each alone, and in units that the program names.
fn allocated_afterwards(comem: &Comem) {
    let named = |label: &str, unit_pages| RegionOptions {
        label: label.to_string(),
        unit_pages,
        home: Home::Cyclic(1),
        ..RegionOptions::default()
    };
    let bytes = AFTERWARDS_PAGES * WORDS * 8;
    let mine = comem.alloc(bytes, &named(&format!("by node {}", comem.node()), 0)).expect("there is room");
    let small = comem.alloc(100, &RegionOptions::default()).expect("there is room");
    // SAFETY: allocated here, and nobody else has the pointer yet.
    unsafe { small.cast::<u64>().write_volatile(7) };
    let [fine, coarse] = [("as named", 1), ("by all", 0)].map(|(label, unit)| {
        let slice = pages_of(comem, AFTERWARDS_PAGES, &named(label, unit));
        slice.set(comem.node(), mine as u64);
        slice
    });
    comem.parallel(|t| {
        t.barrier();
        let theirs = (0..t.threads()).map(|node| {
            assert_eq!(fine.get(node), coarse.get(node));
            coarse.get(node) as *mut u64
        });
        let all: Vec<*mut u64> = [fine.as_ptr(), coarse.as_ptr()].into_iter().chain(theirs).collect();
        for word in 100 + t.id()..AFTERWARDS_PAGES * WORDS {
            if word % t.threads() == t.id() {
                // SAFETY: all regions have as many words, and each word has one writer.
                all.iter().for_each(|region| unsafe { region.add(word).write_volatile(word as u64) });
            }
        }
        t.barrier();
        for word in 100 + t.threads()..AFTERWARDS_PAGES * WORDS {
            // SAFETY: as above; nobody writes between these barriers.
            all.iter().for_each(|region| assert_eq!(unsafe { region.add(word).read_volatile() }, word as u64));
        }
        t.barrier();
    });
}

fn map_count_limit() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(usize::MAX)
}

/// More is asked for than there is address space; what was there before goes on.
fn too_much(comem: &Comem) {
    let kept = pages_of(comem, 2, &RegionOptions::default());
    let refused = |bytes: usize| {
        let error = comem.alloc(bytes, &RegionOptions::default()).expect_err("there is no room");
        let text = comem.sentence(&error);
        assert!(text.starts_with("comem: node ") && text.contains(&format!("{bytes} bytes")), "{text}");
        text
    };
    let alone = refused(2 << 30);
    let helps = if comem.nodes() == 1 { "or free memory" } else { "or allocate less" };
    assert!(alone.contains(" allocates alone has ") && alone.contains("--heap") && alone.ends_with(helps), "{alone}");
    if comem.nodes() > 1 {
        let alone = refused(200 << 20);
        assert!(alone.ends_with("or let all nodes allocate it together"), "{alone}");
    }
    // Half of the half for engines of a kind, but for a chunk.
    let error = comem.alloc_all(300 << 20, &RegionOptions::default()).expect_err("there is no room");
    let together = comem.sentence(&error);
    assert!(
        together.contains("what all nodes allocate together has 268435456 for pages under hlrc and scope"),
        "{together}"
    );
    assert!(refused(usize::MAX / 2).contains("allocate less"));
    assert!(comem.page_slice::<u64>(usize::MAX / 4, &RegionOptions::default()).is_err());
    comem.parallel(|t| {
        kept.set(t.id(), 5);
        t.barrier();
        (0..t.threads()).for_each(|id| assert_eq!(kept.get(id), 5));
        t.barrier();
    });
    give_back(comem, kept);
}

#[test]
fn copies_stay_within_the_caches_bound() {
    for detector in detectors() {
        let outcome = job("small-cache", 2, &[("COMEM_CACHE", "1M"), ("COMEM_DETECTOR", detector)]);
        let expected = (SHARED_PAGES - 2 * 256) as u64;
        assert!(counted(&outcome, "evictions") >= expected, "{detector}: {:?}", outcome.stats);
    }
}

#[test]
fn nothing_written_is_lost_when_a_written_copy_is_given_up() {
    for engine in ["hlrc", "scope"] {
        for detector in detectors() {
            let settings =
                [("COMEM_CACHE", "1M"), ("COMEM_DETECTOR", detector), ("COMEM_ENGINE", engine), ("COMEM_THREADS", "2")];
            let outcome = job("written-cache", 2, &settings);
            assert!(counted(&outcome, "evictions") > WRITTEN_PAGES as u64, "{detector}: {:?}", outcome.stats);
        }
    }
}

#[test]
fn what_is_fetched_ahead_leaves_copies_that_are_in_use_where_they_are() {
    for backbone in ["udp", "shm"] {
        let outcome = job("rows-of-columns", 2, &[("COMEM_CACHE", "4M"), ("COMEM_BACKBONE", backbone)]);
        let fetched = counted(&outcome, "pages_fetched");
        assert!((700..3_500).contains(&fetched), "{backbone}: {fetched} pages for 703");
    }
}

/// 160 pages have to come, 80 to each node; more than 3,000 did.
#[test]
fn what_ends_unused_at_barriers_is_hardly_fetched_ahead() {
    for backbone in ["udp", "shm"] {
        let outcome = job("factorisation", 2, &[("COMEM_BACKBONE", backbone)]);
        let fetched = counted(&outcome, "pages_fetched");
        assert!((150..400).contains(&fetched), "{backbone}: {fetched} pages for 160");
    }
}

#[test]
fn copies_under_msi_stay_within_the_caches_bound_and_modified_ones_come_home() {
    for (detector, backbone) in detectors().into_iter().cycle().zip(["udp", "shm", "udp"]) {
        let settings = [("COMEM_ENGINE", "msi"), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
        let with = |cache, threads| [&settings[..], &[("COMEM_CACHE", cache), ("COMEM_THREADS", threads)]].concat();
        let outcome = job("small-cache", 2, &with("1M", "1"));
        let expected = (SHARED_PAGES - 2 * 256) as u64;
        assert!(counted(&outcome, "evictions") >= expected, "{detector} {backbone}: {:?}", outcome.stats);
        let outcome = job("written-cache", 2, &with("1M", "2"));
        // What the other node takes away need not be given up; but node 1 writes every page once while nobody else
        // does.
        let expected = (WRITTEN_PAGES - 256) as u64;
        assert!(counted(&outcome, "evictions") >= expected, "{detector} {backbone}: {:?}", outcome.stats);
    }
}

/// How many pages of the region with this label the second node has fetched.
fn fetched(outcome: &Outcome, label: &str) -> u64 {
    let regions = outcome.stats[&1]["regions"].as_array().expect("regions");
    let region = regions.iter().find(|region| region["label"] == label);
    region.and_then(|region| region["pages_fetched"].as_u64()).unwrap_or_else(|| panic!("no {label}: {regions:?}"))
}

/// Those that are in use stay.
fn gives_up_what_is_out_of_use(role: &str, settings: &[(&str, &str)]) -> Outcome {
    let outcome = job(role, 2, &[&[("COMEM_CACHE", "1M"), ("COMEM_PREFETCH", "off")][..], settings].concat());
    let counts = ["two", "again"].map(|label| fetched(&outcome, label));
    assert_eq!(counts, [8, AGAIN_PAGES as u64], "{role}, {settings:?}");
    outcome
}

#[test]
fn copies_that_have_ended_make_room_for_others() {
    for detector in detectors() {
        for backbone in ["udp", "shm"] {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
            gives_up_what_is_out_of_use("ended-copies", &settings);
        }
    }
}

#[test]
fn copies_that_lie_aside_make_room_for_others() {
    if !works("uffd-async", "copies_that_lie_aside_make_room_for_others") {
        return;
    }
    let settings = [("COMEM_DETECTOR", "uffd-async"), ("COMEM_TUNING", "pages.forbid_writes=0")];
    let outcome = gives_up_what_is_out_of_use("aside-copies", &settings);
    assert!(counted(&outcome, "laid_aside") >= 200, "{:?}", outcome.stats);
}

#[test]
fn copies_that_have_ended_count_within_the_caches_bound() {
    for detector in detectors() {
        let settings = [("COMEM_CACHE", "2M"), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp")];
        job("growing", 2, &settings);
    }
}

#[test]
fn an_access_across_two_units_goes_on_in_the_smallest_cache() {
    for engine in ["hlrc", "scope", "msi"] {
        for (detector, threads) in detectors().into_iter().cycle().zip(["1", "3", "2"]) {
            let place = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_THREADS", threads)];
            job("few-units", 2, &[&place[..], &[("COMEM_CACHE", "16K")]].concat());
        }
    }
}

#[test]
fn what_is_not_touched_costs_nothing() {
    for engine in ["hlrc", "msi"] {
        job("vast", 2, &[("COMEM_ENGINE", engine)]);
    }
}

#[test]
fn what_is_on_its_way_when_memory_is_freed_takes_none() {
    for detector in detectors() {
        job("half-read", 2, &[("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp")]);
    }
}

#[test]
fn pages_that_are_freed_as_others_hold_them_do_not_come_back_at_the_next_barrier() {
    for detector in detectors() {
        job("freed-shared", 2, &[("COMEM_DETECTOR", detector)]);
    }
}

#[test]
fn a_page_that_is_used_alone_in_its_chunk_costs_little_beside_its_twin() {
    job("one-page-of-each-chunk", 2, &[]);
}

#[test]
fn more_than_the_heap_holds_is_refused_with_the_reason() {
    for nodes in [1, 2] {
        job("too-much", nodes, &[("COMEM_HEAP", "1G")]);
    }
}

#[test]
fn a_process_that_runs_out_of_mappings_says_so_once_and_goes_on() {
    let limit = map_count_limit();
    if limit > 70_000 {
        println!("SKIP: mappings used up: this system allows {limit} of them, which takes too long");
        return;
    }
    let outcome = start("scattered", 3, &[("COMEM_DETECTOR", "mprotect")], &[]).finish();
    all_well("scattered", &outcome);
    let told = outcome.errors.iter().map(|e| e.matches("have used up most of the").count());
    assert_eq!(told.collect::<Vec<_>>(), [1, 1, 0], "{:?}", outcome.errors);
    assert!(outcome.errors[0].contains("has units of 2 pages"), "{:?}", outcome.errors[0]);
    let unit = |label: &str| {
        let of_nodes = outcome.stats.values().map(|stats| unit_of(stats, label)).collect::<Vec<_>>();
        assert!(of_nodes.windows(2).all(|two| two[0] == two[1]), "{label}: {of_nodes:?}");
        of_nodes[0]
    };
    assert_eq!((unit("as named"), unit("by node 2")), (1, 1), "whoever has mappings left needs no larger units");
    assert!([unit("by node 0"), unit("by node 1"), unit("by all")].iter().all(|unit| (2..=16).contains(unit)));
}

#[test]
fn where_mappings_run_out_the_program_and_other_engines_have_some() {
    if map_count_limit() > 70_000 {
        println!("SKIP: mappings used up: this system allows more of them, which takes too long");
        return;
    }
    for role in ["scattered-units", "scattered-own"] {
        let outcome = job(role, 2, &[("COMEM_DETECTOR", "mprotect"), ("COMEM_PREFETCH", "off")]);
        let told = outcome.errors.iter().map(|e| e.matches("have used up most of the").count());
        assert_eq!(told.collect::<Vec<_>>(), [1, 0], "{:?}", outcome.errors);
    }
}

/// The unit of the region with this label, as a node's report has it.
fn unit_of(stats: &serde_json::Value, label: &str) -> u64 {
    let regions = stats["regions"].as_array().expect("regions");
    let region = regions.iter().find(|region| region["label"] == label);
    region.and_then(|region| region["unit_pages"].as_u64()).unwrap_or_else(|| panic!("no region {label}: {regions:?}"))
}
