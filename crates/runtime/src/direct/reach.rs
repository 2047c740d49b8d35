//! How a node's threads reach the memory of other nodes.

use super::ucx::Reached;
use crate::config::Config;
use comem_net::Backbone;
use std::sync::OnceLock;

/// How one-sided operations of this node go.
///
/// What UCX needs is set once, at start-up, and read without a lock.
#[derive(Debug)]
pub(crate) struct OneSidedReach {
    is_emulated: bool,
    /// The nodes' memories as UCX reaches them, where it is asked for.
    ucx: OnceLock<Reached>,
}

impl OneSidedReach {
    pub(crate) fn new(config: &Config, nodes: usize) -> OneSidedReach {
        let is_emulated = nodes > 1 && config.backbone.named() != Some(Backbone::Shm);
        OneSidedReach { is_emulated, ucx: OnceLock::new() }
    }

    /// Whether the service threads of other nodes carry out one-sided operations of this one.
    pub(crate) fn is_emulated(&self) -> bool {
        self.is_emulated
    }

    /// Whether threads of this node load and store in the memory of other nodes.
    pub(crate) fn maps_others(&self) -> bool {
        !self.is_emulated && self.ucx.get().is_none()
    }

    /// Whether this node's processor may change entries of its own memory. By UCX all changes go through the worker: an
    /// adapter's need not be atomic for the processor, and over other transports a put may store the same bytes twice.
    pub(crate) fn changes_entries(&self) -> bool {
        self.ucx.get().is_none()
    }

    #[inline]
    pub(crate) fn ucx(&self) -> Option<&Reached> {
        self.ucx.get()
    }

    pub(super) fn set_ucx(&self, reached: Reached) {
        let _ = self.ucx.set(reached);
    }

    /// How threads reach the memory of other nodes, as people are told.
    pub(crate) fn in_words(&self) -> &'static str {
        match self.ucx.get() {
            Some(_) => comem_net::ucx::in_words(),
            None if self.is_emulated => "emulated",
            None => "mapped memory",
        }
    }
}
