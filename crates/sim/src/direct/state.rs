//! The whole model at one moment, and what may happen next.

use super::memory::{Memory, Write};
use super::message::Message;
use super::program::{Access, Fabric, MAGIC, Setup, WORDS};
use super::thread::{Activity, Grouping, Missing, Thread, Work};
use comem_protocol::coherence::direct::group::{self, Group, Joint, side_by_side};
use comem_protocol::coherence::direct::one_sided::Batch;
use comem_protocol::coherence::direct::remote::{self, Step};
use comem_protocol::coherence::direct::store_check::{Step as StoreStep, StoreCheck};
use comem_protocol::coherence::direct::{Miss, Op, Outcome, Reply, Want};
use comem_protocol::ids::NodeId;
use comem_protocol::rules::Rule;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// This thread makes its next step.
    Step(usize),
    /// The oldest store of this thread's buffer reaches memory.
    Drain(usize),
    /// The oldest put of this thread to that node arrives.
    Arrive(usize, NodeId),
    /// The target of this thread's message goes on with it.
    Serve(usize, usize),
    /// The node that may crash does.
    Crash,
}

/// The model at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    memories: Vec<Memory>,
    threads: Vec<Thread>,
    latest: Vec<[u16; WORDS]>,
    lost: bool,
    error: Option<&'static str>,
}

impl State {
    /// The state in which nothing has happened.
    pub fn new(setup: &Setup) -> State {
        State {
            memories: NodeId::all(setup.nodes).map(|node| Memory::new(setup, node)).collect(),
            threads: setup.threads.iter().map(|(node, _)| Thread::new(*node)).collect(),
            latest: vec![[0; WORDS]; setup.homes.len()],
            lost: false,
            error: None,
        }
    }

    /// What may happen in this state.
    pub fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.error.is_some() {
            return actions;
        }
        for (t, thread) in self.threads.iter().enumerate() {
            if !thread.buffer.is_empty() {
                actions.push(Action::Drain(t));
            }
            let under_way = thread.puts.iter().filter(|(_, puts)| !puts.is_empty());
            actions.extend(under_way.map(|(node, _)| Action::Arrive(t, *node)));
            let served = thread.messages.iter().enumerate().filter(|(_, message)| self.can_serve(setup, message));
            actions.extend(served.map(|(at, _)| Action::Serve(t, at)));
            if !thread.has_ended(&setup.threads[t].1) && self.can_step(setup, t) {
                actions.push(Action::Step(t));
            }
        }
        if setup.crash.is_some() && !self.lost && !self.is_finished(setup) {
            actions.push(Action::Crash);
        }
        actions
    }

    /// The state after `action`.
    pub fn after(&self, setup: &Setup, action: Action) -> State {
        let mut next = self.clone();
        next.act(setup, action);
        next
    }

    /// Does `action`.
    pub fn act(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Drain(t) => self.drain(t),
            Action::Arrive(t, node) => {
                if let Some(write) = self.threads[t].puts.get_mut(&node).and_then(VecDeque::pop_front) {
                    self.commit(node, write);
                }
            }
            Action::Serve(t, at) => self.serve(setup, t, at),
            Action::Step(t) => self.step(setup, t),
            Action::Crash => self.crash(setup),
        }
        if let (None, Some(what)) = (self.error, self.incoherence()) {
            self.error = Some(what);
        }
    }

    /// What is wrong, if anything.
    pub fn violation(&self, setup: &Setup) -> Option<&'static str> {
        if self.error.is_some() {
            return self.error;
        }
        let is_stuck = self.actions(setup).iter().all(|action| *action == Action::Crash);
        (is_stuck && !self.is_finished(setup)).then_some("nothing can happen any more, but an access waits")
    }

    /// Whether every thread is at its end and every store in memory.
    pub fn is_finished(&self, setup: &Setup) -> bool {
        self.threads.iter().zip(&setup.threads).all(|(t, (_, program))| t.has_ended(program) && t.is_drained())
    }

    /// What each thread's loads have found.
    pub fn loads(&self) -> Vec<Vec<u16>> {
        self.threads.iter().map(|thread| thread.loads.clone()).collect()
    }

    /// The latest value of a word.
    pub fn latest(&self, unit: usize, word: usize) -> u16 {
        self.latest[unit][word]
    }

    /// Whether no thread has given up.
    pub fn is_complete(&self, setup: &Setup) -> bool {
        self.threads.iter().zip(&setup.threads).all(|(thread, (_, program))| thread.done == program.len())
    }

    fn incoherence(&self) -> Option<&'static str> {
        for (unit, words) in self.latest.iter().enumerate() {
            for (word, latest) in words.iter().enumerate() {
                let mut is_somewhere = false;
                for memory in self.memories.iter().filter(|memory| memory.mapped[unit]) {
                    let value = memory.word(unit, word);
                    if value != MAGIC && value != *latest {
                        return Some("a copy has an old value");
                    }
                    is_somewhere |= value == *latest;
                }
                is_somewhere |= self.threads.iter().any(|thread| thread.carries((unit, word), *latest));
                if !is_somewhere && !self.lost {
                    return Some("a value is nowhere");
                }
            }
        }
        None
    }

    fn crash(&mut self, setup: &Setup) {
        self.lost = true;
        for thread in self.threads.iter_mut().filter(|thread| Some(thread.node) == setup.crash) {
            thread.activity = Activity::Lost(None);
            thread.buffer.clear();
            thread.puts.clear();
        }
    }

    fn drain(&mut self, t: usize) {
        if let Some((to, write)) = self.threads[t].buffer.pop_front() {
            self.commit(to, write);
        }
    }

    /// A store reaches the memory of `to`.
    fn commit(&mut self, to: NodeId, write: Write) {
        if let Write::Word { unit, word, value, is_own: true } = write {
            self.latest[unit][word] = value;
        }
        self.memories[to.index()].write(write);
    }

    fn memory(&self, t: usize) -> &Memory {
        &self.memories[self.threads[t].node.index()]
    }

    fn word(&self, t: usize, unit: usize, word: usize) -> u16 {
        self.threads[t].forwarded_word(unit, word).unwrap_or_else(|| self.memory(t).word(unit, word))
    }

    /// Whether the thread's next step is possible; a step that is not waits for another.
    fn can_step(&self, setup: &Setup, t: usize) -> bool {
        let thread = &self.threads[t];
        let access = setup.threads[t].1[thread.done];
        match &thread.activity {
            Activity::Checking(check) => {
                check.step() != StoreStep::Store || !access.is_atomic() || thread.buffer.is_empty()
            }
            Activity::Missing(Missing { batch, work, .. }) => {
                batch.front().is_none_or(|step| self.can_operate(setup, thread, step, work, access))
            }
            Activity::Grouping(Grouping { steps, works, .. }) => {
                let can =
                    |(number, step): (usize, &Step)| self.can_operate(setup, thread, step, &works[number], access);
                match steps.front() {
                    Some(Joint::One(number, step)) => can((*number, step)),
                    Some(Joint::Together(steps)) => steps.iter().all(|(number, step)| can((*number, step))),
                    None => true,
                }
            }
            _ => true,
        }
    }

    /// Whether a thread's next step is possible.
    fn can_operate(&self, setup: &Setup, thread: &Thread, step: &Step, work: &Work, access: Access) -> bool {
        let op = match step {
            Step::Here(op) => op,
            // A message leaves by a system call, which drains the store buffer.
            Step::Send(..) => return thread.buffer.is_empty(),
            Step::Await => {
                return thread.messages.iter().all(|message| message.is_done() || self.is_dead(setup, message.to));
            }
        };
        match op {
            Op::FetchAndSet { at } | Op::GetWide { at } => thread.is_in_order(setup, *at),
            Op::GetData { from } => setup.fabric == Fabric::Shared || thread.is_in_order(setup, *from),
            Op::Flush => match setup.fabric {
                Fabric::Shared => thread.buffer.is_empty(),
                Fabric::Network | Fabric::Messages => thread.puts.values().all(VecDeque::is_empty),
            },
            Op::Quiesce { at } => work.progress == 0 || self.lost || !self.memories[at.index()].has_hazard(work.unit),
            Op::Pause { at } => self.lost || !self.memories[at.index()].entry(work.unit, 0).is_busy(),
            Op::Access => !access.is_atomic() || thread.buffer.is_empty(),
            _ => true,
        }
    }

    fn step(&mut self, setup: &Setup, t: usize) {
        let access = setup.threads[t].1[self.threads[t].done];
        match std::mem::replace(&mut self.threads[t].activity, Activity::Ready) {
            Activity::Ready => self.begin(setup, t, access),
            Activity::Filling { unit } => self.memories[self.threads[t].node.index()].fill(unit),
            Activity::Checking(check) => self.step_check(setup, t, access, check),
            Activity::Missing(missing) => self.step_miss(setup, t, access, missing),
            Activity::Grouping(grouping) => self.step_group(setup, t, access, grouping),
            Activity::Lost(_) => unreachable!("a thread that has given up makes no step"),
        }
    }

    fn begin(&mut self, setup: &Setup, t: usize, access: Access) {
        let node = self.threads[t].node.index();
        let units = match access {
            Access::Load { unit, .. } => vec![unit],
            Access::Bring { units } => units.to_vec(),
            _ => access.stores().iter().map(|(unit, ..)| *unit).collect(),
        };
        if let Some(unit) = units.into_iter().find(|unit| !self.memories[node].mapped[*unit]) {
            if Rule::FillBeforeMap.on() {
                self.memories[node].fill(unit);
            } else {
                self.threads[t].activity = Activity::Filling { unit };
            }
            self.memories[node].mapped[unit] = true;
            return;
        }
        if let Access::Load { unit, word } = access {
            let value = self.word(t, unit, word);
            if value == MAGIC && Rule::GenuineMagicIsAsked.on() {
                return self.start_miss(setup, t, unit, Want::Load, None);
            }
            self.loaded(t, unit, word);
            self.threads[t].done += 1;
            return;
        }
        if let Access::Bring { units } = access {
            return self.start_group(setup, t, &units, Want::Bring, None);
        }
        self.threads[t].activity = Activity::Checking(StoreCheck::start(access.stores().len()));
    }

    /// The access is a load, and finds what is here now.
    fn loaded(&mut self, t: usize, unit: usize, word: usize) {
        let value = self.word(t, unit, word);
        if self.threads[t].forwarded_word(unit, word).is_none() && value != self.latest[unit][word] {
            self.error = Some("a load found what is not the latest value");
        }
        self.threads[t].loads.push(value);
    }

    fn step_check(&mut self, setup: &Setup, t: usize, access: Access, mut check: StoreCheck) {
        let stores = access.stores();
        let mut entry = None;
        match check.step() {
            StoreStep::RaiseHazard => self.hazard(setup, t, stores.iter().map(|(unit, ..)| *unit).collect()),
            StoreStep::LowerHazard => self.hazard(setup, t, Vec::new()),
            StoreStep::Check(of) => {
                let (unit, word, _) = stores[of];
                let line = setup.line_of(word);
                let thread = &self.threads[t];
                entry = thread.forwarded_entry(unit, line).or(Some(self.memory(t).entry(unit, line)));
            }
            StoreStep::Store => stores.iter().for_each(|store| self.store(setup, t, access, *store)),
            StoreStep::Own(of) => {
                let want = if setup.biases_again { Want::OwnBiased } else { Want::Own };
                if setup.has_groups {
                    let units: Vec<usize> = stores.iter().map(|(unit, ..)| *unit).collect();
                    return self.start_group(setup, t, &units, want, Some(check));
                }
                return self.start_miss(setup, t, stores[of].0, want, Some(check));
            }
            StoreStep::StoreByCall(of) => return self.start_miss(setup, t, stores[of].0, Want::Store, Some(check)),
            StoreStep::Finished => unreachable!("a finished store makes no step"),
        }
        check.next(entry);
        self.go_on(t, check);
    }

    /// The checked store goes on, or the access has ended.
    fn go_on(&mut self, t: usize, check: StoreCheck) {
        if check.step() == StoreStep::Finished {
            self.threads[t].done += 1;
        } else {
            self.threads[t].activity = Activity::Checking(check);
        }
    }

    fn hazard(&mut self, setup: &Setup, t: usize, units: Vec<usize>) {
        let thread = &mut self.threads[t];
        thread.store(setup, thread.node, Write::Hazard { thread: t, units });
    }

    fn store(&mut self, setup: &Setup, t: usize, access: Access, (unit, word, value): (usize, usize, u16)) {
        let node = self.threads[t].node;
        if !access.is_atomic() {
            return self.threads[t].store(setup, node, Write::Word { unit, word, value, is_own: true });
        }
        let old = self.memories[node.index()].word(unit, word);
        if old != self.latest[unit][word] {
            self.error = Some("an atomic operation found what is not the latest value");
        }
        let value = if matches!(access, Access::Add { .. }) { old.wrapping_add(1) } else { value };
        self.commit(node, Write::Word { unit, word, value, is_own: true });
    }

    fn start_miss(&mut self, setup: &Setup, t: usize, unit: usize, want: Want, check: Option<StoreCheck>) {
        let (miss, batch) = Miss::start(setup.site(self.threads[t].node, unit), want);
        let batch = steps(setup, self.threads[t].node, batch);
        let work = Work { unit, progress: 0, reply: Reply::Done, check };
        self.threads[t].activity = Activity::Missing(Missing { miss, batch, work });
    }

    fn start_group(&mut self, setup: &Setup, t: usize, units: &[usize], want: Want, check: Option<StoreCheck>) {
        let me = self.threads[t].node;
        let (group, last) = Group::start(units.iter().map(|unit| setup.site(me, *unit)), want);
        let work = |unit: &usize| Work { unit: *unit, progress: 0, reply: Reply::Done, check: None };
        let (steps, works) = (joint_steps(setup, me, &last), units.iter().map(work).collect());
        self.threads[t].activity = Activity::Grouping(Grouping { group, last, steps, works, check });
    }

    fn step_group(&mut self, setup: &Setup, t: usize, access: Access, mut grouping: Grouping) {
        let Some(joint) = grouping.steps.front().cloned() else { unreachable!("a group without a step") };
        let together = match joint {
            Joint::One(number, step) => vec![(number, step)],
            Joint::Together(steps) => steps.into_vec(),
        };
        let mut is_done = true;
        if together.iter().any(|(_, step)| *step == Step::Await) {
            self.take_answers(setup, t, &mut grouping.works);
        } else {
            for (number, step) in together {
                is_done &= self.make_step(setup, t, access, &mut grouping.works[number], step);
            }
        }
        if is_done {
            grouping.steps.pop_front();
            grouping.works.iter_mut().for_each(|work| work.progress = 0);
        }
        if grouping.works.iter().any(|work| work.reply == Reply::Lost) {
            self.threads[t].activity = Activity::Lost(None);
            return;
        }
        if grouping.steps.is_empty() {
            let reply = |number: usize| std::mem::replace(&mut grouping.works[number].reply, Reply::Done);
            grouping.last = grouping.group.next(&grouping.last, reply);
            grouping.steps = joint_steps(setup, self.threads[t].node, &grouping.last);
        }
        if !grouping.last.is_empty() {
            self.threads[t].activity = Activity::Grouping(grouping);
            return;
        }
        match grouping.check {
            Some(mut check) => {
                check.next(None);
                self.go_on(t, check);
            }
            None => self.threads[t].done += 1,
        }
    }

    /// A step about one unit that the thread makes by itself; tells whether it was the last one of its operation.
    fn make_step(&mut self, setup: &Setup, t: usize, access: Access, work: &mut Work, step: Step) -> bool {
        let is_done = match step {
            Step::Here(op) => self.operate(setup, t, access, work, &op),
            Step::Send(to, ops) => {
                let from = self.threads[t].node;
                self.threads[t].messages.push(Message::new(from, to, work.unit, &ops));
                true
            }
            Step::Await => {
                self.take_answers(setup, t, std::slice::from_mut(work));
                true
            }
        };
        work.progress = if is_done { 0 } else { work.progress + 1 };
        is_done
    }

    fn step_miss(&mut self, setup: &Setup, t: usize, access: Access, mut missing: Missing) {
        let Some(step) = missing.batch.front().cloned() else { unreachable!("a miss without a step") };
        if self.make_step(setup, t, access, &mut missing.work, step) {
            missing.batch.pop_front();
        }
        if missing.work.reply == Reply::Lost {
            missing.batch.clear();
        }
        if !missing.batch.is_empty() {
            self.threads[t].activity = Activity::Missing(missing);
            return;
        }
        match missing.miss.next(std::mem::replace(&mut missing.work.reply, Reply::Done)) {
            ControlFlow::Continue(batch) => {
                missing.batch = steps(setup, self.threads[t].node, batch);
                self.threads[t].activity = Activity::Missing(missing);
            }
            ControlFlow::Break(Outcome::Lost(holder)) => self.threads[t].activity = Activity::Lost(holder),
            ControlFlow::Break(_) => match missing.work.check {
                Some(mut check) => {
                    check.next(None);
                    self.go_on(t, check);
                }
                None => self.threads[t].done += 1,
            },
        }
    }

    /// Whether this node is gone, its memory as well.
    fn is_dead(&self, setup: &Setup, node: NodeId) -> bool {
        self.lost && setup.crash == Some(node) && setup.fabric != Fabric::Shared
    }

    fn can_serve(&self, setup: &Setup, message: &Message) -> bool {
        !self.is_dead(setup, message.to) && message.can_go_on(&self.memories[message.to.index()], self.lost)
    }

    /// The target of a message makes its next step with it.
    fn serve(&mut self, setup: &Setup, t: usize, at: usize) {
        let to = self.threads[t].messages[at].to;
        if self.threads[t].messages[at].is_at_barrier() {
            self.barrier(to);
        }
        self.threads[t].messages[at].step(&mut self.memories[to.index()], setup.lines);
    }

    /// All messages are answered: what they have brought is stored.
    fn take_answers(&mut self, setup: &Setup, t: usize, works: &mut [Work]) {
        let me = self.threads[t].node;
        for message in std::mem::take(&mut self.threads[t].messages) {
            let Some(work) = works.iter_mut().find(|work| work.unit == message.unit) else { continue };
            if !message.is_done() || message.is_of_spinner && self.lost {
                work.reply = Reply::Lost;
                return;
            }
            work.reply = message.reply.unwrap_or(Reply::Done);
            for (word, value) in message.words.into_iter().enumerate() {
                let write = Write::Word { unit: work.unit, word, value, is_own: false };
                self.threads[t].store(setup, me, write);
            }
        }
    }

    /// One step of an operation; tells whether it was the last one.
    fn operate(&mut self, setup: &Setup, t: usize, access: Access, work: &mut Work, op: &Op) -> bool {
        let (unit, me) = (work.unit, self.threads[t].node);
        if op.target(me).is_some_and(|node| self.is_dead(setup, node)) {
            work.reply = Reply::Lost;
            return true;
        }
        match *op {
            Op::FetchAndSet { at } => {
                let memory = &mut self.memories[at.index()];
                let entry = memory.entry(unit, 0);
                memory.write(Write::Entry { unit, line: 0, entry: entry.after_fetch_and_set(me) });
                work.reply = Reply::Entry(entry);
            }
            Op::GetWide { at } => work.reply = Reply::Wide(self.memories[at.index()].wide(unit).clone()),
            Op::GetData { from } => {
                let word = work.progress;
                let value = self.memories[from.index()].word(unit, word);
                let write = Write::Word { unit, word, value, is_own: false };
                match setup.fabric {
                    Fabric::Shared => self.threads[t].store(setup, me, write),
                    Fabric::Network | Fabric::Messages => self.commit(me, write),
                }
                return word + 1 == WORDS;
            }
            Op::PutMagic { to } => {
                for word in 0..WORDS {
                    let write = Write::Word { unit, word, value: MAGIC, is_own: false };
                    self.threads[t].store(setup, to, write);
                }
            }
            Op::PutMirrors { to, entry } => self.put_entries(setup, t, to, (1..setup.lines).map(|l| (unit, l, entry))),
            Op::PutEntry { to, entry } => {
                self.put_entries(setup, t, to, (0..setup.lines).rev().map(|l| (unit, l, entry)));
            }
            Op::PutWide { to, ref holders } => {
                self.threads[t].store(setup, to, Write::Wide { unit, holders: holders.clone() });
            }
            Op::Flush => (),
            Op::Quiesce { at } => {
                if work.progress == 0 {
                    self.barrier(at);
                    return false;
                }
                if self.lost && self.memories[at.index()].has_hazard(unit) {
                    work.reply = Reply::Lost;
                }
            }
            Op::Pause { .. } => {
                if self.lost {
                    work.reply = Reply::Lost;
                }
            }
            Op::Peek => {
                let Access::Load { unit, word } = access else { unreachable!("only loads look again") };
                let is_magic = self.word(t, unit, word) == MAGIC;
                if !is_magic {
                    self.loaded(t, unit, word);
                }
                work.reply = Reply::Peeked { is_magic };
            }
            Op::Access => self.access(setup, t, access, work),
        }
        if *op == Op::Flush || matches!(op, Op::PutEntry { .. } | Op::Access) {
            work.reply = Reply::Done;
        }
        true
    }

    fn put_entries(
        &mut self,
        setup: &Setup,
        t: usize,
        to: NodeId,
        entries: impl Iterator<Item = (usize, usize, comem_protocol::coherence::direct::Entry)>,
    ) {
        for (unit, line, entry) in entries {
            self.threads[t].store(setup, to, Write::Entry { unit, line, entry });
        }
    }

    /// Every store that a thread of `at` has made before is in memory.
    fn barrier(&mut self, at: NodeId) {
        for t in (0..self.threads.len()).filter(|t| self.threads[*t].node == at).collect::<Vec<_>>() {
            while !self.threads[t].buffer.is_empty() {
                self.drain(t);
            }
        }
    }

    /// The access for which the thread has missed; the unit is locked.
    fn access(&mut self, setup: &Setup, t: usize, access: Access, work: &Work) {
        match access {
            Access::Load { unit, word } => self.loaded(t, unit, word),
            _ => {
                let of = match work.check.as_ref().map(StoreCheck::step) {
                    Some(StoreStep::StoreByCall(of)) => of,
                    _ => 0,
                };
                self.store(setup, t, access, access.stores()[of]);
            }
        }
    }
}

/// What a thread of `me` does with a batch.
fn steps(setup: &Setup, me: NodeId, batch: Batch) -> VecDeque<Step> {
    match setup.fabric {
        Fabric::Messages => remote::split(me, &batch).into_iter().collect(),
        Fabric::Shared | Fabric::Network => batch.into_iter().map(Step::Here).collect(),
    }
}

/// What a thread of `me` does with the batches of several misses.
fn joint_steps(setup: &Setup, me: NodeId, batches: &group::Batches) -> VecDeque<Joint<Step>> {
    let lists = batches.iter().map(|(number, batch)| (*number, steps(setup, me, batch.clone())));
    side_by_side(lists, |step| match step {
        Step::Here(op) => group::is_waited_for(op),
        Step::Send(..) => false,
        Step::Await => true,
    })
}
