//! The keyed tag of a datagram: proof that a node of this job made it.
//!
//! Every job has a key of its own. The tag is BLAKE3, keyed, over header and payload, cut to 16 bytes: a stranger who
//! does not know the key guesses it with probability 2^-128. The tag does not hide the data. Old datagrams that are sent
//! once more are the business of the receive windows of [`crate::link`], not of the tag.

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

    /// The first 16 bytes of the keyed hash of `bytes`.
    pub fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let hash = blake3::keyed_hash(&self.0, bytes);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
        tag
    }

    /// Whether `tag` belongs to `bytes`. How long the answer takes does not depend on how much of the tag is right.
    pub fn verify(&self, bytes: &[u8], tag: &[u8; TAG_BYTES]) -> bool {
        u128::from_ne_bytes(self.tag(bytes)) ^ u128::from_ne_bytes(*tag) == 0
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

    /// Appends the tag of the datagram that fills `out` from `start` on.
    pub fn seal(&self, out: &mut Vec<u8>, start: usize) {
        if let Some(key) = &self.key {
            let tag = key.tag(&out[start..]);
            out.extend_from_slice(&tag);
        }
    }

    /// The datagram without its tag; `None` when the tag is wrong or missing.
    pub fn open<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let Some(key) = &self.key else { return Some(datagram) };
        let (bytes, tag) = datagram.split_last_chunk::<TAG_BYTES>()?;
        key.verify(bytes, tag).then_some(bytes)
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
        sealer.seal(&mut bytes, start);
        let sealed = &bytes[start..];
        assert_eq!(sealed.len(), 5 + sealer.tag_len());
        assert_eq!(sealer.open(sealed), Some(&b"hello"[..]));
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&damaged), None, "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert_eq!(sealer.open(&sealed[..len]), None);
        }
        assert_eq!(Sealer::new(Some(JobKey::new([8; 32]))).open(sealed), None);
    }

    #[test]
    fn a_job_without_a_key_adds_nothing() {
        let sealer = Sealer::default();
        let mut bytes = b"plain".to_vec();
        sealer.seal(&mut bytes, 0);
        assert_eq!(sealer.open(&bytes), Some(&b"plain"[..]));
    }

    #[test]
    fn the_tag_is_keyed_blake3_cut_to_16_bytes() {
        // The official test vector for an input of three bytes 0, 1, 2 under this key.
        let key = JobKey::new(*b"whats the Elvish word for friend");
        let golden = [0x39, 0xe6, 0x7b, 0x76, 0xb5, 0xa0, 0x07, 0xd4, 0x92, 0x19, 0x69, 0x77, 0x9f, 0xe6, 0x66, 0xda];
        assert_eq!(key.tag(&[0, 1, 2]), golden);
    }

    #[test]
    fn keys_for_other_purposes_differ_and_no_key_is_printed() {
        let key = JobKey::new([0xab; 32]);
        assert_ne!(key.derive("comem datagrams"), key.derive("comem daemon"));
        assert_ne!(key.derive("comem datagrams"), key);
        assert_eq!(format!("{key:?}"), "JobKey(secret)");
    }
}
