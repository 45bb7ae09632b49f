//! The command line of `elasticserve calibrate`.

use std::path::PathBuf;

use elasticserve_core::calibrate::{Assumed, Settings};
use elasticserve_core::time::Span;
use elasticserve_load::{BaseUrl, Endpoint, HeaderName, HeaderValue, PromptKind};
use serde_json::{Map, Value};

use crate::cmd::load::args::{parse_endpoint, parse_endpoint_type, parse_header, parse_object, parse_prompt};
use crate::cmd::load::work::parse_seconds;
use crate::cmd::{BadConfig, BadUsage};

const AFTER_HELP: &str = "\
The server must be otherwise idle. One request at a time over a grid of prompt lengths gives what a
first token and a step take; long contexts give what the KV cache costs; prompts beside running
answers give what a step with prefill costs; more and more requests at once give the seats, and the
permits beyond which throughput does not grow. All prompts are new, so that a prefix cache does not
fake the slope. Parameters are fitted by least squares to medians, with intervals by resampling.

The folder keeps every run with its ledger, profile.toml for `gateway` (predict.profile), `sim` and
`mock` (--profile), calibration.json, and report.html with its Markdown twin.

Examples:
  elasticserve calibrate --url http://127.0.0.1:8000
  elasticserve calibrate --url http://127.0.0.1:8000 --quick --budget 2m --out my-server.toml
  elasticserve calibrate --from runs/calibrate-1700000000 --json
  elasticserve calibrate --sim gb10-qwen3-8b-fp8      how well an engine of known parameters is found

Exit codes:
  0    done; warnings say what to know before the profile is used
  1    the server did not answer, too little was measured for a fit, or a file could not be written
  2    the command line is wrong; the message names the flag
  64   the configuration is wrong; nothing was sent
  130  interrupted; what was measured is kept, and --from fits it";

/// Measure a server and write the profile that the gateway's prediction and the simulator load.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The server, such as http://127.0.0.1:8000; https is spoken too.
    #[arg(long, visible_alias = "base-url", env = "OPENAI_BASE_URL", hide_env_values = true, value_name = "URL", help_heading = TARGET)]
    url: Option<BaseUrl>,
    /// The engine model in place of a server, on virtual time: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "NAME|FILE.toml", conflicts_with = "from", help_heading = TARGET)]
    sim: Option<String>,
    /// Fit again what an earlier calibration measured; nothing is sent.
    #[arg(long, value_name = "DIR", help_heading = TARGET)]
    from: Option<PathBuf>,
    /// The model to ask for [default: the first that the server lists].
    #[arg(long, short, value_name = "NAME", help_heading = TARGET)]
    pub(super) model: Option<String>,
    /// The path to send to: /v1/completions, /v1/chat/completions or /v1/responses.
    #[arg(long, value_name = "PATH", value_parser = parse_endpoint, help_heading = TARGET)]
    pub(super) endpoint: Option<Endpoint>,
    /// The same, by name: completions, chat or responses.
    #[arg(long, visible_alias = "backend", value_name = "KIND", value_parser = parse_endpoint_type)]
    #[arg(conflicts_with = "endpoint", help_heading = TARGET)]
    pub(super) endpoint_type: Option<Endpoint>,
    /// How prompts go to /v1/completions [default: as token ids, as text where the server refuses those].
    #[arg(long, value_name = "ids|text", value_parser = parse_prompt, help_heading = TARGET)]
    pub(super) prompt: Option<PromptKind>,
    /// Take any certificate of an https:// server.
    #[arg(long, help_heading = TARGET)]
    pub(super) insecure: bool,
    /// Trust only the authorities in this file of certificates in PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = TARGET)]
    pub(super) cacert: Option<PathBuf>,
    /// A request header; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_header, help_heading = TARGET)]
    pub(super) header: Vec<(HeaderName, HeaderValue)>,
    /// Further fields of every request's body.
    #[arg(long, value_name = "JSON", value_parser = parse_object, help_heading = TARGET)]
    pub(super) extra_body: Option<Map<String, Value>>,

    /// Fewer lengths and rounds, in less than half of the time.
    #[arg(long, help_heading = GRID)]
    quick: bool,
    /// Leave out what would end later than this; no probe is cut.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = GRID)]
    budget: Option<Span>,
    /// Lengths of prompts, ascending, in tokens [default: 14 from 16 to 2048; --quick: 8].
    #[arg(long, value_name = "TOKENS,…", value_delimiter = ',', help_heading = GRID)]
    inputs: Option<Vec<u32>>,
    /// Lengths of answers, taken in turns by the rounds [default: 8,24; --quick: 8,16].
    #[arg(long, value_name = "TOKENS,…", value_delimiter = ',', help_heading = GRID)]
    outputs: Option<Vec<u32>>,
    /// How often each length is measured [default: 6; --quick: 3].
    #[arg(long, value_name = "COUNT", help_heading = GRID)]
    rounds: Option<u32>,
    /// The most requests at once; 1 leaves out the seats, long contexts and the knee.
    #[arg(long, value_name = "COUNT", default_value_t = 256, help_heading = GRID)]
    max_concurrency: u32,
    /// Requests to send at once and await first; they are in no figure.
    #[arg(long, value_name = "COUNT", default_value_t = 2, help_heading = GRID)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=64))]
    pub(super) num_warmups: u32,
    /// The seed of prompts, orders and resampling.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = GRID)]
    pub(super) seed: u64,
    /// Make all prompts the beginning of one text, the same in every run, which a prefix cache then knows: only to see
    /// what that does to the slope.
    #[arg(long, help_heading = GRID)]
    pub(super) no_salt: bool,

    /// Tokens in one step, prefill and decode together, as the server was started; it cannot be seen from outside.
    #[arg(long, value_name = "TOKENS", default_value_t = 8192, help_heading = KNOWN)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..))]
    token_budget: u32,
    /// Tokens in a block of the prefix cache, where the server does not count what it finds there.
    #[arg(long, value_name = "TOKENS", default_value_t = 16, help_heading = KNOWN)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    block_tokens: u32,

    /// The name of the profile.
    #[arg(long, value_name = "NAME", default_value = "calibrated", help_heading = OUTPUT)]
    pub(super) name: String,
    /// Also write the profile to this file.
    #[arg(long, value_name = "FILE.toml", help_heading = OUTPUT)]
    pub(super) out: Option<PathBuf>,
    /// The folder of the runs and of all that is made of them [default: runs/calibrate-TIME; none with --sim].
    #[arg(long, value_name = "DIR", conflicts_with = "from", help_heading = OUTPUT)]
    pub(super) result_dir: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long, help_heading = OUTPUT)]
    pub(super) json: bool,
}

const TARGET: &str = "Target";
const GRID: &str = "Measurement";
const KNOWN: &str = "What is known of the server";
const OUTPUT: &str = "Output";

/// Where answers come from.
pub(super) enum Source {
    Server(BaseUrl),
    /// A profile by its name or file.
    Model(String),
    Folder(PathBuf),
}

impl Args {
    pub(super) fn source(&self) -> anyhow::Result<Source> {
        // An address from the environment stands back behind what was asked for.
        if let Some(folder) = &self.from {
            return Ok(Source::Folder(folder.clone()));
        }
        if let Some(name) = &self.sim {
            return Ok(Source::Model(name.clone()));
        }
        let missing = || BadUsage("say what to measure: --url URL, or --sim PROFILE, or --from DIR".to_owned());
        Ok(Source::Server(self.url.clone().ok_or_else(missing)?))
    }

    pub(super) fn settings(&self) -> Settings {
        let preset = if self.quick { Settings::quick() } else { Settings::default() };
        Settings {
            inputs: self.inputs.clone().unwrap_or(preset.inputs),
            outputs: self.outputs.clone().unwrap_or(preset.outputs),
            rounds: self.rounds.unwrap_or(preset.rounds),
            max_concurrency: self.max_concurrency,
            thorough: preset.thorough,
            seed: self.seed,
            shared: self.no_salt,
            budget: self.budget,
        }
    }

    pub(super) fn assumed(&self) -> Assumed {
        Assumed { token_budget: self.token_budget, block_tokens: self.block_tokens, ..Assumed::default() }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.endpoint.or(self.endpoint_type).unwrap_or(Endpoint::Completions)
    }

    pub(super) fn authorities(&self) -> Result<elasticserve_load::Trust, BadConfig> {
        crate::cmd::load::trust(self.cacert.as_deref(), self.insecure)
    }
}
