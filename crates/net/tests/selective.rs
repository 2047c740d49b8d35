//! Datagrams to sets of nodes on the loopback: who gets them, who is woken, what is refused.

mod job;

use comem_net::network::NetworkOptions;
use comem_net::select::{Reach, choose};
use comem_net::selective::{Parts, Selective, filters_work};
use comem_net::{Clock, Datagrams, Endpoint, Network, PortChoice, Received, Wait};
use comem_protocol::auth::{JobKey, Sealer};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use comem_protocol::selective::{Author, MESSAGE_BYTES_MAX, Refused, Role, Way, head};
use job::{JobNode, PATIENCE, PROG, Plan, own_job, sealer, set};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

fn on_loopback(plan: &Plan) -> Vec<JobNode> {
    let network = |node: usize| {
        let options = NetworkOptions {
            faults: plan.faults.map(|faults| faults.parse().unwrap()),
            fault_stream: node as u64,
            ..NetworkOptions::default()
        };
        Network::open(&options, Clock::system()).unwrap()
    };
    job::open(plan, (0..plan.nodes).map(network).collect())
}

fn told(node: &JobNode) -> Vec<(NodeId, Vec<u8>)> {
    let mut all = Vec::new();
    node.selective.drain_told(&mut |from, payload| all.push((from, payload.to_vec())), &mut |_, _| ());
    all
}

/// Looks until there are so many, or for as long as one is patient.
fn told_in_time(node: &JobNode, count: usize) -> Vec<(NodeId, Vec<u8>)> {
    let start = std::time::Instant::now();
    let mut all = told(node);
    while all.len() < count && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
        all.extend(told(node));
    }
    all
}

#[test]
fn one_datagram_reaches_those_that_it_names_each_in_its_socket() {
    for (group, datagrams) in [(true, 1), (false, 3)] {
        let nodes = on_loopback(&Plan { nodes: 5, group, ..Plan::new(1) });
        assert_eq!(nodes[0].selective.way(), if group { Way::Ip } else { Way::FanOut });
        assert_eq!(nodes[0].send(&[0, 1, 2], &[0, 2, 3], b"hello"), datagrams, "none to the sender itself");
        assert_eq!(nodes[0].send(&[4], &[], b"last"), 1);
        let hello = (NodeId(0), b"hello".to_vec());
        for node in [1, 2] {
            assert_eq!(nodes[node].asked(1), [(hello.0, Role::Asked, hello.1.clone())], "node {node}");
        }
        assert_eq!(told_in_time(&nodes[3], 1), [hello]);
        assert_eq!(nodes[4].asked(1)[0].2, b"last", "it was not named before");
        for node in &nodes[..4] {
            assert!(node.is_silent() && told(node).is_empty());
        }
        let counts = nodes[0].selective.counts();
        assert_eq!((counts.multicasts, counts.datagrams_sent, counts.copies_addressed), (2, datagrams as u64 + 1, 4));
        let received: Vec<_> = nodes.iter().map(|n| n.selective.counts()).collect();
        assert_eq!(received.iter().map(|c| c.copies_received).collect::<Vec<_>>(), [0, 1, 1, 1, 1]);
        assert_eq!(received.iter().map(|c| c.told_received).sum::<u64>(), 1);
    }
}

/// How often the kernel has put a thread of this process to sleep; a wake-up is followed by one.
fn sleeps(thread: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_string();
    if field("State:").starts_with('S') { field("voluntary_ctxt_switches:").parse().unwrap() } else { u64::MAX }
}

fn asleep(thread: i32) -> u64 {
    let (start, mut before) = (std::time::Instant::now(), u64::MAX);
    loop {
        assert!(start.elapsed() < PATIENCE, "the thread never sleeps");
        std::thread::sleep(Duration::from_millis(5));
        let now = sleeps(thread);
        if now == before && now != u64::MAX {
            return now;
        }
        before = now;
    }
}

/// A thread waits in node 2's service socket: only what it is asked for wakes it, whatever else goes to the group.
#[test]
fn only_asks_wake_the_service_socket() {
    const MANY: usize = 100;
    let nodes = on_loopback(&Plan { nodes: 4, ..Plan::new(2) });
    let stranger = Endpoint::bind(nodes[0].network.interface().address, PortChoice::Any).unwrap();
    stranger.reach_groups(nodes[0].network.interface()).unwrap();
    let group = nodes[0].group.unwrap().address();
    let other_job = Author::new((NodeId(0), PROG + 1, 99), sealer(98), 1472);
    std::thread::scope(|scope| {
        let (number, thread) = channel();
        let waits = scope.spawn({
            let node = &nodes[2];
            move || {
                // SAFETY: the call only returns a number.
                number.send(unsafe { libc::gettid() }).unwrap();
                node.asked(1)
            }
        });
        let thread = thread.recv().unwrap();
        let before = asleep(thread);
        for round in 0..MANY {
            nodes[0].send(&[], &[2], b"told");
            nodes[0].send(&[1], &[2, 3], b"asked others");
            nodes[0].send(&[1, 3], &[], b"others alone");
            stranger.send_to(&vec![round as u8; round * 14], 1400.max(round * 14), group).unwrap();
            let mut foreign = Vec::new();
            let named = head::windows(&set(&[2]), &set(&[2])).next().unwrap();
            other_job.emit(round as u64, named, b"of another job", &mut foreign).unwrap();
            stranger.send_to(&foreign, foreign.len(), group).unwrap();
        }
        assert_eq!(told_in_time(&nodes[2], 2 * MANY).len(), 2 * MANY);
        assert_eq!(asleep(thread), before, "the service socket has woken somebody");
        nodes[0].send(&[2], &[], b"now");
        assert_eq!(waits.join().unwrap(), [(NodeId(0), Role::Asked, b"now".to_vec())]);
    });
    assert_eq!(nodes[2].selective.counts().refused, 0, "nothing foreign came as far as to be refused");
    let counts = nodes[2].selective.counts();
    assert_eq!((counts.copies_received, counts.told_received), (2 * MANY as u64 + 1, 2 * MANY as u64));
}

/// The kernel takes a batch apart before it looks at the sets, so that each datagram is judged by its own head.
#[test]
fn datagrams_that_were_sent_together_are_judged_one_by_one() {
    let nodes = on_loopback(&Plan { nodes: 4, ..Plan::new(3) });
    let author = Author::new((NodeId(0), PROG, own_job(3)), sealer(own_job(3)), 1472);
    let (mut batch, mut segment) = (Vec::new(), 0);
    for number in 0..30u16 {
        // One in three asks node 1; the others tell nodes 2 and 3.
        let to = set(&[1 + number % 3]);
        let (asked, told) = if number % 3 == 0 { (to, NodeSet::new()) } else { (NodeSet::new(), to) };
        let named = head::windows(&asked, &told).next().unwrap();
        segment = author.emit(number.into(), named, &number.to_be_bytes(), &mut batch).unwrap();
    }
    nodes[0].service.send_to(&batch, segment, nodes[0].group.unwrap().address()).unwrap();
    let numbers = |all: Vec<Vec<u8>>| all.iter().map(|p| u16::from_be_bytes([p[0], p[1]])).collect::<Vec<_>>();
    let expected = |rest: u16| (0..30).filter(|number| number % 3 == rest).collect::<Vec<_>>();
    assert_eq!(numbers(nodes[1].asked(10).into_iter().map(|(_, _, payload)| payload).collect()), expected(0));
    for (node, rest) in [(2, 1), (3, 2)] {
        let came = told_in_time(&nodes[node], 10);
        assert_eq!(numbers(came.into_iter().map(|(_, payload)| payload).collect()), expected(rest));
    }
    assert!(nodes[1..].iter().all(|node| node.is_silent() && told(node).is_empty()));
}

#[test]
fn long_messages_come_whole_or_not_at_all() {
    for group in [true, false] {
        let nodes = on_loopback(&Plan { nodes: 3, group, datagram_bytes: 1472, ..Plan::new(4) });
        let long: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|at| ((at * 31) >> 4) as u8).collect();
        let parts = MESSAGE_BYTES_MAX.div_ceil(nodes[0].selective.payload_bytes_of_one());
        assert_eq!(nodes[0].send(&[1], &[2], &long), if group { parts } else { 2 * parts });
        assert!(nodes[1].asked(1) == [(NodeId(0), Role::Asked, long.clone())]);
        assert!(told_in_time(&nodes[2], 1) == [(NodeId(0), long.clone())]);
        let longer = vec![0; MESSAGE_BYTES_MAX + 1];
        let (mut buffer, to) = (Vec::new(), (&set(&[1]), &set(&[])));
        let refused = nodes[0].selective.send(&*nodes[0].service, &mut buffer, to, &longer, &mut |_, _| ());
        assert_eq!(refused.unwrap_err().max, nodes[0].selective.payload_bytes_max());
    }
}

/// Whoever hears the group can send again what it has heard, and may hold another key.
#[test]
fn forged_replayed_and_senseless_datagrams_count_for_nothing() {
    let nodes = on_loopback(&Plan { nodes: 3, ..Plan::new(5) });
    let (job, group) = (own_job(5), nodes[0].group.unwrap().address());
    let put = |bytes: &[u8]| nodes[0].service.send_to(bytes, bytes.len().max(1), group).unwrap();
    let by = |me: u16, key: &Sealer| Author::new((NodeId(me), PROG, job), key.clone(), 1472);
    let datagram = |author: &Author, number: u64, asked: &[u16], told: &[u16]| {
        let mut bytes = Vec::new();
        let named = head::windows(&set(asked), &set(told)).next().unwrap();
        author.emit(number, named, b"hello", &mut bytes).unwrap();
        bytes
    };
    let honest = by(0, &sealer(job));
    let mut expected = Vec::new();
    for (socket, name) in [(0, "asked"), (1, "told")] {
        let to = |author: &Author, number: u64| match socket {
            0 => datagram(author, number, &[1], &[]),
            _ => datagram(author, number, &[], &[1]),
        };
        let good = to(&honest, 1_000);
        put(&good);
        let mut damaged = good.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let cases: Vec<(Vec<u8>, Refused)> = vec![
            (good.clone(), Refused::Seen),
            (damaged, Refused::Key),
            (good[..good.len() - 1].to_vec(), Refused::Key),
            (to(&by(0, &Sealer::new(Some(JobKey::new([9; 32]))).of_job(job)), 2_000), Refused::Key),
            (to(&by(0, &sealer(job + 1)), 2_001), Refused::Key),
            (to(&by(0, &Sealer::default()), 2_002), Refused::Key),
            (to(&by(1, &sealer(job)), 2_003), Refused::Sender(NodeId(1))),
            (to(&by(3, &sealer(job)), 2_004), Refused::Sender(NodeId(3))),
            (to(&by(2, &sealer(job)), 2_005), Refused::Address),
            (
                if socket == 0 {
                    datagram(&honest, 2_006, &[1, 9], &[])
                } else {
                    datagram(&honest, 2_006, &[], &[1, 9])
                },
                Refused::Stranger(9),
            ),
        ];
        for (bytes, _) in &cases {
            put(bytes);
        }
        put(&to(&honest, 3_000));
        let (messages, refused) =
            if socket == 0 { nodes[1].asked_and_refused(2) } else { nodes[1].told_and_refused(2) };
        assert_eq!(messages, 2, "{name}: the first and the last");
        assert_eq!(refused, cases.iter().map(|(_, why)| *why).collect::<Vec<_>>(), "{name}");
        expected.extend(refused);
    }
    assert_eq!(nodes[1].selective.counts().refused, expected.len() as u64);
    assert!(nodes[2].is_silent() && told(&nodes[2]).is_empty());
    // A recorded datagram of one job's start cannot be sent to sets, nor the other way round: other tags.
    let again = datagram(&honest, 4_000, &[1], &[]);
    let me = comem_protocol::auth::Receiver::Node(NodeId(1));
    assert!(sealer(job).open(&again, me).is_none());
}

/// What nobody fetches finds no room in the end. That is counted, wakes nobody, and harms nothing later.
#[test]
fn what_a_full_socket_drops_is_counted() {
    const SENT: usize = 300;
    let nodes = on_loopback(&Plan { nodes: 3, ..Plan::new(6) });
    for _ in 0..SENT {
        nodes[0].send(&[], &[1], &[7; 60_000]);
    }
    nodes[0].send(&[1], &[], b"asked");
    assert_eq!(nodes[1].asked(1)[0].2, b"asked", "the other socket has room");
    let came = told(&nodes[1]).len();
    assert!(came > 0 && came < SENT, "{came} of {SENT}");
    let counts = nodes[1].selective.counts();
    // The filter dropped what node 1 was asked: that came to its other socket.
    assert_eq!((counts.told_full, counts.told_dropped), (1, (SENT - came + 1) as u64));
    assert_eq!((counts.told_received, nodes[2].selective.counts().told_dropped), (came as u64, 0));
    nodes[0].send(&[], &[1, 2], b"small");
    assert_eq!(told_in_time(&nodes[1], 1).len() + told_in_time(&nodes[2], 1).len(), 2);
    assert_eq!(nodes[1].selective.counts().told_full, 1);
}

#[test]
fn each_receiver_suffers_its_own_faults() {
    const SENT: u16 = 400;
    let nodes = on_loopback(&Plan { nodes: 4, faults: Some("drop=50%,seed=3"), ..Plan::new(7) });
    for number in 0..SENT {
        nodes[0].send(&[], &[1, 2, 3], &number.to_be_bytes());
    }
    // How many come is not known: until no more do.
    let numbers = |node: &JobNode| {
        let (mut all, mut quiet) = (Vec::new(), 0);
        while quiet < 50 {
            std::thread::sleep(Duration::from_millis(2));
            let before = all.len();
            all.extend(told(node).into_iter().map(|(_, payload)| payload));
            quiet = if all.len() == before { quiet + 1 } else { 0 };
        }
        all
    };
    let heard: Vec<_> = nodes[1..].iter().map(numbers).collect();
    for one in &heard {
        assert!((100..300).contains(&one.len()), "{} of {SENT}", one.len());
    }
    assert!(heard[0] != heard[1] && heard[1] != heard[2], "one receiver loses what another one gets");
    assert_eq!(nodes[0].selective.counts().datagrams_sent, SENT.into(), "the sender loses none");
    let copies: u64 = nodes.iter().map(|node| node.selective.counts().copies_received).sum();
    assert_eq!(copies, heard.iter().map(|one| one.len() as u64).sum());
}

#[test]
fn duplicates_count_once_and_what_is_late_comes_by_itself() {
    let nodes = on_loopback(&Plan { nodes: 3, faults: Some("dup=100%,delay=30ms,reorder=20%"), ..Plan::new(8) });
    for number in 0..50u16 {
        nodes[0].send(&[1], &[2], &number.to_be_bytes());
    }
    let (messages, refused) = nodes[1].asked_and_refused(50);
    assert_eq!(messages, 50, "a thread that sleeps in the socket gets what was held back");
    assert!(refused.iter().all(|why| *why == Refused::Seen));
    assert_eq!(told_in_time(&nodes[2], 50).len(), 50);
    let start = std::time::Instant::now();
    while nodes[2].selective.counts().refused < 50 {
        assert!(start.elapsed() < PATIENCE);
        assert!(told(&nodes[2]).is_empty());
    }
}

#[test]
fn eight_and_sixteen_nodes_of_a_host_hear_one_another() {
    for count in [8u16, 16] {
        let nodes = on_loopback(&Plan { nodes: count.into(), ..Plan::new(u64::from(count) << 8) });
        let all: Vec<u16> = (0..count).collect();
        // Each asks all; and tells those with even numbers, of which none is asked that time.
        for node in &nodes {
            assert_eq!(node.send(&all, &[], b"ask"), 1);
            let (even, odd): (Vec<u16>, Vec<u16>) = all.iter().partition(|n| **n % 2 == 0);
            assert_eq!(node.send(&odd, &even, b"both"), 1);
        }
        for (me, node) in nodes.iter().enumerate() {
            let is_even = me % 2 == 0;
            let others = usize::from(count) - 1;
            let asks = node.asked(if is_even { others } else { 2 * others });
            assert_eq!(asks.iter().filter(|(_, _, payload)| payload == b"ask").count(), others);
            assert_eq!(told_in_time(node, if is_even { others } else { 0 }).len(), if is_even { others } else { 0 });
            assert!(node.is_silent());
        }
        let total = |of: fn(&JobNode) -> u64| nodes.iter().map(of).sum::<u64>();
        assert_eq!(total(|node| node.selective.counts().datagrams_sent), 2 * u64::from(count));
        let copies = 2 * u64::from(count) * (u64::from(count) - 1);
        assert_eq!(total(|node| node.selective.counts().copies_addressed), copies);
        assert_eq!(total(|node| node.selective.counts().copies_received), copies);
    }
}

#[test]
fn sets_beyond_64_neighbours_take_a_datagram_for_each_64() {
    let loopback = choose(None, Reach::ThisHost).unwrap();
    assert!(loopback.loopback);
    let nodes = on_loopback(&Plan { nodes: 4, numbers: Some([0, 5, 70, 199]), ..Plan::new(9) });
    assert_eq!(nodes[0].send(&[5], &[70, 199], b"two windows of told ones"), 2);
    assert_eq!(nodes[0].send(&[5, 68], &[132, 195], b"64 neighbours"), 1);
    assert_eq!(nodes[1].asked(2).len(), 2);
    for node in &nodes[2..] {
        assert_eq!(told_in_time(node, 1).len(), 1);
    }
    let all: Vec<u16> = (0..200).collect();
    assert_eq!(nodes[3].send(&all, &[], b"all of 200"), 4);
    for node in &nodes[..3] {
        assert_eq!(node.asked(1), [(NodeId(199), Role::Asked, b"all of 200".to_vec())]);
        assert!(node.is_silent());
    }
}

#[test]
fn a_sender_whose_asks_are_mostly_repaired_goes_on_without_multicast() {
    let nodes = on_loopback(&Plan { nodes: 4, ..Plan::new(10) });
    let node = &nodes[0];
    assert!((0..64).all(|ask| !node.selective.note_ask(ask % 2 == 0)), "half of them");
    assert_eq!((node.selective.way(), node.send(&[1], &[2, 3], b"one")), (Way::Ip, 1));
    assert!(!node.selective.note_ask(true) && node.selective.note_ask(true), "33 of the last 64");
    assert!(!node.selective.note_ask(true), "it is told once");
    assert_eq!((node.selective.way(), node.send(&[1], &[2, 3], b"each")), (Way::FanOut, 3));
    assert_eq!(nodes[1].asked(2).len(), 2);
    for other in &nodes[2..] {
        assert_eq!(told_in_time(other, 2).len(), 2, "also from the other socket");
        assert_eq!(other.selective.way(), Way::Ip, "others decide for themselves");
    }
    let alone = on_loopback(&Plan { nodes: 2, group: false, ..Plan::new(11) });
    assert!((0..200).all(|_| !alone[0].selective.note_ask(true)), "there is nothing to give up");
}

/// Without multicast asks go through any endpoint of the node, and the receiver knows them all.
#[test]
fn any_endpoint_of_a_node_may_send() {
    for group in [true, false] {
        let nodes = on_loopback(&Plan { nodes: 2, group, ..Plan::new(12) });
        let (mut buffer, to) = (Vec::new(), (&set(&[1]), &set(&[])));
        let mut refused = Vec::new();
        let mut failed = |to, error| refused.push((to, error));
        nodes[0].selective.send(&*nodes[0].thread, &mut buffer, to, b"by a thread", &mut failed).unwrap();
        assert_eq!(nodes[1].asked(1)[0].2, b"by a thread");
        assert!(refused.is_empty());
    }
}

/// Lets this thread's kernel refuse socket filters, as a container's rules may.
fn forbid_filters() {
    const ALLOW: u32 = 0x7fff_0000;
    const REFUSE: u32 = 0x0005_0000;
    let (load, equal, end) = (0x20, 0x15, 0x06);
    let step = |code: u16, k: u32, jt: u8, jf: u8| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(load, 0, 0, 0),
        step(equal, libc::SYS_setsockopt as u32, 0, 3),
        // The lower half of the third argument.
        step(load, 16 + 2 * 8, 0, 0),
        step(equal, libc::SO_ATTACH_FILTER as u32, 0, 1),
        step(end, REFUSE | libc::EPERM as u32, 0, 0),
        step(end, ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both calls concern this thread alone; the program lives until the second has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn a_kernel_that_forbids_socket_filters_leaves_the_fan_out() {
    filters_work().unwrap();
    std::thread::spawn(|| {
        forbid_filters();
        assert_eq!(filters_work().unwrap_err().raw_os_error(), Some(libc::EPERM));
        let network = Network::open(&NetworkOptions::default(), Clock::system()).unwrap();
        let open = |group| {
            let (service, told) = (network.bind().unwrap(), network.bind().unwrap());
            let parts = Parts {
                me: NodeId(0),
                prog: PROG,
                job: own_job(13),
                sealer: sealer(own_job(13)),
                datagram_bytes: 1472,
                addresses: vec![vec![service.local_addr(), told.local_addr()]; 2],
                told,
                group,
                asks: None,
            };
            Selective::open(&network, &*service, parts)
        };
        assert!(open(Some(network.group_of_job(own_job(13)))).is_err(), "no job listens without its filter");
        assert_eq!(open(None).unwrap().way(), Way::FanOut);
    })
    .join()
    .unwrap();
}

/// A thread waits for what its node is told, and for what comes to a socket of its own, at a time.
#[test]
fn who_waits_beside_is_woken_by_a_tell_and_by_its_own_socket() {
    for group in [true, false] {
        let nodes = on_loopback(&Plan { nodes: 3, group, ..Plan::new(15) });
        let own = nodes[1].network.bind().unwrap();
        let waits = |timeout| {
            let start = std::time::Instant::now();
            nodes[1].selective.wait_beside(&*own, timeout).unwrap();
            start.elapsed()
        };
        let moment = Duration::from_millis(10);
        assert!(waits(moment) >= moment, "nothing comes");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waits(PATIENCE));
            nodes[0].send(&[2], &[1], b"told");
            assert!(waiting.join().unwrap() < PATIENCE);
        });
        assert!(waits(PATIENCE) < PATIENCE, "it lies there until somebody takes it");
        assert_eq!(told_in_time(&nodes[1], 1), [(NodeId(0), b"told".to_vec())]);
        nodes[0].service.send_to(b"own", 3, own.local_addr()).unwrap();
        assert!(waits(PATIENCE) < PATIENCE);
    }
}

#[test]
fn over_shared_memory_each_node_is_told_by_itself_and_nobody_is_woken() {
    let hosts: Vec<Network> = (0..3)
        .map(|_| {
            let backbone = comem_net::Backbone::Shm;
            Network::open_over(backbone, &NetworkOptions::default(), Clock::system()).unwrap()
        })
        .collect();
    let nodes = job::open(&Plan { nodes: 3, group: false, datagram_bytes: 8_192, ..Plan::new(14) }, hosts);
    for node in &nodes {
        let own = node.addresses();
        let others: Vec<_> = nodes.iter().flat_map(JobNode::addresses).filter(|other| !own.contains(other)).collect();
        assert_eq!(node.network.connect(&others, PATIENCE), others.len());
    }
    assert_eq!(nodes[0].send(&[1], &[2], b"hello"), 2);
    assert_eq!(nodes[1].asked(1)[0].2, b"hello");
    assert_eq!(told_in_time(&nodes[2], 1), [(NodeId(0), b"hello".to_vec())]);
    let mut buffer = vec![0; comem_net::RECEIVE_BUFFER_BYTES];
    let service: &Arc<dyn Datagrams> = &nodes[2].service;
    let waited = service.recv(&mut buffer, Some(Duration::from_millis(1)), Wait::Block).unwrap();
    assert_eq!(waited, Received::Timeout);
}
