use super::*;
use crate::engine::Prompt;

const MOONCAKE: &str = r#"{"timestamp": 27482, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 30535, "input_length": 513, "output_length": 26, "hash_ids": [46, 99]}
"#;
const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
";
const TENANTS: &str = "i,arrival_s,tenant,input_tokens,output_tokens
0,0.5,standard,863,151
1,1.5,batch,258,79
2,1.75,standard,64,32
";

fn read(text: &str, options: &TraceOptions) -> Result<Plan, TraceError> {
    read_trace(TraceFormat::detect(text)?, text, "a test", options)
}

#[test]
fn a_mooncake_trace_brings_times_lengths_and_shared_blocks() {
    let plan = read(MOONCAKE, &TraceOptions::default()).unwrap();
    let [a, b] = plan.arrivals() else { panic!("{plan:?}") };
    assert_eq!((a.at, a.input, a.output), (Span::ZERO, 1025, 52));
    assert_eq!((b.at, b.input, b.output), (Span::from_millis(3053), 513, 26));
    assert_eq!(plan.blocks(a), [46, 47, 2353]);
    assert_eq!(plan.prompt(b), Prompt::Chunks([46, 99].into()));
    assert_eq!((plan.header().window, plan.header().count), (Some(Span::from_millis(3053)), 2));
    assert_eq!(plan.header().tenants[0].name, "default");
}

#[test]
fn blocks_survive_the_plan_s_text_and_change_its_hash() {
    let plan = read(MOONCAKE, &TraceOptions::default()).unwrap();
    let again = Plan::from_ndjson(&plan.to_ndjson()).unwrap();
    assert_eq!(again, plan);
    let other = read(&MOONCAKE.replace("[46, 99]", "[45, 99]"), &TraceOptions::default()).unwrap();
    assert_ne!(other.hash(), plan.hash());
    let long = plan.to_ndjson().replace("[46,99]", "[46,99,100]");
    let error = Plan::from_ndjson(&long).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("3 blocks"), "{error}");
}

#[test]
fn an_azure_trace_starts_with_its_first_row() {
    let plan = read(AZURE, &TraceOptions::default()).unwrap();
    let [a, b] = plan.arrivals() else { panic!("{plan:?}") };
    assert_eq!((a.at, a.input, a.output), (Span::ZERO, 374, 44));
    assert_eq!((b.at, b.input, b.output), (Span::from_nanos(4_314_579_000), 396, 109));
    assert_ne!(a.prompt, b.prompt);
    assert!(!plan.to_ndjson().contains("blocks"));
}

#[test]
fn tenants_are_those_of_the_trace_or_those_that_are_given() {
    let plan = read(TENANTS, &TraceOptions::default()).unwrap();
    assert_eq!(plan.arrivals().iter().map(|a| a.tenant).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(plan.arrivals()[0].at, Span::from_millis(500));
    let tenant = |name: &str| PlanTenant::new(name, 1.0, Slo::default());
    let given = |names: [&str; 2]| TraceOptions { tenants: names.map(tenant).to_vec(), ..TraceOptions::default() };
    let plan = read(TENANTS, &given(["batch", "standard"])).unwrap();
    assert_eq!(plan.arrivals().iter().map(|a| a.tenant).collect::<Vec<_>>(), [1, 0, 1]);
    let error = read(TENANTS, &given(["gold", "standard"])).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("'batch'") && error.contains("gold, standard"), "{error}");
}

#[test]
fn a_trace_can_be_sped_up_and_cut() {
    let limit = NonZeroU32::new(2);
    let plan = read(TENANTS, &TraceOptions { speed_up: 2.0, limit, ..TraceOptions::default() }).unwrap();
    let at: Vec<Span> = plan.arrivals().iter().map(|a| a.at).collect();
    assert_eq!(at, [Span::from_millis(250), Span::from_millis(750)]);
    assert_eq!(plan.header().window, Some(Span::from_millis(750)));
    // What is cut off is not looked at.
    let one = TraceOptions { limit: NonZeroU32::new(1), ..TraceOptions::default() };
    assert_eq!(read(&MOONCAKE.replace("30535", "x"), &one).unwrap().arrivals().len(), 1);
    for speed_up in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = read(AZURE, &TraceOptions { speed_up, ..TraceOptions::default() }).unwrap_err();
        assert!(error.to_string().contains("speed-up"), "{error}");
    }
}

#[test]
fn a_row_that_is_not_right_is_refused_with_its_line_and_the_reason() {
    for (text, from, to, line, reason) in [
        (MOONCAKE, "\"hash_ids\": [46, 99]", "\"hash_id\": [46, 99]", 2, "hash_id"),
        (MOONCAKE, ", \"hash_ids\": [46, 99]", "", 2, "missing field `hash_ids`"),
        (MOONCAKE, "\"output_length\": 26", "\"output_length\": 26, \"turn\": 1", 2, "unknown field `turn`"),
        (MOONCAKE, "\"output_length\": 26", "\"output_length\": 0", 2, "output_length is 0"),
        (MOONCAKE, "\"input_length\": 513", "\"input_length\": 0", 2, "input_length is 0"),
        (MOONCAKE, "\"input_length\": 513", "\"input_length\": 512", 2, "2 hash_ids, but 512 tokens are 1 blocks"),
        (MOONCAKE, "30535", "27481", 2, "before the first one"),
        (MOONCAKE, "27482", "-1", 1, "timestamp is -1"),
        (MOONCAKE, "\n{", "\n\n{", 2, "EOF"),
        (AZURE, "ContextTokens,GeneratedTokens", "ContextTokens", 1, "must be"),
        (AZURE, ",109", ",109,1", 3, "4 fields, but 3"),
        (AZURE, ",109", "", 3, "2 fields, but 3"),
        (AZURE, ",109", ",0", 3, "GeneratedTokens is 0"),
        (AZURE, ",374", ",-374", 2, "ContextTokens is '-374'"),
        (AZURE, "18:15:50.9", "17:15:50.9", 3, "before the first one"),
        (AZURE, "18:15:50.9", "18:65:50.9", 3, "not a time"),
        (TENANTS, "1,1.5", "2,1.5", 3, "i is '2' where 1 belongs"),
        (TENANTS, "1.75", "1.25", 4, "earlier than the line before"),
        (TENANTS, "1.75", "soon", 4, "arrival_s is 'soon'"),
        (TENANTS, "batch", "", 3, "tenant is empty"),
        (TENANTS, ",79", ",0", 3, "output_tokens is 0"),
    ] {
        let format = match text {
            MOONCAKE => TraceFormat::Mooncake,
            AZURE => TraceFormat::Azure,
            _ => TraceFormat::Tenants,
        };
        let broken = text.replacen(from, to, 1);
        assert_ne!(broken, text, "{from}");
        let error = read_trace(format, &broken, "a test", &TraceOptions::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}: ")) && error.contains(reason), "{to}: {error}");
    }
    assert!(read("", &TraceOptions::default()).unwrap_err().to_string().contains("line 1"));
    let header = read(&format!("{}\n", azure::HEADER), &TraceOptions::default()).unwrap_err();
    assert_eq!(header, TraceError::Whole("it has no rows".into()));
    assert_eq!("azure".parse(), Ok(TraceFormat::Azure));
    assert!("vllm".parse::<TraceFormat>().unwrap_err().to_string().contains("mooncake, azure, tenants"));
}
