//! Barrier, locks, flags and reductions.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, done, reported};
use crate::job::thread;
use comem_rt::{FlagId, LockId, Operator};
use std::ffi::c_int;

/// Waits for every thread.
#[unsafe(no_mangle)]
pub extern "C" fn comem_barrier() -> c_int {
    done(|| Ok(thread()?.checked_barrier()?))
}

/// Acquires a lock.
#[unsafe(no_mangle)]
pub extern "C" fn comem_lock(lock: u64) -> c_int {
    done(|| Ok(thread()?.raw_lock(LockId(lock))?))
}

/// Acquires a lock, if no thread must be waited for; 1 if it did.
#[unsafe(no_mangle)]
pub extern "C" fn comem_trylock(lock: u64) -> c_int {
    reported(|| Ok(c_int::from(thread()?.raw_try_lock(LockId(lock))?)), |code| code)
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub extern "C" fn comem_unlock(lock: u64) -> c_int {
    done(|| Ok(thread()?.raw_unlock(LockId(lock))?))
}

/// Raises a flag.
#[unsafe(no_mangle)]
pub extern "C" fn comem_flag_set(flag: u64, value: u64) -> c_int {
    done(|| {
        thread()?.flag_set(FlagId(flag), value);
        Ok(())
    })
}

/// Waits for a flag.
#[unsafe(no_mangle)]
pub extern "C" fn comem_flag_wait(flag: u64, value: u64) -> c_int {
    done(|| {
        thread()?.flag_wait(FlagId(flag), value);
        Ok(())
    })
}

fn operator(operation: c_int) -> Outcome<Operator> {
    match operation {
        0 => Ok(Operator::Sum),
        1 => Ok(Operator::Min),
        2 => Ok(Operator::Max),
        _ => Err(Failure::new(Code::Argument, format!("there is no reduction {operation}; use COMEM_SUM, MIN or MAX"))),
    }
}

/// The program's numbers as a slice.
///
/// # Safety
/// `values` points to `count` numbers that nobody else uses meanwhile, or is null.
unsafe fn with_numbers<T: Copy + Default>(
    values: *mut T,
    count: usize,
    change: impl FnOnce(&mut [T]) -> comem_rt::Result<()>,
) -> Outcome<()> {
    if values.is_null() && count > 0 {
        return Err(Failure::new(Code::Argument, "a reduction was given no numbers; pass a pointer to them"));
    }
    // SAFETY: by the contract above.
    Ok(unsafe { buffer::with_numbers(values, count, change) }?)
}

/// Reduces integers over all threads.
///
/// # Safety
/// `values` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_reduce_i64(operation: c_int, values: *mut i64, count: usize) -> c_int {
    done(|| {
        let (thread, operation) = (thread()?, operator(operation)?);
        // SAFETY: by this function's contract.
        unsafe { with_numbers(values, count, |numbers| thread.checked_reduce_i64(operation, numbers)) }
    })
}

/// Reduces floating-point numbers over all threads.
///
/// # Safety
/// `values` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_reduce_f64(operation: c_int, values: *mut f64, count: usize) -> c_int {
    done(|| {
        let (thread, operation) = (thread()?, operator(operation)?);
        // SAFETY: by this function's contract.
        unsafe { with_numbers(values, count, |numbers| thread.checked_reduce_f64(operation, numbers)) }
    })
}
