//! What a node counts: events by thread, and where its threads' time went.

use comem_protocol::time::Time;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one thread. Only that thread adds to them, so adding needs no locked instruction.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
        }

        impl Counters {
            /// Every counter's name and value.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the counter; for its own thread only.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
    /// The counter's value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// The life of the thread begins that these will be counted for: how it has spent its time until now does not
    /// belong to it. The thread itself says so.
    pub fn begin(&self) {
        for time in [&self.fetch_ns, &self.lock_ns, &self.barrier_ns, &self.protocol_ns] {
            time.0.store(0, Ordering::Relaxed);
        }
    }
}

/// A moment since which something lasts that its thread books when it is over. Only that thread sets it.
#[derive(Debug, Default)]
pub struct Since(AtomicU64);

impl Since {
    /// It lasts since `start`; with `None`, not any longer.
    pub fn set(&self, start: Option<Time>) {
        self.0.store(start.map_or(0, |time| time.0 + 1), Ordering::Relaxed);
    }
    /// Since when it lasts.
    pub fn get(&self) -> Option<Time> {
        self.0.load(Ordering::Relaxed).checked_sub(1).map(Time)
    }
}

counters! {
    /// Messages sent: requests, replies, notices; not acknowledgements and not repetitions.
    messages_sent,
    /// Messages received and acted upon.
    messages_received,
    /// Messages sent to many nodes in one datagram each, or in the same few.
    multicasts,
    /// Bytes of UDP payload sent, everything included.
    bytes_sent,
    /// Bytes of UDP payload received, everything included.
    bytes_received,
    /// Datagrams sent again.
    retransmissions,
    /// Times that an answer was overdue.
    timeouts,
    /// Datagrams that carry acknowledgements alone.
    acks_sent,
    /// Datagrams refused: damaged, from strangers, replayed beyond the window, without the job's key.
    rejected,
    /// Datagrams that had been received before.
    duplicates,
    /// Accesses that needed another node to read.
    remote_reads,
    /// Accesses that needed another node to write.
    remote_writes,
    /// Checks of loads in the program's own code that missed.
    load_misses,
    /// Checks of stores and atomic operations that missed.
    store_misses,
    /// Units of lines that were asked for under `msi` before a load wanted them.
    lines_ahead,
    /// Copies given up for another node's write.
    invalidations,
    /// Locks acquired.
    lock_acquires,
    /// Locks acquired with the help of another node.
    lock_remote,
    /// Of these, those whose tokens were published.
    lock_taken,
    /// Operations on words of locks, and on their names, in other nodes' memory, where locks are one-sided.
    lock_operations,
    /// One-sided locks that were not free when a thread came.
    lock_waits,
    /// Releases of one-sided locks that woke a thread.
    lock_wakes,
    /// Turns that the node has had while it and others wanted one another's locks all the time.
    lock_turns,
    /// Requests for locks that waited while the node had a turn, or because the token had only just come.
    lock_kept,
    /// Tokens that came before a thread asked for them, many together.
    lock_ahead,
    /// How often a thread waited because it had said more than could leave.
    line_waits,
    /// Barriers passed.
    barriers,
    /// Barriers that the words of all nodes have opened here, without a message: each counts once for the node.
    barriers_by_words,
    /// Of these, those at which this node came last and woke others.
    barrier_wakes,
    /// Reductions taken part in, each once however many numbers it had.
    reductions,
    /// Page faults of loads.
    read_faults,
    /// Page faults of stores.
    write_faults,
    /// Requests for pages.
    page_requests,
    /// Atomic operations that other nodes were asked to carry out.
    atomics_sent,
    /// Pages that came from other nodes.
    pages_fetched,
    /// Pages asked for without a fault.
    pages_prefetched,
    /// Pages copied out of their home's memory without asking.
    pages_taken,
    /// Pages sent to other nodes unasked, as barriers came.
    pages_pushed,
    /// Pages that came so and were used.
    pages_pushed_used,
    /// Twins made.
    twins_made,
    /// Diffs made and sent, one for each unit.
    diffs_sent,
    /// Bytes that those diffs changed.
    diff_bytes,
    /// Diffs applied to home pages here.
    diffs_applied,
    /// Under `lrc` and `multicast`, first copies of units that came from the units' managers.
    bases_fetched,
    /// Under `lrc` and `multicast`, collections of diffs that have ended, each once for the node.
    gc_rounds,
    /// Under `multicast`, messages that asked sets of nodes for diffs.
    diffs_asked,
    /// Under `multicast`, messages that told sets of nodes diffs.
    diffs_told,
    /// Of these, those that left before an arrival at a barrier, unasked.
    diffs_told_early,
    /// Under `multicast`, diffs that came before this node asked for them.
    diffs_indirect,
    /// Of these, those that a fault used.
    diffs_indirect_used,
    /// Under `multicast`, requests to writers whose diffs, told to a set, did not come in time.
    diffs_repaired,
    /// Under `multicast`, copysets that this node left, since it did not use what it was told.
    copysets_left,
    /// Under `multicast`, units whose manager this node became.
    managers_moved,
    /// Under `multicast`, pages that this node manages and whose diffs began to go to it alone.
    pages_homed,
    /// Pages named in write notices made here.
    write_notices,
    /// Pages among them whose home is here.
    home_notices,
    /// Copies of pages that ended because others wrote.
    page_invalidations,
    /// Pages whose home this node became because it alone had written them.
    migrations,
    /// Pages whose home this node became because it touched them first.
    claimed,
    /// Pages that this node wrote and whose home it could not become, because it had no room for more.
    no_room,
    /// Copies given up to make room.
    evictions,
    /// Pages that were unmapped because they had not been written for long.
    laid_aside,
    /// Pages that were mapped while they were on their way.
    mapped_early,
    /// Parts of long closes of intervals.
    slices,
    /// Requests for pages that came between two such parts.
    between_slices,
    /// Units of lines that loads have brought from other nodes.
    lines_read,
    /// Units of lines that stores have brought from other nodes.
    lines_written,
    /// Units of lines that were here when a store ended all other copies.
    upgrades,
    /// Loads of lines whose value looked like an invalid one's and was valid.
    genuine_magic,
    /// Stores to locked units that the node held alone, in hundreds and more.
    locked_stores,
    /// Entries that were locked when a thread wanted to lock them.
    dir_retries,
    /// Entries of other nodes that were locked, or found locked.
    remote_fetch_and_sets,
    /// Units of lines, and wide words of directories, that were copied from other nodes.
    remote_gets,
    /// Times that something was stored in another node's lines memory.
    remote_puts,
    /// Of these, units that were made invalid.
    magic_puts,
    /// Times that another node's stores under way were waited for.
    quiesces,
    /// Messages with one-sided operations, which other nodes emulated.
    remote_batches,
    /// Moves of threads back to cores of their own.
    came_back,
    /// Nanoseconds waiting for data.
    fetch_ns,
    /// Nanoseconds waiting for locks and flags.
    lock_ns,
    /// Nanoseconds waiting at barriers and in reductions.
    barrier_ns,
    /// Nanoseconds in Comem without waiting, in application threads.
    protocol_ns,
    /// Nanoseconds in the service thread, not counting its sleep.
    service_ns,
    /// Nanoseconds between the thread's start and its end.
    lifetime_ns,
}

/// The counters that stand under `pages` in the stats file.
const PAGES: [&str; 35] = [
    "read_faults",
    "write_faults",
    "page_requests",
    "atomics_sent",
    "pages_fetched",
    "pages_prefetched",
    "pages_taken",
    "pages_pushed",
    "pages_pushed_used",
    "twins_made",
    "diffs_sent",
    "diff_bytes",
    "diffs_applied",
    "bases_fetched",
    "gc_rounds",
    "diffs_asked",
    "diffs_told",
    "diffs_told_early",
    "diffs_indirect",
    "diffs_indirect_used",
    "diffs_repaired",
    "copysets_left",
    "managers_moved",
    "pages_homed",
    "write_notices",
    "home_notices",
    "page_invalidations",
    "migrations",
    "claimed",
    "no_room",
    "evictions",
    "laid_aside",
    "mapped_early",
    "slices",
    "between_slices",
];

/// The counters that stand under `inline` in the stats file.
const INLINE: [&str; 4] = ["load_misses", "store_misses", "genuine_magic", "lines_ahead"];

/// The counters that stand under `direct` in the stats file.
const DIRECT: [&str; 11] = [
    "locked_stores",
    "lines_read",
    "lines_written",
    "upgrades",
    "dir_retries",
    "remote_fetch_and_sets",
    "remote_gets",
    "remote_puts",
    "magic_puts",
    "quiesces",
    "remote_batches",
];

/// The sums over the counters of a node with so many application threads, in the form of the stats file.
pub fn summary<'a>(counters: impl Iterator<Item = &'a Counters>, threads: usize, wall_ns: u64) -> Value {
    let mut sums: Vec<(&'static str, u64)> = Counters::default().all();
    for counters in counters {
        for (sum, (_, value)) in sums.iter_mut().zip(counters.all()) {
            sum.1 += value;
        }
    }
    let get = |name: &str| sums.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
    let waits = get("fetch_ns") + get("lock_ns") + get("barrier_ns");
    let compute = get("lifetime_ns").saturating_sub(waits + get("protocol_ns"));
    // Before threads began, and after they had ended.
    let idle = (threads as u64 * wall_ns).saturating_sub(compute + waits + get("protocol_ns"));
    let mut object = serde_json::Map::new();
    let mut pages = serde_json::Map::new();
    let mut inline = serde_json::Map::new();
    let mut direct = serde_json::Map::new();
    for (name, value) in sums.iter().filter(|(n, _)| !n.ends_with("_ns")) {
        let to = match name {
            _ if PAGES.contains(name) => &mut pages,
            _ if INLINE.contains(name) => &mut inline,
            _ if DIRECT.contains(name) => &mut direct,
            _ => &mut object,
        };
        let name = if *name == "page_invalidations" { "invalidations" } else { name };
        to.insert(name.to_string(), json!(value));
    }
    object.insert("direct".to_string(), Value::Object(direct));
    object.insert("pages".to_string(), Value::Object(pages));
    object.insert("inline".to_string(), Value::Object(inline));
    object.insert(
        "time_us".to_string(),
        json!({
            "compute": compute / 1000,
            "fetch": get("fetch_ns") / 1000,
            "lock": get("lock_ns") / 1000,
            "barrier": get("barrier_ns") / 1000,
            "protocol": get("protocol_ns") / 1000,
            "idle": idle / 1000,
            "service": get("service_ns") / 1000,
        }),
    );
    object.insert("wall_s".to_string(), json!(wall_ns as f64 / 1e9));
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_threads_time_add_up() {
        let counters = Counters::default();
        // Nodes wait for each other before the life begins.
        counters.barrier_ns.add(70_000_000);
        counters.protocol_ns.add(3_000_000);
        counters.begin();
        counters.lifetime_ns.add(10_000_000);
        counters.fetch_ns.add(2_000_000);
        counters.barrier_ns.add(1_000_000);
        counters.protocol_ns.add(500_000);
        let value = summary([&counters].into_iter(), 2, 11_000_000);
        assert_eq!(value["time_us"]["compute"], 6500);
        assert_eq!(value["time_us"]["idle"], 12_000, "the second thread never was, the first began later");
        assert_eq!(value["messages_sent"], 0);
        assert!(value.get("fetch_ns").is_none());
    }
}
