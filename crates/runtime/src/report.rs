//! What a node says about itself: its statistics at the end, and where its threads wait when nothing moves.

use crate::counters::{Counters, summary};
use crate::error::{Error, Result};
use crate::names::Named;
use crate::node::{Node, Waiting};
use crate::shared::Shared;
use crate::shared::consistency::sets::GAVE_UP;
use crate::shared::heap::table::RegionState;
use crate::symbols::Symbols;
use comem_protocol::coherence::pages::region::Unit;
use comem_protocol::coherence::pages::sharing::Found;
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo};
use comem_protocol::ids::Slot;
use comem_protocol::wire::message::SyncRequest;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The number of the stats file's form, whoever writes it: it grows when a field changes its meaning or goes.
pub const STATS_SCHEMA: u32 = 1;

/// Most variables that are named of a page.
const VARIABLES: usize = 32;

impl crate::Comem {
    /// This node's counters up to now, as a JSON object: what `comem run --stats` writes at the end.
    pub fn stats(&self) -> String {
        stats(&self.node, None).to_string()
    }
}

/// This node's statistics. `failure` says why the node ended, if it did not come to its natural end.
pub(crate) fn stats(node: &Node, failure: Option<&Error>) -> Value {
    let mut value = counters(node);
    let (host, pid) = node.wire.member(node.me()).unwrap_or_default();
    value["node"] = json!(node.me().0);
    value["host"] = json!(host);
    value["pid"] = json!(pid);
    value["threads"] = json!(node.threads());
    value["samples"] = json!(node.launcher.samples());
    value["engine"] = json!(node.config.engine.name());
    value["backbone"] = json!(node.config.backbone_name());
    value["multicast"] = json!(node.wire.way().name());
    if let Some(selective) = node.wire.selective() {
        value["sets"] = sets(&selective.counts());
        if selective.has_given_up() {
            value["multicast_gave_up"] = json!(GAVE_UP);
        }
    }
    if let Some(how) = one_sided(node) {
        value["one_sided"] = json!(how);
    }
    value["page_engine"] = json!(node.page_engine().name());
    value["detector"] = json!(detector(node));
    let signals = comem_memory::pages::fault::counts();
    value["pages"]["signals"] = json!(signals.ours);
    value["regions"] = regions(node);
    value["pages"]["diff_store_bytes"] = json!(node.shared().map_or(0, |shared| shared.kept_diffs.bytes_most()));
    value["pages"]["sharing_unseen"] = json!(node.shared().map_or(0, |shared| shared.sharing.unseen()));
    if let Some(units) = node.shared().and_then(Shared::units_from_history) {
        value["history_units"] = json!(units);
    }
    value["auth"] = json!(node.wire.authenticated());
    value["clock"] = json!(if node.clock.cycles_per_second().is_some() { "cycle counter" } else { "system" });
    if let Some(seed) = &node.config.hash_seed {
        value["python_hash_seed"] = json!(seed);
    }
    let differences = node.config.tuning.differences();
    if !differences.is_empty() {
        value["tuning"] = json!(differences);
    }
    if let Some(faults) = &node.config.faults {
        value["faults"] = json!(faults.to_string());
    }
    if let Some(failure) = failure {
        value["failure"] = json!(failure.to_string());
    }
    value
}

/// What this node's threads have counted up to now.
fn counters(node: &Node) -> Value {
    // From the moment in which the program's main thread took its place: what its parts add up to.
    let now = node.now();
    let wall = (now - node.life.began().unwrap_or_else(|| node.wire.started())).0;
    // Threads that compute or wait have booked neither yet: a job may end in the middle of both.
    let mut unbooked: Vec<Counters> = node.slots.iter().map(|thread_slot| thread_slot.unbooked(now)).collect();
    unbooked.extend(node.wire.link_counters());
    let counters = node.slots.iter().map(|thread_slot| &thread_slot.counters).chain(&unbooked);
    summary(counters, node.threads(), wall)
}

/// What this node tells whoever watches the job while it runs: the cheap part of [`stats`], of the dearest regions
/// alone. With `waits`, also what threads wait for and which locks they hold. With `pages`, also which pages of these
/// regions are shared falsely.
pub(crate) fn sample(node: &Node, waits: bool, pages: bool) -> Value {
    let mut value = counters(node);
    value["threads"] = json!(node.threads());
    value["regions"] = hot_regions(node, pages);
    if waits {
        value["waits"] = json!(self::waits(node).into_iter().chain(locks_held(node)).collect::<Vec<_>>());
    }
    value
}

/// What has gone to sets of nodes and come from them.
fn sets(counts: &comem_net::selective::Counts) -> Value {
    json!({
        "datagrams_sent": counts.datagrams_sent,
        "copies_addressed": counts.copies_addressed,
        "copies_received": counts.copies_received,
        "told_received": counts.told_received,
        "refused": counts.refused,
        "told_full": counts.told_full,
        "told_dropped": counts.told_dropped,
    })
}

/// How this node notices accesses to shared memory; `explicit` where it has none to notice, or objects alone; `none`
/// where there is one copy of all pages.
fn detector(node: &Node) -> &'static str {
    if node.config.has_lines() {
        let is_checked = crate::inline::hazards::is_checked();
        return if is_checked { crate::config::INLINE } else { "explicit" };
    }
    match node.shared().and_then(|s| s.views.as_ref()) {
        Some(views) if views.one_copy.is_some() && !node.shared().is_some_and(|s| s.table.has_watched()) => "none",
        Some(views) => views.detector.name(),
        None => "explicit",
    }
}

/// Pages of a unit; 0 where it has bytes.
fn unit_pages(unit: Unit) -> u32 {
    match unit {
        Unit::Pages(pages) => pages,
        Unit::Bytes(_) => 0,
    }
}

/// The program's symbols, looked up when somebody asks.
type LazySymbols = std::cell::LazyCell<Symbols>;

/// The pages of a region that were shared falsely, those first that were so most often.
fn false_sharing(shared: &Shared, known: &RegionState, symbols: &LazySymbols) -> Vec<Value> {
    let mut pages: Vec<(PageNo, Found)> = match known.region.engine.has_directory() {
        // Each node tells of itself.
        true => {
            let found = |(page, times)| (page, Found { times, nodes: vec![shared.me] });
            shared.falsely_shared_units(known).into_iter().map(found).collect()
        }
        // Who serves pages takes the same lock: it is held for this copy alone.
        false => {
            let sharing = shared.sharing.found();
            sharing.found(known.region.range()).into_iter().map(|(page, found)| (page, found.clone())).collect()
        }
    };
    pages.sort_by_key(|(_, found)| std::cmp::Reverse(found.times));
    let page_bytes = PAGE_BYTES as u64;
    pages
        .iter()
        .take(100)
        .map(|(page, found)| {
            let nodes: Vec<u16> = found.nodes.iter().map(|n| n.0).collect();
            let offset = u64::from(*page - known.region.first) * page_bytes;
            let mut one = json!({ "offset": offset, "nodes": nodes, "times": found.times });
            if shared.globals.get().is_some_and(|globals| globals.has(*page)) {
                let start = shared.address_of(*page);
                let variables: Vec<&str> = symbols.within(&(start..start + PAGE_BYTES)).take(VARIABLES).collect();
                one["variables"] = json!(variables);
            }
            one
        })
        .collect()
}

/// The regions of the shared heap, those first that have cost most here.
fn dearest_first(shared: &Shared) -> Vec<Arc<RegionState>> {
    let mut all = shared.table.all();
    all.sort_by_cached_key(|k| {
        let cost = (&k.costs.fetch_ns, &k.costs.pages_fetched, &k.costs.faults);
        std::cmp::Reverse((cost.0.load(Relaxed), cost.1.load(Relaxed), cost.2.load(Relaxed)))
    });
    all
}

/// What a region is, and what it has cost here.
fn region(shared: &Shared, known: &RegionState) -> Value {
    let costs = &known.costs;
    json!({
        "label": known.name(),
        "named_by": known.named_by(),
        "address": format!("{:#x}", shared.address_of(known.region.first)),
        "bytes": known.region.bytes,
        "engine": known.region.engine.name(),
        "unit_pages": unit_pages(known.region.unit),
        "faults": costs.faults.load(Relaxed),
        "fetch_us": costs.fetch_ns.load(Relaxed) / 1000,
        "pages_fetched": costs.pages_fetched.load(Relaxed),
        "diff_bytes": costs.diff_bytes.load(Relaxed),
        "invalidations": costs.invalidations.load(Relaxed),
    })
}

/// The few regions that have cost most here; with what is known of their pages, where that is wanted.
fn hot_regions(node: &Node, pages: bool) -> Value {
    const HOT: usize = 16;
    let Some(shared) = node.shared() else { return json!([]) };
    let hot = dearest_first(shared).into_iter().take(HOT);
    if !pages {
        return hot.map(|known| region(shared, &known)).collect();
    }
    // What is noted of the present epoch is left to it: it may still show that nodes write the same bytes.
    shared.sharing.note_putters(shared.directory());
    let symbols = LazySymbols::new(Symbols::of_this_program);
    let one = |known: Arc<RegionState>| {
        let mut one = region(shared, &known);
        one["false_sharing"] = json!(false_sharing(shared, &known, &symbols));
        if known.region.engine.tells_sets() {
            one["copysets"] = json!(copysets(&known));
        }
        one
    };
    hot.map(one).collect()
}

/// Of a region whose diffs are told to sets: the units that several nodes hold copies of, and which nodes.
fn copysets(known: &RegionState) -> Vec<Value> {
    const FEW: usize = 256;
    let (mut found, mut page, end) = (Vec::new(), known.region.first, known.region.range().end);
    while page < end && found.len() < FEW {
        let chunk_end = known.chunk_end(page);
        if known.has_slot(page) {
            let slot = known.slot(page).lock();
            for unit in (page..chunk_end).step_by(unit_pages(known.region.unit).max(1) as usize) {
                let nodes: Vec<u16> = slot.table.members(unit).iter().map(|node| node.0).collect();
                let offset = u64::from(unit - known.region.first) * PAGE_BYTES as u64;
                found.extend((nodes.len() > 1).then(|| json!({ "offset": offset, "nodes": nodes })));
            }
        }
        page = chunk_end;
    }
    found.truncate(FEW);
    found
}

/// The regions of the shared heap and what they cost here, the dearest first.
fn regions(node: &Node) -> Value {
    let Some(shared) = node.shared() else { return json!([]) };
    shared.sharing.note_putters(shared.directory());
    shared.sharing.found().settle();
    let all = dearest_first(shared);
    let symbols = LazySymbols::new(Symbols::of_this_program);
    let one = |known: &Arc<RegionState>| {
        let mut one = region(shared, known);
        one["pages_owned"] = json!(known.slots().map(|cell| cell.lock().table.units().home_pages()).sum::<u32>());
        one["false_sharing"] = json!(false_sharing(shared, known, &symbols));
        if let Unit::Bytes(unit_bytes) = known.region.unit {
            let costs = &known.line_costs;
            one["unit_bytes"] = json!(unit_bytes);
            for (name, count) in [
                ("load_misses", &costs.load_misses),
                ("store_misses", &costs.store_misses),
                ("genuine_magic", &costs.genuine_magic),
                ("retries", &costs.retries),
                ("remote_operations", &costs.remote_operations),
            ] {
                one[name] = json!(count.load(Relaxed));
            }
        }
        one
    };
    Value::Array(all.iter().take(1000).map(one).collect())
}

/// Writes the stats file of a job without a launcher.
pub(crate) fn write_file(node: &Node, path: &str, stats: Value) -> Result<()> {
    let totals = stats.clone();
    let file = json!({
        "schema": STATS_SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "command": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "kernel": kernel(),
        "engine": node.config.engine.name(),
        "backbone": node.config.backbone_name(),
        "one_sided": one_sided(node),
        "detector": detector(node),
        "page_engine": node.page_engine().name(),
        "nodes": [stats],
        "totals": totals,
    });
    let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
    let written = comem_net::within_file_limit(|| std::fs::write(path, text));
    written.map_err(Error::system(format!("cannot write statistics to {path}")))
}

/// How threads of this node reach the memory of other nodes; `None` where they do not.
fn one_sided(node: &Node) -> Option<&'static str> {
    let has_lines = node.shared()?.views.as_ref()?.lines.is_some();
    let is_asked_for = node.nodes() > 1 && node.config.page_engine.is_one_sided();
    (has_lines && is_asked_for).then(|| node.reach.in_words())
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string()
}

/// A few of the locks that threads of this node hold, each with the thread that does.
fn locks_held(node: &Node) -> Vec<String> {
    const FEW: usize = 8;
    let mut locks = node.sync.locks_held();
    for slot in node.slots.of_threads() {
        locks.extend(node.slots[slot].held.all().into_iter().map(|lock| (lock, slot)));
    }
    locks.sort_unstable();
    let locks = locks.into_iter().map(|(lock, slot)| (slot, format!("lock {}", Named(lock.0))));
    let mut others = node.sync.rw_locks_held();
    others.sort_unstable();
    let others = others.into_iter().map(|(name, slot, writes)| {
        (slot, format!("reader-writer lock {} for {}", Named(name), if writes { "writing" } else { "reading" }))
    });
    locks.chain(others).take(FEW).map(|(slot, what)| format!("thread {} holds {what}", number(node, slot))).collect()
}

/// One line for each thread that waits: for what, how long.
fn waits(node: &Node) -> Vec<String> {
    let now = node.now();
    let line = |slot: Slot| {
        let (waiting, since) = node.slots[slot].waits_for()?;
        let seconds = (now - since).0 as f64 / 1e9;
        Some(format!("thread {} has waited {seconds:.1} s for {}", number(node, slot), waiting.in_words(node)))
    };
    node.slots.of_threads().filter_map(line).collect()
}

/// The number of a slot's thread among all threads of the job.
fn number(node: &Node, slot: Slot) -> usize {
    node.me().index() * node.threads() + slot.index() - 1
}

/// Says on standard error where this node's threads wait, and which locks they hold.
pub(crate) fn print_waits(node: &Node, why: &str) {
    let mut lines = waits(node);
    if lines.is_empty() {
        lines.push("no thread waits in Comem".to_string());
    }
    lines.extend(locks_held(node));
    const FEW: usize = 4;
    lines.extend(node.objects.lent(FEW).iter().map(|label| format!("a range of {label} is in use")));
    crate::error::say(format_args!("comem: {}: {why}: {}", node.name_of(node.me()), lines.join("; ")));
}

/// Says so when nothing has happened for a while although threads wait, and what may be the reason.
pub(crate) fn print_hang(node: &Node) {
    print_waits(node, "no progress for ten seconds");
    let relaxed = node.page_engine().has_several_writers();
    let shares = node.nodes() > 1 && node.shared().is_some_and(|shared| !shared.table.all().is_empty());
    let name = node.name_of(node.me());
    // What another thread does on purpose: it need not write to memory for that.
    let is_word = |waiting: Waiting| match waiting {
        Waiting::Flag(..) | Waiting::Messages => true,
        Waiting::Answer(SyncRequest::SemWait | SyncRequest::CondJoin | SyncRequest::CondAwait, _) => {
            !waiting.is_for_work()
        }
        _ => false,
    };
    let is_lock = |waiting| {
        matches!(waiting, Waiting::Lock(_) | Waiting::Answer(SyncRequest::ReadLock | SyncRequest::WriteLock, _))
    };
    let at_barrier = |waiting| matches!(waiting, Waiting::Barrier(..));
    let own_are_missing = node.slots.somebody_waits(at_barrier) && node.sync.with_barrier(|b| b.missing().0) > 0;
    if node.slots.somebody_waits(at_barrier) && !locks_held(node).is_empty() {
        crate::error::say(format_args!(
            "comem: {name}: a thread here holds a lock while one waits at a barrier: others that want the lock do not \
             come there; release it first"
        ));
    } else if node.slots.somebody_waits(is_lock) {
        crate::error::say(format_args!(
            "comem: {name}: whoever holds the lock computes for long, has ended without a release, or waits itself; \
             threads that wait for one another's locks wait for ever: each node says which locks its threads hold, \
             here or after kill -USR1"
        ));
    } else if node.slots.somebody_waits(is_word) {
        crate::error::say(format_args!(
            "comem: {name}: whoever sets the flag, posts, signals or sends computes for long, has ended without that, \
             or waits itself: each node says where its threads wait, here or after kill -USR1"
        ));
    } else if own_are_missing {
        crate::error::say(format_args!(
            "comem: {name}: a thread of this node computes for long, or does not make the call, which all of its \
             threads make: let them, as within comem_parallel, or start the job with fewer threads (-t)"
        ));
    } else if relaxed && shares {
        crate::error::say(format_args!(
            "comem: {name}: whoever is missing computes for long, or spins on a plain variable, where under {} it \
             never sees what others write: let it synchronise (lock, flag, barrier), or start with --engine msi; no \
             engine helps where the variable is its node's own (malloc, a global): nobody else writes that one",
            node.page_engine()
        ));
    }
}
