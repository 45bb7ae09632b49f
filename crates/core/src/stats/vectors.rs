//! Reading the vectors that other programs computed.

use serde_json::Value;

/// A file of `tests/data/stats`.
pub(super) struct Vectors(Value);

impl Vectors {
    pub(super) fn read(name: &str) -> Self {
        let text = match name {
            "distributions" => include_str!("../../../../tests/data/stats/distributions.json"),
            "samples" => include_str!("../../../../tests/data/stats/samples.json"),
            "shares" => include_str!("../../../../tests/data/stats/shares.json"),
            "bootstrap" => include_str!("../../../../tests/data/stats/bootstrap.json"),
            "tests" => include_str!("../../../../tests/data/stats/tests.json"),
            other => panic!("no vectors are called {other}"),
        };
        Self(serde_json::from_str(text).unwrap())
    }

    /// The rows of a table of numbers.
    pub(super) fn rows<const N: usize>(&self, table: &str) -> Vec<[f64; N]> {
        self.cases(table).iter().map(|row| numbers(row).try_into().unwrap()).collect()
    }

    /// The entries of a list, of which there must be some.
    pub(super) fn cases(&self, list: &str) -> &Vec<Value> {
        let cases = self.0[list].as_array().unwrap_or_else(|| panic!("no list is called {list}"));
        assert!(!cases.is_empty(), "{list} is empty");
        cases
    }
}

/// A list of numbers.
pub(super) fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// A number of an entry.
pub(super) fn number(case: &Value, key: &str) -> f64 {
    case[key].as_f64().unwrap_or_else(|| panic!("{key} of {case}"))
}

#[track_caller]
pub(super) fn near(got: f64, expected: f64, within: f64) {
    assert!((got - expected).abs() <= within, "{got} where {expected} is right");
}
