//! What is told of a running job. The names are those of the statistics file where both have a number.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A job, as it says it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct JobInfo {
    /// [`super::VERSION`] at its launcher.
    pub version: u32,
    /// Its number on this host: the launcher's process.
    pub number: u32,
    /// Its name: `--name`, or the program's.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The directory that it was started in.
    pub directory: String,
    /// Its nodes' hosts, by node number.
    pub hosts: Vec<String>,
    /// Application threads in each node.
    pub threads: usize,
    /// The engine of shared pages; `auto` where only another host knows it.
    pub engine: String,
}

impl JobInfo {
    /// How many nodes it has.
    pub fn nodes(&self) -> usize {
        self.hosts.len()
    }

    /// How many hosts it is on.
    pub fn host_count(&self) -> usize {
        self.hosts.iter().collect::<std::collections::BTreeSet<_>>().len()
    }
}

/// How far a job or a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not all of its nodes have met. Of a node: it has not said anything.
    #[default]
    Starting,
    /// The program runs. Of a node: as one of several.
    Running,
    /// Of a node: it has left the job, and its process goes on.
    Finished,
    /// It is being ended.
    Ending,
    /// It is over.
    Ended,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

impl State {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Finished => "finished",
            State::Ending => "ending",
            State::Ended => "ended",
            State::Unknown => "unknown",
        }
    }
}

/// A job at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// [`super::VERSION`] at its launcher.
    pub version: u32,
    /// Which of the samples of this launcher it is, from 1.
    pub number: u64,
    /// Seconds since the job began.
    pub elapsed_s: f64,
    /// How far the job is.
    pub state: State,
    /// Its nodes, in the order of their numbers.
    pub nodes: Vec<NodeSample>,
}

/// A job at one moment, with what it is: what `comem top --json` prints.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`super::VERSION`].
    pub version: u32,
    /// What it is.
    pub job: JobInfo,
    /// How it is.
    pub sample: Sample,
}

/// A node at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeSample {
    /// Its number.
    pub node: u16,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: Option<u32>,
    /// How far it is.
    pub state: State,
    /// Its counters, if it has told any.
    pub counters: Option<NodeCounters>,
    /// How old they are.
    pub age_ms: u64,
}

/// What a node has counted since it began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeCounters {
    /// Seconds since the node's program took its place.
    pub wall_s: f64,
    /// Application threads.
    pub threads: u64,
    /// Where their time went, in microseconds.
    pub time_us: TimeSplit,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Accesses to objects that needed another node to read.
    pub remote_reads: u64,
    /// The same to write.
    pub remote_writes: u64,
    /// Locks acquired.
    pub lock_acquires: u64,
    /// Barriers passed.
    pub barriers: u64,
    /// What shared pages have cost.
    pub pages: Pages,
    /// The regions that have cost most.
    pub regions: Vec<Region>,
    /// What threads wait for, and which locks they hold, in words; where that was asked for.
    pub waits: Vec<String>,
}

impl NodeCounters {
    /// Faults and remote accesses.
    pub fn faults(&self) -> u64 {
        self.pages.read_faults + self.pages.write_faults + self.remote_reads + self.remote_writes
    }
}

/// Where the time of a node's application threads went, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeSplit {
    /// In the program.
    pub compute: u64,
    /// Waiting for data.
    pub fetch: u64,
    /// Waiting for locks and flags.
    pub lock: u64,
    /// Waiting at barriers.
    pub barrier: u64,
    /// In Comem without waiting.
    pub protocol: u64,
    /// Before threads began, and after they had ended.
    pub idle: u64,
}

impl TimeSplit {
    /// The names of the parts.
    pub const NAMES: [&'static str; 6] = ["compute", "fetch", "lock", "barrier", "protocol", "idle"];

    /// The parts, in the order of their names.
    pub fn parts(&self) -> [u64; 6] {
        [self.compute, self.fetch, self.lock, self.barrier, self.protocol, self.idle]
    }
}

/// What a node's shared pages have cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pages {
    /// Page faults of loads.
    pub read_faults: u64,
    /// Page faults of stores.
    pub write_faults: u64,
    /// Pages that came from other nodes.
    pub pages_fetched: u64,
    /// Bytes that diffs changed.
    pub diff_bytes: u64,
    /// Copies that ended because others wrote.
    pub invalidations: u64,
}

/// A region of shared memory, and what it has cost a node, or all of them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Region {
    /// Its name.
    pub label: String,
    /// Where it lies.
    pub address: String,
    /// Its size.
    pub bytes: u64,
    /// What keeps its copies coherent.
    pub engine: String,
    /// Page faults.
    pub faults: u64,
    /// Microseconds of waiting for its data.
    pub fetch_us: u64,
    /// Pages that came from other nodes.
    pub pages_fetched: u64,
    /// Bytes that diffs changed.
    pub diff_bytes: u64,
    /// Copies that ended because others wrote.
    pub invalidations: u64,
    /// Pages that several nodes wrote in one interval at different bytes; where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub false_sharing: Vec<SharedPage>,
    /// Which nodes hold copies; where that was asked for and the engine keeps account of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copysets: Option<Vec<SharedPage>>,
}

/// A page, or the first of several that move together, and the nodes that have to do with it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedPage {
    /// Where it lies in its region, in bytes.
    pub offset: u64,
    /// The nodes: those that write it, or those that hold copies.
    pub nodes: Vec<u16>,
    /// In how many intervals it was shared falsely.
    pub times: u64,
    /// The variables there, where they are known.
    pub variables: Vec<String>,
}

impl Sample {
    /// The regions that have cost all nodes together most, those first that have cost more.
    pub fn regions(&self) -> Vec<Region> {
        let mut all: BTreeMap<&str, Region> = BTreeMap::new();
        let told = self.nodes.iter().filter_map(|node| node.counters.as_ref());
        for region in told.flat_map(|counters| &counters.regions) {
            let sum = all.entry(&region.address).or_insert_with(|| Region {
                faults: 0,
                fetch_us: 0,
                pages_fetched: 0,
                diff_bytes: 0,
                invalidations: 0,
                false_sharing: Vec::new(),
                copysets: None,
                ..region.clone()
            });
            sum.faults += region.faults;
            sum.fetch_us += region.fetch_us;
            sum.pages_fetched += region.pages_fetched;
            sum.diff_bytes += region.diff_bytes;
            sum.invalidations += region.invalidations;
        }
        let mut regions: Vec<Region> = all.into_values().collect();
        regions.sort_by_key(|region| std::cmp::Reverse((region.fetch_us, region.pages_fetched, region.faults)));
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_are_read_from_what_a_node_says_and_more_does_no_harm() {
        let said = json!({
            "wall_s": 1.5, "threads": 2, "messages_sent": 3, "time_us": {"compute": 5, "service": 9},
            "pages": {"read_faults": 7, "twins_made": 1}, "direct": {"remote_gets": 1},
            "regions": [{"label": "grid", "address": "0x10", "bytes": 4096, "faults": 7, "named_by": "label"}],
        });
        let counters: NodeCounters = serde_json::from_value(said).unwrap();
        assert_eq!((counters.messages_sent, counters.time_us.compute, counters.faults()), (3, 5, 7));
        assert_eq!(counters.regions[0].label, "grid");
        assert_eq!(counters.barriers, 0, "what it does not say is 0");
    }

    #[test]
    fn regions_of_all_nodes_add_up_and_the_dearest_comes_first() {
        let region = |address: &str, fetch_us| Region { address: address.into(), fetch_us, ..Region::default() };
        let node = |regions| NodeSample {
            counters: Some(NodeCounters { regions, ..NodeCounters::default() }),
            ..NodeSample::default()
        };
        let nodes = vec![node(vec![region("a", 5), region("b", 4)]), node(vec![region("b", 4)]), NodeSample::default()];
        let sample = Sample { nodes, ..Sample::default() };
        let found: Vec<(String, u64)> = sample.regions().into_iter().map(|r| (r.address, r.fetch_us)).collect();
        assert_eq!(found, [("b".to_string(), 8), ("a".to_string(), 5)]);
    }
}
