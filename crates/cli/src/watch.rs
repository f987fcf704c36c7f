//! `--watch`: the page of a run, served on loopback while it runs.
//!
//! A page is for whoever sits at this machine. So it is bound to 127.0.0.1 and nothing else, answers only to
//! its own name (a `Host` of another site is a browser that was led here), reads and never writes, takes
//! requests of a few kilobytes and a few of them at a time. There is no asynchronous code: a thread accepts,
//! and a short-lived one answers.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use fedra::pages::{Content, Document, Freshness, Section};
use fedra::run_files::{CLIENTS, EXPERIMENT, ROUNDS, SUMMARY};

use crate::console;

/// The longest request: a browser's headers.
const LONGEST: usize = 8 * 1024;
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(3);
/// Requests at a time.
const AT_A_TIME: usize = 8;
/// How long whoever looked lately is waited for at the end, so that they see it.
const LAST_LOOK: Duration = Duration::from_secs(4);
/// Where the script is.
const SCRIPT_PATH: &str = "/refresh.js";
/// Replaces what changed, and leaves scrolling and open tables as they are.
const SCRIPT: &str = include_str!("watch.js");

/// A page that is being served.
pub struct Watch {
    folder: PathBuf,
    port: u16,
    answering: AtomicUsize,
    /// When somebody last asked for the page.
    asked: Mutex<Option<Instant>>,
    /// The run has ended.
    over: AtomicBool,
    /// The page was seen since.
    seen: AtomicBool,
}

impl Watch {
    /// Serves the page of the run in a folder; port 0 is any that is free.
    pub fn start(folder: &Path, port: u16) -> Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("--watch: cannot listen on 127.0.0.1:{port}"))?;
        let address = listener.local_addr().context("--watch: no address")?;
        let shared = Arc::new(Self {
            folder: folder.to_owned(),
            port: address.port(),
            answering: AtomicUsize::new(0),
            asked: Mutex::new(None),
            over: AtomicBool::new(false),
            seen: AtomicBool::new(false),
        });
        let answers = Arc::clone(&shared);
        // It ends with the process.
        thread::spawn(move || accept(&listener, &answers));
        console::say(format_args!("watch it at http://{address}/"));
        Ok(shared)
    }

    /// Lets whoever is looking see the end.
    pub fn finish(&self) {
        let Self { asked, over, seen, .. } = self;
        over.store(true, Ordering::SeqCst);
        let asked = *asked.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = asked.is_some_and(|asked| asked.elapsed() < LAST_LOOK);
        let until = Instant::now() + LAST_LOOK;
        while looks && !seen.load(Ordering::SeqCst) && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Watch>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of file descriptors, perhaps: better luck in a moment.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if shared.answering.fetch_add(1, Ordering::SeqCst) >= AT_A_TIME {
            shared.answering.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // Who hung up needs no answer.
            let _gone = answer(stream, &shared);
            shared.answering.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn answer(mut stream: TcpStream, shared: &Watch) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read(&mut stream)?;
    let answer = match request {
        Some(request) => shared.answer(&request),
        None => Answer::refusal("431 Request Header Fields Too Large", "the request is too long"),
    };
    stream.write_all(&answer.bytes())?;
    stream.flush()
}

/// The head of a request, or `None` if it is too long.
fn read(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let (begun, mut head, mut buffer) = (Instant::now(), Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
        let left = left.ok_or(std::io::ErrorKind::TimedOut)?;
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..count]);
        if head.len() > LONGEST {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

/// What is sent back.
struct Answer {
    status: &'static str,
    kind: &'static str,
    tag: Option<String>,
    body: String,
}

impl Answer {
    fn refusal(status: &'static str, why: &str) -> Self {
        Self { status, kind: "text/plain", tag: None, body: format!("{why}\n") }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { status, kind, tag, body } = self;
        let tag = tag.as_ref().map_or(String::new(), |tag| format!("ETag: {tag}\r\n"));
        let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n{tag}{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: frame-ancestors 'none'\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

impl Watch {
    fn answer(&self, request: &str) -> Answer {
        let mut lines = request.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
        let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let values = |name: &str| -> Vec<&str> {
            let is = |(key, _): &&(&str, &str)| key.eq_ignore_ascii_case(name);
            headers.iter().filter(is).map(|(_, value)| value.trim()).collect()
        };
        let names = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let is_here = match values("host").as_slice() {
            [host] => names.iter().any(|name| name.eq_ignore_ascii_case(host)),
            _ => false,
        };
        if !is_here {
            let why = format!("wrong Host header, expected {}", names[0]);
            return Answer::refusal("421 Misdirected Request", &why);
        }
        if method != "GET" {
            return Answer::refusal("405 Method Not Allowed", "wrong method, expected GET");
        }
        match path {
            "/" => self.page(values("if-none-match").first().copied()),
            SCRIPT_PATH => Answer {
                status: "200 OK",
                kind: "text/javascript",
                tag: None,
                body: SCRIPT.to_owned(),
            },
            _ => Answer::refusal("404 Not Found", "the only page here is /"),
        }
    }

    /// The page, unless whoever asks has it already.
    fn page(&self, known: Option<&str>) -> Answer {
        let over = self.over.load(Ordering::SeqCst);
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let tag = self.tag();
        let is_known = known == Some(&tag);
        let body = if is_known { String::new() } else { self.document().html() };
        if over {
            self.seen.store(true, Ordering::SeqCst);
        }
        let status = if is_known { "304 Not Modified" } else { "200 OK" };
        Answer { status, kind: "text/html", tag: Some(tag), body }
    }

    fn document(&self) -> Document {
        let live = Freshness::Live(SCRIPT_PATH.to_owned());
        let waiting = |words: String| Document {
            title: "A run".to_owned(),
            lead: vec![words],
            sections: Vec::<Section>::new(),
            freshness: live.clone(),
        };
        if !self.folder.join(EXPERIMENT).is_file() {
            return waiting(
                "The run has not started yet: data and model are being loaded.".to_owned(),
            );
        }
        match fedra::apply::pages::document(&self.folder) {
            Ok(document) => Document { freshness: live, ..document },
            Err(error) => {
                let mut document = waiting("There is no page of this run yet.".to_owned());
                document.sections.push(Section::new("Why", vec![Content::Words(error.in_words())]));
                document
            }
        }
    }

    /// What changes when the page does: sizes and times of the files that it is made of.
    fn tag(&self) -> String {
        let mut tag = String::from("\"");
        for name in [EXPERIMENT, CLIENTS, ROUNDS, SUMMARY] {
            if let Ok(about) = fs::metadata(self.folder.join(name)) {
                let since = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                let nanos = since.map_or(0, |since| since.as_nanos());
                tag = format!("{tag}{}-{nanos}.", about.len());
            }
        }
        tag.push('"');
        tag
    }
}
