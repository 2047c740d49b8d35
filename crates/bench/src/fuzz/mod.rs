//! Feeds bytes from the network to everything that reads them, and lets nothing pass that a peer must not do: no panic,
//! no endless memory, no message that is read one way and written another.
//!
//! [`Victim`] is a node with the production state machines: link, locks, flags, barrier, units of each engine,
//! start-up. [`Victim::feed`] takes one input, which is a list of datagrams. The same function serves `comem-fuzz`
//! (seeded, any toolchain) and the target of cargo-fuzz (`fuzz/`, guided by coverage). [`Author`] writes inputs: honest
//! datagrams first, then damaged ones.

mod author;
mod history;
mod sets;
mod victim;
mod victim_node;
mod victim_pages;

pub use author::Author;
pub use history::check_history;
pub use sets::check_sets;
pub use victim::Victim;

/// Nodes in the victim's job.
pub const NODES: usize = 4;
/// Slots of each node: its service thread and two application threads.
pub const SLOTS: usize = 3;
/// The job's program number.
pub const PROG: u16 = 77;

/// The job's number.
pub const JOB: u64 = 0x1234_5678_9abc;

/// Cuts an input into datagrams: each behind its length in two bytes; the last may be cut short.
pub fn datagrams(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = input;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (datagram, after) = after.split_at(length);
        rest = after;
        Some(datagram)
    })
}

/// Appends a datagram to an input.
pub fn append(input: &mut Vec<u8>, datagram: &[u8]) {
    let length = datagram.len().min(usize::from(u16::MAX));
    input.extend_from_slice(&(length as u16).to_be_bytes());
    input.extend_from_slice(&datagram[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::faults::Rng;

    #[test]
    fn an_input_is_a_list_of_datagrams() {
        let mut input = Vec::new();
        append(&mut input, b"abc");
        append(&mut input, b"");
        append(&mut input, b"d");
        assert_eq!(datagrams(&input).collect::<Vec<_>>(), [&b"abc"[..], b"", b"d"]);
        input.pop();
        assert_eq!(datagrams(&input).last(), Some(&b""[..]));
    }

    #[test]
    fn honest_datagrams_are_understood() {
        let mut author = Author::new(2);
        let mut victim = Victim::new();
        for _ in 0..2_000 {
            let mut input = Vec::new();
            author.write_honestly(&mut input);
            victim.feed(&input);
        }
        let seen = victim.seen();
        assert!(seen.messages > 300, "{seen:?}");
        assert!(seen.acks > 50 && seen.replies > 2 && seen.steps > 200 && seen.starts > 50, "{seen:?}");
        assert!(seen.set_messages > 10, "{seen:?}");
    }

    #[test]
    fn damaged_datagrams_do_no_harm() {
        for seed in 0..20 {
            let mut author = Author::new(seed);
            let mut victim = Victim::new();
            for _ in 0..500 {
                victim.feed(&author.write());
            }
            assert!(victim.seen().refused > 100, "seed {seed}: {:?}", victim.seen());
        }
    }

    #[test]
    fn noise_does_no_harm() {
        let mut rng = Rng::new(5);
        let mut victim = Victim::new();
        for _ in 0..20_000 {
            let length = rng.below(80) as usize;
            let noise: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
            victim.feed(&noise);
        }
    }
}
