//! Code of a program in the place of some of a method's choices.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fedra::engine::{ClientId, ClientInfo, EngineError, OwnChoices, OwnParts, OwnRanking, OwnStep};
use fedra::folder::scratch::ScratchFolder;
use fedra::listener::Event;
use fedra::plan::Round;
use fedra::{Ending, Experiment, Listener, Output, Overrides, Silent, Summary};

const TINY: &str = include_str!("../tiny.toml");

/// Momentum as `ServerRule` has it, the last client of those there are, and blocks from the top.
#[derive(Debug, Default)]
struct Own {
    choices: OwnChoices,
    fails: AtomicBool,
}

impl OwnParts for Own {
    fn makes(&self) -> OwnChoices {
        self.choices
    }

    fn cohort(&self, _round: Round, clients: &[ClientInfo]) -> Result<Vec<ClientId>, EngineError> {
        Ok(clients.iter().rev().take(1).map(|client| client.id).collect())
    }

    fn order(&self, asked: &OwnRanking<'_>) -> Result<Vec<u16>, EngineError> {
        let mut order = asked.usual.to_vec();
        order.sort_unstable();
        order.reverse();
        Ok(order)
    }

    fn change(&self, step: OwnStep<'_>) -> Result<(), EngineError> {
        if self.fails.swap(false, Ordering::Relaxed) {
            return Err(EngineError::Stopped);
        }
        for (id, change) in step.change.iter_mut() {
            let state = step.state.get_mut(id).expect("every change has a state");
            for (d, m) in change.iter_mut().zip(state) {
                *m = 0.5 * *m + *d;
                *d = *m;
            }
        }
        Ok(())
    }
}

fn experiment(more: &str) -> Experiment {
    Experiment::from_toml(&format!("{TINY}{more}"), &Overrides::default()).unwrap()
}

fn with(experiment: Experiment, choices: OwnChoices) -> Experiment {
    experiment.with_parts(Arc::new(Own { choices, ..Own::default() })).unwrap()
}

fn run(experiment: &Experiment) -> (Vec<u8>, Summary) {
    let scratch = ScratchFolder::new().unwrap();
    let ending = fedra::run(experiment, &Output::new(scratch.path()), &Silent).unwrap();
    let model = fs::read(scratch.path().join("model/model.safetensors")).unwrap();
    (model, ending.complete().expect("nobody stops it"))
}

const CHANGE: OwnChoices = OwnChoices { cohort: false, order: false, change: true };

#[test]
fn a_server_rule_of_ones_own_has_the_bits_of_the_one_it_repeats() {
    let own = run(&with(experiment(""), CHANGE));
    let built_in = run(&experiment("\n[method]\nname = \"fedavgm\"\nbeta = 0.5\n"));
    assert_eq!(own.0, built_in.0);
    assert_ne!(own.0, run(&experiment("")).0);
    assert_eq!(own.1.method, "fedavg-with-own-parts");
}

/// Asks to stop behind the first round.
#[derive(Default)]
struct Impatient(Cell<bool>);

impl Listener for Impatient {
    fn hear(&self, event: Event<'_>) {
        if let Event::Model(..) = event {
            self.0.set(true);
        }
    }

    fn stops(&self) -> bool {
        self.0.get()
    }
}

#[test]
fn what_a_rule_remembers_is_in_the_checkpoint_and_a_failure_leaves_the_round_before() {
    let whole = run(&with(experiment(""), CHANGE)).0;
    let scratch = ScratchFolder::new().unwrap();
    let output = Output::new(scratch.path());
    let stopped = with(experiment(""), CHANGE);
    let ending = fedra::run(&stopped, &output, &Impatient::default()).unwrap();
    assert!(matches!(ending, Ending::Interrupted { rounds: 1, .. }), "{ending:?}");
    // Once more it stops, now within the round.
    let fails = Own { choices: CHANGE, fails: AtomicBool::new(true) };
    let fails = experiment("").with_parts(Arc::new(fails)).unwrap();
    let told = fedra::resume_with(&fails, scratch.path(), &Silent).unwrap();
    assert!(format!("{told:?}").contains("Interrupted { rounds: 1"), "{told:?}");
    fedra::resume_with(&stopped, scratch.path(), &Silent).unwrap();
    assert_eq!(fs::read(scratch.path().join("model/model.safetensors")).unwrap(), whole);
}

#[test]
fn a_sampler_and_a_selector_of_ones_own_decide_who_sends_what() {
    let safl = "\n[method]\nname = \"safl\"\nk = 1\n";
    let choices = OwnChoices { cohort: true, order: true, change: false };
    let scratch = ScratchFolder::new().unwrap();
    let own = with(experiment(safl), choices);
    fedra::run(&own, &Output::new(scratch.path()), &Silent).unwrap();
    let rounds = fs::read_to_string(scratch.path().join("rounds.jsonl")).unwrap();
    for line in rounds.lines() {
        let round: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(round["cohort"].as_array().unwrap().len(), 1, "{line}");
        assert_eq!(round["blocks"], serde_json::json!([1]), "{line}");
    }
}

#[test]
fn code_is_refused_where_a_recipe_leaves_it_nothing_or_a_guarantee_does_not_cover_it() {
    let refused = |more: &str, choices: OwnChoices| {
        let own = Own { choices, ..Own::default() };
        experiment(more).with_parts(Arc::new(own)).unwrap_err().to_string()
    };
    let order = OwnChoices { order: true, ..OwnChoices::default() };
    assert!(
        refused("", order)
            .starts_with("method.name: found code of a program, expected a method that selects")
    );
    let adam = "\n[method]\nname = \"fedadam\"\n";
    assert!(refused(adam, CHANGE).contains("a method whose server adds the mean change"));
    let private = "\n[privacy]\nunit = \"example\"\nnoise = 1.0\ndelta = 1e-3\nclip = 1.0\n";
    let cohort = OwnChoices { cohort: true, ..OwnChoices::default() };
    assert!(refused(private, cohort).starts_with("privacy: found code of a program"));
}
