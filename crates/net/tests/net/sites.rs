//! Sites on threads, and fleets that listen for them on loopback.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fedra_client::{Client, ServerSegment, to_values};
use fedra_compute::Seed;
use fedra_engine::{Federation, Fleet, Recipe, RoundReport};
use fedra_net::{
    ClientNode, Dialer, FleetOptions, Left, NetError, NetFleet, Routes, Runtime, ServerOptions,
    ServerSecurity, Start, join, with_middle,
};

use crate::world::{Reports, Told, World, bits};

impl World {
    /// A fleet that listens on a free port of this machine.
    pub fn listen(&self, folder: &Path, options: FleetOptions) -> (NetFleet, Told) {
        self.listen_with(ServerSecurity::Plain, folder, options)
    }

    pub fn listen_with(
        &self,
        security: ServerSecurity,
        folder: &Path,
        options: FleetOptions,
    ) -> (NetFleet, Told) {
        self.listen_to(security, folder, (options, None))
    }

    /// The same with the server's half of a cut model.
    pub fn listen_cut(
        &self,
        folder: &Path,
        options: FleetOptions,
        middle: &Arc<ServerSegment>,
    ) -> (NetFleet, Told) {
        self.listen_to(ServerSecurity::Plain, folder, (options, Some(middle)))
    }

    fn listen_to(
        &self,
        security: ServerSecurity,
        folder: &Path,
        (options, middle): (FleetOptions, Option<&Arc<ServerSegment>>),
    ) -> (NetFleet, Told) {
        let told = Told::default();
        let routes = match middle {
            None => Routes::default(),
            Some(middle) => with_middle(Routes::default(), middle, &self.names()),
        };
        let server = ServerOptions::new("127.0.0.1:0".parse().unwrap(), security);
        let (place, listener) = ((&server, folder), Box::new(told.clone()));
        let federated = self.federated(routes);
        let fleet = NetFleet::listen(federated, place, options, listener, self.central());
        (fleet.unwrap(), told)
    }
}

/// A site on a thread.
pub struct Joined {
    pub told: Told,
    thread: JoinHandle<Result<Left, NetError>>,
}

impl Joined {
    pub fn start(client: Client, address: &str, folder: PathBuf) -> Self {
        Self::start_with(client, (address, &ServerSecurity::Plain), folder)
    }

    pub fn start_with(
        client: Client,
        (address, security): (&str, &ServerSecurity),
        folder: PathBuf,
    ) -> Self {
        Self::start_by(client, Dialer::new(address, security).unwrap(), folder)
    }

    /// One that has a second's patience.
    pub fn start_giving_up(client: Client, address: &str, folder: PathBuf) -> Self {
        let mut dialer = Dialer::new(address, &ServerSecurity::Plain).unwrap();
        dialer.patience = Some(Duration::from_secs(1));
        Self::start_by(client, dialer, folder)
    }

    fn start_by(client: Client, dialer: Dialer, folder: PathBuf) -> Self {
        let told = Told::default();
        let listener = told.clone();
        let thread = std::thread::spawn(move || {
            let mut site = ClientNode::new(client, World::agreement(), &folder)?;
            let runtime = Runtime::start()?;
            join(&mut site, (&runtime, &dialer), &listener)
        });
        Self { told, thread }
    }

    /// Waits until it has said something.
    pub fn wait_for(&self, part: &str) {
        wait_until(part, || self.told.has(part));
    }

    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn stop(&self) {
        self.told.stop.store(true, Ordering::SeqCst);
    }

    pub fn end(self) -> Result<Left, NetError> {
        self.thread.join().unwrap()
    }
}

/// Waits as long as anything may take on a busy machine.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(2), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All sites of a world, each with a certificate.
pub fn join_all_with(
    world: &World,
    address: &str,
    (folder, securities): (&Path, &[ServerSecurity]),
) -> Vec<Joined> {
    let one = |(number, security): (u32, &ServerSecurity)| {
        let name = &world.shards.clients[number as usize].name;
        Joined::start_with(world.client(number), (address, security), folder.join(name))
    };
    (0..).zip(securities).map(one).collect()
}

/// All sites of a world.
pub fn join_all(world: &World, address: &str, folder: &Path) -> Vec<Joined> {
    let one = |number: u32| {
        let name = &world.shards.clients[number as usize].name;
        Joined::start(world.client(number), address, folder.join(name))
    };
    (0..world.shards.clients.len() as u32).map(one).collect()
}

pub type Outcome = (Vec<u32>, Vec<RoundReport>);

/// Runs a recipe from the start.
pub fn run(world: &World, recipe: &Recipe, fleet: &mut dyn Fleet, rounds: u32) -> Outcome {
    let initial = to_values(&world.params);
    let layout = world.model.layout().clone();
    let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
    let mut reports = Reports::default();
    federation.run(fleet, &mut [&mut reports], rounds, &|| false).unwrap();
    (bits(federation.model()), reports.0)
}

/// Waits for all sites and opens the fleet before its first round.
pub fn begin(fleet: &mut NetFleet) {
    fleet.wait(Start::default()).unwrap().unwrap();
    fleet.open(fedra_plan::Round(0), Arc::new(fedra_client::Silent)).unwrap();
}

pub const QUICK: Duration = Duration::from_secs(20);

pub fn options() -> FleetOptions {
    FleetOptions { deadline: QUICK, ..FleetOptions::default() }
}
