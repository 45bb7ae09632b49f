//! Where spans go, checked.

use http::Uri;
use http::uri::{Parts, PathAndQuery};

use super::raw::RawTrace;
use super::{ConfigError, value};

/// The path of spans on a collector, where the URL has none.
const PATH: &str = "/v1/traces";
const SERVICE: &str = "elasticserve";
/// The part that is traced, unless set.
const SAMPLE: f64 = 1.0;
const PPM: f64 = 1e6;

/// Checked traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Where they are posted to.
    pub endpoint: Uri,
    /// The part of requests that is traced where the caller does not say, in millionths.
    pub sample_ppm: u32,
    /// The name of this service.
    pub service: String,
}

impl Trace {
    pub(super) fn check(raw: RawTrace) -> Result<Option<Self>, ConfigError> {
        let RawTrace { endpoint, sample, service } = raw;
        let Some(endpoint) = endpoint else {
            let alone = [("sample", sample.is_some()), ("service", service.is_some())];
            return match alone.iter().find(|(_, given)| *given) {
                Some((key, _)) => {
                    Err(value(&format!("trace.{key}"), "goes with trace.endpoint only; set that, or leave it out"))
                }
                None => Ok(None),
            };
        };
        let sample = sample.unwrap_or(SAMPLE);
        if !(0.0..=1.0).contains(&sample) {
            return Err(value("trace.sample", &format!("must be from 0 to 1, such as 0.1, not {sample}")));
        }
        let sample_ppm = (sample * PPM).round() as u32;
        Ok(Some(Self { endpoint: url(&endpoint)?, sample_ppm, service: service.unwrap_or_else(|| SERVICE.to_owned()) }))
    }

    pub(super) fn effective(&self) -> RawTrace {
        RawTrace {
            endpoint: Some(self.endpoint.to_string()),
            sample: Some(f64::from(self.sample_ppm) / PPM),
            service: Some(self.service.clone()),
        }
    }
}

fn url(text: &str) -> Result<Uri, ConfigError> {
    let wrong = || {
        let problem = format!(
            "'{text}' is no URL of a collector such as http://127.0.0.1:4318; for https:// run a collector beside the gateway"
        );
        value("trace.endpoint", &problem)
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let http = uri.scheme_str() == Some("http");
    let Some(_) = uri.authority().filter(|a| http && !a.host().is_empty() && !a.as_str().contains('@')) else {
        return Err(wrong());
    };
    let mut parts: Parts = uri.into_parts();
    if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
        parts.path_and_query = Some(PathAndQuery::from_static(PATH));
    }
    Uri::from_parts(parts).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_plain_url_without_a_password_in_it() {
        let of = |endpoint: &str| Trace::check(RawTrace { endpoint: Some(endpoint.to_owned()), ..RawTrace::default() });
        assert_eq!(of("http://127.0.0.1:4318").unwrap().unwrap().endpoint, "http://127.0.0.1:4318/v1/traces");
        for bad in ["http://user:secret@h:4318", "http://user@h", "https://h:4318", "h:4318", "/v1/traces", "http://"] {
            assert!(of(bad).is_err_and(|error| error.to_string().starts_with("trace.endpoint")), "{bad}");
        }
    }
}
