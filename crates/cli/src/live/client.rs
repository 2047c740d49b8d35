//! Whoever watches a job, or wants it to end.

use super::registry::Found;
use super::sample::{JobInfo, State};
use super::{FromJob, ToJob, VERSION};
use crate::control::{Lines, encode};
use crate::failure::{Failure, Outcome};
use crate::sys::poll::PollSet;
use crate::sys::{self, Peer, ReadOutcome, read_some, write_some};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a launcher may take to say what it is; one that is stopped says nothing.
pub const HELLO_LIMIT: Duration = Duration::from_millis(1500);

/// A way to a job's launcher.
pub struct Client {
    stream: UnixStream,
    lines: Lines,
    /// The launcher's process.
    pub peer: Peer,
}

/// What a launcher has said, or that it says nothing.
#[derive(Debug)]
pub enum Heard {
    /// This.
    Message(FromJob),
    /// Nothing by the deadline.
    NothingYet,
    /// Nothing any more.
    End,
}

impl Client {
    /// Connects to a job; `None` when it is over.
    ///
    /// # Errors
    /// As [`Found::connect`].
    pub fn of(found: &Found) -> Outcome<Option<Client>> {
        let Some(stream) = found.connect()? else { return Ok(None) };
        let peer = sys::peer_of(&stream).map_err(|e| Failure::system("the job's launcher", e))?;
        Ok(Some(Client { stream, lines: Lines::default(), peer }))
    }

    /// Waits for the launcher's first words: what the job is, and how far. `None` when nothing comes in time.
    ///
    /// # Errors
    /// The launcher has another version, or does not serve this one.
    pub fn hello(&mut self, deadline: Instant) -> Outcome<Option<(JobInfo, State)>> {
        match self.next(deadline)? {
            Heard::Message(FromJob::Hello { version: VERSION, job, state }) => Ok(Some((job, state))),
            Heard::Message(FromJob::Hello { version, job, .. }) => {
                let what = format!(
                    "the launcher of job {} speaks version {version} of the protocol, and this command version \
                     {VERSION}",
                    job.number
                );
                Err(Failure::refused(what, "use the comem that started the job"))
            }
            Heard::Message(FromJob::Refused { what }) => {
                Err(Failure::refused(format!("the job's launcher refuses: {what}"), ""))
            }
            // It ends just now.
            Heard::Message(_) | Heard::NothingYet | Heard::End => Ok(None),
        }
    }

    /// Tells the launcher something. One that is gone does not hear it, which the next word of it shows.
    pub fn say(&mut self, message: &ToJob) {
        let line = encode(message);
        // A line is shorter than what a new socket takes.
        let _ = write_some(&self.stream, &line);
    }

    /// The next that the launcher says before `deadline`.
    ///
    /// # Errors
    /// It says what is no message.
    pub fn next(&mut self, deadline: Instant) -> Outcome<Heard> {
        loop {
            if let Some(heard) = self.next_of_what_is_here()? {
                return Ok(heard);
            }
            let mut polls = PollSet::default();
            polls.readable(&self.stream);
            polls.wait(Some(deadline)).map_err(|e| Failure::system("waiting", e))?;
            if !polls.can_read(&self.stream) {
                return Ok(Heard::NothingYet);
            }
        }
    }

    /// The next without waiting; `None` when there is nothing more for now.
    ///
    /// # Errors
    /// As [`Client::next`].
    pub fn next_of_what_is_here(&mut self) -> Outcome<Option<Heard>> {
        let trouble = |e| Failure::system("the job's launcher", e);
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(message) = self.lines.next_message().map_err(trouble)? {
                return Ok(Some(Heard::Message(message)));
            }
            match read_some(&self.stream, &mut chunk) {
                ReadOutcome::Bytes(count) => self.lines.feed(&chunk[..count]).map_err(trouble)?,
                ReadOutcome::NothingYet => return Ok(None),
                ReadOutcome::End => return Ok(Some(Heard::End)),
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
