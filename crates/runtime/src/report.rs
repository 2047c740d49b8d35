//! What a node says about itself: its statistics at the end, and where its threads wait when nothing moves.

use crate::counters::summary;
use crate::error::{Error, Result};
use crate::node::Node;
use serde_json::{Value, json};

/// The version of the stats file's form.
pub const STATS_SCHEMA: u32 = 1;

/// This node's statistics. `failure` says why the node ended, if it did not come to its natural end.
pub(crate) fn stats(node: &Node, failure: Option<&Error>) -> Value {
    node.collect_link_counters();
    let wall = (node.now() - node.wire.started()).0;
    let mut value = summary(node.seats.iter().map(|s| &s.counters), wall);
    let (host, pid) = node.wire.member(node.me()).unwrap_or_default();
    value["node"] = json!(node.me().0);
    value["host"] = json!(host);
    value["pid"] = json!(pid);
    value["threads"] = json!(node.threads());
    value["engine"] = json!(node.config.engine.name());
    value["backbone"] = json!("udp");
    value["detector"] = json!("explicit");
    value["auth"] = json!(node.wire.authenticated());
    value["clock"] = json!(if node.clock.cycles_per_second().is_some() { "cycle counter" } else { "system" });
    if let Some(faults) = &node.config.faults {
        value["faults"] = json!(faults.to_string());
    }
    if let Some(failure) = failure {
        value["failure"] = json!(failure.to_string());
    }
    value
}

/// Writes the stats file of a job without a launcher.
pub(crate) fn write_file(node: &Node, path: &str, stats: Value) -> Result<()> {
    let totals = stats.clone();
    let file = json!({
        "schema": STATS_SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "command": std::env::args().collect::<Vec<_>>(),
        "kernel": kernel(),
        "engine": node.config.engine.name(),
        "backbone": "udp",
        "detector": "explicit",
        "nodes": [stats],
        "totals": totals,
    });
    let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
    std::fs::write(path, text).map_err(Error::system(format!("cannot write statistics to {path}")))
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string()
}

/// Says on standard error where this node's threads wait.
pub(crate) fn print_waits(node: &Node, why: &str) {
    let lines = node.where_threads_wait();
    let name = node.name_of(node.me());
    if lines.is_empty() {
        eprintln!("comem: {name}: {why}: no thread waits in Comem");
    } else {
        eprintln!("comem: {name}: {why}: {}", lines.join("; "));
    }
}
