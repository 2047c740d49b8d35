//! What is read, what is refused, what is carried out when, and that nothing outside allocated lines is touched.

use super::*;
use crate::coherence::direct::one_sided::{Batch, Op};
use crate::faults::Rng;
use crate::ids::{Channel, Seq, Slot};
use crate::outbox::Outbox;
use crate::time::{Span, Time};
use crate::wire::message::{Message, Ticket, types};
use smallvec::smallvec;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::slice::from_ref;

/// Lines of the heap that belong to a region with units of four lines, and to one that was freed.
const ALLOCATED: Range<u64> = 64..96;
const FREED: Range<u64> = 96..128;
const LINES: u16 = 4;
const NODES: usize = 12;

/// Lines by number, and what was done; whatever touches another than an allocated line fails.
#[derive(Default)]
struct Memory {
    entries: RefCell<BTreeMap<u64, Entry>>,
    magic: RefCell<BTreeMap<u64, bool>>,
    wide: RefCell<NodeSet>,
    hazards: RefCell<Vec<u64>>,
    barriers: RefCell<usize>,
    order: RefCell<Vec<&'static str>>,
}

impl Memory {
    fn touch(&self, unit: UnitAt, what: &'static str) {
        assert!(unit.lies_in(&ALLOCATED) && unit.lines() == LINES, "{what} outside of regions: {unit:?}");
        self.order.borrow_mut().push(what);
    }
}

impl RemoteMemory for Memory {
    fn find(&self, unit: UnitAt) -> Found {
        match unit {
            _ if unit.lines() != LINES => Found::Nothing,
            _ if unit.lies_in(&ALLOCATED) => Found::Unit,
            _ if unit.lies_in(&FREED) => Found::Freed,
            _ => Found::Nothing,
        }
    }
    fn nodes(&self) -> usize {
        NODES
    }
    fn fetch_and_set(&self, unit: UnitAt, holder: NodeId) -> Entry {
        self.touch(unit, "fetch and set");
        let mut entries = self.entries.borrow_mut();
        let entry = entries.entry(unit.first()).or_default();
        std::mem::replace(entry, entry.after_fetch_and_set(holder))
    }
    fn entry(&self, unit: UnitAt) -> Entry {
        assert!(unit.lies_in(&ALLOCATED));
        self.entries.borrow().get(&unit.first()).copied().unwrap_or_default()
    }
    fn put_entries(&self, lines: Range<u64>, entry: Entry) {
        assert!(ALLOCATED.start <= lines.start && lines.end <= ALLOCATED.end, "outside of regions: {lines:?}");
        for line in lines.rev() {
            self.order.borrow_mut().push("put entry");
            self.entries.borrow_mut().insert(line, entry);
        }
    }
    fn copy_data(&self, unit: UnitAt, out: &mut Vec<u8>) {
        self.touch(unit, "get data");
        out.resize(out.len() + unit.bytes(), 7);
    }
    fn put_magic(&self, unit: UnitAt) {
        self.touch(unit, "put magic");
        self.magic.borrow_mut().insert(unit.first(), true);
    }
    fn wide(&self, unit: UnitAt) -> NodeSet {
        self.touch(unit, "get wide");
        self.wide.borrow().clone()
    }
    fn put_wide(&self, unit: UnitAt, holders: &NodeSet) {
        self.touch(unit, "put wide");
        assert!(holders.iter().all(|node| node.index() < NODES));
        self.wide.borrow_mut().clone_from(holders);
    }
    fn barrier(&self) {
        *self.barriers.borrow_mut() += 1;
    }
    fn has_hazard(&self, unit: UnitAt) -> bool {
        self.hazards.borrow().iter().any(|line| unit.range().contains(line))
    }
}

/// A server, its memory and what it has answered.
#[derive(Default)]
struct Target {
    memory: Memory,
    server: Server,
    now: u64,
    asked: u64,
}

impl Target {
    fn ticket(&mut self, node: u16) -> Ticket {
        let channel = Channel { node: NodeId(node), slot: Slot::thread(0) };
        self.asked += 1;
        Ticket { channel, seq: Seq::guarded(channel, self.asked) }
    }

    fn send(&mut self, node: u16, commands: &[Command]) -> Vec<Vec<u8>> {
        self.send_body(node, &body(commands)).expect("an honest request")
    }

    fn send_body(&mut self, node: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, crate::coherence::Misbehaved> {
        let (ticket, mut out) = (self.ticket(node), Outbox::new());
        self.server.on_request(&self.memory, (Time(self.now), ticket), body, &mut out)?;
        Ok(answers(&out))
    }

    fn look(&mut self) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.server.look(&self.memory, Time(self.now), &mut out);
        answers(&out)
    }
}

fn unit() -> UnitAt {
    UnitAt::new(68, LINES).unwrap()
}

fn body(commands: &[Command]) -> Vec<u8> {
    let mut body = Vec::new();
    Request { serial: 9, unit: unit(), commands: commands.into() }.emit(&mut body);
    body
}

fn answers(out: &Outbox) -> Vec<Vec<u8>> {
    assert!(out.sends().iter().all(|send| send.ty == types::REMOTE_DONE));
    out.sends().iter().map(|send| out.body(send).to_vec()).collect()
}

/// The entry that the only command of an answered request brought.
fn entry(answers: &[Vec<u8>]) -> Entry {
    let [answer] = answers else { panic!("{} answers", answers.len()) };
    let mut entry = None;
    let answer = Answer::parse(answer).unwrap();
    answer
        .each(unit(), &[Command::FetchAndSet], |brought| {
            let Brought::Entry(found) = brought else { panic!("{brought:?}") };
            entry = Some(found);
        })
        .unwrap();
    assert_eq!((answer.serial, answer.is_done), (9, true));
    entry.unwrap()
}

fn set(nodes: &[u16]) -> NodeSet {
    nodes.iter().map(|node| NodeId(*node)).collect()
}

fn every_command() -> Vec<Command> {
    vec![
        Command::FetchAndSet,
        Command::GetWide,
        Command::GetData,
        Command::PutMagic,
        Command::PutMirrors(Entry::not_exclusive(true)),
        Command::PutEntry(Entry::directory(3, false)),
        Command::PutWide(set(&[1, 11])),
        Command::Quiesce,
    ]
}

#[test]
fn a_request_survives_the_wire_and_is_refused_shortened_in_the_middle_of_a_command() {
    let commands = every_command();
    let whole = body(&commands);
    assert_eq!(Request::parse(&whole).unwrap().commands[..], commands[..]);
    let lens: Vec<usize> = (1..=commands.len()).map(|count| body(&commands[..count]).len()).collect();
    for len in 0..whole.len() {
        assert_eq!(Request::parse(&whole[..len]).is_ok(), lens.contains(&len), "{len} bytes");
    }
}

#[test]
fn magic_takes_one_byte() {
    assert_eq!(body(&[Command::PutMagic, Command::PutMagic]).len() - body(&[Command::PutMagic]).len(), 1);
}

#[test]
fn what_no_node_sends_is_refused_before_anything_happens() {
    let mut too_many = body(&every_command());
    too_many.push(4);
    let busy = Entry::default().after_fetch_and_set(NodeId(1));
    let cases = [
        ("no commands", body(&[])),
        ("an unknown command", [body(&[Command::PutMagic]), vec![77]].concat()),
        ("more commands than a miss has", too_many),
        ("an entry that locks", body(&[Command::PutMagic, Command::PutEntry(busy)])),
        ("an entry of pages", body(&[Command::PutMagic, Command::PutMirrors(Entry::PAGES)])),
        ("nodes that are not there", body(&[Command::PutMagic, Command::PutWide(set(&[3, 12]))])),
        ("half an entry", body(&[Command::PutMagic, Command::PutEntry(Entry::LOCKED)]).split_last().unwrap().1.into()),
    ];
    for (what, body) in cases {
        let mut target = Target::default();
        assert!(target.send_body(1, &body).is_err(), "{what}");
        assert!(target.memory.order.borrow().is_empty(), "{what}");
    }
}

#[test]
fn only_units_of_allocated_regions_are_touched() {
    let at = |first: u64, shift: u8| {
        let mut body = vec![0, 1];
        crate::wire::bytes::Put::put_var(&mut body, first);
        body.extend([shift, 4]);
        body
    };
    let mut target = Target::default();
    // Before, behind, across the end, another size, not aligned, beyond all addresses.
    for (first, shift) in [(60, 2), (128, 2), (0, 2), (64, 1), (64, 0), (66, 2), (64, 6), (64, 16), (64, 255)] {
        assert!(target.send_body(1, &at(first, shift)).is_err(), "line {first}, 2^{shift} lines");
    }
    assert!(target.send_body(1, &at(u64::MAX - 3, 2)).is_err());
    assert!(target.memory.order.borrow().is_empty());
    let freed = target.send_body(1, &at(FREED.start, 2)).unwrap();
    assert!(!Answer::parse(&freed[0]).unwrap().is_done && target.memory.order.borrow().is_empty());
    assert!(Answer::parse(&target.send_body(1, &at(ALLOCATED.start, 2)).unwrap()[0]).unwrap().is_done);
}

#[test]
fn commands_are_carried_out_in_order_and_the_answer_brings_what_they_brought() {
    let mut target = Target::default();
    target.memory.wide.replace(set(&[2]));
    let commands = every_command();
    let answered = target.send(5, &commands);
    let mut brought = Vec::new();
    let answer = Answer::parse(&answered[0]).unwrap();
    answer.each(unit(), &commands, |what| brought.push(what)).unwrap();
    let data = [7; 256];
    assert_eq!(brought, [Brought::Entry(Entry::BIASED), Brought::Wide(set(&[2])), Brought::Data(&data)]);
    let mut order = vec!["fetch and set", "get wide", "get data", "put magic"];
    order.extend([["put entry"; 7].as_slice(), &["put wide"]].concat());
    assert_eq!(*target.memory.order.borrow(), order);
    assert_eq!(*target.memory.barriers.borrow(), 1);
    assert_eq!(*target.memory.wide.borrow(), set(&[1, 11]));
    assert!(answer.each(unit(), &commands[..3], |_| ()).is_ok());
    assert!(answer.each(unit(), &commands[..2], |_| ()).is_err(), "more than was asked for");
    assert!(answer.each(unit(), &[commands[2].clone(), commands[2].clone()], |_| ()).is_err(), "less");
}

#[test]
fn entries_name_the_node_that_locked_them() {
    let mut target = Target::default();
    assert_eq!(entry(&target.send(5, &[Command::FetchAndSet])), Entry::BIASED);
    assert_eq!(entry(&target.send(6, &[Command::FetchAndSet])).holder(), Some(NodeId(5)));
}

#[test]
fn a_quiesce_is_put_off_while_a_hazard_in_the_unit_is_up() {
    let mut target = Target::default();
    let batch = [Command::PutMirrors(Entry::not_exclusive(true)), Command::Quiesce, Command::GetData];
    *target.memory.hazards.borrow_mut() = vec![67, 72];
    assert_eq!(target.send(1, &batch).len(), 1, "hazards of the units beside it do not count");
    target.memory.hazards.borrow_mut().push(71);
    target.memory.order.borrow_mut().clear();
    assert_eq!(target.send(1, &batch).len(), 0);
    assert_eq!(*target.memory.order.borrow(), ["put entry"; 3], "what stands before it is done");
    // The service thread goes on meanwhile.
    assert_eq!(entry(&target.send(2, &[Command::FetchAndSet])), Entry::BIASED);
    assert!(target.look().is_empty() && target.server.is_busy());
    assert_eq!(*target.memory.barriers.borrow(), 2, "one for each request");
    target.memory.hazards.borrow_mut().pop();
    assert_eq!(target.look().len(), 1);
    assert!(!target.server.is_busy() && target.look().is_empty(), "answered once");
    assert_eq!(*target.memory.barriers.borrow(), 2);
}

#[test]
fn requests_that_wait_for_an_entry_get_it_in_turn_or_go_on_after_their_time() {
    let mut target = Target::default();
    let waits = [Command::Pause(100), Command::FetchAndSet];
    assert_eq!(entry(&target.send(1, &waits)), Entry::BIASED, "nobody has locked it");
    assert!(target.send(2, &waits).is_empty() && target.send(3, &waits).is_empty());
    // Whoever unlocks it lets the first one have it, and the second one waits on.
    let answered = target.send(1, &[Command::PutEntry(Entry::LOCKED)]);
    assert_eq!(answered.len(), 2);
    assert_eq!(entry(&answered[1..]), Entry::LOCKED);
    assert!(target.look().is_empty() && target.server.is_busy());
    target.now += Span::from_us(100).0;
    assert_eq!(entry(&target.look()).holder(), Some(NodeId(2)), "busy still, after its time");
    assert!(!target.server.is_busy());
}

/// Whatever bytes come: honest requests, damaged, shortened, joined, and noise. The memory of the test fails when a
/// line outside of the allocated ones is touched.
#[test]
fn no_bytes_touch_what_is_not_allocated() {
    let mut rng = Rng::new(46);
    let mut target = Target::default();
    let mut counts = [0u32; 2];
    for _ in 0..60_000 {
        let mut bytes = Vec::new();
        let count = rng.below(9) as usize;
        let commands = (0..count).map(|_| every_command().swap_remove(rng.below(8) as usize)).collect();
        let unit = UnitAt::new(60 + 4 * rng.below(18), 4).unwrap();
        Request { serial: rng.next_u64() as u16, unit, commands }.emit(&mut bytes);
        for _ in 0..rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.below(10) as u8),
            }
        }
        counts[usize::from(target.send_body(1, &bytes).is_ok())] += 1;
        if let Ok(request) = Request::parse(&bytes) {
            let mut again = Vec::new();
            request.emit(&mut again);
            assert_eq!(Request::parse(&again), Ok(request), "read as it was written");
        }
        if let Ok(answer) = Answer::parse(&bytes) {
            let _ = answer.each(unit, &every_command(), |_| ());
        }
    }
    assert!(counts.iter().all(|count| *count > 5_000), "{counts:?}");
    assert!(target.memory.order.borrow().len() > 1_000);
}

// ---- how batches are split

const ME: NodeId = NodeId(0);

fn data(from: u16) -> Op {
    Op::GetData { from: NodeId(from) }
}

fn magic(to: u16) -> Op {
    Op::PutMagic { to: NodeId(to) }
}

fn put(to: u16) -> Op {
    Op::PutEntry { to: NodeId(to), entry: Entry::LOCKED }
}

fn send(node: u16, ops: &[Op]) -> Step {
    Step::Send(NodeId(node), ops.to_vec())
}

#[test]
fn operations_on_one_node_share_a_message_and_those_on_several_are_under_way_together() {
    let batch: Batch = smallvec![data(1), magic(2), magic(3), Op::Flush, Op::Access, put(2), put(0), put(1)];
    let steps = [
        send(1, &[data(1)]),
        send(2, &[magic(2)]),
        send(3, &[magic(3)]),
        Step::Await,
        Step::Here(Op::Access),
        Step::Here(put(0)),
        send(2, &[put(2)]),
        send(1, &[put(1)]),
        Step::Await,
    ];
    assert_eq!(split(ME, &batch)[..], steps);
}

#[test]
fn a_flush_between_operations_on_one_node_costs_nothing() {
    let mirrors = Op::PutMirrors { to: NodeId(1), entry: Entry::LOCKED };
    let quiesce = Op::Quiesce { at: NodeId(1) };
    let batch = [mirrors.clone(), Op::Flush, quiesce.clone(), data(1), magic(1), Op::Flush, Op::Access];
    let steps = [send(1, &[mirrors.clone(), quiesce.clone(), data(1), magic(1)]), Step::Await, Step::Here(Op::Access)];
    assert_eq!(split(ME, &batch)[..], steps);
    let steps =
        [send(2, &[magic(2)]), send(1, from_ref(&mirrors)), Step::Await, send(1, from_ref(&quiesce)), Step::Await];
    assert_eq!(split(ME, &[magic(2), mirrors.clone(), Op::Flush, quiesce.clone()])[..], steps);
    let steps = [send(1, from_ref(&mirrors)), Step::Await, send(2, &[magic(2)]), Step::Await];
    assert_eq!(split(ME, &[mirrors, Op::Flush, magic(2)])[..], steps);
}

#[test]
fn what_the_thread_does_itself_waits_for_bytes_alone() {
    assert_eq!(split(ME, &[Op::Flush, Op::Access, put(0)])[..], [Step::Here(Op::Access), Step::Here(put(0))]);
    let steps = [Step::Here(put(0)), send(1, &[put(1)]), Step::Await];
    assert_eq!(split(ME, &[put(1), put(0)])[..], steps);
    let steps = [send(1, &[data(1)]), Step::Await, Step::Here(Op::Access)];
    assert_eq!(split(ME, &[data(1), Op::Access])[..], steps);
}

#[test]
fn a_pause_and_the_fetch_and_set_behind_it_are_one_message() {
    let batch = [Op::Pause { at: NodeId(1) }, Op::FetchAndSet { at: NodeId(1) }];
    assert_eq!(split(ME, &batch)[..], [send(1, &batch), Step::Await]);
    let commands: Vec<_> = batch.iter().filter_map(|op| Command::of(op, 40)).collect();
    assert_eq!(commands, [Command::Pause(40), Command::FetchAndSet]);
}

/// The coding of the messages does not depend on [`Message`]: they are its body.
#[test]
fn requests_and_answers_travel_as_messages() {
    let body = body(&[Command::FetchAndSet]);
    let mut bytes = Vec::new();
    Message::Remote { body: &body }.emit(&mut bytes);
    assert_eq!(Message::parse(types::REMOTE, &bytes), Ok(Message::Remote { body: &body }));
}
