//! Barriers, reductions and flags as a thread calls them.

use super::{Thread, cpu_ns};
use crate::collective_gate::{Call, is_coherent};
use crate::error::{Error, Result};
use crate::node::Waiting;
use comem_protocol::ids::FlagId;
use comem_protocol::sync::mismatch::Mismatch;
use comem_protocol::sync::reduce::{NUMBERS_MAX, Number, Operator, Reduction};
use comem_protocol::wire::message::Collective;

impl Thread {
    /// Waits until all threads of all nodes have come here.
    ///
    /// # Errors that end the node
    /// When another node makes a different collective call.
    pub fn barrier(&self) {
        self.must(self.checked_barrier());
    }

    /// As [`Thread::barrier`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn checked_barrier(&self) -> Result<()> {
        self.collective(Collective::BARRIER, &[], |_| ())?;
        self.counters().barriers.add(1);
        Ok(())
    }

    /// Waits until one thread of every node has come here: a barrier of nodes, for programs with thread pools of their
    /// own. It is a barrier for all memory, as [`Thread::barrier`] is: what any thread of a node wrote before its node
    /// arrived is seen by all threads of all nodes afterwards.
    ///
    /// While the call lasts the node's other threads neither use shared memory nor call Comem; a barrier of the pool
    /// before it and one behind it see to that.
    ///
    /// # Errors that end the node
    /// When another node makes a different collective call.
    pub fn node_barrier(&self) {
        self.must(self.checked_node_barrier());
    }

    /// As [`Thread::node_barrier`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn checked_node_barrier(&self) -> Result<()> {
        self.collective(Collective::NODES, &[], |_| ())?;
        self.counters().barriers.add(1);
        Ok(())
    }

    /// A barrier at the end of this node's part of what all do together. Other nodes may be in the middle of theirs and
    /// wait in other collective calls: those fail there, and this waits on until all have come to the end.
    ///
    /// # Errors
    /// When the job is over.
    pub fn leave(&self) -> Result<()> {
        loop {
            match self.collective(Collective::LEAVE, &[], |_| ()) {
                Err(Error::Mismatch(apart)) if apart.theirs == Collective::LEAVE && !apart.earlier => {}
                result => return result,
            }
        }
    }

    /// A barrier of one thread of every node that says nothing about memory.
    ///
    /// # Errors that end the node
    /// When another node makes a different collective call.
    pub fn rendezvous(&self) {
        self.must(self.checked_rendezvous());
    }

    /// As [`Thread::rendezvous`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn checked_rendezvous(&self) -> Result<()> {
        self.collective(Collective::RENDEZVOUS, &[], |_| ())
    }

    /// Takes part in a collective call and gives its result to `f`.
    pub(crate) fn collective<R>(&self, what: Collective, payload: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.tell_packed(what)?;
        self.operation(|| {
            self.slow_down();
            self.node.send_combined_of(self.slot, self.slot);
            self.let_pins_go();
            let slot = self.slot;
            let coherent = is_coherent(self.node.gate.is_some(), what);
            let call = if coherent { Call::begin(self)? } else { None };
            let (notices, gate) = if coherent { self.before_barrier(what, call.as_ref()) } else { Default::default() };
            let (number, by_word) = self.stepping(|out| {
                let now = self.node.now();
                self.node.sync.with_barrier(|b| {
                    let number = b.arrive(now, slot, what, (payload, &notices), out)?;
                    Ok::<_, Mismatch>((number, self.node.arrival_words.store(b)))
                })
            })?;
            if let Some(arrival) = by_word {
                self.node.arrival_words.arrive(self, arrival, (what, number))?;
            }
            while !self.node.sync.with_barrier(|b| b.is_open(what, number))? {
                self.wait(Waiting::Barrier(what, number))?;
            }
            let left = self.node.sync.with_barrier(|b| b.left(what));
            let result = if left.is_none() { Some(self.node.sync.with_barrier(|b| f(b.result(what)))) } else { None };
            if coherent {
                self.after_barrier(gate, call.as_ref())?;
            }
            self.take_pins_back()?;
            if self.node.config.slow > 1.0 {
                self.state.borrow_mut().left = Some(cpu_ns());
            }
            let apart =
                |node| Mismatch { node, theirs: Collective::LEAVE, mine: what, neighbour: false, earlier: false };
            result.ok_or_else(|| apart(left.unwrap_or(self.node.me())).into())
        })
    }

    /// On a node made slower: sleeps as long as the computation since the last call, times the factor less one. That
    /// counts as computing, too.
    pub(crate) fn slow_down(&self) {
        let factor = self.node.config.slow;
        if factor <= 1.0 {
            return;
        }
        let now = cpu_ns();
        // From here on counts for the next call: nothing is slept for twice.
        let since = self.state.borrow_mut().left.replace(now).unwrap_or(now);
        let start = self.node.now();
        std::thread::sleep(std::time::Duration::from_nanos(((now - since) as f64 * (factor - 1.0)) as u64));
        let slept = self.node.now() - start;
        self.state.borrow_mut().waits.add(slept);
    }

    /// Reduces vectors of integers over all threads; each thread's `values` become the result.
    ///
    /// # Errors that end the node
    /// As [`Thread::barrier`].
    pub fn reduce_i64(&self, operator: Operator, values: &mut [i64]) {
        self.must(self.checked_reduce_i64(operator, values));
    }

    /// As [`Thread::reduce_i64`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn checked_reduce_i64(&self, operator: Operator, values: &mut [i64]) -> Result<()> {
        self.reduce_i64_agreeing(0, operator, values)
    }

    #[doc(hidden)]
    pub fn reduce_i64_agreeing(&self, terms: u16, operator: Operator, values: &mut [i64]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
        let result = self.reduce((Reduction { operator, number: Number::I64 }, terms), &bytes)?;
        result.as_chunks::<8>().0.iter().zip(values).for_each(|(word, value)| *value = i64::from_be_bytes(*word));
        Ok(())
    }

    /// Reduces vectors of numbers over all threads; each thread's `values` become the result, the same bits
    /// everywhere.
    ///
    /// # Errors that end the node
    /// As [`Thread::barrier`].
    pub fn reduce_f64(&self, operator: Operator, values: &mut [f64]) {
        self.must(self.checked_reduce_f64(operator, values));
    }

    /// As [`Thread::reduce_f64`].
    ///
    /// # Errors
    /// When another node makes a different collective call.
    pub fn checked_reduce_f64(&self, operator: Operator, values: &mut [f64]) -> Result<()> {
        self.reduce_f64_agreeing(0, operator, values)
    }

    #[doc(hidden)]
    pub fn reduce_f64_agreeing(&self, terms: u16, operator: Operator, values: &mut [f64]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
        let result = self.reduce((Reduction { operator, number: Number::F64 }, terms), &bytes)?;
        result.as_chunks::<8>().0.iter().zip(values).for_each(|(word, value)| *value = f64::from_be_bytes(*word));
        Ok(())
    }

    /// Gives the result of all numbers, as bytes: where they are to go may be shared memory, of which some may have
    /// ended in the call, and whose fault would wait for others. Of no numbers too it is a barrier.
    fn reduce(&self, (reduction, terms): (Reduction, u16), bytes: &[u8]) -> Result<Vec<u8>> {
        let mut result = Vec::with_capacity(bytes.len());
        let mut parts = bytes.chunks(NUMBERS_MAX * 8);
        let first = parts.next().unwrap_or_default();
        for part in std::iter::once(first).chain(parts) {
            let what = Collective::reduce(reduction, part.len() / 8).agreeing(terms);
            self.collective(what, part, |reduced| result.extend_from_slice(reduced))?;
        }
        self.counters().reductions.add(1);
        Ok(result)
    }

    /// Raises a flag to `value`, unless it is that high already.
    pub fn flag_set(&self, flag: FlagId, value: u64) {
        self.operation(|| {
            self.node.send_combined_of(self.slot, self.slot);
            self.releasing(|| {
                self.stepping(|out| self.node.with_flags(flag, Some(self.slot), out, |f, cx| f.set(cx, flag, value)));
            });
            self.wait_for_send_queue();
        });
    }

    /// Waits until a flag has reached `value`; gives what it has reached.
    pub fn flag_wait(&self, flag: FlagId, value: u64) -> u64 {
        self.must(self.checked_flag_wait(flag, value))
    }

    /// As [`Thread::flag_wait`].
    ///
    /// # Errors
    /// When the job is over.
    pub fn checked_flag_wait(&self, flag: FlagId, value: u64) -> Result<u64> {
        self.operation(|| {
            let slot = self.slot;
            let now =
                self.stepping(|out| self.node.with_flags(flag, Some(slot), out, |f, cx| f.wait(cx, flag, slot, value)));
            if let Some(now) = now {
                self.after_acquire(None)?;
                return Ok(now);
            }
            self.let_pins_go();
            let reached = loop {
                if let Some(reached) = self.node.sync.flag_shard(flag).arrived(flag, value) {
                    break reached;
                }
                self.wait(Waiting::Flag(flag, value))?;
            };
            self.after_acquire(None)?;
            self.take_pins_back()?;
            Ok(reached)
        })
    }
}
