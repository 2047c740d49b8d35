//! The other end of a measurement, on another host: `comem doctor --peer`, started by a remote shell. It reads one line
//! of orders, answers one line, and echoes until its standard input ends.

use super::features::HostReport;
use super::measure::{Echo, Token};
use crate::failure::{Failure, Outcome};
use crate::link::BANNER;
use crate::remote::ShellCommand;
use crate::sys::{self, process};
use comem_net::select::{self, Reach};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the other host may take to answer.
const HELLO_LIMIT: Duration = Duration::from_secs(20);

/// What the other end is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// `--iface`.
    pub iface: Option<String>,
    /// `--ports`.
    pub ports: Option<String>,
    /// What it is to answer to.
    pub token: Token,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Where it echoes.
    pub address: SocketAddr,
    /// What the host offers.
    pub report: HostReport,
}

/// Serves as the other end.
pub fn serve() -> Outcome<i32> {
    let mut input = io::stdin().lock();
    let mut line = String::new();
    let trouble = |e: io::Error| Failure::system("the orders", e);
    input.read_line(&mut line).map_err(trouble)?;
    let orders: Orders = serde_json::from_str(&line).map_err(|e| trouble(e.into()))?;
    let ports = super::port_choice(orders.ports.as_deref());
    let chosen = select::choose(orders.iface.as_deref(), Reach::Network);
    // A host with nothing but its loopback can still be examined from itself.
    let chosen = chosen.or_else(|e| select::choose(None, Reach::ThisHost).map_err(|_| e));
    let chosen = chosen.map_err(|e| Failure::start(e.to_string(), ""))?;
    let echo = Echo::start(&chosen, ports, orders.token)?;
    let hello = Hello { address: echo.address, report: HostReport::here(&chosen, ports) };
    let mut output = io::stdout().lock();
    let text = serde_json::to_string(&hello).expect("a report has a JSON form");
    output
        .write_all(BANNER)
        .and_then(|()| writeln!(output, "{text}"))
        .and_then(|()| output.flush())
        .map_err(trouble)?;
    // The end of the input is the end of the measurement.
    let _ = io::copy(&mut input, &mut io::sink());
    echo.stop();
    Ok(0)
}

/// The other end, as seen from here.
pub struct RemotePeer {
    /// What it answered.
    pub hello: Hello,
    child: Child,
    input: Option<ChildStdin>,
}

impl RemotePeer {
    /// Starts it on a host.
    pub fn start(shell: &ShellCommand, host: &str, orders: &Orders) -> Outcome<RemotePeer> {
        let trouble = |why: &dyn std::fmt::Display| {
            let check = format!("{} {host} {} --version", shell.rsh.join(" "), shell.remote_comem);
            let advice = format!("check that `{check}` works, or name the command there with --remote-comem PATH");
            Failure::unreachable(format!("cannot examine host {host}: {why}"), advice)
        };
        let mut command = shell.command(host, "doctor --peer");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let parent = std::process::id();
        // SAFETY: the closure makes async-signal-safe calls alone and neither allocates nor takes locks.
        unsafe { command.pre_exec(move || process::begin_helper(parent)) };
        let mut child = command.spawn().map_err(|e| trouble(&e))?;
        let mut input = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        let text = serde_json::to_string(orders).expect("orders have a JSON form");
        // A shell that has ended shows by its output's end.
        let _ = writeln!(input, "{text}");
        let (sender, receiver) = mpsc::channel();
        let reader = sys::start_thread("comem-hello", move || drop(sender.send(read_hello(output))));
        if let Err(failure) = reader {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failure);
        }
        let answer = receiver.recv_timeout(HELLO_LIMIT);
        let mut peer = |hello: io::Result<Hello>| match hello {
            Ok(hello) => Ok(hello),
            Err(e) => {
                let _ = child.kill();
                let status = child.wait().map_or(String::new(), |status| format!(" ({status})"));
                Err(trouble(&format!("{e}{status}")))
            }
        };
        let hello = peer(answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())))?;
        Ok(RemotePeer { hello, child, input: Some(input) })
    }
}

/// Skips what a login shell prints, and reads the answer.
fn read_hello(output: impl Read) -> io::Result<Hello> {
    let mut output = BufReader::new(output.take(1 << 20));
    let banner = String::from_utf8_lossy(BANNER).trim().to_string();
    loop {
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no comem answers there"));
        }
        if line.trim() == banner {
            line.clear();
            output.read_line(&mut line)?;
            return Ok(serde_json::from_str(&line)?);
        }
    }
}

/// So long a shell may take to end once nothing more is said to it.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Drop for RemotePeer {
    fn drop(&mut self) {
        self.input = None;
        let deadline = Instant::now() + LAST_WORDS;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
