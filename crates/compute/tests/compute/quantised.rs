//! Quantised weights are read as the f32 that they stand for, wherever a matrix of a model may be quantised.

use crate::chain::{Chain, LENGTHS};
use crate::draw::bits;
use fedra_compute::{Device, Optimiser, Params, Solver, Tensor, ThreadPool, WeightFormat};
use fedra_plan::{Layer, ParamId, Role, Scope};

const FORMATS: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Int4];

/// What a model may have quantised: projections and tables.
fn is_large(id: ParamId, tensor: &Tensor) -> bool {
    const ROLES: [Role; 9] = [
        Role::Query,
        Role::Key,
        Role::Value,
        Role::Output,
        Role::Gate,
        Role::Up,
        Role::Down,
        Role::Token,
        Role::Vocabulary,
    ];
    tensor.rows() > 1 && id.part == fedra_plan::Part::Weight && ROLES.contains(&id.role)
}

/// The large matrices in a format, and the f32 that they stand for.
fn stored(params: &Params, format: WeightFormat) -> (Params, Params) {
    let quantised = |(id, tensor): (ParamId, &Tensor)| {
        let (device, numbers) = (tensor.device(), tensor.to_host());
        let format = if is_large(id, tensor) { format } else { WeightFormat::F32 };
        (
            id,
            Tensor::stored_as(&device, format, tensor.shape(), &numbers)
                .expect("numbers of a tensor"),
        )
    };
    let quantised: Params = params.iter().map(quantised).collect();
    let whole = |(id, tensor): (ParamId, &Tensor)| {
        let (rows, cols) = tensor.shape();
        (
            id,
            Tensor::from_slice(&tensor.device(), rows, cols, &tensor.to_host())
                .expect("numbers of a tensor"),
        )
    };
    let whole = quantised.iter().map(whole).collect();
    (quantised, whole)
}

/// What may learn beside quantised weights.
fn beside(chain: &Chain) -> Scope {
    let vectors = chain.params.iter().filter(|(id, tensor)| !is_large(*id, tensor));
    vectors.map(|(id, _)| id).collect()
}

#[test]
fn a_quantised_model_gives_the_bits_of_the_f32_that_it_stands_for() {
    for device in [Device::cpu(), Device::cpu().with_emulated_bf16()] {
        let mut chain = Chain::on(device, &LENGTHS);
        let scope = beside(&chain);
        for format in FORMATS {
            let (quantised, whole) = stored(&chain.params.clone(), format);
            assert!(quantised.iter().filter(|(_, tensor)| tensor.format() == format).count() > 10);
            chain.params = whole;
            let (expected, gradients) = chain.run(&scope);
            chain.params = quantised;
            let (found, same) = chain.run(&scope);
            assert_eq!(bits(&found), bits(&expected), "{format}");
            assert!(gradients.iter().len() > 10);
            for (id, gradient) in gradients.iter() {
                let (found, expected) = (same.get(id).unwrap().to_dense(), gradient.to_dense());
                assert!(found == expected, "{format}: {id}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_quantised_products() {
    let mut chain = Chain::new(&LENGTHS);
    let scope = beside(&chain);
    for format in FORMATS {
        chain.params = stored(&chain.params.clone(), format).0;
        let on = |threads: usize| {
            ThreadPool::new(threads).expect("some threads").install(|| chain.run(&scope))
        };
        let (alone, many) = (on(1), on(5));
        assert_eq!(bits(&alone.0), bits(&many.0));
        for (id, gradient) in alone.1.iter() {
            assert!(gradient.to_dense() == many.1.get(id).unwrap().to_dense(), "{format}: {id}");
        }
    }
}

#[test]
fn a_step_beside_quantised_weights_leaves_them_as_they_are() {
    let mut chain = Chain::new(&LENGTHS);
    let (quantised, _) = stored(&chain.params.clone(), WeightFormat::Int4);
    let scope = beside(&chain);
    chain.params = quantised.clone();
    let gradients = chain.run(&scope).1;
    let mut optimiser = Optimiser::new(&chain.device, Solver::adamw(0.01, 0.1)).unwrap();
    optimiser.step(&mut chain.params, &gradients).unwrap();
    for (id, tensor) in chain.params.iter() {
        assert_eq!(tensor.same_storage(quantised.get(id).unwrap()), !scope.contains(id), "{id}");
    }
}

#[test]
fn on_paper_a_quantised_model_takes_what_it_takes_on_the_processor() {
    ThreadPool::new(1).expect("one thread").install(|| {
        for format in [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4] {
            let peak = |device: Device| {
                let mut chain = Chain::on(device.clone(), &LENGTHS);
                let scope = beside(&chain);
                chain.params = chain
                    .params
                    .iter()
                    .map(|(id, tensor)| {
                        let format = if is_large(id, tensor) { format } else { WeightFormat::F32 };
                        let (rows, cols) = tensor.shape();
                        (id, Tensor::zeros_as(&device, format, rows, cols))
                    })
                    .collect();
                let held = device.usage().live_bytes;
                device.reset_peak();
                drop(chain.run(&scope));
                (held, device.usage().peak_bytes)
            };
            assert_eq!(peak(Device::meta()), peak(Device::cpu()), "{format}");
            let [meta, cpu] = [Device::meta(), Device::cpu()].map(|it| it.with_emulated_bf16());
            assert_eq!(peak(meta), peak(cpu), "{format}, products in bf16");
        }
    });
}

#[test]
fn a_quantised_matrix_takes_what_its_format_says_and_becomes_f32_when_it_is_written() {
    let device = Device::cpu();
    let numbers: Vec<f32> = (0..64 * 4096_u32).map(|n| (n % 97) as f32 - 48.0).collect();
    for (format, bits_of_a_number) in [(WeightFormat::Int8, 8.5), (WeightFormat::Int4, 5.0)] {
        let before = device.usage().live_bytes;
        let tensor = Tensor::stored_as(&device, format, (64, 4096), &numbers).unwrap();
        let used = (device.usage().live_bytes - before) as f64;
        let expected = 64.0 * 4096.0 * bits_of_a_number / 8.0;
        assert!((1.0..1.01).contains(&(used / expected)), "{format}: {used} for {expected}");
        assert_eq!(8.0 * expected, f64::from(format.bits_of_32()) * 64.0 * 4096.0 / 32.0);
        let (mut written, values) = (tensor.clone(), tensor.to_host().into_owned());
        written.scale(2.0);
        assert_eq!((written.format(), tensor.format()), (WeightFormat::F32, format));
        assert!(written.to_host().iter().zip(&values).all(|(twice, once)| *twice == 2.0 * once));
        let mut longer = tensor.clone();
        longer.append(&written).unwrap();
        assert_eq!(longer.to_host()[..values.len()], values);
        assert_eq!(*tensor.to(&Device::cpu()).to_host(), *values);
        assert_eq!(
            *tensor.to_bf16().to_host(),
            *longer.row_range(&device, 0, 64).unwrap().to_bf16().to_host()
        );
    }
}

#[test]
fn on_paper_a_gpu_holds_one_copy_of_a_quantised_weight_at_a_time() {
    let peak = |format: WeightFormat| {
        let device = Device::meta_gpu(fedra_compute::Precision::Bf16);
        let mut chain = Chain::on(device.clone(), &LENGTHS);
        let scope = chain.layer(Layer::Head);
        chain.params = chain
            .params
            .iter()
            .map(|(id, tensor)| {
                let format = if is_large(id, tensor) { format } else { WeightFormat::F32 };
                let (rows, cols) = tensor.shape();
                (id, Tensor::zeros_as(&device, format, rows, cols))
            })
            .collect();
        device.reset_peak();
        for _ in 0..2 {
            drop(chain.run(&scope));
        }
        device.usage().peak_bytes
    };
    let [whole, half, int8, int4] = WeightFormat::ALL.map(peak);
    assert!(int4 <= int8 && int8 < half && half < whole, "{whole}, {half}, {int8}, {int4}");
}
