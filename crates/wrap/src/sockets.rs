//! Sending and receiving.

use crate::heap::{self, Way};
use crate::private::Private;
use crate::real;
use crate::transfer::transfer;
use crate::vectors;
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, sockaddr_storage, socklen_t, ssize_t};

/// Sends.
///
/// # Safety
/// As for `send(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's buffer, or private memory of that size.
    unsafe { transfer(fd, from.cast_mut().cast(), bytes, Way::Out, |at, n, _| real::send(fd, at.cast(), n, flags)) }
}

/// Sends to an address.
///
/// # Safety
/// As for `sendto(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
    name: *const sockaddr,
    len: socklen_t,
) -> ssize_t {
    let mut copy = no_name();
    let mut to = name;
    if heap::overlaps(name.cast::<u8>(), len as usize)
        && len as usize <= size_of::<sockaddr_storage>()
        && heap::touch(name.cast::<u8>(), len as usize, Way::Out)
    {
        // SAFETY: by this function's contract the name is that long; so is the copy.
        unsafe { heap::load(name.cast(), (&raw mut copy).cast(), len as usize) };
        to = (&raw const copy).cast();
    }
    let call = |at: *mut u8, n, _| {
        // SAFETY: the caller's buffer, or private memory of that size.
        unsafe { real::sendto(fd, at.cast(), n, flags, to, len) }
    };
    // SAFETY: by this function's contract.
    unsafe { transfer(fd, from.cast_mut().cast(), bytes, Way::Out, call) }
}

/// Receives.
///
/// # Safety
/// As for `recv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's buffer, or private memory of that size.
    unsafe { transfer(fd, to.cast(), bytes, Way::In, |at, n, _| real::recv(fd, at.cast(), n, flags)) }
}

/// Receives, and tells from whom.
///
/// # Safety
/// As for `recvfrom(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    if !name_is_shared(name, len) {
        let call = |at: *mut u8, n, _| {
            // SAFETY: the caller's buffer, or private memory of that size.
            unsafe { real::recvfrom(fd, at.cast(), n, flags, name, len) }
        };
        // SAFETY: by this function's contract.
        return unsafe { transfer(fd, to.cast(), bytes, Way::In, call) };
    }
    let (mut copy, mut known) = (no_name(), 0);
    let call = |at: *mut u8, n, _| {
        known = size_of::<sockaddr_storage>() as socklen_t;
        // SAFETY: as above, and the name is ours.
        unsafe { real::recvfrom(fd, at.cast(), n, flags, (&raw mut copy).cast(), &mut known) }
    };
    // SAFETY: by this function's contract.
    let got = unsafe { transfer(fd, to.cast(), bytes, Way::In, call) };
    if got >= 0 {
        // SAFETY: by this function's contract there is room for a name, as long as `len` says.
        unsafe {
            let mut room: socklen_t = 0;
            heap::load(len.cast(), (&raw mut room).cast(), size_of::<socklen_t>());
            heap::store((&raw const copy).cast(), name.cast(), room.min(known) as usize);
            heap::store((&raw const known).cast(), len.cast(), size_of::<socklen_t>());
        }
    }
    got
}

fn no_name() -> sockaddr_storage {
    // SAFETY: all zero is a value of this structure of numbers.
    unsafe { std::mem::zeroed() }
}

/// Whether a name is wanted, and its place or its length is shared memory, which then is here.
fn name_is_shared(name: *mut sockaddr, len: *mut socklen_t) -> bool {
    if name.is_null() || len.is_null() {
        return false;
    }
    let shared = heap::overlaps(name, size_of::<sockaddr_storage>()) || heap::overlaps(len, size_of::<socklen_t>());
    // The first byte: a thread without a place in the job leaves it at that.
    shared && heap::touch_if_shared(len, size_of::<socklen_t>(), Way::In) && heap::touch_if_shared(name, 1, Way::In)
}

/// Whether anything that a message points to, or the message itself, is shared memory.
///
/// # Safety
/// As for [`sendmsg`].
unsafe fn message_is_shared(message: *const msghdr) -> bool {
    if !heap::exists() || message.is_null() {
        return false;
    }
    if heap::overlaps(message, size_of::<msghdr>()) {
        return true;
    }
    // SAFETY: by this function's contract, and private or trapped memory.
    let m = unsafe { &*message };
    heap::overlaps(m.msg_name, m.msg_namelen as usize)
        || heap::overlaps(m.msg_control, m.msg_controllen)
        // SAFETY: by this function's contract.
        || unsafe { vectors::any_shared(m.msg_iov, m.msg_iovlen) }
}

/// A private copy of a message's head, with what it points to here (the buffers apart); `None` when that cannot be.
///
/// # Safety
/// As for [`sendmsg`].
unsafe fn head(message: *const msghdr, way: Way) -> Option<msghdr> {
    if !heap::touch_if_shared(message, size_of::<msghdr>(), way) {
        return None;
    }
    // SAFETY: all zero is a value of this structure of numbers and pointers.
    let mut copy: msghdr = unsafe { std::mem::zeroed() };
    // SAFETY: by this function's contract.
    unsafe { heap::load(message.cast(), (&raw mut copy).cast(), size_of::<msghdr>()) };
    let here = heap::touch_if_shared(copy.msg_name, copy.msg_namelen as usize, way)
        && heap::touch_if_shared(copy.msg_control, copy.msg_controllen, way);
    here.then_some(copy)
}

/// Puts private copies of a message's name and control data in their places, where they are lines memory.
///
/// # Safety
/// As for [`sendmsg`].
unsafe fn private_ends(head: &mut msghdr) -> Result<[Option<Private>; 2], ()> {
    let copied = |from: *mut c_void, bytes: usize| {
        if bytes == 0 || !heap::meets_lines(from, bytes) {
            return Ok(None);
        }
        let private = Private::new(bytes).ok_or(())?;
        // SAFETY: by this function's contract, and private memory of that size.
        unsafe { heap::load(from.cast(), private.start, bytes) };
        Ok(Some(private))
    };
    let name = copied(head.msg_name, head.msg_namelen as usize)?;
    let control = copied(head.msg_control, head.msg_controllen)?;
    if let Some(name) = &name {
        head.msg_name = name.start.cast();
    }
    if let Some(control) = &control {
        head.msg_control = control.start.cast();
    }
    Ok([name, control])
}

/// Sends a message.
///
/// # Safety
/// As for `sendmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by this function's contract.
    let head = unsafe { if message_is_shared(message) { head(message, Way::Out) } else { None } };
    let Some(mut head) = head else {
        // SAFETY: by this function's contract.
        return unsafe { real::sendmsg(fd, message, flags) };
    };
    // SAFETY: by this function's contract.
    let Ok(copies) = (unsafe { private_ends(&mut head) }) else { return -1 };
    let call = |parts: *const iovec, count: c_int| {
        let one = msghdr { msg_iov: parts.cast_mut(), msg_iovlen: count as _, ..head };
        // SAFETY: the caller's message, its buffers perhaps elsewhere.
        unsafe { real::sendmsg(fd, &one, flags) }
    };
    // SAFETY: by this function's contract.
    let sent = unsafe { vectors::transfer(fd, head.msg_iov, head.msg_iovlen as c_int, Way::Out, call) };
    copies.into_iter().flatten().for_each(Private::give_back);
    sent
}

/// Receives a message.
///
/// # Safety
/// As for `recvmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by this function's contract.
    let head = unsafe { if message_is_shared(message) { head(message, Way::In) } else { None } };
    let Some(head) = head else {
        // SAFETY: by this function's contract.
        return unsafe { real::recvmsg(fd, message, flags) };
    };
    // A message whose name or control data meet a page that has gone is lost, and descriptors with it.
    let name_bytes = (head.msg_namelen as usize).min(size_of::<sockaddr_storage>());
    let own_name = heap::overlaps(head.msg_name, head.msg_namelen as usize);
    let own_control = heap::overlaps(head.msg_control, head.msg_controllen);
    let control = if own_control { Private::new(head.msg_controllen) } else { None };
    if own_control && control.is_none() {
        return -1;
    }
    let (mut name, mut told) = (no_name(), head);
    let call = |parts: *const iovec, count: c_int| {
        told = msghdr { msg_iov: parts.cast_mut(), msg_iovlen: count as _, ..head };
        if own_name {
            (told.msg_name, told.msg_namelen) = ((&raw mut name).cast(), name_bytes as socklen_t);
        }
        if let Some(control) = &control {
            told.msg_control = control.start.cast();
        }
        // SAFETY: the caller's message, its buffers perhaps elsewhere.
        unsafe { real::recvmsg(fd, &mut told, flags) }
    };
    // SAFETY: by this function's contract.
    let got = unsafe { vectors::transfer(fd, head.msg_iov, head.msg_iovlen as c_int, Way::In, call) };
    if got >= 0 {
        // SAFETY: by this function's contract the message is the caller's to be filled in, and so is what it points to.
        unsafe {
            if own_name {
                let bytes = name_bytes.min(told.msg_namelen as usize);
                heap::store((&raw const name).cast(), head.msg_name.cast(), bytes);
            }
            if let Some(control) = &control {
                heap::store(control.start, head.msg_control.cast(), told.msg_controllen);
            }
            let filled = msghdr {
                msg_namelen: told.msg_namelen,
                msg_controllen: told.msg_controllen,
                msg_flags: told.msg_flags,
                ..head
            };
            heap::store((&raw const filled).cast(), message.cast(), size_of::<msghdr>());
        }
    }
    control.into_iter().for_each(Private::give_back);
    got
}
