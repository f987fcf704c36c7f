//! Branches that leave the finite numbers, and branches that are not worth following.

use fedra_compute::Seed;
use fedra_engine::ServerRule;

use super::super::advice::Advice;
use super::*;
use crate::config::Overrides;
use crate::listener::Silent;
use crate::study::compare::Verdict;

/// Four rounds with validation examples, and clients that take large steps.
fn experiment() -> Experiment {
    let sets = [
        "federation.rounds=4",
        "data.shares={ central = 0.2, validation = 0.3, test = 0.0 }",
        "work.optimiser.rate=10.0",
    ];
    let overrides = Overrides::new(sets.map(str::to_owned).to_vec(), None);
    let text = include_str!("../../../../tests/tiny.toml");
    Experiment::from_text(text, "tiny.toml", "tiny", &overrides).unwrap().warming_up().unwrap()
}

fn plan() -> PilotPlan {
    PilotPlan { horizon: 4, warmups: vec![0], tolerance: 0.01 }
}

/// Scores of two clients that rise by a tenth a round.
fn course(start: f64, rounds: u32) -> Course {
    let scene = |round: u32| {
        let mean = start + 0.1 * f64::from(round);
        let each = [(ClientId(0), (mean, 5.0)), (ClientId(1), (mean + 0.01, 5.0))];
        (round, Scene { mean, each: each.into_iter().collect() })
    };
    let scenes = (1..=rounds).map(scene).collect();
    Course { scenes, score: Some("span_f1"), kernels: Vec::new() }
}

#[test]
fn a_branch_that_diverges_ends_in_the_round_that_did_it() {
    let experiment = experiment();
    let run = Run::prepare(&experiment).unwrap();
    let mut pilot = Pilot::new(&experiment, &run, plan()).unwrap();
    let Prepared { model, params, .. } = pilot.prepared;
    let mut fleet =
        LocalFleet::new(model.clone(), params.clone(), Device::cpu(), pilot.shards.clone())
            .unwrap();
    let (recipe, layout) = (pilot.recipe.clone(), model.layout().clone());
    let trunk = Federation::new(recipe, layout, to_values(params), Seed(3)).unwrap();
    let moment = trunk.moment(&fleet);
    // Steps of ten times this are more than f32 can hold.
    pilot.recipe.server = ServerRule::Average { rate: f32::MAX };
    let against = (&Course::default(), 0.0);
    let branch = pilot.branch(&mut fleet, (0, &moment), against, &Silent).unwrap();
    let branch = branch.expect("nobody interrupts");
    assert_eq!(branch.end, End::Diverged(1));
    assert!(branch.course.scenes.is_empty());
}

#[test]
fn a_branch_that_diverged_is_told_by_that_round_and_the_score_before_it() {
    let experiment = experiment();
    let run = Run::prepare(&experiment).unwrap();
    let pilot = Pilot::new(&experiment, &run, plan()).unwrap();
    for (round, score) in [(3, Some(0.5)), (1, None)] {
        let course = course(0.3, round - 1);
        let branch = Branch { warmup: 0, course, end: End::Diverged(round) };
        let (trunk, branches) = (self::course(0.4, 4), vec![branch]);
        let measured =
            Measured { trunk, branches, kernels: Vec::new(), rounds: 6, tolerance: 0.01 };
        let advice = Advice::of(&experiment, &experiment, (&pilot, measured)).unwrap();
        let told = serde_json::to_value(&advice).unwrap();
        let candidate = &told["candidates"][0];
        let near = |value: &serde_json::Value, expected: Option<f64>| {
            let close = value.as_f64().zip(expected).map(|(one, other)| (one - other).abs() < 1e-9);
            assert_eq!(close, expected.map(|_| true), "{value} {expected:?}");
        };
        near(&candidate["score"], score);
        near(&candidate["gap"]["mean"], score.map(|_| -0.1));
        assert_eq!(candidate["finding"], serde_json::to_value(Verdict::Worse).unwrap());
        let text = advice.text(80);
        assert!(text.contains(&format!("diverged in round {round} ")), "{text}");
    }
}

#[test]
fn a_branch_is_given_up_if_it_is_behind_and_not_if_it_is_late() {
    let experiment = experiment();
    let run = Run::prepare(&experiment).unwrap();
    let pilot = Pilot::new(&experiment, &run, plan()).unwrap();
    let trunk = course(0.4, 4);
    let is_hopeless = |start: f64, until: u32| {
        let branch = Branch { warmup: 0, course: course(start, until), end: End::Horizon };
        pilot.is_hopeless(&branch, (&trunk, 0.01), until)
    };
    // Half a round behind a trunk that rises by 0.1 a round; one and a half; and ahead of it.
    assert_eq!([0.35, 0.25, 0.45].map(|start| is_hopeless(start, 2)), [false, true, false]);
    // Before its first round the trunk has no score to be behind of.
    assert!(!is_hopeless(0.0, 1));
}
