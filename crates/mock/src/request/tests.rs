use super::*;

fn served() -> Served {
    Served { model: "m".into(), max_model_len: 1000, block_tokens: 16 }
}

fn ask(api: Api, body: &str) -> Result<Ask, String> {
    read_ask(api, body.as_bytes(), &served()).map_err(|refusal| format!("{refusal:?}"))
}

fn length(api: Api, fields: &str) -> (u32, Finish) {
    let prompt = r#""prompt":"abcdefgh","messages":[{"role":"user","content":"hello"}]"#;
    let ask = ask(api, &format!("{{{prompt}{fields}}}")).unwrap();
    (ask.task.output, ask.task.finish)
}

#[test]
fn a_prompt_may_be_text_or_ids_or_a_list_of_one_of_them() {
    for (prompt, input) in [(r#""12345""#, 2), ("[7,8,9]", 3), (r#"["12345"]"#, 2), ("[[7,8,9]]", 3), ("[7]", 1)] {
        let ask = ask(Api::Completion, &format!(r#"{{"model":"m","prompt":{prompt}}}"#)).unwrap();
        assert_eq!(ask.task.input, input, "{prompt}");
    }
}

#[test]
fn text_and_its_token_ids_are_the_same_prompt() {
    let text = "a text of more than one block of sixteen tokens, which is sixty-four bytes and then some";
    let ids: Vec<String> = tokenize(text).iter().map(u32::to_string).collect();
    let of = |prompt: &str| ask(Api::Completion, &format!(r#"{{"prompt":{prompt}}}"#)).unwrap().task.prompt;
    assert_eq!(of(&format!("{text:?}")), of(&format!("[{}]", ids.join(","))));
    assert_ne!(of(&format!("{text:?}")), of(&format!("{:?}", text.replacen('a', "b", 1))));
}

#[test]
fn chat_text_parts_are_one_text() {
    let of = |content: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
        ask(Api::Chat, &body).unwrap().task
    };
    let parts = of(r#"[{"type":"text","text":"hello "},{"type":"text","text":"world"}]"#);
    let whole = of(r#""hello world""#);
    assert_eq!((parts.input, parts.prompt), (whole.input, whole.prompt));
    // "user\n" + "hello world" + "\n" + "assistant\n" are 27 bytes.
    assert_eq!(whole.input, 7);
}

#[test]
fn the_length_is_what_was_asked_for_else_a_rule_that_is_documented() {
    use Finish::{Length, Stop};
    assert_eq!(length(Api::Completion, r#","max_tokens":64"#), (64, Length));
    assert_eq!(length(Api::Completion, ""), (16, Length));
    assert_eq!(length(Api::Completion, r#","min_tokens":20"#), (20, Length));
    assert_eq!(length(Api::Chat, r#","max_tokens":64,"max_completion_tokens":5"#), (5, Length));
    assert_eq!(length(Api::Chat, r#","max_tokens":64,"ignore_eos":true"#), (64, Length));
    let (own, finish) = length(Api::Chat, "");
    assert!((16..=271).contains(&own) && finish == Stop, "{own}");
    assert_eq!(length(Api::Chat, r#","temperature":0.5,"stop":["x"],"seed":3"#), (own, Stop));
    assert_eq!(length(Api::Chat, r#","min_tokens":300"#), (300, Stop));
    // "user\nhello\nassistant\n" is 21 bytes, 6 tokens.
    assert_eq!(length(Api::Chat, r#","ignore_eos":true"#), (994, Length));
}

#[test]
fn different_chats_end_after_different_lengths() {
    let lengths: std::collections::BTreeSet<u32> = (0..20)
        .map(|i| ask(Api::Chat, &format!(r#"{{"messages":[{{"role":"user","content":"{i}"}}]}}"#)).unwrap())
        .map(|ask| ask.task.output)
        .collect();
    assert!(lengths.len() > 10, "{lengths:?}");
}

#[test]
fn every_wrong_field_is_named() {
    let long = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(4000));
    for (api, body, names) in [
        (Api::Completion, r#"{"model":"m"}"#, ["\"prompt\"", "missing"]),
        (Api::Completion, r#"{"prompt":""}"#, ["\"prompt\"", "empty"]),
        (Api::Completion, r#"{"prompt":["a","b"]}"#, ["\"prompt\"", "2 prompts"]),
        (Api::Completion, r#"{"prompt":[1,"b"]}"#, ["\"prompt\"", "mixed"]),
        (Api::Completion, r#"{"prompt":[-1]}"#, ["\"prompt", "-1"]),
        (Api::Completion, r#"{"prompt":[4294967296]}"#, ["\"prompt", "4294967296"]),
        (Api::Completion, r#"{"prompt":"a","n":0}"#, ["\"n\"", "from 1 to 128"]),
        (Api::Response, r#"{"input":"a","n":2}"#, ["\"n\"", "from 1 to 1"]),
        (Api::Response, r#"{"prompt":"a"}"#, ["\"input\"", "missing"]),
        (Api::Response, r#"{"input":[]}"#, ["\"input\"", "at least one"]),
        (Api::Response, r#"{"input":"a","max_output_tokens":0}"#, ["\"max_output_tokens\"", "at least 1"]),
        (Api::Completion, r#"{"prompt":[1],"echo":true}"#, ["\"echo\"", "text"]),
        (Api::Completion, r#"{"prompt":"a","stop":""}"#, ["\"stop\"", "from 1 to"]),
        (Api::Completion, r#"{"prompt":"a","stop":[1]}"#, ["\"stop\"", "list of texts"]),
        (Api::Completion, r#"{"prompt":"a","best_of":3}"#, ["\"best_of\"", "must be 1"]),
        (Api::Completion, r#"{"prompt":"a","max_tokens":0}"#, ["\"max_tokens\"", "at least 1"]),
        (Api::Completion, r#"{"prompt":"a","max_tokens":-1}"#, ["\"max_tokens\"", "-1"]),
        (Api::Completion, r#"{"prompt":"a","max_tokens":"5"}"#, ["\"max_tokens\"", "string"]),
        (Api::Completion, r#"{"prompt":"a","max_tokens":1000}"#, ["\"max_tokens\"", "holds 1000 tokens"]),
        (Api::Completion, r#"{"prompt":"a","max_tokens":5,"min_tokens":6}"#, ["\"min_tokens\"", "at most 5"]),
        (Api::Completion, r#"{"prompt":"a","stream":"yes"}"#, ["\"stream\"", "string"]),
        (
            Api::Completion,
            r#"{"prompt":"a","stream_options":{"include_usage":1}}"#,
            ["stream_options.include_usage", "1"],
        ),
        (Api::Completion, &long, ["context_length_exceeded", "has 1000 tokens"]),
        (Api::Chat, r#"{"prompt":"a"}"#, ["\"messages\"", "at least one"]),
        (Api::Chat, r#"{"messages":[]}"#, ["\"messages\"", "at least one"]),
        (Api::Chat, r#"{"messages":[{"content":"a"}]}"#, ["messages[0]", "role"]),
        (Api::Chat, r#"{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}"#, ["messages[0]", "image_url"]),
        (
            Api::Chat,
            r#"{"messages":[{"role":"u","content":"a"}],"max_completion_tokens":0}"#,
            ["max_completion_tokens", "1"],
        ),
        (Api::Chat, r#"{"messages":[{"role":"u","content":"a"}],"model":"x"}"#, ["model_not_found", "'m'"]),
        (Api::Chat, "[1]", ["400", "object"]),
        (Api::Chat, "{", ["400", "EOF"]),
        (Api::Chat, r#"{"messages":[{"role":"u","content":"a"}]} x"#, ["400", "goes on"]),
        (Api::Chat, r#"{"prompt":"a","max_tokens":1e309}"#, ["400", "number out of range"]),
    ] {
        let error = ask(api, body).unwrap_err();
        for name in names {
            assert!(error.contains(name), "{name} is not in the answer to {body}: {error}");
        }
    }
}

#[test]
fn a_deeply_nested_body_is_refused_without_overflow() {
    let deep = format!(r#"{{"prompt":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(ask(Api::Completion, &deep).is_err());
}

#[test]
fn counts_in_every_event_need_the_last_one_too() {
    let of = |options: &str| {
        let ask = ask(Api::Completion, &format!(r#"{{"prompt":"a","stream_options":{options}}}"#)).unwrap();
        (ask.include_usage, ask.continuous_usage)
    };
    assert_eq!(of(r#"{"include_usage":true}"#), (true, false));
    assert_eq!(of(r#"{"include_usage":true,"continuous_usage_stats":true}"#), (true, true));
    assert_eq!(of(r#"{"continuous_usage_stats":true}"#), (false, false));
    assert_eq!(of("null"), (false, false));
}
