//! What a thread waits for, in words.

use super::{Node, Waiting};
use crate::names::Named;
use comem_protocol::coherence::pages::PageNo;
use comem_protocol::ids::{LockId, manager_of};
use comem_protocol::sync::barrier::kinds;
use comem_protocol::sync::deal;
use comem_protocol::wire::message::{Collective, SyncRequest};

impl Waiting {
    /// What a thread of this node waits for, for people.
    pub(crate) fn in_words(self, node: &Node) -> String {
        match self {
            Waiting::Fetch { object, unit } => match node.objects.get(object) {
                Some(o) => format!("unit {unit} of {} (home: {})", o.label, node.name_of(o.home_of(unit))),
                None => format!("unit {unit} of object {}", object.0),
            },
            Waiting::Page(page) | Waiting::Told(page, _) => of_page(node, page),
            Waiting::Diffs => "the diffs of pages whose home it is".to_string(),
            Waiting::Lock(lock) => of_lock(node, lock),
            Waiting::Flag(flag, value) => format!("flag {} to reach {value}", Named(flag.0)),
            Waiting::Answer(..) if self.is_for_work() => "work, or for the end of a worker".to_string(),
            Waiting::Answer(request, name) => {
                let manager = request.object(name).manager(node.nodes);
                format!("{} (managed by {})", of_object(request, Named(name)), node.name_of(manager))
            }
            Waiting::Barrier(what, number) => of_barrier(node, what, number),
            Waiting::Sections => {
                "other threads of this node to release their locks, before a collective call".to_string()
            }
            Waiting::Opening => "the end of a collective call that another thread of this node makes".to_string(),
            Waiting::Operations(of) => format!("one-sided operations that {} carries out", node.name_of(of)),
            Waiting::Loop(number) => {
                let manager = node.name_of(deal::manager(number, node.nodes));
                format!("items of dynamic loop {number} (managed by {manager})")
            }
            Waiting::Room => "room to send".to_string(),
            Waiting::Messages => "a message from another thread".to_string(),
        }
    }
}

fn of_page(node: &Node, page: PageNo) -> String {
    let Some(known) = node.shared().and_then(|shared| shared.table.find(page)) else {
        return format!("page {page} of the shared heap");
    };
    let index = page - known.region.first;
    let home = known.region.home_of(page - index % known.region.unit_pages(), node.nodes);
    format!("page {index} of {} (first home: {})", known.name(), node.name_of(home))
}

fn of_lock(node: &Node, lock: LockId) -> String {
    if let Some(tables) = node.sync.lock_tables() {
        return tables.describe(lock, |node_of| node.name_of(node_of));
    }
    let holder = match node.sync.lock_shard(lock).holder(lock) {
        Some(slot) => format!("which thread {} holds", slot.index() - 1),
        None => "which no thread of this node holds".to_string(),
    };
    let manager = node.name_of(manager_of(lock.0, node.nodes));
    format!("lock {} (managed by {manager}), {holder}", Named(lock.0))
}

fn of_object(request: SyncRequest, named: Named) -> String {
    match request {
        SyncRequest::SemWait | SyncRequest::SemTryWait | SyncRequest::SemPass => {
            format!("semaphore {named} to be posted")
        }
        SyncRequest::SemGive | SyncRequest::SemReset => format!("word that semaphore {named} has changed"),
        SyncRequest::CondJoin | SyncRequest::CondAwait => format!("condition variable {named} to be signalled"),
        SyncRequest::ReadLock | SyncRequest::TryReadLock => format!("reader-writer lock {named}, to read"),
        SyncRequest::WriteLock | SyncRequest::TryWriteLock => format!("reader-writer lock {named}, to write"),
        SyncRequest::SubsetBarrier => format!("the other threads at barrier {named}"),
    }
}

fn of_barrier(node: &Node, what: Collective, number: u32) -> String {
    let (threads, nodes) = node.sync.with_barrier(|b| {
        let (threads, nodes) = b.missing();
        (threads, node.arrival_words.missing(b).unwrap_or(nodes))
    });
    let mut missing: Vec<String> = nodes.iter().map(|n| node.name_of(*n)).collect();
    if threads > 0 {
        missing.insert(0, format!("{threads} of its own threads"));
    }
    let missing = match (missing.is_empty(), node.sync.with_barrier(|b| b.parent())) {
        (true, Some(parent)) => format!("{}, or others of which it would hear", node.name_of(parent)),
        (true, None) => "the release".to_string(),
        _ => missing.join(", "),
    };
    format!("{} (number {number}): missing {missing}", kinds::name(what.kind))
}
