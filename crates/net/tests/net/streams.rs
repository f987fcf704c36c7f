//! Messages over a connection, and who gets one.

use std::time::Duration;

use bytes::Bytes;
use fedra_net::certs::{Authority, Days};
use fedra_net::{CHUNK, Dialer, Fault, Link, Message, NetError, ServerSecurity, Standing};

use crate::place::{ECHO, Echo, LIMITS, Place};

const SOON: Option<Duration> = Some(Duration::from_mins(1));

fn message(id: u64, length: usize) -> Message {
    let payload: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
    Message { id, meta: Bytes::from_static(b"{}"), payloads: vec![payload.into()] }
}

#[track_caller]
fn echoes(link: &mut Link) {
    for (id, length) in [(1, 0), (2, 5), (3, 3 * CHUNK + 7)] {
        link.send(message(id, length)).unwrap();
        assert_eq!(link.receive(SOON).unwrap(), message(id, length));
    }
}

/// What a client is told that must not get through.
fn refusal(echo: &Echo, security: &ServerSecurity) -> String {
    let opened = echo.dial(security).and_then(|mut link| {
        link.send(message(1, 1))?;
        link.receive(SOON).map(drop)
    });
    opened.unwrap_err().to_string()
}

#[test]
fn messages_of_all_sizes_come_back_with_and_without_tls() {
    let plain = Echo::start(ServerSecurity::Plain);
    echoes(&mut plain.dial(&ServerSecurity::Plain).unwrap());
    assert!(plain.peers.lock().unwrap()[0].names.is_none());

    let (place, authority) = (Place::new(), Authority::generate().unwrap());
    let server = authority.server(&["127.0.0.1".to_owned()], Days(1)).unwrap();
    let client = authority.client("Ward 4, St. Mary's", Days(1)).unwrap();
    let echo = Echo::start(ServerSecurity::Tls(place.identity("server", &server, &authority)));
    let security = ServerSecurity::Tls(place.identity("client", &client, &authority));
    let mut link = echo.dial(&security).unwrap();
    echoes(&mut link);
    let peer = echo.peers.lock().unwrap()[0].clone();
    assert_eq!(peer.names.as_deref(), Some(&["Ward 4, St. Mary's".to_owned()][..]));
    assert!(peer.check_name("Ward 4, St. Mary's").is_ok());
    let other = peer.check_name("Ward 5").unwrap_err();
    assert!(other.ends_with("expected that of the client Ward 5"), "{other}");
    let fedra_net::WireBytes { sent, received } = link.traffic.bytes();
    assert!(sent > 3 * CHUNK as u64 && received > 3 * CHUNK as u64, "{sent} {received}");
}

#[test]
fn a_certificate_that_does_not_fit_is_refused_in_words() {
    let (place, ours, theirs) =
        (Place::new(), Authority::generate().unwrap(), Authority::generate().unwrap());
    let here = ["127.0.0.1".to_owned()];
    let server = ours.server(&here, Days(1)).unwrap();
    let client = ours.client("a", Days(1)).unwrap();
    let good = ServerSecurity::Tls(place.identity("good", &client, &ours));
    let echo = Echo::start(ServerSecurity::Tls(place.identity("server", &server, &ours)));

    let of_another = theirs.client("a", Days(1)).unwrap();
    let expired = ours.client("a", Days(0)).unwrap();
    let old = ours.server(&here, Days(0)).unwrap();
    // A certificate is good to the end of the second in which it expires.
    std::thread::sleep(Duration::from_millis(1100));
    let cases = [
        ("another CA", &of_another, "signed by another CA than the server's --tls-ca"),
        ("expired", &expired, "it has expired"),
        ("a server's", &server, "it is not for a client"),
    ];
    for (name, signed, expected) in cases {
        let security = ServerSecurity::Tls(place.identity("bad", signed, &ours));
        let told = refusal(&echo, &security);
        assert!(told.contains(expected), "{name}: {told}");
    }
    let trusting_another = ServerSecurity::Tls(place.identity("bad", &client, &theirs));
    let told = refusal(&echo, &trusting_another);
    assert!(told.contains("is signed by another CA than the one of --tls-ca"), "{told}");

    let elsewhere = ours.server(&["elsewhere.example".to_owned()], Days(1)).unwrap();
    let other = Echo::start(ServerSecurity::Tls(place.identity("other", &elsewhere, &ours)));
    assert!(refusal(&other, &good).contains("is for another name"), "{}", refusal(&other, &good));
    let old = Echo::start(ServerSecurity::Tls(place.identity("old", &old, &ours)));
    assert!(refusal(&old, &good).contains("has expired"), "{}", refusal(&old, &good));
    let posing = Echo::start(ServerSecurity::Tls(place.identity("posing", &client, &ours)));
    assert!(refusal(&posing, &good).contains("certificate"), "{}", refusal(&posing, &good));

    // Whoever has the right one is served beside all of them.
    echoes(&mut echo.dial(&good).unwrap());
}

#[test]
fn plain_text_and_tls_that_meet_are_told_so() {
    let (place, authority) = (Place::new(), Authority::generate().unwrap());
    let server = authority.server(&["127.0.0.1".to_owned()], Days(1)).unwrap();
    let client = authority.client("a", Days(1)).unwrap();
    let tls = ServerSecurity::Tls(place.identity("client", &client, &authority));
    let plain_port = Echo::start(ServerSecurity::Plain);
    let tls_port = Echo::start(ServerSecurity::Tls(place.identity("server", &server, &authority)));
    let told = refusal(&tls_port, &ServerSecurity::Plain);
    assert!(told.contains("expected a port without TLS"), "{told}");
    let told = refusal(&plain_port, &tls);
    assert!(told.contains("does that port use TLS?"), "{told}");
    echoes(&mut tls_port.dial(&tls).unwrap());
    echoes(&mut plain_port.dial(&ServerSecurity::Plain).unwrap());
    assert!(plain_port.failures.lock().unwrap()[0].contains("it uses TLS"));
    assert!(tls_port.failures.lock().unwrap()[0].contains("does not use TLS"));
}

#[test]
fn nobody_there_and_a_wrong_method_are_told_apart() {
    let echo = Echo::start(ServerSecurity::Plain);
    let address = echo.server.address.to_string();
    let dialer = Dialer::new(&address, &ServerSecurity::Plain).unwrap();
    let told = dialer.open(&echo.runtime, "/fedra.v1.Fedra/Other", LIMITS).unwrap_err();
    assert!(
        told.fault(Standing::Stranger) == Fault::Refused && told.to_string().contains(ECHO),
        "{told}"
    );
    let gone = {
        let other = Echo::start(ServerSecurity::Plain);
        other.server.address.to_string()
    };
    let dialer = Dialer::new(&gone, &ServerSecurity::Plain).unwrap();
    let told = dialer.open(&echo.runtime, ECHO, LIMITS).unwrap_err();
    assert!(
        matches!(told, NetError::Unreachable { .. })
            && told.fault(Standing::Stranger) == Fault::Lost,
        "{told}"
    );
    for wrong in ["server", "server:x", ":1", "a b:1"] {
        assert!(Dialer::new(wrong, &ServerSecurity::Plain).is_err(), "{wrong}");
    }
}
