//! Methods: those that keep nothing, measure, forget, correct, personalise, adapt and try again.

use std::collections::BTreeSet;

use fedra_engine::{
    ClassWeights, Encoding, MinArrivals, MomentsLife, RateDecay, RateWarmup, Recipe, Schedule, Work,
};
use fedra_plan::{Role, Rule};
use fedra_wire::ParamValues;

use crate::deployment::{Clients, Deployment};
use crate::noted::{Call, Trained};
use crate::outcome::Outcome;
use crate::world::{World, bits, recipe};

const ROUNDS: u32 = 3;

fn run(deployment: &dyn Deployment, recipe: &Recipe) -> Outcome {
    let clients = Clients::new(World::new(3));
    Outcome::of((deployment, &clients), (recipe, ROUNDS), |_, _| {})
}

pub fn fedavg(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("fedavg", "{}", |recipe| recipe.evaluation.attention = true);
    let outcome = run(deployment, &recipe);
    for report in &outcome.reports {
        assert_eq!((report.arrived.len(), report.scores.len()), (3, 3), "{report:?}");
    }
    outcome
}

/// The first hospital trains both blocks and the others one of their own: no two scopes need be alike.
pub fn safl_per_client(deployment: &dyn Deployment) -> Outcome {
    let settings = r#"{"k": {"default": 1, "hospital-1": 2}, "mask": "per_client"}"#;
    let outcome = run(deployment, &recipe("safl", settings, |_| {}));
    for trained in outcome.calls.iter().filter_map(Call::trained) {
        let lengths: BTreeSet<usize> = trained.values().map(|it| it.uploads.len()).collect();
        assert!(lengths.len() > 1, "expected ragged scopes, found {lengths:?}");
    }
    assert!(outcome.calls.iter().any(|call| matches!(call, Call::Probe(all) if all.len() == 3)));
    outcome
}

pub fn fedfrozen(deployment: &dyn Deployment) -> Outcome {
    let settings = r#"{"warmup": 1}"#;
    let frozen = recipe("fedfrozen", settings, |recipe| recipe.evaluation.attention = true);
    let outcome = run(deployment, &frozen);
    let still = |model: &ParamValues| {
        let ids = Rule::Roles([Role::Query, Role::Key].into());
        let layout = World::new(3).model.layout().clone();
        bits(&model.subset(&ids.select(&layout).unwrap()))
    };
    assert!(still(&outcome.models[0]) == still(&outcome.models[2]), "query and key are frozen");
    assert!(bits(&outcome.models[0]) != bits(&outcome.models[2]));
    outcome
}

/// The control that freezes nothing: clients of SCAFFOLD forget their corrections, and everything continues
/// learning, so that who remembers them shows.
pub fn forgetting(deployment: &dyn Deployment) -> Outcome {
    let settings = r#"{"warmup": 1, "freeze": "none", "base": {"name": "scaffold"}}"#;
    let outcome = run(deployment, &recipe("fedfrozen", settings, |_| {}));
    assert!(outcome.calls.iter().any(|call| matches!(call, Call::Forget(_))));
    outcome
}

pub fn scaffold(deployment: &dyn Deployment) -> Outcome {
    let outcome = run(deployment, &recipe("scaffold", "{}", |_| {}));
    for trained in outcome.calls.iter().filter_map(Call::trained) {
        let corrected = |it: &Trained| matches!(it.answer, Ok((_, Some(_), _)));
        assert!(trained.values().all(corrected), "expected corrections, found {trained:?}");
    }
    outcome
}

pub fn fedper(deployment: &dyn Deployment) -> Outcome {
    run(deployment, &recipe("fedper", "{}", |_| {}))
}

pub fn fedbabu(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("fedbabu", "{}", |_| {});
    assert!(recipe.adapt.is_some());
    run(deployment, &recipe)
}

/// Many attempts have too few answers and are taken back.
pub fn feddyn(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("feddyn", "{}", |recipe| {
        recipe.conditions.fail = 0.3;
        recipe.min_arrivals = MinArrivals::Count(3);
        recipe.retries = 200;
    });
    let outcome = run(deployment, &recipe);
    assert!(outcome.calls.iter().any(|call| matches!(call, Call::Revoke(_))));
    outcome
}

/// Values go down in a byte each and a tenth of the changes come up; clients keep the rest for later.
pub fn lossy(deployment: &dyn Deployment) -> Outcome {
    let sparse = |feedback| {
        recipe("fedavg", "{}", |recipe| {
            recipe.work.download = Encoding::Int8 { feedback: false };
            recipe.work.encoding = Encoding::TopK { share: 0.1, feedback };
        })
    };
    let outcome = run(deployment, &sparse(true));
    let without = run(&crate::OneProcess, &sparse(false));
    assert!(outcome.models[0] == without.models[0], "nothing is kept before the first round");
    assert!(outcome.models[1] != without.models[1], "residuals have to show");
    outcome
}

/// Everything in `[work]` that people expect of a trainer, at once: what a client is to do has to arrive, and
/// what it keeps has to stay.
pub fn trainer_settings(deployment: &dyn Deployment) -> Outcome {
    let settings = recipe("fedprox", r#"{"mu": 0.1}"#, |recipe| {
        recipe.work = Work {
            batch: 4,
            accumulate: 2,
            schedule: Schedule::over(RateDecay::Cosine, RateWarmup::Share(0.25), ROUNDS),
            moments: MomentsLife::Kept,
            class_weights: Some(ClassWeights::ByLabel([("O".to_owned(), 0.25)].into())),
            label_smoothing: 0.1,
            dropout: 0.1,
            clip: Some(1.0),
            ..recipe.work.clone()
        };
    });
    let outcome = run(deployment, &settings);
    let fresh = recipe("fedprox", r#"{"mu": 0.1}"#, |recipe| {
        recipe.work = Work { moments: MomentsLife::Fresh, ..settings.work.clone() };
    });
    let without = run(deployment, &fresh);
    assert!(bits(&outcome.models[0]) == bits(&without.models[0]), "the first round knows no other");
    assert!(bits(&outcome.models[1]) != bits(&without.models[1]), "moments live on");
    outcome
}
