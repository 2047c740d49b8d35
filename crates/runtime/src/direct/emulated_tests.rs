//! The same programs where operations are messages: each node's server carries them out, on the thread that sends.

use super::super::emulated::Post;
use super::super::target::Target;
use super::*;
use comem_protocol::coherence::direct::remote::{Found, Request, Server, UnitAt};
use comem_protocol::ids::{Channel, Seq, Slot};
use comem_protocol::outbox::{Outbox, Target as To};
use comem_protocol::time::Time;
use comem_protocol::wire::bytes::WireError;
use comem_protocol::wire::message::Ticket;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

thread_local! {
    /// Whether the nodes that this thread makes emulate their operations.
    pub(super) static IS_EMULATED: Cell<bool> = const { Cell::new(false) };
}

/// The servers of some nodes, and the answers that nobody has taken.
pub(super) struct Servers {
    of: Vec<Mutex<Server>>,
    answers: Mutex<BTreeMap<Seq, Vec<u8>>>,
    requests: AtomicU64,
    began: Instant,
}

impl Servers {
    pub(super) fn new(nodes: usize) -> Servers {
        Servers {
            of: (0..nodes).map(|_| Mutex::default()).collect(),
            answers: Mutex::default(),
            requests: AtomicU64::new(0),
            began: Instant::now(),
        }
    }
}

/// One thread's requests.
pub(super) struct InProcess<'a> {
    nodes: &'a Nodes,
    servers: &'a Servers,
    channel: Channel,
    /// What is not answered, by serial.
    sent: BTreeMap<u16, Seq>,
    serial: u16,
}

impl<'a> InProcess<'a> {
    pub(super) fn new(nodes: &'a Nodes, servers: &'a Servers, me: NodeId) -> InProcess<'a> {
        let channel = Channel { node: me, slot: Slot::thread(0) };
        InProcess { nodes, servers, channel, sent: BTreeMap::new(), serial: 7 }
    }

    /// A step of the server of `node`, whose answers are kept.
    fn step(&self, node: NodeId, step: impl FnOnce(&mut Server, &dyn Fn(UnitAt) -> Found, Time, &mut Outbox)) {
        let (unit_lines, mut out) = (self.nodes.unit_lines, Outbox::new());
        let find = move |unit: UnitAt| match usize::from(unit.lines()) == unit_lines {
            true => Found::Unit,
            false => Found::Nothing,
        };
        let now = Time(self.servers.began.elapsed().as_nanos() as u64);
        step(&mut self.servers.of[node.index()].lock().unwrap(), &find, now, &mut out);
        for send in out.sends() {
            let To::Reply(ticket) = send.target else { panic!("a server only answers") };
            let before = self.servers.answers.lock().unwrap().insert(ticket.seq, out.body(send).to_vec());
            assert_eq!(before, None, "a request is answered once");
        }
    }

    fn target<F>(&self, node: NodeId, find: F) -> Target<'a, F> {
        Target { lines: &self.nodes.of[node.index()], nodes: self.nodes.of.len(), find }
    }
}

impl Post for InProcess<'_> {
    type Error = Refusal;

    fn next_serial(&mut self) -> u16 {
        self.serial += 1;
        self.serial
    }

    fn send(&mut self, to: NodeId, request: &Request) -> Result<(), Refusal> {
        let seq = Seq::guarded(self.channel, self.servers.requests.fetch_add(1, Ordering::Relaxed));
        self.sent.insert(request.serial, seq);
        let mut body = Vec::new();
        request.emit(&mut body);
        let ticket = Ticket { channel: self.channel, seq };
        self.step(to, |server, find, now, out| {
            server.on_request(&self.target(to, find), (now, ticket), &body, out).expect("an honest request");
        });
        Ok(())
    }

    fn answer(&mut self, from: NodeId, serial: u16) -> Result<Vec<u8>, Refusal> {
        let seq = self.sent.remove(&serial).expect("it was sent");
        loop {
            if let Some(answer) = self.servers.answers.lock().unwrap().remove(&seq) {
                return Ok(answer);
            }
            std::thread::yield_now();
            self.step(from, |server, find, now, out| _ = server.look(&self.target(from, find), now, out));
        }
    }

    fn found(&mut self, _holder: Option<NodeId>) {}

    fn nonsense(&self, from: NodeId, why: WireError) -> Refusal {
        panic!("{from} answers what makes no sense: {why}")
    }

    fn freed(&self) -> Refusal {
        panic!("nothing is freed here")
    }
}

/// Runs a test of this module's parent with nodes whose operations are emulated.
fn emulated(test: fn()) {
    IS_EMULATED.set(true);
    test();
    IS_EMULATED.set(false);
}

macro_rules! emulate {
    ($($test:ident,)*) => { $(
        #[test]
        fn $test() {
            emulated(super::$test);
        }
    )* };
}

emulate! {
    each_kind_of_miss_takes_the_operations_that_the_paper_says,
    a_unit_is_revoked_with_a_barrier_while_it_is_biased_and_without_one_afterwards,
    additions_of_all_nodes_add_up,
    threads_of_one_node_join_for_a_unit,
    words_of_one_unit_that_different_nodes_store_to_do_not_disturb_each_other,
    a_thread_that_spins_on_a_plain_flag_sees_it_and_what_was_stored_before,
    store_buffering_of_atomics_is_never_seen,
    messages_by_plain_stores_do_not_overtake_each_other,
    readers_agree_on_the_order_of_independent_stores,
    random_programs_agree_with_a_model,
    more_nodes_than_presence_bits_share_a_unit,
    who_waits_for_an_entry_hears_that_the_job_is_lost_and_who_has_it,
    a_revocation_waits_for_the_store_under_way,
}

/// Messages that an access takes.
fn requests(nodes: &Nodes, act: impl FnOnce()) -> u64 {
    let servers = nodes.servers.as_ref().expect("they are emulated");
    let before = servers.requests.load(Ordering::Relaxed);
    act();
    servers.requests.load(Ordering::Relaxed) - before
}

#[test]
fn misses_take_one_message_to_each_node_between_two_decisions() {
    IS_EMULATED.set(true);
    for unit_bytes in [64, 256] {
        let nodes = Nodes::new(4, unit_bytes);
        let p = programs(&nodes);
        assert_eq!(requests(&nodes, || p[1].store(0, 7)), 3, "lock, copy, unlock: the home had it");
        assert_eq!(
            requests(&nodes, || assert_eq!(p[2].load(0), 7)),
            4,
            "and lock the owner; it loses it with the copy"
        );
        assert_eq!(requests(&nodes, || p[2].store(0, 8)), 3, "lock, end the other copy, unlock");
        assert_eq!(requests(&nodes, || assert_eq!(p[0].load(0), 8)), 2, "the home has its own directory");
    }
    IS_EMULATED.set(false);
}
