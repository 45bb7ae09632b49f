//! The command line of `elasticserve load`: names as `vllm bench serve` and AIPerf have them.

use std::path::PathBuf;

use elasticserve_core::time::Span;
use elasticserve_load::{BaseUrl, CeilingCheck, Endpoint, HeaderName, HeaderValue, PromptKind, Validator, header};
use serde_json::{Map, Value};

use super::work::{LIMITS, WORK, WorkArgs, parse_seconds};

const USAGE: &str = "elasticserve load --url <URL> --request-rate <RATE> --num-prompts <COUNT> [OPTIONS]
       elasticserve load --url <URL> --scenario <FILE> [OPTIONS]";

const AFTER_HELP: &str = "\
The load is open unless --concurrency or a scenario says otherwise: requests are sent when the
plan says so, whatever the server does, and latencies count from the planned time. The plan
depends on the seed and the workload alone. Each planned arrival ends as one row of the ledger,
also when it was refused, cut off or never sent.

Examples:
  elasticserve load --url http://127.0.0.1:8000 --request-rate 16 --num-prompts 200 \\
    --random-input-len 256 --random-output-len 64 --ignore-eos \\
    --goodput ttft:1000 tpot:100 e2el:15000 --seed 7 --result-dir runs/first

  elasticserve load --scenario config/scenarios/three-tenants.toml --url http://127.0.0.1:8080

Times are plain numbers of seconds, or have a unit: 90, 1.5, 750ms, 2m.
OPENAI_API_KEY is sent as a bearer token and written nowhere. OPENAI_BASE_URL stands in for
--url; a /v1 at its end is left out.

Ctrl-C or SIGTERM sends nothing more and waits for what is open; a second one cuts it. The ledger
holds a row for every planned arrival in both cases.

Exit codes:
  0    done, and the run is valid
  1    the run is not valid (the generator was late, or rows are missing), or something failed
  2    the command line is wrong; the message names the flag
  64   the configuration is wrong; nothing was started
  130  interrupted; what was measured so far is written";

/// Arguments of `elasticserve load`.
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The server, such as http://127.0.0.1:8000; https is spoken too.
    #[arg(long, visible_alias = "base-url", env = "OPENAI_BASE_URL", hide_env_values = true, value_name = "URL", help_heading = TARGET)]
    #[arg(required_unless_present_any = ["plan_only", "scenario"])]
    pub(super) url: Option<BaseUrl>,
    /// The model to ask for [default: the first that the server lists].
    #[arg(long, short, value_name = "NAME", help_heading = TARGET)]
    pub(super) model: Option<String>,
    /// The path to send to: /v1/completions (token ids, exact lengths), /v1/chat/completions or /v1/responses (text).
    #[arg(long, value_name = "PATH", value_parser = parse_endpoint, help_heading = TARGET)]
    pub(super) endpoint: Option<Endpoint>,
    /// The same, by name: completions, chat or responses.
    #[arg(long, visible_alias = "backend", value_name = "KIND", value_parser = parse_endpoint_type)]
    #[arg(conflicts_with = "endpoint", help_heading = TARGET)]
    pub(super) endpoint_type: Option<Endpoint>,
    /// How prompts go to /v1/completions: as token ids, of which there are exactly as many as planned, or as text.
    #[arg(long, value_name = "ids|text", value_parser = parse_prompt, help_heading = TARGET)]
    pub(super) prompt: Option<PromptKind>,
    /// Ask for streamed answers; this is the default.
    #[arg(long, overrides_with = "no_streaming", help_heading = TARGET)]
    pub(super) streaming: bool,
    /// Ask for whole answers. TPOT cannot be measured then.
    #[arg(long, help_heading = TARGET)]
    pub(super) no_streaming: bool,
    /// Take any certificate of an https:// server: the answers may be somebody else's.
    #[arg(long, help_heading = TARGET)]
    pub(super) insecure: bool,
    /// Trust only the authorities in this file of certificates in PEM, not the public ones.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = TARGET)]
    pub(super) cacert: Option<PathBuf>,
    /// A request header; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_header, help_heading = TARGET)]
    pub(super) header: Vec<(HeaderName, HeaderValue)>,
    /// Further fields of every request's body.
    #[arg(long, value_name = "JSON", value_parser = parse_object, help_heading = TARGET)]
    pub(super) extra_body: Option<Map<String, Value>>,
    /// Send each request's limits in x-elasticserve-slo-* headers.
    #[arg(long, help_heading = TARGET)]
    pub(super) send_slo: bool,
    /// Wait so long for the server to answer; 0 does not wait.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = TARGET)]
    pub(super) ready_check_timeout_sec: Option<Span>,

    #[command(flatten)]
    pub(super) work: WorkArgs,
    /// Force every answer to its full length (ignore_eos and min_tokens).
    #[arg(long, help_heading = WORK)]
    pub(super) ignore_eos: bool,
    /// Use the same prompts in every run of the plan, so that a prefix cache may know them.
    #[arg(long, help_heading = WORK)]
    pub(super) no_salt: bool,
    /// Requests to send at once and await before the run; they are in no figure.
    #[arg(long, value_name = "COUNT", default_value_t = 0, help_heading = WORK)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=4096))]
    pub(super) num_warmups: u32,
    /// Send nothing; print the plan, or write it to a file, and its hash on stderr.
    #[arg(long, value_name = "FILE", num_args = 0..=1, help_heading = WORK)]
    pub(super) plan_only: Option<Option<PathBuf>>,

    /// Give up on a connection after so long.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds, help_heading = LIMITS)]
    pub(super) connect_timeout: Span,
    /// Give up on an answer that has no content so long after the send.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds, help_heading = LIMITS)]
    pub(super) ttft_timeout: Span,
    /// Give up on an answer that falls silent for so long.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds, help_heading = LIMITS)]
    pub(super) idle_timeout: Span,
    /// Give up on an answer that has not ended so long after the send.
    #[arg(long, visible_alias = "request-timeout-seconds", value_name = "SECONDS", default_value = "600")]
    #[arg(value_parser = parse_seconds, help_heading = LIMITS)]
    pub(super) timeout: Span,
    /// After the last arrival, wait so long for what is open.
    #[arg(long, visible_alias = "benchmark-grace-period", value_name = "SECONDS", default_value = "120")]
    #[arg(value_parser = parse_seconds, help_heading = LIMITS)]
    pub(super) drain: Span,
    /// The most requests in flight. What finds no slot at its time is never sent, and counted as that.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(help_heading = LIMITS)]
    pub(super) max_concurrency: Option<u32>,
    /// Try again up to so often what was turned away or failed before an answer, as the OpenAI SDKs do.
    #[arg(long, value_name = "COUNT", default_value_t = 0, help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=100))]
    pub(super) retries: u32,
    /// A whole answer must be more to count: regex:PATTERN, json-schema:FILE, length:exact (by the server's count),
    /// or command:CMD (gets the text on stdin, exit 0 is valid). May be repeated; all must hold.
    #[arg(long, value_name = "RULE", value_parser = parse_validator, help_heading = LIMITS)]
    pub(super) validate: Vec<Validator>,
    /// The run is not valid if the p99 of the send lag, or of the lateness of its own timers, is longer.
    #[arg(long, value_name = "SECONDS", default_value = "10ms", value_parser = parse_seconds, help_heading = LIMITS)]
    pub(super) max_send_lag: Span,
    /// How much of the generator's own ceiling to measure first, against a server that does nothing: off; quick (does it
    /// keep more than twice the plan's busiest second); full (the highest rate that it keeps). A run above half of what
    /// was shown is not valid.
    #[arg(long, value_name = "CHECK", default_value = "quick", value_parser = parse_ceiling, help_heading = LIMITS)]
    pub(super) measure_ceiling: CeilingCheck,
    /// The run is not valid if the client uses a larger share of its cores in any second.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = parse_share, help_heading = LIMITS)]
    pub(super) max_client_cpu: f64,

    /// The folder for ledger, manifest and report [default: runs/NAME-TIME].
    #[arg(long, visible_alias = "output-artifact-dir", value_name = "DIR", help_heading = OUTPUT)]
    pub(super) result_dir: Option<PathBuf>,
    /// Write the figures in the schema of `vllm bench serve --save-result` too, for dashboards that read it.
    #[arg(long, help_heading = OUTPUT)]
    pub(super) save_result: bool,
    /// With its lists by request.
    #[arg(long, requires = "save_result", help_heading = OUTPUT)]
    pub(super) save_detailed: bool,
    /// The name of that file in the folder of the run [default: vllm-bench.json].
    #[arg(long, value_name = "FILE", requires = "save_result", help_heading = OUTPUT)]
    pub(super) result_filename: Option<PathBuf>,
    /// The run's name in reports.
    #[arg(long, value_name = "NAME", default_value = "load", help_heading = OUTPUT)]
    pub(super) name: String,
    /// A note for the manifest; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_parser = parse_pair, help_heading = OUTPUT)]
    pub(super) metadata: Vec<(String, String)>,
    /// Print the summary as JSON.
    #[arg(long, help_heading = OUTPUT)]
    pub(super) json: bool,
}

pub(super) const TARGET: &str = "Target";
const OUTPUT: &str = "Output";

impl Args {
    /// Whether answers are streamed: yes, unless the last word was no.
    pub(super) const fn streams(&self) -> bool {
        self.streaming || !self.no_streaming
    }
}

fn parse_ceiling(text: &str) -> Result<CeilingCheck, String> {
    match text {
        "off" => Ok(CeilingCheck::Off),
        "quick" => Ok(CeilingCheck::Quick),
        "full" => Ok(CeilingCheck::Full),
        _ => Err("write off, quick or full".to_owned()),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    const FORM: &str = "write a share above 0 and up to 1, such as 0.9";
    text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| FORM.to_owned())
}

pub(crate) fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    let path = text.trim_start_matches('/');
    [Endpoint::Completions, Endpoint::Chat, Endpoint::Responses]
        .into_iter()
        .find(|e| e.path().trim_start_matches('/') == path)
        .ok_or_else(|| "use /v1/completions, /v1/chat/completions or /v1/responses".to_owned())
}

pub(crate) fn parse_endpoint_type(text: &str) -> Result<Endpoint, String> {
    match text {
        "completions" | "openai" | "vllm" => Ok(Endpoint::Completions),
        "chat" | "openai-chat" => Ok(Endpoint::Chat),
        "responses" | "openai-responses" => Ok(Endpoint::Responses),
        _ => Err("use completions, chat or responses".to_owned()),
    }
}

fn parse_validator(text: &str) -> Result<Validator, String> {
    text.parse().map_err(|error: elasticserve_load::ValidatorError| error.to_string())
}

pub(crate) fn parse_prompt(text: &str) -> Result<PromptKind, String> {
    match text {
        "ids" => Ok(PromptKind::Ids),
        "text" => Ok(PromptKind::Text),
        _ => Err("use ids or text".to_owned()),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    if key.trim().is_empty() {
        return Err("the key is empty".to_owned());
    }
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = parse_pair(text)?;
    checked_header(&name, &value)
}

/// A header that a user may set.
pub(super) fn checked_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    // A value may be a key, so it is not repeated.
    let value = HeaderValue::from_str(value).map_err(|_| "the value holds bytes that no header may".to_owned())?;
    let name = name.parse().map_err(|_| format!("'{name}' is not a header's name"))?;
    if matches!(name, header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::CONNECTION) {
        return Err(format!("{name} belongs to the connection and cannot be set"));
    }
    Ok((name, value))
}

pub(crate) fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("write a JSON object, such as {{\"top_p\":0.9}}: {e}"))
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

    const BASE: [&str; 7] = ["load", "--url", "http://h:1", "--request-rate", "16", "--num-prompts", "200"];

    fn parse(more: &[&str]) -> Result<Args, String> {
        Cli::try_parse_from(BASE.iter().chain(more)).map(|c| c.args).map_err(|e| e.to_string())
    }

    #[test]
    fn limits_are_milliseconds_and_times_are_seconds_or_have_a_unit() {
        let args = parse(&["--goodput", "ttft:1000", "tpot:100", "e2el:15000", "--drain", "30", "--timeout", "750ms"]);
        let args = args.unwrap();
        assert_eq!(args.work.limits.slo().ttft, Some(Span::from_secs(1)));
        assert_eq!(
            (args.work.limits.slo().tpot, args.work.limits.slo().e2e),
            (Some(Span::from_millis(100)), Some(Span::from_secs(15)))
        );
        assert_eq!((args.drain, args.timeout), (Span::from_secs(30), Span::from_millis(750)));
    }

    #[test]
    fn names_of_other_tools_mean_the_same() {
        let args = parse(&["--isl", "300", "--osl", "20", "--backend", "openai-chat", "--benchmark-grace-period", "5"]);
        let args = args.unwrap();
        assert_eq!((args.work.random_input_len, args.work.random_output_len), (Some(300), Some(20)));
        assert_eq!((args.endpoint_type, args.drain), (Some(Endpoint::Chat), Span::from_secs(5)));
    }

    #[test]
    fn streaming_is_the_default_and_the_last_word_counts() {
        assert!(parse(&[]).unwrap().streams());
        assert!(!parse(&["--no-streaming"]).unwrap().streams());
        assert!(parse(&["--no-streaming", "--streaming"]).unwrap().streams());
        assert!(!parse(&["--streaming", "--no-streaming"]).unwrap().streams());
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_flag_and_what_would_be_right() {
        for (more, says) in [
            (&["--goodput", "ttf:1000"][..], &["--goodput", "ttft:1000"][..]),
            (&["--random-range-ratio", "1"], &["--random-range-ratio", "below 1"]),
            (&["--drain", "soon"], &["--drain", "750ms"]),
            (&["--extra-body", "[]"], &["--extra-body", "JSON object"]),
            (&["--endpoint", "/v2"], &["--endpoint", "/v1/completions"]),
            (&["--header", "content-length=3"], &["--header", "connection"]),
        ] {
            let error = parse(more).err().unwrap();
            assert!(says.iter().all(|part| error.contains(part)), "{error}");
        }
        let inf = Cli::try_parse_from(["load", "--url", "http://h", "--request-rate", "inf", "--num-prompts", "1"]);
        assert!(inf.err().unwrap().to_string().contains("finite rate"));
    }
}
