use crate::coherence::pages::intervals::{IntervalState, RequiredDiffs};
use crate::coherence::pages::piggyback;
use crate::coherence::pages::region::Region;
use crate::coherence::pages::wire::{
    DIFFS_HEAD_BYTES, DiffsHead, Entry, Fetch, Group, Groups, Notices, PUSH_PAGES_MAX, Pages, Push, RequiredDiff,
    parts, put_part, put_seen, put_unused, put_vector, take_unused, take_vector, take_vector_of,
};
use crate::coherence::pages::write_notices::{self, Knowledge, WhichLog};
use crate::coherence::pages::{PAGE_BYTES, PageEngine, UNIT_PAGES_MAX};
use crate::faults::Rng;
use crate::ids::{LockId, NODES_MAX, NodeId};
use crate::sync::Scope;
use crate::wire::bytes::{Put, Reader, WireError};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::ops::Range;

fn node(rng: &mut Rng) -> NodeId {
    NodeId(rng.below(64) as u16)
}

fn runs(rng: &mut Rng, most: u64, longest: u64) -> Vec<Range<u32>> {
    let run = |rng: &mut Rng| {
        let first = rng.below(1 << 28) as u32;
        first..first + rng.between(1, longest) as u32
    };
    (0..rng.below(most)).map(|_| run(rng)).collect()
}

/// Of any length, and often one at which another length begins.
fn serial(rng: &mut Rng) -> u64 {
    let at = [0, u64::from(u32::MAX), 1 << 32, u64::MAX - 1][rng.below(4) as usize];
    at.wrapping_add(rng.below(3)).wrapping_sub(1)
}

fn fetch(rng: &mut Rng) -> Fetch {
    let need = |rng: &mut Rng| RequiredDiff { writer: node(rng), serial: serial(rng) };
    let needs = (0..rng.below(5)).map(|_| need(rng)).collect();
    Fetch {
        epoch: rng.next_u64() as u32,
        claim: rng.below(2) == 0,
        direct: rng.below(2) == 0,
        needs,
        runs: runs(rng, 6, 100).into(),
    }
}

/// Runs of one length at one distance.
fn row(rng: &mut Rng, most: u64) -> Vec<(Range<u32>, bool)> {
    let (first, pages, held) = (rng.below(1 << 20) as u32, rng.between(1, 9) as u32, rng.below(2) == 0);
    let stride = pages + rng.below(3) as u32;
    (0..rng.below(most) as u32).map(|at| first + at * stride).map(|first| (first..first + pages, held)).collect()
}

fn entry(rng: &mut Rng) -> Entry {
    let group = |rng: &mut Rng| {
        let mut runs: Vec<_> = runs(rng, 6, 1_000).into_iter().map(|run| (run, rng.below(2) == 0)).collect();
        if rng.below(2) == 0 {
            let at = rng.below(runs.len() as u64 + 1) as usize;
            runs.splice(at..at, row(rng, 9));
        }
        Group { home: node(rng), serial: serial(rng), runs: runs.into() }
    };
    let groups = (0..rng.below(4)).map(|_| group(rng)).collect();
    Entry { writer: node(rng), from: rng.next_u64() as u32, interval: rng.next_u64() as u32, groups }
}

#[test]
fn everything_survives_the_wire() {
    let mut rng = Rng::new(1);
    for _ in 0..2_000 {
        let (fetch, entry, mut body) = (fetch(&mut rng), entry(&mut rng), Vec::new());
        fetch.emit(&mut body);
        assert_eq!(Fetch::parse(&body), Ok(fetch));
        body.clear();
        entry.emit(&mut body);
        assert_eq!(Entry::parse(&mut Reader::new(&body)), Ok(entry));
        let vector = (0..rng.below(6)).map(|_| (node(&mut rng), rng.next_u64() as u32)).collect();
        body.clear();
        let which = if rng.below(2) == 0 { WhichLog::Main } else { WhichLog::Other };
        put_vector(&mut body, &vector, which);
        assert_eq!(take_vector(&mut Reader::new(&body)).is_ok(), which == WhichLog::Main);
        assert_eq!(take_vector_of(&mut Reader::new(&body)), Ok((which, vector)));
        let pages = Pages {
            direct: false,
            runs: vec![3..5].into(),
            moved: runs(&mut rng, 4, 9).into_iter().map(|r| (r, NodeId(1))).collect(),
            freed: runs(&mut rng, 4, 9),
        };
        body.clear();
        pages.emit(&mut body);
        body.resize(body.len() + 2 * PAGE_BYTES, 5);
        assert_eq!(Pages::parse(&body).map(|(p, bytes)| (p, bytes.len())), Ok((pages, 2 * PAGE_BYTES)));
    }
}

#[test]
fn diffs_survive_the_wire_and_end_where_their_bytes_end() {
    let needs = vec![RequiredDiff { writer: NodeId(4), serial: 2 }];
    let (head, mut body) = (DiffsHead { epoch: 3, serial: 9, needs }, Vec::new());
    head.emit(&mut body);
    put_part(&mut body, 7, b"abc");
    put_part(&mut body, 8, b"");
    let (parsed, rest) = DiffsHead::parse(&body).unwrap();
    assert_eq!(parsed, head);
    assert_eq!(parts(rest).collect::<Vec<_>>(), [(7, &b"abc"[..]), (8, b"")]);
    assert_eq!(parts(&rest[..rest.len() - 9]).count(), 0, "a part that is cut short is none");
}

#[test]
fn the_head_of_diffs_is_written_before_them_whatever_its_length() {
    for count in [0, 1, 3, 100] {
        let needs = (0..count).map(|n| RequiredDiff { writer: NodeId(n), serial: 1 << n.min(60) }).collect();
        let (head, mut message) = (DiffsHead { epoch: 3, serial: 9, needs }, vec![0; DIFFS_HEAD_BYTES]);
        put_part(&mut message, 7, b"abc");
        let start = head.emit_before(&mut message);
        let (parsed, rest) = DiffsHead::parse(&message[start..]).unwrap();
        assert_eq!((parsed, parts(rest).collect::<Vec<_>>()), (head, vec![(7, &b"abc"[..])]));
    }
}

#[test]
fn an_entry_that_is_known_is_passed_over() {
    let group = |home| Group { home: NodeId(home), serial: 1, runs: smallvec![(3..5, true), (9..10, false)] };
    let entry = Entry { writer: NodeId(1), from: 2, interval: 3, groups: smallvec![group(4), group(5)] };
    let mut body = Vec::new();
    entry.emit(&mut body);
    entry.emit(&mut body);
    let mut reader = Reader::new(&body);
    let known = |writer, interval| (writer, interval) == (NodeId(1), 3);
    assert_eq!(Entry::parse_unless(&mut reader, &mut 0, known), Ok(None));
    assert_eq!(Entry::parse_unless(&mut reader, &mut 0, |_, _| false), Ok(Some(entry)));
    assert_eq!(reader.finish(), Ok(()));
    assert!(Entry::parse_unless(&mut Reader::new(&body[..body.len() / 2 - 1]), &mut 0, known).is_err(), "cut short");
}

/// An entry of node 1 with one group, of home 0, whose notices are these numbers.
fn entry_of(interval: u32, notices: &[u64]) -> Vec<u8> {
    let (mut told, mut body) = (Vec::new(), Vec::new());
    notices.iter().for_each(|number| told.put_var(*number));
    [1, 0, interval.into(), 1, 0, 0, told.len() as u64].into_iter().for_each(|number| body.put_var(number));
    body.put_bytes(&told);
    body
}

/// A datagram of such entries made gigabytes of runs.
#[test]
fn rows_of_runs_are_bounded_for_all_entries_of_a_payload_together() {
    let blob = |intervals: Range<u32>| {
        let mut blob = Vec::new();
        blob.put_var(0);
        put_seen(&mut blob, BTreeMap::new().iter());
        intervals.for_each(|interval| blob.put_bytes(&entry_of(interval, &[0, 0, 1, 2, 1 << 24])));
        blob
    };
    assert_eq!(write_notices::open(&blob(1..2)).map(|blob| blob.entries.len()), Ok(1), "it is no more than that");
    assert_eq!(write_notices::open(&blob(1..3)).map(|_| ()), Err(WireError::BadValue("row of notices")));
    let mut payload = Vec::new();
    for interval in 1..3 {
        let blob = blob(interval..interval + 1);
        payload.put_u32(blob.len() as u32);
        payload.put_bytes(&blob);
    }
    let mut intervals = IntervalState::new(NodeId(0), PageEngine::Hlrc);
    assert!(
        intervals.apply_notices(Scope::Lock(LockId(1)), &payload, &mut RequiredDiffs::default()).is_err(),
        "in two blobs"
    );
}

/// A run was once cut into pieces that began in the middle of a unit.
#[test]
fn a_long_run_of_notices_is_cut_between_units_of_any_size() {
    let groups = smallvec![Group { home: NodeId(0), serial: 0, runs: smallvec![(0..100_352, true)] }];
    let (long, mut body) = (Entry { writer: NodeId(1), from: 1, interval: 1, groups }, Vec::new());
    long.emit(&mut body);
    let parsed = Entry::parse(&mut Reader::new(&body)).unwrap();
    assert_eq!(parsed.pages(), 100_352);
    let runs = &parsed.groups[0].runs;
    assert!(runs.len() > 1 && runs.iter().all(|(run, _)| run.start.is_multiple_of(UNIT_PAGES_MAX)), "{runs:?}");
}

fn bytes_of(groups: Groups) -> Vec<u8> {
    let (entry, mut body) = (Entry { writer: NodeId(1), from: 1, interval: 1, groups }, Vec::new());
    entry.emit(&mut body);
    assert_eq!(Entry::parse(&mut Reader::new(&body)), Ok(entry));
    body
}

/// 400 MiB whose pages have their homes at three nodes in turn, written whole by one: of each home every third page.
#[test]
fn a_cyclic_array_takes_as_many_bytes_whatever_its_length() {
    let cyclic = |pages: u32| {
        let of_home = |home: u16| (u32::from(home)..pages).step_by(3).map(|page| (page..page + 1, true)).collect();
        bytes_of((0..3).map(|home| Group { home: NodeId(home), serial: 1, runs: of_home(home) }).collect()).len()
    };
    // Run by run some 200,000 bytes; a large number takes more than a small one.
    assert_eq!((cyclic(9), cyclic(102_400)), (4 + 3 * 8, 4 + 3 * 10));
}

#[test]
fn runs_at_changing_distances_or_of_changing_length_take_two_bytes_each_where_they_lie_close() {
    let len = |runs: Notices| bytes_of(smallvec![Group { home: NodeId(0), serial: 0, runs }]).len() - 7;
    assert_eq!(len(smallvec![(1..2, true), (3..4, true)]), 4);
    assert_eq!(len(smallvec![(1..2, true), (3..4, true), (6..7, true), (8..9, true)]), 8);
    assert_eq!(len(smallvec![(1..2, true), (3..4, true), (5..7, true), (7..8, true)]), 8);
    assert_eq!(len(smallvec![(1..2, true), (3..4, false), (5..6, true)]), 6);
    assert_eq!(len(smallvec![(1..2, true), (3..4, true), (5..6, true), (9..10, false)]), 5 + 2);
    assert_eq!(len(smallvec![(9..10, true), (5..6, true), (1..2, true)]), 2 + 2 * 6, "backwards");
    assert_eq!(len(smallvec![(u32::MAX - 1..u32::MAX, true)]), 6);
    assert_eq!(len(smallvec![(3..3 + 0x7f00, false)]), 4);
}

#[test]
fn numbers_of_notices_that_are_too_large_are_refused() {
    let parse = |notices: &[u64]| Entry::parse(&mut Reader::new(&entry_of(1, notices))).map(|entry| entry.pages());
    assert_eq!(parse(&[5, 0x7f00 << 1]), Ok(0x7f00));
    assert!(parse(&[5, 0x7f01 << 1]).is_err(), "a run that is too long");
    assert!(parse(&[1 << 32, 2]).is_err(), "no page");
    let last = u64::from(u32::MAX) - 1;
    assert!(parse(&[last, 2]).is_ok() && parse(&[last, 4]).is_err(), "beyond the last page");
    assert!(parse(&[5, 1 << 33]).is_err(), "more pages than there are");
    let mut body = Vec::new();
    [NODES_MAX as u64, 1, 1, 0].into_iter().for_each(|number| body.put_var(number));
    assert_eq!(Entry::parse(&mut Reader::new(&body)), Err(WireError::BadValue("node")));
}

#[test]
fn rows_that_no_node_would_send_are_refused() {
    let body = bytes_of(smallvec![Group {
        home: NodeId(0),
        serial: 0,
        runs: smallvec![(1..3, true), (4..6, true), (7..9, true)]
    }]);
    let row = |numbers: [u64; 4]| {
        let [first, pages, stride, runs] = numbers;
        let entry = entry_of(1, &[first, 0, pages, stride, runs]);
        Entry::parse(&mut Reader::new(&entry)).map(|entry| entry.pages())
    };
    assert_eq!(row([1, 2, 3, 3]), Ok(6));
    assert_eq!((row([1, 2, 3, 5]), row([1, 2, 3, 0])), (Ok(10), Ok(0)));
    let refused = Err(WireError::BadValue("row of notices"));
    assert_eq!(row([1, 0, 3, 3]), refused, "no pages");
    assert_eq!(row([1, 0x7f01, 0x8000, 3]), refused, "more pages than a run has");
    assert_eq!(row([1, 2, 1, 3]), refused, "they lie one over the other");
    assert_eq!(row([1, 2, 3, (1 << 24) + 1]), refused, "too many");
    assert_eq!(row([1, 2, u64::from(u32::MAX / 2), 3]), refused, "beyond the last page");
    assert_eq!(row([u64::from(u32::MAX - 7), 2, 3, 3]), refused, "beyond the last page");
    assert_eq!(row([u64::from(u32::MAX - 8), 2, 3, 3]), Ok(6));
    for len in 0..body.len() {
        assert!(Entry::parse(&mut Reader::new(&body[..len])).is_err(), "cut short at {len}");
    }
}

/// Reads bytes as each of the bodies.
fn parse_all(body: &[u8]) {
    let _ = Fetch::parse(body);
    let _ = Pages::parse(body);
    let _ = Entry::parse(&mut Reader::new(body));
    let _ = take_vector(&mut Reader::new(body));
    let _ = Region::parse(body);
    let _ = write_notices::open(body);
    if let Ok((_, rest)) = DiffsHead::parse(body) {
        parts(rest).for_each(drop);
    }
    write_notices::blobs(body).for_each(drop);
    let (_, _) = (piggyback::split_request(body), piggyback::split_payload(body));
    write_notices::unite(body, &mut body.to_vec());
    for knowledge in [Knowledge::default(), Knowledge::parse(body)] {
        write_notices::hand_out(body, &knowledge, &mut Vec::new());
    }
}

#[test]
fn no_bytes_whatever_make_a_parser_panic() {
    let mut rng = Rng::new(2);
    for round in 0..20_000 {
        let mut body: Vec<u8> =
            (0..rng.below(80)).map(|_| if rng.below(2) == 0 { 0 } else { rng.next_u64() as u8 }).collect();
        if round % 2 == 0 {
            // A good one with a few bytes changed and its end cut off.
            body.clear();
            if round % 4 == 0 {
                fetch(&mut rng).emit(&mut body)
            } else {
                entry(&mut rng).emit(&mut body)
            }
            for _ in 0..rng.below(4) {
                let at = rng.below(body.len() as u64) as usize;
                body[at] = rng.next_u64() as u8;
            }
            body.truncate(rng.below(body.len() as u64 + 1) as usize);
        }
        parse_all(&body);
    }
}

fn push(rng: &mut Rng) -> Push {
    let Fetch { epoch, needs, .. } = fetch(rng);
    Push { epoch, applied: needs, runs: runs(rng, 6, 10).into() }
}

#[test]
fn pages_sent_unasked_survive_the_wire_with_their_bytes() {
    let mut rng = Rng::new(2);
    for _ in 0..500 {
        let (push, mut body) = (push(&mut rng), Vec::new());
        let pages: usize = push.runs.iter().map(|run| run.len()).sum();
        push.emit(&mut body);
        body.resize(body.len() + pages * PAGE_BYTES, 9);
        let (parsed, bytes) = Push::parse(&body).unwrap();
        assert_eq!((parsed, bytes.len()), (push.clone(), pages * PAGE_BYTES));
        for len in [body.len() - 1, body.len() / 2, 5, 0] {
            assert!(Push::parse(&body[..len]).is_err(), "{len} of {} bytes", body.len());
        }
        body.push(0);
        assert!(Push::parse(&body).is_err());
        let mut unused = Vec::new();
        put_unused(&mut unused, &push.runs);
        assert_eq!(take_unused(&unused).unwrap()[..], push.runs[..]);
    }
}

#[test]
fn more_pages_than_a_home_sends_unasked_are_refused() {
    for (pages, fine) in [(PUSH_PAGES_MAX, true), (PUSH_PAGES_MAX + 1, false)] {
        let mut body = Vec::new();
        Push { runs: smallvec![0..20, 50..30 + pages], ..Push::default() }.emit(&mut body);
        body.resize(body.len() + pages as usize * PAGE_BYTES, 0);
        assert_eq!(Push::parse(&body).is_ok(), fine);
        let mut unused = Vec::new();
        put_unused(&mut unused, &[0..pages]);
        assert_eq!(take_unused(&unused).is_ok(), fine);
    }
}
