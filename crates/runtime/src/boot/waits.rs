//! What a node says of whom it waits for at the start.

use super::{Boot, host_name};
use comem_net::multicast::DISCOVERY_PORT;
use comem_protocol::node::startup::{Phase, Startup, Waits};
use comem_protocol::time::Time;
use std::sync::atomic::Ordering;

impl Boot {
    /// Says whom this node waits for, until when, and how they are to meet.
    pub(super) fn tell_whom_it_waits_for(&self, machine: &Startup, now: Time) {
        let Some(waits) = machine.waits_for() else { return };
        let me = waits.me.map_or("a node".to_string(), |node| node.to_string());
        let (how, most) = (self.how_they_meet(&waits), waits.until.map(|at| (at - now).0.div_ceil(1_000_000_000)));
        let most = most.map_or(String::new(), |seconds| format!("; gives up in {seconds} s"));
        let most = match self.strangers.load(Ordering::Relaxed) {
            0 => most,
            count => format!(
                "; {count} datagrams that came do not carry this job's key: is COMEM_KEY_FILE, or COMEM_AUTH=off, the \
                 same for all?{most}"
            ),
        };
        self.say_it_waits(&me, &waits.missing(), &format!("{how}{most}"));
    }

    pub(super) fn say_it_waits(&self, me: &str, whom: &str, how: &str) {
        let (nodes, pid) = (self.config.nodes, std::process::id());
        crate::error::say(format_args!(
            "comem: {me} of a job of {nodes} (host {}, pid {pid}) waits for {whom}: {how}",
            host_name(),
        ));
    }

    /// How the nodes of a job find each other, as seen from here.
    fn how_they_meet(&self, waits: &Waits) -> String {
        match waits.zero {
            Some(zero) if waits.me.is_some() => format!("node 0 at {zero} gathers the others"),
            Some(zero) => format!("nobody at {zero} has answered yet"),
            None if waits.phase == Phase::Address => {
                "COMEM_NODE is for launchers, which say where node 0 is; by hand take COMEM_JOIN or COMEM_DISCOVER"
                    .to_string()
            }
            None if self.config.discover => {
                let interface = self.network.interface();
                format!(
                    "they find each other with COMEM_DISCOVER=on, at UDP port {DISCOVERY_PORT} of {}",
                    interface.name
                )
            }
            None if self.job.is_some() => "whoever started the job has told where node 0 is".to_string(),
            None => {
                let (nodes, zero) = (self.config.nodes, self.endpoints[0].local_addr());
                let here = if zero.ip().is_loopback() {
                    " on this host; for others, start this node with COMEM_IFACE, which names its interface or network"
                } else {
                    ""
                };
                format!("the others join with COMEM_NODES={nodes} COMEM_JOIN={zero}{here}")
            }
        }
    }
}
