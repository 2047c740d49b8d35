//! The C library's streams, and names of files and variables.

use super::memory::{Text, is_lines, keeping_errno, overlaps, read, write};
use libc::{FILE, c_char, c_int, c_void};
use std::ptr::null_mut;

unsafe extern "C-unwind" {
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// So many bytes of a stream travel through private memory at once.
const PIECE_BYTES: usize = 1 << 16;

/// Moves so many bytes piece by piece, with the stream held, until `call` moves less than a piece; how many were moved.
///
/// # Safety
/// The stream is open.
unsafe fn in_pieces(stream: *mut FILE, bytes: usize, mut call: impl FnMut(&mut [u8], usize) -> usize) -> usize {
    let (mut private, mut done) = (vec![0; PIECE_BYTES.min(bytes)], 0);
    // SAFETY: by this function's contract.
    unsafe { flockfile(stream) };
    while done < bytes {
        let piece = (bytes - done).min(PIECE_BYTES);
        let moved = call(&mut private[..piece], done);
        done += moved;
        if moved < piece {
            break;
        }
    }
    // SAFETY: as above, and locked.
    unsafe { funlockfile(stream) };
    done
}

library! {
    /// `puts`.
    fn __comem_inline_puts(text: *const c_char) -> c_int {
        libc::puts(Text::of(text).pointer())
    }

    /// `fputs`.
    fn __comem_inline_fputs(text: *const c_char, stream: *mut FILE) -> c_int {
        libc::fputs(Text::of(text).pointer(), stream)
    }

    /// `fgets`.
    fn __comem_inline_fgets(to: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char {
        if !is_lines(to) || room <= 0 {
            return libc::fgets(to, room, stream);
        }
        let mut private = vec![0xff_u8; room as usize];
        if libc::fgets(private.as_mut_ptr().cast(), room, stream).is_null() {
            return null_mut();
        }
        // A line may have zeros in it, but the last one is its end.
        let bytes = private.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
        keeping_errno(|| write(to.cast(), private.as_ptr(), bytes));
        to
    }

    /// `fread`.
    fn __comem_inline_fread(to: *mut c_void, size: usize, count: usize, stream: *mut FILE) -> usize {
        let bytes = size.saturating_mul(count);
        if !overlaps(to, bytes) {
            return libc::fread(to, size, count, stream);
        }
        let moved = in_pieces(stream, bytes, |piece, done| {
            let moved = libc::fread(piece.as_mut_ptr().cast(), 1, piece.len(), stream);
            keeping_errno(|| write(to.cast::<u8>().add(done), piece.as_ptr(), moved));
            moved
        });
        moved / size.max(1)
    }

    /// `fwrite`.
    fn __comem_inline_fwrite(from: *const c_void, size: usize, count: usize, stream: *mut FILE) -> usize {
        let bytes = size.saturating_mul(count);
        if !overlaps(from, bytes) {
            return libc::fwrite(from, size, count, stream);
        }
        let moved = in_pieces(stream, bytes, |piece, done| {
            read(piece.as_mut_ptr(), from.cast::<u8>().add(done), piece.len());
            libc::fwrite(piece.as_ptr().cast(), 1, piece.len(), stream)
        });
        moved / size.max(1)
    }

    /// `perror`.
    fn __comem_inline_perror(text: *const c_char) {
        let text = keeping_errno(|| Text::of(text));
        libc::perror(text.pointer());
    }

    /// `fopen`.
    fn __comem_inline_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let (path, mode) = (Text::of(path), Text::of(mode));
        libc::fopen(path.pointer(), mode.pointer())
    }

    /// `getenv`.
    fn __comem_inline_getenv(name: *const c_char) -> *mut c_char {
        libc::getenv(Text::of(name).pointer())
    }
}
