//! Files that are not right: nothing is started, and the message names the key and what would be right.

use super::{SMALL, experiment, stderr, write};

#[test]
fn a_wrong_file_is_refused_with_the_key_and_what_would_be_right() {
    let published = "[published]\nsource = 'x'\n[[published.figures]]\n";
    for (from, to, says) in [
        ("seeds = [1, 2]", "seed = [1, 2]", &["runs", "did you mean `seeds`?"][..]),
        ("seeds = [1, 2]", "seeds = [1, 1]", &["workloads[0].seeds", "no two alike"]),
        ("seeds = [1, 2]", "seeds = [1]\norder = 'alternating'", &["runs.order", "did you mean `alternate`?"]),
        ("policy = 'fcfs+budget:100ms'", "policy = 'lifo'", &["arms[1].policy", "`fcfs`"]),
        ("policy = 'fcfs+budget:100ms'", "policy = 'least-slack'", &["arms[1].policy", "least-slack+predict"]),
        ("policy = 'fcfs+budget:100ms'", "url = 'http://h:1'", &["arms[1].url", "no gateway"]),
        ("policy = 'fcfs+budget:100ms'\npermits = 4", "", &["arms[1].policy", "direct or url"]),
        ("permits = 4", "permits = 0", &["arms[1].permits", "1 or more"]),
        ("permits = 4", "gateway = { listen = '127.0.0.1:1' }", &["arms[1].gateway.listen", "leave it out"]),
        ("permits = 4", "gateway = { queue = { dept = 3 } }", &["queue", "did you mean `depth`?"]),
        ("name = 'budget'", "name = 'direct'", &["arms: two are called 'direct'"]),
        ("name = 'small'", "name = 'small'\nbaseline = 'nobody'", &["baseline", "'nobody'"]),
        ("rate = 20", "rate = -1", &["workloads[0].work", "rate"]),
        ("[workloads.work]", "vllm_bench = { rate = 8, input = 1, output = 1 }\n[workloads.work]", &["say one of"]),
        ("name = 'small'", "name = 'small'\n[stand]\nspeed = 0.0", &["stand.speed", "above 0"]),
        ("[[workloads]]", "[[workloads]]\nprimed = 'some'", &["workloads[0].primed", "\"all\""]),
        (
            "name = 'small'",
            "name = 'small'\n[target]\nendpoint = '/v2'",
            &["target.endpoint", "completions, chat or responses"],
        ),
        (
            "[[arms]]\nname = 'direct'",
            &format!("{published}arm = 'x'\nvalues = {{ goodput = 1.0 }}\n[[arms]]\nname = 'direct'"),
            &["published.figures[0].arm", "'x'"],
        ),
        (
            "[[arms]]\nname = 'direct'",
            &format!("{published}arm = 'direct'\nvalues = {{ goodputs = 1.0 }}\n[[arms]]\nname = 'direct'"),
            &["published.figures[0].values.goodputs", "goodput_share"],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        assert!(SMALL.contains(from), "{from}");
        let file = write(folder.path(), "e.toml", &SMALL.replacen(from, to, 1));
        let dir = folder.path().join("out");
        let output = experiment(&[file.to_str().unwrap(), "--result-dir", dir.to_str().unwrap()]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{to}: {said}");
        assert!(said.contains("e.toml") && says.iter().all(|s| said.contains(s)), "{to}: {said}");
        assert!(!dir.exists(), "{to}");
    }
}

#[test]
fn arrivals_that_nobody_has_recorded_are_refused_with_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let (head, arms) = SMALL.split_once("[workloads.work]").unwrap();
    let (_, arms) = arms.split_once("[[arms]]").unwrap();
    let bench = "vllm_bench = { rate = 16, input = 256, output = 64 }";
    let file = write(folder.path(), "e.toml", &format!("{head}{bench}\n[[arms]]{arms}"));
    let output = experiment(&[file.to_str().unwrap(), "--sim", "--list", "--seeds", "8"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("seed 8") && stderr(&output).contains("7, 11, 23"), "{}", stderr(&output));
    let output = experiment(&[file.to_str().unwrap(), "--sim", "--list", "--seeds", "7,11"]);
    let list = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), list.lines().count()), (Some(0), 4), "{list}");
}

#[test]
fn the_simulator_has_no_url_to_send_to() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", &SMALL.replace("direct = true", "url = 'http://127.0.0.1:1'"));
    let output = experiment(&[file.to_str().unwrap(), "--sim"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("leave out --sim"), "{}", stderr(&output));
}
