//! How much memory a run will take, all clients in one process.
//!
//! Planning prepares what a run prepares, so what this process holds by then is no estimate: the
//! program and its libraries, rows as tokens, tokenizer, first weights. Added to it is what a run
//! adds, each from its cause:
//!
//! ```text
//! pool     what steps and scoring hold at once; the pool keeps it, so the larger of the two counts
//! models   the server's model, a download, the sum, answers that are made or wait: see `Models`
//! clients  what they keep between rounds, and the books that are kept about each of them
//! ```
//!
//! Memory that is freed is used again, so the most that each of the three ever holds is added up.

use std::cmp::Reverse;

use fedra_client::{Examples, JOBS_AHEAD, Limits, Shards};
use fedra_compute::Seed;
use fedra_data::{Encoded, epoch};
use fedra_engine::{
    Arrival, ClientInfo, EvaluationSet, LocalRule, Recipe, Sampler, Scored, ServerRule, SplitMode,
    TrainRequest,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, ParamMemory, Plan, Side};

use crate::activations::{BatchSize, of_forward, of_side};
use crate::experiment::Experiment;
use crate::prepared::Prepared;
use crate::state_placement::{StateLocation, StatePlacement};

/// Code of the program that planning has not run and a run will, which is then read from disk.
const UNREAD: u64 = 1_200_000;
/// A thread of the program: what its stack and its share of the allocator come to.
const THREAD: u64 = 150_000;
/// Free pieces between buffers that are in use come to about one part in so many.
const PIECES: u64 = 20;
/// Bytes beyond which the C library maps a block on its own.
const RETURNED: u64 = 32 << 20;
/// Epochs whose batches are drawn to see how large they get.
const DRAWS: u64 = 4;

/// What a run holds, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMemory {
    /// Program, data and first weights, as they are in this process.
    pub prepared: ByteCount,
    /// Steps and scoring.
    pub pool: ByteCount,
    /// Models outside of the pool.
    pub models: ByteCount,
    /// What clients keep and what is kept about them.
    pub clients: ByteCount,
}

impl RunMemory {
    /// All of it.
    pub fn total(&self) -> ByteCount {
        ByteCount(self.prepared.0 + self.pool.0 + self.models.0 + self.clients.0)
    }

    /// What this process, which held so much when all was prepared, would come to hold if it went
    /// on with a run that learns these parts and keeps this.
    pub fn of(
        experiment: &Experiment,
        prepared: &Prepared,
        recipe: &Recipe,
        (placement, stages): (&StatePlacement, &[(u32, Plan)]),
        prepared_bytes: ByteCount,
    ) -> Self {
        let threads = threads(experiment, placement);
        let run = Run { experiment, prepared, recipe, threads };
        let first = stages.first().map_or(0, |(round, _)| *round);
        let models = |(round, plan): &(u32, Plan)| run.models(plan, *round == first);
        Self {
            prepared: ByteCount(prepared_bytes.0 + UNREAD),
            pool: ByteCount({
                let pool = 4 * stages.iter().map(|(_, plan)| run.pool(plan)).max().unwrap_or(0);
                pool + pool / PIECES
            }),
            models: ByteCount(4 * stages.iter().map(models).max().unwrap_or(0)),
            clients: ByteCount(run.kept(placement) + run.books() + threads * THREAD),
        }
    }
}

/// Clients that are at work at a time.
fn threads(experiment: &Experiment, placement: &StatePlacement) -> u64 {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    experiment.draft.threads.unwrap_or_else(cores).min(placement.keepers).max(1) as u64
}

struct Run<'a> {
    experiment: &'a Experiment,
    prepared: &'a Prepared,
    recipe: &'a Recipe,
    threads: u64,
}

impl Run<'_> {
    fn model(&self) -> &Model {
        &self.prepared.model
    }

    fn shards(&self) -> &Shards {
        &self.prepared.shards
    }

    /// Floats of the pool beyond the weights that are there already.
    fn pool(&self, plan: &Plan) -> u64 {
        let (model, learns) = (self.model(), plan.learns());
        let ParamMemory { trained, kept, .. } = plan.memory(Side::Client, model.layout());
        let frozen = (plan.keeps() - learns).elements(model.layout()) as u64;
        // What a correction adds to each gradient is there as tensors too while a client trains.
        let correction = match self.recipe.work.local {
            LocalRule::Plain | LocalRule::Proximal { .. } => 0,
            LocalRule::Dynamic { .. } => 1,
            LocalRule::ControlVariate => 2,
        };
        let copies = 1 + self.recipe.work.solver.moments() + correction;
        let own = frozen + trained * copies;
        // Threads share no memory of the pool, so in the course of a run each of them comes to hold
        // a largest batch.
        let step = of_side(model, plan, Side::Client, self.largest_batch());
        let training = self.threads * (step + own + self.prefix(plan)) + self.middle(plan);
        // Scoring has the server's model as another copy.
        let whole = model.layout().elements() as u64;
        let scored = self.scored();
        let scoring = whole + scored.iter().map(|b| of_forward(model, *b)).sum::<u64>();
        training.max(scoring + self.threads * kept)
    }

    /// Floats of the server's half of a cut model.
    fn middle(&self, plan: &Plan) -> u64 {
        let Some(split) = &self.recipe.split else { return 0 };
        let (model, clients) = (self.model(), self.cohort());
        let ParamMemory { held, trained, .. } = plan.memory(Side::Server, model.layout());
        let batch = self.largest_batch();
        let joint = BatchSize { tokens: clients * batch.tokens, read: clients * batch.read };
        let (copies, steps, batch) = match split.mode {
            SplitMode::Sequential => (2, 1, batch),
            SplitMode::Batched => (1, 1, joint),
            SplitMode::Replicated => (clients, self.threads, batch),
        };
        let own = trained * (1 + self.recipe.work.solver.moments());
        held + copies * own + steps * of_side(model, plan, Side::Server, batch)
    }

    /// Floats of hidden states behind a frozen prefix that are kept from epoch to epoch.
    fn prefix(&self, plan: &Plan) -> u64 {
        let model = self.model();
        if !plan.crossings().is_empty()
            || plan.frozen_prefix().is_none()
            || self.recipe.work.epochs < 2
        {
            return 0;
        }
        let tokens = |examples: &Examples| examples.encoded().iter().map(|e| e.ids.len()).sum();
        let most: usize =
            self.shards().clients.iter().map(|shard| tokens(&shard.train)).max().unwrap_or(0);
        (most as u64 * model.width() as u64).min(Limits::default().cache.0 / 4)
    }

    /// The largest batch of training, over all clients and some draws.
    fn largest_batch(&self) -> BatchSize {
        let size = self.recipe.work.batch as usize;
        let seed = Seed(self.experiment.draft.seed).of("plan");
        let mut largest = BatchSize::default();
        for (number, shard) in (0_u64..).zip(&self.shards().clients) {
            let encoded = shard.train.encoded();
            let lengths: Vec<usize> = encoded.iter().map(|example| example.ids.len()).collect();
            for draw in 0..DRAWS {
                for batch in epoch(&lengths, size, seed.with(number).with(draw).0) {
                    let chosen: Vec<&Encoded> =
                        batch.iter().map(|&place| &encoded[place]).collect();
                    largest = largest.max(BatchSize::of(self.model(), &chosen));
                }
            }
        }
        largest
    }

    /// The batches that are scored side by side.
    fn scored(&self) -> Vec<BatchSize> {
        let most = Limits::default().tokens as u64;
        let size = |examples: &Examples| {
            let length = |e: &Encoded| e.scored_lengths().into_iter().sum::<usize>() as u64;
            let lengths = || examples.encoded().iter().map(length);
            let tokens: u64 = lengths().sum();
            let mean = tokens / (examples.len() as u64).max(1);
            let longest = lengths().max().unwrap_or(0);
            let batch = tokens.min(most.max(longest));
            (tokens, BatchSize::full(self.model(), batch, batch / mean.max(1)))
        };
        let mut best: Vec<BatchSize> = Vec::new();
        let mut see = |mut batches: Vec<BatchSize>| {
            batches.sort_by_key(|batch| Reverse(batch.tokens));
            batches.truncate(self.threads as usize);
            let tokens = |batches: &[BatchSize]| batches.iter().map(|b| b.tokens).sum::<u64>();
            if tokens(&batches) > tokens(&best) {
                best = batches;
            }
        };
        let (tokens, batch) = size(&self.shards().central_test);
        let count = tokens.div_ceil(batch.tokens.max(1)).min(self.threads);
        see(vec![batch; count as usize]);
        let clients = &self.shards().clients;
        see(clients.iter().map(|shard| size(&shard.test).1).collect());
        see(clients.iter().map(|shard| size(&shard.validation).1).collect());
        best
    }

    /// Floats of models outside of the pool: the most of a round's download and of its training.
    ///
    /// The server's model and memory are there throughout. A download is taken out, encoded and
    /// shared, and read again, before anybody trains. In training there are the sum and the update that
    /// is added; each thread makes a change and its payload, and may have another that waits its turn.
    fn models(&self, plan: &Plan, first: bool) -> u64 {
        let layout = self.model().layout();
        let whole = layout.elements() as u64;
        let trained = plan.memory(Side::Client, layout).trained;
        let remembered = match self.recipe.server {
            ServerRule::Average { .. } => 0,
            ServerRule::Momentum { .. } | ServerRule::Dynamic { .. } => 1,
            ServerRule::Adaptive { .. } => 2,
        };
        let scaffold = match self.recipe.work.local {
            LocalRule::ControlVariate => 1,
            LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
        };
        let server = whole + trained * (remembered + scaffold);
        let download = if first { whole } else { trained };
        let sums = trained * (1 + scaffold);
        // SCAFFOLD: the server's variate, the mean gradient, the change of the own and its payload.
        let made = trained * (2 + 4 * scaffold);
        // A block of memory this large goes back to the system when it is freed, and answers are
        // seldom made at the same moment: of large ones, those of one thread count. Smaller ones
        // stay with the thread that made them.
        let threads = if 4 * trained > RETURNED { 1 } else { self.threads };
        // Who comes after those at work may have to wait.
        let after = self.cohort().saturating_sub(self.threads);
        let waiting = after.min(threads * (JOBS_AHEAD as u64 - 1)) * trained * (1 + scaffold);
        let training = trained * scaffold + sums + threads * made + waiting;
        server + training.max(3 * download)
    }

    /// Clients of a round.
    fn cohort(&self) -> u64 {
        let clients = self.shards().clients.len() as u64;
        match self.recipe.sampler {
            Sampler::All => clients,
            Sampler::Uniform(count) => u64::from(count).min(clients),
            Sampler::Poisson(probability) => (probability * clients as f64).ceil() as u64,
        }
    }

    /// Bytes that clients keep between rounds, as far as they are in memory.
    fn kept(&self, placement: &StatePlacement) -> u64 {
        let begun = self.threads * JOBS_AHEAD as u64;
        let in_memory = match placement.location {
            StateLocation::Memory => placement.keepers as u64,
            StateLocation::Disk => self.threads,
        };
        (in_memory + begun) * placement.each.bytes().0
    }

    /// Bytes of what is noted about each client: who it is, its order and what is due, its scores
    /// on each set, and in the checkpoint which version of the model it holds.
    fn books(&self) -> u64 {
        let clients = self.shards().clients.len() as u64;
        let scored = |on: &EvaluationSet| match on {
            EvaluationSet::CentralTest => 0,
            EvaluationSet::ClientTest => {
                self.shards().clients.iter().filter(|shard| !shard.test.is_empty()).count() as u64
            }
            EvaluationSet::ClientValidation => {
                let with = self.shards().clients.iter().filter(|s| !s.validation.is_empty());
                with.count() as u64
            }
        };
        let scores: u64 = self.recipe.evaluation.on.iter().map(scored).sum();
        let asked = size_of::<TrainRequest>() + size_of::<Arrival>() + 3 * size_of::<ClientInfo>();
        let noted = asked as u64 + NOTED;
        clients * noted + scores * (size_of::<Scored>() as u64 + SCORED)
    }
}

/// Bytes of maps and names about a client in a round.
const NOTED: u64 = 300;
/// Bytes of a client's named scores and counts on the heap: two maps and their names.
const SCORED: u64 = 1100;
