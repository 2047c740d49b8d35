//! Allocation and freeing, from any node and any thread.

use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, LockId, SemaphoreId, Thread};

/// A place for each thread to leave an address.
fn addresses(comem: &Comem) -> PageSlice<usize> {
    comem.page_slice(comem.threads() * 16, &RegionOptions::default()).expect("there is room for addresses")
}

fn return_addresses(comem: &Comem, slice: PageSlice<usize>) {
    comem.parallel(|t| t.barrier());
    comem.free(slice.as_ptr().cast()).expect("a slice can be freed");
}

/// Stores `value` in every byte of a block.
fn fill(address: usize, bytes: usize, value: u8) {
    // SAFETY: the block is allocated and this thread's turn has come.
    unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes) };
}

#[track_caller]
fn assert_filled(address: usize, bytes: usize, value: u8, what: &str) {
    // SAFETY: the block is allocated, and nobody writes it meanwhile.
    let block = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
    let wrong = block.iter().enumerate().find(|(_, b)| **b != value);
    assert!(wrong.is_none(), "{what} at {address:#x}: byte {wrong:?} of {bytes}, expected {value}");
}

fn allocate(comem: &Comem, bytes: usize) -> usize {
    comem.alloc(bytes, &RegionOptions::default()).expect("there is room for a block").addr()
}

/// Blocks that one thread allocates and fills, the next reads, changes and frees.
pub fn blocks_that_others_free(comem: &Comem) {
    const SIZES: [usize; 6] = [1, 24, 100, 2000, 5000, 40_000];
    let slice = addresses(comem);
    comem.parallel(|t| {
        let place = |id: usize, n: usize| id * 16 + n;
        for round in 1..5_u8 {
            for (n, size) in SIZES.into_iter().enumerate() {
                let block = allocate(comem, size);
                assert_filled(block, size, 0, "new memory");
                fill(block, size, round * 16 + t.id() as u8);
                slice.set(place(t.id(), n), block);
            }
            t.barrier();
            let other = (t.id() + round as usize) % t.threads();
            for (n, size) in SIZES.into_iter().enumerate() {
                let block = slice.get(place(other, n));
                assert_filled(block, size, round * 16 + other as u8, "what another thread wrote");
                // Written and freed at once: what was written must not come back later.
                fill(block, size, 0xee);
                comem.free(block as *mut u8).expect("any thread may free");
            }
            if t.id() == 0 {
                let twice = slice.get(place(t.threads() - 1, 0));
                if other == t.threads() - 1 {
                    assert!(comem.free(twice as *mut u8).is_err(), "a block freed twice");
                }
            }
            t.barrier();
        }
    });
    return_addresses(comem, slice);
}

/// A small block that another node wrote to and freed is zero when it is given out again, and stays what it is made.
pub fn small_blocks_used_again(comem: &Comem) {
    const SIZE: usize = 64;
    const BLOCKS: usize = 8;
    let slice = addresses(comem);
    comem.parallel(|t| {
        for round in 0..6_u8 {
            let mine: [usize; BLOCKS] = std::array::from_fn(|_| allocate(comem, SIZE));
            for (n, block) in mine.iter().enumerate() {
                assert_filled(*block, SIZE, 0, "a small block given out again");
                fill(*block, SIZE, round + 1);
                slice.set(t.id() * 16 + n, *block);
            }
            t.barrier();
            // Half of them go back from another node, with fresh writes in them; the rest stays with its owner's
            // contents.
            let other = (t.id() + 1) % t.threads();
            for n in 0..BLOCKS / 2 {
                let block = slice.get(other * 16 + n);
                fill(block, SIZE, 0xdd);
                comem.free(block as *mut u8).expect("any node may free");
            }
            let fresh: [usize; BLOCKS / 2] = std::array::from_fn(|_| allocate(comem, SIZE));
            for block in fresh {
                assert_filled(block, SIZE, 0, "a block given out while others free");
                fill(block, SIZE, 0x55);
            }
            t.barrier();
            for block in fresh {
                assert_filled(block, SIZE, 0x55, "a block that somebody else's late write hit");
                comem.free(block as *mut u8).expect("its own thread may free");
            }
            for block in &mine[BLOCKS / 2..] {
                assert_filled(*block, SIZE, round + 1, "a neighbour of freed blocks");
                comem.free(*block as *mut u8).expect("its own thread may free");
            }
            t.barrier();
        }
    });
    return_addresses(comem, slice);
}

/// Small blocks that all nodes allocate together are new and lie side by side. Neighbours are written by different
/// threads at once.
pub fn small_blocks_of_all(comem: &Comem) {
    const SIZE: usize = 40;
    for blocks in [700, 1500] {
        let allocate = |_| comem.alloc_all(SIZE, &RegionOptions::default()).expect("there is room").addr();
        let all: Vec<usize> = (0..blocks).map(allocate).collect();
        let near = all.windows(2).filter(|two| two[1] - two[0] == 64).count();
        assert!(near + 4 > blocks, "{near} of {blocks} lie beside the one before");
        comem.parallel(|t| {
            for (n, block) in all.iter().enumerate().filter(|(n, _)| n % t.threads() == t.id()) {
                assert_filled(*block, SIZE, 0, "a new block of all nodes");
                fill(*block, SIZE, n as u8 | 1);
            }
            t.barrier();
            all.iter().enumerate().for_each(|(n, at)| assert_filled(*at, SIZE, n as u8 | 1, "a block of all nodes"));
            t.barrier();
        });
        all.iter().for_each(|block| comem.free(*block as *mut u8).expect("every node frees it"));
        assert!(comem.free(all[0] as *mut u8).is_err(), "a block freed twice");
    }
}

/// Blocks and pieces of one page, of which some are declared read-only: the others are written on, by any node.
pub fn blocks_beside_read_only_ones(comem: &Comem) {
    const SIZE: usize = 64;
    let slice = addresses(comem);
    comem.parallel(|t| {
        let piece = || comem.alloc_piece(SIZE, None).expect("there is room for a piece").addr();
        let mine = [allocate(comem, SIZE), allocate(comem, SIZE), piece(), piece()];
        for (n, block) in mine.into_iter().enumerate() {
            fill(block, SIZE, 1);
            slice.set(t.id() * 16 + n, block);
        }
        t.barrier();
        for n in [0, 2] {
            (0..t.threads()).for_each(|id| {
                let block = slice.get(id * 16 + n) as *const u8;
                comem.freeze(block).expect("a block can be declared read-only");
            });
        }
        t.barrier();
        for round in 2..6_u8 {
            let other = (t.id() + round as usize) % t.threads();
            [1, 3].iter().for_each(|n| fill(slice.get(other * 16 + n), SIZE, round));
            t.barrier();
            for (id, n) in (0..t.threads()).flat_map(|id| (0..4).map(move |n| (id, n))) {
                let expected = if n % 2 == 1 { round } else { 1 };
                assert_filled(slice.get(id * 16 + n), SIZE, expected, "a block in a page with read-only ones");
            }
            t.barrier();
        }
    });
    return_addresses(comem, slice);
}

/// A small block that one node wrote to and another frees, which has heard of that but not read it, stays what it is
/// made when it is given out again: the writer's diff may be on its way still.
pub fn blocks_freed_unread(comem: &Comem) {
    const ROUNDS: usize = 8;
    let slice = addresses(comem);
    let (lock, written, freed) = (LockId(70), SemaphoreId(71), SemaphoreId(72));
    comem.parallel(|t| {
        let last = t.threads() - 1;
        if last < 2 {
            return;
        }
        for round in 0..ROUNDS as u8 {
            if t.id() == 0 {
                slice.set(0, allocate(comem, 64));
            }
            t.barrier();
            let block = slice.get(0);
            if t.id() == last {
                t.locked(lock, || fill(block, 64, 0xcc));
                t.sem_post(written);
            } else if t.id() == last.div_ceil(2) {
                t.sem_wait(written);
                t.locked(lock, || comem.free(block as *mut u8).expect("any node may free"));
                t.sem_post(freed);
            } else if t.id() == 0 {
                // Not by an acquire: then this thread would have heard of the diff itself.
                while allocate(comem, 64) != block {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                assert_filled(block, 64, 0, "a block given out again");
                fill(block, 64, round);
                t.sem_wait(freed);
            }
            t.barrier();
            assert_filled(block, 64, round, "a block that a late diff hit");
            t.barrier();
        }
    });
    return_addresses(comem, slice);
}

/// A piece that another node frees is not given out again until two barriers have told everybody what was written to
/// it, though its owner is home to none of that.
pub fn pieces_that_others_free(comem: &Comem) {
    let slice = addresses(comem);
    let piece = || comem.alloc_piece(64, None).expect("there is room for a piece").addr();
    comem.parallel(|t| {
        let owner = t.threads() - 1;
        let elsewhere = comem.nodes() > 1;
        if t.id() == owner {
            slice.set(0, piece());
        }
        t.barrier();
        let first = slice.get(0);
        if t.id() == 0 {
            fill(first, 64, 0xff);
            comem.free(first as *mut u8).expect("any thread may free");
        }
        t.checked_rendezvous().expect("all meet");
        if t.id() == owner {
            let next = piece();
            assert_eq!(next == first, !elsewhere, "{next:#x}: given out again");
            slice.set(1, next);
        }
        t.barrier();
        t.barrier();
        if t.id() == owner && elsewhere {
            let again = piece();
            assert_eq!(again, first, "after two barriers");
            assert_filled(again, 64, 0, "a piece given out again");
            fill(again, 64, 0x11);
        }
        t.barrier();
        if elsewhere {
            assert_filled(first, 64, 0x11, "a piece that a late diff hit");
        }
        t.barrier();
    });
    return_addresses(comem, slice);
}

/// No alignment is missed, blocks do not overlap, and what makes no sense is refused with a sentence.
pub fn every_size_and_alignment(comem: &Comem) {
    comem.parallel(|t| {
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for (n, alignment) in [1, 16, 64, 512, 4096, 1 << 16, 1 << 21, 1 << 30].into_iter().enumerate() {
            for bytes in [0, 1, 63, 700, 4096, 4097] {
                let options = RegionOptions { alignment, ..RegionOptions::default() };
                let block = comem.alloc(bytes, &options).expect("there is room for a block").addr();
                assert!(block.is_multiple_of(alignment), "{block:#x} is not aligned to {alignment}");
                assert!(blocks.iter().all(|(b, len)| block >= b + len || block + bytes <= *b), "blocks overlap");
                fill(block, bytes, n as u8 + 1);
                blocks.push((block, bytes));
            }
        }
        t.barrier();
        for (n, (block, bytes)) in blocks.into_iter().enumerate() {
            assert_filled(block, bytes, (n / 6) as u8 + 1, "a block of its own alignment");
            comem.free(block as *mut u8).expect("a block can be freed");
        }
        for label in ["blocks of 64 bytes of node 0", "pieces of mine"] {
            let options = RegionOptions { label: label.to_string(), ..RegionOptions::default() };
            let region = comem.alloc(100_000, &options).expect("there is room for a region");
            comem.free(region).expect("whatever its name, a region can be freed");
            let refused = comem.freeze(region).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(refused.contains("which was freed"), "{refused}");
        }
        for (options, part) in [
            (RegionOptions { alignment: 3, ..RegionOptions::default() }, "no power of two"),
            (RegionOptions { alignment: 1 << 45, ..RegionOptions::default() }, "larger than the shared heap"),
            (RegionOptions { unit_pages: 3, ..RegionOptions::default() }, "no power of two"),
            (RegionOptions { home: Home::On(comem::NodeId(700)), ..RegionOptions::default() }, "there is no node 700"),
        ] {
            let refused = comem.alloc(10_000, &options).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(refused.contains(part), "{refused}");
        }
        t.barrier();
    });
}

/// An element of a list: its number, and the address of the next.
type Element = [usize; 2];

fn element(address: usize) -> *mut Element {
    address as *mut Element
}

/// All threads add to one list under a lock, in blocks that they allocate; addresses in it mean the same everywhere.
pub fn a_list_across_nodes(comem: &Comem) {
    let each = 10;
    let head = addresses(comem);
    comem.parallel(|t| {
        for n in 0..each {
            let new = allocate(comem, size_of::<Element>());
            t.locked(LockId(41), || {
                // SAFETY: a new block of that size, which this thread alone knows.
                unsafe { element(new).write_volatile([t.id() * each + n, head.get(0)]) };
                head.set(0, new);
            });
        }
        t.barrier();
        let mut seen = vec![false; each * t.threads()];
        for [number, _] in list(head.get(0)) {
            assert!(!std::mem::replace(&mut seen[number], true), "element {number} is there twice");
        }
        assert!(seen.iter().all(|s| *s), "elements are missing");
        t.barrier();
        take_the_list_down(comem, t, &head);
    });
    return_addresses(comem, head);
}

fn list(head: usize) -> impl Iterator<Item = Element> {
    let mut next = head;
    std::iter::from_fn(move || {
        (next != 0).then(|| {
            // SAFETY: the list holds addresses of elements, and nobody changes it now.
            let this = unsafe { element(next).read_volatile() };
            next = this[1];
            this
        })
    })
}

fn take_the_list_down(comem: &Comem, t: &Thread, head: &PageSlice<usize>) {
    loop {
        let taken = t.locked(LockId(41), || {
            let first = head.get(0);
            if first != 0 {
                // SAFETY: the list's first element, which is this thread's now.
                head.set(0, unsafe { element(first).read_volatile() }[1]);
            }
            first
        });
        if taken == 0 {
            break;
        }
        comem.free(taken as *mut u8).expect("whoever takes an element frees it");
    }
    t.barrier();
}
