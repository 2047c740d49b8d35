//! Which module of the program has checks, and which thread has which hazard word.
//!
//! Each module has a thread-local pointer to the thread's word, null at first. A thread's first checked store gets it
//! one ([`enter`]), which it keeps until it ends.

use super::calls;
use crate::error::{exit, say};
use comem_memory::lines::{HazardArea, TABLE_ADDRESS, Table};
use comem_protocol::coherence::direct::LINE_BYTES;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// The version of what checked code and this library agree on: `compiler/abi.h`.
pub const ABI: u32 = 2;

/// A module's function that gives the address of the calling thread's pointer to its hazard word.
type OfThread = extern "C" fn() -> *mut *mut u64;

/// Most modules whose pointers are different: those of one program and its libraries are mostly one.
const MODULES_MAX: usize = 256;
static MODULES: [AtomicPtr<()>; MODULES_MAX] = [const { AtomicPtr::new(null_mut()) }; MODULES_MAX];
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static WORD: Cell<*mut u64> = const { Cell::new(null_mut()) };
}

/// Whether any code of this process has checks.
pub(crate) fn is_checked() -> bool {
    USED.load(Ordering::Acquire) > 0
}

fn pointers() -> impl Iterator<Item = *mut *mut u64> {
    let used = USED.load(Ordering::Acquire).min(MODULES_MAX);
    MODULES[..used].iter().filter_map(|module| {
        let module = module.load(Ordering::Acquire);
        // SAFETY: the only pointers ever stored besides null are such functions, in `object`.
        (!module.is_null()).then(|| unsafe { std::mem::transmute::<*mut (), OfThread>(module) }())
    })
}

fn point_to(word: *mut u64) {
    WORD.set(word);
    // SAFETY: each is the calling thread's own pointer, of a module that said so.
    pointers().for_each(|pointer| unsafe { pointer.write(word) });
}

/// Ends the process before it has begun, or where it can go on no more.
fn end(what: std::fmt::Arguments<'_>, code: i32) -> ! {
    let host = crate::boot::host_name();
    say(format_args!("comem: (host {host}, pid {}): {what}", std::process::id()));
    // SAFETY: ends the process; what the program has registered for its exit is not run.
    unsafe { libc::_exit(code) }
}

/// A module says that its code has checks.
///
/// # Safety
/// `module` is a string that lives for ever; `hazard` gives the address of a pointer of the calling thread.
pub unsafe fn object(abi: u32, module: *const c_char, hazard: OfThread) {
    // SAFETY: by this function's contract.
    let name = || unsafe { CStr::from_ptr(module) }.to_string_lossy();
    if abi != ABI {
        end(
            format_args!(
                "{} was built with checks of version {abi}, and this libcomem knows version {ABI}; build it anew with \
                 the comem-cc that comes with this libcomem",
                name()
            ),
            exit::START,
        );
    }
    if let Err(error) = Table::map() {
        end(format_args!("{} was built with comem-cc --inline, but {error}", name()), exit::START);
    }
    if let Err(error) = HazardArea::of_process() {
        end(format_args!("the words for hazards of stores cannot be mapped: {error}"), exit::START);
    }
    let pointer = hazard();
    if pointers().any(|known| known == pointer) {
        return;
    }
    let at = USED.fetch_add(1, Ordering::AcqRel);
    let Some(place) = MODULES.get(at) else {
        end(format_args!("more than {MODULES_MAX} libraries have checks of their own; link some together"), exit::START)
    };
    place.store(hazard as *mut (), Ordering::Release);
    // SAFETY: by this function's contract.
    unsafe { pointer.write(WORD.get()) };
}

/// Gives the calling thread a hazard word, until it ends. A signal handler may call it in the midst of another call.
pub fn enter() -> *mut u64 {
    if WORD.get().is_null() {
        let Some(word) = HazardArea::if_mapped().and_then(HazardArea::take) else {
            end(format_args!("more threads store to shared memory at a time than there are words for"), exit::USAGE)
        };
        let word = std::ptr::from_ref(word);
        if WORD.get().is_null() {
            point_to(word.cast_mut().cast());
            leave_at_end(word);
        } else {
            // A signal handler has been faster.
            give(word);
        }
    }
    // Another module of the same thread.
    point_to(WORD.get());
    WORD.get()
}

fn give(word: *const AtomicU64) {
    // SAFETY: a word of the area, which stays mapped.
    HazardArea::if_mapped().inspect(|area| area.give(unsafe { &*word }));
}

/// The word goes back when the thread ends, after the destructors of its variables.
fn leave_at_end(word: *const AtomicU64) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    extern "C" fn leave(word: *mut c_void) {
        point_to(null_mut());
        give(word.cast_const().cast());
    }
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes a key; the function lives for ever.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) } == 0).then_some(key)
    });
    if let Some(key) = key {
        // SAFETY: a key that was created; it keeps the pointer for this thread.
        unsafe { libc::pthread_setspecific(*key, word.cast()) };
    }
}

/// The calling thread's hazard word.
#[inline]
pub(crate) fn own_word() -> &'static AtomicU64 {
    let word = if WORD.get().is_null() { enter() } else { WORD.get() };
    // SAFETY: a word of the area, which stays mapped.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Whether the calling thread's hazard is up.
pub(crate) fn is_raised() -> bool {
    // SAFETY: null, or a word of the area, which stays mapped.
    let word = unsafe { WORD.get().cast::<AtomicU64>().as_ref() };
    word.is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

/// A hazard word's hazard: the address and how many lines from its line on.
fn range_of(hazard: u64) -> Range<usize> {
    let address = (hazard & ((1 << 48) - 1)) as usize;
    match (hazard >> 48) as usize {
        0 => address..address + 1,
        lines => address..address / LINE_BYTES * LINE_BYTES + lines * LINE_BYTES,
    }
}

/// Does something during which the calling thread may wait, with its hazard lowered. Afterwards the hazard is up again
/// and the stores that it is for may go ahead, as before.
pub(crate) fn suspended<T>(work: impl FnOnce() -> T) -> T {
    let word = WORD.get();
    // SAFETY: null, or a word of the area.
    let Some(word) = (unsafe { word.cast::<AtomicU64>().as_ref() }) else { return work() };
    let hazard = word.swap(0, Ordering::Release);
    let result = work();
    if hazard != 0 {
        let range = range_of(hazard);
        let mut rounds = 0;
        loop {
            word.store(hazard, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if calls::may_store(range.clone()) {
                break;
            }
            word.store(0, Ordering::Release);
            calls::own_again(range.start as *const u8, range.len());
            // Others may want the same units, all at a time.
            rounds += 1;
            if rounds > 3 {
                std::thread::sleep(std::time::Duration::from_micros(50 << rounds.min(8)));
            }
        }
    }
    result
}

/// As [`suspended`], for the C interface.
pub fn without_hazard<T>(work: impl FnOnce() -> T) -> T {
    suspended(work)
}

/// The entry of an address in the table, where that is open.
pub(super) fn entry(address: usize) -> u16 {
    let at = TABLE_ADDRESS + address / LINE_BYTES * size_of::<u16>();
    // SAFETY: an aligned entry of the table, which stays mapped once any code has checks; who stores to it does so
    // atomically.
    unsafe { AtomicU16::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }.load(Ordering::Relaxed)
}

/// Raises the calling thread's hazard for stores to these bytes, which lie in one unit, and makes them if they may go
/// ahead. Whether they could.
pub(super) fn store_inline(range: Range<usize>, store: impl FnOnce()) -> bool {
    let first = range.start / LINE_BYTES;
    let lines = (range.end - 1) / LINE_BYTES - first + 1;
    // SAFETY: a word of the area.
    let word = unsafe { &*enter().cast::<AtomicU64>() };
    let hazard = if lines == 1 { range.start as u64 } else { range.start as u64 | (lines as u64) << 48 };
    word.store(hazard, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let free = (first..first + lines).all(|line| entry(line * LINE_BYTES) == 0);
    if free {
        store();
    }
    compiler_fence(Ordering::SeqCst);
    word.store(0, Ordering::Release);
    free
}
