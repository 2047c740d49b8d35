//! Which network a job uses: the interface and its address, the ports, the size of a datagram.
//!
//! `--iface` takes an interface's name (`eth0`), a network (`10.0.0.0/8`) or one of this host's addresses. Without
//! it, jobs on one host use the loopback, and others the interface through which the host reaches the peer they
//! know, or the world. IPv6 addresses that hold only on one link (`fe80::`) are never chosen.

use crate::sys::{self, InterfaceAddress};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// The MTUs of the networks that a job can use, in bytes.
pub const MTUS: std::ops::RangeInclusive<usize> = 576..=65_535;

/// An address of one of this host's interfaces, and what is known of the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// The address that this host has there.
    pub address: IpAddr,
    /// How many leading bits the addresses of that network share.
    pub prefix: u8,
    /// The address that all hosts of that network hear; only with IPv4.
    pub broadcast: Option<IpAddr>,
    /// The most bytes of one packet, headers included.
    pub mtu: usize,
    /// Whether it is the loopback, which only this host can reach.
    pub loopback: bool,
}

impl Interface {
    /// The most bytes of one datagram that is sent here unfragmented.
    pub fn datagram_bytes_max(&self) -> usize {
        udp_payload_max(self.mtu, self.address)
    }
    /// Whether `address` belongs to the interface's network.
    pub fn is_neighbour(&self, address: IpAddr) -> bool {
        Network { address: self.address, prefix: self.prefix }.contains(address)
    }
}

impl std::fmt::Display for Interface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}/{}, MTU {})", self.name, self.address, self.prefix, self.mtu)
    }
}

/// The most bytes of a UDP datagram in a packet of `mtu` bytes, to an address of the same family as `address`.
pub fn udp_payload_max(mtu: usize, address: IpAddr) -> usize {
    const UDP_HEADER: usize = 8;
    const PACKET_MAX: usize = 65_535;
    let ip_header = if address.is_ipv4() { 20 } else { 40 };
    mtu.min(PACKET_MAX).saturating_sub(ip_header + UDP_HEADER)
}

/// Whom the nodes of a job must reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Only each other, on this host.
    ThisHost,
    /// Other hosts, not yet known which.
    Network,
    /// Other hosts, this one among them.
    Peer(IpAddr),
}

/// No interface can be chosen.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// Nothing on this host fits what was asked for.
    #[error("no interface or address of this host fits --iface {wanted}; it has {known}")]
    NoneFits {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// The host has no network.
    #[error("this host has no network besides the loopback; bring an interface up, or run all nodes on this host")]
    NoNetwork,
    /// The known peer cannot be reached.
    #[error("this host has no route to {peer}; check the address, or choose an interface with --iface")]
    NoRoute {
        /// The peer.
        peer: IpAddr,
    },
    /// The system does not tell.
    #[error("the interfaces of this host cannot be listed: {0}")]
    System(#[from] io::Error),
}

/// Chooses the interface and address for a job: what `--iface` asks for, or what reaches whom it must.
///
/// # Errors
/// Nothing fits; the text names what there is.
pub fn choose(wanted: Option<&str>, reach: Reach) -> Result<Interface, SelectError> {
    let all = interfaces()?;
    match (wanted, reach) {
        (Some(wanted), reach) => fitting(&all, wanted, reach).cloned().ok_or_else(|| SelectError::NoneFits {
            wanted: wanted.to_string(),
            known: all.iter().map(Interface::to_string).collect::<Vec<_>>().join(", "),
        }),
        (None, Reach::ThisHost) => all.into_iter().find(|i| i.loopback).ok_or(SelectError::NoNetwork),
        (None, Reach::Peer(peer)) => routed(&all, peer).cloned().ok_or(SelectError::NoRoute { peer }),
        (None, Reach::Network) => {
            let world = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), "2001:db8::1".parse().map_err(io::Error::other)?];
            let outward = world.iter().find_map(|&peer| routed(&all, peer)).filter(|i| !i.loopback);
            outward.or_else(|| all.iter().find(|i| !i.loopback)).cloned().ok_or(SelectError::NoNetwork)
        }
    }
}

fn fitting<'a>(all: &'a [Interface], wanted: &str, reach: Reach) -> Option<&'a Interface> {
    let network = Network::parse(wanted);
    let fits = |i: &&Interface| i.name == wanted || network.is_some_and(|n| n.contains(i.address));
    let family = |i: &&Interface| match reach {
        Reach::Peer(peer) => peer.is_ipv4() == i.address.is_ipv4(),
        _ => true,
    };
    all.iter().filter(fits).find(family).or_else(|| all.iter().find(fits))
}

/// The interface whose address the kernel would give to packets for `peer`. Sends nothing.
fn routed(all: &[Interface], peer: IpAddr) -> Option<&Interface> {
    const ANY_PORT: u16 = 9;
    let socket = UdpSocket::bind((unspecified(peer), 0)).ok()?;
    socket.connect((peer, ANY_PORT)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    all.iter().find(|i| i.address == address)
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The interfaces that are up, an entry for each address; IPv4 first.
///
/// # Errors
/// What the system says.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let asked_through =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).or_else(|_| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)))?;
    let mut all: Vec<Interface> = sys::interface_addresses()?
        .into_iter()
        .filter(|i| i.flags & libc::IFF_UP as u32 != 0 && !is_link_local(i.address))
        .filter_map(|i| describe(i, &asked_through))
        .collect();
    all.sort_by_key(|i| i.address.is_ipv6());
    Ok(all)
}

/// `None` when the interface went away meanwhile.
fn describe(found: InterfaceAddress, asked_through: &UdpSocket) -> Option<Interface> {
    // An address with a label (`eth0:1`) is listed under the label.
    let name = found.name.split(':').next().unwrap_or_default().to_string();
    let loopback = found.flags & libc::IFF_LOOPBACK as u32 != 0;
    let broadcasts = found.flags & libc::IFF_BROADCAST as u32 != 0;
    let prefix = prefix_len(found.netmask);
    let broadcast = match found.address {
        IpAddr::V4(address) if loopback => Some(last_of_network(address, prefix).into()),
        IpAddr::V4(_) if broadcasts => found.broadcast,
        _ => None,
    };
    Some(Interface {
        index: sys::interface_index(&name)?,
        mtu: sys::interface_mtu(asked_through.as_fd(), &name).ok()?,
        address: found.address,
        name,
        prefix,
        broadcast,
        loopback,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}

fn prefix_len(netmask: IpAddr) -> u8 {
    match netmask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones() as u8,
        IpAddr::V6(mask) => mask.to_bits().leading_ones() as u8,
    }
}

fn last_of_network(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() | u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0))
}

/// A network, or a single address (all bits count).
#[derive(Clone, Copy)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |p| p.parse().ok())?;
        (prefix <= bits).then_some(Network { address, prefix })
    }

    fn contains(self, other: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= prefix,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= prefix,
            _ => false,
        }
    }
}

/// Which ports a socket may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PortChoice {
    /// Any that is free.
    #[default]
    Any,
    /// This one.
    Exact(u16),
    /// A free one from the first to the last, both included.
    Range(u16, u16),
}

/// Opens a UDP socket at `address` on a port of the choice.
///
/// # Errors
/// No port is free (`AddrInUse`), or the address cannot be used; the text says what to do.
pub fn bind(address: IpAddr, choice: PortChoice) -> io::Result<UdpSocket> {
    let (first, last) = match choice {
        PortChoice::Any => (0, 0),
        PortChoice::Exact(port) => (port, port),
        PortChoice::Range(first, last) => (first, last),
    };
    if first > last {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the port range {first}-{last} is empty")));
    }
    // Nodes that start together look in different places first.
    let count = u32::from(last - first) + 1;
    let start = std::process::id().wrapping_mul(61) % count;
    for step in 0..count {
        let port = first + ((start + step) % count) as u16;
        match UdpSocket::bind((address, port)) {
            Ok(socket) => return Ok(socket),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && step + 1 < count => {}
            Err(e) => return Err(explain(&e, address, (first, last))),
        }
    }
    Err(io::Error::from(io::ErrorKind::AddrInUse))
}

fn explain(error: &io::Error, address: IpAddr, (first, last): (u16, u16)) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::AddrInUse if first == 0 => format!("no UDP port of {address} is free; end another job"),
        io::ErrorKind::AddrInUse if first == last => {
            format!("UDP port {first} of {address} is in use; choose another, or end the job that has it")
        }
        io::ErrorKind::AddrInUse => format!(
            "all UDP ports {first}-{last} of {address} are in use, also by nodes of this job, each of which takes one \
             for every thread and one more; give a wider range with --ports, or end the job that has them"
        ),
        io::ErrorKind::AddrNotAvailable => format!("{address} is not an address of this host; see --iface"),
        io::ErrorKind::PermissionDenied => {
            format!("UDP ports {first}-{last} are reserved for root; choose ports from 1024 on")
        }
        _ => format!("cannot open a UDP socket at {address}: {error}"),
    };
    io::Error::new(error.kind(), text)
}

/// The MTU of the way from `local` to `to`, as far as this host's kernel knows it. Sends nothing.
///
/// # Errors
/// There is no way.
pub fn path_mtu(local: IpAddr, to: SocketAddr) -> io::Result<usize> {
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(to)?;
    let (level, option) = match to {
        SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_MTU),
    };
    Ok(usize::try_from(sys::option(socket.as_fd(), level, option)?).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_local_job_uses_the_loopback() {
        for wanted in [None, Some("lo"), Some("127.0.0.0/8"), Some("127.0.0.1")] {
            let chosen = choose(wanted, Reach::ThisHost).unwrap();
            assert!(chosen.loopback && chosen.address == LOCALHOST, "{wanted:?}: {chosen}");
            assert_eq!(chosen.broadcast, Some("127.255.255.255".parse().unwrap()));
        }
        assert_eq!(choose(None, Reach::Peer(LOCALHOST)).unwrap().address, LOCALHOST);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_there_is() {
        for wanted in ["no-such-if", "203.0.113.0/24", "10.0.0.0/33", "1.2.3", ""] {
            let error = choose(Some(wanted), Reach::Network).unwrap_err().to_string();
            assert!(error.contains(&format!("--iface {wanted}")) && error.contains("lo (127.0.0.1/8"), "{error}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses() {
        let inside = |network: &str, address: &str| Network::parse(network).unwrap().contains(address.parse().unwrap());
        assert!(inside("10.0.0.0/8", "10.255.1.2") && !inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("0.0.0.0/0", "8.8.8.8") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("2001:db8::/32", "2001:db8:1::5") && !inside("2001:db8::/32", "2001:db9::"));
        assert!(inside("::1", "::1") && !inside("192.0.2.1", "192.0.2.2"));
        assert_eq!(last_of_network(Ipv4Addr::new(10, 1, 2, 3), 24), Ipv4Addr::new(10, 1, 2, 255));
        assert_eq!(last_of_network(Ipv4Addr::new(10, 1, 2, 3), 32), Ipv4Addr::new(10, 1, 2, 3));
    }

    #[test]
    fn a_datagram_fills_a_packet() {
        assert_eq!(udp_payload_max(1500, LOCALHOST), 1472);
        assert_eq!(udp_payload_max(1500, Ipv6Addr::LOCALHOST.into()), 1452);
        assert_eq!(udp_payload_max(65_536, LOCALHOST), 65_507);
        assert_eq!(udp_payload_max(10, LOCALHOST), 0);
    }

    #[test]
    fn ports_come_from_the_range_until_it_is_used_up() {
        // An address of its own, so that no other test or program has ports there.
        let address: IpAddr = Ipv4Addr::from_bits(0x7f4d_0000 | (std::process::id() & 0xffff)).into();
        let choice = PortChoice::Range(40_000, 40_002);
        let sockets: Vec<UdpSocket> = (0..3).map(|_| bind(address, choice).unwrap()).collect();
        let mut ports: Vec<u16> = sockets.iter().map(|s| s.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        assert_eq!(ports, [40_000, 40_001, 40_002]);
        let error = bind(address, choice).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("40000-40002") && error.to_string().contains("--ports"), "{error}");
        let error = bind(address, PortChoice::Exact(40_001)).unwrap_err();
        assert!(error.to_string().contains("UDP port 40001 of 127.77."), "{error}");
    }

    #[test]
    fn unusable_addresses_and_ranges_are_explained() {
        let error = bind("203.0.113.9".parse().unwrap(), PortChoice::Any).unwrap_err();
        assert!(error.to_string().contains("not an address of this host"), "{error}");
        let error = bind(LOCALHOST, PortChoice::Range(9, 3)).unwrap_err();
        assert!(error.to_string().contains("9-3 is empty"), "{error}");
    }

    #[test]
    fn the_path_to_this_host_is_as_wide_as_the_loopback() {
        let mtu = choose(None, Reach::ThisHost).unwrap().mtu;
        let known = path_mtu(LOCALHOST, "127.0.0.1:9".parse().unwrap()).unwrap();
        assert!(known == mtu || known == 65_535, "{known} against {mtu}");
    }
}
