//! Every gradient against finite differences, at odd sizes, length one and batch one.
//!
//! All leaves lie on a grid and steps are powers of two, so moving a leaf is exact in f32 and only
//! the operation's own rounding disturbs the comparison.

use crate::draw::{bare, bias_id, distance, id, indices, mean, norm, numbers, of, spans, uniform};
use fedra_compute::{
    Activation, Angles, Attention, ComputeError, Device, Gradient, Logits, Lora, LossWeights, Mask,
    Params, Projected, Projection, RowWeights, Seed, Sequences, Span, Tape, Tensor, Value, Weights,
};
use fedra_plan::{Layer, ParamId, Part, Role, Scope};
use std::sync::Arc;

/// Distance of the neighbours. The four-point formula errs by its fourth power, below 1e-7.
const STEP: f32 = 1.0 / 64.0;
/// Allowed error relative to what a random direction sees of the gradient: the f32 rounding of the
/// gradient and of sums of some hundred terms, and the approximation by differences.
const RELATIVE: f64 = 2e-5;
/// Allowed error relative to the output, divided by the step: about three f32 roundings.
const ROUNDING: f64 = 2e-7;
/// Directions per leaf.
const DIRECTIONS: u64 = 3;

const WEIGHT: ParamId = ParamId::new(Layer::Block(0), Role::Up, Part::Weight);
const BIAS: ParamId = ParamId::new(Layer::Block(0), Role::Up, Part::Bias);
const LORA_A: ParamId = ParamId::new(Layer::Block(0), Role::Up, Part::LoraA);
const LORA_B: ParamId = ParamId::new(Layer::Block(0), Role::Up, Part::LoraB);

type Built = Result<Value, ComputeError>;
type Shape = (usize, usize);

#[test]
fn embedding_sums_the_gradients_of_every_occurrence() {
    let tables = [(id(Role::Token), (7, 5)), (id(Role::Position), (4, 5))];
    for (tokens, at) in [(vec![3], vec![0]), (vec![6, 2, 2, 0, 2], vec![0, 1, 2, 3, 0])] {
        check(&[], &tables, |tape, _, weights| {
            let (token, position) =
                (weights.get(id(Role::Token))?, weights.get(id(Role::Position))?);
            tape.embed(&[(&token, &tokens), (&position, &at)])
        });
    }
}

#[test]
fn several_projections_of_one_input() {
    for rows in [1, 5, 17] {
        let weights = [
            (id(Role::Query), (9, 7)),
            (bias_id(Role::Query), (1, 9)),
            (id(Role::Key), (35, 7)),
            (WEIGHT, (3, 7)),
            (BIAS, (1, 3)),
            (LORA_A, (2, 7)),
            (LORA_B, (3, 2)),
        ];
        check(&[(rows, 7)], &weights, |tape, inputs, weights| {
            let bias = Some(weights.get(bias_id(Role::Query))?);
            let query = Projection { weight: weights.get(id(Role::Query))?, bias, lora: None };
            let key = bare(weights.get(id(Role::Key))?);
            tape.linear(&inputs[0], &[query, key, corrected(weights)?])
        });
    }
}

#[test]
fn a_projection_to_a_single_output() {
    // Its gradient is one column, and so is the transpose that the weight's gradient reads.
    for rows in [1, 13] {
        check(&[(rows, 7)], &[(WEIGHT, (1, 7)), (BIAS, (1, 1))], |tape, inputs, weights| {
            tape.linear(&inputs[0], &[biased(weights)?])
        });
    }
}

#[test]
fn activations_with_and_without_low_rank_correction() {
    // (ReLU's corner is on the grid; PyTorch's numbers hold it.)
    for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Tanh] {
        for rows in [1, 15] {
            check(&[(rows, 5)], &[(WEIGHT, (33, 5)), (BIAS, (1, 33))], |tape, inputs, weights| {
                tape.linear_activated(&inputs[0], &biased(weights)?, activation)
            });
            check(&[(rows, 5)], &[(WEIGHT, (9, 5))], |tape, inputs, weights| {
                tape.linear_activated(&inputs[0], &bare(weights.get(WEIGHT)?), activation)
            });
            let weights = [(WEIGHT, (9, 5)), (BIAS, (1, 9)), (LORA_A, (3, 5)), (LORA_B, (9, 3))];
            check(&[(rows, 5)], &weights, |tape, inputs, weights| {
                tape.linear_activated(&inputs[0], &corrected(weights)?, activation)
            });
        }
    }
}

#[test]
fn a_residual_passes_its_gradient_on() {
    for rows in [1, 13] {
        check(&[(rows, 5), (rows, 9)], &[(WEIGHT, (9, 5)), (BIAS, (1, 9))], |tape, x, weights| {
            tape.linear_onto(&x[0], &biased(weights)?, &x[1])
        });
        check(&[(rows, 5), (rows, 9)], &[(WEIGHT, (9, 5))], |tape, x, weights| {
            tape.linear_onto(&x[0], &bare(weights.get(WEIGHT)?), &x[1])
        });
        let weights = [(WEIGHT, (7, 7)), (BIAS, (1, 7)), (LORA_A, (2, 7)), (LORA_B, (7, 2))];
        check(&[(rows, 7)], &weights, |tape, x, weights| {
            tape.linear_onto(&x[0], &corrected(weights)?, &x[0])
        });
    }
}

#[test]
fn one_weight_used_twice_sums_its_gradients() {
    check(&[(5, 7)], &[(WEIGHT, (7, 7)), (BIAS, (1, 7))], |tape, x, weights| {
        let once = tape.linear_activated(&x[0], &biased(weights)?, Activation::Tanh)?;
        tape.linear_onto(&once, &biased(weights)?, &x[0])
    });
}

#[test]
fn norms_of_one_row_and_of_more_rows_than_a_task() {
    for shape @ (_, width) in [(1, 5), (3, 17), (67, 33)] {
        check(&[shape], &[(WEIGHT, (1, width)), (BIAS, (1, width))], |tape, x, weights| {
            tape.layer_norm(&x[0], &weights.get(WEIGHT)?, Some(&weights.get(BIAS)?), 1e-5)
        });
        check(&[shape], &[(WEIGHT, (1, width))], |tape, x, weights| {
            tape.layer_norm(&x[0], &weights.get(WEIGHT)?, None, 1e-5)
        });
        for offset in [0.0, 1.0] {
            check(&[shape], &[(WEIGHT, (1, width))], |tape, x, weights| {
                tape.rms_norm(&x[0], &weights.get(WEIGHT)?, 1e-5, offset)
            });
        }
    }
}

#[test]
fn a_norm_adds_to_the_gradient_of_a_value_used_elsewhere() {
    check(&[(5, 7)], &[(WEIGHT, (1, 7)), (id(Role::Down), (7, 7))], |tape, x, weights| {
        let normed = tape.rms_norm(&x[0], &weights.get(WEIGHT)?, 1e-5, 0.0)?;
        tape.linear_onto(&normed, &bare(weights.get(id(Role::Down))?), &x[0])
    });
}

#[test]
fn rotary_turns_the_first_heads_only() {
    let angles = Arc::new(Angles::new(40, 6, 1e4));
    for (heads, at) in [(1, vec![39]), (2, vec![0, 1, 2, 3, 4, 0, 0, 17])] {
        check(&[(at.len(), 20)], &[], |tape, x, _| tape.rotary(x[0].clone(), heads, &at, &angles));
    }
}

#[test]
fn attention_of_every_kind() {
    let shapes = [(1, 1, 3), (3, 3, 5), (4, 2, 6), (2, 1, 5)];
    for mask in [Mask::Bidirectional, Mask::Causal] {
        for (heads, kv_heads, width) in shapes {
            let geometry = Attention::new(heads, kv_heads, width, mask);
            for lengths in [&[1][..], &[5, 1, 7], &[17]] {
                attend(geometry, lengths);
            }
        }
    }
}

#[test]
fn attention_over_more_than_one_tile_of_queries() {
    let one = Attention::new(1, 1, 3, Mask::Bidirectional);
    attend(one, &[131, 2]);
    attend(Attention { heads: 2, mask: Mask::Causal, ..one }, &[3, 115]);
}

#[test]
fn attention_with_windows_scales_and_soft_caps() {
    for mask in [Mask::Bidirectional, Mask::Causal] {
        for window in [Some(0), Some(1), Some(4), Some(50), None] {
            for soft_cap in [None, Some(1.5)] {
                let usual = Attention::new(4, 2, 3, mask);
                let geometry = Attention { window, scale: 0.75, soft_cap, ..usual };
                attend(geometry, &[5, 1, 17]);
            }
        }
        for window in [Some(2), Some(70)] {
            attend(Attention { window, ..Attention::new(2, 1, 3, mask) }, &[3, 131]);
        }
    }
}

#[test]
fn attention_of_one_query_per_sequence() {
    for (mask, offsets) in [(Mask::Bidirectional, [0, 0, 0]), (Mask::Causal, [4, 0, 3])] {
        let mut spans = spans(&[5, 1, 7]);
        for (i, span) in spans.iter_mut().enumerate() {
            *span = Span { queries: i..i + 1, offset: offsets[i], ..span.clone() };
        }
        for window in [None, Some(2)] {
            let geometry = Attention { window, ..Attention::new(4, 2, 5, mask) };
            check(&[(3, 20), (13, 20)], &[], |tape, x, _| {
                let projected = Projected::Apart { queries: &x[0], keys_values: &x[1] };
                tape.attention(geometry, projected, &spans, None)
            });
        }
    }
}

#[test]
fn gates_at_odd_widths() {
    for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh, Activation::Tanh] {
        for shape in [(1, 2), (5, 14), (19, 66)] {
            check(&[shape], &[], |tape, x, _| tape.gated(&x[0], activation));
        }
    }
}

#[test]
fn norms_and_scales_of_some_columns() {
    let norms = [(id(Role::Query), (1, 3)), (id(Role::Key), (1, 6))];
    for rows in [1, 5, 131] {
        check(&[(rows, 17)], &norms, |tape, x, weights| {
            let [query, key] = [weights.get(id(Role::Query))?, weights.get(id(Role::Key))?];
            tape.norm_columns(x[0].clone(), &[(1..10, &query), (10..16, &key)], 1e-2, 1.0)
        });
        check(&[(rows, 17)], &[(WEIGHT, (1, 17))], |tape, x, weights| {
            tape.scale_columns(x[0].clone(), &weights.get(WEIGHT)?)
        });
    }
}

#[test]
fn sums_factors_caps_dropout_and_means_of_sequences() {
    for shape @ (rows, _) in [(1, 3), (9, 17)] {
        check(&[shape, shape], &[], |tape, x, _| tape.add(x[0].clone(), &x[1]));
        check(&[shape], &[], |tape, x, _| tape.add(x[0].clone(), &x[0]));
        check(&[shape], &[], |tape, x, _| Ok(tape.scaled(x[0].clone(), -1.5)));
        check(&[shape], &[], |tape, x, _| tape.soft_capped(x[0].clone(), 0.75));
        check(&[shape], &[], |tape, x, _| tape.dropout(x[0].clone(), 0.25, Seed(3)));
        let sequences = Sequences::of_lengths(&[rows.div_ceil(2), rows / 2]);
        let sequences = if rows == 1 { Sequences::of_lengths(&[1]) } else { sequences };
        check(&[shape], &[], |tape, x, _| {
            tape.sequence_means(&x[0].clone().in_sequences(&sequences)?)
        });
    }
}

#[test]
fn rows_put_into_sequences_and_what_a_classifier_of_images_reads() {
    let (token, position) = (id(Role::ClassToken), id(Role::Position));
    for (lengths, place, more) in [(vec![1], 0, 1), (vec![4, 2, 3], 0, 1), (vec![4, 2, 3], 2, 3)] {
        let (rows, sequences) = (lengths.iter().sum(), Sequences::of_lengths(&lengths));
        check(&[(rows, 5)], &[(token, (more, 5))], |tape, x, weights| {
            let x = x[0].clone().in_sequences(&sequences)?;
            tape.insert_rows(&x, place, &weights.get(token)?)
        });
        let at: Vec<u32> = lengths.iter().flat_map(|length| 0..*length as u32).collect();
        check(&[(rows, 5)], &[(position, (4, 5))], |tape, x, weights| {
            let x = x[0].clone().in_sequences(&sequences)?;
            tape.embed_onto(x, (&weights.get(position)?, &at))
        });
    }
    let sequences = Sequences::of_lengths(&[4, 3]);
    for skipped in [1, 2] {
        check(&[(7, 5)], &[], |tape, x, _| {
            tape.first_and_mean(&x[0].clone().in_sequences(&sequences)?, skipped)
        });
    }
}

#[test]
fn picked_rows_may_repeat_and_be_left_out() {
    check(&[(1, 3)], &[], |tape, x, _| tape.rows(&x[0], &[0]));
    check(&[(7, 3)], &[], |tape, x, _| tape.rows(&x[0], &[6, 2, 2, 0]));
}

#[test]
fn losses_over_given_logits() {
    check(&[(1, 3)], &[], |tape, x, _| tape.cross_entropy(&x[0], &[Some(2)], LossWeights::SUM));
    let some = [Some(4), None, Some(0), None, Some(6)];
    check(&[(5, 7)], &[], |tape, x, _| tape.cross_entropy(&x[0], &some, mean(&some)));
    check(&[(1, 1)], &[], |tape, x, _| tape.multi_label(&x[0], &[1.0], LossWeights::SUM));
    let targets: Vec<f32> = indices(5, 15, 2).into_iter().map(|bit| bit as f32).collect();
    check(&[(3, 5)], &[], |tape, x, _| tape.multi_label(&x[0], &targets, LossWeights::mean(15)));
}

#[test]
fn losses_whose_rows_count_differently() {
    let weights = [0.5, 2.0, 0.0, 1.0, 1.5];
    let row = LossWeights { rows: RowWeights::PerRow(&weights), divisor: 2.5, ..LossWeights::SUM };
    let some = [Some(4), None, Some(0), Some(1), Some(6)];
    check(&[(5, 7)], &[], |tape, x, _| tape.cross_entropy(&x[0], &some, row));
    check(&[(5, 3)], &[], |tape, x, _| tape.multi_label(&x[0], &[1.0; 15], row));
    check(&[(5, 4)], &[(WEIGHT, (7, 4))], |tape, x, weights| {
        tape.vocabulary_cross_entropy(&x[0], Logits::new(&weights.get(WEIGHT)?, None), &some, row)
    });
    let sequences = Sequences::of_lengths(&[2, 3]);
    let each = LossWeights {
        rows: RowWeights::PerSequence(&[0.25, 3.0]),
        divisor: 1.0,
        ..LossWeights::SUM
    };
    check(&[(5, 7)], &[], |tape, x, _| {
        tape.cross_entropy(&x[0].clone().in_sequences(&sequences)?, &some, each)
    });
}

#[test]
fn the_vocabulary_loss_with_and_without_bias_and_cap() {
    for (count, words) in [(1, 3), (13, 37)] {
        let targets: Vec<_> = indices(8, count, words)
            .into_iter()
            .enumerate()
            .map(|(i, word)| (i % 4 != 1).then_some(word))
            .collect();
        check(&[(count, 5)], &[(WEIGHT, (words, 5))], |tape, x, weights| {
            let table = weights.get(WEIGHT)?;
            tape.vocabulary_cross_entropy(
                &x[0],
                Logits::new(&table, None),
                &targets,
                mean(&targets),
            )
        });
        check(&[(count, 5)], &[(WEIGHT, (words, 5)), (BIAS, (1, words))], |tape, x, weights| {
            let (weight, bias) = (weights.get(WEIGHT)?, weights.get(BIAS)?);
            let vocabulary = Logits::new(&weight, Some(&bias));
            tape.vocabulary_cross_entropy(&x[0], vocabulary, &targets, mean(&targets))
        });
        check(&[(count, 5)], &[(WEIGHT, (words, 5)), (BIAS, (1, words))], |tape, x, weights| {
            let (weight, bias) = (weights.get(WEIGHT)?, weights.get(BIAS)?);
            let soft_cap = Some(1.5);
            let vocabulary = Logits { weight: &weight, bias: Some(&bias), soft_cap };
            tape.vocabulary_cross_entropy(&x[0], vocabulary, &targets, mean(&targets))
        });
    }
}

#[test]
fn a_table_that_is_looked_up_and_multiplied_gets_both_gradients() {
    let (ids, targets) = ([3, 0, 3, 9], [Some(0), Some(3), None, Some(10)]);
    check(&[], &[(WEIGHT, (11, 5))], |tape, _, weights| {
        let table = weights.get(WEIGHT)?;
        let x = tape.embed(&[(&table, &ids)])?;
        tape.vocabulary_cross_entropy(&x, Logits::new(&table, None), &targets, mean(&targets))
    });
    // The other way round: backward meets the look-up first and must make its rows whole.
    check(&[(4, 5)], &[(WEIGHT, (5, 5))], |tape, x, weights| {
        let table = weights.get(WEIGHT)?;
        let product = tape.linear(&x[0], &[bare(table.clone())])?;
        let found = tape.embed(&[(&table, &[1, 4, 1, 0])])?;
        tape.linear_onto(&found, &bare(table), &product)
    });
}

/// Relative to the norm: both ways add the same products, grouped differently.
const REGROUPED: f64 = 1e-5;

#[test]
fn the_vocabulary_loss_over_many_blocks_of_rows_is_that_of_all_logits() {
    let (count, width, words) = (2 * 1024 + 77, 6, 11);
    let device = Device::cpu();
    let x = of(&device, (count, width), &grid(1, count * width));
    let weight = of(&device, (words, width), &grid(2, words * width));
    let bias = of(&device, (1, words), &grid(3, words));
    let params: Params = [(WEIGHT, weight), (BIAS, bias)].into_iter().collect();
    let scope: Scope = [WEIGHT, BIAS].into_iter().collect();
    let targets: Vec<_> = indices(4, count, words + 2)
        .iter()
        .map(|&w| Some(w).filter(|w| (*w as usize) < words))
        .collect();
    let run = |fused: bool| {
        let mut tape = Tape::new(&device);
        let x = tape.input(x.clone());
        let weights = params.training(&scope);
        let projection = biased(&weights).unwrap();
        let loss = if fused {
            let vocabulary = Logits::new(&projection.weight, projection.bias.as_ref());
            tape.vocabulary_cross_entropy(&x, vocabulary, &targets, mean(&targets)).unwrap()
        } else {
            let logits = tape.linear(&x, &[projection]).unwrap();
            tape.cross_entropy(&logits, &targets, mean(&targets)).unwrap()
        };
        let gradients = tape.backward(&[(&loss, Tensor::scalar(&device, 0.5))]).unwrap();
        let of_weights = [WEIGHT, BIAS].map(|id| gradients.get(id).unwrap().to_dense());
        let of_input = gradients.of_input(&x).unwrap().to_host().into_owned();
        let [weight, bias] = of_weights;
        [vec![loss.tensor.item()], of_input, weight, bias]
    };
    for (fused, whole) in run(true).iter().zip(&run(false)) {
        let error = distance(fused, whole);
        assert!(error < REGROUPED, "{error:e}");
    }
}

fn attend(geometry: Attention, lengths: &[usize]) {
    let columns = (geometry.heads + 2 * geometry.kv_heads) * geometry.width;
    check(&[(lengths.iter().sum(), columns)], &[], |tape, x, _| {
        tape.attention(geometry, Projected::Together(&x[0]), &spans(lengths), None)
    });
}

fn biased(weights: &Weights<'_>) -> Result<Projection, ComputeError> {
    Ok(Projection { weight: weights.get(WEIGHT)?, bias: Some(weights.get(BIAS)?), lora: None })
}

fn corrected(weights: &Weights<'_>) -> Result<Projection, ComputeError> {
    let (a, b) = (weights.get(LORA_A)?, weights.get(LORA_B)?);
    let lora = Lora { a, b, scale: 0.75, magnitude: None };
    Ok(Projection { lora: Some(lora), ..biased(weights)? })
}

/// Compares, for every leaf and some directions, backward's slope with that of four neighbours.
fn check(
    inputs: &[Shape],
    weights: &[(ParamId, Shape)],
    build: impl Fn(&mut Tape, &[Value], &Weights<'_>) -> Built,
) {
    let device = Device::cpu();
    let point = Point::draw(&device, inputs, weights);
    let scope: Scope = weights.iter().map(|(id, _)| *id).collect();
    let mut tape = Tape::new(&device);
    let values: Vec<_> = point.inputs.iter().map(|x| tape.input(x.clone())).collect();
    let y = build(&mut tape, &values, &point.params.training(&scope)).expect("well formed");
    let upstream = numbers(900, y.tensor.elements(), (1.0, 0.0));
    let seed = of(&device, y.tensor.shape(), &upstream);
    let gradients = tape.backward(&[(&y, seed)]).expect("every leaf trains");
    let of_inputs = values.iter().map(|x| gradients.of_input(x).map(|g| g.to_host().into_owned()));
    let of_weights = weights.iter().map(|(id, _)| gradients.get(*id).map(Gradient::to_dense));

    // Forward without gradients is the same function, to the bit.
    assert_eq!(point.value(&device, &build), *y.tensor.to_host());
    let noise = ROUNDING * norm(&upstream) * norm(&y.tensor.to_host()) / f64::from(STEP);
    for (leaf, gradient) in of_inputs.chain(of_weights).enumerate() {
        let gradient = gradient.expect("every leaf has its gradient");
        for number in 0..DIRECTIONS {
            let sign = |i| if uniform(500 + number, i) < 0.5 { -1.0 } else { 1.0 };
            let direction: Vec<f32> = (0..gradient.len()).map(sign).collect();
            let height = |steps: f32| {
                let along: Vec<f32> = direction.iter().map(|d| d * steps * STEP).collect();
                dot(&point.moved(leaf, &along).value(&device, &build), &upstream)
            };
            let (near, far) = (height(1.0) - height(-1.0), height(2.0) - height(-2.0));
            let found = (8.0 * near - far) / (12.0 * f64::from(STEP));
            let expected = dot(&gradient, &direction);
            let allowed = RELATIVE * norm(&gradient) + noise;
            let error = (found - expected).abs();
            assert!(error <= allowed, "leaf {leaf}: {found}, not {expected}, within {allowed:e}");
        }
    }
}

/// Where a function is evaluated: inputs, then weights in the order of their ids.
#[derive(Clone)]
struct Point {
    inputs: Vec<Tensor>,
    params: Params,
}

impl Point {
    fn draw(device: &Device, inputs: &[Shape], weights: &[(ParamId, Shape)]) -> Self {
        assert!(weights.is_sorted_by_key(|(id, _)| *id), "leaves are counted in this order");
        let mut leaf = 0;
        let mut draw = |(rows, cols)| {
            leaf += 1;
            of(device, (rows, cols), &grid(leaf, rows * cols))
        };
        Self {
            inputs: inputs.iter().map(|shape| draw(*shape)).collect(),
            params: weights.iter().map(|(id, shape)| (*id, draw(*shape))).collect(),
        }
    }

    fn moved(&self, leaf: usize, along: &[f32]) -> Self {
        let mut point = self.clone();
        let weights = point.params.iter_mut().map(|(_, tensor)| tensor);
        let tensor = point.inputs.iter_mut().chain(weights).nth(leaf).expect("leaves are counted");
        let step = of(&tensor.device(), tensor.shape(), along);
        tensor.add_scaled(1.0, &step).expect("a step has its leaf's shape");
        point
    }

    fn value(
        &self,
        device: &Device,
        build: impl Fn(&mut Tape, &[Value], &Weights<'_>) -> Built,
    ) -> Vec<f32> {
        let mut tape = Tape::new(device);
        let values: Vec<_> = self.inputs.iter().map(|x| tape.constant(x.clone())).collect();
        let y = build(&mut tape, &values, &self.params.frozen()).expect("well formed");
        y.tensor.to_host().into_owned()
    }
}

fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// Multiples of 1/256 in [-1, 1).
fn grid(seed: u64, count: usize) -> Vec<f32> {
    (0..count).map(|i| (uniform(seed, i) * 512.0).floor() as f32 / 256.0 - 1.0).collect()
}
