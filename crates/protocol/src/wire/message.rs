//! The messages of coherence and synchronisation: what the bytes behind the header mean.
//!
//! A message is a borrowed view: parsing copies nothing, and a unit's data goes from the datagram straight
//! into memory. Types below 16 belong to the link and to start-up.

use crate::coherence::pages::kept_diffs::{INTERVAL_STAMP_MAX, Stamp};
use crate::ids::{Channel, FlagId, LockId, NodeId, ObjectId, Seq, Slot, UnitId};
use crate::sync::deal::BatchRequest;
use crate::sync::mismatch::Apart;
use crate::wire::bytes::{Put, Reader, WireError};
use crate::wire::header::MsgType;

/// What a requester wants of a unit, and what it is granted: a shared copy or the only, writable one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Want {
    /// A copy to read (state S).
    Shared,
    /// The only copy, to read and write (state M).
    Modified,
}

/// A request that awaits its reply: the channel that sent it and the request's sequence number. Whoever holds
/// the ticket may answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket {
    /// Who waits.
    pub channel: Channel,
    /// For the answer to which of its requests.
    pub seq: Seq,
}

/// What one node says at a barrier: its kind must be the same on every node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Collective {
    /// Which call this is (barrier, reduction, creation of an object, end of the program).
    pub kind: u8,
    /// What must agree besides: the reduction's operator and length, a hash of the object's shape.
    pub detail: u64,
}

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $code:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$each])* $variant = $code,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            fn take(r: &mut Reader<'_>) -> Result<$name, WireError> {
                let code = r.u8()?;
                Self::ALL.iter().copied().find(|v| *v as u8 == code).ok_or(WireError::BadValue(stringify!($name)))
            }
        }
    };
}

coded! {
    /// What a thread asks the manager of a semaphore, condition variable or reader-writer lock for.
    SyncRequest {
        /// One from a semaphore, however long it takes.
        SemWait = 1,
        /// One from a semaphore, if there is one now.
        SemTryWait = 2,
        /// To be among a condition's waiters.
        CondJoin = 3,
        /// A signal of a condition whose waiters the thread has joined.
        CondAwait = 4,
        /// A reader-writer lock, to read.
        ReadLock = 5,
        /// A reader-writer lock, to write.
        WriteLock = 6,
        /// A barrier of some threads to open; goes as [`Message::Meet`].
        SubsetBarrier = 7,
        /// A semaphore to have one, which stays.
        SemPass = 8,
        /// That a semaphore has one more. What the thread's node tells by that comes in place of what it has seen.
        SemGive = 9,
        /// That a semaphore has none.
        SemReset = 10,
        /// A reader-writer lock, to read, if nobody must be waited for.
        TryReadLock = 11,
        /// A reader-writer lock, to write, if nobody must be waited for.
        TryWriteLock = 12,
    }
}

coded! {
    /// What a thread tells the manager of a semaphore, condition variable or reader-writer lock.
    SyncUpdate {
        /// A semaphore has one more.
        SemPost = 1,
        /// A condition's first waiter is to be woken.
        CondSignal = 2,
        /// All of a condition's waiters are to be woken.
        CondBroadcast = 3,
        /// A reader has left.
        ReadUnlock = 4,
        /// The writer has left.
        WriteUnlock = 5,
    }
}

coded! {
    /// Whether anybody hears a node's signals of the conditions that another manages.
    SignalInterest {
        /// Nobody waits: they need not be sent.
        Nobody = 1,
        /// Somebody is about to wait: they must be, from now on.
        Somebody = 2,
        /// That was understood.
        Understood = 3,
    }
}

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        /// The numbers of the message types.
        pub mod types {
            use super::MsgType;
            $($(#[$doc])* pub const $name: MsgType = MsgType($value);)*
        }
    };
}

types! {
    /// A node wants a unit.
    GET = 16;
    /// The home passes a request on to a node that has the unit.
    FORWARD = 17;
    /// The home takes a shared copy away.
    INVALIDATE = 18;
    /// A node gives its copy back.
    GIVE_BACK = 19;
    /// A unit's bytes, with the state they grant.
    DATA = 20;
    /// State M for a node that has the bytes already.
    GRANT = 21;
    /// A forwarded request was served.
    FORWARD_DONE = 22;
    /// A copy is gone.
    INVALIDATE_DONE = 23;
    /// Read at the owner.
    OWNER_READ = 24;
    /// What was read there.
    OWNER_VALUE = 25;
    /// Write at the owner.
    OWNER_WRITE = 26;
    /// It was written.
    OWNER_DONE = 27;
    /// Unreliable news of a write (engine `broadcast`).
    UPDATE = 28;
    /// The home has what was given back.
    GIVE_BACK_DONE = 29;
    /// A node wants a lock.
    LOCK_REQUEST = 32;
    /// The manager passes a request on to the last in the queue.
    LOCK_FORWARD = 33;
    /// The lock's token.
    LOCK_GRANT = 34;
    /// A node wants the tokens of many locks, although none of its threads waits for them yet.
    LOCK_WANTS = 38;
    /// Tokens that were wanted so.
    LOCK_TOKENS = 39;
    /// A node has a lock's token, and wants to know what it did not bring.
    CATCH_UP = 44;
    /// What that node has written.
    CAUGHT_UP = 45;
    /// Raise a flag.
    FLAG_SET = 35;
    /// Wait for a flag.
    FLAG_WAIT = 36;
    /// The flag is up.
    FLAG_UP = 37;
    /// A node has arrived at a barrier.
    ARRIVE = 40;
    /// An early arrival was noted; no need to repeat it soon.
    NOTED = 41;
    /// The barrier is open (from the parent in a tree).
    RELEASE = 42;
    /// Calls at a barrier do not go together.
    APART = 43;
    /// A program's own message to a thread.
    USER = 48;
    /// A thread wants something of a semaphore, condition variable or reader-writer lock.
    ASK = 50;
    /// Whether it got it.
    ANSWER = 51;
    /// Something is released: a semaphore posted, a condition signalled, a reader-writer lock unlocked.
    TELL = 52;
    /// A thread has come to a barrier of some threads.
    MEET = 53;
    /// Whether anybody hears signals of a condition, and of those that stand with it in one shard. The manager counts
    /// what it says.
    HEARS = 54;
    /// A node wants items of a loop.
    DEAL = 55;
    /// The items.
    DEALT = 56;
    /// A node wants pages.
    FETCH = 64;
    /// The pages.
    PAGES = 65;
    /// What changed in pages, for their home.
    DIFFS = 66;
    /// News of an allocation.
    REGION = 67;
    /// The news was heard.
    REGION_HEARD = 68;
    /// An allocation is to be freed, by the node that owns it.
    FREE = 70;
    /// Whether it was.
    FREED = 71;
    /// Unreliable: pages that their home sends unasked, as a barrier comes.
    PUSH = 72;
    /// Unreliable: pages that were sent so and not used.
    PUSH_UNUSED = 73;
    /// An operation on a word of a page, for its home.
    ATOMIC = 74;
    /// What the word held before.
    ATOMIC_DONE = 75;
    /// A node wants what the receiver wrote to pages whose diffs stay with their writers.
    FETCH_DIFFS = 80;
    /// What it wrote.
    KEPT_DIFFS = 81;
    /// A node wants copies of such pages of which the receiver is the manager.
    FETCH_BASE = 82;
    /// The copies.
    BASE = 83;
    /// Unreliable, to a set: a node wants what some of its members wrote to a page, and may say what it wrote itself.
    DIFFS_ASKED = 84;
    /// Unreliable, to a set: what the sender wrote to a page.
    DIFFS_TOLD = 85;
    /// One-sided operations on the receiver's memory of lines, emulated.
    REMOTE = 76;
    /// What they brought.
    REMOTE_DONE = 77;
    /// A node wants to know how the receiver's memory of lines is reached without it.
    INVITE = 78;
    /// How it is.
    INVITATION = 79;
}

/// A message of coherence or synchronisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the fields carry the names of what they are; the types' table above says the rest
pub enum Message<'a> {
    Get { unit: UnitId, want: Want },
    Forward { unit: UnitId, want: Want, as_owner: bool, requester: Option<Ticket> },
    Invalidate { unit: UnitId, send_data: bool },
    Data { unit: UnitId, grant: Want, bytes: &'a [u8] },
    Grant { unit: UnitId },
    ForwardDone { unit: UnitId },
    InvalidateDone { unit: UnitId, checksum: u64, bytes: &'a [u8] },
    GiveBack { unit: UnitId, bytes: &'a [u8] },
    GiveBackDone { unit: UnitId },
    OwnerRead { unit: UnitId, offset: u32, len: u32 },
    OwnerValue { unit: UnitId, offset: u32, bytes: &'a [u8] },
    OwnerWrite { unit: UnitId, offset: u32, bytes: &'a [u8] },
    OwnerDone { unit: UnitId },
    Update { unit: UnitId, offset: u32, bytes: &'a [u8] },
    LockRequest { lock: LockId, knowledge: &'a [u8] },
    LockForward { lock: LockId, requester: Option<Ticket>, knowledge: &'a [u8] },
    LockGrant { lock: LockId, payload: &'a [u8] },
    LockWants { of: NodeId, queued: bool, entries: &'a [u8] },
    LockTokens { entries: &'a [u8] },
    CatchUp { lock: LockId, knowledge: &'a [u8] },
    CaughtUp { lock: LockId, payload: &'a [u8] },
    FlagSet { flag: FlagId, value: u64, payload: &'a [u8] },
    FlagWait { flag: FlagId, value: u64, knowledge: &'a [u8] },
    FlagUp { flag: FlagId, value: u64, payload: &'a [u8] },
    Arrive { epoch: u32, repeated: bool, elsewhere: bool, what: Collective, payload: &'a [u8], notices: &'a [u8] },
    Noted { epoch: u32 },
    Release { epoch: u32, what: Collective, payload: &'a [u8], notices: &'a [u8] },
    Apart { epoch: u32, apart: Apart },
    User { thread: u16, bytes: &'a [u8] },
    Ask { request: SyncRequest, name: u64, knowledge: &'a [u8] },
    Answer { request: SyncRequest, name: u64, slot: Slot, yes: bool, payload: &'a [u8] },
    Tell { update: SyncUpdate, name: u64, payload: &'a [u8] },
    Meet { name: u64, threads: u32, payload: &'a [u8], knowledge: &'a [u8] },
    Hears { name: u64, serial: u32, interest: SignalInterest },
    Deal { number: u64, wanted: BatchRequest },
    Dealt { fine: bool, low: u64, high: u64 },
    Fetch { body: &'a [u8] },
    Pages { body: &'a [u8] },
    Diffs { body: &'a [u8] },
    Region { body: &'a [u8] },
    RegionHeard,
    Free { page: u32, offset: u32, stamp: Stamp, needs: &'a [u8] },
    Freed { fine: bool },
    Push { body: &'a [u8] },
    PushUnused { body: &'a [u8] },
    Atomic { body: &'a [u8] },
    AtomicDone { body: &'a [u8] },
    FetchDiffs { body: &'a [u8] },
    KeptDiffs { body: &'a [u8] },
    FetchBase { body: &'a [u8] },
    Base { body: &'a [u8] },
    DiffsAsked { body: &'a [u8] },
    DiffsTold { body: &'a [u8] },
    Remote { body: &'a [u8] },
    RemoteDone { body: &'a [u8] },
    Invite,
    Invitation { body: &'a [u8] },
}

fn put_unit(out: &mut Vec<u8>, unit: UnitId) {
    out.put_u32(unit.object.0);
    out.put_u32(unit.index);
}

fn take_unit(r: &mut Reader<'_>) -> Result<UnitId, WireError> {
    Ok(UnitId { object: ObjectId(r.u32()?), index: r.u32()? })
}

fn put_want(out: &mut Vec<u8>, want: Want) {
    out.put_u8(match want {
        Want::Shared => 1,
        Want::Modified => 2,
    });
}

fn take_want(r: &mut Reader<'_>) -> Result<Want, WireError> {
    match r.u8()? {
        1 => Ok(Want::Shared),
        2 => Ok(Want::Modified),
        _ => Err(WireError::BadValue("wanted state")),
    }
}

fn take_bool(r: &mut Reader<'_>) -> Result<bool, WireError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::BadValue("boolean")),
    }
}

/// The stamp of an interval whose diffs stay with their writer.
fn take_interval(r: &mut Reader<'_>) -> Result<Stamp, WireError> {
    Some(r.var()?).filter(|stamp| *stamp <= INTERVAL_STAMP_MAX).ok_or(WireError::BadValue("stamp"))
}

/// Of two bits of a byte, the lower one first.
fn take_two_bools(r: &mut Reader<'_>) -> Result<[bool; 2], WireError> {
    match r.u8()? {
        bits @ 0..4 => Ok([bits & 1 != 0, bits & 2 != 0]),
        _ => Err(WireError::BadValue("booleans")),
    }
}

fn put_ticket(out: &mut Vec<u8>, ticket: Option<Ticket>) {
    match ticket {
        None => out.put_u8(0),
        Some(ticket) => {
            out.put_u8(1);
            out.put_u32(ticket.channel.number());
            out.put_u64(ticket.seq.0);
        }
    }
}

fn take_ticket(r: &mut Reader<'_>) -> Result<Option<Ticket>, WireError> {
    if !take_bool(r)? {
        return Ok(None);
    }
    let channel = Channel::from_number(r.u32()?).ok_or(WireError::BadValue("channel"))?;
    let seq = Seq(r.u64()?);
    if seq.channel() != Some(channel) || seq.is_free() {
        return Err(WireError::BadValue("ticket"));
    }
    Ok(Some(Ticket { channel, seq }))
}

fn put_collective(out: &mut Vec<u8>, what: Collective) {
    out.put_u8(what.kind);
    out.put_u64(what.detail);
}

fn take_collective(r: &mut Reader<'_>) -> Result<Collective, WireError> {
    Ok(Collective { kind: r.u8()?, detail: r.u64()? })
}

/// The numbers of a reduction with their length in front, then write notices.
fn put_said(out: &mut Vec<u8>, payload: &[u8], notices: &[u8]) {
    out.put_u16(payload.len() as u16);
    out.put_bytes(payload);
    out.put_bytes(notices);
}

fn take_said<'a>(r: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), WireError> {
    let len = usize::from(r.u16()?);
    Ok((r.take(len)?, r.rest()))
}

impl<'a> Message<'a> {
    /// The message's type.
    pub fn ty(&self) -> MsgType {
        match self {
            Message::Get { .. } => types::GET,
            Message::Forward { .. } => types::FORWARD,
            Message::Invalidate { .. } => types::INVALIDATE,
            Message::Data { .. } => types::DATA,
            Message::Grant { .. } => types::GRANT,
            Message::ForwardDone { .. } => types::FORWARD_DONE,
            Message::InvalidateDone { .. } => types::INVALIDATE_DONE,
            Message::GiveBack { .. } => types::GIVE_BACK,
            Message::GiveBackDone { .. } => types::GIVE_BACK_DONE,
            Message::OwnerRead { .. } => types::OWNER_READ,
            Message::OwnerValue { .. } => types::OWNER_VALUE,
            Message::OwnerWrite { .. } => types::OWNER_WRITE,
            Message::OwnerDone { .. } => types::OWNER_DONE,
            Message::Update { .. } => types::UPDATE,
            Message::LockRequest { .. } => types::LOCK_REQUEST,
            Message::LockForward { .. } => types::LOCK_FORWARD,
            Message::LockGrant { .. } => types::LOCK_GRANT,
            Message::LockWants { .. } => types::LOCK_WANTS,
            Message::LockTokens { .. } => types::LOCK_TOKENS,
            Message::CatchUp { .. } => types::CATCH_UP,
            Message::CaughtUp { .. } => types::CAUGHT_UP,
            Message::FlagSet { .. } => types::FLAG_SET,
            Message::FlagWait { .. } => types::FLAG_WAIT,
            Message::FlagUp { .. } => types::FLAG_UP,
            Message::Arrive { .. } => types::ARRIVE,
            Message::Noted { .. } => types::NOTED,
            Message::Release { .. } => types::RELEASE,
            Message::Apart { .. } => types::APART,
            Message::User { .. } => types::USER,
            Message::Ask { .. } => types::ASK,
            Message::Answer { .. } => types::ANSWER,
            Message::Tell { .. } => types::TELL,
            Message::Meet { .. } => types::MEET,
            Message::Hears { .. } => types::HEARS,
            Message::Deal { .. } => types::DEAL,
            Message::Dealt { .. } => types::DEALT,
            Message::Fetch { .. } => types::FETCH,
            Message::Pages { .. } => types::PAGES,
            Message::Diffs { .. } => types::DIFFS,
            Message::Region { .. } => types::REGION,
            Message::RegionHeard => types::REGION_HEARD,
            Message::Free { .. } => types::FREE,
            Message::Freed { .. } => types::FREED,
            Message::Push { .. } => types::PUSH,
            Message::PushUnused { .. } => types::PUSH_UNUSED,
            Message::Atomic { .. } => types::ATOMIC,
            Message::AtomicDone { .. } => types::ATOMIC_DONE,
            Message::FetchDiffs { .. } => types::FETCH_DIFFS,
            Message::KeptDiffs { .. } => types::KEPT_DIFFS,
            Message::FetchBase { .. } => types::FETCH_BASE,
            Message::Base { .. } => types::BASE,
            Message::DiffsAsked { .. } => types::DIFFS_ASKED,
            Message::DiffsTold { .. } => types::DIFFS_TOLD,
            Message::Remote { .. } => types::REMOTE,
            Message::RemoteDone { .. } => types::REMOTE_DONE,
            Message::Invite => types::INVITE,
            Message::Invitation { .. } => types::INVITATION,
        }
    }

    /// Appends the message's body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Message::Get { unit, want } => {
                put_unit(out, unit);
                put_want(out, want);
            }
            Message::Forward { unit, want, as_owner, requester } => {
                put_unit(out, unit);
                put_want(out, want);
                out.put_u8(u8::from(as_owner));
                put_ticket(out, requester);
            }
            Message::Invalidate { unit, send_data } => {
                put_unit(out, unit);
                out.put_u8(u8::from(send_data));
            }
            Message::Data { unit, grant, bytes } => {
                put_unit(out, unit);
                put_want(out, grant);
                out.put_bytes(bytes);
            }
            Message::Grant { unit }
            | Message::ForwardDone { unit }
            | Message::GiveBackDone { unit }
            | Message::OwnerDone { unit } => put_unit(out, unit),
            Message::GiveBack { unit, bytes } => {
                put_unit(out, unit);
                out.put_bytes(bytes);
            }
            Message::InvalidateDone { unit, checksum, bytes } => {
                put_unit(out, unit);
                out.put_u64(checksum);
                out.put_bytes(bytes);
            }
            Message::OwnerRead { unit, offset, len } => {
                put_unit(out, unit);
                out.put_u32(offset);
                out.put_u32(len);
            }
            Message::OwnerValue { unit, offset, bytes }
            | Message::OwnerWrite { unit, offset, bytes }
            | Message::Update { unit, offset, bytes } => {
                put_unit(out, unit);
                out.put_u32(offset);
                out.put_bytes(bytes);
            }
            Message::LockRequest { lock, knowledge } | Message::CatchUp { lock, knowledge } => {
                out.put_u64(lock.0);
                out.put_bytes(knowledge);
            }
            Message::LockForward { lock, requester, knowledge } => {
                out.put_u64(lock.0);
                put_ticket(out, requester);
                out.put_bytes(knowledge);
            }
            Message::LockGrant { lock, payload } | Message::CaughtUp { lock, payload } => {
                out.put_u64(lock.0);
                out.put_bytes(payload);
            }
            Message::LockWants { of, queued, entries } => {
                out.put_u16(of.0);
                out.put_u8(u8::from(queued));
                out.put_bytes(entries);
            }
            Message::LockTokens { entries } => out.put_bytes(entries),
            Message::FlagSet { flag, value, payload } | Message::FlagUp { flag, value, payload } => {
                out.put_u64(flag.0);
                out.put_u64(value);
                out.put_bytes(payload);
            }
            Message::FlagWait { flag, value, knowledge } => {
                out.put_u64(flag.0);
                out.put_u64(value);
                out.put_bytes(knowledge);
            }
            Message::Arrive { epoch, repeated, elsewhere, what, payload, notices } => {
                out.put_u32(epoch);
                out.put_u8(u8::from(repeated) | u8::from(elsewhere) << 1);
                put_collective(out, what);
                put_said(out, payload, notices);
            }
            Message::Noted { epoch } => out.put_u32(epoch),
            Message::Release { epoch, what, payload, notices } => {
                out.put_u32(epoch);
                put_collective(out, what);
                put_said(out, payload, notices);
            }
            Message::Apart { epoch, apart: Apart(calls) } => {
                out.put_u32(epoch);
                for (node, what) in calls {
                    out.put_u16(node.0);
                    put_collective(out, what);
                }
            }
            Message::User { thread, bytes } => {
                out.put_u16(thread);
                out.put_bytes(bytes);
            }
            Message::Ask { request, name, knowledge } => {
                out.put_u8(request as u8);
                out.put_u64(name);
                out.put_bytes(knowledge);
            }
            Message::Answer { request, name, slot, yes, payload } => {
                out.put_u8(request as u8);
                out.put_u64(name);
                out.put_u16(slot.0);
                out.put_u8(u8::from(yes));
                out.put_bytes(payload);
            }
            Message::Tell { update, name, payload } => {
                out.put_u8(update as u8);
                out.put_u64(name);
                out.put_bytes(payload);
            }
            Message::Hears { name, serial, interest } => {
                out.put_u64(name);
                out.put_u32(serial);
                out.put_u8(interest as u8);
            }
            Message::Meet { name, threads, payload, knowledge } => {
                out.put_u64(name);
                out.put_u32(threads);
                // A meeting is asked for with neither, and both are appended: the length comes last.
                out.put_u32(payload.len() as u32);
                out.put_bytes(payload);
                out.put_bytes(knowledge);
            }
            Message::Fetch { body }
            | Message::Pages { body }
            | Message::Diffs { body }
            | Message::Region { body }
            | Message::Push { body }
            | Message::PushUnused { body }
            | Message::Atomic { body }
            | Message::AtomicDone { body }
            | Message::FetchDiffs { body }
            | Message::KeptDiffs { body }
            | Message::FetchBase { body }
            | Message::Base { body }
            | Message::DiffsAsked { body }
            | Message::DiffsTold { body }
            | Message::Remote { body }
            | Message::RemoteDone { body }
            | Message::Invitation { body } => out.put_bytes(body),
            Message::Deal { number, wanted } => {
                out.put_u64(number);
                out.put_u64(wanted.total);
                out.put_u64(wanted.chunk);
                out.put_u64(wanted.chunks);
            }
            Message::Dealt { fine, low, high } => {
                out.put_u8(u8::from(fine));
                out.put_u64(low);
                out.put_u64(high);
            }
            Message::RegionHeard | Message::Invite => {}
            Message::Free { page, offset, stamp, needs } => {
                out.put_u32(page);
                out.put_u32(offset);
                out.put_var(stamp);
                out.put_bytes(needs);
            }
            Message::Freed { fine } => out.put_u8(u8::from(fine)),
        }
    }

    /// Reads the body of a message of type `ty`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; nothing from the network panics.
    pub fn parse(ty: MsgType, body: &'a [u8]) -> Result<Message<'a>, WireError> {
        let mut r = Reader::new(body);
        let message = match ty {
            types::GET => Message::Get { unit: take_unit(&mut r)?, want: take_want(&mut r)? },
            types::FORWARD => Message::Forward {
                unit: take_unit(&mut r)?,
                want: take_want(&mut r)?,
                as_owner: take_bool(&mut r)?,
                requester: take_ticket(&mut r)?,
            },
            types::INVALIDATE => Message::Invalidate { unit: take_unit(&mut r)?, send_data: take_bool(&mut r)? },
            types::DATA => Message::Data { unit: take_unit(&mut r)?, grant: take_want(&mut r)?, bytes: r.rest() },
            types::GRANT => Message::Grant { unit: take_unit(&mut r)? },
            types::FORWARD_DONE => Message::ForwardDone { unit: take_unit(&mut r)? },
            types::INVALIDATE_DONE => {
                Message::InvalidateDone { unit: take_unit(&mut r)?, checksum: r.u64()?, bytes: r.rest() }
            }
            types::GIVE_BACK => Message::GiveBack { unit: take_unit(&mut r)?, bytes: r.rest() },
            types::GIVE_BACK_DONE => Message::GiveBackDone { unit: take_unit(&mut r)? },
            types::OWNER_READ => Message::OwnerRead { unit: take_unit(&mut r)?, offset: r.u32()?, len: r.u32()? },
            types::OWNER_VALUE => Message::OwnerValue { unit: take_unit(&mut r)?, offset: r.u32()?, bytes: r.rest() },
            types::OWNER_WRITE => Message::OwnerWrite { unit: take_unit(&mut r)?, offset: r.u32()?, bytes: r.rest() },
            types::OWNER_DONE => Message::OwnerDone { unit: take_unit(&mut r)? },
            types::UPDATE => Message::Update { unit: take_unit(&mut r)?, offset: r.u32()?, bytes: r.rest() },
            types::LOCK_REQUEST => Message::LockRequest { lock: LockId(r.u64()?), knowledge: r.rest() },
            types::LOCK_FORWARD => {
                Message::LockForward { lock: LockId(r.u64()?), requester: take_ticket(&mut r)?, knowledge: r.rest() }
            }
            types::LOCK_GRANT => Message::LockGrant { lock: LockId(r.u64()?), payload: r.rest() },
            types::LOCK_WANTS => {
                Message::LockWants { of: NodeId(r.u16()?), queued: take_bool(&mut r)?, entries: r.rest() }
            }
            types::LOCK_TOKENS => Message::LockTokens { entries: r.rest() },
            types::CATCH_UP => Message::CatchUp { lock: LockId(r.u64()?), knowledge: r.rest() },
            types::CAUGHT_UP => Message::CaughtUp { lock: LockId(r.u64()?), payload: r.rest() },
            types::FLAG_SET => Message::FlagSet { flag: FlagId(r.u64()?), value: r.u64()?, payload: r.rest() },
            types::FLAG_WAIT => Message::FlagWait { flag: FlagId(r.u64()?), value: r.u64()?, knowledge: r.rest() },
            types::FLAG_UP => Message::FlagUp { flag: FlagId(r.u64()?), value: r.u64()?, payload: r.rest() },
            types::ARRIVE => {
                let (epoch, [repeated, elsewhere], what) =
                    (r.u32()?, take_two_bools(&mut r)?, take_collective(&mut r)?);
                let (payload, notices) = take_said(&mut r)?;
                Message::Arrive { epoch, repeated, elsewhere, what, payload, notices }
            }
            types::NOTED => Message::Noted { epoch: r.u32()? },
            types::RELEASE => {
                let (epoch, what) = (r.u32()?, take_collective(&mut r)?);
                let (payload, notices) = take_said(&mut r)?;
                Message::Release { epoch, what, payload, notices }
            }
            types::APART => {
                let epoch = r.u32()?;
                let mut call = || Ok((NodeId(r.u16()?), take_collective(&mut r)?));
                Message::Apart { epoch, apart: Apart([call()?, call()?]) }
            }
            types::USER => Message::User { thread: r.u16()?, bytes: r.rest() },
            types::ASK => Message::Ask { request: SyncRequest::take(&mut r)?, name: r.u64()?, knowledge: r.rest() },
            types::ANSWER => Message::Answer {
                request: SyncRequest::take(&mut r)?,
                name: r.u64()?,
                slot: Slot(r.u16()?),
                yes: take_bool(&mut r)?,
                payload: r.rest(),
            },
            types::DEAL => Message::Deal {
                number: r.u64()?,
                wanted: BatchRequest { total: r.u64()?, chunk: r.u64()?, chunks: r.u64()? },
            },
            types::DEALT => Message::Dealt { fine: take_bool(&mut r)?, low: r.u64()?, high: r.u64()? },
            types::FETCH => Message::Fetch { body: r.rest() },
            types::PAGES => Message::Pages { body: r.rest() },
            types::DIFFS => Message::Diffs { body: r.rest() },
            types::REGION => Message::Region { body: r.rest() },
            types::REGION_HEARD => Message::RegionHeard,
            types::FREE => {
                Message::Free { page: r.u32()?, offset: r.u32()?, stamp: take_interval(&mut r)?, needs: r.rest() }
            }
            types::FREED => Message::Freed { fine: take_bool(&mut r)? },
            types::PUSH => Message::Push { body: r.rest() },
            types::PUSH_UNUSED => Message::PushUnused { body: r.rest() },
            types::ATOMIC => Message::Atomic { body: r.rest() },
            types::ATOMIC_DONE => Message::AtomicDone { body: r.rest() },
            types::FETCH_DIFFS => Message::FetchDiffs { body: r.rest() },
            types::KEPT_DIFFS => Message::KeptDiffs { body: r.rest() },
            types::FETCH_BASE => Message::FetchBase { body: r.rest() },
            types::BASE => Message::Base { body: r.rest() },
            types::DIFFS_ASKED => Message::DiffsAsked { body: r.rest() },
            types::DIFFS_TOLD => Message::DiffsTold { body: r.rest() },
            types::REMOTE => Message::Remote { body: r.rest() },
            types::REMOTE_DONE => Message::RemoteDone { body: r.rest() },
            types::INVITE => Message::Invite,
            types::INVITATION => Message::Invitation { body: r.rest() },
            types::MEET => {
                let (name, threads, length) = (r.u64()?, r.u32()?, r.u32()? as usize);
                Message::Meet { name, threads, payload: r.take(length)?, knowledge: r.rest() }
            }
            types::HEARS => {
                Message::Hears { name: r.u64()?, serial: r.u32()?, interest: SignalInterest::take(&mut r)? }
            }
            types::TELL => Message::Tell { update: SyncUpdate::take(&mut r)?, name: r.u64()?, payload: r.rest() },
            other => return Err(WireError::BadType(other.0)),
        };
        r.finish()?;
        Ok(message)
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
