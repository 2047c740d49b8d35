//! The process model of PARMACS: what `include/compat/comem_parmacs.h` declares.
//!
//! Node 0 runs `main`. The other nodes start the program too, but a constructor keeps them from `main`: their threads
//! wait for work, run the functions that CREATE names, and end when node 0 does. Everything is told through what
//! programs have as well: orders stand in shared memory, and semaphores of reserved names say that one is there, so
//! CREATE is a release and the start of a worker an acquire, and the other way round at the end.
//!
//! | module | what |
//! |---|---|
//! | [`constructors`] | the program's other constructors, on the nodes that are kept from `main` |
//! | [`control`] | the shared memory in which orders stand |
//! | [`creator`] | node 0's side: CREATE and WAIT_FOR_END |
//! | [`stand_in`] | the worker that has main's slot, where main only creates |
//! | [`worker`] | the other side: waiting, working, ending |
//! | [`globals`] | the program's variables as they stood at CREATE |
//! | [`merge`] | what `main` has changed in them since, for a node with workers at work |
//! | [`pointers`] | `--check-pointers`: variables that point to what other nodes do not have |
//! | [`libraries`] | whether every node has the same libraries at the same addresses |
//! | [`exit`] | what happens when some thread of some node calls `exit` |
//! | [`sync`] | barriers, locks, pauses, counters and memory, as the macros want them |
//! | [`user_main`] | programs for Brazos, all of whose threads run one function |

mod constructors;
mod control;
mod creator;
mod exit;
mod globals;
mod libraries;
mod merge;
mod pointers;
mod stand_in;
mod sync;
mod user_main;
mod worker;

use crate::failure::{Code, Failure, Outcome, done, reported};
use crate::job;
use comem_rt::Comem;
use control::Control;
use creator::Creator;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What CREATE starts. A function without parameters does not look at the argument.
type Work = unsafe extern "C-unwind" fn(*mut c_void);

/// What CREATE was given: a function, and what to call it with.
#[derive(Clone, Copy)]
struct Given {
    function: Work,
    argument: usize,
}

/// Numbers of the reserved semaphores.
mod semaphore {
    use comem_rt::SemaphoreId;

    /// Posted by each worker that has ended.
    pub fn end() -> SemaphoreId {
        SemaphoreId::reserved(0)
    }

    /// Posted by each node that has described itself.
    pub fn ready() -> SemaphoreId {
        SemaphoreId::reserved(1)
    }

    /// Posted when there is an order for the slot.
    pub fn order(slot: usize) -> SemaphoreId {
        SemaphoreId::reserved(0x1_0000 + slot as u32)
    }
}

/// The process model of this process.
struct Process {
    job: &'static Comem,
    control: Control,
    globals: globals::Variables,
    creator: Mutex<Creator>,
    /// The version of the program's globals that this node has.
    version: Mutex<globals::Version>,
    /// The libraries with which this process began; what `main` loads later is its own.
    libraries: String,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

fn process() -> Outcome<&'static Process> {
    let process = described()?;
    job::job()?;
    Ok(process)
}

/// The same for what is known when the job is left, and in a child made by `fork`.
fn described() -> Outcome<&'static Process> {
    let what =
        "a PARMACS macro was used in a program that did not start as one; put MAIN_ENV into the file with main()";
    PROCESS.get().ok_or_else(|| Failure::new(Code::NotStarted, what))
}

/// Main must not meet others while its own slot has a worker that has not begun: they may wait for that one.
pub fn check_main_may_meet(macro_name: &str) -> Outcome<()> {
    if !stand_in::is_engaged() || worker::in_work().is_some() {
        return Ok(());
    }
    let what = format!(
        "{macro_name} was used by main while a worker has main's slot, which begins when main comes to WAIT_FOR_END; \
         main works as well here, so start the job with one thread more (-t), or with more nodes"
    );
    Err(Failure::new(Code::Misuse, what))
}

/// Whether this is `main`, on node 0, and has created no worker yet: what it sets up in its globals reaches all of
/// them.
pub fn is_before_workers() -> bool {
    described().is_ok_and(creator::nobody_was_created)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// How many threads may work at once, main's included.
    fn slots(&self) -> usize {
        if self.job.nodes() == 1 { self.job.places() } else { self.job.threads() }
    }

    fn node_of(&self, slot: usize) -> usize {
        if self.job.nodes() == 1 { 0 } else { slot / self.job.threads_per_node() }
    }

    /// The place of a slot among the threads of its node.
    fn place_of(&self, slot: usize) -> usize {
        if self.job.nodes() == 1 { slot } else { slot % self.job.threads_per_node() }
    }
}

/// Joins the job, and on every node but the first works for it and exits.
fn start(globals: globals::Variables, other_constructors: impl FnOnce()) -> Outcome<()> {
    let job = job::start_for_workers()?;
    if job.node() != 0 {
        // Before variables are shared: what is made here is this node's own, and gives way to node 0's.
        other_constructors();
    }
    let slots = if job.nodes() == 1 { job.places() } else { job.threads() };
    globals.share_if_wanted(job)?;
    let process = Process {
        job,
        control: Control::new(job, slots)?,
        globals,
        creator: Mutex::new(Creator::new(slots)),
        version: Mutex::default(),
        libraries: libraries::description(),
    };
    let process = PROCESS.get_or_init(|| process);
    exit::watch();
    worker::start_threads(process)?;
    if job.node() == 0 {
        pointers::note_libraries();
        return Ok(());
    }
    process.control.describe(job, job.node(), &process.libraries)?;
    job::thread()?.sem_post(semaphore::ready());
    worker::serve_node(process)
}

/// Joins the job before `main`; returns on node 0 alone.
///
/// # Safety
/// `argc`, `argv` and `envp` are what the calling constructor got; `globals` and `globals_end` are null or enclose
/// whole pages of the program's own variables; `constructor` is the caller or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_process_start_(
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
    globals: *mut c_void,
    globals_end: *mut c_void,
    constructor: Option<constructors::Constructor>,
) {
    // Each file with MAIN_ENV calls; the first call counts.
    static BEGAN: AtomicBool = AtomicBool::new(false);
    if BEGAN.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: by this function's contract.
    unsafe { libraries::fix_addresses(argv) };
    user_main::note_arguments(argc, argv);
    // SAFETY: by this function's contract.
    let variables = unsafe { globals::Variables::new(globals.addr()..globals_end.addr()) };
    let others = || {
        if let Some(own) = constructor {
            // SAFETY: by this function's contract.
            unsafe { constructors::call_those_behind(own, constructors::Arguments { argc, argv, envp }) };
        }
    };
    done(|| start(variables, others));
}

/// CREATE(f).
#[unsafe(no_mangle)]
pub extern "C" fn comem_create_worker(function: Option<Work>) {
    done(|| creator::create(process()?, given(function, 0)?, true));
}

/// CREATE_WITH_ARG(f, argument).
#[unsafe(no_mangle)]
pub extern "C" fn comem_create_worker_with(function: Option<Work>, argument: *mut c_void) {
    done(|| creator::create(process()?, given(function, argument.expose_provenance())?, true));
}

/// CREATE(f, n).
#[unsafe(no_mangle)]
pub extern "C" fn comem_create_workers(function: Option<Work>, n: c_int) {
    done(|| {
        let (process, given) = (process()?, given(function, 0)?);
        if n < 1 {
            let what = format!("CREATE was asked for {n} workers; one is the least");
            return Err(Failure::new(Code::Argument, what));
        }
        (1..n).try_for_each(|_| creator::create(process, given, false))
    });
    if let Some(function) = function {
        // SAFETY: the program gave this function to be called.
        unsafe { function(std::ptr::null_mut()) };
    }
}

fn given(function: Option<Work>, argument: usize) -> Outcome<Given> {
    let none = || Failure::new(Code::Argument, "CREATE was given no function; pass one");
    Ok(Given { function: function.ok_or_else(none)?, argument })
}

/// WAIT_FOR_END(n).
#[unsafe(no_mangle)]
pub extern "C" fn comem_wait_workers(n: c_int) {
    done(|| creator::wait(process()?, n));
}

/// MAIN_END.
#[unsafe(no_mangle)]
pub extern "C" fn comem_process_end_(status: c_int) -> ! {
    exit::exit(status)
}

/// exit, as `comem-cc` has the linker name it in programs.
#[unsafe(no_mangle)]
pub extern "C" fn __wrap_exit(status: c_int) -> ! {
    exit::exit(status)
}

/// The same for programs that are linked otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn comem_exit_(status: c_int) -> ! {
    exit::exit(status)
}

fn number(of: impl FnOnce() -> Outcome<usize>) -> c_int {
    reported(|| of().map(|n| n as c_int), |code| code)
}

/// The calling worker's slot.
#[unsafe(no_mangle)]
pub extern "C" fn comem_worker_slot() -> c_int {
    number(|| described().and_then(|_| job::thread_number()))
}

/// GET_PID: the calling worker's number, in the order in which they ask.
#[unsafe(no_mangle)]
pub extern "C" fn comem_worker_number() -> c_int {
    number(|| Ok(worker::number(process()?)? as usize))
}

/// How many slots there are.
#[unsafe(no_mangle)]
pub extern "C" fn comem_worker_slots() -> c_int {
    number(|| Ok(described()?.slots()))
}

/// The node of a slot.
#[unsafe(no_mangle)]
pub extern "C" fn comem_slot_node(slot: c_int) -> c_int {
    number(|| {
        let process = described()?;
        let slot = usize::try_from(slot).ok().filter(|slot| *slot < process.slots());
        slot.map(|slot| process.node_of(slot)).ok_or_else(|| Failure::new(Code::Argument, "there is no such slot"))
    })
}
