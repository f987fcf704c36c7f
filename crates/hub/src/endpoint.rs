//! The address of a hub, and whether another address is the same server.

use std::fmt;

use ureq::http::Uri;

use crate::error::HubError;

/// Scheme and server, and perhaps a path before all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    origin: Origin,
    /// Without a slash at its end.
    path: String,
}

/// Whom a connection is made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) is_encrypted: bool,
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads an address such as `https://huggingface.co`. Without TLS only where it is written so.
    pub(crate) fn parse(text: &str) -> Result<Self, HubError> {
        let wrong = || HubError::Setting {
            variable: "HF_ENDPOINT",
            found: text.to_owned(),
            expected: "an address such as https://huggingface.co",
        };
        let uri: Uri = text.trim().trim_end_matches('/').parse().map_err(|_| wrong())?;
        let has_more = uri.query().is_some() || text.contains(['@', '#']);
        let origin = Origin::of(&uri).filter(|_| !has_more).ok_or_else(wrong)?;
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { origin, path })
    }

    /// The address of something on this hub.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("{self}/{path}")
    }

    /// Whether an address is on this very server.
    pub(crate) fn is_own(&self, uri: &Uri) -> bool {
        Origin::of(uri).is_some_and(|origin| origin == self.origin)
    }

    /// Whether what is said to it is encrypted.
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.origin.is_encrypted
    }
}

impl Origin {
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let is_encrypted = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        (!host.is_empty()).then_some(Self { is_encrypted, host, port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = if self.is_encrypted { ("https", 443) } else { ("http", 80) };
        write!(formatter, "{scheme}://{}", self.host)?;
        if self.port == usual { Ok(()) } else { write!(formatter, ":{}", self.port) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.origin, self.path)
    }
}

/// Where a redirect leads.
pub(crate) fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let start = location.split(['/', '?']).next().unwrap_or_default();
    let is_absolute = start.contains(':');
    let address = if is_absolute {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let uri: Uri = address.parse().ok()?;
    Origin::of(&uri).is_some().then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_scheme_host_and_port_are_the_hub() {
        let hub = Endpoint::parse("https://Hub.example/mirror/").unwrap();
        assert_eq!(hub.address("api/x"), "https://hub.example/mirror/api/x");
        let own = |text: &str| hub.is_own(&text.parse().unwrap());
        assert!(own("https://hub.example/x") && own("https://HUB.example:443/x"));
        for other in [
            "http://hub.example/x",
            "https://hub.example:8443/x",
            "https://cdn.hub.example/x",
            "https://hub.example.evil/x",
        ] {
            assert!(!own(other), "{other}");
        }
        for wrong in ["hub.example", "ftp://hub", "https://", "https://a@b", "https://h/?q", "a b"]
        {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_redirect_is_read_as_browsers_read_it() {
        let from: Uri = "https://hub.example/a/b?c".parse().unwrap();
        let to = |location: &str| redirected(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("/x").as_deref(), Some("https://hub.example/x"));
        assert_eq!(to("x?y").as_deref(), Some("https://hub.example/a/x?y"));
        assert_eq!(to("//cdn.example/x").as_deref(), Some("https://cdn.example/x"));
        assert_eq!(to("http://cdn.example/x#y").as_deref(), Some("http://cdn.example/x"));
        for nowhere in
            ["https://user@evil/x", "ftp://cdn.example/x", "file:///etc/passwd", "data:,x"]
        {
            assert_eq!(to(nowhere), None, "{nowhere}");
        }
    }
}
