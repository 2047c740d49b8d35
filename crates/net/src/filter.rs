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
    let to_index = plain(libc::BPF_MISC | libc::BPF_TAX, 0);
    let always = |over: u32| plain(libc::BPF_JMP | libc::BPF_JA, over);
    [
        load(libc::BPF_H, base_at),
        to_index,
        plain(libc::BPF_LD | libc::BPF_IMM, u32::from(node.0)),
        // A number below the base becomes a large one.
        plain(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0),
        jump(libc::BPF_JGE, WINDOW_NODES.into(), (10, 0)),
        jump(libc::BPF_JGE, 32, (3, 0)),
        to_index,
        load(libc::BPF_W, bits_at + 4),
        always(3),
        plain(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 32),
        to_index,
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
