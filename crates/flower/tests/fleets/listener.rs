//! A small HTTP/1.1 server: one thread for each connection, one answer for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// A status and a body.
pub type Answer = (u16, Vec<u8>);

/// Answers on a free port of this machine as long as the test runs: each path with its body, over what is made of
/// each socket. Where it is.
pub fn listen<S: Read + Write>(
    stream: impl Fn(TcpStream) -> S + Send + Sync + 'static,
    answer: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let both = Arc::new((stream, answer));
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let both = Arc::clone(&both);
            std::thread::spawn(move || {
                socket.set_nodelay(true).ok()?;
                talk(both.0(socket), &both.1)
            });
        }
    });
    address
}

/// Answers requests until the connection ends or makes no sense.
fn talk(stream: impl Read + Write, answer: &dyn Fn(&str, &[u8]) -> Answer) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if path.is_empty() {
                line.split(' ').nth(1)?.clone_into(&mut path);
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, body) = answer(&path, &body);
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
        let stream = reader.get_mut();
        let written = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        written.and_then(|()| stream.flush()).ok()?;
    }
}
