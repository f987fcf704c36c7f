//! Requests to a hub, one at a time, with patience.
//!
//! Redirects are followed here and not by the library below, so that one rule is in one place: the token goes to the
//! hub's own scheme, host and port and to nobody else, whoever sends us there, and TLS is never left.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use ureq::http::{HeaderMap, Request, Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, Error};

use crate::endpoint::{Endpoint, Origin, redirected};
use crate::error::HubError;
use crate::settings::{Hub, Token};

/// How long a connection may take to be made, and a server may be silent.
const CONNECT: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(30);
/// Most bytes of a reply's head.
const MOST_HEAD: usize = 64 << 10;
/// Most redirects of one request.
const MOST_REDIRECTS: usize = 10;
/// Attempts that bring nothing before it is given up.
pub(crate) const ATTEMPTS: u32 = 5;
/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// How often a waiting caller is asked whether to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// A hub that can be asked.
pub(crate) struct Http {
    agent: Agent,
    pub(crate) endpoint: Endpoint,
    token: Option<Token>,
    pause: Duration,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What a file is, without its content.
    Head,
    /// Content from this byte on.
    From(u64),
}

/// Why there was no reply.
pub(crate) enum Failure {
    /// Another attempt may bring one, after this wait.
    Again(HubError, Option<Duration>),
    /// No attempt will.
    Final(HubError),
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        Self::Final(error)
    }
}

impl Http {
    pub(crate) fn new(hub: &Hub) -> Result<Self, HubError> {
        let mut config = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .max_response_header_size(MOST_HEAD)
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(SILENCE))
            .timeout_per_write(Some(SILENCE));
        if hub.endpoint.is_encrypted() {
            config = config.tls_config(tls(&hub.endpoint)?).https_only(true);
        }
        let agent = config.build().new_agent();
        let (endpoint, token, pause) = (hub.endpoint.clone(), hub.token.clone(), hub.pause);
        Ok(Self { agent, endpoint, token, pause })
    }

    /// Whether it says who asks.
    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Asks until there is an answer, or until attempts bring nothing any more. `goes_on` is asked while it waits.
    pub(crate) fn patiently<T>(
        &self,
        goes_on: &dyn Fn() -> bool,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, HubError> {
        let mut failed = 0;
        loop {
            let (error, wait) = match attempt() {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(error, wait)) => (error, wait),
            };
            failed += 1;
            if failed >= ATTEMPTS {
                return Err(error);
            }
            self.wait(failed, wait, goes_on)?;
        }
    }

    /// Waits after so many failures.
    pub(crate) fn wait(
        &self,
        failed: u32,
        asked: Option<Duration>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), HubError> {
        let own = self.pause * 2_u32.pow(failed.saturating_sub(1).min(6));
        let until = Instant::now() + asked.unwrap_or(own).min(LONGEST_WAIT);
        while Instant::now() < until {
            if !goes_on() {
                return Err(HubError::Stopped(self.endpoint.to_string()));
            }
            std::thread::sleep(GLANCE.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Asks once, and follows where it is sent. A reply that is no failure of the server is returned, whatever it says.
    pub(crate) fn ask(&self, path: &str, ask: Ask) -> Result<Response<Body>, Failure> {
        let address = self.endpoint.address(path);
        let mut uri: Uri = address.parse().map_err(|_| self.odd(path, &address, "an address"))?;
        for _ in 0..MOST_REDIRECTS {
            let reply = self.send(&uri, ask)?;
            let status = reply.status().as_u16();
            if !reply.status().is_redirection() || status == 304 {
                return match status {
                    408 | 429 | 500..=599 => {
                        let refused = HubError::Refused { host: self.shown(&uri), status };
                        Err(Failure::Again(refused, wait_of(reply.headers())))
                    }
                    _ => Ok(reply),
                };
            }
            let location = reply.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let Some(next) = location.and_then(|location| redirected(&uri, location)) else {
                let found = location.map_or("a redirect without an address".to_owned(), |to| {
                    format!("a redirect to {:?}", to.chars().take(100).collect::<String>())
                });
                return Err(self.odd(path, &found, "an address of the web").into());
            };
            // The hub says what a file is where it sends us to its storage, which does not know.
            if ask == Ask::Head && reply.headers().contains_key("x-linked-etag") {
                return Ok(reply);
            }
            let is_encrypted = Origin::of(&next).is_some_and(|origin| origin.is_encrypted);
            if self.endpoint.is_encrypted() && !is_encrypted {
                let found = format!("a redirect to {}, which is not encrypted", host(&next));
                return Err(self.odd(path, &found, "an address that begins with https://").into());
            }
            uri = next;
        }
        let found = format!("more than {MOST_REDIRECTS} redirects");
        Err(self.odd(path, &found, "a file").into())
    }

    fn send(&self, uri: &Uri, ask: Ask) -> Result<Response<Body>, Failure> {
        let (method, from) = match ask {
            Ask::Head => ("HEAD", 0),
            Ask::From(byte) => ("GET", byte),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(uri.clone())
            .header(USER_AGENT, concat!("fedra/", env!("CARGO_PKG_VERSION")))
            // A compressed reply would have another length and no ranges.
            .header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| self.endpoint.is_own(uri)) {
            request = request.header(AUTHORIZATION, token.header());
        }
        let failed = |error: Error| self.failure(uri, error);
        self.agent.run(request.body(()).map_err(|error| failed(error.into()))?).map_err(failed)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others say enough")]
    fn failure(&self, uri: &Uri, error: Error) -> Failure {
        let of_tls = |error: &rustls::Error| {
            let hint = if matches!(error, rustls::Error::InvalidCertificate(_)) {
                "\nhint: SSL_CERT_FILE names the certificates that are trusted instead of the system's"
            } else {
                ""
            };
            Failure::Final(self.unreachable(uri, &format!("TLS: {error}{hint}")))
        };
        match error {
            Error::Rustls(error) => of_tls(&error),
            Error::Io(error) => {
                match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                    Some(error) => of_tls(error),
                    None => Failure::Again(self.broken(uri, &error), None),
                }
            }
            Error::Timeout(ureq::Timeout::Connect) => {
                let reason = format!("no connection within {} s", CONNECT.as_secs());
                Failure::Again(self.unreachable(uri, &reason), None)
            }
            Error::Timeout(_) => {
                let reason = format!("it said nothing for {} s", SILENCE.as_secs());
                Failure::Again(self.unreachable(uri, &reason), None)
            }
            Error::BadUri(_) | Error::Http(_) => {
                Failure::Final(self.unreachable(uri, &error.to_string()))
            }
            other => Failure::Again(self.unreachable(uri, &other.to_string()), None),
        }
    }

    /// A connection that ended before its time.
    pub(crate) fn broken(&self, uri: &Uri, error: &io::Error) -> HubError {
        self.unreachable(uri, &ending(error))
    }

    /// A connection that ended when this many bytes of a file had arrived.
    pub(crate) fn cut_off(
        &self,
        (file, size): (&str, u64),
        have: u64,
        error: &io::Error,
    ) -> HubError {
        HubError::CutOff {
            host: self.shown(&self.own()),
            file: file.to_owned(),
            have,
            size,
            reason: ending(error),
        }
    }

    fn unreachable(&self, uri: &Uri, reason: &str) -> HubError {
        HubError::Unreachable { host: self.shown(uri), reason: reason.to_owned() }
    }

    /// The server behind an address, in words.
    fn shown(&self, uri: &Uri) -> String {
        let host = host(uri);
        if self.endpoint.is_own(uri) {
            return host;
        }
        format!("{host} (where {} keeps its files)", self.endpoint)
    }

    /// A reply that no hub gives.
    pub(crate) fn odd(&self, about: &str, found: &str, expected: &str) -> HubError {
        HubError::Reply {
            host: self.endpoint.to_string(),
            about: about.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        }
    }

    /// The address of the hub as a URI, for errors about it.
    pub(crate) fn own(&self) -> Uri {
        self.endpoint.to_string().parse().unwrap_or_default()
    }
}

fn host(uri: &Uri) -> String {
    Origin::of(uri).map_or_else(|| uri.to_string(), |origin| origin.to_string())
}

fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The CAs that this machine trusts.
fn tls(endpoint: &Endpoint) -> Result<TlsConfig, HubError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let reason = "found no certificates of CAs on this machine, expected some: SSL_CERT_FILE names a file with them";
        return Err(HubError::Unreachable {
            host: endpoint.to_string(),
            reason: reason.to_owned(),
        });
    }
    let certificates: Vec<Certificate<'static>> = found
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}
/// How a connection ended.
fn ending(error: &io::Error) -> String {
    let is_end = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    if is_end.contains(&error.kind()) {
        return "it closed the connection".to_owned();
    }
    error.to_string()
}
