//! What the server says of itself before the run.

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::config::BaseUrl;
use crate::dial::Dialer;
use crate::request::RequestBody;

/// The longest that one question may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);
/// The most bytes of an answer.
const MAX_BODY: usize = 1 << 20;
/// The most models and characters of a version that are kept.
const MAX_MODELS: usize = 64;
const MAX_VERSION: usize = 200;

/// Asks a server.
pub(crate) struct Probe<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) url: &'a BaseUrl,
    pub(crate) headers: HeaderMap,
    /// How long a connection may take.
    pub(crate) connect: Duration,
}

impl Probe<'_> {
    /// Waits until the server lists its models or says that it is healthy. The error says what came last.
    pub(crate) async fn wait_ready(&self, patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        loop {
            let mut last = String::new();
            for path in ["/v1/models", "/health"] {
                match self.get(path).await {
                    Ok((status, _)) if status.is_success() => return Ok(()),
                    Ok((status, _)) => last = format!("{path} answered {status}"),
                    Err(error) => last = error,
                }
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(last);
            }
            sleep(PAUSE).await;
        }
    }

    /// The models that the server lists; none if it does not say.
    pub(crate) async fn models(&self) -> Vec<String> {
        let Some(body) = self.ask("/v1/models").await else { return Vec::new() };
        let Ok(value) = serde_json::from_slice::<Value>(&body) else { return Vec::new() };
        let listed = value["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        listed.iter().filter_map(|m| m["id"].as_str()).take(MAX_MODELS).map(str::to_owned).collect()
    }

    /// The server's version; absent if it does not say.
    pub(crate) async fn version(&self) -> Option<String> {
        let body = self.ask("/version").await?;
        let value = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let text = match value["version"].as_str() {
            Some(version) => version.to_owned(),
            None => String::from_utf8(body).ok()?,
        };
        let text: String = text.trim().chars().take(MAX_VERSION).collect();
        Some(text).filter(|t| !t.is_empty())
    }

    async fn ask(&self, path: &str) -> Option<Vec<u8>> {
        let (status, body) = self.get(path).await.ok()?;
        (status == StatusCode::OK).then_some(body)
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, Vec<u8>), String> {
        self.send(Method::GET, path).await
    }

    /// Sends a request without a body and reads the whole answer.
    pub(crate) async fn send(&self, method: Method, path: &str) -> Result<(StatusCode, Vec<u8>), String> {
        let sent = timeout(PATIENCE, self.send_patiently(method, path)).await;
        sent.unwrap_or_else(|_| Err(format!("{path} did not answer")))
    }

    async fn send_patiently(&self, method: Method, path: &str) -> Result<(StatusCode, Vec<u8>), String> {
        let mut request: Request<RequestBody> = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = self.url.join(path).parse().map_err(|_| format!("the path {path} is not valid"))?;
        request.headers_mut().clone_from(&self.headers);
        let dialled = timeout(self.connect, self.dialer.dial()).await;
        let mut connection = dialled.map_err(|_| "no connection".to_owned())?.map_err(|e| e.to_string())?;
        let response = connection.send(request).await.map_err(|e| e.to_string())?;
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        while let Some(chunk) = connection.read(&mut incoming).await {
            body.extend_from_slice(&chunk.map_err(|e| e.to_string())?);
            if body.len() > MAX_BODY {
                return Err(format!("{path} answered more than {MAX_BODY} bytes"));
            }
        }
        Ok((head.status, body))
    }
}
