//! JIAJIA 2.1 and its successor: the job, synchronisation, messages and the rest (JIAJIA 2.1 manual, section 4).

use super::tagged_messages::{TaggedMessage, TaggedMessages, node};
use super::{argument, begin, elapsed, keep_letters, load, misuse};
use crate::buffer;
use crate::failure::{Code, Failure, Outcome, done, end, remember, reported};
use crate::job::{comem_finish, job, thread};
use comem_rt::heap::{Home, RegionOptions};
use comem_rt::{ConditionId, LockId, Operator};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering};

/// How many condition variables there are.
const CONDITIONS: usize = 1 << 20;
/// Locks from this number on belong to condition variables; the program's are smaller.
const OWN: u64 = 1 << 40;
/// One byte of shared memory for each condition variable, changed and read under its lock: whether it is set.
static SET: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());

/// Kinds of letters.
const SENT: u8 = 1;
const BROADCAST: u8 = 2;
const ARGUMENTS: u8 = 3;
/// Calls of `jia_bcast` so far.
static BROADCASTS: AtomicI32 = AtomicI32::new(0);
/// Any host, any tag.
const ANY: c_int = -1;

thread_local! {
    static LETTERS: RefCell<TaggedMessages> = RefCell::default();
}

/// `jia_init`: joins the job, under `scope` unless the user chose another engine; says who is who.
///
/// # Safety
/// Called by `main`, before there are other threads; both point to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_jia_init_(pid: *mut c_int, hosts: *mut c_int) {
    done(|| {
        // SAFETY: by this function's contract.
        unsafe { begin("JIAJIA", "scope") }?;
        keep_letters()?;
        let options = RegionOptions {
            home: Home::Block,
            label: "condition variables".into(),
            keeps_pages: true,
            ..Default::default()
        };
        SET.store(job()?.alloc_all_at(CONDITIONS, &options, "jia_init")?.cast(), Ordering::Release);
        // SAFETY: by this function's contract.
        unsafe {
            pid.write(job()?.node() as c_int);
            hosts.write(job()?.nodes() as c_int);
        }
        Ok(())
    });
}

/// The rest of `jia_init`: every host gets host 0's arguments, but for the program's name.
///
/// # Safety
/// `argv` is null or points to `argc` strings, whose pointers may be replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_jia_arguments_(argc: c_int, argv: *mut *mut c_char) {
    done(|| {
        let count = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
        // SAFETY: by this function's contract.
        let argument = |at: usize| unsafe { &mut *argv.add(at) };
        let own = |at: usize| {
            let text = *argument(at);
            if text.is_null() {
                return Vec::new();
            }
            // SAFETY: by this function's contract, a string.
            unsafe { CStr::from_ptr(text) }.to_bytes_with_nul().to_vec()
        };
        let all: Vec<u8> = (1..count).flat_map(own).collect();
        let (me, nodes) = (job()?.node(), job()?.nodes());
        if me == 0 {
            return LETTERS
                .with_borrow_mut(|letters| (1..nodes).try_for_each(|to| letters.send(to, ARGUMENTS, argc, &all)));
        }
        let first = LETTERS.with_borrow_mut(|letters| letters.receive(|letter| letter.kind == ARGUMENTS))?;
        if first.tag != argc {
            let theirs = first.tag;
            return Err(misuse(format!(
                "host {me} was started with argc {argc} and host 0 with {theirs}; start all hosts with the same \
                 arguments"
            )));
        }
        if first.bytes == all {
            return Ok(());
        }
        comem_rt::error::say(format_args!(
            "comem: {}: jia_init gives every host the arguments of host 0; this one was started with others",
            crate::job::name()
        ));
        // They stay as long as the program.
        let bytes = Vec::leak(first.bytes);
        for (at, text) in (1..count).zip(bytes.split_inclusive_mut(|byte| *byte == 0)) {
            *argument(at) = text.as_mut_ptr().cast();
        }
        Ok(())
    });
}

/// Leaves the job, when all have come as far.
#[unsafe(no_mangle)]
pub extern "C" fn jia_exit() {
    comem_finish();
}

/// Gives memory back; called by every host.
#[unsafe(no_mangle)]
pub extern "C" fn jia_free(address: *mut std::ffi::c_void) {
    crate::heap::comem_free(address);
}

/// Whether this host is the only one: then locks and condition variables keep nobody waiting, and programs need not
/// pair their calls.
fn alone() -> Outcome<bool> {
    Ok(job()?.nodes() == 1)
}

/// Acquires a lock.
#[unsafe(no_mangle)]
pub extern "C" fn jia_lock(lock: c_int) {
    done(|| if alone()? { Ok(()) } else { Ok(thread()?.raw_lock(LockId(u64::from(lock as u32)))?) });
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub extern "C" fn jia_unlock(lock: c_int) {
    done(|| if alone()? { Ok(()) } else { Ok(thread()?.raw_unlock(LockId(u64::from(lock as u32)))?) });
}

/// Waits for all hosts; what they wrote is seen afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn jia_barrier() {
    done(|| Ok(thread()?.checked_barrier()?));
}

/// Waits for all hosts, and says nothing about memory.
#[unsafe(no_mangle)]
pub extern "C" fn jia_wait() {
    done(|| Ok(thread()?.checked_rendezvous()?));
}

/// Runs `f` on a condition variable's byte, under its lock, where there are other hosts.
fn with_condition(cv: c_int, f: impl FnOnce(&AtomicU8, ConditionId, LockId) -> Outcome<()>) -> Outcome<()> {
    let wrong = || argument(format!("there is no condition variable {cv}; they count from 0 to {}", CONDITIONS - 1));
    let index = usize::try_from(cv).ok().filter(|cv| *cv < CONDITIONS).ok_or_else(wrong)?;
    let all = SET.load(Ordering::Acquire);
    if all.is_null() {
        return Err(Failure::new(Code::NotStarted, "JIAJIA was called before jia_init(); initialise first"));
    }
    if alone()? {
        return Ok(());
    }
    let (condition, lock) = (ConditionId(index as u64), LockId(OWN | index as u64));
    let thread = thread()?;
    thread.raw_lock(lock)?;
    // SAFETY: within what `jia_init` allocated, which is never freed; any byte is a value.
    let result = f(unsafe { &*all.add(index) }, condition, lock);
    thread.raw_unlock(lock)?;
    result
}

/// Sets a condition variable: who waits for it goes on, and who will wait does not have to.
#[unsafe(no_mangle)]
pub extern "C" fn jia_setcv(cv: c_int) {
    done(|| {
        with_condition(cv, |set, condition, _| {
            set.store(1, Ordering::Relaxed);
            thread()?.cond_notify_all(condition);
            Ok(())
        })
    });
}

/// Resets a condition variable.
#[unsafe(no_mangle)]
pub extern "C" fn jia_resetcv(cv: c_int) {
    done(|| {
        with_condition(cv, |set, _, _| {
            set.store(0, Ordering::Relaxed);
            Ok(())
        })
    });
}

/// Waits until a condition variable is set.
#[unsafe(no_mangle)]
pub extern "C" fn jia_waitcv(cv: c_int) {
    done(|| {
        with_condition(cv, |set, condition, lock| {
            while set.load(Ordering::Relaxed) == 0 {
                thread()?.raw_cond_wait(condition, lock)?;
            }
            Ok(())
        })
    });
}

/// The program's buffer of so many bytes.
fn length(len: c_int, buffer: *const c_char) -> Outcome<usize> {
    let len = usize::try_from(len).map_err(|_| argument(format!("a message of {len} bytes makes no sense")))?;
    if buffer.is_null() && len > 0 {
        return Err(argument("a message has no place: the buffer is a null pointer"));
    }
    Ok(len)
}

/// A copy of the program's bytes.
///
/// # Safety
/// `buffer` points to `len` bytes.
unsafe fn copied(buffer: *const c_char, len: c_int) -> Outcome<Vec<u8>> {
    let len = length(len, buffer)?;
    // SAFETY: by this function's contract.
    Ok(unsafe { buffer::bytes_of(buffer.cast(), len) }.into_owned())
}

/// Copies a letter into the program's buffer.
///
/// # Safety
/// `buffer` has room for `len` bytes.
unsafe fn hand_over(letter: &TaggedMessage, buffer: *mut c_char, len: c_int) -> Outcome<c_int> {
    let (room, came) = (length(len, buffer)?, letter.bytes.len());
    if came > room {
        return Err(argument(format!(
            "a message of {came} bytes does not fit a buffer of {room}; receive it into a larger one"
        )));
    }
    if came > 0 {
        // SAFETY: by this function's contract, and checked above.
        unsafe { buffer::fill(buffer.cast(), &letter.bytes) };
    }
    Ok(came as c_int)
}

/// Sends a message to a host, which need not wait for it yet.
///
/// # Safety
/// `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_send(buffer: *mut c_char, len: c_int, to: c_int, tag: c_int) {
    done(|| {
        // SAFETY: by this function's contract.
        let (to, bytes) = (node(to)?, unsafe { copied(buffer, len) }?);
        LETTERS.with_borrow_mut(|letters| letters.send(to, SENT, tag, &bytes))
    });
}

/// Waits for the next message from a host (-1: any) with a tag (-1: any); gives its length.
///
/// # Safety
/// `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_recv(buffer: *mut c_char, len: c_int, from: c_int, tag: c_int) -> c_int {
    reported(
        || {
            let from = if from == ANY { None } else { Some(node(from)?) };
            let wanted = |letter: &TaggedMessage| {
                letter.kind == SENT && (tag == ANY || letter.tag == tag) && from.is_none_or(|from| letter.from == from)
            };
            LETTERS.with_borrow_mut(|letters| {
                // SAFETY: by this function's contract.
                letters.receive_by(wanted, |letter| unsafe { hand_over(letter, buffer, len) })
            })
        },
        |code| code,
    )
}

/// Sends a host's bytes to all hosts; called by all. The letters' tag is the number of the call, by which a host sees
/// that another had another root in mind.
///
/// # Safety
/// `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_bcast(buffer: *mut c_char, len: c_int, root: c_int) {
    done(|| {
        let (root, me) = (node(root)?, job()?.node());
        let call = BROADCASTS.fetch_add(1, Ordering::Relaxed);
        if root == me {
            // SAFETY: by this function's contract.
            let bytes = unsafe { copied(buffer, len) }?;
            let mut others = (0..job()?.nodes()).filter(|node| *node != me);
            return LETTERS
                .with_borrow_mut(|letters| others.try_for_each(|to| letters.send(to, BROADCAST, call, &bytes)));
        }
        let until_now = |letter: &TaggedMessage| letter.kind == BROADCAST && letter.tag.wrapping_sub(call) <= 0;
        let letter = LETTERS.with_borrow_mut(|letters| letters.receive(until_now))?;
        if (letter.tag, letter.from) != (call, root) {
            let from = letter.from;
            return Err(misuse(format!(
                "host {from} has broadcast where this host expects it of another; give jia_bcast() the same root on \
                 all hosts"
            )));
        }
        if letter.bytes.len() != length(len, buffer)? {
            let came = letter.bytes.len();
            return Err(misuse(format!(
                "host {root} broadcasts {came} bytes, this host expects {len}; call jia_bcast() alike"
            )));
        }
        // SAFETY: by this function's contract.
        unsafe { hand_over(&letter, buffer, len) }.map(|_| ())
    });
}

/// Numbers of a type, reduced over all hosts as the widest of their kind. All must give the same terms.
trait Number: Copy {
    fn reduce(terms: u16, operator: Operator, numbers: &mut [Self]) -> Outcome<()>;
}

impl Number for c_int {
    fn reduce(terms: u16, operator: Operator, numbers: &mut [c_int]) -> Outcome<()> {
        let mut wide: Vec<i64> = numbers.iter().map(|n| i64::from(*n)).collect();
        thread()?.reduce_i64_agreeing(terms, operator, &mut wide)?;
        numbers.iter_mut().zip(wide).for_each(|(n, wide)| *n = wide as c_int);
        Ok(())
    }
}

impl Number for f32 {
    fn reduce(terms: u16, operator: Operator, numbers: &mut [f32]) -> Outcome<()> {
        let mut wide: Vec<f64> = numbers.iter().map(|n| f64::from(*n)).collect();
        thread()?.reduce_f64_agreeing(terms, operator, &mut wide)?;
        numbers.iter_mut().zip(wide).for_each(|(n, wide)| *n = wide as f32);
        Ok(())
    }
}

impl Number for f64 {
    fn reduce(terms: u16, operator: Operator, numbers: &mut [f64]) -> Outcome<()> {
        Ok(thread()?.reduce_f64_agreeing(terms, operator, numbers)?)
    }
}

/// # Safety
/// `from` points to `count` numbers of the type, and `to` has room for them.
unsafe fn reduce<T: Number>(
    from: *const c_char,
    to: *mut c_char,
    count: usize,
    op: Operator,
    (kind, root): (c_int, usize),
) -> Outcome<()> {
    let from: *const T = from.cast();
    // SAFETY: by this function's contract; programs need not align their buffers.
    let mut numbers: Vec<T> = (0..count).map(|i| unsafe { from.add(i).read_unaligned() }).collect();
    // There are three kinds, and 1024 nodes at most.
    T::reduce((kind as u16) << 10 | root as u16, op, &mut numbers)?;
    if root == job()?.node() {
        let to: *mut T = to.cast();
        for (index, number) in numbers.into_iter().enumerate() {
            // SAFETY: by this function's contract.
            unsafe { to.add(index).write_unaligned(number) };
        }
    }
    Ok(())
}

/// Reduces all hosts' numbers into those of one host; called by all. `op` is SUM_INT or one of its kind.
///
/// # Safety
/// `send` points to `count` numbers of the type, and at the root `receive` has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_reduce(send: *mut c_char, receive: *mut c_char, count: c_int, op: c_int, root: c_int) {
    done(|| {
        let root = node(root)?;
        let count = usize::try_from(count)
            .map_err(|_| argument(format!("a reduction of {count} numbers makes no sense; give how many there are")))?;
        if count > 0 && (send.is_null() || receive.is_null() && root == job()?.node()) {
            return Err(argument(
                "jia_reduce() was given a null pointer; give the numbers and, on the root, a place for the results",
            ));
        }
        let operator = match op % 10 {
            0 => Operator::Sum,
            1 => Operator::Max,
            2 => Operator::Min,
            _ => {
                return Err(argument(format!(
                    "there is no reduction {op}; use SUM_INT, MAX_DOUBLE or one of their kind"
                )));
            }
        };
        // SAFETY: by this function's contract, which holds for the type that `op` names.
        unsafe {
            match op / 10 {
                0 => reduce::<c_int>(send, receive, count, operator, (op / 10, root)),
                1 => reduce::<f32>(send, receive, count, operator, (op / 10, root)),
                2 => reduce::<f64>(send, receive, count, operator, (op / 10, root)),
                _ => Err(argument(format!("there is no reduction {op}; use SUM_INT, MAX_DOUBLE or one of their kind"))),
            }
        }
    });
}

/// Switches a technique on or off: load balancing; what else there was is always at work here.
#[unsafe(no_mangle)]
pub extern "C" fn jia_config(what: c_int, value: c_int) {
    const LOADBAL: c_int = 3;
    if what == LOADBAL {
        load::switch(value != 0);
    }
}

/// Seconds since `jia_init`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_clock() -> f64 {
    elapsed()
}

/// Nanoseconds since `jia_init`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_current_time() -> c_ulong {
    (elapsed() * 1e9) as c_ulong
}

/// Microseconds since `jia_init`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_startstat() -> c_uint {
    (elapsed() * 1e6) as u64 as c_uint
}

/// Microseconds since `jia_init`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_stopstat() -> c_uint {
    jia_startstat()
}

/// `jia_error` and `Tmk_errexit`, once their message is made: ends the job with it.
///
/// # Safety
/// `message` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_program_error_(message: *const c_char) {
    // SAFETY: by this function's contract.
    let message = unsafe { buffer::text_of(message) }.unwrap_or_default();
    let message = message.to_string_lossy();
    let sentence = remember(&Failure::new(Code::Stopped, format!("the program ended the job: {}", message.trim_end())));
    end(1, &sentence)
}
