//! Client-level privacy: what one client can move, where noise is, and a ledger that is ahead of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::{Layer, Rule};
use fedra_privacy::{Budget, Delta, Guarantee, NoiseMultiplier, Relation, Unit};
use fedra_seed::{SecretKey, Seed};

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
        guarantee: Guarantee {
            unit: Unit::Client,
            relation: Relation::AddRemove,
            delta: Delta::new(1e-5).unwrap(),
            budget: budget.map(|epsilon| Budget::new(epsilon).unwrap()),
        },
        clip: CLIP,
        clipping: ClipRule::Flat,
        noise: NoiseMultiplier::new(sigma).unwrap(),
        cap: None,
        rows: None,
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
        let failed = Outcome::Failed("gone".into());
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
        fleet.tamper = Some(Box::new(|_, _| vec![Outcome::Failed("gone".into())]));
        fleet
    };
    let mut federation = Federation::new(recipe.clone(), layout(), initial(), Seed(3)).unwrap();
    let (mut fleet, mut before) = (nobody(), initial());
    let (mut squares, mut count) = (0.0_f64, 0.0);
    for round in 1..=300 {
        federation.advance(&mut fleet, &mut [], 1000, &|| false).unwrap();
        let away = difference(federation.model(), &before);
        for (id, values) in away.iter() {
            let learns = id.layer.block() != Some(0);
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
    assert!(error.starts_with("privacy: ") && error.contains("round 5"), "{error}");
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
    assert_eq!(good.lines().count(), 4, "the guarantee and three rounds");

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

    // A round that was announced and not finished counts; made again to the same bits it is the same
    // release, and with noise that nobody can draw again it is another.
    let elsewhere = place.path().join("longer.jsonl");
    let mut longer = Federation::new(private(4.0, None), layout(), initial(), Seed(3)).unwrap();
    longer.keep_ledger(&elsewhere);
    longer.run(&mut Quadratics::new(&EXAMPLES), &mut [], 4, &|| false).unwrap();
    fs::copy(&elsewhere, &file).unwrap();
    let checkpoint = fs::read(place.path().join("checkpoint.fedra")).unwrap();
    let mut again = begin();
    assert!(again.resume(place.path(), &mut Quadratics::new(&EXAMPLES)).unwrap());
    assert_eq!(again.ledger().unwrap().events().len(), 4);
    again.run(&mut Quadratics::new(&EXAMPLES), &mut [], 4, &|| false).unwrap();
    assert_eq!(again.ledger().unwrap().events().len(), 4);
    assert_eq!(again.model(), longer.model());

    fs::write(place.path().join("checkpoint.fedra"), &checkpoint).unwrap();
    let mut again = begin();
    again.with_noise(SecretKey::new([7; 32]));
    assert!(again.resume(place.path(), &mut Quadratics::new(&EXAMPLES)).unwrap());
    again.run(&mut Quadratics::new(&EXAMPLES), &mut [], 4, &|| false).unwrap();
    assert_eq!(again.ledger().unwrap().events().len(), 5);
    assert_ne!(again.model(), longer.model());

    // What was announced beyond the checkpoint cannot be cut off either.
    fs::write(place.path().join("checkpoint.fedra"), &checkpoint).unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(&file, format!("{}\n", lines[..5].join("\n"))).unwrap();
    let error = begin().resume(place.path(), &mut Quadratics::new(&EXAMPLES)).unwrap_err();
    assert!(error.to_string().contains("shortened"), "{error}");
}

#[test]
fn what_the_guarantee_does_not_cover_is_refused_with_its_reason() {
    let refused = |change: &dyn Fn(&mut Recipe)| {
        let mut recipe = private(1.0, None);
        change(&mut recipe);
        recipe.check(EXAMPLES.len()).unwrap_err().to_string()
    };
    let cases: [(Change<'_>, &str); 8] = [
        (&|recipe| recipe.sampler = Sampler::Uniform(2), "accounted only for these"),
        (&|recipe| recipe.weighting = Weighting::Examples, "count for more"),
        (&|recipe| recipe.work.local = LocalRule::ControlVariate, "control variate"),
        (&|recipe| recipe.min_arrivals = MinArrivals::Count(1), "min_arrivals"),
        (&|recipe| recipe.pace = StepNormalisation::Normalised, "after they are clipped"),
        (&|recipe| recipe.privacy.as_mut().unwrap().clip = 0.0, "from 1e-6"),
        (&|recipe| recipe.evaluation.drift = true, "evaluate.drift"),
        (&|recipe| recipe.evaluation.attention = true, "evaluate.attention"),
    ];
    for (change, expected) in cases {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
    assert!(private(1.0, None).check(EXAMPLES.len()).is_ok());
}

fn of_examples(sigma: f64, method: (&str, &str)) -> Recipe {
    let mut recipe = recipe(method.0, method.1);
    recipe.evaluation.on = Vec::new();
    let mut privacy = private(sigma, None).privacy.unwrap();
    privacy.guarantee.unit = Unit::Example;
    recipe.privacy = Some(privacy);
    recipe
}

/// Epsilon after each round.
fn spent(reports: &[RoundReport]) -> Vec<f64> {
    reports.iter().map(|report| report.privacy.as_ref().unwrap().epsilon).collect()
}

#[test]
fn private_steps_are_ordered_from_clients_and_announced_for_each_of_them() {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(|request, reply| {
        let private = request.work.private.expect("steps are to be private");
        assert_eq!((private.clip, private.noise.get()), (CLIP, 4.0));
        vec![Outcome::Finished(reply)]
    }));
    let recipe = of_examples(4.0, ("fedavg", "{}"));
    let work = recipe.work.clone();
    let (federation, reports) = run(recipe, &mut fleet, 3);
    let ledger = federation.ledger().unwrap();
    assert_eq!(ledger.events().len(), 15);
    for event in ledger.events() {
        let name = event.client.as_deref().expect("about one client");
        let client = fleet.clients().iter().find(|client| client.name == name).unwrap();
        let private = federation.recipe().private_steps().unwrap();
        let expected = work.release(&private, client.examples).unwrap().unwrap();
        assert_eq!(event.release, expected, "{name}");
    }
    assert!(spent(&reports).is_sorted_by(|one, next| one < next));
    // What a loss is made of is examples.
    assert!(reports.iter().all(|report| report.loss.is_none()));
}

#[test]
fn methods_that_only_use_noised_gradients_are_covered_for_examples() {
    for (method, settings) in [
        ("scaffold", "{}"),
        ("fednova", "{}"),
        ("fedprox", r#"{"mu":0.1}"#),
        ("fedadam", "{}"),
        ("fedfrozen", r#"{"warmup":2}"#),
        ("safl", r#"{"selector":"even"}"#),
    ] {
        let recipe = of_examples(1.0, (method, settings));
        assert!(recipe.check(EXAMPLES.len()).is_ok(), "{method}");
    }
}

#[test]
fn safl_ranks_blocks_by_what_was_released_unless_told_otherwise() {
    let safl = || of_examples(1.0, ("safl", r#"{"k":1}"#));
    let mut fleet = Quadratics::new(&EXAMPLES);
    // Noise of 5 in every layer, and a signal in block 1 alone.
    fleet.tamper = Some(Box::new(|request, mut reply| {
        let blocks = request.plan.learns().blocks();
        let layer = |block: u16| LayerNoise {
            layer: Layer::Block(block),
            numbers: 4,
            released: 5.0 + f64::from(block),
            noise: 5.0,
        };
        let layers = blocks.into_iter().map(layer).collect();
        reply.noise = Some(StepNoise { layers, clip: None });
        vec![Outcome::Finished(reply)]
    }));
    let (federation, reports) = run(safl(), &mut fleet, 5);
    // Nobody was asked to measure, and every block was tried before one was tried again.
    assert!(reports.iter().all(|report| report.selection.as_ref().unwrap().scores_up.0 == 0));
    let chosen: Vec<Vec<u16>> =
        reports.iter().map(|report| report.blocks.iter().copied().collect()).collect();
    assert_eq!(chosen, [[0], [1], [1], [1], [1]]);
    let told = &reports[0].privacy.as_ref().unwrap().layers;
    assert_eq!((told.len(), told[0].signal_square()), (1, 0.0));
    let events = federation.ledger().unwrap().events();
    assert!(events.iter().all(|event| event.mechanism == EXAMPLE_GRADIENTS));

    let mut exact = safl();
    exact.privacy.as_mut().unwrap().selection = PrivateSelection::PrivateUnaccounted;
    let (federation, reports) = run(exact, &mut Quadratics::new(&EXAMPLES), 2);
    assert!(spent(&reports).iter().all(|epsilon| epsilon.is_infinite()));
    let statement = federation.ledger().unwrap().statement().unwrap();
    assert!(statement.contains("block scores that clients measured"), "{statement}");

    let mut noised = safl();
    let noise = NoiseMultiplier::new(5.0).unwrap();
    noised.privacy.as_mut().unwrap().selection = PrivateSelection::Gaussian { noise };
    let (federation, _) = run(noised, &mut Quadratics::new(&EXAMPLES), 2);
    let events = federation.ledger().unwrap().events();
    assert_eq!(events.iter().filter(|event| event.mechanism == BLOCK_SCORES).count(), 10);
}

#[test]
fn noised_scores_of_clients_and_their_updates_are_one_release() {
    let mut recipe = private(3.0, None);
    let chosen = of_examples(3.0, ("safl", r#"{"k":1}"#));
    (recipe.learns, recipe.selection) = (chosen.learns, chosen.selection);
    let noise = NoiseMultiplier::new(4.0).unwrap();
    recipe.privacy.as_mut().unwrap().selection = PrivateSelection::Gaussian { noise };
    let (federation, _) = run(recipe, &mut Quadratics::new(&EXAMPLES), 1);
    let [event] = federation.ledger().unwrap().events() else { panic!("one release") };
    let fedra_privacy::Release::SampledGaussian { noise, .. } = &event.release else {
        panic!("{event:?}")
    };
    // 1/3^2 + 1/4^2 = 1/2.4^2
    assert!((noise.get() - 2.4).abs() < 1e-12, "{noise}");
}

#[test]
fn an_adaptive_moment_of_freezing_is_free_for_examples_and_refused_for_clients() {
    let adaptive = r#"{"warmup":"adaptive"}"#;
    assert!(of_examples(1.0, ("fedfrozen", adaptive)).check(5).is_ok());
    let mut of_clients = private(1.0, None);
    of_clients.stage = of_examples(1.0, ("fedfrozen", adaptive)).stage;
    let refused = of_clients.check(5).unwrap_err().to_string();
    assert!(refused.contains("round of freezing"), "{refused}");
}
