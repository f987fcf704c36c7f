//! What clients learn and keep in the course of a run, without its bytes: all that a run has to know of its
//! rounds before the first.
//!
//! Rounds are gone through until nothing new can come of them, which depends on the clients and not on how
//! many rounds there are.

use std::collections::BTreeSet;

use fedra_engine::{ClientId, Recipe, Sampler};
use fedra_plan::{Plan, Rule};

use crate::config::Experiment;
use crate::error::Result;
use crate::forecast::state_placement::StatePlacement;
use crate::forecast::state_size::StateSize;
use crate::forecast::traffic::choices::{Foreseen, ForeseenChoices, Overlap};
use crate::forecast::traffic::course::{Course, Setting};
use crate::prepare::prepared::Prepared;

/// What is learnt, by whom, and the most that is kept.
#[derive(Debug, Default)]
pub struct Stages {
    /// The plan of the first client, from the round in which its part begins to learn.
    pub plans: Vec<(u32, Plan)>,
    /// Rounds that were gone through.
    pub visited: u32,
    /// Everybody who takes part in a round.
    drawn: BTreeSet<ClientId>,
    /// The most that any of them keeps.
    most: StateSize,
    last_rule: Option<Rule>,
}

impl Stages {
    /// Looks at as many rounds as can tell something new.
    pub fn of(setting: Setting<'_>) -> Result<Self> {
        let course = Course::of(setting);
        let (mut stages, mut guess) = (Self::default(), ForeseenChoices::new(Overlap::Most));
        for stretch in course.stretches() {
            let mut missing = course.here(stretch.start);
            for number in stretch {
                let (rule, drawn) = course.round(number);
                missing.retain(|client| drawn.binary_search(client).is_err());
                let foreseen = guess.round(
                    &course.choice(&rule, number),
                    &course.infos(&drawn),
                    &course.clients,
                )?;
                let is_known = missing.is_empty() && is_alike(setting.2, &rule);
                stages.note(setting, (number, rule), (drawn, &foreseen));
                if is_known {
                    break;
                }
            }
        }
        Ok(stages)
    }

    /// Takes note of a round.
    pub(super) fn note(
        &mut self,
        (experiment, prepared, recipe): Setting<'_>,
        (number, rule): (u32, Rule),
        (drawn, foreseen): (Vec<ClientId>, &Foreseen),
    ) {
        self.visited += 1;
        self.drawn.extend(drawn);
        // Blocks that one rule changes from round to round are one stage: their number does not change.
        let same_rule = rule.needs_choice() && self.last_rule.as_ref() == Some(&rule);
        // Neighbours mostly learn the same: each part is looked at once.
        let mut before = None;
        for plan in foreseen.plans.values() {
            if before.replace(plan.learns()) != Some(plan.learns()) {
                let kept = StateSize::of(&prepared.model, (recipe, experiment), plan);
                self.most = self.most.max_by_bytes(kept);
            }
        }
        if let Some(plan) = foreseen.plans.values().next()
            && self.plans.last().is_none_or(|(_, last)| last.learns() != plan.learns())
            && !same_rule
        {
            self.plans.push((number, plan.clone()));
        }
        self.last_rule = Some(rule);
    }

    /// What is kept by those who take part.
    pub fn placement(&self, experiment: &Experiment, prepared: &Prepared) -> StatePlacement {
        let clients = prepared.shards.clients.len();
        StatePlacement::new(experiment, self.most, (self.drawn.len(), clients))
    }
}

/// Whether the first client of a round tells the same stage as that of any other round of a stretch: it is
/// always the same client, or all are alike, or chosen blocks are one stage anyway.
fn is_alike(recipe: &Recipe, rule: &Rule) -> bool {
    let no_own_cut = recipe.split.as_ref().is_none_or(|split| split.clients.is_empty());
    recipe.sampler == Sampler::All
        || rule.needs_choice()
        || (recipe.depths.is_empty() && no_own_cut)
}
