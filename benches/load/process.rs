//! Servers as processes of their own, and what the system says of this one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use elasticserve_load::NullServer;

/// A server that ends when its input does.
pub(crate) struct Serving {
    child: Child,
    pub(crate) addr: SocketAddr,
}

impl Serving {
    /// Starts this program as a server.
    pub(crate) fn start(words: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("serve").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, addr: line.trim().parse().unwrap() }
    }

    /// Ends it and waits until it has written what it has to say.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// Serves until the input ends.
pub(crate) fn serve_null() {
    let server = NullServer::start(true).unwrap();
    announce(server.addr());
    wait_for_end();
}

pub(crate) fn announce(addr: SocketAddr) {
    let mut out = std::io::stdout();
    writeln!(out, "{addr}").and_then(|()| out.flush()).unwrap();
}

pub(crate) fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A field of `/proc/self/status` in KiB.
pub(crate) fn memory_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

/// Makes the peak of the resident memory count from now on.
pub(crate) fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}
