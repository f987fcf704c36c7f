//! A site that breaks the rules, beside two that do not: it is told why, and they lose nothing.

use std::time::Duration;

use bytes::Bytes;
use fedra_engine::RoundReport;
use fedra_net::certs::{Authority, Days};
use fedra_net::{
    Answer, Asked, CHUNK, ConfigFingerprint, Counts, DataDigest, Dialer, FleetOptions, Frame,
    FrameBody, Head, HeldModel, Hello, JOIN, Limits, Link, Message, PROTOCOL, Request, Runtime,
    ServerSecurity, Start, Welcome,
};
use fedra_plan::Digest;

use crate::place::Place;
use crate::sites::{Joined, begin, join_all, options, run};
use crate::world::{World, recipe};

const SOON: Option<Duration> = Some(Duration::from_mins(1));

/// A site that speaks for itself.
struct Raw {
    link: Link,
    _runtime: Runtime,
}

fn data(rows: &str) -> DataDigest {
    let digest = |text: &str| Digest::of(text.as_bytes());
    DataDigest { secret: digest("secret"), examples: digest(rows) }
}

fn hello(client: &str) -> Hello {
    Hello {
        protocol: PROTOCOL,
        client: client.to_owned(),
        agreement: World::agreement(),
        counts: Counts { train: 5, ..Counts::default() },
        data: data(""),
        model: HeldModel::First,
        run: None,
        kept: Vec::new(),
        process: 1,
    }
}

fn answer(id: u64, answer: &Answer) -> Message {
    Message { id, meta: serde_json::to_vec(answer).unwrap().into(), payloads: Vec::new() }
}

fn read<T: serde::de::DeserializeOwned>(message: &Message) -> T {
    serde_json::from_slice(&message.meta).unwrap()
}

fn is_end(message: &Message) -> bool {
    let asked = serde_json::from_slice(&message.meta);
    asked.is_ok_and(|asked: Asked| matches!(asked.request, Request::End { .. }))
}

impl Raw {
    fn dial(address: &str) -> Self {
        Self::dial_with(address, &ServerSecurity::Plain)
    }

    fn dial_with(address: &str, security: &ServerSecurity) -> Self {
        let runtime = Runtime::start().unwrap();
        let dialer = Dialer::new(address, security).unwrap();
        let link = dialer.open(&runtime, JOIN, Limits::of_bytes(16 << 20)).unwrap();
        Self { link, _runtime: runtime }
    }

    fn say(&self, value: &serde_json::Value) {
        let meta = serde_json::to_vec(value).unwrap().into();
        self.link.send(Message { id: 0, meta, payloads: Vec::new() }).unwrap();
    }

    fn greet(address: &str, client: &str) -> Self {
        let raw = Self::dial(address);
        raw.say(&serde_json::to_value(hello(client)).unwrap());
        raw
    }

    /// Answers downloads until it is asked to train; that request.
    fn until_training(&mut self) -> Message {
        let _welcome: Welcome = read(&self.link.receive(SOON).unwrap());
        loop {
            let message = self.link.receive(SOON).unwrap();
            match read::<Asked>(&message).request {
                Request::Sync { .. } if message.id == 0 => {}
                Request::Sync { .. } => {
                    self.link.send(answer(message.id, &Answer::Synced)).unwrap();
                }
                Request::Train { .. } => return message,
                other @ (Request::Probe { .. }
                | Request::CompareAttention { .. }
                | Request::Settle
                | Request::Evaluate { .. }
                | Request::Forget(_)
                | Request::End { .. }) => panic!("not asked for in this test: {other:?}"),
            }
        }
    }

    /// What it is told at last; nothing where it stays to the end.
    fn farewell(mut self) -> String {
        loop {
            match self.link.receive(SOON) {
                Ok(message) if is_end(&message) => {
                    return String::new();
                }
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
        }
    }
}

/// What a bad site does when it is asked to train, what it is told, and what the report says.
struct Case {
    name: &'static str,
    acts: fn(&Raw, &Message),
    told: &'static str,
    reported: &'static str,
}

fn frame(raw: &Raw, part: FrameBody) {
    // The server may have ended the stream by now.
    let _gone = raw.link.send_frame(Frame { part: Some(part) });
}

fn head(raw: &Raw, id: u64, lengths: &[u64]) {
    let meta = serde_json::to_vec(&Answer::Trained { seconds: 1.0, memory: None, noise: None })
        .unwrap()
        .into();
    frame(raw, FrameBody::Head(Head { id, meta, lengths: lengths.to_vec() }));
}

fn update(id: u64, bytes: usize) -> Message {
    let payloads = vec![Bytes::from(vec![7; bytes])];
    Message { payloads, ..answer(id, &Answer::Trained { seconds: 1.0, memory: None, noise: None }) }
}

const CASES: [Case; 11] = [
    Case {
        name: "an answer to an earlier request",
        acts: |raw, asked| raw.link.send(answer(asked.id - 3, &Answer::Synced)).unwrap(),
        told: "expected one to",
        reported: "is not connected: found an answer to request",
    },
    Case {
        name: "an answer twice",
        acts: |raw, asked| {
            raw.link.send(update(asked.id, 10)).unwrap();
            let _gone = raw.link.send(update(asked.id, 10));
        },
        told: "expected none",
        reported: "",
    },
    Case {
        name: "a payload of wrong length",
        acts: |raw, asked| raw.link.send(update(asked.id, 1000)).unwrap(),
        told: "",
        reported: "",
    },
    Case {
        name: "a chunk before its head",
        acts: |raw, _| frame(raw, FrameBody::Chunk(Bytes::from_static(b"early"))),
        told: "found a chunk, expected the head of a message",
        reported: "found a chunk, expected the head of a message",
    },
    Case {
        name: "a head inside a message",
        acts: |raw, asked| {
            head(raw, asked.id, &[9]);
            head(raw, asked.id, &[9]);
        },
        told: "expected the rest of message",
        reported: "expected the rest of message",
    },
    Case {
        name: "a terabyte declared",
        acts: |raw, asked| head(raw, asked.id, &[1 << 40]),
        told: "declares 1099511627776 bytes of payloads, expected at most",
        reported: "declares 1099511627776 bytes",
    },
    Case {
        name: "a stream without end",
        acts: |raw, asked| {
            head(raw, asked.id, &[10]);
            for _ in 0..1000 {
                frame(raw, FrameBody::Chunk(Bytes::from(vec![1; 6])));
            }
        },
        told: "found a chunk of 6 bytes, expected 1 to 4",
        reported: "expected 1 to 4",
    },
    Case {
        name: "empty chunks without end",
        acts: |raw, asked| {
            head(raw, asked.id, &[10]);
            frame(raw, FrameBody::Chunk(Bytes::new()));
        },
        told: "found a chunk of 0 bytes",
        reported: "found a chunk of 0 bytes",
    },
    Case {
        name: "an oversized frame",
        acts: |raw, _| frame(raw, FrameBody::Chunk(Bytes::from(vec![0; 16 * CHUNK]))),
        told: "too large",
        reported: "too large",
    },
    Case {
        name: "words that mean nothing",
        acts: |raw, asked| {
            let meta = Bytes::from_static(b"{\"answer\": \"perhaps\"}");
            raw.link.send(Message { id: asked.id, meta, payloads: Vec::new() }).unwrap();
        },
        told: "",
        reported: "an answer: unknown variant `perhaps`",
    },
    Case {
        name: "silence",
        acts: |_, _| {},
        told: "did not answer within 5 s",
        reported: "did not answer within 5 s",
    },
];

#[test]
fn a_site_that_breaks_a_rule_is_told_so_and_the_others_lose_nothing() {
    let world = World::new(3);
    let recipe = recipe("fedavg", "{}", |recipe| recipe.evaluation.on = Vec::new());
    let mut models: Vec<Vec<u32>> = Vec::new();
    for case in CASES {
        let place = tempfile::tempdir().unwrap();
        // Only silence takes as long as the deadline, which is long enough for those who work.
        let is_silent = case.reported.contains("did not answer");
        let deadline = if is_silent { Duration::from_secs(5) } else { Duration::from_mins(1) };
        let quick = FleetOptions { deadline, grace: Duration::from_millis(50), ..options() };
        let (mut fleet, told) = world.listen(place.path(), quick);
        let address = fleet.address();
        let sites: Vec<Joined> = join_two(&world, &address, place.path());
        let bad = std::thread::spawn(move || {
            let mut raw = Raw::greet(&address, "hospital-3");
            let asked = raw.until_training();
            (case.acts)(&raw, &asked);
            raw.farewell()
        });
        begin(&mut fleet);
        let (model, reports) = run(&world, &recipe, &mut fleet, 1);
        fleet.end(fedra_net::RunEnd::Complete, "done");
        let farewell = bad.join().unwrap();
        assert!(farewell.contains(case.told), "{}: {farewell}", case.name);
        let RoundReport { arrived, failed, refused, .. } = &reports[0];
        assert_eq!(arrived.len(), 2, "{}: {}", case.name, told.all());
        let absence = failed.iter().chain(refused).next().unwrap();
        assert!(absence.reason.contains(case.reported), "{}: {}", case.name, absence.reason);
        for site in sites {
            site.end().unwrap();
        }
        models.push(model);
    }
    assert!(models.iter().all(|model| *model == models[0]), "the others come to the same model");
}

/// The hospitals that keep the rules.
fn join_two(world: &World, address: &str, folder: &std::path::Path) -> Vec<Joined> {
    let names = ["hospital-1", "hospital-2"];
    let one = |number: usize| {
        Joined::start(world.client(number as u32), address, folder.join(names[number]))
    };
    (0..2).map(one).collect()
}

#[test]
fn who_does_not_belong_is_told_what_differs() {
    let world = World::new(2);
    let place = tempfile::tempdir().unwrap();
    let (fleet, _) = world.listen(place.path(), options());
    let address = fleet.address();
    let refused = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello("hospital-1");
        change(&mut hello);
        let raw = Raw::dial(&address);
        raw.say(&serde_json::to_value(&hello).unwrap());
        raw.farewell()
    };
    let told = refused(&|hello| hello.client = "hospital-9".to_owned());
    assert!(told.contains("found the client \"hospital-9\", expected one of"), "{told}");
    let told = refused(&|hello| {
        hello.agreement = ConfigFingerprint::from([("seed".to_owned(), "4".to_owned())]);
    });
    assert!(told.contains("`seed` is 4 at the client and 3 at the server"), "{told}");
    let told = refused(&|hello| hello.counts.train = 0);
    assert!(told.contains("found no training example"), "{told}");
    // Another version has other words, and is told so all the same.
    for words in [r#"{"protocol": 9}"#, r#"{"protocol": 9, "tongue": "other"}"#] {
        let raw = Raw::dial(&address);
        raw.say(&serde_json::from_str(words).unwrap());
        let told = raw.farewell();
        assert!(told.contains(&format!("found protocol 9, expected {PROTOCOL}")), "{told}");
    }
    let raw = Raw::dial(&address);
    raw.say(&serde_json::json!({ "name": "hospital-1" }));
    assert!(raw.farewell().contains("missing field `protocol`"));
    drop(fleet);
}

#[test]
fn whoever_has_anothers_certificate_is_not_that_other() {
    let (world, place, authority) = (World::new(2), Place::new(), Authority::generate().unwrap());
    let server = authority.server(&["127.0.0.1".to_owned()], Days(1)).unwrap();
    let client = authority.client("hospital-2", Days(1)).unwrap();
    let security = ServerSecurity::Tls(place.identity("server", &server, &authority));
    let (mut fleet, _) = world.listen_with(security, place.path(), options());
    let address = fleet.address();
    let security = ServerSecurity::Tls(place.identity("client", &client, &authority));
    let greet = |name: &str| {
        let raw = Raw::dial_with(&address, &security);
        raw.say(&serde_json::to_value(hello(name)).unwrap());
        raw
    };
    let told = greet("hospital-1").farewell();
    assert!(
        told.contains(
            "the certificate or key is of hospital-2, expected that of the client hospital-1"
        ),
        "{told}"
    );
    let _itself = greet("hospital-2");
    fleet.wait(Start { wait_for: Some(1), start_after: None }).unwrap();
    let heard: Vec<bool> = fleet.traffic().iter().map(|(_, bytes)| bytes.received > 0).collect();
    assert_eq!(heard, [false, true]);
}

#[test]
fn of_two_that_join_as_one_the_newer_stays_and_the_older_is_told() {
    let world = World::new(2);
    let recipe = recipe("scaffold", "{}", |_| {});
    let near = run(&world, &recipe, &mut world.local(), 2);
    let place = tempfile::tempdir().unwrap();
    let (mut fleet, told) = world.listen(place.path(), options());
    let address = fleet.address();
    let older = Raw::greet(&address, "hospital-1");
    fleet.wait(Start { wait_for: Some(1), start_after: None }).unwrap();
    let sites = join_all(&world, &address, place.path());
    let farewell = older.farewell();
    assert!(farewell.contains("another process joined as hospital-1"), "{farewell}");
    begin(&mut fleet);
    assert!(near.0 == run(&world, &recipe, &mut fleet, 2).0, "{}", told.all());
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        site.end().unwrap();
    }
}
