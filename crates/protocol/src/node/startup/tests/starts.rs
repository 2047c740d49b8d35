//! Starts that succeed, whatever happens on the way.

use super::*;

#[test]
fn launched_nodes_start_at_every_size_with_and_without_loss() {
    for nodes in [1, 2, 4, 9, 128] {
        for loss in [0, 20] {
            let mut network = Network::new(nodes + loss, loss);
            network.start_all(0..nodes as usize, |i| launched(i, nodes as u16));
            network.run_to_ends();
            let order = network.assert_one_job();
            assert_eq!(order, (0..nodes as usize).collect::<Vec<_>>(), "a launcher's numbers are kept");
            assert!(network.processes[0].ready.as_ref().is_some_and(|m| m.multicast || loss > 0 || nodes == 1));
        }
    }
}

#[test]
fn searching_nodes_start_at_every_size_with_and_without_loss() {
    for nodes in [2, 4, 9, 128] {
        for loss in [0, 20] {
            for seed in 0..if nodes < 100 { 20 } else { 2 } {
                let mut network = Network::new(1000 * nodes + loss + seed, loss);
                network.start_all(0..nodes as usize, |i| config(i, nodes as u16, Mode::Discover));
                network.run_to_ends();
                network.assert_one_job();
            }
        }
    }
}

#[test]
fn joiners_by_address_get_the_numbers_in_order_of_arrival() {
    let mut network = Network::new(5, 0);
    network.start(config(0, 3, Mode::Serve));
    for index in [1, 2] {
        network.start(config(index, 3, Mode::Join { zero: address(0) }));
        network.run_until(|n| n.processes[index].joined.is_some());
    }
    network.run_to_ends();
    assert_eq!(network.assert_one_job(), [0, 1, 2]);
}

#[test]
fn a_thousand_nodes_start() {
    let mut network = Network::new(77, 1);
    network.start_all(0..1024, |i| launched(i, 1024));
    network.run_to_ends();
    network.assert_one_job();
    let per_node = network.sent / 1024;
    assert!(per_node < 160, "{per_node} datagrams a node");
}

#[test]
fn nodes_that_share_memory_are_not_introduced_to_each_other() {
    for nodes in [2, 5, 16] {
        let mut network = Network::new(nodes, 0);
        let sharing = |i| Config { introduces: false, multicast: false, ..launched(i, nodes as u16) };
        network.start_all(0..nodes as usize, sharing);
        network.run_to_ends();
        network.assert_one_job();
        // Each other node asks, confirms and is ready; node zero answers all of that, but the last by the start, and
        // sends the table.
        assert_eq!(network.sent, 8 * (nodes - 1) - 1);
    }
}

#[test]
fn a_job_of_one_node_sends_nothing() {
    let mut network = Network::new(1, 0);
    for mode in [Mode::Discover, Mode::Serve] {
        network.start(config(network.processes.len(), 1, mode));
    }
    assert!(network.processes.iter().all(|p| p.ready.is_some() && p.startup.next_timeout().is_none()));
    assert_eq!(network.sent, 0);
}

#[test]
fn node_zeros_address_may_come_later() {
    let mut network = Network::new(8, 0);
    for index in 0..3u16 {
        let mode = Mode::Launched { node: NodeId(index), zero: None };
        network.start(config(usize::from(index), 3, mode));
    }
    for index in 1..3 {
        let now = network.now;
        network.processes[index].startup.set_zero(now, address(0));
        network.collect(index);
    }
    network.run_to_ends();
    network.assert_one_job();
}

#[test]
fn the_search_takes_about_a_second_and_a_quarter() {
    let mut total = 0;
    for seed in 0..50 {
        let mut network = Network::new(seed, 0);
        network.start(config(0, 2, Mode::Discover));
        network.run_until(|n| n.processes[0].began_zero);
        let ms = network.now.0 / 1_000_000;
        assert!((990..=1490).contains(&ms), "{ms}");
        total += ms;
    }
    assert!((1200..=1280).contains(&(total / 50)), "{}", total / 50);
}

/// Makes processes `indices` node zeros that have not yet heard of each other.
fn become_zeros(network: &mut Network, indices: std::ops::Range<usize>, nodes: u16) {
    network.loss_percent = 100;
    network.start_all(indices.clone(), |i| config(i, nodes, Mode::Discover));
    let all = indices.clone();
    network.run_until(move |n| all.clone().all(|i| n.processes[i].began_zero));
    network.loss_percent = 0;
}

#[test]
fn of_two_nodes_zero_the_one_with_the_smaller_nonce_stays() {
    for seed in 0..20 {
        let mut network = Network::new(seed, 0);
        become_zeros(&mut network, 0..2, 4);
        let winner = usize::from(network.processes[1].startup.nonce() < network.processes[0].startup.nonce());
        network.start(config(2, 4, Mode::Discover));
        network.start(config(3, 4, Mode::Discover));
        network.run_to_ends();
        assert_eq!(network.assert_one_job()[0], winner);
    }
}

#[test]
fn joiners_of_the_node_zero_that_gives_way_follow_to_the_other() {
    for loss in [0, 20] {
        for seed in 0..20 {
            let mut network = Network::new(300 + seed, 0);
            let everybody_to_everybody = [(0, 1), (0, 2), (1, 3), (2, 3)];
            network.parted.extend(everybody_to_everybody);
            become_zeros(&mut network, 0..2, 4);
            // Process 2 hears only process 1, and process 3 only process 0: each of the two gathers one joiner.
            network.start(config(2, 4, Mode::Discover));
            network.start(config(3, 4, Mode::Discover));
            network.run_until(|n| n.processes[2].joined.is_some() && n.processes[3].joined.is_some());
            network.parted.clear();
            network.loss_percent = loss;
            network.run_to_ends();
            network.assert_one_job();
        }
    }
}

#[test]
fn surplus_joiners_leave_cleanly() {
    for loss in [0, 20] {
        for seed in 0..20 {
            let mut network = Network::new(40 + seed, loss);
            network.start_all(0..7, |i| config(i, 4, Mode::Discover));
            network.run_to_ends();
            network.assert_one_job();
            let surplus = network.processes.iter().filter(|p| p.surplus).count();
            assert_eq!((surplus, network.processes.iter().filter(|p| p.ready.is_some()).count()), (3, 4));
        }
    }
}

#[test]
fn without_multicast_the_nodes_start_and_know_it() {
    let mut network = Network::new(13, 0);
    network.multicast = false;
    network.start_all(0..5, |i| launched(i, 5));
    network.run_to_ends();
    network.assert_one_job();
    assert!(!network.processes[3].ready.as_ref().unwrap().multicast);
    assert_eq!(network.processes[0].deaf, [1, 2, 3, 4].map(NodeId));
}

#[test]
fn node_zero_tells_who_does_not_hear_multicast() {
    let mut network = Network::new(14, 0);
    network.deaf = [2, 3].into();
    network.start_all(0..5, |i| launched(i, 5));
    network.run_to_ends();
    network.assert_one_job();
    let member = |index: usize| network.processes[index].ready.as_ref().unwrap().multicast;
    assert!((0..5).all(|index| !member(index)), "all or none");
    assert_eq!(network.processes[0].deaf, [2, 3].map(NodeId));
    assert!(network.processes[1..].iter().all(|process| process.deaf.is_empty()));
}

#[test]
fn a_searching_process_ignores_jobs_of_other_names() {
    let mut network = Network::new(15, 0);
    for index in 0..4 {
        let mut config = config(index, 2, Mode::Discover);
        config.identity.job_name = if index < 2 { "sea" } else { "lake" }.into();
        config.identity.hash = [index as u8 / 2; 32];
        network.start(config);
    }
    network.run_to_ends();
    let job = |i: usize| network.processes[i].ready.as_ref().map(|m| m.job);
    assert!(job(0).is_some() && job(0) == job(1) && job(2).is_some() && job(2) == job(3) && job(0) != job(2));
}

#[test]
fn a_rival_whose_job_is_complete_makes_the_others_surplus() {
    let mut network = Network::new(19, 0);
    become_zeros(&mut network, 0..2, 2);
    network.parted.extend([(0, 1), (1, 2)]);
    network.start(config(2, 2, Mode::Discover));
    network.run_until(|n| n.processes[2].has_ended());
    network.parted.clear();
    network.run_to_ends();
    assert!(network.processes[1].surplus, "{}", network.picture());
    network.assert_one_job();
}

#[test]
fn a_joiner_that_leaves_makes_room_for_another() {
    let mut network = Network::new(21, 0);
    network.start(config(0, 3, Mode::Serve));
    network.start(config(1, 3, Mode::Join { zero: address(0) }));
    network.run_until(|n| n.processes[1].joined.is_some());
    let now = network.now;
    network.processes[1].startup.abandon(now, "Ctrl-C");
    network.collect(1);
    network.processes[1].alive = false;
    network.start_all(2..4, |i| config(i, 3, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    let mut order = network.assert_one_job();
    order.sort_unstable();
    assert_eq!(order, [0, 2, 3]);
}

#[test]
fn a_joiner_that_died_silently_is_replaced() {
    let mut network = Network::new(22, 0);
    network.start(config(0, 3, Mode::Serve));
    network.start(config(1, 3, Mode::Join { zero: address(0) }));
    network.run_until(|n| n.processes[1].joined.is_some());
    let confirmed = network.now + Span::from_ms(20);
    network.run_until(|n| n.now > confirmed);
    network.processes[1].alive = false;
    network.run_until(|n| n.in_flight.is_empty());
    network.now = network.now + Span::from_ms(6_000);
    network.start_all(2..4, |i| config(i, 3, Mode::Join { zero: address(0) }));
    network.run_to_ends();
    network.assert_one_job();
}

#[test]
fn when_node_zero_dies_before_the_start_the_searching_ones_find_another() {
    for refused in [false, true] {
        let mut network = Network::new(23, 0);
        network.start_all(0..3, |i| config(i, 4, Mode::Discover));
        network.run_until(|n| n.processes.iter().filter(|p| p.joined.is_some()).count() == 2);
        let dead = network.processes.iter().position(|p| p.began_zero).unwrap();
        network.processes[dead].alive = false;
        for index in (0..3).filter(|&i| i != dead && refused) {
            let now = network.now;
            network.processes[index].startup.on_refused(now, address(dead));
            network.collect(index);
        }
        network.start_all(3..5, |i| config(i, 4, Mode::Discover));
        network.run_to_ends();
        network.assert_one_job();
    }
}

#[test]
fn processes_that_come_in_any_order_under_any_loss_form_one_job() {
    for seed in 0..1000u64 {
        let loss = [0, 10, 20, 30][seed as usize % 4];
        let (nodes, extra) = (2 + (seed / 4) as usize % 8, (seed / 32) as usize % 3);
        let mut network = Network::new(50_000 + seed, loss);
        for index in 0..nodes + extra {
            network.start(config(index, nodes as u16, Mode::Discover));
            let pause = network.chance.next() % 900;
            if seed % 2 == 0 {
                let until = network.now + Span::from_ms(pause);
                network.run_until(|n| n.now >= until || n.processes.iter().all(Process::has_ended));
            }
        }
        network.run_to_ends();
        network.assert_one_job();
        let surplus = network.processes.iter().filter(|p| p.surplus).count();
        assert_eq!(surplus, extra, "seed {seed}\n{}", network.picture());
    }
}

#[test]
fn without_a_deadline_nodes_wait_for_others_as_long_as_it_takes() {
    for late in 0..3 {
        let mut network = Network::new(53 + late as u64, 10);
        let patient = |index| Config { deadline: None, ..launched(index, 3) };
        let first: Vec<usize> = (0..3).filter(|index| *index != late).collect();
        // The address of a process follows from its index, so the late one stands there from the start, and is deaf.
        network.start_all(0..3, patient);
        network.parted.extend(first.iter().map(|other| (late.min(*other), late.max(*other))));
        let until = network.now + Span::from_ms(3_600_000);
        while network.now < until && network.step() {}
        assert!(network.processes.iter().all(|p| !p.has_ended()), "{}", network.picture());
        network.parted.clear();
        network.run_to_ends();
        network.assert_one_job();
    }
}

#[test]
fn several_nodes_zero_at_once_become_one() {
    for seed in 0..500u64 {
        let zeros = 2 + seed as usize % 4;
        let mut network = Network::new(90_000 + seed, 0);
        become_zeros(&mut network, 0..zeros, 6);
        network.loss_percent = [0, 10, 20][seed as usize % 3];
        network.start_all(zeros..7, |i| config(i, 6, Mode::Discover));
        network.run_to_ends();
        network.assert_one_job();
        let surplus = network.processes.iter().filter(|p| p.surplus).count();
        assert_eq!(surplus, 1, "seed {seed}\n{}", network.picture());
    }
}

#[test]
fn two_nodes_zero_do_not_both_complete_a_job() {
    for seed in 0..200 {
        let mut network = Network::new(7_000 + seed, 0);
        become_zeros(&mut network, 0..2, 2);
        network.start_all(2..4, |i| config(i, 2, Mode::Discover));
        network.run_to_ends();
        network.assert_one_job();
        assert_eq!(network.processes.iter().filter(|p| p.surplus).count(), 2, "seed {seed}");
    }
}

/// Two searching processes that found each other; returns who is node zero and who is not.
fn a_running_pair() -> (Network, usize, usize) {
    let mut network = Network::new(31, 0);
    network.start_all(0..2, |i| config(i, 2, Mode::Discover));
    network.run_to_ends();
    let zero = network.assert_one_job()[0];
    (network, zero, 1 - zero)
}

#[test]
fn a_late_process_is_surplus_if_it_began_before_the_job_ran_and_else_a_second_job() {
    let (mut network, zero, _) = a_running_pair();
    network.now = network.now + Span::from_ms(60_000);
    for (nonce, age_ms) in [(1, 1_000), (2, 61_000)] {
        let mut join = join(nonce, None, 2);
        join.age_ms = age_ms;
        let answers = network.answers(zero, address(9), &StartMessage::Join(Box::new(join)));
        match &answers[..] {
            [Verdict::Surplus] if age_ms > 60_000 => {}
            [Verdict::Refused(Refusal::AlreadyRunning { .. })] if age_ms < 60_000 => {}
            other => panic!("{age_ms}: {other:?}"),
        }
    }
}

#[test]
fn a_node_that_once_was_a_rival_is_not_called_surplus_by_an_old_wakeup() {
    let (mut network, zero, other) = a_running_pair();
    let wakeup = Wakeup {
        nonce: network.processes[other].startup.nonce(),
        job: 5,
        age_ms: 0,
        job_name: "sea".into(),
        nodes: 2,
        threads: 2,
        program: "sea".into(),
        hash: [7; 32],
        arguments: Vec::new(),
    };
    let answers = network.answers(zero, address(other), &StartMessage::Wakeup(wakeup));
    assert!(matches!(answers[..], [Verdict::Accepted { node: NodeId(1), .. }]), "{answers:?}");
}

#[test]
fn a_node_that_forgot_its_place_is_told_again_even_after_the_gathering() {
    let mut network = Network::new(32, 0);
    network.start(config(0, 2, Mode::Serve));
    let mut join = join(77, None, 2);
    let ask = StartMessage::Join(Box::new(join.clone()));
    let first = network.answers(0, address(1), &ask);
    let [Verdict::Accepted { job, node, .. }] = first[..] else { panic!("{first:?}") };
    join.intent = Intent::Confirm { job, node };
    network.answers(0, address(1), &StartMessage::Join(Box::new(join)));
    assert_eq!(network.answers(0, address(1), &ask), first);
}

#[test]
fn who_is_taken_for_node_zero_says_that_it_is_not() {
    let mut network = Network::new(33, 0);
    network.start(config(0, 2, Mode::Discover));
    let ask = StartMessage::Join(Box::new(join(77, None, 2)));
    assert_eq!(network.answers(0, address(1), &ask), [Verdict::Yielded]);
}
