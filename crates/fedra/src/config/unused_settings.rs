//! Settings that are legal and do nothing.
//!
//! They are no mistake by themselves, since a sweep over methods or selectors keeps one table for
//! all of them, so they are told and not refused.

use std::fmt::Display;

use fedra_engine::{Begins, Criterion, Masks, Schedule, ServerRule, USUAL_RETRIES};
use fedra_plan::Probe;
use toml::Table;

use super::checked::Experiment;
use super::privacy_table::PrivacyTable;

/// One line for each setting that changes nothing in this experiment.
pub fn unused_settings(experiment: &Experiment) -> Vec<String> {
    let mut unused = Unused(Vec::new());
    for look in [work, conditions, method, privacy, stage, safl, predictions] {
        look(experiment, &mut unused);
    }
    unused.0
}

/// The lines so far.
struct Unused(Vec<String>);

impl Unused {
    fn add(&mut self, key: impl Display, why: impl Display) {
        self.0.push(format!("note: {key} has no effect here: {why}"));
    }
}

/// Rates that are 0, from the start or from some round on.
fn work(experiment: &Experiment, unused: &mut Unused) {
    let (work, rounds) = (&experiment.recipe.work, experiment.rounds);
    if work.solver.rate() == 0.0 {
        unused.add("work.optimiser", "its rate is 0, so no client learns");
    }
    if let Schedule::Linear { rounds: last } | Schedule::Cosine { rounds: last } = work.schedule
        && last < rounds
    {
        let why = format!("work.schedule lowers the rate to 0, and the run has {rounds} rounds");
        unused.add(format_args!("training from round {} on", last + 1), why);
    }
}

/// Answers of a model that there is not, or to examples that there are not.
fn predictions(experiment: &Experiment, unused: &mut Unused) {
    let raw = &experiment.raw;
    if !raw.evaluate.predictions {
        return;
    }
    if raw.method.name == "local-only" {
        unused.add(
            "evaluate.predictions",
            "every client keeps its own model, so there is no global model",
        );
    } else if raw.data.shares.central == 0.0 && raw.data.test.is_none() {
        let why = "there is no central test set (data.shares.central, data.test)";
        unused.add("evaluate.predictions", why);
    }
}

/// Bad luck that cannot strike, and repetitions that nothing asks for.
fn conditions(experiment: &Experiment, unused: &mut Unused) {
    let (recipe, rounds) = (&experiment.recipe, experiment.rounds);
    let conditions = &recipe.conditions;
    if conditions.slow.share > 0.0 && conditions.close_with.is_none() {
        let why = "without conditions.close_with a round waits for all clients";
        unused.add("conditions.slow", why);
    }
    for (name, away) in &conditions.away {
        for one in away.iter().filter(|one| one.from > rounds) {
            let key = format!("conditions.away of {name:?} from round {}", one.from);
            unused.add(key, format_args!("the run has {rounds} rounds"));
        }
    }
    if recipe.min_arrivals.of(0) == 0 && recipe.retries != USUAL_RETRIES {
        unused.add("federation.retries", "with federation.min_arrivals = 0 every round counts");
    }
}

/// A server that does not move.
fn method(experiment: &Experiment, unused: &mut Unused) {
    if let ServerRule::Average { rate: 0.0 }
    | ServerRule::Momentum { rate: 0.0, .. }
    | ServerRule::Adaptive { rate: 0.0, .. } = experiment.recipe.server
    {
        unused.add("the server", "its rate is 0, so the model never changes");
    }
}

/// A norm of gradients where rows are clipped instead.
fn privacy(experiment: &Experiment, unused: &mut Unused) {
    let raw = &experiment.raw;
    let clip = raw.privacy.as_ref().map(|table| table.clip);
    let given = clip.is_some_and(|clip| clip != PrivacyTable::default().clip);
    if given && raw.split.is_some() {
        unused.add("privacy.clip", "with [split], rows are clipped to split.noise.norm");
    }
}

/// A second stage that the run does not live to see.
fn stage(experiment: &Experiment, unused: &mut Unused) {
    let rounds = experiment.rounds;
    if let Some(Begins::At(round)) = experiment.recipe.stage.as_ref().map(|stage| stage.begins)
        && round.0 >= rounds
    {
        let why = format!("it starts after {} rounds, and the run has {rounds}", round.0);
        unused.add("the second stage of fedfrozen", why);
    }
}

/// Settings of SAFL that its selector does not look at.
fn safl(experiment: &Experiment, unused: &mut Unused) {
    let Some((table, settings)) = safl_table(experiment) else { return };
    let recipe = &experiment.recipe;
    let selection = &recipe.selection;
    let watches = recipe.work.head_probe.is_some();
    let attends = matches!(selection.probe, Some(Probe::Attention { .. })) || watches;
    let measures = selection.probe.is_some();
    let draws = matches!(selection.criterion, Criterion::Random | Criterion::RandomFixed);
    let own_masks = measures || draws || selection.explore > 0;
    let consensus = recipe.masks == Masks::Consensus;
    let looks = measures || watches;
    let unmeasured = "clients measure nothing with this selector";
    let once = if measures { "the choice settles with the first measurement" } else { unmeasured };
    for (key, works, why) in [
        ("relevant", attends, "this selector does not use attention"),
        ("side", attends, "this selector does not use attention"),
        ("profile_every", measures && selection.settle != Some(1), once),
        ("profile_examples", looks, unmeasured),
        ("settle", measures, unmeasured),
        ("mask", own_masks || consensus, "this selector chooses the same blocks at every client"),
    ] {
        if !works && settings.contains_key(key) {
            unused.add(format_args!("{table}.{key}"), why);
        }
    }
}

/// SAFL's table and its name, if it is the method or lies beneath it.
pub fn safl_table(experiment: &Experiment) -> Option<(&'static str, &Table)> {
    let method = &experiment.raw.method;
    if method.name == "safl" {
        return Some(("method", &method.settings));
    }
    let base = method.settings.get("base")?.as_table()?;
    (base.get("name")?.as_str() == Some("safl")).then_some(("method.base", base))
}
