//! Tensor memory of a run's steps, foreseen for the batches that the run will have.
//!
//! What a batch takes is found by a rehearsal ([`MemoryDryRun`]): the run's own steps on a device without
//! numbers. Here it is decided which batches stand for a run: the largest ones, drawn as the clients
//! will draw them. Where rows must not matter, because a server has none, it is a batch of the longest
//! sequences.

use fedra_client::{ClientError, EVALUATION_TOKENS, Examples, MemoryDryRun, evaluation_batches};
use fedra_compute::Precision;
use fedra_data::{Encoded, EncodedPreference, LabelSet, Target, Task, epoch};
use fedra_engine::{Recipe, SideMemory};
use fedra_model::{Head, Model};
use fedra_plan::{ByteCount, Cut, Layer, Plan, Round, Scope, Side};

use crate::config::Experiment;
use crate::error::Result;
use crate::forecast::traffic::course::Setting;
use crate::forecast::traffic::crossing::client_seed;

/// Rounds whose batches are drawn to see how large they get.
const DRAWS: u32 = 4;

/// The batches by which memory is foreseen, and who has them.
#[derive(Clone)]
pub struct LargestBatches {
    task: Task,
    labels: LabelSet,
    /// The largest steps of training.
    steps: Vec<LargestStep>,
    /// The largest batch that a client scores.
    scored: Vec<Encoded>,
    /// The largest batch that anybody scores, the central test set included.
    scored_here: Vec<Encoded>,
    /// Clients of a round.
    clients: u64,
    /// Of the processor's products.
    precision: Precision,
    /// The precision of the GPU whose memory is foreseen; `None`: main memory.
    gpu: Option<Precision>,
}

/// A step with the most tokens.
#[derive(Clone, Debug, Default)]
struct LargestStep {
    /// How many steps have been taken with it: an optimiser has no moments in the first.
    taken: u64,
    /// One client's batch.
    batch: Vec<Encoded>,
    tokens: usize,
    /// Lengths of everybody's sequences.
    joined: Vec<usize>,
}

impl LargestBatches {
    /// Those of the clients' rows; where nobody here has rows, of the longest sequences.
    pub fn of((experiment, prepared, recipe): Setting<'_>) -> Self {
        let shards = &prepared.shards;
        let seed = experiment.seed;
        let clients = recipe.sampler.about(shards.clients.len()).max(1) as u64;
        let limit = recipe.work.max_steps.map_or(usize::MAX, |steps| steps as usize);
        let [mut first, mut later] =
            [1, 2].map(|taken| LargestStep { taken, ..LargestStep::default() });
        for round in 0..experiment.rounds.min(DRAWS) {
            let mut steps: Vec<Vec<Vec<usize>>> = Vec::new();
            for (number, shard) in (0_u64..).zip(&shards.clients) {
                let encoded = shard.train.encoded();
                let lengths: Vec<usize> = encoded.iter().map(|example| example.ids.len()).collect();
                let order = client_seed(seed, Round(round), number).of("order");
                let together = recipe.work.step_batch() as usize;
                let draw = |draw| epoch(&lengths, together, order.with(draw).0);
                let drawn = (0..u64::from(recipe.work.epochs)).flat_map(draw).take(limit);
                for (step, whole) in drawn.enumerate() {
                    let into = if step == 0 { &mut first } else { &mut later };
                    steps.resize(steps.len().max(step + 1), Vec::new());
                    // Of a step that is summed from several batches, one is in memory at a time.
                    let tokens =
                        |batch: &&[usize]| batch.iter().map(|&at| lengths[at]).sum::<usize>();
                    let batches = whole.chunks(recipe.work.batch.max(1) as usize);
                    let Some(batch) = batches.max_by_key(tokens) else { continue };
                    into.see(batch, (encoded, &lengths));
                    steps[step].push(batch.iter().map(|&place| lengths[place]).collect());
                }
            }
            for (step, mut all) in steps.into_iter().enumerate() {
                // The sequences of as many clients as take part, those with the most tokens.
                all.sort_by_key(|lengths| std::cmp::Reverse(lengths.iter().sum::<usize>()));
                all.truncate(clients as usize);
                let (joined, into) =
                    (all.concat(), if step == 0 { &mut first } else { &mut later });
                if joined.iter().sum::<usize>() > into.joined.iter().sum() {
                    into.joined = joined;
                }
            }
        }
        let steps: Vec<LargestStep> =
            [first, later].into_iter().filter(|step| !step.batch.is_empty()).collect();
        if steps.is_empty() {
            return Self::full(experiment, &prepared.model, recipe);
        }
        let mut scored = LargestStep::default();
        let at_clients = shards
            .clients
            .iter()
            .flat_map(|shard| recipe.evaluation.on.iter().filter_map(|on| shard.of(*on)));
        at_clients.for_each(|examples| scored.see_scored(examples));
        let mut scored_here = scored.clone();
        scored_here.see_scored(&shards.central_test);
        Self {
            task: shards.task,
            labels: shards.labels.clone(),
            steps,
            scored: scored.batch,
            scored_here: scored_here.batch,
            clients,
            precision: experiment.device.processor_precision(),
            gpu: None,
        }
    }

    /// The same for the memory of a GPU.
    pub fn on_gpu(self, precision: Precision) -> Self {
        Self { gpu: Some(precision), ..self }
    }

    /// The most tensor memory of whoever scores the whole model, its weights among it.
    pub fn scoring(&self, model: &Model, recipe: &Recipe) -> Result<ByteCount> {
        let plan = Plan::new(model.layout(), Scope::empty(), Cut::none())?;
        let step = LargestStep::default();
        let rehearsal = self.rehearsal(model, recipe, (&plan, &step));
        Ok(MemoryDryRun { scored: &self.scored_here, ..rehearsal }.scoring()?)
    }

    /// Sequences as long as the experiment allows, of which every token is another one and labelled.
    pub fn full(experiment: &Experiment, model: &Model, recipe: &Recipe) -> Self {
        let longest = experiment.max_tokens;
        let words = model.config().vocab_size.max(1);
        let is_pair = experiment.task == Task::Preference;
        // Two answers are a sequence each.
        let tokens = if is_pair { 2 * longest } else { longest };
        let sequence = |number: usize| Encoded {
            ids: (0..tokens).map(|place| ((number * tokens + place) % words) as u32).collect(),
            types: Vec::new(),
            target: match model.head() {
                Head::Sequence { .. } => Target::One(0),
                Head::Language if is_pair => Target::Preference(EncodedPreference {
                    chosen: longest,
                    told: vec![Some(0); tokens],
                }),
                Head::Tokens { .. } | Head::Language | Head::Bare => {
                    Target::PerToken(vec![Some(0); longest])
                }
            },
            dropped: 0,
            pixels: None,
        };
        Self {
            task: experiment.task,
            labels: LabelSet::default(),
            steps: vec![LargestStep {
                taken: 2,
                batch: (0..recipe.work.batch as usize).map(sequence).collect(),
                tokens: tokens * recipe.work.batch as usize,
                joined: vec![tokens; recipe.work.batch as usize],
            }],
            scored: Vec::new(),
            scored_here: Vec::new(),
            clients: 1,
            precision: experiment.device.processor_precision(),
            gpu: None,
        }
    }

    /// The most tensor memory of a client, and of the server's half of a model that is cut.
    pub fn sides(&self, model: &Model, recipe: &Recipe, plan: &Plan) -> Result<SideMemory> {
        let mut server = ByteCount(0);
        if recipe.split.is_some() {
            // A server begins with the whole model, of which it then keeps the blocks between.
            let layout = model.layout();
            server = model.storage().bytes(layout, &Scope::everything(layout));
            server = server.max(self.server(model, recipe, plan)?);
        }
        Ok(SideMemory { client: self.client(model, recipe, plan)?, server })
    }

    /// The most tensor memory of a client.
    pub fn client(&self, model: &Model, recipe: &Recipe, plan: &Plan) -> Result<ByteCount> {
        let model = &of_client(model, plan)?;
        let client = |step| self.rehearsal(model, recipe, (plan, step)).client();
        most(self.steps.iter().map(client))
    }

    /// The most tensor memory of the server's half.
    pub fn server(&self, model: &Model, recipe: &Recipe, plan: &Plan) -> Result<ByteCount> {
        let server = |step| self.rehearsal(model, recipe, (plan, step)).server();
        most(self.steps.iter().map(server))
    }

    /// The most tensor memory beside the first weights where everybody is in one process, and this many
    /// clients are at work at a time.
    pub fn together(
        &self,
        (model, recipe, plan): (&Model, &Recipe, &Plan),
        threads: u64,
    ) -> Result<ByteCount> {
        let own = &of_client(model, plan)?;
        let client = |step| {
            let rehearsal = self.rehearsal(own, recipe, (plan, step));
            MemoryDryRun { scored: &self.scored_here, ..rehearsal }.client()
        };
        let weights = plan.memory(Side::Client, model.layout()).in_training(0);
        let spared = model.storage().spared(model.layout(), &plan.held_by(Side::Client));
        let beside = most(self.steps.iter().map(client))?.0 - (weights.0 - spared.0);
        Ok(ByteCount(threads * beside) + self.server(model, recipe, plan)?)
    }

    fn rehearsal<'a>(
        &'a self,
        model: &'a Model,
        recipe: &'a Recipe,
        (plan, step): (&'a Plan, &'a LargestStep),
    ) -> MemoryDryRun<'a> {
        MemoryDryRun {
            model,
            plan,
            split: recipe.split.as_ref(),
            work: &recipe.work,
            task: self.task,
            labels: &self.labels,
            batch: &step.batch,
            steps: step.taken,
            scored: &self.scored,
            clients: self.clients,
            joined: &step.joined,
            precision: self.precision,
            gpu: self.gpu,
        }
    }
}

/// The model as a client with this plan has it: it may lack the upper blocks.
fn of_client(model: &Model, plan: &Plan) -> Result<Model> {
    let blocks = (0..model.layout().blocks()).map(Layer::Block);
    let has = blocks.filter(|block| plan.has().iter().any(|id| id.layer == *block));
    Ok(model.shallow(has.count())?)
}

/// The most of several amounts.
fn most(all: impl Iterator<Item = Result<ByteCount, ClientError>>) -> Result<ByteCount> {
    let all: Vec<ByteCount> = all.collect::<Result<_, _>>()?;
    Ok(all.into_iter().max().unwrap_or_default())
}

impl LargestStep {
    /// Keeps the batch with the most tokens.
    fn see(&mut self, batch: &[usize], (encoded, lengths): (&[Encoded], &[usize])) {
        let tokens = batch.iter().map(|&place| lengths[place]).sum();
        if tokens > self.tokens {
            self.tokens = tokens;
            self.batch = batch.iter().map(|&place| encoded[place].clone()).collect();
        }
    }

    /// Keeps the batch of scoring with the most tokens.
    fn see_scored(&mut self, examples: &Examples) {
        let encoded = examples.encoded();
        let length = |example: &Encoded| example.scored_lengths().into_iter().sum();
        let lengths: Vec<usize> = encoded.iter().map(length).collect();
        for batch in evaluation_batches(&lengths, EVALUATION_TOKENS) {
            self.see(&batch, (encoded, &lengths));
        }
    }
}

#[cfg(test)]
mod tests {
    use fedra_compute::{ThreadPool, WeightFormat};
    use fedra_engine::{ClientBlocks, OptimiserConfig, SplitConfig, Work};
    use fedra_model::{Adapters, Preset, WeightStorage};
    use fedra_plan::{Part, Role};

    use super::*;

    /// One sequence of so many tokens, of which every one is predicted.
    fn batches(tokens: usize) -> LargestBatches {
        let ids = (0..tokens as u32).collect();
        let target = Target::PerToken(vec![Some(0); tokens]);
        let batch = vec![Encoded { ids, types: Vec::new(), target, dropped: 0, pixels: None }];
        LargestBatches {
            task: Task::Language,
            labels: LabelSet::default(),
            steps: vec![LargestStep { taken: 2, batch, tokens, joined: vec![tokens] }],
            scored: Vec::new(),
            scored_here: Vec::new(),
            clients: 1,
            precision: Precision::F32,
            gpu: None,
        }
    }

    #[test]
    fn a_client_with_a_block_at_each_end_of_llama2_saves_what_the_page_says() {
        let adapters = Adapters::new(8, 16.0, [Role::Query, Role::Value]).unwrap();
        let model = Model::new(Preset::Llama2.config(), Head::Language, Some(adapters)).unwrap();
        let layout = model.layout();
        let plain = layout.iter().filter(|(id, _)| matches!(id.part, Part::Weight | Part::Bias));
        assert_eq!(plain.map(|(_, shape)| shape.elements()).sum::<usize>(), 6_738_415_616);
        let learns = Scope::of_parts(layout, [Part::LoraA, Part::LoraB]);
        let optimiser = OptimiserConfig::AdamW {
            rate: 2e-4,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        };
        let split = Some(SplitConfig::new(ClientBlocks { first: 1, last: 1 }));
        let recipe = Recipe { split, ..Recipe::new(Work::new(optimiser)) };
        let cut = Plan::new(layout, learns.clone(), Cut::keep(1, 1, 32).unwrap()).unwrap();
        let whole = Plan::new(layout, learns, Cut::none()).unwrap();
        let weights = cut.held_by(Side::Client).elements(layout) as f64 / layout.elements() as f64;
        assert_eq!(format!("{:.1}", 100.0 * (1.0 - weights)), "90.1");
        let saved = |tokens| {
            let batches = batches(tokens);
            let held = |plan| batches.client(&model, &recipe, plan).unwrap().0 as f64;
            format!("{:.1}", 100.0 * (1.0 - held(&cut) / held(&whole)))
        };
        // Attention takes its workspace a thread.
        let all = || [saved(128), saved(512), saved(2048)];
        let found = ThreadPool::new(2).unwrap().install(all);
        assert_eq!(found, ["86.9", "87.3", "88.5"]);
    }

    #[test]
    fn llama2_learns_adapters_over_4_bits_below_8_gb_and_each_format_takes_less_than_the_one_before()
     {
        let adapters = Adapters::new(8, 16.0, [Role::Query, Role::Value]).unwrap();
        let model = Model::new(Preset::Llama2.config(), Head::Language, Some(adapters)).unwrap();
        let learns = Scope::of_parts(model.layout(), [Part::LoraA, Part::LoraB]);
        let frozen = Scope::everything(model.layout()) - &learns;
        let optimiser = OptimiserConfig::AdamW {
            rate: 2e-4,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        };
        let recipe = Recipe::new(Work::new(optimiser));
        let plan = Plan::new(model.layout(), learns, Cut::none()).unwrap();
        let held = |batches: &LargestBatches, format| {
            let storage = WeightStorage::new(format, model.layout(), &frozen);
            let model = model.clone().stored_as(storage);
            batches.client(&model, &recipe, &plan).unwrap().0
        };
        let on_gpu = batches(512).on_gpu(Precision::Bf16);
        let [_, bf16, int8, int4] = WeightFormat::ALL.map(|format| held(&on_gpu, format));
        assert!(int4 < int8 && int8 < bf16, "{bf16}, {int8}, {int4}");
        assert!(int4 < 8_000_000_000, "{int4}");
        // Beside the weights, which take 4.33 GB, are activations and a copy of a few of them as bf16.
        assert!(bf16 - int4 > 8_000_000_000, "{bf16} and {int4}");
        let all = || WeightFormat::ALL.map(|format| held(&batches(512), format));
        let on_processor = ThreadPool::new(2).unwrap().install(all);
        assert!(on_processor.is_sorted_by(|more, less| more > less), "{on_processor:?}");
    }
}
