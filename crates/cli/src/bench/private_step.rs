//! `fedra bench step --dp`: a private step beside the plain one.
//!
//! Both train the same shape on the same batches, a step of one after a step of the other, so that a
//! busy machine is busy for both. Each has memory of its own, so the two high-water marks can be
//! compared. A private step is everything that DP-SGD adds: the norm of each example's gradient, the
//! clip, the weighted sum, noise on every trained weight.

use super::report::{least, median, rounded};
use super::step::{Bench, Step, WARM_UP};
use anyhow::{Context, Result};
use fedra_compute::{Clipping, LossWeights, RowWeights, SecretKey, Seed, Tape, Tensor};
use fedra_model::{Targets, Weighted};
use serde_json::json;
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
    // Median and best milliseconds, and bytes.
    let side = |times: &[f64], bench: &Bench| -> Result<(f64, f64, usize)> {
        let (median, best) = (figure(middle(times)? * 1e3), figure(least(times) * 1e3));
        Ok((median, best, bench.device.usage().peak_bytes))
    };
    let device = plain.device.clone();
    let (plain, private) = (side(&times[0], &plain)?, side(&times[1], &private)?);
    let side = |(median, best, bytes): (f64, f64, usize)| json!({ "median_ms": median, "best_ms": best, "pool_bytes": bytes });
    let mean_ms = |seconds: f64| figure(seconds * 1e3 / given.steps as f64);
    let parts = [spent.passes, spent.sum, spent.noise, spent.optimiser];
    let [passes_ms, sum_ms, noise_ms, optimiser_ms] = parts.map(mean_ms);
    // Speeds are the plain step's time over the private one's: the median over neighbouring pairs of
    // steps, and by the best of each.
    let (speed, speed_of_best) = (figure(middle(&ratios)?), figure(plain.1 / private.1));
    let memory = figure(private.2 as f64 / plain.2 as f64);
    let (setting, mut object) = given.setting(&device);
    (object["plain"], object["private"]) = (side(plain), side(private));
    (object["speed"], object["speed_of_best"]) = (speed.into(), speed_of_best.into());
    (object["memory"], object["passes_ms"]) = (memory.into(), passes_ms.into());
    (object["sum_ms"], object["noise_ms"]) = (sum_ms.into(), noise_ms.into());
    object["optimiser_ms"] = optimiser_ms.into();
    let words = format_args!(
        "{setting}: {} ms a plain step (best {}), {} ms a private one (best {}), {speed} of the \
         plain speed ({speed_of_best} by best steps), {memory} of its memory ({} MB); private step \
         on average: passes with norms {passes_ms} ms, weighted sum {sum_ms} ms, noise {noise_ms} \
         ms, optimiser {optimiser_ms} ms",
        plain.0,
        plain.1,
        private.0,
        private.1,
        private.2 / 1_000_000,
    );
    given.format.print(object, words);
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
    let weights = LossWeights {
        rows: RowWeights::PerSequence(&by_sequence),
        divisor: 1.0,
        ..LossWeights::SUM
    };
    let targets = Weighted { targets: Targets::Classes(&targets), weights };
    // A bench guarantees no privacy: its key is fixed. A client's comes from the operating system.
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
    let mut sum = gradients.weighted_sum(|layer, example| share * factors.at(layer, example));
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
