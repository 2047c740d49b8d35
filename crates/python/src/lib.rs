//! Comem for Python: the part of the package `comem` that talks to the runtime.
//!
//! What a user sees (arrays, names, defaults, documentation) is written in Python, in `python/comem`; here are the few
//! operations under it. Every call that may wait lets other Python threads run meanwhile.
//!
//! | module | what |
//! |---|---|
//! | [`job`] | joining, leaving, who is who |
//! | [`region`] | shared memory, and when it is given back |
//! | [`sync`] | barriers, locks, semaphores, reductions |
//! | [`host`] | signals while a thread waits, and a job that ends before its interpreter |
//! | [`errors`] | exceptions |

use pyo3::prelude::*;

mod errors;
mod host;
mod job;
mod region;
mod sync;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    host::add(module)?;
    job::add(module)?;
    region::add(module)?;
    sync::add(module)
}
