//! What a host needs to know to start its nodes, and what it reports about them. Both travel as JSON when the host
//! is another one.

use crate::control::FromNode;
use crate::debug::Debugger;
use crate::failure::Failure;
use crate::sys::host::HostInfo;
use crate::sys::process::Ended;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Everything one host needs to start its nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostSpec {
    /// Comem's version at the launcher.
    pub version: String,
    /// The host's name as the user gave it.
    pub host: String,
    /// The job's number, the same on all hosts.
    pub job: u64,
    /// The job's program number, which no other job may use on the host.
    pub prog_id: u16,
    /// Application threads in each node, for OMP_NUM_THREADS where nobody sets it.
    pub threads: usize,
    /// The program's path.
    pub program: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// The file whose contents must agree: the program, or the script it runs.
    pub hashed: OsString,
    /// The working directory.
    pub cwd: OsString,
    /// Variables of all nodes.
    pub env: Vec<(OsString, OsString)>,
    /// The host's nodes.
    pub nodes: Vec<NodeSpec>,
    /// Where node zero's standard input comes from, when node zero is here.
    pub stdin: StdinFrom,
    /// What is added to the nodes' niceness.
    #[serde(default)]
    pub nice: i32,
    /// The hashed file's bytes follow, and are to be used instead of the path.
    pub staged: bool,
    /// Milliseconds for which nothing may come from the launcher, which speaks several times in that while; 0: any
    /// time.
    pub patience_ms: u64,
}

/// One node of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its number.
    pub node: u16,
    /// Variables of this node alone.
    pub env: Vec<(OsString, OsString)>,
    /// What starts the program in its place.
    #[serde(default)]
    pub debugger: Option<Debugger>,
    /// The cores that it runs on, and no others.
    #[serde(default)]
    pub cores: Option<Vec<usize>>,
}

/// Where node zero's standard input comes from. The other nodes have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinFrom {
    /// Nowhere.
    Nothing,
    /// The launcher's own, handed down.
    Inherited,
    /// A pipe that the launcher fills.
    Pipe,
}

/// One of a node's two outputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a host reports.
#[derive(Debug)]
pub enum Event {
    /// The host is there.
    Hello(HostInfo),
    /// A node runs.
    Started {
        /// Its number.
        node: u16,
        /// Its process.
        pid: u32,
    },
    /// A node wrote something; no bytes mean that nothing more will come.
    Output {
        /// Its number.
        node: u16,
        /// Where it wrote.
        stream: Stream,
        /// What it wrote.
        bytes: Vec<u8>,
    },
    /// A node told us something.
    Control {
        /// Its number.
        node: u16,
        /// What it said.
        message: FromNode,
    },
    /// A node took so many bytes of its standard input.
    StdinTaken {
        /// How many.
        count: usize,
    },
    /// A node's process ended.
    Ended {
        /// Its number.
        node: u16,
        /// How.
        ended: Ended,
    },
    /// The host cannot start its nodes, or was lost.
    Lost(Failure),
    /// Something the user should read, such as what ssh had to say.
    Note(String),
}
