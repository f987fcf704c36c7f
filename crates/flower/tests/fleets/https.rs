//! A small HTTP/1.1 server under TLS.

use std::sync::Arc;

use fedra_net::certs::{Authority, Days};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::listener::listen;

pub use crate::listener::Answer;

/// Answers on a free port of this machine, with a certificate of this authority. Where it is.
pub fn listen_with(
    authority: &Authority,
    answer: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static,
) -> String {
    let signed = authority.server(&["127.0.0.1".to_owned()], Days(1)).unwrap();
    let chain = CertificateDer::pem_slice_iter(signed.certificate.as_bytes());
    let chain: Vec<CertificateDer<'static>> = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let config = Arc::new(config.unwrap());
    let stream = move |socket| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        StreamOwned::new(connection, socket)
    };
    listen(stream, answer)
}
