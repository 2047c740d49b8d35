//! A page's head: which bytes changed, from bits to bytes and back.

use super::kernel::{CHUNKS, Masks, Page, spread};
use super::{BadDiff, UNIT_BYTES_MAX};
use crate::pages::PAGE_BYTES;
use std::ops::Range;

const ALL: u8 = 0;
const RUNS: u8 = 1;
const WORDS: u8 = 2;
const BYTES: u8 = 3;
const PATTERN: u8 = 4;

/// Runs up to this length take two bytes, longer ones four.
const SHORT_RUN: usize = 15;
/// A list of more runs is never the shortest form: a page's bitmap takes fewer bytes than 256 run heads.
const RUNS_MAX: usize = 255;
/// What the form of patterns takes at least.
const PATTERN_LEAST: usize = 16;
/// Where another form takes no more, that of patterns is not tried: to find what is usual takes as long as to compare the page.
const PATTERN_TRIED: usize = 48;

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
    let in_runs = short.then(|| runs(masks).map(|run| run_bytes(&run)).sum()).filter(|bytes| *bytes < bitmap);
    let shortest = in_runs.map_or(bitmap, |bytes: usize| bytes + 1);
    if shortest > PATTERN_TRIED && write_pattern(masks, shortest, out) {
        return;
    }
    if in_runs.is_some() {
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

/// What most of the changed lines have in common: the bits that more than half of them have.
fn usual_line(masks: &Masks) -> u64 {
    // The bits of 64 counters, the lowest ones first.
    let mut counters = [0_u64; 7];
    let mut lines = 0_usize;
    for mask in masks.iter().filter(|mask| **mask != 0) {
        lines += 1;
        let mut carry = *mask;
        for counter in &mut counters {
            (*counter, carry) = (*counter ^ carry, *counter & carry);
        }
    }
    let (mut more, mut same) = (0, u64::MAX);
    for (place, counter) in counters.iter().enumerate().rev() {
        let half = if (lines / 2) >> place & 1 != 0 { u64::MAX } else { 0 };
        more |= same & counter & !half;
        same &= !(counter ^ half);
    }
    more
}

/// Appends form and head if they take less than `most` bytes; says whether they did.
fn write_pattern(masks: &Masks, most: usize, out: &mut Vec<u8>) -> bool {
    let usual = usual_line(masks);
    let changed = || masks.iter().filter(|mask| **mask != 0);
    let words = |mask: &u64| spread(mask ^ usual);
    let cost = |mask: &u64| match words(mask) {
        0 => 0,
        words => 1 + words.count_ones() as usize,
    };
    if PATTERN_LEAST + changed().count().div_ceil(8) + changed().map(cost).sum::<usize>() >= most {
        return false;
    }
    let one_bit_each = |bits: &mut dyn Iterator<Item = bool>| {
        bits.enumerate().fold(0_u64, |all, (place, bit)| all | u64::from(bit) << place)
    };
    out.push(PATTERN);
    out.extend(one_bit_each(&mut masks.iter().map(|mask| *mask != 0)).to_le_bytes());
    out.extend(usual.to_le_bytes());
    let others = one_bit_each(&mut changed().map(|mask| *mask != usual));
    out.extend_from_slice(&others.to_le_bytes()[..changed().count().div_ceil(8)]);
    for mask in changed().filter(|mask| **mask != usual) {
        out.push(words(mask));
        out.extend(bits_of(words(mask)).map(|word| (mask >> (word * 8)) as u8));
    }
    true
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
            PATTERN => self.pattern(masks)?,
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

    fn number_of_lines(&mut self, bytes: usize) -> Result<u64, BadDiff> {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(word))
    }

    fn pattern(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        let (lines, usual) = (self.number_of_lines(8)?, self.number_of_lines(8)?);
        let count = lines.count_ones();
        let mut others = self.number_of_lines(count.div_ceil(8) as usize)?;
        if count == 0 || (count < 64 && others >> count != 0) {
            return Err(BadDiff::Bits);
        }
        let mut changed = 0;
        for (line, mask) in masks.iter_mut().enumerate() {
            *mask = 0;
            if lines >> line & 1 == 0 {
                continue;
            }
            *mask = if others & 1 != 0 { self.other_line(usual)? } else { usual };
            others >>= 1;
            if *mask == 0 {
                return Err(BadDiff::Bits);
            }
            changed += mask.count_ones() as usize;
        }
        if changed == PAGE_BYTES { Err(BadDiff::Bits) } else { Ok(changed) }
    }

    /// A line that is not as usual.
    fn other_line(&mut self, usual: u64) -> Result<u64, BadDiff> {
        let words = self.byte()?;
        let (mut line, mut differs) = (usual, words != 0);
        for word in bits_of(words) {
            let mask = self.byte()?;
            let place = word * 8;
            differs &= mask != (usual >> place) as u8;
            line = line & !(0xFF << place) | u64::from(mask) << place;
        }
        if differs { Ok(line) } else { Err(BadDiff::Bits) }
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
