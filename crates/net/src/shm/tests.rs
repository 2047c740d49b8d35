use super::*;
use crate::{Group, PortChoice, RECEIVE_BUFFER_BYTES, counts_as_loss, datagrams, sys as calls};
use comem_protocol::time::Span;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const SPIN: Wait = Wait::Spin(Span::from_ms(1));

/// Two endpoints of two hosts, as of two processes, with lanes in both directions.
fn pair() -> (ShmEndpoint, ShmEndpoint) {
    let (a, b) = (endpoint(), endpoint());
    join(&a, &b);
    (a, b)
}

fn endpoint() -> ShmEndpoint {
    ShmHost::open().unwrap().bind(HOST, PortChoice::Any).unwrap()
}

fn join(a: &ShmEndpoint, b: &ShmEndpoint) {
    for (from, to) in [(a, b), (b, a)] {
        assert_eq!(from.host.connect(&[to.local_addr()], Duration::from_secs(20)), 1);
    }
}

fn buffer() -> Vec<u8> {
    vec![0; RECEIVE_BUFFER_BYTES]
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 / 7) as u8).collect()
}

/// Receives until `count` datagrams have come.
fn collect(endpoint: &ShmEndpoint, count: usize, wait: Wait) -> Vec<Vec<u8>> {
    let mut buffer = buffer();
    let mut all = Vec::new();
    while all.len() < count {
        match endpoint.recv(&mut buffer, PATIENCE, wait).unwrap() {
            Received::Datagrams { len, segment, .. } => {
                all.extend(datagrams(&buffer[..len], segment).map(<[u8]>::to_vec));
            }
            other => panic!("{other:?} after {} of {count} datagrams", all.len()),
        }
    }
    all
}

#[test]
fn with_an_awake_receiver_no_system_call_is_made() {
    let (a, b) = pair();
    let mut buffer = buffer();
    for wait in [Wait::Block, SPIN] {
        assert_eq!(calls::calls_during(|| a.send_to(b"small", 1_472, b.local_addr()).unwrap()), 0);
        let mut received = Received::Timeout;
        assert_eq!(calls::calls_during(|| received = b.recv(&mut buffer, PATIENCE, wait).unwrap()), 0);
        assert_eq!(received, Received::Datagrams { from: a.local_addr(), len: 5, segment: 5 });
        assert_eq!(&buffer[..5], b"small");
    }
    assert_eq!(calls::calls_during(|| assert_eq!(b.try_recv(&mut buffer).unwrap(), Received::Timeout)), 0);
}

#[test]
fn the_first_datagrams_arrive_before_there_is_a_lane() {
    let (a, b) = (endpoint(), endpoint());
    for wait in [Wait::Block, SPIN] {
        a.send_to(b"first", 5, b.local_addr()).unwrap();
        assert_eq!(collect(&b, 1, wait), [b"first"]);
        b.send_to(b"answer", 6, a.local_addr()).unwrap();
        assert_eq!(collect(&a, 1, wait), [b"answer"]);
    }
    join(&a, &b);
}

#[test]
fn a_batch_arrives_as_its_datagrams() {
    let (a, b) = pair();
    for (bytes, segment) in [(20_500, 1_000), (64 * 100 + 1, 100), (200_000, 1_472), (65_507, 65_507), (3_000, 1_500)] {
        for wait in [Wait::Block, SPIN] {
            let sent = pattern(bytes);
            a.send_to(&sent, segment, b.local_addr()).unwrap();
            let expected: Vec<&[u8]> = sent.chunks(segment).collect();
            assert_eq!(collect(&b, expected.len(), wait), expected, "{bytes} bytes by {segment}");
        }
    }
    a.send_to(b"", 100, b.local_addr()).unwrap();
    let empty = Received::Datagrams { from: a.local_addr(), len: 0, segment: 1 };
    assert_eq!(b.recv(&mut buffer(), PATIENCE, Wait::Block).unwrap(), empty);
}

#[test]
fn what_cannot_be_a_datagram_is_refused() {
    let (a, b) = pair();
    let large = vec![0; 200_000];
    let number = |segment| a.send_to(&large, segment, b.local_addr()).unwrap_err().raw_os_error();
    assert_eq!((number(200_000), number(100_000)), (Some(libc::EMSGSIZE), Some(libc::EMSGSIZE)));
    let error = a.send_to(&large, 0, b.local_addr()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_full_lane_loses_datagrams_and_recovers() {
    let (a, b) = pair();
    let bytes = pattern(60_000);
    let error = (0..100).find_map(|_| a.send_to(&bytes, 60_000, b.local_addr()).err()).expect("a lane has an end");
    assert!(counts_as_loss(&error), "{error}");
    let mut buffer = buffer();
    let taken = std::iter::from_fn(|| match b.try_recv(&mut buffer).unwrap() {
        Received::Datagrams { len, .. } => Some(len),
        _ => None,
    });
    assert_eq!(taken.inspect(|len| assert_eq!(*len, 60_000)).count(), 69);
    a.send_to(b"again", 5, b.local_addr()).unwrap();
    assert_eq!(collect(&b, 1, Wait::Block), [b"again"]);
}

#[test]
fn waits_end_when_they_should() {
    let (_, b) = pair();
    let mut buffer = buffer();
    for wait in [Wait::Block, SPIN] {
        for ms in [0, 1, 30] {
            let start = Instant::now();
            assert_eq!(b.recv(&mut buffer, Some(Duration::from_millis(ms)), wait).unwrap(), Received::Timeout);
            assert!(start.elapsed() >= Duration::from_millis(ms), "{wait:?} ended early");
        }
    }
}

/// Many round trips in which each side sleeps again and again: a wake-up that gets lost ends the test by time-out.
#[test]
fn no_wake_up_gets_lost() {
    for wait in [Wait::Block, Wait::Spin(Span::from_us(3))] {
        let (a, b) = pair();
        let (to_a, to_b) = (a.local_addr(), b.local_addr());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..3_000 {
                    let got = collect(&b, 1, wait).remove(0);
                    b.send_to(&got, 64, to_a).unwrap();
                }
            });
            for round in 0..3_000u32 {
                a.send_to(&round.to_le_bytes(), 64, to_b).unwrap();
                assert_eq!(collect(&a, 1, wait), [round.to_le_bytes()]);
            }
        });
    }
}

#[test]
fn a_sleeper_costs_its_sender_one_system_call_and_the_next_sender_none() {
    let (a, b) = pair();
    let to_b = b.local_addr();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| collect(&b, 1, Wait::Block));
        while !b.inbox.somebody_sleeps() {
            std::thread::yield_now();
        }
        assert_eq!(calls::calls_during(|| a.send_to(b"wake", 64, to_b).unwrap()), 1);
        assert_eq!(calls::calls_during(|| a.send_to(b"more", 64, to_b).unwrap()), 0);
        assert_eq!(sleeper.join().unwrap(), [b"wake"]);
    });
    assert_eq!(collect(&b, 1, Wait::Block), [b"more"]);
}

#[test]
fn eight_producers_lose_nothing_that_was_taken_in() {
    const EACH: usize = 4_000;
    let b = endpoint();
    let to_b = b.local_addr();
    let sum = |bytes: &[u8]| bytes.iter().fold(7u32, |s, byte| s.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    // Four hosts with two endpoints each: some share a lane.
    let hosts: Vec<_> = (0..4).map(|_| ShmHost::open().unwrap()).collect();
    let producers: Vec<_> = (0..8).map(|p| hosts[p / 2].bind(HOST, PortChoice::Any).unwrap()).collect();
    hosts.iter().for_each(|host| assert_eq!(host.connect(&[to_b], Duration::from_secs(20)), 1));
    std::thread::scope(|scope| {
        for (p, producer) in producers.iter().enumerate() {
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut bytes = vec![p as u8; 12 + (n * 37 + p * 1_009) % 9_000];
                    bytes[4..8].copy_from_slice(&(n as u32).to_le_bytes());
                    bytes[8..].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * n) as u8);
                    let check = sum(&bytes[4..]);
                    bytes[..4].copy_from_slice(&check.to_le_bytes());
                    while let Err(error) = producer.send_to(&bytes, bytes.len(), to_b) {
                        assert!(counts_as_loss(&error), "{error}");
                    }
                }
            });
        }
        let mut buffer = buffer();
        let mut next = [0u32; 8];
        for _ in 0..8 * EACH {
            let Received::Datagrams { from, len, .. } = b.recv(&mut buffer, PATIENCE, Wait::Block).unwrap() else {
                panic!("nothing came after {next:?}")
            };
            let p = producers.iter().position(|p| p.local_addr() == from).unwrap();
            assert_eq!(buffer[..4], sum(&buffer[4..len]).to_le_bytes(), "a record of producer {p} was damaged");
            assert_eq!(buffer[4..8], next[p].to_le_bytes(), "records of producer {p} are in order");
            next[p] += 1;
        }
        assert_eq!(next, [EACH as u32; 8]);
    });
}

#[test]
fn several_threads_receive_and_nothing_stays_behind() {
    const COUNT: usize = 4_000;
    let (a, b) = pair();
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut buffer = buffer();
                while received.load(SeqCst) < COUNT {
                    match b.recv(&mut buffer, PATIENCE, Wait::Block).unwrap() {
                        Received::Datagrams { len: 4, .. } => _ = received.fetch_add(1, SeqCst),
                        Received::Datagrams { .. } | Received::Timeout => return,
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        for n in 0..COUNT {
            a.send_to(b"once", 4, b.local_addr()).unwrap();
            if n % 100 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        let start = Instant::now();
        while received.load(SeqCst) < COUNT && start.elapsed() < PATIENCE.unwrap() {
            std::thread::yield_now();
        }
        (0..3).for_each(|_| a.send_to(b"end", 3, b.local_addr()).unwrap());
    });
    assert_eq!(received.load(SeqCst), COUNT);
}

#[test]
fn strangers_and_groups_are_heard_by_a_sleeper() {
    let (a, b) = pair();
    let stranger = UdpSocket::bind((HOST, 0)).unwrap();
    let interface = crate::select::choose(None, crate::select::Reach::ThisHost).unwrap();
    let group = Group::of_job(0x5eed_0000 | u64::from(std::process::id()), &interface, PortChoice::Any);
    b.attend(group.listen(&interface).unwrap()).unwrap();
    a.reach_groups(&interface).unwrap();
    for wait in [Wait::Block, Wait::Spin(Span::from_ms(200))] {
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let b = &b;
            scope.spawn(move || {
                (0..3).for_each(|_| collect(b, 1, wait).into_iter().for_each(|m| tell.send(m).unwrap()))
            });
            // Each comes when the sleeper has had the one before, and mostly sleeps again.
            let heard = || {
                let one = told.recv().unwrap();
                std::thread::sleep(Duration::from_millis(30));
                one
            };
            std::thread::sleep(Duration::from_millis(30));
            stranger.send_to(b"stranger", b.local_addr()).unwrap();
            assert_eq!(heard(), b"stranger");
            a.send_to(b"group", 5, group.address()).unwrap();
            assert_eq!(heard(), b"group");
            a.send_to(b"lane", 4, b.local_addr()).unwrap();
            assert_eq!(heard(), b"lane");
        });
    }
}

#[test]
fn what_udp_has_in_store_is_taken_one_by_one() {
    let b = endpoint();
    let stranger = UdpSocket::bind((HOST, 0)).unwrap();
    let sent: Vec<[u8; 2]> = (0..50u16).map(u16::to_le_bytes).collect();
    sent.iter().for_each(|bytes| _ = stranger.send_to(bytes, b.local_addr()).unwrap());
    assert_eq!(collect(&b, 50, Wait::Block), sent);
}

#[test]
fn a_kick_ends_a_wait_and_is_used_up_by_it() {
    let (_, b) = pair();
    for wait in [Wait::Block, Wait::Spin(Span::from_ms(20_000))] {
        let kicked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                kicked.store(true, SeqCst);
                assert!(b.kick());
            });
            let start = Instant::now();
            assert_eq!(b.recv(&mut buffer(), PATIENCE, wait).unwrap(), Received::Timeout);
            assert!(kicked.load(SeqCst) && Some(start.elapsed()) < PATIENCE, "the kick ended the wait");
        });
        // Before the wait it counts as well, once.
        assert!(b.kick());
        assert_eq!(b.recv(&mut buffer(), None, wait).unwrap(), Received::Timeout);
        let start = Instant::now();
        let short = Duration::from_millis(20);
        assert_eq!(b.recv(&mut buffer(), Some(short), Wait::Block).unwrap(), Received::Timeout);
        assert!(start.elapsed() >= short);
    }
}

#[test]
fn an_endpoint_sends_to_itself() {
    let a = endpoint();
    assert_eq!(a.host.connect(&[a.local_addr()], Duration::from_secs(20)), 1);
    a.send_to(b"to myself", 64, a.local_addr()).unwrap();
    assert_eq!(collect(&a, 1, Wait::Block), [b"to myself"]);
}

#[test]
fn a_closed_endpoint_is_reported_and_its_port_is_free() {
    let (a, b) = pair();
    let to_b = b.local_addr();
    b.send_to(b"last words", 64, a.local_addr()).unwrap();
    drop(b);
    assert_eq!(collect(&a, 1, Wait::Block), [b"last words"]);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE.unwrap(), "the end was never reported");
        drop(a.send_to(b"anybody there?", 64, to_b));
        match a.recv(&mut buffer(), Some(Duration::from_millis(5)), Wait::Block).unwrap() {
            Received::Timeout => {}
            Received::Unreachable(address) => break assert_eq!(address, to_b),
            other => panic!("{other:?}"),
        }
    }
    let successor = ShmHost::open().unwrap().bind(HOST, PortChoice::Exact(to_b.port())).unwrap();
    assert_eq!(a.host.connect(&[to_b], Duration::from_secs(20)), 1);
    a.send_to(b"welcome", 64, to_b).unwrap();
    assert_eq!(collect(&successor, 1, Wait::Block), [b"welcome"]);
}

#[test]
fn endpoints_that_speak_udp_alone_are_reached_and_heard() {
    let (a, b) = (endpoint(), crate::Endpoint::bind(HOST, PortChoice::Any).unwrap());
    assert_eq!(a.host.connect(&[b.local_addr()], Duration::from_millis(50)), 0);
    a.send_to(&pattern(50_000), 1_000, b.local_addr()).unwrap();
    let mut buffer = buffer();
    let mut got: Vec<u8> = Vec::new();
    while got.len() < 50_000 {
        match b.recv(&mut buffer, PATIENCE, Wait::Block).unwrap() {
            Received::Datagrams { len, .. } => got.extend(&buffer[..len]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, pattern(50_000));
    b.send_to(b"heard", 5, a.local_addr()).unwrap();
    assert_eq!(collect(&a, 1, Wait::Block), [b"heard"]);
}

#[test]
fn when_all_lanes_are_taken_udp_serves() {
    let b = endpoint();
    let many: Vec<_> = (0..doorbell::LANES_MAX + 2).map(|_| endpoint()).collect();
    let connects = |(number, a): (usize, &ShmEndpoint)| {
        // The last ones wait in vain.
        let patience = if number < doorbell::LANES_MAX { Duration::from_secs(20) } else { Duration::from_millis(300) };
        a.host.connect(&[b.local_addr()], patience) == 1
    };
    let with_lane = many.iter().enumerate().filter(|one| connects(*one)).count();
    assert_eq!(with_lane, doorbell::LANES_MAX);
    many.iter().for_each(|a| a.send_to(b"here", 4, b.local_addr()).unwrap());
    assert_eq!(collect(&b, many.len(), Wait::Block).len(), many.len());
}

#[test]
fn a_foreign_guest_at_the_door_does_no_harm() {
    let (a, b) = pair();
    // Says something, which nobody expects; and one that leaves at once.
    let name = format!("comem-shm-{}-{}", HOST, b.local_addr().port());
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    assert!(std::os::unix::net::UnixStream::connect_addr(&address).is_err(), "another kind of socket");
    for _ in 0..100 {
        let guest = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::SEQPACKET, None).unwrap();
        guest.connect(&socket2::SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
        guest.send(b"nonsense").unwrap();
    }
    a.send_to(b"still here", 64, b.local_addr()).unwrap();
    assert_eq!(collect(&b, 1, Wait::Block), [b"still here"]);
}

/// An endpoint in whose `recv` a thread sleeps, and that thread, which gives what it received.
fn asleep(endpoint: ShmEndpoint) -> (Arc<ShmEndpoint>, std::thread::JoinHandle<Vec<Vec<u8>>>) {
    let endpoint = Arc::new(endpoint);
    let theirs = endpoint.clone();
    let sleeper = std::thread::spawn(move || collect(&theirs, 1, Wait::Block));
    while !endpoint.inbox.somebody_sleeps() {
        std::thread::yield_now();
    }
    (endpoint, sleeper)
}

#[test]
fn while_somebody_watches_nobody_is_roused() {
    let (a, b) = pair();
    let (b, sleeper) = asleep(b);
    assert!(b.watch(true) && !b.glance());
    assert_eq!(calls::calls_during(|| a.send_to(b"watched", 64, b.local_addr()).unwrap()), 0);
    assert!(b.glance());
    let mut buffer = buffer();
    assert!(matches!(b.try_recv(&mut buffer).unwrap(), Received::Datagrams { len: 7, .. }));
    b.watch(false);
    assert_eq!(calls::calls_during(|| a.send_to(b"slept", 64, b.local_addr()).unwrap()), 1);
    assert_eq!(sleeper.join().unwrap(), [b"slept".to_vec()]);
}

#[test]
fn a_patient_sender_rouses_only_who_does_not_look() {
    let (a, b) = pair();
    let (b, sleeper) = asleep(b);
    let mut buffer = buffer();
    let send = || a.send_patiently(b"patient", 64, b.local_addr()).unwrap();
    assert_eq!(calls::calls_during(send), 0);
    assert!(b.glance());
    assert_eq!(calls::calls_during(|| a.settle(true)), 0, "it has looked since");
    assert!(matches!(b.try_recv(&mut buffer).unwrap(), Received::Datagrams { len: 7, .. }));
    assert_eq!(calls::calls_during(|| a.settle(false)), 0, "it has taken it");
    assert_eq!(calls::calls_during(send), 0);
    assert_eq!(calls::calls_during(|| a.settle(true)), 1, "it has not looked");
    assert_eq!(sleeper.join().unwrap(), [b"patient".to_vec()]);
}

#[test]
fn what_is_sent_quietly_rouses_nobody_and_is_there_at_the_next_look() {
    let (a, b) = pair();
    let (b, sleeper) = asleep(b);
    assert_eq!(calls::calls_during(|| a.send_quietly(b"quiet", 64, b.local_addr()).unwrap()), 0);
    a.settle(false);
    assert!(b.glance() && b.inbox.somebody_sleeps());
    let mut buffer = buffer();
    assert!(matches!(b.try_recv(&mut buffer).unwrap(), Received::Datagrams { len: 5, .. }));
    a.send_quietly(b"quiet", 64, b.local_addr()).unwrap();
    assert_eq!(calls::calls_during(|| a.send_to(b"loud", 64, b.local_addr()).unwrap()), 1, "it still sleeps");
    assert_eq!(sleeper.join().unwrap(), [b"quiet".to_vec()]);
    assert_eq!(collect(&b, 1, Wait::Block), [b"loud".to_vec()]);
}

#[test]
fn who_watches_and_leaves_something_rouses_nobody() {
    let (a, b) = pair();
    let (b, sleeper) = asleep(b);
    b.watch(true);
    (0..3).for_each(|_| a.send_to(b"something", 64, b.local_addr()).unwrap());
    let mut buffer = buffer();
    let mut takes_one = || assert!(matches!(b.try_recv(&mut buffer).unwrap(), Received::Datagrams { .. }));
    assert_eq!(calls::calls_during(&mut takes_one), 0);
    b.watch(false);
    assert_eq!(calls::calls_during(&mut takes_one), 1, "one still lies there");
    assert_eq!(sleeper.join().unwrap(), [b"something".to_vec()]);
}

#[test]
fn a_patient_sender_that_waits_for_the_answer_rouses_a_sleeper_by_itself() {
    for wait in [Wait::Block, SPIN] {
        let (a, b) = pair();
        let (b, sleeper) = asleep(b);
        a.send_patiently(b"question", 64, b.local_addr()).unwrap();
        let answer = std::thread::spawn({
            let (b, to) = (b.clone(), a.local_addr());
            move || {
                assert_eq!(sleeper.join().unwrap(), [b"question".to_vec()]);
                b.send_to(b"answer", 64, to).unwrap();
            }
        });
        assert_eq!(collect(&a, 1, wait), [b"answer".to_vec()]);
        answer.join().unwrap();
    }
}
