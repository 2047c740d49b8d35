//! A long close, in slices.
//!
//! When another node asks for locks that rest here, the service thread closes the interval, which may mean thousands of diffs. Others
//! would wait meanwhile: for pages, for other locks. So such a request waits in a queue while the service thread closes one chunk at a time
//! and looks into its socket in between, if much was written since the last close; each slice is an interval of its own. When all chunks that were active have had their turn the request
//! goes its usual way, and the close that belongs to it finds what was written since.
//!
//! A release by an application thread closes by itself, in that thread.

use super::Shared;
use crate::io::PutAside;
use crate::node::Node;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::node::close::{CloseReason, close_tables};
use comem_protocol::ids::Slot;
use comem_protocol::node::route::Origin;
use comem_protocol::outbox::Outbox;
use comem_protocol::sync::bundle;
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::message::Message;
use std::sync::atomic::Ordering;

/// Where the kernel does not say how much was written: from so many active chunks (of 2 MiB) on, a close goes in slices.
const CHUNKS_MIN: usize = 4;
/// From so many written pages on, a close is a long one.
const PAGES_MIN: u32 = 256;
/// So soon after a close, little can have been written, and to look how much would cost locks that change nodes often more than it saves.
const SOON: Span = Span::from_ms(1);

/// A close under way.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    left: Vec<PageNo>,
    /// Requests for locks, until the interval is closed.
    waiting: Vec<PutAside>,
}

impl Node {
    /// Whether a message to the service thread is put aside until the interval is closed; counts requests for pages between slices.
    pub(crate) fn puts_aside(&self, origin: Origin, message: &Message<'_>, body: &[u8]) -> bool {
        let Some(shared) = self.shared().filter(|s| s.views.is_some()) else { return false };
        let rests_unclosed =
            |lock| self.lock_room(lock).rests(lock).is_some_and(|released| released.needs_close(shared.mark()));
        let closes = match message {
            Message::LockRequest { lock, .. } | Message::LockForward { lock, .. } => rests_unclosed(*lock),
            Message::CatchUp { .. } => true,
            Message::LockWants { entries, .. } => {
                bundle::entries(entries).flatten().any(|(lock, _)| rests_unclosed(lock))
            }
            Message::Fetch { .. } if !shared.slices.lock().waiting.is_empty() => {
                self.counters(Slot::SERVICE).between_slices.add(1);
                false
            }
            _ => false,
        };
        if !closes {
            return false;
        }
        let mut slices = shared.slices.lock();
        let under_way = !slices.waiting.is_empty();
        if !under_way && !self.close_would_be_long(shared) {
            return false;
        }
        if !under_way {
            slices.left.clone_from(&shared.active.lock());
        }
        slices.waiting.push(PutAside { origin, ty: message.ty(), body: body.to_vec() });
        true
    }

    pub(super) fn close_would_be_long(&self, shared: &Shared) -> bool {
        let since = self.now() - Time(shared.last_close.load(Ordering::Relaxed));
        if since.0 < SOON.0 {
            return false;
        }
        let mut active = shared.active.lock().clone();
        active.sort_unstable();
        match shared.writes_seen(&shared.table.chunks_at(&active), |_, _| ()) {
            Some(seen) => seen.iter().map(|run| run.end - run.start).sum::<u32>() >= PAGES_MIN,
            None => active.len() >= CHUNKS_MIN,
        }
    }

    /// For the service thread: the next slice of a close under way, or what waited for its end. Whether there is more to do.
    pub(crate) fn close_slice(&self) -> bool {
        let Some(shared) = self.shared() else { return false };
        let (first, waited) = {
            let mut slices = shared.slices.lock();
            match slices.left.pop() {
                Some(first) => (first, Vec::new()),
                None if slices.waiting.is_empty() => return false,
                None => (0, std::mem::take(&mut slices.waiting)),
            }
        };
        if waited.is_empty() {
            let mut side = Outbox::new();
            let mut ledger = shared.ledger.lock();
            if ledger.may_close() {
                let mut pages = self.node_pages(shared, Slot::SERVICE, &mut side);
                close_tables(&mut pages, &mut ledger, (&[first], false), CloseReason::Else);
                self.counters(Slot::SERVICE).slices.add(1);
            }
            drop(ledger);
            self.flush(Slot::SERVICE, &mut side);
            return true;
        }
        waited.into_iter().for_each(|message| self.carry_out_late(Slot::SERVICE, message));
        false
    }
}
