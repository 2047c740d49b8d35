//! Reads the file that `comem run --stats` writes: the totals over all nodes, and what single nodes count.

use serde_json::Value;
use std::path::Path;

/// The counters of a run, summed over its nodes, as far as the demonstration and the benchmarks need them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Messages sent: requests, replies, notices; neither acknowledgements nor repetitions.
    pub messages: u64,
    /// Bytes of UDP payload sent, everything included.
    pub bytes: u64,
    /// Datagrams sent again.
    pub retransmissions: u64,
    /// Locks acquired with the help of another node.
    pub lock_remote: u64,
    /// Microseconds of the application threads by what they did.
    pub time: Times,
}

/// Where the application threads' time went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// In the program itself.
    pub compute: f64,
    /// In Comem without waiting.
    pub protocol: f64,
    /// Waiting for data.
    pub fetch: f64,
    /// Waiting for locks and flags.
    pub lock: f64,
    /// Waiting at barriers.
    pub barrier: f64,
}

impl Times {
    /// All of it.
    pub fn sum(&self) -> f64 {
        self.compute + self.protocol + self.waiting()
    }

    /// Waiting for anything.
    pub fn waiting(&self) -> f64 {
        self.fetch + self.lock + self.barrier
    }

    /// The share of waiting, 0 to 1.
    pub fn waiting_share(&self) -> f64 {
        if self.sum() > 0.0 { self.waiting() / self.sum() } else { 0.0 }
    }
}

/// A stats file as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats(Value);

impl Stats {
    /// Reads a stats file.
    ///
    /// # Errors
    /// A sentence about a file that is missing or is no JSON.
    pub fn load(path: &Path) -> Result<Stats, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        serde_json::from_str(&text).map(Stats).map_err(|e| format!("{} is no JSON: {e}", path.display()))
    }

    /// The totals over all nodes.
    ///
    /// # Errors
    /// A sentence that names a counter that is missing.
    pub fn totals(&self) -> Result<Totals, String> {
        Totals::parse(&self.0).map_err(|name| format!("the stats file lacks the counter totals.{name}"))
    }

    /// A counter summed over all nodes, by its place in the file: `pages/page_requests`.
    ///
    /// # Errors
    /// A sentence that names a counter that is missing.
    pub fn total(&self, name: &str) -> Result<u64, String> {
        self.at(&format!("/totals/{name}"))
    }

    /// A counter of each node.
    ///
    /// # Errors
    /// A sentence that names a counter that is missing.
    pub fn each_node(&self, name: &str) -> Result<Vec<u64>, String> {
        let nodes = self.0["nodes"].as_array().map_or(0, Vec::len);
        (0..nodes).map(|node| self.at(&format!("/nodes/{node}/{name}"))).collect()
    }

    fn at(&self, place: &str) -> Result<u64, String> {
        let found = self.0.pointer(place).and_then(Value::as_u64);
        found.ok_or_else(|| format!("the stats file lacks the counter {place}"))
    }
}

impl Totals {
    /// Reads the counters from a stats file's JSON; the error is the name of a counter that is missing.
    fn parse(value: &Value) -> Result<Totals, &'static str> {
        let totals = &value["totals"];
        let count = |name: &'static str| totals[name].as_u64().ok_or(name);
        let time = |name: &'static str| totals["time_us"][name].as_f64().ok_or(name);
        Ok(Totals {
            messages: count("messages_sent")?,
            bytes: count("bytes_sent")?,
            retransmissions: count("retransmissions")?,
            lock_remote: count("lock_remote")?,
            time: Times {
                compute: time("compute")?,
                protocol: time("protocol")?,
                fetch: time("fetch")?,
                lock: time("lock")?,
                barrier: time("barrier")?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file() -> Value {
        json!({"totals": {
            "messages_sent": 12, "bytes_sent": 3456, "retransmissions": 1, "lock_remote": 2,
            "time_us": {"compute": 60, "protocol": 10, "fetch": 20, "lock": 3, "barrier": 7, "service": 5},
        }})
    }

    #[test]
    fn the_waiting_share_is_of_the_application_threads_time() {
        let totals = Totals::parse(&file()).unwrap();
        assert_eq!((totals.messages, totals.bytes), (12, 3456));
        assert!((totals.time.waiting_share() - 0.3).abs() < 1e-9);
        assert_eq!(Times::default().waiting_share(), 0.0);
    }

    #[test]
    fn counters_are_found_by_their_place() {
        let stats = Stats(json!({
            "totals": {"pages": {"signals": 5}},
            "nodes": [{"pages": {"signals": 2}}, {"pages": {"signals": 3}}],
        }));
        assert_eq!(stats.total("pages/signals"), Ok(5));
        assert_eq!(stats.each_node("pages/signals"), Ok(vec![2, 3]));
        assert!(stats.each_node("pages/faults").unwrap_err().contains("/nodes/0/pages/faults"));
    }

    #[test]
    fn a_missing_counter_is_named() {
        let mut value = file();
        value["totals"]["time_us"].as_object_mut().unwrap().remove("lock");
        assert_eq!(Totals::parse(&value), Err("lock"));
    }
}
