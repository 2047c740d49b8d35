//! What the threads do, made by seed: programs that race for a few pages, and know nothing of them.

use crate::check::litmus;
use crate::program::{Op, Program, Shape};
use comem_protocol::faults::Rng;
use comem_protocol::ids::LockId;

/// A family of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One of the litmus programs.
    Litmus(usize),
    /// A bit of everything.
    Mixed,
    /// Every thread at one unit or two.
    Hot,
    /// Nothing but critical sections that count.
    Counters,
    /// Accesses that span two pages, all of them the same few.
    Spans,
    /// Threads that wait for each other's stores in a loop, and so hold the page that the others need.
    Spins,
    /// As `Mixed`, by nodes that have no room for what they fetch.
    Evictions,
}

impl Kind {
    /// Every family but the litmus programs.
    pub const STRESS: [Kind; 6] = [Kind::Mixed, Kind::Hot, Kind::Counters, Kind::Spans, Kind::Spins, Kind::Evictions];

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
            Kind::Spans => "spans",
            Kind::Spins => "spins",
            Kind::Evictions => "evictions",
        }
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::all().into_iter().find(|k| k.name().eq_ignore_ascii_case(name))
    }
}

/// Makes a random program.
pub(super) struct Maker<'a> {
    kind: Kind,
    program: Program,
    /// Elements on a page.
    page_elements: usize,
    /// The last elements count; they are written in critical sections alone.
    counters: usize,
    next_value: u64,
    rng: &'a mut Rng,
}

impl Maker<'_> {
    /// The program of a family other than the litmus programs, and how many elements a page has.
    pub(super) fn make(kind: Kind, nodes: usize, threads: usize, rng: &mut Rng) -> (Program, usize) {
        let page_elements = if kind == Kind::Spins { nodes * threads + 1 } else { rng.between(2, 4) as usize };
        let (units, unit_pages) = match kind {
            Kind::Spins => (1, 1),
            Kind::Hot => (rng.between(1, 2) as usize, [1, 1, 2][rng.below(3) as usize]),
            Kind::Spans => (rng.between(2, 3) as usize, 1),
            Kind::Evictions => (rng.between(4, 6) as usize, [1, 1, 2][rng.below(3) as usize]),
            _ => (rng.between(2, 5) as usize, [1, 1, 2, 4][rng.below(4) as usize]),
        };
        let unit_elements = page_elements * unit_pages;
        let shape = Shape { nodes, elements: units * unit_elements, width: 8, unit_elements };
        let program = Program { shape, threads: vec![vec![Vec::new(); threads]; nodes] };
        let mut maker = Maker { kind, program, page_elements, counters: 2, next_value: 0, rng };
        match kind {
            Kind::Spins => maker.hand_over(),
            _ => (0..2).for_each(|_| maker.phase()),
        }
        maker.read_all();
        (maker.program, page_elements)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn places(&self) -> Vec<(usize, usize)> {
        let threads = self.program.threads_per_node();
        (0..self.program.threads.len()).flat_map(|n| (0..threads).map(move |t| (n, t))).collect()
    }

    fn phase(&mut self) {
        for (n, t) in self.places() {
            for _ in 0..12 {
                let made = self.op();
                self.program.threads[n][t].extend(made);
            }
        }
        self.barrier();
    }

    fn barrier(&mut self) {
        for (n, t) in self.places() {
            let brought = self.below(100) as i64;
            self.program.threads[n][t].push(Op::Barrier(brought));
        }
    }

    /// In the end the first thread of each node reads everything: what was written last is there.
    fn read_all(&mut self) {
        let elements = self.program.shape.elements;
        self.program.threads.iter_mut().for_each(|threads| threads[0].extend((0..elements).map(Op::Read)));
        self.barrier();
    }

    fn op(&mut self) -> Vec<Op> {
        let element = self.below(self.program.shape.elements - self.counters);
        let (reads, writes, counts, spans) = match self.kind {
            Kind::Counters => (0, 0, 1, 0),
            Kind::Spans => (1, 1, 0, 6),
            Kind::Hot => (4, 4, 0, 2),
            _ => (5, 4, 2, 4),
        };
        match self.below(reads + writes + counts + spans + 1) {
            at if at < reads => vec![Op::Read(element)],
            at if at < reads + writes => vec![Op::Write(element, self.value())],
            at if at < reads + writes + counts => self.count(),
            at if at < reads + writes + counts + spans => self.span(),
            _ => vec![Op::Think(self.rng.below(100_000))],
        }
    }

    /// A value that no other write stores.
    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn count(&mut self) -> Vec<Op> {
        let which = self.below(self.counters);
        let element = self.program.shape.elements - 1 - which;
        let lock = LockId(which as u64);
        vec![Op::Lock(lock), Op::Read(element), Op::WriteNext(element), Op::Unlock(lock)]
    }

    /// An access to the last element of a page and the first of the next. The counters are spared: they are the last
    /// page's last.
    fn span(&mut self) -> Vec<Op> {
        let pages = (self.program.shape.elements - self.counters).div_ceil(self.page_elements);
        let Some(before) = pages.checked_sub(1).filter(|before| *before > 0) else { return Vec::new() };
        let element = (1 + self.below(before)) * self.page_elements - 1;
        vec![if self.below(3) == 0 { Op::ReadSpan(element) } else { Op::WriteSpan(element, self.value()) }]
    }

    /// The threads go one after the other, several times: each stores to an element of its own, waits until the first
    /// element says that it is its turn, and hands over. All is on one page.
    fn hand_over(&mut self) {
        let places = self.places();
        for round in 0..3 {
            for (at, (n, t)) in places.iter().copied().enumerate() {
                let turn = (round * places.len() + at) as u64;
                let mut ops = vec![Op::Write(1 + at, turn + 1), Op::Until(0, turn), Op::Write(0, turn + 1)];
                if self.below(3) == 0 {
                    ops.insert(self.below(3), Op::Think(self.rng.below(100_000)));
                }
                self.program.threads[n][t].extend(ops);
            }
        }
        self.barrier();
    }
}
