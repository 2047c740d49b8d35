//! What each kind of miss costs, by operations on other nodes and by the paper's bytes.

use super::directory::Layout;
use super::miss::Site;
use super::*;
use crate::coherence::node_set::NodeSet;
use crate::ids::NodeId;
use std::ops::ControlFlow;

const HOME: NodeId = NodeId(0);

/// One node's memory of the only unit: whether its bytes are valid, its value, its entries, the wide words.
#[derive(Clone, Debug)]
struct Memory {
    value: Option<u64>,
    entries: Vec<Entry>,
    wide: NodeSet,
}

/// Operations on other nodes, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    fetch_and_sets: usize,
    gets: usize,
    puts: usize,
    /// Puts of a whole unit, which are among the puts.
    magic: usize,
    quiesces: usize,
}

impl Counts {
    /// Bytes by the paper's model (section 2.4): packets of 10 bytes, or of 68 with a unit of 64 bytes.
    fn bytes(self) -> usize {
        let (small, large) = (10, 68);
        self.fetch_and_sets * 2 * small
            + self.gets * (small + large)
            + (self.puts - self.magic) * small
            + self.magic * large
    }
}

/// Nodes whose operations take effect at once.
struct Cluster {
    memories: Vec<Memory>,
    lines: usize,
    has_barrier: bool,
}

impl Cluster {
    fn new(nodes: usize) -> Cluster {
        Cluster::with(nodes, 1, true)
    }

    fn with(nodes: usize, lines: usize, has_barrier: bool) -> Cluster {
        let memory = |node: NodeId| {
            let entry = if node == HOME { Entry::exclusive(!has_barrier) } else { Entry::NOT_EXCLUSIVE };
            Memory { value: (node == HOME).then_some(0), entries: vec![entry; lines], wide: NodeSet::new() }
        };
        Cluster { memories: NodeId::all(nodes).map(memory).collect(), lines, has_barrier }
    }

    fn site(&self, me: u16) -> Site {
        let layout = Layout { home: HOME, nodes: self.memories.len() };
        Site { me: NodeId(me), layout, lines: self.lines, has_barrier: self.has_barrier, biases_again: false }
    }

    fn load(&mut self, me: u16) -> (Outcome, Counts) {
        let latest = self.memories.iter().find_map(|memory| memory.value);
        let ended = self.miss(me, Want::Load, None);
        assert_eq!(self.memories[usize::from(me)].value, latest);
        ended
    }

    fn store(&mut self, me: u16, value: u64) -> (Outcome, Counts) {
        let ended = self.miss(me, Want::Store, Some(value));
        for (node, memory) in self.memories.iter().enumerate() {
            assert_eq!(memory.value, (node == usize::from(me)).then_some(value), "node {node}");
        }
        ended
    }

    fn miss(&mut self, me: u16, want: Want, store: Option<u64>) -> (Outcome, Counts) {
        let site = self.site(me);
        let (mut miss, mut batch) = Miss::start(site, want);
        let mut counts = Counts::default();
        loop {
            let mut reply = Reply::Done;
            for op in batch {
                count(&op, site.me, &mut counts);
                reply = self.operate(&op, site.me, store);
            }
            match miss.next(reply) {
                ControlFlow::Continue(next) => batch = next,
                ControlFlow::Break(outcome) => {
                    assert!(self.memories.iter().all(|m| m.entries.iter().all(|entry| !entry.is_busy())));
                    return (outcome, counts);
                }
            }
        }
    }

    fn operate(&mut self, op: &Op, me: NodeId, store: Option<u64>) -> Reply {
        match *op {
            Op::FetchAndSet { at } => {
                let entry = &mut self.memories[at.index()].entries[0];
                let old = *entry;
                *entry = old.after_fetch_and_set(me);
                return Reply::Entry(old);
            }
            Op::GetWide { at } => return Reply::Wide(self.memories[at.index()].wide.clone()),
            Op::GetData { from } => self.memories[me.index()].value = self.memories[from.index()].value,
            Op::PutMagic { to } => self.memories[to.index()].value = None,
            Op::PutMirrors { to, entry } => self.memories[to.index()].entries[1..].fill(entry),
            Op::PutEntry { to, entry } => self.memories[to.index()].entries.fill(entry),
            Op::PutWide { to, ref holders } => self.memories[to.index()].wide = holders.clone(),
            Op::Flush | Op::Quiesce { .. } => (),
            Op::Access => {
                let memory = &mut self.memories[me.index()];
                memory.value = store.or(memory.value);
            }
            Op::Peek | Op::Pause { .. } => unreachable!("nobody waits"),
        }
        Reply::Done
    }
}

fn count(op: &Op, me: NodeId, counts: &mut Counts) {
    if op.target(me).is_none() {
        return;
    }
    match op {
        Op::FetchAndSet { .. } => counts.fetch_and_sets += 1,
        Op::GetData { .. } | Op::GetWide { .. } => counts.gets += 1,
        Op::PutMagic { .. } => (counts.puts, counts.magic) = (counts.puts + 1, counts.magic + 1),
        Op::Quiesce { .. } => counts.quiesces += 1,
        _ => counts.puts += 1,
    }
}

/// Operations as the tables give them: fetch-and-set, get, put.
fn costs(counts: Counts) -> (usize, usize, usize) {
    (counts.fetch_and_sets, counts.gets, counts.puts)
}

#[test]
fn a_read_from_the_home_costs_what_figure_1_says() {
    let (outcome, counts) = Cluster::new(2).load(1);
    assert_eq!((outcome, costs(counts), counts.bytes()), (Outcome::Fetched, (1, 1, 1), 108));
}

#[test]
fn a_read_from_a_third_node_costs_what_figure_2_says() {
    let mut cluster = Cluster::new(3);
    cluster.store(1, 7);
    let (outcome, counts) = cluster.load(2);
    assert_eq!((outcome, costs(counts), counts.bytes()), (Outcome::Fetched, (2, 1, 2), 138));
}

#[test]
fn a_write_of_what_the_home_alone_holds() {
    let (outcome, counts) = Cluster::new(2).store(1, 7);
    assert_eq!((outcome, costs(counts), counts.bytes()), (Outcome::Fetched, (1, 1, 2), 176));
}

#[test]
fn a_write_of_what_a_third_node_alone_holds() {
    let mut cluster = Cluster::new(3);
    cluster.store(1, 7);
    let (outcome, counts) = cluster.store(2, 8);
    assert_eq!((outcome, costs(counts), counts.bytes()), (Outcome::Fetched, (2, 1, 3), 206));
}

#[test]
fn an_upgrade_puts_once_for_each_other_holder_and_once_for_the_directory() {
    for sharers in 1..=7 {
        let mut cluster = Cluster::new(8);
        (1..=sharers).for_each(|node| _ = cluster.load(node));
        let (outcome, counts) = cluster.store(1, 7);
        // The home holds it too.
        let others = usize::from(sharers);
        assert_eq!((outcome, costs(counts), counts.magic), (Outcome::Upgraded, (1, 0, others + 1), others));
    }
}

#[test]
fn a_write_of_what_several_hold() {
    for sharers in 1..=6 {
        let mut cluster = Cluster::new(8);
        (1..=sharers).for_each(|node| _ = cluster.load(node));
        let (outcome, counts) = cluster.store(7, 7);
        assert_eq!((outcome, costs(counts)), (Outcome::Fetched, (1, 1, usize::from(sharers) + 2)));
    }
}

#[test]
fn the_homes_own_misses_go_to_the_owner_alone() {
    let mut cluster = Cluster::new(2);
    cluster.store(1, 7);
    assert_eq!(costs(cluster.load(0).1), (1, 1, 1));
    let mut cluster = Cluster::new(2);
    cluster.store(1, 7);
    assert_eq!(costs(cluster.store(0, 8).1), (1, 1, 2));
}

#[test]
fn a_genuine_magic_value_costs_a_look_at_the_directory() {
    let mut cluster = Cluster::new(2);
    cluster.load(1);
    let (outcome, counts) = cluster.load(1);
    assert_eq!((outcome, costs(counts)), (Outcome::Here, (1, 0, 1)));
    // Where the unit is exclusive, and at the home, it costs nothing.
    cluster.store(1, 7);
    assert_eq!(cluster.load(1), (Outcome::Here, Counts::default()));
    assert_eq!(Cluster::new(2).load(0), (Outcome::Here, Counts::default()));
}

#[test]
fn a_unit_is_biased_until_it_is_revoked() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.store(1, 1).1.quiesces, 1, "from the home");
    assert_eq!(cluster.memories[1].entries[0], Entry::BIASED);
    assert_eq!(cluster.load(2).1.quiesces, 1);
    assert_eq!(cluster.store(1, 2).1.quiesces, 0);
    assert_eq!(cluster.memories[1].entries[0], Entry::LOCKED);
    assert_eq!(cluster.load(2).1.quiesces, 0);
    // The home as well.
    cluster.store(0, 3);
    assert!(cluster.memories[0].entries[0].is_locked());
    assert_eq!(cluster.load(2).1.quiesces, 0);
}

#[test]
fn without_a_barrier_no_unit_is_biased() {
    let mut cluster = Cluster::with(3, 1, false);
    for node in [1, 2, 0, 2] {
        assert_eq!(cluster.store(node, 10 + u64::from(node)).1.quiesces, 0);
        assert!(cluster.memories[usize::from(node)].entries[0].is_locked());
    }
}

#[test]
fn larger_units_cost_one_put_more_where_a_biased_one_is_revoked() {
    let mut cluster = Cluster::with(3, 32, true);
    assert_eq!(costs(cluster.store(1, 1).1), (1, 1, 3));
    assert!(cluster.memories[1].entries.iter().all(|entry| *entry == Entry::BIASED));
    assert_eq!(costs(cluster.store(2, 2).1), (2, 1, 4));
    assert_eq!(costs(cluster.store(1, 3).1), (2, 1, 4));
    assert_eq!(costs(cluster.store(2, 4).1), (2, 1, 3), "locked by now");
}

#[test]
fn directories_say_who_holds_a_unit_whatever_the_jobs_size() {
    for nodes in [1, 2, 8, 9, 64, 254, 255, 256, 1024_usize] {
        for home in [0, nodes / 2, nodes - 1] {
            let layout = Layout { home: NodeId(home as u16), nodes };
            let picks = [0, 1, nodes / 3, nodes.saturating_sub(2), nodes - 1].map(|n| NodeId(n.min(nodes - 1) as u16));
            for members in 0..32_u32 {
                let chosen = picks.iter().enumerate().filter(|(i, _)| members & (1 << i) != 0);
                let holders: NodeSet = chosen.map(|(_, node)| *node).collect();
                if holders.is_empty() {
                    continue;
                }
                let coded = layout.code(&holders);
                let entry = Entry::directory(coded.presence, false);
                assert_eq!(layout.is_wide(entry), coded.wide.is_some());
                assert_eq!(layout.holders(entry, coded.wide.as_ref()), holders, "{nodes} nodes, home {home}");
                assert_eq!(entry == Entry::BIASED, holders.len() == 1 && holders.contains(layout.home));
            }
        }
    }
}

#[test]
fn wide_words_that_name_nodes_beyond_the_job_count_for_nothing() {
    let layout = Layout { home: HOME, nodes: 20 };
    let wide = NodeSet::from_iter([NodeId(3), NodeId(900)]);
    assert_eq!(layout.holders(Entry::directory(255, false), Some(&wide)), NodeSet::from_iter([NodeId(3)]));
    assert_eq!((layout.wide_words(), Layout { home: HOME, nodes: 1024 }.wide_words()), (1, 16));
}

#[test]
fn larger_jobs_read_and_write_the_wide_words_only_where_several_hold_a_unit() {
    let mut cluster = Cluster::new(300);
    assert_eq!(costs(cluster.store(299, 1).1), (1, 1, 3), "the byte names no node beyond 253");
    assert_eq!(costs(cluster.store(100, 2).1), (2, 2, 3), "but it names this one");
    assert_eq!(costs(cluster.load(5).1), (2, 1, 3));
    assert_eq!(costs(cluster.load(6).1), (1, 2, 2));
    assert_eq!(costs(cluster.store(0, 3).1), (0, 1, 3), "the directory is the home's own");
}

#[test]
fn magic_is_a_quiet_nan_with_a_period_of_two_bytes() {
    let bytes = MAGIC.to_le_bytes();
    assert_eq!(bytes[..2], bytes[2..]);
    let quiet = 1 << 22;
    assert!(f32::from_bits(MAGIC).is_nan() && MAGIC & quiet != 0);
    let double = u64::from(MAGIC) << 32 | u64::from(MAGIC);
    assert!(f64::from_bits(double).is_nan() && double & (1 << 51) != 0);
}

#[test]
fn a_busy_entry_keeps_its_holder() {
    let busy = Entry::NOT_EXCLUSIVE.after_fetch_and_set(NodeId(5));
    assert_eq!((busy.holder(), busy.after_fetch_and_set(NodeId(9))), (Some(NodeId(5)), busy));
    assert_eq!(Entry::directory(0xa5, true).after_fetch_and_set(NodeId(1)).presence(), 0xa5);
    assert_eq!(Entry::BIASED.after_fetch_and_set(NodeId(200)).holder(), Some(NodeId(200 - 128)));
}
