//! The heap introduces itself to `libcomem_wrap.so`, where that is preloaded, so that system calls can use shared
//! buffers.
//!
//! The library stands before the C library's functions and cannot know where the heap is; a program that contains the
//! runtime has no symbols by which the library could find it. So the runtime looks for the library.

use crate::Comem;
use crate::inline::calls;
use crate::node::Node;
use comem_memory::pages::fault::uncancelled;
use comem_protocol::ids::NodeId;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock};

/// The version of the agreement with the library.
const VERSION: c_uint = 1;

type Touch = unsafe extern "C" fn(*const c_void, usize, c_int) -> c_int;
type Install = unsafe extern "C" fn(version: c_uint, base: usize, bytes: usize, touch: Touch) -> c_int;

type Copy = unsafe extern "C" fn(private: *mut c_void, lines: *mut c_void, bytes: usize, stores: c_int);
type Lines = unsafe extern "C" fn(base: usize, bytes: usize, copy: Copy);

type Add = unsafe extern "C" fn(base: usize, bytes: usize);

static NODE: OnceLock<Arc<Node>> = OnceLock::new();

/// Tells the wrapper library, if there is one, where the heap is and how its pages come here.
pub(crate) fn install(node: &Arc<Node>) {
    // A job of one node has all pages here.
    let Some(shared) = node.shared().filter(|shared| shared.views.is_some()) else { return };
    // SAFETY: the name is a string; the default order covers every library of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"comem_wrap_install".as_ptr()) };
    if found.is_null() {
        return tell_of_its_absence(node);
    }
    if NODE.set(node.clone()).is_err() {
        return;
    }
    // SAFETY: the function of this name has this signature.
    let install = unsafe { std::mem::transmute::<*mut c_void, Install>(found) };
    // SAFETY: `touch` may be called by any thread, and the heap stays where it is.
    if unsafe { install(VERSION, shared.base, shared.bytes, touch) } != 0 {
        crate::error::say(format_args!(
            "comem: {}: libcomem_wrap.so is of another version and does nothing: system calls on shared memory may \
             fail with EFAULT; install one version of Comem",
            node.name_of(node.me())
        ));
        return;
    }
    if let Some(lines) = shared.views.as_ref().and_then(|views| views.lines.as_ref()) {
        tell_lines(lines.extent().base, lines.extent().bytes);
    }
}

/// Tells the wrapper library which part of the heap is lines memory, where no access traps.
fn tell_lines(base: usize, bytes: usize) {
    // SAFETY: the name is a string; the default order covers every library of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"comem_wrap_lines".as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the function of this name has this signature.
    let tell = unsafe { std::mem::transmute::<*mut c_void, Lines>(found) };
    // SAFETY: `copy` may be called by any thread, and lines memory stays where it is.
    unsafe { tell(base, bytes, copy) };
}

/// The launcher wanted the library here, and it is not: one node of each host says so, before the program meets it.
/// It is not
/// installed, or the program is linked statically, changes its user as it starts, is for another machine, or was
/// linked with the
/// address sanitizer's library.
fn tell_of_its_absence(node: &Node) {
    let wanted = std::env::var("COMEM_WRAP").is_ok_and(|value| value == "on");
    if wanted && node.config.host_place.map_or(node.me() == NodeId(0), |place| place == 0) {
        crate::error::say(format_args!(
            "comem: {}: libcomem_wrap.so is not loaded, so system calls (write, read, send, ...) on shared memory may \
             fail with Bad address; `comem doctor` says where it is looked for; touch the memory first, and --no-wrap \
             silences this",
            node.name_of(node.me())
        ));
    }
}

/// Tells the wrapper library of more shared memory: the program's global variables.
pub(crate) fn tell_range(range: std::ops::Range<usize>) {
    // SAFETY: the name is a string; the default order covers every library of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"comem_wrap_add".as_ptr()) };
    if found.is_null() || NODE.get().is_none() {
        return;
    }
    // SAFETY: the function of this name has this signature.
    let add = unsafe { std::mem::transmute::<*mut c_void, Add>(found) };
    // SAFETY: the range is shared memory from now on, and stays where it is.
    unsafe { add(range.start, range.len()) };
}

/// Copies between private memory and lines memory, for a system call. A child made by `fork` finds what is here.
unsafe extern "C" fn copy(private: *mut c_void, lines: *mut c_void, bytes: usize, stores: c_int) {
    let (private, lines) = (private.cast::<u8>(), lines.cast::<u8>());
    // SAFETY: the library has checked that both are memory of so many bytes.
    unsafe {
        match (crate::in_a_child(), stores != 0) {
            (false, false) => uncancelled(|| calls::read(private, lines, bytes)),
            (false, true) => uncancelled(|| calls::write(lines, private, bytes)),
            (true, false) => private.copy_from_nonoverlapping(lines, bytes),
            (true, true) => lines.copy_from_nonoverlapping(private, bytes),
        }
    }
}

/// Brings memory here for a system call; not 0 when it is no allocation, or the thread has no place in the job and
/// there is none left, or this is a child made by `fork`: the call then meets what it would have met without us.
unsafe extern "C" fn touch(start: *const c_void, bytes: usize, write: c_int) -> c_int {
    if crate::in_a_child() {
        return -1;
    }
    let Some(node) = NODE.get() else { return -1 };
    let Some(shared) = node.shared() else { return -1 };
    let comem = Comem { node: node.clone() };
    let touched = uncancelled(|| comem.current().and_then(|_| shared.touch(start.addr(), bytes, write != 0)));
    if touched.is_ok() { 0 } else { -1 }
}
