//! What ends a command, in the one shape that all of Comem's errors have: what happened; what to do.

use crate::table::one_line;
use std::fmt;

/// Exit codes of the `comem` command; `docs/exit-codes.md` lists them with those of nodes.
pub mod exit {
    /// All went well.
    pub const SUCCESS: i32 = 0;
    /// `compare` and `bench`: a run failed, or its result differs.
    pub const DIFFERENCE: i32 = 1;
    /// The command line makes no sense.
    pub const USAGE: i32 = 2;
    /// The job could not start.
    pub const START: i32 = 3;
    /// A node was lost.
    pub const NODE_LOST: i32 = 4;
    /// A node was told to stop.
    pub const STOPPED: i32 = 5;
    /// The system refused something, or Comem has a bug.
    pub const INTERNAL: i32 = 6;
    /// A host could not be reached.
    pub const UNREACHABLE: i32 = 7;
    /// A daemon or a host with another version refused.
    pub const REFUSED: i32 = 8;
    /// The job took longer than `--timeout`.
    pub const TIME_LIMIT: i32 = 124;
    /// A process that signal `n` ended counts as `SIGNAL + n`.
    pub const SIGNAL: i32 = 128;
}

/// Why a command ends without success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The exit code.
    pub code: i32,
    /// What happened, with the host or node it happened to.
    pub what: String,
    /// What to do about it; may be empty.
    pub advice: String,
}

/// A result whose error ends the command.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with any code.
    pub fn new(code: i32, what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure { code, what: what.into(), advice: advice.into() }
    }
    /// The command line makes no sense.
    pub fn usage(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::new(exit::USAGE, what, advice)
    }
    /// The job cannot start.
    pub fn start(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::new(exit::START, what, advice)
    }
    /// A host cannot be reached.
    pub fn unreachable(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::new(exit::UNREACHABLE, what, advice)
    }
    /// Somebody refused.
    pub fn refused(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::new(exit::REFUSED, what, advice)
    }
    /// The system refused what `attempt` names.
    pub fn system(attempt: impl fmt::Display, why: std::io::Error) -> Failure {
        Failure::new(exit::INTERNAL, format!("{attempt}: {why}"), "")
    }
    /// The system refuses a process or a thread, which `attempt` names.
    pub fn no_process(attempt: &str, why: &std::io::Error) -> Failure {
        let advice = match why.kind() {
            std::io::ErrorKind::WouldBlock => {
                "end other processes of this user, or raise their limit (ulimit -u, or the control group's pids.max)"
            }
            _ => "",
        };
        Failure::new(exit::INTERNAL, format!("cannot {attempt}: {why}"), advice)
    }
    /// Standard output takes no more. `None` where that is because nobody reads it: then nothing is to be said.
    pub fn of_output(why: &std::io::Error) -> Option<Failure> {
        let advice = match why.raw_os_error() {
            Some(libc::EBADF) => "it is closed: send the output to a file, or to /dev/null if nobody wants it",
            _ => "make room there, or send the output elsewhere",
        };
        let failure = || Failure::new(exit::INTERNAL, format!("cannot write standard output: {why}"), advice);
        (why.kind() != std::io::ErrorKind::BrokenPipe).then(failure)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.advice.as_str() {
            "" => write!(f, "comem: {}", one_line(&self.what)),
            advice => write!(f, "comem: {}; {}", one_line(&self.what), one_line(advice)),
        }
    }
}
