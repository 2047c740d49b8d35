//! Where a lock's word is, and the operations on it, however its home's table is reached.

use super::Held;
use super::by_ucx::{FarTable, lost_locks_of};
use crate::counters::Counters;
use crate::error::Result;
use crate::node::Node;
use comem_memory::pages::LockTable;
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::sync::one_sided::{Find, FindStep, LockWord, PLACES, Reply};
use std::cell::Cell;
use std::io;

/// How this node reaches the table at a lock's home.
pub(super) enum Table<'a> {
    Mapped(&'a LockTable),
    Far(FarTable<'a>),
}

impl Table<'_> {
    /// Whether operations take time, and nobody can be woken there.
    pub(super) fn is_far(&self) -> bool {
        matches!(self, Table::Far(_))
    }

    fn name(&self, at: usize) -> io::Result<u64> {
        match self {
            Table::Mapped(table) => Ok(table.name(at)),
            Table::Far(table) => table.name(at),
        }
    }

    fn claim(&self, at: usize, name: u64) -> io::Result<u64> {
        match self {
            Table::Mapped(table) => Ok(table.claim(at, name)),
            Table::Far(table) => table.claim(at, name),
        }
    }

    fn word(&self, at: usize) -> io::Result<LockWord> {
        match self {
            Table::Mapped(table) => Ok(table.word(at)),
            Table::Far(table) => table.word(at),
        }
    }

    fn swap(&self, at: usize, expected: LockWord, new: LockWord) -> io::Result<LockWord> {
        match self {
            Table::Mapped(table) => Ok(table.swap(at, expected, new)),
            Table::Far(table) => table.swap(at, expected, new),
        }
    }
}

/// A lock's place in the table at its home; `None` where that is full. Counts the operations.
pub(super) fn find(table: &Table<'_>, lock: LockId, operations: &Cell<u64>) -> io::Result<Option<usize>> {
    let (mut find, mut name) = (Find::new(lock, PLACES), None);
    loop {
        name = match find.next(name) {
            FindStep::Get(at) => Some(table.name(at)?),
            FindStep::Claim(at, name) => Some(table.claim(at, name)?),
            FindStep::Found(at) => return Ok(Some(at)),
            FindStep::Full => return Ok(None),
        };
        operations.set(operations.get() + 1);
    }
}

/// A lock's place, and what it cost so far.
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) lock: LockId,
    pub(super) home: NodeId,
    pub(super) table: Table<'a>,
    pub(super) at: usize,
    pub(super) operations: Cell<u64>,
}

impl Place<'_> {
    /// The lock with this word, as a thread holds it.
    pub(super) fn held(&self, word: LockWord) -> Held {
        Held { lock: self.lock, at: self.at, word }
    }

    /// Counts what was done in another node's table.
    pub(super) fn account(&self, counters: &Counters) {
        if self.home != self.node.me() {
            counters.lock_operations.add(self.operations.get());
        }
    }

    /// Replaces the word if it is `expected`; the reply is what it was.
    ///
    /// # Errors
    /// When the home cannot be reached any more.
    pub(super) fn swap(&self, expected: LockWord, new: LockWord) -> Result<Reply> {
        self.operations.set(self.operations.get() + 1);
        self.table
            .swap(self.at, expected, new)
            .map(Reply::Word)
            .map_err(|error| lost_locks_of(self.node, self.home, error))
    }

    /// The word. Looks at mapped ones are not counted.
    ///
    /// # Errors
    /// As for [`Place::swap`].
    pub(super) fn word(&self) -> Result<LockWord> {
        if self.table.is_far() {
            self.operations.set(self.operations.get() + 1);
        }
        self.table.word(self.at).map_err(|error| lost_locks_of(self.node, self.home, error))
    }
}
