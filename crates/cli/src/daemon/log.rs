//! A log that keeps nobody waiting: a thread writes its lines. Who reads them may be slow, stopped or not there at all;
//! what then finds no room is counted, and the count is told when there is room again.

use crate::failure::Outcome;
use crate::sys;
use crate::table::one_line;
use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

/// So many lines wait for their reader at most.
const LINES_MAX: usize = 1024;

/// Where lines go.
pub struct Log {
    lines: SyncSender<String>,
    lost: Cell<u64>,
    written: Receiver<()>,
}

impl Log {
    /// A log that goes to `out`, each line with `prefix` in front.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn to(mut out: impl Write + Send + 'static, prefix: &'static str) -> Outcome<Log> {
        let (lines, waiting) = mpsc::sync_channel::<String>(LINES_MAX);
        let (done, written) = mpsc::channel();
        sys::start_thread("comem-log", move || {
            // A log that takes no more is no reason to end.
            waiting.iter().for_each(|line| drop(out.write_all(format!("{prefix}{line}\n").as_bytes())));
            let _ = done.send(());
        })?;
        Ok(Log { lines, lost: Cell::new(0), written })
    }

    /// Adds a line, unless too many wait already.
    pub fn say(&self, what: fmt::Arguments<'_>) {
        let lost = self.lost.get();
        if lost > 0 && self.lines.try_send(format!("{lost} lines are missing here: this log was not read")).is_ok() {
            self.lost.set(0);
        }
        if self.lines.try_send(one_line(&what.to_string())).is_err() {
            self.lost.set(self.lost.get() + 1);
        }
    }

    /// Waits until all is written, but so long at most.
    pub fn finish(self, limit: Duration) {
        drop(self.lines);
        let _ = self.written.recv_timeout(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read};

    #[test]
    fn lines_without_a_reader_are_counted_and_keep_nobody_waiting() {
        let (mut reader, writer) = io::pipe().unwrap();
        let log = Log::to(writer, "daemon: ").unwrap();
        // Far more than the pipe and the lines that may wait hold.
        let long = "x".repeat(1000);
        (0..5_000).for_each(|number| log.say(format_args!("{number} {long}")));
        let mut first = [0; 10];
        reader.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"daemon: 0 ");
        let rest = std::thread::spawn(move || {
            let mut rest = String::new();
            reader.read_to_string(&mut rest).map(|_| rest).unwrap()
        });
        // When there is room again, the next line tells of those that are missing.
        while log.lost.get() > 0 {
            log.say(format_args!("last"));
        }
        log.finish(Duration::from_secs(60));
        let rest = rest.join().unwrap();
        assert!(rest.contains(" lines are missing here") && rest.ends_with("daemon: last\n"), "{}", rest.len());
    }

    #[test]
    fn an_end_does_not_wait_for_a_reader() {
        let (_reader, writer) = io::pipe().unwrap();
        let log = Log::to(writer, "").unwrap();
        (0..200).for_each(|_| log.say(format_args!("{}", "x".repeat(1000))));
        log.finish(Duration::from_millis(10));
    }
}
