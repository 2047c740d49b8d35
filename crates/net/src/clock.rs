//! Time in nanoseconds, from the processor's cycle counter where that can be trusted.
//!
//! A reading takes a few nanoseconds, several times less than asking the system. As in DSM/IP (section 4), the
//! counter is validated against the system's clock at start: for about two milliseconds both are read side by side,
//! and all samples must lie on one line. The processor must also promise that the counter runs at one speed through all
//! power states, and the kernel must not have rejected it as its own clock. Else the system's monotonic clock
//! is used, and [`Clock::note`] says why.

use crate::sys::system_ns;
use comem_protocol::time::Time;
use std::time::Duration;

/// How long the two clocks are compared at start.
const CALIBRATION: Duration = Duration::from_millis(2);
/// How many pairs of readings are compared.
const SAMPLES: usize = 5;
/// How far a sample may lie off the line; a reading that was interrupted lies further.
const TOLERANCE_NS: u64 = 1_000;
/// How often the comparison is made before the counter is given up: an interrupt may spoil one.
const ATTEMPTS: usize = 3;
/// The cycles of one nanosecond are kept in units of 2^-32.
const FRACTION_BITS: u32 = 32;

/// A clock; cheap to copy, one for each thread if you like. Its origin is the system's monotonic clock's, so that the
/// nodes of one host agree about the time to within some microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Cycles(Line),
    System(&'static str),
}

/// How cycles become nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    cycles: u64,
    ns: u64,
    ns_per_cycle: u64,
}

impl Line {
    fn through(first: Sample, last: Sample) -> Option<Line> {
        let cycles = last.cycles.checked_sub(first.cycles).filter(|&c| c > 0)?;
        let ns = last.ns.checked_sub(first.ns).filter(|&ns| ns > 0)?;
        let ns_per_cycle = u64::try_from((u128::from(ns) << FRACTION_BITS) / u128::from(cycles)).ok()?;
        Some(Line { cycles: first.cycles, ns: first.ns, ns_per_cycle })
    }

    #[inline]
    fn ns_at(&self, cycles: u64) -> u64 {
        // Another core's counter may be a few cycles behind the one read at start.
        let since = cycles.saturating_sub(self.cycles);
        self.ns + ((u128::from(since) * u128::from(self.ns_per_cycle)) >> FRACTION_BITS) as u64
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    cycles: u64,
    ns: u64,
}

impl Clock {
    /// Makes a clock, which takes about two milliseconds, most of them asleep.
    pub fn new() -> Clock {
        let source = match trusted_counter() {
            Err(why) => Source::System(why),
            Ok(()) => (0..ATTEMPTS)
                .find_map(|_| line_through(&compare()))
                .map_or(Source::System("it does not keep pace with the system's clock"), Source::Cycles),
        };
        Clock { source }
    }

    /// A clock that asks the system each time.
    pub fn system() -> Clock {
        Clock { source: Source::System("nobody asked for it") }
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Time {
        match &self.source {
            Source::Cycles(line) => Time(line.ns_at(cycles())),
            Source::System(_) => Time(system_ns()),
        }
    }

    /// Cycles of the counter in a second; `None` when it is not used.
    pub fn cycles_per_second(&self) -> Option<u64> {
        match self.source {
            Source::Cycles(line) => Some(((1_000_000_000u128 << FRACTION_BITS) / u128::from(line.ns_per_cycle)) as u64),
            Source::System(_) => None,
        }
    }

    /// A sentence for the user when the cycle counter is not used.
    pub fn note(&self) -> Option<String> {
        match self.source {
            Source::Cycles(_) => None,
            Source::System(why) => Some(format!("time comes from the system, not from the cycle counter: {why}")),
        }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

/// Reads both clocks at distances that are about equal, and sleeps meanwhile: other nodes of this host may be starting
/// too.
fn compare() -> [Sample; SAMPLES] {
    let start = system_ns();
    let gap = CALIBRATION.as_nanos() as u64 / (SAMPLES as u64 - 1);
    std::array::from_fn(|i| {
        let left = (start + gap * i as u64).saturating_sub(system_ns());
        std::thread::sleep(Duration::from_nanos(left));
        sample()
    })
}

/// Reads both clocks at one moment: the tightest of a few tries.
fn sample() -> Sample {
    let attempt = |_| {
        let before = cycles();
        let ns = system_ns();
        let after = cycles();
        (after.saturating_sub(before), Sample { cycles: before + after.saturating_sub(before) / 2, ns })
    };
    let tries: [(u64, Sample); 8] = std::array::from_fn(attempt);
    tries.iter().min_by_key(|(width, _)| *width).map_or(tries[0].1, |(_, sample)| *sample)
}

/// The line through the first sample and the last, when the others lie on it.
fn line_through(samples: &[Sample]) -> Option<Line> {
    let line = Line::through(*samples.first()?, *samples.last()?)?;
    samples.iter().all(|s| line.ns_at(s.cycles).abs_diff(s.ns) <= TOLERANCE_NS).then_some(line)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it only reads the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
fn trusted_counter() -> Result<(), &'static str> {
    const LEAF: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
    // SAFETY: every x86-64 processor has the instruction; leaf 0x8000_0000 tells the highest there is.
    let invariant = unsafe {
        let cpuid = core::arch::x86_64::__cpuid;
        cpuid(0x8000_0000).eax >= LEAF && cpuid(LEAF).edx & INVARIANT != 0
    };
    if !invariant {
        return Err("this processor's counter changes its speed");
    }
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match std::fs::read_to_string(file).as_deref().map(str::trim) {
        // A guest's own clocks are made from the counter, too.
        Ok("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "xen") | Err(_) => Ok(()),
        Ok(_) => Err("this kernel does not trust the counter"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn trusted_counter() -> Result<(), &'static str> {
    Err("it is read on x86-64 only")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(cycles_per_ns: &[u64]) -> Vec<Sample> {
        let line = |(i, per_ns): (usize, &u64)| Sample { cycles: 500_000 * i as u64 * per_ns, ns: 500_000 * i as u64 };
        cycles_per_ns.iter().enumerate().map(line).collect()
    }

    #[test]
    fn a_steady_counter_is_taken_and_an_unsteady_one_refused() {
        let line = line_through(&samples(&[3, 3, 3, 3, 3])).unwrap();
        assert_eq!(line.ns_per_cycle, (1 << FRACTION_BITS) / 3);
        assert!(line.ns_at(3_000_000_000_000).abs_diff(1_000_000_000_000) < 1_000);
        assert_eq!(line_through(&samples(&[3, 3, 2, 3, 3])), None);
        assert_eq!(line_through(&samples(&[0, 0, 0, 0, 0])), None);
        assert_eq!(line_through(&[]), None);
    }

    /// Holds wherever this thread loses its core: each reading lies between two of the system's.
    #[test]
    fn readings_do_not_go_back_and_follow_the_system() {
        for clock in [Clock::new(), Clock::system()] {
            let read = || (system_ns(), clock.now().0, system_ns());
            let first = read();
            let mut last = first;
            while last.0 - first.0 < 5_000_000 {
                let next = read();
                assert!(next.1 >= last.1);
                last = next;
            }
            let elapsed = last.1 - first.1;
            let (shortest, longest) = (last.0 - first.2, last.2 - first.0);
            let allowed = longest / 500 + TOLERANCE_NS;
            assert!(elapsed + allowed >= shortest && elapsed <= longest + allowed, "{shortest} {elapsed} {longest}");
            assert_eq!(clock.note().is_some(), clock.cycles_per_second().is_none());
        }
    }

    #[test]
    fn a_counter_that_lags_on_another_core_does_not_jump() {
        let line = Line { cycles: 1_000, ns: 7, ns_per_cycle: 1 << FRACTION_BITS };
        assert_eq!((line.ns_at(990), line.ns_at(1_010)), (7, 17));
    }
}
