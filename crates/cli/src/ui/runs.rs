//! The statistics of past runs: files in one directory, the latest first.

use crate::failure::{Failure, Outcome};
use crate::report::model::{MESSAGE_COUNTERS, Node, PAGE_COUNTERS, PARTS, Region, Run};
use serde_json::{Map, Value, json};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most runs that are shown.
const SHOWN_MAX: usize = 100;
/// Most files that are kept; older ones go when a job is started.
const KEPT_MAX: usize = 500;
/// Most bytes of a file that is read.
const FILE_MAX: u64 = 32 << 20;
/// Most falsely shared pages of a region that are told.
const PAGES_MAX: usize = 256;

/// The directory.
pub struct Runs(PathBuf);

/// A file that may be a run's.
struct Found {
    path: PathBuf,
    name: String,
    changed: SystemTime,
}

impl Runs {
    /// The directory that the user names, or the usual one.
    ///
    /// # Errors
    /// No directory is named, and there is no home.
    pub fn new(named: Option<&Path>) -> Outcome<Runs> {
        let absolute =
            |path: PathBuf| std::path::absolute(path).map_err(|e| Failure::system("the directory --runs", e));
        if let Some(named) = named {
            return absolute(named.to_path_buf()).map(Runs);
        }
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            Failure::usage("there is no directory for the statistics of runs", "set HOME, or name one with --runs DIR")
        })?;
        Ok(Runs(state.join("comem/runs")))
    }

    /// The file of a new run, and the name by which it is found again. The job's name goes into it as far as it may
    /// stand in a file's name.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new_file(&self, job: &str) -> Outcome<(String, PathBuf)> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|e| Failure::system(format!("cannot make the directory {}", self.0.display()), e))?;
        self.found().into_iter().skip(KEPT_MAX).for_each(|old| drop(std::fs::remove_file(old.path)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_millis());
        let plain: String = job.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).take(40).collect();
        let name = format!("{now}-{plain}");
        Ok((name.clone(), self.0.join(format!("{name}.json"))))
    }

    /// The files, the latest first.
    fn found(&self) -> Vec<Found> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut all: Vec<Found> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?.strip_suffix(".json")?.to_string();
                let meta = entry.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= FILE_MAX)?;
                Some(Found { path: entry.path(), name, changed: meta.modified().ok()? })
            })
            .collect();
        all.sort_by_key(|found| std::cmp::Reverse(found.changed));
        all
    }

    /// The latest runs, each in short.
    pub fn list(&self) -> Value {
        let runs = self.found().into_iter().take(SHOWN_MAX);
        let runs: Vec<Value> = runs.filter_map(|found| Some(in_short(&found, &Run::load(&found.path).ok()?))).collect();
        json!({ "directory": self.0.to_string_lossy(), "runs": runs })
    }

    /// One run in full.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn one(&self, name: &str) -> Outcome<Value> {
        let found = self.found().into_iter().find(|found| found.name == name);
        let found =
            found.ok_or_else(|| Failure::usage(format!("there is no run {name}"), "it may have been removed"))?;
        let run = Run::load(&found.path)?;
        let mut value = in_short(&found, &run);
        value["parts"] = json!(PARTS);
        value["nodes"] = run.nodes.iter().map(node).collect();
        value["totals"] = node(&run.total());
        value["regions"] = run.regions.iter().map(region).collect();
        value["sharing_unseen"] = json!(run.sharing_unseen);
        Ok(value)
    }
}

fn in_short(found: &Found, run: &Run) -> Value {
    let ended = found.changed.duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
    json!({
        "id": found.name,
        "command": run.command,
        "how": run.how,
        "engines": run.engines(),
        "wall_s": run.wall_s,
        "status": run.status,
        "failure": run.failure,
        "nobody_joined": run.nobody_joined,
        "node_count": run.nodes.len(),
        "ended_unix_s": ended,
        "times_us": run.total().times_us,
    })
}

fn named(names: impl Iterator<Item = &'static str>, counts: &[u64]) -> Value {
    Value::Object(names.map(str::to_string).zip(counts.iter().map(|count| json!(count))).collect::<Map<_, _>>())
}

fn node(node: &Node) -> Value {
    json!({
        "node": node.node,
        "host": node.host,
        "threads": node.threads,
        "wall_s": node.wall_s,
        "reported": node.reported,
        "times_us": node.times_us,
        "messages": named(MESSAGE_COUNTERS.iter().map(|(name, _)| *name), &node.messages),
        "pages": node.pages.map(|pages| named(PAGE_COUNTERS.iter().map(|(name, _)| *name), &pages)),
    })
}

fn region(region: &Region) -> Value {
    let pages = region.false_sharing.iter().take(PAGES_MAX).map(|(offset, page)| {
        json!({ "offset": offset, "times": page.times, "nodes": page.nodes, "variables": page.variables })
    });
    json!({
        "label": region.label,
        "address": format!("{:#x}", region.address),
        "bytes": region.bytes,
        "engine": region.engine,
        "faults": region.faults,
        "fetch_us": region.fetch_us,
        "pages_fetched": region.pages_fetched,
        "diff_bytes": region.diff_bytes,
        "invalidations": region.invalidations,
        "false_sharing": pages.collect::<Vec<_>>(),
    })
}
