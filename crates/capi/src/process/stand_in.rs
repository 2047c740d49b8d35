//! The worker in main's slot, in a job of several nodes. A main that creates as many workers as there are slots does
//! nothing itself, so the
//! last worker gets its place.
//!
//! That worker has a thread of its own, on node 0, and begins when main comes to WAIT_FOR_END (or ends): the two use
//! one place of the
//! node in turn. Until then main may allocate and compute, but not meet others, who might wait for that worker.

use super::{Process, worker};
use crate::failure::{Code, Failure, Outcome, report};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Whose turn it is to use main's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Main's, and there is no such worker.
    Main,
    /// Main's; a worker is to have it when main waits.
    Engaged,
    /// The worker's.
    Worker,
}

static TURN: Mutex<Turn> = Mutex::new(Turn::Main);
static CHANGED: Condvar = Condvar::new();
/// Whether the turn is `Engaged`, for locks and barriers, which ask every time.
static ENGAGED: AtomicBool = AtomicBool::new(false);

/// So long main may go on after CREATE without a word.
const MAIN_SILENT_FOR: Duration = Duration::from_secs(10);

fn turn() -> std::sync::MutexGuard<'static, Turn> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(new: Turn) {
    ENGAGED.store(new == Turn::Engaged, Ordering::Relaxed);
    *turn() = new;
    CHANGED.notify_all();
}

/// Waits until `wanted` says yes to the turn; gives up after `patience`.
fn wait_until(wanted: impl Fn(Turn) -> bool, patience: Duration) -> bool {
    let waited = CHANGED.wait_timeout_while(turn(), patience, |turn| !wanted(*turn));
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

/// Notes that the order to slot 0 is for a worker in main's place, and starts a thread for it.
pub fn engage(process: &'static Process) -> Outcome<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    set(Turn::Engaged);
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    start_thread(process)
}

fn start_thread(process: &'static Process) -> Outcome<()> {
    let builder = std::thread::Builder::new().name("comem-0".to_string()).stack_size(comem_rt::stack_bytes());
    let spawned = builder.spawn(move || serve(process));
    spawned.map(drop).map_err(|e| Failure::new(Code::System, format!("cannot start a thread for main's slot: {e}")))
}

/// The thread of such workers, one after another.
fn serve(process: &'static Process) {
    let mut has_place = false;
    loop {
        wait_until(|turn| turn != Turn::Main, Duration::MAX);
        if !wait_until(|turn| turn == Turn::Worker, MAIN_SILENT_FOR) {
            tell_that_it_waits();
            wait_until(|turn| turn == Turn::Worker, Duration::MAX);
        }
        if !std::mem::replace(&mut has_place, true) {
            // SAFETY: main waits in `work` whenever it is this thread's turn, and only then does this thread use Comem.
            unsafe { process.job.inherit_place(0) };
        }
        let order = process.control.order(0);
        worker::carry_out(0, &order);
        end_work(process, order.serial);
    }
}

fn tell_that_it_waits() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        let name = crate::job::name();
        comem_rt::error::say(format_args!(
            "comem: {name}: the last worker has main's slot and begins when main comes to WAIT_FOR_END, which it has \
             not in 10 s; if main is to work meanwhile, start the job with one thread more (-t)"
        ));
    });
}

/// The worker has ended: main goes on.
fn end_work(process: &Process, serial: u64) {
    if let Err(failure) = worker::done_with(process, 0, serial) {
        report(&failure);
    }
    set(Turn::Main);
}

/// A worker in main's place has called exit(0): what it has on its stack stays there, and another thread does the
/// next one's work.
pub fn leave(process: &'static Process, serial: u64) {
    end_work(process, serial);
    if let Err(failure) = start_thread(process) {
        report(&failure);
    }
}

/// Main waits: if there is a worker for its place, it works now, to its end.
pub fn work() {
    if is_engaged() {
        set(Turn::Worker);
        wait_until(|turn| turn == Turn::Main, Duration::MAX);
    }
}

/// Whether main has a worker for its place that has not begun: nobody may wait for both.
#[inline]
pub fn is_engaged() -> bool {
    ENGAGED.load(Ordering::Relaxed)
}
