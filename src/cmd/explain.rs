//! `elasticserve explain`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::sched::Basis;
use elasticserve_gateway::decisions::{Decided, Decision, Happened, Known, Limits, Predicted, Shadowed};

use super::{say, say_error};

/// Arguments of `elasticserve explain`.
#[derive(clap::Args)]
#[command(after_help = "\
The log is the file that [log] decisions names in the gateway's configuration. An id that was used
several times is explained each time.

Example:
  elasticserve explain es-000004d2-17 decisions.ndjson

Exit codes: 0 found; 1 the log cannot be read, or does not hold the id; 2 wrong arguments.")]
pub(crate) struct Args {
    /// The request's id, as in its x-request-id
    id: String,
    /// The decision log
    log: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = || args.log.display().to_string();
    let file = File::open(&args.log).with_context(name)?;
    let mut found = false;
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(name)?;
        // A gateway that was killed leaves half a line, which says nothing about the others.
        let Ok(decision) = serde_json::from_str::<Decision>(&line) else {
            say_error(&format!("{}: line {} is not a decision", name(), number + 1));
            continue;
        };
        if decision.id == args.id {
            found = true;
            say(&in_sentences(&decision));
        }
    }
    anyhow::ensure!(found, "{} holds no decision about '{}'", name(), args.id);
    Ok(ExitCode::SUCCESS)
}

/// A decision in sentences, one a line.
fn in_sentences(d: &Decision) -> String {
    let whose = match d.tenant_from.as_str() {
        "header" => format!("of {}, as its header says", d.tenant),
        "key" => format!("of {}, by its key", d.tenant),
        _ => format!("of {}, the tenant of what names none that is known", d.tenant),
    };
    let mut lines = vec![format!("Request {}, {whose}, came {} after the gateway's start.", d.id, ms(d.arrived_ms))];
    lines.push(known(&d.known));
    lines.extend(d.predicted.as_ref().map(|p| predicted(p, &d.known.slo)));
    lines.push(decided(&d.decided));
    lines.extend(d.happened.as_ref().map(happened));
    lines.extend(d.shadow.as_ref().map(shadowed));
    lines.push(
        match d.result.as_str() {
            "met" => "It met its limits.",
            "missed" => "It did not meet its limits, or failed.",
            "cancelled" => "Its client left before its end.",
            _ => "It counts as offered and not met.",
        }
        .to_owned(),
    );
    lines.join("\n")
}

fn known(k: &Known) -> String {
    let input = match k.input_from.as_str() {
        "header" => "as its header says",
        "token_ids" => "counted",
        _ => "estimated from its length",
    };
    let tokens = k.output.unwrap_or(0);
    let output = match k.output_from.as_str() {
        "header" => format!("{tokens} output tokens (as its header says)"),
        "ignore_eos" => format!("{tokens} output tokens (it told the engine to fill that limit)"),
        "max_tokens" => format!("{tokens} output tokens (its max_tokens)"),
        "hint" => format!("an unknown number of output tokens, at most {tokens} (its max_tokens)"),
        "assumed" => format!("{tokens} output tokens (assumed, for it does not say)"),
        _ => "an unknown number of output tokens".to_owned(),
    };
    let mut text =
        format!("It had {} input tokens ({input}) and {output}; its limits were {}", k.input, limits(&k.slo));
    text += if k.slo_from == "request" { " (some of them its own)." } else { " (its tenant's)." };
    if let Some(class) = k.class {
        text += &format!(" It asked for class {class}.");
    }
    if let Some(patience) = k.patience_ms {
        text += &format!(" Its client waits {} for bytes.", ms(patience));
    }
    if let Some(budget) = k.budget_ms {
        text += &format!(" It was willing to wait {}.", ms(budget));
    }
    if let Some(retry) = k.retry {
        text += &format!(" It was asked again, by its client's count {retry} times.");
    }
    text
}

fn limits(l: &Limits) -> String {
    let all = [("TTFT", l.ttft_ms), ("TPOT", l.tpot_ms), ("E2E", l.e2e_ms)];
    let set: Vec<String> = all.iter().filter_map(|(name, limit)| Some(format!("{name} {}", ms((*limit)?)))).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}

fn predicted(p: &Predicted, slo: &Limits) -> String {
    let latest = match p.latest_start_ms {
        Some(at) => format!("it had to start within {} of its arrival", ms(at)),
        None if *slo == Limits::default() => "it could start at any time".to_owned(),
        None => "not even an immediate start kept its limits with due caution".to_owned(),
    };
    let mut text =
        format!("At {} per output token {latest}; a seat was predicted after {}.", ms(p.tpot_ms), ms(p.start_ms));
    if let (Some(basis @ (Basis::Learned | Basis::Hinted)), Some(chance)) = (p.basis, p.chance) {
        let like = if basis == Basis::Hinted { " with the same max_tokens" } else { "" };
        text += &format!(
            " By the lengths of its tenant's answers{like}, it had a chance of {:.1} % to keep its limits from there.",
            chance * 100.0
        );
    }
    if let (Some(worth), Some(cost)) = (p.worth, p.cost) {
        text += &format!(" It was worth {worth:.2} answers, and cost the others {cost:.2}.");
    }
    text
}

fn decided(d: &Decided) -> String {
    match (d.granted, d.backend) {
        (true, backend) => {
            let backend = backend.map(|b| format!(" of backend {b}")).unwrap_or_default();
            format!("After {} it was granted a permit{backend}.", ms(d.at_ms))
        }
        (false, _) if d.reason.as_deref() == Some("client_gone") => {
            format!("After {} its client left; it had no permit yet.", ms(d.at_ms))
        }
        (false, _) => format!(
            "After {} it was refused: {} ({}).",
            ms(d.at_ms),
            d.reason.as_deref().map_or("no reason was noted", reason),
            d.reason.as_deref().unwrap_or("none")
        ),
    }
}

fn shadowed(s: &Shadowed) -> String {
    let after = s.after_ms.map_or_else(String::new, |after| format!(" after {}", ms(after)));
    match s.decided.as_str() {
        "granted" => format!("The shadow policy let it run{after}."),
        "refused" => {
            let code = s.reason.as_deref().unwrap_or("none");
            format!("The shadow policy refused it{after}: {} ({code}).", reason(code))
        }
        _ => "The shadow policy had not decided about it by then.".to_owned(),
    }
}

fn reason(code: &str) -> &str {
    match code {
        "slo_infeasible" => "even an idle server could not meet its limits",
        "predicted_late" => "it would have been answered too late",
        "queue_full" => "as much waited as may",
        "tenant_limit" => "as much of its tenant waited as may",
        "queue_expired" => "its latest start, or its time to wait, passed in the queue",
        "no_backend" => "no backend was up",
        "draining" => "the gateway was shutting down",
        "rate_limit_exceeded" => "its tenant or its key had used its limit per minute",
        _ => "for another reason",
    }
}

fn happened(h: &Happened) -> String {
    let how = match h.how.as_str() {
        "finished" => "The answer was passed on to its end",
        "client_gone" => "The client left",
        "aborted" => "It was cut, for it could not meet its limits any more,",
        "backend_error" => "The backend answered with an error",
        _ => "The backend failed",
    };
    let mut text = format!("{how} after {}", ms(h.e2e_ms));
    if let Some(ttft) = h.ttft_ms {
        text += &format!("; its first content came after {}", ms(ttft));
    }
    if let Some(tokens) = h.output_tokens {
        text += &format!("; {tokens} output tokens");
    }
    if let Some(tpot) = h.tpot_ms {
        text += &format!(", {} each after the first", ms(tpot));
    }
    text + "."
}

/// A time in ms to the microsecond, without zeros that say nothing.
fn ms(value: f64) -> String {
    let text = format!("{value:.3}");
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision() -> Decision {
        let slo = Limits { ttft_ms: Some(600.0), tpot_ms: None, e2e_ms: Some(5000.0) };
        let known = Known {
            input: 512,
            input_from: "header".into(),
            output: Some(64),
            output_from: "max_tokens".into(),
            slo,
            slo_from: "tenant".into(),
            ..Known::default()
        };
        Decision {
            id: "r-1".into(),
            tenant: "gold".into(),
            tenant_from: "header".into(),
            pool: None,
            arrived_ms: 12.0,
            known,
            predicted: Some(Predicted {
                tpot_ms: 41.5,
                latest_start_ms: Some(350.0),
                start_ms: 420.25,
                basis: None,
                chance: None,
                worth: None,
                cost: None,
            }),
            decided: Decided { reason: Some("predicted_late".into()), at_ms: 0.5, ..Decided::default() },
            happened: None,
            result: "rejected".into(),
            shadow: None,
        }
    }

    #[test]
    fn a_refusal_is_told_with_what_was_known_and_predicted() {
        let text = in_sentences(&decision());
        for part in [
            "Request r-1, of gold",
            "512 input tokens (as its header says)",
            "64 output tokens (its max_tokens)",
            "TTFT 600 ms, E2E 5000 ms (its tenant's)",
            "At 41.5 ms per output token it had to start within 350 ms",
            "a seat was predicted after 420.25 ms",
            "After 0.5 ms it was refused: it would have been answered too late (predicted_late)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn an_answer_is_told_to_its_end() {
        let happened = Happened {
            how: "finished".into(),
            ttft_ms: Some(120.0),
            tpot_ms: Some(42.0),
            e2e_ms: 2766.0,
            output_tokens: Some(64),
        };
        let decided = Decided { granted: true, reason: None, at_ms: 30.0, backend: Some(1) };
        let text = in_sentences(&Decision { decided, happened: Some(happened), result: "met".into(), ..decision() });
        for part in
            ["granted a permit of backend 1", "after 2766 ms", "after 120 ms; 64 output tokens, 42 ms each", "It met"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_not_known_what_was_cut_and_what_the_shadow_said_is_told() {
        let known =
            Known { output: Some(128), output_from: "hint".into(), class: Some(2), retry: Some(2), ..decision().known };
        let happened = Happened { how: "aborted".into(), e2e_ms: 5001.0, ..Happened::default() };
        let shadow =
            Shadowed { decided: "refused".into(), reason: Some("queue_expired".into()), after_ms: Some(750.0) };
        let decided = Decided { granted: true, reason: None, at_ms: 30.0, backend: Some(1) };
        let predicted = decision().predicted.unwrap();
        let predicted = Some(Predicted {
            basis: Some(Basis::Hinted),
            chance: Some(0.625),
            worth: Some(1.25),
            cost: Some(3.5),
            ..predicted
        });
        let d = Decision { known, predicted, decided, happened: Some(happened), result: "missed".into(), ..decision() };
        let text = in_sentences(&Decision { shadow: Some(shadow), ..d.clone() });
        for part in [
            "an unknown number of output tokens, at most 128 (its max_tokens)",
            "asked for class 2",
            "It was asked again, by its client's count 2 times.",
            "It was cut, for it could not meet its limits any more, after 5001 ms",
            "By the lengths of its tenant's answers with the same max_tokens, it had a chance of 62.5 % to keep",
            "It was worth 1.25 answers, and cost the others 3.50.",
            "The shadow policy refused it after 750 ms",
            "(queue_expired)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let granted = Shadowed { decided: "granted".into(), reason: None, after_ms: Some(0.0) };
        let text = in_sentences(&Decision { shadow: Some(granted), ..d });
        assert!(text.contains("The shadow policy let it run after 0 ms"), "{text}");
    }

    #[test]
    fn a_line_of_an_older_log_is_still_told() {
        let line = r#"{"id":"r","tenant":"gold","tenant_from":"header","arrived_ms":1.0,"known":{"input":3,
            "input_from":"token_ids","output":256,"output_from":"assumed","bytes":9,"slo":{"ttft_ms":600.0,"tpot_ms":null,
            "e2e_ms":null},"slo_from":"tenant","patience_ms":null,"budget_ms":null},"predicted":{"tpot_ms":41.0,
            "latest_start_ms":7.5,"start_ms":0.0},"decided":{"granted":true,"reason":null,"at_ms":0.1,"backend":0},
            "happened":{"how":"finished","ttft_ms":50.0,"tpot_ms":41.0,"e2e_ms":99.0,"output_tokens":2},"result":"met"}"#;
        let text = in_sentences(&serde_json::from_str(line).unwrap());
        assert!(text.contains("256 output tokens (assumed, for it does not say)") && text.contains("It met"), "{text}");
        assert!(!text.contains("shadow"), "{text}");
    }
}
