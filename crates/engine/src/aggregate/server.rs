//! How the mean change becomes the next model.
//!
//! A rule touches the parameters that are in the mean and no others: a parameter nobody sent keeps
//! its bits, and no momentum moves it.

use fedra_plan::Scope;
use fedra_wire::{Mean, ParamValues};
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, not_negative, positive, refuse};

/// The server's optimiser; d is the mean change, w the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerRule {
    /// `w += rate d`; with rate 1 the new model is the mean of the clients' models.
    Average {
        /// The server's learning rate.
        rate: f32,
    },
    /// `m = beta m + d; w += rate m`.
    Momentum {
        /// The server's learning rate.
        rate: f32,
        /// Share of the last change that is carried over.
        beta: f32,
    },
    /// `m = beta1 m + (1 - beta1) d; w += rate m / (sqrt(v) + tau)`, with v from the second moment
    /// and `tau^2` at the start (Reddi et al., 2021, algorithm 2).
    Adaptive {
        /// How v follows the squares of d.
        second: SecondMoment,
        /// The server's learning rate.
        rate: f32,
        /// Decay of m.
        beta1: f32,
        /// Decay of v.
        beta2: f32,
        /// How far the rule adapts: smaller adapts more.
        tau: f32,
    },
    /// `FedDyn`: `h -= alpha (taken / all) d; w += d - h / alpha`. Under client-level privacy the share
    /// is the one that is drawn on average.
    Dynamic {
        /// The weight of the clients' regulariser.
        alpha: f32,
    },
}

/// How v follows the squares of the mean change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondMoment {
    /// `v = beta2 v + (1 - beta2) d^2`.
    Adam,
    /// `v = v - (1 - beta2) d^2 sign(v - d^2)`.
    Yogi,
    /// `v = v + d^2`.
    Adagrad,
}

/// What the server remembers between rounds, by parameter; absent means not yet touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerState {
    /// m, or h of `FedDyn`.
    pub first: ParamValues,
    /// v.
    pub second: ParamValues,
    /// c of SCAFFOLD.
    pub variate: ParamValues,
}

impl ServerState {
    /// Forgets whatever is known of these parameters.
    pub(crate) fn forget(&mut self, scope: &Scope) {
        for id in scope {
            for tensors in [&mut self.first, &mut self.second, &mut self.variate] {
                tensors.remove(id);
            }
        }
    }
}

impl ServerRule {
    /// Refuses settings that make no sense.
    pub fn check(self) -> Result<(), EngineError> {
        let legal = |holds: bool, key, found: f32, expected| {
            if holds { Ok(()) } else { refuse(key, found, expected) }
        };
        // With 1 nothing is ever forgotten, and FedAdam's mean change would stay 0.
        let decay = |key, found: f32| {
            legal((0.0..1.0).contains(&found), key, found, "a number from 0 to below 1")
        };
        match self {
            Self::Average { rate } => not_negative("method.rate", rate),
            Self::Momentum { rate, beta } => {
                not_negative("method.rate", rate)?;
                decay("method.beta", beta)
            }
            Self::Adaptive { rate, beta1, beta2, tau, .. } => {
                not_negative("method.rate", rate)?;
                decay("method.beta1", beta1)?;
                legal((0.0..=1.0).contains(&beta2), "method.beta2", beta2, "a number from 0 to 1")?;
                positive("method.tau", f64::from(tau))
            }
            Self::Dynamic { alpha } => positive("method.alpha", f64::from(alpha)),
        }
    }

    /// Moves the model by the mean change of a round to which this share of all clients came.
    pub fn apply(self, state: &mut ServerState, model: &mut ParamValues, step: &ServerInput<'_>) {
        for (id, changes) in step.mean.iter() {
            let Some(weights) = model.get_mut(id) else {
                continue;
            };
            let length = changes.len();
            let moved = weights.iter_mut().zip(changes);
            match self {
                Self::Average { rate } => moved.for_each(|(w, d)| *w += rate * d),
                Self::Momentum { rate, beta } => {
                    let first = state.first.or_zeros(id, length);
                    for ((w, d), m) in moved.zip(first) {
                        *m = beta * *m + d;
                        *w += rate * *m;
                    }
                }
                Self::Adaptive { second, rate, beta1, beta2, tau } => {
                    let first = state.first.or_zeros(id, length);
                    if state.second.get(id).is_none() {
                        state.second.insert(id, vec![tau * tau; length]);
                    }
                    let seconds = state.second.or_zeros(id, length);
                    for (((w, d), m), v) in moved.zip(first).zip(seconds) {
                        *m = beta1 * *m + (1.0 - beta1) * d;
                        *v = second.next(*v, d * d, beta2);
                        *w += rate * *m / (v.sqrt() + tau);
                    }
                }
                Self::Dynamic { alpha } => {
                    let pull = alpha * step.share as f32;
                    let first = state.first.or_zeros(id, length);
                    for ((w, d), h) in moved.zip(first) {
                        *h -= pull * d;
                        *w += d - *h / alpha;
                    }
                }
            }
        }
    }
}

/// What a round gives the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerInput<'round> {
    /// The mean change.
    pub mean: &'round Mean,
    /// Which share of all clients, by their weights, has its updates in it.
    pub share: f64,
}

impl SecondMoment {
    fn next(self, v: f32, square: f32, beta2: f32) -> f32 {
        match self {
            Self::Adam => beta2 * v + (1.0 - beta2) * square,
            Self::Yogi => {
                let towards = if v > square { -1.0 } else { 1.0 };
                v + (1.0 - beta2) * square * towards * f32::from(u8::from(v != square))
            }
            Self::Adagrad => v + square,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{Layer, ParamId, Part, Role};

    const ID: ParamId = ParamId::new(Layer::Head, Role::Classifier, Part::Bias);

    #[track_caller]
    fn check(rule: ServerRule, changes: &[f32], expected: &[f32]) {
        let mut state = ServerState::default();
        let mut model = ParamValues::from_iter([(ID, vec![1.0])]);
        for (change, expected) in changes.iter().zip(expected) {
            let mean = Mean::from_iter([(ID, vec![*change])]);
            rule.apply(&mut state, &mut model, &ServerInput { mean: &mean, share: 0.5 });
            assert_eq!(model.get(ID), Some(&[*expected][..]));
        }
    }

    fn adaptive(second: SecondMoment) -> ServerRule {
        // With tau 1 and v 1 at the start, numbers stay short.
        ServerRule::Adaptive { second, rate: 2.0, beta1: 0.5, beta2: 0.75, tau: 1.0 }
    }

    #[test]
    fn two_steps_of_each_rule_by_hand() {
        check(ServerRule::Average { rate: 0.5 }, &[2.0, -4.0], &[2.0, 0.0]);
        check(ServerRule::Momentum { rate: 1.0, beta: 0.5 }, &[2.0, 2.0], &[3.0, 6.0]);
        // m = 2; v = 0.75 + 4 = 4.75, 5, 17
        check(adaptive(SecondMoment::Adam), &[4.0], &[1.0 + 4.0 / (4.75_f32.sqrt() + 1.0)]);
        check(adaptive(SecondMoment::Yogi), &[4.0], &[1.0 + 4.0 / (5.0_f32.sqrt() + 1.0)]);
        check(adaptive(SecondMoment::Adagrad), &[4.0], &[1.0 + 4.0 / (17.0_f32.sqrt() + 1.0)]);
        // h = -0.5, w = 1 + 2 + 1; h = -1.0, w = 4 + 2 + 2
        check(ServerRule::Dynamic { alpha: 0.5 }, &[2.0, 2.0], &[4.0, 8.0]);
    }

    #[test]
    fn a_mean_that_never_moves_is_refused_and_a_second_moment_may_stand_still() {
        let rule = |beta1, beta2| ServerRule::Adaptive {
            second: SecondMoment::Adam,
            rate: 1.0,
            beta1,
            beta2,
            tau: 1.0,
        };
        assert!(rule(0.0, 1.0).check().is_ok());
        for wrong in [rule(1.0, 0.5), rule(0.5, 1.5), rule(f32::NAN, 0.5), rule(-0.5, 0.5)] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(ServerRule::Momentum { rate: 1.0, beta: 1.0 }.check().is_err());
        assert!(ServerRule::Average { rate: f32::INFINITY }.check().is_err());
    }

    #[test]
    fn yogi_moves_its_second_moment_towards_the_square() {
        let next = |v, square| SecondMoment::Yogi.next(v, square, 0.75);
        assert_eq!((next(8.0, 4.0), next(2.0, 4.0), next(4.0, 4.0)), (7.0, 3.0, 4.0));
    }

    #[test]
    fn what_is_not_in_the_mean_is_not_moved_by_momentum() {
        let rule = ServerRule::Momentum { rate: 1.0, beta: 0.9 };
        let mut state = ServerState::default();
        let mut model = ParamValues::from_iter([(ID, vec![1.0])]);
        let mean = Mean::from_iter([(ID, vec![1.0])]);
        rule.apply(&mut state, &mut model, &ServerInput { mean: &mean, share: 1.0 });
        let (model_before, state_before) = (model.clone(), state.clone());
        rule.apply(&mut state, &mut model, &ServerInput { mean: &Mean::default(), share: 1.0 });
        assert_eq!((model, state), (model_before, state_before));
    }
}
