//! From Comem's errors to Python's exceptions, which `comem/_errors.py` defines: one for each kind.

use crate::host;
use comem::Error;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// A class of `comem/_errors.py`.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("comem._errors")?.getattr(name)?.cast_into::<PyType>()?)
}

/// An exception of the class `name`, with this sentence.
pub fn raise(py: Python<'_>, name: &str, sentence: String) -> PyErr {
    match class(py, name) {
        Ok(class) => PyErr::from_type(class, sentence),
        // The interpreter is taken down, and finds its modules no more.
        Err(_) => PyRuntimeError::new_err(format!("{name}: {sentence}")),
    }
}

/// The class of an error, and what it says.
pub fn named(error: &Error) -> (&'static str, String) {
    let name = match error {
        Error::Config(_) | Error::Start(_) => "StartError",
        Error::HeapFull(_) => "HeapFullError",
        Error::NoPlaceLeft { .. } => "ThreadError",
        Error::Mismatch(_) => "MismatchError",
        Error::NodeLost { .. } => "NodeLost",
        Error::Stopped(_) | Error::Interrupted => "Stopped",
        error if error.is_misuse() => "MisuseError",
        _ => "SystemError",
    };
    (name, error.to_string())
}

/// What a call into the runtime came to, as Python sees it.
pub fn outcome<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| match error {
        Error::Interrupted => host::take_raised().unwrap_or_else(|| PyKeyboardInterrupt::new_err(())),
        _ if host::is_over() => host::over(py),
        error => raised(py, &error),
    })
}

/// As [`outcome`], of what may fail when the job is over for another reason than that.
pub fn outcome_alone<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| raised(py, &error))
}

fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let (name, sentence) = named(error);
    raise(py, name, sentence)
}
