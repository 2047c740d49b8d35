//! Pages sent to the nodes that would ask for them, and what came so to this one
//! ([`push`](comem_protocol::coherence::pages::push)): over networks, where pages cannot be copied out of their home's
//! memory without asking.

use crate::config::Config;
use crate::shared::Shared;
use crate::thread::Thread;
use comem_net::{Backbone, Wait};
use comem_protocol::coherence::pages::push::PushedPages;
use comem_protocol::coherence::pages::{PageNo, serve};
use comem_protocol::ids::{NodeId, Slot};
use std::ops::Range;
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

    /// Takes what came unasked of these pages, which are whole units in state `Fetching`; gives what must be asked for
    /// too.
    pub(in crate::shared) fn pick(
        &self,
        shared: &Shared,
        home: NodeId,
        runs: Vec<Range<PageNo>>,
    ) -> (Vec<PushedPages>, Vec<Range<PageNo>>) {
        if runs.is_empty() {
            return (Vec::new(), runs);
        }
        serve::pick(&mut self.home().local_pages(shared, self.slot()), home, runs)
    }

    /// Installs what was pushed.
    pub(in crate::shared) fn install_pushed(&self, shared: &Shared, pushed: &[PushedPages]) {
        if !pushed.is_empty() {
            let pages = self
                .stepping(|out| serve::install_pushed(&mut self.home().local_pages(shared, self.slot()), pushed, out));
            self.home().life.note_progress();
            self.counters().pages_pushed_used.add(pages);
        }
    }
}
