//! The address table: who the nodes of a job are and where each of them listens.

use super::message::{self, take_address, take_text};
use crate::ids::{NodeId, THREADS_MAX};
use crate::wire::bytes::{Put, Reader, WireError};
use std::net::{IpAddr, SocketAddr};

/// One node, as the others know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The host it runs on, for messages.
    pub host: String,
    /// Its process number there.
    pub pid: u32,
    /// Its address.
    pub ip: IpAddr,
    /// The UDP port of each slot: the service thread's first, then the application threads'. Behind them there may be
    /// that of what may wait.
    pub ports: Vec<u16>,
}

impl Member {
    /// Where the node's service thread listens.
    pub fn service(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.ports.first().copied().unwrap_or(0))
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.pid);
        message::put_address(out, self.ip);
        message::put_text(out, &self.host);
        emit_ports(&self.ports, out);
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Member, WireError> {
        let pid = r.u32()?;
        let ip = take_address(r)?;
        Ok(Member { pid, ip, host: take_text(r, message::NAME_MAX)?, ports: parse_ports(r)? })
    }
}

pub(super) fn emit_ports(ports: &[u16], out: &mut Vec<u8>) {
    out.put_u16(ports.len() as u16);
    for &port in ports {
        out.put_u16(port);
    }
}

pub(super) fn parse_ports(r: &mut Reader<'_>) -> Result<Vec<u16>, WireError> {
    let count = usize::from(r.u16()?);
    if count == 0 || count > 2 + THREADS_MAX {
        return Err(WireError::BadValue("number of ports"));
    }
    let ports = (0..count).map(|_| r.u16()).collect::<Result<Vec<u16>, _>>()?;
    if ports.contains(&0) { Err(WireError::BadValue("port")) } else { Ok(ports) }
}

/// What start-up arrives at: everything a node needs to talk to all the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// This node.
    pub me: NodeId,
    /// All nodes, in the order of their numbers.
    pub nodes: Vec<Member>,
    /// Whether every node hears multicast.
    pub multicast: bool,
    /// The job's number, the same on every node and different from other jobs'.
    pub job: u64,
    /// The program number in the headers of the job's datagrams.
    pub prog: u16,
}

impl Membership {
    /// The node in words: `node 3 (host b, pid 4711)`.
    pub fn describe(&self, node: NodeId) -> String {
        match self.nodes.get(node.index()) {
            Some(member) => format!("{node} (host {}, pid {})", member.host, member.pid),
            None => node.to_string(),
        }
    }
}

/// Cuts the table into runs of consecutive nodes, each of which takes at most `bytes_max` bytes.
pub(super) fn pages(members: &[Member], bytes_max: usize) -> Vec<std::ops::Range<usize>> {
    let mut pages = Vec::new();
    let (mut first, mut used) = (0, 0);
    let mut entry = Vec::new();
    for (index, member) in members.iter().enumerate() {
        entry.clear();
        member.emit(&mut entry);
        if used + entry.len() > bytes_max && index > first {
            pages.push(first..index);
            (first, used) = (index, 0);
        }
        used += entry.len();
    }
    pages.push(first..members.len());
    pages
}
