//! Replies that are asked for again and again. A reply is not acknowledged: only this tells the node that made it that
//! it does not arrive. Where another node was asked, which handed the request on, nobody else can tell on which way
//! replies are lost.

use crate::ids::{NodeId, Seq};
use crate::time::{Span, Time};

/// Most replies that are remembered.
const REPLIES_MAX: usize = 16;
/// A reply that was not asked for again for so long has arrived: requests are repeated more often.
const ARRIVED_AFTER: Span = Span::from_ms(4_000);

#[derive(Clone, Copy, Debug)]
struct Repeated {
    seq: Seq,
    node: NodeId,
    since: Time,
    last: Time,
}

/// The replies of one node that were asked for again lately.
#[derive(Clone, Debug, Default)]
pub struct RepeatedReplies(Vec<Repeated>);

impl RepeatedReplies {
    /// `node` lacks the reply to request `seq`.
    pub fn note(&mut self, now: Time, node: NodeId, seq: Seq) {
        if let Some(known) = self.0.iter_mut().find(|known| known.seq == seq) {
            known.last = now;
            return;
        }
        self.forget(now);
        if self.0.len() == REPLIES_MAX {
            // The youngest says least.
            self.0.pop();
        }
        self.0.push(Repeated { seq, node, since: now, last: now });
    }

    /// Nodes that have lacked a reply since `before` or longer, each with the time since when.
    pub fn unanswered(&mut self, now: Time, before: Time) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        self.forget(now);
        self.0.iter().filter(move |known| known.since <= before).map(|known| (known.node, known.since))
    }

    fn forget(&mut self, now: Time) {
        self.0.retain(|known| now - known.last < ARRIVED_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Channel;

    #[test]
    fn what_is_asked_for_again_and_again_is_told_until_it_is_not() {
        let seq = |counter| Seq::guarded(Channel::service(NodeId(3)), counter);
        let at = |ms: u64| Time(ms * 1_000_000);
        let mut replies = RepeatedReplies::default();
        (0..40).for_each(|i| replies.note(at(i * 100), NodeId(3), seq(7)));
        (0..40).for_each(|i| replies.note(at(3_900), NodeId(4), seq(100 + i)));
        let told = |replies: &mut RepeatedReplies, now| replies.unanswered(now, at(1_000)).collect::<Vec<_>>();
        assert_eq!(told(&mut replies, at(3_900)), [(NodeId(3), at(0))]);
        assert!(replies.0.len() <= REPLIES_MAX);
        assert_eq!(told(&mut replies, at(8_000)), []);
    }
}
