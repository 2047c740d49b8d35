//! The keyed tag of a datagram: proof that a node of this job made it.
//!
//! Every job has a key of its own. The tag is BLAKE3, keyed, over header, payload and the number of the node that it is for, cut to 16 bytes: a stranger
//! who does not know the key guesses it with probability 2^-128, and what was meant for one node is nothing to another. The tag does not hide the data.
//! Old datagrams that are sent to the same node once more are the business of the receive windows of [`crate::link`], not of the tag.

use crate::ids::NodeId;
use std::fmt;

/// Bytes of the tag at the end of every datagram of a job that authenticates.
pub const TAG_BYTES: usize = 16;

/// The secret that the nodes of one job share.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// The key made of these bytes, which must come from a source of true randomness.
    pub fn new(bytes: [u8; 32]) -> JobKey {
        JobKey(bytes)
    }

    /// The key's bytes, to hand them to a process of the same job.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key for another purpose, from which this one cannot be computed. `context` names the purpose; no two
    /// purposes may share a name.
    pub fn derive(&self, context: &str) -> JobKey {
        JobKey(blake3::derive_key(context, &self.0))
    }

    /// The first 16 bytes of the keyed hash of `bytes` and whom they are for.
    pub fn tag(&self, bytes: &[u8], to: Receiver) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(bytes);
        hasher.update(&to.number().to_be_bytes());
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }

    /// Whether `tag` belongs to `bytes` for this receiver. How long the answer takes does not depend on how much of the tag is right.
    pub fn verify(&self, bytes: &[u8], to: Receiver, tag: &[u8; TAG_BYTES]) -> bool {
        u128::from_ne_bytes(self.tag(bytes, to)) ^ u128::from_ne_bytes(*tag) == 0
    }
}

/// Whom a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// One node.
    Node(NodeId),
    /// Whoever gets it: several nodes by multicast, or processes that have no number yet.
    Anybody,
}

impl Receiver {
    /// No node has the number for anybody.
    fn number(self) -> u16 {
        match self {
            Receiver::Node(node) => node.0,
            Receiver::Anybody => u16::MAX,
        }
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(secret)")
    }
}

/// Puts tags on outgoing datagrams and checks those of incoming ones; does nothing in a job without a key.
#[derive(Clone, Debug, Default)]
pub struct Sealer {
    key: Option<JobKey>,
}

impl Sealer {
    /// A sealer with this key; `None` for a job that does not authenticate.
    pub fn new(key: Option<JobKey>) -> Sealer {
        Sealer { key }
    }

    /// Bytes that sealing adds to a datagram.
    pub fn tag_len(&self) -> usize {
        if self.key.is_some() { TAG_BYTES } else { 0 }
    }

    /// The sealer of what the nodes of one job say to each other, whose key other jobs with the same secret do not have: what was recorded in one of them
    /// is nothing to this one.
    pub fn of_job(&self, job: u64) -> Sealer {
        let key = self.key.as_ref().map(|key| key.derive("comem 2026 datagrams of a job"));
        Sealer { key: key.map(|key| JobKey(*blake3::keyed_hash(&key.0, &job.to_be_bytes()).as_bytes())) }
    }

    /// Appends the tag of the datagram that fills `out` from `start` on.
    pub fn seal(&self, out: &mut Vec<u8>, start: usize, to: Receiver) {
        if let Some(key) = &self.key {
            let tag = key.tag(&out[start..], to);
            out.extend_from_slice(&tag);
        }
    }

    /// The datagram without its tag; `None` when the tag is wrong or missing, or for somebody else.
    pub fn open<'a>(&self, datagram: &'a [u8], me: Receiver) -> Option<&'a [u8]> {
        let Some(key) = &self.key else { return Some(datagram) };
        let (bytes, tag) = datagram.split_last_chunk::<TAG_BYTES>()?;
        let is_right = |to| key.verify(bytes, to, tag);
        (is_right(me) || (me != Receiver::Anybody && is_right(Receiver::Anybody))).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_unchanged_datagram_under_the_same_key_opens() {
        let sealer = Sealer::new(Some(JobKey::new([7; 32])));
        let mut bytes = b"earlier datagram".to_vec();
        let start = bytes.len();
        bytes.extend_from_slice(b"hello");
        let me = Receiver::Node(NodeId(3));
        sealer.seal(&mut bytes, start, me);
        let sealed = &bytes[start..];
        assert_eq!(sealed.len(), 5 + sealer.tag_len());
        assert_eq!(sealer.open(sealed, me), Some(&b"hello"[..]));
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&damaged, me), None, "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert_eq!(sealer.open(&sealed[..len], me), None);
        }
        assert_eq!(Sealer::new(Some(JobKey::new([8; 32]))).open(sealed, me), None);
    }

    #[test]
    fn what_is_for_one_node_is_nothing_to_another_and_what_is_for_anybody_is_for_all() {
        let sealer = Sealer::new(Some(JobKey::new([7; 32])));
        let [one, other] = [1, 2].map(|node| Receiver::Node(NodeId(node)));
        for (to, opens) in [(one, [true, false, false]), (Receiver::Anybody, [true; 3])] {
            let mut bytes = b"hello".to_vec();
            sealer.seal(&mut bytes, 0, to);
            assert_eq!([one, other, Receiver::Anybody].map(|me| sealer.open(&bytes, me).is_some()), opens, "{to:?}");
        }
    }

    #[test]
    fn what_was_said_in_one_job_is_nothing_to_another_with_the_same_secret() {
        let (secret, me) = (Sealer::new(Some(JobKey::new([7; 32]))), Receiver::Node(NodeId(0)));
        let mut bytes = b"hello".to_vec();
        secret.of_job(1).seal(&mut bytes, 0, me);
        assert!(secret.of_job(1).open(&bytes, me).is_some());
        assert!([secret.clone(), secret.of_job(2)].iter().all(|sealer| sealer.open(&bytes, me).is_none()));
    }

    #[test]
    fn a_job_without_a_key_adds_nothing() {
        let sealer = Sealer::default();
        let mut bytes = b"plain".to_vec();
        sealer.seal(&mut bytes, 0, Receiver::Node(NodeId(1)));
        assert_eq!(sealer.of_job(1).open(&bytes, Receiver::Node(NodeId(2))), Some(&b"plain"[..]));
    }

    #[test]
    fn the_tag_is_keyed_blake3_cut_to_16_bytes() {
        // The official test vector for an input of three bytes 0, 1, 2 under this key; the last two are the receiver's number.
        let key = JobKey::new(*b"whats the Elvish word for friend");
        let golden = [0x39, 0xe6, 0x7b, 0x76, 0xb5, 0xa0, 0x07, 0xd4, 0x92, 0x19, 0x69, 0x77, 0x9f, 0xe6, 0x66, 0xda];
        assert_eq!(key.tag(&[0], Receiver::Node(NodeId(0x0102))), golden);
    }

    #[test]
    fn keys_for_other_purposes_differ_and_no_key_is_printed() {
        let key = JobKey::new([0xab; 32]);
        assert_ne!(key.derive("comem datagrams"), key.derive("comem daemon"));
        assert_ne!(key.derive("comem datagrams"), key);
        assert_eq!(format!("{key:?}"), "JobKey(secret)");
    }
}
