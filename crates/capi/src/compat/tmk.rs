//! TreadMarks' interface (C. Amza and others, "TreadMarks: Shared Memory Computing on Networks of Workstations", IEEE
//! Computer 29(2), 1996, section 2), with `Tmk_distribute`, `Tmk_errexit` and condition variables as its programs call
//! them.
//!
//! `Tmk_distribute` copies a variable of one process to the others. A thread of each process stores what comes at
//! once, whatever the
//! program does meanwhile, and interrupts it by SIGIO, as TreadMarks' messages did: programs look at a variable again
//! and again, or
//! wait in `sigpause`. `Tmk_distribute` returns when all processes have got the value, and an acquire stores what has
//! come. So whoever
//! synchronises with the distributor finds the value, as it would find what was written to shared memory.

use super::load_address::LoadAddress;
use super::tagged_messages::{TaggedMessage, TaggedMessages};
use super::{argument, begin};
use crate::failure::{Code, Failure, Outcome, done, report, reported};
use crate::job::{comem_finish, job, thread};
use comem_rt::heap::RegionOptions;
use comem_rt::{Comem, ConditionId, LockId, NodeId};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What a process knows of variables that are distributed.
#[derive(Debug, Default)]
struct Variables {
    image: LoadAddress,
    letters: TaggedMessages,
    /// The variables that say who is who, which are each process's own.
    own: Vec<Range<usize>>,
}

static VARIABLES: OnceLock<Mutex<Variables>> = OnceLock::new();

/// Locked by the program's thread, and by the one that stores what comes.
fn variables() -> MutexGuard<'static, Variables> {
    VARIABLES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// `Tmk_startup`: joins the job, and says who is who.
///
/// # Safety
/// Called by `main`, before there are other threads; both point to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_tmk_startup_(proc_id: *mut c_uint, nprocs: *mut c_uint) {
    done(|| {
        // SAFETY: by this function's contract.
        unsafe { begin("TreadMarks", "hlrc") }?;
        let job = job()?;
        // SAFETY: by this function's contract.
        unsafe {
            proc_id.write(job.node() as c_uint);
            nprocs.write(job.nodes() as c_uint);
        }
        let own = |variable: *mut c_uint| variable.addr()..variable.addr() + size_of::<c_uint>();
        {
            let mut variables = variables();
            variables.image = LoadAddress::of_program();
            variables.own = vec![own(proc_id), own(nprocs)];
        }
        if job.nodes() > 1 { store_what_comes(job) } else { Ok(()) }
    });
}

/// Leaves the job, when all have come as far, and ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_exit(status: c_int) -> ! {
    comem_finish();
    // SAFETY: ends the process as `main` would; by now nobody else needs it.
    unsafe { libc::exit(status) }
}

/// After an acquire: stores what was distributed and has come.
fn acquire() -> Outcome<()> {
    let thread = thread()?;
    store_all(|| thread.try_receive())?;
    LOOKED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Stores what the letters that `next` gives say; gives how many there were.
fn store_all(mut next: impl FnMut() -> Option<(NodeId, Vec<u8>)>) -> Outcome<usize> {
    let mut variables = variables();
    let mut count = 0;
    while let Some(TaggedMessage { bytes, .. }) = variables.letters.poll_from(&mut next, |_| true)? {
        store(&variables, &bytes);
        count += 1;
    }
    Ok(count)
}

/// Stores what another node's `Tmk_distribute` named: the variable's name, and its bytes. Programs distribute more
/// than their variable, and the
/// variables that say who is who may stand behind it: these stay.
fn store(variables: &Variables, news: &[u8]) {
    let Some((name, bytes)) = news.split_first_chunk::<8>() else { return };
    let address = variables.image.address(u64::from_be_bytes(*name) as usize);
    if variables.image.variable(address, bytes.len()).is_none() {
        return;
    }
    let mut from = address;
    let end = address + bytes.len();
    let mut own: Vec<_> = variables.own.iter().filter(|own| own.start < end && address < own.end).collect();
    own.sort_unstable_by_key(|own| own.start);
    for own in own {
        // SAFETY: the program's own variables, of which it expects that they change.
        unsafe { copy(&bytes[from - address..own.start.max(from) - address], from) };
        from = own.end.min(end);
    }
    // SAFETY: as above.
    unsafe { copy(&bytes[from - address..], from) };
}

/// Copies bytes to where the program may be looking: words that are aligned change at once.
///
/// # Safety
/// There is room for the bytes at `to`, which nobody refers to in Rust.
unsafe fn copy(bytes: &[u8], to: usize) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
    let (mut at, end) = (0, bytes.len());
    while at < end {
        // SAFETY: within the bytes and their room, by this function's contract; the words are aligned.
        unsafe {
            if to.add(at).addr().is_multiple_of(8) && end - at >= 8 {
                to.add(at).cast::<u64>().write_volatile(bytes.as_ptr().add(at).cast::<u64>().read_unaligned());
                at += 8;
            } else if to.add(at).addr().is_multiple_of(4) && end - at >= 4 {
                to.add(at).cast::<u32>().write_volatile(bytes.as_ptr().add(at).cast::<u32>().read_unaligned());
                at += 4;
            } else {
                to.add(at).write_volatile(bytes[at]);
                at += 1;
            }
        }
    }
}

/// Counts messages that have come, for the thread that stores them.
static BELL: AtomicI32 = AtomicI32::new(-1);

/// The program has called since a variable was stored last, and will look at it.
static LOOKED: AtomicBool = AtomicBool::new(true);

/// How often, and after how long, a program is interrupted again: the first signal may come between its look at a
/// variable and its
/// `sigpause`. Each wait is twice as long as the one before.
const REMINDERS: u32 = 12;
const FIRST_REMINDER_MS: c_int = 4;

/// A message has come.
fn ring() {
    let one = 1_u64;
    // SAFETY: an event counter takes eight bytes; the call is safe in signal handlers.
    unsafe { libc::write(BELL.load(Ordering::Relaxed), (&raw const one).cast(), size_of::<u64>()) };
}

/// Starts the thread that stores what is distributed, and interrupts this one by SIGIO.
fn store_what_comes(job: &'static Comem) -> Outcome<()> {
    let failed = |what: &str| {
        Failure::new(Code::System, format!("cannot {what} for Tmk_distribute: {}", std::io::Error::last_os_error()))
    };
    // SAFETY: makes a new descriptor.
    let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if bell < 0 {
        return Err(failed("make an event counter"));
    }
    BELL.store(bell, Ordering::Relaxed);
    interrupt_quietly();
    // SAFETY: names this thread.
    let program = unsafe { libc::pthread_self() };
    comem_rt::threads::start("comem-variables", move || serve(job, bell, program))
        .map_err(|_| failed("start a thread"))?;
    job.tell_of_messages(ring);
    ring();
    Ok(())
}

/// The thread that stores what is distributed.
fn serve(job: &Comem, bell: c_int, program: libc::pthread_t) {
    let mut reminders = 0;
    loop {
        let patience = if reminders == 0 { -1 } else { FIRST_REMINDER_MS << (REMINDERS - reminders) };
        let mut waits = libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 };
        let mut count = 0_u64;
        // SAFETY: one descriptor, which is this thread's to read; a counter is eight bytes.
        let rung = unsafe {
            libc::poll(&raw mut waits, 1, patience) > 0
                && libc::read(bell, (&raw mut count).cast(), size_of::<u64>()) > 0
        };
        match store_all(|| job.take_message(0)) {
            Ok(0) if rung || reminders == 0 => continue,
            Ok(0) if LOOKED.load(Ordering::Relaxed) => {
                reminders = 0;
                continue;
            }
            Ok(0) => reminders -= 1,
            Ok(_) => {
                LOOKED.store(false, Ordering::Relaxed);
                reminders = REMINDERS;
            }
            Err(failure) => {
                report(&failure);
                return;
            }
        }
        // SAFETY: the program's thread ends with the process.
        unsafe { libc::pthread_kill(program, libc::SIGIO) };
    }
}

/// Where the program has no handler for SIGIO, it gets one that does nothing: the signal would end it.
fn interrupt_quietly() {
    extern "C" fn nothing(_signal: c_int) {}
    // SAFETY: reads the action, and sets one whose handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGIO, std::ptr::null(), &raw mut action);
        if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGIO, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Copies a variable's value to all other processes.
///
/// # Safety
/// `pointer` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Tmk_distribute(pointer: *const c_void, size: c_int) {
    done(|| {
        let size = usize::try_from(size).map_err(|_| argument(format!("a variable of {size} bytes makes no sense")))?;
        {
            let mut variables = variables();
            let name = variables.image.variable(pointer.addr(), size).ok_or_else(|| {
                argument(format!(
                    "Tmk_distribute() of {size} bytes at {pointer:?}, which are not all in a variable of the program; \
                     distribute a variable that is global or static, and put the rest into memory from Tmk_malloc()"
                ))
            })?;
            let mut news = (name as u64).to_be_bytes().to_vec();
            // SAFETY: by this function's contract, and within the program as was checked.
            news.extend(unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) });
            let me = job()?.node();
            for to in (0..job()?.nodes()).filter(|node| *node != me) {
                variables.letters.send(to, 0, 0, &news)?;
            }
        }
        thread()?.flush_posts()?;
        // Meanwhile messages to this thread may have been set aside.
        acquire()
    });
}

/// Waits for all processes, whatever the barrier's number.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_barrier(_barrier: c_uint) {
    done(|| {
        thread()?.checked_barrier()?;
        acquire()
    });
}

/// Acquires a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_acquire(lock: c_uint) {
    done(|| {
        thread()?.raw_lock(LockId(u64::from(lock)))?;
        acquire()
    });
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_release(lock: c_uint) {
    done(|| Ok(thread()?.raw_unlock(LockId(u64::from(lock)))?));
}

/// Condition variables are named by a lock and a number.
fn condition(lock: c_uint, condition: c_uint) -> ConditionId {
    ConditionId(u64::from(lock) << 32 | u64::from(condition))
}

/// Waits for a signal, letting the lock go meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_wait(lock: c_uint, cond: c_uint) {
    done(|| {
        thread()?.raw_cond_wait(condition(lock, cond), LockId(u64::from(lock)))?;
        acquire()
    });
}

/// Wakes the process that has waited longest.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_signal(lock: c_uint, cond: c_uint) {
    done(|| {
        thread()?.cond_notify_one(condition(lock, cond));
        Ok(())
    });
}

/// Wakes all processes that wait.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_broadcast(lock: c_uint, cond: c_uint) {
    done(|| {
        thread()?.cond_notify_all(condition(lock, cond));
        Ok(())
    });
}

fn allocate(bytes: usize, alignment: usize) -> *mut c_void {
    let options = RegionOptions { alignment, ..RegionOptions::default() };
    reported(|| Ok(job()?.alloc_at(bytes, &options, "Tmk_malloc")?.cast()), |_| std::ptr::null_mut())
}

/// Allocates shared memory; any process may, and distributes the pointer.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_malloc(size: usize) -> *mut c_void {
    allocate(size, 64)
}

/// The same, in pages of its own.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_sbrk(size: usize) -> *mut c_void {
    allocate(size, 4096)
}

/// Gives shared memory back, from any process.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_free(pointer: *mut c_void) {
    crate::heap::comem_free(pointer);
}
