//! The gateway as a process of its own, with signals.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::client::{Client, get, post};

/// A gateway that runs as a process, and its configuration file. It dies with this value.
pub(crate) struct Process {
    child: Child,
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) file: PathBuf,
    stderr: JoinSet<String>,
    folder: tempfile::TempDir,
}

impl Process {
    /// Starts it with `text` as its configuration, and more flags and variables.
    pub(crate) async fn start(text: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
        program.envs(variables.iter().copied());
        Self::run(program, text, flags, true).await
    }

    /// Starts it by a shell's command in which `"$0" "$@"` stands for it, such as one that sets limits first. Nobody
    /// holds the other end of its stderr unless somebody is to `listen` there.
    pub(crate) async fn start_by(shell: &str, text: &str, listen: bool) -> Self {
        let mut program = Command::new("sh");
        program.args(["-c", shell, env!("CARGO_BIN_EXE_elasticserve")]);
        Self::run(program, text, &[], listen).await
    }

    async fn run(mut command: Command, text: &str, flags: &[&str], listen: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        command.args(["gateway", "--supervised", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]);
        command.arg(&file).args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stderr = JoinSet::new();
        let errors = child.stderr.take().filter(|_| listen);
        stderr.spawn(async move {
            let mut text = String::new();
            if let Some(mut errors) = errors {
                errors.read_to_string(&mut text).await.unwrap();
            }
            text
        });
        let line = super::soon("the gateway listens", lines.next_line()).await.unwrap();
        let Some(line) = line else { panic!("{}", stderr.join_next().await.unwrap().unwrap()) };
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let addr = |name: &str| said[name].as_str().unwrap().parse().unwrap();
        Self { child, data: addr("listen"), admin: addr("admin"), file, stderr, folder }
    }

    /// A folder that lives as long as the process.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces the configuration file as a whole.
    pub(crate) fn write(&self, text: &str) {
        let new = self.folder.path().join("new.toml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) async fn signal(&self, name: &str) {
        let id = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
    }

    /// The value of a series in `/metrics`; `None` if there is no such series.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.get("/metrics").await.1;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(line.parse().unwrap())
    }

    /// The CPU time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // The name in parentheses may hold spaces; the fields that count come after it. A tick is 10 ms for user space.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(10 * ticks)
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
    }

    /// Files that it has open.
    pub(crate) fn files(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count() as u64
    }

    /// Lets it have so many files open at once, or as many as it might before.
    pub(crate) fn limit_files(&self, files: Option<u64>) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32);
        let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let limit = rustix::process::Rlimit { current: files.or(maximum), maximum };
        rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).unwrap();
    }

    /// Waits until a series has a value.
    pub(crate) async fn until_metric(&self, series: &str, value: f64) {
        super::soon(&format!("{series} is {value}"), async {
            while self.metric(series).await != Some(value) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    /// Status and body of a path of the admin listener.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        self.ask(get(path)).await
    }

    /// Posts JSON to a path of the admin listener.
    pub(crate) async fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.ask(post(path, body)).await
    }

    async fn ask(&self, mut request: Request<Full<Bytes>>) -> (u16, String) {
        // As a client that was given the address does it.
        request.headers_mut().insert("host", self.admin.to_string().parse().unwrap());
        let mut answer = Client::tcp(self.admin).await.send(request).await.unwrap();
        (answer.status.as_u16(), String::from_utf8(answer.rest().await.0).unwrap())
    }

    /// Waits for the end: how it exited, and what it wrote to stderr.
    pub(crate) async fn ended(mut self) -> (ExitStatus, String) {
        let status = super::soon("the gateway exits", self.child.wait()).await.unwrap();
        (status, self.stderr.join_next().await.unwrap().unwrap())
    }
}
