//! Whether the other nodes are still alive and can be reached: a failure detector of heartbeats in a ring, and of what
//! is not answered.
//!
//! Every node pings its two neighbours in the ring of living nodes, so each node is watched by two and the traffic
//! of a node does not grow with the job. A network may also be cut between two nodes that are no neighbours, or one way
//! only. So whoever has sent something to a node again and again for a second, without any answer, watches that node
//! too until there is one ([`Detector::unanswered`]). There only answers to this node's own pings count: what else is
//! heard tells nothing of the way there. A node that computes, or has no room for a message, answers pings. Evidence
//! comes in two kinds:
//!
//! - *direct*: a closed port, the launcher's word, the node's own farewell. It counts at once, but for a closed port,
//!   which may be that of a node that ended for the loss of another: it counts if 100 ms later nobody has told of that.
//! - *silence*: a warning after two seconds, a loss after the job's limit (ten seconds; none under a debugger).
//!   Everything a node sends counts as a sign of life, and only time in which this node itself was awake counts
//!   as silence: a process that was stopped does not blame the others for it.
//!
//! Silence parts two nodes, and one of them alone cannot tell which is to blame. So its finder *accuses* the other, and
//! tells all. Whoever hears of that and has not heard one of the two for long joins in. All wait a while
//! ([`verdict::VERDICT_GRACE`]) and come to the same verdict: lost is the node in most of the pairs that do not reach
//! each other, and of several the one with the greatest number.
//!
//! Who finds a loss tells all nodes, three times; who hears of one tells the nodes at distance 1, 2, 4, … in both
//! directions; and PING and PONG carry the number of nodes gone, so that neighbours who know more hand it on. A node
//! that is lost stays lost: its part of the shared memory is gone. It is told so itself, and gets [`Event::Lost`] with
//! its own number when it wakes.
//!
//! A network may drop long packets without a word, and all that is heard is short. So each pair of neighbours also
//! exchanges pings as long as a packet may be, until one is answered; [`Event::OnlyShort`] tells where none is. So does
//! who watches a node for what it has not answered; and if that stays so, the two are parted as by silence.
//!
//! At the end of a job ports close in the best order. So a node that enters the closing barrier says
//! [`Detector::closing`], and from then on a closed port counts only if no farewell comes within a second. Past the
//! barrier it says
//! [`Detector::closed`]: no closed port counts any more, whoever tells of it, for farewells get lost too. When it ends,
//! it says [`Detector::leave`].
//!
//! # Polling
//!
//! As in [`super::startup`]: after every call take all of [`Detector::poll_transmit`] and [`Detector::poll_event`], and
//! call [`Detector::on_timeout`] when [`Detector::next_timeout`] says. A node that ends because of a loss
//! first sends what is left to transmit, so that the others learn of the cause and not of the consequence.

mod verdict;

use super::watch::{LossCause, WatchMessage};
use crate::ids::NodeId;
use crate::rules::Rule;
use crate::time::{Span, Time};
use crate::wire::bytes::WireError;
use crate::wire::header::MsgType;
use std::collections::VecDeque;
use verdict::Accusation;

/// The detector's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchConfig {
    /// Between two pings to a neighbour.
    pub interval: Span,
    /// A silence that is worth a warning.
    pub warn: Span,
    /// A silence that counts as a loss; `None` never.
    pub fatal: Option<Span>,
    /// Bytes of the longest body that one datagram takes; 0 where it need not be tried whether that gets through.
    pub longest: usize,
}

impl WatchConfig {
    /// What has not been answered for so long is told to [`Detector::unanswered`].
    pub fn ask_after(&self) -> Span {
        self.fatal.map_or(ASK_AFTER, |fatal| Span(ASK_AFTER.0.min(fatal.0 / 4)))
    }

    /// So long a silence supports another node's accusation.
    fn joins_after(&self) -> Span {
        self.fatal.map_or(self.warn, |fatal| Span(self.warn.0.min(fatal.0 / 2)))
    }
}

impl Default for WatchConfig {
    fn default() -> WatchConfig {
        WatchConfig {
            interval: Span::from_ms(500),
            warn: Span::from_ms(2_000),
            fatal: Some(Span::from_ms(10_000)),
            longest: 0,
        }
    }
}

/// What the caller should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A node has been silent for a while; perhaps it is stopped, or its network is.
    Warn {
        /// The node.
        node: NodeId,
        /// For how long.
        silent: Span,
    },
    /// A node that was warned about was heard again.
    Back {
        /// The node.
        node: NodeId,
    },
    /// Short datagrams to a node are answered, the longest are not.
    OnlyShort {
        /// The node.
        node: NodeId,
    },
    /// A node is gone for good. This node itself, when the others gave it up.
    Lost {
        /// The node.
        node: NodeId,
        /// Why.
        why: LossCause,
        /// Who found out; where the two do not reach each other, the other one.
        reporter: NodeId,
        /// This node is the lost one, and has come to that verdict together with the others: it is not stopped.
        mutual: bool,
        /// Several nodes have found it silent: it is not a single way that is cut.
        by_several: bool,
    },
}

/// A datagram to send to a node's service thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The receiver.
    pub to: NodeId,
    /// The type in its header.
    pub ty: MsgType,
    /// What stands behind the header.
    pub body: Vec<u8>,
}

/// When a loss is told again, after the first time.
const REPEATS: [Span; 2] = [Span::from_ms(100), Span::from_ms(300)];
/// How long a closed port waits for the farewell during the closing barrier.
const FAREWELL_GRACE: Span = Span::from_ms(1_000);
/// How long a closed port waits for word of a loss, of which it may be the consequence: who ends for a loss has told of
/// that before.
const CAUSE_GRACE: Span = Span::from_ms(100);
/// How long what was sent waits for an answer before its receiver is asked whether it is there.
const ASK_AFTER: Span = Span::from_ms(1_000);
/// That is noticed no later than this.
const ASK_LATE: Span = Span::from_ms(200);
/// So many short pings are answered before it is said that no long one was.
const SHORT_ANSWERS: u32 = 10;
/// Lateness beyond this means that this process was stopped.
const LATE: Span = Span::from_ms(250);
/// Pings in the time of one, to a node that owes an answer and is silent.
const PRESSING: u64 = 5;
/// Most losses told at a time; when half the network is gone, the first few say enough, and PONGs bring the rest.
const RUMOURS_MAX: usize = 8;
/// In a larger job a farewell goes to the nodes at distance 1, 2, 4 … only, for all nodes leave at once.
const TOLD_ALL_MAX: usize = 32;
/// Most losses handed to a neighbour that knows of fewer, in answer to one message.
const HAND_ON_MAX: usize = 16;

/// What the end of a node that is done looks like to those that missed its farewell.
fn ends_well(why: &LossCause) -> bool {
    matches!(why, LossCause::PortClosed | LossCause::Exited { status: 0 })
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Status {
    Alive,
    Gone { why: LossCause, reporter: NodeId },
}

/// A neighbour in the ring, or a node that owes this one an answer.
#[derive(Clone, Copy, Debug)]
struct Watched {
    node: NodeId,
    is_neighbour: bool,
    heard: Time,
    /// When it last answered a ping, or nothing was asked yet.
    answered: Time,
    /// Since when it owes an answer to something else.
    owes_since: Option<Time>,
    warned: bool,
    /// Answers to short pings, while it is not known whether long ones get through.
    short: Option<u32>,
    /// None did.
    only_short: bool,
}

impl Watched {
    fn new(node: NodeId, now: Time) -> Watched {
        Watched {
            node,
            is_neighbour: false,
            heard: now,
            answered: now,
            owes_since: None,
            warned: false,
            short: None,
            only_short: false,
        }
    }

    /// Since when it has been silent, as far as that says something.
    fn silent_since(&self) -> Option<Time> {
        let neighbour = self.is_neighbour.then_some(self.heard);
        neighbour.into_iter().chain(self.owes_since.map(|since| since.max(self.answered))).min()
    }
}

/// What is told to others.
#[derive(Clone, Copy, Debug)]
enum News {
    Gone(NodeId),
    Accused { node: NodeId, reporter: NodeId },
}

/// A loss or an accusation that is being told.
#[derive(Debug)]
struct Rumour {
    news: News,
    to_all: bool,
    told: usize,
    at: Time,
}

/// One node's view of who is alive.
#[derive(Debug)]
pub struct Detector {
    me: NodeId,
    config: WatchConfig,
    nodes: Vec<Status>,
    gone: u16,
    watched: Vec<Watched>,
    /// When somebody is pinged next, and when all are.
    ping_at: Time,
    regular_at: Time,
    /// Closed ports that wait for a farewell.
    suspects: Vec<(NodeId, Time)>,
    rumours: Vec<Rumour>,
    accusations: Vec<Accusation>,
    /// Those whom this node has accused.
    accused_by_me: Vec<NodeId>,
    verdict_at: Option<Time>,
    /// Where the next account of nodes gone begins.
    handed_on: usize,
    closing: bool,
    closed: bool,
    left: bool,
    out: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Detector {
    /// Watches the others of a job of `nodes` nodes from node `me`.
    pub fn new(me: NodeId, nodes: usize, config: WatchConfig, now: Time) -> Detector {
        let mut detector = Detector {
            me,
            config,
            nodes: vec![Status::Alive; nodes],
            gone: 0,
            watched: Vec::new(),
            ping_at: now + config.interval,
            regular_at: now + config.interval,
            suspects: Vec::new(),
            rumours: Vec::new(),
            accusations: Vec::new(),
            accused_by_me: Vec::new(),
            verdict_at: None,
            handed_on: 0,
            closing: false,
            closed: false,
            left: false,
            out: VecDeque::new(),
            events: VecDeque::new(),
        };
        detector.choose_neighbours(now);
        detector
    }

    fn is_alive(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()) == Some(&Status::Alive)
    }

    /// The next living nodes before and behind this one.
    fn choose_neighbours(&mut self, now: Time) {
        let (me, count) = (self.me.index(), self.nodes.len());
        let at = |distance: usize| NodeId(((me + distance) % count) as u16);
        let next = (1..count).map(at).find(|&node| self.is_alive(node));
        let previous = (1..count).rev().map(at).find(|&node| self.is_alive(node));
        let chosen = [next, previous];
        let alive = |node: NodeId| self.nodes.get(node.index()) == Some(&Status::Alive);
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|watched| {
            alive(watched.node) && (watched.owes_since.is_some() || chosen.contains(&Some(watched.node)))
        });
        let short = (self.config.longest > 0).then_some(0);
        for node in chosen.into_iter().flatten() {
            if watched.iter().all(|watched| watched.node != node) {
                watched.push(Watched { short, ..Watched::new(node, now) });
            }
        }
        watched.iter_mut().for_each(|watched| watched.is_neighbour = chosen.contains(&Some(watched.node)));
        self.watched = watched;
    }

    /// Something came from `node`, anything. Costs a few comparisons.
    pub fn heard(&mut self, now: Time, node: NodeId) {
        // Whoever says that its port is closed need not be its host. If it is gone, the next message to it tells that
        // again.
        self.suspects.retain(|(suspect, _)| *suspect != node);
        for index in 0..self.watched.len() {
            let watched = &mut self.watched[index];
            if watched.node == node {
                watched.heard = watched.heard.max(now);
                self.look_who_is_back(now, index);
            }
        }
    }

    /// Whether a node that was warned about is silent no longer.
    fn look_who_is_back(&mut self, now: Time, index: usize) {
        let watched = &mut self.watched[index];
        let silent = watched.silent_since().is_some_and(|since| now - since >= self.config.warn);
        if watched.warned && !silent {
            watched.warned = false;
            self.events.push_back(Event::Back { node: watched.node });
        }
    }

    /// Nodes that owe this one an answer to something that it has sent again and again, and since when (a node may
    /// occur several times): all of them, each time, as far as it is longer ago than [`WatchConfig::ask_after`].
    pub fn unanswered(&mut self, now: Time, waiting: &[(NodeId, Time)]) {
        if self.left || !Rule::WaitersWatch.on() {
            return;
        }
        for index in (0..self.watched.len()).rev() {
            let watched = &mut self.watched[index];
            if watched.owes_since.is_some() && waiting.iter().all(|(node, _)| *node != watched.node) {
                watched.owes_since = None;
                self.look_who_is_back(now, index);
                if !self.watched[index].is_neighbour {
                    self.watched.remove(index);
                }
            }
        }
        for &(node, _) in waiting {
            let since = waiting.iter().filter(|(other, _)| *other == node).map(|(_, since)| *since).min();
            if let Some(since) = since.filter(|_| node != self.me && self.is_alive(node)) {
                self.owes(now, node, since);
            }
        }
    }

    fn owes(&mut self, now: Time, node: NodeId, since: Time) {
        let known = self.watched.iter().position(|watched| watched.node == node);
        if let Some(old) = known.and_then(|index| self.watched[index].owes_since.as_mut()) {
            // Later, when something has been answered meanwhile.
            *old = (*old).max(since);
            return;
        }
        // This process may have been stopped meanwhile, which nobody else is to blame for.
        let before = self.config.ask_after().0 + ASK_LATE.0;
        let since = since.max(Time(now.0.saturating_sub(before)));
        let index = known.unwrap_or_else(|| {
            self.watched.push(Watched::new(node, since));
            self.watched.len() - 1
        });
        let watched = &mut self.watched[index];
        watched.owes_since = Some(since);
        if self.config.longest > 0 && !watched.only_short {
            watched.short = watched.short.or(Some(0));
        }
        if !watched.is_neighbour {
            self.ping(index);
        }
    }

    fn ping(&mut self, index: usize) {
        let Watched { node, short, .. } = self.watched[index];
        self.send(node, &WatchMessage::Ping { gone: self.gone, filling: 0 });
        if short.is_some() {
            let filling = self.config.longest - std::mem::size_of_val(&self.gone);
            self.send(node, &WatchMessage::Ping { gone: self.gone, filling });
        }
    }

    /// Direct evidence that `node` is gone: a closed port, the launcher's word.
    pub fn evidence(&mut self, now: Time, node: NodeId, why: LossCause) {
        if !self.is_alive(node) || self.left || self.is_past(&why) {
            return;
        }
        let grace = match why {
            _ if self.closing && ends_well(&why) => FAREWELL_GRACE,
            LossCause::PortClosed => CAUSE_GRACE,
            _ => return self.lose(now, node, why, self.me),
        };
        if self.suspects.iter().all(|(suspect, _)| *suspect != node) {
            self.suspects.push((node, now + grace));
        }
    }

    /// This node has arrived at the job's closing barrier; the others may be gone before it hears of the barrier's end.
    pub fn closing(&mut self) {
        self.closing = true;
    }

    /// This node is past the closing barrier: the others are too, or need nothing from anybody to pass it.
    pub fn closed(&mut self) {
        self.closed = true;
        self.suspects.clear();
    }

    /// Whether a node may be gone for this cause, since all is done.
    fn is_past(&self, why: &LossCause) -> bool {
        self.closed && ends_well(why)
    }

    /// Whether a node has said farewell: then every node had arrived at the closing barrier.
    pub fn someone_left(&self) -> bool {
        self.nodes.iter().any(|status| matches!(status, Status::Gone { why: LossCause::Left, .. }))
    }

    /// This node ends as it should, after the closing barrier: it says farewell, and nothing is a loss any more.
    pub fn leave(&mut self, now: Time) {
        self.farewell(now, LossCause::Left);
    }

    /// The same where all nodes are known to be past the closing barrier: nobody has to be told.
    pub fn leave_without_a_word(&mut self) {
        self.fall_silent(LossCause::Left);
    }

    /// This node ends with an error of its own: it tells the others why.
    pub fn stop(&mut self, now: Time, why: &str) {
        let why = super::message::fit(why, super::message::REASON_MAX);
        self.farewell(now, LossCause::Stopped(why));
    }

    fn farewell(&mut self, now: Time, why: LossCause) {
        let to_all = why != LossCause::Left || self.nodes.len() <= TOLD_ALL_MAX;
        if self.fall_silent(why) {
            self.tell(now, News::Gone(self.me), to_all);
        }
    }

    /// From now on nothing is a loss; whether something was before.
    fn fall_silent(&mut self, why: LossCause) -> bool {
        if std::mem::replace(&mut self.left, true) {
            return false;
        }
        self.watched.clear();
        self.suspects.clear();
        self.rumours.clear();
        self.accusations.clear();
        self.verdict_at = None;
        if let Some(status) = self.nodes.get_mut(self.me.index()) {
            *status = Status::Gone { why, reporter: self.me };
        }
        true
    }

    /// Takes a datagram of type 13 to 15 that came from `from`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; they have had no effect.
    pub fn on_datagram(&mut self, now: Time, from: NodeId, ty: MsgType, body: &[u8]) -> Result<(), WireError> {
        let message = WatchMessage::parse(ty, body)?;
        if from.index() >= self.nodes.len() {
            return Err(WireError::BadValue("node number"));
        }
        self.heard(now, from);
        match message {
            WatchMessage::Ping { gone, filling } => {
                self.send(from, &WatchMessage::Pong { gone: self.gone, filling });
                self.hand_on(from, gone);
            }
            WatchMessage::Pong { gone, filling } => {
                self.hand_on(from, gone);
                self.on_answer(now, from, filling);
            }
            WatchMessage::Lost { node, .. } | WatchMessage::Accused { node, .. }
                if node.index() >= self.nodes.len() =>
            {
                return Err(WireError::BadValue("node number"));
            }
            WatchMessage::Lost { node, reporter, why } => {
                if self.is_alive(node) && !self.left && !self.is_past(&why) {
                    // Others come to the verdict a little sooner.
                    let count = self.accusations.iter().filter(|accusation| accusation.concerns(node)).count();
                    let verdict = (why.parts_two() && count > 0).then_some(count > 1);
                    self.lose_by(now, node, why, reporter, verdict);
                }
            }
            WatchMessage::Accused { node, reporter, why } => self.on_accusation(now, node, reporter, why)?,
        }
        Ok(())
    }

    fn on_answer(&mut self, now: Time, from: NodeId, filling: usize) {
        let Some(index) = self.watched.iter().position(|watched| watched.node == from) else { return };
        let enough = self.short_answers(&self.watched[index]);
        let watched = &mut self.watched[index];
        watched.answered = watched.answered.max(now);
        watched.only_short &= filling == 0;
        watched.short = watched.short.map(|short| short + 1).filter(|_| filling == 0);
        if watched.short.is_some_and(|short| short >= enough) {
            (watched.short, watched.only_short) = (None, true);
            self.events.push_back(Event::OnlyShort { node: from });
        }
        self.look_who_is_back(now, index);
    }

    /// After so many short answers, and no long one, it is clear that none comes. Fewer are enough before the job ends
    /// for that.
    fn short_answers(&self, watched: &Watched) -> u32 {
        let until_end = self.config.fatal.filter(|_| watched.owes_since.is_some());
        let pings = until_end.map_or(SHORT_ANSWERS, |fatal| (fatal.0 / self.config.interval.0.max(1)) as u32);
        pings.saturating_sub(2).clamp(3, SHORT_ANSWERS)
    }

    /// What a node is accused of. It is the limit that is told, so that all who find the same say the same.
    fn silence(&self) -> LossCause {
        let limit = self.config.fatal.unwrap_or(self.config.warn);
        LossCause::Silent { ms: u32::try_from(limit.0 / 1_000_000).unwrap_or(u32::MAX) }
    }

    /// Tells a node that knows of fewer losses about all of them, and one that is itself given up about that.
    fn hand_on(&mut self, to: NodeId, known_there: u16) {
        if self.left {
            return;
        }
        let news: Vec<NodeId> = match self.nodes.get(to.index()) {
            Some(Status::Gone { .. }) => vec![to],
            _ if known_there < self.gone => self.next_news(),
            _ => return,
        };
        for node in news {
            self.send_lost(to, node);
        }
    }

    /// Some of the nodes that are gone; with every call the ones after those of the last.
    fn next_news(&mut self) -> Vec<NodeId> {
        let gone: Vec<NodeId> = self.gone_nodes().collect();
        let first = self.handed_on % gone.len().max(1);
        self.handed_on = first + HAND_ON_MAX;
        gone.iter().cycle().skip(first).take(HAND_ON_MAX.min(gone.len())).copied().collect()
    }

    fn gone_nodes(&self) -> impl Iterator<Item = NodeId> {
        let numbered = self.nodes.iter().zip(0..);
        numbered.filter(|(status, _)| **status != Status::Alive).map(|(_, node)| NodeId(node))
    }

    fn send(&mut self, to: NodeId, message: &WatchMessage) {
        self.out.push_back(Transmit { to, ty: message.ty(), body: message.emit() });
    }

    fn send_lost(&mut self, to: NodeId, node: NodeId) {
        if let Some(Status::Gone { why, reporter }) = self.nodes.get(node.index()) {
            let message = WatchMessage::Lost { node, reporter: *reporter, why: why.clone() };
            self.send(to, &message);
        }
    }

    fn lose(&mut self, now: Time, node: NodeId, why: LossCause, reporter: NodeId) {
        self.lose_by(now, node, why, reporter, None);
    }

    fn lose_by(&mut self, now: Time, node: NodeId, why: LossCause, reporter: NodeId, verdict: Option<bool>) {
        let (by_several, mutual) = (verdict == Some(true), node == self.me && verdict.is_some());
        let farewell = why == LossCause::Left;
        if let Some(status) = self.nodes.get_mut(node.index()) {
            *status = Status::Gone { why: why.clone(), reporter };
        }
        self.gone += 1;
        self.suspects.retain(|(suspect, _)| *suspect != node);
        self.accusations.retain(|accusation| !accusation.concerns(node));
        self.choose_neighbours(now);
        if !farewell {
            self.tell(now, News::Gone(node), reporter == self.me);
            self.events.push_back(Event::Lost { node, why, reporter, mutual, by_several });
        }
    }

    fn tell(&mut self, now: Time, news: News, to_all: bool) {
        if self.rumours.len() >= RUMOURS_MAX {
            return;
        }
        self.tell_once(news, to_all);
        self.rumours.push(Rumour { news, to_all, told: 0, at: now + REPEATS[0] });
    }

    fn tell_once(&mut self, news: News, to_all: bool) {
        let (me, count) = (self.me.index(), self.nodes.len());
        let mut listeners: Vec<NodeId> = if to_all {
            NodeId::all(count).collect()
        } else {
            let distances = std::iter::successors(Some(1), |d| Some(d * 2)).take_while(|&d| d < count);
            distances.flat_map(|d| [(me + d) % count, (me + count - d) % count]).map(|n| NodeId(n as u16)).collect()
        };
        listeners.sort_unstable();
        listeners.dedup();
        for to in listeners {
            match news {
                // The lost node is told too: it may only have been asleep.
                News::Gone(node) if to != self.me && (to == node || self.is_alive(to)) => self.send_lost(to, node),
                News::Accused { node, reporter } if to != self.me => self.send_accusation(to, node, reporter),
                _ => {}
            }
        }
    }

    /// When to call [`Detector::on_timeout`]; `None` when nothing can become due.
    pub fn next_timeout(&self) -> Option<Time> {
        let ping = (!self.left && !self.watched.is_empty()).then_some(self.ping_at);
        let suspects = self.suspects.iter().map(|(_, at)| *at);
        let rumours = self.rumours.iter().map(|rumour| rumour.at);
        let silence = self.watched.iter().filter_map(|watched| self.silence_at(watched));
        ping.into_iter().chain(suspects).chain(rumours).chain(silence).chain(self.verdict_at).min()
    }

    fn silence_at(&self, watched: &Watched) -> Option<Time> {
        let since = watched.silent_since()?;
        let warning = (!watched.warned).then_some(since + self.config.warn);
        // Who is accused already waits for the verdict.
        let fatal = self.config.fatal.filter(|_| !self.accused_by_me.contains(&watched.node));
        let owes = watched.owes_since.filter(|_| watched.only_short);
        warning.into_iter().chain(fatal.map(|span| since + span)).chain(fatal.zip(owes).map(|(a, b)| b + a)).min()
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Time) {
        let Some(due) = self.next_timeout().filter(|due| *due <= now) else { return };
        let late = now - due;
        if late > LATE {
            for watched in &mut self.watched {
                watched.heard = (watched.heard + late).min(now);
                watched.answered = (watched.answered + late).min(now);
                watched.owes_since = watched.owes_since.map(|since| (since + late).min(now));
            }
        }
        self.repeat_rumours(now);
        self.judge_suspects(now);
        self.judge_silence(now);
        self.come_to_verdict(now);
        if self.ping_at <= now && !self.left {
            self.ping_all(now);
        }
    }

    /// Pings whoever is watched. A node that owes an answer, and has not answered the last ping, is asked more often
    /// until
    /// it does: where a network loses many packets, a few lost ones should not look like silence.
    fn ping_all(&mut self, now: Time) {
        let interval = self.config.interval;
        // How many short answers come while no long one does is counted, so those are not multiplied.
        let is_pressing = |watched: &Watched| {
            watched.short.is_none()
                && watched.owes_since.is_some_and(|since| now - since.max(watched.answered) >= interval)
        };
        let is_pressed = self.watched.iter().any(is_pressing);
        let is_regular = self.regular_at <= now;
        for index in 0..self.watched.len() {
            if is_regular || is_pressing(&self.watched[index]) {
                self.ping(index);
            }
        }
        if is_regular {
            self.regular_at = now + interval;
        }
        self.ping_at =
            if is_pressed { self.regular_at.min(now + Span(interval.0 / PRESSING)) } else { self.regular_at };
    }

    fn repeat_rumours(&mut self, now: Time) {
        for mut rumour in std::mem::take(&mut self.rumours) {
            if rumour.at <= now {
                self.tell_once(rumour.news, rumour.to_all);
                rumour.told += 1;
                match REPEATS.get(rumour.told) {
                    Some(&span) => rumour.at = now + span,
                    None => continue,
                }
            }
            self.rumours.push(rumour);
        }
    }

    /// One at a time: after the first the caller may be past the closing barrier.
    fn judge_suspects(&mut self, now: Time) {
        if let Some(index) = self.suspects.iter().position(|(_, at)| *at <= now) {
            let (node, _) = self.suspects.swap_remove(index);
            self.lose(now, node, LossCause::PortClosed, self.me);
        }
    }

    fn judge_silence(&mut self, now: Time) {
        for watched in self.watched.clone() {
            let (node, Some(since)) = (watched.node, watched.silent_since()) else { continue };
            let silent = now - since;
            let owes = watched.owes_since.filter(|_| watched.only_short).map(|since| now - since);
            if self.config.fatal.is_some_and(|fatal| silent >= fatal) {
                self.accuse(now, node, self.silence());
            } else if self.config.fatal.zip(owes).is_some_and(|(fatal, owes)| owes >= fatal) {
                self.accuse(now, node, LossCause::OnlyShort);
            } else if silent >= self.config.warn && !watched.warned {
                self.events.push_back(Event::Warn { node, silent });
                self.watched.iter_mut().filter(|w| w.node == node).for_each(|w| w.warned = true);
            }
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
