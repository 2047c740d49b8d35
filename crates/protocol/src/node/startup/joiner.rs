//! A process that is not node zero, or not yet.
//!
//! ```text
//!  Seek --(five time-outs)--> becomes node zero        (discover)
//!   |  WAKEUP, "wait"
//!   v
//!  Ask --JOIN_ACK--> Wait --first HELLO(0)--> Hello --second HELLO(0)--> Running
//!   ^                 |
//!  NoAddress          +--"yielded", node zero gone--> Seek   (discover)
//! ```
//!
//! The joiner is the one who repeats: until the start it asks node zero again and again, and each answer
//! brings it as far as node zero is. Whatever is lost on the way is thereby sent again.

use super::core::{Config, Core, Event, Missing, Mode, Phase, StartError, To, Waits};
use crate::ids::NodeId;
use crate::node::identity::Refusal;
use crate::node::message::{Answer, Hello, Intent, Join, Ready, StartMessage, UNHEARD_MAX, Verdict, Wakeup};
use crate::node::table::{Member, Membership};
use crate::time::{Span, Time};
use std::net::SocketAddr;

/// The first time-out of the search; five of them, each twice as long, come to 1.24 s (DSM/IP: about 1.25).
const SEEK_FIRST: Span = Span::from_ms(40);
const SEEK_TRIES: u32 = 5;
/// A searching process leaves a node zero that is silent so long and searches again.
const ZERO_SILENCE: Span = Span::from_ms(5_000);
/// How long a node that has everything else waits for the multicast probe.
const MULTICAST_GRACE: Span = Span::from_ms(200);

/// What a joiner should become.
pub(super) enum Then {
    Stay,
    BecomeZero,
}

/// A place in a job.
#[derive(Clone, Debug)]
struct Seat {
    zero: SocketAddr,
    node: NodeId,
    job: u64,
    prog: u16,
}

#[derive(Debug)]
enum State {
    /// Broadcasting JOIN.
    Seek { tries: u32 },
    /// Waiting for the launcher to say where node zero is.
    NoAddress,
    /// Asking this node zero for a place.
    Ask { zero: SocketAddr },
    /// Has a place, waits for the others.
    Wait(Seat),
    /// Learns who the others are.
    Hello(Seat, Introductions),
    /// Done.
    Running(Seat),
    /// Ended without a job.
    Over,
}

#[derive(Debug)]
struct Introductions {
    have: Vec<bool>,
    table: Vec<Option<Member>>,
    /// Nodes to hear from, once the table is complete.
    unheard: Vec<NodeId>,
    introduced: bool,
    heard_multicast: bool,
    multicast_until: Time,
}

#[derive(Debug)]
pub(super) struct Joiner {
    state: State,
    /// How often node zero was asked since it last said something new, and when to ask again.
    tries: u32,
    at: Time,
    /// When node zero was last heard, or the search began.
    heard: Time,
    /// The job that this process gathered before it gave way to another node zero.
    yielded: Option<u64>,
    /// Whether the multicast probe came; it may overtake the table.
    heard_multicast: bool,
}

impl Joiner {
    pub fn new(now: Time, core: &mut Core) -> Joiner {
        let state = match core.config.mode {
            Mode::Launched { zero: None, .. } => State::NoAddress,
            Mode::Launched { zero: Some(zero), .. } | Mode::Join { zero } => State::Ask { zero },
            Mode::Discover | Mode::Serve => State::Seek { tries: 0 },
        };
        let mut joiner = Joiner { state, tries: 0, at: now, heard: now, yielded: None, heard_multicast: false };
        joiner.poll(now, core);
        joiner
    }

    /// A node zero that met another one and gives way to it.
    pub fn yielding(now: Time, core: &mut Core, to: SocketAddr, job: u64) -> Joiner {
        let state = State::Ask { zero: to };
        let mut joiner = Joiner { state, tries: 0, at: now, heard: now, yielded: Some(job), heard_multicast: false };
        joiner.poll(now, core);
        joiner
    }

    pub fn set_zero(&mut self, now: Time, core: &mut Core, zero: SocketAddr) {
        if matches!(self.state, State::NoAddress) {
            self.state = State::Ask { zero };
            self.progress(now);
            self.poll(now, core);
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Something new was said: ask again soon if nothing follows.
    fn progress(&mut self, now: Time) {
        self.heard = now;
        self.tries = 0;
    }

    fn seat(&self) -> Option<&Seat> {
        match &self.state {
            State::Wait(seat) | State::Hello(seat, _) | State::Running(seat) => Some(seat),
            _ => None,
        }
    }

    fn is_zero(&self, from: SocketAddr) -> bool {
        self.seat().is_some_and(|seat| seat.zero == from)
    }

    /// Asks for what is missing, and sets the time for asking again.
    fn poll(&mut self, now: Time, core: &mut Core) {
        match &mut self.state {
            State::Seek { tries } => {
                self.at = now + core.chance.about(Span(SEEK_FIRST.0 << *tries));
                *tries += 1;
                core.send_join(now, To::Broadcast, Intent::Ask);
                return;
            }
            State::Ask { zero } => core.send_join(now, To::Address(*zero), Intent::Ask),
            State::Wait(seat) => {
                let intent = Intent::Confirm { job: seat.job, node: seat.node };
                core.send_join(now, To::Address(seat.zero), intent);
            }
            State::Hello(seat, introductions) => introductions.ask(now, core, seat),
            State::NoAddress | State::Running(_) | State::Over => return,
        }
        self.at = now + core.patience(self.tries);
        self.tries += 1;
        if let State::Hello(_, introductions) = &self.state {
            self.at = introductions.wake(now, self.at);
        }
    }

    pub fn next_timeout(&self, core: &Core) -> Option<Time> {
        let deadline = core.config.deadline.map(|span| self.heard + span);
        match self.state {
            State::Running(_) | State::Over => None,
            State::Seek { .. } => Some(self.at),
            State::NoAddress => deadline,
            _ => Some(deadline.map_or(self.at, |deadline| deadline.min(self.at))),
        }
    }

    pub fn on_timeout(&mut self, now: Time, core: &mut Core) -> Then {
        if self.next_timeout(core).is_none_or(|at| at > now) {
            return Then::Stay;
        }
        if let State::Seek { tries: SEEK_TRIES } = self.state {
            return Then::BecomeZero;
        }
        let searching = matches!(self.state, State::Seek { .. });
        if !searching && core.config.deadline.is_some_and(|span| self.heard + span <= now) {
            self.time_out(core);
            return Then::Stay;
        }
        let silent = now - self.heard >= ZERO_SILENCE;
        if silent && core.discovers() && matches!(self.state, State::Ask { .. } | State::Wait(_)) {
            self.seek_again(now);
        }
        if self.at <= now || silent {
            self.poll(now, core);
        }
        Then::Stay
    }

    fn seek_again(&mut self, now: Time) {
        self.state = State::Seek { tries: 0 };
        self.progress(now);
    }

    /// In which part of start-up this is, and node zero as far as it is known.
    fn missing(&self) -> (Phase, Missing) {
        let zero = Missing { node: NodeId(0), process: None, unheard: Vec::new() };
        match &self.state {
            State::NoAddress => (Phase::Address, zero),
            State::Hello(_, i) => (Phase::Hello, i.zero_entry().unwrap_or(zero)),
            _ => (Phase::Join, zero),
        }
    }

    pub fn waits_for(&self, core: &Core) -> Option<Waits> {
        let zero = match &self.state {
            State::Running(_) | State::Over => return None,
            State::Seek { .. } | State::NoAddress => None,
            State::Ask { zero } => Some(*zero),
            State::Wait(seat) | State::Hello(seat, _) => Some(seat.zero),
        };
        let launched = match core.config.mode {
            Mode::Launched { node, .. } => Some(node),
            _ => None,
        };
        let (phase, missing) = self.missing();
        let until = core.config.deadline.map(|span| self.heard + span);
        Some(Waits { me: self.seat().map(|seat| seat.node).or(launched), zero, phase, missing: vec![missing], until })
    }

    fn time_out(&mut self, core: &mut Core) {
        let (phase, missing) = self.missing();
        self.state = State::Over;
        core.fail(StartError::TimedOut { phase, missing: vec![missing] });
    }

    /// A node zero of this process's job name made itself heard.
    pub fn on_wakeup(&mut self, now: Time, core: &mut Core, from: SocketAddr, wakeup: &Wakeup) {
        let mine = core.config.job.is_none_or(|job| job == wakeup.job);
        if matches!(self.state, State::Seek { .. }) && mine {
            self.state = State::Ask { zero: from };
            self.progress(now);
            self.poll(now, core);
        }
    }

    /// One of another version did.
    pub fn on_foreign_wakeup(&mut self, core: &mut Core, from: SocketAddr, version: u16) {
        if matches!(self.state, State::Seek { .. }) {
            let reason = Refusal::Version { zero: version, joiner: core.config.identity.version };
            self.end(core, StartError::Refused { zero: from, reason });
        }
    }

    fn end(&mut self, core: &mut Core, error: StartError) {
        self.state = State::Over;
        core.fail(error);
    }

    /// A process takes this one for node zero, which it is not, or no longer: it gave way to another.
    pub fn on_join(&self, core: &mut Core, from: SocketAddr, join: &Join) {
        let mistaken = match join.intent {
            Intent::Ask => !join.discover && join.identity.job_name == core.config.identity.job_name,
            Intent::Confirm { job, .. } => self.yielded == Some(job),
            Intent::Decline(_) => false,
        };
        if mistaken && core.discovers() {
            let version = core.config.identity.version;
            let answer = Answer { nonce: join.nonce, version, verdict: Verdict::Yielded };
            core.send(To::Address(from), &StartMessage::Answer(answer));
        }
    }

    pub fn on_answer(&mut self, now: Time, core: &mut Core, from: SocketAddr, answer: Answer) {
        if answer.nonce != core.nonce {
            return;
        }
        match self.state {
            State::Seek { .. } | State::Ask { .. } => {}
            State::Wait(_) | State::Hello(..) if self.is_zero(from) => {}
            State::Wait(_) | State::Hello(..) | State::Running(_) => {
                return self.decline(now, core, from, &answer.verdict);
            }
            State::NoAddress | State::Over => return,
        }
        match answer.verdict {
            Verdict::Accepted { node, job, prog } => self.accept(now, core, Seat { zero: from, node, job, prog }),
            Verdict::Wait => self.wait(now, core, from),
            Verdict::Yielded => self.yielded_to_another(now, core),
            Verdict::Surplus => {
                self.state = State::Over;
                core.events.push_back(Event::Surplus);
            }
            Verdict::Refused(Refusal::TooFew { came, wanted }) => self.end(core, StartError::TooFew { came, wanted }),
            Verdict::Refused(Refusal::GivenUp(why)) => self.end(core, StartError::GivenUp(why)),
            Verdict::Refused(reason) => self.end(core, StartError::Refused { zero: from, reason }),
            Verdict::Unreadable => {
                let reason = Refusal::Version { zero: answer.version, joiner: core.config.identity.version };
                self.end(core, StartError::Refused { zero: from, reason });
            }
        }
    }

    /// Tells a second node zero not to count on this process.
    fn decline(&self, now: Time, core: &mut Core, from: SocketAddr, verdict: &Verdict) {
        let mine = self.seat().map(|seat| seat.job);
        if let Verdict::Accepted { job, .. } = *verdict
            && mine != Some(job)
        {
            core.send_join(now, To::Address(from), Intent::Decline(job));
        }
    }

    fn accept(&mut self, now: Time, core: &mut Core, seat: Seat) {
        if seat.node.index() >= core.nodes() || seat.node == NodeId(0) {
            return;
        }
        match &self.state {
            State::Hello(..) => return self.heard = now,
            State::Wait(old) if old.node == seat.node && old.job == seat.job => return self.heard = now,
            _ => {}
        }
        let Seat { node, job, prog, .. } = seat;
        self.state = State::Wait(seat);
        self.progress(now);
        core.events.push_back(Event::Joined { node, job, prog });
        self.poll(now, core);
    }

    fn wait(&mut self, now: Time, core: &mut Core, from: SocketAddr) {
        self.heard = now;
        if matches!(self.state, State::Seek { .. }) {
            self.state = State::Ask { zero: from };
            self.tries = 0;
            self.at = now + core.patience(self.tries);
        }
    }

    fn yielded_to_another(&mut self, now: Time, core: &mut Core) {
        if core.discovers() && matches!(self.state, State::Wait(_) | State::Ask { .. }) {
            self.seek_again(now);
            self.poll(now, core);
        }
    }

    /// Nothing listens at `address` any more.
    pub fn on_refused(&mut self, now: Time, core: &mut Core, address: SocketAddr) {
        match &self.state {
            State::Ask { zero } if *zero == address && core.discovers() => {}
            State::Wait(seat) if seat.zero == address && core.discovers() => {}
            State::Wait(seat) | State::Hello(seat, _) if seat.zero == address => {
                return self.end(core, StartError::ZeroGone { zero: address });
            }
            _ => return,
        }
        self.seek_again(now);
        self.poll(now, core);
    }

    pub fn on_hello(&mut self, now: Time, core: &mut Core, from: SocketAddr, job: u64, hello: Hello) {
        let Some(seat) = self.seat().filter(|seat| seat.job == job) else { return };
        if let Hello::Introduce(_) = hello {
            let hello = Hello::Greet(seat.node);
            return core.send(To::Address(from), &StartMessage::Hello { job, hello });
        }
        let from_zero = seat.zero == from;
        match hello {
            Hello::Table { page, pages, nodes, first, members }
                if from_zero && usize::from(nodes) == core.nodes() && !self.is_running() =>
            {
                self.on_table(now, core, page.into(), pages.into(), first.into(), members);
            }
            Hello::Greet(node) => self.on_greet(now, core, node),
            Hello::Multicast => self.on_multicast(now, core),
            Hello::Noted if from_zero => self.heard = now,
            Hello::Start { multicast } if from_zero => self.start(core, multicast),
            _ => {}
        }
    }

    fn on_table(&mut self, now: Time, core: &mut Core, page: usize, pages: usize, first: usize, members: Vec<Member>) {
        if let State::Wait(seat) = &self.state {
            let introductions = Introductions::new(core.nodes(), pages, self.heard_multicast);
            self.state = State::Hello(seat.clone(), introductions);
        }
        let State::Hello(seat, introductions) = &mut self.state else { return };
        self.heard = now;
        let ports = core.config.ports.len();
        let known = introductions.have.len() != pages || introductions.have[page];
        if known || members.iter().any(|member| member.ports.len() != ports) {
            return;
        }
        introductions.have[page] = true;
        for (slot, member) in introductions.table[first..].iter_mut().zip(members) {
            *slot = Some(member);
        }
        self.tries = 0;
        if introductions.table_is_complete() {
            introductions.begin(now, seat, &core.config);
            self.poll(now, core);
        } else {
            self.at = now + core.patience(0);
        }
    }

    fn on_greet(&mut self, now: Time, core: &mut Core, node: NodeId) {
        let State::Hello(_, introductions) = &mut self.state else { return };
        let before = introductions.unheard.len();
        introductions.unheard.retain(|&n| n != node);
        if introductions.unheard.is_empty() && before > 0 {
            self.tries = 0;
            self.poll(now, core);
        }
    }

    fn on_multicast(&mut self, now: Time, core: &mut Core) {
        self.heard_multicast = true;
        let State::Hello(_, introductions) = &mut self.state else { return };
        let first = !std::mem::replace(&mut introductions.heard_multicast, true);
        if first && introductions.introduced {
            self.tries = 0;
            self.poll(now, core);
        }
    }

    fn start(&mut self, core: &mut Core, multicast: bool) {
        let State::Hello(seat, introductions) = &mut self.state else { return };
        if !introductions.introduced {
            return;
        }
        let nodes = std::mem::take(&mut introductions.table).into_iter().flatten().collect();
        let seat = seat.clone();
        let (me, job, prog) = (seat.node, seat.job, seat.prog);
        self.state = State::Running(seat);
        core.events.push_back(Event::Ready(Membership { me, nodes, multicast, job, prog }));
    }

    /// Leaves before the start, or ends because of an error of its own.
    pub fn abandon(&mut self, now: Time, core: &mut Core) {
        if let State::Wait(seat) | State::Hello(seat, _) = &self.state {
            let (zero, job) = (seat.zero, seat.job);
            core.send_join(now, To::Address(zero), Intent::Decline(job));
        }
        if !self.is_running() {
            self.state = State::Over;
        }
    }
}

impl Introductions {
    fn new(nodes: usize, pages: usize, heard_multicast: bool) -> Introductions {
        Introductions {
            have: vec![false; pages],
            table: vec![None; nodes],
            unheard: Vec::new(),
            introduced: false,
            heard_multicast,
            multicast_until: Time(0),
        }
    }

    fn table_is_complete(&self) -> bool {
        self.have.iter().all(|&have| have) && self.table.iter().all(Option::is_some)
    }

    /// The table is complete: whom to introduce oneself to.
    fn begin(&mut self, now: Time, seat: &Seat, config: &Config) {
        if let Some(entry) = &mut self.table[0] {
            // Node zero cannot know how its address looks from here.
            entry.ip = seat.zero.ip();
        }
        self.introduced = true;
        self.unheard = if config.introduces { partners(seat.node, self.table.len()) } else { Vec::new() };
        self.multicast_until = if config.multicast { now + MULTICAST_GRACE } else { now };
    }

    fn is_ready(&self, now: Time) -> bool {
        self.introduced && self.unheard.is_empty() && (self.heard_multicast || now >= self.multicast_until)
    }

    /// When to ask again: no later than when the multicast probe is given up.
    fn wake(&self, now: Time, at: Time) -> Time {
        let waits = self.introduced && self.unheard.is_empty() && !self.is_ready(now);
        if waits { at.min(self.multicast_until) } else { at }
    }

    fn ask(&self, now: Time, core: &mut Core, seat: &Seat) {
        for &node in &self.unheard {
            if let Some(member) = &self.table[node.index()] {
                let hello = Hello::Introduce(seat.node);
                core.send(To::Address(member.service()), &StartMessage::Hello { job: seat.job, hello });
            }
        }
        let mut have = vec![0u8; self.have.len().div_ceil(8)];
        for (page, _) in self.have.iter().enumerate().filter(|(_, have)| **have) {
            have[page / 8] |= 1 << (page % 8);
        }
        let ready = Ready {
            node: seat.node,
            nonce: core.nonce,
            complete: self.is_ready(now),
            multicast: self.heard_multicast,
            have,
            unheard: self.unheard.iter().copied().take(UNHEARD_MAX).collect(),
        };
        core.send(To::Address(seat.zero), &StartMessage::Ready { job: seat.job, ready });
    }

    fn zero_entry(&self) -> Option<Missing> {
        let zero = self.table.first()?.as_ref()?;
        Some(Missing { node: NodeId(0), process: Some((zero.host.clone(), zero.pid)), unheard: Vec::new() })
    }
}

/// Whom node `me` introduces itself to: up to eight nodes, everybody; beyond that the nodes at distance 1, 2, 4 …
/// in both directions, which finds a host that others cannot reach without n² datagrams. With node zero every
/// node has talked already.
fn partners(me: NodeId, nodes: usize) -> Vec<NodeId> {
    let me = me.index();
    let mut partners: Vec<NodeId> = if nodes <= 8 {
        (1..nodes).map(|n| NodeId(n as u16)).collect()
    } else {
        let distances = std::iter::successors(Some(1), |d| Some(d * 2)).take_while(|&d| d < nodes);
        distances.flat_map(|d| [(me + d) % nodes, (me + nodes - d) % nodes]).map(|n| NodeId(n as u16)).collect()
    };
    partners.sort_unstable();
    partners.dedup();
    partners.retain(|n| n.index() != me && *n != NodeId(0));
    partners
}
