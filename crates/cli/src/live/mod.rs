//! Running jobs as others see them: who runs, what it counts, and how it is ended.
//!
//! | module | |
//! |---|---|
//! | [`registry`] | where a job says that it is there, and where others find it |
//! | [`sample`] | what is told of a job: one versioned form, for terminals, files and pages alike |
//! | [`watchers`] | the launcher's end of the socket: whoever watches, and whoever wants the job to end |
//! | [`client`] | the other end |
//!
//! Both ends send lines of JSON over a Unix socket that the job's user alone can reach:
//!
//! | whoever connects → launcher | the answer |
//! |---|---|
//! | nothing yet | [`FromJob::Hello`], at once |
//! | [`ToJob::Watch`] | a [`FromJob::Sample`] at once, and others after each interval |
//! | [`ToJob::Kill`] | [`FromJob::Ending`]: the job ends as after Ctrl-C |
//! | | [`FromJob::Ended`], when the job is over |
//!
//! Nodes are asked for their counters while somebody watches, and at no other time: a job that nobody watches sends
//! nothing, and no thread of it wakes. A watcher that does not read misses samples; the job never waits for one.

pub mod client;
pub mod registry;
pub mod sample;
pub mod watchers;

use sample::{JobInfo, Sample, State};
use serde::{Deserialize, Serialize};

/// The version of this protocol and of its structures. It grows when a field changes its meaning or goes.
pub const VERSION: u32 = 1;

/// What somebody tells the launcher of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToJob {
    /// Send samples.
    Watch {
        /// The time between two.
        every_ms: u64,
        /// How many; without a number, until the job ends.
        #[serde(default)]
        count: Option<u64>,
        /// With what each thread waits for.
        #[serde(default)]
        waits: bool,
        /// With the pages of hot regions that are shared falsely, and who holds copies, where nodes know.
        #[serde(default)]
        pages: bool,
    },
    /// End the job.
    Kill,
    /// A type that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What the launcher of a job tells whoever has connected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromJob {
    /// The job, first of all.
    Hello {
        /// [`VERSION`] at the launcher.
        version: u32,
        /// What it is.
        job: JobInfo,
        /// How far it is.
        state: State,
    },
    /// What it has counted.
    Sample(Box<Sample>),
    /// It is being ended.
    Ending {
        /// It was already, before this was asked for.
        already: bool,
    },
    /// It is over.
    Ended {
        /// Its exit code.
        status: i32,
    },
    /// The launcher does not serve this one.
    Refused {
        /// Why.
        what: String,
    },
    /// A type that this version does not know.
    #[serde(other)]
    Unknown,
}
