//! Who may ask: whoever has the key, or a program of this machine.
//!
//! Without a key the server is for this machine alone. A page in a browser runs on this machine too, so two things that
//! such a page cannot do are asked of every request: to name the server as this machine is named (a name that somebody
//! else's DNS leads here is refused), and to send JSON (which a browser does for a foreign page only after it has asked,
//! and nobody answers that).

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{Method, StatusCode};

use fedra_plan::Digest;

use crate::dialer::is_loopback;

/// Fewest characters of a key.
pub const SHORTEST_KEY: usize = 16;

/// The secret that clients have to show. Only a digest of it is kept.
#[derive(Clone, Copy, Debug)]
pub struct ApiKey(Digest);

impl ApiKey {
    /// A key, without the blanks around it.
    pub fn new(text: &str) -> Result<Self, String> {
        let key = text.trim();
        let length = key.chars().count();
        if length < SHORTEST_KEY {
            return Err(format!(
                "found a key of {length} characters, expected at least {SHORTEST_KEY}"
            ));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "found a key with blanks or other letters, expected one line of ASCII".to_owned()
            );
        }
        Ok(Self(Digest::of(key.as_bytes())))
    }

    /// Whether a text is the key. How long it takes says nothing about the key: digests are compared, all of both.
    pub fn is(&self, text: &str) -> bool {
        let (ours, theirs) = (self.0, Digest::of(text.as_bytes()));
        let pairs = ours.as_bytes().iter().zip(theirs.as_bytes());
        let differs = pairs.fold(0, |differs, (one, other)| differs | (one ^ other));
        std::hint::black_box(differs) == 0
    }
}

/// What a request is refused with.
pub(super) type Refusal = (StatusCode, String);

/// Refuses a request of somebody who may not ask; `is_open` says that its path needs no key.
pub(super) fn check(parts: &Parts, key: Option<&ApiKey>, is_open: bool) -> Result<(), Refusal> {
    match key {
        Some(_) if is_open => {}
        Some(key) => check_key(parts, key)?,
        None => check_host(parts)?,
    }
    let is_json = |kind: &str| {
        kind.split(';')
            .next()
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    };
    let kind = header(parts, &CONTENT_TYPE).unwrap_or_default();
    if parts.method == Method::POST && !is_json(kind) {
        let found = if kind.is_empty() { "none" } else { kind };
        let told = format!("Content-Type: found {found}, expected application/json");
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, told));
    }
    Ok(())
}

fn check_key(parts: &Parts, key: &ApiKey) -> Result<(), Refusal> {
    let expected = "expected Authorization: Bearer KEY, with the key of this server";
    let refused =
        |found: &str| Err((StatusCode::UNAUTHORIZED, format!("found {found}, {expected}")));
    let Some(given) = header(parts, &AUTHORIZATION) else { return refused("no key") };
    let shown = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match shown {
        Some((_, shown)) if key.is(shown.trim()) => Ok(()),
        Some(_) => refused("another key"),
        None => refused("no Bearer key"),
    }
}

fn check_host(parts: &Parts) -> Result<(), Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    // An address with a port, or a name alone.
    if hosts.next().is_none() && (is_loopback(host) || is_loopback(&format!("{host}:80"))) {
        return Ok(());
    }
    let told = "wrong Host header: without a key this server answers to localhost and to loopback addresses only";
    Err((StatusCode::MISDIRECTED_REQUEST, told.to_owned()))
}

fn header<'p>(parts: &'p Parts, name: &http::HeaderName) -> Option<&'p str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    fn asked(method: &str, headers: &[(&str, &str)], key: Option<&ApiKey>) -> Result<(), Refusal> {
        let request = http::Request::builder().method(method).uri("/v1/models");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        check(&request.body(()).unwrap().into_parts().0, key, false)
    }

    #[test]
    fn a_key_is_long_enough_one_line_and_shown_whole() {
        assert!(
            ApiKey::new("short")
                .unwrap_err()
                .contains("found a key of 5 characters, expected at least 16")
        );
        assert!(ApiKey::new("0123456789 abcdef").unwrap_err().contains("blanks"));
        let key = ApiKey::new(&format!(" {KEY}\n")).unwrap();
        assert!(
            key.is(KEY)
                && !key.is("0123456789abcdeF")
                && !key.is("")
                && !key.is("0123456789abcdef0")
        );
        assert!(!format!("{key:?}").contains(KEY));
        for (headers, told) in [
            (&[][..], Some("found no key")),
            (&[("authorization", "Basic 0123456789abcdef")], Some("found no Bearer key")),
            (&[("authorization", "Bearer 0123456789abcdeg")], Some("found another key")),
            (&[("authorization", "bearer  0123456789abcdef")], None),
        ] {
            let refused = asked("GET", headers, Some(&key)).err();
            let status = refused.as_ref().map(|(status, _)| status.as_u16());
            assert_eq!(status, told.map(|_| 401), "{headers:?}");
            assert!(told.is_none_or(|told| refused.unwrap().1.contains(told)), "{headers:?}");
        }
    }

    #[test]
    fn without_a_key_only_names_of_this_machine_and_json_are_taken() {
        let status = |method: &str, headers: &[(&str, &str)]| {
            asked(method, headers, None).err().map(|(status, _)| status.as_u16())
        };
        for host in
            ["127.0.0.1:8080", "localhost", "localhost:1", "[::1]:8080", "127.0.0.1", "[::1]"]
        {
            assert_eq!(status("GET", &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example", ""] {
            assert_eq!(status("GET", &[("host", host)]), Some(421), "{host}");
        }
        assert_eq!(status("GET", &[]), Some(421));
        assert_eq!(status("GET", &[("host", "localhost"), ("host", "localhost")]), Some(421));
        let here = ("host", "localhost");
        assert_eq!(status("POST", &[here]), Some(415));
        assert_eq!(status("POST", &[here, ("content-type", "text/plain")]), Some(415));
        assert_eq!(
            status("POST", &[here, ("content-type", "Application/JSON; charset=utf-8")]),
            None
        );
    }
}
