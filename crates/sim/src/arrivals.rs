//! Arrivals at barriers as words ([`comem_protocol::sync::arrival`]), beside arrivals by messages, in all orders that a
//! seed may choose.
//!
//! The model runs the production machines: each node's barrier, and the steps of the thread that arrives last. One
//! step is one operation on shared memory. A word that was stored lies in the node's store buffer first. It leaves that
//! at any time, or at a fence, an atomic operation or a system call. A thread that sleeps until the eventcount changes
//! goes on when it is woken, or when the calls of two nodes are known not to go together; nothing else wakes it. So a
//! lost wake-up is a run in which nothing can happen any more. Messages come in any order, late, twice or not at all.
//!
//! # What must hold
//!
//! - A thread passes a call only when all threads that take part have come to it.
//! - A reduction gives the sum of what all have brought, and a node that leaves is named to the others.
//! - Where all calls go together all threads pass them all. Where two do not, no thread passes these.
//! - Where no call carries anything no message is sent.
//! - Where a node crashes, all others end, wherever it was.

use crate::tuning;
use comem_protocol::faults::Rng;
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::outbox::{Outbox, Target};
use comem_protocol::sync::arrival::{ArrivalWord, Arrive, Reply, Step};
use comem_protocol::sync::barrier::{Barrier, Heard};
use comem_protocol::sync::mismatch::Mismatch;
use comem_protocol::sync::reduce::{Number, Operator, Reduction};
use comem_protocol::time::Time;
use comem_protocol::tuning::{SyncTuning, Tuning};
use comem_protocol::wire::header::MsgType;
use comem_protocol::wire::message::{Collective, Message};

/// A run longer than this never ends.
const STEPS_MAX: usize = 100_000;

/// The job: what each node calls, one after the other.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Each node's calls.
    pub programs: Vec<Vec<Collective>>,
    /// Threads of each node.
    pub threads: usize,
    /// Which of them makes the calls that one thread of each node makes.
    pub caller: usize,
    /// From which barrier on arrivals may be words.
    pub words_from: usize,
    /// Whether messages may be lost and come twice.
    pub loses: bool,
    /// Whether a node's word is stored before its barrier's mutex is released.
    pub stores_in_order: bool,
    /// The node that stops for ever, and after how many steps of the run.
    pub crash: Option<(usize, u64)>,
    /// The numbers of its barriers.
    pub tuning: SyncTuning,
    /// Bytes of notices that fit an arrival that is not posted.
    pub free_notices_bytes: usize,
}

/// The number that a thread brings to a reduction.
fn brings(node: usize, thread: usize) -> i64 {
    1 << (4 * node + thread)
}

fn sum() -> Collective {
    Collective::reduce(Reduction { operator: Operator::Sum, number: Number::I64 }, 1)
}

impl Setup {
    /// Whether a thread takes part in a call.
    fn takes_part(&self, node: usize, thread: usize, call: usize) -> bool {
        self.programs[node][call].by_threads() || thread == self.caller
    }

    /// Whether all nodes make the same call there.
    fn is_the_same(&self, call: usize) -> bool {
        self.programs.iter().all(|program| program[call] == self.programs[0][call])
    }

    /// A node that leaves there where others do not.
    fn leaves(&self, call: usize) -> bool {
        !self.is_the_same(call) && self.programs.iter().any(|program| program[call] == Collective::LEAVE)
    }

    /// The first call that nobody passes.
    fn stops_at(&self) -> usize {
        let calls = self.programs[0].len();
        (0..calls).find(|call| !self.is_the_same(*call) && !self.leaves(*call)).unwrap_or(calls)
    }

    /// Whether no call carries anything.
    fn is_plain(&self) -> bool {
        let plain = [Collective::BARRIER, Collective::RENDEZVOUS, Collective::NODES];
        self.words_from == 0
            && self.stops_at() == self.programs[0].len()
            && self.programs.iter().flatten().all(|call| plain.contains(call))
    }
}

#[derive(Clone, Debug)]
enum Stage {
    /// Between two calls.
    Idle,
    /// Looks at other nodes' words; behind that it waits for its call, with the number that it got there.
    Arriving(Arrive, Step, u32),
    /// Sleeps until the eventcount changes.
    Asleep(Arrive, u32),
    /// Waits for its call.
    Waiting(u32),
    Ended,
}

#[derive(Clone, Debug)]
struct Thread {
    /// The call that it makes, or is to make next.
    call: usize,
    /// How many calls it has come to.
    come: usize,
    stage: Stage,
}

struct Node {
    barrier: Barrier,
    threads: Vec<Thread>,
    /// A word that others do not see yet.
    buffered: Option<ArrivalWord>,
    crashed: bool,
}

struct Sent {
    from: usize,
    to: usize,
    guarded: bool,
    ty: MsgType,
    body: Vec<u8>,
}

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// A node's thread makes its next step.
    Step(usize, usize),
    /// This thread looks at the eventcount, and has looked for long enough.
    Tire(usize, usize),
    /// A thread that sleeps finds that its call is in vain.
    Notice(usize, usize),
    /// What a node has stored can be seen by all.
    Drain(usize),
    /// This message comes.
    Deliver(usize),
    /// It is time for a node to repeat its arrival.
    Repeat(usize),
}

/// The model at one moment.
struct State {
    nodes: Vec<Node>,
    words: Vec<ArrivalWord>,
    events: u32,
    sleepers: u32,
    wire: Vec<Sent>,
    sent: usize,
    now: Time,
    /// All have heard of the node that crashed.
    lost: bool,
    error: Option<&'static str>,
}

impl State {
    fn new(setup: &Setup) -> State {
        let count = setup.programs.len();
        let node = |node: usize| {
            let thread = |thread| Thread { call: first_call(setup, node, thread, 0), come: 0, stage: Stage::Idle };
            let barrier = Barrier::new(NodeId(node as u16), count, setup.threads);
            let barrier = barrier.tuned(setup.tuning).for_notices(setup.free_notices_bytes);
            Node { barrier, threads: (0..setup.threads).map(thread).collect(), buffered: None, crashed: false }
        };
        State {
            nodes: (0..count).map(node).collect(),
            words: vec![ArrivalWord::default(); count],
            events: 0,
            sleepers: 0,
            wire: Vec::new(),
            sent: 0,
            now: Time(0),
            lost: false,
            error: None,
        }
    }

    fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.crashed) {
            for (t, thread) in node.threads.iter().enumerate() {
                match &thread.stage {
                    Stage::Ended => {}
                    Stage::Idle if thread.call == setup.programs[n].len() => {}
                    _ if self.lost => actions.push(Action::Step(n, t)),
                    Stage::Idle => actions.push(Action::Step(n, t)),
                    Stage::Arriving(_, Step::Look(_), _) => actions.extend([Action::Step(n, t), Action::Tire(n, t)]),
                    Stage::Arriving(..) => actions.push(Action::Step(n, t)),
                    Stage::Asleep(_, number) => {
                        if node.barrier.is_open(setup.programs[n][thread.call], *number).is_err() {
                            actions.push(Action::Notice(n, t));
                        }
                    }
                    Stage::Waiting(number) => {
                        if node.barrier.is_open(setup.programs[n][thread.call], *number) != Ok(false) {
                            actions.push(Action::Step(n, t));
                        }
                    }
                }
            }
            if node.buffered.is_some() {
                actions.push(Action::Drain(n));
            }
            if node.barrier.next_timeout().is_some() && !self.lost {
                actions.push(Action::Repeat(n));
            }
        }
        actions.extend((0..self.wire.len()).map(Action::Deliver));
        actions
    }

    fn act(&mut self, setup: &Setup, action: Action, rng: &mut Rng) {
        match action {
            Action::Step(n, t) => self.step(setup, n, t, false),
            Action::Tire(n, t) => self.step(setup, n, t, true),
            Action::Notice(n, t) => self.fails(setup, n, t),
            Action::Drain(n) => self.drain(n),
            Action::Deliver(at) => {
                let sent = self.wire.swap_remove(at);
                let fate = if setup.loses && !sent.guarded { rng.below(6) } else { 6 };
                if fate == 0 {
                    return;
                }
                self.deliver(&sent);
                if fate == 1 {
                    self.wire.push(sent);
                }
            }
            Action::Repeat(n) => {
                let at = self.nodes[n].barrier.next_timeout().unwrap_or_default();
                self.now = self.now.max(at);
                self.with_barrier(n, |barrier, now, out| barrier.on_timeout(now, out));
            }
        }
    }

    fn with_barrier<R>(&mut self, n: usize, step: impl FnOnce(&mut Barrier, Time, &mut Outbox) -> R) -> R {
        // A mutex is an atomic operation.
        self.drain(n);
        let mut out = Outbox::new();
        let result = step(&mut self.nodes[n].barrier, self.now, &mut out);
        for send in out.sends() {
            let (to, guarded) = match send.target {
                Target::Free { node, .. } => (node.index(), false),
                Target::Post { node, .. } => (node.index(), true),
                other => unreachable!("barriers send free messages and posts, not {other:?}"),
            };
            self.sent += 1;
            self.wire.push(Sent { from: n, to, guarded, ty: send.ty, body: out.body(send).to_vec() });
        }
        result
    }

    fn deliver(&mut self, sent: &Sent) {
        let Sent { from, to, ty, body, .. } = sent;
        if self.nodes[*to].crashed {
            return;
        }
        let from = NodeId(*from as u16);
        self.with_barrier(*to, |b, now, out| match Message::parse(*ty, body).expect("what a barrier has said") {
            Message::Arrive { epoch, repeated, elsewhere, what, payload, notices } => {
                b.on_arrive(now, None, Heard { from, epoch, repeated, elsewhere, what, payload, notices }, out);
            }
            Message::Noted { epoch } => b.on_noted(now, from, epoch),
            Message::Release { epoch, what, payload, notices } => {
                b.on_release(None, (epoch, what), (payload, notices), out);
            }
            Message::Apart { epoch, apart } => b.on_apart(from, (epoch, apart), None, out),
            other => unreachable!("{other:?}"),
        });
    }

    fn drain(&mut self, n: usize) {
        if let Some(word) = self.nodes[n].buffered.take() {
            self.words[n] = word;
        }
    }

    fn step(&mut self, setup: &Setup, n: usize, t: usize, tired: bool) {
        if self.lost {
            self.nodes[n].threads[t].stage = Stage::Ended;
            return;
        }
        match std::mem::replace(&mut self.nodes[n].threads[t].stage, Stage::Idle) {
            Stage::Idle => self.begin(setup, n, t),
            Stage::Arriving(arrive, step, number) => self.take_step((n, t), arrive, (step, number), tired),
            Stage::Waiting(number) => self.looks_whether_open(setup, n, t, number),
            stage @ (Stage::Asleep(..) | Stage::Ended) => self.nodes[n].threads[t].stage = stage,
        }
    }

    /// A thread comes to its next call.
    fn begin(&mut self, setup: &Setup, n: usize, t: usize) {
        let call = self.nodes[n].threads[t].call;
        let what = setup.programs[n][call];
        let bytes = brings(n, t).to_be_bytes();
        let payload = if what == sum() { &bytes[..] } else { &[] };
        self.nodes[n].threads[t].come = call + 1;
        let from_now_on = call == setup.words_from;
        let arrived = self.with_barrier(n, |barrier, now, out| {
            if from_now_on && barrier.epoch() as usize == call && !barrier.uses_words() {
                barrier.use_words();
            }
            let number = barrier.arrive(now, Slot::thread(t), what, (payload, &[]), out)?;
            Ok::<_, Mismatch>((number, barrier.steps()))
        });
        match arrived {
            Err(_) => self.fails(setup, n, t),
            Ok((number, None)) => self.nodes[n].threads[t].stage = Stage::Waiting(number),
            Ok((number, Some(mut arrive))) => {
                let mut step = arrive.next(Reply::Begin);
                if let Step::Store(word) = step
                    && setup.stores_in_order
                {
                    self.nodes[n].buffered = Some(word);
                    step = arrive.next(Reply::Done);
                }
                self.nodes[n].threads[t].stage = Stage::Arriving(arrive, step, number);
            }
        }
    }

    fn take_step(&mut self, (n, t): (usize, usize), mut arrive: Arrive, (step, number): (Step, u32), tired: bool) {
        let reply = match step {
            Step::Store(word) => {
                self.nodes[n].buffered = Some(word);
                Reply::Done
            }
            Step::ReadWord(node) => Reply::Word(self.words[node.index()]),
            Step::ReadEvents => Reply::Number(self.events),
            Step::Look(_) if tired => Reply::Tired,
            Step::Look(events) if events == self.events => {
                self.nodes[n].threads[t].stage = Stage::Arriving(arrive, step, number);
                return;
            }
            Step::Look(_) => Reply::Number(self.events),
            Step::ReadSleepers => Reply::Number(self.sleepers),
            // All others are atomic operations, fences, or calls of the system.
            _ => {
                self.drain(n);
                match step {
                    Step::AddSleeper => self.sleepers += 1,
                    Step::RemoveSleeper => self.sleepers -= 1,
                    Step::Advance => self.events += 1,
                    // The system compares and puts to sleep in one step.
                    Step::Sleep(events) if events == self.events => {
                        self.nodes[n].threads[t].stage = Stage::Asleep(arrive, number);
                        return;
                    }
                    Step::Wake => self.wake_all(),
                    Step::Open | Step::ByMessages => {
                        self.nodes[n].threads[t].stage = Stage::Waiting(number);
                        let (epoch, caller) = (arrive.epoch(), Some(Slot::thread(t)));
                        self.with_barrier(n, |barrier, now, out| match step {
                            Step::Open => {
                                barrier.open_by_words(epoch, caller, out);
                            }
                            _ => barrier.tell_by_messages(now, epoch, caller, out),
                        });
                        return;
                    }
                    _ => {}
                }
                Reply::Done
            }
        };
        let next = arrive.next(reply);
        self.nodes[n].threads[t].stage = Stage::Arriving(arrive, next, number);
    }

    fn wake_all(&mut self) {
        for thread in self.nodes.iter_mut().flat_map(|node| &mut node.threads) {
            if let Stage::Asleep(arrive, number) = &thread.stage {
                let (mut arrive, number) = (arrive.clone(), *number);
                let step = arrive.next(Reply::Done);
                thread.stage = Stage::Arriving(arrive, step, number);
            }
        }
    }

    fn looks_whether_open(&mut self, setup: &Setup, n: usize, t: usize, number: u32) {
        self.nodes[n].threads[t].stage = Stage::Waiting(number);
        let what = setup.programs[n][self.nodes[n].threads[t].call];
        match self.nodes[n].barrier.is_open(what, number) {
            Ok(true) => self.has_passed(setup, n, t),
            Ok(false) => {}
            Err(_) => self.fails(setup, n, t),
        }
    }

    fn fails(&mut self, setup: &Setup, n: usize, t: usize) {
        if self.nodes[n].threads[t].call < setup.stops_at() {
            self.error = Some("a call fails that all make");
        }
        self.nodes[n].threads[t].stage = Stage::Ended;
    }

    fn has_passed(&mut self, setup: &Setup, n: usize, t: usize) {
        let call = self.nodes[n].threads[t].call;
        let what = setup.programs[n][call];
        for (other, node) in self.nodes.iter().enumerate() {
            for (at, thread) in node.threads.iter().enumerate() {
                if setup.takes_part(other, at, call) && thread.come <= call {
                    self.error = Some("a thread passes a call to which another has not come");
                }
            }
        }
        let barrier = &self.nodes[n].barrier;
        if call >= setup.stops_at() {
            self.error = Some("a thread passes a call that others do not make");
        } else if barrier.left(what).is_some() != setup.leaves(call) {
            self.error = Some("a node that leaves is not named, or one that does not is");
        } else if what == sum() && !setup.leaves(call) {
            let all: i64 = (0..self.nodes.len()).flat_map(|n| (0..setup.threads).map(move |t| brings(n, t))).sum();
            if barrier.result(what) != all.to_be_bytes() {
                self.error = Some("a reduction has another result than the sum");
            }
        }
        let next = first_call(setup, n, t, call + 1);
        let thread = &mut self.nodes[n].threads[t];
        (thread.call, thread.stage) = (next, Stage::Idle);
    }

    fn is_finished(&self, setup: &Setup) -> bool {
        let calls = setup.programs[0].len();
        let has_ended = |thread: &Thread| {
            matches!(thread.stage, Stage::Ended) || (matches!(thread.stage, Stage::Idle) && thread.call == calls)
        };
        self.nodes.iter().filter(|node| !node.crashed).all(|node| node.threads.iter().all(has_ended))
    }
}

/// The first call from `call` on in which a thread takes part.
fn first_call(setup: &Setup, node: usize, thread: usize, call: usize) -> usize {
    let calls = setup.programs[node].len();
    (call..calls).find(|call| setup.takes_part(node, thread, *call)).unwrap_or(calls)
}

/// The job of a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed);
    let (nodes, threads) = (rng.between(2, 4) as usize, rng.between(1, 2) as usize);
    let calls = rng.between(1, 6) as usize;
    let plain = rng.below(3) == 0;
    let call = |rng: &mut Rng| match rng.below(if plain { 6 } else { 9 }) {
        0 => Collective::RENDEZVOUS,
        1 => Collective::NODES,
        2..6 => Collective::BARRIER,
        6 => Collective::LEAVE,
        _ => sum(),
    };
    let program: Vec<Collective> = (0..calls).map(|_| call(&mut rng)).collect();
    let mut programs = vec![program; nodes];
    if !plain && rng.below(2) == 0 {
        // One node makes another call than the rest.
        let (node, at) = (rng.below(nodes as u64) as usize, rng.below(calls as u64) as usize);
        let by_threads = programs[node][at].by_threads();
        let other = call(&mut rng);
        // Where other threads take part nobody could say who is to come.
        if other.by_threads() == by_threads {
            programs[node][at] = other;
        }
    }
    let words_from = if rng.below(4) == 0 { rng.below(calls as u64) as usize } else { 0 };
    let crash = (rng.below(4) == 0).then(|| (rng.below(nodes as u64) as usize, rng.below(150)));
    let caller = rng.below(threads as u64) as usize;
    let loses = rng.below(2) == 0;
    let (tuning, free_notices_bytes) =
        (tuning::drawn_in_half(seed, &["sync"], Tuning::DEFAULT).sync, [256, 256, 0, 60][(seed / 2 % 4) as usize]);
    Setup { programs, threads, caller, words_from, loses, stores_in_order: true, crash, tuning, free_notices_bytes }
}

/// Runs a seed: what is wrong, if anything.
pub fn run(seed: u64) -> Option<&'static str> {
    run_job(seed, &setup(seed))
}

/// Runs this job in the order that a seed chooses: what is wrong, if anything.
pub fn run_job(seed: u64, setup: &Setup) -> Option<&'static str> {
    let mut rng = Rng::new(seed ^ 0xa221);
    // In some runs one node is slow, as one whose threads have to share a core.
    let slow = (rng.below(2) == 0).then(|| rng.below(setup.programs.len() as u64) as usize);
    let hears_after = rng.below(100);
    let mut state = State::new(setup);
    for step in 0..STEPS_MAX as u64 {
        if let Some((node, at)) = setup.crash {
            state.nodes[node].crashed |= step >= at;
            state.lost |= step >= at + hears_after;
        }
        if state.error.is_some() || state.is_finished(setup) {
            break;
        }
        let mut actions = state.actions(setup);
        if let Some(slow) = slow
            && rng.below(32) != 0
            && actions.iter().any(|action| !action.is_of(slow))
        {
            actions.retain(|action| !action.is_of(slow));
        }
        // Repetitions are for where nothing else happens, mostly.
        let repeats = rng.below(16) == 0 || actions.iter().all(|action| matches!(action, Action::Repeat(_)));
        if !repeats {
            actions.retain(|action| !matches!(action, Action::Repeat(_)));
        }
        match actions.get(rng.below(actions.len() as u64) as usize) {
            Some(action) => state.act(setup, *action, &mut rng),
            // Before the others hear of a crash they may all wait for that.
            None if state.nodes.iter().any(|node| node.crashed) => {}
            None if setup.crash.is_some_and(|(_, at)| step < at) => {}
            None => return Some("nothing can happen any more, but a thread waits"),
        }
    }
    let end = || {
        let crashed = state.nodes.iter().any(|node| node.crashed);
        match () {
            _ if !state.is_finished(setup) => Some("the run does not end"),
            _ if state.sleepers > 0 && !crashed && setup.stops_at() == setup.programs[0].len() => {
                Some("all have ended, and one is counted among the sleepers")
            }
            _ if setup.is_plain() && state.sent > 0 => Some("a message is sent where words would do"),
            _ => None,
        }
    };
    state.error.or_else(end)
}

impl Action {
    fn is_of(self, node: usize) -> bool {
        matches!(self, Action::Step(n, _) | Action::Tire(n, _) | Action::Drain(n) if n == node)
    }
}

/// Words alone, for the search of all orders: nodes of one thread, each with the kinds of its calls. What goes by
/// messages opens here as soon as all nodes go by messages.
pub mod words {
    use super::{ArrivalWord, Arrive, NodeId, Reply, Step};
    use comem_protocol::sync::arrival::BY_MESSAGES;

    /// The kinds of each node's calls, one after the other; [`BY_MESSAGES`]: a call that carries something.
    pub type Programs = Vec<Vec<u8>>;

    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    enum Stage {
        /// Before its next call.
        Idle,
        /// Makes its next step.
        Arriving(Arrive, Step),
        /// Sleeps until the eventcount changes.
        Asleep(Arrive),
        /// Waits until all go by messages.
        ByMessages,
    }

    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Node {
        /// How many calls it has passed.
        passed: u32,
        word: ArrivalWord,
        /// A word that others do not see yet.
        buffered: Option<ArrivalWord>,
        stage: Stage,
        crashed: bool,
    }

    /// What may happen next.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Action {
        /// A node makes its next step.
        Step(usize),
        /// A node looks at the eventcount, and has looked for long enough.
        Tire(usize),
        /// What a node has stored can be seen by all.
        Drain(usize),
        /// The node that may stop does, for ever.
        Crash,
    }

    /// The model at one moment.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    pub struct State {
        nodes: Vec<Node>,
        words: Vec<ArrivalWord>,
        events: u32,
        sleepers: u32,
        error: Option<&'static str>,
    }

    impl State {
        /// The state in which nothing has happened.
        pub fn new(programs: &Programs) -> State {
            let (passed, word, buffered) = (0, ArrivalWord::default(), None);
            let node = Node { passed, word, buffered, stage: Stage::Idle, crashed: false };
            let nodes = vec![node; programs.len()];
            State { nodes, words: vec![word; programs.len()], events: 0, sleepers: 0, error: None }
        }

        /// What may happen in this state, where this node may crash.
        pub fn actions(&self, programs: &Programs, crash: Option<usize>) -> Vec<Action> {
            let mut actions = Vec::new();
            if self.error.is_some() {
                return actions;
            }
            for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.crashed) {
                match &node.stage {
                    Stage::Idle if node.passed as usize == programs[n].len() => {}
                    Stage::Arriving(_, Step::Look(_)) => actions.extend([Action::Step(n), Action::Tire(n)]),
                    Stage::Idle | Stage::Arriving(..) => actions.push(Action::Step(n)),
                    Stage::ByMessages if self.all_go_by_messages(node.passed) => actions.push(Action::Step(n)),
                    Stage::Asleep(_) | Stage::ByMessages => {}
                }
                if node.buffered.is_some() {
                    actions.push(Action::Drain(n));
                }
            }
            actions.extend(crash.filter(|n| !self.nodes[*n].crashed).map(|_| Action::Crash));
            actions
        }

        fn all_go_by_messages(&self, call: u32) -> bool {
            let goes = |node: &Node| node.passed > call || (node.passed == call && node.stage == Stage::ByMessages);
            self.nodes.iter().all(goes)
        }

        /// The state after `action`.
        #[must_use]
        pub fn after(&self, programs: &Programs, crash: Option<usize>, action: Action) -> State {
            let mut next = self.clone();
            match action {
                Action::Step(n) => next.step(programs, n, false),
                Action::Tire(n) => next.step(programs, n, true),
                Action::Drain(n) => next.drain(n),
                Action::Crash => crash.into_iter().for_each(|n| next.nodes[n].crashed = true),
            }
            next
        }

        /// What is wrong, if anything. Nodes may wait in vain for one that has crashed: of that messages tell.
        pub fn violation(&self, programs: &Programs) -> Option<&'static str> {
            let crashed = self.nodes.iter().any(|node| node.crashed);
            let stuck = || {
                let none = self.actions(programs, None).is_empty() && !self.is_finished(programs) && !crashed;
                none.then_some("nothing can happen any more, but a node waits")
            };
            let counted = || {
                let left = self.is_finished(programs) && self.sleepers > 0 && !crashed;
                left.then_some("all have ended, and one is counted among the sleepers")
            };
            self.error.or_else(stuck).or_else(counted)
        }

        /// Whether every node is at its end.
        pub fn is_finished(&self, programs: &Programs) -> bool {
            let mut all = self.nodes.iter().zip(programs);
            all.all(|(node, program)| node.passed as usize == program.len())
        }

        fn drain(&mut self, n: usize) {
            if let Some(word) = self.nodes[n].buffered.take() {
                self.words[n] = word;
            }
        }

        fn step(&mut self, programs: &Programs, n: usize, tired: bool) {
            let (mut arrive, step) = match std::mem::replace(&mut self.nodes[n].stage, Stage::Idle) {
                Stage::Arriving(arrive, step) => (arrive, step),
                Stage::ByMessages => return self.passes(programs, n, false),
                Stage::Idle | Stage::Asleep(_) => {
                    let call = self.nodes[n].passed;
                    let word = self.nodes[n].word.arrives(call, programs[n][call as usize]);
                    self.nodes[n].word = word;
                    let mut arrive = Arrive::new(NodeId(n as u16), programs.len(), call, word);
                    let step = arrive.next(Reply::Begin);
                    self.nodes[n].stage = Stage::Arriving(arrive, step);
                    return;
                }
            };
            if !matches!(
                step,
                Step::Store(_) | Step::ReadWord(_) | Step::ReadEvents | Step::Look(_) | Step::ReadSleepers
            ) {
                self.drain(n);
            }
            let reply = match step {
                Step::Look(_) if tired => Reply::Tired,
                Step::Look(events) if events == self.events => {
                    self.nodes[n].stage = Stage::Arriving(arrive, step);
                    return;
                }
                Step::Look(_) | Step::ReadEvents => Reply::Number(self.events),
                Step::ReadSleepers => Reply::Number(self.sleepers),
                Step::ReadWord(node) => Reply::Word(self.words[node.index()]),
                Step::Sleep(events) if events == self.events => {
                    self.nodes[n].stage = Stage::Asleep(arrive);
                    return;
                }
                Step::Open => return self.passes(programs, n, true),
                Step::ByMessages => {
                    self.nodes[n].stage = Stage::ByMessages;
                    return;
                }
                _ => {
                    match step {
                        Step::Store(word) => self.nodes[n].buffered = Some(word),
                        Step::AddSleeper => self.sleepers += 1,
                        Step::RemoveSleeper => self.sleepers -= 1,
                        Step::Advance => self.events += 1,
                        Step::Wake => self.wake_all(),
                        _ => {}
                    }
                    Reply::Done
                }
            };
            let next = arrive.next(reply);
            self.nodes[n].stage = Stage::Arriving(arrive, next);
        }

        fn wake_all(&mut self) {
            for node in &mut self.nodes {
                if let Stage::Asleep(arrive) = &node.stage {
                    let mut arrive = arrive.clone();
                    let step = arrive.next(Reply::Done);
                    node.stage = Stage::Arriving(arrive, step);
                }
            }
        }

        fn passes(&mut self, programs: &Programs, n: usize, by_words: bool) {
            let call = self.nodes[n].passed;
            let kinds = || programs.iter().map(|program| program[call as usize]);
            let fits_words = kinds().all(|kind| kind == programs[n][call as usize] && kind != BY_MESSAGES);
            if self.nodes.iter().any(|node| node.word.call_at(call).is_none()) {
                self.error = Some("a node passes a call to which another has not come");
            } else if by_words != fits_words {
                self.error = Some("a call goes by words for one node and by messages for another");
            }
            self.nodes[n].passed += 1;
        }
    }
}
