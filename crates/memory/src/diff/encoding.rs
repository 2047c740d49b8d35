//! A page's head: which bytes changed, from bits to bytes and back.

use super::kernel::{CHUNKS, Masks, Page, spread};
use super::{BadDiff, UNIT_BYTES_MAX};
use crate::pages::PAGE_BYTES;
use std::ops::Range;

const ALL: u8 = 0;
const RUNS: u8 = 1;
const WORDS: u8 = 2;
const BYTES: u8 = 3;

/// Runs up to this length take two bytes, longer ones four.
const SHORT_RUN: usize = 15;
/// A list of more runs is never the shortest form: a page's bitmap takes fewer bytes than 256 run heads.
const RUNS_MAX: usize = 255;

/// The first changed byte at or behind `at`, or the first unchanged one (`flip` all ones); the page's end if there is none.
fn find(masks: &Masks, at: usize, flip: u64) -> usize {
    let mut from = at % 64;
    for (chunk, mask) in masks.iter().enumerate().skip(at / 64) {
        let found = (mask ^ flip) & (u64::MAX << from);
        if found != 0 {
            return chunk * 64 + found.trailing_zeros() as usize;
        }
        from = 0;
    }
    PAGE_BYTES
}

/// The first run of changed bytes at or behind `at`.
pub fn next_run(masks: &Masks, at: usize) -> Option<Range<usize>> {
    let start = find(masks, at, 0);
    (start < PAGE_BYTES).then(|| start..find(masks, start, u64::MAX))
}

fn runs(masks: &Masks) -> impl Iterator<Item = Range<usize>> + '_ {
    std::iter::successors(next_run(masks, 0), |run| next_run(masks, run.end))
}

fn run_bytes(run: &Range<usize>) -> usize {
    if run.len() <= SHORT_RUN { 2 } else { 4 }
}

/// How many runs there are.
fn count_runs(masks: &Masks) -> usize {
    let mut before = 0;
    let mut starts = 0;
    for mask in masks {
        if *mask != 0 {
            starts += (mask & !(mask << 1 | before)).count_ones() as usize;
        }
        before = mask >> 63;
    }
    starts
}

/// One bit for each of eight words: whether a byte of it changed; whether some but not all did.
fn words_of(mask: u64) -> (u8, u8) {
    let (some, not_all) = (spread(mask), spread(!mask));
    (some, some & not_all)
}

/// Appends form and head; `changed` is the number of bits, at least one.
pub fn write_head(masks: &Masks, changed: usize, out: &mut Vec<u8>) {
    if changed == PAGE_BYTES {
        return out.push(ALL);
    }
    let (mut words, mut partial) = (0, 0);
    for mask in masks.iter().filter(|mask| **mask != 0) {
        let (some, not_all) = words_of(*mask);
        words += some.count_ones() as usize;
        partial += not_all.count_ones() as usize;
    }
    let bitmap = CHUNKS + if partial > 0 { words.div_ceil(8) + partial } else { 0 };
    let count = count_runs(masks);
    // A list of runs has one byte more, the count; where both forms are as long it is taken.
    let short = count <= RUNS_MAX && 2 * count < bitmap;
    if short && runs(masks).map(|run| run_bytes(&run)).sum::<usize>() < bitmap {
        write_runs(masks, count, out);
    } else if partial == 0 {
        out.push(WORDS);
        out.extend(masks.iter().map(|mask| words_of(*mask).0));
    } else {
        write_partial(masks, out);
    }
}

fn write_runs(masks: &Masks, count: usize, out: &mut Vec<u8>) {
    out.extend([RUNS, count as u8]);
    for run in runs(masks) {
        if run.len() <= SHORT_RUN {
            out.extend(((run.len() << 12 | run.start) as u16).to_le_bytes());
        } else {
            out.extend((run.start as u16).to_le_bytes());
            out.extend((run.len() as u16).to_le_bytes());
        }
    }
}

fn write_partial(masks: &Masks, out: &mut Vec<u8>) {
    out.push(BYTES);
    out.extend(masks.iter().map(|mask| words_of(*mask).0));
    let (mut bits, mut filled) = (0_u64, 0);
    for mask in masks {
        let (some, not_all) = words_of(*mask);
        if some == 0xFF {
            bits |= u64::from(not_all) << filled;
            filled += 8;
        } else {
            for word in bits_of(some) {
                bits |= u64::from(not_all >> word & 1) << filled;
                filled += 1;
            }
        }
        while filled >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push(bits as u8);
    }
    for mask in masks {
        match words_of(*mask).1 {
            0xFF => out.extend(mask.to_le_bytes()),
            not_all => out.extend(bits_of(not_all).map(|word| (mask >> (word * 8)) as u8)),
        }
    }
}

/// The numbers of the bits that are set, ascending.
fn bits_of(byte: u8) -> impl Iterator<Item = u32> {
    let mut left = byte;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros();
        (left != 0).then(|| {
            left &= left - 1;
            bit
        })
    })
}

/// Reads an encoded diff page by page; believes nothing.
pub struct Reader<'a> {
    encoded: &'a [u8],
    at: usize,
    /// Pages of the unit.
    pages: usize,
    left: usize,
    /// The least page number that may come next.
    next: usize,
}

impl<'a> Reader<'a> {
    /// For a unit of `len` bytes.
    pub fn new(encoded: &'a [u8], len: usize) -> Result<Reader<'a>, BadDiff> {
        let pages = len.min(UNIT_BYTES_MAX) / PAGE_BYTES;
        let mut reader = Reader { encoded, at: 0, pages, left: 0, next: 0 };
        reader.left = usize::from(reader.byte()?) + 1;
        Ok(reader)
    }

    /// How many bytes were read.
    pub fn taken(&self) -> usize {
        self.at
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], BadDiff> {
        let taken = self.encoded.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(BadDiff::Truncated)?;
        self.at += len;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, BadDiff> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u16, BadDiff> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// The next page, with its bits in `masks`; `None` behind the last.
    pub fn next(&mut self, masks: &mut Masks) -> Result<Option<Page<'a>>, BadDiff> {
        if self.left == 0 {
            return Ok(None);
        }
        let number = usize::from(self.byte()?);
        if number < self.next || number >= self.pages {
            return Err(BadDiff::Page);
        }
        let changed = match self.byte()? {
            ALL => {
                masks.fill(u64::MAX);
                PAGE_BYTES
            }
            RUNS => self.runs(masks)?,
            WORDS => self.words(masks)?,
            BYTES => self.partial(masks)?,
            _ => return Err(BadDiff::Form),
        };
        self.left -= 1;
        self.next = number + 1;
        Ok(Some(Page { number, bytes: self.take(changed)? }))
    }

    fn runs(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        masks.fill(0);
        let (mut changed, mut least) = (0, 0);
        for _ in 0..self.byte()? {
            let head = usize::from(self.number()?);
            let (start, short) = (head & 0xFFF, head >> 12);
            let len = if short > 0 { short } else { usize::from(self.number()?) };
            let shortest = short > 0 || len > SHORT_RUN;
            if start < least || !shortest || start + len > PAGE_BYTES {
                return Err(BadDiff::Runs);
            }
            set(masks, start..start + len);
            changed += len;
            // A run that touches the one before would have been part of it.
            least = start + len + 1;
        }
        if changed == 0 { Err(BadDiff::Runs) } else { Ok(changed) }
    }

    fn words(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        for (mask, words) in masks.iter_mut().zip(self.take(CHUNKS)?) {
            *mask = bytes_of(*words);
        }
        match masks.iter().map(|mask| mask.count_ones() as usize).sum() {
            0 | PAGE_BYTES => Err(BadDiff::Bits),
            changed => Ok(changed),
        }
    }

    fn partial(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        let words = self.take(CHUNKS)?;
        let count: usize = words.iter().map(|words| words.count_ones() as usize).sum();
        let partial = self.take(count.div_ceil(8))?;
        let beyond = partial.last().is_some_and(|last| !count.is_multiple_of(8) && last >> (count % 8) != 0);
        let bytes = self.take(partial.iter().map(|bits| bits.count_ones() as usize).sum())?;
        if bytes.is_empty() || beyond || bytes.iter().any(|mask| matches!(mask, 0 | 0xFF)) {
            return Err(BadDiff::Bits);
        }
        let (mut word, mut bytes) = (0, bytes.iter());
        let mut changed = 0;
        for (mask, words) in masks.iter_mut().zip(words) {
            *mask = bytes_of(*words);
            for place in bits_of(*words) {
                if partial[word / 8] >> (word % 8) & 1 != 0 {
                    let unchanged = !bytes.next().copied().unwrap_or(0xFF);
                    *mask &= !(u64::from(unchanged) << (place * 8));
                }
                word += 1;
            }
            changed += mask.count_ones() as usize;
        }
        Ok(changed)
    }
}

/// The bits of whole words from one bit a word.
fn bytes_of(words: u8) -> u64 {
    // Each bit to the lowest place of its byte: the copies that the factor makes do not overlap.
    let low = (u64::from(words & 0x7F).wrapping_mul(0x0002_0408_1020_4081) & 0x0001_0101_0101_0101)
        | u64::from(words >> 7) << 56;
    low * 0xFF
}

/// Sets the bits of a run that is not empty.
fn set(masks: &mut Masks, run: Range<usize>) {
    let (first, last) = (run.start / 64, (run.end - 1) / 64);
    for (chunk, mask) in masks.iter_mut().enumerate().take(last + 1).skip(first) {
        let from = run.start.saturating_sub(chunk * 64);
        let to = (run.end - 1 - chunk * 64).min(63);
        *mask |= (u64::MAX << from) & (u64::MAX >> (63 - to));
    }
}
