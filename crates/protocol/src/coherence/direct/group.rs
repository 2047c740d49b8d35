//! Misses of one thread on several units, side by side.
//!
//! A strip of stores, a copy or a run of loads needs many neighbouring units. What each of their misses waits for, a
//! barrier on another node's threads or a message and its answer, can be waited for once for all of them.
//!
//! [`Group`] runs a [`Miss`] for each unit. It gives a batch of operations for each miss that is under way; the batches
//! are carried out [`side_by_side`]. The misses make no access: the thread checks again when the group has ended.
//!
//! # Why there is no deadlock
//!
//! The thread holds entries of several units at a time, and another thread may hold some of them in another order. So
//! a miss that finds an entry locked does not wait for it. It unlocks what it has locked, which changes nothing, and
//! ends ([`Outcome::GivenUp`]). Later the thread makes that miss by itself, when it holds no other entry. A group
//! does wait for hazards and for puts, and neither of these waits for an entry.

use super::miss::{Miss, Outcome, Site, Want};
use super::one_sided::{Batch, Op, Reply};
use crate::rules::Rule;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Most lines of a group's units together, however many these are.
pub const LINES_MAX: usize = 32;

/// What to do for each miss that is under way: its number in the group, and the operations.
pub type Batches = Vec<(usize, Batch)>;

/// Misses side by side.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    members: Vec<Member>,
    /// Whether there was a barrier; only without the rule that each miss has its own.
    has_quiesced: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Member {
    miss: Miss,
    is_giving_up: bool,
    outcome: Option<Outcome>,
}

impl Group {
    /// A thread misses these units, which are of one node and all different. `want` makes no access.
    pub fn start(sites: impl IntoIterator<Item = Site>, want: Want) -> (Group, Batches) {
        debug_assert!(!want.has_access(), "the access of a group is made afterwards");
        let mut group = Group { members: Vec::new(), has_quiesced: false };
        let mut batches = Batches::new();
        for site in sites {
            let (miss, batch) = Miss::start(site, want);
            batches.push((group.members.len(), batch));
            group.members.push(Member { miss, is_giving_up: false, outcome: None });
        }
        (group, batches)
    }

    /// What to do after the last batches. `reply` tells what the last operation of a miss's batch brought. When nothing
    /// is left to do, each miss has its outcome ([`Group::outcomes`]).
    pub fn next(&mut self, last: &Batches, mut reply: impl FnMut(usize) -> Reply) -> Batches {
        let mut batches = Batches::new();
        for number in last.iter().map(|(number, _)| *number) {
            if let Some(batch) = self.members[number].next(reply(number)) {
                batches.push((number, batch));
            }
        }
        if !Rule::EveryMemberQuiesces.on() {
            for (_, batch) in &mut batches {
                batch
                    .retain(|op| !matches!(op, Op::Quiesce { .. }) || !std::mem::replace(&mut self.has_quiesced, true));
            }
        }
        batches
    }

    /// How the misses have ended, in their order.
    pub fn outcomes(&self) -> impl Iterator<Item = Option<Outcome>> + '_ {
        self.members.iter().map(|member| member.outcome)
    }
}

impl Member {
    fn next(&mut self, reply: Reply) -> Option<Batch> {
        if self.is_giving_up {
            self.outcome = Some(if reply == Reply::Lost { Outcome::Lost(None) } else { Outcome::GivenUp });
            return None;
        }
        if matches!(&reply, Reply::Entry(entry) if entry.is_busy()) && Rule::GroupsWaitForNoEntry.on() {
            let batch = self.miss.give_up();
            self.is_giving_up = true;
            if batch.is_empty() {
                self.outcome = Some(Outcome::GivenUp);
            }
            return (!batch.is_empty()).then_some(batch);
        }
        match self.miss.next(reply) {
            ControlFlow::Continue(batch) => Some(batch),
            ControlFlow::Break(outcome) => {
                self.outcome = Some(outcome);
                None
            }
        }
    }
}

/// What a thread does next with lists of steps that go side by side.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Joint<T> {
    /// A step of one list.
    One(usize, T),
    /// Steps of several lists that are waited for together.
    Together(SmallVec<[(usize, T); 2]>),
}

/// The steps of lists in one order, in which each list keeps its own. Steps that are `waited_for` come as late as they
/// can, so that as many as possible are waited for together.
pub fn side_by_side<T>(
    lists: impl IntoIterator<Item = (usize, impl IntoIterator<Item = T>)>,
    waited_for: impl Fn(&T) -> bool,
) -> VecDeque<Joint<T>> {
    let mut steps = VecDeque::new();
    let mut lists: Vec<_> = lists.into_iter().map(|(number, list)| (number, list.into_iter())).collect();
    loop {
        let mut together = SmallVec::new();
        for (number, list) in &mut lists {
            for step in list.by_ref() {
                if waited_for(&step) {
                    together.push((*number, step));
                    break;
                }
                steps.push_back(Joint::One(*number, step));
            }
        }
        if together.is_empty() {
            return steps;
        }
        steps.push_back(Joint::Together(together));
    }
}

/// Whether an operation is waited for together with those of other misses.
pub fn is_waited_for(op: &Op) -> bool {
    matches!(op, Op::Quiesce { .. } | Op::Flush)
}
