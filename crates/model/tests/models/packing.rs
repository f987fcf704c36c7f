//! Packing: a sequence does not notice which others are in the batch, nor how it was padded before.

use crate::agreement::relative_f32;
use crate::formula::uniform;
use crate::step::{Answers, Step, bits};
use fedra_compute::Tensor;
use fedra_model::{Batch, Config, Head, Model};

/// Sequences of these lengths, of any tokens of a small vocabulary.
pub fn sequences(lengths: &[usize], words: usize) -> Vec<Vec<u32>> {
    let token = |seed: usize, i: usize| (uniform(seed as u64, i as u64) * words as f64) as u32;
    let sequence = |(seed, &length)| (0..length).map(|i| token(seed, i)).collect();
    lengths.iter().enumerate().map(sequence).collect()
}

/// As many tokens as the smaller tiny vocabulary has.
const WORDS: usize = 47;
/// One token, the longest length, and enough rows for every remainder of a matrix product's tiles.
const LENGTHS: [usize; 7] = [1, 32, 5, 1, 17, 2, 31];

fn rows_of(step: &Step, tensor: &Tensor, sequence: usize) -> Vec<u32> {
    let start = step.batch.packing().starts().nth(sequence).unwrap();
    let length = step.batch.packing().lengths()[sequence];
    bits(&tensor.row_range(&step.device, start, length).unwrap().to_host())
}

#[test]
fn a_sequence_in_a_batch_has_the_bits_it_has_alone() {
    for step in Step::every_tiny() {
        let sequences = sequences(&LENGTHS, WORDS);
        let packed = step.on(&sequences);
        let (together, logits) = (packed.hidden_states(), packed.logits());
        for (number, sequence) in sequences.iter().enumerate() {
            let alone = step.on(std::slice::from_ref(sequence));
            for (stage, (all, one)) in together.iter().zip(alone.hidden_states()).enumerate() {
                let what = format!("{}, sequence {number}, stage {stage}", step.name);
                assert_eq!(rows_of(&packed, all, number), bits(&one.to_host()), "{what}");
            }
            let answer = match step.model.head() {
                Head::Sequence { .. } => {
                    bits(&logits.row_range(&step.device, number, 1).unwrap().to_host())
                }
                Head::Bare | Head::Tokens { .. } | Head::Language => {
                    rows_of(&packed, &logits, number)
                }
            };
            assert_eq!(answer, bits(&alone.logits().to_host()), "{}", step.name);
        }
    }
}

#[test]
fn segments_reach_an_encoder_and_not_a_decoder() {
    for step in Step::every_tiny() {
        let segments = (0..step.batch.packing().tokens() as u32).map(|i| i % 2).collect();
        let batch = step.batch.clone().with_segments(segments).unwrap();
        let other = Step { batch, ..step.clone() };
        let same = bits(&step.logits().to_host()) == bits(&other.logits().to_host());
        let decoder = step.model.is_decoder();
        assert_eq!(same, decoder, "{}", step.name);
    }
}

/// Two orders of adding the same gradients: rounding of a few sums in f32.
const REORDERED: f64 = 2e-6;

#[test]
fn a_batch_has_the_mean_gradient_of_its_sequences() {
    for step in Step::every_tiny() {
        let (Head::Sequence { .. }, Answers::Classes(classes)) = (step.model.head(), &step.answers)
        else {
            continue;
        };
        let everything = step.everything();
        let together = step.take(&everything).gradients;
        let sequences = step.sequences();
        let mut sum = fedra_compute::Gradients::default();
        for (sequence, class) in sequences.iter().zip(classes) {
            let answers = Answers::Classes(vec![*class]);
            let alone = Step { answers, ..step.on(std::slice::from_ref(sequence)) };
            sum.add(alone.take(&everything).gradients).unwrap();
        }
        let whole = together.sum_of_squares().sqrt() as f32;
        for (id, gradient) in together.iter() {
            let mean = sum.get(id).unwrap().to_dense();
            let mean = mean.iter().map(|x| x / sequences.len() as f32);
            let off = mean.zip(gradient.to_dense()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(f64::from(off / whole) < REORDERED, "{}, {id}: {off}", step.name);
        }
    }
}

#[test]
fn an_encoder_that_reads_only_labelled_rows_learns_the_same() {
    for step in Step::every_tiny() {
        if step.model.is_decoder() {
            continue;
        }
        let heads = [Head::Tokens { classes: 5 }, Head::Language];
        if !heads.contains(&step.model.head()) {
            continue;
        }
        let batch = Batch::new(&sequences(&[9, 4, 12, 3], WORDS)).unwrap();
        let labelled =
            batch.packing().positions().iter().map(|p| (p % 3 == 2).then_some(*p % 5)).collect();
        let step = Step { batch, answers: Answers::Classes(labelled), ..step };
        let (read, all) =
            (step.take(&step.everything()), step.take_over_all_rows(&step.everything()));
        assert_eq!(read.loss.to_bits(), all.loss.to_bits(), "{}", step.name);
        for (id, gradient) in all.gradients.iter() {
            if id.role == fedra_plan::Role::Key && id.part == fedra_plan::Part::Bias {
                continue; // zero but for rounding
            }
            let found = read.gradients.get(id).unwrap().to_dense();
            let off = relative_f32(&found, &gradient.to_dense());
            assert!(off < REORDERED, "{}, {id}: {off:.1e}", step.name);
        }
    }
}

#[test]
fn a_model_of_one_block_and_one_head_runs_on_one_token() {
    for step in Step::every_tiny() {
        let (kv_heads, head) =
            if step.model.is_decoder() { (Some(1), Some(2)) } else { (None, None) };
        let config = Config {
            num_hidden_layers: 1,
            num_attention_heads: 1,
            num_key_value_heads: kv_heads,
            head_dim: head,
            ..step.model.config().clone()
        };
        let model = Model::new(config, step.model.head(), None).unwrap();
        let params = crate::step::made_params(&step.device, &model, 0.2);
        let one = Step { model, params, ..step.on(&[vec![7]]) };
        assert!(one.logits().to_host().iter().all(|logit| logit.is_finite()), "{}", step.name);
    }
}
