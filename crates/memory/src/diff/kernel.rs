//! The loops over a page's bytes, for each kind of processor: compare, gather, scatter.
//!
//! Memory that others may be writing is loaded and stored by volatile accesses or by instructions that the compiler
//! cannot see into, each once; the twin, the masks and the encoded bytes are ours alone.

use super::BadDiff;
use super::encoding::{self, Reader};
use crate::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::ByteMarks;

/// 64-byte pieces of a page.
pub const CHUNKS: usize = PAGE_BYTES / 64;

/// One bit for each byte of a page: whether it changed. Bit `b` of mask `c` stands for byte `64 c + b`.
pub type Masks = ByteMarks;

/// Nothing changed.
pub const NO_MASKS: Masks = [0; CHUNKS];

/// A changed page of an encoded diff.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Its number within the unit.
    pub number: usize,
    /// Its changed bytes, as many as its masks have bits.
    pub bytes: &'a [u8],
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn bmi() -> bool {
    is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("lzcnt")
}

/// The kinds of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Plain Rust, eight bytes at a time.
    Portable,
    /// Compares 64 bytes in two steps, and copies bytes by runs.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    /// Compares 64 bytes in one step, and packs and unpacks bytes and bits in one (`avx512bw`, `avx512vbmi2`, `bmi2`).
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
}

impl Kernel {
    /// Those that work on this processor, the best last.
    pub fn all() -> impl DoubleEndedIterator<Item = Kernel> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let simd = {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") && bmi();
            let avx512 = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi2");
            [(avx2, Kernel::Avx2), (avx2 && avx512, Kernel::Avx512)]
        };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let simd: [(bool, Kernel); 0] = [];
        let works = simd.into_iter().filter(|(works, _)| *works).map(|(_, kernel)| kernel);
        std::iter::once(Kernel::Portable).chain(works)
    }

    /// The best that works on this processor.
    pub fn best() -> Kernel {
        Kernel::all().next_back().unwrap_or(Kernel::Portable)
    }

    /// Compares the page at `now` with its twin, marks what differs, and brings the twin up to date. Returns the number
    /// of marks.
    ///
    /// # Safety
    /// A page is readable at `now`; the kernel works on this processor.
    pub unsafe fn compare(self, now: *const u8, twin: &mut [u8; PAGE_BYTES], masks: &mut Masks) -> usize {
        // SAFETY: the caller's promises.
        unsafe {
            match self {
                Kernel::Portable => portable::compare(now, twin, masks),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Kernel::Avx2 => x86::compare_avx2(now, twin, masks),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Kernel::Avx512 => x86::compare_avx512(now, twin, masks),
            }
        }
    }

    /// Appends the marked bytes of a page, `count` of them.
    ///
    /// # Safety
    /// The kernel works on this processor.
    pub unsafe fn gather(self, page: &[u8; PAGE_BYTES], masks: &Masks, count: usize, out: &mut Vec<u8>) {
        debug_assert_eq!(count, masks.iter().map(|mask| mask.count_ones() as usize).sum());
        out.reserve(count + 64);
        match self {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the caller's promise; there is room for the bytes and one piece more.
            Kernel::Avx512 => unsafe { x86::gather_avx512(page, masks, out) },
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: as above.
            Kernel::Avx2 => unsafe { x86::gather_avx2(page, masks, out) },
            Kernel::Portable => portable::gather(page, masks, out),
        }
    }

    /// Appends form and head of a page of an encoded diff ([`encoding::write_head`]).
    ///
    /// # Safety
    /// The kernel works on this processor.
    pub unsafe fn write_head(self, masks: &Masks, changed: usize, out: &mut Vec<u8>) {
        match self {
            Kernel::Portable => encoding::write_head::<Plain>(masks, changed, out),
            // SAFETY: the caller's promise.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Kernel::Avx2 => unsafe { x86::write_head_avx2(masks, changed, out) },
            // SAFETY: the caller's promise.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Kernel::Avx512 => unsafe { x86::write_head_avx512(masks, changed, out) },
        }
    }

    /// The next page of an encoded diff ([`Reader::next`]).
    ///
    /// # Safety
    /// The kernel works on this processor.
    pub unsafe fn next<'a>(self, reader: &mut Reader<'a>, masks: &mut Masks) -> Result<Option<Page<'a>>, BadDiff> {
        match self {
            Kernel::Portable => reader.next::<Plain>(masks),
            // SAFETY: the caller's promise.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Kernel::Avx2 => unsafe { x86::next_avx2(reader, masks) },
            // SAFETY: the caller's promise.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Kernel::Avx512 => unsafe { x86::next_avx512(reader, masks) },
        }
    }

    /// Stores bytes to the marked places of the page at `target`, and nothing anywhere else.
    ///
    /// # Safety
    /// A page is writable at `target`; `bytes` has as many bytes as `masks` has marks; the kernel works on this
    /// processor.
    pub unsafe fn scatter(self, target: *mut u8, masks: &Masks, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), masks.iter().map(|mask| mask.count_ones() as usize).sum());
        // SAFETY: the caller's promises.
        unsafe {
            match self {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Kernel::Avx512 => x86::scatter_avx512(target, masks, bytes),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Kernel::Avx2 => x86::scatter_avx2(target, masks, bytes),
                Kernel::Portable => portable::scatter(target, masks, bytes),
            }
        }
    }
    /// Stores the marked bytes of `page` to the page at `target`, and nothing else.
    ///
    /// # Safety
    /// A page is writable at `target`; the kernel works on this processor.
    pub unsafe fn merge(self, target: *mut u8, page: &[u8; PAGE_BYTES], masks: &Masks) {
        // SAFETY: the caller's promises.
        unsafe {
            match self {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Kernel::Avx512 => x86::merge_avx512(target, page, masks),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Kernel::Avx2 => x86::merge_avx2(target, page, masks),
                Kernel::Portable => portable::merge(target, page, masks),
            }
        }
    }
}

/// The highest bit of each byte of a word that is not zero.
#[inline(always)]
pub fn tops(word: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    (((word & LOW) + LOW) | word) & !LOW
}

/// One bit for each byte of a word that is not zero, the lowest byte's first.
#[inline(always)]
pub fn spread(word: u64) -> u8 {
    // The factor moves the bit of byte i to place 56 + i, and nothing else there.
    ((tops(word) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Bits taken from places of a word, and put there.
pub trait Bits {
    /// The bits of `word` at `places`, one beside the other from the lowest place on.
    fn pack(word: u64, places: u64) -> u64;
    /// The lowest bits of `word`, at `places`.
    fn unpack(word: u64, places: u64) -> u64;
}

/// [`Bits`] in plain Rust.
pub struct Plain;

impl Bits for Plain {
    #[inline(always)]
    fn pack(word: u64, places: u64) -> u64 {
        let (mut packed, mut left, mut at) = (0, places, 0);
        while left != 0 {
            // As many places in a row as there are.
            let first = left.trailing_zeros();
            let count = (!(left >> first)).trailing_zeros();
            let run = if count < 64 { (1 << count) - 1 } else { u64::MAX };
            packed |= (word >> first & run) << at;
            at += count;
            left &= !(run << first);
        }
        packed
    }

    #[inline(always)]
    fn unpack(word: u64, places: u64) -> u64 {
        let (mut unpacked, mut left, mut word) = (0, places, word);
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (!(left >> first)).trailing_zeros();
            let run = if count < 64 { (1 << count) - 1 } else { u64::MAX };
            unpacked |= (word & run) << first;
            word = word.checked_shr(count).unwrap_or(0);
            left &= !(run << first);
        }
        unpacked
    }
}

mod portable {
    use super::{Masks, PAGE_BYTES, spread};

    /// # Safety
    /// Eight bytes are readable at `from`.
    unsafe fn load(from: *const u8) -> u64 {
        if from.cast::<u64>().is_aligned() {
            // SAFETY: readable by the caller's word, and aligned.
            return u64::from_le(unsafe { from.cast::<u64>().read_volatile() });
        }
        // SAFETY: as above, byte by byte.
        u64::from_le_bytes(std::array::from_fn(|i| unsafe { from.add(i).read_volatile() }))
    }

    /// # Safety
    /// A page is readable at `now`.
    pub unsafe fn compare(now: *const u8, twin: &mut [u8; PAGE_BYTES], masks: &mut Masks) -> usize {
        let mut changed = 0;
        let chunks = twin.as_chunks_mut::<64>().0;
        for (chunk, (twin, mask)) in chunks.iter_mut().zip(masks.iter_mut()).enumerate() {
            *mask = 0;
            for (place, twin) in twin.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                // SAFETY: within the page.
                let word = unsafe { load(now.add(chunk * 64 + place * 8)) };
                let difference = word ^ u64::from_le_bytes(*twin);
                if difference != 0 {
                    *mask |= u64::from(spread(difference)) << (place * 8);
                    *twin = word.to_le_bytes();
                }
            }
            changed += mask.count_ones() as usize;
        }
        changed
    }

    pub fn gather(page: &[u8; PAGE_BYTES], masks: &Masks, out: &mut Vec<u8>) {
        for (chunk, mask) in page.as_chunks::<64>().0.iter().zip(masks) {
            match *mask {
                0 => continue,
                u64::MAX => out.extend_from_slice(chunk),
                _ => chunk.as_chunks::<8>().0.iter().zip(mask.to_le_bytes()).for_each(|(word, mask)| match mask {
                    0 => {}
                    0xFF => out.extend_from_slice(word),
                    _ => out.extend((0..8).filter(|bit| mask >> bit & 1 != 0).map(|bit| word[bit])),
                }),
            }
        }
    }

    /// # Safety
    /// A page is writable at `target`; there are as many bytes as marks.
    pub unsafe fn scatter(target: *mut u8, masks: &Masks, mut bytes: &[u8]) {
        for (word, mask) in masks.iter().flat_map(|mask| mask.to_le_bytes()).enumerate() {
            if mask == 0 {
                continue;
            }
            let (these, rest) = bytes.split_at(mask.count_ones() as usize);
            bytes = rest;
            // SAFETY: within the page; marked bytes alone are stored.
            unsafe { scatter_word(target.add(word * 8), mask, these) };
        }
    }

    /// # Safety
    /// A page is writable at `target`.
    pub unsafe fn merge(target: *mut u8, page: &[u8; PAGE_BYTES], masks: &Masks) {
        let words = page.as_chunks::<8>().0.iter().zip(masks.iter().flat_map(|mask| mask.to_le_bytes()));
        for (number, (word, mask)) in words.enumerate().filter(|(_, (_, mask))| *mask != 0) {
            let (mut marked, mut count) = (*word, 8);
            if mask != 0xFF {
                let places = (0..8).filter(|place| mask >> place & 1 != 0);
                count = places.zip(&mut marked).map(|(at, to)| *to = word[at]).count();
            }
            // SAFETY: within the page; marked bytes alone are stored.
            unsafe { scatter_word(target.add(number * 8), mask, &marked[..count]) };
        }
    }

    /// # Safety
    /// Eight bytes are writable at `target`; there are as many bytes as marks.
    unsafe fn scatter_word(target: *mut u8, mask: u8, bytes: &[u8]) {
        if let (Ok(word), true) = (<[u8; 8]>::try_from(bytes), target.cast::<u64>().is_aligned()) {
            // SAFETY: all eight bytes are marked; aligned.
            return unsafe { target.cast::<u64>().write_volatile(u64::from_ne_bytes(word)) };
        }
        let places = (0..8).filter(|place| mask >> place & 1 != 0);
        for (place, byte) in places.zip(bytes) {
            // SAFETY: a marked byte.
            unsafe { target.add(place).write_volatile(*byte) };
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::{BadDiff, Bits, Masks, PAGE_BYTES, Page, Plain, Reader, encoding};
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// # Safety
    /// A page is readable at `now`; the processor has AVX2.
    #[target_feature(enable = "avx2,popcnt")]
    pub unsafe fn compare_avx2(now: *const u8, twin: &mut [u8; PAGE_BYTES], masks: &mut Masks) -> usize {
        let mut changed = 0;
        for (chunk, (twin, mask)) in twin.as_chunks_mut::<64>().0.iter_mut().zip(masks.iter_mut()).enumerate() {
            let (low, high): (__m256i, __m256i);
            // SAFETY: loads 64 bytes of the page, each once, whatever others store there meanwhile.
            unsafe {
                asm!("vmovdqu {low}, [{from}]", "vmovdqu {high}, [{from} + 32]", from = in(reg) now.add(chunk * 64),
                    low = out(ymm_reg) low, high = out(ymm_reg) high, options(nostack, preserves_flags, readonly));
            }
            let twin: *mut __m256i = twin.as_mut_ptr().cast();
            // SAFETY: the two halves of the twin's 64 bytes.
            let (twin_low, twin_high) = unsafe { (_mm256_loadu_si256(twin), _mm256_loadu_si256(twin.add(1))) };
            let same_low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, twin_low)) as u32;
            let same_high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, twin_high)) as u32;
            *mask = !(u64::from(same_low) | u64::from(same_high) << 32);
            if *mask != 0 {
                changed += mask.count_ones() as usize;
                // SAFETY: as above.
                unsafe {
                    _mm256_storeu_si256(twin, low);
                    _mm256_storeu_si256(twin.add(1), high);
                }
            }
        }
        changed
    }

    /// # Safety
    /// A page is readable at `now`; the processor has AVX-512 with BW.
    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    pub unsafe fn compare_avx512(now: *const u8, twin: &mut [u8; PAGE_BYTES], masks: &mut Masks) -> usize {
        let mut changed = 0;
        for (chunk, (twin, mask)) in twin.as_chunks_mut::<64>().0.iter_mut().zip(masks.iter_mut()).enumerate() {
            let new: __m512i;
            // SAFETY: loads 64 bytes of the page, each once, whatever others store there meanwhile.
            unsafe {
                asm!("vmovdqu64 {new}, [{from}]", from = in(reg) now.add(chunk * 64), new = out(zmm_reg) new,
                    options(nostack, preserves_flags, readonly));
            }
            let twin: *mut __m512i = twin.as_mut_ptr().cast();
            // SAFETY: the twin's 64 bytes.
            *mask = _mm512_cmpneq_epi8_mask(new, unsafe { _mm512_loadu_si512(twin) });
            if *mask != 0 {
                changed += mask.count_ones() as usize;
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(twin, new) };
            }
        }
        changed
    }

    /// The runs of marks of a piece of 64 bytes, each by its first place and its length.
    #[inline(always)]
    fn for_runs(mask: u64, mut f: impl FnMut(usize, usize)) {
        let mut left = mask;
        while left != 0 {
            let first = left.trailing_zeros();
            f(first as usize, (left >> first).trailing_ones() as usize);
            // The lowest bit, added, carries through its run.
            left &= left.wrapping_add(left & left.wrapping_neg());
        }
    }

    /// Stores the two ends of a run, which cover it, by instructions of so many bytes.
    macro_rules! store_ends {
        ($to:ident, $from:ident, $len:ident, $bytes:literal, $value:ty, $class:ident, $mov:literal, $form:literal) => {
            asm!(concat!($mov, " [{to}], {first", $form, "}"), concat!($mov, " [{to} + {rest}], {last", $form, "}"),
                to = in(reg) $to, rest = in(reg) $len - $bytes,
                first = in($class) $from.cast::<$value>().read_unaligned(),
                last = in($class) $from.add($len - $bytes).cast::<$value>().read_unaligned(),
                options(nostack, preserves_flags))
        };
    }

    /// Stores 1 to 64 bytes, some of them twice, and nothing beside them.
    ///
    /// # Safety
    /// So many bytes are readable at `from`, which are ours alone, and writable at `to`.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store_run(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: the caller's promise; both ends lie within the run, which is as long as one of them at least.
        unsafe {
            match len {
                32.. => store_ends!(to, from, len, 32, __m256i, ymm_reg, "vmovdqu", ""),
                16.. => store_ends!(to, from, len, 16, __m128i, xmm_reg, "vmovdqu", ""),
                8.. => store_ends!(to, from, len, 8, u64, reg, "mov", ":r"),
                4.. => store_ends!(to, from, len, 4, u32, reg, "mov", ":e"),
                2.. => store_ends!(to, from, len, 2, u16, reg, "mov", ":x"),
                _ => to.write_volatile(*from),
            }
        }
    }

    /// # Safety
    /// The processor has AVX2; `out` has room for the marked bytes.
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn gather_avx2(page: &[u8; PAGE_BYTES], masks: &Masks, out: &mut Vec<u8>) {
        let mut len = out.len();
        for (chunk, mask) in page.as_chunks::<64>().0.iter().zip(masks) {
            for_runs(*mask, |first, count| {
                // SAFETY: within the piece, by the mask; there is room for all marked bytes, by the caller's word.
                unsafe { store_run(out.as_mut_ptr().add(len), chunk.as_ptr().add(first), count) };
                len += count;
            });
        }
        // SAFETY: every byte up to `len` has been stored, and there was room.
        unsafe { out.set_len(len) };
    }

    /// # Safety
    /// A page is writable at `target`; there are as many bytes as marks; the processor has AVX2.
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn scatter_avx2(target: *mut u8, masks: &Masks, bytes: &[u8]) {
        let mut bytes = bytes;
        for (chunk, mask) in masks.iter().enumerate() {
            for_runs(*mask, |first, count| {
                let (these, rest) = bytes.split_at(count);
                bytes = rest;
                // SAFETY: marked bytes of the page alone.
                unsafe { store_run(target.add(chunk * 64 + first), these.as_ptr(), count) };
            });
        }
    }

    /// # Safety
    /// A page is writable at `target`; the processor has AVX2.
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn merge_avx2(target: *mut u8, page: &[u8; PAGE_BYTES], masks: &Masks) {
        for (chunk, (bytes, mask)) in page.as_chunks::<64>().0.iter().zip(masks).enumerate() {
            for_runs(*mask, |first, count| {
                // SAFETY: marked bytes of the page alone.
                unsafe { store_run(target.add(chunk * 64 + first), bytes.as_ptr().add(first), count) };
            });
        }
    }

    /// One instruction each. Processors with AVX2 alone need hundreds of cycles for it, some of them.
    struct Native;

    impl Bits for Native {
        #[inline(always)]
        fn pack(word: u64, places: u64) -> u64 {
            // SAFETY: this is reached through functions with BMI2 alone.
            unsafe { _pext_u64(word, places) }
        }

        #[inline(always)]
        fn unpack(word: u64, places: u64) -> u64 {
            // SAFETY: as above.
            unsafe { _pdep_u64(word, places) }
        }
    }

    /// # Safety
    /// The processor has these.
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn write_head_avx2(masks: &Masks, changed: usize, out: &mut Vec<u8>) {
        encoding::write_head::<Plain>(masks, changed, out);
    }

    /// # Safety
    /// The processor has these.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn write_head_avx512(masks: &Masks, changed: usize, out: &mut Vec<u8>) {
        encoding::write_head::<Native>(masks, changed, out);
    }

    /// # Safety
    /// The processor has these.
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn next_avx2<'a>(reader: &mut Reader<'a>, masks: &mut Masks) -> Result<Option<Page<'a>>, BadDiff> {
        reader.next::<Plain>(masks)
    }

    /// # Safety
    /// The processor has these.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn next_avx512<'a>(reader: &mut Reader<'a>, masks: &mut Masks) -> Result<Option<Page<'a>>, BadDiff> {
        reader.next::<Native>(masks)
    }

    /// # Safety
    /// The processor has AVX-512 with BW and VBMI2; `out` has room for the marked bytes and 64 more.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    pub unsafe fn gather_avx512(page: &[u8; PAGE_BYTES], masks: &Masks, out: &mut Vec<u8>) {
        let mut len = out.len();
        for (chunk, mask) in page.as_chunks::<64>().0.iter().zip(masks) {
            if *mask == 0 {
                continue;
            }
            // SAFETY: a piece of the page; 64 bytes of room at `len`, by the caller's word.
            unsafe {
                let packed = _mm512_maskz_compress_epi8(*mask, _mm512_loadu_si512(chunk.as_ptr().cast()));
                _mm512_storeu_si512(out.as_mut_ptr().add(len).cast(), packed);
            }
            len += mask.count_ones() as usize;
        }
        // SAFETY: every byte up to `len` has been stored, and there was room.
        unsafe { out.set_len(len) };
    }

    /// # Safety
    /// A page is writable at `target`; there are as many bytes as marks; the processor has AVX-512 with BW and VBMI2.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    pub unsafe fn scatter_avx512(target: *mut u8, masks: &Masks, bytes: &[u8]) {
        let mut bytes = bytes;
        for (chunk, mask) in masks.iter().enumerate() {
            if *mask == 0 {
                continue;
            }
            let (these, rest) = bytes.split_at(mask.count_ones() as usize);
            bytes = rest;
            // SAFETY: loads `these` alone. The masked store writes the marked bytes alone: the others are neither read
            // nor written.
            unsafe {
                let known = u64::MAX >> (64 - these.len());
                let packed = _mm512_maskz_loadu_epi8(known, these.as_ptr().cast());
                let spread = _mm512_maskz_expand_epi8(*mask, packed);
                asm!("vmovdqu8 [{to}] {{{mask}}}, {spread}", to = in(reg) target.add(chunk * 64), mask = in(kreg) *mask,
                    spread = in(zmm_reg) spread, options(nostack, preserves_flags));
            }
        }
    }

    /// # Safety
    /// A page is writable at `target`; the processor has AVX-512 with BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn merge_avx512(target: *mut u8, page: &[u8; PAGE_BYTES], masks: &Masks) {
        for (chunk, (bytes, mask)) in page.as_chunks::<64>().0.iter().zip(masks).enumerate() {
            if *mask == 0 {
                continue;
            }
            // SAFETY: loads 64 bytes of the page. The masked store writes the marked bytes alone: the others are
            // neither read nor written.
            unsafe {
                let bytes = _mm512_loadu_si512(bytes.as_ptr().cast());
                asm!("vmovdqu8 [{to}] {{{mask}}}, {bytes}", to = in(reg) target.add(chunk * 64), mask = in(kreg) *mask,
                    bytes = in(zmm_reg) bytes, options(nostack, preserves_flags));
            }
        }
    }
}
