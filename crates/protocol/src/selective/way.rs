//! Whether a job sends one datagram to many nodes, or many to one each.

use std::fmt;
use std::str::FromStr;

/// What a job was told about multicast (`--multicast`, `COMEM_MULTICAST`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Choice {
    /// Where the job's engine sends to many nodes at once, and all of them hear it.
    #[default]
    Auto,
    /// Whatever the engine; the job fails where a node does not hear it.
    On,
    /// Never.
    Off,
}

/// A word that is no choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected auto, on or off")]
pub struct NoChoice;

impl Choice {
    /// The name by which it is given.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Auto => "auto",
            Choice::On => "on",
            Choice::Off => "off",
        }
    }

    /// Whether a job wants multicast at all. `multicasts`: its engine sends to many nodes at once. With two nodes one
    /// datagram reaches the other as it is.
    fn is_wanted(self, multicasts: bool, nodes: usize) -> bool {
        match self {
            Choice::Auto => multicasts && nodes > 2,
            Choice::On => nodes > 1,
            Choice::Off => false,
        }
    }

    /// Whether start-up finds out who hears the job's group. That takes 200 ms where somebody does not.
    pub fn probes(self, multicasts: bool, nodes: usize, over_udp: bool) -> bool {
        over_udp && self.is_wanted(multicasts, nodes)
    }

    /// How a job sends to many nodes. `all_hear`: every node has heard the probe.
    pub fn way(self, multicasts: bool, nodes: usize, over_udp: bool, all_hear: bool) -> Way {
        match (self.is_wanted(multicasts, nodes), over_udp) {
            (false, _) => Way::Off,
            (true, false) => Way::Shm,
            (true, true) if all_hear => Way::Ip,
            (true, true) => Way::FanOut,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Choice {
    type Err = NoChoice;

    fn from_str(text: &str) -> Result<Choice, NoChoice> {
        [Choice::Auto, Choice::On, Choice::Off].into_iter().find(|choice| choice.name() == text).ok_or(NoChoice)
    }
}

/// How a job sends to many nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Way {
    /// One datagram to the job's group.
    Ip,
    /// A datagram to each.
    FanOut,
    /// Through memory that the nodes share.
    Shm,
    /// Nothing asks for it, or it was switched off: what goes to many nodes goes to each.
    #[default]
    Off,
}

impl Way {
    /// Its name in the statistics.
    pub fn name(self) -> &'static str {
        match self {
            Way::Ip => "ip",
            Way::FanOut => "fanout",
            Way::Shm => "shm",
            Way::Off => "off",
        }
    }
}

/// How many asks a sender looks back on.
pub const ASKS: u32 = u64::BITS;

/// Which of a sender's last [`ASKS`] asks had to be repaired: some answer did not come, and the node was asked alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepairHistory(pub u64);

impl RepairHistory {
    /// The history with one more ask.
    pub fn with(self, repaired: bool) -> RepairHistory {
        RepairHistory(self.0 << 1 | u64::from(repaired))
    }

    /// Whether the sender gives multicast up: over half of its last asks had to be repaired. That takes more messages
    /// than to ask each node alone.
    pub fn gives_up(self) -> bool {
        self.0.count_ones() > ASKS / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_gives_up_when_over_half_of_its_last_64_asks_were_repaired() {
        let after = |asks: &[(usize, bool)]| {
            let all = asks.iter().flat_map(|(times, repaired)| std::iter::repeat_n(*repaired, *times));
            all.fold(RepairHistory::default(), RepairHistory::with)
        };
        assert!(!RepairHistory::default().gives_up());
        assert!(!after(&[(32, true)]).gives_up() && after(&[(33, true)]).gives_up());
        assert!(!after(&[(32, true), (32, false)]).gives_up() && after(&[(31, false), (33, true)]).gives_up());
        assert!(!after(&[(60, true), (32, false)]).gives_up(), "32 of the last 64");
        let alternating = (0..1_000).fold(RepairHistory::default(), |past, at| past.with(at % 2 == 0));
        assert!(!alternating.gives_up(), "half is not over half");
        let two_in_three = (0..1_000).fold(RepairHistory::default(), |past, at| past.with(at % 3 != 0));
        assert!(two_in_three.gives_up());
    }

    #[test]
    fn a_job_pays_for_the_probe_only_where_it_may_use_what_it_finds() {
        let probes = |choice: Choice, multicasts, nodes| choice.probes(multicasts, nodes, true);
        assert!(probes(Choice::Auto, true, 3) && !probes(Choice::Auto, true, 2) && !probes(Choice::Auto, false, 9));
        assert!(probes(Choice::On, false, 2) && !probes(Choice::On, true, 1));
        assert!(!probes(Choice::Off, true, 9));
        assert!([Choice::Auto, Choice::On].iter().all(|choice| !choice.probes(true, 9, false)), "over shared memory");
    }

    #[test]
    fn the_way_is_what_was_asked_for_and_arrives() {
        let way = |choice: Choice, over_udp, all_hear| choice.way(true, 4, over_udp, all_hear).name();
        assert_eq!([way(Choice::Auto, true, true), way(Choice::Auto, true, false)], ["ip", "fanout"]);
        assert_eq!([way(Choice::Auto, false, false), way(Choice::Off, true, true)], ["shm", "off"]);
        assert_eq!(Choice::Auto.way(false, 4, true, true), Way::Off);
        assert_eq!(Choice::On.way(false, 4, true, true), Way::Ip);
    }

    #[test]
    fn choices_are_read_by_name() {
        for choice in [Choice::Auto, Choice::On, Choice::Off] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("maybe".parse::<Choice>().unwrap_err().to_string(), "expected auto, on or off");
    }
}
