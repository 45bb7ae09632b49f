//! A bare HTTP client: one connection, no pool, closed when it is dropped.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use elasticserve_core::sse::Parser;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// The task that owns the socket.
    _connection: JoinSet<()>,
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub(super) async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        Self { sender, _connection: tasks }
    }

    pub(super) async fn open(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    pub(super) async fn call(&mut self, request: Request<Full<Bytes>>) -> Answer {
        let (head, body) = self.open(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.call(Request::get(path).header("host", "mock").body(Full::default()).unwrap()).await
    }

    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.call(post(path, body)).await
    }

    pub(super) async fn stream(&mut self, path: &str, body: &Value) -> Stream {
        let response = self.open(post(path, body)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        Stream { body: response.into_body(), parser: Parser::new(), events: VecDeque::new() }
    }
}

/// A request with the id `test-id`.
pub(super) fn post(path: &str, body: &Value) -> Request<Full<Bytes>> {
    let request = Request::post(path).header("host", "mock").header("content-type", "application/json");
    request.header("x-request-id", "test-id").body(Full::from(body.to_string())).unwrap()
}

/// The events of a stream.
pub(super) struct Stream {
    body: Incoming,
    parser: Parser,
    events: VecDeque<String>,
}

impl Stream {
    /// The data of the next event; nothing after a clean end.
    pub(super) async fn next(&mut self) -> hyper::Result<Option<String>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let events = &mut self.events;
            self.parser.feed(&frame?.into_data().unwrap(), |event| {
                events.push_back(String::from_utf8(event.data.to_vec()).unwrap());
            });
        }
    }

    /// All events but the last, which must be `[DONE]`, as JSON.
    pub(super) async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await.unwrap() {
            events.push(event);
        }
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}
