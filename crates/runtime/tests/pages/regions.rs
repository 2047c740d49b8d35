//! What the statistics say of each region: its name, and the time it cost.

use crate::launcher::Outcome;
use crate::matrix::{detectors, job};
use crate::placement::{WORDS, give_back, pages_of};
use comem::heap::{Home, RegionOptions};
use comem::{Comem, NodeId};
use serde_json::Value;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "names" => names(comem),
        "read-all" => read_all(comem),
        _ => return false,
    }
    true
}

/// Node 0 allocates memory that all use, and names some of it.
fn names(comem: &Comem) {
    if comem.node() == 0 {
        let alloc = |bytes| comem.alloc(bytes, &RegionOptions::default()).expect("there is room");
        let (grid, _table, block, again) = (alloc(8192), alloc(8192), alloc(64), alloc(64));
        comem.alloc_piece(1 << 20, None).expect("there is room");
        let label = |pointer, name| comem.label(pointer, name).expect("an allocation can be named");
        label(grid, "grid");
        label(block, "head");
        label(block, "head");
        label(again, "tail");
    }
    comem.parallel(|t| t.barrier());
}

/// Node 1 reads what is at home at node 0: in order, and then, of a part of it, what barriers have ended and fetch
/// again.
fn read_all(comem: &Comem) {
    const PAGES: usize = 1500;
    const PART: usize = 40;
    let slice = pages_of(comem, PAGES, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() });
    comem.parallel(|t| {
        for step in 1..200 {
            let pages = if step == 1 { PAGES } else { PART };
            if t.node() == NodeId(0) {
                (0..pages).for_each(|page| slice.set(page * WORDS + t.local_id(), step));
            }
            t.barrier();
            if t.node() == NodeId(1) {
                (0..pages).for_each(|page| assert_eq!(slice.get(page * WORDS), step));
            }
            t.barrier();
        }
    });
    give_back(comem, slice);
}

/// Of each region of a node how it is called, and by what.
fn called(outcome: &Outcome, node: usize) -> Vec<(String, String)> {
    let text = |region: &Value, field: &str| region[field].as_str().unwrap_or_default().to_string();
    let regions = outcome.stats[&node]["regions"].as_array().expect("regions");
    let mut called: Vec<_> = regions.iter().map(|region| (text(region, "label"), text(region, "named_by"))).collect();
    called.sort();
    called
}

#[test]
fn every_node_knows_by_what_the_program_calls_a_region_or_where_it_allocates_it() {
    let outcome = job("names", 2, &[("COMEM_THREADS", "1")]);
    let line = |of: usize| (format!("regions.rs:{of}"), "allocation".to_string());
    let (blocks, label) = ("blocks of 64 bytes of node 0".to_string(), "label".to_string());
    let (alloc, piece) = line_numbers();
    let mine =
        vec![(format!("{blocks}: head, tail"), label.clone()), ("grid".to_string(), label), line(alloc), line(piece)];
    assert_eq!(called(&outcome, 0), mine);
    assert_eq!(called(&outcome, 1), vec![(blocks, line(0).1), line(alloc), line(alloc), line(piece)]);
}

/// The lines in which [`names`] allocates: by itself, and a piece.
fn line_numbers() -> (usize, usize) {
    let of =
        |what: &str| include_str!("regions.rs").lines().position(|line| line.contains(what)).map_or(0, |at| at + 1);
    (of("comem.alloc(bytes, "), of("comem.alloc_piece(1 << 20"))
}

#[test]
fn the_time_in_which_a_node_waits_for_pages_is_booked_to_their_regions() {
    for (detector, backbone) in detectors().into_iter().flat_map(|detector| [(detector, "udp"), (detector, "shm")]) {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
        let outcome = job("read-all", 2, &settings);
        let node = &outcome.stats[&1];
        let number = |value: &Value| value.as_u64().expect("a number");
        let of_regions: u64 = node["regions"].as_array().expect("regions").iter().map(|r| number(&r["fetch_us"])).sum();
        let waited = number(&node["time_us"]["fetch"]);
        assert!(of_regions > 0 && of_regions + 2 >= waited, "{detector}, {backbone}: {of_regions} of {waited} us");
    }
}
