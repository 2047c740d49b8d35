//! A thread's accesses to pages, from the fault to the reply and back, in steps between any two of which anything may
//! happen.

use super::FAULTS_MAX;
use super::memory::Progress;
use crate::history::{Deed, Record, ThreadId};
use crate::node::Node;
use crate::program::Op;
use crate::thread::{Phase, Turn};
use comem_protocol::coherence::Permission;
use comem_protocol::coherence::msi::residency::Residency;
use comem_protocol::coherence::msi::{Begin, WriteBack};
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::rules::Rule;
use comem_protocol::time::Time;
use comem_protocol::tuning::MsiTuning;
use comem_protocol::wire::message::Want;

/// How long a thread that waits for another's store computes before it looks again; each time twice as long, up to 64
/// times.
const LOOK_EVERY_NS: u64 = 20_000;

/// How far a thread has come with an access.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Stage {
    /// The processor makes it.
    #[default]
    Access,
    /// It faulted; the thread lets go what it held for the access before (`let_go_of`).
    LetGo,
    /// Gives units back, if there is no room for another: looks at so many more, and so many leave (`give_units_back`).
    GiveBack { looks: usize, leaving: usize },
    /// Waits until their homes have answered.
    AwaitHomes,
    /// Asks for the unit, or looks whether it is here now.
    Begin,
    /// It is here, pinned and mapped; puts it among the units that the thread holds.
    List,
    /// Looks once more at the unit: who wanted it before it was listed looked for it there in vain.
    LookAgain,
}

/// What a thread in a fault knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faulting {
    stage: Stage,
    /// The unit of the page that is missing.
    unit: u32,
    /// Units to let go first.
    due: Vec<u32>,
    /// Whether it has asked for the unit, and whether it has waited for another thread's request.
    asked: bool,
    joined: bool,
    /// It has asked for units behind its own, and waits for them all.
    ahead: bool,
    /// Accesses that have begun.
    accesses: u64,
    /// Faults of the one under way.
    faults: u32,
    grip: Residency,
    /// Looks in vain at what another thread is to store.
    looks: u32,
    /// Requests whose answers come to the thread's own socket.
    pub(crate) outstanding: usize,
}

impl Faulting {
    /// A thread in no fault.
    pub(crate) fn new(tuning: MsiTuning) -> Faulting {
        Faulting { grip: Residency::new(tuning), ..Faulting::default() }
    }
}

impl Node {
    /// Thread `t` goes on with an access to pages, if that is its operation.
    pub(crate) fn step_paged(&mut self, now: Time, t: usize, op: Op, out: &mut Outbox) -> Option<Turn> {
        let next = self.threads[t].register + 1;
        let (elements, store) = match op {
            Op::Read(element) | Op::Until(element, _) => (element..element + 1, None),
            Op::Write(element, value) => (element..element + 1, Some(value)),
            Op::WriteNext(element) => (element..element + 1, Some(next)),
            Op::ReadSpan(element) => (element..element + 2, None),
            Op::WriteSpan(element, value) => (element..element + 2, Some(value)),
            _ => return None,
        };
        let paged = self.paged.as_mut()?;
        paged.memory.now = self.stamp;
        if self.threads[t].phase == Phase::Begin {
            paged.memory.begin(t, elements, store);
            let thread = &mut paged.threads[t];
            (thread.stage, thread.faults, thread.accesses) = (Stage::Access, 0, thread.accesses + 1);
            return Some(self.goes_to(t, Phase::Paged));
        }
        Some(match self.paged.as_ref()?.threads[t].stage {
            Stage::Access => self.access_page(t, op),
            Stage::LetGo => self.let_go(t, out),
            Stage::GiveBack { looks, leaving } => self.give_back(t, looks, leaving, out),
            Stage::AwaitHomes => self.await_homes(t),
            Stage::Begin => self.begin_on_unit(t, store.is_some(), out),
            Stage::List => self.list(now, t, out),
            Stage::LookAgain => self.look_again(t, out),
        })
    }

    fn faulting(&mut self, t: usize) -> Option<&mut Faulting> {
        self.paged.as_mut().map(|paged| &mut paged.threads[t])
    }

    fn goes_on_to(&mut self, t: usize, stage: Stage) -> Turn {
        if let Some(thread) = self.faulting(t) {
            thread.stage = stage;
        }
        Turn::Within
    }

    fn access_page(&mut self, t: usize, op: Op) -> Turn {
        let Some(paged) = &mut self.paged else { return Turn::Done };
        match paged.memory.advance(t) {
            Progress::Faulted(page) => {
                let unit = paged.memory.unit_of(page);
                let due = paged.take_holds(t, Some(unit));
                let thread = &mut paged.threads[t];
                let (faults, asked, joined, ahead) = (thread.faults + 1, false, false, false);
                thread.grip.faulted(thread.accesses, unit);
                *thread = Faulting { stage: Stage::LetGo, unit, due, faults, asked, joined, ahead, ..*thread };
                paged.tally.faults += 1;
                paged.tally.most_faults = paged.tally.most_faults.max(faults);
                assert!(faults < FAULTS_MAX, "an access of {}.{t} faults again and again: {op:?}", self.me.0);
                Turn::Within
            }
            Progress::Done(_) => self.access_made(t, op),
            Progress::Wanted | Progress::Translated => Turn::Within,
        }
    }

    fn access_made(&mut self, t: usize, op: Op) -> Turn {
        let Some(paged) = &mut self.paged else { return Turn::Done };
        let Some(access) = paged.memory.take_done(t) else { return Turn::Within };
        let Progress::Done(ended) = access.progress else { return Turn::Within };
        paged.tally.spans += u64::from(access.elements.len() > 1);
        let (begun, thread) = (self.threads[t].begun, ThreadId(self.me, t as u16));
        for (at, element) in access.elements.clone().enumerate() {
            let deed = match access.store {
                Some(value) => Deed::Write { element, value },
                None => Deed::Read { element, value: access.loaded[at] },
            };
            self.records.push(Record { thread, begun, ended, deed });
        }
        if let Some(value) = access.loaded.first() {
            self.threads[t].before = self.threads[t].register;
            self.threads[t].register = *value;
        }
        match op {
            Op::Until(_, value) if self.threads[t].register < value => {
                self.goes_to(t, Phase::Begin);
                let looks = self.faulting(t).map_or(0, |thread| {
                    thread.looks += 1;
                    thread.looks - 1
                });
                Turn::Thinks(LOOK_EVERY_NS << looks.min(6))
            }
            _ => {
                self.faulting(t).into_iter().for_each(|thread| thread.looks = 0);
                self.ends(t)
            }
        }
    }

    fn let_go(&mut self, t: usize, out: &mut Outbox) -> Turn {
        let Some(paged) = &mut self.paged else { return Turn::Done };
        let needs = 1 + paged.paging.ahead as usize;
        let (unit, full, count) = (paged.threads[t].unit, paged.is_full(needs), paged.units.len());
        if let Some(due) = paged.threads[t].due.pop() {
            self.on_unit(due, Some(Self::slot(t)), out, |state, cx| state.unpin(cx));
            return Turn::Within;
        }
        let needs_room = full && self.shape.home_of(unit) != self.me;
        self.goes_on_to(t, if needs_room { Stage::GiveBack { looks: count, leaving: 0 } } else { Stage::Begin })
    }

    /// One turn of the loop in `give_units_back`.
    fn give_back(&mut self, t: usize, looks: usize, leaving: usize, out: &mut Outbox) -> Turn {
        let Some(paged) = &mut self.paged else { return Turn::Done };
        let wanted = 1 + paged.paging.ahead as usize + paged.paging.spare;
        let enough = !paged.is_full(wanted.saturating_sub(leaving));
        let Some(unit) = (looks > 0 && !enough).then(|| paged.units.pop_front()).flatten() else {
            return self.goes_on_to(t, Stage::AwaitHomes);
        };
        let back = self
            .asking(t, out, |node, out| node.on_unit(unit, Some(Self::slot(t)), out, |state, cx| state.give_back(cx)));
        let leaving = leaving + usize::from(back == WriteBack::Leaves);
        if let Some(paged) = &mut self.paged {
            match back {
                WriteBack::Stays => paged.units.push_back(unit),
                WriteBack::Leaves => paged.tally.given_back += 1,
                WriteBack::Gone => {}
            }
        }
        self.goes_on_to(t, Stage::GiveBack { looks: looks - 1, leaving })
    }

    fn await_homes(&mut self, t: usize) -> Turn {
        if self.faulting(t).is_some_and(|thread| thread.outstanding > 0) {
            return Turn::Sleeps;
        }
        self.goes_on_to(t, Stage::Begin)
    }

    /// Takes a step, and counts the requests that leave from the thread's own channel.
    fn asking<R>(&mut self, t: usize, out: &mut Outbox, step: impl FnOnce(&mut Node, &mut Outbox) -> R) -> R {
        let before = out.sends().len();
        let result = step(self, out);
        let own = |target: &Target| matches!(target, Target::Request { origin: Origin::Caller, .. });
        let asked = out.sends()[before..].iter().filter(|send| own(&send.target)).count();
        if let Some(thread) = self.faulting(t) {
            thread.outstanding += asked;
        }
        result
    }

    /// The loop in `single_fault`: the step that it takes on the unit, and the wait.
    fn begin_on_unit(&mut self, t: usize, stores: bool, out: &mut Outbox) -> Turn {
        let (slot, want) = (Self::slot(t), if stores { Want::Modified } else { Want::Shared });
        let Some((unit, ahead, outstanding)) =
            self.faulting(t).map(|thread| (thread.unit, thread.ahead, thread.outstanding))
        else {
            return Turn::Done;
        };
        if ahead && outstanding > 0 {
            return Turn::Sleeps;
        }
        let before = out.sends().len();
        let (hit, void) = self.asking(t, out, |node, out| {
            node.on_unit(unit, Some(slot), out, |state, cx| {
                if state.begin(cx, slot, want, true) == Begin::Wait {
                    return (false, false);
                }
                if !state.holds(want) && Rule::VoidPagesAreNotMapped.on() {
                    state.settle(cx);
                    return (false, true);
                }
                if Rule::GrantedPagesAreHeld.on() {
                    state.pin();
                }
                let all = state.holds(Want::Modified);
                cx.memory.permit(if all { Permission::Write } else { Permission::Read });
                if !Rule::GrantedPagesAreHeld.on() {
                    state.settle(cx);
                }
                (true, false)
            })
        });
        let asked = out.sends().len() > before;
        if asked && !hit && !stores {
            self.fetch_ahead(t, unit, out);
        }
        let Some(paged) = &mut self.paged else { return Turn::Done };
        paged.tally.void += u64::from(void);
        let thread = &mut paged.threads[t];
        thread.asked |= asked;
        if hit {
            paged.tally.asked += u64::from(thread.asked);
            paged.tally.joined += u64::from(thread.joined && !thread.asked);
            return self.goes_on_to(t, Stage::List);
        }
        if void {
            return Turn::Within;
        }
        thread.joined |= !asked;
        if thread.outstanding > 0 { Turn::Sleeps } else { Turn::Naps }
    }

    /// Asks for units behind the one that thread `t` waits for (`pin_unit`).
    fn fetch_ahead(&mut self, t: usize, unit: u32, out: &mut Outbox) {
        let Some(paged) = &self.paged else { return };
        let behind = unit + 1..(unit + 1 + paged.paging.ahead).min(self.shape.units() as u32);
        for unit in behind {
            let slot = Self::slot(t);
            let asked = self.asking(t, out, |node, out| {
                node.on_unit(unit, Some(slot), out, |state, cx| state.fetch_ahead(cx, slot))
            });
            if let Some(paged) = self.paged.as_mut().filter(|_| asked) {
                paged.tally.ahead += 1;
                paged.threads[t].ahead = true;
            }
        }
    }

    fn list(&mut self, now: Time, t: usize, out: &mut Outbox) -> Turn {
        let Some(paged) = &mut self.paged else { return Turn::Done };
        let unit = paged.threads[t].unit;
        if !Rule::GrantedPagesAreHeld.on() {
            return self.back_to_access(t);
        }
        let until = now + paged.threads[t].grip.hold(self.me);
        if paged.hold(t, unit, now, until) {
            return self.goes_on_to(t, Stage::LookAgain);
        }
        self.on_unit(unit, Some(Self::slot(t)), out, |state, cx| state.unpin(cx));
        self.back_to_access(t)
    }

    fn look_again(&mut self, t: usize, out: &mut Outbox) -> Turn {
        let Some(unit) = self.faulting(t).map(|thread| thread.unit) else { return Turn::Done };
        if Rule::ListedHoldsAreLookedAtAgain.on() {
            self.on_unit(unit, Some(Self::slot(t)), out, |_, _| ());
        }
        self.back_to_access(t)
    }

    fn back_to_access(&mut self, t: usize) -> Turn {
        if let Some(paged) = &mut self.paged {
            paged.memory.retry(t);
        }
        self.goes_on_to(t, Stage::Access)
    }

    /// Thread `t` is about to wait for something else than a page, so it is not in an access (`let_pins_go`).
    pub(crate) fn let_holds_go(&mut self, t: usize, out: &mut Outbox) {
        let held = self.paged.as_mut().map_or_else(Vec::new, |paged| paged.take_holds(t, None));
        held.into_iter().for_each(|unit| self.on_unit(unit, Some(Self::slot(t)), out, |state, cx| state.unpin(cx)));
    }

    /// An answer has come to a thread's own socket.
    pub(crate) fn answered(&mut self, t: usize) {
        if let Some(thread) = self.paged.as_mut().and_then(|paged| paged.threads.get_mut(t)) {
            thread.outstanding = thread.outstanding.saturating_sub(1);
        }
    }

    /// How far its access to a page has come, for people.
    pub(crate) fn stage(&self, t: usize) -> String {
        self.paged.as_ref().map_or_else(String::new, |paged| {
            let Faulting { stage, unit, .. } = &paged.threads[t];
            format!("; {stage:?}, unit {unit}")
        })
    }
}
