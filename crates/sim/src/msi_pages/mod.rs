//! Pages under `msi`: the engine for explicit objects over a model of memory with page tables, joined to it as the
//! runtime joins them.
//!
//! The cluster, the network, the synchronisation and the checkers are those of explicit objects. What stands here for a
//! part of the runtime (`shared/consistency/msi_pages.rs`) names it:
//!
//! | here | there |
//! |---|---|
//! | [`memory`], its `Frame` | `Frame`, and the kernel behind it |
//! | [`fault`]: an access, its fault, step by step | `Thread::single_fault`, `give_units_back`, `let_go_of` |
//! | [`Paged`]: holds, the cache's bound | `Holds`, `Node::single_step`, `release_holds`, `Shared::count_unit` |
//! | [`program`], [`scenario`] | |

pub(crate) mod fault;
pub mod memory;
pub mod program;
pub mod scenario;

use self::fault::Faulting;
use self::memory::Memory;
use crate::node::Node;
use crate::program::Shape;
use comem_protocol::coherence::Permission;
use comem_protocol::coherence::msi::Unit;
use comem_protocol::outbox::Outbox;
use comem_protocol::rules::Rule;
use comem_protocol::time::{Span, Time};
use comem_protocol::tuning::MsiTuning;
use std::collections::VecDeque;

/// Who waits for a page that it has not asked for itself looks again after so long (the runtime's `Node::sleep`).
pub(crate) const LOOK_AGAIN: Span = Span::from_us(500);
/// An access that faults so often makes no progress.
const FAULTS_MAX: u32 = 400;

/// How pages are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paging {
    /// Elements on a page; a unit has a whole number of pages.
    pub page_elements: usize,
    /// Whether page table entries get lost now and then.
    pub reclaims: bool,
    /// Units of other homes beyond so many are given back.
    pub units_max: usize,
    /// How many more are given back then.
    pub spare: usize,
    /// A fault of a read asks for up to so many units behind its own.
    pub ahead: u32,
    /// Decides what threads do in the middle of others' steps.
    pub seed: u64,
}

/// What happened around pages, over all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Faults.
    pub faults: u64,
    /// Faults that asked for their unit.
    pub asked: u64,
    /// Faults that waited for what another thread had asked for.
    pub joined: u64,
    /// Units fetched ahead.
    pub ahead: u64,
    /// Units given back.
    pub given_back: u64,
    /// Fetches that were void when they came.
    pub void: u64,
    /// Holds that ended because others wanted the unit.
    pub expired: u64,
    /// Accesses across two pages that were made.
    pub spans: u64,
    /// Most faults of one access.
    pub most_faults: u32,
}

impl Tally {
    /// Both together.
    pub fn with(self, other: Tally) -> Tally {
        Tally {
            faults: self.faults + other.faults,
            asked: self.asked + other.asked,
            joined: self.joined + other.joined,
            ahead: self.ahead + other.ahead,
            given_back: self.given_back + other.given_back,
            void: self.void + other.void,
            expired: self.expired + other.expired,
            spans: self.spans + other.spans,
            most_faults: self.most_faults.max(other.most_faults),
        }
    }
}

/// A unit that is held, since when, and until when if others want it.
type Hold = Option<(u32, Time, Time)>;

/// What a node with pages has besides its units.
#[derive(Debug)]
pub struct Paged {
    paging: Paging,
    pub(crate) memory: Memory,
    pub(crate) threads: Vec<Faulting>,
    /// The units that each thread holds: an access that spans two pages needs both.
    holds: Vec<[Hold; 2]>,
    /// Somebody elsewhere waits for a unit here.
    wanted: bool,
    /// The service thread has been roused, to look at the holds.
    roused: bool,
    /// Units of other homes whose memory is in use here.
    cached: usize,
    /// These, and some that are no longer: those that came first stand first.
    units: VecDeque<u32>,
    /// How long units stay.
    pub(crate) tuning: MsiTuning,
    /// What happened.
    pub(crate) tally: Tally,
}

impl Paged {
    /// The pages of a node that nobody has touched.
    pub(crate) fn new(shape: Shape, (paging, tuning): (Paging, MsiTuning), threads: usize, seed: u64) -> Paged {
        Paged {
            paging,
            memory: Memory::new(shape, paging, threads, seed),
            threads: vec![Faulting::new(tuning); threads],
            holds: vec![[None; 2]; threads],
            wanted: false,
            roused: false,
            cached: 0,
            units: VecDeque::new(),
            tuning,
            tally: Tally::default(),
        }
    }

    /// A step of a unit is over, before which its memory was in use here or not (the end of `single_step`, with
    /// `count_unit`).
    pub(crate) fn stepped(&mut self, number: u32, before: bool, unit: &Unit) {
        match (before, unit.is_stored()) {
            (false, true) => {
                self.cached += 1;
                self.units.push_back(number);
            }
            (true, false) => self.cached -= 1,
            _ => {}
        }
        if unit.is_wanted() && !std::mem::replace(&mut self.wanted, true) {
            self.roused = true;
        }
    }

    /// Whether the service thread has been roused since this was asked last.
    pub(crate) fn take_roused(&mut self) -> bool {
        std::mem::take(&mut self.roused)
    }

    /// The service thread looks at the holds (`release_holds`): gives the units that were held long enough, and when to
    /// look again.
    pub(crate) fn look_at_holds(&mut self, now: Time) -> (Vec<u32>, Option<Time>) {
        let mut due = Vec::new();
        if !std::mem::take(&mut self.wanted) || !Rule::HoldsAreShort.on() {
            return (due, None);
        }
        for held in self.holds.iter_mut().flatten() {
            match *held {
                Some((unit, _, until)) if until <= now => {
                    *held = None;
                    due.push(unit);
                }
                Some(_) => self.wanted = true,
                None => {}
            }
        }
        self.tally.expired += due.len() as u64;
        (due, self.wanted.then_some(now + self.tuning.residency()))
    }

    /// Puts a unit that thread `t` has pinned among those that it holds; `false` when it holds two already.
    fn hold(&mut self, t: usize, unit: u32, now: Time, until: Time) -> bool {
        let free = self.holds[t].iter_mut().find(|held| held.is_none());
        free.map(|free| *free = Some((unit, now, until))).is_some()
    }

    /// Thread `t` has made its access, for it does something else now: takes its units out of those it holds, but for
    /// the one it held last if it faults on its neighbour (`let_go_of`).
    fn take_holds(&mut self, t: usize, next: Option<u32>) -> Vec<u32> {
        let newest = self.holds[t].iter().flatten().max_by_key(|(_, since, _)| *since).map(|(unit, ..)| *unit);
        let next = next.filter(|_| Rule::SpanningAccessesHoldBoth.on());
        let stays =
            |held: &Hold| held.is_some_and(|(unit, ..)| next.is_some() && Some(unit) == newest && next != newest);
        let due = self.holds[t].iter_mut().filter(|held| !stays(held)).filter_map(|held| held.take());
        due.map(|(unit, ..)| unit).collect()
    }

    /// Whether another unit of another home is one too many.
    fn is_full(&self, more: usize) -> bool {
        self.cached + more > self.paging.units_max
    }
}

impl Node {
    /// The node's threads have ended, and nobody wants what they held last.
    pub(crate) fn end_holds(&mut self, out: &mut Outbox) {
        for t in 0..self.threads.len() {
            let held = self.paged.as_mut().map_or_else(Vec::new, |paged| paged.take_holds(t, None));
            held.into_iter().for_each(|unit| self.on_unit(unit, None, out, |state, cx| state.unpin(cx)));
        }
    }
}

/// A page that one node may write while another may read or write it.
pub(crate) fn two_masters(nodes: &[Node]) -> Option<String> {
    let tables: Vec<Vec<Permission>> =
        nodes.iter().filter_map(|node| Some(node.paged.as_ref()?.memory.permissions().collect())).collect();
    let pages = 0..tables.first()?.len();
    pages.into_iter().find_map(|page| {
        let writer = tables.iter().position(|table| table[page] == Permission::Write)?;
        let other = (0..tables.len()).find(|n| *n != writer && tables[*n][page] > Permission::None)?;
        let may = if tables[other][page] == Permission::Write { "write" } else { "read" };
        Some(format!("node {writer} may write page {page} while node {other} may {may} it"))
    })
}
