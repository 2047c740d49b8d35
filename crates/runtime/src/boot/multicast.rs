//! Whether and how a job sends one datagram to many nodes: `COMEM_MULTICAST`, and what the probe at start-up found.

use super::{Boot, host_name};
use crate::config::Config;
use crate::error::{Error, Result};
use comem_net::selective::{Parts, Selective, filters_work};
use comem_net::{Backbone, Datagrams, Group, Network};
use comem_protocol::ids::NodeId;
use comem_protocol::node::table::Membership;
use comem_protocol::selective::{Choice, Way};
use std::net::SocketAddr;
use std::sync::Arc;

/// Refuses what does not go together.
pub(super) fn check(config: &Config, backbone: Backbone) -> Result<()> {
    if config.multicast == Choice::On && backbone == Backbone::Shm && config.nodes > 1 {
        return Err(Error::Start(
            "COMEM_MULTICAST=on does not go with COMEM_BACKBONE=shm: nodes that share memory send no datagrams; leave \
             one of them out"
                .to_string(),
        ));
    }
    Ok(())
}

/// Whether this node takes part in finding out who hears the job's group.
pub(super) fn probes(config: &Config, network: &Network) -> bool {
    let over_udp = network.backbone() == Backbone::Udp;
    if !config.multicast.probes(config.multicasts(), config.nodes, over_udp) {
        return false;
    }
    // A node that could not filter would be woken by all that goes to others.
    match filters_work() {
        Err(why) if config.sends_to_sets() => {
            crate::error::say(format_args!(
                "comem: node {} (host {}, pid {}): the kernel lets no process filter what its sockets receive \
                 ({why}), so the job's nodes send to each node alone; allow SO_ATTACH_FILTER for multicast",
                config.node.unwrap_or_default().0,
                host_name(),
                std::process::id()
            ));
            false
        }
        _ => true,
    }
}

/// Where this node is told things, if its job's engine sends to sets of nodes over a network.
pub(super) fn told(config: &Config, network: &Network) -> Result<Option<Arc<dyn Datagrams>>> {
    let wanted = config.sends_to_sets() && config.nodes > 1 && network.backbone() == Backbone::Udp;
    wanted.then(|| network.bind()).transpose().map_err(|e| Error::Start(e.to_string()))
}

/// Nodes in words: node 3; nodes 2, 3 and 5.
fn in_words(nodes: &[NodeId]) -> String {
    let numbers: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    match &numbers[..] {
        [one] => format!("node {one} does"),
        [most @ .., last] => format!("nodes {} and {last} do", most.join(", ")),
        [] => "a node does".to_string(),
    }
}

impl Boot {
    /// Lets the service socket hear the job's group. Where that fails, this node is deaf, and start-up finds it out.
    pub(super) fn hear(&self, job: u64, group: &mut Option<Group>) {
        let joined = self.network.group_of_job(job);
        if *group != Some(joined) && self.join(&joined).is_ok() {
            *group = Some(joined);
        }
    }

    fn join(&self, group: &Group) -> std::io::Result<()> {
        let listener = self.network.listen(group)?;
        *self.asks.borrow_mut() = Some(listener.handle()?);
        self.endpoints[0].attend(listener)
    }

    /// The job's group and where it is, in words.
    fn place(&self, group: Option<&Group>) -> String {
        let group = group.map_or("the job's group".to_string(), |group| group.address().to_string());
        format!("{group} on {}", self.network.interface())
    }

    /// Some nodes do not hear the job's group; node zero knows which.
    pub(super) fn on_deaf(&self, nodes: &[NodeId], group: Option<&Group>) -> Result<()> {
        let (who, place) = (in_words(nodes), self.place(group));
        if self.config.multicast == Choice::On {
            return Err(Error::Start(format!(
                "COMEM_MULTICAST=on, but {who} not hear what is sent to {place}; let multicast pass there, or \
                 leave it at auto"
            )));
        }
        if self.config.verbose {
            crate::error::say(format_args!(
                "comem: multicast: fanout: {who} not hear what is sent to {place}, so what is for many nodes \
                 goes to each"
            ));
        }
        Ok(())
    }

    /// How the job sends to many nodes; node zero says so where it was asked for.
    pub(super) fn way(&self, membership: &Membership) -> Result<Way> {
        let (choice, nodes) = (self.config.multicast, membership.nodes.len());
        let over_udp = self.network.backbone() == Backbone::Udp;
        let way = choice.way(self.config.multicasts(), nodes, over_udp, membership.multicast);
        let group = self.network.group_of_job(membership.job);
        if choice == Choice::On && way == Way::FanOut {
            let place = self.place(Some(&group));
            return Err(Error::Start(format!(
                "COMEM_MULTICAST=on, but not all nodes hear what is sent to {place}; node 0 says which"
            )));
        }
        if self.config.verbose && membership.me == NodeId(0) && way == Way::Ip {
            let place = self.place(Some(&group));
            crate::error::say(format_args!("comem: multicast: ip: what is for many nodes goes to {place}"));
        }
        Ok(way)
    }

    /// This node's way to sets of nodes, if its job's engine has them.
    pub(super) fn selective(
        &self,
        membership: &Membership,
        addresses: &[Vec<SocketAddr>],
        group: Option<Group>,
    ) -> Result<Option<Selective>> {
        let Some(told) = &self.told else { return Ok(None) };
        let parts = Parts {
            me: membership.me,
            prog: membership.prog,
            job: membership.job,
            sealer: self.sealer.of_job(membership.job),
            datagram_bytes: self.link.datagram_bytes,
            addresses: addresses.to_vec(),
            told: told.clone(),
            asks: self.asks.take().filter(|_| group.is_some()),
            group,
        };
        let opened = Selective::open(&self.network, &*self.endpoints[0], parts);
        opened.map(Some).map_err(Error::system("cannot send to sets of nodes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_in_words() {
        let words = |nodes: &[u16]| in_words(&nodes.iter().copied().map(NodeId).collect::<Vec<_>>());
        assert_eq!([words(&[3]), words(&[2, 5])], ["node 3 does", "nodes 2 and 5 do"]);
        assert_eq!(words(&[1, 2, 9]), "nodes 1, 2 and 9 do");
    }

    #[test]
    fn multicast_that_is_asked_for_does_not_go_with_shared_memory() {
        let mut config = Config::from_env().expect("no settings");
        (config.multicast, config.nodes) = (Choice::On, 3);
        let refused = check(&config, Backbone::Shm).unwrap_err().to_string();
        assert!(refused.contains("COMEM_MULTICAST=on") && refused.contains("shm"), "{refused}");
        assert!(check(&config, Backbone::Udp).is_ok());
        config.multicast = Choice::Auto;
        assert!(check(&config, Backbone::Shm).is_ok());
    }
}
