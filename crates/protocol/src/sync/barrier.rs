//! Barriers, and whatever else all nodes do together: reductions, creating objects, ending the program.
//!
//! Few nodes (`barrier_direct_nodes_max`) each tell their arrival to all others (DSM/IP, section 3.2.1.3). Each arrival
//! wakes a thread at each node, so of more nodes these soon cost more than a second hop. Then arrivals
//! climb a tree of degree [`TREE_DEGREE`] and the release comes down. The messages are not guarded one by one: an
//! arrival is repeated until the barrier opens, and a node that has passed a barrier answers a repeated arrival from
//! its memory of the last one. Neighbouring barriers differ by at most one, so one memory is enough, and a barrier of N
//! nodes costs N(N-1) messages and no acknowledgement (2(N-1) in the tree).
//!
//! An arrival may carry write notices. They are gathered like the numbers of a reduction, one behind the other, and
//! when the barrier is open every node has those of all. What does not fit a datagram goes as a guarded post, which
//! needs no repetition.
//!
//! A first arrival goes straight to the channel of the thread that waits at the other node (its thread 0); a
//! repeated one goes to the service thread, which is always there.
//!
//! Where one thread of a node calls it need not be thread 0, which may be anywhere then. Such a node waits *elsewhere*:
//! it says so, to the others' service threads since they may as well, and what it waits for comes to its own. Who has
//! told thread 0 already says it again; and in the tree such a node tells its children where it waits, who would hear
//! nothing of it before the release.
//!
//! Where all nodes reach one another's words ([`Barrier::use_words`]), an arrival that carries nothing is such a word
//! ([`arrival`](super::arrival)), and no message is sent. The barrier opens when the caller has found all words there
//! ([`Barrier::open_by_words`]). A node that finds another call in a word, or that a node goes by messages, tells its
//! own arrival by messages as well. So does every other, and from there on all is as without words.

mod calls;
mod words;

pub use calls::kinds;

use crate::ids::{NodeId, Slot};
use crate::outbox::{Origin, Outbox, Target};
use crate::rules::Rule;
use crate::sync::arrival::{ArrivalWord, Arrive};
use crate::sync::mismatch::{Apart, Mismatch};
use crate::time::{Span, Time};
use crate::tuning::SyncTuning;
use crate::wire::message::{Collective, Message};
use std::collections::{BTreeMap, BTreeSet};

/// Children of a node in the tree.
pub const TREE_DEGREE: usize = 8;

/// Bytes of notices that fit any network's datagram beside the rest of an arrival.
const FREE_NOTICES: usize = 256;

/// An arrival as it was heard from another node.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// Who arrived.
    pub from: NodeId,
    /// At which barrier.
    pub epoch: u32,
    /// Whether it said so before.
    pub repeated: bool,
    /// Whether its thread 0 is not among those that wait there.
    pub elsewhere: bool,
    /// With which call.
    pub what: Collective,
    /// With which numbers.
    pub payload: &'a [u8],
    /// With which write notices.
    pub notices: &'a [u8],
}

#[derive(Clone, Debug)]
struct Arrival {
    what: Collective,
    payload: Vec<u8>,
    notices: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Shape {
    All,
    Tree { parent: Option<NodeId>, children: Vec<NodeId> },
}

/// The barrier of all threads of all nodes, as one node sees it.
#[derive(Clone, Debug)]
pub struct Barrier {
    me: NodeId,
    nodes: usize,
    threads: usize,
    shape: Shape,
    tuning: SyncTuning,
    /// The barrier that is not open yet.
    epoch: u32,
    /// Those of all threads that have opened here.
    rounds: u32,
    local: Vec<(Slot, Arrival)>,
    /// A call that one thread of each node makes goes before one of all threads for which others of this node wait
    /// already: it lacks the former.
    one: Option<(Slot, Arrival)>,
    /// This node's combined arrival at `epoch`, once all its threads (and in the tree its children) are in.
    mine: Option<Arrival>,
    seen: BTreeMap<NodeId, Arrival>,
    early: BTreeMap<NodeId, Arrival>,
    /// Nodes that wait elsewhere, and at which barriers.
    elsewhere: BTreeSet<(NodeId, u32)>,
    /// What this node said at the barrier before, for peers that missed it.
    last: Option<Arrival>,
    /// What came of the last barrier.
    last_result: Vec<u8>,
    notices: Vec<u8>,
    /// What came of the last call of all threads, for those that have not looked yet, and of the last of one thread of
    /// each node.
    of_threads: Outcome,
    of_one: Outcome,
    /// Most bytes of notices in an unguarded message.
    free_bytes: usize,
    retry: Option<(Time, Span)>,
    /// This node's word, where arrivals that carry nothing are words.
    word: Option<ArrivalWord>,
    /// This node's arrival at `epoch` is a word, and no message has told of it.
    by_word: bool,
    /// How that word is stored, for the thread that has just arrived.
    steps: Option<Arrive>,
    /// When this node's arrival was told.
    told: Time,
    /// How often it was repeated before somebody noted it, and when first.
    repeated: (u32, Time),
    /// When those that wait for others as well have last noted it.
    noted: BTreeMap<NodeId, Time>,
    /// How long a repeated arrival took to be noted.
    round_trip: Span,
    /// Calls that do not go together, and at which barrier; not met here until a call of this node comes to it.
    apart: Option<(u32, Apart)>,
    /// What the first call that met them was told.
    mismatch: Option<Mismatch>,
}

/// What came of a call.
#[derive(Clone, Debug, Default)]
struct Outcome {
    result: Vec<u8>,
    /// Who had left, where others had not.
    left: Option<NodeId>,
}

impl Barrier {
    fn shape(tuning: &SyncTuning, me: NodeId, nodes: usize) -> Shape {
        if nodes <= tuning.barrier_direct_nodes_max { Shape::All } else { Barrier::tree(me, nodes) }
    }

    /// The same barrier with these numbers instead of their defaults.
    #[must_use]
    pub fn tuned(mut self, tuning: SyncTuning) -> Barrier {
        (self.tuning, self.shape) = (tuning, Barrier::shape(&tuning, self.me, self.nodes));
        self
    }

    /// The barrier of `nodes` nodes with `threads` threads each.
    pub fn new(me: NodeId, nodes: usize, threads: usize) -> Barrier {
        Barrier {
            me,
            nodes,
            threads,
            shape: Barrier::shape(&SyncTuning::DEFAULT, me, nodes),
            tuning: SyncTuning::DEFAULT,
            epoch: 0,
            rounds: 0,
            local: Vec::new(),
            one: None,
            mine: None,
            seen: BTreeMap::new(),
            early: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            last: None,
            last_result: Vec::new(),
            notices: Vec::new(),
            of_threads: Outcome::default(),
            of_one: Outcome::default(),
            free_bytes: FREE_NOTICES,
            retry: None,
            word: None,
            by_word: false,
            steps: None,
            told: Time(0),
            repeated: (0, Time(0)),
            noted: BTreeMap::new(),
            round_trip: Span(0),
            apart: None,
            mismatch: None,
        }
    }

    /// Lets arrivals climb the tree wherever there are more than two nodes (with notices in them, one message each way
    /// a node is cheaper than telling all of them to all), and sets how many bytes of notices fit an unguarded message.
    pub fn for_notices(mut self, free_bytes: usize) -> Barrier {
        if self.nodes > 2 {
            self.shape = Barrier::tree(self.me, self.nodes);
        }
        self.free_bytes = free_bytes;
        self
    }

    fn tree(me: NodeId, nodes: usize) -> Shape {
        let first = me.index() * TREE_DEGREE + 1;
        Shape::Tree {
            parent: (me.index() > 0).then(|| NodeId(((me.index() - 1) / TREE_DEGREE) as u16)),
            children: (first..(first + TREE_DEGREE).min(nodes)).map(|n| NodeId(n as u16)).collect(),
        }
    }

    /// The number of the barrier that is not open yet.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number that a thread gets which arrives now with this call.
    fn number(&self, what: Collective) -> u32 {
        if what.by_threads() { self.rounds } else { self.epoch }
    }

    /// Whether the barrier that a thread arrived at, with this call, is open; `number` is what it got there.
    ///
    /// # Errors
    /// When another party came with a different call.
    pub fn is_open(&self, what: Collective, number: u32) -> Result<bool, Mismatch> {
        let open = number != self.number(what);
        self.mismatch.filter(|_| !open).map_or(Ok(open), Err)
    }

    fn outcome(&self, what: Collective) -> &Outcome {
        if what.by_threads() { &self.of_threads } else { &self.of_one }
    }

    /// What the thread's call came to, if it was a reduction; valid until this thread arrives again.
    pub fn result(&self, what: Collective) -> &[u8] {
        &self.outcome(what).result
    }

    /// At the barrier of the thread's call some nodes came to the end of their part and others made another call: one
    /// of the former. The call has failed, but memory is as consistent as after a barrier. Valid until this thread
    /// arrives again.
    pub fn left(&self, what: Collective) -> Option<NodeId> {
        self.outcome(what).left
    }

    /// The write notices of all nodes at the last barrier, in no particular order; valid until this thread arrives
    /// again.
    pub fn notices(&self) -> &[u8] {
        &self.notices
    }

    /// Thread `slot` arrives, and says `notices` for its node (one thread of the node does). Gives the number of the
    /// barrier it waits for, see [`Barrier::is_open`].
    ///
    /// # Errors
    /// When another party came with a different call.
    pub fn arrive(
        &mut self,
        now: Time,
        slot: Slot,
        what: Collective,
        (payload, notices): (&[u8], &[u8]),
        out: &mut Outbox,
    ) -> Result<u32, Mismatch> {
        if let Some(before) = self.mismatch {
            return Err(Mismatch { earlier: true, ..before });
        }
        if let Some(met) = self.meets(what) {
            self.mismatch = Some(met);
            return Err(met);
        }
        let arrival = Arrival { what, payload: payload.to_vec(), notices: notices.to_vec() };
        let full = self.local.len() == self.threads;
        let first = if what.by_threads() {
            self.local.first().filter(|(_, a)| full || a.what != what)
        } else {
            self.one.as_ref()
        };
        if let Some((_, first)) = first {
            let apart = Apart([(self.me, first.what), (self.me, what)]);
            return self.fail(what, apart, Some(slot), out);
        }
        let number = self.number(what);
        if what.by_threads() {
            self.local.push((slot, arrival));
        } else {
            self.one = Some((slot, arrival));
        }
        self.arrive_by_word(now);
        if !self.by_word {
            self.tell_children_where(out);
            self.node_arrived(now, Some(slot), out)?;
        }
        Ok(number)
    }

    /// The threads of this node whose call is next, as far as they have come.
    fn party(&self) -> &[(Slot, Arrival)] {
        if self.one.is_some() { self.one.as_slice() } else { &self.local }
    }

    /// With which call this node has arrived, once all of its threads that take part are here.
    fn arrived(&self) -> Option<Collective> {
        let all = self.one.is_some() || self.local.len() == self.threads;
        self.party().first().filter(|_| all).map(|(_, arrival)| arrival.what)
    }

    /// Whether this node's thread 0 is not among those that wait.
    fn is_elsewhere(&self) -> bool {
        self.party().iter().all(|(slot, _)| *slot != Slot::thread(0))
    }

    /// Where a node waits at a barrier, as far as this one knows.
    fn place(&self, node: NodeId, epoch: u32) -> Slot {
        if self.elsewhere.contains(&(node, epoch)) { Slot::SERVICE } else { Slot::thread(0) }
    }

    /// Takes note of where a node waits, once for each barrier; tells whether it was news.
    fn note_place(&mut self, heard: &Heard<'_>) -> bool {
        let near = self.epoch.wrapping_add(1).wrapping_sub(heard.epoch) <= 2;
        heard.elsewhere && near && self.elsewhere.insert((heard.from, heard.epoch))
    }

    /// All threads of this node that take part are here: in the tree, children whose arrival is awaited must know where
    /// if that is elsewhere.
    fn tell_children_where(&self, out: &mut Outbox) {
        let Shape::Tree { children, .. } = &self.shape else { return };
        if self.arrived().is_none() || !self.is_elsewhere() {
            return;
        }
        let (epoch, what) = (self.epoch, Collective::QUESTION);
        let message = Message::Arrive { epoch, repeated: false, elsewhere: true, what, payload: &[], notices: &[] };
        for node in children.iter().copied().filter(|child| !self.seen.contains_key(child)) {
            out.send(Target::Free { node, slot: Slot::SERVICE }, &message);
        }
    }

    /// Says this node's arrival once more to one that asks for it, or that has only now told where it waits.
    fn say_again(&self, node: NodeId, mine: &Arrival, out: &mut Outbox) {
        let (epoch, what, elsewhere) = (self.epoch, mine.what, self.is_elsewhere());
        let (payload, notices) = (&mine.payload[..], &mine.notices[..]);
        // What does not fit was posted.
        if notices.len() <= self.free_bytes {
            let message = Message::Arrive { epoch, repeated: false, elsewhere, what, payload, notices };
            out.send(Target::Free { node, slot: self.place(node, epoch) }, &message);
        }
    }

    /// Another node's arrival.
    pub fn on_arrive(&mut self, now: Time, caller: Option<Slot>, heard: Heard<'_>, out: &mut Outbox) {
        let moved = self.note_place(&heard);
        let Heard { from, epoch, repeated, what, payload, notices, .. } = heard;
        let arrival = || Arrival { what, payload: payload.to_vec(), notices: notices.to_vec() };
        if epoch.wrapping_add(1) == self.epoch {
            // Only who still waits repeats itself; answering a late copy would start an exchange of late copies.
            if repeated {
                self.remind(from, epoch, out);
            }
        } else if self.mismatch.is_some() {
            // Nothing opens any more.
        } else if epoch == self.epoch && (self.expects(from) || what == Collective::QUESTION) {
            if what != Collective::QUESTION {
                self.seen.insert(from, arrival());
            }
            // Who waits elsewhere itself has told the service thread.
            let missed = moved && !self.is_elsewhere();
            let told = self.mine.as_ref().filter(|_| !self.by_word);
            match (told, &self.shape) {
                (Some(mine), Shape::All) if repeated || missed => self.say_again(from, mine, out),
                (Some(mine), Shape::Tree { parent, .. }) if missed && *parent == Some(from) => {
                    self.say_again(from, mine, out)
                }
                _ if repeated => {
                    out.send(Target::Free { node: from, slot: self.place(from, epoch) }, &Message::Noted { epoch })
                }
                _ => {}
            }
            let _ = self.node_arrived(now, caller, out);
        } else if epoch == self.epoch.wrapping_add(1) && self.expects(from) && what != Collective::QUESTION {
            self.early.insert(from, arrival());
        }
    }

    /// A peer noted the arrival that was repeated to it, and has not arrived itself.
    pub fn on_noted(&mut self, now: Time, from: NodeId, epoch: u32) {
        if epoch == self.epoch && self.mine.is_some() {
            self.noted.insert(from, now);
            // What was repeated more often tells only that its waits were short, or that something was lost: they stay
            // as long as they have become.
            match (std::mem::take(&mut self.repeated.0), self.retry) {
                (1, _) => self.round_trip = now - self.repeated.1,
                (2.., Some((_, span))) => self.round_trip = self.round_trip.max(span),
                _ => {}
            }
        }
        if let Some((at, span)) = self.retry.as_mut().filter(|_| epoch == self.epoch) {
            *span = (*span).max(Span::from_ms(self.tuning.barrier_retry_noted_ms));
            *at = now + *span;
        }
    }

    /// The release from the parent.
    pub fn on_release(
        &mut self,
        caller: Option<Slot>,
        (epoch, what): (u32, Collective),
        (payload, notices): (&[u8], &[u8]),
        out: &mut Outbox,
    ) {
        let waits = epoch == self.epoch && matches!(self.shape, Shape::Tree { parent: Some(_), .. });
        if let Some(mine) = self.mine.as_mut().filter(|_| waits) {
            mine.what = what;
            self.open(caller, what, (payload.to_vec(), notices.to_vec()), out);
        }
    }

    /// A node has left the job: it had passed the closing barrier, so all had arrived there, whether this node heard of
    /// it or not. Tells whether this node waits at that barrier, which is open now.
    pub fn on_departure(&mut self, caller: Option<Slot>, out: &mut Outbox) -> bool {
        let waits = self.mine.as_ref().is_some_and(|a| a.what == Collective::EXIT);
        if waits {
            self.open(caller, Collective::EXIT, Default::default(), out);
        }
        waits
    }

    /// When [`Barrier::on_timeout`] wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.retry.map(|(at, _)| at)
    }

    /// Nodes to which this one's arrival was repeated, and from which nothing has come since `before`; each with the
    /// time since when.
    pub fn unanswered(&self, before: Time) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        let waits = self.mine.is_some() && (self.retry.is_some() || self.by_word);
        let since = |node: NodeId| self.noted.get(&node).copied().unwrap_or(self.told);
        let asked = self.asked().into_iter().filter(move |_| waits);
        asked.map(move |node| (node, since(node))).filter(move |(_, since)| *since <= before)
    }

    /// Those to whom the arrival is repeated.
    fn asked(&self) -> Vec<NodeId> {
        match &self.shape {
            Shape::All => NodeId::all(self.nodes).filter(|n| *n != self.me && !self.seen.contains_key(n)).collect(),
            Shape::Tree { parent, .. } => parent.iter().copied().collect(),
        }
    }

    /// Repeats the arrival to those from whom nothing has come.
    pub fn on_timeout(&mut self, now: Time, out: &mut Outbox) {
        let Some((at, span)) = self.retry else { return };
        let missing = self.asked();
        let Some(mine) = self.mine.as_ref().filter(|_| now >= at) else { return };
        // What was posted is under way; but what the others said may have been lost.
        let (what, payload, notices) = match mine.notices.len() <= self.free_bytes {
            true => (mine.what, &mine.payload[..], &mine.notices[..]),
            false => (Collective::QUESTION, &[][..], &[][..]),
        };
        let (epoch, elsewhere) = (self.epoch, self.is_elsewhere());
        let message = Message::Arrive { epoch, repeated: true, elsewhere, what, payload, notices };
        for node in missing {
            out.send(Target::Free { node, slot: Slot::SERVICE }, &message);
        }
        let span = Span((span.0 * 2).min(self.last_retry().0.max(self.first_retry().0)));
        self.retry = Some((now + span, span));
        if self.noted.is_empty() {
            let (count, first) = self.repeated;
            self.repeated = (count + 1, if count == 0 { now } else { first });
        }
    }

    /// The nodes whose arrival is awaited, for reports of what hangs; local threads first.
    pub fn missing(&self) -> (usize, Vec<NodeId>) {
        let threads = if self.one.is_some() { 0 } else { self.threads.saturating_sub(self.local.len()) };
        let nodes = NodeId::all(self.nodes).filter(|n| self.expects(*n) && !self.seen.contains_key(n)).collect();
        (threads, nodes)
    }

    /// The node that opens the barrier for this one, if it does not do so itself.
    pub fn parent(&self) -> Option<NodeId> {
        match &self.shape {
            Shape::All => None,
            Shape::Tree { parent, .. } => *parent,
        }
    }

    /// Whether this node hears arrivals from `node`.
    fn expects(&self, node: NodeId) -> bool {
        match &self.shape {
            Shape::All => node != self.me && node.index() < self.nodes,
            Shape::Tree { children, .. } => children.contains(&node),
        }
    }

    fn expected_count(&self) -> usize {
        match &self.shape {
            Shape::All => self.nodes - 1,
            Shape::Tree { children, .. } => children.len(),
        }
    }

    /// Calls of this node and another do not go together. Whoever waits anywhere hears only from this that it does so
    /// in vain.
    fn fail<T>(
        &mut self,
        mine: Collective,
        apart: Apart,
        caller: Option<Slot>,
        out: &mut Outbox,
    ) -> Result<T, Mismatch> {
        let mismatch = apart.as_met(self.me, mine);
        self.apart = Some((self.epoch, apart));
        self.mismatch = Some(mismatch);
        self.retry = None;
        self.wake_all(caller, out);
        self.tell_apart(None, out);
        Err(mismatch)
    }

    /// Tells those beside this node of the calls that do not go together, but `from`, who did so.
    fn tell_apart(&self, from: Option<NodeId>, out: &mut Outbox) {
        let Some((epoch, apart)) = self.apart else { return };
        let beside = NodeId::all(self.nodes).filter(|n| self.expects(*n) || self.parent() == Some(*n));
        for node in beside.filter(|n| from != Some(*n)) {
            out.send(Target::Post { node, origin: Origin::Service }, &Message::Apart { epoch, apart });
        }
    }

    /// Calls of two parties did not go together, as `from` tells.
    pub fn on_apart(&mut self, from: NodeId, (epoch, apart): (u32, Apart), caller: Option<Slot>, out: &mut Outbox) {
        if self.apart.is_none() {
            self.apart = Some((epoch, apart));
            self.tell_apart(Some(from), out);
            self.heed_apart(caller, out);
        }
    }

    /// What a call comes to where those of others are known not to go together. Barriers before theirs still open.
    fn meets(&self, mine: Collective) -> Option<Mismatch> {
        let (_, apart) = self.apart.filter(|(epoch, _)| self.epoch.wrapping_sub(*epoch) as i32 >= 0)?;
        Some(apart.as_met(self.me, mine))
    }

    /// Lets whoever waits here know that it does so in vain.
    fn heed_apart(&mut self, caller: Option<Slot>, out: &mut Outbox) {
        let waits = self.party().first().map(|(_, arrival)| arrival.what);
        if let Some(met) = waits.and_then(|mine| self.meets(mine)).filter(|_| self.mismatch.is_none()) {
            self.mismatch = Some(met);
            self.retry = None;
            self.wake_all(caller, out);
        }
    }

    /// Goes as far as the arrivals so far allow.
    fn node_arrived(&mut self, now: Time, caller: Option<Slot>, out: &mut Outbox) -> Result<(), Mismatch> {
        let Some(what) = self.arrived().filter(|_| self.mismatch.is_none() && !self.by_word) else { return Ok(()) };
        let all = match self.agreed(what) {
            Ok(all) => all,
            Err(theirs) => return self.fail(what, Apart([theirs, (self.me, what)]), caller, out),
        };
        match &self.shape {
            Shape::All => {
                if self.mine.is_none() {
                    let (payload, notices) = self.combine_local(what);
                    let arrival = Arrival { what, payload, notices };
                    self.tell(now, arrival, NodeId::all(self.nodes).collect(), out);
                }
                self.open_when_all_in(all, caller, out);
            }
            Shape::Tree { parent, .. } => {
                let parent = *parent;
                if self.mine.is_some() || self.seen.len() < self.expected_count() {
                    return Ok(());
                }
                let (mut payload, mut notices) = self.combine_local(what);
                self.combine_seen(all, &mut payload, &mut notices);
                match parent {
                    Some(parent) => self.tell(now, Arrival { what: all, payload, notices }, vec![parent], out),
                    None => {
                        self.mine = Some(Arrival { what: all, payload: payload.clone(), notices: Vec::new() });
                        self.open(caller, all, (payload, notices), out);
                    }
                }
            }
        }
        Ok(())
    }

    /// What this node's call and those seen so far come to together, or a node whose call does not go with this one.
    fn agreed(&self, mine: Collective) -> Result<Collective, (NodeId, Collective)> {
        let mut seen = self.seen.iter().map(|(node, arrival)| (*node, arrival.what));
        let Some(other) = seen.clone().find(|(_, theirs)| *theirs != mine) else { return Ok(mine) };
        let leaves = seen.find(|(_, theirs)| theirs.kind == kinds::LEAVE);
        let leaves = leaves.or_else(|| (mine.kind == kinds::LEAVE).then_some((self.me, mine)));
        leaves.map(|(node, what)| Collective::left_by(what.leaver().unwrap_or(node))).ok_or(other)
    }

    fn tell(&mut self, now: Time, arrival: Arrival, to: Vec<NodeId>, out: &mut Outbox) {
        let (payload, notices) = (&arrival.payload[..], &arrival.notices[..]);
        let (epoch, elsewhere, what) = (self.epoch, self.is_elsewhere(), arrival.what);
        let message = Message::Arrive { epoch, repeated: false, elsewhere, what, payload, notices };
        for node in to.into_iter().filter(|n| *n != self.me) {
            let slot = if elsewhere { Slot::SERVICE } else { self.place(node, epoch) };
            out.send(self.target(node, slot, notices), &message);
        }
        self.mine = Some(arrival);
        (self.told, self.repeated) = (now, (0, now));
        self.noted.clear();
        let first = self.first_retry();
        self.retry = (self.nodes > 1).then_some((now + first, first));
    }

    /// When an arrival is first repeated: not before an answer can be there, and so late that a peer which arrives a
    /// little later is not disturbed in its computing.
    fn first_retry(&self) -> Span {
        let SyncTuning { barrier_retry_ms, barrier_retry_far_ms, .. } = self.tuning;
        let answered = self.round_trip.0 + self.round_trip.0 / 4;
        Span(answered.max(Span::from_ms(barrier_retry_ms).0).min(Span::from_ms(barrier_retry_far_ms).0))
    }

    fn last_retry(&self) -> Span {
        Span::from_ms(self.tuning.barrier_retry_max_ms)
    }

    /// How a message with notices goes to where another node waits at a barrier.
    fn target(&self, node: NodeId, slot: Slot, notices: &[u8]) -> Target {
        let fits = notices.len() <= self.free_bytes;
        if fits { Target::Free { node, slot } } else { Target::Post { node, origin: Origin::Service } }
    }

    fn open_when_all_in(&mut self, what: Collective, caller: Option<Slot>, out: &mut Outbox) {
        let slack = if Rule::BarrierWaitsForAll.on() { 0 } else { 1 };
        if self.seen.len() + slack < self.expected_count() {
            return;
        }
        let mut result: Option<Vec<u8>> = None;
        let mine = self.mine.as_ref().map(|a| a.payload.clone()).unwrap_or_default();
        for node in NodeId::all(self.nodes) {
            let payload = if node == self.me { Some(&mine) } else { self.seen.get(&node).map(|a| &a.payload) };
            let Some(payload) = payload else { continue };
            match (&mut result, what.reduction()) {
                (Some(result), Some(reduction)) => {
                    reduction.combine(result, payload);
                }
                (result @ None, _) => *result = Some(payload.clone()),
                _ => {}
            }
        }
        let mut notices = self.mine.as_ref().map(|a| a.notices.clone()).unwrap_or_default();
        self.seen.values().for_each(|a| notices.extend_from_slice(&a.notices));
        self.open(caller, what, (result.unwrap_or_default(), notices), out);
    }

    fn combine_local(&mut self, what: Collective) -> (Vec<u8>, Vec<u8>) {
        self.local.sort_by_key(|(slot, _)| *slot);
        let mut payloads = self.party().iter().map(|(_, a)| &a.payload);
        let mut all = payloads.next().cloned().unwrap_or_default();
        if let Some(reduction) = what.reduction() {
            payloads.for_each(|p| {
                reduction.combine(&mut all, p);
            });
        }
        (all, self.party().iter().flat_map(|(_, a)| a.notices.iter().copied()).collect())
    }

    fn combine_seen(&self, what: Collective, into: &mut [u8], notices: &mut Vec<u8>) {
        self.seen.values().for_each(|a| notices.extend_from_slice(&a.notices));
        if let Some(reduction) = what.reduction() {
            for arrival in self.seen.values() {
                reduction.combine(into, &arrival.payload);
            }
        }
    }

    fn wake(party: &[(Slot, Arrival)], caller: Option<Slot>, out: &mut Outbox) {
        for (slot, _) in party.iter().filter(|(slot, _)| caller != Some(*slot)) {
            out.wake(*slot);
        }
    }

    fn wake_all(&self, caller: Option<Slot>, out: &mut Outbox) {
        Self::wake(&self.local, caller, out);
        Self::wake(self.one.as_slice(), caller, out);
    }

    fn open(
        &mut self,
        caller: Option<Slot>,
        what: Collective,
        (result, notices): (Vec<u8>, Vec<u8>),
        out: &mut Outbox,
    ) {
        let by_word = std::mem::take(&mut self.by_word);
        if let (Shape::Tree { children, .. }, false) = (&self.shape, by_word) {
            for child in children {
                let message = Message::Release { epoch: self.epoch, what, payload: &result, notices: &notices };
                out.send(self.target(*child, self.place(*child, self.epoch), &notices), &message);
            }
        }
        self.notices = notices;
        Self::wake(self.party(), caller, out);
        self.last = self.mine.take();
        self.last_result.clone_from(&result);
        let outcome = Outcome { result, left: what.leaver() };
        if self.one.take().is_some() {
            self.of_one = outcome;
        } else {
            self.of_threads = outcome;
            self.rounds = self.rounds.wrapping_add(1);
            self.local.clear();
        }
        self.seen = std::mem::take(&mut self.early);
        self.epoch = self.epoch.wrapping_add(1);
        // Who is one barrier behind may still ask.
        let (last, next) = (self.epoch.wrapping_sub(1), self.epoch);
        self.elsewhere.retain(|(_, epoch)| [last, next].contains(epoch));
        self.retry = None;
        self.heed_apart(caller, out);
    }

    /// Tells a peer that is one barrier behind what it missed.
    fn remind(&self, node: NodeId, epoch: u32, out: &mut Outbox) {
        let Some(last) = self.last.as_ref().filter(|_| self.expects(node)) else { return };
        let target = Target::Free { node, slot: self.place(node, epoch) };
        let (what, elsewhere) = (last.what, false);
        let (message, notices) = match self.shape {
            Shape::All => {
                let (payload, notices) = (&last.payload[..], &last.notices[..]);
                (Message::Arrive { epoch, repeated: false, elsewhere, what, payload, notices }, notices)
            }
            Shape::Tree { .. } => {
                let (payload, notices) = (&self.last_result[..], &self.notices[..]);
                (Message::Release { epoch, what, payload, notices }, notices)
            }
        };
        // What did not fit was posted, and needs no reminder.
        if notices.len() <= self.free_bytes {
            out.send(target, &message);
        }
    }
}

#[cfg(test)]
#[path = "barrier_tests.rs"]
mod tests;
