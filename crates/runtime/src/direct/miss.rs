//! Runs the protocol of one miss.

use super::here::Here;
use crate::counters::Counters;
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
}

/// Brings the unit of `here`, makes the access on it, and counts what that took.
///
/// # Errors
/// Those of [`Reach::carry_out`].
pub(crate) fn run<R: Reach>(
    site: Site,
    reach: &mut R,
    here: &mut Here<'_>,
    counters: &Counters,
) -> Result<Outcome, R::Error> {
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
        Outcome::Fetched if here.want == Want::Load => counters.lines_read.add(1),
        Outcome::Fetched => counters.lines_written.add(1),
        Outcome::Upgraded => counters.upgrades.add(1),
        Outcome::Here | Outcome::Lost(_) => {}
    }
}
