//! What was learned survives a restart of the program.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::backend::Backend;
use crate::support::client::{Client, get, post};

/// The program, and where it serves.
struct Program {
    child: Child,
    data: SocketAddr,
    admin: SocketAddr,
}

impl Program {
    fn start(config: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_elasticserve"))
            .args(["gateway", "--config"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = |line: &serde_json::Value, key: &str| line["fields"][key].as_str().unwrap().parse().unwrap();
        let serving = loop {
            let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["fields"]["message"] == "gateway is serving" {
                break line;
            }
        };
        // Nobody may leave the other end of a pipe that is written to.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, data: address(&serving, "listen"), admin: address(&serving, "admin") }
    }

    async fn metrics(&self) -> String {
        let mut answer = Client::tcp(self.admin).await.send(get("/metrics")).await.unwrap();
        String::from_utf8(answer.rest().await.0).unwrap()
    }

    fn stop(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success() && self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers of 2, 4, … tokens, as many as are asked for.
async fn answers(program: &Program, backend: &mut Backend, count: usize) {
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
    let config = folder.path().join("gateway.toml");
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[[backends]]\nurl = 'http://{addr}'\n\
         [queue]\nadmission = 'predict'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n[state]\nfile = '{}'\n",
        file.display()
    );
    std::fs::write(&config, text).unwrap();
    let learned =
        |of: &str| format!("elasticserve_learned_output_tokens{{pool=\"default\",tenant=\"default\",of=\"{of}\"}}");

    let first = Program::start(&config);
    assert!(first.metrics().await.contains("elasticserve_state{result=\"fresh\"} 1"));
    answers(&first, &mut backend, 40).await;
    let before = first.metrics().await;
    let finished = "elasticserve_learned_samples{pool=\"default\",tenant=\"default\",of=\"finished\"}";
    assert_eq!(line(&before, finished).rsplit(' ').next(), Some("40"));
    let p50: f64 = line(&before, &learned("p50")).rsplit(' ').next().unwrap().parse().unwrap();
    assert!((30.0..55.0).contains(&p50), "half of 2, 4, … 80 are no longer than 40: {p50}");
    first.stop();

    let second = Program::start(&config);
    let after = second.metrics().await;
    assert!(after.contains("elasticserve_state{result=\"restored\"} 1"), "{after}");
    assert_eq!(line(&after, finished), line(&before, finished));
    assert_eq!(line(&after, &learned("p90")), line(&before, &learned("p90")));
    second.stop();

    let foreign = "{\"version\": 1, \"somebody\": \"else's\"}";
    std::fs::write(&file, foreign).unwrap();
    let third = Program::start(&config);
    let afresh = third.metrics().await;
    assert!(afresh.contains("elasticserve_state{result=\"rejected\"} 1"), "{afresh}");
    assert!(!afresh.contains("elasticserve_learned_samples{"), "{afresh}");
    assert_eq!(std::fs::read_to_string(folder.path().join("state.json.bad")).unwrap(), foreign);
    answers(&third, &mut backend, 1).await;
    third.stop();
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"default\""), "the new one is kept");
    assert!(!folder.path().join("state.json.new").exists());
}
