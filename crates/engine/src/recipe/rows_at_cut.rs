//! What the rows that cross a cut tell about one example, as the ledger counts it.
//!
//! A client sends a row for each token: hidden states at the first cut and, where anything below the
//! upper cut learns, gradients at the second. Each row is scaled down to a norm C and gets noise of
//! deviation sigma C from the client's secret key. Nothing is summed, so a row is a release by itself:
//!
//! ```text
//! reach      what one example moves one row by: C under add-remove, 2 C under replace
//! own rows   one example has at most L tokens and is in one batch of each epoch that is begun
//! event      Gaussian { sensitivity: reach, deviation: sigma C, count: L * epochs begun }
//! ```
//! `count` rows that move by `reach` each are one value that moves by `sqrt(count) reach`: what a client sends
//! in a round about one example, whatever the server answers in between. States and gradients have an event
//! each. Batches are shuffled, not drawn by coins, so nothing is amplified.
//!
//! **Ends that learn** ([`EndsLearn::Yes`]). A client's ends take steps on exact tokens and labels. After
//! the first step *every* row depends on every example seen before, through the weights that compute it. Then all rows of the
//! client count, with a reach of 2 C under both relations, because other examples' rows move from one place in
//! their ball to another. Where the ends stay as they are, the weights that compute a row follow from what was released, and
//! only an example's own rows depend on it.
//!
//! **Lengths.** How many sequences are in a step and how many tokens each has is plain to see and not
//! covered. An example that is absent under add-remove leaves rows of zeros in its place; one that is replaced has the
//! same length. L is a public bound (`data.max_tokens`).
//!
//! **Frames**, one by one: `Forward` and `Backward` carry rows and are these events. `Step`, the factor of
//! `work.clip`, follows from the server's own norm where the ends do not learn, and is refused where they do.
//! `Score` carries rows of test examples, which the guarantee leaves out; it is sent only with `privacy.client_scores`, and never
//! by ends that learned. `Watch`, `WatchLast`, `Trace` and `Ask` belong to measurements of blocks, which are refused beside a cut.
//! `Decode` belongs to texts that somebody writes, not to a run. Updates of the ends are refused, and losses are not told.
//!
//! **Asked again.** The gradients of a step depend on what the server answers, so the same request is a new
//! release each time: these events have no input by which a second one would count as the first.

use std::num::NonZeroU64;

use fedra_plan::{Crossing, Layout, Plan, Round, Side};
use fedra_privacy::mechanism::{GRADIENTS_AT_CUT, STATES_AT_CUT};
use fedra_privacy::{Relation, Release, Unit};

use crate::error::{EngineError, refuse};
use crate::privacy::private_steps::ClipRule;
use crate::privacy::{Privacy, PrivateSelection};
use crate::recipe::Recipe;
use crate::split::{Noise, NoiseDraw, NoiseKind, RowPrivacy, SplitConfig};
use crate::work::Work;

/// Whether the blocks that compute a client's rows learn from its examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsLearn {
    /// Only an example's own rows depend on it.
    No,
    /// All rows may depend on it.
    Yes,
}

/// The rows that one client sends.
#[derive(Clone, Copy, Debug)]
pub struct RowsAtCut {
    noise: Noise,
    norm: f64,
    sigma: f64,
    /// The most tokens of an example.
    pub longest: u64,
    relation: Relation,
    ends: EndsLearn,
}

impl RowsAtCut {
    /// The rows of a cut whose noise can be accounted; any other is refused with the reason.
    pub fn new(
        split: &SplitConfig,
        relation: Relation,
        ends: EndsLearn,
    ) -> Result<Self, EngineError> {
        let (noise, norm, sigma) = accounted(split)?;
        let RowPrivacy::Accounted { longest } = split.privacy else {
            return refuse(
                "split.noise",
                "noise that is not accounted for",
                "noise that the ledger records",
            );
        };
        Ok(Self { noise, norm, sigma, longest: u64::from(longest), relation, ends })
    }

    /// What a round of work by this plan releases about the examples of a client, each with its mechanism.
    pub fn releases(
        &self,
        plan: &Plan,
        work: &Work,
        examples: u64,
    ) -> Vec<(&'static str, Release)> {
        let Some(rows) = NonZeroU64::new(self.rows(work, examples)) else { return Vec::new() };
        let reach = match (self.ends, self.relation) {
            (EndsLearn::No, Relation::AddRemove) => 1.0,
            (EndsLearn::No, Relation::Replace) | (EndsLearn::Yes, _) => 2.0,
        };
        let release = |norm: f64| Release::Gaussian {
            sensitivity: reach * norm,
            deviation: self.sigma * norm,
            count: rows,
        };
        let crossed = plan.gradient_crossings();
        let leaves = crossed.iter().any(|at| matches!(at, Crossing::IntoClient { .. }));
        let gradients = leaves.then(|| {
            let norm = self.noise.gradient_norm.unwrap_or(self.norm);
            (GRADIENTS_AT_CUT, release(norm))
        });
        [(STATES_AT_CUT, release(self.norm))].into_iter().chain(gradients).collect()
    }

    /// The rows of a round, at one of the two places, that may depend on one example.
    fn rows(&self, work: &Work, examples: u64) -> u64 {
        let steps = work.steps(examples);
        let in_epoch = examples.div_ceil(u64::from(work.step_batch().max(1))).max(1);
        let sequences = match self.ends {
            EndsLearn::No => steps.div_ceil(in_epoch).min(u64::from(work.epochs)),
            EndsLearn::Yes => {
                let most = u64::from(work.epochs).saturating_mul(examples);
                most.min(steps.saturating_mul(u64::from(work.step_batch())))
            }
        };
        sequences.saturating_mul(self.longest)
    }
}

/// The noise of a cut with its norm and sigma, where it can be accounted.
fn accounted(split: &SplitConfig) -> Result<(Noise, f64, f64), EngineError> {
    let Some(noise) = split.noise else {
        let expected = "{ kind = \"clipped\", norm = .., sigma = .. } with [privacy]: rows would leave the client \
                        without noise";
        return refuse("split.noise", "nothing", expected);
    };
    let (norm, sigma) = match noise.kind {
        NoiseKind::Clipped { norm, sigma } => (norm, sigma),
        NoiseKind::Relative { .. } | NoiseKind::Absolute { .. } => {
            let expected = "\"clipped\": only a bounded norm bounds what a row can reveal";
            return refuse("split.noise.kind", "another kind with [privacy]", expected);
        }
    };
    if sigma < LEAST_SIGMA {
        let expected = "at least 0.01 with [privacy]";
        return refuse("split.noise.sigma", sigma, expected);
    }
    if noise.draw == NoiseDraw::Cached {
        let expected = "\"fresh\": rows change from round to round, and the same noise on two versions reveals \
                        their difference";
        return refuse("split.noise.draw", "\"cached\" with [privacy]", expected);
    }
    if !noise.gradients {
        let expected = "true: gradients would leave the client without noise";
        return refuse("split.noise.gradients", "false with [privacy]", expected);
    }
    Ok((noise, norm, sigma))
}

/// With less noise an accountant would have to look closer than it can, at an epsilon beyond all bounds.
const LEAST_SIGMA: f64 = 1e-2;

impl Recipe {
    /// Refuses a cut whose rows cannot be accounted, as far as that is known without the model.
    pub(crate) fn check_private_cut(&self, privacy: &Privacy) -> Result<(), EngineError> {
        let Some(split) = self.split.as_ref().filter(|_| privacy.guarantee.unit == Unit::Example)
        else {
            return Ok(());
        };
        accounted(split)?;
        if privacy.cap.is_some() || privacy.clipping != ClipRule::Flat {
            let expected = "neither with [split]: split.noise.norm clips each row";
            return refuse("privacy", "privacy.cap or privacy.clipping", expected);
        }
        if self.learns.needs_choice()
            && self.selection.probe.is_some()
            && privacy.selection != PrivateSelection::Public
        {
            let expected = "\"public\" with [split], or a method.selector that measures nothing: clients would \
                            measure across the cut";
            return refuse("privacy.selection", "another value", expected);
        }
        Ok(())
    }

    /// The same where the model is known: what of the ends learns, and whether that would leave.
    pub(crate) fn check_private_ends(&self, layout: &Layout) -> Result<(), EngineError> {
        let (Some(privacy), Some(split)) = (&self.privacy, &self.split) else { return Ok(()) };
        let ends = self.ends_learn(layout)?;
        RowsAtCut::new(split, privacy.guarantee.relation, ends)?;
        for plan in self.plans_of_cuts(split, layout)? {
            if !plan.uploads().is_empty() {
                let expected = "\"frozen\" or \"personal\" with [privacy]: clients would send their ends without \
                                noise";
                return refuse("split.ends", "\"shared\" ends that learn", expected);
            }
        }
        match ends {
            EndsLearn::Yes if self.work.clip.is_some() => {
                let expected = "no clipping where the client's ends learn: the scale factor would reveal the \
                                norm of their gradient";
                refuse("work.clip", "a norm with [privacy]", expected)
            }
            EndsLearn::Yes if privacy.client_scores => {
                let expected =
                    "false where the client's ends learn, because they learn without noise";
                refuse("privacy.client_scores", "true", expected)
            }
            EndsLearn::No | EndsLearn::Yes => Ok(()),
        }
    }

    /// Whether anything at the clients' side of a cut ever learns.
    pub fn ends_learn(&self, layout: &Layout) -> Result<EndsLearn, EngineError> {
        let Some(split) = &self.split else { return Ok(EndsLearn::No) };
        let learns = |plan: &Plan| !plan.trained_by(Side::Client).is_empty();
        let any = self.plans_of_cuts(split, layout)?.iter().any(learns);
        Ok(if any { EndsLearn::Yes } else { EndsLearn::No })
    }

    /// The plan of everything that may learn in some round, for each cut there is.
    fn plans_of_cuts(
        &self,
        split: &SplitConfig,
        layout: &Layout,
    ) -> Result<Vec<Plan>, EngineError> {
        let learns = self.learns.select_with(layout, &(0..layout.blocks()).collect())?;
        let kept = self.personal.select(layout)?;
        let plan = |cut| Ok(Plan::new(layout, learns.clone(), cut)?.keeping(&kept));
        split.cuts(layout.blocks())?.into_iter().map(plan).collect()
    }

    /// The rows that clients send, where a guarantee covers them.
    pub fn rows_at_cut(&self, layout: &Layout) -> Result<Option<RowsAtCut>, EngineError> {
        let (Some(privacy), Some(split)) = (&self.privacy, &self.split) else { return Ok(None) };
        RowsAtCut::new(split, privacy.guarantee.relation, self.ends_learn(layout)?).map(Some)
    }

    /// What a client's rows release in a round in which its plan is this one as far as anybody knows
    /// beforehand: of blocks that are chosen, all.
    pub fn foreseen_rows(
        &self,
        (name, round): (&str, Round),
        examples: u64,
        layout: &Layout,
    ) -> Result<Vec<(&'static str, Release)>, EngineError> {
        let Some(rows) = self.rows_at_cut(layout)? else { return Ok(Vec::new()) };
        let all = (0..layout.blocks()).collect();
        let learns = self.learns_in(round).select_with(layout, &all)?;
        let plan = self.plan((name, round), learns, layout)?;
        Ok(rows.releases(&plan, &self.work, examples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::ClientBlocks;
    use crate::work::OptimiserConfig;

    fn rows(relation: Relation, ends: EndsLearn) -> RowsAtCut {
        let kind = NoiseKind::Clipped { norm: 4.0, sigma: 0.5 };
        let noise = Noise { kind, draw: NoiseDraw::Fresh, gradients: true, gradient_norm: None };
        let privacy = RowPrivacy::Accounted { longest: 10 };
        let split = SplitConfig {
            noise: Some(noise),
            privacy,
            ..SplitConfig::new(ClientBlocks { first: 1, last: 1 })
        };
        RowsAtCut::new(&split, relation, ends).unwrap()
    }

    fn work(epochs: u32, max_steps: Option<u32>) -> Work {
        let sgd = OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 };
        Work { epochs, batch: 8, max_steps, ..Work::new(sgd) }
    }

    #[test]
    fn an_example_has_its_tokens_in_every_epoch_that_is_begun() {
        let own = rows(Relation::AddRemove, EndsLearn::No);
        // 20 examples are three batches: seven steps begin a third epoch.
        let count = |steps| own.rows(&work(3, steps), 20);
        assert_eq!(
            [count(None), count(Some(3)), count(Some(4)), count(Some(7)), count(Some(99))],
            [30, 10, 20, 30, 30]
        );
        assert_eq!(own.rows(&work(3, None), 0), 0);
    }

    #[test]
    fn rows_of_ends_that_learn_count_for_every_example() {
        let all = rows(Relation::AddRemove, EndsLearn::Yes);
        assert_eq!(all.rows(&work(3, None), 20), 600);
        assert_eq!(all.rows(&work(3, Some(2)), 20), 160);
    }
}
