//! `https://` against a real TLS server on loopback.

use std::net::SocketAddr;

use elasticserve_load::Trust;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A TLS endpoint in front of a plain server, with a certificate for `name` by its own authority.
struct Front {
    addr: SocketAddr,
    /// The authority's certificate.
    pem: Vec<u8>,
    _tasks: JoinSet<()>,
}

impl Front {
    async fn start(behind: SocketAddr, name: &str) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        // Authorities of one name would be taken for each other.
        authority.distinguished_name.push(DnType::CommonName, format!("authority of {name}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
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
        Self { addr, pem: authority.pem().into_bytes(), _tasks: tasks }
    }

    fn config(&self, server: &Server, trust: Trust) -> LoadConfig {
        let url = format!("https://localhost:{}", self.addr.port()).parse().unwrap();
        LoadConfig { url, trust, ..config(server) }
    }
}

#[tokio::test]
async fn answers_come_over_tls_and_every_time_stays_in_order() {
    let server = Server::start(|_| answer()).await;
    let front = Front::start(server.addr, "localhost").await;
    let config = front.config(&server, Trust::Only(front.pem.clone()));
    let (manifest, rows) = ended(&config, &plan((0..6).map(|i| Span::from_millis(30 * i)))).await;
    assert_eq!(states(&rows), [Terminal::Completed; 6]);
    assert!(manifest.target.url.starts_with("https://localhost:"));
    assert!(rows.iter().any(|row| row.reused_connection == Some(true)), "connections are kept");
    for row in &rows {
        let times = [row.send_started, row.connected, row.request_written, row.first_byte, row.head, row.first_content];
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{row:?}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_names_another_host_is_refused_unless_that_is_wished() {
    let server = Server::start(|_| answer()).await;
    let (good, other) =
        (Front::start(server.addr, "localhost").await, Front::start(server.addr, "elsewhere.test").await);
    for (front, trust, word) in [
        (&good, Trust::Public, "UnknownIssuer"),
        (&good, Trust::Only(other.pem.clone()), "UnknownIssuer"),
        (&other, Trust::Only(other.pem.clone()), "not valid for name"),
    ] {
        let (_, rows) = ended(&front.config(&server, trust), &at_once(1)).await;
        let error = rows[0].error.clone().unwrap();
        assert_eq!(rows[0].state, Terminal::Refused);
        assert!(error.contains("TLS") && error.contains(word), "{error}");
        assert!(rows[0].connected.is_none(), "there is no connection before the handshake");
    }
    assert!(server.received().is_empty(), "nothing was sent to somebody else");
    let (manifest, rows) = ended(&other.config(&server, Trust::Anyone), &at_once(1)).await;
    assert_eq!((rows[0].state, manifest.metadata["certificates"].as_str()), (Terminal::Completed, "not verified"));
}

#[tokio::test]
async fn a_server_that_never_shakes_hands_is_a_connect_timeout() {
    let server = Server::start(|_| answer()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let mut config = LoadConfig { url, ..config(&server) };
    config.timeouts.connect = Span::from_millis(100);
    let (manifest, rows) = ended(&config, &at_once(2)).await;
    assert_eq!(states(&rows), [Terminal::TimeoutConnect; 2]);
    assert!(rows.iter().all(|row| row.connected.is_none()));
    assert_eq!(manifest.end.unwrap().connections, 0);
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_refused_with_the_reason() {
    let server = Server::start(|_| answer()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let config = LoadConfig { url, trust: Trust::Anyone, ..config(&server) };
    let mut plain = JoinSet::new();
    plain.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    let (_, rows) = ended(&config, &at_once(1)).await;
    assert_eq!(rows[0].state, Terminal::Refused);
    assert!(rows[0].error.as_deref().unwrap().contains("TLS"), "{:?}", rows[0].error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_trusts_the_public_authorities_unless_its_flags_say_otherwise() {
    let server = Server::start(|_| answer()).await;
    let (good, other) =
        (Front::start(server.addr, "localhost").await, Front::start(server.addr, "elsewhere.test").await);
    let folder = tempfile::tempdir().unwrap();
    let pem = |name: &str, front: &Front| {
        let file = folder.path().join(name);
        std::fs::write(&file, &front.pem).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (trusted, another) = (pem("good.pem", &good), pem("other.pem", &other));
    let plan = ["--request-rate", "200", "--num-prompts", "1", "--random-input-len", "16", "--random-output-len", "2"];
    for (run, front, flags, state) in [
        ("default", &good, &[][..], Terminal::Refused),
        ("cacert", &good, &["--cacert", &trusted], Terminal::Completed),
        ("another", &good, &["--cacert", &another], Terminal::Refused),
        ("insecure", &other, &["--insecure"], Terminal::Completed),
    ] {
        let (url, run) = (format!("https://localhost:{}", front.addr.port()), folder.path().join(run));
        let more = [&plan[..], &["--measure-ceiling", "off"], flags].concat();
        let output = super::command::output(super::command::load_from(&url, &run, &more)).await;
        assert_eq!(states(&rows(&run)), [state], "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
