//! What people expect of a trainer: schedules, accumulated batches, weights of classes, label smoothing, dropout,
//! moments that live on. That each is PyTorch's is shown in `compute`; here, that clients carry it out.

use std::collections::BTreeMap;

use fedra_client::{Examples, TrainResult, TrainTask, Trainer};
use fedra_compute::{SecretKey, Seed};
use fedra_data::{Encoded, Target, Task};
use fedra_engine::{
    ClassWeights, ClipRule, Fleet, LocalRule, MomentsLife, NoiseMultiplier, PrivateSteps,
    RateDecay, RateWarmup, Recipe, Schedule, SplitConfig, SplitMode, Verdict, Work,
};
use fedra_plan::{ByteCount, Layer, Round, Scope};
use fedra_wire::ParamValues;

use crate::split::{all_cuts, assert_near, cut, encoder, run};
use crate::world::{Size, World, adamw, bits, kept_by, sgd, with_threads};

/// Notes of which each has one label: the first of its diagnoses.
fn classes(mut world: World) -> World {
    let one = |examples: &Examples| -> Examples {
        let one = |example: &Encoded| {
            let Target::Many(codes) = &example.target else { panic!("diagnoses are several") };
            let target = Target::One(codes.first().copied().unwrap_or(0));
            Encoded { target, ..example.clone() }
        };
        examples.encoded().iter().map(one).collect()
    };
    world.shards.task = Task::Classes;
    for shard in &mut world.shards.clients {
        for examples in [&mut shard.train, &mut shard.validation, &mut shard.test] {
            *examples = one(examples);
        }
    }
    world.shards.central_test = one(&world.shards.central_test);
    world
}

fn world_of_classes() -> World {
    classes(World::new(Task::Diagnosis, Size::SMALL))
}

fn trained(world: &World, task: &TrainTask<'_>) -> TrainResult {
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(1 << 20) };
    trainer.train(&mut params, task).unwrap()
}

fn by(world: &World, work: &Work) -> TrainResult {
    trained(world, &world.lesson(&world.everything(), work))
}

/// How far apart two changes are, over the length of the second.
fn apart(found: &ParamValues, expected: &ParamValues) -> f64 {
    let square = |numbers: &mut dyn Iterator<Item = f32>| -> f64 {
        numbers.map(|number| f64::from(number).powi(2)).sum()
    };
    let (mut off, mut length) = (0.0, 0.0);
    for (id, expected) in expected.iter() {
        let pairs = found.get(id).unwrap().iter().zip(expected);
        off += square(&mut pairs.map(|(found, expected)| found - expected));
        length += square(&mut expected.iter().copied());
    }
    (off / length).sqrt()
}

#[test]
fn a_steps_rate_follows_from_the_round_and_from_the_step() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let everything = world.everything();
    let schedule = |warmup| Schedule::over(RateDecay::Linear, warmup, 4);
    let at = |round, work: &Work| {
        let task = world.lesson(&everything, work);
        bits(&trained(&world, &TrainTask { round: Round(round), ..task }).change)
    };
    let plain = Work { max_steps: Some(1), ..sgd(0.5) };
    let falling = Work { schedule: schedule(RateWarmup::Rounds(0)), ..plain.clone() };
    assert_eq!(at(0, &falling), at(0, &plain));
    assert_eq!(at(2, &falling), at(0, &Work { max_steps: Some(1), ..sgd(0.25) }));
    // The first step of a warm-up changes nothing, and neither does what comes behind the last round.
    let rising = Work { schedule: schedule(RateWarmup::Share(0.5)), ..plain.clone() };
    assert!(at(0, &rising).iter().all(|bits| f32::from_bits(*bits) == 0.0));
    assert_eq!(at(1, &rising), at(0, &Work { max_steps: Some(1), ..sgd(0.25) }));
    assert!(at(4, &falling).iter().all(|bits| f32::from_bits(*bits) == 0.0));
    // Within a round: of two steps in all, the second has the whole rate behind a warm-up of half.
    let two = |schedule| Work { max_steps: Some(2), schedule, ..sgd(0.5) };
    let half = Schedule::over(RateDecay::Cosine, RateWarmup::Share(0.5), 1);
    assert_ne!(at(0, &two(half)), at(0, &two(Schedule::default())));
    assert!(at(0, &two(half)).iter().any(|bits| f32::from_bits(*bits) != 0.0));
}

fn labels_weighted(world: &World) -> ClassWeights {
    let names = world.shards.labels.names().iter().enumerate();
    let weight = |(number, name): (usize, &String)| (name.clone(), 0.5 + number as f32 / 3.0);
    ClassWeights::ByLabel(names.map(weight).collect())
}

#[test]
fn accumulated_batches_make_the_step_of_one_large_batch() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let large = Work { batch: 12, epochs: 2, clip: Some(0.3), ..sgd(0.5) };
    let rich = Work {
        class_weights: Some(labels_weighted(&world)),
        label_smoothing: 0.1,
        dropout: 0.2,
        ..large.clone()
    };
    for large in [large, rich] {
        let small = Work { batch: 4, accumulate: 3, ..large.clone() };
        let (expected, found) = (by(&world, &large), by(&world, &small));
        assert_eq!(found.course.steps, expected.course.steps);
        let (loss, expected_loss) = (found.course.loss.unwrap(), expected.course.loss.unwrap());
        assert!((loss / expected_loss - 1.0).abs() < 1e-5, "{loss} and {expected_loss}");
        let off = apart(&found.change, &expected.change);
        assert!(off < 1e-4, "off by {off:e}");
        // A mean of means would be another step: batches have different numbers of labelled tokens.
        let plain = by(&world, &Work { batch: 4, ..large });
        assert!(apart(&plain.change, &expected.change) > 1e-2);
    }
}

#[test]
fn balanced_weights_are_those_that_a_client_would_write_down() {
    for world in [World::new(Task::Concepts, Size::SMALL), world_of_classes()] {
        let task = world.shards.task;
        let lesson_scope = world.everything();
        let work = sgd(0.5);
        let lesson = world.lesson(&lesson_scope, &work);
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for example in lesson.examples {
            let targets = match &example.target {
                Target::One(class) => vec![*class],
                Target::PerToken(tags) => tags.iter().flatten().copied().collect(),
                other @ (Target::Many(_)
                | Target::Choice(_)
                | Target::Text(_)
                | Target::Preference(_)) => panic!("{other:?}"),
            };
            for class in targets {
                *counts.entry(class).or_default() += 1;
            }
        }
        let (all, classes) = (counts.values().sum::<u64>() as f64, counts.len() as f64);
        let weight = |(class, count): (&u32, &u64)| {
            let name = world.shards.labels.name(*class).to_owned();
            (name, (all / (classes * *count as f64)) as f32)
        };
        let given = ClassWeights::ByLabel(counts.iter().map(weight).collect());
        let with = |weights| by(&world, &Work { class_weights: Some(weights), ..sgd(0.5) });
        let balanced = with(ClassWeights::Balanced);
        assert_eq!(bits(&balanced.change), bits(&with(given).change), "{task:?}");
        assert_ne!(bits(&balanced.change), bits(&by(&world, &sgd(0.5)).change));
        // Of one alike, nothing is left: a constant cancels.
        let names = world.shards.labels.names().iter();
        let alike = ClassWeights::ByLabel(names.map(|name| (name.clone(), 4.0)).collect());
        assert!(apart(&with(alike).change, &by(&world, &sgd(0.5)).change) < 1e-5);
    }
}

#[test]
fn a_weight_for_a_label_that_the_data_lack_is_refused_by_name() {
    let world = world_of_classes();
    let weights = ClassWeights::ByLabel([("gout".to_owned(), 2.0)].into());
    let work = Work { class_weights: Some(weights), ..sgd(0.1) };
    let (scope, mut params) = (world.everything(), world.params.clone());
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    let refused = trainer.train(&mut params, &world.lesson(&scope, &work)).unwrap_err();
    assert!(refused.to_string().contains("a class weight for \"gout\""), "{refused}");
}

#[test]
fn dropout_depends_on_the_seed_and_not_on_threads_or_a_cache() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let work = Work { dropout: 0.2, epochs: 2, ..adamw(1e-2) };
    let scope = world.everything();
    let lesson = world.lesson(&scope, &work);
    let change = |lesson: &TrainTask<'_>| bits(&trained(&world, lesson).change);
    let found = change(&lesson);
    for threads in [1, 3] {
        assert_eq!(with_threads(threads, || change(&lesson)), found);
    }
    assert_ne!(change(&TrainTask { seed: Seed(6), ..lesson }), found);
    assert_ne!(bits(&by(&world, &Work { dropout: 0.0, ..work.clone() }).change), found);
    // In front of what learns nothing is dropped, cached or not.
    let upper = Scope::of_blocks(world.model.layout(), [1]) | world.head();
    let lesson = TrainTask { scope: &upper, ..lesson };
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    let without = trainer.train(&mut params, &lesson).unwrap();
    assert_eq!(bits(&without.change), change(&lesson));
}

#[test]
fn dropping_nothing_but_the_head_is_told_from_dropping_all() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let work = Work { dropout: 0.3, ..sgd(0.1) };
    let head = world.head();
    let lesson = world.lesson(&head, &work);
    let plain = Work { dropout: 0.0, ..work.clone() };
    let (with, without) = (trained(&world, &lesson), trained(&world, &world.lesson(&head, &plain)));
    assert_ne!(bits(&with.change), bits(&without.change));
    assert!(head.iter().all(|id| id.layer == Layer::Head));
}

/// A work with everything that a cut has to carry out on both sides.
fn rich() -> Work {
    Work {
        batch: 4,
        accumulate: 2,
        epochs: 2,
        dropout: 0.1,
        label_smoothing: 0.1,
        clip: Some(0.5),
        schedule: Schedule::over(RateDecay::Cosine, RateWarmup::Share(0.2), 2),
        ..sgd(0.2)
    }
}

#[test]
fn a_cut_model_schedules_accumulates_and_drops_as_the_whole_one() {
    let world = classes(encoder(Task::Diagnosis));
    let whole = Recipe::new(rich());
    let (expected, reports) = run(&world, &whole, 2);
    for (first, last) in all_cuts() {
        let what = format!("p = {first}, q = {last}");
        let split = SplitConfig { mode: SplitMode::Replicated, ..cut(first, last) };
        let recipe = Recipe { split: Some(split), ..whole.clone() };
        let (found, cut_reports) = run(&world, &recipe, 2);
        assert_near(&found, &expected, &what);
        let (found, expected) = (cut_reports[1].loss.unwrap(), reports[1].loss.unwrap());
        assert!((found / expected - 1.0).abs() < 1e-5, "{what}: {found} and {expected}");
    }
    let plain = run(&world, &Recipe::new(Work { dropout: 0.0, ..rich() }), 2).0;
    assert_ne!(bits(&plain), bits(&expected));
}

#[test]
fn moments_that_live_on_are_state_and_fresh_ones_are_not() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let rounds = |moments| {
        let mut fleet = world.fleet();
        let infos = fleet.clients().to_vec();
        let mut payloads = Vec::new();
        for round in 0..2 {
            crate::world::send(&mut fleet, Round(round), &fedra_client::to_values(&world.params));
            let mut orders = world.orders(&infos, Round(round));
            for order in &mut orders {
                order.work.moments = moments;
            }
            let mut arrive = |arrival: fedra_engine::Arrival| {
                let fedra_engine::Outcome::Finished(reply) = arrival.outcome else {
                    panic!("{arrival:?}")
                };
                payloads.push((round, arrival.client, reply.payload));
                Ok(Verdict::Taken)
            };
            fleet.train(orders, &mut arrive).unwrap();
        }
        payloads.sort_by_key(|(round, client, _)| (*round, *client));
        (payloads, kept_by(&fleet))
    };
    let (fresh, nothing) = rounds(MomentsLife::Fresh);
    assert!(nothing.is_empty());
    let (kept, states) = rounds(MomentsLife::Kept);
    assert_eq!(states.len(), world.shards.clients.len());
    for (place, state) in states.iter().enumerate() {
        let examples = world.shards.clients[place].train.len() as u64;
        let steps = 2 * adamw(1e-2).steps(examples) as u32;
        assert!(state.moments.steps.values().all(|found| *found == steps), "{place}");
        assert_eq!(state.moments.first.scope(), world.everything());
        assert_eq!(state.moments.second.scope(), world.everything());
    }
    // The first round knows no earlier one; the second continues from it.
    let first = world.shards.clients.len();
    assert_eq!(fresh[..first], kept[..first]);
    assert!(fresh[first..].iter().zip(&kept[first..]).all(|(fresh, kept)| fresh != kept));
}

#[test]
fn private_steps_take_every_setting_and_an_example_drops_the_same_without_the_others() {
    let world = world_of_classes();
    let noise = NoiseMultiplier::new(1e-3).unwrap();
    let rows = std::num::NonZeroU64::new(4);
    let steps = PrivateSteps { clip: 50.0, clipping: ClipRule::Flat, noise, cap: None, rows };
    let work = Work {
        batch: 4,
        accumulate: 2,
        max_steps: Some(1),
        private: Some(steps),
        dropout: 0.3,
        label_smoothing: 0.1,
        class_weights: Some(labels_weighted(&world)),
        ..sgd(1.0)
    };
    let (key, scope) = (SecretKey::simulated(Seed(4)), world.everything());
    let examples = world.shards.clients[0].train.encoded();
    let change = |examples: &[_]| {
        let lesson = world.lesson(&scope, &work);
        trained(&world, &TrainTask { examples, key: Some(&key), ..lesson }).change
    };
    let balanced = Work { class_weights: Some(ClassWeights::Balanced), ..work.clone() };
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    let asked = TrainTask { key: Some(&key), ..world.lesson(&scope, &balanced) };
    let refused = trainer.train(&mut params, &asked).unwrap_err().to_string();
    assert!(refused.contains("found balanced class weights"), "{refused}");
    // Every row is in the batch, whose divisor is public, and the noise of one key is the same: what the
    // first row adds is the same beside the second and beside the third.
    let pick = |places: &[usize]| {
        let rows: Vec<Encoded> = places.iter().map(|&place| examples[place].clone()).collect();
        change(&rows)
    };
    let less = |all: &ParamValues, rest: &ParamValues| -> ParamValues {
        let minus = |(id, all): (_, &[f32])| {
            let pairs = all.iter().zip(rest.get(id).unwrap());
            (id, pairs.map(|(all, rest)| all - rest).collect())
        };
        all.iter().map(minus).collect()
    };
    let beside_second = less(&pick(&[0, 1]), &pick(&[1]));
    let beside_third = less(&pick(&[0, 2]), &pick(&[2]));
    let off = apart(&beside_second, &beside_third);
    assert!(off < 1e-3, "off by {off:e}");
}

#[test]
fn what_a_batched_middle_or_the_servers_blocks_cannot_do_is_refused() {
    let check = |work: Work, mode, expected: &str| {
        let split = Some(SplitConfig { mode, ..cut(1, 1) });
        let refused = Recipe { split, ..Recipe::new(work) }.check(3).expect_err(expected);
        assert!(refused.to_string().contains(expected), "{refused}");
    };
    let (batched, apart) = (SplitMode::Batched, SplitMode::Replicated);
    check(
        Work { accumulate: 2, ..sgd(0.1) },
        batched,
        "work.accumulate sums batches of one client",
    );
    check(Work { dropout: 0.1, ..sgd(0.1) }, batched, "work.dropout is drawn for each client");
    let kept = Work { moments: MomentsLife::Kept, ..adamw(0.1) };
    check(kept.clone(), apart, "work.moments = \"kept\" is client state");
    let local = [LocalRule::Proximal { mu: 0.1 }, LocalRule::ControlVariate];
    for local in local {
        let work = Work { local, label_smoothing: 0.1, ..kept.clone() };
        Recipe::new(Work { accumulate: 2, dropout: 0.1, ..work }).check(3).unwrap();
    }
}
