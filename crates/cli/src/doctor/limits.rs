//! What the limits of processes (`ulimit`) and the user's own directory leave of a job.

use crate::args::page_var;
use crate::rundir;
use crate::table::bytes;
use comem::heap::{HEAP_BYTES, size_bytes};
use serde::{Deserialize, Serialize};

/// The launcher and a small node have about so many descriptors open.
const DESCRIPTORS_MIN: u64 = 64;

/// What was found. `None` is no limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of address space that a process may have.
    pub address_space: Option<u64>,
    /// Bytes that a file may have.
    pub file: Option<u64>,
    /// Descriptors that a process may have open when it begins.
    pub descriptors: Option<u64>,
    /// Bytes of the heap of shared pages: `COMEM_HEAP`, or what a job gets without.
    pub heap: u64,
    /// What is wrong with the directory where the processes of a host meet.
    pub directory: Option<String>,
}

impl Limits {
    /// Examines this process.
    pub fn here() -> Limits {
        let named = std::env::var(page_var::HEAP).ok().and_then(|text| size_bytes(&text).ok());
        let wrong = rundir::directory().err();
        Limits {
            address_space: soft_limit(libc::RLIMIT_AS),
            file: soft_limit(libc::RLIMIT_FSIZE),
            descriptors: soft_limit(libc::RLIMIT_NOFILE),
            heap: named.unwrap_or(HEAP_BYTES),
            directory: wrong.map(|failure| format!("{}; {}", failure.what, failure.advice)),
        }
    }

    /// What keeps jobs, or programs that share pages, from running.
    pub fn obstacles(&self) -> Vec<String> {
        let mut list = Vec::new();
        let heap = bytes(self.heap);
        // A node has the heap's file in two places.
        if let Some(limit) = self.address_space.filter(|limit| *limit / 2 < self.heap) {
            list.push(format!(
                "programs that share pages cannot run: a process may have {} of address space (ulimit -v), and a heap \
                 of {heap} takes twice as much; raise the limit, or choose a smaller --heap",
                bytes(limit)
            ));
        }
        if let Some(limit) = self.file.filter(|limit| *limit < self.heap) {
            list.push(format!(
                "programs that share pages cannot run: a file may have {} (ulimit -f), and the heap is a memory file \
                 of {heap}; raise the limit, or choose a smaller --heap",
                bytes(limit)
            ));
        }
        if let Some(limit) = self.descriptors.filter(|limit| *limit < DESCRIPTORS_MIN) {
            list.push(format!(
                "a process may have {limit} open files (ulimit -n), and jobs of a few nodes need {DESCRIPTORS_MIN}; \
                 raise the limit"
            ));
        }
        list.extend(self.directory.clone());
        list
    }
}

fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record is ours and outlives the call.
    unsafe { libc::getrlimit(resource, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_heap_fits_smaller_limits() {
        let limits =
            |heap: u64| Limits { address_space: Some(2 << 30), file: Some(1 << 30), heap, ..Limits::default() };
        assert_eq!(limits(1 << 30).obstacles(), [""; 0]);
        let over = limits(HEAP_BYTES).obstacles();
        assert!(over.len() == 2 && over[0].contains("2.0 GiB of address space (ulimit -v)"), "{over:?}");
        assert!(over[1].contains("1.0 GiB (ulimit -f)") && over[1].contains("16.0 TiB"), "{over:?}");
    }
}
