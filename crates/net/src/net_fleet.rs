//! Clients on other machines, as the engine sees them.
//!
//! The engine asks and blocks; sites come, go and come back. A request stays open while its site is away
//! for a moment, and is sent again when the site is back: a network that hiccups costs time and no bit
//! of the result. A site that stays away, or is too slow, is absent with its reason.
//!
//! The fleet holds one copy of the shared model as clients hold it. It is what a site needs that comes
//! back with an empty memory, or with one that another process of the server filled.

mod answers;
mod asking;
mod options;
mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_client::{Observer, Silent};
use fedra_engine::{
    Absence, Arrival, AttentionRequest, AttentionShift, ClientAttention, ClientInfo, ClientState,
    Download, EngineError, EvaluationRequest, EvaluationSet, Evidence, Fleet, Outcome,
    ProbeRequest, Scored, Split, SplitMode, StateHandle, TrainRequest, Verdict,
};
use fedra_plan::{BlockScores, Layout, Round, Scope};
use fedra_wire::{ClientId, Expectation, Kind, ParamValues, open};
use tokio::sync::mpsc;

use self::answers::{read_evidence, read_reply, unexpected};
pub use self::options::{Census, FleetListener, FleetOptions, Start};
use self::status::Publication;
pub use self::status::{EVENTS, FleetPhase, FleetStatus, STATUS, SiteStatus};
use crate::carrier::{Carrier, Reception};
use crate::error::NetError;
use crate::host::Host;
use crate::journal::Journal;
use crate::peer::WireBytes;
use crate::protocol::{
    Adapt, Agreement, Answer, Counts, JOIN, Label, Request, RunEnd, Step, limits,
};
use crate::roster::{Event, Roster};
use crate::runtime::Runtime;
use crate::server::{Server, ServerOptions};
use crate::service::Routes;
use crate::site::fresh_number;

/// How often somebody who wants to stop is heard while sites are waited for.
const GLANCE: Duration = Duration::from_millis(100);
/// How long sites may take to hear that the run is over.
const FAREWELL: Duration = Duration::from_secs(5);

/// Scores the server's exact model on the set that is the server's.
pub type CentralTest = Box<dyn FnMut(&ParamValues) -> Result<Scored, EngineError>>;

/// What the fleet is made for.
pub struct Federated {
    /// The clients, in the order of their numbers.
    pub names: Vec<String>,
    /// What every site has to have alike.
    pub agreement: Agreement,
    /// The shared model.
    pub layout: Layout,
    /// The values that all start from.
    pub initial: ParamValues,
    /// What else the server answers, beside joining.
    pub routes: Routes,
}

/// A fleet of sites.
pub struct NetFleet {
    host: Arc<Host>,
    events: mpsc::UnboundedReceiver<Event>,
    listener: Box<dyn FleetListener>,
    infos: Vec<ClientInfo>,
    layout: Layout,
    /// The shared model as clients hold it.
    shared: ParamValues,
    /// What of it is no longer what all started from.
    changed: Scope,
    central: CentralTest,
    observer: Arc<dyn Observer>,
    options: FleetOptions,
    round: Round,
    requests: u64,
    publication: Publication,
    // In this order: what carries messages ends before the thread it may run on.
    carrier: Box<dyn Carrier>,
    runtime: Runtime,
}

/// Clients that are named where some have not come.
const MOST_NAMED: usize = 6;

impl NetFleet {
    /// Listens; sites that join wait until the fleet is [opened](NetFleet::open).
    pub fn listen(
        federated: Federated,
        (server, folder): (&ServerOptions, &Path),
        options: FleetOptions,
        listener: Box<dyn FleetListener>,
        central: CentralTest,
    ) -> Result<Self, NetError> {
        let start = |reception: Reception, routes: Routes, runtime: &Runtime| {
            let (hosting, told) = (reception.host(), reception.clone());
            let routes = routes.with(JOIN, move |peer, inbound, out| {
                Arc::clone(&hosting).serve(peer, inbound, out)
            });
            let server = Server::start(runtime, server, routes, move |address, reason| {
                told.turn_away(&address.to_string(), reason);
            })?;
            Ok(Box::new(server) as Box<dyn Carrier>)
        };
        Self::over(federated, (folder, options), (listener, central), start)
    }

    /// A fleet whose messages go over what `start` makes: it brings sites in through the reception.
    pub fn over(
        federated: Federated,
        (folder, options): (&Path, FleetOptions),
        (listener, central): (Box<dyn FleetListener>, CentralTest),
        start: impl FnOnce(Reception, Routes, &Runtime) -> Result<Box<dyn Carrier>, NetError>,
    ) -> Result<Self, NetError> {
        let Federated { names, agreement, layout, initial, routes } = federated;
        let journal = Journal::open(folder, fresh_number())?;
        let mut roster = Roster::new(names.clone(), agreement, (fresh_number(), journal));
        roster.traffic = Arc::clone(routes.traffic());
        let (send, events) = mpsc::unbounded_channel();
        let host = Arc::new(Host::new(roster, send, (limits(&layout), options.memory)));
        let runtime = Runtime::start()?;
        let carrier = start(Reception::new(Arc::clone(&host)), routes, &runtime)?;
        let info =
            |(number, name): (u32, String)| ClientInfo { id: ClientId(number), name, examples: 0 };
        let mut fleet = Self {
            host,
            events,
            listener,
            infos: (0..).zip(names).map(info).collect(),
            layout,
            shared: initial,
            changed: Scope::empty(),
            central,
            observer: Arc::new(Silent),
            options,
            round: Round(0),
            requests: 0,
            publication: Publication::new(folder),
            carrier,
            runtime,
        };
        fleet.count();
        Ok(fleet)
    }

    /// Where sites find it.
    pub fn address(&self) -> String {
        self.carrier.place()
    }

    /// Waits until rounds can begin; `None` when the listener wants to stop instead.
    pub fn wait(&mut self, start: Start) -> Result<Option<Census>, NetError> {
        let begun = Instant::now();
        let (all, mut said) = (self.infos.len(), usize::MAX);
        let needed = start.wait_for.unwrap_or(all).min(all);
        loop {
            let there = self.here();
            let is_time = start.start_after.is_some_and(|after| begun.elapsed() >= after);
            if there >= needed || (is_time && there > 0) {
                // Of a site that has just come, the event may still be on its way.
                self.count();
                self.host.roster().journal.save()?;
                return Ok(Some(self.census()));
            }
            if self.listener.stops() {
                return Ok(None);
            }
            self.publish();
            if said != there {
                said = there;
                let missing = self.missing();
                self.listener.told(&format!("{there} of {all} clients are here{missing}"));
            }
            if let Some(event) = self.event(Instant::now() + GLANCE) {
                self.note(&event);
                if let Event::Severed { reason } = event {
                    return Err(NetError::Lost(reason));
                }
            }
        }
    }

    /// What the sites have.
    fn census(&self) -> Census {
        let roster = self.host.roster();
        let counts = |name: &String| {
            let entry = roster.journal.sites.get(name);
            (name.clone(), entry.map_or_else(Counts::default, |entry| entry.counts))
        };
        roster.names.iter().map(counts).collect()
    }

    /// Begins, or goes on after so many complete rounds.
    pub fn open(
        &mut self,
        completed: Round,
        observer: Arc<dyn Observer>,
    ) -> Result<(), EngineError> {
        (self.round, self.observer) = (completed, observer);
        let mut roster = self.host.roster();
        roster.journal.back_to(completed);
        roster.journal.save().map_err(|error| failure("begin", &error))?;
        roster.open();
        drop(roster);
        self.enter(FleetPhase::Running);
        Ok(())
    }

    /// Sends everybody home after the last round, and waits a moment until they have heard it.
    pub fn finish(self, reason: &str) {
        self.end(RunEnd::Complete, reason);
    }

    /// Sends everybody home from a run that cannot go on.
    pub fn give_up(self, reason: &str) {
        self.end(RunEnd::GaveUp, reason);
    }

    fn end(mut self, how: RunEnd, reason: &str) {
        let end = Request::End { how, reason: reason.to_owned() };
        self.tell_all(&end);
        let until = Instant::now() + FAREWELL;
        while self.here() > 0 && Instant::now() < until {
            let _left = self.event(until);
        }
        self.carrier.close(how, reason);
        self.enter(FleetPhase::Ended);
    }

    /// What went over the sites' connections, by name.
    pub fn traffic(&self) -> Vec<(String, WireBytes)> {
        let roster = self.host.roster();
        let of = |name: &String| (name.clone(), roster.traffic.of(name));
        roster.names.iter().map(of).collect()
    }

    fn here(&self) -> usize {
        let roster = self.host.roster();
        roster.seats.iter().filter(|seat| seat.connection.is_some()).count()
    }

    /// Who has not come, as the end of a sentence.
    fn missing(&self) -> String {
        let roster = self.host.roster();
        let seats = roster.names.iter().zip(&roster.seats);
        let names: Vec<&str> = seats
            .filter(|(_, seat)| seat.connection.is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        let first = names.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
        match names.len() {
            0 => String::new(),
            few if few <= MOST_NAMED => format!("; missing: {first}"),
            many => format!("; missing: {first} and {} more", many - MOST_NAMED),
        }
    }

    /// Reads how many examples the sites have that have come so far.
    fn count(&mut self) {
        let roster = self.host.roster();
        for info in &mut self.infos {
            let entry = roster.journal.sites.get(&info.name);
            info.examples = entry.map_or(0, |entry| entry.counts.train);
        }
    }

    fn seat(&self, client: ClientId) -> Result<usize, EngineError> {
        let seat = client.0 as usize;
        if seat < self.infos.len() {
            return Ok(seat);
        }
        let reason = format!("client {client} is unknown: there are {}", self.infos.len());
        Err(EngineError::Fleet { doing: "find a client", reason })
    }

    /// Notes that an answer counts.
    fn note_answer(&self, seat: usize, step: Step) {
        let label = Label { round: self.round, step };
        self.host.roster().journal.note_answer(&self.infos[seat].name, label);
    }

    fn save_journal(&self) -> Result<(), EngineError> {
        self.host.roster().journal.save().map_err(|error| failure("note answers", &error))
    }

    /// Writes a download on the fleet's copy of the shared model.
    fn receive(&mut self, download: &Download) -> Result<Scope, EngineError> {
        let expected = Expectation {
            layout: &self.layout,
            kind: Kind::Values,
            encoding: download.encoding,
            round: download.round,
            client: ClientId::SERVER,
            scope: None,
        };
        let values = open(&download.payload, &expected)?.tensors();
        let brought = values.scope();
        self.changed = &self.changed | &brought;
        self.shared.absorb(values);
        Ok(brought)
    }
}

impl Fleet for NetFleet {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Absence>, EngineError> {
        // Clients that lack the same share one payload, which is read once.
        let mut read: BTreeMap<*const u8, Scope> = BTreeMap::new();
        let mut brought = BTreeMap::new();
        let mut requests = Vec::with_capacity(downloads.len());
        for download in downloads {
            self.round = download.round;
            let place = download.payload.as_ptr();
            let scope = match read.get(&place) {
                Some(scope) => scope.clone(),
                None => self.receive(download)?,
            };
            read.insert(place, scope.clone());
            let (request, payloads) = Request::of_download(download);
            let seat = self.seat(download.client)?;
            brought.insert(seat, scope);
            requests.push((seat, request, payloads));
        }
        let mut absent = Vec::new();
        let brings = |seat: usize| brought.get(&seat).cloned().unwrap_or_default();
        for (seat, answer) in self.ask_all(requests, brings)? {
            let reason = match answer {
                Ok((Answer::Synced, _)) => continue,
                Ok((answer, _)) => unexpected(answer, "that it is up to date"),
                Err(reason) => reason,
            };
            absent.push(Absence { client: ClientId(seat as u32), reason });
        }
        Ok(absent)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let ProbeRequest { probe, clients, round, seed, examples, noise, split } = *request;
        let (seed, split) = (seed.0, split.cloned());
        let asked = Request::Probe { probe, round, seed, examples, noise, split };
        let requests =
            clients.iter().map(|client| Ok((self.seat(*client)?, asked.clone(), vec![])));
        let requests = requests.collect::<Result<_, EngineError>>()?;
        let blocks = self.layout.blocks();
        let mut all = Vec::new();
        for (seat, answer) in self.ask_all(requests, nothing)? {
            let client = ClientId(seat as u32);
            let evidence = match answer {
                Ok((Answer::Evidence, payloads)) => {
                    read_evidence(&payloads, (round, client, blocks)).and_then(|scores| {
                        let scores = BlockScores::new(probe, scores);
                        scores.map_err(|error| error.to_string())
                    })
                }
                Ok((answer, _)) => Err(unexpected(answer, "scores")),
                Err(reason) => Err(reason),
            };
            match evidence {
                Ok(scores) => all.push(Evidence { client, scores }),
                // A client without an answer follows the others.
                Err(reason) => self.told(seat, "measured nothing", &reason),
            }
        }
        Ok(all)
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let asked = Request::CompareAttention { round: self.round, seed: request.seed.0 };
        let requests =
            request.clients.iter().map(|client| Ok((self.seat(*client)?, asked.clone(), vec![])));
        let requests = requests.collect::<Result<_, EngineError>>()?;
        let mut all = Vec::new();
        for (seat, answer) in self.ask_all(requests, nothing)? {
            let moved = match answer {
                Ok((Answer::FirstLook, _)) => None,
                Ok((Answer::Attention { since_first, since_last }, _)) => {
                    Some(AttentionShift { since_first, since_last })
                }
                Ok((answer, _)) => {
                    self.told(seat, "did not look", &unexpected(answer, "attention"));
                    continue;
                }
                Err(reason) => {
                    self.told(seat, "did not look", &reason);
                    continue;
                }
            };
            self.note_answer(seat, Step::Looked);
            all.push(ClientAttention { client: ClientId(seat as u32), moved });
        }
        self.save_journal()?;
        Ok(all)
    }

    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        let mut asked = BTreeMap::new();
        for request in &requests {
            let seat = self.seat(request.client)?;
            let written = Request::of_training(request, &self.layout);
            let (written, payloads) = written.map_err(|error| failure("ask a site", &error))?;
            self.observer.started(&self.infos[seat], request.round);
            asked.insert(seat, self.ask(seat, (&written, payloads), Scope::empty())?);
        }
        let waits_for_others =
            requests.iter().any(|request| waits_for_others(request.split.as_deref()));
        while let Some((seat, answer)) = self.next(&mut asked)? {
            if waits_for_others {
                // Whoever waited for this client could not answer before: its time begins now.
                let deadline = Instant::now() + self.options.deadline;
                for open in asked.values_mut() {
                    open.renew(deadline);
                }
            }
            let outcome = match answer {
                Ok((Answer::Trained { seconds, memory, noise }, payloads)) => {
                    read_reply(payloads, (seconds, memory, noise))
                }
                Ok((answer, _)) => Outcome::Failed(unexpected(answer, "an update")),
                Err(reason) => Outcome::Failed(reason),
            };
            let arrival = Arrival { client: ClientId(seat as u32), outcome };
            self.observer.finished(&self.infos[seat], self.round, &arrival);
            let verdict = arrive(arrival)?;
            if verdict == Verdict::Taken {
                self.note_answer(seat, Step::Trained);
            }
            self.tell(seat, &Request::Settle);
        }
        self.save_journal()
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let EvaluationRequest { on, model, adapt, round, seed, split } = *request;
        if on == EvaluationSet::CentralTest {
            return Ok(vec![(self.central)(model)?]);
        }
        let adapt = adapt.map(Adapt::from);
        let split = split.cloned();
        let asked = Request::Evaluate { on, adapt, round, seed: seed.0, split };
        let has_some = |counts: &Counts| match on {
            EvaluationSet::CentralTest => false,
            EvaluationSet::ClientValidation => counts.validation > 0,
            EvaluationSet::ClientTest => counts.test > 0,
        };
        let census = self.census();
        let seats = census.iter().enumerate().filter(|(_, (_, counts))| has_some(counts));
        let requests = seats.map(|(seat, _)| (seat, asked.clone(), vec![])).collect();
        let mut all = Vec::new();
        for (seat, answer) in self.ask_all(requests, nothing)? {
            let client = Some(ClientId(seat as u32));
            match answer {
                Ok((Answer::Scored { scored }, _)) => {
                    all.extend(scored.map(|scored| Scored { client, ..scored }));
                }
                Ok((answer, _)) => {
                    self.told(seat, "scored nothing", &unexpected(answer, "scores"));
                }
                Err(reason) => self.told(seat, "scored nothing", &reason),
            }
        }
        Ok(all)
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        let forget = self.host.roster().journal.note_forget(part);
        self.save_journal()?;
        self.tell_all(&Request::Forget(forget));
        Ok(())
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        for client in clients {
            let seat = self.seat(*client)?;
            let name = &self.infos[seat].name;
            let _base = self.host.roster().journal.revoke(name, self.round);
            self.tell(seat, &Request::Settle);
        }
        self.save_journal()
    }

    /// They keep it themselves.
    fn states(&self) -> Vec<StateHandle> {
        Vec::new()
    }

    /// Sites have their states; what they lack of the model they are sent when they are asked.
    fn restore(
        &mut self,
        shared: &ParamValues,
        _states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        let differs = |(id, values): &(_, &[f32])| self.shared.get(*id) != Some(values);
        self.changed = shared.iter().filter(differs).map(|(id, _)| id).collect();
        self.shared = shared.clone();
        Ok(())
    }
}

impl NetFleet {
    fn told(&self, seat: usize, what: &str, reason: &str) {
        self.listener.told(&format!("{} {what}: {reason}", self.infos[seat].name));
    }
}

impl std::fmt::Debug for NetFleet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (clients, address) = (self.infos.len(), self.carrier.place());
        let mut shown = formatter.debug_struct("NetFleet");
        shown.field("clients", &clients).field("address", &address).finish_non_exhaustive()
    }
}

/// Whether a client's training may have to wait for another client's.
fn waits_for_others(split: Option<&Split>) -> bool {
    split.is_some_and(|split| match split.mode {
        SplitMode::Sequential | SplitMode::Batched => true,
        SplitMode::Replicated => split.average_every.is_some(),
    })
}

/// What a request brings of the shared model that is no download.
fn nothing(_seat: usize) -> Scope {
    Scope::empty()
}

fn failure(doing: &'static str, error: &NetError) -> EngineError {
    EngineError::Fleet { doing, reason: error.to_string() }
}
