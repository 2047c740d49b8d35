//! The system calls of this crate, each behind one safe function. All of the crate's unsafe code is here, but for
//! the cycle counter's and, in `shm::sys`, that of shared memory.
//!
//! Set-up calls are plain; those that move datagrams cost what the kernel costs: no allocation and no lock.

use crate::endpoint::Lengths;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// A socket address in the kernel's form, IPv4 or IPv6.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SockAddr {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// The soft limit of a resource of this process (`ulimit -S`).
pub(crate) fn soft_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the record, which is ours.
    let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
    if known { limit.rlim_cur } else { u64::MAX }
}

impl SockAddr {
    fn zeroed() -> SockAddr {
        // SAFETY: every variant consists of integers, for which zero is a value.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    fn new(address: SocketAddr) -> (SockAddr, libc::socklen_t) {
        let mut raw = SockAddr::zeroed();
        match address {
            SocketAddr::V4(a) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(a) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                (raw, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    fn read(&self) -> Option<SocketAddr> {
        // SAFETY: all variants begin with the family and every byte was set, by `zeroed` at least; the family says
        // which variant the kernel wrote, and any bytes are values of either.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Some(SocketAddrV4::new(ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let (ip, port) = (Ipv6Addr::from(self.v6.sin6_addr.s6_addr), u16::from_be(self.v6.sin6_port));
                    Some(SocketAddrV6::new(ip, port, self.v6.sin6_flowinfo, self.v6.sin6_scope_id).into())
                }
                _ => None,
            }
        }
    }
}

/// Room for the control messages of one call, aligned as the kernel wants them.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// The result of a system call. Datagrams are moved by the calls themselves, not by the C library's functions, which
/// look for a cancellation of the thread before and after each, and which `comem run` has replaced by ones that look
/// for shared buffers.
fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends one datagram, without waiting; `None`: to where the socket is connected.
#[inline]
pub(crate) fn send_one(socket: BorrowedFd<'_>, bytes: &[u8], to: Option<SocketAddr>) -> io::Result<()> {
    count_call();
    let address = to.map(SockAddr::new);
    let (to, address_len) = name_of(address.as_ref());
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads `bytes` and `address`, both alive, within the lengths given.
    check(unsafe {
        libc::syscall(libc::SYS_sendto, socket.as_raw_fd(), bytes.as_ptr(), bytes.len(), flags, to, address_len)
    })
    .map(drop)
}

/// An address as system calls take it: null and zero for none.
fn name_of(address: Option<&(SockAddr, libc::socklen_t)>) -> (*const SockAddr, libc::socklen_t) {
    address.map_or((ptr::null(), 0), |(address, len)| (ptr::from_ref(address), *len))
}

/// Sends datagrams of `segment` bytes each (the last may be shorter) in one call, without waiting; `None`: to where the
/// socket is connected.
pub(crate) fn send_segments(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    segment: u16,
    to: Option<SocketAddr>,
) -> io::Result<()> {
    count_call();
    let address = to.map(SockAddr::new);
    let (to, address_len) = name_of(address.as_ref());
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 128]);
    // SAFETY: the header points at `address`, `vector` and `control`, which outlive the call; `control` has room for,
    // and is aligned for, the one message written into it; sendmsg only reads the address and what `vector` points at.
    check(unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_name = to.cast_mut().cast();
        header.msg_namelen = address_len;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u16>(), segment);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::syscall(libc::SYS_sendmsg, socket.as_raw_fd(), &raw const header, flags)
    })
    .map(drop)
}

/// What one receive call brought: datagrams of `segment` bytes each, the last possibly shorter.
pub(crate) struct Arrived {
    pub from: SocketAddr,
    pub len: usize,
    pub segment: usize,
}

/// Whether a receive call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// It does not, and fails with `WouldBlock` when nothing is there.
    Not,
    /// For as long as the socket's own timeout (`SO_RCVTIMEO`) says; then it fails so.
    AsSet,
}

impl Waits {
    fn flags(self) -> libc::c_int {
        if self == Waits::Not { libc::MSG_DONTWAIT } else { 0 }
    }
}

/// Receives; the kernel says where one datagram ends and the next begins.
#[inline]
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], waits: Waits) -> io::Result<Arrived> {
    receive_parts(socket, &mut [buffer], waits.flags())
}

/// As [`receive`], of datagrams that say how long they are: a plainer call, without control messages.
#[inline]
pub(crate) fn receive_by_lengths(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    waits: Waits,
    lengths: Lengths,
) -> io::Result<Arrived> {
    count_call();
    let mut address = SockAddr::zeroed();
    let mut address_len = size_of::<SockAddr>() as libc::socklen_t;
    let (fd, room) = (socket.as_raw_fd(), buffer.len());
    // SAFETY: the kernel writes at most `room` bytes into the buffer, and at most `address_len` into the address, both
    // of which outlive the call.
    let len = check(unsafe {
        let (to, from) = (buffer.as_mut_ptr(), &raw mut address);
        libc::syscall(libc::SYS_recvfrom, fd, to, room, waits.flags(), from, &raw mut address_len)
    })?;
    let segment = lengths.of(&buffer[..len]).unwrap_or(len).clamp(1, len.max(1));
    Ok(Arrived { from: known(address.read())?, len, segment })
}

/// As [`receive`], into the first buffer as far as that goes, and the rest into the second.
pub(crate) fn receive_in_two(socket: BorrowedFd<'_>, first: &mut [u8], rest: &mut [u8]) -> io::Result<Arrived> {
    receive_parts(socket, &mut [first, rest], libc::MSG_DONTWAIT)
}

fn known(from: Option<SocketAddr>) -> io::Result<SocketAddr> {
    from.ok_or_else(|| io::Error::other("a datagram came from an address that is neither IPv4 nor IPv6"))
}

#[inline]
fn receive_parts<const N: usize>(
    socket: BorrowedFd<'_>,
    buffers: &mut [&mut [u8]; N],
    flags: libc::c_int,
) -> io::Result<Arrived> {
    let mut segment = None;
    let (from, len) = receive_message(socket, buffers, flags, |level, kind, data| {
        if level == libc::SOL_UDP && kind == libc::UDP_GRO {
            segment = data.first_chunk().map(|size| i32::from_ne_bytes(*size));
        }
    })?;
    let from = known(from)?;
    let segment = segment.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    Ok(Arrived { from, len, segment: segment.unwrap_or(len).clamp(1, len.max(1)) })
}

/// What the kernel reports about a datagram that was sent earlier.
pub(crate) struct SendFailure {
    /// Where that datagram was to go.
    pub to: Option<SocketAddr>,
    /// The error, as the kernel numbers it.
    pub errno: i32,
    /// Whether the network said so, rather than this host's own kernel before it sent.
    pub remote: bool,
    /// With `EMSGSIZE`: the path's MTU.
    pub info: u32,
}

/// Takes one report from the socket's error queue; fails with `WouldBlock` when there is none.
pub(crate) fn receive_failure(socket: BorrowedFd<'_>) -> io::Result<SendFailure> {
    let (mut errno, mut remote, mut info) = (0, false, 0);
    let flags = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;
    let (to, _) = receive_message(socket, &mut [&mut []], flags, |level, kind, data| {
        let ours = matches!((level, kind), (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR));
        if !ours || data.len() < size_of::<libc::sock_extended_err>() {
            return;
        }
        // SAFETY: `data` is long enough, and the structure consists of integers only.
        let report = unsafe { ptr::read_unaligned(data.as_ptr().cast::<libc::sock_extended_err>()) };
        errno = report.ee_errno as i32;
        remote = matches!(report.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
        info = report.ee_info;
    })?;
    Ok(SendFailure { to, errno, remote, info })
}

#[inline]
fn receive_message<const N: usize>(
    socket: BorrowedFd<'_>,
    buffers: &mut [&mut [u8]; N],
    flags: libc::c_int,
    mut control_message: impl FnMut(libc::c_int, libc::c_int, &[u8]),
) -> io::Result<(Option<SocketAddr>, usize)> {
    count_call();
    let mut address = SockAddr::zeroed();
    let mut vectors =
        buffers.each_mut().map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
    let mut control = MaybeUninit::<Control>::uninit();
    // SAFETY: the header points at `address`, `vectors` and `control`, which outlive the call, with their true sizes;
    // the kernel writes within those. CMSG_FIRSTHDR and CMSG_NXTHDR stay within the length the kernel stored, and
    // each message's data lies within its own `cmsg_len`.
    unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_name = (&raw mut address).cast();
        header.msg_namelen = size_of::<SockAddr>() as libc::socklen_t;
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = N as _;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        let len = check(libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut header, flags))?;
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            let data_len = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(message), data_len);
            control_message((*message).cmsg_level, (*message).cmsg_type, data);
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
        Ok((address.read(), len))
    }
}

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Read,
    Write,
}

/// Waits until one of up to four sockets is ready or has an error to report, a signal comes, or the time is over
/// (`None`: never). Tells which: bit `i` for socket `i`; zero when none is.
pub(crate) fn wait(sockets: &[BorrowedFd<'_>], what: Readiness, timeout: Option<Duration>) -> io::Result<u32> {
    count_call();
    let events = if what == Readiness::Read { libc::POLLIN } else { libc::POLLOUT };
    let mut polled = [libc::pollfd { fd: -1, events, revents: 0 }; 4];
    let count = sockets.len().min(polled.len());
    for (entry, socket) in polled.iter_mut().zip(sockets) {
        entry.fd = socket.as_raw_fd();
    }
    let mut limit = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos() as _,
    });
    let limit = limit.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: `polled` holds `count` entries; `limit` is null or points at a value that lives until the end.
    // The kernel writes the time that is left into the limit, which is not used again.
    let ready = check(unsafe {
        let no_mask = ptr::null::<libc::sigset_t>();
        libc::syscall(libc::SYS_ppoll, polled.as_mut_ptr(), count as libc::nfds_t, limit, no_mask, 0usize)
    });
    if let Err(error) = ready {
        return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
    }
    let bit = |(i, entry): (usize, &libc::pollfd)| u32::from(entry.revents != 0) << i;
    Ok(polled.iter().enumerate().map(bit).sum())
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast::<libc::c_void>(), len) };
    check(result as libc::c_long).map(drop)
}

/// Reads an integer option of a socket.
pub(crate) fn option(socket: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast::<libc::c_void>(), &raw mut len)
    };
    check(result as libc::c_long).map(|_| value)
}

/// What the kernel keeps for a socket, and what it had no room for (`SO_MEMINFO`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveMemory {
    /// Bytes that lie there, by the kernel's way of counting.
    pub used_bytes: usize,
    /// Bytes that may lie there.
    pub max_bytes: usize,
    /// Datagrams that were dropped: by a filter, by their checksum, or for want of room. It wraps around.
    pub drops: u32,
}

/// Looks at what a socket keeps.
pub(crate) fn receive_memory(socket: BorrowedFd<'_>) -> io::Result<ReceiveMemory> {
    const USED: usize = 0;
    const MAX: usize = 1;
    const DROPS: usize = 8;
    let mut values = [0u32; 9];
    let mut len = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `values`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    check(result as libc::c_long)?;
    Ok(ReceiveMemory { used_bytes: values[USED] as usize, max_bytes: values[MAX] as usize, drops: values[DROPS] })
}

/// One address of one of the host's interfaces, as getifaddrs lists it.
pub(crate) struct InterfaceAddress {
    pub name: String,
    pub flags: u32,
    pub address: IpAddr,
    pub netmask: IpAddr,
    pub broadcast: Option<IpAddr>,
}

/// All addresses of all interfaces.
pub(crate) fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = ptr::null_mut();
    // SAFETY: getifaddrs stores a list in `list`, freed below.
    check(unsafe { libc::getifaddrs(&raw mut list) } as libc::c_long)?;
    let mut found = Vec::new();
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: `entry` is a live element of the list; its pointers are null or point at what they say, and its name
        // ends in a zero byte.
        unsafe {
            found.extend(interface_address(&*entry));
            entry = (*entry).ifa_next;
        }
    }
    // SAFETY: `list` came from getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// The entry is one of a live getifaddrs list.
unsafe fn interface_address(entry: &libc::ifaddrs) -> Option<InterfaceAddress> {
    // SAFETY: the pointers of a live entry are null or point at what they say.
    unsafe {
        let name = std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
        let (address, netmask) = (pointed_address(entry.ifa_addr)?, pointed_address(entry.ifa_netmask)?);
        let broadcasts = entry.ifa_flags & libc::IFF_BROADCAST as u32 != 0;
        // An address without a broadcast address of its own shows itself there.
        let own = pointed_address(entry.ifa_ifu).filter(|b| broadcasts && *b != address);
        let broadcast = own.or_else(|| last_of_network(address, netmask).filter(|_| broadcasts));
        Some(InterfaceAddress { name, flags: entry.ifa_flags, address, netmask, broadcast })
    }
}

/// The last address of an IPv4 network, which all its hosts hear; `None` where the network is too small for one.
fn last_of_network(address: IpAddr, netmask: IpAddr) -> Option<IpAddr> {
    let (IpAddr::V4(address), IpAddr::V4(netmask)) = (address, netmask) else { return None };
    let last = address.to_bits() | !netmask.to_bits();
    (netmask.to_bits().count_ones() < 31 && last != address.to_bits())
        .then(|| std::net::Ipv4Addr::from_bits(last).into())
}

/// # Safety
/// The pointer is null or points at a socket address that is as long as its family says.
unsafe fn pointed_address(raw: *const libc::sockaddr) -> Option<IpAddr> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: not null, so it points at an address; IPv4 and IPv6 ones are as long as their structures.
    unsafe {
        match i32::from((*raw).sa_family) {
            libc::AF_INET => Some(IpAddr::from((*raw.cast::<libc::sockaddr_in>()).sin_addr.s_addr.to_ne_bytes())),
            libc::AF_INET6 => Some(IpAddr::from((*raw.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr)),
            _ => None,
        }
    }
}

/// The kernel's number of an interface; `None` when there is none of that name.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: `name` ends in a zero byte.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|&index| index != 0)
}

/// The MTU of an interface, asked through any socket.
pub(crate) fn interface_mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<usize> {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name, which ends in a zero byte, and stores an integer in the union.
    unsafe {
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) as libc::c_long)?;
        Ok(usize::try_from(request.ifr_ifru.ifru_mtu).unwrap_or(0))
    }
}

/// The system's monotonic clock, in nanoseconds.
#[inline]
pub(crate) fn system_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel stores the time in `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes the timers of this thread exact; the system otherwise rounds them up by some 50 us to save wake-ups.
pub(crate) fn exact_timers() {
    // SAFETY: the call takes a number and changes nothing but this thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Signals that tell of what a thread does itself: blocked ones would end the process without a word.
pub(crate) const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Does something while this thread blocks all signals but those of its own faults.
pub(crate) fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    struct Before(libc::sigset_t);
    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: sets this thread's mask to what it was.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    // SAFETY: all-zero bytes are values of both sets; the calls fill them, know the numbers, and change nothing but
    // this thread's mask.
    let _before = unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = MaybeUninit::zeroed().assume_init();
        libc::sigfillset(&raw mut set);
        for signal in FAULTS {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        Before(before)
    };
    work()
}

/// Writes to a file. Beyond the limit of files (`ulimit -f`) the write fails with EFBIG; the signal that would end
/// the process
/// (SIGXFSZ) is held back meanwhile, and taken. A program keeps what it does on that signal.
pub fn within_file_limit<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: all-zero bytes are values of both sets; the calls fill them, know the number, and change nothing but
    // this thread's mask.
    let (set, before) = unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        (set, before)
    };
    let written = write();
    // SAFETY: the set is ours and filled in.
    let was_blocked = unsafe { libc::sigismember(&raw const before, libc::SIGXFSZ) } == 1;
    if !was_blocked {
        if written.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::FileTooLarge) {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set and the time are ours; the signal's record is not asked for.
            unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) };
        }
        // SAFETY: sets this thread's mask to what it was.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    written
}

/// The signals of the first 31 that this thread blocks.
#[cfg(test)]
pub(crate) fn blocked_signals() -> Vec<i32> {
    // SAFETY: as above; without a new set the mask is only read.
    unsafe {
        let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set);
        (1..32).filter(|signal| libc::sigismember(&raw const set, *signal) == 1).collect()
    }
}

#[cfg(test)]
thread_local! {
    static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts, in tests, the calls that move or await datagrams in this thread.
#[inline(always)]
pub(crate) fn count_call() {
    #[cfg(test)]
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

/// How many such calls `work` makes.
#[cfg(test)]
pub(crate) fn calls_during(work: impl FnOnce()) -> usize {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernel_form() {
        for text in ["127.0.0.1:80", "10.1.2.3:65535", "[::1]:7", "[fe80::1%3]:9000"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::new(address).0.read(), Some(address));
        }
        assert_eq!(SockAddr::zeroed().read(), None);
    }

    #[test]
    fn the_loopback_interface_is_listed_with_its_mtu() {
        let all = interface_addresses().unwrap();
        let loopback = all.iter().find(|i| i.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert_eq!(loopback.netmask, "255.0.0.0".parse::<IpAddr>().unwrap());
        assert_eq!(loopback.broadcast, None);
        let network = |a: &str, m: &str| last_of_network(a.parse().unwrap(), m.parse().unwrap());
        assert_eq!(network("10.77.0.3", "255.255.255.0"), Some("10.77.0.255".parse::<IpAddr>().unwrap()));
        assert_eq!(network("10.77.0.3", "255.255.255.254"), None);
        assert!(interface_index(&loopback.name).is_some() && interface_index("no-such-if").is_none());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        use std::os::fd::AsFd;
        assert!(interface_mtu(socket.as_fd(), &loopback.name).unwrap() >= 1500);
        assert!(interface_mtu(socket.as_fd(), "a-name-longer-than-any-interface-has").is_err());
    }
}
