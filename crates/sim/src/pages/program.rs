//! What the threads do to shared pages: programs without races, by name, made by seed.
//!
//! Words of one page belong to different threads and locks on purpose, so that several nodes write the same page at the
//! same time.

mod sync_objects;

use super::memory::PAGE_WORDS;
use comem_protocol::faults::Rng;
use comem_protocol::ids::{FlagId, LockId};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use comem_protocol::sync::subset_barrier::SubsetBarrierId;

/// One step of a thread's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Load a word; the value stays in the thread's register.
    Read(usize),
    /// Store a value.
    Write(usize, u64),
    /// Store the register plus one.
    WriteNext(usize),
    /// Store the register less one.
    WriteLess(usize),
    /// Store the register: what was read before comes back.
    WriteBack(usize),
    /// Add a number to a word atomically, whatever others add meanwhile.
    Add(usize, u64),
    /// Leave out the next so many operations if the register is zero.
    SkipIfZero(usize),
    /// Acquire a lock.
    Lock(LockId),
    /// Release it.
    Unlock(LockId),
    /// Make it wide: the next release of it tells of everything, and the next acquire asks for that.
    Widen(LockId),
    /// Pass the barrier of all threads.
    Barrier,
    /// Raise a flag.
    Set(FlagId, u64),
    /// Wait until a flag has reached a value.
    Await(FlagId, u64),
    /// Pass the barrier of all threads with a number; the sum of all comes to the register.
    Reduce(u64),
    /// Add one to a semaphore.
    Post(SemaphoreId),
    /// The same, and wait until that counts.
    Give(SemaphoreId),
    /// Take one from a semaphore.
    Take(SemaphoreId),
    /// Acquire a reader-writer lock to read.
    ReadLock(RwLockId),
    /// Acquire it to write.
    WriteLock(RwLockId),
    /// Release it.
    RwUnlock(RwLockId),
    /// Wait for a condition variable, the lock let go meanwhile.
    CondWait(ConditionId, LockId),
    /// The same if the register is zero; then go back to the operation before, which reads it.
    CondWaitIfZero(ConditionId, LockId),
    /// Wake one thread that waits for a condition variable.
    Signal(ConditionId),
    /// Wake all of them.
    Broadcast(ConditionId),
    /// Wait until so many threads have come here.
    BarrierOf(SubsetBarrierId, u32),
    /// Free the region with this place in the layout.
    Free(usize),
    /// This node hears that the region with this place in the layout, freed some barriers ago, is a new one. No node
    /// uses it before the next barrier.
    Renew(usize),
    /// Free the block that begins at this word: node so-and-so owns it, and this is the end of its life with a number.
    FreeBlock(usize, usize, u64),
    /// Wait until the block that begins at this word, and has so many, is freed for the time with this number, and give
    /// it out again. Its words are zeroed next.
    ReuseBlock(usize, usize, u64),
    /// Compute for so long, in nanoseconds.
    Think(u64),
}

/// `programs[node][thread]`.
pub type Programs = Vec<Vec<Vec<Op>>>;

/// A family of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// In each phase between two barriers some words are private, some under locks, some only read, some told of by
    /// flags.
    Mixed,
    /// Counters under locks that wander from node to node.
    Migratory,
    /// Each thread updates its rows and reads its neighbours' after a barrier.
    Sor,
    /// Pairs of threads that hand a buffer back and forth by flags.
    Producer,
    /// What is written under a lock is read under the same lock.
    SameLock,
    /// What is written under one lock is read after a critical section of another lock has told of it.
    SecondLock,
    /// The same through two locks and a third thread.
    LockWrc,
    /// Words handed on by flags from thread to thread, each of which adds one.
    Chain,
    /// A word that waves while another word of its page goes about with a lock: it ends as it was.
    Wavering,
    /// As the second lock's, but its release is release-consistent.
    WideRelease,
    /// As the second lock's, but its acquires are lazy ones.
    WideAcquire,
    /// Counters to which all add atomically, among words that are written plainly; set and read between barriers, and
    /// told of by flags.
    Atomics,
    /// Each thread writes words of its own in pages that all write, and reads others' after a barrier.
    FalseSharing,
    /// Each thread writes one word of a page, and all read all of them after a barrier.
    AllToAll,
    /// Threads take turns, and use no memory for several barriers between.
    Absent,
    /// Few threads write words of pages again and again, and do not read them; the others read.
    Gathered,
    /// Blocks that other nodes write and free are given out again by their owner, who has heard of neither.
    Blocks,
    /// Bounded buffers, events, and counters under semaphores.
    Semaphores,
    /// Tables under reader-writer locks, whose readers leave marks for the writers.
    Readers,
    /// A bounded buffer under a lock and two condition variables, and signals that tell by themselves.
    Conditions,
    /// Each thread updates its words and reads others' behind a reduction.
    Reductions,
    /// The same behind barriers of some threads.
    Meetings,
    /// Words handed on from thread to thread, each of which adds one, by semaphores, meetings and flags in turn.
    Relay,
}

impl Kind {
    /// The families among which seeds choose.
    pub const ALL: [Kind; 8] = [
        Kind::Mixed,
        Kind::Migratory,
        Kind::Sor,
        Kind::Producer,
        Kind::SameLock,
        Kind::SecondLock,
        Kind::LockWrc,
        Kind::Chain,
    ];
    /// Those that must be asked for: the locks of few programs are wide.
    pub const WIDE: [Kind; 2] = [Kind::WideRelease, Kind::WideAcquire];

    /// Those in which pages have many writers at a time, or none for long, or are given out again.
    pub const KEPT: [Kind; 4] = [Kind::FalseSharing, Kind::AllToAll, Kind::Absent, Kind::Blocks];

    /// Those that a page goes to its manager for, where diffs are told to sets.
    pub const HOMED: [Kind; 1] = [Kind::Gathered];

    /// Those around releases that are neither of locks nor of flags nor of barriers: few seeds choose one.
    pub const SYNC_OBJECTS: [Kind; 6] =
        [Kind::Semaphores, Kind::Readers, Kind::Conditions, Kind::Reductions, Kind::Meetings, Kind::Relay];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mixed => "mixed",
            Kind::Migratory => "migratory",
            Kind::Sor => "sor",
            Kind::Producer => "producer",
            Kind::SameLock => "same-lock",
            Kind::SecondLock => "second-lock",
            Kind::LockWrc => "lock-wrc",
            Kind::Chain => "chain",
            Kind::Wavering => "wavering",
            Kind::WideRelease => "wide-release",
            Kind::WideAcquire => "wide-acquire",
            Kind::Atomics => "atomics",
            Kind::FalseSharing => "false-sharing",
            Kind::AllToAll => "all-to-all",
            Kind::Absent => "absent",
            Kind::Gathered => "gathered",
            Kind::Blocks => "blocks",
            Kind::Semaphores => "semaphores",
            Kind::Readers => "readers",
            Kind::Conditions => "conditions",
            Kind::Reductions => "reductions",
            Kind::Meetings => "meetings",
            Kind::Relay => "relay",
        }
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        let others = [Kind::Wavering, Kind::Atomics].into_iter().chain(Kind::KEPT).chain(Kind::HOMED);
        let all = Kind::ALL.into_iter().chain(Kind::WIDE).chain(Kind::SYNC_OBJECTS).chain(others);
        all.into_iter().find(|k| k.name() == name)
    }

    /// Whether `scope` keeps it right: every conflicting pair is ordered by a barrier, by a flag, post, signal or
    /// meeting of the writer's own, by critical sections of one and the same lock, or by a wide lock.
    pub fn is_scoped(self) -> bool {
        !matches!(self, Kind::SecondLock | Kind::LockWrc | Kind::Chain | Kind::Relay | Kind::Blocks)
    }
}

/// Makes the programs of one run.
pub struct Maker<'a> {
    /// Words of the memory.
    words: usize,
    places: Vec<(usize, usize)>,
    programs: Programs,
    next_value: u64,
    rng: &'a mut Rng,
}

/// Before some of its stores a thread stores something else, and for a while or for good what the word held comes back:
/// memory that is as it was tells nobody that it has been something else.
pub fn waver(programs: &mut Programs, rng: &mut Rng) {
    // Who polls a word without a lock must find in it what the program means. Who gets a block again must not look what
    // stood there.
    let looks = |op: &Op| matches!(op, Op::SkipIfZero(_) | Op::CondWaitIfZero(..) | Op::ReuseBlock(..));
    if programs.iter().flatten().flatten().any(looks) {
        return;
    }
    for program in programs.iter_mut().flatten() {
        for op in std::mem::take(program) {
            let Op::Write(word, value) = op else {
                program.push(op);
                continue;
            };
            let think = Op::Think(if rng.below(4) == 0 { rng.below(400_000) } else { rng.below(20_000) });
            match rng.below(3) {
                0 => program.push(op),
                1 => program.extend([Op::Read(word), op, think, Op::WriteBack(word)]),
                _ => program.extend([
                    Op::Read(word),
                    Op::Write(word, value + WAVERING),
                    think,
                    Op::WriteBack(word),
                    think,
                    op,
                ]),
            }
        }
    }
}

/// Above all other values.
const WAVERING: u64 = 1 << 40;

impl<'a> Maker<'a> {
    /// Makes a family's programs for so many nodes, threads of each and pages.
    pub fn make(kind: Kind, nodes: usize, threads: usize, pages: u32, rng: &'a mut Rng) -> Programs {
        let mut maker = Maker {
            words: pages as usize * PAGE_WORDS,
            places: (0..nodes).flat_map(|n| (0..threads).map(move |t| (n, t))).collect(),
            programs: vec![vec![Vec::new(); threads]; nodes],
            next_value: 0,
            rng,
        };
        let phases = maker.rng.between(2, 4);
        for phase in 0..phases {
            maker.phase(kind, phase);
            maker.barrier();
            // Everybody looks at everything, now and then.
            if maker.rng.below(3) == 0 || phase + 1 == phases {
                maker.survey();
                maker.barrier();
            }
        }
        maker.programs
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn program(&mut self, who: usize) -> &mut Vec<Op> {
        let (n, t) = self.places[who % self.places.len()];
        &mut self.programs[n][t]
    }

    fn think(&mut self, who: usize) {
        let span = if self.below(4) == 0 { self.rng.below(400_000) } else { self.rng.below(5_000) };
        self.program(who).push(Op::Think(span));
    }

    fn barrier(&mut self) {
        (0..self.places.len()).for_each(|who| self.program(who).push(Op::Barrier));
    }

    fn survey(&mut self) {
        for who in 0..self.places.len() {
            for _ in 0..4 {
                let word = self.below(self.words);
                self.program(who).push(Op::Read(word));
            }
        }
    }

    fn phase(&mut self, kind: Kind, phase: u64) {
        match kind {
            Kind::Mixed => self.mixed(phase),
            Kind::Migratory => self.migratory(),
            Kind::Sor => self.sor(),
            Kind::Producer => self.producer(phase),
            Kind::SameLock | Kind::SecondLock | Kind::WideRelease | Kind::WideAcquire => self.publish(kind),
            Kind::LockWrc => self.lock_wrc(),
            Kind::Wavering => self.wavering(),
            Kind::Chain => self.chain(phase),
            Kind::Atomics => self.atomics(phase),
            Kind::FalseSharing => self.false_sharing(),
            Kind::Gathered => self.gathered(),
            Kind::Blocks => self.blocks(phase),
            Kind::AllToAll => self.all_to_all(),
            Kind::Absent => self.absent(),
            Kind::Semaphores => self.semaphores(phase),
            Kind::Readers => self.readers(),
            Kind::Conditions => self.conditions(phase),
            Kind::Reductions => self.reductions(),
            Kind::Meetings => self.meetings(phase),
            Kind::Relay => self.relay(phase),
        }
    }

    /// Words in random order, so that neighbours in a page have different roles.
    fn shuffled(&mut self) -> Vec<usize> {
        let mut words: Vec<usize> = (0..self.words).collect();
        (1..words.len()).rev().for_each(|i| words.swap(i, self.rng.below(i as u64 + 1) as usize));
        words
    }

    fn read_or_write(&mut self, who: usize, words: &[usize]) {
        let word = words[self.below(words.len())];
        let op = match self.below(5) {
            0..2 => Op::Read(word),
            _ => Op::Write(word, self.value()),
        };
        self.program(who).push(op);
    }

    fn mixed(&mut self, phase: u64) {
        let count = self.places.len();
        let words = self.shuffled();
        let mut classes = words.chunks(words.len().div_ceil(count + 4));
        let mut class = || classes.next().unwrap_or(&words[..0]).to_vec();
        let locked = [class(), class()];
        let (told, constant) = (class(), class());
        let private: Vec<Vec<usize>> = (0..count).map(|_| class()).collect();
        let (setter, flag) = (self.below(count), FlagId(phase));
        let ops = 4 + self.below(8);
        let turn = self.below(ops);
        for (who, private) in private.iter().enumerate() {
            for op in 0..ops {
                if op == turn && who == setter {
                    (0..3).for_each(|_| self.read_or_write(who, &told));
                    self.program(who).push(Op::Set(flag, phase + 1));
                } else if op == turn {
                    self.program(who).push(Op::Await(flag, phase + 1));
                    let word = told[self.below(told.len())];
                    self.program(who).push(Op::Read(word));
                }
                match self.below(8) {
                    0..3 if !private.is_empty() => self.read_or_write(who, private),
                    3 if !constant.is_empty() => {
                        let word = constant[self.below(constant.len())];
                        self.program(who).push(Op::Read(word));
                    }
                    4 => self.think(who),
                    _ => {
                        let which = self.below(2);
                        self.critical(who, LockId(which as u64), &locked[which]);
                    }
                }
            }
        }
    }

    fn critical(&mut self, who: usize, lock: LockId, words: &[usize]) {
        self.program(who).push(Op::Lock(lock));
        for _ in 0..1 + self.below(3) {
            self.read_or_write(who, words);
        }
        self.program(who).push(Op::Unlock(lock));
    }

    fn wavering(&mut self) {
        let count = self.places.len();
        let page = self.below(self.words / PAGE_WORDS) * PAGE_WORDS;
        let (at, apart) = (self.below(PAGE_WORDS), 1 + self.below(PAGE_WORDS - 1));
        let (counter, waving) = (page + at, page + (at + apart) % PAGE_WORDS);
        let (carries, other) = (LockId(5), LockId(6));
        let look = [Op::Lock(carries), Op::Read(counter), Op::Unlock(carries)];
        let pass = [Op::Lock(other), Op::Unlock(other)];
        let count_up = [Op::Lock(carries), Op::Read(counter), Op::WriteNext(counter), Op::Unlock(carries)];
        let (waverer, value) = (self.below(count), self.value() + WAVERING);
        for who in (0..count).map(|further| (waverer + further) % count) {
            // Each of the others closes intervals, or has the page come with the token.
            let ops = if self.below(2) == 0 { &look[..] } else { &pass };
            for _ in 0..6 {
                let span = Op::Think(self.rng.below(60_000));
                let ops = if who == waverer { &count_up[..] } else { ops };
                self.program(who).push(span);
                self.program(who).extend(ops);
            }
        }
        let program = self.program(waverer);
        program.extend(pass);
        program.extend([Op::Read(waving), Op::Write(waving, value), Op::Think(60_000), Op::WriteBack(waving)]);
        self.barrier();
        (0..count).for_each(|who| self.program(who).push(Op::Read(waving)));
    }

    fn atomics(&mut self, phase: u64) {
        let (words, count) = (self.shuffled(), self.places.len());
        let (counters, told, rest) = (&words[..2], words[2], &words[3..]);
        // Copies of what will change; and what is stored may be what was there before.
        let setter = self.below(count);
        for who in 0..count {
            if self.below(2) == 0 {
                words[..3].iter().for_each(|word| self.program(who).push(Op::Read(*word)));
            }
        }
        self.barrier();
        if self.below(3) > 0 {
            let value = if self.below(2) == 0 { 0 } else { self.value() << 20 };
            counters.iter().for_each(|word| self.program(setter).push(Op::Write(*word, value)));
        }
        self.program(setter).push(Op::Write(told, 0));
        self.barrier();
        let (teller, flag) = (self.below(count), FlagId(phase));
        for who in 0..count {
            for _ in 0..3 + self.below(4) {
                let counter = counters[self.below(2)];
                self.program(who).push(Op::Add(counter, 1));
                let mine = &rest[who * rest.len() / count..(who + 1) * rest.len() / count];
                match self.below(4) {
                    0..2 if !mine.is_empty() => self.read_or_write(who, mine),
                    2 => self.program(who).extend([Op::Lock(LockId(1)), Op::Unlock(LockId(1))]),
                    _ => self.think(who),
                }
            }
            // One alone adds here, and says so.
            if who == teller {
                self.program(who).extend([
                    Op::Add(told, 3),
                    Op::Read(told),
                    Op::Add(told, 4),
                    Op::Set(flag, phase + 1),
                ]);
            } else {
                self.program(who).extend([Op::Await(flag, phase + 1), Op::Read(told)]);
            }
        }
        self.barrier();
        (0..count).for_each(|who| words[..3].iter().for_each(|word| self.program(who).push(Op::Read(*word))));
    }

    fn migratory(&mut self) {
        let words = self.shuffled();
        let count = self.places.len();
        for who in 0..count {
            for _ in 0..3 + self.below(4) {
                let which = self.below(2);
                let (counter, lock) = (words[which], LockId(which as u64));
                self.program(who).extend([Op::Lock(lock), Op::Read(counter), Op::WriteNext(counter), Op::Unlock(lock)]);
                let mine = &words[2..][who * (words.len() - 2) / count..(who + 1) * (words.len() - 2) / count];
                self.read_or_write(who, mine);
                self.think(who);
            }
        }
    }

    fn false_sharing(&mut self) {
        let (words, count) = (self.shuffled(), self.places.len());
        for _ in 0..2 {
            for (at, word) in words.iter().enumerate() {
                if self.below(3) > 0 {
                    let value = self.value();
                    self.program(at % count).push(Op::Write(*word, value));
                }
            }
            self.barrier();
            for who in 0..count {
                let other = words[self.below(words.len())];
                self.program(who).push(Op::Read(other));
                self.think(who);
            }
            self.barrier();
        }
    }

    fn all_to_all(&mut self) {
        let (words, count) = (self.shuffled(), self.places.len());
        for (who, word) in words.iter().enumerate().take(count) {
            let value = self.value();
            self.program(who).push(Op::Write(*word, value));
        }
        self.barrier();
        for who in 0..count {
            let from = self.below(words.len());
            (0..words.len()).for_each(|at| self.program(who).push(Op::Read(words[(from + at) % words.len()])));
        }
    }

    fn gathered(&mut self) {
        let (words, count) = (self.shuffled(), self.places.len());
        // On two nodes at least.
        let writers: Vec<usize> = [0, count - 1, count / 2][..2 + self.below(2).min(count - 2)].to_vec();
        let (counter, words) = (words[0], &words[1..]);
        let lock = LockId(3);
        let reads_itself = self.below(4) == 0;
        for round in 0..5 {
            for (nth, who) in writers.iter().enumerate() {
                let own = (nth..words.len()).step_by(writers.len());
                for at in own.filter(|at| !(at / writers.len() + round).is_multiple_of(3)) {
                    let value = self.value();
                    self.program(*who).push(Op::Write(words[at], value));
                }
            }
            // A word that goes about with a lock among them: some diffs come with its token.
            for who in 0..count {
                if self.below(6) == 0 {
                    let counts = [Op::Lock(lock), Op::Read(counter), Op::WriteNext(counter), Op::Unlock(lock)];
                    self.program(who).extend(counts);
                }
            }
            self.barrier();
            let nodes: Vec<usize> = writers.iter().map(|who| self.places[*who].0).collect();
            for who in (0..count).filter(|who| !writers.contains(who)) {
                if reads_itself || !nodes.contains(&self.places[who].0) {
                    for _ in 0..1 + self.below(4) {
                        let word = words[self.below(words.len())];
                        self.program(who).push(Op::Read(word));
                    }
                }
            }
            self.barrier();
        }
    }

    fn absent(&mut self) {
        let (words, count) = (self.shuffled(), self.places.len());
        let rows = words.len() / count;
        for turn in 0..4 {
            for who in (0..count).filter(|who| rows > 0 && who % 3 == turn % 3) {
                for _ in 0..1 + self.below(4) {
                    let word = words[self.below(rows) * count + who];
                    let value = self.value();
                    self.program(who).push(Op::Write(word, value));
                }
                // What those wrote that are absent now.
                let at = self.below(rows * count);
                if at % count % 3 != turn % 3 {
                    self.program(who).push(Op::Read(words[at]));
                }
                self.program(who).extend([Op::Lock(LockId(3)), Op::Unlock(LockId(3))]);
            }
            self.barrier();
        }
    }

    fn blocks(&mut self, phase: u64) {
        let count = self.places.len();
        let first = self.below(self.words);
        let block: Vec<usize> = (first..first + 1 + self.below(PAGE_WORDS - first % PAGE_WORDS)).collect();
        let beside: Vec<usize> = (0..self.words).filter(|word| !block.contains(word)).collect();
        let owner = self.below(count);
        let owner_node = self.places[owner].0;
        let mut behind = None;
        for life in 1..3 {
            let flag = |step: u64| FlagId(500 + 32 * phase + 8 * life + step);
            let steps = 3 + self.below(2) as u64;
            for step in 0..steps {
                let who = self.below(count);
                self.program(who).extend(behind.replace(flag(step)).map(|flag| Op::Await(flag, 1)));
                for word in &block {
                    let op = match (step, self.below(4)) {
                        (0, _) | (_, 3) => Op::Write(*word, self.value()),
                        (_, 2) => Op::Write(*word, 0),
                        (_, _) => Op::Read(*word),
                    };
                    self.program(who).push(op);
                }
                if step + 1 == steps {
                    self.program(who).push(Op::FreeBlock(first, owner_node, life));
                }
                self.program(who).push(Op::Set(flag(step), 1));
                // What the owner does meanwhile in the block's page, and others.
                let (other, word) = (self.below(count), self.below(beside.len()));
                if word % count == other {
                    let value = self.value();
                    self.program(other).push(Op::Write(beside[word], value));
                }
            }
            self.think(owner);
            self.program(owner).push(Op::ReuseBlock(first, block.len(), life));
            self.program(owner).extend(block.iter().map(|word| Op::Write(*word, 0)));
            if self.below(2) == 0 {
                let value = self.value();
                self.program(owner).push(Op::Write(first, value));
            }
            behind = Some(flag(7));
            self.program(owner).push(Op::Set(flag(7), 1));
        }
        let reader = self.below(count);
        self.program(reader).extend(behind.map(|flag| Op::Await(flag, 1)));
        self.program(reader).extend(block.iter().map(|word| Op::Read(*word)));
        self.barrier();
        (0..count).for_each(|who| self.program(who).extend(block.iter().map(|word| Op::Read(*word))));
    }

    fn sor(&mut self) {
        let count = self.places.len();
        for colour in 0..2 {
            for who in 0..count {
                let row = |r: usize| (r * self.words / count)..((r + 1) * self.words / count);
                let own: Vec<usize> = row(who).filter(|w| w % 2 == colour).collect();
                let others: Vec<usize> = [(who + 1) % count, (who + count - 1) % count]
                    .into_iter()
                    .flat_map(row)
                    .filter(|w| w % 2 != colour)
                    .collect();
                for word in own {
                    let beside = others[self.below(others.len())];
                    let value = self.value();
                    self.program(who).extend([Op::Read(beside), Op::Write(word, value)]);
                }
            }
            if colour == 0 {
                self.barrier();
            }
        }
    }

    fn producer(&mut self, phase: u64) {
        let words = self.shuffled();
        let pairs = self.places.len() / 2;
        let share = words.len() / pairs;
        for pair in 0..pairs {
            let mine = words[pair * share..(pair + 1) * share].to_vec();
            let (full, empty) = (FlagId(2 * pair as u64), FlagId(2 * pair as u64 + 1));
            let (producer, consumer) = (pair, self.places.len() - 1 - pair);
            for round in 1..4 {
                let number = 8 * phase + round;
                for _ in 0..1 + self.below(3) {
                    self.read_or_write(producer, &mine);
                }
                self.think(consumer);
                self.program(producer).push(Op::Set(full, number));
                self.program(consumer).push(Op::Await(full, number));
                for _ in 0..2 {
                    let word = mine[self.below(mine.len())];
                    self.program(consumer).push(Op::Read(word));
                }
                self.read_or_write(consumer, &mine);
                self.program(consumer).push(Op::Set(empty, number));
                self.program(producer).push(Op::Await(empty, number));
            }
        }
    }

    /// Begins a round of publication: words for data and signs, zeroed, and what was before behind a barrier.
    fn signs(&mut self, count: usize) -> Vec<usize> {
        let words = self.shuffled();
        for word in &words[..count] {
            self.program(0).push(Op::Write(*word, 0));
        }
        self.barrier();
        // Copies of what will change, to be found stale.
        for who in 0..self.places.len() {
            if self.below(2) == 0 {
                words[..count].iter().for_each(|word| self.program(who).push(Op::Read(*word)));
            }
        }
        self.barrier();
        words
    }

    fn publish(&mut self, kind: Kind) {
        let under_lock = kind == Kind::SameLock;
        let widen = |when: Kind, lock: LockId| (kind == when).then_some(Op::Widen(lock));
        let (lock, other) = (LockId(3), LockId(4));
        let words = self.signs(3);
        let (first, second, ready) = (words[0], words[1], words[2]);
        self.think(0);
        let data = [Op::Write(first, self.value()), Op::Write(second, self.value())];
        let ready_value = self.value();
        let program = self.program(0);
        if under_lock {
            program.push(Op::Lock(lock));
            program.extend(data);
        } else {
            program.push(Op::Lock(other));
            program.extend(data);
            program.extend([Op::Unlock(other), Op::Think(100_000), Op::Lock(lock)]);
        }
        program.push(Op::Write(ready, ready_value));
        program.extend(widen(Kind::WideRelease, lock));
        program.push(Op::Unlock(lock));
        for who in 1..self.places.len() {
            for _ in 0..3 {
                self.think(who);
                // Some take the other lock too, and so hear of what was written under it.
                let hears = !under_lock && who % 2 == 0;
                let program = self.program(who);
                if hears {
                    program.extend([Op::Lock(other), Op::Unlock(other)]);
                }
                program.extend(widen(Kind::WideAcquire, lock));
                program.extend([Op::Lock(lock), Op::Read(ready)]);
                if under_lock {
                    program.extend([Op::SkipIfZero(2), Op::Read(first), Op::Read(second), Op::Unlock(lock)]);
                } else {
                    program.extend([Op::Unlock(lock), Op::SkipIfZero(2), Op::Read(first), Op::Read(second)]);
                }
            }
        }
    }

    fn lock_wrc(&mut self) {
        let words = self.signs(2);
        let (first, second) = (words[0], words[1]);
        let (a, b) = (LockId(4), LockId(5));
        let (value, sign) = (self.value(), self.value());
        self.think(0);
        self.program(0).extend([Op::Lock(a), Op::Write(first, value), Op::Unlock(a)]);
        let last = self.places.len() - 1;
        for who in 1..=last {
            let reads_first = who != last;
            for _ in 0..4 {
                self.think(who);
                let (lock, word) = if reads_first { (a, first) } else { (b, second) };
                self.program(who).extend([Op::Lock(lock), Op::Read(word), Op::Unlock(lock)]);
                if who == last {
                    self.program(who).extend([Op::SkipIfZero(1), Op::Read(first)]);
                } else {
                    self.program(who).extend([Op::SkipIfZero(3), Op::Lock(b), Op::Write(second, sign), Op::Unlock(b)]);
                }
            }
        }
    }

    fn chain(&mut self, phase: u64) {
        let words = self.shuffled();
        let count = self.places.len();
        let start = self.below(count);
        for step in 0..2 * count {
            let (who, flag) = (start + step, |s: usize| FlagId(100 + (s % 3) as u64));
            let number = 100 * phase + step as u64 + 1;
            if step > 0 {
                self.program(who).push(Op::Await(flag(step - 1), number - 1));
            }
            for word in &words[..2] {
                self.program(who).extend([Op::Read(*word), Op::WriteNext(*word)]);
            }
            let own = words[2 + who % (words.len() - 2)];
            let value = self.value();
            self.program(who).extend([Op::Write(own, value), Op::Set(flag(step), number)]);
        }
    }
}
