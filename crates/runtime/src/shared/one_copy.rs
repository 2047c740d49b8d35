//! Memory of which there is one copy (the engine `hardware`): all nodes of a host map one file, and the processors keep
//! it coherent.
//!
//! Nothing of it is fetched, noticed or told. What is left is to know regions: their pages are open on a node from the
//! moment when it hears of them until it frees them.

use crate::error::Error;
use crate::node::Node;
use crate::shared::Shared;
use crate::shared::consistency::serve::written_though_read_only;
use crate::shared::fault::{tell_no_memory, tell_unmapped};
use crate::shared::heap::table::RegionState;
use comem_memory::pages::OneCopy;
use comem_memory::pages::fault::{Access, Fault, Verdict};
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::coherence::pages::region::{Part, Region};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Shared {
    /// The memory of which there is one copy, and where it has these pages; `None` for others.
    pub(in crate::shared) fn one_copy(&self, pages: &Range<PageNo>) -> Option<(&OneCopy, Range<PageNo>)> {
        let memory = self.views.as_ref()?.one_copy.as_ref()?;
        let part = self.parts.pages(Part::OneCopy);
        if !part.contains(&u64::from(pages.start)) {
            return None;
        }
        let from = part.start as PageNo;
        Some((memory, pages.start - from..pages.end - from))
    }

    /// A region has become known here: its pages may be used, if there is one copy of them.
    pub(in crate::shared) fn open_one_copy(&self, region: &Region) {
        if let Some((memory, pages)) = self.one_copy(&region.range()) {
            memory.open(&pages);
        }
    }

    /// A region with one copy was declared read-only here.
    pub(crate) fn freeze_one_copy(&self, region: &Region) {
        if let Some((memory, pages)) = self.one_copy(&region.range()) {
            memory.freeze(&pages);
        }
    }

    /// A region with one copy was freed here. Its memory goes back when nobody uses it any more: when its owner frees
    /// it, or the last of all nodes that have allocated it together.
    pub(in crate::shared) fn free_one_copy(&self, region: &Region) {
        let Some((memory, pages)) = self.one_copy(&region.range()) else { return };
        memory.close(&pages);
        let is_last = match region.owner {
            Some(owner) => owner == self.me,
            None => memory.is_last_to_free(pages.start, self.nodes),
        };
        if is_last {
            self.discard_one_copy(&region.range());
        }
    }

    /// Gives the memory of pages back, of which no node uses anything.
    pub(in crate::shared) fn discard_one_copy(&self, pages: &Range<PageNo>) {
        let Some((memory, pages)) = self.one_copy(pages) else { return };
        if let Err(error) = memory.discard(&pages) {
            crate::error::say(format_args!("comem: cannot give freed memory back: {error}; the node ends"));
            std::process::abort();
        }
    }

    /// An access to memory of which there is one copy raised a signal; `None` where the address is in other memory.
    pub(in crate::shared) fn one_copy_fault(&self, node: &Node, fault: &Fault, page: PageNo) -> Option<Verdict> {
        let (memory, pages) = self.one_copy(&(page..page + 1))?;
        let Some(known) = self.table.find(page).filter(|known| !known.is_freed()) else {
            self.say_nobodys(node, fault.address, page, fault.access);
            return Some(Verdict::NotOurs);
        };
        if fault.signal == libc::SIGBUS {
            tell_no_memory(Some(fault.address));
            std::process::abort();
        }
        if fault.access == Access::Write && is_read_only(&known) {
            let error = Error::Frozen(written_though_read_only(&known));
            return match crate::host::host() {
                Some(host) => Some(self.go_on_alone(node, host, &error)),
                None => node.end_for(&error),
            };
        }
        if !memory.is_mapped(&pages) {
            tell_unmapped(fault.address);
            return Some(Verdict::NotOurs);
        }
        // The region is just becoming known to another thread.
        self.open_one_copy(&known.region);
        Some(Verdict::Retry)
    }
}

fn is_read_only(known: &RegionState) -> bool {
    known.read_only.load(Ordering::Acquire)
}
