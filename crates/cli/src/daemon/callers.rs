//! Handshakes with whoever connects to a port: all at the same time, so that those who say nothing keep nobody waiting.
//!
//! At most [`WAITING_MAX`] connections wait. When one more comes, the one that has waited longest is sent away; first
//! among those that have said nothing. Each has [`HANDSHAKE_LIMIT`].

use super::noise::{self, MESSAGE_MAX};
use crate::sys::poll::{PollSet, earlier};
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How many connections may wait for their handshakes.
pub const WAITING_MAX: usize = 64;
/// How long one may take.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);
/// Most connections taken before those that wait are looked after.
const TAKEN_AT_ONCE: usize = 16;

/// Somebody who has connected and not proved anything.
struct Waiting {
    stream: TcpStream,
    until: Instant,
    said: Vec<u8>,
}

/// What came of a look at a connection.
enum Progress {
    /// Its message is not whole.
    Waits,
    /// It knows the key.
    Met(TcpStream, Box<snow::TransportState>),
    /// It does not, or has gone, or takes too long.
    Gone,
}

/// Those who have connected to a listener that does not block.
pub struct Callers<'a> {
    listener: &'a TcpListener,
    psk: &'a [u8; 32],
    waiting: Vec<Waiting>,
}

impl<'a> Callers<'a> {
    /// Nobody yet. Who knows `psk` is looked for.
    pub fn new(listener: &'a TcpListener, psk: &'a [u8; 32]) -> Callers<'a> {
        Callers { listener, psk, waiting: Vec::new() }
    }

    /// Adds what to wait for.
    pub fn register(&self, polls: &mut PollSet) {
        polls.readable(self.listener);
        self.waiting.iter().for_each(|waiting| polls.readable(&waiting.stream));
    }

    /// When to look again though nothing came.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().fold(None, |first, waiting| earlier(first, Some(waiting.until)))
    }

    /// Takes in what is there; gives the connection of the first who knows the key.
    pub fn attend(&mut self) -> Option<(TcpStream, snow::TransportState)> {
        for _ in 0..TAKEN_AT_ONCE {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.waiting.len() == WAITING_MAX {
                let silent = self.waiting.iter().position(|waiting| waiting.said.is_empty());
                self.waiting.remove(silent.unwrap_or(0));
            }
            self.waiting.push(Waiting { stream, until: Instant::now() + HANDSHAKE_LIMIT, said: Vec::new() });
            // It has mostly said its piece by now, and so is not taken for silent when the next one comes.
            if let Some(met) = self.look_at(self.waiting.len() - 1) {
                return Some(met);
            }
        }
        (0..self.waiting.len()).rev().find_map(|at| self.look_at(at))
    }

    /// Looks at one connection; the list may be shorter by it afterwards.
    fn look_at(&mut self, at: usize) -> Option<(TcpStream, snow::TransportState)> {
        match self.waiting.remove(at).look(self.psk) {
            (Progress::Met(stream, state), _) => Some((stream, *state)),
            (Progress::Gone, _) => None,
            (Progress::Waits, still) => {
                self.waiting.extend(still);
                let last = self.waiting.len() - 1;
                self.waiting[at..=last].rotate_right(1);
                None
            }
        }
    }
}

impl Waiting {
    fn look(mut self, psk: &[u8; 32]) -> (Progress, Option<Waiting>) {
        if self.until <= Instant::now() || self.hear().is_err() {
            return (Progress::Gone, None);
        }
        let Some(message) = noise::whole(&self.said) else { return (Progress::Waits, Some(self)) };
        match message.and_then(|message| noise::answer(&mut self.stream, message, psk)) {
            Ok(state) => (Progress::Met(self.stream, Box::new(state)), None),
            Err(_) => (Progress::Gone, None),
        }
    }

    /// Reads what is there, and not more than a message may have.
    fn hear(&mut self) -> io::Result<()> {
        let mut room = [0; 2 + MESSAGE_MAX];
        let left = room.len() - self.said.len().min(room.len());
        match self.stream.read(&mut room[..left]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.said.extend_from_slice(&room[..count]);
                Ok(())
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PSK: [u8; 32] = [7; 32];

    fn listen() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    /// Attends until the one who knows the key is met, or the time is up.
    fn meet(callers: &mut Callers<'_>, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if callers.attend().is_some() {
                return true;
            }
            let mut polls = PollSet::default();
            callers.register(&mut polls);
            polls.wait(earlier(callers.deadline(), Some(deadline))).unwrap();
        }
        false
    }

    fn agent(listener: &TcpListener, psk: [u8; 32]) -> std::thread::JoinHandle<io::Result<snow::TransportState>> {
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            noise::initiate(&mut TcpStream::connect(at)?, &psk, Instant::now() + Duration::from_secs(60))
        })
    }

    #[test]
    fn those_who_say_nothing_or_half_a_word_keep_nobody_waiting() {
        let listener = listen();
        let at = listener.local_addr().unwrap();
        // More than may wait: silent ones, and some that have begun.
        let mut strangers: Vec<TcpStream> = Vec::new();
        let mut callers = Callers::new(&listener, &PSK);
        for number in 0..WAITING_MAX + 20 {
            let mut stranger = TcpStream::connect(at).unwrap();
            if number % 4 == 0 {
                stranger.write_all(&[0]).unwrap();
            }
            strangers.push(stranger);
            assert!(callers.attend().is_none());
            assert!(callers.waiting.len() <= WAITING_MAX);
        }
        let friend = agent(&listener, PSK);
        // Each by itself would have its two seconds: the friend would wait for minutes.
        assert!(meet(&mut callers, Duration::from_secs(60)));
        assert!(friend.join().unwrap().is_ok());
    }

    #[test]
    fn the_silent_are_sent_away_first_and_everybody_after_a_while() {
        let listener = listen();
        let at = listener.local_addr().unwrap();
        let mut callers = Callers::new(&listener, &PSK);
        let mut begun = TcpStream::connect(at).unwrap();
        begun.write_all(&[0]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while callers.waiting.first().is_none_or(|waiting| waiting.said.is_empty()) && Instant::now() < deadline {
            callers.attend();
        }
        let silent: Vec<TcpStream> = (0..WAITING_MAX)
            .map(|_| {
                let stream = TcpStream::connect(at).unwrap();
                callers.attend();
                stream
            })
            .collect();
        let address = begun.local_addr().unwrap();
        assert_eq!(callers.waiting[0].stream.peer_addr().unwrap(), address, "the one that has begun is still there");
        assert_eq!(callers.waiting.len(), WAITING_MAX);
        assert!(callers.waiting.iter().all(|w| w.stream.peer_addr().unwrap() != silent[0].local_addr().unwrap()));
        assert!(!meet(&mut callers, HANDSHAKE_LIMIT + Duration::from_millis(500)));
        assert!(callers.waiting.is_empty(), "their time is up");
    }

    #[test]
    fn a_wrong_key_is_sent_away_and_the_right_one_is_met_behind_it() {
        let listener = listen();
        let mut callers = Callers::new(&listener, &PSK);
        let wrong = agent(&listener, [8; 32]);
        let right = agent(&listener, PSK);
        assert!(meet(&mut callers, Duration::from_secs(60)));
        assert!(right.join().unwrap().is_ok());
        drop(callers);
        drop(listener);
        assert!(wrong.join().unwrap().is_err());
    }
}
