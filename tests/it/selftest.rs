//! `elasticserve selftest`: the corpus of streams against our reader and against commands.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_elasticserve");
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/sse");

fn selftest(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).arg("selftest").args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap()
}

#[test]
fn our_reader_reads_every_case_right_however_it_is_split() {
    let (code, said) = selftest(&[]);
    assert_eq!(code, Some(0), "{said}");
    let count: usize = said.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(said.trim(), format!("{count} of {count} cases are read right"));
}

#[test]
fn every_file_of_the_corpus_is_built_in() {
    let (code, from_folder) = selftest(&["--corpus", CORPUS]);
    assert_eq!((code, from_folder), selftest(&[]));
}

#[test]
fn a_command_is_held_to_the_same_corpus() {
    let (code, said) = selftest(&["--parser", &format!("{PROGRAM} selftest --read")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(last_line(&said).ends_with("cases are read right"));
}

#[test]
fn a_command_that_reads_wrong_is_shown_where_and_fails() {
    // It takes every comment for an event without data, as a reader would that knows no comments.
    let wrong = format!("sed 's/^:/data:/' | {PROGRAM} selftest --read");
    let (code, said) = selftest(&["--parser", &wrong]);
    assert_eq!(code, Some(1));
    assert!(said.contains("wrong: lines/comment between: "), "{said}");
    assert!(said.contains("events should be [") && said.contains("but was read as ["), "{said}");
    let (code, said) = selftest(&["--parser", "cat"]);
    assert_eq!(code, Some(1));
    assert!(last_line(&said).starts_with("0 of "), "{said}");
    let (code, said) = selftest(&["--parser", "echo '{}'"]);
    assert!(code == Some(1) && said.contains("no list `events`"), "{said}");
    assert_eq!(selftest(&["--parser", "exit 3"]).0, Some(1));
}

#[test]
fn a_corpus_that_cannot_be_read_is_a_wrong_configuration_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = || -> Output { Command::new(PROGRAM).args(["selftest", "--corpus", path]).output().unwrap() };
    assert_eq!(run().status.code(), Some(64));
    let case = r#"[{"name":"a","why":"b","bytes":[{"hex":"zz"}],"events":[]}]"#;
    std::fs::write(folder.path().join("mine.json"), case).unwrap();
    let output = run();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(said.contains("mine/a") && said.contains("'zz'"), "{said}");
}

#[test]
fn a_stream_on_stdin_is_read_as_it_is() {
    let mut child = Command::new(PROGRAM);
    let mut child = child.args(["selftest", "--read"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stream = b": ping\n\nevent: x\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n";
    child.stdin.take().unwrap().write_all(stream).unwrap();
    let reading: serde_json::Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&reading["comments"], &reading["events"][0]["event"]), (&1.into(), &"x".into()));
    assert_eq!((&reading["answer"]["content"]["0"], &reading["answer"]["finished"]), (&"a".into(), &true.into()));
}
