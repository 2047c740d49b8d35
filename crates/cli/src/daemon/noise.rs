//! Noise NNpsk0 over TCP: both sides prove a key that only they know, and agree on fresh ones.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// The protocol, also of sealed wake-ups: X25519, ChaCha20-Poly1305, BLAKE2s, a shared key mixed in first.
pub const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

const PROLOGUE: &[u8] = b"comem agent 1";
/// Most bytes of a handshake's message, without its length.
pub const MESSAGE_MAX: usize = 256;

/// A handshake with `psk` under `prologue`.
pub fn handshake(psk: &[u8; 32], prologue: &[u8], initiator: bool) -> snow::HandshakeState {
    let builder = snow::Builder::new(PATTERN.parse().expect("the pattern is a valid one"));
    let builder = builder.psk(0, psk).and_then(|b| b.prologue(prologue)).expect("each is set once");
    let state = if initiator { builder.build_initiator() } else { builder.build_responder() };
    state.expect("the pattern needs nothing else")
}

/// The agent's side.
pub fn initiate(stream: &mut TcpStream, psk: &[u8; 32], deadline: Instant) -> io::Result<snow::TransportState> {
    let mut state = handshake(psk, PROLOGUE, true);
    send(stream, &mut state)?;
    receive(stream, &mut state, deadline)?;
    state.into_transport_mode().map_err(refused)
}

/// The caller's side: answers the agent's message. The stream need not block, for an answer finds room in an empty one.
pub fn answer(stream: &mut TcpStream, message: &[u8], psk: &[u8; 32]) -> io::Result<snow::TransportState> {
    let mut state = handshake(psk, PROLOGUE, false);
    state.read_message(message, &mut [0; MESSAGE_MAX]).map_err(refused)?;
    send(stream, &mut state)?;
    state.into_transport_mode().map_err(refused)
}

/// The message that begins what was received, once it is whole.
///
/// # Errors
/// It says that it is longer than a message may be.
pub fn whole(received: &[u8]) -> Option<io::Result<&[u8]>> {
    let (length, rest) = received.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    if length > MESSAGE_MAX {
        return Some(Err(refused(snow::Error::Input)));
    }
    rest.get(..length).map(Ok)
}

fn refused(_: snow::Error) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other side does not know the key")
}

fn send(stream: &mut TcpStream, state: &mut snow::HandshakeState) -> io::Result<()> {
    let mut message = [0; MESSAGE_MAX];
    let length = state.write_message(&[], &mut message[2..]).map_err(refused)?;
    message[..2].copy_from_slice(&(length as u16).to_be_bytes());
    stream.write_all(&message[..2 + length])
}

fn receive(stream: &mut TcpStream, state: &mut snow::HandshakeState, deadline: Instant) -> io::Result<()> {
    let mut length = [0; 2];
    read_until(stream, &mut length, deadline)?;
    let length = usize::from(u16::from_be_bytes(length));
    let mut message = [0; MESSAGE_MAX];
    let message = message.get_mut(..length).ok_or_else(|| refused(snow::Error::Input))?;
    read_until(stream, message, deadline)?;
    state.read_message(message, &mut [0; MESSAGE_MAX]).map_err(refused)?;
    Ok(())
}

/// Fills `buffer` before `deadline`, however slowly the bytes drip in.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    stream.set_read_timeout(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    fn meet(
        agents: [u8; 32],
        callers: [u8; 32],
    ) -> (io::Result<snow::TransportState>, io::Result<snow::TransportState>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let agent = std::thread::spawn(move || initiate(&mut TcpStream::connect(addr).unwrap(), &agents, deadline));
        let mut stream = listener.accept().unwrap().0;
        let mut said = Vec::new();
        while whole(&said).is_none() {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            said.extend(byte);
        }
        let caller = whole(&said).unwrap().and_then(|message| answer(&mut stream, message, &callers));
        drop(stream);
        (agent.join().unwrap(), caller)
    }

    #[test]
    fn two_that_know_the_key_understand_each_other() {
        let (agent, caller) = meet([7; 32], [7; 32]);
        let (mut sealed, mut plain) = ([0; 100], [0; 100]);
        let length = agent.unwrap().write_message(b"hello", &mut sealed).unwrap();
        let length = caller.unwrap().read_message(&sealed[..length], &mut plain).unwrap();
        assert_eq!(&plain[..length], b"hello");
    }

    #[test]
    fn a_wrong_key_ends_the_handshake_on_both_sides() {
        let (agent, caller) = meet([7; 32], [8; 32]);
        assert!(agent.is_err());
        assert!(caller.is_err());
    }
}
