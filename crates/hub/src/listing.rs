//! What a repository holds at a revision, and what a file there is.

use serde::Deserialize;
use std::io::Read;
use ureq::http::HeaderMap;

use crate::error::HubError;
use crate::hash::FileHash;
use crate::http::{Ask, Failure, Http};
use crate::name::{ModelName, is_commit};

/// Most bytes of a list of files; that of a repository with ten thousand files has a tenth of this.
const LONGEST_LIST: u64 = 32 << 20;
/// Most files of a repository.
const MOST_FILES: usize = 200_000;

/// A repository at a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The model, pinned to the commit.
    pub(crate) name: ModelName,
    /// The commit.
    pub(crate) commit: String,
    /// The files in its top folder. Names that could leave a folder are not among them.
    pub(crate) files: Vec<String>,
}

/// A file as the hub describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    pub(crate) name: String,
    pub(crate) hash: FileHash,
    pub(crate) size: u64,
}

/// The hub's own words.
#[derive(Deserialize)]
struct Info {
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Listing {
    /// Asks what a repository holds.
    pub(crate) fn of(
        http: &Http,
        name: &ModelName,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, HubError> {
        let revision = name.revision().replace('/', "%2F");
        let path = format!("api/models/{}/revision/{revision}", name.repository());
        let text = http.patiently(goes_on, || {
            let reply = http.ask(&path, Ask::From(0))?;
            if reply.status() != 200 {
                return Err(
                    refusal(http, name, (reply.status().as_u16(), reply.headers()), None).into()
                );
            }
            let mut text = Vec::new();
            let mut body = reply.into_body().into_with_config().limit(u64::MAX).reader();
            let read = body.by_ref().take(LONGEST_LIST + 1).read_to_end(&mut text);
            read.map_err(|error| Failure::Again(http.broken(&http.own(), &error), None))?;
            Ok(text)
        })?;
        let odd = |found: &str, expected: &str| http.odd(&path, found, expected);
        if text.len() as u64 > LONGEST_LIST {
            return Err(odd("a list of files of more than 32 MiB", "a list of files"));
        }
        let info: Info = serde_json::from_slice(&text).map_err(|error| {
            let expected = "the hub's description of a model in JSON";
            if text.trim_ascii_start().starts_with(b"<") {
                let who = "; HF_ENDPOINT is no hub, or a proxy or login page is in between";
                return odd("a web page (HTML)", &format!("{expected}{who}"));
            }
            odd(&format!("text that is no such JSON ({error})"), expected)
        })?;
        let commit = info.sha.filter(|commit| is_commit(commit));
        let commit = commit.ok_or_else(|| odd("no hash of a commit", "the commit in `sha`"))?;
        if name.commit().is_some_and(|asked| asked != commit) {
            return Err(odd(&format!("the commit {commit}"), "the one that was asked for"));
        }
        if info.siblings.len() > MOST_FILES {
            return Err(odd(&format!("{} files", info.siblings.len()), "at most 200000"));
        }
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename);
        let files = files.filter(|file| is_plain(file)).collect();
        Ok(Self { name: name.at(&commit), commit, files })
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.files.iter().any(|known| known == file)
    }

    /// The path of a file's content on the hub.
    pub(crate) fn address(&self, file: &str) -> String {
        let file = encoded(file);
        format!("{}/resolve/{}/{file}", self.name.repository(), self.commit)
    }

    /// Asks what a file is.
    pub(crate) fn file(
        &self,
        http: &Http,
        file: &str,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<RemoteFile, HubError> {
        let path = self.address(file);
        let odd = |found: &str, expected: &str| http.odd(&path, found, expected);
        http.patiently(goes_on, || {
            let reply = http.ask(&path, Ask::Head)?;
            let (status, headers) = (reply.status(), reply.headers());
            if !status.is_success() && !status.is_redirection() {
                return Err(
                    refusal(http, &self.name, (status.as_u16(), headers), Some(file)).into()
                );
            }
            let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            if let Some(commit) = header("x-repo-commit").filter(|commit| *commit != self.commit) {
                let found =
                    format!("a file of the commit {:?}", commit.get(..40).unwrap_or(commit));
                return Err(odd(&found, &format!("one of {}", self.commit)).into());
            }
            let etag = header("x-linked-etag").or_else(|| header("etag")).unwrap_or_default();
            let hash = FileHash::parse(etag).ok_or_else(|| {
                odd(
                    &format!("the ETag {etag:?}"),
                    "a SHA-256 or git hash: without one nothing can be checked",
                )
            })?;
            let length = || header("content-length").filter(|_| !status.is_redirection());
            let size = header("x-linked-size").or_else(length).and_then(|size| size.parse().ok());
            let size = size.ok_or_else(|| odd("no size", "X-Linked-Size or Content-Length"))?;
            Ok(RemoteFile { name: file.to_owned(), hash, size })
        })
    }
}

/// Whether a name is that of a file in the top folder, on every system.
fn is_plain(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || "-_.+ ()=,@[]".contains(letter);
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_number = |rest: &str| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit();
    let is_device = ["con", "prn", "aux", "nul"].contains(&stem.as_str())
        || ["com", "lpt"].iter().any(|port| stem.strip_prefix(port).is_some_and(is_number));
    name.len() <= 255
        && name.chars().all(is_letter)
        && !name.starts_with(['.', ' '])
        && !name.ends_with(['.', ' '])
        && !stem.is_empty()
        && !is_device
}

/// A name in an address.
fn encoded(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let encode = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    name.bytes().map(encode).collect()
}

/// Why the hub did not give something, in its own codes.
pub(crate) fn refusal(
    http: &Http,
    name: &ModelName,
    (status, headers): (u16, &HeaderMap),
    file: Option<&str>,
) -> HubError {
    let code = headers.get("x-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
    let (page, shown) = (http.endpoint.address(name.repository()), name.to_string());
    let denied = |reason: String| HubError::Denied { name: shown.clone(), reason };
    let absent = |what: String| HubError::Absent { name: shown.clone(), what };
    let revision = || format!("the repository has no revision {:?}", name.revision());
    match (status, code, file) {
        (_, "GatedRepo", _) if http.has_token() => denied(format!(
            "the repository is gated, and the token has no access: accept its terms at {page} with the account of the token"
        )),
        (_, "GatedRepo", _) => denied(format!(
            "the repository is gated: accept its terms at {page}, and set HF_TOKEN to a token of that account"
        )),
        // The hub does not tell strangers whether a repository exists.
        (401 | 403, _, _) | (404, "RepoNotFound", _) if http.has_token() => denied(format!(
            "{page} does not exist, or the token has no access to it (HTTP {status})"
        )),
        (401 | 403, _, _) | (404, "RepoNotFound", _) => denied(format!(
            "{page} does not exist, or it is private or gated: then HF_TOKEN has to be a token with access (HTTP {status})"
        )),
        (404, "RevisionNotFound", _) => absent(revision()),
        (404, _, Some(file)) => {
            absent(format!("the repository lists {file}, and does not have it"))
        }
        (404, _, None) => absent(format!(
            "there is no repository {page}, or it has no revision {:?}",
            name.revision()
        )),
        (_, _, _) => http.odd(name.repository(), &format!("the status {status}"), "200"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_a_folder_are_no_files() {
        for name in
            ["config.json", "model-00001-of-00002.safetensors", "a b.txt", "tokenizer.model"]
        {
            assert!(is_plain(name), "{name}");
        }
        for name in [
            "../config.json",
            "..",
            ".",
            "",
            ".hidden",
            "/etc/passwd",
            "onnx/model.onnx",
            "a\\b",
            "a\0b",
            "c:x",
            "nul",
            "NUL.json",
            "com1.json",
            "a\nb",
            "end.",
            "end ",
            &"x".repeat(300),
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert_eq!(encoded("a b%c.json"), "a%20b%25c.json");
    }
}
