//! A process's way to a rendezvous, and what it is told there.

use super::listener;
use crate::boot::host_name;
use crate::control::{Job, key_to_hex};
use crate::error::{Error, Result};
use crate::host;
use crate::keys;
use comem_net::Clock;
use comem_protocol::ids::NodeId;
use comem_protocol::node::identity::VERSION;
use comem_protocol::node::rendezvous::{
    Arrival, FRAME_MAX, FromGuest, NONCE_BYTES, Nonce, Placed, Rejected, ToGuest, UniqueId,
};
use comem_protocol::time::{Span, Time};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// How often a process that waits looks whether it is to go on, and whether there is somebody by now.
const SLICE: Duration = Duration::from_millis(50);
/// How long an attempt to connect takes.
const CONNECT: Duration = Duration::from_secs(2);
/// A process waits so much longer than the rendezvous, which knows who is missing.
const MARGIN: Span = Span::from_ms(2_000);
/// After so long a process says that nobody answers.
const SILENCE: Span = Span::from_ms(2_000);

/// Who goes to which rendezvous.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) id: UniqueId,
    pub(crate) rank: Option<NodeId>,
    pub(crate) processes: u16,
    /// Whether the process that listens may come later: nobody has handed the id on.
    pub(crate) may_be_early: bool,
}

/// A process that has its place in the job.
pub(crate) struct Attendance {
    pub(crate) placed: Placed,
    line: Line,
}

/// The connection to the rendezvous.
struct Line {
    stream: TcpStream,
    id: UniqueId,
    /// The nonce that this process gave, and the one that it was given.
    ours: Nonce,
    theirs: Nonce,
    input: Vec<u8>,
    clock: Clock,
    until: Option<Time>,
}

impl Attendance {
    /// Goes to the rendezvous and waits until all have come, for as long as `limit` says (`None`: for ever).
    ///
    /// # Errors
    /// Nobody listens there, or not for this id; not all come, or they do not fit together.
    pub(crate) fn new(guest: &Guest, limit: Option<Span>, clock: Clock) -> Result<Attendance> {
        let until = limit.map(|limit| clock.now() + limit);
        let stream = connect(guest, until, &clock)?;
        let until = until.map(|until| until + MARGIN);
        let (id, ours) = (guest.id.clone(), keys::random());
        let mut line = Line { stream, id, ours, theirs: [0; NONCE_BYTES], input: Vec::new(), clock, until };
        line.be_greeted()?;
        line.say(&FromGuest::Arrival(Arrival {
            nonce: ours,
            rank: guest.rank,
            processes: guest.processes,
            pid: std::process::id(),
            host: host_name(),
            place: place(),
            made_id: listener::listens_for(&guest.id),
            limit_ms: limit.map_or(0, |limit| u32::try_from(limit.0 / 1_000_000).unwrap_or(u32::MAX).max(1)),
        }))?;
        match line.hear()? {
            ToGuest::Placed(placed) => Ok(Attendance { placed, line }),
            _ => Err(line.is_none()),
        }
    }

    /// The address of the process that made the id, as this host reaches it.
    pub(crate) fn rendezvous(&self) -> IpAddr {
        self.line.id.address().ip()
    }

    /// What a launcher would have told.
    pub(crate) fn job(&self) -> Job {
        let id = &self.line.id;
        Job {
            key: key_to_hex(id.job_key().as_bytes()),
            job: id.job_number(),
            prog_id: id.program_number(),
            auth: true,
            hosts: Vec::new(),
            program: None,
            history: None,
        }
    }

    /// Node zero tells where it listens.
    pub(crate) fn tell_address(&mut self, address: SocketAddr) -> Result<()> {
        self.line.say(&FromGuest::Address(address))
    }

    /// The others wait until it has.
    pub(crate) fn zero(&mut self) -> Result<SocketAddr> {
        match self.line.hear()? {
            ToGuest::Zero(address) => Ok(address),
            _ => Err(self.line.is_none()),
        }
    }
}

impl Line {
    fn say(&mut self, message: &FromGuest) -> Result<()> {
        let frame = message.emit(&self.id, &self.theirs);
        self.stream.write_all(&frame).map_err(|error| self.ended(&error))
    }

    /// Whoever listens says first which version it is.
    fn be_greeted(&mut self) -> Result<()> {
        let greeting = match self.next_message() {
            // It has closed the door behind the last one.
            Err(Error::Start(_)) if self.input.is_empty() => return Err(nobody(&self.id)),
            other => other?,
        };
        match greeting {
            ToGuest::Hello { version: VERSION, nonce } => {
                self.theirs = nonce;
                Ok(())
            }
            ToGuest::Hello { version, .. } => Err(Error::Start(format!(
                "the process at {} that made the id has version {version} of Comem's protocols, this one version \
                 {VERSION}; install the same version of Comem everywhere",
                self.id.address()
            ))),
            _ => Err(self.is_none()),
        }
    }

    /// The next answer; what is said meanwhile of those who are missing is printed.
    fn hear(&mut self) -> Result<ToGuest> {
        loop {
            match self.next_message()? {
                ToGuest::Failed(why) => return Err(Error::Start(why)),
                ToGuest::WrongKey => {
                    return Err(Error::Start(format!(
                        "the process at {} listens for another id than this one; hand on the id that was made for \
                         this job, and make a new one for each",
                        self.id.address()
                    )));
                }
                ToGuest::Waits(whom) => {
                    let (host, pid, id) = (host_name(), std::process::id(), self.id.address());
                    crate::error::say(format_args!("comem: (host {host}, pid {pid}) at the rendezvous {id}: {whom}"));
                }
                other => return Ok(other),
            }
        }
    }

    fn next_message(&mut self) -> Result<ToGuest> {
        loop {
            if let Some(frame) = self.frame()? {
                match ToGuest::parse(&frame, &self.id, &self.ours) {
                    Ok(message) => return Ok(message),
                    Err(Rejected::Tag | Rejected::Wire(_)) => return Err(self.is_none()),
                }
            }
            self.fill()?;
        }
    }

    fn frame(&mut self) -> Result<Option<Vec<u8>>> {
        let Some((length, rest)) = self.input.split_first_chunk::<2>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if length > FRAME_MAX {
            return Err(self.is_none());
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.input.drain(..2 + length);
        Ok(Some(frame))
    }

    /// Waits for bytes.
    fn fill(&mut self) -> Result<()> {
        let mut buffer = [0; FRAME_MAX];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(self.ended(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(e) if is_early(&e) => go_on()?,
                Err(e) => return Err(self.ended(&e)),
            }
            if self.until.is_some_and(|until| until <= self.clock.now()) {
                let address = self.id.address();
                return Err(Error::Start(format!(
                    "the process at {address} that made the id does not answer any more; see whether it runs"
                )));
            }
        }
    }

    fn ended(&self, why: &io::Error) -> Error {
        let address = self.id.address();
        let how = if why.kind() == io::ErrorKind::UnexpectedEof { String::new() } else { format!(" ({why})") };
        Error::Start(format!(
            "the process at {address} that made the id ended before all had met{how}; it must live until the job has \
             started"
        ))
    }

    fn is_none(&self) -> Error {
        let address = self.id.address();
        Error::Start(format!(
            "what listens at {address} is no rendezvous of Comem; the process that made the id has ended, so make \
             another"
        ))
    }
}

fn nobody(id: &UniqueId) -> Error {
    Error::Start(format!(
        "nobody listens at {} for this id; its job has started already, or the process that made it has ended: make a \
         new id for each job",
        id.address()
    ))
}

/// Whether nothing has come yet.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Asks a language's runtime whether to wait on.
fn go_on() -> Result<()> {
    if host::host().is_some_and(host::Host::ends_wait) { Err(Error::Interrupted) } else { Ok(()) }
}

/// A connection to whoever listens for an id. Who hands an id on listens already; where nobody does, the others may be
/// early, and try again.
fn connect(guest: &Guest, until: Option<Time>, clock: &Clock) -> Result<TcpStream> {
    let address = guest.id.address();
    let mut tell_at = Some(clock.now() + SILENCE);
    loop {
        let why = match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                let ready = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(SLICE)));
                return ready.map(|()| stream).map_err(Error::system("cannot use a connection"));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !guest.may_be_early => {
                return Err(nobody(&guest.id));
            }
            Err(error) => error,
        };
        go_on()?;
        if until.is_some_and(|until| until <= clock.now()) {
            return Err(Error::Start(format!(
                "nobody answers at {address}, where the job's processes are to meet: {why}; see whether the process \
                 that listens there runs, and whether a firewall parts the hosts"
            )));
        }
        if tell_at.take_if(|at| *at <= clock.now()).is_some() {
            let (host, pid) = (host_name(), std::process::id());
            crate::error::say(format_args!(
                "comem: (host {host}, pid {pid}) waits for somebody to answer at {address}, where the job's processes \
                 are to meet: {why}"
            ));
        }
        std::thread::sleep(SLICE);
    }
}

/// What processes have in common that can share memory: the running kernel, the user, and the namespaces in which they
/// look for each other.
fn place() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = |name: &str| std::fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino());
    let text = format!(
        "{} {} {} {} {} {}",
        boot.trim(),
        host_name(),
        keys::user_id(),
        space("net"),
        space("mnt"),
        space("pid"),
    );
    blake3::hash(text.as_bytes()).to_hex()[..32].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What a process is told that comes to a listener which does `answer`.
    fn told(answer: impl FnOnce(TcpStream, &UniqueId) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let id = UniqueId::new([3; 16], listener.local_addr().unwrap());
        let guest = Guest { id: id.clone(), rank: None, processes: 2, may_be_early: false };
        let there = std::thread::spawn(move || answer(listener.accept().unwrap().0, &id));
        let error = Attendance::new(&guest, Some(Span::from_ms(20_000)), Clock::system()).err().expect("no place");
        there.join().unwrap();
        error.to_string()
    }

    #[test]
    fn another_version_is_told_as_such() {
        let text = told(|mut stream, id| {
            let hello = ToGuest::Hello { version: VERSION + 1, nonce: [0; 16] };
            stream.write_all(&hello.emit(id, &[0; 16])).unwrap();
        });
        let wanted = format!("version {} of Comem's protocols, this one version {VERSION}", VERSION + 1);
        assert!(text.contains(&wanted), "{text}");
    }

    #[test]
    fn what_is_no_rendezvous_is_told_as_such() {
        let text = told(|mut stream, _| stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap());
        assert!(text.contains("is no rendezvous of Comem"), "{text}");
        let text = told(|stream, _| drop(stream));
        assert!(text.contains("nobody listens") && text.contains("a new id for each job"), "{text}");
    }

    #[test]
    fn whoever_ends_in_between_is_told_of() {
        let text = told(|mut stream, id| {
            stream.write_all(&ToGuest::Hello { version: VERSION, nonce: [0; 16] }.emit(id, &[0; 16])).unwrap();
            // All of the arrival is read, so that the end is an orderly one.
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes(length))]).unwrap();
        });
        assert!(text.contains("ended before all had met"), "{text}");
    }
}
