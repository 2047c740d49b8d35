//! Comem's backbones `udp` and `shm`: how datagrams move between nodes. What they say, and whether they must be sent
//! again, is decided elsewhere (`comem-protocol`); here they are sent, awaited, and on request harmed or recorded.
//!
//! Every slot of a node (its service thread, each application thread) has one [`Endpoint`], or [`ShmEndpoint`]. Tests
//! and people who study the network wrap it: [`Faulty`] harms what is sent, [`Captured`] writes everything to a file
//! for Wireshark. All of them are [`Datagrams`], and [`Network`] puts them together as a job was told to.
//!
//! | module | does |
//! |---|---|
//! | [`backbone`] | UDP or shared memory: what was named, or what fits |
//! | [`endpoint`] | one UDP socket: send, receive, wait |
//! | [`shm`] | the same between processes of one host, through shared memory |
//! | [`select`] | which interface, address, port and datagram size |
//! | [`multicast`] | groups and discovery: one send that many nodes hear |
//! | [`selective`] | datagrams to sets of a job's nodes, by multicast where it arrives |
//! | [`network`] | a job's choice of network, and its endpoints |
//! | [`faulty`], [`capture`] | wrappers: injected faults; a pcap file |
//! | [`clock`] | time from the cycle counter |
//! | [`ucx`] | one-sided operations by UCX, a library that is loaded at run time |
//! | [`threads`] | threads of Comem's own, which leave the program its signals |
//!
//! Cost: a small datagram is one system call to send and one to receive; nothing on that path allocates or takes a
//! lock. Set-up may do anything.

pub mod backbone;
pub mod capture;
pub mod clock;
mod connected_senders;
pub mod endpoint;
pub mod faulty;
mod filter;
pub mod multicast;
pub mod network;
pub mod select;
pub mod selective;
pub mod shm;
mod sys;
pub mod threads;
pub mod ucx;

pub use backbone::{Backbone, BackboneChoice};
pub use capture::{Capture, Captured};
pub use clock::Clock;
pub use endpoint::{Endpoint, Lengths};
pub use faulty::{Faults, Faulty};
pub use multicast::{Group, Listener, ListenerHandle};
pub use network::Network;
pub use select::{Interface, PortChoice};
pub use selective::Selective;
pub use shm::{ShmEndpoint, ShmHost};
pub use sys::within_file_limit;

use comem_protocol::time::Span;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The size of a buffer into which every datagram, and every batch of them, fits.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 16;
/// The most bytes of one [`Datagrams::send_to`] that go to the system at once.
pub const BATCH_BYTES_MAX: usize = 65_507;
/// The most datagrams that go to the system at once.
pub const BATCH_DATAGRAMS_MAX: usize = 64;

/// How to wait for a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Give the core away until something comes.
    Block,
    /// Ask again and again for so long, then block. Only while the host has a core to spare.
    Spin(Span),
}

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// One or more datagrams of one sender, one behind the other in the buffer; [`datagrams`] takes them apart.
    Datagrams {
        /// The sender's socket.
        from: SocketAddr,
        /// How many bytes of the buffer are filled.
        len: usize,
        /// The length of each datagram but the last, which may be shorter.
        segment: usize,
    },
    /// Nothing came in time.
    Timeout,
    /// No socket is open at this address, to which something was sent: its process has ended, or at least closed it.
    Unreachable(SocketAddr),
    /// Packets to this host may have no more than so many bytes, headers included; a longer one was lost.
    PathMtu {
        /// The host.
        to: IpAddr,
        /// The MTU of the way there.
        mtu: usize,
    },
}

/// The single datagrams in what [`Received::Datagrams`] filled. An empty datagram is left out.
pub fn datagrams(filled: &[u8], segment: usize) -> impl DoubleEndedIterator<Item = &[u8]> {
    filled.chunks(segment.max(1))
}

/// Something that sends and receives datagrams, from several threads at once if need be.
pub trait Datagrams: Send + Sync {
    /// The address that others see as the sender, and send to.
    fn local_addr(&self) -> SocketAddr;

    /// Sends `bytes` as datagrams of `segment` bytes each; the last may be shorter. Never waits for long.
    ///
    /// # Errors
    /// What the system says. Where [`counts_as_loss`], the datagrams may be lost, and to send again later may help.
    fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()>;

    /// Waits for datagrams, for at most `timeout` (`None`: for ever; zero: as [`Datagrams::try_recv`]). The buffer
    /// should have [`RECEIVE_BUFFER_BYTES`]; what does not fit is cut off.
    ///
    /// # Errors
    /// What the system says when the socket itself no longer works.
    fn recv(&self, buffer: &mut [u8], timeout: Option<Duration>, wait: Wait) -> io::Result<Received>;

    /// Takes what is there; [`Received::Timeout`] when nothing is. Listeners get their turn now and then; a call that
    /// waits finds what they have at once.
    ///
    /// # Errors
    /// As [`Datagrams::recv`].
    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received>;

    /// As [`Datagrams::try_recv`], into two buffers: what comes fills the first before it goes on in the second.
    /// Listeners and reports are left to the other calls, which this need not stand in for; `None` when nothing was
    /// there.
    ///
    /// # Errors
    /// As [`Datagrams::recv`].
    fn try_recv_in_two(&self, _first: &mut [u8], _rest: &mut [u8]) -> io::Result<Option<Received>> {
        Ok(None)
    }

    /// Whether [`Datagrams::try_recv_in_two`] ever brings anything.
    fn receives_in_two(&self) -> bool {
        false
    }

    /// Lets this endpoint hear what comes to `listener` as well.
    ///
    /// # Errors
    /// When it already has as many listeners as it can have.
    fn attend(&self, listener: Listener) -> io::Result<()>;

    /// Ends the present wait in [`Datagrams::recv`], or else the next one, early: with [`Received::Timeout`]. Reaches
    /// the caller's own process only, and neither faults nor captures concern it. `false`: this backbone cannot; a
    /// datagram sent to [`Datagrams::local_addr`] does as well.
    fn kick(&self) -> bool {
        false
    }

    /// Whether its descriptor is still a socket: a program may close what is not its own.
    fn is_open(&self) -> bool {
        true
    }

    /// Nobody will use this endpoint any more, although it may be kept: threads of the backbone that attend it, or
    /// others opened with it, end.
    fn retire(&self) {}

    /// Whether something may be there to receive; no system call. It also tells senders that somebody looks here now
    /// and then, so that those who can wait a moment before they rouse a sleeper do ([`Datagrams::send_patiently`]).
    /// `false` for ever where the backbone cannot tell.
    fn glance(&self) -> bool {
        false
    }

    /// Says that a thread looks at [`Datagrams::glance`] again and again from now on, or no longer: meanwhile senders
    /// need not rouse whoever sleeps in [`Datagrams::recv`]. The thread must look once more after it has said that it
    /// stops. `false`: this backbone always rouses.
    fn watch(&self, _watching: bool) -> bool {
        false
    }

    /// As [`Datagrams::send_to`], for a caller that calls [`Datagrams::settle`] soon, or waits in [`Datagrams::recv`]
    /// here, which does so: where a thread of the receiver's looks now and then, a sleeper there is roused only if what
    /// was sent still lies there then.
    ///
    /// # Errors
    /// As [`Datagrams::send_to`].
    fn send_patiently(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        self.send_to(bytes, segment, to)
    }

    /// As [`Datagrams::send_to`], for what the receiver need not hear before it looks by itself: nobody who sleeps
    /// there is roused for it.
    ///
    /// # Errors
    /// As [`Datagrams::send_to`].
    fn send_quietly(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        self.send_to(bytes, segment, to)
    }

    /// What a thread can wait at for this endpoint and for others at a time: it is readable when there is something to
    /// receive. `None` where there is nothing of the kind.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Rouses whom patient sends have left asleep, unless they have looked meanwhile. `patient`: gives those who look
    /// more time.
    fn settle(&self, _patient: bool) {}
}

impl<D: Datagrams + ?Sized> Datagrams for Arc<D> {
    fn local_addr(&self) -> SocketAddr {
        (**self).local_addr()
    }
    fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        (**self).send_to(bytes, segment, to)
    }
    fn recv(&self, buffer: &mut [u8], timeout: Option<Duration>, wait: Wait) -> io::Result<Received> {
        (**self).recv(buffer, timeout, wait)
    }
    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        (**self).try_recv(buffer)
    }
    fn attend(&self, listener: Listener) -> io::Result<()> {
        (**self).attend(listener)
    }
    fn kick(&self) -> bool {
        (**self).kick()
    }
    fn retire(&self) {
        (**self).retire();
    }
    fn glance(&self) -> bool {
        (**self).glance()
    }
    fn watch(&self, watching: bool) -> bool {
        (**self).watch(watching)
    }
    fn send_patiently(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        (**self).send_patiently(bytes, segment, to)
    }
    fn send_quietly(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        (**self).send_quietly(bytes, segment, to)
    }
    fn settle(&self, patient: bool) {
        (**self).settle(patient);
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }
}

/// Whether a failed send is the network's ordinary unreliability (full queues, a firewall or a route that drops, a
/// route that is
/// gone for the moment), to be treated as a lost datagram, rather than a mistake in what was to be sent.
pub fn counts_as_loss(error: &io::Error) -> bool {
    const LOSSES: [i32; 11] = [
        libc::EAGAIN,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EPERM,
        // Routes of the kinds `prohibit` and `blackhole`.
        libc::EACCES,
        libc::EINVAL,
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::ENETDOWN,
        libc::EHOSTDOWN,
    ];
    error.raw_os_error().is_some_and(|number| LOSSES.contains(&number))
}
