//! Dividing work by measured speed: for networks of unequal machines (DSM/IP, sections 4 and 7).

use crate::error::Result;
use crate::node::Node;
use crate::thread::{Thread, cpu_ns};
use comem_protocol::sync::reduce::Operator;
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    /// How many things this thread took last time, and when it began with them (its own clock, nanoseconds).
    static LAST: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

impl Thread {
    /// This thread's share of `total` things, by the speed with which it worked off its last share: the time it spent
    /// computing, not waiting, between the last call and this one. The first call gives equal shares. All threads
    /// must call it.
    ///
    /// # Errors that end the node
    /// When another node makes a different collective call.
    pub fn split_weighted(&self, total: usize) -> Range<usize> {
        self.must(self.checked_split_weighted(total))
    }

    /// As [`Thread::split_weighted`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn checked_split_weighted(&self, total: usize) -> Result<Range<usize>> {
        let busy = busy_ns(self.home());
        let speed = match LAST.get() {
            Some((things, since)) if things > 0 && busy > since => things as f64 / (busy - since) as f64,
            _ => 0.0,
        };
        let mut speeds = vec![0.0; self.threads()];
        speeds[self.id()] = speed;
        self.checked_reduce_f64(Operator::Sum, &mut speeds)?;
        let range = split(total, &speeds, self.id());
        LAST.set(Some((range.len(), busy_ns(self.home()))));
        Ok(range)
    }
}

/// Nanoseconds that the calling thread has computed, a slowed node's delays included.
fn busy_ns(node: &Node) -> u64 {
    (cpu_ns() as f64 * node.config.slow) as u64
}

/// Part `index` of `total` divided in proportion to `speeds`; equally while any speed is unknown (zero).
fn split(total: usize, speeds: &[f64], index: usize) -> Range<usize> {
    if speeds.iter().any(|s| *s <= 0.0 || !s.is_finite()) {
        return crate::split(total, index, speeds.len());
    }
    let sum: f64 = speeds.iter().sum();
    let edge = |upto: usize| {
        let part: f64 = speeds[..upto].iter().sum();
        if upto == speeds.len() { total } else { ((total as f64 * part / sum).round() as usize).min(total) }
    };
    edge(index)..edge(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_speed_and_cover_everything() {
        let speeds = [3.0, 1.0, 2.0];
        let parts: Vec<_> = (0..3).map(|i| split(600, &speeds, i)).collect();
        assert_eq!(parts, [0..300, 300..400, 400..600]);
        assert_eq!(split(10, &[1.0, 0.0], 0), 0..5, "equal while a speed is unknown");
    }
}
