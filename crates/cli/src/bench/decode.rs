//! `fedra bench decode`: greedy decoding of a few sequences, in the shapes and with the JSON fields that people use to
//! time other libraries.

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::config::DeviceReport;
use fedra_compute::{Device, Params, Seed, Tape, Tensor, WeightFormat};
use fedra_model::{Batch, Head, KeyValueCache, Model, Preset, WeightStorage};
use serde_json::json;
use std::time::Instant;

use super::report::{Format, median, rounded};
use super::step::shapes;
use crate::device::{DeviceFlags, peers_precision};
use crate::flags::Threads;
use crate::weights::WeightsFlag;

/// Tokens before the clock counts.
const WARM_UP: usize = 3;
/// Random numbers that weights are filled from.
const DRAWN: usize = 1 << 20;
/// Tokens of a prompt that are read at once.
const CHUNK: usize = 256;

/// Time the next token of sequences that are decoded together, each the likeliest, behind random ones.
#[derive(Args)]
pub struct DecodeBench {
    /// Model shape
    #[arg(long, default_value = "smollm2", value_parser = shapes())]
    shape: Preset,
    /// Sequences that are decoded together
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Tokens that each sequence has already
    #[arg(long, default_value_t = 100)]
    context: usize,
    /// Tokens to time
    #[arg(long, default_value_t = 64)]
    new: usize,
    #[command(flatten)]
    weights: WeightsFlag,
    #[command(flatten)]
    device: DeviceFlags,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    format: Format,
}

impl DecodeBench {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        self.threads.pool()?.install(|| self.measure())
    }

    fn measure(&self) -> Result<()> {
        if self.batch == 0 || self.context == 0 || self.new == 0 {
            bail!("--batch, --context and --new must be at least 1");
        }
        let model = Model::new(self.shape.config(), Head::Language, None)
            .with_context(|| format!("{} does not decode", self.shape.name()))?;
        let most = model.longest().saturating_sub(self.new + WARM_UP);
        if self.context > most {
            bail!("--context is {}, expected at most {most} for this shape", self.context);
        }
        let start = Instant::now();
        let device = self.device.open_apart()?;
        let format = self.weights.format().unwrap_or_else(|| usual(&device));
        let model = model.clone().stored_as(WeightStorage::of_all(format, model.layout()));
        let params = filled(&device, &model)?;
        let mut decoding = Decoding::new(self, &device, (&model, &params))?;
        for _ in 0..WARM_UP {
            decoding.step()?;
        }
        let warm_s = rounded(start.elapsed().as_secs_f64(), 1);
        let mut times = Vec::with_capacity(self.new);
        for _ in 0..self.new {
            let start = Instant::now();
            decoding.step()?;
            times.push(start.elapsed().as_secs_f64());
        }
        let seconds = median(&times).context("at least one token")?;
        let weight_bytes: usize = params.iter().map(|(_, tensor)| bytes(tensor)).sum();
        let (ms, each) = (rounded(seconds * 1e3, 3), rounded(self.batch as f64 / seconds, 1));
        let gb_per_s = (weight_bytes as f64 / seconds / 1e9).round() as u64;
        let (shape, peak) = (self.shape.name(), device.usage().peak_bytes);
        let object = json!({
            "device": DeviceReport::of(&device).device, "precision": peers_precision(&device), "shape": shape,
            "batch": self.batch, "context": self.context, "ms_per_token": ms, "tokens_per_s": each,
            "weight_bytes": weight_bytes, "gb_per_s": gb_per_s, "warm_s": warm_s,
            "pool_bytes": peak,
        });
        let words = format_args!(
            "{shape}, {} behind {} tokens: {ms} ms a token, {each} tokens/s, {gb_per_s} GB/s of weights",
            self.batch, self.context
        );
        self.format.print(object, words);
        Ok(())
    }
}

/// How a decoder's weights are stored on a device unless somebody says otherwise.
pub(super) fn usual(device: &Device) -> WeightFormat {
    if Tensor::with_capacity(device, 1, 1).is_bf16() {
        WeightFormat::Bf16
    } else {
        WeightFormat::F32
    }
}

/// Sequences on their way.
struct Decoding<'a> {
    device: &'a Device,
    model: &'a Model,
    params: &'a Params,
    caches: Vec<KeyValueCache>,
    /// The last token of each.
    tokens: Vec<u32>,
}

impl<'a> Decoding<'a> {
    /// Reads random prompts.
    fn new(
        bench: &DecodeBench,
        device: &'a Device,
        (model, params): (&'a Model, &'a Params),
    ) -> Result<Self> {
        let room = bench.context + bench.new + WARM_UP;
        let cache = |_| KeyValueCache::new(device, model, 0..model.blocks(), room);
        let mut caches: Vec<_> = (0..bench.batch).map(cache).collect::<Result<_, _>>()?;
        let mut draw = Seed(1).generator();
        for cache in &mut caches {
            let tokens: Vec<u32> =
                (0..bench.context).map(|_| draw.below(model.vocabulary()) as u32).collect();
            for piece in tokens.chunks(CHUNK) {
                let mut tape = Tape::new(device);
                let batch = Batch::new(&[piece])?.continuing(vec![cache.len()])?;
                let hidden = model.embed(&mut tape, params.frozen(), &batch)?;
                model.decode(
                    &mut tape,
                    params.frozen(),
                    (hidden, batch.packing()),
                    &mut [cache],
                )?;
            }
        }
        Ok(Self { device, model, params, caches, tokens: vec![0; bench.batch] })
    }

    /// One token for each.
    fn step(&mut self) -> Result<()> {
        let mut tape = Tape::new(self.device);
        let rows: Vec<&[u32]> = self.tokens.chunks(1).collect();
        let at = self.caches.iter().map(KeyValueCache::len).collect();
        let batch = Batch::new(&rows)?.continuing(at)?;
        let weights = self.params.frozen();
        let hidden = self.model.embed(&mut tape, weights, &batch)?;
        let mut caches: Vec<_> = self.caches.iter_mut().collect();
        let hidden =
            self.model.decode(&mut tape, weights, (hidden, batch.packing()), &mut caches)?;
        let logits = self.model.head_logits(&mut tape, weights, &hidden)?.tensor;
        let found: Option<Vec<u32>> = logits.argmax().into_iter().collect();
        self.device.check()?;
        self.tokens = found.context("a logit is not a number")?;
        Ok(())
    }
}

/// Random weights of deviation 0.02 (vectors are ones) in the model's formats. They repeat after a million: drawing billions takes longer than the measurement.
pub(super) fn filled(device: &Device, model: &Model) -> Result<Params> {
    let mut draw = Seed(0).generator();
    let drawn: Vec<f32> = (0..DRAWN).map(|_| (0.02 * draw.normal()) as f32).collect();
    let mut params = Params::default();
    for (number, (id, shape)) in model.layout().iter().enumerate() {
        let (rows, cols) = match shape.dims() {
            [rows, cols] => (*rows, *cols),
            dims => (1, dims.iter().product()),
        };
        let numbers: Vec<f32> = if rows == 1 {
            vec![1.0; cols]
        } else {
            drawn.iter().cycle().skip(977 * number % DRAWN).take(rows * cols).copied().collect()
        };
        let format = model.storage().of(id);
        params.insert(id, Tensor::stored_as(device, format, (rows, cols), &numbers)?);
        device.check()?;
    }
    Ok(params)
}

fn bytes(tensor: &Tensor) -> usize {
    tensor.elements() * tensor.format().bits_of_32() as usize / 32 / 8
}
