//! Wrong configurations end the program before it opens anything (R28).

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const BACKEND: &str = "[[backends]]\nurl = 'http://127.0.0.1:1'\n";
const POOLS: &str = "[[pools]]\nname = 'a'\nmodels = ['m']\n[[pools]]\nname = 'b'\nmodels = ['n']\n\
    [[backends]]\nurl = 'http://127.0.0.1:1'\npool = 'a'\n[[backends]]\nurl = 'http://127.0.0.1:2'\npool = 'b'\n";
const PROFILE: &str = "[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n";

/// What follows a backend that is right, and the key that the message must begin with.
const VALUES: [(&str, &str); 37] = [
    ("[queue]\nbudget = '750'", "queue.budget"),
    ("[queue]\nbudget = 'soon'", "queue.budget"),
    ("[queue]\nadmission = 'budget'", "queue.budget"),
    ("[queue]\nadmission = 'none'\nbudget = '1s'", "queue.budget"),
    ("[queue]\nadmission = 'predict'", "predict.profile"),
    ("[queue]\nadmission = 'price'", "predict.profile"),
    ("[queue]\nadmission = 'predict'\n[predict]\nprofile = 'h100'", "predict.profile"),
    ("[queue]\nadmission = 'predict'\n[predict]\nprofile = 'missing.toml'", "predict.profile"),
    ("[queue]\nadmission = 'predict'\n[predict]\noverhead = '13ms'", "predict.prefill_per_token"),
    ("[queue]\nfairness = 0.5", "queue.fairness"),
    ("[queue]\norder = 'least-slack'", "queue.order"),
    ("[queue]\norder = 'wfq'\nguard = '1s'", "queue.guard"),
    ("[predict]\nprofile = 'gb10-qwen3-8b-fp8'", "predict"),
    ("[queue]\norder = 'wfq'\n[predict]\npad = '1ms'", "predict.pad"),
    ("[queue]\ninfeasible_status = 400", "queue.infeasible_status"),
    ("[queue]\nshadow = 'lifo'", "queue.shadow"),
    ("[queue]\nshadow = 'least-slack'", "queue.shadow"),
    ("[queue]\nclasses = { '7' = 1 }", "queue.classes.7"),
    ("[state]\ninterval = '5s'", "state.interval"),
    ("[slo]\nttft = '0'", "slo.ttft"),
    ("[slo]\ne2e = '5 parsecs'", "slo.e2e"),
    ("[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'a'", "tenants[1].name"),
    ("[[tenants]]\nname = ''", "tenants[0].name"),
    ("[[tenants]]\nname = 'a'\nweight = 0", "tenants[0].weight"),
    ("[[tenants]]\nname = 'a'\nmax_permits = 0", "tenants[0].max_permits"),
    ("[[tenants]]\nname = 'a'\nmax_queued = -1", "tenants[0].max_queued"),
    ("[[tenants]]\nname = 'a'\nslo = { tpot = '9' }", "tenants[0].slo.tpot"),
    ("[[tenants]]\nname = 'a'\ntokens_per_minute = 0", "tenants[0].tokens_per_minute"),
    ("[[tenants]]\nname = 'a'\n[[tenants.keys]]\nid = 'k'\nsha256 = 'esk-a-key'", "tenants[0].keys[0].sha256"),
    ("[health]\npath = 'health'", "health.path"),
    ("[health]\nprobes = 0", "health.probes"),
    ("[health]\nopen = '0'", "health.open"),
    ("[limits]\nconnections = 0", "limits.connections"),
    ("[limits]\nbody_memory = 5", "limits.body_memory"),
    ("[timeouts]\nidle = '0s'", "timeouts.idle"),
    ("[timeouts]\nheader = '-1s'", "timeouts.header"),
    ("[timeouts]\ndrain = '1y'", "timeouts.drain"),
];

/// What follows a backend that is right, and what the message must name.
const UNKNOWN: [(&str, &str); 12] = [
    ("[queue]\nbudgett = '1s'", "budgett"),
    ("[queue]\norder = 'fifo'", "order"),
    ("[queue]\ndepth = 'deep'", "depth"),
    ("[queues]\ndepth = 1", "queues"),
    ("[timeouts]\nidel = '1s'", "idel"),
    ("[limits]\nconnection = 1", "connection"),
    ("[[tenants]]\nname = 'a'\nwieght = 2", "wieght"),
    ("[[tenants]]\nname = 'a'\nslo = { tftt = '1s' }", "tftt"),
    ("[[backends]]\nurl = 'http://h:2'\npermit = 3", "permit"),
    ("[[backends]]\nurl = 'http://h:2'\npermits = 'many'", "permits"),
    ("[log]\nlevel = 'loud'", "level"),
    ("[reload]\nwatch = 'yes'", "watch"),
];

/// Whole files, and what the message must name.
fn files() -> Vec<(String, &'static str)> {
    let change = |from: &str, to: &str| POOLS.replacen(from, to, 1);
    let mut files: Vec<(String, &str)> = vec![
        (String::new(), "backends"),
        ("backends = []".into(), "backends"),
        ("[[backends]]\nurl = 'h:1'".into(), "backends[0].url"),
        ("[[backends]]\nurl = 'ftp://h'".into(), "backends[0].url"),
        ("[[backends]]\nurl = 'http://u:p@h'".into(), "backends[0].url"),
        (format!("{BACKEND}permits = 0"), "backends[0].permits"),
        (format!("{BACKEND}weight = 0"), "backends[0].weight"),
        (format!("{BACKEND}engine = 'tgi'"), "backends[0].engine"),
        (format!("{BACKEND}discover = 'consul'"), "backends[0].discover"),
        (format!("trusted_proxies = ['10.0.0.1/8']\n{BACKEND}"), "trusted_proxies[0]"),
        (format!("default_tenant = 'silver'\n{BACKEND}"), "default_tenant"),
        (format!("admin_token_sha256 = 'a token'\n{BACKEND}"), "admin_token_sha256"),
        (format!("tenants_file = 'missing.toml'\n{BACKEND}"), "tenants_file"),
        (change("pool = 'b'", "pool = 'c'"), "backends[1].pool"),
        (change("models = ['n']\n", ""), "pools[1].models"),
        (change("models = ['n']", "models = ['m']"), "pools[1].models"),
        (format!("default_pool = 'c'\n{POOLS}"), "default_pool"),
        ("[[backends]\nurl".into(), "gateway.toml"),
        ("\u{0}\u{1}".into(), "gateway.toml"),
    ];
    files.extend(VALUES.iter().map(|(more, key)| (format!("{BACKEND}{more}\n"), *key)));
    files.extend(UNKNOWN.iter().map(|(more, name)| (format!("{BACKEND}{more}\n"), *name)));
    files
}

fn start(file: &Path, listen: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(["gateway", "--supervised", "--listen", listen, "--admin", listen, "--config"]).arg(file);
    // It would end by itself at the end of its input.
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn every_wrong_configuration_is_refused_by_its_key_with_exit_code_64_before_a_port_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    // Nobody else can listen there: who tried to would say so, with another exit code.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    std::fs::write(&file, format!("{BACKEND}[queue]\nadmission = 'predict'\n{PROFILE}")).unwrap();
    let right = start(&file, &listen);
    let said = String::from_utf8_lossy(&right.stderr);
    assert!(right.status.code() == Some(1) && said.contains("cannot listen"), "{:?}: {said}", right.status);

    let files = files();
    assert!(files.len() >= 60, "{}", files.len());
    for (text, key) in files {
        std::fs::write(&file, &text).unwrap();
        let output = start(&file, &listen);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{text}\n{said}");
        assert!(said.contains(key) && !said.contains("panicked"), "{key} in\n{text}\n{said}");
        assert!(output.stdout.is_empty() && !said.contains("esk-a-key"), "{text}\n{said}");
    }
    std::fs::remove_file(&file).unwrap();
    let missing = start(&file, &listen);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(missing.status.code() == Some(64) && said.contains("gateway.toml"), "{:?}: {said}", missing.status);
}
