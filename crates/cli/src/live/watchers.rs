//! The launcher's end of its job's socket.
//!
//! Nothing here waits. Whoever has connected has a small buffer of each kind; one whose buffer is not empty when a
//! sample is due misses it, and one that says more than a line at a time is sent away.

use super::registry::Registration;
use super::sample::{Sample, State};
use super::{FromJob, ToJob, VERSION};
use crate::control::encode;
use crate::sys::poll::{PollSet, earlier};
use crate::sys::{self, ReadOutcome, read_some, write_some};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Most at a time that have connected.
const CLIENTS_MAX: usize = 32;
/// Longest line that is taken from one of them.
const LINE_MAX: usize = 4096;
/// Bounds of the time between two samples.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(60);
/// A launcher that can take nobody in, for want of descriptors, looks again after so long.
const DEAF_FOR: Duration = Duration::from_secs(1);
/// How long the last word may take to be read.
const LAST_WORD_LIMIT: Duration = Duration::from_millis(100);

/// All that have connected.
pub struct Watchers {
    registration: Registration,
    listener: UnixListener,
    clients: Vec<Client>,
    deaf_until: Option<Instant>,
}

/// One that has connected.
struct Client {
    stream: UnixStream,
    said: Vec<u8>,
    unsent: Vec<u8>,
    watch: Option<Watch>,
    gone: bool,
}

/// What it wants to see.
struct Watch {
    every: Duration,
    next_at: Instant,
    left: Option<u64>,
    waits: bool,
    pages: bool,
}

/// Whoever wants the job to end, to be answered by [`Watchers::answer_kill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Killer(usize);

impl Watchers {
    /// Nobody yet.
    pub fn new(registration: Registration, listener: UnixListener) -> Watchers {
        Watchers { registration, listener, clients: Vec::new(), deaf_until: None }
    }

    /// Adds what to wait for.
    pub fn register(&self, polls: &mut PollSet) {
        if self.deaf_until.is_none() {
            polls.readable(&self.listener);
        }
        for client in &self.clients {
            polls.readable(&client.stream);
            if !client.unsent.is_empty() {
                polls.writable(&client.stream);
            }
        }
    }

    /// When the next sample is due; never where nobody watches.
    pub fn next_at(&self) -> Option<Instant> {
        self.watches().map(|watch| Some(watch.next_at)).fold(None, earlier)
    }

    /// When to be called again although nothing comes.
    pub fn deadline(&self) -> Option<Instant> {
        self.deaf_until
    }

    /// Whether somebody wants to know what threads wait for.
    pub fn wants_waits(&self) -> bool {
        self.watches().any(|watch| watch.waits)
    }

    /// Whether somebody wants to know which pages are shared falsely.
    pub fn wants_pages(&self) -> bool {
        self.watches().any(|watch| watch.pages)
    }

    /// What those want to see who read what they are told.
    fn watches(&self) -> impl Iterator<Item = &Watch> {
        let reading = self.clients.iter().filter(|client| !client.gone && client.unsent.is_empty());
        reading.filter_map(|client| client.watch.as_ref())
    }

    /// Takes in what the wait has shown: those who want the job to end.
    pub fn take_ready(&mut self, polls: &PollSet, state: State) -> Vec<Killer> {
        self.clients.retain(|client| !client.gone);
        let now = Instant::now();
        let mut killers = Vec::new();
        for (index, client) in self.clients.iter_mut().enumerate() {
            if polls.can_write(&client.stream) {
                client.flush();
            }
            if polls.can_read(&client.stream) {
                let kills = client.read(now);
                killers.extend(kills.then_some(Killer(index)));
            }
        }
        self.deaf_until = self.deaf_until.filter(|at| *at > now);
        if polls.can_read(&self.listener) {
            self.accept(state);
        }
        killers
    }

    fn accept(&mut self, state: State) {
        // As many as can be there: others wait for the next turn.
        for _ in 0..CLIENTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.welcome(stream, state),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.deaf_until = Some(Instant::now() + DEAF_FOR);
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, stream: UnixStream, state: State) {
        let Some(mut client) = Client::new(stream) else { return };
        if self.clients.iter().filter(|client| !client.gone).count() >= CLIENTS_MAX {
            client.say(&FromJob::Refused { what: format!("{CLIENTS_MAX} others watch the job already") });
            return;
        }
        client.say(&FromJob::Hello { version: VERSION, job: self.registration.job.clone(), state });
        self.clients.push(client);
    }

    /// Tells one that wanted the job to end that it will.
    pub fn answer_kill(&mut self, killer: Killer, already: bool) {
        if let Some(client) = self.clients.get_mut(killer.0) {
            client.say(&FromJob::Ending { already });
        }
    }

    /// Sends a sample whose making began at `began` to those who had asked for one by then.
    pub fn publish(&mut self, sample: &Sample, began: Instant) {
        let message = FromJob::Sample(Box::new(sample.clone()));
        for client in self.clients.iter_mut().filter(|client| !client.gone) {
            // Who does not read as fast as it wants to be told misses one.
            let is_due = |watch: &&mut Watch| watch.next_at <= began && client.unsent.is_empty();
            let Some(watch) = client.watch.as_mut().filter(is_due) else { continue };
            watch.next_at = began + watch.every;
            watch.left = watch.left.map(|left| left.saturating_sub(1));
            if watch.left == Some(0) {
                client.watch = None;
            }
            client.say(&message);
        }
    }

    /// Tells all that the job is over, with its exit code, and leaves the directory.
    pub fn end(mut self, status: i32) {
        // Those who look for the job now do not find it any more, and those who have just come are told.
        self.registration.end(status);
        while let Ok((stream, _)) = self.listener.accept() {
            self.clients.extend(Client::new(stream));
        }
        let deadline = Instant::now() + LAST_WORD_LIMIT;
        self.clients.retain(|client| !client.gone);
        self.clients.iter_mut().for_each(|client| client.say(&FromJob::Ended { status }));
        while self.clients.iter().any(|client| !client.gone && !client.unsent.is_empty()) && Instant::now() < deadline {
            let mut polls = PollSet::default();
            let slow = self.clients.iter().filter(|client| !client.gone && !client.unsent.is_empty());
            slow.for_each(|client| polls.writable(&client.stream));
            if polls.wait(Some(deadline)).is_err() {
                return;
            }
            self.clients.iter_mut().for_each(Client::flush);
        }
    }
}

impl Client {
    /// One of the same user. The directory keeps others out, but not root.
    fn new(stream: UnixStream) -> Option<Client> {
        let is_ours = sys::peer_of(&stream).is_ok_and(|peer| peer.user == sys::user_id());
        let waits_not = is_ours && stream.set_nonblocking(true).is_ok();
        waits_not.then(|| Client { stream, said: Vec::new(), unsent: Vec::new(), watch: None, gone: false })
    }

    fn say(&mut self, message: &FromJob) {
        self.unsent.extend(encode(message));
        self.flush();
    }

    fn flush(&mut self) {
        while !self.gone && !self.unsent.is_empty() {
            match write_some(&self.stream, &self.unsent) {
                Ok(0) => return,
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(_) => self.gone = true,
            }
        }
    }

    /// Takes in what it says; whether it wants the job to end.
    fn read(&mut self, now: Instant) -> bool {
        let mut kills = false;
        let mut chunk = [0; LINE_MAX];
        match read_some(&self.stream, &mut chunk) {
            ReadOutcome::NothingYet => {}
            ReadOutcome::End => self.gone = true,
            ReadOutcome::Bytes(count) => self.said.extend_from_slice(&chunk[..count]),
        }
        while let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(ToJob::Watch { every_ms, count, waits, pages }) => {
                    let every = Duration::from_millis(every_ms).clamp(*EVERY.start(), *EVERY.end());
                    let is_any = count != Some(0);
                    self.watch = is_any.then_some(Watch { every, next_at: now, left: count, waits, pages });
                }
                Ok(ToJob::Kill) => kills = true,
                Ok(ToJob::Unknown) => {}
                Err(_) => self.gone = true,
            }
        }
        self.gone |= self.said.len() > LINE_MAX;
        kills
    }
}
