//! SAFL on quadratic clients: what is chosen, sent, reported and remembered.

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::{ByteCount, Layer, ParamId, Part, Role, Scope};
use fedra_seed::Seed;
use fedra_wire::{Mask, Measured};

const EXAMPLES: [u64; 5] = [40, 70, 100, 10, 30];

fn safl(settings: &str) -> Recipe {
    recipe("safl", settings)
}

#[test]
fn all_blocks_with_learning_embeddings_are_fedavg_to_the_bit() {
    let expected = train(recipe("fedavg", "{}"), &mut Quadratics::new(&EXAMPLES), 4);
    for selector in ["attention", "cover", "random", "even", "cyclic", "gradient_cover"] {
        for mask in ["consensus", "per_client"] {
            let settings = format!(
                r#"{{"k":2,"embeddings":"learn","selector":"{selector}","mask":"{mask}"}}"#
            );
            let found = train(safl(&settings), &mut Quadratics::new(&EXAMPLES), 4);
            assert_eq!(found, expected, "{selector} {mask}");
        }
    }
}

#[test]
fn what_was_not_chosen_is_identical_to_the_bit() {
    // Clients 0, 2 and 4 favour block 0 so strongly that the consensus does too.
    let after = train(safl(r#"{"k":1}"#), &mut Quadratics::new(&EXAMPLES), 3);
    let expected = Scope::of_layers(&layout(), [Layer::Block(0), Layer::Head]);
    assert_eq!(changed(&initial(), &after), expected);
}

#[test]
fn each_block_is_the_mean_of_the_clients_that_sent_it() {
    let change = |client: usize| {
        // The client alone, with the same seed of its own: what it would have sent.
        let mut fleet = Quadratics::new(&EXAMPLES);
        for (number, info) in fleet.clients.iter_mut().enumerate() {
            info.examples = if number == client { EXAMPLES[client] } else { 0 };
        }
        train(safl(r#"{"k":1,"mask":"per_client"}"#), &mut fleet, 1)
    };
    let alone: Vec<ParamValues> = (0..5).map(change).collect();
    for (denominator, everyone) in [("participants", false), ("everyone", true)] {
        let settings = format!(r#"{{"k":1,"mask":"per_client","denominator":"{denominator}"}}"#);
        let found = train(safl(&settings), &mut Quadratics::new(&EXAMPLES), 1);
        for (id, start) in initial().iter() {
            let sent = |client: usize| match id.layer {
                Layer::Embedding => false,
                Layer::Block(block) => client % 2 == usize::from(block),
                Layer::Head => true,
            };
            let all: f64 = EXAMPLES.iter().map(|examples| *examples as f64).sum();
            let senders: f64 =
                (0..5).filter(|client| sent(*client)).map(|client| EXAMPLES[client] as f64).sum();
            let divisor = if everyone { all } else { senders };
            for (place, start) in start.iter().enumerate() {
                let sum: f64 = (0..5)
                    .filter(|client| sent(*client))
                    .map(|client| {
                        let moved = alone[client].get(id).expect("whole")[place] - start;
                        EXAMPLES[client] as f64 * f64::from(moved)
                    })
                    .sum();
                let expected = f64::from(*start) + if sum == 0.0 { 0.0 } else { sum / divisor };
                let found = f64::from(found.get(id).expect("whole")[place]);
                assert!((found - expected).abs() < 1e-5, "{id} {denominator} {found} {expected}");
            }
        }
    }
}

#[test]
fn bytes_count_values_scores_and_notices() {
    let (_, reports) =
        run(safl(r#"{"k":1,"profile_every":2}"#), &mut Quadratics::new(&EXAMPLES), 4);
    let payload = |elements: u64| 96 + 4 * elements + 8;
    let notice = Mask::length(&layout()) as u64;
    for report in &reports {
        let scores = if report.round.0 % 2 == 0 { Measured::length(2) as u64 } else { 0 };
        // One block of four elements and the head of two; everything comes down in round 0.
        let down = if report.round.0 == 0 { payload(16) } else { payload(6) };
        assert_eq!(report.bytes.up, ByteCount(5 * (payload(6) + scores)));
        assert_eq!(report.bytes.down, ByteCount(5 * (down + notice)));
        let selection = report.selection.as_ref().expect("blocks were chosen");
        assert_eq!(selection.scores_up, ByteCount(5 * scores));
        assert_eq!(selection.masks_down, ByteCount(5 * notice));
    }
}

#[test]
fn measuring_counts_as_work_of_the_clients_in_the_rounds_that_measure() {
    let efforts = |settings: &str| -> Vec<u64> {
        let (_, reports) = run(safl(settings), &mut Quadratics::new(&EXAMPLES), 4);
        reports.into_iter().map(|report| report.effort).collect()
    };
    // Both learn block 0, of four weights, and the head of two, beside a block of four weights.
    let unmeasured = efforts(r#"{"k":1,"selector":"first"}"#);
    // At most 32 examples of each client: 32, 32, 32, 10 and 30.
    let attention = efforts(r#"{"k":1,"profile_every":2}"#);
    let gradient = efforts(r#"{"k":1,"settle":1,"selector":"gradient_norm"}"#);
    for round in 0..4 {
        let expected = if round % 2 == 0 { 136 * 8 } else { 0 };
        assert_eq!(attention[round] - unmeasured[round], expected, "round {round}");
        let expected = if round == 0 { 136 * (3 * 8 + 2 * 2) } else { 0 };
        assert_eq!(gradient[round] - unmeasured[round], expected, "round {round}");
    }
}

#[test]
fn pruning_sends_a_share_of_the_blocks_and_the_whole_head() {
    let up = |settings: &str| {
        let (_, reports) = run(safl(settings), &mut Quadratics::new(&EXAMPLES), 2);
        (reports[1].bytes.up.0 - 5 * Measured::length(2) as u64) / 5
    };
    // A quarter of four elements is one value and a bitmap of one byte instead of 16 bytes.
    assert_eq!(up(r#"{"k":1}"#) - up(r#"{"k":1,"prune":0.25}"#), 16 - 5);
    let (mut whole, mut pruned) = (Quadratics::new(&EXAMPLES), Quadratics::new(&EXAMPLES));
    let left = train(safl(r#"{"k":1}"#), &mut whole, 1);
    let right = train(safl(r#"{"k":1,"prune":0.25}"#), &mut pruned, 1);
    let head = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);
    assert_eq!(left.get(head), right.get(head));
    assert_ne!(left, right);
}

#[test]
fn a_client_may_take_fewer_blocks_than_the_others() {
    let settings = r#"{"k":{"default":2,"client-1":1}}"#;
    let (_, reports) = run(safl(settings), &mut Quadratics::new(&EXAMPLES), 1);
    // The mean score of block 0 is higher, so that is the one that client 1 takes.
    assert_eq!(reports[0].selection.as_ref().expect("chosen").clients, [5, 4]);
}

#[test]
fn diagnostics_tell_what_was_chosen_and_warn_in_words() {
    let (_, reports) = run(safl(r#"{"k":1}"#), &mut Quadratics::new(&EXAMPLES), 6);
    let selection = |round: usize| reports[round].selection.as_ref().expect("chosen");
    // Three of five clients score block 0 with 1, two score block 1 with 0.6.
    let [first, second] = selection(0).scores[..] else { panic!("two blocks") };
    assert!((first - 0.6).abs() < 1e-6 && (second - 0.24).abs() < 1e-6, "{first} {second}");
    assert_eq!(selection(0).churn, None);
    assert_eq!(selection(1).churn, Some(0));
    assert_eq!(selection(1).never, [1].into());
    assert_eq!(selection(1).clients, [5, 0]);
    assert_eq!(selection(1).agreement, Some(0.6));
    assert!(selection(0).warnings.is_empty());
    let kinds: Vec<WarningKind> =
        selection(5).warnings.iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, [WarningKind::Collapse, WarningKind::Starvation]);
    assert!(selection(5).warnings[0].text.contains("blocks 0) in 6 rounds in a row"));

    let (_, reports) = run(safl(r#"{"k":1}"#), &mut Quadratics::new(&[40, 70, 100, 10]), 1);
    assert_eq!(reports[0].selection.as_ref().expect("chosen").agreement, Some(0.5));
    let (_, reports) =
        run(safl(r#"{"k":1,"selector":"first"}"#), &mut Quadratics::new(&EXAMPLES), 9);
    let fixed = reports[8].selection.as_ref().expect("chosen");
    assert!(fixed.warnings.is_empty() && fixed.scores.is_empty() && fixed.entropy.is_none());
    let (_, reports) = run(recipe("fedavg", "{}"), &mut Quadratics::new(&EXAMPLES), 1);
    assert_eq!(reports[0].selection, None);
}

#[test]
fn a_resumed_run_chooses_and_ends_as_one_that_was_not_interrupted() {
    for settings in [
        r#"{"k":1,"selector":"corrected","profile_every":3}"#,
        r#"{"k":1,"selector":"random"}"#,
        r#"{"k":1,"selector":"disagreement","mask":"per_client","profile_every":4}"#,
        r#"{"k":2,"explore":1,"prune":0.5}"#,
        r#"{"k":1,"settle":2,"profile_every":4,"mask":"per_client"}"#,
    ] {
        let mut recipe = safl(settings);
        recipe.sampler = Sampler::Uniform(3);
        let (expected, reports) = run(recipe.clone(), &mut Quadratics::new(&EXAMPLES), 8);
        let directory = tempfile::tempdir().expect("a place to write");
        let start =
            || Federation::new(recipe.clone(), layout(), initial(), Seed(1)).expect("whole");
        let mut first = start();
        first.keep_checkpoints(directory.path());
        first.run(&mut Quadratics::new(&EXAMPLES), &mut [], 5, &|| false).expect("five rounds");
        let (mut second, mut fleet) = (start(), Quadratics::new(&EXAMPLES));
        assert!(second.resume(directory.path(), &mut fleet).expect("a checkpoint"));
        let mut rest = Reports::default();
        second.run(&mut fleet, &mut [&mut rest], 8, &|| false).expect("three more");
        assert_eq!(second.model(), expected.model(), "{settings}");
        for (found, expected) in rest.0.iter().zip(&reports[5..]) {
            assert_eq!(found.selection, expected.selection, "{settings}");
            assert_eq!(found.bytes, expected.bytes, "{settings}");
        }
    }
}

#[test]
fn random_blocks_change_and_fixed_ones_do_not() {
    let blocks = |settings: &str| {
        let (_, reports) = run(safl(settings), &mut Quadratics::new(&EXAMPLES), 12);
        let all: std::collections::BTreeSet<_> =
            reports.into_iter().map(|report| report.blocks).collect();
        all.len()
    };
    assert_eq!(blocks(r#"{"k":1,"selector":"random"}"#), 2);
    assert_eq!(blocks(r#"{"k":1,"selector":"random_fixed"}"#), 1);
    assert_eq!(blocks(r#"{"k":1,"selector":"cyclic"}"#), 2);
    assert_eq!(blocks(r#"{"k":1,"selector":"last"}"#), 1);
}

#[test]
fn a_choice_that_has_settled_is_measured_no_more_and_stands_still_without_a_warning() {
    // After two measurements, in rounds 0 and 2, nobody is asked again.
    let settings = r#"{"k":1,"settle":2,"profile_every":2}"#;
    let (_, reports) = run(safl(settings), &mut Quadratics::new(&EXAMPLES), 8);
    let measured = 5 * Measured::length(2) as u64;
    for report in &reports {
        let selection = report.selection.as_ref().expect("chosen");
        let expected = if [0, 2].contains(&report.round.0) { measured } else { 0 };
        assert_eq!(selection.scores_up, ByteCount(expected), "round {}", report.round.0);
        assert_eq!(report.blocks, [0].into());
        assert!(selection.warnings.is_empty(), "{:?}", selection.warnings);
    }
}

#[test]
fn named_blocks_learn_and_no_others() {
    let sites = |settings: &str| {
        let after = train(safl(settings), &mut Quadratics::new(&EXAMPLES), 2);
        changed(&initial(), &after)
    };
    let second = Scope::of_layers(&layout(), [Layer::Block(1), Layer::Head]);
    assert_eq!(sites(r#"{"selector":{"blocks":[1]}}"#), second);
    assert_eq!(sites(r#"{"k":1,"selector":{"blocks":[1]},"mask":"per_client"}"#), second);

    // Of two named blocks the first is sure, and one place goes to any other block by lot.
    let settings = r#"{"selector":{"blocks":[1,0]},"explore":1}"#;
    let (_, reports) = run(safl(settings), &mut Quadratics::new(&EXAMPLES), 2);
    assert_eq!(reports[1].blocks, [0, 1].into());
}

#[test]
fn a_named_block_that_a_client_lacks_is_skipped_and_one_that_has_none_is_refused() {
    let mut some = safl(r#"{"selector":{"blocks":[1,0]}}"#);
    some.depths = [("client-1".to_owned(), 1)].into();
    let (_, reports) = run(some, &mut Quadratics::new(&EXAMPLES), 1);
    assert_eq!(reports[0].selection.as_ref().expect("chosen").clients, [5, 4]);
    let mut none = safl(r#"{"selector":{"blocks":[1]}}"#);
    none.depths = [("client-1".to_owned(), 1)].into();
    let error = none.check_model(&layout(), &["client-1"]).expect_err("nothing to train");
    let expected = "`federation.depths` is 1 of 2 blocks for \"client-1\", expected a depth that \
                    reaches a block of method.selector";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn bad_settings_are_refused_by_name() {
    let refused = |settings: &str, key: &str| {
        let recipe = safl(settings);
        let names = ["client-0", "client-1"];
        let error = recipe.check(2).and_then(|()| recipe.check_model(&layout(), &names));
        let message = error.expect_err(settings).to_string();
        assert!(message.contains(key), "{settings}: {message}");
    };
    refused(r#"{"k":0}"#, "method.k");
    refused(r#"{"k":3}"#, "method.k");
    refused(r#"{"k":{"default":2,"nobody":1}}"#, "nobody");
    refused(r#"{"k":{"default":1,"client-1":3}}"#, "3 of 2 blocks");
    refused(r#"{"k":1,"explore":1}"#, "method.explore");
    refused(r#"{"profile_every":0}"#, "method.profile_every");
    refused(r#"{"settle":0}"#, "method.settle");
    refused(r#"{"prune":0.0}"#, "method.prune");
    refused(r#"{"prune":1.5}"#, "method.prune");
    refused(r#"{"selector":{"blocks":[0,2]}}"#, "`method.selector` is block 2 of 2 blocks");
    let unread = |settings: &str, expected: &str| {
        let settings: serde_json::Value = serde_json::from_str(settings).expect(settings);
        let error = methods::Method::by_name("safl", settings).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    unread(r#"{"selector":{"blocks":[]}}"#, "`method.selector` is no block");
    unread(r#"{"selector":{"blocks":[1,1]}}"#, "`method.selector` is block 1 twice");
    unread(r#"{"k":1,"selector":{"blocks":[1,0]}}"#, "`method.k` is 1");
    let unknown: serde_json::Value = serde_json::from_str(r#"{"selector":"best"}"#).expect("JSON");
    let error = methods::Method::by_name("safl", unknown).expect_err("no such selector");
    assert!(error.to_string().contains("gradient_cover"), "{error}");
}

#[test]
fn clients_that_are_away_are_not_drawn_and_catch_up_when_they_come_back() {
    let mut recipe = safl(r#"{"k":1,"selector":"cyclic"}"#);
    let away = vec![Away { from: 1, to: Some(2) }];
    recipe.conditions.away = [("client-2".to_owned(), away)].into();
    let (_, reports) = run(recipe, &mut Quadratics::new(&EXAMPLES), 4);
    assert!(!reports[0].cohort.contains(&ClientId(2)) && !reports[1].cohort.contains(&ClientId(2)));
    assert!(reports[2].cohort.contains(&ClientId(2)));
    let payload = |elements: u64| 96 + 4 * elements + 8;
    let notice = Mask::length(&layout()) as u64;
    // The newcomer gets everything, the others one block and the head.
    assert_eq!(reports[2].bytes.down.0, 5 * notice + payload(16) + 4 * payload(6));
}

#[test]
fn a_shallow_client_trains_and_receives_the_blocks_it_has() {
    for name in ["fedavg", "safl"] {
        let mut recipe = recipe(name, if name == "safl" { r#"{"k":2}"# } else { "{}" });
        recipe.depths = [("client-1".to_owned(), 1)].into();
        let mut fleet = Quadratics::new(&EXAMPLES);
        let orders = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let log = std::rc::Rc::clone(&orders);
        fleet.tamper = Some(Box::new(move |order, reply| {
            log.borrow_mut().push((order.client, order.plan.learns().blocks()));
            vec![Outcome::Finished(reply)]
        }));
        let (_, reports) = run(recipe, &mut fleet, 2);
        assert!(reports.iter().all(|report| report.refused.is_empty()), "{name}");
        for (client, blocks) in orders.borrow().iter() {
            let expected: &[u16] = if *client == ClientId(1) { &[0] } else { &[0, 1] };
            assert_eq!(blocks.iter().copied().collect::<Vec<_>>(), expected, "{name} {client}");
        }
    }
    let mut stateful = recipe("scaffold", "{}");
    stateful.depths = [("client-1".to_owned(), 1)].into();
    assert!(stateful.check(5).expect_err("corrections").to_string().contains("federation.depths"));
}
