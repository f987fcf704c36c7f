//! Clients that misbehave on the stream of a decoder, beside one that writes: each is told why, and its
//! own session and everybody else's are as they were.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fedra_client::generate::{Answer, DecodePeer, SessionKey};
use fedra_net::{
    CHUNK, DECODE, DecodeHello, DecodeWelcome, Dialer, Frame, FrameBody, Head, Limits, Link,
    Message, PROTOCOL, Runtime, ServerSecurity,
};
use fedra_wire::{FrameKind, HiddenFrame, RowEncoding};

use crate::decode::{WIDTH, dial, serve};

const SOON: Option<Duration> = Some(Duration::from_mins(1));

/// A client that speaks for itself.
struct Raw {
    link: Link,
    _runtime: Runtime,
}

pub fn hello(client: &str, session: u64) -> DecodeHello {
    DecodeHello {
        protocol: PROTOCOL,
        client: client.to_owned(),
        session,
        resumes: true,
        blocks: (1, 3),
        model: "tiny".to_owned(),
        encoding: RowEncoding::F32,
    }
}

impl Raw {
    fn dial(address: &str) -> Self {
        let runtime = Runtime::start().unwrap();
        let dialer = Dialer::new(address, &ServerSecurity::Plain).unwrap();
        let link = dialer.open(&runtime, DECODE, Limits::of_bytes(1 << 20)).unwrap();
        Self { link, _runtime: runtime }
    }

    /// Opens a session, or finds it; and where it is.
    fn greet(address: &str, session: u64) -> (Self, usize) {
        let mut raw = Self::dial(address);
        raw.say(&hello("north", session));
        let welcome = raw.link.receive(SOON).unwrap();
        let DecodeWelcome { position } = serde_json::from_slice(&welcome.meta).unwrap();
        (raw, position)
    }

    fn say(&self, hello: &DecodeHello) {
        let meta = serde_json::to_vec(hello).unwrap().into();
        self.link.send(Message { id: 0, meta, payloads: Vec::new() }).unwrap();
    }

    /// What a frame is answered with: rows, or words.
    fn ask(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, String> {
        let sent = Message { id: 1, meta: Bytes::new(), payloads: vec![frame.into()] };
        let _told_below = self.link.send(sent);
        let answer = self.link.receive(SOON).map_err(|error| error.to_string())?;
        match &answer.payloads[..] {
            [frame] => Ok(frame.to_vec()),
            _ => Err(serde_json::from_slice(&answer.meta).unwrap()),
        }
    }

    fn farewell(mut self) -> String {
        loop {
            if let Err(error) = self.link.receive(SOON) {
                return error.to_string();
            }
        }
    }
}

fn step(position: u32, rows: usize) -> Vec<u8> {
    let rows = (WIDTH, vec![0.25 + position as f32; rows * WIDTH]);
    HiddenFrame::of_rows(FrameKind::Decode, position, rows).encode(RowEncoding::F32).unwrap()
}

fn changed(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn frames_twice_late_early_or_of_no_use_are_refused_and_the_session_stays_where_it_is() {
    let server_runtime = Runtime::start().unwrap();
    let (server, _host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let address = server.address.to_string();
    let (mut raw, position) = Raw::greet(&address, 7);
    assert_eq!(position, 0);
    let first = raw.ask(step(0, 3)).unwrap();
    assert_eq!(
        raw.ask(step(0, 3)).unwrap(),
        first,
        "the last step may be repeated, to the same bits"
    );
    let second = raw.ask(step(3, 1)).unwrap();
    let whole = changed(step(4, 1), 32, &f32::INFINITY.to_le_bytes());
    let cases = [
        ("a replayed step", step(0, 3), "found a step at position 0, expected 4"),
        ("in between", step(2, 1), "found a step at position 2, expected 4"),
        ("the future", step(9, 1), "found a step at position 9, expected 4"),
        ("the far future", step(u32::MAX, 1), "expected 4"),
        ("no row", step(4, 0), "expected rows of 16, at least one"),
        ("past the longest", step(4, 61), "found 65 tokens, expected at most 64"),
        (
            "past a frame's most rows",
            step(4, 4097),
            "number of rows is 4097, expected at most 4096",
        ),
        ("no number", whole, "value is inf, expected finite numbers"),
        ("another width", changed(step(4, 1), 20, &[8]), "width of a row is 8, expected 16"),
        ("another encoding", changed(step(4, 1), 5, &[2]), "encoding is code 2, expected f32"),
        ("another kind", changed(step(4, 1), 4, &[1]), "kind is forward, expected decode"),
        ("a header's word", changed(step(4, 1), 16, &[0, 4]), "number of bytes is 96, expected"),
        (
            "lengths on a header's word",
            changed(step(4, 1), 12, &[255; 4]),
            "number of sequences is",
        ),
        ("no frame", b"GET / HTTP/1.1".to_vec(), "number of bytes is 14, expected at least 32"),
    ];
    for (name, frame, expected) in cases {
        let told = raw.ask(frame).unwrap_err();
        assert!(told.contains(expected), "{name}: {told}");
    }
    assert_eq!(raw.ask(step(3, 1)).unwrap(), second, "the session is as it was");
    raw.ask(step(4, 1)).unwrap();
    drop(raw);
    let (_, position) = Raw::greet(&address, 7);
    assert_eq!(position, 5, "after a lost connection");
}

/// What a client does on its stream.
type Acts<'a> = Box<dyn Fn(&Raw) + 'a>;

#[test]
fn what_makes_no_message_ends_the_stream_and_not_the_session() {
    let server_runtime = Runtime::start().unwrap();
    let (server, host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let address = server.address.to_string();
    let mut busy =
        dial(&Arc::new(Runtime::start().unwrap()), server.address, "south", (1, 3)).open().unwrap();
    let expected = busy.decode(0, &[0.5; WIDTH], Answer::All).unwrap();
    let piece = |raw: &Raw, part: FrameBody| {
        let _gone = raw.link.send_frame(Frame { part: Some(part) });
    };
    let head = |lengths: &[u64]| {
        FrameBody::Head(Head { id: 1, meta: Bytes::new(), lengths: lengths.to_vec() })
    };
    let cases: [(&str, Acts<'_>, &str); 6] = [
        (
            "a terabyte",
            Box::new(|raw| piece(raw, head(&[1 << 40]))),
            "declares 1099511627776 bytes",
        ),
        (
            "an oversized frame",
            Box::new(|raw| piece(raw, FrameBody::Chunk(vec![0; 16 * CHUNK].into()))),
            "too large",
        ),
        (
            "a stream without end",
            Box::new(|raw| {
                piece(raw, head(&[10]));
                (0..1000).for_each(|_| piece(raw, FrameBody::Chunk(vec![1; 6].into())));
            }),
            "found a chunk of 6 bytes, expected 1 to 4",
        ),
        (
            "a stray chunk",
            Box::new(|raw| piece(raw, FrameBody::Chunk(vec![1].into()))),
            "found a chunk",
        ),
        (
            "a head inside a message",
            Box::new(|raw| {
                piece(raw, head(&[10]));
                piece(raw, head(&[10]));
            }),
            "expected the rest of message",
        ),
        (
            "another stream of the same session",
            Box::new(|_| drop(Raw::greet(&address, 1))),
            "another stream of this client took its place",
        ),
    ];
    for (name, acts, told) in cases {
        let (mut raw, position) = Raw::greet(&address, 1);
        let _asked = raw.ask(step(u32::try_from(position).unwrap(), 1)).unwrap();
        acts(&raw);
        let farewell = raw.farewell();
        assert!(farewell.contains(told), "{name}: {farewell}");
        assert_eq!(Raw::greet(&address, 1).1, position + 1, "{name}: the session goes on");
        assert_eq!(busy.decode(0, &[0.5; WIDTH], Answer::All).unwrap(), expected, "{name}");
    }
    assert_eq!(host.sessions.usage().unwrap().sessions, 2);
}

#[test]
fn a_hello_that_does_not_fit_is_answered_in_words() {
    let server_runtime = Runtime::start().unwrap();
    let (server, host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let address = server.address.to_string();
    let refused = |change: &dyn Fn(&mut DecodeHello)| {
        let mut hello = hello("north", 1);
        change(&mut hello);
        let raw = Raw::dial(&address);
        raw.say(&hello);
        raw.farewell()
    };
    let told = refused(&|hello| hello.protocol = 9);
    assert!(told.contains("found protocol 9, expected"), "{told}");
    let told = refused(&|hello| hello.model = "other".to_owned());
    assert!(told.contains("model: found other, expected the server's, tiny"), "{told}");
    let raw = Raw::dial(&address);
    // The server may refuse it before all of it is sent; what it says is what counts.
    let _ended = raw
        .link
        .send(Message { payloads: vec![Bytes::from_static(b"rows")], ..Message::default() });
    let told = raw.farewell();
    assert!(told.contains("declares 1 payloads, expected at most 0"), "{told}");
    let _held: Vec<_> = (0..16).map(|session| Raw::greet(&address, session)).collect();
    let told = refused(&|hello| hello.session = 99);
    assert!(
        told.contains("refused: your sessions: found 16 open, expected fewer than 16"),
        "{told}"
    );
    let told = refused(&|hello| (hello.session, hello.resumes) = (3, false));
    assert!(told.contains("refused: session 3: it is open already"), "{told}");
    assert_eq!(host.sessions.usage().unwrap().sessions, 16);
}

#[test]
fn a_session_that_is_gone_ends_its_stream_and_is_begun_again() {
    let server_runtime = Runtime::start().unwrap();
    let (server, host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let address = server.address.to_string();
    let (mut raw, _) = Raw::greet(&address, 7);
    let first = raw.ask(step(0, 3)).unwrap();
    host.sessions.close(SessionKey { owner: "north".to_owned(), id: 7 }).unwrap();
    let told = raw.ask(step(3, 1)).unwrap_err();
    assert!(told.contains("the connection was lost: session 7 is not open"), "{told}");
    let (mut raw, position) = Raw::greet(&address, 7);
    assert_eq!(position, 0);
    assert_eq!(raw.ask(step(0, 3)).unwrap(), first);
}

/// Resident bytes and threads of this process.
fn taken() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (field("VmRSS:") << 10, field("Threads:"))
}

#[test]
fn stalled_streams_take_neither_memory_nor_threads_nor_time_from_one_that_writes() {
    let server_runtime = Runtime::start().unwrap();
    let (server, host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let address = server.address.to_string();
    let runtime = Runtime::start().unwrap();
    let dialer = Dialer::new(&address, &ServerSecurity::Plain).unwrap();
    let open = || dialer.open(&runtime, DECODE, Limits::of_bytes(1 << 20)).unwrap();
    let (memory, threads) = taken();
    // Sixty that never say hello, and eight that declare rows and never send them.
    let mut silent: Vec<Link> = (0..60).map(|_| open()).collect();
    for session in 0..8 {
        let mut link = open();
        let meta = serde_json::to_vec(&hello("north", session)).unwrap().into();
        link.send(Message { id: 0, meta, payloads: Vec::new() }).unwrap();
        link.receive(SOON).unwrap();
        let head = Head { id: 1, meta: Bytes::new(), lengths: vec![4096 * 68] };
        link.send_frame(Frame { part: Some(FrameBody::Head(head)) }).unwrap();
        silent.push(link);
    }
    let mut busy =
        dial(&Arc::new(Runtime::start().unwrap()), server.address, "south", (1, 3)).open().unwrap();
    // Whoever waited for the silent ones would wait for ever: they are silent to the end of this test.
    for position in 0..40 {
        busy.decode(position, &[0.5; WIDTH], Answer::Last).unwrap();
    }
    let (memory_now, threads_now) = taken();
    assert!(memory_now < memory + (48 << 20), "{} bytes more", memory_now - memory);
    assert!(threads_now < threads + 20, "{} threads more", threads_now - threads);
    assert_eq!(host.sessions.usage().unwrap().sessions, 9);
}
