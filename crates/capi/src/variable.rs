//! Accesses to one variable that are atomic for the whole job.
//!
//! Where several nodes may write a page at once, as under `hlrc` and `scope`, no instruction is atomic for all of
//! them. There a
//! variable has a lock, named by its address: an acquire before the access, a release after it. Elsewhere the
//! processor's own
//! atomics do.

use crate::failure::{Code, Failure, Outcome};
use crate::job::{job, thread};
use crate::process;
use comem_rt::LockId;
use comem_rt::inline::calls;
use std::ffi::c_void;

/// The lock of a variable is this and its address, so that it is none that a program gives to LOCK.
const VARIABLES: u64 = 0xA70 << 52;

/// Runs `access`, which says whether it wrote, while nobody else of the job accesses the variable by this function.
/// On one node, and in
/// memory under `msi`, no lock is taken, so `access` has to use the processor's atomics. What was written anywhere
/// before an access that
/// writes is seen after a later one of the same variable, as with C's sequentially consistent atomics. `macro_name`
/// is for sentences. `access` gets the address to use, which may be another one of the same memory.
///
/// # Errors
/// When each node has the variable for itself and there are workers, or the lock cannot be had.
pub fn alone<R>(
    macro_name: &str,
    address: *mut c_void,
    bytes: usize,
    mut access: impl FnMut(*mut c_void) -> (R, bool),
) -> Outcome<R> {
    let job = job()?;
    if job.nodes() == 1 {
        return Ok(access(address).0);
    }
    match job.engine_of(address.cast())? {
        Some(engine) if engine.has_several_writers() => {}
        Some(_) => {
            process::check_main_may_meet(macro_name)?;
            let mut result = None;
            // Memory whose accesses the program checks itself is not to be accessed here without a check.
            calls::alone(address.expose_provenance(), bytes, &mut |at| result = Some(access(at.cast()).0))?;
            return Ok(result.unwrap_or_else(|| access(address).0));
        }
        None if process::is_before_workers() => return Ok(access(address).0),
        None => {
            let what = format!(
                "{macro_name} was given a variable at {address:?}, which each node has for itself; let it stand in \
                 memory of G_MALLOC, or run with --globals share if it is a global variable"
            );
            return Err(Failure::new(Code::Argument, what));
        }
    }
    process::check_main_may_meet(macro_name)?;
    let (thread, lock) = (thread()?, LockId(VARIABLES | address.addr() as u64));
    thread.raw_lock(lock)?;
    let (result, wrote) = access(address);
    // Under `scope` a plain release would tell of this variable only.
    if wrote {
        thread.raw_unlock_widely(lock)?
    } else {
        thread.raw_unlock(lock)?
    }
    Ok(result)
}
