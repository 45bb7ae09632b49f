//! `docs/bars.md` says what there is: every row once, and tests and scripts that exist.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A row of a table.
struct Bar {
    row: String,
    tests: String,
    met: String,
}

const HEAD: &str = "| row | tried, and what must hold | tests | tier | trials | met |";

#[test]
fn every_bar_is_in_the_table_once_and_says_whether_it_is_met() {
    let bars = bars();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    bars.iter().for_each(|bar| *rows.entry(&bar.row).or_default() += 1);
    let expected = (1..=30).map(|n| format!("R{n}")).chain((1..=24).map(|n| format!("S{n}")));
    for row in expected {
        assert_eq!(rows.remove(row.as_str()), Some(1), "{row} is to be in the table once");
    }
    assert!(rows.is_empty(), "not known: {rows:?}");
    for Bar { row, tests, met, .. } in &bars {
        let why = ["in part: ", "no: "].into_iter().find_map(|word| met.strip_prefix(word));
        assert!(
            met == "yes" || why.is_some_and(|why| why.len() > 3),
            "{row}: `{met}` is no `yes`, `in part: …`, `no: …`"
        );
        assert!(met.starts_with("no: ") || !names(tests).is_empty(), "{row} is said to be met by no test");
    }
}

#[test]
fn every_test_and_script_that_the_table_names_exists() {
    let known = tests();
    assert!(known.len() > 800, "only {} tests were found", known.len());
    let mut named = 0;
    for Bar { row, tests, .. } in bars() {
        for name in names(&tests) {
            named += 1;
            if name.contains("::") {
                let found = matching(&known, name);
                let right = if name.ends_with("::…") { found > 0 } else { found == 1 };
                assert!(right, "{row}: {found} tests are named {name}");
            } else {
                let folder = name.split('/').next().unwrap_or_default();
                assert!(["scripts", "fuzz", "benches"].contains(&folder), "{row}: {name} is no test and no script");
                assert!(root().join(name).is_file(), "{row}: there is no {name}");
            }
        }
    }
    assert!(named > 60, "only {named} names were read");
}

#[test]
fn a_name_stands_for_the_tests_that_it_says() {
    let known = BTreeSet::from(["a::b::one".to_owned(), "a::b::other".to_owned(), "a::c".to_owned()]);
    let cases =
        [("a::b::one", 1), ("a::b::o…", 2), ("a::b::on…", 1), ("a::b::…", 2), ("a::…", 3), ("a::b", 0), ("b::…", 0)];
    for (name, found) in cases {
        assert_eq!(matching(&known, name), found, "{name}");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn bars() -> Vec<Bar> {
    let text = std::fs::read_to_string(root().join("docs/bars.md")).unwrap();
    assert_eq!(text.matches(HEAD).count(), 2, "two tables, each with the columns {HEAD}");
    let lines = text.lines().filter(|line| line.starts_with("| R") || line.starts_with("| S"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [row, _, tests, _, _, met] = cells[..] else { panic!("{} cells, not 6: {line}", cells.len()) };
            Bar { row: row.into(), tests: tests.into(), met: met.into() }
        })
        .collect()
}

/// What stands in backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// How many tests a name stands for.
fn matching(known: &BTreeSet<String>, name: &str) -> usize {
    match name.strip_suffix('…') {
        Some(begin) => known.iter().filter(|test| test.starts_with(begin)).count(),
        None => usize::from(known.contains(name)),
    }
}

/// All tests in the sources: those of `tests/it` by their modules, those of the program and of a crate behind its name.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut roots = vec![("tests/it".to_owned(), String::new()), ("src".to_owned(), "elasticserve".to_owned())];
    for krate in ["core", "gateway", "load", "mock", "report"] {
        roots.push((format!("crates/{krate}/src"), format!("elasticserve_{krate}")));
    }
    for (folder, prefix) in roots {
        let folder = root().join(folder);
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let module = file.strip_prefix(&folder).unwrap().with_extension("");
            let parts = module.iter().map(|part| part.to_str().unwrap());
            let own = parts.filter(|part| !["mod", "lib", "main"].contains(part)).map(str::to_owned);
            let path: Vec<String> = std::iter::once(prefix.clone()).filter(|p| !p.is_empty()).chain(own).collect();
            found.extend(tests_of(&std::fs::read_to_string(&file).unwrap(), &path));
        }
    }
    found
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The tests of one file. A module within it begins and ends at the start of a line, as `cargo fmt` has it.
fn tests_of(text: &str, path: &[String]) -> Vec<String> {
    let (mut inner, mut is_test, mut found) = (None, false, Vec::new());
    for line in text.lines() {
        if let Some(module) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            inner = Some(module.to_owned());
        } else if line == "}" {
            inner = None;
        }
        let line = line.trim_start();
        let attribute = line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let Some((name, _)) = rest.filter(|_| is_test).and_then(|rest| rest.split_once('(')) {
            let all = path.iter().chain(&inner).map(String::as_str).chain([name]);
            found.push(all.collect::<Vec<_>>().join("::"));
        }
        is_test = attribute || is_test && line.starts_with("#[");
    }
    found
}
