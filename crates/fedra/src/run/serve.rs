//! A federation whose clients are on other machines: preparation without anybody's rows, and the same
//! rounds in the same kind of folder as a run in one process.
//!
//! The network is the caller's: this crate hands over what sites have to be told and checked against,
//! and gets a [`Fleet`] back. A server that was stopped or killed resumes from its folder when it is
//! started again in the same way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fedra_client::{ClientError, Meter, Observer, ServerSegment, Shard, to_params_over, to_values};
use fedra_compute::{Device, SecretKey, ThreadPool};
use fedra_engine::{
    Activity, ClientId, ClientInfo, EngineError, Fleet, ParamValues, Population, Scored, Start,
};
use fedra_plan::{ByteCount, Layout, Round, Scope};

use crate::config::{ConfigError, Experiment, OpenedDevice, unused_settings};
use crate::error::Result;
use crate::folder::run_folder::Folder;
use crate::folder::{output_folder, round_log};
use crate::listener::{Listener, followed};
use crate::prepare::client_counts::ClientCounts;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::prepared::{Prepared, evaluator};
use crate::run::agreement::agreement;
use crate::run::federate::{Beginning, Ending, Run, on};
use crate::run::site::check_declared;
use crate::run::start::{Output, begin, write_page};
use crate::run_files::{CHECKPOINT, EXPERIMENT, ROUNDS, SITES};

/// Scores the server's exact model on the central test set; its observer may stop it.
pub type CentralTest = Box<dyn FnMut(&ParamValues, &dyn Observer) -> Result<Scored, EngineError>>;

/// What a network needs to know of a federation.
pub struct Serving<'a> {
    /// The clients, in the order of their numbers.
    pub names: Vec<String>,
    /// What every site has to have alike.
    pub agreement: BTreeMap<String, String>,
    /// The shared model.
    pub layout: Layout,
    /// Clients, by name, whose adapters have a lower rank.
    pub ranks: BTreeMap<String, u16>,
    /// The values that all start from.
    pub initial: ParamValues,
    /// The server's half of the model, where it is cut.
    pub middle: Option<Arc<ServerSegment>>,
    /// Scores on the server's own set.
    pub central: CentralTest,
    /// The run's folder.
    pub folder: &'a Path,
}

/// Connects a federation to its clients.
pub trait Host {
    /// The sites.
    type Fleet: Fleet;

    /// Waits for sites; `None` when it was told to stop instead.
    fn meet(&mut self, serving: Serving<'_>) -> Result<Option<(Self::Fleet, ClientCounts)>>;

    /// A key of this process alone, from the system's own generator: the server's noise comes from it.
    fn secret(&mut self) -> Result<SecretKey>;

    /// Starts, or resumes after this number of complete rounds.
    fn begin(
        &mut self,
        fleet: &mut Self::Fleet,
        completed: Round,
        observer: Arc<dyn Observer>,
    ) -> Result<(), EngineError>;

    /// The rounds have finished, or are to be resumed another time.
    fn end(&mut self, fleet: Self::Fleet, ending: &Result<Ending>);
}

/// Serves an experiment in a folder; one that holds the same experiment unfinished is gone on with.
pub fn serve<H: Host>(
    experiment: &Experiment,
    output: &Output,
    listener: &dyn Listener,
    host: &mut H,
) -> Result<Ending> {
    let Output { folder: path, over } = output;
    let goes_on = is_unfinished(path, experiment);
    if !goes_on {
        output_folder::check(path, experiment, *over)?;
    }
    let mut run = prepare(experiment, listener)?;
    let notes =
        unused_settings(experiment).into_iter().chain(run.notes()).chain(first_download(&run));
    notes.for_each(|note| listener.note(&note));
    let pool = run.thread_pool()?;
    let folder = if goes_on {
        let mut folder = Folder::of(path, experiment)?;
        folder.lock()?;
        folder
    } else {
        begin(experiment, output, listener)?
    };
    let ended = rounds(&mut run, (&folder, pool.as_ref()), listener, host);
    write_page(&folder, &ended, listener);
    if !goes_on && ended.as_ref().is_err_and(|error| !error.is_breakdown()) {
        folder.abandon();
    }
    ended
}

fn rounds<H: Host>(
    run: &mut Run,
    (folder, pool): (&Folder, Option<&ThreadPool>),
    listener: &dyn Listener,
    host: &mut H,
) -> Result<Ending> {
    let (facts, of) = (agreement(&run.experiment, &run.prepared)?, run.experiment.rounds);
    let initial = to_values(&std::mem::take(&mut run.prepared.params));
    run.device.rest();
    let Prepared { model, shards, .. } = &run.prepared;
    let client = |(number, shard): (u32, &Shard)| ClientInfo {
        id: ClientId(number),
        name: shard.name.clone(),
        examples: 0,
    };
    let clients: Vec<ClientInfo> = (0..).zip(&shards.clients).map(client).collect();
    let middle = run.middle(&clients);
    let serving = Serving {
        names: shards.clients.iter().map(|shard| shard.name.clone()).collect(),
        agreement: facts,
        layout: model.layout().clone(),
        ranks: run.recipe.ranks.clone(),
        initial: initial.clone(),
        middle: middle.clone(),
        central: central(&run.prepared, &run.device),
        folder: folder.path(),
    };
    let Some((mut fleet, census)) = host.meet(serving)? else {
        let rounds = round_log::lines(&folder.path().join(ROUNDS)) as u32;
        return Ok(Ending::Interrupted { rounds, of });
    };
    run.take_census(census)?;
    run.privacy_warning()?.iter().for_each(|warning| listener.note(warning));
    let noise = host.secret()?;
    let ended = {
        let begin = |fleet: &mut H::Fleet, completed: Round, observer: Arc<dyn Observer>| {
            host.begin(fleet, completed, observer)
        };
        let beginning = Beginning { initial, middle, noise: Some(noise) };
        let go = || run.rounds((&mut fleet, begin), beginning, folder, listener);
        on(pool, go)
    };
    host.end(fleet, &ended);
    ended
}

/// The cost of an unnecessary first download: clients with other initial weights are refused.
fn first_download(run: &Run) -> Option<String> {
    const WORTH_SAYING: u64 = 10_000_000;
    let model = &run.prepared.model;
    let everything = Scope::everything(model.layout());
    let bytes = ByteCount(4 * model.storage().exchanged(model.layout(), &everything));
    let recipe = &run.experiment.recipe;
    let is_sent = recipe.start == Start::Sent && recipe.split.is_none();
    (is_sent && bytes.0 >= WORTH_SAYING).then(|| {
        format!(
            "note: every client already has the initial model and still downloads it, {bytes} each: \
             federation.start = \"shared\" saves this download, and as much memory"
        )
    })
}

/// Opens the model and the central test set; refuses what cannot be known without the sites' rows.
fn prepare(experiment: &Experiment, listener: &dyn Listener) -> Result<Run> {
    check_declared(experiment)?;
    let expected = "a method with clients: clients do not send rows to a server";
    ConfigError::new("method.name", "\"centralised\"", expected)
        .when(experiment.recipe.population == Population::Pooled)?;
    let own = experiment.parts.as_ref().map(|parts| parts.makes()).unwrap_or_default();
    let expected =
        "a run in this process: a score of a program needs answers, which clients elsewhere keep";
    ConfigError::new("method.name", "code of a program", expected).when(own.score)?;
    let OpenedDevice { device, note } = experiment.device.open_or(Device::frugal_cpu())?;
    if let Some(note) = note {
        listener.note(&note);
    }
    let mut run = followed(experiment, listener, |work| {
        let holdings = PartitionedData::of_server(experiment, work)?;
        // The first weights are sent, not computed with.
        let run = Run::with_holdings(experiment, holdings, (Device::frugal_cpu(), work));
        run.map_err(|error| experiment.origin.point(error))
    })?;
    if matches!(device, Device::Cuda(_)) {
        run.device = device;
    }
    Ok(run)
}

fn central(prepared: &Prepared, device: &Device) -> CentralTest {
    let (model, shards) = (prepared.model.clone(), prepared.shards.clone());
    let base = prepared.base.clone();
    let device = device.clone();
    Box::new(move |values, observer| {
        // Main memory goes back when the model is scored.
        let device =
            if let Device::Cuda(_) = device { device.clone() } else { Device::frugal_cpu() };
        let evaluator = evaluator(&model, &device, &shards);
        let counts = (0, shards.central_test.len() as u64);
        let meter = Meter::new(observer, Activity::Evaluating, counts);
        let scored = to_params_over(&device, (model.layout(), &base), values)
            .and_then(|params| evaluator.score_counted(&params, &shards.central_test, &meter));
        scored.map(|scores| scores.scored(None)).map_err(|error| {
            if matches!(error, ClientError::Stopped) {
                return EngineError::Stopped;
            }
            EngineError::Fleet { doing: "evaluate the model", reason: error.to_string() }
        })
    })
}

/// Whether a folder holds this experiment, begun and not complete.
fn is_unfinished(path: &Path, experiment: &Experiment) -> bool {
    let has = |name: &str| path.join(name).exists();
    let Ok(folder) = Folder::of(path, experiment) else { return false };
    [EXPERIMENT, CHECKPOINT, SITES].into_iter().all(has)
        && folder.complete(experiment).is_ok_and(|it| it.is_none())
}
