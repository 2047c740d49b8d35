//! What happens when time passes: packets count as lost, and requests ask for their replies again.

use super::peer::{self, Repeat};
use super::{Sender, State, Target};
use crate::link::lane_of;
use crate::link::rtt::doubled;
use crate::time::Time;

/// While a reply is half in, every so many wishes for the rest it is the request itself that is repeated.
const RESENDS_PER_PROBE: u8 = 4;

impl Sender {
    /// When to call [`Sender::on_timeout`] (and then [`Sender::poll_transmit`]) at the latest; `None` when nothing is
    /// to be waited for.
    pub fn next_timeout(&self) -> Option<Time> {
        let timer = (self.live > 0).then_some(self.timer).filter(|t| t.0 != u64::MAX);
        match (timer, self.held_until) {
            (Some(timer), Some(held)) => Some(timer.min(held)),
            (timer, held) => timer.or(held),
        }
    }

    /// Looks for what has waited too long. Does nothing before [`Sender::next_timeout`].
    pub fn on_timeout(&mut self, now: Time) {
        if now < self.timer {
            return;
        }
        self.timer = Time(u64::MAX);
        for at in 0..self.messages.len() {
            if self.messages[at].live {
                self.look_for_losses(now, at);
                self.look_for_reply(now, at);
            }
        }
    }

    fn look_for_losses(&mut self, now: Time, at: usize) {
        let (first, count) = (self.messages[at].first, self.messages[at].cut.count as u64);
        if self.messages[at].left == 0 {
            return;
        }
        for counter in first..first + count {
            let sent = &self.packets[(counter - self.oldest()) as usize];
            match sent.state {
                State::InFlight | State::Scattered if sent.deadline <= now => self.on_packet_overdue(now, at, counter),
                State::InFlight | State::Scattered => {
                    self.arm(self.packets[(counter - self.oldest()) as usize].deadline)
                }
                State::Queued | State::Lost | State::Received => {}
            }
        }
    }

    fn on_packet_overdue(&mut self, now: Time, at: usize, counter: u64) {
        self.counters.timeouts += 1;
        let index = (counter - self.oldest()) as usize;
        let sent = &mut self.packets[index];
        match &self.messages[at].target {
            Target::Node(node, _) => {
                let node = *node;
                let peer = peer::of(&mut self.peers, node);
                sent.state = State::Lost;
                peer.in_flight -= 1;
                peer.rtt.on_vain_wait(now, sent.times.saturating_sub(1), &self.config);
                if peer.last_heard < sent.at {
                    peer.congestion.on_silence(now, sent.at);
                } else {
                    peer.congestion.on_lost(now, sent.at, &peer.rtt);
                }
                peer.lanes[lane_of(self.messages[at].ty)].repeat.push_back(Repeat::Packet(counter));
                self.make_ready(node);
            }
            Target::Group(group) => {
                if sent.state == State::InFlight {
                    self.group.in_flight -= 1;
                    self.group.congestion.on_lost(now, sent.at, &self.group.rtt);
                }
                sent.state = State::Scattered;
                sent.deadline = now + self.group.rtt.timeout_after(&self.config, sent.times);
                sent.times = sent.times.saturating_add(1);
                let deadline = sent.deadline;
                for node in group.lacks((counter - self.messages[at].first) as usize) {
                    let peer = peer::of(&mut self.peers, node);
                    peer.lanes[0].repeat.push_back(Repeat::Copy(counter));
                    if !peer.ready {
                        peer.ready = true;
                        self.ready.push_back(node);
                    }
                }
                self.arm(deadline);
            }
        }
    }

    fn look_for_reply(&mut self, now: Time, at: usize) {
        let message = &mut self.messages[at];
        let (Some(wait), Target::Node(node, _)) = (message.wait, &message.target) else { return };
        let node = *node;
        if wait > now {
            self.arm(wait);
            return;
        }
        self.counters.timeouts += 1;
        let half_in = message.reply.as_ref().map(|(replier, _)| *replier);
        let (to, repeat) = match half_in {
            Some(replier) if message.tries % RESENDS_PER_PROBE != RESENDS_PER_PROBE - 1 => {
                (replier, Repeat::Resend(message.first))
            }
            _ => (node, Repeat::Probe(message.first)),
        };
        let pause = if message.noted && half_in.is_none() {
            doubled(self.config.probe_min, message.tries.saturating_add(1), self.config.probe_max)
        } else {
            let repeats = message.tries.saturating_add(1);
            peer::of(&mut self.peers, half_in.unwrap_or(node)).rtt.timeout_after(&self.config, repeats)
        };
        message.tries = message.tries.saturating_add(1);
        message.wait = Some(now + pause);
        peer::of(&mut self.peers, to).lanes[0].repeat.push_back(repeat);
        self.make_ready(to);
        self.arm(now + pause);
    }
}
