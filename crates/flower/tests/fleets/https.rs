//! A small HTTP/1.1 server under TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use fedra_flower::{Apps, Endpoint, FlowerError, Task};
use fedra_net::certs::{Authority, Days};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::listener::listen;
use crate::world::Told;

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

#[test]
fn a_refused_certificate_is_told_from_a_port_without_tls() {
    let place = tempfile::tempdir().unwrap();
    let [ours, others] = [(); 2].map(|()| Authority::generate().unwrap());
    let refusal = |address: &str, authority: &Authority| {
        let ca = place.path().join("ca.pem");
        std::fs::write(&ca, authority.signed(Days(1)).unwrap().certificate).unwrap();
        let endpoint = Endpoint::new(&format!("https://{address}"), Some(&ca)).unwrap();
        Task::acquire(&endpoint, (Apps::Any, place.path()), &Told::default()).err().unwrap()
    };
    let address = listen_with(&ours, |_, _| (404, Vec::new()));
    let error = refusal(&address, &ours);
    assert!(matches!(error, FlowerError::Undescribed { .. }), "{error}");
    let error = refusal(&address, &others);
    assert!(matches!(error, FlowerError::Distrusted { .. }), "{error}");
    assert!(error.to_string().contains("hint: --ca has to be the certificate"), "{error}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let plain = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = refusal(&address, &ours);
    assert!(matches!(error, FlowerError::Garbled { .. }), "{error}");
    assert!(error.to_string().contains("is reached with http://"), "{error}");
    plain.join().unwrap();
}
