//! Whether shared memory works between processes here: found out by sending a datagram through it.

use super::lane::LANE_BYTES;
use super::{ShmHost, sys};
use crate::{Datagrams, PortChoice, RECEIVE_BUFFER_BYTES, Received, Wait};
use comem_protocol::auth::{JobKey, Sealer};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How long a lane may take that takes microseconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A key of this moment: nobody can have taken the names that follow from it.
fn any_sealer() -> Sealer {
    let word = || RandomState::new().build_hasher().finish().to_ne_bytes();
    let mut key = [0; 32];
    key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&word()));
    Sealer::new(Some(JobKey::new(key)))
}

/// Hands a lane over between two endpoints of this process and sends a datagram through it, as two processes would:
/// memory files, local sockets, descriptors that travel, and the bell that rouses a sleeper.
///
/// # Errors
/// What the system refuses.
pub fn probe() -> io::Result<()> {
    // The same as below by another hand; but here it says why not.
    drop(sys::memory_file(c"comem-probe", LANE_BYTES)?);
    let host = ShmHost::open_sealed(&any_sealer())?;
    let open = || host.bind(Ipv4Addr::LOCALHOST.into(), PortChoice::Any);
    let (near, far) = (open()?, open()?);
    if host.connect(&[far.local_addr()], PROBE_TIMEOUT) == 0 {
        return Err(io::Error::other("memory cannot be handed over through a local socket"));
    }
    let word = [0x5a; 8];
    near.send_to(&word, word.len(), far.local_addr())?;
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let deadline = Instant::now() + PROBE_TIMEOUT;
    while Instant::now() < deadline {
        let Received::Datagrams { from, len, .. } = far.recv(&mut buffer, Some(PROBE_TIMEOUT), Wait::Block)? else {
            continue;
        };
        if from == near.local_addr() && buffer[..len] == word {
            return Ok(());
        }
    }
    Err(io::Error::other("a datagram in shared memory did not arrive"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn shared_memory_works_where_the_tests_run() {
        super::probe().unwrap();
    }
}
