//! How long a ledger of many clients takes to be written, and to be read back:
//! `cargo run --release -p fedra-privacy --example ledger_speed -- 10000 100`.
//! With a third argument, so many sizes of clients.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::time::Instant;

use fedra_plan::{Digest, Round};
use fedra_privacy::{
    Delta, Event, Guarantee, Ledger, NoiseMultiplier, PrivacyError, Relation, Release, Sampling,
    SamplingRate, Unit,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<u32> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let (clients, rounds) =
        (given.first().copied().unwrap_or(1000), given.get(1).copied().unwrap_or(10));
    let sizes = given.get(2).copied().unwrap_or(3).max(1);
    let guarantee = Guarantee {
        unit: Unit::Example,
        relation: Relation::AddRemove,
        delta: Delta::new(1e-6)?,
        budget: None,
    };
    let event = |round: u32, client: u32| {
        let rate = 0.01 + 0.01 * f64::from(client % sizes) / f64::from(sizes);
        Ok::<_, PrivacyError>(Event {
            round: Round(round),
            mechanism: "example gradients".to_owned(),
            client: Some(format!("client-{client}")),
            input: Some(Digest::of(format!("{round} {client}").as_bytes())),
            release: Release::SampledGaussian {
                sampling: Sampling::Poisson { rate: SamplingRate::new(rate)? },
                noise: NoiseMultiplier::new(2.0)?,
                steps: std::num::NonZeroU64::MIN,
            },
        })
    };
    let mut ledger = Ledger::new(guarantee)?;
    let mut lines = ledger.to_lines()?;
    let begun = Instant::now();
    for round in 0..rounds {
        let events =
            (0..clients).map(|client| event(round, client)).collect::<Result<Vec<_>, _>>()?;
        let before = Instant::now();
        lines += &ledger.append(&events)?;
        if round == 0 || round + 1 == rounds {
            println!("round {}: {:.3} s", round + 1, before.elapsed().as_secs_f64());
        }
    }
    println!("written: {:.2} s, {} MB", begun.elapsed().as_secs_f64(), lines.len() / 1_000_000);
    let begun = Instant::now();
    let again = Ledger::read(lines.as_bytes(), Some(ledger.head()))?;
    println!("read back: {:.2} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    println!("epsilon {}: {:.2} s", again.spent()?.pld, begun.elapsed().as_secs_f64());
    Ok(())
}
