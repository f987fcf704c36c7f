//! What holds for every run: order, bytes, bad luck, interruption.

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::{ByteCount, Layer, Rule};
use fedra_seed::Seed;

const EXAMPLES: [u64; 5] = [40, 70, 100, 10, 30];

#[test]
fn the_order_of_arrival_does_not_matter_and_order_saves_memory() {
    for name in ["fedavg", "scaffold", "fednova", "feddyn"] {
        let mut backwards = Quadratics::new(&EXAMPLES);
        backwards.reversed = true;
        let (left, ordered) = run(recipe(name, "{}"), &mut Quadratics::new(&EXAMPLES), 3);
        let (right, reversed) = run(recipe(name, "{}"), &mut backwards, 3);
        assert_eq!(left.model(), right.model(), "{name}");
        assert_eq!(left.server(), right.server(), "{name}");
        assert!(ordered.iter().all(|report| report.most_updates_held == 1));
        assert!(reversed.iter().all(|report| report.most_updates_held == 5));
    }
}

#[test]
fn reported_bytes_are_the_lengths_of_the_payloads() {
    for encoding in [
        Encoding::F32,
        Encoding::F16,
        Encoding::Bf16,
        Encoding::Int8 { feedback: true },
        Encoding::TopK { share: 0.25, feedback: true },
    ] {
        for name in ["fedavg", "scaffold", "fedper"] {
            let mut fleet = Quadratics::new(&EXAMPLES);
            let mut recipe = recipe(name, "{}");
            recipe.work.encoding = encoding;
            recipe.sampler = Sampler::Uniform(3);
            let (_, reports) = run(recipe, &mut fleet, 4);
            let mut total = Bytes::default();
            for report in &reports {
                total += report.bytes;
            }
            assert_eq!(
                (total.down.0 + total.evaluation.0, total.up.0),
                fleet.seen,
                "{name} {encoding}"
            );
        }
    }
}

#[test]
fn nothing_is_counted_that_went_to_nobody() {
    let examples: Vec<u64> = (0..40).map(|client| 20 + client).collect();
    // The last five of the absent were sent their download and lost afterwards.
    let away = |client: u32| (ClientId(client), client >= 15);
    for (name, settings) in [("fedavg", "{}"), ("scaffold", "{}"), ("safl", r#"{"k":1}"#)] {
        let whole = run(recipe(name, settings), &mut Quadratics::new(&examples), 3).1;
        let mut fleet = Quadratics::new(&examples);
        fleet.away = (0..20).map(away).collect();
        let (_, reports) = run(recipe(name, settings), &mut fleet, 3);
        let mut total = Bytes::default();
        for (report, whole) in reports.iter().zip(&whole) {
            assert_eq!((report.arrived.len(), report.failed.len()), (20, 20), "{name}");
            // What FedAvg would have sent is of the same 25 clients.
            assert_eq!(40 * report.bytes.full_down.0, 25 * whole.bytes.full_down.0, "{name}");
            total += report.bytes;
        }
        let masks: u64 =
            reports.iter().filter_map(|it| it.selection.as_ref()).map(|it| it.masks_down.0).sum();
        assert_eq!(total.down.0 + total.evaluation.0 - masks, fleet.seen.0, "{name}");
    }
}

#[test]
fn who_cannot_be_reached_is_named_when_a_round_is_given_up() {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.away = [(ClientId(1), false)].into();
    let mut recipe = recipe("fedavg", "{}");
    (recipe.min_arrivals, recipe.retries) = (MinArrivals::Count(EXAMPLES.len() as u32), 1);
    let mut federation = Federation::new(recipe, layout(), initial(), Seed(1)).unwrap();
    let told = federation.run(&mut fleet, &mut [], 1, &|| false).unwrap_err().to_string();
    assert!(told.contains("sent an update (client-1: is not there)"), "{told}");
}

#[test]
fn fedavg_in_f32_moves_exactly_what_full_says() {
    for start in [Start::Sent, Start::Shared] {
        let recipe = Recipe { start, ..recipe("fedavg", "{}") };
        let (_, reports) = run(recipe, &mut Quadratics::new(&EXAMPLES), 3);
        for Bytes { up, down, full_up, full_down, .. } in reports.iter().map(|report| report.bytes)
        {
            assert_eq!((up, down), (full_up, full_down));
        }
    }
}

#[test]
fn a_client_downloads_exactly_what_it_lacks() {
    let head = Rule::Layers([Layer::Head].into());
    let recipe = Recipe { learns: head, sampler: Sampler::Uniform(2), ..recipe("fedavg", "{}") };
    let (_, reports) = run(recipe, &mut Quadratics::new(&EXAMPLES), 8);
    let mut seen = std::collections::BTreeSet::new();
    // A header and a bitmap on three lines, the values, a checksum.
    let length = |elements: u64| 96 + 4 * elements + 8;
    for report in &reports {
        let mut expected = 0;
        for client in &report.cohort {
            // A newcomer gets all 16 elements, the others the head that changed meanwhile.
            expected += if seen.insert(*client) { length(16) } else { length(2) };
        }
        assert_eq!(report.bytes.down, ByteCount(expected));
    }
}

#[test]
fn a_dropped_client_is_as_if_it_had_not_been_sampled() {
    // A client that really fails, in rounds 1 and 2, under methods with every kind of state.
    for (name, encoding) in [
        ("fedavg", Encoding::F32),
        ("fedavg", Encoding::TopK { share: 0.25, feedback: true }),
        ("scaffold", Encoding::F32),
        ("feddyn", Encoding::F32),
        ("fedper", Encoding::Int8 { feedback: true }),
        ("fedadam", Encoding::F32),
    ] {
        let base = |mut recipe: Recipe| {
            recipe.work.encoding = encoding;
            recipe
        };
        let gone =
            |order: &TrainRequest| order.client == ClientId(2) && [1, 2].contains(&order.round.0);
        let with = |tamper: Tamper| {
            let mut fleet = Quadratics::new(&EXAMPLES);
            fleet.tamper = Some(tamper);
            let (federation, reports) = run(base(recipe(name, "{}")), &mut fleet, 5);
            (federation.model().clone(), federation.server().clone(), fleet.state(), reports)
        };
        let dropped = with(Box::new(move |order, reply| {
            let failed = Outcome::Failed("no power".into());
            vec![if gone(order) { failed } else { Outcome::Finished(reply) }]
        }));
        let silent =
            with(Box::new(
                move |order, reply| {
                    if gone(order) { Vec::new() } else { vec![Outcome::Finished(reply)] }
                },
            ));
        let refused = with(Box::new(move |order, mut reply| {
            if gone(order) {
                reply.payload.pop();
            }
            vec![Outcome::Finished(reply)]
        }));

        // The run in which it was not there to be sampled.
        let mut fleet = Quadratics::new(&EXAMPLES);
        let mut absent = base(recipe(name, "{}"));
        let away = vec![Away { from: 2, to: Some(3) }];
        absent.conditions.away = [("client-2".to_owned(), away)].into();
        let (federation, _) = run(absent, &mut fleet, 5);
        let expected = (federation.model().clone(), federation.server().clone(), fleet.state());
        for (how, found) in [("dropped", dropped), ("silent", silent), ("refused", refused)] {
            let (model, server, state, reports) = found;
            assert_eq!((model, server, state), expected, "{name} {encoding} {how}");
            let absent = |report: &RoundReport| report.failed.len() + report.refused.len();
            assert_eq!(reports.iter().map(absent).collect::<Vec<_>>(), [0, 1, 1, 0, 0]);
        }
    }
}

#[test]
fn simulated_bad_luck_repeats_and_a_round_closes_with_k_of_n() {
    let slow = Slow { share: 0.5, factor: 8.0 };
    let conditions = Conditions { fail: 0.2, slow, close_with: Some(2), ..Conditions::default() };
    let recipe = Recipe { conditions, ..recipe("scaffold", "{}") };
    let (left, reports) = run(recipe.clone(), &mut Quadratics::new(&EXAMPLES), 10);
    let (right, _) = run(recipe, &mut Quadratics::new(&EXAMPLES), 10);
    assert_eq!(left.model(), right.model());
    for report in &reports {
        assert!((1..=2).contains(&report.arrived.len()));
        assert_eq!(report.arrived.len() + report.failed.len(), report.cohort.len());
        assert!(report.bytes.full_down > report.bytes.full_up);
    }
    assert!(reports.iter().flat_map(|r| &r.failed).any(|absence| absence.reason.contains("late")));
    assert!(
        reports.iter().flat_map(|r| &r.failed).any(|absence| absence.reason.contains("failed"))
    );
}

#[test]
fn a_resumed_run_ends_with_the_same_bytes() {
    for (name, encoding, download) in [
        ("fedavg", Encoding::TopK { share: 0.25, feedback: true }, Encoding::F32),
        ("scaffold", Encoding::F32, Encoding::F32),
        ("feddyn", Encoding::F32, Encoding::Bf16),
        ("fedper", Encoding::Int8 { feedback: true }, Encoding::F16),
        ("fedyogi", Encoding::F32, Encoding::F32),
        ("local-only", Encoding::F32, Encoding::F32),
    ] {
        let mut recipe = recipe(name, "{}");
        (recipe.work.encoding, recipe.work.download) = (encoding, download);
        recipe.sampler = Sampler::Uniform(3);
        recipe.conditions.fail = 0.1;
        let mut whole = Quadratics::new(&EXAMPLES);
        let (expected, reports) = run(recipe.clone(), &mut whole, 7);

        let directory = tempfile::tempdir().expect("a place to write");
        let start =
            || Federation::new(recipe.clone(), layout(), initial(), Seed(1)).expect("whole");
        let mut first = start();
        first.keep_checkpoints(directory.path());
        first.run(&mut Quadratics::new(&EXAMPLES), &mut [], 4, &|| false).expect("four rounds");
        drop(first);

        let (mut second, mut fleet) = (start(), Quadratics::new(&EXAMPLES));
        assert!(second.resume(directory.path(), &mut fleet).expect("a checkpoint"));
        assert_eq!(second.completed().0, 4);
        let mut rest = Reports::default();
        second.run(&mut fleet, &mut [&mut rest], 7, &|| false).expect("three more");
        assert_eq!(second.model(), expected.model(), "{name}");
        assert_eq!(second.server(), expected.server(), "{name}");
        assert_eq!(fleet.state(), whole.state(), "{name}");
        for (found, expected) in rest.0.iter().zip(&reports[4..]) {
            assert_eq!(
                (found.bytes, &found.arrived),
                (expected.bytes, &expected.arrived),
                "{name}"
            );
        }
    }
}

#[test]
fn a_torn_or_foreign_checkpoint_is_refused_and_none_is_no_error() {
    let directory = tempfile::tempdir().expect("a place to write");
    let start =
        |recipe, seed| Federation::new(recipe, layout(), initial(), Seed(seed)).expect("whole");
    let mut fleet = Quadratics::new(&EXAMPLES);
    let mut federation = start(recipe("scaffold", "{}"), 1);
    assert!(!federation.resume(directory.path(), &mut fleet).expect("nothing there"));
    federation.keep_checkpoints(directory.path());
    federation.run(&mut fleet, &mut [], 2, &|| false).expect("two rounds");

    let file = directory.path().join("checkpoint.fedra");
    let good = std::fs::read(&file).expect("just written");
    let mut resume = |recipe, seed| start(recipe, seed).resume(directory.path(), &mut fleet);
    assert!(resume(recipe("fedavg", "{}"), 1).is_err());
    assert!(resume(recipe("scaffold", "{}"), 2).is_err());
    for length in [0, 3, 5, 100, good.len() - 1] {
        std::fs::write(&file, &good[..length]).expect("a place to write");
        assert!(resume(recipe("scaffold", "{}"), 1).is_err(), "cut at {length}");
    }
    for place in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        std::fs::write(&file, &bad).expect("a place to write");
        assert!(resume(recipe("scaffold", "{}"), 1).is_err(), "flipped at {place}");
    }
    // Under a right checksum too: a first section that ends past the file or nowhere, and one that
    // is missing or too many.
    let sealed = |content: &[u8]| {
        let checksum = crc32fast::hash(content).to_le_bytes();
        [content, &checksum].concat()
    };
    let (content, _) = good.split_at(good.len() - 4);
    let (magic, sections) = content.split_at(5);
    let length = |length: u64| [magic, &length.to_le_bytes(), &sections[8..]].concat();
    let past = sections.len() as u64;
    for (bad, expected) in [
        (length(u64::MAX), "a section is truncated"),
        (length(past), "a section is truncated"),
        (magic.to_vec(), "a section is truncated"),
        (content[..content.len() - 3].to_vec(), "a section is truncated"),
        ([content, &0_u64.to_le_bytes()[..]].concat(), "sections, expected"),
    ] {
        std::fs::write(&file, sealed(&bad)).expect("a place to write");
        let refused = resume(recipe("scaffold", "{}"), 1).expect_err("made up").to_string();
        assert!(refused.contains(expected), "{refused}, expected {expected}");
    }
    std::fs::write(&file, &good).expect("a place to write");
    assert!(resume(recipe("scaffold", "{}"), 1).expect("whole again"));
}

#[test]
fn a_run_stops_between_rounds_when_told() {
    let mut federation =
        Federation::new(recipe("fedavg", "{}"), layout(), initial(), Seed(1)).expect("whole");
    let count = std::cell::Cell::new(0);
    let stop = || count.replace(count.get() + 1) == 2;
    federation.run(&mut Quadratics::new(&EXAMPLES), &mut [], 9, &stop).expect("stopped");
    assert_eq!(federation.completed().0, 2);
}

#[test]
fn what_rounding_loses_comes_back_with_feedback() {
    // Small steps: clients that disagree never stop sending, and what is owed to them swings with
    // the rate.
    let away = |encoding: Encoding| {
        let run = |encoding| {
            let mut recipe = recipe("fedavg", "{}");
            recipe.work.encoding = encoding;
            recipe.work.solver = OptimiserConfig::Sgd { rate: 0.002, weight_decay: 0.0 };
            train(recipe, &mut Quadratics { noise: 0.0, ..Quadratics::new(&EXAMPLES) }, 600)
        };
        distance(&run(encoding), &run(Encoding::F32))
    };
    assert!(away(Encoding::Bf16) < 0.01);
    assert!(away(Encoding::Int8 { feedback: true }) < 0.01);
    let owed = away(Encoding::TopK { share: 0.25, feedback: true });
    let lost = away(Encoding::TopK { share: 0.25, feedback: false });
    assert!(owed < 0.05 && owed < lost / 5.0, "with feedback {owed}, without {lost}");
}
