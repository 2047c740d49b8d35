//! What a launcher and an agent send each other: frames of a length, a kind, a node and some bytes.
//!
//! ```text
//! length u32 | kind u8 | node u16 | payload (length - 3 bytes)       network byte order
//! ```

use serde::Serialize;
use std::io;

/// What a frame is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Agent: this host (JSON).
    Hello = 1,
    /// Agent: a node runs (its pid, JSON).
    Started = 2,
    /// Agent: standard output; empty at its end.
    Out = 3,
    /// Agent: standard error; empty at its end.
    Err = 4,
    /// Agent: a node's control message (JSON).
    FromNode = 5,
    /// Agent: so many bytes of standard input were taken (JSON).
    StdinTaken = 6,
    /// Agent: how a node's process ended (JSON).
    Ended = 7,
    /// Agent: the nodes cannot be started (code, what, advice, JSON).
    Refused = 8,
    /// Agent: a note for the user (text).
    Note = 9,
    /// Agent: everything is ended and said.
    Closed = 10,
    /// Launcher: what to start (JSON).
    Spec = 32,
    /// Launcher: a piece of the program; empty at its end.
    Stage = 33,
    /// Launcher: a control message for a node (JSON).
    ToNode = 34,
    /// Launcher: standard input; empty at its end.
    Stdin = 35,
    /// Launcher: a signal for all nodes (its number, JSON).
    Signal = 36,
    /// Launcher: end everything.
    Close = 37,
    /// Launcher: so many bytes of output were taken (JSON).
    OutputTaken = 38,
    /// Launcher: it is there. The agent answers with the same.
    Alive = 39,
}

impl Kind {
    const ALL: [Kind; 18] = [
        Kind::Hello,
        Kind::Started,
        Kind::Out,
        Kind::Err,
        Kind::FromNode,
        Kind::StdinTaken,
        Kind::Ended,
        Kind::Refused,
        Kind::Note,
        Kind::Closed,
        Kind::Spec,
        Kind::Stage,
        Kind::ToNode,
        Kind::Stdin,
        Kind::Signal,
        Kind::Close,
        Kind::OutputTaken,
        Kind::Alive,
    ];
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is about.
    pub kind: Kind,
    /// Which node it is about, where that matters.
    pub node: u16,
    /// Its content.
    pub payload: Vec<u8>,
}

/// Largest payload: the statistics of a node with many named regions.
pub const PAYLOAD_MAX: usize = 17 << 20;

const LENGTH_BYTES: usize = 4;
const FIXED_BYTES: usize = 3;

impl Frame {
    /// A frame of plain bytes.
    pub fn bytes(kind: Kind, node: u16, payload: &[u8]) -> Frame {
        Frame { kind, node, payload: payload.to_vec() }
    }

    /// A frame that carries a value as JSON.
    pub fn json(kind: Kind, node: u16, value: &impl Serialize) -> Frame {
        Frame { kind, node, payload: serde_json::to_vec(value).expect("our own values have a JSON form") }
    }

    /// The value that the frame carries.
    pub fn value<T: serde::de::DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.payload).map_err(|e| invalid(format!("a frame of kind {:?}: {e}", self.kind)))
    }

    /// Appends the frame's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&((FIXED_BYTES + self.payload.len()) as u32).to_be_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.node.to_be_bytes());
        out.extend_from_slice(&self.payload);
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Puts frames together from bytes that arrive in any portions.
#[derive(Default)]
pub struct Assembler {
    pending: Vec<u8>,
}

impl Assembler {
    /// Adds what was received.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Takes out the complete frames.
    ///
    /// # Errors
    /// Bytes that are no frames; the stream cannot be used any more.
    pub fn take(&mut self) -> io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut at = 0;
        while let Some((frame, length)) = parse(&self.pending[at..])? {
            frames.push(frame);
            at += length;
        }
        self.pending.drain(..at);
        Ok(frames)
    }
}

/// The frame that `bytes` begin with, and its length; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> io::Result<Option<(Frame, usize)>> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(FIXED_BYTES..=FIXED_BYTES + PAYLOAD_MAX).contains(&length) {
        return Err(invalid(format!("a frame claims {length} bytes")));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == body[0]);
    let kind = kind.ok_or_else(|| invalid(format!("a frame of the unknown kind {}", body[0])))?;
    let node = u16::from_be_bytes([body[1], body[2]]);
    Ok(Some((Frame::bytes(kind, node, &body[FIXED_BYTES..]), LENGTH_BYTES + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_together_from_single_bytes() {
        let sent = [
            Frame::bytes(Kind::Out, 3, b"hello\n"),
            Frame::json(Kind::Signal, 0, &15),
            Frame::bytes(Kind::Err, 1, b""),
        ];
        let mut wire = Vec::new();
        sent.iter().for_each(|frame| frame.write(&mut wire));
        let mut assembler = Assembler::default();
        let mut got = Vec::new();
        for byte in wire {
            assembler.feed(&[byte]);
            got.extend(assembler.take().unwrap());
        }
        assert_eq!(got, sent);
        assert_eq!(got[1].value::<i32>().unwrap(), 15);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for wrong in [&[0, 0, 0, 2, 1, 0][..], &[255, 0, 0, 0, 1, 0, 0], &[0, 0, 0, 3, 200, 0, 0]] {
            let mut assembler = Assembler::default();
            assembler.feed(wrong);
            assert!(assembler.take().is_err(), "{wrong:?}");
        }
        assert!(Frame::bytes(Kind::Signal, 0, b"x").value::<i32>().is_err());
    }
}
