//! The shared heap at start-up.

use crate::error::{Error, Result};
use crate::node::Node;
use crate::shared::heap::address_space;
use crate::shared::{Place, Shared, fault, hooks, parts_of, place_of};
use crate::thread::Thread;
use comem_memory::lines::barrier;
use comem_memory::pages::{Detector, OneCopy, OneCopyFile};
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::region::Part;
use comem_protocol::ids::NodeId;
use comem_protocol::wire::message::Collective;
use std::io;
use std::sync::Arc;

/// Agrees with the other nodes on where the shared heap lies, and makes it. Where that cannot be, the program runs
/// without: only allocating fails.
pub(super) fn make_heap(node: &Arc<Node>, main: &Thread, job: u64) -> Result<()> {
    // Node 0 has it before the others look for it, which they do when they have agreed.
    let file = one_copy_file(node, job);
    let detector = address_space::choose_detector(&node.config);
    let units_stay = !detector.as_ref().is_ok_and(|chosen| *chosen == Detector::Mprotect);
    let mut offers = address_space::offers(node.config.heap).to_vec();
    offers.push(i64::from(units_stay));
    let may_be_biased = node.config.has_lines() && !node.config.uses_ucx();
    offers.push(i64::from(may_be_biased && barrier::register()));
    let bytes: Vec<u8> = offers.iter().flat_map(|o| o.to_be_bytes()).collect();
    main.collective(Collective::PLACE, &bytes, |result| {
        for (offer, word) in offers.iter_mut().zip(result.as_chunks::<8>().0) {
            *offer = i64::from_be_bytes(*word);
        }
    })?;
    let has_barrier = offers.pop() == Some(1);
    let units_may_differ = offers.pop() == Some(0);
    let Some(base) = address_space::agreed(&offers) else {
        if node.config.verbose {
            crate::error::say(format_args!(
                "comem: no place for a shared heap of {} bytes is free on every node",
                node.config.heap
            ));
        }
        return Ok(());
    };
    let (page_engine, one_copy) = match file {
        None => (node.config.page_engine, None),
        Some(file) => map_one_copy(node, main, (job, base), file)?,
    };
    let made = detector.and_then(|detector| {
        let place = Place { base, detector, units_may_differ, has_barrier, one_copy, page_engine };
        Shared::new(&node.config, node.me(), node.nodes(), Some(place))
    });
    match made {
        Ok(shared) => {
            shared.views.iter().for_each(|views| views.stamp(node.me(), node.wire.service_port(node.me())));
            node.set_shared(shared);
            fault::install(node)?;
            fault::guess_at_crashes(node)?;
            hooks::install(node);
            Ok(())
        }
        // An order is an order.
        Err(error) if node.config.detector.is_some() => Err(error),
        Err(error) => {
            crate::error::say(format_args!("comem: {}: there is no shared heap: {error}", node.name_of(node.me())));
            Ok(())
        }
    }
}

/// More than any node's number.
const EVERYBODY_CAN: i64 = i64::MAX;

/// Where the memory lies that all nodes map, from the heap's beginning, and its bytes.
fn place_of_one_copy(node: &Node) -> (usize, usize) {
    place_of(parts_of(&node.config, node.config.page_engine), 0, Part::OneCopy)
}

/// The memory that all nodes are to map, at node 0, which makes it; the others find it later. `None` in a job without.
fn one_copy_file(node: &Node, job: u64) -> Option<io::Result<Option<OneCopyFile>>> {
    let (_, bytes) = place_of_one_copy(node);
    let makes = node.me() == NodeId(0);
    let wanted = node.config.page_engine.has_one_copy();
    wanted.then(|| makes.then(|| OneCopyFile::new(job, bytes)).transpose())
}

/// Maps the memory that all nodes are to map. Where one of them cannot, all take the engine that keeps copies, unless
/// the user has named this one.
fn map_one_copy(
    node: &Node,
    main: &Thread,
    (job, base): (u64, usize),
    file: io::Result<Option<OneCopyFile>>,
) -> Result<(PageEngine, Option<OneCopy>)> {
    let (offset, bytes) = place_of_one_copy(node);
    let (_, pid) = node.wire.member(NodeId(0)).unwrap_or_default();
    let found = |file: Option<OneCopyFile>| file.map_or_else(|| OneCopyFile::of(pid, job, bytes), Ok);
    let mapped = file.and_then(found).and_then(|file| file.map(base + offset));
    // The least of all: the first node that cannot, if there is one.
    let mine = if mapped.is_ok() { EVERYBODY_CAN } else { i64::from(node.me().0) };
    let first = main.collective(Collective::PLACE, &mine.to_be_bytes(), |result| {
        result.as_chunks::<8>().0.first().map_or(EVERYBODY_CAN, |word| i64::from_be_bytes(*word))
    })?;
    let engine = node.config.page_engine;
    let (why, who) = match mapped {
        Ok(memory) if first == EVERYBODY_CAN => return Ok((engine, Some(memory))),
        Ok(_) => (None, node.name_of(NodeId(first as u16))),
        Err(why) => (Some(why), "this node".to_string()),
    };
    let because = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let Some(instead) = node.config.fallback_engine else {
        return Err(Error::Start(format!(
            "the engine {engine} has all nodes map one memory, and {who} cannot{because}; take another engine"
        )));
    };
    if first == i64::from(node.me().0) {
        crate::error::say(format_args!(
            "comem: {}: the nodes cannot map one memory{because}; pages are kept coherent by {instead}, which is \
             slower (--engine {instead} takes it without asking)",
            node.name_of(node.me())
        ));
    }
    Ok((instead, None))
}
