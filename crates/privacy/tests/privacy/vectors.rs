//! The reference vectors, where they are at hand: numbers of three other accountants.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::num::NonZeroU64;
use std::path::Path;

use fedra_privacy::calibration::{self, Schedule};
use fedra_privacy::rdp::Orders;
use fedra_privacy::{
    Budget, Composition, Delta, NoiseMultiplier, Relation, Release, Sampling, SamplingRate,
    gaussian,
};
use serde_json::Value;

/// Epsilon is within a thousandth of the reference, or within the reference's own grid.
const RELATIVE: f64 = 1e-3;
/// What the reference's own grid, of width 1e-4, adds to its epsilon over many steps, at most.
const ABSOLUTE: f64 = 1e-3;

fn vectors(table: &str) -> Vec<Value> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/dp_vectors.json");
    let text = fs::read_to_string(file).unwrap();
    let whole: Value = serde_json::from_str(&text).unwrap();
    whole[table].as_array().unwrap().clone()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn count(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn nonzero(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).unwrap()
}

fn delta(row: &Value) -> Delta {
    Delta::new(number(row, "delta")).unwrap()
}

fn sampled(q: f64, sigma: f64, steps: u64) -> Release {
    Release::SampledGaussian {
        sampling: Sampling::Poisson { rate: SamplingRate::new(q).unwrap() },
        noise: NoiseMultiplier::new(sigma).unwrap(),
        steps: nonzero(steps),
    }
}

fn plain(sensitivity: f64, deviation: f64, times: u64) -> Release {
    Release::Gaussian { sensitivity, deviation, count: nonzero(times) }
}

fn pld(relation: Relation, releases: &[Release], delta: Delta) -> f64 {
    Composition::of(relation, releases).unwrap().pld(delta)
}

#[track_caller]
fn close(found: f64, expected: f64, row: &Value) {
    let allowed = (RELATIVE * expected).max(ABSOLUTE);
    assert!((found - expected).abs() <= allowed, "found {found}, expected {expected}: {row}");
}

#[track_caller]
fn exact(found: f64, expected: f64, relative: f64, row: &Value) {
    assert!(
        (found / expected - 1.0).abs() <= relative,
        "found {found}, expected {expected}: {row}"
    );
}

/// The orders of the reference.
fn orders() -> Orders {
    Orders::new((11..110).map(|tenths| f64::from(tenths) / 10.0).chain((12..64).map(f64::from)))
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn sampled_gaussian_steps_agree_by_both_accountants_and_both_relations() {
    for row in vectors("dp_sgd") {
        let release = [sampled(number(&row, "q"), number(&row, "sigma"), count(&row, "steps"))];
        let found = pld(Relation::AddRemove, &release, delta(&row));
        close(found, number(&row, "pld_add_or_remove_eps"), &row);
        for lower in ["prv_opacus", "prv_microsoft"] {
            assert!(row[lower].is_null() || found >= number(&row[lower], "lower"), "{row}");
        }
        let replaced = pld(Relation::Replace, &release, delta(&row));
        close(replaced, number(&row, "pld_replace_one_eps"), &row);
        let composition = Composition::of(Relation::AddRemove, &release).unwrap();
        exact(
            composition.rdp(delta(&row), &orders()).0,
            number(&row, "rdp_opacus_eps"),
            1e-6,
            &row,
        );
        let spent = composition.spent(delta(&row));
        assert!(spent.pld <= spent.rdp, "{spent:?}: {row}");
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn one_step_agrees_with_its_closed_form_where_the_reference_is_coarse() {
    // delta(epsilon) of a sampled step is q times the Gaussian's at log(1 + (exp(epsilon) - 1)/q).
    for row in vectors("dp_sgd").iter().filter(|row| row["steps"] == 1) {
        let (q, sigma) = (number(row, "q"), number(row, "sigma"));
        let inner = gaussian::epsilon(1.0 / sigma, number(row, "delta") / q);
        let truth = (q * inner.exp_m1()).ln_1p();
        let found = pld(Relation::AddRemove, &[sampled(q, sigma, 1)], delta(row));
        assert!(found >= truth, "found {found} below the true {truth}: {row}");
        exact(found, truth, RELATIVE, row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn noise_for_a_wished_epsilon_agrees() {
    for row in vectors("inverse_sigma") {
        let wish = Budget::new(number(&row, "target_eps")).unwrap();
        let schedule = Schedule {
            sampling: Sampling::Poisson { rate: SamplingRate::new(number(&row, "q")).unwrap() },
            steps: nonzero(count(&row, "steps")),
            relation: Relation::AddRemove,
            delta: delta(&row),
        };
        let found = calibration::noise(wish, &schedule).unwrap();
        exact(found.get(), number(&row, "sigma_pld"), RELATIVE, &row);
        let kept = pld(Relation::AddRemove, &[schedule.release(found)], delta(&row));
        assert!(kept <= wish.get(), "{kept}: {row}");
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn plain_gaussian_noise_and_epsilon_agree() {
    for row in vectors("gaussian_sigma_from_eps") {
        let mu = number(&row, "sigma_analytic_balle_wang").recip();
        exact(gaussian::epsilon(mu, number(&row, "delta")), number(&row, "eps"), 1e-8, &row);
    }
    for row in vectors("gaussian_eps_from_sigma") {
        let release = [plain(1.0, number(&row, "sigma"), 1)];
        exact(pld(Relation::AddRemove, &release, delta(&row)), number(&row, "eps"), 1e-8, &row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn clients_as_units_agree() {
    for row in vectors("user_level_fedavg") {
        let q = number(&row, "per_round") / number(&row, "clients");
        let release = [sampled(q, number(&row, "z"), count(&row, "rounds"))];
        let found = pld(Relation::AddRemove, &release, delta(&row));
        close(found, number(&row, "pld_poisson_add_remove_eps"), &row);
        let replaced = pld(Relation::Replace, &release, delta(&row));
        close(replaced, number(&row, "pld_poisson_replace_one_eps"), &row);
        let composition = Composition::of(Relation::AddRemove, &release).unwrap();
        let (rdp, _) = composition.rdp(delta(&row), &orders());
        // Where its series for fractional orders does not converge, the reference is looser by 1 %.
        let reference = number(&row, "rdp_poisson_add_remove_eps");
        assert!(found <= rdp && rdp <= reference * (1.0 + 1e-6), "{rdp}: {row}");
        exact(rdp, reference, 1e-2, &row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn batches_with_a_cap_agree() {
    for row in vectors("truncated_poisson") {
        let release = [Release::SampledGaussian {
            sampling: Sampling::CappedPoisson {
                rate: SamplingRate::new(number(&row, "q")).unwrap(),
                cap: nonzero(count(&row, "max_batch")),
                population: nonzero(count(&row, "dataset")),
            },
            noise: NoiseMultiplier::new(number(&row, "sigma")).unwrap(),
            steps: nonzero(count(&row, "steps")),
        }];
        for (relation, key) in [
            (Relation::AddRemove, "pld_trunc_add_remove"),
            (Relation::Replace, "pld_trunc_replace_one"),
        ] {
            close(pld(relation, &release, delta(&row)), number(&row, key), &row);
            let spent = Composition::of(relation, &release).unwrap().spent(delta(&row));
            assert!(spent.pld <= spent.rdp, "{spent:?}: {row}");
        }
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn concentrated_privacy_agrees() {
    for row in vectors("zcdp") {
        let release = [plain((2.0 * number(&row, "rho")).sqrt(), 1.0, 1)];
        let composition = Composition::of(Relation::AddRemove, &release).unwrap();
        let (rdp, _) = composition.rdp(delta(&row), &Orders::default());
        exact(rdp, number(&row, "rdp_eps"), 2e-3, &row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn phases_of_different_kinds_agree() {
    for row in vectors("heterogeneous") {
        let phases: Vec<Release> = row["phases(sigma,q,T)"]
            .as_array()
            .unwrap()
            .iter()
            .map(|phase| {
                let [sigma, q, steps] = [0, 1, 2].map(|place| phase[place].as_f64().unwrap());
                sampled(q, sigma, steps as u64)
            })
            .collect();
        let found = pld(Relation::AddRemove, &phases, delta(&row));
        close(found, number(&row, "pld_eps"), &row);
        let composition = Composition::of(Relation::AddRemove, &phases).unwrap();
        exact(
            composition.rdp(delta(&row), &orders()).0,
            number(&row, "rdp_opacus_eps"),
            1e-6,
            &row,
        );
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn clipped_states_and_batches_in_fixed_order_agree() {
    for row in vectors("hidden_state_local_dp") {
        let reach = 2.0 * number(&row, "clip_norm_per_release");
        let noise = number(&row, "noise_std_per_coord");
        let release = [plain(reach, noise, count(&row, "releases_T"))];
        exact(
            pld(Relation::Replace, &release, delta(&row)),
            number(&row, "eps_replace_one"),
            1e-8,
            &row,
        );
    }
    for row in vectors("no_amplification") {
        let (q, epochs) = (number(&row, "q"), count(&row, "epochs"));
        let steps = (epochs as f64 / q).round() as u64;
        let found =
            pld(Relation::AddRemove, &[sampled(q, number(&row, "sigma"), steps)], delta(&row));
        close(found, number(&row, "poisson_pld_eps"), &row);
        let fixed =
            pld(Relation::AddRemove, &[plain(1.0, number(&row, "sigma"), epochs)], delta(&row));
        let key = "deterministic_batches_eps (no amplification; each record once per epoch)";
        exact(fixed, number(&row, key), 1e-6, &row);
    }
}

#[test]
#[ignore = "needs ../shared/vectors: tools/test-shared"]
fn noise_shared_with_a_count_agrees() {
    for row in vectors("adaclip_sigma_eff") {
        let whole = NoiseMultiplier::new(number(&row, "sigma")).unwrap();
        let found = calibration::beside_count(whole, number(&row, "unclipped_num_std")).unwrap();
        exact(found.get(), number(&row, "sigma_eff"), 1e-12, &row);
    }
}
