//! One UDP socket of one slot: sends at once, receives into the caller's buffer, waits as it is told.
//!
//! *Batches.* Datagrams of equal size to one destination go to the kernel in one call (`UDP_SEGMENT`) and come out of
//! it in one call (`UDP_GRO`), told apart by what the kernel says or by the lengths in them ([`Lengths`]); where the
//! kernel cannot, they go one by one. A datagram is not fragmented by IP: one that exceeds the path's MTU is refused or
//! reported. What is longer than an endpoint was told that its datagrams are ([`Endpoint::cutting_beyond`]) is the
//! exception: such go one by one, and IP cuts them as it must.
//!
//! *Waiting.* A blocked thread first sits in the receive call itself, for one or two scheduler ticks at most, a timeout
//! set once (`SO_RCVTIMEO`); what is expected soon comes in one system call. After that, it sits in `ppoll`. A wait
//! shorter than 8 ms, or one that covers listeners, goes to `ppoll` at once: its timeout is exact, while the socket's
//! own counts in ticks (4 ms where HZ is 250) and costs a call to change. The example `pingpong` gives as ratios to
//! bare UDP: 1.04 in the receive call, 1.06 spinning, and in `ppoll` 1.06 when the two threads have a core each and
//! 1.24 when they share one. So whoever blocks does well to ask for 8 ms or more.
//!
//! *Death.* `IP_RECVERR` makes the kernel report a closed port: [`Received::Unreachable`] comes out of the next
//! receive call. The report of one thread's datagram may be met first by another thread's send on the same
//! socket; it is then kept for the receiver, which finds it at its next call.
//!
//! The crate `quinn-udp` does batches too, but neither waits nor reports closed ports, and always pays for the
//! control messages of QUIC (packet information, congestion marks) that nobody here reads; hence our own wrappers.

use crate::connected_senders::ConnectedSenders;
use crate::select::{self, PortChoice};
use crate::sys::{self, Readiness, Waits};
use crate::{BATCH_BYTES_MAX, BATCH_DATAGRAMS_MAX, Datagrams, Interface, Listener, Received, Wait};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What is asked of the kernel for datagrams that wait; it may grant less.
pub(crate) const SOCKET_BUFFER_BYTES: i32 = 4 << 20;
/// How often a send is tried when the kernel has something else to say, or no room.
const SEND_ATTEMPTS: usize = 8;
/// How long one such attempt waits for room.
const SEND_ROOM_WAIT: Duration = Duration::from_millis(2);
/// How long a blocked thread waits in the receive call itself.
const FIRST_WAIT: Duration = Duration::from_millis(4);
/// The shortest wait that begins so: the kernel counts from the next tick, which may double the first.
const FIRST_WAIT_FROM: Duration = Duration::from_millis(8);
/// Among so many receive calls that need not wait, one looks at the listeners too.
const LISTENER_TURN: u32 = 16;
/// Looks at a socket between two at the clock.
const LOOKS_BETWEEN: u32 = 4;
/// One listener for the job's group, one for that of a job that was given up for it, one for discovery.
const LISTENERS_MAX: usize = 3;

/// What the kernel does in batches for an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offload {
    /// Takes several datagrams in one send.
    pub segment: bool,
    /// Hands out several datagrams in one receive.
    pub coalesce: bool,
}

/// Where datagrams say how long they are, so that those that come together are told apart without the kernel's help: in
/// the two bytes from `at` on, the higher one first; and each is longer than that by `more`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Where the number stands.
    pub at: usize,
    /// What it does not count.
    pub more: usize,
}

impl Lengths {
    /// How long the first of these datagrams is by its own account; `None` when it ends before that.
    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> Option<usize> {
        let number = bytes.get(self.at..)?.first_chunk()?;
        Some(self.more + usize::from(u16::from_be_bytes(*number)))
    }
}

/// A UDP socket of one slot.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    local: SocketAddr,
    ways: ConnectedSenders,
    coalesce: bool,
    /// Of datagrams that say so.
    lengths: Option<Lengths>,
    /// Cleared when the kernel turns out unable to send batches on this way.
    segment: AtomicBool,
    /// Whether a send met a report that belongs to the receiver.
    reports_waiting: AtomicBool,
    listeners: [OnceLock<Listener>; LISTENERS_MAX],
    turn: AtomicU32,
    /// Longer datagrams may be cut by IP.
    uncut_bytes: usize,
    /// Held while the socket lets IP cut what it sends.
    cutting: Mutex<()>,
}

impl Endpoint {
    /// Opens a socket at `address`.
    ///
    /// # Errors
    /// No port of the choice is free (`AddrInUse`), the address is not this host's (`AddrNotAvailable`), or the
    /// system refuses; the text says what to do.
    pub fn bind(address: IpAddr, port: PortChoice) -> io::Result<Endpoint> {
        let socket = select::bind(address, port)?;
        let local = socket.local_addr()?;
        let offload = prepare(&socket, address)?;
        Ok(Endpoint {
            socket,
            local,
            ways: ConnectedSenders::new(),
            coalesce: offload.coalesce,
            lengths: None,
            segment: AtomicBool::new(offload.segment),
            reports_waiting: AtomicBool::new(false),
            listeners: [const { OnceLock::new() }; LISTENERS_MAX],
            turn: AtomicU32::new(0),
            uncut_bytes: usize::MAX,
            cutting: Mutex::new(()),
        })
    }

    /// Lets IP cut datagrams of more than so many bytes, and no others, where the way takes less. For few: when one
    /// piece is lost, all is.
    pub fn cutting_beyond(self, bytes: usize) -> Endpoint {
        Endpoint { uncut_bytes: bytes, ..self }
    }

    /// Every datagram that is to come here says how long it is. One that lies about it takes those with it that came
    /// with it, of the same sender.
    pub fn with_lengths(self, lengths: Option<Lengths>) -> Endpoint {
        Endpoint { lengths, ..self }
    }

    /// Makes this endpoint able to send to groups and broadcasts through `interface`: not beyond the local network,
    /// and heard by this host's own listeners too.
    ///
    /// # Errors
    /// What the system says.
    pub fn reach_groups(&self, interface: &Interface) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.socket);
        match self.local {
            SocketAddr::V4(_) => {
                socket.set_multicast_ttl_v4(1)?;
                socket.set_multicast_loop_v4(true)?;
                socket.set_broadcast(true)?;
                match interface.address {
                    IpAddr::V4(address) => socket.set_multicast_if_v4(&address),
                    IpAddr::V6(_) => Err(io::Error::from(io::ErrorKind::InvalidInput)),
                }
            }
            SocketAddr::V6(_) => {
                socket.set_multicast_hops_v6(1)?;
                socket.set_multicast_loop_v6(true)?;
                socket.set_multicast_if_v6(interface.index)
            }
        }
    }

    /// What the kernel does in batches here.
    pub fn offload(&self) -> Offload {
        Offload { segment: self.segment.load(Relaxed), coalesce: self.coalesce }
    }

    /// How many bytes the kernel keeps for this socket until they are received, by its own way of counting.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        socket2::SockRef::from(&self.socket).recv_buffer_size()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn send_batch(&self, batch: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let socket = self.socket.as_fd();
        let one_by_one =
            || batch.chunks(segment).try_for_each(|bytes| self.insist(|| sys::send_one(socket, bytes, Some(to))));
        let size = match u16::try_from(segment) {
            Ok(size) if batch.len() > segment && self.segment.load(Relaxed) => size,
            _ => return one_by_one(),
        };
        // Whatever a connected socket has to say against it, the other says too, and knows what follows.
        if let Some(way) = self.ways.socket(self.local, to)
            && sys::send_segments(way, batch, size, None).is_ok()
        {
            return Ok(());
        }
        match self.insist(|| sys::send_segments(socket, batch, size, Some(to))) {
            // No checksum offload on this interface, or a kernel that only pretends.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP)) => {
                one_by_one()?;
                self.segment.store(false, Relaxed);
                Ok(())
            }
            result => result,
        }
    }

    /// Sends datagrams, some of which IP may have to cut. What another thread sends meanwhile is short enough for its
    /// way, or is not refused this once.
    #[cold]
    fn send_long(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let alone = self.cutting.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = self.socket.as_fd();
        fragment(socket, self.local.ip())?;
        let mut datagrams = bytes.chunks(segment);
        let result = datagrams.try_for_each(|bytes| self.insist(|| sys::send_one(socket, bytes, Some(to))));
        let restored = never_fragment(socket, self.local.ip());
        drop(alone);
        result.and(restored)
    }

    /// Tries a send again for as long as what stands in its way is about to pass.
    #[inline]
    fn insist(&self, send: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match send() {
            Ok(()) => Ok(()),
            Err(error) => self.send_again(error, send),
        }
    }

    #[cold]
    fn send_again(&self, mut error: io::Error, send: impl Fn() -> io::Result<()>) -> io::Result<()> {
        for attempt in 1..SEND_ATTEMPTS {
            match error.raw_os_error() {
                // Once, it may be about an earlier datagram; twice, it is about this one.
                Some(libc::EMSGSIZE) if attempt > 1 => return Err(error),
                Some(libc::EAGAIN) => {
                    sys::wait(&[self.socket.as_fd()], Readiness::Write, Some(SEND_ROOM_WAIT))?;
                }
                Some(libc::ENOBUFS) => std::thread::yield_now(),
                Some(libc::EINTR) => {}
                // The fate of an earlier datagram: this one was not sent yet.
                Some(number) if is_report(number) => self.reports_waiting.store(true, Relaxed),
                _ => return Err(error),
            }
            match send() {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
        Err(error)
    }

    /// Takes what the socket itself has: datagrams, or a report.
    fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        self.take_by(Waits::Not, buffer)
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8], waits: Waits) -> io::Result<sys::Arrived> {
        match self.lengths {
            Some(lengths) => sys::receive_by_lengths(self.socket.as_fd(), buffer, waits, lengths),
            None => sys::receive(self.socket.as_fd(), buffer, waits),
        }
    }

    fn take_by(&self, mut waits: Waits, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        if self.reports_waiting.load(Relaxed)
            && let Some(report) = self.take_report()?
        {
            return Ok(Some(report));
        }
        loop {
            match self.receive(buffer, waits) {
                Ok(arrived) => return Ok(Some(arrived.into())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => passing(e)?,
            }
            // The socket's own timeout would begin anew: where signals come more often than it ends, for ever.
            waits = Waits::Not;
            if let Some(report) = self.take_report()? {
                return Ok(Some(report));
            }
        }
    }

    /// Takes reports until one tells the caller something.
    #[cold]
    fn take_report(&self) -> io::Result<Option<Received>> {
        loop {
            // Cleared before the look, so that a report which comes after it is not forgotten.
            self.reports_waiting.store(false, Relaxed);
            let report = match sys::receive_failure(self.socket.as_fd()) {
                Ok(report) => report,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => {
                    passing(e)?;
                    continue;
                }
            };
            let told = match (report.errno, report.to) {
                (libc::ECONNREFUSED, Some(to)) if report.remote => Received::Unreachable(to),
                (libc::EMSGSIZE, Some(to)) if report.info > 0 => {
                    Received::PathMtu { to: to.ip(), mtu: report.info as usize }
                }
                // A host that does not answer, a route that is gone: silence, which is judged elsewhere.
                _ => continue,
            };
            self.reports_waiting.store(true, Relaxed);
            return Ok(Some(told));
        }
    }

    fn take_from_listeners(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        for listener in self.listeners.iter().filter_map(OnceLock::get) {
            if let Some(received) = listener.take(buffer)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    /// Takes what is there without waiting, looking at the listeners now and then.
    fn take_any(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        if self.listeners[0].get().is_some()
            && self.turn.fetch_add(1, Relaxed) % LISTENER_TURN == LISTENER_TURN - 1
            && let Some(received) = self.take_from_listeners(buffer)?
        {
            return Ok(Some(received));
        }
        self.take(buffer)
    }

    fn spin(&self, buffer: &mut [u8], start: Instant, limit: Duration) -> io::Result<Option<Received>> {
        loop {
            for _ in 0..LOOKS_BETWEEN {
                if let Some(received) = self.take_any(buffer)? {
                    return Ok(Some(received));
                }
            }
            if start.elapsed() >= limit {
                return Ok(None);
            }
        }
    }

    fn block(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<Received> {
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if self.await_any(left)?
                && let Some(received) = self.take_ready(buffer)?
            {
                return Ok(received);
            }
            if left == Some(Duration::ZERO) {
                return Ok(Received::Timeout);
            }
        }
    }

    fn await_any(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut sockets = [self.socket.as_fd(); 1 + LISTENERS_MAX];
        let (mut count, mut due) = (1, None);
        for listener in self.listeners.iter().filter_map(OnceLock::get) {
            sockets[count] = listener.as_fd();
            count += 1;
            due = due.into_iter().chain(listener.due_in()).min();
        }
        let timeout = timeout.into_iter().chain(due).min();
        let is_ready = sys::wait(&sockets[..count], Readiness::Read, timeout)? != 0;
        Ok(is_ready || due.is_some())
    }

    /// After a wait ended: own socket first, then its reports (which end a wait too), then the listeners.
    pub(crate) fn take_ready(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        if let Some(received) = self.take_any(buffer)? {
            return Ok(Some(received));
        }
        match self.take_report()? {
            Some(report) => Ok(Some(report)),
            None => self.take_from_listeners(buffer),
        }
    }
}

impl Datagrams for Endpoint {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn is_open(&self) -> bool {
        self.socket.local_addr().is_ok_and(|now| now == self.local)
    }

    #[inline]
    fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        if bytes.len().min(segment) > self.uncut_bytes {
            return self.send_long(bytes, segment, to);
        }
        if bytes.len() <= segment {
            if let Some(way) = self.ways.socket(self.local, to)
                && sys::send_one(way, bytes, None).is_ok()
            {
                return Ok(());
            }
            return self.insist(|| sys::send_one(self.socket.as_fd(), bytes, Some(to)));
        }
        if segment == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "datagrams of zero bytes each carry nothing"));
        }
        let per_batch = (BATCH_BYTES_MAX / segment).clamp(1, BATCH_DATAGRAMS_MAX);
        bytes.chunks(per_batch * segment).try_for_each(|batch| self.send_batch(batch, segment, to))
    }

    fn recv(&self, buffer: &mut [u8], timeout: Option<Duration>, wait: Wait) -> io::Result<Received> {
        if timeout == Some(Duration::ZERO) {
            return self.try_recv(buffer);
        }
        let start = Instant::now();
        if let Wait::Spin(span) = wait {
            let span = Duration::from_nanos(span.0);
            if let Some(received) = self.spin(buffer, start, timeout.map_or(span, |t| t.min(span)))? {
                return Ok(received);
            }
        }
        if self.listeners[0].get().is_none()
            && timeout.is_none_or(|t| t >= FIRST_WAIT_FROM)
            && let Some(received) = self.take_by(Waits::AsSet, buffer)?
        {
            return Ok(received);
        }
        self.block(buffer, timeout.and_then(|t| start.checked_add(t)))
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        Ok(self.take_any(buffer)?.unwrap_or(Received::Timeout))
    }

    fn try_recv_in_two(&self, first: &mut [u8], rest: &mut [u8]) -> io::Result<Option<Received>> {
        match sys::receive_in_two(self.socket.as_fd(), first, rest) {
            Ok(arrived) => Ok(Some(arrived.into())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => {
                // What it is about is told by the next call.
                self.reports_waiting.store(true, Relaxed);
                passing(e).map(|()| None)
            }
        }
    }

    fn receives_in_two(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn attend(&self, listener: Listener) -> io::Result<()> {
        let mut homeless = listener;
        for place in &self.listeners {
            match place.set(homeless) {
                Ok(()) => return Ok(()),
                Err(listener) => homeless = listener,
            }
        }
        Err(io::Error::other(format!("an endpoint attends at most {LISTENERS_MAX} listeners")))
    }
}

impl From<sys::Arrived> for Received {
    fn from(arrived: sys::Arrived) -> Received {
        Received::Datagrams { from: arrived.from, len: arrived.len, segment: arrived.segment }
    }
}

/// Lets those errors of a receive call pass after which the next call may well succeed.
fn passing(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(number) if number == libc::EINTR || is_report(number) => Ok(()),
        _ => Err(error),
    }
}

/// Whether an error may be the fate of an earlier datagram.
fn is_report(number: i32) -> bool {
    matches!(
        number,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EMSGSIZE
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EACCES
    )
}

/// Sets a socket up: buffers, batches, reports, no fragmentation.
fn prepare(socket: &UdpSocket, address: IpAddr) -> io::Result<Offload> {
    let fd = socket.as_fd();
    set_size(fd, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), SOCKET_BUFFER_BYTES)?;
    set_size(fd, (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), SOCKET_BUFFER_BYTES)?;
    match address {
        IpAddr::V4(_) => sys::set_option(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?,
        IpAddr::V6(_) => sys::set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?,
    }
    never_fragment(fd, address)?;
    socket.set_read_timeout(Some(FIRST_WAIT))?;
    Ok(Offload {
        segment: sys::option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok(),
        coalesce: sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok(),
    })
}

/// Sets the size of one of a socket's buffers; beyond the system's limit only with privileges.
pub(crate) fn set_size(fd: BorrowedFd<'_>, (force, plain): (i32, i32), bytes: i32) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, force, bytes).or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, bytes))
}

/// What exceeds the path's MTU is refused, not cut by IP.
pub(crate) fn never_fragment(fd: BorrowedFd<'_>, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => sys::set_option(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        IpAddr::V6(_) => sys::set_option(fd, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    }
}

/// What exceeds the path's MTU is cut by IP, here or on its way.
fn fragment(fd: BorrowedFd<'_>, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => sys::set_option(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        IpAddr::V6(_) => sys::set_option(fd, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
    }
}

#[cfg(test)]
mod tests;
