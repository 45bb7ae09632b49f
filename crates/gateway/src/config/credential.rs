//! The gateway's own key for a backend.

use std::path::PathBuf;

use http::HeaderValue;

use super::{ConfigError, value};

/// A backend's key, and where it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Where it was read from.
    pub source: Source,
    /// The value of `authorization`; it does not show itself in logs.
    pub(crate) header: HeaderValue,
}

/// Where a key is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A variable of the environment.
    Env(String),
    /// A file.
    File(PathBuf),
}

impl Credential {
    /// The variable that it was read from, if it was.
    pub(super) fn env(&self) -> Option<String> {
        if let Source::Env(name) = &self.source { Some(name.clone()) } else { None }
    }

    /// The file that it was read from, if it was.
    pub(super) fn file(&self) -> Option<PathBuf> {
        if let Source::File(path) = &self.source { Some(path.clone()) } else { None }
    }
}

/// Reads the key that `key_env` or `key_file` of a backend names.
pub(super) fn check(
    place: &str,
    env: Option<String>,
    file: Option<PathBuf>,
) -> Result<Option<Credential>, ConfigError> {
    let (key, source, text) = match (env, file) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(value(&format!("{place}.key_file"), "key_env is there too; keep one of the two"));
        }
        (Some(name), None) => {
            let key = format!("{place}.key_env");
            let text = std::env::var(&name)
                .map_err(|_| value(&key, &format!("the environment has no variable {name} that is text")))?;
            (key, Source::Env(name), text)
        }
        (None, Some(path)) => {
            let key = format!("{place}.key_file");
            let text = std::fs::read_to_string(&path).map_err(|e| value(&key, &format!("{}: {e}", path.display())))?;
            (key, Source::File(path), text)
        }
    };
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(value(&key, "what it names must hold one key, of visible ASCII characters without spaces"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {text}"))
        .map_err(|_| value(&key, "what it names cannot be sent in a header"))?;
    header.set_sensitive(true);
    Ok(Some(Credential { source, header }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backends_key_comes_from_a_file_and_does_not_show_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "sk-backend\n").unwrap();
        let credential = check("backends[0]", None, Some(path.clone())).unwrap().unwrap();
        assert_eq!(credential.header, "Bearer sk-backend");
        assert!(!format!("{credential:?}").contains("sk-backend"));
        for (text, problem) in [("", "one key"), ("two keys", "one key"), ("a\nb", "one key"), ("ключ", "ASCII")] {
            std::fs::write(&path, text).unwrap();
            let error = check("backends[0]", None, Some(path.clone())).unwrap_err().to_string();
            assert!(error.starts_with("backends[0].key_file: ") && error.contains(problem), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_refused_by_its_place() {
        let missing = check("backends[1]", Some("NO_SUCH_VARIABLE_OF_A_KEY".into()), None).unwrap_err().to_string();
        assert!(missing.contains("backends[1].key_env") && missing.contains("NO_SUCH_VARIABLE_OF_A_KEY"), "{missing}");
        assert!(check("b", None, Some("/no/such/file".into())).unwrap_err().to_string().contains("/no/such/file"));
        assert!(check("b", Some("A".into()), Some("b".into())).unwrap_err().to_string().contains("one of the two"));
        assert_eq!(check("b", None, None).unwrap(), None);
    }
}
