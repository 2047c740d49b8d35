//! How a thread waits for a word that another thread will change soon.

use std::time::Duration;

/// Rounds of spinning, each twice as long as the one before: 8 to 2,048 looks, some 10 us together.
const SPIN_ROUNDS: u32 = 9;
const FIRST_LOOKS: u32 = 8;
/// The first sleep, and the longest one.
const SLEEP_FIRST_US: u64 = 50;
const SLEEP_MAX_US: u64 = 1_000;

/// How long a thread has waited in a row: first it spins, then it sleeps, each time longer, so that a holder that has
/// lost its processor gets it back.
#[derive(Debug)]
pub(crate) struct Pause {
    round: u32,
    /// Threads that wait for the same word do not look in step.
    noise: u32,
}

impl Pause {
    /// Nothing was waited for yet. Threads that wait for the same word have different seeds.
    pub(crate) fn new(seed: usize) -> Pause {
        Pause { round: 0, noise: (seed as u32).wrapping_mul(0x9e37_79b9) | 1 }
    }

    /// Whether the thread sleeps from now on.
    pub(crate) fn sleeps(&self) -> bool {
        self.round >= SPIN_ROUNDS
    }

    /// Waits until `is_over`, or for a while that grows with each call that waited in vain.
    pub(crate) fn wait(&mut self, is_over: impl Fn() -> bool) {
        if !self.sleeps() {
            let looks = self.jittered(FIRST_LOOKS << self.round);
            for _ in 0..looks {
                if is_over() {
                    return;
                }
                std::hint::spin_loop();
            }
        } else if !is_over() {
            let longest = (SLEEP_FIRST_US << (self.round - SPIN_ROUNDS).min(8)).min(SLEEP_MAX_US);
            sleep(Duration::from_micros(self.jittered(longest as u32).into()));
        }
        self.round += 1;
    }

    /// Three quarters of `most`, up to all of it.
    fn jittered(&mut self, most: u32) -> u32 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 17;
        self.noise ^= self.noise << 5;
        most - self.noise % (most / 4).max(1)
    }
}

/// Sleeps, or is woken earlier by a signal. Unlike the C library's function, this is no point at which a thread is
/// cancelled.
fn sleep(time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    };
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the call reads the time, which outlives it.
    unsafe { libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, &raw const time, none) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_wait_in_a_row_spins_first_and_sleeps_then() {
        let (mut pause, looks) = (Pause::new(7), Cell::new(0));
        let mut before = 0;
        for round in 0..SPIN_ROUNDS {
            assert!(!pause.sleeps());
            pause.wait(|| {
                looks.set(looks.get() + 1);
                false
            });
            let (now, most) = (looks.get() - before, FIRST_LOOKS << round);
            assert!((most - most / 4..=most).contains(&now), "{now} looks in round {round}");
            before = looks.get();
        }
        assert!(pause.sleeps());
        pause.wait(|| {
            looks.set(looks.get() + 1);
            true
        });
        assert_eq!(looks.get(), before + 1);
        let start = std::time::Instant::now();
        (0..8).for_each(|_| pause.wait(|| false));
        assert!(start.elapsed() >= Duration::from_micros(37), "it sleeps, at least 37 us at first");
    }
}
