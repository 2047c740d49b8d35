//! Pages sent to the nodes that would ask for them, and what came so to this one
//! ([`push`](comem_protocol::coherence::pages::push)): over networks, where pages cannot be copied out of their home's
//! memory without asking.

use crate::config::Config;
use crate::thread::Thread;
use comem_net::{Backbone, Wait};
use comem_protocol::ids::Slot;
use std::time::Duration;

impl Config {
    /// Whether this job's homes send pages unasked: under `shm` they are taken.
    pub(in crate::shared) fn sends_unasked(&self) -> bool {
        self.prefetch && self.backbone.named() != Some(Backbone::Shm)
    }
}

impl Thread {
    /// The barrier is open. What came for it lies in a socket that nobody waits in, or in that of this node's first
    /// thread, which need not have looked there since: others may have come long before, and what they told may have
    /// come to the service thread.
    pub(in crate::shared) fn look_for_pushed(&self) {
        let node = self.home();
        node.look_at_told(self.slot());
        if !node.config.sends_unasked() {
            return;
        }
        let first = Slot::thread(0);
        let attended = || self.slot() != first && node.slots[first].waiter.in_socket();
        let at = match node.wire.own_deferred_socket() {
            Some(tray) => tray,
            None if attended() => return,
            None => first,
        };
        for _ in 0..node.config.tuning.wait.push_looks_max {
            if node.receive(at, self.slot(), Some(Duration::ZERO), Wait::Block) == 0 {
                return;
            }
        }
    }
}
