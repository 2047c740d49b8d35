//! Which of the last [`WINDOW`] numbers have been seen: a ring of bits, so that a packet is never processed twice.
//!
//! A channel's numbers go to many nodes, so a receiver sees gaps that will never fill. It therefore remembers what it
//! has seen, not up to where all is there. What is older than the window counts as seen: the sender keeps no packet
//! that old.

/// How many numbers back from the newest are remembered.
pub const WINDOW: u64 = 4096;

const WORDS: usize = (WINDOW / 64) as usize + 1;

/// Bits for the newest numbers; one word more than the window, because its ends rarely fall on a word's.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// The newest word, counted from number zero.
    top: u64,
    words: [u64; WORDS],
}

impl Ring {
    pub const fn new() -> Ring {
        Ring { top: 0, words: [0; WORDS] }
    }

    /// Numbers 64 x `index` to 64 x `index` + 63.
    pub fn word(&self, index: u64) -> u64 {
        let held = index <= self.top && index + WORDS as u64 > self.top;
        if held { self.words[(index % WORDS as u64) as usize] } else { 0 }
    }

    pub fn set(&mut self, number: u64) {
        let index = number / 64;
        for new in (self.top + 1..=index).rev().take(WORDS) {
            self.words[(new % WORDS as u64) as usize] = 0;
        }
        self.top = self.top.max(index);
        if index + WORDS as u64 > self.top {
            self.words[(index % WORDS as u64) as usize] |= 1 << (number % 64);
        }
    }

    pub fn get(&self, number: u64) -> bool {
        self.word(number / 64) & 1 << (number % 64) != 0
    }
}

/// Where a number stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    New,
    Seen,
    Stale,
}

/// The receive window of one sequence space.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow {
    /// One more than the newest number seen.
    end: u64,
    seen: Ring,
}

impl Default for ReceiveWindow {
    fn default() -> ReceiveWindow {
        ReceiveWindow::new()
    }
}

impl ReceiveWindow {
    pub const fn new() -> ReceiveWindow {
        ReceiveWindow { end: 0, seen: Ring::new() }
    }

    pub fn place(&self, number: u64) -> Place {
        if number + WINDOW < self.end {
            Place::Stale
        } else if self.seen.get(number) {
            Place::Seen
        } else {
            Place::New
        }
    }

    pub fn insert(&mut self, number: u64) {
        self.seen.set(number);
        self.end = self.end.max(number + 1);
    }

    /// The oldest number that is not stale.
    pub fn start(&self) -> u64 {
        self.end.saturating_sub(WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_window_answers_like_a_set_that_forgets_the_oldest() {
        let (mut window, mut model, mut end, mut state) = (ReceiveWindow::new(), BTreeSet::new(), 0u64, 1u64);
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let stride = if state >> 60 == 0 { 9000 } else { 70 };
            let number = (end + (state >> 33) % stride).saturating_sub((state >> 20) % 4200);
            let expected = match number {
                n if n + WINDOW < end => Place::Stale,
                n if model.contains(&n) => Place::Seen,
                _ => Place::New,
            };
            assert_eq!(window.place(number), expected, "{number} of {end}");
            if expected == Place::New {
                window.insert(number);
                model.insert(number);
                end = end.max(number + 1);
            }
        }
    }

    #[test]
    fn a_far_jump_forgets_everything() {
        let mut window = ReceiveWindow::new();
        window.insert(3);
        window.insert(1 << 43);
        assert_eq!(window.place(3), Place::Stale);
        assert_eq!(window.place((1 << 43) - WINDOW + 1), Place::New);
        assert_eq!(window.place(1 << 43), Place::Seen);
    }
}
