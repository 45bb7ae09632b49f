//! Models and pools: who is answered by whom.

use serde_json::Value;

use crate::support::backend::header;
use crate::support::client::{completion, get, post};
use crate::support::gateway::Piped;
use crate::support::until;

const TWO: &str = "
    [[pools]]
    name = 'chat'
    models = ['big', 'org/small']
    [[pools]]
    name = 'voice'
    models = ['whisper']
    [[backends]]
    url = 'http://c'
    pool = 'chat'
    permits = 1
    [[backends]]
    url = 'http://v'
    pool = 'voice'
    permits = 1
";

fn asking(model: &str) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    post("/v1/completions", &format!(r#"{{"model":{model},"prompt":[1,2]}}"#))
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_by_the_pool_of_its_model() {
    let (mut gateway, mut backends, _) = Piped::over(&["c", "v"], TWO);
    for (model, place) in [("\"big\"", 0), ("\"org/small\"", 0), ("\"whisper\"", 1), ("\"\\u0062ig\"", 0)] {
        let sending = gateway.send(asking(model));
        let call = backends[place].call().await;
        assert!(String::from_utf8_lossy(&call.body).contains(model), "the body is as it was");
        call.json("{}");
        let mut answer = sending.answer().await;
        assert_eq!(header(&answer.headers, "x-elasticserve-backend"), Some(["0", "1"][place]));
        assert!(answer.rest().await.1);
    }
    assert!(!backends.iter().any(crate::support::backend::Backend::has_call));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_a_404_in_openais_shape_and_a_missing_one_a_400_and_no_backend_is_asked() {
    let (mut gateway, backends, _) = Piped::over(&["c", "v"], TWO);
    let long = format!("\"{}\"", "x".repeat(5_000));
    for model in ["\"Big\"", "\"http://c\"", "\"chat\"", "\"\"", "\"<script>\"", long.as_str()] {
        let mut answer = gateway.send(asking(model)).answer().await;
        assert_eq!(answer.status, 404, "{model}");
        let body = answer.json().await;
        let error = &body["error"];
        assert_eq!((&error["code"], &error["type"]), (&"model_not_found".into(), &"invalid_request_error".into()));
        assert_eq!(error["param"], "model");
        assert!(error["message"].as_str().is_some_and(|m| m.contains("/v1/models") && m.len() < 700), "{body}");
    }
    let double = post("/v1/completions", r#"{"model":"big","prompt":"x","model":"whisper"}"#);
    for (request, code) in [(asking("null"), "model_missing"), (double, "bad_body")] {
        let mut answer = gateway.send(request).answer().await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json().await["error"]["code"], code);
    }
    assert!(!backends.iter().any(crate::support::backend::Backend::has_call));
}

#[tokio::test(start_paused = true)]
async fn what_names_no_model_goes_to_the_default_pool() {
    let (mut gateway, mut backends, _) = Piped::over(&["c", "v"], &format!("default_pool = 'voice'\n{TWO}"));
    let sending = gateway.send(asking("null"));
    backends[1].call().await.json("{}");
    assert_eq!(sending.answer().await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn one_pool_takes_whatever_is_asked_for_and_its_engine_lists_the_models() {
    let (mut gateway, mut backends, _) = Piped::over(&["c"], "[[backends]]\nurl = 'http://c'\n");
    for request in [asking("\"anything\""), asking("null"), get("/v1/models"), get("/v1/models/a/b")] {
        let path = request.uri().path().to_owned();
        let sending = gateway.send(request);
        let call = backends[0].call().await;
        assert_eq!(call.head.uri.path(), path);
        call.json("{\"own\":1}");
        assert_eq!(sending.answer().await.rest().await.0, b"{\"own\":1}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_form_is_routed_by_its_field() {
    let (mut gateway, mut backends, _) = Piped::over(&["c", "v"], TWO);
    let form = |model: &str| {
        let body = format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n\
             --b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--b--\r\n"
        );
        let mut request = post("/v1/audio/transcriptions", &body);
        request.headers_mut().insert("content-type", "multipart/form-data; boundary=b".parse().unwrap());
        request
    };
    let sending = gateway.send(form("whisper"));
    backends[1].call().await.json("{}");
    assert_eq!(sending.answer().await.status, 200);
    assert_eq!(gateway.send(form("whisper-2")).answer().await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn questions_about_one_model_go_to_its_pool_and_the_list_is_that_of_all() {
    let (mut gateway, mut backends, dial) = Piped::over(&["c", "v"], TWO);
    let questions = [get("/v1/models/whisper"), post("/tokenize", r#"{"model":"whisper","prompt":"x"}"#)];
    for request in questions {
        let sending = gateway.send(request);
        backends[1].call().await.json("{}");
        assert_eq!(header(&sending.answer().await.headers, "x-elasticserve-backend"), Some("1"));
    }
    for request in [get("/v1/models/nobody"), post("/tokenize", r#"{"model":"nobody","prompt":"x"}"#)] {
        let mut answer = gateway.send(request).answer().await;
        assert_eq!((answer.status.as_u16(), &answer.json().await["error"]["code"] == "model_not_found"), (404, true));
    }

    // What a backend says of a model is passed on; what it also serves is not served here.
    dial.refuse("v", true);
    let sending = gateway.send(get("/v1/models"));
    let said = r#"{"object":"list","data":[{"id":"secret"},{"id":"big","object":"model","max_model_len":4096}]}"#;
    backends[0].call().await.json(said);
    let mut answer = sending.answer().await;
    assert_eq!((answer.status.as_u16(), header(&answer.headers, "content-type")), (200, Some("application/json")));
    let list = answer.json().await;
    let listed = |key: &str| list["data"].as_array().unwrap().iter().map(|m| m[key].clone()).collect::<Vec<Value>>();
    assert_eq!(listed("id"), ["big", "org/small", "whisper"]);
    assert_eq!(listed("max_model_len"), [Value::from(4096), Value::Null, Value::Null]);
    assert_eq!(list["object"], "list");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_full_holds_nobody_back_in_another() {
    let (mut gateway, mut backends, _) = Piped::over(&["c", "v"], TWO);
    let first = gateway.send(asking("\"big\""));
    let holding = backends[0].call().await;
    let second = gateway.send(asking("\"big\""));
    until("it waits", || gateway.queued() == 1).await;
    let other = gateway.send(asking("\"whisper\""));
    backends[1].call().await.json("{}");
    assert_eq!(other.answer().await.status, 200);
    assert_eq!(gateway.queued(), 1);
    holding.json("{}");
    first.answer().await;
    backends[0].call().await.json("{}");
    second.answer().await;
    gateway.service.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_at_its_backend_while_that_has_a_seat() {
    let text = "
        [[pools]]
        name = 'p'
        affinity = 'session'
        affinity_slack = '1h'
        [[backends]]
        url = 'http://a'
        permits = 2
        [[backends]]
        url = 'http://b'
        permits = 2
    ";
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], text);
    let mut used = [0, 0];
    for session in 0..12 {
        let request = || {
            let mut request = completion("");
            request.headers_mut().insert("x-session-id", session.into());
            request
        };
        let mut sendings = Vec::new();
        // Three of one session: two have room at its own backend, the third goes to the other rather than wait.
        for _ in 0..3 {
            sendings.push(gateway.send(request()));
            until("it runs", || gateway.in_use() == sendings.len() as u32).await;
            let loads: Vec<u32> = gateway.service.load().1.iter().map(|(in_use, _)| *in_use).collect();
            let most = loads.iter().max().copied();
            assert_eq!(most, Some(sendings.len().min(2) as u32), "together while there is room: {loads:?}");
        }
        let loads: Vec<u32> = gateway.service.load().1.iter().map(|(in_use, _)| *in_use).collect();
        let own = loads.iter().position(|n| *n == 2).unwrap();
        used[own] += 1;
        for (backend, n) in backends.iter_mut().zip(loads) {
            for _ in 0..n {
                backend.call().await.json("{}");
            }
        }
        for sending in sendings {
            sending.answer().await.rest().await;
        }
        until("all is back", || gateway.in_use() == 0).await;
    }
    assert!(used.iter().all(|n| *n > 1), "sessions are spread: {used:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reload_brings_backends_and_models_and_takes_them_without_cutting_what_runs() {
    let text = |model: &str, backend: &str, permits: u32| {
        format!(
            "[[pools]]\nname = 'p'\nmodels = ['{model}']\n\
             [[backends]]\nurl = 'http://{backend}'\npermits = {permits}\n"
        )
    };
    let (mut gateway, mut backends, _, config) = Piped::reloading(&["a", "b"], &text("old", "a", 2));
    let reload = |gateway: &Piped, text: String| {
        *config.lock().unwrap() = text;
        gateway.service.reload(elasticserve_gateway::Why::Admin)
    };
    let running = gateway.send(asking("\"old\""));
    let responding = backends[0].call().await.stream();
    let mut running = running.answer().await;
    reload(&gateway, text("old", "a", 5)).unwrap();
    assert_eq!(gateway.service.load().1, [(1, 5)], "the same backend with other permits");

    reload(&gateway, text("new", "b", 20)).unwrap();
    assert_eq!(gateway.service.load().1, [(0, 20)], "another one, the only one there is");
    assert_eq!(gateway.send(asking("\"old\"")).answer().await.status, 404);
    let sending = gateway.send(asking("\"new\""));
    backends[1].call().await.json("{}");
    let answer = sending.answer().await;
    assert_eq!((answer.status.as_u16(), header(&answer.headers, "x-elasticserve-backend")), (200, Some("1")));
    let both = format!("{}[[backends]]\nurl = 'http://a'\npermits = 30\n", text("new", "b", 20));
    reload(&gateway, both).unwrap();
    assert_eq!(gateway.service.load().1, [(0, 20), (0, 3)], "a further one starts slowly");
    responding.event("{}");
    responding.finish();
    assert!(running.rest().await.1, "what ran is not cut");
    until("all permits are back", || gateway.in_use() == 0).await;
    gateway.service.audit().unwrap();

    // Pools are set up once.
    let other = text("new", "b", 20).replace("name = 'p'", "name = 'q'");
    assert!(reload(&gateway, other).unwrap_err().to_string().contains("pools[].name"));
    assert_eq!(gateway.send(asking("\"old\"")).answer().await.status, 404);
}
