//! The messages of a rendezvous as bytes, each in a frame: its length in two bytes, its kind, its fields, and a tag.
//!
//! A tag is the first half of BLAKE3 keyed by the id's secret, over who speaks, the other side's nonce, and the bytes.

use super::id::UniqueId;
use crate::ids::{NODES_MAX, NodeId};
use crate::node::message::{put_address, put_text, take_address, take_text};
use crate::wire::bytes::{Put, Reader, WireError};
use std::net::SocketAddr;

/// Most bytes of a frame behind its length.
pub const FRAME_MAX: usize = 2048;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// A number that is used once.
pub type Nonce = [u8; NONCE_BYTES];

const TAG_BYTES: usize = 16;
/// Most bytes of a host's name, and of what tells hosts apart.
const NAME_MAX: usize = 128;
/// Most bytes of a sentence.
const TEXT_MAX: usize = 1024;
/// What begins a Hello, so that who speaks to something else notices.
const MAGIC: &[u8] = b"comem rendezvous";

const HELLO: u8 = 0;
const WRONG_KEY: u8 = 1;
const PLACED: u8 = 2;
const ZERO: u8 = 3;
const FAILED: u8 = 4;
const WAITS: u8 = 5;
const ARRIVAL: u8 = 16;
const ADDRESS: u8 = 17;

/// A process that comes to a rendezvous.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Its nonce.
    pub nonce: Nonce,
    /// The node that it is to be; `None` for any.
    pub rank: Option<NodeId>,
    /// How many processes it expects, itself included.
    pub processes: u16,
    /// Its number on its host.
    pub pid: u32,
    /// Its host's name.
    pub host: String,
    /// What processes that can share memory have in common, and no others.
    pub place: String,
    /// Whether it made the id: without a rank it becomes node zero.
    pub made_id: bool,
    /// How long it waits for the others, in milliseconds; 0 for ever.
    pub limit_ms: u32,
}

/// A process's place in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its number.
    pub node: NodeId,
    /// How many nodes share its host, itself included.
    pub host_nodes: u16,
    /// Which of them it is, from zero.
    pub host_place: u16,
}

/// What a process says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromGuest {
    /// It is here.
    Arrival(Arrival),
    /// It is node zero, and listens there.
    Address(SocketAddr),
}

/// What a process is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToGuest {
    /// First of all: the version of the protocols there ([`crate::node::identity::VERSION`]), and a nonce. Without tag.
    Hello {
        /// The version.
        version: u16,
        /// The nonce that the process's tags cover.
        nonce: Nonce,
    },
    /// Its tag is not that of the id which is expected. Without tag, since the two have no common secret.
    WrongKey,
    /// All have arrived.
    Placed(Placed),
    /// Node zero listens there.
    Zero(SocketAddr),
    /// There will be no job: why.
    Failed(String),
    /// Whom all wait for.
    Waits(String),
}

/// Why a frame does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// Its tag is that of another id, or of no id.
    Tag,
    /// It makes no sense.
    Wire(WireError),
}

impl From<WireError> for Rejected {
    fn from(error: WireError) -> Rejected {
        Rejected::Wire(error)
    }
}

/// The tag of what a side says.
fn tag(id: &UniqueId, of_guest: bool, nonce: &Nonce, bytes: &[u8]) -> [u8; TAG_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(&id.rendezvous_key());
    hasher.update(&[u8::from(of_guest)]).update(nonce).update(bytes);
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
    tag
}

/// A frame: the length, the bytes, the tag.
fn frame(mut bytes: Vec<u8>, tag: &[u8]) -> Vec<u8> {
    bytes.put_bytes(tag);
    debug_assert!(bytes.len() <= FRAME_MAX, "{} bytes", bytes.len());
    let mut out = Vec::with_capacity(2 + bytes.len());
    out.put_u16(bytes.len() as u16);
    out.put_bytes(&bytes);
    out
}

/// The bytes that a tag covers, if it is theirs. How long that takes does not depend on how much of it is right.
fn opened<'a>(id: &UniqueId, of_guest: bool, nonce: &Nonce, bytes: &'a [u8]) -> Result<&'a [u8], Rejected> {
    let (body, given) = bytes.split_last_chunk::<TAG_BYTES>().ok_or(Rejected::Wire(WireError::Short))?;
    let right = tag(id, of_guest, nonce, body);
    if u128::from_ne_bytes(right) ^ u128::from_ne_bytes(*given) == 0 { Ok(body) } else { Err(Rejected::Tag) }
}

impl FromGuest {
    /// The frame with this message; `nonce` is the one that the rendezvous gave.
    pub fn emit(&self, id: &UniqueId, nonce: &Nonce) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            FromGuest::Arrival(arrival) => {
                out.put_u8(ARRIVAL);
                arrival.emit(&mut out);
            }
            FromGuest::Address(address) => {
                out.put_u8(ADDRESS);
                put_socket(&mut out, *address);
            }
        }
        let tag = tag(id, true, nonce, &out);
        frame(out, &tag)
    }

    /// Reads a frame behind its length.
    ///
    /// # Errors
    /// It does not count.
    pub fn parse(bytes: &[u8], id: &UniqueId, nonce: &Nonce) -> Result<FromGuest, Rejected> {
        let mut r = Reader::new(opened(id, true, nonce, bytes)?);
        let message = match r.u8()? {
            ARRIVAL => FromGuest::Arrival(Arrival::parse(&mut r)?),
            ADDRESS => FromGuest::Address(take_socket(&mut r)?),
            other => return Err(WireError::BadType(other.into()).into()),
        };
        r.finish()?;
        Ok(message)
    }
}

impl Arrival {
    fn emit(&self, out: &mut Vec<u8>) {
        use crate::node::message::fit;
        out.put_bytes(&self.nonce);
        out.put_u8(u8::from(self.rank.is_some()));
        out.put_u16(self.rank.unwrap_or_default().0);
        out.put_u16(self.processes);
        out.put_u32(self.pid);
        put_text(out, &fit(&self.host, NAME_MAX));
        put_text(out, &fit(&self.place, NAME_MAX));
        out.put_u8(u8::from(self.made_id));
        out.put_u32(self.limit_ms);
    }

    fn parse(r: &mut Reader<'_>) -> Result<Arrival, WireError> {
        let nonce = take_nonce(r)?;
        let (has_rank, rank, processes) = (r.u8()? != 0, r.u16()?, r.u16()?);
        if processes == 0 || usize::from(processes) > NODES_MAX {
            return Err(WireError::BadValue("number of processes"));
        }
        let rank = has_rank.then_some(NodeId(rank));
        let (pid, host, place) = (r.u32()?, take_text(r, NAME_MAX)?, take_text(r, NAME_MAX)?);
        Ok(Arrival { nonce, rank, processes, pid, host, place, made_id: r.u8()? != 0, limit_ms: r.u32()? })
    }
}

impl ToGuest {
    /// The frame with this message; `nonce` is the one that the process gave, of no meaning in messages without a tag.
    pub fn emit(&self, id: &UniqueId, nonce: &Nonce) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            ToGuest::Hello { version, nonce } => {
                out.put_u8(HELLO);
                out.put_bytes(MAGIC);
                out.put_u16(*version);
                out.put_bytes(nonce);
                return frame(out, &[]);
            }
            ToGuest::WrongKey => {
                out.put_u8(WRONG_KEY);
                return frame(out, &[]);
            }
            ToGuest::Placed(placed) => {
                out.put_u8(PLACED);
                out.put_u16(placed.node.0);
                out.put_u16(placed.host_nodes);
                out.put_u16(placed.host_place);
            }
            ToGuest::Zero(address) => {
                out.put_u8(ZERO);
                put_socket(&mut out, *address);
            }
            ToGuest::Failed(text) => put_sentence(&mut out, FAILED, text),
            ToGuest::Waits(text) => put_sentence(&mut out, WAITS, text),
        }
        let tag = tag(id, false, nonce, &out);
        frame(out, &tag)
    }

    /// Reads a frame behind its length; `nonce` is the one that this process gave.
    ///
    /// # Errors
    /// It does not count.
    pub fn parse(bytes: &[u8], id: &UniqueId, nonce: &Nonce) -> Result<ToGuest, Rejected> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            HELLO => {
                if r.take(MAGIC.len())? != MAGIC {
                    return Err(WireError::BadValue("greeting").into());
                }
                // Later versions may say more.
                return Ok(ToGuest::Hello { version: r.u16()?, nonce: take_nonce(&mut r)? });
            }
            WRONG_KEY => return Ok(ToGuest::WrongKey),
            _ => {}
        }
        let mut r = Reader::new(opened(id, false, nonce, bytes)?);
        let message = match r.u8()? {
            PLACED => {
                let node = NodeId(r.u16()?);
                ToGuest::Placed(Placed { node, host_nodes: r.u16()?, host_place: r.u16()? })
            }
            ZERO => ToGuest::Zero(take_socket(&mut r)?),
            FAILED => ToGuest::Failed(take_text(&mut r, TEXT_MAX)?),
            WAITS => ToGuest::Waits(take_text(&mut r, TEXT_MAX)?),
            other => return Err(WireError::BadType(other.into()).into()),
        };
        r.finish()?;
        Ok(message)
    }
}

fn put_sentence(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.put_u8(kind);
    put_text(out, &crate::node::message::fit(text, TEXT_MAX));
}

fn take_nonce(r: &mut Reader<'_>) -> Result<Nonce, WireError> {
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(r.take(NONCE_BYTES)?);
    Ok(nonce)
}

fn put_socket(out: &mut Vec<u8>, address: SocketAddr) {
    put_address(out, address.ip());
    out.put_u16(address.port());
}

fn take_socket(r: &mut Reader<'_>) -> Result<SocketAddr, WireError> {
    let ip = take_address(r)?;
    match r.u16()? {
        0 => Err(WireError::BadValue("port")),
        port => Ok(SocketAddr::new(ip, port)),
    }
}
