//! The entry of a line: 16 bits, a tag and a presence byte.
//!
//! ```text
//! bit   15 .. 8          7 6 5 4 3 2 1 0
//!       presence         tag
//! ```
//!
//! | tag | meaning |
//! |---|---|
//! | `1hhhhhhh` | busy: some thread of the node whose number ends in `h` has locked the entry |
//! | `0_____1_` | not exclusive: a store here asks the directory (never set at the unit's home) |
//! | `0______1` | locked: an exclusive unit's stores lock the entry; kept while the unit is elsewhere |
//! | `0____1__` | the line's memory is managed by pages: a store asks the engine for pages |
//!
//! The presence byte means something at the home only: [`super::directory`]. A home may store without a lock if the
//! whole
//! entry is 0, and so may any other node.

use crate::ids::NodeId;
use std::fmt;

/// The entry of one line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Entry(pub u16);

/// Tag: some thread has locked the entry; the seven bits below name its node.
const BUSY: u16 = 0x80;
const HOLDER: u16 = 0x7f;
/// Tag: an exclusive unit's stores lock the entry.
const LOCKED: u16 = 0x01;
/// Tag: this node may not store.
const NOT_EXCLUSIVE: u16 = 0x02;
/// Tag: the line's memory is managed by pages.
const PAGES: u16 = 0x04;

impl Entry {
    /// A unit that this node holds alone, whose stores need no lock.
    pub const BIASED: Entry = Entry(0);
    /// A unit that this node holds alone, whose stores lock the entry.
    pub const LOCKED: Entry = Entry(LOCKED);
    /// A unit that this node shares or does not hold, and has not been revoked from it while it was biased.
    pub const NOT_EXCLUSIVE: Entry = Entry(NOT_EXCLUSIVE);
    /// Memory that an engine for pages manages.
    pub const PAGES: Entry = Entry(PAGES);

    /// Whether some thread has locked the entry. The other bits of the tag mean nothing then.
    pub fn is_busy(self) -> bool {
        self.0 & BUSY != 0
    }

    /// The node whose thread has locked the entry, modulo 128: of larger jobs the number's lower bits.
    pub fn holder(self) -> Option<NodeId> {
        self.is_busy().then_some(NodeId(self.0 & HOLDER))
    }

    /// The entry as a fetch-and-set by a thread of `node` leaves it: locked by `node`, unless it was locked before.
    pub fn after_fetch_and_set(self, node: NodeId) -> Entry {
        if self.is_busy() { self } else { Entry((self.0 & !0xff) | BUSY | (node.0 & HOLDER)) }
    }

    /// Whether stores lock the entry if the unit is exclusive.
    pub fn is_locked(self) -> bool {
        !self.is_busy() && self.0 & LOCKED != 0
    }

    /// Whether this is the tag of a node that holds the unit alone. Not for entries at the unit's home.
    pub fn is_exclusive(self) -> bool {
        self.0 & (BUSY | NOT_EXCLUSIVE | PAGES) == 0
    }

    /// Whether a node may replace an entry by this one: it is not locked, and says nothing that no protocol says.
    pub fn is_put(self) -> bool {
        self.0 & 0xff & !(LOCKED | NOT_EXCLUSIVE) == 0
    }

    /// The presence byte.
    pub fn presence(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// A directory entry with this presence byte that nobody has locked.
    pub fn directory(presence: u8, locked: bool) -> Entry {
        Entry(u16::from(presence) << 8 | if locked { LOCKED } else { 0 })
    }

    /// The tag of a node that holds the unit alone.
    pub fn exclusive(locked: bool) -> Entry {
        if locked { Entry::LOCKED } else { Entry::BIASED }
    }

    /// What a store to a unit that this node holds alone leaves of the entry. `biases_again` makes a locked unit
    /// biased. Units that only their own node stores to any more are so spared the lock of each store. All entries of
    /// the unit change, the first one last.
    pub fn after_store(self, biases_again: bool) -> Entry {
        if biases_again { Entry(self.0 & !LOCKED) } else { self }
    }

    /// The tag of a node that may not store; `locked` says how it stores when it may again.
    pub fn not_exclusive(locked: bool) -> Entry {
        Entry(NOT_EXCLUSIVE | if locked { LOCKED } else { 0 })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder() {
            Some(node) => write!(f, "Entry({:02x}, busy: {node})", self.presence()),
            None => write!(f, "Entry({:02x}, {:02x})", self.presence(), self.0 & 0xff),
        }
    }
}
