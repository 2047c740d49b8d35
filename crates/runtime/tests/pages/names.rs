//! Names of locks: any numbers, and addresses of what they guard, a million of them in one job.

use crate::matrix::job;
use crate::sharing::own_bytes;
use comem::heap::{PageSlice, RegionOptions};
use comem::{Comem, LockId};
use comem_protocol::ids::manager_of;

const NAMES: usize = 1_000_000;
/// Of so many names one guards a counter, and all want it.
const COUNTED: usize = 15_625;
/// How often each thread takes these.
const ROUNDS: usize = 4;
/// Of so many names of the other node's one is taken.
const OTHERS: usize = 200;
/// A node's own memory for a name that it has had to do with.
const BYTES_FOR_A_NAME: usize = 500;

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "many-names" => many_names(comem),
        _ => return false,
    }
    true
}

/// Every third name is an address, and every third one of the greatest numbers, the greatest among them.
fn name(slice: &PageSlice<u64>, n: usize) -> LockId {
    LockId(match n % 3 {
        0 => n as u64,
        1 => (slice.as_ptr().addr() + n * size_of::<u64>()) as u64,
        _ => u64::MAX - (n as u64 - 2),
    })
}

/// Each node takes all locks that it manages, which needs no message, then some of the other's, and last all want the
/// same few.
fn many_names(comem: &Comem) {
    let slice = comem.page_slice::<u64>(NAMES, &RegionOptions::default()).expect("there is room");
    comem.parallel(|t| {
        let count = |n: &usize| {
            let add = || slice.set(*n, slice.get(*n) + 1);
            t.locked(name(&slice, *n), || {
                if n.is_multiple_of(COUNTED) {
                    add()
                }
            });
        };
        let is_own = |n: &usize| manager_of(name(&slice, *n).0, comem.nodes()).index() == comem.node();
        let counted = || (0..NAMES).step_by(COUNTED);
        let before = own_bytes();
        let own = (0..NAMES).filter(is_own).inspect(count).count();
        assert!((NAMES / 3..NAMES).contains(&own), "{own} names are managed here");
        t.barrier();
        let others = (2..NAMES).step_by(OTHERS).filter(|n| !is_own(n) && !n.is_multiple_of(COUNTED));
        let others = others.inspect(count).count();
        for _ in 0..ROUNDS {
            counted().for_each(|n| count(&n));
            // Nobody is done with its rounds before another begins; only the locks say what was written.
            t.checked_rendezvous().expect("all meet");
        }
        t.barrier();
        let counts: Vec<u64> = counted().map(|n| slice.get(n)).collect();
        assert!(counts.iter().all(|times| *times == (ROUNDS * t.threads() + 1) as u64), "{counts:?}");
        let (grown, names) = (own_bytes().saturating_sub(before) as usize, own + others);
        assert!(grown < names * BYTES_FOR_A_NAME, "{grown} bytes for {names} names");
        t.barrier();
    });
}

#[test]
fn a_million_locks_are_named_by_numbers_and_addresses() {
    for backbone in ["shm", "udp"] {
        job("many-names", 2, &[("COMEM_BACKBONE", backbone)]);
    }
}
