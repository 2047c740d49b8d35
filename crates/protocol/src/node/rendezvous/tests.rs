use super::*;
use crate::ids::NodeId;
use crate::node::identity::VERSION;
use crate::time::Time;
use std::net::SocketAddr;

fn address() -> SocketAddr {
    "192.0.2.7:40123".parse().unwrap()
}

fn id() -> UniqueId {
    UniqueId::new([7; SECRET_BYTES], address())
}

fn arrival(rank: Option<u16>, processes: u16, pid: u32) -> Arrival {
    Arrival {
        nonce: [pid as u8; NONCE_BYTES],
        rank: rank.map(NodeId),
        processes,
        pid,
        host: "a".into(),
        place: "here".into(),
        made_id: false,
        limit_ms: 30_000,
    }
}

fn elsewhere(arrival: Arrival) -> Arrival {
    Arrival { host: "b".into(), place: "there".into(), ..arrival }
}

/// Those who arrive, in this order, at time 0; their connections have the numbers 0, 1, …
fn gathered(arrivals: Vec<Arrival>) -> Gathering {
    let mut gathering = Gathering::new();
    for (index, arrival) in arrivals.into_iter().enumerate() {
        gathering.on_arrival(Time(0), Guest(index as u32), arrival);
    }
    gathering
}

fn replies(gathering: &mut Gathering) -> Vec<(Guest, ToGuest)> {
    std::iter::from_fn(|| gathering.poll_reply()).collect()
}

/// The places that everybody gets, in the order in which they came: node, nodes on the host, place among them.
fn places(arrivals: Vec<Arrival>) -> Vec<(u16, u16, u16)> {
    let place = |(_, reply): (Guest, ToGuest)| match reply {
        ToGuest::Placed(placed) => (placed.node.0, placed.host_nodes, placed.host_place),
        other => panic!("{other:?}"),
    };
    replies(&mut gathered(arrivals)).into_iter().map(place).collect()
}

/// The one sentence that all of them are told.
fn failure(gathering: &mut Gathering, guests: usize) -> String {
    let all = replies(gathering);
    assert_eq!(all.len(), guests, "{all:?}");
    assert!(gathering.is_over());
    let ToGuest::Failed(text) = all[0].1.clone() else { panic!("{all:?}") };
    assert!(all.iter().all(|(_, reply)| *reply == ToGuest::Failed(text.clone())), "{all:?}");
    text
}

#[test]
fn an_id_goes_through_its_text_and_shows_no_secret_to_a_debugger() {
    let v6 = UniqueId::new([0xff; SECRET_BYTES], "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap());
    for id in [id(), v6] {
        let text = id.to_string();
        assert!(text.len() < ID_BYTES && text.starts_with("comem1:"), "{text}");
        assert_eq!(format!(" {text}\n").parse::<UniqueId>().as_ref(), Ok(&id));
        assert!(!format!("{id:?}").contains("0707"), "{id:?}");
    }
    let (one, other) = (id(), UniqueId::new([8; SECRET_BYTES], address()));
    assert_ne!(one.job_key(), other.job_key());
    assert_ne!(one.job_number(), other.job_number());
}

#[test]
fn what_is_no_id_is_told_from_one_of_another_version_and_from_one_that_was_cut() {
    let text = id().to_string();
    assert_eq!("".parse::<UniqueId>(), Err(IdError::NoId));
    assert_eq!("127.0.0.1:9000".parse::<UniqueId>(), Err(IdError::NoId));
    assert_eq!("comemx:1".parse::<UniqueId>(), Err(IdError::NoId));
    assert_eq!(text.replacen("comem1", "comem2", 1).parse::<UniqueId>(), Err(IdError::Form(2)));
    for damaged in [&text[..text.len() - 1], &text[..20], &text.replacen("07", "08", 1), &format!("{text}0")] {
        assert_eq!(damaged.parse::<UniqueId>(), Err(IdError::Damaged), "{damaged}");
    }
}

#[test]
fn messages_go_through_their_bytes_and_count_for_one_id_and_one_connection_alone() {
    let (nonce, other_nonce) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
    let other_id = UniqueId::new([8; SECRET_BYTES], address());
    let from_guest = [
        FromGuest::Arrival(arrival(Some(3), 4, 11)),
        FromGuest::Arrival(Arrival { made_id: true, limit_ms: 0, ..arrival(None, 1, 12) }),
        FromGuest::Address("[::1]:9".parse().unwrap()),
    ];
    for message in from_guest {
        let frame = message.emit(&id(), &nonce);
        let (length, bytes) = frame.split_at(2);
        assert_eq!(usize::from(u16::from_be_bytes([length[0], length[1]])), bytes.len());
        assert_eq!(FromGuest::parse(bytes, &id(), &nonce).as_ref(), Ok(&message));
        assert_eq!(FromGuest::parse(bytes, &other_id, &nonce), Err(Rejected::Tag));
        assert_eq!(FromGuest::parse(bytes, &id(), &other_nonce), Err(Rejected::Tag));
        assert!(ToGuest::parse(bytes, &id(), &nonce).is_err(), "what one side says is nothing from the other");
        for end in 0..bytes.len() {
            assert!(FromGuest::parse(&bytes[..end], &id(), &nonce).is_err());
        }
    }
    let placed = Placed { node: NodeId(3), host_nodes: 2, host_place: 1 };
    let tagged = [
        ToGuest::Placed(placed),
        ToGuest::Zero(address()),
        ToGuest::Failed("no".into()),
        ToGuest::Waits("3 of 4".into()),
    ];
    for message in tagged {
        let frame = message.emit(&id(), &nonce);
        assert_eq!(ToGuest::parse(&frame[2..], &id(), &nonce).as_ref(), Ok(&message));
        assert_eq!(ToGuest::parse(&frame[2..], &other_id, &nonce), Err(Rejected::Tag));
        assert_eq!(ToGuest::parse(&frame[2..], &id(), &other_nonce), Err(Rejected::Tag));
    }
    for message in [ToGuest::Hello { version: VERSION, nonce }, ToGuest::WrongKey] {
        let frame = message.emit(&id(), &other_nonce);
        assert_eq!(ToGuest::parse(&frame[2..], &other_id, &nonce), Ok(message));
    }
    assert!(ToGuest::parse(b"SSH-2.0-OpenSSH", &id(), &nonce).is_err());
}

#[test]
fn whoever_has_a_rank_keeps_it_and_the_others_take_what_is_left() {
    let by_rank = (0..3).map(|rank| arrival(Some(2 - rank), 3, 10)).collect();
    assert_eq!(places(by_rank), [(2, 3, 2), (1, 3, 1), (0, 3, 0)]);
    let mixed = vec![arrival(None, 3, 10), arrival(Some(0), 3, 11), arrival(None, 3, 12)];
    assert_eq!(places(mixed), [(1, 3, 1), (0, 3, 0), (2, 3, 2)]);
}

#[test]
fn without_ranks_the_one_that_made_the_id_is_node_zero_and_neighbours_have_neighbouring_numbers() {
    let maker = Arrival { made_id: true, ..arrival(None, 4, 13) };
    let all = vec![elsewhere(arrival(None, 4, 10)), arrival(None, 4, 11), elsewhere(arrival(None, 4, 12)), maker];
    assert_eq!(places(all), [(2, 2, 0), (1, 2, 1), (3, 2, 1), (0, 2, 0)]);
}

#[test]
fn node_zeros_address_goes_to_the_others_and_ends_the_rendezvous() {
    let mut gathering = gathered((0..3).map(|rank| arrival(Some(rank), 3, 10)).collect());
    replies(&mut gathering);
    gathering.on_address(Guest(1), address());
    assert!(!gathering.is_over() && gathering.poll_reply().is_none(), "node 1 is not node zero");
    gathering.on_address(Guest(0), address());
    assert!(!gathering.is_over(), "there is something to be told");
    let told = [1, 2].map(|guest| (Guest(guest), ToGuest::Zero(address())));
    assert_eq!(replies(&mut gathering), told);
    assert!(gathering.is_over());
    gathering.on_arrival(Time(5), Guest(3), arrival(None, 3, 14));
    let [(Guest(3), ToGuest::Failed(late))] = &replies(&mut gathering)[..] else { panic!() };
    assert!(late.contains("have met already; an id serves one job"), "{late}");
}

#[test]
fn two_of_one_rank_and_different_numbers_of_processes_end_it_for_all_at_once() {
    let mut same = gathered(vec![arrival(Some(1), 3, 10), elsewhere(arrival(Some(1), 3, 11))]);
    let text = failure(&mut same, 2);
    assert_eq!(text, "two processes are to be node 1 (host a, pid 10; host b, pid 11); give each a rank of its own");
    let mut unlike = gathered(vec![arrival(None, 3, 10), arrival(None, 4, 11)]);
    let text = failure(&mut unlike, 2);
    assert!(text.contains("(host a, pid 10) expects 3 processes and another (host a, pid 11) 4"), "{text}");
    let mut beyond = gathered(vec![arrival(Some(3), 3, 10)]);
    let text = failure(&mut beyond, 1);
    assert!(text.contains("is to be node 3, and a job of 3 has nodes 0 to 2"), "{text}");
}

#[test]
fn when_time_runs_out_the_missing_are_named() {
    let limit = Time(30_000_000_000);
    let mut ranked = gathered(vec![arrival(Some(0), 4, 10), arrival(Some(2), 4, 12)]);
    assert_eq!(ranked.next_timeout(), Some(Time(2_000_000_000)));
    ranked.on_timeout(Time(2_000_000_000));
    let waits = ToGuest::Waits("2 of 4 processes have come; nodes 1, 3 are missing".into());
    assert_eq!(replies(&mut ranked), [(Guest(0), waits)]);
    assert_eq!(ranked.next_timeout(), Some(limit));
    ranked.on_timeout(limit);
    let text = failure(&mut ranked, 2);
    assert!(text.starts_with("2 of 4 processes came within 30 s, and nodes 1, 3 are missing; see whether"), "{text}");
    let mut unranked = gathered(vec![arrival(None, 2, 10)]);
    unranked.on_timeout(limit);
    let text = failure(&mut unranked, 1);
    unranked.on_arrival(limit, Guest(1), arrival(None, 2, 11));
    assert_eq!(replies(&mut unranked), [(Guest(1), ToGuest::Failed(text.clone()))], "late, and told why");
    assert!(text.contains("1 of 2 processes came within 30 s, and only these are here: host a, pid 10"), "{text}");
    let mut patient = gathered(vec![Arrival { limit_ms: 0, ..arrival(None, 2, 10) }]);
    patient.on_timeout(Time(u64::MAX));
    assert_eq!((replies(&mut patient).len(), patient.next_timeout()), (1, None), "told once, and waits for ever");
}

#[test]
fn a_process_that_ends_meanwhile_can_come_again_and_node_zeros_end_is_told() {
    let mut gathering = gathered(vec![arrival(Some(0), 2, 10)]);
    gathering.on_closed(Guest(0));
    gathering.on_arrival(Time(1), Guest(1), arrival(Some(0), 2, 11));
    gathering.on_arrival(Time(2), Guest(2), arrival(Some(1), 2, 12));
    assert_eq!(replies(&mut gathering).len(), 2);
    gathering.on_closed(Guest(1));
    let text = failure(&mut gathering, 1);
    assert!(text.starts_with("node 0 (host a, pid 11) ended before the others could join it"), "{text}");
}
