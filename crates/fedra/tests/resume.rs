//! A run with a method of one's own, stopped by its listener and gone on with.

use std::cell::Cell;
use std::fs;
use std::sync::Arc;

use fedra::client::Observer;
use fedra::data::Preparing;
use fedra::engine::{ParamValues, Recipe, RoundReport, ServerRule};
use fedra::listener::Rounds;
use fedra::{Ending, Experiment, Listener, Output, Overrides, Resumed, Silent};

/// Stops after the first round.
#[derive(Default)]
struct Impatient {
    rounds: Cell<u32>,
}

impl Listener for Impatient {
    fn note(&self, _line: &str) {}

    fn warn(&self, _line: &str) {}

    fn preparing(&self, _step: &Preparing) {}

    fn prepared(&self) {}

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        assert_eq!(
            (rounds.label, rounds.done, rounds.rounds, rounds.clients.len()),
            ("halved", 0, 3, 3)
        );
        Arc::new(fedra::client::Silent)
    }

    fn round(&self, _report: &RoundReport) {
        self.rounds.set(self.rounds.get() + 1);
    }

    fn model(&self, completed: u32, model: &ParamValues) {
        assert_eq!(completed, self.rounds.get());
        assert!(!model.is_empty());
    }

    fn end(&self) {}

    fn stops(&self) -> bool {
        self.rounds.get() > 0
    }
}

/// The server takes a share of the step that the clients propose.
fn experiment(rate: f32) -> Experiment {
    let experiment = Experiment::from_toml(include_str!("tiny.toml"), &Overrides::default())
        .expect("it is legal");
    let server = ServerRule::Average { rate };
    let recipe = Recipe { method: "halved".to_owned(), server, ..experiment.recipe.clone() };
    experiment.with_recipe(recipe).expect("the name is new")
}

#[test]
fn a_stopped_run_of_ones_own_method_goes_on_to_the_same_model() {
    let place = tempfile::tempdir().unwrap();
    let (whole, parts) = (place.path().join("whole"), place.path().join("parts"));
    let halved = experiment(0.5);
    fedra::run(&halved, &Output::new(&whole), &Silent).unwrap().complete().unwrap();

    let ending = fedra::run(&halved, &Output::new(&parts), &Impatient::default()).unwrap();
    assert!(matches!(ending, Ending::Interrupted { rounds: 1, of: 3 }));
    let refused = fedra::resume(&parts, None, &Silent).expect_err("no file has the method");
    assert!(refused.to_string().starts_with("method.name: found \"halved\""), "{refused}");
    assert!(fedra::resume_with(&experiment(0.25), &parts, &Silent).is_err());

    let resumed = fedra::resume_with(&halved, &parts, &Silent).unwrap();
    assert!(matches!(resumed, Resumed::WentOn(Ending::Complete(_))));
    let model =
        |folder: &std::path::Path| fs::read(folder.join("model/model.safetensors")).unwrap();
    assert!(model(&whole) == model(&parts));
    let again = fedra::resume_with(&halved, &parts, &Silent).unwrap();
    assert!(matches!(again, Resumed::WasComplete(summary) if summary.rounds == 3));
}

/// A private experiment; the method has a name of its own for the listener above.
fn private() -> Experiment {
    let text = include_str!("tiny.toml").to_owned() + "\n[privacy]\nepsilon = 8\n";
    let experiment = Experiment::from_toml(&text, &Overrides::default()).expect("it is legal");
    let recipe = Recipe { method: "halved".to_owned(), ..experiment.recipe.clone() };
    experiment.with_recipe(recipe).expect("the name is new")
}

#[test]
fn a_private_run_that_was_killed_in_a_round_goes_on_to_the_same_model_and_epsilon() {
    let place = tempfile::tempdir().unwrap();
    let (whole, parts) = (place.path().join("whole"), place.path().join("parts"));
    let summary =
        fedra::run(&private(), &Output::new(&whole), &Silent).unwrap().complete().unwrap();
    let ending = fedra::run(&private(), &Output::new(&parts), &Impatient::default()).unwrap();
    assert!(matches!(ending, Ending::Interrupted { rounds: 1, of: 3 }));
    // Killed after the second round was announced: the ledger is ahead of the checkpoint.
    let lines = fs::read_to_string(whole.join("ledger.jsonl")).unwrap();
    let ahead: String = lines.split_inclusive('\n').take(1 + 2 * 3).collect();
    fs::write(parts.join("ledger.jsonl"), ahead).unwrap();
    let resumed = fedra::resume_with(&private(), &parts, &Silent).unwrap();
    let Resumed::WentOn(Ending::Complete(again)) = resumed else { panic!("it is complete") };
    assert_eq!(again.privacy, summary.privacy);
    assert_eq!(fs::read_to_string(parts.join("ledger.jsonl")).unwrap(), lines);
    let model =
        |folder: &std::path::Path| fs::read(folder.join("model/model.safetensors")).unwrap();
    assert!(model(&whole) == model(&parts));
}
