//! Steps that hide examples: what one example can change, where there is noise, and a client that
//! keeps count itself.

use std::fs;
use std::num::NonZeroU64;

use fedra_client::{Agreed, Client, ClientError, PrivacyGuard, TrainResult, TrainTask, Trainer};
use fedra_compute::{SecretKey, Seed};
use fedra_data::{Encoded, Task};
use fedra_engine::{
    ClientId, ClipRule, Fleet, NoiseMultiplier, Outcome, PrivateSteps, ProbeRequest, TrainRequest,
    Verdict, Work,
};
use fedra_plan::{AttentionSide, ByteCount, Probe, RelevantTokens, Round, Scope};
use fedra_privacy::{Budget, Delta, Guarantee, Relation, Unit};
use fedra_wire::ParamValues;

use crate::world::{Size, World, bits, sgd};

const RATE: f32 = 0.5;

fn steps(clip: f64, noise: f64) -> PrivateSteps {
    let noise = NoiseMultiplier::new(noise).unwrap();
    PrivateSteps { clip, clipping: ClipRule::Flat, noise, cap: None, rows: None }
}

/// One step over all examples.
fn whole(private: PrivateSteps) -> Work {
    Work { batch: 10_000, private: Some(private), ..sgd(RATE) }
}

fn train(world: &World, work: &Work, examples: &[Encoded], key: u64) -> TrainResult {
    let scope = world.everything();
    let key = SecretKey::simulated(Seed(key));
    let task = TrainTask { examples, key: Some(&key), ..world.lesson(&scope, work) };
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    trainer.train(&mut world.params.clone(), &task).unwrap()
}

/// What one plain step on one example moves: its gradient times minus the rate.
fn alone(world: &World, example: &Encoded) -> ParamValues {
    let scope = world.everything();
    let work = sgd(RATE);
    let task = TrainTask { examples: std::slice::from_ref(example), ..world.lesson(&scope, &work) };
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    trainer.train(&mut world.params.clone(), &task).unwrap().change
}

fn norm(values: &ParamValues) -> f64 {
    let squares = values.iter().flat_map(|(_, values)| values).map(|v| f64::from(*v).powi(2));
    squares.sum::<f64>().sqrt()
}

/// What an example whose gradient is clipped to 0.3 moves, over a public number.
fn clipped(world: &World, example: &Encoded, divisor: f64) -> ParamValues {
    let change = alone(world, example);
    let most = 0.3 * f64::from(RATE);
    assert!(norm(&change) > most, "the test is about examples that are clipped");
    let factor = most / norm(&change) / divisor;
    let scaled = |(id, values): (_, &[f32])| {
        (id, values.iter().map(|value| (f64::from(*value) * factor) as f32).collect())
    };
    change.iter().map(scaled).collect()
}

/// `left - right`, number by number.
fn minus(left: &ParamValues, right: &ParamValues) -> ParamValues {
    let less = |(id, values): (_, &[f32])| {
        let right = right.get(id).unwrap();
        (id, values.iter().zip(right).map(|(a, b)| a - b).collect())
    };
    left.iter().map(less).collect()
}

#[test]
fn a_step_is_the_mean_of_clipped_gradients_and_noise_that_does_not_depend_on_them() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let all = world.shards.clients[0].train.encoded();
    let (examples, others) = (&all[..8], [&all[1..8], &all[8..9]].concat());
    let work = whole(steps(0.3, 1.0));
    let one = train(&world, &work, examples, 1).change;
    let other = train(&world, &work, &others, 1).change;
    // The noise is the same, and all examples but two: what is left are these, clipped.
    let found = minus(&one, &other);
    let expected = minus(&clipped(&world, &examples[0], 8.0), &clipped(&world, &others[7], 8.0));
    let away = norm(&minus(&found, &expected));
    // Sums of different order in f32, on changes of weights near one.
    assert!(away < 2e-5, "{away} of {}", norm(&expected));
    assert!(norm(&expected) > 0.005);
}

#[test]
fn an_example_moves_the_model_by_its_clip_norm_and_no_more() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let all = world.shards.clients[0].train.encoded();
    for clipping in [ClipRule::Flat, ClipRule::PerBlock] {
        let work = whole(PrivateSteps { clipping, ..steps(1e-2, 1.0) });
        let one = train(&world, &work, &all[..5], 1).change;
        let other = train(&world, &work, &[&all[1..5], &all[5..6]].concat(), 1).change;
        let moved = norm(&minus(&one, &other)) * 5.0 / f64::from(RATE);
        assert!(moved <= 2.0 * 1e-2 * (1.0 + 1e-3) && moved > 1e-3, "{clipping:?}: {moved}");
    }
}

#[test]
fn noise_has_its_size_and_is_there_when_a_batch_is_empty() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let all = world.shards.clients[0].train.encoded();
    let private = steps(0.5, 2.0);
    // One in thirty: most batches of one step are empty.
    let work = Work { batch: 1, max_steps: Some(1), private: Some(private), ..sgd(RATE) };
    let (mut squares, mut count) = (0.0, 0.0);
    for key in 0..8 {
        let result = train(&world, &work, all, key);
        assert_eq!((result.course.steps, result.course.loss), (1, None));
        squares += norm(&result.change).powi(2);
        count += world.model.layout().elements() as f64;
        // What is told of it is what is expected of it.
        let told = result.course.noise.unwrap();
        let noise: f64 = told.layers.iter().map(|layer| layer.noise).sum();
        let released: f64 = told.layers.iter().map(|layer| layer.released).sum();
        assert!((released / noise - 1.0).abs() < 0.1, "{released} of {noise}");
    }
    let (found, expected) = ((squares / count).sqrt(), f64::from(RATE) * 2.0 * 0.5);
    assert!((found / expected - 1.0).abs() < 0.01, "{found}, expected {expected}");
}

/// Batches by coins are often larger than usual, and are then worked through in parts.
#[test]
fn an_example_counts_in_full_or_not_at_all_however_large_its_batch_is() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let all = world.shards.clients[0].train.encoded();
    let (examples, others) = (&all[..9], &all[1..9]);
    let private = PrivateSteps { rows: NonZeroU64::new(9), ..steps(0.3, 1.0) };
    let work = Work { batch: 4, max_steps: Some(1), private: Some(private), ..sgd(RATE) };
    let expected = clipped(&world, &examples[0], 4.0);
    let mut drawn = 0;
    for key in 0..16 {
        let one = train(&world, &work, examples, key).change;
        let found = minus(&one, &train(&world, &work, others, key).change);
        if norm(&found) > 1e-3 {
            drawn += 1;
            assert!(norm(&minus(&found, &expected)) < 2e-5, "{}", norm(&found));
        }
    }
    // Four of nine.
    assert!((3..=12).contains(&drawn), "{drawn} of 16");
}

#[test]
fn a_frozen_prefix_is_computed_once_and_changes_no_bit() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let scope = Scope::of_blocks(world.model.layout(), [1]) | world.head();
    let work = Work { epochs: 3, batch: 6, private: Some(steps(0.3, 1.0)), ..sgd(RATE) };
    let key = SecretKey::simulated(Seed(2));
    let change = |cache| {
        let task = TrainTask { key: Some(&key), ..world.lesson(&scope, &work) };
        let trainer = Trainer { model: &world.model, device: &world.device, cache };
        bits(&trainer.train(&mut world.params.clone(), &task).unwrap().change)
    };
    assert_eq!(change(ByteCount(0)), change(ByteCount(1 << 30)));
}

#[test]
fn a_norm_that_adapts_follows_the_gradients() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let all = world.shards.clients[0].train.encoded();
    let clip = |start: f64| {
        let private = PrivateSteps { clipping: ClipRule::Adaptive, ..steps(start, 0.1) };
        let work = Work { epochs: 60, private: Some(private), ..whole(private) };
        let work = Work { solver: sgd(1e-6).solver, ..work };
        train(&world, &work, all, 3).course.noise.unwrap().clip.unwrap()
    };
    let mut norms: Vec<f64> =
        all.iter().map(|example| norm(&alone(&world, example)) / f64::from(RATE)).collect();
    norms.sort_by(f64::total_cmp);
    let median = norms[norms.len() / 2];
    for start in [0.1 * median, 10.0 * median] {
        let found = clip(start);
        assert!((0.7..1.4).contains(&(found / median)), "{start} -> {found}, median {median}");
    }
}

#[test]
fn work_without_a_secret_is_refused() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let (scope, work) = (world.everything(), whole(steps(1.0, 1.0)));
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    let refused = trainer.train(&mut world.params.clone(), &world.lesson(&scope, &work));
    assert!(matches!(refused, Err(ClientError::Privacy { .. })), "{refused:?}");
}

fn request(world: &World, work: Work) -> TrainRequest {
    let fleet = world.fleet();
    let mut request = world.orders(fleet.clients(), Round(0)).remove(0);
    request.work = work;
    request
}

fn payload(world: &World, request: &TrainRequest) -> Vec<u8> {
    let mut found = None;
    let mut fleet = world.fleet();
    fleet
        .train(vec![request.clone()], &mut |arrival| {
            let Outcome::Finished(reply) = arrival.outcome else { panic!("{:?}", arrival.outcome) };
            found = Some(reply.payload);
            Ok(Verdict::Taken)
        })
        .unwrap();
    found.unwrap()
}

#[test]
fn the_same_question_meets_the_same_noise_and_another_meets_other_noise() {
    let mut world = World::new(Task::Diagnosis, Size::SMALL);
    let work = whole(steps(1e-9, 1.0));
    let asked = request(&world, work.clone());
    let once = payload(&world, &asked);
    assert_eq!(once, payload(&world, &asked));
    // Gradients are clipped to nothing: what differs is noise.
    let later = TrainRequest { round: Round(1), ..asked.clone() };
    let other_seed = TrainRequest { seed: Seed(77), ..asked.clone() };
    let rate = TrainRequest {
        work: Work { schedule: work.schedule, ..whole(steps(2e-9, 1.0)) },
        ..asked.clone()
    };
    let body = |payload: &[u8]| payload[payload.len() - 64..].to_vec();
    for other in [&later, &other_seed, &rate] {
        assert_ne!(body(&payload(&world, other)), body(&once));
    }
    // Other rows, and nothing else: their difference must not be what is left when two answers are subtracted.
    let mut fewer = World::new(Task::Diagnosis, Size::SMALL);
    let rows = fewer.shards.clients[0].train.encoded();
    let kept: Vec<Encoded> = rows[..rows.len() - 1].iter().chain(&rows[..1]).cloned().collect();
    fewer.shards.clients[0].train = kept.into_iter().collect();
    assert_ne!(body(&payload(&fewer, &asked)), body(&once));
    // Another model, and nothing else.
    let id = world.model.layout().ids().next().unwrap();
    world.params.get_mut(id).unwrap().scale(1.0001);
    assert_ne!(body(&payload(&world, &asked)), body(&once));
}

fn guarantee(budget: f64) -> Guarantee {
    Guarantee {
        unit: Unit::Example,
        relation: Relation::AddRemove,
        delta: Delta::new(1e-5).unwrap(),
        budget: Some(Budget::new(budget).unwrap()),
    }
}

fn guarded(world: &World, folder: &std::path::Path, budget: f64) -> Result<Client, ClientError> {
    let guard =
        PrivacyGuard::open(guarantee(budget), folder.join("ledger.jsonl"), Agreed::default())?;
    let labels = (world.shards.task, world.shards.labels.clone());
    let parts = (world.model.clone(), world.params.clone());
    let shard = world.shards.clients[0].clone();
    let mut client = Client::new(ClientId(0), shard, labels, parts, world.device.clone())?;
    (client.secret, client.guard) = (SecretKey::simulated(Seed(4)), Some(guard));
    Ok(client)
}

#[test]
fn a_client_counts_what_it_is_asked_and_refuses_what_breaks_its_guarantee() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let folder = tempfile::tempdir().unwrap();
    let mut client = guarded(&world, folder.path(), 9.0).unwrap();
    let spent = |client: &Client| client.guard.as_ref().unwrap().ledger().spent().unwrap().pld;

    let plain = request(&world, sgd(RATE));
    let refused = client.train(&plain).unwrap_err().to_string();
    assert!(refused.contains("steps without noise"), "{refused}");
    let noised = request(&world, whole(steps(1.0, 4.0)));
    let first = client.train(&noised).unwrap();
    let once = spent(&client);
    assert!(once > 0.5 && once < 2.0, "{once}");
    // The same again is the same release; the next round is another.
    assert_eq!(client.train(&noised).unwrap().payload, first.payload);
    assert_eq!(spent(&client), once);
    client.train(&TrainRequest { round: Round(1), ..noised.clone() }).unwrap();
    assert!(spent(&client) > once);
    // Steps with less noise than the budget bears, whoever asks for them.
    let weak = request(&world, whole(steps(1.0, 0.1)));
    let refused = client.train(&weak).unwrap_err().to_string();
    assert!(refused.contains('9') && refused.starts_with("privacy: "), "{refused}");

    let attention = Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Cls };
    let ask = ProbeRequest {
        probe: attention,
        clients: &[ClientId(0)],
        round: Round(2),
        seed: Seed(1),
        examples: 8,
        noise: None,
        split: None,
    };
    assert!(client.probe(&ask).unwrap_err().to_string().contains("without noise"));
    let before = spent(&client);
    let noise = Some(NoiseMultiplier::new(8.0).unwrap());
    let scores = client.probe(&ProbeRequest { noise, ..ask }).unwrap().scores;
    assert_eq!(scores.as_slice().len(), 2);
    assert!(spent(&client) > before);

    // With another key the same answer has other noise, and is another release.
    let before = spent(&client);
    client.secret = SecretKey::simulated(Seed(5));
    assert_ne!(
        client.train(&TrainRequest { round: Round(3), ..noised.clone() }).unwrap().payload,
        first.payload
    );
    let once = spent(&client);
    client.secret = SecretKey::simulated(Seed(6));
    client.train(&TrainRequest { round: Round(3), ..noised.clone() }).unwrap();
    assert!(before < once && once < spent(&client));

    // It continues where it stopped, and not with a ledger that somebody touched.
    let now = spent(&client);
    drop(client);
    assert_eq!(spent(&guarded(&world, folder.path(), 9.0).unwrap()), now);
    let file = folder.path().join("ledger.jsonl");
    let good = fs::read_to_string(&file).unwrap();
    assert!(guarded(&world, folder.path(), 3.0).is_err(), "another budget");
    let shorter: Vec<&str> = good.lines().collect();
    fs::write(&file, shorter[..shorter.len() - 1].join("\n")).unwrap();
    let refused = guarded(&world, folder.path(), 9.0).err().unwrap().to_string();
    assert!(refused.contains("shortened"), "{refused}");
    // A last line that was cut short announced nothing that happened.
    fs::write(&file, format!("{good}{{\"event\":{{\"round\":7,\"mech")).unwrap();
    let mut client = guarded(&world, folder.path(), 9.0).unwrap();
    assert_eq!(spent(&client), now);
    client.train(&TrainRequest { round: Round(9), ..noised }).unwrap();
    let longer = fs::read_to_string(&file).unwrap();
    assert!(longer.starts_with(&good) && longer.ends_with('\n'), "{longer}");
    fs::write(&file, good.replace("\"noise\":4", "\"noise\":5")).unwrap();
    assert!(guarded(&world, folder.path(), 9.0).is_err(), "edited");
}
