//! Names and limits of this host.

use comem::capacity;
use serde::{Deserialize, Serialize};

/// What the statistics say of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its own name.
    pub name: String,
    /// The kernel's release.
    pub kernel: String,
    /// Cores that this process may keep busy.
    pub cores: usize,
    /// Memory that this process may have, in MiB.
    pub memory_mib: u64,
    /// Comem's version there.
    pub version: String,
}

impl HostInfo {
    /// This host.
    pub fn here() -> HostInfo {
        HostInfo {
            name: name(),
            kernel: kernel(),
            cores: capacity::cores(),
            memory_mib: capacity::memory_bytes() >> 20,
            version: env!("CARGO_PKG_VERSION").to_string(),
        }
    }
}

/// How many processes the system has killed because memory had run out, of all or of a group, since it started.
pub fn memory_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Processes that ran or wanted to run, on average of the last minute.
pub fn load() -> f64 {
    let text = read_line("/proc/loadavg");
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The host's name.
pub fn name() -> String {
    read_line("/proc/sys/kernel/hostname")
}

/// The kernel's release.
pub fn kernel() -> String {
    read_line("/proc/sys/kernel/osrelease")
}

fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".to_string(), |text| text.trim().to_string())
}
