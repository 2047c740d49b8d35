//! What a stats file says, read with care: a field that an older or newer version lacks is an empty one.

use crate::failure::{Failure, Outcome};
use crate::stats::SCHEMA;
use comem_protocol::coherence::pages::PageEngine;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The parts of the time: the first five are those of the application threads and add up to their lifetimes (HLRC on
/// UDP, figure 8); with the sixth, in which a thread was not there, to threads times wall time; the last is the service
/// thread's own work, beside them.
pub const PARTS: [&str; 7] = ["compute", "fetch", "lock", "barrier", "protocol", "idle", "service"];
/// How many of [`PARTS`] are the application threads'.
pub const THREAD_PARTS: usize = 6;
const IDLE: usize = 5;

/// The counters of messages and synchronisation, and their heads in tables.
pub const MESSAGE_COUNTERS: [(&str, &str); 24] = [
    ("messages_sent", "messages"),
    ("messages_received", "received"),
    ("bytes_sent", "bytes"),
    ("retransmissions", "repeated"),
    ("timeouts", "timeouts"),
    ("duplicates", "duplicates"),
    ("acks_sent", "acks"),
    ("lock_acquires", "locks"),
    ("lock_remote", "remote locks"),
    ("lock_taken", "taken locks"),
    ("lock_operations", "lock operations"),
    ("lock_waits", "lock waits"),
    ("lock_wakes", "lock wakes"),
    ("lock_turns", "turns"),
    ("lock_kept", "kept"),
    ("lock_ahead", "ahead"),
    ("line_waits", "waits to send"),
    ("barriers", "barriers"),
    ("barriers_by_words", "barriers by words"),
    ("barrier_wakes", "barrier wakes"),
    ("reductions", "reductions"),
    ("remote_reads", "remote reads"),
    ("remote_writes", "remote writes"),
    ("invalidations", "invalidations"),
];

/// The counters of shared pages, and their heads in tables.
pub const PAGE_COUNTERS: [(&str, &str); 32] = [
    ("read_faults", "read faults"),
    ("write_faults", "write faults"),
    ("signals", "signals"),
    ("page_requests", "requests"),
    ("atomics_sent", "atomics"),
    ("pages_fetched", "fetched"),
    ("pages_prefetched", "prefetched"),
    ("pages_taken", "taken"),
    ("pages_pushed", "pushed"),
    ("pages_pushed_used", "pushed, used"),
    ("twins_made", "twins"),
    ("diffs_sent", "diffs sent"),
    ("diff_bytes", "diff bytes"),
    ("diffs_applied", "applied"),
    ("bases_fetched", "bases"),
    ("diff_store_bytes", "diff store"),
    ("gc_rounds", "collections"),
    ("diffs_asked", "asked sets"),
    ("diffs_told", "told sets"),
    ("diffs_indirect", "indirect"),
    ("diffs_indirect_used", "indirect, used"),
    ("diffs_repaired", "repaired"),
    ("copysets_left", "left"),
    ("write_notices", "notices"),
    ("invalidations", "invalidated"),
    ("evictions", "evicted"),
    ("laid_aside", "laid aside"),
    ("mapped_early", "mapped early"),
    ("migrations", "migrated"),
    ("claimed", "claimed"),
    ("no_room", "no room"),
    ("home_notices", "home notices"),
];

/// The counters of memory whose accesses the program checks itself, their heads in tables, and where nodes keep them.
pub const LINE_COUNTERS: [(&str, &str); 13] = [
    ("load_misses", "loads missed"),
    ("store_misses", "stores missed"),
    ("genuine_magic", "genuine magic"),
    ("lines_ahead", "ahead"),
    ("lines_read", "read"),
    ("lines_written", "written"),
    ("upgrades", "upgrades"),
    ("dir_retries", "retries"),
    ("remote_fetch_and_sets", "fetch-and-sets"),
    ("remote_gets", "gets"),
    ("remote_puts", "puts"),
    ("magic_puts", "of MAGIC"),
    ("quiesces", "quiesces"),
];
/// So many of [`LINE_COUNTERS`] are of checks; the others are of the engine `direct`.
const CHECK_COUNTERS: usize = 4;

/// A job.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// A short name for heads: the file's.
    pub name: String,
    /// The program and its arguments.
    pub command: String,
    /// The whole job's seconds.
    pub wall_s: f64,
    /// The job's exit code.
    pub status: i64,
    /// What went wrong first.
    pub failure: Option<String>,
    /// No node took part: the program knows nothing of Comem.
    pub nobody_joined: bool,
    /// Engines, detector and backbone in one line.
    pub how: String,
    /// The job's engine for objects, as the nodes or the launcher name it.
    pub engine: String,
    /// The detectors that the nodes report, each once; empty when they do not.
    pub detector: String,
    /// The nodes, in order.
    pub nodes: Vec<Node>,
    /// Regions of shared pages, all nodes' figures added up, the dearest first.
    pub regions: Vec<Region>,
    /// How often a write was not looked at for false sharing.
    pub sharing_unseen: u64,
}

/// A node's figures.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its number.
    pub node: u64,
    /// Its host.
    pub host: String,
    /// Its application threads.
    pub threads: u64,
    /// Its lifetime in seconds.
    pub wall_s: f64,
    /// Microseconds, in the order of [`PARTS`].
    pub times_us: [u64; PARTS.len()],
    /// In the order of [`MESSAGE_COUNTERS`].
    pub messages: [u64; MESSAGE_COUNTERS.len()],
    /// In the order of [`PAGE_COUNTERS`]; `None` where the node shares no pages.
    pub pages: Option<[u64; PAGE_COUNTERS.len()]>,
    /// In the order of [`LINE_COUNTERS`].
    pub lines: [u64; LINE_COUNTERS.len()],
    /// Whether it reported at all.
    pub reported: bool,
}

/// A region of shared pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// The program's name for it.
    pub label: String,
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Its engine.
    pub engine: String,
    /// Faults in it.
    pub faults: u64,
    /// Thread-microseconds spent in faults on its pages and in fetching them again.
    pub fetch_us: u64,
    /// Pages fetched.
    pub pages_fetched: u64,
    /// Bytes of diffs sent.
    pub diff_bytes: u64,
    /// Pages invalidated.
    pub invalidations: u64,
    /// Of memory whose accesses the program checks itself: bytes of a unit; 0 for pages.
    pub unit_bytes: u64,
    /// Of such memory: checks of loads and of stores that missed.
    pub load_misses: u64,
    pub store_misses: u64,
    /// Of such memory: loads of stored values that look like those of invalid units.
    pub genuine_magic: u64,
    /// Of such memory: times that an entry was locked, and operations on other nodes' memory.
    pub retries: u64,
    pub remote_operations: u64,
    /// Pages that several nodes wrote in one interval at different bytes, by their offsets.
    pub false_sharing: BTreeMap<u64, FalseSharing>,
}

/// A page that several nodes wrote in one interval at different bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FalseSharing {
    /// In how many intervals; 0 in older files.
    pub times: u64,
    /// Which nodes.
    pub nodes: BTreeSet<u64>,
    /// The variables there, where they are known.
    pub variables: String,
}

impl Node {
    /// All of the application threads' time, in microseconds.
    pub fn threads_us(&self) -> u64 {
        sum(self.times_us[..THREAD_PARTS].iter().copied())
    }

    /// The mean of its application threads' time, in microseconds.
    pub fn of_a_thread_us(&self) -> f64 {
        self.threads_us() as f64 / self.threads.max(1) as f64
    }

    /// Its threads' time by the clock, in microseconds: threads times wall time.
    pub fn threads_wall_us(&self) -> u64 {
        (self.threads as f64 * self.wall_s * 1e6).round() as u64
    }

    /// What is in no other part was idle, to the microsecond; older files do not name it.
    fn settle_idle(&mut self) {
        let booked = sum(self.times_us[..IDLE].iter().copied());
        self.times_us[IDLE] = self.threads_wall_us().saturating_sub(booked);
    }

    /// Adds another node's figures.
    pub fn add(&mut self, other: &Node) {
        self.threads = self.threads.saturating_add(other.threads);
        self.wall_s = self.wall_s.max(other.wall_s);
        add_all(&mut self.times_us, &other.times_us);
        add_all(&mut self.messages, &other.messages);
        add_all(&mut self.lines, &other.lines);
        if let Some(pages) = &other.pages {
            add_all(self.pages.get_or_insert_default(), pages);
        }
        self.reported |= other.reported;
    }
}

/// A sum that a number from a damaged file cannot make wrap around.
pub fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn add_all(to: &mut [u64], from: &[u64]) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a = a.saturating_add(*b));
}

impl Run {
    /// Reads a file that `comem run --stats` wrote.
    ///
    /// # Errors
    /// It cannot be read, is no JSON, or is none of this schema; the sentence names the file.
    pub fn load(path: &Path) -> Outcome<Run> {
        let shown = path.display();
        let advice = "name a file that `comem run --stats FILE` wrote";
        let text =
            std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("cannot read {shown}: {e}"), advice))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|e| Failure::usage(format!("{shown} is no JSON: {e}"), advice))?;
        let name = path.file_stem().map_or_else(|| shown.to_string(), |stem| stem.to_string_lossy().into_owned());
        Run::parse(&name, &value).map_err(|why| Failure::usage(format!("{shown} is no stats file: {why}"), advice))
    }

    /// Reads the content of a stats file.
    ///
    /// # Errors
    /// A clause about what is missing.
    pub fn parse(name: &str, value: &Value) -> Result<Run, String> {
        match value["schema"].as_u64() {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => return Err(format!("its schema is {schema}, and this version reads {SCHEMA}")),
            None => return Err("it has no schema number".to_string()),
        }
        let list = value["nodes"].as_array().ok_or("it has no nodes")?;
        let nodes: Vec<Node> = list.iter().enumerate().map(|(index, node)| read_node(index, node)).collect();
        let words: Vec<&str> = value["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let longest = nodes.iter().map(|node| node.wall_s).fold(0.0, f64::max);
        Ok(Run {
            name: name.to_string(),
            command: words.join(" "),
            wall_s: value["wall_s"].as_f64().unwrap_or(longest),
            status: value["status"].as_i64().unwrap_or(0),
            failure: value["failure"].as_str().map(str::to_string),
            nobody_joined: value["nobody_joined"].as_bool().unwrap_or(false),
            how: how(value, list),
            engine: engine(value, list),
            detector: detectors(list),
            nodes,
            regions: read_regions(list),
            sharing_unseen: sum(list.iter().filter_map(|node| node["pages"]["sharing_unseen"].as_u64())),
        })
    }

    /// All nodes' figures added up.
    pub fn total(&self) -> Node {
        let mut total = Node::default();
        self.nodes.iter().for_each(|node| total.add(node));
        total
    }

    /// The counter with this head in tables, over all nodes; 0 when there is none.
    pub fn message_total(&self, head: &str) -> u64 {
        let index = MESSAGE_COUNTERS.iter().position(|(_, h)| *h == head);
        index.map_or(0, |index| self.total().messages[index])
    }

    /// What kept the job's memory coherent, for a label: the engines of its regions of pages, or the engine of its
    /// objects.
    pub fn engines(&self) -> String {
        let mut names: Vec<&str> = self.regions.iter().map(|region| region.engine.as_str()).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { self.engine.clone() } else { names.join("+") }
    }

    /// The longest life of a node's threads, in seconds: what bars of their time show.
    pub fn longest_s(&self) -> f64 {
        self.nodes.iter().map(Node::of_a_thread_us).fold(0.0, f64::max) / 1e6
    }

    /// Whether any region of shared pages is under `msi`, where each node tells of its own part in false sharing.
    pub fn has_regions_under_msi(&self) -> bool {
        self.regions.iter().any(|region| region.engine == "msi")
    }

    /// Whether there is one copy of any region's pages, so that nobody notices accesses to them.
    pub fn has_regions_of_one_copy(&self) -> bool {
        self.regions.iter().filter_map(|region| region.engine.parse().ok()).any(PageEngine::has_one_copy)
    }

    /// Whether any node's checks missed.
    pub fn has_lines(&self) -> bool {
        self.nodes.iter().any(|node| node.lines.iter().any(|n| *n > 0))
    }

    /// Whether any node shared pages.
    pub fn has_pages(&self) -> bool {
        self.nodes.iter().any(|node| node.pages.is_some_and(|pages| pages.iter().any(|n| *n > 0)))
            || !self.regions.is_empty()
    }
}

/// The engine of objects.
fn engine(file: &Value, nodes: &[Value]) -> String {
    let of_node = nodes.iter().find_map(|node| node["engine"].as_str());
    of_node.or_else(|| file["engine"].as_str()).unwrap_or_default().to_string()
}

/// What a node says it used, or else what the launcher was told.
fn how(file: &Value, nodes: &[Value]) -> String {
    let name = |field: &str| {
        let of_node = nodes.iter().find_map(|node| node[field].as_str());
        of_node.or_else(|| file[field].as_str()).unwrap_or_default().to_string()
    };
    let mut text = format!("engine {}", name("engine"));
    if !name("page_engine").is_empty() {
        text += &format!(", pages {}", name("page_engine"));
    }
    let detectors = if detectors(nodes).is_empty() { name("detector") } else { detectors(nodes) };
    if !detectors.is_empty() {
        text += &format!(", detector {detectors}");
    }
    text += &format!(", backbone {}", name("backbone"));
    // Of nodes alone: the launcher knows what was asked for, and not what came of it.
    let way = nodes.iter().find_map(|node| node["multicast"].as_str()).filter(|way| *way != "off");
    text += &way.map_or(String::new(), |way| format!(", multicast {way}"));
    if !name("tuning").is_empty() {
        text += &format!(", tuning {}", name("tuning"));
    }
    match name("one_sided").as_str() {
        "emulated" => text += " (one-sided operations emulated)",
        ucx if ucx.starts_with("ucx") => text += &format!(" (one-sided operations by {ucx})"),
        _ => {}
    }
    text
}

/// The nodes' detectors, each once, in the order of the nodes: each host has the best that works there.
fn detectors(nodes: &[Value]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in nodes.iter().filter_map(|node| node["detector"].as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" and ")
}

fn read_node(index: usize, value: &Value) -> Node {
    let number = |from: &Value, field: &str| from[field].as_u64().unwrap_or(0);
    let pages = value["pages"].as_object().map(|_| PAGE_COUNTERS.map(|(name, _)| number(&value["pages"], name)));
    let mut node = Node {
        node: value["node"].as_u64().unwrap_or(index as u64),
        host: value["host"].as_str().unwrap_or_default().to_string(),
        threads: value["threads"].as_u64().unwrap_or(u64::from(value["time_us"].is_object())),
        wall_s: value["wall_s"].as_f64().unwrap_or(0.0),
        times_us: PARTS.map(|part| number(&value["time_us"], part)),
        messages: MESSAGE_COUNTERS.map(|(name, _)| number(value, name)),
        lines: std::array::from_fn(|at| {
            let group = if at < CHECK_COUNTERS { "inline" } else { "direct" };
            number(&value[group], LINE_COUNTERS[at].0)
        }),
        pages,
        reported: value["time_us"].is_object(),
    };
    if node.reported {
        node.settle_idle();
    }
    node
}

fn read_regions(nodes: &[Value]) -> Vec<Region> {
    let mut all: BTreeMap<u64, (u8, Region)> = BTreeMap::new();
    let lists = nodes.iter().filter_map(|node| node["regions"].as_array());
    for region in lists.flatten().filter_map(Value::as_object) {
        let number = |field: &str| region.get(field).map_or(0, number_or_hex);
        let text = |field: &str| region.get(field).and_then(Value::as_str).unwrap_or_default().to_string();
        let address = number("address");
        let (named, all_nodes) = all.entry(address).or_insert_with(|| {
            let (bytes, engine, unit_bytes) = (number("bytes"), text("engine"), number("unit_bytes"));
            (0, Region { address, bytes, engine, unit_bytes, ..Region::default() })
        });
        let by = how_named(&text("named_by"));
        if by > *named {
            (*named, all_nodes.label) = (by, text("label"));
        }
        for (figure, name) in [
            (&mut all_nodes.faults, "faults"),
            (&mut all_nodes.fetch_us, "fetch_us"),
            (&mut all_nodes.pages_fetched, "pages_fetched"),
            (&mut all_nodes.diff_bytes, "diff_bytes"),
            (&mut all_nodes.invalidations, "invalidations"),
            (&mut all_nodes.load_misses, "load_misses"),
            (&mut all_nodes.store_misses, "store_misses"),
            (&mut all_nodes.genuine_magic, "genuine_magic"),
            (&mut all_nodes.retries, "retries"),
            (&mut all_nodes.remote_operations, "remote_operations"),
        ] {
            *figure = figure.saturating_add(number(name));
        }
        add_false_sharing(all_nodes, region);
    }
    let mut regions: Vec<Region> = all.into_values().map(|(_, region)| region).collect();
    regions.sort_by_key(|region| std::cmp::Reverse((region.fetch_us, region.pages_fetched, region.faults)));
    regions
}

/// Of the names that nodes have for a region the best is taken: the program's own, then where it was allocated, then
/// its place.
fn how_named(by: &str) -> u8 {
    match by {
        "page" => 1,
        "label" => 3,
        _ => 2,
    }
}

/// An address may be written as a number or as a text such as `0x7f00`.
fn number_or_hex(value: &Value) -> u64 {
    let of_text = || u64::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok();
    value.as_u64().or_else(of_text).unwrap_or(0)
}

fn add_false_sharing(to: &mut Region, region: &Map<String, Value>) {
    for page in region.get("false_sharing").and_then(Value::as_array).into_iter().flatten() {
        let offset = page["offset"].as_u64().unwrap_or(0);
        let nodes = page["nodes"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let sum = to.false_sharing.entry(offset).or_default();
        sum.nodes.extend(nodes);
        sum.times = sum.times.saturating_add(page["times"].as_u64().unwrap_or(0));
        let names: Vec<&str> = page["variables"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !names.is_empty() {
            sum.variables = names.join(" ");
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::{chart, text};
    use super::*;
    use serde_json::json;

    /// A file of two nodes that share pages.
    pub fn file() -> Value {
        let node = |node: u64, fetch: u64| {
            json!({
                "node": node, "host": "a", "threads": 2, "wall_s": 1.0, "engine": "msi", "page_engine": "hlrc",
                "detector": "uffd-async", "backbone": "udp", "messages_sent": 100 + node, "bytes_sent": 4096,
                "time_us": {"compute": 1_000_000, "fetch": fetch, "lock": 300_000, "barrier": 200_000,
                            "protocol": 500_000 - fetch, "service": 40_000},
                "pages": {"read_faults": 10, "write_faults": 3, "signals": 13, "page_requests": 7 + node},
                "regions": [
                    {"label": "grid", "address": 4096, "bytes": 8192, "engine": "hlrc", "faults": 2, "fetch_us": 5,
                     "pages_fetched": 1, "diff_bytes": 64, "invalidations": 1, "false_sharing": []},
                    {"label": "sums", "address": 65536, "bytes": 4096, "engine": "hlrc", "faults": 9, "fetch_us": 900,
                     "pages_fetched": 8, "diff_bytes": 640, "invalidations": 4,
                     "false_sharing": [{"offset": 0, "nodes": [node, 5], "times": 6, "variables": ["total", "best"]}]},
                ],
            })
        };
        json!({"schema": 1, "command": ["prog", "7"], "wall_s": 1.25, "status": 0, "failure": null,
               "nodes": [node(0, 400_000), node(1, 100_000)]})
    }

    #[test]
    fn nodes_that_know_a_region_by_different_names_tell_of_one() {
        let region = |label: &str, by: &str| {
            json!({
                "label": label, "named_by": by, "address": "0x1000", "bytes": 8192, "engine": "hlrc", "fetch_us": 10
            })
        };
        let names =
            [("region at page 1", "page"), ("grid.c:12", "allocation"), ("grid", "label"), ("grid.c:12", "allocation")];
        let nodes: Vec<Value> = names.iter().map(|(label, by)| json!({ "regions": [region(label, by)] })).collect();
        let regions = read_regions(&nodes);
        assert_eq!(regions.len(), 1);
        assert_eq!((regions[0].label.as_str(), regions[0].fetch_us), ("grid", 40));
    }

    #[test]
    fn figures_of_all_nodes_add_up() {
        let run = Run::parse("run", &file()).unwrap();
        let total = run.total();
        assert_eq!((total.threads, total.threads_us(), total.times_us[1]), (4, 4_000_000, 500_000));
        assert_eq!((total.messages[0], total.pages.unwrap()[3]), (201, 15));
        assert_eq!(run.how, "engine msi, pages hlrc, detector uffd-async, backbone udp");
        assert!(run.has_pages());
    }

    #[test]
    fn operations_that_other_nodes_carry_out_are_called_emulated() {
        let mut file = file();
        file["nodes"].as_array_mut().unwrap().iter_mut().for_each(|node| node["one_sided"] = json!("emulated"));
        let run = Run::parse("run", &file).unwrap();
        assert!(run.how.ends_with("backbone udp (one-sided operations emulated)"), "{}", run.how);
        file["nodes"].as_array_mut().unwrap().iter_mut().for_each(|node| node["one_sided"] = json!("mapped memory"));
        assert!(Run::parse("run", &file).unwrap().how.ends_with("backbone udp"));
        file["nodes"].as_array_mut().unwrap().iter_mut().for_each(|node| node["one_sided"] = json!("ucx, emulated"));
        let how = Run::parse("run", &file).unwrap().how;
        assert!(how.ends_with("backbone udp (one-sided operations by ucx, emulated)"), "{how}");
    }

    #[test]
    fn nodes_with_different_detectors_are_told_apart() {
        let mut file = file();
        file["nodes"][1]["detector"] = json!("mprotect");
        let run = Run::parse("run", &file).unwrap();
        assert_eq!(run.how, "engine msi, pages hlrc, detector uffd-async and mprotect, backbone udp");
        assert_eq!(run.detector, "uffd-async and mprotect");
    }

    #[test]
    fn what_nobody_booked_was_idle() {
        let mut file = file();
        file["nodes"][1]["threads"] = json!(3);
        let run = Run::parse("run", &file).unwrap();
        assert_eq!(run.nodes.iter().map(|node| node.times_us[IDLE]).collect::<Vec<_>>(), [0, 1_000_000]);
        assert!(run.nodes.iter().all(|node| node.threads_us() == node.threads_wall_us()));
    }

    #[test]
    fn absurd_numbers_are_as_large_as_numbers_go() {
        let mut file = file();
        for node in file["nodes"].as_array_mut().unwrap() {
            let most = json!(u64::MAX);
            for field in ["messages_sent", "threads"] {
                node[field] = most.clone();
            }
            node["time_us"] = json!({"compute": most, "fetch": most});
            node["pages"] = json!({"read_faults": most, "sharing_unseen": most});
            node["regions"] = json!([{"address": most, "faults": most, "engine": "hlrc",
                                      "false_sharing": [{"offset": 4096, "nodes": [0, 1], "times": most}]}]);
        }
        let run = Run::parse("run", &file).unwrap();
        let total = run.total();
        let figures = [total.messages[0], total.threads, total.threads_us(), run.regions[0].faults, run.sharing_unseen];
        assert_eq!(figures, [u64::MAX; 5]);
        let runs = [run.clone(), run];
        let _ = (text::single(&runs[0], 20), text::side_by_side(&runs, 20), text::csv(&runs));
        assert!(!chart::picture(&runs).contains("NaN"));
    }

    #[test]
    fn regions_come_by_cost_and_unite_the_nodes_that_shared_a_page() {
        let run = Run::parse("run", &file()).unwrap();
        let labels: Vec<&str> = run.regions.iter().map(|r| r.label.as_str()).collect();
        assert_eq!(labels, ["sums", "grid"]);
        assert_eq!((run.regions[0].faults, run.regions[0].fetch_us), (18, 1800));
        let page = FalseSharing { times: 12, nodes: BTreeSet::from([0, 1, 5]), variables: "total best".to_string() };
        assert_eq!(run.regions[0].false_sharing, BTreeMap::from([(0, page)]));
    }

    #[test]
    fn a_file_without_pages_is_a_file_too() {
        let mut old = file();
        for node in old["nodes"].as_array_mut().unwrap() {
            let node = node.as_object_mut().unwrap();
            node.retain(|field, _| !["pages", "regions", "page_engine"].contains(&field.as_str()));
        }
        let run = Run::parse("run", &old).unwrap();
        assert!(!run.has_pages() && run.regions.is_empty());
    }

    #[test]
    fn other_files_are_refused_by_what_they_lack() {
        let why = |value: Value| Run::parse("x", &value).unwrap_err();
        assert!(why(json!({"schema": 2, "nodes": []})).contains("schema is 2"));
        assert!(why(json!([1])).contains("no schema"));
        assert!(why(json!({"schema": 1})).contains("no nodes"));
    }
}
