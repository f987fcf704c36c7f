//! A small HTTP/1.1 server under TLS: one thread for each connection, one answer for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use fedra_net::certs::{Authority, Days};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A status and a body.
pub type Answer = (u16, Vec<u8>);

/// Answers as long as the test runs.
pub struct Https {
    pub address: String,
}

impl Https {
    /// Serves on a free port of this machine, with a certificate of this authority.
    pub fn start(
        authority: &Authority,
        answer: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static,
    ) -> Self {
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
        let (config, answer) = (Arc::new(config.unwrap()), Arc::new(answer));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
                std::thread::spawn(move || talk(socket, config, &*answer));
            }
        });
        Self { address }
    }
}

/// Answers requests until the connection ends or makes no sense.
fn talk(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    answer: &dyn Fn(&str, &[u8]) -> Answer,
) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let connection = ServerConnection::new(config).ok()?;
    let mut reader = BufReader::new(StreamOwned::new(connection, socket));
    loop {
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if path.is_empty() {
                line.split(' ').nth(1)?.clone_into(&mut path);
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, body) = answer(&path, &body);
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
        let stream = reader.get_mut();
        let written = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        written.and_then(|()| stream.flush()).ok()?;
    }
}
