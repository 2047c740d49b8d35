//! Connected sockets that only send: one for each address to which an endpoint sends often.
//!
//! The kernel looks for the route to an address at every `sendto`; a connected socket keeps it, which saves 0.3 to 0.4
//! us a datagram (Linux 6.18, loopback; 8 % of a bare exchange of 64 bytes for 4 KiB). But a connected socket at the
//! endpoint's own address would also be given what its peer sends, and nobody looks there. So these are bound to the
//! endpoint's port at a group's address, one to which nobody sends: that is what they receive, which is nothing. What
//! they send still has the endpoint's address and port as its source, for a host is no group, and the kernel takes the
//! address from the route. Reports of closed ports go by the same addresses, and so to the endpoint's own socket.
//!
//! They take a quarter of the descriptors that the process may have (`ulimit -n`), at most, whatever the number of
//! endpoints and addresses.
//!
//! Where the route would have another source (a host with several addresses), or anything else goes wrong, there is no
//! such socket, and the endpoint's own sends as ever.

use crate::endpoint::{SOCKET_BUFFER_BYTES, never_fragment, set_size};
use crate::sys;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Most addresses that an endpoint knows ways to; each may take a file number.
const SENDERS_MAX: usize = 64;
/// How many places an address is looked for in.
const PROBES: usize = 4;
/// A way pays for itself after so many datagrams.
const SENDS_BEFORE_CONNECT: u32 = 64;
/// What the kernel may keep of what comes to a group that nobody sends to: as little as it lets us say.
const RECEIVE_BUFFER_BYTES: i32 = 1;

/// Of all descriptors that the process may have, one in so many may be a way's.
const DESCRIPTORS_PART: u64 = 4;
/// How many ways of this process have a socket.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// An address to which something was sent.
#[derive(Debug)]
struct ConnectedSender {
    to: SocketAddr,
    sends: AtomicU32,
    socket: OnceLock<Option<Counted>>,
}

/// A way's socket, which counts among those of the process.
#[derive(Debug)]
struct Counted(UdpSocket);

impl Counted {
    /// A socket from `local` to `to`, if the process may have another one and the system makes it.
    fn open(local: SocketAddr, to: SocketAddr) -> Option<Counted> {
        let most = usize::try_from(sys::soft_limit(libc::RLIMIT_NOFILE) / DESCRIPTORS_PART).unwrap_or(usize::MAX);
        OPEN.fetch_update(Relaxed, Relaxed, |open| (open < most).then_some(open + 1)).ok()?;
        let socket = open(local, to).map(Counted);
        if socket.is_err() {
            OPEN.fetch_sub(1, Relaxed);
        }
        socket.ok()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}

/// The ways of an endpoint.
#[derive(Debug)]
pub(crate) struct ConnectedSenders {
    places: [OnceLock<ConnectedSender>; SENDERS_MAX],
}

impl ConnectedSenders {
    pub(crate) fn new() -> ConnectedSenders {
        ConnectedSenders { places: [const { OnceLock::new() }; SENDERS_MAX] }
    }

    /// The connected socket that sends from `local` to `to`, if that address is in use often enough to have one.
    #[inline]
    pub(crate) fn socket(&self, local: SocketAddr, to: SocketAddr) -> Option<BorrowedFd<'_>> {
        let sender = self.find(to)?;
        if let Some(socket) = sender.socket.get() {
            return socket.as_ref().map(|socket| socket.0.as_fd());
        }
        if sender.sends.fetch_add(1, Relaxed) >= SENDS_BEFORE_CONNECT {
            sender.socket.get_or_init(|| Counted::open(local, to));
        }
        None
    }

    #[inline]
    fn find(&self, to: SocketAddr) -> Option<&ConnectedSender> {
        let start = usize::from(to.port());
        for place in (start..start + PROBES).map(|place| &self.places[place % SENDERS_MAX]) {
            let sender =
                place.get_or_init(|| ConnectedSender { to, sends: AtomicU32::new(0), socket: OnceLock::new() });
            if sender.to == to {
                return Some(sender);
            }
        }
        None
    }
}

/// A socket that sends from `local` to `to` and receives nothing.
fn open(local: SocketAddr, to: SocketAddr) -> io::Result<UdpSocket> {
    use socket2::{Domain, Protocol, Socket, Type};
    if is_for_many(to.ip()) || source_to(to)? != local.ip() {
        return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    }
    let nowhere = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0)),
    };
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(nowhere, local.port()).into())?;
    let socket = UdpSocket::from(socket);
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES)?;
    set_size(socket.as_fd(), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), SOCKET_BUFFER_BYTES)?;
    never_fragment(socket.as_fd(), local.ip())?;
    socket.connect(to)?;
    Ok(socket)
}

fn is_for_many(to: IpAddr) -> bool {
    to.is_multicast() || matches!(to, IpAddr::V4(to) if to.is_broadcast())
}

/// The address of this host that the kernel puts on what goes to `to`.
fn source_to(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(to)?;
    Ok(probe.local_addr()?.ip())
}
