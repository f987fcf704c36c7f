//! Settings of SAFL that are legal and do nothing.
//!
//! They are no mistake by themselves, since a sweep over selectors keeps one table for all of them,
//! so they are told and not refused.

use fedra_engine::{Criterion, Masks};
use fedra_plan::{Probe, Round, Selector};
use toml::Table;

use super::Experiment;

/// One line for each setting that changes nothing in this experiment.
pub fn idle(experiment: &Experiment) -> Vec<String> {
    let Some((table, settings)) = safl(experiment) else { return Vec::new() };
    let recipe = &experiment.recipe;
    let selection = &recipe.selection;
    let probe = recipe.learns.probe(Round(experiment.rounds.saturating_sub(1)));
    let watches = recipe.work.watch.is_some();
    let attends = matches!(probe, Probe::Attention { .. }) || watches;
    let measures = probe.asks_clients();
    let races = selection.criterion == Criterion::Race;
    let draws = matches!(selection.criterion, Criterion::Random | Criterion::RandomFixed);
    let own_masks = measures || draws || selection.explore > 0;
    let consensus = recipe.masks == Masks::Consensus;
    let looks = measures || races || watches;
    let unmeasured = "with this selector clients measure nothing";
    let once = if measures { "the choice settles with the first measurement" } else { unmeasured };
    let facts = [
        ("relevant", attends, "this selector does not look at attention"),
        ("side", attends, "this selector does not look at attention"),
        ("profile_every", measures && selection.settle != Some(1), once),
        ("profile_examples", looks, unmeasured),
        ("settle", measures, unmeasured),
        ("trial", races, "only the selector \"race\" has rounds of trial"),
        ("mask", own_masks || consensus, "this selector takes the same blocks at every client"),
    ];
    let idle = facts.into_iter().filter(|(key, works, _)| !works && settings.contains_key(*key));
    idle.map(|(key, _, why)| format!("note: {table}.{key} does nothing here: {why}")).collect()
}

/// The name of SAFL's table, if it is the method or lies beneath it.
pub fn safl_table(experiment: &Experiment) -> Option<&'static str> {
    safl(experiment).map(|(table, _)| table)
}

/// SAFL's table and its name, if it is the method or lies beneath it.
fn safl(experiment: &Experiment) -> Option<(&'static str, &Table)> {
    let method = &experiment.draft.method;
    if method.name == "safl" {
        return Some(("method", &method.settings));
    }
    let base = method.settings.get("base")?.as_table()?;
    (base.get("name")?.as_str() == Some("safl")).then_some(("method.base", base))
}
