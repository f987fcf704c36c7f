//! A method as a value: one choice for each axis of a federation.
//!
//! [`Recipe::new`] is `FedAvg`; every other method is that with some of its choices replaced, so
//! methods combine wherever their choices do not collide.

pub(crate) mod checks;
pub(crate) mod covered;
pub(crate) mod difference;
pub(crate) mod planner;
pub(crate) mod rows_at_cut;
pub(crate) mod stage;

use std::borrow::Cow;
use std::collections::BTreeMap;

use fedra_plan::{Cut, Layout, Plan, PlanError, Round, Rule, Scope};
use fedra_privacy::Unit;
use serde::{Deserialize, Serialize};

use self::stage::{Stage, StageState, Treatment};
use crate::aggregate::adapter_mean::AdapterMean;
use crate::aggregate::fold::Denominator;
use crate::aggregate::max_norm::MaxNorm;
use crate::cohort::conditions::Conditions;
use crate::cohort::min_arrivals::MinArrivals;
use crate::cohort::sampler::Sampler;
use crate::privacy::private_steps::PrivateSteps;
use crate::privacy::{Privacy, PrivateSelection};
use crate::protocol::fleet::EvaluationSet;
use crate::selection::{Masks, Selection};
use crate::settings::settings;
use crate::split::SplitConfig;
use crate::work::{LocalRule, Work};
use fedra_wire::ServerRule;

/// Repetitions of a round unless given.
pub const USUAL_RETRIES: u32 = 3;

/// Everything that is decided before the first round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The method's name, for reports.
    pub method: String,
    /// Who holds the examples.
    pub population: Population,
    /// What the clients hold before the first round.
    pub start: Start,
    /// Who takes part in a round.
    pub sampler: Sampler,
    /// What goes wrong.
    pub conditions: Conditions,
    /// The fewest updates with which a round counts.
    #[serde(default, skip_serializing_if = "MinArrivals::is_usual")]
    pub min_arrivals: MinArrivals,
    /// The largest norm of an update; absent: what is far outside its cohort is reported and counts as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_norm: Option<MaxNorm>,
    /// How often a round with fewer is repeated before the run stops. It is not written down: no
    /// complete round depends on it, so a run that stopped may go on with more.
    #[serde(skip_serializing, default = "usual_retries")]
    pub retries: u32,
    /// Which part learns, round by round.
    pub learns: Rule,
    /// A second stage in which a part is treated differently.
    pub stage: Option<Stage>,
    /// Whose evidence the rule looks at.
    pub masks: Masks,
    /// Where the ranking of blocks comes from, for a rule that ranks them.
    #[serde(default)]
    pub selection: Selection,
    /// Clients, by name, whose model has only so many of the blocks; all others have them all.
    #[serde(default)]
    pub depths: BTreeMap<String, u16>,
    /// Clients, by name, whose adapters have only this rank; all others have the model's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranks: BTreeMap<String, u16>,
    /// How the model is cut between clients and server; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
    /// What is guaranteed to those whose data is learnt from; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
    /// Which part never leaves a client.
    pub personal: Rule,
    /// What a client does in a round, and how it writes it down.
    pub work: Work,
    /// How much an update counts.
    pub weighting: Weighting,
    /// Whether an update is divided by its steps.
    pub pace: StepNormalisation,
    /// By whose weights a parameter's sum is divided.
    pub denominator: Denominator,
    /// How low-rank adapters are averaged.
    #[serde(default, skip_serializing_if = "is_separate")]
    pub adapters: AdapterMean,
    /// How the mean change becomes the next model.
    pub server: ServerRule,
    /// What clients train on their own before they score a model.
    pub adapt: Option<Adapt>,
    /// When the model is scored, and on what.
    pub evaluation: Evaluation,
}

impl Recipe {
    /// `FedAvg` with the given local work: all clients, everything learns, the mean by examples.
    pub fn new(work: Work) -> Self {
        Self {
            method: "fedavg".to_owned(),
            population: Population::Federated,
            start: Start::Sent,
            sampler: Sampler::All,
            conditions: Conditions::default(),
            min_arrivals: MinArrivals::default(),
            max_norm: None,
            retries: USUAL_RETRIES,
            learns: Rule::Everything,
            stage: None,
            masks: Masks::Consensus,
            selection: Selection::default(),
            depths: BTreeMap::new(),
            ranks: BTreeMap::new(),
            split: None,
            privacy: None,
            personal: Rule::Nothing,
            work,
            weighting: Weighting::Examples,
            pace: StepNormalisation::Ignored,
            denominator: Denominator::Participants,
            adapters: AdapterMean::Separate,
            server: ServerRule::Average { rate: 1.0 },
            adapt: None,
            evaluation: Evaluation::default(),
        }
    }

    /// The same with another local rule.
    pub fn with_local(mut self, local: LocalRule) -> Self {
        self.work.local = local;
        self
    }

    /// What learns in a round as far as that is known before the first one: a stage that waits for
    /// evidence has not begun.
    pub fn learns_in(&self, round: Round) -> Rule {
        self.rule_in(round, &StageState::default())
    }

    /// What learns in a round, given how far the second stage has come.
    pub(crate) fn rule_in(&self, round: Round, state: &StageState) -> Rule {
        let learns = self.learns.clone();
        match &self.stage {
            None => learns,
            Some(stage) => match (stage.treatment, stage.treated(state, round)) {
                (Treatment::Damped(_) | Treatment::Reset, _) | (_, Rule::Nothing) => learns,
                (Treatment::Frozen, frozen) => learns - frozen,
            },
        }
    }
}

impl Recipe {
    /// The plan of the named client in a round in which this part learns.
    pub fn plan(
        &self,
        (name, round): (&str, Round),
        learns: Scope,
        layout: &Layout,
    ) -> Result<Plan, PlanError> {
        let cut = self.cut(name, round, layout)?;
        let plan = Plan::new(layout, learns, cut)?.keeping(&self.personal.select(layout)?);
        Ok(if self.depths.contains_key(name) {
            plan.within(&self.reach(name, layout))
        } else {
            plan
        })
    }

    /// The layout of the named client's model: that of the shared one, with adapters of the client's rank.
    pub fn layout_of<'l>(&self, name: &str, shared: &'l Layout) -> Cow<'l, Layout> {
        layout_of(&self.ranks, name, shared)
    }

    /// Where the named client's model is cut in a round.
    pub fn cut(&self, name: &str, round: Round, layout: &Layout) -> Result<Cut, PlanError> {
        self.split.as_ref().map_or(Ok(Cut::none()), |split| split.cut(name, round, layout.blocks()))
    }

    /// The part of the model that the named client has: blocks past its depth are absent.
    fn reach(&self, name: &str, layout: &Layout) -> Scope {
        let depth = self.depths.get(name).copied().unwrap_or(u16::MAX);
        Scope::everything(layout).filter(|id| id.layer.block().is_none_or(|block| block < depth))
    }
}

/// The part of a guarantee that concerns one unit.
impl Recipe {
    /// Client-level privacy, where that is the unit.
    pub fn client_privacy(&self) -> Option<&Privacy> {
        self.privacy.as_ref().filter(|privacy| privacy.guarantee.unit == Unit::Client)
    }

    /// The steps that a client with so many examples takes in a round.
    pub fn steps(&self, examples: u64) -> u64 {
        let private = self.private_steps();
        self.work.steps(private.map_or(examples, |private| private.public_rows(examples)))
    }

    /// Whether blocks are measured in a round to which nobody comes as in any other.
    pub fn measures_unattended(&self) -> bool {
        let unaccounted = PrivateSelection::PrivateUnaccounted;
        self.client_privacy().is_some_and(|privacy| privacy.selection != unaccounted)
    }

    /// How clients' steps hide examples, where these are the unit; at a cut their rows do
    /// ([`RowsAtCut`](crate::RowsAtCut)).
    pub fn private_steps(&self) -> Option<PrivateSteps> {
        let Privacy { guarantee, clip, clipping, noise, cap, rows, .. } = *self.privacy.as_ref()?;
        let covers = guarantee.unit == Unit::Example && self.split.is_none();
        covers.then_some(PrivateSteps { clip, clipping, noise, cap, rows })
    }
}

/// The layout of the named client's model, where some clients have adapters of a lower rank.
pub fn layout_of<'l>(
    ranks: &BTreeMap<String, u16>,
    name: &str,
    shared: &'l Layout,
) -> Cow<'l, Layout> {
    match ranks.get(name) {
        Some(rank) => Cow::Owned(shared.with_rank(usize::from(*rank))),
        None => Cow::Borrowed(shared),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_separate(mean: &AdapterMean) -> bool {
    *mean == AdapterMean::Separate
}

const fn usual_retries() -> u32 {
    USUAL_RETRIES
}

/// Who holds the examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Population {
    /// The clients, each its own.
    Federated,
    /// One client holds them all, next to the server: nothing travels, so no bytes are reported.
    Pooled,
}

/// What the clients hold before the first round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Nothing: the whole model goes to each client once.
    #[default]
    Sent,
    /// The initial model, from a public checkpoint or a shared seed.
    Shared,
}

/// How much an update counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weighting {
    /// By the examples behind it.
    Examples,
    /// Like any other.
    Uniform,
}

impl Weighting {
    /// The weight of a client with so many examples; one without any has none.
    pub(crate) fn of(self, examples: u64) -> f64 {
        match self {
            Self::Examples => examples as f64,
            Self::Uniform => f64::from(u8::from(examples > 0)),
        }
    }
}

/// Whether an update is divided by its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepNormalisation {
    /// No: who makes more steps moves the model further.
    Ignored,
    /// Yes, and the mean is multiplied by the mean number of steps (`FedNova`).
    Normalised,
}

/// What clients train on their own, on a copy, before they score a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapt {
    /// The part that adapts.
    pub learns: Rule,
    /// Passes over the client's examples.
    pub epochs: u32,
}

settings! {
    /// When the model is scored, and on what.
    #[derive(Eq)]
    pub struct Evaluation {
        /// After every so many rounds, and after the last.
        pub every: u32 = 1,
        /// The sets of examples.
        pub on: Vec<EvaluationSet> = vec![EvaluationSet::CentralTest],
        /// Whether to measure how far the clients of a round go apart: a pass over every update.
        pub drift: bool = false,
        /// Whether to follow the attention of the model on the clients' examples; see
        /// [`AttentionDrift`](crate::AttentionDrift).
        pub attention: bool = false,
    }
}
