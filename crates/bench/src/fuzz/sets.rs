//! The head of a datagram to sets of nodes, by itself.

use super::{JOB, NODES, PROG};
use comem_protocol::auth::Sealer;
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::ids::NodeId;
use comem_protocol::selective::head::{SetsRepr, windows};
use comem_protocol::selective::{Author, MESSAGE_BYTES_MAX, Message, Receiver, Role, Taken};
use comem_protocol::wire::header::HEADER_BYTES;

/// Reads bytes as a datagram, as the part of one behind its header, and as two sets of nodes that are written and read
/// again.
///
/// # Panics
/// When something is wrong with Comem: that is what this is for.
pub fn check_sets(input: &[u8]) {
    let mut receiver = Receiver::new((NodeId(0), PROG, JOB), NODES, Sealer::default());
    for _ in 0..2 {
        let _ = receiver.take(input, |_| true);
        assert!(receiver.kept_bytes() <= MESSAGE_BYTES_MAX);
    }
    if let Ok((sets, payload)) = SetsRepr::parse(input) {
        let mut again = Vec::new();
        sets.emit(&mut again);
        again.extend_from_slice(payload);
        assert_eq!(again, input, "sets are written as they were read");
        for members in [sets.asked, sets.told] {
            assert!(members.iter().all(|node| members.contains(node)));
            assert!(members.iter().all(|node| members.last() >= Some(node.0.into())));
        }
    }
    check_round_trip(input);
}

/// Sets whose members are the bits of the input, and its rest as the message.
fn check_round_trip(input: &[u8]) {
    let (sets, payload) = input.split_at(input.len().min(64));
    let bits = |bytes: &[u8]| -> NodeSet {
        let words = bytes.chunks(8).map(|chunk| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        NodeSet::from_words(words)
    };
    let (asked, told) = (bits(&sets[..sets.len() / 2]), bits(&sets[sets.len() / 2..]));
    let nodes = 256;
    let author = Author::new((NodeId(nodes as u16 - 1), PROG, JOB), Sealer::default(), HEADER_BYTES + 24 + 50);
    for me in [0, 63, 64, 200].map(NodeId) {
        let mut receiver = Receiver::new((me, PROG, JOB), nodes, Sealer::default());
        let (mut first, mut roles) = (0, Vec::new());
        for named in windows(&asked, &told) {
            let mut bytes = Vec::new();
            let segment = author.emit(first, named, payload, &mut bytes).expect("a short message");
            first += author.datagrams(payload.len()).expect("a short message") as u64;
            for datagram in bytes.chunks(segment) {
                if let Taken::Whole(Message { role, payload: whole, .. }) =
                    receiver.take(datagram, |_| true).expect("an honest datagram")
                {
                    assert_eq!(*whole, *payload);
                    roles.push(role);
                }
            }
        }
        roles.sort_by_key(|role| *role == Role::Told);
        let asked = asked.contains(me).then_some(Role::Asked);
        // Who is in both sets is asked by one datagram, and by another told, where they name windows of their own.
        assert_eq!(roles.first().copied(), asked.or(told.contains(me).then_some(Role::Told)), "{me}");
        assert!(roles.len() <= 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::faults::Rng;

    #[test]
    fn bytes_of_all_lengths_are_read_without_harm() {
        let mut rng = Rng::new(3);
        for _ in 0..3_000 {
            let length = rng.below(400) as usize;
            let sparse = rng.below(2) == 0;
            let mut byte = || (rng.next_u64() & if sparse { rng.next_u64() & rng.next_u64() } else { u64::MAX }) as u8;
            let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
            check_sets(&bytes);
        }
        check_sets(&[]);
    }
}
