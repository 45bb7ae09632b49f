use elasticserve_core::time::Span;

use super::*;
use crate::doc::tests::{assert_inert, assert_told_as_listed, hostile};
use crate::{Run, fixture};

/// The document of runs.
fn doc(title: &str, runs: &[&Run]) -> Doc {
    let accounts: Vec<Account> = runs.iter().map(|r| Account::of(r)).collect();
    let summaries: Vec<Summary> = accounts.iter().map(Summary::of_account).collect();
    run_doc(title, &accounts.iter().collect::<Vec<_>>(), &summaries)
}

fn html(title: &str, runs: &[&Run]) -> String {
    doc(title, runs).to_html()
}

fn pair() -> String {
    let [direct, gateway] = fixture::pair();
    html("published overload", &[&direct, &gateway])
}

#[test]
fn every_picture_has_a_title_and_a_description_of_its_own() {
    let page = pair();
    let ids: Vec<&str> = page.split("<svg role=\"img\"").skip(1).collect();
    assert_eq!(ids.len(), 9, "outcomes, distribution, sends, and for each run latency, rates and timeline");
    let mut seen = std::collections::BTreeSet::new();
    for svg in ids {
        let labelled = svg.split("aria-labelledby=\"").nth(1).unwrap().split('"').next().unwrap();
        for id in labelled.split(' ') {
            assert!(seen.insert(id.to_owned()), "{id} is there twice");
            let text = svg.split(&format!("id=\"{id}\">")).nth(1).unwrap().split('<').next().unwrap();
            assert!(text.len() > 20, "{id}: {text}");
        }
    }
}

#[test]
fn pictures_and_tables_are_of_the_same_numbers() {
    let page = pair();
    for told in ["32 (16.0%) good, 168 (84.0%) late", "128 (64.0%) good, 72 (36.0%) rejected"] {
        assert!(page.contains(told), "{told}");
    }
    assert!(page.contains(
        "gateway: of 200 planned arrivals 64.0% had their first token within 1 s, 64.0% were answered in full"
    ));
    assert!(page.contains("whole window (0–12.5 s): 16.00/s offered, 10.24/s admitted, 10.24/s good, which is 64.0%"));
}

#[test]
fn the_page_needs_nothing_from_anywhere_and_runs_nothing() {
    let page = pair();
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    for forbidden in [
        "http:",
        "https:",
        "//",
        "<script",
        "<link",
        "<img",
        "<iframe",
        "<object",
        "@import",
        "src=",
        "href=",
        "onload",
        "javascript:",
    ] {
        let found = page.match_indices(forbidden).map(|(i, _)| &page[i.saturating_sub(40)..(i + 40).min(page.len())]);
        assert_eq!(found.collect::<Vec<_>>(), Vec::<&str>::new(), "{forbidden}");
    }
    assert_eq!(page.matches("url(").count(), page.matches("url(#p-").count());
}

#[test]
fn names_from_the_data_are_text_wherever_they_appear() {
    for evil in hostile() {
        let mut run = fixture::mixed();
        run.manifest.name = evil.clone();
        run.manifest.target.url = evil.clone();
        run.manifest.target.model = evil.clone();
        run.manifest.metadata.insert(evil.clone(), evil.clone());
        run.manifest.plan.tenants[0].name = evil.clone();
        run.manifest.plan.tenants[0].slo.ttft = Some(Span::from_millis(500));
        for row in run.rows.iter_mut().filter(|r| r.tenant == "a") {
            row.tenant = evil.clone();
        }
        run.rows[3].reason = Some(evil.clone());
        run.rows[5].error = Some(evil.clone());
        let doc = doc(&evil, &[&run, &run]);
        assert_inert(&doc.to_html(), &doc.to_markdown(), &evil);
    }
}

#[test]
fn the_words_of_every_picture_hold_no_number_that_its_table_does_not() {
    let [direct, gateway] = fixture::pair();
    assert_eq!(assert_told_as_listed(&doc("pair", &[&direct, &gateway])), 9);
    assert_eq!(assert_told_as_listed(&doc("mixed", &[&fixture::mixed()])), 7, "with the tenants");
}

/// Renewed with `RENEW=1 cargo test -p elasticserve-report golden`, after a look at what changed.
#[test]
fn the_twins_of_the_published_overload_and_of_a_mixed_run_are_as_the_golden_files_have_them() {
    let [direct, gateway] = fixture::pair();
    let golden =
        [("pair", doc("published overload", &[&direct, &gateway])), ("mixed", doc("mixed", &[&fixture::mixed()]))];
    for (name, doc) in golden {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.md"));
        let text = doc.to_markdown();
        if std::env::var_os("RENEW").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        let held = std::fs::read_to_string(&file).unwrap();
        for (line, (now, then)) in text.lines().zip(held.lines()).enumerate() {
            assert_eq!(now, then, "{name}.md line {}", line + 1);
        }
        assert_eq!(text.lines().count(), held.lines().count(), "{name}.md");
    }
}

#[test]
fn an_incomplete_run_is_told_by_its_counts_and_drawn_in_no_picture() {
    let [direct, mut gateway] = fixture::pair();
    gateway.rows.truncate(120);
    gateway.torn = true;
    let page = html("killed", &[&direct, &gateway]);
    assert!(page.contains("incomplete: counts only"));
    assert!(page.contains("gateway is incomplete: its ledger accounts for 120 of 200 arrivals"));
    assert!(page.contains("last line was cut off"));
    assert_eq!(page.matches("<svg role=\"img\"").count(), 6, "the pictures of the whole run");
    let alone = html("killed", &[&gateway]);
    assert_eq!(alone.matches("<svg role=\"img\"").count(), 0);
}

#[test]
fn scaled_time_and_simulation_are_said_on_the_page() {
    let mut runs = fixture::pair();
    assert!(pair().contains("simulated: no server was measured") && !pair().contains("scaled time"));
    for run in &mut runs {
        run.manifest.time_scale = 4.0;
    }
    let page = html("quick", &[&runs[0], &runs[1]]);
    assert!(page.contains("scaled time: 4x real time"));
    assert_eq!(page.matches("s of scaled time").count(), 8, "on every axis of time");
}

#[test]
fn a_run_of_nothing_and_runs_of_every_ending_make_a_page() {
    let mut empty = fixture::mixed();
    empty.rows.clear();
    empty.manifest.plan.count = 0;
    assert!(html("empty", &[&empty]).contains("mixed planned no arrivals"));
    let mixed = fixture::mixed();
    let page = html("mixed", &[&mixed]);
    for class in crate::Class::ALL {
        assert!(page.contains(&format!("class=\"c-{}\"", class.name())), "{class:?}");
    }
    assert!(html("none", &[]).contains("No runs."));
}
