//! Asking daemons: to start agents, to list, to kill.

use super::callers::Callers;
use super::key::SharedKey;
use super::noise;
use super::wire::{
    self, Answer, Challenge, DATAGRAM_MAX, Datagram, HOST_VERSION, HostState, JobLine, Keys, Nonce, Request,
};
use crate::control::key_to_hex;
use crate::failure::{Failure, Outcome, exit};
use crate::link::Link;
use crate::sys;
use crate::sys::poll::PollSet;
use crate::sys::signals::Signals;
use comem_net::select::{self, Interface, Reach};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a daemon may take for each of its two answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// A datagram without an answer is repeated after so long.
const REPEAT_AFTER: Duration = Duration::from_millis(200);
/// How daemons of all versions refuse what they do not know.
pub const NOT_UNDERSTOOD: &str = "the daemon does not understand the request";
/// How long daemons may take to answer a broadcast.
const FIND_LIMIT: Duration = Duration::from_millis(600);
/// How long an agent may take to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Somebody who knows the key and asks daemons.
pub struct Caller<'a> {
    keys: Keys,
    /// Signals that end the waiting; none are needed for short commands, which signals end outright.
    signals: Option<&'a Signals>,
    iface: Option<String>,
}

impl<'a> Caller<'a> {
    /// A caller with a shared key.
    pub fn new(key: &SharedKey, iface: Option<&str>, signals: Option<&'a Signals>) -> Caller<'a> {
        Caller { keys: Keys::new(key), signals, iface: iface.map(str::to_string) }
    }

    /// Sends one request to the daemon at `target` and waits for its answer.
    ///
    /// # Errors
    /// No daemon answers there, or it refuses.
    pub fn call(&self, name: &str, target: SocketAddr, request: &Request) -> Outcome<Answer> {
        let socket = self.socket(target).map_err(|e| unreachable(name, target, &e))?;
        socket.connect(target).map_err(|e| unreachable(name, target, &e))?;
        let nonce: Nonce = sys::random();
        let challenge =
            self.exchange(name, &socket, target, &self.keys.ask(&nonce), |bytes| match self.keys.parse(bytes) {
                Ok(Datagram::Challenge(n, challenge)) if n == nonce => Some(challenge),
                _ => None,
            })?;
        let answer = self.request(name, &socket, target, nonce, challenge, request)?;
        match answer {
            Answer::Refused { what, advice } => Err(Failure::refused(format!("host {name}: {what}"), advice)),
            answer => Ok(answer),
        }
    }

    fn request(
        &self,
        name: &str,
        socket: &UdpSocket,
        target: SocketAddr,
        nonce: Nonce,
        challenge: Challenge,
        request: &Request,
    ) -> Outcome<Answer> {
        let mut datagram = wire::request_head(&nonce, &challenge);
        let mut noise = noise::handshake(&self.keys.seal, &datagram, true);
        let plain = serde_json::to_vec(request).expect("a request has a JSON form");
        let mut sealed = vec![0; plain.len() + 256];
        let length = noise
            .write_message(&plain, &mut sealed)
            .map_err(|_| Failure::usage("the program's path is too long", "use a shorter one"))?;
        datagram.extend_from_slice(&sealed[..length]);
        let mut opened = vec![0; DATAGRAM_MAX];
        self.exchange(name, socket, target, &datagram, |bytes| match self.keys.parse(bytes) {
            Ok(Datagram::Answer(n, sealed)) if n == nonce => {
                let length = noise.read_message(sealed, &mut opened).ok()?;
                serde_json::from_slice(&opened[..length]).ok()
            }
            _ => None,
        })
    }

    /// Sends `datagram` until something comes that `accept` takes.
    fn exchange<T>(
        &self,
        name: &str,
        socket: &UdpSocket,
        target: SocketAddr,
        datagram: &[u8],
        mut accept: impl FnMut(&[u8]) -> Option<T>,
    ) -> Outcome<T> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut buffer = vec![0; DATAGRAM_MAX + 1];
        while Instant::now() < deadline {
            let sent = socket.send(datagram);
            if let Err(e) = sent {
                return Err(unreachable(name, target, &e));
            }
            let repeat_at = (Instant::now() + REPEAT_AFTER).min(deadline);
            while self.wait_for(socket, repeat_at)? {
                match socket.recv(&mut buffer) {
                    Ok(length) => {
                        if let Some(found) = accept(&buffer[..length]) {
                            return Ok(found);
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                        return Err(unreachable(name, target, &e));
                    }
                    Err(_) => {}
                }
            }
        }
        Err(unreachable(name, target, &"no answer"))
    }

    /// Whether `fd` has something before `deadline`.
    fn wait_for(&self, fd: &impl std::os::fd::AsFd, deadline: Instant) -> Outcome<bool> {
        let mut polls = PollSet::default();
        polls.readable(fd);
        self.wait(&mut polls, deadline)?;
        Ok(polls.can_read(fd))
    }

    /// Waits for one of several descriptors, or until `deadline`.
    fn wait(&self, polls: &mut PollSet, deadline: Instant) -> Outcome<()> {
        if let Some(signals) = self.signals {
            polls.readable(signals);
        }
        polls.wait(Some(deadline)).map_err(|e| Failure::system("waiting", e))?;
        match self.signals.and_then(|s| s.take().first().copied()) {
            Some(signal) => Err(Failure::new(exit::SIGNAL + signal.number, "interrupted while daemons were asked", "")),
            None => Ok(()),
        }
    }

    fn socket(&self, target: SocketAddr) -> io::Result<UdpSocket> {
        let any: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = self.local(target.ip()).map_err(|failure| io::Error::other(failure.what))?;
        let socket = UdpSocket::bind((local.unwrap_or(any), 0))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// The address that `--iface` selects for talking to `peer`.
    fn local(&self, peer: IpAddr) -> Outcome<Option<IpAddr>> {
        let Some(wanted) = &self.iface else { return Ok(None) };
        match select::choose(Some(wanted), Reach::Peer(peer)) {
            Ok(interface) => Ok(Some(interface.address)),
            Err(e) => Err(Failure::usage(e.to_string(), "")),
        }
    }

    /// The daemons that answer a broadcast on `port`, by address.
    pub fn find(&self, port: u16) -> Outcome<Vec<SocketAddr>> {
        let trouble = |e| Failure::system("cannot broadcast", e);
        let all = select::interfaces().map_err(trouble)?;
        let chosen = match &self.iface {
            Some(wanted) => {
                let one = select::choose(Some(wanted), Reach::Network);
                vec![one.map_err(|e| Failure::usage(e.to_string(), ""))?]
            }
            None => all.clone(),
        };
        let mut found = BTreeSet::new();
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(trouble)?;
        socket.set_broadcast(true).and_then(|()| socket.set_nonblocking(true)).map_err(trouble)?;
        let nonce: Nonce = sys::random();
        let deadline = Instant::now() + FIND_LIMIT;
        let mut buffer = [0; 2048];
        while Instant::now() < deadline {
            for to in chosen.iter().filter_map(|i| i.broadcast) {
                // An interface that cannot send is no reason not to try the others.
                let _ = socket.send_to(&self.keys.ask(&nonce), (to, port));
            }
            let repeat_at = (Instant::now() + REPEAT_AFTER).min(deadline);
            while self.wait_for(&socket, repeat_at)? {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                if matches!(self.keys.parse(&buffer[..length]), Ok(Datagram::Challenge(n, _)) if n == nonce) {
                    found.insert(from);
                }
            }
        }
        Ok(one_address_each(found, &all))
    }

    /// Has the daemon of a host start an agent, and waits until that has connected.
    pub fn wake(&self, name: &str, port: u16, program: &Path, nodes: usize) -> Outcome<(u64, Link)> {
        let target = resolve(name, port)?;
        let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let local = self.local(target.ip())?.unwrap_or(any);
        let trouble = |e| Failure::system("cannot listen for agents", e);
        let listener = TcpListener::bind((local, 0)).map_err(trouble)?;
        listener.set_nonblocking(true).map_err(trouble)?;
        let psk: [u8; 32] = sys::random();
        let request = Request::Start {
            port: listener.local_addr().map_err(trouble)?.port(),
            psk: key_to_hex(&psk),
            program: program.as_os_str().to_os_string(),
            nodes: Some(nodes),
        };
        let id = match self.call(name, target, &request)? {
            Answer::Started { id } => id,
            other => return Err(Failure::refused(format!("host {name}: its daemon answers {other:?}"), "")),
        };
        self.accept(name, &listener, &psk).map(|link| (id, link))
    }

    /// Waits for the one that knows `psk`; others are sent away, and keep it from nothing meanwhile.
    fn accept(&self, name: &str, listener: &TcpListener, psk: &[u8; 32]) -> Outcome<Link> {
        let deadline = Instant::now() + CONNECT_LIMIT;
        let mut callers = Callers::new(listener, psk);
        while Instant::now() < deadline {
            let mut polls = PollSet::default();
            callers.register(&mut polls);
            self.wait(&mut polls, callers.deadline().map_or(deadline, |at| at.min(deadline)))?;
            if let Some((stream, state)) = callers.attend()
                && let Ok(link) = Link::sealed(stream, state)
            {
                return Ok(link);
            }
        }
        let what = format!("host {name}: the agent that its daemon started does not connect");
        Err(Failure::unreachable(what, "check that firewalls let it reach this host by TCP"))
    }

    /// What runs at a daemon.
    pub fn list(&self, name: &str, target: SocketAddr) -> Outcome<Vec<JobLine>> {
        let mut all: Vec<JobLine> = Vec::new();
        loop {
            let after = all.last().map_or(0, |job| job.id);
            match self.call(name, target, &Request::List { after })? {
                Answer::Jobs { jobs, more } => {
                    let empty = jobs.is_empty();
                    all.extend(jobs);
                    if !more || empty {
                        return Ok(all);
                    }
                }
                other => return Err(Failure::refused(format!("host {name}: its daemon answers {other:?}"), "")),
            }
        }
    }

    /// What a daemon tells of its host.
    pub fn host(&self, name: &str, target: SocketAddr) -> Outcome<HostState> {
        told_of_host(name, self.call(name, target, &Request::Host { version: HOST_VERSION }))
    }

    /// Ends a job at a daemon.
    pub fn kill(&self, name: &str, target: SocketAddr, id: u64) -> Outcome<()> {
        self.call(name, target, &Request::Kill { id }).map(drop)
    }
}

fn unreachable(name: &str, target: SocketAddr, why: &dyn std::fmt::Display) -> Failure {
    Failure::unreachable(
        format!("no daemon answers on host {name} (UDP {target}): {why}"),
        "start `comem daemon` there, with the same key file, and check firewalls",
    )
}

fn told_of_host(name: &str, answer: Outcome<Answer>) -> Outcome<HostState> {
    match answer {
        Ok(Answer::Host(state)) => Ok(state),
        Ok(other) => Err(Failure::refused(format!("host {name}: its daemon answers {other:?}"), "")),
        Err(failure) if failure.what.contains(NOT_UNDERSTOOD) => {
            let what = format!("host {name}: its daemon is older than this command, and tells nothing of its host");
            Err(Failure::refused(what, "install the same version of Comem on all hosts"))
        }
        Err(failure) => Err(failure),
    }
}

/// No daemon answers a broadcast; `how` the user may name its host.
pub fn nobody_answers(port: u16, how: &str) -> Failure {
    Failure::unreachable(
        format!("no daemon answers a broadcast to UDP port {port}"),
        format!("name the host of one that listens at one address (--bind, --iface) {how}"),
    )
}

/// The address of a daemon.
pub fn resolve(name: &str, port: u16) -> Outcome<SocketAddr> {
    let bare = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    let trouble = |why: &dyn std::fmt::Display| {
        Failure::unreachable(format!("host {name} has no address: {why}"), "check its name")
    };
    let mut addresses = (bare, port).to_socket_addrs().map_err(|e| trouble(&e))?;
    let all: Vec<SocketAddr> = addresses.by_ref().collect();
    all.iter().find(|a| a.is_ipv4()).or(all.first()).copied().ok_or_else(|| trouble(&"the name leads nowhere"))
}

/// This host hears a broadcast on every interface: of its own addresses only one is kept.
fn one_address_each(found: BTreeSet<SocketAddr>, all: &[Interface]) -> Vec<SocketAddr> {
    let is_own = |addr: &SocketAddr| addr.ip().is_loopback() || all.iter().any(|i| i.address == addr.ip());
    let (own, others): (Vec<SocketAddr>, Vec<SocketAddr>) = found.into_iter().partition(is_own);
    let best_own = own.iter().find(|a| !a.ip().is_loopback()).or(own.first()).copied();
    best_own.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What version 0.1.0 said before it knew this request.
    const OLD: &str = "the daemon does not understand the request: unknown variant `host`, expected one of `start`, \
                       `list`, `kill` at line 1 column 14";

    #[test]
    fn an_old_daemon_is_said_to_be_old() {
        let told = told_of_host("a", Err(Failure::refused(format!("host a: {OLD}"), "")));
        assert!(told.unwrap_err().what.contains("its daemon is older than this command"));
        let silent = Failure::unreachable("no daemon answers on host a", "");
        assert_eq!(told_of_host("a", Err(silent.clone())), Err(silent));
        let state = HostState { load: 1.5, ..HostState::default() };
        assert_eq!(told_of_host("a", Ok(Answer::Host(state.clone()))), Ok(state));
        assert!(told_of_host("a", Ok(Answer::Killed { id: 1 })).is_err());
    }

    #[test]
    fn what_a_daemon_does_not_know_is_no_request() {
        let newer = serde_json::from_str::<Request>(r#"{"want":"moon","phase":1}"#);
        assert!(newer.unwrap_err().to_string().starts_with("unknown variant"));
    }
}
