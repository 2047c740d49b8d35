//! The datagrams between a caller and a daemon.
//!
//! ```text
//! Ask        "CMD1" 1 | caller's nonce (16) | tag (16) | zeros up to 96 bytes
//! Challenge  "CMD1" 2 | caller's nonce (16) | challenge (32) | tag (16)
//! Request    "CMD1" 3 | caller's nonce (16) | challenge (32) | first Noise message, with the request in it
//! Answer     "CMD1" 4 | caller's nonce (16) | second Noise message, with the answer in it
//! ```
//!
//! The tags are keyed, so that a daemon stays silent towards anyone without the key; an Ask is longer than its answer,
//! so that nobody gains by making a daemon send to a third party. The Noise handshake (NNpsk0: AEAD from the first
//! byte, fresh keys for the answer) has the caller's nonce and the challenge as its prologue: it opens for no other
//! pair.

use super::key::SharedKey;
use crate::failure::Failure;
use crate::sys::host::HostInfo;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// The daemon's well-known UDP port.
pub const PORT: u16 = 7757;
/// Largest datagram of the protocol.
pub const DATAGRAM_MAX: usize = 60_000;

/// A caller's number for one conversation.
pub type Nonce = [u8; 16];
/// A daemon's proof that a request is fresh.
pub type Challenge = [u8; 32];

const MAGIC: &[u8; 4] = b"CMD1";
const ASK_LEN: usize = 96;
const TAG_LEN: usize = 16;

/// A datagram, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datagram<'a> {
    /// May I?
    Ask(Nonce),
    /// Prove that you are there now.
    Challenge(Nonce, Challenge),
    /// A sealed request.
    Request(Nonce, Challenge, &'a [u8]),
    /// A sealed answer.
    Answer(Nonce, &'a [u8]),
}

/// What a caller wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "snake_case")]
pub enum Request {
    /// WAKEUP: start an agent that connects back to the caller.
    Start {
        /// The caller's TCP port; its address is where the request came from.
        port: u16,
        /// The key of that connection, in hexadecimal.
        psk: String,
        /// The program, so that a refusal comes before anything is started.
        program: OsString,
        /// How many nodes the host gets; an older caller does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nodes: Option<usize>,
    },
    /// Tell what runs.
    List {
        /// Only jobs with larger numbers.
        after: u64,
    },
    /// End a job.
    Kill {
        /// Its number.
        id: u64,
    },
    /// Tell of the host.
    Host {
        /// [`HOST_VERSION`] at the caller.
        version: u32,
    },
}

/// What a daemon answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The agent runs.
    Started {
        /// The job's number at this daemon.
        id: u64,
    },
    /// No.
    Refused {
        /// Why.
        what: String,
        /// What to do.
        advice: String,
    },
    /// What runs.
    Jobs {
        /// In the order of their numbers.
        jobs: Vec<JobLine>,
        /// Whether there are more after the last one.
        more: bool,
    },
    /// The job is being ended.
    Killed {
        /// Its number.
        id: u64,
    },
    /// What the host has and does.
    Host(HostState),
}

/// The version of [`HostState`]. It grows when a field changes its meaning or goes.
pub const HOST_VERSION: u32 = 1;

/// A host, as its daemon sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HostState {
    /// [`HOST_VERSION`] at the daemon.
    pub version: u32,
    /// Name, kernel, cores, memory, Comem's version.
    pub host: HostInfo,
    /// Processes that ran or wanted to run, on average of the last minute.
    pub load: f64,
    /// Memory that is free, in MiB.
    pub memory_free_mib: u64,
    /// Jobs that the daemon has started here and that run.
    pub jobs: usize,
    /// Their nodes here, as far as callers have told.
    pub nodes: usize,
    /// Most nodes that the daemon starts; where it has no limit, a node for each core is what fits.
    pub slots: Option<usize>,
    /// Most load at which the daemon starts nodes.
    pub max_load: Option<f64>,
}

impl HostState {
    /// How many nodes more fit.
    pub fn free_slots(&self) -> usize {
        let loaded = self.max_load.is_some_and(|most| self.load > most);
        if loaded { 0 } else { self.slots.unwrap_or(self.host.cores).saturating_sub(self.nodes) }
    }
}

/// A job in a daemon's list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobLine {
    /// Its number at this daemon.
    pub id: u64,
    /// The agent's process.
    pub pid: u32,
    /// The program.
    pub program: PathBuf,
    /// Who asked for it.
    pub caller: String,
    /// How long it has run.
    pub seconds: u64,
}

impl Answer {
    /// A refusal in a caller's terms.
    pub fn refusal(failure: &Failure) -> Answer {
        Answer::Refused { what: failure.what.clone(), advice: failure.advice.clone() }
    }
}

/// The keys of the protocol.
pub struct Keys {
    tag: [u8; 32],
    /// For the Noise handshake.
    pub seal: [u8; 32],
}

impl Keys {
    /// The keys that follow from a shared one.
    pub fn new(shared: &SharedKey) -> Keys {
        Keys {
            tag: shared.derive("comem 2026 daemon datagram tag", b""),
            seal: shared.derive("comem 2026 daemon sealed wake-up", b""),
        }
    }

    fn tag(&self, bytes: &[u8]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&blake3::keyed_hash(&self.tag, bytes).as_bytes()[..TAG_LEN]);
        tag
    }

    /// An Ask.
    pub fn ask(&self, nonce: &Nonce) -> Vec<u8> {
        let mut bytes = head(1, nonce);
        bytes.extend(self.tag(&bytes));
        bytes.resize(ASK_LEN, 0);
        bytes
    }

    /// A Challenge.
    pub fn challenge(&self, nonce: &Nonce, challenge: &Challenge) -> Vec<u8> {
        let mut bytes = head(2, nonce);
        bytes.extend(challenge);
        bytes.extend(self.tag(&bytes));
        bytes
    }

    /// Takes a datagram apart and checks what can be checked without state.
    ///
    /// # Errors
    /// Says why it is to be dropped.
    pub fn parse<'a>(&self, bytes: &'a [u8]) -> Result<Datagram<'a>, Garbage> {
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(Garbage::NotOurs)?;
        let (kind, rest) = rest.split_first().ok_or(Garbage::NotOurs)?;
        let (nonce, rest) = rest.split_first_chunk::<16>().ok_or(Garbage::NotOurs)?;
        if magic != MAGIC {
            return Err(Garbage::NotOurs);
        }
        match kind {
            1 if bytes.len() == ASK_LEN => {
                let tagged = bytes.len() - rest.len();
                self.checked(&bytes[..tagged], &rest[..TAG_LEN]).map(|()| Datagram::Ask(*nonce))
            }
            2 if rest.len() == 32 + TAG_LEN => {
                let (challenge, tag) = rest.split_first_chunk::<32>().ok_or(Garbage::NotOurs)?;
                let tagged = bytes.len() - TAG_LEN;
                self.checked(&bytes[..tagged], tag).map(|()| Datagram::Challenge(*nonce, *challenge))
            }
            3 => {
                let (challenge, sealed) = rest.split_first_chunk::<32>().ok_or(Garbage::NotOurs)?;
                Ok(Datagram::Request(*nonce, *challenge, sealed))
            }
            4 => Ok(Datagram::Answer(*nonce, rest)),
            _ => Err(Garbage::NotOurs),
        }
    }

    fn checked(&self, bytes: &[u8], tag: &[u8]) -> Result<(), Garbage> {
        if equal(&self.tag(bytes), tag) { Ok(()) } else { Err(Garbage::WrongKey) }
    }
}

/// Whether two tags are equal, in a time that does not depend on where they differ.
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Garbage {
    /// It is none of ours.
    NotOurs,
    /// Its sender does not know the key.
    WrongKey,
    /// Its challenge is not one of ours for this sender, or too old.
    Stale,
    /// Its challenge was used before.
    Replayed,
    /// Too many challenges are in use.
    Full,
}

impl Garbage {
    /// The reason in words.
    pub fn why(self) -> &'static str {
        match self {
            Garbage::NotOurs => "no message of Comem's",
            Garbage::WrongKey => "wrong key",
            Garbage::Stale => "stale or foreign challenge",
            Garbage::Replayed => "replay",
            Garbage::Full => "too many requests",
        }
    }
}

fn head(kind: u8, nonce: &Nonce) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(kind);
    bytes.extend(nonce);
    bytes
}

/// What a request's Noise handshake is bound to; also the head of its datagram.
pub fn request_head(nonce: &Nonce, challenge: &Challenge) -> Vec<u8> {
    let mut bytes = head(3, nonce);
    bytes.extend(challenge);
    bytes
}

/// The head of an answer's datagram.
pub fn answer_head(nonce: &Nonce) -> Vec<u8> {
    head(4, nonce)
}

#[cfg(test)]
pub fn test_keys(byte: u8) -> Keys {
    Keys { tag: [byte; 32], seal: [byte; 32] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_apart_as_they_were_put_together() {
        let keys = test_keys(1);
        assert_eq!(keys.parse(&keys.ask(&[3; 16])), Ok(Datagram::Ask([3; 16])));
        assert_eq!(keys.parse(&keys.challenge(&[3; 16], &[4; 32])), Ok(Datagram::Challenge([3; 16], [4; 32])));
        let request = [request_head(&[3; 16], &[4; 32]), b"sealed".to_vec()].concat();
        assert_eq!(keys.parse(&request), Ok(Datagram::Request([3; 16], [4; 32], b"sealed")));
        assert_eq!(keys.parse(&answer_head(&[5; 16])), Ok(Datagram::Answer([5; 16], b"")));
    }

    #[test]
    fn slots_that_are_not_limited_are_cores_and_a_loaded_host_has_none() {
        let host = HostInfo { cores: 8, ..HostInfo::default() };
        let state = HostState { host, load: 3.0, nodes: 2, ..HostState::default() };
        assert_eq!(state.free_slots(), 6);
        assert_eq!(HostState { slots: Some(3), ..state.clone() }.free_slots(), 1);
        assert_eq!(HostState { slots: Some(1), ..state.clone() }.free_slots(), 0);
        assert_eq!(HostState { max_load: Some(2.5), ..state.clone() }.free_slots(), 0);
        assert_eq!(HostState { max_load: Some(3.0), ..state }.free_slots(), 6);
    }

    #[test]
    fn a_start_by_an_older_caller_tells_no_number_of_nodes() {
        let old = r#"{"want":"start","port":1,"psk":"","program":{"Unix":[47]}}"#;
        assert!(matches!(serde_json::from_str(old), Ok(Request::Start { nodes: None, .. })));
    }

    #[test]
    fn an_ask_is_longer_than_what_it_provokes() {
        let keys = test_keys(1);
        assert!(keys.ask(&[0; 16]).len() > keys.challenge(&[0; 16], &[0; 32]).len());
    }

    #[test]
    fn a_wrong_key_and_every_damaged_bit_are_noticed() {
        let keys = test_keys(1);
        assert_eq!(test_keys(2).parse(&keys.ask(&[3; 16])), Err(Garbage::WrongKey));
        let challenge = keys.challenge(&[3; 16], &[4; 32]);
        for bit in 0..challenge.len() * 8 {
            let mut damaged = challenge.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(keys.parse(&damaged), Ok(Datagram::Challenge(..) | Datagram::Ask(..))), "bit {bit}");
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let keys = test_keys(1);
        let mut seed = 1_u64;
        for length in 0..200 {
            let mut bytes: Vec<u8> = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 56) as u8
                })
                .collect();
            for kind in 0..6 {
                let magic = MAGIC.iter().chain([&kind]);
                bytes.iter_mut().zip(magic).for_each(|(to, from)| *to = *from);
                assert!(!matches!(keys.parse(&bytes), Ok(Datagram::Ask(_) | Datagram::Challenge(..))));
            }
        }
    }
}
