//! OpenMP's idle threads, which keep their places: between two parallel regions they wait for the next one and do not
//! end.

use std::ffi::{CStr, c_int};

/// `omp_pause_hard`: give back all that can be given back, threads among it.
const PAUSE_HARD: c_int = 2;

/// A function of the program's OpenMP library, if it has one.
fn function(name: &CStr) -> Option<*mut libc::c_void> {
    // SAFETY: looks a name up in what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Ends the threads of OpenMP that wait for the calling thread's next parallel region, so that they leave their
/// places; the region makes new ones. Nothing happens in a parallel region, and where the program has no OpenMP (5.0
/// or later).
pub(crate) fn end_idle_threads() {
    let (Some(in_parallel), Some(pause)) = (function(c"omp_in_parallel"), function(c"omp_pause_resource_all")) else {
        return;
    };
    // SAFETY: OpenMP's functions of these names, by its specification (5.0, sections 3.2.6 and 3.2.44).
    let (in_parallel, pause) = unsafe {
        (
            std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(in_parallel),
            std::mem::transmute::<*mut libc::c_void, extern "C" fn(c_int) -> c_int>(pause),
        )
    };
    if in_parallel() == 0 {
        pause(PAUSE_HARD);
    }
}
