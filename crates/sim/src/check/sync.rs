//! Locks, barriers, flags and messages between threads.

use crate::history::{Deed, Record, ThreadId};
use comem_protocol::ids::{FlagId, LockId, NodeId};
use std::collections::BTreeMap;

/// What is wrong with the synchronisation in a history. `complete`: every thread came to its end, so that nothing
/// may be missing.
pub fn violations(records: &[Record], complete: bool) -> Vec<String> {
    let mut found = mutual_exclusion(records);
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
    use crate::history::Stamp;

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
