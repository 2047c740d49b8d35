//! Blocks of bytes.

use super::memory::{CHUNK_BYTES, back, chunks, copy, find, is_lines, overlaps, read, set, write};
use std::cmp::Ordering;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use std::ptr::null_mut;

/// What `qsort` and `bsearch` are given.
type Compare = extern "C-unwind" fn(*const c_void, *const c_void) -> c_int;

unsafe extern "C-unwind" {
    #[link_name = "qsort"]
    fn sort(base: *mut c_void, count: usize, size: usize, compare: Compare);
    #[link_name = "bsearch"]
    fn search(key: *const c_void, base: *const c_void, count: usize, size: usize, compare: Compare) -> *mut c_void;
}

library! {
    /// `mempcpy`.
    fn __comem_inline_mempcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
        copy(to.cast(), from.cast(), bytes);
        to.wrapping_byte_add(bytes)
    }

    /// `bcopy`.
    fn __comem_inline_bcopy(from: *const c_void, to: *mut c_void, bytes: usize) {
        copy(to.cast(), from.cast(), bytes);
    }

    /// `bzero`.
    fn __comem_inline_bzero(to: *mut c_void, bytes: usize) {
        set(to.cast(), 0, bytes);
    }

    /// `memcmp`.
    fn __comem_inline_memcmp(one: *const c_void, other: *const c_void, bytes: usize) -> c_int {
        if !overlaps(one, bytes) && !overlaps(other, bytes) {
            return libc::memcmp(one, other, bytes);
        }
        let mut buffer = [0; CHUNK_BYTES];
        let differ = |done: usize, part: &[u8]| {
            read(buffer.as_mut_ptr(), other.cast::<u8>().wrapping_add(done), part.len());
            match part.cmp(&buffer[..part.len()]) {
                Ordering::Equal => ControlFlow::Continue(()),
                Ordering::Less => ControlFlow::Break(-1),
                Ordering::Greater => ControlFlow::Break(1),
            }
        };
        chunks(one.cast(), bytes, differ).unwrap_or(0)
    }

    /// `memchr`.
    fn __comem_inline_memchr(block: *const c_void, byte: c_int, bytes: usize) -> *mut c_void {
        if !is_lines(block) {
            return libc::memchr(block, byte, bytes);
        }
        let at = find(block.cast(), bytes, |one| one == byte as u8);
        at.map_or(null_mut(), |at| block.wrapping_byte_add(at).cast_mut())
    }

    /// `memrchr`.
    fn __comem_inline_memrchr(block: *const c_void, byte: c_int, bytes: usize) -> *mut c_void {
        if !overlaps(block, bytes) {
            return libc::memrchr(block, byte, bytes);
        }
        let mut private = Vec::<u8>::with_capacity(bytes);
        read(private.as_mut_ptr(), block.cast(), bytes);
        back(libc::memrchr(private.as_ptr().cast(), byte, bytes), private.as_ptr().cast(), block)
    }

    /// `qsort`. Elements are compared at private addresses.
    fn __comem_inline_qsort(base: *mut c_void, count: usize, size: usize, compare: Compare) {
        let bytes = count.saturating_mul(size);
        if !overlaps(base, bytes) {
            return sort(base, count, size, compare);
        }
        // Elements may hold numbers of any kind, whose alignment the comparison relies on.
        let mut private = Vec::<u128>::with_capacity(bytes.div_ceil(size_of::<u128>()));
        read(private.as_mut_ptr().cast(), base.cast(), bytes);
        sort(private.as_mut_ptr().cast(), count, size, compare);
        write(base.cast(), private.as_ptr().cast(), bytes);
    }

    /// `bsearch`. The comparison is the program's, and so has checks.
    fn __comem_inline_bsearch(
        key: *const c_void, base: *const c_void, count: usize, size: usize, compare: Compare,
    ) -> *mut c_void {
        if !overlaps(base, count.saturating_mul(size)) {
            return search(key, base, count, size, compare);
        }
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = from + (to - from) / 2;
            let element = base.wrapping_byte_add(middle * size);
            match compare(key, element) {
                0 => return element.cast_mut(),
                less if less < 0 => to = middle,
                _ => from = middle + 1,
            }
        }
        null_mut()
    }
}
