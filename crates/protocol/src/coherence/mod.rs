//! The coherence engines for explicit objects: what keeps the copies of a unit in step.
//!
//! | engine | consistency | idea |
//! |---|---|---|
//! | [`owner`] | sequential | every access is served by the unit's owner, in order of arrival |
//! | [`broadcast`] | none | read locally, tell writes to all, unreliably |
//! | [`msi`] | sequential | invalidation; a home directory; units move from cache to cache |
//!
//! [`direct`] stands apart: it moves no messages. The thread that misses does everything by one-sided operations.
//!
//! An engine decides; [`UnitMemory`] is the memory it decides about. What the engine calls there is exactly what
//! the runtime does to real memory and the simulator does to its model of it.

pub mod broadcast;
pub mod direct;
pub mod msi;
pub mod node_set;
pub mod owner;
pub mod pages;

use crate::ids::{NodeId, Slot, UnitId};
use crate::outbox::Outbox;

/// The name of an engine, as users choose it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Engine {
    /// Every access at the owner (DSM/IP's ENGINE_OU).
    Owner,
    /// No consistency at all (DSM/IP's ENGINE_NC).
    Broadcast,
    /// Invalidation with states M, S and I (DSM/IP's ENGINE_MSI).
    #[default]
    Msi,
    /// The thread that misses does everything, by one-sided operations ([`direct`]; DSZOOM).
    Direct,
}

impl Engine {
    /// The engines whose nodes act on each other's messages, in the order of the table above.
    pub const ALL: [Engine; 3] = [Engine::Owner, Engine::Broadcast, Engine::Msi];

    /// The engine's name.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Owner => "owner",
            Engine::Broadcast => "broadcast",
            Engine::Msi => "msi",
            Engine::Direct => "direct",
        }
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// No engine has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown engine {0:?}; the engines are owner, broadcast, msi and direct")]
pub struct UnknownEngine(pub String);

impl std::str::FromStr for Engine {
    type Err = UnknownEngine;
    fn from_str(name: &str) -> Result<Engine, UnknownEngine> {
        Engine::ALL
            .into_iter()
            .chain([Engine::Direct])
            .find(|e| e.name() == name)
            .ok_or_else(|| UnknownEngine(name.to_string()))
    }
}

/// What the threads of this node may do with a unit without asking anybody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Permission {
    /// Nothing.
    None,
    /// Load.
    Read,
    /// Load and store.
    Write,
}

/// The node's memory of one unit.
pub trait UnitMemory {
    /// The unit's size in bytes.
    fn len(&self) -> usize;
    /// Whether the unit has no bytes (no unit is empty).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Lets the threads do more than before.
    fn permit(&mut self, permission: Permission);
    /// Lets the threads do less than before. When this returns, no store under the old permission is under way
    /// any more, and every such store is in memory.
    fn revoke(&mut self, permission: Permission);
    /// Whether a range that is lent to the program covers the unit; if so, the memory's owner calls
    /// [`msi::Unit::settle`] when the range has ended.
    fn is_lent(&self) -> bool {
        false
    }
    /// Appends the unit's bytes.
    fn copy_out(&self, out: &mut Vec<u8>);
    /// Replaces the unit's bytes; `bytes` is as long as the unit.
    fn install(&mut self, bytes: &[u8]);
    /// Gives up the memory of the unit's bytes, which nobody here will read again before others are installed; no
    /// thread may access them.
    fn discard(&mut self) {}
    /// Appends `len` bytes from `offset`; `false` when the range leaves the unit.
    fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) -> bool;
    /// Stores `bytes` at `offset`, element by element whole; `false` when the range leaves the unit.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool;
}

/// What a step knows besides the unit's state.
pub struct Context<'a> {
    /// This node.
    pub me: NodeId,
    /// How many nodes the job has.
    pub nodes: usize,
    /// The application thread that takes the step; `None` for the service thread.
    pub caller: Option<Slot>,
    /// The unit.
    pub unit: UnitId,
    /// The node with the unit's directory (under `owner`: the owner).
    pub home: NodeId,
    /// The unit's memory here.
    pub memory: &'a mut dyn UnitMemory,
    /// Where the effects go.
    pub out: &'a mut Outbox,
}

/// A peer sent what no correct peer sends. The message has had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("misbehaved: {0}")]
pub struct Misbehaved(pub &'static str);

/// A short sum of bytes, to compare the copies of sharers with (FNV-1a; never 0, which means "not taken").
pub fn checksum(bytes: &[u8]) -> u64 {
    let sum =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    sum.max(1)
}
