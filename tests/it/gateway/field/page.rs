//! The page of field cases names tests that exist.

use std::path::{Path, PathBuf};

/// The tests that a page names between backticks, as a path of modules and a name.
fn named_tests(page: &str) -> Vec<(Vec<&str>, &str)> {
    let spans = page.split('`').skip(1).step_by(2);
    let names = spans.filter_map(|span| span.rsplit_once("::")).filter(|(_, name)| *name != "…");
    names.map(|(modules, name)| (modules.split("::").filter(|m| *m != "tests").collect(), name)).collect()
}

/// The source of a module: below `tests/it`, or of a crate of this project.
fn source(modules: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, modules) = match modules.split_first()? {
        (first, rest) if first.starts_with("elasticserve_") => {
            (root.join("crates").join(first.trim_start_matches("elasticserve_")).join("src"), rest)
        }
        _ => (root.join("tests/it"), modules),
    };
    let path = modules.iter().fold(folder, |path, module| path.join(module));
    [path.with_extension("rs"), path.join("mod.rs")].into_iter().find(|file| file.exists())
}

#[test]
fn every_test_that_the_page_of_field_cases_names_exists() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/field-cases.md")).unwrap();
    let named = named_tests(&page);
    assert!(named.len() > 45, "only {} tests are named", named.len());
    for (modules, name) in named {
        let Some(file) = source(&modules) else { panic!("there is no module {}", modules.join("::")) };
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("fn {name}(")), "{} has no test {name}", file.display());
    }
}
