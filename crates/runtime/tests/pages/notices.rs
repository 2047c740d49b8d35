//! More notices than fit so many datagrams as a message usually has.

use crate::hosts::{TwoHosts, two_hosts};
use crate::matrix::{job, works};
use crate::placement::{WORDS, give_back, pages_of};
use comem::control::var;
use comem::heap::{Home, PageSlice, RegionOptions};
use comem::{Comem, LockId, NodeId, Thread};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Plays a role of this file; `false` when it has none of that name.
pub fn play(comem: &Comem, role: &str) -> bool {
    match role {
        "many-runs" => many_runs(comem),
        "more-runs" => more_runs(comem),
        _ => return false,
    }
    true
}

/// The smallest MTU allowed: a message of 255 datagrams of the usual length takes 132,600 bytes.
const SMALL: (&str, &str) = ("COMEM_MTU", "576");
/// Of so many pages each node writes two in five, no three of which lie at one distance: 68,000 runs, of 2 bytes each
/// in a message.
const PAGES: usize = 170_000;

fn written(pages: usize) -> impl Iterator<Item = usize> {
    (0..pages).filter(|page| matches!(page % 5, 0 | 2))
}

/// What the other nodes write there they tell of; the home need not where nobody has a copy.
fn of_node_zero(comem: &Comem, pages: usize) -> PageSlice<u64> {
    pages_of(comem, pages, &RegionOptions { home: Home::On(NodeId(0)), ..RegionOptions::default() })
}

/// Every node writes to the same pages before a barrier, and reads some of them after it.
fn write_and_meet(t: &Thread, slice: &PageSlice<u64>) {
    let pages = slice.len() / WORDS;
    written(pages).for_each(|page| slice.set(page * WORDS + t.id() * 8, 1));
    t.barrier();
    for page in written(pages).step_by(7) {
        (0..t.threads()).for_each(|id| assert_eq!(slice.get(page * WORDS + id * 8), 1, "page {page}"));
    }
    t.barrier();
}

/// The same under a lock.
fn many_runs(comem: &Comem) {
    let slice = of_node_zero(comem, PAGES);
    comem.parallel(|t| {
        write_and_meet(t, &slice);
        t.locked(LockId(1), || {
            written(PAGES).map(|page| page * WORDS + 500).for_each(|at| slice.set(at, slice.get(at) + 1));
        });
        t.barrier();
        for page in written(PAGES).step_by(7) {
            assert_eq!(slice.get(page * WORDS + 500), t.threads() as u64, "page {page}");
        }
    });
    give_back(comem, slice);
}

fn more_runs(comem: &Comem) {
    let slice = of_node_zero(comem, PAGES);
    comem.parallel(|t| write_and_meet(t, &slice));
    give_back(comem, slice);
}

#[test]
fn notices_longer_than_255_usual_datagrams_arrive() {
    if !works("uffd", "notices_longer_than_255_usual_datagrams_arrive") {
        return;
    }
    for (engine, nodes) in [("hlrc", 2), ("scope", 3)] {
        job("many-runs", nodes, &[("COMEM_ENGINE", engine), ("COMEM_BACKBONE", "udp"), SMALL]);
    }
}

/// The key that nodes of several hosts need to find each other.
fn key_file() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("notices-key");
    let opened = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
    writeln!(opened.expect("a key file"), "{}", "5".repeat(64)).expect("a key");
    path
}

/// Starts a node there, without a launcher.
fn node(hosts: &TwoHosts, host: usize, more: &[(&str, &str)]) -> Child {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.names[host]]).arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", "node", "--nocapture", "--test-threads=1"]).env("COMEM_TEST_ROLE", "more-runs");
    command.env(var::NODES, "2").env(var::HOST_NODES, "1").env(var::BACKBONE, "udp").env("COMEM_IFACE", "cable");
    command.env(SMALL.0, SMALL.1).env("COMEM_KEY_FILE", key_file());
    command.envs(more.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("a node can be started")
}

/// IP has to cut their datagrams.
#[test]
fn notices_longer_than_255_usual_datagrams_cross_a_cable() {
    if !works("uffd", "notices_longer_than_255_usual_datagrams_cross_a_cable") {
        return;
    }
    let Some(hosts) = two_hosts("notices_longer_than_255_usual_datagrams_cross_a_cable") else { return };
    for name in &hosts.names {
        let cable = ["-n", name, "link", "set", "cable", "mtu", SMALL.1];
        assert!(Command::new("ip").args(cable).status().expect("ip runs").success(), "{cable:?}");
    }
    let mut zero = node(&hosts, 0, &[]);
    let mut errors = BufReader::new(zero.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a node's words");
    let at = line.split_once("COMEM_JOIN=").and_then(|(_, rest)| rest.split(';').next());
    let other = node(&hosts, 1, &[("COMEM_JOIN", at.expect("an address"))]).wait_with_output().expect("a node ends");
    let rest: Vec<String> = errors.lines().map_while(Result::ok).collect();
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(zero.wait().expect("a node ends").success() && other.status.success(), "{rest:?}\n{said}");
}
