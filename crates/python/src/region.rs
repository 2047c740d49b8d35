//! Shared memory, as arrays see it: a [`Region`] is what every array over it and every view of such an array hold on
//! to.
//!
//! A region that nobody on this node holds any more is noted as dropped. Its memory is given back when all nodes have
//! dropped it, at one of their next collective allocations, for which `comem/_arrays.py` compares their notes: never
//! under a live view.

use crate::errors::{outcome, raise};
use crate::host::together;
use crate::job::{give_back_of_earlier_job, job, waiting};
use comem::NodeId;
use comem::heap::{Dealt, Home, PageEngine, RegionOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

const PAGE_BYTES: usize = 4096;

/// Number, address and bytes of a region.
type About = (u64, usize, usize);

/// Regions of this node that nobody holds any more.
static DROPPED: Mutex<Vec<About>> = Mutex::new(Vec::new());

fn dropped() -> std::sync::MutexGuard<'static, Vec<About>> {
    DROPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Shared memory that all nodes allocated together.
#[pyclass(frozen, weakref, module = "comem._core")]
struct Region {
    address: usize,
    bytes: usize,
    /// Counts the collective allocations, the same on every node.
    number: u64,
}

/// Regions of this node that somebody holds, by number: where they begin, and how long they are.
static HELD: Mutex<BTreeMap<u64, (usize, usize)>> = Mutex::new(BTreeMap::new());

fn held() -> std::sync::MutexGuard<'static, BTreeMap<u64, (usize, usize)>> {
    HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Region {
    fn new(address: usize, bytes: usize, number: u64) -> Region {
        held().insert(number, (address, bytes));
        Region { address, bytes, number }
    }
}

/// Whole pages.
fn pages(address: usize, bytes: usize) -> Range<usize> {
    address..address + bytes.next_multiple_of(PAGE_BYTES)
}

/// What somebody holds, as addresses of whole pages.
pub fn all_held() -> Vec<Range<usize>> {
    held().values().map(|(address, bytes)| pages(*address, *bytes)).collect()
}

#[pymethods]
impl Region {
    /// What NumPy makes an array from: bytes, writable.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        about.set_item("version", 3)?;
        about.set_item("typestr", "|u1")?;
        about.set_item("shape", (self.bytes,))?;
        about.set_item("data", (self.address, false))?;
        Ok(about)
    }

    #[getter]
    fn address(&self) -> usize {
        self.address
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    fn __repr__(&self) -> String {
        format!("<comem region {} of {} bytes at {:#x}>", self.number, self.bytes, self.address)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        held().remove(&self.number);
        if !give_back_of_earlier_job(pages(self.address, self.bytes)) {
            dropped().push((self.number, self.address, self.bytes));
        }
    }
}

/// Where homes are, from a name and a number or numbers.
fn homes(py: Python<'_>, home: &str, numbers: &[u32]) -> PyResult<Home> {
    let first = numbers.first().copied();
    Ok(match (home, first) {
        ("automatic", _) => Home::Automatic,
        ("first-touch", _) => Home::FirstTouch,
        ("block", None) => Home::Block,
        ("block", Some(_)) => Dealt::runs(numbers, NodeId(0)).map_or(Home::Block, Home::Dealt),
        ("cyclic", pages) => Home::Cyclic(pages.unwrap_or(1).max(1)),
        ("node", Some(node)) if node < 1024 => Home::On(NodeId(node as u16)),
        _ => return Err(raise(py, "ArgumentError", format!("there is no home {home:?} with {numbers:?}"))),
    })
}

/// Allocates; collective, with the same arguments everywhere.
#[pyfunction]
fn allocate(
    py: Python<'_>,
    bytes: usize,
    number: u64,
    home: &str,
    numbers: Vec<u32>,
    engine: Option<&str>,
    label: &str,
) -> PyResult<Region> {
    let engine = engine.map(str::parse::<PageEngine>).transpose();
    let engine = engine.map_err(|error| raise(py, "ArgumentError", error.to_string()))?;
    let home = homes(py, home, &numbers)?;
    let options =
        RegionOptions { engine, home, alignment: PAGE_BYTES, label: label.to_string(), ..RegionOptions::default() };
    let job = job(py)?;
    let allocate = || outcome(py, py.detach(|| job.alloc_all_at(bytes, &options, label).map(|start| start.addr())));
    let address = together(py, allocate)?;
    Ok(Region::new(address, bytes, number))
}

/// The regions that this node has dropped: numbers.
#[pyfunction]
fn dropped_regions() -> Vec<u64> {
    dropped().iter().map(|(number, _, _)| *number).collect()
}

/// A region again that this node has dropped but others have not, so that it was not given back.
#[pyfunction]
fn revive(number: u64) -> Option<Region> {
    let mut dropped = dropped();
    let at = dropped.iter().position(|(n, _, _)| *n == number)?;
    let (number, address, bytes) = dropped.swap_remove(at);
    Some(Region::new(address, bytes, number))
}

/// Gives back the memory of regions that every node has dropped.
#[pyfunction]
fn free_regions(py: Python<'_>, numbers: Vec<u64>) -> PyResult<()> {
    let job = job(py)?;
    let mut free = Vec::new();
    dropped().retain(|(number, address, _)| {
        let chosen = numbers.contains(number);
        if chosen {
            free.push(*address);
        }
        !chosen
    });
    let give_back = || free.iter().try_for_each(|address| job.free(std::ptr::with_exposed_provenance_mut(*address)));
    outcome(py, py.detach(give_back))
}

/// Brings memory here, for reading or for writing too.
#[pyfunction]
fn prefetch(py: Python<'_>, address: usize, bytes: usize, write: bool) -> PyResult<()> {
    let job = job(py)?;
    waiting(py, |_| job.prefetch(std::ptr::with_exposed_provenance(address), bytes, write))
}

/// Declares that nobody writes to a region any more.
#[pyfunction]
fn freeze(py: Python<'_>, address: usize) -> PyResult<()> {
    let job = job(py)?;
    waiting(py, |_| job.freeze(std::ptr::with_exposed_provenance(address)))
}

/// From now on what is touched stays here, as it is to be when the other nodes are gone.
#[pyfunction]
fn keep_copies(py: Python<'_>) -> PyResult<()> {
    job(py)?.keep_copies();
    Ok(())
}

/// Whether an address is in the shared heap.
#[pyfunction]
fn is_shared(py: Python<'_>, address: usize) -> PyResult<bool> {
    Ok(job(py)?.is_shared(std::ptr::with_exposed_provenance(address)))
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Region>()?;
    module.add_function(wrap_pyfunction!(allocate, module)?)?;
    module.add_function(wrap_pyfunction!(dropped_regions, module)?)?;
    module.add_function(wrap_pyfunction!(revive, module)?)?;
    module.add_function(wrap_pyfunction!(free_regions, module)?)?;
    module.add_function(wrap_pyfunction!(prefetch, module)?)?;
    module.add_function(wrap_pyfunction!(freeze, module)?)?;
    module.add_function(wrap_pyfunction!(keep_copies, module)?)?;
    module.add_function(wrap_pyfunction!(is_shared, module)?)
}
