//! `fedra audit`: an honest run is not refuted, a broken one is.
//!
//! A broken run is one that is held to the guarantee of another: nothing in the program can be switched
//! to break it.

use fedra::forecast::private::PrivacySummary;
use fedra::study::canaries::{CanaryRun, Reading};
use fedra::{Experiment, Overrides, Silent};
use fedra_audit::{CanaryEvidence, CanaryFinding, Confidence};
use serde_json::Value;

use crate::place::Place;

const FILE: &str = include_str!("../../../../experiments/audit.toml");
/// Enough to show that little noise shows.
const SOME: usize = 300;
/// Enough to refute a claim.
const MANY: usize = 600;

fn run(canaries: usize, sets: &[&str]) -> CanaryRun {
    let overrides = sets.iter().fold(Overrides::default(), |all, set| all.set(set));
    let experiment = Experiment::from_toml(FILE, &overrides).unwrap();
    let place = tempfile::tempdir().unwrap();
    CanaryRun::run(&experiment, canaries, &place.path().join("run"), &Silent).unwrap().unwrap()
}

/// What a run proves when it is read under another's guarantee.
fn bound(run: &CanaryRun, guaranteed: &PrivacySummary) -> f64 {
    let read = |reading| {
        let mut evidence: Vec<CanaryEvidence> = (run.clients.iter().enumerate())
            .map(|(place, client)| {
                CanaryEvidence::new(client.coins.len(), run.weight(place), guaranteed.noise)
            })
            .collect();
        run.sights((reading, guaranteed.clip), &mut |sight| {
            evidence[sight.client].see(&sight.released, &sight.gradients).unwrap();
            Ok(())
        })
        .unwrap();
        evidence
    };
    let coins: Vec<bool> = run.clients.iter().flat_map(|client| client.coins.clone()).collect();
    let trust = Confidence::new(guaranteed.guarantee.delta.get(), 0.95).unwrap();
    CanaryFinding::of_readings(&Reading::ALL.map(read), &coins, trust).unwrap().epsilon
}

#[test]
fn honest_runs_are_below_their_claim_and_little_noise_shows() {
    for (noise, least) in [("privacy.noise=6.0", 0.0), ("privacy.noise=0.5", 2.0)] {
        let run = run(SOME, &[noise]);
        let (found, claim) = (bound(&run, &run.privacy), run.privacy.epsilon.unwrap());
        assert!(found < claim, "{noise}: {found} above {claim}");
        assert!(found >= least, "{noise}: {found} shows too little");
    }
}

#[test]
fn batches_by_coins_and_more_steps_are_below_their_claim_too() {
    let sampled = run(SOME, &["work.batch=100", "privacy.noise=0.7", "federation.rounds=3"]);
    let (found, claim) = (bound(&sampled, &sampled.privacy), sampled.privacy.epsilon.unwrap());
    assert!(found < claim, "{found} above {claim}");
}

#[test]
fn a_quarter_of_the_noise_and_a_missing_clip_are_above_the_claim() {
    // What is guaranteed does not depend on the canaries.
    let guaranteed = run(8, &[]).privacy;
    let claim = guaranteed.epsilon.unwrap();
    // The noise is 0.6 as agreed, and no gradient is as long as 250.
    let unclipped = ["privacy.clip=250.0", "privacy.noise=0.0024"];
    for broken in [&["privacy.noise=1.5"][..], &unclipped] {
        let found = bound(&run(MANY, broken), &guaranteed);
        assert!(found > 1.1 * claim, "{broken:?}: {found}, hardly above {claim}");
    }
}

#[test]
fn the_command_tells_both_numbers_and_leaves_nothing_behind() {
    let place = Place::new();
    std::fs::write(place.path("audit.toml"), FILE).unwrap();
    let told = place.succeed(&["audit", "audit.toml", "--canaries", "100", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["status"], &told["canaries"]), (&"not_refuted".into(), &100.into()));
    assert!(told["epsilon"].as_f64() < told["claim"].as_f64(), "{told}");
    assert!(!place.path("runs/audit-audit").exists());
}

#[test]
fn what_cannot_be_audited_is_refused() {
    let place = Place::new();
    std::fs::write(place.path("audit.toml"), FILE).unwrap();
    let private = "privacy={ unit = \"client\", noise = 1.0, delta = 0.1 }";
    let cases: [(&[&str], &str); 5] = [
        (&["tiny.toml"], "privacy: found none"),
        (&["audit.toml", "--set", private], "privacy: found none"),
        (&["audit.toml", "--set", "work.optimiser=adamw"], "work.optimiser"),
        (&["audit.toml", "--canaries", "1"], "--canaries: found 1"),
        (&["audit.toml", "--confidence", "1"], "confidence: found 1"),
    ];
    for (arguments, expected) in cases {
        let error = place.refused(&[&["audit"], arguments].concat());
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
