//! A page's head: which bytes changed, from bits to bytes and back.

use super::kernel::{Bits, CHUNKS, Masks, Page, spread, tops};
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
/// A list of runs counts them in one byte. One of more would hardly ever be the shortest form.
const LISTED_RUNS_MAX: usize = 255;
/// What the form of patterns takes at least.
const PATTERN_LEAST: usize = 16;
/// Where another form takes no more, that of patterns is not tried: to find what is usual takes as long as to compare
/// the page.
const PATTERN_TRIED: usize = 48;

/// The first changed byte at or behind `at`, or the first unchanged one (`flip` all ones); the page's end if there is
/// none.
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
#[inline(always)]
fn count_runs(masks: &Masks) -> usize {
    let mut before = 0;
    let mut starts = 0;
    for mask in masks {
        starts += (mask & !(mask << 1 | before)).count_ones() as usize;
        before = mask >> 63;
    }
    starts
}

/// One bit for each of eight words: whether a byte of it changed; whether some but not all did.
#[inline(always)]
fn words_of(mask: u64) -> (u8, u8) {
    let (some, not_all) = (spread(mask), spread(!mask));
    (some, some & not_all)
}

/// Counts bytes that are not zero, of up to 255 numbers.
#[derive(Clone, Copy, Default)]
struct Bytes(u64);

impl Bytes {
    #[inline(always)]
    fn add(&mut self, tops: u64) {
        self.0 += tops >> 7;
    }

    #[inline(always)]
    fn sum(self) -> usize {
        const EVEN: u64 = 0x00FF_00FF_00FF_00FF;
        let pairs = (self.0 & EVEN) + (self.0 >> 8 & EVEN);
        (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
    }
}

/// How many words have changed bytes; how many of them unchanged ones too.
#[inline(always)]
fn count_words(masks: &Masks) -> (usize, usize) {
    let (mut words, mut partial) = (Bytes::default(), Bytes::default());
    for mask in masks {
        let some = tops(*mask);
        words.add(some);
        partial.add(some & tops(!mask));
    }
    (words.sum(), partial.sum())
}

/// Appends form and head; `changed` is the number of bits, at least one.
#[inline(always)]
pub fn write_head<B: Bits>(masks: &Masks, changed: usize, out: &mut Vec<u8>) {
    if changed == PAGE_BYTES {
        return out.push(ALL);
    }
    let (words, partial) = count_words(masks);
    let bitmap = CHUNKS + if partial > 0 { words.div_ceil(8) + partial } else { 0 };
    let count = count_runs(masks);
    // A list of runs has one byte more, the count; where both forms are as long it is taken.
    let short = count <= LISTED_RUNS_MAX && 2 * count < bitmap;
    let in_runs = short.then(|| runs(masks).map(|run| run_bytes(&run)).sum()).filter(|bytes| *bytes < bitmap);
    let shortest = in_runs.map_or(bitmap, |bytes: usize| bytes + 1);
    if shortest > PATTERN_TRIED && write_pattern::<B>(masks, shortest, out) {
        return;
    }
    if in_runs.is_some() {
        write_runs(masks, count, out);
    } else if partial == 0 {
        out.push(WORDS);
        out.extend_from_slice(&masks.map(spread));
    } else {
        write_partial::<B>(masks, out);
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

/// The longest head has the form of patterns, with no word as usual.
const LONGEST: usize = 1 + PATTERN_LEAST + CHUNKS / 8 + CHUNKS * 9;

/// Bytes that are appended a few at a time, with room for the longest head, and for eight at any place in it.
struct Head {
    bytes: [u8; LONGEST + 8],
    len: usize,
}

impl Head {
    #[inline(always)]
    fn new() -> Head {
        Head { bytes: [0; LONGEST + 8], len: 0 }
    }

    /// The lowest `count` bytes of a number, up to eight.
    #[inline(always)]
    fn add(&mut self, number: u64, count: usize) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&number.to_le_bytes());
        self.len += count;
    }

    #[inline(always)]
    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.len]);
    }
}

#[inline(always)]
fn write_partial<B: Bits>(masks: &Masks, out: &mut Vec<u8>) {
    let words = masks.map(words_of);
    out.push(BYTES);
    out.extend_from_slice(&words.map(|(some, _)| some));
    let mut head = Head::new();
    let (mut bits, mut filled) = (0_u64, 0);
    for (some, not_all) in words {
        bits |= B::pack(u64::from(not_all), u64::from(some)) << filled;
        filled += some.count_ones();
        while filled >= 8 {
            head.add(bits, 1);
            bits >>= 8;
            filled -= 8;
        }
    }
    head.add(bits, usize::from(filled > 0));
    head.append_to(out);
    head.len = 0;
    for (mask, (_, not_all)) in masks.iter().zip(words) {
        head.add(B::pack(*mask, bytes_of(not_all)), not_all.count_ones() as usize);
    }
    head.append_to(out);
}

/// The sum of three bits in each place: the bits themselves, and what is carried.
#[inline(always)]
fn sum(a: u64, b: u64, c: u64) -> (u64, u64) {
    ((a ^ b) ^ c, (a & b) | ((a ^ b) & c))
}

/// What most of the changed lines have in common: the bits that more than half of them have.
#[inline(always)]
fn usual_line(masks: &Masks, changed: u32) -> u64 {
    // The bits of 64 counters, the lowest ones first.
    let mut counters = [0_u64; 7];
    for eight in masks.as_chunks::<8>().0 {
        let (ones, twos_a) = sum(counters[0], eight[0], eight[1]);
        let (ones, twos_b) = sum(ones, eight[2], eight[3]);
        let (twos, fours_a) = sum(counters[1], twos_a, twos_b);
        let (ones, twos_a) = sum(ones, eight[4], eight[5]);
        let (ones, twos_b) = sum(ones, eight[6], eight[7]);
        let (twos, fours_b) = sum(twos, twos_a, twos_b);
        let (fours, mut carry) = sum(counters[2], fours_a, fours_b);
        (counters[0], counters[1], counters[2]) = (ones, twos, fours);
        for counter in &mut counters[3..] {
            (*counter, carry) = (*counter ^ carry, *counter & carry);
        }
    }
    let (mut more, mut same) = (0, u64::MAX);
    for (place, counter) in counters.iter().enumerate().rev() {
        let half = if (changed / 2) >> place & 1 != 0 { u64::MAX } else { 0 };
        more |= same & counter & !half;
        same &= !(counter ^ half);
    }
    more
}

/// One bit for each line that is not zero.
#[inline(always)]
fn lines_of(lines: impl Iterator<Item = u64>) -> u64 {
    lines.enumerate().fold(0, |all, (place, line)| all | u64::from(line != 0) << place)
}

/// Appends form and head if they take less than `most` bytes; says whether they did.
#[inline(always)]
fn write_pattern<B: Bits>(masks: &Masks, most: usize, out: &mut Vec<u8>) -> bool {
    let changed = lines_of(masks.iter().copied());
    let usual = usual_line(masks, changed.count_ones());
    let differences = masks.map(|mask| if mask != 0 { mask ^ usual } else { 0 });
    let unusual = lines_of(differences.iter().copied());
    let mut words = Bytes::default();
    differences.iter().for_each(|line| words.add(tops(*line)));
    let of_lines = changed.count_ones().div_ceil(8) as usize;
    if PATTERN_LEAST + of_lines + unusual.count_ones() as usize + words.sum() >= most {
        return false;
    }
    let mut head = Head::new();
    head.add(u64::from(PATTERN), 1);
    head.add(changed, 8);
    head.add(usual, 8);
    head.add(B::pack(unusual, changed), of_lines);
    for line in places_of(unusual) {
        let words = spread(differences[line]);
        head.add(u64::from(words), 1);
        head.add(B::pack(masks[line], bytes_of(words)), words.count_ones() as usize);
    }
    head.append_to(out);
    true
}

/// The numbers of the bits that are set, ascending.
#[inline(always)]
fn places_of(bits: u64) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros() as usize;
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

    #[inline(always)]
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadDiff> {
        let taken = self.encoded.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(BadDiff::Truncated)?;
        self.at += len;
        Ok(taken)
    }

    #[inline(always)]
    fn byte(&mut self) -> Result<u8, BadDiff> {
        Ok(self.take(1)?[0])
    }

    /// The next bytes, up to eight of them, the first the lowest.
    #[inline(always)]
    fn bytes(&mut self, count: usize) -> Result<u64, BadDiff> {
        if let Some(eight) = self.encoded.get(self.at..).and_then(|rest| rest.first_chunk()) {
            self.at += count;
            return Ok(u64::from_le_bytes(*eight) & low_bits(count * 8));
        }
        let mut word = [0; 8];
        word[..count].copy_from_slice(self.take(count)?);
        Ok(u64::from_le_bytes(word))
    }

    fn number(&mut self) -> Result<u16, BadDiff> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// The next page, with its bits in `masks`; `None` behind the last.
    #[inline(always)]
    pub fn next<B: Bits>(&mut self, masks: &mut Masks) -> Result<Option<Page<'a>>, BadDiff> {
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
            BYTES => self.partial::<B>(masks)?,
            PATTERN => self.pattern::<B>(masks)?,
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

    #[inline(always)]
    fn words(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        for (mask, words) in masks.iter_mut().zip(self.take(CHUNKS)?) {
            *mask = bytes_of(*words);
        }
        match marks(masks) {
            0 | PAGE_BYTES => Err(BadDiff::Bits),
            changed => Ok(changed),
        }
    }

    #[inline(always)]
    fn pattern<B: Bits>(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        let (lines, usual) = (self.bytes(8)?, self.bytes(8)?);
        let count = lines.count_ones() as usize;
        let others = self.bytes(count.div_ceil(8))?;
        if count == 0 || others & !low_bits(count) != 0 {
            return Err(BadDiff::Bits);
        }
        for (line, mask) in masks.iter_mut().enumerate() {
            *mask = if lines >> line & 1 != 0 { usual } else { 0 };
        }
        for line in places_of(B::unpack(others, lines)) {
            masks[line] = self.other_line::<B>(usual)?;
        }
        if lines_of(masks.iter().copied()) != lines {
            return Err(BadDiff::Bits);
        }
        match marks(masks) {
            PAGE_BYTES => Err(BadDiff::Bits),
            changed => Ok(changed),
        }
    }

    /// A line that is not as usual.
    #[inline(always)]
    fn other_line<B: Bits>(&mut self, usual: u64) -> Result<u64, BadDiff> {
        let words = self.byte()?;
        let these = bytes_of(words);
        let line = usual & !these | B::unpack(self.bytes(words.count_ones() as usize)?, these);
        if words != 0 && spread(line ^ usual) == words { Ok(line) } else { Err(BadDiff::Bits) }
    }

    #[inline(always)]
    fn partial<B: Bits>(&mut self, masks: &mut Masks) -> Result<usize, BadDiff> {
        let words = self.take(CHUNKS)?;
        let count: usize = words.iter().map(|words| words.count_ones() as usize).sum();
        let partial = self.take(count.div_ceil(8))?;
        if partial.last().is_some_and(|last| !count.is_multiple_of(8) && last >> (count % 8) != 0) {
            return Err(BadDiff::Bits);
        }
        let mut partial = partial.iter();
        let (mut bits, mut left, mut any) = (0_u64, 0, 0);
        for (mask, words) in masks.iter_mut().zip(words) {
            while left < 8 {
                bits |= u64::from(partial.next().copied().unwrap_or(0)) << left;
                left += 8;
            }
            // Which of the line's words are changed in part, and how.
            let in_part = B::unpack(bits, u64::from(*words)) as u8;
            bits >>= words.count_ones();
            left -= words.count_ones();
            let these = bytes_of(in_part);
            let given = B::unpack(self.bytes(in_part.count_ones() as usize)?, these);
            if words_of(given).1 != in_part {
                return Err(BadDiff::Bits);
            }
            *mask = bytes_of(*words) & !these | given;
            any |= in_part;
        }
        if any == 0 { Err(BadDiff::Bits) } else { Ok(marks(masks)) }
    }
}

/// As many bits as this, the lowest.
#[inline(always)]
fn low_bits(count: usize) -> u64 {
    if count < 64 { (1 << count) - 1 } else { u64::MAX }
}

/// How many bytes are marked.
#[inline(always)]
fn marks(masks: &Masks) -> usize {
    masks.iter().map(|mask| mask.count_ones() as usize).sum()
}

/// The bits of whole words from one bit a word.
#[inline(always)]
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
