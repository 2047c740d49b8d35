//! What the interpreter is asked while a thread waits, and told when the job is over: it stays, and raises an
//! exception.
//!
//! A thread that touches shared memory which cannot come any more goes on with what this node had last, and gets its
//! exception at the interpreter's next step: in the main thread before the next bytecode, in others soon after.

use crate::errors;
use crate::job;
use comem::Error;
use comem::host::Host;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// The interpreter, as the runtime sees it.
pub struct Interpreter;

/// Why the job is over: the exception's class, the sentence, the node that was lost.
static OVER: OnceLock<(&'static str, String, Option<u16>)> = OnceLock::new();

/// When Ctrl-C came last, in nanoseconds of the monotonic clock; zero for never.
static INTERRUPTED_AT: AtomicU64 = AtomicU64::new(0);
/// When Ctrl-C ends the wait for a page, which asks every 50 ms: not before so long, since that ends the job and a busy
/// host may be as slow to answer; and not after so long, since what came earlier was for something else.
const ENDS_FAULTS_NS: std::ops::Range<u64> = 400_000_000..600_000_000;
/// A fault's wait was just ended by Ctrl-C.
static INTERRUPTED_FAULT: AtomicBool = AtomicBool::new(false);
/// The handler that stood before ours, and its flags.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

thread_local! {
    /// What a signal's Python handler raised while this thread waited.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// A Ctrl-C that is put off.
    static PUT_OFF: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// This thread is in a call that all nodes make together.
    static TOGETHER: Cell<bool> = const { Cell::new(false) };
}

/// Every Ctrl-C up to now has come to Python's handler: threads that wait for a page later go on waiting.
#[pyfunction]
fn interrupts_heard() {
    INTERRUPTED_AT.store(0, Ordering::Relaxed);
}

/// What to call with a Ctrl-C that is put off.
static HAND_ON: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// From now on, the first Ctrl-C in a call that all nodes make together does not end its wait, and the job with it: it
/// is handed on, lest others be waited for in vain; who gets an exception leaves, that ends the call of those who wait,
/// and they get the exception then. `None` ends this; gives whether there is one that nobody has got.
#[pyfunction]
fn put_off_interrupts(hand_on: Option<Py<PyAny>>) -> bool {
    *hand_on_to() = hand_on;
    PUT_OFF.take().is_some()
}

fn hand_on_to() -> std::sync::MutexGuard<'static, Option<Py<PyAny>>> {
    HAND_ON.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Puts an exception off, or gives it back.
fn put_off(py: Python<'_>, error: PyErr) -> Option<PyErr> {
    let first =
        TOGETHER.get() && PUT_OFF.with_borrow(Option::is_none) && error.is_instance_of::<PyKeyboardInterrupt>(py);
    let hand_on = if first { hand_on_to().as_ref().map(|hand_on| hand_on.clone_ref(py)) } else { None };
    let Some(hand_on) = hand_on else { return Some(error) };
    PUT_OFF.set(Some(error));
    hand_on.call0(py).err()
}

/// Makes a call that all nodes make together. An exception that was put off is raised when the call fails. When it does
/// not, all nodes go on alike, and it is raised by the next such call before that begins.
pub fn together<T>(py: Python<'_>, call: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    if let Some(error) = PUT_OFF.take() {
        return Err(error);
    }
    note_other_threads(py)?;
    TOGETHER.set(true);
    let result = call();
    TOGETHER.set(false);
    result.map_err(|error| PUT_OFF.take().unwrap_or(error))
}

/// The exception that ended the calling thread's wait, once.
pub fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Why the job is over, for an exception that comes without its sentence.
#[pyfunction]
fn last_words() -> Option<(String, Option<u16>)> {
    OVER.get().map(|(_, sentence, node)| (sentence.clone(), *node))
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(put_off_interrupts, module)?)?;
    module.add_function(wrap_pyfunction!(interrupts_heard, module)?)?;
    module.add_function(wrap_pyfunction!(watch_interrupts, module)?)?;
    module.add_function(wrap_pyfunction!(last_words, module)?)
}

/// Whether the job is over although the interpreter stays.
pub fn is_over() -> bool {
    OVER.get().is_some()
}

/// The exception of a job that is over, or that this process has no part in, for the calling thread to raise.
pub fn over(py: Python<'_>) -> PyErr {
    if this_thread() == MAIN.load(Ordering::Relaxed) {
        MAIN_KNOWS.store(true, Ordering::Relaxed);
    }
    why_over(py)
}

fn why_over(py: Python<'_>) -> PyErr {
    if job::is_child() {
        return job::fork_error(py);
    }
    match OVER.get() {
        Some((class, sentence, node)) => {
            let error = errors::raise(py, class, sentence.clone());
            // An attribute that cannot be set is not worth another exception.
            let _ = error.value(py).setattr("node", *node);
            error
        }
        None => errors::raise(py, "FinishedError", "shared memory was used after comem.finish(); finish last".into()),
    }
}

impl Host for Interpreter {
    fn ends_wait(&self) -> bool {
        let raised = Python::attach(|py| py.check_signals().err().and_then(|error| put_off(py, error)));
        let ends = raised.is_some();
        RAISED.set(raised);
        ends
    }

    fn has_other_threads(&self) -> bool {
        HAS_OTHERS.load(Ordering::Relaxed)
    }

    fn ends_fault(&self) -> bool {
        // No Python code may run here. The exception comes when the signal handler has returned.
        let at = INTERRUPTED_AT.load(Ordering::Relaxed);
        let ends = at > 0 && ENDS_FAULTS_NS.contains(&monotonic_ns().saturating_sub(at));
        INTERRUPTED_FAULT.store(ends, Ordering::Relaxed);
        ends
    }

    fn job_is_over(&self, error: &Error, sentence: &str) {
        let (class, _) = errors::named(error);
        let node = match error {
            Error::NodeLost { node, .. } => Some(node.0),
            _ => None,
        };
        let _ = OVER.set((class, sentence.to_string(), node));
        begin_to_herald();
    }

    fn stale_access(&self) {
        // What interrupted a fault is an exception already.
        if INTERRUPTED_FAULT.swap(false, Ordering::Relaxed) {
            return;
        }
        note_thread();
        if this_thread() != MAIN.load(Ordering::Relaxed) {
            OTHERS_WENT_ON.store(true, Ordering::Relaxed);
        }
        // SAFETY: the function may be called by any thread at any time; the callback needs no argument.
        unsafe { ffi::Py_AddPendingCall(Some(raise_stale), std::ptr::null_mut()) };
        if let Some((_, write)) = HERALD.get() {
            // SAFETY: writes a byte of ours to a pipe that stays open.
            unsafe { libc::write(*write, [0_u8].as_ptr().cast(), 1) };
        }
    }
}

/// The pipe by which the herald hears: its two ends.
static HERALD: OnceLock<(c_int, c_int)> = OnceLock::new();

/// Starts the thread that brings exceptions to others than the main thread, which may be blocked.
pub fn begin_to_herald() {
    HERALD.get_or_init(|| {
        let mut ends = [-1; 2];
        // SAFETY: writes two numbers to memory of ours.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0 {
            // Without the thread, the main thread does its work as soon as it runs.
            let _ = comem::threads::start("comem-herald", move || herald(ends[0]));
        }
        (ends[0], ends[1])
    });
}

/// What ends the herald.
const NO_MORE: [u8; 1] = [1];

/// Nobody is told anything any more, and Ctrl-C is Python's again: another copy of this module takes over.
pub fn part() {
    if let Some((_, write)) = HERALD.get() {
        // SAFETY: writes a byte of ours to a pipe that stays open.
        unsafe { libc::write(*write, NO_MORE.as_ptr().cast(), 1) };
    }
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut there: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: writes to a structure of ours.
    let asked = unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut there) };
    if asked == 0 && there.sa_sigaction == on_interrupt as *const () as usize {
        // SAFETY: what stood there before ours; it is there as long as the interpreter.
        unsafe { libc::sigaction(libc::SIGINT, before, std::ptr::null_mut()) };
    }
}

fn herald(pipe: c_int) {
    let mut byte = [0_u8];
    // SAFETY: reads a byte into memory of ours.
    while unsafe { libc::read(pipe, byte.as_mut_ptr().cast(), 1) } == 1 && byte != NO_MORE {
        // The interpreter may be ending: then nobody is owed anything.
        Python::try_attach(|py| {
            for place in &OWED {
                let thread = place.load(Ordering::Acquire);
                let known = thread != 0 && thread != MAIN.load(Ordering::Relaxed);
                if known && place.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    send(py, thread);
                }
            }
        });
    }
}

/// Sends the exception to another thread.
fn send(py: Python<'_>, thread: usize) {
    let class = why_over(py).get_type(py);
    // SAFETY: the interpreter is attached, and the class lives; an unknown thread is no error.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as c_long, class.as_ptr()) };
}

/// The interpreter's main thread.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// Whether there were other threads when the last collective call began.
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

/// Before a collective call: notes whether the interpreter has other threads, which may go on meanwhile. Those that
/// Comem has started touch no shared memory; what numerical libraries have started does so for the caller alone.
fn note_other_threads(py: Python<'_>) -> PyResult<()> {
    let threads = py.import("threading")?.call_method0("enumerate")?;
    let mut strangers = 0;
    for thread in threads.try_iter()? {
        let name = thread?.getattr("name")?;
        strangers += usize::from(!name.extract::<String>().is_ok_and(|name| OWN_THREADS.contains(&&*name)));
    }
    HAS_OTHERS.store(strangers > 1, Ordering::Relaxed);
    Ok(())
}

/// Threads of the package that only listen.
const OWN_THREADS: [&str; 2] = ["comem-cluster", "comem-orders"];

/// Learns which thread runs pending calls and signal handlers.
pub fn learn_main_thread(py: Python<'_>) -> PyResult<()> {
    let ident = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?.extract::<usize>()?;
    MAIN.store(ident, Ordering::Relaxed);
    Ok(())
}

/// The main thread has had the exception that says that the job is over.
static MAIN_KNOWS: AtomicBool = AtomicBool::new(false);

/// Another thread has gone on with what was here. What it made of that may have reached the main thread before its own
/// exception reached it, so the main thread gets one as well.
static OTHERS_WENT_ON: AtomicBool = AtomicBool::new(false);

/// Threads that are owed an exception.
static OWED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

fn this_thread() -> usize {
    // SAFETY: gives a number, never fails.
    unsafe { libc::pthread_self() as usize }
}

/// Notes the calling thread, without allocating or locking.
fn note_thread() {
    let me = this_thread();
    let take = |place: &AtomicUsize| place.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let _ = OWED.iter().any(take);
}

/// Raises the exception in the main thread, which runs this between two bytecodes, or sends it to the thread it belongs
/// to.
extern "C" fn raise_stale(_: *mut c_void) -> c_int {
    let me = this_thread();
    // SAFETY: such calls come in a thread that runs Python code, also while the interpreter is taken down, when none
    // can be attached any more.
    let py = unsafe { Python::assume_attached() };
    let mut raises = OTHERS_WENT_ON.swap(false, Ordering::Relaxed) && !MAIN_KNOWS.load(Ordering::Relaxed);
    for place in &OWED {
        match place.swap(0, Ordering::AcqRel) {
            0 => {}
            thread if thread == me => raises = true,
            thread => send(py, thread),
        }
    }
    if raises {
        over(py).restore(py);
    }
    if raises { -1 } else { 0 }
}

/// The monotonic clock; may be read within signal handlers.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Notes Ctrl-C, for threads that wait for a page, and hands it on.
extern "C" fn on_interrupt(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    INTERRUPTED_AT.store(monotonic_ns(), Ordering::Relaxed);
    let Some(before) = BEFORE.get() else { return };
    if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
        return;
    }
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: a handler that was installed with this flag takes three arguments.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it takes one.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(before.sa_sigaction) };
        handler(signal);
    }
}

/// Puts our handler of Ctrl-C before Python's, if Python has one; again where Python has put its own there since.
#[pyfunction]
pub fn watch_interrupts() {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: writes to a structure of ours.
    let asked = unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut before) };
    if asked != 0 || [libc::SIG_DFL, libc::SIG_IGN, on_interrupt as *const () as usize].contains(&before.sa_sigaction) {
        return;
    }
    // Another handler than at first is somebody else's, and stays.
    if BEFORE.get_or_init(|| before).sa_sigaction != before.sa_sigaction {
        return;
    }
    let mut ours = before;
    ours.sa_sigaction = on_interrupt as *const () as usize;
    ours.sa_flags |= libc::SA_SIGINFO;
    // SAFETY: the handler touches atomics and calls the one that stood there.
    unsafe { libc::sigaction(libc::SIGINT, &raw const ours, std::ptr::null_mut()) };
}
