//! `elasticserve gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use elasticserve_core::time::Span;
use elasticserve_gateway::config::{Config, ConfigError, LogFormat, RawBackend, RawConfig};
use elasticserve_gateway::{Gateway, Why};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::log::{self, Look};

use super::files::raise_limit;
use super::notify::Notify;
use super::supervised::{announce, stdin_ended};
use super::{BadConfig, say};

/// Arguments of `elasticserve gateway`.
#[derive(clap::Args)]
#[command(after_help = "\
Requests wait in one queue until a backend has a free permit: first come, first served, or in another
order of the configuration file. What waits longer than the queue budget, finds the queue full, or is
predicted to miss its limits, or costs others more than it is worth, is refused at once with 429 and the time after which a retry makes sense. A permit lives exactly as long as the response body: a client that leaves
frees its place at once, and the backend's connection is closed.

Probes and metrics are on the admin listener: /livez, /readyz, /metrics. SIGTERM or Ctrl-C drains:
what runs may finish, everything else is refused with 503. A second one ends at once. SIGHUP, or a change of its
files, reloads the configuration: all of it or, if something is wrong with it, nothing.

Example:
  vllm serve Qwen/Qwen3-8B --max-num-seqs 32 --port 8000
  elasticserve gateway --backend http://127.0.0.1:8000 --permits 32 --queue-budget 750ms
  curl http://127.0.0.1:8080/v1/models
  elasticserve gateway --check --config config/gateway.example.toml

Flags win over the configuration file. Permits should be the number of sequences that the engine
works on at once (vLLM: --max-num-seqs), so that the queue forms here and not there.

Exit codes: 0 drained, or --check finds nothing wrong; 1 a listener or the decision log could not be opened; 2 wrong flags; 64 wrong configuration.")]
pub(crate) struct Args {
    /// A server behind the gateway; may be given several times
    #[arg(long = "backend", value_name = "URL", value_parser = parse_backend)]
    backends: Vec<RawBackend>,
    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    listen: Option<String>,
    /// Where probes and metrics are served [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    admin: Option<String>,
    /// Requests that each backend may work on at once [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// The most requests that may wait [default: 256]
    #[arg(long, value_name = "N")]
    queue_depth: Option<u32>,
    /// How long a request may wait, such as 750ms [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    queue_budget: Option<String>,
    /// A configuration file in TOML; see config/gateway.example.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, print all values in effect as TOML, and end
    #[arg(long)]
    check: bool,
    /// For programs that start it: print where it listens as one line of JSON on stdout, and drain when stdin ends
    #[arg(long, conflicts_with = "check")]
    supervised: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (check, supervised) = (args.check, args.supervised);
    let config = args.read().map_err(|e| BadConfig(e.to_string()))?;
    if check {
        say(config.to_toml().map_err(|e| BadConfig(e.to_string()))?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let look = config.fixed.log_format.map(|format| match format {
        LogFormat::Text => Look::Text,
        LogFormat::Json => Look::Json,
    });
    log::start(config.fixed.log_level.name(), look);
    raise_limit();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(serve(config, supervised, args))
}

impl Args {
    /// The file and the flags, which win over it.
    fn read(&self) -> Result<Config, ConfigError> {
        let mut raw = match &self.config {
            None => RawConfig::default(),
            Some(path) => RawConfig::from_file(path)?,
        };
        raw.listen = self.listen.clone().or(raw.listen);
        raw.admin = self.admin.clone().or(raw.admin);
        raw.queue.depth = self.queue_depth.or(raw.queue.depth);
        raw.queue.budget = self.queue_budget.clone().or(raw.queue.budget);
        if !self.backends.is_empty() {
            raw.backends = Some(self.backends.clone());
        }
        if let (Some(permits), Some(backends)) = (self.permits, &mut raw.backends) {
            backends.iter_mut().for_each(|b| b.permits = Some(permits));
        }
        raw.check()
    }
}

/// A URL, by the rule of the configuration's `url`.
fn parse_backend(url: &str) -> Result<RawBackend, String> {
    let backend = RawBackend { url: url.to_owned(), ..RawBackend::default() };
    let alone = RawConfig { backends: Some(vec![backend.clone()]), ..RawConfig::default() };
    match alone.check() {
        Ok(_) => Ok(backend),
        Err(ConfigError::Value { problem, .. }) => Err(problem),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    let wrong = |_| "an IP address and a port are needed, such as 127.0.0.1:8080".to_owned();
    text.parse::<SocketAddr>().map(|_| text.to_owned()).map_err(wrong)
}

fn parse_time(text: &str) -> Result<String, String> {
    text.parse::<Span>().map(|_| text.to_owned()).map_err(|e| e.to_string())
}

async fn serve(config: Config, supervised: bool, args: Args) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let backends: Vec<String> =
        config.backends.iter().map(|b| format!("{} ({} permits)", b.authority, b.permits)).collect();
    let budget = config.queue_budget.map_or_else(|| "none".to_owned(), |b| b.to_string());
    let tenants = config.tenants.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
    let (order, predicts) = (config.order, config.predict.is_some());
    let gateway = if args.config.is_some() {
        Gateway::start_from(config, Arc::new(move || args.read())).await?
    } else {
        Gateway::start(config).await?
    };
    tracing::info!(
        listen = %gateway.data_addr(),
        admin = %gateway.admin_addr(),
        backends = backends.join(", "),
        ?order,
        queue_budget = budget,
        predicts,
        tenants,
        "gateway is serving"
    );
    let notify = Notify::from_env().context("NOTIFY_SOCKET cannot be used")?;
    notify.ready();
    if supervised {
        announce(&[("listen", gateway.data_addr()), ("admin", gateway.admin_addr())]);
        tokio::select! {
            () = signals.stop(&gateway, &notify) => {}
            ended = stdin_ended() => ended.context("cannot watch stdin")?,
        }
    } else {
        signals.stop(&gateway, &notify).await;
    }
    notify.stopping();
    tracing::info!("draining; a second signal ends at once");
    tokio::select! {
        drained = gateway.stop() => {
            if drained.cut > 0 {
                tracing::warn!(cut = drained.cut, "the time to drain was over before all answers were");
            }
        }
        () = signals.next() => tracing::warn!("second signal: ending at once"),
    }
    Ok(ExitCode::SUCCESS)
}

/// SIGTERM and SIGINT, which stop, and SIGHUP, which reloads.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for the signal to stop, and reloads at the other.
    async fn stop(&mut self, gateway: &Gateway, notify: &Notify) {
        let mut watchdog = tokio::time::interval(notify.watchdog().unwrap_or(Duration::MAX));
        loop {
            tokio::select! {
                _ = watchdog.tick() => notify.alive(),
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                () = gateway.stop_asked() => return,
                // How it went is in the log and the metrics.
                _ = self.hangup.recv() => {
                    notify.reloading();
                    let _ = gateway.reload(Why::Signal);
                    notify.ready();
                }
            }
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_flag_and_what_would_be_right() {
        for (flag, value, says) in [
            ("--backend", "127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("--backend", "ftp://h", "https://"),
            ("--listen", "8080", "127.0.0.1:8080"),
            ("--admin", "localhost:9090", "IP address"),
            ("--permits", "0", "1.."),
            ("--queue-budget", "750", "750ms"),
        ] {
            let error = Cli::try_parse_from(["gateway", flag, value]).err().unwrap().to_string();
            assert!(error.contains(flag) && error.contains(says), "{error}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let text = "listen = '127.0.0.1:1'\n[[backends]]\nurl = 'http://a:1'\npermits = 4\n[queue]\ndepth = 7\n";
        std::fs::write(&file, text).unwrap();
        let read = |more: &[&str]| {
            let words = ["gateway", "--config", file.to_str().unwrap()];
            Cli::try_parse_from(words.iter().chain(more)).unwrap().args.read().unwrap()
        };
        let alone = read(&[]);
        assert_eq!((alone.fixed.listen.port(), alone.backends[0].permits, alone.queue_depth), (1, 4, 7));
        let mixed = read(&["--listen", "127.0.0.1:2", "--permits", "9", "--queue-budget", "1s"]);
        assert_eq!((mixed.fixed.listen.port(), mixed.backends[0].permits, mixed.queue_depth), (2, 9, 7));
        assert_eq!(mixed.queue_budget, Some(Span::from_secs(1)));
        assert_eq!(read(&["--backend", "http://b:2"]).backends[0].authority, "b:2");
    }

    #[test]
    fn the_published_tenants_come_from_their_own_file_and_a_wrong_key_names_both() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let example = include_str!("../../config/tenants.example.toml");
        let read = |tenants: &str| {
            std::fs::write(folder.path().join("t.toml"), tenants).unwrap();
            std::fs::write(&file, "tenants_file = 't.toml'\n[[backends]]\nurl = 'http://a:1'\n").unwrap();
            let words = ["gateway", "--check", "--config", file.to_str().unwrap()];
            Cli::try_parse_from(words).unwrap().args.read()
        };
        let config = read(example).unwrap();
        let names: Vec<&str> = config.tenants.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["gold", "standard", "batch"]);
        let error = read(&example.replace("weight = 4", "wieght = 4")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("t.toml") && text.contains("`weight`"), "{text}");
    }
}
