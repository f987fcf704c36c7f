//! How long the accountants take: `cargo run --release -p fedra-privacy --example account_speed`.
//!
//! On Linux the time is that of the processor, so that other programs do not count.

#![expect(clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::fs;
use std::time::Instant;

use fedra_privacy::rdp::Orders;
use fedra_privacy::{
    Composition, Delta, NoiseMultiplier, Relation, Release, Sampling, SamplingRate,
};

/// q, sigma, steps and delta of usual runs, and of some at the edge.
const CASES: [(f64, f64, u64, f64); 10] = [
    (0.01, 1.0, 1_000, 1e-5),
    (0.01, 1.0, 10_000, 1e-5),
    (0.01, 4.0, 10_000, 1e-5),
    (0.001, 0.6, 10_000, 1e-6),
    (0.1, 5.0, 10_000, 1e-5),
    (0.001, 5.0, 100_000, 1e-5),
    (0.02, 0.7, 100_000, 1e-9),
    (0.0001, 0.5, 100, 1e-5),
    (0.0001, 0.4, 1, 1e-5),
    (0.5, 100.0, 10_000, 1e-12),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("relation        q   sigma   steps  delta        pld    ms        rdp    ms");
    for relation in [Relation::AddRemove, Relation::Replace] {
        for (q, sigma, steps, delta) in CASES {
            let release = Release::SampledGaussian {
                sampling: Sampling::Poisson { rate: SamplingRate::new(q)? },
                noise: NoiseMultiplier::new(sigma)?,
                steps: steps.try_into()?,
            };
            let composition = Composition::of(relation, [&release])?;
            let delta = Delta::new(delta)?;
            let (pld, pld_time) = timed(|| composition.pld(delta));
            let (rdp, rdp_time) = timed(|| composition.rdp(delta, &Orders::default()).0);
            println!(
                "{relation:10} {q:6} {sigma:7} {steps:7} {delta:6e} {pld:10.6} {pld_time:5.1} {rdp:10.6} {rdp_time:5.1}",
                delta = delta.get()
            );
        }
    }
    Ok(())
}

/// The answer, and the mean of twenty times in milliseconds: the kernel counts in steps of four.
fn timed(answer: impl Fn() -> f64) -> (f64, f64) {
    const TIMES: u32 = 20;
    let begun = Instant::now();
    let now = || processor_time().unwrap_or_else(|| begun.elapsed().as_secs_f64());
    let before = now();
    let found = (0..TIMES).map(|_| answer()).fold(f64::NAN, |_, last| last);
    (found, 1e3 * (now() - before) / f64::from(TIMES))
}

/// Seconds that this thread has run.
fn processor_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(1e-9 * nanoseconds)
}
