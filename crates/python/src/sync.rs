//! Barriers, locks and their kin, by number; `comem/_sync.py` gives them names.

use crate::errors::raise;
use crate::job::{together, waiting};
use comem::{ConditionId, LockId, Operator, RwLockId, SemaphoreId};
use pyo3::prelude::*;

#[pyfunction]
fn barrier(py: Python<'_>) -> PyResult<()> {
    together(py, |thread| thread.checked_barrier())
}

/// Waits until every node has come to the end of what all do together; other collective calls of nodes that have not
/// fail there.
#[pyfunction]
fn leave(py: Python<'_>) -> PyResult<()> {
    together(py, |thread| thread.leave())
}

#[pyfunction]
fn lock(py: Python<'_>, lock: u64) -> PyResult<()> {
    waiting(py, |thread| thread.raw_lock(LockId(lock)))
}

#[pyfunction]
fn try_lock(py: Python<'_>, lock: u64) -> PyResult<bool> {
    waiting(py, |thread| thread.raw_try_lock(LockId(lock)))
}

#[pyfunction]
fn unlock(py: Python<'_>, lock: u64) -> PyResult<()> {
    waiting(py, |thread| thread.raw_unlock(LockId(lock)))
}

/// Sentences call the lock, or what it is, of this number by this name.
#[pyfunction]
fn remember(number: u64, name: &str) {
    comem::names::remember(number, name);
}

#[pyfunction]
fn sem_post(py: Python<'_>, semaphore: u64) -> PyResult<()> {
    waiting(py, |thread| {
        thread.sem_post(SemaphoreId(semaphore));
        Ok(())
    })
}

#[pyfunction]
fn sem_wait(py: Python<'_>, semaphore: u64) -> PyResult<()> {
    waiting(py, |thread| thread.checked_sem_wait(SemaphoreId(semaphore)))
}

#[pyfunction]
fn try_sem_wait(py: Python<'_>, semaphore: u64) -> PyResult<bool> {
    waiting(py, |thread| thread.checked_try_sem_wait(SemaphoreId(semaphore)))
}

#[pyfunction]
fn cond_wait(py: Python<'_>, condition: u64, lock: u64) -> PyResult<()> {
    waiting(py, |thread| thread.raw_cond_wait(ConditionId(condition), LockId(lock)))
}

#[pyfunction]
fn cond_notify(py: Python<'_>, condition: u64, all: bool) -> PyResult<()> {
    waiting(py, |thread| {
        if all {
            thread.cond_notify_all(ConditionId(condition));
        } else {
            thread.cond_notify_one(ConditionId(condition));
        }
        Ok(())
    })
}

#[pyfunction]
fn rw_lock(py: Python<'_>, lock: u64, write: bool) -> PyResult<()> {
    waiting(py, |thread| match write {
        true => thread.raw_write_lock(RwLockId(lock)),
        false => thread.raw_read_lock(RwLockId(lock)),
    })
}

#[pyfunction]
fn rw_unlock(py: Python<'_>, lock: u64) -> PyResult<()> {
    waiting(py, |thread| thread.raw_rw_unlock(RwLockId(lock)))
}

fn operator(py: Python<'_>, name: &str) -> PyResult<Operator> {
    match name {
        "sum" => Ok(Operator::Sum),
        "min" => Ok(Operator::Min),
        "max" => Ok(Operator::Max),
        _ => {
            Err(raise(py, "ArgumentError", format!("there is no reduction {name:?}; use \"sum\", \"min\" or \"max\"")))
        }
    }
}

/// Reduces whole numbers over all nodes.
#[pyfunction]
fn reduce_i64(py: Python<'_>, operation: &str, mut values: Vec<i64>) -> PyResult<Vec<i64>> {
    let operator = operator(py, operation)?;
    together(py, move |thread| thread.checked_reduce_i64(operator, &mut values).map(|()| values))
}

/// Reduces numbers over all nodes.
#[pyfunction]
fn reduce_f64(py: Python<'_>, operation: &str, mut values: Vec<f64>) -> PyResult<Vec<f64>> {
    let operator = operator(py, operation)?;
    together(py, move |thread| thread.checked_reduce_f64(operator, &mut values).map(|()| values))
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(barrier, module)?)?;
    module.add_function(wrap_pyfunction!(leave, module)?)?;
    module.add_function(wrap_pyfunction!(lock, module)?)?;
    module.add_function(wrap_pyfunction!(try_lock, module)?)?;
    module.add_function(wrap_pyfunction!(unlock, module)?)?;
    module.add_function(wrap_pyfunction!(remember, module)?)?;
    module.add_function(wrap_pyfunction!(sem_post, module)?)?;
    module.add_function(wrap_pyfunction!(sem_wait, module)?)?;
    module.add_function(wrap_pyfunction!(try_sem_wait, module)?)?;
    module.add_function(wrap_pyfunction!(cond_wait, module)?)?;
    module.add_function(wrap_pyfunction!(cond_notify, module)?)?;
    module.add_function(wrap_pyfunction!(rw_lock, module)?)?;
    module.add_function(wrap_pyfunction!(rw_unlock, module)?)?;
    module.add_function(wrap_pyfunction!(reduce_i64, module)?)?;
    module.add_function(wrap_pyfunction!(reduce_f64, module)?)
}
