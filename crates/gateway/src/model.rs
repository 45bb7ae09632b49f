//! Which model a request asks for, and which pool serves it.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

use crate::config::Config;
use crate::reply::Refusal;

/// The pools by what they serve.
#[derive(Debug)]
pub(crate) struct Models {
    by_name: BTreeMap<String, usize>,
    /// The pool of what names no model.
    unnamed: Option<usize>,
    /// Whether there is one pool that serves whatever is asked for.
    any: bool,
    several: bool,
}

impl Models {
    pub(crate) fn new(config: &Config) -> Self {
        let named = |(place, pool): (usize, &crate::config::Pool)| {
            let models = pool.models.iter().flatten().cloned();
            models.map(|model| (model, place)).collect::<Vec<_>>()
        };
        let several = config.pools.len() > 1;
        Self {
            by_name: config.pools.iter().enumerate().flat_map(named).collect(),
            unnamed: if several { config.default_pool } else { Some(0) },
            any: config.pools.iter().any(|p| p.models.is_none()),
            several,
        }
    }

    /// The pool of a request for a model; none serves another one than it is asked for.
    pub(crate) fn pool(&self, model: Option<&str>) -> Result<usize, Refusal> {
        match model {
            // An engine checks the name itself.
            _ if self.any => Ok(0),
            Some(name) => self.by_name.get(name).copied().ok_or_else(|| Refusal::UnknownModel(shortened(name))),
            None => self.unnamed.ok_or(Refusal::NoModel),
        }
    }

    /// Whether the pool of a request depends on its model.
    pub(crate) const fn matter(&self) -> bool {
        !self.any
    }

    /// Whether there are several pools, so that a list of models has to be put together.
    pub(crate) const fn are_in_several_pools(&self) -> bool {
        self.several
    }
}

/// The longest name that an answer repeats, in characters.
const MAX_SHOWN: usize = 128;

fn shortened(name: &str) -> String {
    let mut shown: String = name.chars().take(MAX_SHOWN).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

/// The model in a form (RFC 7578), as uploads of audio have it.
///
/// # Errors
/// [`Refusal::BadBody`] if there are two, of which the engine might take another one than the gateway.
pub(crate) fn of_form(headers: &HeaderMap, body: &[u8]) -> Result<Option<String>, Refusal> {
    let Some(boundary) = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).and_then(boundary) else {
        return Ok(None);
    };
    let delimiter = format!("--{boundary}");
    let mut starts: Vec<usize> = memmem::find_iter(body, delimiter.as_bytes()).collect();
    starts.push(body.len());
    let parts = starts.windows(2).map(|pair| &body[pair[0] + delimiter.len()..pair[1].max(pair[0] + delimiter.len())]);
    let mut models = parts.filter_map(field_model);
    match (models.next(), models.next()) {
        (Some(_), Some(_)) => Err(Refusal::BadBody("the form has two fields called model".to_owned())),
        (model, _) => Ok(model),
    }
}

fn boundary(content_type: &str) -> Option<&str> {
    let mut parts = content_type.split(';').map(str::trim);
    parts.next().filter(|kind| kind.eq_ignore_ascii_case("multipart/form-data"))?;
    let value = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    Some(value).filter(|b| !b.is_empty())
}

/// The value of a part that is the field `model`.
fn field_model(part: &[u8]) -> Option<String> {
    let head_ends = memmem::find(part, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&part[..head_ends]).ok()?;
    let is_model = head.split("\r\n").any(|line| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let mut parameters = value.split(';').map(str::trim);
        let named = |p: &str| {
            p.split_once('=').is_some_and(|(n, v)| n.eq_ignore_ascii_case("name") && v.trim_matches('"') == "model")
        };
        name.trim().eq_ignore_ascii_case("content-disposition") && parameters.any(named)
    });
    let value = &part[head_ends + 4..];
    let value = value.strip_suffix(b"\r\n").unwrap_or(value);
    is_model.then(|| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    fn models(text: &str) -> Models {
        let backends: String = text
            .matches("name =")
            .enumerate()
            .map(|(i, _)| format!("[[backends]]\nurl = 'http://h:{}'\npool = 'p{i}'\n", i + 1))
            .collect();
        let backends = if backends.is_empty() { "[[backends]]\nurl = 'http://h:1'\n".to_owned() } else { backends };
        Models::new(&RawConfig::from_toml(&format!("{text}{backends}")).unwrap().check().unwrap())
    }

    #[test]
    fn a_request_goes_to_the_pool_of_its_model_and_nowhere_else() {
        let two = "[[pools]]\nname = 'p0'\nmodels = ['a', 'b/c']\n[[pools]]\nname = 'p1'\nmodels = ['d']\n";
        let routes = models(two);
        for (model, pool) in [("a", 0), ("b/c", 0), ("d", 1)] {
            assert_eq!(routes.pool(Some(model)).unwrap(), pool);
        }
        for unknown in ["A", "a ", "", "b", "p0", "d\0"] {
            assert!(matches!(routes.pool(Some(unknown)), Err(Refusal::UnknownModel(_))), "{unknown:?}");
        }
        assert!(matches!(routes.pool(None), Err(Refusal::NoModel)));
        assert_eq!(models(&format!("default_pool = 'p1'\n{two}")).pool(None).unwrap(), 1);
    }

    #[test]
    fn one_pool_takes_all_models_unless_it_names_them() {
        assert_eq!((models("").pool(Some("any")).unwrap(), models("").pool(None).unwrap()), (0, 0));
        let named = models("[[pools]]\nname = 'p0'\nmodels = ['a']\n");
        assert_eq!((named.pool(Some("a")).unwrap(), named.pool(None).unwrap()), (0, 0));
        assert!(matches!(named.pool(Some("b")), Err(Refusal::UnknownModel(_))));
    }

    #[test]
    fn the_model_of_a_form_is_found_among_its_other_fields() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "multipart/form-data; boundary=\"x-1\"".parse().unwrap());
        let part = |head: &str, value: &str| format!("--x-1\r\n{head}\r\n\r\n{value}\r\n");
        let file = part("Content-Disposition: form-data; name=\"file\"; filename=\"model\"", "name=\"model\"");
        let model = part("content-disposition: form-data; name=\"model\"", "whisper/1");
        let of = |body: String| of_form(&headers, format!("{body}--x-1--\r\n").as_bytes());
        assert_eq!(of(format!("{file}{model}")).unwrap().as_deref(), Some("whisper/1"));
        assert_eq!(of(file.clone()).unwrap(), None);
        assert!(of(format!("{model}{file}{model}")).is_err(), "which of the two an engine takes is not known");
        assert_eq!(of_form(&HeaderMap::new(), b"--x-1").unwrap(), None);
        assert_eq!(of_form(&headers, b"--x-1").unwrap(), None);
    }
}
