//! A federation of sites, each on a thread, over a network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fedra_client::Observer;
use fedra_engine::{Arrival, ClientInfo, Fleet, RoundProgress};
use fedra_net::{ClientNode, FleetOptions, Left, NetFleet, Start};
use fedra_plan::Round;
use fedra_wire::ClientId;

use crate::deployment::{Clients, Opened};
use crate::world::{Told, World};

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Takes part until the run has finished: a site, the folder with its state, and who listens.
pub type Join = Arc<dyn Fn(&mut ClientNode, &Path, &Told) -> Result<Left, String> + Send + Sync>;

/// Sites that are joined with a fleet.
pub struct Sites<'c> {
    clients: &'c Clients,
    place: tempfile::TempDir,
    join: Join,
    joined: BTreeMap<ClientId, Joined>,
    fleet: Option<NetFleet>,
    told: Told,
}

impl<'c> Sites<'c> {
    /// Starts all sites, and a fleet that waits for them. The fleet is made from the folder of the
    /// server, the options and who listens, and comes with the way to it.
    pub fn open(
        clients: &'c Clients,
        listen: impl FnOnce(&Path, FleetOptions, &Told) -> (NetFleet, Join),
    ) -> Self {
        let (place, told) = (tempfile::tempdir().unwrap(), Told::default());
        let grace = clients.grace;
        let options = FleetOptions { deadline: PATIENCE, grace, ..FleetOptions::default() };
        let (fleet, join) = listen(place.path(), options, &told);
        let joined = BTreeMap::new();
        let mut all = Self { clients, place, join, joined, fleet: Some(fleet), told };
        for number in clients.numbers() {
            all.start(number);
        }
        let observer = all.observer();
        let fleet = all.net_fleet();
        fleet.wait(Start::default()).unwrap().unwrap();
        fleet.open(Round(0), observer).unwrap();
        all
    }

    fn net_fleet(&mut self) -> &mut NetFleet {
        self.fleet.as_mut().unwrap()
    }

    fn start(&mut self, number: ClientId) {
        let folder = self.folder(number).unwrap();
        let client = self.clients.client(number, &folder);
        let (join, told, returns) = (Arc::clone(&self.join), Told::default(), Arc::default());
        let (listener, comes_back) = (told.clone(), Arc::<AtomicBool>::clone(&returns));
        let thread = std::thread::spawn(move || {
            let site = ClientNode::new(client, World::agreement(), &folder);
            let mut site = site.map_err(|error| error.to_string())?;
            loop {
                let left = join(&mut site, &folder, &listener)?;
                if left != Left::Stopped || !comes_back.swap(false, Ordering::SeqCst) {
                    return Ok(left);
                }
                listener.stop.store(false, Ordering::SeqCst);
            }
        });
        self.joined.insert(number, Joined { told, returns, thread });
    }

    fn observer(&self) -> Arc<dyn Observer> {
        let Some((client, rounds)) = &self.clients.restless else {
            return Arc::new(fedra_client::Silent);
        };
        let site = &self.joined[client];
        let (stop, returns) = (Arc::clone(&site.told.stop), Arc::clone(&site.returns));
        Arc::new(Restless { client: *client, rounds: rounds.clone(), stop, returns })
    }
}

impl Opened for Sites<'_> {
    fn fleet(&mut self) -> &mut dyn Fleet {
        self.net_fleet()
    }

    fn leave(&mut self, client: ClientId) {
        let site = self.joined.remove(&client).unwrap();
        site.told.stop.store(true, Ordering::SeqCst);
        assert_eq!(site.end(), Ok(Left::Stopped));
    }

    fn come_back(&mut self, client: ClientId) {
        self.start(client);
        let begun = Instant::now();
        while !self.joined[&client].told.has("joined") {
            assert!(begun.elapsed() < PATIENCE, "{}", self.joined[&client].told.all());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn folder(&self, client: ClientId) -> Option<PathBuf> {
        Some(self.place.path().join(format!("site-{client}")))
    }

    fn finish(mut self: Box<Self>) {
        self.fleet.take().unwrap().end(fedra_net::RunEnd::Complete, "done");
        for (client, site) in std::mem::take(&mut self.joined) {
            assert_eq!(site.end(), Ok(Left::Ended("done".to_owned())), "client {client}");
        }
        if self.clients.restless.is_some() {
            assert!(self.told.has(" left: "), "nobody left: {}", self.told.all());
        }
    }
}

/// After a failure no site is left behind.
impl Drop for Sites<'_> {
    fn drop(&mut self) {
        for (_, site) in std::mem::take(&mut self.joined) {
            site.told.stop.store(true, Ordering::SeqCst);
            let _failed_before = site.thread.join();
        }
    }
}

/// A site on its thread.
struct Joined {
    told: Told,
    /// Whether it comes back at once after it was stopped.
    returns: Arc<AtomicBool>,
    thread: JoinHandle<Result<Left, String>>,
}

impl Joined {
    fn end(self) -> Result<Left, String> {
        self.thread.join().unwrap()
    }
}

/// Makes a site leave when it is about to be asked to train. In every other round it has time to be gone
/// before the request is on its way; in the others it may leave before it has answered, or after.
struct Restless {
    client: ClientId,
    rounds: std::ops::Range<u32>,
    stop: Arc<AtomicBool>,
    returns: Arc<AtomicBool>,
}

impl Observer for Restless {
    fn started(&self, client: &ClientInfo, round: Round) {
        if client.id == self.client && self.rounds.contains(&round.0) {
            self.returns.store(true, Ordering::SeqCst);
            self.stop.store(true, Ordering::SeqCst);
            if round.0 % 2 == 1 {
                std::thread::sleep(Duration::from_millis(150));
            }
        }
    }

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, _progress: &RoundProgress) {}

    fn stops(&self) -> bool {
        false
    }
}
