//! Two hosts for tests, played by two network namespaces that a cable of MTU 1500 joins.
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

/// The hosts, or a visible excuse.
#[allow(clippy::explicit_write, reason = "seen even when the test passes")]
pub fn two_hosts(test: &str) -> Option<TwoHosts> {
    match TwoHosts::new() {
        Ok(hosts) => Some(hosts),
        Err(error) => {
            assert!(std::env::var_os("COMEM_NO_SKIP").is_none(), "{test} may not be skipped here: {error}");
            writeln!(io::stderr(), "SKIP: {test}: no network namespaces here ({error})").unwrap();
            None
        }
    }
}
