//! Settings that are legal and do nothing.
//!
//! They are no mistake by themselves, since a sweep over methods or selectors keeps one table for
//! all of them, so they are told and not refused.

use fedra_engine::{Begins, Criterion, Masks, RateWarmup, ServerRule, USUAL_RETRIES};
use fedra_plan::Probe;
use toml::Table;

use super::checked::Experiment;
use super::privacy_table::PrivacyTable;

/// One line for each setting that changes nothing in this experiment.
pub fn unused_settings(experiment: &Experiment) -> Vec<String> {
    let Experiment { recipe, rounds, raw, .. } = experiment;
    let mut lines = Vec::new();
    let mut unused = |holds: bool, key: &str, why: &str| {
        if holds {
            lines.push(format!("note: {key} has no effect here: {why}"));
        }
    };
    let still = recipe.work.solver.rate() == 0.0;
    unused(still, "work.optimiser", "its rate is 0, so no client learns");
    let rises = raw.work.warmup != RateWarmup::default() && recipe.work.max_steps == Some(1);
    let why =
        "work.warmup begins with the rate 0, and work.max_steps = 1 leaves this round one step";
    unused(rises, "the first round", why);
    // Bad luck that cannot strike, and repetitions that nothing asks for.
    let conditions = &recipe.conditions;
    let waits = conditions.slow.share > 0.0 && conditions.close_with.is_none();
    unused(waits, "conditions.slow", "without conditions.close_with a round waits for all clients");
    for (name, away) in &conditions.away {
        for one in away {
            let key = format!("conditions.away of {name:?} from round {}", one.from);
            unused(one.from > *rounds, &key, &format!("the run has {rounds} rounds"));
        }
    }
    let passes = recipe.min_arrivals.of(0) == 0 && recipe.retries != USUAL_RETRIES;
    unused(passes, "federation.retries", "with federation.min_arrivals = 0 every round counts");
    let still = matches!(
        recipe.server,
        ServerRule::Average { rate: 0.0 }
            | ServerRule::Momentum { rate: 0.0, .. }
            | ServerRule::Adaptive { rate: 0.0, .. }
    );
    unused(still, "the server", "its rate is 0, so the model never changes");
    let usual = PrivacyTable::default().clip;
    let clips = raw.split.is_some() && raw.privacy.as_ref().is_some_and(|it| it.clip != usual);
    unused(clips, "privacy.clip", "with [split], rows are clipped to split.noise.norm");
    if let Some(Begins::At(round)) = recipe.stage.as_ref().map(|stage| stage.begins) {
        let why = format!("it starts after {} rounds, and the run has {rounds}", round.0);
        unused(round.0 >= *rounds, "the second stage of fedfrozen", &why);
    }
    safl(experiment, &mut unused);
    let (asked, alone) = (raw.evaluate.predictions, raw.method.name == "local-only");
    let why = "every client keeps its own model, so there is no global model";
    unused(asked && alone, "evaluate.predictions", why);
    let untested = raw.data.shares.central == 0.0 && raw.data.test.is_none();
    let why = "there is no central test set (data.shares.central, data.test)";
    unused(asked && !alone && untested, "evaluate.predictions", why);
    lines
}

/// Settings of SAFL that its selector does not look at.
fn safl(experiment: &Experiment, unused: &mut dyn FnMut(bool, &str, &str)) {
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
        unused(!works && settings.contains_key(key), &format!("{table}.{key}"), why);
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
