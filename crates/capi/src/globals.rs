//! The program's global variables as shared memory.

use crate::failure::done;
use crate::job::job;
use std::ffi::{c_int, c_void};

/// Makes the program's global variables shared memory, from `start` to `end`; collective, one thread of each node.
///
/// # Safety
/// The range is writable memory of the program alone, and no thread of this process uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_share_globals_(start: *mut c_void, end: *mut c_void) -> c_int {
    done(|| {
        let job = job()?;
        // SAFETY: by this function's contract.
        unsafe { job.share_globals(start.cast(), end.cast()) }?;
        Ok(())
    })
}
