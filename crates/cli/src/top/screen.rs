//! A terminal that is drawn anew again and again: lines in, keys out.
//!
//! Lines go to the terminal's second screen, so that what stood there before comes back. Nothing is wrapped: a line
//! that is too long loses its end.

use crate::sys::poll::PollSet;
use crate::sys::{self, ReadOutcome, read_some};
use std::io::{self, IsTerminal, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// The second screen, no cursor, no wrapping.
const OPEN: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
/// As it was before.
const CLOSE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";
/// To the upper left corner.
const HOME: &[u8] = b"\x1b[H";
/// Nothing stands behind here in the line.
const END_OF_LINE: &[u8] = b"\x1b[K";
/// Nothing stands behind here on the screen.
const END_OF_SCREEN: &[u8] = b"\x1b[J";
/// A terminal that does not tell its size has so many rows.
const ROWS: usize = 24;

/// A key of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// One that stands for itself.
    Char(char),
    /// Escape alone.
    Escape,
}

/// The terminal, while this value lives.
pub struct Screen {
    /// How the terminal read keys before, where it is one that has keys.
    before: Option<libc::termios>,
    open: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open() -> io::Result<Screen> {
        let before = io::stdin().is_terminal().then(settings).transpose()?;
        if let Some(before) = &before {
            let mut single_keys = *before;
            single_keys.c_lflag &= !(libc::ICANON | libc::ECHO);
            (single_keys.c_cc[libc::VMIN], single_keys.c_cc[libc::VTIME]) = (0, 0);
            set(&single_keys)?;
        }
        let screen = Screen { before, open: true };
        let mut out = io::stdout();
        out.write_all(OPEN).and_then(|()| out.flush()).map(|()| screen)
    }

    /// Gives the terminal back.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            let mut out = io::stdout();
            let _ = out.write_all(CLOSE).and_then(|()| out.flush());
            self.before.iter().for_each(|before| drop(set(before)));
        }
    }

    /// Adds what to wait for.
    pub fn register(&self, polls: &mut PollSet) {
        if self.before.is_some() {
            polls.readable(&io::stdin());
        }
    }

    /// The keys that were hit.
    pub fn keys(&mut self, polls: &PollSet) -> Vec<Key> {
        if self.before.is_none() || !polls.can_read(&io::stdin()) {
            return Vec::new();
        }
        let mut bytes = [0; 64];
        match read_some(&io::stdin(), &mut bytes) {
            ReadOutcome::Bytes(count) => keys_of(&bytes[..count]),
            ReadOutcome::NothingYet => Vec::new(),
            // The terminal is gone.
            ReadOutcome::End => vec![Key::Escape],
        }
    }

    /// Shows these lines, as many as there is room for.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut frame = HOME.to_vec();
        for (index, line) in lines.iter().take(rows()).enumerate() {
            if index > 0 {
                frame.extend_from_slice(b"\r\n");
            }
            frame.extend_from_slice(line.as_bytes());
            frame.extend_from_slice(END_OF_LINE);
        }
        frame.extend_from_slice(END_OF_SCREEN);
        let mut out = io::stdout();
        out.write_all(&frame).and_then(|()| out.flush())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}

/// An escape sequence, such as an arrow's, is no key of ours.
fn keys_of(bytes: &[u8]) -> Vec<Key> {
    match bytes {
        [0x1b] => vec![Key::Escape],
        [0x1b, ..] => Vec::new(),
        bytes => bytes.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| Key::Char(char::from(*byte))).collect(),
    }
}

/// How the terminal reads keys.
fn settings() -> io::Result<libc::termios> {
    let mut found = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: the record is ours and outlives the call.
    sys::check(unsafe { libc::tcgetattr(io::stdin().as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: plain numbers, which the call has filled in.
    Ok(unsafe { found.assume_init() })
}

fn set(settings: &libc::termios) -> io::Result<()> {
    // SAFETY: the record outlives the call.
    sys::check(unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, settings) }).map(drop)
}

/// How many rows the terminal has.
fn rows() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the record is ours and outlives the call.
    let told = unsafe { libc::ioctl(io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) } == 0;
    if told && size.ws_row > 0 { usize::from(size.ws_row) } else { ROWS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_no_escape() {
        assert_eq!(keys_of(b"\x1b"), [Key::Escape]);
        assert_eq!(keys_of(b"\x1b[A"), []);
        assert_eq!(keys_of(b"kq\n"), [Key::Char('k'), Key::Char('q')]);
    }
}
