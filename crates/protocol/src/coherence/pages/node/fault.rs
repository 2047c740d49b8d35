//! What a thread does whose access found its page unusable, up to the request that it waits for.
//!
//! One step of the page table says what to fetch. What follows is a machine, [`Fetching`], of a few stages:
//!
//! | stage | does | next |
//! |---|---|---|
//! | claim | where nobody may have touched the units: claims them in the table of their home by the layout | take |
//! | take | where the node reads the home's memory: marks what the home offers, unit by unit, then copies it | pick |
//! | pick | looks for what was sent to this node unasked | ask |
//! | ask | asks the home for what is left | install |
//! | install | installs what was sent unasked | |
//!
//! Between two stages other threads of the node go on, and notices may void the fetch. The units are in state
//! `Fetching` all the time, so whatever is to be applied before they come is known at the last stage at the latest.

use super::NodeEffects;
use crate::coherence::pages::kept_diffs::Ask;
use crate::coherence::pages::page_table::{Fault, PageTable, PrefetchPlan};
use crate::coherence::pages::push::PushedPages;
use crate::coherence::pages::serve::{self, Listing};
use crate::coherence::pages::wire::{Fetch, RequiredDiff, Runs};
use crate::coherence::pages::{Access, PageNo, push_range};
use crate::ids::{NodeId, Slot};
use crate::outbox::{Origin, Outbox, Target};
use crate::rules::Rule;
use crate::wire::message::Message;
use std::ops::Range;

/// Another node's memory of pages, as far as this node reads it without the other's help.
pub trait HomeMemory {
    /// Whether all these diffs are in it.
    fn has_applied(&mut self, needs: &[RequiredDiff]) -> bool;
    /// Whether its node offers the unit that begins at this page. Then that node knows from now on of the copy.
    fn mark(&mut self, unit: PageNo) -> bool;
    /// Whether its node offers the unit; it hears nothing of the question.
    fn is_offered(&mut self, unit: PageNo) -> bool {
        self.mark(unit)
    }
    /// Calls `f` with the bytes of these pages; `None` where it has no such pages.
    fn with_bytes<R>(&mut self, pages: &Range<PageNo>, f: impl FnOnce(&[u8]) -> R) -> Option<R>;
}

/// How pages came that nobody was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// They were copied out of their home's memory.
    Taken,
    /// Their home had sent them unasked.
    Pushed,
    /// They had come with a lock's token.
    Carried,
}

/// What a fault has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Faulted {
    /// The access can be tried again.
    Mapped,
    /// The program had declared the memory read-only.
    ReadOnly,
    /// The unit's diffs stay with their writers: send these requests, then wait.
    Ask(Vec<(NodeId, Ask)>),
    /// Another fetch brings the unit: its end wakes the thread.
    Wait,
    /// The thread fetches.
    Fetch(Fetching),
}

/// Units of one home on their way here; they are in state `Fetching`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetching {
    /// Their home.
    pub home: NodeId,
    /// The first page of the unit that the fetch is for.
    pub first: PageNo,
    /// Whether units that nobody has touched become this node's.
    pub claim: bool,
    /// What of them had no memory here when the fetch began.
    pub fresh: Runs,
    /// What is still to come, as whole units.
    runs: Vec<Range<PageNo>>,
    stage: Stage,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    Claim,
    Take,
    Mark(Taking),
    Copy(Taking),
    Pick,
    Ask(Vec<PushedPages>),
    Install(Vec<PushedPages>),
    Over,
}

/// Units on their way out of their home's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Taking {
    /// What the home is known to have applied.
    needs: Vec<RequiredDiff>,
    /// The run that is looked at, and how far.
    run: usize,
    at: PageNo,
    /// What the home knows to be copied.
    taken: Runs,
    /// What must be asked for.
    left: Vec<Range<PageNo>>,
}

/// What a stage of a fetch has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Another stage follows.
    Goes,
    /// Nothing is left to do. What the home was not asked for is here.
    Over,
    /// The home was asked for what is left. Another stage may follow ([`Fetching::is_over`]).
    Asked(Fetch),
}

/// The access of thread `slot` to `page` faulted: takes the step of its page table. `plan` says what to fetch with it;
/// `None` where no region with several writers has the page.
pub fn fault(
    node: &mut impl NodeEffects,
    (slot, page, access): (Slot, PageNo, Access),
    plan: impl FnOnce(&PageTable) -> PrefetchPlan,
) -> Option<Faulted> {
    node.listed_step((page, Listing::Fault), |table, cx| {
        let plan = plan(table);
        match table.fault(cx, slot, page, access, plan) {
            Fault::Mapped => Faulted::Mapped,
            Fault::ReadOnly => Faulted::ReadOnly,
            Fault::Wait => Faulted::Wait,
            Fault::Ask(asks) => Faulted::Ask(asks),
            Fault::Fetch { home, runs, claim } => {
                let mut fresh = Runs::new();
                runs.iter().for_each(|run| table.units().without_memory(run, &mut fresh));
                let stage = if claim { Stage::Claim } else { Stage::Take };
                Faulted::Fetch(Fetching { home, first: runs[0].start, claim, fresh, runs, stage })
            }
        }
    })
}

/// As [`fault`], and what follows until the thread has to wait: what a home was asked for, if it was.
pub fn begin<E: NodeEffects, H: HomeMemory>(
    node: &mut E,
    at: (Slot, PageNo, Access),
    plan: impl FnOnce(&PageTable) -> PrefetchPlan,
    reach: impl Fn(NodeId) -> Option<H>,
) -> Option<(Faulted, Option<Fetch>)> {
    let mut faulted = fault(node, at, plan)?;
    let fetch = if let Faulted::Fetch(fetching) = &mut faulted { fetching.run(node, reach) } else { None };
    Some((faulted, fetch))
}

/// A run that is fetched ahead of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// From its first page to behind its last one.
    pub span: Range<PageNo>,
    /// How many pages it has.
    pub pages: u64,
    /// How far its fetch has come.
    pub fetching: Fetching,
    /// What its home was asked for, if it was.
    pub fetch: Option<Fetch>,
}

/// Fetches what a thread will probably touch next, from `page` on, before it does; `None` when that is here or on its
/// way. The home is asked, but nothing that had been sent unasked is installed yet.
pub fn run_ahead(node: &mut impl NodeEffects, page: PageNo, plan: PrefetchPlan) -> Option<Ahead> {
    let begun = node.step(page, |table, _| {
        let (home, runs) = table.run_ahead(page, plan)?;
        let mut fresh = Runs::new();
        runs.iter().for_each(|run| table.units().without_memory(run, &mut fresh));
        Some(Fetching { home, first: page, claim: false, fresh, runs, stage: Stage::Pick })
    });
    let mut fetching = begun.flatten()?;
    let span = fetching.runs.first()?.start..fetching.runs.last()?.end;
    let pages = fetching.runs.iter().map(|run| u64::from(run.end - run.start)).sum();
    let fetch = loop {
        match fetching.step(node, None::<&mut Unseen>) {
            Progress::Asked(fetch) => break Some(fetch),
            Progress::Goes if !matches!(fetching.stage, Stage::Install(_)) => {}
            Progress::Goes | Progress::Over => break None,
        }
    };
    Some(Ahead { span, pages, fetching, fetch })
}

/// Memory that this node does not see.
enum Unseen {}

impl HomeMemory for Unseen {
    fn has_applied(&mut self, _: &[RequiredDiff]) -> bool {
        match *self {}
    }

    fn mark(&mut self, _: PageNo) -> bool {
        match *self {}
    }

    fn with_bytes<R>(&mut self, _: &Range<PageNo>, _: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match *self {}
    }
}

/// The thread waits for what it has asked for. Where that is one unit, which no other thread can look at before it goes
/// on (`alone`), maps it already.
pub fn premap(node: &mut impl NodeEffects, page: PageNo, fetch: &Fetch, alone: impl FnOnce() -> bool) {
    let [run] = &fetch.runs[..] else { return };
    let is_its_unit = |unit_pages| run.len() as u32 == unit_pages && run.contains(&page);
    // What is copied out of the home's memory is not waited for.
    let may = !fetch.claim && !fetch.direct && node.units_from(page).is_some_and(|(_, pages)| is_its_unit(pages));
    if may && (alone() || !Rule::LoneThreadsMapEarly.on()) {
        node.step(page, |table, cx| table.premap(cx, run));
    }
}

impl Fetching {
    /// Units that end with an acquire and are fetched again ([`fetch_again`](super::invalidate::fetch_again)).
    pub fn again(home: NodeId, runs: Vec<Range<PageNo>>) -> Fetching {
        let first = runs.first().map_or(0, |run| run.start);
        Fetching { home, first, claim: false, fresh: Runs::new(), runs, stage: Stage::Take }
    }

    /// What is still to come, as whole units.
    pub fn runs(&self) -> &[Range<PageNo>] {
        &self.runs
    }

    /// Whether the next stage goes better where this node sees the home's memory.
    pub fn sees_home(&self) -> bool {
        matches!(self.stage, Stage::Claim | Stage::Take | Stage::Mark(_) | Stage::Copy(_))
    }

    /// Whether units are being copied out of the home's memory.
    pub fn is_taking(&self) -> bool {
        matches!(self.stage, Stage::Mark(_) | Stage::Copy(_))
    }

    /// Whether no stage is left.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether no stage of it has been taken yet.
    pub fn is_new(&self) -> bool {
        matches!(self.stage, Stage::Claim | Stage::Take)
    }

    /// Whether it may come to a question to the home.
    pub fn has_to_ask(&self) -> bool {
        !matches!(self.stage, Stage::Install(_) | Stage::Over)
    }

    /// Goes on until the home was asked, which is given, or nothing is left to do. `reach` gives the memory of a home
    /// where this node sees it.
    pub fn run<E: NodeEffects, H: HomeMemory>(
        &mut self,
        node: &mut E,
        reach: impl Fn(NodeId) -> Option<H>,
    ) -> Option<Fetch> {
        let mut home = reach(self.home);
        loop {
            match self.step(node, home.as_mut()) {
                Progress::Goes => {}
                Progress::Over => return None,
                Progress::Asked(fetch) => return Some(fetch),
            }
        }
    }

    /// The next stage, or a part of it. `home` is the home's memory, where this node sees it.
    pub fn step<E: NodeEffects, H: HomeMemory>(&mut self, node: &mut E, home: Option<&mut H>) -> Progress {
        match (std::mem::replace(&mut self.stage, Stage::Over), home) {
            (Stage::Claim, home) => {
                if home.is_some() {
                    self.claim_runs(node);
                }
                self.goes_to(Stage::Take)
            }
            (Stage::Take, Some(home)) => match self.begin_taking(node, home) {
                Some(taking) => self.goes_to(Stage::Mark(taking)),
                None => self.goes_to(Stage::Pick),
            },
            (Stage::Mark(taking), Some(home)) => self.mark(node, home, taking),
            (Stage::Copy(taking), Some(home)) => self.copy(node, home, taking),
            (Stage::Take | Stage::Mark(_) | Stage::Copy(_), None) => self.goes_to(Stage::Pick),
            (Stage::Pick, _) => {
                let (pushed, left) = serve::pick(node.pages(), self.home, std::mem::take(&mut self.runs));
                self.runs = left;
                self.stage = if self.runs.is_empty() { Stage::Install(pushed) } else { Stage::Ask(pushed) };
                Progress::Goes
            }
            (Stage::Ask(pushed), _) => {
                self.stage = if pushed.is_empty() { Stage::Over } else { Stage::Install(pushed) };
                Progress::Asked(self.ask(node))
            }
            (Stage::Install(pushed), _) => {
                install_pushed(node, &pushed);
                Progress::Over
            }
            (Stage::Over, _) => Progress::Over,
        }
    }

    fn goes_to(&mut self, stage: Stage) -> Progress {
        let takes = matches!(stage, Stage::Mark(_) | Stage::Copy(_));
        if self.runs.is_empty() && !takes {
            return Progress::Over;
        }
        self.stage = stage;
        Progress::Goes
    }

    fn claim_runs(&mut self, node: &mut impl NodeEffects) {
        let (home, mut left) = (self.home, Vec::new());
        super::each_table(node, std::mem::take(&mut self.runs).iter(), |node, parts| {
            node.step(parts[0].start, |table, cx| {
                parts.iter().for_each(|part| table.claim(cx, part, home, &mut left));
            });
        });
        self.runs = left;
    }

    /// What is needed is in the home's memory: then its units are looked at one by one.
    fn begin_taking(&mut self, node: &mut impl NodeEffects, home: &mut impl HomeMemory) -> Option<Taking> {
        let needs = node.needs_at(self.home);
        let at = self.runs.first()?.start;
        let met = home.has_applied(&needs) || !Rule::TakersLookForTheirNeeds.on();
        met.then(|| Taking { needs, run: 0, at, taken: Runs::new(), left: Vec::new() })
    }

    /// Looks at one unit: marks it where the home offers it.
    fn mark(&mut self, node: &mut impl NodeEffects, home: &mut impl HomeMemory, mut taking: Taking) -> Progress {
        let Some(run) = self.runs.get(taking.run).cloned() else {
            self.runs = std::mem::take(&mut taking.left);
            return self.goes_to(Stage::Copy(taking));
        };
        let (end, unit_pages) = node.units_from(taking.at).unwrap_or((run.end, run.end - taking.at));
        // Where no region has the page any more, the home is asked.
        let unit = taking.at..(taking.at + unit_pages).min(end).min(run.end);
        let may = if Rule::MarkBeforeTaking.on() { home.mark(unit.start) } else { home.is_offered(unit.start) };
        match may {
            true => push_range(&mut taking.taken, unit.clone()),
            false => push_range(&mut taking.left, unit.clone()),
        }
        (taking.run, taking.at) = match unit.end >= run.end {
            true => (taking.run + 1, self.runs.get(taking.run + 1).map_or(0, |next| next.start)),
            false => (taking.run, unit.end),
        };
        self.goes_to(Stage::Mark(taking))
    }

    /// Copies a run that is marked.
    fn copy(&mut self, node: &mut impl NodeEffects, home: &mut impl HomeMemory, mut taking: Taking) -> Progress {
        if taking.taken.is_empty() {
            // What a mutant has copied first is marked now.
            taking.left.into_iter().flatten().for_each(|page| _ = home.mark(page));
            node.needs(|needs| needs.confirm(self.home, &taking.needs));
            return self.goes_to(Stage::Pick);
        }
        let run = taking.taken.remove(0);
        let here =
            home.with_bytes(&run, |bytes| brings(node, |pages, out| serve::take_in(pages, &run, bytes, out).is_some()));
        if !Rule::MarkBeforeTaking.on() {
            taking.left.push(run.clone());
        }
        if here == Some(true) {
            node.pages_came(Came::Taken, u64::from(run.end - run.start));
        } else {
            self.runs.push(run);
        }
        self.goes_to(Stage::Copy(taking))
    }

    /// Asks the home for what is left.
    fn ask(&mut self, node: &mut impl NodeEffects) -> Fetch {
        let runs = std::mem::take(&mut self.runs);
        let needs = node.needs_at(self.home);
        let (epoch, direct) = (node.epoch(), node.reads_memory_of(self.home));
        let fetch = Fetch { epoch, claim: self.claim, direct, needs, runs: runs.into() };
        let target = Target::Request { node: self.home, origin: Origin::Caller };
        node.side().send_with(target, &Message::Fetch { body: &[] }, |body| fetch.emit(body));
        fetch
    }
}

/// Installs what had been sent to this node unasked.
fn install_pushed(node: &mut impl NodeEffects, pushed: &[PushedPages]) {
    for run in pushed {
        let pages = brings(node, |pages, out| serve::install_pushed(pages, std::slice::from_ref(run), out));
        node.pages_came(if run.from_home { Came::Pushed } else { Came::Carried }, pages);
    }
}

/// A step that brings pages here, and wakes those that wait for them.
fn brings<E: NodeEffects, R>(node: &mut E, step: impl FnOnce(&mut E::Pages, &mut Outbox) -> R) -> R {
    let mut woken = Outbox::new();
    let result = step(node.pages(), &mut woken);
    woken.wakes().iter().for_each(|slot| node.side().wake(*slot));
    result
}
