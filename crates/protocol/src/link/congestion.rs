//! How many packets may be on their way to one node, and how fast they may follow one another.
//!
//! The paper's own system drowned its network; this one must share a LAN with others, and with itself. Three choices:
//!
//! - **A window in packets**, slow start, then one packet more each round trip: the rule by which TCP shares a link.
//! - **How far a loss lowers it depends on what else is seen.** If round trips have grown as well (a queue stands
//!   somewhere), or nearly every third packet is lost (a receive buffer overflows: an open flood lost 58 % when
//!   measured), the window is halved, like TCP's. A loss without either is mostly a bad link or a fault injected on
//!   purpose; then the window shrinks by an eighth. Against TCP at a shallow switch this takes about as much as CUBIC
//!   or BBR do; and at 20 % random loss it settles near eight packets where halving would leave it at two. Either
//!   happens at most once a round trip.
//! - **Nobody answers at all:** back to two packets, the floor, and slow start from there.
//!
//! Packets leave at a pace of 1.25 windows a round trip (two in slow start), with bursts of up to [`BURST`] packets: a
//! burst fills one GSO send, and a timer for less than that would cost more than it evens out. Before a first round
//! trip is known nothing is paced. A single small request is never held up by the pace.

use super::rtt::Rtt;
use crate::time::{Span, Time};

/// The window is never smaller, so that a lone request always goes out.
pub const WINDOW_MIN: u32 = 2;
/// The window at the start.
pub const WINDOW_INITIAL: u32 = 16;
/// The window is never larger: what a receive buffer of 4 MiB holds of full datagrams, at 4 KiB each.
pub const WINDOW_MAX: u32 = 1024;
/// Packets that may leave without a pause.
pub const BURST: u32 = 32;

/// Round trips this much above twice the smallest are not yet a queue: threads are late by as much.
const QUEUE_SLACK: Span = Span::from_us(200);
/// The share of packets lost from which on a loss counts as overload.
const OVERLOAD_PERMILLE: u32 = 300;

/// Window and pace towards one node.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    window: u32,
    threshold: u32,
    /// Packets acknowledged since the window last grew by one.
    credit: u32,
    /// The share of packets lost, a moving average over some sixty packets, in 1/1000 (times 64).
    loss: u32,
    reduced_at: Option<Time>,
    /// When the next packet would leave if packets were evenly spaced.
    next_even: Time,
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion {
            window: WINDOW_INITIAL,
            threshold: WINDOW_MAX,
            credit: 0,
            loss: 0,
            reduced_at: None,
            next_even: Time(0),
        }
    }
}

impl Congestion {
    /// How many packets may be on their way.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// `packets` have arrived while `in_flight` were on their way (these included).
    pub fn on_arrived(&mut self, packets: u32, in_flight: u32) {
        for _ in 0..packets.min(64) {
            self.loss -= self.loss / 64;
        }
        if in_flight * 2 < self.window {
            return; // the window was not what held us back: its size is not proven
        }
        if self.window < self.threshold {
            self.window = (self.window + packets).min(WINDOW_MAX);
            return;
        }
        self.credit += packets;
        while self.credit >= self.window {
            self.credit -= self.window;
            self.window = (self.window + 1).min(WINDOW_MAX);
        }
    }

    /// A packet that left at `sent` is lost although others arrive.
    pub fn on_lost(&mut self, now: Time, sent: Time, rtt: &Rtt) {
        self.loss = self.loss - self.loss / 64 + 1000;
        if !self.first_in_round(now, sent) {
            return;
        }
        let queue = match (rtt.smoothed(), rtt.minimum()) {
            (Some(smoothed), Some(minimum)) => smoothed.0 > 2 * minimum.0 + QUEUE_SLACK.0,
            _ => false,
        };
        let overload = self.loss / 64 > OVERLOAD_PERMILLE;
        let share = if queue || overload { 2 } else { 8 };
        self.window = (self.window - self.window.div_ceil(share)).max(WINDOW_MIN);
        self.threshold = self.window;
    }

    /// A packet that left at `sent` is lost, and nothing has been heard from the node since.
    pub fn on_silence(&mut self, now: Time, sent: Time) {
        if self.first_in_round(now, sent) {
            self.threshold = (self.window / 2).max(WINDOW_MIN);
            self.window = WINDOW_MIN;
        }
    }

    /// Losses among packets that left before the last reduction belong to the same event.
    fn first_in_round(&mut self, now: Time, sent: Time) -> bool {
        let first = self.reduced_at.is_none_or(|at| sent >= at);
        if first {
            self.reduced_at = Some(now);
        }
        first
    }

    /// When the next packet may leave: now, or at the moment returned.
    pub fn held_until(&self, now: Time, rtt: &Rtt) -> Option<Time> {
        let burst = Span(self.gap(rtt).0 * u64::from(BURST));
        (self.next_even > now + burst).then(|| Time(self.next_even.0 - burst.0))
    }

    /// A packet has left.
    pub fn on_sent(&mut self, now: Time, rtt: &Rtt) {
        self.next_even = self.next_even.max(now) + self.gap(rtt);
    }

    /// The space between two packets that are evenly spaced.
    fn gap(&self, rtt: &Rtt) -> Span {
        let Some(round_trip) = rtt.smoothed() else { return Span(0) };
        let quarters = if self.window < self.threshold { 8 } else { 5 };
        Span(round_trip.0.saturating_mul(4) / (u64::from(self.window) * quarters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one window each, every packet lost with probability `permille`/1000.
    fn mean_window(permille: u64, rounds: u64) -> u64 {
        let (mut state, mut congestion, mut rtt) = (7u64, Congestion::default(), Rtt::default());
        let mut sum = 0;
        for round in 0..rounds {
            let now = Time((round + 1) * 100_000);
            rtt.sample(now, Span::from_us(100));
            let window = congestion.window();
            for _ in 0..window {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (state >> 33) % 1000 < permille {
                    congestion.on_lost(now, Time(round * 100_000), &rtt);
                } else {
                    congestion.on_arrived(1, window);
                }
            }
            sum += u64::from(window);
        }
        sum / rounds
    }

    #[test]
    fn random_loss_does_not_close_the_window_but_overload_does() {
        assert_eq!(mean_window(0, 2000) / 100, 10, "grows to its maximum");
        let (five, twenty, sixty) = (mean_window(50, 5000), mean_window(200, 5000), mean_window(600, 5000));
        assert!(five >= 10 && (5..five).contains(&twenty) && sixty <= 3, "{five} {twenty} {sixty}");
    }

    #[test]
    fn a_standing_queue_halves_the_window_once_a_round_trip() {
        let (mut congestion, mut rtt) = (Congestion::default(), Rtt::default());
        rtt.sample(Time(0), Span::from_us(50));
        for i in 1..50 {
            rtt.sample(Time(i), Span::from_ms(3));
        }
        congestion.on_lost(Time(200), Time(100), &rtt);
        congestion.on_lost(Time(201), Time(101), &rtt);
        assert_eq!(congestion.window(), WINDOW_INITIAL / 2);
        congestion.on_lost(Time(301), Time(200), &rtt);
        assert_eq!(congestion.window(), WINDOW_INITIAL / 4);
    }

    #[test]
    fn silence_leaves_the_floor_and_slow_start_leads_back() {
        let mut congestion = Congestion::default();
        congestion.on_silence(Time(10), Time(1));
        assert_eq!(congestion.window(), WINDOW_MIN);
        congestion.on_arrived(2, 2);
        congestion.on_arrived(4, 4);
        assert_eq!(congestion.window(), WINDOW_INITIAL / 2);
        congestion.on_arrived(4, 8);
        assert_eq!(congestion.window(), WINDOW_INITIAL / 2, "beyond the threshold it grows slowly");
    }

    #[test]
    fn the_pace_holds_packets_up_only_after_a_burst() {
        let (mut congestion, mut rtt) = (Congestion::default(), Rtt::default());
        assert_eq!(congestion.held_until(Time(0), &rtt), None);
        rtt.sample(Time(0), Span(32_000));
        let mut sent = 0;
        while congestion.held_until(Time(0), &rtt).is_none() {
            congestion.on_sent(Time(0), &rtt);
            sent += 1;
        }
        assert_eq!(sent, BURST + 1);
        let at = congestion.held_until(Time(0), &rtt).unwrap();
        assert_eq!(at, Time(1_000), "two windows of 16 a round trip of 32 us");
        assert_eq!(congestion.held_until(at, &rtt), None);
    }
}
