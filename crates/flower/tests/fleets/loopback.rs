//! Our own network, on this machine.

use std::path::Path;
use std::sync::Arc;

use fedra_net::{
    ClientNode, Dialer, FleetOptions, NetFleet, Routes, Runtime, ServerOptions, ServerSecurity,
    join,
};

use crate::deployment::{Clients, Deployment, Opened};
use crate::sites::{Join, Sites};
use crate::world::Told;

/// A server that listens on a free port.
pub struct Loopback;

impl Deployment for Loopback {
    fn loses_clients(&self) -> bool {
        true
    }

    fn open<'c>(&'c self, clients: &'c Clients) -> Box<dyn Opened + 'c> {
        let listen = |folder: &Path, options: FleetOptions, told: &Told| {
            let world = &clients.world;
            let server = ServerOptions::new("127.0.0.1:0".parse().unwrap(), ServerSecurity::Plain);
            let (federated, place) = (world.federated(Routes::default()), (&server, folder));
            let listener = Box::new(told.clone());
            let fleet = NetFleet::listen(federated, place, options, listener, world.central());
            let fleet = fleet.unwrap();
            let address = fleet.address();
            let way: Join = Arc::new(move |site: &mut ClientNode, _folder: &Path, told: &Told| {
                let runtime = Runtime::start().map_err(|error| error.to_string())?;
                let dialer = Dialer::new(&address, &ServerSecurity::Plain);
                let dialer = dialer.map_err(|error| error.to_string())?;
                join(site, (&runtime, &dialer), told).map_err(|error| error.to_string())
            });
            (fleet, way)
        };
        Box::new(Sites::open(clients, listen))
    }
}
