//! `fedra bench step`: one training step of a Transformer, in the shapes and with the JSON fields
//! that people use to time other libraries.

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::TypedValueParser;
use fedra::config::DeviceReport;
use fedra::process::peak_resident_bytes;
use fedra_compute::{
    Device, Gradients, Optimiser, Params, Seed, Solver, Tape, Tensor, ThreadPool, WeightFormat,
};
use fedra_model::{Adapters, Batch, Head, Model, PrefixCache, Preset, Targets, WeightStorage};
use fedra_plan::{ByteCount, Layer, Part, Role, Scope};
use serde_json::{Value, json};
use std::time::Instant;

use super::frozen::copied_blocks;
use super::report::{Format, least, median, rounded};
use crate::device::{DeviceFlags, peers_precision};
use crate::flags::{Threads, one_of};
use crate::weights::WeightsFlag;

/// Classes of the encoders' benchmark head.
const CLASSES: u32 = 16;
/// Steps before the clock counts.
pub(super) const WARM_UP: usize = 3;
/// Different batches that are replayed from a cached prefix.
const CACHED_BATCHES: u64 = 4;

/// Time one training step: forward, backward and optimiser on random tokens or images.
#[derive(Args)]
pub struct Step {
    /// Model shape
    #[arg(long, default_value = "minilm", value_parser = shapes())]
    pub(super) shape: Preset,
    /// Sequences in a batch
    #[arg(long, default_value_t = 16)]
    pub(super) batch: usize,
    /// Tokens in a sequence [default: 128, or those of an image]
    #[arg(long)]
    seq: Option<usize>,
    /// Train only these blocks and the head, e.g. 4,5 [default: everything]
    #[arg(long, value_delimiter = ',', value_name = "BLOCKS")]
    train_blocks: Vec<u16>,
    /// Replay the frozen blocks below from a cache, as in a later local epoch
    #[arg(long, requires = "train_blocks")]
    cached_prefix: bool,
    /// Train low-rank adapters of this rank on query and value, and nothing else
    #[arg(long, value_name = "RANK", conflicts_with_all = ["train_blocks", "cached_prefix"])]
    lora: Option<usize>,
    #[command(flatten)]
    weights: WeightsFlag,
    #[command(flatten)]
    device: DeviceFlags,
    /// Take at most so much of a GPU's memory
    #[arg(long, value_name = "SIZE", hide = true)]
    device_memory: Option<ByteCount>,
    #[command(flatten)]
    threads: Threads,
    /// Steps to time
    #[arg(long, default_value_t = 12)]
    pub(super) steps: usize,
    /// Time a private step (each example's norm, clip, noise) beside the plain one, in turn
    #[arg(long, conflicts_with = "cached_prefix")]
    pub(super) dp: bool,
    #[command(flatten)]
    pub(super) format: Format,
}

impl Step {
    /// Checks the numbers and starts the threads.
    pub(super) fn pool(&self) -> Result<ThreadPool> {
        if self.batch == 0 || self.seq == Some(0) || self.steps == 0 {
            bail!("--batch, --seq and --steps must be at least 1");
        }
        if self.seq.is_some() && self.shape.config().image.is_some() {
            bail!("--seq applies to shapes that read text; {} reads images", self.shape.name());
        }
        self.threads.pool()
    }

    /// Tokens in a sequence.
    pub(super) fn seq(&self) -> usize {
        let image = self.shape.config().image;
        self.seq.unwrap_or_else(|| image.map_or(128, |image| image.tokens()))
    }

    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        let mut bench = self.bench()?;
        let warm_up =
            if self.cached_prefix { WARM_UP.max(CACHED_BATCHES as usize) } else { WARM_UP };
        for step in 0..warm_up {
            bench.step(self, step as u64)?;
        }
        let times = (0..self.steps)
            .map(|step| bench.step(self, (warm_up + step) as u64))
            .collect::<Result<Vec<f64>>>()?;
        let seconds = median(&times).context("at least one step")?;
        let (median_ms, best_ms) = (rounded(seconds * 1e3, 2), rounded(least(&times) * 1e3, 2));
        let tokens_per_s = ((self.batch * self.seq()) as f64 / seconds).round() as u64;
        let pool = bench.device.usage().peak_bytes as u64;
        let is_gpu = matches!(bench.device, Device::Cuda(_));
        let peak_bytes = if is_gpu { pool } else { peak_resident_bytes().unwrap_or(0) };
        let (setting, mut object) = self.setting(&bench.device);
        object["cached_prefix"] = self.cached_prefix.into();
        object["median_ms"] = median_ms.into();
        object["best_ms"] = best_ms.into();
        object["tokens_per_s"] = tokens_per_s.into();
        object["peak_bytes"] = peak_bytes.into();
        object["pool_bytes"] = pool.into();
        if is_gpu {
            object["foreseen_bytes"] = self.foreseen()?.into();
        }
        let peak = peak_bytes / 1_000_000;
        let words = format_args!(
            "{setting}: {median_ms} ms a step (best {best_ms}), {tokens_per_s} tokens/s, {peak} MB peak"
        );
        self.format.print(object, words);
        Ok(())
    }

    /// A fresh model with memory of its own, ready to be trained.
    pub(super) fn bench(&self) -> Result<Bench> {
        let device = self.device.open_apart()?;
        device.limit_memory(self.device_memory.map(|ByteCount(bytes)| bytes));
        let bench = self.bench_on(device)?;
        bench.device.synchronise();
        bench.device.check().context("the model does not fit on the device")?;
        // What making the weights took is not what a step takes.
        bench.device.reset_peak();
        Ok(bench)
    }

    /// What `fedra plan` foresees of a GPU's memory: the same steps on a device without numbers.
    fn foreseen(&self) -> Result<usize> {
        let mut bench = self.bench_on(Device::meta_gpu(self.device.precision()))?;
        bench.device.reset_peak();
        for number in 0..2 {
            bench.step(self, number)?;
        }
        Ok(bench.device.usage().peak_bytes)
    }

    fn bench_on(&self, device: Device) -> Result<Bench> {
        let config = without_segments(self.shape);
        let head = if config.causal {
            Head::Language
        } else {
            Head::Sequence { classes: CLASSES as usize, pooler: false }
        };
        let roles = [Role::Query, Role::Value];
        let adapters = self.lora.map(|rank| Adapters::new(rank, 2.0 * rank as f32, roles));
        let model = Model::new(config, head, adapters.transpose().context("--lora")?)?;
        if self.seq() > model.longest() {
            bail!("--seq is {}, expected at most {} for this shape", self.seq(), model.longest());
        }
        let scope = self.scope(&model)?;
        let first = scope.blocks().first().copied().unwrap_or(0);
        let format = self.weights(&device);
        let frozen = Scope::everything(model.layout()) - &scope;
        let model = model.clone().stored_as(WeightStorage::new(format, model.layout(), &frozen));
        Ok(Bench {
            params: if format == WeightFormat::F32 {
                model.fresh_params(&device, Seed(0))?
            } else {
                copied_blocks(&model, &device)?
            },
            optimiser: Optimiser::new(&device, Solver::adamw(1e-4, 0.01))?,
            cache: self.cached_prefix.then(|| PrefixCache::new(usize::from(first), usize::MAX)),
            model,
            device,
            scope,
        })
    }

    /// How frozen weights are stored: under adapters as the device's activations, unless it is said.
    fn weights(&self, device: &Device) -> WeightFormat {
        let has_halves = Tensor::with_capacity(device, 1, 1).is_bf16() && self.lora.is_some();
        let usual = if has_halves { WeightFormat::Bf16 } else { WeightFormat::F32 };
        self.weights.format().unwrap_or(usual)
    }

    fn scope(&self, model: &Model) -> Result<Scope> {
        if self.lora.is_some() {
            return Ok(Scope::of_parts(model.layout(), [Part::LoraA, Part::LoraB]));
        }
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
                Scope::of_layers(model.layout(), [Layer::Head])
            }
            Head::Language | Head::Bare => Scope::empty(),
        };
        Ok(blocks | head)
    }

    /// What is measured: in words, and with the fields of the script it is compared with.
    pub(super) fn setting(&self, device: &Device) -> (String, Value) {
        let (batch, seq) = (self.batch, self.seq());
        let (shape, threads) = (self.shape.name(), self.threads.count());
        let blocks: Vec<String> = self.train_blocks.iter().map(ToString::to_string).collect();
        let blocks = match self.lora {
            Some(rank) => format!("lora {rank}"),
            None if blocks.is_empty() => "all".to_owned(),
            None => blocks.join(","),
        };
        let precision = peers_precision(device);
        let weights = self.weights(device);
        let device = DeviceReport::of(device).device;
        let object = json!({
            "device": device, "shape": shape, "batch": batch, "seq": seq, "precision": precision,
            "train_blocks": blocks, "threads": threads, "weights": weights.name(),
        });
        let on = if device == "cpu" {
            format!("{threads} threads in {precision}")
        } else {
            format!("{device} in {precision}")
        };
        let stored = match weights {
            WeightFormat::F32 => String::new(),
            WeightFormat::Bf16 | WeightFormat::Int8 | WeightFormat::Int4 => {
                format!(", frozen weights in {weights}")
            }
        };
        (format!("{shape} {batch}x{seq} on {on}, training {blocks}{stored}"), object)
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
        self.device.synchronise();
        self.device.check()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Random tokens or images, and what should be said about them.
    pub(super) fn batch(&self, shape: &Step, number: u64) -> Result<(Batch, Vec<Option<u32>>)> {
        let config = self.model.config();
        let (words, seq) = (config.vocab_size.max(1), shape.seq());
        let mut draw = Seed(1).with(number).generator();
        let mut ids = |below| (0..shape.batch * seq).map(|_| draw.below(below) as u32).collect();
        let (x, y): (Vec<u32>, Vec<u32>) = (ids(words), ids(words.max(CLASSES as usize)));
        let mut batch = Batch::packed(x, vec![seq; shape.batch])?;
        if let Some(image) = config.image {
            let values = (0..shape.batch * image.pixels()).map(|_| draw.normal() as f32);
            batch = batch.with_pixels(values.collect())?.placed_on(&self.device)?;
        }
        let targets: Vec<Option<u32>> = match self.model.head() {
            Head::Sequence { .. } => y.iter().step_by(seq).map(|y| Some(y % CLASSES)).collect(),
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
                self.model.loss_from(&mut tape, weights, from, batch, targets)?
            }
        };
        Ok(tape.backward(&[(&loss, Tensor::scalar(&self.device, 1.0))])?)
    }
}

/// The benchmark's encoders have no segment embedding, as in the script they are compared with.
fn without_segments(shape: Preset) -> fedra_model::hf::Config {
    fedra_model::hf::Config { type_vocab_size: 0, ..shape.config() }
}

/// The presets by their names, for the command line.
pub fn shapes() -> impl TypedValueParser<Value = Preset> {
    one_of(Preset::ALL.map(|preset| (preset.name(), preset)))
}
