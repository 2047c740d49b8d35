//! What happens when a thread calls `exit`, or `main` returns.
//!
//! | who | status | what happens |
//! |---|---|---|
//! | main, no worker at work | any | the workers are dismissed, the job ends in good order |
//! | main, workers at work | 0 | waits for them, then the same |
//! | main, workers at work | other | the node ends at once, and so the job |
//! | a worker | 0 | that is the end of its work, as if its function had returned |
//! | a worker | other | the node ends at once, and so the job, with this status |
//! | a child made by `fork` | any | that process alone ends |
//!
//! `comem-cc` has the linker (`--wrap=exit`) bring what a program's own files call to [`exit`] here, in whatever
//! language and with whatever headers. What a shared library calls comes to [`at_exit`], once: there, a worker of node
//! 0 ends the job with an error if its status is 0, since it shares the process with main. The C library takes down a
//! thread's own variables before it calls the functions registered for the exit. What is left to say for that thread is
//! therefore said by another one, which inherits its place.

use super::{PROCESS, Process, creator, stand_in, worker};
use crate::failure::{Code, Failure, Outcome, report};
use crate::job;
use crate::output;
use comem_rt::in_a_child;
use std::ffi::{CStr, c_int, c_void};
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Sees to it that exits come here.
pub fn watch() {
    // SAFETY: the function takes what it is called with, and stays.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

/// What was registered last is called first. When main creates workers, the constructors of global objects have run: so
/// the job ends before their destructors run, and these find all variables as they were written last.
pub fn watch_before_destructors() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(watch);
}

/// How long to wait for the launcher to read; it may be held up itself.
const READ_PATIENCE: Duration = Duration::from_millis(200);

/// Lets out what the program has printed so far, and where several nodes print, waits until the launcher has read it:
/// what others print because of what this thread does next comes behind.
pub fn flush_output() {
    output::flush();
    if PROCESS.get().is_some_and(|process| process.job.nodes() > 1) {
        let begin = Instant::now();
        while unread_output() && begin.elapsed() < READ_PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Whether standard output is a pipe from which its reader has yet to read something.
fn unread_output() -> bool {
    let mut bytes: c_int = 0;
    // SAFETY: the call writes a number to `bytes`, or fails where the output is no pipe.
    let counted = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::FIONREAD, &raw mut bytes) };
    counted == 0 && bytes > 0
}

fn flush_all() {
    // SAFETY: flushes every stream.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Ends the process at once.
fn end(status: c_int) -> ! {
    flush_all();
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Where this library is linked statically, what it calls `exit` is [`exit`] as well: there the linker has another name
/// for the C library's.
fn exit_of_the_c_library() -> unsafe extern "C" fn(c_int) -> ! {
    let real: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads an address that the linker has put there; 0 where nothing is wrapped.
    unsafe {
        std::arch::asm!(
            ".weak __real_exit",
            "mov {}, qword ptr [rip + __real_exit@GOTPCREL]",
            out(reg) real,
            options(pure, readonly, nostack)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        real = 0;
    }
    match real {
        0 => libc::exit,
        // SAFETY: the C library's function.
        real => unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int) -> !>(real) },
    }
}

/// Whether more than a quarter of this thread's stack is in use.
fn stack_runs_out() -> bool {
    let here = 0_u8;
    let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the calls fill what they are given, which the last one gives back.
    let known = unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) == 0
            && libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut bytes) == 0
            && libc::pthread_attr_destroy(&raw mut attributes) == 0
    };
    known && (&raw const here).addr() < low.addr() + bytes - bytes / 4
}

/// What `exit` is for a program.
pub fn exit(status: c_int) -> ! {
    let at_work = PROCESS.get().zip(worker::in_work()).filter(|_| !in_a_child());
    let Some((process, (slot, serial))) = at_work else {
        // SAFETY: ends the process as the program wants it.
        unsafe { exit_of_the_c_library()(status) }
    };
    if status != 0 {
        end(status);
    }
    if process.job.node() == 0 && slot == 0 {
        stand_in::leave(process, serial);
        wait_for_the_end();
    }
    // What the function has on this stack stays there, as far down as it got; further orders are carried out below, or
    // where there is more room.
    if stack_runs_out() {
        goes_on_as(process, (slot, serial));
    }
    if let Err(failure) = worker::go_on(process, slot, serial) {
        report(&failure);
    }
    if process.job.node() != 0 && process.place_of(slot) == 0 {
        leave_and_exit();
    }
    wait_for_the_end()
}

/// The process's main thread ends it.
fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// A worker on node 0 cannot be caught on its way through the C library's exit.
const CALLED_BY_A_LIBRARY: &CStr =
    c"comem: a worker on node 0, in one process with main, called exit(0) by way of a shared library or of \
    a program that comem-cc did not link; link with comem-cc, or let the worker's function return";

unsafe extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    let Some(process) = PROCESS.get() else { return };
    if in_a_child() || job::has_finished() {
        return;
    }
    let first_node = process.job.node() == 0;
    match worker::in_work() {
        Some(order) if !first_node && status == 0 => goes_on_as(process, order),
        Some(_) if status == 0 => crate::failure::end(comem_rt::error::exit::USAGE, CALLED_BY_A_LIBRARY),
        Some(_) => end(status),
        None if first_node => main_ends(process, status),
        // A library ends a worker's process in a thread of its own.
        None => end(status),
    }
}

/// Runs `rest` in a thread that has the place of the one that exits.
fn in_place_of(process: &'static Process, place: usize, rest: impl FnOnce() -> Outcome<()> + Send) {
    std::thread::scope(|scope| {
        let body = || {
            // SAFETY: that thread waits for this one's end, on its way out of the process or of its work.
            unsafe { process.job.inherit_place(place) };
            if let Err(failure) = rest() {
                report(&failure);
            }
        };
        let builder = std::thread::Builder::new().stack_size(comem_rt::stack_bytes());
        if let Err(why) = builder.spawn_scoped(scope, body) {
            report(&Failure::new(Code::System, format!("cannot start a thread in place of the one that ends: {why}")));
            end(comem_rt::error::exit::INTERNAL);
        }
    });
}

/// A worker has called exit(0): its function is over, and its slot takes further orders.
fn goes_on_as(process: &'static Process, (slot, serial): (usize, u64)) -> ! {
    let place = process.place_of(slot);
    in_place_of(process, place, || {
        worker::go_on(process, slot, serial)?;
        if place == 0 {
            leave_and_exit();
        }
        Ok(())
    });
    wait_for_the_end()
}

fn main_ends(process: &'static Process, status: c_int) {
    let at_work = super::locked(&process.creator).outstanding();
    if at_work > 0 && status != 0 {
        end(status);
    }
    flush_all();
    in_place_of(process, 0, || {
        creator::wait_for(process, at_work)?;
        creator::dismiss(process)?;
        job::leave()
    });
}

/// The main thread of a node other than the first has no more work. What the program registered for its end, and what
/// C++ destroys then, is node 0's: the variables here hold pointers that mean something there.
pub fn leave_and_exit() -> ! {
    flush_all();
    if let Err(failure) = job::leave() {
        report(&failure);
    }
    end(0)
}
