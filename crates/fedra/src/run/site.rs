//! One client of a federation, made from its own rows alone.
//!
//! A site sees no row of anybody else, so what all have to agree on comes from a declared place: labels
//! from `data.labels` (or from a source that knows them), the vocabulary from the model's folder or
//! `model.tokenizer`. Settings that need the rows of all clients are refused.

use std::collections::BTreeMap;

use fedra_client::Client;
use fedra_compute::Device;
use fedra_data::{LabelShape, Work};
use fedra_engine::ClientId;
use fedra_plan::{Layout, Plan, Round, Scope, Side};

use crate::config::{ConfigError, Experiment, ModelSource, OpenedDevice, Source, Vocabulary};
use crate::error::Result;
use crate::listener::{Listener, Silent, followed};
use crate::prepare::data_notes;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::prepared::{PartHeld, Prepared, check_weights};
use crate::prepare::token_lengths::TokenLengths;
use crate::run::agreement::agreement;
use crate::text::grid::joined;

/// The named client with its rows, its tokens and the weights that all start from. It gives the
/// answers, to the bit, that it gives in a run of the whole federation in one process.
pub fn site(experiment: &Experiment, name: &str, id: ClientId) -> Result<Client> {
    let device = experiment.device.open_or(Device::frugal_cpu())?.device;
    let (prepared, _, _) = prepare(experiment, name, &device, &Silent)?;
    client(experiment, (prepared, device), (name, id))
}

/// A client of a federation over a network.
pub struct Joining {
    /// Where it computes.
    pub device: Device,
    /// The client, under the number that the experiment gives it.
    pub client: Client,
    /// What it has to have alike with the server.
    pub agreement: BTreeMap<String, String>,
    /// What a person should know of its rows and its model.
    pub notes: Vec<String>,
}

/// The named client of a federation over a network.
pub fn join(experiment: &Experiment, name: &str, listener: &dyn Listener) -> Result<Joining> {
    let OpenedDevice { device, note } = experiment.device.open_or(Device::frugal_cpu())?;
    let (prepared, names, data_notes) = prepare(experiment, name, &device, listener)?;
    let place = names.iter().position(|other| other == name).unwrap_or_default();
    let agreement = agreement(experiment, &prepared)?;
    let longest = experiment.max_tokens;
    let notes = prepared.notes.iter().map(|note| format!("note: {note}"));
    let lengths = TokenLengths::of(&prepared.shards, longest, prepared.model.longest());
    let notes = note.into_iter().chain(notes).chain(data_notes).chain(lengths.note()).collect();
    let id = ClientId(place as u32);
    let client = client(experiment, (prepared, device.clone()), (name, id))?;
    Ok(Joining { device, client, agreement, notes })
}

/// The rows of the named site, as it reads them when it joins.
pub fn holdings(
    experiment: &Experiment,
    name: &str,
    listener: &dyn Listener,
) -> Result<PartitionedData> {
    followed(experiment, listener, |work| read(experiment, name, work))
}

fn read(experiment: &Experiment, name: &str, work: &Work<'_>) -> Result<PartitionedData> {
    check_declared(experiment)?;
    let holdings = PartitionedData::of_with(experiment, Some(name), work)?;
    let declared = &experiment.raw.federation.names;
    let found = format!("{name:?}");
    ConfigError::new("client", &found, format_args!("one of {}", declared.join(", ")))
        .when(!declared.is_empty() && !declared.iter().any(|other| other == name))?;
    let names = names(&holdings);
    let expected = format!("one of {}{}", names.join(", "), of_files(experiment));
    ConfigError::new("client", &found, expected).when(!names.iter().any(|other| other == name))?;
    Ok(holdings)
}

/// Which files name the clients, where the rows are read from files.
fn of_files(experiment: &Experiment) -> String {
    let Source::Files(_, files) = &experiment.source else { return String::new() };
    let files: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
    format!(", whose rows are in {}", joined(&files, "and"))
}

fn names(holdings: &PartitionedData) -> Vec<String> {
    holdings.division.clients.iter().map(|holding| holding.client.clone()).collect()
}

/// What the site has, the names of all clients as far as they are known, and what is odd about its rows.
fn prepare(
    experiment: &Experiment,
    name: &str,
    device: &Device,
    listener: &dyn Listener,
) -> Result<(Prepared, Vec<String>, Vec<String>)> {
    followed(experiment, listener, |work| {
        let mut holdings = read(experiment, name, work)?;
        let (declared, names) = (&experiment.raw.federation.names, names(&holdings));
        let is_of_files = matches!(experiment.source, Source::Files(..));
        let others = is_of_files.then(|| data_notes::of_others(&holdings, name)).flatten();
        // A vocabulary that is grown needs the rows that it is grown from, and then nobody needs the others.
        if !matches!(experiment.model, ModelSource::Fresh(_, Vocabulary::Grown(_))) {
            holdings.division.clients.retain(|holding| holding.client == name);
            holdings.division.central_test.clear();
        }
        let data_notes = data_notes::of_reading(&holdings);
        let part = |layout: &Layout| held(experiment, name, layout);
        let part: Option<PartHeld<'_>> = if is_part(experiment) { Some(&part) } else { None };
        let untrained = data_notes::without_training(&holdings);
        let mut prepared = Prepared::of(experiment, holdings, (device, part), work)?;
        check_weights(device)?;
        prepared.notes.extend(others.into_iter().chain(untrained));
        Ok((prepared, if declared.is_empty() { names } else { declared.clone() }, data_notes))
    })
}

/// Whether the site holds only a part of the model. Where a memory decides on the cut it is the
/// server's to say, and nothing is given away.
fn is_part(experiment: &Experiment) -> bool {
    experiment.cut.is_some_and(|cut| cut.memory.is_none())
}

/// What of a cut model lives with a client, in any round.
fn held(experiment: &Experiment, name: &str, layout: &Layout) -> Result<Scope> {
    let Some(split) = &experiment.recipe.split else { return Ok(Scope::everything(layout)) };
    let mut held = Scope::empty();
    // A cut is the same from one move to the next, and what comes after the last round is asked for too.
    let moves = split.moves.iter().map(|step| step.round.saturating_sub(1));
    for round in [0].into_iter().chain(moves.filter(|round| *round <= experiment.rounds)) {
        let cut = split.cut(name, Round(round), layout.blocks())?;
        held = held | Plan::new(layout, Scope::empty(), cut)?.held_by(Side::Client);
    }
    Ok(held)
}

fn client(
    experiment: &Experiment,
    (prepared, device): (Prepared, Device),
    (name, id): (&str, ClientId),
) -> Result<Client> {
    let Prepared { model, params, shards, .. } = prepared;
    let labels = (shards.task, shards.labels);
    let own = shards.clients.into_iter().find(|shard| shard.name == name);
    let shard = own.unwrap_or_default();
    let client = Client::new(id, shard, labels, (model, params), device)?;
    let client = if is_part(experiment) {
        let held = held(experiment, name, &client.layout)?;
        client.holding(&held)
    } else {
        client
    };
    let client = match experiment.recipe.ranks.get(name) {
        Some(rank) => client.with_rank(*rank)?,
        None => client,
    };
    Ok(match experiment.recipe.depths.get(name) {
        Some(depth) => client.with_depth(*depth)?,
        None => client,
    })
}

/// Refuses what one site, or a server without rows, cannot know.
pub(crate) fn check_declared(experiment: &Experiment) -> Result<(), ConfigError> {
    let data = &experiment.raw.data;
    // Whoever has the seed has all of it.
    if matches!(experiment.source, Source::Clinic(_)) {
        return Ok(());
    }
    if let Some(fewest) = data.partition.min_examples {
        let expected = "no such key at a client, which does not know the sizes of the others";
        return Err(ConfigError::new("data.partition.min_examples", fewest, expected));
    }
    if let Some(name) = data.partition.leave_out.first() {
        let expected = "no such key at a client: one that takes no part does not join";
        let found = format!("{name:?}");
        return Err(ConfigError::new("data.partition.leave_out", found, expected));
    }
    let expected = "\"client\": rows are not partitioned between machines";
    let hint = "the file of a client has only its own rows, which data.partition.by = \"client\" expects; \
            other partitions need all rows on one machine";
    ConfigError::new("data.partition.by", "another partition", expected)
        .with_hint(hint)
        .when(experiment.partition.clients().is_some())?;
    let expected = "0 at a client: the server has the central test set";
    ConfigError::new("data.shares.central", data.shares.central, expected)
        .when(data.shares.central > 0.0 && data.test.is_none())?;
    let has_labels = experiment.task.shape() != LabelShape::Absent;
    // A program that makes its rows declares their labels with them (`TableBuilder::with_labels`).
    let in_rows = matches!(experiment.source, Source::Rows(_));
    let in_answers = data.answers.as_ref().is_some_and(|answers| answers.labels().is_some());
    let expected = "the names of all labels: the rows of one client may lack some";
    ConfigError::missing("data.labels", expected)
        .when(has_labels && !in_rows && !in_answers && data.labels.is_none())?;
    let expected =
        "a tokenizer that all clients have: a vocabulary built here would differ from all others";
    ConfigError::missing("model.tokenizer", expected)
        .when(matches!(experiment.model, ModelSource::Fresh(_, Vocabulary::Grown(_))))
}
