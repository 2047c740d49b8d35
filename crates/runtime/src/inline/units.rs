//! The units of a region of lines memory under `msi`, as this node knows them, and what a region's units cost.

use crate::mutex::Mutex;
use comem_memory::lines::GRAIN_BYTES;
use comem_protocol::coherence::msi::Unit;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// A unit.
#[derive(Debug)]
pub(crate) struct LineState {
    pub(crate) unit: Unit,
    /// Bytes that came for one access alone: the unit was taken away while they were on their way.
    pub(crate) once: Option<Box<[u8]>>,
}

type GrainUnits = Box<[OnceLock<Box<Mutex<LineState>>>]>;

/// The units of a region, by grains. What nobody has asked for is not there: its home holds it.
#[derive(Debug)]
pub(crate) struct LineUnits {
    grains: Box<[OnceLock<GrainUnits>]>,
}

impl LineUnits {
    pub(crate) fn new(grains: usize) -> LineUnits {
        LineUnits { grains: (0..grains).map(|_| OnceLock::new()).collect() }
    }

    /// Unit `index` of a region whose units have so many bytes; `new` makes it if it is not there. `None` where the
    /// region has no such unit.
    pub(crate) fn unit(
        &self,
        index: u64,
        unit_bytes: usize,
        new: impl FnOnce() -> LineState,
    ) -> Option<&Mutex<LineState>> {
        let each = (GRAIN_BYTES / unit_bytes) as u64;
        let grain = self.grains.get(usize::try_from(index / each).ok()?)?;
        let units = grain.get_or_init(|| (0..each).map(|_| OnceLock::new()).collect());
        Some(units[(index % each) as usize].get_or_init(|| Box::new(Mutex::new(new()))))
    }

    fn used(&self) -> impl Iterator<Item = &Mutex<LineState>> {
        let units = self.grains.iter().filter_map(OnceLock::get).flatten();
        units.filter_map(OnceLock::get).map(|unit| &**unit)
    }

    /// Whether nothing is under way around any unit, as seen from here.
    pub(crate) fn are_quiet(&self) -> bool {
        self.used().all(|unit| unit.lock().unit.is_quiet())
    }
}

/// What the units of a region cost this node.
#[derive(Debug, Default)]
pub(crate) struct LineCosts {
    /// Checks that missed: loads, and stores and atomic operations.
    pub(crate) load_misses: AtomicU64,
    pub(crate) store_misses: AtomicU64,
    /// Loads of a value that was stored and looks like that of an invalid unit.
    pub(crate) genuine_magic: AtomicU64,
    /// Times that an entry was locked by another thread, and waited for.
    pub(crate) retries: AtomicU64,
    /// Operations on other nodes' memory.
    pub(crate) remote_operations: AtomicU64,
}
