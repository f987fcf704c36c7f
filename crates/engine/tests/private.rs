//! Client-level privacy: what one client can move, where noise is, and a ledger that is ahead of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fleet;

use std::fs;

use fedra_engine::*;
use fedra_plan::Rule;
use fedra_privacy::{Budget, Delta, NoiseMultiplier, Promise, Relation, Unit};
use fedra_seed::Seed;
use fleet::*;

const EXAMPLES: [u64; 5] = [40, 70, 100, 10, 30];
const CLIP: f64 = 0.5;

/// What a test does to a recipe.
type Change<'a> = &'a dyn Fn(&mut Recipe);

fn private(sigma: f64, budget: Option<f64>) -> Recipe {
    let mut recipe = recipe("fedavg", "{}");
    recipe.weighting = Weighting::Uniform;
    recipe.min_arrivals = MinArrivals::Count(0);
    recipe.evaluation.on = Vec::new();
    recipe.privacy = Some(Privacy {
        promise: Promise {
            unit: Unit::Client,
            relation: Relation::AddRemove,
            delta: Delta::new(1e-5).unwrap(),
            budget: budget.map(|epsilon| Budget::new(epsilon).unwrap()),
        },
        clip: CLIP,
        clipping: ClipRule::Flat,
        noise: NoiseMultiplier::new(sigma).unwrap(),
        cap: None,
        selection: PrivateSelection::NoisyUpdate,
        client_scores: false,
    });
    recipe
}

/// The distance between two models.
fn apart(one: &ParamValues, other: &ParamValues) -> f64 {
    let away = difference(one, other);
    let squares = away.iter().flat_map(|(_, values)| values).map(|value| f64::from(*value).powi(2));
    squares.sum::<f64>().sqrt()
}

/// A fleet of which one client fails, or sends something else.
fn without(client: u32) -> Quadratics {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(move |request, reply| {
        let failed = Outcome::Failed("gone".to_owned());
        vec![if request.client.0 == client { failed } else { Outcome::Finished(reply) }]
    }));
    fleet
}

#[test]
fn a_client_moves_the_model_by_its_clip_norm_over_a_public_number_and_no_more() {
    let (whole, _) = run(private(1.0, None), &mut Quadratics::new(&EXAMPLES), 1);
    let bound = CLIP / EXAMPLES.len() as f64;
    for client in 0..5 {
        let (missing, reports) = run(private(1.0, None), &mut without(client), 1);
        assert_eq!(reports[0].arrived.len(), 4);
        let moved = apart(whole.model(), missing.model());
        // Their losses are steep: everybody is clipped, and so everybody counts in full.
        assert!((moved - bound).abs() < 1e-5 * bound, "client {client}: {moved}, bound {bound}");
    }
}

#[test]
fn an_update_within_the_norm_is_left_as_it_is() {
    let large = |recipe: &mut Recipe| recipe.privacy.as_mut().unwrap().clip = 1e4;
    let mut plain = private(0.001, None);
    plain.privacy = None;
    let (expected, _) = run(plain, &mut Quadratics::new(&EXAMPLES), 1);
    let mut recipe = private(0.001, None);
    large(&mut recipe);
    let (found, _) = run(recipe, &mut Quadratics::new(&EXAMPLES), 1);
    // Noise of 0.001 times 10,000 over five clients: two a number.
    let moved = apart(found.model(), expected.model());
    assert!((2.0..20.0).contains(&moved), "{moved}");
}

/// Where nobody comes, everything that may learn is noise of the same size; what does not, stays.
#[test]
fn noise_covers_all_that_may_learn_whoever_comes() {
    let mut recipe = private(2.0, None);
    recipe.learns = Rule::Everything - Rule::Blocks([0].into());
    let nobody = || {
        let mut fleet = Quadratics::new(&EXAMPLES);
        fleet.tamper = Some(Box::new(|_, _| vec![Outcome::Failed("gone".to_owned())]));
        fleet
    };
    let mut federation = Federation::new(recipe.clone(), layout(), initial(), Seed(3)).unwrap();
    let (mut fleet, mut before) = (nobody(), initial());
    let (mut squares, mut count) = (0.0_f64, 0.0);
    for round in 1..=300 {
        // Nobody ever arrives, which a run refuses to call complete.
        federation.advance(&mut fleet, &mut [], 1000, &|| false).unwrap();
        let away = difference(federation.model(), &before);
        for (id, values) in away.iter() {
            let learns = id.site.block() != Some(0);
            assert_eq!(values.iter().any(|value| *value != 0.0), learns, "{id} in round {round}");
            if learns {
                squares += values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
                count += values.len() as f64;
            }
        }
        before = federation.model().clone();
    }
    let (found, expected) = ((squares / count).sqrt(), 2.0 * CLIP / 5.0);
    assert!((found / expected - 1.0).abs() < 0.05, "{found}, expected {expected}");
}

#[test]
fn the_ledger_grows_with_the_rounds_and_refuses_the_one_that_passes_the_budget() {
    let (federation, reports) = run(private(4.0, None), &mut Quadratics::new(&EXAMPLES), 6);
    let ledger = federation.ledger().unwrap();
    assert_eq!(ledger.events().len(), 6);
    let spent: Vec<f64> =
        reports.iter().map(|report| report.privacy.as_ref().unwrap().epsilon).collect();
    assert!(spent.is_sorted_by(|one, next| one < next), "{spent:?}");
    assert_eq!(ledger.spent().unwrap().pld, spent[5]);

    let budget = f64::midpoint(spent[3], spent[4]);
    let mut federation =
        Federation::new(private(4.0, Some(budget)), layout(), initial(), Seed(3)).unwrap();
    let mut fleet = Quadratics::new(&EXAMPLES);
    let error = federation.run(&mut fleet, &mut [], 6, &|| false).unwrap_err().to_string();
    assert!(error.starts_with("privacy: ") && error.contains("round 4"), "{error}");
    assert_eq!(federation.completed().0, 4, "four rounds fit");
    assert_eq!(federation.ledger().unwrap().events().len(), 4);
}

#[test]
fn a_run_goes_on_only_with_a_ledger_that_nobody_touched() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("ledger.jsonl");
    let begin = || {
        let mut federation =
            Federation::new(private(4.0, None), layout(), initial(), Seed(3)).unwrap();
        federation.keep_ledger(&file);
        federation.keep_checkpoints(place.path());
        federation
    };
    let mut federation = begin();
    federation.run(&mut Quadratics::new(&EXAMPLES), &mut [], 3, &|| false).unwrap();
    let good = fs::read_to_string(&file).unwrap();
    assert_eq!(good.lines().count(), 4, "the promise and three rounds");

    let mut again = begin();
    assert!(again.resume(place.path(), &mut Quadratics::new(&EXAMPLES)).unwrap());
    assert_eq!(again.ledger().unwrap().events().len(), 3);
    let mut lines: Vec<&str> = good.lines().collect();
    let shortened = lines[..3].join("\n");
    lines.swap(1, 2);
    let cases = [
        ("edited", good.replace("\"noise\":4", "\"noise\":9")),
        ("reordered", lines.join("\n")),
        ("shortened", shortened),
        ("emptied", String::new()),
    ];
    for (what, text) in cases {
        assert_ne!(text, good, "{what}");
        fs::write(&file, text).unwrap();
        let error = begin().resume(place.path(), &mut Quadratics::new(&EXAMPLES)).unwrap_err();
        assert!(error.to_string().contains("ledger.jsonl"), "{what}: {error}");
    }
    fs::remove_file(&file).unwrap();
    assert!(begin().resume(place.path(), &mut Quadratics::new(&EXAMPLES)).is_err());

    // A round that was announced and not finished counts, and so does its second beginning.
    let elsewhere = place.path().join("longer.jsonl");
    let mut longer = Federation::new(private(4.0, None), layout(), initial(), Seed(3)).unwrap();
    longer.keep_ledger(&elsewhere);
    longer.run(&mut Quadratics::new(&EXAMPLES), &mut [], 4, &|| false).unwrap();
    fs::copy(&elsewhere, &file).unwrap();
    let mut again = begin();
    assert!(again.resume(place.path(), &mut Quadratics::new(&EXAMPLES)).unwrap());
    assert_eq!(again.ledger().unwrap().events().len(), 4);
    again.run(&mut Quadratics::new(&EXAMPLES), &mut [], 4, &|| false).unwrap();
    assert_eq!(again.ledger().unwrap().events().len(), 5);
    assert_eq!(again.model(), longer.model());
}

#[test]
fn what_the_promise_does_not_cover_is_refused_with_its_reason() {
    let refused = |change: &dyn Fn(&mut Recipe)| {
        let mut recipe = private(1.0, None);
        change(&mut recipe);
        recipe.check(EXAMPLES.len()).unwrap_err().to_string()
    };
    let cases: [(Change<'_>, &str); 6] = [
        (&|recipe| recipe.sampler = Sampler::Uniform(2), "accounted for these"),
        (&|recipe| recipe.weighting = Weighting::Examples, "count for more"),
        (&|recipe| recipe.work.local = LocalRule::ControlVariate, "control variate"),
        (&|recipe| recipe.min_arrivals = MinArrivals::Count(1), "min_arrivals"),
        (&|recipe| recipe.pace = Pace::Normalised, "after they are clipped"),
        (&|recipe| recipe.privacy.as_mut().unwrap().clip = 0.0, "above 0"),
    ];
    for (change, expected) in cases {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
    assert!(private(1.0, None).check(EXAMPLES.len()).is_ok());
}
