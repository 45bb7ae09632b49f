//! `elasticserve mock`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_mock::{Limits, MockConfig, Server, TruthFile};

use super::supervised::{announce, stdin_ended};
use super::{profile, say, start_logging};

const AFTER_HELP: &str = "\
Answers take as long as on the deployment that the profile describes: requests wait for a seat, share \
the batch, slow each other down and find their prompts in the prefix cache. No GPU and no weights are \
needed; the text of an answer is one made-up word for each token.

Served are /v1/completions, /v1/chat/completions and /v1/responses (streamed and whole), /v1/models, \
/health, /version, /tokenize, /reset_prefix_cache, and /metrics under vLLM's names.

Examples:
  elasticserve mock
  elasticserve mock --listen 127.0.0.1:0 --speed 10
  elasticserve mock --profile my-engine.toml --model my-model

  curl -N http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' \\
    -d '{\"prompt\": \"Hello\", \"max_tokens\": 8, \"stream\": true}'

Exit codes:
  0    ended by Ctrl-C or SIGTERM; open answers were cut
  1    it could not start, such as where the port is in use; the message says why
  2    the command line is wrong; the message names the flag
  64   the profile is wrong";

/// Arguments of `elasticserve mock`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The engine: the name of a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = profile::DEFAULT)]
    profile: String,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Run the engine this many times faster than the profile; above 0, at most 1000.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed)]
    speed: f64,
    /// The model's name [default: the profile's].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Tokens that a prompt and its answer may have together.
    #[arg(long, value_name = "TOKENS", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(2..))]
    max_model_len: u32,
    /// Write when each request came and each of its tokens was written, by the server's clock, to this
    /// file: a line of JSON for each answer. Its nanoseconds count from the arrival of the request.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// For programs that start it: print where it listens as one line of JSON on stdout, and end when stdin ends.
    #[arg(long)]
    supervised: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    start_logging();
    let Args { profile, listen, speed, model, max_model_len, truth, supervised } = args;
    let profile = profile::load(&profile)?;
    let config = MockConfig { profile, speed, model, max_model_len };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let create = |path: PathBuf| TruthFile::create(&path).with_context(|| format!("--truth {}", path.display()));
    let truth = truth.map(create).transpose()?;
    runtime.block_on(serve(config, truth.as_ref(), listen, supervised))?;
    truth.map_or(Ok(()), TruthFile::finish).context("--truth")?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    config: MockConfig,
    truth: Option<&TruthFile>,
    listen: SocketAddr,
    supervised: bool,
) -> anyhow::Result<()> {
    // Before anything is announced: a signal that comes at once must end it cleanly too.
    let stop = stop_signal()?;
    let model = config.model.clone().unwrap_or_else(|| config.profile.model.clone());
    let (name, speed) = (config.profile.name.clone(), config.speed);
    let truth = truth.map(|file| file.truth().clone());
    let bound = Server::bind_observed(config, Limits::default(), truth, listen).await;
    let server = bound.with_context(|| format!("--listen {listen}"))?;
    let addr = server.addr();
    if supervised {
        announce(&[("listen", addr)]);
        tokio::select! {
            () = stop => {}
            ended = stdin_ended() => ended.context("cannot watch stdin")?,
        }
    } else {
        say(&format!(
            "{model} on http://{addr} (engine profile {name}, {speed} times its speed)\n\n\
             curl -N http://{addr}/v1/completions -H 'content-type: application/json' \\\n  \
             -d '{{\"prompt\": \"Hello\", \"max_tokens\": 8, \"stream\": true}}'"
        ));
        stop.await;
    }
    server.shutdown().await;
    Ok(())
}

/// Resolves at Ctrl-C or SIGTERM. Both are caught from the moment this returns.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an IP address and a port are needed, such as 127.0.0.1:8000".into())
}

pub(super) fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if speed > 0.0 && speed <= 1000.0 => Ok(speed),
        _ => Err("the speed is a number above 0, at most 1000, such as 10".into()),
    }
}
