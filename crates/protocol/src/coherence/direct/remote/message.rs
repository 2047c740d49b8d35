//! A batch of operations as a message, and what they brought.

use super::super::entry::Entry;
use super::super::one_sided::Op;
use super::{UnitAt, bad};
use crate::coherence::node_set::NodeSet;
use crate::ids::NODES_MAX;
use crate::wire::bytes::{Put, Reader, WireError};
use smallvec::SmallVec;

/// Most commands of a request. A miss sends seven to one node at most.
pub const COMMANDS_MAX: usize = 8;
/// Most words of 64 bits that a wide set has.
const WIDE_WORDS_MAX: usize = NODES_MAX / 64;

/// An [`Op`] on the memory of whoever reads it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// [`Op::FetchAndSet`] for the sender's node.
    FetchAndSet,
    /// [`Op::GetWide`].
    GetWide,
    /// [`Op::GetData`].
    GetData,
    /// [`Op::PutMagic`].
    PutMagic,
    /// [`Op::PutMirrors`].
    PutMirrors(Entry),
    /// [`Op::PutEntry`].
    PutEntry(Entry),
    /// [`Op::PutWide`].
    PutWide(NodeSet),
    /// [`Op::Quiesce`].
    Quiesce,
    /// [`Op::Pause`], for at most so many microseconds.
    Pause(u16),
}

impl Command {
    /// The command for an operation on another node's memory; `pause_us` is how long an [`Op::Pause`] may last. `None`
    /// for what a thread does itself.
    pub fn of(op: &Op, pause_us: u16) -> Option<Command> {
        Some(match op {
            Op::FetchAndSet { .. } => Command::FetchAndSet,
            Op::GetWide { .. } => Command::GetWide,
            Op::GetData { .. } => Command::GetData,
            Op::PutMagic { .. } => Command::PutMagic,
            Op::PutMirrors { entry, .. } => Command::PutMirrors(*entry),
            Op::PutEntry { entry, .. } => Command::PutEntry(*entry),
            Op::PutWide { holders, .. } => Command::PutWide(holders.clone()),
            Op::Quiesce { .. } => Command::Quiesce,
            Op::Pause { .. } => Command::Pause(pause_us),
            Op::Flush | Op::Peek | Op::Access => return None,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Command::FetchAndSet => out.put_u8(1),
            Command::GetWide => out.put_u8(2),
            Command::GetData => out.put_u8(3),
            Command::PutMagic => out.put_u8(4),
            Command::PutMirrors(entry) => put_entry(out, 5, *entry),
            Command::PutEntry(entry) => put_entry(out, 6, *entry),
            Command::PutWide(holders) => {
                out.put_u8(7);
                put_wide(out, holders);
            }
            Command::Quiesce => out.put_u8(8),
            Command::Pause(us) => {
                out.put_u8(9);
                out.put_u16(*us);
            }
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<Command, WireError> {
        Ok(match r.u8()? {
            1 => Command::FetchAndSet,
            2 => Command::GetWide,
            3 => Command::GetData,
            4 => Command::PutMagic,
            5 => Command::PutMirrors(take_entry(r)?),
            6 => Command::PutEntry(take_entry(r)?),
            7 => Command::PutWide(take_wide(r)?),
            8 => Command::Quiesce,
            9 => Command::Pause(r.u16()?),
            _ => return Err(bad("one-sided operation")),
        })
    }
}

fn put_entry(out: &mut Vec<u8>, command: u8, entry: Entry) {
    out.put_u8(command);
    out.put_u16(entry.0);
}

/// An entry that some node puts: never one that locks.
fn take_entry(r: &mut Reader<'_>) -> Result<Entry, WireError> {
    let entry = Entry(r.u16()?);
    if entry.is_put() { Ok(entry) } else { Err(bad("entry")) }
}

fn put_wide(out: &mut Vec<u8>, set: &NodeSet) {
    out.put_u8(set.words().len() as u8);
    set.words().iter().for_each(|word| out.put_u64(*word));
}

fn take_wide(r: &mut Reader<'_>) -> Result<NodeSet, WireError> {
    let words = usize::from(r.u8()?);
    if words > WIDE_WORDS_MAX {
        return Err(bad("wide words"));
    }
    let words: SmallVec<[u64; 2]> = (0..words).map(|_| r.u64()).collect::<Result<_, _>>()?;
    if words.last() == Some(&0) { Err(bad("wide words")) } else { Ok(NodeSet::from_words(words)) }
}

/// Operations on one node's memory of one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The sending thread's number for it, which comes back with the answer.
    pub serial: u16,
    /// The unit.
    pub unit: UnitAt,
    /// What is done to it, in this order.
    pub commands: SmallVec<[Command; COMMANDS_MAX]>,
}

impl Request {
    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(self.serial);
        out.put_var(self.unit.first());
        out.put_u8(self.unit.lines().trailing_zeros() as u8);
        self.commands.iter().for_each(|command| command.emit(out));
    }

    /// Reads a body.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &[u8]) -> Result<Request, WireError> {
        let mut r = Reader::new(body);
        let (serial, first, shift) = (r.u16()?, r.var()?, r.u8()?);
        let lines = 1u16.checked_shl(shift.into()).ok_or(bad("unit"))?;
        let unit = UnitAt::new(first, lines).ok_or(bad("unit"))?;
        let mut commands = SmallVec::new();
        while r.finish().is_err() {
            if commands.len() == COMMANDS_MAX {
                return Err(bad("number of one-sided operations"));
            }
            commands.push(Command::take(&mut r)?);
        }
        if commands.is_empty() { Err(WireError::Short) } else { Ok(Request { serial, unit, commands }) }
    }

    /// Whether all nodes that it names are among a job's `nodes`.
    pub(super) fn names_only(&self, nodes: usize) -> bool {
        let fits = |holders: &NodeSet| holders.iter().all(|node| node.index() < nodes);
        self.commands.iter().all(|command| !matches!(command, Command::PutWide(holders) if !fits(holders)))
    }
}

/// What a command brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Brought<'a> {
    /// The entry, before a fetch-and-set.
    Entry(Entry),
    /// The unit's bytes.
    Data(&'a [u8]),
    /// The wide words.
    Wide(NodeSet),
}

/// The answer to a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The request's number.
    pub serial: u16,
    /// Whether the commands were carried out. If not, the region was freed.
    pub is_done: bool,
    brought: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Appends what stands before the things that the commands brought.
    pub(super) fn begin(serial: u16, is_done: bool, out: &mut Vec<u8>) {
        out.put_u16(serial);
        out.put_u8(is_done.into());
    }

    pub(super) fn put_entry(out: &mut Vec<u8>, entry: Entry) {
        out.put_u16(entry.0);
    }

    pub(super) fn put_wide(out: &mut Vec<u8>, holders: &NodeSet) {
        put_wide(out, holders);
    }

    /// Reads the beginning of a body.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &'a [u8]) -> Result<Answer<'a>, WireError> {
        let mut r = Reader::new(body);
        let (serial, state) = (r.u16()?, r.u8()?);
        if state > 1 {
            return Err(bad("state of a batch"));
        }
        Ok(Answer { serial, is_done: state == 1, brought: r.rest() })
    }

    /// Hands out what the commands of its request, on `unit`, brought, in their order.
    ///
    /// # Errors
    /// When it does not answer these commands; then what comes before the error was handed out.
    pub fn each(&self, unit: UnitAt, commands: &[Command], mut take: impl FnMut(Brought<'a>)) -> Result<(), WireError> {
        let mut r = Reader::new(self.brought);
        for command in commands.iter().filter(|_| self.is_done) {
            match command {
                Command::FetchAndSet => take(Brought::Entry(Entry(r.u16()?))),
                Command::GetData => take(Brought::Data(r.take(unit.bytes())?)),
                Command::GetWide => take(Brought::Wide(take_wide(&mut r)?)),
                _ => {}
            }
        }
        r.finish()
    }
}
