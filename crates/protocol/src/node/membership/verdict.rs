//! Which of two nodes is lost that do not reach each other: accusations are weighed, and all come to one verdict.

use super::{Detector, News, Watched};
use crate::ids::NodeId;
use crate::node::watch::{LossCause, WatchMessage};
use crate::rules::Rule;
use crate::time::{Span, Time};
use crate::wire::bytes::WireError;

/// How long all wait for others' accusations before they come to a verdict.
pub(super) const VERDICT_GRACE: Span = Span::from_ms(300);
/// So many accusations of one node are enough.
const ACCUSATIONS_ENOUGH: usize = 2;
/// Most accusations that are weighed.
const ACCUSATIONS_MAX: usize = 64;

/// Two nodes that do not reach each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Accusation {
    /// The smaller number first.
    pair: (NodeId, NodeId),
    why: LossCause,
}

impl Accusation {
    pub(super) fn concerns(&self, node: NodeId) -> bool {
        self.pair.0 == node || self.pair.1 == node
    }
}

/// What all accusations come to: the lost node, the other of its pair, why, and whether several nodes accuse it.
fn verdict(accusations: &[Accusation]) -> Option<(NodeId, NodeId, LossCause, bool)> {
    let count = |node: NodeId| accusations.iter().filter(|accusation| accusation.concerns(node)).count();
    let nodes = accusations.iter().flat_map(|accusation| [accusation.pair.0, accusation.pair.1]);
    let lost = nodes.max_by_key(|node| (count(*node), *node))?;
    let of_lost = accusations.iter().filter(|accusation| accusation.concerns(lost));
    let pair = of_lost.min_by_key(|accusation| accusation.pair)?;
    let other = if pair.pair.0 == lost { pair.pair.1 } else { pair.pair.0 };
    Some((lost, other, pair.why.clone(), count(lost) > 1))
}

impl Detector {
    /// This node does not reach another.
    pub(super) fn accuse(&mut self, now: Time, node: NodeId, why: LossCause) {
        if !Rule::AccusationsAreWeighed.on() {
            return self.lose(now, node, why, self.me);
        }
        if self.accused_by_me.contains(&node) {
            return;
        }
        self.accused_by_me.push(node);
        self.weigh(now, node, self.me, why);
    }

    /// Two nodes do not reach each other, as one of them says.
    pub(super) fn on_accusation(
        &mut self,
        now: Time,
        node: NodeId,
        reporter: NodeId,
        why: LossCause,
    ) -> Result<(), WireError> {
        if reporter.index() >= self.nodes.len() || reporter == node {
            return Err(WireError::BadValue("node number"));
        }
        if self.left || !self.is_alive(node) || !self.is_alive(reporter) {
            return Ok(());
        }
        self.weigh(now, node, reporter, why);
        // Whoever has not heard one of the two for long has found the same, and may be the one that tells which of them
        // it is.
        let joins_after = self.config.joins_after();
        let silent = |w: &&Watched| w.silent_since().is_some_and(|since| now - since >= joins_after);
        let concerned = self.watched.iter().filter(|w| w.node == node || w.node == reporter).filter(silent);
        let joins: Vec<NodeId> = concerned.map(|w| w.node).collect();
        joins.into_iter().for_each(|node| self.accuse(now, node, self.silence()));
        Ok(())
    }

    /// Adds an accusation to those that are weighed, and tells it, if it says something new: a second one of the same
    /// node shows that it is not a single way that is cut, and further ones would only multiply.
    fn weigh(&mut self, now: Time, node: NodeId, reporter: NodeId, why: LossCause) {
        let accusation = Accusation { pair: (node.min(reporter), node.max(reporter)), why };
        let count = |node: NodeId| self.accusations.iter().filter(|accusation| accusation.concerns(node)).count();
        let weight = count(node).max(count(reporter));
        let known = self.accusations.iter().any(|other| other.pair == accusation.pair);
        if known || weight >= ACCUSATIONS_ENOUGH || self.accusations.len() == ACCUSATIONS_MAX {
            return;
        }
        self.accusations.push(accusation);
        self.verdict_at.get_or_insert(now + VERDICT_GRACE);
        self.tell(now, News::Accused { node, reporter }, reporter == self.me);
    }

    /// Says which nodes are lost, once all have had time to say which pairs do not reach each other.
    pub(super) fn come_to_verdict(&mut self, now: Time) {
        if self.verdict_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        while let Some((lost, other, why, by_several)) = verdict(&self.accusations) {
            self.accusations.retain(|accusation| !accusation.concerns(lost));
            if self.is_alive(lost) {
                self.lose_by(now, lost, why, other, Some(by_several));
            }
        }
    }

    /// Tells a node of an accusation that is weighed still.
    pub(super) fn send_accusation(&mut self, to: NodeId, node: NodeId, reporter: NodeId) {
        let pair = (node.min(reporter), node.max(reporter));
        // Past the verdict that is told instead.
        if let Some(accusation) = self.accusations.iter().find(|accusation| accusation.pair == pair) {
            let why = accusation.why.clone();
            self.send(to, &WatchMessage::Accused { node, reporter, why });
        }
    }
}
