//! What the program is made of (S23).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Licences that a crate may be had under: those that ask for no more than their text beside a program.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];
/// Crates of which two versions would be two ways in.
const ONCE: [&str; 12] = [
    "http",
    "httparse",
    "hyper",
    "hyper-util",
    "ring",
    "rustls",
    "rustls-webpki",
    "serde_json",
    "sha2",
    "subtle",
    "tokio",
    "tokio-rustls",
];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn toml_of(path: &Path) -> toml::Table {
    toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The packages of a build for this machine, as cargo tells them.
fn packages() -> Vec<Value> {
    let host =
        format!("{}-unknown-linux-{}", std::env::consts::ARCH, if cfg!(target_env = "musl") { "musl" } else { "gnu" });
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &host]);
    let out = command.current_dir(root()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let told: Value = serde_json::from_slice(&out.stdout).unwrap();
    // Those that are only named for other machines are not in the graph.
    let used: BTreeSet<&str> =
        told["resolve"]["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    let packages = told["packages"].as_array().unwrap().iter();
    packages.filter(|package| used.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// Whether an SPDX expression can be met by licences that are allowed; `/` is an older way to write `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at) == Some(true) && at == words.len()
}

/// Whether the alternatives from here on can be met; `None` if this is no expression.
fn either(words: &[&str], at: &mut usize) -> Option<bool> {
    let mut met = both(words, at)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at)?;
    }
    Some(met)
}

fn both(words: &[&str], at: &mut usize) -> Option<bool> {
    let mut met = single(words, at)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= single(words, at)?;
    }
    Some(met)
}

fn single(words: &[&str], at: &mut usize) -> Option<bool> {
    let word = words.get(*at)?;
    *at += 1;
    if *word == "(" {
        let met = either(words, at)?;
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return closed.then_some(met);
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    Some(ALLOWED.contains(&&*name))
}

#[test]
fn an_expression_of_licences_is_met_only_by_those_that_are_allowed() {
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "MIT/Apache-2.0",
        "(MIT OR GPL-3.0) AND ISC",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-2.0 OR (MIT AND Zlib)",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR ISC) AND AGPL-3.0",
        "GPL-2.0 WITH LLVM-exception",
        "MIT OR",
        "(MIT",
        "MIT)",
    ] {
        assert!(!is_allowed(bad), "{bad}");
    }
}

#[test]
fn every_crate_comes_from_one_registry_under_a_licence_that_is_allowed() {
    let packages = packages();
    assert!(packages.len() > 100, "{}", packages.len());
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        match package["source"].as_str() {
            None => assert!(name.starts_with("elasticserve"), "{name} comes from a folder"),
            Some(source) => assert_eq!(source, REGISTRY, "{name}"),
        }
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence), "{name} is under '{licence}'");
    }
    // What is locked for other machines comes from there too, and is what was published.
    for package in toml_of(&root().join("Cargo.lock"))["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if !name.starts_with("elasticserve") {
            assert_eq!(package["source"].as_str(), Some(REGISTRY), "{name}");
            assert_eq!(package["checksum"].as_str().map(str::len), Some(64), "{name}");
        }
    }
}

#[test]
fn of_what_reads_from_the_network_there_is_one_version() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in toml_of(&root().join("Cargo.lock"))["package"].as_array().unwrap() {
        let text = |key: &str| package[key].as_str().unwrap().to_owned();
        versions.entry(text("name")).or_default().insert(text("version"));
    }
    for name in ONCE {
        assert_eq!(versions.get(name).map(BTreeSet::len), Some(1), "{name}: {:?}", versions.get(name));
    }
    // HTTP/2, another TLS and another HTTP client would each be a way in that no test here knows.
    for name in ["h2", "h3", "native-tls", "openssl", "openssl-sys", "aws-lc-rs", "reqwest"] {
        assert!(!versions.contains_key(name), "{name} is there");
    }
}

#[test]
fn no_crate_of_the_program_may_hold_unsafe_code() {
    let workspace = toml_of(&root().join("Cargo.toml"));
    assert_eq!(workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
    let own: Vec<Value> = packages().into_iter().filter(|package| package["source"].is_null()).collect();
    assert!(own.len() >= 6, "{}", own.len());
    for package in own {
        let manifest = toml_of(Path::new(package["manifest_path"].as_str().unwrap()));
        let name = package["name"].as_str().unwrap();
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{name} has lints of its own");
        // A script that runs at build time is outside of what the lint sees.
        let targets = package["targets"].as_array().unwrap();
        assert!(targets.iter().all(|target| target["kind"][0] != "custom-build"), "{name} has a build script");
    }
}
