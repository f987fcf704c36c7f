//! `fedra bench clients`: training steps per second of several clients that train copies of one model on one device.

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::config::DeviceReport;
use fedra_compute::{
    Device, Optimiser, Params, Seed, Solver, Tape, Tensor, ThreadPool, set_worker,
};
use fedra_model::{Batch, Head, Model, Preset, Targets};
use fedra_plan::Scope;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::report::{Format, rounded};
use super::step::shapes;
use crate::device::{DeviceFlags, peers_precision};
use crate::flags::Threads;

/// Classes of the head.
const CLASSES: usize = 10;
/// Different batches of a client.
const BATCHES: u64 = 4;

/// Time the local training of clients that train side by side, one a thread, each its copy of one model.
#[derive(Args)]
pub struct ClientsBench {
    /// Model shape
    #[arg(long, default_value = "vit-mini", value_parser = shapes())]
    shape: Preset,
    /// Clients
    #[arg(long, default_value_t = 20)]
    clients: usize,
    /// Sequences or images in a batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Tokens in a sequence, where the shape reads text
    #[arg(long, default_value_t = 128)]
    seq: usize,
    /// Steps of each client
    #[arg(long, default_value_t = 50)]
    steps: usize,
    #[command(flatten)]
    device: DeviceFlags,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    format: Format,
}

/// What all clients train.
struct Shared {
    device: Device,
    model: Model,
    params: Params,
    batches: Vec<(Batch, Vec<Option<u32>>)>,
}

impl ClientsBench {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        if [self.clients, self.batch, self.seq, self.steps].contains(&0) {
            bail!("--clients, --batch, --seq and --steps must be at least 1");
        }
        let config = self.shape.config();
        let head = if config.causal {
            Head::Language
        } else {
            Head::Sequence { classes: CLASSES, pooler: false }
        };
        let (device, model) = (self.device.open_apart()?, Model::new(config, head, None)?);
        let batches = (0..BATCHES).map(|number| self.batch(&device, &model, number));
        let shared = Shared {
            params: model.fresh_params(&device, Seed(0))?,
            batches: batches.collect::<Result<_>>()?,
            device,
            model,
        };
        // Kernels are compiled, and every thread has its memory, before the clock starts.
        self.train_all(&shared, 4)?;
        let start = Instant::now();
        let losses = self.train_all(&shared, self.steps)?;
        let seconds = start.elapsed().as_secs_f64();
        let loss = losses.first().copied().context("at least one client")?;
        if !loss.is_finite() || losses.iter().any(|other| other.to_bits() != loss.to_bits()) {
            bail!("clients with the same data have not the same loss: {losses:?}");
        }
        let steps_per_s = rounded((self.clients * self.steps) as f64 / seconds, 1);
        let (shape, threads) = (self.shape.name(), self.threads.count());
        let device = DeviceReport::of(&shared.device).device;
        let peak = shared.device.usage().peak_bytes;
        let object = json!({
            "device": device, "precision": peers_precision(&shared.device), "shape": shape, "clients": self.clients,
            "batch": self.batch, "steps": self.steps, "threads": threads, "steps_per_s": steps_per_s,
            "pool_bytes": peak,
        });
        let words = format_args!(
            "{shape}, {} clients on {device}, {threads} at a time: {steps_per_s} steps/s, {} MB peak",
            self.clients,
            peak / 1_000_000
        );
        self.format.print(object, words);
        Ok(())
    }

    /// The loss of each client's last step.
    fn train_all(&self, shared: &Shared, steps: usize) -> Result<Vec<f32>> {
        let (next, workers) = (AtomicUsize::new(0), self.threads.count().min(self.clients));
        let work = |worker: usize| {
            set_worker(worker);
            let mut losses = Vec::new();
            ThreadPool::new(1)?.install(|| {
                while next.fetch_add(1, Ordering::Relaxed) < self.clients {
                    losses.push(shared.device.aside(|| shared.train(steps))?);
                }
                Ok::<_, anyhow::Error>(losses)
            })
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
            let mut losses = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(found) => losses.extend(found?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(losses)
        })
    }

    fn batch(
        &self,
        device: &Device,
        model: &Model,
        number: u64,
    ) -> Result<(Batch, Vec<Option<u32>>)> {
        let config = model.config();
        let seq = config.image.map_or(self.seq, |image| image.tokens());
        let mut draw = Seed(1).with(number).generator();
        let words = config.vocab_size.max(1);
        let ids = (0..self.batch * seq).map(|_| draw.below(words) as u32).collect();
        let mut batch = Batch::packed(ids, vec![seq; self.batch])?;
        if let Some(image) = config.image {
            let values = (0..self.batch * image.pixels()).map(|_| draw.normal() as f32);
            batch = batch.with_pixels(values.collect())?.placed_on(device)?;
        }
        let (count, below) = match model.head() {
            Head::Sequence { .. } => (self.batch, CLASSES),
            Head::Language | Head::Tokens { .. } | Head::Bare => (self.batch * seq, words),
        };
        let targets = (0..count).map(|_| Some(draw.below(below) as u32)).collect();
        Ok((batch, targets))
    }
}

impl Shared {
    /// A client's steps from the shared weights.
    fn train(&self, steps: usize) -> Result<f32> {
        let mut params = self.params.clone();
        let scope = Scope::everything(self.model.layout());
        let mut optimiser = Optimiser::new(&self.device, Solver::adamw(1e-4, 0.01))?;
        let mut last = 0.0;
        for step in 0..steps {
            let (batch, targets) = &self.batches[step % self.batches.len()];
            let mut tape = Tape::new(&self.device);
            let weights = params.training(&scope);
            let loss = self.model.loss(&mut tape, weights, batch, Targets::Classes(targets))?;
            let gradients = tape.backward(&[(&loss, Tensor::scalar(&self.device, 1.0))])?;
            optimiser.step(&mut params, &gradients)?;
            if step + 1 == steps {
                last = loss.tensor.item();
            }
        }
        self.device.check()?;
        Ok(last)
    }
}
