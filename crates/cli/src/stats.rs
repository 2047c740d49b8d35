//! The statistics file: one JSON object for the whole job, written after a failure too.
//!
//! `nodes` holds what each node reported; `totals` adds the numbers up, field by field, also inside nested objects.
//! The longest `wall_s` counts, and rates or texts are not added.

use crate::failure::{Failure, Outcome};
use crate::program::Program;
use crate::sys;
use crate::sys::host::HostInfo;
use crate::sys::process::Ended;
use crate::table::plain_json;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub use comem::STATS_SCHEMA as SCHEMA;

/// What is known of a node in the end.
#[derive(Clone, Debug, Default)]
pub struct NodeReport {
    /// Its host, as the user named it.
    pub host: String,
    /// Its process.
    pub pid: Option<u32>,
    /// How it ended.
    pub ended: Option<Ended>,
    /// Its counters.
    pub stats: Option<Map<String, Value>>,
}

/// What the file says of the job besides the nodes.
#[derive(Clone, Debug, Default)]
pub struct JobReport {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The settings that the launcher resolved, by their flags' names.
    pub settings: Map<String, Value>,
    /// The hosts: name given, and what they said of themselves.
    pub hosts: Vec<(String, Option<HostInfo>)>,
    /// The job's exit code.
    pub status: i32,
    /// What went wrong first.
    pub failure: Option<String>,
    /// The program ran as often as there are nodes, each time by itself.
    pub nobody_joined: bool,
}

/// When the job began, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    wall: SystemTime,
    steady: Instant,
}

impl Began {
    /// Now.
    pub fn now() -> Began {
        Began { wall: SystemTime::now(), steady: Instant::now() }
    }
}

/// The file's content.
pub fn build(began: Began, job: &JobReport, nodes: &[NodeReport]) -> Value {
    let mut totals = Map::new();
    nodes.iter().filter_map(|n| n.stats.as_ref()).for_each(|stats| add(&mut totals, stats));
    let missing: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].stats.is_none()).collect();
    let mut file = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "command": job.command,
        "started_unix_s": began.wall.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        "wall_s": began.steady.elapsed().as_secs_f64(),
        "status": job.status,
        "failure": job.failure,
        "nobody_joined": job.nobody_joined,
        "hosts": job.hosts.iter().map(host_line).collect::<Vec<_>>(),
        "nodes": nodes.iter().enumerate().map(node_line).collect::<Vec<_>>(),
        "without_stats": missing,
        "totals": totals,
    });
    if let Value::Object(fields) = &mut file {
        fields.extend(job.settings.clone());
    }
    file
}

fn host_line((name, info): &(String, Option<HostInfo>)) -> Value {
    let mut line = info.as_ref().map_or_else(|| json!({}), |info| json!(info));
    if let (Value::Object(fields), Some(info)) = (&mut line, info) {
        fields.insert("hostname".to_string(), json!(info.name));
    }
    line["name"] = json!(name);
    line
}

fn node_line((index, node): (usize, &NodeReport)) -> Value {
    let mut line = node.stats.clone().unwrap_or_default();
    line.insert("node".to_string(), json!(index));
    line.insert("host".to_string(), json!(node.host));
    line.insert("pid".to_string(), json!(node.pid));
    line.insert("status".to_string(), json!(node.ended.map(Ended::code)));
    Value::Object(line)
}

/// Adds the numbers of `from` to those of `to`.
fn add(to: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (name, value) in from {
        match value {
            Value::Number(_) if !matches!(name.as_str(), "node" | "pid" | "threads" | "schema") => {
                let sum = to.get(name).map_or_else(|| value.clone(), |old| sum(name, old, value));
                to.insert(name.clone(), sum);
            }
            Value::Object(inner) => {
                let entry = to.entry(name.clone()).or_insert_with(|| json!({}));
                if let Value::Object(totals) = entry {
                    add(totals, inner);
                }
            }
            _ => {}
        }
    }
}

fn sum(name: &str, old: &Value, new: &Value) -> Value {
    if name.starts_with("wall_") {
        let (a, b) = (old.as_f64().unwrap_or(0.0), new.as_f64().unwrap_or(0.0));
        return if a >= b { old.clone() } else { new.clone() };
    }
    match (old.as_u64(), new.as_u64()) {
        (Some(a), Some(b)) => json!(a.saturating_add(b)),
        _ => json!(old.as_f64().unwrap_or(0.0) + new.as_f64().unwrap_or(0.0)),
    }
}

fn trouble(path: &Path, error: std::io::Error) -> Failure {
    Failure::system(format!("cannot write the statistics to {}", path.display()), error)
}

/// Where the file is written before it comes to its place; `None` for a pipe, a terminal, a link, which are written as
/// they are.
fn beside(path: &Path) -> Option<PathBuf> {
    let is_plain_file = std::fs::symlink_metadata(path).map_or(true, |meta| meta.is_file());
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    is_plain_file.then(|| path.with_file_name(name))
}

/// The file of one of several nodes that write their own: `run.json` gives `run.node0.json`. What is no plain file is
/// one for all.
pub fn of_node(path: &Path, node: usize) -> PathBuf {
    comem::guest::stats_of_node(path, node)
}

/// Whether the file can be written, as far as that can be seen before the job runs.
///
/// # Errors
/// It cannot, or is the program that is to run.
pub fn check(path: &Path, program: &Program) -> Outcome<()> {
    if [&program.path, &program.hashed].into_iter().any(|file| sys::same_file(path, Path::new(file))) {
        let what = format!("--stats {} would overwrite the program", path.display());
        return Err(Failure::usage(what, "name another file"));
    }
    let names_a_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let seen = match beside(path).filter(|_| !names_a_directory) {
        Some(beside) => File::create(&beside).and_then(|_| std::fs::remove_file(&beside)),
        None if names_a_directory || path.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        None => Ok(()),
    };
    seen.map_err(|error| trouble(path, error))
}

/// Writes the file: first beside its place, then into it, so that a reader never sees half of it.
pub fn write(path: &Path, content: &Value) -> Outcome<()> {
    let mut text = plain_json(&serde_json::to_string_pretty(content).expect("a JSON value has a JSON form"));
    text.push('\n');
    let written = match beside(path) {
        Some(beside) => std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
            // Half a file is of no use, and may take the last room that there is.
            let _ = std::fs::remove_file(&beside);
        }),
        None => std::fs::write(path, text),
    };
    written.map_err(|error| trouble(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(stats: Value) -> NodeReport {
        NodeReport {
            host: "a".to_string(),
            pid: Some(5),
            ended: Some(Ended::Status(0)),
            stats: stats.as_object().cloned(),
        }
    }

    #[test]
    fn numbers_add_up_field_by_field_and_the_longest_time_counts() {
        let nodes = [
            node(json!({"messages_sent": 3, "wall_s": 1.5, "time_us": {"lock": 10, "fetch": 1}, "engine": "msi"})),
            node(json!({"messages_sent": 4, "wall_s": 0.5, "time_us": {"lock": 32}, "barriers": 2})),
        ];
        let file = build(Began::now(), &JobReport::default(), &nodes);
        let wanted = json!({"messages_sent": 7, "wall_s": 1.5, "time_us": {"lock": 42, "fetch": 1}, "barriers": 2});
        assert_eq!(file["totals"], wanted);
        assert_eq!(file["nodes"][1]["node"], 1);
        assert_eq!(file["nodes"][0]["time_us"]["lock"], 10);
    }

    #[test]
    fn a_failed_job_says_what_it_has() {
        let lost = NodeReport { host: "b".to_string(), pid: Some(6), ended: Some(Ended::Signal(9)), stats: None };
        let job = JobReport { status: 137, failure: Some("node 1 was killed".to_string()), ..JobReport::default() };
        let file = build(Began::now(), &job, &[node(json!({"barriers": 1})), lost]);
        assert_eq!((&file["status"], &file["nodes"][1]["status"]), (&json!(137), &json!(137)));
        assert_eq!(file["without_stats"], json!([1]));
        assert_eq!(file["totals"]["barriers"], 1);
        assert_eq!(file["schema"], 1);
    }

    #[test]
    fn nodes_that_write_their_own_files_have_names_of_their_own() {
        for (path, wanted) in [("a/run.json", "a/run.node3.json"), ("run", "run.node3"), ("/dev/null", "/dev/null")] {
            assert_eq!(of_node(Path::new(path), 3), Path::new(wanted));
        }
    }

    #[test]
    fn sums_do_not_wrap_around() {
        let nodes = [node(json!({"bytes_sent": u64::MAX})), node(json!({"bytes_sent": 1}))];
        assert_eq!(build(Began::now(), &JobReport::default(), &nodes)["totals"]["bytes_sent"], json!(u64::MAX));
    }
}
