use super::*;
use crate::node::identity::tests::identity;
use crate::node::watch::{LossCause, WatchMessage};

fn member(ip: &str) -> Member {
    Member { host: "b".into(), pid: 4711, ip: ip.parse().unwrap(), ports: vec![7000, 7001] }
}

fn join(intent: Intent, requested: Option<NodeId>) -> StartMessage {
    StartMessage::Join(Box::new(Join {
        nonce: 7,
        discover: requested.is_none(),
        intent,
        requested,
        job: 9,
        age_ms: 1240,
        identity: identity(4),
        pid: 4711,
        host: "b".into(),
        ports: vec![7000, 7001],
    }))
}

fn refusals() -> Vec<Refusal> {
    let layout = identity(4).layout;
    vec![
        Refusal::Version { zero: 1, joiner: 2 },
        Refusal::OtherJob { zero: "lake".into() },
        Refusal::Layout { zero: layout, joiner: Layout { page_bytes: 65536, ..layout } },
        Refusal::Program { zero: [1; 6], joiner: [2; 6], program: "sea".into() },
        Refusal::Nodes { zero: 4, joiner: 5 },
        Refusal::Threads { zero: 1, joiner: 2 },
        Refusal::Options { zero: "a=1".into(), joiner: "a=2".into() },
        Refusal::Full { nodes: 4 },
        Refusal::AlreadyRunning { job: "sea".into() },
        Refusal::NumberTaken { host: "b".into(), pid: 4711 },
        Refusal::NoSuchNode { nodes: 4 },
        Refusal::TooFew { came: 2, wanted: 4 },
        Refusal::GivenUp("no memory".into()),
    ]
}

fn examples() -> Vec<StartMessage> {
    let accepted = Verdict::Accepted { node: NodeId(3), job: 9, prog: 11 };
    let mut verdicts = vec![accepted, Verdict::Wait, Verdict::Yielded, Verdict::Surplus, Verdict::Unreadable];
    verdicts.extend(refusals().into_iter().map(Verdict::Refused));
    let table =
        Hello::Table { page: 1, pages: 2, nodes: 4, first: 2, members: vec![member("10.0.0.2"), member("fe80::1")] };
    let hellos = [
        table,
        Hello::Introduce(NodeId(1)),
        Hello::Greet(NodeId(2)),
        Hello::Multicast,
        Hello::Noted,
        Hello::Start { multicast: true },
    ];
    let ready = Ready {
        node: NodeId(2),
        nonce: 7,
        complete: false,
        multicast: true,
        have: vec![5],
        unheard: vec![NodeId(1), NodeId(3)],
    };
    let wakeup = Wakeup {
        nonce: 7,
        job: 9,
        age_ms: 1240,
        job_name: "sea".into(),
        nodes: 4,
        threads: 2,
        program: "sea".into(),
        hash: [3; 32],
        arguments: vec!["--text".into(), "two\nlines".into(), String::new()],
    };
    let mut all = vec![
        join(Intent::Ask, None),
        join(Intent::Confirm { job: 9, node: NodeId(3) }, Some(NodeId(3))),
        join(Intent::Decline(9), None),
        StartMessage::Wakeup(wakeup),
        StartMessage::Ready { job: 9, ready },
    ];
    all.extend(verdicts.into_iter().map(|verdict| StartMessage::Answer(Answer { nonce: 7, version: 1, verdict })));
    all.extend(hellos.into_iter().map(|hello| StartMessage::Hello { job: 9, hello }));
    all
}

#[test]
fn every_message_survives_the_wire() {
    for message in examples() {
        let body = message.emit(1);
        assert_eq!(StartMessage::parse(message.ty(), &body, 1), Ok(message));
    }
}

#[test]
fn a_shortened_or_lengthened_message_is_refused() {
    for message in examples() {
        let mut body = message.emit(1);
        for len in 0..body.len() {
            assert!(StartMessage::parse(message.ty(), &body[..len], 1).is_err(), "{message:?} at {len}");
        }
        body.push(0);
        assert!(StartMessage::parse(message.ty(), &body, 1).is_err(), "{message:?}");
    }
}

#[test]
fn join_looks_the_same_for_ever_as_far_as_the_version_check() {
    let body = join(Intent::Ask, None).emit(1);
    assert_eq!(&body[..16], b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x01\x00\x03sea");
}

#[test]
fn another_version_is_read_as_far_as_its_name() {
    for (message, discover) in [(join(Intent::Ask, None), true), (join(Intent::Ask, Some(NodeId(3))), false)] {
        let body = message.emit(1);
        let foreign = StartMessage::Foreign { ty: types::JOIN, version: 1, nonce: 7, discover, job_name: "sea".into() };
        assert_eq!(StartMessage::parse(types::JOIN, &body, 2), Ok(foreign));
    }
    let answer = StartMessage::Answer(Answer { nonce: 7, version: 1, verdict: Verdict::Surplus });
    let unreadable = StartMessage::Answer(Answer { nonce: 7, version: 1, verdict: Verdict::Unreadable });
    assert_eq!(StartMessage::parse(types::ANSWER, &answer.emit(1), 2), Ok(unreadable));
}

#[test]
fn a_name_that_would_write_to_the_terminal_is_refused() {
    let StartMessage::Join(mut join) = join(Intent::Ask, None) else { panic!("a JOIN") };
    join.host = "\u{1b}[2J".into();
    let body = StartMessage::Join(join).emit(1);
    assert_eq!(StartMessage::parse(types::JOIN, &body, 1), Err(WireError::BadValue("text")));
    assert_eq!(fit("\u{1b}[2J", 64), " [2J");
    assert_eq!(fit("häuser", 2), "h");
}

#[test]
fn a_node_of_256_threads_fits_and_its_table_is_cut() {
    let wide = Member { host: "h".repeat(NAME_MAX), ports: (1..=257).collect(), ..member("fe80::1") };
    let members = vec![wide; 5];
    let pages = crate::node::table::pages(&members, BODY_MAX - 19);
    assert!(pages.len() >= 3 && pages.len() <= 5);
    assert_eq!(pages.iter().map(ExactSizeIterator::len).sum::<usize>(), 5);
    for range in pages.clone() {
        let hello =
            Hello::Table { page: 0, pages: 5, nodes: 5, first: range.start as u16, members: members[range].to_vec() };
        assert!(StartMessage::Hello { job: 1, hello }.emit(1).len() <= BODY_MAX);
    }
}

#[test]
fn watch_messages_survive_the_wire() {
    let causes = [
        LossCause::PortClosed,
        LossCause::Silent { ms: 10_000 },
        LossCause::Exited { status: -1 },
        LossCause::Killed { signal: 9 },
        LossCause::Stopped("no memory".into()),
        LossCause::Left,
    ];
    let lost = causes.map(|why| WatchMessage::Lost { node: NodeId(3), reporter: NodeId(1), why });
    let pings = [WatchMessage::Ping { gone: 2, filling: 0 }, WatchMessage::Pong { gone: 3, filling: 0 }];
    for message in lost.into_iter().chain(pings) {
        let body = message.emit();
        assert_eq!(WatchMessage::parse(message.ty(), &body), Ok(message.clone()));
        for len in 0..body.len() {
            assert!(WatchMessage::parse(message.ty(), &body[..len]).is_err());
        }
    }
    let long = WatchMessage::Ping { gone: 2, filling: 1400 };
    assert_eq!(long.emit().len(), 1402);
    assert_eq!(WatchMessage::parse(long.ty(), &long.emit()), Ok(long));
}
