//! One suite over all implementations of [`Fleet`](fedra_engine::Fleet): threads of one process, our own
//! network on loopback, a stand-in for a Flower SuperLink, and a real one.
//!
//! A [case](cases) is written once, over a [`Deployment`]. What it comes to in one process is what it has to
//! come to everywhere: the bits of the model and the report after every round, and every answer that the
//! engine got through the trait.
//!
//! A SuperLink needs Python: its tests run where `FEDRA_FLOWER` names the folder with `flower-superlink` and
//! `flwr`, as `tools/test-flower` does. In one process of tests they share one SuperLink and take turns.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

mod cases;
mod deployment;
mod https;
mod listener;
mod loopback;
mod noted;
mod outcome;
#[expect(dead_code, reason = "the stand-in reads what it needs of the messages")]
#[path = "../../src/proto.rs"]
mod proto;
#[expect(dead_code, reason = "the tests of our own network use more of it")]
#[path = "../../../net/tests/net/proxy.rs"]
mod proxy;
mod sites;
mod stand_in;
mod superlink;
#[path = "../../../net/tests/net/world.rs"]
mod world;

use crate::deployment::{Deployment, OneProcess};
use crate::outcome::Outcome;

/// A federation from its first round to its last, with what has to be true of it wherever it runs.
type Case = fn(&dyn Deployment) -> Outcome;

/// Holds a case on a network against the same case in one process.
fn check(case: Case, far: &dyn Deployment) {
    case(&OneProcess).expect_same(&case(far));
}

/// Makes a test of each case for each network.
macro_rules! on_every_network {
    ($($case:path as $name:ident,)+) => {
        mod on_loopback {
            $(#[test]
            fn $name() {
                crate::check($case, &crate::loopback::Loopback);
            })+
        }

        mod at_a_superlink {
            $(#[test]
            #[ignore = "needs Flower's SuperLink: tools/test-flower"]
            fn $name() {
                crate::check($case, &*crate::superlink::SuperLink::shared());
            })+
        }
    };
}

on_every_network! {
    crate::cases::methods::fedavg as fedavg,
    crate::cases::methods::safl_per_client as safl_per_client,
    crate::cases::methods::fedfrozen as fedfrozen,
    crate::cases::methods::forgetting as scaffold_forgets_its_corrections,
    crate::cases::methods::scaffold as scaffold,
    crate::cases::methods::fedper as fedper,
    crate::cases::methods::fedbabu as fedbabu_adapts_before_it_is_scored,
    crate::cases::methods::feddyn as feddyn_takes_failed_rounds_back,
    crate::cases::methods::lossy as lossy_encodings_with_residuals,
    crate::cases::methods::trainer_settings as settings_of_a_trainer,
    crate::cases::questions::every_question as every_question_of_the_trait,
    crate::cases::absence::away as a_client_that_is_away_for_a_round,
    crate::cases::absence::vanished as a_client_that_vanishes_for_a_round,
    crate::cases::absence::restarted as sites_that_are_started_again_between_rounds,
    crate::cases::private::example_level as a_private_federation,
    crate::cases::one_hot::counts as one_hot_updates_show_who_counted_and_how_often,
}

/// The stand-in is tried with what keeps most state, and with a network that damages what it carries: the
/// coordinator and its nodes outlive it, and it costs no bit.
mod at_a_stand_in {
    use crate::proxy::FaultPlan;
    use crate::stand_in::StandIn;

    #[test]
    fn scaffold() {
        crate::check(crate::cases::methods::scaffold, &StandIn::over(FaultPlan::CALM));
    }

    #[test]
    fn settings_of_a_trainer() {
        crate::check(crate::cases::methods::trainer_settings, &StandIn::over(FaultPlan::CALM));
    }

    #[test]
    fn sites_that_are_started_again_between_rounds() {
        crate::check(crate::cases::absence::restarted, &StandIn::over(FaultPlan::CALM));
    }

    #[test]
    fn scaffold_over_a_network_that_damages_what_it_carries() {
        let faults = FaultPlan { seed: 3, apart: 150_000, count: 12 };
        crate::check(crate::cases::methods::scaffold, &StandIn::over(faults));
    }

    /// On demand: `FEDRA_FAULTS` says how many, 200 where it does not, `FEDRA_FAULT_SEED` from which seed.
    #[test]
    #[ignore = "takes minutes: long runs over a bad network, see CONTRIBUTING.md"]
    fn scaffold_for_long_over_a_network_that_damages_what_it_carries() {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let (first, count) = (number("FEDRA_FAULT_SEED").unwrap_or(1), number("FEDRA_FAULTS"));
        for seed in first..first + 10 {
            let count = count.unwrap_or(200) as usize / 10;
            let faults = FaultPlan { seed, apart: 100_000, count };
            crate::check(crate::cases::methods::scaffold, &StandIn::over(faults));
        }
    }
}
