//! How a job ends: by signals, by its time, by what its nodes do, and by force in the end.

use super::{Ending, Host, Node, Running};
use crate::control::ToNode;
use crate::failure::{Failure, Outcome, exit};
use crate::sys::poll::PollSet;
use crate::sys::signals::{self, Caught};
use std::time::{Duration, Instant};

/// Nodes that were told to stop have so long before SIGTERM.
const STOP_GRACE: Duration = Duration::from_millis(300);
/// After SIGTERM, so long until SIGKILL.
const TERM_GRACE: Duration = Duration::from_millis(700);
/// Signals that come so soon after the first are its echoes: a terminal that closes sends one and its shell another,
/// `timeout` sends one to the launcher and one to its group.
const ECHO_LIMIT: Duration = Duration::from_secs(1);

impl Running<'_> {
    /// Begins to end the job: nodes have `grace` to end by themselves. With a `reason` they are told to stop.
    pub(super) fn begin_ending(&mut self, reason: &str, grace: Duration) {
        if self.ending.is_some() {
            return;
        }
        let now = Instant::now();
        self.start_said_at = None;
        if !reason.is_empty() {
            self.tell_running(&ToNode::Stop { reason: reason.to_string() });
        }
        self.ending = Some(Ending { term_at: Some(now + grace), kill_at: now + grace + TERM_GRACE });
        self.hosts.iter_mut().for_each(|host| {
            if let Host::There(remote) = host {
                remote.ask()
            }
        });
    }

    fn interrupt(&mut self, reason: &str, code: i32) {
        self.bad(code, false);
        self.failure.get_or_insert_with(|| reason.to_string());
        self.interrupted = true;
        // Nodes that listen may write their statistics first.
        let listens = self.nodes.values().any(|node| node.speaks);
        self.begin_ending(reason, if listens { STOP_GRACE } else { Duration::ZERO });
    }

    pub(super) fn take_signals(&mut self) {
        for signal in self.signals.take() {
            match signal.number {
                libc::SIGUSR1 => self.signal_all(signal.number),
                libc::SIGTSTP => {
                    self.signal_all(libc::SIGSTOP);
                    signals::stop_self();
                    self.signal_all(libc::SIGCONT);
                }
                _ => self.take_ending(signal),
            }
        }
    }

    /// A signal that ends the job.
    fn take_ending(&mut self, signal: Caught) {
        let name = signals::name(signal.number);
        let (said, reason) = (format!("after {name}"), format!("the launcher got {name}"));
        self.end_as_wanted(signal.typed, &said, &reason, exit::SIGNAL + signal.number);
    }

    /// The user wants the end; `is_meant`, when an order right after another is no echo of it.
    pub(super) fn end_as_wanted(&mut self, is_meant: bool, said: &str, reason: &str, code: i32) {
        let echo = !is_meant && self.signal_at.is_some_and(|at| at.elapsed() < ECHO_LIMIT);
        if echo {
            return;
        }
        self.signal_at.get_or_insert_with(Instant::now);
        if self.interrupted {
            // The second time is meant.
            if let Some(ending) = &mut self.ending {
                ending.term_at = None;
                ending.kill_at = Instant::now();
            }
            return;
        }
        self.output.say(&format!("comem: ending all nodes {said}"));
        self.interrupt(reason, code);
        self.hurry();
    }

    /// The user wants the end: a grace that was given before counts no more.
    fn hurry(&mut self) {
        let soon = Instant::now() + STOP_GRACE;
        if let Some(ending) = &mut self.ending {
            ending.term_at = ending.term_at.map(|at| at.min(soon));
            ending.kill_at = ending.kill_at.min(soon + TERM_GRACE);
        }
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        self.output.on_time(now);
        for index in 0..self.hosts.len() {
            let mut events = Vec::new();
            if let Host::There(remote) = &mut self.hosts[index] {
                remote.on_time(now, &mut events);
            }
            events.into_iter().for_each(|event| self.take(index, event));
            self.give_up_closed_host(index);
        }
        if let Some((_, limit)) = self.orders.deadline.filter(|(at, _)| *at <= now && self.may_end()) {
            let line = format!("the job took longer than {limit:?} (--timeout)");
            self.announce(&line);
            self.interrupt(&line, exit::TIME_LIMIT);
        }
        if self.start_said_at.is_some_and(|at| at <= now) {
            self.tell_who_is_missing();
        }
        self.look_at_output();
        self.sample_on_time(now);
        self.advance_ending(now);
    }

    /// A job that cannot write its output ends.
    fn look_at_output(&mut self) {
        let Some(why) = self.output.broken().filter(|_| self.may_end()) else { return };
        match Failure::of_output(why) {
            Some(failure) => {
                self.announce_failure(&failure);
                self.interrupt(&failure.what, failure.code);
            }
            None => self.interrupt("nobody reads the output any more", exit::SIGNAL + libc::SIGPIPE),
        }
    }

    /// Whether the job is not being ended yet.
    pub(super) fn may_end(&self) -> bool {
        self.ending.is_none() && !self.closing
    }

    /// The job ends, and no host whose words reach this one has nodes left: from the others nothing will be heard.
    /// Their agents and nodes find out by themselves.
    fn give_up_silent_hosts(&mut self) {
        if self.ending.is_none() {
            return;
        }
        let silent = |host: &Host| matches!(host, Host::There(remote) if remote.is_silent());
        let running = |(node, state): (&u16, &Node)| {
            let host = self.orders.host_of.get(node).map(|index| &self.hosts[*index]);
            state.ended.is_none() && host.is_some_and(|host| !silent(host))
        };
        if self.nodes.iter().any(running) {
            return;
        }
        for host in self.hosts.iter_mut().filter(|host| silent(host)) {
            if let Host::There(remote) = host {
                remote.close();
            }
        }
    }

    fn advance_ending(&mut self, now: Instant) {
        self.give_up_silent_hosts();
        let Some(ending) = self.ending.as_mut().filter(|_| !self.closing) else { return };
        if ending.term_at.is_some_and(|at| at <= now) {
            ending.term_at = None;
            self.signalled = true;
            self.signal_all(libc::SIGTERM);
            // A stopped process answers nothing but this.
            self.signal_all(libc::SIGCONT);
        } else if ending.term_at.is_none() && ending.kill_at <= now {
            self.signalled = true;
            self.close_hosts();
        }
    }

    fn signal_all(&mut self, signal: i32) {
        for host in &mut self.hosts {
            match host {
                Host::Here(group) => group.signal(signal),
                Host::There(remote) => remote.signal(signal),
            }
        }
    }

    fn close_hosts(&mut self) {
        self.closing = true;
        let mut events = Vec::new();
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let mut of_host = Vec::new();
            match host {
                Host::Here(group) => group.close(&mut of_host),
                Host::There(remote) => remote.close(),
            }
            events.extend(of_host.into_iter().map(|event| (index, event)));
        }
        events.into_iter().for_each(|(index, event)| self.take(index, event));
        (0..self.hosts.len()).for_each(|index| self.give_up_closed_host(index));
    }

    /// An agent that is gone reports no ends.
    fn give_up_closed_host(&mut self, index: usize) {
        if matches!(&self.hosts[index], Host::There(remote) if remote.is_closed()) {
            self.mark_host_ended(index);
        }
    }

    /// Kills what is left and takes in the last words.
    pub(super) fn close(&mut self, polls: &mut PollSet) -> Outcome<()> {
        self.signalled = true;
        self.stdin.open = false;
        self.close_hosts();
        while self.hosts.iter().any(|host| matches!(host, Host::There(remote) if !remote.is_closed())) {
            self.step(polls)?;
        }
        Ok(())
    }
}
