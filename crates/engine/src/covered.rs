//! What a promise covers: a method that releases anything beside it is refused, with the reason.

use fedra_privacy::Unit;

use crate::adapter_mean::AdapterMean;
use crate::error::EngineError;
use crate::privacy::{Privacy, PrivateSelection};
use crate::recipe::{Pace, Population, Recipe, Weighting};
use crate::selection::{Criterion, Masks};
use crate::stage::Stage;
use crate::work::{LocalRule, positive};

impl Recipe {
    /// Refuses what the promise of a private run does not cover.
    pub(crate) fn check_privacy(&self, clients: usize) -> Result<(), EngineError> {
        let Some(privacy) = &self.privacy else { return Ok(()) };
        let refuse =
            |key, found: String, expected| Err(EngineError::Setting { key, found, expected });
        positive("privacy.clip", privacy.clip)?;
        if let Some(cap) = privacy.cap
            && !(cap >= 1.0 && cap.is_finite())
        {
            return refuse("privacy.cap", cap.to_string(), "at least 1, the mean size of a batch");
        }
        self.check_declared_rows(privacy)?;
        self.check_private_cut(privacy)?;
        self.check_private_selection(privacy)?;
        let reason = match privacy.promise.unit {
            Unit::Client if privacy.client_scores && privacy.promise.budget.is_some() => {
                let found = "true beside privacy.epsilon for whole clients".to_owned();
                let expected = "false: no budget bears a release without a bound";
                return refuse("privacy.client_scores", found, expected);
            }
            Unit::Client => {
                privacy.release(self.sampler)?;
                if self.min_arrivals.of(clients.min(1 << 20)) != 0 {
                    let expected =
                        "0: a round that is repeated for want of clients is drawn otherwise";
                    let found = "another number".to_owned();
                    return refuse("federation.min_arrivals", found, expected);
                }
                self.uncovered_of_clients(privacy)
            }
            Unit::Example => self.uncovered_of_examples(),
        };
        let reason = reason.or_else(|| self.uncovered());
        match reason {
            None => Ok(()),
            Some(reason) => refuse(
                "privacy",
                format!("a promise with {}, where {reason}", self.method),
                "a method whose every release is accounted",
            ),
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
                "none beside [split]: every row of a client crosses the cut"
            }
            () if privacy.cap.is_some() => {
                "none beside privacy.cap: how often a batch reaches it follows from the true number"
            }
            () if matches!(privacy.selection, PrivateSelection::Gaussian { .. }) => {
                "none beside privacy.selection = { gaussian = .. }, whose noise follows from the true number"
            }
            () if self.population == Population::Pooled => {
                "none with all rows in one place: it is the number of one client's"
            }
            () => return Ok(()),
        };
        Err(EngineError::Setting { key: "privacy.rows", found: rows.to_string(), expected })
    }

    /// What no promise covers.
    fn uncovered(&self) -> Option<&'static str> {
        match () {
            () if self.work.head_probe.is_some() => {
                Some("the heads that are sent follow from what clients measured")
            }
            () if self.evaluation.attention => {
                Some("evaluate.attention tells how the model looks at clients' examples")
            }
            () => None,
        }
    }

    /// What a promise to examples does not cover: little, because everything after a noised gradient
    /// follows from it.
    fn uncovered_of_examples(&self) -> Option<&'static str> {
        (self.adapt.is_some() && self.privacy.as_ref().is_some_and(|privacy| privacy.client_scores))
            .then_some("clients adapt a copy without noise before they score it")
    }

    /// What a promise to whole clients does not cover.
    fn uncovered_of_clients(&self, privacy: &Privacy) -> Option<&'static str> {
        match () {
            () if self.population == Population::Pooled => Some("there are no clients"),
            () if self.split.is_some() => {
                Some("rows at a cut are about single examples, and a client sends them all")
            }
            () if self.work.local == LocalRule::ControlVariate => {
                Some("a second sum of clients, the control variate, is released without noise")
            }
            () if self.pace == Pace::Normalised => {
                Some("updates are scaled after they are clipped")
            }
            () if self.adapters == AdapterMean::Exact => {
                Some("products of adapters are not what is clipped")
            }
            () if self.weighting != Weighting::Uniform => {
                Some("a client with many examples would count for more than its bound")
            }
            () if self.evaluation.drift => {
                Some("evaluate.drift tells how far clients' exact updates go apart")
            }
            () if self.stage.as_ref().is_some_and(Stage::needs_evidence) => {
                Some("the moment of freezing depends on what clients measured")
            }
            () if privacy.cap.is_some() => Some("privacy.cap is about batches of examples"),
            () if privacy.clipping != crate::private_steps::ClipRule::Flat => {
                Some("privacy.clipping is about gradients of examples")
            }
            () => None,
        }
    }

    /// Refuses a ranking of blocks that its evidence cannot give.
    fn check_private_selection(&self, privacy: &Privacy) -> Result<(), EngineError> {
        let selection = &self.selection;
        let Some(probe) = selection.probe.filter(|_| self.learns.needs_choice()) else {
            return Ok(());
        };
        let refuse = |key, found: String, expected| {
            Err(EngineError::Setting { key, found: format!("{found} under privacy"), expected })
        };
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
                "\"private_unaccounted\" beside privacy.epsilon".to_owned(),
                "another one: no budget bears a release without a bound",
            ),
            PrivateSelection::NoisyUpdate if !by_norm => refuse(
                "method.selector",
                "another ranking than the highest first".to_owned(),
                "\"attention\", \"cover\" or \"gradient_norm\" where privacy.selection is \
                 \"noisy_update\", which ranks blocks by what was released of them",
            ),
            _ if disagreement && one_list => refuse(
                "method.selector",
                "\"disagreement\"".to_owned(),
                "another one: nobody knows what single clients measured",
            ),
            PrivateSelection::NoisyUpdate | PrivateSelection::Public if per_client => refuse(
                "method.mask",
                "\"per_client\"".to_owned(),
                "\"consensus\": nobody measures for a single client",
            ),
            PrivateSelection::Gaussian { .. } if !probe.is_bounded() => refuse(
                "method.selector",
                "a norm of gradients".to_owned(),
                "one of attention, whose scores are from 0 to 1, beside privacy.selection = \
                 { gaussian = .. }",
            ),
            PrivateSelection::Gaussian { .. } if of_clients && per_client => refuse(
                "method.mask",
                "\"per_client\"".to_owned(),
                "\"consensus\": a client's own choice would tell what it measured",
            ),
            PrivateSelection::NoisyUpdate
            | PrivateSelection::Public
            | PrivateSelection::Gaussian { .. }
            | PrivateSelection::PrivateUnaccounted => Ok(()),
        }
    }
}
