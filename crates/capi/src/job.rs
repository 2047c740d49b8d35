//! Joining and leaving the job, who is who, and dividing work.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, call, checked, done, reported};
use crate::options;
use crate::output;
use comem_rt::{Comem, Thread, in_a_child};
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static JOB: OnceLock<Comem> = OnceLock::new();
static STARTING: AtomicBool = AtomicBool::new(false);
static FINISHED: AtomicBool = AtomicBool::new(false);
/// Why the start failed, if it did.
static FAILED: OnceLock<String> = OnceLock::new();

/// The job this node is part of. Every call that needs the node comes by here.
#[inline]
pub fn job() -> Outcome<&'static Comem> {
    if in_a_child() {
        return Err(called_in_a_child());
    }
    joined()
}

#[cold]
fn called_in_a_child() -> Failure {
    let what = "a process made by fork called Comem, whose job it has no part in; let its parent do that, or start it \
                as a node of its own";
    Failure::new(Code::Misuse, what)
}

/// The same for what a child made by `fork` may ask as well: who is who.
#[inline]
fn joined() -> Outcome<&'static Comem> {
    match JOB.get() {
        Some(_) if FINISHED.load(Ordering::Acquire) => {
            Err(Failure::new(Code::NotStarted, "Comem was called after comem_finish(); finish last"))
        }
        Some(job) => Ok(job),
        None if let Some(failure) = failed_before() => Err(failure),
        None => Err(Failure::new(
            Code::NotStarted,
            "Comem was called before comem_start(), or what starts it in its place (jia_init, Tmk_startup, \
             MAIN_INITENV); start first",
        )),
    }
}

#[cold]
fn failed_before() -> Option<Failure> {
    let why = FAILED.get()?;
    Some(Failure::new(
        Code::Start,
        format!("Comem was called although its start had failed; look at what that returns. It was: {why}"),
    ))
}

/// The job, if this process has joined one, also after it has left it.
pub fn started() -> Option<&'static Comem> {
    JOB.get()
}

/// The calling thread's seat in it.
#[inline]
pub fn thread() -> Outcome<Rc<Thread>> {
    seat(job()?)
}

#[inline]
fn seat(job: &Comem) -> Outcome<Rc<Thread>> {
    job.current().map_err(|error| Failure::new(Code::Thread, error.to_string()))
}

/// The calling thread's number in the job.
pub fn thread_number() -> Outcome<usize> {
    Ok(seat(joined()?)?.id())
}

/// This node's name in errors; before it has joined, the number that its launcher has given it.
pub fn name() -> String {
    let told = || std::env::var(comem_rt::control::var::NODE).ok()?.parse().ok();
    let node = JOB.get().map(Comem::node).or_else(told).map_or(String::new(), |node| format!("node {node} "));
    let mut host = [0_u8; 256];
    // SAFETY: the buffer is ours and as long as we say.
    let known = unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len()) } == 0;
    let length = host.iter().position(|b| *b == 0).unwrap_or(0);
    let host = if known { String::from_utf8_lossy(&host[..length]) } else { "unknown".into() };
    format!("{node}(host {host}, pid {})", std::process::id())
}

fn start() -> Outcome<c_int> {
    start_by(comem_rt::start)
}

/// Joins the job in the way that `start` does.
pub fn start_by(start: impl FnOnce() -> comem_rt::Result<Comem>) -> Outcome<c_int> {
    begin(start)?;
    crate::early_exit::watch();
    Ok(0)
}

/// Joins the job for the process model of PARMACS, whose threads come and go.
pub fn start_for_workers() -> Outcome<&'static Comem> {
    begin(comem_rt::start_with_spare_places)
}

fn begin(start: impl FnOnce() -> comem_rt::Result<Comem>) -> Outcome<&'static Comem> {
    if in_a_child() {
        return Err(called_in_a_child());
    }
    if STARTING.swap(true, Ordering::AcqRel) {
        return Err(failed_before().unwrap_or_else(|| Failure::new(
            Code::Misuse,
            "this process has joined its job already; call comem_start(), or what starts it in its place (jia_init, \
             Tmk_startup, MAIN_INITENV), once",
        )));
    }
    if std::env::var_os(comem_rt::control::var::CONTROL_FD).is_some() {
        output::by_lines();
    }
    let joined = start().map_err(|error| {
        let why = FAILED.get_or_init(|| error.to_string());
        Failure::new(Code::Start, why.clone())
    })?;
    let _ = JOB.set(joined);
    job()
}

/// Leaves the job: waits until every node has come as far.
pub fn leave() -> Outcome<()> {
    let result = job()?.clone().finish();
    FINISHED.store(true, Ordering::Release);
    Ok(result?)
}

/// Whether this process has left the job.
pub fn has_finished() -> bool {
    FINISHED.load(Ordering::Acquire)
}

/// Joins the job, under `engine` unless the user has chosen one.
///
/// # Safety
/// No other thread runs that might read the environment.
pub unsafe fn start_under(engine: &str) -> Outcome<()> {
    let is_inline = std::env::var_os("COMEM_DETECTOR").is_some_and(|detector| detector == "inline");
    // Which engines go with that detector, the runtime knows.
    if !is_inline && std::env::var_os("COMEM_ENGINE").is_none_or(|chosen| chosen.is_empty()) {
        // SAFETY: by this function's contract.
        unsafe { std::env::set_var("COMEM_USUAL_ENGINE", engine) };
    }
    start().map(|_| ())
}

/// Joins the job.
#[unsafe(no_mangle)]
pub extern "C" fn comem_start() -> c_int {
    checked(start)
}

/// Joins the job; Comem's own options leave the command line.
///
/// # Safety
/// `argc` and `argv` are what `main` got, or null; no other thread runs that might read the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_start_args(argc: *mut c_int, argv: *mut *mut c_char) -> c_int {
    checked(|| {
        if !argc.is_null() && !argv.is_null() {
            // SAFETY: by this function's contract.
            let variables = unsafe { options::take(argc, argv) };
            for (name, value) in variables.map_err(|what| Failure::new(Code::Start, what))? {
                // SAFETY: by this function's contract no other thread reads the environment meanwhile.
                unsafe { std::env::set_var(name, value) };
            }
        }
        start()
    })
}

/// Leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn comem_finish() -> c_int {
    done(leave)
}

fn number(of: impl FnOnce() -> Outcome<usize>) -> c_int {
    reported(|| of().map(|n| n as c_int), |code| code)
}

/// This node's number.
#[unsafe(no_mangle)]
pub extern "C" fn comem_node() -> c_int {
    number(|| Ok(joined()?.node()))
}

/// How many nodes there are.
#[unsafe(no_mangle)]
pub extern "C" fn comem_nodes() -> c_int {
    number(|| Ok(joined()?.nodes()))
}

/// The calling thread's number in the job.
#[unsafe(no_mangle)]
pub extern "C" fn comem_thread() -> c_int {
    number(thread_number)
}

/// How many threads there are.
#[unsafe(no_mangle)]
pub extern "C" fn comem_threads() -> c_int {
    number(|| Ok(joined()?.threads()))
}

/// How many threads each node has.
#[unsafe(no_mangle)]
pub extern "C" fn comem_threads_per_node() -> c_int {
    number(|| Ok(joined()?.threads_per_node()))
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn comem_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What a C program wants run on every thread.
struct Work {
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
}

// SAFETY: the header says that the function is called on every thread with the same argument; what the argument points
// to is the program's care.
unsafe impl Sync for Work {}

impl Work {
    fn run(&self) {
        // SAFETY: the program gave this function to be called with this argument.
        call("the function of comem_parallel()", || unsafe { (self.function)(self.argument) });
    }
}

/// Runs a function on every thread of this node.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parallel(
    function: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    done(|| {
        let Some(function) = function else {
            return Err(Failure::new(Code::Argument, "comem_parallel() was given no function; pass one"));
        };
        let job = job()?;
        thread()?;
        let work = Work { function, argument };
        job.checked_parallel(|_| work.run())?;
        Ok(())
    })
}

/// Splits, and writes the part down; nothing happens where there is no place for it.
fn give(split: impl FnOnce() -> Outcome<std::ops::Range<usize>>, low: *mut u64, high: *mut u64) -> Outcome<()> {
    if low.is_null() || high.is_null() {
        return Err(Failure::new(
            Code::Argument,
            "a split was given no place for its result; pass pointers to two numbers",
        ));
    }
    let range = split()?;
    // SAFETY: not null, and the header asks for pointers to numbers.
    unsafe {
        buffer::give(low, range.start as u64);
        buffer::give(high, range.end as u64);
    }
    Ok(())
}

/// This thread's equal part.
///
/// # Safety
/// `low` and `high` point to numbers, or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_split(total: u64, low: *mut u64, high: *mut u64) -> c_int {
    done(|| give(|| Ok(thread()?.split(total as usize)), low, high))
}

/// This thread's part by measured speed.
///
/// # Safety
/// As for [`comem_split`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_split_weighted(total: u64, low: *mut u64, high: *mut u64) -> c_int {
    done(|| give(|| Ok(thread()?.checked_split_weighted(total as usize)?), low, high))
}
