//! Messages from thread to thread: the backbone's guaranteed delivery, bare.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, done, remember, reported};
use crate::job::thread;
use comem_rt::Thread;
use std::ffi::{c_int, c_void};

/// A message on its way to the program: the sender's node, and the bytes.
type Message = (comem_rt::NodeId, Vec<u8>);

/// Sends a message.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_post(thread_number: c_int, data: *const c_void, length: usize) -> c_int {
    done(|| {
        let to = usize::try_from(thread_number).map_err(|_| {
            Failure::new(Code::Argument, format!("there is no thread {thread_number}; threads count from 0"))
        })?;
        if data.is_null() && length > 0 {
            return Err(Failure::new(Code::Argument, "a message was given no bytes; pass a pointer to them"));
        }
        // SAFETY: by this function's contract.
        let bytes = unsafe { buffer::bytes_of(data.cast(), length) };
        Ok(thread()?.post(to, &bytes)?)
    })
}

/// Hands a message over, or keeps it when the buffer is too small.
fn hand_over(
    thread: &Thread,
    message: Message,
    from: *mut c_int,
    buffer: *mut c_void,
    capacity: usize,
) -> Outcome<i64> {
    let length = message.1.len();
    if length > capacity || (buffer.is_null() && length > 0) {
        thread.put_back(message);
        let what =
            format!("a message of {length} bytes does not fit a buffer of {capacity}; receive it into a larger one");
        let failure = Failure::new(Code::TooSmall, what);
        remember(&failure);
        return Ok(failure.code as i64);
    }
    // SAFETY: the buffer has room for `capacity` bytes, which are enough; `from` points to a number unless null.
    unsafe {
        if length > 0 {
            buffer::fill(buffer.cast(), &message.1);
        }
        if !from.is_null() {
            buffer::give(from, c_int::from(message.0.0));
        }
    }
    Ok(length as i64)
}

/// Waits for a message.
///
/// # Safety
/// `buffer` has room for `capacity` bytes; `from` points to a number or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_receive(from: *mut c_int, buffer: *mut c_void, capacity: usize) -> i64 {
    reported(
        || {
            let thread = thread()?;
            hand_over(&thread, thread.receive(), from, buffer, capacity)
        },
        i64::from,
    )
}

/// Takes a message if one is there.
///
/// # Safety
/// As for [`comem_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_tryreceive(from: *mut c_int, buffer: *mut c_void, capacity: usize) -> i64 {
    reported(
        || {
            let thread = thread()?;
            match thread.try_receive() {
                Some(message) => hand_over(&thread, message, from, buffer, capacity),
                None => Ok(Code::Empty as i64),
            }
        },
        i64::from,
    )
}
