//! Writes inputs for the victim: datagrams as honest nodes would send them, then damaged by bits, lengths and splices.

use super::victim_node::{UNIT_BYTES, UNITS};
use super::{JOB, NODES, PROG, SLOTS, append};
use comem_protocol::auth::Sealer;
use comem_protocol::coherence::direct::Entry;
use comem_protocol::coherence::direct::remote::{Command, Request, UnitAt};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::coherence::pages::PAGE_BYTES;
use comem_protocol::coherence::pages::kept_diffs::clock;
use comem_protocol::coherence::pages::kept_diffs::runs::{StampMap, StampRun};
use comem_protocol::coherence::pages::kept_diffs::wire::{
    DiffAsk, put_base, put_base_asks, put_collected, put_diff_asks, put_diffs, put_freed,
};
use comem_protocol::coherence::pages::multicast::carry;
use comem_protocol::coherence::pages::multicast::wire::{
    AskedWriter, put_set_ask, put_told, put_told_collected, put_told_diffs, put_told_freed, put_too_long,
};
use comem_protocol::coherence::pages::wire::{Push, RequiredDiff, put_unused};
use comem_protocol::faults::Rng;
use comem_protocol::ids::{Channel, FlagId, LockId, NodeId, ObjectId, Seq, Slot, UnitId};
use comem_protocol::node::identity::{Identity, Layout};
use comem_protocol::node::message::{Answer, Hello, Intent, Join, Ready, StartMessage, Verdict};
use comem_protocol::selective::{self, Members};
use comem_protocol::sync::deal::BatchRequest;
use comem_protocol::sync::lock_batch::LockBatch;
use comem_protocol::sync::mismatch::Apart;
use comem_protocol::wire::header::{Flags, HeaderRepr, MsgType};
use comem_protocol::wire::message::{Collective, Message, SignalInterest, SyncRequest, SyncUpdate, Ticket, Want};

/// Kinds of messages that [`Author::message`] writes.
const KINDS: u64 = 46;
/// The kinds with pages that are sent unasked, and that were of no use.
const PUSH: u64 = 25;
const UNUSED: u64 = 26;
const WANTS: u64 = 27;
const TOKENS: u64 = 28;
const HEARS: u64 = 29;
const CATCH_UP: u64 = 30;
const CAUGHT_UP: u64 = 31;
const APART: u64 = 32;
const DEAL: u64 = 33;
const DEALT: u64 = 34;
const ATOMIC: u64 = 35;
const ATOMIC_DONE: u64 = 36;
const REMOTE: u64 = 37;
const REMOTE_DONE: u64 = 38;
const FETCH_DIFFS: u64 = 40;
const KEPT_DIFFS: u64 = 41;
const FETCH_BASE: u64 = 42;
const BASE: u64 = 43;
const DIFFS_ASKED: u64 = 44;
const DIFFS_TOLD: u64 = 45;
const LOCK_GRANT: u64 = 14;

/// A source of inputs, all from one seed.
pub struct Author {
    rng: Rng,
    /// The next guarded and free number of each remote channel.
    counters: [[u64; 2]; NODES * SLOTS],
    /// An earlier input, to splice with.
    earlier: Vec<u8>,
}

impl Author {
    /// The author of a seed.
    pub fn new(seed: u64) -> Author {
        Author { rng: Rng::new(seed), counters: [[0; 2]; NODES * SLOTS], earlier: Vec::new() }
    }

    /// An input of a few datagrams, most of them damaged.
    pub fn write(&mut self) -> Vec<u8> {
        let mut input = Vec::new();
        for _ in 0..self.rng.between(1, 6) {
            self.write_honestly(&mut input);
        }
        for _ in 0..self.rng.below(5) {
            self.damage(&mut input);
        }
        if self.rng.below(8) == 0 {
            self.earlier.clone_from(&input);
        }
        input
    }

    /// Appends a datagram that an honest node might send.
    pub fn write_honestly(&mut self, input: &mut Vec<u8>) {
        let from = self.channel();
        match self.rng.below(11) {
            10 => self.sets(input, from.node),
            0 => {
                let start = self.start_message();
                let body = start.emit(1);
                let flags = Flags::default();
                self.packet(input, from, true, flags, start.ty(), &body);
            }
            1 => self.ack(input, from),
            2 => self.resend(input, from),
            3 | 4 => self.reply(input, from),
            kind => self.message_packets(input, from, kind < 7),
        }
    }

    /// A message to sets of nodes: one datagram, or fragments of which some stay away.
    fn sets(&mut self, input: &mut Vec<u8>, from: NodeId) {
        let author = selective::Author::new((from, PROG, JOB), Sealer::default(), 200);
        let mut members = || {
            let base = [0, 0, 0, 1, 60_000][self.rng.below(5) as usize];
            let bits = if self.rng.below(5) == 0 { self.rng.next_u64() } else { self.rng.below(1 << NODES) };
            Members { base, bits }
        };
        let named = (members(), members());
        let payload = match self.rng.below(3) {
            0 => self.set_ask(),
            1 => self.told(),
            _ => vec![7; self.rng.below(700) as usize],
        };
        let mut bytes = Vec::new();
        let first = if self.rng.below(6) == 0 {
            self.old_counter()
        } else {
            let counter = &mut self.counters[from.index() * SLOTS][1];
            *counter += 8;
            *counter
        };
        let segment = author.emit(first, named, &payload, &mut bytes).expect("a short message");
        for datagram in bytes.chunks(segment).filter(|_| self.rng.below(9) > 0) {
            append(input, datagram);
        }
    }

    /// A channel of another node.
    fn channel(&mut self) -> Channel {
        let node = self.rng.between(1, NODES as u64 - 1) as u16;
        Channel { node: NodeId(node), slot: Slot(self.rng.below(SLOTS as u64) as u16) }
    }

    /// A number that an earlier packet of a channel may have had; mostly a small one.
    fn old_counter(&mut self) -> u64 {
        let bound = [4, 64, 5000][self.rng.below(3) as usize];
        self.rng.below(bound)
    }

    fn packet(&mut self, input: &mut Vec<u8>, from: Channel, free: bool, flags: Flags, ty: MsgType, payload: &[u8]) {
        let counter = &mut self.counters[from.node.index() * SLOTS + from.slot.index()][usize::from(free)];
        let seq = if free { Seq::free(from, *counter) } else { Seq::guarded(from, *counter) };
        *counter += 1;
        self.numbered(input, seq, 0, flags, ty, payload);
    }

    fn numbered(&mut self, input: &mut Vec<u8>, seq: Seq, frag: u8, flags: Flags, ty: MsgType, payload: &[u8]) {
        let retrans = self.rng.below(3) as u8;
        let header = HeaderRepr { prog: PROG, ty, flags, len: payload.len() as u16, retrans, frag, seq };
        let mut datagram = Vec::new();
        header.emit(&mut datagram);
        datagram.extend_from_slice(payload);
        append(input, &datagram);
    }

    fn message_packets(&mut self, input: &mut Vec<u8>, from: Channel, request: bool) {
        let kind = self.rng.below(KINDS);
        let bytes = match kind {
            PUSH | UNUSED => self.pages(kind),
            WANTS | TOKENS => self.locks(),
            REMOTE => self.operations(),
            FETCH_DIFFS..=BASE => self.kept_diffs(kind),
            DIFFS_ASKED => self.set_ask(),
            DIFFS_TOLD => self.told(),
            LOCK_GRANT if self.rng.below(2) == 0 => self.carried(),
            _ => self.bytes(),
        };
        let message = self.message(kind, &bytes);
        let (mut body, flags) = (Vec::new(), Flags { ack_requested: request, ..Flags::default() });
        message.emit(&mut body);
        let delta: &[u8] = if request { &[0, 0] } else { &[] };
        if self.rng.below(8) > 0 || body.len() < 3 {
            let payload = [delta, &body].concat();
            // Sometimes a number of before: a repetition, or a collision.
            if self.rng.below(6) == 0 {
                let seq = Seq::guarded(from, self.old_counter());
                return self.numbered(input, seq, 0, flags, message.ty(), &payload);
            }
            return self.packet(input, from, false, flags, message.ty(), &payload);
        }
        let count = self.rng.between(2, body.len().min(5) as u64) as usize;
        let size = body.len().div_ceil(count);
        let fragments: Vec<&[u8]> = body.chunks(size).collect();
        let head = (fragments.len() as u32) << 24 | body.len() as u32;
        for (index, fragment) in fragments.iter().enumerate() {
            let payload = [delta, &head.to_be_bytes()[..], fragment].concat();
            let counter = &mut self.counters[from.node.index() * SLOTS + from.slot.index()][0];
            let seq = Seq::guarded(from, *counter);
            *counter += 1;
            self.numbered(input, seq, index as u8 + 1, flags, message.ty(), &payload);
        }
    }

    /// Locks, and what is said of each.
    fn locks(&mut self) -> Vec<u8> {
        let mut bundle = LockBatch::default();
        for _ in 0..self.rng.below(5) {
            let lock = LockId(self.rng.below(8));
            bundle.add(lock, &self.bytes());
        }
        let mut bytes = bundle.bytes().to_vec();
        if self.rng.below(8) == 0 {
            bytes.truncate(self.rng.below(bytes.len() as u64 + 1) as usize);
        }
        bytes
    }

    fn reply(&mut self, input: &mut Vec<u8>, from: Channel) {
        let kind = self.rng.below(KINDS);
        let bytes = if (FETCH_DIFFS..=BASE).contains(&kind) { self.kept_diffs(kind) } else { self.bytes() };
        let message = self.message(kind, &bytes);
        let asker = Channel { node: NodeId(0), slot: Slot(self.rng.below(SLOTS as u64) as u16) };
        let mut payload = Seq::guarded(asker, self.old_counter()).0.to_be_bytes().to_vec();
        message.emit(&mut payload);
        let flags = Flags { ack: true, nack: self.rng.below(9) == 0, ack_requested: false };
        self.packet(input, from, true, flags, message.ty(), &payload);
    }

    fn ack(&mut self, input: &mut Vec<u8>, from: Channel) {
        let asker = Channel { node: NodeId(0), slot: Slot(self.rng.below(SLOTS as u64) as u16) };
        let mut payload = Seq::guarded(asker, self.old_counter() / 64 * 64).0.to_be_bytes().to_vec();
        for _ in 0..self.rng.between(1, 5) {
            let all = self.rng.below(2) == 0;
            let word = if all { u64::MAX } else { self.rng.next_u64() };
            payload.extend_from_slice(&word.to_be_bytes());
        }
        let flags = Flags { ack: true, ..Flags::default() };
        self.packet(input, from, true, flags, MsgType::ACK, &payload);
    }

    fn resend(&mut self, input: &mut Vec<u8>, from: Channel) {
        let asker = self.channel();
        let mut payload = Seq::guarded(asker, self.old_counter()).0.to_be_bytes().to_vec();
        for _ in 0..self.rng.below(5) {
            payload.extend_from_slice(&self.rng.next_u64().to_be_bytes());
        }
        self.packet(input, from, true, Flags::default(), MsgType::RESEND, &payload);
    }

    /// Bytes of a length that means something somewhere.
    fn bytes(&mut self) -> Vec<u8> {
        let length = [0, 1, 4, 8, 16, UNIT_BYTES as u64, UNIT_BYTES as u64 + 1, 1400][self.rng.below(8) as usize];
        (0..length).map(|_| self.rng.next_u64() as u8).collect()
    }

    /// The body of a message about pages that were sent unasked.
    fn pages(&mut self, kind: u64) -> Vec<u8> {
        let mut body = Vec::new();
        let first = self.rng.below(9) as u32;
        let run = first..first + 1 + self.rng.below(2) as u32;
        if kind == UNUSED {
            put_unused(&mut body, std::slice::from_ref(&run));
            return body;
        }
        let applied = vec![RequiredDiff { writer: NodeId(1), serial: self.rng.below(4) }];
        let pages = run.len();
        Push { epoch: self.rng.below(5) as u32, applied, runs: [run].into_iter().collect() }.emit(&mut body);
        body.resize(body.len() + pages * PAGE_BYTES, first as u8);
        body
    }

    /// The body of a message about pages whose diffs stay with their writers, for a few units that may exist.
    fn kept_diffs(&mut self, kind: u64) -> Vec<u8> {
        let mut body = Vec::new();
        if kind == FETCH_BASE {
            let page = self.rng.below(18) as u32;
            put_base_asks(&mut body, self.rng.below(3) as u32, &[page]);
            return body;
        }
        for _ in 0..self.rng.between(1, 3) {
            let page = self.rng.below(18) as u32;
            let stamp = self.rng.below(9);
            let runs = self.runs();
            match (kind, self.rng.below(8)) {
                (FETCH_DIFFS, _) => put_diff_asks(&mut body, &[DiffAsk { page, since: stamp, need: stamp + 1 }]),
                (_, 0) => put_freed(&mut body, page),
                (KEPT_DIFFS, 1) => put_collected(&mut body, page, stamp),
                (KEPT_DIFFS, _) => {
                    let bytes = vec![page as u8; 4096];
                    let with_bytes = runs.iter().map(|run| (*run, &bytes[..(run.end - run.start) as usize]));
                    put_diffs(&mut body, page, stamp, with_bytes);
                }
                (_, way) => {
                    let had = [(NodeId(self.rng.below(NODES as u64) as u16), stamp)].into_iter().collect();
                    let bytes = (way > 2).then_some(2 * PAGE_BYTES);
                    put_base(&mut body, page, stamp % 2, (&had, &StampMap::of(runs)), bytes);
                    body.resize(body.len() + bytes.unwrap_or(0), page as u8);
                }
            }
        }
        body
    }

    /// Some bytes for runs.
    fn with_bytes(runs: &[StampRun]) -> impl Iterator<Item = (StampRun, &'static [u8])> + Clone + '_ {
        static NINES: [u8; 4096] = [9; 4096];
        runs.iter().map(|run| (*run, &NINES[..(run.end - run.start) as usize]))
    }

    /// The stamps between which diffs are all that a writer wrote.
    fn stamps(&mut self) -> (u64, u64) {
        let since = self.rng.below(6);
        (since, since + 1 + self.rng.below(9))
    }

    /// The body of an ask of a set, for a unit that may exist.
    fn set_ask(&mut self) -> Vec<u8> {
        let page = self.rng.below(18) as u32;
        let nodes = NODES as u64 + u64::from(self.rng.below(9) == 0);
        let mut node = || NodeId(self.rng.below(nodes) as u16);
        let mut asked = NodeSet::from_iter([NodeId(0)]);
        asked.insert(node());
        let mut told = NodeSet::from_iter([node()]);
        asked.iter().for_each(|node| _ = told.remove(node));
        let writers: Vec<AskedWriter> = asked
            .iter()
            .map(|node| {
                let (since, need) = self.stamps();
                AskedWriter { node, since, need }
            })
            .collect();
        let (runs, stamps, has_own) = (self.runs(), self.stamps(), self.rng.below(2) == 0);
        let mut body = Vec::new();
        put_set_ask(&mut body, (&asked, &told), page, &writers, has_own);
        if has_own {
            put_told_diffs(&mut body, stamps, Author::with_bytes(&runs));
        }
        body
    }

    /// The body of what a writer tells of a few units that may exist.
    fn told(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        for _ in 0..self.rng.between(1, 3) {
            let (page, runs, stamps) = (self.rng.below(18) as u32, self.runs(), self.stamps());
            match self.rng.below(8) {
                0 => put_told_collected(&mut body, page, stamps.1),
                1 => put_told_freed(&mut body, page, stamps.1),
                2 => put_too_long(&mut body, page, stamps.1),
                _ => put_told(&mut body, page, stamps, Author::with_bytes(&runs)),
            }
        }
        body
    }

    /// What a lock's token carries behind its notices.
    fn carried(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        if self.rng.below(2) == 0 {
            clock::put(&mut body, self.rng.below(9));
        }
        carry::begin(&mut body, self.rng.below(4));
        for _ in 0..self.rng.between(1, 3) {
            let (page, runs) = (self.rng.below(18) as u32, self.runs());
            let covers = [(NodeId(self.rng.below(NODES as u64) as u16), self.rng.below(9))].into_iter().collect();
            carry::put_unit(&mut body, page, &covers, Author::with_bytes(&runs));
        }
        body
    }

    /// Runs of bytes with stamps, in order.
    fn runs(&mut self) -> Vec<StampRun> {
        let (mut runs, mut at) = (Vec::new(), 0);
        for _ in 0..self.rng.below(5) {
            let start = at + self.rng.below(90) as u32;
            at = start + 1 + self.rng.below(40) as u32;
            runs.push(StampRun { start, end: at, stamp: 1 + self.rng.below(9) });
        }
        runs
    }

    /// One-sided operations on a unit that may exist.
    fn operations(&mut self) -> Vec<u8> {
        let holders = NodeSet::from_iter([NodeId(self.rng.below(NODES as u64 + 1) as u16)]);
        let commands = (0..self.rng.between(1, 5)).map(|_| match self.rng.below(9) {
            0 => Command::FetchAndSet,
            1 => Command::GetWide,
            2 => Command::GetData,
            3 => Command::PutMagic,
            4 => Command::PutMirrors(Entry::not_exclusive(true)),
            5 => Command::PutEntry(Entry::directory(self.rng.next_u64() as u8, false)),
            6 => Command::PutWide(holders.clone()),
            7 => Command::Quiesce,
            _ => Command::Pause(self.rng.below(400) as u16),
        });
        let commands = commands.collect();
        let lines = 1 << self.rng.below(3);
        let unit = UnitAt::new(self.rng.below(20) * u64::from(lines), lines).expect("an aligned unit");
        let mut body = Vec::new();
        Request { serial: self.rng.below(9) as u16, unit, commands }.emit(&mut body);
        body
    }

    fn unit(&mut self) -> UnitId {
        UnitId { object: ObjectId(self.rng.below(4) as u32), index: self.rng.below(u64::from(UNITS) + 1) as u32 }
    }

    /// A small number, or one as large as can be.
    fn number(&mut self) -> u64 {
        let small = self.rng.below(9);
        if self.rng.below(4) == 0 { u64::MAX - small } else { small }
    }

    fn want(&mut self) -> Want {
        if self.rng.below(2) == 0 { Want::Shared } else { Want::Modified }
    }

    fn requester(&mut self) -> Option<Ticket> {
        let channel = Channel { node: NodeId(self.rng.below(6) as u16), slot: Slot(self.rng.below(4) as u16) };
        let seq = Seq::guarded(channel, self.old_counter());
        (self.rng.below(4) > 0).then_some(Ticket { channel, seq })
    }

    fn collective(&mut self) -> Collective {
        Collective { kind: self.rng.below(5) as u8, detail: self.rng.below(3) }
    }

    /// A message of the kind given.
    fn message<'a>(&mut self, kind: u64, bytes: &'a [u8]) -> Message<'a> {
        let unit = self.unit();
        let offset = self.rng.below(40) as u32;
        let (lock, flag) = (LockId(self.rng.below(8)), FlagId(self.rng.below(8)));
        let (value, epoch) = (self.rng.below(9), self.rng.below(5) as u32);
        let few = &bytes[..bytes.len().min(UNIT_BYTES)];
        match kind {
            0 => Message::Get { unit, want: self.want() },
            1 => {
                let (want, as_owner) = (self.want(), self.rng.below(2) == 0);
                Message::Forward { unit, want, as_owner, requester: self.requester() }
            }
            2 => Message::Invalidate { unit, send_data: self.rng.below(2) == 0 },
            3 => Message::Data { unit, grant: self.want(), bytes: few },
            4 => Message::Grant { unit },
            5 => Message::ForwardDone { unit },
            6 => Message::InvalidateDone { unit, checksum: value, bytes: few },
            7 => Message::OwnerRead { unit, offset, len: self.rng.below(40) as u32 },
            8 => Message::OwnerValue { unit, offset, bytes },
            9 => Message::OwnerWrite { unit, offset, bytes },
            10 => Message::OwnerDone { unit },
            11 => Message::Update { unit, offset, bytes },
            12 => Message::LockRequest { lock, knowledge: bytes },
            13 => Message::LockForward { lock, requester: self.requester(), knowledge: bytes },
            LOCK_GRANT => Message::LockGrant { lock, payload: bytes },
            15 => Message::FlagSet { flag, value, payload: few },
            16 => Message::FlagWait { flag, value, knowledge: bytes },
            17 => Message::FlagUp { flag, value, payload: few },
            18 => {
                let (repeated, elsewhere, what) = (value > 4, value & 1 != 0, self.collective());
                Message::Arrive { epoch, repeated, elsewhere, what, payload: few, notices: &[] }
            }
            19 => Message::Noted { epoch },
            20 => Message::Release { epoch, what: self.collective(), payload: few, notices: bytes },
            21 => {
                let request = SyncRequest::ALL[self.rng.below(SyncRequest::ALL.len() as u64) as usize];
                Message::Ask { request, name: value, knowledge: bytes }
            }
            22 => {
                let request = SyncRequest::ALL[self.rng.below(SyncRequest::ALL.len() as u64) as usize];
                let slot = Slot(self.rng.below(SLOTS as u64) as u16);
                Message::Answer { request, name: value, slot, yes: epoch > 1, payload: few }
            }
            23 => {
                let update = SyncUpdate::ALL[self.rng.below(SyncUpdate::ALL.len() as u64) as usize];
                Message::Tell { update, name: value, payload: few }
            }
            24 => {
                let (knowledge, threads) = (bytes, self.rng.below(5) as u32);
                Message::Meet { name: value, threads, payload: few, knowledge }
            }
            PUSH => Message::Push { body: bytes },
            UNUSED => Message::PushUnused { body: bytes },
            HEARS => {
                let interest = SignalInterest::ALL[self.rng.below(SignalInterest::ALL.len() as u64) as usize];
                Message::Hears { name: value, serial: self.rng.below(4) as u32, interest }
            }
            WANTS => {
                let of = NodeId(self.rng.below(NODES as u64 + 1) as u16);
                Message::LockWants { of, queued: epoch > 1, entries: bytes }
            }
            TOKENS => Message::LockTokens { entries: bytes },
            CATCH_UP => Message::CatchUp { lock, knowledge: bytes },
            CAUGHT_UP => Message::CaughtUp { lock, payload: few },
            APART => {
                let mut call = || (NodeId(self.rng.below(NODES as u64 + 1) as u16), self.collective());
                Message::Apart { epoch, apart: Apart([call(), call()]) }
            }
            DEAL => {
                let wanted = BatchRequest { total: self.number(), chunk: self.number(), chunks: self.number() };
                Message::Deal { number: value, wanted }
            }
            DEALT => Message::Dealt { fine: epoch > 1, low: self.number(), high: self.number() },
            ATOMIC => Message::Atomic { body: bytes },
            ATOMIC_DONE => Message::AtomicDone { body: bytes },
            REMOTE => Message::Remote { body: bytes },
            REMOTE_DONE => Message::RemoteDone { body: bytes },
            FETCH_DIFFS => Message::FetchDiffs { body: bytes },
            KEPT_DIFFS => Message::KeptDiffs { body: bytes },
            FETCH_BASE => Message::FetchBase { body: bytes },
            BASE => Message::Base { body: bytes },
            DIFFS_ASKED => Message::DiffsAsked { body: bytes },
            DIFFS_TOLD => Message::DiffsTold { body: bytes },
            _ => Message::User { thread: self.rng.below(4) as u16, bytes },
        }
    }

    fn start_message(&mut self) -> StartMessage {
        let node = NodeId(self.rng.below(NODES as u64 + 1) as u16);
        let (job, nonce) = (1, self.rng.below(6));
        match self.rng.below(5) {
            0 | 1 => StartMessage::Join(Box::new(self.join(nonce))),
            2 => {
                let verdicts = [Verdict::Wait, Verdict::Yielded, Verdict::Surplus];
                let verdict = verdicts[self.rng.below(3) as usize].clone();
                StartMessage::Answer(Answer { nonce, version: 1, verdict })
            }
            3 => {
                let hellos = [Hello::Introduce(node), Hello::Greet(node), Hello::Multicast, Hello::Noted];
                StartMessage::Hello { job, hello: hellos[self.rng.below(4) as usize].clone() }
            }
            _ => StartMessage::Ready { job, ready: self.ready(node, nonce) },
        }
    }

    fn ready(&mut self, node: NodeId, nonce: u64) -> Ready {
        let flags = self.rng.next_u64();
        let unheard = (0..flags % 3).map(|n| NodeId(n as u16)).collect();
        Ready { node, nonce, complete: flags & 8 != 0, multicast: flags & 16 != 0, have: vec![flags as u8], unheard }
    }

    fn join(&mut self, nonce: u64) -> Join {
        let intents = [Intent::Ask, Intent::Ask, Intent::Decline(1)];
        let identity = Identity {
            version: 1,
            job_name: "fuzz".to_string(),
            program: "fuzz".to_string(),
            hash: [1; 32],
            layout: Layout::of_this_process(4096),
            nodes: NODES as u16,
            threads: (SLOTS - 1) as u16,
            options: String::new(),
        };
        Join {
            nonce,
            discover: self.rng.below(2) == 0,
            intent: intents[self.rng.below(3) as usize],
            requested: (self.rng.below(2) == 0).then_some(NodeId(nonce as u16)),
            job: self.rng.below(2),
            age_ms: 3,
            identity,
            pid: 4,
            host: "there".to_string(),
            ports: vec![9000, 9001, 9002],
        }
    }

    /// Damages an input in one place.
    fn damage(&mut self, input: &mut Vec<u8>) {
        if input.is_empty() {
            return;
        }
        let at = self.rng.below(input.len() as u64) as usize;
        match self.rng.below(6) {
            0 => input[at] ^= 1 << self.rng.below(8),
            1 => input[at] = [0, 1, 0x7f, 0x80, 0xff][self.rng.below(5) as usize],
            2 => input.truncate(at),
            3 => drop(input.drain(at..(at + 1 + self.rng.below(4) as usize).min(input.len()))),
            4 => input.insert(at, self.rng.next_u64() as u8),
            _ => {
                let from = self.rng.below(self.earlier.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend_from_slice(&self.earlier[from..]);
            }
        }
    }
}
