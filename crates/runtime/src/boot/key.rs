//! The key by which a job's datagrams are authenticated: from a file that all hosts have, or made by node zero and left
//! for the other nodes of its host.

use super::{KEY_LOOK, SILENCE, host_name, start_limit};
use crate::config::Config;
use crate::control::Job;
use crate::error::{Error, Result};
use crate::keys;
use comem_net::Clock;
use comem_net::select::{self, Reach};
use comem_protocol::ids::NodeId;
use std::net::SocketAddr;

/// Whether this node's datagrams are authenticated: unless somebody has said that they are not to be.
pub(super) fn authenticates(config: &Config, job: Option<&Job>) -> Result<bool> {
    // Damage that the network's own checksum would catch goes unnoticed when faults are injected above it.
    let damaged = config.faults.is_some_and(|f| f.damages());
    let auth = config.auth.unwrap_or(damaged || job.is_none_or(|job| job.auth));
    if damaged && !auth {
        return Err(Error::Start(
            "faults that truncate or corrupt datagrams do not go with COMEM_AUTH=off".to_string(),
        ));
    }
    Ok(auth)
}

/// Whether others than this host's processes can reach the job, as far as the environment tells.
pub(super) fn is_over_network(config: &Config) -> bool {
    let beyond = |address: &str| address.parse::<SocketAddr>().is_ok_and(|zero| !zero.ip().is_loopback());
    let by_iface = || {
        let chosen = config.iface.as_deref().map(|iface| select::choose(Some(iface), Reach::ThisHost));
        chosen.is_some_and(|interface| interface.is_ok_and(|interface| !interface.loopback))
    };
    config.several_hosts() || config.join.as_deref().or(config.zero.as_deref()).is_some_and(beyond) || by_iface()
}

/// The key of a job.
pub(super) enum Key {
    /// One that the other nodes know.
    Given([u8; 32]),
    /// One that this node zero has made, and must leave for them.
    New([u8; 32]),
}

impl Key {
    pub(super) fn bytes(&self) -> [u8; 32] {
        match self {
            Key::Given(key) | Key::New(key) => *key,
        }
    }

    /// The key of a job without a launcher.
    pub(super) fn find(config: &Config, clock: &Clock) -> Result<Key> {
        let over_network = is_over_network(config);
        if let Some(key) = keys::shared_key(over_network)? {
            return Ok(Key::Given(key));
        }
        if over_network {
            return Err(Error::Start(
                "nodes of several hosts that find each other need a key that all have: make a file with comem daemon \
                 make-key FILE, copy it to every host, and name it in COMEM_KEY_FILE; or trust the network with \
                 COMEM_AUTH=off"
                    .to_string(),
            ));
        }
        match zero_by_hand(config)? {
            Some(zero) => await_key(zero, config, clock).map(Key::Given),
            None => Ok(Key::New(keys::random())),
        }
    }
}

/// Where node zero is, as whoever started this node has said; `None` for node zero itself, and where nobody has.
fn zero_by_hand(config: &Config) -> Result<Option<SocketAddr>> {
    let told = config.zero.as_ref().filter(|_| config.node.is_some_and(|node| node != NodeId(0)));
    let parse = |text: &String| {
        text.parse().map_err(|_| Error::Start(format!("node zero's address {text} is no address; use IP:PORT")))
    };
    config.join.as_ref().or(told).map(parse).transpose()
}

/// Waits until the node zero at an address has left the job's key. Says once whom it waits for, if that takes long.
pub(crate) fn await_key(zero: SocketAddr, config: &Config, clock: &Clock) -> Result<[u8; 32]> {
    let start = clock.now();
    let until = start_limit(config).map(|limit| start + limit);
    let mut tell_at = Some(start + SILENCE);
    loop {
        let unfit = |unfit: keys::Unfit| Error::Start(format!("{}; {}", unfit.what, unfit.advice));
        if let Some(key) = keys::look(zero).map_err(unfit)? {
            return Ok(key);
        }
        let now = clock.now();
        if until.is_some_and(|until| until <= now) {
            return Err(Error::Start(format!(
                "no node 0 of this user's has come to {zero}; start it first, and on both name the same \
                 COMEM_KEY_FILE, if any, or say COMEM_AUTH=off"
            )));
        }
        if tell_at.take_if(|at| *at <= now).is_some() {
            let most =
                until.map_or(String::new(), |at| format!("; gives up in {} s", (at - now).0.div_ceil(1_000_000_000)));
            crate::error::say(format_args!(
                "comem: a node of a job of {} (host {}, pid {}) waits for node 0: nobody at {zero} has answered \
                 yet{most}",
                config.nodes,
                host_name(),
                std::process::id()
            ));
        }
        std::thread::sleep(KEY_LOOK);
    }
}
