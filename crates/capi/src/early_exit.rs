//! A program that ends with status 0 and has not left its job: C's `exit` and the end of `main`, Fortran's `stop`.
//!
//! Other nodes may have waited for it, or would have; alone, threads of its own may. Either way work may be left
//! undone, so the process says so and ends with the status of misuse. Only what comes last knows that nobody will call
//! `comem_finish` any more: functions registered for the exit and destructors may do it. So the status is noted where
//! functions are called that are registered for the exit, and judged among this library's own destructors, which come
//! behind those.

use crate::failure::end;
use crate::job;
use comem_rt::in_a_child;
use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The process ends regularly, with status 0.
static ENDS_WELL: AtomicBool = AtomicBool::new(false);

/// From now on the process should leave the job before it ends.
pub fn watch() {
    // SAFETY: the function takes what it is called with, and stays.
    unsafe { on_exit(note, std::ptr::null_mut()) };
}

unsafe extern "C" fn note(status: c_int, _argument: *mut c_void) {
    ENDS_WELL.store(status & 0xff == 0, Ordering::Release);
}

/// Called when this library is taken down, or with the program's own destructors where it is linked statically.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = judge;

extern "C" fn judge() {
    if !ENDS_WELL.load(Ordering::Acquire) || in_a_child() || job::has_finished() {
        return;
    }
    flush_fortran();
    let what = "the program ended with status 0 before comem_finish(): what other nodes or threads still had to do \
                may be left undone; call comem_finish() first (before Fortran's stop, too), or jia_exit, Tmk_exit, \
                Qk_shutdown";
    let sentence = format!("comem: {}: {what}", job::name());
    end(comem_rt::error::exit::USAGE, &CString::new(sentence).unwrap_or_default());
}

/// Lets out what Fortran's units hold: this library may be taken down before Fortran's.
fn flush_fortran() {
    // SAFETY: looks a name up in what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_gfortran_flush_i4".as_ptr()) };
    if !found.is_null() {
        // SAFETY: gfortran's function of that name, which flushes all units where it is given none.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*const i32)>(found)(std::ptr::null()) };
    }
}
