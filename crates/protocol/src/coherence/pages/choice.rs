//! Which engine keeps a job's pages where nobody has named one.
//!
//! Where all nodes are on one host they need no protocol: they map one memory ([`PageEngine::Hardware`]). What only a
//! protocol has, a detector or a bound for copies for instance, asks for one.

use super::PageEngine;
use std::fmt;

/// What the choice depends on. All nodes of a job must see the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Circumstances {
    /// Whether all nodes are on one host.
    pub one_host: bool,
    /// How many nodes there are.
    pub nodes: usize,
    /// Whether nodes share memory for their messages, so that they can be expected to map one another's.
    pub shares_memory: bool,
    /// The setting that asks for a protocol, if one does.
    pub asked: Option<&'static str>,
}

/// Why an engine was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was named.
    Named,
    /// All nodes are on one host.
    OneHost,
    /// There is one node, which has no copies.
    OneNode,
    /// There may be several hosts.
    SeveralHosts,
    /// Messages go over a network.
    Network,
    /// This setting asks for a protocol.
    Asked(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Named => f.write_str("as it was named"),
            Reason::OneHost => f.write_str("all nodes are on one host and map one memory"),
            Reason::OneNode => f.write_str("one node has no copies to keep"),
            Reason::SeveralHosts => f.write_str("nodes may be on several hosts"),
            Reason::Network => f.write_str("the backbone is a network"),
            Reason::Asked(setting) => write!(f, "{setting} asks for a protocol"),
        }
    }
}

impl Circumstances {
    /// The engine of pages, where `protocol` is the one that would keep copies.
    pub fn choose(&self, protocol: PageEngine) -> (PageEngine, Reason) {
        match *self {
            Circumstances { nodes: 0 | 1, .. } => (protocol, Reason::OneNode),
            Circumstances { one_host: false, .. } => (protocol, Reason::SeveralHosts),
            Circumstances { asked: Some(setting), .. } => (protocol, Reason::Asked(setting)),
            Circumstances { shares_memory: false, .. } => (protocol, Reason::Network),
            _ => (PageEngine::Hardware, Reason::OneHost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_host_map_one_memory_unless_something_asks_for_a_protocol() {
        let here = Circumstances { one_host: true, nodes: 4, shares_memory: true, asked: None };
        let chosen = |circumstances: Circumstances| circumstances.choose(PageEngine::Scope);
        assert_eq!(chosen(here), (PageEngine::Hardware, Reason::OneHost));
        for (circumstances, reason) in [
            (Circumstances { nodes: 1, ..here }, Reason::OneNode),
            (Circumstances { one_host: false, ..here }, Reason::SeveralHosts),
            (Circumstances { shares_memory: false, ..here }, Reason::Network),
            (Circumstances { asked: Some("--cache"), ..here }, Reason::Asked("--cache")),
        ] {
            assert_eq!(chosen(circumstances), (PageEngine::Scope, reason));
        }
    }
}
