//! Flags about memory that is shared by pages.

use super::values::{
    auto_or_ucx, copy_or_share, heap_size, kind_of_locks, size, size_or_share, switch_word, tuning, unit_bytes,
    unit_pages,
};
use crate::choice;
use clap::Args;

/// How pages are shared. An empty text leaves the choice to the nodes.
#[derive(Args, Clone, Debug, Default)]
pub struct PageArgs {
    /// How accesses are noticed: uffd-async, uffd or mprotect (pages), inline (lines, programs built with comem-cc
    /// --inline), explicit (objects alone) [default: the best]
    #[arg(long, env = "COMEM_DETECTOR", value_name = "D", default_value = "", hide_default_value = true,
          value_parser = choice::detector)]
    pub detector: String,
    /// Most memory for copies of other nodes' pages, in each node: 64M, 2G or 50%
    #[arg(long, env = "COMEM_CACHE", value_name = "BYTES|%", default_value = "", hide_default_value = true,
          value_parser = size_or_share)]
    pub cache: String,
    /// Under the engines lrc and multicast, most memory for diffs in each node before all nodes collect theirs: 16M
    /// [default: an eighth of the cache]
    #[arg(long, env = "COMEM_DIFFS", value_name = "BYTES", default_value = "", hide_default_value = true,
          value_parser = size)]
    pub diffs: String,
    /// Address space for shared pages, from 256M to 16T: 64G [default: 16T]
    #[arg(long, env = "COMEM_HEAP", value_name = "BYTES", default_value = "", hide_default_value = true,
          value_parser = heap_size)]
    pub heap: String,
    /// Pages that are fetched and invalidated together: 1, 2, 4, ... or 256
    #[arg(long, env = "COMEM_UNIT_PAGES", value_name = "N", default_value = "", hide_default_value = true,
          value_parser = unit_pages)]
    pub unit_pages: String,
    /// Bytes of lines that are fetched and invalidated together: 64, 128, 256, 512, 1024 or 2048 [default: 64]
    #[arg(long, env = "COMEM_UNIT_BYTES", value_name = "N", default_value = "", hide_default_value = true,
          value_parser = unit_bytes)]
    pub unit_bytes: String,
    /// How threads reach other nodes' memory under the engine direct: ucx, or as the backbone lets them: auto
    #[arg(long, env = "COMEM_ONE_SIDED", value_name = "auto|ucx", default_value = "", hide_default_value = true,
          value_parser = auto_or_ucx)]
    pub one_sided: String,
    /// Leave pages writable at their home while it alone writes them: on or off
    #[arg(long, env = "COMEM_WRITE_DETECTION", value_name = "on|off", default_value = "", hide_default_value = true,
          value_parser = switch_word)]
    pub write_detection: String,
    /// Let a page's home move to the node that writes it: on or off
    #[arg(long, env = "COMEM_MIGRATION", value_name = "on|off", default_value = "", hide_default_value = true,
          value_parser = switch_word)]
    pub migration: String,
    /// Fetch pages before they are used: on or off
    #[arg(long, env = "COMEM_PREFETCH", value_name = "on|off", default_value = "", hide_default_value = true,
          value_parser = switch_word)]
    pub prefetch: String,
    /// Let nodes that want one another's locks all the time take turns of some milliseconds: on or off
    #[arg(long, env = "COMEM_LOCK_TURNS", value_name = "on|off", default_value = "", hide_default_value = true,
          value_parser = switch_word)]
    pub lock_turns: String,
    /// What a lock is: a token that nodes hand on, or a word that all of them reach (on one host, or by --one-sided
    /// ucx; without hlrc and scope). On one host arrivals at barriers go by messages, or are such words, too: auto,
    /// tokens or one-sided
    #[arg(long, env = "COMEM_LOCKS", value_name = "auto|tokens|one-sided", default_value = "",
        hide_default_value = true,
          value_parser = kind_of_locks)]
    pub locks: String,
    /// Global variables of programs for PARMACS: copied to the workers at CREATE, or shared: copy or share
    #[arg(long, env = "COMEM_GLOBALS", value_name = "copy|share", default_value = "", hide_default_value = true,
          value_parser = copy_or_share)]
    pub globals: String,
    /// Numbers by which the job tunes itself, for experiments (docs/tuning.md): pages.push=off,locks.turn_us=10000
    #[arg(long, env = "COMEM_TUNING", value_name = "NAME=VALUE,...", default_value = "", hide_default_value = true,
          value_parser = tuning)]
    pub tuning: String,
}

/// The variables behind the flags, as nodes read them.
pub mod var {
    /// Most bytes of copies in a node, or a share of its memory.
    pub const CACHE: &str = "COMEM_CACHE";
    /// Most bytes of diffs that stay in a node.
    pub const DIFFS: &str = "COMEM_DIFFS";
    /// Bytes of address space for shared pages.
    pub const HEAP: &str = "COMEM_HEAP";
    /// Pages in a unit.
    pub const UNIT_PAGES: &str = "COMEM_UNIT_PAGES";
    /// Bytes in a unit of lines.
    pub const UNIT_BYTES: &str = "COMEM_UNIT_BYTES";
    /// How threads reach other nodes' memory.
    pub const ONE_SIDED: &str = "COMEM_ONE_SIDED";
    /// Whether a home's own pages stay writable for it.
    pub const WRITE_DETECTION: &str = "COMEM_WRITE_DETECTION";
    /// Whether homes move.
    pub const MIGRATION: &str = "COMEM_MIGRATION";
    /// Whether pages are fetched ahead.
    pub const PREFETCH: &str = "COMEM_PREFETCH";
    /// Whether nodes take turns at their locks.
    pub const LOCK_TURNS: &str = "COMEM_LOCK_TURNS";
    /// What locks are.
    pub const LOCKS: &str = "COMEM_LOCKS";
    /// What becomes of the program's global variables.
    pub const GLOBALS: &str = "COMEM_GLOBALS";
    /// Whether CREATE looks for global variables that point to private memory.
    pub const CHECK_POINTERS: &str = "COMEM_CHECK_POINTERS";
}

impl PageArgs {
    /// The variables of a node. Each is set, so that nothing of an outer job shines through.
    pub fn variables(&self) -> [(&'static str, String); 14] {
        // Objects have no detector to choose.
        let detector = if self.detector == choice::EXPLICIT { String::new() } else { self.detector.clone() };
        [
            (crate::control::var::DETECTOR, detector),
            (var::CACHE, self.cache.clone()),
            (var::DIFFS, self.diffs.clone()),
            (var::HEAP, self.heap.clone()),
            (var::UNIT_PAGES, self.unit_pages.clone()),
            (var::UNIT_BYTES, self.unit_bytes.clone()),
            (var::ONE_SIDED, self.one_sided.clone()),
            (var::WRITE_DETECTION, self.write_detection.clone()),
            (var::MIGRATION, self.migration.clone()),
            (var::PREFETCH, self.prefetch.clone()),
            (var::LOCK_TURNS, self.lock_turns.clone()),
            (var::LOCKS, self.locks.clone()),
            (var::GLOBALS, self.globals.clone()),
            (crate::control::var::TUNING, self.tuning.clone()),
        ]
    }
}
