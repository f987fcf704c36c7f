//! `clients.json`: whose numbers a run's log has, and how many rows each of them brought.
//!
//! Reports name clients by their numbers, a line for each round and thousands of clients. This file says
//! once who they are. It is there from the first round on; folders of earlier versions do without it.

use std::path::Path;

use fedra_data::printable;
use fedra_engine::{ClientId, ClientInfo};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::folder::json_file;
use crate::prepare::client_counts::{ClientCounts, CountsOfClient};
use crate::run_files::CLIENTS;

/// All clients of a run, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientNames {
    /// Each of them.
    pub clients: Vec<NamedClient>,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedClient {
    /// Its number in the log.
    pub client: ClientId,
    /// Its name.
    pub name: String,
    /// Rows to learn from; 0 where it has not come yet.
    pub train: u64,
    /// Rows to decide on.
    pub validation: u64,
    /// Rows to be tested on.
    pub test: u64,
}

impl ClientNames {
    /// The clients of a fleet; what they brought beside training rows is known of those who were there when
    /// the run began.
    pub(crate) fn of(clients: &[ClientInfo], census: &ClientCounts) -> Self {
        let named = |info: &ClientInfo| {
            let counts = census.clients.get(info.id.0 as usize);
            let counts = counts.filter(|counts| counts.name == info.name);
            let part = |of: fn(&CountsOfClient) -> u64| counts.map_or(0, of);
            NamedClient {
                client: info.id,
                name: info.name.clone(),
                train: info.examples,
                validation: part(|counts| counts.validation),
                test: part(|counts| counts.test),
            }
        };
        Self { clients: clients.iter().map(named).collect() }
    }

    /// Reads those of the run in a folder; none where it has no such file.
    pub fn read(folder: &Path) -> Result<Self> {
        let read = json_file::read_if_there(&folder.join(CLIENTS), "clients")?;
        Ok(read.unwrap_or_default())
    }

    /// What a client is called; by its number where it has no name here.
    pub fn name(&self, client: ClientId) -> String {
        match self.get(client) {
            Some(named) => printable(&named.name).into_owned(),
            None => format!("client {client}"),
        }
    }

    /// A client.
    pub fn get(&self, client: ClientId) -> Option<&NamedClient> {
        let place = self.clients.binary_search_by_key(&client, |named| named.client).ok()?;
        self.clients.get(place)
    }
}
