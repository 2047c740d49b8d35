//! A wrapper that records every datagram in a file that tcpdump and Wireshark read.
//!
//! `--capture job.pcap` needs no privileges and sees what a process sends and receives itself: with injected
//! faults, what really leaves. The format is pcap with nanoseconds and raw IP packets; the IP and UDP headers are made
//! up from the addresses. A batch is recorded datagram by datagram. Each record is written by one call, so that
//! the file is whole even when the process is killed.

use crate::{Datagrams, Listener, Received, Wait, datagrams, within_file_limit};
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINK_TYPE_RAW_IP: u32 = 101;
const SNAP_BYTES: u32 = 1 << 17;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// A capture file of one process.
#[derive(Debug)]
pub struct Capture {
    /// The file, and the bytes of whole records in it; nothing once one could not be written.
    file: Mutex<Option<(File, u64)>>,
    path: PathBuf,
}

impl Capture {
    /// Begins a file, replacing any of that name.
    ///
    /// # Errors
    /// The file cannot be written; the text names it.
    pub fn create(path: &Path) -> io::Result<Arc<Capture>> {
        let mut header = Vec::with_capacity(24);
        header.extend(MAGIC_NANOSECONDS.to_le_bytes());
        header.extend(2u16.to_le_bytes());
        header.extend(4u16.to_le_bytes());
        header.extend([0; 8]);
        header.extend(SNAP_BYTES.to_le_bytes());
        header.extend(LINK_TYPE_RAW_IP.to_le_bytes());
        let begin = || {
            // What is recorded is the job's memory, which is nobody else's business.
            let mut options = File::options();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            within_file_limit(|| file.write_all(&header))?;
            Ok(file)
        };
        let explain = |e: io::Error| io::Error::new(e.kind(), format!("cannot capture to {}: {e}", path.display()));
        let file = begin().map_err(explain)?;
        Ok(Arc::new(Capture { file: Mutex::new(Some((file, header.len() as u64))), path: path.to_path_buf() }))
    }

    /// The file of one of several processes that were given the same name: `job.pcap` becomes `job.TAG.pcap`.
    pub fn path_for(path: &Path, tag: &str) -> PathBuf {
        let extension = path.extension().map_or("pcap".into(), |e| e.to_string_lossy());
        path.with_extension(format!("{tag}.{extension}"))
    }

    fn record(&self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let packet = packet(from, to, datagram);
        let mut record = Vec::with_capacity(16 + packet.len());
        let len = packet.len() as u32;
        for word in [at.as_secs() as u32, at.subsec_nanos(), len, len] {
            record.extend(word.to_le_bytes());
        }
        record.extend(packet);
        let mut place = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((file, whole)) = place.as_mut() else { return };
        match within_file_limit(|| file.write_all(&record)) {
            Ok(()) => *whole += record.len() as u64,
            // A full disk ends the capture, not the job. Nothing may come behind half a record.
            Err(why) => {
                let _ = file.set_len(*whole);
                let path = self.path.display();
                let what = format!(
                    "comem: cannot capture to {path} any more: {why}; the file ends here, and the job goes on\n"
                );
                // In one piece, also where the process ends meanwhile.
                let _ = io::stderr().write_all(what.as_bytes());
                *place = None;
            }
        }
    }
}

/// An endpoint whose datagrams are recorded.
pub struct Captured {
    inner: Arc<dyn Datagrams>,
    capture: Arc<Capture>,
}

impl Captured {
    /// Records what `inner` sends and receives.
    pub fn new(inner: Arc<dyn Datagrams>, capture: Arc<Capture>) -> Captured {
        Captured { inner, capture }
    }

    fn note(&self, received: Received, buffer: &[u8]) -> Received {
        if let Received::Datagrams { from, len, segment } = received {
            for datagram in datagrams(&buffer[..len], segment) {
                self.capture.record(from, self.inner.local_addr(), datagram);
            }
        }
        received
    }
}

impl Datagrams for Captured {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        // Before it leaves, so that no answer stands above its question.
        for datagram in datagrams(bytes, segment) {
            self.capture.record(self.inner.local_addr(), to, datagram);
        }
        self.inner.send_to(bytes, segment, to)
    }

    fn recv(&self, buffer: &mut [u8], timeout: Option<Duration>, wait: Wait) -> io::Result<Received> {
        self.inner.recv(buffer, timeout, wait).map(|received| self.note(received, buffer))
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.inner.try_recv(buffer).map(|received| self.note(received, buffer))
    }

    fn retire(&self) {
        self.inner.retire();
    }

    fn attend(&self, listener: Listener) -> io::Result<()> {
        self.inner.attend(listener)
    }

    fn kick(&self) -> bool {
        self.inner.kick()
    }

    fn glance(&self) -> bool {
        self.inner.glance()
    }

    fn watch(&self, watching: bool) -> bool {
        self.inner.watch(watching)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

/// An IP packet that carries a UDP datagram.
fn packet(from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let udp_len = (UDP_HEADER + datagram.len()) as u16;
    let (mut packet, pseudo_header) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ip_v4(from.octets(), to.octets(), udp_len),
        (from, to) => ip_v6(as_v6(from), as_v6(to), udp_len),
    };
    let mut udp = Vec::with_capacity(usize::from(udp_len));
    for field in [from.port(), to.port(), udp_len, 0] {
        udp.extend(field.to_be_bytes());
    }
    udp.extend(datagram);
    // Zero would mean "no checksum".
    let checksum = match checksum(&[&pseudo_header, &udp]) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(udp);
    packet
}

fn as_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The packet's header and the pseudo-header for UDP's checksum.
fn ip_v4(from: [u8; 4], to: [u8; 4], udp_len: u16) -> (Vec<u8>, Vec<u8>) {
    const DONT_FRAGMENT: u8 = 0x40;
    const TTL: u8 = 64;
    let mut header = vec![0x45, 0];
    header.extend(udp_len.saturating_add(20).to_be_bytes());
    header.extend([0, 0, DONT_FRAGMENT, 0, TTL, UDP, 0, 0]);
    header.extend(from);
    header.extend(to);
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut pseudo = [from, to].concat();
    pseudo.extend([0, UDP]);
    pseudo.extend(udp_len.to_be_bytes());
    (header, pseudo)
}

fn ip_v6(from: [u8; 16], to: [u8; 16], udp_len: u16) -> (Vec<u8>, Vec<u8>) {
    const HOPS: u8 = 64;
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(udp_len.to_be_bytes());
    header.extend([UDP, HOPS]);
    header.extend(from);
    header.extend(to);
    let mut pseudo = [from, to].concat();
    pseudo.extend(u32::from(udp_len).to_be_bytes());
    pseudo.extend([0, 0, 0, UDP]);
    (header, pseudo)
}

/// The internet checksum of some parts, each but the last of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
