//! What is refused, and in which words.

use crate::draw::{bare, bias_id, frozen, id, spans, tensor};
use fedra_compute::{
    Activation, Angles, Attention, AttentionProbe, ComputeError, Device, Logits, Lora, LossWeights,
    Mask, Params, Projected, Projection, Seed, Sequences, Span, Tape, Tensor, Value, Weight,
};
use fedra_plan::Role;
use std::sync::Arc;

const SUM: LossWeights<'_> = LossWeights::SUM;
fn one_head() -> Attention {
    Attention::new(1, 1, 4, Mask::Bidirectional)
}

#[test]
fn embedding_refuses_what_is_not_in_its_tables() {
    let (token, position) = (weight(Role::Token, (11, 6)), weight(Role::Position, (4, 6)));
    let narrow = weight(Role::Segment, (2, 5));
    check(
        |tape| tape.embed(&[(&token, &[3, 10, 11])]),
        "embedding: token 11 at place 2 is out of range, expected less than 11",
    );
    check(
        |tape| tape.embed(&[(&token, &[3, 10]), (&position, &[9, 1])]),
        "embedding: position 9 at place 0 is out of range, expected less than 4",
    );
    check(|tape| tape.embed(&[(&token, &[])]), "embedding: batch is empty");
    check(|tape| tape.embed(&[]), "embedding: list of tables is empty");
    check(
        |tape| tape.embed(&[(&token, &[1, 2]), (&position, &[1])]),
        "embedding: number of indices is 1, expected 2",
    );
    check(
        |tape| tape.embed(&[(&token, &[1]), (&narrow, &[1])]),
        "embedding: table width is 5, expected 6",
    );
}

#[test]
fn rows_are_put_only_into_sequences_that_reach_so_far() {
    let table = weight(Role::ClassToken, (1, 6));
    check(
        |tape| tape.insert_rows(&x((3, 6)), 0, &table),
        "inserted rows: description of where sequences begin is empty",
    );
    let in_two = |rows| x((rows, 6)).in_sequences(&Sequences::of_lengths(&[rows - 1, 1]));
    check(
        |tape| tape.insert_rows(&in_two(4)?, 2, &table),
        "inserted rows: place is 2, expected at most 1, the length of a sequence",
    );
    check(
        |tape| tape.insert_rows(&in_two(4)?, 0, &weight(Role::ClassToken, (1, 5))),
        "inserted rows: table width is 5, expected 6",
    );
    check(
        |tape| tape.embed_onto(x((2, 6)), (&weight(Role::Position, (2, 6)), &[0, 2])),
        "embedding: position 2 at place 1 is out of range, expected less than 2",
    );
    check(
        |tape| tape.embed_onto(x((2, 6)), (&weight(Role::Position, (2, 6)), &[0])),
        "embedding: number of indices is 1, expected 2",
    );
    check(|tape| tape.first_and_mean(&in_two(4)?, 1), "sequence means: sequence is empty");
}

#[test]
fn linear_refuses_shapes_that_do_not_fit() {
    let up = || bare(weight(Role::Up, (3, 6)));
    let with_bias = |cols| Projection {
        bias: Some(Weight { id: bias_id(Role::Up), ..weight(Role::Up, (1, cols)) }),
        ..up()
    };
    let with_lora = |a, b| {
        let (a, b) = (weight(Role::Up, a), weight(Role::Up, b));
        let lora = Lora { a, b, scale: 1.0, magnitude: None };
        Projection { lora: Some(lora), ..up() }
    };
    check(|tape| tape.linear(&x((2, 5)), &[up()]), "linear: input width is 5, expected 6");
    check(|tape| tape.linear(&x((2, 5)), &[]), "linear: list of projections is empty");
    check(
        |tape| tape.linear_activated(&x((2, 6)), &with_bias(4), Activation::Gelu),
        "linear: bias shape is (1, 4), expected (1, 3)",
    );
    check(
        |tape| tape.linear(&x((2, 6)), &[with_lora((2, 5), (3, 2))]),
        "linear: LoRA A shape is (2, 5), expected (2, 6)",
    );
    check(
        |tape| tape.linear(&x((2, 6)), &[with_lora((2, 6), (3, 4))]),
        "linear: LoRA B shape is (3, 4), expected (3, 2)",
    );
    check(
        |tape| tape.linear_onto(&x((2, 6)), &up(), &x((2, 4))),
        "linear: residual shape is (2, 4), expected (2, 3)",
    );
}

#[test]
fn norms_rotary_gates_and_rows_refuse_shapes_that_do_not_fit() {
    let (five, six) = (weight(Role::MlpNorm, (1, 5)), weight(Role::MlpNorm, (1, 6)));
    check(
        |tape| tape.rms_norm(&x((2, 6)), &five, 1e-5, 0.0),
        "norm: weight shape is (1, 5), expected (1, 6)",
    );
    check(
        |tape| tape.layer_norm(&x((2, 6)), &six, Some(&five), 1e-5),
        "layer norm: bias shape is (1, 5), expected (1, 6)",
    );
    let columns = |columns, weight| {
        move |tape: &mut Tape| tape.norm_columns(x((2, 20)), &[(columns, weight)], 1e-5, 0.0)
    };
    check(columns(0..16, &five), "column norm: rest of a part's columns is 1, expected 0");
    check(columns(5..25, &five), "column norm: columns of a part is 5..25, expected inside 0..20");
    check(
        |tape| tape.scale_columns(x((2, 6)), &five),
        "column scale: weight shape is (1, 5), expected (1, 6)",
    );
    check(|tape| tape.add(x((2, 6)), &x((3, 6))), "sum: shape is (3, 6), expected (2, 6)");
    check(
        |tape| tape.dropout(x((2, 6)), 1.0, Seed(1)),
        "dropout rate is 1, expected at least 0 and less than 1",
    );
    check(
        |tape| tape.sequence_means(&x((2, 6))),
        "sequence means: description of where sequences begin is empty",
    );
    check(
        |tape| tape.sequence_means(&x((2, 6)).in_sequences(&Sequences::of_lengths(&[2, 0]))?),
        "sequence means: sequence is empty",
    );
    let angles = Arc::new(Angles::new(8, 4, 1e4));
    check(
        |tape| tape.rotary(x((2, 8)), 1, &[0], &angles),
        "rotary: number of positions is 1, expected 2",
    );
    check(
        |tape| tape.rotary(x((2, 8)), 1, &[0, 8], &angles),
        "rotary: position 8 at place 1 is out of range, expected less than 8",
    );
    check(
        |tape| tape.rotary(x((2, 8)), 3, &[0, 1], &angles),
        "rotary: width is 3 x 4, expected at most 8",
    );
    check(|tape| tape.gated(&x((2, 7)), Activation::Silu), "gate: odd column is 1, expected 0");
    check(
        |tape| tape.rows(&x((2, 7)), &[1, 2]),
        "rows: row 2 at place 1 is out of range, expected less than 2",
    );
}

#[test]
fn attention_refuses_heads_and_spans_that_do_not_fit() {
    let attend = |geometry: Attention, cols: usize, spans: Vec<Span>| {
        move |tape: &mut Tape| {
            tape.attention(geometry, Projected::Together(&x((5, cols))), &spans, None)
        }
    };
    let uneven = Attention { heads: 3, kv_heads: 2, ..one_head() };
    check(
        attend(uneven, 28, spans(&[5])),
        "attention: number of key heads is 2, expected a divisor of 3",
    );
    check(attend(one_head(), 13, spans(&[5])), "attention: projected columns is 13, expected 12");
    let capped = Attention { soft_cap: Some(0.0), ..one_head() };
    check(attend(capped, 12, spans(&[5])), "soft cap of scores is 0, expected a positive number");
    let flat = Attention { scale: f32::NAN, ..one_head() };
    check(
        attend(flat, 12, spans(&[5])),
        "scale of attention scores is NaN, expected a positive number",
    );
    let outside = Span { queries: 0..5, keys: 0..5, offset: 1 };
    check(
        attend(Attention { window: Some(2), ..one_head() }, 12, vec![outside]),
        "attention: position behind the last query is 6, expected at most 5",
    );
    check(attend(one_head(), 12, spans(&[4])), "attention: query rows is 4, expected 5");
    check(attend(one_head(), 12, spans(&[4, 2])), "attention: query rows is 6, expected 5");
    check(attend(one_head(), 12, spans(&[5, 0])), "attention: sequence is empty");
    let late = Span { queries: 1..5, keys: 0..5, offset: 0 };
    check(attend(one_head(), 12, vec![late]), "attention: start of queries is 1, expected 0");
    let apart = |tape: &mut Tape| {
        let projected = Projected::Apart { queries: &x((1, 5)), keys_values: &x((5, 8)) };
        tape.attention(one_head(), projected, &spans(&[5]), None)
    };
    check(apart, "attention: query columns is 5, expected 4");
    let mut probe = AttentionProbe {
        queries: vec![1.0; 5],
        keys: vec![1.0; 4],
        scores: vec![],
        heads: Vec::new(),
        received: None,
        patterns: None,
    };
    let watched = |tape: &mut Tape| {
        let x = x((5, 12));
        tape.attention(one_head(), Projected::Together(&x), &spans(&[5]), Some(&mut probe))
    };
    check(watched, "attention probe: key weights is 4, expected 5");
}

#[test]
fn losses_refuse_labels_that_do_not_fit() {
    let table = weight(Role::Vocabulary, (9, 6));
    let bias = weight(Role::Vocabulary, (1, 8));
    check(
        |tape| tape.cross_entropy(&x((3, 4)), &[Some(0), None, Some(4)], SUM),
        "cross-entropy: label 4 at place 2 is out of range, expected less than 4",
    );
    check(
        |tape| tape.cross_entropy(&x((3, 4)), &[Some(0)], SUM),
        "cross-entropy: number of targets is 1, expected 3",
    );
    check(
        |tape| tape.cross_entropy(&x((2, 4)), &[None, None], SUM),
        "cross-entropy: set of labelled rows is empty",
    );
    check(
        |tape| tape.cross_entropy(&x((0, 4)), &[], SUM),
        "cross-entropy: set of labelled rows is empty",
    );
    check(
        |tape| tape.multi_label(&x((2, 3)), &[1.0; 5], SUM),
        "multi-label loss: number of targets is 5, expected 6",
    );
    check(|tape| tape.multi_label(&x((0, 3)), &[], SUM), "multi-label loss: batch is empty");
    check(
        |tape| tape.multi_label(&x((1, 2)), &[0.5, 2.0], SUM),
        "multi-label target is 2, expected between 0 and 1",
    );
    check(
        |tape| {
            tape.vocabulary_cross_entropy(
                &x((2, 6)),
                Logits::new(&table, None),
                &[Some(9), None],
                SUM,
            )
        },
        "cross-entropy: label 9 at place 0 is out of range, expected less than 9",
    );
    check(
        |tape| {
            tape.vocabulary_cross_entropy(&x((2, 6)), Logits::new(&table, None), &[None, None], SUM)
        },
        "cross-entropy: set of labelled rows is empty",
    );
    check(
        |tape| {
            tape.vocabulary_cross_entropy(&x((2, 5)), Logits::new(&table, None), &[Some(1); 2], SUM)
        },
        "vocabulary loss: input width is 5, expected 6",
    );
    check(
        |tape| {
            tape.vocabulary_cross_entropy(
                &x((2, 6)),
                Logits::new(&table, Some(&bias)),
                &[Some(1); 2],
                SUM,
            )
        },
        "vocabulary loss: bias shape is (1, 8), expected (1, 9)",
    );
}

#[test]
fn backward_refuses_a_gradient_of_another_shape() {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let y = tape.input(tensor(&device, (3, 2), 1));
    let error = tape.backward(&[(&y, Tensor::zeros(&device, 2, 3))]).unwrap_err();
    assert_eq!(error.to_string(), "backward: gradient shape is (2, 3), expected (3, 2)");
}

#[test]
fn backward_from_an_untrained_value_says_why() {
    let device = Device::cpu();
    let tape = Tape::new(&device);
    let y = tape.constant(Tensor::scalar(&device, 2.0));
    let error = tape.backward(&[(&y, Tensor::scalar(&device, 1.0))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "backward: the value was computed without any trainable part, so it takes no gradient"
    );
}

#[test]
fn a_parameter_that_is_not_there_is_named() {
    let error = Params::default().frozen().get(id(Role::Query)).unwrap_err();
    assert_eq!(error, ComputeError::Missing(id(Role::Query)));
    assert_eq!(
        error.to_string(),
        format!("parameter {} is not among the parameters", id(Role::Query))
    );
}

#[test]
fn tensors_refuse_rows_and_stacks_that_do_not_fit() {
    let device = Device::cpu();
    let x = tensor(&device, (3, 2), 1);
    let error = x.row_range(&device, 2, 2).unwrap_err();
    assert_eq!(error.to_string(), "rows: range is 2+2, expected at most 3");
    let error = Tensor::stack(&device, &[x, tensor(&device, (1, 3), 2)]).unwrap_err();
    assert_eq!(error.to_string(), "stack: width is 3, expected 2");
}

fn check(operation: impl FnOnce(&mut Tape) -> Result<Value, ComputeError>, message: &str) {
    let mut tape = Tape::new(&Device::cpu());
    let error = operation(&mut tape).expect_err("this must be refused");
    assert_eq!(error.to_string(), message);
}

fn x(shape: (usize, usize)) -> Value {
    let device = Device::cpu();
    Tape::new(&device).constant(tensor(&device, shape, 1))
}

fn weight(role: Role, shape: (usize, usize)) -> Weight {
    frozen(id(role), tensor(&Device::cpu(), shape, 2))
}
