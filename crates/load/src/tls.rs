//! `https://`: whom to trust, and the handshake.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::{BaseUrl, Trust};

/// What makes a connection to an `https://` server.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// What a URL needs; nothing for `http://`.
    ///
    /// # Errors
    /// A text that says what is wrong with the certificates or the host's name.
    pub(crate) fn new(url: &BaseUrl, trust: &Trust) -> Result<Option<Self>, String> {
        if !url.is_secure() {
            return Ok(None);
        }
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| format!("'{}' is not a name that a certificate can have", url.host()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let mut config = match trust {
            Trust::Anyone => {
                let verifier = Arc::new(NoVerifier(provider));
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
            Trust::Public => builder.with_root_certificates(public()).with_no_client_auth(),
            Trust::Only(pem) => builder.with_root_certificates(only(pem)?).with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Self { connector: TlsConnector::from(Arc::new(config)), name }))
    }

    /// Shakes hands over a connection.
    ///
    /// # Errors
    /// An [`io::Error`] whose text says that it was the handshake that failed.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let shaken = self.connector.connect(self.name.clone(), stream).await;
        shaken.map_err(|error| io::Error::new(error.kind(), format!("TLS handshake: {error}")))
    }
}

fn public() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

fn only(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("not a certificate in PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate that cannot be trusted: {error}"))?;
    }
    if roots.is_empty() {
        return Err("it holds no certificate in PEM".to_owned());
    }
    Ok(roots)
}

/// Takes every certificate; the signatures of the handshake are still checked.
#[derive(Debug)]
struct NoVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_cannot_be_used_are_refused_with_the_reason() {
        let url: BaseUrl = "https://h".parse().unwrap();
        let refuse = |pem: &str| Tls::new(&url, &Trust::Only(pem.into())).err().unwrap();
        assert!(refuse("").contains("no certificate"));
        assert!(refuse("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").contains("PEM"));
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(refuse(empty).contains("cannot be trusted"));
    }

    #[test]
    fn plain_http_needs_no_trust() {
        assert!(Tls::new(&"http://h".parse().unwrap(), &Trust::Only(Vec::new())).unwrap().is_none());
        assert!(Tls::new(&"https://h".parse().unwrap(), &Trust::Public).unwrap().is_some());
    }
}
