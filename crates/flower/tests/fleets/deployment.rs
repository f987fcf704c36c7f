//! How a coordinator reaches its clients: the one thing in which the runs of a case differ.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fedra_client::{Agreed, Client, LocalFleet, PrivacyGuard};
use fedra_compute::{SecretKey, Seed};
use fedra_engine::Fleet;
use fedra_privacy::Guarantee;
use fedra_wire::ClientId;

use crate::world::World;

/// The file in which a site counts what it released.
pub const LEDGER: &str = "ledger.jsonl";

/// One way to run a federation.
pub trait Deployment {
    /// Whether clients can go away: those of one process are always there.
    fn loses_clients(&self) -> bool;

    /// Brings all clients together, before their first round.
    fn open<'c>(&'c self, clients: &'c Clients) -> Box<dyn Opened + 'c>;
}

/// A federation whose clients are there.
pub trait Opened {
    fn fleet(&mut self) -> &mut dyn Fleet;

    /// Ends a client where one can go away.
    fn leave(&mut self, client: ClientId);

    /// Starts it again, with nothing but what it kept on its disk.
    fn come_back(&mut self, client: ClientId);

    /// Where a client keeps what is its own, if that is a folder.
    fn folder(&self, client: ClientId) -> Option<PathBuf>;

    /// The run has finished, and all clients hear it.
    fn finish(self: Box<Self>);
}

/// Who takes part.
pub struct Clients {
    pub world: World,
    /// What each guarantees to those whose examples it holds.
    pub guarantee: Option<Guarantee>,
    /// How long a client that was lost is waited for.
    pub grace: Duration,
    /// One that leaves whenever it is asked to train in these rounds, and comes back at once.
    pub restless: Option<(ClientId, std::ops::Range<u32>)>,
}

impl Clients {
    pub fn new(world: World) -> Self {
        Self { world, guarantee: None, grace: Duration::from_mins(2), restless: None }
    }

    pub fn numbers(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..self.world.shards.clients.len() as u32).map(ClientId)
    }

    /// A client on its own, with its key and its ledger where it has guaranteed something.
    pub fn client(&self, number: ClientId, folder: &Path) -> Client {
        let mut client = self.world.client(number.0);
        let Some(guarantee) = self.guarantee else { return client };
        std::fs::create_dir_all(folder).unwrap();
        let guard = PrivacyGuard::open(guarantee, folder.join(LEDGER), Agreed::default()).unwrap();
        (client.secret, client.guard) = (secret().with(u64::from(number.0)), Some(guard));
        client
    }
}

/// Where the noise of all clients starts.
fn secret() -> SecretKey {
    SecretKey::simulated(Seed(11))
}

/// Clients as threads.
pub struct OneProcess;

impl Deployment for OneProcess {
    fn loses_clients(&self) -> bool {
        false
    }

    fn open<'c>(&'c self, clients: &'c Clients) -> Box<dyn Opened + 'c> {
        Box::new(clients.world.local().with_secret(&secret()))
    }
}

impl Opened for LocalFleet {
    fn fleet(&mut self) -> &mut dyn Fleet {
        self
    }

    fn leave(&mut self, _client: ClientId) {}

    fn come_back(&mut self, _client: ClientId) {}

    fn folder(&self, _client: ClientId) -> Option<PathBuf> {
        None
    }

    fn finish(self: Box<Self>) {}
}
