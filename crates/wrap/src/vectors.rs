//! Several buffers in one call, some of which may be shared.

use crate::errno;
use crate::heap::{self, Way};
use crate::private::Private;
use crate::transfer::{self, Kind, TRIES, kind_of};
use libc::{c_int, iovec};

/// Most buffers of one call, as the kernel has it; what has more goes to the kernel unseen, which refuses it.
const PARTS_MAX: usize = 1024;

/// Whether any buffer, or the list of them, is shared memory.
///
/// # Safety
/// `parts` is null or points to `count` descriptions.
pub unsafe fn any_shared(parts: *const iovec, count: usize) -> bool {
    if !heap::exists() || parts.is_null() || count == 0 || count > PARTS_MAX {
        return false;
    }
    if heap::overlaps(parts, count * size_of::<iovec>()) {
        return true;
    }
    // SAFETY: by this function's contract.
    let list = unsafe { std::slice::from_raw_parts(parts, count) };
    list.iter().any(|part| heap::overlaps(part.iov_base, part.iov_len))
}

/// Makes a call on buffers that may be shared.
///
/// # Safety
/// As for the call.
#[inline]
pub unsafe fn transfer(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    way: Way,
    mut call: impl FnMut(*const iovec, c_int) -> isize,
) -> isize {
    // SAFETY: by this function's contract.
    if !unsafe { any_shared(parts, count.max(0) as usize) } {
        return call(parts, count);
    }
    // SAFETY: by this function's contract.
    unsafe { with_list(parts, count, |parts| shared(fd, parts, count, way, &mut call)) }
}

/// Calls with the list of buffers, or with a private copy of it where it is lines memory itself.
///
/// # Safety
/// As for [`transfer`]; there are buffers.
unsafe fn with_list(parts: *const iovec, count: c_int, call: impl FnOnce(*const iovec) -> isize) -> isize {
    let bytes = count as usize * size_of::<iovec>();
    if !heap::meets_lines(parts, bytes) {
        return call(parts);
    }
    let Some(private) = Private::new(bytes) else { return -1 };
    // SAFETY: by this function's contract, and private memory of that size.
    unsafe { heap::load(parts.cast(), private.start, bytes) };
    let moved = call(private.start.cast());
    private.give_back();
    moved
}

/// As [`transfer`], for calls that move all there is of a regular file: what `call` has left, because a page was taken
/// away in the midst of it, goes buffer by buffer with `one`, which gets where, how many bytes, and how many of all
/// were moved before.
///
/// # Safety
/// As for [`transfer`].
#[inline]
pub unsafe fn transfer_all(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    way: Way,
    mut call: impl FnMut(*const iovec, c_int) -> isize,
    mut one: impl FnMut(*mut u8, usize, usize) -> isize,
) -> isize {
    // SAFETY: by this function's contract.
    if !unsafe { any_shared(parts, count.max(0) as usize) } {
        return call(parts, count);
    }
    // SAFETY: by this function's contract.
    unsafe {
        with_list(parts, count, |parts| {
            let moved = shared(fd, parts, count, way, &mut call);
            if moved > 0 && kind_of(fd) == Kind::File { rest(fd, (parts, count), way, moved, &mut one) } else { moved }
        })
    }
}

/// Moves what lies behind the first `moved` bytes, as far as it goes; returns how many were moved in all.
///
/// # Safety
/// As for [`transfer`]; there are buffers.
#[cold]
unsafe fn rest(
    fd: c_int,
    (parts, count): (*const iovec, c_int),
    way: Way,
    mut moved: isize,
    one: &mut dyn FnMut(*mut u8, usize, usize) -> isize,
) -> isize {
    // SAFETY: by this function's contract.
    let list = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    let mut before = 0;
    for part in list {
        let done = (moved as usize - before).min(part.iov_len);
        before += part.iov_len;
        let left = part.iov_len - done;
        if left == 0 {
            continue;
        }
        let sum = moved as usize;
        // SAFETY: within the buffer, which is the program's.
        let n = unsafe {
            let start = part.iov_base.cast::<u8>().add(done);
            transfer::transfer(fd, start, left, way, |at, n, done| one(at, n, sum + done))
        };
        moved += n.max(0);
        if n < left as isize {
            break;
        }
    }
    moved
}

/// # Safety
/// As for [`transfer`]; there are buffers.
#[cold]
unsafe fn shared(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    way: Way,
    call: &mut dyn FnMut(*const iovec, c_int) -> isize,
) -> isize {
    let bytes_of_list = count as usize * size_of::<iovec>();
    if !heap::touch_if_shared(parts, bytes_of_list, Way::Out) {
        return call(parts, count);
    }
    // SAFETY: by this function's contract; a page of the list that is taken away comes back by a fault.
    let list = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    let any_lines = list.iter().any(|part| heap::meets_lines(part.iov_base, part.iov_len));
    let touch_all = || {
        heap::touch_if_shared(parts, bytes_of_list, Way::Out)
            && list.iter().all(|part| heap::touch_if_shared(part.iov_base, part.iov_len, way))
    };
    let private = match kind_of(fd) {
        Kind::Direct => true,
        Kind::Messages | Kind::Other => way == Way::In,
        Kind::Stream => way == Way::Out,
        Kind::File => false,
    } || any_lines;
    if private && touch_all() {
        // SAFETY: by this function's contract.
        return unsafe { detour(list, way, call) };
    }
    for _ in 0..TRIES {
        if !touch_all() {
            return call(parts, count);
        }
        let moved = call(parts, count);
        if moved != -1 || errno::get() != libc::EFAULT {
            return moved;
        }
    }
    // SAFETY: by this function's contract.
    unsafe { detour(list, way, call) }
}

/// Makes the call with private memory in place of the buffers that are shared. The others stay as they are: one that is
/// no memory at all is for the kernel to refuse.
///
/// # Safety
/// As for [`transfer`].
unsafe fn detour(list: &[iovec], way: Way, call: &mut dyn FnMut(*const iovec, c_int) -> isize) -> isize {
    let copied = |part: &iovec| if heap::overlaps(part.iov_base, part.iov_len) { part.iov_len } else { 0 };
    // The copies come first, so that those of aligned buffers are aligned, and behind them the list of them.
    let bytes = list.iter().try_fold(0, |sum: usize, part| sum.checked_add(copied(part)));
    let place = bytes.and_then(|bytes| bytes.checked_next_multiple_of(align_of::<iovec>()));
    let all = place.and_then(|place| place.checked_add(size_of_val(list)));
    let (Some(place), Some(private)) = (place, all.and_then(Private::new)) else {
        errno::set(libc::EFAULT);
        return -1;
    };
    // SAFETY: the private memory has room for the list there, and zeros are values of these structures of numbers.
    let others = unsafe { std::slice::from_raw_parts_mut(private.start.add(place).cast::<iovec>(), list.len()) };
    let mut offset = 0;
    for (part, other) in list.iter().zip(others.iter_mut()) {
        let bytes = copied(part);
        *other = *part;
        if bytes > 0 {
            // SAFETY: within the private memory, which has room for all copies.
            other.iov_base = unsafe { private.start.add(offset).cast() };
            if way == Way::Out {
                // SAFETY: shared memory of the program's, and private memory of that size.
                unsafe { heap::load(part.iov_base.cast(), other.iov_base.cast(), bytes) };
            }
        }
        offset += bytes;
    }
    let moved = call(others.as_ptr(), list.len() as c_int);
    if way == Way::In && moved > 0 {
        // SAFETY: as above.
        unsafe { copy_back(moved as usize, others, list) };
    }
    private.give_back();
    moved
}

/// Fills those buffers of `list` in turn that have copies in `others`; there are `bytes` in all, or more in a message
/// that was cut.
///
/// # Safety
/// The buffers are the program's, and the call has filled so many bytes of `others`.
unsafe fn copy_back(bytes: usize, others: &[iovec], list: &[iovec]) {
    let mut left = bytes;
    for (part, other) in list.iter().zip(others) {
        let n = part.iov_len.min(left);
        if n > 0 && other.iov_base != part.iov_base {
            // SAFETY: by this function's contract.
            unsafe { heap::store(other.iov_base.cast(), part.iov_base.cast(), n) };
        }
        left -= n;
    }
}
