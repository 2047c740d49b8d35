use super::*;
use crate::node::rng::Rng;
use crate::node::watch::WatchMessage;
use std::collections::BTreeMap;

type InFlight = (NodeId, NodeId, MsgType, Vec<u8>);

/// A network of detectors; a datagram for a node that ended comes back as a closed port.
struct Ring {
    nodes: Vec<Detector>,
    state: Vec<State>,
    events: Vec<Vec<(Time, Event)>>,
    in_flight: BTreeMap<(Time, u64), InFlight>,
    chance: Rng,
    loss_percent: u64,
    /// The longest body that gets through.
    longest: usize,
    /// What is lost from the first to the second.
    cut: Vec<(u16, u16)>,
    /// What nodes wait for that was sent to others: who, from whom, since when.
    owed: Vec<(u16, u16, Time)>,
    /// Whether closed ports are reported.
    icmp: bool,
    sent: u64,
    now: Time,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Runs,
    Stopped,
    Ended,
}

impl Ring {
    fn new(count: usize, loss_percent: u64, config: WatchConfig) -> Ring {
        Ring {
            nodes: NodeId::all(count).map(|me| Detector::new(me, count, config, Time(0))).collect(),
            state: vec![State::Runs; count],
            events: vec![Vec::new(); count],
            in_flight: BTreeMap::new(),
            chance: Rng::new(count as u64 * 100 + loss_percent),
            loss_percent,
            longest: usize::MAX,
            cut: Vec::new(),
            owed: Vec::new(),
            icmp: true,
            sent: 0,
            now: Time(0),
        }
    }

    fn collect(&mut self, index: usize) {
        while let Some(Transmit { to, ty, body }) = self.nodes[index].poll_transmit() {
            self.sent += 1;
            let cut = self.cut.contains(&(index as u16, to.0));
            if self.chance.next() % 100 >= self.loss_percent && body.len() <= self.longest && !cut {
                let at = self.now + Span::from_us(20 + self.chance.next() % 300);
                self.in_flight.insert((at, self.sent), (NodeId(index as u16), to, ty, body));
            }
        }
        while let Some(event) = self.nodes[index].poll_event() {
            self.events[index].push((self.now, event));
        }
    }

    /// Every 50 ms each node tells its detector what it waits for.
    fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            let next = Time(((self.now.0 / 50_000_000) + 1) * 50_000_000);
            self.run_until(next.min(end));
            let running = (0..self.nodes.len()).filter(|index| self.state[*index] == State::Runs).collect::<Vec<_>>();
            for index in running {
                let before = Time(self.now.0.saturating_sub(self.nodes[index].config.ask_after().0));
                let owed = self.owed.iter().filter(|(to, _, since)| usize::from(*to) == index && *since <= before);
                let owed: Vec<_> = owed.map(|(_, from, since)| (NodeId(*from), *since)).collect();
                self.nodes[index].unanswered(self.now, &owed);
                self.collect(index);
            }
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let running = self.nodes.iter().enumerate().filter(|(i, _)| self.state[*i] == State::Runs);
            let timer = running.filter_map(|(i, n)| n.next_timeout().map(|at| (at.max(self.now), i))).min();
            let arrival = self.in_flight.keys().next().copied();
            let next = timer.map(|(at, _)| at).into_iter().chain(arrival.map(|(at, _)| at)).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = at;
            match arrival.filter(|(arrives, _)| *arrives == at) {
                Some(key) => self.arrive(key),
                None => {
                    let (_, index) = timer.expect("the earliest");
                    self.nodes[index].on_timeout(at);
                    self.collect(index);
                }
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, key: (Time, u64)) {
        let (from, to, ty, body) = self.in_flight.remove(&key).expect("just seen");
        match self.state[to.index()] {
            State::Runs => {
                self.nodes[to.index()].on_datagram(self.now, from, ty, &body).expect("good bytes");
                self.collect(to.index());
            }
            State::Ended if self.icmp && self.state[from.index()] == State::Runs => {
                self.nodes[from.index()].evidence(self.now, to, LossCause::PortClosed);
                self.collect(from.index());
            }
            _ => {}
        }
    }

    fn losses(&self, index: usize) -> Vec<(NodeId, LossCause)> {
        let lost = |(_, event): &(Time, Event)| match event {
            Event::Lost { node, why, .. } => Some((*node, why.clone())),
            _ => None,
        };
        self.events[index].iter().filter_map(lost).collect()
    }

    /// What every node says is lost, and which node the other of the pair is.
    fn verdicts(&self) -> Vec<Option<(u16, u16)>> {
        let lost = |(_, event): &(Time, Event)| match event {
            Event::Lost { node, reporter, .. } => Some((node.0, reporter.0)),
            _ => None,
        };
        self.events.iter().map(|events| events.iter().find_map(lost)).collect()
    }

    fn cut_both(&mut self, a: u16, b: u16) {
        self.cut.extend([(a, b), (b, a)]);
    }

    fn all_events(&self) -> usize {
        self.events.iter().map(Vec::len).sum()
    }
}

#[test]
fn a_killed_node_is_known_to_all_within_a_second() {
    for count in [2, 3, 9, 200] {
        for loss in [0, 20] {
            let mut ring = Ring::new(count, loss, WatchConfig::default());
            ring.run_for(Span::from_ms(1_730));
            ring.state[1] = State::Ended;
            ring.run_for(Span::from_ms(if loss == 0 { 1_000 } else { 2_000 }));
            for index in (0..count).filter(|&i| i != 1) {
                assert_eq!(ring.losses(index), [(NodeId(1), LossCause::PortClosed)], "{count} nodes, node {index}");
            }
        }
    }
}

#[test]
fn a_silent_node_is_warned_about_and_then_given_up_by_all() {
    let mut ring = Ring::new(5, 0, WatchConfig::default());
    ring.run_for(Span::from_ms(1_000));
    ring.state[2] = State::Stopped;
    ring.run_for(Span::from_ms(9_000));
    for neighbour in [1, 3] {
        assert!(
            matches!(&ring.events[neighbour][..], [(at, Event::Warn { node: NodeId(2), .. })]
                if (2_500..=3_600).contains(&(at.0 / 1_000_000))),
            "{:?}",
            ring.events[neighbour]
        );
    }
    ring.run_for(Span::from_ms(2_500));
    for index in [0, 1, 3, 4] {
        let losses = ring.losses(index);
        assert!(matches!(losses[..], [(NodeId(2), LossCause::Silent { ms: 10_000..10_600 })]), "{losses:?}");
    }
    // It wakes, blames nobody, and learns that it was given up.
    ring.state[2] = State::Runs;
    ring.run_for(Span::from_ms(1_500));
    assert!(ring.losses(2).iter().all(|(node, _)| *node == NodeId(2)), "{:?}", ring.losses(2));
    assert_eq!(ring.losses(2).len(), 1);
}

#[test]
fn a_node_that_is_heard_again_is_back() {
    let mut ring = Ring::new(3, 0, WatchConfig::default());
    ring.state[2] = State::Stopped;
    ring.run_for(Span::from_ms(5_000));
    ring.state[2] = State::Runs;
    ring.run_for(Span::from_ms(20_000));
    for index in [0, 1] {
        let kinds: Vec<bool> = ring.events[index].iter().map(|(_, e)| *e == Event::Back { node: NodeId(2) }).collect();
        assert_eq!(kinds, [false, true], "{:?}", ring.events[index]);
    }
    assert!(ring.events[2].iter().all(|(_, e)| !matches!(e, Event::Lost { .. })));
}

#[test]
fn without_a_limit_silence_is_never_a_loss() {
    let mut ring = Ring::new(3, 0, WatchConfig { fatal: None, ..WatchConfig::default() });
    ring.state[0] = State::Stopped;
    ring.run_for(Span::from_ms(600_000));
    assert!(ring.losses(1).is_empty() && ring.losses(2).is_empty());
    assert!(matches!(ring.events[1][..], [(_, Event::Warn { node: NodeId(0), .. })]), "one warning");
}

#[test]
fn a_healthy_ring_is_quiet_even_under_loss() {
    let mut ring = Ring::new(64, 20, WatchConfig::default());
    ring.run_for(Span::from_ms(60_000));
    let warnings = ring.all_events();
    assert!((0..64).all(|i| ring.losses(i).is_empty()));
    assert!(warnings < 8, "{warnings} warnings");
    // 64 nodes, two pings and two pongs each half second, for a minute.
    assert!(ring.sent <= 64 * 4 * 120, "{}", ring.sent);
}

#[test]
fn it_is_told_once_where_only_short_datagrams_get_through() {
    for (count, loss, longest, told) in
        [(2, 0, 1400, 2), (5, 0, 8_999, 10), (64, 20, 1400, 128), (64, 30, 9000, 0), (64, 0, 9000, 0)]
    {
        let config = WatchConfig { longest: 9000, ..WatchConfig::default() };
        let mut ring = Ring { longest, ..Ring::new(count, loss, config) };
        ring.run_for(Span::from_ms(60_000));
        let only_short = |(_, event): &&(Time, Event)| matches!(event, Event::OnlyShort { .. });
        let events: Vec<_> = ring.events.iter().flatten().filter(only_short).collect();
        assert_eq!(events.len(), told, "{count} nodes, at most {longest} bytes: {events:?}");
        assert!(loss > 0 || events.iter().all(|(at, _)| *at < Time(6_000_000_000)), "{events:?}");
        assert!((0..count).all(|i| ring.losses(i).is_empty()));
    }
}

#[test]
fn any_datagram_is_a_sign_of_life() {
    let mut detector = Detector::new(NodeId(0), 2, WatchConfig::default(), Time(0));
    let mut now = Time(0);
    for _ in 0..200 {
        now = now + Span::from_ms(100);
        detector.heard(now, NodeId(1));
        detector.on_timeout(now);
    }
    assert_eq!(detector.poll_event(), None);
}

#[test]
fn a_closed_port_of_a_node_that_is_heard_since_is_no_loss() {
    let start = |at: u64| {
        let mut detector = Detector::new(NodeId(0), 3, WatchConfig::default(), Time(0));
        detector.evidence(Time(at), NodeId(1), LossCause::PortClosed);
        detector
    };
    let (mut heard, mut quiet, mut other) = (start(1_000), start(1_000), start(1_000));
    heard.heard(Time(2_000), NodeId(1));
    other.heard(Time(2_000), NodeId(2));
    let late = Time(200_000_000);
    let lost = |detector: &mut Detector, at: Time| {
        detector.on_timeout(at);
        std::iter::from_fn(|| detector.poll_event()).filter(|event| matches!(event, Event::Lost { .. })).count()
    };
    assert_eq!([lost(&mut heard, late), lost(&mut quiet, late), lost(&mut other, late)], [0, 1, 1]);
    // Once more, and not heard: the suspicion begins anew.
    heard.evidence(late, NodeId(1), LossCause::PortClosed);
    assert_eq!(lost(&mut heard, late + Span::from_ms(150)), 1);
}

#[test]
fn the_launchers_word_counts_at_once_and_is_passed_on() {
    let mut ring = Ring::new(40, 0, WatchConfig::default());
    ring.icmp = false;
    ring.state[7] = State::Ended;
    ring.nodes[0].evidence(Time(0), NodeId(7), LossCause::Killed { signal: 9 });
    ring.collect(0);
    ring.run_for(Span::from_ms(50));
    for index in (0..40).filter(|&i| i != 7) {
        assert_eq!(ring.losses(index), [(NodeId(7), LossCause::Killed { signal: 9 })]);
    }
}

#[test]
fn a_node_that_stops_with_an_error_tells_the_reason() {
    let mut ring = Ring::new(4, 20, WatchConfig::default());
    ring.nodes[3].stop(Time(0), "index 9 is out of range");
    ring.collect(3);
    ring.state[3] = State::Ended;
    ring.icmp = false;
    ring.run_for(Span::from_ms(2_000));
    for index in 0..3 {
        assert_eq!(ring.losses(index), [(NodeId(3), LossCause::Stopped("index 9 is out of range".into()))]);
        assert_eq!(ring.losses(index)[0].1.to_string(), "stopped: index 9 is out of range");
    }
}

#[test]
fn nodes_that_leave_after_the_closing_barrier_are_not_lost() {
    for count in [2, 5, 100] {
        let mut ring = Ring::new(count, 0, WatchConfig::default());
        ring.run_for(Span::from_ms(700));
        ring.nodes.iter_mut().for_each(Detector::closing);
        for index in 0..count {
            // One after the other, with the ports closing at once.
            let now = ring.now;
            ring.nodes[index].leave(now);
            ring.collect(index);
            ring.state[index] = State::Ended;
            ring.run_for(Span::from_ms(5));
        }
        assert_eq!(ring.all_events(), 0, "{count} nodes");
    }
}

#[test]
fn where_all_have_passed_the_closing_barrier_nobody_is_told_who_leaves() {
    for count in [2, 5, 100] {
        let mut ring = Ring::new(count, 0, WatchConfig::default());
        ring.run_for(Span::from_ms(700));
        ring.nodes.iter_mut().for_each(Detector::closing);
        ring.nodes.iter_mut().for_each(Detector::closed);
        for index in 0..count {
            let sent = ring.sent;
            ring.nodes[index].leave_without_a_word();
            ring.collect(index);
            assert_eq!(ring.sent, sent);
            ring.state[index] = State::Ended;
            // Others run on for far longer than nodes do then, and find closed ports.
            ring.run_for(Span::from_ms(if index == 0 { 1_000 } else { 5 }));
        }
        assert_eq!(ring.all_events(), 0, "{count} nodes");
    }
}

#[test]
fn a_node_that_dies_inside_the_closing_barrier_is_lost_after_a_second() {
    let mut ring = Ring::new(3, 0, WatchConfig::default());
    ring.nodes.iter_mut().for_each(Detector::closing);
    ring.state[1] = State::Ended;
    ring.run_for(Span::from_ms(2_000));
    assert_eq!(ring.losses(0), [(NodeId(1), LossCause::PortClosed)]);
    assert_eq!(ring.losses(2), [(NodeId(1), LossCause::PortClosed)]);
}

/// Of five nodes the last hears no farewell and finds four closed ports at once: the first tells it that the job is
/// over.
#[test]
fn farewells_that_were_lost_are_missed_once() {
    let mut late = Detector::new(NodeId(4), 5, WatchConfig::default(), Time(0));
    let losses = |d: &mut Detector| std::iter::from_fn(|| d.poll_event()).collect::<Vec<_>>();
    late.closing();
    (0..4).for_each(|node| late.evidence(Time(0), NodeId(node), LossCause::PortClosed));
    let now = Time(0) + FAREWELL_GRACE;
    late.on_timeout(now);
    let [Event::Lost { why: LossCause::PortClosed, .. }] = losses(&mut late)[..] else { panic!("not one loss") };
    // The caller leaves the barrier.
    late.closed();
    late.on_timeout(now);
    late.evidence(now, NodeId(2), LossCause::PortClosed);
    late.evidence(now, NodeId(2), LossCause::Exited { status: 0 });
    let told = WatchMessage::Lost { node: NodeId(3), reporter: NodeId(1), why: LossCause::PortClosed };
    late.on_datagram(now, NodeId(1), told.ty(), &told.emit()).unwrap();
    assert_eq!(losses(&mut late), []);
    // What is no way to end well still counts.
    late.evidence(now, NodeId(3), LossCause::Killed { signal: 9 });
    assert_eq!(losses(&mut late).len(), 1);
}

/// Of four nodes one dies, and another hears of that first: its port closes as well.
#[test]
fn a_closed_port_is_not_blamed_where_its_node_has_told_of_a_loss() {
    let lost = |d: &mut Detector| {
        let events = std::iter::from_fn(|| d.poll_event());
        events.filter_map(|e| if let Event::Lost { node, .. } = e { Some(node.0) } else { None }).collect::<Vec<_>>()
    };
    for told in [true, false] {
        let mut last = Detector::new(NodeId(3), 4, WatchConfig::default(), Time(0));
        last.evidence(Time(0), NodeId(1), LossCause::PortClosed);
        assert_eq!(lost(&mut last), []);
        if told {
            let word = WatchMessage::Lost { node: NodeId(2), reporter: NodeId(1), why: LossCause::PortClosed };
            last.on_datagram(Time(0) + Span::from_ms(1), NodeId(1), word.ty(), &word.emit()).unwrap();
            assert_eq!(lost(&mut last), [2]);
        } else {
            assert_eq!(last.next_timeout(), Some(Time(0) + CAUSE_GRACE));
            last.on_timeout(Time(0) + CAUSE_GRACE);
            assert_eq!(lost(&mut last), [1]);
        }
    }
}

#[test]
fn a_process_that_was_stopped_blames_nobody() {
    let mut detector = Detector::new(NodeId(0), 3, WatchConfig::default(), Time(0));
    let late = Time(0) + Span::from_ms(60_000);
    detector.on_timeout(late);
    assert_eq!(detector.poll_event(), None);
    // Real silence afterwards counts as ever.
    let end = late + Span::from_ms(10_500);
    while let Some(now) = detector.next_timeout().filter(|now| *now <= end) {
        detector.on_timeout(now);
    }
    let lost = |event: Event| if let Event::Lost { node, mutual, .. } = event { Some((node, mutual)) } else { None };
    let lost: Vec<_> = std::iter::from_fn(|| detector.poll_event()).filter_map(lost).collect();
    assert_eq!(lost, [(NodeId(0), true)], "it hears nobody at all, so it is itself cut off");
}

#[test]
fn many_losses_at_once_reach_everybody() {
    let mut ring = Ring::new(64, 5, WatchConfig::default());
    ring.run_for(Span::from_ms(600));
    (20..50).for_each(|i| ring.state[i] = State::Ended);
    ring.run_for(Span::from_ms(30_000));
    for index in (0..20).chain(50..64) {
        assert_eq!(ring.losses(index).len(), 30, "node {index}");
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut chance = Rng::new(3);
    let mut detector = Detector::new(NodeId(1), 4, WatchConfig::default(), Time(0));
    let mut accepted = 0;
    for _ in 0..50_000 {
        let len = chance.next() % 12;
        let body: Vec<u8> = (0..len).map(|_| (chance.next() % 7) as u8).collect();
        let ty = MsgType(12 + (chance.next() % 5) as u16);
        let from = NodeId((chance.next() % 6) as u16);
        accepted += usize::from(detector.on_datagram(Time(1), from, ty, &body).is_ok());
        while detector.poll_transmit().is_some() {}
        while detector.poll_event().is_some() {}
    }
    assert!(accepted > 1000, "{accepted}");
    assert!(WatchMessage::parse(MsgType(3), &[]).is_err());
}

const SECOND: Span = Span::from_ms(1_000);

/// Nodes 1 and 3 are no neighbours: only who has sent something to the other learns of the cut.
#[test]
fn a_cut_between_any_two_nodes_is_found_by_who_waits_for_an_answer_and_all_say_the_same() {
    for cut in [&[(1, 3), (3, 1)][..], &[(1, 3)], &[(3, 1)]] {
        for waiting in [&[(1, 3)][..], &[(3, 1)], &[(1, 3), (3, 1)]] {
            let mut ring = Ring::new(4, 0, WatchConfig::default());
            ring.run_for(SECOND);
            ring.cut = cut.to_vec();
            ring.owed = waiting.iter().map(|(to, from)| (*to, *from, ring.now)).collect();
            ring.run_for(Span(9 * SECOND.0));
            assert_eq!(ring.verdicts(), [None; 4], "too soon: {cut:?}, {waiting:?}");
            ring.run_for(Span(2 * SECOND.0));
            assert_eq!(ring.verdicts(), [Some((3, 1)); 4], "{cut:?}, {waiting:?}");
        }
    }
}

#[test]
fn neighbours_that_accuse_each_other_come_to_one_verdict() {
    for nodes in [2, 4, 5] {
        for a in 0..nodes {
            let b = (a + 1) % nodes;
            let mut ring = Ring::new(usize::from(nodes), 0, WatchConfig::default());
            ring.run_for(SECOND);
            ring.cut_both(a, b);
            ring.run_for(Span(12 * SECOND.0));
            assert_eq!(ring.verdicts(), vec![Some((a.max(b), a.min(b))); usize::from(nodes)]);
            let mutual = |(_, event): &(Time, Event)| matches!(event, Event::Lost { mutual: true, .. });
            assert!(ring.events[usize::from(a.max(b))].iter().any(mutual), "it is told as one of the two");
        }
    }
}

/// Also where it has the smallest number, and its neighbours find that at different times.
#[test]
fn a_node_that_is_silent_to_all_is_the_lost_one() {
    for silent in 0..5 {
        let mut ring = Ring::new(5, 0, WatchConfig::default());
        ring.run_for(Span::from_ms(1_100 + 70 * silent));
        ring.state[silent as usize] = State::Stopped;
        ring.run_for(Span(12 * SECOND.0));
        let verdicts = ring.verdicts();
        for node in (0..5).filter(|node| *node != silent as usize) {
            assert_eq!(verdicts[node].map(|(lost, _)| lost), Some(silent as u16), "{verdicts:?}");
        }
    }
}

#[test]
fn a_node_that_answers_pings_is_never_lost_for_what_it_owes() {
    let mut ring = Ring::new(4, 20, WatchConfig::default());
    ring.owed = vec![(0, 2, Time(0)), (1, 3, Time(0))];
    ring.run_for(Span(120 * SECOND.0));
    assert!((0..4).all(|node| ring.losses(node).is_empty()), "{:?}", ring.events);
}

#[test]
fn a_cut_that_passes_is_warned_about_and_forgotten() {
    let mut ring = Ring::new(4, 0, WatchConfig::default());
    ring.cut_both(0, 2);
    ring.owed = vec![(0, 2, Time(0))];
    ring.run_for(Span(6 * SECOND.0));
    assert!(matches!(ring.events[0][..], [(_, Event::Warn { node: NodeId(2), .. })]), "{:?}", ring.events[0]);
    (ring.cut, ring.owed) = (Vec::new(), Vec::new());
    ring.run_for(Span(20 * SECOND.0));
    assert!(matches!(ring.events[0][..], [_, (_, Event::Back { node: NodeId(2) })]), "{:?}", ring.events[0]);
    assert_eq!(ring.nodes[0].watched.len(), 2, "only the neighbours are watched again");
    assert_eq!(ring.all_events(), 2);
}

#[test]
fn without_a_limit_a_cut_is_only_warned_about() {
    let mut ring = Ring::new(4, 0, WatchConfig { fatal: None, ..WatchConfig::default() });
    ring.cut_both(0, 2);
    ring.owed = vec![(0, 2, Time(0))];
    ring.run_for(Span(300 * SECOND.0));
    assert!(matches!(ring.events[0][..], [(_, Event::Warn { node: NodeId(2), .. })]), "{:?}", ring.events[0]);
}

#[test]
fn what_needs_long_datagrams_does_not_wait_for_ever_where_only_short_ones_get_through() {
    // Node 2 is no neighbour of node 0; node 1 is.
    for from in [1, 2] {
        let mut ring = Ring::new(4, 0, WatchConfig { longest: 9_000, ..WatchConfig::default() });
        ring.longest = 1_400;
        ring.owed = vec![(0, from, Time(0))];
        ring.run_for(Span(9 * SECOND.0));
        let told =
            |(at, event): &(Time, Event)| *event == Event::OnlyShort { node: NodeId(from) } && *at < Time(8 * SECOND.0);
        assert!(ring.events[0].iter().any(told), "{:?}", ring.events[0]);
        assert_eq!(ring.verdicts(), [None; 4], "too soon");
        ring.run_for(Span(3 * SECOND.0));
        assert_eq!(ring.verdicts(), [Some((from, 0)); 4]);
        assert_eq!(ring.losses(3), [(NodeId(from), LossCause::OnlyShort)]);
    }
}

#[test]
fn a_process_that_was_stopped_while_it_waited_blames_nobody() {
    for waited_before in [false, true] {
        let mut detector = Detector::new(NodeId(0), 4, WatchConfig::default(), Time(0));
        let owed = [(NodeId(2), Time(0))];
        if waited_before {
            detector.unanswered(Time(0) + Span::from_ms(1_100), &owed);
        }
        let late = Time(0) + Span(60 * SECOND.0);
        detector.unanswered(late, &owed);
        detector.on_timeout(late);
        detector.on_timeout(late + Span::from_ms(400));
        let events: Vec<Event> = std::iter::from_fn(|| detector.poll_event()).collect();
        assert!(!events.iter().any(|event| matches!(event, Event::Lost { .. })), "{events:?}");
        assert_eq!(detector.accusations, [], "{waited_before}");
    }
}

#[test]
fn accusations_are_read_as_they_were_written() {
    for why in [LossCause::Silent { ms: 10_050 }, LossCause::OnlyShort] {
        let message = WatchMessage::Accused { node: NodeId(3), reporter: NodeId(1), why };
        assert_eq!(WatchMessage::parse(message.ty(), &message.emit()), Ok(message));
    }
    let message = WatchMessage::Accused { node: NodeId(3), reporter: NodeId(1), why: LossCause::PortClosed };
    assert!(WatchMessage::parse(message.ty(), &message.emit()).is_err(), "a closed port needs no verdict");
}
