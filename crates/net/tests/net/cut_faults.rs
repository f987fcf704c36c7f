//! A client that misbehaves at the cut, beside two that do not: it is told why, and they lose nothing.
//! And one that loses its connection, or stalls, in the middle of a step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fedra_client::{Client, ClientError, Connect, Peer, Purpose};
use fedra_compute::Seed;
use fedra_engine::{ClientBlocks, RoundReport, SplitConfig, SplitMode};
use fedra_net::{
    CHUNK, CUT, CutDialer, CutHello, Dialer, FleetOptions, Frame, FrameBody, Head, Link, Message,
    NetError, PROTOCOL, Runtime, ServerSecurity, row_limits,
};
use fedra_wire::ClientId;

use crate::cut::{middle, run_cut};
use crate::sites::{Joined, begin, options};
use crate::world::{World, recipe};

const SOON: Option<Duration> = Some(Duration::from_mins(1));

/// What a client does with one of its frames.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    /// Which exchange: 0 and 2 bring rows, 1 and 3 gradients.
    at: u64,
    acts: fn(&Link, &[Vec<u8>]),
    told: &'static str,
}

/// Sends the last frame as it is.
fn send(link: &Link, frames: &[Vec<u8>]) {
    let id = frames.len() as u64;
    message(link, id, vec![frames[frames.len() - 1].clone().into()]);
}

fn message(link: &Link, id: u64, payloads: Vec<Bytes>) {
    // The server may have ended the stream by now.
    let _gone = link.send(Message { id, meta: Bytes::new(), payloads });
}

/// Sends the last frame with other bytes in one place.
fn with(link: &Link, frames: &[Vec<u8>], at: usize, bytes: &[u8]) {
    let mut frame = frames[frames.len() - 1].clone();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    message(link, frames.len() as u64, vec![frame.into()]);
}

/// Sends the last frame with the same number everywhere.
fn filled(link: &Link, frames: &[Vec<u8>], value: f32) {
    let mut frame = frames[frames.len() - 1].clone();
    let sequences = u32::from_le_bytes(frame[12..16].try_into().unwrap()) as usize;
    for four in frame[32 + 4 * sequences..].chunks_exact_mut(4) {
        four.copy_from_slice(&value.to_le_bytes());
    }
    message(link, frames.len() as u64, vec![frame.into()]);
}

fn piece(link: &Link, part: FrameBody) {
    let _gone = link.send_frame(Frame { part: Some(part) });
}

fn head(link: &Link, lengths: &[u64]) {
    piece(link, FrameBody::Head(Head { id: 1, meta: Bytes::new(), lengths: lengths.to_vec() }));
}

const FAULTS: [Fault; 21] = [
    Fault {
        name: "a frame twice",
        at: 0,
        acts: |link, frames| {
            send(link, frames);
            send(link, frames);
        },
        told: "kind is forward, expected backward",
    },
    Fault {
        name: "a gradient twice",
        at: 1,
        acts: |link, frames| {
            send(link, frames);
            send(link, frames);
        },
        told: "kind is backward, expected forward",
    },
    Fault {
        name: "an old frame again",
        at: 2,
        acts: |link, frames| message(link, 3, vec![frames[0].clone().into()]),
        told: "step is 0, expected 1",
    },
    Fault {
        name: "a gradient before its rows",
        at: 0,
        acts: |link, frames| with(link, frames, 4, &[4]),
        told: "kind is backward, expected forward",
    },
    Fault {
        name: "a step in the future",
        at: 0,
        acts: |link, frames| with(link, frames, 8, &[5]),
        told: "step is 5, expected 0",
    },
    Fault {
        name: "rows of another width",
        at: 0,
        acts: |link, frames| with(link, frames, 20, &[17]),
        told: "width of a row is 17, expected 16",
    },
    Fault {
        name: "gradients of fewer rows",
        at: 1,
        acts: |link, frames| with(link, frames, 16, &[1, 0, 0, 0]),
        told: "number of rows is 1, expected",
    },
    Fault {
        name: "another encoding",
        at: 0,
        acts: |link, frames| with(link, frames, 5, &[1]),
        told: "encoding is code 1, expected f32",
    },
    Fault {
        name: "a frame cut short",
        at: 0,
        acts: |link, frames| {
            let frame = &frames[0][..frames[0].len() - 4];
            message(link, 1, vec![frame.to_vec().into()]);
        },
        told: "number of bytes is",
    },
    Fault {
        name: "a sequence of length 0",
        at: 0,
        acts: |link, frames| with(link, frames, 32, &[0; 4]),
        told: "length of sequence is 0, expected 1 to 24",
    },
    Fault {
        name: "a sequence past the longest",
        at: 0,
        acts: |link, frames| with(link, frames, 32, &[25, 0, 0, 0]),
        told: "length of sequence is 25, expected 1 to 24",
    },
    Fault {
        name: "a number that is none",
        at: 0,
        acts: |link, frames| filled(link, frames, f32::NAN),
        told: "value is NaN, expected finite numbers",
    },
    Fault {
        name: "rows that overflow in the blocks",
        at: 0,
        acts: |link, frames| filled(link, frames, 3e38),
        told: "expected finite numbers",
    },
    Fault {
        name: "gradients that overflow in the blocks",
        at: 1,
        acts: |link, frames| filled(link, frames, 3e38),
        told: "finite number",
    },
    Fault {
        name: "two billion rows on a header's word",
        at: 0,
        acts: |link, frames| with(link, frames, 16, &[0, 0, 0, 0x80]),
        told: "number of rows is 2147483648, expected at most 65536",
    },
    Fault {
        name: "a terabyte declared",
        at: 0,
        acts: |link, _| head(link, &[1 << 40]),
        told: "declares 1099511627776 bytes of payloads, expected at most",
    },
    Fault {
        name: "an oversized frame",
        at: 0,
        acts: |link, _| piece(link, FrameBody::Chunk(Bytes::from(vec![0; 16 * CHUNK]))),
        told: "too large",
    },
    Fault {
        name: "a stream without end",
        at: 0,
        acts: |link, _| {
            head(link, &[10]);
            for _ in 0..1000 {
                piece(link, FrameBody::Chunk(Bytes::from(vec![1; 6])));
            }
        },
        told: "found a chunk of 6 bytes, expected 1 to 4",
    },
    Fault {
        name: "nothing in a message",
        at: 0,
        acts: |link, _| message(link, 1, Vec::new()),
        told: "another number of payloads, expected one frame",
    },
    Fault {
        name: "two frames in a message",
        at: 0,
        acts: |link, frames| {
            let frame = Bytes::from(frames[0].clone());
            message(link, 1, vec![frame.clone(), frame]);
        },
        told: "another number of payloads, expected one frame",
    },
    Fault {
        name: "never heard of",
        at: 0,
        acts: |link, _| message(link, 1, vec![Bytes::from_static(b"GET / HTTP/1.1")]),
        told: "number of bytes is 14, expected at least 32",
    },
];

/// Opens a stream and says hello, and no more.
fn greet(address: &str, client: &str, purpose: Purpose) -> (Runtime, Link) {
    let runtime = Runtime::start().unwrap();
    let dialer = Dialer::new(address, &ServerSecurity::Plain).unwrap();
    let link = dialer.open(&runtime, CUT, row_limits(16)).unwrap();
    let (round, trains) = match purpose {
        Purpose::Train(round) => (round, true),
        Purpose::Score(round) | Purpose::Probe(round) => (round, false),
    };
    let client = client.to_owned();
    let hello = CutHello { protocol: PROTOCOL, client, round, trains, process: 1 };
    let meta = serde_json::to_vec(&hello).unwrap().into();
    link.send(Message { id: 0, meta, payloads: Vec::new() }).unwrap();
    (runtime, link)
}

/// A way to the server's half that misbehaves once.
#[derive(Clone)]
struct Faulty {
    address: String,
    fault: Fault,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.fault.name)
    }
}

impl Connect for Faulty {
    fn connect(&self, _: ClientId, purpose: Purpose) -> Result<Box<dyn Peer + '_>, ClientError> {
        let (runtime, link) = greet(&self.address, "hospital-3", purpose);
        Ok(Box::new(FaultyLink { link, _runtime: runtime, frames: Vec::new(), fault: self.fault }))
    }
}

struct FaultyLink {
    link: Link,
    _runtime: Runtime,
    frames: Vec<Vec<u8>>,
    fault: Fault,
}

impl Peer for FaultyLink {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let told = |error: NetError| ClientError::Peer { reason: error.to_string() };
        let is_due = self.frames.len() as u64 == self.fault.at;
        self.frames.push(frame);
        if !is_due {
            send(&self.link, &self.frames);
            let answer = self.link.receive(SOON).map_err(told)?;
            return Ok(answer.payloads[0].to_vec());
        }
        (self.fault.acts)(&self.link, &self.frames);
        loop {
            self.link.receive(SOON).map_err(told)?;
        }
    }
}

fn split(mode: SplitMode) -> SplitConfig {
    SplitConfig { mode, ..SplitConfig::new(ClientBlocks { first: 0, last: 1 }) }
}

/// What is different about one of the hospitals.
type Way = Box<dyn FnOnce(&str) -> Arc<dyn Connect>>;

/// One round of three hospitals, of which one goes its own way to the server's half.
fn one_round(
    of: (&World, &SplitConfig),
    options: FleetOptions,
    odd: (u32, Way),
) -> (Vec<u32>, RoundReport, String) {
    one_round_of_many(of, options, BTreeMap::from([odd]))
}

/// One round of all hospitals, of which some go their own ways.
fn one_round_of_many(
    (world, split): (&World, &SplitConfig),
    options: FleetOptions,
    mut odd: BTreeMap<u32, Way>,
) -> (Vec<u32>, RoundReport, String) {
    let recipe = recipe("fedavg", "{}", |recipe| {
        recipe.split = Some(split.clone());
        recipe.evaluation.on = Vec::new();
        recipe.work.epochs = 2;
    });
    let place = tempfile::tempdir().unwrap();
    let middle = middle(world, split, &world.local());
    let (mut fleet, told) = world.listen_cut(place.path(), options, &middle);
    let address = fleet.address();
    let runtime = Arc::new(Runtime::start().unwrap());
    let odd_ones: Vec<u32> = odd.keys().copied().collect();
    let sites: Vec<Joined> = (0..world.shards.clients.len() as u32)
        .map(|number| {
            let mut client = world.client(number);
            let name = client.info.name.clone();
            let connect: Arc<dyn Connect> = match odd.remove(&number) {
                Some(way) => way(&address),
                None => Arc::new(honest(&runtime, &address, &client)),
            };
            (client.connect, client.noise_seed) = (Some(connect), Seed(5));
            Joined::start(client, &address, place.path().join(name))
        })
        .collect();
    begin(&mut fleet);
    let (model, mut reports) = run_cut(world, &recipe, (&mut fleet, 1), middle);
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for (number, site) in sites.into_iter().enumerate() {
        site.stop();
        if !odd_ones.contains(&(number as u32)) {
            site.end().unwrap();
        }
    }
    (model, reports.remove(0), told.all())
}

fn honest(runtime: &Arc<Runtime>, address: &str, client: &Client) -> CutDialer {
    let dialer = Dialer::new(address, &ServerSecurity::Plain).unwrap();
    CutDialer::new((runtime.clone(), dialer), client.info.name.clone(), 16)
}

/// Never gets through.
#[derive(Debug)]
struct Absent;

impl Connect for Absent {
    fn connect(&self, _: ClientId, _: Purpose) -> Result<Box<dyn Peer + '_>, ClientError> {
        Err(ClientError::Peer { reason: "absent".to_owned() })
    }
}

fn absent() -> Way {
    Box::new(|_| Arc::new(Absent))
}

fn check_faults(mode: SplitMode) {
    let (world, split) = (World::new(3), split(mode));
    let (without, ..) = one_round((&world, &split), options(), (2, absent()));
    for fault in FAULTS {
        let way: Way =
            Box::new(move |address| Arc::new(Faulty { address: address.to_owned(), fault }));
        let (model, report, _) = one_round((&world, &split), options(), (2, way));
        let RoundReport { arrived, failed, .. } = &report;
        assert_eq!(arrived.len(), 2, "{mode:?}, {}: {failed:?}", fault.name);
        let reason = &failed[0].reason;
        assert!(reason.contains(fault.told), "{mode:?}, {}: {reason}", fault.name);
        // A joint step that a client took part in cannot be undone.
        if mode != SplitMode::Batched || fault.at == 0 {
            assert!(model == without, "{mode:?}, {}: the others' model differs", fault.name);
        }
        assert!(model.iter().all(|bits| f32::from_bits(*bits).is_finite()), "{}", fault.name);
    }
}

#[test]
fn a_client_that_breaks_a_rule_at_the_cut_is_told_so_and_the_others_lose_nothing() {
    check_faults(SplitMode::Replicated);
}

#[test]
fn so_it_is_where_clients_take_turns() {
    check_faults(SplitMode::Sequential);
}

#[test]
fn so_it_is_where_clients_step_together() {
    check_faults(SplitMode::Batched);
}

/// Loses its connection in the middle of a step, some number of times.
struct Unlucky {
    dialer: CutDialer,
    /// How often its socket still breaks.
    left: AtomicU32,
    /// The exchange after whose answer it does.
    after: u32,
}

struct Breaking<'a> {
    peer: Option<Box<dyn Peer + 'a>>,
    owner: &'a Unlucky,
    exchanges: u32,
}

impl Connect for Unlucky {
    fn connect(&self, id: ClientId, to: Purpose) -> Result<Box<dyn Peer + '_>, ClientError> {
        let peer = Some(self.dialer.connect(id, to)?);
        Ok(Box::new(Breaking { peer, owner: self, exchanges: 0 }))
    }
}

impl Peer for Breaking<'_> {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        self.exchanges += 1;
        let peer = self.peer.as_mut().unwrap();
        let answer = peer.exchange(frame)?;
        let breaks = |left: u32| left.checked_sub(1);
        let left = &self.owner.left;
        if self.exchanges > self.owner.after
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, breaks).is_ok()
        {
            self.peer = None;
            let lost = NetError::Lost("a broken wire".to_owned());
            return Err(ClientError::Unreachable(Box::new(lost)));
        }
        Ok(answer)
    }
}

fn unlucky(times: u32, after: u32) -> Way {
    Box::new(move |address| {
        let runtime = Arc::new(Runtime::start().unwrap());
        let dialer = Dialer::new(address, &ServerSecurity::Plain).unwrap();
        let dialer = CutDialer::new((runtime, dialer), "hospital-2", 16);
        Arc::new(Unlucky { dialer, left: AtomicU32::new(times), after })
    })
}

#[test]
fn a_connection_that_is_lost_in_mid_step_costs_no_bit_where_nobody_learnt_with_the_client() {
    let world = World::new(3);
    for mode in [SplitMode::Replicated, SplitMode::Sequential] {
        let split = split(mode);
        let (undisturbed, ..) = one_round((&world, &split), options(), (1, unlucky(0, 0)));
        // After the rows and before the gradient; after a whole step; twice.
        for (times, after) in [(1, 0), (1, 2), (2, 1)] {
            let (model, report, _) =
                one_round((&world, &split), options(), (1, unlucky(times, after)));
            assert_eq!(report.arrived.len(), 3, "{mode:?}: {:?}", report.failed);
            assert!(model == undisturbed, "{mode:?}, lost {times} times after {after}");
        }
    }
}

#[test]
fn where_others_have_learnt_with_it_a_client_that_was_lost_is_told_that_it_is_out() {
    let world = World::new(3);
    let batched = split(SplitMode::Batched);
    let averaged = SplitConfig { average_every: Some(1), ..split(SplitMode::Replicated) };
    for (split, after) in [(batched, 0), (averaged, 3)] {
        let (_, report, _) = one_round((&world, &split), options(), (1, unlucky(1, after)));
        assert_eq!(report.arrived.len(), 2, "{split:?}");
        let reason = &report.failed[0].reason;
        assert!(reason.contains("other clients have learned with it since"), "{split:?}: {reason}");
    }
}

/// Opens once what was waited for has happened.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open).unwrap());
    }
}

/// Sends so many frames, and the next one only behind a gate.
struct Stalling {
    dialer: CutDialer,
    frames: u32,
    gate: Gate,
}

struct Stalled<'a> {
    peer: Box<dyn Peer + 'a>,
    frames: u32,
    gate: &'a Gate,
}

impl Connect for Stalling {
    fn connect(&self, id: ClientId, to: Purpose) -> Result<Box<dyn Peer + '_>, ClientError> {
        let peer = self.dialer.connect(id, to)?;
        Ok(Box::new(Stalled { peer, frames: self.frames, gate: &self.gate }))
    }
}

impl Peer for Stalled<'_> {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        if self.frames == 0 {
            self.gate.wait();
        }
        self.frames = self.frames.saturating_sub(1);
        self.peer.exchange(frame)
    }
}

fn stalling(seat: u32, frames: u32, gate: &Gate) -> Way {
    let gate = gate.clone();
    Box::new(move |address| {
        let runtime = Arc::new(Runtime::start().unwrap());
        let dialer = Dialer::new(address, &ServerSecurity::Plain).unwrap();
        let name = format!("hospital-{}", seat + 1);
        let dialer = CutDialer::new((runtime, dialer), name, 16);
        Arc::new(Stalling { dialer, frames, gate })
    })
}

/// Some hospitals stall after so many frames, and nobody else is given up for it.
fn check_stalled(split: &SplitConfig, hospitals: u32, (stalled, frames): (&[u32], u32)) {
    let case = format!("{:?}, {stalled:?} of {hospitals} after {frames} frames", split.mode);
    let (world, gate) = (World::new(hospitals as usize), Gate::default());
    // Long enough for whoever works, and short enough for whoever waits for the end of this test.
    let quick = FleetOptions { deadline: Duration::from_secs(10), ..options() };
    let ways = stalled.iter().map(|seat| (*seat, stalling(*seat, frames, &gate))).collect();
    let (model, report, told) = one_round_of_many((&world, split), quick, ways);
    gate.open();
    let healthy = (0..hospitals).filter(|seat| !stalled.contains(seat));
    let healthy: Vec<ClientId> = healthy.map(ClientId).collect();
    assert_eq!(report.arrived, healthy, "{case}: {:?}\n{told}", report.failed);
    assert!(report.failed_attempts.is_empty(), "{case}: who waited was given up too");
    let given_up: Vec<u32> = report.failed.iter().map(|absence| absence.client.0).collect();
    assert_eq!(given_up, stalled, "{case}");
    for absence in &report.failed {
        assert!(absence.reason.contains("did not answer within 10 s"), "{case}: {absence:?}");
    }
    assert!(model.iter().all(|bits| f32::from_bits(*bits).is_finite()), "{case}");
    // Rows that were in a joint step cannot be taken out of it; all else is as without them.
    if split.mode != SplitMode::Batched || frames == 0 {
        let ways = stalled.iter().map(|seat| (*seat, absent())).collect();
        let (without, ..) = one_round_of_many((&world, split), options(), ways);
        assert!(model == without, "{case}: {told}");
    }
}

/// All cases side by side: most of their time is a deadline.
fn check_every_seat(split: &SplitConfig, frames: u32) {
    std::thread::scope(|scope| {
        for seat in 0..3 {
            scope.spawn(move || check_stalled(split, 3, (&[seat], frames)));
        }
        scope.spawn(move || check_stalled(split, 4, (&[1, 3], frames)));
    });
}

#[test]
fn whoever_stalls_in_a_joint_step_is_given_up_alone_on_every_seat() {
    let batched = split(SplitMode::Batched);
    check_every_seat(&batched, 0);
    check_every_seat(&batched, 1);
}

#[test]
fn so_it_is_where_copies_meet() {
    check_every_seat(&SplitConfig { average_every: Some(1), ..split(SplitMode::Replicated) }, 1);
}

#[test]
fn a_client_that_stalls_in_mid_step_is_given_up_at_the_deadline_and_the_others_arrive() {
    check_every_seat(&split(SplitMode::Replicated), 1);
    check_every_seat(&split(SplitMode::Sequential), 1);
}
