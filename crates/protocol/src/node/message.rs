//! The datagrams of start-up and of the failure detector: types 8 to 15, behind the usual header.
//!
//! | type | message | from | to | says |
//! |---|---|---|---|---|
//! | 8 | JOIN | a process | node zero, or everybody | let me in; I confirm; I decline |
//! | 9 | ANSWER | node zero | a joiner | JOIN_ACK with a number, JOIN_NACK with the reason, or "ask again" |
//! | 10 | WAKEUP | node zero | everybody | a job starts here: number of nodes, program, arguments |
//! | 11 | HELLO | any node | any node | the address table; introductions; the start |
//! | 12 | READY | a node | node zero | what it still lacks, or that it lacks nothing |
//! | 13, 14 | PING, PONG | a node | its neighbours | I am alive |
//! | 15 | LOST | a node | all | this node is gone, for this reason |
//!
//! JOIN, ANSWER and WAKEUP begin with the protocol version, and what stands before the version check never changes,
//! so that processes of different versions can still tell each other that they differ. Every body fits
//! [`BODY_MAX`] bytes, and with header and tag the smallest packet that every network carries.

use super::identity::{Identity, Layout, Refusal};
use super::table::{Member, emit_ports, parse_ports};
use crate::ids::{NODES_MAX, NodeId, THREADS_MAX};
use crate::wire::bytes::{Put, Reader, WireError};
use crate::wire::header::MsgType;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most bytes in the body of a start-up datagram: 1280 (IPv6's least MTU) - 48 (IPv6, UDP) - 32 (header, tag).
pub const BODY_MAX: usize = 1200;
/// Most bytes of a host's, a job's or a program's name.
pub const NAME_MAX: usize = 64;
/// Most bytes of the options that must agree.
pub const OPTIONS_MAX: usize = 256;
/// Most bytes of the reason for giving up.
pub const REASON_MAX: usize = 512;
/// Most bytes of the program's arguments, each with its length.
pub const ARGUMENTS_MAX: usize = BODY_MAX - 400;
/// Most neighbours that a READY names as unheard.
pub const UNHEARD_MAX: usize = 8;

/// The numbers of the message types.
pub mod types {
    use super::MsgType;
    /// Let me in.
    pub const JOIN: MsgType = MsgType(8);
    /// Node zero's answer to a JOIN.
    pub const ANSWER: MsgType = MsgType(9);
    /// A job starts.
    pub const WAKEUP: MsgType = MsgType(10);
    /// Table, introductions, start.
    pub const HELLO: MsgType = MsgType(11);
    /// What a node still lacks.
    pub const READY: MsgType = MsgType(12);
    /// Are you alive?
    pub const PING: MsgType = MsgType(13);
    /// I am.
    pub const PONG: MsgType = MsgType(14);
    /// A node is gone.
    pub const LOST: MsgType = MsgType(15);
}

/// What a JOIN wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// A place, whoever gives it.
    Ask,
    /// The place that node zero of this job gave; also says that the joiner still waits.
    Confirm {
        /// The job.
        job: u64,
        /// The place.
        node: NodeId,
    },
    /// No place in this job: the joiner has another, or leaves.
    Decline(u64),
}

/// A process wants to join. (DSM/IP: DSM_JOIN.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The process's own random number; tells it from every other process.
    pub nonce: u64,
    /// Whether the process looks for any job of its name; else it means exactly this address.
    pub discover: bool,
    /// What it wants.
    pub intent: Intent,
    /// The number that a launcher gave it.
    pub requested: Option<NodeId>,
    /// The job that a launcher or daemon started it for; 0 when it knows none.
    pub job: u64,
    /// For how long it has been on its way into a job.
    pub age_ms: u32,
    /// What must agree.
    pub identity: Identity,
    /// Its process number.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// Its UDP ports by slot.
    pub ports: Vec<u16>,
}

/// Node zero's answer to a JOIN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The nonce of the JOIN.
    pub nonce: u64,
    /// The version node zero speaks.
    pub version: u16,
    /// What it says.
    pub verdict: Verdict,
}

/// What node zero says to a joiner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// You are this node. (JOIN_ACK)
    Accepted {
        /// The joiner's number.
        node: NodeId,
        /// The job.
        job: u64,
        /// The program number in the job's headers.
        prog: u16,
    },
    /// A place may come free: ask again.
    Wait,
    /// I am no longer node zero: look for the one that is.
    Yielded,
    /// All places are taken; leave in peace. (JOIN_NACK)
    Surplus,
    /// No. (JOIN_NACK)
    Refused(Refusal),
    /// Node zero speaks another version: nothing more can be read.
    Unreadable,
}

/// A job starts: what a daemon needs to start one of its processes, and what a searching process needs to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wakeup {
    /// Node zero's nonce.
    pub nonce: u64,
    /// The job; a WAKEUP is repeated, but means one job once.
    pub job: u64,
    /// For how long node zero has been on its way into a job.
    pub age_ms: u32,
    /// The job's name.
    pub job_name: String,
    /// Nodes wanted.
    pub nodes: u16,
    /// Threads in each.
    pub threads: u16,
    /// The program's name.
    pub program: String,
    /// Its hash.
    pub hash: [u8; 32],
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Between nodes that have numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hello {
    /// Node zero: all nodes are there, and this is a part of the address table. (The first HELLO(0).)
    Table {
        /// Which part.
        page: u16,
        /// Of how many.
        pages: u16,
        /// Nodes in all.
        nodes: u16,
        /// The number of the first node in this part.
        first: u16,
        /// The nodes.
        members: Vec<Member>,
    },
    /// A node introduces itself to another and wants to hear from it.
    Introduce(NodeId),
    /// The other's answer.
    Greet(NodeId),
    /// Node zero, by multicast: do you hear this?
    Multicast,
    /// Node zero has a READY and waits for others.
    Noted,
    /// All are ready. (The second HELLO(0).)
    Start {
        /// Whether every node hears multicast.
        multicast: bool,
    },
}

/// A node reports to node zero what it has and what it lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The node.
    pub node: NodeId,
    /// Its nonce.
    pub nonce: u64,
    /// Whether it lacks nothing. (DSM/IP: READY(j).)
    pub complete: bool,
    /// Whether it heard the multicast probe.
    pub multicast: bool,
    /// Parts of the table it has: bit `page` of a bitmap, lowest bit first.
    pub have: Vec<u8>,
    /// Nodes whose greeting it waits for, the first few.
    pub unheard: Vec<NodeId>,
}

/// A message of start-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartMessage {
    /// A process wants in.
    Join(Box<Join>),
    /// A JOIN or WAKEUP in a version that this process cannot read further.
    Foreign {
        /// [`types::JOIN`] or [`types::WAKEUP`].
        ty: MsgType,
        /// Its version.
        version: u16,
        /// Its sender's nonce.
        nonce: u64,
        /// Whether it looks for any job of its name.
        discover: bool,
        /// The job's name.
        job_name: String,
    },
    /// Node zero's answer.
    Answer(Answer),
    /// A job starts.
    Wakeup(Wakeup),
    /// Between nodes of one job.
    Hello {
        /// The job.
        job: u64,
        /// What is said.
        hello: Hello,
    },
    /// To node zero.
    Ready {
        /// The job.
        job: u64,
        /// What is said.
        ready: Ready,
    },
}

impl StartMessage {
    /// The message's type.
    pub fn ty(&self) -> MsgType {
        match self {
            StartMessage::Join(_) => types::JOIN,
            StartMessage::Foreign { ty, .. } => *ty,
            StartMessage::Answer(_) => types::ANSWER,
            StartMessage::Wakeup(_) => types::WAKEUP,
            StartMessage::Hello { .. } => types::HELLO,
            StartMessage::Ready { .. } => types::READY,
        }
    }

    /// The message's body, as sent by a process that speaks `version`.
    pub fn emit(&self, version: u16) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            StartMessage::Join(join) => emit_join(join, &mut out),
            StartMessage::Foreign { version, nonce, discover, job_name, .. } => {
                put_prefix(&mut out, *version, *nonce, *discover, job_name);
            }
            StartMessage::Answer(answer) => emit_answer(answer, &mut out),
            StartMessage::Wakeup(wakeup) => emit_wakeup(wakeup, version, &mut out),
            StartMessage::Hello { job, hello } => {
                out.put_u64(*job);
                emit_hello(hello, &mut out);
            }
            StartMessage::Ready { job, ready } => {
                out.put_u64(*job);
                emit_ready(ready, &mut out);
            }
        }
        out
    }

    /// Reads a body that came with type `ty`, as a process that speaks `version`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn parse(ty: MsgType, body: &[u8], version: u16) -> Result<StartMessage, WireError> {
        let mut r = Reader::new(body);
        let message = match ty {
            types::JOIN | types::WAKEUP => return parse_prefixed(ty, r, version),
            types::ANSWER => StartMessage::Answer(parse_answer(&mut r, version)?),
            types::HELLO => StartMessage::Hello { job: r.u64()?, hello: parse_hello(&mut r)? },
            types::READY => StartMessage::Ready { job: r.u64()?, ready: parse_ready(&mut r)? },
            other => return Err(WireError::BadType(other.0)),
        };
        r.finish()?;
        Ok(message)
    }
}

fn put_prefix(out: &mut Vec<u8>, version: u16, nonce: u64, discover: bool, job_name: &str) {
    out.put_u16(version);
    out.put_u64(nonce);
    out.put_u8(u8::from(discover));
    put_text(out, job_name);
}

fn parse_prefixed(ty: MsgType, mut r: Reader<'_>, here: u16) -> Result<StartMessage, WireError> {
    let (version, nonce, discover) = (r.u16()?, r.u64()?, take_bool(&mut r)?);
    let job_name = take_text(&mut r, NAME_MAX)?;
    if version != here {
        return Ok(StartMessage::Foreign { ty, version, nonce, discover, job_name });
    }
    let message = if ty == types::JOIN {
        StartMessage::Join(Box::new(parse_join(&mut r, version, nonce, discover, job_name)?))
    } else {
        StartMessage::Wakeup(parse_wakeup(&mut r, nonce, job_name)?)
    };
    r.finish()?;
    Ok(message)
}

fn emit_join(join: &Join, out: &mut Vec<u8>) {
    let identity = &join.identity;
    put_prefix(out, identity.version, join.nonce, join.discover, &identity.job_name);
    let (intent, job, node) = match join.intent {
        Intent::Ask => (0, 0, NodeId(0)),
        Intent::Confirm { job, node } => (1, job, node),
        Intent::Decline(job) => (2, job, NodeId(0)),
    };
    out.put_u8(intent);
    out.put_u64(job);
    out.put_u16(node.0);
    out.put_u16(join.requested.map_or(u16::MAX, |node| node.0));
    out.put_u64(join.job);
    out.put_u32(join.age_ms);
    put_text(out, &identity.program);
    out.put_bytes(&identity.hash);
    identity.layout.emit(out);
    out.put_u16(identity.nodes);
    out.put_u16(identity.threads);
    put_text(out, &identity.options);
    out.put_u32(join.pid);
    put_text(out, &join.host);
    emit_ports(&join.ports, out);
}

fn parse_join(
    r: &mut Reader<'_>,
    version: u16,
    nonce: u64,
    discover: bool,
    job_name: String,
) -> Result<Join, WireError> {
    let intent = match (r.u8()?, r.u64()?, take_node(r)?) {
        (0, ..) => Intent::Ask,
        (1, job, node) => Intent::Confirm { job, node },
        (2, job, _) => Intent::Decline(job),
        _ => return Err(WireError::BadValue("intent")),
    };
    let requested = match r.u16()? {
        u16::MAX => None,
        node => Some(NodeId(node)),
    };
    let (job, age_ms) = (r.u64()?, r.u32()?);
    let program = take_text(r, NAME_MAX)?;
    let hash = take_hash(r)?;
    let layout = Layout::parse(r)?;
    let (nodes, threads) = (r.u16()?, r.u16()?);
    let options = take_text(r, OPTIONS_MAX)?;
    let identity = Identity { version, job_name, program, hash, layout, nodes, threads, options };
    let (pid, host) = (r.u32()?, take_text(r, NAME_MAX)?);
    Ok(Join { nonce, discover, intent, requested, job, age_ms, identity, pid, host, ports: parse_ports(r)? })
}

fn emit_answer(answer: &Answer, out: &mut Vec<u8>) {
    out.put_u16(answer.version);
    out.put_u64(answer.nonce);
    match &answer.verdict {
        Verdict::Accepted { node, job, prog } => {
            out.put_u8(0);
            out.put_u16(node.0);
            out.put_u64(*job);
            out.put_u16(*prog);
        }
        Verdict::Wait => out.put_u8(1),
        Verdict::Yielded => out.put_u8(2),
        Verdict::Surplus => out.put_u8(3),
        Verdict::Refused(refusal) => {
            out.put_u8(4);
            emit_refusal(refusal, out);
        }
        Verdict::Unreadable => out.put_u8(5),
    }
}

fn parse_answer(r: &mut Reader<'_>, here: u16) -> Result<Answer, WireError> {
    let (version, nonce) = (r.u16()?, r.u64()?);
    if version != here {
        r.rest();
        return Ok(Answer { nonce, version, verdict: Verdict::Unreadable });
    }
    let verdict = match r.u8()? {
        0 => Verdict::Accepted { node: take_node(r)?, job: r.u64()?, prog: r.u16()? },
        1 => Verdict::Wait,
        2 => Verdict::Yielded,
        3 => Verdict::Surplus,
        4 => Verdict::Refused(parse_refusal(r)?),
        5 => Verdict::Unreadable,
        _ => return Err(WireError::BadValue("verdict")),
    };
    Ok(Answer { nonce, version, verdict })
}

fn emit_refusal(refusal: &Refusal, out: &mut Vec<u8>) {
    let mut pair = |kind: u8, a: u16, b: u16| {
        out.put_u8(kind);
        out.put_u16(a);
        out.put_u16(b);
    };
    match refusal {
        Refusal::Version { zero, joiner } => pair(0, *zero, *joiner),
        Refusal::Nodes { zero, joiner } => pair(1, *zero, *joiner),
        Refusal::Threads { zero, joiner } => pair(2, *zero, *joiner),
        Refusal::Full { nodes } => pair(3, *nodes, 0),
        Refusal::NoSuchNode { nodes } => pair(4, *nodes, 0),
        Refusal::TooFew { came, wanted } => pair(5, *came, *wanted),
        Refusal::OtherJob { zero } => put_kind_text(out, 6, zero),
        Refusal::AlreadyRunning { job } => put_kind_text(out, 7, job),
        Refusal::GivenUp(why) => put_kind_text(out, 8, why),
        Refusal::Layout { zero, joiner } => {
            out.put_u8(9);
            zero.emit(out);
            joiner.emit(out);
        }
        Refusal::Program { zero, joiner, program } => {
            put_kind_text(out, 10, program);
            out.put_bytes(zero);
            out.put_bytes(joiner);
        }
        Refusal::Options { zero, joiner } => {
            put_kind_text(out, 11, zero);
            put_text(out, joiner);
        }
        Refusal::NumberTaken { host, pid } => {
            put_kind_text(out, 12, host);
            out.put_u32(*pid);
        }
    }
}

fn put_kind_text(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.put_u8(kind);
    put_text(out, text);
}

fn parse_refusal(r: &mut Reader<'_>) -> Result<Refusal, WireError> {
    let kind = r.u8()?;
    if kind <= 5 {
        let (a, b) = (r.u16()?, r.u16()?);
        return Ok(match kind {
            0 => Refusal::Version { zero: a, joiner: b },
            1 => Refusal::Nodes { zero: a, joiner: b },
            2 => Refusal::Threads { zero: a, joiner: b },
            3 => Refusal::Full { nodes: a },
            4 => Refusal::NoSuchNode { nodes: a },
            _ => Refusal::TooFew { came: a, wanted: b },
        });
    }
    Ok(match kind {
        6 => Refusal::OtherJob { zero: take_text(r, NAME_MAX)? },
        7 => Refusal::AlreadyRunning { job: take_text(r, NAME_MAX)? },
        8 => Refusal::GivenUp(take_text(r, REASON_MAX)?),
        9 => Refusal::Layout { zero: Layout::parse(r)?, joiner: Layout::parse(r)? },
        10 => {
            let program = take_text(r, NAME_MAX)?;
            Refusal::Program { zero: take_six(r)?, joiner: take_six(r)?, program }
        }
        11 => Refusal::Options { zero: take_text(r, OPTIONS_MAX)?, joiner: take_text(r, OPTIONS_MAX)? },
        12 => Refusal::NumberTaken { host: take_text(r, NAME_MAX)?, pid: r.u32()? },
        _ => return Err(WireError::BadValue("reason")),
    })
}

fn emit_wakeup(wakeup: &Wakeup, version: u16, out: &mut Vec<u8>) {
    put_prefix(out, version, wakeup.nonce, true, &wakeup.job_name);
    out.put_u64(wakeup.job);
    out.put_u32(wakeup.age_ms);
    out.put_u16(wakeup.nodes);
    out.put_u16(wakeup.threads);
    put_text(out, &wakeup.program);
    out.put_bytes(&wakeup.hash);
    out.put_u16(wakeup.arguments.len() as u16);
    for argument in &wakeup.arguments {
        put_text(out, argument);
    }
}

fn parse_wakeup(r: &mut Reader<'_>, nonce: u64, job_name: String) -> Result<Wakeup, WireError> {
    let (job, age_ms, nodes, threads) = (r.u64()?, r.u32()?, r.u16()?, r.u16()?);
    let program = take_text(r, NAME_MAX)?;
    let hash = take_hash(r)?;
    let count = r.u16()?;
    let arguments = (0..count).map(|_| take_any_text(r, ARGUMENTS_MAX)).collect::<Result<Vec<_>, _>>()?;
    Ok(Wakeup { nonce, job, age_ms, job_name, nodes, threads, program, hash, arguments })
}

fn emit_hello(hello: &Hello, out: &mut Vec<u8>) {
    match hello {
        Hello::Table { page, pages, nodes, first, members } => {
            out.put_u8(0);
            out.put_u16(*page);
            out.put_u16(*pages);
            out.put_u16(*nodes);
            out.put_u16(*first);
            out.put_u16(members.len() as u16);
            members.iter().for_each(|member| member.emit(out));
        }
        Hello::Introduce(node) => {
            out.put_u8(1);
            out.put_u16(node.0);
        }
        Hello::Greet(node) => {
            out.put_u8(2);
            out.put_u16(node.0);
        }
        Hello::Multicast => out.put_u8(3),
        Hello::Noted => out.put_u8(4),
        Hello::Start { multicast } => {
            out.put_u8(5);
            out.put_u8(u8::from(*multicast));
        }
    }
}

fn parse_hello(r: &mut Reader<'_>) -> Result<Hello, WireError> {
    Ok(match r.u8()? {
        0 => {
            let (page, pages, nodes, first, count) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?, r.u16()?);
            let sane = page < pages
                && pages <= nodes
                && usize::from(nodes) <= NODES_MAX
                && u32::from(first) + u32::from(count) <= u32::from(nodes);
            if !sane {
                return Err(WireError::BadValue("part of the address table"));
            }
            let members = (0..count).map(|_| Member::parse(r)).collect::<Result<Vec<_>, _>>()?;
            Hello::Table { page, pages, nodes, first, members }
        }
        1 => Hello::Introduce(take_node(r)?),
        2 => Hello::Greet(take_node(r)?),
        3 => Hello::Multicast,
        4 => Hello::Noted,
        5 => Hello::Start { multicast: take_bool(r)? },
        _ => return Err(WireError::BadValue("greeting")),
    })
}

fn emit_ready(ready: &Ready, out: &mut Vec<u8>) {
    out.put_u16(ready.node.0);
    out.put_u64(ready.nonce);
    out.put_u8(u8::from(ready.complete));
    out.put_u8(u8::from(ready.multicast));
    out.put_u8(ready.have.len() as u8);
    out.put_bytes(&ready.have);
    out.put_u8(ready.unheard.len() as u8);
    ready.unheard.iter().for_each(|node| out.put_u16(node.0));
}

fn parse_ready(r: &mut Reader<'_>) -> Result<Ready, WireError> {
    let (node, nonce) = (take_node(r)?, r.u64()?);
    let (complete, multicast) = (take_bool(r)?, take_bool(r)?);
    let len = usize::from(r.u8()?);
    let have = r.take(len)?.to_vec();
    let count = usize::from(r.u8()?);
    if len > NODES_MAX / 8 || count > UNHEARD_MAX {
        return Err(WireError::BadValue("report"));
    }
    let unheard = (0..count).map(|_| take_node(r)).collect::<Result<Vec<_>, _>>()?;
    Ok(Ready { node, nonce, complete, multicast, have, unheard })
}

/// Cuts `text` to at most `max` bytes, between two characters, and makes control characters harmless.
pub fn fit(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() + c.len_utf8() > max {
            break;
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    debug_assert!(text.len() <= BODY_MAX);
    out.put_u16(text.len() as u16);
    out.put_bytes(text.as_bytes());
}

/// A text of at most `max` bytes that may go to a terminal as it is.
pub(super) fn take_text(r: &mut Reader<'_>, max: usize) -> Result<String, WireError> {
    let text = take_any_text(r, max)?;
    if text.chars().any(char::is_control) { Err(WireError::BadValue("text")) } else { Ok(text) }
}

fn take_any_text(r: &mut Reader<'_>, max: usize) -> Result<String, WireError> {
    let len = usize::from(r.u16()?);
    if len > max {
        return Err(WireError::BadValue("length of a text"));
    }
    let bytes = r.take(len)?.to_vec();
    String::from_utf8(bytes).map_err(|_| WireError::BadValue("text"))
}

pub(super) fn put_address(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put_bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put_bytes(&ip.octets());
        }
    }
}

fn take_array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], WireError> {
    r.take(N)?.try_into().map_err(|_| WireError::Short)
}

pub(super) fn take_address(r: &mut Reader<'_>) -> Result<IpAddr, WireError> {
    match r.u8()? {
        4 => Ok(Ipv4Addr::from(take_array::<4>(r)?).into()),
        6 => Ok(Ipv6Addr::from(take_array::<16>(r)?).into()),
        _ => Err(WireError::BadValue("kind of address")),
    }
}

fn take_hash(r: &mut Reader<'_>) -> Result<[u8; 32], WireError> {
    take_array(r)
}

fn take_six(r: &mut Reader<'_>) -> Result<[u8; 6], WireError> {
    take_array(r)
}

fn take_bool(r: &mut Reader<'_>) -> Result<bool, WireError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::BadValue("truth value")),
    }
}

pub(super) fn take_node(r: &mut Reader<'_>) -> Result<NodeId, WireError> {
    let node = NodeId(r.u16()?);
    if node.index() < NODES_MAX { Ok(node) } else { Err(WireError::BadValue("node number")) }
}

/// The longest JOIN fits a body: every field at its largest.
const _: () = {
    let prefix = 2 + 8 + 1 + (2 + NAME_MAX);
    let identity = (2 + NAME_MAX) + 32 + 8 + 2 + 2 + (2 + OPTIONS_MAX);
    let process = 4 + (2 + NAME_MAX) + 2 + 2 * (1 + THREADS_MAX);
    assert!(prefix + 1 + 8 + 2 + 2 + 8 + 4 + identity + process <= BODY_MAX);
};

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
