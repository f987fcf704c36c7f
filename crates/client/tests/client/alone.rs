//! Clients each on their own, with their own copy of everything, are the fleet of threads to the bit,
//! whatever the order in which they answer.

use std::sync::Arc;

use fedra_client::{Client, Shard, to_values};
use fedra_data::Task;
use fedra_engine::{
    Arrival, AttentionRequest, ClientAttention, ClientInfo, ClientState, Download, Encoding,
    EngineError, EvaluationRequest, EvaluationSet, Evidence, Federation, Fleet, MinArrivals,
    Outcome, ProbeRequest, Recipe, RoundReport, Scored, Sink, StateHandle, TrainRequest, Unsynced,
    Verdict, methods::Method,
};
use fedra_plan::Scope;
use fedra_seed::Seed;
use fedra_wire::{ClientId, ParamValues};

use crate::world::{Size, World, adamw, bits};

/// As many machines as clients, without the network. The first to be asked answers last.
struct Sites {
    infos: Vec<ClientInfo>,
    clients: Vec<Client>,
    /// Asked of the central set, which is the server's.
    server: fedra_client::LocalFleet,
}

impl Sites {
    fn new(world: &World) -> Self {
        let clients: Vec<Client> = (0..)
            .zip(&world.shards.clients)
            .map(|(number, shard): (u32, &Shard)| {
                let labels = (world.shards.task, world.shards.labels.clone());
                let model = (world.model.clone(), world.params.clone());
                let device = fedra_compute::Device::cpu();
                Client::new(ClientId(number), shard.clone(), labels, model, device).unwrap()
            })
            .collect();
        let infos = clients.iter().map(|client| client.info.clone()).collect();
        Self { infos, clients, server: world.fleet() }
    }

    fn at(&mut self, client: ClientId) -> &mut Client {
        &mut self.clients[client.0 as usize]
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` takes it")]
fn failed(error: fedra_client::ClientError) -> EngineError {
    EngineError::Fleet { doing: "send a request to a client", reason: error.to_string() }
}

impl Fleet for Sites {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn scorers(&self, on: EvaluationSet) -> Vec<ClientId> {
        self.server.scorers(on)
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        for download in downloads {
            self.at(download.client).sync(download.parts()).map_err(failed)?;
        }
        Ok(Vec::new())
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let mut ask = |client: &ClientId| self.clients[client.0 as usize].probe(request);
        request.clients.iter().map(|client| ask(client).map_err(failed)).collect()
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let mut ask = |client: &ClientId| self.at(*client).compare_attention(request);
        request.clients.iter().map(|client| ask(client).map_err(failed)).collect()
    }

    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        for request in requests.iter().rev() {
            let client = request.client;
            let outcome = Outcome::Finished(self.at(client).train(request).map_err(failed)?);
            let verdict = arrive(Arrival { client, outcome })?;
            self.at(client).settle(verdict);
        }
        Ok(())
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        if request.on == EvaluationSet::CentralTest {
            return self.server.evaluate(request);
        }
        let ask = |client: &Client| client.evaluate(request).transpose();
        self.clients.iter().filter_map(ask).map(|scored| scored.map_err(failed)).collect()
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        self.clients.iter_mut().for_each(|client| client.forget(part));
        Ok(())
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        for client in clients {
            self.at(*client).revoke();
        }
        Ok(())
    }

    /// They are all here.
    fn await_return(
        &mut self,
        _absent: &[ClientId],
        _again: u32,
        _stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// They keep it themselves.
    fn states(&self) -> Vec<StateHandle> {
        Vec::new()
    }

    fn restore(
        &mut self,
        _shared: &ParamValues,
        _states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        panic!("nothing in these runs goes back to a checkpoint")
    }
}

#[derive(Default)]
struct Reports(Vec<RoundReport>);

impl Sink for Reports {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        let report = RoundReport { seconds: 0.0, slowest: 0.0, phases: None, ..report.clone() };
        self.0.push(report);
        Ok(())
    }
}

fn recipe(name: &str, settings: &str, change: impl Fn(&mut Recipe)) -> Recipe {
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
    let mut recipe = Method::by_name(name, settings).unwrap().recipe(Recipe::new(adamw(1e-3)));
    recipe.evaluation.on = vec![
        EvaluationSet::CentralTest,
        EvaluationSet::ClientValidation,
        EvaluationSet::ClientTest,
    ];
    change(&mut recipe);
    recipe
}

#[test]
fn sites_of_their_own_are_the_fleet_of_threads_to_the_bit() {
    let world = World::new(Task::Concepts, Size { hospitals: 8, notes: 40, ..Size::SMALL });
    let scratch = tempfile::tempdir().unwrap();
    let int8 = |recipe: &mut Recipe| {
        recipe.work.download = Encoding::Int8 { feedback: false };
        recipe.work.encoding = Encoding::Int8 { feedback: false };
    };
    let recipes = [
        recipe("fedavg", "{}", |_| {}),
        recipe("fedavg", "{}", int8),
        recipe("safl", r#"{"k": 1}"#, int8),
        recipe("scaffold", "{}", |_| {}),
        recipe("fedper", "{}", |_| {}),
        recipe("fedfrozen", r#"{"warmup": 1}"#, |recipe| recipe.evaluation.attention = true),
        // Most attempts fail and are taken back.
        recipe("feddyn", "{}", |recipe| {
            recipe.conditions.fail = 0.5;
            recipe.min_arrivals = MinArrivals::Count(6);
            recipe.retries = 200;
        }),
    ];
    for recipe in recipes {
        let run = |fleet: &mut dyn Fleet| {
            let initial = to_values(&world.params);
            let layout = world.model.layout().clone();
            let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
            federation.spill_to(scratch.path().join("early"));
            let mut reports = Reports::default();
            federation.run(fleet, &mut [&mut reports], 3, &|| false).unwrap();
            (bits(federation.model()), reports.0)
        };
        let (near, mut near_reports) = run(&mut world.fleet());
        let (far, mut far_reports) = run(&mut Sites::new(&world));
        assert!(near == far, "{}", recipe.method);
        for report in &far_reports {
            let most = report.most_updates_held;
            assert!(most <= 5, "{}: {most} of 8 updates in memory", recipe.method);
        }
        // How many waited is what differs between them.
        for report in near_reports.iter_mut().chain(&mut far_reports) {
            report.most_updates_held = 0;
        }
        assert_eq!(near_reports, far_reports, "{}", recipe.method);
    }
}

/// What clients probe and score is what they received, not what the server has.
#[test]
fn a_coarse_download_shows_in_what_clients_measure() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let scores = |download: Encoding| {
        let recipe = recipe("safl", r#"{"k": 1}"#, |recipe| {
            recipe.work.download = download;
            // Nothing moves, so that only the encoding can tell the runs apart.
            recipe.work.solver =
                fedra_engine::OptimiserConfig::Sgd { rate: 0.0, weight_decay: 0.0 };
        });
        let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
        let mut federation = Federation::new(recipe, layout, initial, Seed(3)).unwrap();
        let mut reports = Reports::default();
        federation.run(&mut world.fleet(), &mut [&mut reports], 1, &|| false).unwrap();
        let report = reports.0.remove(0);
        let loss = |on| report.scores.iter().find(|set| set.on == on).unwrap().loss;
        let selection = serde_json::to_string(&report.selection.unwrap()).unwrap();
        (loss(EvaluationSet::CentralTest), loss(EvaluationSet::ClientTest), selection)
    };
    let (exact, coarse) = (scores(Encoding::F32), scores(Encoding::Int8 { feedback: false }));
    assert_eq!(exact.0, coarse.0, "the server scores its own model");
    assert_ne!(exact.1, coarse.1, "clients score what came");
    assert_ne!(exact.2, coarse.2, "and measure it");
}
