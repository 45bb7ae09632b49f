//! A client that sends one request over a connection of its own and sees the answer piece by piece.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use elasticserve_gateway::Stream;

/// A connection. Dropping it closes the socket.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

/// A connection that carries one request after the other. Dropping it closes the socket.
pub(crate) struct Lasting {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

/// An answer under way. Dropping it closes the socket.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    _client: Client,
}

/// A completion request.
pub(crate) fn completion(extra: &str) -> Request<Full<Bytes>> {
    post("/v1/completions", &format!(r#"{{"model":"m","prompt":[1,2,3],"max_tokens":8,"stream":true{extra}}}"#))
}

pub(crate) fn post(path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post(path).header("host", "gateway").header("content-type", "application/json");
    request.body(Full::from(body.to_owned())).unwrap()
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "gateway").body(Full::default()).unwrap()
}

impl Client {
    pub(crate) async fn over(stream: impl Stream + 'static) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        Self { sender, _driver: driver }
    }

    pub(crate) async fn tcp(addr: std::net::SocketAddr) -> Self {
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream).await
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(mut self, request: Request<Full<Bytes>>) -> hyper::Result<Answer> {
        let response = self.sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        Ok(Answer { status: parts.status, headers: parts.headers, body, _client: self })
    }
}

impl Lasting {
    pub(crate) async fn tcp(addr: std::net::SocketAddr) -> Self {
        let Client { sender, _driver } = Client::tcp(addr).await;
        Self { sender, _driver }
    }

    /// Whether the other side has not closed it, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request once the answer before has been read, and waits for the head of its answer.
    pub(crate) async fn ask(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}

impl Answer {
    /// The next piece of the body; `None` at its end, an error if it broke off.
    pub(crate) async fn chunk(&mut self) -> Option<hyper::Result<Bytes>> {
        let frame = super::soon("a piece of the answer arrives", self.body.frame()).await?;
        Some(frame.map(|f| f.into_data().unwrap_or_default()))
    }

    /// All of the body so far as it is whole; whether it ended properly.
    pub(crate) async fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await {
            match chunk {
                Ok(data) => all.extend_from_slice(&data),
                Err(_) => return (all, false),
            }
        }
        (all, true)
    }

    /// The whole body as JSON.
    pub(crate) async fn json(&mut self) -> serde_json::Value {
        serde_json::from_slice(&self.rest().await.0).unwrap()
    }
}
