//! Barriers, reductions, locks and flags as a thread calls them.

use super::{Thread, cpu_ns, misuse};
use crate::collective_gate::{CollectiveGate, is_coherent};
use crate::error::{Error, Result};
use crate::node::Waiting;
use comem_protocol::ids::{FlagId, LockId};
use comem_protocol::sync::Context;
use comem_protocol::sync::lock::{Acquire, Locks};
use comem_protocol::sync::mismatch::Mismatch;
use comem_protocol::sync::reduce::{NUMBERS_MAX, Number, Operator, Reduction};
use comem_protocol::time::Time;
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
        self.tell_packed()?;
        self.operation(|| {
            self.slow_down();
            self.node.send_combined_of(self.slot, self.slot);
            self.let_pins_go();
            let slot = self.slot;
            let coherent = is_coherent(self.node.gate.is_some(), what);
            let call = if coherent { self.begin_call()? } else { None };
            let (notices, gate) = if coherent { self.before_barrier(what, call.as_ref()) } else { Default::default() };
            let (number, by_word) = self.stepping(|out| {
                let now = self.node.now();
                self.node.sync.with_barrier(|b| {
                    let number = b.arrive(now, slot, what, (payload, &notices), out)?;
                    Ok::<_, Mismatch>((number, self.node.arrival_words.store(b)))
                })
            })?;
            if let Some(arrival) = by_word {
                self.arrive_by_word(arrival, (what, number))?;
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

    /// Acquires a lock, without a guard: for languages whose locks have none. [`Thread::raw_unlock`] releases it.
    ///
    /// # Errors
    /// When this thread holds the lock already, or a node is lost.
    pub fn raw_lock(&self, lock: LockId) -> Result<()> {
        // What others ask for is looked at when the lock is released, or by who waits for it.
        self.node.send_combined_of(self.slot, self.slot);
        self.counters().lock_acquires.add(1);
        match &self.node.gate {
            None if self.takes_at_once(lock)? => {}
            None => self.takes_later(lock)?,
            Some(sections) => self.lock_in_section(sections, lock)?,
        }
        self.locks.one_more();
        Ok(())
    }

    /// As [`Thread::try_lock`], without a guard; whether this thread holds the lock now and did not before.
    ///
    /// # Errors
    /// When a node is lost.
    pub fn raw_try_lock(&self, lock: LockId) -> Result<bool> {
        // A thread that tries again and again sees to it that what it waits for comes in.
        self.node.serve_at_call(self.slot, None);
        self.node.send_combined_of(self.slot, self.slot);
        let may_begin = || self.node.gate.as_ref().is_none_or(|sections| sections.begin_at_once(self.slot));
        if self.node.holds_lock(lock, self.slot) || !may_begin() {
            return self.node.life.goes_on().map(|()| false);
        }
        let taken = match self.node.sync.lock_tables() {
            Some(tables) => self.takes_free(tables, lock),
            None => self.takes_free_token(lock),
        };
        if matches!(taken, Ok(true)) {
            self.counters().lock_acquires.add(1);
            self.locks.one_more();
            return Ok(true);
        }
        self.node.gate.iter().for_each(|sections| self.end_section(sections));
        taken.and_then(|_| self.node.life.goes_on()).map(|()| false)
    }

    /// Takes a lock whose token is here and free; else asks for the token, for no thread, and does not wait.
    fn takes_free_token(&self, lock: LockId) -> Result<bool> {
        if self.retakes(lock)? {
            return Ok(true);
        }
        let slot = self.slot;
        let take = |l: &mut Locks, cx: &mut Context<'_>| l.try_acquire(cx, lock, slot);
        let mut taken = self.stepping(|out| self.node.with_locks(lock, Some(slot), out, take));
        if !taken {
            // A token that was published comes at once.
            self.node.request_tokens(slot, &[lock]);
            taken = self.node.sync.lock_shard(lock).reacquire_local(lock, slot);
        }
        if taken {
            self.operation(|| self.after_acquire(Some(lock)))?;
        }
        Ok(taken)
    }

    /// Takes a lock without a message and without waiting; whether it did.
    #[inline]
    fn takes_at_once(&self, lock: LockId) -> Result<bool> {
        match self.node.sync.lock_tables() {
            Some(tables) => self.takes_free(tables, lock),
            None => self.retakes(lock),
        }
    }

    /// Takes a lock that [`Thread::takes_at_once`] did not.
    fn takes_later(&self, lock: LockId) -> Result<()> {
        match self.node.sync.lock_tables() {
            Some(tables) => self.takes_in_turn(tables, lock),
            None => self.fetch_lock(lock),
        }
    }

    /// A lock last held here: no message, and no clock either. Whether it is one, and is held now.
    fn retakes(&self, lock: LockId) -> Result<bool> {
        if !self.node.sync.lock_shard(lock).reacquire_local(lock, self.slot) {
            return Ok(false);
        }
        if self.node.awaits_diffs() {
            // The token has come while no thread waited for it.
            self.operation(|| self.after_acquire(Some(lock)))?;
        }
        Ok(true)
    }

    /// Acquires a lock where another thread of the node may make a collective call meanwhile.
    fn lock_in_section(&self, sections: &CollectiveGate, lock: LockId) -> Result<()> {
        loop {
            let entry = self.begin_section(sections)?;
            match self.takes_at_once(lock) {
                Ok(false) => {}
                Ok(true) => return Ok(()),
                Err(error) => {
                    self.end_section(sections);
                    return Err(error);
                }
            }
            // Who waits for a token holds nothing, however patient, so nobody may wait for that: the token may be where
            // it stays until the call is over.
            self.end_section(sections);
            self.takes_later(lock)?;
            if sections.begin(self.slot, entry) {
                return Ok(());
            }
            let slot = self.slot;
            match self.node.sync.lock_tables() {
                Some(tables) => _ = self.lets_go(tables, lock)?,
                None => self
                    .stepping(|out| self.node.with_locks(lock, Some(slot), out, |l, cx| l.hand_back(cx, lock, slot))),
            }
        }
    }

    fn fetch_lock(&self, lock: LockId) -> Result<()> {
        self.operation(|| {
            let slot = self.slot;
            if self.node.sync.lock_shard(lock).holds(lock, slot) {
                return Err(Error::LockHeld { thread: self.id(), lock });
            }
            let (first, asked) = self.stepping(|out| {
                let first = self.node.with_locks(lock, Some(slot), out, |l, cx| l.acquire(cx, lock, slot));
                (first, !out.sends().is_empty())
            });
            if first == Acquire::Held {
                // The token has come since `reacquire_local`, while no thread waited for it.
                return if self.node.awaits_diffs() { self.after_acquire(Some(lock)) } else { Ok(()) };
            }
            if first == Acquire::Taken {
                self.counters().lock_remote.add(1);
                self.counters().lock_taken.add(1);
                return self.after_acquire(Some(lock));
            }
            let start = if asked { self.node.now() } else { Time(0) };
            if asked {
                self.counters().lock_remote.add(1);
                self.node.schedule.step(|machine| machine.token_requested(lock, start));
            }
            self.slow_down();
            self.let_pins_go();
            while !self.node.sync.lock_shard(lock).holds(lock, slot) {
                self.wait(Waiting::Lock(lock))?;
            }
            if asked {
                self.node.token_arrived(slot, lock, start);
            }
            self.after_acquire(Some(lock))?;
            self.take_pins_back()
        })
    }

    /// Releases a lock that this thread has acquired by [`Thread::raw_lock`].
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_unlock(&self, lock: LockId) -> Result<()> {
        self.node.serve_at_call(self.slot, Some(lock));
        self.node.send_combined_of(self.slot, self.slot);
        match self.node.sync.lock_tables() {
            Some(tables) if self.lets_go(tables, lock)? => {}
            Some(_) => return Err(misuse::holds_it_not(self.id(), lock)),
            None if self.node.sync.lock_shard(lock).release_local(lock, self.slot, || self.node.mark()) => {}
            None => self.give_lock(lock)?,
        }
        self.node.gate.iter().for_each(|sections| self.end_section(sections));
        self.locks.one_less();
        Ok(())
    }

    fn give_lock(&self, lock: LockId) -> Result<()> {
        self.operation(|| {
            let slot = self.slot;
            let released =
                self.stepping(|out| self.node.with_locks(lock, Some(slot), out, |l, cx| l.release(cx, lock, slot)));
            released.map_err(|_| misuse::holds_it_not(self.id(), lock))
        })
    }

    /// Acquires a lock, and under the engine `scope` with it what all who released it had written until then, whatever
    /// lock it was written under: Brazos's lazy acquire. Under other engines every acquire is of that kind. Where the
    /// token has come without that, all other nodes are asked, one after the other.
    ///
    /// # Errors
    /// When this thread holds the lock already, or a node is lost.
    pub fn raw_lock_lazily(&self, lock: LockId) -> Result<()> {
        self.node.intervals().into_iter().for_each(|mut intervals| intervals.require_full_notices_always(lock));
        self.raw_lock(lock)?;
        let is_partial = self.node.intervals().is_some_and(|intervals| intervals.has_partial_notices(lock));
        if is_partial { self.catch_up(lock) } else { Ok(()) }
    }

    /// Learns what the token of a lock that this thread holds did not bring.
    fn catch_up(&self, lock: LockId) -> Result<()> {
        let slot = self.slot;
        self.operation(|| {
            while self.stepping(|out| self.node.with_locks(lock, Some(slot), out, |l, cx| l.catch_up(cx, lock))) {
                self.wait(Waiting::Lock(lock))?;
            }
            self.node.intervals().into_iter().for_each(|mut intervals| intervals.has_caught_up(lock));
            self.after_acquire(Some(lock))
        })
    }

    /// Releases a lock; under the engine `scope` whoever acquires it until the next barrier of all sees what this
    /// thread has written until now, whatever lock it was written under: Brazos's release-consistent release. Under
    /// other engines every release is of that kind.
    ///
    /// # Errors
    /// When this thread does not hold the lock.
    pub fn raw_unlock_widely(&self, lock: LockId) -> Result<()> {
        self.node.intervals().into_iter().for_each(|mut intervals| intervals.require_full_notices(lock));
        self.raw_unlock(lock)
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
