//! What a client does in a round: how much, with which solver, under which local rule.
//!
//! Plain data without a tensor in it, so that it can be written in a file, sent over a network and
//! carried out by any kind of client.

pub(crate) mod objective;
pub(crate) mod schedule;

pub use fedra_plan::Solver as OptimiserConfig;
use fedra_plan::{Layout, Plan, Probe, Scope, Side, Visits, WrongSetting};
use fedra_privacy::{PrivacyError, Release};
use fedra_wire::Encoding;
use serde::{Deserialize, Serialize};

use self::objective::{ClassWeights, MomentsLife, PreferenceLoss};
use self::schedule::Schedule;
use crate::error::{EngineError, not_negative, positive, refuse};
use crate::privacy::private_steps::PrivateSteps;

/// One round of work at one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Passes over the client's examples.
    pub epochs: u32,
    /// Examples that are worked on at once.
    pub batch: u32,
    /// Batches whose gradients make one step, that of a batch of all their examples.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: u32,
    /// How a gradient becomes a step.
    #[serde(rename = "optimiser")]
    pub solver: OptimiserConfig,
    /// What the rate is multiplied by, step by step.
    #[serde(default, skip_serializing_if = "Schedule::is_usual")]
    pub schedule: Schedule,
    /// Whether the solver's moments live on between a client's rounds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub moments: MomentsLife,
    /// What a target counts by its class; all alike unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// What share of a target goes to all classes alike.
    #[serde(default, skip_serializing_if = "is_default")]
    pub label_smoothing: f32,
    /// How a pair of answers is learned; only for preferences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceLoss>,
    /// The chance of an activation to be dropped in training.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dropout: f32,
    /// Stops a round early.
    #[serde(default)]
    pub max_steps: Option<u32>,
    /// Scales gradients down to this norm, over all that trains, before the local rule.
    #[serde(default)]
    pub clip: Option<f32>,
    /// What is added to the gradient.
    #[serde(default)]
    pub local: LocalRule,
    /// What learns at a lower rate; the engine's to say, round by round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damped: Option<Damped>,
    /// How steps hide single examples; the engine's to say, from the recipe's guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateSteps>,
    /// How the client looks for the heads it sends under [`Encoding::Heads`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_probe: Option<HeadProbe>,
    /// How changes are written on the way up.
    #[serde(default)]
    pub encoding: Encoding,
    /// How values are written on the way down.
    #[serde(default)]
    pub download: Encoding,
}

impl Work {
    /// What a client computes that makes this many steps, in multiply-adds for one token an example:
    /// training and, where heads are chosen by attention, looking at them. Of a pair of answers each example is
    /// shown to the reference once.
    pub fn effort(&self, plan: &Plan, layout: &Layout, (examples, steps): (u64, u32)) -> u64 {
        if plan.learns().is_empty() {
            return 0;
        }
        let most = u64::from(self.epochs) * examples;
        let passes = most.min(u64::from(steps) * u64::from(self.step_batch()));
        let watched = self.head_probe.map_or(0, |heads| {
            let looked = examples.min(u64::from(heads.examples));
            plan.probing_work(Side::Client, layout, (heads.probe, looked))
        });
        let shown = if self.preference.is_some() { examples.min(passes) } else { 0 };
        let reference = plan.reference_work(Side::Client, layout, shown);
        plan.training_work(Side::Client, layout, Visits { examples, passes }) + reference + watched
    }

    /// Examples behind one step: those of all its batches.
    pub fn step_batch(&self) -> u32 {
        self.batch.saturating_mul(self.accumulate)
    }

    /// One epoch in batches of 16, nothing added to the gradient, everything sent in f32.
    pub fn new(solver: OptimiserConfig) -> Self {
        Self {
            epochs: 1,
            batch: 16,
            accumulate: 1,
            solver,
            schedule: Schedule::default(),
            moments: MomentsLife::Fresh,
            class_weights: None,
            label_smoothing: 0.0,
            preference: None,
            dropout: 0.0,
            max_steps: None,
            clip: None,
            local: LocalRule::Plain,
            damped: None,
            private: None,
            head_probe: None,
            encoding: Encoding::F32,
            download: Encoding::F32,
        }
    }

    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), EngineError> {
        at_least_one("work.epochs", self.epochs)?;
        at_least_one("work.batch", self.batch)?;
        at_least_one("work.accumulate", self.accumulate)?;
        share("work.label_smoothing", self.label_smoothing)?;
        share("work.dropout", self.dropout)?;
        self.class_weights.as_ref().map_or(Ok(()), ClassWeights::check)?;
        self.preference.as_ref().map_or(Ok(()), PreferenceLoss::check)?;
        if self.moments == MomentsLife::Kept && self.solver.moments() == 0 {
            let expected = "\"fresh\" with sgd, which has no moments";
            return refuse("work.moments", "\"kept\"", expected);
        }
        self.max_steps.map_or(Ok(()), |steps| at_least_one("work.max_steps", steps))?;
        self.clip.map_or(Ok(()), |norm| positive("work.clip", f64::from(norm)))?;
        self.solver.check().map_err(|WrongSetting { key, found, expected }| {
            EngineError::setting(key, found, expected)
        })?;
        self.schedule.check()?;
        self.local.check()?;
        self.check_share()?;
        match self.download {
            Encoding::F32 | Encoding::F16 | Encoding::Bf16 | Encoding::Int8 { feedback: false } => {
                Ok(())
            }
            Encoding::Int8 { feedback: true }
            | Encoding::TopK { .. }
            | Encoding::Pruned { .. }
            | Encoding::Heads { .. } => refuse(
                "wire.download",
                self.download,
                "f32, f16, bf16 or int8: values go down, not changes",
            ),
        }
    }

    /// Refuses an encoding that keeps nothing, or more than there is.
    fn check_share(&self) -> Result<(), EngineError> {
        let (key, share) = match self.encoding {
            Encoding::F32 | Encoding::F16 | Encoding::Bf16 | Encoding::Int8 { .. } => return Ok(()),
            Encoding::TopK { share, .. } => ("wire.encoding", share),
            Encoding::Pruned { share, .. } | Encoding::Heads { share, .. } => {
                ("method.prune", share)
            }
        };
        let wrong = |_| EngineError::setting(key, share, "a share above 0 and at most 1");
        self.encoding.check().map_err(wrong)
    }

    /// The steps that a client with so many examples takes; private ones follow from a declared number, where
    /// there is one.
    pub fn steps(&self, examples: u64) -> u64 {
        let examples = self.private.map_or(examples, |private| private.public_rows(examples));
        let pass = examples.div_ceil(u64::from(self.step_batch().max(1)));
        let all = u64::from(self.epochs).saturating_mul(pass);
        self.max_steps.map_or(all, |limit| all.min(u64::from(limit)))
    }

    /// What a round of such steps releases about the examples of a client; `None` where it makes no step.
    pub fn release(
        &self,
        private: &PrivateSteps,
        examples: u64,
    ) -> Result<Option<Release>, PrivacyError> {
        let steps = self.steps(private.public_rows(examples));
        private.release((self.step_batch(), steps), examples)
    }
}

/// What a client looks at to find the heads it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadProbe {
    /// Which attention counts.
    pub probe: Probe,
    /// Most examples to look at.
    pub examples: u32,
}

/// A part whose rate is multiplied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damped {
    /// The part.
    pub part: Scope,
    /// By how much.
    pub factor: f32,
}

/// What a client adds to the gradient g of its own loss; w is its model, `w_t` the one it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LocalRule {
    /// Nothing.
    #[default]
    Plain,
    /// `FedProx`: `g + mu (w - w_t)`.
    Proximal {
        /// The pull towards the received model.
        mu: f32,
    },
    /// SCAFFOLD: `g - c_i + c`, with c in [`TrainRequest::correction`](crate::TrainRequest::correction) and `c_i` in
    /// [`ClientState::correction`](crate::ClientState::correction). Afterwards `c_i` becomes the
    /// mean of g over the steps of the round, and its change goes up.
    ///
    /// For plain SGD that mean is the paper's option II, `c_i - c + (w_t - w) / (steps rate)`, and
    /// it keeps its meaning under any other solver.
    ControlVariate,
    /// `FedDyn`: `g - h_i + alpha (w - w_t)`, with `h_i` in
    /// [`ClientState::correction`](crate::ClientState::correction). Afterwards
    /// `h_i -= alpha (w - w_t)`.
    Dynamic {
        /// The weight of the regulariser.
        alpha: f32,
    },
}

impl LocalRule {
    /// Whether clients keep a correction from round to round.
    pub(crate) const fn keeps_correction(self) -> bool {
        matches!(self, Self::ControlVariate | Self::Dynamic { .. })
    }

    fn check(self) -> Result<(), EngineError> {
        match self {
            Self::Plain | Self::ControlVariate => Ok(()),
            Self::Proximal { mu } => not_negative("method.mu", mu),
            Self::Dynamic { alpha } => positive("method.alpha", f64::from(alpha)),
        }
    }
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn at_least_one(key: &'static str, found: u32) -> Result<(), EngineError> {
    if found == 0 { refuse(key, 0, "at least 1") } else { Ok(()) }
}

fn share(key: &'static str, found: f32) -> Result<(), EngineError> {
    if (0.0..1.0).contains(&found) {
        return Ok(());
    }
    refuse(key, found, "a number from 0 to below 1")
}

#[cfg(test)]
mod tests {
    use self::schedule::RateDecay;
    use super::*;
    use fedra_plan::{Cut, Layer, ParamId, Part, Role, Shape};

    #[test]
    fn work_reads_as_in_an_experiment_file() {
        let text = r#"{"epochs":1,"batch":16,"optimiser":{"name":"adamw","rate":1e-3,"weight_decay":0.01}}"#;
        let work: Work = serde_json::from_str(text).expect("legal");
        let solver = OptimiserConfig::AdamW {
            rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
        };
        assert_eq!(work, Work::new(solver));
        let usual = text.replace(r#","weight_decay":0.01"#, "");
        assert_eq!(serde_json::from_str::<Work>(&usual).expect("legal"), work);
        assert_eq!(OptimiserConfig::default(), solver);
        assert_eq!(serde_json::to_string(&work).expect("JSON").matches("class_weights").count(), 0);
        let unknown = text.replace("weight_decay", "decay");
        let refused = serde_json::from_str::<Work>(&unknown).expect_err("an unknown key");
        assert!(refused.to_string().contains("decay"), "{refused}");
    }

    #[test]
    fn a_pair_is_shown_to_its_reference_once_however_often_it_is_learned() {
        let id = |part| ParamId::new(Layer::Block(0), Role::Query, part);
        let shapes =
            [(id(Part::Weight), Shape::matrix(4, 5)), (id(Part::LoraA), Shape::matrix(1, 5))];
        let layout = Layout::new(shapes).expect("legal");
        let learns = Scope::of_parts(&layout, [Part::LoraA]);
        let plan = Plan::new(&layout, learns, Cut::none()).expect("legal");
        let solver = OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 };
        let reference = |epochs, batch, steps| {
            let plain = Work { epochs, batch, ..Work::new(solver) };
            let pairs = Work { preference: Some(PreferenceLoss::default()), ..plain.clone() };
            let effort = |work: &Work| work.effort(&plan, &layout, (7, steps));
            effort(&pairs) - effort(&plain)
        };
        assert_eq!(reference(1, 7, 1), 7 * 20);
        assert_eq!(reference(3, 7, 3), 7 * 20);
        // A round that stopped after two steps has seen four pairs.
        assert_eq!(reference(3, 2, 2), 4 * 20);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused_by_name() {
        let check = |change: &dyn Fn(&mut Work), key: &str| {
            let mut work = Work::new(OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 });
            change(&mut work);
            let refused = work.check().expect_err(key).to_string();
            assert!(refused.contains(key), "{refused}");
        };
        check(&|work| work.epochs = 0, "`work.epochs` is 0, expected at least 1");
        check(&|work| work.batch = 0, "`work.batch` is 0, expected at least 1");
        check(&|work| work.accumulate = 0, "`work.accumulate` is 0, expected at least 1");
        check(&|work| work.label_smoothing = 1.0, "`work.label_smoothing` is 1, expected a number");
        check(&|work| work.dropout = f32::NAN, "`work.dropout` is NaN, expected a number from 0");
        check(
            &|work| work.moments = MomentsLife::Kept,
            "`work.moments` is \"kept\", expected \"fresh\"",
        );
        let weights = |weight| Some(ClassWeights::ByLabel([("pain".to_owned(), weight)].into()));
        check(&|work| work.class_weights = weights(0.0), "`work.class_weights` is 0 for \"pain\"");
        let none = ClassWeights::ByLabel([].into());
        check(&|work| work.class_weights = Some(none.clone()), "an empty table");
        check(&|work| work.max_steps = Some(0), "`work.max_steps` is 0, expected at least 1");
        check(&|work| work.clip = Some(0.0), "`work.clip` is 0, expected a finite number above 0");
        let never = Schedule { decay: RateDecay::Linear, ..Schedule::default() };
        check(&|work| work.schedule = never, "`work.schedule` is a rate over 0 rounds");
        let nothing = Encoding::TopK { share: 0.0, feedback: false };
        check(&|work| work.encoding = nothing, "`wire.encoding` is 0, expected a share above 0");
        let nothing = Encoding::Pruned { share: 0.0, feedback: false };
        check(&|work| work.encoding = nothing, "`method.prune` is 0, expected a share above 0");
        check(&|work| work.solver = work.solver.scaled(f32::NAN), "work.optimiser.rate");
        check(&|work| work.local = LocalRule::Dynamic { alpha: 0.0 }, "method.alpha");
        check(&|work| work.local = LocalRule::Proximal { mu: -1.0 }, "method.mu");
        check(
            &|work| work.download = Encoding::TopK { share: 0.1, feedback: false },
            "wire.download",
        );
    }

    #[test]
    fn steps_count_the_last_small_batch_and_stop_at_the_limit() {
        let mut work = Work::new(OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 });
        work.epochs = 2;
        assert_eq!(work.steps(33), 6);
        work.max_steps = Some(4);
        assert_eq!(work.steps(33), 4);
        // Of 33 examples, two steps have two batches of 8 and the third has one example.
        work = Work { batch: 8, accumulate: 2, max_steps: None, ..work };
        assert_eq!((work.step_batch(), work.steps(33)), (16, 6));
    }
}
