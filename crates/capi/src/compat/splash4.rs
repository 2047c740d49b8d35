//! SPLASH-4's atomic macros (E. J. Gómez-Hernández and others, "Splash-4: A Modern Benchmark Suite with Lock-Free
//! Constructs",
//! IISWC 2022): `LOAD`, `STORE`, `CAS`, `FETCH_ADD`, `FETCH_SUB` and `FETCH_ADD_DOUBLE`, as
//! `include/compat/comem_splash4.h` calls them.
//! [`alone`] makes each of them atomic for the whole job.

use super::argument;
use crate::failure::{Outcome, done, reported};
use crate::variable::alone;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A variable as its macro gives it: an integer, a pointer or a floating-point number of 1, 2, 4 or 8 bytes.
#[derive(Clone, Copy)]
enum Variable {
    Bits8(*const AtomicU8),
    Bits16(*const AtomicU16),
    Bits32(*const AtomicU32),
    Bits64(*const AtomicU64),
}

impl Variable {
    fn new(macro_name: &str, address: *mut c_void, bytes: usize) -> Outcome<Variable> {
        if !address.addr().is_multiple_of(bytes.max(1)) || address.is_null() {
            return Err(argument(format!(
                "{macro_name} was given a variable of {bytes} bytes at {address:?}; give one that is aligned to its \
                 size"
            )));
        }
        match bytes {
            1 => Ok(Variable::Bits8(address.cast())),
            2 => Ok(Variable::Bits16(address.cast())),
            4 => Ok(Variable::Bits32(address.cast())),
            8 => Ok(Variable::Bits64(address.cast())),
            _ => Err(argument(format!(
                "{macro_name} was given a variable of {bytes} bytes; give an integer, a pointer or a number of 1, 2, \
                 4 or 8 bytes"
            ))),
        }
    }

    /// The same variable where it may be accessed.
    fn at(self, place: *mut c_void) -> Variable {
        match self {
            Variable::Bits8(_) => Variable::Bits8(place.cast()),
            Variable::Bits16(_) => Variable::Bits16(place.cast()),
            Variable::Bits32(_) => Variable::Bits32(place.cast()),
            Variable::Bits64(_) => Variable::Bits64(place.cast()),
        }
    }
}

/// Runs `$body` with `$at` as the atomic that the variable is, and `$number` as the type of its value.
macro_rules! on {
    ($variable:expr, |$at:ident: $number:ident| $body:expr) => {
        // SAFETY: the macros of the header give variables of the program's that stay, and their sizes; `new` checked
        // the alignment.
        // Other threads use them by these functions or as races that the program answers for.
        unsafe {
            match $variable {
                Variable::Bits8(at) => on!(at, $at, u8 as $number, $body),
                Variable::Bits16(at) => on!(at, $at, u16 as $number, $body),
                Variable::Bits32(at) => on!(at, $at, u32 as $number, $body),
                Variable::Bits64(at) => on!(at, $at, u64 as $number, $body),
            }
        }
    };
    ($pointer:ident, $at:ident, $plain:ident as $number:ident, $body:expr) => {{
        type $number = $plain;
        let $at = &*$pointer;
        $body
    }};
}

/// A bit pattern of the program's, of as many bytes as its variable has.
///
/// # Safety
/// `from` points to a value of the type `T`, aligned or not.
unsafe fn read<T: Copy>(from: *const c_void) -> T {
    // SAFETY: by this function's contract.
    unsafe { from.cast::<T>().read_unaligned() }
}

/// A bit pattern, with zeros in front.
fn widened<T: Into<u64>>(bits: T) -> u64 {
    bits.into()
}

/// # Safety
/// `to` has room for a value of the type `T`, aligned or not.
unsafe fn write<T: Copy>(to: *mut c_void, value: T) {
    // SAFETY: by this function's contract.
    unsafe { to.cast::<T>().write_unaligned(value) }
}

/// So many looks at a variable that has not changed, one after another, before a thread lets others use its processor.
const LOADS_BEFORE_YIELD: u32 = 64;

thread_local! {
    /// The variable at which this thread looked last, what it saw, and how often it has seen the same.
    static SEEN: Cell<(usize, u64, u32)> = const { Cell::new((0, 0, 0)) };
}

/// A thread that spins keeps others from the processor, among them whoever is to change what it waits for.
fn note_look(address: *const c_void, bits: u64) {
    let (last, same, looks) = SEEN.get();
    let looks = if (last, same) == (address.addr(), bits) { looks + 1 } else { 0 };
    SEEN.set((address.addr(), bits, looks));
    if looks % LOADS_BEFORE_YIELD == LOADS_BEFORE_YIELD - 1 {
        std::thread::yield_now();
    }
}

/// LOAD: writes the value of a variable of so many bytes to `result`.
///
/// # Safety
/// `address` points to a variable of the program's, `result` to room of its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_splash4_load_(address: *mut c_void, bytes: usize, result: *mut c_void) {
    done(|| {
        let variable = Variable::new("LOAD", address, bytes)?;
        let bits = alone("LOAD", address, bytes, |at| {
            let load = on!(variable.at(at), |at: N| {
                let value = at.load(SeqCst);
                write::<N>(result, value);
                widened(value)
            });
            (load, false)
        })?;
        note_look(address, bits);
        Ok(())
    });
}

/// STORE.
///
/// # Safety
/// `address` points to a variable of the program's, `value` to a value of its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_splash4_store_(address: *mut c_void, bytes: usize, value: *const c_void) {
    done(|| {
        let variable = Variable::new("STORE", address, bytes)?;
        alone("STORE", address, bytes, |at| (on!(variable.at(at), |at: N| at.store(read::<N>(value), SeqCst)), true))
    });
}

/// CAS: 1 when the variable had the value `expected` and now has `value`; otherwise 0, and `expected` is what it has.
///
/// # Safety
/// `address` points to a variable of the program's, `expected` and `value` to values of its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_splash4_cas_(
    address: *mut c_void,
    bytes: usize,
    expected: *mut c_void,
    value: *const c_void,
) -> c_int {
    let exchange = || {
        let variable = Variable::new("CAS", address, bytes)?;
        alone("CAS", address, bytes, |at| {
            let exchanged = on!(variable.at(at), |at: N| {
                let seen = at.compare_exchange(read::<N>(expected), read::<N>(value), SeqCst, SeqCst);
                seen.map_err(|found| write::<N>(expected, found)).is_ok()
            });
            (c_int::from(exchanged), exchanged)
        })
    };
    reported(exchange, |_| 0)
}

/// FETCH_ADD and FETCH_SUB: adds `value`, taken modulo the variable's size, and gives the bits that it had before.
///
/// # Safety
/// `address` points to a variable of the program's; `macro_name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_splash4_fetch_add_(
    address: *mut c_void,
    bytes: usize,
    value: u64,
    macro_name: *const c_char,
) -> u64 {
    let add = || {
        // SAFETY: by this function's contract.
        let macro_name = unsafe { CStr::from_ptr(macro_name) }.to_str().unwrap_or_default();
        let variable = Variable::new(macro_name, address, bytes)?;
        alone(macro_name, address, bytes, |at| {
            (on!(variable.at(at), |at: N| widened(at.fetch_add(value as N, SeqCst))), true)
        })
    };
    reported(add, |_| 0)
}

/// FETCH_ADD_DOUBLE: adds to a number, and gives what it was before.
///
/// # Safety
/// `address` points to a number of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_splash4_fetch_add_double_(address: *mut f64, value: f64) -> f64 {
    let add = || {
        Variable::new("FETCH_ADD_DOUBLE", address.cast(), size_of::<f64>())?;
        alone("FETCH_ADD_DOUBLE", address.cast(), size_of::<f64>(), |at| {
            // SAFETY: by this function's contract, and aligned as was checked.
            let number = unsafe { AtomicU64::from_ptr(at.cast()) };
            let sum = |bits| Some((f64::from_bits(bits) + value).to_bits());
            // `sum` always gives a number, so both cases hold what was there.
            let (Ok(before) | Err(before)) = number.fetch_update(AcqRel, Acquire, sum);
            (f64::from_bits(before), true)
        })
    };
    reported(add, |_| 0.0)
}
