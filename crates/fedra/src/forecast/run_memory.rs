//! How much memory a run will take, all clients in one process.
//!
//! Planning prepares what a run prepares, so what this process holds by then is no estimate: the
//! program and its libraries, rows as tokens, tokenizer, first weights. Added to it is what a run
//! adds, each from its cause:
//!
//! ```text
//! pool     what steps and scoring hold at once; the pool keeps it, so the larger of the two counts
//! models   the server's model, a download, the sum, answers that are made or wait, a checkpoint
//! clients  what they keep between rounds, and the books that are kept about each of them
//! ```
//!
//! Memory that is freed is used again, so the most that each of the three ever holds is added up. A model that is
//! large goes back to the system instead: there a first download, made before the pool has grown, stands alone.

use std::cmp::Reverse;

use fedra_client::{Examples, JOBS_AHEAD, Limits, Shards};
use fedra_data::{Encoded, epoch};
use fedra_engine::{
    Arrival, ClientInfo, Encoding, EvaluationSet, LocalRule, Recipe, Sampler, Scored, SplitMode,
    Start, TrainRequest,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, ParamMemory, Plan, Side};

use crate::config::Experiment;
use crate::forecast::activations::{BatchSize, of_forward, of_side};
use crate::forecast::memory;
use crate::forecast::state_placement::{StateLocation, StatePlacement};
use crate::prepare::prepared::Prepared;

/// Code of the program that planning has not run and a run will, which is then read from disk.
const UNREAD: u64 = 2_700_000;
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
        let pool = 4 * stages.iter().map(|(_, plan)| run.pool(plan)).max().unwrap_or(0);
        let pool = pool + pool / PIECES;
        let early = 4 * stages.first().map_or(0, |(_, plan)| run.models_at_first(plan));
        let late = 4 * stages.iter().map(|(_, plan)| run.models(plan)).max().unwrap_or(0);
        // Before the first step the pool has weights alone, and what is large goes back to the system
        // before it has more.
        let is_returned = 4 * prepared.model.layout().elements() as u64 > RETURNED;
        let (pool, models) = match is_returned {
            true if early > pool + late => (0, early),
            true => (pool, late),
            false => (pool, early.max(late)),
        };
        Self {
            prepared: ByteCount(prepared_bytes.0 + UNREAD),
            pool: ByteCount(pool),
            models: ByteCount(models),
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
        if scored.is_empty() { training } else { training.max(scoring + self.threads * kept) }
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

    fn largest_batch(&self) -> BatchSize {
        largest_batch(self.model(), self.shards(), (self.recipe, self.experiment))
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

    /// Floats of models outside of the pool as the first download is made: it is taken out, encoded and shared,
    /// and read again, before anybody trains.
    fn models_at_first(&self, plan: &Plan) -> u64 {
        match self.recipe.start {
            Start::Sent => self.server(plan) + 3 * self.model().layout().elements() as u64,
            Start::Shared => self.server(plan),
        }
    }

    /// Floats of the server's model and memory, which are there throughout.
    fn server(&self, plan: &Plan) -> u64 {
        memory::saved(self.model(), self.recipe, plan).0 / 4
    }

    /// One where clients have control variates.
    const fn scaffold(&self) -> u64 {
        match self.recipe.work.local {
            LocalRule::ControlVariate => 1,
            LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
        }
    }

    /// Floats of models outside of the pool: the most of a round's download, of its training and of its
    /// checkpoint, which is made in memory.
    ///
    /// In training there are the sum and the update that is added; each thread makes a change and its
    /// payload, and may have another that waits its turn.
    fn models(&self, plan: &Plan) -> u64 {
        let layout = self.model().layout();
        let trained = plan.memory(Side::Client, layout).trained;
        let scaffold = self.scaffold();
        let sums = trained * (1 + scaffold);
        // A change and its payload; with SCAFFOLD also the server's variate and the mean gradient.
        let made = trained * (2 + 2 * scaffold);
        // A block of memory this large goes back to the system when it is freed, and answers are seldom
        // made at the same moment: of large ones, those of one thread count, and none that waits. Smaller
        // ones stay with the thread that made them, and who comes after those at work may have to wait.
        let (threads, waiting) = if 4 * trained > RETURNED {
            (1, 0)
        } else {
            let after = self.cohort().saturating_sub(self.threads);
            (self.threads, after.min(self.threads * (JOBS_AHEAD as u64 - 1)))
        };
        // Numbers of one byte are made numbers again before they are added; others are read where they lie.
        let read = match self.recipe.work.encoding {
            Encoding::Int8 { .. } => trained,
            Encoding::F32
            | Encoding::F16
            | Encoding::Bf16
            | Encoding::TopK { .. }
            | Encoding::Pruned { .. }
            | Encoding::Heads { .. } => 0,
        };
        let waiting = waiting * trained * (1 + scaffold);
        let training = trained * scaffold + sums + read + threads * made + waiting;
        self.server(plan) + training.max(3 * trained).max(layout.elements() as u64)
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
        // What other threads noted stays theirs when it is freed, and the page of the run reads it again.
        let theirs = if self.threads > 1 { SCORED_ELSEWHERE } else { 0 };
        clients * noted + scores * (size_of::<Scored>() as u64 + SCORED + theirs)
    }
}

/// The largest batch of training, over all clients and some draws; empty where nobody has rows.
pub fn largest_batch(
    model: &Model,
    shards: &Shards,
    (recipe, experiment): (&Recipe, &Experiment),
) -> BatchSize {
    let size = recipe.work.batch as usize;
    let seed = experiment.seed.of("plan");
    let mut largest = BatchSize::default();
    for (number, shard) in (0_u64..).zip(&shards.clients) {
        let encoded = shard.train.encoded();
        let lengths: Vec<usize> = encoded.iter().map(|example| example.ids.len()).collect();
        for draw in 0..DRAWS {
            for batch in epoch(&lengths, size, seed.with(number).with(draw).0) {
                let chosen: Vec<&Encoded> = batch.iter().map(|&place| &encoded[place]).collect();
                largest = largest.max(BatchSize::of(model, &chosen));
            }
        }
    }
    largest
}

/// Bytes of maps and names about a client in a round.
const NOTED: u64 = 300;
/// Bytes of a client's named scores and counts on the heap: two maps and their names.
const SCORED: u64 = 1500;
/// Of these, what is left with threads that work beside the first.
const SCORED_ELSEWHERE: u64 = 600;
