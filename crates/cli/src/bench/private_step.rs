//! `fedra bench step --dp`: a private step beside the plain one.
//!
//! Both train the same shape on the same batches, a step of one after a step of the other, so that a
//! busy machine is busy for both. Each has memory of its own, so the two high-water marks can be
//! compared. A private step is everything that DP-SGD adds: the norm of each example's gradient, the
//! clip, the weighted sum, noise on every trained weight.

use super::step::{Bench, Step, WARM_UP, rounded};
use anyhow::Result;
use fedra_compute::{Clipping, LossWeights, RowWeights, SecretKey, Seed, Tape, Tensor};
use fedra_model::{Targets, Weighted};
use std::time::Instant;

use crate::console;

/// The norm that each example's gradient is clipped to; small enough that all are.
const CLIP: f64 = 0.1;
/// Noise in units of the clip.
const SIGMA: f64 = 1.0;

/// Measures and prints.
pub fn run(given: &Step) -> Result<()> {
    let (mut plain, mut private) = (given.bench()?, given.bench()?);
    let mut times = [Vec::new(), Vec::new()];
    let mut spent = Spent::default();
    for number in 0..(WARM_UP + given.steps) as u64 {
        let seconds =
            [plain.step(given, number)?, private_step(&mut private, given, number, &mut spent)?];
        if number as usize >= WARM_UP {
            times.iter_mut().zip(seconds).for_each(|(times, seconds)| times.push(seconds));
        } else {
            spent = Spent::default();
        }
    }
    let ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(a, b)| a / b).collect();
    let side = |times: &[f64], bench: &Bench| Side {
        median_ms: rounded(median(times) * 1e3),
        best_ms: rounded(times.iter().copied().fold(f64::INFINITY, f64::min) * 1e3),
        pool_bytes: bench.device.usage().peak_bytes,
    };
    let (plain, private) = (side(&times[0], &plain), side(&times[1], &private));
    let report = Report {
        peer: format!("fedra {}", env!("CARGO_PKG_VERSION")),
        device: "cpu",
        shape: given.shape.name(),
        batch: given.batch,
        seq: given.seq,
        precision: "fp32",
        train_blocks: given.trained(),
        threads: given.threads(),
        speed: rounded(median(&ratios)),
        speed_of_best: rounded(plain.best_ms / private.best_ms),
        memory: rounded(private.pool_bytes as f64 / plain.pool_bytes as f64),
        passes_ms: rounded(spent.passes * 1e3 / given.steps as f64),
        sum_ms: rounded(spent.sum * 1e3 / given.steps as f64),
        noise_ms: rounded(spent.noise * 1e3 / given.steps as f64),
        optimiser_ms: rounded(spent.optimiser * 1e3 / given.steps as f64),
        plain,
        private,
    };
    report.print(given.json);
    Ok(())
}

/// Seconds of the parts of private steps.
#[derive(Default)]
struct Spent {
    passes: f64,
    sum: f64,
    noise: f64,
    optimiser: f64,
}

/// One private step on the same tokens as the plain one's; returns its seconds.
fn private_step(bench: &mut Bench, given: &Step, number: u64, spent: &mut Spent) -> Result<f64> {
    let (batch, targets) = bench.batch(given, number)?;
    // Each example's loss is the mean over its own targets.
    let each = 1.0 / (targets.len() / given.batch) as f32;
    let by_sequence = vec![each; given.batch];
    let weights = LossWeights { rows: RowWeights::PerSequence(&by_sequence), divisor: 1.0 };
    let targets = Weighted { targets: Targets::Classes(&targets), weights };
    // A bench promises no privacy: its key is fixed. A client's comes from the operating system.
    let key = SecretKey::simulated(Seed(2).with(number));

    let start = Instant::now();
    let mut tape = Tape::by_example(&bench.device, &batch.packing().boundaries());
    let trained = bench.params.training(&bench.scope);
    let loss = bench.model.loss(&mut tape, trained, &batch, targets)?;
    let seed = Tensor::scalar(&bench.device, 1.0);
    let gradients = tape.backward_by_example(&[(&loss, seed)])?;
    drop(loss);
    let passed = start.elapsed().as_secs_f64();
    let factors = Clipping::Flat(CLIP).factors(&gradients);
    let share = 1.0 / given.batch as f32;
    let mut sum = gradients.weighted_sum(|site, example| share * factors.at(site, example));
    let summed = start.elapsed().as_secs_f64();
    sum.cover(&bench.params, &bench.scope)?;
    sum.add_noise((SIGMA * CLIP) as f32 * share, &key)?;
    let noised = start.elapsed().as_secs_f64();
    bench.optimiser.step(&mut bench.params, &sum)?;
    drop(sum);
    let all = start.elapsed().as_secs_f64();
    spent.passes += passed;
    spent.sum += summed - passed;
    spent.noise += noised - summed;
    spent.optimiser += all - noised;
    Ok(all)
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// One side of the comparison.
#[derive(serde::Serialize)]
struct Side {
    median_ms: f64,
    best_ms: f64,
    pool_bytes: usize,
}

/// The result; speeds are the plain step's time over the private one's.
#[derive(serde::Serialize)]
struct Report {
    peer: String,
    device: &'static str,
    shape: &'static str,
    batch: usize,
    seq: usize,
    precision: &'static str,
    train_blocks: String,
    threads: usize,
    plain: Side,
    private: Side,
    /// Median over neighbouring pairs of steps.
    speed: f64,
    speed_of_best: f64,
    memory: f64,
    /// Means of the private step's parts.
    passes_ms: f64,
    sum_ms: f64,
    noise_ms: f64,
    optimiser_ms: f64,
}

impl Report {
    fn print(&self, json: bool) {
        if json {
            console::json(serde_json::json!(self));
            return;
        }
        console::data(format_args!(
            "{} {}x{} on {} threads, training {}: {} ms a plain step (best {}), {} ms a private one \
             (best {}), {} of the plain speed ({} by best steps), {} of its memory ({} MB); private \
             step on average: passes with norms {} ms, weighted sum {} ms, noise {} ms, optimiser {} ms",
            self.shape,
            self.batch,
            self.seq,
            self.threads,
            self.train_blocks,
            self.plain.median_ms,
            self.plain.best_ms,
            self.private.median_ms,
            self.private.best_ms,
            self.speed,
            self.speed_of_best,
            self.memory,
            self.private.pool_bytes / 1_000_000,
            self.passes_ms,
            self.sum_ms,
            self.noise_ms,
            self.optimiser_ms,
        ));
    }
}
