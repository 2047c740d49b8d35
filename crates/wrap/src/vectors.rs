//! Several buffers in one call, some of which may be shared.

use crate::errno;
use crate::heap::{self, Way};
use crate::private::Private;
use crate::transfer::{Kind, TRIES, kind_of};
use libc::{c_int, iovec};
use std::ptr::copy_nonoverlapping;

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
    unsafe { shared(fd, parts, count, way, &mut call) }
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
    let touch_all = || {
        heap::touch_if_shared(parts, bytes_of_list, Way::Out)
            && list.iter().all(|part| heap::touch_if_shared(part.iov_base, part.iov_len, way))
    };
    let private = match kind_of(fd) {
        Kind::Direct => true,
        Kind::Messages => way == Way::In,
        Kind::File | Kind::Stream => false,
    };
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

/// Makes the call on one private buffer as large as all.
///
/// # Safety
/// As for [`transfer`].
unsafe fn detour(list: &[iovec], way: Way, call: &mut dyn FnMut(*const iovec, c_int) -> isize) -> isize {
    let total = list.iter().try_fold(0, |sum: usize, part| sum.checked_add(part.iov_len));
    let Some(private) = total.and_then(Private::new) else {
        errno::set(libc::EFAULT);
        return -1;
    };
    let mut offset = 0;
    if way == Way::Out {
        for part in list {
            // SAFETY: the private buffer is as long as all parts together.
            unsafe { copy_nonoverlapping(part.iov_base.cast(), private.start.add(offset), part.iov_len) };
            offset += part.iov_len;
        }
    }
    let one = iovec { iov_base: private.start.cast(), iov_len: total.unwrap_or(0) };
    let moved = call(&one, 1);
    if way == Way::In && moved > 0 {
        // SAFETY: as above.
        unsafe { scatter(private.start, (moved as usize).min(one.iov_len), list) };
    }
    private.give_back();
    moved
}

/// Fills the buffers in turn with `bytes` from `from`.
///
/// # Safety
/// There are so many, and the buffers are the program's.
unsafe fn scatter(from: *const u8, bytes: usize, list: &[iovec]) {
    let mut offset = 0;
    for part in list {
        let n = part.iov_len.min(bytes - offset);
        // SAFETY: by this function's contract.
        unsafe { copy_nonoverlapping(from.add(offset), part.iov_base.cast(), n) };
        offset += n;
    }
}
