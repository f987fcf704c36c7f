//! Projections whose rows have magnitudes of their own: `DoRA`.

use crate::draw::{bare, bits, distance, frozen, id, numbers, of, tensor, trained};
use fedra_compute::{
    Activation, Device, ExampleGradients, Gradients, Lora, Magnitude, Projection, Sequences, Tape,
    Tensor, Value, Weight, WeightFormat, magnitude_factors,
};
use fedra_plan::{Layer, ParamId, Part, Role};

const SCALE: f32 = 0.7;
const FITS: &str = "shapes agree";
/// Lengths of examples, one of them empty.
const LENGTHS: [usize; 4] = [3, 1, 0, 7];
/// Two orders of the same f32 sums.
const ROUNDED: f64 = 2e-6;

fn part(role: Role, part: Part) -> ParamId {
    ParamId::new(Layer::Block(0), role, part)
}

/// A projection with a bias, an adapter and magnitudes, all of which train but the weight.
fn projection(role: Role, (outputs, inputs, rank): (usize, usize, usize)) -> Projection {
    let device = Device::cpu();
    let seed = 40 * role as u64;
    let of_part =
        |which: Part, shape, seed| trained(part(role, which), tensor(&device, shape, seed));
    let norms = numbers(seed + 5, outputs, (0.5, 1.5));
    let magnitude = trained(part(role, Part::Magnitude), of(&device, (1, outputs), &norms));
    let lora = Lora {
        a: of_part(Part::LoraA, (rank, inputs), seed + 2),
        b: of_part(Part::LoraB, (outputs, rank), seed + 3),
        scale: SCALE,
        magnitude: Some(Magnitude::Norms(magnitude)),
    };
    let weight = frozen(id(role), tensor(&device, (outputs, inputs), seed + 1));
    Projection { weight, bias: Some(of_part(Part::Bias, (1, outputs), seed + 4)), lora: Some(lora) }
}

fn magnitude(projection: &Projection) -> &Weight {
    match projection.lora.as_ref().and_then(|lora| lora.magnitude.as_ref()) {
        Some(Magnitude::Norms(weight)) => weight,
        _ => unreachable!("it has some"),
    }
}

/// The corrected weight's rows with their magnitudes, in f64.
fn rows(projection: &Projection) -> Vec<Vec<f64>> {
    let lora = projection.lora.as_ref().expect(FITS);
    let [weight, a, b] = [&projection.weight, &lora.a, &lora.b].map(|it| it.tensor.to_host());
    let (inputs, rank) = (projection.weight.tensor.cols(), lora.a.tensor.rows());
    let magnitudes = magnitude(projection).tensor.to_host().into_owned();
    let row = |output: usize| {
        let corrected = |input: usize| {
            let correction = (0..rank)
                .map(|k| f64::from(b[output * rank + k]) * f64::from(a[k * inputs + input]));
            f64::from(weight[output * inputs + input]) + f64::from(SCALE) * correction.sum::<f64>()
        };
        let row: Vec<f64> = (0..inputs).map(corrected).collect();
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| f64::from(magnitudes[output]) * x / norm).collect()
    };
    (0..projection.weight.tensor.rows()).map(row).collect()
}

fn input(tape: &mut Tape, inputs: usize) -> Value {
    let examples = Sequences::of_lengths(&LENGTHS);
    let x = tape.input(tensor(&Device::cpu(), (examples.rows(), inputs), 9));
    x.in_sequences(&examples).expect(FITS)
}

#[test]
fn a_row_has_the_norm_of_its_magnitude_at_any_size() {
    for (outputs, inputs, rank) in [(1, 1, 1), (3, 7, 2), (33, 65, 3), (70, 31, 17)] {
        let own = projection(Role::Up, (outputs, inputs, rank));
        let mut tape = Tape::new(&Device::cpu());
        let x = input(&mut tape, inputs);
        let y = tape.linear(&x, std::slice::from_ref(&own)).expect(FITS);
        let (x, bias) = (x.tensor.to_host(), own.bias.as_ref().expect(FITS).tensor.to_host());
        let rows = rows(&own);
        let expected: Vec<f32> = x
            .chunks_exact(inputs)
            .flat_map(|x| {
                let output = |(row, bias): (&Vec<f64>, &f32)| {
                    let sum: f64 = row.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum();
                    (sum + f64::from(*bias)) as f32
                };
                rows.iter().zip(&bias[..]).map(output).collect::<Vec<_>>()
            })
            .collect();
        let off = distance(&y.tensor.to_host(), &expected);
        assert!(off < ROUNDED, "{outputs} x {inputs}, rank {rank}: {off:e}");
    }
}

/// The gradients of everything around two projections side by side, one of them without an adapter, as a function of what
/// starts the backward pass.
fn gradients(decomposed: bool) -> (Vec<f32>, Gradients, Value, Projection) {
    let device = Device::cpu();
    let own = projection(Role::Value, (9, 6, 2));
    let plain = bare(trained(id(Role::Key), tensor(&device, (4, 6), 77)));
    let mut tape = Tape::new(&device);
    let x = input(&mut tape, 6);
    let y = if decomposed {
        tape.linear(&x, &[plain, own.clone()]).expect(FITS)
    } else {
        // The norms are constants: the same as a scale of columns that happens to be theirs.
        let lora = own.lora.clone().map(|lora| Lora { magnitude: None, ..lora });
        let direction = Projection { lora, bias: None, weight: own.weight.clone() };
        let y = tape.linear(&x, &[plain, direction]).expect(FITS);
        let lora = own.lora.as_ref().expect(FITS);
        let low_rank = (&lora.a.tensor, &lora.b.tensor, SCALE);
        let factors = magnitude_factors(&own.weight.tensor, low_rank, &magnitude(&own).tensor);
        let ones = [vec![1.0; 4], factors.to_host().into_owned()].concat();
        let factors = trained(part(Role::Value, Part::Magnitude), of(&device, (1, 13), &ones));
        tape.scale_columns(y, &factors).expect(FITS)
    };
    let dy = tensor(&device, y.tensor.shape(), 31);
    let gradients = tape.backward(&[(&y, dy)]).expect(FITS);
    (y.tensor.to_host().into_owned(), gradients, x, own)
}

#[test]
fn gradients_are_those_of_columns_that_are_scaled_by_constants() {
    let (y, found, x, own) = gradients(true);
    let (without_bias, expected, other, _) = gradients(false);
    let lora = own.lora.as_ref().expect(FITS);
    for id in [lora.a.id, lora.b.id, id(Role::Key)] {
        let [found, expected] = [&found, &expected].map(|it| it.get(id).expect(FITS).to_dense());
        assert!(distance(&found, &expected) < ROUNDED, "{id}");
    }
    let of_x = found.of_input(&x).expect(FITS).to_host().into_owned();
    assert!(distance(&of_x, &expected.of_input(&other).expect(FITS).to_host()) < ROUNDED);
    // One more step: the scale of a column is its magnitude over the norm.
    let magnitudes = magnitude(&own);
    let low_rank = (&lora.a.tensor, &lora.b.tensor, SCALE);
    let factors = magnitude_factors(&own.weight.tensor, low_rank, &magnitudes.tensor);
    let by_scale = expected.get(magnitudes.id).expect(FITS).to_dense();
    let by_magnitude: Vec<f32> = by_scale[4..]
        .iter()
        .zip(&factors.to_host()[..])
        .zip(&magnitudes.tensor.to_host()[..])
        .map(|((gradient, factor), magnitude)| gradient * factor / magnitude)
        .collect();
    assert!(distance(&found.get(magnitudes.id).expect(FITS).to_dense(), &by_magnitude) < ROUNDED);
    // A bias is added behind the scale.
    let bias = own.bias.as_ref().expect(FITS);
    let dy = numbers(31, y.len(), (1.0, 0.0));
    let sums: Vec<f32> =
        (4..13).map(|column| dy.iter().skip(column).step_by(13).sum::<f32>()).collect();
    assert!(distance(&found.get(bias.id).expect(FITS).to_dense(), &sums) < ROUNDED);
    let shifts = bias.tensor.to_host();
    for (place, (y, bare)) in y.iter().zip(&without_bias).enumerate() {
        let shift = if place % 13 < 4 { 0.0 } else { shifts[place % 13 - 4] };
        assert!((y - bare - shift).abs() < 1e-5, "{place}: {y}, {bare} and {shift}");
    }
}

#[test]
fn an_activation_and_a_residual_stand_behind_magnitude_and_bias() {
    let own = projection(Role::Up, (6, 6, 2));
    let gradients_of = |around: &dyn Fn(&mut Tape, &Value) -> Value| {
        let mut tape = Tape::new(&Device::cpu());
        let x = input(&mut tape, 6);
        let y = around(&mut tape, &x);
        let dy = tensor(&Device::cpu(), y.tensor.shape(), 3);
        let gradients = tape.backward(&[(&y, dy)]).expect(FITS);
        let of_x = gradients.of_input(&x).expect(FITS).to_host().into_owned();
        let of_m = gradients.get(magnitude(&own).id).expect(FITS).to_dense();
        [y.tensor.to_host().into_owned(), of_x, of_m]
    };
    let onto = gradients_of(&|tape, x| tape.linear_onto(x, &own, x).expect(FITS));
    let apart = gradients_of(&|tape, x| {
        let y = tape.linear(x, std::slice::from_ref(&own)).expect(FITS);
        tape.add(y, x).expect(FITS)
    });
    for (onto, apart) in onto.iter().zip(&apart) {
        assert!(distance(onto, apart) < ROUNDED);
    }
    let activated =
        gradients_of(&|tape, x| tape.linear_activated(x, &own, Activation::GeluTanh).expect(FITS));
    // A gate of one: the activation alone.
    let ones = |tape: &mut Tape, x: &Value| {
        let device = Device::cpu();
        let eye = of(&device, (6, 6), &[0.0; 36]);
        let one = frozen(part(Role::Gate, Part::Bias), of(&device, (1, 6), &[1.0; 6]));
        let one = Projection { bias: Some(one), ..bare(frozen(id(Role::Gate), eye)) };
        let both = tape.linear(x, &[own.clone(), one]).expect(FITS);
        tape.gated(&both, Activation::GeluTanh).expect(FITS)
    };
    for (found, expected) in activated.iter().zip(&gradients_of(&ones)) {
        assert!(distance(found, expected) < ROUNDED);
    }
}

/// Gradients by example of a network with decomposed projections.
fn by_example(only: Option<usize>) -> ExampleGradients {
    let lengths: Vec<usize> = match only {
        None => LENGTHS.to_vec(),
        Some(example) => vec![LENGTHS[example]],
    };
    let examples = Sequences::of_lengths(&lengths);
    let mut tape = Tape::by_example(&Device::cpu(), &examples);
    let all = numbers(9, LENGTHS.iter().sum::<usize>() * 6, (1.0, 0.0));
    let first = only.map_or(0, |example| LENGTHS[..example].iter().sum::<usize>());
    let rows = first * 6..(first + examples.rows()) * 6;
    let x = tape.constant(of(&Device::cpu(), (examples.rows(), 6), &all[rows]));
    let x = x.in_sequences(&examples).expect(FITS);
    let own = [projection(Role::Value, (9, 6, 2)), projection(Role::Key, (5, 6, 3))];
    let y = tape.linear(&x, &own).expect(FITS);
    let down = projection(Role::Down, (4, 14, 2));
    let y = tape.linear_activated(&y, &down, Activation::Silu).expect(FITS);
    let all = numbers(12, LENGTHS.iter().sum::<usize>() * 4, (1.0, 0.0));
    let dy = of(&Device::cpu(), (examples.rows(), 4), &all[first * 4..][..examples.rows() * 4]);
    tape.backward_by_example(&[(&y, dy)]).expect(FITS)
}

#[test]
fn each_examples_gradient_is_that_of_its_own_rows() {
    let together = by_example(None);
    let mut alone = Vec::new();
    for example in 0..LENGTHS.len() {
        let sum = by_example(Some(example)).weighted_sum(|_, _| 1.0);
        let square: f64 = sum.sum_of_squares();
        let found = together.square(example);
        assert!((found - square).abs() <= 1e-5 * square, "{example}: {found}, {square}");
        alone.push(sum);
    }
    assert!(alone[3].iter().len() == 12, "A, B, magnitude and bias of three projections");
    let factor = |example: usize| [0.5, 0.0, 1.0, 2.0][example];
    let sum = together.weighted_sum(|_, example| factor(example));
    for (id, gradient) in sum.iter() {
        let mut expected = vec![0.0; gradient.to_dense().len()];
        for (example, own) in alone.iter().enumerate() {
            let own = own.get(id).map(fedra_compute::Gradient::to_dense).unwrap_or_default();
            expected.iter_mut().zip(&own).for_each(|(sum, own)| *sum += factor(example) * own);
        }
        assert!(distance(&gradient.to_dense(), &expected) < 1e-5, "{id}");
    }
}

#[test]
fn norms_are_those_of_the_numbers_that_a_stored_weight_stands_for() {
    for format in [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4] {
        let run = |weight: &Tensor| {
            let mut own = projection(Role::Up, (40, 96, 3));
            own.weight.tensor = weight.clone();
            let mut tape = Tape::new(&Device::cpu());
            let x = input(&mut tape, 96);
            tape.linear(&x, &[own]).expect(FITS).tensor
        };
        let device = Device::cpu();
        let whole = tensor(&device, (40, 96), 1);
        let stored = Tensor::stored_as(&device, format, (40, 96), &whole.to_host()).expect(FITS);
        let stands_for = of(&device, (40, 96), &stored.to_host());
        assert_eq!(bits(&run(&stored)), bits(&run(&stands_for)), "{format}");
        assert_eq!(stored.row_norms(), stands_for.row_norms());
    }
}

#[test]
fn factors_that_were_divided_before_give_the_same_bits() {
    let own = projection(Role::Up, (33, 20, 3));
    let lora = own.lora.clone().expect(FITS);
    let low_rank = (&lora.a.tensor, &lora.b.tensor, SCALE);
    let factors = magnitude_factors(&own.weight.tensor, low_rank, &magnitude(&own).tensor);
    let settled = Magnitude::Factors(frozen(magnitude(&own).id, factors));
    let lora = Some(Lora { magnitude: Some(settled), ..lora });
    let settled = Projection { lora, ..own.clone() };
    let run = |projection: Projection| {
        let mut tape = Tape::new(&Device::cpu());
        let x = input(&mut tape, 20);
        bits(&tape.linear(&x, &[projection]).expect(FITS).tensor)
    };
    assert_eq!(run(own), run(settled));
}

#[test]
fn a_row_of_zeros_stays_zero() {
    let mut own = projection(Role::Up, (3, 4, 2));
    own.bias = None;
    own.weight.tensor = of(&Device::cpu(), (3, 4), &[0.0; 12]);
    own.lora.as_mut().expect(FITS).b.tensor = of(&Device::cpu(), (3, 2), &[0.0; 6]);
    let mut tape = Tape::new(&Device::cpu());
    let x = input(&mut tape, 4);
    let y = tape.linear(&x, &[own]).expect(FITS);
    assert!(y.tensor.to_host().iter().all(|y| *y == 0.0));
}
