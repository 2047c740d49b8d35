//! Jobs whose network is cut between two nodes: for ever or for a while, both ways or one, or for long packets alone. A
//! job over such a network ends, and all nodes say the same of why, or it comes through as if nothing had been.

use crate::check;
use crate::cluster::{self, Config, Outcome};
use crate::program::{Op, Program, Shape};
use crate::schedule;
use comem_protocol::coherence::Engine;
use comem_protocol::faults::{Cut, FaultSpec, Rng};
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::node::membership::WatchConfig;
use comem_protocol::time::{Span, Time};

/// What happens to the way between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing gets through any more.
    Permanent,
    /// Nothing gets through for less than half the time after which a node counts as lost.
    Passing,
    /// Nothing gets through for about as long as that.
    Long,
}

/// A network of so many nodes that is cut somewhere, by seed.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// Nodes.
    pub nodes: usize,
    /// What happens.
    pub kind: Kind,
    /// Between which nodes.
    pub pair: (u16, u16),
    /// Both ways, or from the first to the second of the pair.
    pub both: bool,
}

/// Shorter than a job's usual times, so that runs are short.
const WATCH: WatchConfig = WatchConfig {
    interval: Span::from_ms(200),
    warn: Span::from_ms(800),
    fatal: Some(Span::from_ms(4_000)),
    longest: 0,
};
/// All have ended so long after the cut.
const SLACK: Span = Span::from_ms(2_000);

impl Partition {
    /// All kinds of cuts of all pairs of a job of so many nodes.
    pub fn all(nodes: usize) -> Vec<Partition> {
        let numbers = 0..nodes as u16;
        let pairs = numbers.clone().flat_map(|a| numbers.clone().filter(move |b| a != *b).map(move |b| (a, b)));
        let pairs = pairs.flat_map(|(a, b)| [((a, b), false)].into_iter().chain((a < b).then_some(((a, b), true))));
        let kinds = [Kind::Permanent, Kind::Passing, Kind::Long];
        pairs.flat_map(|(pair, both)| kinds.map(|kind| Partition { nodes, kind, pair, both })).collect()
    }

    /// Runs a program over the network; what is wrong with what became of it, nothing when all is well.
    pub fn run(&self, seed: u64) -> Vec<String> {
        let mut rng = Rng::new(seed);
        let cut = self.cut(&mut rng);
        let mut faults: FaultSpec = FaultSpec::default();
        faults.cuts[0] = Some(cut);
        let program = self.program(&mut rng);
        let config = Config {
            faults: Some(faults),
            watch: Some(WATCH),
            bound: Span::from_ms(60_000),
            ..Config::new(Engine::Msi, seed)
        };
        let outcome = cluster::run(&program, config);
        let found = self.judge(&cut, &outcome);
        found.into_iter().map(|what| format!("{} nodes, cut {cut}, seed {seed}: {what}", self.nodes)).collect()
    }

    fn cut(&self, rng: &mut Rng) -> Cut {
        let fatal = WATCH.fatal.unwrap_or_default().0;
        let length = match self.kind {
            Kind::Permanent => None,
            Kind::Passing => Some(Span(rng.between(50_000_000, fatal / 2))),
            Kind::Long => Some(Span(rng.between(fatal - 500_000_000, fatal + 1_000_000_000))),
        };
        let start = Span(rng.between(100_000_000, 1_000_000_000));
        Cut { from: self.pair.0, to: self.pair.1, both: self.both, start, length }
    }

    /// Every node writes and reads what has its home at, and lies with, any other, takes locks, and meets the others
    /// now and then.
    fn program(&self, rng: &mut Rng) -> Program {
        let shape = Shape { nodes: self.nodes, elements: 6 * self.nodes, width: 8, unit_elements: 2 };
        let thread = |rng: &mut Rng, node: usize| {
            // Nothing is read before it was written.
            let first = (0..shape.elements).filter(|_| node == 0).map(|element| Op::Write(element, element as u64 + 1));
            let mut ops: Vec<Op> = first.chain([Op::Barrier(0)]).collect();
            for round in 0..60u64 {
                for _ in 0..4 {
                    let element = rng.below(shape.elements as u64) as usize;
                    let lock = LockId(rng.below(8));
                    let value = (node as u64) << 32 | round << 8 | ops.len() as u64 & 0xff;
                    ops.extend([Op::Lock(lock), Op::Write(element, value), Op::Unlock(lock), Op::Read(element)]);
                    ops.push(Op::Think(rng.between(1_000_000, 20_000_000)));
                }
                ops.push(Op::Barrier(round as i64));
            }
            vec![ops]
        };
        Program { shape, threads: (0..self.nodes).map(|node| thread(rng, node)).collect() }
    }

    fn judge(&self, cut: &Cut, outcome: &Outcome) -> Vec<String> {
        let mut found = outcome.failures.clone();
        let ended: Vec<_> = outcome.ended.iter().flatten().collect();
        let Some(first) = ended.first() else {
            if self.kind == Kind::Permanent {
                found.push("the job came to its end although two nodes did not reach each other".to_string());
            }
            found.extend(check::all(Engine::Msi, outcome));
            return found;
        };
        if self.kind == Kind::Passing {
            found.push(format!("the job ends for a cut that has passed: {first:?}"));
        }
        if ended.len() < self.nodes {
            found.push(format!("{} of {} nodes have ended: {ended:?}", ended.len(), self.nodes));
        }
        if ended.iter().any(|one| (one.lost, one.reporter, &one.why) != (first.lost, first.reporter, &first.why)) {
            found.push(format!("nodes come to different verdicts: {ended:?}"));
        }
        let (a, b) = (NodeId(cut.from), NodeId(cut.to));
        if ![(a, b), (b, a)].contains(&(first.lost, first.reporter)) {
            found.push(format!("not the two are named that do not reach each other: {first:?}"));
        }
        let limit = cut.start.0 + WATCH.fatal.unwrap_or_default().0 + SLACK.0;
        let last = ended.iter().map(|one| one.at.0).max().unwrap_or_default();
        if last > limit {
            found.push(format!("the last node ends {} ms late", (last - limit) / 1_000_000));
        }
        found
    }
}

/// A node of several whose locks are scheduled crashes, with requests deferred here and there: what is wrong, nothing
/// where all others name it in time. With no crash (`dies` is false) the job comes through.
pub fn crash(nodes: usize, dies: bool, seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0xdead);
    let (gone, since) = (NodeId(rng.below(nodes as u64) as u16), Time(rng.between(100_000_000, 1_000_000_000)));
    let partition = Partition { nodes, kind: Kind::Passing, pair: (0, 1), both: false };
    let config = Config {
        faults: "drop=5%,dup=5%,reorder=5%".parse().ok(),
        watch: Some(WATCH),
        schedule: Some(schedule::drawn(&mut rng)),
        crash: dies.then_some((gone, since)),
        bound: Span::from_ms(600_000),
        ..Config::new(Engine::Msi, seed)
    };
    let outcome = cluster::run(&partition.program(&mut rng), config);
    let mut found = outcome.failures.clone();
    if !dies {
        found.extend(check::all(Engine::Msi, &outcome));
    }
    for (node, ended) in NodeId::all(nodes).zip(&outcome.ended) {
        let limit = since + WATCH.fatal.unwrap_or_default() + SLACK;
        match ended {
            // Of two that do not hear of each other nobody can say which is gone.
            Some(ended) if !dies || ![ended.lost, ended.reporter].contains(&gone) => {
                found.push(format!("{node} ends for nothing: {ended:?}"))
            }
            Some(ended) if ended.at > limit => found.push(format!("{node} ends late: {ended:?}")),
            None if dies && node != gone => found.push(format!("{node} does not notice that {gone} is gone")),
            _ => {}
        }
    }
    found
}

/// A network on which everything takes its time, and nothing is lost: what is wrong, and how many datagrams were
/// sent, how
/// many of them again.
pub fn far_away(nodes: usize, one_way: Span, seed: u64) -> (Vec<String>, (u64, u64)) {
    let shape = Shape { nodes, elements: 6 * nodes, width: 8, unit_elements: 2 };
    let mut rng = Rng::new(seed);
    // Each node writes what is its own alone, and reads what others have written in the round before.
    let mut thread = |node: usize| {
        let mut ops = Vec::new();
        for round in 1..40u64 {
            ops.extend((0..6).map(|index| Op::Write(6 * node + index, round << 8 | index as u64)));
            ops.push(Op::Barrier(0));
            ops.extend((0..4).map(|_| Op::Read(rng.below(shape.elements as u64) as usize)));
            ops.push(Op::Barrier(0));
        }
        vec![ops]
    };
    let program = Program { shape, threads: (0..nodes).map(&mut thread).collect() };
    let faults = FaultSpec { delay: one_way, ..FaultSpec::default() };
    let config = Config { faults: Some(faults), watch: Some(WatchConfig::default()), ..Config::new(Engine::Msi, seed) };
    let outcome = cluster::run(&program, config);
    let mut found = check::all(Engine::Msi, &outcome);
    found.extend(outcome.ended.iter().flatten().map(|ended| format!("{ended:?}")));
    (found, outcome.datagrams)
}
