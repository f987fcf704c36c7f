//! Calls of a SuperLink: protobuf over HTTP, signed by a node's key or shown with a task's token.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

use crate::clock::Clock;
use crate::error::FlowerError;
use crate::heartbeat::Heartbeat;
use crate::http::{Ask, ENDED, Endpoint, Http, Reply};
use crate::key::NodeKey;
use crate::proto::Nothing;

/// How long a call may take: the largest carries 5 MiB.
pub(crate) const CALL: Duration = Duration::from_mins(1);
/// How long a heartbeat may take.
const BEAT: Duration = Duration::from_secs(5);
/// Where a SuperLink says which version it is.
const DESCRIPTION: &str = "/openapi.json";
/// Most characters of its words that are repeated to people.
const MOST_WORDS: usize = 300;

/// What of a version can go into a header.
fn printable(version: &str) -> String {
    version.chars().filter(char::is_ascii_graphic).take(40).collect()
}

/// Whether fedra was tried with this version.
fn is_known(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (parts.next().flatten(), parts.next().flatten());
    matches!((major, minor), (Some(1), Some(40..=42)))
}

/// On whose behalf calls are made.
#[derive(Clone)]
pub(crate) enum Caller {
    /// A node.
    Node(Arc<NodeKey>),
    /// Somebody who wants a task.
    Anybody,
    /// Who has a task, with its token.
    Task(String),
}

/// A SuperLink as one caller reaches it.
#[derive(Clone)]
pub(crate) struct SuperLink {
    pub(crate) http: Http,
    pub(crate) caller: Caller,
    version: String,
    /// Whether it speaks the protocol: it is of a version that does, or has answered a call.
    answers: bool,
    pub(crate) clock: Clock,
}

/// Who speaks in the clear to a SuperLink with TLS hears nothing but the end of the connection.
fn hinted(error: FlowerError, endpoint: &Endpoint) -> FlowerError {
    if let FlowerError::Unreachable { superlink, reason } = &error
        && reason == ENDED
        && !endpoint.is_encrypted()
    {
        let reason = format!("{reason}: one with TLS is reached with https:// and --ca");
        return FlowerError::Unreachable { superlink: superlink.clone(), reason };
    }
    error
}

impl SuperLink {
    /// Finds out whether it is one that can be spoken to. Says what a person may want to know of it.
    pub(crate) fn reach(
        endpoint: &Endpoint,
        caller: Caller,
        tell: &dyn Fn(&str),
    ) -> Result<Self, FlowerError> {
        let http = Http::new(endpoint.clone(), CALL);
        let ask = Ask { method: "GET", path: DESCRIPTION, headers: &[], body: &[] };
        let asked = http.ask(&ask);
        let Reply { status, date, body } = asked.map_err(|error| hinted(error, endpoint))?;
        if let Some(away) = unavailable(status) {
            return Err(endpoint.unreachable(&away));
        }
        let described: Value = serde_json::from_slice(&body).unwrap_or_default();
        let version = described["info"]["version"].as_str();
        let version = version.ok_or_else(|| FlowerError::Undescribed {
            found: format!("that does not describe itself (status {status} at {DESCRIPTION})"),
        })?;
        let version = printable(version);
        let answers = is_known(&version);
        if !answers {
            tell(&format!(
                "warning: the SuperLink has version {version}, and fedra was tested with 1.40 to 1.42"
            ));
        }
        let mut clock = Clock::default();
        if let Some(behind) = clock.set(date) {
            let (seconds, how) = (behind.abs(), if behind > 0.0 { "behind" } else { "ahead of" });
            tell(&format!(
                "warning: this machine's clock is {seconds:.0} s {how} the SuperLink's, whose time is used"
            ));
        }
        Ok(Self { http, caller, version, answers, clock })
    }

    /// The same SuperLink over another connection, whose calls take at most so long.
    pub(crate) fn beside(&self, timeout: Duration) -> Self {
        let http = Http::new(self.http.endpoint.clone(), timeout);
        Self { http, ..self.clone() }
    }

    /// Makes a call again and again over a connection of its own, until the heartbeat is dropped.
    pub(crate) fn heartbeat(
        &self,
        every: Duration,
        path: &'static str,
        request: impl Message + 'static,
    ) -> Heartbeat {
        let mut link = self.beside(BEAT);
        // What is wrong shows in the next call that matters.
        Heartbeat::start(every, move || drop(link.call::<Nothing>(path, &request)))
    }

    /// Makes one call, once.
    pub(crate) fn call<R: Message + Default>(
        &mut self,
        path: &'static str,
        request: &impl Message,
    ) -> Result<R, FlowerError> {
        self.post(path, &[&request.encode_to_vec()])
    }

    /// Makes a call whose request has one more field of bytes, which are in pieces.
    pub(crate) fn call_with<R: Message + Default>(
        &mut self,
        path: &'static str,
        request: &impl Message,
        (field, pieces): (u32, &[Bytes]),
    ) -> Result<R, FlowerError> {
        let mut head = request.encode_to_vec();
        encode_key(field, WireType::LengthDelimited, &mut head);
        encode_varint(pieces.iter().map(|piece| piece.len() as u64).sum(), &mut head);
        let mut body: Vec<&[u8]> = vec![&head];
        body.extend(pieces.iter().map(|piece| &piece[..]));
        self.post(path, &body)
    }

    fn post<R: Message + Default>(
        &mut self,
        path: &'static str,
        body: &[&[u8]],
    ) -> Result<R, FlowerError> {
        let headers = self.headers()?;
        let ask = Ask { method: "POST", path, headers: &headers, body };
        let Reply { status, body, .. } = self.http.ask(&ask)?;
        if let Some(away) = unavailable(status) {
            return Err(self.http.endpoint.unreachable(&away));
        }
        let other = || FlowerError::Version { found: self.version.clone(), call: path };
        if status == 200 {
            // What is large in it is a part of these bytes, not a copy.
            let reply = match R::decode(Bytes::from(body)) {
                Ok(reply) => reply,
                Err(_) if !self.answers => return Err(other()),
                Err(error) => {
                    return Err(FlowerError::Reply { call: path, reason: error.to_string() });
                }
            };
            self.answers = true;
            return Ok(reply);
        }
        if !self.answers && matches!(status, 404 | 405 | 410 | 415 | 422 | 501) {
            return Err(other());
        }
        // Its own words, where it has some.
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = problem["code"].as_u64().and_then(|code| u32::try_from(code).ok()).unwrap_or(0);
        let detail = &problem["detail"];
        let detail = detail.as_str().map_or_else(|| detail.to_string(), str::to_owned);
        let detail = detail.chars().take(MOST_WORDS).collect();
        Err(FlowerError::Denied { call: path, status, code, detail })
    }

    fn headers(&self) -> Result<Vec<(&'static str, String)>, FlowerError> {
        let component = match self.caller {
            Caller::Node(_) => "SuperNode",
            Caller::Anybody | Caller::Task(_) => "flwr-serverapp",
        };
        let mut headers = vec![
            ("content-type", "application/protobuf".to_owned()),
            ("flwr-package-name", "flwr".to_owned()),
            ("flwr-package-version", self.version.clone()),
            ("flwr-component-name", component.to_owned()),
        ];
        match &self.caller {
            Caller::Node(key) => {
                let timestamp = self.clock.timestamp();
                let signature = key.sign(timestamp.as_bytes())?;
                headers.push(("flwr-public-key", STANDARD.encode(key.public_pem())));
                headers.push(("flwr-timestamp", timestamp));
                headers.push(("flwr-signature", STANDARD.encode(signature)));
            }
            Caller::Anybody => {}
            Caller::Task(token) => headers.push(("flwr-task-token", token.clone())),
        }
        Ok(headers)
    }
}

/// What a status of a server that is there and cannot answer now means.
fn unavailable(status: u16) -> Option<String> {
    matches!(status, 502..=504).then(|| format!("it is not available (status {status})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_nothing_in_the_clear_is_told_of_tls() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let silent = std::thread::spawn(move || drop(listener.accept()));
        let key = NodeKey::read(&NodeKey::generate().unwrap()).unwrap();
        let reach = |url: &str, key| {
            let endpoint = Endpoint::new(url, None).unwrap();
            SuperLink::reach(&endpoint, Caller::Node(key), &|_| ()).err().unwrap()
        };
        let key = Arc::new(key);
        let told = reach(&url, Arc::clone(&key)).to_string();
        assert!(
            told.ends_with(
                "it closed the connection: one with TLS is reached with https:// and --ca"
            ),
            "{told}"
        );
        silent.join().unwrap();
        let told = reach(&url, key).to_string();
        assert!(!told.contains("https"), "nobody is there: {told}");
    }

    #[test]
    fn a_version_is_known_or_tried() {
        for known in ["1.40.0", "1.41.2", "1.42.0", "1.42.1.dev20261101"] {
            assert!(is_known(known), "{known}");
        }
        for other in ["1.39.9", "1.43.0", "2.40.0", "", "one", "1.4", "1.42x"] {
            assert!(!is_known(other), "{other}");
        }
        assert_eq!(printable("2\r\nx: y\u{fc}"), "2x:y");
    }
}
