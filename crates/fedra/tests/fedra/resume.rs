//! A run with a method of one's own, stopped by its listener and gone on with.

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fedra::client::Observer;
use fedra::engine::{Arrival, ClientInfo, Recipe, RoundProgress, ServerRule};
use fedra::listener::{Event, Rounds};
use fedra::{Ending, Experiment, Listener, Output, Overrides, Resumed, Silent};
use fedra_plan::Round;

/// Stops after the first round.
#[derive(Default)]
struct Impatient {
    rounds: Cell<u32>,
}

impl Listener for Impatient {
    fn hear(&self, event: Event<'_>) {
        match event {
            Event::Round(_) => self.rounds.set(self.rounds.get() + 1),
            Event::Model(completed, model) => {
                assert_eq!(completed, self.rounds.get());
                assert!(!model.is_empty());
            }
            Event::Note(_)
            | Event::Warning(_)
            | Event::Preparing(_)
            | Event::Prepared
            | Event::End => {}
        }
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        assert_eq!(
            (rounds.label, rounds.done, rounds.rounds, rounds.clients.len()),
            ("halved", 0, 3, 3)
        );
        Arc::new(fedra::client::Silent)
    }

    fn stops(&self) -> bool {
        self.rounds.get() > 0
    }
}

/// The server takes a share of the step that the clients propose.
fn experiment(rate: f32) -> Experiment {
    let experiment = Experiment::from_toml(include_str!("../tiny.toml"), &Overrides::default())
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
    let refused = fedra::resume(&parts, &fedra::Machine::default(), &Silent)
        .expect_err("no file has the method");
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

/// Removes the run's folder after the first round.
struct Remover<'a> {
    folder: &'a std::path::Path,
    rounds: Cell<u32>,
}

impl Listener for Remover<'_> {
    fn hear(&self, event: Event<'_>) {
        if let Event::Round(_) = event {
            self.rounds.set(self.rounds.get() + 1);
            fs::remove_dir_all(self.folder).expect("it is there once");
        }
    }

    fn begin(&self, _rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        Arc::new(fedra::client::Silent)
    }

    fn stops(&self) -> bool {
        false
    }
}

#[test]
fn a_run_whose_folder_is_removed_stops_at_once_and_does_not_say_that_it_can_be_resumed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("van");
    let remover = Remover { folder: &folder, rounds: Cell::new(0) };
    let error = fedra::run(&experiment(0.5), &Output::new(&folder), &remover).unwrap_err();
    assert_eq!(remover.rounds.get(), 1);
    let kept = error.breakdown().expect("it had begun");
    assert!(kept.is_gone && kept.rounds == 0, "{kept}");
    assert_eq!(kept.to_string(), format!("no round is kept: {} is gone", folder.display()));
    assert!(!folder.exists(), "it is not made again");
}

/// A private experiment; the method has a name of its own for the listener above.
fn private() -> Experiment {
    let text = include_str!("../tiny.toml").to_owned() + "\n[privacy]\nepsilon = 8\n";
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

/// Stops between two steps, once so many have been heard of.
#[derive(Default)]
struct Steps {
    most: usize,
    heard: AtomicUsize,
}

impl Observer for Steps {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, progress: &RoundProgress) {
        assert!(progress.clients_done <= progress.clients, "{progress:?}");
        assert!(progress.steps == 0 || progress.steps_done <= progress.steps, "{progress:?}");
        self.heard.fetch_add(1, Ordering::SeqCst);
    }

    fn stops(&self) -> bool {
        self.heard.load(Ordering::SeqCst) >= self.most
    }
}

/// Stops a run within a round.
struct Sudden(Arc<Steps>);

impl Sudden {
    fn after(most: usize) -> Self {
        Self(Arc::new(Steps { most, heard: AtomicUsize::new(0) }))
    }

    fn heard(&self) -> usize {
        self.0.heard.load(Ordering::SeqCst)
    }
}

impl Listener for Sudden {
    fn begin(&self, _rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        Arc::clone(&self.0) as Arc<dyn Observer>
    }

    fn stops(&self) -> bool {
        self.0.stops()
    }
}

/// A run that is stopped between any two steps of any round continues to the same bytes.
fn check_stopped_anywhere(more: &str) {
    let tiny = include_str!("../tiny.toml").replace("validation = 0.0", "validation = 0.2");
    let tiny = tiny.replace("batch = 8", "batch = 4").replace("blocks = 2", "blocks = 3");
    let experiment =
        Experiment::from_toml(&(tiny + more), &Overrides::default()).expect("it is legal");
    let place = tempfile::tempdir().expect("there is room");
    let whole = place.path().join("whole");
    let listener = Sudden::after(usize::MAX);
    let ending = fedra::run(&experiment, &Output::new(&whole), &listener).expect("it runs");
    ending.complete().expect("nobody stops it");
    let all = listener.heard();
    assert!(!whole.join("status.json").exists(), "it goes with the run");
    let file = |folder: &std::path::Path, name: &str| fs::read(folder.join(name)).ok();
    let mut interrupted = 0;
    // In the first round, in later ones, in an evaluation, and while the last model is scored.
    for after in [2, all / 4, all / 2, 2 * all / 3, all - 3, all - 1] {
        let parts = place.path().join(after.to_string());
        let ending = fedra::run(&experiment, &Output::new(&parts), &Sudden::after(after));
        let ending = ending.expect("it runs");
        // Threads that are at work take their step to its end: the last of all may be among these.
        if let Ending::Interrupted { rounds, of } = ending {
            interrupted += 1;
            let log = fs::read_to_string(parts.join("rounds.jsonl")).unwrap_or_default();
            assert_eq!((log.lines().count(), of), (rounds as usize, 3), "{more}, after {after}");
            let resumed =
                fedra::resume(&parts, &fedra::Machine::default(), &Silent).expect("it goes on");
            assert!(matches!(resumed, Resumed::WentOn(Ending::Complete(_))), "{more}");
        }
        for name in ["model/model.safetensors", "ledger.jsonl"] {
            assert!(file(&parts, name) == file(&whole, name), "{more}: {name}, after {after}");
        }
    }
    assert!(interrupted >= 4, "{more}: {interrupted} of 6 were interrupted");
}

#[test]
fn a_run_that_is_stopped_between_any_two_steps_goes_on_to_the_same_bytes() {
    check_stopped_anywhere("\n[method]\nname = \"scaffold\"\n");
    check_stopped_anywhere("\n[method]\nname = \"safl\"\nk = 1\n");
    check_stopped_anywhere("\n[method]\nname = \"fedper\"\n");
}

#[test]
fn so_does_a_private_one_and_it_spends_nothing_twice() {
    check_stopped_anywhere("\n[privacy]\nepsilon = 8\n");
}

#[test]
fn so_does_one_whose_clients_wait_for_each_other_at_a_cut() {
    for mode in ["mode = \"sequential\"", "mode = \"batched\"", "average_every = 1"] {
        check_stopped_anywhere(&format!("\n[split]\n{mode}\n"));
    }
}

#[test]
fn a_round_that_would_be_counted_twice_is_finished_before_the_run_stops() {
    let tiny = include_str!("../tiny.toml").replace("blocks = 2", "blocks = 3");
    let noise = "noise = { kind = \"clipped\", norm = 8.0, gradient_norm = 0.01, sigma = 16.0 }";
    let text = format!("{tiny}\n[split]\nends = \"frozen\"\n{noise}\n[privacy]\ndelta = 1e-3\n");
    let experiment = Experiment::from_toml(&text, &Overrides::default()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let (whole, parts) = (place.path().join("whole"), place.path().join("parts"));
    fedra::run(&experiment, &Output::new(&whole), &Silent).unwrap().complete().unwrap();
    let ending = fedra::run(&experiment, &Output::new(&parts), &Sudden::after(2)).unwrap();
    assert!(matches!(ending, Ending::Interrupted { rounds: 1, of: 3 }), "{ending:?}");
    fedra::resume(&parts, &fedra::Machine::default(), &Silent).unwrap();
    for name in ["ledger.jsonl", "model/model.safetensors"] {
        let file = |folder: &std::path::Path| fs::read(folder.join(name)).unwrap();
        assert!(file(&parts) == file(&whole), "{name}");
    }
}
