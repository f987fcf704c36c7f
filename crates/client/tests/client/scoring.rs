//! Scores do not show how they were computed.

use crate::world::{Size, World, adamw, with_threads};
use fedra_client::{Counts, Evaluator, Examples, Scores, Trainer};
use fedra_data::{Encoder, Row, TableBuilder, Task, Tokenizer};
use fedra_plan::ByteCount;

fn score(world: &World, tokens: usize, examples: &Examples) -> Scores {
    let (model, device, labels) = (&world.model, &world.device, &world.shards.labels);
    let evaluator = Evaluator { model, device, task: world.shards.task, labels, tokens };
    evaluator.score(&world.params, examples).unwrap()
}

/// The world after a little training, so that its answers differ.
fn trained(task: Task) -> World {
    let mut world = World::new(task, Size::SMALL);
    let (scope, work) = (world.everything(), adamw(1e-2));
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    trainer.train(&mut params, &world.lesson(&scope, &work)).unwrap();
    world.params = params;
    world
}

#[test]
fn batches_and_threads_leave_no_trace_in_a_score() {
    for task in [Task::Concepts, Task::Diagnosis] {
        let world = trained(task);
        let examples = &world.shards.clients[0].train;
        let whole = with_threads(1, || score(&world, 1_000_000, examples));
        assert_eq!(whole.examples, examples.len() as u64);
        for (tokens, threads) in [(1, 1), (100, 2), (100, 3), (1_000_000, 2)] {
            let parts = with_threads(threads, || score(&world, tokens, examples));
            assert_eq!(parts, whole, "{task:?} {tokens} {threads}");
        }
    }
}

#[test]
fn merged_scores_are_the_scores_of_everything() {
    let world = trained(Task::Concepts);
    let [first, second] = [0, 1].map(|client| &world.shards.clients[client].train);
    let mut merged = score(&world, 500, first);
    merged.merge(&score(&world, 500, second));
    let mut both = first.clone();
    both.extend_from(second);
    let both = score(&world, 500, &both);
    assert_eq!(merged.counts, both.counts);
    // The loss is a sum of the same numbers in two pieces.
    assert!((merged.loss() - both.loss()).abs() < 1e-12);
}

#[test]
fn the_loss_of_an_example_is_what_it_scores_alone() {
    for task in [Task::Concepts, Task::Diagnosis, Task::Language] {
        let world =
            if task == Task::Language { World::new(task, Size::SMALL) } else { trained(task) };
        let examples = &world.shards.clients[0].train;
        let (model, device, labels) = (&world.model, &world.device, &world.shards.labels);
        let evaluator = Evaluator { model, device, task, labels, tokens: 500 };
        let losses = evaluator.losses(&world.params, examples).unwrap();
        assert_eq!(losses.len(), examples.len());
        for (place, loss) in losses.iter().enumerate().step_by(7) {
            let only: Vec<bool> = (0..examples.len()).map(|other| other == place).collect();
            let alone = score(&world, 500, &examples.kept(&only));
            assert_eq!((loss.unwrap_or(0.0), alone.examples), (alone.loss(), 1), "{task:?}");
        }
    }
}

#[test]
fn examples_that_are_kept_keep_their_lost_words() {
    let world = World::new(Task::Concepts, Size { longest: 8, ..Size::SMALL });
    let examples = &world.shards.clients[0].train;
    let place = (0..examples.len()).find(|&place| !examples.cut(place).is_empty()).unwrap();
    let keep: Vec<bool> = (0..=place).map(|other| other == place).collect();
    let kept = examples.kept(&keep);
    assert_eq!(kept.encoded(), &examples.encoded()[place..=place]);
    assert_eq!(kept.cut(0), examples.cut(place));
    assert!(examples.kept(&[]).is_empty());
}

#[test]
fn the_loss_is_the_one_that_training_sees() {
    for task in [Task::Concepts, Task::Diagnosis] {
        let world = World::new(task, Size::SMALL);
        let work = fedra_engine::Work { batch: 10_000, ..crate::world::sgd(0.0) };
        let scope = world.head();
        let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
        let lesson = world.lesson(&scope, &work);
        let learnt = trainer.train(&mut world.params.clone(), &lesson).unwrap();
        let scored = score(&world, 500, &world.shards.clients[0].train);
        // Training sums in f32.
        assert!(
            (scored.loss() - learnt.course.loss.unwrap()).abs() < 1e-5,
            "{} {}",
            scored.loss(),
            learnt.course.loss.unwrap()
        );
    }
}

#[test]
fn words_cut_away_count_as_missed() {
    let mut builder = TableBuilder::new(Task::Concepts);
    let words = ["chest", "pain", "and", "fever"];
    let labels = ["B-problem", "I-problem", "O", "B-problem"];
    builder.push(Row::words(words).with_labels(labels)).unwrap();
    let table = builder.finish();
    let tokenizer = Tokenizer::grow(["chest pain and fever chest pain and fever"], 60).unwrap();
    let mut world = World::new(Task::Concepts, Size::SMALL);
    world.shards.labels =
        fedra_data::LabelSet::of_tags(["B-problem", "B-test", "B-treatment"].map(str::to_owned));
    let false_negatives = |longest: usize| {
        let encoder = Encoder::new(&tokenizer, longest).unwrap();
        let examples = Examples::encode(&encoder, &table.examples).unwrap();
        assert_eq!(examples.cut(0).len(), examples.encoded()[0].dropped);
        let scores = score(&world, 500, &examples);
        let Counts::Spans(spans) = scores.counts else { panic!("concepts are spans") };
        spans.kinds["problem"].false_negatives + spans.kinds["problem"].true_positives
    };
    assert_eq!((false_negatives(20), false_negatives(4)), (2, 2));
}
