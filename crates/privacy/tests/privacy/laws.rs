//! What must hold of any accountant, tried on random runs, and a few numbers to the fourth place.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fedra_privacy::calibration::{self, Schedule};
use fedra_privacy::{
    Budget, Composition, Delta, NoiseMultiplier, Relation, Release, Sampling, SamplingRate,
    gaussian, normal,
};
use proptest::prelude::*;

fn sampled(q: f64, sigma: f64, steps: u64) -> Release {
    Release::SampledGaussian {
        sampling: Sampling::Poisson { rate: SamplingRate::new(q).unwrap() },
        noise: NoiseMultiplier::new(sigma).unwrap(),
        steps: steps.try_into().unwrap(),
    }
}

fn capped(cap: u64) -> Release {
    Release::SampledGaussian {
        sampling: Sampling::CappedPoisson {
            rate: SamplingRate::new(0.01).unwrap(),
            cap: cap.try_into().unwrap(),
            population: 10_000.try_into().unwrap(),
        },
        noise: NoiseMultiplier::new(1.0).unwrap(),
        steps: 1000.try_into().unwrap(),
    }
}

fn pld(relation: Relation, releases: &[Release], delta: f64) -> f64 {
    Composition::of(relation, releases).unwrap().pld(Delta::new(delta).unwrap())
}

const RELATIONS: [Relation; 2] = [Relation::AddRemove, Relation::Replace];

#[test]
fn usual_runs_have_the_epsilon_of_the_reference() {
    for (q, sigma, steps, delta, [add_remove, replace]) in [
        (0.01, 1.0, 1_000, 1e-5, [1.828_244, 2.843_446]),
        (0.01, 4.0, 10_000, 1e-5, [0.946_999, 1.993_194]),
        (0.001, 0.6, 1_000, 1e-5, [1.425_264, 1.458_793]),
        (0.064, 1.2, 80, 1e-3, [1.814_474, 3.043_985]),
    ] {
        let release = [sampled(q, sigma, steps)];
        for (relation, expected) in RELATIONS.into_iter().zip([add_remove, replace]) {
            let found = pld(relation, &release, delta);
            let error = (found / expected - 1.0).abs();
            assert!(error < 1e-3, "{relation} {q} {sigma} {steps}: {found}, expected {expected}");
        }
    }
}

#[test]
fn a_cap_at_the_mean_is_ruinous_and_one_well_above_it_nearly_free() {
    let free = pld(Relation::AddRemove, &[capped(10_000)], 1e-5);
    let wide = pld(Relation::AddRemove, &[capped(150)], 1e-5);
    let tight = pld(Relation::AddRemove, &[capped(100)], 1e-5);
    assert!((free - 1.8282).abs() < 2e-3 && (wide - 1.8305).abs() < 2e-3, "{free} {wide}");
    assert!((tight - 10.77).abs() < 0.02, "{tight}");
}

#[test]
fn one_sampled_step_is_never_below_its_closed_form() {
    for (q, sigma, delta) in
        [(0.01, 1.0, 1e-5), (0.2, 0.5, 1e-6), (0.5, 3.0, 1e-3), (1e-3, 0.7, 1e-7)]
    {
        let inner = gaussian::epsilon(1.0 / sigma, delta / q);
        let truth = (q * inner.exp_m1()).ln_1p();
        let found = pld(Relation::AddRemove, &[sampled(q, sigma, 1)], delta);
        assert!(found >= truth && found <= truth * 1.001, "{q} {sigma}: {found}, truly {truth}");
    }
}

#[test]
fn tiny_and_huge_epsilons_are_bounds_too() {
    for (q, sigma, steps, delta) in [
        (0.001, 50.0, 100, 1e-5),
        (0.01, 0.3, 5_000, 1e-5),
        (0.5, 0.05, 3, 1e-5),
        (0.1, 1e6, 9, 0.3),
    ] {
        let composition =
            Composition::of(Relation::AddRemove, &[sampled(q, sigma, steps)]).unwrap();
        let spent = composition.spent(Delta::new(delta).unwrap());
        assert!(spent.pld <= spent.rdp && spent.pld.is_finite(), "{q} {sigma}: {spent:?}");
    }
}

#[test]
fn a_tiny_delta_costs_no_precision() {
    // Noise of a transform at 1e-16 would drown a delta of 1e-25; leaning keeps it exact.
    for delta in [1e-12, 1e-25, 1e-60] {
        let composition = Composition::of(Relation::AddRemove, &[sampled(0.02, 2.0, 500)]).unwrap();
        let spent = composition.spent(Delta::new(delta).unwrap());
        assert!(spent.pld < spent.rdp && spent.pld > 0.9 * spent.rdp, "{delta}: {spent:?}");
    }
}

#[test]
fn noise_and_steps_for_a_wish_keep_it_and_little_less_would_not() {
    let schedule = |steps: u64| Schedule {
        sampling: Sampling::Poisson { rate: SamplingRate::new(0.01).unwrap() },
        steps: steps.try_into().unwrap(),
        relation: Relation::AddRemove,
        delta: Delta::new(1e-5).unwrap(),
    };
    let wish = Budget::new(3.0).unwrap();
    let noise = calibration::noise(wish, &schedule(1000)).unwrap();
    assert!(pld(Relation::AddRemove, &[schedule(1000).release(noise)], 1e-5) <= 3.0);
    let less = NoiseMultiplier::new(noise.get() * 0.999).unwrap();
    assert!(pld(Relation::AddRemove, &[schedule(1000).release(less)], 1e-5) > 3.0);

    let steps = calibration::steps(wish, noise, &schedule(1)).unwrap().get();
    assert!((1000..=1003).contains(&steps), "{steps}");
    let hidden = NoiseMultiplier::new(1e9).unwrap();
    let counted = calibration::steps(wish, hidden, &schedule(1)).unwrap().get();
    assert_eq!(counted, calibration::MOST_STEPS, "no more are counted");
    let error = calibration::steps(Budget::new(1e-6).unwrap(), noise, &schedule(1)).unwrap_err();
    assert!(error.to_string().contains("a single step with noise"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn pld_is_below_rdp_and_grows_with_steps_and_rate_and_falls_with_noise(
        log_q in -7.0..-0.1_f64,
        log_sigma in -0.7..2.0_f64,
        log_steps in 0.0..9.2_f64,
        log_delta in -20.0..-5.0_f64,
    ) {
        let (q, sigma, delta) = (log_q.exp(), log_sigma.exp(), log_delta.exp());
        let steps = log_steps.exp() as u64;
        for relation in RELATIONS {
            let composition = Composition::of(relation, &[sampled(q, sigma, steps)]).unwrap();
            let spent = composition.spent(Delta::new(delta).unwrap());
            prop_assert!(spent.pld <= spent.rdp * 1.0001, "{relation}: {spent:?}");
            prop_assert!(pld(relation, &[sampled(q, sigma, steps * 2)], delta) >= spent.pld);
            prop_assert!(pld(relation, &[sampled(q * 1.1, sigma, steps)], delta) >= spent.pld);
            prop_assert!(pld(relation, &[sampled(q, sigma * 1.1, steps)], delta) <= spent.pld);
        }
        let [less, more] = RELATIONS.map(|relation| pld(relation, &[sampled(q, sigma, steps)], delta));
        prop_assert!(less <= more * 1.0003, "{less} {more}");
    }

    #[test]
    fn the_order_of_phases_and_how_steps_are_counted_change_nothing(
        q in 0.001..0.1_f64,
        sigma in 0.7..3.0_f64,
        steps in 2_u64..500,
    ) {
        let other = sampled(0.02, 1.3, 50);
        let plain = Release::Gaussian { sensitivity: 0.5, deviation: 4.0, count: 3.try_into().unwrap() };
        let whole = [sampled(q, sigma, steps), other.clone(), plain.clone()];
        let cut = [plain, sampled(q, sigma, 1), other, sampled(q, sigma, steps - 1)];
        for relation in RELATIONS {
            prop_assert_eq!(pld(relation, &whole, 1e-5), pld(relation, &cut, 1e-5));
        }
    }
}

/// What epsilon is at least: the sum of all outputs is above a threshold more often with the unit than
/// exp(epsilon) times without it and delta allow. No grid, no transform and no moment: binomial and normal tails.
fn least(q: f64, sigma: f64, steps: u64, delta: f64) -> f64 {
    let deviation = sigma * (steps as f64).sqrt();
    let log_sum = |terms: &[f64]| {
        let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        largest + terms.iter().map(|term| (term - largest).exp()).sum::<f64>().ln()
    };
    let reach = (12.0 * (q * steps as f64).sqrt() + q * steps as f64) as u64 + 80;
    let mut best = 0.0_f64;
    for place in 0..400 {
        let threshold = deviation * f64::from(place) * 0.1;
        let mut log_choose = 0.0;
        let mut terms = Vec::new();
        for k in 0..=steps.min(reach) {
            if k > 0 {
                log_choose += ((steps - k + 1) as f64 / k as f64).ln();
            }
            let stays = if steps == k { 0.0 } else { (steps - k) as f64 * (-q).ln_1p() };
            let drawn = log_choose + k as f64 * q.ln() + stays;
            terms.push(drawn + normal::log_tail((threshold - k as f64) / deviation));
        }
        let with = log_sum(&terms);
        if with > delta.ln() {
            let left = with + (-(delta.ln() - with).exp()).ln_1p();
            best = best.max(left - normal::log_tail(threshold / deviation));
        }
    }
    best
}

/// Bounds of one and the same truth differ by no more.
const PRECISION: f64 = 1e-3;

#[test]
fn no_delta_is_so_small_that_the_answer_is_no_bound() {
    const DELTAS: [f64; 8] = [0.1, 1e-5, 1e-12, 1e-18, 1e-30, 1e-60, 1e-120, 1e-300];
    for (q, sigma, steps) in [
        (0.05, 3.0, [1, 19, 20]),
        (0.01, 1.0, [1, 7, 8]),
        (0.5, 2.0, [2, 300, 301]),
        (1e-3, 0.7, [1, 50, 51]),
        (0.2, 20.0, [1, 999, 1000]),
    ] {
        let mut with_larger_delta = [0.0; 3];
        for delta in DELTAS {
            let case = format!("q {q} sigma {sigma} delta {delta:e}");
            let found =
                steps.map(|steps| pld(Relation::AddRemove, &[sampled(q, sigma, steps)], delta));
            let truly = steps.map(|steps| least(q, sigma, steps, delta));
            assert!(found.iter().all(|found| found.is_finite()), "{case}: {found:?}");
            for (found, truly) in found.iter().zip(truly) {
                assert!(*found >= truly * (1.0 - 1e-9), "{case}: found {found}, at least {truly}");
            }
            let rises = |a: f64, b: f64| b >= a * (1.0 - PRECISION);
            assert!(found.is_sorted_by(|a, b| rises(*a, *b)), "{case}, steps {steps:?}: {found:?}");
            let pairs = with_larger_delta.iter().zip(found);
            assert!(
                pairs.clone().all(|(a, b)| rises(*a, b)),
                "{case}: {with_larger_delta:?} {found:?}"
            );
            with_larger_delta = found;
        }
    }
}

#[test]
fn without_sampling_every_delta_has_its_closed_form() {
    for delta in [0.1, 1e-18, 1e-120, 1e-300] {
        for (sigma, steps) in [(1.0, 1), (30.0, 200), (1e6, 3)] {
            let mu = (steps as f64).sqrt() / sigma;
            let found = pld(Relation::AddRemove, &[sampled(1.0, sigma, steps)], delta);
            // The chance of an output above a threshold, with the unit and without it.
            let tested = (0..4_000).filter_map(|place| {
                let threshold = f64::from(place) * 0.01;
                let with = normal::log_tail(threshold - mu);
                let left = with + (-(delta.ln() - with).exp()).ln_1p();
                (with > delta.ln()).then(|| left - normal::log_tail(threshold))
            });
            let truly = tested.fold(0.0, f64::max);
            assert!(found >= truly * (1.0 - 1e-9), "{sigma} {steps} {delta:e}: {found} {truly}");
            assert!(found <= truly * 1.001 + 1e-9, "{sigma} {steps} {delta:e}: {found} {truly}");
        }
    }
}

#[test]
fn noise_is_found_for_every_delta_and_the_guarantee_holds_with_it() {
    for delta in [1e-18, 1e-300, f64::MIN_POSITIVE] {
        let schedule = Schedule {
            sampling: Sampling::Poisson { rate: SamplingRate::new(0.05).unwrap() },
            steps: 20.try_into().unwrap(),
            relation: Relation::AddRemove,
            delta: Delta::new(delta).unwrap(),
        };
        let wish = Budget::new(2.0).unwrap();
        let noise = calibration::noise(wish, &schedule).unwrap();
        assert!(pld(Relation::AddRemove, &[schedule.release(noise)], delta) <= 2.0, "{delta:e}");
        assert!(least(0.05, noise.get(), 20, delta) <= 2.0, "{delta:e}: {noise}");
    }
}
