//! One send that many nodes hear: a job's multicast group, and the broadcasts by which nodes find each other.
//!
//! Both are sent from an ordinary endpoint, so that the answer finds the sender, and heard by a [`Listener`], a
//! second socket that an endpoint attends besides its own. It has to be a second one: a datagram to a
//! group goes to one port, and the nodes of a host have different ports. Listeners share their port, so several
//! processes of a host all hear.
//!
//! Neither leaves the local network (a TTL of one). Whether a network carries multicast at all is found out
//! by trying; IPv6 has none on the loopback.

use crate::faulty::BadReception;
use crate::select::Interface;
use crate::sys;
use crate::{PortChoice, Received};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockFilter, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The UDP port on which nodes and daemons hear those who look for them.
pub const DISCOVERY_PORT: u16 = 27_436;

/// Ports for groups when the job names none: below those that systems give out by themselves.
const GROUP_PORTS: (u16, u16) = (20_000, 27_000);
/// What is asked of the kernel for datagrams that wait.
const LISTENER_BUFFER_BYTES: i32 = 4 << 20;

/// An address that several nodes hear.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    address: SocketAddr,
}

impl Group {
    /// The group of a job on an interface: an address for use within an organisation (239.192.0.0/14, RFC 2365) and a
    /// port of the choice, both derived from the job's number. Two jobs may meet in one; their datagrams differ.
    pub fn of_job(job: u64, interface: &Interface, ports: PortChoice) -> Group {
        let mixed = (job ^ (job >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let (first, last) = match ports {
            PortChoice::Range(first, last) if first <= last => (first, last),
            PortChoice::Exact(port) => (port, port),
            _ => GROUP_PORTS,
        };
        let port = first + ((mixed >> 18) % (u64::from(last - first) + 1)) as u16;
        let v4 = Ipv4Addr::from_bits(Ipv4Addr::new(239, 192, 0, 0).to_bits() | (mixed as u32 & 0x3_ffff));
        Group::on(interface, v4, mixed as u32, port)
    }

    /// Where those who look for a job on an interface call, and daemons and nodes listen: the network's broadcast
    /// address; with IPv6, which has none, a group.
    ///
    /// # Errors
    /// The interface has no broadcast address.
    pub fn discovery(interface: &Interface, port: u16) -> io::Result<Group> {
        match (interface.address, interface.broadcast) {
            (IpAddr::V6(_), _) => Ok(Group::on(interface, Ipv4Addr::UNSPECIFIED, u32::MAX, port)),
            (_, Some(address)) => Ok(Group { address: SocketAddr::new(address, port) }),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{interface} has no broadcast address; give node zero's address instead of --discover"),
            )),
        }
    }

    fn on(interface: &Interface, v4: Ipv4Addr, v6: u32, port: u16) -> Group {
        let address = match interface.address {
            IpAddr::V4(_) => SocketAddr::new(v4.into(), port),
            // Transient, link-local: ff12::.
            IpAddr::V6(_) => {
                let [a, b] = [(v6 >> 16) as u16, v6 as u16];
                let ip = Ipv6Addr::new(0xff12, 0, 0, 0x63, 0x6f6d, 0x656d, a, b);
                SocketAddrV6::new(ip, port, 0, interface.index).into()
            }
        };
        Group { address }
    }

    /// Where to send what the group shall hear.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a socket that hears the group.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self, interface: &Interface) -> io::Result<Listener> {
        self.open(interface)
            .map(|socket| Listener { socket, bad: None })
            .map_err(|e| io::Error::new(e.kind(), format!("cannot listen at {} on {interface}: {e}", self.address)))
    }

    fn open(&self, interface: &Interface) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(self.address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        if self.address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&self.address.into())?;
        match self.address.ip() {
            IpAddr::V4(ip) if ip.is_multicast() => {
                socket.join_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(interface.index))?;
                socket.set_multicast_all_v4(false)?;
            }
            IpAddr::V6(ip) => socket.join_multicast_v6(&ip, interface.index)?,
            IpAddr::V4(_) => {}
        }
        let fd = socket.as_fd();
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, LISTENER_BUFFER_BYTES)
            .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, LISTENER_BUFFER_BYTES))?;
        Ok(socket)
    }
}

/// A socket that hears a group or the broadcasts of a network.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// What faults are injected into what it hears.
    bad: Option<BadReception>,
}

/// A hold on a listener that somebody else attends, to narrow down what it hears.
#[derive(Debug)]
pub struct ListenerHandle {
    socket: Socket,
}

impl ListenerHandle {
    /// Keeps from now on only what the program lets pass, for good. What has come before lies there as it was.
    pub(crate) fn filter(&self, program: &[SockFilter]) -> io::Result<()> {
        self.socket.attach_filter(program)?;
        sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)
    }
}

impl Listener {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Lets what comes suffer on a bad network before anybody receives it.
    pub(crate) fn on_bad_network(self, bad: Option<BadReception>) -> Listener {
        Listener { bad, ..self }
    }

    /// A hold on this listener.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn handle(&self) -> io::Result<ListenerHandle> {
        Ok(ListenerHandle { socket: self.socket.try_clone()? })
    }

    /// In how long there is something to take of what was held back by injected faults.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.bad.as_ref()?.due_in()
    }

    /// Takes what is there; `None` when nothing is.
    ///
    /// # Errors
    /// What the system says when the socket no longer works.
    pub fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let Some(bad) = &self.bad else { return self.receive(buffer) };
        loop {
            if let Some(received) = bad.take_due(buffer) {
                return Ok(Some(received));
            }
            match self.receive(buffer)? {
                Some(Received::Datagrams { from, len, segment }) => bad.hear(from, &buffer[..len], segment),
                _ => return Ok(None),
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        loop {
            match sys::receive(self.as_fd(), buffer, sys::Waits::Not) {
                Ok(arrived) => return Ok(Some(arrived.into())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}
