//! A server as a process of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use elasticserve_load::BaseUrl;
use serde::Deserialize;

/// The longest that it may take to tell where it listens, on a busy machine.
const START: Duration = Duration::from_secs(30);
/// The longest that it may take to end.
const END: Duration = Duration::from_secs(10);
/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// The most of its log that an error repeats, in bytes.
const MAX_WORDS: usize = 2000;

/// A verb of this program as a server. It is killed when the value is dropped, and ends by itself when this process
/// is gone.
pub(super) struct Child {
    process: Process,
    stdin: Option<ChildStdin>,
    url: BaseUrl,
}

/// What a supervised server prints first.
#[derive(Deserialize)]
struct Announcement {
    listen: SocketAddr,
}

impl Child {
    /// Starts a verb with `--supervised` and waits until it serves; `log` is created, or added to.
    pub(super) async fn start(verb: &str, args: &[&str], log: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the program's own file")?;
        let out = File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        let mut process = Command::new(program)
            .arg(verb)
            .arg("--supervised")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(out)
            // Ctrl-C is for this process, which ends the others when it is done.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start the {verb}"))?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        // From here on it is killed if anything fails.
        let mut child = Self { process, stdin, url: BaseUrl::from(SocketAddr::from(([127, 0, 0, 1], 0))) };
        child.url = child.address(verb, stdout, log).await?;
        Ok(child)
    }

    /// Where it listens, on this machine.
    pub(super) const fn url(&self) -> &BaseUrl {
        &self.url
    }

    async fn address(&mut self, verb: &str, stdout: Option<ChildStdout>, log: &Path) -> anyhow::Result<BaseUrl> {
        let stdout = stdout.context("no pipe to its output")?;
        let first = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        // Killing it, where the time is over, ends the read too.
        let line = tokio::time::timeout(START, first).await.ok().and_then(|read| read.ok()?.ok()).unwrap_or_default();
        let announced: Announcement = serde_json::from_str(&line).map_err(|_| {
            let words = last_words(log);
            anyhow::anyhow!("the {verb} did not start: {}", if words.is_empty() { "it said nothing" } else { &words })
        })?;
        Ok(announced.listen.into())
    }

    /// Tells it to end, and kills it if it does not.
    pub(super) async fn stop(mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + END;
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The end of a log, on one line.
fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(PathBuf::from(log)).unwrap_or_default();
    let mut from = text.len().saturating_sub(MAX_WORDS);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}
