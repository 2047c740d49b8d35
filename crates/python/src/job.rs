//! The job: joined at the first use, left when the interpreter ends.

use crate::errors::{outcome, outcome_alone, raise};
use crate::host;
use crate::region;
use comem::{Comem, Error, Thread, UniqueId};
use pyo3::prelude::*;
use std::ops::Range;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

static JOB: OnceLock<Comem> = OnceLock::new();
static FINISHED: AtomicBool = AtomicBool::new(false);
/// Whether joining a job was tried, which can be done once.
static USED: AtomicBool = AtomicBool::new(false);
/// The process that joined: a child made by fork is no node.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The job this process is a node of.
pub fn job(py: Python<'_>) -> PyResult<&'static Comem> {
    let Some(job) = JOB.get() else { return start(py) };
    if is_child() {
        return Err(fork_error(py));
    }
    if host::is_over() {
        return Err(host::over(py));
    }
    if FINISHED.load(Ordering::Acquire) {
        return Err(raise(py, "FinishedError", "Comem was used after comem.finish(); finish last".into()));
    }
    Ok(job)
}

/// Whether this process was made by fork from a node.
pub fn is_child() -> bool {
    JOB.get().is_some() && PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// What to say to such a process.
pub fn fork_error(py: Python<'_>) -> PyErr {
    let sentence = "this process was made by fork and is no node of the job: it has no shared memory; start other \
                    nodes with comem run, and pass copies to helpers";
    raise(py, "ForkError", sentence.into())
}

/// Cores that this process may keep busy, by its affinity and its control groups.
#[pyfunction]
fn cores() -> usize {
    comem::capacity::cores()
}

/// The status that the process ends with, if not with the interpreter's.
static END_WITH: AtomicI32 = AtomicI32::new(0);

/// Once the interpreter has ended, the process ends with this status.
#[pyfunction]
fn end_with(status: i32) {
    END_WITH.store(status, Ordering::Relaxed);
}

extern "C" fn at_exit() {
    let status = END_WITH.load(Ordering::Relaxed);
    if status != 0 && !is_child() {
        // SAFETY: writes what is buffered, and ends the process.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status)
        }
    }
}

/// To be called in a child made by fork.
#[pyfunction]
fn forked() {
    if is_child() && !PARTED.load(Ordering::Acquire) {
        comem::host::after_fork();
    }
}

fn start(py: Python<'_>) -> PyResult<&'static Comem> {
    start_by(py, comem::start_with_spare_places)
}

fn start_by(py: Python<'_>, begin: impl FnOnce() -> comem::Result<Comem> + Send) -> PyResult<&'static Comem> {
    USED.store(true, Ordering::Relaxed);
    host::learn_main_thread(py)?;
    comem::host::attend(&host::Interpreter);
    outcome(py, py.detach(begin)).map(|started| {
        host::watch_interrupts();
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the function is there for as long as the process. Without it, only the status is another.
        unsafe { libc::atexit(at_exit) };
        JOB.get_or_init(|| started)
    })
}

/// Does something that may wait, as the calling thread, with the interpreter free for others meanwhile.
pub fn waiting<T: Send>(py: Python<'_>, work: impl FnOnce(&Rc<Thread>) -> Result<T, Error> + Send) -> PyResult<T> {
    let job = job(py)?;
    outcome(py, py.detach(|| job.current().and_then(|thread| work(&thread))))
}

/// As [`waiting`], for what all nodes do together.
pub fn together<T: Send>(py: Python<'_>, work: impl FnOnce(&Rc<Thread>) -> Result<T, Error> + Send) -> PyResult<T> {
    host::together(py, || waiting(py, work))
}

/// This process has parted with its job.
static PARTED: AtomicBool = AtomicBool::new(false);

/// Parts with a job that is over, or never came about, so that another copy of this module can join another one. What
/// arrays hold stays, as memory of this process alone.
#[pyfunction]
fn part(py: Python<'_>) -> PyResult<()> {
    FINISHED.store(true, Ordering::Release);
    END_WITH.store(0, Ordering::Relaxed);
    host::part();
    // Regions that somebody lets go from now on are given back: what is kept is settled before.
    let keep = region::all_held();
    PARTED.store(true, Ordering::Release);
    let Some(job) = JOB.get() else { return Ok(()) };
    // SAFETY: every array over the heap holds a region, and no other code of this process knows of the heap.
    outcome_alone(py, py.detach(|| unsafe { job.part(&keep) }))
}

/// Gives back a region's pages if this process has parted with its job; false where it has not.
pub fn give_back_of_earlier_job(pages: Range<usize>) -> bool {
    let parted = PARTED.load(Ordering::Acquire);
    if let Some(job) = JOB.get().filter(|_| parted && !is_child()) {
        // SAFETY: what somebody held was kept, and nobody holds it any more.
        unsafe { job.give_back(pages) };
    }
    parted
}

/// Joins the job, unless this process has.
#[pyfunction]
#[pyo3(name = "start")]
fn start_now(py: Python<'_>) -> PyResult<()> {
    job(py).map(|_| ())
}

/// Makes the id of a job that other processes join.
#[pyfunction]
fn unique_id(py: Python<'_>) -> PyResult<String> {
    outcome_alone(py, py.detach(UniqueId::new)).map(|id| id.to_string())
}

/// Joins a job by an id, or the one of the environment, with settings.
#[pyfunction]
fn start_as(
    py: Python<'_>,
    unique_id: Option<String>,
    rank: Option<usize>,
    processes: Option<usize>,
    settings: Vec<(String, String)>,
) -> PyResult<()> {
    let mut builder = Comem::builder().spare_places();
    for (name, value) in settings {
        builder = builder.setting(&name, &value);
    }
    if let Some(text) = unique_id {
        let id = text.parse::<UniqueId>().map_err(|error| raise(py, "ArgumentError", error.to_string()))?;
        builder = builder.unique_id(id);
    }
    if let Some(rank) = rank {
        builder = builder.rank(rank);
    }
    if let Some(processes) = processes {
        builder = builder.processes(processes);
    }
    builder.check().map_err(|error| raise(py, "ArgumentError", error.to_string()))?;
    start_by(py, move || builder.start()).map(|_| ())
}

/// Whether this process is a node of a job, and has not left it.
#[pyfunction]
fn is_running() -> bool {
    JOB.get().is_some() && !host::is_over() && !FINISHED.load(Ordering::Acquire) && !is_child()
}

/// Whether this process has joined a job, or tried to.
#[pyfunction]
fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Leaves the job; collective.
#[pyfunction]
fn finish(py: Python<'_>) -> PyResult<()> {
    let job = job(py)?.clone();
    let result = py.detach(|| job.finish());
    FINISHED.store(true, Ordering::Release);
    host::begin_to_herald();
    outcome(py, result)
}

/// This node's number, how many nodes there are, and how many threads of each use Comem.
#[pyfunction]
fn place(py: Python<'_>) -> PyResult<(usize, usize, usize)> {
    let job = job(py)?;
    Ok((job.node(), job.nodes(), job.threads_per_node()))
}

/// What tells this job from others: where and when its node 0 began.
#[pyfunction]
fn job_name(py: Python<'_>) -> PyResult<String> {
    Ok(job(py)?.job_name())
}

/// This node's counters, as JSON.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<String> {
    let job = job(py)?;
    Ok(py.detach(|| job.stats()))
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(start_now, module)?)?;
    module.add_function(wrap_pyfunction!(start_as, module)?)?;
    module.add_function(wrap_pyfunction!(unique_id, module)?)?;
    module.add_function(wrap_pyfunction!(is_running, module)?)?;
    module.add_function(wrap_pyfunction!(is_used, module)?)?;
    module.add_function(wrap_pyfunction!(finish, module)?)?;
    module.add_function(wrap_pyfunction!(part, module)?)?;
    module.add_function(wrap_pyfunction!(cores, module)?)?;
    module.add_function(wrap_pyfunction!(forked, module)?)?;
    module.add_function(wrap_pyfunction!(end_with, module)?)?;
    module.add_function(wrap_pyfunction!(job_name, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(place, module)?)
}
