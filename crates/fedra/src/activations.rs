//! How many numbers a step on so many tokens holds beside weights and what the solver remembers.
//!
//! Counted as the tape works: an operation keeps what its backward needs for the part that learns,
//! and nothing below the lowest site that learns. Backward goes down from the head, so at a block
//! there are the gradients of everything above it, what was kept for it and below it, and what its
//! widest product works on. The largest of these moments is the answer; a test holds it to the pool.
//!
//! Per token, with width w and inner width f, an encoder's block keeps
//! ```text
//! query, key, value 3w   the inputs of two norms 2w   the derivative of the activation f
//! and where it learns: the input of query, key and value w, of the output w, of up w, of down f
//! ```

use fedra_data::{Encoded, Target};
use fedra_model::{Head, Model};
use fedra_plan::{ParamId, Part, Plan, Role, Scope, Shape, Side, Site};

/// Rows and tokens of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchSize {
    /// All tokens.
    pub tokens: u64,
    /// Rows that the head reads: one a sequence, or the labelled tokens. The last block computes
    /// nothing else behind its keys and values.
    pub read: u64,
}

impl BatchSize {
    /// The batch of these examples as training sees it.
    pub fn of(model: &Model, examples: &[&Encoded]) -> Self {
        let tokens = examples.iter().map(|example| example.ids.len() as u64).sum();
        let read = examples.iter().map(|example| match (&example.target, model.head()) {
            (Target::PerToken(labels), Head::Tokens { .. }) => labels.iter().flatten().count(),
            (Target::PerToken(labels), Head::Sequence { .. } | Head::Language | Head::Bare) => {
                labels.len()
            }
            (Target::Choice(_) | Target::Text(_), _) => example.ids.len(),
            (Target::One(_) | Target::Many(_), _) => 1,
        });
        Self { tokens, read: read.sum::<usize>() as u64 }
    }

    /// A batch of which every token is labelled, or of so many sequences.
    pub fn full(model: &Model, tokens: u64, sequences: u64) -> Self {
        let read = match model.head() {
            Head::Sequence { .. } => sequences,
            Head::Tokens { .. } | Head::Language | Head::Bare => tokens,
        };
        Self { tokens, read }
    }
}

/// Logits of a vocabulary are made piece by piece, of at most this many numbers.
const VOCABULARY_PIECE: u64 = 1 << 22;

/// The most that a training step holds at once, gradients included, in floats.
#[cfg(test)]
pub fn of_training(model: &Model, learns: &Scope, batch: BatchSize) -> u64 {
    of_part(model, learns, batch, &|_| true)
}

/// The same at one side of a plan, with the rows that come and go across its cut.
pub fn of_side(model: &Model, plan: &Plan, side: Side, batch: BatchSize) -> u64 {
    let part = of_part(model, plan.learns(), batch, &|site| plan.cut().side(site) == side);
    // Rows that leave, as numbers and as bytes, and the answer, likewise.
    let crossing = if plan.crossings().is_empty() { 0 } else { 4 };
    part + crossing * batch.tokens * model.width() as u64
}

/// What a step holds of the sites that are here.
fn of_part(model: &Model, learns: &Scope, batch: BatchSize, here: &dyn Fn(Site) -> bool) -> u64 {
    let Some(lowest) = learns.lowest_site() else { return 0 };
    let layout = model.layout();
    let gradient = |site: Site| {
        let part = learns.filter(|id| id.site == site && here(site));
        match site {
            // Rows that were looked up, unless the head uses the same table.
            Site::Embedding if model.head() != Head::Language => {
                let tables = [Role::Token, Role::Position, Role::Segment];
                let looked_up = part.filter(|id| tables.contains(&id.role));
                let rows = looked_up.len() as u64 * batch.tokens * model.width() as u64;
                let dense = (&part - &looked_up).elements(layout) as u64;
                dense + rows.min(looked_up.elements(layout) as u64)
            }
            Site::Embedding | Site::Block(_) | Site::Head => part.elements(layout) as u64,
        }
    };
    let embedded = batch.tokens * model.width() as u64;
    let blocks: Vec<Block> = (0..layout.blocks())
        .filter(|block| here(Site::Block(*block)))
        .map(|block| Block::of(model, block, batch))
        .collect();
    let (learning, frozen): (Vec<&Block>, Vec<&Block>) =
        blocks.iter().partition(|block| block.site >= lowest);
    // The norm behind the embedding keeps its input.
    let at_ends = here(Site::Head);
    let first = if lowest == Site::Embedding && at_ends { embedded } else { 0 };
    let mut left = first + learning.iter().map(|block| block.kept(learns)).sum::<u64>();
    let mut above = gradient(Site::Head);
    let mut most = frozen.iter().map(|block| block.forward()).max().unwrap_or(0);
    let head = if at_ends { head_numbers(model, batch) } else { 0 };
    most = most.max(left + head);
    for block in learning.iter().rev() {
        most = most.max(above + left + block.feed_forward_backward(learns));
        above += gradient(block.site);
        left -= block.kept(learns);
        most = most.max(above + left + block.attention_backward());
    }
    most.max(above + gradient(Site::Embedding) + 2 * embedded)
}

/// The most that an evaluation holds at once, in floats.
pub fn of_forward(model: &Model, batch: BatchSize) -> u64 {
    let blocks = (0..model.layout().blocks()).map(|block| Block::of(model, block, batch).forward());
    blocks.max().unwrap_or(0).max(head_numbers(model, batch))
}

/// What stands behind the last block: hidden states, logits and their gradient.
fn head_numbers(model: &Model, batch: BatchSize) -> u64 {
    let BatchSize { tokens, read } = batch;
    let width = model.width() as u64;
    match model.head() {
        Head::Bare => tokens * width,
        Head::Sequence { classes, .. } => read * (4 * width + 3 * classes as u64),
        Head::Tokens { classes } => read * (width + 3 * classes as u64),
        Head::Language => {
            let token = ParamId::new(Site::Embedding, Role::Token, Part::Weight);
            let words = model.layout().get(token).map_or(0, |shape| rows(*shape));
            2 * tokens * width + (tokens * words).min(VOCABULARY_PIECE)
        }
    }
}

/// One block's shape, and the rows it works on.
struct Block {
    site: Site,
    gated: bool,
    width: u64,
    /// Of the feed-forward layer.
    inner: u64,
    /// Of keys, and of values.
    keys: u64,
    heads: u64,
    tokens: u64,
    /// Rows that are read behind keys and values: fewer in the last block below a sequence head.
    read: u64,
}

impl Block {
    fn of(model: &Model, block: u16, batch: BatchSize) -> Self {
        let site = Site::Block(block);
        let shape = |role| model.layout().get(ParamId::new(site, role, Part::Weight)).copied();
        let last = usize::from(block) + 1 == model.blocks();
        let gated = model.is_decoder();
        let read = match model.head() {
            Head::Sequence { .. } if last => batch.read,
            // A decoder computes every token: its mask leaves no gaps.
            Head::Tokens { .. } if last && !gated => batch.read,
            Head::Sequence { .. } | Head::Tokens { .. } | Head::Language | Head::Bare => {
                batch.tokens
            }
        };
        Self {
            site,
            gated,
            width: model.width() as u64,
            inner: shape(Role::Up).map_or(0, rows),
            keys: shape(Role::Key).map_or(0, rows),
            heads: model.heads() as u64,
            tokens: batch.tokens,
            read,
        }
    }

    /// What is kept for its backward pass.
    fn kept(&self, learns: &Scope) -> u64 {
        let Self { width, inner, keys, tokens, read, .. } = *self;
        let trains = |roles: &[Role]| {
            learns.iter().any(|id| id.site == self.site && roles.contains(&id.role))
        };
        let if_trains = |roles: &[Role], numbers: u64| if trains(roles) { numbers } else { 0 };
        let attention = tokens * 2 * keys + read * (width + self.heads + 4);
        let norms = if self.gated { tokens * width + read * width } else { read * 2 * width };
        let wide = if self.gated { 2 * inner } else { inner };
        attention
            + norms
            + read * wide
            + if_trains(&[Role::Query, Role::Key, Role::Value], tokens * width)
            + if_trains(&[Role::Output], read * width)
            + if_trains(&[Role::Gate, Role::Up], read * width)
            + if_trains(&[Role::Down], read * inner)
    }

    /// What the way back through `Down` works on: the gradients of its output and its input, its
    /// weight in panels, and the weight's gradient.
    fn feed_forward_backward(&self, learns: &Scope) -> u64 {
        let weight = self.inner * self.width;
        let trains = learns.contains(ParamId::new(self.site, Role::Down, Part::Weight));
        self.read * (self.width + self.inner) + weight * if trains { 2 } else { 1 }
    }

    /// What the way back through attention works on, when the rest of the block is done: its
    /// projections and their gradients, the gradient of its output, and the block's input.
    fn attention_backward(&self) -> u64 {
        let projected = self.width + 2 * self.keys;
        self.tokens * (self.width + 2 * projected) + self.read * 2 * self.width
    }

    /// What it holds when nothing learns.
    fn forward(&self) -> u64 {
        let Self { width, inner, keys, tokens, read, .. } = *self;
        let attention = tokens * (width + width + 2 * keys) + read * width;
        let feed_forward =
            tokens * width + read * if self.gated { width + 3 * inner } else { 3 * width + inner };
        attention.max(feed_forward) + inner * width
    }
}

/// Rows of a matrix.
fn rows(shape: Shape) -> u64 {
    shape.dims().first().copied().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use fedra_client::{Correction, Evaluator, Examples, TrainTask, Trainer};
    use fedra_compute::{Device, Params, Seed, ThreadPool};
    use fedra_data::{Encoder, Example, LabelSet, Labels, Task, Tokenizer};
    use fedra_engine::{OptimiserConfig, Work};
    use fedra_model::hf::{BertConfig, Config, LlamaConfig};
    use fedra_model::{Adapters, Head};
    use fedra_plan::ByteCount;

    use super::*;

    /// How far a count may be from the pool's.
    const TOLERANCE: f64 = 0.15;

    fn bert(width: usize, blocks: usize) -> Config {
        Config::Bert(BertConfig {
            vocab_size: 100,
            hidden_size: width,
            num_hidden_layers: blocks,
            num_attention_heads: 4,
            intermediate_size: 4 * width,
            max_position_embeddings: 64,
            ..BertConfig::default()
        })
    }

    fn llama(width: usize, blocks: usize) -> Config {
        Config::Llama(LlamaConfig {
            vocab_size: 100,
            hidden_size: width,
            num_hidden_layers: blocks,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: width / 4,
            intermediate_size: 3 * width,
            max_position_embeddings: 64,
            ..LlamaConfig::default()
        })
    }

    struct World {
        model: Model,
        device: Device,
        params: Params,
        examples: Examples,
        task: Task,
    }

    /// Sequences of equal length: 30 words and two special tokens.
    fn world((config, task): (Config, Task), lora: Option<usize>, sequences: usize) -> World {
        let words: Vec<String> = (0..30).map(|word| format!("w{word}")).collect();
        let text = words.join(" ");
        let tokenizer = Tokenizer::grow([text.as_str()], 100).unwrap();
        let (labels, body, head) = match task {
            Task::Tokens | Task::Concepts => {
                let body = fedra_data::Body::Words(words);
                (Labels::PerWord(vec![0; 30]), body, Head::Tokens { classes: 2 })
            }
            Task::Classes | Task::Diagnosis | Task::Language | Task::Choice | Task::Generation => {
                let body = fedra_data::Body::Text(text.clone());
                (Labels::One(0), body, Head::Sequence { classes: 2, pooler: false })
            }
        };
        let place = fedra_data::RowPlace::default();
        let row = Example { body, labels, client: None, split: None, document: None, place };
        let encoder = Encoder::new(&tokenizer, 64).unwrap();
        let examples = Examples::encode(&encoder, &vec![row; sequences]).unwrap();
        let adapters =
            lora.map(|rank| Adapters::new(rank, 1.0, [Role::Query, Role::Value]).unwrap());
        let device = Device::cpu();
        let model = Model::new(config, head, adapters).unwrap();
        let params = model.fresh_params(&device, Seed(1)).unwrap();
        World { model, device, params, examples, task }
    }

    impl World {
        /// The pool's high-water mark of two steps beyond weights, their copy and moments, and the
        /// count, both in floats.
        fn steps(&self, learns: &Scope) -> (f64, f64) {
            let solver = OptimiserConfig::AdamW {
                rate: 1e-3,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.0,
            };
            let sequences = self.examples.len() as u64;
            let work = Work { batch: sequences as u32, epochs: 2, ..Work::new(solver) };
            let lesson = TrainTask {
                client: "a",
                examples: self.examples.encoded(),
                scope: learns,
                work: &work,
                correction: Correction::Nothing,
                seed: Seed(1),
                key: None,
            };
            let mut params = self.params.clone();
            let (model, device) = (&self.model, &self.device);
            self.device.reset_peak();
            let before = self.device.usage().live_bytes;
            let trainer = Trainer { model, device, cache: ByteCount(0) };
            ThreadPool::new(1).unwrap().install(|| trainer.train(&mut params, &lesson)).unwrap();
            let found = (self.device.usage().peak_bytes - before) / 4;
            let trained = learns.elements(model.layout());
            let counted = of_training(model, learns, self.batch(model));
            ((found - 3 * trained) as f64, counted as f64)
        }

        fn forward(&self) -> (f64, f64) {
            let labels = LabelSet::new(["a".to_owned(), "b".to_owned()]);
            let (model, device) = (&self.model, &self.device);
            let task = self.task;
            let evaluator = Evaluator { model, device, task, labels: &labels, tokens: 4096 };
            self.device.reset_peak();
            let before = self.device.usage().live_bytes;
            let score = || evaluator.score(&self.params, &self.examples);
            ThreadPool::new(1).unwrap().install(score).unwrap();
            let found = (self.device.usage().peak_bytes - before) / 4;
            let batch = self.batch(model);
            let read = match model.head() {
                Head::Tokens { .. } => batch.tokens,
                Head::Sequence { .. } | Head::Language | Head::Bare => batch.read,
            };
            (found as f64, of_forward(model, BatchSize { read, ..batch }) as f64)
        }

        fn batch(&self, model: &Model) -> BatchSize {
            let examples: Vec<&Encoded> = self.examples.encoded().iter().collect();
            BatchSize::of(model, &examples)
        }
    }

    fn check(what: &str, (found, counted): (f64, f64)) -> Option<String> {
        let ratio = counted / found;
        let near = (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio);
        (!near).then(|| format!("{what}: counted {counted}, the pool held {found}: {ratio:.2}"))
    }

    #[test]
    fn the_count_of_a_step_is_what_the_pool_held() {
        let mut wrong = Vec::new();
        for (name, config, task) in [
            ("bert tokens", bert(64, 4), Task::Tokens),
            ("bert tokens, wide", bert(256, 3), Task::Tokens),
            ("bert classes", bert(64, 4), Task::Classes),
            ("llama tokens", llama(64, 4), Task::Tokens),
        ] {
            for sequences in [8, 32] {
                let world = world((config.clone(), task), None, sequences);
                let layout = world.model.layout();
                let top = world.model.layout().blocks() - 1;
                let head = Scope::of_sites(layout, [Site::Head]);
                let all = Scope::everything(layout);
                let no_query = &all - &Scope::of_roles(layout, [Role::Query, Role::Key]);
                for (part, learns) in [
                    ("all", all),
                    ("the last block", Scope::of_blocks(layout, [top]) | head.clone()),
                    ("the first block", Scope::of_blocks(layout, [0]) | head),
                    ("no query and key", no_query),
                ] {
                    let what = format!("{name}, {part}, {sequences}");
                    wrong.extend(check(&what, world.steps(&learns)));
                }
                wrong.extend(check(&format!("{name}, forward, {sequences}"), world.forward()));
            }
        }
        let adapted = world((bert(64, 4), Task::Tokens), Some(4), 16);
        let layout = adapted.model.layout();
        let learns = Scope::of_parts(layout, [Part::LoraA, Part::LoraB])
            | Scope::of_sites(layout, [Site::Head]);
        wrong.extend(check("adapters", adapted.steps(&learns)));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
