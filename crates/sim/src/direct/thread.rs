//! A thread between its accesses and memory: its program, its store buffer, the puts on their way.

use super::memory::Write;
use super::message::Message;
use super::program::{Access, Fabric, Setup};
use comem_protocol::coherence::direct::group::{Batches, Group, Joint};
use comem_protocol::coherence::direct::remote::Step;
use comem_protocol::coherence::direct::store_check::StoreCheck;
use comem_protocol::coherence::direct::{Entry, Miss, Reply};
use comem_protocol::ids::NodeId;
use std::collections::{BTreeMap, VecDeque};

/// What a thread is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Activity {
    /// Between two accesses, or before the first step of one.
    Ready,
    /// Has mapped untouched memory before it was filled; only without the rule that forbids it.
    Filling { unit: usize },
    /// In a checked store.
    Checking(StoreCheck),
    /// In a miss.
    Missing(Missing),
    /// In misses side by side.
    Grouping(Grouping),
    /// Has heard that the job is lost.
    Lost(Option<NodeId>),
}

/// What a thread does about a unit that it misses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Work {
    pub unit: usize,
    /// How far the present operation is.
    pub progress: usize,
    /// What the last operation has brought.
    pub reply: Reply,
    /// The checked store that goes on afterwards.
    pub check: Option<StoreCheck>,
}

/// A miss under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Missing {
    pub miss: Miss,
    /// What is left to do of the batch.
    pub batch: VecDeque<Step>,
    pub work: Work,
}

/// Misses side by side.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Grouping {
    pub group: Group,
    pub last: Batches,
    /// What is left to do of the batches.
    pub steps: VecDeque<Joint<Step>>,
    /// Of each miss.
    pub works: Vec<Work>,
    /// The checked store that goes on afterwards.
    pub check: Option<StoreCheck>,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Thread {
    pub node: NodeId,
    /// Accesses made.
    pub done: usize,
    pub activity: Activity,
    /// Stores that have not reached memory, and where they go; the oldest first.
    pub buffer: VecDeque<(NodeId, Write)>,
    /// Puts that have not arrived, by target.
    pub puts: BTreeMap<NodeId, VecDeque<Write>>,
    /// Requests that are not answered, or whose answers it has not taken.
    pub messages: Vec<Message>,
    /// What its loads have found.
    pub loads: Vec<u16>,
}

impl Thread {
    pub fn new(node: NodeId) -> Thread {
        Thread {
            node,
            done: 0,
            activity: Activity::Ready,
            buffer: VecDeque::new(),
            puts: BTreeMap::new(),
            messages: Vec::new(),
            loads: Vec::new(),
        }
    }

    /// Whether the program is at its end, or given up.
    pub fn has_ended(&self, program: &[Access]) -> bool {
        matches!(self.activity, Activity::Lost(_)) || self.done == program.len()
    }

    /// Whether everything that the thread has stored is in memory.
    pub fn is_drained(&self) -> bool {
        self.buffer.is_empty() && self.puts.values().all(VecDeque::is_empty)
    }

    /// A store by this thread to the memory of `to`.
    pub fn store(&mut self, setup: &Setup, to: NodeId, write: Write) {
        if to == self.node || setup.fabric == Fabric::Shared {
            self.buffer.push_back((to, write));
        } else {
            self.puts.entry(to).or_default().push_back(write);
        }
    }

    /// Whether everything that the thread has sent to `to` before is there: operations on one node keep their order.
    pub fn is_in_order(&self, setup: &Setup, to: NodeId) -> bool {
        if to == self.node || setup.fabric == Fabric::Shared {
            return self.buffer.is_empty();
        }
        self.puts.get(&to).is_none_or(VecDeque::is_empty)
    }

    /// Whether a value is on its way to this thread's node. It may be nowhere else.
    pub fn carries(&self, (unit, word): (usize, usize), value: u16) -> bool {
        self.messages.iter().any(|message| message.carries((unit, word), value))
            || self.buffer.iter().any(|(to, write)| *to == self.node && write.is_of((unit, word), value))
    }

    /// What the thread itself would load of a word: the youngest store in its buffer.
    pub fn forwarded_word(&self, unit: usize, word: usize) -> Option<u16> {
        self.buffer.iter().rev().find_map(|(to, write)| match *write {
            Write::Word { unit: u, word: w, value, .. } if (*to, u, w) == (self.node, unit, word) => Some(value),
            _ => None,
        })
    }

    /// The same for an entry.
    pub fn forwarded_entry(&self, unit: usize, line: usize) -> Option<Entry> {
        self.buffer.iter().rev().find_map(|(to, write)| match *write {
            Write::Entry { unit: u, line: l, entry } if (*to, u, l) == (self.node, unit, line) => Some(entry),
            _ => None,
        })
    }
}
