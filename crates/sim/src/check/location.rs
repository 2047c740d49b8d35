//! Each element by itself is one place: its reads and writes must fit a single order that agrees with the order in time
//! of those that did not overlap (linearisability, which implies per-location order and that no update is lost).
//!
//! Every write of an element stores a value of its own, so the reads of that value belong to it. Take the write and its
//! reads together: the time from the first end among them to the last beginning is when the value was certainly in
//! force (a *forward* zone; if the last beginning comes first, the value was in force at some moment within a
//! *backward* zone). The history fits an order exactly if no two forward zones overlap and no backward zone lies within
//! a forward one (Gibbons and Korach, "Testing shared memories", 1997).

use crate::history::{Deed, Record, Stamp};
use std::collections::BTreeMap;

/// All accesses of one value.
#[derive(Clone, Debug)]
struct Cluster {
    value: u64,
    write: Option<(Stamp, Stamp)>,
    first_end: Stamp,
    last_begin: Stamp,
}

impl Cluster {
    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
    fn low(&self) -> Stamp {
        self.first_end.min(self.last_begin)
    }
    fn high(&self) -> Stamp {
        self.first_end.max(self.last_begin)
    }
}

type Values = BTreeMap<u64, Cluster>;

/// What is wrong with the accesses of every element.
pub fn violations(records: &[Record]) -> Vec<String> {
    let mut found = Vec::new();
    let mut elements: BTreeMap<usize, Values> = BTreeMap::new();
    for record in records {
        match record.deed {
            Deed::Write { element, value } => {
                let values = elements.entry(element).or_default();
                let cluster = take_in(values, value, record);
                if cluster.write.is_none() {
                    cluster.write = Some((record.begun, record.ended));
                } else {
                    found.push(format!("lost update: element {element} got value {value} twice; again by {record}"));
                }
            }
            Deed::Read { element, value } => {
                take_in(elements.entry(element).or_default(), value, record);
            }
            Deed::Torn { element } => found.push(format!("element {element} was torn: {record}")),
            _ => {}
        }
    }
    for (element, mut values) in elements {
        if let Some(zero) = values.get_mut(&0) {
            zero.write.get_or_insert_default();
            zero.first_end = Stamp(0);
        }
        found.extend(order(element, &values));
    }
    found
}

fn take_in<'a>(values: &'a mut Values, value: u64, record: &Record) -> &'a mut Cluster {
    let new = Cluster { value, write: None, first_end: record.ended, last_begin: record.begun };
    let cluster = values.entry(value).or_insert(new);
    cluster.first_end = cluster.first_end.min(record.ended);
    cluster.last_begin = cluster.last_begin.max(record.begun);
    cluster
}

fn order(element: usize, values: &Values) -> Option<String> {
    for cluster in values.values() {
        match cluster.write {
            None => return Some(format!("element {element}: somebody read {}, which nobody wrote", cluster.value)),
            Some((begun, _)) if cluster.first_end < begun => {
                return Some(format!("element {element}: {} was read before it was written", cluster.value));
            }
            Some(_) => {}
        }
    }
    let (forward, backward): (Vec<&Cluster>, Vec<&Cluster>) = values.values().partition(|c| c.is_forward());
    let mut sorted = forward;
    sorted.sort_by_key(|c| c.low());
    if let Some(pair) = sorted.windows(2).find(|pair| pair[1].low() < pair[0].high()) {
        return Some(format!(
            "element {element}: values {} and {} were both in force at step {}: an old value was read, or an update \
             lost",
            pair[0].value,
            pair[1].value,
            pair[1].low().0
        ));
    }
    // Forward zones do not overlap here, so the last one that begins before a backward zone is the only candidate.
    backward.iter().find_map(|inner| {
        let before = sorted.partition_point(|outer| outer.low() < inner.low());
        let outer = sorted.get(before.checked_sub(1)?)?;
        (inner.high() < outer.high()).then(|| {
            format!(
                "element {element}: value {} came and went while {} was in force, steps {} to {}",
                inner.value,
                outer.value,
                outer.low().0,
                outer.high().0
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ThreadId;
    use comem_protocol::ids::NodeId;

    fn record(thread: u16, begun: u64, ended: u64, deed: Deed) -> Record {
        Record { thread: ThreadId(NodeId(thread), 0), begun: Stamp(begun), ended: Stamp(ended), deed }
    }
    fn write(thread: u16, begun: u64, ended: u64, value: u64) -> Record {
        record(thread, begun, ended, Deed::Write { element: 0, value })
    }
    fn read(thread: u16, begun: u64, ended: u64, value: u64) -> Record {
        record(thread, begun, ended, Deed::Read { element: 0, value })
    }

    #[test]
    fn overlapping_accesses_may_take_either_order() {
        assert!(violations(&[write(0, 1, 10, 7), read(1, 2, 3, 0), read(1, 4, 5, 7)]).is_empty());
        assert!(violations(&[write(0, 1, 10, 7), write(1, 1, 10, 8), read(2, 11, 12, 7)]).is_empty());
    }

    #[test]
    fn an_old_value_after_a_new_one_is_found() {
        assert_eq!(violations(&[write(0, 1, 2, 7), read(1, 3, 4, 0)]).len(), 1);
        assert_eq!(violations(&[write(0, 1, 10, 7), read(1, 2, 3, 7), read(2, 4, 5, 0)]).len(), 1);
        let flip = [write(0, 1, 20, 7), write(1, 1, 20, 8), read(2, 2, 3, 7), read(2, 4, 5, 8), read(2, 6, 7, 7)];
        assert_eq!(violations(&flip).len(), 1);
    }

    #[test]
    fn a_write_that_left_no_trace_between_two_reads_is_a_lost_update() {
        assert_eq!(violations(&[write(0, 1, 2, 7), read(0, 3, 4, 7), write(1, 5, 6, 8), read(0, 7, 8, 7)]).len(), 1);
        assert_eq!(violations(&[write(0, 1, 2, 7), write(1, 5, 6, 7)]).len(), 1);
    }

    #[test]
    fn values_from_nowhere_and_from_the_future_are_found() {
        assert_eq!(violations(&[read(1, 3, 4, 9)]).len(), 1);
        assert_eq!(violations(&[read(1, 3, 4, 9), write(0, 5, 6, 9)]).len(), 1);
    }
}
