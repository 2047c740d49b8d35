//! What the nodes write, put together line by line with their numbers in front.
//!
//! A line belongs to one node. A piece without an end is held back until its end comes, or until it has waited for a
//! moment (a prompt): then it is shown, and whoever writes next begins a new line unless it is the same node.

use crate::failure::Outcome;
use crate::spec::Stream;
use crate::sys;
use crate::sys::poll::PollSet;
use crate::sys::write_some;
use crate::table::one_line;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A longer piece without an end is shown as it is.
const PIECE_MAX: usize = 64 << 10;
/// How long a piece waits for its end.
const PIECE_WAIT: Duration = Duration::from_millis(150);
/// Most portions on their way to a slow reader before the nodes are slowed down too.
const PORTIONS_MAX: usize = 16;
/// How soon a slow reader is looked at again.
const CLOGGED_WAIT: Duration = Duration::from_millis(10);
/// How long the last lines may take to go out when the job was interrupted.
const LAST_LINES_LIMIT: Duration = Duration::from_secs(1);

/// How a node's number is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefix {
    /// Not at all.
    None,
    /// `[2] `
    Plain,
    /// The same in the node's colour.
    Coloured,
}

impl Prefix {
    fn write(self, node: u16, out: &mut Vec<u8>) {
        const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];
        let colour = COLOURS[usize::from(node) % COLOURS.len()];
        let text = match self {
            Prefix::None => return,
            Prefix::Plain => format!("[{node}] "),
            Prefix::Coloured => format!("\x1b[{colour}m[{node}]\x1b[0m "),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// A node's output.
type Source = (u16, Stream);

/// Joins the lines of several outputs on one stream.
pub struct Mux {
    prefix: Prefix,
    /// Pieces that wait for their end.
    pieces: BTreeMap<Source, Vec<u8>>,
    /// Which output's line stands on the stream without its end.
    open: Option<Source>,
}

impl Mux {
    /// An empty stream.
    pub fn new(prefix: Prefix) -> Mux {
        Mux { prefix, pieces: BTreeMap::new(), open: None }
    }

    /// Adds what `source` wrote; complete lines go to `out`.
    pub fn take(&mut self, source: Source, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            self.begin(source, out);
            out.extend(self.pieces.remove(&source).unwrap_or_default());
            out.extend_from_slice(line);
            self.open = None;
            rest = after;
        }
        if !rest.is_empty() {
            let piece = self.pieces.entry(source).or_default();
            piece.extend_from_slice(rest);
            if piece.len() > PIECE_MAX {
                self.show_piece(source, out);
            }
        }
    }

    /// Begins or goes on with a line of `source`.
    fn begin(&mut self, source: Source, out: &mut Vec<u8>) {
        if self.open != Some(source) {
            self.end_open(out);
            self.prefix.write(source.0, out);
        }
    }

    /// Ends a line that stands open.
    fn end_open(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            out.push(b'\n');
        }
    }

    fn show_piece(&mut self, source: Source, out: &mut Vec<u8>) {
        if let Some(piece) = self.pieces.remove(&source) {
            self.begin(source, out);
            out.extend(piece);
            self.open = Some(source);
        }
    }

    /// Whether pieces wait for their ends.
    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Shows the pieces although their ends have not come.
    pub fn show_pieces(&mut self, out: &mut Vec<u8>) {
        for source in self.pieces.keys().copied().collect::<Vec<_>>() {
            self.show_piece(source, out);
        }
    }

    /// `source` writes no more: its last line gets an end.
    pub fn finish(&mut self, source: Source, out: &mut Vec<u8>) {
        self.show_piece(source, out);
        if self.open == Some(source) {
            self.end_open(out);
        }
    }

    /// Adds a line of our own. What it names comes from elsewhere.
    pub fn say(&mut self, line: &str, out: &mut Vec<u8>) {
        self.end_open(out);
        out.extend_from_slice(one_line(line).as_bytes());
        out.push(b'\n');
    }
}

/// A thread that writes to one of our outputs, so that a slow reader stops the nodes but not the launcher.
struct Sink {
    sender: Option<SyncSender<Vec<u8>>>,
    waiting: VecDeque<Vec<u8>>,
    /// Why nothing more can be written.
    broken: Arc<OnceLock<io::Error>>,
    writer: Option<JoinHandle<()>>,
    /// Disconnected when the thread has written all.
    over: Receiver<()>,
}

impl Sink {
    fn new(out: impl AsFd + Send + 'static) -> Outcome<Sink> {
        let (sender, receiver) = sync_channel(PORTIONS_MAX);
        let (writes, over) = sync_channel(0);
        let broken = Arc::new(OnceLock::new());
        let seen = Arc::clone(&broken);
        let work = move || {
            write_portions(&out, &receiver, &seen);
            drop::<SyncSender<()>>(writes);
        };
        let writer = sys::start_thread("comem-output", work)?;
        Ok(Sink { sender: Some(sender), waiting: VecDeque::new(), broken, writer: Some(writer), over })
    }

    fn push(&mut self, portion: Vec<u8>) {
        if !portion.is_empty() {
            self.waiting.push_back(portion);
        }
        self.pump();
    }

    fn pump(&mut self) {
        while let (Some(sender), Some(portion)) = (&self.sender, self.waiting.pop_front()) {
            if let Err(TrySendError::Full(portion)) = sender.try_send(portion) {
                return self.waiting.push_front(portion);
            }
        }
    }

    /// Hands over the rest and waits until it is written, or `limit` has passed.
    fn finish(&mut self, limit: Option<Duration>) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let expired = || deadline.is_some_and(|at| Instant::now() > at);
        while !self.waiting.is_empty() && !expired() {
            self.pump();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.sender = None;
        let Some(writer) = self.writer.take() else { return };
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let in_time = left.is_none_or(|left| self.over.recv_timeout(left) == Err(RecvTimeoutError::Disconnected));
        if in_time {
            let _ = writer.join();
        }
    }
}

fn write_portions(out: &impl AsFd, portions: &Receiver<Vec<u8>>, broken: &OnceLock<io::Error>) {
    for portion in portions {
        if broken.get().is_none()
            && let Err(why) = write_all(out, &portion)
        {
            let _ = broken.set(why);
        }
    }
}

/// Writes all, also where our caller has made the descriptor one that does not wait.
fn write_all(out: &impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match write_some(out, rest)? {
            0 => {
                let mut polls = PollSet::default();
                polls.writable(out);
                polls.wait(None)?;
            }
            count => rest = &rest[count..],
        }
    }
    Ok(())
}

/// Both outputs of the launcher.
pub struct Output {
    muxes: Vec<Mux>,
    sinks: Vec<Sink>,
    pieces_at: Option<Instant>,
    /// Of the nodes' standard outputs node 0's alone is wanted.
    only_node_zero: bool,
    status: StatusLine,
}

/// A line below all others that is written again and again, where standard error is a terminal.
#[derive(Default)]
struct StatusLine {
    text: Option<String>,
    shown: bool,
}

impl StatusLine {
    /// What stands in the line is taken away; the cursor is at its beginning.
    const CLEAR: &[u8] = b"\r\x1b[K";

    /// Puts a portion of output above the line; `open` where its last line goes on.
    fn around(&mut self, portion: Vec<u8>, open: bool) -> Vec<u8> {
        let mut all = if std::mem::take(&mut self.shown) { StatusLine::CLEAR.to_vec() } else { Vec::new() };
        all.extend(portion);
        if let Some(text) = self.text.as_ref().filter(|_| !open) {
            // A line that is too long loses its end: only one can be taken away again.
            all.extend_from_slice(b"\x1b[?7l");
            all.extend_from_slice(one_line(text).as_bytes());
            all.extend_from_slice(b"\x1b[?7h");
            self.shown = true;
        }
        all
    }
}

impl Output {
    /// Writes to standard output and standard error, with or without the nodes' numbers.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn new(prefixes: bool) -> Outcome<Output> {
        let prefix = |terminal: bool| match (prefixes, terminal && colours_wanted()) {
            (false, _) => Prefix::None,
            (true, false) => Prefix::Plain,
            (true, true) => Prefix::Coloured,
        };
        let (out, err) = (io::stdout(), io::stderr());
        let mut muxes = vec![Mux::new(prefix(out.is_terminal()))];
        let mut sinks = vec![Sink::new(out)?];
        // Where both go to the same place, one thread keeps their order.
        if !same_file(&io::stdout(), &io::stderr()) {
            muxes.push(Mux::new(prefix(err.is_terminal())));
            sinks.push(Sink::new(err)?);
        }
        Ok(Output { muxes, sinks, pieces_at: None, only_node_zero: false, status: StatusLine::default() })
    }

    /// The same with node 0's standard output alone, as it is: no other line comes between its own.
    ///
    /// # Errors
    /// As [`Output::new`].
    pub fn of_node_zero() -> Outcome<Output> {
        Output::new(false).map(|output| Output { only_node_zero: true, ..output })
    }

    fn index(&self, stream: Stream) -> usize {
        (stream as usize).min(self.sinks.len() - 1)
    }

    /// Adds what a node wrote; no bytes mean that it writes no more.
    pub fn take(&mut self, node: u16, stream: Stream, bytes: &[u8]) {
        if self.only_node_zero && node != 0 && stream == Stream::Out {
            return;
        }
        let index = self.index(stream);
        let mut portion = Vec::new();
        match bytes {
            [] => self.muxes[index].finish((node, stream), &mut portion),
            bytes => self.muxes[index].take((node, stream), bytes, &mut portion),
        }
        self.push(index, portion);
        self.pieces_at = match self.pieces_at {
            _ if !self.muxes.iter().any(Mux::has_pieces) => None,
            None => Some(Instant::now() + PIECE_WAIT),
            at => at,
        };
    }

    /// Says something of our own on standard error.
    pub fn say(&mut self, line: &str) {
        let index = self.index(Stream::Err);
        let mut portion = Vec::new();
        self.muxes[index].say(line, &mut portion);
        self.push(index, portion);
    }

    fn push(&mut self, index: usize, portion: Vec<u8>) {
        let is_below = index == self.index(Stream::Err) && (self.status.shown || self.status.text.is_some());
        let portion = match is_below && !portion.is_empty() {
            true => self.status.around(portion, self.muxes[index].open.is_some()),
            false => portion,
        };
        self.sinks[index].push(portion);
    }

    /// Whether a line can stand below all others.
    pub fn has_status_line(&self) -> bool {
        !self.only_node_zero && io::stderr().is_terminal()
    }

    /// Shows this line below all others, or none.
    pub fn set_status(&mut self, text: Option<String>) {
        let index = self.index(Stream::Err);
        // Nothing is gained by what a slow terminal shows later.
        if text == self.status.text || !self.has_status_line() || (text.is_some() && self.is_clogged()) {
            return;
        }
        self.status.text = text;
        let portion = self.status.around(Vec::new(), self.muxes[index].open.is_some());
        self.sinks[index].push(portion);
    }

    /// Whether a reader is so slow that the nodes are to be slowed down.
    pub fn is_clogged(&self) -> bool {
        self.sinks.iter().any(|sink| !sink.waiting.is_empty())
    }

    /// Why nothing more can be written to standard output.
    pub fn broken(&self) -> Option<&io::Error> {
        self.sinks[0].broken.get()
    }

    /// When [`Output::on_time`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_clogged() { Some(Instant::now() + CLOGGED_WAIT) } else { self.pieces_at }
    }

    /// Hands on what waits, and shows pieces that have waited long enough.
    pub fn on_time(&mut self, now: Instant) {
        self.sinks.iter_mut().for_each(Sink::pump);
        if self.pieces_at.is_some_and(|at| at <= now) && !self.is_clogged() {
            self.pieces_at = None;
            for index in 0..self.muxes.len() {
                let mut portion = Vec::new();
                self.muxes[index].show_pieces(&mut portion);
                self.push(index, portion);
            }
        }
    }

    /// Writes everything that is left; `patient` when a slow reader may take all the time it wants.
    pub fn finish(&mut self, patient: bool) {
        self.set_status(None);
        for (mux, sink) in self.muxes.iter_mut().zip(&mut self.sinks) {
            let mut portion = Vec::new();
            for source in mux.pieces.keys().copied().collect::<Vec<_>>() {
                mux.finish(source, &mut portion);
            }
            mux.end_open(&mut portion);
            sink.push(portion);
            sink.finish((!patient).then_some(LAST_LINES_LIMIT));
        }
    }
}

fn colours_wanted() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether two descriptors lead to the same file, pipe or terminal.
fn same_file(one: &impl AsFd, other: &impl AsFd) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |fd: &dyn Fn() -> io::Result<std::os::fd::OwnedFd>| {
        let meta = std::fs::File::from(fd().ok()?).metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let one = identity(&|| one.as_fd().try_clone_to_owned());
    one.is_some() && one == identity(&|| other.as_fd().try_clone_to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &[u8]) -> String {
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn lines_of_several_nodes_stay_whole() {
        let (mut mux, mut out) = (Mux::new(Prefix::Plain), Vec::new());
        mux.take((0, Stream::Out), b"one ", &mut out);
        mux.take((1, Stream::Out), b"two\nthree\nfo", &mut out);
        mux.take((0, Stream::Out), b"line\n", &mut out);
        mux.take((1, Stream::Out), b"ur\n", &mut out);
        assert_eq!(text(&out), "[1] two\n[1] three\n[0] one line\n[1] four\n");
        assert!(!mux.has_pieces());
    }

    #[test]
    fn a_prompt_is_shown_and_its_line_goes_on_unless_another_node_writes() {
        let (mut mux, mut out) = (Mux::new(Prefix::Plain), Vec::new());
        mux.take((0, Stream::Out), b"name? ", &mut out);
        mux.show_pieces(&mut out);
        mux.take((0, Stream::Out), b"thanks\nmore? ", &mut out);
        mux.show_pieces(&mut out);
        mux.take((1, Stream::Out), b"here\n", &mut out);
        mux.take((0, Stream::Out), b"yes\n", &mut out);
        assert_eq!(text(&out), "[0] name? thanks\n[0] more? \n[1] here\n[0] yes\n");
    }

    #[test]
    fn a_last_line_gets_the_end_it_lacks() {
        let (mut mux, mut out) = (Mux::new(Prefix::Plain), Vec::new());
        mux.take((2, Stream::Out), b"bye", &mut out);
        mux.finish((2, Stream::Out), &mut out);
        mux.finish((3, Stream::Out), &mut out);
        mux.say("comem: done", &mut out);
        assert_eq!(text(&out), "[2] bye\ncomem: done\n");
    }

    #[test]
    fn both_outputs_of_a_node_on_one_terminal_do_not_mix_within_a_line() {
        let (mut mux, mut out) = (Mux::new(Prefix::Plain), Vec::new());
        mux.take((0, Stream::Out), b"half", &mut out);
        mux.take((0, Stream::Err), b"warning\n", &mut out);
        mux.take((0, Stream::Out), b" done\n", &mut out);
        assert_eq!(text(&out), "[0] warning\n[0] half done\n");
    }

    #[test]
    fn our_own_lines_do_not_run_into_a_prompt() {
        let (mut mux, mut out) = (Mux::new(Prefix::None), Vec::new());
        mux.take((0, Stream::Out), b"working", &mut out);
        mux.show_pieces(&mut out);
        mux.say("comem: stopped", &mut out);
        assert_eq!(text(&out), "working\ncomem: stopped\n");
    }

    #[test]
    fn output_comes_above_the_status_line_and_a_prompt_instead_of_it() {
        let mut status = StatusLine { text: Some("12 s\u{1b}[2J".to_string()), shown: false };
        let shown = "\u{1b}[?7l12 s\\u{1b}[2J\u{1b}[?7h";
        assert_eq!(text(&status.around(Vec::new(), false)), shown);
        assert_eq!(text(&status.around(b"[0] one\n".to_vec(), false)), format!("\r\u{1b}[K[0] one\n{shown}"));
        assert_eq!(text(&status.around(b"[0] name? ".to_vec(), true)), "\r\u{1b}[K[0] name? ");
        assert_eq!(text(&status.around(b"\n".to_vec(), false)), format!("\n{shown}"));
        status.text = None;
        assert_eq!(text(&status.around(Vec::new(), false)), "\r\u{1b}[K");
        assert_eq!(text(&status.around(b"[0] two\n".to_vec(), false)), "[0] two\n");
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_for_ever() {
        let (mut mux, mut out) = (Mux::new(Prefix::Coloured), Vec::new());
        mux.take((1, Stream::Out), &vec![b'x'; PIECE_MAX + 1], &mut out);
        assert!(!mux.has_pieces());
        assert!(out.starts_with(b"\x1b[33m[1]\x1b[0m xxx"));
    }
}
