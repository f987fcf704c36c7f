//! A cut model over sockets is the cut model in one process, to the bit, in every mode.

use std::sync::Arc;

use fedra_client::{ServerSegment, to_values};
use fedra_compute::{Device, Seed};
use fedra_engine::{
    ClientBlocks, Federation, Fleet, Noise, NoiseDraw, NoiseKind, Recipe, SplitConfig, SplitMode,
};
use fedra_net::{CutDialer, Dialer, Runtime, ServerSecurity};

use crate::sites::{Joined, Outcome, begin, options};
use crate::world::{Reports, World, bits, recipe};

pub fn run_cut(
    world: &World,
    recipe: &Recipe,
    (fleet, rounds): (&mut dyn Fleet, u32),
    middle: Arc<ServerSegment>,
) -> Outcome {
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
    federation.with_middle(middle);
    let mut reports = Reports::default();
    federation.run(fleet, &mut [&mut reports], rounds, &|| false).unwrap();
    (bits(federation.model()), reports.0)
}

pub fn middle(world: &World, split: &SplitConfig, fleet: &dyn Fleet) -> Arc<ServerSegment> {
    let model = (world.model.clone(), Device::cpu());
    Arc::new(ServerSegment::new(model, split.clone(), fleet.clients()))
}

#[test]
fn a_cut_over_sockets_is_the_cut_in_one_process_to_the_bit() {
    let world = World::new(3);
    let kind = NoiseKind::Clipped { norm: 3.0, sigma: 0.01 };
    let noise = Some(Noise { kind, draw: NoiseDraw::Fresh, gradients: true, gradient_norm: None });
    let splits = [
        SplitConfig { noise, ..SplitConfig::new(ClientBlocks { first: 1, last: 0 }) },
        SplitConfig {
            mode: SplitMode::Sequential,
            ..SplitConfig::new(ClientBlocks { first: 0, last: 1 })
        },
        SplitConfig {
            mode: SplitMode::Batched,
            ..SplitConfig::new(ClientBlocks { first: 0, last: 0 })
        },
        SplitConfig {
            average_every: Some(1),
            ..SplitConfig::new(ClientBlocks { first: 0, last: 1 })
        },
    ];
    for split in splits {
        let recipe = recipe("fedavg", "{}", |recipe| recipe.split = Some(split.clone()));
        let near = {
            let fleet = world.local();
            let middle = middle(&world, &split, &fleet);
            let mut fleet = fleet.with_middle(middle.clone(), Seed(5));
            run_cut(&world, &recipe, (&mut fleet, 2), middle)
        };
        let place = tempfile::tempdir().unwrap();
        let middle = middle(&world, &split, &world.local());
        let (mut fleet, told) = world.listen_cut(place.path(), options(), &middle);
        let address = fleet.address();
        let runtime = Arc::new(Runtime::start().unwrap());
        let sites: Vec<Joined> = (0..world.shards.clients.len() as u32)
            .map(|number| {
                let dialer = Dialer::new(&address, &ServerSecurity::Plain).unwrap();
                let mut client = world.client(number);
                let name = client.info.name.clone();
                let width = world.model.width();
                let cut = CutDialer::new((runtime.clone(), dialer), name.clone(), width);
                client.noise_seed = Seed(5).with(u64::from(number));
                client.connect = Some(Arc::new(cut));
                Joined::start(client, &address, place.path().join(name))
            })
            .collect();
        begin(&mut fleet);
        let far = run_cut(&world, &recipe, (&mut fleet, 2), middle);
        assert!(near.0 == far.0, "{split:?}: {}", told.all());
        assert_eq!(near.1, far.1, "{split:?}");
        assert!(near.1[0].bytes.crossing.hidden_up.0 > 0);
        let rows: u64 = far.1.iter().map(|report| report.bytes.crossing.hidden_up.0).sum();
        let received: u64 = fleet.traffic().iter().map(|(_, bytes)| bytes.received).sum();
        assert!(received > rows, "{received} bytes on the wire, {rows} of rows alone");
        fleet.end(fedra_net::RunEnd::Complete, "done");
        for site in sites {
            site.end().unwrap();
        }
    }
}
