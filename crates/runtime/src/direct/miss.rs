//! Runs the protocol of one miss, or of several side by side.

use super::here::{Here, Span};
use crate::counters::Counters;
use comem_protocol::coherence::direct::group::{Batches, Group};
use comem_protocol::coherence::direct::miss::Site;
use comem_protocol::coherence::direct::{Miss, Op, Outcome, Reply, Want};
use std::ops::ControlFlow;

/// How a thread reaches other nodes' memory.
pub(crate) trait Reach {
    /// Why it cannot.
    type Error;

    /// Carries out these operations, in this order; gives what the last one brought. What is about the thread's own
    /// node, or about nobody, is for [`Here::operate`].
    ///
    /// # Errors
    /// When a node is gone, or an operation is refused.
    fn carry_out(&mut self, batch: &[Op], here: &mut Here<'_>) -> Result<Reply, Self::Error>;

    /// Carries out the batches of several misses side by side. A miss's number is the index of its unit in `spans`, and
    /// of what the last operation of its batch brought in `replies`. `here` makes no access.
    ///
    /// # Errors
    /// As for [`Reach::carry_out`].
    fn carry_out_all(
        &mut self,
        batches: &Batches,
        spans: &[Span],
        here: &mut Here<'_>,
        replies: &mut [Reply],
    ) -> Result<(), Self::Error>;
}

/// Brings the unit of `here` and makes the access on it, or several units with no access.
///
/// # Errors
/// Those of [`Reach::carry_out`].
pub(crate) fn run<R: Reach>(
    (sites, spans): (&[Site], &[Span]),
    reach: &mut R,
    here: &mut Here<'_>,
    counters: &Counters,
) -> Result<Outcome, R::Error> {
    match sites {
        [site] => run_one(*site, reach, here, counters),
        _ => run_group((sites, spans), reach, here, counters),
    }
}

/// Brings the unit of `here`, makes the access on it, and counts what that took.
fn run_one<R: Reach>(site: Site, reach: &mut R, here: &mut Here<'_>, counters: &Counters) -> Result<Outcome, R::Error> {
    let (mut miss, mut batch) = Miss::start(site, here.want);
    loop {
        batch.iter().for_each(|op| count(op, here, counters));
        let reply = reach.carry_out(&batch, here)?;
        if matches!(&reply, Reply::Entry(entry) if entry.is_busy()) {
            here.retries += 1;
            counters.dir_retries.add(1);
        }
        match miss.next(reply) {
            ControlFlow::Continue(next) => batch = next,
            ControlFlow::Break(outcome) => {
                count_outcome(outcome, here, counters);
                return Ok(outcome);
            }
        }
    }
}

/// Brings several units side by side, and counts what that took. What another thread has in hand is left out.
///
/// # Errors
/// Those of [`Reach::carry_out`].
fn run_group<R: Reach>(
    (sites, spans): (&[Site], &[Span]),
    reach: &mut R,
    here: &mut Here<'_>,
    counters: &Counters,
) -> Result<Outcome, R::Error> {
    let (mut group, mut batches) = Group::start(sites.iter().copied(), here.want);
    let mut replies = vec![Reply::Done; sites.len()];
    while !batches.is_empty() {
        let is_quiesce = |op: &&Op| matches!(op, Op::Quiesce { .. });
        let ops = || batches.iter().flat_map(|(_, batch)| batch);
        ops().filter(|op| !is_quiesce(op)).for_each(|op| count(op, here, counters));
        // One barrier serves them all.
        ops().find(is_quiesce).into_iter().for_each(|op| count(op, here, counters));
        reach.carry_out_all(&batches, spans, here, &mut replies)?;
        let busy = replies.iter().filter(|reply| matches!(reply, Reply::Entry(entry) if entry.is_busy())).count();
        if busy > 0 {
            here.retries += busy as u64;
            counters.dir_retries.add(busy as u64);
        }
        if replies.contains(&Reply::Lost) {
            return Ok(Outcome::Lost(None));
        }
        batches = group.next(&batches, |number| std::mem::replace(&mut replies[number], Reply::Done));
    }
    let outcomes = group.outcomes().flatten();
    outcomes.for_each(|outcome| count_outcome(outcome, here, counters));
    Ok(Outcome::Here)
}

/// Operations on other nodes, by kind.
fn count(op: &Op, here: &mut Here<'_>, counters: &Counters) {
    if op.target(here.me).is_none() {
        return;
    }
    here.remote += u64::from(!matches!(op, Op::Pause { .. }));
    match op {
        Op::FetchAndSet { .. } => counters.remote_fetch_and_sets.add(1),
        Op::GetWide { .. } | Op::GetData { .. } => counters.remote_gets.add(1),
        Op::PutMagic { .. } => {
            counters.remote_puts.add(1);
            counters.magic_puts.add(1);
        }
        Op::PutEntry { .. } | Op::PutMirrors { .. } | Op::PutWide { .. } => counters.remote_puts.add(1),
        Op::Quiesce { .. } => counters.quiesces.add(1),
        Op::Pause { .. } | Op::Flush | Op::Peek | Op::Access => {}
    }
}

fn count_outcome(outcome: Outcome, here: &Here<'_>, counters: &Counters) {
    match outcome {
        Outcome::Fetched if matches!(here.want, Want::Load | Want::Bring) => counters.lines_read.add(1),
        Outcome::Fetched => counters.lines_written.add(1),
        Outcome::Upgraded => counters.upgrades.add(1),
        Outcome::Here | Outcome::Lost(_) | Outcome::GivenUp => {}
    }
}
