//! No call, however odd its shapes, reads or writes outside a tensor or brings the program down.
//!
//! This crate forbids `unsafe`, so what it does any safe program could do. Every operation is tried
//! at every combination of sizes: it answers or it refuses, and when it answers, what it wrote is
//! inside its result.

use crate::draw::{frozen, id, tensor, trained};
use fedra_compute::{
    Activation, Angles, Attention, ComputeError, Device, Gradient, Gradients, Logits, Lora,
    LossWeights, Mask, Optimiser, Params, Pool, Projected, Projection, Seed, Sequences, Solver,
    Span, Tape, Tensor, Value, Weight,
};
use fedra_plan::{ParamId, Role, Scope};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Around every border of the kernels: tiles of 14 rows, panels of 32, lanes of 16, empty. (Miri has
/// time for a few.)
const SIZES: &[usize] = if cfg!(miri) { &[0, 1, 17] } else { &[0, 1, 2, 15, 16, 17, 31, 33, 65] };

/// A value that wants a gradient, so that backward runs too.
fn input(tape: &mut Tape, shape: (usize, usize)) -> Value {
    let device = tape.device().clone();
    tape.input(tensor(&device, shape, 1))
}

/// Runs an operation forward and, if it answers, backward; whether it answered.
fn tried(run: impl FnOnce(&mut Tape) -> Result<Value, ComputeError>) -> bool {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let Ok(y) = run(&mut tape) else { return false };
    let (rows, cols) = y.tensor.shape();
    assert_eq!(y.tensor.to_host().len(), rows * cols);
    let ones = vec![1.0; rows * cols];
    let slope = Tensor::from_slice(&device, rows, cols, &ones).expect("a one for each element");
    let gradients = tape.backward(&[(&y, slope)]).expect("the input wants a gradient");
    for (id, gradient) in gradients.iter() {
        assert!(gradient.to_dense().iter().all(|slope| !slope.is_nan()), "{id}");
    }
    true
}

/// A vocabulary of so many words, of three features each, with a correction.
fn corrected(words: usize) -> Projection {
    let (a, b) = (weight(Role::Up, (2, 3)), weight(Role::Down, (words, 2)));
    let lora = Some(Lora { a, b, scale: 0.5, magnitude: None });
    Projection { weight: weight(Role::Vocabulary, (words, 3)), bias: None, lora }
}

fn weight(role: Role, shape: (usize, usize)) -> Weight {
    trained(id(role), tensor(&Device::cpu(), shape, 2))
}

#[test]
fn projections_of_any_shape_answer_or_refuse() {
    let mut answered = 0;
    for &rows in SIZES {
        for &inputs in SIZES {
            for &outputs in SIZES {
                for (wrong, lora) in [(0, None), (1, None), (0, Some((1, 0))), (0, Some((3, 1)))] {
                    let lora = lora.map(|(rank, off)| Lora {
                        a: weight(Role::Up, (rank, inputs)),
                        b: weight(Role::Down, (outputs + off, rank)),
                        scale: 2.0,
                        magnitude: None,
                    });
                    let projection = Projection {
                        weight: weight(Role::Query, (outputs, inputs)),
                        bias: Some(weight(Role::Key, (1, outputs + wrong))),
                        lora,
                    };
                    let fits = tried(|tape| {
                        let x = input(tape, (rows, inputs));
                        let y = tape.linear_activated(&x, &projection, Activation::Gelu)?;
                        let again = Projection { lora: None, ..projection.clone() };
                        tape.linear_onto(&x, &again, &y)
                    });
                    answered += usize::from(fits);
                }
            }
        }
    }
    // Two of the four fit at every combination of sizes.
    assert_eq!(answered, 2 * SIZES.len().pow(3));
}

#[test]
fn norms_rows_rotations_and_gates_of_any_shape_answer_or_refuse() {
    for &rows in SIZES {
        for &cols in SIZES {
            for other in [cols, cols + 1] {
                let (scale, shift) =
                    (weight(Role::Query, (1, other)), weight(Role::Key, (1, cols)));
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    let x = tape.layer_norm(&x, &scale, Some(&shift), 1e-5)?;
                    tape.rms_norm(&x, &scale, 1e-5, 1.0)
                });
                assert_eq!(fits, cols > 0 && other == cols, "norm of {rows} x {cols}");
            }
            let fits = tried(|tape| {
                let x = input(tape, (rows, cols));
                tape.gated(&x, Activation::GeluTanh)
            });
            assert_eq!(fits, cols > 0 && cols % 2 == 0, "gate of {rows} x {cols}");
            for heads in [0, 1, 3, usize::MAX] {
                let angles = Arc::new(Angles::new(5, 6, 1e4));
                let positions: Vec<u32> = (0..rows as u32).map(|row| row % 5).collect();
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    tape.rotary(x, heads, &positions, &angles)
                });
                assert!(!fits || heads.saturating_mul(6) <= cols, "{heads} heads in {cols}");
            }
            for picked in [vec![], vec![0], vec![rows as u32], vec![u32::MAX, 0]] {
                let inside = picked.iter().all(|row| (*row as usize) < rows);
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    tape.rows(&x, &picked)
                });
                assert_eq!(fits, inside && cols > 0, "{picked:?} of {rows} x {cols}");
            }
        }
    }
}

#[test]
fn columns_and_numbers_of_any_shape_answer_or_refuse() {
    for &rows in SIZES {
        for &cols in SIZES {
            for width in [0, 1, 5, cols] {
                let by = weight(Role::Query, (1, width));
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    tape.norm_columns(x, &[(0..cols, &by)], 1e-5, 1.0)
                });
                let divides = width > 0 && cols.is_multiple_of(width);
                assert_eq!(fits, cols > 0 && divides, "{cols} columns by {width}");
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    tape.scale_columns(x, &by)
                });
                assert_eq!(fits, cols > 0 && width == cols, "{cols} columns times {width}");
            }
            assert!(tried(|tape| {
                let x = input(tape, (rows, cols));
                let x = tape.dropout(x, 0.5, Seed(1))?;
                let x = tape.soft_capped(x, 2.0)?;
                let y = tape.scaled(x.clone(), 3.0);
                tape.add(y, &x)
            }));
            let sequences = Sequences::of_lengths(&[rows / 3, rows - rows / 3]);
            let fits = tried(|tape| {
                let x = input(tape, (rows, cols)).in_sequences(&sequences)?;
                tape.sequence_means(&x)
            });
            assert_eq!(fits, cols > 0 && rows >= 3, "means of {rows} x {cols}");
            for skipped in [1, 4] {
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols)).in_sequences(&sequences)?;
                    tape.first_and_mean(&x, skipped)
                });
                let expected = cols > 0 && rows / 3 > skipped;
                assert_eq!(fits, expected, "first and mean of {rows} x {cols}");
            }
            for (place, more) in [(0, 1), (1, 0), (1, 2), (5, 1)] {
                let table = weight(Role::ClassToken, (more, cols));
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols)).in_sequences(&sequences)?;
                    tape.insert_rows(&x, place, &table)
                });
                let expected = cols > 0 && more > 0 && rows / 3 >= place;
                assert_eq!(fits, expected, "{more} rows at {place} of {rows} x {cols}");
            }
        }
    }
}

#[test]
fn attention_over_any_spans_answers_or_refuses() {
    const ATTEMPTS: usize = if cfg!(miri) { 40 } else { 4000 };
    let mut draw = Seed(11).generator();
    let mut answered = 0;
    for _ in 0..ATTEMPTS {
        let mut any = |limit: usize| draw.below(limit);
        let (heads, kv_heads, width) = (any(4), any(3), any(6));
        let mask = if any(2) == 0 { Mask::Causal } else { Mask::Bidirectional };
        let window = [None, Some(0), Some(2), Some(usize::MAX)][any(4)];
        let usual = Attention::new(heads, kv_heads, width, mask);
        let geometry = Attention { window, ..usual };
        let rows = any(20);
        let cut = any(rows + 2);
        let wild = any(3) == 0;
        let offset = |any: &mut dyn FnMut(usize) -> usize| match any(8) {
            0 => usize::MAX,
            1 => 3,
            _ => 0,
        };
        let mut spans = Vec::new();
        for range in [0..cut, cut..rows] {
            let keys = if wild { any(25)..any(25) } else { range.clone() };
            spans.push(Span { queries: range, keys, offset: offset(&mut any) });
        }
        let columns = heads * width + 2 * kv_heads * width + usize::from(any(9) == 0);
        answered += usize::from(tried(|tape| {
            let x = input(tape, (rows, columns));
            tape.attention(geometry, Projected::Together(&x), &spans, None)
        }));
        let cached = tried(|tape| {
            let queries = tensor(tape.device(), (rows, heads * width), 1);
            let queries = tape.constant(queries);
            let kept = [any(25), any(25)]
                .map(|keys| tensor(&Device::cpu(), (keys, 2 * kv_heads * width), 4));
            let kept: Vec<&Tensor> = kept.iter().collect();
            let projected = Projected::Cached { queries: &queries, keys_values: &kept };
            let out = tape.attention(geometry, projected, &spans, None)?;
            // Nothing trains here, so a value that does stands in for it on the way back.
            Ok(input(tape, out.tensor.shape()))
        });
        answered += usize::from(cached);
    }
    assert!(answered > ATTEMPTS / 40, "{answered} answered");
    let huge = Attention::new(1 << 62, 1 << 62, 4, Mask::Causal);
    let spans = [Span { queries: 0..3, keys: 0..3, offset: 0 }];
    assert!(!tried(|tape| {
        let x = input(tape, (3, 0));
        tape.attention(huge, Projected::Together(&x), &spans, None)
    }));
}

#[test]
fn look_ups_and_losses_of_any_shape_answer_or_refuse() {
    for &rows in SIZES {
        for &cols in SIZES {
            let table = weight(Role::Token, (rows, cols));
            for index in [vec![], vec![0, 0], vec![rows as u32, 1]] {
                let inside = !index.is_empty() && index.iter().all(|row| (*row as usize) < rows);
                let fits = tried(|tape| tape.embed(&[(&table, &index)]));
                assert_eq!(fits, inside && cols > 0, "{index:?} of {rows} x {cols}");
            }
            for label in [0, cols as u32, u32::MAX] {
                let targets: Vec<_> =
                    (0..rows).map(|row| (row % 3 != 1).then_some(label)).collect();
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    tape.cross_entropy(&x, &targets, LossWeights::SUM)
                });
                assert_eq!(fits, rows > 0 && (label as usize) < cols, "{label} of {rows} x {cols}");
                let words = weight(Role::Vocabulary, (cols, 3));
                let vocabulary = Logits::new(&words, None);
                let fits = tried(|tape| {
                    let x = input(tape, (rows, 3));
                    tape.vocabulary_cross_entropy(&x, vocabulary, &targets, LossWeights::SUM)
                });
                assert_eq!(fits, rows > 0 && (label as usize) < cols, "{label} of {cols} words");
                let fits = tried(|tape| {
                    let x = input(tape, (rows, 3));
                    let given = (&corrected(cols), Some(2.0));
                    tape.corrected_cross_entropy(&x, given, &targets, LossWeights::SUM)
                });
                assert_eq!(fits, rows > 0 && (label as usize) < cols, "{label} of {cols} words");
            }
            for len in [rows * cols, rows * cols + 1] {
                let fits = tried(|tape| {
                    let x = input(tape, (rows, cols));
                    tape.multi_label(&x, &vec![1.0; len], LossWeights::SUM)
                });
                assert_eq!(fits, len > 0 && len == rows * cols, "{len} for {rows} x {cols}");
            }
        }
    }
}

#[test]
fn a_gradient_that_somebody_made_up_is_refused_by_the_optimiser() {
    const TABLE: ParamId =
        ParamId::new(fedra_plan::Layer::Embedding, Role::Token, fedra_plan::Part::Weight);
    let device = Device::cpu();
    let real = |ids: &[u32]| {
        let params: Params = [(TABLE, tensor(&device, (5, 3), 1))].into_iter().collect();
        let scope: Scope = [TABLE].into_iter().collect();
        let mut tape = Tape::new(&device);
        let table = params.training(&scope).get(TABLE).unwrap();
        let x = tape.embed(&[(&table, ids)]).unwrap();
        let slope = tensor(&device, x.tensor.shape(), 2);
        (params, tape.backward(&[(&x, slope)]).unwrap())
    };
    let cases = [
        (5, vec![0, 7], (2, 3), "gradient row 7 at place 1 is out of range, expected less than 5"),
        (5, vec![3, 1], (2, 3), "order of rows is [3, 1], expected ascending"),
        (5, vec![1, 3], (1, 3), "gradient rows is 1, expected 2"),
        (9, vec![1, 3], (2, 3), "gradient shape is (9, 3), expected (5, 3)"),
        (5, vec![1, 3], (2, 2), "gradient shape is (5, 2), expected (5, 3)"),
    ];
    for (of, rows, shape, expected) in cases {
        let (mut params, mut gradients): (Params, Gradients) = real(&[1, 3]);
        for (_, gradient) in gradients.iter_mut() {
            *gradient =
                Gradient::Rows { of, rows: rows.clone(), values: tensor(&device, shape, 3) };
        }
        let mut optimiser = Optimiser::new(&device, Solver::adamw(0.1, 0.1)).unwrap();
        let error = optimiser.step(&mut params, &gradients).unwrap_err();
        assert_eq!(error.to_string(), format!("optimiser: {expected}"));
        let sum = real(&[1, 3]).1.add(gradients);
        assert!(sum.is_err(), "{expected}");
    }
}

#[test]
fn memory_that_cannot_exist_is_not_handed_out() {
    let device = Device::cpu();
    let outcomes = [
        catch_unwind(AssertUnwindSafe(|| Tensor::zeros(&device, usize::MAX, 2).rows())),
        catch_unwind(AssertUnwindSafe(|| Tensor::zeros(&device, 1 << 62, 4).rows())),
        catch_unwind(AssertUnwindSafe(|| Tensor::with_capacity(&device, 1 << 61, 8).rows())),
        catch_unwind(AssertUnwindSafe(|| Pool::new().take(1 << 62).len())),
        catch_unwind(AssertUnwindSafe(|| Pool::new().zeros(usize::MAX).len())),
    ];
    assert!(outcomes.iter().all(Result::is_err));
    assert!(Tensor::from_slice(&device, usize::MAX, 2, &[]).is_err());
    let table = frozen(id(Role::Token), Tensor::zeros(&device, usize::MAX, 0));
    assert!(!tried(|tape| tape.embed(&[(&table, &[4])])));
}
