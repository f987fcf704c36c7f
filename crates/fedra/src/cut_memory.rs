//! Tensor memory of both sides of a cut, foreseen for the batches that a run will have.
//!
//! What a batch takes is found by a rehearsal ([`Rehearsal`]): the run's own steps on a device without
//! numbers. Here it is decided which batches stand for a run: the largest ones, drawn as the clients
//! will draw them. Where rows must not matter, because a server has none, it is a batch of the longest
//! sequences.

use fedra_client::{Examples, Limits, Rehearsal, evaluation_batches};
use fedra_compute::Seed;
use fedra_data::{Encoded, LabelSet, Target, Task, epoch};
use fedra_engine::{EvaluationSet, Recipe, Sampler, SideMemory, Split};
use fedra_model::{Head, Model};
use fedra_plan::{ByteCount, Plan, Round};

use crate::error::Result;
use crate::experiment::Experiment;
use crate::forecast::crossing::client_seed;
use crate::prepared::Prepared;

/// Rounds whose batches are drawn to see how large they get.
const DRAWS: u32 = 4;

/// The batches by which memory is foreseen, and who has them.
pub struct LargestBatches {
    task: Task,
    labels: LabelSet,
    train: Vec<Encoded>,
    /// Steps of the client that takes the most in a round.
    steps: u64,
    scored: Vec<Encoded>,
    /// Clients of a round.
    clients: u64,
}

impl LargestBatches {
    /// Those of the clients' rows.
    pub fn of(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Self {
        let shards = &prepared.shards;
        let seed = Seed(experiment.draft.seed);
        let mut train = (0, Vec::new());
        for (number, shard) in (0_u64..).zip(&shards.clients) {
            let encoded = shard.train.encoded();
            let lengths: Vec<usize> = encoded.iter().map(|example| example.ids.len()).collect();
            for round in 0..experiment.rounds.min(DRAWS) {
                let order = client_seed(seed, Round(round), number).of("order");
                for draw in 0..u64::from(recipe.work.epochs) {
                    let batches = epoch(&lengths, recipe.work.batch as usize, order.with(draw).0);
                    keep_larger(&mut train, (encoded, &lengths), batches);
                }
            }
        }
        let mut scored = (0, Vec::new());
        for on in &recipe.evaluation.on {
            for shard in &shards.clients {
                let examples: &Examples = match on {
                    EvaluationSet::CentralTest => continue,
                    EvaluationSet::ClientTest => &shard.test,
                    EvaluationSet::ClientValidation => &shard.validation,
                };
                let encoded = examples.encoded();
                let length = |example: &Encoded| example.scored_lengths().into_iter().sum();
                let lengths: Vec<usize> = encoded.iter().map(length).collect();
                let batches = evaluation_batches(&lengths, Limits::default().tokens);
                keep_larger(&mut scored, (encoded, &lengths), batches);
            }
        }
        let steps = shards.clients.iter().map(|shard| recipe.work.steps(shard.train.len() as u64));
        Self {
            task: shards.task,
            labels: shards.labels.clone(),
            train: train.1,
            steps: steps.max().unwrap_or(1),
            scored: scored.1,
            clients: cohort(recipe, shards.clients.len() as u64),
        }
    }

    /// Sequences as long as the experiment allows, of which every token is another one and labelled.
    pub fn full(experiment: &Experiment, model: &Model, recipe: &Recipe) -> Self {
        let longest = experiment.draft.data.max_tokens.unwrap_or(model.longest());
        let words = model.config().vocabulary().max(1);
        let sequence = |number: usize| Encoded {
            ids: (0..longest).map(|place| ((number * longest + place) % words) as u32).collect(),
            types: Vec::new(),
            target: match model.head() {
                Head::Sequence { .. } => Target::One(0),
                Head::Tokens { .. } | Head::Language | Head::Bare => {
                    Target::PerToken(vec![Some(0); longest])
                }
            },
            dropped: 0,
        };
        Self {
            task: experiment.task,
            labels: LabelSet::default(),
            train: (0..recipe.work.batch as usize).map(sequence).collect(),
            steps: 2,
            scored: Vec::new(),
            clients: 1,
        }
    }

    /// The most tensor memory of both sides under a plan with a cut.
    pub fn sides(
        &self,
        model: &Model,
        (recipe, split): (&Recipe, &Split),
        plan: &Plan,
    ) -> Result<SideMemory> {
        let SideMemory { client, server } = self.rehearsal(model, (recipe, split), plan).memory()?;
        // A server begins with the whole model, of which it then keeps the blocks between.
        let whole = ByteCount(4 * model.layout().elements() as u64);
        Ok(SideMemory { client, server: server.max(whole) })
    }

    /// The most tensor memory of a client.
    pub fn client(
        &self,
        model: &Model,
        (recipe, split): (&Recipe, &Split),
        plan: &Plan,
    ) -> Result<ByteCount> {
        Ok(self.rehearsal(model, (recipe, split), plan).client()?)
    }

    fn rehearsal<'a>(
        &'a self,
        model: &'a Model,
        (recipe, split): (&'a Recipe, &'a Split),
        plan: &'a Plan,
    ) -> Rehearsal<'a> {
        Rehearsal {
            model,
            plan,
            split,
            work: &recipe.work,
            task: self.task,
            labels: &self.labels,
            batch: &self.train,
            steps: self.steps,
            scored: &self.scored,
            clients: self.clients,
        }
    }
}

/// Clients of a round, at the most or about.
fn cohort(recipe: &Recipe, clients: u64) -> u64 {
    match recipe.sampler {
        Sampler::All => clients,
        Sampler::Uniform(count) => u64::from(count).min(clients),
        Sampler::Poisson(probability) => (probability * clients as f64).ceil() as u64,
    }
}

/// Keeps the batch with the most tokens.
fn keep_larger(
    largest: &mut (usize, Vec<Encoded>),
    (encoded, lengths): (&[Encoded], &[usize]),
    batches: Vec<Vec<usize>>,
) {
    for batch in batches {
        let tokens = batch.iter().map(|&place| lengths[place]).sum();
        if tokens > largest.0 {
            *largest = (tokens, batch.iter().map(|&place| encoded[place].clone()).collect());
        }
    }
}
