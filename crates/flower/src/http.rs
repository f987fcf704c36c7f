//! HTTP/1.1 with one server, for code that blocks.
//!
//! A SuperLink is asked one thing at a time with a body of known length, and answers in the same way. So
//! this is a socket, a few headers and limits, without a pool or a router; a declared length is an
//! allocation within those limits only.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_net::{NetError, is_out_of_descriptors};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::clock::http_date;
use crate::error::FlowerError;

/// What is said of a connection that is over before the reply.
pub(crate) const ENDED: &str = "it ended the connection";
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// A server may end a connection that was idle for five seconds: one that was idle for less is used.
const IDLE: Duration = Duration::from_secs(3);
/// Most bytes of a reply's head.
const MOST_HEAD: usize = 64 << 10;
/// Most bytes of a reply's body: an object has 5 MiB at most, and a little around it.
const MOST_BODY: usize = 16 << 20;

/// Where a SuperLink is, and how it shows who it is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Endpoint {
    /// Reads an address such as `http://127.0.0.1:8000` or `https://link.example:8000`; the latter needs
    /// the certificate of the CA that signed the SuperLink's.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, FlowerError> {
        let expected = "an address such as https://link.example:8000";
        let wrong = || FlowerError::Address { found: url.to_owned(), expected };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let place = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.is_empty() || bare.contains(['/', '@', '?', '#', ' ', '\r', '\n']) {
            return Err(wrong());
        }
        let tls = match (scheme, ca) {
            ("https", Some(ca)) => {
                let name = ServerName::try_from(bare.to_owned()).map_err(|_| wrong())?;
                Some((client_config(ca)?, name))
            }
            ("http", None) => None,
            ("https", None) => {
                let expected = "--ca with the certificate of the CA that signed the SuperLink's";
                return Err(FlowerError::Address { found: url.to_owned(), expected });
            }
            ("http", Some(_)) => {
                let expected = "an address that begins with https:// beside --ca";
                return Err(FlowerError::Address { found: url.to_owned(), expected });
            }
            _ => return Err(wrong()),
        };
        Ok(Self { host: bare.to_owned(), port, tls })
    }

    /// Whether what is said to it is encrypted.
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The host and the port.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn connect(&self, timeout: Duration) -> Result<Socket, FlowerError> {
        let unreachable = |error: &dyn std::fmt::Display| self.unreachable(error);
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| unreachable(&error))?;
        let mut last = io::Error::other("its name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(socket) => {
                    let ready = socket
                        .set_nodelay(true)
                        .and_then(|()| socket.set_read_timeout(Some(timeout)))
                        .and_then(|()| socket.set_write_timeout(Some(timeout)));
                    ready.map_err(|error| unreachable(&error))?;
                    return self.secure(socket);
                }
                Err(source) if is_out_of_descriptors(&source) => {
                    let doing = format!("dialling {address}");
                    return Err(NetError::System { doing, source }.into());
                }
                Err(error) => last = error,
            }
        }
        Err(unreachable(&last))
    }

    fn secure(&self, mut socket: TcpStream) -> Result<Socket, FlowerError> {
        let Some((config, name)) = &self.tls else { return Ok(Socket::Plain(socket)) };
        let superlink = || self.authority();
        let garbled = |reason: String| FlowerError::Garbled { superlink: superlink(), reason };
        let mut connection = ClientConnection::new(Arc::clone(config), name.clone())
            .map_err(|error| garbled(error.to_string()))?;
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut socket) {
                let of_tls =
                    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                return Err(match of_tls {
                    Some(error) => {
                        let reason = format!("TLS: {error}{}", hint(error));
                        if is_of_certificate(error) {
                            FlowerError::Distrusted { superlink: superlink(), reason }
                        } else {
                            garbled(reason)
                        }
                    }
                    None => self.unreachable(&error),
                });
            }
        }
        Ok(Socket::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    pub(crate) fn unreachable(&self, reason: &dyn std::fmt::Display) -> FlowerError {
        FlowerError::Unreachable { superlink: self.authority(), reason: reason.to_string() }
    }
}

/// Whether TLS failed over a certificate: the SuperLink's, which this side looked at, or its word about ours.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are about bytes")]
fn is_of_certificate(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(_) => true,
        rustls::Error::AlertReceived(alert) => [
            AlertDescription::BadCertificate,
            AlertDescription::UnsupportedCertificate,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateUnknown,
            AlertDescription::UnknownCA,
            AlertDescription::AccessDenied,
            AlertDescription::CertificateRequired,
        ]
        .contains(alert),
        _ => false,
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

fn client_config(ca: &Path) -> Result<Arc<ClientConfig>, FlowerError> {
    let unusable =
        |reason: String| FlowerError::File { file: format!("--ca {}", ca.display()), reason };
    let read = CertificateDer::pem_file_iter(ca).and_then(Iterator::collect);
    let found: Vec<CertificateDer<'static>> = read.map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("found no certificate, expected one in PEM".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

enum Socket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(socket) => socket.flush(),
        }
    }
}

/// A connection that is made when it is needed.
pub(crate) struct Http {
    endpoint: Endpoint,
    timeout: Duration,
    open: Option<(Socket, Instant)>,
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
    /// Seconds since 1970.
    pub(crate) date: Option<u64>,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) const fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        Self { endpoint, timeout, open: None }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks once. An error says nothing about whether the server heard it.
    pub(crate) fn ask(&mut self, ask: &Ask<'_>) -> Result<Reply, FlowerError> {
        let kept = self.open.take().filter(|(_, since)| since.elapsed() < IDLE);
        let mut socket = match kept {
            Some((socket, _)) => socket,
            None => self.endpoint.connect(self.timeout)?,
        };
        let lines: Vec<String> =
            ask.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = lines.concat();
        let (host, length) =
            (self.endpoint.authority(), ask.body.iter().map(|piece| piece.len()).sum::<usize>());
        let head = format!(
            "{} {} HTTP/1.1\r\n{headers}host: {host}\r\ncontent-length: {length}\r\n\r\n",
            ask.method, ask.path
        );
        let sent = socket
            .write_all(head.as_bytes())
            .and_then(|()| ask.body.iter().try_for_each(|piece| socket.write_all(piece)))
            .and_then(|()| socket.flush());
        sent.map_err(|error| self.endpoint.unreachable(&in_words(&error, self.timeout)))?;
        let read = read_reply(&mut socket);
        let (reply, stays) =
            read.map_err(|error| self.endpoint.unreachable(&in_words(&error, self.timeout)))?;
        if stays {
            self.open = Some((socket, Instant::now()));
        }
        Ok(reply)
    }
}

fn in_words(error: &io::Error, timeout: Duration) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::WouldBlock || kind == io::ErrorKind::TimedOut {
        return format!("it did not answer within {} s", timeout.as_secs());
    }
    if kind == io::ErrorKind::UnexpectedEof || kind == io::ErrorKind::ConnectionReset {
        return ENDED.to_owned();
    }
    error.to_string()
}

/// Reads one reply, and whether another may follow on the same connection.
fn read_reply(socket: &mut impl Read) -> io::Result<(Reply, bool)> {
    let wrong = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    let end = loop {
        let read = socket.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = bytes.len().saturating_sub(3);
        bytes.extend_from_slice(&buffer[..read]);
        if let Some(at) = bytes[from..].windows(4).position(|four| four == b"\r\n\r\n") {
            break from + at;
        }
        if bytes.len() > MOST_HEAD {
            return Err(wrong(format!("found a head of more than {MOST_HEAD} bytes")));
        }
    };
    let head = std::str::from_utf8(&bytes[..end])
        .map_err(|_| wrong("found a head that is no text".to_owned()))?;
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| wrong(format!("found {first:?}, expected HTTP/1.1")))?;
    let (mut length, mut date, mut stays) = (None, None, true);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse::<usize>().ok(),
            "date" => date = http_date(value),
            "connection" if value.eq_ignore_ascii_case("close") => stays = false,
            _ => {}
        }
    }
    let length = length.ok_or_else(|| {
        wrong("found a reply without a length, expected content-length".to_owned())
    })?;
    if length > MOST_BODY {
        return Err(wrong(format!("found {length} bytes, expected at most {MOST_BODY}")));
    }
    let mut body = bytes.split_off(end + 4);
    if body.len() > length {
        return Err(wrong("found more than the reply's length".to_owned()));
    }
    let due = length - body.len();
    // At once: a vector that grows as bytes come is twice as large in the end.
    body.reserve_exact(due);
    if socket.take(due as u64).read_to_end(&mut body)? < due {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((Reply { status, date, body }, stays))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out its bytes a few at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = self.0.len().min(into.len()).min(3);
            into[..most].copy_from_slice(&self.0[..most]);
            self.0 = &self.0[most..];
            Ok(most)
        }
    }

    #[test]
    fn a_reply_is_read_however_it_is_cut() {
        let text = b"HTTP/1.1 401 Unauthorized\r\nDate: Mon, 16 Nov 2026 13:06:41 GMT\r\n\
                     Content-Length: 5\r\nconnection: close\r\n\r\nhello";
        let (reply, stays) = read_reply(&mut Slow(text)).unwrap();
        let body = b"hello".to_vec();
        assert_eq!(reply, Reply { status: 401, date: Some(1_794_834_401), body });
        assert!(!stays);
    }

    #[test]
    fn a_hostile_reply_is_an_error_and_takes_no_memory() {
        let told = |text: &[u8]| read_reply(&mut &*text).unwrap_err().to_string();
        assert!(told(b"").contains("unexpected end of file"));
        assert!(told(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort").contains("unexpected"));
        assert!(told(b"HTTP/1.1 200 OK\r\n\r\n").contains("without a length"));
        let giant = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
        assert!(told(giant).contains("expected at most"));
        assert!(told(b"SSH-2.0-OpenSSH\r\n\r\n").contains("expected HTTP/1.1"));
        assert!(told(b"HTTP/1.1 2\xff0\r\n\r\n").contains("no text"));
        assert!(told(&vec![b'x'; 200 << 10]).contains("found a head of more"));
        assert!(told(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc").contains("more than"));
    }

    #[test]
    fn an_address_says_how_it_is_spoken_to() {
        assert_eq!(
            Endpoint::new("http://127.0.0.1:8000/", None).unwrap().authority(),
            "127.0.0.1:8000"
        );
        assert_eq!(Endpoint::new("http://[::1]:8000", None).unwrap().authority(), "[::1]:8000");
        let told = |url: &str| Endpoint::new(url, None).unwrap_err().to_string();
        assert!(told("https://link:8000").contains("expected --ca"));
        let absent = Endpoint::new("https://link:8000", Some(Path::new("no/such.pem")));
        assert!(absent.unwrap_err().to_string().starts_with("--ca no/such.pem: "));
        for wrong in ["link:8000", "http://link", "ftp://link:1", "http://:1", "http://a/b:1"] {
            assert!(told(wrong).contains("expected an address such as"), "{wrong}");
        }
    }
}
