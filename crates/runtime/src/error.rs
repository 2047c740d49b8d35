//! What can go wrong, in one shape: `comem: node 3 (host b, pid 4711): what happened; what to do`.

use crate::config::ConfigError;
use comem_protocol::ids::NodeId;
use comem_protocol::sync::mismatch::Mismatch;
use std::io::Write;

/// Why Comem cannot do what was asked, or cannot go on.
#[derive(thiserror::Error)]
pub enum Error {
    /// The environment makes no sense.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The program used Comem in a way it cannot be used.
    #[error("{0}")]
    Misuse(String),
    /// Start-up failed.
    #[error("cannot start: {0}")]
    Start(String),
    /// A node is gone or silent.
    #[error("{node} {why}; this node stops, since its data may be lost with that one")]
    NodeLost {
        /// Which node.
        node: NodeId,
        /// What is known of its end.
        why: String,
    },
    /// The job was told to end.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The host ended a wait: see [`crate::host`].
    #[error("a wait was interrupted; the job cannot go on")]
    Interrupted,
    /// Nodes did not make the same collective calls.
    #[error("{0}; every node must make the same collective calls in the same order")]
    Mismatch(#[from] Mismatch),
    /// A thread of this node panicked, while others may wait for it.
    #[error(
        "thread {thread} of the job panicked, as Rust says in this node's output; the other threads cannot go on without it"
    )]
    Panicked {
        /// Its number in the job.
        thread: usize,
    },
    /// A function of the program, which Comem has called, was left in another way than by its return: Comem's own
    /// frames cannot be.
    #[error("{what} left {function}, which Comem had called; deal with that inside the function, and let it return")]
    Unwound {
        /// What left it: an exception, `pthread_exit`.
        what: &'static str,
        /// Which function.
        function: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// In words, like `Display`: a Rust program whose `main` returns the error prints it like this.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "comem: {self}")
    }
}

/// A result with Comem's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Exit codes of a node that Comem ends; `docs/exit-codes.md` lists them all.
pub mod exit {
    /// The command line or the environment makes no sense, or the program misused Comem.
    pub const USAGE: i32 = 2;
    /// The job could not start.
    pub const START: i32 = 3;
    /// Another node was lost.
    pub const NODE_LOST: i32 = 4;
    /// The launcher told the node to stop.
    pub const STOPPED: i32 = 5;
    /// A bug in Comem, or memory ran out.
    pub const INTERNAL: i32 = 6;
    /// A thread of a Rust program panicked: what Rust's own processes end with then. Or a function that Comem has
    /// called was left by an exception of C++, `pthread_exit` or a cancellation.
    pub const PANICKED: i32 = 101;
}

impl Error {
    /// The exit code of a node that ends with this error.
    pub fn exit_code(&self) -> i32 {
        match self {
            Error::Config(_) | Error::Misuse(_) | Error::Mismatch(_) => exit::USAGE,
            Error::Start(_) => exit::START,
            Error::NodeLost { .. } => exit::NODE_LOST,
            Error::Stopped(_) | Error::Interrupted => exit::STOPPED,
            Error::System { .. } => exit::INTERNAL,
            Error::Panicked { .. } | Error::Unwound { .. } => exit::PANICKED,
        }
    }

    /// Adds what was attempted to a system's error.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}

/// Whether a terminal would obey a character rather than show it, or show what is around it in another order.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A text that names what came from elsewhere (hosts, programs, what others said), with what would steer a terminal
/// written out.
/// Ends of lines stay.
fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len() + 1), |mut shown, c| {
        match steers(c) && !matches!(c, '\n' | '\t') {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
        shown
    })
}

/// Says something on standard error, if that takes it: that nobody can be told is no reason to end.
pub fn say(what: std::fmt::Arguments<'_>) {
    // In one piece: standard error has no buffer, and a node that is killed between two writes would leave half a line.
    let line = printable(&what.to_string()) + "\n";
    let _ = comem_net::within_file_limit(|| std::io::stderr().write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_elsewhere_cannot_steer_a_terminal() {
        assert_eq!(printable("host \u{1b}[31mx\u{9b}1m\u{202e}y: ä\n"), "host \\u{1b}[31mx\\u{9b}1m\\u{202e}y: ä\n");
    }
}
