//! The program itself, started for one test.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::support::client::{Client, get};

/// A gateway as its own process, and where it serves.
pub(crate) struct Program {
    child: Child,
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    _config: tempfile::NamedTempFile,
}

impl Program {
    /// Starts it with a configuration, on ports that the system picks.
    pub(crate) fn start(config: &str) -> Self {
        let mut file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        file.write_all(format!("listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n{config}").as_bytes()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_elasticserve"))
            .args(["gateway", "--config"])
            .arg(file.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = |line: &serde_json::Value, key: &str| line["fields"][key].as_str().unwrap().parse().unwrap();
        let serving = loop {
            let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["fields"]["message"] == "gateway is serving" {
                break line;
            }
        };
        // Nobody may leave the other end of a pipe that is written to.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, data: address(&serving, "listen"), admin: address(&serving, "admin"), _config: file }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let mut answer = Client::tcp(self.admin).await.send(get("/metrics")).await.unwrap();
        let text = String::from_utf8(answer.rest().await.0).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap() as u64
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
