//! Node zero: gathers the others, tells everybody who everybody is, and starts them.
//!
//! ```text
//!  Gather --every place confirmed--> Hello --every node READY--> Running
//!    |                                 |
//!    +--too few, time ran out----------+--> Failed
//! ```
//!
//! A place is given in three steps: JOIN reserves it, ANSWER names it, and a second JOIN that names the job confirms
//! it. So a process that was given places by two would-be nodes zero is counted by one of them only. Node zero says
//! everything once on its own account; after that it answers those who ask again.

use super::core::{Config, Core, Event, Missing, Mode, Phase, StartError, To, Waits};
use crate::ids::NodeId;
use crate::node::identity::Refusal;
use crate::node::message::{self, Answer, BODY_MAX, Hello, Intent, Join, Ready, StartMessage, Verdict, Wakeup};
use crate::node::table::{self, Member, Membership};
use crate::time::{Span, Time};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// A reserved place that its process does not confirm is given to another after so long.
const UNCONFIRMED_SILENCE: Span = Span::from_ms(1_500);
/// A process that confirmed and is silent for so long, before the job is complete, is given up.
const MEMBER_SILENCE: Span = Span::from_ms(5_000);
/// Who began before the job ran, or so soon after, came because of its WAKEUP or together with its nodes: surplus
/// rather than a second job.
const SURPLUS_GRACE: Span = Span::from_ms(2_000);
/// WAKEUP is repeated while places are free: after 50 ms, later every half second.
const WAKEUP_FIRST: Span = Span::from_ms(50);
const WAKEUP_MOST: Span = Span::from_ms(500);
/// A node zero that was found by search closes its job no sooner than this, so that another one's WAKEUP can reach it.
const SETTLE: Span = Span::from_ms(250);
/// How often and how far apart the multicast probe is sent.
const MULTICAST_PROBES: u32 = 6;
const PROBE_INTERVAL: Span = Span::from_ms(25);
/// Most parts of the table sent for one READY: the asker's receive buffer is not endless.
const PAGES_AT_ONCE: usize = 32;
/// Bytes of a part of the table: a body without what stands before the nodes.
const PAGE_BYTES: usize = BODY_MAX - 8 - 1 - 10;
/// Refused processes remembered, so that each is reported once.
const TURNED_AWAY_MAX: usize = 32;

/// What node zero should become.
pub(super) enum Then {
    Stay,
    /// Another node zero has precedence.
    Yield {
        to: SocketAddr,
        job: u64,
    },
}

/// A place and the process that has it.
#[derive(Debug)]
struct Seat {
    nonce: u64,
    address: SocketAddr,
    member: Member,
    confirmed: bool,
    heard: Time,
    ready: bool,
    multicast: bool,
    unheard: Vec<NodeId>,
}

#[derive(Debug)]
enum State {
    /// Giving places.
    Gather { since: Time, wakeup_at: Time, wakeup_after: Span },
    /// All places are taken; spreading the table.
    Hello { since: Time, members: Vec<Member>, pages: Vec<Range<usize>>, ready: usize, probes: u32, probe_at: Time },
    /// All nodes know each other.
    Running { since: Time, multicast: bool },
    /// No job came about.
    Failed(Verdict),
}

#[derive(Debug)]
pub(super) struct Zero {
    state: State,
    job: u64,
    prog: u16,
    /// The places of nodes 1, 2, …
    seats: Vec<Option<Seat>>,
    turned_away: Vec<u64>,
}

/// The program number of a job that nobody gave one: spread over all numbers but 0, which is nobody's.
fn prog_of(job: u64) -> u16 {
    let folded = job ^ (job >> 16) ^ (job >> 32) ^ (job >> 48);
    (folded % u64::from(u16::MAX)) as u16 + 1
}

impl Zero {
    pub fn new(now: Time, core: &mut Core) -> Zero {
        let job = core.config.job.unwrap_or(core.nonce).max(1);
        let prog = core.config.prog.unwrap_or_else(|| prog_of(job));
        let seats = (1..core.nodes()).map(|_| None).collect();
        let state = State::Gather { since: now, wakeup_at: now, wakeup_after: WAKEUP_FIRST };
        let mut zero = Zero { state, job, prog, seats, turned_away: Vec::new() };
        if zero.seats.is_empty() {
            zero.start(now, core, vec![core.config.member()]);
            return zero;
        }
        core.events.push_back(Event::Zero(zero.wakeup(now, core)));
        zero.on_timeout(now, core);
        zero
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    fn wakeup(&self, now: Time, core: &Core) -> Wakeup {
        let identity = &core.config.identity;
        Wakeup {
            nonce: core.nonce,
            job: self.job,
            age_ms: core.age_ms(now),
            job_name: identity.job_name.clone(),
            nodes: identity.nodes,
            threads: identity.threads,
            program: identity.program.clone(),
            hash: identity.hash,
            arguments: core.config.arguments.clone(),
        }
    }

    fn answer(&self, core: &mut Core, to: SocketAddr, nonce: u64, verdict: Verdict) {
        let answer = Answer { nonce, version: core.config.identity.version, verdict };
        core.send(To::Address(to), &StartMessage::Answer(answer));
    }

    fn hello(&self, core: &mut Core, to: To, hello: Hello) {
        core.send(to, &StartMessage::Hello { job: self.job, hello });
    }

    fn occupied(&self) -> impl Iterator<Item = (NodeId, &Seat)> {
        let numbered = self.seats.iter().zip(1..).map(|(seat, node)| (NodeId(node), seat));
        numbered.filter_map(|(node, seat)| seat.as_ref().map(|seat| (node, seat)))
    }

    fn deadline(&self, core: &Core) -> Option<Time> {
        match self.state {
            State::Gather { since, .. } | State::Hello { since, .. } => core.config.deadline.map(|span| since + span),
            _ => None,
        }
    }

    pub fn next_timeout(&self, core: &Core) -> Option<Time> {
        let own = match &self.state {
            State::Gather { wakeup_at, since, .. } if core.discovers() => {
                let settled = self.is_complete().then_some(*since + SETTLE);
                Some(settled.map_or(*wakeup_at, |at| at.min(*wakeup_at)))
            }
            State::Hello { probes, probe_at, .. } if *probes > 0 => Some(*probe_at),
            _ => None,
        };
        own.into_iter().chain(self.deadline(core)).min()
    }

    pub fn on_timeout(&mut self, now: Time, core: &mut Core) {
        if self.deadline(core).is_some_and(|at| at <= now) {
            return self.time_out(core);
        }
        self.begin_if_complete(now, core);
        match &mut self.state {
            State::Gather { wakeup_at, wakeup_after, .. } if core.discovers() && *wakeup_at <= now => {
                *wakeup_at = now + core.chance.about(*wakeup_after);
                *wakeup_after = Span((wakeup_after.0 * 2).min(WAKEUP_MOST.0));
                let wakeup = self.wakeup(now, core);
                core.send(To::Broadcast, &StartMessage::Wakeup(wakeup));
            }
            State::Hello { probes, probe_at, .. } if *probes > 0 && *probe_at <= now => {
                *probes -= 1;
                *probe_at = now + PROBE_INTERVAL;
                self.hello(core, To::Multicast, Hello::Multicast);
            }
            _ => {}
        }
    }

    /// In which part of start-up this is, and who has not come, or not come through.
    fn missing(&self) -> (Phase, Vec<Missing>) {
        let missing = |node, seat: Option<&Seat>| Missing {
            node,
            process: seat.map(|seat| (seat.member.host.clone(), seat.member.pid)),
            unheard: seat.map_or_else(Vec::new, |seat| seat.unheard.clone()),
        };
        let (phase, done): (_, fn(&Seat) -> bool) = match self.state {
            State::Gather { .. } => (Phase::Join, |seat| seat.confirmed),
            _ => (Phase::Hello, |seat| seat.ready),
        };
        let seats = self.seats.iter().zip(1..).map(|(seat, node)| (NodeId(node), seat.as_ref()));
        let those = seats.filter(|(_, seat)| !seat.is_some_and(done)).map(|(node, seat)| missing(node, seat));
        (phase, those.collect())
    }

    pub fn waits_for(&self, core: &Core) -> Option<Waits> {
        if !matches!(self.state, State::Gather { .. } | State::Hello { .. }) {
            return None;
        }
        let (phase, missing) = self.missing();
        Some(Waits { me: Some(NodeId(0)), zero: None, phase, missing, until: self.deadline(core) })
    }

    fn time_out(&mut self, core: &mut Core) {
        let (phase, missing) = self.missing();
        let came = core.config.identity.nodes - missing.len() as u16;
        if phase == Phase::Join && !is_launched(core) {
            let wanted = core.config.identity.nodes;
            self.give_up(core, Verdict::Refused(Refusal::TooFew { came, wanted }));
            return core.fail(StartError::TooFew { came, wanted });
        }
        self.fail(core, StartError::TimedOut { phase, missing });
    }

    /// Ends with an error and tells those who came.
    fn fail(&mut self, core: &mut Core, error: StartError) {
        let why = match &error {
            StartError::GivenUp(why) => why.clone(),
            other if is_launched(core) => other.what(),
            other => other.to_string(),
        };
        self.give_up(core, Verdict::Refused(Refusal::GivenUp(message::fit(&why, message::REASON_MAX))));
        core.fail(error);
    }

    fn give_up(&mut self, core: &mut Core, verdict: Verdict) {
        for (_, seat) in self.occupied() {
            self.answer(core, seat.address, seat.nonce, verdict.clone());
        }
        self.state = State::Failed(verdict);
    }

    /// Ends this node's start-up, for a reason of the caller's.
    pub fn abandon(&mut self, core: &mut Core, why: &str) {
        if matches!(self.state, State::Gather { .. } | State::Hello { .. }) {
            let why = message::fit(why, message::REASON_MAX);
            self.give_up(core, Verdict::Refused(Refusal::GivenUp(why)));
        }
    }

    pub fn on_join(&mut self, now: Time, core: &mut Core, from: SocketAddr, join: &Join) {
        let stranger = join.identity.job_name != core.config.identity.job_name || join.job != 0 && join.job != self.job;
        if join.discover && (stranger || is_launched(core)) || join.nonce == core.nonce {
            return;
        }
        let process = Some((join.host.clone(), join.pid));
        let objection = core.config.identity.objection(&join.identity).or_else(|| {
            let other = join.job != 0 && join.job != self.job;
            other.then(|| Refusal::OtherJob { zero: core.config.identity.job_name.clone() })
        });
        if let Some(reason) = objection {
            return self.turn_away(core, from, join.nonce, process, reason);
        }
        if join.ports.len() != core.config.ports.len() {
            return;
        }
        if let Intent::Decline(job) = join.intent {
            if job == self.job {
                self.on_decline(core, join.nonce);
            }
            return;
        }
        if let State::Failed(verdict) = &self.state {
            return self.answer(core, from, join.nonce, verdict.clone());
        }
        let known = self.occupied().find(|(_, seat)| seat.nonce == join.nonce).map(|(node, _)| node);
        match known {
            Some(node) => self.on_known(now, core, node, from, join.intent),
            None => self.on_new(now, core, from, join, process),
        }
    }

    /// A JOIN or WAKEUP in another version.
    pub fn on_foreign(
        &mut self,
        core: &mut Core,
        from: SocketAddr,
        nonce: u64,
        version: u16,
        discover: bool,
        name: &str,
    ) {
        if !discover || name == core.config.identity.job_name && !is_launched(core) {
            let reason = Refusal::Version { zero: core.config.identity.version, joiner: version };
            self.turn_away(core, from, nonce, None, reason);
        }
    }

    fn turn_away(
        &mut self,
        core: &mut Core,
        from: SocketAddr,
        nonce: u64,
        process: Option<(String, u32)>,
        reason: Refusal,
    ) {
        self.answer(core, from, nonce, Verdict::Refused(reason.clone()));
        if !self.turned_away.contains(&nonce) {
            if self.turned_away.len() == TURNED_AWAY_MAX {
                self.turned_away.remove(0);
            }
            self.turned_away.push(nonce);
            core.events.push_back(Event::TurnedAway { from, process, reason });
        }
    }

    fn seat_mut(&mut self, node: NodeId) -> Option<&mut Seat> {
        self.seats.get_mut(node.index().checked_sub(1)?)?.as_mut()
    }

    /// A process that has a place asks again or confirms.
    fn on_known(&mut self, now: Time, core: &mut Core, node: NodeId, from: SocketAddr, intent: Intent) {
        let (job, prog) = (self.job, self.prog);
        let gathering = matches!(self.state, State::Gather { .. });
        let Some(seat) = self.seat_mut(node) else { return };
        let nonce = seat.nonce;
        seat.heard = now;
        if gathering {
            seat.address = from;
            seat.member.ip = from.ip();
            seat.confirmed |= intent == Intent::Confirm { job, node };
            self.free_silent_seats(now);
            self.answer(core, from, nonce, Verdict::Accepted { node, job, prog });
            self.begin_if_complete(now, core);
        } else {
            if intent == Intent::Ask {
                // It does not know, or no longer, that it has this place.
                self.answer(core, from, nonce, Verdict::Accepted { node, job, prog });
            }
            self.bring_up(core, node, &[]);
        }
    }

    fn on_new(&mut self, now: Time, core: &mut Core, from: SocketAddr, join: &Join, process: Option<(String, u32)>) {
        let nodes = core.config.identity.nodes;
        let nonce = join.nonce;
        let running_since = match self.state {
            State::Gather { .. } => None,
            State::Running { since, .. } => Some(Some(since)),
            _ => Some(None),
        };
        if let Some(since) = running_since {
            let started_for_it =
                join.job == self.job || since.is_none_or(|since| is_of_our_time(now, since, join.age_ms));
            let searching = core.discovers();
            return match (searching && started_for_it, since.is_some() && searching) {
                (true, _) => self.answer(core, from, nonce, Verdict::Surplus),
                (_, true) => {
                    let job = core.config.identity.job_name.clone();
                    self.turn_away(core, from, nonce, process, Refusal::AlreadyRunning { job })
                }
                _ => self.turn_away(core, from, nonce, process, Refusal::Full { nodes }),
            };
        }
        self.free_silent_seats(now);
        match self.place_for(join.requested, &core.config) {
            Place::Free(node) => self.reserve(now, core, node, from, join),
            Place::Later => self.answer(core, from, nonce, Verdict::Wait),
            Place::Never(reason) => self.turn_away(core, from, nonce, process, reason),
        }
    }

    fn free_silent_seats(&mut self, now: Time) {
        for place in &mut self.seats {
            place.take_if(|seat| now - seat.heard >= if seat.confirmed { MEMBER_SILENCE } else { UNCONFIRMED_SILENCE });
        }
    }

    fn place_for(&self, requested: Option<NodeId>, config: &Config) -> Place {
        let Some(node) = requested else {
            let free = self.seats.iter().position(Option::is_none);
            return free.map_or(Place::Later, |index| Place::Free(NodeId(index as u16 + 1)));
        };
        let Some(index) = node.index().checked_sub(1) else {
            return Place::Never(Refusal::NumberTaken { host: config.host.clone(), pid: config.pid });
        };
        match self.seats.get(index) {
            None => Place::Never(Refusal::NoSuchNode { nodes: config.identity.nodes }),
            Some(None) => Place::Free(node),
            Some(Some(seat)) if seat.confirmed => {
                Place::Never(Refusal::NumberTaken { host: seat.member.host.clone(), pid: seat.member.pid })
            }
            Some(Some(_)) => Place::Later,
        }
    }

    fn reserve(&mut self, now: Time, core: &mut Core, node: NodeId, from: SocketAddr, join: &Join) {
        let member = Member { host: join.host.clone(), pid: join.pid, ip: from.ip(), ports: join.ports.clone() };
        let seat = Seat {
            nonce: join.nonce,
            address: from,
            member,
            confirmed: false,
            heard: now,
            ready: false,
            multicast: false,
            unheard: Vec::new(),
        };
        self.seats[node.index() - 1] = Some(seat);
        self.on_known(now, core, node, from, join.intent);
    }

    /// A process gives its place back.
    fn on_decline(&mut self, core: &mut Core, nonce: u64) {
        let Some(index) = self.seats.iter().position(|s| s.as_ref().is_some_and(|s| s.nonce == nonce)) else { return };
        match self.state {
            State::Gather { .. } => self.seats[index] = None,
            State::Hello { .. } => self.fail_for(core, index, "left during start-up"),
            _ => {}
        }
    }

    fn fail_for(&mut self, core: &mut Core, index: usize, what: &str) {
        let node = NodeId(index as u16 + 1);
        let who = self.seats[index].as_ref().map(|seat| {
            let process = Some((seat.member.host.clone(), seat.member.pid));
            Missing { node, process, unheard: Vec::new() }.to_string()
        });
        let who = who.unwrap_or_else(|| node.to_string());
        self.fail(core, StartError::GivenUp(format!("{who} {what}; see its own message, then start again")));
    }

    /// Nothing listens at `address` any more.
    pub fn on_refused(&mut self, core: &mut Core, address: SocketAddr) {
        let at =
            |seat: &Option<Seat>| seat.as_ref().is_some_and(|s| s.address == address || s.member.service() == address);
        let Some(index) = self.seats.iter().position(at) else { return };
        match self.state {
            State::Gather { .. } => self.seats[index] = None,
            State::Hello { .. } => self.fail_for(core, index, "ended during start-up"),
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.seats.iter().all(|seat| seat.as_ref().is_some_and(|seat| seat.confirmed))
    }

    fn begin_if_complete(&mut self, now: Time, core: &mut Core) {
        let State::Gather { since, .. } = self.state else { return };
        let settled = !core.discovers() || now >= since + SETTLE;
        if !settled || !self.is_complete() {
            return;
        }
        let others = self.occupied().map(|(_, seat)| seat.member.clone());
        let members: Vec<Member> = std::iter::once(core.config.member()).chain(others).collect();
        if mixes_loopback(&members[1..]) {
            let why = "some nodes came over loopback and others from other hosts, so that they cannot reach each \
                       other; choose the network with --iface on every host";
            return self.fail(core, StartError::GivenUp(why.into()));
        }
        let pages = table::pages(&members, PAGE_BYTES);
        let probes = if core.config.multicast { MULTICAST_PROBES } else { 0 };
        self.state = State::Hello { since: now, members, pages, ready: 0, probes, probe_at: now };
        for node in (1..core.nodes()).map(|n| NodeId(n as u16)) {
            self.send_pages(core, node, &[], usize::MAX);
        }
        self.on_timeout(now, core);
    }

    fn send_pages(&self, core: &mut Core, node: NodeId, have: &[u8], most: usize) -> usize {
        let (State::Hello { members, pages, .. }, Some(Some(seat))) = (&self.state, self.seats.get(node.index() - 1))
        else {
            return 0;
        };
        let has = |page: usize| have.get(page / 8).is_some_and(|byte| byte >> (page % 8) & 1 == 1);
        let missing = pages.iter().enumerate().filter(|(page, _)| !has(*page)).take(most);
        let mut sent = 0;
        for (page, range) in missing {
            let hello = Hello::Table {
                page: page as u16,
                pages: pages.len() as u16,
                nodes: members.len() as u16,
                first: range.start as u16,
                members: members[range.clone()].to_vec(),
            };
            self.hello(core, To::Address(seat.address), hello);
            sent += 1;
        }
        sent
    }

    /// Answers a node that asks again, after all places were taken: the parts of the table that it lacks, or the
    /// start that it missed.
    fn bring_up(&self, core: &mut Core, node: NodeId, have: &[u8]) {
        let Some(Some(seat)) = self.seats.get(node.index() - 1) else { return };
        let to = seat.address;
        match &self.state {
            State::Hello { .. } => {
                if self.send_pages(core, node, have, PAGES_AT_ONCE) == 0 {
                    self.hello(core, To::Address(to), Hello::Noted);
                }
            }
            State::Running { multicast, .. } => {
                self.hello(core, To::Address(to), Hello::Start { multicast: *multicast })
            }
            State::Failed(verdict) => self.answer(core, to, seat.nonce, verdict.clone()),
            State::Gather { .. } => {}
        }
    }

    pub fn on_ready(&mut self, now: Time, core: &mut Core, job: u64, report: Ready) {
        let Ready { node, nonce, complete, multicast, have, unheard } = report;
        let mine = job == self.job;
        let Some(seat) = self.seat_mut(node).filter(|seat| mine && seat.nonce == nonce) else { return };
        seat.heard = now;
        seat.unheard = unheard;
        let newly = complete && !seat.ready;
        if newly {
            seat.ready = true;
            seat.multicast = multicast;
        }
        match &mut self.state {
            State::Hello { ready, members, .. } if newly => {
                *ready += 1;
                if *ready == self.seats.len() {
                    let members = std::mem::take(members);
                    return self.start(now, core, members);
                }
                self.bring_up(core, node, &have);
            }
            _ => self.bring_up(core, node, &have),
        }
    }

    /// All are ready: the second HELLO(0).
    fn start(&mut self, now: Time, core: &mut Core, nodes: Vec<Member>) {
        let deaf = self.occupied().filter(|(_, seat)| core.config.multicast && !seat.multicast);
        let deaf: Vec<NodeId> = deaf.map(|(node, _)| node).collect();
        let multicast = core.config.multicast && deaf.is_empty();
        for (_, seat) in self.occupied() {
            self.hello(core, To::Address(seat.address), Hello::Start { multicast });
        }
        self.state = State::Running { since: now, multicast };
        if !deaf.is_empty() {
            core.events.push_back(Event::Deaf(deaf));
        }
        let (job, prog) = (self.job, self.prog);
        core.events.push_back(Event::Ready(Membership { me: NodeId(0), nodes, multicast, job, prog }));
    }

    /// Another node zero of the same job name made itself heard. The one with the smaller nonce stays; a job that
    /// is already complete stays in any case, and the other's processes are surplus.
    pub fn on_rival(&mut self, now: Time, core: &mut Core, from: SocketAddr, nonce: u64, age_ms: u32) -> Then {
        if nonce == core.nonce || !core.discovers() {
            return Then::Stay;
        }
        let place = self.occupied().find(|(_, seat)| seat.nonce == nonce).map(|(node, _)| node);
        match self.state {
            State::Gather { .. } if nonce < core.nonce => self.yield_to(core, from),
            State::Gather { .. } => {
                let wakeup = self.wakeup(now, core);
                core.send(To::Address(from), &StartMessage::Wakeup(wakeup));
                Then::Stay
            }
            State::Hello { .. } | State::Running { .. } if let Some(node) = place => {
                let (job, prog) = (self.job, self.prog);
                self.answer(core, from, nonce, Verdict::Accepted { node, job, prog });
                Then::Stay
            }
            State::Running { since, .. } if !is_of_our_time(now, since, age_ms) => {
                let job = core.config.identity.job_name.clone();
                self.turn_away(core, from, nonce, None, Refusal::AlreadyRunning { job });
                Then::Stay
            }
            State::Hello { .. } | State::Running { .. } => {
                self.answer(core, from, nonce, Verdict::Surplus);
                Then::Stay
            }
            State::Failed(_) => Then::Stay,
        }
    }

    /// A complete job's node zero answers this one's WAKEUP.
    pub fn on_answer(&mut self, core: &mut Core, from: SocketAddr, answer: Answer) -> Then {
        if answer.nonce != core.nonce || !matches!(self.state, State::Gather { .. }) || !core.discovers() {
            return Then::Stay;
        }
        let here = core.config.identity.version;
        match answer.verdict {
            Verdict::Surplus => {
                self.give_up(core, Verdict::Surplus);
                core.events.push_back(Event::Surplus);
            }
            Verdict::Refused(reason @ (Refusal::AlreadyRunning { .. } | Refusal::Version { .. })) => {
                self.give_up(core, Verdict::Refused(reason.clone()));
                core.fail(StartError::Refused { zero: from, reason });
            }
            Verdict::Unreadable => {
                let reason = Refusal::Version { zero: answer.version, joiner: here };
                self.give_up(core, Verdict::Refused(reason.clone()));
                core.fail(StartError::Refused { zero: from, reason });
            }
            Verdict::Accepted { .. } => return self.yield_to(core, from),
            Verdict::Wait | Verdict::Yielded | Verdict::Refused(_) => {}
        }
        Then::Stay
    }

    /// Gives way to the node zero at `to`.
    fn yield_to(&self, core: &mut Core, to: SocketAddr) -> Then {
        for (_, seat) in self.occupied() {
            self.answer(core, seat.address, seat.nonce, Verdict::Yielded);
        }
        Then::Yield { to, job: self.job }
    }
}

/// Whether a launcher numbers this job's nodes; then nobody finds it by search.
fn is_launched(core: &Core) -> bool {
    matches!(core.config.mode, Mode::Launched { .. })
}

/// Whether a process that has been on its way for `age_ms` began before the job ran, or soon after.
fn is_of_our_time(now: Time, running_since: Time, age_ms: u32) -> bool {
    let running = now - running_since;
    running.0 < Span::from_ms(u64::from(age_ms)).0 + SURPLUS_GRACE.0
}

/// What node zero can do for a process that asks for a place.
enum Place {
    Free(NodeId),
    Later,
    Never(Refusal),
}

/// Whether some nodes are known by a loopback address, which means another host to every host, and others not.
fn mixes_loopback(others: &[Member]) -> bool {
    let loopback = others.iter().filter(|member| is_loopback(member.ip)).count();
    loopback != 0 && loopback != others.len()
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
