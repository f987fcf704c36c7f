//! `fedra bench round`: what a federation costs when its clients cost nothing.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use fedra::text::grid::grouped;
use fedra_compute::Seed;
use fedra_engine::{
    Arrival, AttentionRequest, ClientAttention, ClientInfo, ClientState, Download, EngineError,
    Evaluation, EvaluationRequest, EvaluationSet, Evidence, Federation, Fleet, OptimiserConfig,
    Outcome, ParamValues, ProbeRequest, Recipe, Reply, Sampler, Scored, StateHandle, TrainRequest,
    Unsynced, Verdict, Work,
};
use fedra_model::{Head, Model, Preset};
use fedra_plan::{Layer, Layout, ParamId, Part, Role, Scope, Shape};
use fedra_wire::{ClientId, Header, Kind, encode};
use serde_json::json;

use super::report::Format;
use super::stopwatch::Stopwatch;

/// The only parameter of a trivial model.
const TRIVIAL: ParamId = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);

/// Run rounds of clients that answer every order with the same small change.
#[derive(Args)]
pub struct RoundBench {
    /// Clients in a round
    #[arg(long, default_value_t = 100)]
    clients: u32,
    /// Registered clients, of which each round samples [default: as many as in a round]
    #[arg(long)]
    registered: Option<u32>,
    /// Rounds to time; reports the mean [default: 3 with a shape, 300 without]
    #[arg(long)]
    rounds: Option<u32>,
    /// Model shape [default: a thousand numbers]
    #[arg(long, value_parser = super::step::shapes())]
    shape: Option<Preset>,
    #[command(flatten)]
    format: Format,
}

impl RoundBench {
    /// Measures and prints the cost of the mean round.
    pub fn run(self) -> Result<()> {
        let rounds = self.rounds.unwrap_or(if self.shape.is_some() { 3 } else { 300 });
        if self.clients == 0 || rounds == 0 {
            bail!("--clients and --rounds must be at least 1");
        }
        let registered = self.registered.unwrap_or(self.clients);
        if registered < self.clients {
            bail!("--registered {registered}: expected at least the {} of a round", self.clients);
        }
        let layout = match self.shape {
            Some(shape) => Model::new(shape.config().clone(), Head::Bare, None)?.layout().clone(),
            None => Layout::new([(TRIVIAL, Shape::matrix(10, 100))])?,
        };
        let initial = ParamValues::zeros(&layout, &Scope::everything(&layout));
        let work = Work::new(OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 });
        let nothing = Evaluation { every: 1, on: Vec::new(), ..Evaluation::default() };
        let is_sampled = registered > self.clients;
        let sampler = if is_sampled { Sampler::Uniform(self.clients) } else { Sampler::All };
        let recipe = Recipe { evaluation: nothing, sampler, ..Recipe::new(work) };
        let parameters = layout.elements() as u64;
        let mut fleet = Trivial::new(layout.clone(), registered);
        let mut federation = Federation::new(recipe, layout, initial, Seed(1))?;

        let mut watch = Stopwatch::new();
        watch.time(|| federation.run(&mut fleet, &mut [], rounds, &|| false))?;
        let (clients, shape) = (self.clients, self.shape.map_or("trivial", Preset::name));
        let object = json!({
            "clients": clients, "registered": registered, "rounds": rounds, "shape": shape,
        });
        let of = if is_sampled {
            format!(" of {}", grouped(u64::from(registered)))
        } else {
            String::new()
        };
        let done = format!("round of {clients}{of} clients with");
        self.format.print_cost(object, &done, (parameters, watch.read(rounds)));
        Ok(())
    }
}

/// Clients that train nothing and keep nothing.
struct Trivial {
    layout: Layout,
    clients: Vec<ClientInfo>,
}

impl Trivial {
    fn new(layout: Layout, count: u32) -> Self {
        let client = |number| ClientInfo {
            id: ClientId(number),
            name: format!("client-{}", number + 1),
            examples: 10,
        };
        Self { layout, clients: (0..count).map(client).collect() }
    }

    fn answer(&self, order: &TrainRequest) -> Result<Reply, EngineError> {
        let header = Header {
            kind: Kind::Change,
            encoding: order.work.encoding,
            round: order.round,
            client: order.client,
            examples: 10,
            steps: 1,
            loss: Some(0.5),
        };
        let change = ParamValues::zeros(&self.layout, &order.plan.uploads());
        let payload = encode(&self.layout, &header, &change, None)?;
        Ok(Reply { payload, correction: None, seconds: 0.0, memory: None, noise: None })
    }
}

impl Fleet for Trivial {
    fn clients(&self) -> &[ClientInfo] {
        &self.clients
    }

    fn train(
        &mut self,
        orders: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        for order in orders {
            let outcome = Outcome::Finished(self.answer(&order)?);
            arrive(Arrival { client: order.client, outcome })?;
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        _examination: &EvaluationRequest<'_>,
    ) -> Result<Vec<Scored>, EngineError> {
        Ok(Vec::new())
    }

    fn scorers(&self, _on: EvaluationSet) -> Vec<ClientId> {
        Vec::new()
    }

    fn probe(&mut self, _inquiry: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        Ok(Vec::new())
    }

    fn compare_attention(
        &mut self,
        _look: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        Ok(Vec::new())
    }

    fn sync(&mut self, _downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        Ok(Vec::new())
    }

    fn forget(&mut self, _part: &Scope) -> Result<(), EngineError> {
        Ok(())
    }

    fn revoke(&mut self, _clients: &[ClientId]) -> Result<(), EngineError> {
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

    fn states(&self) -> Vec<StateHandle> {
        Vec::new()
    }

    fn restore(
        &mut self,
        _shared: &ParamValues,
        _states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        Ok(())
    }
}
