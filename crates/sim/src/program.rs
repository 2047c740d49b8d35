//! What the threads of a simulated cluster do: straight programs over one shared array, locks, flags and barriers.

use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_protocol::sync::condition::ConditionId;
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;

/// The shared array: every program has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// How many elements there are.
    pub elements: usize,
    /// Bytes in an element: 4, or a multiple of 8.
    pub width: usize,
    /// Elements in a unit.
    pub unit_elements: usize,
}

impl Shape {
    /// Whether one instruction stores an element.
    pub fn is_word(&self) -> bool {
        self.width <= 8
    }
    /// How many units there are.
    pub fn units(&self) -> usize {
        self.elements.div_ceil(self.unit_elements)
    }
    /// The unit of an element.
    pub fn unit_of(&self, element: usize) -> u32 {
        (element / self.unit_elements) as u32
    }
    /// The elements of a unit.
    pub fn elements_of(&self, unit: u32) -> std::ops::Range<usize> {
        let start = unit as usize * self.unit_elements;
        start..(start + self.unit_elements).min(self.elements)
    }
    /// The home of a unit: one node after the other.
    pub fn home_of(&self, unit: u32) -> NodeId {
        NodeId((unit as usize % self.nodes) as u16)
    }
    /// Where an element stands in its unit, in bytes.
    pub fn offset_of(&self, element: usize) -> usize {
        element % self.unit_elements * self.width
    }
}

/// How two counts differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// They are equal.
    Empty,
    /// One is ahead of the other by so many.
    Full(u64),
}

impl Gap {
    /// Whether these two counts differ like that.
    pub fn is(self, a: u64, b: u64) -> bool {
        match self {
            Gap::Empty => a == b,
            Gap::Full(bound) => a.abs_diff(b) >= bound,
        }
    }
}

/// One step of a thread's program, as its author sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Load an element; the value stays in the thread's register.
    Read(usize),
    /// Store a value.
    Write(usize, u64),
    /// Store the register plus one.
    WriteNext(usize),
    /// Load `count` elements from the first on, as a plain slice that stays here meanwhile.
    ReadRange(usize, usize),
    /// Store to `count` elements from the first on, as a plain slice; element `i` gets the value plus `i`.
    WriteRange(usize, usize, u64),
    /// Load an element and the next one, which lies on the next page, at once.
    ReadSpan(usize),
    /// Store a value to both.
    WriteSpan(usize, u64),
    /// Load an element of pages again and again until it is at least this.
    Until(usize, u64),
    /// Give the unit of this element back to its home, if it is here and nobody uses it.
    GiveBack(usize),
    /// Acquire a lock.
    Lock(LockId),
    /// Release it.
    Unlock(LockId),
    /// Pass the barrier of all threads, which adds up what they bring.
    Barrier(i64),
    /// Come to the end of the program, once a node.
    Exit,
    /// Raise a flag.
    Set(FlagId, u64),
    /// Wait until a flag has reached a value.
    Await(FlagId, u64),
    /// Add one to a semaphore.
    Post(SemaphoreId),
    /// Take one from a semaphore.
    Take(SemaphoreId),
    /// Try to take one from a semaphore until there is one.
    TryTake(SemaphoreId),
    /// If the last two elements read are as `Gap` says, wait for the condition, letting the lock go, and read both
    /// again.
    AwaitWhile(Gap, ConditionId, LockId),
    /// Signal a condition.
    Signal(ConditionId),
    /// Signal a condition to all who wait for it.
    Broadcast(ConditionId),
    /// Acquire a reader-writer lock to read.
    ReadLock(RwLockId),
    /// Acquire it to write.
    WriteLock(RwLockId),
    /// Release it.
    RwUnlock(RwLockId),
    /// Send a guarded message of its own to a thread of another node.
    Send(NodeId, u16, u64),
    /// Wait until so many messages have come in all.
    Receive(usize),
    /// Compute for so long, in nanoseconds.
    Think(u64),
    /// Compute until this moment of virtual time, in nanoseconds, unless it has passed.
    At(u64),
}

/// A program for each thread of each node, and the array they share.
#[derive(Clone, Debug)]
pub struct Program {
    /// The array.
    pub shape: Shape,
    /// `threads[node][thread]`.
    pub threads: Vec<Vec<Vec<Op>>>,
}

impl Program {
    /// Threads in each node.
    pub fn threads_per_node(&self) -> usize {
        self.threads[0].len()
    }
}
