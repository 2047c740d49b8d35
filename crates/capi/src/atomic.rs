//! Atomic operations on shared memory, and loops whose items are dealt out.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, done, reported};
use crate::job::thread;
use comem_rt::heap::{Atomic, Kind, Op};
use std::ffi::{c_int, c_void};

/// The header's numbers as an operation.
fn operation(kind: c_int, op: c_int, operand: u64, expected: u64) -> Outcome<Atomic> {
    let known =
        u8::try_from(kind).ok().and_then(Kind::from_number).zip(u8::try_from(op).ok().and_then(Op::from_number));
    let (kind, op) = known.ok_or_else(|| {
        Failure::new(Code::Argument, format!("there is no atomic operation {op} on words of kind {kind}"))
    })?;
    Ok(Atomic { kind, op, operand, expected })
}

/// An atomic operation on a word of shared memory; gives what it held, as bits. The header's functions have its
/// numbers.
#[unsafe(no_mangle)]
pub extern "C" fn comem_atomic_(
    address: *const c_void,
    kind: c_int,
    op: c_int,
    operand: u64,
    expected: u64,
    ordered: c_int,
) -> u64 {
    reported(
        || {
            let operation = operation(kind, op, operand, expected)?;
            Ok(thread()?.raw_atomic(address.expose_provenance(), operation, ordered != 0)?)
        },
        |_| 0,
    )
}

/// As [`comem_atomic_`], for languages that ask for a code: 0, and what the word held, or a negative code.
///
/// # Safety
/// `before` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_atomic_to_(
    address: *const c_void,
    kind: c_int,
    op: c_int,
    operand: u64,
    ordered: c_int,
    before: *mut u64,
) -> c_int {
    done(|| {
        let operation = operation(kind, op, operand, 0)?;
        let old = thread()?.raw_atomic(address.expose_provenance(), operation, ordered != 0)?;
        // SAFETY: by this function's contract.
        unsafe { buffer::give(before, old) };
        Ok(())
    })
}

/// A barrier of nodes.
#[unsafe(no_mangle)]
pub extern "C" fn comem_node_barrier() -> c_int {
    done(|| Ok(thread()?.checked_node_barrier()?))
}

/// The next items of the loop that the thread is in, or of the next one: 1 with the items, 0 when it is over, or a
/// negative code.
///
/// # Safety
/// `low` and `high` point to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_next_items_(total: u64, chunk: u64, low: *mut u64, high: *mut u64) -> c_int {
    reported(
        || {
            let Some(items) = thread()?.next_items(total, chunk)? else { return Ok(0) };
            // SAFETY: by this function's contract.
            unsafe {
                buffer::give(low, items.start);
                buffer::give(high, items.end);
            }
            Ok(1)
        },
        |code| code,
    )
}

/// Whether the thread may begin a loop: 0, or a negative code within one.
#[unsafe(no_mangle)]
pub extern "C" fn comem_begin_items_() -> c_int {
    done(|| Ok(thread()?.is_in_no_loop()?))
}

/// Leaves the loop that the thread is in, if it is in one.
#[unsafe(no_mangle)]
pub extern "C" fn comem_leave_items_() {
    done(|| {
        thread()?.leave_loop();
        Ok(())
    });
}

type Body = unsafe extern "C" fn(low: u64, high: u64, argument: *mut c_void);

/// Deals the numbers below `total` out to all threads while they run.
#[unsafe(no_mangle)]
pub extern "C" fn comem_for_dynamic(total: u64, chunk: u64, body: Option<Body>, argument: *mut c_void) -> c_int {
    done(|| {
        let Some(body) = body else {
            return Err(Failure::new(Code::Argument, "comem_for_dynamic() was given no function; pass one"));
        };
        let thread = thread()?;
        thread.is_in_no_loop()?;
        while let Some(items) = thread.next_items(total, chunk)? {
            // SAFETY: the program gave this function for this purpose, with this argument.
            unsafe { body(items.start, items.end, argument) };
        }
        Ok(())
    })
}
