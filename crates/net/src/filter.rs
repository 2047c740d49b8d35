//! Which datagrams of a job's group a node's kernel keeps: a program of classic BPF (`SO_ATTACH_FILTER`) for each of
//! its two listeners.
//!
//! The kernel runs it on every datagram before that takes room in the socket and before anybody is woken. What it sees
//! begins with UDP's header. Datagrams that were coalesced (`UDP_GRO`) would be judged together by the first one's
//! head. So a filtered listener never asks for that, and the kernel takes them apart before it looks. Whoever receives
//! looks at the sets once more (`comem_protocol::selective`), so that the worst an omitted filter does is a wake-up.

use comem_protocol::ids::NodeId;
use comem_protocol::selective::Role;
use comem_protocol::selective::head::{
    ASKED_BASE_AT, ASKED_BITS_AT, JOB_AT, PROG_AT, TOLD_BASE_AT, TOLD_BITS_AT, TYPE_AT, WINDOW_NODES,
};
use comem_protocol::wire::header::MsgType;
use socket2::SockFilter;

/// Bytes of UDP's header, which the program sees too.
const UDP_HEADER: usize = 8;

/// The program's answers: how many bytes of the datagram are kept.
const NONE: u32 = 0;
const ALL: u32 = u32::MAX;

/// One instruction, without a jump.
fn plain(code: u32, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, k)
}

/// A jump over so many instructions, if the comparison holds and if it does not.
fn jump(code: u32, k: u32, (holds, not): (u8, u8)) -> SockFilter {
    SockFilter::new((libc::BPF_JMP | code | libc::BPF_K) as u16, holds, not, k)
}

/// Loads a number of the payload; a datagram that ends before it is dropped there and then.
fn load(size: u32, at: usize) -> SockFilter {
    plain(libc::BPF_LD | size | libc::BPF_ABS, (UDP_HEADER + at) as u32)
}

fn ends_with(kept: u32) -> SockFilter {
    plain(libc::BPF_RET | libc::BPF_K, kept)
}

/// Goes on where the accumulator has this value, and drops the datagram elsewhere.
fn require(value: u32) -> [SockFilter; 2] {
    [jump(libc::BPF_JEQ, value, (1, 0)), ends_with(NONE)]
}

/// Leaves 1 in the accumulator where the node is in the set, and else 0.
fn is_member(node: NodeId, base_at: usize, bits_at: usize) -> [SockFilter; 16] {
    let to_index = || plain(libc::BPF_MISC | libc::BPF_TAX, 0);
    let always = |over: u32| plain(libc::BPF_JMP | libc::BPF_JA, over);
    [
        load(libc::BPF_H, base_at),
        to_index(),
        plain(libc::BPF_LD | libc::BPF_IMM, u32::from(node.0)),
        // A number below the base becomes a large one.
        plain(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0),
        jump(libc::BPF_JGE, WINDOW_NODES.into(), (10, 0)),
        jump(libc::BPF_JGE, 32, (3, 0)),
        to_index(),
        load(libc::BPF_W, bits_at + 4),
        always(3),
        plain(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 32),
        to_index(),
        load(libc::BPF_W, bits_at),
        plain(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_X, 0),
        plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 1),
        always(1),
        plain(libc::BPF_LD | libc::BPF_IMM, 0),
    ]
}

/// Keeps the datagrams of a job (`prog`, and the lower half of its number) that name a node in this role, and no
/// others.
pub(crate) fn program(node: NodeId, (prog, job): (u16, u64), role: Role) -> Vec<SockFilter> {
    let mut program = Vec::with_capacity(48);
    for (size, at, value) in [
        (libc::BPF_H, PROG_AT, u32::from(prog)),
        (libc::BPF_H, TYPE_AT, u32::from(MsgType::SETS.0)),
        (libc::BPF_W, JOB_AT, job as u32),
    ] {
        program.push(load(size, at));
        program.extend(require(value));
    }
    program.extend(is_member(node, ASKED_BASE_AT, ASKED_BITS_AT));
    if role == Role::Told {
        program.extend(require(0));
        program.extend(is_member(node, TOLD_BASE_AT, TOLD_BITS_AT));
    }
    program.extend(require(1));
    program.push(ends_with(ALL));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::{Datagrams, Group, PortChoice, Received, Wait, datagrams, sys};
    use comem_protocol::auth::Sealer;
    use comem_protocol::faults::Rng;
    use comem_protocol::selective::{Author, Members};
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;
    use std::time::Duration;

    const PROG: u16 = 77;
    const JOB: u64 = 0x1_2345_6789;

    /// A socket with a node's filter, and another one that sends to it.
    struct Pair {
        filtered: std::net::UdpSocket,
        sender: Endpoint,
    }

    impl Pair {
        fn new(node: NodeId, role: Role) -> Pair {
            let filtered = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket2::SockRef::from(&filtered).attach_filter(&program(node, (PROG, JOB), role)).unwrap();
            filtered.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            Pair { filtered, sender: Endpoint::bind(Ipv4Addr::LOCALHOST.into(), PortChoice::Any).unwrap() }
        }

        fn send(&self, bytes: &[u8], segment: usize) {
            self.sender.send_to(bytes, segment, self.filtered.local_addr().unwrap()).unwrap();
        }

        /// What came until a datagram that ends with these bytes did.
        fn until(&self, last: &[u8]) -> Vec<Vec<u8>> {
            let (mut all, mut buffer) = (Vec::new(), [0; 2_000]);
            loop {
                let len = self.filtered.recv(&mut buffer).unwrap();
                if buffer[..len].ends_with(last) {
                    return all;
                }
                all.push(buffer[..len].to_vec());
            }
        }
    }

    fn datagram((prog, job): (u16, u64), named: (Members, Members), payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Author::new((NodeId(0), prog, job), Sealer::default(), 1472).emit(0, named, payload, &mut bytes).unwrap();
        bytes
    }

    /// What the kernel keeps is what the head says, for sets, nodes and windows of all kinds.
    #[test]
    fn the_kernel_reads_the_sets_as_the_receiver_does() {
        let mut rng = Rng::new(11);
        for node in [0, 1, 31, 32, 63, 64, 700, 1023].map(NodeId) {
            for role in [Role::Asked, Role::Told] {
                let pair = Pair::new(node, role);
                let mut expected: Vec<Vec<u8>> = Vec::new();
                for number in 0..100u64 {
                    // Bases around the node's number, few and many members.
                    let mut members = || {
                        let base = (u64::from(node.0) + 3).saturating_sub(rng.below(70)) as u16;
                        Members { base, bits: rng.next_u64() & rng.next_u64() | 1 << rng.below(64) }
                    };
                    let named = (members(), members());
                    let (asked, told) = (named.0.contains(node), named.1.contains(node));
                    let bytes = datagram((PROG, JOB), named, &number.to_be_bytes());
                    pair.send(&bytes, bytes.len());
                    if if role == Role::Asked { asked } else { told && !asked } {
                        expected.push(bytes);
                    }
                }
                let me = Members { base: node.0, bits: 1 };
                let end = if role == Role::Asked { (me, me) } else { (Members::default(), me) };
                let end = datagram((PROG, JOB), end, b"the end");
                pair.send(&end, end.len());
                assert_eq!(pair.until(b"the end"), expected, "{node} {role:?}");
            }
        }
    }

    #[test]
    fn other_jobs_other_types_and_stumps_do_not_pass() {
        let me = Members { base: 5, bits: 1 };
        let pair = Pair::new(NodeId(5), Role::Asked);
        let good = datagram((PROG, JOB), (me, me), b"");
        for bytes in [datagram((PROG + 1, JOB), (me, me), b"x"), datagram((PROG, JOB + 1), (me, me), b"x")] {
            pair.send(&bytes, bytes.len());
        }
        for bit in [TYPE_AT * 8, TYPE_AT * 8 + 15] {
            let mut other = good.clone();
            other[bit / 8] ^= 0x80 >> (bit % 8);
            pair.send(&other, other.len());
        }
        // One that ends before the bitmap that counts.
        for len in 1..ASKED_BITS_AT + 8 {
            pair.send(&good[..len], len);
        }
        let other_half = datagram((PROG, JOB + (1 << 32)), (me, me), b"the end");
        pair.send(&other_half, other_half.len());
        assert_eq!(pair.until(b"the end"), Vec::<Vec<u8>>::new(), "the upper half of the job's number is the tag's");
    }

    /// Why a filtered listener does not ask for datagrams that come together.
    #[test]
    fn coalesced_datagrams_would_be_judged_by_the_first() {
        let (me, other) = (Members { base: 5, bits: 1 }, Members { base: 6, bits: 1 });
        let of = |members, payload: &[u8]| datagram((PROG, JOB), (members, Members::default()), payload);
        let batch = |order: [Members; 3]| order.map(|members| of(members, b"1234")).concat();
        let segment = of(me, b"1234").len();
        for coalesce in [false, true] {
            let pair = Pair::new(NodeId(5), Role::Asked);
            let fd = pair.filtered.as_fd();
            if sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, i32::from(coalesce)).is_err() {
                return;
            }
            if !pair.sender.offload().segment {
                return;
            }
            pair.send(&batch([me, other, me]), segment);
            pair.send(&batch([other, me, me]), segment);
            let end = of(me, b"the end");
            pair.send(&end, end.len());
            let came = pair.until(b"the end").concat();
            let expected = if coalesce { batch([me, other, me]) } else { of(me, b"1234").repeat(4) };
            assert!(came == expected, "{} bytes with coalescing {coalesce}", came.len());
        }
        let loopback = crate::select::choose(None, crate::select::Reach::ThisHost).unwrap();
        let listener =
            Group::of_job(u64::from(std::process::id()), &loopback, PortChoice::Any).listen(&loopback).unwrap();
        assert_eq!(sys::option(listener.as_fd(), libc::SOL_UDP, libc::UDP_GRO).unwrap_or(0), 0);
    }

    /// A filter that comes late narrows what comes from then on, and cannot be taken away.
    #[test]
    fn a_listener_is_narrowed_down_for_good() {
        let loopback = crate::select::choose(None, crate::select::Reach::ThisHost).unwrap();
        let group = Group::of_job(u64::from(std::process::id()) << 8, &loopback, PortChoice::Any);
        let [own, sender] = [(); 2].map(|()| Endpoint::bind(loopback.address, PortChoice::Any).unwrap());
        sender.reach_groups(&loopback).unwrap();
        let listener = group.listen(&loopback).unwrap();
        let handle = listener.handle().unwrap();
        own.attend(listener).unwrap();
        let mut buffer = vec![0; 2_000];
        let mut next = || -> Vec<Vec<u8>> {
            match own.recv(&mut buffer, Some(Duration::from_secs(20)), Wait::Block).unwrap() {
                Received::Datagrams { len, segment, .. } => {
                    datagrams(&buffer[..len], segment).map(<[u8]>::to_vec).collect()
                }
                other => panic!("{other:?}"),
            }
        };
        sender.send_to(b"anything", 100, group.address()).unwrap();
        assert_eq!(next(), [b"anything".to_vec()]);
        handle.filter(&program(NodeId(5), (PROG, JOB), Role::Asked)).unwrap();
        sender.send_to(b"anything else", 100, group.address()).unwrap();
        let me = Members { base: 5, bits: 1 };
        let good = datagram((PROG, JOB), (me, me), b"good");
        sender.send_to(&good, good.len(), group.address()).unwrap();
        assert_eq!(next(), [good]);
        assert!(handle.filter(&program(NodeId(6), (PROG, JOB), Role::Asked)).is_err(), "it is locked");
    }
}
