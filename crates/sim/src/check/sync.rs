//! Locks, semaphores, barriers, flags and messages between threads.

use crate::history::{Deed, Record, Stamp, ThreadId};
use comem_protocol::ids::{FlagId, LockId, NodeId};
use comem_protocol::sync::rwlock::RwLockId;
use comem_protocol::sync::semaphore::SemaphoreId;
use std::collections::BTreeMap;

/// What is wrong with the synchronisation in a history. `complete`: every thread came to its end, so that nothing
/// may be missing.
pub fn violations(records: &[Record], complete: bool) -> Vec<String> {
    let mut found = mutual_exclusion(records);
    found.extend(readers_and_writers(records));
    found.extend(semaphores(records));
    found.extend(barriers(records));
    found.extend(flags(records));
    found.extend(messages(records, complete));
    found
}

fn mutual_exclusion(records: &[Record]) -> Vec<String> {
    let mut locks: BTreeMap<LockId, Vec<&Record>> = BTreeMap::new();
    for record in records {
        if let Deed::Held { lock } = record.deed {
            locks.entry(lock).or_default().push(record);
        }
    }
    let mut found = Vec::new();
    for holds in locks.values_mut() {
        holds.sort_by_key(|r| r.begun);
        if let Some(pair) = holds.windows(2).find(|pair| pair[1].begun < pair[0].ended) {
            found.push(format!("two threads held one lock: {} and {}", pair[0], pair[1]));
        }
    }
    found
}

fn readers_and_writers(records: &[Record]) -> Vec<String> {
    let mut locks: BTreeMap<RwLockId, Vec<(&Record, bool)>> = BTreeMap::new();
    for record in records {
        if let Deed::Shared { lock, writes } = record.deed {
            locks.entry(lock).or_default().push((record, writes));
        }
    }
    let mut found = Vec::new();
    for holds in locks.values_mut() {
        holds.sort_by_key(|(r, _)| r.begun);
        // Those that ended last before, of all and of the writers.
        let (mut last, mut last_writer): (Option<&Record>, Option<&Record>) = (None, None);
        for (record, writes) in holds.iter() {
            let before = if *writes { last } else { last_writer };
            if let Some(before) = before.filter(|b| record.begun < b.ended) {
                found.push(format!("a writer was not alone: {before} and {record}"));
            }
            last = last.into_iter().chain([*record]).max_by_key(|r| r.ended);
            if *writes {
                last_writer = last_writer.into_iter().chain([*record]).max_by_key(|r| r.ended);
            }
        }
    }
    found
}

/// Nobody takes what has not been posted yet.
fn semaphores(records: &[Record]) -> Vec<String> {
    let mut deeds: BTreeMap<SemaphoreId, Vec<(Stamp, bool, &Record)>> = BTreeMap::new();
    for record in records {
        match record.deed {
            Deed::Posted { semaphore } => deeds.entry(semaphore).or_default().push((record.begun, false, record)),
            Deed::Took { semaphore } => deeds.entry(semaphore).or_default().push((record.ended, true, record)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for deeds in deeds.values_mut() {
        deeds.sort_by_key(|(at, took, _)| (*at, *took));
        let mut count = 0_u64;
        for (_, took, record) in deeds.iter() {
            match (took, count.checked_sub(1)) {
                (false, _) => count += 1,
                (true, Some(left)) => count = left,
                (true, None) => found.push(format!("a thread took what nobody had posted: {record}")),
            }
        }
    }
    found
}

fn barriers(records: &[Record]) -> Vec<String> {
    let mut counts: BTreeMap<ThreadId, usize> = BTreeMap::new();
    let mut rounds: Vec<Vec<(&Record, i64, i64)>> = Vec::new();
    for record in records {
        if let Deed::Barrier { brought, result } = record.deed {
            let count = counts.entry(record.thread).or_default();
            if rounds.len() == *count {
                rounds.push(Vec::new());
            }
            rounds[*count].push((record, brought, result));
            *count += 1;
        }
    }
    let threads = counts.len();
    let mut found = Vec::new();
    for (number, round) in rounds.iter().enumerate() {
        let (last, first) = (round.iter().max_by_key(|r| r.0.begun), round.iter().min_by_key(|r| r.0.ended));
        if let (Some((last, ..)), Some((first, ..))) = (last, first)
            && first.ended < last.begun
        {
            found.push(format!("thread {} left barrier {number} before thread {} came", first.thread, last.thread));
        }
        let sum: i64 = round.iter().map(|r| r.1).sum();
        if let Some((wrong, _, result)) = round.iter().find(|r| round.len() == threads && r.2 != sum) {
            found.push(format!("barrier {number} summed {sum}, but thread {} got {result}", wrong.thread));
        }
    }
    found
}

fn flags(records: &[Record]) -> Vec<String> {
    let mut sets: BTreeMap<FlagId, Vec<(&Record, u64)>> = BTreeMap::new();
    for record in records {
        if let Deed::Set { flag, value } = record.deed {
            sets.entry(flag).or_default().push((record, value));
        }
    }
    let mut found = Vec::new();
    for record in records {
        if let Deed::Awaited { flag, value, got } = record.deed {
            let raised = sets.get(&flag).is_some_and(|s| s.iter().any(|(r, v)| *v == got && r.begun < record.ended));
            if got < value || (!raised && value > 0) {
                found.push(format!("a thread passed a flag that nobody had raised: {record}"));
            }
        }
    }
    found
}

fn messages(records: &[Record], complete: bool) -> Vec<String> {
    let mut balance: BTreeMap<(NodeId, ThreadId, u64), i64> = BTreeMap::new();
    for record in records {
        match record.deed {
            Deed::Sent { to, value } => *balance.entry((record.thread.0, to, value)).or_default() += 1,
            Deed::Received { from, value } => *balance.entry((from, record.thread, value)).or_default() -= 1,
            _ => {}
        }
    }
    let wrong = balance.iter().filter(|(_, left)| **left < 0 || (**left > 0 && complete));
    wrong
        .map(|((from, to, value), left)| match left {
            1.. => format!("message {value} from {from} to thread {to} was lost"),
            _ => format!("message {value} from {from} to thread {to} came {} times too often", -left),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(thread: u16, begun: u64, ended: u64, deed: Deed) -> Record {
        Record { thread: ThreadId(NodeId(thread), 0), begun: Stamp(begun), ended: Stamp(ended), deed }
    }

    #[test]
    fn two_in_a_critical_section_are_found() {
        let held = Deed::Held { lock: LockId(1) };
        assert!(violations(&[record(0, 1, 5, held), record(1, 6, 9, held)], true).is_empty());
        assert_eq!(violations(&[record(0, 1, 5, held), record(1, 4, 9, held)], true).len(), 1);
    }

    #[test]
    fn a_writer_in_company_is_found() {
        let shared =
            |thread, begun, ended, writes| record(thread, begun, ended, Deed::Shared { lock: RwLockId(1), writes });
        let readers = [shared(0, 1, 5, false), shared(1, 3, 9, false), shared(2, 4, 6, false)];
        assert!(violations(&[&readers[..], &[shared(0, 10, 12, true)]].concat(), true).is_empty());
        assert_eq!(violations(&[&readers[..], &[shared(0, 8, 12, true)]].concat(), true).len(), 1);
        assert_eq!(violations(&[shared(0, 1, 5, true), shared(1, 2, 3, false)], true).len(), 1);
        assert_eq!(violations(&[shared(0, 1, 5, true), shared(1, 4, 6, true)], true).len(), 1);
    }

    #[test]
    fn taking_what_nobody_posted_is_found() {
        let posted = |begun| record(0, begun, begun, Deed::Posted { semaphore: SemaphoreId(1) });
        let took = |ended| record(1, 1, ended, Deed::Took { semaphore: SemaphoreId(1) });
        assert!(violations(&[posted(3), posted(5), took(4), took(6)], true).is_empty());
        assert_eq!(violations(&[posted(3), posted(9), took(4), took(6)], true).len(), 1);
    }

    #[test]
    fn leaving_a_barrier_early_and_a_wrong_sum_are_found() {
        let pass = |result| Deed::Barrier { brought: 2, result };
        assert!(violations(&[record(0, 1, 7, pass(4)), record(1, 6, 9, pass(4))], true).is_empty());
        assert_eq!(violations(&[record(0, 1, 5, pass(4)), record(1, 6, 9, pass(4))], true).len(), 1);
        assert_eq!(violations(&[record(0, 1, 7, pass(4)), record(1, 6, 9, pass(2))], true).len(), 1);
    }

    #[test]
    fn a_flag_that_nobody_raised_is_found() {
        let awaited = record(1, 1, 9, Deed::Awaited { flag: FlagId(1), value: 2, got: 2 });
        let set = |begun| record(0, begun, begun + 1, Deed::Set { flag: FlagId(1), value: 2 });
        assert!(violations(&[set(5), awaited], true).is_empty());
        assert_eq!(violations(&[awaited, set(10)], true).len(), 1);
    }

    #[test]
    fn lost_and_doubled_messages_are_found() {
        let to = ThreadId(NodeId(1), 0);
        let sent = record(0, 1, 2, Deed::Sent { to, value: 5 });
        let received = record(1, 3, 3, Deed::Received { from: NodeId(0), value: 5 });
        assert!(violations(&[sent, received], true).is_empty());
        assert_eq!(violations(&[sent], true).len(), 1);
        assert!(violations(&[sent], false).is_empty());
        assert_eq!(violations(&[sent, received, received], true).len(), 1);
    }
}
