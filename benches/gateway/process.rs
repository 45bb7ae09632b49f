//! The gateway in a process of its own.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Clock ticks a second in `/proc`, fixed at 100 for user space on Linux.
const TICKS: f64 = 100.0;

pub(crate) struct GatewayProcess {
    child: Child,
    addr: SocketAddr,
}

impl GatewayProcess {
    /// Starts the gateway with permits for all that the benchmark sends at once.
    pub(crate) async fn start(backend: SocketAddr) -> Self {
        let (listen, admin) = (free_port().await, free_port().await);
        let child = Command::new(env!("CARGO_BIN_EXE_elasticserve"))
            .args(["gateway", "--permits", "4096"])
            .args(["--backend", &format!("http://{backend}")])
            .args(["--listen", &listen.to_string(), "--admin", &admin.to_string()])
            .env("RUST_LOG", "warn")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while tokio::net::TcpStream::connect(listen).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Self { child, addr: listen }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name in parentheses may hold spaces; the fields that count come after it.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        Duration::from_secs_f64(ticks / TICKS)
    }

    pub(crate) fn resident_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1024.0
    }

    pub(crate) async fn stop(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn free_port() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}
