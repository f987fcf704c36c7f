//! What a rehearsal on paper says a client holds is what the same steps hold on the processor.

use fedra_client::{Correction, MemoryDryRun, TrainTask, Trainer};
use fedra_compute::{Device, SecretKey, Seed};
use fedra_data::Task;
use fedra_engine::{
    ClipRule, LocalRule, MomentsLife, NoiseMultiplier, OptimiserConfig, PrivateSteps, Work,
};
use fedra_model::Adapters;
use fedra_plan::{ByteCount, Layer, Part, Role, Scope};
use fedra_wire::ParamValues;
use std::num::NonZeroU64;

use crate::split::{encoder, llama};
use crate::world::{World, adamw, sgd, with_threads};

const BATCH: u32 = 5;

/// What two steps on the same batch hold, and what is foreseen for them.
fn held(world: &World, scope: &Scope, work: &Work, device: &Device) -> (u64, u64) {
    let batch = &world.shards.clients[0].train.encoded()[..BATCH as usize];
    let plan = world.plan(scope.clone());
    let rehearsal = MemoryDryRun {
        model: &world.model,
        plan: &plan,
        split: None,
        work,
        task: world.shards.task,
        labels: &world.shards.labels,
        batch,
        steps: 2,
        scored: &[],
        clients: 1,
        joined: &[],
        precision: device.precision(),
        gpu: None,
    };
    assert_eq!(rehearsal.server().unwrap(), ByteCount(0));
    let foreseen = rehearsal.client().unwrap();

    let mut params = world.model.fresh_params(device, Seed(1)).unwrap();
    let shared = params.clone();
    let zeros = |id| (id, vec![0.0; shared.get(id).unwrap().elements()]);
    let kept: ParamValues = scope.iter().map(zeros).collect();
    let key = SecretKey::simulated(Seed(1));
    // Every example is drawn, and is worked through in two parts.
    let twice = [batch, batch].concat();
    let shortest = batch.iter().min_by_key(|example| example.ids.len()).unwrap();
    let behind_short = [&vec![shortest.clone(); batch.len()], batch].concat();
    let rows = NonZeroU64::new(u64::from(BATCH));
    let private = work.private.map(|private| PrivateSteps { rows, ..private });
    let task = TrainTask {
        examples: match (private, work.accumulate) {
            (None, 1) => batch,
            (None, _) => &behind_short,
            (Some(_), _) => &twice,
        },
        correction: match work.local {
            LocalRule::Plain => Correction::Nothing,
            LocalRule::Proximal { mu } => Correction::Proximal { mu },
            LocalRule::ControlVariate => Correction::Variates { own: &kept, server: &kept },
            LocalRule::Dynamic { alpha } => Correction::Dynamic { alpha, memory: &kept },
        },
        key: Some(&key),
        ..world.lesson(scope, work)
    };
    let work = Work { private, batch: BATCH, epochs: 2, ..work.clone() };
    device.reset_peak();
    let trainer = Trainer { model: &world.model, device, cache: ByteCount(0) };
    trainer.train(&mut params, &TrainTask { work: &work, ..task }).unwrap();
    (foreseen.0, device.usage().peak_bytes as u64)
}

fn private(clipping: ClipRule) -> Work {
    let noise = NoiseMultiplier::new(1.0).unwrap();
    let steps = PrivateSteps { clip: 0.1, clipping, noise, cap: None, rows: None };
    Work { private: Some(steps), ..sgd(0.1) }
}

#[test]
fn what_is_foreseen_for_an_uncut_client_is_what_its_steps_hold() {
    let momentum = OptimiserConfig::Momentum { rate: 0.1, momentum: 0.9, weight_decay: 0.0 };
    let local = |local| Work { local, ..adamw(1e-3) };
    let works = [
        ("sgd", sgd(0.1)),
        ("momentum", Work { solver: momentum, ..sgd(0.1) }),
        ("adamw, clipped", Work { clip: Some(0.5), ..adamw(1e-3) }),
        ("accumulated", Work { accumulate: 2, clip: Some(0.5), ..adamw(1e-3) }),
        ("dropout", Work { dropout: 0.25, ..adamw(1e-3) }),
        ("moments that live on", Work { moments: MomentsLife::Kept, ..adamw(1e-3) }),
        ("private, dropout", Work { dropout: 0.25, ..private(ClipRule::Flat) }),
        ("proximal", local(LocalRule::Proximal { mu: 0.1 })),
        ("variates", local(LocalRule::ControlVariate)),
        ("dynamic", local(LocalRule::Dynamic { alpha: 0.1 })),
        ("private", private(ClipRule::Flat)),
        ("private by block", private(ClipRule::PerBlock)),
        ("private, adaptive", Work { solver: momentum, ..private(ClipRule::Adaptive) }),
    ];
    let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Value, Role::Down]).unwrap();
    let (bert, notes, llama) = (encoder(Task::Diagnosis), encoder(Task::Concepts), llama(None));
    let lora = crate::split::llama(Some(adapters));
    let parts = |world: &World, parts: [Part; 2]| Scope::of_parts(world.model.layout(), parts);
    let scopes = [
        ("bert", &bert, bert.everything()),
        ("tokens", &notes, notes.everything()),
        ("llama", &llama, llama.everything()),
        ("adapters", &lora, parts(&lora, [Part::LoraA, Part::LoraB])),
        ("biases", &bert, parts(&bert, [Part::Bias, Part::Bias])),
        ("head", &bert, bert.head()),
        ("last block", &llama, Scope::of_layers(llama.model.layout(), [Layer::Block(2)])),
        ("but query and key", &bert, bert.without_kernel()),
    ];
    for (what, world, scope) in &scopes {
        for (how, work) in &works {
            for device in [Device::cpu(), Device::cpu().with_emulated_bf16()] {
                let (foreseen, held) = with_threads(1, || held(world, scope, work, &device));
                // Of examples of one length the seed decides which are in the first batch of two.
                let tolerance = if work.accumulate > 1 { held / 100 } else { 0 };
                let precision = device.precision();
                assert!(
                    foreseen.abs_diff(held) <= tolerance,
                    "{what}, {how}, {precision:?}: {foreseen} and {held}"
                );
            }
        }
    }
}
