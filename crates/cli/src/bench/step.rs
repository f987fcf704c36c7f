//! `fedra bench step`: one training step of a Transformer, in the shapes and with the JSON fields
//! that people use to time other libraries.

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::process::peak_resident_bytes;
use fedra_compute::{Device, Gradients, Optimiser, Params, Seed, Solver, Tape, Tensor, ThreadPool};
use fedra_model::{Batch, Head, Model, PrefixCache, Preset, Targets};
use fedra_plan::{Scope, Site};
use std::time::Instant;

use crate::console;

/// Classes of the encoders' benchmark head.
const CLASSES: u32 = 16;
/// Steps before the clock counts.
pub(super) const WARM_UP: usize = 3;
/// Different batches that are replayed from a cached prefix.
const CACHED_BATCHES: u64 = 4;

/// Time one training step: forward, backward and optimiser on random tokens.
#[derive(Args)]
pub struct Step {
    /// Model shape: tiny, minilm, bert-base, smollm2 or llama-1b
    #[arg(long, default_value = "minilm", value_parser = parse_shape)]
    pub(super) shape: Preset,
    /// Sequences in a batch
    #[arg(long, default_value_t = 16)]
    pub(super) batch: usize,
    /// Tokens in a sequence
    #[arg(long, default_value_t = 128)]
    pub(super) seq: usize,
    /// Train only these blocks and the head, e.g. 4,5 [default: everything]
    #[arg(long, value_delimiter = ',', value_name = "BLOCKS")]
    train_blocks: Vec<u16>,
    /// Replay the frozen blocks below from a cache, as in a later local epoch
    #[arg(long, requires = "train_blocks")]
    cached_prefix: bool,
    /// Threads [default: as many as the machine has cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Steps to time
    #[arg(long, default_value_t = 12)]
    pub(super) steps: usize,
    /// Time a private step (each example's norm, clip, noise) beside the plain one, in turn
    #[arg(long, conflicts_with = "cached_prefix")]
    dp: bool,
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    pub(super) json: bool,
}

impl Step {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        if self.batch == 0 || self.seq == 0 || self.threads() == 0 || self.steps == 0 {
            bail!("--batch, --seq, --threads and --steps must be at least 1");
        }
        if self.threads() > ThreadPool::MOST {
            bail!("--threads: found {}, expected at most {}", self.threads(), ThreadPool::MOST);
        }
        let pool = ThreadPool::new(self.threads()).context("--threads: cannot start them")?;
        if self.dp {
            return pool.install(|| super::private_step::run(&self));
        }
        let report = pool.install(|| self.measure())?;
        print_report(&report, self.json);
        Ok(())
    }

    pub(super) fn threads(&self) -> usize {
        // Not the pool's own count: asking would start a pool that stays awake beside this one.
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn measure(&self) -> Result<Report> {
        let mut bench = self.bench()?;
        let warm_up =
            if self.cached_prefix { WARM_UP.max(CACHED_BATCHES as usize) } else { WARM_UP };
        for step in 0..warm_up {
            bench.step(self, step as u64)?;
        }
        let mut times = (0..self.steps)
            .map(|step| bench.step(self, (warm_up + step) as u64))
            .collect::<Result<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(self.report(&times, bench.device.usage().peak_bytes))
    }

    /// A fresh model with memory of its own, ready to be trained.
    pub(super) fn bench(&self) -> Result<Bench> {
        let device = Device::cpu();
        let head = match self.shape {
            Preset::Tiny | Preset::MiniLm | Preset::BertBase => {
                Head::Sequence { classes: CLASSES as usize, pooler: false }
            }
            Preset::SmolLm2 | Preset::Llama1B | Preset::Llama2 => Head::Language,
        };
        let model = Model::new(without_segments(self.shape), head, None)?;
        if self.seq > model.longest() {
            bail!("--seq is {}, expected at most {} for this shape", self.seq, model.longest());
        }
        let scope = self.scope(&model)?;
        let first = scope.blocks().first().copied().unwrap_or(0);
        Ok(Bench {
            params: model.fresh_params(&device, Seed(0))?,
            optimiser: Optimiser::new(&device, Solver::adamw(1e-4, 0.01))?,
            cache: self.cached_prefix.then(|| PrefixCache::new(usize::from(first), usize::MAX)),
            model,
            device,
            scope,
        })
    }

    fn scope(&self, model: &Model) -> Result<Scope> {
        if self.train_blocks.is_empty() {
            return Ok(Scope::everything(model.layout()));
        }
        for &block in &self.train_blocks {
            if usize::from(block) >= model.blocks() {
                bail!("--train-blocks names block {block}, expected less than {}", model.blocks());
            }
        }
        let blocks = Scope::of_blocks(model.layout(), self.train_blocks.iter().copied());
        // A decoder's head here is the tied embedding and the last norm, which stay frozen.
        let head = match model.head() {
            Head::Sequence { .. } | Head::Tokens { .. } => {
                Scope::of_sites(model.layout(), [Site::Head])
            }
            Head::Language | Head::Bare => Scope::empty(),
        };
        Ok(blocks | head)
    }

    /// What trains, in words.
    pub(super) fn trained(&self) -> String {
        let blocks: Vec<String> = self.train_blocks.iter().map(ToString::to_string).collect();
        if blocks.is_empty() { "all".into() } else { blocks.join(",") }
    }

    fn report(&self, times: &[f64], pool_bytes: usize) -> Report {
        let median = times[times.len() / 2];
        Report {
            peer: format!("fedra {}", env!("CARGO_PKG_VERSION")),
            device: "cpu",
            shape: self.shape.name(),
            batch: self.batch,
            seq: self.seq,
            precision: "fp32",
            train_blocks: self.trained(),
            cached_prefix: self.cached_prefix,
            threads: self.threads(),
            median_ms: rounded(median * 1e3),
            best_ms: rounded(times[0] * 1e3),
            tokens_per_s: ((self.batch * self.seq) as f64 / median).round() as u64,
            peak_bytes: peak_resident_bytes().unwrap_or(0),
            pool_bytes,
        }
    }
}

/// What is trained and what it is trained with.
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) model: Model,
    pub(super) params: Params,
    pub(super) scope: Scope,
    pub(super) optimiser: Optimiser,
    cache: Option<PrefixCache>,
}

impl Bench {
    /// One step on random tokens; returns its seconds.
    pub(super) fn step(&mut self, shape: &Step, number: u64) -> Result<f64> {
        let number = if self.cache.is_some() { number % CACHED_BATCHES } else { number };
        let (batch, targets) = self.batch(shape, number)?;
        let start = Instant::now();
        let gradients = self.gradients(shape, &batch, &targets, number)?;
        self.optimiser.step(&mut self.params, &gradients)?;
        drop(gradients);
        Ok(start.elapsed().as_secs_f64())
    }

    /// Random tokens and what should be said about them.
    pub(super) fn batch(&self, shape: &Step, number: u64) -> Result<(Batch, Vec<Option<u32>>)> {
        let words =
            self.model.layout().iter().next().context("a model has parameters")?.1.dims()[0];
        let mut draw = Seed(1).with(number).generator();
        let mut ids = || (0..shape.batch * shape.seq).map(|_| draw.below(words) as u32).collect();
        let (x, y): (Vec<u32>, Vec<u32>) = (ids(), ids());
        let batch = Batch::packed(x, vec![shape.seq; shape.batch])?;
        let targets: Vec<Option<u32>> = match self.model.head() {
            Head::Sequence { .. } => {
                y.iter().step_by(shape.seq).map(|y| Some(y % CLASSES)).collect()
            }
            Head::Language | Head::Tokens { .. } | Head::Bare => y.into_iter().map(Some).collect(),
        };
        Ok((batch, targets))
    }

    fn gradients(
        &mut self,
        shape: &Step,
        batch: &Batch,
        targets: &[Option<u32>],
        number: u64,
    ) -> Result<Gradients> {
        let mut tape = Tape::new(&self.device);
        let weights = self.params.training(&self.scope);
        let targets = Targets::Classes(targets);
        let loss = match &mut self.cache {
            None => self.model.loss(&mut tape, weights, batch, targets)?,
            Some(cache) => {
                let first = number * shape.batch as u64;
                let examples: Vec<u64> = (first..first + shape.batch as u64).collect();
                let known = (&self.model, &self.params);
                let hidden = cache.hidden(&mut tape, known, batch, &examples)?;
                let from = (hidden, cache.blocks());
                self.model.loss_from(&mut tape, weights, from, batch.packing(), targets)?
            }
        };
        Ok(tape.backward(&[(&loss, Tensor::scalar(&self.device, 1.0))])?)
    }
}

/// The result, with the fields of the script it is compared with and two more about memory.
#[derive(serde::Serialize)]
struct Report {
    peer: String,
    device: &'static str,
    shape: &'static str,
    batch: usize,
    seq: usize,
    precision: &'static str,
    train_blocks: String,
    cached_prefix: bool,
    threads: usize,
    median_ms: f64,
    best_ms: f64,
    tokens_per_s: u64,
    peak_bytes: u64,
    pool_bytes: usize,
}

/// The benchmark's encoders have no segment embedding, as in the script they are compared with.
fn without_segments(shape: Preset) -> fedra_model::hf::Config {
    let mut config = shape.config();
    if let fedra_model::hf::Config::Bert(bert) = &mut config {
        bert.type_vocab_size = 0;
    }
    config
}

/// The preset of a name, for the command line.
pub fn parse_shape(name: &str) -> Result<Preset, String> {
    Preset::parse(name).ok_or_else(|| {
        let known = Preset::ALL.map(Preset::name).join(", ");
        format!("expected one of {known}")
    })
}

/// Two digits behind the point.
pub(super) fn rounded(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

fn print_report(report: &Report, json: bool) {
    if json {
        console::json(serde_json::json!(report));
        return;
    }
    console::data(format_args!(
        "{} {}x{} on {} threads, training {}: {} ms a step (best {}), {} tokens/s, {} MB peak",
        report.shape,
        report.batch,
        report.seq,
        report.threads,
        report.train_blocks,
        report.median_ms,
        report.best_ms,
        report.tokens_per_s,
        report.peak_bytes / 1_000_000,
    ));
}
