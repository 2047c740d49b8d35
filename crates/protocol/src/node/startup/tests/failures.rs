//! Starts that fail: every reason reaches the one who can do something about it.

use super::*;

#[test]
fn too_few_joiners_are_an_error_that_counts_them_on_every_node() {
    for loss in [0, 20] {
        let mut network = Network::new(9, loss);
        network.start_all(0..3, |i| config(i, 5, Mode::Discover));
        network.run_to_ends();
        for process in &network.processes {
            assert_eq!(process.error, Some(StartError::TooFew { came: 3, wanted: 5 }));
        }
        assert!(network.error_of(1).contains("3 of 5 nodes came"));
    }
}

#[test]
fn a_launched_node_that_does_not_come_is_named_on_every_node() {
    let mut network = Network::new(10, 20);
    for index in 0..4 {
        network.start(launched(index, 4));
    }
    network.processes[2].alive = false;
    let now = network.now;
    network.processes[2].startup.abandon(now, "test");
    network.run_to_ends();
    for index in [0, 1, 3] {
        let error = network.error_of(index);
        assert!(error.contains("phase JOIN") && error.contains("node 2"), "{error}");
        assert!(!error.contains("node 3") && !error.contains("node 1"), "{error}");
    }
}

#[test]
fn a_process_on_its_way_knows_whom_it_waits_for_and_until_when() {
    let mut network = Network::new(10, 0);
    for index in [0, 1, 3] {
        network.start(launched(index, 4));
    }
    network.run_until(|network| network.now >= Time::default() + Span::from_ms(2_000));
    let waits: Vec<Waits> = network.processes.iter().map(|p| p.startup.waits_for().expect("it waits")).collect();
    let seen: Vec<_> = waits.iter().map(|w| (w.me, w.zero.is_some(), w.phase, w.missing())).collect();
    let (join, node) = (Phase::Join, |n| Some(NodeId(n)));
    let expected = [(0, false, "node 2"), (1, true, "node 0"), (3, true, "node 0")];
    assert_eq!(seen, expected.map(|(me, asked, whom)| (node(me), asked, join, whom.to_string())));
    assert!(waits.iter().all(|w| w.until.is_some_and(|at| at > network.now)), "{waits:?}");
    network.start(launched(2, 4));
    network.run_to_ends();
    assert!(network.processes.iter().all(|p| p.startup.waits_for().is_none()));
}

#[test]
fn a_firewall_between_two_nodes_is_named() {
    let mut network = Network::new(11, 0);
    network.parted.insert((2, 3));
    network.start_all(0..4, |i| launched(i, 4));
    network.run_to_ends();
    let error = network.error_of(0);
    for part in
        ["phase HELLO", "node 2 (host host2, pid 4002) which does not hear node 3", "which does not hear node 2"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("node 1"), "{error}");
}

#[test]
fn a_launcher_that_names_no_node_zero_is_an_error() {
    let mut network = Network::new(12, 0);
    network.start(config(0, 2, Mode::Launched { node: NodeId(1), zero: None }));
    network.run_to_ends();
    assert!(network.error_of(0).contains("before node zero's address was known"), "{}", network.error_of(0));
}

#[test]
fn every_difference_is_refused_with_its_reason() {
    type Change = fn(&mut Config);
    let differences: [(Change, &str); 7] = [
        (|c| c.identity.hash = [1; 32], "another program"),
        (|c| c.identity.version = VERSION + 1, "speaks version"),
        (|c| c.identity.layout.page_bytes = 65536, "pages of 4096 bytes there, 65536 bytes here"),
        (|c| c.identity.nodes = 3, "4 nodes"),
        (|c| c.identity.threads = 1, "2 threads"),
        (|c| c.identity.options = "engine=owner auth=off".into(), "engine=msi there, engine=owner here"),
        (|c| c.job = Some(99), "the job there is called"),
    ];
    for (change, words) in differences {
        for loss in [0, 20] {
            let mut network = Network::new(14, loss);
            network.start(config(0, 4, Mode::Serve));
            let mut other = config(1, 4, Mode::Join { zero: address(0) });
            change(&mut other);
            other.ports.truncate(1 + usize::from(other.identity.threads));
            network.start(other);
            network.run_until(|n| n.processes[1].has_ended());
            let error = network.error_of(1);
            let words = words.replace("65536 bytes", "65536");
            assert!(error.contains("10.0.0.0:7000 refused") && error.contains(&words), "{error}");
            assert_eq!(network.processes[0].turned_away.len(), 1, "reported once");
        }
    }
}

#[test]
fn numbers_must_be_free_and_exist() {
    let mut network = Network::new(16, 0);
    network.start(launched(0, 3));
    network.start(launched(1, 3));
    let confirmed = network.now + Span::from_ms(20);
    network.run_until(|n| n.now > confirmed);
    for (number, words) in [(1, "another process (host host1, pid 4001)"), (0, "another process (host host0")] {
        let nonce = 1234 + u64::from(number);
        let body = join_body(nonce, Some(NodeId(number)), 3);
        let now = network.now;
        network.processes[0].startup.on_datagram(now, address(8), types::JOIN, &body).unwrap();
        let refusal = refusal_to(&mut network, nonce);
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    let body = join_body(77, Some(NodeId(3)), 3);
    let now = network.now;
    network.processes[0].startup.on_datagram(now, address(9), types::JOIN, &body).unwrap();
    assert_eq!(refusal_to(&mut network, 77), Refusal::NoSuchNode { nodes: 3 });
}

fn join_body(nonce: u64, requested: Option<NodeId>, nodes: u16) -> Vec<u8> {
    StartMessage::Join(Box::new(join(nonce, requested, nodes))).emit(VERSION)
}

fn refusal_to(network: &mut Network, wanted: u64) -> Refusal {
    while let Some(transmit) = network.processes[0].startup.poll_transmit() {
        if let Ok(StartMessage::Answer(Answer { nonce, verdict: Verdict::Refused(reason), .. })) =
            StartMessage::parse(transmit.ty, &transmit.body, VERSION)
            && nonce == wanted
        {
            return reason;
        }
    }
    panic!("no refusal");
}

#[test]
fn a_complete_job_by_address_refuses_more() {
    let mut network = Network::new(17, 0);
    network.start(config(0, 2, Mode::Serve));
    network.start(config(1, 2, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    network.start(config(2, 2, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    assert!(network.error_of(2).contains("the job has its 2 nodes"), "{}", network.error_of(2));
}

#[test]
fn a_second_job_of_the_same_name_hears_that_the_first_is_running() {
    let mut network = Network::new(18, 0);
    network.start_all(0..2, |i| config(i, 2, Mode::Discover));
    network.run_to_ends();
    network.now = network.now + Span::from_ms(60_000);
    network.start(config(2, 2, Mode::Discover));
    // A process that a daemon started for the running job comes late: not needed, and no error.
    let mut late = config(3, 2, Mode::Discover);
    late.job = network.processes[0].ready.as_ref().map(|m| m.job);
    network.start(late);
    network.run_to_ends();
    assert!(network.error_of(2).contains("a job called \"sea\" is running already"), "{}", network.error_of(2));
    assert!(network.processes[3].surplus);
}

#[test]
fn a_node_that_ends_during_start_up_is_named_to_the_others() {
    let mut network = Network::new(20, 0);
    network.parted.insert((1, 2));
    network.start_all(0..3, |i| launched(i, 3));
    network.run_until(|n| (0..3).all(|i| i == 0 || n.processes[i].joined.is_some()));
    // All are there, but 1 and 2 cannot hear each other: the start waits, and node 2 dies.
    let until = network.now + Span::from_ms(100);
    network.run_until(|n| n.now > until);
    network.processes[2].alive = false;
    let now = network.now;
    network.processes[0].startup.on_refused(now, address(2));
    network.collect(0);
    network.run_to_ends();
    for index in 0..2 {
        let error = network.error_of(index);
        assert!(error.contains("node 2 (host host2, pid 4002) ended during start-up"), "{error}");
    }
}

#[test]
fn a_launched_node_knows_when_node_zero_ended() {
    let mut network = Network::new(24, 0);
    network.start_all(0..2, |i| launched(i, 3));
    network.run_until(|n| n.processes[1].joined.is_some());
    let now = network.now;
    network.processes[1].startup.on_refused(now, address(0));
    network.collect(1);
    assert_eq!(network.processes[1].error, Some(StartError::ZeroGone { zero: address(0) }));
}

#[test]
fn node_zero_that_gives_up_says_why_to_all() {
    let mut network = Network::new(25, 20);
    network.start_all(0..3, |i| launched(i, 4));
    network.run_until(|n| n.processes[1].joined.is_some() && n.processes[2].joined.is_some());
    let now = network.now;
    network.processes[0].startup.abandon(now, "out of shared memory");
    network.collect(0);
    network.run_until(|n| n.processes[1].has_ended() && n.processes[2].has_ended());
    assert!(network.error_of(2).contains("out of shared memory"));
}

#[test]
fn hosts_seen_over_loopback_and_from_outside_are_not_mixed() {
    let mut network = Network::new(26, 0);
    network.start(config(0, 3, Mode::Serve));
    let now = network.now;
    for (nonce, from) in [(5, "127.0.0.1:5000"), (6, "10.9.9.9:5000")] {
        let from: SocketAddr = from.parse().unwrap();
        let body = join_body(nonce, None, 3);
        network.processes[0].startup.on_datagram(now, from, types::JOIN, &body).unwrap();
        let mut answers = Vec::new();
        while let Some(t) = network.processes[0].startup.poll_transmit() {
            answers.push(StartMessage::parse(t.ty, &t.body, VERSION).unwrap());
        }
        let Some(StartMessage::Answer(Answer { verdict: Verdict::Accepted { job, node, .. }, .. })) = answers.last()
        else {
            panic!("{answers:?}");
        };
        let StartMessage::Join(mut join) = StartMessage::parse(types::JOIN, &body, VERSION).unwrap() else { panic!() };
        join.intent = Intent::Confirm { job: *job, node: *node };
        let body = StartMessage::Join(join).emit(VERSION);
        network.processes[0].startup.on_datagram(now, from, types::JOIN, &body).unwrap();
    }
    network.collect(0);
    assert!(network.error_of(0).contains("--iface"), "{}", network.error_of(0));
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    type Change = fn(&mut Config);
    let cases: [(Change, &str); 7] = [
        (|c| c.identity.nodes = 0, "0 nodes"),
        (|c| c.identity.nodes = 1025, "1 to 1024"),
        (|c| c.identity.threads = 0, "0 threads"),
        (|c| c.ports = vec![1], "1 ports for 2 threads"),
        (|c| c.ports = vec![1; 6], "6 ports for 2 threads"),
        (|c| c.arguments = vec!["x".repeat(2000)], "put them into a file"),
        (|c| c.mode = Mode::Launched { node: NodeId(4), zero: None }, "node 4 in a job of 4"),
    ];
    for (change, words) in cases {
        let mut config = config(0, 4, Mode::Discover);
        change(&mut config);
        let error = Startup::new(config, Time(0), 1).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn random_and_damaged_bytes_do_no_harm() {
    let mut chance = Rng::new(99);
    let mut network = Network::new(27, 0);
    network.start_all(0..3, |i| config(i, 3, Mode::Discover));
    let mut seen: Vec<(MsgType, Vec<u8>)> = Vec::new();
    for _ in 0..60_000 {
        let victim = chance.next() as usize % 3;
        let (ty, mut body) = match chance.next() % 3 {
            0 => random_bytes(&mut chance),
            _ => damaged(&mut chance, &seen).unwrap_or_else(|| random_bytes(&mut chance)),
        };
        body.truncate(1400);
        let now = network.now;
        let from = address(chance.next() as usize % 5);
        let _ = network.processes[victim].startup.on_datagram(now, from, ty, &body);
        while let Some(transmit) = network.processes[victim].startup.poll_transmit() {
            if seen.len() < 500 {
                seen.push((transmit.ty, transmit.body));
            }
        }
        while network.processes[victim].startup.poll_event().is_some() {}
        if chance.next().is_multiple_of(50) {
            network.now = network.now + Span::from_ms(20);
            network.processes[victim].startup.on_timeout(network.now);
        }
    }
    assert!(seen.len() > 100, "the test reached the machines");
}

fn random_bytes(chance: &mut Rng) -> (MsgType, Vec<u8>) {
    let len = chance.next() % 300;
    (MsgType(7 + (chance.next() % 8) as u16), (0..len).map(|_| chance.next() as u8).collect())
}

fn damaged(chance: &mut Rng, seen: &[(MsgType, Vec<u8>)]) -> Option<(MsgType, Vec<u8>)> {
    let (ty, mut body) = seen.get(chance.next() as usize % seen.len().max(1))?.clone();
    for _ in 0..chance.next() % 4 {
        let at = chance.next() as usize % body.len().max(1);
        if let Some(byte) = body.get_mut(at) {
            *byte = chance.next() as u8;
        }
    }
    if chance.next().is_multiple_of(4) {
        body.truncate(chance.next() as usize % (body.len() + 1));
    }
    Some((ty, body))
}
