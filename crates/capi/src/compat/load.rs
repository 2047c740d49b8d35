//! JIAJIA's load balancing (JIAJIA 2.1 manual, section 4.7): a loop is divided by the hosts' *power*, which is what
//! they were given, divided by the time they computed for it.

use crate::buffer;
use crate::failure::{Outcome, done};
use crate::job::{job, thread};
use comem_rt::Operator;
use std::cell::RefCell;
use std::ffi::c_int;
use std::ops::Range;

/// Powers stay as they are while the hosts' times differ by less than this part.
const SAME: f64 = 0.05;

#[derive(Debug, Default)]
struct Balance {
    on: bool,
    /// Each host's part of the whole, summing to 1; empty before the first division.
    powers: Vec<f64>,
    /// This thread's processor time when it was last asked, in seconds.
    since: f64,
}

thread_local! {
    static BALANCE: RefCell<Balance> = RefCell::default();
}

/// Processor time of the calling thread, in seconds: waiting does not count.
fn computed() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the place is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Switches load balancing on or off.
pub fn switch(on: bool) {
    BALANCE.with_borrow_mut(|balance| balance.on = on);
}

/// The new powers after hosts with these powers have computed for so many seconds.
fn rated(powers: &[f64], times: &[f64]) -> Vec<f64> {
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>() / count;
    if times.iter().any(|t| *t <= 0.0) || variance < (SAME * mean) * (SAME * mean) {
        return powers.to_vec();
    }
    let rates: Vec<f64> = powers.iter().zip(times).map(|(power, time)| power / time).collect();
    let sum: f64 = rates.iter().sum();
    rates.iter().map(|rate| rate / sum).collect()
}

/// Host `host`'s part of the `count` steps of a loop.
fn part(powers: &[f64], host: usize, count: u64) -> Range<u64> {
    let edge = |hosts: usize| match hosts {
        0 => 0,
        all if all == powers.len() => count,
        some => ((powers[..some].iter().sum::<f64>() * count as f64) as u64).min(count),
    };
    edge(host)..edge(host + 1)
}

/// JIAJIA's way without balancing: equal parts, and what does not come out even goes to the last host.
fn equal(host: usize, hosts: usize, count: u64) -> Range<u64> {
    let each = count / hosts as u64;
    let start = each * host as u64;
    start..if host + 1 == hosts { count } else { start + each }
}

/// Divides the steps `*begin` to `*end`, both included, and gives this host's.
///
/// # Safety
/// Both point to numbers, or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_divtask(begin: *mut c_int, end: *mut c_int) {
    done(|| {
        let (host, hosts) = (job()?.node(), job()?.nodes());
        if begin.is_null() || end.is_null() {
            return Err(super::argument(
                "jia_divtask() was given no place for its result; pass pointers to two numbers",
            ));
        }
        // SAFETY: by this function's contract.
        let [first, last] = [begin, end].map(|at| unsafe { i64::from(buffer::numbers_of(at, 1)[0]) });
        let count = (last - first + 1).max(0) as u64;
        let mine = BALANCE.with_borrow_mut(|balance| {
            if !balance.on {
                return equal(host, hosts, count);
            }
            if balance.powers.len() != hosts {
                balance.powers = vec![1.0 / hosts as f64; hosts];
                balance.since = computed();
            }
            part(&balance.powers, host, count)
        });
        // SAFETY: by this function's contract.
        unsafe {
            buffer::give(end, (first + mine.end as i64 - 1) as c_int);
            buffer::give(begin, (first + mine.start as i64) as c_int);
        }
        Ok(())
    });
}

fn check() -> Outcome<()> {
    let (host, hosts) = (job()?.node(), job()?.nodes());
    if !BALANCE.with_borrow(|balance| balance.on && balance.powers.len() == hosts) {
        return Ok(());
    }
    let mut times = vec![0.0; hosts];
    times[host] = computed() - BALANCE.with_borrow(|balance| balance.since);
    thread()?.checked_reduce_f64(Operator::Sum, &mut times)?;
    BALANCE.with_borrow_mut(|balance| {
        balance.powers = rated(&balance.powers, &times);
        balance.since = computed();
    });
    Ok(())
}

/// Rates the hosts by the time they have computed since the last call. Collective while balancing is on.
#[unsafe(no_mangle)]
pub extern "C" fn jia_loadcheck() {
    done(check);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_took_twice_as_long_gets_half_as_much() {
        let powers = rated(&[0.5, 0.5], &[2.0, 1.0]);
        assert!((powers[0] - 1.0 / 3.0).abs() < 1e-12 && (powers[1] - 2.0 / 3.0).abs() < 1e-12, "{powers:?}");
        assert_eq!(part(&powers, 0, 300), 0..100);
        assert_eq!(part(&powers, 1, 300), 100..300);
    }

    #[test]
    fn small_differences_change_nothing() {
        assert_eq!(rated(&[0.5, 0.5], &[1.0, 1.02]), [0.5, 0.5]);
        assert_eq!(rated(&[0.5, 0.5], &[1.0, 0.0]), [0.5, 0.5], "nor does a host that has not been measured");
    }

    #[test]
    fn equal_parts_leave_the_rest_to_the_last() {
        assert_eq!([0, 1, 2].map(|host| equal(host, 3, 11)), [0..3, 3..6, 6..11]);
        assert_eq!(equal(0, 1, 5), 0..5);
    }
}
