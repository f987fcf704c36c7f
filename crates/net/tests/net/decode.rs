//! A decoder whose middle is at a server writes what the whole one writes, over lost connections and
//! servers that were started again; and nobody reads another's session.

use std::net::SocketAddr;
use std::sync::Arc;

use fedra_client::generate::{
    Answer, CachedDecoder, DecodePeer, DecodeSessions, Gathering, GenerateSettings, Generator,
    Sampling, SessionLimits, SharedSessions, TokenRules,
};
use fedra_compute::{Device, Params, Seed};
use fedra_model::hf::Config;
use fedra_model::{Head, Model};
use fedra_net::{
    DecodeDialer, DecodeHost, Dialer, Routes, Runtime, Server, ServerOptions, ServerSecurity,
    with_sessions,
};
use fedra_plan::Cut;
use fedra_wire::RowEncoding;

pub const WIDTH: usize = 16;

fn decoder() -> (Model, Params) {
    let config = Config {
        vocab_size: 50,
        hidden_size: WIDTH,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(4),
        intermediate_size: 32,
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        ..Config::llama()
    };
    let model = Model::new(config, Head::Language, None).unwrap();
    let params = model.fresh_params(&Device::cpu(), Seed(1)).unwrap();
    (model, params)
}

pub fn serve(runtime: &Runtime, address: SocketAddr) -> (Server, Arc<DecodeHost>) {
    serve_with(runtime, (address, ServerSecurity::Plain), Routes::default())
}

/// The same beside other routes, with or without TLS.
pub fn serve_with(
    runtime: &Runtime,
    (address, security): (SocketAddr, ServerSecurity),
    routes: Routes,
) -> (Server, Arc<DecodeHost>) {
    let (model, params) = decoder();
    let limits = SessionLimits::default();
    let sessions = DecodeSessions::new(&Device::cpu(), (model, &params), 1..3, limits).unwrap();
    let gathering = Gathering { threads: 1, ..Gathering::default() };
    let sessions = SharedSessions::start(sessions, gathering).unwrap();
    let (width, model) = (WIDTH, "tiny".to_owned());
    let host = Arc::new(DecodeHost { sessions, blocks: (1, 3), width, model });
    let options = ServerOptions::new(address, security);
    let routes = with_sessions(routes, &host);
    (Server::start(runtime, &options, routes, |_, _| {}).unwrap(), host)
}

pub fn dial(
    runtime: &Arc<Runtime>,
    address: SocketAddr,
    client: &str,
    blocks: (usize, usize),
) -> DecodeDialer {
    let dialer = Dialer::new(&address.to_string(), &ServerSecurity::Plain).unwrap();
    let model = ("tiny".to_owned(), WIDTH);
    DecodeDialer::new((runtime.clone(), dialer), client, model, (blocks, RowEncoding::F32))
}

fn settings() -> GenerateSettings {
    GenerateSettings {
        sampling: Sampling::Greedy,
        max_tokens: 20,
        stop_tokens: Vec::new(),
        rules: TokenRules::default(),
    }
}

#[test]
fn text_is_the_same_over_a_socket_and_over_a_server_that_was_started_again() {
    let (model, params) = decoder();
    let device = Device::cpu();
    let prompt = [3, 7, 11, 2, 9];
    let mut whole = Generator::new(
        CachedDecoder::whole(&device, &model, &params).unwrap(),
        &prompt,
        settings(),
    )
    .unwrap();
    let mut expected = Vec::new();
    while let Some(token) = whole.next_token().unwrap() {
        expected.push(token);
    }

    let server_runtime = Runtime::start().unwrap();
    let (server, host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let address = server.address;
    let runtime = Arc::new(Runtime::start().unwrap());
    let peer = Box::new(dial(&runtime, address, "north", (1, 3)).open().unwrap());
    let cut = Cut::keep(1, 1, 4).unwrap();
    let decoder = CachedDecoder::cut(&device, (&model, &params), &cut, peer).unwrap();
    let mut generator = Generator::new(decoder, &prompt, settings()).unwrap();
    let mut found = Vec::new();
    for _ in 0..8 {
        found.extend(generator.next_token().unwrap());
    }
    // The server dies with all its sessions, and another one takes its place.
    drop((server, host, server_runtime));
    let server_runtime = Runtime::start().unwrap();
    let (_server, _host) = serve(&server_runtime, address);
    while found.len() < expected.len() {
        match generator.next_token() {
            Ok(Some(token)) => found.push(token),
            Ok(None) => break,
            Err(_) => generator.resume().unwrap(),
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn a_session_is_its_owners_and_a_wrong_step_changes_nothing() {
    let server_runtime = Runtime::start().unwrap();
    let (server, host) = serve(&server_runtime, "127.0.0.1:0".parse().unwrap());
    let runtime = Arc::new(Runtime::start().unwrap());
    let wrong =
        dial(&runtime, server.address, "north", (0, 3)).open().map(drop).unwrap_err().to_string();
    assert!(wrong.contains("found blocks 0..3, expected blocks 1..3 at the server"), "{wrong}");

    let mut peer = dial(&runtime, server.address, "north", (1, 3)).open().unwrap();
    let row = vec![0.5; WIDTH];
    peer.decode(0, &row, Answer::Last).unwrap();
    for (position, rows, told) in [
        (5, row.clone(), "found a step at position 5, expected"),
        (1, vec![f32::NAN; WIDTH], "value is NaN, expected finite numbers"),
        (1, vec![0.5; WIDTH * 70], "found 71 tokens, expected at most 64"),
    ] {
        let error = peer.decode(position, &rows, Answer::Last).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    assert_eq!(peer.decode(1, &row, Answer::All).unwrap().len(), WIDTH);
    assert_eq!(peer.position().unwrap(), 2, "after another connection");
    let stranger = dial(&runtime, server.address, "south", (1, 3)).open().unwrap();
    assert_eq!(host.sessions.usage().unwrap().sessions, 2);
    drop((peer, stranger));
    assert_eq!(host.sessions.usage().unwrap().sessions, 0, "both said goodbye");
}
