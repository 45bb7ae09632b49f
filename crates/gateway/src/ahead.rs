//! A client's connection that is looked at while its request is under way.
//!
//! HTTP's reader notices that a client has gone only while it has no bytes left of what the client sent. A client
//! that sends the beginning of another request and leaves would keep its place in the queue, and its seat, until its
//! answer finds nobody. So once a request has been read whole, whoever serves it looks further here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of further requests that wait for the one under way, beside those that HTTP's reader holds.
const MAX_AHEAD: usize = 64 << 10;
/// What is read at a time.
const PIECE: usize = 4 << 10;

/// Whether a connection's request has been read whole and is not answered yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<AtomicBool>);

impl UnderWay {
    /// A request's head has come; its body may not have.
    pub(crate) fn begins(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// All of the request has come: what follows belongs to another one.
    pub(crate) fn is_whole(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream whose end is seen while nobody reads from it.
#[derive(Debug)]
pub(crate) struct Ahead<S> {
    stream: S,
    under_way: UnderWay,
    /// Read, and not yet asked for.
    kept: Vec<u8>,
}

impl<S> Ahead<S> {
    pub(crate) const fn new(stream: S, under_way: UnderWay) -> Self {
        Self { stream, under_way, kept: Vec::new() }
    }
}

impl<S: AsyncRead + Unpin> Ahead<S> {
    /// Reads on as far as there is something. An error says that the client has gone, or has sent more than may wait.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.under_way.0.load(Ordering::Relaxed) {
            let mut piece = [0; PIECE];
            let mut buf = ReadBuf::new(&mut piece);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Pending => break,
                Poll::Ready(result) => result?,
            }
            if buf.filled().is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client left before its answer"));
            }
            self.kept.extend_from_slice(buf.filled());
            // Whoever waits to read has been passed over.
            cx.waker().wake_by_ref();
            if self.kept.len() > MAX_AHEAD {
                let problem = format!("more than {MAX_AHEAD} bytes came after a request that is under way");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.kept.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let n = self.kept.len().min(buf.remaining());
        buf.put_slice(&self.kept[..n]);
        self.kept.drain(..n);
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// HTTP's side flushes whenever it has been woken and has done what it can, so this is where to look.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn what_is_read_ahead_wakes_who_waits_to_read_and_is_read_in_its_order() {
        let (mut client, stream) = tokio::io::duplex(100);
        let under_way = UnderWay::default();
        let mut ahead = Ahead::new(stream, under_way.clone());
        let woken = Arc::new(Woken(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let flush = |ahead: &mut Ahead<_>| Pin::new(ahead).poll_flush(&mut Context::from_waker(&waker));
        client.write_all(b"ab").await.unwrap();
        // Before the request is whole it is left to whoever reads.
        assert!(flush(&mut ahead).is_ready() && ahead.kept.is_empty());
        under_way.is_whole();
        let before = woken.0.load(Ordering::Relaxed);
        assert!(matches!(flush(&mut ahead), Poll::Ready(Ok(()))));
        assert_eq!((&ahead.kept[..], woken.0.load(Ordering::Relaxed)), (&b"ab"[..], before + 1));
        client.write_all(b"cd").await.unwrap();
        let mut read = [0; 4];
        ahead.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcd");
        drop(client);
        assert!(matches!(flush(&mut ahead), Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof));
    }
}
