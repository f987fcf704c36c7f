//! `FedFrozen` over every base method: what is frozen keeps its bits, when it is frozen is
//! remembered, and what a round measures about drift is what a plain sum would say.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::fleet::{Quadratics, Reports, recipe};
use fedra_engine::*;
use fedra_plan::{ByteCount, Layer, Layout, ParamId, Part, Role, Round, Scope, Shape};
use fedra_seed::Seed;
use fedra_wire::{Expectation, Kind, decode, payload_length};

const EXAMPLES: [u64; 4] = [40, 70, 100, 10];

/// Every base that lets others share, with settings that leave something in every kind of memory.
const BASES: [&str; 11] = [
    r#"{"name":"fedavg"}"#,
    r#"{"name":"fedprox","mu":0.1}"#,
    r#"{"name":"fedavgm"}"#,
    r#"{"name":"fedadam"}"#,
    r#"{"name":"fedyogi"}"#,
    r#"{"name":"fedadagrad"}"#,
    r#"{"name":"scaffold"}"#,
    r#"{"name":"fednova"}"#,
    r#"{"name":"feddyn"}"#,
    r#"{"name":"fedper"}"#,
    r#"{"name":"fedbabu"}"#,
];

/// Two whole blocks of attention and a feed-forward matrix, embedding and head.
fn layout() -> Layout {
    let id = |layer, role| ParamId::new(layer, role, Part::Weight);
    let blocks = (0..2).flat_map(|block| {
        let roles = [Role::Query, Role::Key, Role::Value, Role::Output, Role::Up];
        roles.map(|role| (id(Layer::Block(block), role), Shape::matrix(2, 2)))
    });
    let ends = [
        (id(Layer::Embedding, Role::Token), Shape::matrix(3, 2)),
        (id(Layer::Head, Role::Classifier), Shape::vector(2)),
    ];
    Layout::new(blocks.chain(ends)).expect("legal")
}

fn normal(seed: Seed) -> ParamValues {
    let mut generator = seed.generator();
    let mut draw =
        |shape: &Shape| (0..shape.elements()).map(|_| generator.normal() as f32).collect();
    layout().iter().map(|(id, shape)| (id, draw(shape))).collect()
}

fn fleet() -> Quadratics {
    let targets = (0..4).map(|client| normal(Seed(90).with(client))).collect();
    let shared = normal(Seed(7));
    Quadratics { layout: layout(), targets, shared, ..Quadratics::new(&EXAMPLES) }
}

fn start(recipe: Recipe) -> Federation {
    Federation::new(recipe, layout(), normal(Seed(7)), Seed(1)).expect("a whole model")
}

fn run(recipe: Recipe, fleet: &mut Quadratics, rounds: u32) -> (Federation, Vec<RoundReport>) {
    let mut federation = start(recipe);
    let mut reports = Reports::default();
    federation.run(fleet, &mut [&mut reports], rounds, &|| false).expect("no round fails");
    (federation, reports.0)
}

fn frozen(settings: &str, base: &str) -> Recipe {
    let comma = if settings.is_empty() { "" } else { "," };
    recipe("fedfrozen", &format!(r#"{{{settings}{comma}"base":{base}}}"#))
}

fn kernel() -> Scope {
    Scope::of_roles(&layout(), [Role::Query, Role::Key])
}

#[test]
fn a_warm_up_of_all_rounds_is_the_base_method_to_the_bit() {
    for base in BASES {
        let settings: serde_json::Value = serde_json::from_str(base).expect("legal");
        let mut alone = settings.as_object().expect("a table").clone();
        let name = alone.remove("name").expect("a name");
        let alone = recipe(name.as_str().expect("text"), &serde_json::json!(alone).to_string());
        let (expected, plain) = run(alone, &mut fleet(), 4);
        let (found, reports) = run(frozen(r#""warmup":4"#, base), &mut fleet(), 4);
        assert_eq!(found.model(), expected.model(), "{base}");
        assert_eq!(found.server(), expected.server(), "{base}");
        let bytes = |reports: &[RoundReport]| reports.iter().map(|r| r.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&reports), bytes(&plain), "{base}");
    }
}

#[test]
fn query_and_key_keep_their_bits_under_every_base_solver_and_encoding() {
    let encodings = [
        Encoding::F32,
        Encoding::TopK { share: 0.25, feedback: true },
        Encoding::Int8 { feedback: true },
    ];
    let momentum = OptimiserConfig::Momentum { rate: 0.02, momentum: 0.9, weight_decay: 0.1 };
    let sgd = OptimiserConfig::Sgd { rate: 0.05, weight_decay: 0.1 };
    for base in BASES {
        for (encoding, solver) in encodings.into_iter().zip([sgd, momentum, sgd]) {
            let mut recipe = frozen(r#""warmup":2"#, base);
            (recipe.work.encoding, recipe.work.solver) = (encoding, solver);
            let before = run(recipe.clone(), &mut fleet(), 2).0;
            let mut clients = fleet();
            let (after, reports) = run(recipe, &mut clients, 5);
            let what = format!("{base} {encoding}");
            let still = |id| before.model().get(id) == after.model().get(id);
            assert!(kernel().iter().all(still), "{what}");
            let value = Scope::of_roles(&layout(), [Role::Value]);
            assert!(!value.iter().any(still), "{what}");
            // Nobody remembers anything of them either.
            let ServerState { first, second, variate } = after.server();
            let mut memories = vec![first.scope(), second.scope(), variate.scope()];
            for state in clients.state() {
                memories.extend([state.correction.scope(), state.residual.scope()]);
            }
            assert!(memories.iter().all(|scope| (scope & kernel()).is_empty()), "{what}");
            // And nothing of them travels: the last rounds are shorter by them, both ways.
            let length =
                |scope: &Scope, encoding| payload_length(&layout(), scope, encoding) as u64;
            let saved = length(&kernel(), encoding) - length(&Scope::empty(), encoding);
            assert!(reports[1].bytes.up.0 - reports[4].bytes.up.0 >= 4 * saved, "{what}");
            let plain = length(&kernel(), Encoding::F32) - length(&Scope::empty(), Encoding::F32);
            assert!(reports[1].bytes.down.0 - reports[4].bytes.down.0 >= 4 * plain, "{what}");
        }
    }
}

#[test]
fn each_second_stage_trains_exactly_its_part() {
    let check = |settings: &str, expected: &dyn Fn(ParamId) -> bool| {
        let recipe = frozen(&format!(r#""warmup":1,{settings}"#), BASES[0]);
        let before = run(recipe.clone(), &mut fleet(), 1).0;
        let after = run(recipe, &mut fleet(), 2).0;
        let moved = crate::fleet::changed(before.model(), after.model());
        assert_eq!(moved, Scope::everything(&layout()).filter(expected), "{settings}");
    };
    let head = |id: ParamId| id.layer == Layer::Head;
    check(r#""stage2":"loose""#, &|id| ![Role::Query, Role::Key].contains(&id.role));
    check(r#""stage2":"attention""#, &|id| {
        head(id) || [Role::Value, Role::Output].contains(&id.role)
    });
    check(r#""stage2":"strict""#, &|id| head(id) || id.role == Role::Value);
    check(r#""freeze":"v""#, &|id| id.role != Role::Value);
    check(r#""freeze":"none""#, &|_| true);
    check(r#""qk_rate":0.5"#, &|_| true);
}

#[test]
fn a_random_set_is_as_large_as_query_and_key_holds_neither_and_is_drawn_once() {
    let moved = |draw: u32, rounds| {
        let settings = format!(r#""warmup":1,"freeze":"random","draw":{draw}"#);
        let before = run(frozen(&settings, BASES[0]), &mut fleet(), 1).0;
        let after = run(frozen(&settings, BASES[0]), &mut fleet(), rounds).0;
        Scope::everything(&layout()) - crate::fleet::changed(before.model(), after.model())
    };
    let still = moved(3, 2);
    assert_eq!(still, moved(3, 4));
    assert_eq!(still.elements(&layout()), kernel().elements(&layout()));
    assert!((&still & &kernel()).is_empty());
    assert!((0..5).any(|draw| moved(draw, 2) != still));
}

#[test]
fn a_reset_forgets_once_and_freezes_nothing() {
    let settings = r#""warmup":2,"freeze":"none""#;
    // With momentum, a reset in round 2 makes that round a first one: m is the mean change itself.
    let base = r#"{"name":"fedavgm","beta":0.5}"#;
    let before = run(frozen(settings, base), &mut fleet(), 2).0;
    let after = run(frozen(settings, base), &mut fleet(), 3).0;
    for (id, momentum) in after.server().first.iter() {
        let (w, earlier) = (after.model().get(id).expect("whole"), before.model().get(id));
        for ((w, earlier), m) in w.iter().zip(earlier.expect("whole")).zip(momentum) {
            assert!((w - earlier - m).abs() < 1e-5, "{id}");
        }
    }
    // SCAFFOLD's variates are forgotten by server and clients: the round starts from zeros.
    let (plain, _) = run(frozen(r#""warmup":9"#, r#"{"name":"scaffold"}"#), &mut fleet(), 3);
    let (reset, _) = run(frozen(settings, r#"{"name":"scaffold"}"#), &mut fleet(), 3);
    assert!(crate::fleet::distance(plain.model(), reset.model()) > 1e-4);
}

#[test]
fn a_lower_rate_slows_query_and_key_and_nothing_else() {
    let one_step = |settings: &str| {
        let mut recipe = frozen(settings, BASES[0]);
        recipe.work.max_steps = Some(1);
        run(recipe, &mut fleet(), 1).0.model().clone()
    };
    let (full, slow) = (one_step(r#""warmup":1"#), one_step(r#""warmup":0,"qk_rate":0.25"#));
    let first = normal(Seed(7));
    for (id, start) in first.iter() {
        let factor = if kernel().contains(id) { 0.25 } else { 1.0 };
        let (full, slow) = (full.get(id).expect("whole"), slow.get(id).expect("whole"));
        for ((start, full), slow) in start.iter().zip(full).zip(slow) {
            assert!(((slow - start) - factor * (full - start)).abs() < 1e-6, "{id}");
        }
    }
}

#[test]
fn evidence_decides_when_and_the_decision_survives_an_interruption() {
    let block_by_block = r#""warmup":"per_block","plateau":0,"disagreement":0.7"#;
    let strictly = format!(r#"{block_by_block},"stage2":"strict""#);
    for (settings, base) in [
        (r#""warmup":"adaptive","plateau":0,"disagreement":0.8"#, BASES[0]),
        (r#""warmup":"adaptive","plateau":0.01,"patience":3,"disagreement":1"#, BASES[3]),
        (block_by_block, BASES[0]),
        (&strictly, BASES[9]),
    ] {
        let mut whole = fleet();
        let (expected, reports) = run(frozen(settings, base), &mut whole, 12);
        let since = reports[11].stage.clone().expect("two stages").since.expect(settings).0;
        assert!((2..11).contains(&since), "{settings}: since {since}");
        for stop in [since - 1, since, since + 1] {
            let directory = tempfile::tempdir().expect("a place to write");
            let mut first = start(frozen(settings, base));
            first.keep_checkpoints(directory.path());
            first.run(&mut fleet(), &mut [], stop, &|| false).expect("some rounds");
            let (mut second, mut clients) = (start(frozen(settings, base)), fleet());
            assert!(second.resume(directory.path(), &mut clients).expect("a checkpoint"));
            let mut rest = Reports::default();
            second.run(&mut clients, &mut [&mut rest], 12, &|| false).expect("the rest");
            assert_eq!(second.model(), expected.model(), "{settings} stopped at {stop}");
            assert_eq!(second.server(), expected.server(), "{settings} stopped at {stop}");
            let timeless = |report: &RoundReport| RoundReport {
                seconds: 0.0,
                slowest: 0.0,
                phases: None,
                ..report.clone()
            };
            let (found, expected) =
                (rest.0.iter().map(timeless), reports[stop as usize..].iter().map(timeless));
            assert!(found.eq(expected), "{settings} stopped at {stop}");
        }
        let at = run(frozen(settings, base), &mut fleet(), since).0;
        assert!(kernel().iter().all(|id| at.model().get(id) == expected.model().get(id)));
    }
}

#[test]
fn blocks_freeze_one_by_one_and_the_rest_follows_the_last() {
    let settings = r#""warmup":"per_block","plateau":0,"disagreement":0.7,"stage2":"strict""#;
    let (_, reports) = run(frozen(settings, BASES[0]), &mut fleet(), 14);
    let stage = reports[13].stage.clone().expect("two stages");
    let (first, second) = (stage.blocks[&0].0, stage.blocks[&1].0);
    assert_ne!(first, second, "the fixture should tell the blocks apart");
    assert_eq!(stage.since, Some(Round(first.max(second))));
    let (early, late) = if first < second { (0, 1) } else { (1, 0) };
    // Between the two, the early block trains its value alone and all else trains whole.
    let between = first.min(second);
    let before = run(frozen(settings, BASES[0]), &mut fleet(), between).0;
    let after = run(frozen(settings, BASES[0]), &mut fleet(), between + 1).0;
    let still = Scope::everything(&layout()) - crate::fleet::changed(before.model(), after.model());
    let expected = Scope::of_blocks(&layout(), [early]).filter(|id| id.role != Role::Value);
    assert_eq!(still, expected, "block {early} before block {late}");
}

#[test]
fn drift_is_what_a_plain_sum_over_the_clients_says() {
    for (base, uniform) in [(BASES[0], false), (BASES[7], false), (BASES[8], true)] {
        let payloads: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let taken = Rc::clone(&payloads);
        let mut clients = fleet();
        clients.tamper = Some(Box::new(move |_, reply| {
            taken.borrow_mut().push(reply.payload.clone());
            vec![Outcome::Finished(reply)]
        }));
        let (after, reports) = run(frozen(r#""warmup":9"#, base), &mut clients, 1);
        let layout = layout();
        let decoded: Vec<(f64, f64, ParamValues)> = (0..)
            .zip(payloads.borrow().iter())
            .map(|(number, bytes)| {
                let expected = Expectation {
                    layout: &layout,
                    kind: Kind::Change,
                    encoding: Encoding::F32,
                    round: Round(0),
                    client: ClientId(number),
                    scope: None,
                };
                let (header, change) = decode(bytes, &expected).expect("honest");
                let weight = if uniform { 1.0 } else { header.examples as f64 };
                (weight, f64::from(header.steps), change)
            })
            .collect();
        let total: f64 = decoded.iter().map(|(weight, ..)| weight).sum();
        let nova = base.contains("fednova");
        let pace: f64 = decoded.iter().map(|(weight, steps, _)| weight * steps / total).sum();
        let scaled = |(_, steps, change): &(f64, f64, ParamValues), id: ParamId| -> Vec<f64> {
            let factor = if nova { pace / steps } else { 1.0 };
            change.get(id).expect("sent").iter().map(|v| factor * f64::from(*v)).collect()
        };
        let report = reports[0].drift.clone().expect("measured");
        let mut groups: BTreeMap<RoleGroup, Vec<ParamId>> = BTreeMap::new();
        for id in layout.ids() {
            groups.entry(RoleGroup::of(id.role)).or_default().push(id);
        }
        assert_eq!(report.roles.len(), groups.len());
        for (group, ids) in groups {
            let flat = |one: &(f64, f64, ParamValues)| -> Vec<f64> {
                ids.iter().flat_map(|id| scaled(one, *id)).collect()
            };
            let changes: Vec<(f64, Vec<f64>)> =
                decoded.iter().map(|one| (one.0 / total, flat(one))).collect();
            let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
            let mean: Vec<f64> = (0..changes[0].1.len())
                .map(|j| changes.iter().map(|(weight, change)| weight * change[j]).sum())
                .collect();
            let away = |change: &[f64]| -> f64 {
                change.iter().zip(&mean).map(|(c, m)| (c - m) * (c - m)).sum()
            };
            let drift: f64 = changes.iter().map(|(weight, change)| weight * away(change)).sum();
            let norms: f64 = changes.iter().map(|(weight, change)| weight * norm(change)).sum();
            let found = report.roles[&group];
            let near =
                |found: f64, expected: f64| (found - expected).abs() < 1e-5 * expected.max(1.0);
            assert!(near(found.drift, drift), "{base} {group:?}: {found:?}, {drift}");
            assert!(near(found.mean_norm, norm(&mean)), "{base} {group:?}");
            assert!(near(found.disagreement, 1.0 - norm(&mean) / norms), "{base} {group:?}");
        }
        assert_eq!(report.query_key_blocks.len(), 2);
        drop(after);
    }
}

#[test]
fn one_client_alone_neither_drifts_nor_disagrees() {
    let targets = vec![normal(Seed(90))];
    let mut alone = Quadratics { layout: layout(), targets, ..Quadratics::new(&[40]) };
    alone.shared = normal(Seed(7));
    let (_, reports) = run(frozen(r#""warmup":9"#, BASES[0]), &mut alone, 2);
    for report in &reports {
        for (group, found) in &report.drift.as_ref().expect("measured").roles {
            assert!(found.drift < 1e-9 && found.disagreement < 1e-6, "{group:?} {found:?}");
            assert!(found.mean_norm > 0.0);
        }
    }
}

#[test]
fn drift_is_measured_only_when_somebody_asks() {
    let (quiet, reports) = run(recipe("fedavg", "{}"), &mut fleet(), 2);
    assert!(reports.iter().all(|report| report.drift.is_none() && report.stage.is_none()));
    let mut asking = recipe("fedavg", "{}");
    asking.evaluation.drift = true;
    let (asked, reports) = run(asking, &mut fleet(), 2);
    assert!(reports.iter().all(|report| report.drift.is_some()));
    assert!(reports.iter().all(|report| report.most_updates_held == 1));
    assert_eq!(quiet.model(), asked.model());
}

#[test]
fn attention_is_followed_on_request_and_its_bytes_are_counted() {
    let (_, plain) = run(recipe("fedavg", "{}"), &mut fleet(), 3);
    let mut asking = recipe("fedavg", "{}");
    asking.evaluation.attention = true;
    let (_, reports) = run(asking.clone(), &mut fleet(), 3);
    let found = |report: &RoundReport| {
        report.drift.as_ref().and_then(|drift| drift.attention.clone()).expect("asked for")
    };
    // The first look has nothing to compare with and sends nothing.
    assert_eq!(reports[0].bytes, plain[0].bytes);
    assert_eq!(found(&reports[0]), AttentionDrift::default());
    for (report, plain) in reports.iter().zip(&plain).skip(1) {
        // Four clients, two blocks, two numbers of eight bytes.
        assert_eq!(report.bytes.up, plain.bytes.up + ByteCount(128));
        assert_eq!(report.bytes.down, plain.bytes.down);
        assert_eq!((found(report).clients, found(report).blocks.len()), (4, 2));
    }
    // After one round both are the same; later the way from the first is the longer one.
    let (second, third) = (found(&reports[1]), found(&reports[2]));
    assert_eq!(second.since_last, second.since_first);
    assert!(third.since_first > third.since_last && third.since_last > Some(0.0), "{third:?}");

    // What clients remember of it outlives an interruption.
    let folder = tempfile::tempdir().expect("a folder");
    let mut clients = fleet();
    let mut stopped = start(asking.clone());
    stopped.keep_checkpoints(folder.path());
    stopped.run(&mut clients, &mut [], 2, &|| false).expect("no round fails");
    let (mut again, mut clients, mut later) = (start(asking), fleet(), Reports::default());
    assert!(again.resume(folder.path(), &mut clients).expect("a whole checkpoint"));
    again.run(&mut clients, &mut [&mut later], 3, &|| false).expect("no round fails");
    assert_eq!(found(&later.0[0]), third);
}

#[test]
fn a_branch_is_the_run_that_froze_in_that_round_to_the_bit() {
    for base in BASES {
        let trunk = frozen(r#""warmup":5"#, base);
        let (mut federation, mut clients) = (start(trunk.clone()), fleet());
        let mut moments = Vec::new();
        for round in 0..5 {
            moments.push(federation.moment(&clients));
            federation.run(&mut clients, &mut [], round + 1, &|| false).expect("no round fails");
        }
        // Moments may be gone back to in any order.
        for at in [3, 0, 2] {
            let other = trunk.clone().with_stage_at(Round(at)).expect("it has two stages");
            let mut branch =
                moments[at as usize].branch(other, &mut clients).expect("the same model");
            let mut reports = Reports::default();
            branch.run(&mut clients, &mut [&mut reports], 5, &|| false).expect("no round fails");
            let alone = frozen(&format!(r#""warmup":{at}"#), base);
            let mut expected_clients = fleet();
            let (expected, whole) = run(alone, &mut expected_clients, 5);
            assert_eq!(branch.model(), expected.model(), "{base} at {at}");
            assert_eq!(branch.server(), expected.server(), "{base} at {at}");
            assert_eq!(clients.state(), expected_clients.state(), "{base} at {at}");
            let bytes = |reports: &[RoundReport]| -> Vec<Bytes> {
                reports.iter().map(|report| report.bytes).collect()
            };
            assert_eq!(bytes(&reports.0), bytes(&whole[at as usize..]), "{base} at {at}");
        }
    }
}

#[test]
fn over_safl_a_warm_up_of_all_rounds_is_safl_and_none_never_sends_query_or_key() {
    for mask in ["consensus", "per_client"] {
        let settings = format!(r#""k":1,"embeddings":"learn","mask":"{mask}""#);
        let beneath = format!(r#"{{"name":"safl",{settings}}}"#);
        let (expected, plain) = run(recipe("safl", &format!("{{{settings}}}")), &mut fleet(), 4);
        for warmup in [4, 9] {
            let settings = format!(r#""warmup":{warmup}"#);
            let (found, reports) = run(frozen(&settings, &beneath), &mut fleet(), 4);
            assert_eq!(found.model(), expected.model(), "{mask}");
            let told = |reports: &[RoundReport]| -> Vec<_> {
                reports.iter().map(|r| (r.bytes, r.blocks.clone(), r.selection.clone())).collect()
            };
            assert_eq!(told(&reports), told(&plain), "{mask}");
        }

        let sent = Rc::new(RefCell::new(Scope::empty()));
        let note = sent.clone();
        let mut clients = fleet();
        clients.tamper = Some(Box::new(move |order, reply| {
            let so_far = note.borrow().clone();
            *note.borrow_mut() = so_far | order.plan.uploads();
            vec![Outcome::Finished(reply)]
        }));
        let (after, reports) = run(frozen(r#""warmup":0"#, &beneath), &mut clients, 4);
        let sent = sent.borrow().clone();
        assert!((&sent & &kernel()).is_empty() && !sent.is_empty(), "{mask}: {sent:?}");
        assert!(reports.iter().zip(&plain).all(|(now, safl)| now.bytes.up < safl.bytes.up));
        let first = normal(Seed(7));
        assert!(kernel().iter().all(|id| after.model().get(id) == first.get(id)), "{mask}");
    }
}

#[test]
fn scores_come_with_their_spread_over_clients_and_their_swing_over_rounds() {
    let (_, reports) = run(recipe("fedavg", "{}"), &mut fleet(), 4);
    let mut means = Vec::new();
    for report in &reports {
        let set = &report.scores[0];
        let values: Vec<f64> = set.each.iter().map(|one| one.scores["loss"]).collect();
        let mean = values.iter().sum::<f64>() / 4.0;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 4.0;
        let spread = set.spread["loss"];
        assert!((spread.deviation - variance.sqrt()).abs() < 1e-12);
        assert!(values.iter().all(|v| (spread.least..=spread.most).contains(v)));
        means.push(set.mean["loss"]);
        let changes: Vec<f64> = means.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let count = changes.len() as f64;
        let mean = changes.iter().sum::<f64>() / count;
        let variance = changes.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / count;
        match set.swing.get("loss") {
            None => assert!(changes.len() < 2),
            Some(found) => assert!((found - variance).abs() < 1e-9 * variance.max(1.0)),
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let check = |settings: &str, expected: &str| {
        let value: serde_json::Value = serde_json::from_str(settings).expect(settings);
        let refused = methods::Method::by_name("fedfrozen", value).expect_err(settings).to_string();
        assert!(refused.contains(expected), "{settings}: {refused}");
    };
    check(r#"{"base":{"name":"centralised"}}"#, "`method.base` is \"centralised\"");
    check(r#"{"base":{"name":"local-only"}}"#, "`method.base` is \"local-only\"");
    check(r#"{"base":{"name":"fedfrozen"}}"#, "frozen only once");
    check(r#"{"base":{"name":"fedporx"}}"#, "fedporx");
    check(r#"{"base":{"name":"fedprox","nu":1}}"#, "nu");
    for warmup in [r#""soon""#, "1.5", "-3"] {
        check(&format!(r#"{{"warmup":{warmup}}}"#), "expected a number of rounds, a share");
    }
    check(r#"{"stage2":"tight"}"#, "tight");
    check(r#"{"freeze":"head"}"#, "head");
    check(r#"{"qk_rate":0}"#, "`method.qk_rate` is 0");
    check(r#"{"qk_rate":0.1,"freeze":"v"}"#, "`method.qk_rate`");
    check(r#"{"freeze":"v","stage2":"strict"}"#, "`method.stage2` is \"strict\"");
    check(r#"{"draw":3}"#, "`method.draw` is 3");
    check(r#"{"warmup":"per_block","freeze":"random"}"#, "`method.freeze` is \"random\"");
    check(r#"{"warmup":3,"plateau":0.1}"#, "`method.plateau` is 0.1");
    check(r#"{"warmup":"adaptive","disagreement":1.5}"#, "`method.disagreement` is 1.5");
    check(r#"{"warmup":"adaptive","patience":0}"#, "`method.patience` is 0");
}

#[test]
fn a_share_is_no_round_until_the_rounds_are_known() {
    let share = recipe("fedfrozen", r#"{"warmup":0.5}"#);
    let refused = Federation::new(share, layout(), normal(Seed(7)), Seed(1)).expect_err("a share");
    assert!(refused.to_string().contains("`method.warmup` is 0.5"), "{refused}");
    let settings: serde_json::Value = serde_json::from_str(r#"{"warmup":0.5}"#).expect("legal");
    let method = methods::Method::by_name("fedfrozen", settings).expect("legal").over(8);
    let found = method.recipe(Recipe::new(crate::fleet::work()));
    assert_eq!(found, recipe("fedfrozen", r#"{"warmup":4}"#));
}

#[test]
fn freezing_what_does_not_learn_or_all_that_does_is_refused() {
    use fedra_plan::Rule;
    let refused = |learns: Rule| {
        let base = Recipe { learns, ..Recipe::new(crate::fleet::work()) };
        let settings = serde_json::json!({ "warmup": 2 });
        let recipe = methods::Method::by_name("fedfrozen", settings).expect("legal").recipe(base);
        let refused = Federation::new(recipe, layout(), normal(Seed(7)), Seed(1));
        refused.expect_err("nothing to do").to_string()
    };
    assert!(refused(Rule::Layers([Layer::Head].into())).contains("without learning"));
    assert!(refused(Rule::Roles([Role::Query].into())).contains("part that still learns"));
}
