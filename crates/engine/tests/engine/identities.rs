//! Methods that have to coincide, and where they have to differ.

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::{Layer, Probe, Role, Rule, Scope};

const EXAMPLES: [u64; 4] = [40, 70, 100, 10];

/// A change is rounded once when it is taken and once when it is added again.
const ROUNDING: f32 = 1e-6;

#[track_caller]
fn check_equal(recipe: Recipe, other: Recipe, rounds: u32) {
    let left = train(recipe, &mut Quadratics::new(&EXAMPLES), rounds);
    let right = train(other, &mut Quadratics::new(&EXAMPLES), rounds);
    assert_eq!(left, right);
}

#[test]
fn fedprox_without_a_pull_is_fedavg() {
    check_equal(recipe("fedprox", r#"{"mu":0}"#), recipe("fedavg", "{}"), 5);
}

#[test]
fn fedavgm_without_momentum_is_fedavg() {
    check_equal(recipe("fedavgm", r#"{"beta":0}"#), recipe("fedavg", "{}"), 5);
}

#[test]
fn adaptive_servers_at_their_identity_setting_are_fedavg() {
    let settings = r#"{"rate":2,"beta1":0,"beta2":1,"tau":1}"#;
    check_equal(recipe("fedadam", settings), recipe("fedavg", "{}"), 5);
    check_equal(recipe("fedyogi", settings), recipe("fedavg", "{}"), 5);
}

#[test]
fn scaffold_with_one_step_from_zero_variates_is_fedavg() {
    let one_step = |mut recipe: Recipe| {
        recipe.work.max_steps = Some(1);
        recipe
    };
    let (scaffold, fedavg) = (recipe("scaffold", "{}"), recipe("fedavg", "{}"));
    check_equal(one_step(scaffold.clone()), one_step(fedavg.clone()), 1);
    // With several steps and later rounds the variates do something.
    let left = train(scaffold, &mut Quadratics::new(&EXAMPLES), 3);
    let right = train(fedavg, &mut Quadratics::new(&EXAMPLES), 3);
    assert!(distance(&left, &right) > 1e-3);
}

#[test]
fn fednova_with_equal_steps_is_fedavg_to_the_bit() {
    let equal = |mut recipe: Recipe| {
        recipe.work.max_steps = Some(1);
        recipe
    };
    check_equal(equal(recipe("fednova", "{}")), equal(recipe("fedavg", "{}")), 5);
    let left = train(recipe("fednova", "{}"), &mut Quadratics::new(&EXAMPLES), 2);
    let right = train(recipe("fedavg", "{}"), &mut Quadratics::new(&EXAMPLES), 2);
    assert!(distance(&left, &right) > 1e-3);
}

#[test]
fn one_client_with_everything_is_centralised_training() {
    let alone = || Quadratics::new(&[100]);
    let (centralised, reports) = run(recipe("centralised", "{}"), &mut alone(), 4);
    assert_eq!(centralised.model(), &train(recipe("fedavg", "{}"), &mut alone(), 4));
    assert!(reports.iter().all(|report| report.bytes == Bytes::default()));

    // And plain SGD, written out: 10 steps a round, without noise.
    let mut fleet = Quadratics { noise: 0.0, ..alone() };
    let mut expected = initial();
    for _ in 0..40 {
        for (id, values) in expected.iter_mut() {
            let target = fleet.targets[0].get(id).expect("whole");
            for (w, target) in values.iter_mut().zip(target) {
                *w -= 0.05 * (0.5 * (*w - target));
            }
        }
    }
    let found = train(recipe("centralised", "{}"), &mut fleet, 4);
    assert!(distance(&found, &expected) < ROUNDING);
}

#[test]
fn centralised_training_wants_a_single_client() {
    let mut federation =
        Federation::new(recipe("centralised", "{}"), layout(), initial(), fedra_seed::Seed(1))
            .expect("a whole model");
    let refused = federation.run(&mut Quadratics::new(&EXAMPLES), &mut [], 1, &|| false);
    assert!(refused.expect_err("four clients").to_string().contains("centralised"));
}

/// So many blocks with the largest gradients.
fn by_gradient(k: u16) -> Selection {
    Selection { k, probe: Some(Probe::GradientNorm), ..Selection::default() }
}

#[test]
fn selecting_every_block_and_the_rest_is_fedavg() {
    let rest = Rule::Layers([Layer::Embedding, Layer::Head].into());
    let (learns, selection) = (Rule::Chosen | rest, by_gradient(2));
    let fedavg = recipe("fedavg", "{}");
    check_equal(Recipe { learns, selection, ..fedavg.clone() }, fedavg, 3);
}

#[test]
fn consensus_gives_all_clients_one_mask_and_per_client_masks_give_each_its_own() {
    let (learns, selection) = (Rule::Chosen, by_gradient(1));
    let base = Recipe { learns, selection, ..recipe("fedavg", "{}") };
    let (after, reports) = run(base.clone(), &mut Quadratics::new(&EXAMPLES), 1);
    assert_eq!(changed(&initial(), after.model()).blocks(), [0].into());
    assert_eq!(reports[0].blocks, [0].into());
    let own = Recipe { masks: Masks::PerClient, ..base };
    let (after, reports) = run(own, &mut Quadratics::new(&EXAMPLES), 1);
    assert_eq!(changed(&initial(), after.model()).blocks(), [0, 1].into());
    assert_eq!(reports[0].refused, []);
}

#[test]
fn a_stage_past_the_last_round_is_fedavg_and_a_frozen_part_keeps_its_bits() {
    let freezing = |at| {
        let part = Rule::Roles([Role::Query, Role::Key].into());
        let begins = Begins::At(fedra_plan::Round(at));
        Some(Stage { begins, part, treatment: Treatment::Frozen })
    };
    let fedavg = recipe("fedavg", "{}");
    check_equal(Recipe { stage: freezing(4), ..fedavg.clone() }, fedavg, 4);
    for name in ["fedadam", "fedavgm", "scaffold", "feddyn"] {
        let recipe = Recipe { stage: freezing(2), ..recipe(name, "{}") };
        let before = train(recipe.clone(), &mut Quadratics::new(&EXAMPLES), 2);
        let after = train(recipe, &mut Quadratics::new(&EXAMPLES), 5);
        let query = Scope::of_roles(&layout(), [Role::Query]);
        assert_eq!(changed(&before, &after), Scope::everything(&layout()) - query, "{name}");
    }
}

#[test]
fn a_personal_head_never_travels_and_a_frozen_one_never_moves() {
    let head = Scope::of_layers(&layout(), [Layer::Head]);
    for name in ["fedper", "fedbabu"] {
        let mut fleet = Quadratics::new(&EXAMPLES);
        let after = train(recipe(name, "{}"), &mut fleet, 3);
        assert_eq!(changed(&initial(), &after), Scope::everything(&layout()) - &head, "{name}");
        let kept = fleet.state();
        match name {
            "fedper" => assert!(kept.iter().all(|state| state.personal.scope() == head)),
            _ => assert!(kept.is_empty()),
        }
    }
}

#[test]
fn local_only_sends_headers_and_keeps_everything() {
    let mut fleet = Quadratics::new(&EXAMPLES);
    let (after, reports) = run(recipe("local-only", "{}"), &mut fleet, 3);
    assert_eq!(after.model(), &initial());
    assert!(fleet.state().iter().all(|state| state.personal.len() == layout().len()));
    let header = fedra_wire::payload_length(&layout(), &Scope::empty(), Encoding::F32) as u64;
    assert_eq!(reports[1].bytes.down.0, 4 * header);
    assert_eq!(reports[1].bytes.up.0, 4 * header);
    // Each client comes nearer to its own optimum than the first model was.
    let scores = |report: &RoundReport| report.scores[0].loss;
    assert!(scores(&reports[2]) < scores(&reports[0]));
}

/// Two clients that disagree and do unequal work: the mean of their optima by curvature is the
/// optimum of the mean loss.
fn disagreeing() -> Quadratics {
    let mut fleet = Quadratics::new(&[200, 200]);
    fleet.noise = 0.0;
    fleet.curvatures = vec![0.5, 4.0];
    fleet
}

fn optimum(fleet: &Quadratics) -> ParamValues {
    let total: f32 = fleet.curvatures.iter().sum();
    let mut best = ParamValues::zeros(&layout(), &Scope::everything(&layout()));
    for (target, curvature) in fleet.targets.iter().zip(&fleet.curvatures) {
        for (id, values) in target.iter() {
            for (best, value) in best.or_zeros(id, values.len()).iter_mut().zip(values) {
                *best += curvature / total * value;
            }
        }
    }
    best
}

#[test]
fn scaffold_and_feddyn_reach_the_optimum_that_fedavg_misses() {
    let away = |name: &str, settings: &str, rounds: u32| {
        let mut fleet = disagreeing();
        let found = train(recipe(name, settings), &mut fleet, rounds);
        distance(&found, &optimum(&fleet))
    };
    assert!(away("fedavg", "{}", 400) > 0.1);
    assert!(away("scaffold", "{}", 400) < 1e-3);
    assert!(away("feddyn", r#"{"alpha":1}"#, 400) < 1e-3);
}

/// One client with 10 examples whose optimum is 0 everywhere, one with 90 whose optimum is 1: by
/// examples the federation's optimum is 0.9, and 0.5 when both count alike.
fn ten_and_ninety() -> Quadratics {
    let mut fleet = Quadratics::new(&[10, 90]);
    (fleet.noise, fleet.curvatures) = (0.0, vec![1.0, 1.0]);
    for (target, value) in fleet.targets.iter_mut().zip([0.0, 1.0]) {
        for (_, values) in target.iter_mut() {
            values.fill(value);
        }
    }
    fleet
}

fn constant(value: f32) -> ParamValues {
    layout().iter().map(|(id, shape)| (id, vec![value; shape.elements()])).collect()
}

#[test]
fn scaffold_stands_still_at_the_optimum_of_fedavg_by_either_weighting() {
    for (settings, weighting, optimum) in [
        ("{}", Weighting::Examples, 0.9),
        (r#"{"weighting":"examples"}"#, Weighting::Examples, 0.9),
        (r#"{"weighting":"uniform"}"#, Weighting::Uniform, 0.5),
    ] {
        // One step of FedAvg is a step down the federation's own loss: its limit is the optimum.
        let mut fedavg = Recipe { weighting, ..recipe("fedavg", "{}") };
        fedavg.work.max_steps = Some(1);
        let aim = train(fedavg, &mut ten_and_ninety(), 600);
        assert!(distance(&aim, &constant(optimum)) < ROUNDING, "{settings}");
        // SCAFFOLD gets there with one step at one client and nine at the other.
        let found = train(recipe("scaffold", settings), &mut ten_and_ninety(), 600);
        let away = distance(&found, &constant(optimum));
        assert!(away < 1e-5, "{settings}: {away} away from {optimum}");
    }
}

#[test]
fn the_servers_variate_is_the_weighted_mean_of_all_clients_variates() {
    // Two of four clients a round, each with blocks of its own choice: whatever S and whatever was
    // trained, c = sum_i p_i c_i over all clients.
    for (settings, weights) in [
        (r#"{"weighting":"examples"}"#, EXAMPLES.map(|count| count as f32 / 220.0)),
        (r#"{"weighting":"uniform"}"#, [0.25; 4]),
    ] {
        let mut recipe = recipe("scaffold", settings);
        recipe.sampler = Sampler::Uniform(2);
        (recipe.learns, recipe.selection) = (Rule::Chosen, by_gradient(1));
        recipe.masks = Masks::PerClient;
        let mut fleet = Quadratics::new(&EXAMPLES);
        let (federation, reports) = run(recipe, &mut fleet, 9);
        assert!(reports.iter().any(|report| report.blocks.len() == 2));
        let mut expected = ParamValues::new();
        for state in fleet.state() {
            let weight = weights[state.client.0 as usize];
            for (id, values) in state.correction.iter() {
                let mean = expected.or_zeros(id, values.len());
                mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += weight * value);
            }
        }
        let found = &federation.server().variate;
        assert_eq!(found.scope(), expected.scope());
        assert!(distance(found, &expected) < 1e-5, "{settings}");
    }
}

#[test]
fn fednova_removes_the_bias_of_unequal_steps() {
    // Equal curvature, equal weight, unequal steps: the optimum is the plain mean of the targets.
    let bias = |name: &str| {
        let mut fleet = Quadratics::new(&[20, 200]);
        (fleet.noise, fleet.curvatures) = (0.0, vec![1.0, 1.0]);
        let mut recipe = recipe(name, "{}");
        recipe.weighting = Weighting::Uniform;
        recipe.work.solver = OptimiserConfig::Sgd { rate: 0.005, weight_decay: 0.0 };
        let found = train(recipe, &mut fleet, 600);
        distance(&found, &optimum(&fleet))
    };
    assert!(bias("fednova") < 0.15 * bias("fedavg"), "{} {}", bias("fednova"), bias("fedavg"));
}

#[test]
fn every_method_name_makes_a_recipe_and_unknown_words_are_refused() {
    for name in methods::Method::NAMES {
        let made = recipe(name, "{}");
        assert_eq!(made.method, name);
        let again: methods::Method =
            serde_json::from_str(&format!(r#"{{"name":"{name}"}}"#)).expect(name);
        assert_eq!(again.name(), name);
        let settings = serde_json::json!({ "mew": 1 });
        let refused = methods::Method::by_name(name, settings).expect_err(name).to_string();
        assert!(refused.contains(name) && refused.contains("mew"), "{refused}");
    }
    let refused = methods::Method::by_name("fedsgd", serde_json::json!({}));
    assert!(refused.expect_err("unknown").to_string().contains("fedavg, fedprox"));
}
