//! `fedra bench step --dp`: a private step beside the plain one.
//!
//! Both train the same shape on the same batches, a step of one after a step of the other, so that a
//! busy machine is busy for both. Each has memory of its own, so the two high-water marks can be
//! compared. A private step is everything that DP-SGD adds: the norm of each example's gradient, the
//! clip, the weighted sum, noise on every trained weight.

use super::report::{least, median, rounded};
use super::step::{Bench, Setting, Step, WARM_UP};
use anyhow::{Context, Result};
use fedra_compute::{Clipping, LossWeights, RowWeights, SecretKey, Seed, Tape, Tensor};
use fedra_model::{Targets, Weighted};
use std::fmt::{Display, Formatter};
use std::time::Instant;

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
    let figure = |number: f64| rounded(number, 2);
    let middle = |numbers: &[f64]| median(numbers).context("at least one step");
    let side = |times: &[f64], bench: &Bench| -> Result<Side> {
        Ok(Side {
            median_ms: figure(middle(times)? * 1e3),
            best_ms: figure(least(times) * 1e3),
            pool_bytes: bench.device.usage().peak_bytes,
        })
    };
    let (plain, private) = (side(&times[0], &plain)?, side(&times[1], &private)?);
    let mean_ms = |seconds: f64| figure(seconds * 1e3 / given.steps as f64);
    let report = Report {
        setting: given.setting(),
        speed: figure(middle(&ratios)?),
        speed_of_best: figure(plain.best_ms / private.best_ms),
        memory: figure(private.pool_bytes as f64 / plain.pool_bytes as f64),
        passes_ms: mean_ms(spent.passes),
        sum_ms: mean_ms(spent.sum),
        noise_ms: mean_ms(spent.noise),
        optimiser_ms: mean_ms(spent.optimiser),
        plain,
        private,
    };
    given.format.print(&report, &report);
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
    #[serde(flatten)]
    setting: Setting,
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

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { setting, plain, private, speed, speed_of_best, memory, .. } = self;
        let Self { passes_ms, sum_ms, noise_ms, optimiser_ms, .. } = self;
        write!(
            out,
            "{setting}: {} ms a plain step (best {}), {} ms a private one (best {}), {speed} of the \
             plain speed ({speed_of_best} by best steps), {memory} of its memory ({} MB); private \
             step on average: passes with norms {passes_ms} ms, weighted sum {sum_ms} ms, noise \
             {noise_ms} ms, optimiser {optimiser_ms} ms",
            plain.median_ms,
            plain.best_ms,
            private.median_ms,
            private.best_ms,
            private.pool_bytes / 1_000_000,
        )
    }
}
