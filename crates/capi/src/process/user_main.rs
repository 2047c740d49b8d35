//! `UserMain`: the entry of programs for Brazos (E. Speight, J. K. Bennett, 1997, sections 2.3 and 3.6), which every
//! thread of every process runs. `include/compat/brazos.h` brings a `main` that creates a worker in every slot of the
//! job; what is here tells a thread where it is.

use super::{described, number};
use crate::job;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// The process's command line. It is kept here, and not among the program's globals, which begin as copies of node
/// 0's.
static COUNT: AtomicI32 = AtomicI32::new(0);
static WORDS: AtomicPtr<*mut c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Notes the command line that the process began with.
pub fn note_arguments(argc: c_int, argv: *mut *mut c_char) {
    WORDS.store(argv, Ordering::Relaxed);
    COUNT.store(if argv.is_null() { 0 } else { argc }, Ordering::Relaxed);
}

/// How many threads run `UserMain`: nodes times threads of a node, also where one node could have more workers.
#[unsafe(no_mangle)]
pub extern "C" fn comem_user_threads_() -> c_int {
    number(|| Ok(described()?.job.threads()))
}

/// The calling thread's number among those of its process.
#[unsafe(no_mangle)]
pub extern "C" fn comem_user_local_id_() -> c_int {
    number(|| {
        let process = described()?;
        Ok(process.place_of(job::thread_number()?))
    })
}

/// The number of words in the command line, and where they are.
///
/// # Safety
/// `argv` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_user_arguments_(argv: *mut *mut *mut c_char) -> c_int {
    if !argv.is_null() {
        // SAFETY: by this function's contract.
        unsafe { argv.write(WORDS.load(Ordering::Relaxed)) };
    }
    COUNT.load(Ordering::Relaxed)
}
