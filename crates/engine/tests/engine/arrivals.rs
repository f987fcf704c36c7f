//! Rounds to which too few come: tried again, counted, and in the end an error.

use std::cell::Cell;
use std::rc::Rc;

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::{ByteCount, Probe, Round, Rule};
use fedra_seed::Seed;

const EXAMPLES: [u64; 5] = [40, 70, 100, 10, 30];

fn failing(share: f64) -> Conditions {
    Conditions { fail: share, ..Conditions::default() }
}

fn federation(recipe: Recipe) -> Federation {
    Federation::new(recipe, layout(), initial(), Seed(1)).expect("a whole model")
}

/// A fleet in which client 2 has no power so many times from a round on.
fn powerless(from: u32, times: u32) -> (Quadratics, Rc<Cell<u32>>) {
    let left = Rc::new(Cell::new(times));
    let mut fleet = Quadratics::new(&EXAMPLES);
    let counter = Rc::clone(&left);
    fleet.tamper = Some(Box::new(move |order, reply| {
        if order.client == ClientId(2) && order.round.0 >= from && counter.get() > 0 {
            counter.set(counter.get() - 1);
            return vec![Outcome::Failed("no power".into())];
        }
        vec![Outcome::Finished(reply)]
    }));
    (fleet, left)
}

/// A report without what a repeated round may say more.
fn essence(report: &RoundReport) -> RoundReport {
    RoundReport {
        seconds: 0.0,
        slowest: 0.0,
        phases: None,
        bytes: Bytes::default(),
        effort: 0,
        failed_attempts: Vec::new(),
        ..report.clone()
    }
}

#[test]
fn a_run_in_which_everybody_fails_is_an_error_and_changes_nothing() {
    let recipe = Recipe { conditions: failing(1.0), ..recipe("fedadam", "{}") };
    let (mut federation, mut fleet) = (federation(recipe), Quadratics::new(&EXAMPLES));
    let mut reports = Reports::default();
    let error = federation.run(&mut fleet, &mut [&mut reports], 2, &|| false);
    let error = error.expect_err("nobody came").to_string();
    let told = "round 1 was given up after 4 attempts: at most 0 of 5 clients sent an update \
                (client-0: failed (simulated)), expected at least 1 (federation.min_arrivals)";
    assert!(error.starts_with(told), "{error}");
    assert_eq!((federation.completed(), reports.0.len()), (Round(0), 0));
    assert_eq!((federation.model(), federation.server()), (&initial(), &ServerState::default()));
}

#[test]
fn rounds_may_be_empty_if_the_file_says_so_but_not_all_of_them() {
    let mut recipe = recipe("fedadam", "{}");
    (recipe.min_arrivals, recipe.conditions) = (MinArrivals::Count(0), failing(1.0));
    let mut nobody = federation(recipe.clone());
    let mut reports = Reports::default();
    let mut fleet = Quadratics::new(&EXAMPLES);
    let error = nobody.run(&mut fleet, &mut [&mut reports], 2, &|| false);
    let error = error.expect_err("nobody ever came").to_string();
    assert!(error.contains("no client's update arrived in any of the 2 rounds"), "{error}");
    assert_eq!(nobody.model(), &initial());
    assert_eq!((reports.0[1].loss, reports.0[1].changed, reports.0[1].effort), (None, 0, 0));
    assert!(reports.0[1].blocks.is_empty());
    // It was no success before, and it is none when it is asked for again.
    assert!(nobody.run(&mut fleet, &mut [], 2, &|| false).is_err());

    recipe.conditions = failing(0.7);
    let (_, reports) = run(recipe, &mut Quadratics::new(&EXAMPLES), 12);
    let arrived: Vec<usize> = reports.iter().map(|report| report.arrived.len()).collect();
    assert!(arrived.contains(&0) && arrived.iter().any(|count| *count > 0), "{arrived:?}");
    assert!(reports.iter().all(|report| report.failed_attempts.is_empty()));
}

#[test]
fn a_repeated_round_has_a_new_cohort_and_new_luck_and_its_first_attempt_is_as_ever() {
    let mut recipe = recipe("fedavg", "{}");
    (recipe.sampler, recipe.conditions) = (Sampler::Uniform(3), failing(0.4));
    recipe.min_arrivals = MinArrivals::Count(0);
    let (_, once) = run(recipe.clone(), &mut Quadratics::new(&EXAMPLES), 12);
    (recipe.min_arrivals, recipe.retries) = (MinArrivals::Share(1.0), 100);
    let (_, reports) = run(recipe, &mut Quadratics::new(&EXAMPLES), 12);
    let mut differ = 0;
    for (report, once) in reports.iter().zip(&once) {
        assert_eq!((report.arrived.len(), report.failed.len()), (3, 0));
        let first = match report.failed_attempts.first() {
            Some(failed) => (&failed.cohort, &failed.failed),
            None => (&report.cohort, &report.failed),
        };
        assert_eq!(first, (&once.cohort, &once.failed));
        for failed in &report.failed_attempts {
            assert_eq!((failed.needed, failed.cohort.len()), (3, 3));
            assert_eq!(failed.arrived.len() + failed.failed.len(), 3);
            differ += usize::from(failed.cohort != report.cohort);
        }
    }
    assert!(differ > 3, "{differ} cohorts of failed attempts differ");
}

#[test]
fn a_failed_attempt_leaves_nothing_behind_but_its_bill() {
    let settings = r#"{"k":1,"selector":"corrected","mask":"per_client"}"#;
    // A measurement in vain must not bring the last one nearer.
    let settling = r#"{"k":1,"settle":2}"#;
    for (name, settings, encoding) in [
        ("fedavg", "{}", Encoding::TopK { share: 0.25, feedback: true }),
        ("scaffold", "{}", Encoding::F32),
        ("feddyn", "{}", Encoding::F32),
        ("fedper", "{}", Encoding::Int8 { feedback: true }),
        ("fedadam", "{}", Encoding::F32),
        ("safl", settings, Encoding::F32),
        ("safl", settling, Encoding::F32),
    ] {
        let mut recipe = recipe(name, settings);
        recipe.work.encoding = encoding;
        recipe.evaluation.attention = true;
        recipe.min_arrivals = MinArrivals::Share(1.0);
        let mut undisturbed = Quadratics::new(&EXAMPLES);
        let (expected, calm) = run(recipe.clone(), &mut undisturbed, 5);
        // Twice in round 1, and nothing after.
        let (mut fleet, _) = powerless(1, 2);
        let (found, reports) = run(recipe, &mut fleet, 5);
        assert_eq!(found.model(), expected.model(), "{name}");
        assert_eq!(found.server(), expected.server(), "{name}");
        assert_eq!(fleet.state(), undisturbed.state(), "{name}");
        let (left, right): (Vec<_>, Vec<_>) =
            (reports.iter().map(essence).collect(), calm.iter().map(essence).collect());
        assert_eq!(left, right, "{name}");
        for (report, calm) in reports.iter().zip(&calm) {
            let failed = &report.failed_attempts;
            assert_eq!(failed.len(), if report.round == Round(1) { 2 } else { 0 }, "{name}");
            let (mut bytes, mut effort) = (calm.bytes, calm.effort);
            for failed in failed {
                assert_eq!(failed.arrived, [0, 1, 3, 4].map(ClientId), "{name}");
                assert_eq!((&failed.failed[0].reason[..], failed.needed), ("no power", 5));
                // It is sent the same again: nobody keeps what it received in vain.
                assert_eq!(failed.bytes.down, calm.bytes.down, "{name}");
                assert!(failed.bytes.up < calm.bytes.up && failed.effort < calm.effort);
                bytes += failed.bytes;
                effort += failed.effort;
            }
            assert_eq!((report.bytes, report.effort), (bytes, effort), "{name}");
        }
    }
}

#[test]
fn a_run_that_stopped_goes_on_to_the_same_bits() {
    for name in ["fedavg", "scaffold", "fedyogi", "safl"] {
        let mut recipe = recipe(name, if name == "safl" { r#"{"k":1}"# } else { "{}" });
        recipe.min_arrivals = MinArrivals::Count(5);
        let mut undisturbed = Quadratics::new(&EXAMPLES);
        let (expected, calm) = run(recipe.clone(), &mut undisturbed, 5);

        let directory = tempfile::tempdir().expect("a place to write");
        let (mut fleet, _) = powerless(3, 4);
        let mut first = federation(recipe.clone());
        first.keep_checkpoints(directory.path());
        let mut reports = Reports::default();
        let error = first.run(&mut fleet, &mut [&mut reports], 5, &|| false);
        let error = error.expect_err("client 2 has no power").to_string();
        let told = "round 4 was given up after 4 attempts: at most 4 of 5 clients sent an update \
                    (client-2: no power), expected at least 5";
        assert!(error.starts_with(told), "{error}");
        assert_eq!(first.completed(), Round(3));

        // It continues with more retries than it had: no complete round depends on them.
        let mut fleet = Quadratics::new(&EXAMPLES);
        let mut second = federation(Recipe { retries: 9, ..recipe });
        assert!(second.resume(directory.path(), &mut fleet).expect("a checkpoint"));
        second.run(&mut fleet, &mut [&mut reports], 5, &|| false).expect("power is back");
        assert_eq!(second.model(), expected.model(), "{name}");
        assert_eq!(second.server(), expected.server(), "{name}");
        assert_eq!(fleet.state(), undisturbed.state(), "{name}");
        for (found, expected) in reports.0.iter().zip(&calm) {
            assert_eq!(found.bytes, expected.bytes, "{name}");
            assert_eq!(essence(found), essence(expected), "{name}");
        }
    }
}

#[test]
fn a_run_can_be_stopped_between_two_attempts() {
    let recipe = Recipe { conditions: failing(1.0), retries: 1000, ..recipe("fedavg", "{}") };
    let mut federation = federation(recipe);
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) == 5;
    federation.run(&mut Quadratics::new(&EXAMPLES), &mut [], 2, &stop).expect("it was stopped");
    assert_eq!((federation.completed(), asked.get()), (Round(0), 6));
}

#[test]
fn a_cohort_that_is_too_small_is_drawn_again_and_costs_nothing() {
    let mut recipe = recipe("fedavg", "{}");
    (recipe.sampler, recipe.retries) = (Sampler::Poisson(0.2), 50);
    recipe.min_arrivals = MinArrivals::Count(2);
    let clients: Vec<ClientId> = (0..5).map(ClientId).collect();
    let (_, reports) = run(recipe.clone(), &mut Quadratics::new(&EXAMPLES), 8);
    for report in &reports {
        assert!(report.cohort.len() >= 2);
        assert_eq!(report.cohort, recipe.cohort(Seed(1), report.round, &clients));
        assert!(report.failed_attempts.iter().all(|failed| failed.cohort.len() < 2));
        assert!(report.failed_attempts.iter().all(|failed| failed.bytes == Bytes::default()));
    }
    assert!(reports.iter().any(|report| report.failed_attempts.len() > 1));
    // The first draw is the sampler's own, whatever may follow it.
    let (all, round) = (Recipe { sampler: Sampler::Uniform(3), ..recipe }, Round(4));
    assert_eq!(all.cohort(Seed(1), round, &clients), all.sampler.draw(Seed(1), round, &clients));
}

#[test]
fn reports_tell_what_happened_and_not_what_was_ordered() {
    // Even clients choose block 0, odd ones block 1; the odd ones have no power.
    let odd = |order: &TrainRequest| order.client.0 % 2 == 1;
    let (learns, probe) = (Rule::Chosen, Some(Probe::GradientNorm));
    let selection = Selection { k: 1, probe, ..Selection::default() };
    let base = Recipe { learns, selection, masks: Masks::PerClient, ..recipe("fedavg", "{}") };
    let (_, whole) = run(base.clone(), &mut Quadratics::new(&EXAMPLES), 1);
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(move |order, reply| {
        let failed = Outcome::Failed("no power".into());
        vec![if odd(order) { failed } else { Outcome::Finished(reply) }]
    }));
    let (after, reports) = run(base, &mut fleet, 1);
    assert_eq!(whole[0].blocks, [0, 1].into());
    assert_eq!(reports[0].blocks, [0].into());
    assert_eq!(changed(&initial(), after.model()).blocks(), [0].into());
    // Block 0 lies below block 1, of four weights each, and the head has two. Those with block 0
    // pay 2 * 10 + 4 an example, the others one forward pass through block 0 and 2 * 6 + 4.
    let probing = |report: &RoundReport| report.selection.as_ref().expect("chosen").effort;
    assert_eq!(reports[0].effort - probing(&reports[0]), (40 + 100 + 30) * 24);
    let both = (40 + 100 + 30) * 24 + (70 + 10) * (4 + 16);
    assert_eq!(whole[0].effort - probing(&whole[0]), both);
}

#[test]
fn effort_counts_the_steps_that_were_made() {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(|order, reply| {
        // Client 2 stopped after one step of ten examples and says so.
        let mut payload = reply.payload.clone();
        if order.client == ClientId(2) {
            let expected = fedra_wire::Expectation {
                layout: &layout(),
                kind: fedra_wire::Kind::Change,
                encoding: Encoding::F32,
                round: order.round,
                client: order.client,
                scope: None,
            };
            let (header, change) = fedra_wire::decode(&payload, &expected).expect("honest");
            let header = fedra_wire::Header { steps: 1, ..header };
            payload = fedra_wire::encode(&layout(), &header, &change, None).expect("finite");
        }
        vec![Outcome::Finished(Reply { payload, ..reply })]
    }));
    let (_, reports) = run(recipe("fedavg", "{}"), &mut fleet, 1);
    // Three products of ten weights for an example; the table is looked up.
    assert_eq!(reports[0].effort, 30 * (40 + 70 + 10 + 10 + 30));
    assert!(reports[0].bytes.up > ByteCount(0));
}
