//! Who may speak at a cut and with a decoder's server: a certificate says who a client is, on every path.

use std::sync::Arc;
use std::time::Duration;

use fedra_client::generate::{Answer, DecodePeer};
use fedra_client::{Connect, Purpose};
use fedra_engine::{ClientBlocks, SplitConfig};
use fedra_net::certs::{Authority, Days};
use fedra_net::{
    CUT, CutDialer, CutHello, DECODE, DecodeDialer, Dialer, Limits, Message, NetError, PROTOCOL,
    Routes, Runtime, ServerSecurity, with_middle,
};
use fedra_plan::Round;
use fedra_wire::{ClientId, RowEncoding};

use crate::cut::middle;
use crate::decode::{WIDTH, serve_with};
use crate::decode_faults::hello;
use crate::place::Place;
use crate::world::World;

const SOON: Option<Duration> = Some(Duration::from_mins(1));

/// The hello of a path, by this name.
fn words(path: &str, client: &str) -> Message {
    let client = client.to_owned();
    let cut = CutHello {
        protocol: PROTOCOL,
        client: client.clone(),
        round: Round(0),
        trains: false,
        process: 1,
    };
    let meta = if path == CUT {
        serde_json::to_vec(&cut).unwrap()
    } else {
        serde_json::to_vec(&hello(&client, 5)).unwrap()
    };
    Message { id: 0, meta: meta.into(), payloads: Vec::new() }
}

fn refusal(address: &str, path: &'static str, security: &ServerSecurity, claimed: &str) -> String {
    let runtime = Runtime::start().unwrap();
    let dialer = Dialer::new(address, security).unwrap();
    let told = dialer.open(&runtime, path, Limits::of_bytes(1 << 20)).and_then(|mut link| {
        link.send(words(path, claimed))?;
        link.receive(SOON)
    });
    told.unwrap_err().to_string()
}

#[test]
fn at_a_cut_and_at_a_decoder_a_client_is_who_its_certificate_says() {
    let (place, ours, theirs) =
        (Place::new(), Authority::generate().unwrap(), Authority::generate().unwrap());
    let here = ["127.0.0.1".to_owned()];
    let server = ours.server(&here, Days(1)).unwrap();
    let security = ServerSecurity::Tls(place.identity("server", &server, &ours));
    let world = World::new(2);
    let split = SplitConfig::new(ClientBlocks { first: 0, last: 1 });
    let middle = middle(&world, &split, &world.local());
    let routes = with_middle(Routes::default(), &middle, &world.names());
    let server_runtime = Runtime::start().unwrap();
    let at = ("127.0.0.1:0".parse().unwrap(), security);
    let (server, host) = serve_with(&server_runtime, at, routes);
    let address = server.address.to_string();

    let expired = ours.client("hospital-1", Days(0)).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let of_another = theirs.client("hospital-1", Days(1)).unwrap();
    let second = ours.client("hospital-2", Days(1)).unwrap();
    let good = ours.client("hospital-1", Days(1)).unwrap();
    let cases = [
        ("another CA", &of_another, "signed by another CA than the server's --tls-ca"),
        ("expired", &expired, "it has expired"),
        (
            "another name",
            &second,
            "the certificate or key is of hospital-2, expected that of the client hospital-1",
        ),
    ];
    for path in [CUT, DECODE] {
        for (name, signed, expected) in cases {
            let security = ServerSecurity::Tls(place.identity("bad", signed, &ours));
            let told = refusal(&address, path, &security, "hospital-1");
            assert!(told.contains(expected), "{path}, {name}: {told}");
        }
        let told = refusal(&address, path, &ServerSecurity::Plain, "hospital-1");
        assert!(told.contains("expected a port without TLS"), "{path}: {told}");
    }
    let good = ServerSecurity::Tls(place.identity("good", &good, &ours));
    let stranger = ours.client("hospital-9", Days(1)).unwrap();
    let stranger = ServerSecurity::Tls(place.identity("stranger", &stranger, &ours));
    let told = refusal(&address, CUT, &stranger, "hospital-9");
    assert!(told.contains("found the client \"hospital-9\", expected one of this run"), "{told}");

    // A session's number is worth nothing in another's hands.
    let runtime = Arc::new(Runtime::start().unwrap());
    let dialer = |security| Dialer::new(&address, security).unwrap();
    let open = |client: &str, security| {
        let model = ("tiny".to_owned(), WIDTH);
        let way = (runtime.clone(), dialer(security));
        DecodeDialer::new(way, client, model, ((1, 3), RowEncoding::F32)).open()
    };
    let mut peer = open("hospital-1", &good).unwrap();
    let row = [0.5; WIDTH];
    let first = peer.decode(0, &row, Answer::All).unwrap();
    let second = ServerSecurity::Tls(place.identity("second", &second, &ours));
    let mut link = dialer(&second).open(&runtime, DECODE, Limits::of_bytes(1 << 20)).unwrap();
    link.send(words(DECODE, "hospital-2")).unwrap();
    let welcome = link.receive(SOON).unwrap();
    assert_eq!(&welcome.meta[..], br#"{"position":0}"#, "the same number is another session");
    assert_eq!(host.sessions.usage().unwrap().sessions, 2);
    assert_eq!(peer.decode(0, &row, Answer::All).unwrap(), first);
    let told = open("hospital-2", &good).map(drop).unwrap_err();
    assert!(matches!(told, NetError::Refused(_)), "{told}");
}

#[test]
fn streams_that_are_done_leave_no_thread_behind() {
    let world = World::new(2);
    let split = SplitConfig::new(ClientBlocks { first: 0, last: 1 });
    let middle = middle(&world, &split, &world.local());
    let routes = with_middle(Routes::default(), &middle, &world.names());
    let server_runtime = Runtime::start().unwrap();
    let at = ("127.0.0.1:0".parse().unwrap(), ServerSecurity::Plain);
    let (server, _host) = serve_with(&server_runtime, at, routes);
    let runtime = Arc::new(Runtime::start().unwrap());
    let dialer = Dialer::new(&server.address.to_string(), &ServerSecurity::Plain).unwrap();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    // Two clients by turns, each for another round: as in a run of many rounds.
    for round in 0..30 {
        let name = format!("hospital-{}", 1 + round % 2);
        let way = CutDialer::new((runtime.clone(), dialer.clone()), name, 16);
        let mut peer = way.connect(ClientId(0), Purpose::Score(Round(round))).unwrap();
        assert!(peer.exchange(vec![0; 40]).is_err());
        drop(peer);
        let peer = way.connect(ClientId(0), Purpose::Train(Round(round))).unwrap();
        drop(peer);
    }
    assert!(threads() < before + 12, "{} threads more", threads() - before);
}
