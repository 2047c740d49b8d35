//! An endpoint's UDP socket, which processes of every user can send to. Lanes are handed to processes of the same user
//! alone, so what comes by them needs no proof; what takes UDP carries a tag here, under a key that the endpoints of
//! one
//! job share.
//!
//! Datagrams of start-up are left as they are, on their way out and in: whoever makes them seals them, whatever the
//! backbone, and whoever takes them opens them. So nodes that came to different backbones can tell each other.

use crate::{Datagrams, Endpoint, Received};
use comem_protocol::auth::{Receiver, Sealer};
use comem_protocol::node::startup::DISCOVERY_PROG;
use comem_protocol::wire::header::Packet;
use std::io;
use std::net::SocketAddr;

/// A UDP socket whose datagrams carry tags, where there is a key.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) udp: Endpoint,
    sealer: Sealer,
    me: Receiver,
}

/// What the socket had.
#[derive(Debug)]
pub(super) enum Came {
    Nothing,
    /// Datagrams without a right tag; more may be there.
    Strangers,
    Received(Received),
}

impl Outside {
    pub(super) fn new(udp: Endpoint, sealer: Sealer) -> Outside {
        let me = Receiver::Port(udp.local_addr().port());
        Outside { udp, sealer, me }
    }

    /// As [`Datagrams::send_to`]. Daily traffic goes by lanes: this may take memory for the tags.
    pub(super) fn send_to(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        let tag_len = self.sealer.tag_len();
        if tag_len == 0 || segment == 0 || is_of_start_up(bytes) {
            return self.udp.send_to(bytes, segment, to);
        }
        let mut sealed = Vec::with_capacity(bytes.len() + bytes.len().div_ceil(segment) * tag_len);
        for datagram in bytes.chunks(segment) {
            let start = sealed.len();
            sealed.extend_from_slice(datagram);
            self.sealer.seal(&mut sealed, start, Receiver::Port(to.port()));
        }
        self.udp.send_to(&sealed, segment + tag_len, to)
    }

    /// Takes what is there, without tags and without what has no right one.
    pub(super) fn take_ready(&self, buffer: &mut [u8]) -> io::Result<Came> {
        Ok(match self.udp.take_ready(buffer)? {
            None => Came::Nothing,
            Some(Received::Datagrams { from, len, segment }) => match self.open(buffer, len, segment) {
                (0, _) => Came::Strangers,
                (len, segment) => Came::Received(Received::Datagrams { from, len, segment }),
            },
            Some(other) => Came::Received(other),
        })
    }

    /// Leaves those datagrams of the first `len` bytes that have a right tag, one behind the other and without it; how
    /// many bytes these are, and the length of each but the last.
    fn open(&self, buffer: &mut [u8], len: usize, segment: usize) -> (usize, usize) {
        let tag_len = self.sealer.tag_len();
        let segment = segment.max(1);
        if len <= segment && is_of_start_up(&buffer[..len]) {
            return (len, len);
        }
        let mut kept = 0;
        for start in (0..len).step_by(segment) {
            let datagram = start..(start + segment).min(len);
            let Some(opened) = self.sealer.open(&buffer[datagram], self.me).map(<[u8]>::len) else { continue };
            buffer.copy_within(start..start + opened, kept);
            kept += opened;
        }
        (kept, segment.saturating_sub(tag_len))
    }
}

/// Whether this is a datagram of start-up, by what it says itself.
fn is_of_start_up(datagram: &[u8]) -> bool {
    Packet::prog_of(datagram) == Some(DISCOVERY_PROG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortChoice, RECEIVE_BUFFER_BYTES, datagrams};
    use comem_protocol::auth::JobKey;
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    fn outside(key: Option<u8>) -> Outside {
        let udp = Endpoint::bind(Ipv4Addr::LOCALHOST.into(), PortChoice::Any).unwrap();
        Outside::new(udp, Sealer::new(key.map(|byte| JobKey::new([byte; 32]))))
    }

    /// What comes of the next datagrams, one behind the other; `None` when they are strangers'.
    fn next(to: &Outside) -> Option<Vec<Vec<u8>>> {
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        let start = Instant::now();
        loop {
            match to.take_ready(&mut buffer).unwrap() {
                Came::Nothing => assert!(start.elapsed() < Duration::from_secs(20), "nothing came"),
                Came::Strangers => return None,
                Came::Received(Received::Datagrams { len, segment, .. }) => {
                    return Some(datagrams(&buffer[..len], segment).map(<[u8]>::to_vec).collect());
                }
                Came::Received(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn only_datagrams_with_a_right_tag_for_this_port_come_in() {
        let [me, friend, stranger, plain] = [Some(1), Some(1), Some(2), None].map(outside);
        let to = me.udp.local_addr();
        for other in [&stranger, &plain] {
            other.send_to(b"forged", 6, to).unwrap();
            assert_eq!(next(&me), None);
        }
        let mut elsewhere = b"for another".to_vec();
        friend.sealer.seal(&mut elsewhere, 0, Receiver::Port(to.port() ^ 1));
        friend.udp.send_to(&elsewhere, elsewhere.len(), to).unwrap();
        assert_eq!(next(&me), None, "what was recorded elsewhere is nothing here");
        friend.send_to(b"twotwothe", 4, to).unwrap();
        let mut came: Vec<Vec<u8>> = Vec::new();
        while came.len() < 3 {
            came.extend(next(&me).expect("they are a friend's"));
        }
        assert_eq!(came, [&b"twot"[..], b"woth", b"e"]);
    }

    #[test]
    fn what_start_up_says_is_sealed_by_whoever_says_it() {
        let [me, other] = [Some(1), Some(2)].map(outside);
        let said = b"\0\0 and then a tag that the node looks at";
        other.send_to(said, said.len(), me.udp.local_addr()).unwrap();
        assert_eq!(next(&me), Some(vec![said.to_vec()]));
        // Only as it stands there, and not in a batch with anything else.
        let mut buffer = [&said[..], said].concat();
        let len = buffer.len();
        assert_eq!(me.open(&mut buffer, len, said.len()).0, 0);
    }

    #[test]
    fn a_stranger_among_friends_is_left_out() {
        let me = outside(Some(1));
        let tags = |bytes: &[u8]| me.sealer.tag(bytes, me.me).unwrap();
        let mut buffer = [&b"aaaa"[..], &tags(b"aaaa"), b"bbbb", &tags(b"aaaa"), b"cc", &tags(b"cc")].concat();
        let len = buffer.len();
        assert_eq!(me.open(&mut buffer, len, 20), (6, 4));
        assert_eq!(&buffer[..6], b"aaaacc");
    }
}
