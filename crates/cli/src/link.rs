//! A stream of frames between launcher and agent: over the pipes of ssh, or over TCP sealed by Noise.

use crate::frames::{Assembler, Frame};
use crate::sys::poll::PollSet;
use crate::sys::{self, ReadOutcome, read_some, set_nonblocking, write_some};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What an agent says first, so that whatever a login shell printed before can be told from frames.
pub const BANNER: &[u8] = b"\ncomem-agent 1\n";

/// How long a host at the other end of a TCP connection may be out of reach before the connection counts as ended.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How much a login shell may print before the banner.
const CHATTER_MAX: usize = 64 << 10;

/// Largest plaintext of a Noise record: 65535 bytes less the tag.
const RECORD_MAX: usize = 65535 - 16;

/// How bytes become frames.
enum Codec {
    /// As they are.
    Plain,
    /// As they are, once the banner has come.
    AfterBanner(Vec<u8>),
    /// Records of a length (u16) and so much ciphertext.
    Noise { state: Box<snow::TransportState>, sealed: Vec<u8> },
}

/// One end of the stream. Reading and writing never wait.
pub struct Link {
    input: OwnedFd,
    output: OwnedFd,
    codec: Codec,
    frames: Assembler,
    unsent: Vec<u8>,
    /// How much of `unsent` is gone already; it is cut off now and then, since each cut moves the rest.
    sent: usize,
    ended: bool,
}

impl Link {
    fn new(input: OwnedFd, output: OwnedFd, codec: Codec) -> io::Result<Link> {
        set_nonblocking(input.as_fd())?;
        set_nonblocking(output.as_fd())?;
        Ok(Link { input, output, codec, frames: Assembler::default(), unsent: Vec::new(), sent: 0, ended: false })
    }

    /// The launcher's end over a remote shell's pipes.
    pub fn to_shell(input: OwnedFd, output: OwnedFd) -> io::Result<Link> {
        Link::new(input, output, Codec::AfterBanner(Vec::new()))
    }

    /// The agent's end over its standard input and output.
    pub fn to_caller(input: OwnedFd, output: OwnedFd) -> io::Result<Link> {
        let mut link = Link::new(input, output, Codec::Plain)?;
        link.unsent.extend_from_slice(BANNER);
        Ok(link)
    }

    /// Either end over TCP, after the handshake.
    pub fn sealed(stream: std::net::TcpStream, state: snow::TransportState) -> io::Result<Link> {
        stream.set_nodelay(true)?;
        sys::limit_silence(&stream, SILENCE_MAX)?;
        let output = OwnedFd::from(stream.try_clone()?);
        Link::new(stream.into(), output, Codec::Noise { state: Box::new(state), sealed: Vec::new() })
    }

    /// Adds what to wait for.
    pub fn register(&self, polls: &mut PollSet) {
        if !self.ended {
            polls.readable(&self.input);
        }
        if self.unsent() > 0 {
            polls.writable(&self.output);
        }
    }

    /// Whether the other side is gone.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Sends a frame, or as much of it as the other side takes now.
    pub fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        match &mut self.codec {
            Codec::Noise { state, .. } => {
                for piece in bytes.chunks(RECORD_MAX) {
                    seal(state, piece, &mut self.unsent);
                }
            }
            _ => self.unsent.extend_from_slice(&bytes),
        }
        self.flush();
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        while self.unsent() > 0 {
            match write_some(&self.output, &self.unsent[self.sent..]) {
                Ok(0) => break,
                Ok(count) => self.sent += count,
                // What the other side said last may still be read; that it is gone shows there.
                Err(_) => self.sent = self.unsent.len(),
            }
        }
        if self.sent * 2 >= self.unsent.len() {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes in what the wait has shown.
    ///
    /// # Errors
    /// The other side sends what is no stream of frames.
    pub fn take_ready(&mut self, polls: &PollSet) -> io::Result<Vec<Frame>> {
        if polls.can_write(&self.output) {
            self.flush();
        }
        if !self.ended && polls.can_read(&self.input) { self.receive() } else { Ok(Vec::new()) }
    }

    fn receive(&mut self) -> io::Result<Vec<Frame>> {
        let mut chunk = vec![0; 64 << 10];
        match read_some(&self.input, &mut chunk) {
            ReadOutcome::Bytes(count) => {
                let plain = self.codec.open(&chunk[..count])?;
                self.frames.feed(&plain);
            }
            ReadOutcome::NothingYet => {}
            ReadOutcome::End => self.ended = true,
        }
        self.frames.take()
    }
}

impl Codec {
    /// The frame bytes in what was received.
    fn open(&mut self, received: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Codec::Plain => Ok(received.to_vec()),
            Codec::AfterBanner(chatter) => {
                chatter.extend_from_slice(received);
                let Some(at) = chatter.windows(BANNER.len()).position(|w| w == BANNER) else {
                    return if chatter.len() > CHATTER_MAX { Err(no_agent()) } else { Ok(Vec::new()) };
                };
                let frames = chatter.split_off(at + BANNER.len());
                *self = Codec::Plain;
                Ok(frames)
            }
            Codec::Noise { state, sealed } => {
                sealed.extend_from_slice(received);
                open_records(state, sealed)
            }
        }
    }
}

fn no_agent() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answers is no comem agent")
}

fn seal(state: &mut snow::TransportState, plain: &[u8], out: &mut Vec<u8>) {
    let mut record = vec![0; plain.len() + 16];
    let length = state.write_message(plain, &mut record).expect("a record is never too large");
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.extend_from_slice(&record[..length]);
}

/// Opens the complete records among `sealed`.
fn open_records(state: &mut snow::TransportState, sealed: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    let mut at = 0;
    while let Some((length, rest)) = sealed[at..].split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let Some(record) = rest.get(..length) else { break };
        let start = plain.len();
        plain.resize(start + length, 0);
        let opened = state
            .read_message(record, &mut plain[start..])
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the sealed stream was tampered with"))?;
        plain.truncate(start + opened);
        at += 2 + length;
    }
    sealed.drain(..at);
    Ok(plain)
}
