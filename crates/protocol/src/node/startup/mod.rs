//! Start-up: how processes become the nodes of a job (DSM/IP, section 3.2.1.2).
//!
//! ```text
//!  process                     node zero                     (daemons, other processes)
//!     |--- JOIN (I want in) ------>|--- WAKEUP (a job starts here) --->
//!     |<-- ANSWER: you are node j -|
//!     |--- JOIN (I confirm) ------>|   … until all N-1 have confirmed
//!     |<-- HELLO(0): the table ----|
//!     |--- HELLO: introduction ---------------------------------------> other nodes
//!     |<-- HELLO: greeting --------------------------------------------
//!     |--- READY(j) -------------->|   … until all are ready
//!     |<-- HELLO(0): start --------|
//!     |        closing barrier, run by the caller
//! ```
//!
//! Who is node zero: the process that a launcher numbered 0, the one that was told to [`Mode::Serve`], or the one whose
//! JOIN broadcasts stay unanswered through five randomised time-outs, each twice as long as the one before, 1.24 s in
//! all. Two that come to this at the same time hear each other's WAKEUP: the smaller nonce stays node zero, the other
//! joins it and sends its own joiners searching again.
//!
//! In one thing this departs from the paper, whose nodes all broadcast their addresses to all (n² datagrams without a
//! broadcast medium). Here node zero, which has seen every JOIN, sends the whole table, cut into parts that fit a
//! datagram; introductions only prove that two nodes hear each other, between all pairs up to eight nodes, beyond that
//! between each node and those at distance 1, 2, 4, … Nodes that share a host's memory are not introduced
//! ([`Config::introduces`]).
//!
//! Everything is idempotent and repeated by the one who waits, so loss, duplicates and reordering cost time and nothing
//! else.
//!
//! # Polling
//!
//! After every call of [`Startup::on_datagram`], [`Startup::on_timeout`], [`Startup::on_refused`],
//! [`Startup::set_zero`] and [`Startup::abandon`]: take all transmissions ([`Startup::poll_transmit`]), take all events
//! ([`Startup::poll_event`]), and call [`Startup::on_timeout`] no earlier than [`Startup::next_timeout`] says (earlier
//! calls do nothing). Datagrams leave from the service thread's socket. After [`Event::Ready`] or the end, the machine
//! stays in the service thread and answers: a node whose start was lost, and strangers who come too late. A node that
//! ends with an error first sends what is left to transmit.
//!
//! The headers of all these datagrams (types 8 to 12) carry [`DISCOVERY_PROG`]: most of them precede the job's number,
//! and the job stands in their bodies.

mod core;
mod joiner;
#[cfg(test)]
mod tests;
mod zero;

pub use self::core::{Config, ConfigError, Event, Missing, Mode, Phase, StartError, To, Transmit, Waits};

use self::core::Core;
use self::joiner::Joiner;
use self::zero::Zero;
use super::message::{StartMessage, types};
use super::rng::Rng;
use crate::ids::NodeId;
use crate::time::Time;
use crate::wire::bytes::WireError;
use crate::wire::header::MsgType;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The program number in the headers of start-up's datagrams. No job has it.
pub const DISCOVERY_PROG: u16 = 0;

#[derive(Debug)]
enum Role {
    Joiner(Joiner),
    Zero(Zero),
}

/// A process's way into a job.
#[derive(Debug)]
pub struct Startup {
    core: Core,
    role: Role,
}

impl Startup {
    /// Begins. `seed` must differ from process to process: it makes the nonce and the time-outs.
    ///
    /// # Errors
    /// When the configuration cannot work.
    pub fn new(config: Config, now: Time, seed: u64) -> Result<Startup, ConfigError> {
        let config = config.checked()?;
        let mut chance = Rng::new(seed);
        let nonce = chance.next().max(1);
        let mut core = Core { config, nonce, born: now, chance, out: VecDeque::new(), events: VecDeque::new() };
        let zero = matches!(core.config.mode, Mode::Serve | Mode::Launched { node: NodeId(0), .. });
        let role = if zero || core.nodes() == 1 {
            Role::Zero(Zero::new(now, &mut core))
        } else {
            Role::Joiner(Joiner::new(now, &mut core))
        };
        Ok(Startup { core, role })
    }

    /// The launcher says where node zero's service thread listens.
    pub fn set_zero(&mut self, now: Time, zero: SocketAddr) {
        if let Role::Joiner(joiner) = &mut self.role {
            joiner.set_zero(now, &mut self.core, zero);
        }
    }

    /// Takes a datagram of type 8 to 12 (other types are not start-up's) that came from `from`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; they have had no effect.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, ty: MsgType, body: &[u8]) -> Result<(), WireError> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        match StartMessage::parse(ty, body, self.core.config.identity.version)? {
            StartMessage::Foreign { ty, version, nonce, discover, job_name } => {
                self.on_foreign(now, from, (ty, version, nonce), discover, &job_name);
            }
            StartMessage::Wakeup(wakeup) if wakeup.job_name == self.core.config.identity.job_name => {
                match &mut self.role {
                    Role::Joiner(joiner) => joiner.on_wakeup(now, &mut self.core, from, &wakeup),
                    Role::Zero(_) => self.on_rival(now, from, wakeup.nonce, wakeup.age_ms),
                }
            }
            StartMessage::Wakeup(_) => {}
            StartMessage::Join(join) => match &mut self.role {
                Role::Joiner(joiner) => joiner.on_join(&mut self.core, from, &join),
                Role::Zero(zero) => zero.on_join(now, &mut self.core, from, &join),
            },
            StartMessage::Answer(answer) => match &mut self.role {
                Role::Joiner(joiner) => joiner.on_answer(now, &mut self.core, from, answer),
                Role::Zero(zero) => {
                    let then = zero.on_answer(&mut self.core, from, answer);
                    self.give_way(now, then);
                }
            },
            StartMessage::Hello { job, hello } => {
                if let Role::Joiner(joiner) = &mut self.role {
                    joiner.on_hello(now, &mut self.core, from, job, hello);
                }
            }
            StartMessage::Ready { job, ready } => {
                if let Role::Zero(zero) = &mut self.role {
                    zero.on_ready(now, &mut self.core, job, ready);
                }
            }
        }
        Ok(())
    }

    fn on_foreign(
        &mut self,
        now: Time,
        from: SocketAddr,
        (ty, version, nonce): (MsgType, u16, u64),
        discover: bool,
        name: &str,
    ) {
        let same_name = name == self.core.config.identity.job_name;
        match &mut self.role {
            Role::Joiner(joiner) if ty == types::WAKEUP && same_name => {
                joiner.on_foreign_wakeup(&mut self.core, from, version);
            }
            Role::Zero(_) if ty == types::WAKEUP && same_name => self.on_rival(now, from, nonce, 0),
            Role::Zero(zero) if ty == types::JOIN => {
                zero.on_foreign(&mut self.core, from, nonce, version, discover, name);
            }
            _ => {}
        }
    }

    fn on_rival(&mut self, now: Time, from: SocketAddr, nonce: u64, age_ms: u32) {
        let Role::Zero(zero) = &mut self.role else { return };
        let then = zero.on_rival(now, &mut self.core, from, nonce, age_ms);
        self.give_way(now, then);
    }

    fn give_way(&mut self, now: Time, then: zero::Then) {
        if let zero::Then::Yield { to, job } = then {
            self.role = Role::Joiner(Joiner::yielding(now, &mut self.core, to, job));
        }
    }

    /// The system says that nothing listens at `address` (an ICMP "port unreachable").
    pub fn on_refused(&mut self, now: Time, address: SocketAddr) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        match &mut self.role {
            Role::Joiner(joiner) => joiner.on_refused(now, &mut self.core, address),
            Role::Zero(zero) => zero.on_refused(&mut self.core, address),
        }
    }

    /// Leaves before the start, for instance on Ctrl-C: node zero is told, or tells the others why.
    pub fn abandon(&mut self, now: Time, why: &str) {
        match &mut self.role {
            Role::Joiner(joiner) => joiner.abandon(now, &mut self.core),
            Role::Zero(zero) => zero.abandon(&mut self.core, why),
        }
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Time) {
        match &mut self.role {
            Role::Joiner(joiner) => {
                if let joiner::Then::BecomeZero = joiner.on_timeout(now, &mut self.core) {
                    self.role = Role::Zero(Zero::new(now, &mut self.core));
                }
            }
            Role::Zero(zero) => zero.on_timeout(now, &mut self.core),
        }
    }

    /// When to call [`Startup::on_timeout`]; `None` while nothing can become due.
    pub fn next_timeout(&self) -> Option<Time> {
        match &self.role {
            Role::Joiner(joiner) => joiner.next_timeout(&self.core),
            Role::Zero(zero) => zero.next_timeout(&self.core),
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.core.out.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// Whom this process waits for; `None` once the job runs or has failed.
    pub fn waits_for(&self) -> Option<Waits> {
        match &self.role {
            Role::Joiner(joiner) => joiner.waits_for(&self.core),
            Role::Zero(zero) => zero.waits_for(&self.core),
        }
    }

    /// Whether the job runs, as far as this node knows.
    pub fn is_running(&self) -> bool {
        match &self.role {
            Role::Joiner(joiner) => joiner.is_running(),
            Role::Zero(zero) => zero.is_running(),
        }
    }

    #[cfg(test)]
    fn nonce(&self) -> u64 {
        self.core.nonce
    }
}
