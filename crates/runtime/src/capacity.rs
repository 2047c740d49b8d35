//! How much of its host a process may use: cores and memory. Everything that counts either asks here.
//!
//! A host's own numbers are not a process's share of it. `taskset` and cpusets leave it some of the cores, a control
//! group's
//! quota some of their time, and a control group's limit some of the memory. Groups lie within others, and the
//! tightest of them
//! counts. Both versions of control groups are read; inside a container the root of what is mounted is the
//! container's own group.

use std::sync::OnceLock;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// Version 1 writes nearly all addresses for no limit.
const NO_LIMIT_FROM: u64 = 1 << 60;

/// Cores that this process may keep busy: those it may run on, or fewer where a control group's quota says so; at
/// least one. As it
/// was when first asked: a thread that stays on some cores later does not change it.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // The standard library reads the affinity and the quotas of all groups around the process.
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Bytes of memory that this process may have: the host's, or a control group's limit below that.
pub fn memory_bytes() -> u64 {
    let host = meminfo("MemTotal:").unwrap_or(0);
    memory_limit_bytes().map_or(host, |limit| if host == 0 { limit } else { limit.min(host) })
}

/// Bytes of memory that the host and the control groups leave free; 1 GiB where nothing says.
pub fn memory_free_bytes() -> u64 {
    let host = meminfo("MemAvailable:").unwrap_or(1 << 30);
    groups_leave(GROUPS, &own_groups()).map_or(host, |left| left.min(host))
}

/// The least memory limit of the control groups around this process.
pub fn memory_limit_bytes() -> Option<u64> {
    memory_groups(GROUPS, &own_groups()).iter().filter_map(MemoryGroup::limit).min()
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(label: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn own_groups() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// A control group that accounts for memory.
struct MemoryGroup {
    folder: String,
    /// Whether it is one of version 2.
    unified: bool,
}

impl MemoryGroup {
    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(format!("{}/{name}", self.folder)).ok()
    }

    fn number(&self, of_version: [&str; 2]) -> Option<u64> {
        self.read(of_version[usize::from(self.unified)])?.trim().parse().ok()
    }

    fn limit(&self) -> Option<u64> {
        self.number(["memory.limit_in_bytes", "memory.max"]).filter(|limit| *limit < NO_LIMIT_FROM)
    }

    /// Bytes in use that the kernel would not give up at once: what it keeps of files that nobody reads lately, it
    /// would.
    fn used(&self) -> u64 {
        let used = self.number(["memory.usage_in_bytes", "memory.current"]).unwrap_or(0);
        let label = if self.unified { "inactive_file " } else { "total_inactive_file " };
        let counts = self.read("memory.stat").unwrap_or_default();
        let files = counts.lines().find_map(|line| line.strip_prefix(label)?.trim().parse().ok());
        used.saturating_sub(files.unwrap_or(0))
    }
}

/// The groups of a process (as `/proc/self/cgroup` has them) that account for memory, and those around them, mounted
/// at `root`.
fn memory_groups(root: &str, groups: &str) -> Vec<MemoryGroup> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mount, unified) = match controllers {
            "" => (root.to_string(), true),
            _ if controllers.split(',').any(|c| c == "memory") => (format!("{root}/memory"), false),
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            found.push(MemoryGroup { folder: format!("{mount}{path}"), unified });
            let Some(at) = path.rfind('/') else { break };
            path = &path[..at];
        }
    }
    found
}

/// What the limits of these groups leave.
fn groups_leave(root: &str, groups: &str) -> Option<u64> {
    let left = |group: &MemoryGroup| group.limit().map(|limit| limit.saturating_sub(group.used()));
    memory_groups(root, groups).iter().filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// What a made-up `/sys/fs/cgroup` of these files leaves, and the least limit in it.
    fn read(files: &[(&str, &str)], groups: &str) -> (Option<u64>, Option<u64>) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("comem-cgroups-{}-{count}", std::process::id()));
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("directories can be made");
            std::fs::write(path, text).expect("files can be written");
        }
        let root = folder.to_str().expect("a plain name");
        let least = memory_groups(root, groups).iter().filter_map(MemoryGroup::limit).min();
        let left = groups_leave(root, groups);
        let _ = std::fs::remove_dir_all(&folder);
        (left, least)
    }

    #[test]
    fn the_tightest_of_the_groups_around_a_process_counts() {
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "900\n"),
            ("a/b/memory.max", "500\n"),
            ("a/b/memory.current", "100\n"),
        ];
        assert_eq!(read(&files, "0::/a/b\n"), (Some(100), Some(500)));
        assert_eq!(read(&files[2..], "0::/a/b\n"), (Some(400), Some(500)));
        assert_eq!(read(&[("a/memory.max", "max\n")], "0::/a\n"), (None, None));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        assert_eq!(read(&[("memory.max", "700\n"), ("memory.current", "1\n")], "0::/\n"), (Some(699), Some(700)));
    }

    #[test]
    fn limits_of_the_first_version_count_too() {
        let files = [("memory/x/memory.limit_in_bytes", "300\n"), ("memory/x/memory.usage_in_bytes", "50\n")];
        assert_eq!(read(&files, "5:cpu,cpuacct:/y\n4:cpu,memory:/x\n0::/\n"), (Some(250), Some(300)));
        assert_eq!(read(&files, "5:cpu:/x\n"), (None, None));
        assert_eq!(read(&[("memory/c/memory.limit_in_bytes", "9223372036854771712\n")], "4:memory:/c\n"), (None, None));
    }

    #[test]
    fn what_the_kernel_keeps_of_files_is_free() {
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "900\n"),
            ("a/memory.stat", "anon 300\ninactive_file 600\n"),
        ];
        assert_eq!(read(&files, "0::/a\n").0, Some(700));
    }
}
