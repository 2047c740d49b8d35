//! The lines memory of another process of this user on this host.

use super::{Extent, LinesMemory};
use crate::pages::peer::memory_file_of;
use crate::pages::sys::{self, View};
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;

/// The kind of memory file that holds a node's lines memory.
pub(super) const KIND: &str = "lines";

/// Another node's lines memory, readable and writable.
#[derive(Debug)]
pub struct PeerLines {
    memory: LinesMemory,
}

impl PeerLines {
    /// Finds and maps the lines memory of process `pid`, which has the same extent as this node's.
    ///
    /// # Errors
    /// When there is none of this size, or the system does not let this process write to it (another user, another
    /// container), or there is no room for the addresses.
    pub fn open(pid: u32, extent: Extent) -> io::Result<PeerLines> {
        let bytes = extent.file_bytes();
        let file = memory_file_of(pid, KIND, bytes, true)?;
        let view = View::new(None, bytes, sys::BOTH, Some(file.as_fd()))?;
        Ok(PeerLines { memory: LinesMemory::new(extent, view) })
    }
}

impl Deref for PeerLines {
    type Target = LinesMemory;

    fn deref(&self) -> &LinesMemory {
        &self.memory
    }
}
