//! `fedra serve --model DIR --openai`, over sockets: what clients get, and what strangers cannot do.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::place::{Place, text};

const WORDS: &str = "no chest pain but a cough and some fever since three days user assistant";
/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_mins(2);
const CHAT: &str = "/v1/chat/completions";

/// A server, which ends with the value.
struct Server {
    child: Child,
    said: BufReader<ChildStderr>,
    address: String,
    first: String,
}

impl Server {
    fn start(place: &Place, more: &[&str]) -> Self {
        let listen: &[&str] =
            if more.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_fedra"))
            .current_dir(place.folder.path())
            .args(["serve", "--model", "decoder", "--openai"])
            .args(listen)
            .args(more)
            .env_remove("FEDRA_API_KEY")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended: {first}");
            first.push_str(&line);
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
        };
        Self { child, said, address, first }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Sends bytes and reads until the server ends the connection.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = self.connect();
        // A server that refuses early may not read everything.
        let _refused = socket.write_all(bytes);
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        text(&answer)
    }

    /// The status and the body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (u16, Value) {
        let (status, body) = split(&self.raw(&request(method, path, headers, body)));
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, &[], body.to_string().as_bytes())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, &[], b"")
    }

    /// The data of all events of a stream.
    fn events(&self, path: &str, body: &Value) -> Vec<String> {
        let answer = self.raw(&request("POST", path, &[], body.to_string().as_bytes()));
        let (status, body) = split(&answer);
        assert_eq!(status, 200, "{answer}");
        assert!(answer.contains("content-type: text/event-stream"), "{answer}");
        let events = body.split("\n\n").filter(|event| !event.is_empty());
        events.map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
    }

    /// Presses Ctrl-C; the status, and what was said at the end.
    fn stop(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A request after which the connection ends.
fn request(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let has_kind = headers.iter().any(|header| header.starts_with("Content-Type"));
    let kind = if has_kind { "" } else { "Content-Type: application/json\r\n" };
    let lines: Vec<String> = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let more = lines.concat();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{kind}{more}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The status and the body, of which chunks are put together.
fn split(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return (status, body.to_owned());
    }
    let (mut rest, mut whole) = (body, String::new());
    loop {
        let (size, after) = rest.split_once("\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (status, whole);
        }
        whole.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
    }
}

fn asked(more: &Value) -> Value {
    let mut body = json!({
        "model": "decoder", "temperature": 0, "max_tokens": 9,
        "messages": [{"role": "system", "content": "fever"}, {"role": "user", "content": "no chest pain"}],
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn answers_are_those_of_generate_whole_and_as_events_and_tokens_are_counted() {
    let place = Place::new();
    place.save_decoder(WORDS);
    let messages = asked(&json!({}))["messages"].to_string();
    fs::write(place.path("asked.json"), messages).unwrap();
    let generate = ["generate", "--chat", "--model", "decoder", "--messages", "asked.json"];
    let generated = place.succeed(&[&generate[..], &["--max-tokens", "9", "--json"]].concat());
    let generated: Value = serde_json::from_str(&generated).unwrap();
    let expected = generated["text"].as_str().unwrap().trim_start();
    assert!(!expected.is_empty());

    let server = Server::start(&place, &[]);
    assert!(server.first.contains("decoder at http://127.0.0.1:"), "{}", server.first);
    let (status, whole) = server.post(CHAT, &asked(&json!({})));
    assert_eq!(status, 200, "{whole}");
    let choice = &whole["choices"][0];
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": expected, "refusal": null})
    );
    assert_eq!((&choice["finish_reason"], &choice["index"]), (&json!("length"), &json!(0)));
    let (read, written) = (generated["prompt_tokens"].as_u64().unwrap(), 9);
    assert_eq!(whole["usage"]["prompt_tokens"], read);
    assert_eq!(whole["usage"]["completion_tokens"], written);
    assert_eq!(whole["usage"]["total_tokens"], read + written);
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!("decoder")));

    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server.events(CHAT, &asked(&options));
    assert_eq!(events.last().unwrap(), "[DONE]");
    let events: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert!(events.iter().all(|event| event["object"] == "chat.completion.chunk"));
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (count, last) = (events.len() - 1, &events[events.len() - 2]);
    assert!(count > 4, "text came in pieces");
    let streamed: String = events[..count]
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(streamed, expected);
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(events[count]["choices"], json!([]));
    assert_eq!(events[count]["usage"]["completion_tokens"], written);
    // The same conversation has been read.
    let cached = &events[count]["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert_eq!(*cached, json!(read - 1));
    // Without being asked for, nothing is counted.
    let events = server.events(CHAT, &asked(&json!({"stream": true})));
    assert!(!events.concat().contains("usage"));

    let stop: String = expected.chars().skip(4).take(3).collect();
    let (_, cut) = server.post(CHAT, &asked(&json!({"stop": [stop]})));
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    assert_eq!(cut["choices"][0]["message"]["content"], expected[..expected.find(&stop).unwrap()]);
    let drawn = |seed: u64| {
        let more = json!({"temperature": 1.9, "seed": seed, "max_tokens": 12});
        server.post(CHAT, &asked(&more)).1["choices"].clone()
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));

    let prompt = json!({"model": "decoder", "prompt": "no chest pain", "temperature": 0});
    let (status, continued) = server.post("/v1/completions", &prompt);
    assert_eq!(status, 200, "{continued}");
    let plain =
        ["generate", "--model", "decoder", "--prompt", "no chest pain", "--max-tokens", "16"];
    let plain = place.succeed(&plain);
    assert_eq!(continued["choices"][0]["text"], plain.trim_end_matches('\n'));
    assert_eq!(
        (&continued["object"], &continued["usage"]["completion_tokens"]),
        (&json!("text_completion"), &json!(16))
    );
    let events = server.events(
        "/v1/completions",
        &json!({"model": "decoder", "prompt": "no chest pain", "temperature": 0, "stream": true}),
    );
    let pieces = events[..events.len() - 1].iter().map(|event| {
        let event: Value = serde_json::from_str(event).unwrap();
        event["choices"][0]["text"].as_str().unwrap().to_owned()
    });
    assert_eq!(pieces.collect::<String>(), plain.trim_end_matches('\n'));

    let (status, list) = server.get("/v1/models");
    assert_eq!((status, &list["data"][0]["id"]), (200, &json!("decoder")));
    assert_eq!(server.get("/v1/models/decoder").1["id"], "decoder");
    assert_eq!(server.get("/health"), (200, json!({"status": "ok"})));
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("10 answers with "), "{said}");
}

#[test]
fn what_cannot_be_answered_is_refused_in_the_protocols_form_and_the_server_goes_on() {
    let place = Place::new();
    place.save_decoder(WORDS);
    let server = Server::start(&place, &["--max-context", "40", "--max-tokens", "5"]);
    let refused = |(status, body): (u16, Value), expected: u16, told: &str| {
        let message = body["error"]["message"].as_str().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(status, expected, "{message}");
        assert!(message.contains(told), "{told}: {message}");
        body["error"].clone()
    };
    let error = refused(
        server.post(CHAT, &asked(&json!({"model": "gpt"}))),
        404,
        "expected one of decoder",
    );
    assert_eq!((&error["param"], &error["code"]), (&json!("model"), &json!("model_not_found")));
    let error = refused(server.post(CHAT, &asked(&json!({"n": 2}))), 400, "n: found 2");
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!("n")));
    refused(server.post(CHAT, &asked(&json!({"tools": [{}]}))), 400, "tools: this server does not");
    let long =
        json!({"messages": [{"role": "user", "content": "cough ".repeat(60)}], "stream": true});
    let error = refused(server.post(CHAT, &asked(&long)), 400, "expected less than 40");
    assert_eq!(error["code"], "context_length_exceeded");
    let (_, short) = server.post(CHAT, &asked(&json!({"max_tokens": 500})));
    assert_eq!(short["usage"]["completion_tokens"], 5, "{short}");
    refused(server.get("/v1/chat"), 404, "found /v1/chat, expected /v1/chat/completions");
    refused(server.get(CHAT), 405, "expected POST");
    assert!(server.raw(&request("GET", CHAT, &[], b"")).contains("\r\nallow: POST\r\n"));
    refused(server.ask("DELETE", "/v1/models/decoder", &[], b""), 405, "expected GET");
    refused(server.get("/v1/models/other"), 404, "expected one of decoder");
    let empty = json!({"model": "decoder", "prompt": []});
    refused(server.post("/v1/completions", &empty), 400, "found no token");
    let unknown = json!({"model": "decoder", "prompt": [1, 4_000_000]});
    refused(server.post("/v1/completions", &unknown), 400, "found the token 4000000");
    for (body, told) in [
        (&b"{\"model\": \"decoder\", "[..], "found no JSON"),
        (b"{\"model\": \"\xff\xfe\", \"messages\": []}", "found no JSON"),
        (b"[]", "expected a JSON object"),
        (b"", "found no JSON"),
        (&vec![b'['; 100_000], "found no JSON"),
    ] {
        refused(server.ask("POST", CHAT, &[], body), 400, told);
    }
    let plain = server.ask("POST", CHAT, &["Content-Type: text/plain"], b"{}");
    refused(plain, 415, "expected application/json");
    // What a browser sends for a page that somebody else's name led here.
    let foreign =
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(split(&server.raw(foreign)).0, 421);
    assert_eq!(split(&server.raw(b"nonsense\r\n\r\n")).0, 400);
    let head =
        format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(split(&server.raw(head.as_bytes())).0, 431);
    // Five megabytes, announced or not, and a hundred that are announced and never come.
    let large = vec![b' '; 5 << 20];
    refused(server.ask("POST", CHAT, &[], &large), 413, "more than 4194304 bytes");
    let chunk =
        [format!("{:x}\r\n", large.len()).into_bytes(), large, b"\r\n0\r\n\r\n".to_vec()].concat();
    let head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(split(&server.raw(&[&head[..], &chunk].concat())).0, 413);
    let expects = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                    Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(split(&server.raw(expects)).0, 413);
    // Half a request, and none.
    for half in [&b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc"[..], &expects[..60], b""] {
        let mut socket = server.connect();
        socket.write_all(half).unwrap();
        drop(socket);
    }
    let mut socket = server.connect();
    let whole = request("POST", CHAT, &[], asked(&json!({})).to_string().as_bytes());
    socket.write_all(&whole[..whole.len() - 9]).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut nothing = Vec::new();
    let _reset = socket.read_to_end(&mut nothing);
    assert!(!text(&nothing).contains("200 OK"));
    // Two requests on one connection, and others afterwards.
    let mut socket = server.connect();
    let two = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    socket.write_all(two.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut both = String::new();
    socket.read_to_string(&mut both).unwrap();
    assert_eq!(both.matches("200 OK").count(), 2, "{both}");
    assert_eq!(server.post(CHAT, &asked(&json!({}))).0, 200);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_client_that_hangs_up_ends_its_answer_and_others_wait_in_a_bounded_queue() {
    let place = Place::new();
    place.save_decoder_of(WORDS, 300_000);
    let server =
        Server::start(&place, &["--parallel", "1", "--queue", "1", "--max-tokens", "200000"]);
    // Minutes of writing, were it not for what follows.
    let endless = |stream: bool| {
        let body = asked(&json!({"max_tokens": 200_000, "stream": stream})).to_string();
        let mut socket = server.connect();
        socket.write_all(&request("POST", CHAT, &[], body.as_bytes())).unwrap();
        socket
    };
    let mut streaming = BufReader::new(endless(true));
    let mut line = String::new();
    while !line.contains("\"content\":\"") || line.contains("\"role\"") {
        line.clear();
        assert!(streaming.read_line(&mut line).unwrap() > 0);
    }
    // One is answered and one waits; until it is read, a third is turned away.
    let waiting = endless(false);
    let (status, body) = loop {
        let (status, body) = server.post(CHAT, &asked(&json!({})));
        if status != 200 {
            break (status, body);
        }
    };
    assert_eq!((status, &body["error"]["type"]), (429, &json!("rate_limit_error")));
    let again = server.raw(&request("POST", CHAT, &[], asked(&json!({})).to_string().as_bytes()));
    assert!(again.contains("\r\nretry-after: 2\r\n"), "{again}");
    drop(streaming);
    drop(waiting);
    let until = std::time::Instant::now() + PATIENCE;
    while server.post(CHAT, &asked(&json!({}))).0 != 200 {
        assert!(std::time::Instant::now() < until, "the answers go on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    assert!(said.contains("1 answer with 9 tokens"), "{said}");
}

#[test]
fn ctrl_c_ends_answers_on_their_way_with_an_error_and_the_server_with_status_0() {
    let place = Place::new();
    place.save_decoder_of(WORDS, 300_000);
    let server = Server::start(&place, &["--parallel", "1", "--max-tokens", "200000"]);
    let ask = |stream: bool| {
        let body = asked(&json!({"max_tokens": 200_000, "stream": stream})).to_string();
        let mut socket = server.connect();
        socket.write_all(&request("POST", CHAT, &[], body.as_bytes())).unwrap();
        BufReader::new(socket)
    };
    let mut streaming = ask(true);
    let mut line = String::new();
    while !line.contains("\"content\":\"") {
        line.clear();
        assert!(streaming.read_line(&mut line).unwrap() > 0);
    }
    let mut waiting = ask(false);
    // It is in the queue once a request behind it was answered.
    assert_eq!(server.get("/health").0, 200);
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    let (mut rest, mut refused) = (String::new(), String::new());
    streaming.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("the server is stopping") && rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(!rest.contains("[DONE]"));
    waiting.read_to_string(&mut refused).unwrap();
    assert_eq!(split(&refused).0, 503, "{refused}");
}

#[test]
fn another_address_needs_a_key_and_a_key_is_asked_for_everywhere_but_at_health() {
    let place = Place::new();
    place.save_decoder(WORDS);
    let serve = ["serve", "--model", "decoder", "--openai", "--listen"];
    let refused = |more: &[&str]| place.refused(&[&serve[..], more].concat());
    let told = refused(&["0.0.0.0:0"]);
    assert!(told.contains("0.0.0.0:0 is not a loopback address and needs a key"), "{told}");
    fs::write(place.path("short.txt"), "secret\n").unwrap();
    let told = refused(&["0.0.0.0:0", "--key-file", "short.txt"]);
    assert!(
        told.contains("--key-file short.txt: found a key of 6 characters, expected at least 16"),
        "{told}"
    );
    assert!(refused(&["0.0.0.0:0", "--key-file", "none.txt"]).contains("cannot read it"));
    assert!(refused(&["127.0.0.1:0", "--tls-ca", "ca.pem"]).contains("only with --server"));
    let told =
        place.refused(&["serve", "--model", "decoder", "--listen", "127.0.0.1:0", "--queue", "3"]);
    assert!(told.contains("--openai"), "{told}");

    let key = "0123456789abcdef0123456789abcdef";
    fs::write(place.path("key.txt"), format!("{key}\n")).unwrap();
    let mut server = Server::start(&place, &["--listen", "0.0.0.0:0", "--key-file", "key.txt"]);
    assert!(server.first.contains("with a key, without TLS"), "{}", server.first);
    assert!(!server.first.contains(key));
    server.address = server.address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(server.get("/health").0, 200);
    for wrong in [&[][..], &["Authorization: Bearer 0123456789abcdef"], &["Authorization: Basic x"]]
    {
        let (status, body) = server.ask("GET", "/v1/models", wrong, b"");
        assert_eq!((status, &body["error"]["code"]), (401, &json!("invalid_api_key")));
    }
    let shown = format!("Authorization: Bearer {key}");
    // With the key, any name of the machine will do.
    let head = format!(
        "GET /v1/models HTTP/1.1\r\nHost: gpu.example\r\nConnection: close\r\n{shown}\r\n\r\n"
    );
    assert_eq!(split(&server.raw(head.as_bytes())).0, 200);
    let body = asked(&json!({})).to_string();
    assert_eq!(server.ask("POST", CHAT, &[&shown], body.as_bytes()).0, 200);

    let port = server.address.rsplit(':').next().unwrap();
    let second = refused(&[&format!("127.0.0.1:{port}")]);
    assert!(second.contains("cannot listen on 127.0.0.1:"), "{second}");
}

#[test]
fn adapters_are_models_of_their_own_over_one_base_and_a_cut_model_answers_alike() {
    let place = Place::new();
    place.save_decoder(WORDS);
    let row =
        |n: usize, word: &str| format!("{{\"text\": \"no {word} but fever since {n} days\"}}\n");
    for (name, word) in [("north", "cough"), ("south", "pain")] {
        fs::write(place.path("notes.jsonl"), (0..30).map(|n| row(n, word)).collect::<String>())
            .unwrap();
        place.train_adapters(name);
    }
    let said = |server: &Server, model: &str| {
        let (status, body) = server.post(CHAT, &asked(&json!({"model": model})));
        assert_eq!(status, 200, "{body}");
        body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let server =
        Server::start(&place, &["--adapter", "north=north", "--adapter", "south=south/adapter"]);
    let names = server.get("/v1/models").1["data"].clone();
    let names: Vec<&str> =
        names.as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["decoder", "north", "south"]);
    let (base, north, south) =
        (said(&server, "decoder"), said(&server, "north"), said(&server, "south"));
    assert!(base != north && north != south && base != south, "{base} | {north} | {south}");
    for (run, expected) in [("north", &north), ("south/adapter", &south)] {
        fs::write(place.path("asked.json"), asked(&json!({}))["messages"].to_string()).unwrap();
        let generate = ["generate", "--chat", "--model", run, "--messages", "asked.json"];
        let written = place.succeed(&[&generate[..], &["--max-tokens", "9"]].concat());
        assert_eq!(written.trim(), expected.trim(), "{run}");
    }
    drop(server);
    for (more, told) in [
        (["--adapter", "decoder=north"], "two models with the name \"decoder\""),
        (["--adapter", "x=decoder"], "found no adapter_config.json in decoder"),
        (["--adapter", "north"], "as in notes=runs/notes"),
    ] {
        let serve = ["serve", "--model", "decoder", "--openai", "--listen", "127.0.0.1:0"];
        let refused = place.refused(&[&serve[..], &more].concat());
        assert!(refused.contains(told), "{refused}");
    }

    // The middle of the same model at another server.
    let mut middle = Command::new(env!("CARGO_BIN_EXE_fedra"))
        .current_dir(place.folder.path())
        .args([
            "serve",
            "--model",
            "decoder",
            "--first",
            "1",
            "--last",
            "0",
            "--listen",
            "127.0.0.1:0",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(middle.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(" at ").nth(1).unwrap().split(' ').next().unwrap();
    let cut = Server::start(&place, &["--server", address, "--first", "1", "--last", "0"]);
    assert_eq!(said(&cut, "decoder"), base);
    assert_eq!(said(&cut, "decoder"), base);
    drop(cut);
    middle.kill().unwrap();
    middle.wait().unwrap();
}
