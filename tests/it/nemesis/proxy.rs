//! What lies between the gateway and an engine: TCP that can be cut, late, or cut short.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A proxy in front of one engine. It ends with this value.
pub(super) struct Proxy {
    pub(super) addr: SocketAddr,
    /// How it behaves.
    pub(super) wire: Arc<Wire>,
    _tasks: JoinSet<()>,
}

/// How the connections behave.
pub(super) struct Wire {
    engine: Mutex<SocketAddr>,
    late_ms: AtomicU64,
    refuses: AtomicBool,
    cuts_short: AtomicBool,
    resets: watch::Sender<u64>,
}

impl Proxy {
    pub(super) async fn start(engine: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let wire = Arc::new(Wire {
            engine: Mutex::new(engine),
            late_ms: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            cuts_short: AtomicBool::new(false),
            resets: watch::channel(0).0,
        });
        let mut tasks = JoinSet::new();
        let of_all = Arc::clone(&wire);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    let wire = Arc::clone(&of_all);
                    connections.spawn(async move {
                        // However a connection ends, it has ended.
                        let _ = wire.carry(stream).await;
                    });
                }
                while connections.try_join_next().is_some() {}
            }
        });
        Self { addr, wire, _tasks: tasks }
    }
}

impl Wire {
    /// New connections go to this engine.
    pub(super) fn lead_to(&self, engine: SocketAddr) {
        *self.engine.lock().unwrap() = engine;
    }

    /// Resets every connection, on both sides.
    pub(super) fn reset(&self) {
        self.resets.send_modify(|count| *count += 1);
    }

    /// Each piece of data takes so much longer.
    pub(super) fn be_late(&self, by: Duration) {
        self.late_ms.store(by.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether new connections are reset.
    pub(super) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Whether answers are ended in the middle of a piece, as if that were their end.
    pub(super) fn cut_short(&self, cuts: bool) {
        self.cuts_short.store(cuts, Ordering::Relaxed);
    }

    async fn carry(&self, mut gateway: TcpStream) -> io::Result<()> {
        gateway.set_nodelay(true)?;
        let mut resets = self.resets.subscribe();
        let engine = *self.engine.lock().unwrap();
        let refused = self.refuses.load(Ordering::Relaxed);
        let mut engine = match TcpStream::connect(engine).await {
            Ok(engine) if !refused => engine,
            _ => return gateway.set_zero_linger(),
        };
        engine.set_nodelay(true)?;
        let (mut asked, mut answered) = ([0; 16 << 10], [0; 16 << 10]);
        loop {
            tokio::select! {
                _ = resets.changed() => {
                    engine.set_zero_linger()?;
                    return gateway.set_zero_linger();
                }
                read = gateway.read(&mut asked) => {
                    let n = read?;
                    if n == 0 {
                        return Ok(());
                    }
                    self.wait().await;
                    engine.write_all(&asked[..n]).await?;
                }
                read = engine.read(&mut answered) => {
                    let Ok(n) = read else { return gateway.set_zero_linger() };
                    if n == 0 {
                        return Ok(());
                    }
                    self.wait().await;
                    if self.cuts_short.load(Ordering::Relaxed) {
                        return gateway.write_all(&answered[..n / 2]).await;
                    }
                    gateway.write_all(&answered[..n]).await?;
                }
            }
        }
    }

    async fn wait(&self) {
        let ms = self.late_ms.load(Ordering::Relaxed);
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }
}
