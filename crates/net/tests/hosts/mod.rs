//! Hosts for tests, played by network namespaces: two that a cable of MTU 1500 joins, or several at a switch.
//!
//! Needs root and `ip`. Elsewhere it says so and skips, unless COMEM_NO_SKIP is set, as in CI.

use std::io::{self, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// Two namespaces with a cable between them; gone when dropped.
pub struct TwoHosts {
    pub names: [String; 2],
}

static MADE: AtomicUsize = AtomicUsize::new(0);

impl TwoHosts {
    /// Fails where namespaces are not allowed; anything that goes wrong after the first is a fault of the test.
    fn new() -> io::Result<TwoHosts> {
        let own = format!("comem-test-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let hosts = TwoHosts { names: [format!("{own}-a"), format!("{own}-b")] };
        let [a, b] = &hosts.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}")).unwrap();
        ip(&format!("link add cable netns {a} mtu 1500 type veth peer name cable mtu 1500 netns {b}")).unwrap();
        for (name, last) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} address add 10.77.0.{last}/24 broadcast 10.77.0.255 dev cable")).unwrap();
            ip(&format!("-n {name} link set cable up")).unwrap();
            ip(&format!("-n {name} link set lo up")).unwrap();
        }
        Ok(hosts)
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            drop(ip(&format!("netns delete {name}")));
        }
    }
}

/// Namespaces whose cables end in a bridge; gone when dropped. In each the interface is called `cable`.
#[allow(dead_code, reason = "not every test has a switch")]
pub struct BridgedHosts {
    pub names: Vec<String>,
    switch: String,
}

#[allow(dead_code, reason = "not every test has a switch")]
impl BridgedHosts {
    /// Fails where namespaces are not allowed; anything that goes wrong after the first is a fault of the test. Without
    /// `multicast` the switch forwards none, as in many clouds.
    fn new(count: usize, multicast: bool) -> io::Result<BridgedHosts> {
        let own = format!("comem-test-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let names = (0..count).map(|host| format!("{own}-{host}")).collect();
        let hosts = BridgedHosts { names, switch: format!("{own}-switch") };
        let switch = &hosts.switch;
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge mcast_snooping 0")).unwrap();
        ip(&format!("-n {switch} link set bridge up")).unwrap();
        for (host, name) in hosts.names.iter().enumerate() {
            let (port, last) = (format!("port{host}"), host + 1);
            ip(&format!("netns add {name}")).unwrap();
            ip(&format!("link add cable netns {name} mtu 1500 type veth peer name {port} mtu 1500 netns {switch}"))
                .unwrap();
            ip(&format!("-n {switch} link set {port} master bridge")).unwrap();
            if !multicast {
                ip(&format!("-n {switch} link set {port} type bridge_slave mcast_flood off")).unwrap();
            }
            ip(&format!("-n {switch} link set {port} up")).unwrap();
            ip(&format!("-n {name} address add 10.78.0.{last}/24 broadcast 10.78.0.255 dev cable")).unwrap();
            ip(&format!("-n {name} link set cable up")).unwrap();
            ip(&format!("-n {name} link set lo up")).unwrap();
        }
        Ok(hosts)
    }
}

impl Drop for BridgedHosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.switch]) {
            drop(ip(&format!("netns delete {name}")));
        }
    }
}

/// So many hosts at a switch, or a visible excuse.
#[allow(dead_code, reason = "not every test has a switch")]
pub fn bridged_hosts(test: &str, count: usize, multicast: bool) -> Option<BridgedHosts> {
    or_excuse(test, BridgedHosts::new(count, multicast))
}

/// The hosts, or a visible excuse.
#[allow(dead_code, reason = "not every test has a cable")]
pub fn two_hosts(test: &str) -> Option<TwoHosts> {
    or_excuse(test, TwoHosts::new())
}

#[allow(clippy::explicit_write, reason = "seen even when the test passes")]
fn or_excuse<H>(test: &str, hosts: io::Result<H>) -> Option<H> {
    match hosts {
        Ok(hosts) => Some(hosts),
        Err(error) => {
            assert!(std::env::var_os("COMEM_NO_SKIP").is_none(), "{test} may not be skipped here: {error}");
            writeln!(io::stderr(), "SKIP: {test}: no network namespaces here ({error})").unwrap();
            None
        }
    }
}
