//! Barriers, locks, pauses, counters and memory, as the macros of PARMACS want them.

use super::{check_main_may_meet, creator, described};
use crate::failure::{Code, Failure, Outcome, done, reported};
use crate::heap::site;
use crate::job::{self, has_finished};
use comem_rt::heap::RegionOptions;
use comem_rt::{Comem, ConditionId, LockId, NodeId, SemaphoreId, SubsetBarrierId, Thread};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The job. Without one a program lacks what would have begun it: a macro, and not the call that C programs lack.
#[inline]
fn job() -> Outcome<&'static Comem> {
    if job::started().is_none() {
        described()?;
    }
    job::job()
}

/// The calling thread's seat in it.
#[inline]
fn thread() -> Outcome<Rc<Thread>> {
    job()?;
    job::thread()
}

/// The same for a macro that may wait for what others do.
#[inline]
fn meets(macro_name: &str) -> Outcome<Rc<Thread>> {
    check_main_may_meet(macro_name)?;
    thread()
}

/// BARRIER.
#[unsafe(no_mangle)]
pub extern "C" fn comem_barrier_of(name: u64, threads: c_uint) {
    done(|| {
        // What a program has counted below zero comes as a number that no job has threads for.
        let counted = c_int::try_from(threads).map_err(|_| {
            let threads = threads.cast_signed();
            Failure::new(
                Code::Argument,
                format!("a barrier of {threads} threads makes no sense; say how many meet there"),
            )
        })?;
        Ok(meets("BARRIER")?.checked_subset_barrier(SubsetBarrierId(name), counted as usize)?)
    });
}

/// LOCK.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_lock(name: u64) {
    done(|| Ok(meets("LOCK")?.raw_lock(LockId(name))?));
}

/// UNLOCK.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_unlock(name: u64) {
    done(|| Ok(thread()?.raw_unlock(LockId(name))?));
}

/// LAZY_LOCK.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_lock_lazy(name: u64) {
    done(|| Ok(meets("LAZY_LOCK")?.raw_lock_lazily(LockId(name))?));
}

/// RC_UNLOCK.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_unlock_rc(name: u64) {
    done(|| Ok(thread()?.raw_unlock_widely(LockId(name))?));
}

/// Some pause was set by this process: until then, and until there are workers, there is none to forget.
static PAUSE_WAS_SET: AtomicBool = AtomicBool::new(false);

/// PAUSEINIT. Programs initialise thousands of them before there are workers, which asks nobody.
#[unsafe(no_mangle)]
pub extern "C" fn comem_pause_init(name: u64) {
    done(|| {
        if creator::nobody_was_created(described()?) && !PAUSE_WAS_SET.load(Ordering::Relaxed) {
            return Ok(());
        }
        Ok(thread()?.sem_reset(SemaphoreId(name))?)
    });
}

/// SETPAUSE. Whoever hears by a barrier or a lock that the pause was set finds it set.
#[unsafe(no_mangle)]
pub extern "C" fn comem_pause_set(name: u64) {
    done(|| {
        PAUSE_WAS_SET.store(true, Ordering::Relaxed);
        Ok(thread()?.sem_give(SemaphoreId(name))?)
    });
}

/// WAITPAUSE.
#[unsafe(no_mangle)]
pub extern "C" fn comem_pause_wait(name: u64) {
    done(|| Ok(meets("WAITPAUSE")?.sem_pass(SemaphoreId(name))?));
}

/// CLEARPAUSE.
#[unsafe(no_mangle)]
pub extern "C" fn comem_pause_clear(name: u64) {
    done(|| {
        thread()?.checked_try_sem_wait(SemaphoreId(name))?;
        Ok(())
    });
}

/// PAUSE and EVENT.
#[unsafe(no_mangle)]
pub extern "C" fn comem_pause_take(name: u64) {
    done(|| Ok(meets("PAUSE")?.checked_sem_wait(SemaphoreId(name))?));
}

/// CONDVARWAIT.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_cond_wait(condition: u64, lock: u64) {
    done(|| Ok(meets("CONDVARWAIT")?.raw_cond_wait(ConditionId(condition), LockId(lock))?));
}

/// CONDVARSIGNAL.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_cond_signal(condition: u64) {
    done(|| {
        thread()?.cond_notify_one(ConditionId(condition));
        Ok(())
    });
}

/// CONDVARBCAST.
#[unsafe(no_mangle)]
pub extern "C" fn comem_parmacs_cond_broadcast(condition: u64) {
    done(|| {
        thread()?.cond_notify_all(ConditionId(condition));
        Ok(())
    });
}

/// A counter in shared memory, for GETSUB: `struct comem_counter`.
#[repr(C)]
pub struct Counter {
    next: c_long,
    exhausted: c_long,
}

/// Every node would deal out all subscripts from a counter of its own.
fn is_everybodys(counter: *const Counter) -> Outcome<()> {
    let job = job()?;
    if job.nodes() == 1 || job.is_shared(counter.cast()) {
        return Ok(());
    }
    let what = format!(
        "GETSUB was given a counter at {counter:?}, which each node has for itself; let GSDEC stand in memory of \
         G_MALLOC, or run with --globals share if it is a global variable"
    );
    Err(Failure::new(Code::Argument, what))
}

/// GETSUB.
///
/// # Safety
/// `counter` points to a counter in shared memory that only this function uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_getsub(counter: *mut Counter, max: c_long, threads: c_uint) -> c_long {
    let hand_out = || -> Outcome<c_long> {
        if counter.is_null() {
            return Err(Failure::new(
                Code::Argument,
                "GETSUB was given no counter; declare it with GSDEC in shared memory",
            ));
        }
        is_everybodys(counter)?;
        let (thread, name) = (meets("GETSUB")?, counter.addr() as u64);
        let lock = LockId(name);
        thread.raw_lock(lock)?;
        // SAFETY: by this function's contract; the lock orders all accesses.
        let (next, exhausted) = unsafe { (&mut (*counter).next, &mut (*counter).exhausted) };
        if *next <= max {
            *next += 1;
            let mine = *next - 1;
            thread.raw_unlock(lock)?;
            return Ok(mine);
        }
        *exhausted += 1;
        if *exhausted >= c_long::from(threads) {
            (*next, *exhausted) = (0, 0);
        }
        thread.raw_unlock(lock)?;
        thread.checked_subset_barrier(SubsetBarrierId(name), threads as usize)?;
        Ok(-1)
    };
    reported(hand_out, |_| -1)
}

fn piece(bytes: usize, home: Option<NodeId>) -> *mut c_void {
    reported(|| Ok(job()?.alloc_piece_at(bytes, home, &site())?.cast()), |_| std::ptr::null_mut())
}

/// G_MALLOC.
#[unsafe(no_mangle)]
pub extern "C" fn comem_g_malloc(bytes: usize) -> *mut c_void {
    piece(bytes, None)
}

/// G_MALLOC_ALL: the calls of all nodes, each by one thread, give the same memory.
#[unsafe(no_mangle)]
pub extern "C" fn comem_g_malloc_all(bytes: usize) -> *mut c_void {
    let allocate = || -> Outcome<*mut c_void> {
        meets("G_MALLOC_ALL")?;
        Ok(job()?.alloc_all_at(bytes, &RegionOptions::default(), &site())?.cast())
    };
    reported(allocate, |_| std::ptr::null_mut())
}

/// NU_MALLOC.
#[unsafe(no_mangle)]
pub extern "C" fn comem_nu_malloc(bytes: usize, node: c_int) -> *mut c_void {
    let nodes = described().map_or(1, |process| process.job.nodes());
    piece(bytes, Some(NodeId(node.rem_euclid(nodes as c_int) as u16)))
}

/// G_FREE. Destructors of global objects come after the job's end: then there is nothing to give back.
#[unsafe(no_mangle)]
pub extern "C" fn comem_g_free(pointer: *mut c_void) {
    done(|| if pointer.is_null() || has_finished() { Ok(()) } else { Ok(job()?.free(pointer.cast())?) });
}

/// CLOCK: microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn comem_clock_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
