//! The program that a node runs, and what earlier runs of it arrived at.

use crate::config::Config;
use crate::control::Job;
use crate::error::{Error, Result};
use comem_protocol::coherence::pages::multicast::history::{History, Identity};
use std::path::PathBuf;
use std::sync::Arc;

/// The file whose contents must be the same on all nodes, and their hash.
pub(super) fn file(config: &Config) -> Result<(PathBuf, [u8; 32])> {
    let path = match &config.program {
        Some(path) => path.clone().into(),
        None => std::env::current_exe().map_err(Error::system("cannot find this program's file"))?,
    };
    let contents = std::fs::read(&path).map_err(Error::system(format!("cannot read {}", path.display())))?;
    Ok((path, hash(&contents)))
}

/// The hash that all nodes must agree on: of the program's contents and Comem's version.
pub(super) fn hash(contents: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.update(contents);
    *hasher.finalize().as_bytes()
}

/// What the launcher has told of earlier runs, for this version of the program; `None` where it keeps no history. The
/// launcher has read it with care. What makes no sense here makes none on any node, and counts as nothing.
pub(super) fn history(job: Option<&Job>, config: &Config) -> Result<Option<Arc<History>>> {
    let Some(text) = job.and_then(|job| job.history.as_ref()) else { return Ok(None) };
    let (nodes, threads) = (config.nodes as u16, config.threads as u16);
    let (_, program) = file(config)?;
    let identity = Identity { program, nodes, threads, engine: config.page_engine };
    let history = History::decode(text.as_bytes(), &identity).unwrap_or_else(|_| History::new(identity));
    Ok(Some(Arc::new(history.for_program(program))))
}
