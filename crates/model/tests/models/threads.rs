//! Threads: their number changes no bit of a loss or a gradient.

use crate::golden::next_tokens;
use crate::packing::sequences;
use crate::step::{Answers, Step, made_params};
use fedra_compute::{Device, ThreadPool};
use fedra_model::hf::Config;
use fedra_model::{Batch, Head, Model, Preset};

/// Large enough that every operation has work for several threads.
fn step(config: Config, head: Head, words: usize) -> Step {
    let device = Device::cpu();
    let model = Model::new(config, head, None).unwrap();
    let params = made_params(&device, &model, 0.1);
    let batch = Batch::new(&sequences(&[70, 1, 33, 90, 5, 64], words)).unwrap();
    let answers = match head {
        Head::Sequence { classes, .. } => Answers::Classes(
            (0..batch.packing().sequences()).map(|i| Some((i % classes) as u32)).collect(),
        ),
        Head::Bare | Head::Tokens { .. } | Head::Language => Answers::Classes(next_tokens(&batch)),
    };
    Step { name: format!("{head:?}"), device, model, params, batch, answers }
}

fn decoder(words: usize) -> Config {
    Config {
        vocab_size: words,
        hidden_size: 128,
        num_hidden_layers: 2,
        num_attention_heads: 8,
        num_key_value_heads: Some(2),
        head_dim: Some(16),
        intermediate_size: 344,
        max_position_embeddings: 90,
        tie_word_embeddings: true,
        ..Config::llama()
    }
}

#[test]
fn one_and_three_threads_give_the_same_bits() {
    let sequence = Head::Sequence { classes: 3, pooler: true };
    for step in [
        step(Preset::Tiny.config(), sequence, 4096),
        step(Preset::Tiny.config(), Head::Language, 4096),
        step(decoder(1000), sequence, 1000),
        step(decoder(1000), Head::Language, 1000),
    ] {
        let outcome =
            |threads| ThreadPool::new(threads).unwrap().install(|| step.take(&step.everything()));
        let one = outcome(1);
        assert!(one.loss.is_finite() && one.gradients.sum_of_squares() > 0.0);
        outcome(3).assert_same(&one, &step.name);
        outcome(3).assert_same(&one, &step.name);
    }
}
