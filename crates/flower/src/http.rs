//! HTTP/1.1 with one SuperLink, for code that blocks.
//!
//! `ureq` speaks it. Here is what a SuperLink may cost, in time and in bytes, and what a failure means to whoever
//! asked.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fedra_net::{NetError, is_of_certificate, is_out_of_descriptors};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::http::header::{CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use ureq::http::{Request, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Error, SendBody};

use crate::error::FlowerError;

/// What is said of a connection that has ended before the reply.
pub(crate) const ENDED: &str = "it closed the connection";
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// A server may end a connection that was idle for five seconds: one that was idle for less is used.
const IDLE: Duration = Duration::from_secs(3);
/// Most bytes of a reply's head.
const MOST_HEAD: usize = 64 << 10;
/// Most bytes of a reply's body: an object has 5 MiB at most, and a little around it.
const MOST_BODY: u64 = 16 << 20;

/// Where a SuperLink is, and how it shows who it is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Host and port.
    pub authority: String,
    tls: Option<TlsConfig>,
}

impl Endpoint {
    /// Reads an address such as `http://127.0.0.1:8000` or `https://link.example:8000`; the latter needs
    /// the certificate of the CA that signed the SuperLink's.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, FlowerError> {
        let wrong = |expected| FlowerError::Address { found: url.to_owned(), expected };
        let address = || wrong("an address such as https://link.example:8000");
        let uri: Uri = url.parse().map_err(|_| address())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(address());
        };
        let has_more = url.trim_end_matches('/') != format!("{scheme}://{authority}");
        let is_place = !authority.host().is_empty() && authority.port_u16().is_some();
        if has_more || !is_place || authority.as_str().contains('@') {
            return Err(address());
        }
        let tls = match (scheme, ca) {
            ("https", Some(ca)) => Some(tls_config(ca)?),
            ("http", None) => None,
            ("https", None) => {
                return Err(wrong(
                    "--ca with the certificate of the CA that signed the SuperLink's",
                ));
            }
            ("http", Some(_)) => {
                return Err(wrong("an address that begins with https:// with --ca"));
            }
            _ => return Err(address()),
        };
        Ok(Self { authority: authority.to_string(), tls })
    }

    /// Whether what is said to it is encrypted.
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn unreachable(&self, reason: &dyn std::fmt::Display) -> FlowerError {
        FlowerError::Unreachable { superlink: self.authority.clone(), reason: reason.to_string() }
    }

    fn broken(&self, error: &rustls::Error) -> FlowerError {
        let (superlink, reason) = (self.authority.clone(), format!("TLS: {error}{}", hint(error)));
        if is_of_certificate(error) {
            FlowerError::Distrusted { superlink, reason }
        } else {
            FlowerError::Garbled { superlink, reason }
        }
    }
}

/// What else may be meant by an error of TLS.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others say enough")]
const fn hint(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidMessage(_) => {
            "\nhint: a SuperLink without TLS is reached with http://"
        }
        rustls::Error::InvalidCertificate(_) => {
            "\nhint: --ca has to be the certificate of the CA that signed the SuperLink's"
        }
        _ => "",
    }
}

fn tls_config(ca: &Path) -> Result<TlsConfig, FlowerError> {
    let unusable = |reason: &dyn std::fmt::Display| {
        FlowerError::file(format_args!("--ca {}", ca.display()), reason)
    };
    let read = CertificateDer::pem_file_iter(ca).and_then(Iterator::collect);
    let found: Vec<CertificateDer<'static>> = read.map_err(|error| unusable(&error))?;
    if found.is_empty() {
        return Err(unusable(&"found no certificate, expected one in PEM"));
    }
    for certificate in &found {
        RootCertStore::empty().add(certificate.clone()).map_err(|error| unusable(&error))?;
    }
    let found: Vec<Certificate<'static>> =
        found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&found))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

/// A connection that is made when it is needed.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) endpoint: Endpoint,
    timeout: Duration,
    agent: Agent,
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) body: &'a [&'a [u8]],
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) date: Option<SystemTime>,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .tls_config(endpoint.tls.clone().unwrap_or_default())
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .max_response_header_size(MOST_HEAD)
            .max_idle_age(IDLE)
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(timeout))
            .timeout_per_write(Some(timeout));
        let agent = config.build().new_agent();
        Self { endpoint, timeout, agent }
    }

    /// Asks once. An error says nothing about whether the server heard it.
    pub(crate) fn ask(&self, ask: &Ask<'_>) -> Result<Reply, FlowerError> {
        self.exchange(ask).map_err(|error| self.in_words(error))
    }

    fn exchange(&self, ask: &Ask<'_>) -> Result<Reply, Error> {
        let scheme = if self.endpoint.is_encrypted() { "https" } else { "http" };
        let uri = format!("{scheme}://{}{}", self.endpoint.authority, ask.path);
        let mut request = Request::builder().method(ask.method).uri(uri);
        for (name, value) in ask.headers {
            request = request.header(*name, value);
        }
        let mut reply = if ask.body.is_empty() {
            self.agent.run(request.body(())?)?
        } else {
            let length: usize = ask.body.iter().map(|piece| piece.len()).sum();
            let mut pieces: Box<dyn Read + '_> = Box::new(io::empty());
            for piece in ask.body {
                pieces = Box::new(pieces.chain(*piece));
            }
            let body = SendBody::from_reader(&mut pieces);
            self.agent.run(request.header(CONTENT_LENGTH, length).body(body)?)?
        };
        let headers = reply.headers();
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
            // It would be over where the connection is, and nobody could tell a part from the whole.
            return Err(io::Error::other("found a reply without a length").into());
        }
        // At once: a vector that grows as bytes come is twice as large in the end.
        let length = reply.body().content_length().unwrap_or(0).min(MOST_BODY);
        let mut body = Vec::with_capacity(length as usize);
        reply.body_mut().with_config().limit(MOST_BODY).reader().read_to_end(&mut body)?;
        Ok(Reply { status: reply.status().as_u16(), date, body })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others say enough")]
    fn in_words(&self, error: Error) -> FlowerError {
        let silent = |limit: Duration| {
            self.endpoint.unreachable(&format!("it did not answer within {} s", limit.as_secs()))
        };
        match error {
            Error::Timeout(ureq::Timeout::Connect) => silent(CONNECT),
            Error::Timeout(_) => silent(self.timeout),
            Error::Rustls(error) => self.endpoint.broken(&error),
            Error::Io(source) if is_out_of_descriptors(&source) => {
                let doing = format!("dialling {}", self.endpoint.authority);
                NetError::System { doing, source }.into()
            }
            Error::Io(error) => {
                let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
                match (of_tls, error.kind()) {
                    (Some(error), _) => self.endpoint.broken(error),
                    (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                        self.endpoint.unreachable(&ENDED)
                    }
                    (None, _) => self.endpoint.unreachable(&error),
                }
            }
            other => self.endpoint.unreachable(&other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// What is made of these bytes in the place of a reply.
    fn told(bytes: &[u8]) -> Result<Reply, FlowerError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut asked = [0; 4096];
                assert!(socket.read(&mut asked).unwrap() > 0);
                for piece in bytes.chunks(bytes.len() / 50 + 1) {
                    // Whoever has read enough goes.
                    let _sent = socket.write_all(piece).and_then(|()| socket.flush());
                }
            });
            let http = Http::new(Endpoint::new(&url, None).unwrap(), Duration::from_secs(5));
            http.ask(&Ask { method: "GET", path: "/", headers: &[], body: &[] })
        })
    }

    #[test]
    fn a_reply_is_read_however_it_is_cut() {
        let text = b"HTTP/1.1 401 Unauthorized\r\nDate: Mon, 16 Nov 2026 13:06:41 GMT\r\n\
                     Content-Length: 5\r\nconnection: close\r\n\r\nhello";
        let date = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_834_401));
        let body = b"hello".to_vec();
        assert_eq!(told(text).unwrap(), Reply { status: 401, date, body: body.clone() });
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                        2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert_eq!(told(chunked).unwrap(), Reply { status: 200, date: None, body });
    }

    #[test]
    fn a_hostile_reply_is_a_lost_connection() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"[..], ENDED),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", ENDED),
            (b"HTTP/1.1 200 OK\r\n\r\nany length", "without a length"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", ENDED),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "protocol"),
            (b"HTTP/1.1 2\xff0\r\n\r\n", "protocol"),
        ] {
            let error = told(bytes).unwrap_err();
            assert!(matches!(error, FlowerError::Unreachable { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let long = [&b"HTTP/1.1 200 OK\r\nx: "[..], &vec![b'x'; 200 << 10]].concat();
        assert!(told(&long).is_err());
        let giant = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
        let giant = [&giant[..], &vec![b'x'; MOST_BODY as usize + 1]].concat();
        assert!(told(&giant).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn an_address_says_how_it_is_spoken_to() {
        assert_eq!(
            Endpoint::new("http://127.0.0.1:8000/", None).unwrap().authority,
            "127.0.0.1:8000"
        );
        assert_eq!(Endpoint::new("http://[::1]:8000", None).unwrap().authority, "[::1]:8000");
        let told = |url: &str| Endpoint::new(url, None).unwrap_err().to_string();
        assert!(told("https://link:8000").contains("expected --ca"));
        let absent = Endpoint::new("https://link:8000", Some(Path::new("no/such.pem")));
        assert!(absent.unwrap_err().to_string().starts_with("--ca no/such.pem: "));
        for wrong in [
            "link:8000",
            "http://link",
            "ftp://link:1",
            "http://:1",
            "http://a/b:1",
            "http://a:1/b",
            "http://a@b:1",
            "http://a:1/?b",
            "http://a:1#b",
            "http://a:70000",
            "http://a b:1",
        ] {
            assert!(told(wrong).contains("expected an address such as"), "{wrong}");
        }
    }
}
