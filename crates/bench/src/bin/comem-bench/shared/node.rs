//! Two nodes measure shared pages: node 0 takes times, node 1 is the pages' home and does what node 0's datagrams ask.

use super::{interval, memory};
use crate::echo::{Peer, Request};
use crate::node::{Task, What, timed};
use comem::heap::{Homes, RegionOptions, SharedSlice};
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
        What::Stream => in_order(task, comem, thread, peer),
        What::Memory => memory::side(comem, thread),
        _ => interval::side(task, comem, thread, peer),
    }
}

/// Shared memory at home on node 1.
///
/// # Errors
/// When there is none.
pub fn at_node_one(comem: &Comem, pages: usize) -> io::Result<SharedSlice<u64>> {
    let options =
        RegionOptions { homes: Homes::On(NodeId(1)), alignment: super::bulk::PAGE_BYTES, ..Default::default() };
    comem.slice(pages * PAGE_WORDS, &options).map_err(io::Error::other)
}

/// The word of page `page` that is looked at.
pub fn word_of(page: usize) -> usize {
    page * PAGE_WORDS + WORD
}

/// The home writes every page, so that there is something to fetch; then all know.
fn fill(region: &SharedSlice<u64>, thread: &Thread) {
    if thread.id() == 1 {
        (0..region.len() / PAGE_WORDS).for_each(|page| region.set(word_of(page), page as u64 + 1));
    }
    thread.barrier();
}

/// Reads a page; it has the contents that its home gave it.
fn read(region: &SharedSlice<u64>, page: usize) -> io::Result<()> {
    match black_box(region.get(word_of(page))) {
        value if value == page as u64 + 1 => Ok(()),
        value => Err(io::Error::other(format!("page {page} holds {value}"))),
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

/// Answers the plain sockets; with `busy`, a thread that only computes shares this node's core.
fn serve(peer: &Peer, busy: bool) -> io::Result<Value> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if busy {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let served = peer.serve(|_| ());
        over.store(true, Ordering::Relaxed);
        served.map(|()| Value::Null)
    })
}

/// Faults on fresh pages in an order without pattern, each a request and a reply of 4 KiB, in turn with plain datagrams.
fn scattered(task: &Task, comem: &Comem, thread: &Thread, peer: &Peer) -> io::Result<Value> {
    let pages = (task.blocks + 1) * task.rounds;
    // More pages than are touched: a touched page's neighbours are rarely the next to be touched.
    let region = at_node_one(comem, 2 * pages)?;
    fill(&region, thread);
    if thread.id() != 0 {
        return serve(peer, task.busy);
    }
    let between = if task.busy { BETWEEN } else { Duration::ZERO };
    let mut order = shuffled(2 * pages).into_iter();
    let mut page = [0; super::bulk::PAGE_BYTES];
    let mut comparison = Comparison { per_block: task.rounds, ..Comparison::default() };
    let (mut all_ours, mut all_bare) = (Vec::new(), Vec::new());
    for block in 0..=task.blocks {
        let ours = after_computing(task.rounds, between, || read(&region, order.next().unwrap_or(0)))?;
        let bare = after_computing(task.rounds, between, || peer.fetch_page(&mut page))?;
        // The first block warms up and does not count.
        if block > 0 {
            comparison.push(median(&ours), median(&bare));
            all_ours.extend(ours);
            all_bare.extend(bare);
        }
    }
    peer.ask(Request::Stop)?;
    Ok(json!({
        "ours": comparison.ours, "base": comparison.base, "per_block": comparison.per_block, "touched": pages,
        "p99": [quantile(&all_ours, 0.99), quantile(&all_bare, 0.99)],
    }))
}

/// As [`timed`], but computes so long before each operation.
fn after_computing(
    rounds: usize,
    between: Duration,
    mut operation: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    if between.is_zero() {
        return timed(rounds, operation);
    }
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        compute_for(between);
        times.extend(timed(1, &mut operation)?);
    }
    Ok(times)
}

/// 64 MiB of fresh pages in order, in turn with as many bytes in a stream of plain datagrams; microseconds a page.
fn in_order(task: &Task, comem: &Comem, thread: &Thread, peer: &Peer) -> io::Result<Value> {
    let regions: Vec<_> =
        (0..=task.blocks).map(|_| at_node_one(comem, STREAM_PAGES)).collect::<io::Result<Vec<_>>>()?;
    regions.iter().for_each(|region| fill(region, thread));
    if thread.id() != 0 {
        return serve(peer, false);
    }
    let mut plain = vec![0; STREAM_PAGES * super::bulk::PAGE_BYTES];
    let mut comparison = Comparison { per_block: STREAM_PAGES, ..Comparison::default() };
    let a_page = 1.0 / STREAM_PAGES as f64;
    for (block, region) in regions.iter().enumerate() {
        let ours = timed(1, || (0..STREAM_PAGES).try_for_each(|page| read(region, page)))?;
        let bare = timed(1, || peer.fetch_stream(&mut plain))?;
        if block > 0 {
            comparison.push(ours[0] * a_page, bare[0] * a_page);
        }
    }
    peer.ask(Request::Stop)?;
    Ok(json!({
        "ours": comparison.ours, "base": comparison.base, "per_block": comparison.per_block,
        "touched": regions.len() * STREAM_PAGES,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
