//! Which settings of a server's rule make sense; the rule itself is [`ServerRule`].

use fedra_wire::ServerRule;

use crate::error::{EngineError, not_negative, positive, refuse};

/// Refuses settings that make no sense.
pub(crate) fn check(rule: ServerRule) -> Result<(), EngineError> {
    let legal = |holds: bool, key, found: f32, expected| {
        if holds { Ok(()) } else { refuse(key, found, expected) }
    };
    // With 1 nothing is ever forgotten, and FedAdam's mean change would stay 0.
    let decay = |key, found: f32| {
        legal((0.0..1.0).contains(&found), key, found, "a number from 0 to below 1")
    };
    match rule {
        ServerRule::Average { rate } => not_negative("method.rate", rate),
        ServerRule::Momentum { rate, beta } => {
            not_negative("method.rate", rate)?;
            decay("method.beta", beta)
        }
        ServerRule::Adaptive { rate, beta1, beta2, tau, .. } => {
            not_negative("method.rate", rate)?;
            decay("method.beta1", beta1)?;
            legal((0.0..=1.0).contains(&beta2), "method.beta2", beta2, "a number from 0 to 1")?;
            positive("method.tau", f64::from(tau))
        }
        ServerRule::Dynamic { alpha } => positive("method.alpha", f64::from(alpha)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_wire::SecondMoment;

    #[test]
    fn a_mean_that_never_moves_is_refused_and_a_second_moment_may_stand_still() {
        let rule = |beta1, beta2| ServerRule::Adaptive {
            second: SecondMoment::Adam,
            rate: 1.0,
            beta1,
            beta2,
            tau: 1.0,
        };
        assert!(check(rule(0.0, 1.0)).is_ok());
        for wrong in [rule(1.0, 0.5), rule(0.5, 1.5), rule(f32::NAN, 0.5), rule(-0.5, 0.5)] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
        assert!(check(ServerRule::Momentum { rate: 1.0, beta: 1.0 }).is_err());
        assert!(check(ServerRule::Average { rate: f32::INFINITY }).is_err());
    }
}
