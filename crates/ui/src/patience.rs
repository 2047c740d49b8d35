//! A connection whose other end takes nothing for a while is given up: a reader that has stalled holds nothing for
//! ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A connection that fails when what is written is not taken for so long.
pub struct Patient<S> {
    inner: S,
    limit: Duration,
    /// Runs while something waits to be taken.
    sleep: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Patient<S> {
    /// The same connection, with a limit.
    pub fn new(inner: S, limit: Duration) -> Patient<S> {
        Patient { inner, limit, sleep: Box::pin(sleep(limit)), waits: false }
    }

    /// What has come of a write: one that waits too long fails.
    fn bound<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.sleep.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.bound(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.bound(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// An end that takes this many bytes, and then none.
    struct Takes(usize);

    impl AsyncWrite for Takes {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_is_taken_passes_and_what_is_not_taken_ends_the_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (first, second) = runtime.block_on(async {
            let mut patient = Patient::new(Takes(3), Duration::from_millis(20));
            let first = poll_fn(|cx| Pin::new(&mut patient).poll_write(cx, b"abcde")).await;
            let second = poll_fn(|cx| Pin::new(&mut patient).poll_write(cx, b"de")).await;
            (first, second)
        });
        assert_eq!((first.unwrap(), second.unwrap_err().kind()), (3, io::ErrorKind::TimedOut));
    }
}
