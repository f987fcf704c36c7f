//! Code of a program in the place of some of a method's choices.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fedra::engine::{
    ClientId, ClientInfo, EngineError, OwnAnswers, OwnChoices, OwnParts, OwnRanking, OwnStep,
    OwnTruth,
};
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

    /// The share of rows of which every code is right, as `exact` counts them; none of rows with one label.
    fn score(&self, answers: OwnAnswers) -> Result<Option<f64>, EngineError> {
        if self.fails.swap(false, Ordering::Relaxed) {
            return Err(EngineError::Stopped);
        }
        let OwnAnswers { truth, probabilities, labels } = answers;
        let truth = match truth {
            OwnTruth::Several(truth) => truth,
            OwnTruth::One(truth) => {
                assert_eq!(truth.len() * labels, probabilities.len());
                return Ok(None);
            }
        };
        let rows = probabilities.chunks_exact(labels).zip(truth.chunks_exact(labels));
        let is_exact = |(probabilities, truth): &(&[f64], &[u8])| {
            probabilities.iter().zip(*truth).all(|(it, is_right)| (*it > 0.5) == (*is_right == 1))
        };
        let count = truth.len() / labels;
        Ok(Some(rows.filter(is_exact).count() as f64 / count as f64))
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

const CHANGE: OwnChoices = OwnChoices { cohort: false, order: false, change: true, score: false };
const SCORE: OwnChoices = OwnChoices { cohort: false, order: false, change: false, score: true };

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
    let choices = OwnChoices { cohort: true, order: true, ..OwnChoices::default() };
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
fn a_score_of_ones_own_judges_every_set_and_changes_no_bit() {
    let codes = TINY
        .replace("\"concepts\"", "\"diagnosis\"")
        .replace("validation = 0.0", "validation = 0.2");
    let codes = format!("{codes}\n[evaluate]\nbest = true\n");
    let codes = Experiment::from_toml(&codes, &Overrides::default()).unwrap();
    let (plain, _) = run(&codes);
    let scratch = ScratchFolder::new().unwrap();
    let own = with(codes, SCORE);
    let ending = fedra::run(&own, &Output::new(scratch.path()), &Silent).unwrap();
    let summary = ending.complete().unwrap();
    assert_eq!(fs::read(scratch.path().join("model/model.safetensors")).unwrap(), plain);
    assert_eq!(summary.method, "fedavg-with-own-score");
    let rounds = fs::read_to_string(scratch.path().join("rounds.jsonl")).unwrap();
    let mut sets = BTreeSet::new();
    for line in rounds.lines() {
        let round: serde_json::Value = serde_json::from_str(line).unwrap();
        for set in round["scores"].as_array().unwrap() {
            sets.insert(set["on"].as_str().unwrap().to_owned());
            for scores in set["each"].as_array().unwrap() {
                let scores = &scores["scores"];
                assert_eq!(scores["own_score"], scores["exact"], "{line}");
            }
        }
    }
    let all = ["central_test", "client_test", "client_validation"];
    assert_eq!(sets.into_iter().collect::<Vec<_>>(), all);
    assert_eq!(summary.score.unwrap().name, "own_score");
    assert_eq!(summary.best.unwrap().name, "own_score");
}

#[test]
fn a_score_that_fails_leaves_the_round_before() {
    let own = Own { choices: SCORE, fails: AtomicBool::new(true) };
    let own = experiment("").with_parts(Arc::new(own)).unwrap();
    let scratch = ScratchFolder::new().unwrap();
    let ending = fedra::run(&own, &Output::new(scratch.path()), &Silent).unwrap();
    assert!(matches!(ending, Ending::Interrupted { rounds: 0, .. }), "{ending:?}");
    fedra::resume_with(&own, scratch.path(), &Silent).unwrap();
    let resumed = fs::read(scratch.path().join("model/model.safetensors")).unwrap();
    assert_eq!(resumed, run(&experiment("")).0);
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
    let cut = "\n[split]\nfirst = 1\nlast = 0\n";
    assert!(refused(cut, SCORE).starts_with("split: found code of a program"));
    let cohort = OwnChoices { cohort: true, ..OwnChoices::default() };
    assert!(refused(private, cohort).starts_with("privacy: found code of a program"));
}
