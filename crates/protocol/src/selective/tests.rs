use super::head::{HEAD_BYTES, windows};
use super::*;
use crate::auth::{self, JobKey, Sealer};
use crate::coherence::node_set::NodeSet;
use crate::faults::Rng;
use crate::ids::NodeId;
use crate::wire::header::{HEADER_BYTES, HeaderRepr, MsgType, Packet};

const PROG: u16 = 77;
const JOB: u64 = 0x1234_5678_9abc_def0;
const NODES: usize = 200;

fn set(nodes: &[u16]) -> NodeSet {
    nodes.iter().copied().map(NodeId).collect()
}

fn sealer() -> Sealer {
    Sealer::new(Some(JobKey::new([7; 32]))).of_job(JOB)
}

fn author(me: u16) -> Author {
    Author::new((NodeId(me), PROG, JOB), sealer(), 1472)
}

fn receiver(me: u16) -> Receiver {
    Receiver::new((NodeId(me), PROG, JOB), NODES, sealer())
}

/// Whether a receiver makes a message of a datagram.
fn take(mut receiver: Receiver, datagram: &[u8]) -> Result<bool, Refused> {
    receiver.take(datagram, |_| true).map(|taken| matches!(taken, Taken::Whole(_)))
}

/// The datagrams of one message, numbered from `first` on.
fn datagrams(author: &Author, first: u64, asked: &NodeSet, told: &NodeSet, payload: &[u8]) -> Vec<Vec<u8>> {
    let (mut all, mut next) = (Vec::new(), first);
    for named in windows(asked, told) {
        let mut bytes = Vec::new();
        let segment = author.emit(next, named, payload, &mut bytes).unwrap();
        next += author.datagrams(payload.len()).unwrap() as u64;
        all.extend(bytes.chunks(segment).map(<[u8]>::to_vec));
    }
    all
}

/// Who sent a message, what its receiver was to it, what it said.
type Came = (NodeId, Role, Vec<u8>);

/// What a receiver makes of datagrams: messages with the role, and how many were refused.
fn taken(receiver: &mut Receiver, datagrams: &[Vec<u8>]) -> (Vec<Came>, Vec<Refused>) {
    let (mut messages, mut refused) = (Vec::new(), Vec::new());
    for datagram in datagrams {
        match receiver.take(datagram, |_| true) {
            Ok(Taken::Whole(message)) => messages.push((message.from, message.role, message.payload.into_owned())),
            Ok(Taken::Part(_) | Taken::Others) => {}
            Err(why) => refused.push(why),
        }
    }
    (messages, refused)
}

#[test]
fn the_head_is_laid_out_as_written() {
    let author = Author::new((NodeId(1), 0xbeef, JOB), Sealer::default(), 1472);
    let all = datagrams(&author, 0x1234, &set(&[3, 5]), &set(&[66]), b"abc");
    let golden = [
        0xbe, 0xef, 0x00, 0x03, 0x00, 27, 0, 0, // program, type, length, fragments
        0x00, 0x40, 0x10, 0x00, 0x00, 0x00, 0x12, 0x34, // node 1, service, the free number 0x1234
        0x9a, 0xbc, 0xde, 0xf0, // the job's lower half
        0, 3, 0, 66, // bases
        0, 0, 0, 0, 0, 0, 0, 0b101, 0, 0, 0, 0, 0, 0, 0, 1, // bitmaps
        b'a', b'b', b'c',
    ];
    assert_eq!(all, [golden]);
}

#[test]
fn each_node_is_what_the_sets_say() {
    let all = datagrams(&author(0), 0, &set(&[1, 3]), &set(&[2, 3]), b"hello");
    for (me, role) in [(1, Some(Role::Asked)), (2, Some(Role::Told)), (3, Some(Role::Asked)), (4, None)] {
        let expected: Vec<_> = role.into_iter().map(|role| (NodeId(0), role, b"hello".to_vec())).collect();
        assert_eq!(taken(&mut receiver(me), &all), (expected, vec![]), "node {me}");
    }
}

#[test]
fn sets_that_reach_far_take_as_few_datagrams_as_can_be() {
    let count = |asked: &[u16], told: &[u16]| windows(&set(asked), &set(told)).count();
    assert_eq!(count(&[], &[]), 0);
    assert_eq!(count(&[5], &[]), 1);
    assert_eq!(count(&[60, 123], &[0, 63]), 1, "64 neighbours from any number on");
    assert_eq!(count(&[60, 124], &[]), 2);
    assert_eq!(count(&(0..200).collect::<Vec<_>>(), &[7]), 4);
    let mut rng = Rng::new(5);
    for round in 0..200 {
        let mut draw = || -> NodeSet { (0..rng.below(30)).map(|_| NodeId(rng.below(1024) as u16)).collect() };
        let (asked, told) = (draw(), draw());
        let mut named = (NodeSet::new(), NodeSet::new());
        for (a, t) in windows(&asked, &told) {
            assert!(a.iter().all(|node| a.contains(node) && named.0.insert(node)), "round {round}");
            assert!(t.iter().all(|node| t.contains(node) && named.1.insert(node)), "round {round}");
        }
        assert_eq!(named, (asked, told), "each once, in round {round}");
    }
}

#[test]
fn long_messages_go_in_fragments_that_may_come_in_any_order() {
    let (author, payload) = (author(0), (0..50_000u32).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<_>>());
    let mut all = datagrams(&author, 9, &set(&[1]), &set(&[2]), &payload);
    assert_eq!(all.len(), author.datagrams(payload.len()).unwrap());
    assert!(all.iter().all(|datagram| datagram.len() <= 1472) && all.len() == 36);
    all.reverse();
    all.swap(3, 17);
    let (messages, refused) = taken(&mut receiver(1), &all);
    assert_eq!(refused, []);
    assert!(messages == [(NodeId(0), Role::Asked, payload.clone())]);
    let mut other = receiver(2);
    let last = all.pop().unwrap();
    assert_eq!(taken(&mut other, &all), (vec![], vec![]), "one is missing");
    assert!(taken(&mut other, &[last]).0 == [(NodeId(0), Role::Told, payload)]);
    assert_eq!(other.kept_bytes(), 0);
}

#[test]
fn messages_beyond_the_bound_are_refused_and_those_at_it_pass() {
    let author = author(0);
    assert_eq!(author.payload_bytes_max(), MESSAGE_BYTES_MAX);
    let mut out = Vec::new();
    let named = windows(&set(&[1]), &set(&[])).next().unwrap();
    let error = author.emit(0, named, &vec![0; MESSAGE_BYTES_MAX + 1], &mut out).unwrap_err();
    assert_eq!((error.bytes, error.max, out.len()), (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX, 0));
    for bytes in [0, 1, author.payload_bytes_of_one(), author.payload_bytes_of_one() + 1, MESSAGE_BYTES_MAX] {
        let all = datagrams(&author, 0, &set(&[1]), &set(&[]), &vec![3; bytes]);
        assert!(taken(&mut receiver(1), &all).0 == [(NodeId(0), Role::Asked, vec![3; bytes])], "{bytes} bytes");
    }
}

#[test]
fn what_comes_again_counts_for_nothing_however_long_the_other_socket_lay() {
    let (author, mut receiver) = (author(0), receiver(1));
    let told: Vec<Vec<u8>> =
        (0..100).flat_map(|number| datagrams(&author, number, &set(&[]), &set(&[1]), b"t")).collect();
    let asked: Vec<Vec<u8>> =
        (100..20_000).flat_map(|number| datagrams(&author, number, &set(&[1]), &set(&[]), b"a")).collect();
    assert_eq!(taken(&mut receiver, &asked).0.len(), asked.len());
    let (messages, refused) = taken(&mut receiver, &told);
    assert_eq!((messages.len(), refused.len()), (told.len(), 0), "what lay in the other socket is not old");
    for again in [&told, &asked] {
        let (messages, refused) = taken(&mut receiver, again);
        assert!(messages.is_empty() && refused.len() == again.len());
        assert!(refused.iter().all(|why| *why == Refused::Seen));
    }
}

#[test]
fn a_changed_bit_anywhere_is_refused_before_anything_is_read() {
    let datagram = datagrams(&author(0), 0, &set(&[1]), &set(&[2]), b"hello").remove(0);
    let mut receiver = receiver(1);
    for bit in 0..datagram.len() * 8 {
        let mut damaged = datagram.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(receiver.take(&damaged, |_| true), Err(Refused::Key), "bit {bit}");
    }
    for len in 0..datagram.len() {
        assert_eq!(receiver.take(&datagram[..len], |_| true), Err(Refused::Key), "{len} bytes");
    }
    assert_eq!(receiver.take(&datagram, |_| false), Err(Refused::Address));
    let taken = receiver.take(&datagram, |from| from == NodeId(0)).unwrap();
    assert!(matches!(taken, Taken::Whole(_)), "none of that was taken for it");
}

#[test]
fn other_jobs_strangers_and_ones_own_datagrams_are_refused() {
    let one = |author: &Author, asked: &[u16]| datagrams(author, 0, &set(asked), &set(&[]), b"x").remove(0);
    let other_key = Sealer::new(Some(JobKey::new([8; 32]))).of_job(JOB);
    let other_job = Sealer::new(Some(JobKey::new([7; 32]))).of_job(JOB + 1);
    let by = |sealer: &Sealer, me: u16, prog: u16, job: u64| Author::new((NodeId(me), prog, job), sealer.clone(), 1472);
    for (author, why) in [
        (by(&other_key, 0, PROG, JOB), Refused::Key),
        (by(&other_job, 0, PROG, JOB), Refused::Key),
        (by(&Sealer::default(), 0, PROG, JOB), Refused::Key),
        (by(&sealer(), 0, PROG + 1, JOB), Refused::OtherJob),
        (by(&sealer(), 0, PROG, JOB + 1), Refused::OtherJob),
        (by(&sealer(), 1, PROG, JOB), Refused::Sender(NodeId(1))),
        (by(&sealer(), NODES as u16, PROG, JOB), Refused::Sender(NodeId(NODES as u16))),
    ] {
        assert_eq!(take(receiver(1), &one(&author, &[1])), Err(why));
    }
    let stranger = one(&author(0), &[1, NODES as u16 - 160 + 60, NODES as u16]);
    assert!(take(receiver(1), &stranger).unwrap(), "the window with the stranger is another datagram");
    let stranger = one(&author(0), &[NODES as u16 - 1, NODES as u16]);
    let refused = take(receiver(NODES as u16 - 1), &stranger).unwrap_err();
    assert_eq!(refused, Refused::Stranger(NODES as u32));
    assert!(refused.is_violation() && !Refused::Key.is_violation() && !Refused::Seen.is_violation());
    assert!(refused.to_string().contains("node 200"), "{refused}");
}

/// What a node with the key might make that no correct one does, and what stands in other datagrams of the job.
#[test]
fn what_no_node_sends_is_refused_under_a_right_tag_too() {
    let mut good = datagrams(&author(0), 5, &set(&[1]), &set(&[]), b"hello").remove(0);
    good.truncate(good.len() - sealer().tag_len());
    let header = Packet::new_checked(&good).unwrap().header;
    let sealed = |header: &HeaderRepr, body: &[u8], to: auth::Receiver| {
        let mut bytes = Vec::new();
        HeaderRepr { len: body.len() as u16, ..*header }.emit(&mut bytes);
        bytes.extend_from_slice(body);
        sealer().seal(&mut bytes, 0, to);
        bytes
    };
    let body = &good[HEADER_BYTES..];
    let sets = auth::Receiver::Sets;
    assert!(take(receiver(1), &sealed(&header, body, sets)).unwrap());
    for to in [auth::Receiver::Node(NodeId(1)), auth::Receiver::Anybody, auth::Receiver::Port(0)] {
        assert_eq!(take(receiver(1), &sealed(&header, body, to)), Err(Refused::Key), "{to:?}");
    }
    let fragment = |frag, retrans| HeaderRepr { frag, retrans, ..header };
    for (what, header, body) in [
        ("another type", HeaderRepr { ty: MsgType::ACK, ..header }, body),
        ("too short for two sets", header, &body[..HEAD_BYTES - HEADER_BYTES - 1]),
        ("a fragment of one", fragment(1, 1), body),
        ("a fragment behind the last", fragment(4, 3), body),
        ("a fragment without bytes", fragment(1, 2), &body[..HEAD_BYTES - HEADER_BYTES]),
        ("a fragment before number zero", fragment(200, 201), body),
    ] {
        let mut receiver = receiver(1);
        let refused = receiver.take(&sealed(&header, body, sets), |_| true).unwrap_err();
        assert!(matches!(refused, Refused::Malformed(_)), "{what}: {refused}");
        assert_eq!(receiver.kept_bytes(), 0, "{what}");
    }
}

/// Fragments of many messages, of which the rest never comes, keep no more than so many messages take.
#[test]
fn messages_of_which_the_rest_is_lost_make_room_for_others() {
    let (author, mut receiver) = (author(0), receiver(1));
    for message in 0..1_000 {
        let mut all = datagrams(&author, message * 100, &set(&[]), &set(&[1]), &[7; 60_000]);
        all.pop();
        assert_eq!(taken(&mut receiver, &all), (vec![], vec![]));
        assert!(receiver.kept_bytes() <= 64 * MESSAGE_BYTES_MAX);
    }
    let whole = datagrams(&author, 1_000_000, &set(&[]), &set(&[1]), &[9; 60_000]);
    assert!(taken(&mut receiver, &whole).0 == [(NodeId(0), Role::Told, vec![9; 60_000])]);
}

#[test]
fn a_job_without_a_key_takes_its_own_datagrams_and_no_others() {
    let plain = |me: u16, prog: u16| Author::new((NodeId(me), prog, JOB), Sealer::default(), 1472);
    let receiver = || Receiver::new((NodeId(1), PROG, JOB), 4, Sealer::default());
    let one = |author: &Author| datagrams(author, 0, &set(&[1]), &set(&[]), b"x").remove(0);
    assert_eq!(take(receiver(), &one(&plain(0, PROG + 1))), Err(Refused::OtherJob));
    assert!(take(receiver(), &one(&plain(0, PROG))).unwrap());
    for len in 0..HEAD_BYTES {
        assert!(take(receiver(), &one(&plain(2, PROG))[..len]).is_err(), "{len} bytes");
    }
}
