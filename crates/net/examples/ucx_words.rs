//! What a compare-and-swap of a word in another process's memory costs by UCX, beside a message there and back.
//!
//! `cargo run --release -p comem-net --example ucx_words [ROUNDS]`
//!
//! A lock that is a word costs its requester two such operations: one takes it, one lets it go. A token costs a request
//! and its answer, and nothing as long as the lock stays. The other process carries operations out in software here, so
//! the table also says how much processor time it spends on each.
//!
//! Every round measures all ways one after another, so that a busy machine disturbs them alike. The table gives the
//! medians over the rounds.

use comem_net::ucx::{Invitation, Library, Peer, Worker};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Operations of each way in a round.
const OPERATIONS: u64 = 200;
const WORDS: usize = 512;
const TRANSPORTS: [&str; 2] = ["tcp,self", "posix,self"];
const NEVER: &dyn Fn() -> bool = &|| false;
/// What tells a process that it is the other side, over these transports.
const TARGET: &str = "COMEM_UCX_WORDS_TARGET";
const MESSAGE: [u8; 64] = [1; 64];
const PATIENCE: Duration = Duration::from_secs(10);

fn worker(transports: &str) -> Outcome<Worker> {
    Ok(Worker::new(Library::load()?, Some(&std::ffi::CString::new(transports)?))?)
}

fn memory() -> (*mut u8, usize) {
    let words: Vec<u64> = vec![0; WORDS];
    (words.leak().as_mut_ptr().cast(), WORDS * size_of::<u64>())
}

/// The other side: it answers messages, and attends its worker, until its input ends.
fn serve(transports: &str) -> Outcome<()> {
    let worker = worker(transports)?;
    let (start, bytes) = memory();
    // SAFETY: words that stay, and that nobody uses but by this worker.
    let told = unsafe { worker.invite(start, bytes) }?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let port = socket.local_addr()?.port();
    println!("{port} {} {} {} {}", hex(&told.address), hex(&told.key), told.start, told.bytes);
    std::thread::spawn(move || -> io::Result<()> {
        loop {
            worker.attend(PATIENCE)?;
        }
    });
    std::thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; MESSAGE.len()];
        loop {
            let (len, from) = socket.recv_from(&mut buffer)?;
            socket.send_to(&buffer[..len], from)?;
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A process that serves, and how it is reached.
struct Target {
    child: Child,
    worker: Worker,
    peer: Peer,
    /// This process's own memory, through the worker.
    own: Peer,
    socket: UdpSocket,
}

impl Target {
    fn start(transports: &str) -> Outcome<Target> {
        let worker = worker(transports)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.env(TARGET, transports).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().ok_or("no output")?).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [port, address, key, start, bytes] = words[..] else { return Err("the other side has ended".into()) };
        let raw = |hex: &str| -> Outcome<Vec<u8>> {
            (0..hex.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&hex[at..at + 2], 16)?)).collect()
        };
        let told = Invitation { address: raw(address)?, key: raw(key)?, start: start.parse()?, bytes: bytes.parse()? };
        let peer = worker.accept(&told)?;
        let (start, bytes) = memory();
        // SAFETY: as in `serve`.
        let own = worker.accept(&unsafe { worker.invite(start, bytes) }?)?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port.parse()?))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Target { child, worker, peer, own, socket })
    }

    fn swap(&self, peer: &Peer, at: u64) -> io::Result<()> {
        let found = self.worker.compare_and_swap(peer, 0, (at, at + 1), NEVER)?;
        if found == at { Ok(()) } else { Err(io::Error::other(format!("the word was {found} and not {at}"))) }
    }

    fn echo(&self) -> io::Result<()> {
        self.socket.send(&MESSAGE)?;
        self.socket.recv(&mut [0; MESSAGE.len()]).map(drop)
    }

    /// Processor time that the other side has taken.
    fn used(&self) -> io::Result<Duration> {
        let (mut clock, mut used) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: both store what is ours.
        let failed = unsafe {
            let found = libc::clock_getcpuclockid(self.child.id().cast_signed(), &raw mut clock);
            found != 0 || libc::clock_gettime(clock, &raw mut used) != 0
        };
        if failed {
            return Err(io::Error::other("the other side's clock cannot be read"));
        }
        Ok(Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The medians of a way: microseconds of an operation, and of the other side's processor time on it.
#[derive(Default)]
struct Way {
    took: Vec<f64>,
    used: Vec<f64>,
}

impl Way {
    fn measure(&mut self, target: &Target, mut operation: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let before = target.used()?;
        let mut took = Vec::with_capacity(OPERATIONS as usize);
        for _ in 0..OPERATIONS {
            let start = Instant::now();
            operation()?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        self.used.push((target.used()? - before).as_secs_f64() * 1e6 / OPERATIONS as f64);
        self.took.push(median(&mut took));
        Ok(())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    if let Ok(transports) = std::env::var(TARGET) {
        return serve(&transports);
    }
    let rounds = std::env::args().nth(1).map_or(Ok(15), |rounds| rounds.parse::<usize>())?;
    let targets = TRANSPORTS.map(Target::start).into_iter().collect::<Outcome<Vec<Target>>>()?;
    let names = TRANSPORTS.map(|name| format!("compare-and-swap by UCX, {name}"));
    let names = [&names[..], &["... of an own word".into(), "a message of 64 bytes by UDP, and its answer".into()]];
    let mut ways: Vec<Way> = (0..4).map(|_| Way::default()).collect();
    let mut words = [0; 3];
    for _ in 0..rounds {
        for (at, target) in targets.iter().enumerate() {
            ways[at].measure(target, || {
                words[at] += 1;
                target.swap(&target.peer, words[at] - 1)
            })?;
        }
        ways[2].measure(&targets[0], || {
            words[2] += 1;
            targets[0].swap(&targets[0].own, words[2] - 1)
        })?;
        ways[3].measure(&targets[0], || targets[0].echo())?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{rounds} rounds of {OPERATIONS}; microseconds, medians")?;
    writeln!(out, "{:<48} {:>8} {:>16}", "", "it takes", "of the other CPU")?;
    for (name, way) in names.concat().iter().zip(&mut ways) {
        writeln!(out, "{name:<48} {:>8.2} {:>16.2}", median(&mut way.took), median(&mut way.used))?;
    }
    Ok(())
}
