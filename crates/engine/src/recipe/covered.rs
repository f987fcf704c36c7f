//! What a guarantee covers: a method that releases anything beside it is refused, with the reason.

use fedra_privacy::Unit;

use crate::aggregate::adapter_mean::AdapterMean;
use crate::cohort::min_arrivals::MinArrivals;
use crate::error::{EngineError, refuse};
use crate::privacy::private_steps::ClipRule;
use crate::privacy::{CLIP_NORMS, Privacy, PrivateSelection};
use crate::recipe::stage::Stage;
use crate::recipe::{Population, Recipe, StepNormalisation, Weighting};
use crate::selection::{Criterion, Masks};
use crate::work::LocalRule;
use crate::work::objective::ClassWeights;

impl Recipe {
    /// Refuses what the guarantee of a private run does not cover.
    pub(crate) fn check_privacy(&self, clients: usize) -> Result<(), EngineError> {
        let Some(privacy) = &self.privacy else { return Ok(()) };
        self.check_clip(privacy)?;
        if let Some(cap) = privacy.cap
            && !(cap >= 1.0 && cap.is_finite())
        {
            return refuse("privacy.cap", cap, "at least 1, the mean size of a batch");
        }
        self.check_declared_rows(privacy)?;
        self.check_private_cut(privacy)?;
        self.check_private_selection(privacy)?;
        let reason = match privacy.guarantee.unit {
            Unit::Client if privacy.client_scores && privacy.guarantee.budget.is_some() => {
                let found = "true with privacy.epsilon and privacy.unit = \"client\"";
                let expected = "false: a budget excludes releases without a privacy bound";
                return refuse("privacy.client_scores", found, expected);
            }
            Unit::Client => {
                self.check_rounds(privacy, clients)?;
                self.uncovered_of_clients(privacy)
            }
            Unit::Example => self.uncovered_of_examples(),
        };
        match reason.or_else(|| self.uncovered()) {
            None => Ok(()),
            Some(Uncovered { key, reason, expected }) => {
                refuse(key, format!("[privacy] with {}, where {reason}", self.method), expected)
            }
        }
    }

    /// Refuses a declared number of rows beside what follows from the true one.
    fn check_declared_rows(&self, privacy: &Privacy) -> Result<(), EngineError> {
        let Some(rows) = privacy.rows else { return Ok(()) };
        let expected = match () {
            () if privacy.guarantee.unit == Unit::Client => {
                "no such key with privacy.unit = \"client\""
            }
            () if self.split.is_some() => {
                "no such key with [split]: every row of a client crosses the cut"
            }
            () if privacy.cap.is_some() => {
                "no such key with privacy.cap: how often a batch reaches the cap depends on the true number of rows"
            }
            () if matches!(privacy.selection, PrivateSelection::Gaussian { .. }) => {
                "no such key with privacy.selection = { gaussian = .. }, whose noise depends on the true number of rows"
            }
            () if self.population == Population::Pooled => {
                "no such key with a centralised method: it is the number of rows of each client"
            }
            () => return Ok(()),
        };
        refuse("privacy.rows", rows, expected)
    }

    /// Refuses a clip norm that no arithmetic bears: nothing would be left of a contribution, or of a model.
    fn check_clip(&self, privacy: &Privacy) -> Result<(), EngineError> {
        if CLIP_NORMS.contains(&privacy.clip) {
            return Ok(());
        }
        let at_cut = self.split.is_some() && privacy.guarantee.unit == Unit::Example;
        refuse(
            if at_cut { "split.noise.norm" } else { "privacy.clip" },
            in_short(privacy.clip),
            "a norm from 1e-6 to 1e6: a smaller one leaves nothing of a contribution, and with a larger one \
             nothing is clipped and the noise exceeds any model",
        )
    }

    /// Refuses rounds that tell who came to them.
    fn check_rounds(&self, privacy: &Privacy, clients: usize) -> Result<(), EngineError> {
        let _accounted = privacy.release(self.sampler)?;
        if self.min_arrivals.of(clients.min(1 << 20)) != 0 {
            let expected = "0: repeating a round with too few clients would change the sampling";
            let found = match self.min_arrivals {
                MinArrivals::Count(count) => count.to_string(),
                MinArrivals::Share(share) => format!("{share:?}"),
            };
            return refuse("federation.min_arrivals", found, expected);
        }
        if let Some(count) = self.conditions.close_with {
            let found = format!("{count} with privacy.unit = \"client\"");
            let expected = "no such key: one more client would push another out of the round";
            return refuse("conditions.close_with", found, expected);
        }
        let rate = Privacy::rate(self.sampler)?;
        let deviation = privacy.noise.get() * privacy.clip / (rate * clients.max(1) as f64);
        if !(deviation as f32).is_normal() {
            let found = format!("{{ poisson = {} }}", in_short(rate));
            let expected = "a rate at which the noise of a round is a number";
            return refuse("federation.sample", found, expected);
        }
        Ok(())
    }

    /// What no guarantee covers.
    fn uncovered(&self) -> Option<Uncovered> {
        match () {
            () if self.work.head_probe.is_some() => Some(Uncovered {
                key: "method.prune",
                reason: "the choice of heads depends on what clients measured",
                expected: "a share of entries, such as 0.25",
            }),
            () if self.evaluation.attention => Some(Uncovered {
                key: "evaluate.attention",
                reason: "evaluate.attention reveals the model's attention on clients' examples",
                expected: "false",
            }),
            () => None,
        }
    }

    /// What example-level privacy does not cover: little, because everything after a noised gradient
    /// follows from it.
    fn uncovered_of_examples(&self) -> Option<Uncovered> {
        if self.work.class_weights == Some(ClassWeights::Balanced) {
            return Some(Uncovered {
                key: "work.class_weights",
                reason: "the weight of an example would depend on how many others have its label",
                expected: "a table of weights, which is public",
            });
        }
        let scores = self.privacy.as_ref().is_some_and(|privacy| privacy.client_scores);
        (self.adapt.is_some() && scores).then_some(Uncovered {
            key: "privacy.client_scores",
            reason: "clients adapt a copy without noise before they score it",
            expected: "false",
        })
    }

    /// What client-level privacy does not cover.
    fn uncovered_of_clients(&self, privacy: &Privacy) -> Option<Uncovered> {
        let method = |reason| Uncovered {
            key: "method.name",
            reason,
            expected: "a method whose releases are all accounted for",
        };
        let of_examples = |key, reason| Uncovered {
            key,
            reason,
            expected: "no such key unless privacy.unit = \"example\"",
        };
        match () {
            () if self.population == Population::Pooled => Some(method("there are no clients")),
            () if self.split.is_some() => Some(Uncovered {
                key: "split",
                reason: "noise on rows at a cut hides single examples, not a whole client",
                expected: "privacy.unit = \"example\" with [split]",
            }),
            () if self.work.local == LocalRule::ControlVariate => Some(method(
                "a second sum of clients, the control variate, is released without noise",
            )),
            () if self.pace == StepNormalisation::Normalised => {
                Some(method("updates are scaled after they are clipped"))
            }
            () if self.adapters == AdapterMean::Exact => Some(Uncovered {
                key: "model.lora.mean",
                reason: "clipping does not bound the products of adapters",
                expected: "\"separate\" or \"freeze_a\"",
            }),
            () if self.weighting != Weighting::Uniform => Some(Uncovered {
                key: "method.weighting",
                reason: "a client with many examples would count for more than its bound",
                expected: "\"uniform\"",
            }),
            () if self.stage.as_ref().is_some_and(Stage::needs_evidence) => Some(Uncovered {
                key: "method.warmup",
                reason: "the round of freezing depends on what clients measured",
                expected: "a number of rounds or a share of them, which are fixed beforehand",
            }),
            () if self.evaluation.drift => Some(Uncovered {
                key: "evaluate.drift",
                reason: "evaluate.drift reveals how far clients' exact updates diverge",
                expected: "false",
            }),
            () if privacy.cap.is_some() => {
                Some(of_examples("privacy.cap", "privacy.cap is about batches of examples"))
            }
            () if privacy.clipping != ClipRule::Flat => Some(of_examples(
                "privacy.clipping",
                "privacy.clipping is about gradients of examples",
            )),
            () => None,
        }
    }

    /// Refuses a ranking of blocks that its evidence cannot give.
    fn check_private_selection(&self, privacy: &Privacy) -> Result<(), EngineError> {
        let selection = &self.selection;
        let Some(probe) = selection.probe.filter(|_| self.learns.needs_choice()) else {
            return Ok(());
        };
        let refuse =
            |key, found: &str, expected| refuse(key, format!("{found} with [privacy]"), expected);
        let per_client = self.masks == Masks::PerClient;
        let of_clients = privacy.guarantee.unit == Unit::Client;
        let by_norm = matches!(selection.criterion, Criterion::Highest | Criterion::Cover);
        let disagreement = selection.criterion == Criterion::Disagreement;
        let one_list = match privacy.selection {
            PrivateSelection::NoisyUpdate | PrivateSelection::Public => true,
            PrivateSelection::Gaussian { .. } => of_clients,
            PrivateSelection::PrivateUnaccounted => false,
        };
        match privacy.selection {
            PrivateSelection::PrivateUnaccounted if privacy.guarantee.budget.is_some() => refuse(
                "privacy.selection",
                "\"private_unaccounted\" with privacy.epsilon",
                "another value: a budget excludes releases without a privacy bound",
            ),
            PrivateSelection::NoisyUpdate if !by_norm => refuse(
                "method.selector",
                "a ranking other than highest first",
                "\"attention\", \"cover\" or \"gradient_norm\" where privacy.selection is \
                 \"noisy_update\", which ranks blocks by their released updates",
            ),
            _ if disagreement && one_list => refuse(
                "method.selector",
                "\"disagreement\"",
                "another selector: the measurements of single clients are not available",
            ),
            PrivateSelection::NoisyUpdate | PrivateSelection::Public if per_client => refuse(
                "method.mask",
                "\"per_client\"",
                "\"consensus\": there are no measurements for a single client",
            ),
            PrivateSelection::Gaussian { .. } if !probe.is_bounded() => refuse(
                "method.selector",
                "a norm of gradients",
                "an attention selector, whose scores are from 0 to 1, with privacy.selection = \
                 { gaussian = .. }",
            ),
            PrivateSelection::Gaussian { .. } if of_clients && per_client => refuse(
                "method.mask",
                "\"per_client\"",
                "\"consensus\": a client's own choice would reveal what it measured",
            ),
            PrivateSelection::NoisyUpdate
            | PrivateSelection::Public
            | PrivateSelection::Gaussian { .. }
            | PrivateSelection::PrivateUnaccounted => Ok(()),
        }
    }
}

/// A setting that a guarantee does not cover.
struct Uncovered {
    key: &'static str,
    reason: &'static str,
    expected: &'static str,
}

/// A number that may have hundreds of digits.
fn in_short(number: f64) -> String {
    let long = number != 0.0 && !(1e-6..=1e9).contains(&number.abs());
    if long && number.is_finite() { format!("{number:e}") } else { number.to_string() }
}
