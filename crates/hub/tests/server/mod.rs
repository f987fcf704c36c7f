//! A hub of two servers on this machine: one that knows repositories, and one that stores large files.
//!
//! It speaks what the hub speaks (`/api/models/`, `/resolve/`, redirects, hashes, ranges) and can be told to fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// The commit of every repository here.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Files from this size on, and all weights, are stored elsewhere.
const LARGE: usize = 4096;

/// The hub; it ends with the test.
pub struct FakeHub {
    pub endpoint: String,
    state: Arc<State>,
    addresses: [String; 2],
}

/// What goes wrong.
#[derive(Clone, Default)]
pub struct Faults {
    /// Only who shows this token may read.
    pub token: Option<&'static str>,
    /// The code of the refusal.
    pub code: &'static str,
    /// So many requests are answered with this status first.
    pub statuses: Vec<u16>,
    /// So many bytes of a large file are sent before the connection breaks, this often.
    pub breaks: Vec<usize>,
    /// Ranges are ignored.
    pub ignores_ranges: bool,
    /// Ranges are answered with the wrong part, this often.
    pub wrong_ranges: usize,
    /// Large files have another first byte.
    pub changes_content: bool,
    /// Where large files are said to be, instead of the storage.
    pub location: Option<String>,
    /// The hash that is told of large files.
    pub etag: Option<String>,
    /// The size that is told of large files.
    pub size: Option<&'static str>,
    /// Names of files that are only listed.
    pub listed: Vec<String>,
    /// The repository was renamed from this one.
    pub old_name: Option<&'static str>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at_storage: bool,
    pub method: String,
    pub path: String,
    pub token: Option<String>,
    pub range: Option<String>,
}

struct State {
    repository: String,
    files: BTreeMap<String, Vec<u8>>,
    storage: String,
    faults: Mutex<Faults>,
    asked: Mutex<Vec<Asked>>,
    sent: Mutex<u64>,
    is_over: AtomicBool,
}

impl FakeHub {
    pub fn start(repository: &str, files: BTreeMap<String, Vec<u8>>) -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (hub, storage) = (bind(), bind());
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let addresses = [address(&hub), address(&storage)];
        let state = Arc::new(State {
            repository: repository.to_owned(),
            files,
            storage: format!("http://{}", addresses[1]),
            faults: Mutex::default(),
            asked: Mutex::default(),
            sent: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        for (listener, at_storage) in [(hub, false), (storage, true)] {
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                for connection in listener.incoming() {
                    if state.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || state.answer(&connection.unwrap(), at_storage));
                }
            });
        }
        Self { endpoint: format!("http://{}", addresses[0]), state, addresses }
    }

    pub fn fail(&self, faults: Faults) {
        *self.state.faults.lock().unwrap() = faults;
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Bytes of content that were sent.
    pub fn sent(&self) -> u64 {
        *self.state.sent.lock().unwrap()
    }

    pub fn storage(&self) -> &str {
        &self.state.storage
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        for address in &self.addresses {
            // Whoever waits for a connection then looks.
            let _woken = TcpStream::connect(address);
        }
    }
}

impl State {
    fn answer(&self, stream: &TcpStream, at_storage: bool) {
        let Some(asked) = read(stream, at_storage) else { return };
        self.asked.lock().unwrap().push(asked.clone());
        let faults = self.faults.lock().unwrap().clone();
        if let Some(status) = faults.statuses.first() {
            self.faults.lock().unwrap().statuses.remove(0);
            return reply(stream, *status, &[("Retry-After", "0")], b"");
        }
        let shown = asked.token.as_deref();
        if let Some(token) = faults.token
            && !at_storage
            && shown != Some(&format!("Bearer {token}"))
        {
            return reply(stream, 401, &[("X-Error-Code", faults.code)], b"{}");
        }
        let path = asked.path.trim_start_matches('/').to_owned();
        if let Some(old) = faults.old_name
            && path.contains(old)
        {
            let location = asked.path.replace(old, &self.repository);
            return reply(stream, 307, &[("Location", &location)], b"");
        }
        let repository = self.repository.as_str();
        let api = format!("api/models/{repository}/revision/");
        let resolve = format!("{repository}/resolve/{COMMIT}/");
        if let Some(hash) = path.strip_prefix("stored/") {
            return self.stored(stream, hash, &asked, &faults);
        }
        if let Some(revision) = path.strip_prefix(&api) {
            if revision != "main" && revision != COMMIT {
                return reply(stream, 404, &[("X-Error-Code", "RevisionNotFound")], b"{}");
            }
            return reply(stream, 200, &[], self.listing(&faults).as_bytes());
        }
        let Some(name) = path.strip_prefix(&resolve) else {
            return reply(stream, 404, &[("X-Error-Code", "RepoNotFound")], b"{}");
        };
        let Some(content) = self.files.get(name) else {
            return reply(stream, 404, &[("X-Error-Code", "EntryNotFound")], b"{}");
        };
        if is_large(name, content) {
            let hash = faults.etag.clone().unwrap_or_else(|| sha256(content));
            let usual = format!("{}/stored/{}", self.storage, sha256(content));
            let headers = [
                ("Location", faults.location.clone().unwrap_or(usual)),
                ("X-Linked-Etag", format!("\"{hash}\"")),
                ("X-Linked-Size", faults.size.map_or(content.len().to_string(), str::to_owned)),
                ("X-Repo-Commit", COMMIT.to_owned()),
            ];
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            return reply(stream, 302, &headers, b"");
        }
        let etag = format!("\"{}\"", git(content));
        let headers = [("ETag", etag.as_str()), ("X-Repo-Commit", COMMIT)];
        if asked.method == "HEAD" {
            return head(stream, 200, &headers, content.len());
        }
        *self.sent.lock().unwrap() += content.len() as u64;
        reply(stream, 200, &headers, content);
    }

    fn stored(&self, stream: &TcpStream, hash: &str, asked: &Asked, faults: &Faults) {
        let mut content =
            self.files.values().find(|content| sha256(content) == hash).unwrap().clone();
        if faults.changes_content {
            content[0] ^= 1;
        }
        let size = content.len();
        let range = asked.range.as_deref().filter(|_| !faults.ignores_ranges);
        let from = range.map_or(0, |range| {
            range.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().unwrap()
        });
        let mut shown = from;
        if from > 0 && faults.wrong_ranges > 0 {
            self.faults.lock().unwrap().wrong_ranges -= 1;
            shown = from - 1;
        }
        let rest = &content[shown..];
        let told = format!("bytes {shown}-{}/{size}", size - 1);
        let ranged = [("Content-Range", told.as_str())];
        let (status, headers) = if from > 0 { (206, &ranged[..]) } else { (200, &[][..]) };
        head(stream, status, headers, rest.len());
        let length = match faults.breaks.first() {
            Some(length) => {
                self.faults.lock().unwrap().breaks.remove(0);
                rest.len().min(*length)
            }
            None => rest.len(),
        };
        let mut stream = stream;
        // Before it is written: whoever has read it all may ask at once.
        *self.sent.lock().unwrap() += length as u64;
        let _gone = stream.write_all(&rest[..length]);
        let _gone = stream.shutdown(Shutdown::Write);
    }

    fn listing(&self, faults: &Faults) -> String {
        let names = self.files.keys().chain(&faults.listed);
        let quoted = |name: &String| serde_json::json!({ "rfilename": name }).to_string();
        let siblings = names.map(quoted).collect::<Vec<_>>().join(",");
        let id = &self.repository;
        format!("{{\"id\":\"{id}\",\"sha\":\"{COMMIT}\",\"siblings\":[{siblings}]}}")
    }
}

fn is_large(name: &str, content: &[u8]) -> bool {
    name.ends_with(".safetensors") || content.len() >= LARGE
}

fn read(stream: &TcpStream, at_storage: bool) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut asked = Asked { at_storage, method, path, token: None, range: None };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => asked.token = Some(value.to_owned()),
            "range" => asked.range = Some(value.to_owned()),
            _ => {}
        }
    }
    Some(asked)
}

fn head(mut stream: &TcpStream, status: u16, headers: &[(&str, &str)], length: usize) {
    let mut text =
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n");
    for (name, value) in headers {
        let _written = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    let _gone = stream.write_all(text.as_bytes());
}

fn reply(mut stream: &TcpStream, status: u16, headers: &[(&str, &str)], body: &[u8]) {
    head(stream, status, headers, body.len());
    let _gone = stream.write_all(body);
}

pub fn sha256(content: &[u8]) -> String {
    hexadecimal(digest(&SHA256, content).as_ref())
}

pub fn git(content: &[u8]) -> String {
    let whole = [format!("blob {}\0", content.len()).as_bytes(), content].concat();
    hexadecimal(digest(&SHA1_FOR_LEGACY_USE_ONLY, &whole).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _written = write!(text, "{byte:02x}");
        text
    })
}
