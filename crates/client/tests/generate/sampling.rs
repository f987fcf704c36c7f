//! The filtered distribution, against numbers of another library.

use fedra_client::generate::{RandomSampling, Sampling};
use fedra_compute::Seed;

const DRAWS: u64 = 20_000;
/// The reference is rounded to nine digits; logits here are f32.
const TOLERANCE: f64 = 2e-7;

fn random(temperature: f64, top_k: Option<usize>, top_p: Option<f64>) -> RandomSampling {
    RandomSampling { temperature, top_k, top_p, seed: Seed(1) }
}

fn logits() -> Vec<f32> {
    (0..24).map(|i| (f64::from((i * 37) % 23 - 11) * 0.31 + 0.07 * f64::from(i)) as f32).collect()
}

/// Temperature, top-k, top-p in this order, then softmax, as `transformers` 5.22 filters them.
#[test]
fn candidates_and_their_shares_are_those_of_the_reference() {
    check(
        random(0.7, Some(5), None),
        &[
            (18, 0.537_558_559),
            (13, 0.209_386_234),
            (21, 0.123_421_969),
            (8, 0.081_558_733),
            (16, 0.048_074_505),
        ],
    );
    check(
        random(1.3, None, Some(0.8)),
        &[
            (18, 0.325_568_665),
            (13, 0.195_954_225),
            (21, 0.147_417_058),
            (8, 0.117_941_504),
            (16, 0.088_727_812),
            (3, 0.070_986_979),
            (11, 0.053_403_756),
        ],
    );
    check(
        random(0.5, Some(8), Some(0.95)),
        &[(18, 0.682_151_254), (13, 0.182_226_681), (21, 0.086_942_885), (8, 0.048_679_18)],
    );
    check(random(2.0, Some(50), Some(0.3)), &[(18, 0.581_759_377), (13, 0.418_240_623)]);
    check(random(1.0, None, Some(0.01)), &[(18, 1.0)]);
    check(
        random(1.0, Some(3), Some(1.0)),
        &[(18, 0.533_658_283), (13, 0.275_821_996), (21, 0.190_519_722)],
    );
}

#[track_caller]
fn check(random: RandomSampling, expected: &[(u32, f64)]) {
    let found = random.candidates(&logits());
    let tokens: Vec<u32> = found.iter().map(|candidate| candidate.token).collect();
    assert_eq!(tokens, expected.iter().map(|(token, _)| *token).collect::<Vec<_>>(), "{random:?}");
    for (found, (token, share)) in found.iter().zip(expected) {
        let off = (found.probability - share).abs();
        assert!(off < TOLERANCE, "{random:?}: token {token} has {}", found.probability);
    }
}

#[test]
fn without_filters_every_token_stays_and_shares_add_up() {
    let found = random(1.0, None, None).candidates(&logits());
    let total: f64 = found.iter().map(|candidate| candidate.probability).sum();
    assert_eq!(found.len(), 24);
    assert!((total - 1.0).abs() < 1e-12);
    assert!((found[0].probability - 0.354_935_295).abs() < TOLERANCE);
}

#[test]
fn tokens_as_likely_as_the_last_of_the_k_stay() {
    let found = random(1.0, Some(2), None).candidates(&[1.0, 3.0, 2.0, 2.0, 0.0, 2.0]);
    let tokens: Vec<u32> = found.iter().map(|candidate| candidate.token).collect();
    assert_eq!(tokens, [1, 2, 3, 5]);
}

#[test]
fn draws_come_as_often_as_their_shares_say() {
    let random = random(1.0, Some(4), None);
    let (sampling, logits) = (Sampling::Random(random), logits());
    let mut counts = [0u32; 24];
    for index in 0..DRAWS {
        counts[sampling.choose(&logits, index).unwrap() as usize] += 1;
    }
    for candidate in random.candidates(&logits) {
        let share = f64::from(counts[candidate.token as usize]) / DRAWS as f64;
        // Four standard deviations of a share of 0.5.
        assert!((share - candidate.probability).abs() < 0.0142, "{candidate:?}: {share}");
    }
    let drawn: u32 = counts.iter().sum();
    assert_eq!(u64::from(drawn), DRAWS);
}

#[test]
fn logits_that_exclude_tokens_are_respected_and_those_that_are_no_numbers_refused() {
    let minus = f32::NEG_INFINITY;
    for top_p in [None, Some(0.5)] {
        let sampling = Sampling::Random(random(1.0, Some(3), top_p));
        for index in 0..50 {
            assert_eq!(sampling.choose(&[minus, 2.0, minus], index).unwrap(), 1);
        }
    }
    assert_eq!(Sampling::Greedy.choose(&[1.0, 4.0, 4.0], 0).unwrap(), 1);
    let error = Sampling::Greedy.choose(&[1.0, f32::NAN], 0).unwrap_err();
    assert_eq!(error.to_string(), "logits: found NaN for token 1, expected numbers");
    assert!(Sampling::Greedy.choose(&[], 0).is_err());
    let huge = Sampling::Random(random(1e-300, None, Some(0.9)));
    assert_eq!(huge.choose(&[1.0, 4.0, 3.0], 0).unwrap(), 1);
}

#[test]
fn settings_that_draw_nothing_are_refused() {
    let refused = |random| Sampling::Random(random).check().unwrap_err().to_string();
    let expected = "temperature: found 0, expected a number above 0";
    assert_eq!(refused(random(0.0, None, None)), expected);
    assert!(refused(random(f64::NAN, None, None)).starts_with("temperature: found NaN"));
    assert_eq!(refused(random(1.0, Some(0), None)), "top_k: found 0, expected at least 1");
    let expected = "top_p: found 1.5, expected above 0 and at most 1";
    assert_eq!(refused(random(1.0, None, Some(1.5))), expected);
}
