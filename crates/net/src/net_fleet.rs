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
mod away;
mod options;
mod publishing;
mod rounds;
mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_client::{Observer, ServerSegment, Silent};
use fedra_engine::{ClientInfo, EngineError, Scored};
use fedra_plan::{Layout, Round, Scope};
use fedra_wire::{ClientId, ParamValues};
use tokio::sync::mpsc;

pub use self::options::{CountsByClient, FleetOptions, Start};
use self::status::Publication;
pub use self::status::{EVENTS, FleetPhase, FleetStatus, STATUS, SiteStatus};
use crate::carrier::{Carrier, Reception};
use crate::error::NetError;
use crate::host::Host;
use crate::journal::Journal;
use crate::listener::Listener;
use crate::peer::WireBytes;
use crate::protocol::{ConfigFingerprint, Counts, JOIN, Request, RunEnd, limits};
use crate::registry::{Event, Registry, Slot};
use crate::runtime::Runtime;
use crate::server::{Server, ServerOptions};
use crate::service::Routes;
use crate::site::fresh_number;

/// How long sites that are connected may take to hear that the run has finished.
const FAREWELL: Duration = Duration::from_secs(5);

/// Scores the server's exact model on the set that is the server's; whoever observes it may stop it.
pub type CentralTest = Box<dyn FnMut(&ParamValues, &dyn Observer) -> Result<Scored, EngineError>>;

/// What the fleet is made for.
pub struct Federated {
    /// The clients, in the order of their numbers.
    pub names: Vec<String>,
    /// What every site has to have alike.
    pub agreement: ConfigFingerprint,
    /// The shared model.
    pub layout: Layout,
    /// Clients, by name, whose adapters have a lower rank.
    pub ranks: BTreeMap<String, u16>,
    /// The values that all start from.
    pub initial: ParamValues,
    /// What else the server answers, beside joining.
    pub routes: Routes,
}

/// A fleet of sites.
pub struct NetFleet {
    host: Arc<Host>,
    events: mpsc::UnboundedReceiver<Event>,
    listener: Box<dyn Listener>,
    infos: Vec<ClientInfo>,
    layout: Layout,
    ranks: BTreeMap<String, u16>,
    /// The shared model as clients hold it.
    shared: ParamValues,
    /// Adapters as clients hold them that have a lower rank, by the rank; those of the shared model unless here.
    narrow: BTreeMap<u16, ParamValues>,
    /// What of it is no longer what all started from.
    changed: Scope,
    central: CentralTest,
    observer: Arc<dyn Observer>,
    options: FleetOptions,
    round: Round,
    requests: u64,
    publication: Publication,
    /// The server's half of a cut model: it knows who waits for whom.
    middle: Option<Arc<ServerSegment>>,
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
        listener: Box<dyn Listener>,
        central: CentralTest,
    ) -> Result<Self, NetError> {
        let start = |reception: Reception, routes: Routes, runtime: &Runtime| {
            let (hosting, told) = (Arc::clone(&reception), reception);
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
        (listener, central): (Box<dyn Listener>, CentralTest),
        start: impl FnOnce(Reception, Routes, &Runtime) -> Result<Box<dyn Carrier>, NetError>,
    ) -> Result<Self, NetError> {
        let Federated { names, agreement, layout, ranks, initial, routes } = federated;
        let journal = Journal::open(folder, fresh_number())?;
        let shared = (Arc::clone(&routes.traffic), Arc::clone(&routes.processes));
        let roster = Registry::new(names.clone(), agreement, (fresh_number(), journal), shared);
        let (send, events) = mpsc::unbounded_channel();
        let host = Arc::new(Host::new(roster, send, (limits(&layout), options.memory)));
        let middle = routes.middle.clone();
        let runtime = Runtime::start()?;
        let carrier = start(Arc::clone(&host), routes, &runtime)?;
        let info =
            |(number, name): (u32, String)| ClientInfo { id: ClientId(number), name, examples: 0 };
        let mut fleet = Self {
            host,
            events,
            listener,
            infos: (0..).zip(names).map(info).collect(),
            layout,
            ranks,
            shared: initial,
            narrow: BTreeMap::new(),
            changed: Scope::empty(),
            central,
            observer: Arc::new(Silent),
            options,
            round: Round(0),
            requests: 0,
            publication: Publication::new(folder),
            middle,
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
    pub fn wait(&mut self, start: Start) -> Result<Option<CountsByClient>, NetError> {
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
                if there < all {
                    let missing = self.missing();
                    self.listener.told(&format!("starting without {missing}: they may join later"));
                }
                return Ok(Some(self.census()));
            }
            if self.listener.stops() {
                return Ok(None);
            }
            self.publish();
            if said != there {
                said = there;
                let missing = if there < all {
                    format!("; missing: {}", self.missing())
                } else {
                    String::new()
                };
                self.listener.told(&format!("{there} of {all} clients have joined{missing}"));
            }
            self.glance(None).map_err(NetError::Lost)?;
        }
    }

    /// What the sites have.
    fn census(&self) -> CountsByClient {
        let roster = self.host.roster();
        let counts = |name: &String| {
            let entry = roster.journal.sites.get(name);
            (name.clone(), entry.map_or_else(Counts::default, |entry| entry.counts))
        };
        roster.names.iter().map(counts).collect()
    }

    /// Begins, or continues after so many complete rounds.
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

    /// Leaves a run that is resumed another time; sites wait for that.
    pub fn pause(mut self) {
        self.publication.written = None;
        self.publish();
    }

    /// Tells all clients that the run is complete or was given up, and closes.
    pub fn end(mut self, how: RunEnd, reason: &str) {
        let end = Request::End { how, reason: reason.to_owned() };
        self.enter(FleetPhase::Ended);
        self.host.roster().ended = Some(end.clone());
        self.tell_all(&end);
        match how {
            RunEnd::Complete => self.wait_for_uninformed(),
            // Whoever is away waits for a server that can go on.
            RunEnd::GaveUp => {}
        }
        let until = Instant::now() + FAREWELL;
        let is_here = |seat: &Slot| seat.connection.is_some();
        while !self.uninformed(is_here).is_empty() && Instant::now() < until {
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

    /// The clients that are not connected now.
    pub fn absent(&self) -> Vec<String> {
        self.away(|_| true).into_iter().map(|seat| self.infos[seat].name.clone()).collect()
    }

    /// Who has not come.
    fn missing(&self) -> String {
        self.names_of(&self.away(|_| true))
    }

    /// Reads how many examples the sites have that have come so far.
    fn count(&mut self) {
        let roster = self.host.roster();
        for info in &mut self.infos {
            let entry = roster.journal.sites.get(&info.name);
            info.examples = entry.map_or(0, |entry| entry.counts.train);
        }
    }
}

fn failure(doing: &'static str, error: &NetError) -> EngineError {
    EngineError::Fleet { doing, reason: error.to_string() }
}
