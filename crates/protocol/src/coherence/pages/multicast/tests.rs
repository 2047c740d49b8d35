//! Messages to sets and what is kept of them, and what hostile bytes come to.

use super::carry;
use super::unit::{SetUnit, Unasked};
use super::wire::*;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::kept_diffs::runs::StampRun;
use crate::coherence::pages::kept_diffs::unit::Versions;
use crate::coherence::pages::kept_diffs::{STAMP_MAX, Stamp};
use crate::faults::Rng;
use crate::ids::{NODES_MAX, NodeId};
use crate::wire::bytes::Put;

fn set(nodes: &[u16]) -> NodeSet {
    nodes.iter().copied().map(NodeId).collect()
}

fn run(start: u32, bytes: &[u8], stamp: Stamp) -> StampRun {
    StampRun { start, end: start + bytes.len() as u32, stamp }
}

fn asked(node: u16, since: Stamp, need: Stamp) -> AskedWriter {
    AskedWriter { node: NodeId(node), since, need }
}

/// An ask of nodes 1 and 2, of which node 900 is told, with diffs of the asker.
fn ask_body(writers: &[AskedWriter], own: bool) -> Vec<u8> {
    let mut body = Vec::new();
    put_set_ask(&mut body, (&set(&[1, 2]), &set(&[900])), 77, writers, own);
    if own {
        let runs = [(run(4, b"abc", 9), &b"abc"[..]), (run(9, b"d", 8), &b"d"[..])];
        put_told_diffs(&mut body, (3, 10), runs.into_iter());
    }
    body
}

#[test]
fn an_ask_survives_the_wire_and_says_who_is_asked() {
    let writers = [asked(1, 0, 5), asked(2, 7, 8), asked(4, 0, STAMP_MAX)];
    let body = ask_body(&writers, true);
    let ask = SetAsk::parse(&body).unwrap();
    assert_eq!((ask.asked, ask.told, ask.page, &ask.writers[..]), (set(&[1, 2]), set(&[900]), 77, &writers[..]));
    let own = ask.own.unwrap();
    assert_eq!((own.since, own.through, own.bytes, own.end()), (3, 10, &b"abcd"[..], 10));
    assert_eq!(asked_of(&body), Ok(set(&[1, 2])));
    assert_eq!(SetAsk::parse(&ask_body(&writers, false)).unwrap().own, None);
}

#[test]
fn what_is_cut_short_is_refused() {
    let body = ask_body(&[asked(1, 0, 5), asked(2, 7, 8)], true);
    assert!((0..body.len()).all(|len| SetAsk::parse(&body[..len]).is_err()));
    let mut told = Vec::new();
    put_told(&mut told, 5, (0, 4), [(run(0, b"xy", 4), &b"xy"[..])].into_iter());
    assert!((1..told.len()).all(|len| take_told(&told[..len]).is_err()));
    put_told_collected(&mut told, 6, 3);
    put_told_freed(&mut told, 7, 4);
    put_too_long(&mut told, 8, 5);
    let units = take_told(&told).unwrap();
    assert!(matches!(units[0], (5, ToldUnit::Diffs(_))));
    assert_eq!(units[1..], [(6, ToldUnit::Collected(3)), (7, ToldUnit::Freed(4)), (8, ToldUnit::TooLong(5))]);
}

#[test]
fn asks_that_make_no_sense_are_refused() {
    let refused = |writers: &[AskedWriter]| SetAsk::parse(&ask_body(writers, false)).is_err();
    assert!(!refused(&[asked(1, 0, 5), asked(2, 0, 5)]));
    assert!(refused(&[asked(1, 0, 5)]), "node 2 is asked for nothing");
    assert!(refused(&[asked(1, 5, 5), asked(2, 0, 5)]), "nothing is lacking");
    assert!(refused(&[asked(1, 0, STAMP_MAX + 1), asked(2, 0, 5)]), "no stamp");
    assert!(refused(&[asked(1, 0, 5), asked(2, 0, 5), asked(1, 0, 6)]), "a writer twice");
    assert!(refused(&[asked(1, 0, 5), asked(2, 0, 5), asked(NODES_MAX as u16, 0, 5)]), "no node");
    let mut both = Vec::new();
    put_set_ask(&mut both, (&set(&[1]), &set(&[1])), 7, &[asked(1, 0, 5)], false);
    assert!(SetAsk::parse(&both).is_err(), "asked and told");
    let mut nobody = Vec::new();
    put_set_ask(&mut nobody, (&set(&[]), &set(&[1])), 7, &[], false);
    assert!(SetAsk::parse(&nobody).is_err(), "nobody is asked");
}

#[test]
fn large_numbers_get_no_memory() {
    for count in [u64::from(u16::MAX), 1 << 40, u64::MAX] {
        let mut body = Vec::new();
        body.put_var(count);
        assert!(asked_of(&body).is_err() && SetAsk::parse(&body).is_err());
        let mut told = vec![5, 0, 0, 4];
        told.put_var(count);
        assert!(take_told(&told).is_err());
        let mut carried = vec![0, 1];
        carried.put_var(count);
        assert!(carry::parse(&carried).is_err());
    }
    // A million runs in one list, as far as there are bytes for them.
    let mut told = vec![5, 0, 0, 4];
    told.put_var(1_000_000);
    told.extend([1, 1, 1].repeat(1_000_000));
    assert!(take_told(&told).is_err(), "they leave the largest unit");
    assert!(take_told(&[1, 2, 0].repeat(TOLD_UNITS_MAX + 1)).is_err());
}

#[test]
fn random_bytes_are_refused_or_read_and_never_end_the_node() {
    let mut rng = Rng::new(0x5e7);
    for _ in 0..20_000 {
        let (len, top) = (rng.below(40), if rng.below(2) == 0 { 4 } else { 256 });
        let bytes: Vec<u8> = (0..len).map(|_| rng.below(top) as u8).collect();
        let _ = (SetAsk::parse(&bytes), take_told(&bytes), carry::parse(&bytes), carry::carried(&bytes));
    }
}

#[test]
fn a_node_counts_as_told_only_of_what_all_reached_it_without_a_gap() {
    let mut unit = SetUnit::default();
    let one = || std::iter::once(NodeId(1));
    unit.mark_told(one(), 2, 5);
    assert!(unit.has_told(NodeId(1), 2, 5) && unit.has_told(NodeId(1), 4, 5));
    assert!(!unit.has_told(NodeId(1), 0, 5), "it lacks more");
    assert!(!unit.has_told(NodeId(1), 2, 6) && !unit.has_told(NodeId(2), 2, 5) && unit.has_told_anybody(5));
    unit.mark_told(one(), 4, 9);
    assert!(unit.has_told(NodeId(1), 2, 9), "the second goes on where the first ends");
    unit.mark_told(one(), 20, 30);
    assert!(unit.has_told(NodeId(1), 20, 30) && !unit.has_told(NodeId(1), 2, 9));
    unit.mark_told(std::iter::once(NodeId(3)), 0, 7);
    assert_eq!(unit.told_since(&set(&[1, 3, 5])), Some(7));
    assert_eq!(unit.told_since(&set(&[5])), None);
}

#[test]
fn what_is_below_the_floor_is_left_out_with_its_bytes() {
    let runs = vec![run(0, b"ab", 3), run(5, b"c", 9), run(6, b"def", 4), run(20, b"g", 5)];
    let mut diffs = Unasked { since: 0, covers: Versions::new(), runs, bytes: b"abcdefg".to_vec(), is_carried: false };
    diffs.drop_to(2);
    assert_eq!(diffs.bytes, b"abcdefg");
    diffs.drop_to(4);
    assert_eq!((&diffs.runs[..], &diffs.bytes[..]), (&[run(5, b"c", 9), run(20, b"g", 5)][..], &b"cg"[..]));
}

#[test]
fn what_a_token_carries_survives_the_wire() {
    let mut payload = Vec::new();
    carry::begin(&mut payload, 6);
    let covers: Versions = [(NodeId(2), 7), (NodeId(5), 9)].into_iter().collect();
    carry::put_unit(&mut payload, 12, &covers, [(run(8, b"hello", 7), &b"hello"[..])].into_iter());
    let carried = carry::carried(&payload).unwrap();
    let runs = vec![run(8, b"hello", 7)];
    let expected = Unasked { since: 6, covers, runs, bytes: b"hello".to_vec(), is_carried: true };
    assert_eq!(carry::parse(carried), Ok(vec![(12, expected)]));
    assert_eq!(carry::carried(&[]), None);
    let cut = (2..carried.len()).all(|len| carry::parse(&carried[..len]).is_err());
    assert!(cut, "what is cut short is refused");
}
