//! Memory whose accesses are noticed page by page.
//!
//! One memory file is mapped twice. Programs use the *application view*, at the same address on every node, where
//! absent permission means a fault; the runtime uses the *service view*, where nothing ever faults and nothing is
//! noted. A page of the application view is in one of three states: *unmapped* (every access faults), *readable* (a
//! write is noted or faults), *writable*. Three mechanisms implement that:
//!
//! | detector | a fault | a first write to a readable page | kernel |
//! |---|---|---|---|
//! | `uffd-async` | SIGBUS from userfaultfd | noted by the kernel, found by a scan of the page table | about 6.7 |
//! | `uffd` | SIGBUS from userfaultfd | SIGBUS | about 6.4 |
//! | `mprotect` | SIGSEGV | SIGSEGV | any |
//!
//! Under `uffd-async` one call forbids stores to many pages ([`Arena::forbid_writes`]): then a store to any of them is
//! SIGSEGV.
//!
//! Which of them a host can have is found by using them ([`Detector::probe`]), since containers forbid what
//! kernels can do. [`Arena`] is the memory, [`fault`] the signal handler.

mod arena;
mod arrival_table;
pub mod fault;
mod futex;
mod lock_table;
mod one_copy;
pub(crate) mod peer;
mod probe;
mod restorer;
mod resume;
mod shared_directory;
mod signal_chain;
mod stack;
pub(crate) mod sys;
mod window;
mod written;

pub use arena::{Arena, TooManyRanges, map_count_limit};
pub use arrival_table::ArrivalTable;
pub use lock_table::LockTable;
pub use one_copy::{OneCopy, OneCopyFile};
pub use peer::PeerView;
pub use shared_directory::{SharedDirectory, TOKEN_NOTICES_MAX};

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// A page's number within its arena.
pub type PageNo = u32;

/// How accesses are noticed on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detector {
    /// userfaultfd with SIGBUS; the kernel notes writes (`UFFD_FEATURE_WP_ASYNC`) and `PAGEMAP_SCAN` finds them.
    Async,
    /// userfaultfd with SIGBUS; first writes fault.
    Handled,
    /// `mprotect` with SIGSEGV; first writes fault.
    Mprotect,
}

impl Detector {
    /// All of them, the best first.
    pub const ALL: [Detector; 3] = [Detector::Async, Detector::Handled, Detector::Mprotect];

    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Detector::Async => "uffd-async",
            Detector::Handled => "uffd",
            Detector::Mprotect => "mprotect",
        }
    }

    /// Tries the mechanism on a few pages of its own, by using it (never by the kernel's version).
    ///
    /// # Errors
    /// The text says what the system refused.
    pub fn probe(self) -> Result<(), String> {
        probe::probe(self)
    }

    /// The best that works, with the reasons why better ones do not. Should nothing work, `mprotect` is returned and is
    /// among the reasons.
    pub fn best() -> (Detector, Vec<(Detector, String)>) {
        let mut reasons = Vec::new();
        for detector in Detector::ALL {
            match detector.probe() {
                Ok(()) => return (detector, reasons),
                Err(reason) => reasons.push((detector, reason)),
            }
        }
        (Detector::Mprotect, reasons)
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Detector {
    type Err = String;

    fn from_str(name: &str) -> Result<Detector, String> {
        Detector::ALL.into_iter().find(|detector| detector.name() == name).ok_or_else(|| {
            let names = Detector::ALL.map(Detector::name).join(", ");
            format!("there is no detector '{name}'; choose one of {names}")
        })
    }
}

/// Whether writes are to be found afterwards or announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tracking {
    /// Writes to a readable page are noted by the kernel where the detector can do that, else they fault.
    Tracked,
    /// A write to a readable page always faults.
    Guarded,
}

/// Maps private zeros over a range of addresses, whole pages, and keeps them for good.
///
/// # Safety
/// Nobody needs what is mapped there.
///
/// # Errors
/// What the system refused.
pub unsafe fn map_zeros(range: Range<usize>) -> std::io::Result<()> {
    // SAFETY: by this function's contract.
    let view = unsafe { sys::View::over(range.start, range.len(), sys::BOTH, None, false) }?;
    std::mem::forget(view);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detectors_are_found_by_name_and_a_wrong_name_lists_them() {
        for detector in Detector::ALL {
            assert_eq!(detector.to_string().parse(), Ok(detector));
        }
        let error = "sigsegv".parse::<Detector>().unwrap_err();
        assert!(error.contains("'sigsegv'") && error.contains("uffd-async, uffd, mprotect"), "{error}");
    }

    #[test]
    fn the_best_detector_works_and_each_better_one_has_a_reason() {
        let (best, reasons) = Detector::best();
        assert_eq!(best.probe(), Ok(()));
        let better: Vec<_> = Detector::ALL.into_iter().take_while(|detector| *detector != best).collect();
        assert_eq!(reasons.iter().map(|(detector, _)| *detector).collect::<Vec<_>>(), better);
    }
}
