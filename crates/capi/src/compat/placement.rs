//! JIAJIA's allocation calls: which hosts are home to which pages (JIAJIA 2.1 manual, section 4.3, and its successor).
//!
//! All are collective, and give the same address everywhere. Sizes are rounded up to whole pages.

use super::argument;
use crate::buffer;
use crate::failure::{Failure, Outcome, reported};
use crate::job::job;
use comem_rt::NodeId;
use comem_rt::heap::{Dealt, Home, RUN_LENGTHS_MAX, RegionOptions};
use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Calls so far of the kinds that choose a host by themselves; the same on every node, since calls are collective.
static TURNS: AtomicU64 = AtomicU64::new(0);
/// What draws hosts by chance: the same numbers on every node.
static CHANCE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

/// Calls so far, which are regions' names in reports.
static CALLS: AtomicU64 = AtomicU64::new(1);

fn allocate(bytes: usize, homes: impl FnOnce() -> Outcome<Home>) -> c_ulong {
    let allocated = || {
        let options = RegionOptions { home: homes()?, alignment: PAGE, ..RegionOptions::default() };
        let site = format!("JIAJIA allocation {}", CALLS.fetch_add(1, Ordering::Relaxed));
        Ok(job()?.alloc_all_at(bytes, &options, &site)?.addr() as c_ulong)
    };
    reported(allocated, |_| 0)
}

fn host(number: c_int) -> Outcome<NodeId> {
    super::tagged_messages::node(number).map(|node| NodeId(node as u16))
}

/// Pages of a block.
fn pages(bytes: usize) -> Outcome<u32> {
    let pages = u32::try_from(bytes.div_ceil(PAGE)).ok().filter(|pages| *pages > 0);
    pages.ok_or_else(|| argument(format!("a block of {bytes} bytes makes no sense; blocks have from 1 byte to 16 TiB")))
}

/// The pages of a program's list of block sizes; none where it passes a host over.
///
/// # Safety
/// `blocks` points to `count` numbers, or is null.
unsafe fn list(blocks: *const c_int, count: c_int) -> Outcome<Vec<u32>> {
    let fits = |count: &usize| (1..=RUN_LENGTHS_MAX).contains(count);
    let wrong = || argument(format!("a list of {count} block sizes makes no sense; give from 1 to {RUN_LENGTHS_MAX}"));
    let count = usize::try_from(count).ok().filter(fits).ok_or_else(wrong)?;
    if blocks.is_null() {
        return Err(argument("the list of block sizes is a null pointer"));
    }
    // SAFETY: by this function's contract.
    let blocks = unsafe { buffer::numbers_of(blocks, count) };
    let pages_of = |bytes: &c_int| match usize::try_from(*bytes).map_err(|_| negative(*bytes))? {
        0 => Ok(0),
        bytes => pages(bytes),
    };
    blocks.iter().map(pages_of).collect()
}

fn negative(bytes: c_int) -> Failure {
    argument(format!("a block of {bytes} bytes makes no sense; sizes are positive"))
}

fn dealt(dealt: Option<Dealt>) -> Outcome<Home> {
    dealt
        .map(Home::Dealt)
        .ok_or_else(|| argument("a list of blocks of 0 bytes makes no sense; one of them must be positive"))
}

/// Allocates, homes chosen by Comem: pages to the hosts that write them; what fits a page to the hosts in turn.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc(size: usize) -> c_ulong {
    allocate(size, || {
        let turn = TURNS.fetch_add(1, Ordering::Relaxed) % job()?.nodes() as u64;
        Ok(if size <= PAGE { Home::On(NodeId(turn as u16)) } else { Home::Automatic })
    })
}

/// Allocates with all homes at host 0.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc1(size: usize) -> c_ulong {
    jia_alloc2p(size, 0)
}

/// Allocates in blocks that go to the hosts in turn, from host 0 on.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc2(size: usize, block: usize) -> c_ulong {
    jia_alloc3(size, block, 0)
}

/// Allocates with all homes at one host.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc2p(size: usize, proc: c_int) -> c_ulong {
    allocate(size, || Ok(Home::On(host(proc)?)))
}

/// Allocates in blocks that go to the hosts in turn.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc3(size: usize, block: usize, starthost: c_int) -> c_ulong {
    allocate(size, || dealt(Dealt::runs(&[pages(block)?], host(starthost)?)))
}

/// Allocates in blocks that go to the hosts in turn, with a size for each round.
///
/// # Safety
/// `blocks` points to `n` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_alloc4(size: usize, blocks: *const c_int, n: c_int, starthost: c_int) -> c_ulong {
    // SAFETY: by this function's contract.
    allocate(size, || dealt(Dealt::rounds(&unsafe { list(blocks, n) }?, host(starthost)?)))
}

/// Allocates with so many bytes at each host, from host 0 on.
///
/// # Safety
/// `array` points to `n` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_alloc_array(size: usize, array: *const c_int, n: c_int) -> c_ulong {
    // SAFETY: by this function's contract.
    allocate(size, || dealt(Dealt::runs(&unsafe { list(array, n) }?, NodeId(0))))
}

/// Allocates with all homes at a host drawn by chance.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc_random(size: usize) -> c_ulong {
    allocate(size, || {
        let mut word = CHANCE.load(Ordering::Relaxed);
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        CHANCE.store(word, Ordering::Relaxed);
        Ok(Home::On(NodeId((word % job()?.nodes() as u64) as u16)))
    })
}
