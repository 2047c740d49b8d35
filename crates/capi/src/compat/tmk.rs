//! TreadMarks' interface (C. Amza and others, "TreadMarks: Shared Memory Computing on Networks of Workstations", IEEE Computer
//! 29(2), 1996, section 2), with `Tmk_distribute`, `Tmk_errexit` and condition variables as its programs call them.
//!
//! `Tmk_distribute` copies a variable of one process to the others. What is distributed leaves with the process's next release,
//! which waits until all have it; they store it at their next acquire. So whoever synchronises with the distributor
//! finds the value, as it would find what was written to shared memory.

use super::image::Image;
use super::letters::{Letter, Letters};
use super::{argument, begin};
use crate::failure::{Outcome, done, reported};
use crate::job::{comem_finish, job, thread};
use comem_rt::heap::RegionOptions;
use comem_rt::{ConditionId, LockId};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

#[derive(Debug, Default)]
struct Variables {
    image: Image,
    letters: Letters,
    /// What was distributed since the last release: name, length, bytes, and so on.
    news: Vec<u8>,
    /// The variables that say who is who, which are each process's own, with their values.
    own: Vec<(usize, c_uint)>,
}

thread_local! {
    static VARIABLES: RefCell<Variables> = RefCell::default();
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
        let own = [(proc_id, job()?.node()), (nprocs, job()?.nodes())];
        VARIABLES.with_borrow_mut(|variables| {
            variables.image = Image::of_program();
            variables.own = own.map(|(variable, value)| (variable.expose_provenance(), value as c_uint)).to_vec();
            keep(&variables.own);
        });
        Ok(())
    });
}

/// Leaves the job, when all have come as far, and ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_exit(status: c_int) -> ! {
    done(release);
    comem_finish();
    // SAFETY: ends the process as `main` would; by now nobody else needs it.
    unsafe { libc::exit(status) }
}

/// Before a release: sends what was distributed, and waits until it has arrived.
fn release() -> Outcome<()> {
    VARIABLES.with_borrow_mut(|variables| {
        if variables.news.is_empty() {
            return Ok(());
        }
        let news = std::mem::take(&mut variables.news);
        let me = job()?.node();
        for to in (0..job()?.nodes()).filter(|node| *node != me) {
            variables.letters.send(to, 0, 0, &news)?;
        }
        Ok(thread()?.flush_posts()?)
    })
}

/// After an acquire: stores what was distributed.
fn acquire() -> Outcome<()> {
    VARIABLES.with_borrow_mut(|variables| {
        while let Some(Letter { bytes, .. }) = variables.letters.poll(|_| true)? {
            store(&variables.image, &bytes);
            keep(&variables.own);
        }
        Ok(())
    })
}

/// Stores what another node's `Tmk_distribute` named.
fn store(image: &Image, mut news: &[u8]) {
    while let Some((head, rest)) = news.split_first_chunk::<16>() {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| head[at + i])) as usize;
        let (address, length) = (image.address(word(0)), word(8).min(rest.len()));
        let (bytes, next) = rest.split_at(length);
        news = next;
        if image.variable(address, length).is_some() {
            // SAFETY: the program's own variable, which the program gave up to be overwritten when it called an acquire.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, length) };
        }
    }
}

/// Stores who is who, again: programs distribute more than their variable, and these may stand behind it.
fn keep(own: &[(usize, c_uint)]) {
    for (variable, value) in own {
        // SAFETY: `comem_tmk_startup_` was given variables that stay, and the one thread that uses them is here.
        unsafe { std::ptr::with_exposed_provenance_mut::<c_uint>(*variable).write(*value) };
    }
}

/// Copies a variable's value to all other processes.
///
/// # Safety
/// `pointer` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Tmk_distribute(pointer: *const c_void, size: c_int) {
    done(|| {
        VARIABLES.with_borrow_mut(|variables| {
            let size =
                usize::try_from(size).map_err(|_| argument(format!("a variable of {size} bytes makes no sense")))?;
            let name = variables.image.variable(pointer.addr(), size).ok_or_else(|| {
                argument(format!(
                    "Tmk_distribute() of {size} bytes at {pointer:?}, which are not all in a variable of the program; \
                     distribute a variable that is global or static, and put the rest into memory from Tmk_malloc()"
                ))
            })?;
            variables.news.extend((name as u64).to_be_bytes());
            variables.news.extend((size as u64).to_be_bytes());
            // SAFETY: by this function's contract, and within the program as was checked.
            variables.news.extend(unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) });
            Ok(())
        })
    });
}

/// Waits for all processes, whatever the barrier's number.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_barrier(_barrier: c_uint) {
    done(|| {
        release()?;
        thread()?.try_barrier()?;
        acquire()
    });
}

/// Acquires a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_acquire(lock: c_uint) {
    done(|| {
        thread()?.try_lock_blocking(LockId(u64::from(lock)))?;
        acquire()
    });
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_release(lock: c_uint) {
    done(|| {
        release()?;
        Ok(thread()?.try_unlock(LockId(u64::from(lock)))?)
    });
}

/// Condition variables are named by a lock and a number.
fn condition(lock: c_uint, condition: c_uint) -> ConditionId {
    ConditionId(u64::from(lock) << 32 | u64::from(condition))
}

/// Waits for a signal, letting the lock go meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_wait(lock: c_uint, cond: c_uint) {
    done(|| {
        release()?;
        thread()?.try_cond_wait(condition(lock, cond), LockId(u64::from(lock)))?;
        acquire()
    });
}

/// Wakes the process that has waited longest.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_signal(lock: c_uint, cond: c_uint) {
    done(|| {
        thread()?.cond_signal(condition(lock, cond));
        Ok(())
    });
}

/// Wakes all processes that wait.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_broadcast(lock: c_uint, cond: c_uint) {
    done(|| {
        thread()?.cond_broadcast(condition(lock, cond));
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
