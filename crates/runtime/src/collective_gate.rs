//! Critical sections beside a collective call.
//!
//! Where a node has a host ([`host`](crate::host)), one of its threads makes a collective call and the others go on.
//! Between a node's arrival and the opening no interval may end, so what such a thread released then would be told to
//! nobody. So a collective call waits, before it says what was written, until no other thread of the node holds a lock;
//! and from then until the opening nobody begins a critical section, or a release that has something to tell. Tokens go
//! on leaving meanwhile: they have nothing untold.
//!
//! A thread that waits for a token holds nothing, and a collective call does not wait for it; a token that comes to it
//! meanwhile is handed back, since another node may need it to come to the barrier. What comes from beyond the barrier
//! is put aside until it has opened ([`lock_schedule`](comem_protocol::lock_schedule)).

use crate::error::Result;
use crate::mutex::Mutex;
use crate::node::{Slots, Waiting};
use crate::thread::Thread;
use comem_protocol::ids::Slot;
use comem_protocol::sync::barrier::kinds;
use comem_protocol::time::Span;
use comem_protocol::tuning::SyncTuning;
use comem_protocol::wire::message::Collective;

/// How far a collective call has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// There is none.
    #[default]
    Open,
    /// It waits until no other thread holds a lock.
    Closing,
    /// It has said what was written, and is not over.
    Shut,
}

/// What a thread begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// A critical section.
    Lock,
    /// A critical section for which it has been patient.
    PatientLock,
    /// A release of something else than a lock.
    Release,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// Who makes the collective call.
    caller: Option<Slot>,
    /// How many locks each slot's thread holds, and releases that it is in the middle of.
    held: Vec<u32>,
    /// Threads that wait for the end of the call.
    waiting: Vec<Slot>,
    /// For whom the caller waits: who held a lock when it began to, or when all before these had ended.
    awaited: Vec<Slot>,
    /// How often all of them have ended while others, who had been patient, held locks.
    turnovers: u32,
}

impl State {
    fn held(&mut self, slot: Slot) -> &mut u32 {
        if self.held.len() <= slot.index() {
            self.held.resize(slot.index() + 1, 0);
        }
        &mut self.held[slot.index()]
    }

    fn others_hold(&self, slot: Slot) -> bool {
        self.other_holders(slot).next().is_some()
    }

    fn other_holders(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let holders = self.held.iter().zip(0..).filter(|(held, _)| **held > 0);
        holders.map(|(_, index)| Slot(index)).filter(move |holder| *holder != slot)
    }

    /// Whether a thread that was patient may begin: who holds a lock may wait for what it does. Otherwise the call goes
    /// on at once.
    fn admits_the_patient(&self) -> bool {
        self.stage == Stage::Closing && self.caller.is_some_and(|caller| self.others_hold(caller))
    }

    fn await_holders(&mut self, caller: Slot) {
        self.awaited = self.other_holders(caller).collect();
    }

    /// A thread holds nothing any more; gives who must be roused.
    fn holds_nothing(&mut self, slot: Slot) -> Option<Slot> {
        let caller = self.caller.filter(|_| self.stage == Stage::Closing)?;
        self.awaited.retain(|awaited| *awaited != slot);
        if !self.others_hold(caller) {
            return Some(caller);
        }
        if self.awaited.is_empty() {
            self.turnovers += 1;
            self.await_holders(caller);
        }
        None
    }
}

/// The critical sections of a node's threads, where one of them makes collective calls and the others go on.
#[derive(Debug, Default)]
pub(crate) struct CollectiveGate {
    state: Mutex<State>,
    tuning: SyncTuning,
}

impl CollectiveGate {
    /// An open one, by these numbers.
    pub(crate) fn new(tuning: SyncTuning) -> CollectiveGate {
        CollectiveGate { tuning, ..CollectiveGate::default() }
    }

    /// Whether a thread may begin this now; it counts then until [`CollectiveGate::end`].
    pub(crate) fn begin(&self, slot: Slot, what: Entry) -> bool {
        let mut state = self.state.lock();
        let holds = *state.held(slot) > 0;
        let may = match state.stage {
            Stage::Open => true,
            Stage::Closing if holds => true,
            Stage::Closing => what == Entry::Release || (what == Entry::PatientLock && state.admits_the_patient()),
            Stage::Shut => holds,
        };
        if may {
            *state.held(slot) += 1;
        } else if !state.waiting.contains(&slot) {
            state.waiting.push(slot);
        }
        may
    }

    /// Begins a critical section, unless that would have to wait; whether it did.
    pub(crate) fn begin_at_once(&self, slot: Slot) -> bool {
        let begun = self.begin(slot, Entry::Lock);
        if !begun {
            self.state.lock().waiting.retain(|waiting| *waiting != slot);
        }
        begun
    }

    /// It is over; gives who must be roused.
    #[must_use]
    fn end(&self, slot: Slot) -> Option<Slot> {
        let mut state = self.state.lock();
        let held = state.held(slot);
        *held = held.saturating_sub(1);
        if *held == 0 { state.holds_nothing(slot) } else { None }
    }

    /// A thread has left its slot, with whatever it held; gives who must be roused.
    #[must_use]
    pub(crate) fn forget(&self, slot: Slot) -> Option<Slot> {
        let mut state = self.state.lock();
        *state.held(slot) = 0;
        state.holds_nothing(slot)
    }

    /// A thread makes a collective call: whether it may say what was written. Another one's that is under way is none
    /// of its business: the barrier refuses one of them.
    fn shut(&self, slot: Slot) -> bool {
        let mut state = self.state.lock();
        if *state.caller.get_or_insert(slot) != slot {
            return true;
        }
        let shut = !state.others_hold(slot);
        let before = std::mem::replace(&mut state.stage, if shut { Stage::Shut } else { Stage::Closing });
        if before == Stage::Open {
            state.await_holders(slot);
        }
        shut
    }

    /// How long a section waits now for the call. It grows as sections take turns, so that the call comes through in
    /// the end; while one and the same goes on, which may need many others, it stays. The call itself waits for others
    /// to end, and these may wait for what the section does.
    fn patience(&self) -> Span {
        let doublings = self.state.lock().turnovers.min(self.tuning.section_wait_doublings_max);
        Span(Span::from_ms(self.tuning.section_wait_ms).0 << doublings)
    }

    /// The thread's collective call is over; gives who must be roused.
    fn open(&self, slot: Slot) -> Vec<Slot> {
        let mut state = self.state.lock();
        if state.caller != Some(slot) {
            return Vec::new();
        }
        (state.caller, state.stage, state.turnovers) = (None, Stage::Open, 0);
        std::mem::take(&mut state.waiting)
    }
}

/// A collective call of a thread, beside which others of its node may be at work.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    thread: &'a Thread,
    /// Whether any are.
    pub(crate) beside: bool,
}

impl Call<'_> {
    /// The call is over as far as others are concerned.
    pub(crate) fn is_over(&self) {
        let node = self.thread.home();
        let roused = node.gate.as_ref().map(|sections| sections.open(self.thread.slot()));
        roused.into_iter().flatten().for_each(|slot| node.wake_thread(slot));
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.is_over();
    }
}

/// Whether arrivals at this call carry write notices. Where nodes have hosts, and may come to the end of their part at
/// any call, any call may find their notices.
pub(crate) fn is_coherent(hosted: bool, what: Collective) -> bool {
    what.is_coherent() || (hosted && matches!(what.kind, kinds::CREATE | kinds::RENDEZVOUS | kinds::UNIT))
}

/// Whether other threads than the one in this slot may be at work.
fn others_work(slots: &Slots, slot: Slot) -> bool {
    slots.others_sit(slot) || crate::host::host().is_some_and(|host| host.has_other_threads())
}

impl<'a> Call<'a> {
    /// Before a coherent collective call says what was written: waits until no other thread of the node is in the
    /// middle of a critical section.
    pub(crate) fn begin(thread: &'a Thread) -> Result<Option<Call<'a>>> {
        let Some(sections) = &thread.home().gate else { return Ok(None) };
        let mut call = Call { thread, beside: false };
        while !sections.shut(thread.slot()) {
            thread.wait(Waiting::Sections)?;
        }
        call.beside = others_work(&thread.home().slots, thread.slot());
        Ok(Some(call))
    }
}

impl CollectiveGate {
    /// A critical section begins, as soon as it may: where another thread of the node makes a collective call, when
    /// that is over. Tells as what.
    pub(crate) fn begin_section(&self, thread: &Thread) -> Result<Entry> {
        if self.begin(thread.slot(), Entry::Lock) {
            return Ok(Entry::Lock);
        }
        thread.operation(|| {
            thread.let_pins_go();
            let since = thread.home().now();
            let mut entry = Entry::Lock;
            while !self.begin(thread.slot(), entry) {
                thread.wait(Waiting::Opening)?;
                let patient = (thread.home().now() - since).0 >= self.patience().0;
                entry = if patient { Entry::PatientLock } else { Entry::Lock };
            }
            let taken = thread.take_pins_back();
            taken.inspect_err(|_| self.end_section(thread)).map(|()| entry)
        })
    }

    /// The thread's critical section is over.
    pub(crate) fn end_section(&self, thread: &Thread) {
        if let Some(roused) = self.end(thread.slot()) {
            thread.home().wake_thread(roused);
        }
    }

    /// Whether the release counts as a section. Where the job ends meanwhile, the next operation tells.
    fn begin_release(&self, thread: &Thread) -> bool {
        let counts = loop {
            if self.begin(thread.slot(), Entry::Release) {
                break true;
            }
            if !thread.home().may_have_to_tell(thread.slot()) {
                break false;
            }
            thread.let_pins_go();
            if thread.wait(Waiting::Opening).is_err() {
                break false;
            }
        };
        let _ = thread.take_pins_back();
        counts
    }
}

impl Thread {
    /// Runs a release of something else than a lock. Where another thread of the node makes a collective call and there
    /// may be something to tell, it waits until that is over.
    pub(crate) fn releasing<R>(&self, release: impl FnOnce() -> R) -> R {
        let Some(sections) = &self.home().gate else { return release() };
        let counts = sections.begin_release(self);
        let result = release();
        if counts {
            sections.end_section(self);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: Slot = Slot(1);
    const OTHER: Slot = Slot(2);
    const THIRD: Slot = Slot(3);

    #[test]
    fn a_call_waits_for_sections_and_sections_for_the_call() {
        let sections = CollectiveGate::default();
        assert!(sections.begin(OTHER, Entry::Lock) && !sections.shut(MAIN));
        assert!(sections.begin(OTHER, Entry::Lock), "a section within another");
        assert!(!sections.begin(THIRD, Entry::Lock) && sections.begin(THIRD, Entry::Release));
        assert_eq!([sections.end(OTHER), sections.end(THIRD), sections.end(OTHER)], [None, None, Some(MAIN)]);
        assert!(sections.shut(MAIN));
        let tries = [Entry::Lock, Entry::PatientLock, Entry::Release].map(|what| sections.begin(OTHER, what));
        assert_eq!(tries, [false; 3]);
        assert_eq!(sections.open(MAIN), [THIRD, OTHER]);
        assert!(sections.begin(OTHER, Entry::Lock));
    }

    #[test]
    fn who_was_patient_begins_while_a_call_waits_for_others() {
        let sections = CollectiveGate::default();
        assert!(sections.begin(OTHER, Entry::Lock) && !sections.shut(MAIN));
        assert!(!sections.begin(THIRD, Entry::Lock) && sections.begin(THIRD, Entry::PatientLock));
    }

    #[test]
    fn who_was_patient_does_not_begin_when_the_call_can_go_on() {
        let sections = CollectiveGate::default();
        assert!(sections.begin(OTHER, Entry::Lock) && !sections.shut(MAIN));
        assert_eq!(sections.end(OTHER), Some(MAIN));
        assert!(!sections.begin(THIRD, Entry::PatientLock) && sections.shut(MAIN));
    }

    #[test]
    fn patience_grows_as_sections_take_turns() {
        let sections = CollectiveGate::default();
        assert!(sections.begin(OTHER, Entry::Lock) && !sections.shut(MAIN));
        let mut grown = Vec::new();
        for (holds, comes) in [(OTHER, THIRD), (THIRD, OTHER), (OTHER, THIRD)] {
            assert!(sections.begin(comes, Entry::PatientLock));
            assert_eq!(sections.end(holds), None);
            assert!(!sections.shut(MAIN));
            grown.push(sections.patience().as_us() / 100_000);
        }
        assert_eq!((grown, sections.end(THIRD)), (vec![2, 4, 8], Some(MAIN)));
        assert!(sections.shut(MAIN));
        sections.open(MAIN);
        assert_eq!(sections.patience(), Span::from_ms(100));
    }

    #[test]
    fn patience_stays_while_one_section_goes_on_that_may_need_others() {
        let sections = CollectiveGate::default();
        assert!(sections.begin(OTHER, Entry::Lock) && !sections.shut(MAIN));
        for _ in 0..5 {
            assert!(sections.begin(THIRD, Entry::PatientLock));
            assert_eq!(sections.end(THIRD), None);
        }
        assert_eq!(sections.patience(), Span::from_ms(100));
    }

    #[test]
    fn the_callers_own_locks_and_those_of_threads_that_have_ended_are_not_waited_for() {
        let sections = CollectiveGate::default();
        assert!(sections.begin(MAIN, Entry::Lock) && sections.begin(OTHER, Entry::Lock) && !sections.shut(MAIN));
        assert_eq!(sections.forget(OTHER), Some(MAIN));
        assert!(sections.shut(MAIN));
    }

    #[test]
    fn a_second_call_neither_waits_nor_opens() {
        let sections = CollectiveGate::default();
        assert!(sections.shut(MAIN) && sections.shut(OTHER));
        assert_eq!(sections.open(OTHER), []);
        assert!(!sections.begin(OTHER, Entry::Lock));
    }
}
