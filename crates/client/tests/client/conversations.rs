//! Conversations whose last answers are written: what is asked, what is compared, and what is left out.

use std::sync::Arc;

use fedra_client::{Evaluator, Examples, LastTurnCounts, Scores, Shards, Trainer, Writing};
use fedra_compute::{Device, Seed};
use fedra_data::{
    AnswerRules, ChatTemplate, Division, Encoded, EncodedText, Encoder, Holding, Message, Role,
    Row, TableBuilder, Target, Task, Tokenizer, Work,
};
use fedra_model::hf::Config;
use fedra_model::{Head, Model};
use fedra_plan::ByteCount;

use crate::world::{World, adamw};

/// Conversations of two kinds, one that ends with a user's turn, and one whose question is too long.
fn talks() -> Vec<Vec<Message>> {
    let say = |turns: &[&str]| {
        let roles = [Role::User, Role::Assistant].into_iter().cycle();
        roles.zip(turns).map(|(role, text)| Message::new(role, *text)).collect()
    };
    let long = "my head hurts ".repeat(30);
    vec![
        say(&["my head hurts", "then rest well", "my back hurts", "then walk well"]),
        say(&["my back hurts", "then rest well", "thanks"]),
        say(&["my foot hurts", "then sit down"]),
        say(&[&long, "then rest well"]),
    ]
}

/// A small decoder that has learned the conversations by heart, to be scored on the same ones.
fn world() -> (World, LastTurnCounts, Arc<Tokenizer>) {
    let mut table = TableBuilder::new(Task::Chat);
    for talk in talks().into_iter().chain(talks()) {
        table.push(Row::conversation(talk)).unwrap();
    }
    let table = table.finish();
    let texts: Vec<String> = table.examples.iter().map(|it| it.body.to_text()).collect();
    let tokenizer = Arc::new(Tokenizer::grow(texts.iter().map(String::as_str), 200).unwrap());
    let template = ChatTemplate::plain(Some(3), &tokenizer).unwrap();
    let rules = AnswerRules { max_new_tokens: 8, end: Some(3), ..AnswerRules::default() };
    let encoder = Encoder::new(tokenizer.as_ref(), 64).unwrap();
    let encoder = encoder.with_rules(rules).with_chat(&template);
    let holding = |train: &[usize], test: &[usize]| Holding {
        client: "north".to_owned(),
        train: train.to_vec(),
        test: test.to_vec(),
        ..Holding::default()
    };
    let clients = vec![holding(&[0, 1, 2], &[4, 5, 6, 7])];
    let division = Division { clients, central_test: vec![3] };
    let shards = Shards::encode(&encoder, &table, &division).unwrap();
    let writing = Writing { tokenizer: Arc::clone(&tokenizer), max_new_tokens: 8, stop: vec![3] };
    let (shards, counts) = shards
        .with_last_answers(&Work::default(), (&encoder, &writing), (&table, &division))
        .unwrap();
    let config = Config {
        vocab_size: tokenizer.vocabulary_size(),
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: Some(2),
        head_dim: Some(16),
        intermediate_size: 64,
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        ..Config::llama()
    };
    let device = Device::cpu();
    let model = Model::new(config, Head::Language, None).unwrap();
    let params = model.fresh_params(&device, Seed(1)).unwrap();
    let mut world = World { model, params, device, shards };
    let (scope, work) = (world.everything(), fedra_engine::Work { epochs: 60, ..adamw(1e-2) });
    let trainer = Trainer { model: &world.model, device: &world.device, cache: ByteCount(0) };
    let mut params = world.params.clone();
    trainer.train(&mut params, &world.lesson(&scope, &work)).unwrap();
    world.params = params;
    (world, counts, tokenizer)
}

fn score(world: &World, (task, tokens): (Task, usize), examples: &Examples) -> Scores {
    let (model, device, labels) = (&world.model, &world.device, &world.shards.labels);
    Evaluator { model, device, task, labels, tokens }.score(&world.params, examples).unwrap()
}

fn named(scores: &Scores, name: &str) -> Option<f64> {
    scores.named().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

#[test]
fn the_last_answer_of_a_conversation_is_written_and_compared() {
    let (world, counts, tokenizer) = world();
    assert_eq!(counts, LastTurnCounts { conversations: 5, unanswered: 1, too_long: 2 });
    let template = ChatTemplate::plain(Some(3), &tokenizer).unwrap();
    let (test, talks) = (&world.shards.clients[0].test, talks());
    for (place, talk) in talks.iter().enumerate() {
        let expected = [true, false, true, false][place].then(|| {
            let (last, before) = talk.split_last().unwrap();
            (template.prompt(before, &tokenizer).unwrap(), last.content.as_str())
        });
        let found = test.asked(place).map(|(prompt, reference)| (prompt.to_vec(), reference));
        assert_eq!(found, expected, "{place}");
    }
    // Those that were learned by heart are written word for word.
    let scores = score(&world, (Task::Chat, 1_000), test);
    assert_eq!(scores.examples, 4);
    for name in ["rouge_1", "rouge_2", "rouge_l"] {
        assert_eq!(named(&scores, name), Some(1.0), "{:?}", scores.named());
    }
    for tokens in [1, 60] {
        assert_eq!(score(&world, (Task::Chat, tokens), test).counts, scores.counts, "{tokens}");
    }
}

#[test]
fn answers_are_written_and_compared_as_those_of_generation() {
    let (world, _, _) = world();
    let test = &world.shards.clients[0].test;
    // A wrong reference, so that the numbers are neither 0 nor 1.
    let turned = |place: usize| {
        let (prompt, _) = test.asked(place)?;
        let text = EncodedText { prompt: prompt.len(), reference: "then rest well".to_owned() };
        let (ids, target) = ([prompt, &[5]].concat(), Target::Text(text));
        Some(Encoded { ids, types: Vec::new(), target, dropped: 0, pixels: None })
    };
    let writing = test.writing().unwrap().clone();
    let generated: Examples = (0..test.len()).filter_map(turned).collect();
    let generated = score(&world, (Task::Generation, 100), &generated.with_writing(writing));
    // "then walk well" shares two of three words with it, "then sit down" one.
    let expected = f64::midpoint(2.0 / 3.0, 1.0 / 3.0);
    assert!((named(&generated, "rouge_1").unwrap() - expected).abs() < 1e-12);
}

#[test]
fn a_loss_is_the_same_whether_answers_are_written_or_not() {
    let (world, _, _) = world();
    let test = &world.shards.clients[0].test;
    let plain: Examples = test.encoded().iter().cloned().collect();
    let (plain, written) =
        (score(&world, (Task::Chat, 100), &plain), score(&world, (Task::Chat, 100), test));
    assert_eq!(plain.loss().to_bits(), written.loss().to_bits());
    assert_eq!(plain.headline(), written.headline());
    assert_eq!(plain.headline().0, "negative_loss");
    assert_eq!(named(&plain, "rouge_l"), None);
    // Where no last answer can be written, there is no ROUGE rather than 0.
    let left_out = test.kept(&[false, true, false, true]);
    assert_eq!(named(&score(&world, (Task::Chat, 100), &left_out), "rouge_l"), None);
    let others = test.kept(&[false, true, true, true]);
    assert_eq!(others.asked(1).map(|(_, reference)| reference), Some("then sit down"));
    let mut both = left_out;
    both.extend_from(&others);
    assert_eq!(both.asked(3).map(|(_, reference)| reference), Some("then sit down"));
    assert_eq!(named(&score(&world, (Task::Chat, 100), &both), "rouge_l"), Some(1.0));
}
