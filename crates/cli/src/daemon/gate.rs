//! Which requests are fresh: each challenge serves once, for the caller it was made for, and for ten seconds.
//!
//! A challenge names its own time and is tagged with a secret of the daemon's, so that asking, which anyone who
//! overheard an Ask can repeat, costs the daemon no memory. Only challenges that a caller with the key has used are
//! kept, until they are too old to be used again; their number is bounded.

use super::wire::{Challenge, Garbage, Nonce, equal};
use crate::sys;
use std::collections::HashMap;
use std::net::SocketAddr;

/// How long a challenge may be used.
pub const LIFETIME_MS: u64 = 10_000;
/// Most challenges that may be in use at once.
pub const USED_MAX: usize = 1024;

/// The table of challenges. Time is an argument: milliseconds since an origin of the caller's.
pub struct Gate {
    secret: [u8; 32],
    used: HashMap<Challenge, Used>,
}

struct Used {
    issued_ms: u64,
    request: [u8; 32],
    answer: Vec<u8>,
}

/// What to do with a request.
#[derive(PartialEq, Eq, Debug)]
pub enum Admission {
    /// Open it, and if it opens, [`Gate::used`] it.
    Fresh,
    /// The same request from the same caller once more: its answer was lost.
    Repeated(Vec<u8>),
    /// Drop it.
    Dropped(Garbage),
}

impl Gate {
    /// An empty table with a fresh secret.
    pub fn new() -> Gate {
        Gate { secret: sys::random(), used: HashMap::new() }
    }

    /// A challenge for a caller.
    pub fn challenge(&self, caller: SocketAddr, nonce: &Nonce, now_ms: u64) -> Challenge {
        let mut challenge = [0; 32];
        challenge[..8].copy_from_slice(&now_ms.to_be_bytes());
        challenge[8..16].copy_from_slice(&sys::random::<8>());
        let tag = self.tag(&challenge[..16], caller, nonce);
        challenge[16..].copy_from_slice(&tag);
        challenge
    }

    fn tag(&self, made: &[u8], caller: SocketAddr, nonce: &Nonce) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(made).update(nonce).update(caller.to_string().as_bytes());
        let mut tag = [0; 16];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        tag
    }

    /// Looks at a request before it is opened.
    pub fn admit(
        &mut self,
        caller: SocketAddr,
        nonce: &Nonce,
        challenge: &Challenge,
        sealed: &[u8],
        now_ms: u64,
    ) -> Admission {
        let tag = self.tag(&challenge[..16], caller, nonce);
        let mut issued = [0; 8];
        issued.copy_from_slice(&challenge[..8]);
        let age_ms = now_ms.checked_sub(u64::from_be_bytes(issued));
        if !equal(&tag, &challenge[16..]) || age_ms.is_none_or(|age| age > LIFETIME_MS) {
            return Admission::Dropped(Garbage::Stale);
        }
        self.used.retain(|_, used| now_ms.saturating_sub(used.issued_ms) <= LIFETIME_MS);
        match self.used.get(challenge) {
            Some(used) if used.request == *blake3::hash(sealed).as_bytes() => Admission::Repeated(used.answer.clone()),
            Some(_) => Admission::Dropped(Garbage::Replayed),
            None if self.used.len() >= USED_MAX => Admission::Dropped(Garbage::Full),
            None => Admission::Fresh,
        }
    }

    /// Notes that a request was opened and answered.
    pub fn used(&mut self, challenge: &Challenge, sealed: &[u8], answer: Vec<u8>) {
        let mut issued = [0; 8];
        issued.copy_from_slice(&challenge[..8]);
        let used = Used { issued_ms: u64::from_be_bytes(issued), request: *blake3::hash(sealed).as_bytes(), answer };
        self.used.insert(*challenge, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = [9; 16];

    fn caller() -> SocketAddr {
        "10.0.0.1:5000".parse().unwrap()
    }

    #[test]
    fn a_challenge_serves_once_and_a_lost_answer_is_given_again() {
        let mut gate = Gate::new();
        let challenge = gate.challenge(caller(), &NONCE, 1000);
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"one", 1005), Admission::Fresh);
        gate.used(&challenge, b"one", b"answer".to_vec());
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"one", 1010), Admission::Repeated(b"answer".to_vec()));
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"two", 1010), Admission::Dropped(Garbage::Replayed));
    }

    #[test]
    fn it_serves_no_other_caller_nonce_time_or_daemon() {
        let mut gate = Gate::new();
        let challenge = gate.challenge(caller(), &NONCE, 1000);
        let stale = Admission::Dropped(Garbage::Stale);
        assert_eq!(gate.admit("10.0.0.2:5000".parse().unwrap(), &NONCE, &challenge, b"", 1000), stale);
        assert_eq!(gate.admit(caller(), &[8; 16], &challenge, b"", 1000), stale);
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"", 1000 + LIFETIME_MS + 1), stale);
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"", 999), stale);
        assert_eq!(Gate::new().admit(caller(), &NONCE, &challenge, b"", 1000), stale);
        let mut later = challenge;
        later[7] ^= 1;
        assert_eq!(gate.admit(caller(), &NONCE, &later, b"", 1000), stale);
    }

    #[test]
    fn the_table_is_bounded_and_empties_with_time() {
        let mut gate = Gate::new();
        for _ in 0..USED_MAX {
            let challenge = gate.challenge(caller(), &NONCE, 0);
            gate.used(&challenge, b"", Vec::new());
        }
        let challenge = gate.challenge(caller(), &NONCE, 5);
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"", 5), Admission::Dropped(Garbage::Full));
        let challenge = gate.challenge(caller(), &NONCE, LIFETIME_MS + 1);
        assert_eq!(gate.admit(caller(), &NONCE, &challenge, b"", LIFETIME_MS + 1), Admission::Fresh);
        assert!(gate.used.is_empty());
    }
}
