//! Settings that are legal and do nothing.
//!
//! They are no mistake by themselves, since a sweep over methods or selectors keeps one table for
//! all of them, so they are told and not refused.

use fedra_engine::{Begins, Criterion, Masks, Schedule, ServerRule, USUAL_RETRIES};
use fedra_plan::Probe;
use toml::Table;

use super::checked::Experiment;
use super::privacy_table::PrivacyTable;

/// One line for each setting that changes nothing in this experiment.
pub fn idle(experiment: &Experiment) -> Vec<String> {
    let facts = [work, conditions, method, privacy, warmup, safl, predictions]
        .map(|look| look(experiment))
        .concat();
    let line = |(key, why)| format!("note: {key} does nothing here: {why}");
    facts.into_iter().map(line).collect()
}

/// A key and why it does nothing.
type Fact = (String, String);

/// Rates that are 0, from the start or from some round on.
fn work(experiment: &Experiment) -> Vec<Fact> {
    let (work, rounds) = (&experiment.recipe.work, experiment.rounds);
    let mut facts = Vec::new();
    if work.solver.rate() == 0.0 {
        facts.push(("work.optimiser".to_owned(), "its rate is 0, so no client learns".to_owned()));
    }
    match work.schedule {
        Schedule::Linear { rounds: last } | Schedule::Cosine { rounds: last } if last < rounds => {
            let from = last + 1;
            let why = format!("work.schedule takes the rate to 0, and the run has {rounds} rounds");
            facts.push((format!("training from round {from} on"), why));
        }
        Schedule::Constant | Schedule::Linear { .. } | Schedule::Cosine { .. } => {}
    }
    facts
}

/// Answers of a model that there is not, or to examples that there are not.
fn predictions(experiment: &Experiment) -> Vec<Fact> {
    let draft = &experiment.draft;
    let why = if !draft.evaluate.predictions {
        return Vec::new();
    } else if draft.method.name == "local-only" {
        "every client keeps its own model, none is global"
    } else if draft.data.shares.central == 0.0 && draft.data.test.is_none() {
        "there is no central test set (data.shares.central, data.test)"
    } else {
        return Vec::new();
    };
    vec![("evaluate.predictions".to_owned(), why.to_owned())]
}

/// Bad luck that cannot strike, and repetitions that nothing asks for.
fn conditions(experiment: &Experiment) -> Vec<Fact> {
    let (recipe, rounds) = (&experiment.recipe, experiment.rounds);
    let conditions = &recipe.conditions;
    let mut facts = Vec::new();
    if conditions.slow.share > 0.0 && conditions.close_with.is_none() {
        let why = "without conditions.close_with a round waits for everybody";
        facts.push(("conditions.slow".to_owned(), why.to_owned()));
    }
    for (name, away) in &conditions.away {
        for one in away.iter().filter(|one| one.from > rounds) {
            let key = format!("conditions.away of {name:?} from round {}", one.from);
            facts.push((key, format!("the run has {rounds} rounds")));
        }
    }
    if recipe.min_arrivals.of(0) == 0 && recipe.retries != USUAL_RETRIES {
        let why = "federation.min_arrivals = 0 lets every round pass";
        facts.push(("federation.retries".to_owned(), why.to_owned()));
    }
    facts
}

/// A server that does not move.
fn method(experiment: &Experiment) -> Vec<Fact> {
    let mut facts = Vec::new();
    let rate = match experiment.recipe.server {
        ServerRule::Average { rate }
        | ServerRule::Momentum { rate, .. }
        | ServerRule::Adaptive { rate, .. } => Some(rate),
        ServerRule::Dynamic { .. } => None,
    };
    if rate == Some(0.0) {
        let why = "its rate is 0, so the model never changes";
        facts.push(("the server".to_owned(), why.to_owned()));
    }
    facts
}

/// A norm of gradients where rows are clipped instead.
fn privacy(experiment: &Experiment) -> Vec<Fact> {
    let draft = &experiment.draft;
    let clip = draft.privacy.as_ref().map(|table| table.clip);
    let given = clip.is_some_and(|clip| clip != PrivacyTable::default().clip);
    if !given || draft.split.is_none() {
        return Vec::new();
    }
    let why = "beside [split] rows are clipped, to split.noise.norm";
    vec![("privacy.clip".to_owned(), why.to_owned())]
}

/// A second stage that the run does not live to see.
fn warmup(experiment: &Experiment) -> Vec<Fact> {
    let rounds = experiment.rounds;
    match experiment.recipe.stage.as_ref().map(|stage| stage.begins) {
        Some(Begins::At(round)) if round.0 >= rounds => {
            let why = format!("it begins after {} rounds, and the run has {rounds}", round.0);
            vec![("the second stage of fedfrozen".to_owned(), why)]
        }
        Some(Begins::At(_) | Begins::Share(_) | Begins::Evidence(_) | Begins::ByBlock(_))
        | None => Vec::new(),
    }
}

/// Settings of SAFL that its selector does not look at.
fn safl(experiment: &Experiment) -> Vec<Fact> {
    let Some((table, settings)) = safl_table(experiment) else { return Vec::new() };
    let recipe = &experiment.recipe;
    let selection = &recipe.selection;
    let watches = recipe.work.head_probe.is_some();
    let attends = matches!(selection.probe, Some(Probe::Attention { .. })) || watches;
    let measures = selection.probe.is_some();
    let draws = matches!(selection.criterion, Criterion::Random | Criterion::RandomFixed);
    let own_masks = measures || draws || selection.explore > 0;
    let consensus = recipe.masks == Masks::Consensus;
    let looks = measures || watches;
    let unmeasured = "with this selector clients measure nothing";
    let once = if measures { "the choice settles with the first measurement" } else { unmeasured };
    let facts = [
        ("relevant", attends, "this selector does not look at attention"),
        ("side", attends, "this selector does not look at attention"),
        ("profile_every", measures && selection.settle != Some(1), once),
        ("profile_examples", looks, unmeasured),
        ("settle", measures, unmeasured),
        ("mask", own_masks || consensus, "this selector takes the same blocks at every client"),
    ];
    let idle = facts.into_iter().filter(|(key, works, _)| !works && settings.contains_key(*key));
    idle.map(|(key, _, why)| (format!("{table}.{key}"), why.to_owned())).collect()
}

/// SAFL's table and its name, if it is the method or lies beneath it.
pub fn safl_table(experiment: &Experiment) -> Option<(&'static str, &Table)> {
    let method = &experiment.draft.method;
    if method.name == "safl" {
        return Some(("method", &method.settings));
    }
    let base = method.settings.get("base")?.as_table()?;
    (base.get("name")?.as_str() == Some("safl")).then_some(("method.base", base))
}
