//! Reads the file that `comem run --stats` writes: the totals over all nodes.

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

impl Totals {
    /// Reads a stats file.
    ///
    /// # Errors
    /// A sentence about a file that is missing, is no JSON or lacks a counter.
    pub fn load(path: &Path) -> Result<Totals, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| format!("{} is no JSON: {e}", path.display()))?;
        Totals::parse(&value).map_err(|name| format!("{} lacks the counter totals.{name}", path.display()))
    }

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
    fn a_missing_counter_is_named() {
        let mut value = file();
        value["totals"]["time_us"].as_object_mut().unwrap().remove("lock");
        assert_eq!(Totals::parse(&value), Err("lock"));
    }
}
