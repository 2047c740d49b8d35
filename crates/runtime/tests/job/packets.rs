//! Ways that take shorter packets than their interface said: tests in a network of their own, which needs root and
//! `ip`. Elsewhere they say so and skip, unless `COMEM_NO_SKIP` is set, as in CI.

use crate::launcher::start;
use comem::{Comem, NodeId};
use std::io::{self, Write};
use std::process::Command;

/// What the way takes in the middle of a job.
const NARROW: usize = 1400;

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string())),
    }
}

fn enter_own_network(mtu: usize) -> io::Result<()> {
    // SAFETY: the call changes only which network this thread and what it starts belong to.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    ip(&format!("link set lo mtu {mtu} up"))
}

/// Moves this thread into a network of its own, or says why the test is skipped.
#[allow(clippy::explicit_write, reason = "seen even when the test passes")]
fn has_own_network(test: &str, mtu: usize) -> bool {
    let Err(error) = enter_own_network(mtu) else { return true };
    assert!(std::env::var_os("COMEM_NO_SKIP").is_none(), "{test} may not be skipped here: {error}");
    writeln!(io::stderr(), "SKIP: {test}: no network of its own here ({error})").unwrap();
    false
}

/// Node 0 narrows the way when all have met, and then sends what fills packets.
pub fn narrow_the_way(comem: &Comem) {
    let array = comem.object_array::<u64>(10_000).expect("an array");
    comem.parallel(|t| {
        if t.node() == NodeId(0) {
            ip(&format!("link set lo mtu {NARROW}")).expect("the way can be narrowed");
            array.write_from(t, 0, &[7; 10_000]);
        }
        t.barrier();
        let mut all = [0; 10_000];
        array.read_into(t, 0, &mut all);
        t.barrier();
    });
}

#[test]
fn packets_too_long_for_the_way_end_the_job_with_one_sentence() {
    if !has_own_network("packets_too_long_for_the_way_end_the_job_with_one_sentence", 1500) {
        return;
    }
    let outcome = start("narrow-way", 2, &[("COMEM_AUTH", "off")], &[]).finish();
    let said: Vec<&String> = outcome.failures.values().filter(|said| said.contains("127.0.0.1")).collect();
    assert!(!said.is_empty(), "{outcome:#?}");
    for sentence in said {
        let wanted = "packets of 1500 bytes are too long, 1400 are possible; start the job with --mtu 1400";
        assert!(sentence.contains(wanted), "{outcome:#?}");
    }
    assert!(outcome.statuses.iter().all(|status| matches!(status, Some(4 | 6))), "{outcome:#?}");
    let lines: usize = outcome.errors.iter().map(|errors| errors.matches("comem:").count()).sum();
    assert_eq!(lines, 0, "the launcher prints the sentences: {outcome:#?}");
    let enough = start("narrow-way", 2, &[("COMEM_MTU", "1400")], &[]).finish();
    assert_eq!(enough.statuses, [Some(0), Some(0)], "{enough:#?}");
}

#[test]
fn an_interface_for_short_packets_alone_is_refused() {
    if !has_own_network("an_interface_for_short_packets_alone_is_refused", 575) {
        return;
    }
    let outcome = start("stress", 2, &[], &[]).finish();
    assert_eq!(outcome.statuses, [Some(3), Some(3)], "{outcome:#?}");
    let wanted = "packets of the interface lo have 575 bytes at most, and 576 are needed";
    assert!(outcome.errors.iter().all(|errors| errors.contains(wanted)), "{outcome:#?}");
}
