//! A guest in somebody else's job: processes that MPI, torchrun, Kubernetes, a notebook or anything else has started
//! become nodes of one job of Comem by a unique id and a rendezvous at the address in it.
//!
//! | module | what |
//! |---|---|
//! | [`orders`] | what the program asks for: an id, a rank, settings; and what the environment says |
//! | [`listener`] | the thread that gathers the processes, in the one that made the id |
//! | [`launchers`], [`pmix`] | launchers whose processes meet without an id that anybody hands on |
//! | [`attendance`] | a process's way to the rendezvous, and what it is told there |
//!
//! Who is which node is decided by [`comem_protocol::node::rendezvous`]. What follows is the start-up of any job.

pub(crate) mod attendance;
mod launchers;
mod listener;
pub(crate) mod orders;
mod pmix;

pub use orders::Builder;

use self::launchers::Meeting;
use crate::error::{Error, Result};
use crate::keys;
use comem_protocol::node::rendezvous;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What the processes of one job have in common before they know each other: one process makes it, and hands it to the
/// others by any means.
///
/// Its text (`Display`, `FromStr`) has less than 128 bytes, for files and environments. Whoever has it can join the
/// job: it is a secret. An id serves one job.
///
/// ```no_run
/// let id = comem::UniqueId::new()?;
/// std::fs::write("id", id.to_string()).unwrap();
/// // In every process, this one too:
/// let id: comem::UniqueId = std::fs::read_to_string("id").unwrap().parse()?;
/// let comem = comem::Comem::builder().unique_id(id).processes(4).start()?;
/// # Ok::<(), comem::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniqueId(pub(crate) rendezvous::UniqueId);

impl UniqueId {
    /// Makes an id. From now on this process gathers the others: it must live until the job has started, and need not
    /// be part of it. It listens at its host's address on the network that `COMEM_IFACE` names, else on the one that
    /// leads to other hosts, and where there is none at the loopback.
    ///
    /// # Errors
    /// The process cannot listen.
    pub fn new() -> Result<UniqueId> {
        listener::listen(keys::random()).map(UniqueId)
    }
}

/// A launcher other than Slurm and MPI, whose processes meet when they start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfLauncher {
    /// This process's number.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// What tells the job from others of the launcher's.
    pub job: String,
}

/// What torchrun or Kubernetes says of this process, by variables that `read` looks up; `None` where none has started
/// several processes.
///
/// # Errors
/// The variables contradict each other.
pub fn of_launcher(read: &dyn Fn(&str) -> Option<String>) -> Result<Option<OfLauncher>> {
    Ok(match launchers::seen(read)? {
        Some(launchers::Launched::At(Meeting { rank, size, job, .. })) => Some(OfLauncher { rank, size, job }),
        Some(launchers::Launched::Pmix) | None => None,
    })
}

/// The file of one of several nodes that write their own counters, since no launcher adds them up: `run.json` gives
/// `run.node0.json`. What is there and no plain file is one for all.
pub fn stats_of_node(path: &Path, node: usize) -> PathBuf {
    if path.symlink_metadata().is_ok_and(|meta| !meta.is_file()) {
        return path.to_path_buf();
    }
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!(".node{node}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<UniqueId> {
        text.parse().map(UniqueId).map_err(|error: rendezvous::IdError| Error::Start(error.to_string()))
    }
}
