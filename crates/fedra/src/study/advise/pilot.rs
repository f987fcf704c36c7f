//! The rounds behind the advice: a trunk, its branches, and what the kernel of each round is worth.
//!
//! A branch continues from a moment of the trunk by the recipe that a run with that warm-up has, so it
//! *is* that run, to the bit, at the price of its second stage alone. Test examples are dropped before
//! the fleet is made: whoever looks for them finds none.

use std::collections::BTreeMap;
use std::path::Path;

use fedra_client::{Examples, LocalFleet, Shards, to_values};
use fedra_compute::Device;
use fedra_engine::{
    Bytes, ClientId, EngineError, EvaluationRequest, EvaluationSet, Federation, Fleet, Moment,
    ParamValues, Recipe, RoleDrift, RoleGroup, RoundReport, SetScores, Sink,
};
use fedra_plan::{Role, Round, Scope};
use serde::Serialize;

use super::decision::{Gap, Paired};
use super::pilot_plan::PilotPlan;
use crate::config::{ConfigError, Experiment};
use crate::error::{Context, Result};
use crate::forecast::state_placement::StatePlacement;
use crate::forecast::traffic::Forecast;
use crate::forecast::traffic::choices::Overlap;
use crate::listener::{Event, Finishes, Heard, Listener, Rounds};
use crate::prepare::prepared::Prepared;
use crate::run::federate::Run;
use crate::text::grid::counted;
use crate::text::headline::headline_of;

/// The most that may be given up, as a share of what the trunk gained.
const TOLERABLE: f64 = 0.1;

/// A pilot that is ready to start.
pub struct Pilot<'e> {
    experiment: &'e Experiment,
    prepared: &'e Prepared,
    device: &'e Device,
    recipe: Recipe,
    shards: Shards,
    /// What is tried.
    pub plan: PilotPlan,
}

/// What a pilot measured.
pub struct Measured {
    /// The method beneath.
    pub trunk: Course,
    /// One for each warm-up, in order.
    pub branches: Vec<Branch>,
    /// One for each round of the trunk, from none.
    pub kernels: Vec<Kernel>,
    /// Rounds that were trained.
    pub rounds: u64,
    /// How much score may be given up: as asked, but no more than a tenth of what the trunk gained.
    /// Where the trunk learnt nothing it is 0, so that no branch counts as as good: scores that say
    /// nothing about the trunk say nothing about freezing either.
    pub tolerance: f64,
}

/// What became of one warm-up.
pub struct Branch {
    /// W.
    pub warmup: u32,
    /// Its rounds.
    pub course: Course,
    /// How it ended.
    pub end: End,
}

/// How a branch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// In the last round.
    Horizon,
    /// It was clearly behind after so many rounds and given up.
    Behind(u32),
    /// It left the finite numbers in this round, counted from 1; the rounds before it were scored.
    Diverged(u32),
}

impl End {
    /// The last round, counted from 1, after which the branch has a score; none is 0.
    pub const fn last_scored(self, horizon: u32) -> u32 {
        match self {
            Self::Horizon => horizon,
            Self::Behind(round) => round,
            Self::Diverged(round) => round.saturating_sub(1),
        }
    }
}

/// Scores by the number of complete rounds.
#[derive(Default)]
pub struct Course {
    scenes: BTreeMap<u32, Scene>,
    /// The name of the score.
    pub score: Option<&'static str>,
    kernels: Vec<Drifting>,
}

/// What the clients' validation examples say after a round.
struct Scene {
    mean: f64,
    each: BTreeMap<ClientId, (f64, f64)>,
}

/// What is known about the kernel (query and key) after so many rounds of the trunk.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kernel {
    /// The rounds.
    pub warmup: u32,
    /// Validation loss of the trunk's last model with this kernel put back.
    pub loss: f64,
    /// What that lost, as a share of all that the trunk gained; `None` when it gained nothing.
    pub bias: Option<f64>,
    /// Query and key in the round that follows.
    pub next: Option<Drifting>,
}

/// How far clients went apart in query and key.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Drifting {
    /// As [`RoleDrift::drift`].
    pub drift: f64,
    /// As [`RoleDrift::disagreement`].
    pub disagreement: f64,
    /// The share of the mean change that clients that agree on nothing would produce.
    pub noise: f64,
}

impl<'e> Pilot<'e> {
    /// Refuses an experiment without validation examples.
    pub fn new(experiment: &'e Experiment, run: &'e Run, plan: PilotPlan) -> Result<Self> {
        let Run { prepared, recipe, device, .. } = run;
        let mut shards = prepared.shards.clone();
        shards.central_test = Examples::default();
        for client in &mut shards.clients {
            client.test = Examples::default();
        }
        let expected = "above 0: the pilot uses only validation examples";
        ConfigError::new("data.shares.validation", "no validation example at any client", expected)
            .when(shards.clients.iter().all(|shard| shard.validation.is_empty()))?;
        let mut recipe = recipe.clone();
        recipe.evaluation.on = vec![EvaluationSet::ClientValidation];
        recipe.evaluation.every = 1;
        Ok(Self { experiment, prepared, device, recipe, shards, plan })
    }

    /// What is about to happen and what it costs.
    pub fn introduction(&self) -> String {
        let PilotPlan { horizon, warmups, .. } = &self.plan;
        let from: Vec<String> = warmups.iter().map(u32::to_string).collect();
        let validating: Vec<usize> =
            self.shards.clients.iter().map(|shard| shard.validation.len()).collect();
        let examples: usize = validating.iter().sum();
        let clients = validating.iter().filter(|examples| **examples > 0).count();
        let cost = self.plan.cost();
        format!(
            "a trunk of {horizon} rounds, and branches that freeze after {} of them: at most {cost} \
             rounds of training,\n{:.1} times the run; compared on {} of {}, without test examples",
            from.join(", "),
            cost as f64 / f64::from(self.experiment.rounds),
            counted(examples as u64, "validation example"),
            counted(clients as u64, "client"),
        )
    }

    /// What a whole run with this warm-up sends; `None` is a run that never freezes.
    pub fn bytes(&self, warmup: Option<u32>) -> Result<Bytes> {
        let recipe = self.freezing_at(warmup.unwrap_or(self.experiment.rounds))?;
        let setting = (self.experiment, self.prepared, &recipe);
        Ok(Forecast::of(setting, Overlap::Most)?.total())
    }

    fn freezing_at(&self, warmup: u32) -> Result<Recipe> {
        let recipe = self.recipe.clone().with_stage_at(Round(warmup));
        recipe.context("the method has no second stage")
    }

    /// Trunk, branches, kernels; `None` when interrupted. What clients keep lies in the file, if there is one.
    pub fn run(
        &self,
        listener: &dyn Listener,
        scratch: Option<(&StatePlacement, &Path)>,
    ) -> Result<Option<Measured>> {
        let Prepared { model, params, base, .. } = self.prepared;
        let PilotPlan { horizon, warmups, .. } = &self.plan;
        let kernel = Scope::of_roles(model.layout(), [Role::Query, Role::Key]);
        let initial = to_values(params);
        let mut fleet = LocalFleet::new(
            model.clone(),
            params.clone(),
            self.device.clone(),
            self.shards.clone(),
        )?
        .with_depths(&self.recipe.depths)?
        .with_ranks(&self.recipe.ranks)?;
        if let Some((placement, file)) = scratch {
            fleet = placement.furnish(fleet, file)?;
        }
        let clients = &fleet.clients().to_vec()[..];
        let begin = |label: &str, title: &str, done: u32| {
            let (cohort, finishes, title) = (clients.len() as u64, Finishes::Step, Some(title));
            let (rounds, layout) = (*horizon, model.layout());
            listener.begin(&Rounds {
                label,
                title,
                done,
                rounds,
                clients,
                cohort,
                finishes,
                layout,
            })
        };
        let seed = self.experiment.seed;
        let (recipe, layout) = (self.recipe.clone(), model.layout().clone());
        let base = base.iter().map(|(id, _)| id).collect();
        let mut federation = Federation::over(recipe, layout, initial.clone(), (base, seed))?;
        let untrained = self.validate(&mut fleet, &initial)?;

        let (mut trunk, mut moments) = (Course::default(), BTreeMap::<u32, Moment>::new());
        let mut kernels = vec![initial.subset(&kernel)];
        let (mut heard, stops) = (Heard(listener), || listener.stops());
        fleet.observer = begin("trunk", "the trunk: everything learns", 0);
        for done in 0..*horizon {
            if warmups.contains(&done) {
                moments.insert(done, federation.moment(&fleet));
            }
            let sinks: &mut [&mut dyn Sink] = &mut [&mut trunk, &mut heard];
            federation.run(&mut fleet, sinks, done + 1, &stops)?;
            if federation.completed().0 <= done {
                return Ok(None);
            }
            kernels.push(federation.model().subset(&kernel));
        }
        listener.hear(Event::End);
        let models = (&untrained, federation.model());
        let kernels = match self.weigh(&mut fleet, models, &kernels, &trunk) {
            Err(error) if error.is_stop() => return Ok(None),
            weighed => weighed?,
        };
        let gained = trunk.mean(*horizon, self.plan.window()).zip(headline_of(&untrained.mean));
        let gained = gained.map_or(0.0, |(last, (_, first))| last - first);
        let tolerance = self.plan.tolerance.min(gained.max(0.0) * TOLERABLE);

        let (mut branches, mut rounds) = (Vec::new(), u64::from(*horizon));
        for (warmup, moment) in moments {
            let title = format!("the branch that froze after {warmup} rounds");
            fleet.observer = begin(&format!("freeze at {warmup}"), &title, warmup);
            let against = (&trunk, tolerance);
            let branch = self.branch(&mut fleet, (warmup, &moment), against, listener)?;
            listener.hear(Event::End);
            let Some(branch) = branch else { return Ok(None) };
            rounds += branch.course.scenes.len() as u64;
            branches.push(branch);
        }
        Ok(Some(Measured { trunk, branches, kernels, rounds, tolerance }))
    }

    /// Follows one branch, and looks half-way whether it is worth it; `None` when interrupted.
    fn branch(
        &self,
        fleet: &mut LocalFleet,
        (warmup, moment): (u32, &Moment),
        (trunk, tolerance): (&Course, f64),
        listener: &dyn Listener,
    ) -> Result<Option<Branch>> {
        let horizon = self.plan.horizon;
        let mut federation = moment.branch(self.freezing_at(warmup)?, fleet)?;
        let mut branch = Branch { warmup, course: Course::default(), end: End::Horizon };
        for until in [self.plan.middle(), horizon].into_iter().filter(|until| *until > warmup) {
            let sinks: &mut [&mut dyn Sink] = &mut [&mut branch.course, &mut Heard(listener)];
            if let Err(error) = federation.run(fleet, sinks, until, &|| listener.stops()) {
                let Some(round) = error.diverged_in() else { return Err(error.into()) };
                branch.end = End::Diverged(round);
                break;
            }
            if federation.completed().0 < until {
                return Ok(None);
            }
            if until < horizon && self.is_hopeless(&branch, (trunk, tolerance), until) {
                branch.end = End::Behind(until);
                break;
            }
        }
        Ok(Some(branch))
    }

    /// Whether a branch is clearly behind the trunk, and not merely late: behind where the trunk is
    /// and behind where it was some rounds before. While scores still rise steeply, a kernel that
    /// stands still may cost a round and nothing in the end.
    fn is_hopeless(&self, branch: &Branch, (trunk, tolerance): (&Course, f64), until: u32) -> bool {
        [0, self.plan.window()].into_iter().all(|before| {
            let gap = self.gap(branch, (trunk, before), until);
            gap.is_some_and(|gap| gap.is_clearly_behind(tolerance))
        })
    }

    /// How a branch compares, over the last rounds up to one, with the trunk as it was so many rounds before.
    pub fn gap(&self, branch: &Branch, (trunk, before): (&Course, u32), until: u32) -> Option<Gap> {
        let from = until.saturating_sub(self.plan.window()).max(branch.warmup) + 1;
        let mut clients: BTreeMap<ClientId, Vec<Paired>> = BTreeMap::new();
        for round in from..=until {
            let (Some(here), Some(there)) =
                (branch.course.scenes.get(&round), trunk.scenes.get(&round.saturating_sub(before)))
            else {
                continue;
            };
            for (client, (score, examples)) in &here.each {
                let Some((other, _)) = there.each.get(client) else { continue };
                let paired = Paired { difference: score - other, examples: *examples };
                clients.entry(*client).or_default().push(paired);
            }
        }
        let mean = |rounds: &Vec<Paired>| {
            let sum: f64 = rounds.iter().map(|paired| paired.difference).sum();
            Paired { difference: sum / rounds.len() as f64, examples: rounds[0].examples }
        };
        let clients: Vec<Paired> = clients.values().map(mean).collect();
        Gap::of(&clients, self.plan.warmups.len())
    }

    fn validate(&self, fleet: &mut LocalFleet, model: &ParamValues) -> Result<SetScores> {
        let on = EvaluationSet::ClientValidation;
        let (round, seed) = (Round(self.plan.horizon), self.experiment.seed);
        let request = EvaluationRequest { model, on, adapt: None, round, seed, split: None };
        Ok(SetScores::new(on, fleet.evaluate(&request)?))
    }

    /// What the kernel of each round is worth to the last model, and how it drifted.
    fn weigh(
        &self,
        fleet: &mut LocalFleet,
        (untrained, last): (&SetScores, &ParamValues),
        kernels: &[ParamValues],
        trunk: &Course,
    ) -> Result<Vec<Kernel>> {
        let (first_loss, last_loss) = (untrained.loss, self.validate(fleet, last)?.loss);
        let mut weighed = Vec::with_capacity(kernels.len());
        for (warmup, kernel) in (0..).zip(kernels) {
            let mut model = last.clone();
            model.absorb(kernel.clone());
            let loss = self.validate(fleet, &model)?.loss;
            let gained = Some(first_loss - last_loss).filter(|gained| *gained > 0.0);
            let bias = gained.map(|gained| (loss - last_loss) / gained);
            let next = trunk.kernels.get(warmup as usize).copied();
            weighed.push(Kernel { warmup, loss, bias, next });
        }
        Ok(weighed)
    }
}

impl Course {
    /// The mean score of the clients over the last rounds up to one.
    pub fn mean(&self, until: u32, window: u32) -> Option<f64> {
        let rounds = until.saturating_sub(window)..until;
        let scores: Vec<f64> = rounds
            .filter_map(|done| self.scenes.get(&(done + 1)))
            .map(|scene| scene.mean)
            .collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// The mean score of the clients after each round.
    pub fn by_round(&self) -> BTreeMap<u32, f64> {
        self.scenes.iter().map(|(round, scene)| (*round, scene.mean)).collect()
    }
}

impl Sink for Course {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        for set in &report.scores {
            let Some((name, mean)) = headline_of(&set.mean) else { continue };
            self.score = Some(name);
            let each = set.each.iter().filter_map(|one| {
                let (_, score) = headline_of(&one.scores)?;
                Some((one.client?, (score, one.examples as f64)))
            });
            self.scenes.insert(report.round.0 + 1, Scene { mean, each: each.collect() });
        }
        let roles = report.drift.as_ref().map(|drift| &drift.roles);
        let kernel = roles.and_then(|roles| roles.get(&RoleGroup::QueryKey)).copied();
        self.kernels.push(Drifting::of(kernel.unwrap_or_default(), report.arrived.len()));
        Ok(())
    }
}

impl Drifting {
    fn of(kernel: RoleDrift, clients: usize) -> Self {
        let RoleDrift { drift, disagreement, mean_norm } = kernel;
        let alone = clients < 2 || mean_norm == 0.0;
        let noise =
            if alone { 0.0 } else { drift / (clients - 1) as f64 / (mean_norm * mean_norm) };
        Self { drift, disagreement, noise }
    }
}

#[cfg(test)]
mod tests;
