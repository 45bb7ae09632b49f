//! TLS: the certificate of the listener, and whom to trust behind `https://`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elasticserve_core::time::Span;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The only protocol inside.
const ALPN: &[u8] = b"http/1.1";

/// What the listener shows, read from its files. Equal only if the files held the same.
#[derive(Clone)]
pub struct ListenerTls {
    /// The certificate and those between it and its root, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Whose certificates clients need; `None` for none at all.
    pub client_ca: Option<PathBuf>,
    /// How long a handshake may take.
    pub handshake: Span,
    read: [u8; 32],
    config: Arc<ServerConfig>,
}

/// Why the files of a listener cannot be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    /// The key of the section.
    pub(crate) key: &'static str,
    /// What is wrong.
    pub(crate) problem: String,
}

impl ListenerTls {
    /// Reads the files.
    pub(crate) fn read(
        cert: PathBuf,
        key: PathBuf,
        client_ca: Option<PathBuf>,
        handshake: Span,
    ) -> Result<Self, Unusable> {
        let wrong = |key, problem| Unusable { key, problem };
        let cert_pem = text(&cert).map_err(|e| wrong("cert", e))?;
        let key_pem = text(&key).map_err(|e| wrong("key", e))?;
        let ca_pem = client_ca.as_deref().map(text).transpose().map_err(|e| wrong("client_ca", e))?;
        let chain = certificates(&cert_pem).map_err(|e| wrong("cert", format!("{}: {e}", cert.display())))?;
        let private = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|e| wrong("key", format!("{}: not a private key in PEM: {e}", key.display())))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("cert", e.to_string()))?;
        let builder = match &ca_pem {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = roots(pem).map_err(|e| wrong("client_ca", e))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| wrong("client_ca", e.to_string()))?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, private)
            .map_err(|e| wrong("key", format!("does not go with the certificate of tls.cert: {e}")))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        let read = hash([&cert_pem[..], &key_pem, ca_pem.as_deref().unwrap_or_default()]);
        Ok(Self { cert, key, client_ca, handshake, read, config: Arc::new(config) })
    }

    /// Shakes hands with a client, within the time for it.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<server::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shaking = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream);
        match tokio::time::timeout(self.handshake.to_std(), shaking).await {
            Ok(shaken) => shaken,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no handshake within {}", self.handshake))),
        }
    }
}

impl PartialEq for ListenerTls {
    fn eq(&self, other: &Self) -> bool {
        let parts = |t: &Self| (t.cert.clone(), t.key.clone(), t.client_ca.clone(), t.handshake, t.read);
        parts(self) == parts(other)
    }
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTls")
            .field("cert", &self.cert)
            .field("client_ca", &self.client_ca)
            .finish_non_exhaustive()
    }
}

/// How a backend proves who it is.
#[derive(Clone)]
pub struct BackendTls {
    /// The only roots that are trusted; `None` for the public ones.
    pub ca_file: Option<PathBuf>,
    read: [u8; 32],
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl BackendTls {
    /// Reads the file of roots.
    pub(crate) fn read(host: &str, ca_file: Option<PathBuf>) -> Result<Self, Unusable> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| Unusable {
            key: "url",
            problem: format!("'{host}' is not a name that a certificate can have"),
        })?;
        let wrong = |problem| Unusable { key: "ca_file", problem };
        let pem = ca_file.as_deref().map(text).transpose().map_err(wrong)?;
        let roots = match &pem {
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
            Some(pem) => roots(pem).map_err(wrong)?,
        };
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| wrong(e.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { ca_file, read: hash([pem.as_deref().unwrap_or_default()]), name, config: Arc::new(config) })
    }

    /// Shakes hands over a connection. There is no way on without it.
    pub(crate) async fn connect<S>(&self, stream: S) -> io::Result<client::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shaken = TlsConnector::from(Arc::clone(&self.config)).connect(self.name.clone(), stream).await;
        shaken.map_err(|error| io::Error::new(error.kind(), format!("TLS handshake: {error}")))
    }
}

impl PartialEq for BackendTls {
    fn eq(&self, other: &Self) -> bool {
        self.ca_file == other.ca_file && self.read == other.read && self.name == other.name
    }
}

impl Eq for BackendTls {}

impl fmt::Debug for BackendTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendTls").field("name", &self.name).field("ca_file", &self.ca_file).finish_non_exhaustive()
    }
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("it holds no certificate in PEM".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("not a certificate in PEM: {error}")),
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("a certificate that cannot be trusted: {error}"))?;
    }
    Ok(roots)
}

fn hash<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
