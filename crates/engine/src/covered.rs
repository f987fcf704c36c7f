//! What a promise covers: a method that releases anything beside it is refused, with the reason.

use fedra_privacy::Unit;

use crate::adapter_mean::AdapterMean;
use crate::error::{EngineError, refuse};
use crate::min_arrivals::MinArrivals;
use crate::privacy::{CLIP_NORMS, Privacy, PrivateSelection};
use crate::private_steps::ClipRule;
use crate::recipe::{Population, Recipe, StepNormalisation, Weighting};
use crate::selection::{Criterion, Masks};
use crate::stage::Stage;
use crate::work::LocalRule;

impl Recipe {
    /// Refuses what the promise of a private run does not cover.
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
        let reason = match privacy.promise.unit {
            Unit::Client if privacy.client_scores && privacy.promise.budget.is_some() => {
                let found = "true beside privacy.epsilon for whole clients";
                let expected = "false: no budget bears a release without a bound";
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
                refuse(key, format!("a promise with {}, where {reason}", self.method), expected)
            }
        }
    }

    /// Refuses a declared number of rows beside what follows from the true one.
    fn check_declared_rows(&self, privacy: &Privacy) -> Result<(), EngineError> {
        let Some(rows) = privacy.rows else { return Ok(()) };
        let expected = match () {
            () if privacy.promise.unit == Unit::Client => {
                "none: it is about rows, not about clients"
            }
            () if self.split.is_some() => {
                "none together with [split]: every row of a client crosses the cut"
            }
            () if privacy.cap.is_some() => {
                "none together with privacy.cap: how often a batch reaches it follows from the true number"
            }
            () if matches!(privacy.selection, PrivateSelection::Gaussian { .. }) => {
                "none together with privacy.selection = { gaussian = .. }, whose noise follows from the true number"
            }
            () if self.population == Population::Pooled => {
                "none with all rows in one place: it is the number of one client's"
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
        let at_cut = self.split.is_some() && privacy.promise.unit == Unit::Example;
        refuse(
            if at_cut { "split.noise.norm" } else { "privacy.clip" },
            in_short(privacy.clip),
            "a norm from 1e-6 to 1e6: with less nothing of a contribution is left, and with more nothing is \
             clipped and the noise is larger than any model",
        )
    }

    /// Refuses rounds that tell who came to them.
    fn check_rounds(&self, privacy: &Privacy, clients: usize) -> Result<(), EngineError> {
        let _accounted = privacy.release(self.sampler)?;
        if self.min_arrivals.of(clients.min(1 << 20)) != 0 {
            let expected = "0: a round that is repeated for want of clients is drawn otherwise";
            let found = match self.min_arrivals {
                MinArrivals::Count(count) => count.to_string(),
                MinArrivals::Share(share) => format!("{share:?}"),
            };
            return refuse("federation.min_arrivals", found, expected);
        }
        if let Some(count) = self.conditions.close_with {
            let found = format!("{count} under a promise to whole clients");
            let expected = "no such key: one client more would push another out of the round";
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

    /// What no promise covers.
    fn uncovered(&self) -> Option<Uncovered> {
        match () {
            () if self.work.head_probe.is_some() => Some(Uncovered {
                key: "method.prune",
                reason: "the heads that are sent follow from what clients measured",
                expected: "a share of entries, such as 0.25",
            }),
            () if self.evaluation.attention => Some(Uncovered {
                key: "evaluate.attention",
                reason: "evaluate.attention tells how the model looks at clients' examples",
                expected: "false",
            }),
            () => None,
        }
    }

    /// What a promise to examples does not cover: little, because everything after a noised gradient
    /// follows from it.
    fn uncovered_of_examples(&self) -> Option<Uncovered> {
        let scores = self.privacy.as_ref().is_some_and(|privacy| privacy.client_scores);
        (self.adapt.is_some() && scores).then_some(Uncovered {
            key: "privacy.client_scores",
            reason: "clients adapt a copy without noise before they score it",
            expected: "false",
        })
    }

    /// What a promise to whole clients does not cover.
    fn uncovered_of_clients(&self, privacy: &Privacy) -> Option<Uncovered> {
        let method = |reason| Uncovered {
            key: "method.name",
            reason,
            expected: "a method whose every release is accounted",
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
                reason: "rows at a cut are about single examples, and a client sends them all",
                expected: "privacy.unit = \"example\" beside a cut",
            }),
            () if self.work.local == LocalRule::ControlVariate => Some(method(
                "a second sum of clients, the control variate, is released without noise",
            )),
            () if self.pace == StepNormalisation::Normalised => {
                Some(method("updates are scaled after they are clipped"))
            }
            () if self.adapters == AdapterMean::Exact => Some(Uncovered {
                key: "model.lora.mean",
                reason: "products of adapters are not what is clipped",
                expected: "\"separate\" or \"freeze_a\"",
            }),
            () if self.weighting != Weighting::Uniform => Some(Uncovered {
                key: "method.weighting",
                reason: "a client with many examples would count for more than its bound",
                expected: "\"uniform\"",
            }),
            () if self.stage.as_ref().is_some_and(Stage::needs_evidence) => Some(Uncovered {
                key: "method.warmup",
                reason: "the moment of freezing depends on what clients measured",
                expected: "a number of rounds or a share of them, which are fixed beforehand",
            }),
            () if self.evaluation.drift => Some(Uncovered {
                key: "evaluate.drift",
                reason: "evaluate.drift tells how far clients' exact updates go apart",
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
            |key, found: &str, expected| refuse(key, format!("{found} under privacy"), expected);
        let per_client = self.masks == Masks::PerClient;
        let of_clients = privacy.promise.unit == Unit::Client;
        let by_norm = matches!(selection.criterion, Criterion::Highest | Criterion::Cover);
        let disagreement = selection.criterion == Criterion::Disagreement;
        let one_list = match privacy.selection {
            PrivateSelection::NoisyUpdate | PrivateSelection::Public => true,
            PrivateSelection::Gaussian { .. } => of_clients,
            PrivateSelection::PrivateUnaccounted => false,
        };
        match privacy.selection {
            PrivateSelection::PrivateUnaccounted if privacy.promise.budget.is_some() => refuse(
                "privacy.selection",
                "\"private_unaccounted\" beside privacy.epsilon",
                "another one: no budget bears a release without a bound",
            ),
            PrivateSelection::NoisyUpdate if !by_norm => refuse(
                "method.selector",
                "another ranking than the highest first",
                "\"attention\", \"cover\" or \"gradient_norm\" where privacy.selection is \
                 \"noisy_update\", which ranks blocks by what was released of them",
            ),
            _ if disagreement && one_list => refuse(
                "method.selector",
                "\"disagreement\"",
                "another one: nobody knows what single clients measured",
            ),
            PrivateSelection::NoisyUpdate | PrivateSelection::Public if per_client => refuse(
                "method.mask",
                "\"per_client\"",
                "\"consensus\": nobody measures for a single client",
            ),
            PrivateSelection::Gaussian { .. } if !probe.is_bounded() => refuse(
                "method.selector",
                "a norm of gradients",
                "one of attention, whose scores are from 0 to 1, beside privacy.selection = \
                 { gaussian = .. }",
            ),
            PrivateSelection::Gaussian { .. } if of_clients && per_client => refuse(
                "method.mask",
                "\"per_client\"",
                "\"consensus\": a client's own choice would tell what it measured",
            ),
            PrivateSelection::NoisyUpdate
            | PrivateSelection::Public
            | PrivateSelection::Gaussian { .. }
            | PrivateSelection::PrivateUnaccounted => Ok(()),
        }
    }
}

/// A setting that a promise does not cover.
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
