//! Answers that go on, as server-sent events: what a job counts, and what it prints.
//!
//! A page that reads slowly keeps nobody waiting. Of samples it gets the latest. Of output it gets what is still kept,
//! and is told how much is not.

use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Most bytes of a job's output that are kept: the latest.
const KEPT_BYTES: usize = 1 << 20;
/// Most bytes of output in one event.
const EVENT_BYTES: usize = 32 << 10;

/// One event, as it travels.
fn event(kind: &str, data: &Value) -> Bytes {
    // JSON has no line ends outside texts, and none within them.
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---- samples

/// An event that waits to be read.
enum Waiting {
    /// What happens once.
    Once(Bytes),
    /// The latest sample.
    Sample(Bytes),
}

/// What the reader has not taken yet.
#[derive(Default)]
struct Unread {
    /// In order, with one sample at most.
    events: VecDeque<Waiting>,
    ended: bool,
    /// The reader is gone.
    gone: bool,
    waker: Option<Waker>,
}

/// The writer's end of a stream of samples.
pub struct Feed(Arc<Mutex<Unread>>);

/// The reader's end: a body.
pub struct Samples(Arc<Mutex<Unread>>);

/// A stream of samples that nobody has written or read yet.
pub fn samples() -> (Feed, Samples) {
    let unread = Arc::new(Mutex::new(Unread::default()));
    (Feed(unread.clone()), Samples(unread))
}

impl Feed {
    /// Tells something that happens seldom.
    pub fn tell(&self, kind: &str, data: &Value) {
        self.change(|unread| unread.events.push_back(Waiting::Once(event(kind, data))));
    }

    /// Tells a sample, in place of one that was not taken.
    pub fn sample(&self, data: &Value) {
        self.change(|unread| {
            unread.events.retain(|waiting| matches!(waiting, Waiting::Once(_)));
            unread.events.push_back(Waiting::Sample(event("sample", data)));
        });
    }

    /// Whether nobody reads any more.
    pub fn is_gone(&self) -> bool {
        lock(&self.0).gone
    }

    fn change(&self, change: impl FnOnce(&mut Unread)) {
        let mut unread = lock(&self.0);
        change(&mut unread);
        let waker = unread.waker.take();
        drop(unread);
        waker.inspect(Waker::wake_by_ref);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.change(|unread| unread.ended = true);
    }
}

impl Samples {
    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut unread = lock(&self.0);
        if let Some(Waiting::Once(bytes) | Waiting::Sample(bytes)) = unread.events.pop_front() {
            return Poll::Ready(Some(bytes));
        }
        if unread.ended {
            return Poll::Ready(None);
        }
        unread.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        lock(&self.0).gone = true;
    }
}

// ---- output

/// What a job prints, the latest of it, for as many readers as there are.
#[derive(Default)]
pub struct Output(Mutex<Printed>);

#[derive(Default)]
struct Printed {
    kept: VecDeque<u8>,
    /// How many bytes were there before those that are kept.
    dropped: u64,
    /// The job's exit code, once it has ended.
    status: Option<i32>,
    wakers: Vec<Waker>,
}

impl Output {
    /// The job has printed this.
    pub fn add(&self, bytes: &[u8]) {
        self.change(|printed| {
            printed.kept.extend(bytes);
            let too_many = printed.kept.len().saturating_sub(KEPT_BYTES);
            printed.kept.drain(..too_many);
            printed.dropped += too_many as u64;
        });
    }

    /// The job has ended, with this exit code.
    pub fn end(&self, status: i32) {
        self.change(|printed| printed.status = Some(status));
    }

    /// The job's exit code, once it has ended.
    pub fn status(&self) -> Option<i32> {
        lock(&self.0).status
    }

    fn change(&self, change: impl FnOnce(&mut Printed)) {
        let mut printed = lock(&self.0);
        change(&mut printed);
        let wakers = std::mem::take(&mut printed.wakers);
        drop(printed);
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

/// A reader of output: a body.
pub struct Tail {
    output: Arc<Output>,
    /// Up to where it has read.
    at: u64,
    ended: bool,
}

impl Tail {
    /// Reads from the first byte that is kept.
    pub fn of(output: Arc<Output>) -> Tail {
        Tail { output, at: 0, ended: false }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut printed = lock(&self.output.0);
        if self.at < printed.dropped {
            let bytes = printed.dropped - self.at;
            self.at = printed.dropped;
            return Poll::Ready(Some(event("gap", &json!({ "bytes": bytes }))));
        }
        let from = (self.at - printed.dropped) as usize;
        let new: Vec<u8> = printed.kept.iter().skip(from).take(EVENT_BYTES).copied().collect();
        // A character that is cut is left to the next event; at the very end nothing comes any more that completes it.
        let whole = match whole_characters(&new) {
            0 if printed.status.is_some() => new.len(),
            whole => whole,
        };
        if whole > 0 {
            self.at += whole as u64;
            return Poll::Ready(Some(event("text", &json!(String::from_utf8_lossy(&new[..whole])))));
        }
        if let Some(status) = printed.status {
            self.ended = true;
            return Poll::Ready(Some(event("ended", &json!({ "status": status }))));
        }
        if !printed.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            printed.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// How many of these bytes are no beginning of a character that goes on behind them.
fn whole_characters(bytes: &[u8]) -> usize {
    // A character has four bytes at most.
    let cut = (1..=bytes.len().min(3)).find(|back| {
        let tail = &bytes[bytes.len() - back..];
        matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
    });
    bytes.len() - cut.unwrap_or(0)
}

macro_rules! body {
    ($kind:ty) => {
        impl Body for $kind {
            type Data = Bytes;
            type Error = Infallible;

            fn poll_frame(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                self.get_mut().poll(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    };
}
body!(Samples);
body!(Tail);

#[cfg(test)]
mod tests {
    use super::*;

    fn next<B>(body: &mut B) -> Option<String>
    where
        B: Body<Data = Bytes, Error = Infallible> + Unpin,
    {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()),
            Poll::Ready(None) => Some("(end)".to_string()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_slow_reader_gets_the_latest_sample_and_all_that_happens_once() {
        let (feed, mut samples) = samples();
        assert_eq!(next(&mut samples), None);
        feed.tell("job", &json!({ "name": "a\nb" }));
        (1..=3).for_each(|number| feed.sample(&json!(number)));
        feed.tell("ended", &json!(0));
        drop(feed);
        assert_eq!(next(&mut samples).unwrap(), "event: job\ndata: {\"name\":\"a\\nb\"}\n\n");
        assert_eq!(next(&mut samples).unwrap(), "event: sample\ndata: 3\n\n");
        assert_eq!(next(&mut samples).unwrap(), "event: ended\ndata: 0\n\n");
        assert_eq!(next(&mut samples).unwrap(), "(end)");
    }

    #[test]
    fn who_writes_learns_that_nobody_reads() {
        let (feed, samples) = samples();
        assert!(!feed.is_gone());
        drop(samples);
        assert!(feed.is_gone());
    }

    #[test]
    fn output_is_read_by_several_and_a_late_reader_is_told_what_is_gone() {
        let output = Arc::new(Output::default());
        let mut early = Tail::of(output.clone());
        output.add("é1".as_bytes());
        assert_eq!(next(&mut early).unwrap(), "event: text\ndata: \"é1\"\n\n");
        assert_eq!(next(&mut early), None);
        output.add(&vec![b'x'; KEPT_BYTES]);
        let mut late = Tail::of(output.clone());
        assert_eq!(next(&mut late).unwrap(), "event: gap\ndata: {\"bytes\":3}\n\n");
        output.end(5);
        let (mut texts, mut last) = (0, String::new());
        while let Some(said) = next(&mut late).filter(|said| said != "(end)") {
            texts += usize::from(said.starts_with("event: text"));
            last = said;
        }
        assert_eq!((texts, last.as_str()), (KEPT_BYTES / EVENT_BYTES, "event: ended\ndata: {\"status\":5}\n\n"));
    }

    #[test]
    fn characters_are_not_cut_and_what_is_none_is_shown_as_such() {
        let output = Arc::new(Output::default());
        let mut tail = Tail::of(output.clone());
        output.add(b"a\xc3");
        assert_eq!(next(&mut tail).unwrap(), "event: text\ndata: \"a\"\n\n");
        assert_eq!(next(&mut tail), None, "the rest may come");
        output.add(b"\xa4\xff");
        assert_eq!(next(&mut tail).unwrap(), "event: text\ndata: \"ä\u{fffd}\"\n\n");
        output.add(b"\xe2\x82");
        output.end(0);
        assert_eq!(next(&mut tail).unwrap(), "event: text\ndata: \"\u{fffd}\"\n\n");
        assert_eq!(next(&mut tail).unwrap(), "event: ended\ndata: {\"status\":0}\n\n");
    }
}
