//! What was learned survives a restart of the program.

use crate::support::backend::Backend;
use crate::support::client::{Client, post};
use crate::support::process::Process;

/// Ends it as a service manager does.
async fn stop(program: Process) {
    program.signal("TERM").await;
    assert!(program.ended().await.0.success());
}

/// Answers of 2, 4, … tokens, as many as are asked for.
async fn answers(program: &Process, backend: &mut Backend, count: usize) {
    for n in 1..=count {
        let client = Client::tcp(program.data).await;
        let request = post("/v1/completions", r#"{"prompt":[1,2],"max_tokens":64,"stream":true}"#);
        let (answer, ()) = tokio::join!(client.send(request), async {
            let responding = backend.call().await.stream();
            for _ in 0..2 * n {
                responding.event(r#"{"choices":[{"text":"a"}]}"#);
            }
            responding.event("[DONE]");
            responding.finish();
        });
        assert!(answer.unwrap().rest().await.1);
    }
}

fn line<'a>(metrics: &'a str, start: &str) -> &'a str {
    metrics.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} is not in\n{metrics}"))
}

#[tokio::test]
async fn a_restart_keeps_what_was_learned_and_a_file_that_is_no_state_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (mut backend, addr) = Backend::on_tcp().await;
    let file = folder.path().join("state.json");
    let text = format!(
        "[[backends]]\nurl = 'http://{addr}'\n\
         [queue]\nadmission = 'predict'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n[state]\nfile = '{}'\n",
        file.display()
    );
    let learned =
        |of: &str| format!("elasticserve_learned_output_tokens{{pool=\"default\",tenant=\"default\",of=\"{of}\"}}");

    let first = Process::start(&text, &[], &[]).await;
    assert!(first.get("/metrics").await.1.contains("elasticserve_state{result=\"fresh\"} 1"));
    answers(&first, &mut backend, 40).await;
    let before = first.get("/metrics").await.1;
    let finished = "elasticserve_learned_samples{pool=\"default\",tenant=\"default\",of=\"finished\"}";
    assert_eq!(line(&before, finished).rsplit(' ').next(), Some("40"));
    let p50: f64 = line(&before, &learned("p50")).rsplit(' ').next().unwrap().parse().unwrap();
    assert!((30.0..55.0).contains(&p50), "half of 2, 4, … 80 are no longer than 40: {p50}");
    stop(first).await;

    let second = Process::start(&text, &[], &[]).await;
    let after = second.get("/metrics").await.1;
    assert!(after.contains("elasticserve_state{result=\"restored\"} 1"), "{after}");
    assert_eq!(line(&after, finished), line(&before, finished));
    assert_eq!(line(&after, &learned("p90")), line(&before, &learned("p90")));
    stop(second).await;

    let foreign = "{\"version\": 1, \"somebody\": \"else's\"}";
    std::fs::write(&file, foreign).unwrap();
    let third = Process::start(&text, &[], &[]).await;
    let afresh = third.get("/metrics").await.1;
    assert!(afresh.contains("elasticserve_state{result=\"rejected\"} 1"), "{afresh}");
    assert!(!afresh.contains("elasticserve_learned_samples{"), "{afresh}");
    assert_eq!(std::fs::read_to_string(folder.path().join("state.json.bad")).unwrap(), foreign);
    answers(&third, &mut backend, 1).await;
    stop(third).await;
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"default\""), "the new one is kept");
    assert!(!folder.path().join("state.json.new").exists());
}
