//! A comparison by a program: its runs are carried out in this process, one after another.

use std::cell::{Cell, RefCell};
use std::fs;

use fedra::Overrides;
use fedra::listener::{Event, Listener};
use fedra::study::compare::{CompareListener, CompareRequest, RunEvent, WorkPlan, Workers};

/// Keeps the names of runs that are complete, and stops after so many rounds.
struct Follower {
    complete: RefCell<Vec<String>>,
    rounds: RefCell<u32>,
    /// Complete runs, rounds that are done and all rounds when it began.
    ahead: RefCell<Option<(u64, u64, u64)>>,
    most: u32,
    preparation: Prepared,
}

impl Follower {
    fn new(most: u32) -> Self {
        Self {
            complete: RefCell::default(),
            rounds: RefCell::default(),
            ahead: RefCell::default(),
            most,
            preparation: Prepared::default(),
        }
    }
}

/// Counts what is told while rows are prepared.
#[derive(Default)]
struct Prepared {
    steps: Cell<usize>,
    ends: Cell<usize>,
}

impl Listener for Prepared {
    fn hear(&self, event: Event<'_>) {
        match event {
            Event::Preparing(_) => self.steps.set(self.steps.get() + 1),
            Event::Prepared => self.ends.set(self.ends.get() + 1),
            Event::Note(_)
            | Event::Warning(_)
            | Event::Round(_)
            | Event::Model(..)
            | Event::End => {}
        }
    }
}

impl CompareListener for Follower {
    fn hear(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Begin { complete, done, rounds, .. } => {
                *self.ahead.borrow_mut() = Some((complete, done, rounds));
            }
            RunEvent::Round(..) => *self.rounds.borrow_mut() += 1,
            RunEvent::Complete(run, told) => {
                assert!(told.starts_with("round 2/2  loss "), "{told}");
                self.complete.borrow_mut().push(run.to_owned());
            }
            RunEvent::Failed(run, reason) => panic!("{run}: {reason}"),
            RunEvent::Within(..) | RunEvent::End => {}
        }
    }

    fn preparation(&self) -> &dyn Listener {
        &self.preparation
    }

    fn stops(&self) -> bool {
        *self.rounds.borrow() >= self.most
    }
}

#[test]
fn runs_in_this_process_are_compared_and_a_stopped_comparison_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tiny.toml");
    fs::write(&file, include_str!("../tiny.toml")).unwrap();
    let plan = WorkPlan::new(&CompareRequest {
        files: vec![file],
        overrides: Overrides::default().set("federation.rounds=2"),
        seeds: Some(2),
        sweeps: vec!["method.name=fedavg,fedadam".to_owned()],
        ..CompareRequest::default()
    })
    .unwrap();
    let out = place.path().join("out");
    let compare =
        |follower: &Follower| fedra::compare(&plan, &out, &Workers::Here, follower).unwrap();
    let stopped = Follower::new(3);
    assert!(compare(&stopped).is_none());
    assert_eq!(*stopped.ahead.borrow(), Some((0, 0, 8)));
    assert_eq!(*stopped.complete.borrow(), ["fedavg seed 3"]);
    // Both variants with the first seed, and the rows of the second once.
    assert!(stopped.preparation.steps.get() > 0);
    assert_eq!(stopped.preparation.ends.get(), 3);

    let follower = Follower::new(u32::MAX);
    let compared = compare(&follower).expect("nobody stops it");
    let others = ["fedavg seed 4", "fedadam seed 3", "fedadam seed 4"];
    assert_eq!(*follower.complete.borrow(), others);
    assert_eq!(*follower.ahead.borrow(), Some((1, 3, 8)));
    // One round of the second run was complete when the comparison stopped.
    assert_eq!(*follower.rounds.borrow(), 5);
    assert!(compared.failures.is_empty());
    assert_eq!(compared.comparison.seeds, [3, 4]);
    assert_eq!(compared.comparison.variants.len(), 2);
    assert!(out.join("compare.md").exists());
}
