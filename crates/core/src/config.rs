//! Strict reading of TOML: what is not known is an error, and says what was probably meant.

use serde::de::DeserializeOwned;

/// Reads the text of a configuration. The type decides which keys there are; with `deny_unknown_fields` others are
/// errors.
///
/// # Errors
/// Says which key is wrong and, for an unknown key or name, the nearest known one; for what is not TOML, the line.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let deserializer = toml::Deserializer::parse(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let hint = nearest_known(inner.message()).map(|known| format!("; did you mean `{known}`?"));
        format!("{path}: {}{}", inner.message(), hint.unwrap_or_default())
    })
}

/// The known key or name that an unknown one was probably meant to be, from serde's list of what it
/// expected.
fn nearest_known(message: &str) -> Option<&str> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = ["unknown field", "unknown variant"].iter().any(|m| message.starts_with(m));
    let unknown = unknown.then(|| quoted.next())??;
    let score = |known: &str| strsim::jaro_winkler(unknown, known);
    quoted.filter(|known| score(known) > 0.75).max_by(|a, b| score(a).total_cmp(&score(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only whether it can be read matters")]
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only whether it can be read matters")]
        duration: u32,
    }

    #[test]
    fn an_error_names_the_key_and_the_nearest_known_one() {
        let error = |text: &str| from_toml::<Outer>(text).unwrap_err();
        assert!(error("inner = { duration = 'x' }").starts_with("inner.duration: "));
        assert!(error("inner = { durations = 3 }").ends_with("; did you mean `duration`?"));
        assert!(!error("inner = { colour = 3 }").contains("did you mean"));
        assert!(error("inner = {").contains("line 1"));
        assert!(from_toml::<Outer>("inner = { duration = 3 }").is_ok());
    }
}
