//! The list of active chunks, as the runtime keeps it: a close comes by these and no others.
//!
//! A step of a chunk looks at its end whether something may be dirty there, and puts the chunk into the list if it is
//! not in it. The chunk is locked as long, but the list is not: what the step maps, protects and copies is before the
//! node's other threads at once, and one of them may store and end its interval before the chunk is listed. So a step
//! that lists its chunk leaves it *late* for a while, in which its caller does nothing else.

use comem_protocol::ids::Slot;

/// Which chunks a close comes by.
#[derive(Debug)]
pub(in crate::pages) struct Active {
    list: Vec<usize>,
    /// Which chunks are in the list, or in the hands of whoever took it to end an interval.
    listed: Vec<bool>,
    /// Chunks whose last step has done its work and has not listed them yet, with its caller.
    late: Vec<(Option<Slot>, usize)>,
}

impl Active {
    /// Of so many chunks none.
    pub(super) fn new(chunks: usize) -> Active {
        Active { list: Vec::new(), listed: vec![false; chunks], late: Vec::new() }
    }

    /// Puts a chunk into the list.
    pub(super) fn put(&mut self, chunk: usize) {
        if !std::mem::replace(&mut self.listed[chunk], true) {
            self.list.push(chunk);
        }
    }

    /// A step of a chunk begins: the caller's last one is over, and so is this chunk's.
    pub(super) fn step_begins(&mut self, caller: Option<Slot>, chunk: usize) {
        self.settle(|by, at| by == caller || at == chunk);
    }

    /// A step after which something may be dirty comes to its end.
    pub(super) fn step_ends(&mut self, caller: Option<Slot>, chunk: usize) {
        if !self.listed[chunk] {
            self.late.push((caller, chunk));
        }
    }

    /// The caller goes on behind its last step.
    pub(in crate::pages) fn goes_on(&mut self, caller: Option<Slot>) {
        self.settle(|by, _| by == caller);
    }

    /// All steps are over.
    pub(in crate::pages) fn all_go_on(&mut self) {
        self.settle(|_, _| true);
    }

    /// Whether the caller's last step is not over.
    pub(in crate::pages) fn is_late(&self, caller: Option<Slot>) -> bool {
        self.late.iter().any(|(by, _)| *by == caller)
    }

    fn settle(&mut self, is_over: impl Fn(Option<Slot>, usize) -> bool) {
        let over: Vec<usize> = self.late.extract_if(.., |(by, at)| is_over(*by, *at)).map(|(_, at)| at).collect();
        over.into_iter().for_each(|at| self.put(at));
    }

    /// What is in the list.
    pub(super) fn chunks(&self) -> &[usize] {
        &self.list
    }

    /// Takes the list, in order, to end an interval.
    pub(super) fn take(&mut self) -> Vec<usize> {
        let mut list = std::mem::take(&mut self.list);
        list.sort_unstable();
        list
    }

    /// A chunk of a list that was taken has its turn: it comes back if something may be dirty afterwards.
    pub(super) fn strike(&mut self, chunk: usize) {
        self.listed[chunk] = false;
    }

    /// Another chunk has its place, of which nothing is known yet.
    pub(in crate::pages) fn forget(&mut self, chunk: usize) {
        self.listed[chunk] = false;
        self.list.retain(|at| *at != chunk);
        self.late.retain(|(_, at)| *at != chunk);
    }

    /// The close has passed over these chunks of the list that it took.
    pub(super) fn give_back(&mut self, passed_over: Vec<usize>) {
        self.list.extend(passed_over);
    }
}
