//! Memory is taken once and used again, and the largest tensor of all never exists.

use crate::chain::{Chain, LENGTHS};
use crate::draw::{frozen, id, indices, mean, spans, tensor, trained};
use fedra_compute::{
    Activation, Attention, Cuda, Device, Logits, Lora, Mask, Optimiser, Precision, Projected,
    Projection, Seed, Sequences, Solver, Tape, Tensor, ThreadPool, Usage, Weight,
};
use fedra_plan::{Layer, ParamId, Part, Role};

#[test]
fn once_the_optimiser_has_its_moments_training_allocates_nothing() {
    // One thread: with several, which buffers are in use at once depends on the scheduler.
    // The moments are made at the end of the first step, out of buffers that its gradients used, so
    // the second step may still ask for a few.
    on_one_thread(|| {
        let mut chain = Chain::new(&LENGTHS);
        let scope = chain.everything();
        let mut optimiser = Optimiser::new(&chain.device, Solver::adamw(1e-3, 0.01)).unwrap();
        let mut step = || {
            let gradients = chain.run(&scope).1;
            optimiser.step(&mut chain.params, &gradients).unwrap();
            drop(gradients);
            chain.device.usage()
        };
        step();
        let second = step();
        for number in 3..=5 {
            let usage = step();
            assert_eq!(usage.allocations, second.allocations, "step {number}");
            assert_eq!(usage.live_bytes, second.live_bytes, "step {number}");
        }
    });
}

#[test]
fn the_high_water_mark_is_that_of_the_step_and_can_be_forgotten() {
    on_one_thread(|| {
        let chain = Chain::new(&LENGTHS);
        let scope = chain.everything();
        let peak = |chain: &Chain| {
            chain.device.reset_peak();
            assert_eq!(chain.device.usage().peak_bytes, chain.device.usage().live_bytes);
            drop(chain.run(&scope));
            chain.device.usage().peak_bytes
        };
        let (first, second) = (peak(&chain), peak(&chain));
        assert_eq!(first, second);
        let Usage { live_bytes, .. } = chain.device.usage();
        assert!(first > 2 * live_bytes, "a step holds more than the weights: {first}");
        chain.device.reset_peak();
        drop(chain.run(&chain.layer(Layer::Head)));
        assert!(chain.device.usage().peak_bytes < first / 2, "a head alone needs far less");
    });
}

#[test]
fn a_device_without_numbers_counts_what_a_step_holds_on_the_processor() {
    on_one_thread(|| {
        let peak = |device: Device| {
            let chain = Chain::on(device, &LENGTHS);
            chain.device.reset_peak();
            drop(chain.run(&chain.everything()));
            chain.device.usage().peak_bytes
        };
        assert_eq!(peak(Device::meta()), peak(Device::cpu()));
        let [meta, cpu] = [Device::meta(), Device::cpu()].map(|it| it.with_emulated_bf16());
        let (foreseen, held) = (peak(meta), peak(cpu));
        assert_eq!(foreseen, held);
        assert_ne!(foreseen, peak(Device::meta()), "packed operands are of another size");
    });
}

#[test]
fn a_step_on_paper_holds_what_it_holds_on_a_gpu() {
    let peak = |device: Device| {
        let mut chain = Chain::on(device, &LENGTHS);
        let scope = chain.everything();
        let mut optimiser = Optimiser::new(&chain.device, Solver::adamw(1e-3, 0.01)).unwrap();
        for _ in 0..3 {
            chain.device.reset_peak();
            let gradients = chain.run(&scope).1;
            optimiser.step(&mut chain.params, &gradients).unwrap();
        }
        chain.device.usage().peak_bytes as f64
    };
    let foreseen = Precision::ALL.map(|precision| peak(Device::meta_gpu(precision)));
    assert_eq!(foreseen[0], foreseen[1]);
    assert!(foreseen[2] < foreseen[0], "activations are half as large: {foreseen:?}");
    for (precision, foreseen) in Precision::ALL.into_iter().zip(foreseen) {
        // Where there is no GPU the rest is for a machine that has one.
        let Ok(gpu) = Cuda::open_apart(0, precision) else { return };
        let measured = peak(Device::Cuda(gpu));
        assert!(
            (0.9..1.1).contains(&(foreseen / measured)),
            "{precision}: {foreseen} for {measured}"
        );
    }
}

#[test]
fn every_operation_takes_as_much_on_a_device_without_numbers() {
    on_one_thread(|| {
        let peak = |device: &Device| {
            let weight = |role, cols| trained(id(role), tensor(device, (1, cols), 1));
            let mut tape = Tape::new(device);
            let x = tape.input(tensor(device, (300, 66), 2));
            let lengths = Sequences::of_lengths(&[100, 37, 163]);
            let x = x.in_sequences(&lengths).unwrap();
            let (query, key) = (weight(Role::Query, 6), weight(Role::Key, 12));
            let parts = [(0..36, &query), (36..48, &key)];
            let x = tape.norm_columns(x, &parts, 1e-5, 1.0).unwrap();
            let x = tape.scale_columns(x, &weight(Role::Up, 66)).unwrap();
            let x = tape.dropout(x, 0.1, Seed(1)).unwrap();
            let x = tape.scaled(x, 3.0);
            let x = tape.soft_capped(x, 2.0).unwrap();
            let x = tape.rms_norm(&x, &weight(Role::MlpNorm, 66), 1e-5, 1.0).unwrap();
            let usual = Attention::new(11, 11, 2, Mask::Bidirectional);
            let geometry = Attention { window: Some(9), soft_cap: Some(3.0), ..usual };
            let spans = spans(&[100, 37, 163]);
            let y = tape.attention(geometry, Projected::Together(&x), &spans, None).unwrap();
            let y = tape.gated(&y, Activation::GeluTanh).unwrap();
            let rows = trained(id(Role::ClassToken), tensor(device, (2, 11), 4));
            let y = tape.insert_rows(&y, 1, &rows).unwrap();
            let table = trained(id(Role::Position), tensor(device, (7, 11), 4));
            let at: Vec<u32> = (0..306).map(|row| row % 7).collect();
            let y = tape.embed_onto(y, (&table, &at)).unwrap();
            let y = tape.first_and_mean(&y, 3).unwrap();
            let means = tape.sequence_means(&y).unwrap();
            let seed = tensor(device, means.tensor.shape(), 3);
            drop(tape.backward(&[(&means, seed)]).unwrap());
            device.usage().peak_bytes
        };
        for [meta, cpu] in [
            [Device::meta(), Device::cpu()],
            [Device::meta(), Device::cpu()].map(|it| it.with_emulated_bf16()),
        ] {
            assert_eq!(peak(&meta), peak(&cpu), "{:?}", cpu.precision());
        }
    });
}

#[test]
fn a_frugal_device_gives_memory_back_when_it_rests_and_another_keeps_it() {
    let held = |device: &Device| device.usage().live_bytes + device.usage().idle_bytes;
    for (device, is_frugal) in [(Device::frugal_cpu(), true), (Device::cpu(), false)] {
        let kept = Tensor::zeros(&device, 100, 100);
        // More than one slab has room for.
        let training: Vec<Tensor> = (0..6).map(|_| Tensor::zeros(&device, 1000, 5000)).collect();
        let most = held(&device);
        device.rest();
        assert_eq!(held(&device), most, "what is in use stays");
        drop(training);
        device.rest();
        assert_eq!(held(&device) < most, is_frugal, "{} of {most}", held(&device));
        assert!(held(&device) >= 100 * 100 * size_of::<f32>());
        assert!(kept.to_host().iter().all(|number| *number == 0.0));
        assert!(Tensor::zeros(&device, 1000, 5000).to_host().iter().all(|number| *number == 0.0));
    }
}

/// What is in use between them keeps a slab; the pages around it go back all the same.
#[cfg(target_os = "linux")]
#[test]
fn a_frugal_device_gives_back_what_lies_between_tensors_in_use() {
    let resident = || -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        4096 * pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    let device = Device::frugal_cpu();
    let numbers: Vec<f32> = (0..5_000_000_u32).map(|number| number as f32).collect();
    let bytes = size_of::<f32>() * numbers.len();
    let gives_back = || {
        let first = Tensor::from_slice(&device, 1000, 5000, &numbers).unwrap();
        let kept = Tensor::from_slice(&device, 100, 100, &numbers[..10_000]).unwrap();
        drop(first);
        let before = resident();
        device.rest();
        let given = before.saturating_sub(resident());
        assert_eq!(*kept.to_host(), numbers[..10_000]);
        let again = Tensor::from_slice(&device, 1000, 5000, &numbers).unwrap();
        assert_eq!(*again.to_host(), *numbers);
        given > bytes * 9 / 10
    };
    // Other tests of this process may take memory at the same moment.
    assert!((0..10).any(|_| gives_back()), "nothing was given back");
}

#[test]
fn the_vocabulary_loss_never_holds_all_logits() {
    let (count, width, words) = (2503, 8, 5003);
    let all_logits = count * words * size_of::<f32>();
    let device = Device::cpu();
    let targets: Vec<_> = indices(1, count, words).into_iter().map(Some).collect();
    let table = tensor(&device, (words, width), 2);
    for trains in [false, true] {
        let weight = Weight { trains, ..frozen(id(Role::Vocabulary), table.clone()) };
        device.reset_peak();
        let mut tape = Tape::new(&device);
        let x = tape.input(tensor(&device, (count, width), 3));
        let mean = mean(&targets);
        let loss =
            tape.vocabulary_cross_entropy(&x, Logits::new(&weight, None), &targets, mean).unwrap();
        tape.backward(&[(&loss, Tensor::scalar(&device, 1.0))]).unwrap();
        let peak = device.usage().peak_bytes;
        assert!(peak < all_logits / 2, "{peak} bytes held, all logits are {all_logits}");
    }
}

#[test]
fn the_loss_of_a_corrected_vocabulary_never_holds_all_logits_and_takes_what_is_foreseen() {
    let (count, width, words, rank) = (6007, 8, 20_011, 2);
    let all_logits = count * words * size_of::<f32>();
    let peak = move |device: Device| {
        let targets: Vec<_> = indices(1, count, words).into_iter().map(Some).collect();
        let part = |part, shape, seed| Weight {
            id: ParamId::new(Layer::Head, Role::Vocabulary, part),
            tensor: tensor(&device, shape, seed),
            trains: part != Part::Weight,
        };
        let a = part(Part::LoraA, (rank, width), 4);
        let b = part(Part::LoraB, (words, rank), 5);
        let lora = Some(Lora { a, b, scale: 0.5, magnitude: None });
        let weight = part(Part::Weight, (words, width), 2);
        let vocabulary = Projection { weight, bias: None, lora };
        device.reset_peak();
        let mut tape = Tape::new(&device);
        let x = tape.input(tensor(&device, (count, width), 3));
        let (given, mean) = ((&vocabulary, Some(30.0)), mean(&targets));
        let loss = tape.corrected_cross_entropy(&x, given, &targets, mean).unwrap();
        tape.backward(&[(&loss, Tensor::scalar(&device, 1.0))]).unwrap();
        device.usage().peak_bytes
    };
    on_one_thread(move || {
        let held = peak(Device::cpu());
        assert!(held < all_logits * 4 / 5, "{held} bytes held, all logits are {all_logits}");
        assert_eq!(peak(Device::meta()), held);
    });
}

fn on_one_thread(run: impl FnOnce() + Send) {
    ThreadPool::new(1).expect("one thread").install(run);
}
