//! Answers in text: likelihoods are those of the whole sequence, batches leave no trace, and real
//! weights say what `transformers` says (`tools/likelihood_fixtures.py`).

use std::path::Path;
use std::sync::Arc;

use fedra_client::{Counts, Evaluator, Examples, Scores, Trainer, Writing};
use fedra_compute::{Device, Params, Seed, Tape};
use fedra_data::{
    AnswerRules, Answers, Candidate, Encoded, Encoder, LengthNorm, Row, Table, TableBuilder,
    Target, Task, Tokenizer, open_tokenizer,
};
use fedra_model::hf::Checkpoint;
use fedra_model::hf::Config;
use fedra_model::{Batch, Classifier, Head, Loaded, Model, Wanted, load_checkpoint};
use fedra_plan::ByteCount;
use serde_json::Value;

use crate::world::{Size, World, adamw, sgd, with_threads};

fn world(task: Task) -> World {
    let size = Size { width: 16, ..Size::SMALL };
    let config = Config {
        vocab_size: 600,
        hidden_size: size.width,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(4),
        intermediate_size: 2 * size.width,
        max_position_embeddings: size.longest,
        tie_word_embeddings: true,
        ..Config::llama()
    };
    let mut world = World::of(task, size, (config, None));
    // A little training, so that answers differ.
    let (scope, work) = (world.everything(), adamw(1e-2));
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    trainer.train(&mut params, &world.lesson(&scope, &work)).unwrap();
    world.params = params;
    world
}

fn score(world: &World, tokens: usize, examples: &Examples) -> Scores {
    let (model, device, labels) = (&world.model, &world.device, &world.shards.labels);
    let evaluator = Evaluator { model, device, task: world.shards.task, labels, tokens };
    evaluator.score(&world.params, examples).unwrap()
}

/// The log-likelihood of tokens after others, from all logits of that one sequence.
fn alone((model, params): (&Model, &Params), device: &Device, prompt: &[u32], told: &[u32]) -> f64 {
    let ids = [prompt, told].concat();
    let mut tape = Tape::new(device);
    let batch = Batch::new(&[&ids]).unwrap();
    let logits = model.logits(&mut tape, params.frozen(), &batch).unwrap().tensor;
    let numbers = logits.to_host();
    let rows: Vec<&[f32]> = numbers.chunks_exact(logits.cols()).collect();
    (prompt.len()..ids.len())
        .map(|place| {
            let row = rows[place - 1];
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            f64::from(row[ids[place] as usize]) - sum.ln()
        })
        .sum()
}

#[test]
fn the_likeliest_answer_is_the_one_of_each_sequence_alone() {
    let world = world(Task::Choice);
    let examples = &world.shards.clients[0].train;
    let (mut right, mut loss, mut tokens) = (0_u32, 0.0, 0.0);
    for example in examples.encoded() {
        let Target::Choice(choice) = &example.target else { panic!("choices") };
        let prompt = &example.ids[..choice.prompt];
        let said = |candidate: &Candidate| {
            alone((&world.model, &world.params), &world.device, prompt, &candidate.ids)
        };
        let best = choice.candidates.iter().max_by(|l, r| said(l).total_cmp(&said(r))).unwrap();
        right += u32::from(best.label == choice.label);
        let truth = &choice.candidates[choice.label as usize];
        loss -= said(truth);
        tokens += truth.ids.len() as f64;
    }
    let scores = score(&world, 200, examples);
    let Counts::Classes(counts) = &scores.counts else { panic!("classes") };
    assert!((counts.exact() - f64::from(right) / examples.len() as f64).abs() < 1e-12);
    assert!((scores.loss() - loss / tokens).abs() < 1e-5, "{} {}", scores.loss(), loss / tokens);
    assert!((0.2..1.0).contains(&counts.exact()), "answers differ: {}", counts.exact());
}

#[test]
fn batches_and_threads_leave_no_trace_in_choices_and_texts() {
    for task in [Task::Choice, Task::Generation] {
        let world = world(task);
        let examples = &world.shards.clients[0].train;
        let whole = with_threads(1, || score(&world, 1_000_000, examples));
        assert_eq!(whole.examples, examples.len() as u64);
        for (tokens, threads) in [(1, 1), (100, 2), (1_000_000, 2)] {
            let parts = with_threads(threads, || score(&world, tokens, examples));
            assert_eq!(parts.counts, whole.counts, "{task:?} {tokens} {threads}");
        }
    }
}

#[test]
fn the_loss_of_a_choice_is_the_one_that_training_sees() {
    for task in [Task::Choice, Task::Generation] {
        let world = world(task);
        let examples = &world.shards.clients[0].train;
        let (scope, work) = (world.everything(), sgd(0.0));
        let work = fedra_engine::Work { batch: 10_000, ..work };
        let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
        let lesson =
            trainer.train(&mut world.params.clone(), &world.lesson(&scope, &work)).unwrap();
        let scored = score(&world, 300, examples).loss();
        assert!(
            (lesson.course.loss.unwrap() - scored).abs() < 1e-5,
            "{task:?} {} {scored}",
            lesson.course.loss.unwrap()
        );
    }
}

#[test]
fn training_on_the_right_answers_alone_teaches_to_choose_them() {
    let mut world = world(Task::Choice);
    let before = score(&world, 300, &world.shards.clients[0].train.clone()).loss();
    let (scope, work) = (world.everything(), fedra_engine::Work { epochs: 5, ..adamw(1e-2) });
    let mut params = world.params.clone();
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    trainer.train(&mut params, &world.lesson(&scope, &work)).unwrap();
    world.params = params;
    let after = score(&world, 300, &world.shards.clients[0].train.clone()).loss();
    assert!(after < 0.7 * before, "{before} {after}");
}

/// A real decoder with its tokenizer.
struct Real {
    model: Model,
    params: Params,
    device: Device,
    tokenizer: Arc<Tokenizer>,
}

impl Real {
    fn open() -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/models/stories260k");
        let folder = Path::new(folder);
        let device = Device::cpu();
        let checkpoint = Checkpoint::open(folder).unwrap();
        let wanted =
            Wanted { head: Head::Language, classifier: Classifier::Stored, adapters: None };
        let loaded = load_checkpoint(&checkpoint, wanted, (&device, Seed(1))).unwrap();
        let Loaded { model, params, .. } = loaded;
        Self { model, params, device, tokenizer: open_tokenizer(folder).unwrap().into() }
    }

    fn score(&self, table: &Table, rules: AnswerRules) -> Scores {
        let max_new_tokens = rules.max_new_tokens;
        let encoder = Encoder::new(self.tokenizer.as_ref(), 400).unwrap().with_rules(rules);
        let tokenizer = Arc::clone(&self.tokenizer);
        let writing = Writing { tokenizer, max_new_tokens, stop: vec![2] };
        let examples = Examples::encode(&encoder, &table.examples).unwrap().with_writing(writing);
        let (model, device, labels) = (&self.model, &self.device, &table.labels);
        let evaluator = Evaluator { model, device, task: table.task, labels, tokens: 2048 };
        evaluator.score(&self.params, &examples).unwrap()
    }
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("../fixtures/answers.json")).unwrap()
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn likelihoods_are_those_of_transformers() {
    let real = Real::open();
    for choice in fixture()["choices"].as_array().unwrap() {
        let answers = choice["answers"].as_array().unwrap();
        let text = |answer: &Value| answer["answer"].as_str().unwrap().to_owned();
        let numbers = |answer: &Value| {
            let tokens = answer["tokens"].as_f64().unwrap();
            (tokens, answer["log_likelihood"].as_f64().unwrap())
        };
        let prompt = choice["prompt"].as_str().unwrap();
        let table = |right: usize| {
            let all = answers.iter().enumerate();
            let all = all.map(|(place, answer)| (place.to_string(), text(answer)));
            let (row, answers) = (Row::text(prompt), Answers::Choice(all.collect()));
            let mut builder = TableBuilder::new(Task::Choice);
            builder.push(Row { answers, ..row.with_labels([right.to_string()]) }).unwrap();
            builder.finish()
        };
        for (place, answer) in answers.iter().enumerate() {
            let (tokens, expected) = numbers(answer);
            let found = -real.score(&table(place), AnswerRules::default()).loss() * tokens;
            assert!((found - expected).abs() < 2e-4, "{prompt:?} {answer}: {found}");
        }
        for (length_norm, per_token) in [(LengthNorm::None, false), (LengthNorm::Tokens, true)] {
            let value = |answer: &Value| {
                let (tokens, whole) = numbers(answer);
                if per_token { whole / tokens } else { whole }
            };
            let best = (0..answers.len())
                .max_by(|l, r| value(&answers[*l]).total_cmp(&value(&answers[*r])))
                .unwrap();
            let rules = AnswerRules { length_norm, ..AnswerRules::default() };
            let scores = real.score(&table(best), rules);
            let Counts::Classes(counts) = &scores.counts else { panic!("classes") };
            assert_eq!(counts.exact(), 1.0, "{prompt:?} {length_norm:?}");
        }
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn texts_are_those_that_transformers_writes() {
    let real = Real::open();
    let fixture = fixture();
    let max_new_tokens = fixture["new_tokens"].as_u64().unwrap() as usize;
    let mut builder = TableBuilder::new(Task::Generation);
    for pair in fixture["texts"].as_array().unwrap() {
        let text = |key: &str| pair[key].as_str().unwrap().to_owned();
        let (row, answers) = (Row::text(text("prompt")), Answers::Text(text("text")));
        builder.push(Row { answers, ..row }).unwrap();
    }
    let rules = AnswerRules { max_new_tokens, end: Some(2), ..AnswerRules::default() };
    let scores = real.score(&builder.finish(), rules);
    assert_eq!(scores.headline(), ("rouge_l", 1.0), "{:?}", scores.named());
}

#[test]
fn a_sequence_of_an_example_is_its_prompt_and_right_answer() {
    let world = world(Task::Choice);
    for Encoded { ids, target, .. } in world.shards.clients[0].train.encoded() {
        let Target::Choice(choice) = target else { panic!("choices") };
        assert_eq!(ids[choice.prompt..], choice.candidates[choice.label as usize].ids);
    }
}
