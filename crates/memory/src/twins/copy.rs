//! Copies to twins, past the caches where that is of use.

/// Copies to one twin; past the caches where `stream` says so, and then they are done when this returns.
///
/// # Safety
/// `len` bytes, a multiple of 4096, are readable at `from` and writable at `to`, which is a page's beginning; they do
/// not overlap.
pub(super) unsafe fn one(from: *const u8, to: *mut u8, len: usize, stream: bool) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if stream {
        // SAFETY: this function's own condition.
        unsafe { copy_past_caches(from, to, len) };
        return settle();
    }
    let _ = stream;
    // SAFETY: this function's own condition.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Copies past the caches, as far as the processor can; [`settle`] is to follow. With `near`, what is at `to` lies in
/// the caches, and is stored there: to store past them what they hold takes several times as long.
///
/// # Safety
/// `len` bytes, a multiple of 4096, are readable at `from` and writable at `to` and at `also`, which are aligned to 16.
pub(super) unsafe fn pass(from: *const u8, to: *mut u8, also: Option<*mut u8>, len: usize, near: bool) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: this function's own condition.
    unsafe {
        match also {
            Some(also) if near => copy_twice::<true>(from, to, also, len),
            Some(also) => copy_twice::<false>(from, to, also, len),
            None if near => std::ptr::copy_nonoverlapping(from, to, len),
            None => copy_past_caches(from, to, len),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: this function's own condition. What lies at `from` is read once: the second copy is one of the first.
    unsafe {
        let _ = near;
        std::ptr::copy_nonoverlapping(from, to, len);
        if let Some(also) = also {
            std::ptr::copy_nonoverlapping(to, also, len);
        }
    }
}

/// Streaming stores wait for nobody: without this a thread that is handed a twin, or sees the unit, could find it
/// older. Once for a run: the wait for each page's stores took 0.06 us of 0.42.
pub(super) fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: part of this architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// To `also` past the caches, and to `to` too unless that is `NEAR`.
///
/// # Safety
/// `len` bytes, a multiple of 64, are readable at `from` and writable at `to` and at `also`, which are aligned to 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_twice<const NEAR: bool>(from: *const u8, to: *mut u8, also: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128, _mm_stream_si128};
    let (from, to, also) = (from.cast::<__m128i>(), to.cast::<__m128i>(), also.cast::<__m128i>());
    for at in (0..len / 16).step_by(4) {
        // SAFETY: within all ranges; the targets are aligned; SSE2 is part of this architecture.
        unsafe {
            let mut words: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(at + i)));
            let [a, b, c, d] = &mut words;
            // Another node may be writing there: what was loaded is stored to both, and nothing is loaded twice.
            std::arch::asm!(
                "/* {0} {1} {2} {3} */",
                inout(xmm_reg) * a,
                inout(xmm_reg) * b,
                inout(xmm_reg) * c,
                inout(xmm_reg) * d,
                options(nomem, nostack, preserves_flags)
            );
            words.iter().enumerate().for_each(|(i, word)| match NEAR {
                true => _mm_store_si128(to.add(at + i), *word),
                false => _mm_stream_si128(to.add(at + i), *word),
            });
            words.iter().enumerate().for_each(|(i, word)| _mm_stream_si128(also.add(at + i), *word));
        }
    }
}

/// # Safety
/// `len` bytes, a multiple of 64, are readable at `from` and writable at `to`, which is aligned to 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for at in (0..len / 16).step_by(4) {
        // SAFETY: within both ranges; the target is aligned; SSE2 is part of this architecture.
        unsafe {
            let words: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(at + i)));
            words.iter().enumerate().for_each(|(i, word)| _mm_stream_si128(to.add(at + i), *word));
        }
    }
}
