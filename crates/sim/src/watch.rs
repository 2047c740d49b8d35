//! The failure detectors of a simulated cluster, and what becomes of a job whose network is cut in places.

use comem_protocol::ids::NodeId;
use comem_protocol::node::membership::{Detector, Event, Transmit, WatchConfig};
use comem_protocol::node::watch::LossCause;
use comem_protocol::time::{Span, Time};

/// How often a node looks after its detector.
pub const TICK: Span = Span::from_ms(50);

/// The end of a node's part, since two nodes do not reach each other or one is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// When.
    pub at: Time,
    /// Which node is lost, as this one sees it.
    pub lost: NodeId,
    /// Who found that.
    pub reporter: NodeId,
    /// Why.
    pub why: LossCause,
}

/// One detector for each node.
#[derive(Debug)]
pub struct Watchers {
    config: WatchConfig,
    detectors: Vec<Detector>,
    ended: Vec<Option<Ended>>,
}

impl Watchers {
    /// Detectors of `nodes` nodes.
    pub fn new(nodes: usize, config: WatchConfig) -> Watchers {
        let detectors = NodeId::all(nodes).map(|me| Detector::new(me, nodes, config, Time(0))).collect();
        Watchers { config, detectors, ended: vec![None; nodes] }
    }

    /// What was sent by then, and not answered, is told to the detector.
    pub fn ask_before(&self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.config.ask_after().0))
    }

    /// Whether a node has ended.
    pub fn has_ended(&self, node: NodeId) -> bool {
        self.ended[node.index()].is_some()
    }

    /// Whether all have.
    pub fn all_ended(&self) -> bool {
        self.ended.iter().all(Option::is_some)
    }

    /// How each node's part ended, of those that did.
    pub fn into_ended(self) -> Vec<Option<Ended>> {
        self.ended
    }

    /// Steps a node's detector and gives what it sends.
    pub fn step(&mut self, now: Time, node: NodeId, step: impl FnOnce(&mut Detector)) -> Vec<Transmit> {
        let (detector, ended) = (&mut self.detectors[node.index()], &mut self.ended[node.index()]);
        if ended.is_some() {
            return Vec::new();
        }
        step(detector);
        while let Some(event) = detector.poll_event() {
            if let Event::Lost { node: lost, why, reporter, .. } = event {
                ended.get_or_insert(Ended { at: now, lost, reporter, why });
            }
        }
        // A node that ends sends first what is left.
        std::iter::from_fn(|| detector.poll_transmit()).collect()
    }
}
