//! Which backbone moves a job's bytes: the one that was named, or `auto`, the one that fits.
//!
//! `auto` is shared memory where all nodes are on one host and shared memory works there, and UDP elsewhere. Whether it
//! works is found out by using it once ([`shm::probe`]). What is said about a network (an interface, ports, faults to
//! inject) asks for a network: then `auto` is UDP too, because under shared memory pages are read in place and pass no
//! network.

use crate::shm;
use std::fmt;
use std::str::FromStr;

/// The most nodes between which `auto` takes shared memory: each of the others has a lane to an endpoint, and the
/// node's own threads have one.
pub const SHM_NODES_MAX: usize = shm::LANES_MAX;

/// How bytes move between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backbone {
    /// UDP datagrams, on any network.
    Udp,
    /// Shared memory, between the processes of one host.
    Shm,
}

impl Backbone {
    /// All there are.
    pub const ALL: [Backbone; 2] = [Backbone::Udp, Backbone::Shm];

    /// The name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            Backbone::Udp => "udp",
            Backbone::Shm => "shm",
        }
    }
}

impl fmt::Display for Backbone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no backbone of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no backbone {0}; choose auto, udp, or shm when all nodes run on one host")]
pub struct UnknownBackbone(pub String);

/// A job has more nodes than shared memory joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the backbone shm joins {SHM_NODES_MAX} nodes at most, not {0}")]
pub struct TooManyNodes(pub usize);

impl FromStr for Backbone {
    type Err = UnknownBackbone;

    fn from_str(text: &str) -> Result<Backbone, UnknownBackbone> {
        let named = Backbone::ALL.into_iter().find(|backbone| backbone.name() == text);
        named.ok_or_else(|| UnknownBackbone(text.to_string()))
    }
}

/// What a job was told about its backbone (`--backbone`, `COMEM_BACKBONE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BackboneChoice {
    /// The one that fits.
    #[default]
    Auto,
    /// This one.
    Named(Backbone),
}

impl BackboneChoice {
    /// The name by which it is given.
    pub fn name(self) -> &'static str {
        match self {
            BackboneChoice::Auto => "auto",
            BackboneChoice::Named(backbone) => backbone.name(),
        }
    }

    /// The backbone, where it is certain already.
    pub fn named(self) -> Option<Backbone> {
        match self {
            BackboneChoice::Auto => None,
            BackboneChoice::Named(backbone) => Some(backbone),
        }
    }

    /// Whether a job of so many nodes can have what was named.
    ///
    /// # Errors
    /// Shared memory joins fewer.
    pub fn check(self, nodes: usize) -> Result<(), TooManyNodes> {
        let has_room = self.named() != Some(Backbone::Shm) || nodes <= SHM_NODES_MAX;
        if has_room { Ok(()) } else { Err(TooManyNodes(nodes)) }
    }

    /// The backbone of a job in these circumstances; whether shared memory works is tried on this host.
    pub fn resolve(self, job: &Circumstances) -> Resolved {
        let (backbone, reason) = match self {
            BackboneChoice::Named(backbone) => (backbone, Reason::Named),
            BackboneChoice::Auto => match job.against_shm() {
                Some(reason) => (Backbone::Udp, reason),
                None => match shm::probe() {
                    Ok(()) => (Backbone::Shm, Reason::OneHost),
                    Err(error) => (Backbone::Udp, Reason::Refused(error.to_string())),
                },
            },
        };
        Resolved { backbone, reason }
    }
}

impl fmt::Display for BackboneChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BackboneChoice {
    type Err = UnknownBackbone;

    fn from_str(text: &str) -> Result<BackboneChoice, UnknownBackbone> {
        match text {
            "auto" => Ok(BackboneChoice::Auto),
            _ => text.parse().map(BackboneChoice::Named),
        }
    }
}

/// What `auto` depends on. All nodes of a job must see the same; where they cannot, their launcher looks for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Circumstances {
    /// Whether all nodes are on this host.
    pub one_host: bool,
    /// How many nodes there are.
    pub nodes: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// How many descriptors a node may have.
    pub descriptors: usize,
    /// The option that asks for a network, if one does.
    pub network: Option<&'static str>,
}

impl Circumstances {
    fn against_shm(&self) -> Option<Reason> {
        if !self.one_host {
            return Some(Reason::SeveralHosts);
        }
        if let Some(option) = self.network {
            return Some(Reason::Network(option));
        }
        let needed = descriptors_for(self.nodes, self.endpoints);
        if self.nodes > SHM_NODES_MAX {
            return Some(Reason::Refused(format!("it joins {SHM_NODES_MAX} nodes at most, not {}", self.nodes)));
        }
        (needed > self.descriptors / 2).then(|| {
            let many =
                format!("each of {} nodes would need {needed} descriptors, more than half of its limit", self.nodes);
            Reason::Refused(many)
        })
    }
}

/// How many descriptors this process may have.
pub fn descriptors_max() -> usize {
    usize::try_from(crate::sys::soft_limit(libc::RLIMIT_NOFILE)).unwrap_or(usize::MAX)
}

/// What a node has open besides its lanes.
const OTHER_DESCRIPTORS: usize = 64;

/// How many descriptors a node needs: a line to each process that sends to one of its endpoints, and one to each
/// endpoint that it sends to itself.
fn descriptors_for(nodes: usize, endpoints: usize) -> usize {
    nodes.saturating_mul(endpoints).saturating_mul(2).saturating_add(OTHER_DESCRIPTORS)
}

/// Why a backbone was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was named.
    Named,
    /// All nodes are on one host.
    OneHost,
    /// There may be several hosts.
    SeveralHosts,
    /// This option asks for a network.
    Network(&'static str),
    /// Shared memory cannot be had.
    Refused(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Named => f.write_str("as it was named"),
            Reason::OneHost => f.write_str("all nodes are on this host"),
            Reason::SeveralHosts => f.write_str("nodes may be on several hosts"),
            Reason::Network(option) => write!(f, "{option} asks for a network"),
            Reason::Refused(why) => write!(f, "shared memory cannot be had here: {why}"),
        }
    }
}

/// A backbone, and why it was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The backbone.
    pub backbone: Backbone,
    /// Why.
    pub reason: Reason,
}

impl Resolved {
    /// What a person must hear: shared memory would fit, and cannot be had.
    pub fn warning(&self) -> Option<String> {
        let Reason::Refused(_) = self.reason else { return None };
        Some(format!(
            "comem: {}; this job takes the backbone udp (--backbone udp takes it without asking)",
            self.reason
        ))
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.backbone, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Circumstances =
        Circumstances { one_host: true, nodes: 4, endpoints: 2, descriptors: 1024, network: None };

    fn auto(job: Circumstances) -> (Backbone, Reason) {
        let Resolved { backbone, reason } = BackboneChoice::Auto.resolve(&job);
        (backbone, reason)
    }

    #[test]
    fn backbones_are_chosen_by_name() {
        assert_eq!("auto".parse(), Ok(BackboneChoice::Auto));
        for backbone in Backbone::ALL {
            assert_eq!(backbone.to_string().parse(), Ok(backbone));
            assert_eq!(backbone.to_string().parse(), Ok(BackboneChoice::Named(backbone)));
        }
        let error = "carrier-pigeon".parse::<BackboneChoice>().unwrap_err().to_string();
        assert!(["carrier-pigeon", "auto", "udp", "shm"].iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn the_nodes_of_one_host_share_memory() {
        assert_eq!(auto(HERE), (Backbone::Shm, Reason::OneHost));
    }

    #[test]
    fn several_hosts_and_questions_about_a_network_take_udp() {
        let spread = Circumstances { one_host: false, ..HERE };
        assert_eq!(auto(spread), (Backbone::Udp, Reason::SeveralHosts));
        let asked = Circumstances { network: Some("--faults"), ..HERE };
        assert_eq!(auto(asked), (Backbone::Udp, Reason::Network("--faults")));
    }

    #[test]
    fn what_was_named_is_taken_whatever_the_circumstances() {
        for backbone in Backbone::ALL {
            let resolved = BackboneChoice::Named(backbone).resolve(&Circumstances { one_host: false, ..HERE });
            assert_eq!(resolved, Resolved { backbone, reason: Reason::Named });
            assert_eq!(resolved.warning(), None);
        }
    }

    #[test]
    fn shared_memory_that_was_named_has_room_for_all_nodes() {
        let named = BackboneChoice::Named;
        assert_eq!(named(Backbone::Shm).check(SHM_NODES_MAX), Ok(()));
        let refused = named(Backbone::Shm).check(SHM_NODES_MAX + 1);
        assert_eq!(refused.unwrap_err().to_string(), "the backbone shm joins 63 nodes at most, not 64");
        for choice in [named(Backbone::Udp), BackboneChoice::Auto] {
            assert_eq!(choice.check(1024), Ok(()));
        }
    }

    #[test]
    fn more_nodes_than_lanes_and_more_lanes_than_descriptors_take_udp_and_say_so() {
        for many in
            [Circumstances { nodes: SHM_NODES_MAX + 1, ..HERE }, Circumstances { nodes: 32, endpoints: 9, ..HERE }]
        {
            let resolved = BackboneChoice::Auto.resolve(&many);
            assert_eq!(resolved.backbone, Backbone::Udp);
            let warning = resolved.warning().expect("a person hears of it");
            assert!(warning.contains("shared memory cannot be had") && warning.contains("--backbone udp"), "{warning}");
        }
    }
}
