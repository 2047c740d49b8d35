#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are what is encoded")]

use super::*;
use crate::mapping::Mapping;
use kernel::{Bits, Plain};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The changed ranges, byte by byte.
fn model(now: &[u8], twin: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for at in (0..now.len()).filter(|at| now[*at] != twin[*at]) {
        match ranges.last_mut() {
            Some(last) if last.end == at && at % PAGE_BYTES != 0 => last.end += 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

fn make_with(kernel: Kernel, now: &[u8], twin: &mut [u8]) -> (usize, Vec<u8>) {
    let mut out = b"before".to_vec();
    // SAFETY: `now` is as long as the twin, and the kernel is one of `Kernel::all`.
    let changed = unsafe { make_by(kernel, now.as_ptr(), twin, &mut out) };
    assert_eq!(out[..6], *b"before", "what was there stays");
    (changed, out.split_off(6))
}

/// Every kernel makes the same bytes, which say exactly what the model says and rebuild the memory.
fn all_agree(now: &[u8], twin: &[u8]) -> Vec<u8> {
    let mut encoded: Option<Vec<u8>> = None;
    let expected = model(now, twin);
    for kernel in Kernel::all() {
        let mut new_twin = twin.to_vec();
        let (changed, bytes) = make_with(kernel, now, &mut new_twin);
        assert!(new_twin == now, "{kernel:?}: the twin is up to date");
        assert_eq!(changed, expected.iter().map(Range::len).sum(), "{kernel:?}");
        assert_eq!(ranges(&bytes).collect::<Vec<_>>(), expected, "{kernel:?}");
        if changed == 0 {
            assert_eq!(bytes, []);
            continue;
        }
        assert_eq!(check(&bytes, now.len()), Ok(bytes.len()), "{kernel:?}");
        assert_eq!(check(&[&bytes[..], &[7; 3]].concat(), now.len()), Ok(bytes.len()), "more may follow");
        // Others have written all that did not change.
        let others: Vec<u8> = now.iter().zip(twin).map(|(now, twin)| if now == twin { !now } else { *twin }).collect();
        let stored: Vec<u8> = now.iter().zip(twin).map(|(now, twin)| if now == twin { !now } else { *now }).collect();
        let (mut applied, mut renewed, mut put) = (others.clone(), others.clone(), others);
        // SAFETY: all are as long as the unit.
        unsafe {
            apply_by(kernel, applied.as_mut_ptr(), applied.len(), &bytes).unwrap();
            renew_by(kernel, renewed.as_mut_ptr(), &mut twin.to_vec(), now);
            put_by(kernel, now.as_ptr(), &mut twin.to_vec(), put.as_mut_ptr(), &mut |_, _| ());
        }
        assert!(applied == stored, "{kernel:?}: applied");
        assert!(renewed == stored, "{kernel:?}: renewed");
        assert!(put == stored, "{kernel:?}: put");
        assert_eq!(*encoded.get_or_insert(bytes.clone()), bytes, "{kernel:?}");
    }
    encoded.unwrap_or_default()
}

#[test]
fn putting_stores_what_differs_from_the_twin_and_nothing_else() {
    let twin: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    let places = (0..300).chain([4095, 8192, 9000]).chain((10_000..11_000).step_by(3));
    let now = changed(&twin, places.clone());
    let others: Vec<usize> = (300..4000).step_by(7).collect();
    for kernel in Kernel::all() {
        let (mut target, mut new_twin, mut told) = (changed(&twin, others.iter().copied()), twin.clone(), Vec::new());
        let mut tell = |page, marks: &ByteMarks| told.push((page, *marks));
        // SAFETY: page, twin and target are equally long, and the kernel is one of `Kernel::all`.
        let count = unsafe { put_by(kernel, now.as_ptr(), &mut new_twin, target.as_mut_ptr(), &mut tell) };
        assert_eq!(count, places.clone().count(), "{kernel:?}");
        assert!(new_twin == now, "{kernel:?}");
        assert!(target == changed(&now, others.iter().copied()), "{kernel:?}: what others wrote has stayed");
        let mut encoded = Vec::new();
        make_slice(&now, &mut twin.clone(), &mut encoded);
        let mut said = Vec::new();
        marks(&encoded, |page, marks| said.push((page, *marks)));
        assert_eq!(told, said, "{kernel:?}: as an encoded diff says it");
    }
}

#[test]
fn a_twin_is_brought_up_to_date_and_said_to_have_differed_if_it_did() {
    let twin: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    for kernel in Kernel::all() {
        for places in [0..0, 0..1, 4095..4097, 3 * PAGE_BYTES - 1..3 * PAGE_BYTES, 0..3 * PAGE_BYTES] {
            let (now, mut updated) = (changed(&twin, places.clone()), twin.clone());
            // SAFETY: page and twin are equally long, and the kernel is one of `Kernel::all`.
            let differed = unsafe { update_by(kernel, now.as_ptr(), &mut updated) };
            assert_eq!((differed, updated == now), (!places.is_empty(), true), "{kernel:?}, {places:?}");
        }
    }
}

#[test]
fn renewing_stores_what_differs_from_the_twin_and_nothing_else() {
    let twin: Vec<u8> = (0..2 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    let places = (0..300).chain([4095, 4096, 5000]).chain((6000..7000).step_by(3));
    let bytes = changed(&twin, places.clone());
    let others: Vec<usize> = (300..4000).step_by(7).collect();
    for kernel in Kernel::all() {
        let (mut target, mut new_twin) = (changed(&twin, others.iter().copied()), twin.clone());
        // SAFETY: target, twin and bytes are equally long, and the kernel is one of `Kernel::all`.
        unsafe { renew_by(kernel, target.as_mut_ptr(), &mut new_twin, &bytes) };
        assert!(new_twin == bytes, "{kernel:?}");
        assert!(target == changed(&bytes, others.iter().copied()), "{kernel:?}: what others wrote has stayed");
    }
}

fn changed(twin: &[u8], places: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut now = twin.to_vec();
    places.into_iter().for_each(|at| now[at] = !now[at]);
    now
}

#[test]
fn sizes_are_what_was_asked_for() {
    let twin = vec![0x55; PAGE_BYTES];
    let size = |places: &mut dyn Iterator<Item = usize>| all_agree(&changed(&twin, places), &twin).len();
    assert_eq!(size(&mut (0..0)), 0);
    assert_eq!(size(&mut (8..9)), 7, "one byte");
    assert_eq!(size(&mut (800..808)), 14, "one word");
    assert_eq!(size(&mut (0..PAGE_BYTES)), PAGE_BYTES + 3);
    let every_other = |at: &usize| (at / 8).is_multiple_of(2);
    assert_eq!(size(&mut (0..PAGE_BYTES).filter(every_other)), 2048 + 24 + 3, "every other word");
    let scattered = |at: &usize| at / 8 * 7919 % 512 < 128;
    assert_eq!(size(&mut (0..PAGE_BYTES).filter(scattered)), 1024 + 64 + 3, "words without a pattern");
    assert_eq!(size(&mut (0..PAGE_BYTES).filter(|at| at % 8 != 7)), 3584 + 24 + 3, "but one byte of each");
    assert_eq!(size(&mut (0..PAGE_BYTES).step_by(4)), 1024 + 24 + 3, "counters of 4 bytes");
    assert_eq!(size(&mut (1024..2048).step_by(4)), 256 + 8 + 8 + 2 + 3, "counters in a quarter of the page");
    let some_carry = |at: &usize| at.is_multiple_of(4) || at % 128 == 1;
    assert_eq!(size(&mut (0..PAGE_BYTES).filter(some_carry)), 1024 + 32 + 24 + 2 * 32 + 3, "some of which carry");
    let is_picked = |word: usize| word.wrapping_mul(2_654_435_761) >> 9 & 3 == 0;
    let words = (0..PAGE_BYTES / 8).filter(|word| is_picked(*word)).count();
    let ragged = |at: &usize| is_picked(at / 8) && at % 8 < 6 && at.is_multiple_of(2);
    let size_of_ragged = 3 * words + 64 + words.div_ceil(8) + words + 3;
    assert_eq!(size(&mut (0..PAGE_BYTES).filter(ragged)), size_of_ragged, "parts of words without a pattern");
    assert_eq!(size(&mut (100..2100)), 2000 + 8, "one long run");
    let at_random = |at: &usize| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 & 1 != 0;
    let count = (0..PAGE_BYTES).filter(at_random).count();
    let longest = count + 24 + 64 * 9 + 3;
    assert_eq!(size(&mut (0..PAGE_BYTES).filter(at_random)), longest, "the longest head: no word is as usual");
}

#[test]
fn runs_end_at_the_edges_of_pieces_and_pages() {
    let twin = vec![0; 3 * PAGE_BYTES];
    for run in [0..1, 63..65, 64..128, 4000..4096, 4095..4097, 8191..8193, 0..12_288, 12_287..12_288] {
        all_agree(&changed(&twin, run), &twin);
    }
}

#[test]
fn runs_of_every_length_are_read_as_they_were_written() {
    let twin = vec![0; PAGE_BYTES];
    for len in 1..40 {
        all_agree(&changed(&twin, 100..100 + len), &twin);
        all_agree(&changed(&twin, (100..100 + len).chain(1000..1015).chain(2000..2016)), &twin);
    }
}

/// The count of runs is one byte.
#[test]
fn more_runs_than_a_list_can_count_have_another_form() {
    let twin = vec![0; PAGE_BYTES];
    // Each run reaches from one word into the next, by as many bytes of either as no pattern says.
    let random = |at: usize| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let run = |pair: usize| pair * 16 + 1 + random(pair) % 7..pair * 16 + 9 + random(pair + 1000) % 7;
    for count in [255, 256] {
        let encoded = all_agree(&changed(&twin, (0..count).flat_map(run)), &twin);
        assert_eq!(encoded[2] == 1, count == 255, "{count} runs have form {}", encoded[2]);
    }
}

#[test]
fn the_largest_unit_has_room_for_all_its_pages() {
    let twin = vec![0; UNIT_BYTES_MAX];
    all_agree(&changed(&twin, (0..UNIT_BYTES_MAX).step_by(PAGE_BYTES)), &twin);
    all_agree(&changed(&twin, 0..UNIT_BYTES_MAX), &twin);
}

#[test]
fn memory_that_is_not_aligned_is_compared_and_stored_all_the_same() {
    let (now, twin) = (vec![3; PAGE_BYTES + 1], vec![0; PAGE_BYTES + 1]);
    for kernel in Kernel::all() {
        let mut new_twin = twin.clone();
        let (count, bytes) = make_with(kernel, &now[1..], &mut new_twin[1..]);
        assert_eq!((count, new_twin[0], new_twin[PAGE_BYTES]), (PAGE_BYTES, 0, 3));
        let mut target = twin.clone();
        // SAFETY: one page of the target.
        unsafe { apply_by(kernel, target.as_mut_ptr().add(1), PAGE_BYTES, &bytes) }.unwrap();
        assert_eq!(target, new_twin);
    }
}

/// Pages before and behind which nothing may be touched.
struct Fenced(Mapping);

impl Fenced {
    fn new(pages: usize) -> Fenced {
        let mapping = Mapping::new((pages + 2) * PAGE_BYTES).unwrap();
        for fence in [0, (pages + 1) * PAGE_BYTES] {
            // SAFETY: a page of the mapping, which nobody uses.
            let forbidden = unsafe { libc::mprotect(mapping.start().add(fence).cast(), PAGE_BYTES, libc::PROT_NONE) };
            assert_eq!(forbidden, 0);
        }
        Fenced(mapping)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: what lies between the fences is ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().add(PAGE_BYTES), self.0.bytes() - 2 * PAGE_BYTES) }
    }

    /// The last bytes.
    fn end_with(&mut self, bytes: &[u8]) -> &[u8] {
        let all = self.bytes();
        let end = all.len() - bytes.len();
        all[end..].copy_from_slice(bytes);
        &all[end..]
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn nothing_is_touched_before_or_behind_a_page_or_an_encoded_diff() {
    let (mut now, mut twin, mut target, mut encoded) = (Fenced::new(1), Fenced::new(1), Fenced::new(1), Fenced::new(2));
    for kernel in Kernel::all() {
        for changed in [0..1, 4095..4096, 4032..4096, 4079..4096, 4094..4096, 1..4096, 0..4096] {
            [&mut now, &mut twin, &mut target].into_iter().for_each(|page| page.bytes().fill(0));
            now.bytes()[changed].fill(5);
            let (_, bytes) = make_with(kernel, now.bytes(), twin.bytes());
            let bytes = encoded.end_with(&bytes);
            // SAFETY: a page is writable there, and the kernel is one of `Kernel::all`.
            unsafe { apply_by(kernel, target.bytes().as_mut_ptr(), PAGE_BYTES, bytes) }.unwrap();
            assert!(target.bytes() == now.bytes(), "{kernel:?}");
            [&mut twin, &mut target].into_iter().for_each(|page| page.bytes().fill(0));
            // SAFETY: as above.
            unsafe { renew_by(kernel, target.bytes().as_mut_ptr(), twin.bytes(), now.bytes()) };
            assert!(target.bytes() == now.bytes(), "{kernel:?}");
        }
    }
}

#[test]
fn bits_are_packed_and_unpacked_place_by_place() {
    for (word, places) in [
        (u64::MAX, u64::MAX >> 1),
        (1 << 63 | 5, u64::MAX >> 1),
        (0x0123_4567_89AB_CDEF, u64::MAX),
        (0x0123_4567_89AB_CDEF, 0xF00F_0110_8000_0001),
        (u64::MAX, 0),
    ] {
        let at = || (0..64).filter(|place| places >> place & 1 != 0);
        let bit = |from: u32, to: u32| (word >> from & 1) << to;
        assert_eq!(Plain::pack(word, places), (0..).zip(at()).fold(0, |all, (low, place)| all | bit(place, low)));
        assert_eq!(Plain::unpack(word, places), (0..).zip(at()).fold(0, |all, (low, place)| all | bit(low, place)));
    }
}

#[test]
fn there_is_room_for_what_a_kernel_stores_behind_the_gathered_bytes() {
    let mut masks = NO_MASKS;
    masks[7] = 0b101;
    for kernel in Kernel::all() {
        let mut out = Vec::with_capacity(2);
        // SAFETY: the kernel is one of `Kernel::all`.
        unsafe { kernel.gather(&[9; PAGE_BYTES], &masks, 2, &mut out) };
        assert!(out == [9, 9] && out.capacity() >= 2 + 64, "{kernel:?}");
    }
}

/// Units with changes of every density: single bytes, runs, words, whole pages.
fn units() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let edit = (0..5_usize, any::<u32>(), 1..200_usize, any::<u8>());
    (1..4_usize, proptest::collection::vec(edit, 0..80), any::<u8>()).prop_map(|(pages, edits, fill)| {
        let len = pages * PAGE_BYTES;
        let twin: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ fill).collect();
        let mut now = twin.clone();
        for (kind, place, run, byte) in edits {
            let start = place as usize % len;
            match kind {
                0 => now[start] = byte,
                1 => now[start..(start + run).min(len)].fill(byte),
                2 => now[start & !7..(start & !7) + 8].fill(byte),
                3 => now[start & !3..].iter_mut().step_by(4).take(run * 8).for_each(|low| *low = byte),
                _ => (start..len).step_by(run + 1).take(300).for_each(|at| now[at] = byte),
            }
        }
        (now, twin)
    })
}

proptest! {
    #[test]
    fn every_kernel_agrees_with_the_byte_by_byte_model((now, twin) in units()) {
        all_agree(&now, &twin);
    }

    #[test]
    fn damaged_diffs_are_refused_or_stay_within_the_unit(
        (now, twin) in units(), damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4), cut: usize,
    ) {
        let mut encoded = all_agree(&now, &twin);
        prop_assume!(!encoded.is_empty());
        let whole = encoded.len();
        encoded.truncate(whole - cut % whole);
        if encoded.len() < whole {
            prop_assert_eq!(check(&encoded, now.len()), Err(BadDiff::Truncated));
        }
        damage.iter().for_each(|(at, byte)| { let len = encoded.len(); encoded[at % len] = *byte });
        let checked = check(&encoded, now.len());
        for kernel in Kernel::all() {
            let mut target = vec![0; now.len() + 2 * PAGE_BYTES];
            // SAFETY: the unit is the target's middle.
            let applied = unsafe { apply_by(kernel, target.as_mut_ptr().add(PAGE_BYTES), now.len(), &encoded) };
            prop_assert_eq!(applied.is_ok(), checked.is_ok());
            let outside = target[..PAGE_BYTES].iter().chain(&target[PAGE_BYTES + now.len()..]);
            prop_assert!(outside.copied().all(|byte| byte == 0));
        }
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..300), pages in 0..300_usize) {
        if let Ok(taken) = check(&noise, pages * PAGE_BYTES) {
            prop_assert!(taken <= noise.len());
            prop_assert!(ranges(&noise).all(|range| range.end <= pages * PAGE_BYTES));
        }
    }
}

#[test]
fn what_could_have_been_written_differently_is_refused() {
    let run = |start: u16, len: u16| (len << 12 | start).to_le_bytes();
    let counted = |count: u8, heads: &[[u8; 2]]| [&[0, 0, 1, count], heads.concat().as_slice(), &[9; 40]].concat();
    let runs = |runs: &[[u8; 2]]| counted(runs.len() as u8, runs);
    assert_eq!(check(&runs(&[run(5, 2), run(8, 1)]), PAGE_BYTES), Ok(11));
    assert_eq!(check(&runs(&[run(5, 2), run(7, 1)]), PAGE_BYTES), Err(BadDiff::Runs), "they touch");
    assert_eq!(check(&runs(&[run(5, 2), run(3, 1)]), PAGE_BYTES), Err(BadDiff::Runs), "out of order");
    assert_eq!(check(&runs(&[run(4095, 2)]), PAGE_BYTES), Err(BadDiff::Runs), "over the end");
    let long = |len: u8| counted(1, &[run(5, 0), [len, 0]]);
    assert_eq!(check(&long(16), PAGE_BYTES), Ok(8 + 16));
    assert_eq!(check(&long(15), PAGE_BYTES), Err(BadDiff::Runs), "a short run as a long one");
    assert_eq!(check(&long(0), PAGE_BYTES), Err(BadDiff::Runs), "an empty run");
    assert_eq!(check(&runs(&[]), PAGE_BYTES), Err(BadDiff::Runs), "no run");
    assert_eq!(check(&[0, 0, 5, 0], PAGE_BYTES), Err(BadDiff::Form));
    assert_eq!(check(&[0, 1, 1, 1, 0, 16, 9], PAGE_BYTES), Err(BadDiff::Page), "outside the unit");
    assert_eq!(check(&runs(&[run(5, 2)]), PAGE_BYTES - 1), Err(BadDiff::Page), "of a unit that ends within it");
    assert_eq!(check(&[1, 0, 1, 1, 0, 16, 9, 0, 1, 1, 0, 16, 9], PAGE_BYTES), Err(BadDiff::Page), "twice the same");
    assert_eq!(check(&[[0, 0, 2].as_slice(), &[0; 64]].concat(), PAGE_BYTES), Err(BadDiff::Bits), "no bit");
    let words = |partial: &[u8]| [&[0, 0, 3, 1], [0; 63].as_slice(), partial, &[9; 8]].concat();
    assert_eq!(check(&words(&[1, 0x7F]), PAGE_BYTES), Ok(3 + 64 + 2 + 7));
    assert_eq!(check(&words(&[0]), PAGE_BYTES), Err(BadDiff::Bits), "no partial word in the form for them");
    assert_eq!(check(&words(&[1, 0xFF]), PAGE_BYTES), Err(BadDiff::Bits), "a partial word that is whole");
    assert_eq!(check(&words(&[3, 0x7F, 0x7F]), PAGE_BYTES), Err(BadDiff::Bits), "a bit for no word");
    assert_eq!(check(&[], PAGE_BYTES), Err(BadDiff::Truncated));
}

#[test]
fn patterns_that_could_have_been_written_differently_are_refused() {
    let pattern = |lines: u64, usual: u64, rest: &[u8]| {
        check(
            &[&[0, 0, 4], &lines.to_le_bytes()[..], &usual.to_le_bytes(), rest, &[9; PAGE_BYTES]].concat(),
            PAGE_BYTES,
        )
    };
    let low = 0x1111_1111_1111_1111;
    assert_eq!(pattern(u64::MAX, low, &[0; 8]), Ok(3 + 24 + 1024));
    assert_eq!(pattern(0b11, low, &[0b10, 0b101, 3, 0]), Ok(3 + 16 + 4 + 16 + 12 + 2));
    assert_eq!(pattern(0, low, &[]), Err(BadDiff::Bits), "no line");
    assert_eq!(pattern(0b11, low, &[0b100, 1, 3]), Err(BadDiff::Bits), "a bit for no line");
    let all_but_one = u64::MAX >> 1;
    assert_eq!(pattern(all_but_one, low, &[0; 8]), Ok(3 + 24 + 63 * 16));
    assert_eq!(pattern(all_but_one, low, &[0, 0, 0, 0, 0, 0, 0, 0x80]), Err(BadDiff::Bits), "nor the last one");
    assert_eq!(pattern(0b11, low, &[0b10, 0]), Err(BadDiff::Bits), "a line as usual that is said not to be");
    assert_eq!(pattern(0b11, low, &[0b10, 1, 0x11]), Err(BadDiff::Bits), "a word as usual that is said not to be");
    assert_eq!(pattern(0b11, 0, &[0b10, 1, 3]), Err(BadDiff::Bits), "a line in which nothing changed");
    assert_eq!(pattern(0b1, 0xFF, &[0b1, 1, 0]), Err(BadDiff::Bits), "another in which nothing changed");
    assert_eq!(pattern(u64::MAX, u64::MAX, &[0; 8]), Err(BadDiff::Bits), "the whole page");
}

/// A neighbour counts in the bytes beside those that a diff changes; a store of more than the changed bytes would set
/// one of its counters back.
#[test]
fn applying_leaves_a_neighbours_bytes_alone() {
    let rounds: usize = if cfg!(miri) { 3 } else { 3_000 };
    for kernel in Kernel::all() {
        let twin = vec![0; PAGE_BYTES];
        let (_, encoded) = make_with(kernel, &changed(&twin, (0..PAGE_BYTES).step_by(2)), &mut twin.clone());
        let memory: Vec<AtomicU8> = (0..PAGE_BYTES).map(|_| AtomicU8::new(0)).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let neighbour = scope.spawn(|| {
                let mut count = 0_u8;
                while !stop.load(Ordering::Relaxed) {
                    for byte in memory.iter().skip(1).step_by(2) {
                        byte.store(count, Ordering::Relaxed);
                    }
                    let intact = memory.iter().skip(1).step_by(2).all(|byte| byte.load(Ordering::Relaxed) == count);
                    if !intact {
                        return false;
                    }
                    count = count.wrapping_add(1);
                }
                true
            });
            for _ in 0..rounds {
                let target = memory.as_ptr().cast_mut().cast::<u8>();
                // SAFETY: a page of atomics, which may be stored to while shared.
                unsafe { apply_by(kernel, target, PAGE_BYTES, &encoded) }.unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(neighbour.join().unwrap(), "{kernel:?} stored to a byte that had not changed");
        });
    }
}

/// Twins follow what was sent, whatever a writer does meanwhile: the receiver ends with what the sender's memory holds.
#[test]
fn diffs_made_beside_a_writer_miss_nothing() {
    let rounds: usize = if cfg!(miri) { 3 } else { 500 };
    for kernel in Kernel::all() {
        let memory: Vec<AtomicU8> = (0..PAGE_BYTES).map(|_| AtomicU8::new(0)).collect();
        let (mut twin, mut receiver) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
        let mut send = |twin: &mut [u8]| {
            let mut out = Vec::new();
            // SAFETY: a page of atomics, which may be stored to while it is compared.
            if unsafe { make_by(kernel, memory.as_ptr().cast(), twin, &mut out) } > 0 {
                apply_slice(&mut receiver, &out).unwrap();
                assert_eq!(receiver, twin);
            }
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 1_usize;
                while !stop.load(Ordering::Relaxed) {
                    at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    memory[at >> 40 & 4095].store((at >> 20) as u8, Ordering::Relaxed);
                }
            });
            (0..rounds).for_each(|_| send(&mut twin));
            stop.store(true, Ordering::Relaxed);
        });
        send(&mut twin);
        let last: Vec<u8> = memory.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        assert_eq!(receiver, last, "{kernel:?}");
    }
}
