//! How long nodes wait for one another at the start.

use super::SILENCE;
use crate::config::Config;
use comem_protocol::ids::NodeId;
use comem_protocol::time::Span;

/// How long nodes usually wait for one another at the start.
fn usual_limit(config: &Config) -> Span {
    if let Some(Some(time)) = config.start_timeout {
        return Span(time.as_nanos() as u64);
    }
    Span::from_ms(if config.discover { 10_000 } else { 30_000 })
}

/// How long they do so here: longer where a node may be silent for longer, and as long as it takes where nobody is
/// taken for lost, as under a debugger.
pub(crate) fn start_limit(config: &Config) -> Option<Span> {
    if let Some(limit) = config.start_timeout {
        return limit.map(|_| usual_limit(config));
    }
    config.node_timeout.map(|timeout| usual_limit(config).max(Span(timeout.as_nanos() as u64)))
}

/// How long a node waits for others without a word. A launcher watches over its nodes by itself; one whose nodes wait
/// without a limit is told by node 0, once it has taken longer than it usually may.
pub(super) fn silence(config: &Config, launched: bool) -> Option<Span> {
    match launched {
        true => (config.node_timeout.is_none() && config.node == Some(NodeId(0))).then(|| usual_limit(config)),
        false if config.discover => Some(Span(2 * SILENCE.0)),
        false => Some(SILENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_others_may_come_as_late_as_a_node_may_be_silent() {
        let limit_of = |timeout: Option<u64>, discover: bool| {
            let mut config = Config::from_env().expect("no settings");
            (config.node_timeout, config.discover) = (timeout.map(Duration::from_secs), discover);
            start_limit(&config).map(|span| span.0 / 1_000_000_000)
        };
        assert_eq!([Some(10), Some(300), None].map(|t| limit_of(t, false)), [Some(30), Some(300), None]);
        assert_eq!([Some(10), Some(300), None].map(|t| limit_of(t, true)), [Some(10), Some(300), None]);
    }

    #[test]
    fn a_node_that_a_launcher_started_says_whom_it_waits_for_only_where_there_is_no_limit() {
        let silence_of = |node: Option<u16>, timeout: Option<u64>, launched: bool| {
            let mut config = Config::from_env().expect("no settings");
            (config.node, config.node_timeout) = (node.map(NodeId), timeout.map(Duration::from_secs));
            silence(&config, launched).map(|span| span.0 / 1_000_000_000)
        };
        assert_eq!(silence_of(None, Some(10), false), Some(2));
        assert_eq!(silence_of(None, None, false), Some(2));
        assert_eq!(silence_of(Some(0), Some(10), true), None);
        assert_eq!(silence_of(Some(0), None, true), Some(30));
        assert_eq!(silence_of(Some(1), None, true), None, "node 0 says it for all");
    }
}
