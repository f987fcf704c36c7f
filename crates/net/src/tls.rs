//! Certificates and keys as rustls takes them, and its refusals as sentences.
//!
//! TLS 1.3 only, both sides show a certificate, and both are checked against one CA file that the
//! parties made for themselves: public authorities have no say in who is a hospital.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};

use crate::certs;
use crate::error::NetError;

/// The files of one party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, with intermediate ones after it.
    pub certificate: PathBuf,
    /// The key to it.
    pub key: PathBuf,
    /// The CA that signed the other side's certificate.
    pub ca: PathBuf,
}

/// How a server is to be spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSecurity {
    /// Mutual TLS: a client is who its certificate says.
    Tls(Identity),
    /// In the clear: a client is who it claims to be.
    Plain,
}

/// How a client speaks to a server.
pub type ClientSecurity = ServerSecurity;

const HTTP2: &[u8] = b"h2";

impl Identity {
    /// The server's side.
    pub(crate) fn server_config(&self) -> Result<Arc<ServerConfig>, NetError> {
        let roots = Arc::new(self.roots()?);
        let unusable = |error: &dyn std::fmt::Display| unusable(&self.ca, error);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| unusable(&error))?;
        let (chain, key) = self.pair()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| self.mismatch(&error))?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Arc::new(config))
    }

    /// The client's side.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, NetError> {
        let (chain, key) = self.pair()?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(&self.ca, &error))?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)
            .map_err(|error| self.mismatch(&error))?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Arc::new(config))
    }

    /// The client names in its own certificate.
    pub fn names(&self) -> Result<Vec<String>, NetError> {
        let (chain, _) = self.pair()?;
        let names = chain.first().map(certs::client_names).unwrap_or_default();
        Ok(names)
    }

    fn roots(&self) -> Result<RootCertStore, NetError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|error| unusable(&self.ca, &error))?;
        }
        Ok(roots)
    }

    fn pair(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), NetError> {
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unusable(&self.key, &format!("found no private key: {error}")))?;
        Ok((certificates(&self.certificate)?, key))
    }

    fn mismatch(&self, error: &rustls::Error) -> NetError {
        let key = self.key.display();
        unusable(&self.certificate, &format!("cannot be used with the key {key}: {error}"))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unusable(file, &error))?;
    if found.is_empty() {
        return Err(unusable(file, &"found no certificate, expected one in PEM"));
    }
    Ok(found)
}

fn unusable(file: &Path, reason: &dyn std::fmt::Display) -> NetError {
    NetError::Certificate { file: file.display().to_string(), reason: reason.to_string() }
}

/// A side of a connection: what it is, and what the other one is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party {
    here: &'static str,
    there: &'static str,
}

impl Party {
    /// Who listens.
    pub(crate) const SERVER: Self = Self { here: "server", there: "client" };
    /// Who dials.
    pub(crate) const CLIENT: Self = Self { here: "client", there: "server" };
}

/// What TLS said about a connection that it did not make or did not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// One side does not take the other's certificate.
    Certificate(String),
    /// Anything else: another protocol, or a byte that was damaged.
    Garbled(String),
}

/// What TLS says about a connection that broke; `None` where it says nothing.
pub(crate) fn failure(error: &io::Error, party: Party) -> Option<TlsFailure> {
    Some(failure_of(error.get_ref()?.downcast_ref()?, party))
}

/// Whether a failure of TLS is about a certificate, and not about bytes on the way.
pub fn is_of_certificate(error: &rustls::Error) -> bool {
    matches!(failure_of(error, Party::CLIENT), TlsFailure::Certificate(_))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "rustls may add to its errors at any time")]
fn failure_of(error: &rustls::Error, party: Party) -> TlsFailure {
    match error {
        rustls::Error::AlertReceived(alert) => of_alert(*alert, party),
        rustls::Error::InvalidCertificate(problem) => {
            TlsFailure::Certificate(certificate_in_words(problem))
        }
        rustls::Error::InvalidMessage(_) => {
            TlsFailure::Garbled("the peer does not use TLS on that port".to_owned())
        }
        rustls::Error::NoCertificatesPresented => {
            TlsFailure::Certificate("the peer sent no client certificate".to_owned())
        }
        other => TlsFailure::Garbled(format!("TLS: {other}")),
    }
}

/// An alert is the other side's word about this side's certificate, or about what it read.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls may add to its alerts at any time")]
fn of_alert(alert: AlertDescription, Party { here, there }: Party) -> TlsFailure {
    let refused = format!("the {there} refused this {here}'s certificate");
    let why = match alert {
        // One alert means both.
        AlertDescription::CertificateExpired => {
            "it has expired or is not valid yet; are both clocks right?".to_owned()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            format!("it is signed by another CA than the {there}'s --tls-ca")
        }
        AlertDescription::CertificateRequired => {
            "a certificate is required, and none was sent".to_owned()
        }
        AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => {
            format!("it is not for a {here}, or it is for another name")
        }
        AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => format!("{alert:?}"),
        _ => return TlsFailure::Garbled(format!("the {there} closed TLS: {alert:?}")),
    };
    TlsFailure::Certificate(format!("{refused}: {why}"))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "rustls may add to its errors at any time")]
fn certificate_in_words(problem: &CertificateError) -> String {
    let shown = "the other side's certificate";
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{shown} has expired")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{shown} is not valid yet: is the clock right?")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{shown} is signed by another CA than the one of --tls-ca")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{shown} is for another name: {problem}")
        }
        other => format!("{shown} cannot be used: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_says_whose_certificate_was_refused_and_by_whom() {
        let told = |alert, here| {
            let error = io::Error::other(rustls::Error::AlertReceived(alert));
            let (TlsFailure::Certificate(words) | TlsFailure::Garbled(words)) =
                failure(&error, here).unwrap();
            words
        };
        let at_server = told(AlertDescription::UnknownCA, Party::SERVER);
        assert!(
            at_server.starts_with("the client refused this server's certificate"),
            "{at_server}"
        );
        assert!(at_server.ends_with("the client's --tls-ca"), "{at_server}");
        let at_client = told(AlertDescription::CertificateExpired, Party::CLIENT);
        assert!(at_client.starts_with("the server refused this client's certificate"));
        assert!(at_client.contains("has expired or is not valid yet"), "{at_client}");
    }

    #[test]
    fn a_damaged_byte_is_nobodys_certificate() {
        let of = |error: rustls::Error| failure(&io::Error::other(error), Party::CLIENT).unwrap();
        for damaged in [
            rustls::Error::DecryptError,
            rustls::Error::AlertReceived(AlertDescription::BadRecordMac),
            rustls::Error::AlertReceived(AlertDescription::IllegalParameter),
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
        ] {
            assert!(matches!(of(damaged.clone()), TlsFailure::Garbled(_)), "{damaged}");
        }
        let refused = rustls::Error::AlertReceived(AlertDescription::CertificateRevoked);
        assert!(matches!(of(refused), TlsFailure::Certificate(_)));
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        assert!(matches!(of(expired), TlsFailure::Certificate(_)));
    }
}
