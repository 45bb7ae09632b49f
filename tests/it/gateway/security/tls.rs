//! TLS of the listener and behind `https://` (S19).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elasticserve_gateway::config::{RawBackend, RawConfig};
use elasticserve_gateway::{Dial, DialFuture, Gateway, Service, Stream, Why};
use http::uri::Authority as Host;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::backend::Backend;
use crate::support::client::{Client, completion};
use crate::support::gateway::{on_sockets, settings};
use crate::support::{soon, until};

/// Who signs certificates, and a folder for their files.
struct Signer {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, in files.
#[derive(Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

impl Signer {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Authorities of one name would be taken for each other.
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, folder: tempfile::tempdir().unwrap() }
    }

    /// The file of the authority itself.
    fn ca(&self) -> PathBuf {
        let path = self.folder.path().join("ca.pem");
        std::fs::write(&path, self.issuer.pem()).unwrap();
        path
    }

    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Files {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let [cert, file] = ["pem", "key"].map(|end| self.folder.path().join(format!("{name}.{end}")));
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&file, key.serialize_pem()).unwrap();
        Files { cert, key: file }
    }

    /// A client that trusts this authority only and speaks certain versions only.
    fn client(&self, versions: &[&'static SupportedProtocolVersion], own: Option<&Files>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        TlsConnector::from(Arc::new(match own {
            None => config.with_no_client_auth(),
            Some(files) => config.with_client_auth_cert(files.chain(), files.private()).unwrap(),
        }))
    }
}

impl Files {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(&self.cert).unwrap().map(Result::unwrap).collect()
    }

    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_file(&self.key).unwrap()
    }

    /// A TLS endpoint with this certificate before a plain server.
    async fn before(&self, behind: SocketAddr) -> (SocketAddr, JoinSet<()>) {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(self.chain(), self.private()).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let mut inside = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        (addr, tasks)
    }
}

/// A gateway that shows a certificate.
async fn secured(files: &Files, change: impl FnOnce(&mut RawConfig)) -> (Gateway, Backend) {
    on_sockets(4, |raw| {
        raw.tls.cert = Some(files.cert.clone());
        raw.tls.key = Some(files.key.clone());
        change(raw);
    })
    .await
}

/// Sends a completion over TLS, and gives what came of it.
async fn ask(addr: SocketAddr, connector: &TlsConnector) -> std::io::Result<u16> {
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = soon("the handshake ends", connector.connect(name, stream)).await?;
    let sending = Client::over(stream).await.send(completion(""));
    let answer = soon("it is answered or closed", sending).await.map_err(std::io::Error::other)?;
    Ok(answer.status.as_u16())
}

#[tokio::test]
async fn a_listener_with_a_certificate_serves_tls_1_2_and_1_3_and_nothing_else() {
    let signer = Signer::new("authority");
    let (gateway, mut backend) = secured(&signer.sign("localhost", |_| {}), |_| {}).await;
    let addr = gateway.data_addr();
    for version in [&version::TLS12, &version::TLS13] {
        let connector = signer.client(&[version], None);
        let (status, ()) = tokio::join!(ask(addr, &connector), async { backend.call().await.stream().finish() });
        assert_eq!(status.unwrap(), 200);
    }
    // Plain HTTP, and the handshakes of TLS 1.0 and 1.1, are answered by an alert at most.
    let hello = |minor: u8| {
        let random = [7; 32];
        let body = [&[3, minor][..], &random, &[0, 0, 4, 0xc0, 0x13, 0, 0x2f, 1, 0]].concat();
        let length = body.len() as u8;
        [&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat()
    };
    for (bytes, alerted) in
        [(hello(1), true), (hello(2), true), (b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n".to_vec(), false)]
    {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = soon("the connection is closed", stream.read_to_end(&mut answer)).await;
        // An alert is a record of type 21 and level 2 (RFC 8446, section 6).
        assert!(answer.first().is_none_or(|kind| *kind == 21), "{answer:?}");
        assert!(!alerted || answer.get(5) == Some(&2), "{answer:?}");
    }
    assert!(!backend.has_request());
    assert_eq!(gateway.service().totals().offers, 2);
    gateway.stop().await;
}

/// S18: with HTTP/2 not spoken, its floods and resets have nobody to go to.
#[tokio::test]
async fn http_2_is_not_offered_to_a_client_that_asks_for_it() {
    let signer = Signer::new("authority");
    let (gateway, mut backend) = secured(&signer.sign("localhost", |_| {}), |_| {}).await;
    let mut roots = RootCertStore::empty();
    roots.add(signer.issuer.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = config.with_no_client_auth();
    let shaken = async |protocols: &[&str]| {
        let mut config = config.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(gateway.data_addr()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        soon("the handshake ends", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    };
    let stream = shaken(&["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(shaken(&["h2"]).await.unwrap_err().to_string().contains("NoApplicationProtocol"));
    // Who speaks it all the same is told what is spoken here, and closed.
    let mut stream = shaken(&["http/1.1"]).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    let _ = soon("the connection is closed", stream.read_to_end(&mut answer)).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    assert!(!backend.has_request());
    gateway.stop().await;
}

#[tokio::test]
async fn handshakes_that_do_not_end_are_closed_in_time_and_keep_nobody_out() {
    let signer = Signer::new("authority");
    let (gateway, mut backend) = secured(&signer.sign("localhost", |_| {}), |raw| {
        raw.tls.handshake = Some("1s".into());
        // The time for a request's head is for those who have shaken hands.
        raw.timeouts.header = Some("10m".into());
    })
    .await;
    let addr = gateway.data_addr();
    let mut slow = JoinSet::new();
    for n in 0..200 {
        slow.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let began = Instant::now();
            // Half of them say nothing; half of them begin and go on, a byte at a time.
            let (mut reading, mut writing) = stream.split();
            let drip = async {
                if n % 2 == 0 {
                    return std::future::pending().await;
                }
                for byte in [0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3].into_iter().chain(std::iter::repeat(0)) {
                    if writing.write_all(&[byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            let mut rest = Vec::new();
            tokio::select! {
                _ = reading.read_to_end(&mut rest) => {}
                () = drip => {}
            }
            began.elapsed()
        });
    }
    until("many are connected", || gateway.service().connections() >= 50).await;
    let connector = signer.client(&[&version::TLS13], None);
    let (status, ()) = tokio::join!(ask(addr, &connector), async { backend.call().await.stream().finish() });
    assert_eq!(status.unwrap(), 200);
    let mut longest = Duration::ZERO;
    while let Some(took) = soon("a slow handshake is closed", slow.join_next()).await {
        longest = longest.max(took.unwrap());
    }
    // A second, and what a busy machine adds.
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&longest), "{longest:?}");
    gateway.stop().await;
}

/// Connects as a gateway does, but without its probes, which would find a backend down before a request does.
struct Tcp;

impl Dial for Tcp {
    fn dial(&self, host: &Host) -> DialFuture {
        let port = host.port_u16().unwrap();
        Box::pin(async move { Ok(Box::new(TcpStream::connect(("127.0.0.1", port)).await?) as Box<dyn Stream>) })
    }
}

/// What a client is told by a gateway before a backend.
async fn through(url: String, ca_file: Option<PathBuf>) -> (u16, serde_json::Value) {
    let raw = RawConfig {
        backends: Some(vec![RawBackend { url, ca_file, ..RawBackend::default() }]),
        ..settings("unused", 1)
    };
    let service = Service::new(raw.check().unwrap(), Arc::new(Tcp));
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let mut serving = JoinSet::new();
    serving.spawn(async move { service.serve(theirs).await });
    let mut answer = Client::over(ours).await.send(completion("")).await.unwrap();
    let (body, _) = answer.rest().await;
    (answer.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn a_backend_that_does_not_prove_who_it_is_gets_no_request_in_any_form() {
    let (mut backend, plain) = Backend::on_tcp().await;
    let (right, other) = (Signer::new("right"), Signer::new("other"));
    let (good, _a) = right.sign("localhost", |_| {}).before(plain).await;
    let (named, _b) = right.sign("elsewhere", |_| {}).before(plain).await;
    let (forged, _c) = other.sign("localhost", |_| {}).before(plain).await;
    let old = right.sign("old.localhost", |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let (over, _d) = old.before(plain).await;
    let url = |scheme: &str, host: &str, port: u16| format!("{scheme}://{host}:{port}");
    let cases = [
        (url("https", "localhost", named.port()), Some(right.ca()), "not valid for name"),
        (url("https", "localhost", forged.port()), Some(right.ca()), "UnknownIssuer"),
        (url("https", "localhost", good.port()), None, "UnknownIssuer"),
        (url("https", "127.0.0.1", good.port()), Some(right.ca()), "not valid for name"),
        (url("https", "old.localhost", over.port()), Some(right.ca()), "expired"),
        (url("https", "localhost", plain.port()), Some(right.ca()), "TLS handshake"),
    ];
    for _ in 0..5 {
        for (url, ca_file, says) in &cases {
            let (status, body) = through(url.clone(), ca_file.clone()).await;
            let error = &body["error"];
            let message = error["message"].as_str().unwrap();
            assert_eq!((status, &error["code"]), (502, &"backend_failed".into()), "{url}: {body}");
            assert!(message.contains("TLS handshake") && message.contains(says), "{url} {says}: {message}");
        }
    }
    assert!(!backend.has_request());
    let url = url("https", "localhost", good.port());
    let (answer, ()) = tokio::join!(through(url, Some(right.ca())), async { backend.call().await.json(r#"{"a":1}"#) });
    assert_eq!(answer, (200, serde_json::json!({"a": 1})));
}

#[tokio::test]
async fn where_clients_need_certificates_only_those_of_the_right_authority_are_served() {
    let (signer, other) = (Signer::new("authority"), Signer::new("other"));
    let ca = signer.ca();
    let (gateway, mut backend) = secured(&signer.sign("localhost", |_| {}), |raw| raw.tls.client_ca = Some(ca)).await;
    let addr = gateway.data_addr();
    let versions = [&version::TLS12, &version::TLS13];
    for version in versions {
        assert!(ask(addr, &signer.client(&[version], None)).await.is_err());
        assert!(ask(addr, &signer.client(&[version], Some(&other.sign("client", |_| {})))).await.is_err());
    }
    assert!(!backend.has_request());
    let known = signer.client(&versions, Some(&signer.sign("client", |_| {})));
    let (status, ()) = tokio::join!(ask(addr, &known), async { backend.call().await.stream().finish() });
    assert_eq!(status.unwrap(), 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_the_reload_on_and_cuts_nobody() {
    let (first, second) = (Signer::new("first"), Signer::new("second"));
    let files = first.sign("localhost", |_| {});
    let (mut backend, behind) = Backend::on_tcp().await;
    let mut raw = settings(&behind.to_string(), 4);
    raw.tls.cert = Some(files.cert.clone());
    raw.tls.key = Some(files.key.clone());
    let config = raw.clone().check().unwrap();
    let gateway = Gateway::start_from(config, Arc::new(move || raw.clone().check())).await.unwrap();
    let addr = gateway.data_addr();
    let versions = [&version::TLS12, &version::TLS13];
    let (old, new) = (first.client(&versions, None), second.client(&versions, None));
    // A stream that goes on all the while.
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = old.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let client = Client::over(stream).await;
    let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    let mut answer = answer.unwrap();
    let renewed = second.sign("localhost", |_| {});
    std::fs::copy(&renewed.cert, &files.cert).unwrap();
    // A certificate without its key is refused, and the one before stays.
    assert!(gateway.reload(Why::Signal).unwrap_err().to_string().contains("does not go with"));
    assert!(ask(addr, &new).await.is_err());
    std::fs::copy(&renewed.key, &files.key).unwrap();
    gateway.reload(Why::Signal).unwrap();
    assert!(ask(addr, &old).await.is_err());
    let (status, ()) = tokio::join!(ask(addr, &new), async { backend.call().await.stream().finish() });
    assert_eq!(status.unwrap(), 200);
    responding.event("1");
    responding.finish();
    assert_eq!(answer.rest().await, (b"data: 1\n\n".to_vec(), true));
    gateway.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_refused_by_their_key_before_anything_is_opened() {
    let signer = Signer::new("authority");
    let (files, others) = (signer.sign("localhost", |_| {}), signer.sign("other", |_| {}));
    let junk = signer.folder.path().join("junk");
    std::fs::write(&junk, "junk").unwrap();
    let check = |change: &dyn Fn(&mut RawConfig)| {
        let mut raw = settings("h:1", 1);
        raw.tls.cert = Some(files.cert.clone());
        raw.tls.key = Some(files.key.clone());
        change(&mut raw);
        raw.check().map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(check(&|_| {}), Ok(()));
    let missing = PathBuf::from("/no/such/file");
    for (key, says, change) in [
        (
            "tls.cert",
            "/no/such/file",
            &(|raw: &mut RawConfig| raw.tls.cert = Some(missing.clone())) as &dyn Fn(&mut RawConfig),
        ),
        ("tls.cert", "no certificate", &|raw| raw.tls.cert = Some(junk.clone())),
        ("tls.cert", "is needed", &|raw| raw.tls.cert = None),
        ("tls.key", "is needed", &|raw| raw.tls.key = None),
        ("tls.key", "not a private key", &|raw| raw.tls.key = Some(junk.clone())),
        ("tls.key", "does not go with", &|raw| raw.tls.key = Some(others.key.clone())),
        ("tls.client_ca", "no certificate", &|raw| raw.tls.client_ca = Some(junk.clone())),
        ("tls.handshake", "more than 0", &|raw| raw.tls.handshake = Some("0s".into())),
        ("backends[0].ca_file", "https://", &|raw| raw.backends.as_mut().unwrap()[0].ca_file = Some(junk.clone())),
    ] {
        let error = check(change).unwrap_err();
        assert!(error.starts_with(key) && error.contains(says), "{key} {says}: {error}");
    }
}
