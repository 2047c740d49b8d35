//! Programs by name, made by seed, run and judged: one seed is one run, the same every time.

use crate::check;
use crate::check::litmus::{self, Litmus, Reads};
use crate::cluster::{self, Config, Outcome};
use crate::program::{Gap, Op, Program, Shape};
use crate::tuning;
use comem_protocol::coherence::Engine;
use comem_protocol::faults::{FaultSpec, Rng};
use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::tuning::Tuning;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rounds of a litmus program in one run.
const LITMUS_ROUNDS: usize = 8;

/// A family of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One of the litmus programs.
    Litmus(usize),
    /// A bit of everything: accesses, ranges, critical sections, barriers, flags, messages.
    Mixed,
    /// Every thread at one unit, reading and writing.
    Hot,
    /// Nothing but critical sections that count.
    Counters,
    /// Overlapping ranges.
    Ranges,
    /// Nothing but barriers.
    Barriers,
    /// Nothing but messages between threads.
    Messages,
    /// Threads that post semaphores and take from them.
    Semaphores,
    /// A bounded buffer with a lock and two condition variables (under `broadcast`, which keeps no counts: semaphores).
    Buffer,
    /// Readers and writers.
    Readers,
    /// As `Hot`, over two units, by nodes that have no room for what they fetch.
    Evictions,
}

impl Kind {
    /// Every family but the litmus programs.
    pub const STRESS: [Kind; 10] = [
        Kind::Mixed,
        Kind::Hot,
        Kind::Counters,
        Kind::Ranges,
        Kind::Barriers,
        Kind::Messages,
        Kind::Semaphores,
        Kind::Buffer,
        Kind::Readers,
        Kind::Evictions,
    ];

    /// Every family.
    pub fn all() -> Vec<Kind> {
        let litmus = (0..litmus::ALL.len()).map(Kind::Litmus);
        Kind::STRESS.into_iter().chain(litmus).collect()
    }

    /// The family's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Litmus(index) => &litmus::ALL[index].name,
            Kind::Mixed => "mixed",
            Kind::Hot => "hot",
            Kind::Counters => "counters",
            Kind::Ranges => "ranges",
            Kind::Barriers => "barriers",
            Kind::Messages => "messages",
            Kind::Semaphores => "semaphores",
            Kind::Buffer => "buffer",
            Kind::Readers => "readers",
            Kind::Evictions => "evictions",
        }
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::all().into_iter().find(|k| k.name().eq_ignore_ascii_case(name))
    }
}

/// What a panic of the protocol says, as a violation.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
    format!("panic: {}", text.unwrap_or_default())
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The family; `None` lets the seed choose.
    pub kind: Option<Kind>,
    /// The engine.
    pub engine: Engine,
    /// How many nodes; `None` lets the seed choose. Litmus programs bring their own number.
    pub nodes: Option<usize>,
    /// Threads in each; `None` lets the seed choose.
    pub threads: Option<usize>,
    /// `Some`: over the production link with these faults; `None`: over whole messages.
    pub faults: Option<FaultSpec>,
    /// Keep a line for everything that happens.
    pub trace: bool,
}

/// A run and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Which family ran.
    pub kind: Kind,
    /// What is wrong; empty when all is well.
    pub violations: Vec<String>,
    /// For litmus programs, the outcomes seen that sequential consistency forbids.
    pub forbidden: BTreeSet<Reads>,
    /// The run.
    pub outcome: Outcome,
}

impl Scenario {
    /// Anything, under this engine, over whole messages.
    pub fn new(engine: Engine) -> Scenario {
        Scenario { kind: None, engine, nodes: None, threads: None, faults: None, trace: false }
    }

    /// Runs one seed. A panic of the protocol is a violation like any other.
    pub fn run(&self, seed: u64) -> Verdict {
        let mut rng = Rng::new(seed ^ 0x5eed_0000);
        let kinds = Kind::all();
        let kind = self.kind.unwrap_or(kinds[rng.below(kinds.len() as u64) as usize]);
        catch_unwind(AssertUnwindSafe(|| self.run_kind(kind, seed, &mut rng))).unwrap_or_else(|panic| {
            let violations = vec![panicked(panic.as_ref())];
            Verdict { kind, violations, forbidden: BTreeSet::new(), outcome: Outcome::default() }
        })
    }

    fn run_kind(&self, kind: Kind, seed: u64, rng: &mut Rng) -> Verdict {
        let authenticate = rng.below(2) == 0;
        let damaged = self.faults.is_some_and(|f| f.damages());
        let config = Config {
            faults: self.faults,
            // Without tags nobody can tell a damaged datagram.
            authenticate: authenticate || damaged,
            datagram_bytes: if rng.below(2) == 0 { 512 } else { 1472 },
            // A thread that soon finds no room must do as well as one that never does.
            requests_per_thread: if rng.below(2) == 0 { 2 } else { 64 },
            tuning: tuning::drawn_in_half(seed, &["msi", "link", "sync"], Tuning::DEFAULT),
            trace: self.trace,
            ..Config::new(self.engine, seed)
        };
        match kind {
            Kind::Litmus(index) => self.litmus(kind, &litmus::ALL[index], config, rng),
            _ => {
                let program = self.program(kind, rng);
                let outcome = cluster::run(&program, config);
                let violations = check::all(self.engine, &outcome);
                Verdict { kind, violations, forbidden: BTreeSet::new(), outcome }
            }
        }
    }

    fn litmus(&self, kind: Kind, litmus: &Litmus, config: Config, rng: &mut Rng) -> Verdict {
        let unit_elements = 1 + rng.below(2) as usize * litmus.variables;
        let run = litmus.program(LITMUS_ROUNDS, unit_elements, rng);
        let outcome = cluster::run(&run.program, config);
        let mut violations = outcome.failures.clone();
        let mut forbidden = BTreeSet::new();
        if violations.is_empty() {
            let allowed = litmus.allowed();
            forbidden.extend(litmus.outcomes(&run, &outcome.records).into_iter().filter(|o| !allowed.contains(o)));
        }
        if self.engine != Engine::Broadcast {
            violations.extend(forbidden.iter().map(|o| format!("{}: forbidden outcome {o:?}", litmus.name)));
        }
        Verdict { kind, violations, forbidden, outcome }
    }

    /// The family's program for this seed.
    pub fn program(&self, kind: Kind, rng: &mut Rng) -> Program {
        let nodes = self.nodes.unwrap_or_else(|| rng.between(2, 5) as usize);
        let threads = self.threads.unwrap_or_else(|| rng.between(1, 3) as usize);
        let counts = self.engine != Engine::Broadcast;
        let kind = if kind == Kind::Buffer && !counts { Kind::Semaphores } else { kind };
        let mut maker = Maker::new(kind, nodes, threads, rng);
        maker.make();
        maker.program
    }
}

/// Makes a random program.
struct Maker<'a> {
    kind: Kind,
    program: Program,
    /// The last elements count; they are written in critical sections alone.
    counters: usize,
    next_value: u64,
    expected: Vec<Vec<usize>>,
    rng: &'a mut Rng,
}

impl<'a> Maker<'a> {
    fn new(kind: Kind, nodes: usize, threads: usize, rng: &'a mut Rng) -> Maker<'a> {
        let width = [4, 8, 24][rng.below(3) as usize];
        let (units, unit_elements) = match kind {
            Kind::Hot => (1, rng.between(3, 6) as usize),
            Kind::Evictions => (2, rng.between(2, 4) as usize),
            Kind::Ranges => (rng.between(3, 5) as usize, rng.between(1, 4) as usize),
            // Now and then a unit that does not fit one datagram.
            _ if rng.below(4) == 0 => (2, 96),
            _ => (rng.between(4, 7) as usize, rng.between(1, 4) as usize),
        };
        let shape = Shape { nodes, elements: units * unit_elements, width, unit_elements };
        let program = Program { shape, threads: vec![vec![Vec::new(); threads]; nodes] };
        let expected = vec![vec![0; threads]; nodes];
        Maker { kind, program, counters: 2, next_value: 0, expected, rng }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn places(&self) -> Vec<(usize, usize)> {
        let threads = self.program.threads_per_node();
        (0..self.program.threads.len()).flat_map(|n| (0..threads).map(move |t| (n, t))).collect()
    }

    fn make(&mut self) {
        let (phases, ops) = match self.kind {
            Kind::Barriers => (12, 1),
            Kind::Mixed => (3, 12),
            Kind::Hot | Kind::Counters | Kind::Evictions => (2, 15),
            _ => (2, 10),
        };
        for phase in 0..phases {
            self.phase(phase, ops);
        }
        for (n, t) in self.places() {
            let receive = Op::Receive(self.expected[n][t]);
            self.program.threads[n][t].extend([receive, Op::Barrier(1)]);
        }
    }

    fn phase(&mut self, phase: u64, ops: usize) {
        match self.kind {
            Kind::Semaphores => return self.posts_and_takes(),
            Kind::Buffer => return self.produce_and_consume(),
            _ => {}
        }
        let places = self.places();
        let setter = self.below(places.len());
        let with_flag = self.kind == Kind::Mixed;
        for (index, (n, t)) in places.into_iter().enumerate() {
            let at = self.below(ops);
            for op in 0..ops {
                if with_flag && op == at {
                    // One thread raises the flag and waits for none, so that no two wait for each other.
                    let flag = FlagId(phase % 2);
                    let op = if index == setter { Op::Set(flag, phase + 1) } else { Op::Await(flag, phase + 1) };
                    self.program.threads[n][t].push(op);
                }
                let made = self.op(n);
                self.program.threads[n][t].extend(made);
            }
            let brought = self.below(100) as i64;
            self.program.threads[n][t].push(Op::Barrier(brought));
        }
    }

    fn op(&mut self, n: usize) -> Vec<Op> {
        let elements = self.program.shape.elements - self.counters;
        let element = self.below(elements);
        match self.kind {
            Kind::Barriers => vec![Op::Think(self.rng.below(3_000))],
            Kind::Counters => self.count(),
            Kind::Messages => self.message(n).unwrap_or_default(),
            Kind::Readers => self.read_or_write(),
            Kind::Semaphores | Kind::Buffer => Vec::new(),
            Kind::Ranges => self.range(elements),
            Kind::Hot => match self.below(10) {
                0..4 => vec![Op::Read(element)],
                4..8 => self.write(element),
                _ => self.range(elements),
            },
            Kind::Evictions => match self.below(12) {
                0..4 => vec![Op::Read(element)],
                4..7 => self.write(element),
                7 => self.range(elements),
                _ => vec![Op::GiveBack(element)],
            },
            _ => match self.below(16) {
                0..5 => vec![Op::Read(element)],
                5..9 => self.write(element),
                9..11 => self.count(),
                11..13 => self.range(elements),
                13 => vec![Op::Think(self.rng.below(100_000))],
                _ => self.message(n).unwrap_or_default(),
            },
        }
    }

    /// Values that no other write stores, small enough for every width.
    fn values(&mut self, count: usize) -> u64 {
        let first = self.next_value + 1;
        self.next_value += count as u64;
        first
    }

    fn write(&mut self, element: usize) -> Vec<Op> {
        vec![Op::Write(element, self.values(1))]
    }

    fn count(&mut self) -> Vec<Op> {
        let which = self.below(self.counters);
        let element = self.program.shape.elements - 1 - which;
        let lock = LockId(which as u64);
        vec![Op::Lock(lock), Op::Read(element), Op::WriteNext(element), Op::Unlock(lock)]
    }

    fn range(&mut self, elements: usize) -> Vec<Op> {
        let first = self.below(elements);
        let count = 1 + self.below((elements - first).min(12));
        if self.below(2) == 0 {
            return vec![Op::ReadRange(first, count)];
        }
        vec![Op::WriteRange(first, count, self.values(count))]
    }

    /// Every thread posts to two semaphores, and takes as often as was posted in all, each time from one of them: no
    /// thread waits before it has posted, so all go on in the end.
    fn posts_and_takes(&mut self) {
        let places = self.places();
        let mut posts = [0; 2];
        for (n, t) in places.iter().copied() {
            for _ in 0..self.below(8) {
                let which = self.below(2);
                posts[which] += 1;
                let (think, post) = (Op::Think(self.rng.below(60_000)), Op::Post(SemaphoreId(which as u64)));
                self.program.threads[n][t].extend([think, post]);
            }
        }
        for (which, count) in posts.into_iter().enumerate() {
            for _ in 0..count {
                let (n, t) = places[self.below(places.len())];
                let semaphore = SemaphoreId(which as u64);
                let take = if self.below(4) == 0 { Op::TryTake(semaphore) } else { Op::Take(semaphore) };
                self.program.threads[n][t].push(take);
            }
        }
        places.into_iter().for_each(|(n, t)| self.program.threads[n][t].push(Op::Barrier(1)));
    }

    /// Half of the threads put as much into a small buffer as the other half take out of it. The last two elements
    /// count how much was put in and taken out; so no store repeats a value.
    fn produce_and_consume(&mut self) {
        let places = self.places();
        let (bound, each) = (1 + self.rng.below(3), 1 + self.below(6));
        for (index, (n, t)) in places.iter().copied().enumerate() {
            let signal_late = self.below(2) == 0;
            for _ in 0..each {
                let made = match index % 2 {
                    0 if index + 1 == places.len() => Vec::new(), // nobody is left to take it out
                    0 => self.buffer(0, Gap::Full(bound), signal_late),
                    _ => self.buffer(1, Gap::Empty, signal_late),
                };
                self.program.threads[n][t].extend(made);
                self.program.threads[n][t].push(Op::Think(self.rng.below(40_000)));
            }
        }
        places.into_iter().for_each(|(n, t)| self.program.threads[n][t].push(Op::Barrier(1)));
    }

    /// Puts one in (side 0) or takes one out (side 1), waiting while the buffer is as `gap` says.
    fn buffer(&mut self, side: usize, gap: Gap, signal_late: bool) -> Vec<Op> {
        let (lock, first) = (LockId(7), self.program.shape.elements - 2);
        let (mine, other) = (ConditionId(side as u64), ConditionId(1 - side as u64));
        let signal = if self.below(4) == 0 { Op::Broadcast(other) } else { Op::Signal(other) };
        let mut ops = vec![Op::Lock(lock), Op::Read(first + 1 - side), Op::Read(first + side)];
        ops.extend([Op::AwaitWhile(gap, mine, lock), Op::WriteNext(first + side)]);
        ops.extend(if signal_late { [Op::Unlock(lock), signal] } else { [signal, Op::Unlock(lock)] });
        ops
    }

    /// Counts under a reader-writer lock, or reads twice what others count.
    fn read_or_write(&mut self) -> Vec<Op> {
        let which = self.below(self.counters);
        let element = self.program.shape.elements - 1 - which;
        let lock = RwLockId(which as u64);
        if self.below(3) == 0 {
            return vec![Op::WriteLock(lock), Op::Read(element), Op::WriteNext(element), Op::RwUnlock(lock)];
        }
        vec![Op::ReadLock(lock), Op::Read(element), Op::Read(element), Op::RwUnlock(lock)]
    }

    fn message(&mut self, n: usize) -> Option<Vec<Op>> {
        let nodes = self.program.threads.len();
        let to = (n + 1 + self.below(nodes.checked_sub(1).filter(|others| *others > 0)?)) % nodes;
        let thread = self.below(self.program.threads_per_node());
        self.expected[to][thread] += 1;
        Some(vec![Op::Send(NodeId(to as u16), thread as u16, self.values(1))])
    }
}
