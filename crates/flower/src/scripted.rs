//! A SuperLink that answers from a script: for what a real one does rarely, and for what it never should.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use prost::Message;

use crate::http::Endpoint;

/// A status and a body.
pub(crate) type Scene = (u16, Vec<u8>);

type Script = Arc<Mutex<dyn FnMut(&str, &[u8]) -> Scene + Send>>;

/// What a SuperLink says of itself.
pub(crate) fn described(version: &str) -> Scene {
    (200, format!("{{\"info\": {{\"version\": {version:?}}}}}").into_bytes())
}

/// A reply that is well.
pub(crate) fn well(reply: &impl Message) -> Scene {
    (200, reply.encode_to_vec())
}

/// Serves as long as the test runs: each path with its body gets what the script says.
pub(crate) fn serve(script: impl FnMut(&str, &[u8]) -> Scene + Send + 'static) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script: Script = Arc::new(Mutex::new(script));
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let script = Arc::clone(&script);
            std::thread::spawn(move || talk(socket, &script));
        }
    });
    Endpoint::new(&format!("http://{address}"), None).unwrap()
}

fn talk(socket: TcpStream, script: &Script) -> Option<()> {
    let mut out = socket.try_clone().ok()?;
    let mut reader = BufReader::new(socket);
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
        let (status, body) = (script.lock().unwrap())(&path, &body);
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
        out.write_all(head.as_bytes()).and_then(|()| out.write_all(&body)).ok()?;
    }
}
