//! An application thread: goes through its program in steps as small as a processor's.

use super::check::Judge;
use super::frees;
use super::memory::{Access, PAGE_WORDS, Progress};
use super::node::{Node, Pages};
use super::program::Op;
use crate::schedule::Scheduled;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::atomic::Answer;
use comem_protocol::coherence::pages::intervals::IntervalState;
use comem_protocol::coherence::pages::kept_diffs;
use comem_protocol::coherence::pages::node::close::may_have_to_tell;
use comem_protocol::coherence::pages::node::fault::{Faulted, Fetching, Progress as Fetched, premap};
use comem_protocol::coherence::pages::node::refetch::Refetch;
use comem_protocol::coherence::pages::node::sync::{Opening, arrive, home_is_fresh};
use comem_protocol::coherence::pages::page_table::atomic::Place;
use comem_protocol::coherence::pages::serve;
use comem_protocol::coherence::pages::wire::RequiredDiff;
use comem_protocol::ids::{FlagId, LockId, NodeId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::rules::Rule;
use comem_protocol::sync::lock::Acquire;
use comem_protocol::sync::reduce::{Number, Operator, Reduction};
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::message::{Collective, SyncRequest};

/// Every reduction here is of one number.
const SUM: Reduction = Reduction { operator: Operator::Sum, number: Number::I64 };

/// What a thread does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Begins the operation.
    Begin,
    /// Its access is under way.
    Access,
    /// Its fault has begun a fetch.
    Fetch(Fetching),
    /// Its fault has begun to complete a copy; asks the writers, or the manager.
    AskWriters(Vec<(NodeId, kept_diffs::Ask)>),
    /// Waits for pages that it asked for itself.
    Asked,
    /// Waits for pages that another thread asked for.
    Joined,
    /// Has asked a word's home to add to it.
    Atomic(NodeId, Vec<RequiredDiff>),
    /// Waits for a lock.
    Lock,
    /// Waits for a flag.
    Flag,
    /// Waits for this barrier.
    Barrier(u32),
    /// Opens this barrier for its node.
    Opening(u32, Opening),
    /// Fetches again what the barrier has ended.
    Refetch(Refetch),
    /// Waits for what a collection demands.
    Complete,
    /// Has acquired lazily; asks other nodes what the lock's token did not bring.
    CatchUp,
    /// Has acquired; waits for the diffs of home pages that were announced.
    Home,
    /// Has asked a manager for this.
    Requested(SyncRequest),
    /// Has been answered; waits for the diffs of home pages that were announced.
    Answered(SyncRequest),
    /// Has joined a condition's waiters and let the lock go; asks for the signal.
    LetGo,
    /// Has been signalled; acquires the lock.
    Woken,
}

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Goes on within the operation.
    Within,
    /// The operation has ended.
    Ended,
    /// Computes for so long.
    Thinks(u64),
    /// Sleeps until woken or answered.
    Sleeps,
    /// The program has ended.
    Done,
}

/// An application thread.
#[derive(Clone, Debug)]
pub struct Thread {
    pub(super) program: Vec<Op>,
    pub(super) at: usize,
    pub(super) phase: Phase,
    pub(super) register: u64,
    /// How many locks it holds.
    pub(super) locks: u32,
    /// When it asked another node for a token, if it waits for that.
    pub(super) asked_for_token: Option<Time>,
    /// The next acquire is a lazy one.
    lazily: bool,
    /// Barriers passed.
    barriers: u32,
    /// Sleeps until roused.
    pub(super) asleep: bool,
    /// Has seen that its program has ended.
    pub(super) ended: bool,
    /// Requests for pages that are not answered yet.
    pub(super) outstanding: usize,
    /// They are for diffs that stay with their writers, or for bases.
    pub(super) awaits_kept: bool,
    /// What the homes were asked to have applied.
    asked: Vec<(NodeId, Vec<RequiredDiff>)>,
    /// Its access only finds out whose a page is.
    touches: bool,
    /// What a home has answered to its atomic operation.
    pub(super) answer: Option<Answer>,
}

impl Thread {
    /// A thread at the beginning of its program.
    pub fn new(program: Vec<Op>) -> Thread {
        let (phase, asked) = (Phase::Begin, Vec::new());
        Thread {
            program,
            at: 0,
            phase,
            register: 0,
            locks: 0,
            asked_for_token: None,
            lazily: false,
            barriers: 0,
            asleep: false,
            ended: false,
            outstanding: 0,
            awaits_kept: false,
            asked,
            touches: false,
            answer: None,
        }
    }

    /// Whether its program has ended.
    pub fn is_done(&self) -> bool {
        self.at >= self.program.len()
    }

    /// Where the thread stands, for people.
    pub fn place(&self) -> String {
        match self.program.get(self.at) {
            Some(op) => format!("operation {} of {}, {op:?} ({:?})", self.at, self.program.len(), self.phase),
            None => "the end".to_string(),
        }
    }
}

impl Node {
    /// Thread `t` takes its next step.
    pub(super) fn step_thread(&mut self, now: Time, t: usize, judge: &mut Judge, out: &mut Outbox) -> Turn {
        (self.pages.caller, self.pages.now) = (Some(Slot::thread(t)), now);
        let Some(op) = self.threads[t].program.get(self.threads[t].at).copied() else { return Turn::Done };
        match op {
            Op::Read(word) => self.access(t, word, None, judge, out),
            Op::Write(word, value) => self.access(t, word, Some(value), judge, out),
            Op::WriteNext(word) => {
                let next = self.threads[t].register + 1;
                self.access(t, word, Some(next), judge, out)
            }
            Op::WriteLess(word) => {
                let less = self.threads[t].register - 1;
                self.access(t, word, Some(less), judge, out)
            }
            Op::WriteBack(word) => {
                let before = self.threads[t].register;
                self.access(t, word, Some(before), judge, out)
            }
            Op::Add(word, number) => self.add(t, (word, number), judge, out),
            Op::SkipIfZero(count) => {
                self.threads[t].at += if self.threads[t].register == 0 { count } else { 0 };
                self.ends(t)
            }
            Op::Lock(lock) => self.acquires(t, lock, judge, out).unwrap_or_else(|| self.ends(t)),
            Op::Unlock(lock) => {
                self.unlock(t, lock, judge, out);
                self.ends(t)
            }
            Op::Widen(lock) => {
                match self.locks.holds(lock, Slot::thread(t)) {
                    true => self.pages.intervals.require_full_notices(lock),
                    false => {
                        self.pages.intervals.require_full_notices_always(lock);
                        self.threads[t].lazily = true;
                    }
                }
                self.ends(t)
            }
            Op::Barrier => self.pass_barrier(now, t, (Collective::BARRIER, &[]), judge, out),
            Op::Reduce(number) => {
                self.pass_barrier(now, t, (Collective::reduce(SUM, 1), &number.to_be_bytes()), judge, out)
            }
            Op::Set(flag, value) => {
                judge.sets(self.number(t), flag, value);
                self.on_flags(Some(Slot::thread(t)), out, |f, cx| f.set(cx, flag, value));
                self.ends(t)
            }
            Op::Await(flag, value) => self.wait(t, flag, value, judge, out),
            Op::Free(region) => {
                self.pages.free(region, out);
                self.ends(t)
            }
            Op::Renew(region) => match self.pages.renew(region) {
                Some(words) => {
                    judge.renewed(words);
                    self.ends(t)
                }
                None => Turn::Sleeps,
            },
            Op::FreeBlock(word, owner, life) => {
                judge.sets(self.number(t), frees::flag_of_block(word), life);
                self.pages.free_block(word, NodeId(owner as u16), out);
                self.ends(t)
            }
            Op::ReuseBlock(word, words, life) => match self.pages.reuse_block(word, words) {
                true => {
                    judge.awaited(self.number(t), frees::flag_of_block(word), life);
                    judge.renewed(word..word + words);
                    self.ends(t)
                }
                false => Turn::Sleeps,
            },
            Op::Think(span) => {
                self.threads[t].at += 1;
                Turn::Thinks(span)
            }
            _ => self.at_sync_object(t, op, judge, out),
        }
    }

    /// The thread's number in the cluster.
    pub(super) fn number(&self, t: usize) -> usize {
        self.pages.me.index() * self.threads.len() + t
    }

    pub(super) fn goes_to(&mut self, t: usize, phase: Phase) -> Turn {
        self.threads[t].phase = phase;
        Turn::Within
    }

    pub(super) fn sleeps_in(&mut self, t: usize, phase: Phase) -> Turn {
        self.threads[t].phase = phase;
        Turn::Sleeps
    }

    pub(super) fn ends(&mut self, t: usize) -> Turn {
        self.threads[t].phase = Phase::Begin;
        self.threads[t].at += 1;
        Turn::Ended
    }

    fn access(&mut self, t: usize, word: usize, store: Option<u64>, judge: &mut Judge, out: &mut Outbox) -> Turn {
        let page = (word / PAGE_WORDS) as PageNo;
        match self.threads[t].phase.clone() {
            Phase::Begin => {
                let adds = matches!(self.threads[t].program[self.threads[t].at], Op::Add(..));
                let access = Access { page, word: word % PAGE_WORDS, store, adds, progress: Progress::Wanted };
                *self.pages.memory.access(t) = Some(access);
                self.pages.untrack_idle(page);
                self.goes_to(t, Phase::Access)
            }
            Phase::AskWriters(asks) if asks.first().is_some_and(|(_, ask)| self.pages.tells_sets(ask.page)) => {
                self.ask_sets(&asks, out);
                // It comes back to the unit as one who waits for it.
                self.pages.retry(t);
                self.goes_to(t, Phase::Access)
            }
            Phase::AskWriters(asks) => {
                self.threads[t].outstanding = kept_diffs::serve::send_asks(&asks, self.pages.intervals.epoch(), out);
                self.threads[t].awaits_kept = true;
                self.sleeps_in(t, Phase::Asked)
            }
            Phase::Asked if self.threads[t].outstanding > 0 => self.sleeps_in(t, Phase::Asked),
            Phase::Asked => {
                self.confirm(t);
                self.pages.retry(t);
                self.goes_to(t, Phase::Access)
            }
            Phase::Joined => {
                self.pages.retry(t);
                self.goes_to(t, Phase::Access)
            }
            _ => match self.pages.memory.access(t).map(|a| a.progress) {
                Some(Progress::Done(value)) => {
                    let access = self.pages.memory.access(t).take();
                    if std::mem::take(&mut self.threads[t].touches) {
                        return self.goes_to(t, Phase::Begin);
                    }
                    if let (Some(number), true) = (store, access.is_some_and(|access| access.adds)) {
                        judge.added(self.number(t), word, (number, value));
                    } else if store.is_some() {
                        judge.wrote(self.number(t), word, value);
                    } else {
                        judge.read(self.number(t), word, value);
                        self.threads[t].register = value;
                    }
                    self.ends(t)
                }
                Some(Progress::Faulted | Progress::Told) => self.fault(t, page, out),
                _ => {
                    self.pages.memory.advance(t);
                    Turn::Within
                }
            },
        }
    }

    /// A step towards adding to a word atomically: as `AtomicCall` of the runtime, where a home is asked by
    /// messages.
    fn add(&mut self, t: usize, (word, number): (usize, u64), judge: &mut Judge, out: &mut Outbox) -> Turn {
        let page = (word / PAGE_WORDS) as PageNo;
        match self.threads[t].phase.clone() {
            Phase::Begin => match self.pages.place_of_atomic(page) {
                Place::Here => self.access(t, word, Some(number), judge, out),
                Place::Unclaimed => {
                    self.threads[t].touches = true;
                    self.access(t, word, None, judge, out)
                }
                Place::At(home) => self.ask_to_add(t, home, (word, number), out),
                Place::AtAfterCopy(home) => {
                    self.pages.invalidate_copy(page);
                    self.ask_to_add(t, home, (word, number), out)
                }
            },
            Phase::Atomic(home, needs) => match self.threads[t].answer.take() {
                None => Turn::Sleeps,
                Some(Answer::Done(old)) => {
                    self.pages.needs.confirm(home, &needs);
                    self.pages.atomic_is_done(page);
                    judge.added(self.number(t), word, (number, old));
                    self.ends(t)
                }
                Some(Answer::Elsewhere) => {
                    self.threads[t].touches = true;
                    self.threads[t].phase = Phase::Begin;
                    self.access(t, word, None, judge, out)
                }
                Some(Answer::Freed) => panic!("no program here uses what it has freed"),
            },
            _ if self.threads[t].touches => self.access(t, word, None, judge, out),
            _ => self.access(t, word, Some(number), judge, out),
        }
    }

    fn ask_to_add(&mut self, t: usize, home: NodeId, (word, number): (usize, u64), out: &mut Outbox) -> Turn {
        let needs = self.pages.needs.at(home);
        self.pages.ask_to_add(home, &needs, (word, number), out);
        self.sleeps_in(t, Phase::Atomic(home, needs))
    }

    fn fault(&mut self, t: usize, page: PageNo, out: &mut Outbox) -> Turn {
        if self.pages.tells_sets(page) && self.has_unread() {
            self.read_told(Some(t), out);
        }
        let faulted = match self.pages.faults[t].take() {
            Some(faulted) => Some(faulted),
            None => {
                self.pages.evict();
                self.pages.fault(t)
            }
        };
        match faulted {
            Some(Faulted::Fetch(fetching)) => self.goes_to(t, Phase::Fetch(fetching)),
            Some(Faulted::Ask(asks)) => self.goes_to(t, Phase::AskWriters(asks)),
            Some(Faulted::Wait) if self.pages.is_fetching(page) => self.sleeps_in(t, Phase::Joined),
            Some(Faulted::ReadOnly) => panic!("no memory here is read-only"),
            _ => {
                self.pages.retry(t);
                Turn::Within
            }
        }
    }

    /// A stage of thread `t`'s fetch has come to this.
    pub(super) fn has_fetched(&mut self, t: usize, fetching: Fetching, progress: Fetched) -> Turn {
        match progress {
            Fetched::Goes => self.goes_to(t, Phase::Fetch(fetching)),
            Fetched::Over => self.goes_to(t, Phase::Asked),
            Fetched::Asked(fetch) => {
                if let Some(access) = *self.pages.memory.access(t) {
                    let alone = self.pages.layout.threads == 1;
                    premap(&mut self.pages, access.page, &fetch, || alone);
                }
                self.threads[t].asked.push((fetching.home, fetch.needs));
                (self.threads[t].outstanding, self.threads[t].awaits_kept) = (1, false);
                match fetching.is_over() {
                    true => self.sleeps_in(t, Phase::Asked),
                    false => self.goes_to(t, Phase::Fetch(fetching)),
                }
            }
        }
    }

    /// All that the barrier has ended and was in use is here again. What its collection demands is asked for next.
    pub(super) fn has_refetched(&mut self, t: usize, out: &mut Outbox) -> Turn {
        self.threads[t].outstanding = self.pages.complete_copies(out);
        self.threads[t].awaits_kept = true;
        match self.threads[t].outstanding {
            0 => self.is_complete(t, out),
            _ => self.sleeps_in(t, Phase::Complete),
        }
    }

    /// What the barrier's collection demands is here too.
    fn is_complete(&mut self, t: usize, out: &mut Outbox) -> Turn {
        if self.renewing {
            self.lets_others_go(t, out);
        }
        self.goes_to(t, Phase::Home)
    }

    /// The homes have answered: they need not be told again what they had to have applied.
    fn confirm(&mut self, t: usize) {
        for (home, needs) in std::mem::take(&mut self.threads[t].asked) {
            self.pages.needs.confirm(home, &needs);
        }
    }

    pub(super) fn unlock(&mut self, t: usize, lock: LockId, judge: &mut Judge, out: &mut Outbox) {
        self.end_deferrals(self.pages.now, t, lock, out);
        judge.releases(self.number(t), lock);
        let released = self.on_locks(Some(Slot::thread(t)), out, |l, cx| l.release(cx, lock, Slot::thread(t)));
        assert_eq!(released, Ok(()), "the program holds what it releases");
        self.threads[t].locks -= 1;
    }

    fn has_lock(&mut self, t: usize, lock: LockId, judge: &mut Judge) {
        judge.acquired(self.number(t), lock);
        self.threads[t].locks += 1;
    }

    /// A step towards a lock; `None` when the thread has it.
    pub(super) fn acquires(&mut self, t: usize, lock: LockId, judge: &mut Judge, out: &mut Outbox) -> Option<Turn> {
        let slot = Slot::thread(t);
        match self.threads[t].phase.clone() {
            Phase::Begin | Phase::Woken => match self.begins_to_acquire(t, lock, out) {
                Acquire::Held if !Rule::RestingTokensAwaitDiffs.on() && !self.threads[t].lazily => {
                    self.has_lock(t, lock, judge);
                    None
                }
                Acquire::Held | Acquire::Taken => Some(self.goes_to(t, Phase::CatchUp)),
                Acquire::Wait => {
                    // How long others go before it, where requests are deferred, is a matter of time.
                    if self.pages.layout.tuning.locks.longest_deferral() == Span(0) {
                        judge.waits(self.number(t), lock);
                    }
                    Some(self.sleeps_in(t, Phase::Lock))
                }
            },
            Phase::CatchUp => {
                if self.threads[t].lazily && self.pages.intervals.has_partial_notices(lock) {
                    if self.on_locks(Some(slot), out, |l, cx| l.catch_up(cx, lock)) {
                        return Some(Turn::Sleeps);
                    }
                    self.pages.intervals.has_caught_up(lock);
                }
                Some(self.goes_to(t, Phase::Home))
            }
            Phase::Home if home_is_fresh(&mut self.pages) => {
                self.threads[t].lazily = false;
                self.has_lock(t, lock, judge);
                None
            }
            Phase::Home => Some(Turn::Sleeps),
            _ if self.locks.holds(lock, slot) => {
                if let Some(asked) = self.threads[t].asked_for_token.take() {
                    self.token_has_come(self.pages.now, t, (lock, asked), out);
                }
                Some(self.goes_to(t, Phase::CatchUp))
            }
            _ => Some(Turn::Sleeps),
        }
    }

    fn wait(&mut self, t: usize, flag: FlagId, value: u64, judge: &mut Judge, out: &mut Outbox) -> Turn {
        let slot = Slot::thread(t);
        match self.threads[t].phase.clone() {
            Phase::Begin => match self.on_flags(Some(slot), out, |f, cx| f.wait(cx, flag, slot, value)) {
                Some(_) => self.goes_to(t, Phase::Home),
                None => self.sleeps_in(t, Phase::Flag),
            },
            Phase::Home if home_is_fresh(&mut self.pages) => {
                judge.awaited(self.number(t), flag, value);
                self.ends(t)
            }
            Phase::Home => Turn::Sleeps,
            _ if self.flags.arrived(flag, value).is_some() => self.goes_to(t, Phase::Home),
            _ => Turn::Sleeps,
        }
    }

    fn pass_barrier(
        &mut self,
        now: Time,
        t: usize,
        (what, number): (Collective, &[u8]),
        judge: &mut Judge,
        out: &mut Outbox,
    ) -> Turn {
        match self.threads[t].phase.clone() {
            Phase::Begin => self.arrive(now, t, (what, number), judge, out),
            Phase::Opening(epoch, Opening::Open) => self.finish_opening(t, epoch, out),
            Phase::Opening(epoch, opening) => {
                let next = self.pages.with_intervals(|pages, intervals| opening.next(pages, intervals));
                self.goes_to(t, Phase::Opening(epoch, next))
            }
            Phase::Complete if self.threads[t].outstanding > 0 || !self.pages.has_completed() => Turn::Sleeps,
            Phase::Complete => self.is_complete(t, out),
            Phase::Home if home_is_fresh(&mut self.pages) => {
                let (me, barrier) = (self.number(t), self.threads[t].barriers);
                judge.passed(me, barrier);
                if what != Collective::BARRIER {
                    let sum = self.barrier.result(what).iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
                    judge.reduced(me, barrier, sum);
                    self.threads[t].register = sum;
                }
                self.threads[t].barriers += 1;
                self.ends(t)
            }
            Phase::Home => Turn::Sleeps,
            Phase::Barrier(epoch) if self.barrier.is_open(what, epoch) == Ok(true) => {
                let has_opened = self.pages.intervals.epoch() > epoch && !self.opening && !self.renewing;
                if has_opened || !what.is_coherent() {
                    return self.goes_to(t, Phase::Home);
                }
                if self.opening || self.renewing {
                    return Turn::Sleeps;
                }
                self.opening = true;
                let notices = self.barrier.notices().to_vec();
                let in_place = self.pages.layout.fetches_ahead;
                let begin = |pages: &mut Pages, intervals: &mut IntervalState| {
                    Opening::begin(pages, intervals, &notices, in_place)
                };
                let opening = self.pages.with_intervals(begin);
                self.goes_to(t, Phase::Opening(epoch, opening))
            }
            _ => Turn::Sleeps,
        }
    }

    /// The last thread of the node ends the interval and says what was written, where memory is to be consistent.
    fn arrive(
        &mut self,
        now: Time,
        t: usize,
        (what, number): (Collective, &[u8]),
        judge: &mut Judge,
        out: &mut Outbox,
    ) -> Turn {
        let (me, barrier) = (self.number(t), self.threads[t].barriers);
        if let Op::Reduce(number) = self.threads[t].program[self.threads[t].at] {
            judge.adds(barrier, number);
        }
        judge.arrives(me, barrier);
        self.at_barrier += 1;
        let mut notices = Vec::new();
        if self.at_barrier == self.threads.len() {
            self.read_told(Some(t), out);
            self.at_barrier = 0;
            if what.is_coherent() {
                self.pages.with_intervals(|pages, intervals| {
                    // All threads of the node are here, so nothing is written in between.
                    let (may_tell, before) = (may_have_to_tell(pages), intervals.ended());
                    arrive(pages, intervals, false, &mut notices);
                    if !may_tell && intervals.ended() > before {
                        pages.failure = Some(format!("{} had something to tell, and did not know", pages.me));
                    }
                });
            }
        }
        match self.barrier.arrive(now, Slot::thread(t), what, (number, &notices), out) {
            // All others have arrived already: nobody will wake it.
            Ok(epoch) if self.barrier.is_open(what, epoch) == Ok(true) => self.goes_to(t, Phase::Barrier(epoch)),
            Ok(epoch) => self.sleeps_in(t, Phase::Barrier(epoch)),
            Err(mismatch) => panic!("{mismatch}"),
        }
    }

    /// The node's other threads may leave the barrier.
    fn lets_others_go(&mut self, t: usize, out: &mut Outbox) {
        self.renewing = false;
        (0..self.threads.len()).filter(|other| *other != t).for_each(|other| out.wake(Slot::thread(other)));
    }

    /// The homes have migrated: what came from nodes that were here before can be done, and the other threads go on.
    fn finish_opening(&mut self, t: usize, epoch: u32, out: &mut Outbox) -> Turn {
        self.pages.home_queue.open(epoch + 1);
        if let Err(why) = serve::rerun(&mut self.pages, out) {
            self.pages.failure = Some(why.to_string());
        }
        self.pages.applied = true;
        (self.opening, self.renewing) = (false, true);
        let deferred = self.pages.schedule.barrier_opened();
        self.carry_out(self.pages.now, Some(Slot::thread(t)), deferred, out);
        if !Rule::KeptCopiesAreRenewedFirst.on() {
            self.lets_others_go(t, out);
        }
        let refetch = if self.pages.layout.fetches_ahead { self.pages.begin_refetch() } else { Refetch::default() };
        self.goes_to(t, Phase::Refetch(refetch))
    }
}
