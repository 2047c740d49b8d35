//! Two nodes measure shared pages: node 0 takes times, node 1 is the pages' home and does what node 0's datagrams ask.

use super::{interval, memory};
use crate::echo::{Peer, Request};
use crate::node::{Task, What, timed};
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, NodeId, Thread};
use comem_bench::sample::{Comparison, median, quantile};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Words of a page.
pub const PAGE_WORDS: usize = super::bulk::PAGE_BYTES / size_of::<u64>();
/// Pages that are read in order at a time: 64 MiB.
pub const STREAM_PAGES: usize = 16_384;
/// Pages from which the plain socket sends.
pub const SOURCE_PAGES: usize = STREAM_PAGES;

/// The word of a page that is looked at.
const WORD: usize = 3;
/// How long a core computes between two accesses where every core computes.
const BETWEEN: Duration = Duration::from_micros(100);

/// What a node of `task` does; node 0 gives the measurement.
///
/// # Errors
/// When the plain sockets fail, memory cannot be had or holds what it should not.
pub fn side(task: &Task, comem: &Comem, thread: &Thread, peer: &Peer) -> io::Result<Value> {
    match task.what {
        What::Pages => scattered(task, comem, thread, peer),
        What::Stream | What::FirstTouch => in_order(task, comem, thread, peer),
        What::Memory => memory::side(task, comem, thread),
        _ => interval::side(task, comem, thread, peer),
    }
}

/// Shared memory at home on node 1.
///
/// # Errors
/// When there is none.
pub fn at_node_one(comem: &Comem, pages: usize) -> io::Result<PageSlice<u64>> {
    let options = RegionOptions { home: Home::On(NodeId(1)), alignment: super::bulk::PAGE_BYTES, ..Default::default() };
    comem.page_slice(pages * PAGE_WORDS, &options).map_err(io::Error::other)
}

/// The word of page `page` that is looked at.
pub fn word_of(page: usize) -> usize {
    page * PAGE_WORDS + WORD
}

/// What the home writes to a page: another number each time.
fn contents(page: usize, time: u64) -> u64 {
    page as u64 + (time << 32) + 1
}

/// The home writes every page, so that there is something to fetch; then all know.
fn fill(region: &PageSlice<u64>, thread: &Thread, time: u64) {
    if thread.id() == 1 {
        (0..region.len() / PAGE_WORDS).for_each(|page| region.set(word_of(page), contents(page, time)));
    }
    thread.barrier();
}

/// Reads a page; it has the contents that its home gave it.
fn read(region: &PageSlice<u64>, page: usize, time: u64) -> io::Result<()> {
    match black_box(region.get(word_of(page))) {
        value if value == contents(page, time) => Ok(()),
        value => Err(io::Error::other(format!("page {page} holds {value:#x}"))),
    }
}

/// Numbers below `count` in an order without pattern, the same every time.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..count).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    order
}

fn compute_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Answers the plain sockets, and writes the region again when it is asked to; with `busy`, a thread that only computes
/// shares this node's core.
fn serve(peer: &Peer, thread: &Thread, regions: &[PageSlice<u64>], busy: bool) -> io::Result<Value> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if busy {
            let compute = || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, compute)?;
        }
        let served = peer.serve(|request| {
            if let Request::Rounds { .. } = request {
                regions.iter().for_each(|region| fill(region, thread, 1));
            }
        });
        over.store(true, Ordering::Relaxed);
        served.map(|()| Value::Null)
    })
}

/// Has node 1 write all pages again, which ends this node's copies; their memory stays.
fn invalidate(peer: &Peer, thread: &Thread, regions: &[PageSlice<u64>]) -> io::Result<()> {
    peer.ask(Request::Rounds { count: 1, pages: 0 })?;
    regions.iter().for_each(|region| fill(region, thread, 1));
    Ok(())
}

/// Faults in an order without pattern, each a request and a reply of 4 KiB, in turn with plain datagrams: first on
/// pages that never were here, then on the same pages after their home has written them again.
fn scattered(task: &Task, comem: &Comem, thread: &Thread, peer: &Peer) -> io::Result<Value> {
    let pages = (task.blocks + 1) * task.rounds;
    // More pages than are touched: a touched page's neighbours are rarely the next to be touched.
    let region = at_node_one(comem, 2 * pages)?;
    fill(&region, thread, 0);
    if thread.id() != 0 {
        return serve(peer, thread, &[region], task.busy);
    }
    let mut order = shuffled(2 * pages);
    order.truncate(pages);
    let mut plain = Plain::new(2 * pages);
    let fresh = touch(task, (&region, &mut plain), 0, &order, peer)?;
    invalidate(peer, thread, &[region])?;
    order.reverse();
    let again = touch(task, (&region, &mut plain), 1, &order, peer)?;
    peer.ask(Request::Stop)?;
    Ok(json!({ "fresh": fresh, "again": again, "touched": 2 * pages }))
}

/// Plain memory that is compared with a region: bytes go where the region's would, into memory that was never touched,
/// and then into the same again.
struct Plain {
    fetched: Vec<u8>,
    copied: Vec<u8>,
    source: Vec<u8>,
}

impl Plain {
    fn new(pages: usize) -> Plain {
        let bytes = pages * super::bulk::PAGE_BYTES;
        Plain { fetched: vec![0; bytes], copied: vec![0; bytes], source: vec![1; bytes] }
    }

    /// Memory that was never touched, of the same size.
    fn renew(&mut self) {
        let bytes = self.source.len();
        (self.fetched, self.copied) = (vec![0; bytes], vec![0; bytes]);
    }

    /// Fetches a page by a plain datagram.
    fn fetch(&mut self, page: usize, peer: &Peer) -> io::Result<()> {
        peer.fetch_page(&mut self.fetched[page * super::bulk::PAGE_BYTES..][..super::bulk::PAGE_BYTES])
    }

    /// Copies so many pages from one place to the other: what nodes that share memory cannot spare.
    fn copy(&mut self, page: usize, count: usize) {
        let start = page * super::bulk::PAGE_BYTES;
        let bytes = start..start + count * super::bulk::PAGE_BYTES;
        self.copied[bytes.clone()].copy_from_slice(&self.source[bytes]);
        black_box(&mut self.copied[start]);
    }
}

/// Reads pages of a region in this order, in turn with plain datagrams and with plain copies.
fn touch(
    task: &Task,
    (region, plain): (&PageSlice<u64>, &mut Plain),
    time: u64,
    order: &[usize],
    peer: &Peer,
) -> io::Result<Value> {
    let between = if task.busy { BETWEEN } else { Duration::ZERO };
    let mut comparison = Comparison { per_block: task.rounds, ..Comparison::default() };
    let (mut copied, mut all_ours, mut all_bare) = (Vec::new(), Vec::new(), Vec::new());
    for (block, pages) in order.chunks(task.rounds).enumerate() {
        let ours = after_computing(pages, between, |page| read(region, page, time))?;
        let bare = after_computing(pages, between, |page| plain.fetch(page, peer))?;
        let copy = after_computing(pages, between, |page| {
            plain.copy(page, 1);
            Ok(())
        })?;
        // The first block warms up and does not count.
        if block > 0 {
            comparison.push(median(&ours), median(&bare));
            copied.push(median(&copy));
            all_ours.extend(ours);
            all_bare.extend(bare);
        }
    }
    Ok(json!({
        "ours": comparison.ours, "base": comparison.base, "copied": copied, "per_block": comparison.per_block,
        "p99": [quantile(&all_ours, 0.99), quantile(&all_bare, 0.99)],
    }))
}

/// As [`timed`], for an operation on each of these pages, and computes so long before each.
fn after_computing(
    pages: &[usize],
    between: Duration,
    mut operation: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(pages.len());
    for page in pages {
        compute_for(between);
        times.extend(timed(1, || operation(*page))?);
    }
    Ok(times)
}

/// 64 MiB of pages in order, in turn with as many bytes in a stream of plain datagrams; microseconds a page. First
/// pages that never were here, beside memory that was never touched; then, if asked for, the same after their home has
/// written them again.
fn in_order(task: &Task, comem: &Comem, thread: &Thread, peer: &Peer) -> io::Result<Value> {
    let regions: Vec<_> =
        (0..=task.blocks).map(|_| at_node_one(comem, STREAM_PAGES)).collect::<io::Result<Vec<_>>>()?;
    regions.iter().for_each(|region| fill(region, thread, 0));
    if thread.id() != 0 {
        return serve(peer, thread, &regions, false);
    }
    let fresh = stream(&regions, 0, peer)?;
    let (mut again, mut times) = (Value::Null, 1);
    if task.what == What::Stream {
        invalidate(peer, thread, &regions)?;
        (again, times) = (stream(&regions, 1, peer)?, 2);
    }
    peer.ask(Request::Stop)?;
    Ok(json!({ "fresh": fresh, "again": again, "touched": times * regions.len() * STREAM_PAGES }))
}

/// Reads each region, in turn with plain datagrams and with a plain copy; the first time into memory that is new each
/// time.
fn stream(regions: &[PageSlice<u64>], time: u64, peer: &Peer) -> io::Result<Value> {
    let (mut comparison, mut copied) = (Comparison::default(), Vec::new());
    let a_page = 1.0 / STREAM_PAGES as f64;
    let mut plain = Plain::new(STREAM_PAGES);
    for (block, region) in regions.iter().enumerate() {
        let ours = timed(1, || (0..STREAM_PAGES).try_for_each(|page| read(region, page, time)))?;
        if time == 0 {
            plain.renew();
        }
        let bare = timed(1, || peer.fetch_stream(&mut plain.fetched))?;
        let copy = timed(1, || {
            plain.copy(0, STREAM_PAGES);
            Ok(())
        })?;
        if block > 0 {
            copied.push(copy[0] * a_page);
            comparison.push(ours[0] * a_page, bare[0] * a_page);
        }
    }
    Ok(json!({ "ours": comparison.ours, "base": comparison.base, "copied": copied, "per_block": STREAM_PAGES }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_something_else_each_time() {
        assert!(contents(STREAM_PAGES, 0) < contents(0, 1) && contents(0, 0) != 0);
    }

    #[test]
    fn a_shuffled_order_has_every_page_once_and_hardly_any_neighbours() {
        let order = shuffled(20_000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..20_000));
        let neighbours = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 20, "{neighbours}");
    }
}
