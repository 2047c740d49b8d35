//! What other nodes ask about pages, and what they tell.

use crate::node::Node;
use crate::path_counts;
use crate::shared::consistency::effects::NodePages;
use crate::shared::heap::alloc::FreedElsewhere;
use crate::shared::heap::table::RegionState;
use crate::shared::{Peer, Shared, Views};
use comem_memory::pages::{PeerView, SharedDirectory};
use comem_memory::prefetch_hint;
use comem_net::Backbone;
use comem_protocol::coherence::Misbehaved;
use comem_protocol::coherence::pages::home_queue::HomeQueue;
use comem_protocol::coherence::pages::kept_diffs::{self, Stamp};
use comem_protocol::coherence::pages::multicast;
use comem_protocol::coherence::pages::page_table::PageTable;
use comem_protocol::coherence::pages::push::PushBuffer;
use comem_protocol::coherence::pages::region::Region;
use comem_protocol::coherence::pages::serve::{self, Listing, PageState};
use comem_protocol::coherence::pages::wire::{self, RequiredDiff};
use comem_protocol::coherence::pages::{Context, PAGE_BYTES, PageNo};
use comem_protocol::ids::{NodeId, Slot};
use comem_protocol::node::route::Origin;
use comem_protocol::outbox::{Outbox, Target};
use comem_protocol::tuning::Tuning;
use comem_protocol::wire::message::Message;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Of what is about to be read, so much is brought near before; the rest the processor sees coming by itself. Asked for
/// more lines than it can have under way at a time, it waits: on a Zen 4, 0.1 us longer for a page than with 20.
const PREFETCH_BYTES: usize = 16 * 64;

/// The state of pages as one message sees it.
#[derive(Clone, Copy)]
pub(crate) struct LocalPages<'a> {
    pub(in crate::shared) node: &'a Node,
    pub(in crate::shared) shared: &'a Shared,
    pub(in crate::shared) slot: Slot,
    /// Whose request the message answers, if it is an answer.
    answers: Option<Slot>,
    /// The region that the step is about, where that is known.
    known: Option<&'a RegionState>,
}

impl<'a> LocalPages<'a> {
    /// The same, where the steps are about this region.
    pub(in crate::shared) fn of(self, known: &'a RegionState) -> LocalPages<'a> {
        LocalPages { known: Some(known), ..self }
    }

    /// The region with this page, where that is known.
    pub(in crate::shared) fn known_at(&self, page: PageNo) -> Option<&'a RegionState> {
        self.known.filter(|known| known.region.range().contains(&page))
    }
}

impl<'a> LocalPages<'a> {
    /// The directory of a home's shared pages, if this node can write that memory.
    pub(in crate::shared) fn writable_directory(&self, home: NodeId) -> Option<&'a SharedDirectory> {
        let peer = self.node.peer_memory(self.shared, home)?;
        peer.directory.as_ref().filter(|_| peer.memory.is_writable())
    }
}

impl PageState for LocalPages<'_> {
    fn closed_stamp(&self) -> Stamp {
        self.shared.kept_diffs.closed()
    }

    fn tuning(&self) -> &Tuning {
        &self.shared.tuning
    }

    fn listed_chunk<R>(
        &mut self,
        (page, listing): (PageNo, Listing),
        out: &mut Outbox,
        step: impl FnOnce(&mut PageTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let (shared, answers) = (self.shared, self.answers);
        self.table_step((page, listing), out, |table, cx| {
            let result = step(table, cx);
            if let Some(asker) = answers {
                shared.has_stepped(asker, table);
            }
            result
        })
    }

    fn look_ahead(&mut self, pages: &Range<PageNo>) {
        let Some(views) = &self.shared.views else { return };
        let start = views.tracked.service().wrapping_add(pages.start as usize * PAGE_BYTES);
        prefetch_hint::of_reads(start, (pages.len() * PAGE_BYTES).min(PREFETCH_BYTES));
    }

    fn home_queue<R>(&mut self, step: impl FnOnce(&mut HomeQueue) -> R) -> R {
        step(&mut self.shared.home_queue.lock())
    }

    fn push_buffer<R>(&mut self, step: impl FnOnce(&mut PushBuffer) -> R) -> Option<R> {
        Some(step(&mut self.shared.push_buffer.lock()))
    }

    fn memory_of(&mut self, home: NodeId, pages: &Range<PageNo>) -> Option<&'static [u8]> {
        self.node.peer_memory(self.shared, home)?.bytes(pages)
    }

    fn is_freed(&mut self, page: PageNo) -> bool {
        self.shared.table.is_freed(page)
    }

    fn on_freed_elsewhere(&mut self, pages: &Range<PageNo>) {
        if let Some(known) = self.shared.table.find(pages.start) {
            known.gone.store(true, Ordering::Release);
        }
    }

    fn diffs_are_in(&mut self, writer: NodeId, serial: u64) {
        self.shared.directory().inspect(|directory| directory.diffs_are_in(writer.0, serial));
    }

    fn diffs_put(&mut self, writer: NodeId) -> u64 {
        self.shared.diffs_put(writer)
    }

    fn diff_applied(&mut self, writer: NodeId, epoch: u32, page: PageNo, diff: &[u8]) {
        self.shared.sharing.note_writer(&self.shared.table, writer, epoch, page, diff);
    }
}

impl Shared {
    pub(crate) fn directory(&self) -> Option<&SharedDirectory> {
        self.views.as_ref()?.directory.as_ref()
    }

    /// The serial up to which the diffs of another node are in this node's memory, where that node can put them there
    /// itself.
    fn diffs_put(&self, writer: NodeId) -> u64 {
        self.directory().map_or(0, |directory| directory.diffs_in(writer.0))
    }

    /// Whether all these diffs have been applied here.
    pub(crate) fn meets(&self, needs: &[RequiredDiff]) -> bool {
        let mut objects = self.home_queue.lock();
        needs.iter().for_each(|need| objects.applied(need.writer, self.diffs_put(need.writer)));
        objects.meets(needs)
    }
}

/// What stands at the beginning of a heap, of which no allocation begins there: whose heap it is.
fn stamp(me: NodeId, pid: u32, port: u16) -> [u8; 16] {
    let mut words = *b"comem...........";
    words[6..8].copy_from_slice(&me.0.to_be_bytes());
    words[8..12].copy_from_slice(&pid.to_be_bytes());
    words[12..14].copy_from_slice(&port.to_be_bytes());
    words
}

impl Views {
    /// Writes into the heap whose it is, node `me`'s with this port, for other nodes that read it. Not where there is
    /// no table of offers for it: home pages are compared then, of which others may get what they were told of alone.
    pub(crate) fn stamp(&self, me: NodeId, port: u16) {
        if self.directory.is_some() || !self.tracked.notes_writes() {
            let words = stamp(me, std::process::id(), port);
            // SAFETY: the heap's first bytes are in the service view and belong to no allocation.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), self.tracked.service(), words.len()) };
        }
    }
}

impl Node {
    /// The memory of another node on this host, under the backbone `shm`: read without its help once it has said that
    /// the pages may be read.
    pub(crate) fn peer_memory<'a>(&self, shared: &'a Shared, home: NodeId) -> Option<&'a Peer> {
        if self.config.backbone.named() != Some(Backbone::Shm) {
            return None;
        }
        let views = shared.views.as_ref()?;
        let look = || {
            let (_, pid) = self.wire.member(home)?;
            let memory = PeerView::open(pid, views.tracked.pages() as usize * PAGE_BYTES).ok()?;
            let mut words = [0; 16];
            // SAFETY: the first bytes of a mapping of many pages; plain bytes that were written before any node could
            // fetch.
            unsafe { std::ptr::copy_nonoverlapping(memory.start(), words.as_mut_ptr(), words.len()) };
            let directory = views.directory.as_ref().and_then(|_| SharedDirectory::of(pid, views.tracked.pages()).ok());
            (words == stamp(home, pid, self.wire.service_port(home))).then_some(Peer { memory, directory })
        };
        views.peers.get(home.index())?.get_or_init(look).as_ref()
    }

    pub(crate) fn local_pages<'a>(&'a self, shared: &'a Shared, slot: Slot) -> LocalPages<'a> {
        LocalPages { node: self, shared, slot, answers: None, known: None }
    }

    /// A message about pages; `answers`: whose request it answers, if it is an answer.
    pub(crate) fn on_page_message(
        &self,
        (origin, answers): (Origin, Slot),
        message: Message<'_>,
        out: &mut Outbox,
    ) -> Result<Option<Vec<u8>>, Misbehaved> {
        const NO_HEAP: Misbehaved = Misbehaved("sent a message about pages, of which this node has none");
        const NO_TICKET: Misbehaved = Misbehaved("sent a request as if it were a reply");
        let shared = self.shared().filter(|s| s.views.is_some()).ok_or(NO_HEAP)?;
        let slot = origin.caller.unwrap_or(Slot::SERVICE);
        let from = origin.from.node;
        let mut state = self.local_pages(shared, slot);
        match message {
            Message::Fetch { body } => {
                serve::on_fetch(&mut state, origin.ticket.ok_or(NO_TICKET)?, body, out)?;
            }
            Message::FetchDiffs { body } => {
                kept_diffs::serve::on_fetch_diffs(&mut state, origin.ticket.ok_or(NO_TICKET)?, body, out)?;
            }
            Message::FetchBase { body } => {
                kept_diffs::serve::on_fetch_base(&mut state, origin.ticket.ok_or(NO_TICKET)?, body, out)?;
            }
            Message::KeptDiffs { body } => kept_diffs::serve::on_kept_diffs(&mut state, from, body, out)?,
            Message::Base { body } => kept_diffs::serve::on_base(&mut state, from, body, out)?,
            Message::DiffsAsked { body } => {
                multicast::serve::on_asked(&mut state, from, body, shared.bystander(), out)?;
            }
            Message::DiffsTold { body } => multicast::serve::on_told(&mut state, from, body, out)?,
            Message::Pages { body } => {
                path_counts::count(path_counts::Step::PageLogic);
                let region = shared.awaited(answers).region();
                let mut state = LocalPages { answers: Some(answers), known: region.as_deref(), ..state };
                serve::on_pages(&mut state, from, body, out)?;
            }
            Message::Push { body } => serve::on_push(&mut state, from, body)?,
            Message::PushUnused { body } => serve::on_unused(&mut state, from, body, out)?,
            Message::Diffs { body } => {
                serve::on_diffs(&mut state, from, body, out)?;
                shared.diff_waiters.lock().iter().for_each(|slot| out.wake(*slot));
            }
            Message::Region { body } => {
                let unused = self.node_pages(shared, slot, out).on_region(from, (body, origin.ticket.is_some()))?;
                if let Some(ticket) = origin.ticket {
                    let answer = unused.map_or(Message::RegionHeard, |fine| Message::Freed { fine });
                    out.send(Target::Reply(ticket), &answer);
                }
            }
            Message::Atomic { body } => serve::on_atomic(&mut state, origin.ticket.ok_or(NO_TICKET)?, body, out)?,
            Message::AtomicDone { body } => return Ok(Some(body.to_vec())),
            Message::RegionHeard => return Ok(Some(Vec::new())),
            Message::Free { page, offset, stamp, needs } => {
                let needs = wire::parse_needs(needs)
                    .map_err(|_| Misbehaved("freed memory in a message that makes no sense"))?;
                let by = FreedElsewhere { needs, stamp };
                let fine = self.node_pages(shared, slot, out).free_here((page, offset), Some(by));
                out.send(Target::Reply(origin.ticket.ok_or(NO_TICKET)?), &Message::Freed { fine });
            }
            Message::Freed { fine } => return Ok(Some(vec![u8::from(fine)])),
            _ => return Err(NO_HEAP),
        }
        Ok(None)
    }
}

impl NodePages<'_> {
    /// Node `from` tells of a region of its own; of one without bytes, that it has freed it. Where it waits for an
    /// answer to that, it asks whether it may use the place again: gives what it is answered.
    fn on_region(&mut self, from: NodeId, (body, asks): (&[u8], bool)) -> Result<Option<bool>, Misbehaved> {
        let shared = self.local.shared;
        let region = Region::parse(body).map_err(|_| Misbehaved("told of a region that makes no sense"))?;
        if !shared.allocator.lock().may_be_told(from, &region, shared.nodes) {
            return Err(Misbehaved("told of a region that it cannot have"));
        }
        if region.bytes == 0 && asks {
            return Ok(Some(shared.gives_up(region.part(), region.range(), region.cut_up)));
        }
        if region.bytes == 0 {
            // Freed by its owner: nobody uses it any more.
            if let Some(known) = shared.table.find(region.first).filter(|known| known.region.first == region.first) {
                // Its label says when, for this message may come much later.
                let now = shared.epoch.load(Ordering::Acquire);
                let then = region.label.parse().ok().filter(|epoch| now.wrapping_sub(*epoch) as i32 >= 0);
                self.drop_region(&known, then.unwrap_or(now));
            }
            return Ok(None);
        }
        shared.add(region);
        Ok(None)
    }
}

/// What is said of a write to memory that the program had declared read-only.
pub(in crate::shared) fn written_though_read_only(known: &RegionState) -> String {
    format!(
        "the program wrote to {}, which it had declared read-only; what it wrote is lost to others: write before it is \
         declared so, or do not declare it",
        known.name()
    )
}
