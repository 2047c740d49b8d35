//! The datagrams of the failure detector: PING, PONG and LOST.

use super::message::{REASON_MAX, put_text, take_node, take_text, types};
use crate::ids::NodeId;
use crate::wire::bytes::{Put, Reader, WireError};
use crate::wire::header::MsgType;

/// Why a node is gone. Reads as the end of a sentence that begins with the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LossCause {
    /// Nothing listens at its port any more.
    PortClosed,
    /// Nothing was heard from it for so many milliseconds, or nothing was answered.
    Silent {
        /// How long.
        ms: u32,
    },
    /// Short packets get through to it and back, and long ones do not.
    OnlyShort,
    /// Its launcher saw it exit.
    Exited {
        /// The exit status.
        status: i32,
    },
    /// Its launcher saw it killed.
    Killed {
        /// By which signal.
        signal: i32,
    },
    /// It said itself why it stops.
    Stopped(String),
    /// It left at the end of the job, as it should.
    Left,
}

impl LossCause {
    /// Whether it is the network between two nodes, or either of them: then one alone cannot tell which is to blame.
    pub fn parts_two(&self) -> bool {
        matches!(self, LossCause::Silent { .. } | LossCause::OnlyShort)
    }
}

impl std::fmt::Display for LossCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LossCause::PortClosed => write!(f, "has ended (nothing listens at its port)"),
            LossCause::Silent { ms } => write!(f, "was silent for {}.{} seconds", ms / 1000, ms % 1000 / 100),
            LossCause::OnlyShort => write!(f, "cannot be reached by long packets, only by short ones"),
            LossCause::Exited { status } => write!(f, "exited with status {status}"),
            LossCause::Killed { signal } => write!(f, "was killed by signal {signal}"),
            LossCause::Stopped(why) => write!(f, "stopped: {why}"),
            LossCause::Left => write!(f, "left at the end of the job"),
        }
    }
}

/// A message of the failure detector. Its sender is known from the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchMessage {
    /// Are you alive? I know of so many nodes that are gone.
    Ping {
        /// How many.
        gone: u16,
        /// Bytes that say nothing, to learn whether datagrams of this length get through.
        filling: usize,
    },
    /// I am.
    Pong {
        /// Nodes that are gone, as far as the sender knows.
        gone: u16,
        /// As many bytes that say nothing.
        filling: usize,
    },
    /// A node is gone.
    Lost {
        /// Which.
        node: NodeId,
        /// Who found out.
        reporter: NodeId,
        /// Why.
        why: LossCause,
    },
    /// Two nodes do not reach each other. Which of them is lost for that is decided when all accusations are in.
    Accused {
        /// Who is accused.
        node: NodeId,
        /// By whom.
        reporter: NodeId,
        /// Of what.
        why: LossCause,
    },
}

/// The mark of an accusation, beside the cause.
const ACCUSED: u8 = 0x80;

impl WatchMessage {
    /// The message's type.
    pub fn ty(&self) -> MsgType {
        match self {
            WatchMessage::Ping { .. } => types::PING,
            WatchMessage::Pong { .. } => types::PONG,
            WatchMessage::Lost { .. } | WatchMessage::Accused { .. } => types::LOST,
        }
    }

    /// The message's body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            WatchMessage::Ping { gone, filling } | WatchMessage::Pong { gone, filling } => {
                out.put_u16(*gone);
                out.resize(out.len() + filling, 0);
            }
            WatchMessage::Lost { node, reporter, why } | WatchMessage::Accused { node, reporter, why } => {
                out.put_u16(node.0);
                out.put_u16(reporter.0);
                let (kind, number, text) = match why {
                    LossCause::PortClosed => (0, 0, ""),
                    LossCause::Silent { ms } => (1, *ms, ""),
                    LossCause::Exited { status } => (2, *status as u32, ""),
                    LossCause::Killed { signal } => (3, *signal as u32, ""),
                    LossCause::Stopped(text) => (4, 0, text.as_str()),
                    LossCause::Left => (5, 0, ""),
                    LossCause::OnlyShort => (6, 0, ""),
                };
                let mark = if matches!(self, WatchMessage::Accused { .. }) { ACCUSED } else { 0 };
                out.put_u8(kind | mark);
                out.put_u32(number);
                put_text(&mut out, text);
            }
        }
        out
    }

    /// Reads a body that came with type `ty`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn parse(ty: MsgType, body: &[u8]) -> Result<WatchMessage, WireError> {
        let mut r = Reader::new(body);
        let message = match ty {
            types::PING => WatchMessage::Ping { gone: r.u16()?, filling: r.rest().len() },
            types::PONG => WatchMessage::Pong { gone: r.u16()?, filling: r.rest().len() },
            types::LOST => {
                let (node, reporter, kind, number) = (take_node(&mut r)?, take_node(&mut r)?, r.u8()?, r.u32()?);
                let text = take_text(&mut r, REASON_MAX)?;
                let why = match kind & !ACCUSED {
                    0 => LossCause::PortClosed,
                    1 => LossCause::Silent { ms: number },
                    2 => LossCause::Exited { status: number as i32 },
                    3 => LossCause::Killed { signal: number as i32 },
                    4 => LossCause::Stopped(text),
                    5 => LossCause::Left,
                    6 => LossCause::OnlyShort,
                    _ => return Err(WireError::BadValue("cause")),
                };
                match kind & ACCUSED {
                    0 => WatchMessage::Lost { node, reporter, why },
                    _ if !why.parts_two() => return Err(WireError::BadValue("accusation")),
                    _ => WatchMessage::Accused { node, reporter, why },
                }
            }
            other => return Err(WireError::BadType(other.0)),
        };
        r.finish()?;
        Ok(message)
    }
}
