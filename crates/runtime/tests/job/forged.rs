//! Datagrams that no node sends, in the name of node 1 of these tests' jobs.

use crate::launcher::JOB;
use comem_protocol::auth::{JobKey, Receiver, Sealer};
use comem_protocol::ids::{NodeId, Seq};
use comem_protocol::wire::header::{Flags, HeaderRepr, MsgType};
use std::collections::HashMap;

/// A datagram for node 0, sealed with this key.
pub fn datagram(key: Option<[u8; 32]>, (ty, flags): (MsgType, Flags), seq: Seq, payload: &[u8]) -> Vec<u8> {
    let job = std::env::var(JOB).expect("a node of a test").parse().expect("a number");
    let sealer = Sealer::new(key.map(JobKey::new)).of_job(job);
    let mut bytes = Vec::new();
    HeaderRepr { prog: 21, ty, flags, len: payload.len() as u16, retrans: 0, frag: 0, seq }.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    sealer.seal(&mut bytes, 0, Receiver::Node(NodeId(0)));
    bytes
}

/// This process's UDP sockets and their ports.
pub fn own_sockets() -> Vec<(i32, u16)> {
    let table = std::fs::read_to_string("/proc/self/net/udp").unwrap_or_default();
    let ports: HashMap<String, u16> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let port = u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()?;
            Some((format!("socket:[{}]", fields.get(9)?), port))
        })
        .collect();
    let entries = std::fs::read_dir("/proc/self/fd").expect("the descriptors").flatten();
    let socket = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        let port = ports.get(link.to_str()?)?;
        Some((entry.file_name().to_str()?.parse().ok()?, *port))
    };
    entries.filter_map(socket).collect()
}

/// Sends a datagram to a port of this host.
pub fn send(socket: i32, bytes: &[u8], port: u16) {
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let len = size_of_val(&to) as libc::socklen_t;
    // SAFETY: bytes and address are there for as long as the call.
    let sent = unsafe { libc::sendto(socket, bytes.as_ptr().cast(), bytes.len(), 0, (&raw const to).cast(), len) };
    let error = std::io::Error::last_os_error();
    // The other node may have ended for an earlier datagram already.
    let has_ended = sent < 0 && error.kind() == std::io::ErrorKind::ConnectionRefused;
    assert!(has_ended || sent == bytes.len() as isize, "{error}");
}
