//! The engine as regions of lines memory see it, and what is known of a node that ends with an entry locked.

use super::emulated::Emulated;
use super::here::{Here, Span};
use super::miss::run;
use super::one_by_one::OneByOne;
use super::pause::Pause;
use super::post::{Locked, Sockets};
use super::reach::OneSidedReach;
use super::shm::{Memories, Refusal, Shm};
use super::ucx::Ucx;
use crate::error::{Error, Result};
use crate::inline::{LineEngine, LineUnit, hazards};
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::lines::{Lines, LinesMemory, PeerLines};
use comem_protocol::coherence::direct::directory::Layout;
use comem_protocol::coherence::direct::miss::Site;
use comem_protocol::coherence::direct::{Entry, LINE_BYTES, Outcome, Want};
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo};
use comem_protocol::ids::NodeId;
use smallvec::SmallVec;
use std::cell::Cell;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The lines memories of the other nodes, all on this host.
#[derive(Debug)]
pub(crate) struct LinePeers {
    /// By node; this node's own is not among them.
    of: Vec<Option<PeerLines>>,
}

/// All nodes' lines memories.
#[derive(Clone, Copy)]
struct All<'a> {
    me: NodeId,
    own: &'a Lines,
    /// `None` where operations on other nodes are emulated.
    peers: Option<&'a LinePeers>,
}

impl Memories for All<'_> {
    #[inline]
    fn memory(&self, node: NodeId) -> Option<&LinesMemory> {
        if node == self.me {
            return Some(self.own);
        }
        self.peers?.of.get(node.index())?.as_deref()
    }
}

/// The engine `direct`.
#[derive(Debug)]
pub(crate) struct Direct;

impl LineEngine for Direct {
    fn unit_access(
        &self,
        thread: &Thread,
        known: &RegionState,
        unit: LineUnit,
        want: Want,
        access: &mut dyn FnMut(*mut u8),
    ) -> Result<()> {
        bring(thread, known, &[unit], want, access)
    }

    fn units_ahead(&self, thread: &Thread, known: &RegionState, units: &[LineUnit], want: Want) -> Result<()> {
        bring(thread, known, units, want, &mut |_| ())
    }
}

/// Brings units of a region: one, and makes the access on it, or several side by side.
fn bring(
    thread: &Thread,
    known: &RegionState,
    units: &[LineUnit],
    want: Want,
    access: &mut dyn FnMut(*mut u8),
) -> Result<()> {
    let node = thread.home();
    let (shared, all) = node.reach.lines_of_all(node).ok_or_else(cannot_reach)?;
    debug_assert!(!hazards::is_raised(), "who waits for another thread has lowered its hazard");
    let (me, has_barrier) = (shared.me, all.own.has_barrier());
    let site_of = |unit: &LineUnit| {
        let layout = Layout { home: unit.home, nodes: shared.nodes };
        Site { me, layout, lines: unit.lines as usize, has_barrier, biases_again: false }
    };
    let sites: SmallVec<[Site; 1]> = units.iter().map(site_of).collect();
    let spans: SmallVec<[Span; 1]> = units.iter().map(Span::of).collect();
    let (span, site) = (spans[0], sites[0]);
    let is_told = Cell::new(false);
    let is_lost = |sleeps: bool| {
        if sleeps && !is_told.replace(true) {
            thread.waits_long_for(Some(Waiting::Page(shared.page_of_line(all.own, span.line))));
        }
        node.life.goes_on().is_err()
    };
    let start = node.now();
    let under_way = all.own.miss_of(thread.slot().index());
    if let Some(word) = under_way {
        let behind = spans.iter().map(|span| span.line + span.lines).max().unwrap_or(span.line);
        word.store(LinesMemory::under_way(span.line..behind), Ordering::Relaxed);
    }
    let mut here = Here {
        me: shared.me,
        memory: all.own,
        span,
        want,
        access,
        is_lost: &is_lost,
        pause: Pause::new(std::ptr::from_ref(thread).addr()),
        remote: 0,
        retries: 0,
    };
    let or_lost = |refusal| match refusal {
        Refusal::Lost => Ok(Outcome::Lost(None)),
        Refusal::Failed(..) if node.life.hears_of_a_loss() => Ok(Outcome::Lost(None)),
        refusal => Err(refused_in(known, &refusal)),
    };
    let ended = if let Some(reached) = node.reach.ucx() {
        let operations = Ucx::new(reached, (shared, all.own), known, &is_lost);
        let mut reach = OneByOne { operations, wide_words: site.layout.wide_words(), loops_back: true };
        run((&sites, &spans), &mut reach, &mut here, thread.counters()).or_else(or_lost)
    } else if all.peers.is_some() {
        let operations = Shm { memories: &all, region: lines_of(shared, all.own, known), is_lost: &is_lost };
        let mut reach = OneByOne { operations, wide_words: site.layout.wide_words(), loops_back: false };
        run((&sites, &spans), &mut reach, &mut here, thread.counters()).or_else(or_lost)
    } else {
        let mut reach = Emulated { post: Sockets::new(thread, known, span.line) };
        thread.operation(|| run((&sites, &spans), &mut reach, &mut here, thread.counters()))
    };
    if let Some(word) = under_way {
        word.store(0, Ordering::Release);
    }
    if is_told.get() {
        thread.waits_long_for(None);
    }
    let span_ns = (node.now() - start).0;
    if all.peers.is_some() || node.reach.ucx().is_some() {
        // Waits for other nodes count by themselves.
        thread.counters().fetch_ns.add(span_ns);
    }
    known.costs.fetch_ns.fetch_add(span_ns, Ordering::Relaxed);
    let costs = &known.line_costs;
    let took = [(here.remote, &costs.remote_operations), (here.retries, &costs.retries)];
    took.into_iter()
        .filter(|(count, _)| *count > 0)
        .for_each(|(count, sum)| _ = sum.fetch_add(count, Ordering::Relaxed));
    match ended {
        Ok(Outcome::Lost(_)) => node.life.goes_on(),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

fn cannot_reach() -> Error {
    Error::Argument(
        "memory under the engine direct, but this node cannot map the memory of the others; start the job with \
         --engine direct, which says why"
            .to_string(),
    )
}

/// The lines of a region.
pub(super) fn lines_of(shared: &Shared, lines: &Lines, known: &RegionState) -> Range<usize> {
    let start = (shared.address_of(known.region.first) - lines.extent().base) / LINE_BYTES;
    start..start + known.region.pages as usize * (PAGE_BYTES / LINE_BYTES)
}

impl Shared {
    fn page_of_line(&self, lines: &Lines, line: usize) -> PageNo {
        ((lines.extent().base - self.base + line * LINE_BYTES) / PAGE_BYTES) as PageNo
    }
}

fn refused_in(known: &RegionState, refusal: &Refusal) -> Error {
    let what = match refusal {
        Refusal::NoMemory(node) => format!("names {node} as a holder, whose memory cannot be reached"),
        Refusal::Outside(place) => format!("asks for {place:?}, which lies outside of it"),
        Refusal::NoBarrier => "needs a barrier that the system does not make any more".to_string(),
        Refusal::Failed(node, why) => format!("needs {node}, which cannot be reached any more: {why}"),
        Refusal::Lost => "was left by the job".to_string(),
    };
    Error::PeerMisbehaved(format!("the directory of {} {what}; a node has overwritten it, or misbehaves", known.name()))
}

impl OneSidedReach {
    /// Every node's lines memory, where all can be reached from here.
    #[inline]
    fn lines_of_all<'a>(&self, node: &'a Node) -> Option<(&'a Shared, All<'a>)> {
        let shared = node.shared()?;
        let views = shared.views.as_ref()?;
        let (own, peers) = (views.lines.as_ref()?, views.line_peers.get());
        let can_reach = peers.is_some() || self.ucx().is_some() || self.is_emulated();
        can_reach.then_some((shared, All { me: shared.me, own, peers }))
    }

    /// Maps the lines memories of all other nodes. To be called when all nodes have their heaps.
    ///
    /// # Errors
    /// When one of them cannot be reached: the engine `direct` cannot work then.
    pub(crate) fn meet_line_peers(&self, node: &Node) -> Result<()> {
        let Some(views) = node.shared().and_then(|shared| shared.views.as_ref()) else { return Ok(()) };
        let Some(lines) = &views.lines else { return Ok(()) };
        let is_asked_for = node.page_engine().is_one_sided();
        if node.config.uses_ucx() {
            return Ok(());
        }
        if self.is_emulated() {
            if is_asked_for && node.config.verbose {
                crate::error::say(format_args!(
                    "comem: {}: one-sided operations of the engine direct are emulated: over {} the service threads of \
                     other nodes carry them out",
                    node.name_of(node.me()),
                    node.config.backbone_name()
                ));
            }
            return Ok(());
        }
        let open = |of: NodeId| {
            if of == node.me() {
                return Ok(None);
            }
            let Some((_, pid)) = node.wire.member(of) else { return Ok(None) };
            PeerLines::open(pid, lines.extent()).map(Some).map_err(|error| {
                if error.kind() == ErrorKind::OutOfMemory {
                    return Error::Start(format!(
                        "the engine direct maps a quarter of each node's --heap and more, and there are no \
                         addresses left for the memory of {}: {error}; start the job with a smaller --heap, or raise \
                         RLIMIT_AS (ulimit -v)",
                        node.name_of(of)
                    ));
                }
                let refused = Error::Start(format!(
                    "the engine direct needs the memory of {}, which this node may not map: {error}; nodes of one \
                     host, user and container can map it, and the detector inline with the engine msi \
                     needs no such thing",
                    node.name_of(of)
                ));
                // It may have ended as soon as it had started.
                if is_asked_for { node.life.loss_or(refused) } else { refused }
            })
        };
        match NodeId::all(node.nodes()).map(open).collect::<Result<_>>() {
            Ok(of) => _ = views.line_peers.set(LinePeers { of }),
            Err(error) if is_asked_for => return Err(error),
            // A region that names the engine will find that there is none.
            Err(_) => {}
        }
        Ok(())
    }

    /// What a node that has ended held locked of lines memory, for the sentence that tells of its end: nothing, or the
    /// region.
    pub(crate) fn locked_by(&self, node: &Node, lost: NodeId) -> Option<String> {
        let (shared, all) = self.lines_of_all(node)?;
        let words = |region: String| format!("it had locked an entry of {region}, whose data nobody can have any more");
        if all.peers.is_none() {
            let place = |line: usize| {
                let address = all.own.extent().base + line * LINE_BYTES;
                let known = shared.table.find(shared.page_of(address)?)?;
                let bytes = address - shared.address_of(known.region.first);
                Some(format!("{} (at byte {bytes})", known.name()))
            };
            return match node.served.what_was_locked(&node.slots, all.own, lost)? {
                Locked::Entry(line) => place(line).map(words),
                Locked::Perhaps(line) => place(line).map(|place| format!("a thread waited for its part of {place}")),
            };
        }
        let is_its = |entry: Entry| entry.holder() == Some(NodeId(lost.0 & 0x7f));
        let locked = all.memory(lost)?.about_to_lock().find_map(|line| {
            let address = all.own.extent().base + line * LINE_BYTES;
            let known = shared.table.find(shared.page_of(address)?)?;
            let unit = shared.line_unit(&known, address).filter(|_| known.region.engine.is_one_sided())?;
            let has_locked = |node: NodeId| {
                let entry = all.memory(node).map(|memory| memory.entry(unit.line as usize).load(Ordering::Acquire));
                entry.is_some_and(|entry| is_its(Entry(entry)))
            };
            let bytes = address - shared.address_of(known.region.first);
            NodeId::all(shared.nodes).any(has_locked).then(|| format!("{} (at byte {bytes})", known.name()))
        });
        locked.map(words)
    }
}
