//! Many bytes through a plain UDP socket, as fast as the kernel offers: one system call takes a batch of datagrams
//! (GSO) and gives one (GRO), into a receive buffer that holds two runs.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// A page, and a datagram.
pub const PAGE_BYTES: usize = 4096;
/// What one request asks for in a stream: 60 pages, as Comem's longest fetch.
pub const RUN_BYTES: usize = 60 * PAGE_BYTES;

/// Datagrams that go to the kernel at once: 15 pages are the most that fit.
const BATCH_BYTES: usize = 15 * PAGE_BYTES;
const BUFFER_BYTES: libc::c_int = 4 << 20;

/// Prepares a socket: batches come in as one, and the buffers are large.
///
/// # Errors
/// What the kernel says.
pub fn prepare(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        set(socket, libc::SOL_SOCKET, force, BUFFER_BYTES).or_else(|_| {
            // Without privileges it stays at what the system allows.
            set(socket, libc::SOL_SOCKET, plain, BUFFER_BYTES)
        })?;
    }
    Ok(())
}

/// Sends bytes as datagrams of a page each, to where the socket is connected.
///
/// # Errors
/// What the kernel says.
pub fn send(socket: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() <= PAGE_BYTES {
        return socket.send(bytes).map(drop);
    }
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, PAGE_BYTES as libc::c_int)?;
    for batch in bytes.chunks(BATCH_BYTES) {
        socket.send(batch)?;
    }
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0)
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an integer that outlives the call, which only reads it.
    let failed = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
