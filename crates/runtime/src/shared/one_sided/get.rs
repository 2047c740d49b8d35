//! Pages copied out of their home's memory by the node that wants them, without asking: a get, where nodes share a
//! host.
//!
//! A fetch that is asked for is a round trip, and where the home's threads compute, two wake-ups as well. Under `shm`
//! the home's memory is mapped here anyway; what remains is to know that the home has what is needed, and that it knows
//! of the copy. Both stand in the home's table ([`SharedDirectory`](comem_memory::pages::SharedDirectory); decision
//! 0014). What is not offered, or not up to date, is asked for. In which order all that happens,
//! [`Fetching`](comem_protocol::coherence::pages::node::fault::Fetching) says.

use crate::shared::Peer;
use comem_protocol::coherence::pages::node::fault::HomeMemory;
use comem_protocol::coherence::pages::wire::RequiredDiff;
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo};
use std::ops::Range;

impl Peer {
    /// Whether all these diffs are in the node's memory.
    pub(in crate::shared) fn has_applied(&self, needs: &[RequiredDiff]) -> bool {
        let Some(directory) = &self.directory else { return false };
        needs.iter().all(|need| directory.diffs_in(need.writer.0) >= need.serial)
    }

    /// The bytes of these pages, if the node's memory has them.
    pub(in crate::shared) fn bytes(&self, pages: &Range<PageNo>) -> Option<&'static [u8]> {
        let (start, len) = (pages.start as usize * PAGE_BYTES, pages.len() * PAGE_BYTES);
        if start + len > self.memory.bytes() {
            return None;
        }
        // SAFETY: within the other node's memory, which stays mapped for good; what it writes there meanwhile is noted
        // there, and of words that are being written any mixture of old and new bytes will do.
        Some(unsafe { std::slice::from_raw_parts(self.memory.start().add(start), len) })
    }
}

impl HomeMemory for &Peer {
    fn has_applied(&mut self, needs: &[RequiredDiff]) -> bool {
        Peer::has_applied(self, needs)
    }

    fn mark(&mut self, unit: PageNo) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.take(unit))
    }

    fn with_bytes<R>(&mut self, pages: &Range<PageNo>, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.bytes(pages).map(f)
    }
}
