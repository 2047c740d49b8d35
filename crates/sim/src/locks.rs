//! One-sided locks ([`comem_protocol::sync::one_sided`]) under every order of their operations.
//!
//! The model runs the production machines. One step is one operation on a word or a name: it takes effect at once, as
//! in memory that all threads share. A thread that sleeps goes on when it is woken; nothing else wakes it, so a lost
//! wake-up is a run in which nothing can happen any more. How long a thread looks before it is tired is left open.
//!
//! Where a job is [`Setup::far`], operations are remote ones that take time: an operation takes effect in one step, and
//! the thread hears of it in a later one. Nobody can be woken there, so a thread that sleeps goes on by itself.
//!
//! A state is a value, so the same model runs with random steps ([`run`]) and is searched for all orders (the tests,
//! with stateright).
//!
//! # What must hold in every state
//!
//! - A lock is held by one thread at a time.
//! - While a thread has something left to do, some step is possible.
//! - The place of a lock bears its name.
//! - Nobody waits with a ticket while others take the lock more often than the queue allows.

use crate::tuning;
use comem_protocol::faults::Rng;
use comem_protocol::ids::{Channel, LockId, NodeId, Slot};
use comem_protocol::sync::one_sided::{Acquire, Find, FindStep, LockWord, Release, ReleaseStep, Reply, Step};
use comem_protocol::tuning::{LockTuning, Tuning};

/// Steps after which a run counts as one that never ends.
const STEPS_MAX: usize = 200_000;
/// A wake-up is for whoever sleeps with this ticket, modulo this.
const TICKETS_APART: u16 = 32;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Takes a lock and lets it go.
    Section(u64),
    /// The same, unless somebody else has it.
    Try(u64),
    /// Takes the first lock, then the second, and lets both go.
    Nested(u64, u64),
}

/// The job: what each thread does, and the size of the table.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Each thread's node, and what it does.
    pub threads: Vec<(NodeId, Vec<Act>)>,
    /// Places of the table.
    pub places: usize,
    /// The thread that may stop for ever, wherever it is.
    pub crash: Option<usize>,
    /// Operations take time, and nobody wakes whoever sleeps.
    pub far: bool,
    /// The numbers by which threads take locks.
    pub tuning: LockTuning,
}

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// This thread makes its next step.
    Step(usize),
    /// This thread looks at the word, and has looked for long enough.
    Tire(usize),
    /// The thread that may stop does, and all others hear of it.
    Crash,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// Between two acts, or with locks of one still to take or let go.
    Idle,
    Finding(Find, FindStep),
    Taking(Acquire, Step),
    Asleep(Acquire, u16),
    LettingGo(Release, ReleaseStep),
    /// The operation has taken effect, and the thread does not know of it yet.
    Hearing(Heard),
}

/// What an operation has brought, and for whom.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Heard {
    Name(Find, u64),
    Taking(Acquire, Reply),
    LettingGo(Release, Reply),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Thread {
    me: Channel,
    done: usize,
    /// Locks that this act still takes.
    wants: Vec<u64>,
    waits: bool,
    /// The lock that it is about, and its place.
    lock: (u64, usize),
    held: Vec<(u64, usize, LockWord)>,
    stage: Stage,
    /// So often others took the lock since this thread has had its ticket, and how often they may.
    passed: (u32, u32),
    gone: bool,
}

/// The model at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    names: Vec<u64>,
    words: Vec<LockWord>,
    /// Who is in which lock's section.
    inside: Vec<(u64, usize)>,
    threads: Vec<Thread>,
    far: bool,
    bypasses_max: u8,
    lost: bool,
    error: Option<&'static str>,
}

impl State {
    /// The state in which nothing has happened.
    pub fn new(setup: &Setup) -> State {
        let thread = |(index, (node, _)): (usize, &(NodeId, Vec<Act>))| Thread {
            me: Channel { node: *node, slot: Slot::thread(index) },
            done: 0,
            wants: Vec::new(),
            waits: true,
            lock: (0, 0),
            held: Vec::new(),
            stage: Stage::Idle,
            passed: (0, 0),
            gone: false,
        };
        State {
            names: vec![0; setup.places],
            words: vec![LockWord::FREE; setup.places],
            inside: Vec::new(),
            threads: setup.threads.iter().enumerate().map(thread).collect(),
            far: setup.far,
            bypasses_max: setup.tuning.bypasses_max,
            lost: false,
            error: None,
        }
    }

    /// What may happen in this state.
    pub fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.error.is_some() {
            return actions;
        }
        for (t, thread) in self.threads.iter().enumerate() {
            if thread.has_ended(&setup.threads[t].1) {
                continue;
            }
            match &thread.stage {
                Stage::Asleep(..) if !self.lost && !self.far => {}
                Stage::Taking(_, Step::Look) => actions.extend([Action::Step(t), Action::Tire(t)]),
                _ => actions.push(Action::Step(t)),
            }
        }
        if setup.crash.is_some() && !self.lost && !self.is_finished(setup) {
            actions.push(Action::Crash);
        }
        actions
    }

    /// The state after `action`.
    pub fn after(&self, setup: &Setup, action: Action) -> State {
        let mut next = self.clone();
        next.act(setup, action);
        next
    }

    /// Does `action`.
    pub fn act(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Step(t) => self.step(setup, t, false),
            Action::Tire(t) => self.step(setup, t, true),
            Action::Crash => {
                self.lost = true;
                setup.crash.into_iter().for_each(|t| self.threads[t].gone = true);
            }
        }
    }

    /// What is wrong, if anything.
    pub fn violation(&self, setup: &Setup) -> Option<&'static str> {
        let stuck = || {
            let none = self.actions(setup).iter().all(|action| *action == Action::Crash);
            (none && !self.is_finished(setup)).then_some("nothing can happen any more, but a thread waits")
        };
        self.error.or_else(stuck)
    }

    /// Whether every thread is at its end.
    pub fn is_finished(&self, setup: &Setup) -> bool {
        self.threads.iter().zip(&setup.threads).all(|(thread, (_, program))| thread.has_ended(program))
    }

    /// Whether no lock is held and nobody waits for one.
    pub fn is_at_rest(&self) -> bool {
        self.words.iter().all(|word| *word == LockWord::FREE)
    }

    fn step(&mut self, setup: &Setup, t: usize, tired: bool) {
        let stage = std::mem::replace(&mut self.threads[t].stage, Stage::Idle);
        let heard = match stage {
            Stage::Idle => return self.go_on(&setup.threads[t].1, t),
            Stage::Hearing(heard) => return self.hears(t, heard),
            Stage::Finding(find, step) => {
                let name = match step {
                    FindStep::Get(at) => self.names[at],
                    FindStep::Claim(at, name) => {
                        let before = self.names[at];
                        self.names[at] = if before == 0 { name } else { before };
                        before
                    }
                    FindStep::Found(_) | FindStep::Full => 0,
                };
                Heard::Name(find, name)
            }
            Stage::Taking(acquire, step) => {
                let word = &mut self.words[self.threads[t].lock.1];
                let reply = match step {
                    _ if self.lost && !matches!(step, Step::CompareAndSwap { .. }) => Reply::Lost,
                    Step::CompareAndSwap { expected, new } => Reply::Word(swap(word, expected, new)),
                    Step::Look if tired => Reply::Tired(*word),
                    // The system compares and puts to sleep in one step. Far away nobody compares.
                    Step::Sleep { seen, ticket } if self.far || word.seen() == seen => {
                        self.threads[t].stage = Stage::Asleep(acquire, ticket);
                        return;
                    }
                    _ => Reply::Word(*word),
                };
                Heard::Taking(acquire, reply)
            }
            Stage::Asleep(acquire, _) if self.lost => Heard::Taking(acquire, Reply::Lost),
            Stage::Asleep(acquire, _) => Heard::Taking(acquire, Reply::Word(self.words[self.threads[t].lock.1])),
            Stage::LettingGo(release, step) => {
                let reply = match step {
                    ReleaseStep::CompareAndSwap { expected, new } => {
                        Reply::Word(swap(&mut self.words[self.threads[t].lock.1], expected, new))
                    }
                    ReleaseStep::Wake { ticket } => {
                        if !self.far {
                            self.wake(self.threads[t].lock.1, ticket);
                        }
                        Reply::Done
                    }
                    ReleaseStep::Released | ReleaseStep::NotHeld => Reply::Done,
                };
                Heard::LettingGo(release, reply)
            }
        };
        if self.far {
            self.threads[t].stage = Stage::Hearing(heard);
        } else {
            self.hears(t, heard);
        }
    }

    /// The thread hears what its operation has brought, and comes to the next.
    fn hears(&mut self, t: usize, heard: Heard) {
        match heard {
            Heard::Name(mut find, name) => {
                let next = find.next(Some(name));
                self.finds(t, find, next);
            }
            Heard::Taking(mut acquire, reply) => {
                let had = acquire.ticket();
                let next = acquire.next(reply);
                self.takes(t, acquire, next, had);
            }
            Heard::LettingGo(mut release, reply) => {
                let next = release.next(reply);
                self.lets_go(t, release, next);
            }
        }
    }

    /// Begins the next act, or what is left of this one.
    fn go_on(&mut self, program: &[Act], t: usize) {
        let thread = &mut self.threads[t];
        if thread.wants.is_empty() && thread.held.is_empty() {
            thread.waits = !matches!(program[thread.done], Act::Try(_));
            thread.wants = match program[thread.done] {
                Act::Section(lock) | Act::Try(lock) => vec![lock],
                Act::Nested(first, second) => vec![second, first],
            };
        }
        if let Some(lock) = thread.wants.pop() {
            thread.lock.0 = lock;
            let mut find = Find::new(LockId(lock), self.names.len());
            let next = find.next(None);
            self.finds(t, find, next);
        } else if let Some((lock, at, word)) = thread.held.pop() {
            thread.lock = (lock, at);
            let mut release = Release::new(thread.me, word);
            let next = release.next(Reply::Begin);
            self.inside.retain(|inside| *inside != (lock, t));
            self.lets_go(t, release, next);
        }
    }

    fn finds(&mut self, t: usize, find: Find, next: FindStep) {
        let thread = &mut self.threads[t];
        match next {
            FindStep::Found(at) => {
                thread.lock.1 = at;
                if self.names[at] != thread.lock.0.wrapping_add(1) {
                    self.error = Some("a lock's place bears another name");
                }
                let numbers = LockTuning { bypasses_max: self.bypasses_max, ..LockTuning::DEFAULT };
                let mut acquire = Acquire::new(thread.me, thread.waits).tuned(&numbers);
                let step = acquire.next(Reply::Begin);
                thread.stage = Stage::Taking(acquire, step);
            }
            FindStep::Full => self.error = Some("the table is full"),
            _ => thread.stage = Stage::Finding(find, next),
        }
    }

    fn takes(&mut self, t: usize, acquire: Acquire, next: Step, had: Option<u16>) {
        let (lock, at) = self.threads[t].lock;
        if had.is_none() && acquire.ticket().is_some() {
            let ahead = u32::from(self.words[at].waiting());
            // Who holds the lock by then may hear of it later, where that takes time.
            self.threads[t].passed = (0, ahead * (u32::from(self.bypasses_max) + 1) + u32::from(self.far));
        }
        match next {
            Step::Held(word) => {
                if self.inside.iter().any(|(inside, _)| *inside == lock) {
                    self.error = Some("two threads hold one lock");
                }
                self.inside.push((lock, t));
                let waits = |thread: &Thread| match &thread.stage {
                    Stage::Asleep(acquire, _) | Stage::Taking(acquire, _) => acquire.ticket().is_some(),
                    Stage::Hearing(Heard::Taking(acquire, _)) => acquire.ticket().is_some(),
                    _ => false,
                };
                for thread in self.threads.iter_mut().filter(|thread| thread.lock.0 == lock && waits(thread)) {
                    thread.passed.0 += 1;
                    if thread.passed.0 > thread.passed.1 {
                        self.error = Some("a thread waits while others take the lock again and again");
                    }
                }
                self.threads[t].held.push((lock, at, word));
                self.end_act(t);
            }
            Step::Busy => self.end_act(t),
            Step::HeldAlready => self.error = Some("a thread holds a lock of which it knows nothing"),
            Step::Lost => self.threads[t].gone = true,
            _ => self.threads[t].stage = Stage::Taking(acquire, next),
        }
    }

    fn lets_go(&mut self, t: usize, release: Release, next: ReleaseStep) {
        match next {
            ReleaseStep::Released => self.end_act(t),
            ReleaseStep::NotHeld => self.error = Some("a thread has lost a lock that it held"),
            _ => self.threads[t].stage = Stage::LettingGo(release, next),
        }
    }

    /// If nothing of the act is left, the next is to come.
    fn end_act(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        (thread.lock, thread.passed) = ((0, 0), (0, 0));
        thread.done += usize::from(thread.wants.is_empty() && thread.held.is_empty());
    }

    fn wake(&mut self, at: usize, ticket: u16) {
        for thread in self.threads.iter_mut().filter(|thread| thread.lock.1 == at) {
            if let Stage::Asleep(acquire, sleeps) = &thread.stage
                && sleeps % TICKETS_APART == ticket % TICKETS_APART
            {
                // It looks at the word next.
                let mut acquire = acquire.clone();
                let step = acquire.next(Reply::Word(self.words[at]));
                thread.stage = Stage::Taking(acquire, step);
            }
        }
    }
}

impl Thread {
    fn has_ended(&self, program: &[Act]) -> bool {
        self.gone || self.done == program.len()
    }
}

fn swap(word: &mut LockWord, expected: LockWord, new: LockWord) -> LockWord {
    let before = *word;
    if before == expected {
        *word = new;
    }
    before
}

/// The job of a seed, whose operations are `far` ones or not.
pub fn setup(seed: u64, far: bool) -> Setup {
    let mut rng = Rng::new(seed);
    let (nodes, locks) = (rng.between(1, 4), rng.between(1, 3));
    let long = rng.below(4) == 0;
    let acts = |rng: &mut Rng| {
        let count = if long { 120 } else { rng.between(1, 12) };
        // In a small table all these names begin to look at one place.
        let name = |number: u64| 4 * number;
        let act = |rng: &mut Rng| match rng.below(6) {
            0 => Act::Try(name(rng.below(locks))),
            // In one order, or two threads could wait for each other.
            1 if locks > 1 => Act::Nested(0, name(1 + rng.below(locks - 1))),
            _ => Act::Section(name(rng.below(locks))),
        };
        (0..count).map(|_| act(rng)).collect()
    };
    let threads: Vec<(NodeId, Vec<Act>)> = (0..rng.between(2, 6))
        .map(|_| {
            let node = NodeId(rng.below(nodes) as u16);
            (node, acts(&mut rng))
        })
        .collect();
    let crash = (rng.below(3) == 0).then(|| rng.below(threads.len() as u64) as usize);
    let places = if rng.below(2) == 0 { 5 } else { 64 };
    Setup { threads, places, crash, far, tuning: tuning::drawn_in_half(seed, &["locks"], Tuning::DEFAULT).locks }
}

/// Runs a seed: what is wrong, if anything.
pub fn run(seed: u64, far: bool) -> Option<&'static str> {
    let setup = setup(seed, far);
    let mut rng = Rng::new(seed ^ 0x10c5);
    // In some runs one thread is slow, as one that sleeps is.
    let slow = (rng.below(2) == 0).then(|| rng.below(setup.threads.len() as u64) as usize);
    let crash_at = rng.below(200);
    let mut state = State::new(&setup);
    for step in 0..STEPS_MAX as u64 {
        let mut actions = state.actions(&setup);
        if step < crash_at {
            actions.retain(|action| *action != Action::Crash);
        }
        if let Some(slow) = slow
            && rng.below(64) != 0
            && actions.iter().any(|action| !action.is_of(slow))
        {
            actions.retain(|action| !action.is_of(slow));
        }
        if let Some(violation) = state.violation(&setup) {
            return Some(violation);
        }
        if state.is_finished(&setup) {
            let rests = state.lost || state.is_at_rest();
            return (!rests).then_some("all have ended, and a lock is not free");
        }
        let Some(action) = actions.get(rng.below(actions.len() as u64) as usize) else { continue };
        state.act(&setup, *action);
    }
    Some("the run does not end")
}

impl Action {
    fn is_of(self, thread: usize) -> bool {
        matches!(self, Action::Step(t) | Action::Tire(t) if t == thread)
    }
}
