//! Two hundred sites that wait and twenty that work: how long a request takes, and what it all weighs.
//!
//! `cargo nextest run --workspace --test net --run-ignored only --no-capture`

use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_engine::{Download, Encoding, Fleet, SharedPayload};
use fedra_net::certs::{Authority, Days};
use fedra_net::{
    Answer, Asked, Counts, DataDigest, Dialer, Federated, FleetOptions, HeldModel, Hello, JOIN,
    Link, Message, NetFleet, PROTOCOL, Request, Runtime, ServerOptions, ServerSecurity, Start,
    limits,
};
use fedra_plan::{Digest, Layer, Layout, ParamId, Part, Role, Round, Shape};
use fedra_wire::{ClientId, Header, Kind, ParamValues, encode};

use crate::place::Place;
use crate::world::{Told, World};

const IDLE: usize = 200;
const BUSY: usize = 20;
/// A megabyte of parameters, which goes to every busy site in every step.
const PARAMETERS: usize = 1 << 18;
const STEPS: usize = 50;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn greet(dialer: &Dialer, runtime: &Runtime, layout: &Layout, client: &str) -> Link {
    let link = dialer.open(runtime, JOIN, limits(layout)).unwrap();
    let hello = Hello {
        protocol: PROTOCOL,
        client: client.to_owned(),
        agreement: World::agreement(),
        counts: Counts { train: 1, ..Counts::default() },
        data: DataDigest { secret: Digest::of(b""), examples: Digest::of(b"") },
        model: HeldModel::First,
        run: None,
        kept: Vec::new(),
        process: 1,
    };
    let meta = serde_json::to_vec(&hello).unwrap().into();
    link.send(Message { id: 0, meta, payloads: Vec::new() }).unwrap();
    link
}

/// Answers downloads until the run has finished.
fn work(mut link: Link) {
    let _welcome = link.receive(None);
    while let Ok(message) = link.receive(None) {
        match serde_json::from_slice::<Asked>(&message.meta).unwrap().request {
            Request::Sync { .. } => {
                let meta = serde_json::to_vec(&Answer::Synced).unwrap().into();
                link.send(Message { id: message.id, meta, payloads: Vec::new() }).unwrap();
            }
            Request::End { .. } => return,
            other @ (Request::Probe { .. }
            | Request::CompareAttention { .. }
            | Request::Train { .. }
            | Request::Settle
            | Request::Evaluate { .. }
            | Request::Forget(_)) => panic!("not asked for here: {other:?}"),
        }
    }
}

#[test]
#[ignore = "a measurement: it takes seconds and asserts only that it works"]
fn many_sites_are_served_by_one_thread() {
    let (place, authority) = (Place::new(), Authority::generate().unwrap());
    let server = authority.server(&["127.0.0.1".to_owned()], Days(1)).unwrap();
    let names: Vec<String> = (0..IDLE + BUSY).map(|number| format!("site-{number}")).collect();
    let id = ParamId::new(Layer::Block(0), Role::Query, Part::Weight);
    let layout = Layout::new([(id, Shape::vector(PARAMETERS))]).unwrap();
    let initial: ParamValues = [(id, vec![0.5; PARAMETERS])].into_iter().collect();
    let security = ServerSecurity::Tls(place.identity("server", &server, &authority));
    let options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), security);
    let federated = Federated {
        names: names.clone(),
        agreement: World::agreement(),
        layout: layout.clone(),
        ranks: std::collections::BTreeMap::new(),
        initial: initial.clone(),
        routes: fedra_net::Routes::default(),
    };
    let mut fleet = NetFleet::listen(
        federated,
        (&options, place.path()),
        FleetOptions::default(),
        Box::new(Told::default()),
        Box::new(|_, _| unreachable!("nothing is scored here")),
    )
    .unwrap();
    let address = fleet.address();
    let runtime = Runtime::start().unwrap();
    let dialer = |name: &str| {
        let signed = authority.client(name, Days(1)).unwrap();
        let identity = place.identity(name, &signed, &authority);
        Dialer::new(&address, &ServerSecurity::Tls(identity)).unwrap()
    };
    let dialers: Vec<Dialer> = names.iter().map(|name| dialer(name)).collect();
    let (before, begun) = (resident(), Instant::now());
    let open = |number: usize| greet(&dialers[number], &runtime, &layout, &names[number]);
    let idle: Vec<Link> = (BUSY..IDLE + BUSY).map(open).collect();
    fleet.wait(Start { wait_for: Some(IDLE), start_after: None }).unwrap();
    let (joined, weight) = (begun.elapsed(), resident().saturating_sub(before));
    let busy: Vec<_> = (0..BUSY)
        .map(|number| {
            let link = open(number);
            std::thread::spawn(move || work(link))
        })
        .collect();
    fleet.wait(Start::default()).unwrap();
    fleet.open(Round(0), Arc::new(fedra_client::Silent)).unwrap();

    let header = Header::download(Kind::Values, Encoding::F32, Round(0));
    let large: SharedPayload = encode(&layout, &header, &initial, None).unwrap().into();
    let small: SharedPayload = encode(&layout, &header, &ParamValues::new(), None).unwrap().into();
    let mut step = |payload: &SharedPayload| {
        let download = |number: usize| Download {
            client: ClientId(number as u32),
            round: Round(0),
            encoding: Encoding::F32,
            payload: payload.clone(),
        };
        let downloads: Vec<Download> = (0..BUSY).map(download).collect();
        let begun = Instant::now();
        assert_eq!(fleet.sync(&downloads).unwrap(), []);
        begun.elapsed()
    };
    for (name, payload) in [("empty", &small), ("1 MiB", &large)] {
        let mut times: Vec<Duration> = (0..STEPS).map(|_| step(payload)).collect();
        times.sort_unstable();
        let (middle, worst) = (times[STEPS / 2], times[STEPS - 1]);
        let rate = (payload.len() * BUSY) as f64 / middle.as_secs_f64() / 1e6;
        eprintln!(
            "{BUSY} busy sites, {name} each: {middle:.2?} in the middle, {worst:.2?} at most, \
             {rate:.0} MB/s; resident {} MB",
            resident() / 1000
        );
    }
    eprintln!(
        "{IDLE} idle sites: joined in {joined:.2?} with TLS, {:.0} kB each for both ends together",
        weight as f64 / IDLE as f64
    );
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in busy {
        site.join().unwrap();
    }
    drop(idle);
}
