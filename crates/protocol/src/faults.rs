//! A lossy network, by seed: which datagrams are lost, doubled, held back, cut short or damaged.
//!
//! A [`FaultSpec`] is what a person writes, `drop=5%,reorder=2%,seed=7`. A [`FaultPlan`] is one sender's network made
//! from it: asked about each datagram in turn, it answers with a [`Decision`]. The runtime and the simulator use
//! the same plan, and a seed gives the same decisions for ever, on every machine.
//!
//! | fault | what happens to a datagram |
//! |---|---|
//! | `drop` | it is lost |
//! | `dup` | it arrives twice |
//! | `reorder` | it is held back for 0.1 to 1 ms, so that later ones overtake it |
//! | `delay` | it (every one) arrives that much later |
//! | `truncate` | it arrives cut short, possibly to nothing |
//! | `corrupt` | one to three of its bits are flipped |
//! | `cut` | what nodes send each other is lost, for a while or for ever: `cut=0-2@1s+500ms/0>1` ([`Cut`]) |
//! | `longest` | those of more than so many bytes are lost |
//! | `rate` | all datagrams of the plan queue for a line of that speed; what finds more than 1 MiB queued is lost |
//!
//! A corrupt datagram arrives as if UDP's checksum had missed it. So only a job that authenticates its datagrams
//! notices every time.
//!
//! Each kind of fault draws from a stream of its own: to change `dup` does not change which datagrams are dropped.

use crate::ids::NodeId;
use crate::time::{Span, Time};
use std::fmt;
use std::str::FromStr;

/// The most bytes that wait for the line under `rate`, about what a switch keeps for a port.
pub const LINE_QUEUE_BYTES_MAX: u64 = 1 << 20;
/// The shortest and the longest time for which a reordered datagram is held back.
pub const REORDER_HOLD: (Span, Span) = (Span::from_us(100), Span::from_us(1_000));

const FLIPS_MAX: usize = 3;

/// A probability, exact to one in a thousand million; written as a percentage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Chance(u32);

impl Chance {
    const ONE: u32 = 1_000_000_000;
    const ONE_PERCENT: u32 = Self::ONE / 100;

    /// The probability of `parts` in a thousand million; `None` when that is more than one.
    pub fn from_parts_per_billion(parts: u32) -> Option<Chance> {
        (parts <= Self::ONE).then_some(Chance(parts))
    }
    /// Whether the event never happens.
    pub fn is_never(self) -> bool {
        self.0 == 0
    }
    fn happens(self, rng: &mut Rng) -> bool {
        self.0 != 0 && rng.below(u64::from(Self::ONE)) < u64::from(self.0)
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / Self::ONE_PERCENT;
        match self.0 % Self::ONE_PERCENT {
            0 => write!(f, "{whole}%"),
            rest => write!(f, "{whole}.{}%", format!("{rest:07}").trim_end_matches('0')),
        }
    }
}

/// Most cuts of one network.
pub const CUTS_MAX: usize = 4;

/// A way between two nodes that carries nothing for a while. Written `0-2@1s+500ms`: both ways between these two,
/// from one
/// second after the job's start on, for half a second. `0>2`: from the first to the second alone, at once and for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// What this node sends is lost.
    pub from: u16,
    /// On the way to this one.
    pub to: u16,
    /// The other way too.
    pub both: bool,
    /// How long after the job's start it begins.
    pub start: Span,
    /// How long it lasts; `None` for ever.
    pub length: Option<Span>,
}

impl Cut {
    /// Whether a datagram is lost that is sent so long after the job's start.
    pub fn takes(&self, after: Span, from: NodeId, to: NodeId) -> bool {
        let way = (self.from, self.to) == (from.0, to.0) || self.both && (self.to, self.from) == (from.0, to.0);
        way && after >= self.start && self.length.is_none_or(|length| after.0 - self.start.0 < length.0)
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.from, if self.both { "-" } else { ">" }, self.to)?;
        if self.start > Span(0) {
            write!(f, "@{}", with_unit(self.start.0, TIME_UNITS))?;
        }
        self.length.map_or(Ok(()), |length| write!(f, "+{}", with_unit(length.0, TIME_UNITS)))
    }
}

const TIME_UNITS: [&str; 4] = ["ns", "us", "ms", "s"];

/// The faults of a network, as given by `--faults`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FaultSpec {
    /// How many datagrams are lost.
    pub drop: Chance,
    /// How many arrive twice.
    pub duplicate: Chance,
    /// How many are held back until later ones have overtaken them.
    pub reorder: Chance,
    /// How much later each arrives.
    pub delay: Span,
    /// How many arrive cut short.
    pub truncate: Chance,
    /// How many arrive with flipped bits.
    pub corrupt: Chance,
    /// Ways between nodes that carry nothing for a while.
    pub cuts: [Option<Cut>; CUTS_MAX],
    /// The longest datagram that arrives, in bytes; zero for no limit.
    pub longest_bytes: u32,
    /// The speed of the line, in bits a second; zero for no limit.
    pub rate_bits: u64,
    /// What makes one run's faults differ from another's.
    pub seed: u64,
}

impl FaultSpec {
    /// Whether the network does no harm at all.
    pub fn is_clean(&self) -> bool {
        FaultSpec { seed: 0, ..*self } == FaultSpec::default()
    }
    /// Whether a datagram is lost in a cut that is sent so long after the job's start.
    pub fn cuts_off(&self, after: Span, from: NodeId, to: NodeId) -> bool {
        self.cuts.iter().flatten().any(|cut| cut.takes(after, from, to))
    }
    /// Whether any way is ever cut.
    pub fn has_cuts(&self) -> bool {
        self.cuts[0].is_some()
    }
    /// Whether some datagrams leave later than they were given, so that somebody must keep them until then.
    pub fn holds_datagrams(&self) -> bool {
        self.delay > Span(0) || self.rate_bits > 0 || !self.reorder.is_never()
    }
    /// Whether datagrams arrive damaged, which a job that does not authenticate them may fail to notice.
    pub fn damages(&self) -> bool {
        !self.corrupt.is_never() || !self.truncate.is_never()
    }
}

/// A fault specification that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaultSpecError {
    /// Not of the form `name=value`.
    #[error("fault `{0}` has no value; write for example drop=5%")]
    NoValue(String),
    /// No fault has this name.
    #[error(
        "no fault is called `{0}`; there are drop, dup, reorder, delay, truncate, corrupt, cut, longest, rate and seed"
    )]
    UnknownName(String),
    /// The same fault twice.
    #[error("fault `{0}` is given twice; give it once")]
    Twice(String),
    /// A value that the fault cannot have.
    #[error("fault {name}={value}: expected {expected}")]
    BadValue {
        /// The fault.
        name: String,
        /// What was given.
        value: String,
        /// What would have been understood.
        expected: &'static str,
    },
}

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<FaultSpec, FaultSpecError> {
        let mut spec = FaultSpec::default();
        let mut seen: Vec<&str> = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| FaultSpecError::NoValue(item.to_string()))?;
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(FaultSpecError::Twice(name.to_string()));
            }
            seen.push(name);
            spec.set(name, value)?;
        }
        Ok(spec)
    }
}

impl FaultSpec {
    fn set(&mut self, name: &str, value: &str) -> Result<(), FaultSpecError> {
        let expected = match name {
            "drop" | "dup" | "reorder" | "truncate" | "corrupt" => "a percentage from 0% to 100%, such as 5% or 0.1%",
            "delay" => "a time such as 25us, 2ms or 300ns, at most 10s",
            "rate" => "a speed such as 10gbit, 100mbit or 64kbit",
            "cut" => "up to four of 0-2 (both ways) or 0>2, each with @1s (start) and +500ms (length), slashes between",
            "longest" => "a number of bytes from 64",
            "seed" => "a whole number",
            _ => return Err(FaultSpecError::UnknownName(name.to_string())),
        };
        let chance = || parse_chance(value);
        let understood = match name {
            "drop" => chance().map(|c| self.drop = c),
            "dup" => chance().map(|c| self.duplicate = c),
            "reorder" => chance().map(|c| self.reorder = c),
            "truncate" => chance().map(|c| self.truncate = c),
            "corrupt" => chance().map(|c| self.corrupt = c),
            "delay" => parse_delay(value).map(|d| self.delay = d),
            "cut" => parse_cuts(value).map(|cuts| self.cuts = cuts),
            "longest" => value.parse().ok().filter(|bytes| *bytes >= 64).map(|bytes| self.longest_bytes = bytes),
            "rate" => parse_rate(value).map(|r| self.rate_bits = r),
            _ => value.parse().ok().map(|s| self.seed = s),
        };
        understood.ok_or_else(|| FaultSpecError::BadValue { name: name.into(), value: value.into(), expected })
    }
}

fn parse_chance(text: &str) -> Option<Chance> {
    let parts = parse_decimal(text.strip_suffix('%')?, u64::from(Chance::ONE_PERCENT))?;
    Chance::from_parts_per_billion(u32::try_from(parts).ok()?)
}

fn parse_cuts(text: &str) -> Option<[Option<Cut>; CUTS_MAX]> {
    let mut cuts = [None; CUTS_MAX];
    for (index, one) in text.split('/').enumerate() {
        *cuts.get_mut(index)? = Some(parse_cut(one)?);
    }
    Some(cuts)
}

fn parse_cut(text: &str) -> Option<Cut> {
    let (text, length) = text.split_once('+').map_or((text, None), |(text, length)| (text, Some(length)));
    let (text, start) = text.split_once('@').map_or((text, None), |(text, start)| (text, Some(start)));
    let both = text.contains('-');
    let (from, to) = text.split_once(if both { '-' } else { '>' })?;
    let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
    let start = start.map_or(Some(Span(0)), parse_time)?;
    let length = length.map(parse_time);
    (from != to && length != Some(None)).then_some(Cut { from, to, both, start, length: length.flatten() })
}

fn parse_delay(text: &str) -> Option<Span> {
    parse_time(text).filter(|&time| time.0 <= 10_000_000_000)
}

/// A time of an hour at most.
fn parse_time(text: &str) -> Option<Span> {
    const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (number, unit) = split_unit(text, &UNITS)?;
    parse_decimal(number, unit).filter(|&ns| ns <= 3_600_000_000_000).map(Span)
}

fn parse_rate(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
    let (number, unit) = split_unit(text, &UNITS)?;
    parse_decimal(number, unit).filter(|&bits| (1_000..=1_000_000_000_000).contains(&bits))
}

fn split_unit<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(&'a str, u64)> {
    units.iter().find_map(|(name, size)| Some((text.strip_suffix(name)?, *size)))
}

/// Reads `12` or `12.5` and multiplies it with `unit`, exactly; `None` when digits would be lost.
fn parse_decimal(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes().map(|b| u64::from(b - b'0')) {
        if digit != 0 && !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        total = total.checked_add(digit * place)?;
    }
    Some(total)
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut item = |present: bool, name: &str, value: &dyn fmt::Display| {
            if !present {
                return Ok(());
            }
            write!(f, "{separator}{name}={value}")?;
            separator = ",";
            Ok(())
        };
        for (name, chance) in [("drop", self.drop), ("dup", self.duplicate), ("reorder", self.reorder)] {
            item(!chance.is_never(), name, &chance)?;
        }
        item(self.delay > Span(0), "delay", &with_unit(self.delay.0, TIME_UNITS))?;
        for (name, chance) in [("truncate", self.truncate), ("corrupt", self.corrupt)] {
            item(!chance.is_never(), name, &chance)?;
        }
        let cuts: Vec<String> = self.cuts.iter().flatten().map(Cut::to_string).collect();
        item(!cuts.is_empty(), "cut", &cuts.join("/"))?;
        item(self.longest_bytes > 0, "longest", &self.longest_bytes)?;
        item(self.rate_bits > 0, "rate", &with_unit(self.rate_bits, ["bit", "kbit", "mbit", "gbit"]))?;
        item(self.seed != 0, "seed", &self.seed)
    }
}

/// Writes a number with the largest of four units, each a thousand of the one before, that divides it.
fn with_unit(mut number: u64, units: [&str; 4]) -> String {
    let mut unit = 0;
    while unit < 3 && number != 0 && number.is_multiple_of(1_000) {
        number /= 1_000;
        unit += 1;
    }
    format!("{number}{}", units[unit])
}

/// A small seeded generator, xoshiro256** seeded by splitmix64; its numbers never change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The generator of `seed`.
    pub fn new(mut seed: u64) -> Rng {
        Rng(std::array::from_fn(|_| splitmix(&mut seed)))
    }
    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.0;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }
    /// A number from zero up to but not including `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One arrival of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// How long after it was given to the network it leaves.
    pub delay: Span,
    /// How many of its bytes arrive.
    pub bytes: usize,
    flips: [u32; FLIPS_MAX],
    flip_count: u8,
}

impl Delivery {
    /// The positions of the flipped bits, counted from the lowest bit of the first byte.
    pub fn flipped_bits(&self) -> &[u32] {
        &self.flips[..usize::from(self.flip_count)]
    }
    /// Whether `datagram` arrives as it is and at once.
    pub fn is_harmless(&self, datagram: &[u8]) -> bool {
        self.delay == Span(0) && self.bytes == datagram.len() && self.flip_count == 0
    }
    /// What arrives of `datagram`.
    pub fn apply(&self, datagram: &[u8]) -> Vec<u8> {
        let mut arriving = datagram[..self.bytes.min(datagram.len())].to_vec();
        for &bit in self.flipped_bits() {
            if let Some(byte) = arriving.get_mut(bit as usize / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        arriving
    }
}

/// What the network does to one datagram: how often it arrives, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    deliveries: [Delivery; 2],
    count: u8,
}

impl Decision {
    /// The datagram's arrivals: none when it is lost, two when it is doubled.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries[..usize::from(self.count)]
    }
    /// Whether the datagram is lost.
    pub fn is_lost(&self) -> bool {
        self.count == 0
    }
    /// Whether `datagram` arrives once, at once and as it is.
    pub fn is_harmless(&self, datagram: &[u8]) -> bool {
        matches!(self.deliveries(), [only] if only.is_harmless(datagram))
    }
    /// How much later `datagram` arrives, when it arrives once and as it is.
    pub fn delay_if_whole(&self, datagram: &[u8]) -> Option<Span> {
        match self.deliveries() {
            [only] if only.bytes == datagram.len() && only.flip_count == 0 => Some(only.delay),
            _ => None,
        }
    }
}

/// One sender's network: decides about its datagrams in turn.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    spec: FaultSpec,
    drop: Rng,
    duplicate: Rng,
    reorder: Rng,
    truncate: Rng,
    corrupt: Rng,
    line_free_at: Time,
}

impl FaultPlan {
    /// The network of sender `stream` (a node's number, say); each stream has faults of its own.
    pub fn new(spec: &FaultSpec, stream: u64) -> FaultPlan {
        let mut kinds = Rng::new(spec.seed ^ splitmix(&mut stream.wrapping_add(1)));
        let mut kind = || Rng::new(kinds.next_u64());
        let (drop, duplicate, reorder, truncate, corrupt) = (kind(), kind(), kind(), kind(), kind());
        FaultPlan { spec: *spec, drop, duplicate, reorder, truncate, corrupt, line_free_at: Time(0) }
    }

    /// What this plan was made from.
    pub fn spec(&self) -> &FaultSpec {
        &self.spec
    }

    /// Decides about a datagram of `len` bytes that is sent now.
    pub fn decide(&mut self, now: Time, len: usize) -> Decision {
        let unharmed = Delivery { delay: Span(0), bytes: len, flips: [0; FLIPS_MAX], flip_count: 0 };
        let mut decision = Decision { deliveries: [unharmed; 2], count: 0 };
        let too_long = self.spec.longest_bytes > 0 && len > self.spec.longest_bytes as usize;
        let lost = self.spec.drop.happens(&mut self.drop) || too_long;
        let copies = if self.spec.duplicate.happens(&mut self.duplicate) { 2 } else { 1 };
        for _ in 0..if lost { 0 } else { copies } {
            let Some(queued) = self.queue(now, len) else { continue };
            let delay = Span(queued.0.saturating_add(self.spec.delay.0).saturating_add(self.hold().0));
            decision.deliveries[usize::from(decision.count)] = self.damage(Delivery { delay, ..unharmed });
            decision.count += 1;
        }
        decision
    }

    /// The datagram's time in the line's queue and on the line; `None` when the queue has no room.
    fn queue(&mut self, now: Time, len: usize) -> Option<Span> {
        if self.spec.rate_bits == 0 {
            return Some(Span(0));
        }
        let line_ns = |bytes: u64| (u128::from(bytes) * 8_000_000_000 / u128::from(self.spec.rate_bits)) as u64;
        let backlog = self.line_free_at - now;
        if backlog.0.saturating_add(line_ns(len as u64)) > line_ns(LINE_QUEUE_BYTES_MAX) {
            return None;
        }
        self.line_free_at = now.max(self.line_free_at) + Span(line_ns(len as u64));
        Some(self.line_free_at - now)
    }

    fn hold(&mut self) -> Span {
        let (shortest, longest) = REORDER_HOLD;
        match self.spec.reorder.happens(&mut self.reorder) {
            true => Span(self.reorder.between(shortest.0, longest.0)),
            false => Span(0),
        }
    }

    fn damage(&mut self, mut delivery: Delivery) -> Delivery {
        if delivery.bytes > 0 && self.spec.truncate.happens(&mut self.truncate) {
            delivery.bytes = self.truncate.below(delivery.bytes as u64) as usize;
        }
        if delivery.bytes > 0 && self.spec.corrupt.happens(&mut self.corrupt) {
            self.choose_flips(&mut delivery);
        }
        delivery
    }

    /// Chooses one to three bits; never the same twice, which would undo the damage.
    fn choose_flips(&mut self, delivery: &mut Delivery) {
        for _ in 0..self.corrupt.between(1, FLIPS_MAX as u64) {
            let bit = self.corrupt.below(delivery.bytes as u64 * 8) as u32;
            if !delivery.flipped_bits().contains(&bit) {
                delivery.flips[usize::from(delivery.flip_count)] = bit;
                delivery.flip_count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
