//! Arrivals at barriers as words ([`comem_protocol::sync::arrival`]), between nodes of one host whose locks are
//! one-sided.
//!
//! The words lie in memory of node 0, which every node maps (`docs/decisions/0069-one-sided-locks.md`). The last thread
//! of a node that arrives stores the node's word, looks at the others, and waits for them on behalf of its node's other
//! threads. These wait as for messages, and it rouses them.

use crate::error::Result;
use crate::node::{Node, Waiting};
use crate::thread::Thread;
use comem_memory::pages::ArrivalTable;
use comem_net::{Backbone, Wait};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::sync::arrival::{Arrive, NODES_MAX, Reply, Step};
use comem_protocol::sync::barrier::Barrier;
use comem_protocol::time::Time;
use comem_protocol::wire::message::Collective;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// Whose memory has the words.
const HOME: NodeId = NodeId(0);

/// An arrival of a node whose word is stored, and the step that comes next.
#[derive(Debug)]
pub(crate) struct Arrival {
    arrive: Arrive,
    step: Step,
}

/// The words of all nodes' arrivals; none where all arrivals go by messages.
///
/// They are set once, and read and stored without a lock.
#[derive(Debug)]
pub(crate) struct ArrivalWords {
    table: OnceLock<ArrivalTable>,
    me: NodeId,
    nodes: usize,
}

impl ArrivalWords {
    pub(crate) fn new(me: NodeId, nodes: usize) -> ArrivalWords {
        ArrivalWords { table: OnceLock::new(), me, nodes }
    }

    #[inline]
    pub(crate) fn table(&self) -> Option<&ArrivalTable> {
        self.table.get()
    }

    /// Makes the memory of all words, at its home.
    fn make(&self, job: u64) -> io::Result<()> {
        if self.me == HOME { ArrivalTable::new(job).map(|table| self.set(table)) } else { Ok(()) }
    }

    /// Maps the memory of all words, at other nodes, when its home, of this process number, has made it.
    fn map(&self, pid: u32, job: u64) -> io::Result<()> {
        if self.me == HOME { Ok(()) } else { ArrivalTable::of(pid, job).map(|table| self.set(table)) }
    }

    fn set(&self, table: ArrivalTable) {
        let set = self.table.set(table);
        debug_assert!(set.is_ok(), "they are made once");
    }

    /// The nodes for which this one waits at the barrier that is not open yet, as their words say; `None` where there
    /// are no words.
    pub(crate) fn missing(&self, barrier: &Barrier) -> Option<Vec<NodeId>> {
        let table = self.table().filter(|_| barrier.uses_words())?;
        let is_missing = |node: &NodeId| *node != self.me && table.word(*node).call_at(barrier.epoch()).is_none();
        Some(NodeId::all(self.nodes).filter(is_missing).collect())
    }

    /// Right after a thread's arrival, with the barrier's lock held: stores the node's word, if the thread is its last.
    pub(crate) fn store(&self, barrier: &mut Barrier) -> Option<Arrival> {
        let mut arrive = barrier.steps()?;
        let mut step = arrive.next(Reply::Begin);
        if let (Step::Store(word), Some(table)) = (step, self.table()) {
            table.store(self.me, word);
            step = arrive.next(Reply::Done);
        }
        Some(Arrival { arrive, step })
    }
}

/// Tells why the job goes without the words.
fn may_lack_words(node: &Node, made: io::Result<()>) {
    if let (Err(error), true) = (made, node.config.verbose) {
        crate::error::say(format_args!(
            "comem: {}: barriers go by messages: no memory for words of arrivals: {error}",
            node.name_of(node.me())
        ));
    }
}

/// Sleeps until the eventcount is not `events` any more, or for a while.
fn sleep(node: &Node, slot: Slot, table: &ArrivalTable, events: u32) {
    if node.wire.is_sending(slot) {
        node.run_timers(slot);
        node.receive(slot, slot, Some(Duration::ZERO), Wait::Block);
    }
    let waits = &node.config.tuning.wait;
    if node.wire.is_sending(slot) {
        // What it has posted goes on only as acknowledgements come.
        node.receive(slot, slot, Some(Duration::from_micros(waits.sleep_with_messages_us)), Wait::Block);
    } else {
        table.sleep(events, Duration::from_millis(waits.sleep_max_ms));
    }
}

/// One step that need not wait.
fn carry_out(thread: &Thread, table: &ArrivalTable, step: Step) -> Reply {
    match step {
        Step::ReadWord(node) => return Reply::Word(table.word(node)),
        Step::ReadEvents => return Reply::Number(table.events()),
        Step::ReadSleepers => return Reply::Number(table.sleepers()),
        Step::Store(word) => table.store(thread.home().me(), word),
        Step::Fence => table.fence(),
        Step::AddSleeper => table.add_sleeper(),
        Step::RemoveSleeper => table.remove_sleeper(),
        Step::Advance => table.advance(),
        Step::Wake => {
            thread.counters().barrier_wakes.add(1);
            table.wake();
        }
        Step::Look(_) | Step::Sleep(_) | Step::Open | Step::ByMessages => {}
    }
    Reply::Done
}

impl ArrivalWords {
    /// Whether arrivals may be words, where locks are one-sided.
    fn are_possible(&self, node: &Node) -> bool {
        node.config.backbone.named() == Some(Backbone::Shm) && self.nodes <= NODES_MAX
    }

    /// Whether arrivals are to be words, if all nodes reach them.
    fn are_wanted(&self, node: &Node) -> bool {
        node.sync.lock_tables().is_some() && self.are_possible(node)
    }

    /// Makes the memory of all words, at its home; for a job whose locks are to be one-sided.
    pub(crate) fn make_at_home(&self, node: &Node, job: u64) {
        if self.are_possible(node) {
            may_lack_words(node, self.make(job));
        }
    }

    /// At start-up, when all nodes have their heaps: lets arrivals be words from here on, where all nodes reach them.
    pub(crate) fn agree(&self, thread: &Thread, job: u64) -> Result<()> {
        let node = thread.home();
        if !self.are_wanted(node) {
            return Ok(());
        }
        let (_, pid) = node.wire.member(HOME).unwrap_or_default();
        may_lack_words(node, self.map(pid, job));
        let reached = i64::from(self.table().is_some());
        // The least of all.
        let all = thread.collective(Collective::PLACE, &reached.to_be_bytes(), |result| result.to_vec())?;
        if all == 1_i64.to_be_bytes() {
            node.sync.with_barrier(Barrier::use_words);
        }
        Ok(())
    }

    /// Goes on with an arrival until the barrier has opened, or until it goes by messages.
    pub(crate) fn arrive(
        &self,
        thread: &Thread,
        mut arrival: Arrival,
        (what, number): (Collective, u32),
    ) -> Result<()> {
        let node = thread.home();
        let Some(table) = self.table() else { return Ok(()) };
        let (slot, epoch) = (Some(thread.slot()), arrival.arrive.epoch());
        loop {
            arrival.step = match arrival.step {
                Step::Look(_) => {
                    let waits = thread.wait_with(Waiting::Barrier(what, number), |why, since| {
                        let wait = || arrival.wait(thread, table, (why, since));
                        node.slots.asleep(thread.slot(), why, since, wait)
                    });
                    let next = waits?;
                    // What else may end the wait: messages, and calls that do not go together.
                    if node.sync.with_barrier(|b| b.is_open(what, number)) != Ok(false) {
                        return Ok(());
                    }
                    next
                }
                Step::Open => {
                    if thread.stepping(|out| node.sync.with_barrier(|b| b.open_by_words(epoch, slot, out))) {
                        thread.counters().barriers_by_words.add(1);
                        node.life.note_progress();
                    }
                    return Ok(());
                }
                Step::ByMessages => {
                    let now = node.now();
                    thread.stepping(|out| node.sync.with_barrier(|b| b.tell_by_messages(now, epoch, slot, out)));
                    return Ok(());
                }
                step => arrival.arrive.next(carry_out(thread, table, step)),
            };
        }
    }
}

impl Arrival {
    /// Looks at the eventcount until it changes, sleeps once if it does not, and reads the words that are there then.
    /// Gives the next step, which is to wait again or to end.
    fn wait(&mut self, thread: &Thread, table: &ArrivalTable, (why, since): (Waiting, Time)) -> Result<Step> {
        let (node, slot, mut step) = (thread.home(), thread.slot(), self.step);
        let mine = node.wire.endpoint(slot);
        let until = node.now() + node.slots[slot].spins.span(&node.config);
        let ((mut pause, pause_max), mut slept) = (node.config.lock_pauses(), false);
        loop {
            let reply = match step {
                Step::Look(_) if slept => break,
                Step::Look(events) => {
                    let changes = || table.events() != events || mine.glance();
                    let changed =
                        node.now() < until && node.look_at_lock(slot, until, (&mut pause, pause_max), changes);
                    let now = table.events();
                    if now == events && changed {
                        // Something else has come for this thread.
                        node.receive(slot, slot, Some(Duration::ZERO), Wait::Block);
                        return Ok(step);
                    }
                    if now == events { Reply::Tired } else { Reply::Number(now) }
                }
                Step::AddSleeper => {
                    node.life.goes_on()?;
                    // Nobody waits for this thread to be patient: it may sleep for long.
                    node.flush_wakeups(slot);
                    node.lets_go_at_rest(slot);
                    node.look_whether_unanswered(slot, why, since)?;
                    carry_out(thread, table, step)
                }
                Step::Sleep(events) => {
                    sleep(node, slot, table, events);
                    slept = true;
                    Reply::Done
                }
                Step::Open | Step::ByMessages => break,
                step => carry_out(thread, table, step),
            };
            step = self.arrive.next(reply);
        }
        node.life.goes_on().map(|()| step)
    }
}
